"""The clip bounds do not fit the loss: they cut everything, or can never act.

## What you see
CISPO with an upper cap below 1, a ratio per answer (GSPO) with the bounds of a ratio per token, or an upper bound raised
above the lower one in a run whose updates are all on-policy.

## Why it matters
A cap below 1 shrinks the weight of every token, right ones included. A ratio per answer moves by ten-thousandths, so
that a bound of 0.2 is no bound at all. With one on-policy update per batch every ratio is 1 and no bound acts: a wider
one is no remedy for falling entropy there.

## When it is not a problem
A clip fraction above 0 shows that the bounds do act. Bounds without effect in an on-policy run are the usual case and
harm nothing; that is only told when somebody raised one.
"""

from rlclinic import vitals
from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import now
from rlclinic.model import Column, Evidence, Finding, Run, Severity

CLIPS = ("clip.frac", "clip.high_frac", "clip.low_frac")
CAPPED = ("trl", "unsloth", "ms_swift")
"""Trainers in which the upper bound of CISPO is the cap itself; others add 1 to it."""


@check(page=__doc__, uses=[*CLIPS], since="0.2")
def clip_bound_misconfigured(run: Run, limits: Limits) -> Answer:
    high, low = run.number("clip_high"), run.number("clip_low")
    if high is None:
        high = low
    if high is None:
        return Unexamined(("clip_high",), "the clip bounds are not known")
    key = run.knobs["clip_high" if "clip_high" in run.knobs else "clip_low"].key
    clips = [c for m in CLIPS if (c := run.get(m)) is not None and len(c.finite)]
    clipped = max((now(run, c.finite.values) for c in clips), default=None)
    loss = str(run.knob("loss_type") or "").lower()
    if "cispo" in loss:
        if run.framework is None or run.framework.name not in CAPPED:
            return NotApplicable("this framework counts the cap of CISPO from 1, so that any bound leaves room")
        severity = limits.grade("cap", high)
        says = (
            f"{key} = {high:g} caps every CISPO weight below 1"
            if severity
            else f"the CISPO cap of {high:g} leaves room"
        )
        return _found(severity, says, high, clips, ("cispo",))
    per_answer = (
        run.knob("ratio_level") == "sequence" or "gspo" in loss or any("sequence" in c.estimator for c in clips)
    )
    if per_answer:
        severity = limits.grade("per_answer", high)
        if severity is not None and clipped is not None and clipped > limits["acts"]:
            severity = None
        elif severity is not None and vitals.on_policy(run) is not False:
            severity = Severity.INFO  # with one update per batch, the usual case, no bound would act
        fact = "" if clipped is None else f" ({clipped:.2g} of the answers are clipped)"
        says = f"{key} = {high:g} with a ratio per answer" + (": such a bound never acts" if severity else fact)
        return _found(severity, says, high, clips, ("sequence_level_ratio",))
    raised = low is not None and high > limits["raised"] * low and vitals.chosen(run, "clip_high") is not None
    alone, why = vitals.updates(run)
    if raised and alone:
        says = f"{key} = {high:g} above {low:g} has no effect: {why}, so that no ratio leaves 1"
        return _found(Severity.INFO, says, high, clips, ())
    return _found(
        None, f"clip bounds {low if low is not None else high:g} and {high:g} fit a ratio per token", high, clips, ()
    )


def _found(severity: Severity | None, says: str, high: float, clips: list[Column], cures: tuple[str, ...]) -> Finding:
    return Finding(
        severity=severity,
        says=says,
        numbers={"high": high},
        metrics=tuple(c.metric for c in clips),
        evidence=Evidence(high, None, "configuration against what the loss can use"),
        remedies=cures,
    )
