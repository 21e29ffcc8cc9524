"""Readings that several checks share: a lasting change with its onset, what a change bought, what is ahead."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlclinic.checks.form import NotApplicable, Unexamined
from rlclinic.model import SAVED, Column, Evidence, Finding, Floats, Forecast, Onset, Run, Severity
from rlclinic.stats.cliff import apart, cliff
from rlclinic.stats.coupling import Coupling, coupled, fall
from rlclinic.stats.curve import median_of
from rlclinic.stats.forecast import forecast
from rlclinic.stats.level import answers_behind, early, late, late_mean, mean_difference, rank_p
from rlclinic.stats.seams import coincident
from rlclinic.stats.shift import crossing, lasting_change, may_have_moved, onset, spikes, steps_found
from rlclinic.stats.trend import trend

SHARP = 5.0
"""Noise deviations between the two sides of a complete separation (ours: a healthy drift of 2,000 steps stays below)."""
MOST_OF = 0.5
"""Share of the whole change that a step must carry to be its onset (ours: a step inside a smooth rise carries less)."""
LEAST = 20
"""Points below which only complete separation is judged (ours: the step scan needs five on each side)."""


@dataclass(frozen=True)
class Lasting:
    """A change of level that holds to the end of the log."""

    early: float
    late: float
    snr: float
    """Size of the change in standard deviations of the row-to-row noise."""
    onset: Onset
    evidence: Evidence
    """Its effect is ``snr``; ``sized`` puts the effect of a check in its place."""
    abrupt: bool

    @property
    def change(self) -> float:
        return self.late - self.early

    def sized(self, effect: float) -> Evidence:
        """The evidence for a check that grades on another effect."""
        return replace(self.evidence, effect=effect)


def lasting(column: Column, *, falling: bool, level: float = 0.01) -> Lasting | None:
    """The lasting fall (or rise) of a column, or None when the evidence is not there.

    A step that holds, or a trend, or early against late windows; each corrected for autocorrelation; or complete
    separation, which is all that fewer than ``LEAST`` points allow.
    """
    c = column.finite
    sign = -1.0 if falling else 1.0
    if len(c) < LEAST:
        return _by_separation(c, falling)
    now = late(c.values)
    steps = [s for s in steps_found(c.steps, c.values, hidden=False) if sign * s.jump > 0]
    held = [
        s
        for s in steps
        if sign * (now - s.before) >= 0.5 * abs(s.jump) and abs(s.jump) >= MOST_OF * sign * (now - early(c.values))
    ]
    if not held and not may_have_moved(c.steps, c.values, -1 if falling else 1):
        return _by_separation(c, falling)
    windows = lasting_change(c.steps, c.values)
    slope = trend(c.steps, c.values, level=level)
    by_trend = slope.verdict == ("falling" if falling else "rising")
    by_windows = windows.p_value is not None and windows.p_value <= level and sign * windows.change > 0
    agreeing = bool(held), by_trend, by_windows
    if held:
        first = max(held, key=lambda s: abs(s.jump))
        before = median_of(c.values[c.steps < first.step])
        snr = abs(now - before) / first.sd if first.sd > 0 else float("inf")
        method = "step against a smooth curve, BIC, AR(1)-whitened"
        return Lasting(
            early=before,
            late=now,
            snr=snr,
            onset=Onset(first.step, first.low, first.high),
            evidence=Evidence(snr, first.p_value, method, n=len(c), agreeing=sum(agreeing) > 1 or None),
            abrupt=True,
        )
    if not by_trend and not (by_windows and windows.snr >= 1.0):
        return _by_separation(c, falling)
    began = onset(c.steps, c.values, direction=-1 if falling else 1)
    if began is None:
        began = Onset(float(c.steps[0]), float(c.steps[0]), float(c.steps[len(c) // 2]))
    earlier = c.values[c.steps < began.step]
    before = median_of(earlier) if len(earlier) >= 3 else median_of(c.values[:5])
    now = late(c.values, 0.1, 5)  # a drift is still under way: its end, not the middle of its last quarter
    if sign * (now - before) <= 0:
        return None
    snr = max(slope.snr, windows.snr)
    # A quick fall between two level stretches says little to a rank trend, and all to the windows at its two sides.
    surer = (
        by_windows and windows.p_value is not None and (not by_trend or 2 * windows.p_value < (slope.p_value or 0.0))
    )
    method = "early against late window" if surer else "trend test"
    p_value = slope.p_value if not surer else windows.p_value
    if surer and by_trend and windows.p_value is not None:
        p_value = 2 * windows.p_value  # the better of two tests
    # The windows hold two fifths of the run; the gate is on what the whole run is worth.
    n_eff = windows.n_eff / 0.4 if surer else slope.n_eff
    return Lasting(
        early=before,
        late=now,
        snr=snr,
        onset=began,
        evidence=Evidence(snr, p_value, method, n=len(c), n_eff=n_eff, agreeing=sum(agreeing) > 1 or None),
        abrupt=False,
    )


def _by_separation(c: Column, falling: bool) -> Lasting | None:
    """What a few rows can still show: every later value lies beyond every earlier one, and by far."""
    sharp, abrupt = cliff(c.steps, c.values, falling=falling), True
    if (sharp is None or sharp.size < SHARP) and len(c) < LEAST:
        sharp, abrupt = apart(c.steps, c.values, falling=falling), False
    if sharp is None or sharp.size < SHARP:
        return None
    method = "every later value lies beyond every earlier one" if abrupt else "first and last third do not overlap"
    return Lasting(
        early=sharp.before,
        late=sharp.after,
        snr=sharp.size,
        onset=sharp.onset,
        evidence=Evidence(sharp.size, None, method, n=len(c)),
        abrupt=abrupt,
    )


def likeliest(tests: list[Evidence], made: int, effect: float) -> Evidence:
    """Of ``made`` tests of one series, the one with the smallest p among those that showed something, times ``made``
    (Bonferroni)."""
    first = min(tests, key=lambda test: test.p_value or 0.0)
    p_value = min(1.0, made * (first.p_value or 0.0))
    return replace(first, effect=effect, p_value=p_value, agreeing=len(tests) > 1 or None)


def foreseen(column: Column, limit: float, what: str) -> Forecast | None:
    """When the present course of a column meets ``limit``, with an interval of 80 %; None where no course can be told,
    where it is past the limit, or where it will not be met within sight. ``what`` is the limit in words."""
    c = column.finite
    seen = forecast(c.steps, c.values, limit)
    if seen.verdict != "will" or not np.isfinite(seen.step):
        return None
    closed = bool(np.isfinite(seen.high))
    width = f"{seen.low:.0f} to {seen.high:.0f}" if closed else f"not before {seen.low:.0f}"
    says = f"on its present course it meets {what} near step {seen.step:.0f} ({width})"
    return Forecast(says, seen.step, seen.low, seen.high if closed else None)


def with_gradient(run: Run, at: Floats) -> int:
    """How many of the steps ``at`` are spikes of the gradient norm, too; 0 where fewer than 20 rows log it."""
    norm = run.get("grad.norm")
    if norm is None or len(norm.finite) < 20:
        return 0
    c = norm.finite
    return int(np.isin(at, c.steps[spikes(c.steps, c.values)]).sum())


def at_seam(run: Run, began: Onset | None, column: Column) -> str:
    """What the log itself shows at that time, a restart, a resume or a change of configuration, to append to a sentence;
    empty when nothing does, or when the interval is so wide that anything would."""
    found = None if began is None else coincident(began, run.seams, column.steps)
    return "" if found is None else f"; the log shows at step {found.step:g}: {found.event}"


@dataclass(frozen=True)
class Gain:
    """What the run gained or lost in the held-out score (or, without one, in training reward) over a stretch."""

    metric: str
    first: float
    last: float
    rising: bool
    falling: bool
    says: str


def bought(run: Run, since: float, level: float = 0.01) -> Gain | None:
    """What the stretch from ``since`` to the end bought; None when nothing there can be judged.

    The held-out score decides when it has at least six points in the stretch, else the training reward.
    """
    for metric, name, least in (("eval.score", "held-out score", 6), ("reward.mean", "reward", 12)):
        column = run.get(metric)
        if column is None:
            continue
        c = column.finite.since(since)
        if len(c) < least:
            continue
        third = max(2, len(c) // 3)
        first, last = float(np.mean(c.values[:third])), float(np.mean(c.values[-third:]))
        slope = trend(c.steps, c.values, level=level, share=metric == "eval.score")
        drift = slope.verdict in ("rising", "falling") and (slope.change > 0) == (last > first)
        if len(c) < 20:  # evaluations lie far apart, so ranks of a few may be taken as independent
            split = apart(c.steps, c.values, falling=last < first)
            drift = rank_p(c.values) <= level or (split is not None and abs(last - first) > 0.3 * abs(first))
        p_value, sd, _ = mean_difference(c.values[:third], c.values[-third:])
        # A held-out score is also held against its own best: what a policy could do and no longer can.
        sunk = metric == "eval.score" and last < first and _sinks(c, level)
        sure = drift or sunk or (p_value <= level and abs(last - first) > (0.5 * sd if len(c) >= 12 else 0.0))
        rising, falling = sure and last > first, sure and last < first
        span = "" if since <= column.finite.steps[0] else f" since step {c.steps[0]:g}"
        thirds = f"means of the first and last third{span}"
        if sure:
            says = f"{name} {'rose' if rising else 'fell'} {_course(c, first, last, thirds)}"
        elif abs(last - first) <= _near(first):
            says = f"{name} {_level(column.finite, c, third, span)}"
        else:
            says = f"{name} went from {first:.3g} to {last:.3g} ({thirds}), too little to be sure"
        return Gain(metric, first, last, rising, falling, says)
    return None


def _sinks(c: Column, level: float) -> bool:
    """Whether held-out scores fell from their best, for which few of them, each of many questions, are enough."""
    return fall(c.steps, c.values, questions=answers_behind(c.values)).p_value <= level


def _near(level: float) -> float:
    """How far from a level a value may lie and still be called near it."""
    return max(0.05 * abs(level), 0.01)


def _level(whole: Column, c: Column, third: int, span: str) -> str:
    """Words for a stretch ``c`` that ends where it began: it stayed only where its middle and the time before it agree."""
    first, last = float(np.mean(c.values[:third])), float(np.mean(c.values[-third:]))
    between = float(np.mean(c.values[third:-third])) if len(c) > 2 * third else last
    before = whole.values[whole.steps < c.steps[0]]
    earlier = float(np.mean(before)) if len(before) else last
    if abs(between - last) > _near(last):
        ends = f"{first:.3g} and {last:.3g}, means of the first and last third"
        return f"ends near where it began{span} ({ends}), with {between:.3g} between"
    if abs(earlier - last) > _near(last):
        return f"is near {last:.3g}{span}, {earlier:.3g} before (means)"
    return f"stayed near {last:.3g}"


def _course(c: Column, first: float, last: float, how: str) -> str:
    """ "from A to B" by the first and last value of a few evaluations, with their steps, where these show at least half of
    the change; else by ``first`` and ``last``, which are ``how``."""
    begun, ended = float(c.values[0]), float(c.values[-1])
    if c.metric == "eval.score" and len(c) <= FEW and (last == first or (ended - begun) / (last - first) >= 0.5):
        return f"from {begun:.3g} (step {c.steps[0]:g}) to {ended:.3g} (step {c.steps[-1]:g})"
    return f"from {first:.3g} to {last:.3g} ({how})"


def sank(column: Column, peak: float, late: float) -> str:
    """ "fell from a best A to B" by the logged values of a few evaluations, with their steps, where these show at least half
    of the fall; else by the smoothed levels ``peak`` and ``late``."""
    c = column.finite
    at = int(np.argmax(c.values))
    best, last = float(c.values[at]), float(c.values[-1])
    if len(c) <= FEW and best - last >= 0.5 * (peak - late):
        return f"fell from a best {best:.3g} (step {c.steps[at]:g}) to {last:.3g} (step {c.steps[-1]:g})"
    return f"fell from a best {peak:.3g} to {late:.3g} (smoothed)"


def came_of(run: Run, began: Onset, column: Column) -> Gain | None:
    """What a change of ``column`` that began then has brought, against the time before it; None when nothing can be judged.

    The stretch reaches back by a fifth of what has passed since: enough to begin before the change, too little to count
    what was learnt long before it. A fall that comes early in so few rows that ``bought`` is not sure of it is looked for
    in the whole column.
    """
    since = began.low - 0.2 * (float(column.steps[-1]) - began.low)
    gain = bought(run, since)
    if gain is None or gain.rising or gain.falling:
        return gain
    fall = lasting(run[gain.metric], falling=True)
    if fall is None or fall.onset.high < since:
        return gain
    name = "held-out score" if gain.metric == "eval.score" else "reward"
    says = f"{name} fell {_course(run[gain.metric].finite, fall.early, fall.late, 'levels before and after')}"
    return Gain(gain.metric, fall.early, fall.late, rising=False, falling=True, says=says)


def steady_length(column: Column, change: Lasting | None, effect: float) -> Finding:
    """The answer of a check of lengths that found no change to speak of, with what it saw of one."""
    level, first = late(column.finite.values, 0.1, 5), early(column.finite.values, 0.1, 5)
    return Finding(
        severity=None,
        says=f"answers take {level:.0f} tokens, {first:.0f} at the start",
        numbers={"late": level, "early": first},
        metrics=(column.metric,),
        evidence=Evidence(effect, None, "lasting change of level") if change is None else change.sized(effect),
    )


def ahead(run: Run, column: Column, limit: float, what: str) -> Forecast | None:
    """When ``column`` meets ``limit`` if it goes on like this, looked for up to the planned end (or as far again as the
    log reaches, where none is known); None unless that is likely. ``what`` says in words what is met then."""
    c = column.finite
    if not len(c):
        return None
    last = float(c.steps[-1])
    left = run.planned_steps - last if run.planned_steps else last - float(c.steps[0])
    seen = forecast(c.steps, c.values, limit, horizon=left) if left > 0 else None
    if seen is None or seen.verdict != "will":
        return None
    low = max(seen.low, last)
    high = seen.high if np.isfinite(seen.high) else None
    span = f"from step {low:.0f} on" if high is None else f"step {low:.0f} to {high:.0f}"
    return Forecast(
        f"{what} near step {seen.step:.0f} ({span}) if it goes on like this", max(seen.step, low), low, high
    )


def agentic(run: Run) -> Unexamined | NotApplicable | None:
    """Why a question about tools and turns cannot be asked of this run; None when the log shows conversations of more
    than one exchange."""
    turns = run.get("agent.turns.max") or run.get("agent.turns.mean")
    if any(m in run for m in ("agent.tool_calls.mean", "agent.tool_fail_frac", "agent.max_turns_frac")):
        return None
    if turns is not None and len(turns.finite):
        # A framework that counts messages shows 2 for a single exchange.
        return None if turns.finite.values.max() > 2 else NotApplicable("every conversation is a single exchange")
    if run.partial or run.knob("max_turns") is not None:
        return Unexamined(("agent.turns.mean", "agent.tool_calls.mean"), "neither turns nor tool calls are in this log")
    return NotApplicable("nothing in the log shows tools or conversations of several turns")


def now(run: Run, values: Floats) -> float:
    """The present level of a share: the last quarter's mean, or the last third (at least one row) of a short log."""
    return late_mean(values, 1 / 3, 1) if run.short else late_mean(values)


