"""When will a metric cross a limit, if at all: a posterior over simple curves, never a point without its interval."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlclinic.model import Floats
from rlclinic.stats.curve import basis, bin_edges, bin_means, standardise, tidy, whiten
from rlclinic.stats.evidence import FEWEST, autocorrelation_time, hampel, lag_one
from rlclinic.stats.once import once
from rlclinic.stats.trend import LEAST_SNR, trend

LEAST_POINTS = 40
"""Points below which nothing is forecast (statistics study, section 3)."""
SURE = 0.9
"""Chance above which a crossing is announced, and below 1 - SURE denied (statistics study, section 3)."""
LEVEL = 0.01
"""Significance that a trend needs before a crossing is announced or dated (statistics study, section 1)."""
WINDOWS, MOST_WINDOWS = 3.0, 100.0
"""How far ahead to look, in lengths of the observed window: unless told (statistics study, section 3), and at most."""

_MOST = 400
"""Longer series are averaged into bins of one length, at most so many (ours: the steepest curve still spans 20)."""
_TEMPER = 0.5
"""Power of the likelihood between curves, because none of them is the truth (statistics study, section 3)."""
_DRIFT = 1.0
"""The truth leaves every curve by so many innovation standard deviations times the square root of the windows gone by
(ours: with these finer curves, the 2 of the study only lengthens intervals that cover enough already)."""
_COARSE, _FEW = 0.01, 10.0
"""The curves below are about 1 % of the change apart, so a series without noise lies between two of them: that much
misfit tells no curve from another, and where it outweighs the noise, a series is worth 10 points (ours: without it,
forecasts from noise-free series missed by 10 % with an interval of 1 %; noisy ones lose nothing)."""
_SLOPE = 2.0
"""Prior standard deviation of a curve's change over the window, in changes of the best one, at least one standard
deviation of the noise (ours: whitening can make a curve nearly constant; without a prior its wild slope would weigh
most. The best of two hundred curves through noise changes by less than the noise; against so small a change the level
would have no more evidence than a motion that nothing shows)."""
_FARTHEST = 40.0
"""Growth ends after so many times the change seen in the window, as does the slowest approach to a level (ours: without
an end, a curve that fits the last few points of pure noise is at 1e15 noise deviations three windows on)."""
_SPLINE, _PENALTY, _MATERIAL = 9, 1.5, 0.02
"""No simple curve fits when a spline of 9 columns beats the best at a price of 1.5 log n per column (as the trend test
chooses its curve) and what the best one misses is more than 2 % of its change (ours: less than the curves' spacing
does not bend a forecast)."""

_SHARES = (np.arange(20) + 0.5) / 20.0
_DECAYS = np.append(-np.log1p(-_SHARES), np.geomspace(4.5, 30.0, 9))
"""Rates of the exponential approaches, per window: those of the shares, and faster ones, which have long levelled off;
these divide the last share's part among them (ours: without them 1 - exp(-7 u) was read as a slower approach to a level
3 % higher, which it "will reach")."""
_KNEES = np.linspace(0.05, 0.85, 17)
_JUMPS = np.linspace(0.02, 0.98, 49)
_ORIGINS = np.geomspace(0.03, 3.0, 5)
_WIDTHS = np.geomspace(0.05, 0.5, 9)
_RATES = np.geomspace(0.15, 20.0, 20)
_PAST, _AHEAD = np.linspace(0.0, 1.0, 40, endpoint=False), np.linspace(0.0, 1.0, 120) ** 2


class Forecast(NamedTuple):
    """When the curve under the noise crosses a limit, in trainer steps; inf is "not within the horizon"."""

    verdict: Literal["will", "will_not", "cannot_tell", "reached", "undecided"]
    """``cannot_tell``: the chance lies between 10 and 90 %, report it alone. ``reached``: the curve has passed the
    limit. ``undecided``: see ``reason``; it is None for a limit that is NaN."""
    reason: Literal["few_points", "little_information", "no_simple_curve", "no_trend", "moving_away"] | None
    """Why it is undecided, or why it will not."""
    chance: float
    """Probability of having crossed at the horizon; NaN when undecided for another reason than ``no_trend``."""
    step: float
    """Median of the crossing: inf when it is likelier not to happen, and without a trend."""
    low: float
    high: float
    """10 and 90 % point of the crossing; before the last step if it may have happened already."""
    until: float
    """The last step looked at: the last logged one plus the horizon."""
    level: float
    """Where the curve is at the last logged step."""
    n: int
    n_eff: float


class Fan(NamedTuple):
    """Where the curve under the noise is going from the last step on: 10, 50 and 90 % points, all (points,).

    The edges cross a limit between the bounds at the steps that ``forecast`` gives for it.
    """

    steps: Floats
    low: Floats
    middle: Floats
    high: Floats


def forecast(steps: ArrayLike, values: ArrayLike, limit: float, *, horizon: float | None = None) -> Forecast:
    """Whether and when a falling metric reaches a floor or a rising one an alarm, with an interval of 80 %.

    ``steps``, ``values`` (n,) without warm-up; ``limit`` in the unit of the metric; ``horizon``: how many trainer steps
    to look beyond the last one (unless told, three times the observed window; at most, 100 times), which leads to the
    step ``until`` of the answer. A chance is given from 40 points and 8 effective ones on, if a simple curve fits; a
    crossing is announced or dated only on a significant trend of at least one noise standard deviation. A limit behind
    the motion was passed if the metric began on its other side, else it is left behind. How large the trend is relative
    to the start level does not matter here: the way left to the limit does.

    Bayesian average of simple curves (``_curves``) under AR(1) noise (statistics study, section 3, without random
    draws): each contributes a normal distribution of its level at every step; their weighted sum says how likely the
    limit is crossed by then, and its running maximum is the distribution of the crossing.
    """
    belief, drift = _belief(steps, values), trend(steps, values)
    ahead = _windows(horizon, belief.window)
    found = Forecast(
        verdict="undecided",
        reason=belief.reason,
        chance=math.nan,
        step=math.inf,
        low=math.inf,
        high=math.inf,
        until=belief.step(1.0 + ahead),
        level=belief.mean(1.0),
        n=drift.n,
        n_eff=drift.n_eff,
    )
    if belief.reason is not None or math.isnan(limit):
        return found
    if found.n_eff < FEWEST:
        return found._replace(reason="little_information")

    moving = drift.p_value < LEVEL and drift.snr >= LEAST_SNR
    motion = math.copysign(1.0, drift.change)
    away = (limit - found.level) * motion < 0.0
    passed = limit == found.level or (moving and away and (limit - belief.mean(0.0)) * motion > 0.0)
    if moving and away and not passed:
        return found._replace(verdict="will_not", reason="moving_away", chance=0.0)

    when = np.concatenate((_PAST, 1.0 + ahead * _AHEAD))
    direction = motion if passed else math.copysign(1.0, limit - found.level)
    crossed = np.maximum.accumulate(belief.beyond(limit, when, direction))
    chance = min(float(crossed[-1]), 1.0)
    low, step, high = (belief.step(_first(when, crossed, share)) for share in (0.1, 0.5, 0.9))
    dated = found._replace(chance=chance, step=step, low=low, high=high)
    if passed:
        return dated._replace(verdict="reached")
    denied = chance < 1.0 - SURE
    if not moving:
        return found._replace(verdict="will_not" if denied else "undecided", reason="no_trend", chance=chance)
    return dated._replace(verdict="will_not" if denied else "will" if chance > SURE else "cannot_tell")


def fan(
    steps: ArrayLike,
    values: ArrayLike,
    *,
    horizon: float | None = None,
    points: int = 60,
    low: float = -math.inf,
    high: float = math.inf,
) -> Fan:
    """The band to draw behind a forecast, at ``points`` steps from the last one on, closer together at first.

    ``horizon`` as in ``forecast``: so many steps beyond the last one, three observed windows unless told. ``low`` and
    ``high`` bound the metric, as 0 and 1 do a share: the band stays between them. Without a trend it is a level that
    widens as curves drift. Empty where ``forecast`` gives no chance.
    """
    belief = _belief(steps, values)
    if belief.reason is not None or trend(steps, values).n_eff < FEWEST:
        return Fan(np.empty(0), np.empty(0), np.empty(0), np.empty(0))
    when = 1.0 + _windows(horizon, belief.window) * np.linspace(0.0, 1.0, points) ** 2
    band = np.fmin(np.fmax(belief.band(when, (0.1, 0.5, 0.9)), low), high)
    return Fan(belief.first + belief.window * when, *band)


class _Belief(NamedTuple):
    """The posterior: curves ``level + slope g(u)``, where u runs from 0 at the first step to 1 at the last.

    Values are standardised by ``origin`` and ``unit``. Level and slope of a member are uncorrelated at its ``centre``.
    """

    reason: Literal["few_points", "no_simple_curve"] | None
    first: float = math.nan
    window: float = 0.0
    origin: float = math.nan
    unit: float = 0.0
    members: NDArray[np.intp] = np.zeros(1, dtype=np.intp)
    """(J,) rows of ``_curves`` that have not lost all weight."""
    weight: Floats = np.ones(1)
    level: Floats = np.zeros(1)
    level_variance: Floats = np.zeros(1)
    slope: Floats = np.zeros(1)
    slope_variance: Floats = np.zeros(1)
    centre: Floats = np.zeros(1)
    drift: float = 0.0

    def step(self, u: float) -> float:
        """The trainer step at ``u``."""
        return self.first + self.window * u

    def mean(self, u: float) -> float:
        """The expected value of the metric at ``u``."""
        return self.origin + self.unit * float(self.weight @ self._paths(np.array([u]))[0][:, 0])

    def beyond(self, limit: float, when: Floats, direction: float) -> Floats:
        """(U,) chance that the curve lies beyond the limit, above it for a direction of 1, below it for -1."""
        if not self.unit > 0.0:
            return np.full(len(when), float((self.origin - limit) * direction >= 0.0))
        mean, sd = self._paths(when)
        aim = min(max((limit - self.origin) / self.unit, -1e100), 1e100)
        return np.asarray(self.weight @ _normal(direction * (mean - aim) / sd))

    def band(self, when: Floats, shares: tuple[float, ...]) -> Floats:
        """(S, U) values below which the curve lies with each share of probability, by bisection."""
        mean, sd = self._paths(when)
        wanted = np.array(shares)[:, None]
        # The quantile of a mixture lies between the least and the greatest of its members'.
        own = mean + sd * np.interp(wanted, _normal_table()[1], _normal_table()[0])[:, :, None]
        low, high = own.min(axis=1), own.max(axis=1)
        for _ in range(24):
            middle = 0.5 * (low + high)
            below = np.einsum("j,sju->su", self.weight, _normal((middle[:, None] - mean) / sd))
            low, high = np.where(below < wanted, middle, low), np.where(below < wanted, high, middle)
        with np.errstate(over="ignore"):
            return np.asarray(self.origin + self.unit * 0.5 * (low + high))

    def _paths(self, when: Floats) -> tuple[Floats, Floats]:
        """(J, U) mean and standard deviation of the curves at ``when`` (U,)."""
        away = _curves(when)[self.members] - self.centre[:, None]
        gone = np.maximum(when - 1.0, 0.0)
        variance = self.level_variance[:, None] + self.slope_variance[:, None] * away**2 + self.drift**2 * gone
        return self.level[:, None] + self.slope[:, None] * away, np.sqrt(np.maximum(variance, 1e-300))


@once(8)
def _belief(steps: ArrayLike, values: ArrayLike) -> _Belief:
    """Every curve fitted by least squares after AR(1) whitening, weighted by its tempered marginal likelihood."""
    x, y = tidy(steps, values)
    n = len(y)
    if n < LEAST_POINTS:
        window = float(x[-1] - x[0]) if n else 0.0
        return _Belief("few_points", float(x[0]) if n else math.nan, window)
    first, window = float(x[0]), float(x[-1] - x[0])
    z, origin, unit = standardise(y)
    z, u = hampel(z), (x - first) / window
    if unit == 0.0:
        return _Belief(None, first, window, origin)
    if n > _MOST:
        n //= -(-n // _MOST)
        edges = bin_edges(len(z), n)
        z, u = bin_means(z, edges), bin_means(u, edges)

    curves = _curves(u)
    slope, rss = _regress(curves, z, 1e-9)[:2]
    best = int(np.argmin(rss))
    residual = z - z.mean() - slope[best] * (curves[best] - curves[best].mean())
    change = max(abs(float(slope[best])), 1e-6)
    if float(np.std(residual)) > _MATERIAL * change and _outdone(residual, z):
        return _Belief("no_simple_curve", first, window)

    # Misfit is smooth, but counts as white: taken for slow noise, it would let the level float.
    coarse = (_COARSE * change) ** 2
    tau = autocorrelation_time(residual, fitted=4)
    phi = max(lag_one(residual, 4), (tau - 1.0) / (tau + 1.0))
    phi /= 1.0 + coarse / max(float(np.mean(residual**2)), 1e-300)
    noise = float(np.mean((residual[1:] - phi * residual[:-1]) ** 2))
    worth = max((n - 3) * noise / (noise + coarse), _FEW)
    flat = (noise + coarse) / ((_SLOPE * change) ** 2 + float(np.mean(residual**2)))
    z = z[1:] - phi * z[:-1]
    slope, rss, power, centre = _regress(curves[:, 1:] - phi * curves[:, :-1], z, flat)
    rss = rss + n * coarse
    odds = _prior() - 0.5 * _TEMPER * worth * np.log(rss / rss.min()) - 0.5 * np.log(power)
    weight = np.exp(odds - odds.max())
    members = np.flatnonzero(weight > 1e-6)
    variance = rss[members] / (n - 5)
    return _Belief(
        None,
        first,
        window,
        origin,
        unit,
        members,
        weight[members] / weight[members].sum(),
        np.full(len(members), z.mean() / (1.0 - phi)),
        variance / (n - 1) / (1.0 - phi) ** 2,
        slope[members],
        variance / power[members],
        centre[members] / (1.0 - phi),
        _DRIFT * math.sqrt(float(rss.min()) / (n - 3)),
    )


def _regress(curves: Floats, z: Floats, flat: float) -> tuple[Floats, Floats, Floats, Floats]:
    """(slope, residual sum of squares, precision of the slope, mean of the curve), each (J,), of a straight fit of
    ``z`` to each curve, with a prior of precision ``flat`` on a slope of 0; precisions count in noise variances."""
    centre = curves.mean(axis=1)
    curves, z = curves - centre[:, None], z - z.mean()
    power = np.einsum("ij,ij->i", curves, curves) + flat
    common = curves @ z
    return common / power, np.maximum(float(z @ z) - common**2 / power, 0.0), power, centre


def _outdone(residual: Floats, z: Floats) -> bool:
    """Whether a spline fits so much better than the best curve that no forecast should be built on it."""
    n = len(z)
    spline = basis(n, _SPLINE)
    rest = spline.residual(z)
    phi = lag_one(rest, _SPLINE)
    finer = float(spline.whitened_rss(rest, np.array([phi]))[0])
    plain = whiten(residual, phi)
    gain = n * math.log(max(float(plain @ plain), 1e-300) / max(finer, 1e-300))
    return gain > _PENALTY * (_SPLINE - 4) * math.log(n)


def _curves(u: Floats) -> Floats:
    """(J, U) the curves at ``u``, family by family, each 0 at u = 0 and (but for the first) 1 at u = 1.

    No motion, which is 0 throughout; a jump; a straight line; lines that begin at a knee; exponential, power and
    logistic approaches to a level; exponential growth. Those that approach a level are laid out evenly in the share of
    the whole way that the window shows: seen at a random moment, a motion is equally likely to be in any part of its
    way (Gott 1993).
    """
    late = np.maximum(u - _KNEES[:, None], 0.0) / (1.0 - _KNEES[:, None])
    jump = (u >= _JUMPS[:, None]).astype(np.float64)
    share = _SHARES[:, None]
    rate = np.log1p(-share)
    decay = np.expm1(-_DECAYS[:, None] * u) / np.expm1(-_DECAYS[:, None])
    origin = _ORIGINS[:, None, None]
    power = -np.expm1(rate * np.log1p(u / origin) / np.log1p(1.0 / origin)) / share
    middle, width = _logistic()
    rise = 1.0 / (1.0 + np.exp((middle - np.append(u, [0.0, 1.0])) / width))
    logistic = (rise[:, :-2] - rise[:, -2:-1]) / (rise[:, -1:] - rise[:, -2:-1])
    growth = np.minimum(np.expm1(np.minimum(_RATES[:, None] * u, 100.0)) / np.expm1(_RATES[:, None]), _FARTHEST)
    return np.concatenate(
        (np.zeros((1, len(u))), jump, u[None], late, decay, power.reshape(-1, len(u)), logistic, growth)
    )


@lru_cache(maxsize=1)
def _logistic() -> tuple[Floats, Floats]:
    """(L, 1) middle and width of the logistic curves that begin to turn inside the window or after it."""
    width, share = (part.ravel() for part in np.meshgrid(_WIDTHS, _SHARES, indexing="ij"))
    middle = 1.0 + width * np.log(1.0 / share - 1.0)
    inside = middle > 0.0
    return middle[inside, None], width[inside, None]


@lru_cache(maxsize=1)
def _prior() -> Floats:
    """(J,) log prior: as much for no motion as for all the others; these are equal for each family and within it, but
    twice for the logistic one, which stands both for motion that is about to slow down and for motion that has."""
    powers = len(_ORIGINS) * len(_SHARES)
    faster = len(_DECAYS) - len(_SHARES) + 1
    decays = np.repeat((1.0, 1.0 / faster), (len(_SHARES) - 1, faster)) / len(_SHARES)
    sizes = np.array([1, len(_JUMPS), 1, len(_KNEES), len(_DECAYS), powers, len(_logistic()[0]), len(_RATES)])
    prior = np.repeat(np.array([8.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0]) / sizes, sizes)
    first = int(sizes[:4].sum())
    prior[first : first + len(decays)] = decays
    return np.asarray(np.log(prior))


@lru_cache(maxsize=1)
def _normal_table() -> tuple[Floats, Floats]:
    z = np.linspace(-9.0, 9.0, 3601)
    return z, np.array([0.5 * math.erfc(-v / math.sqrt(2.0)) for v in z])


def _normal(z: Floats) -> Floats:
    """Distribution function of the standard normal distribution, to 2e-6."""
    return np.asarray(np.interp(z, *_normal_table()))


def _first(when: Floats, crossed: Floats, share: float) -> float:
    """Where the non-decreasing ``crossed`` reaches ``share``; inf if nowhere."""
    after = int(np.searchsorted(crossed, share))
    if after == len(when):
        return math.inf
    if after == 0:
        return float(when[0])
    part = (share - crossed[after - 1]) / (crossed[after] - crossed[after - 1])
    return float(when[after - 1] + part * (when[after] - when[after - 1]))


def _windows(horizon: float | None, window: float) -> float:
    """The horizon in windows."""
    if horizon is None or math.isnan(horizon) or not window > 0.0:
        return WINDOWS
    return min(max(horizon / window, 0.0), MOST_WINDOWS)
