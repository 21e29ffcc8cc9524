"""Does a metric drift, how far, and on how much independent evidence: a rank test that survives autocorrelated
noise."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlclinic.model import Floats
from rlclinic.stats.curve import MOST, basis, bin_edges, bin_means, ends_of, median_of, standardise, tidy
from rlclinic.stats.evidence import FEWEST, autocorrelation_time, hampel, spread, student_quantile, student_tail
from rlclinic.stats.once import once
from rlclinic.stats.shift import steps_found

_COLUMNS = (2, 3, 4, 6, 9)
_PHIS = np.array([0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.87, 0.92, 0.95, 0.97, 0.985, 0.995])
_BENDS = (4, 6, 9, 13, 19, 28, 40, 56)
"""Columns that may show a movement too quick for ``_COLUMNS``, up to a quarter of the points (as in the step scan)."""
_PLAINLY = 3.0
"""Half-widths of its interval by which such a course must lie outside the margin to have moved (ours: with 1, level
AR(.9) noise of 60 points that was undecided before was said to have moved in 21 of 60 series, with 3 in 13, at a margin
of half a deviation)."""
_CURVED_FROM = 36
"""Points below which only a straight line is fitted (statistics study, section 1)."""
_LAGS = 160
"""Distances over which pairwise slopes are taken; all of them up to 161 points, half as many beyond 1000 (ours: the
slope then differs from the one over all pairs by 0.09 of its standard error at 400 and 1000 points, 0.12 at 2000, and by
0.29 at most in 30 series)."""
_PAIRS_KEPT = 161
"""Points up to which all pairs are taken, and kept from one series to the next (ours, for speed)."""
_NOISELESS = 100.0
"""Change over residual spread from which the residuals are the misfit of the curve rather than noise, so that their
autocorrelation says nothing (ours: without it a smooth noise-free rise would be undecided)."""
_STEADY_LEVEL, _STEADY_SHARE = 0.05, 0.25
"""Level of each of the two tests that show a steady drift (as in ``plateau``), and the share of the whole change by
which its halves may differ: 5/8 against 3/8 (ours)."""
_CHOICE, _CHOICE_SHORT, _SHORT = 1, 2, 100
"""Columns that choosing the curve costs when a bend is tested, as a bend by chance chooses the curve that follows it:
two below 100 points (ours: false bends on straight lines at 60 points and lag-one correlation 0.5 fall from 1.44 to
1.26 % in 7000 series; at 400 points a second column would cost a fifth of the power at 0.9)."""
_COLLINEAR = 1e-6
"""Spread of the squared steps beside the steps below which no bend can be fitted (ours: one step far beyond the rest
leaves rounding errors only)."""

LEAST_RELATIVE = 0.10
LEAST_SHARE = 0.02
LEAST_SNR = 1.0
"""Smallest change worth reporting: relative to the start, absolute for shares, in noise standard deviations
(statistics study, section 1)."""


class Trend(NamedTuple):
    """A drift over the whole window. ``none`` means examined and no change that is both significant and large enough;
    ``undecided`` means too little independent information for either answer."""

    n: int
    n_eff: float
    slope: float
    """Theil-Sen slope per trainer step."""
    change: float
    """Slope times the window, in the unit of the metric: NOT end - start. The two agree on a straight line; for a
    logistic from 0 to 1 whose middle is steep the slope says 1.29. For levels take ``start`` and ``end``."""
    start: float
    end: float
    """Median of the first and of the last tenth of the points (at least three)."""
    sd: float
    """Robust standard deviation of single points around the fitted curve."""
    snr: float
    """|change| / sd."""
    relative: float
    """change / max(|start|, floor), signed."""
    tau: float
    """Kendall's rank correlation with the step: strength of direction, not evidence."""
    p_value: float
    """Two-sided and corrected for autocorrelation; not validated below 1e-6."""
    verdict: Literal["rising", "falling", "none", "undecided"]


