"""Two runs side by side: whether one metric of them lies apart over a common axis, by how much, from where on.

Each run is one realisation. What its own noise explains is estimated from it (autocorrelation time around a fitted curve);
what two seeds of one recipe differ by cannot be seen in one pair, so it is allowed for: a share of how far the metric has
moved, and a small share of its level (``MOVED``, ``LEVEL``; ours, measured on pairs of seeds, docs/compare.md).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlclinic.model import Floats, Onset
from rlclinic.stats.curve import tidy
from rlclinic.stats.evidence import hampel, student_quantile, student_tail
from rlclinic.stats.shift import onset, steps_found
from rlclinic.stats.trend import trend

Where = Literal["", "throughout", "late", "early", "in between"]

_QUIET = np.errstate(over="ignore", invalid="ignore", divide="ignore")
"""Values of 1e308 overflow in sums and squares; what comes of it compares as it should."""

WINDOWS = 8
"""Windows of the common axis whose means are compared (ours: the late quarter is two of them)."""
LATE = 2
FEWEST = 8
"""Points of either run on the common axis below which nothing is tested (ours: two windows of four)."""
IN_WINDOW = 4
MOVED, LEVEL = 0.20, 0.03
"""Standard deviation of the difference of two seeds, as shares of the movement so far and of the level (ours, measured on
real pairs of seeds: late differences are then 0.9, 1.6 and 2.1 standard errors at quantiles of 68, 90 and 95 %)."""
CLEAR = 8.0
"""Allowances for seeds from which two late levels without overlap are apart whatever the noise (ours)."""
FREEDOM = 20.0
"""Degrees of freedom of that allowance: its tails are wider than the normal ones (ours)."""
LEAST_NOISE = 0.5
"""Smallest difference worth telling in noise standard deviations of single points (ours)."""
_SLOW = 5.0
"""Autocorrelation time in points from which steps are looked for (ours)."""
BINS = 48
"""Most bins in which the beginning of a difference, or a shift in time, is looked for (ours)."""
LEADS = np.exp(np.linspace(-math.log(4.0), math.log(4.0), 113))
"""Factors on the axis that may make one course the other (ours)."""
LEAST_LEAD, EXPLAINED, FITS, AS_HIGH = 0.05, 0.75, 2.5, 0.5
"""A shift in time is told when it measures 5 %, explains 75 % of the squared difference and leaves no window farther
apart than 2.5 standard errors, and half of what a course of the same pace to another height leaves (ours)."""


class Look(NamedTuple):
    """One difference as it was tested."""

    gap: float
    error: float
    """Standard error by noise and by what seeds are allowed to differ by."""
    freedom: float
    looks: float
    """How many times its p-value counts, for the other looks at the same metric."""

    def half(self, level: float) -> float:
        """Half the width of the interval that leaves out 0 exactly where the p-value is at most ``level``."""
        return student_quantile(level / self.looks / 2.0, self.freedom) * self.error if self.error > 0.0 else 0.0


class Apart(NamedTuple):
    """One metric of two runs over the same stretch of axis. Differences are second less first, in the metric's unit."""

    n: tuple[int, int]
    late: tuple[float, float]
    """Means over the last quarter of the axis, spikes of up to three points left out; NaN where a run has no point there."""
    difference: float
    low: float
    high: float
    """95 % interval of the late difference by the noise of both runs alone; infinite with too few points."""
    overall: float
    """Mean difference over the whole axis."""
    sd: float
    """Noise of single points, both runs together."""
    seeds: float
    """Standard deviation that two seeds of one recipe are allowed in the late difference."""
    p_noise: float
    """Two-sided, against the noise of both runs alone; over all windows."""
    p_value: float
    """The same with what seeds differ by allowed for. 1 with too few points."""
    where: Where
    """Where the difference is clearest; ``throughout`` when it is the whole axis and ``everywhere``, empty when it is the
    whole axis and not every window differs."""
    size: float
    """The difference there."""
    level: float
    """Mean level there, of the first run; sizes are judged by it."""
    lead: float | None
    """The second run goes through the first one's course this many times as fast; None where that is not what differs."""
    clear: bool = False
    """No value of the late quarter of one run lies among those of the other, and seeds are far from differing so much."""
    ends: Look | None = None
    """The test of the late difference; None with too few points."""
    best: Look | None = None
    """The test of ``size``."""
    everywhere: bool = False
    """Every window differs by itself, all in one direction."""


