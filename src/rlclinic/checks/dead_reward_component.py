"""A part of the reward is constant, so that it teaches nothing.

## What you see
The mean of one reward part is the same in every row, mostly 0; or it has hardly any share in the reward's variance. Saved
answers show more: a part that differs between prompts and never within a group.

## Why it matters
A constant shifts every reward of a group alike, and advantages do not feel it. Whatever the part was meant to teach is
not taught, and the reward looks as if it were.

## When it is not a problem
A part that varied early and is now always earned has been learnt. One that was earned from the first row on may simply
be satisfied, and a penalty of 0 was never due. When every part is constant the whole reward is dead: see dead groups.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlclinic.answers.parts import PartShare
from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.rewards import faint, proof, saved_shares
from rlclinic.model import Component, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import late_mean
from rlclinic.stats.shift import longest_run

_PENALTY = re.compile(r"penal|overlong|violat|punish|cost|(?<!no)(?<!no[_-])error(?!.?free)", re.I)
_PRINTS = re.compile(r"^_|(^|[_-])(dbg|debug|log|logger|logging|print|trace)($|[_-])", re.I)
_KINDS = {
    "never": ("no answer earns what is asked there", "is constant, so that it teaches nothing"),
    "lost": ("no longer earned", "is no longer earned"),
    "between": ("differs between prompts and never within a group, where alone it could teach", "ties in every group"),
    "prints": ("by its name it only prints", "pays nothing, as a function that only prints"),
    "always": ("always satisfied, or unable to tell answers apart", "is constant, so that it teaches nothing"),
    "faint": ("under 2 % of the reward's variance from first to last", "hardly counts"),
    "learnt": ("always earned by now", "is always earned by now"),
}
"""What a dead part can be, worst first, and the title for it; the last four do no harm by themselves."""


class _Part(NamedTuple):
    name: str
    kind: str
    value: float
    rows: int
    since: float
    weight: float | None
    """Share of all weights; None when unknown."""


@check(page=__doc__, uses=["reward.component.mean", "reward.component.std"], since="0.2")
def dead_reward_component(run: Run, limits: Limits) -> Answer:
    parts = [part for part in run.components.values() if len(part.mean.finite)]
    if not parts:
        return Unexamined(("reward.component.mean",), "the parts of the reward are not logged")
    if len(parts) == 1:
        return NotApplicable("the reward has a single part")
    saved = saved_shares(run)
    dead = [found for part in parts if (found := _dead(part, run, limits, saved)) is not None]
    numbers, metrics = {"parts": float(len(parts)), "dead": float(len(dead))}, ("reward.component.mean",)
    whole = len(dead) == len(parts) and all(found.kind != "faint" for found in dead)
    if not dead or whole:
        says = "every reward part is constant, so the whole reward is" if whole else "every reward part varies"
        return Finding(None, says, numbers, metrics)
    ranked = sorted(dead, key=lambda found: (-_severity(found, limits), list(_KINDS).index(found.kind)))
    severity, kind = _severity(ranked[0], limits), ranked[0].kind
    worst = [found for found in ranked if (_severity(found, limits), found.kind) == (severity, kind)]
    since = max(found.since for found in worst)
    return Finding(
        severity=severity,
        title=f"A part of the reward {_KINDS[kind][1]}.",
        says=_words(worst, kind) + proof(run, [found.name for found in worst], saved),
        numbers={**numbers, "rows": float(min(found.rows for found in worst))},
        metrics=metrics,
        onset=Onset(since, since, since),
        evidence=Evidence(len(dead) / len(parts), None, "one value in every row"),
        remedies=() if kind == "prints" else ("score_gold_answers", "reward_weights", "finer_reward"),
        would_decide=("one answer written by hand that should earn the part: does it?",) if kind == "never" else (),
    )


def _dead(part: Component, run: Run, limits: Limits, saved: Mapping[str, PartShare]) -> _Part | None:
    mean, spread = part.mean.finite, None if part.std is None else part.std.finite
    weights = [abs(p.weight) for p in run.components.values() if p.weight is not None]
    whole = sum(weights) if len(weights) == len(run.components) else 0.0
    weight = abs(part.weight) / whole if part.weight is not None and whole else None
    value, proven = float(mean.values[-1]), spread is not None and len(spread) > 0
    if spread is not None and proven and abs(spread.values[-1]) > max(1e-6, 0.5 * spread.resolution):
        one, level = saved.get(part.name), late_mean(mean.values)
        if one is not None and one.alive == 0.0 and one.groups >= limits["groups"]:
            return _Part(part.name, "between", level, len(mean), float(mean.steps[0]), weight)
        small = weight is not None and faint(run, part.name, saved, int(limits["spreads"]), limits["variance"])
        # One that is earned nearly always has been learnt before.
        earned = 0.9 <= level <= 1.0
        return (
            _Part(part.name, "faint", level, len(mean), float(mean.steps[0]), weight) if small and not earned else None
        )
    same = np.abs(mean.values - value) <= max(1e-9 * max(1.0, abs(value)), 0.5 * mean.resolution)
    if same.all():
        least = 1 if proven else limits["rows"] if value == 0 else limits["constant"]
        earned = value > 0 or (value == 0 and _PENALTY.search(part.name) is not None)
        kind = "prints" if value == 0 and _PRINTS.search(part.name) else "always" if earned else "never"
        return _Part(part.name, kind, value, len(mean), float(mean.steps[0]), weight) if len(mean) >= least else None
    first, last, rows = longest_run(mean.steps, same)
    if last != mean.steps[-1] or rows < max(limits["ending"], 0.1 * len(mean)):
        return None
    return _Part(part.name, "learnt" if value > late_mean(mean.values[~same]) else "lost", value, rows, first, weight)


def _severity(found: _Part, limits: Limits) -> Severity:
    light = found.weight is not None and found.weight <= limits["weight"]
    return Severity.WARNING if found.kind in ("never", "lost", "between") and not light else Severity.INFO


def _words(found: Sequence[_Part], kind: str) -> str:
    rows, since = min(part.rows for part in found), max(part.since for part in found)
    who = ", ".join(part.name for part in found[:4]) + (", ..." if len(found) > 4 else "")
    values = " or ".join(dict.fromkeys(f"{part.value:.3g}" for part in found))
    shown = "in the one row shown" if rows == 1 else f"in all {rows} rows"
    where = f"since step {since:g}" if kind in ("lost", "learnt") else shown
    many = len(found) > 1
    value = "" if kind in ("faint", "between") else f" {'are' if many else 'is'} {values} {where}"
    return f"reward part{'s' * many} {who}{value}: {_KINDS[kind][0]}"
