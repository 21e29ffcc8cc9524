"""Nearly every gradient is longer than the clip limit, so that nearly every step has the same length.

## What you see
The gradient norm, logged before clipping, lies above the limit in more than nine rows of ten.

## Why it matters
The limit then no longer catches the exceptional batch: it hides spikes, and the learning rate alone decides how far a
step goes. A norm that keeps growing beside it means ever more disagreement between batches.

## When it is not a problem
Recipes with a very small limit (0.1, 0.2) clip every step by design. With Adam the scale of the gradient hardly matters.
"""

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import bought, lasting
from rlclinic.model import Evidence, Finding, Run, Severity
from rlclinic.stats.level import late


@check(page=__doc__, needs=["grad.norm"], uses=["reward.mean", "eval.score"], points=10, since="0.2")
def grad_clip_always_active(run: Run, limits: Limits) -> Answer:
    knob, limit = run.knobs.get("grad_clip"), run.number("grad_clip")
    if knob is None or not limit or limit <= 0:
        return Unexamined((), "the limit of the gradient norm is not known")
    norm = run["grad.norm"].finite
    share = float((norm.values > limit).mean())
    severity = limits.grade("share", share)
    numbers = {"share": share, "limit": limit, "late": late(norm.values)}
    meant = severity is not None and limit <= limits["small"]
    if severity is None or meant:
        return Finding(
            severity=None,
            says=f"{share:.0%} of gradient norms are above the limit of {limit:g}"
            + (", which is so small that it is meant to clip every step" if meant else ""),
            numbers=numbers,
            metrics=("grad.norm",),
        )
    rise = lasting(norm, falling=False, level=limits["p_value"]) if not run.short else None
    grew = rise is not None and rise.early > 0 and rise.late / rise.early > limits["grown"]
    gain = bought(run, since=rise.onset.step) if rise is not None and grew else None
    if grew and not (gain is not None and gain.rising):
        severity = Severity.WARNING
    told = ""
    if rise is not None and grew:
        told = f"; it grew from {rise.early / limit:.3g} to {rise.late / limit:.3g} times the limit"
        told += f"; {gain.says}" if gain is not None else ""
    return Finding(
        severity=severity,
        says=f"{share:.0%} of gradient norms are above the limit of {limit:g} (late median {late(norm.values):.3g})"
        + (", a default" if knob.origin == "default" else "")
        + told,
        numbers=numbers,
        metrics=("grad.norm",),
        onset=rise.onset if rise is not None and grew else None,
        evidence=rise.sized(share) if rise is not None and grew else Evidence(share, None, "counted rows"),
        remedies=("lower_learning_rate", "larger_batch"),
    )
