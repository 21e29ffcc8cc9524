"""No held-out score is logged: whether the reward means anything cannot be judged.

## What you see
The log holds training metrics only.

## Why it matters
A policy that learns to please the verifier shows a perfect training curve. Only prompts and a scorer that training does
not touch can tell.

## When it is not a problem
A short test run, or evaluation done elsewhere: give that log together with this one.
"""

from rlclinic.checks.form import Answer, Limits, NotApplicable, check
from rlclinic.checks.readings import bought, now
from rlclinic.model import Evidence, Finding, Run, Severity


@check(page=__doc__, needs=["reward.mean"], uses=["eval.score"], since="0.1")
def eval_missing(run: Run, limits: Limits) -> Answer:
    if run.excerpt:
        return NotApplicable("an excerpt need not show evaluations")
    if run.evaluations:
        return Finding(severity=None, says=f"{len(run.evaluations)} held-out series are logged", numbers={})
    steps = run.steps
    long = len(steps) > limits["rows"]
    gain = bought(run, since=float(steps[0])) if long else None
    top = (
        run.reward_range is not None
        and run.reward_range.share(now(run, run["reward.mean"].finite.values)) > limits["top"]
    )
    unproven = (gain is not None and gain.rising) or (long and top)
    return Finding(
        severity=Severity.WARNING if unproven else Severity.INFO,
        says="no held-out score is logged"
        + (": the rise of the reward may be the verifier's weakness" if unproven else ""),
        numbers={"rows": float(len(steps))},
        evidence=Evidence(1.0, None, "keys of the log"),
        remedies=("eval_frequency",),
    )
