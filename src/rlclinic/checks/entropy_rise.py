"""The policy grows noisier while its reward does not: often the start of garbled text.

## What you see
Token entropy rises for a long stretch and the reward stays flat or falls; answers often grow longer.

## Why it matters
Random tokens earn nothing and make the importance ratios wild; a run that starts to garble seldom comes back.

## When it is not a problem
Reward or held-out score rises with it: a wider upper clip bound or new data buys exploration.
"""

import numpy as np

from rlclinic.checks.form import Limits, check
from rlclinic.checks.readings import at_seam, bought, lasting
from rlclinic.model import Evidence, Finding, Run, Severity
from rlclinic.stats.level import held, late
from rlclinic.stats.shift import crossing


@check(page=__doc__, needs=["entropy.mean"], uses=["reward.mean", "eval.score", "entropy.coef"], points=10, since="0.1")
def entropy_rise(run: Run, limits: Limits) -> Finding:
    entropy = run["entropy.mean"]
    rise = lasting(entropy, falling=False, level=limits["p_value"])
    if rise is None or rise.change < limits["nats"]:
        episode = _episode(run, limits)
        if episode is not None:
            return episode
        level = late(entropy.finite.values)
        return Finding(
            severity=None,
            says=f"entropy is {level:.3g} nats per token, without a lasting rise",
            numbers={"late": level},
            metrics=("entropy.mean",),
        )
    ratio = rise.late / rise.early if rise.early > 0 else float("inf")
    severity = limits.grade("ratio", ratio)
    gain = bought(run, since=rise.onset.step)
    if severity is not None and gain is not None:
        whole = bought(run, since=float(entropy.steps[0]))
        if gain.rising:
            severity = None
        elif not gain.falling and whole is not None and whole.rising:
            severity = Severity.INFO  # the run as a whole learns; too little since the onset to say more
        elif gain.falling:
            severity = Severity.CRITICAL
    bonus = run.number("entropy_coef") or 0.0
    told = f"; {gain.says}" if gain is not None else ""
    return Finding(
        severity=severity,
        says=f"entropy rose from {rise.early:.3g} to {rise.late:.3g} nats per token{told}"
        + at_seam(run, rise.onset, entropy.finite),
        numbers={"early": rise.early, "late": rise.late, "ratio": ratio},
        metrics=tuple(m for m in ("entropy.mean", "reward.mean", "eval.score") if m in run),
        onset=rise.onset,
        evidence=rise.sized(ratio - 1),
        remedies=("entropy_bonus_off",) if bonus > 0 else ("lower_learning_rate", "dual_clip", "rollout_is_correction"),
        would_decide=() if bonus or "entropy_coef" in run.knobs else ("the entropy coefficient of the run",),
    )


def _episode(run: Run, limits: Limits) -> Finding | None:
    """A rise that has since turned, but took the reward with it: the entropy exploded, and what is left is wreckage."""
    entropy, reward = run["entropy.mean"].finite, run.get("reward.mean")
    fall = lasting(reward, falling=True) if reward is not None else None
    if fall is None:
        return None
    means, width = held(entropy.values, 0.1, 3)
    top = int(np.argmax(means))
    first = float(np.median(entropy.values[:3]))
    peak = float(means[top])
    over = crossing(entropy.steps, entropy.values, first + 0.5 * (peak - first), above=True, last=False)
    early = over is not None and over.low <= fall.onset.high + 0.1 * float(entropy.steps[-1] - entropy.steps[0])
    if not early or peak - first < limits["nats"] or peak < limits["episode"] * max(first, 1e-12):
        return None
    return Finding(
        severity=Severity.CRITICAL,
        says=f"entropy rose from {first:.3g} to {peak:.3g} nats per token as the reward fell, then changed again",
        numbers={"early": first, "peak": peak, "late": late(entropy.values)},
        metrics=("entropy.mean", "reward.mean"),
        onset=over,
        evidence=Evidence(peak / max(first, 1e-12), None, f"highest mean of {width} rows against the first three"),
        remedies=("roll_back", "lower_learning_rate", "rollout_is_correction"),
        would_decide=(),
    )
