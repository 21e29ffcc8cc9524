"""No held-out score is logged: whether the reward means anything cannot be judged.

## What you see
The log holds training metrics only; worse, an evaluation interval is configured and has passed several times.

## Why it matters
A policy that learns to please the verifier shows a perfect training curve. Only prompts and a scorer that training does
not touch can tell.

## When it is not a problem
A short test run, or evaluation done elsewhere: give that log together with this one.
"""

from rlclinic import vitals
from rlclinic.checks.form import Answer, Limits, NotApplicable, check
from rlclinic.checks.readings import bought, now
from rlclinic.model import Evidence, Finding, Run, Severity


@check(page=__doc__, needs=["reward.mean"], uses=["eval.score"], since="0.1")
def eval_missing(run: Run, limits: Limits) -> Answer:
    if run.excerpt:
        return NotApplicable("an excerpt need not show evaluations")
    if not run.logged and not run.evaluations:
        return NotApplicable("there are only saved answers; evaluations stand in a log")
    if run.partial and not run.evaluations:
        return NotApplicable("this text shows only some of the metrics and need not show evaluations")
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
    asked = _asked(run, limits)
    return Finding(
        severity=Severity.WARNING if unproven or asked else Severity.INFO,
        says="no held-out score is logged"
        + (f" although {asked}" if asked else "")
        + (": the rise of the reward may be the verifier's weakness" if unproven else ""),
        numbers={"rows": float(len(steps))},
        evidence=Evidence(1.0, None, "keys of the log"),
        remedies=("eval_frequency",),
    )


def _asked(run: Run, limits: Limits) -> str:
    """The configured interval that has passed without an evaluation, in words; TRL and its kin evaluate by strategy only."""
    knob, every, strategy = run.knobs.get("eval_every"), run.number("eval_every") or 0.0, run.knob("eval_strategy")
    kin = run.framework is not None and run.framework.name in ("trl", "unsloth", "ms_swift")
    if not vitals.evaluates(run):
        return ""  # the trainer takes no evaluation data, whatever is set
    if knob is None or knob.origin == "default" or every <= 0 or strategy == "no" or (kin and strategy != "steps"):
        return ""
    seen = "time.eval" in run or any("val" in one.key.lower() for one in run.unrecognised)
    span = float(run.steps[-1] - run.steps[0]) if len(run.steps) > 4 else 0.0
    return "" if seen or span < limits["intervals"] * every else f"{knob.key} = {every:g} asks for one"
