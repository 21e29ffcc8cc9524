"""Steps wait for a few very long answers.

## What you see
Most of a step is sampling, and the longest answer of a batch is many times as long as the mean one.

## Why it matters
A batch is done when its last answer is. While that one grows, most devices idle: the same work could take a fraction of
the time. What is learnt does not suffer.

## When it is not a problem
Where all answers run to the limit, sampling is long but nothing waits. Trainers that sample while they update hide the
wait.
"""

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.model import Evidence, Finding, Run
from rlclinic.stats.level import late, middle


@check(
    page=__doc__,
    needs=["time.generation", "time.step", "length.response.max", "length.response.mean"],
    uses=["time.wait"],
    since="0.2",
)
def straggler_generation(run: Run, limits: Limits) -> Answer:
    _, sampling, step = run.paired("time.generation", "time.step")
    _, longest, mean = run.paired("length.response.max", "length.response.mean")
    timed, long = step > 0, mean > 0
    if not timed.any() or not long.any():
        return Unexamined(("time.generation", "time.step"), "no row has the times and the lengths")
    level = middle if run.short else late
    share = level(sampling[timed] / step[timed])
    stretch = level(longest[long] / mean[long])
    severity = limits.grade("stretch", stretch) if share >= limits["share"] else None
    return Finding(
        severity=severity,
        says=f"sampling takes {share:.0%} of a step, and the longest answer is {stretch:.1f} times the mean one",
        numbers={"share": share, "stretch": stretch},
        metrics=("time.generation", "time.step", "length.response.max", "length.response.mean"),
        evidence=Evidence(stretch, None, "late medians of row by row ratios"),
        remedies=("partial_rollouts", "soft_overlong_penalty"),
        would_decide=("the time at which half of a batch is done, against the time of all of it",) if severity else (),
    )
