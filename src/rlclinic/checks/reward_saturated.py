"""The training reward sits at or near the top of what it can be: the task is solved, or the verifier passes everything.

## What you see
The mean reward is close to the attainable maximum; the spread within groups goes to zero.

## Why it matters
There is nothing left to learn from these prompts. If the held-out score does not stand as high, it is the verifier that
has been solved.

## When it is not a problem
The held-out score is high too and the run is at its end: stop, or bring harder data.
"""

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.groups import share_at_top
from rlclinic.checks.readings import bought, now
from rlclinic.model import SAVED, Column, Evidence, Finding, Onset, RewardRange, Run, Severity
from rlclinic.stats.shift import crossing


@check(
    page=__doc__, needs=["reward.mean"], uses=["eval.score", "group.zero_var_frac", "reward.success_rate"], since="0.1"
)
def reward_saturated(run: Run, limits: Limits) -> Answer:
    reward, span = run["reward.mean"].finite, run.reward_range
    success = run.get("reward.success_rate")
    if span is None and success is not None and len(success.finite):
        reward, span = success.finite, RewardRange(0.0, 1.0, f"the success rate {success.key}")
    if span is None:
        return Unexamined(("reward.max",), "the attainable reward is not known, so neither is the distance to it")
    beside = f" (reward {now(run, run['reward.mean'].finite.values):.3g}, of an unknown maximum)"
    what, beside = ("reward", "") if reward.metric == "reward.mean" else (reward.key, beside)
    share = span.share(now(run, reward.values))
    severity = limits.grade("share", share)
    top = span.low + limits.at("share", Severity.INFO) * (span.high - span.low)
    began = _since(reward, top, span.high) if severity else None
    held_out = run.get("eval.score")
    gain = bought(run, since=float(reward.steps[0])) if held_out is not None else None
    follows = gain is not None and gain.metric == "eval.score" and gain.rising
    if severity is not None and gain is not None and gain.metric == "eval.score" and gain.falling:
        severity = Severity.CRITICAL  # the verifier has been solved, not the task
    elif severity is not None and follows:
        severity = Severity.INFO
    elif severity == Severity.CRITICAL and held_out is None:
        severity = Severity.WARNING
    if severity is not None and reward.metric != "reward.mean" and run.short:
        severity = Severity.INFO  # what the reward itself can be is not known, and a few rows do not show how both go
    at_top = share_at_top(run) if severity is not None and SAVED in span.how else None
    if severity is not None and at_top is not None and at_top < limits["at_top"]:
        severity = Severity.INFO  # the most that any answer earned is no end where hardly any answer earns it
    told = "" if gain is None or gain.metric != "eval.score" else f"; {gain.says}"
    told += "" if at_top is None else f"; {at_top:.0%} of the latest saved answers earn the most that any did"
    return Finding(
        severity=severity,
        says=f"{what} {now(run, reward.values):.3g} is {share:.0%} of the attainable {span.high:.3g}{beside}{told}",
        numbers={"share": share, "maximum": span.high},
        metrics=tuple(m for m in (reward.metric, "eval.score", "group.zero_var_frac") if m in run),
        onset=began,
        evidence=Evidence(share, None, span.how),
        remedies=("audit_verifier", "harder_data", "stop_here"),
        would_decide=() if held_out is not None else ("a held-out score: is the task solved, or only the verifier?",),
    )


def _since(reward: Column, top: float, high: float) -> Onset | None:
    """Since when the reward is at ``top`` or above. A dip counts as leaving it from twice the distance to ``high`` on; so
    near the maximum a share of the level itself would be no distance at all."""
    first = crossing(reward.steps, reward.values, top, last=False)
    stays = crossing(reward.steps, reward.values, high - 2.0 * (high - top))
    if first is None or stays is None or first.step >= stays.step:
        return first
    later = reward.since(stays.step)
    return crossing(later.steps, later.values, top, last=False)
