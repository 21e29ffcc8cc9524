"""The gradient has died away: its norm is a small part of what it was.

## What you see
The median gradient norm of the last quarter is below a twentieth of the early one; or it is exactly 0 in the rows shown,
although groups have reward spread.

## Why it matters
The policy no longer changes, whatever the learning rate. The cause lies elsewhere: dead groups, answers that have become
certain (the gradient of a certain token is 0), adapters or masks that let nothing through.

## When it is not a problem
A learning rate that runs down does not change the norm. Large norms of the first steps that become ordinary ones: what
lies above the clip limit never reached the weights. Small norms from the start, as with adapters.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import lasting
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import early, late, late_mean
from rlclinic.stats.shift import crossing


@check(page=__doc__, needs=["grad.norm"], uses=["group.zero_var_frac", "entropy.mean", "optim.lr"], since="0.2")
def grad_vanishing(run: Run, limits: Limits) -> Answer:
    column = run["grad.norm"]
    norm = column.finite
    if len(norm) < limits["rows"]:
        return _exactly_zero(run, norm, limits)
    cap = run.number("grad_clip") or limits["cap"]
    alive = norm.values[: max(5, len(norm) // 30)]
    alive = alive[alive > 0]
    # What exceeds the clip limit is cut to it: only below the limit does a smaller norm mean a smaller step.
    first = early(alive, 1.0) if len(alive) else 0.0
    begun, now = min(first, cap), late(norm.values)
    ratio = now / begun if begun > 0 else 1.0
    severity = limits.grade("ratio", ratio)
    # Where it died within the first rows no early window is left for a test; then nearly all the rest must lie below.
    sunk = float(np.quantile(norm.values[len(norm) // 2 :], 0.9)) < limits.at("ratio", Severity.WARNING) * begun
    fell = severity is not None and (sunk or lasting(norm, falling=True, level=limits["p_value"]) is not None)
    if not fell:
        return Finding(
            severity=None,
            says=f"gradient norm is {now:.3g} at the end ({first:.3g} early)",
            numbers={"late": now, "early": begun, "ratio": ratio},
            metrics=("grad.norm",),
        )
    live = _live(run)
    told = ""
    if live is not None and live < 0.5 and (live < limits["none"] or limits.grade("ratio", ratio / live) is None):
        severity = Severity.WARNING
        told = f"; {1 - live:.0%} of groups have no reward spread, which explains it"
    certain = run.get("entropy.mean")
    if certain is not None and len(certain.finite) and late(certain.finite.values) < limits["nats"]:
        told += f"; entropy is {late(certain.finite.values):.2g} nats per token: certain tokens have no gradient"
    return Finding(
        severity=severity,
        says=f"gradient norm fell from {first:.3g} to {now:.2g}{told}",
        numbers={"late": now, "early": begun, "ratio": ratio, **({} if live is None else {"live": live})},
        metrics=tuple(m for m in ("grad.norm", "group.zero_var_frac", "entropy.mean") if m in run),
        onset=crossing(norm.steps, norm.values, limits.at("ratio", Severity.WARNING) * begun, above=False),
        evidence=Evidence(1 - ratio, None, "late median against the early one (at most the clip limit)"),
        remedies=("roll_back", "harder_data"),
        would_decide=("the share of dead groups",) if live is None else (),
    )


def _exactly_zero(run: Run, norm: Column, limits: Limits) -> Answer:
    """A few rows show no trend, but a gradient of exactly 0 beside live groups is a state."""
    live = _live(run)
    rate = run.get("optim.lr")
    off = rate is not None and not rate.rounded_zero and bool((rate.finite.values == 0).all())
    zero = len(norm) and bool((norm.values == 0).all()) and not norm.rounded_zero
    if not zero or off or live is None or live < limits["live"] or norm.steps[-1] <= 1:
        return Unexamined((), f"{len(norm)} gradient norms are too few to say that they died away")
    return Finding(
        severity=Severity.CRITICAL,
        says=f"gradient norm is exactly 0 in all {len(norm)} rows although {live:.0%} of groups have reward spread",
        numbers={"late": 0.0, "live": live},
        metrics=("grad.norm", "group.zero_var_frac"),
        onset=Onset(*[float(norm.steps[0])] * 3),
        evidence=Evidence(1.0, None, "every row, full precision"),
        remedies=("check_adapter", "check_masks"),
        would_decide=("the difference between the weights of two checkpoints: 0, or not",),
    )


def _live(run: Run) -> float | None:
    """The late share of groups with reward spread; None when it is not logged."""
    dead = run.get("group.zero_var_frac")
    if dead is None or not len(dead.finite) or dead.status == "structural_zero":
        return None
    return 1.0 - float(np.clip(late_mean(dead.finite.values, least=1), 0.0, 1.0 - 1e-6))
