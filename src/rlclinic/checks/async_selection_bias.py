"""Samples that took long are thrown away as too old, so that long and hard tasks are hardly trained.

## What you see
A steady share of the finished samples is dropped because the policy has moved on; the answers that are trained on are
shorter than those that were generated.

## Why it matters
What is slow to finish is slow for a reason. Dropping it trains the policy on the easy end of the data, and the compute of
the dropped answers is lost.

## When it is not a problem
A few samples dropped after an evaluation, a checkpoint or a restart.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import now
from rlclinic.model import Column, Evidence, Finding, Floats, Run, Severity
from rlclinic.stats.level import lower_bound
from rlclinic.stats.shift import crossing

_DROPS = ("offpolicy.dropped_frac", "offpolicy.dropped")


@check(page=__doc__, uses=[*_DROPS, "progress.samples_step"], since="0.2")
def async_selection_bias(run: Run, limits: Limits) -> Answer:
    found = _share(run)
    if found is None and not run.partial and not any(name.startswith("offpolicy.") for name in run.columns):
        return NotApplicable("nothing in the log says that sampling runs ahead of training, so nothing grows too old")
    if found is None:
        return Unexamined(
            ("offpolicy.dropped_frac",), "neither a share of dropped samples nor a number beside a batch size"
        )
    column, batch = found
    share = now(run, column.values)
    rows = max(1, len(column) // (3 if run.short else 4))
    sure = lower_bound(share, rows * batch)
    severity = limits.grade("share", sure)
    whole, bound = float(np.mean(column.values)), limits.at("share", Severity.WARNING)
    return Finding(
        severity=severity,
        says=f"{share:.0%} of the finished samples are thrown away as too old"
        + ("; what takes long to finish is hardly trained" if severity is not None else ""),
        numbers={"share": share, "at_least": sure, "whole": whole},
        metrics=(column.metric,),
        onset=crossing(column.steps, column.values, bound, above=True) if severity is not None else None,
        evidence=Evidence(share, None, f"{rows} rows of about {batch:.0f} samples, Wilson lower bound"),
        remedies=("staleness_limit", "pace_sampling"),
        would_decide=("lengths and tasks of the dropped samples beside those of the trained ones",) if severity else (),
        wasted=whole if severity is not None else None,
    )


def _share(run: Run) -> tuple[Column, float] | None:
    """The dropped share of the samples of each row, and about how many samples a row holds."""
    logged = run.get("offpolicy.dropped_frac")
    size = run.number("train_batch_size")
    steps, trained, dropped = run.paired("progress.samples_step", "offpolicy.dropped")
    if logged is not None and len(logged.finite):
        return logged.finite, size or 64.0
    column = run.get("offpolicy.dropped")
    if column is None or not len(column.finite) or (not len(steps) and not size):
        return None
    if not len(steps):
        steps, dropped = column.finite.steps, column.finite.values
        trained = np.full(len(steps), float(size or 0.0))
    spans = np.diff(steps, prepend=steps[0] - (steps[1] - steps[0] if len(steps) > 1 else 1.0))
    if _cumulative(column, dropped):
        if len(steps) < 2:
            return None  # one total says nothing about when
        steps, trained, spans, dropped = (
            steps[1:],
            trained[1:],
            spans[1:],
            np.maximum(np.diff(dropped), 0.0) / spans[1:],
        )
    total = np.maximum(trained + dropped, 1e-12)
    share = Column("offpolicy.dropped", column.key, steps, np.clip(dropped / total, 0.0, 1.0))
    return share, float(np.median(total))


def _cumulative(column: Column, dropped: Floats) -> bool:
    return "so far" in column.note or (len(dropped) >= 5 and bool((np.diff(dropped) >= 0).all()) and dropped[-1] > 0)
