"""Which values of a run are NaN or infinite, or missing where they may have been, and whether that touched the weights."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlclinic.model import Column, Floats, Run

WOULD_SHOW = {
    "kept": ", and this form of log would show them",
    "null": "; this form of log writes null for them, and there is none in place of a number",
    "dropped": "; this form of log leaves them out, and no value is missing",
}
"""By what a form of log does with such values: what their absence from it is worth."""
STEADY = 5
"""Rows in which a series must have come without a break before its absence says anything (ours)."""
AHEAD = 10
"""Rows by which sampling may be ahead of the update when a log is read (ours: more is no asynchronous training)."""


def absences(run: Run, kinds: tuple[str, ...]) -> list[tuple[Column, Floats]]:
    """Series of ``kinds`` that came in every row and then miss some in which another one goes on, with those steps.

    The earliest first. The last row may be half written, so it counts only at the end of a longer absence. Where the whole
    update ends at once, any other training metric of the same file tells that the run went on; a gap, or a few rows that
    the sampler is ahead of the update, tell nothing then.
    """
    logged = [c for name, c in run.columns.items() if name.startswith(kinds) and len(c)]
    single = sum(source.role == "metrics" for source in run.sources) == 1
    update = [c for c in logged if not c.metric.startswith("reward.")]  # the reward is the sampler's
    others = [c for name, c in run.columns.items() if not name.startswith(("eval.", "progress.", "time."))]
    found: list[tuple[Column, Floats]] = []
    for column in logged:
        beside = next((c for c in update if _goes_on(c, column)), None)
        outside = next((c for c in others if single and _goes_on(c, column)), None) if beside is None else None
        rows = beside.steps if beside is not None else column.steps if outside is None else outside.steps
        absent = rows[~np.isin(rows, column.steps)]
        if outside is not None and (len(absent) <= AHEAD or absent[0] < column.steps[-1]):
            continue
        if len(absent) and int((rows < absent[0]).sum()) >= STEADY and (len(absent) > 1 or absent[0] != rows[-1]):
            found.append((column, absent))
    return sorted(found, key=lambda pair: (pair[1][0], pair[0].key))


def _goes_on(other: Column, column: Column) -> bool:
    """Whether ``other`` came in every row of ``column`` and in more."""
    return len(other) > len(column) and bool(np.isin(column.steps, other.steps).all())


def first_lost(column: Column) -> float:
    """The first step at which a column that has such a value is NaN or infinite."""
    return float(column.steps[~np.isfinite(column.values)][0])


def sound(run: Run) -> bool:
    """Whether a loss and, where it is logged, the gradient are finite in every row: the weights cannot be poisoned then."""
    update = [c for m in ("loss.total", "loss.policy", "grad.norm") if (c := run.get(m)) is not None]
    return any(c.metric.startswith("loss.") for c in update) and not any(c.nonfinite for c in update)


def updated(run: Run, bad: Iterable[Column]) -> bool:
    """Whether the rows in which these values are not finite show a sound update all the same: a finite gradient, or a loss
    that is not 0, as which a trainer that filters prints one that was not finite."""
    loss = run.get("loss.total") or run.get("loss.policy")
    if not sound(run) or "grad.norm" in run or loss is None:
        return sound(run) and "grad.norm" in run
    lost = np.unique(np.concatenate([c.steps[~np.isfinite(c.values)] for c in bad]))
    return bool(np.isin(lost, loss.steps[loss.values != 0]).all())


def undefined(run: Run, column: Column) -> bool:
    """Whether a series is a statistic without a value here, such as the variance of one element: no number in any row of a
    run whose loss and gradient are finite. A few rows of one that could be damage tell nothing."""
    spread = column.metric.startswith("ratio.")
    return column.nonfinite == len(column) and sound(run) and (spread or not run.short)