class Plateau(NamedTuple):
    """Whether the metric stayed level: ``flat`` is None with too little independent information."""

    flat: bool | None
    slope_low: float
    slope_high: float
    change_low: float
    change_high: float
    """Interval of the least-squares slope, per step and times the window; infinite where ``flat`` is None."""
    n_eff: float
    change: float
    """That slope times the window, in the metric's unit: the middle of its interval; finite even where ``flat`` is None.
    Like ``Trend.change`` no difference of levels."""
    departure: float
    """Highest less lowest point of the smooth course, steps included; of the least-squares line where nothing bends."""


class Acceleration(NamedTuple):
    """Whether a drift gains speed, whichever its direction. ``steady`` is shown by an interval, not by silence."""

    n: int
    n_eff: float
    early: float
    late: float
    """Change of the fitted curve over the first and over the last half of the steps, in the unit of the metric."""
    gain_low: float
    gain_high: float
    """90 % interval of what the last half moved more than the first, along the overall direction (least squares,
    quadratic)."""
    sd: float
    """Robust standard deviation of single points around the fitted curve."""
    snr: float
    """|late - early| / sd."""
    p_value: float
    """Two-sided and corrected for autocorrelation: the larger p-value of a bend and of an overall direction."""
    verdict: Literal["speeding_up", "slowing_down", "steady", "undecided"]


def trend(
    steps: ArrayLike, values: ArrayLike, *, level: float = 0.01, floor: float = 0.0, share: bool = False
) -> Trend:
    """Mann-Kendall test with its variance stretched by the autocorrelation time of the residuals around a fitted curve.

    ``steps``, ``values`` (n,): non-finite values are dropped, the last row per step is kept, order does not matter.
    More than 2000 points are averaged into 2000 bins of neighbouring points first, spikes of single points removed. A
    trend is reported when p < ``level``, the change is at least one noise standard deviation, and it is at least 10 %
    of the larger of the start level and ``floor`` (for a ``share`` of [0, 1]: at least 0.02). Below 8 effective
    points: undecided.

    A clean step makes this undecided: no smooth curve follows it, and its misfit passes for slow noise (17 noise
    deviations at 300 points leave 3 effective ones). Ask ``steps_found`` as well, or ``plateau``, which does.

    Residuals come from a line or a spline of 3 to 9 columns, chosen by a BIC that also allows AR(1) noise: around a
    line, a curved trend would count as autocorrelation and hide itself. Measured false positives at level 0.01 and
    lag-one correlation 0, 0.5, 0.9: below 1.2 % from 60 points on, but 2 % at 0.9 and 60 points, where only a quarter
    of the series has 8 effective points.
    """
    found = _drift(steps, values)
    change, base = found.change, max(abs(found.start), floor)
    relative = change / base if base > 0.0 else math.copysign(math.inf, change) if change else 0.0
    large = abs(change) >= LEAST_SHARE if share else abs(relative) >= LEAST_RELATIVE
    # A run that rose and collapsed at its end has the slope of the rise.
    directed = found.tau * change > 0.0 and (found.end - found.start) * change > 0.0
    if found.verdict != "none" or not (found.p_value < level and found.snr >= LEAST_SNR and large and directed):
        return found._replace(relative=relative)
    return found._replace(relative=relative, verdict="rising" if found.tau > 0.0 else "falling")


@once(8)
def _drift(steps: ArrayLike, values: ArrayLike) -> Trend:
    """What ``trend`` finds whatever its limits: ``relative`` is left at 0, and the verdict at none or undecided."""
    x, y = tidy(steps, values)
    n = len(y)
    if n == 0:
        return Trend(0, 0.0, 0.0, 0.0, math.nan, math.nan, 0.0, 0.0, 0.0, 0.0, 1.0, "undecided")
    start, end = ends_of(y)
    course = _course(x, y)
    if course is None:
        level = n >= FEWEST and float(np.ptp(y * 0.5)) == 0.0
        verdict: Literal["none", "undecided"] = "none" if level else "undecided"
        return Trend(n, float(n), 0.0, 0.0, start, end, 0.0, 0.0, 0.0, 0.0, 1.0, verdict)
    s, pairs, variance = _rank_sum(course.z)
    n_eff = len(course.z) / course.inflation
    deviate = max(abs(s) - 1.0, 0.0) / math.sqrt(variance * course.inflation) if variance > 0.0 else 0.0
    p_value = min(1.0, 2.0 * student_tail(deviate, max(1.0, n_eff - 2.0)))
    change = course.scale * course.slope
    return Trend(
        n=n,
        n_eff=n_eff,
        slope=change / float(x[-1] - x[0]),
        change=change,
        start=start,
        end=end,
        sd=course.scale * course.sd,
        snr=course.snr,
        relative=0.0,
        tau=s / pairs,
        p_value=p_value,
        verdict="undecided" if n_eff < FEWEST else "none",
    )


