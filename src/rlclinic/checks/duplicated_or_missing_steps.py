"""Steps of the log are missing, repeated or out of order.

## What you see
Step numbers jump over rows, go back, or come twice with different values; rows repeat the one before.

## Why it matters
A row counted twice is no second measurement, and a hole may hide the very moment something happened. Repeated rows are
counted once here, the last that was written for each step, so that no trend rests on them.

## When it is not a problem
A logging interval above 1, a first row at step 1 and a last one at the end of the run are no holes. A restart from a
checkpoint repeats the steps after it: the earlier attempt is set aside.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.model import Evidence, Finding, Floats, Onset, Run, Severity

REPEATS = ("duplicated_steps", "duplicated_rows", "stale_rows", "restarted", "several_attempts", "out_of_order")
UNKNOWN = ("rows_without_step", "steps_do_not_move", "row_order", "downsampled")
"""Warnings of the reader after which the rows are counted instead: a hole could not be seen."""


@check(page=__doc__, since="0.2")
def duplicated_or_missing_steps(run: Run, limits: Limits) -> Answer:
    steps = run.steps
    told = [warn for warn in run.warnings if warn.code in REPEATS]
    counted = any(warn.code in UNKNOWN for warn in run.warnings)
    if not len(steps) or (len(steps) < limits["rows"] and not told):
        return Unexamined((), "too few rows to know their interval")
    pace, missing, at = _holes(np.empty(0) if counted else steps)
    share = missing / (missing + len(steps))
    severity = limits.grade("missing", share)
    if told and severity is None:
        severity = Severity.INFO
    parts = []
    if missing and severity is not None:
        parts.append(f"{missing:.0f} rows of {missing + len(steps):.0f} are missing, first after step {at:g}")
    parts += [warn.says for warn in told[:2]]
    if len(told) > 2:
        parts.append(f"and {len(told) - 2} more remarks of this kind")
    lack = "shows only some of its steps" if run.thinned else "states no step"
    unread = f" (the log {lack}, so that holes cannot be seen)" if counted else ""
    return Finding(
        severity=severity,
        says="; ".join(parts) if parts else f"{len(steps)} rows lie {pace:g} steps apart, each once{unread}",
        numbers={"missing": float(missing), "share": share, "interval": pace},
        onset=Onset(at, at, at + pace) if missing and severity is not None else None,
        evidence=Evidence(share, None, "distances between logged steps"),
        remedies=("deduplicate_steps",),
        would_decide=("the trainer's own state or tracker for the missing steps",) if missing and severity else (),
    )


def _holes(steps: Floats) -> tuple[float, float, float]:
    """The usual distance of rows, how many rows are missing at it, and the step before the first hole.

    The first and the last distance are left out: many trainers add a row at step 1 and one at the end. Where the commonest
    distance is rare the log has no interval of its own, and nothing is missing.
    """
    if len(steps) < 4:
        return 0.0, 0.0, 0.0
    apart, before = np.diff(steps)[1:-1], steps[1:-2]
    distances, times = np.unique(apart, return_counts=True)
    common = times >= 0.7 * times.max()
    pace = float(distances[common][0])
    if (apart == pace).mean() < 0.4:
        return pace, 0.0, 0.0
    wide = apart >= 2 * pace
    return pace, float(np.round(apart[wide] / pace - 1).sum()), float(before[wide][0]) if wide.any() else 0.0
