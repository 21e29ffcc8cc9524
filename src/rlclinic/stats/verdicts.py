"""How far two judges of the same things agree, and whether one refuses more and more of what the other accepts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlclinic.stats.evidence import student_tail

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
DRAWS = 400
"""Bootstrap samples behind an interval (ours: its ends are known to a tenth of its width)."""


class Kappa(NamedTuple):
    """Share of agreement, and Cohen's kappa with its 95 % interval."""

    agreement: float
    kappa: float
    low: float
    high: float


def kappa(first: Flags, second: Flags, weight: Floats) -> Kappa:
    """Cohen's kappa (1960) of two verdicts (n,), each counted ``weight`` times; NaN where either judge has one verdict only.

    The interval is the percentile bootstrap over things, seeded.
    """
    share, value = _kappa(first, second, weight[None, :])
    n = len(first)
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), size=DRAWS) * weight
    values = _kappa(first, second, drawn)[1]
    values = values[np.isfinite(values)]
    low, high = np.quantile(values, [0.025, 0.975]) if len(values) else (math.nan, math.nan)
    return Kappa(float(share[0]), float(value[0]), float(low), float(high))


def _kappa(first: Flags, second: Flags, weight: Floats) -> tuple[Floats, Floats]:
    """(draws,) agreement and kappa for each row of weights (draws, n)."""
    total = np.maximum(weight.sum(axis=1), 1e-300)
    same = weight @ (first == second).astype(float) / total
    a, b = weight @ first.astype(float) / total, weight @ second.astype(float) / total
    chance = a * b + (1 - a) * (1 - b)
    with np.errstate(divide="ignore", invalid="ignore"):
        return same, np.where(chance < 1 - 1e-12, (same - chance) / (1 - chance), np.nan)


def rising(hits: Floats, of: Floats) -> float:
    """One-sided p-value that the share ``hits / of`` (k,) rises over equally spaced windows: Cochran-Armitage (1955).

    Windows without a trial are left out; 1.0 where nothing can be told.
    """
    at = np.arange(len(of), dtype=np.float64)
    hits, at, of = hits[of > 0], at[of > 0], of[of > 0]
    n, share = float(of.sum()), float(hits.sum() / of.sum()) if of.sum() else 0.0
    if len(of) < 2 or not 0 < share < 1:
        return 1.0
    middle = float(at @ of) / n
    variance = share * (1 - share) * float(of @ (at - middle) ** 2)
    return student_tail(float((hits - share * of) @ at) / math.sqrt(variance), math.inf) if variance > 0 else 1.0


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's rank correlation, ties at their mean rank; NaN where either does not vary."""
    a, b = (_ranks(values) for values in (first, second))
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else math.nan


def _ranks(values: Floats) -> Floats:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    ranks: Floats = (ends - (count - 1) / 2.0)[place]
    return ranks
