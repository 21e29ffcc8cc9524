"""How much a series really proves: Student tails, robust spread, autocorrelation time, correction for many tests."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rlclinic.model import Floats, Strength
from rlclinic.stats.curve import median_of, running_median, standardise
from rlclinic.stats.once import once

MAD_TO_SD = 1.482602218505602
"""Standard deviation of a normal distribution over its median absolute deviation: 1 / quantile(0.75)."""

FEWEST = 8.0
"""Effective observations below which no verdict is given (statistics study, section 1: the gate of the trend test)."""

_BLOCKS = 40
"""Least number of block means from which a lag-one correlation is read (statistics study, section 1)."""


def student_tail(t: float, df: float) -> float:
    """P(T > t) of Student's distribution, df > 0 or infinite; relative error about 1e-11 from df 1 to 1e6.

    Incomplete beta function by its continued fraction (Abramowitz and Stegun 26.5.8, 26.7.1).
    """
    if math.isnan(t) or not df > 0:
        return math.nan
    if t < 0:
        return 1.0 - student_tail(-t, df)
    if math.isinf(t):
        return 0.0
    if math.isinf(df):
        return 0.5 * math.erfc(t / math.sqrt(2.0))
    half = df / 2.0
    odds = t / df * t
    log_x = -math.log1p(odds) if math.isfinite(odds) else math.log(df) - 2.0 * math.log(t)
    x = math.exp(log_x)
    front = half * log_x - _log_beta_half(half)
    if x < (half + 1.0) / (half + 2.5):
        rest = math.sqrt(odds / (1.0 + odds)) if math.isfinite(odds) else 1.0
        return 0.5 * math.exp(front) * rest * _beta_fraction(half, 0.5, x) / half
    y = odds / (1.0 + odds)
    return 0.5 - math.exp(front) * math.sqrt(y) * _beta_fraction(0.5, half, y)


def _log_beta_half(a: float) -> float:
    """log B(a, 1/2); for large a by the series of the gamma ratio, where the difference of two lgamma loses digits."""
    if a < 30.0:
        ratio = math.lgamma(a + 0.5) - math.lgamma(a)
    else:
        i = 1.0 / a
        ratio = 0.5 * math.log(a) - i / 8.0 + i**3 / 192.0 - i**5 / 640.0 + 17.0 * i**7 / 14336.0
    return 0.5 * math.log(math.pi) - ratio


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function, evaluated forward by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    h = d
    for m in range(1, 20000):
        for part in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + part * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + part / c
            c = c if abs(c) > tiny else tiny
            h *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return h


def student_quantile(p: float, df: float) -> float:
    """t with P(T > t) = p for 0 < p < 1; df may be infinite (the normal quantile). NaN outside."""
    if not (0.0 < p < 1.0 and df > 0):
        return math.nan
    if p > 0.5:
        return -student_quantile(1.0 - p, df)
    if p == 0.5:
        return 0.0
    goal = math.log(p)
    low, high = 0.0, 1.0
    while student_tail(high, df) > p:
        low, high = high, high * 4.0
    # Bisect the logarithm of t: tails are near straight lines on that scale, for any df.
    t = 0.5 * (low + high)
    for _ in range(200):
        tail = student_tail(t, df)
        gap = math.log(tail) - goal if tail > 0.0 else -1.0
        if gap > 0.0:
            low = t
        else:
            high = t
        newton = t + gap * tail / _student_density(t, df) if tail > 0.0 else t
        following = newton if low < newton < high else 0.5 * (low + high)
        if abs(following - t) <= 1e-14 * t:
            return following
        t = following
    return t


def _student_density(t: float, df: float) -> float:
    if math.isinf(df):
        return math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
    log_density = -0.5 * math.log(df) - _log_beta_half(df / 2.0) - (df + 1.0) / 2.0 * math.log1p(t / df * t)
    return max(math.exp(log_density), 1e-300)


def scaled_mad(values: Floats) -> float:
    """Median absolute deviation from the median, scaled to the standard deviation of a normal distribution; 0 if
    empty."""
    if not len(values):
        return 0.0
    return MAD_TO_SD * median_of(np.abs(values - median_of(values)))


def spread(values: Floats) -> float:
    """``scaled_mad``, or the plain standard deviation where more than half of the values are equal."""
    return scaled_mad(values) or (float(np.std(values)) if len(values) else 0.0)


@once(16)
def hampel(values: Floats, *, half: int = 3, limit: float = 5.0) -> Floats:
    """(n,) values with spikes of up to ``half`` points replaced by the running median of 2 half + 1 points.

    A spike is further from that median than ``limit`` scaled MAD of all such distances. A series whose typical
    distance is 0 (mostly constant) and one shorter than 15 points are returned unchanged.
    """
    if len(values) < 15:
        return values
    median = running_median(values, 2 * half + 1)
    distance = np.abs(values - median)
    scale = MAD_TO_SD * median_of(distance)
    return np.where(distance > limit * scale, median, values) if scale > 0.0 else values


def lag_one(residuals: Floats, fitted: int, *, lowest: float = -0.9, highest: float = 0.995) -> float:
    """AR(1) coefficient of centred residuals, corrected for ``fitted`` removed columns: (n phi + k)/(n - k - 2) (first
    order, Kendall 1954; Marriott and Pope 1954), cut to [lowest, highest]."""
    n = len(residuals)
    square = float(residuals[:-1] @ residuals[:-1])
    phi = float(residuals[1:] @ residuals[:-1]) / square if square > 0.0 else 0.0
    return min(max((phi * n + fitted) / max(n - fitted - 2.0, 4.0), lowest), highest)


def autocorrelation_time(residuals: Floats, *, fitted: int = 1) -> float:
    """Integrated autocorrelation time in points, 1 for white noise, at most n/3.

    ``residuals`` (n,) around a curve with ``fitted`` columns. The largest of Sokal's windowed estimate (c = 5) and
    ``b (s_b/s_1)^2 (1 + phi_b)/(1 - phi_b)`` over means of blocks of b = 1, 2, 4, .. points: the block scales see slow
    noise under white noise. Residuals are cut at 4 scaled MAD first.
    """
    n = len(residuals)
    if n < 4:
        return 1.0
    r = residuals - median_of(residuals)
    scale = scaled_mad(r)
    if scale > 0.0:
        r = np.clip(r, -4.0 * scale, 4.0 * scale)
    r = r - r.mean()
    variance = float(r @ r) / n
    if not variance > 0.0:
        return 1.0
    r = r / math.sqrt(variance)
    tau = max(1.0, _windowed_time(r))
    block = 1
    while block == 1 or n // block >= _BLOCKS:
        count = n // block
        means = r[n - count * block :].reshape(count, block).mean(axis=1)
        phi = lag_one(means, fitted)
        tau = max(tau, block * float(means @ means) / count * (1.0 + phi) / (1.0 - phi))
        block *= 2
    return min(tau, max(1.0, n / 3.0))


def _windowed_time(r: Floats) -> float:
    n = len(r)
    spectrum = np.fft.rfft(r, 1 << (2 * n - 1).bit_length())
    covariance = np.fft.irfft(np.abs(spectrum) ** 2)[:n]
    tau = 2.0 * np.cumsum(covariance / covariance[0]) - 1.0
    closed = np.arange(n) >= 5.0 * tau
    return float(tau[int(np.argmax(closed)) if closed.any() else n - 1])


def effective_size(residuals: Floats, *, fitted: int = 1) -> float:
    """How many independent observations the n residuals are worth: n over their autocorrelation time."""
    return len(residuals) / autocorrelation_time(residuals, fitted=fitted)


class Interval(NamedTuple):
    """A mean with its confidence interval and the independent observations it rests on."""

    mean: float
    low: float
    high: float
    n_eff: float


def mean_interval(
    values: Floats, *, level: float = 0.95, sides: Literal["both", "lower", "upper"] = "both"
) -> Interval:
    """Mean of (n,) values of a stationary autocorrelated series with its confidence interval at ``level``.

    Student's t with n_eff - 1 degrees of freedom; the variance is that of the values, which around their own mean is
    n_eff/(n_eff - 1) too small (statistics study, section 7). One-sided intervals are infinite on the other side, and
    all are with fewer than two effective observations. Non-finite values are left out; NaN without any.
    """
    y = np.asarray(values, dtype=np.float64)
    y = y[np.isfinite(y)]
    if not len(y):
        return Interval(math.nan, -math.inf, math.inf, 0.0)
    z, centre, scale = standardise(y)
    mean, half = centre + scale * float(z.mean()), math.inf
    n_eff = effective_size(z - z.mean())
    if n_eff >= 2.0:
        tail = 0.5 * (1.0 - level) if sides == "both" else 1.0 - level
        half = scale * student_quantile(tail, n_eff - 1.0) * float(z.std()) / math.sqrt(n_eff - 1.0)
    low, high = (-math.inf if sides == "upper" else mean - half), (math.inf if sides == "lower" else mean + half)
    return Interval(mean, low, high, n_eff)


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """(m,) q-values of m p-values (Benjamini and Hochberg 1995); a NaN stays NaN and does not count as a test."""
    values = np.asarray(p, dtype=np.float64).ravel()
    q = np.full(len(values), np.nan)
    tested = np.flatnonzero(~np.isnan(values))
    m = len(tested)
    if m:
        order = tested[np.argsort(values[tested], kind="stable")]
        scaled = values[order] * m / np.arange(1, m + 1)
        q[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q


def e_benjamini_hochberg(e: ArrayLike) -> Floats:
    """(m,) q-values of m e-values, such as M/N of a sequential detector: Benjamini and Hochberg's of 1/e, which for
    e-values holds under any dependence (Wang and Ramdas 2022, arXiv 2009.02824). A NaN stays NaN and does not count."""
    values = np.asarray(e, dtype=np.float64).ravel()
    return benjamini_hochberg(np.where(np.isnan(values), np.nan, 1.0 / np.fmax(values, 1.0)))


def strength(
    p_value: float | None,
    q_value: float | None,
    *,
    effect: bool,
    n: float,
    n_eff: float,
    estimated: bool = False,
    agreeing: bool | None = None,
) -> Strength | None:
    """How much a finding may claim (statistics study, section 6); None: too little to be printed.

    ``p_value`` None stands for a fact that the log proves (a NaN, a counted share): strong whatever else. ``q_value``:
    ``p_value`` corrected for all checks of the run, None when it was not among them. ``effect``: whether the change is
    large enough to matter; without it nothing is printed, however certain (section 1). ``n``, ``n_eff``: points and
    effective observations; below 8 of these there is no verdict. ``estimated``: the quantity itself is an estimate.
    ``agreeing``: whether a second detector or metric says the same, None when there is none that could.

    Fewer than 100 points or an estimated quantity never make more than weak: at lag-one correlation 0.9 and 60 points
    8 % of the verdicts at 1 % are false.
    """
    if p_value is None:
        return "strong"
    if not effect or not n_eff >= FEWEST or not 0.0 <= p_value <= 1.0:  # NaN is no evidence
        return None
    q = math.nan if q_value is None else q_value
    if q <= 0.05 and n >= 100 and not estimated:
        return "strong" if q <= 0.01 and n_eff >= 15.0 and agreeing is not False else "moderate"
    return "weak" if p_value <= 0.01 or q <= 0.05 else None
