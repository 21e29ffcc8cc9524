"""What repeated measurements of the same things say: the noise of one, and whether their level moves with time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlclinic.stats.evidence import student_quantile, student_tail

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BLOCKS = 30
"""Blocks of groups that the jackknife leaves out in turn (ours: enough for an interval, few enough for rare repeats)."""


class Noise(NamedTuple):
    """Variance of repeated measurements about their own mean, and its share of the variance within groups."""

    variance: float
    share: float
    low: float
    high: float
    """95 % interval of ``share``."""
    df: int


class Moved(NamedTuple):
    """A common change of level of the same things; ``step`` and its interval are NaN for a trend."""

    change: float
    """From the first time to the last for a trend, across the step for a step."""
    p_value: float
    explained: float
    """Share of the variation of the things about their own means that it accounts for, 0..1."""
    step: float
    low: float
    high: float


def noise(thing: Ints, group: Ints, values: Floats) -> Noise | None:
    """The noise of measuring a thing twice within one group; arrays (n,), ``thing`` numbered anew for each group.

    Pooled within-cell variance over the pooled within-group variance; the interval is a delete-a-block jackknife over
    groups of the log of the share (Efron & Tibshirani 1993, ch. 11). None without a repeated thing or without a spread.
    """
    cell_ss, cell_df, cell_group = _within(thing, values, group)
    group_ss, group_df, groups = _within(group, values, group)
    most = int(groups.max()) + 1
    inner, inner_df = (np.bincount(cell_group, each, minlength=most)[groups] for each in (cell_ss, cell_df))
    df = int(inner_df.sum())
    if df == 0 or group_ss.sum() <= 0:
        return None
    variance = float(inner.sum() / df)
    share = variance / float(group_ss.sum() / group_df.sum())
    if variance <= 0:
        return Noise(0.0, 0.0, 0.0, 0.0, df)
    blocks = min(BLOCKS, int((inner_df > 0).sum()))
    if blocks < 3:
        return Noise(variance, share, 0.0, math.inf, df)
    # Groups with repeats and groups without are dealt out apart, so that every block holds some of either.
    order = np.argsort(inner_df == 0, kind="stable")
    block = np.empty(len(groups), dtype=np.int64)
    block[order] = np.arange(len(groups)) % blocks
    sums = [np.bincount(block, each, minlength=blocks) for each in (inner, inner_df, group_ss, group_df)]
    left = [each.sum() - each for each in sums]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(left[0] / left[1]) - np.log(left[2] / left[3])
    if not np.isfinite(logs).all():
        return Noise(variance, share, 0.0, math.inf, df)
    error = math.sqrt((blocks - 1) / blocks * float(((logs - logs.mean()) ** 2).sum()))
    reach = min(student_quantile(0.025, blocks - 1) * error, 50.0)
    return Noise(variance, share, share * math.exp(-reach), share * math.exp(reach), df)


def _within(label: Ints, values: Floats, group: Ints) -> tuple[Floats, Floats, Ints]:
    """(sum of squares about the mean, degrees of freedom, group) of each label, labels in increasing order."""
    _, first, place = np.unique(label, return_index=True, return_inverse=True)
    count = np.bincount(place)
    mean = np.bincount(place, values) / count
    squares = np.bincount(place, (values - mean[place]) ** 2)
    return np.asarray(squares, dtype=np.float64), (count - 1).astype(np.float64), group[first]


def drift(thing: Ints, cluster: Ints, when: Floats, values: Floats) -> Moved | None:
    """The common trend of the same things over time, each with a level of its own; arrays (n,), one row a thing and time.

    Least squares on values and times less the thing's own means, its error clustered (Liang & Zeger 1986; within
    transformation: Wooldridge 2010, ch. 10), Student's t with the clusters less one. None where nothing is seen twice.
    """
    x, y = _own(thing, when), _own(thing, values)
    sxx, syy = float(x @ x), float(y @ y)
    if sxx <= 0 or syy <= 0:
        return None
    slope = float(x @ y) / sxx
    p = _clustered(cluster, x, y, slope, sxx)
    span = float(np.ptp(when))
    return Moved(slope * span, p, slope * slope * sxx / syy, math.nan, math.nan, math.nan)


def jump(thing: Ints, cluster: Ints, when: Floats, values: Floats) -> Moved | None:
    """The one time at which the same things change their level most, each with a level of its own; arrays as ``drift``.

    Every cut between two times is tried: with k of a thing's n rows after the cut, the explained squares follow from
    running sums. The p-value is clustered and multiplied by the number of cuts. None where nothing is seen twice.
    """
    y = _own(thing, values)
    syy = float(y @ y)
    order = np.argsort(when, kind="stable")[::-1]
    times, rows = when[order], thing[order]
    _, place, count = np.unique(rows, return_inverse=True, return_counts=True)
    within = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[within], prepend=-1))
    rank = np.empty(len(rows))
    rank[within] = np.arange(len(rows)) - np.repeat(starts, count)  # 0 for the last row of a thing
    n = count[place].astype(np.float64)
    gained = ((rank + 1) * (n - rank - 1) - rank * (n - rank)) / n
    ends = np.flatnonzero(np.diff(times, append=-math.inf))[:-1]  # the last row of each time but the first
    if not len(ends) or syy <= 0:
        return None
    sxx, sxy = np.cumsum(gained)[ends], np.cumsum(y[order])[ends]
    score = np.where(sxx > 1e-9, sxy**2 / np.maximum(sxx, 1e-9), 0.0)
    best = int(score.argmax())
    if score[best] <= 0:
        return None
    cut = float(times[ends[best]])
    x = _own(thing, (when >= cut).astype(np.float64))
    change = float(sxy[best] / sxx[best])
    p = min(1.0, _clustered(cluster, x, y, change, float(x @ x)) * len(ends))
    near = np.flatnonzero(score >= 0.95 * score[best])
    low, high = float(times[ends[near.max()]]), float(times[ends[near.min()]])
    return Moved(change, p, float(score[best]) / syy, cut, low, high)


def _own(thing: Ints, values: Floats) -> Floats:
    """``values`` less the mean of their thing."""
    _, place, count = np.unique(thing, return_inverse=True, return_counts=True)
    own: Floats = values - (np.bincount(place, values) / count)[place]
    return own


def _clustered(cluster: Ints, x: Floats, y: Floats, slope: float, sxx: float) -> float:
    """Two-sided p-value of a slope whose errors hang together within clusters."""
    _, place = np.unique(cluster, return_inverse=True)
    parts = np.bincount(place, x * (y - slope * x))
    k = int((np.bincount(place, x * x) > 0).sum())
    if k < 3:
        return 1.0
    variance = float((parts**2).sum()) * k / (k - 1) / sxx**2
    if variance <= 0:
        return 0.0 if slope else 1.0
    return min(1.0, 2.0 * student_tail(abs(slope) / math.sqrt(variance), k - 1))
