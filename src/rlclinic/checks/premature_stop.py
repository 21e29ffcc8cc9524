"""The run ended before its planned steps.

## What you see
The log ends well before the planned number of steps, with an error or with the summary that a trainer writes when it is
told to stop, and the reward or the held-out score was still rising.

## Why it matters
What the run would have reached is not known. Compared with a run that went to its end, it looks worse than its recipe is.

## When it is not a problem
A decision to stop once nothing rises any more. A log that just ends says nothing: the run may still be going, or only a
part of its log was handed over.
"""

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.model import Column, Evidence, Finding, Run, Severity
from rlclinic.stats.trend import trend

_SUMMARY = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")
"""Keys that the Transformers trainer writes once, when training is over."""


@check(page=__doc__, uses=["reward.mean", "eval.score"], since="0.2")
def premature_stop(run: Run, limits: Limits) -> Answer:
    if run.excerpt:
        return NotApplicable("a piece of a log does not show where the run ended")
    planned = run.planned_steps
    if not planned or not len(run.steps):
        return Unexamined(("planned_steps",), "the planned number of steps is not known")
    last = float(run.steps[-1])
    done = last / planned
    if done >= limits["done"]:
        return Finding(
            severity=None,
            says=f"the run went to step {last:g} of {planned}",
            numbers={"done": done},
            evidence=Evidence(1.0 - done, None, "last step of the log"),
        )
    if not run.ending and not over(run):
        says = f"the log reaches step {last:g} of {planned}; whether the run stopped there or still goes on it does not say"
        return Unexamined(("the end of the run",), says)
    rising = [name for name, column in _outcomes(run) if _rising(column, limits)]
    how = f"an error ended it ({run.ending[:80]})" if run.ending else "it was told to stop"
    still = f"; {' and '.join(rising)} still rose" if rising else ""
    return Finding(
        severity=Severity.INFO if rising or run.ending else None,
        says=f"the run ended at step {last:g} of {planned}: {how}{still}".replace("\n", " "),
        numbers={"done": done},
        metrics=tuple(m for m in ("eval.score", "reward.mean") if m in run),
        evidence=Evidence(1.0 - done, None, "last step of the log; trend of its last third"),
        remedies=("read_the_error", "train_on") if run.ending else ("train_on",),
        would_decide=() if rising else ("whether the held-out score would rise with more steps",),
    )


def over(run: Run) -> bool:
    """Whether the log holds what trainers write when they are done."""
    total = run.get("run.summary")
    return "train_runtime" in run.facts or (total is not None and total.key.endswith(_SUMMARY))


def _outcomes(run: Run) -> list[tuple[str, Column]]:
    named = (("the held-out score", run.get("eval.score")), ("the reward", run.get("reward.mean")))
    return [(name, column.finite) for name, column in named if column is not None and len(column.finite) >= 12]


def _rising(column: Column, limits: Limits) -> bool:
    """Whether the last third of the rows still rises."""
    tail = 2 * len(column) // 3 if len(column) >= 60 else 0
    return trend(column.steps[tail:], column.values[tail:], level=limits["p_value"]).verdict == "rising"
