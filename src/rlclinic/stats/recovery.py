"""How far a series has come back from a sick level to its healthy one, and how many more points would tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rlclinic.model import Floats
from rlclinic.stats.evidence import autocorrelation_time, hampel, student_quantile, student_tail

LEVEL = 0.025
"""One-sided level of every bound here (the usual 95 % interval)."""
POWER = 0.8
"""Chance with which the number of points that ``Way.more`` asks for decides (the usual one)."""
MOST_MORE = 100_000
"""Points beyond which more points are no answer (ours: no run of language models has as many rows)."""
_SCAN = 24
_LEAST = 4


class Window(NamedTuple):
    """Mean of a stretch of one series, its squared standard error, and what it is worth in independent points."""

    mean: float
    error: float
    sd: float
    n: int
    n_eff: float


class Way(NamedTuple):
    """Where the level lies between the sick (0) and the healthy one (1), with its two one-sided bounds at ``LEVEL``."""

    share: float
    low: float
    high: float
    healthy: float
    sick: float
    now: float
    more: int | None
    """Further points that bring ``POWER`` to tell apart levels a quarter of the way from each other; 0 when there are
    enough, None when no number of them does."""


def memory(*windows: Floats) -> float:
    """Autocorrelation time in points of the noise that several stretches of one series share: each around its own line,
    in its own standard deviations, one behind the other."""
    rests = []
    for window in windows:
        if len(window) >= 2 * _LEAST:
            rest = _around_line(hampel(window))
            scale = float(np.std(rest))
            if scale > 0.0:
                rests.append(rest / scale)
    return autocorrelation_time(np.concatenate(rests), fitted=2 * len(rests)) if rests else 1.0


def shrinkage(n: int, time: float) -> float:
    """Variance of the mean of n points over that of one, for AR(1) noise of autocorrelation time ``time``, exactly:
    (1/n^2) (n + 2 sum_k (n - k) phi^k), phi = (time - 1) / (time + 1)."""
    phi = max(0.0, (time - 1.0) / (time + 1.0))
    if n <= 1 or phi == 0.0:
        return 1.0 / max(n, 1)
    series = phi * (n * (1.0 - phi) - 1.0 + phi**n) / (1.0 - phi) ** 2
    return min(1.0, (n + 2.0 * series) / n**2)


def window(values: Floats, time: float, least_sd: float = 0.0, *, drifting: bool = False) -> Window:
    """The mean of (n,) finite ``values`` with noise of autocorrelation time ``time``.

    The spread around a window's own mean misses the slow part of the noise, 1 - ``shrinkage`` of it is left; it is made
    whole, and is at least ``least_sd``. ``drifting``: around the window's own line.
    """
    n = len(values)
    if not n:
        return Window(math.nan, math.inf, least_sd, 0, 0.0)
    part = shrinkage(n, time)
    rest = _around_line(values) if drifting and n >= 2 * _LEAST else values - values.mean()
    own = float(np.std(rest)) / math.sqrt(max(1.0 - part, 0.1)) if n > 1 else 0.0
    sd = max(own, least_sd)
    return Window(float(values.mean()), sd * sd * part, sd, n, 1.0 / part)


def way(healthy: Window, sick: Window, now: Window, time: float) -> Way | None:
    """Where ``now`` lies between ``sick`` and ``healthy``; None where these two cannot be told apart.

    Bounds as Fieller's (1954): r is below the lower bound when now - (1 - r) sick - r healthy is significantly on the
    healthy side. Degrees of freedom: those of all three windows, whose noise is taken as one.
    """
    gap = healthy.mean - sick.mean
    apart = math.sqrt(healthy.error + sick.error)
    freedom = max(1.0, healthy.n_eff + sick.n_eff + now.n_eff - 3.0)
    sign = math.copysign(1.0, gap)
    if not now.n or not math.isfinite(gap) or gap == 0.0:
        return None
    if apart > 0.0 and student_tail(abs(gap) / apart, freedom) > LEVEL:
        return None
    wide = student_quantile(LEVEL, freedom)

    def beyond(r: float) -> float:
        error = math.sqrt(now.error + (1.0 - r) ** 2 * sick.error + r * r * healthy.error)
        distance = sign * (now.mean - (1.0 - r) * sick.mean - r * healthy.mean)
        return distance / error if error > 0.0 else math.copysign(math.inf, distance) if distance else 0.0

    share = (now.mean - sick.mean) / gap
    low = _edge(lambda r: beyond(r) >= wide, share, -1.0)
    high = _edge(lambda r: beyond(r) <= -wide, share, 1.0)
    return Way(share, low, high, healthy.mean, sick.mean, now.mean, _more(healthy, sick, now, time, abs(gap), freedom))


def _edge(outside: Callable[[float], bool], share: float, side: float) -> float:
    """The nearest r on one ``side`` of ``share`` that is ``outside`` the interval; infinite without any."""
    far = 0.01
    for _ in range(_SCAN):
        if outside(share + side * far):
            break
        far *= 2.0
    else:
        return side * math.inf
    near = 0.0
    for _ in range(40):
        middle = 0.5 * (near + far)
        near, far = (near, middle) if outside(share + side * middle) else (middle, far)
    return share + side * far


def _more(healthy: Window, sick: Window, now: Window, time: float, gap: float, freedom: float) -> int | None:
    goal = (0.25 * gap / (student_quantile(LEVEL, freedom) + student_quantile(1.0 - POWER, math.inf))) ** 2
    given = 0.25 * sick.error + 0.25 * healthy.error  # half of the way, where both weigh alike
    if not given < goal:
        return None

    def enough(n: int) -> bool:
        return now.sd**2 * shrinkage(n, time) + given <= goal

    if enough(now.n):
        return 0
    low, high = now.n, now.n
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_MORE:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high - now.n


class Rates(NamedTuple):
    """The rate of an event now over the rate before, with its two one-sided bounds at ``LEVEL``."""

    ratio: float
    low: float
    high: float


def rates(before: int, rows: int, now: int, rows_now: int) -> Rates:
    """Counts of an event in ``rows`` and ``rows_now`` points compared, exactly: given their sum, the count now is binomial
    with odds rows_now/rows times the ratio (Przyborowski and Wilenski 1940). Nothing can be told without any event."""
    total = before + now
    if not total or not rows or not rows_now:
        return Rates(math.nan, 0.0, math.inf)
    exposure = rows_now / rows

    def tail(ratio: float, *, upper: bool) -> float:
        p = exposure * ratio / (1.0 + exposure * ratio)
        counts = range(now, total + 1) if upper else range(now + 1)
        return math.fsum(math.comb(total, k) * p**k * (1.0 - p) ** (total - k) for k in counts)

    low = 0.0 if now == 0 else _solved(lambda r: tail(r, upper=True) >= LEVEL)
    high = math.inf if before == 0 else _solved(lambda r: tail(r, upper=False) <= LEVEL)
    return Rates(math.inf if before == 0 else now / before / exposure, low, high)


def rows_without(rate: float, ratio: float = 0.5) -> int | None:
    """Points without an event after which ``ratio`` times a ``rate`` per point can be ruled out at ``LEVEL``."""
    return math.ceil(math.log(LEVEL) / math.log1p(-min(rate * ratio, 0.999))) if rate > 0.0 else None


def _solved(reached: Callable[[float], bool]) -> float:
    low, high = 1e-6, 1e6
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return math.sqrt(low * high)


class Course(NamedTuple):
    """Slope of a line per step and its standard error for noise of a given autocorrelation time."""

    slope: float
    error: float


def course(steps: Floats, values: Floats, time: float) -> Course:
    """Least-squares slope of (n,) finite ``values``; the error of independent points times sqrt(``time``), which is that
    of AR(1) noise in long windows. NaN below eight points."""
    if len(values) < 2 * _LEAST:
        return Course(math.nan, math.inf)
    x = steps - steps.mean()
    slope = float(x @ values) / float(x @ x)
    rest = values - values.mean() - slope * x
    sd = math.sqrt(float(rest @ rest) / (len(values) - 2.0))
    return Course(slope, sd * math.sqrt(time / float(x @ x)))


def _around_line(values: Floats) -> Floats:
    x = np.linspace(-1.0, 1.0, len(values))
    centred = values - values.mean()
    return np.asarray(centred - x * float(x @ centred) / float(x @ x), dtype=np.float64)
