"""Groups whose answers all earned the same: their share, at which end of the reward they agree, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlclinic import vitals
from rlclinic.answers import agreement
from rlclinic.answers.groups import END, Census, census
from rlclinic.answers.parts import success
from rlclinic.checks.form import Limits, NotApplicable, Unexamined
from rlclinic.checks.readings import now, since
from rlclinic.model import Column, Evidence, Finding, Knob, Onset, Run, Severity
from rlclinic.stats.groups import beta_binomial_zero_variance, expected_zero_variance
from rlclinic.stats.shift import crossing

GROUPED = ("grpo", "rloo", "opo", "gspo", "dr_grpo", "reinforce_plus_plus_baseline", "group_norm", "dapo")
"""Estimators that compare an answer with the others of its group."""
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
    counted: Census | None = None
    """The groups in the saved answers of the last quarter of their steps; None where nothing can be counted."""

    @property
    def says(self) -> str:
        """The share, what would be expected, the reward at which the groups agree, and what was counted."""
        if self.counted is None:
            return self._level
        return f"{self._level}; {_counts(self.counted)}"

    @property
    def mixed(self) -> bool:
        """True where counted groups agree at several ends and none of these has most of them."""
        counted = self.counted if self.scale and not self.scale.startswith("copies") else None
        return counted is not None and bool(counted.by) and not _majority(counted)

    @property
    def _level(self) -> str:
        bound = "at least " if self.at_least and self.share < 0.995 else ""
        reward = "" if self.reward is None else f" at reward {self.reward:.3g}"
        if self.implied:
            return f"{bound}{self.share:.0%} of groups have no reward spread{reward}: {self.column.note}"
        text = f"{bound}{self.share:.0%} of groups have no reward spread{reward}"
        if self.expected is not None and self.group_size is not None and self.counted is None:
            text += f" (groups of {self.group_size} at this pass rate: {self.expected:.0%} expected)"
        return text


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
    counted = _late_census(run)
    if counted is not None and share.key == agreement.KEY:  # one share, of one window
        level, pay = float(counted.dead.mean()), float(counted.reward.mean())
        place = None if run.reward_range is None else run.reward_range.share(pay)
    kind, scale = _kind_counted(counted) or _kind(run, pay, place)
    expected = None
    if size and place is not None and 0 <= place <= 1 and (counted is None or len(run.components) < 2):
        expected = _expected(run, place, int(size))
    bound = limits.at("share", Severity.WARNING if level > limits.at("share", Severity.WARNING) else Severity.INFO)
    began = _since_kind(run, kind, since(share, bound, level, told=bound)) if level > bound else None
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
        counted=counted,
    )


_COUNTED = 5
"""Dead groups that must be counted before they say at which end groups agree (ours)."""
_SAME = 0.8
"""Share of the dead groups with one text from which copies, not rewards, are what they have in common (ours)."""


def _late_census(run: Run) -> Census | None:
    """The groups of the last quarter of the saved steps, of at least three; None where nothing can be counted."""
    table = agreement.trusted(run)
    steps = np.empty(0) if table is None else table.steps
    if run.began is None and len(run.steps):
        steps = steps[steps >= run.steps[0]]
    if table is None or not len(steps):
        return None
    found = census(table).since(float(steps[-max(3, len(steps) // 4) :][0]))
    return found if len(found) else None


def odd_groups(run: Run) -> tuple[int, int] | None:
    """(live groups of the latest saved answers in which all but one are right, or all but one wrong; live groups); None
    where answers are not right or wrong."""
    table = agreement.trusted(run)
    right = None if table is None else success(table)
    late = _late_census(run)
    if table is None or right is None or late is None or not len(late):
        return None
    passed = table.sums(right)
    with np.errstate(invalid="ignore"):
        live = table.judged & (table.group_step >= late.step.min()) & (passed > 0) & (passed < table.size)
        odd = live & ((passed == 1) | (passed == table.size - 1))
    return int(odd.sum()), int(live.sum())


def share_at_top(run: Run) -> float | None:
    """The share of the latest saved answers whose reward is the most that any saved answer earned; None without any."""
    table, late = agreement.trusted(run), _late_census(run)
    if table is None or late is None:
        return None
    pay = table.reward[(table.step >= late.step.min()) & np.isfinite(table.reward)]
    low, high = np.nanmin(table.reward), np.nanmax(table.reward)
    return float((pay >= high - END * (high - low)).mean()) if len(pay) else None


def _kind_counted(counted: Census | None) -> tuple[Kind, str] | None:
    """At which end the counted dead groups agree; copies at both ends are neither: it is not the reward that ties them."""
    if counted is None or not counted.by or counted.dead.sum() < _COUNTED:
        return None
    right, wrong, middle = (int(kind.sum()) for kind in (counted.right, counted.wrong, counted.middle))
    dead = right + wrong + middle
    if copied(counted) >= _SAME and max(right, wrong) < _SAME * dead:
        return "middle", f"copies; {counted.by}"
    most = max(right, wrong, middle)
    return ("right" if most == right else "wrong" if most == wrong else "middle"), counted.by


def copied(counted: Census) -> float:
    """The share of the dead groups whose answers are one text; 0 without a dead group."""
    return float(counted.copies[counted.dead].mean()) if counted.dead.any() else 0.0


def _majority(counted: Census) -> bool:
    dead = int(counted.dead.sum())
    most = max(int(kind.sum()) for kind in (counted.right, counted.wrong, counted.middle))
    return dead < _COUNTED or 2 * most > dead


def _counts(counted: Census) -> str:
    """The counted groups that earn the same, of how many, and at which end."""
    kinds = (("all right", counted.right), ("all wrong", counted.wrong), ("tied in between", counted.middle))
    ends = [(int(kind.sum()), word) for word, kind in kinds if kind.any()] if counted.by else []
    dead = int(counted.dead.sum())
    told = ", ".join(word if many == dead else f"{many} {word}" for many, word in ends)
    text = f"in the saved answers {dead} of {len(counted)} groups from step {counted.step.min():g} on earn the same"
    text += f" ({told})" if told else ""
    if copied(counted) > 0.2:
        text += f", {int((counted.copies & counted.dead).sum())} of them with one text throughout"
    return text


def dead_finding(dead: Dead, run: Run, limits: Limits, kind: Kind, remedies: tuple[str, ...]) -> Finding:
    """The finding of the three zero-variance checks; each reports only its own kind."""
    mine = dead.kind == kind
    known = run.reward_range is not None or (dead.counted is not None and bool(dead.counted.by))
    ask = () if known else ("the attainable reward, or each reward part with its spread",)
    if dead.implied:
        ask = ("the share of dead groups itself, or the saved answers with their rewards", *ask)
    graded = limits.grade("share", dead.share) if mine else None
    severity = min(graded, Severity.INFO) if graded is not None and (dead.implied or dead.mixed) else graded
    if severity is not None and run.short and kind == "right" and not known:
        severity = min(severity, Severity.WARNING)  # a few rows do not tell whether more could be earned
    measured = severity is not None and not dead.implied and dead.column.status != "filtered"
    return Finding(
        severity=severity,
        says=dead.says if mine else f"{dead.says}, not of this kind",
        numbers={
            "share": dead.share,
            "first": dead.first,
            **({} if dead.expected is None else {"expected": dead.expected}),
            **({} if dead.reward is None else {"reward": dead.reward}),
            **_numbers(dead.counted),
        },
        metrics=tuple(m for m in ("group.zero_var_frac", "reward.mean", "reward.group_std") if m in run),
        onset=dead.onset if mine else None,
        evidence=Evidence(dead.share, None, f"{dead.column.key}; {dead.scale}"),
        # Answers of dead groups carried no gradient, also those that the group size makes unavoidable.
        wasted=float(np.mean(dead.column.finite.values)) if measured else None,
        remedies=remedies,
        would_decide=ask,
    )


def _numbers(counted: Census | None) -> dict[str, float]:
    if counted is None:
        return {}
    kinds = {"all_right": counted.right, "all_wrong": counted.wrong, "between": counted.middle}
    found = {name: float(kind.sum()) for name, kind in kinds.items()} if counted.by else {}
    one_text = float((counted.copies & counted.dead).sum())
    return {"groups": float(len(counted)), "dead_groups": float(counted.dead.sum()), **found, "one_text": one_text}


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
        if now(run, rows) <= 0.5 * (low + high):
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
    if unequal(run):
        return "middle", f"{unknown}; answers of one batch earn differently, those of a group do not"
    return ("right" if pay >= rows.max() - 0.1 * np.ptp(rows) else "middle"), unknown


def unequal(run: Run) -> bool:
    """Whether the answers of the latest batches did not all earn the same although those of nearly every group did.

    One live group in twenty gives the batch a spread as well, so with more of them it shows nothing of the others.
    """
    share = run.get("group.zero_var_frac")
    if share is not None and len(share.finite) and now(run, share.finite.values) < 0.95:
        return False
    most, least = run.get("reward.max"), run.get("reward.min")
    spreads = [run.get("reward.std"), *(part.std for part in run.components.values())]
    if most is not None and least is not None and len(most.finite) and len(least.finite):
        return now(run, most.finite.values) > now(run, least.finite.values)
    return any(c is not None and len(c.finite) > 0 and now(run, c.finite.values) > 0 for c in spreads)


def ungrouped(run: Run, size: Knob | None) -> str:
    """Words for groups of one answer under an estimator that needs others to compare with; empty where there are none."""
    if size is None or size.value != 1 or (run.algorithm or "").split("(")[0].strip() not in GROUPED:
        return ""
    spread, share = run.get("reward.group_std"), run.get("group.zero_var_frac")
    if (spread is not None and spread.finite.values.any()) or (share is not None and (share.finite.values < 1).any()):
        return ""  # groups that differ have more than one answer: the setting is of something else
    _, most, pay = run.paired("advantage.max", "reward.max")
    raw = len(most) > 0 and bool(np.allclose(most, pay, rtol=1e-3, atol=1e-6))
    proof = ", and the largest advantage equals the largest reward in every row" * raw
    return f"{size.key} = 1 with {run.algorithm}: a group of one answer has no baseline{proof}"
