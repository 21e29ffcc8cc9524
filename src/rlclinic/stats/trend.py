"""Does a metric drift, how far, and on how much independent evidence: a rank test that survives autocorrelated
noise."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rlclinic.model import Floats
from rlclinic.stats.curve import MOST, basis, bin_edges, bin_means, standardise, tidy
from rlclinic.stats.evidence import FEWEST, autocorrelation_time, hampel, spread, student_quantile, student_tail
from rlclinic.stats.once import once

_COLUMNS = (2, 3, 4, 6, 9)
_PHIS = np.array([0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.87, 0.92, 0.95, 0.97, 0.985, 0.995])
_CURVED_FROM = 36
"""Points below which only a straight line is fitted (statistics study, section 1)."""
_LAGS = 160
"""Distances over which pairwise slopes are taken; all of them up to 161 points, half as many beyond 1000 (ours: the
slope then differs from the one over all pairs by 0.09 of its standard error at 400 and 1000 points, 0.12 at 2000, and by
0.29 at most in 30 series)."""
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
    """Slope times the window, in the unit of the metric."""
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
    n_eff: float

    @property
    def change(self) -> float:
        """The likeliest change over the run, in the metric's unit: the middle of its interval."""
        return 0.5 * (self.change_low + self.change_high)


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

    Residuals come from a line or a spline of 3 to 9 columns, chosen by a BIC that also allows AR(1) noise: around a
    line, a curved trend would count as autocorrelation and hide itself. Measured false positives at level 0.01 and
    lag-one correlation 0, 0.5, 0.9: below 1.2 % from 60 points on, but 2 % at 0.9 and 60 points, where only a quarter
    of the series has 8 effective points.
    """
    found = _drift(steps, values)
    change, base = found.change, max(abs(found.start), floor)
    relative = change / base if base > 0.0 else math.copysign(math.inf, change) if change else 0.0
    large = abs(change) >= LEAST_SHARE if share else abs(relative) >= LEAST_RELATIVE
    directed = found.tau * math.copysign(1.0, change) > 0.0
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
    tenth = max(3, n // 10)
    start, end = float(np.median(y[:tenth] * 0.5)) * 2.0, float(np.median(y[-tenth:] * 0.5)) * 2.0
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


@once(8)
def _course(x: Floats, y: Floats) -> _Course | None:
    """The course of a tidied series; None for a constant one and for fewer than three points."""
    n = len(y)
    z, _, scale = standardise(y)
    if scale == 0.0 or n < 3:
        return None
    raw, bins = z, None
    u = (x - x[0]) / float(x[-1] - x[0])
    if n > MOST:
        bins = bin_edges(n, MOST)
        z, u = bin_means(hampel(z), bins), bin_means(u, bins)
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
    """Equivalence test: is the change over the window inside +-``margin`` with confidence?

    Two one-sided tests at ``level`` (Schuirmann 1987): the interval of the least-squares change at confidence 1 - 2
    ``level``, widened by the autocorrelation time of the residuals, must lie inside the margin. Not being flat is no
    proof of a trend. Spikes of single points are removed; above 2000 points bins are used as in ``trend``.
    """
    x, y = tidy(steps, values)
    z, _, scale = standardise(y)
    n = len(z)
    if n < FEWEST:
        return Plateau(None, -math.inf, math.inf, -math.inf, math.inf, float(n))
    if scale == 0.0:
        return Plateau(margin >= 0.0, 0.0, 0.0, 0.0, 0.0, float(n))
    window = float(x[-1] - x[0])
    u = (x - x[0]) / window
    z = hampel(z)
    if n > MOST:
        edges = bin_edges(n, MOST)
        z, u = bin_means(z, edges), bin_means(u, edges)
    u = u - u.mean()
    power = float(u @ u)
    slope = float(u @ z) / power
    residuals = z - z.mean() - slope * u
    inflation = autocorrelation_time(residuals, fitted=2)
    n_eff = len(z) / inflation
    if n_eff < FEWEST:
        return Plateau(None, -math.inf, math.inf, -math.inf, math.inf, n_eff)
    noise = float(residuals @ residuals) / (len(z) - 2)
    half = student_quantile(level, n_eff - 2.0) * math.sqrt(noise * inflation / power)
    low, high = scale * (slope - half), scale * (slope + half)
    return Plateau(-margin <= low and high <= margin, low / window, high / window, low, high, n_eff)


def _pairwise_slope(u: Floats, z: Floats) -> float:
    """Theil-Sen slope: median over pairs of points, at up to ``_LAGS`` evenly spread distances."""
    n = len(z)
    lags = (
        np.linspace(1, n - 1, min(n - 1, _LAGS if n <= 1000 else _LAGS // 2)).round().astype(int)
    )  # strictly increasing
    return float(np.median(np.concatenate([(z[d:] - z[:-d]) / (u[d:] - u[:-d]) for d in lags.tolist()])))


def _fitted_curve(u: Floats, z: Floats, slope: float) -> tuple[Floats, int]:
    """(fit, columns): the robust line, or the spline that BIC prefers to it when noise may be AR(1)."""
    n = len(z)
    clean = hampel(z)
    best, chosen = math.inf, 2
    for k in _COLUMNS if n >= _CURVED_FROM else ():
        if k > max(2, n // 12):
            break
        rss = basis(n, k).whitened_rss(basis(n, k).residual(clean), _PHIS)
        # The floor keeps rounding errors of a noise-free series from choosing the curve.
        bic = n * np.log(np.maximum(rss / n, 1e-20)) - np.log(1.0 - _PHIS**2) + 1.5 * k * math.log(n)
        if float(bic.min()) < best:
            best, chosen = float(bic.min()), k
    if chosen > 2:
        return clean - basis(n, chosen).residual(clean), chosen
    line = slope * u
    return np.asarray(line + np.median(z - line)), 2


def _rank_sum(z: Floats) -> tuple[float, float, float]:
    """(S, pairs, variance) of Mann-Kendall: concordant minus discordant pairs, ties counting 0, and the variance of S
    under exchangeability with ties. O(n log n): inversions are counted bit by bit of the ranks."""
    n = len(z)
    _, ranks, counts = np.unique(z, return_inverse=True, return_counts=True)
    ranks = ranks.ravel()
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
