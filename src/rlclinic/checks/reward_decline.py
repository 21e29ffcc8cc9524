"""The reward fell from a level that it had held, and did not come back.

## What you see
After a better stretch the training reward, or the held-out score, sinks, slowly or in steps, and ends clearly below.

## Why it matters
The run is getting worse while it spends; the best checkpoint lies behind.

## When it is not a problem
The data became harder at that step (a curriculum stage), or the reward itself was changed.
"""

import numpy as np

from rlclinic.checks.form import Limits, check
from rlclinic.checks.readings import LEAST, lasting
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import held, late, mean_difference, rank_p
from rlclinic.stats.shift import onset, steps_found
from rlclinic.stats.trend import trend


@check(page=__doc__, needs=["reward.mean"], uses=["eval.score", "kl.ref", "entropy.mean"], points=10, since="0.1")
def reward_decline(run: Run, limits: Limits) -> Finding:
    reward = run["reward.mean"].finite
    means, width = held(reward.values)
    best = int(np.argmax(means[: max(1, len(means) - width)]))
    peak, level = float(means[best]), late(reward.values, 0.15)
    tail = reward.values[-max(5, int(0.15 * len(reward))) :]
    after = slice(best, len(reward))
    drops = [s for s in steps_found(reward.steps[after], reward.values[after]) if s.jump < 0]
    p_value, sd = mean_difference(reward.values[best : best + width], tail)
    slope = trend(reward.steps[after], reward.values[after], level=limits["p_value"])
    shown = slope.verdict == "falling" or any(s.before - level >= 0.5 * -s.jump for s in drops)
    # Two short windows say little about slow noise: alone they count only when far apart on every scale.
    apart = peak - level > max(limits["windows"] * sd, limits["few"] * abs(peak))
    shown = shown or (p_value <= limits["p_windows"] and apart)
    real = shown and peak - level > limits["noise"] * sd
    few = len(reward) < LEAST
    sharp = None if real else lasting(reward.since(float(reward.steps[best])) if few else reward, falling=True)
    if few and sharp is not None and (peak - sharp.late) < limits["few"] * peak:
        sharp = None  # choosing the best start of a handful of rows needs more than an ordinary loss
    if sharp is not None and (sharp.abrupt or few):
        # Near the start of a log no window holds the level before the fall; complete separation still shows it.
        real, peak = True, sharp.early
    floor = run.reward_range.low if run.reward_range is not None else min(float(reward.values.min()), 0.0)
    share = (peak - level) / (peak - floor) if peak > floor else 0.0
    span = 0.0 if run.reward_range is None else run.reward_range.high - run.reward_range.low
    severity = limits.grade("share", share) if real and peak - level >= limits["least"] * span else None
    if severity is None and (lost := _held_out(run, limits)) is not None:
        return lost
    if severity is None:
        return Finding(
            severity=None,
            says=f"reward holds its best level ({peak:.3g} held, {level:.3g} late)",
            numbers={"peak": peak, "late": level, "share": share},
            metrics=("reward.mean",),
        )
    if sharp is not None:
        since = sharp.onset
    elif drops:
        fall = max(drops, key=lambda s: -s.jump)
        since = Onset(fall.step, fall.low, fall.high)
    else:
        top = float(reward.steps[min(best + width - 1, len(reward) - 1)])
        since = onset(reward.steps[after], reward.values[after], direction=-1) or Onset(
            top, float(reward.steps[best]), top
        )
    return Finding(
        severity=severity,
        says=f"reward fell from a held {peak:.3g} to {level:.3g}, {share:.0%} of what it had earned",
        numbers={"peak": peak, "late": level, "share": share},
        metrics=("reward.mean",),
        onset=since,
        evidence=Evidence(share, slope.p_value, "trend after the best stretch, or a step that holds"),
        remedies=("roll_back", "lower_learning_rate", "kl_coefficient"),
        would_decide=("whether data or reward changed at that step",),
    )


def _held_out(run: Run, limits: Limits) -> Finding | None:
    """The same for the held-out score while the training reward holds; six evaluations at least, ranks after the best."""
    score = run.get("eval.score")
    if score is None or len(score.finite) < 6:
        return None
    c = score.finite
    pairs = (c.values[1:] + c.values[:-1]) / 2
    best = int(np.argmax(pairs[: max(1, len(pairs) - 2)]))
    peak, level = float(pairs[best]), float(np.median(c.values[-3:]))
    share = (peak - level) / abs(peak) if peak else 0.0
    p_value = rank_p(c.values[best:])
    if share < limits["held_out"] or p_value > limits["p_held_out"]:
        return None
    return Finding(
        severity=Severity.WARNING,
        says=f"held-out score fell from {peak:.3g} to {level:.3g} while the training reward held",
        numbers={"peak": peak, "late": level, "share": share},
        metrics=("eval.score", "reward.mean"),
        onset=Onset(float(c.steps[best + 1]), float(c.steps[best]), float(c.steps[min(best + 3, len(c) - 1)])),
        evidence=Evidence(share, p_value, "rank test on the evaluations after the best two"),
        remedies=("roll_back", "audit_verifier", "lower_learning_rate"),
        would_decide=("the answers with the highest reward since then",),
    )
