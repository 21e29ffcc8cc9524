"""The KL is measured to another model than the one the run began from.

## What you see
Before the first update both models should be the same and their KL 0. Here it is clearly above 0 on the first step, and
falls afterwards: the penalty pulls the policy to the other model.

## Why it matters
A KL term with a wrong reference undoes the fine-tuning that the run began from; the reward falls early.

## When it is not a problem
A KL of 1e-4 on the first step is the noise of two kernels. A log that begins in the middle of a run begins far away. A
teacher as the reference (distillation) is far away on purpose; so is a reference of another precision, a little.
"""

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import lasting
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import late, middle


@check(page=__doc__, needs=["kl.ref"], uses=["reward.mean", "optim.lr"], points=5, since="0.2")
def reference_wrong(run: Run, limits: Limits) -> Answer:
    kl = run["kl.ref"].finite
    if run["kl.ref"].status == "structural_zero":
        return NotApplicable(run["kl.ref"].because)
    if "kl.teacher" in run:
        return NotApplicable("the run distils a teacher: its reference is another model on purpose")
    apart = float(middle(kl.steps[1:] - kl.steps[:-1]))
    if kl.steps[0] > max(apart, 2.0):
        return Unexamined((), f"the log begins at step {kl.steps[0]:g}; the KL of the first step is not in it")
    first, now = float(kl.values[0]), late(kl.values, 0.25, 2)
    begun = middle(kl.values[: max(2, min(3, len(kl) // 4))])
    severity = limits.grade("first", min(first, begun))
    falls = severity is not None and now < limits["left"] * begun and _falls(kl, limits)
    told = f"; a row is the mean over {apart:.0f} steps" if apart > 1 and falls else ""
    if severity is not None and not falls:
        # A row that is a mean over many steps does not show the first one; only a fall from it speaks of the start.
        severity = Severity.INFO if apart <= 2 else None
        told = "; the run did not begin from the reference, and the penalty does not pull it there"
    elif severity is not None and now > limits["pulled"] * begun:
        severity = Severity.WARNING
    return Finding(
        severity=severity,
        says=f"KL to the reference is {first:.3g} nats per token on the first row (step {kl.steps[0]:g}) and {now:.3g} "
        f"at the end{told}",
        numbers={"first": first, "late": now},
        metrics=tuple(m for m in ("kl.ref", "reward.mean") if m in run),
        onset=Onset(*[float(kl.steps[0])] * 3) if severity is not None else None,
        evidence=Evidence(first, None, "the first row against a level, and a lasting fall from it"),
        remedies=("check_reference",),
        would_decide=(
            "the KL before the first update: 0 for the model the run began from",
            "whether the reference is meant to be another model (a teacher)",
        ),
    )


def _falls(kl: Column, limits: Limits) -> bool:
    """Whether no row of the second half comes back to the first ones, by more than chance (two rows of n + 2 are the
    highest once in so many pairs) or by far, or the fall is lasting by the tests of a trend."""
    half, begun = len(kl) // 2, float(kl.values[:2].min())
    n, highest = len(kl) - half, float(kl.values[half:].max())
    chance = 2 / ((n + 1) * (n + 2))
    apart = highest < begun and (chance <= limits["p_value"] or highest < limits["left"] * begun)
    return apart or lasting(kl, falling=True, level=limits["p_value"]) is not None
