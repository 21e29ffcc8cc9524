"""Make the logs of one run a Run: merge what several parts and forms of it say, and draw what follows from the whole."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rlclinic import names
from rlclinic.errors import BadRequest, nearest
from rlclinic.model import Checkpoint, Column, Component, Floats, Framework, Knob, Run, Source, Unrecognised, Warn
from rlclinic.readers.kinship import Held, agrees, outlived, parts, sure
from rlclinic.readers.log import Log
from rlclinic.readers.translate import Translated
from rlclinic.steps import united

PASTE = 12
"""Rows up to which text without a run around it counts as an excerpt (ours)."""
_SEAM = ("learning_rate", "kl_coef", "group_size", "clip_low", "clip_high", "inner_epochs", "temperature", "batch_size",
         "max_response_length", "lr_schedule", "weight_decay", "entropy_coef", "loss_type", "model")  # fmt: skip
"""Settings whose change between two parts of a run is told first."""
_RESTARTS = frozenset({"several_starts", "restarted", "several_attempts"})
_COUNTS = frozenset({"row_order", "rows_without_step", "steps_do_not_move", "fractional_steps"})


def assemble(
    sources: Sequence[str | Path],
    held: Sequence[Held],
    translated: Sequence[Translated],
    framework: Framework | None,
    knobs: dict[str, Knob],
    warnings: Sequence[Warn],
    eval_key: str | None,
    beside: Sequence[Source] = (),
    checkpoints: Sequence[Checkpoint] = (),
) -> Run:
    """The run that ``held`` logs, best first, tell together; ``beside`` are files that belong to it and hold no log,
    ``checkpoints`` its saved states.

    Nothing is counted twice: the parts of the run follow each other, and other forms of them fill what they lack.
    Raises BadRequest for an ``eval_key`` that no log holds.
    """
    logs = [one.log for one in held]
    warnings = list(warnings)
    spine, forms = parts(held, translated)
    whole = _Whole()
    for at, k in enumerate(spine):
        whole.go_on(held[k], translated[k], _changes(held[spine[at - 1]], held[k], framework) if at else "", warnings)
    told = _RESTARTS | _COUNTS if whole.seams else _COUNTS
    for k in forms:
        whole.fill(translated[k], sure(logs[k]) or any(agrees(translated[i], translated[k]) for i in spine))
    # What another form has of a restart, or lacks of steps, the parts tell better.
    repeated = {warn for k in forms for warn in logs[k].warnings if warn.code in told}
    warnings = [w for w in warnings if w not in repeated - {w for k in spine for w in logs[k].warnings}]
    for k, one in enumerate(translated):
        warnings += [warn for warn in one.warnings if k in spine or warn.code not in told]
    columns, components, evaluations = whole.columns, whole.components, whole.evaluations
    known = {u for t in translated for u in t.undecided}
    chosen, rule = _held_out(evaluations, eval_key, framework)
    if chosen is not None:
        columns["eval.score"] = replace(evaluations[chosen], metric="eval.score")
    unrecognised = {k: n for t in translated for k, n in t.unrecognised.items()}
    rows = max((log.rows for log in logs), default=0)
    excerpt = all(log.excerpt for log in logs) or (
        rows <= PASTE and all(log.format.startswith(("console", "table", "jsonl")) for log in logs)
    )
    planned = next((log.planned_steps for log in logs if log.planned_steps), None)
    if planned is None and isinstance(value := getattr(knobs.get("planned_steps"), "value", None), int) and value > 0:
        planned = value
    knobs = {**_implied(columns), **_uncontradicted(knobs, columns)}
    kinds = {log.kind for log in logs}
    # How a run ended, and what was measured over it, is told by the part that it ended with.
    early = outlived(translated)
    ended = [log for log, left in zip(logs, early, strict=True) if not left]
    told_early = [log for log, left in zip(logs, early, strict=True) if left]
    facts = {key: text for log in reversed([*ended, *told_early]) for key, text in log.facts.items()}
    if "train_runtime" in facts:
        runtime = next((log.facts["train_runtime"] for log in ended if "train_runtime" in log.facts), "")
        facts = {key: text for key, text in facts.items() if key != "train_runtime"}
        if runtime:
            facts["train_runtime"] = f"{runtime} s" if re.fullmatch(r"[\d.]{1,20}", runtime) else runtime
    model = knobs.get("model")
    if model is not None and "model" not in facts:
        facts["model"] = str(model.value)
    return Run(
        name=_name(sources, logs),
        framework=framework,
        algorithm=_algorithm(columns, knobs, framework, facts),
        columns=columns,
        components=components,
        evaluations=evaluations,
        eval_rule=rule,
        knobs=knobs,
        sources=(*(Source(log.path, log.format, log.rows, log.nonfinite) for log in logs), *beside),
        unrecognised=tuple(
            Unrecognised(key, names.nearest_keys(key, framework), count) for key, count in sorted(unrecognised.items())
        ),
        undecided=tuple(u for t in translated[:1] for k, u in sorted(t.undecided.items()) if k in known),
        warnings=tuple(dict.fromkeys(warnings)),
        seams=dict(sorted(whole.seams.items())),
        began=whole.began,
        planned_steps=planned,
        checkpoints=tuple(checkpoints),
        excerpt=excerpt,
        kind="supervised" if kinds == {"supervised"} else "crash" if kinds == {"crash"} else "rl",
        ending=next((log.ending for log in ended if log.ending), ""),
        facts=facts,
    )


@dataclass
class _Whole:
    """The run as far as it is put together."""

    columns: dict[str, Column] = field(default_factory=dict)
    components: dict[str, Component] = field(default_factory=dict)
    evaluations: dict[str, Column] = field(default_factory=dict)
    seams: dict[float, str] = field(default_factory=dict)
    began: float | None = None
    _covered: Floats = field(default_factory=lambda: np.empty(0))

    def go_on(self, held: Held, one: Translated, changes: str, warnings: list[Warn]) -> None:
        """Add the next part; what earlier parts hold from its first step on was abandoned by the resume."""
        starts = min((float(c.steps[0]) for c in _all(one) if len(c)), default=np.inf)
        lost = int((self._covered >= starts).sum())
        if len(self._covered) and np.isfinite(starts):
            reached = float(self._covered[-1])
            was = f"the part before reached step {reached:g}"
            self.seams = {at: why for at, why in self.seams.items() if at < starts}
            self.seams[starts] = f"{held.name} goes on here, {was}" + (f"; {changes}" if changes else "")
            if self.began is not None and self.began >= starts:
                self.began = None
            if lost:
                says = f"{held.name} goes on from step {starts:g}: {lost} steps of the abandoned branch are left out"
                warnings.append(Warn("restarted", says))
            missing = starts - reached
            usual = float(np.median(np.diff(self._covered))) if len(self._covered) > 1 else 1.0
            if missing > 2 * usual:
                says = f"no file holds the steps between {reached:g} and {starts:g}"
                warnings.append(Warn("steps_missing", says))
        self.columns = _chained(self.columns, one.columns, starts)
        for name, part in one.components.items():
            old = self.components.get(name)
            mean = part.mean if old is None else _chain(old.mean, part.mean, starts)
            self.components[name] = replace(old or part, mean=mean)
        for name in self.components.keys() - one.components.keys():
            self.components[name] = replace(self.components[name], mean=_before(self.components[name].mean, starts))
        named = {self._evaluation(key): column for key, column in one.evaluations.items()}
        self.evaluations = _chained(self.evaluations, named, starts)
        self.seams |= one.seams
        self.began = one.began if one.began is not None else self.began
        self._cover()

    def fill(self, one: Translated, certain: bool) -> None:
        """Add what another form of the run knows besides: metrics that are lacking, and rows outside of all known ones.

        Where its steps are not ``certain`` it adds no row to a known metric: its rows may be off by a few steps.
        """
        admitted = self._covered if certain else None
        for metric, column in one.columns.items():
            self.columns[metric] = _filled(self.columns.get(metric), column, admitted)
        for name, part in one.components.items():
            old = self.components.get(name)
            self.components[name] = part if old is None else replace(old, mean=_filled(old.mean, part.mean, admitted))
        for key, column in one.evaluations.items():
            name = self._evaluation(key)
            self.evaluations[name] = _filled(self.evaluations.get(name), column, admitted)
        if not self.seams:
            self.seams = dict(one.seams)
        self.began = self.began if self.began is not None else one.began
        self._cover()

    def _evaluation(self, key: str) -> str:
        """The name under which the held-out series of a log key is known already."""
        bare = names.strip(key)[0]
        return next((known for known in self.evaluations if names.strip(known)[0] == bare), key)

    def _cover(self) -> None:
        every = (*self.columns.values(), *(part.mean for part in self.components.values()))
        self._covered = united(column.steps for column in every if len(column))


def _all(one: Translated) -> list[Column]:
    return [*one.columns.values(), *(part.mean for part in one.components.values()), *one.evaluations.values()]


def _before(column: Column, step: float) -> Column:
    keep = column.steps < step
    return column if bool(keep.all()) else replace(column, steps=column.steps[keep], values=column.values[keep])


def _chained(old: Mapping[str, Column], new: Mapping[str, Column], starts: float) -> dict[str, Column]:
    cut = {name: _before(column, starts) for name, column in old.items()}
    joined = {name: _chain(cut[name], column, starts) if name in cut else column for name, column in new.items()}
    return {name: column for name, column in {**cut, **joined}.items() if len(column)}


def _chain(old: Column, new: Column, starts: float) -> Column:
    """The rows of ``old`` before step ``starts``, then those of ``new``."""
    old = _before(old, starts)
    if not len(old):
        return new
    steps, values = np.concatenate([old.steps, new.steps]), np.concatenate([old.values, new.values])
    return replace(old, steps=steps, values=values, resolution=max(old.resolution, new.resolution))


def _filled(old: Column | None, new: Column, covered: Floats | None) -> Column:
    """``old`` with the rows of ``new`` that lie before, behind or in the gaps of the ``covered`` steps of the whole run.

    A gap is more than twice the usual distance of steps, since parts of a run may be given in any order.
    """
    if old is None or not len(old):
        return new
    if covered is None or not len(covered):
        return old
    outside = (new.steps > covered[-1]) | (new.steps < covered[0])
    if len(covered) > 2:
        at = np.searchsorted(covered, new.steps).clip(1, len(covered) - 1)
        usual = float(np.median(np.diff(covered)))
        within = (new.steps - covered[at - 1] >= usual) & (covered[at] - new.steps >= usual)
        outside |= within & (covered[at] - covered[at - 1] > 2 * usual)
    if not outside.any():
        return old
    steps = np.concatenate([old.steps, new.steps[outside]])
    values = np.concatenate([old.values, new.values[outside]])
    rank = np.argsort(steps, kind="stable")
    return replace(old, steps=steps[rank], values=values[rank], resolution=max(old.resolution, new.resolution))


def _changes(before: Held, after: Held, framework: Framework | None) -> str:
    """Which settings two parts of a run print differently, in words; empty where they agree or print none."""
    was = names.read_knobs(before.log.config, framework, "log")
    now = names.read_knobs(after.log.config, framework, "log")
    moved = [name for name in was if name in now and was[name].value != now[name].value]
    moved.sort(key=lambda name: _SEAM.index(name) if name in _SEAM else len(_SEAM))
    told = [f"{now[name].key} {was[name].value} -> {now[name].value}" for name in moved[:6]]
    return ", ".join(told) + (f" and {len(moved) - 6} more" if len(moved) > 6 else "")


def _uncontradicted(knobs: dict[str, Knob], columns: Mapping[str, Column]) -> dict[str, Knob]:
    """The settings without the defaults that something is not in use where the log holds what it measures: a term of the
    loss, or a second engine that samples (settings of a file are often completed on the command line)."""
    wrong = set()
    measures = [("kl_coef", "kl.ref"), ("entropy_coef", "entropy.coef")]
    measures += [("sampler", metric) for metric in columns if metric.startswith(("mismatch.kl", "mismatch.logp_diff"))]
    for name, metric in measures:
        weight, seen = knobs.get(name), columns.get(metric)
        shown = seen is not None and seen.status == "measured" and bool(seen.finite.values.any())
        if weight is not None and weight.origin == "default" and weight.value in (0, 0.0) and shown:
            wrong.add(name)
    return {name: knob for name, knob in knobs.items() if name not in wrong}


def _implied(columns: Mapping[str, Column]) -> dict[str, Knob]:
    """Settings that the metrics themselves betray: the peak learning rate, an entropy coefficient that stays as it is, and
    the limit at which answers are cut."""
    found: dict[str, Knob] = {}
    rate = columns.get("optim.lr")
    if rate is not None and len(rate.finite) and not rate.rounded_zero:
        used = rate.finite.values[rate.finite.values > 0]
        constant = len(used) > 0 and used.max() <= 1.05 * used.min()
        from_start = len(used) >= 20 and float(rate.finite.steps[0]) <= 0.05 * float(rate.finite.steps[-1])
        # A rate that jumps or decays over decades has no one value to start from, nor has the end of a schedule.
        if constant or (from_start and used.max() <= 3 * np.median(used)):
            found["learning_rate"] = Knob("learning_rate", float(f"{used.max():.4g}"), rate.key, "log")
    bonus = columns.get("entropy.coef")
    if bonus is not None and len(bonus.finite) and not bonus.rounded_zero:
        held = bonus.finite.values
        if 0 < held.max() <= 1.001 * held.min():  # a controller moves it: then it is no setting
            found["entropy_coef"] = Knob("entropy_coef", float(f"{held.max():.4g}"), bonus.key, "log")
    cut, longest = columns.get("length.truncated_frac"), columns.get("length.response.max")
    if cut is not None and longest is not None and len(longest.finite) and bool((cut.finite.values > 0).any()):
        top = longest.finite.values
        limit = float(top.max())
        # Only a limit makes the longest answer the same whole number row after row.
        if limit == int(limit) and float((top == limit).mean()) >= 0.8:
            found["max_response_length"] = Knob("max_response_length", int(limit), longest.key, "log")
    return found


def _held_out(
    evaluations: Mapping[str, Column], wanted: str | None, framework: Framework | None
) -> tuple[str | None, str]:
    """Which held-out series is the score, and the rule that says so."""
    if wanted is not None:
        match = [k for k in evaluations if k == wanted or names.strip(k)[0] == names.strip(wanted)[0]]
        if not match:
            raise BadRequest(
                "a held-out series of this log", f"--eval {wanted}", nearest(wanted, evaluations) or tuple(evaluations)
            )
        return match[0], f"{match[0]}, as asked"
    named = {key: key if names.is_own(key, framework) else None for key in evaluations}
    ranked = [
        (rank, i, key)
        for i, key in enumerate(evaluations)
        if (rank := names.evaluation_rank(key, named[key])) is not None
    ]
    if not ranked:
        return None, ""
    rank, _, key = min(ranked)
    others = len(ranked) - 1
    rest = f"; {others} other held-out series, choose with --eval KEY" if others else ""
    return key, f"{key}: {names.EVAL_RULES[rank[0]]}{rest}"


def _algorithm(
    columns: Mapping[str, Column], knobs: Mapping[str, Knob], framework: Framework | None, facts: Mapping[str, str]
) -> str | None:
    stated = knobs.get("algorithm")
    if stated is not None and stated.origin != "default":
        return str(stated.value).lower()
    if "value.loss" in columns or "value.explained_var" in columns:
        return "ppo"
    if "algorithm" in facts:
        return facts["algorithm"].lower()
    grouped = "group.zero_var_frac" in columns or "reward.group_std" in columns
    return "grpo" if grouped or (framework is not None and framework.name in ("unsloth", "ms_swift")) else None


def _name(sources: Sequence[str | Path], logs: Sequence[Log]) -> str:
    """What the run is called: the file or directory, with the run's own name where the source tells several apart."""
    name = _of_file(sources)
    own = next(("".join(c if c.isprintable() else " " for c in log.run[:80]) for log in logs if log.run), name)
    return name if own == name else f"{name} ({own})"


def _of_file(sources: Sequence[str | Path]) -> str:
    first = str(sources[0])
    paths = [Path(source) for source in sources if str(source) != "-" and "://" not in str(source)]
    if len(paths) == len(sources) > 1 and all(path.is_dir() for path in paths):
        around = Path(os.path.commonpath([path.resolve() for path in paths]))
        first = str(around) if around.name else first  # the same name in whatever order they are given
    if first == "-":
        return "standard input"
    path = Path(first).resolve()
    generic = {"trainer_state", "metrics", "train", "log", "output", "console", "training", "logging", "step_logs"}
    return path.parent.name if path.is_file() and path.stem in generic else path.stem if path.is_file() else path.name
