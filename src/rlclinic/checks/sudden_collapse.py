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

from rlclinic.checks.form import Limits, check
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import late
from rlclinic.stats.shift import steps_found

COMPANIONS = ("entropy.mean", "length.response.mean", "kl.ref", "grad.norm", "mismatch.logp_diff.mean",
              "length.truncated_frac", "optim.lr")


@check(page=__doc__, needs=["reward.mean"], uses=list(COMPANIONS), points=20, since="0.1")
def sudden_collapse(run: Run, limits: Limits) -> Finding:
    reward = run["reward.mean"].finite
    now = late(reward.values, 0.15)
    floor = float(reward.values.min())
    cliff = None
    for step in steps_found(reward.steps, reward.values):
        before = reward.values[reward.steps < step.step]
        level = float(np.median(before[-max(5, len(before) // 3) :])) if len(before) else step.before
        scale = run.reward_range.high - run.reward_range.low if run.reward_range else max(level - floor, abs(level))
        lost = (level - now) / scale if scale > 0 else 0.0
        if step.jump < 0 and step.size >= limits["size"] and lost >= limits["lost"] and (cliff is None or -step.jump > -cliff[0].jump):
            cliff = (step, level, lost)
    if cliff is None:
        return Finding(severity=None, says="no cliff in the reward", numbers={}, metrics=("reward.mean",))
    step, level, lost = cliff
    near = 0.03 * float(reward.steps[-1] - reward.steps[0]) + float(np.median(np.diff(reward.steps)))
    moved = []
    for metric in COMPANIONS:
        column = run.get(metric)
        if column is None or len(column.finite) < 20:
            continue
        c = column.finite
        jumps = [s for s in steps_found(c.steps, c.values) if abs(s.step - step.step) <= near and s.size >= limits["size"]]
        if jumps:
            moved.append((jumps[0].step, column.key))
    with_it = ", ".join(key for _, key in sorted(moved)[:3])
    told = f"; with it {with_it}" if with_it else "; nothing else jumped with it"
    return Finding(
        severity=Severity.CRITICAL,
        says=f"reward fell from {level:.3g} to {now:.3g} around step {step.step:g} and stayed there{told}",
        numbers={"before": level, "late": now, "lost": lost, "size": step.size},
        metrics=("reward.mean", *(m for m in COMPANIONS if m in run and any(k == run[m].key for _, k in moved))),
        onset=Onset(step.step, step.low, step.high),
        evidence=Evidence(step.size, None, "step against a smooth curve, BIC, AR(1)-whitened"),
        remedies=("roll_back", "lower_learning_rate") if moved else ("score_gold_answers", "roll_back"),
        would_decide=("what changed at that step: configuration, code, data, reward service",),
    )
