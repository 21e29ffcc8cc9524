"""How many groups of rollouts carry no signal because all their rewards are equal, by the best evidence there is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rlclinic.model import Floats
from rlclinic.stats.evidence import mean_interval, student_quantile
from rlclinic.stats.level import LATE, lower_bound

_EQUAL = 1e-8
"""Rewards of a group count as equal up to this share of the largest of all (ours: sums of reward parts differ in the
last digits; TRL compares the deviation with 0 at the same tolerance)."""

_ENOUGH = 15.0
"""Effective steps from which the current share gets an interval (statistics study, section 7)."""

_MISFIT = 0.01
"""Error of a fitted share or mean that no number of groups removes, because difficulty is only nearly a beta
distribution (statistics study, section 7: low by .01 to .024 on a three-part mixture)."""

_CHI2 = 3.841458820694124
"""95 % point of chi-squared with one degree of freedom: worst misfit that is believed, and how far from the best other
answers count as likely."""

_WIDEST = 0.2
"""Span of likely pass rates from which none is named (ours: it does not tell a hard task from a medium one)."""


_ROUNDING = 1e-6
"""By how much a share may lie outside [0, 1], where it is then cut (ours: means in single precision do)."""


class Dead(NamedTuple):
    """Groups of rollouts counted one by one; groups of a single rollout are left out."""

    groups: int
    all_low: int
    all_high: int
    """Groups whose rewards are all the lowest, all the highest there is."""
    middle: int
    """Groups whose rewards are all equal to something else, or to nothing that can be placed."""

    @property
    def share(self) -> float:
        """Share of the groups that carry no signal, exact for the groups seen; NaN without any group."""
        return (self.all_low + self.all_high + self.middle) / self.groups if self.groups else math.nan


class Share(NamedTuple):
    """A share of groups without signal and what it rests on, best evidence first."""

    share: float
    by: Literal["rollouts", "logged", "estimated", "at least"]


class Current(NamedTuple):
    """The share without signal over some steps. ``by`` says what ``low`` and ``high`` are: a 95 % interval of the mean,
    or, with fewer than 15 effective steps, no more than the lowest and the highest share of the last quarter."""

    share: float
    low: float
    high: float
    n_eff: float
    by: Literal["interval", "range"]


class Unfiltered(NamedTuple):
    """The pass rate over all generated groups, before those without spread were dropped."""

    low: float
    high: float
    """All dropped groups wrong, all right: arithmetic, no assumption."""
    mean: float | None
    """Exact when it is known how many of the dropped groups were right; else what a beta-binomial makes of the kept
    groups, None when that cannot tell."""


@dataclass(frozen=True)
class BetaBinomial:
    """Pass rates that vary from prompt to prompt as a beta distribution.

    ``mean`` is the pass rate over prompts, ``rho`` the intra-class correlation: 0 when all prompts are equally hard, 1
    when each is always or never solved.
    """

    mean: float
    rho: float

    def share_at(self, group_size: int) -> float:
        """Expected share of groups of this size whose rewards are all equal."""
        if group_size <= 1:
            return 1.0
        chances = self._chances(group_size)
        return float(chances[0] + chances[-1])

    def group_std(self, group_size: int, *, ddof: int = 1) -> float:
        """Expected standard deviation of the rewards inside one group (``ddof`` 1: unbiased variance, 0: plain)."""
        if group_size <= max(1, ddof):
            return 0.0
        g, k = group_size, np.arange(group_size + 1)
        return float(self._chances(g) @ np.sqrt(k * (g - k) / (g * (g - ddof))))

    def _chances(self, g: int) -> Floats:
        """(g + 1,) P(k of g rollouts pass)."""
        p = min(max(self.mean, 0.0), 1.0)
        if self.rho >= 1.0 or p in (0.0, 1.0):
            return np.concatenate([[1.0 - p], np.zeros(g - 1), [p]])
        # Rising products instead of beta functions: no cancellation between large log-gammas when rho is small.
        i, spread = np.arange(g), self.rho / (1.0 - self.rho)
        passed = np.cumsum(np.log(np.append(1.0, p + i * spread)))
        failed = np.cumsum(np.log(np.append(1.0, 1.0 - p + i * spread)))
        ways = np.cumsum(np.log(np.append(1.0, (g - i) / (i + 1.0))))
        return np.asarray(np.exp(ways + passed + failed[::-1] - np.log1p(i * spread).sum()))


def two_valued(rewards: ArrayLike) -> bool:
    """Whether the finite rewards take exactly two values. Only then may a share be estimated from mean and spread; for
    graded rewards it must be counted or logged."""
    r = np.asarray(rewards, dtype=np.float64).ravel()
    return len(np.unique(r[np.isfinite(r)])) == 2


def count_dead(rewards: ArrayLike, groups: ArrayLike, *, low: float | None = None, high: float | None = None) -> Dead:
    """Count groups whose rewards are all equal.

    ``rewards`` (m,): non-finite ones are left out; ``groups`` (m,): what the rollouts of one prompt in one step have in
    common, numbers or texts. ``low`` and ``high`` are the ends of the reward, by default the extremes seen; when all
    rewards seen are the same, no end is known and such groups count as ``middle``.
    """
    r = np.asarray(rewards, dtype=np.float64).ravel()
    g = np.asarray(groups).ravel()
    if len(r) != len(g):
        raise ValueError(f"{len(r)} rewards but {len(g)} groups")
    seen = np.isfinite(r)
    r, g = r[seen], g[seen]
    if not len(r):
        return Dead(0, 0, 0, 0)
    _, at = np.unique(g, return_inverse=True)
    order = np.argsort(at.ravel(), kind="stable")
    r, sizes = r[order], np.bincount(at.ravel())
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    least, most = np.minimum.reduceat(r, starts), np.maximum.reduceat(r, starts)
    tolerance = _EQUAL * float(np.abs(r).max())
    real = sizes > 1
    with np.errstate(over="ignore"):
        if low is None and high is None and r.max() - r.min() > tolerance:
            low, high = float(r.min()), float(r.max())
        dead = real & (most - least <= tolerance)
        lowest = int((dead & (most <= low + tolerance)).sum()) if low is not None else 0
        highest = int((dead & (least >= high - tolerance)).sum()) if high is not None else 0
    return Dead(int(real.sum()), lowest, highest, int(dead.sum()) - lowest - highest)


def zero_variance(
    *,
    counted: Dead | None = None,
    logged: float | None = None,
    mean: float | None = None,
    group_std: float | None = None,
    group_size: int | None = None,
    binary: bool = False,
    ddof: int = 1,
) -> Share | None:
    """The share without signal by the best evidence given (statistics study, section 7); None when there is none.

    1. ``counted`` from rollouts. 2. ``logged``, to be given only when its meaning is certain: a share of GROUPS of the
    batch as it was GENERATED. For ``binary`` rewards, with ``mean`` scaled to a pass rate and ``group_std`` likewise:
    3. the beta-binomial estimate from the mean deviation WITHIN groups. 4. the lower bound from the mean alone.

    NaN counts as not given. ValueError for a ``logged``, or a ``mean`` of binary rewards, outside [0, 1], whatever
    better evidence there is.
    """
    logged = None if logged is None else _share(logged, "logged")
    mean = None if mean is None or not binary else _share(mean, "mean")
    if counted is not None and counted.groups:
        return Share(counted.share, "rollouts")
    if logged is not None and not math.isnan(logged):
        return Share(logged, "logged")
    if mean is None or math.isnan(mean) or group_size is None or group_size < 2:
        return None
    estimate = None if group_std is None else beta_binomial_zero_variance(mean, group_std, group_size, ddof=ddof)
    if estimate is not None:
        return Share(estimate, "estimated")
    return Share(expected_zero_variance(mean, group_size), "at least")


def current_share(shares: ArrayLike, *, groups: float = math.inf) -> Current | None:
    """Mean of (n,) shares per step, oldest first, with a 95 % interval that knows that hard and easy batches come in
    runs; None without any share. ``groups`` per step, when known, keep the interval of a share that never moves honest.
    Non-finite ones are left out; ValueError for one outside [0, 1].

    Pooled groups would pass for independent ones: Wilson's interval over them covers 15 % where the difficulty of
    batches is AR(.9). It is the narrowest that can be, so the interval contains it. Measured with drifting difficulty,
    this one covers .94 (AR 0, 60 steps), .89 (AR .5, 100 steps), .91 (AR .9, 600 steps); at AR(.9) and 100 or 200
    steps only .5 and .8, because such a series earns an interval by looking more independent than it is.
    """
    y = np.asarray(shares, dtype=np.float64).ravel()
    y = _shares(y[np.isfinite(y)], "shares")
    if not len(y):
        return None
    found = mean_interval(y)
    if found.n_eff >= _ENOUGH:
        low, high = max(0.0, found.low), min(1.0, found.high)
        if math.isfinite(groups):
            trials, z = groups * len(y), student_quantile(0.025, math.inf)
            low = min(low, lower_bound(found.mean, trials, z))
            high = max(high, 1.0 - lower_bound(1.0 - found.mean, trials, z))
        return Current(found.mean, low, high, found.n_eff, "interval")
    last = y[-max(min(3, len(y)), math.ceil(LATE * len(y))) :]
    return Current(float(last.mean()), float(last.min()), float(last.max()), found.n_eff, "range")


def at_other_sizes(difficulty: BetaBinomial | ArrayLike, group_size: int) -> tuple[float, float, float]:
    """Expected share without signal at half, the same and double ``group_size``, all else equal.

    ``difficulty``: a fitted ``BetaBinomial``, or (m,) KNOWN pass rates of single prompts; rates from a few rollouts
    each are not known ones, for those see ``zero_variance_at``.
    """
    sizes = (max(1, group_size // 2), group_size, 2 * group_size)
    if isinstance(difficulty, BetaBinomial):
        half, same, double = map(difficulty.share_at, sizes)
    else:
        half, same, double = (expected_zero_variance(difficulty, size) for size in sizes)
    return half, same, double


def zero_variance_at(passes: ArrayLike, rollouts: ArrayLike, group_size: int) -> float:
    """Share of groups of ``group_size`` without signal, from ``passes`` (m,) among ``rollouts`` (m,) per prompt.

    Unbiased whatever the difficulty: the chance that ``group_size`` of the rollouts, drawn without replacement, agree,
    (C(k, G) + C(n - k, G)) / C(n, G) (the argument of pass@k, Chen et al. 2021, arXiv 2107.03374). NaN when no prompt
    has that many rollouts; beyond them only a fitted ``BetaBinomial`` can look.
    """
    k, n = np.broadcast_arrays(np.asarray(passes, dtype=np.float64), np.asarray(rollouts, dtype=np.float64))
    enough = (n >= group_size) & (k >= 0) & (k <= n)
    k, n = k[enough].ravel(), n[enough].ravel()
    if not len(n) or group_size < 1:
        return math.nan
    if group_size == 1:
        return 1.0
    i = np.arange(group_size)[:, None]
    agree = [np.prod(np.maximum(count - i, 0.0) / (n - i), axis=0) for count in (k, n - k)]
    return float(np.mean(agree[0] + agree[1]))


def expected_zero_variance(pass_rate: ArrayLike, group_size: int) -> float:
    """Share of groups whose 0/1 rewards are all equal: mean of p^G + (1 - p)^G over the given pass rates.

    ``pass_rate``: a number, or (m,) pass rates of single prompts; NaN is left out. Exact for known rates per prompt;
    given only the mean over prompts it is a LOWER bound (Jensen), often a poor one: 0.01 where the truth is 0.53 for a
    U-shaped difficulty at G = 8. NaN without any rate; ValueError for a rate outside [0, 1].
    """
    p = _shares(pass_rate, "pass_rate")
    p = p[~np.isnan(p)]
    if not len(p):
        return math.nan
    return float(np.mean(p**group_size + (1.0 - p) ** group_size)) if group_size > 1 else 1.0


def fit_beta_binomial(mean: float, group_std: float, group_size: int, *, ddof: int = 1) -> BetaBinomial | None:
    """The spread of difficulty that explains a mean within-group standard deviation of 0/1 rewards.

    None when it cannot be told: NaN, a negative deviation, a group of one, or a ``group_std`` within 2 % of (or above)
    sqrt(mean (1 - mean)), which is what the deviation over the whole batch would be, a quantity that says nothing about
    groups. A mean of 0 or 1 needs no spread. ValueError for a ``mean`` outside [0, 1].
    """
    mean = _share(mean, "mean")
    if math.isnan(mean) or not (group_std >= 0.0 and math.isfinite(group_std)) or group_size <= max(1, ddof):
        return None
    whole = math.sqrt(mean * (1.0 - mean))
    if whole == 0.0:
        return BetaBinomial(mean, 0.0) if group_std == 0.0 else None
    if group_std >= 0.98 * whole:
        return None
    low, high = 0.0, 1.0
    if group_std >= BetaBinomial(mean, 0.0).group_std(group_size, ddof=ddof):
        return BetaBinomial(mean, 0.0)
    for _ in range(50):
        middle = 0.5 * (low + high)
        if BetaBinomial(mean, middle).group_std(group_size, ddof=ddof) > group_std:
            low = middle
        else:
            high = middle
    return BetaBinomial(mean, 0.5 * (low + high))


def beta_binomial_zero_variance(mean: float, group_std: float, group_size: int, *, ddof: int = 1) -> float | None:
    """Estimated share of groups without spread, from the mean reward and the mean WITHIN-group standard deviation of
    0/1 rewards; None where ``fit_beta_binomial`` cannot tell, and then only the lower bound is known. ValueError for a
    ``mean`` outside [0, 1].

    Measured error: under 0.01 for beta-shaped difficulty; low by up to 0.03 when 60 % of the prompts are nearly
    hopeless or nearly certain, by up to 0.06 when they are exactly so.
    """
    fitted = fit_beta_binomial(mean, group_std, group_size, ddof=ddof)
    return None if fitted is None else fitted.share_at(group_size)


def dropped_share(kept: ArrayLike, generated: ArrayLike) -> float | None:
    """Share of the generated groups that a filter dropped: 1 - sum of ``kept`` / sum of ``generated``, both (n,) groups
    (or both rollouts) per step.

    For trainers that count them: slime ``rollout/dynamic_filter/drop_*``, open-instruct ``batch/filtered_prompts``,
    rllm ``groups/dropped_zero_adv``; OpenRLHF logs the kept share itself. Steps with either number missing are left
    out; None without any group or when more is kept than generated, which no filter does. Groups dropped for another
    reason (surplus, staleness) are not without signal: count them as kept.
    """
    k, g = np.broadcast_arrays(np.asarray(kept, dtype=np.float64), np.asarray(generated, dtype=np.float64))
    seen = np.isfinite(k) & np.isfinite(g)
    k, g = k[seen], g[seen]
    if not len(g) or not (np.all((k >= 0.0) & (k <= g)) and g.sum() > 0.0):
        return None
    return float(1.0 - k.sum() / g.sum())


def dropped_share_by_batches(batches: ArrayLike, *, trained: float, generated: float) -> tuple[float, float] | None:
    """(low, high) bounds of the share of generated groups that carried no signal, where a trainer generates batches of
    ``generated`` groups until ``trained`` groups with spread are there and logs how many it took, (n,) per step.

    verl's DAPO recipe logs ``train/num_gen_batches``, NeMo-RL ``dynamic_sampling_num_gen_batches``. All batches
    together held at least the trained groups, all but the last fewer than that; the surplus of the last is not logged,
    so one or two batches per step leave wide bounds. They hold for the steps together. None without any count of at
    least 1 or with sizes that are not positive.
    """
    x = np.asarray(batches, dtype=np.float64).ravel()
    x = x[np.isfinite(x) & (x >= 1.0)]
    if not len(x) or not (trained > 0.0 and generated > 0.0):
        return None
    mean = float(x.mean())
    most_kept = trained / (generated * (mean - 1.0)) if mean > 1.0 else 1.0
    return max(0.0, 1.0 - most_kept), max(0.0, 1.0 - trained / (generated * mean))


def before_filter(
    kept_mean: float,
    dropped: float,
    *,
    right: float | None = None,
    kept_std: float | None = None,
    group_size: int = 0,
    groups: float = math.inf,
    ddof: int = 1,
) -> Unfiltered | None:
    """The pass rate of 0/1 rewards before filtering, from batches that hold no group without spread.

    ``kept_mean``: pass rate of the kept groups; ``dropped``: share of the generated groups that was dropped; ``right``:
    share of the generated groups dropped for being all right, where that is counted (open-instruct, slime, prime-rl).
    ValueError for one of the three outside [0, 1]; None for NaN, for ``dropped`` 1, when nothing was kept, and for more
    dropped right than dropped. The kept mean alone is drawn to the middle: 0.36 where the truth is 0.17, for
    difficulty Beta(.25, 1.2) and groups of 8.

    Without ``right``, and with the mean WITHIN-group deviation ``kept_std`` of ``groups`` kept groups, ``mean`` is
    estimated by a beta-binomial without its two ends, least squares in units of the standard errors. It stays None when
    no beta distribution fits, and when those that fit differ by more than 0.2: always for groups of two, which all look
    alike once filtered. Kept groups show nothing of a heap of hopeless or of certain prompts, so trust the bounds
    first: measured, the estimate is within 0.03 for smooth difficulty, off by up to 0.15 beside a heap, and allowing
    for heaps in the fit gives the bounds back almost unchanged.
    """
    kept_mean, dropped = _share(kept_mean, "kept_mean"), _share(dropped, "dropped")
    right = None if right is None else _share(right, "right")
    if math.isnan(kept_mean) or not dropped < 1.0:
        return None
    low = (1.0 - dropped) * kept_mean
    if right is not None:
        return Unfiltered(low + right, low + right, low + right) if right <= dropped + 1e-9 else None
    high = low + dropped
    if kept_std is None or not kept_std >= 0.0 or group_size < 2 or not groups >= 1:
        return Unfiltered(low, high, None)
    grid = _truncated(group_size, ddof)
    misfit = (grid.mean - kept_mean) ** 2 / (grid.mean_var / groups + _MISFIT**2)
    misfit = misfit + (grid.std - kept_std) ** 2 / (grid.std_var / groups + _MISFIT**2)
    error = grid.dead * (1.0 - grid.dead) * (1.0 - dropped) / groups
    misfit = misfit + (grid.dead - dropped) ** 2 / (error + _MISFIT**2)
    best = float(misfit.min())
    likely = grid.rates[(misfit <= best + _CHI2).any(axis=1)]
    if best > _CHI2 or likely[-1] - likely[0] > _WIDEST:
        return Unfiltered(low, high, None)
    mean = float(grid.rates[misfit.argmin() // misfit.shape[1]])
    return Unfiltered(low, high, min(max(mean, low), high))


def _shares(values: ArrayLike, name: str) -> Floats:
    """(n,) the shares or rates, NaN left in place. ValueError outside [0, 1]."""
    given = np.asarray(values, dtype=np.float64).ravel()
    outside = given[(given < -_ROUNDING) | (given > 1.0 + _ROUNDING)]
    if len(outside):
        hint = "; percent?" if 1.0 < outside[0] <= 100.0 else ""
        raise ValueError(f"{name}: a share in [0, 1], got {outside[0]:g}{hint}")
    return np.clip(given, 0.0, 1.0)


def _share(value: float, name: str) -> float:
    return float(_shares(value, name)[0])


class _Truncated(NamedTuple):
    """What kept groups look like, over a grid of pass rates (P,) and intra-class correlations (R,): all (P, R)."""

    rates: Floats
    rhos: Floats
    mean: Floats
    mean_var: Floats
    std: Floats
    std_var: Floats
    dead: Floats


@lru_cache(maxsize=4)
def _truncated(g: int, ddof: int) -> _Truncated:
    """Moments of the kept groups of size ``g`` at every grid point, with the variances of single groups."""
    rates = 1.0 / (1.0 + np.exp(-np.linspace(-6.0, 6.0, 241)))
    rhos = np.concatenate([[1e-6], 1.0 / (1.0 + np.exp(-np.linspace(-5.0, 5.0, 81)))])
    p, spread = rates[:, None], (rhos / (1.0 - rhos))[None, :]
    log = np.zeros((len(rates), len(rhos)))  # of P(k of g pass), from k = 0 on
    for i in range(g):
        log += np.log(1.0 - p + i * spread) - np.log1p(i * spread)
    total, first, second, std, dead = np.zeros((5, *log.shape))
    for k in range(g + 1):
        chance = np.exp(log)
        if 0 < k < g:
            share = k / g
            total += chance
            first += share * chance
            second += share * share * chance
            std += math.sqrt(k * (g - k) / (g * (g - ddof))) * chance
        else:
            dead += chance
        if k < g:
            log += math.log((g - k) / (k + 1)) + np.log(p + k * spread) - np.log(1.0 - p + (g - 1 - k) * spread)
    first, second, std = first / total, second / total, std / total
    # The mean of the squared deviation is k (g - k) / (g (g - ddof)) = g / (g - ddof) (share - share^2).
    square = g / (g - ddof) * (first - second)
    return _Truncated(
        rates, rhos, first, np.maximum(second - first**2, 0.0), std, np.maximum(square - std**2, 0.0), dead
    )
