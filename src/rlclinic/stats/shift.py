"""When and how a metric changed level: single steps, spikes, lasting changes with their onset, crossings of a limit."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlclinic.model import Floats, Onset
from rlclinic.stats.curve import (
    MOST,
    Basis,
    basis,
    bin_edges,
    bin_means,
    running_median,
    shape_gains,
    shapes,
    standardise,
    tidy,
    whiten,
)
from rlclinic.stats.evidence import (
    autocorrelation_time,
    hampel,
    lag_one,
    scaled_mad,
    spread,
    student_tail,
)
from rlclinic.stats.once import once

_COLUMNS = (2, 4, 6, 9, 13, 19, 28)
_RICHER = (*_COLUMNS, 40, 56)
_LEAST_GAIN = 6.0
"""BIC difference a step must win, and, times the noise variance, the loss of fit that its location interval allows
(statistics study, section 2)."""
_HOPELESS = 40.0
"""BIC lag from which a curve is not fitted again after the residuals were cut (ours, for speed)."""
_LEAST_JUMP = 2.5
"""Noise standard deviations of the smallest step (statistics study, section 2)."""
_FEWEST = 24
"""Points below which no step is looked for (ours: with fewer, not even a straight line is left on both sides)."""
_LONG = 100
"""Points below which a step must survive the second richer curve instead of the first (ours: false alarms on steep but
smooth curves of 40 to 60 points fall from about 9 to 4 %, for a sixth of the power)."""
_SPIKE_WINDOW = 11
"""Points of the running median a spike is measured from (ours: up to five neighbouring points may spike together)."""
_EXCURSION = 4.0
"""Noise standard deviations from which a passing excursion counts as one (ours)."""
_LASTING = 0.01
"""Largest p-value at which an onset is looked for (the level of the trend test)."""
_ONSET_T = 3.0
"""Least t-value of the change at its onset (ours)."""


class Shift(NamedTuple):
    """One abrupt change of level. ``step`` is the first step after it; the data allow ``low`` to ``high``."""

    step: float
    low: float
    high: float
    before: float
    after: float
    """Medians of the neighbouring points on either side (5 % of the run, at least five points)."""
    jump: float
    """Height of the step beside the smooth curve that was fitted with it, in the unit of the metric."""
    sd: float
    size: float
    """|jump| / sd; call it abrupt from 3 on."""


class LastingChange(NamedTuple):
    """The late level against the early level of a run."""

    early: float
    late: float
    """Medians of the two windows; NaN with too few points."""
    change: float
    ratio: float
    """late / early; infinite when only the early level is 0."""
    snr: float
    """|change| over the robust standard deviation inside the windows."""
    p_value: float
    """Two-sided, corrected for autocorrelation inside the windows."""
    n_eff: float
    """Independent observations in both windows together."""
    onset: Onset | None
    extreme: float
    extreme_step: float
    """The smoothed value furthest from the early level, and when."""
    recovered: bool
    """True when the metric went at least four noise deviations away and came back by more than half."""


class _Hit(NamedTuple):
    at: int
    low: int
    high: int
    jump: float
    sd: float


def step_scan(steps: ArrayLike, values: ArrayLike) -> Shift | None:
    """The one step that a smooth curve cannot explain, or None.

    ``steps``, ``values`` (n,), non-finite dropped. Spline curves of 2 to 28 columns compete by BIC with the same
    curves plus one step, under AR(1) noise; the step must win by more than 6, be significant at 1 % over all positions
    (also inside the next richer curve), measure at least 2.5 noise deviations and leave max(5, 2 %) points on each
    side. Spikes of up to three points are removed first. Above 2000 points bin means are scanned, and a hit is looked
    for again, and must be found, among the raw points around it. Drop the warm-up first: it looks like a step.
    """
    x, y = tidy(steps, values)
    return _step_of(x, y)


@once(8)
def steps_found(steps: ArrayLike, values: ArrayLike, most: int = 4) -> tuple[Shift, ...]:
    """Up to ``most`` steps in order of time: the scan repeated on both sides of each step found, larger parts first."""
    x, y = tidy(steps, values)
    found: list[Shift] = []
    parts = [(0, len(x))]
    while parts and len(found) < most:
        a, b = parts.pop(0)
        hit = _step_of(x[a:b], y[a:b])
        if hit is not None:
            found.append(hit)
            cut = int(np.searchsorted(x, hit.step))
            parts = sorted([*parts, (a, cut), (cut, b)], key=lambda part: part[0] - part[1])
    return tuple(sorted(found, key=lambda shift: shift.step))


def spikes(steps: ArrayLike, values: ArrayLike, sigma: float = 8.0, ratio: float = 3.0) -> NDArray[np.intp]:
    """Indices into ``values`` of short upward spikes, increasing.

    A point spikes when it lies more than ``sigma`` scaled MAD above the running median of 11 points and measures at
    least ``ratio`` times its magnitude. The MAD is that of all distances from the running median, or of the 101 points
    around where those are wider, so neither a moving level nor a noisier phase counts. Non-finite values are ignored.
    """
    x = np.asarray(steps, dtype=np.float64).ravel()
    y = np.asarray(values, dtype=np.float64).ravel()
    seen = np.flatnonzero(np.isfinite(y) & np.isfinite(x))
    seen = seen[np.argsort(x[seen], kind="stable")]
    z, centre, scale = standardise(y[seen])
    if len(z) < 5 or scale == 0.0:
        return np.empty(0, dtype=np.intp)
    level = running_median(z, _SPIKE_WINDOW)
    distance = np.abs(z - level)
    usual = 1.4826 * np.maximum(float(np.median(distance)), running_median(distance, 101))
    usual[usual == 0.0] = float(np.minimum(distance, 1e6).mean())
    magnitude = np.abs(level + centre / scale)
    high = (z - level > sigma * usual) & (z + centre / scale >= ratio * magnitude)
    return np.sort(seen[high])


@once(8)
def lasting_change(
    steps: ArrayLike, values: ArrayLike, *, early: float = 0.15, late: float = 0.25, warmup: float = 0.0
) -> LastingChange:
    """Compare the first ``early`` share of a run with its last ``late`` share.

    ``steps``, ``values`` (n,), non-finite dropped; both windows hold at least three points, and neither more than
    half. With a ``warmup`` > 0 the first max(warmup, 2 % of the steps) trainer steps are left out. Welch's t with
    effective sizes gives the p-value. Noise is taken around a line inside each window, its autocorrelation time from
    there too or, where that is shorter (windows of short runs hold few points), from the residuals around the
    best-fitting change; never from the whole run, where the change itself would pass for autocorrelation.

    Measured at p < 0.01 without any change: at most 2 % false for lag-one correlations up to 0.8 from 60 points on and
    up to 0.95 from 400 on; 3 to 10 % at 0.9 and 0.95 with 40 to 100 points. Changes of four noise deviations are found
    in 93 % or more at 0.5 from 100 points and at 0.8 from 400.
    """
    x, y = tidy(steps, values)
    if warmup > 0.0 and len(x):
        keep = x >= x[0] + max(warmup, 0.02 * (x[-1] - x[0]))
        x, y = x[keep], y[keep]
    n = len(y)
    if n < 6:
        return LastingChange(math.nan, math.nan, 0.0, 1.0, 0.0, 1.0, float(n), None, math.nan, math.nan, False)
    first, last = (min(n // 2, max(3, round(part * n))) for part in (early, late))
    z, centre, scale = standardise(y)
    levels = float(np.median(z[:first])), float(np.median(z[n - last :]))
    sides = [_level_noise(z[:first]), _level_noise(z[n - last :])]
    change = levels[1] - levels[0]
    left = _departure(hampel(z), 1 if change > 0 else -1) if n <= MOST and change else None
    tau = max(side[2] for side in sides)
    if left is not None:
        tau = min(tau, autocorrelation_time(left.residuals, fitted=3))
    sizes = [max(1.0, size / tau) for size in (first, last)]
    means = [side[0] for side in sides]
    errors = [side[1] ** 2 / size for side, size in zip(sides, sizes, strict=True)]
    sd = math.sqrt((sides[0][1] ** 2 + sides[1][1] ** 2) / 2.0)
    p_value = _welch(means[1] - means[0], errors, sizes)
    snr = 0.0 if change == 0.0 else abs(change) / sd if sd > 0.0 else math.inf

    calm = running_median(z, _width(n))
    away = int(np.argmax(np.abs(calm - levels[0])))
    excursion = abs(float(calm[away]) - levels[0])
    unseen = math.sqrt(max(0.1, 1.0 - 2.0 * tau / min(first, last)))
    recovered = excursion > 0.0 and excursion >= _EXCURSION * sd / unseen and abs(change) < 0.5 * excursion
    found = None
    if p_value < _LASTING and change:
        found = left.onset(x, x) if left is not None else onset(x, y, direction=1 if change > 0 else -1)
    start, end = centre + scale * levels[0], centre + scale * levels[1]
    ratio = end / start if start else math.copysign(math.inf, end) if end else 1.0
    extreme = centre + scale * float(calm[away])
    return LastingChange(
        start, end, scale * change, ratio, snr, p_value, sum(sizes), found, extreme, float(x[away]), recovered
    )


@once(8)
def onset(steps: ArrayLike, values: ArrayLike, *, direction: Literal[-1, 1]) -> Onset | None:
    """When the series left its early level for good, upwards (``direction`` 1) or downwards (-1); None if it did not.

    Level-then-step, level-then-ramp (ending after 10 %, 30 % or 100 % of the run) and level-then-exponential-approach
    (time constants of 2, 6 and 20 %) compete at every position under AR(1) noise. A step's onset is its first changed
    step, a curve's the last step at the old level, so that a decay which starts at once has its onset at the first
    step. The interval holds every position of any shape whose fit is within 6 noise variances of the best.
    """
    x, y = tidy(steps, values)
    z, _, scale = standardise(y)
    if len(z) < 6 or scale == 0.0:
        return None
    first = last = x
    if len(z) > MOST:
        edges = bin_edges(len(z), MOST)
        z = bin_means(hampel(z), edges)
        first, last = x[edges[:-1]], x[edges[1:] - 1]
    left = _departure(hampel(z), direction)
    return None if left is None else left.onset(first, last)


def crossing(
    steps: ArrayLike, values: ArrayLike, limit: float, *, above: bool = True, last: bool = True
) -> Onset | None:
    """Since when the series is at or beyond ``limit``; None when it is not.

    ``last``: since which step its running median stays beyond up to the end. Otherwise: the first step from which it
    stays beyond for at least 5 % of the points (three; one below 11 points). The median spans about 1/40 of the points
    (one below 11). The interval runs from the first raw point beyond the limit to the last raw one not beyond it
    inside that span.
    """
    x, y = tidy(steps, values)
    n = len(y)
    if n == 0 or math.isnan(limit):
        return None
    width = _width(n)
    raw = y >= limit if above else y <= limit
    beyond = running_median(raw.astype(np.float64), width) >= 0.5
    at = _last_stretch(beyond) if last else _first_stretch(beyond, 1 if n <= 10 else max(3, n // 20))
    if at is None:
        return None
    around = np.arange(max(0, at - width // 2), min(n, at + width // 2 + 1))
    inside, outside = around[raw[around]], around[~raw[around]]
    low = min(at, int(inside[0])) if len(inside) else at
    high = max(at, min(int(outside[-1]) + 1, n - 1)) if len(outside) else at
    return Onset(float(x[at]), float(x[low]), float(x[high]))


def longest_run(steps: ArrayLike, mask: ArrayLike) -> tuple[float, float, int]:
    """(first step, last step, points) of the longest unbroken stretch of True, the earliest of equals; (nan, nan, 0) if
    there is none."""
    x = np.asarray(steps, dtype=np.float64).ravel()
    edges = np.flatnonzero(np.diff(np.concatenate(([False], np.asarray(mask, dtype=bool).ravel(), [False]))))
    if not len(edges):
        return math.nan, math.nan, 0
    starts, ends = edges[::2], edges[1::2]
    best = int(np.argmax(ends - starts))
    return float(x[starts[best]]), float(x[ends[best] - 1]), int(ends[best] - starts[best])


def _width(n: int) -> int:
    """Width of the running median that stands for the level of n points (ours: a fortieth, odd, 5 to 101; 1 up to
    10)."""
    return 1 if n <= 10 else min(101, max(5, n // 40 | 1)) if n > 20 else 3


def _last_stretch(beyond: NDArray[np.bool_]) -> int | None:
    """Start of the stretch of True that reaches the end."""
    if not beyond[-1]:
        return None
    outside = np.flatnonzero(~beyond)
    return int(outside[-1]) + 1 if len(outside) else 0


def _first_stretch(beyond: NDArray[np.bool_], least: int) -> int | None:
    """Start of the first stretch of True of at least ``least`` points."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], beyond, [False]))))
    lasting = np.flatnonzero(edges[1::2] - edges[::2] >= least)
    return int(edges[::2][lasting[0]]) if len(lasting) else None


