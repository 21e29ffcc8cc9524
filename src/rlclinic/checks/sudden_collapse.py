"""A healthy run broke within a few steps: the reward fell off a cliff and stayed down.

## What you see
One or a few steps in which the reward loses most of what it had; length, entropy, KL or gradient jump near the same step.

## Why it matters
Nothing after the cliff is worth keeping. What moved first names the cause: mismatch, gradient, entropy, length, a
learning rate, or nothing but the reward, which points to the verifier.

## When it is not a problem
A change of data or reward made on purpose at that step.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import Raised, at_seam, rate_raised, wreck
from rlclinic.model import Evidence, Finding, Floats, Onset, Run, Severity
from rlclinic.stats.cliff import cliff as complete_fall
from rlclinic.stats.level import late
from rlclinic.stats.shift import steps_found

FEWEST_ROWS = 10
"""Rows below which no fall can be told from noise (ours); what is left of a collapse may still show."""
COMPANIONS = (
    "entropy.mean",
    "length.response.mean",
    "kl.ref",
    "grad.norm",
    "mismatch.logp_diff.mean",
    "length.truncated_frac",
    "optim.lr",
)


@check(page=__doc__, needs=["reward.mean"], uses=list(COMPANIONS), since="0.1")
def sudden_collapse(run: Run, limits: Limits) -> Answer:
    reward = run["reward.mean"].finite
    if len(reward) < FEWEST_ROWS:
        told = f"{len(reward)} rows; a cliff needs {FEWEST_ROWS}"
        return wreck(run, reward) or Unexamined(("reward.mean",), told)
    now = late(reward.values, 0.15)
    falls = [
        (step.size, _before(reward.steps, reward.values, step.step), Onset(step.step, step.low, step.high))
        for step in steps_found(reward.steps, reward.values, hidden=False)
        if step.jump < 0 and -step.jump >= limits["sharp"] * (_before(reward.steps, reward.values, step.step) - now)
    ]
    scanned = [at for _, _, at in falls]
    whole = complete_fall(reward.steps, reward.values, falling=True, whole=False)
    if whole is not None and whole.before - whole.near >= limits["sharp"] * (whole.before - now):
        falls.append((whole.size, whole.before, whole.onset))
    span = 0.0 if run.reward_range is None else run.reward_range.high - run.reward_range.low
    falls = [fall for fall in falls if fall[1] - now >= limits["least"] * span]
    judged = [(_lost(run, level, now, float(reward.values.min())), size, level, at) for size, level, at in falls]
    cliffs = [one for one in judged if one[0] >= limits["lost"] and one[1] >= limits["size"]]
    if not cliffs:
        return Finding(severity=None, says="no cliff in the reward", numbers={}, metrics=("reward.mean",))
    # A step of the scan is placed better than a separation, whose first rows may still lie on the old level.
    lost, size, level, at = next((one for one in cliffs if one[3] in scanned), cliffs[-1])
    near = 0.03 * float(reward.steps[-1] - reward.steps[0]) + float(np.median(np.diff(reward.steps)))
    moved = [(step, run[metric].key) for metric in COMPANIONS if (step := _jumped(run, metric, at, near, limits))]
    with_it = ", ".join(key for _, key in sorted(moved)[:3])
    told = f"; with it {with_it}" if with_it else "; nothing else jumped with it"
    remedies: tuple[str, ...] = ("roll_back", "lower_learning_rate") if moved else ("score_gold_answers", "roll_back")
    raised = _raised_before(run, at)
    if raised is not None:
        told = f" after {raised.says}"
        remedies = ("restore_learning_rate", "undo_change")
    return Finding(
        severity=Severity.CRITICAL,
        says=f"reward fell from a level of {level:.3g} to one of {now:.3g} around step {at.step:g} and stayed there{told}"
        + at_seam(run, at, reward),
        numbers={"before": level, "late": now, "lost": lost, "size": size},
        metrics=("reward.mean", *(m for m in COMPANIONS if m in run and any(k == run[m].key for _, k in moved))),
        onset=at,
        evidence=Evidence(size, None, "a step or a complete separation of levels, in noise deviations"),
        remedies=remedies,
        settings={} if raised is None else {"learning_rate": raised.before},
        would_decide=("what changed at that step: configuration, code, data, reward service",),
    )


def _jumped(run: Run, metric: str, at: Onset, near: float, limits: Limits) -> float | None:
    """When ``metric`` left its level around the cliff: by a step, or by values that all lie beyond those before it."""
    column = run.get(metric)
    if column is None or len(column.finite) < 20:
        return None
    c = column.finite
    found = [s.step for s in steps_found(c.steps, c.values, hidden=False) if s.size >= limits["size"] and s.before != 0]
    both = [complete_fall(c.steps, c.values, falling=falling, whole=False) for falling in (True, False)]
    found += [one.onset.step for one in both if one is not None and one.size >= limits["size"]]
    return next((step for step in found if abs(step - at.step) <= near), None)


def _raised_before(run: Run, at: Onset) -> Raised | None:
    """A jump of the learning rate at the cliff or a little before it: an input that moved first is the cause."""
    rate = run.get("optim.lr")
    raised = rate_raised(rate.finite) if rate is not None else None
    if raised is None or not at.low - 0.05 * float(np.ptp(run.steps)) <= raised.step <= at.high:
        return None
    return raised


def _before(steps: Floats, values: Floats, at: float) -> float:
    earlier = values[steps < at]
    return float(np.median(earlier[-max(5, len(earlier) // 3) :])) if len(earlier) else float("nan")


def _lost(run: Run, level: float, now: float, lowest: float) -> float:
    """What was lost for good, as a share of what had been earned above the lowest attainable (or seen) reward."""
    floor = run.reward_range.low if run.reward_range is not None else min(lowest, 0.0)
    return (level - now) / (level - floor) if level > floor else 0.0