class Side(NamedTuple):
    """One run's series on the common axis, cleaned of spikes, with its noise."""

    x: Floats
    y: Floats
    sd: float
    inflation: float
    """Autocorrelation time of the noise, in points."""
    every: float
    """Usual distance of points on the axis."""


@_QUIET
def side(x: ArrayLike, y: ArrayLike, low: float, high: float) -> Side:
    """The (n,) points between ``low`` and ``high`` of the axis, made ready to be compared."""
    at, values = tidy(x, y)
    inside = (at >= low) & (at <= high)
    at, values = at[inside], values[inside]
    if len(values) < 3:
        return Side(at, values, 0.0, 1.0, 0.0)
    clean = hampel(values)
    sd, inflation = _noise(at, clean)
    return Side(at, clean, max(sd, math.sqrt(_within(clean))), inflation, float(np.median(np.diff(at))))


def _noise(at: Floats, values: Floats) -> tuple[float, float]:
    """Standard deviation and autocorrelation time of (n,) values around their course, clean steps taken out of it: no
    smooth curve follows one, and its misfit would pass for slow noise."""
    found = trend(at, values)
    n_eff = max(found.n_eff, 1.0)
    if len(at) / n_eff > _SLOW:
        level = np.zeros(len(at))
        for shift in steps_found(at, values, hidden=False):
            level[at >= shift.step] += shift.jump
        if level.any():
            found = trend(at, values - level)
            n_eff = max(found.n_eff, 1.0)
    return found.sd, len(at) / n_eff


def _within(values: Floats, most: int = 12) -> float:
    """Mean variance of (n,) values around lines through pieces of up to ``most`` neighbours."""
    n = len(values)
    size = min(most, n)
    pieces = values[n % size :].reshape(-1, size)
    x = np.arange(size) - (size - 1) / 2.0
    rest = pieces - pieces.mean(axis=1, keepdims=True)
    rest = rest - np.outer(rest @ x / float(x @ x), x)
    return float(np.square(rest).sum()) / (len(pieces) * max(size - 2, 1))