class _Course(NamedTuple):
    """A standardised series (bin means above ``MOST`` points) on steps ``u`` in [0, 1], its curve and its noise."""

    u: Floats
    z: Floats
    scale: float
    slope: float
    fit: Floats
    columns: int
    sd: float
    """Of single points, also where bins are used."""
    snr: float
    inflation: float
    """Autocorrelation time of the residuals."""


class _Laid(NamedTuple):
    """A tidied series as it is fitted: positions from 0 to 1, values in units of ``scale``, binned where it is long."""

    u: Floats
    z: Floats
    raw: Floats
    """The values before binning."""
    bins: NDArray[np.intp] | None
    scale: float


def _laid(x: Floats, y: Floats) -> _Laid | None:
    """None for a constant series and for fewer than three points."""
    n = len(y)
    z, _, scale = standardise(y)
    if scale == 0.0 or n < 3:
        return None
    raw, bins = z, None
    u = (x - x[0]) / float(x[-1] - x[0])
    if n > MOST:
        bins = bin_edges(n, MOST)
        z, u = bin_means(hampel(z), bins), bin_means(u, bins)
    return _Laid(u, z, raw, bins, scale)


@once(8)
def _course(x: Floats, y: Floats) -> _Course | None:
    """The course of a tidied series; None for a constant one and for fewer than three points."""
    laid = _laid(x, y)
    if laid is None:
        return None
    u, z, raw, bins, scale = laid
    slope = _pairwise_slope(u, z)
    fit, columns = _fitted_curve(u, z, slope)
    residuals = z - fit
    sd = spread(residuals if bins is None else raw - np.repeat(fit, np.diff(bins)))
    snr = 0.0 if slope == 0.0 else abs(slope) / sd if sd > 0.0 else math.inf
    inflation = autocorrelation_time(residuals, fitted=columns) if snr < _NOISELESS else 1.0
    return _Course(u, z, scale, slope, fit, columns, sd, snr, inflation)


