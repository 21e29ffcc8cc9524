"""Robust levels of a series: where it began, where it is now, and the best that it held for a while."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlclinic.model import Floats
from rlclinic.stats.curve import median_of
from rlclinic.stats.evidence import effective_size, spread, student_tail

_QUIET = np.errstate(over="ignore", invalid="ignore")
"""Values of 1e308 overflow in sums; infinite means compare as they should."""
EARLY, LATE = 0.15, 0.25
"""Shares of a run called early and late (architecture, section 7)."""


def middle(values: Floats) -> float:
    """Median of (n,) values, NaN when there are none; halved first, so that two values of 1e308 have one too."""
    return 2.0 * median_of(values * 0.5) if len(values) else float("nan")


def early(values: Floats, share: float = EARLY, least: int = 3) -> float:
    """Median of the first ``share`` of (n,) values, of at least ``least`` of them; NaN when there are none."""
    return middle(values[: _count(values, share, least)])


def late(values: Floats, share: float = LATE, least: int = 3) -> float:
    """Median of the last ``share`` of (n,) values, of at least ``least`` of them; NaN when there are none."""
    return middle(values[-_count(values, share, least) :]) if len(values) else float("nan")


@_QUIET
def late_mean(values: Floats, share: float = LATE, least: int = 3) -> float:
    """Mean of the last ``share``: right for shares and for saw-tooth series, whose median lies on one tooth."""
    return float(np.mean(values[-_count(values, share, least) :])) if len(values) else float("nan")


@_QUIET
def held(values: Floats, share: float = EARLY, least: int = 5) -> tuple[Floats, int]:
    """Running means over ``share`` of the run (n - w + 1,) and the window length w used."""
    width = min(len(values), _count(values, share, least))
    if width < 1:
        return np.empty(0), 0
    total = np.concatenate([[0.0], np.cumsum(values)])
    means: Floats = (total[width:] - total[:-width]) / width
    return means, width


class Difference(NamedTuple):
    """Two windows compared: two-sided p-value of their means, noise inside them, and what both are worth together."""

    p_value: float
    sd: float
    n_eff: float


@_QUIET
def mean_difference(first: Floats, second: Floats) -> Difference:
    """Welch's t of two windows (n,), (m,) with their effective sizes around their own lines; p is 1 with fewer than two
    points in either."""
    if len(first) < 2 or len(second) < 2:
        return Difference(1.0, 0.0, float(len(first) + len(second)))
    parts = [(w, _around_line(w)) for w in (first, second)]
    sizes = [max(1.0, effective_size(r, fitted=2)) if len(w) >= 8 else float(len(w)) for w, r in parts]
    noise = [max(spread(r), float(np.std(r, ddof=min(2, len(r) - 1)))) for _, r in parts]
    error = sum(s * s / n for s, n in zip(noise, sizes, strict=True))
    sd = float(np.sqrt(np.mean(np.square(noise))))
    difference = float(second.mean() - first.mean())
    if error <= 0.0:
        return Difference(0.0 if difference else 1.0, sd, sum(sizes))
    freedom = error * error / sum((s * s / n) ** 2 / max(n - 1, 1.0) for s, n in zip(noise, sizes, strict=True))
    p_value = min(1.0, 2.0 * student_tail(abs(difference) / float(np.sqrt(error)), max(1.0, freedom)))
    return Difference(p_value, sd, sum(sizes))


@_QUIET
def rank_p(values: Floats) -> float:
    """Two-sided p-value of Kendall's rank test that (n,) independent values neither rise nor fall (normal, n < 30)."""
    n = len(values)
    if n < 4:
        return 1.0
    s = float(np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)].sum())
    deviate = max(abs(s) - 1.0, 0.0) / float(np.sqrt(n * (n - 1) * (2 * n + 5) / 18.0))
    return min(1.0, 2.0 * student_tail(deviate, float("inf")))


def _around_line(window: Floats) -> Floats:
    """Residuals around the window's own line; around its mean below eight points, where a line would fit anything."""
    centred: Floats = window - window.mean()
    if len(window) < 8:
        return centred
    x: Floats = np.linspace(-1.0, 1.0, len(window))
    return centred - x * float(x @ window / (x @ x))


def lower_bound(share: float, trials: float, z: float = 1.645) -> float:
    """Wilson lower bound of a share seen in ``trials`` independent answers (Wilson 1927); 0 for no trials."""
    if trials <= 0:
        return 0.0
    centre = share + z * z / (2 * trials)
    half = z * np.sqrt(max(share * (1 - share), 0.0) / trials + z * z / (4 * trials * trials))
    return float(max(0.0, (centre - half) / (1 + z * z / trials)))


def answers_behind(scores: ArrayLike) -> int | None:
    """How many answers each score in [0, 1] is the mean of, by the lattice on which all scores lie; None if none shows.

    The smallest number of which every score is a multiple to within the printed digits, provided that so good a fit
    happens by chance, over all numbers tried, in less than 1 % (ours). Scores printed with three digits lie on a
    lattice of 1000 anyway, and then say nothing. A true multiple of the number found is possible but unlikely; the
    smaller number errs on the side of more noise. With several answers per question it counts answers, whose noise the
    binomial overstates (questions are the same every time).
    """
    values = np.unique(np.asarray(scores, dtype=np.float64).ravel())
    values = values[np.isfinite(values)]
    inside = values[(values > 0.0) & (values < 1.0)][:200]
    if not len(inside) or values[0] < 0.0 or values[-1] > 1.0:
        return None
    digits = next((d for d in range(1, 7) if np.abs(inside - np.round(inside, d)).max() < 1e-7), 7)
    tried = np.arange(2, min(20_000, 10**digits) + 1)
    blur = (0.5 * 10.0**-digits + 1e-7) * tried  # half of the last digit, and the rounding of 32-bit floats
    telling = np.log(2.0 * blur) * len(inside) + np.log(tried) < math.log(0.01)
    found = _multiples(inside, tried[telling], blur[telling])
    return int(found[0]) if len(found) else None


def _multiples(values: Floats, tried: NDArray[np.int64], near: Floats) -> NDArray[np.int64]:
    """Those of the numbers ``tried`` that make every value a whole number to within ``near``. The first values rule out
    nearly all, so that the rest have little to look at."""
    for part in (values[:1], values[1:4], values[4:16], values[16:]):
        product = part[None, :] * tried[:, None]
        fits = (np.abs(product - np.round(product)) <= near[:, None]).all(axis=1)
        tried, near = tried[fits], near[fits]
    return tried


def trials_per_row(values: Floats, most: int = 1024) -> int:
    """A guess at the number of answers per row from the lattice of logged shares (0.125 steps: 8); 8 without any.

    Unlike ``answers_behind`` it takes what a single share allows: the guess only widens or narrows an interval.

    The smallest n of which every share is a multiple, to 0.01 of a step. Averages over processes or logging windows lie
    on no visible lattice; 8, a small batch, is then the cautious guess (ours). One value alone fits some n by chance,
    so fewer than four are tried up to 128 only.
    """
    inside = values[(values > 0) & (values < 1)][:200]
    if not len(inside):
        return 8
    tried = np.arange(2, (most if len(inside) >= 4 else 128) + 1)
    fits = _multiples(inside, tried, np.full(len(tried), np.nextafter(0.01, 0.0)))
    return max(8, int(fits[0])) if len(fits) else 8


def _count(values: Floats, share: float, least: int) -> int:
    return max(min(least, len(values)), int(np.ceil(share * len(values))))
