"""Readings that several checks share: a lasting change with its onset, what a change bought, groups without spread."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rlclinic import vitals
from rlclinic.checks.form import Limits, NotApplicable, Unexamined
from rlclinic.model import Column, Component, Evidence, Finding, Floats, Forecast, Onset, Run, Severity
from rlclinic.stats.cliff import apart, cliff
from rlclinic.stats.coupling import Coupling, coupled, fall
from rlclinic.stats.forecast import forecast
from rlclinic.stats.groups import beta_binomial_zero_variance, expected_zero_variance
from rlclinic.stats.level import answers_behind, early, late, late_mean, mean_difference, rank_p
from rlclinic.stats.seams import coincident
from rlclinic.stats.shift import crossing, lasting_change, onset, steps_found
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
    windows = lasting_change(c.steps, c.values)
    slope = trend(c.steps, c.values, level=level)
    by_trend = slope.verdict == ("falling" if falling else "rising")
    by_windows = windows.p_value is not None and windows.p_value <= level and sign * windows.change > 0
    agreeing = bool(held), by_trend, by_windows
    if held:
        first = max(held, key=lambda s: abs(s.jump))
        before = float(np.median(c.values[c.steps < first.step]))
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
    before = float(np.median(earlier)) if len(earlier) >= 3 else float(np.median(c.values[:5]))
    now = late(c.values, 0.1, 5)  # a drift is still under way: its end, not the middle of its last quarter
    if sign * (now - before) <= 0:
        return None
    snr = max(slope.snr, windows.snr)
    method = "trend test" if by_trend else "early against late window"
    p_value = slope.p_value if by_trend else windows.p_value
    # The windows hold two fifths of the run; the gate is on what the whole run is worth.
    n_eff = slope.n_eff if by_trend else windows.n_eff / 0.4
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
        sure = drift or (p_value <= level and abs(last - first) > (0.5 * sd if len(c) >= 12 else 0.0))
        rising, falling = sure and last > first, sure and last < first
        if sure:
            says = f"{name} {'rose' if rising else 'fell'} ({first:.3g} to {last:.3g})"
        elif abs(last - first) <= max(0.05 * abs(first), 0.01):
            says = f"{name} stayed near {last:.3g}"
        else:
            says = f"{name} went from {first:.3g} to {last:.3g}, too little to be sure"
        return Gain(metric, first, last, rising, falling, says)
    return None


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
    says = f"{name} fell ({fall.early:.3g} to {fall.late:.3g})"
    return Gain(gain.metric, fall.early, fall.late, rising=False, falling=True, says=says)


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
    if run.excerpt or run.knob("max_turns") is not None:
        return Unexamined(("agent.turns.mean", "agent.tool_calls.mean"), "neither turns nor tool calls are in this log")
    return NotApplicable("nothing in the log shows tools or conversations of several turns")


Kind = Literal["right", "wrong", "middle"]


@dataclass(frozen=True)
class Dead:
    """Groups whose answers all earned the same, so that they carry no gradient."""

    share: float
    first: float
    at_least: bool
    """True when only rows in which *every* group is dead can be seen: the share is then a lower bound."""
    implied: bool
    """True when nothing but the pass rate and the group size speaks of dead groups."""
    column: Column
    kind: Kind
    place: float | None
    reward: float | None
    expected: float | None
    """Share that the group size and the pass rate explain; a lower bound when the spread over prompts is unknown."""
    group_size: int | None
    scale: str
    onset: Onset | None

    @property
    def says(self) -> str:
        """The share, what would be expected, and the reward at which the groups agree."""
        bound = "at least " if self.at_least else ""
        reward = "" if self.reward is None else f" at reward {self.reward:.3g}"
        if self.implied:
            return f"{bound}{self.share:.0%} of groups have no reward spread{reward}: {self.column.note}"
        text = f"{bound}{self.share:.0%} of groups have no reward spread{reward}"
        if self.expected is not None and self.group_size is not None:
            text += f" (groups of {self.group_size} at this pass rate: {self.expected:.0%} expected)"
        return text


def now(run: Run, values: Floats) -> float:
    """The present level of a share: the last quarter's mean, or the last third (at least one row) of a short log."""
    return late_mean(values, 1 / 3, 1) if run.short else late_mean(values)


