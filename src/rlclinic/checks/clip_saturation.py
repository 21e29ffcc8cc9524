"""Too many tokens hit the clip bound: updates happen far from the policy that sampled the answers.

## What you see
The clip fraction is high, and KL to the sampling policy with it; usually several updates per batch or stale rollouts.

## Why it matters
Clipped tokens carry no gradient, and the rest is off-policy: the update is no longer the one that was meant.

## When it is not a problem
With one on-policy update per batch the ratio is exactly 1 and the clip fraction exactly 0: that is expected and says
nothing about learning. Sequence-level ratios (GSPO) and CISPO clip far more by design and are not judged here.
"""

from dataclasses import replace

import numpy as np

from rlclinic import vitals
from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import bought, now, rises, since
from rlclinic.model import Column, Evidence, Finding, Note, Run, Severity

CLIPS = ("clip.frac", "clip.low_frac", "clip.high_frac")


@check(page=__doc__, uses=["clip.frac", "clip.low_frac", "clip.high_frac", "kl.old_new", "grad.norm"], since="0.1")
def clip_saturation(run: Run, limits: Limits) -> Answer:
    columns = [c for m in CLIPS if (c := run.get(m)) is not None and len(c.finite)]
    if not columns:
        return Unexamined(("clip.frac",), "no clip fraction is logged")
    if (
        any("sequence" in c.estimator or "cispo" in c.estimator for c in columns)
        or run.knob("ratio_level") == "sequence"
    ):
        return NotApplicable("sequence-level and CISPO clipping is far higher by design")
    if all(bool(c.finite.zero.all()) for c in columns):
        return Finding(
            severity=None,
            says=f"clip fraction is 0 in all {len(columns[0])} rows",
            numbers={"share": 0.0},
            metrics=tuple(c.metric for c in columns),
            notes=_zero_expected(run, columns),
        )
    both = run.get("clip.frac")
    column = both if both is not None and len(both.finite) else max(columns, key=lambda c: now(run, c.finite.values))
    c = column.finite
    # With several passes over a batch the first is on-policy and its 0 structural: only the later passes are judged.
    passes = run.number("inner_epochs") or 1
    live = c.values > 0
    toothed = passes > 1 or (~live).mean() >= 0.1
    judged, steps = (c.values[live], c.steps[live]) if toothed else (c.values, c.steps)
    rows = replace(c, steps=steps, values=judged)
    share = now(run, judged)
    severity = graded = limits.grade("share", share)
    harm = bought(run, float(c.steps[0])) if severity == Severity.INFO and not run.short else None
    stale = "staleness_limit" in run.knobs or any(name.startswith("offpolicy.") for name in run.columns)
    hurt = harm is not None and harm.falling and not rises(run)  # what is paid more and more was not undone by steps
    if hurt:
        severity = Severity.WARNING
    return Finding(
        severity=severity,
        title="Many tokens hit the clip bound, and the policy gets worse meanwhile." if hurt else "",
        says=f"{share:.1%} of tokens are clipped ({np.max(c.values):.1%} at most)"
        + (", on the rows that can clip" if toothed else "")
        + (f"; {harm.says}" if harm is not None and hurt else ""),
        numbers={"share": share, "largest": float(c.values.max())},
        metrics=(column.metric,),
        onset=since(rows, limits.at("share", Severity.INFO), share, told=limits.at("share", graded))
        if graded
        else None,
        evidence=Evidence(share, None, "late mean against a level"),
        remedies=("updates_per_batch", "lower_learning_rate", *(("staleness_limit",) if stale else ()))
        if (severity or 0) >= Severity.WARNING
        else (),
        would_decide=() if "kl.old_new" in run else ("the KL between the sampling and the updated policy",),
    )


def _zero_expected(run: Run, columns: list[Column]) -> tuple[Note, ...]:
    """The reassurance about clip fractions of 0, withheld when the log or configuration makes 0 suspicious."""
    norm = run.get("grad.norm")
    dead = norm is not None and len(norm.finite) > 0 and bool((norm.finite.values == 0).all())
    several = vitals.on_policy(run) is False
    if dead or several or any(c.rounded_zero for c in columns) or any(c.nonfinite for c in run.columns.values()):
        return ()
    return (
        Note(
            "clip_zero_expected",
            f"{columns[0].key} is exactly 0 because each batch gets one on-policy update: the ratio is 1, so nothing can "
            "be clipped. Updates do have an effect; look at the gradient norm and the reward.",
        ),
    )
