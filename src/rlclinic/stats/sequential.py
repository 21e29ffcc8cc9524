"""Changes seen while a run is still going: one row at a time, in constant time and memory, at a bounded rate of false
alarms."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rlclinic.model import Onset
from rlclinic.stats.curve import median_of, running_median, standardise
from rlclinic.stats.evidence import MAD_TO_SD, autocorrelation_time, hampel

_SPIKE = 5.0
"""Scaled MAD from the median of seven points beyond which a point is a spike (as in ``evidence.hampel``)."""
_FARTHEST = 1e9
"""Typical deviations at which values are cut, so that sums stay finite (as in ``curve.standardise``)."""
_BLIND_MOST = 1800
"""Rows after which every detector has burnt in and learnt (128, and 25 batches of 64)."""
_MOST_HELD = 1024
"""Most numbers in a list of a saved state (ours: the raw rows up to the last look are 512)."""
_SHORTEST, _LONGEST = 8, 64
"""Points of a batch. The longest is the study's. The shortest is ours: means of eight skewed values are normal enough,
those of four are not (log-normal AR(.5) noise rang in 8 % of streams instead of 2.5 %)."""
_MOVED = 5.0
"""Points off the most common value that a batch must hold on average (ours: the rule of thumb for a normal count)."""
_FEWEST = 8
"""Batches behind the noise estimate from which a verdict is given: the gate on effective observations."""
_LAG = 8
"""Batches after which a batch enters the noise estimate. Ours: with none, a jump of 2 sd in AR(.9) noise is learnt as
noise and found in 15 % of streams within 1000 steps; with eight in about 80 %."""
_PRIOR, _PRIOR_BATCHES = 1.0 / 3.0, 10.0
"""Lag-one correlation of batch means to start from: that of AR(1) noise in batches as long as its autocorrelation time,
worth ten batches (ours)."""
_CAUTION = (2.0, 1.25, 1.0)
"""Standard errors added to the lag-one correlation of batch means after each look at the noise. Ours: with 1 throughout,
AR(.9) noise rings in .2 instead of .08 % of streams, AR(.95) under white noise in 1.1 instead of .6 %, mostly early."""
_LEAST_VARIANCE = 1e-12
"""Variance of batch means below which rounding is all there is, in squared typical deviations (ours)."""
_BETS = (-1.0, -0.5, -0.25, 0.25, 0.5, 1.0, -2.0, 2.0)
_RINGING = 6
"""Shifts bet on, in standard deviations of a batch mean; the first six can raise an alarm, the last two only help to date
it. The study lets all eight: skewed noise then rings more (log-normal AR(.5): 2.5 % of streams instead of .5 %)."""
_CLIP, _WINSOR = 3.5, 4.0
"""Cuts of what is bet on and of what enters the moments (statistics study, section 5)."""
_FIRST_EPOCH = 1024.0
"""Points of the first epoch of a run of unknown length (ours)."""
_UNSEEN = 3.0
"""Pseudo-count of the movements of a value at rest: 3/n is the upper 95 % limit of a rate of which none was seen."""
_OPENS = 6.0
"""Sum of excesses, in standard deviations of a batch mean, at which a limit counts as exceeded (ours)."""
_SLACK = 0.25
"""Excess of one batch mean that does not count yet (statistics study, section 5)."""
_FORM = 1
"""Version of the saved state."""

_Event = TypeVar("_Event")
_Self = TypeVar("_Self", bound="_Stream[Any]")


class Alarm(NamedTuple):
    """A change of level that noise does not explain."""

    step: float
    """Step of the row that raised the alarm."""
    onset: Onset
    """Since when. The interval held 97 % or more of simulated jumps; a drift often begins before it."""
    direction: Literal[-1, 1]
    e_value: float
    """Evidence against "no change during the planned run": without one its mean is at most 1, whenever it is read."""
    level_before: float
    level_now: float
    """Means before and since the onset in the unit of the metric, onsets weighted by how well they fit."""


class LevelEvent(NamedTuple):
    """A limit was exceeded, or is no longer."""

    step: float
    """Step of the row that decided it."""
    opened: bool
    """True when the level went beyond the limit, False when it came back."""
    since: float
    """First step of the stretch that decided it."""
    level: float
    """Mean over that stretch, in the unit of the metric."""


class _Stream(ABC, Generic[_Event]):
    """Rows in, batch means out: order of steps, warm-up, burn-in, spike filter, length of a batch.

    Every attribute is plain JSON; that is all there is to saving and resuming.
    """

    _LOOKS: tuple[int, ...]
    """Points after which scale and batch length are read, from all points so far, on which the test is then repeated.
    The last look lets the raw points go."""

    _first: float
    _last: float | None
    _points: int
    _raw: list[float] | None
    _raw_steps: list[float]
    _look: int
    _window: list[float]
    _at_rest: bool

    def __init__(self, warmup: float) -> None:
        self._warmup = max(0.0, _finite("warmup", warmup))
        self._new_run()

    def update(self, step: float, value: float) -> _Event | None:
        """Take one row; what it shows, if anything. Never raises.

        Non-finite rows are skipped. The same step again replaces the newest value, a step that goes back is ignored
        until new ground is reached (a resume logs rows again), one before the first step starts over.
        """
        if isinstance(value, np.ma.core.MaskedConstant):
            return None
        try:
            x, y = float(step), float(value)
        except Exception:  # a tensor of two elements, or whatever a trainer hands over, raises errors of its own
            return None
        if not (math.isfinite(x) and math.isfinite(y)):
            return None
        if self._last is None or x < self._first:
            self._new_run()
            self._first = x
        elif x <= self._last:
            if x == self._last:
                self._replace(y)
            return None
        self._last = x
        if x < self._first + self._warmup:
            return None
        self._points += 1
        if self._raw is not None:
            self._raw.append(y)
            self._raw_steps.append(x)
            if len(self._raw) == self._LOOKS[self._look]:
                return self._read_noise()
            if self._look == 0:
                return None
        return self._feed(x, self._standard(y))

    def state(self) -> dict[str, Any]:
        """All that the future depends on as plain JSON, without NaN or infinity: some 70 numbers, and up to the last look
        the raw rows (at most 512)."""
        held = {name[1:]: copy.copy(value) for name, value in vars(self).items()}
        return {"form": _FORM, "kind": type(self).__name__, **held}

    @classmethod
    def from_state(cls: type[_Self], state: dict[str, Any]) -> _Self:
        """The object whose ``state`` this is. ValueError for another kind or version, and for a damaged one."""
        if not isinstance(state, dict) or state.get("form") != _FORM or state.get("kind") != cls.__name__:
            raise ValueError(f"not a state of {cls.__name__} in version {_FORM}")
        restored = cls.__new__(cls)
        held = {name: value for name, value in state.items() if name not in ("form", "kind")}
        if not all(map(_plain, held.values())):
            raise ValueError(f"a damaged state of {cls.__name__}: numbers, null and short lists of numbers were wanted")
        vars(restored).update({"_" + name: copy.copy(value) for name, value in held.items()})
        probe = copy.deepcopy(restored)
        try:  # through burn-in and learning, so that a part that is missing shows here and not in training
            since = probe._last or 0.0
            for row in range(_BLIND_MOST):
                probe.update(since + probe._warmup + row + 1.0, row * 37 % 17)
        except Exception as broken:
            raise ValueError(f"a damaged state of {cls.__name__}: {type(broken).__name__}: {broken}") from broken
        return restored

    def _new_run(self) -> None:
        self._first = 0.0
        self._last = None
        self._points = 0
        self._burn_in()

    def _burn_in(self) -> None:
        self._raw, self._raw_steps = [], []
        self._look = 0
        self._window = []

    def _replace(self, y: float) -> None:
        if self._raw:
            self._raw[-1] = y
        if self._window:
            self._window[-1] = self._standard(y)

    def _standard(self, y: float) -> float:
        z = (y - self._centre) / self._unit
        return z if -_FARTHEST < z < _FARTHEST else math.copysign(_FARTHEST, z)

    def _read_noise(self) -> _Event | None:
        """Scale, spike limit and batch length from the raw points so far; then the test on those points again."""
        assert self._raw is not None
        values, steps = self._raw, self._raw_steps
        n = len(values)
        z, self._centre, self._unit = standardise(np.array(values))
        kinds, counts = np.unique(z, return_counts=True)
        moved = 1.0 - float(counts.max()) / n
        self._stride = min(max((steps[-1] / (n - 1)) - steps[0] / (n - 1), 1e-300), 1e300)
        self._spike, self._noise, self._size = 2.0 * _FARTHEST, 0.0, _SHORTEST
        self._at_rest = moved * _LONGEST < _MOVED
        if self._at_rest:
            self._centre += self._unit * float(kinds[counts.argmax()])
            self._unit = self._unit or abs(self._centre) or 1.0
        else:
            distance = median_of(np.abs(z - running_median(z, 7)))
            self._spike = _SPIKE * MAD_TO_SD * distance or self._spike
            u = np.arange(n) - (n - 1) / 2.0
            rest = hampel(z)
            rest = rest - rest.mean()
            rest -= u * (float(u @ rest) / float(u @ u))
            tau = autocorrelation_time(rest, fitted=2)
            self._size = min(max(_SHORTEST, math.ceil(tau), math.ceil(_MOVED / moved)), _LONGEST)
            self._noise = float(np.std(rest)) * math.sqrt(tau / self._size)
        self._look += 1
        if self._look == len(self._LOOKS):
            self._raw, self._raw_steps = None, []
        first = self._standard(values[0])
        self._window, self._window_steps = [first] * 3, [steps[0]] * 3
        self._sum, self._count, self._closed = 0.0, 0, steps[0] - self._stride
        self._begin()
        for x, y in zip(steps[:], values[:], strict=True):
            event = self._feed(x, self._standard(y))
            if event is not None:
                return event
        return None

    def _feed(self, x: float, z: float) -> _Event | None:
        window, steps = self._window, self._window_steps
        window.append(z)
        steps.append(x)
        if len(window) < 7:
            return None
        middle, at = window[3], steps[3]
        ranked = sorted(window)
        if ranked[6] - ranked[0] > self._spike and abs(middle - ranked[3]) > self._spike:
            middle = ranked[3]
        del window[0], steps[0]
        self._sum += middle
        self._count += 1
        if self._count < self._size:
            return None
        mean = self._sum / self._count
        span = min((at - self._closed) / self._stride, _FARTHEST)
        self._sum, self._count, self._closed = 0.0, 0, at
        return self._judge(mean, span)

    @property
    def ready(self) -> bool:
        """Whether rows are watched now; False while noise and level are learnt, at the start and after an alarm."""
        return self.blind_for == 0

    @property
    def blind_for(self) -> int:
        """Rows still to come, at least, before anything is watched: those of ``warmup`` not counted, and before the noise
        is known as if it were white. 0 when ``ready``."""
        return 0 if self._look else self._LOOKS[0] - len(self._raw or ())

    @abstractmethod
    def _begin(self) -> None:
        """Forget all batches."""

    @abstractmethod
    def _judge(self, mean: float, span: float) -> _Event | None:
        """Take one batch: its mean in typical deviations from the centre, the strides it covers."""


class Detector(_Stream[Alarm]):
    """Watches one metric for a lasting change of level.

    ``planned_steps``: trainer steps the run will take; without it the run is planned in epochs that double from 1024
    rows on, each with half of the chance of a false alarm that is left. ``detectors``: how many run together and share
    ``false_alarms``, the chance that any of them rings without a change (``detectors * P(one rings)``, any dependence).
    ``warmup``: trainer steps to leave out at the start.

    The first 128 rows are the burn-in: spike scale and autocorrelation time, which is the length of a batch (8 to 64
    rows). Both are read again after 256 and 512 rows. Each batch mean is predicted from the one before it with the upper
    limit of their correlation, the surprise put on a normal scale (self-starting, Hawkins 1987; Wallace 1959 for
    Student's t), and bet on by six Shiryaev-Roberts statistics (e-detector, Shin, Ramdas and Rinaldo): the alarm is raised
    when their mean exceeds batches planned / chance. Without a change that mean grows by 1 a batch on average, hence the
    bound, also over restarts. The same sums, taken with the ages of the bets, date the change.

    A metric at rest (fewer than 8 % of the rows off one value, as a clip fraction of 0) has no noise to compare with:
    there the alarm says that it moves in most rows, against the upper limit of the rate at which it moved before.

    Blind period (``ready``, ``blind_for``): nothing rings before 128 rows after ``warmup`` and sixteen batches are in,
    which is the same for white noise and 1024 rows for batches of 64; nor in that long after an alarm, while the new
    level is learnt. A shorter run never rings. A change in there is looked for at its end, but mostly taken for noise.
    What moves from the first row on is part of that noise and may never ring: a decay .1 + .9 exp(-row / tau) under noise
    of .03 rang in none of 20 runs of 2000 rows (tau 50 to 1000), a straight line in all. Both are for tests of the whole
    series, repeated as it grows: ``trend``, ``lasting_change``, ``steps_found``, and ``cliff`` for a handful of rows.

    A metric that has stood at a level and then moves as it should rings like any other. So may a spread that grows
    threefold or more (10 to 20 of 20 streams), because the scale is learnt eight batches late.
    """

    _LOOKS = (128, 256, 512)

    def __init__(
        self,
        *,
        planned_steps: float | None = None,
        detectors: int = 20,
        false_alarms: float = 0.05,
        warmup: float = 0.0,
    ) -> None:
        self._planned = None if planned_steps is None else _finite("planned_steps", planned_steps)
        if not _finite("false_alarms", false_alarms) > 0.0:
            raise ValueError(f"false_alarms: a chance above 0 was wanted, got {false_alarms}")
        self._chance = float(false_alarms) / max(1, int(_finite("detectors", detectors)))
        super().__init__(warmup)

    @property
    def blind_for(self) -> int:
        if self._look == 0:
            return super().blind_for
        batches = _FEWEST + (1 if self._at_rest else _LAG) - int(self._batches)
        return max(0, batches * self._size - self._count)

    def _begin(self) -> None:
        if self._at_rest:
            self._size = 1
        bets = 1 if self._at_rest else len(_BETS)
        self._bets, self._ages, self._squares, self._counts, self._levels = ([0.0] * bets for _ in range(5))
        self._time = self._total = 0.0
        self._batches = self._mean = self._before = 0.0
        self._recent: list[float] = []
        self._learnt = self._centre_learnt = self._square = self._product = self._last_learnt = 0.0
        self._movements = 0.0
        self._caution = _CAUTION[self._look - 1]

    def _judge(self, mean: float, span: float) -> Alarm | None:
        self._time += span
        self._total += mean
        gains = self._rest_gains(mean) if self._at_rest else self._gains(mean)
        if gains is None:
            return None
        bets, ages, squares, counts, levels = self._bets, self._ages, self._squares, self._counts, self._levels
        for j, gain in enumerate(gains):
            older, age = bets[j], ages[j]
            running = older + 1.0
            bets[j] = running * gain
            ages[j] = (age + span * running) * gain
            squares[j] = (squares[j] + span * (2.0 * age + span * running)) * gain
            # The first batch of a bet may hold the change itself, so its level is read from those after it.
            counts[j] = (counts[j] + older) * gain
            levels[j] = (levels[j] + mean * older) * gain
        planned, chance = self._plan()
        ringing = self._bets[:_RINGING]
        e_value = sum(ringing) / len(ringing) / planned
        return self._alarm(e_value, mean, span) if e_value * chance > 1.0 else None

    def _plan(self) -> tuple[float, float]:
        """Batches up to the end of the present epoch and its share of the chance of a false alarm."""
        if self._planned is None:
            end, chance = _FIRST_EPOCH, self._chance / 2.0
        else:
            end, chance = max(1.0, min(self._planned / self._stride, 1e15)), self._chance
        while self._points > end:
            end, chance = 2.0 * end, chance / 2.0
        return max(1.0, end / self._size), chance

    def _rest_gains(self, mean: float) -> tuple[float] | None:
        """Likelihood ratio of "moves in half of the rows" to the upper limit of the rate so far."""
        rate = (self._movements + _UNSEEN) / (self._batches + _UNSEEN)
        moved = mean != 0.0
        self._movements += moved
        self._batches += 1.0
        if self._batches <= _FEWEST:
            return None
        return (0.5 / min(rate, 0.5) if moved else 0.5 / max(1.0 - rate, 0.5),)

    def _gains(self, mean: float) -> tuple[float, ...] | None:
        """Likelihood ratios of the bets on one batch; the baseline learns the batch afterwards."""
        n, surprise, sd = self._learnt, None, 0.0
        if n >= _FEWEST:
            variance = max(self._square / (n - 1.0), _LEAST_VARIANCE)
            sd = math.sqrt(variance)
            weight = n + _PRIOR_BATCHES
            lag_one = (self._product / variance + _PRIOR_BATCHES * _PRIOR) / (weight - 1.0)
            lag_one = min(max(lag_one + (1.0 + 3.0 * max(lag_one, 0.0)) / weight, 0.0), 0.95)
            upper = min(lag_one + self._caution * math.sqrt((1.0 - lag_one * lag_one) / weight), 0.95)
            error = (mean - self._mean) - upper * (self._before - self._mean)
            spread = sd * math.sqrt((1.0 + upper * upper - 2.0 * upper * lag_one) * (1.0 + 1.0 / self._batches))
            surprise = min(max(_normal_score(error / spread, n - 1.0), -_CLIP), _CLIP)
        self._learn(mean, sd)
        if surprise is None:
            return None
        return tuple([math.exp(bet * (surprise - 0.5 * bet)) for bet in _BETS])

    def _learn(self, mean: float, sd: float) -> None:
        """The centre takes a batch at once, as the self-starting form demands; scale and correlation ``_LAG`` later."""
        if sd > 0.0:
            mean = min(max(mean, self._mean - _WINSOR * sd), self._mean + _WINSOR * sd)
        self._batches += 1.0
        self._mean += (mean - self._mean) / self._batches
        self._before = mean
        self._recent.append(mean)
        if len(self._recent) <= _LAG:
            return
        learnt = self._recent.pop(0)
        centre = self._centre_learnt
        self._learnt += 1.0
        self._centre_learnt += (learnt - centre) / self._learnt
        self._square += (learnt - centre) * (learnt - self._centre_learnt)
        if self._learnt > 1.0:
            self._product += (learnt - self._centre_learnt) * (self._last_learnt - centre)
        self._last_learnt = learnt

    def _alarm(self, e_value: float, mean: float, span: float) -> Alarm:
        sides = [[j for j, bet in enumerate(_BETS[: len(self._bets)]) if sign * bet > 0.0] for sign in (1.0, -1.0)]
        side = max(sides, key=lambda part: sum(self._bets[j] for j in part))
        bets, ages, squares, counts, levels = (
            sum(sums[j] for j in side) for sums in (self._bets, self._ages, self._squares, self._counts, self._levels)
        )
        age = ages / bets
        deviation = math.sqrt(max(0.0, squares / bets - age * age))
        now = levels / counts if counts > 0.0 else mean
        before = 0.0 if self._at_rest else (self._total - levels / bets) / (self._batches - counts / bets)
        last = self._closed
        start = last - self._time * self._stride
        at, low, high = (
            min(max(last + self._stride * (1.0 - back), start), last)
            for back in (age, age + 1.645 * deviation + span, age - 1.645 * deviation - span)
        )
        alarm = Alarm(
            step=last if self._last is None else self._last,
            onset=Onset(at, low, high),
            direction=1 if now >= before else -1,
            e_value=e_value,
            level_before=self._centre + self._unit * before,
            level_now=self._centre + self._unit * now,
        )
        self._burn_in()
        return alarm


class LevelWatch(_Stream[LevelEvent]):
    """Watches whether the level of one metric lies beyond a limit: opens, and clears once it is well back.

    Opens when the excesses of batch means over ``limit`` (below it, unless ``above``) add up: a one-sided CUSUM (Page
    1954), slack and threshold in standard deviations of a batch mean. Clears after two whole batches in a row that lie
    below ``clear``, by default 80 % of the limit (above 120 %, unless ``above``). Noise and batch length come from the
    first 64 rows after ``warmup``, which then count too: a run that begins beyond the limit opens there.
    """

    _LOOKS = (64,)

    def __init__(self, limit: float, *, above: bool = True, clear: float | None = None, warmup: float = 0.0) -> None:
        self._limit = _finite("limit", limit)
        self._sign = 1.0 if above else -1.0
        self._clear = self._limit - self._sign * 0.2 * abs(self._limit) if clear is None else float(clear)
        super().__init__(warmup)

    @property
    def open(self) -> bool:
        """Whether the limit counts as exceeded now."""
        return self._is_open

    def _new_run(self) -> None:
        self._is_open = False
        super()._new_run()

    def _begin(self) -> None:
        self._excess = 0.0
        self._forget()

    def _forget(self) -> None:
        self._total, self._length, self._since = 0.0, 0, self._closed

    def _judge(self, mean: float, span: float) -> LevelEvent | None:
        level = self._centre + self._unit * mean
        counts, decided = self._is_back(level) if self._is_open else self._is_beyond(level)
        if not counts:
            self._forget()
            return None
        self._total += mean
        self._length += 1
        if not decided:
            return None
        self._is_open = not self._is_open
        event = LevelEvent(
            step=self._closed if self._last is None else self._last,
            opened=self._is_open,
            since=min(self._since + self._stride, self._closed),
            level=self._centre + self._unit * (self._total / self._length),
        )
        self._begin()
        return event

    def _is_beyond(self, level: float) -> tuple[bool, bool]:
        """Whether the batch counts towards opening, and whether it opens."""
        beyond = self._sign * (level - self._limit)
        noise = self._noise * self._unit
        excess = beyond / noise if noise > 0.0 else math.copysign(_WINSOR, beyond) if beyond else 0.0
        self._excess = max(0.0, self._excess + min(excess, _WINSOR) - _SLACK)
        return self._excess > 0.0, self._excess > _OPENS

    def _is_back(self, level: float) -> tuple[bool, bool]:
        """Whether the batch counts towards clearing, and whether it clears."""
        back = self._sign * (level - self._clear) < 0.0
        return back, back and self._length == 1


def _finite(name: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name}: a finite number was wanted, got {value!r:.80}")
    return number


def _plain(value: object) -> bool:
    """Whether a part of a state is what ``state`` writes."""
    if isinstance(value, list):
        return len(value) <= _MOST_HELD and all(isinstance(v, (int, float)) and abs(v) < math.inf for v in value)
    return value is None or (isinstance(value, (int, float)) and -1e309 < value < 1e309)


def replay(steps: ArrayLike, values: ArrayLike, watch: _Stream[_Event]) -> list[_Event]:
    """All events of a whole series (n,), (n,), exactly as ``watch`` gives them row by row.

    ``watch`` takes the rows in: hand over a fresh one for another series, and the same one to go on with the same run.
    ValueError for unequal lengths.
    """
    x = np.asarray(steps, dtype=np.float64).ravel().tolist()
    y = np.asarray(values, dtype=np.float64).ravel().tolist()
    if len(x) != len(y):
        raise ValueError(f"{len(x)} steps but {len(y)} values")
    events = (watch.update(step, value) for step, value in zip(x, y, strict=True))
    return [event for event in events if event is not None]


def _normal_score(t: float, df: float) -> float:
    """Normal quantile with the tail of Student's ``t`` (Wallace 1959), within .01 up to 3.5 from 7 degrees on."""
    z = math.sqrt(df * math.log1p(t * t / df)) * (8.0 * df + 1.0) / (8.0 * df + 3.0)
    return math.copysign(z, t)
