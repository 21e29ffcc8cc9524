"""The training reward fell from a level that it had held, and did not come back.

## What you see
After a better stretch the reward sinks, slowly or in steps, and ends clearly below.

## Why it matters
The run is getting worse while it spends; the best checkpoint lies behind.

## When it is not a problem
The data became harder at that step (a curriculum stage), or the reward itself was changed.
"""

import numpy as np

from rlclinic.checks.form import Limits, check
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import held, late, mean_difference
from rlclinic.stats.shift import onset, steps_found


@check(page=__doc__, needs=["reward.mean"], uses=["eval.score", "kl.ref", "entropy.mean"], points=20, since="0.1")
def reward_decline(run: Run, limits: Limits) -> Finding:
    reward = run["reward.mean"].finite
    means, width = held(reward.values)
    best = int(np.argmax(means[: max(1, len(means) - width)]))
    peak, level = float(means[best]), late(reward.values, 0.15)
    tail = reward.values[-max(5, int(0.15 * len(reward))) :]
    lost = peak - level
    after = slice(best, len(reward))
    drops = [s for s in steps_found(reward.steps[after], reward.values[after]) if s.jump < 0]
    p_value, sd = mean_difference(reward.values[best : best + width], tail)
    low = float(means[: best + 1].min())
    scale = _scale(run, peak, low, float(means.min()))
    share = lost / scale if scale > 0 else 0.0
    gains = lost / (peak - low) if peak > low else 0.0
    real = lost > limits["noise"] * sd and p_value <= limits["p_value"]
    severity = limits.grade("share", share) if real else None
    if severity == Severity.WARNING and gains > 1.0 and share > 2 * limits.at("share", Severity.WARNING):
        severity = Severity.CRITICAL
    if severity is None:
        return Finding(severity=None, says=f"reward holds its best level ({peak:.3g} held, {level:.3g} late)",
                       numbers={"peak": peak, "late": level, "share": share}, metrics=("reward.mean",))
    if drops:
        fall = max(drops, key=lambda s: -s.jump)
        since = Onset(fall.step, fall.low, fall.high)
    else:
        top = float(reward.steps[min(best + width - 1, len(reward) - 1)])
        since = onset(reward.steps[after], reward.values[after], direction=-1) or Onset(top, float(reward.steps[best]), top)
    return Finding(
        severity=severity,
        says=f"reward fell from {peak:.3g}, held around step {reward.steps[min(best + width // 2, len(reward) - 1)]:g}, "
        f"to {level:.3g}",
        numbers={"peak": peak, "late": level, "share": share},
        metrics=("reward.mean",),
        onset=since,
        evidence=Evidence(share, p_value, "best held level against the end, corrected for autocorrelation"),
        remedies=("roll_back", "lower_learning_rate", "kl_coefficient"),
        would_decide=("whether data or reward changed at that step",),
    )


def _scale(run: Run, peak: float, low: float, least: float) -> float:
    """What a fall is measured against: the attainable range where known, else the level or the range travelled."""
    if run.reward_range is not None:
        return run.reward_range.high - run.reward_range.low
    return max(abs(peak), peak - low, peak - least)
