"""The policy grows noisier while its reward does not: often the start of garbled text.

## What you see
Token entropy rises for a long stretch and the reward stays flat or falls; answers often grow longer.

## Why it matters
Random tokens earn nothing and make the importance ratios wild; a run that starts to garble seldom comes back.

## When it is not a problem
Reward or held-out score rises with it: a wider upper clip bound or new data buys exploration.
"""

from rlclinic.checks.form import Limits, check
from rlclinic.checks.readings import bought, lasting
from rlclinic.model import Evidence, Finding, Run, Severity
from rlclinic.stats.level import late


@check(page=__doc__, needs=["entropy.mean"], uses=["reward.mean", "eval.score", "entropy.coef"], points=20, since="0.1")
def entropy_rise(run: Run, limits: Limits) -> Finding:
    entropy = run["entropy.mean"]
    rise = lasting(entropy, falling=False, level=limits["p_value"])
    if rise is None or rise.change < limits["nats"]:
        level = late(entropy.finite.values)
        return Finding(severity=None, says=f"entropy is {level:.3g} nats per token, without a lasting rise",
                       numbers={"late": level}, metrics=("entropy.mean",))
    ratio = rise.late / rise.early if rise.early > 0 else float("inf")
    severity = limits.grade("ratio", ratio)
    gain = bought(run, since=rise.onset.step)
    if severity is not None and gain is not None:
        if gain.rising:
            severity = None
        elif gain.falling:
            severity = Severity.CRITICAL
    bonus = run.number("entropy_coef") or 0.0
    told = f"; {gain.says}" if gain is not None else ""
    return Finding(
        severity=severity,
        says=f"entropy rose from {rise.early:.3g} to {rise.late:.3g} nats per token{told}",
        numbers={"early": rise.early, "late": rise.late, "ratio": ratio},
        metrics=tuple(m for m in ("entropy.mean", "reward.mean", "eval.score") if m in run),
        onset=rise.onset,
        evidence=Evidence(ratio - 1, rise.p_value, rise.method),
        remedies=("entropy_bonus_off",) if bonus > 0 else ("lower_learning_rate", "dual_clip", "rollout_is_correction"),
        would_decide=() if bonus or "entropy_coef" in run.knobs else ("the entropy coefficient of the run",),
    )
