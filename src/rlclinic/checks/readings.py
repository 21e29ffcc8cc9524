"""Readings that several checks share: a lasting change with its onset, what a change bought, groups without spread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rlclinic.checks.form import Limits, NotApplicable, Unexamined
from rlclinic.model import Column, Evidence, Finding, Floats, Onset, Run, Severity
from rlclinic.stats.cliff import apart, cliff
from rlclinic.stats.groups import beta_binomial_zero_variance, expected_zero_variance
from rlclinic.stats.level import early, late, late_mean, mean_difference, rank_p
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


Kind = Literal["right", "wrong", "middle"]


@dataclass(frozen=True)
class Dead:
    """Groups whose answers all earned the same, so that they carry no gradient."""

    share: float
    first: float
    at_least: bool
    """True when only rows in which *every* group is dead can be seen: the share is then a lower bound."""
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
    if share is None or not len(share.finite):
        return Unexamined(
            ("group.zero_var_frac", "reward.group_std"), "neither a share of dead groups nor a spread is logged"
        )
    c = share.finite
    level = now(run, c.values)
    if at_least and level < limits.at("share", Severity.INFO):
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
    return Finding(
        severity=limits.grade("share", dead.share) if mine else None,
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
