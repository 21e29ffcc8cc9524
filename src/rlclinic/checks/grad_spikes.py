"""Single steps have a gradient many times larger than the steps around them.

## What you see
The gradient norm jumps to several times its local level for one or two steps and returns; clusters of spikes precede a
collapse.

## Why it matters
One batch with extreme ratios, lengths or advantages pushes the weights its own way; clipping bounds the length of the
step, not its direction.

## When it is not a problem
The first steps of a run, warm-up included; sparse reward, where most steps have next to no gradient and the few live
ones stand out.
"""

import numpy as np
from numpy.typing import NDArray

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import at_seam, lasting
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.seams import settled_from
from rlclinic.stats.shift import spikes


@check(page=__doc__, needs=["grad.norm"], uses=["reward.mean", "group.zero_var_frac"], points=2, since="0.1")
def grad_spikes(run: Run, limits: Limits) -> Answer:
    norm = run["grad.norm"].finite
    enormous = norm.values > limits.at("huge", Severity.WARNING)
    if enormous.sum() >= 2:
        return _enormous(norm, enormous, limits)
    if run.thinned:
        return Unexamined((), f"single steps cannot be told in this source: {run.thinned}")
    kept = (norm.values > 0) & (norm.steps > settled_from(norm.steps, run.number("warmup_steps") or 0.0))
    steps, values = norm.steps[kept], norm.values[kept]
    if len(norm) < 10:
        return Unexamined((), f"{len(norm)} gradient norms are too few to tell spikes")
    if len(values) < 5:
        return Finding(severity=None, says="too few gradients above 0 to tell spikes", numbers={})
    if len(values) < 20 or (norm.values == 0).mean() > 0.5:
        # Few rows or sparse signal: a live step among dead ones is no spike, only one that dwarfs the other live steps.
        at = np.flatnonzero(values > limits["sparse_ratio"] * np.median(values))
    else:
        at = spikes(steps, values, sigma=limits["sigma"], ratio=limits["ratio"])
    # Where gradients have died down, what stands out but stays below the level of the start does no harm.
    begun = float(np.median(values[: max(3, len(values) // 10)]))
    at = at[values[at] > begun * (limits["ratio"] if len(values) < 20 else 1.0)]
    share = len(at) / len(values)
    if not len(at):
        return Finding(
            severity=None,
            says=f"no spike in {len(values)} gradient norms (median {np.median(values):.3g})",
            numbers={"share": 0.0, "median": float(np.median(values))},
            metrics=("grad.norm",),
        )
    severity = limits.grade("share", share) if len(at) >= 2 else Severity.INFO
    largest = float(values[at].max())
    first = float(steps[at[0]])
    fall = lasting(run["reward.mean"], falling=True) if "reward.mean" in run else None
    reach = 0.1 * float(norm.steps[-1] - norm.steps[0])
    ahead = fall is not None and fall.abrupt and bool((np.abs(steps[at] - fall.onset.step) <= reach).any())
    if ahead and largest > limits["sparse_ratio"] * float(np.median(values)):
        severity = Severity.CRITICAL
    before = steps[steps < first]
    since = Onset(first, float(before[-1]) if len(before) else first, first)
    return Finding(
        severity=severity or Severity.INFO,
        says=f"{len(at)} of {len(values)} gradient norms are spikes, up to {largest:.3g} against {np.median(values):.3g}"
        + ("; the reward falls near them" if ahead else "")
        + at_seam(run, since, norm),
        numbers={"share": share, "count": float(len(at)), "largest": largest, "median": float(np.median(values))},
        metrics=("grad.norm",),
        onset=since,
        evidence=Evidence(largest / float(np.median(values)), None, "local median and MAD of the run itself"),
        remedies=("inspect_batch", "grad_clip", "advantage_clip", "lower_learning_rate"),
        would_decide=("the batch of those steps: lengths, rewards, ratios",),
    )


def _enormous(norm: Column, rows: NDArray[np.bool_], limits: Limits) -> Finding:
    """Norms that no batch of text has, whatever the rows around them: a state, so that a few rows show it."""
    largest, first = float(norm.values[rows].max()), float(norm.steps[rows][0])
    scale = "whether the norm is taken before the loss scale, or the sum over tokens, is divided out"
    return Finding(
        severity=limits.grade("huge", largest),
        says=f"{int(rows.sum())} of {len(norm)} gradient norms are above {limits.at('huge', Severity.WARNING):g}, up to "
        f"{largest:.3g}; the usual clip limit is 1"
        + ("; a level, not spikes: the loss may be summed" * bool(rows.all())),
        numbers={"share": float(rows.mean()), "count": float(rows.sum()), "largest": largest},
        metrics=("grad.norm",),
        onset=Onset(first, first, first),
        evidence=Evidence(largest, None, "a level"),
        remedies=("inspect_batch", "advantage_clip", "lower_learning_rate"),
        would_decide=(*((scale,) if rows.all() else ()), "which term of the loss it is: KL, ratios or advantages"),
        own_cause=bool(rows.all()),
        title="The gradient norm is far too large in every row." if rows.all() else "",
    )
