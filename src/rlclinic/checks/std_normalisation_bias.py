"""Dividing by the spread inside the group gives the odd answer of a nearly solved (or hopeless) prompt the most weight.

## What you see
Rewards are divided by the group's standard deviation, and at the present success rate most live groups hold a single odd
answer. The largest advantages are a little below the square root of the group size (2.5 in groups of 8).

## Why it matters
One lapse on an easy prompt, or one lucky hit on a hopeless one, moves the policy more than a whole prompt of middling
difficulty. Learning on the prompts that matter slows down; the final score need not suffer.

## When it is not a problem
It is the default of most trainers and a choice of design; many good runs use it. At middling success rates groups are
balanced and the weighting hardly matters. Worse are continuous, noisy scores: see the check on judge noise.
"""

from math import sqrt

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.groups import odd_groups
from rlclinic.checks.readings import now
from rlclinic.model import SAVED, Evidence, Finding, Run
from rlclinic.stats.groups import expected_zero_variance


@check(page=__doc__, needs=["reward.mean"], uses=["reward.success_rate", "advantage.max", "advantage.min"], since="0.2")
def std_normalisation_bias(run: Run, limits: Limits) -> Answer:
    scaling, size = run.knob("scale_rewards"), run.number("group_size")
    if scaling in ("none", "batch") or run.algorithm in ("ppo", "gae", "rloo", "dr_grpo"):
        return NotApplicable("rewards are not divided by the spread inside the group")
    if scaling is None or size is None:
        return Unexamined((), "how rewards are scaled and how many answers a group has is not known")
    if size < 2:
        return NotApplicable("groups of one answer have no spread")
    rate = _rate(run)
    if rate is None:
        return Unexamined(("reward.success_rate",), "the success rate is not known")
    n = int(size)
    live = 1.0 - expected_zero_variance(rate, n)
    odd = n * (rate ** (n - 1) * (1 - rate) + (1 - rate) ** (n - 1) * rate)
    share = min(1.0, odd / live) if live > 1e-9 else 0.0
    counted = odd_groups(run)
    known = counted is not None and counted[1] >= limits["groups"]
    if counted is not None and known:
        share = counted[0] / counted[1]
    about = f"about {share:.0%} of the live groups of {n}"
    if counted is not None and known:
        about = f"{counted[0]} of {counted[1]} live groups of {n} in the saved answers"
    weight = (n - 1.0) / sqrt(n)  # of the deviation that trainers take, over n - 1 answers
    loud = limits.grade("share", share) if n >= limits["answers"] else None
    return Finding(
        severity=loud,
        says=f"rewards are divided by the group's spread; at a success rate of {_percent(rate)}"
        + (
            f", {about} hold one odd answer, with an advantage near {-weight if rate > 0.5 else weight:+.2g}"
            if loud is not None
            else " groups are mixed enough"
        ),
        numbers={"share": share, "rate": rate, "weight": weight},
        metrics=tuple(m for m in ("reward.mean", "reward.success_rate", "advantage.max", "advantage.min") if m in run),
        evidence=Evidence(
            share, None, f"{'counted' if known else 'binomial'} groups of {n}; {run.knobs['scale_rewards'].key}"
        ),
        remedies=("advantage_scaling",),
    )


def _percent(rate: float) -> str:
    """A share that never reads as none or all where it is neither."""
    return f"{rate:.0%}" if 0.01 <= rate <= 0.99 or rate in (0.0, 1.0) else f"{rate:.2%}"


def _rate(run: Run) -> float | None:
    """The share of right answers now: as logged, or the place of a right-or-wrong reward in its range."""
    rate, reward, known = run.get("reward.success_rate"), run["reward.mean"].finite, run.reward_range
    if rate is not None and len(rate.finite):
        return now(run, rate.finite.values)
    counted = run.get("group.pass_rate_mean")
    if counted is not None and counted.key == SAVED:
        return now(run, counted.finite.values)
    if known is None or not len(reward) or len(run.components) > 1:
        return None
    return min(1.0, max(0.0, known.share(now(run, reward.values))))
