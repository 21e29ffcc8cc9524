"""Metrics worked out from saved answers, one column each, beside those that the log states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlclinic.model import Column, Floats, Run
from rlclinic.rollouts import Rollouts


def complete(run: Run) -> Run:
    """``run`` with the columns that its saved answers give where the log has none."""
    if not run.rollouts:
        return run
    table = run.rollouts[0].train
    columns = dict(run.columns)
    for metric, values in COLUMNS.items():
        if metric not in columns and (found := values(table)) is not None:
            steps, level = found
            columns[metric] = Column(metric, "saved answers", steps, level, note="worked out from saved answers")
    return replace(run, columns=columns)


def by_step(steps: Floats, values: Floats) -> tuple[Floats, Floats] | None:
    """(steps, mean of the finite ``values`` at each); None where there are none."""
    keep = np.isfinite(steps) & np.isfinite(values)
    if not keep.any():
        return None
    found, place = np.unique(steps[keep], return_inverse=True)
    return found, np.bincount(place, values[keep]) / np.bincount(place)


def _reward(table: Rollouts) -> tuple[Floats, Floats] | None:
    return by_step(table.step, table.reward)


def _dead(table: Rollouts) -> tuple[Floats, Floats] | None:
    if table.filtered or table.partial or not table.judged.any():
        return None
    return by_step(table.group_step[table.judged], table.dead[table.judged].astype(float))


COLUMNS: dict[str, Callable[[Rollouts], tuple[Floats, Floats] | None]] = {
    "reward.mean": _reward,
    "group.zero_var_frac": _dead,
}
