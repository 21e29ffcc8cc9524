"""The reward and its parts: whether it is at its floor, which part is the task, and how much variance each carries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlclinic.answers import agreement
from rlclinic.answers.parts import OF_THE_TASK, PartShare, share_by_step, shares
from rlclinic.checks.readings import lasting, now
from rlclinic.model import Component, Floats, Onset, Run
from rlclinic.stats.level import early, late, late_mean, middle
from rlclinic.stats.shift import crossing

_BESIDE_IT = re.compile(
    r"format|style|length|\blen|(^|_)tags?|xml|json|struct|penal|bonus|lang|repet|overlong|(xml|token|word)_?count|brev|concis|think|cit(e|ation)"
    r"|tool_?(use|call)|(^|_)int_",
    re.I,
)

_HALF = 0.5
"""Share from which a part decides more than all others together."""


def task_parts(run: Run) -> tuple[Component, ...]:
    """The reward parts that measure the task itself, as far as names tell: those called after correctness or, without
    such, what is left beside parts called after form, length or a bonus; none when the names tell nothing."""
    beside = [part for part in run.components.values() if _BESIDE_IT.search(part.name)]
    rest = [part for part in run.components.values() if part not in beside]
    named = [part for part in rest if OF_THE_TASK.search(part.name)]
    return tuple(named or (rest if beside else ()))


class Leader(NamedTuple):
    """The part of the reward that decides most of how answers are told apart."""

    part: Component
    share: float
    of: str
    since: Onset | None = None
    """Since when it has most of what is shared, by the saved answers step by step; without them the first step, where it
    led in the first third of the run as well; else the start of its rise."""
    by_length: bool = False
    """Whether the saved answers prove it to be an exact function of the answer's length."""
    note: str = ""
    """What else is proven of it."""


def weighted_variances(run: Run) -> dict[str, Floats]:
    """(n,) variance over the batch that each part brings to the reward (weight and spread squared) at the rows that all
    share; empty when a spread or a weight is missing. Shares over a stretch are those of its sums: parts are taken as
    independent, and rows without any spread do not count."""
    parts = [part for part in run.components.values() if part.weight != 0.0]
    if len(parts) < 2 or any(part.std is None or part.weight is None for part in parts):
        return {}
    columns = [part.std.finite for part in parts if part.std is not None]
    steps = columns[0].steps
    for column in columns[1:]:
        steps = np.intersect1d(steps, column.steps, assume_unique=True)
    return {
        part.name: np.square((part.weight or 0.0) * column.values[np.searchsorted(column.steps, steps)])
        for part, column in zip(parts, columns, strict=True)
    }


def faint(run: Run, name: str, saved: Mapping[str, PartShare], rows: int, least: float) -> bool:
    """Whether a part has less than ``least`` of what rewards differ by, early and late: of their covariance within the
    saved groups where parts are saved, else of the logged variances over at least ``rows`` rows."""
    one = saved.get(name)
    if one is not None and np.isfinite([one.first, one.last]).all():
        return bool(max(abs(one.first), abs(one.last)) < least)
    variances = weighted_variances(run)
    own = variances.get(name)
    if own is None or len(own) < rows:
        return False
    whole, third = np.sum(list(variances.values()), axis=0), len(own) // 3
    return all(own[part].sum() < least * whole[part].sum() for part in (slice(third), slice(-third, None)))


def proof(run: Run, names: Sequence[str], saved: Mapping[str, PartShare]) -> str:
    """Words for parts that are one and the same in every saved answer; empty where they are not, or are not saved."""
    table = agreement.trusted(run)
    constant = [name for name in names if name in saved and saved[name].least == saved[name].most]
    if table is None or not constant or len(constant) < len(names):
        return ""
    return f" (the same in all {len(table)} saved answers)"


def parts_named(run: Run, words: re.Pattern[str]) -> tuple[Component, ...]:
    """The reward parts whose names say what ``words`` look for, longest series first."""
    found = [part for part in run.components.values() if words.search(part.name) and len(part.mean.finite)]
    return tuple(sorted(found, key=lambda part: (-len(part.mean.finite), part.name)))


def saved_shares(run: Run) -> dict[str, PartShare]:
    """What each part of the reward does within the groups of the saved answers, by its name; empty without saved parts."""
    table = agreement.trusted(run)
    if table is None or not table.parts or not table.judged.any():
        return {}
    return {one.name: one for one in shares(table, {name: part.weight for name, part in run.components.items()})}


