"""Saved answers of simulated runs: healthy ones, runs with a planted exploit, and those a run's description asks for.

The table ``["answers"]`` of a description (see ``spec``) gives the run saved answers:

saved = 30            # steps with saved answers, evenly over the logged steps
prompts = 8           # groups in a step
group = 8             # answers in a group
task = "arithmetic"   # algebra, choice, yes_no, code, find; judged by degree: summary, rewrite, request; or a list
form = "boxed"        # plain, tags, think, hash, bold
pool = 0              # different prompts, met again in later epochs; 0: always new ones
truth = true          # the right answers are saved
parts = false         # the parts of the reward are saved
tokens = true         # token counts are saved; ``endings`` and ``texts`` likewise
advantage = "scaled"  # "centred" (not over the spread), "raw" (the reward), "batch" (less the mean of the step), "none"
filtered = false      # as in ``Rollouts``; dead groups are left out; ``partial``: one answer of a group is missing
dead = ""             # what dead groups hold: "copies" (one text), "ties" (answers that differ, one reward)
wrong_longer = 1.0    # factor on the talk of wrong answers
judge_noise = 0.0     # spread of the judge's marks; some answers of a group are equal, so that it shows
judge_drift = 0.0     # added to the marks over the run; some answers are the same in all epochs, so that it shows
exploit = ""          # a kind of ``exploits.toml``; brings its own rewards
family = ""           # a family of ``families.toml``; brings its own rewards
seed = 0              # added to that of the run

Shares of the answers of a step, a number or { from, to, at, over } with times in trainer steps:

dead_share            # of groups; from the run's group.zero_var_frac if it has one and no ``dead`` is set
loops                 # end in a phrase said again and again, up to the limit
foreign               # are in another language than the prompt
near_copies           # differ from another answer of the group in a word or two; ``copies``: in nothing
unclosed              # lack the end of their thinking, box, tag or program
empty                 # have no text
cut                   # reach the limit; from the run's length.truncated_frac if it has one
exploited             # share of the answers with the ``exploit``; without it the exploit's own course

Levels, a number or { from, to, at, over }:

stale                 # policy versions between sampling and training
mismatch              # mean |log p trainer - log p sampler| of an answer, nats
accuracy              # share of right answers, where the run has no reward.mean

Defaults are those of a healthy run. Where the run has reward.mean, the saved answers have that mean at each saved step
(to one answer, where answers are right or wrong), and token counts have its length.response.mean; answers that a share
spoils are wrong ones first. Metrics of the preset that the description itself does not state and answers
show exactly (reward, its spread, dead groups, truncation, length) are moved to what the answers show.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlclinic.errors import BadTable, nearest
from rlclinic.model import Column, Floats, Run
from rlclinic.rollouts import Ints, Rollouts
from rlclinic.simulate.exploits import Planted, kinds
from rlclinic.simulate.mishaps import JUDGED, fit, level, quotas, spoil
from rlclinic.simulate.policy import FORMS, Course, Made, Saved, advantages, make, tabulate
from rlclinic.simulate.sets import as_lines, clean, families, family_course, planted, planted_course
from rlclinic.simulate.tasks import TASKS

__all__ = ["answers_of", "as_lines", "borrowed", "check_answers", "clean", "families", "kinds", "matched", "planted"]

DEFAULTS: Mapping[str, Any] = {
    "saved": 30, "prompts": 8, "group": 8, "task": "arithmetic", "form": "boxed", "pool": 0, "seed": 0,
    "truth": True, "parts": False, "tokens": True, "endings": True, "texts": True, "advantage": "scaled",
    "filtered": False, "partial": False, "dead": "", "wrong_longer": 1.0, "judge_noise": 0.0, "judge_drift": 0.0,
    "exploit": "", "family": "",
}  # fmt: skip
LEVELS = (
    "dead_share", "loops", "foreign", "near_copies", "copies", "unclosed", "empty", "cut", "exploited",
    "stale", "mismatch", "accuracy",
)  # fmt: skip
"""Keys that take a number or a table { from, to, at, over }."""
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "form": FORMS,
    "advantage": ("scaled", "centred", "raw", "batch", "none"),
    "dead": ("", "copies", "ties"),
}
_MOST = {"saved": 2_000, "prompts": 512, "group": 512, "pool": 100_000, "seed": 2**31}


def check_answers(given: Mapping[str, Any]) -> None:
    """Raises BadTable for a key or a value of the table ``answers`` that means nothing."""
    for key, value in given.items():
        if key in LEVELS:
            level(value, f"answers.{key}")
            continue
        if key not in DEFAULTS:
            known = (*DEFAULTS, *LEVELS)
            raise BadTable("a key of answers", repr(key), (*nearest(key, known), *known))
        wanted: Any = {float: (int, float), str: (str, list) if key == "task" else str}.get(
            type(DEFAULTS[key]), type(DEFAULTS[key])
        )
        if not isinstance(value, wanted) or (isinstance(value, bool) and not isinstance(DEFAULTS[key], bool)):
            raise BadTable(f"answers.{key} of the kind of {DEFAULTS[key]!r}", repr(value)[:60])
        if key in _CHOICES and value not in _CHOICES[key]:
            raise BadTable(f"a known answers.{key}", repr(value)[:60], _CHOICES[key])
        if key in _MOST and not (0 if key in ("pool", "seed") else 1) <= value <= _MOST[key]:
            raise BadTable(f"answers.{key} of at most {_MOST[key]}", repr(value)[:60])
    for task in _tasks(given.get("task", "arithmetic")):
        if task not in TASKS:
            raise BadTable("a task of answers", repr(task)[:60], tuple(TASKS))
    for key, known in (("exploit", tuple(kinds())), ("family", tuple(families()))):
        if given.get(key) and given[key] not in known:
            raise BadTable(f"a known answers.{key}", repr(given[key])[:60], (*nearest(given[key], known), *known))


def _tasks(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def borrowed(given: Mapping[str, Any]) -> bool:
    """Whether the answers bring their own rewards, which the curves of the run know nothing of."""
    return bool(given.get("family") or given.get("exploit"))


def matched(run: Run, table: Rollouts, stated: Container[str]) -> Run:
    """``run`` with the metrics that ``table`` shows exactly moved to what it shows, save those ``stated`` in a description.

    At steps with saved answers they are equal; in between they keep their noise about a line between those.
    """
    columns, components = dict(run.columns), dict(run.components)
    if table.partial or table.filtered:
        return run
    place = np.searchsorted(table.steps, table.step)
    for name, shows in _SHOWN.items():
        if name in columns and name not in stated and columns[name].status == "measured":
            columns[name] = _moved(columns[name], table.steps, shows(table, place))
    alone = "reward.mean" not in stated and len(components) == 1
    for name, part in components.items():
        if alone and f"part.{name}" not in stated and not table.parts:
            components[name] = replace(part, mean=_moved(part.mean, table.steps, _SHOWN["reward.mean"](table, place)))
    return replace(run, columns=columns, components=components)


def _moved(column: Column, steps: Floats, values: Floats) -> Column:
    fine = np.isfinite(column.values)
    if not fine.any():
        return column
    off = values - np.interp(steps, column.steps[fine], column.values[fine])
    moved = column.values + np.interp(column.steps, steps, off)
    low, high = float(min(values.min(), 0.0)), max(1.0, float(values.max()))
    return replace(column, values=np.clip(moved, low, high) if high == 1.0 else moved)


def _mean(values: Floats, place: Ints) -> Floats:
    return np.asarray(np.bincount(place, values) / np.bincount(place))


def _deviation(table: Rollouts, place: Ints) -> Floats:
    off = table.reward - _mean(table.reward, place)[place]
    return np.sqrt(np.bincount(place, off * off) / np.maximum(1, np.bincount(place) - 1))


def _in_groups(table: Rollouts, place: Ints) -> Floats:
    off = table.centred(table.reward)
    deviation = np.sqrt(table.sums(off * off) / np.maximum(1, table.size - 1))
    return _mean(deviation, np.searchsorted(table.steps, table.group_step))


def _end(of: np.ufunc) -> Callable[[Rollouts, Ints], Floats]:
    return lambda table, place: np.asarray(of.reduceat(table.reward, np.flatnonzero(np.diff(place, prepend=-1))))


_SHOWN: Mapping[str, Callable[[Rollouts, Ints], Floats]] = {
    "reward.mean": lambda table, place: _mean(table.reward, place),
    "reward.std": _deviation,
    "reward.group_std": _in_groups,
    "reward.min": _end(np.minimum),
    "reward.max": _end(np.maximum),
    "group.zero_var_frac": lambda table, place: _mean(
        table.dead.astype(float), np.searchsorted(table.steps, table.group_step)
    ),
    "length.truncated_frac": lambda table, place: _mean((table.ending == 2).astype(float), place),
    "length.response.mean": lambda table, place: _mean(table.tokens, place),
}
"""What a table shows of its steps: (table, number of each row's step) -> (steps,). Rows stand in the order of steps."""


def answers_of(given: Mapping[str, Any], run: Run, seed: int, steps: int = 400) -> Saved:
    """The saved answers that the table ``answers`` of a description gives to ``run``; ``steps`` are those of a run that
    logs nothing. Raises BadTable."""
    check_answers(given)
    value = {**DEFAULTS, **{key: given[key] for key in given if key in DEFAULTS}}
    logged = run.steps if len(run.steps) else np.arange(1.0, steps + 1.0)
    spots = np.linspace(0, len(logged) - 1, min(value["saved"], len(logged))).round().astype(int)
    at = logged[np.unique(spots)]
    levels = {key: level(given[key], f"answers.{key}", float(logged[-1]))(at) for key in LEVELS if key in given}
    own = borrowed(value)
    means = None if own else _at(run, "reward.mean", at)
    course, exploit = _course(given, value, levels, len(at), value["seed"] + seed)
    word = f"answers/{value['seed'] + seed}"
    scale = (0.0, 1.0)
    if means is not None and not _judged(course):
        scale = min(0.0, float(means.min())), max(1.0, float(means.max()))
        dead = levels.get("dead_share", _at(run, "group.zero_var_frac", at))
        if value["dead"] and dead is None:
            dead = np.full(len(at), 0.6)
        counts = quotas(word, (means - scale[0]) / (scale[1] - scale[0]), dead, course, ties=value["dead"] == "ties")
        course = replace(course, counts=counts)
    made = make(course, word, exploit)
    if means is not None:
        fit(made, means, scale, judged=_judged(course), ties=value["dead"] == "ties")
    lengths = _at(run, "length.response.mean", at)
    limit = run.knob("max_response_length")
    if "cut" not in levels and not own and (cut := _at(run, "length.truncated_frac", at)) is not None:
        levels["cut"] = cut
    most = float(limit) if isinstance(limit, (int, float)) and limit > 0 else 0.0
    spoil(word, made, course, levels, lengths=lengths, limit=most, copied=value["dead"] == "copies")
    if means is not None and _judged(course):
        fit(made, means, scale, judged=True, ties=False)
    _advantages(made, value["advantage"])
    saved = tabulate(made, steps=at, parts=value["parts"] or (own and course.parts), truths=value["truth"],
                     endings=value["endings"], source="answers.jsonl")  # fmt: skip
    return _as_asked(saved, value)


def _judged(course: Course) -> bool:
    return any(TASKS[task].graded for task in course.tasks)


def _at(run: Run, metric: str, at: Floats) -> Floats | None:
    """(len(at),) the metric at these steps, between logged ones by a straight line; None where the run lacks it."""
    column = run.get(metric)
    if column is None:
        return None
    fine = np.isfinite(column.values)
    return np.interp(at, column.steps[fine], column.values[fine]) if fine.any() else None


def _course(
    given: Mapping[str, Any], value: Mapping[str, Any], levels: Mapping[str, Floats], steps: int, seed: int
) -> tuple[Course, Planted | None]:
    size = {"steps": steps, "prompts": value["prompts"], "answers": value["group"]}
    if value["family"]:
        return family_course(value["family"], seed, **size), None
    if value["exploit"]:
        course, exploit = planted_course(value["exploit"], seed, **size)
        if "task" in given:
            course = replace(course, tasks=_tasks(value["task"]))
        if "exploited" in levels:
            exploit = replace(exploit, shares=tuple(levels["exploited"].tolist()))
        return course, exploit
    marks = value["judge_noise"] > 0 or value["judge_drift"] != 0
    task = ("summary",) if marks and "task" not in given else _tasks(value["task"])
    level = levels.get("accuracy")
    # Marks that drift need room above them.
    usual = (0.3, 0.3) if value["judge_drift"] > 0 else (0.35, 0.65)
    course = Course(
        tasks=task,
        accuracy=usual if level is None else (float(level[0]), float(level[-1])),
        pace=2.0 if level is None else 0.0,
        form=value["form"] if "unclosed" not in levels or "form" in given else "think",
        pool=value["pool"] or (12 if value["judge_drift"] else 0),
        talk=(4.0, 4.0),
        right_talk=1.0 / max(0.05, value["wrong_longer"]),
        judge_noise=value["judge_noise"] if marks else JUDGED,
        judge_drift=value["judge_drift"],
        **size,
    )
    return course, None


def _advantages(made: list[Made], kind: str) -> None:
    if kind == "raw":
        for one in made:
            one.advantage = one.reward
    elif kind == "batch":
        for step in {one.step for one in made}:
            mine = [one for one in made if one.step == step]
            mean = sum(one.reward for one in mine) / len(mine)
            for one in mine:
                one.advantage = one.reward - mean
    elif kind != "none":
        advantages(made, scaled=kind == "scaled")


def _as_asked(saved: Saved, value: Mapping[str, Any]) -> Saved:
    """The table without what the description leaves out."""
    table = saved.table
    keep = np.ones(len(table), dtype=np.bool_)
    if value["filtered"]:
        keep &= ~table.dead[table.group]
    if value["partial"]:
        keep[:: value["group"]] = False
    changed: dict[str, Any] = {"filtered": value["filtered"], "partial": value["partial"]}
    if not value["tokens"]:
        changed["tokens"] = np.full(len(table), np.nan)
    if not value["texts"]:
        changed |= {"texts": {}, "characters": np.full(len(table), np.nan)}
        changed |= {"answer": np.full(len(table), -1, np.int64), "prompt": np.full(len(table), -1, np.int64)}
    table = replace(table, **changed)
    return Saved(table if keep.all() else table.only(keep), saved.carries[keep], saved.right[keep])