def _level_noise(z: Floats) -> tuple[float, float, float]:
    """(mean, standard deviation, autocorrelation time) of one window, the last two around a line (from 20 points
    on)."""
    clean = hampel(z)
    n = len(z)
    columns = 2 if n >= 20 else 1
    residuals = clean - clean.mean()
    if columns == 2:
        u = np.arange(n) - (n - 1) / 2.0
        residuals -= u * (float(u @ residuals) / float(u @ u))
    sd = math.sqrt(float(residuals @ residuals) / max(1, n - columns))
    return float(clean.mean()), max(sd, scaled_mad(residuals)), autocorrelation_time(residuals, fitted=columns)


def _welch(difference: float, errors: list[float], sizes: list[float]) -> float:
    """Two-sided p of a difference of means with squared standard errors and effective sizes."""
    total = sum(errors)
    if difference == 0.0:
        return 1.0
    if total <= 0.0:
        return 0.0
    df = total**2 / sum(e**2 / max(size - 1.0, 0.5) for e, size in zip(errors, sizes, strict=True))
    return min(1.0, 2.0 * student_tail(abs(difference) / math.sqrt(total), max(1.0, df)))


def _step_of(x: Floats, y: Floats) -> Shift | None:
    z, _, scale = standardise(y)
    n = len(z)
    if n < _FEWEST or scale == 0.0:
        return None
    if n <= MOST:
        hit, offset = _scan(hampel(z)), 0
    else:
        z = hampel(z)
        edges = bin_edges(n, MOST)
        coarse = _scan(bin_means(z, edges))
        if coarse is None:
            return None
        offset = int(np.clip(edges[coarse.at] - MOST // 2, 0, n - MOST))
        hit = _scan(z[offset : offset + MOST])
    if hit is None:
        return None
    at, side = hit.at + offset, max(5, n // 20)
    return Shift(
        step=float(x[at]),
        low=float(x[hit.low + offset]),
        high=float(x[hit.high + offset]),
        before=float(np.median(y[max(0, at - side) : at] * 0.5)) * 2.0,
        after=float(np.median(y[at : at + side] * 0.5)) * 2.0,
        jump=scale * hit.jump,
        sd=scale * hit.sd,
        size=abs(hit.jump) / hit.sd,
    )


class _Candidate(NamedTuple):
    """The best step beside one curve; ``gain`` (n,) is the fall of the whitened residual sum of squares per
    position."""

    bic: float
    k: int
    phi: float
    at: int
    jump: float
    weight: float
    rss: float
    gain: Floats
    residuals: Floats


class _Race(NamedTuple):
    """The smooth curve of least ``bic``, its columns ``k``, the best curve with a step, and the columns still in
    play."""

    bic: float
    k: int
    step: _Candidate | None
    close: list[int]


def _scan(z: Floats) -> _Hit | None:
    """The step scan on equally spaced, standardised, spike-free points."""
    n = len(z)
    guard = max(5, int(0.02 * n))
    columns = [k for k in _COLUMNS if k <= max(2, n // 12)]
    race = _race(z, columns, guard)
    best = race.step
    if best is None:
        return None
    # Half of the plain deviation keeps a mostly constant series, whose MAD is near 0, from calling every blip a step.
    rough = 0.5 * float(np.std(best.residuals))
    limit = 3.5 * max(scaled_mad(best.residuals), rough)
    z = z - best.residuals + np.clip(best.residuals, -limit, limit)
    race = _race(z, race.close, guard)
    best = race.step
    if best is None or race.bic - best.bic <= _LEAST_GAIN:
        return None
    residuals = best.residuals
    sd = max(scaled_mad(residuals), rough, 1e-9)
    if abs(best.jump) < _LEAST_JUMP * sd:
        return None
    s2 = max(best.rss, 1e-20 * n) / max(n - best.k - 3, 5)
    t = abs(best.jump) * math.sqrt(best.weight / s2)
    finest = max(best.k, race.k)
    richer_ones = [k for k in _RICHER if finest < k <= n // 4][: 1 if n >= _LONG else 2]
    finest = richer_ones[-1] if richer_ones else finest
    if finest > best.k:
        near = slice(max(guard, best.at - 3), min(n - guard, best.at + 4))
        richer = basis(n, finest)
        t = min(t, math.sqrt(float(_gains(richer, richer.residual(z), best.phi, guard)[1][near].max()) / s2))
    if student_tail(t, max(n - best.k - 4, 5)) >= 0.01 / (2 * n):
        return None
    allowed = np.flatnonzero(best.gain >= best.gain[best.at] - _LEAST_GAIN * s2)
    return _Hit(best.at, int(allowed[0]), int(allowed[-1]), best.jump, sd)


def _race(z: Floats, columns: list[int], guard: int) -> _Race:
    """Fit every curve without and with its best step, each with its own AR(1) coefficient."""
    n = len(z)
    log_n = math.log(n)
    smooth: list[float] = []
    stepped: list[_Candidate | None] = []
    for k in columns:
        base = basis(n, k)
        residual = base.residual(z)
        phi = _noise_phi(residual, k)
        smooth.append(_bic(float(base.whitened_rss(residual, np.array([phi]))[0]), n, phi) + (k + 2) * log_n)
        rss, gain, sizes, weights = _gains(base, residual, 0.0, guard)
        for _ in range(2):
            beside = residual - _step_part(base, residual, int(np.argmax(gain)))
            phi = _noise_phi(beside, k + 1)
            rss, gain, sizes, weights = _gains(base, residual, phi, guard)
        at = int(np.argmax(gain))
        if gain[at] > 0.0:
            left = rss - float(gain[at])
            bic = _bic(left, n, phi) + (k + 5) * log_n
            stepped.append(_Candidate(bic, k, phi, at, float(sizes[at]), float(weights[at]), left, gain, beside))
        else:
            stepped.append(None)
    fewest = min(smooth)
    step = min((c for c in stepped if c is not None), key=lambda c: c.bic, default=None)
    close = [
        k
        for k, bic, c in zip(columns, smooth, stepped, strict=True)
        if bic < fewest + _HOPELESS or (step is not None and c is not None and c.bic < step.bic + _HOPELESS)
    ]
    return _Race(fewest, columns[smooth.index(fewest)], step, close)


def _bic(rss: float, n: int, phi: float) -> float:
    return n * math.log(max(rss / n, 1e-20)) - math.log(1.0 - phi * phi)


def _noise_phi(residuals: Floats, fitted: int) -> float:
    return lag_one(residuals, fitted, lowest=0.0, highest=0.98)


def _step_part(base: Basis, residual: Floats, at: int) -> Floats:
    """(n,) least-squares step at ``at`` in the residuals, with what the curve takes of it removed."""
    step = -(base.q @ base.tail[at])
    step[at:] += 1.0
    power = float(step @ step)
    return step * (float(step @ residual) / power) if power > 0.0 else np.zeros(len(step))


def _gains(base: Basis, residual: Floats, phi: float, guard: int) -> tuple[float, Floats, Floats, Floats]:
    """(rss, gain (n,), size (n,), weight (n,)) of a step at every position beside the curve, under AR(1) noise.

    A whitened step is 0, then 1, then 1 - phi for ever, so that every inner product is a reversed cumulative sum.
    """
    n = len(residual)
    rest = 1.0 - phi
    full = 1.0 + np.arange(n - 1, -1, -1) * rest * rest
    if phi == 0.0:
        w, weight = residual, base.free
    else:
        root = np.linalg.inv(np.linalg.cholesky(base.gram(phi)))
        w = whiten(residual - base.q @ ((root @ base.lagged(residual, phi)) @ root), phi)
        taken = (rest * rest * base.tail + phi * base.rise + rest * phi * base.q[-1]) @ root.T
        weight = full - np.einsum("ij,ij->i", taken, taken)
    number = rest * np.cumsum(w[::-1])[::-1] + phi * w
    usable = weight > 1e-6 * full
    usable[:guard] = usable[n - guard :] = False
    weight = np.where(usable, weight, 1.0)
    size = np.where(usable, number / weight, 0.0)
    return float(w @ w), size * size * weight, size, weight


class _Departure(NamedTuple):
    """The best fit of a level that was left: position, its interval, and (n,) residuals around the fit."""

    at: int
    low: int
    high: int
    residuals: Floats

    def onset(self, first: Floats, last: Floats) -> Onset:
        """The same in trainer steps, given the first and last step of every point."""
        return Onset(float(first[self.at]), float(first[self.low]), float(last[self.high]))


def _departure(z: Floats, direction: int) -> _Departure | None:
    """Best shape and position of a change in ``direction`` of equally spaced, spike-free points; None below t = 3."""
    z = direction * z
    n = len(z)
    family = shapes(n)
    phi = 0.0
    for _ in range(3):
        gains, sizes, noise = shape_gains(family, z, phi)
        row, at = (int(i) for i in np.unravel_index(int(np.argmax(gains)), gains.shape))
        if not gains[row, at] > 0.0:
            return None
        residuals = z - sizes[row, at] * np.concatenate((np.zeros(at), family.kernels[row, : n - at]))
        residuals = residuals - residuals.mean()
        limit = 3.5 * spread(residuals)
        phi = lag_one(np.clip(residuals, -limit, limit), 3, lowest=0.0, highest=0.98)
    best = float(gains[row, at])
    s2 = max(noise - best, 1e-20 * noise) / max(n - 4, 2)
    if best < _ONSET_T**2 * s2:
        return None
    allowed = np.flatnonzero((gains >= best - _LEAST_GAIN * s2).any(axis=0))
    return _Departure(at, int(allowed[0]), int(allowed[-1]), residuals)