def _leads_since(run: Run, name: str) -> Onset | None:
    """Since which saved step a part has at least half of what the answers of a group differ by, to the end; it leads from
    the first row of the log on where it does so in all of them."""
    table = agreement.trusted(run)
    if table is None:
        return None
    steps, own = share_by_step(table, name, {name: part.weight for name, part in run.components.items()})
    began = crossing(steps, own, _HALF, above=True)
    if began is None:
        return None
    if began.step <= steps[0]:
        first = float(run.components[name].mean.finite.steps[0])
        return Onset(first, first, first)
    before = float(steps[steps < began.step][-1])
    return Onset(began.step, min(began.low, before), began.high)


def leading(run: Run) -> Leader | None:
    """The part with the largest share of what the saved answers of a group differ by late in the run or, without saved
    parts, of the late variance or, without spreads, of the reward's rise."""
    saved = {name: one for name, one in saved_shares(run).items() if name in run.components and np.isfinite(one.share)}
    if len(saved) > 1:
        shares = {name: one.last if np.isfinite(one.last) else one.share for name, one in saved.items()}
        name = max(shares, key=lambda one: shares[one])
        part = run.components[name]
        since = _leads_since(run, name)
        if since is None and (rise := lasting(part.mean, falling=False)) is not None:
            since = rise.onset
        what = "what the saved answers of a group differ by"
        note = ", an exact function of the answer's length," if saved[name].by_length else ""
        return Leader(part, min(1.0, shares[name]), what, since, saved[name].by_length, note)
    variances = {name: values for name, values in weighted_variances(run).items() if len(values)}
    late_sums = {name: late_mean(values) for name, values in variances.items()}
    if (whole := sum(late_sums.values())) > 0.0:
        name = max(late_sums, key=lambda one: late_sums[one])
        part, third = run.components[name], slice(max(1, len(variances[name]) // 3))
        began = variances[name][third].sum() > 0.7 * sum(values[third].sum() for values in variances.values())
        first, rise = float(part.mean.finite.steps[0]), lasting(part.mean, falling=False)
        since = Onset(first, first, first) if began else None if rise is None else rise.onset
        return Leader(part, late_sums[name] / whole, "the reward's variance", since)
    gains = {
        part.name: part.weight * (late(part.mean.finite.values) - early(part.mean.finite.values))
        for part in run.components.values()
        if part.weight is not None and len(part.mean.finite) >= 12
    }
    whole = sum(abs(gain) for gain in gains.values())
    if len(gains) < 2 or not whole > 0.0:
        return None
    name = max(gains, key=lambda one: gains[one])
    return Leader(run.components[name], max(0.0, gains[name]) / whole, "what moved in the reward")


def underpaid(run: Run, least: float) -> str:
    """Words for a held-out score that stands by ``least`` or more above the share of training answers called right, both
    shares; empty where that is not so, or the log does not tell. Other questions do that too, or wrong reference answers."""
    score, parts = run.get("eval.score"), task_parts(run)
    right = run.get("reward.success_rate") or (parts[0].mean if len(parts) == 1 else None)
    if score is None or right is None or len(score.finite) < 6 or len(right.finite) < 12:
        return ""
    known, paid = score.finite.values, right.finite.values
    if min(known.min(), paid.min()) < 0.0 or max(known.max(), paid.max()) > 1.0 or late(known) < late(paid) + least:
        return ""
    return f"held-out score is {late(known):.3g} meanwhile and {right.key} {late(paid):.3g}"


def at_floor(run: Run) -> bool:
    """Whether the present reward lies in the lowest tenth of what an answer can earn; at 0 or below where none is known."""
    reward = run.get("reward.mean")
    return reward is not None and len(reward.finite) > 0 and _is_floor(run, now(run, reward.finite.values))


def has_earned(run: Run) -> bool:
    """Whether some quarter of the run earned more than the floor."""
    reward = run.get("reward.mean")
    if reward is None or run.short:
        return False
    return any(not _is_floor(run, middle(part)) for part in np.array_split(reward.finite.values, 4) if len(part))


def _is_floor(run: Run, pay: float) -> bool:
    return pay <= 0.0 if run.reward_range is None else run.reward_range.share(pay) <= 0.1
