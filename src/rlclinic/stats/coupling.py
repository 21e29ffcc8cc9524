"""Does an outcome follow a training signal, when did it stop, and which of two series moved first."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rlclinic.model import Floats, Onset
from rlclinic.stats.curve import MOST, basis, bin_edges, bin_means, standardise, tidy
from rlclinic.stats.evidence import autocorrelation_time, hampel, student_quantile, student_tail
from rlclinic.stats.once import once
from rlclinic.stats.shift import lasting_change
from rlclinic.stats.trend import trend

FEWEST_EVALUATIONS = 6
"""Evaluations below which nothing is said (statistics study, section 4)."""
LEVEL = 0.01
"""Level of every test here, and one minus the confidence of the one-sided limits of transfer (statistics study)."""
SHARE = 0.25
"""Share of the earlier, or of full, transfer below which transfer is lost, or never was (statistics study, 4c)."""

_MOST = 40
"""Most evaluations taken singly; longer series are averaged into at most this many windows."""
_LEAST_DENSE = 32.0
"""Effective values that a dense outcome needs (ours: below, runs whose slow noise went unseen rang in 3 to 5 %)."""
_DATED_STALL = 10
"""Evaluations below which a stall gets no date: with eight its interval covered 0.07 to 0.42 (statistics study)."""
_BOUND = 4.0
"""Loss of fit in noise variances that the interval of a rollback point allows (statistics study)."""
_CLEAR = 4.0
"""Standard errors of the averaged signal by which it must rise to have risen (statistics study)."""
_SMOOTH = 1.0 / 26.0
"""Half-width of the mean that stands for the signal at an evaluation, as a share of all steps (statistics study)."""
_FALL, _LOSS = 0.01, 0.02
"""Smallest fall and smallest loss by a stall, in shares or in parts of the outcome's range (statistics study)."""
_RISE, _ROOM = 0.05, 0.20
"""Least rise of the signal at full transfer and least room of the outcome for a claim of no transfer, as shares (ours:
a rise of a few points promises nothing measurable, and a held-out score of 0.8 may be at its true ceiling)."""
_LEAST_SD, _DRAWS, _TOGETHER = 1e-6, 4000, 1000
_FEWEST_JOINED, _ORDER, _APART = 40, 6, 0.05
"""Common rows that lags need, highest autoregressive order, and share of the steps that must lie between two onsets
(ours: without that a decay and a ramp that begin together were told apart in 12 % of runs, since shapes fit badly)."""

Noise = Literal["questions", "differences", "windows"]


class Fall(NamedTuple):
    """Did a series rise and then fall again, or fall from its first value on? ``p_value`` is against "never falls"."""

    m: int
    """Evaluations, or windows, used."""
    peak: float
    late: float
    """Mean of the three evaluations around the peak and of the last sixth (at least two); NaN without evaluations."""
    drop: float
    """peak - late."""
    p_value: float
    rollback: Onset | None
    """The peak, with every step that the data allow for it; None when nothing fell."""
    sd: float
    """Noise of one evaluation or window."""
    noise: Noise
    """How it was known: from the number of questions, from second differences, from inside the windows."""


class Coupling(NamedTuple):
    """How an outcome moved while a training signal moved.

    ``falling``: it fell from its best while the signal rose on. ``stalled``: it followed and stopped doing so.
    ``no_transfer``: the signal rose and the outcome is shown to have gained less than a quarter of what that promised.
    ``follows``: it moved with the signal. ``both_flat``: neither moved. ``undecided``: ``reason`` says why.
    """

    verdict: Literal["falling", "stalled", "no_transfer", "follows", "both_flat", "undecided"]
    reason: str
    """Why undecided, or what the verdict leaves open; else empty."""
    m: int
    """Evaluations, or windows, used."""
    change: float
    peak: float
    late: float
    """Late minus first level of the outcome, its best and its late level, as in ``Fall``."""
    rise: float
    """Change of the smoothed signal over the same steps, in its own unit."""
    transfer: float
    transfer_low: float
    transfer_high: float
    """Outcome gained per unit of signal over all evaluations (least squares), with one-sided 99 % limits. After a fall or
    a stall a mean of the time that followed and the time that did not. NaN when the signal stood, and without enough
    evaluations."""
    effect: float
    """Outcome lost since the peak (falling), lost against the earlier relation (stalled); else gained while the signal
    rose."""
    p_value: float
    """Of the verdict's own test: never falls; keeps a quarter of its slope; transfer of a quarter or more; none."""
    rollback: Onset | None
    """Peak, or last evaluation that still followed, with every step the data allow; None for other verdicts and for a
    stall with fewer than ten evaluations."""
    sd: float
    noise: Noise
    """Noise of one evaluation and how it was known, as in ``Fall``."""

    @property
    def advise(self) -> float | None:
        """The checkpoint to go back to: the lower end of the interval."""
        return None if self.rollback is None else self.rollback.low