def acceleration(steps: ArrayLike, values: ArrayLike, *, level: float = 0.01) -> Acceleration:
    """Does the metric move faster in the last half of its steps than in the first, slower, or as fast?

    ``steps``, ``values`` (n,) as in ``trend``. Evidence is the quadratic term of a least-squares fit, tested by t with
    the autocorrelation time and the spread of the residuals around the fitted curve, as in ``trend`` (the misfit of the
    quadratic would pass for autocorrelation). A bend only says faster or slower once there is a direction, so the
    linear term must be significant too: a rise that turns and comes back whole is undecided. One that loses half of its
    way again is slowing down.

    ``speeding_up`` and ``slowing_down``: p < ``level``, and the halves of the curve differ by at least one noise
    deviation and a quarter of the whole change (one half moved 5/3 of the other; ours). ``steady``: the 90 % interval of
    the difference lies inside that same margin (Schuirmann 1987), as it does for a level that does not move. Else, and
    below 8 effective points: ``undecided``.
    """
    x, y = tidy(steps, values)
    n = len(y)
    course = _course(x, y)
    if course is None:
        level_course = n >= FEWEST and float(np.ptp(y * 0.5)) == 0.0
        gain = 0.0 if level_course else math.inf
        return Acceleration(
            n, float(n), 0.0, 0.0, -gain, gain, 0.0, 0.0, 1.0, "steady" if level_course else "undecided"
        )
    m = len(course.z)
    clean, v = hampel(course.z), 2.0 * course.u - 1.0
    q, r = np.linalg.qr(np.stack((np.ones(m), v, v * v), axis=1))
    parts = q.T @ clean
    columns, curve = (course.columns, course.fit) if course.columns > 2 else (3, q @ parts)
    residuals = clean - curve
    noise = math.sqrt(float(residuals @ residuals) / max(1, m - columns))
    noisy = abs(float(curve[-1] - curve[0])) < _NOISELESS * noise
    fitted = columns + (_CHOICE if m >= _SHORT else _CHOICE_SHORT)
    inflation = autocorrelation_time(residuals, fitted=fitted) if noisy else 1.0
    n_eff = m / inflation
    freedom = max(1.0, n_eff - 3.0)
    bend_scale = float(r[2, 2])
    if n_eff < FEWEST or abs(bend_scale) < _COLLINEAR * math.sqrt(m):
        return Acceleration(n, n_eff, 0.0, 0.0, -math.inf, math.inf, course.scale * course.sd, 0.0, 1.0, "undecided")
    error = math.sqrt(inflation) * max(noise, 1e-9 * abs(float(parts[1])))
    p_value = max(
        min(1.0, 2.0 * student_tail(abs(float(part)) / error, freedom)) if error > 0.0 else 1.0 for part in parts[1:]
    )
    direction = math.copysign(1.0, float(parts[1] / r[1, 1]))
    gain, half = 2.0 * direction * float(parts[2]) / bend_scale, 2.0 * error / abs(bend_scale)
    half *= student_quantile(_STEADY_LEVEL, freedom)

    middle = float(np.interp(0.5, course.u, curve))
    early, late = middle - float(curve[0]), float(curve[-1]) - middle
    faster = direction * (late - early)
    margin = max(course.sd, _STEADY_SHARE * abs(early + late))
    verdict: Literal["speeding_up", "slowing_down", "steady", "undecided"] = "undecided"
    if p_value < level and abs(faster) >= margin and faster * gain > 0.0:
        verdict = "speeding_up" if faster > 0.0 else "slowing_down"
    elif -margin <= gain - half and gain + half <= margin:
        verdict = "steady"
    unit = course.scale
    return Acceleration(
        n=n,
        n_eff=n_eff,
        early=unit * early,
        late=unit * late,
        gain_low=unit * (gain - half),
        gain_high=unit * (gain + half),
        sd=unit * course.sd,
        snr=0.0 if faster == 0.0 else abs(faster) / course.sd if course.sd > 0.0 else math.inf,
        p_value=p_value,
        verdict=verdict,
    )


