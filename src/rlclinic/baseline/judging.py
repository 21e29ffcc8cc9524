"""A run judged by a baseline: which of its limits are used, what they changed, and where the run leaves the bands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rlclinic import names
from rlclinic.baseline.bands import METRICS, PART, drawn, outside, series_of
from rlclinic.baseline.learning import Learned, Learning, completed
from rlclinic.baseline.recipe import HARD, SOFT, Recipe, differ, recipe_of
from rlclinic.diagnose import diagnose
from rlclinic.healthy import Baseline, MovedLimit, Softened
from rlclinic.model import Diagnosis, Finding, Run, Severity

VITALS = (
    "reward.mean",
    "eval.score",
    "entropy.mean",
    "group.zero_var_frac",
    "kl.ref",
    "length.response.mean",
    "length.truncated_frac",
    "clip.frac",
    "grad.norm",
)
"""The metrics of which it is said where they leave the band."""
_LISTED = 80
"""Characters of a list of reward parts."""


def judged(
    run: Run,
    learning: Learning,
    *,
    only: Iterable[str] | None = None,
    limits: Mapping[str, Mapping[str, Any]] | None = None,
    gpu_hour_price: float | None = None,
) -> Diagnosis:
    """The diagnosis of ``run`` by the limits of ``learning`` where it is of the same recipe; ``limits`` win over them.

    Arguments and errors are those of ``diagnose``. The diagnosis says in ``baseline`` what was moved and what that changed.
    """
    given = {check: dict(rows) for check, rows in (limits or {}).items()}
    only = None if only is None else tuple(only)
    mine = recipe_of(completed(run))
    unlike = _unlike(learning.recipe, mine)
    if unlike:
        plain = diagnose(run, only=only, limits=limits, gpu_hour_price=gpu_hour_price)
        return replace(plain, baseline=Baseline(_who(learning), unlike=unlike))
    used, left = _usable(learning.limits, run, given)
    merged = {check: dict(rows) for check, rows in given.items()}
    for check, rows in replace(learning, limits=tuple(used)).given().items():
        merged.setdefault(check, {}).update(rows)
    diagnosis = diagnose(run, only=only, limits=merged, gpu_hour_price=gpu_hour_price)
    looked = {e.check for e in diagnosis.checks if e.outcome == "examined"}
    used = [one for one in used if one.check in looked]
    plain = diagnose(run, only=only, limits=limits, gpu_hour_price=gpu_hour_price) if used else diagnosis
    run = diagnosis.run
    bands = {
        metric: c for metric, c in learning.bands.items() if metric in run and run[metric].estimator == c.estimator
    }
    reward = _other_reward(learning, mine, run)
    if reward:
        bands = {metric: c for metric, c in bands.items() if not _of_reward(metric)}
    usual = learning.usual
    told = Baseline(
        runs=_who(learning),
        moved=tuple(move for one in used for move in _moves(one)),
        left=tuple(left),
        softened=_softened(plain.findings, diagnosis.findings),
        before=plain.verdict.severity if plain.verdict.severity != diagnosis.verdict.severity else "",
        bands={metric: drawn(course, run, usual) for metric, course in bands.items()},
        outside=tuple(outside(bands, run, {m: names.metric(m).title for m in VITALS}, usual)),
        remarks=(*_remarks(learning, mine), *([f"{reward}: levels of the reward are not compared"] if reward else [])),
    )
    return replace(diagnosis, baseline=told)


def _who(learning: Learning) -> tuple[str, ...]:
    return tuple(run.name for run in learning.runs)


def _unlike(recipe: Recipe, mine: Recipe) -> tuple[str, ...]:
    return tuple(f"{HARD[name]} is {b} here and {a} there" for name, a, b in differ(recipe, mine, tuple(HARD)))


def _other_reward(learning: Learning, mine: Recipe, run: Run) -> str:
    """How the reward of ``run`` is put together otherwise than in the healthy runs; empty where nothing says so."""
    theirs = {name[len(PART) :] for name in learning.bands if name.startswith(PART)}
    parts = {name[len(PART) :] for name in series_of(run) if name.startswith(PART)}
    if theirs and parts and theirs != parts and len(learning.bands) < METRICS:
        told = [", ".join(sorted(some))[:_LISTED] for some in (parts, theirs)]
        return f"the reward is made of {told[0]} here and of {told[1]} there"
    if "reward_weights" in learning.recipe.varied:
        return "the healthy runs weigh the parts of the reward differently"
    return (
        "the parts of the reward are weighted otherwise" if differ(learning.recipe, mine, ("reward_weights",)) else ""
    )


def _of_reward(metric: str) -> bool:
    return metric in names.metrics() and names.metric(metric).unit == "reward"


def _remarks(learning: Learning, mine: Recipe) -> tuple[str, ...]:
    apart = [f"{name} is {b} here and {a} there" for name, a, b in differ(learning.recipe, mine, SOFT)]
    unknown = [HARD[n] for n in HARD if n in learning.recipe.settings and n not in mine.settings and n[:7] != "reward_"]
    odd = [check for check in learning.accepted if check not in {one.check for one in learning.limits}]
    apart += [f"its runs were taken as healthy although {check} warns of them" for check in odd]
    said = [f"not known of this run, so taken as in the baseline: {', '.join(unknown)}"] if unknown else []
    return tuple(apart + said)


def _usable(
    limits: Iterable[Learned], run: Run, given: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Learned], list[tuple[str, str]]]:
    """The limits that decide here, and those that do not with the reason."""
    used, left = [], []
    for one in limits:
        name = f"{one.check}.{one.limit}"
        other = [
            f"{metric} is estimated otherwise here ({run[metric].estimator or 'not known'}, there {how or 'not known'})"
            for metric, how in one.seen_in.items()
            if metric in run and run[metric].estimator != how
        ]
        if one.limit in given.get(one.check, {}):
            left.append((name, "your limits file decides"))
        elif other:
            left.append((name, "; ".join(other)))
        else:
            used.append(one)
    return used, left


def _moves(one: Learned) -> list[MovedLimit]:
    return [
        MovedLimit(one.check, one.limit, "" if grade == "value" else grade, one.before[grade], number, one.because)
        for grade, number in one.numbers.items()
    ]


def _softened(plain: Iterable[Finding], ours: Iterable[Finding]) -> tuple[Softened, ...]:
    """Findings whose severity the baseline changed, in the order of the diagnosis without it, new ones last."""
    by_us, without = {f.check: f for f in ours}, {f.check: f for f in plain}
    made = []
    for check in (*without, *(check for check in by_us if check not in without)):
        old = without[check].severity if check in without else None
        new = by_us[check].severity if check in by_us else None
        if old != new and max(old or 0, new or 0) >= Severity.WARNING:
            says = (without.get(check) or by_us[check]).says
            made.append(Softened(check, "" if old is None else old.label, "" if new is None else new.label, says))
    return tuple(made)
