"""The KL to the reference stays exactly zero although the policy is being updated.

## What you see
A KL term is in use, the learning rate is up, and row after row its KL is 0 to the last digit.

## Why it matters
Either the weights do not move, and then nothing is trained, or the "reference" is the policy itself, and then the
penalty protects from nothing.

## When it is not a problem
The first step, where both models are the same; a warm-up with a rate near 1e-8; a KL weight of 0, with which some
trainers write 0 without a reference; a batch in which every group is dead; a 0 that was printed with three decimals.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.model import Column, Evidence, Finding, Floats, Onset, Run, Severity
from rlclinic.stats.shift import longest_run


@check(page=__doc__, uses=["kl.ref", "optim.lr", "grad.norm", "group.zero_var_frac"], since="0.2")
def kl_pinned_zero(run: Run, limits: Limits) -> Answer:
    column = run.get("kl.ref")
    if column is None or not len(column.finite):
        return Unexamined(("kl.ref",), "no KL to the reference is logged")
    kl = column.finite
    weight = run.get("kl.ref_coef")
    off = run.knob("kl_coef") in (0, 0.0) or (weight is not None and bool((weight.finite.values == 0).all()))
    if column.status == "structural_zero" or off:
        return NotApplicable(column.because or "the weight of the KL term is 0")
    zero = np.abs(kl.values) < limits["zero"]
    unknown = "kl_coef" not in run.knobs and run.framework is not None and run.framework.name == "unsloth"
    if bool(zero.all()) and unknown:
        return NotApplicable("this trainer writes a KL of 0 without a reference, and the KL weight is not known")
    if zero.any() and column.rounded_zero:
        return Unexamined((), f"the KL is printed in steps of {column.resolution:g}: its 0 may be a small number")
    norm, rate = _at(run.get("grad.norm"), kl.steps), _at(run.get("optim.lr"), kl.steps)
    dead = [np.nan_to_num(_at(run.get(m), kl.steps), nan=0.0) for m in ("group.zero_var_frac", "group.all_dead")]
    live = 1.0 - np.maximum(*dead)
    top = float(np.nanmax(rate)) if np.isfinite(rate).any() else float("nan")
    up = np.isnan(rate) | (rate >= limits["warm"] * top)
    pinned = zero & (kl.steps > kl.steps[0]) & up & (live > 0) & ~(norm == 0)
    first, last, rows = longest_run(kl.steps, pinned)
    severity = limits.grade("rows", rows)
    # A gradient of exactly 0 beside live groups leaves no doubt about a warm-up: nothing has reached the weights.
    idle = zero & (norm == 0) & (live > 0) & (rate > 0) & (kl.steps > 1)
    inside = (kl.steps >= first) & (kl.steps <= last)
    cause = _broken(run, kl.steps[inside]) if severity is not None else ""
    if severity is None and idle.sum() >= max(1, 0.5 * len(kl)):
        severity, cause = Severity.WARNING, "; the gradient is exactly 0 in the same rows, although groups have spread"
        first, last, rows = float(kl.steps[idle][0]), float(kl.steps[idle][-1]), int(idle.sum())
    if severity is None:
        return Finding(
            severity=None,
            says=f"KL to the reference is 0 in {int(zero.sum())} of {len(kl)} rows",
            numbers={"zero": float(zero.mean()), "rows": float(max(rows, 0))},
            metrics=("kl.ref",),
        )
    over = "" if zero[-1] else f"; since then it is {kl.values[-1]:.2g}"
    return Finding(
        severity=severity,
        says=f"KL to the reference is exactly 0 from step {first:g} to {last:g} ({rows} row{'s' * (rows > 1)}) while "
        f"the learning rate is above 0{cause}{over}",
        numbers={
            "zero": float(zero.mean()),
            "rows": float(rows),
            "last": float(kl.values[-1]),
            **({"of_nan_inf": 1.0} if "finite" in cause else {}),
        },
        metrics=tuple(m for m in ("kl.ref", "optim.lr", "grad.norm") if m in run),
        onset=Onset(first, float(kl.steps[0]), first),
        evidence=Evidence(float(rows), None, "unbroken rows with a KL of exactly 0"),
        remedies=("check_adapter", "check_reference"),
        would_decide=("the difference between the weights of two checkpoints: 0, or not",),
    )


def _at(column: Column | None, steps: Floats) -> Floats:
    """(n,) the values at these steps, NaN where the column has none."""
    values = np.full(len(steps), np.nan)
    if column is not None:
        _, i, j = np.intersect1d(steps, column.steps, assume_unique=True, return_indices=True)
        values[i] = column.values[j]
    return values


def _broken(run: Run, steps: Floats) -> str:
    norm = run.get("grad.norm")
    rows = norm is not None and np.isin(norm.steps, steps)
    bad = norm is not None and not np.isfinite(norm.values[rows]).any() and bool(np.any(rows))
    return "; no gradient of these rows is finite, so no update was applied" if bad else ""