_NAN = math.nan
_UNSEEN = Coupling("undecided", "", 0, _NAN, _NAN, _NAN, _NAN, _NAN, _NAN, _NAN, 0.0, 1.0, None, _NAN, "differences")


class Lead(NamedTuple):
    """Which of two series moved first. ``together`` means linked with no delay that the rows resolve."""

    verdict: Literal["a", "b", "together", "undecided"]
    by: Literal["onsets", "lags"] | None
    """From when each left its early level for good, or from how their unforeseen changes line up."""
    lag: float
    low: float
    high: float
    """Steps by which ``a`` is ahead of ``b`` (negative: behind), with the range that the data allow; NaN if unknown."""
    correlation: float
    """Of the unforeseen changes at that lag; NaN when dated by onsets."""
    p_value: float
    """Corrected for autocorrelation and for all lags tried."""
    n: int
    """Rows common to both."""


_UNLED = Lead("undecided", None, _NAN, _NAN, _NAN, _NAN, 1.0, 0)


class _Outcome(NamedTuple):
    """An outcome at the door: ``values`` (m,) standardised evaluations or window means, with their noise."""

    steps: Floats
    values: Floats
    centre: float
    scale: float
    sd: float
    noise: Noise
    df: float
    """Degrees of freedom of the noise; infinite when the number of questions gives it."""
    unit: float
    """What floors of effects are parts of: 1 for shares, else the range of the outcome; standardised."""
    share: bool
    """All values lie in [0, 1]."""
    short: str
    """Why this is too little for any verdict, else empty."""

    def onset(self, at: int, low: int, high: int) -> Onset:
        return Onset(*(float(self.steps[i]) for i in (at, low, high)))


class _Dated(NamedTuple):
    """A peak or a hinge: index of its evaluation with the interval, what was lost (standardised), and the evidence."""

    at: int
    low: int
    high: int
    lost: float
    p_value: float


def fall(steps: ArrayLike, values: ArrayLike, *, questions: int | None = None) -> Fall:
    """Order-restricted test of "never falls" against "up to a peak, then down" (statistics study, section 4).

    ``steps``, ``values`` (n,): evaluations, non-finite dropped. More than 40 are averaged into at most 40 windows, each
    at least two autocorrelation times long. ``questions``: answers behind each score in [0, 1], when known; the noise
    is then binomial, unless the scores scatter more than that around their best rise and fall (p < .001). The
    statistic is what the best non-decreasing fit leaves of the sum of squares, minus what the best up-then-down fit
    leaves, in noise variances (after Bartholomew 1959); p from 4000 simulated constant series of the same length, the
    least favourable of those that never fall. Too few evaluations: p is 1.
    """
    outcome = _outcome(steps, values, questions)
    c, s, m = outcome.centre, outcome.scale, len(outcome.values)
    if m < 3:
        return Fall(m, _NAN, _NAN, 0.0, 1.0, None, s * outcome.sd, outcome.noise)
    peak, late = _fall(outcome), _late(outcome)
    rollback = outcome.onset(*peak[:3]) if peak.lost > 0.0 else None
    top, low = c + s * (late + peak.lost), c + s * late
    return Fall(m, top, low, s * peak.lost, peak.p_value, rollback, s * outcome.sd, outcome.noise)