def plateau(steps: ArrayLike, values: ArrayLike, margin: float, level: float = 0.05) -> Plateau:
    """Equivalence test: did the metric stay level, its change over the window inside +-``margin`` with confidence?

    Two one-sided tests at ``level`` (Schuirmann 1987): the interval of the least-squares change at confidence 1 - 2
    ``level`` must lie inside the margin. It is widened by the autocorrelation time of the residuals around the curve
    that ``trend`` chooses, as around the line any bend would pass for autocorrelation; where a curve leaves fewer than
    8 effective points, around a curve with the steps of ``steps_found``. What bends or steps must also stay inside: a
    wave or a bump whose ends agree is not flat once the curve spans more than the margin (ours).
    Where even that leaves fewer than 8 points, a curve of up to 56 columns may show that it moved, but not that it
    stayed. A short passing excursion can still count as noise: ask ``excursions``.

    Measured with a straight true change of just the margin, 60 to 1000 points and lag-one correlation 0, 0.5, 0.9:
    called flat in at most 5 %, level noise as often as by the line alone, a hump of twice the margin in at most 1 %.
    Not being flat is no proof of a trend. Spikes of single points are removed; above 2000 points bins are used as in
    ``trend``.
    """
    margin = float(margin)  # of numpy, it would make ``flat`` a numpy bool, which is never True itself
    x, y = tidy(steps, values)
    z, _, scale = standardise(y)
    n = len(z)
    if n >= FEWEST and scale == 0.0:
        return Plateau(margin >= 0.0, 0.0, 0.0, 0.0, 0.0, float(n), 0.0, 0.0)
    course = _course(x, y)
    if course is None:
        ends = float(y[-1] * 0.5 - y[0] * 0.5) * 2.0 if n else 0.0
        return _unlevelled(float(n), ends)
    u, clean, power, slope = _line(course.u, course.z)
    window = float(x[-1] - x[0])
    around = _around(clean, clean.mean() + slope * u if course.columns == 2 else course.fit, course.columns)
    if around.n_eff < FEWEST:
        around = _around_steps(x, y, clean, course.u) or around
    n_eff = min(float(n), around.n_eff)
    if n < FEWEST:
        return _unlevelled(n_eff, scale * slope)
    settled = n_eff >= FEWEST
    if not settled:
        around = _around_bends(clean)
    critical = student_quantile(level, max(1.0, around.n_eff - 2.0))
    half = critical * around.error / math.sqrt(power)
    low, high = scale * (slope - half), scale * (slope + half)
    departure = scale * float(np.ptp(around.curve))
    if not settled:
        # Two points of a curve of k columns differ by some sqrt(2 k / m) of an error.
        error = critical * scale * around.error * math.sqrt(2.0 * around.columns / len(u))
        if departure <= margin + _PLAINLY * error and abs(scale * slope) <= margin + _PLAINLY * scale * half:
            return _unlevelled(n_eff, scale * slope)
    flat = -margin <= low and high <= margin and (around.columns == 2 or departure <= margin)
    return Plateau(flat, low / window, high / window, low, high, around.n_eff, scale * slope, departure)


def net_change(steps: ArrayLike, values: ArrayLike) -> float:
    """The ``change`` that ``plateau`` tells of a series, without the test; the same number at a small part of its cost.

    0 for fewer than three points and for a constant series.
    """
    laid = _laid(*tidy(steps, values))
    return 0.0 if laid is None else laid.scale * _line(laid.u, laid.z)[3]


def _line(positions: Floats, values: Floats) -> tuple[Floats, Floats, float, float]:
    """(positions around their mean, values without spikes, power, slope) of the least-squares line."""
    u, clean = positions - positions.mean(), hampel(values)
    power = float(u @ u)
    return u, clean, power, float(u @ clean) / power


def _unlevelled(n_eff: float, change: float) -> Plateau:
    return Plateau(None, -math.inf, math.inf, -math.inf, math.inf, n_eff, change, abs(change))


class _Around(NamedTuple):
    """A curve of ``columns`` with the noise around it."""

    curve: Floats
    columns: int
    error: float
    """Deviation of the residuals, stretched by their autocorrelation time."""
    n_eff: float


def _around(z: Floats, curve: Floats, columns: int) -> _Around:
    residuals = z - curve
    noise = math.sqrt(float(residuals @ residuals) / max(1, len(z) - columns))
    # A chosen curve takes some of slow noise with it; the choice costs a column as in ``acceleration``.
    fitted = columns + (_CHOICE if len(z) >= _SHORT else _CHOICE_SHORT) if columns > 2 else columns
    noisy = float(np.ptp(curve)) < _NOISELESS * noise
    inflation = autocorrelation_time(residuals, fitted=fitted) if noisy else 1.0
    return _Around(curve, columns, noise * math.sqrt(inflation), len(z) / inflation)


def _around_steps(x: Floats, y: Floats, z: Floats, u: Floats) -> _Around | None:
    """A parabola with the steps of the series, None without any."""
    found = steps_found(x, y, hidden=False)
    if not found:
        return None
    at = [(shift.step - x[0]) / float(x[-1] - x[0]) for shift in found]
    design = np.column_stack((np.ones(len(u)), u, u * u, *((u >= place).astype(np.float64) for place in at)))
    curve = design @ np.linalg.lstsq(design, z, rcond=None)[0]
    return _around(z, np.asarray(curve), design.shape[1])


