"""One metric of two runs: whether it can be compared at all, and what the comparison allows to say of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlclinic import names as vocabulary
from rlclinic.compare.rows import IN_FORCE, MetricRow, Word
from rlclinic.compare.sides import Side
from rlclinic.errors import UnknownName
from rlclinic.model import Column, Floats, Onset, Run
from rlclinic.stats import paired
from rlclinic.stats.evidence import benjamini_hochberg
from rlclinic.stats.trend import LEAST_RELATIVE, LEAST_SHARE

LEVEL = 0.05
"""Share of the metrics called different that may be so by chance, after correction for all metrics of a pair."""
REPEATS = 3
"""Runs of one setting from which on the spread between runs is taken from them."""

PACE = 1.6
"""Factor in pace beyond which the same course is called different (ours: more than twice what the paces of seeds differ
by, taken as 15 % each)."""

_OF_REWARD = ("reward.mean", "reward.std", "reward.group_std", "reward.min", "reward.max", "reward.std_unresolved")
_TAIL, _TAIL_NOISE, _SCATTER = 5, 4.0, 4.0
"""Values at the end, and how many noise deviations their medians must lie apart, or one run's noise must be that of the
other, for a same late level to be no same course (ours)."""
_BEYOND = 1.5
"""Value beyond which what is called a share cannot be one, however it was rounded or averaged (ours)."""
_STARTS = 1.0 / 8.0
"""Share of the axis within which a difference counts as there from the start (one window)."""


def repeated_groups(groups: Sequence[int]) -> set[int]:
    return {group for group in groups if list(groups).count(group) >= REPEATS}


def spread_of(
    metric: str,
    repeated: Sequence[Side],
    groups: Sequence[int],
    sides: Sequence[Side],
    span: tuple[float, float],
    pair: tuple[Side, Side],
) -> tuple[Floats, float] | None:
    """(standard deviation of the difference of two runs of one setting in each window, its degrees of freedom)."""
    if not repeated:
        return None
    count = paired.windows(*(len(one.ready(metric, *span).x) for one in pair))
    number = {id(one): group for one, group in zip(sides, groups, strict=True)}
    groups_of: dict[int, list[paired.Side]] = {}
    for one in repeated:
        column = one.columns.get(metric)
        if column is None or one.span is None or one.span[0] > span[0] or one.span[1] < span[1]:
            continue
        groups_of.setdefault(number[id(one)], []).append(one.ready(metric, *span))
    return paired.between([ready for ready in groups_of.values() if len(ready) >= REPEATS], *span, count)


def metric_row(
    metric: str, first: Side, second: Side, span: tuple[float, float], spread: tuple[Floats, float] | None
) -> MetricRow:
    a, b = (one.columns[metric].since(span[0]).upto(span[1]) for one in (first, second))
    columns = (a, b)
    why = _incomparable(metric, a, b, first.run, second.run)
    if why:
        return MetricRow(metric, columns, "incomparable", why)
    if a.status == b.status == "structural_zero":
        return MetricRow(metric, columns, "same", "zero by construction in both")
    if not len(a) or not len(b):
        return MetricRow(metric, columns, "open", "not logged where both runs are")
    fact = _fact(metric, a, b, (first.name, second.name))
    if fact is not None:
        return replace(fact, columns=columns)
    ready = (first.ready(metric, *span), second.ready(metric, *span))
    allowance = {} if spread is None else {"spread": spread[0], "freedom": spread[1]}
    found = paired.apart(*ready, *span, **allowance)  # type: ignore[arg-type]
    if min(found.n) < paired.FEWEST:
        few = " and ".join(f"{n} in {one.name}" for n, one in zip(found.n, (first, second), strict=True))
        return MetricRow(metric, columns, "open", f"too few values: {few}", found)
    return MetricRow(
        metric, columns, "open", _otherwise(metric, found, ready, columns, (first.name, second.name)), found
    )


def _otherwise(
    metric: str,
    found: paired.Apart,
    ready: tuple[paired.Side, paired.Side],
    columns: tuple[Column, Column],
    names: tuple[str, str],
) -> str:
    """Why two runs of one late level are not the same: they end apart, or one scatters far more; empty where neither."""
    floor = 2.0 * (LEAST_SHARE if _share(metric) else LEAST_RELATIVE * max(map(abs, found.late)))
    since = max(one.x[-_TAIL] for one in ready)
    ends = [one.y[one.x >= since] for one in ready]
    if min(map(len, ends)) >= _TAIL - 2:
        first, second = (float(np.median(end)) for end in ends)
        if abs(second - first) > max(floor, _TAIL_NOISE * found.sd):
            return f"the last values lie apart: {first:.3g} and {second:.3g}"
    scatter = [_scatter(one.finite.values) for one in columns]
    small, large = sorted(scatter)
    if large > floor and large > _SCATTER * small > 0.0:
        return f"{names[scatter.index(large)]} scatters {large / small:.2g} times as much"
    return ""


def _scatter(values: Floats) -> float:
    """Standard deviation of the later half of (n,) values from one to the next, by what three of four moves stay within:
    neither a course nor spikes count."""
    moves = np.abs(np.diff(values[len(values) // 2 :]))
    return float(np.quantile(moves, 0.75)) / 1.63 if len(moves) else 0.0  # 0.75-quantile of a difference of two normals


def _incomparable(metric: str, a: Column, b: Column, first: Run, second: Run) -> str:
    """Why a metric of this name is not the same quantity in both runs; empty when it is."""
    if a.estimator != b.estimator:
        return f"another estimator: {a.estimator or 'not told'} and {b.estimator or 'not told'}"
    if a.status != b.status:
        words = {"measured": "measured", "structural_zero": "zero by construction", "filtered": "after filtering"}
        return f"{words[a.status]} and {words[b.status]}" + (
            f": {a.because or b.because}" if a.because or b.because else ""
        )
    if _share(metric):
        tops = [float(np.abs(column.finite.values).max(initial=0.0)) for column in (a, b)]
        if max(tops) > _BEYOND >= min(tops):
            return f"a share in one and up to {max(tops):.3g} in the other: a percentage or a count"
    if metric in _OF_REWARD and first.components and second.components:
        mine, theirs = set(first.components), set(second.components)
        if mine != theirs:
            other = ", ".join(sorted(mine ^ theirs)[:4])
            return f"the reward is made of other parts ({other} in only one of them)"
        weights = [
            name
            for name in mine
            if (x := first.components[name].weight) is not None
            and (y := second.components[name].weight) is not None
            and not math.isclose(x, y)
        ]
        if weights:
            return f"the parts of the reward are weighted otherwise ({', '.join(sorted(weights)[:4])})"
    return ""


def _fact(metric: str, a: Column, b: Column, names: tuple[str, str]) -> MetricRow | None:
    """What needs no test: NaN in only one run, a schedule, two constants. None where noise must be weighed."""
    for one, other, name in ((a, b, names[0]), (b, a, names[1])):
        if one.nonfinite and not other.nonfinite:
            at = float(one.steps[int(np.argmax(~np.isfinite(one.values)))])
            says = f"{one.nonfinite} of {len(one)} values of {name} are NaN or infinite, none of the other's"
            return MetricRow(metric, (a, b), "different", says, onset=Onset(at, at, at), exact=True)
    x, y = a.finite, b.finite
    if not len(x) or not len(y):
        return MetricRow(metric, (a, b), "open", "no finite value")
    blur = max(a.resolution, b.resolution)
    if metric in IN_FORCE:
        return _schedules(MetricRow(metric, (a, b), "same", "the same schedule"), x, y, blur)
    if np.ptp(x.values) == 0.0 and np.ptp(y.values) == 0.0:
        gap = abs(float(y.values[0]) - float(x.values[0]))
        if gap <= max(blur, 1e-9 * abs(float(x.values[0]))):
            return MetricRow(metric, (a, b), "same", "constant, the same in both")
        if min(len(x), len(y)) < paired.FEWEST:  # a value or two are no constant
            return None
        at = max(float(x.steps[0]), float(y.steps[0]))
        return MetricRow(
            metric, (a, b), "different", "constant in both", onset=Onset(at, at, at), from_start=True, exact=True
        )
    if np.array_equal(x.values, y.values) and np.array_equal(x.steps, y.steps):
        return MetricRow(metric, (a, b), "same", "the very same numbers")
    return None


def _schedules(same: MetricRow, x: Column, y: Column, blur: float) -> MetricRow:
    """Whether a setting in force differs: where the run that logs less often has a value that lies beyond both neighbours
    in the other, which a corner between two rows never does."""
    few, many = (x, y) if len(x) <= len(y) else (y, x)
    inside = (few.steps >= many.steps[0]) & (few.steps <= many.steps[-1])
    at, values = few.steps[inside], few.values[inside]
    if not len(at):
        return replace(same, word="open", says="not logged at the same steps")
    right = np.searchsorted(many.steps, at)
    left = np.where(many.steps[right] == at, right, right - 1)
    ends = many.values[left], many.values[right]
    scale = max(float(np.abs(x.values).max()), float(np.abs(y.values).max()), 1e-300)
    slack = max(0.02 * scale, blur)
    off = np.flatnonzero((values < np.minimum(*ends) - slack) | (values > np.maximum(*ends) + slack))
    if not len(off):
        return same
    where = float(at[off[0]])
    last = float(at[off[0] - 1]) if off[0] else where
    return replace(same, word="different", says="set otherwise", onset=Onset(where, last, where), exact=True)


def _share(metric: str) -> bool:
    try:
        about = vocabulary.metric(metric)
    except UnknownName:
        return False
    return about.low == 0.0 and about.high == 1.0


def least(row: MetricRow, level: float) -> float:
    """The smallest difference of a metric at ``level`` that is worth telling: 10 % of it (of a share 0.02), half a noise
    deviation, one printed digit."""
    floor = LEAST_SHARE if _share(row.name) else LEAST_RELATIVE * abs(level)
    noise = 0.0 if row.apart is None else paired.LEAST_NOISE * row.apart.sd
    return max(floor, noise, *(column.resolution for column in row.columns))


def decide(rows: Sequence[MetricRow]) -> list[MetricRow]:
    """The word for every metric, corrected for how many were tested."""
    tested = [row.apart if row.apart is not None and min(row.apart.n) >= paired.FEWEST else None for row in rows]
    q_both = benjamini_hochberg([math.nan if one is None else one.p_value for one in tested])
    q_noise = benjamini_hochberg([math.nan if one is None else one.p_noise for one in tested])
    level = LEVEL * max(1, int(np.sum(q_both <= LEVEL))) / max(1, int(np.sum(~np.isnan(q_both))))
    decided = []
    for row, one, q, alone in zip(rows, tested, q_both, q_noise, strict=True):
        if one is None:
            decided.append(row)
            continue
        large = abs(one.size) >= least(row, one.level)
        word: Word = "open"
        faster = one.lead is not None and abs(math.log(one.lead)) > math.log(PACE) and alone <= LEVEL
        if (q <= LEVEL or faster or one.clear) and large:
            word = "different"
        elif max(abs(one.low), abs(one.high)) < _margin(row, one):
            word = "open" if row.says else "same"
        elif alone <= LEVEL and large:
            word = "within_seeds"
        shown, half, place = _shown(one, word, bool(q <= LEVEL), level)
        about = row.says if word == "open" else ""
        told = replace(row, word=word, says=about, q_value=float(q))
        decided.append(replace(told, shown=shown, half=half, place=place))
    return decided


def _shown(one: paired.Apart, word: Word, found: bool, level: float) -> tuple[float, float | None, paired.Where]:
    """(difference, half of its interval, where) that agree with the word; ``found`` where the test itself says different."""
    if one.ends is None or one.best is None:
        return one.difference, None, "late"
    if word == "same":  # which the noise of both runs alone decides
        return one.difference, (one.high - one.low) / 2.0, "late"
    half = one.ends.half(level)
    if math.isnan(one.difference):  # one of them has no late value
        return one.best.gap, one.best.half(level), "in between" if one.where == "late" else one.where
    if abs(one.ends.gap) > half or not (word == "different" and found):
        return one.ends.gap, None if word == "different" and not found else half, "late"
    return one.best.gap, one.best.half(level), one.where


def _margin(row: MetricRow, one: paired.Apart) -> float:
    """The late difference below which two runs count as the same: twice what is worth telling, a noise deviation."""
    level = max(abs(one.late[0]), abs(one.late[1]))
    return max(2.0 * (LEAST_SHARE if _share(row.name) else LEAST_RELATIVE * level), one.sd)


def with_onset(row: MetricRow, first: Side, second: Side, span: tuple[float, float]) -> MetricRow:
    if row.word != "different" or row.exact or row.apart is None:
        return row
    at = paired.parted(first.ready(row.name, *span), second.ready(row.name, *span), *span, row.apart.size)
    far = span[1] - span[0]
    early = (
        at is not None
        and at.step <= span[0] + _STARTS / 2.0 * far
        and at.high <= span[0] + max(2.0 * _STARTS * far, 1.0)
    )
    return replace(row, onset=at, from_start=early)