def coupled(
    steps: ArrayLike,
    signal: ArrayLike,
    score_steps: ArrayLike,
    score: ArrayLike,
    *,
    questions: int | None = None,
    full: float | None = None,
    ceiling: float | None = None,
) -> Coupling:
    """How an outcome follows a training signal: held-out score and reward, task score and shaped reward, and so on.

    ``steps``, ``signal`` (n,) and ``score_steps``, ``score`` (k,), non-finite dropped; the steps are those of one
    trainer. ``questions`` and averaging of a dense outcome as in ``fall``. At each evaluation the signal is the mean of
    its rows within 1/26 of all steps on either side (inside the same window for a dense outcome). ``full``: outcome
    gained per unit of signal if all of it transferred; 1 when both lie in [0, 1], else unknown, and then there is no
    verdict of no transfer. ``ceiling``: highest outcome possible; 1 for shares.

    Falling: ``fall`` at p < .01, a drop of 1.4 noise deviations and .01, while the signal rose on by 4 standard errors
    and 5 % of its range. Stalled: a hinge in the regression on the signal, before which the slope is positive and after
    which less than a quarter of it is left (both p < .01 after the search over hinges), where the signal rose by 15 %
    of its range and the outcome lost 2 deviations and .02. Both: statistics study, section 4. No transfer (ours): the
    one-sided 99 % limit of what the outcome gained over the signal's rise lies below a quarter of what full transfer
    promised, or of the room below the ceiling where that is less: equivalence (Schuirmann 1987), not lack of
    significance.
    """
    outcome = _outcome(score_steps, score, questions)
    x, y = tidy(steps, signal)
    outcome, r, error, unit = _aligned(outcome, x, y)
    c, s, m = outcome.centre, outcome.scale, len(outcome.values)
    found = _UNSEEN._replace(reason=outcome.short, m=m, sd=s * outcome.sd, noise=outcome.noise)
    if outcome.short:
        return found
    peak, late = _fall(outcome), _late(outcome)
    start, end = float(np.mean(outcome.values[: max(2, m // 6)])), float(np.median(r[-2:]))
    rise = end - float(r[0])
    found = found._replace(
        change=s * (late - start), peak=c + s * (late + peak.lost), late=c + s * late, rise=unit * rise
    )
    moved = abs(rise) > _CLEAR * error
    if moved:
        slope, slope_error = _slope(r, outcome)
        half = student_quantile(LEVEL, outcome.df) * slope_error
        per = s * (rise / found.rise)
        found = found._replace(
            transfer=per * slope, transfer_low=per * (slope - half), transfer_high=per * (slope + half)
        )
    least = 0.05 * float(np.ptp(r))
    fell = peak.p_value < LEVEL and peak.lost > max(1.4 * outcome.sd, _FALL * outcome.unit)
    on = end - float(r[peak.at]) > max(_CLEAR * error, least)
    if fell and (on or _rose_on(x, y, outcome.steps[peak.high], unit * least)):
        found = found._replace(verdict="falling", effect=s * peak.lost, p_value=peak.p_value)
        return found._replace(rollback=outcome.onset(*peak[:3]))
    highest = ceiling if ceiling is not None else 1.0 if outcome.share else math.inf
    top = (highest - c) / max(s, 1e-300)
    stall = _stall(outcome, r, error, top)
    if stall is not None and stall.p_value < LEVEL:
        found = found._replace(verdict="stalled", effect=s * stall.lost, p_value=stall.p_value)
        if m < _DATED_STALL:
            return found._replace(reason=f"no date: dating a stall takes {_DATED_STALL} evaluations")
        return found._replace(rollback=outcome.onset(*stall[:3]))
    if moved:
        both = outcome.share and bool(y.min() >= 0.0) and bool(y.max() <= 1.0)
        whole = full if full is not None else 1.0 if both else None
        return _transfer(found, outcome, r, None if whole is None else whole * unit / max(s, 1e-300), top - start)
    drift, drift_error = _slope(np.arange(m, dtype=np.float64), outcome)
    if abs(drift) > student_quantile(LEVEL / 2.0, outcome.df) * drift_error or peak.p_value < LEVEL / 2.0:
        return found._replace(reason="the outcome moved while the signal did not")
    return found._replace(verdict="both_flat", effect=found.change)


def _outcome(steps: ArrayLike, values: ArrayLike, questions: int | None) -> _Outcome:
    x, y = tidy(steps, values)
    z, centre, scale = standardise(y)
    scale = scale or 1.0  # a constant outcome
    n = len(z)
    share = bool(n and y.min() >= 0.0 and y.max() <= 1.0)
    unit = 1.0 / max(scale, 1e-100) if share else float(np.ptp(z)) if n else 0.0
    if n > _MOST:
        sd, n_eff = _noise(z)
        m = max(1, min(_MOST, int(n_eff / 2.0)))
        edges = bin_edges(n, m)
        short = "" if n_eff >= _LEAST_DENSE else f"{n_eff:.0f} independent values, {_LEAST_DENSE:g} needed"
        sd, df = max(sd * math.sqrt(m / n_eff), _LEAST_SD), max(2.0, n_eff - 2.0)
        middles, means = 0.5 * x[edges[:-1]] + 0.5 * x[edges[1:] - 1], bin_means(hampel(z), edges)
        return _Outcome(middles, means, centre, scale, sd, "windows", df, unit, share, short)
    # Second differences, which a smooth trend hardly touches; their variance is six times that of the noise.
    sd = max(math.sqrt(float(np.mean(np.diff(z, 2) ** 2)) / 6.0), _LEAST_SD) if n > 2 else _LEAST_SD
    plain = _Outcome(x, z, centre, scale, sd, "differences", max(2.0, 0.6 * (n - 2)), unit, share, _too_few(n))
    if questions is None or questions < 1 or not share or plain.short:
        return plain
    # Half of an answer at least, so that scores of exactly 1 are not taken for certainties.
    binomial = math.sqrt(max(float(np.mean(y * (1.0 - y))), 0.25 / questions) / questions) * unit
    if float(_turns(z)[1].min()) > _null(n).left * binomial**2:
        return plain._replace(sd=max(sd, binomial))
    return plain._replace(sd=binomial, noise="questions", df=math.inf)


def _rose_on(x: Floats, y: Floats, since: float, least: float) -> bool:
    """Whether the signal ends above where it was at ``since``. A few dozen rows leave the splines of ``_noise`` too
    stiff for a steep rise that levels off, and their misfit passes for noise; windows and ranks know no course."""
    after = x >= since
    looks = (look(x[after], y[after]) for look in (lasting_change, trend))
    return any(found.change > least and found.p_value < LEVEL for found in looks)


def _too_few(m: int) -> str:
    return "" if m >= FEWEST_EVALUATIONS else f"{m} evaluations beside the signal, {FEWEST_EVALUATIONS} needed"


@once(8)
def _noise(z: Floats) -> tuple[float, float]:
    """(standard deviation, effective number) of points around a spline of up to nine columns."""
    n = len(z)
    columns = min(9, max(1, n // 12))  # with fewer, as BIC would have it, a rise and fall passes for slow noise
    residual = basis(n, columns).residual(hampel(z))
    sd = math.sqrt(float(residual @ residual) / max(1, n - columns))
    return sd, n / autocorrelation_time(residual, fitted=columns)


def _aligned(outcome: _Outcome, x: Floats, y: Floats) -> tuple[_Outcome, Floats, float, float]:
    """(outcome at the evaluations beside the signal, (m,) standardised signal there, its standard error, its scale)."""
    z, _, scale = standardise(y)
    if not len(z):
        return outcome._replace(short="no signal"), z, math.inf, scale
    z = hampel(z)
    reach = (x[-1] - x[0]) * _SMOOTH if len(z) >= 13 else 0.0
    if outcome.noise == "windows" and len(outcome.steps) > 1:
        reach = 0.5 * float(np.median(np.diff(outcome.steps)))
    at = outcome.steps
    near = (at >= x[0] - 2.0 * reach) & (at <= x[-1] + 2.0 * reach)
    if not near.all():
        at, values = at[near], outcome.values[near]
        outcome = outcome._replace(steps=at, values=values, short=outcome.short or _too_few(len(at)))
    if not len(at):
        return outcome, z[:0], math.inf, scale
    low, high = np.searchsorted(x, at - reach, side="left"), np.searchsorted(x, at + reach, side="right")
    total = np.concatenate(([0.0], np.cumsum(z)))
    r = np.where(high > low, (total[high] - total[low]) / np.maximum(high - low, 1), np.interp(at, x, z))
    sd, n_eff = _noise(z)
    independent = max(float(np.median(high - low)) * n_eff / len(z), 1.0)
    return outcome, r, sd / math.sqrt(independent), scale


def _prefix_loss(y: Floats) -> Floats:
    """(rows, m) sum of squares that the best non-decreasing fit leaves of every prefix of each row of ``y`` (rows, m).

    The last block of such a fit starts where the mean up to the prefix's end is largest, and before it the fit is that
    of the shorter prefix (greatest convex minorant; Barlow et al. 1972).
    """
    return np.concatenate([_prefix_losses(y[at : at + _TOGETHER]) for at in range(0, len(y), _TOGETHER)])


def _prefix_losses(y: Floats) -> Floats:
    m = y.shape[1]
    row = np.arange(len(y))
    total, square, loss = np.zeros((3, len(y), m + 1))
    np.cumsum(y, axis=1, out=total[:, 1:])
    np.cumsum(y * y, axis=1, out=square[:, 1:])
    for end in range(1, m + 1):
        means = (total[:, end, None] - total[:, :end]) / np.arange(end, 0, -1)
        start = means.argmax(axis=1)
        inside = square[:, end] - square[row, start] - means[row, start] ** 2 * (end - start)
        loss[:, end] = loss[row, start] + np.maximum(inside, 0.0)
    return np.asarray(loss[:, 1:])


def _turns(y: Floats) -> tuple[Floats, Floats]:
    """(loss (..,) of the best non-decreasing fit, loss (.., m - 1) of "up to k, then down" for every k) of (.., m)."""
    rows = y.reshape(-1, y.shape[-1])
    both = _prefix_loss(np.concatenate((rows, rows[:, ::-1])))
    up, down = both[: len(rows)], both[len(rows) :, ::-1]
    return up[:, -1].reshape(y.shape[:-1]), (up[:, :-1] + down[:, 1:]).reshape(*y.shape[:-1], -1)


class _Null(NamedTuple):
    known: Floats
    estimated: Floats
    """(draws,) sorted gains in true and in estimated noise variances."""
    left: float
    """99.9 % point of what the best up-then-down fit leaves, in noise variances."""


@lru_cache(maxsize=_MOST)
def _null(m: int) -> _Null:
    """The fall statistic on constant series of m evaluations with unit noise."""
    draws = np.random.default_rng(m).standard_normal((_DRAWS, m))
    loss, turned = _turns(draws)
    left = turned.min(axis=-1)
    gain = np.maximum(loss - left, 0.0)
    variance = np.mean(np.diff(draws, 2, axis=-1) ** 2, axis=-1) / 6.0
    return _Null(np.sort(gain), np.sort(gain / variance), float(np.quantile(left, 0.999)))


def _fall(outcome: _Outcome) -> _Dated:
    """The likeliest peak of at least three evaluations, what was lost since, and the p-value of "never falls"."""
    z = outcome.values
    loss, turned = _turns(z)
    best = float(turned.min())
    # A cut lies between two points, either of which may be the peak; cuts on both sides of one peak fit equally well.
    likely = np.flatnonzero(turned <= best + 1e-9 * float(loss))
    at = int(likely[0] + np.argmax(z[likely[0] : likely[-1] + 2]))
    allowed = np.flatnonzero(turned <= best + _BOUND * outcome.sd**2)
    p_value = 1.0
    if not outcome.short:
        null, gain = _null(len(z)), (float(loss) - best) / outcome.sd**2
        if outcome.noise == "windows":
            # Estimated noise widens the tail as F(2, df) does that of a chi-square over two (ours; df is large here).
            gain = outcome.df * math.log1p(max(gain, 0.0) / outcome.df)
        gains = null.estimated if outcome.noise == "differences" else null.known
        p_value = (1 + len(gains) - int(np.searchsorted(gains, gain, side="left"))) / (1 + len(gains))
    lost = float(np.mean(z[max(0, at - 1) : at + 2])) - _late(outcome) if at < len(z) - 1 else 0.0
    return _Dated(at, int(allowed[0]), int(allowed[-1]) + 1, lost, p_value)


def _late(outcome: _Outcome) -> float:
    """Mean of the last sixth of the evaluations, of two at least."""
    return float(np.mean(outcome.values[-max(2, len(outcome.values) // 6) :]))


def _stall(outcome: _Outcome, r: Floats, error: float, top: float) -> _Dated | None:
    """The hinge after which least is left of the earlier transfer; None when no hinge meets the conditions."""
    e, sd, m = outcome.values, outcome.sd, len(outcome.values)
    width = float(np.ptp(r))
    if width <= 0.0:
        return None
    u = (r - r.min()) / width
    hinges = np.arange(3, m - 2)
    turn = u[hinges - 1]
    bend = np.where(np.arange(m) >= hinges[:, None], np.maximum(u - turn[:, None], 0.0), 0.0)
    columns = np.stack((np.ones_like(bend), np.broadcast_to(u, bend.shape), bend), axis=2)
    inverse = np.linalg.pinv(np.swapaxes(columns, 1, 2) @ columns, hermitian=True)
    b = np.einsum("kij,kmj,m->ki", inverse, columns, e)
    loss = np.sum((e - np.einsum("kmj,kj->km", columns, b)) ** 2, axis=1)
    exact = math.isinf(outcome.df)
    df = math.inf if exact else m - 3.0
    s2 = np.full(len(hinges), sd * sd) if exact else np.maximum(sd * sd, loss / (m - 3))

    def deviate(*weights: float) -> Floats:
        w = np.array(weights)
        spread = np.sqrt(s2 * np.maximum(np.einsum("i,kij,j->k", w, inverse, w), 0.0))
        return np.where(spread > 0.0, b @ w / np.where(spread > 0.0, spread, 1.0), 0.0)

    rise = float(np.median(u[-2:])) - turn
    reached = b[:, 0] + b[:, 1] * turn
    lost = np.minimum(b[:, 1] * rise, top - reached) - (b[:, 1] + b[:, 2]) * rise
    fits = (rise >= max(_CLEAR * error / width, 0.15)) & (lost >= max(2.0 * sd, _LOSS * outcome.unit))
    fits &= (deviate(0.0, 1.0, 0.0) > student_quantile(LEVEL / len(hinges), df)) & (deviate(0.0, 1.0, 1.0) < 1.3)
    if not fits.any():
        return None
    left = np.where(fits, deviate(0.0, 1.0 - SHARE, 1.0), math.inf)
    k = int(np.argmin(left))
    p_value = min(1.0, student_tail(-float(left[k]), df) * math.sqrt(m - 5.0))
    allowed = np.flatnonzero(loss <= loss.min() + _BOUND * max(sd * sd, float(loss.min()) / (m - 3)))
    # The hinge lies between two evaluations, so the lowest that the data allow may have followed only in part.
    at, low, high = int(hinges[np.argmin(loss)]) - 1, int(hinges[allowed[0]]) - 2, int(hinges[allowed[-1]]) - 1
    return _Dated(at, low, high, float(lost[k]), p_value)


def _transfer(found: Coupling, outcome: _Outcome, r: Floats, full: float | None, room: float) -> Coupling:
    """What all evaluations together say where the signal moved; ``full`` and ``room`` standardised."""
    slope, error = _slope(r, outcome)
    half = student_quantile(LEVEL, outcome.df) * error
    rise, e = float(np.median(r[-2:]) - r[0]), outcome.values
    found = found._replace(effect=found.transfer * found.rise, p_value=student_tail(slope / error, outcome.df))
    promised = 0.0 if full is None else min(full * rise, room)
    if promised >= _RISE * outcome.unit and room >= _ROOM * outcome.unit:
        few = max(2, len(e) // 4)
        gained = float(np.mean(e[-few:]) - np.mean(e[:few]))  # an outcome that follows late has a small slope
        if max(rise * (slope + half), gained) < SHARE * promised:
            p_value = student_tail((SHARE * promised - rise * slope) / (rise * error), outcome.df)
            return found._replace(verdict="no_transfer", p_value=p_value)
    if found.p_value < LEVEL:
        return found._replace(verdict="follows")
    why = "too few or too noisy evaluations to tell transfer from none"
    if rise < 0.0:
        why = "the signal fell"
    elif full is None:
        why = "what the signal's rise promises in units of the outcome is not known"
    elif room < _ROOM * outcome.unit:
        why = "the outcome has little room left"
    return found._replace(reason=why)


def _slope(r: Floats, outcome: _Outcome) -> tuple[float, float]:
    """Least-squares slope of the outcome on r and its standard error, from noise or from misfit if that is larger."""
    u, e = r - r.mean(), outcome.values
    power = float(u @ u)
    if not power > 0.0:
        return 0.0, math.inf
    slope = float(u @ e) / power
    residual = e - e.mean() - slope * u
    return slope, math.sqrt(max(outcome.sd**2, float(residual @ residual) / (len(e) - 2)) / power)


def lead(steps_a: ArrayLike, a: ArrayLike, steps_b: ArrayLike, b: ArrayLike) -> Lead:
    """Which of two series moved first, from two kinds of evidence that do not share their weakness.

    Onsets: both left their early level for good (``lasting_change``, p < .01 each), and between the intervals of their
    onsets, each from the row before it, lie at least 5 % of the steps of the shorter series; p is the larger of the
    two. Lags: cross-correlation of what an autoregression of either series around its own smooth curve does not foresee
    (Haugh 1976), over the steps that both have, up to 20 rows of delay, with Bartlett's variance for what is left of
    the autocorrelation of both, and p multiplied by the number of lags and by the two kinds of evidence; without
    prewhitening two unrelated slow series nearly always correlate at some lag. A delay of 0 inside the interval means
    together. Where onsets and lags name different series, and below 40 common rows without dated onsets: undecided.
    """
    (xa, ya), (xb, yb) = tidy(steps_a, a), tidy(steps_b, b)
    x, ia, ib = np.intersect1d(xa, xb, assume_unique=True, return_indices=True)
    lags = _by_lags(x[-MOST:], ya[ia[-MOST:]], yb[ib[-MOST:]])
    (first, p_first), (second, p_second) = _departed(steps_a, a), _departed(steps_b, b)
    if first is None or second is None:
        return lags
    low, high = second.low - first.high, second.high - first.low
    margin = _APART * min(float(np.ptp(xa)), float(np.ptp(xb)))
    if max(low, -high) <= margin:
        return lags
    ahead: Literal["a", "b"] = "a" if low > 0.0 else "b"
    if lags.verdict in ("a", "b") and lags.verdict != ahead:
        return _UNLED._replace(n=lags.n)
    return Lead(ahead, "onsets", second.step - first.step, low, high, math.nan, max(p_first, p_second), lags.n)


def _departed(steps: ArrayLike, values: ArrayLike) -> tuple[Onset | None, float]:
    """When a series left its early level, the row before included: the change came somewhere between the two."""
    change = lasting_change(steps, values)
    x, since = tidy(steps, values)[0], change.onset
    if since is None:
        return None, 1.0
    before = float(x[max(0, int(np.searchsorted(x, since.low)) - 1)])
    return Onset(since.step, before, since.high), change.p_value


def _unforeseen(z: Floats) -> Floats:
    """(n - 6,) residuals of the autoregression of least AIC, order 1 to 6, around a spline; zeros for a smooth one."""
    n = len(z)
    residual = basis(n, min(9, max(2, n // 12))).residual(z)
    goal = residual[_ORDER:]
    best, kept = math.inf, np.zeros(len(goal))
    for order in range(1, _ORDER + 1):
        past = np.column_stack([residual[_ORDER - lag : n - lag] for lag in range(1, order + 1)])
        left = goal - past @ np.linalg.lstsq(past, goal, rcond=None)[0]
        loss = float(left @ left)
        if loss <= 1e-18 * n:
            return np.zeros(len(goal))
        if (aic := len(goal) * math.log(loss) + 2.0 * order) < best:
            best, kept = aic, left - left.mean()
    return kept


def _by_lags(x: Floats, y: Floats, z: Floats) -> Lead:
    rows = len(x)
    if rows < _FEWEST_JOINED:
        return _UNLED._replace(n=rows)
    u, v = (_unforeseen(hampel(standardise(values)[0])) for values in (y, z))
    n = len(u)
    power = math.sqrt(float(u @ u) * float(v @ v))
    if not power > 0.0:
        return _UNLED._replace(n=rows)
    lags = np.arange(-min(20, n // 6), min(20, n // 6) + 1)
    r = np.array([float(u[max(0, -k) : n - max(0, k)] @ v[max(0, k) : n + min(0, k)]) for k in lags.tolist()]) / power
    own_u, own_v = (np.array([float(w[k:] @ w[:-k]) for k in range(1, 11)]) / float(w @ w) for w in (u, v))
    error = math.sqrt(max(1.0, 1.0 + 2.0 * float(own_u @ own_v)) / n)  # Bartlett 1946
    at = int(np.argmax(np.abs(r)))
    p_value = min(1.0, 4.0 * student_tail(abs(float(r[at])) / error, n - 2.0) * len(lags))
    if p_value >= LEVEL:
        return _UNLED._replace(p_value=p_value, n=rows)
    near = lags[(np.abs(r) >= max(abs(float(r[at])) - 2.0 * error, 2.0 * error)) & (r * r[at] > 0.0)]
    spacing = float(np.median(np.diff(x)))
    low, high = spacing * float(near.min()), spacing * float(near.max())
    verdict: Literal["a", "b", "together"] = "a" if low > 0.0 else "b" if high < 0.0 else "together"
    return Lead(verdict, "lags", spacing * float(lags[at]), low, high, float(r[at]), p_value, rows)
