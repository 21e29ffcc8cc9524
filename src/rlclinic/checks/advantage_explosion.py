"""In single rows an advantage is many times larger than in all the others.

## What you see
The largest advantage jumps from a few units to hundreds or thousands for one row and is back; loss and gradient norm often
jump with it. The rewards of that row look as always.

## Why it matters
Advantages are weights: an answer with an advantage of a thousand is the whole gradient of its batch, and clipping the norm
keeps its direction. The usual cause is a division by a spread that should be 0 and is a rounding error.

## When it is not a problem
Rewards without normalisation may be of any size: what counts is the run's own. A spread inside a group of G answers cannot
give more than the root of G, one over a batch of N answers no more than the root of N.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import with_gradient
from rlclinic.model import Evidence, Finding, Floats, Onset, Run, Severity


@check(
    page=__doc__,
    needs=["advantage.max|advantage.min"],
    uses=["reward.max", "reward.min", "grad.norm"],
    points=20,
    since="0.1",
)
def advantage_explosion(run: Run, limits: Limits) -> Answer:
    if run.thinned:
        return Unexamined((), f"single steps cannot be told in this source: {run.thinned}")
    steps, largest = _largest(run)
    live = largest[largest > 0]
    if len(live) < 20:
        return Unexamined((), f"{len(live)} rows with an advantage other than 0; 20 are needed")
    usual = float(np.median(live))
    out = largest > max(limits["ratio"] * usual, limits["level"])
    share, peak = float(out.mean()), float(largest.max())
    if not out.any():
        return Finding(
            severity=None,
            says=f"largest advantage of {len(largest)} rows is {peak:.3g}, usually {usual:.3g}",
            numbers={"share": 0.0, "largest": peak, "median": usual},
            metrics=_metrics(run),
        )
    severity = limits.grade("share", share) if out.sum() >= 2 else None
    first, before = float(steps[out][0]), steps[steps < steps[out][0]]
    apart = _apart(run, steps[out])
    rewards = f"; the rewards of those rows lie at most {apart:.3g} apart" if apart is not None else ""
    jumps = with_gradient(run, steps[out])
    return Finding(
        severity=severity or Severity.INFO,
        says=f"in {out.sum()} of {len(largest)} rows an advantage reaches up to {peak:.3g}, usually {usual:.3g}{rewards}"
        + (f"; the gradient norm jumps in {jumps} of them" if jumps else ""),
        numbers={"share": share, "count": float(out.sum()), "largest": peak, "median": usual},
        metrics=_metrics(run),
        onset=Onset(first, float(before[-1]) if len(before) else first, first),
        evidence=Evidence(peak / usual, None, "median of the run's own rows"),
        # An advantage within the range of its rewards was not blown up by a divisor: the reward itself is the odd one.
        remedies=("inspect_batch", "reward_clip", "advantage_clip")
        if apart is not None and apart >= peak
        else ("advantage_scaling", "advantage_clip", "inspect_batch"),
        would_decide=(
            "the rewards of the group that this answer is from, and their spread in the precision of the trainer",
        ),
    )


def _metrics(run: Run) -> tuple[str, ...]:
    return tuple(m for m in ("advantage.max", "advantage.min", "reward.max", "reward.min", "grad.norm") if m in run)


def _largest(run: Run) -> tuple[Floats, Floats]:
    """The steps, and the size of the largest advantage of either sign in each."""
    if "advantage.max" in run and "advantage.min" in run:
        steps, high, low = run.paired("advantage.max", "advantage.min")
        kept = np.isfinite(high) & np.isfinite(low)
        if kept.any():
            return steps[kept], np.maximum(np.abs(high), np.abs(low))[kept]
    c = (run.get("advantage.max") or run["advantage.min"]).finite
    return c.steps, np.abs(c.values)


def _apart(run: Run, at: Floats) -> float | None:
    """How far apart the rewards of a row at ``at`` are at most; None where that is not logged."""
    if "reward.max" not in run or "reward.min" not in run:
        return None
    steps, high, low = run.paired("reward.max", "reward.min")
    ranges = (high - low)[np.isin(steps, at)]
    ranges = ranges[np.isfinite(ranges)]
    return float(ranges.max()) if len(ranges) else None