def _around_bends(z: Floats) -> _Around:
    """A curve as rich as the data ask for. It takes slow noise with it too: good enough to show that something moved,
    never that it stayed."""
    n = len(z)
    k = min((k for k in _BENDS if k <= max(4, n // 4)), key=lambda k: _bic(z, k))
    return _around(z, z - basis(n, k).residual(z), k)


def _pairwise_slope(u: Floats, z: Floats) -> float:
    """Theil-Sen slope: median over pairs of points, at up to ``_LAGS`` evenly spread distances."""
    n = len(z)
    if n > _PAIRS_KEPT:
        return median_of(np.concatenate([(z[d:] - z[:-d]) / (u[d:] - u[:-d]) for d in _lags(n)]))
    first, second = _pairs(n)
    return median_of((z[second] - z[first]) / (u[second] - u[first]))


def _lags(n: int) -> list[int]:
    most = _LAGS if n <= 1000 else _LAGS // 2
    lags: list[int] = np.linspace(1, n - 1, min(n - 1, most)).round().astype(int).tolist()
    return lags  # strictly increasing


@lru_cache(maxsize=4)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The earlier and the later point of every pair, for all series of one length."""
    first = [np.arange(n - lag) for lag in _lags(n)]
    second = [one + lag for one, lag in zip(first, _lags(n), strict=True)]
    return np.concatenate(first), np.concatenate(second)


def _fitted_curve(u: Floats, z: Floats, slope: float) -> tuple[Floats, int]:
    """(fit, columns): the robust line, or the spline that BIC prefers to it when noise may be AR(1)."""
    n = len(z)
    clean = hampel(z)
    best, chosen = math.inf, 2
    for k in _COLUMNS if n >= _CURVED_FROM else ():
        if k > max(2, n // 12):
            break
        bic = _bic(clean, k)
        if bic < best:
            best, chosen = bic, k
    if chosen > 2:
        return clean - basis(n, chosen).residual(clean), chosen
    line = slope * u
    return np.asarray(line + median_of(z - line)), 2


def _bic(z: Floats, k: int) -> float:
    """Of a spline of ``k`` columns, at the AR(1) noise that suits it best."""
    n = len(z)
    rss = basis(n, k).whitened_rss(basis(n, k).residual(z), _PHIS)
    # The floor keeps rounding errors of a noise-free series from choosing the curve.
    return float((n * np.log(np.maximum(rss / n, 1e-20)) - np.log(1.0 - _PHIS**2)).min()) + 1.5 * k * math.log(n)


def _rank_sum(z: Floats) -> tuple[float, float, float]:
    """(S, pairs, variance) of Mann-Kendall: concordant minus discordant pairs, ties counting 0, and the variance of S
    under exchangeability with ties. O(n log n): inversions are counted bit by bit of the ranks."""
    n = len(z)
    _, ranks, counts = np.unique(z, return_inverse=True, return_counts=True)
    ranks = ranks.ravel()
    if n <= 0xFFFF:
        ranks = ranks.astype(np.uint16)  # whose stable sort is by digits, in O(n)
    inversions = 0
    for bit in range(int(ranks.max()).bit_length()):
        # Among points that agree in all higher bits, a pair is inverted here when a 1 stands before a 0.
        key = ranks >> bit
        key = key[np.argsort(key >> 1, kind="stable")]
        one = key & 1
        before = np.cumsum(one) - one
        opens = np.append(True, (key[1:] >> 1) != (key[:-1] >> 1))
        before -= np.maximum.accumulate(np.where(opens, before, 0))
        inversions += int(before[one == 0].sum())
    pairs = n * (n - 1) / 2.0
    t = counts.astype(np.float64)
    ties = float((t * (t - 1.0)).sum()) / 2.0
    variance = (n * (n - 1.0) * (2.0 * n + 5.0) - float((t * (t - 1.0) * (2.0 * t + 5.0)).sum())) / 18.0
    return pairs - ties - 2.0 * inversions, pairs, variance