def since(column: Column, limit: float, level: float, *, told: float | None = None) -> Onset | None:
    """Since which step a share that ends at ``level`` has been beyond ``limit``.

    Where one step carries most of the climb, that step; where the share began near the limit, since the middle of its
    climb: the climb is then the event, not the crossing. ``told`` is the number of the severity that is told: a share that
    was beyond it from the first rows on and never left has been so from the first row, however much it climbs later. Rows
    are averaged in fives from 20 rows on, so that one quiet row does not start the count anew.
    """
    c = column.finite
    if not len(c):
        return None
    values = c.values
    if len(values) >= 20:
        padded = np.pad(values, 2, mode="edge")
        values = np.convolve(padded, np.full(5, 0.2), mode="valid")
    first = median_of(c.values[: max(1, min(5, len(c) // 5))])
    if first >= 0.8 * limit and level <= 1.3 * first:
        return Onset(float(c.steps[0]), float(c.steps[0]), float(c.steps[0]))  # it was there from the first row
    bound = 0.5 * (first + level) if first > 0.5 * limit and level > 1.3 * first else limit
    found = crossing(c.steps, values, bound, above=True)
    if found is None:
        return None
    steep = [s for s in steps_found(c.steps, c.values, hidden=False) if s.jump >= MOST_OF * (level - first) > 0]
    if told is not None and first >= told and crossing(c.steps, values, 0.8 * told, above=False, last=False) is None:
        steep = [s for s in steep if s.jump >= first]  # what doubles at once is another event
        if not steep:
            return Onset(float(c.steps[0]), float(c.steps[0]), float(c.steps[0]))
    held = [s for s in steep if s.step >= found.step]
    if held:
        best = max(held, key=lambda s: s.jump)
        return Onset(best.step, best.low, best.high)
    # An average of five sees two rows ahead; the onset is the first row that is itself beyond.
    ahead = c.steps[(c.steps >= found.step) & (c.values >= bound)][:1]
    step = float(ahead[0]) if len(ahead) else found.step
    return Onset(step, min(found.low, step), max(found.high, step))


POLICY = ("entropy.mean", "length.response.mean", "length.truncated_frac")
_CALLED = {
    "entropy.mean": "entropy",
    "length.response.mean": "answer length",
    "length.truncated_frac": "the share of cut answers",
}
"""What the policy's own series are called where no log has a key for them."""
_RELATIVE, _SHARE, _ROWS = 0.25, 0.10, 20
"""Change of a level, and of a share, up to which the policy went on as before, over so many rows on either side (ours:
collapses change length or entropy by half and more within ten rows)."""


def policy_at(run: Run, at: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The log keys of the policy's own series that moved at a step, and of those that went on as before, by their rows on
    either side."""
    moved: list[str] = []
    calm: list[str] = []
    for metric in POLICY:
        column = run.get(metric)
        if column is None:
            continue
        name = _CALLED[metric] if column.key == SAVED else column.key
        before, after = column.upto(np.nextafter(at, -np.inf)).values[-_ROWS:], column.since(at).values[:_ROWS]
        if not np.isfinite(after).all() and np.isfinite(before).all():
            moved.append(name)
            continue
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        if len(before) < 3 or len(after) < 3:
            continue
        change = abs(float(np.mean(after) - np.mean(before)))
        bound = _SHARE if metric.endswith("_frac") else _RELATIVE * abs(float(np.mean(before)))
        sure = change > bound and mean_difference(before, after).p_value <= 0.01
        (moved if sure else calm).append(name)
    return tuple(moved), tuple(calm)


FEW = 40
"""Rows of a signal below which its noise cannot be told from a steep course (ours: 15 rows leave a spline one column)."""


def left_behind(signal: Column, outcome: Column, level: float, *, held_out: bool) -> Coupling | None:
    """How ``outcome`` fell or stood still while ``signal`` rose on, by ``coupled`` at ``level``; None when it did not.

    Of fewer than ``FEW`` rows of the signal, their ranks since the best of the outcome say whether it rose on.
    """
    questions = answers_behind(outcome.values) if held_out else None
    seen = coupled(signal.steps, signal.values, outcome.steps, outcome.values, questions=questions)
    if seen.verdict in ("falling", "stalled", "no_transfer"):
        return seen if seen.p_value <= level else None
    turn = fall(outcome.steps, outcome.values, questions=questions) if len(signal) < FEW else None
    if turn is None or turn.rollback is None or turn.p_value > level:
        return None
    on = signal.since(turn.rollback.step).values
    third = max(2, len(on) // 3)
    rise = float(np.mean(on[-third:]) - np.mean(on[:third]))
    if turn.drop <= max(1.4 * turn.sd, 0.05 * abs(turn.peak)) or rise <= 0.0 or rank_p(on) > level:
        return None
    seen = seen._replace(verdict="falling", reason="", rise=rise, effect=turn.drop, p_value=turn.p_value)
    return seen._replace(peak=turn.peak, late=turn.late, rollback=turn.rollback)


UPDATE = ("grad.norm", "loss.total", "loss.policy", "kl.ref", "entropy.mean")
"""Series of the update itself; not finite, they mean that the weights are."""


def wreck(run: Run, reward: Column) -> Finding | None:
    """What a few pasted rows show of a collapse that is over: numbers of the update that are no numbers, and answers that
    are all alike, in length and in the least reward."""
    if not run.short:
        return None
    low, high = (run.get(f"length.response.{end}") for end in ("min", "max"))
    least, most = run.get("reward.min"), run.get("reward.max")
    lost = [run[m] for m in UPDATE if m in run and run[m].nonfinite]
    ends = [column.finite.values[-1:] for column in (low, high, least, most) if column is not None]
    if not lost or len(ends) < 4 or not all(len(end) for end in ends):
        return None
    if ends[0][0] != ends[1][0] or ends[2][0] != ends[3][0] or ends[2][0] > 0:
        return None
    step = float(lost[0].steps[~np.isfinite(lost[0].values)][0])
    return Finding(
        severity=Severity.CRITICAL,
        says=f"{', '.join(c.key for c in lost[:3])} not finite, every answer {ends[0][0]:g} tokens long and worth "
        f"{ends[2][0]:g}: the policy is destroyed; when it broke stands in the rows before these",
        numbers={"late": float(reward.values[-1])},
        metrics=("reward.mean", *(c.metric for c in lost[:3])),
        onset=Onset(step, float(reward.steps[0]), step),
        evidence=Evidence(float(len(lost)), None, "the last row shown"),
        remedies=("roll_back",),
        would_decide=("the rows before the first value that is not finite",),
    )


@dataclass(frozen=True)
class Raised:
    """A jump of the learning rate in the middle of a run, which no schedule makes."""

    key: str
    step: float
    before: float
    after: float

    @property
    def says(self) -> str:
        return f"{self.key} rose from {self.before:.2g} to {self.after:.2g} at step {self.step:g}"


def rate_raised(rate: Column) -> Raised | None:
    """The last step, behind the first twentieth of the rows, at which the rate at least doubled from one row to the next;
    None for a warm-up, also one that begins again after a resume."""
    if len(rate) < 3:
        return None
    ratio = rate.values[1:] / np.maximum(rate.values[:-1], 1e-300)
    jumps = np.flatnonzero((rate.values[:-1] > 0) & (ratio >= 2))
    jumps = jumps[jumps >= 0.05 * len(rate)]
    if not len(jumps):
        return None
    i = int(jumps[-1])
    before = float(rate.values[i])
    if before < 0.05 * float(rate.values[: i + 1].max()):
        return None
    return Raised(rate.key, float(rate.steps[i + 1]), before, float(rate.values[i + 1]))


def lost_for_good(run: Run, p_value: float, least: float) -> str | None:
    """What the held-out score, else the reward, lost for good since its best, in words, where that is at least the share
    ``least`` of what it had gained; None when nothing is shown."""
    for metric, name in ("eval.score", "held-out score"), ("reward.mean", "reward"):
        column = run.get(metric)
        if column is None or len(column.finite) < 10:
            continue
        c = column.finite
        lost = fall(c.steps, c.values)
        floor = (
            run.reward_range.low if run.reward_range is not None and metric == "reward.mean" else float(c.values.min())
        )
        if lost.p_value <= p_value and lost.drop >= least * (lost.peak - floor) > 0:
            return f"{name} {sank(c, lost.peak, lost.late)}"
        # What is lost within the first rows leaves no peak to fall from, but a step.
        sharp = lasting(c, falling=True)
        if sharp is not None and sharp.abrupt and -sharp.change >= least * (sharp.early - floor) > 0:
            return f"{name} fell from {sharp.early:.3g} to {sharp.late:.3g} around step {sharp.onset.step:g}"
    return None


def rises(run: Run, *, falling: bool = False) -> bool:
    """Whether the training reward ends higher (or lower) than it began, by a quarter of all that it moved or more."""
    reward = run.get("reward.mean")
    values = np.empty(0) if reward is None else reward.finite.values
    sign = -1.0 if falling else 1.0
    return len(values) > 2 and sign * (late(values) - early(values)) > 0.25 * float(np.ptp(values))