def since(column: Column, limit: float, level: float) -> Onset | None:
    """Since which step a share that ends at ``level`` has been beyond ``limit``.

    Where one step carries most of the climb, that step; where the share began near the limit, since the middle of its
    climb: the climb is then the event, not the crossing. Rows are averaged in fives from 20 rows on, so that one quiet
    row does not start the count anew.
    """
    c = column.finite
    if not len(c):
        return None
    values = c.values
    if len(values) >= 20:
        padded = np.pad(values, 2, mode="edge")
        values = np.convolve(padded, np.full(5, 0.2), mode="valid")
    first = float(np.median(c.values[: max(1, min(5, len(c) // 5))]))
    if first >= 0.8 * limit and level <= 1.3 * first:
        return Onset(float(c.steps[0]), float(c.steps[0]), float(c.steps[0]))  # it was there from the first row
    bound = 0.5 * (first + level) if first > 0.5 * limit and level > 1.3 * first else limit
    found = crossing(c.steps, values, bound, above=True)
    if found is None:
        return None
    steep = [s for s in steps_found(c.steps, c.values, hidden=False) if s.jump >= MOST_OF * (level - first) > 0]
    held = [s for s in steep if s.step >= found.step]
    if held:
        best = max(held, key=lambda s: s.jump)
        return Onset(best.step, best.low, best.high)
    # An average of five sees two rows ahead; the onset is the first row that is itself beyond.
    ahead = c.steps[(c.steps >= found.step) & (c.values >= bound)][:1]
    step = float(ahead[0]) if len(ahead) else found.step
    return Onset(step, min(found.low, step), max(found.high, step))


def dead_groups(run: Run, limits: Limits) -> Dead | Unexamined | NotApplicable:
    """The share of groups without reward spread and at which end of the reward they agree.

    A logged share counts when its meaning is certain; otherwise rows that prove all groups dead give a lower bound.
    """
    size = run.number("group_size")
    if size == 1:
        return NotApplicable("groups of one answer have no spread by construction; the notion does not apply")
    if run.algorithm == "ppo":
        return NotApplicable("PPO with a critic takes its baseline from the critic, not from groups")
    if "kl.teacher" in run and _never_paid(run):
        return NotApplicable("the reward is never paid in this run; the objective is distillation")
    share, at_least = run.get("group.zero_var_frac"), False
    if share is None or share.status == "structural_zero" or not len(share.finite):
        share, at_least = run.get("group.all_dead"), True
    few = share is None or (at_least and now(run, share.finite.values) < limits.at("share", Severity.INFO))
    implied = vitals.least_dead(run) if few else None
    if implied is not None and now(run, implied.values) >= limits.at("share", Severity.INFO):
        share, few = implied, False
    if share is None or not len(share.finite):
        return Unexamined(
            ("group.zero_var_frac", "reward.group_std"), "neither a share of dead groups nor a spread is logged"
        )
    c = share.finite
    level = now(run, c.values)
    if few:
        says = "only rows in which every group is dead can be seen, and they are few; the share itself is not logged"
        return Unexamined(("group.zero_var_frac",), says)
    reward = run.get("reward.mean")
    pay = now(run, reward.finite.values) if reward is not None and len(reward.finite) else None
    place = None if pay is None or run.reward_range is None else run.reward_range.share(pay)
    kind, scale = _kind(run, pay, place)
    expected = None
    if size and place is not None and 0 <= place <= 1:
        expected = _expected(run, place, int(size))
    bound = limits.at("share", Severity.WARNING if level > limits.at("share", Severity.WARNING) else Severity.INFO)
    began = _since_kind(run, kind, since(share, bound, level)) if level > bound else None
    return Dead(
        share=level,
        first=float(np.mean(c.values[: max(1, len(c) // 10)])),
        at_least=at_least,
        implied=share is implied,
        column=share,
        kind=kind,
        place=place,
        reward=pay,
        expected=expected,
        group_size=int(size) if size else None,
        scale=scale,
        onset=began,
    )


def dead_finding(dead: Dead, run: Run, limits: Limits, kind: Kind, remedies: tuple[str, ...]) -> Finding:
    """The finding of the three zero-variance checks; each reports only its own kind."""
    mine = dead.kind == kind
    ask = () if run.reward_range is not None else ("the attainable reward, or each reward part with its spread",)
    if dead.implied:
        ask = ("the share of dead groups itself, or the saved answers with their rewards", *ask)
    graded = limits.grade("share", dead.share) if mine else None
    severity = min(graded, Severity.INFO) if graded is not None and dead.implied else graded
    measured = severity is not None and not dead.implied and dead.column.status != "filtered"
    return Finding(
        severity=severity,
        says=dead.says if mine else f"{dead.says}, not of this kind",
        numbers={
            "share": dead.share,
            "first": dead.first,
            **({} if dead.expected is None else {"expected": dead.expected}),
            **({} if dead.reward is None else {"reward": dead.reward}),
        },
        metrics=tuple(m for m in ("group.zero_var_frac", "reward.mean", "reward.group_std") if m in run),
        onset=dead.onset if mine else None,
        evidence=Evidence(dead.share, None, f"{dead.column.key}; {dead.scale}"),
        # Answers of dead groups carried no gradient, also those that the group size makes unavoidable.
        wasted=float(np.mean(dead.column.finite.values)) if measured else None,
        remedies=remedies,
        would_decide=ask,
    )


def _since_kind(run: Run, kind: Kind, began: Onset | None) -> Onset | None:
    """The later of two events: groups died, and the reward came to the end at which they agree now.

    Groups of two agree often while most answers are right; when the policy breaks they go on agreeing, all wrong.
    """
    reward = run.get("reward.mean")
    if began is None or reward is None or kind == "middle" or not len(reward.finite):
        return began
    rows = reward.finite.values
    low, high = float(rows.min()), float(rows.max())
    if run.reward_range is not None:
        low, high = run.reward_range.low, run.reward_range.high
    moved = since(reward, 0.5 * (low + high), low) if kind == "right" else None
    if kind == "wrong":
        calm = np.convolve(np.pad(rows, 2, mode="edge"), np.full(5, 0.2), mode="valid") if len(rows) >= 20 else rows
        moved = crossing(reward.finite.steps, calm, 0.5 * (low + high), above=False)
    return moved if moved is not None and moved.step > began.step else began


def _never_paid(run: Run) -> bool:
    reward = run.get("reward.mean")
    return reward is not None and bool((reward.finite.values == 0).all())


def _expected(run: Run, place: float, size: int) -> float:
    spread = run.get("reward.group_std")
    span = 1.0 if run.reward_range is None else run.reward_range.high - run.reward_range.low
    if spread is not None and len(spread.finite) and 0 < place < 1:
        estimate = beta_binomial_zero_variance(place, now(run, spread.finite.values) / span, size)
        if estimate is not None:
            return estimate
    return float(expected_zero_variance(place, size))


def _kind(run: Run, pay: float | None, place: float | None) -> tuple[Kind, str]:
    """At which end of the reward the groups agree, and on what that rests."""
    right, wrong = run.get("group.all_correct_frac"), run.get("group.all_wrong_frac")
    if right is not None and wrong is not None and len(right.finite) and len(wrong.finite):
        return ("right" if now(run, right.finite.values) >= now(run, wrong.finite.values) else "wrong"), "logged shares"
    success = run.get("reward.success_rate")
    if success is not None and len(success.finite):
        return ("right" if now(run, success.finite.values) >= 0.5 else "wrong"), f"the success rate {success.key}"
    if place is not None and run.reward_range is not None:
        middle = "extremes seen" in run.reward_range.how or len(run.components) > 1
        if middle and 0.35 < place < 0.65:
            return "middle", run.reward_range.how
        return ("right" if place >= 0.5 else "wrong"), run.reward_range.how
    if pay is None:
        return "middle", "no reward is logged"
    rows = run["reward.mean"].finite.values
    unknown = "the attainable reward is not known"
    if pay <= 0 or (pay <= rows.min() + 0.1 * np.ptp(rows) and np.ptp(rows) > 0):
        return "wrong", unknown
    if rows.min() >= 0 and rows.max() <= 1:
        return ("right" if pay >= 0.65 else "wrong" if pay <= 0.35 else "middle"), "a reward in 0..1 is assumed"
    return ("right" if pay >= rows.max() - 0.1 * np.ptp(rows) else "middle"), unknown


_OF_THE_TASK = re.compile(r"accura|correct|exact|answer|solv|pass|success|task|outcome|ndcg|unit_?test|win_?rate", re.I)
_BESIDE_IT = re.compile(
    r"format|style|length|\blen|(^|_)tags?|xml|json|struct|penal|bonus|lang|repet|overlong|(xml|token|word)_?count|brev|concis|think|cit(e|ation)"
    r"|tool_?(use|call)|(^|_)int_",
    re.I,
)


def task_parts(run: Run) -> tuple[Component, ...]:
    """The reward parts that measure the task itself, as far as names tell: those called after correctness or, without
    such, what is left beside parts called after form, length or a bonus; none when the names tell nothing."""
    beside = [part for part in run.components.values() if _BESIDE_IT.search(part.name)]
    rest = [part for part in run.components.values() if part not in beside]
    named = [part for part in rest if _OF_THE_TASK.search(part.name)]
    return tuple(named or (rest if beside else ()))


def weighted_variances(run: Run) -> dict[str, Floats]:
    """(n,) variance over the batch that each part brings to the reward (weight and spread squared) at the rows that all
    share; empty when a spread or a weight is missing. Shares over a stretch are those of its sums: parts are taken as
    independent, and rows without any spread do not count."""
    parts = [part for part in run.components.values() if part.weight != 0.0]
    if len(parts) < 2 or any(part.std is None or part.weight is None for part in parts):
        return {}
    columns = [part.std.finite for part in parts if part.std is not None]
    steps = columns[0].steps
    for column in columns[1:]:
        steps = np.intersect1d(steps, column.steps, assume_unique=True)
    return {
        part.name: np.square((part.weight or 0.0) * column.values[np.searchsorted(column.steps, steps)])
        for part, column in zip(parts, columns, strict=True)
    }


def parts_named(run: Run, words: re.Pattern[str]) -> tuple[Component, ...]:
    """The reward parts whose names say what ``words`` look for, longest series first."""
    found = [part for part in run.components.values() if words.search(part.name) and len(part.mean.finite)]
    return tuple(sorted(found, key=lambda part: (-len(part.mean.finite), part.name)))


POLICY = ("entropy.mean", "length.response.mean", "length.truncated_frac")
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
        before, after = column.upto(np.nextafter(at, -np.inf)).values[-_ROWS:], column.since(at).values[:_ROWS]
        if not np.isfinite(after).all() and np.isfinite(before).all():
            moved.append(column.key)
            continue
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        if len(before) < 3 or len(after) < 3:
            continue
        change = abs(float(np.mean(after) - np.mean(before)))
        bound = _SHARE if metric.endswith("_frac") else _RELATIVE * abs(float(np.mean(before)))
        sure = change > bound and mean_difference(before, after).p_value <= 0.01
        (moved if sure else calm).append(column.key)
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
