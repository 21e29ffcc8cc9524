"""The parts of the reward in saved answers: which tells right from wrong, what share of the signal each has, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlclinic.model import Floats
from rlclinic.rollouts import EQUAL, Flags, Rollouts

OF_THE_TASK = re.compile(
    r"accura|correct|exact|answer|solv|pass|success|task|outcome|ndcg|unit_?test|win_?rate|(?:^|[_/])acc(?:$|[_/])",
    re.I,
)
"""Names of parts that measure the task itself."""
_SURE = re.compile(r"accura|correct|exact|solv|success|(?:^|[_/])acc(?:$|[_/])|pass(?:ed|$)", re.I)
"""Names that say right or wrong; a part called after an answer may be about its form."""
_WHOLE = 1e-9


@dataclass(frozen=True, eq=False)
class PartShare:
    """What one saved part of the reward does."""

    name: str
    weight: float | None
    """What it counts in the reward; None when the rewards do not follow from the parts."""
    share: float
    """Its covariance share of the variance within groups; NaN without a weight or without any such variance."""
    first: float
    last: float
    """The same over the first and the last third of the steps."""
    least: float
    most: float
    """The smallest and the largest value any answer got."""
    since: float | None
    """The step from which on every answer got the same value; None while it varies."""
    value: float
    """What it is at the end, as a mean."""
    alive: float
    """Share of the groups within which it differs."""
    groups: int
    """Groups in which it is known for every answer."""
    by_length: bool
    """True when it is an exact function of the length of the answer."""


def weights(table: Rollouts, given: Mapping[str, float | None]) -> dict[str, float] | None:
    """The weight of each part in the reward; None where no weights make the rewards out of the parts.

    Least squares over the answers themselves: a part that never differs keeps the weight that is ``given``, else 0.
    """
    names = list(table.parts)
    known = np.isfinite(table.reward)
    if not names or known.sum() < len(names) + 2:
        return None
    parts = np.column_stack([np.nan_to_num(table.parts[name]) for name in names])[known]
    reward = table.reward[known]
    varies = np.ptp(parts, axis=0) > _WHOLE
    left = reward - sum((given.get(n) or 0.0) * parts[:, k] for k, n in enumerate(names) if not varies[k])
    found = np.array([given.get(name) or 0.0 for name in names])
    if varies.any():
        # The normal equations: for a million answers and a few parts a matter of milliseconds.
        some = parts[:, varies]
        square, aim = some.T @ some, some.T @ left
        if not (np.isfinite(square).all() and np.isfinite(aim).all()):
            return None  # LAPACK does not return from an infinity
        solved, _, rank, _ = np.linalg.lstsq(square, aim, rcond=1e-12)
        if rank < varies.sum():
            return None
        found[varies] = solved
    off = float(np.abs(left - parts[:, varies] @ found[varies]).max())
    scale = max(float(np.abs(reward).max()), _WHOLE)
    if off > 2e-3 * scale:
        return None
    return {name: float(round(weight, 4)) for name, weight in zip(names, found, strict=True)}


def success(table: Rollouts) -> Floats | None:
    """(n,) 1 for a right answer, 0 for a wrong one, NaN where that is not known; None where nothing tells.

    A saved part that is named after correctness and is 0 or 1 in every answer, else a reward of exactly two whole values.
    """
    named = [name for name in table.parts if _SURE.search(name)]
    for name in named:
        values = table.parts[name]
        seen = np.unique(values[np.isfinite(values)])
        if len(seen) and np.isin(seen, (0.0, 1.0)).all() and np.isfinite(values).mean() > 0.9:
            return values
    if named or len(table.parts) > 1:
        return None
    seen = np.unique(table.reward[np.isfinite(table.reward)])
    if len(seen) != 2 or (seen % 1).any() or seen[1] <= 0 or seen[0] > 0:
        return None
    return np.where(np.isfinite(table.reward), (table.reward == seen[1]).astype(float), np.nan)


def shares(table: Rollouts, given: Mapping[str, float | None] | None = None) -> tuple[PartShare, ...]:
    """What each part of the reward does in the groups of ``table``, in the order of their names in the file.

    The share of a part is Cov(weight * part, reward) / Var(reward) over values less the mean of their group: the shares
    sum to 1, and correlated parts divide what they have in common (the covariance decomposition of a sum; as "natural"
    variance decomposition in Shorrocks 1982, Econometrica 50(1)). Advantages are such differences, so this is the share
    of a part in what the answers of a group are told apart by.
    """
    if not table.parts:
        return ()
    found = weights(table, given or {})
    third = _thirds(table)
    centred = {name: table.centred(np.nan_to_num(values)) for name, values in table.parts.items()}
    total = table.centred(table.reward)
    made = []
    for name, values in table.parts.items():
        weight = None if found is None else found[name]
        own = [np.nan] * 3
        if weight is not None:
            rows_of = (np.ones(len(table), dtype=np.bool_), third == 0, third == 2)
            own = [_share(weight * centred[name], total, rows) for rows in rows_of]
        made.append(_described(table, name, values, weight, own, third, centred[name]))
    return tuple(made)


def share_by_step(table: Rollouts, name: str, given: Mapping[str, float | None]) -> tuple[Floats, Floats]:
    """(steps, share) of one part as in ``shares``, step by step where any answers of a group differ; empty where no weights
    make the rewards."""
    found = weights(table, given)
    use = np.isfinite(table.step)
    if found is None or name not in found or not use.any():
        return np.empty(0), np.empty(0)
    own, total = found[name] * table.centred(np.nan_to_num(table.parts[name])), table.centred(table.reward)
    use &= np.isfinite(own) & np.isfinite(total)
    steps, place = np.unique(table.step[use], return_inverse=True)
    whole = np.bincount(place, total[use] ** 2, minlength=len(steps))
    mine = np.bincount(place, own[use] * total[use], minlength=len(steps))
    known = whole > EQUAL**2 * np.maximum(np.bincount(place, minlength=len(steps)), 1)
    return steps[known], mine[known] / whole[known]


def _described(
    table: Rollouts, name: str, values: Floats, weight: float | None, own: list[float], third: Floats, centred: Floats
) -> PartShare:
    known = np.isfinite(values)
    seen, step = values[known], table.step[known]
    least, most = (float(seen.min()), float(seen.max())) if len(seen) else (np.nan, np.nan)
    tolerance = EQUAL * max(abs(least), abs(most), 1.0) if len(seen) else 0.0
    since: float | None = None
    value = float(seen[third[known] == 2].mean()) if (third[known] == 2).any() else float("nan")
    if len(seen):
        end = float(seen[np.argmax(step)]) if np.isfinite(step).any() else float(seen[-1])
        other = np.abs(seen - end) > tolerance
        if not other.any():
            since = float(np.nanmin(step)) if np.isfinite(step).any() else 0.0
        else:
            later = step[step > np.nanmax(step[other])] if np.isfinite(step[other]).any() else step[:0]
            since = float(later.min()) if len(later) else None
        value = end if since is not None else value
    grouped = np.isfinite(centred)
    there = np.bincount(table.group[grouped], minlength=table.groups) > 0
    differs = np.bincount(table.group[grouped], np.abs(centred[grouped]) > tolerance, minlength=table.groups) > 0
    return PartShare(
        name,
        weight,
        own[0],
        own[1],
        own[2],
        least,
        most,
        since,
        value,
        float(differs[there].mean()) if there.any() else float("nan"),
        int(there.sum()),
        _by_length(table, values, tolerance),
    )


def _share(part: Floats, total: Floats, rows: Flags) -> float:
    use = rows & np.isfinite(part) & np.isfinite(total)
    whole = float(np.dot(total[use], total[use]))
    return float(np.dot(part[use], total[use])) / whole if whole > EQUAL**2 * max(int(use.sum()), 1) else float("nan")


def _thirds(table: Rollouts) -> Floats:
    """(n,) 0, 1 or 2: in which third of the saved steps a row stands; NaN without a step."""
    steps = table.steps
    place = np.searchsorted(steps, table.step) * 3 // max(len(steps), 1)
    return np.where(np.isfinite(table.step), np.minimum(place, 2), np.nan)


_LENGTHS = 6
"""Different lengths that must be seen before a function of the length is more than chance (ours)."""


def _by_length(table: Rollouts, values: Floats, tolerance: float) -> bool:
    """Whether a part is an exact function of the answer's length that rises or falls all along.

    Answers of one length all get one value, over lengths and values enough that chance cannot do it; in tokens, or in
    characters. Stretches of equal values (a cap) are allowed, a return is not.
    """
    if len(np.unique(values[:: max(1, len(values) // 5000)])) < _LENGTHS:
        return False
    for length in (table.tokens, table.characters):
        use = np.isfinite(length) & np.isfinite(values)
        if use.sum() < 50:
            continue
        lengths, place = np.unique(length[use], return_inverse=True)
        if not _LENGTHS <= len(lengths) <= use.sum() / 4:
            continue
        low, high = np.full(len(lengths), np.inf), np.full(len(lengths), -np.inf)
        np.minimum.at(low, place, values[use])
        np.maximum.at(high, place, values[use])
        rise = np.diff(low)
        exact = bool((high - low <= max(tolerance, 1e-4)).all())
        several = len(np.unique(np.round(low, 4))) >= _LENGTHS
        if exact and several and bool((rise >= -tolerance).all() or (rise <= tolerance).all()):
            return True
    return False
