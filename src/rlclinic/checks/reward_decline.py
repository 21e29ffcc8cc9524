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
from rlclinic.checks.readings import LEAST, at_seam, lasting, likeliest, rises, sank
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.coupling import fall
from rlclinic.stats.level import answers_behind, held, late, mean_difference
from rlclinic.stats.shift import Shift, onset, steps_found
from rlclinic.stats.trend import trend


@check(page=__doc__, needs=["reward.mean"], uses=["eval.score", "kl.ref", "entropy.mean"], points=10, since="0.1")
def reward_decline(run: Run, limits: Limits) -> Finding:
    reward = run["reward.mean"].finite
    means, width = held(reward.values)
    best = int(np.argmax(means[: max(1, len(means) - width)]))
    peak, level = float(means[best]), late(reward.values, 0.15)
    after = slice(best, len(reward))
    drops = [s for s in steps_found(reward.steps[after], reward.values[after], hidden=False) if s.jump < 0]
    tests, sd = _shown(reward, best, width, drops, peak - level, limits)
    real = bool(tests) and peak - level > limits["noise"] * sd
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
        began = onset(reward.steps[after], reward.values[after], direction=-1)
        since = began or Onset(top, float(reward.steps[best]), top)
    return Finding(
        severity=severity,
        says=f"reward fell from a held level of {peak:.3g} to one of {level:.3g}, {share:.0%} of what it had earned"
        + at_seam(run, since, reward),
        numbers={"peak": peak, "late": level, "share": share},
        metrics=("reward.mean",),
        onset=since,
        evidence=likeliest(tests, 3, share) if sharp is None else sharp.sized(share),
        remedies=("roll_back", "lower_learning_rate", "kl_coefficient"),
        would_decide=("whether data or reward changed at that step",),
    )


def _shown(
    reward: Column, best: int, width: int, drops: list[Shift], lost: float, limits: Limits
) -> tuple[list[Evidence], float]:
    """Every test by which the reward fell after its best stretch, and the noise inside the two stretches compared."""
    after, level = reward.since(float(reward.steps[best])), late(reward.values, 0.15)
    tests = [
        Evidence(s.size, s.p_value, "a step after the best stretch that holds", n=len(after))
        for s in drops
        if s.before - level >= 0.5 * -s.jump
    ]
    slope = trend(after.steps, after.values, level=limits["p_value"])
    if slope.verdict == "falling":
        tests.append(Evidence(slope.snr, slope.p_value, "trend after the best stretch", n=slope.n, n_eff=slope.n_eff))
    tail = reward.values[-max(5, int(0.15 * len(reward))) :]
    stretch = reward.values[best : best + width]
    p_value, sd, n_eff = mean_difference(stretch, tail)
    # Two short windows say little about slow noise: alone they count only when far apart on every scale.
    if p_value <= limits["p_windows"] and lost > max(
        limits["windows"] * sd, limits["few"] * abs(float(stretch.mean()))
    ):
        tests.append(
            Evidence(lost / sd if sd > 0 else np.inf, p_value, "best stretch against the last", len(reward), n_eff)
        )
    return tests, sd


def _held_out(run: Run, limits: Limits) -> Finding | None:
    """The same for the held-out score while the training reward holds."""
    score = run.get("eval.score")
    if score is None:
        return None
    c = score.finite
    lost = fall(c.steps, c.values, questions=answers_behind(c.values))
    share = lost.drop / abs(lost.peak) if lost.peak else 0.0
    if lost.rollback is None or not (share >= limits["held_out"] and lost.p_value <= limits["p_held_out"]):
        return None
    lower = rises(run, falling=True)
    meanwhile = "rose" if rises(run) else "ended lower, too" if lower else "held"
    audit = () if lower else ("audit_verifier",)  # a reward that sinks beside it shows damage, not a false reward
    return Finding(
        severity=Severity.WARNING,
        title="The held-out score fell from a level that it had held, and did not come back.",
        says=f"held-out score {sank(c, lost.peak, lost.late)} while the training reward {meanwhile}",
        numbers={"peak": lost.peak, "late": lost.late, "share": share},
        metrics=("eval.score", "reward.mean"),
        onset=lost.rollback,
        evidence=Evidence(share, lost.p_value, "order-restricted test of a rise that turns into a fall", n=lost.m),
        remedies=("roll_back", *audit, "lower_learning_rate"),
        would_decide=() if lower else ("the answers with the highest reward since then",),
    )
