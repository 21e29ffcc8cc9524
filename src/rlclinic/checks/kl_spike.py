"""In single rows the KL to the reference is many times larger than in the rows around them.

## What you see
KL jumps to more than ten times its local level for one to three rows and is back; the gradient norm often jumps with it.

## Why it matters
One token with a vanishing probability under the reference can outweigh the rest of the batch, through the KL term of the
loss. Many such rows come before gradient spikes and values that are not finite.

## When it is not a problem
A rare one is a fact of the estimator. A KL that stays high has drifted; one that restarts at 0 has a renewed reference.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import with_gradient
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.seams import settled_from
from rlclinic.stats.shift import spikes


@check(page=__doc__, needs=["kl.ref|kl.ref_seq_sum"], uses=["grad.norm"], points=20, since="0.2")
def kl_spike(run: Run, limits: Limits) -> Answer:
    column, floor, unit = run.get("kl.ref"), limits["nats"], "per token"
    if column is None or len(column.finite) < 20:
        column, floor, unit = run["kl.ref_seq_sum"], limits["per_answer"], "per answer"
    if column.status == "structural_zero":
        return NotApplicable(column.because)
    if run.thinned:
        return Unexamined((), f"single steps cannot be told in this source: {run.thinned}")
    kl = column.finite
    kept = kl.steps > settled_from(kl.steps, run.number("warmup_steps") or 0.0)
    steps, values = kl.steps[kept], kl.values[kept]
    if len(values) < 20:
        return Unexamined((), f"{len(values)} rows behind the warm-up; 20 are needed")
    at = spikes(steps, values, sigma=limits["sigma"], ratio=limits["ratio"])
    at = at[values[at] > floor]
    usual, share = float(np.median(values)), len(at) / len(values)
    if not len(at):
        return Finding(
            severity=None,
            says=f"no spike in {len(values)} KL values (median {usual:.3g} nats {unit})",
            numbers={"share": 0.0, "median": usual},
            metrics=(column.metric,),
        )
    events = 1 + int((np.diff(at) > 3).sum())  # up to three rows in a row are one event
    severity = limits.grade("share", share) if events >= 2 else None
    first, largest = float(steps[at[0]]), float(values[at].max())
    with_it = with_gradient(run, steps[at])
    before = steps[steps < first]
    return Finding(
        severity=severity or Severity.INFO,
        says=f"{len(at)} of {len(values)} KL values are spikes, up to {largest:.3g} against {usual:.3g} nats {unit}"
        + (f"; the gradient norm jumps in {with_it} of those rows" if with_it else ""),
        numbers={"share": share, "count": float(len(at)), "largest": largest, "median": usual},
        metrics=tuple(m for m in (column.metric, "grad.norm") if m in run),
        onset=Onset(first, float(before[-1]) if len(before) else first, first),
        evidence=Evidence(largest / max(usual, 1e-12), None, "local median and MAD of the run itself"),
        remedies=("kl_clamp", "kl_estimator", "inspect_batch"),
        would_decide=("the token with the largest KL in those rows, and its probability under the reference",),
    )
