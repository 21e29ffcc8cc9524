"""Steps grow slower at the same amount of text.

## What you see
The time of a step rises by half or more and stays up, and so does the time per token: the answers do not explain it.

## Why it matters
Every further step costs that much more. The cause is outside of the policy, a leak, a full cache, a queue before a
sandbox or a reward service, and mostly gets worse.

## When it is not a problem
Longer answers take longer at the same speed. Evaluations and checkpoints fall into single steps. A filter that samples
several batches for one, or another job on the same machine, slows a run that is itself in order.
"""

from dataclasses import replace

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import at_seam, lasting
from rlclinic.model import Column, Evidence, Finding, Run, Severity
from rlclinic.stats.level import early, late


@check(
    page=__doc__,
    needs=["time.step", "tokens.step|tokens.total|length.response.mean"],
    uses=["time.eval", "group.gen_batches"],
    points=8,
    since="0.2",
)
def throughput_decay(run: Run, limits: Limits) -> Answer:
    time = _plain_steps(run)
    cost = _per_token(run, time)
    if len(time) < 8 or cost is None:
        return Unexamined(("time.step", "tokens.step"), "fewer than 8 rows hold both a step time and an amount of text")
    slower = lasting(time, falling=False, level=limits["p_value"])
    dearer = None if slower is None else lasting(cost, falling=False, level=limits["p_value"])
    ratio = 1.0
    if slower is not None and dearer is not None and min(slower.early, dearer.early) > 0:
        # Fixed costs weigh more when answers shrink, less when they grow: both must have risen.
        ratio = min(slower.late / slower.early, dearer.late / dearer.early)
    severity = limits.grade("ratio", ratio)
    first, level = early(time.values), late(time.values, 0.1, 5)
    if slower is None or dearer is None or severity is None or first < limits["seconds"]:
        return Finding(
            severity=None,
            says=f"a step takes {level:.3g} s, {first:.3g} s at the start",
            numbers={"early": first, "late": level},
            metrics=("time.step",),
            evidence=Evidence(ratio - 1.0, None, "step time and time per token"),
        )
    rounds = _more_rounds(run, limits)
    told = "; more batches are sampled for each one that is used" if rounds else ""
    return Finding(
        severity=Severity.INFO if rounds else severity,
        says=f"a step takes {slower.late:.3g} s instead of {slower.early:.3g} s, "
        f"and a token {dearer.late / dearer.early:.1f} times as long as before{told}{at_seam(run, slower.onset, time)}",
        numbers={"early": slower.early, "late": slower.late, "ratio": ratio},
        metrics=tuple(m for m in ("time.step", "tokens.step", "length.response.mean") if m in run),
        onset=slower.onset,
        evidence=dearer.sized(ratio - 1.0),
        remedies=("profile_phases",),
        would_decide=("the time of each phase of an early and of a late step",),
    )


def _plain_steps(run: Run) -> Column:
    """Step times without the steps that also hold an evaluation or a checkpoint, where those are a minority."""
    time = run["time.step"].finite
    extra = [run[m].finite.steps for m in ("time.eval", "time.checkpoint") if m in run]
    keep = ~np.isin(time.steps, np.concatenate(extra)) if extra else np.ones(len(time), dtype=bool)
    return replace(time, steps=time.steps[keep], values=time.values[keep]) if 2 * keep.sum() > len(time) else time


def _per_token(run: Run, time: Column) -> Column | None:
    """Seconds per token, by the tokens of the step, those since the row before, or the mean length of an answer."""
    text = run.get("tokens.step") or _since_row_before(run.get("tokens.total")) or run.get("length.response.mean")
    if text is None:
        return None
    steps, i, j = np.intersect1d(time.steps, text.finite.steps, assume_unique=True, return_indices=True)
    amount = text.finite.values[j]
    full = amount > 0
    if full.sum() < 8:
        return None
    return replace(time, metric="time.per_token", steps=steps[full], values=time.values[i][full] / amount[full])


def _since_row_before(total: Column | None) -> Column | None:
    if total is None or len(total.finite) < 2:
        return None
    c = total.finite
    return replace(c, steps=c.steps[1:], values=np.diff(c.values) / np.diff(c.steps))


def _more_rounds(run: Run, limits: Limits) -> bool:
    """Whether a filter that fills batches samples so much more that it explains the step time."""
    rounds = run.get("group.gen_batches")
    rise = lasting(rounds, falling=False) if rounds is not None else None
    return rise is not None and rise.early > 0 and limits.grade("ratio", 1.1 * rise.late / rise.early) is not None
