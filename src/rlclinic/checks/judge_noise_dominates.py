"""Noise of the judge is a large part of what tells the answers of a group apart.

## What you see
A continuous reward whose spread within groups is tiny beside its range, while every group counts as alive and advantages
have their full size; or a judge's score that does not rise while the policy moves and the held-out score does not gain.
Saved answers show it exactly: the same text, twice in one group, earns different rewards.

## Why it matters
Dividing by the spread inside the group blows differences of a hundredth up to full advantages. The policy then follows
the judge's dice: gradients look normal, nothing improves, entropy and held-out score wander off.

## When it is not a problem
The reward rises: then the differences mean something. Groups whose answers all earn the same have no spread and no
advantage either. A plateau with real differences between answers looks alike; scoring the same answers twice tells.
"""

import re

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import Gain, bought, lasting, now
from rlclinic.checks.rescored import noisy
from rlclinic.checks.rewards import parts_named
from rlclinic.model import Evidence, Finding, Run, Severity
from rlclinic.stats.level import late

_JUDGE = re.compile(
    r"judge|grader|rubric|llm|(^|[^a-z])rm($|[^a-z])|reward_?model|preference|quality|helpful|similar|rouge|bleu|bert",
    re.I,
)


@check(
    page=__doc__,
    needs=["reward.mean"],
    uses=["reward.group_std", "group.zero_var_frac", "advantage.max", "eval.score", "entropy.mean"],
    since="0.2",
)
def judge_noise_dominates(run: Run, limits: Limits) -> Answer:
    exact = noisy(run, limits)
    if exact is not None:
        return exact
    known = run.reward_range
    whole = known is not None and all(float(end).is_integer() for end in (known.low, known.high))
    if known is not None and ("right-or-wrong" in known.how or "success" in known.how or whole):
        return NotApplicable("the reward is right or wrong, as far as the log shows; there are no shades to be noisy")
    alive = _alive(run)
    gain = bought(run, since=float(run["reward.mean"].finite.steps[0]))
    spread, span = _spread(run), _range(run)
    told, severity, share = "", None, None
    if spread is not None and span is not None and alive is not None and alive > limits["alive"]:
        share = spread / alive / span
        severity = limits.grade("spread", share)
        if severity is not None and (run.short or (gain is not None and gain.rising)):
            severity = Severity.INFO
        if severity is not None and run.knob("scale_rewards") in ("none", "batch"):
            severity = Severity.INFO  # nothing blows the differences up
        told = f"answers of one prompt differ by {spread / alive:.2g} in reward, {share:.1%} of its range"
    wandering = None if severity is not None else _wanders(run, alive, gain, limits)
    if wandering is not None:
        severity, told = Severity.WARNING, wandering
    if not told:
        return Unexamined(
            ("reward.group_std", "group.zero_var_frac"),
            "the spread within live groups and the range of the reward are not known",
        )
    says = told + (f"; {gain.says}" if severity is not None and gain is not None else "")
    return Finding(
        severity=severity,
        says=says + ("; consistent with noise of the scoring" if severity is not None else ""),
        numbers={**({} if share is None else {"share": share}), **({} if alive is None else {"alive": alive})},
        metrics=tuple(m for m in ("reward.group_std", "reward.mean", "group.zero_var_frac", "eval.score") if m in run),
        evidence=Evidence(share or 0.0, None, "spread within live groups beside the range of the reward"),
        remedies=("score_twice", "calm_judge", "advantage_scaling", "zero_variance_filter"),
        would_decide=("50 saved answers scored twice: how far do the two scores of one answer lie apart?",)
        if severity
        else (),
    )


def _alive(run: Run) -> float | None:
    """The share of groups with some spread, or 1 where the size of the advantages proves that most have it."""
    dead, most = run.get("group.zero_var_frac"), run.get("advantage.max")
    if dead is not None and dead.status == "measured" and len(dead.finite):
        return 1.0 - now(run, dead.finite.values)
    return 1.0 if most is not None and len(most.finite) and now(run, most.finite.values) > 1.0 else None


def _spread(run: Run) -> float | None:
    column = run.get("reward.group_std")
    return None if column is None or not len(column.finite) else late(column.finite.values, least=1)


def _range(run: Run) -> float | None:
    """The range of the reward: attainable, or 1 where every mean lies in 0..1, or four deviations of the batch."""
    if run.reward_range is not None:
        return run.reward_range.high - run.reward_range.low
    rows, batch = run["reward.mean"].finite.values, run.get("reward.std")
    if batch is not None and len(batch.finite) and late(batch.finite.values) > 0:
        return 4 * late(batch.finite.values)
    return 1.0 if rows.min() >= 0 and rows.max() <= 1 else None


def _wanders(run: Run, alive: float | None, gain: Gain | None, limits: Limits) -> str | None:
    """Words for a judge's score that stays while the policy moves away from what the held-out score wants."""
    judges = parts_named(run, _JUDGE)
    if (
        not judges
        or len(run.components) > 1
        or alive is None
        or alive <= limits["alive"]
        or len(run.steps) < limits["rows"]
    ):
        return None
    judge = judges[0]
    if lasting(judge.mean, falling=False) is not None or gain is None or gain.rising:
        return None
    entropy = run.get("entropy.mean")
    moved = entropy is not None and any(lasting(entropy, falling=way) is not None for way in (True, False))
    if not (gain.falling and gain.metric == "eval.score") and not moved:
        return None
    return f"{judge.name} did not rise in {len(judge.mean.finite)} rows although {alive:.0%} of groups are alive"