@_QUIET
def apart(
    first: Side, second: Side, low: float, high: float, *, spread: Floats | None = None, freedom: float = FREEDOM
) -> Apart:
    """Compare two prepared series over the axis from ``low`` to ``high``.

    Window means (``WINDOWS`` of equal width; fewer for short series) are compared as a whole, in the late quarter and one
    by one, each third of the test's level. A window's standard error is ``sd sqrt(tau / n)`` of each run, and beside it
    stands what seeds differ by: ``spread`` (windows,), the standard deviation of the difference of two runs of one setting
    with its degrees of ``freedom``, where repeated runs show it, else ``MOVED`` times how far both have moved up to the
    next window and ``LEVEL`` times the level.
    """
    n = (len(first.x), len(second.x))
    count = windows(*n)
    edges = np.linspace(low, high, count + 1)
    means = np.stack([_means(one, edges) for one in (first, second)])
    errors = np.stack([_errors(one, edges) for one in (first, second)])
    late = slice(count - max(1, count * LATE // WINDOWS), count)
    sd = math.hypot(first.sd, second.sd) / math.sqrt(2.0)  # squares of huge values are no float
    ends = (_mean(means[0, late]), _mean(means[1, late]))
    seen = np.flatnonzero(np.isfinite(means).all(axis=0))
    if min(n) < FEWEST or len(seen) < 2:
        gap = ends[1] - ends[0]
        return Apart(n, ends, gap, -math.inf, math.inf, gap, sd, math.nan, 1.0, 1.0, "", gap, ends[0], None)
    gaps = means[1] - means[0]
    noise = np.square(errors).sum(axis=0)
    allowed = _allowed(first, second, means) if spread is None else spread
    late_seen = seen[seen >= late.start] if (seen >= late.start).any() else seen[-1:]
    looks = [seen, late_seen, *([at] for at in seen)]
    places = [_look(gaps, noise, allowed, np.asarray(rows)) for rows in looks]
    share = np.array([1 / 3, 1 / 3, *[1 / 3 / len(seen)] * len(seen)])
    sizes = sum(len(one.x) / one.inflation for one in (first, second))
    alone = [
        _p(gap, error, 0.0, sizes - 2.0, freedom) / part for (gap, error, _), part in zip(places, share, strict=True)
    ]
    # What seeds differ by is the same in all windows: only their noise makes several looks of them.
    each = [_p(gap, error, extra, sizes - 2.0, freedom) for gap, error, extra in places]
    counts = [
        3.0 * (1.0 + (1 / 3 / part - 1.0) * (error / max(math.hypot(error, extra), 1e-300)) ** 2)
        for (_, error, extra), part in zip(places, share, strict=True)
    ]
    both = [times * p for times, p in zip(counts, each, strict=True)]
    best = int(np.argmin(both))
    tested = [
        Look(gap, math.hypot(error, extra), _freedom(error, extra, sizes - 2.0, freedom), times)
        for (gap, error, extra), times in zip(places, counts, strict=True)
    ]
    everywhere = max(each[2:]) <= 0.05 and len({gap > 0.0 for gap, _, _ in places[2:]}) == 1
    gap, error, extra = places[1]
    half = student_quantile(0.025, max(1.0, sizes - 2.0)) * error
    lead = None
    if min(alone) < 0.05:
        lead = _lead(first, second, low, high, np.sqrt(noise + np.square(allowed)), edges)
    return Apart(
        n,
        ends,
        gap,
        gap - half,
        gap + half,
        places[0][0],
        sd,
        extra,
        min(1.0, float(min(alone))),
        min(1.0, float(min(both))),
        _where(best, seen, count, everywhere),
        places[best][0],
        _mean(means[0, np.asarray(looks[best])]),
        lead,
        _clear(first, second, float(edges[late.start]), abs(gap), extra),
        tested[1],
        tested[best],
        everywhere,
    )


def _clear(first: Side, second: Side, since: float, gap: float, extra: float) -> bool:
    """Whether the late values lie apart without any overlap, and their means by more than ``CLEAR`` allowances: it needs no
    estimate of slow noise, which short series that run away do not give."""
    a, b = first.y[first.x >= since], second.y[second.x >= since]
    if min(len(a), len(b)) < IN_WINDOW or not gap > CLEAR * extra:
        return False
    return bool(a.max() < b.min() or b.max() < a.min())


def windows(first: int, second: int) -> int:
    """How many windows series of ``first`` and ``second`` points are cut into."""
    return max(1, min(WINDOWS, min(first, second) // IN_WINDOW))


def _where(best: int, seen: NDArray[np.intp], count: int, everywhere: bool) -> Where:
    if best == 0:
        return "throughout" if everywhere else ""
    if best == 1 or seen[best - 2] >= count - 2:
        return "late"
    return "early" if seen[best - 2] < 2 else "in between"


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def _cells(one: Side, edges: Floats) -> NDArray[np.intp]:
    return np.clip(np.searchsorted(edges, one.x, side="right") - 1, 0, len(edges) - 2)


def _means(one: Side, edges: Floats) -> Floats:
    """(windows,) mean of the points between neighbouring edges, NaN without any."""
    cells, count = _cells(one, edges), len(edges) - 1
    points = np.bincount(cells, minlength=count)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.asarray(np.bincount(cells, one.y, minlength=count) / points)


def _errors(one: Side, edges: Floats) -> Floats:
    """(windows,) standard errors of those means."""
    points = np.bincount(_cells(one, edges), minlength=len(edges) - 1)
    return np.asarray(one.sd * np.sqrt(one.inflation / np.maximum(points, 1)))


def _allowed(first: Side, second: Side, means: Floats) -> Floats:
    """(windows,) what two seeds may differ by: how far both have moved so far, and a little of the level."""
    moved = []
    for one, row in zip((first, second), means, strict=True):
        start = float(np.mean(one.y[: max(1, len(one.y) // (2 * len(row)))]))
        path = np.concatenate(([start], np.where(np.isfinite(row), row, start)))
        reach = np.maximum.accumulate(path) - np.minimum.accumulate(path)
        moved.append(np.append(reach[2:], reach[-1]))
    level = np.nanmean(np.abs(means), axis=0)
    return np.asarray(np.hypot(MOVED * np.sqrt(moved[0] * moved[1]), LEVEL * level))


def _look(gaps: Floats, noise: Floats, allowed: Floats, rows: NDArray[np.intp]) -> tuple[float, float, float]:
    """(difference, standard error by noise, allowance) of the mean over some windows; the allowance does not average out."""
    k = len(rows)
    return float(gaps[rows].mean()), math.sqrt(float(noise[rows].sum())) / k, float(allowed[rows].mean())


def _p(gap: float, error: float, extra: float, size: float, freedom: float) -> float:
    """Two-sided p of a difference with a standard error and an allowance."""
    total = math.hypot(error, extra)
    if gap == 0.0 or not math.isfinite(gap):
        return 1.0
    if not total > 0.0:
        return 0.0
    df = _freedom(error, extra, size, freedom)
    return min(1.0, 2.0 * student_tail(abs(gap) / total, df)) if math.isfinite(df) else 1.0


def _freedom(error: float, extra: float, size: float, freedom: float) -> float:
    """Satterthwaite's degrees of freedom of a standard error and an allowance, at least 1; NaN without either."""
    total = math.hypot(error, extra)
    noise, seeds = ((error / total) ** 2, (extra / total) ** 2) if total > 0.0 else (math.nan, math.nan)
    if not math.isfinite(noise + seeds):
        return math.nan
    return max(1.0, 1.0 / (noise * noise / max(size, 1.0) + seeds * seeds / freedom))


# ------------------------------------------------------------------------------------------- where, how much earlier


def _binned(first: Side, second: Side, low: float, high: float) -> tuple[Floats, Floats, Floats]:
    """(edges, first, second) means in up to ``BINS`` bins; NaN in bins that a run leaves empty."""
    count = max(4, min(BINS, min(len(first.x), len(second.x)) // 2))
    edges = np.linspace(low, high, count + 1)
    return edges, _means(first, edges), _means(second, edges)


def _lead(first: Side, second: Side, low: float, high: float, error: Floats, windows: Floats) -> float | None:
    """The factor by which the second run goes through the first one's course faster, where that explains the difference."""
    edges, a, b = _binned(first, second, low, high)
    middle = (edges[1:] + edges[:-1]) / 2.0
    known = np.isfinite(a) & np.isfinite(b)
    if known.sum() < 8:
        return None
    t, a, b = middle[known], _calm(a[known]), _calm(b[known])
    least = np.interp(t, (windows[1:] + windows[:-1]) / 2.0, np.where(np.isfinite(error), error, np.inf))
    if min(np.ptp(a), np.ptp(b)) < 4.0 * float(np.median(least)):
        return None
    before = float(np.square(b - a).mean())
    best: tuple[float, float] | None = None
    for lead in LEADS:
        inside = (lead * t <= t[-1]) & (lead * t >= t[0])
        if inside.sum() < max(6, len(t) // 3):
            continue
        rest = b[inside] - np.interp(lead * t[inside], t, a)
        if np.abs(rest).max() > FITS * float(np.max(least[inside])):
            continue
        # What is left is held against what stood apart on the same stretch.
        left = float(np.square(rest).mean()) / max(float(np.square(b[inside] - a[inside]).mean()), 1e-300)
        if best is None or left < best[0]:
            best = left, float(lead)
    # A course to another height is not an earlier one, however alike the two look where both level off.
    rise = a - a[0]
    higher = float(np.square(b - b[0] - rise * float(rise @ (b - b[0])) / max(float(rise @ rise), 1e-300)).mean())
    if best is not None and best[0] * before > AS_HIGH * higher:
        return None
    if best is None or before <= 0.0 or best[0] > 1.0 - EXPLAINED or abs(best[1] - 1.0) < LEAST_LEAD:
        return None
    return best[1]


def _calm(values: Floats) -> Floats:
    """(n,) means of three neighbours."""
    return np.convolve(np.pad(values, 1, mode="edge"), np.ones(3) / 3.0, mode="valid")


@_QUIET
def parted(first: Side, second: Side, low: float, high: float, size: float) -> Onset | None:
    """From where on the two series lie apart in the direction of ``size``, with its interval on the axis; None when that
    cannot be told (a difference that came and went, or too few values that both share). Half of the difference in the first
    eighth already (one window) is there from the start. Of short series the single values at shared places are looked at."""
    edges, a, b = _binned(first, second, low, high)
    known = np.flatnonzero(np.isfinite(a) & np.isfinite(b))
    if size == 0.0:
        return None
    if len(known) < 8:
        return _parted_values(first, second, low, size)
    gap = b[known] - a[known]
    begins, ends = edges[known], edges[known + 1]
    head = gap[: max(2, len(gap) // WINDOWS)]
    usual = float(np.median(np.abs(np.diff(gap)))) / math.sqrt(2.0) * 1.4826
    if float(head.mean()) / size >= 0.5 and abs(float(head.mean())) >= 3.0 * usual / math.sqrt(len(head)):
        return Onset(low, low, float(ends[len(head) - 1]))
    found = onset(begins, gap, direction=1 if size > 0 else -1)
    if found is None:
        return None
    # A bin that changed in part passes for changed or for the last one before, so the change may lie in a neighbour.
    low, at, high = (int(np.searchsorted(begins, v, side="right")) - 1 for v in (found.low, found.step, found.high))
    return Onset(
        float(begins[at] / 2 + ends[at] / 2), float(begins[max(low - 1, 0)]), float(ends[min(high + 1, len(ends) - 1)])
    )


def _parted_values(first: Side, second: Side, low: float, size: float) -> Onset | None:
    """The same from the values at shared places: from where on each differs by half of ``size`` or more."""
    at, i, j = np.intersect1d(first.x, second.x, return_indices=True)
    if len(at) < IN_WINDOW:
        return None
    close = np.flatnonzero((second.y[j] - first.y[i]) / size < 0.5)
    since = int(close[-1]) + 1 if len(close) else 0
    if len(at) - since < 2:
        return None
    return Onset(float(at[since]), float(at[since - 1]), float(at[since])) if since else Onset(low, low, float(at[0]))


def identical(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> tuple[float | None, float | None]:
    """(last common step up to which both (steps, values) hold the very same numbers, first common step at which they do
    not); None where there is none. NaN equals NaN."""
    steps, i, j = np.intersect1d(first[0], second[0], assume_unique=True, return_indices=True)
    a, b = first[1][i], second[1][j]
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    if not len(steps):
        return None, None
    off = np.flatnonzero(~equal)
    if not len(off):
        return float(steps[-1]), None
    at = int(off[0])
    return (float(steps[at - 1]) if at else None), float(steps[at])


@_QUIET
def between(groups: list[list[Side]], low: float, high: float, count: int) -> tuple[Floats, float] | None:
    """(count,) standard deviation in each window of the difference of two runs of one setting, as repeats of
    one or more settings show it, and its degrees of freedom; None without repeats.

    ``groups`` hold the runs of one setting each. What the runs' own noise adds is taken out; a window is never given less
    than half of the usual spread of all windows, since few repeats agree by chance here and there.
    """
    runs = [one for group in groups for one in group]
    if not runs or min(len(one.x) for one in runs) < FEWEST:
        return None
    edges = np.linspace(low, high, count + 1)
    squares, noise = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    freedom = 0
    for group in groups:
        means = np.stack([_means(one, edges) for one in group])
        squares += np.square(means - means.mean(axis=0)).sum(axis=0)
        noise += np.square(np.stack([_errors(one, edges) for one in group])).mean(axis=0) * (len(group) - 1)
        freedom += len(group) - 1
    variance = np.maximum(squares - noise, 0.0) / freedom
    usual = float(np.nanmean(variance)) if np.isfinite(variance).any() else 0.0
    return np.sqrt(2.0 * np.maximum(np.nan_to_num(variance, nan=usual), usual / 4.0)), float(freedom)
