"""One run on the axis of a comparison: steps, tokens so far or seconds so far."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rlclinic import names as vocabulary
from rlclinic.compare.rows import IN_FORCE, By
from rlclinic.errors import BadRequest
from rlclinic.model import Column, Diagnosis, Floats, Run
from rlclinic.stats import paired

# Ours: what moves by itself, is worked out from the axis, or is a single total is no metric to compare.
_CLOCKS = ("progress.", "tokens.total", "time.elapsed", "time.remaining", "run.")


class Side:
    """One run with its series on the axis."""

    def __init__(self, name: str, diagnosis: Diagnosis, by: By) -> None:
        self.name = name
        self.diagnosis = diagnosis
        self.run = diagnosis.run.last_attempt
        self.axis = None if by == "step" else _axis(self.run, by, name)
        self.prepared: dict[tuple[str, float, float], paired.Side] = {}
        self.columns = {metric: self.placed(column) for metric, column in _series(self.run).items()}
        spans = [c.steps for c in self.columns.values() if len(c)]
        self.span = (min(float(s[0]) for s in spans), max(float(s[-1]) for s in spans)) if spans else None

    def placed(self, column: Column) -> Column:
        """``column`` with the axis in place of its steps; what was logged where the axis is not known is left out."""
        if self.axis is None:
            return column
        steps, axis = self.axis
        inside = (column.steps >= steps[0]) & (column.steps <= steps[-1])
        at = np.interp(column.steps[inside], steps, axis)
        rising = np.append(True, np.diff(at) > 0) if len(at) else np.empty(0, dtype=bool)
        return replace(column, steps=at[rising], values=column.values[inside][rising])

    def at(self, step: float) -> float:
        """Where a step of the run lies on the axis."""
        return step if self.axis is None else float(np.interp(step, *self.axis))

    def ready(self, metric: str, low: float, high: float) -> paired.Side:
        """The series between two places of the axis, prepared once."""
        key = (metric, low, high)
        if key not in self.prepared:
            column = self.columns[metric].finite
            self.prepared[key] = paired.side(column.steps, column.values, low, high)
        return self.prepared[key]


def _series(run: Run) -> dict[str, Column]:
    """Everything of a run that can be compared, by name."""
    found = {m: c for m, c in run.columns.items() if not m.startswith(_CLOCKS) and m != "eval.score" and len(c)}
    found |= {f"part.{name}": part.mean for name, part in run.components.items() if len(part.mean)}
    held = dict(run.evaluations)
    if not held and "eval.score" in run:
        held = {run["eval.score"].key: run["eval.score"]}
    return found | {f"held_out.{key}": column for key, column in held.items() if len(column)}


def _axis(run: Run, by: By, name: str) -> tuple[Floats, Floats]:
    """(steps, tokens or seconds so far) of a run. Raises BadRequest where the log does not tell it."""
    total, each = ("tokens.total", "tokens.step") if by == "token" else ("time.elapsed", "time.step")
    for metric, summed in ((total, False), (each, True)):
        column = run.get(metric)
        if column is None or len(column.finite) < 2 or column.status != "measured":
            continue
        steps, values = column.finite.steps, column.finite.values
        if summed:
            usual = float(np.median(np.diff(steps)))
            values = np.cumsum(values * np.diff(steps, prepend=steps[0] - min(usual, max(float(steps[0]), 1.0))))
        else:  # a counter that starts anew after a restart goes on from where it was
            rises = np.diff(values, prepend=0.0)
            values = np.cumsum(np.where(rises < 0, values, rises))
        if values[-1] > values[0]:
            return steps, values
    what = "tokens so far or per step" if by == "token" else "times of steps"
    there = [metric for metric in ("tokens.total", "tokens.step", "time.elapsed", "time.step") if metric in run]
    found = f"run {name} ({run.name}) logs {', '.join(there) if there else 'neither tokens nor times'}"
    key = (
        None
        if run.framework is None
        else vocabulary.key_for(total, run.framework) or vocabulary.key_for(each, run.framework)
    )
    log_it = f" (log {key})" if key else ""
    raise BadRequest(f"{what} in every run{log_it}", found, hint="--by step")


def common(first: Side, second: Side) -> tuple[float, float] | None:
    if first.span is None or second.span is None:
        return None
    low, high = max(first.span[0], second.span[0]), min(first.span[1], second.span[1])
    return (low, high) if high > low else None


def identical(first: Side, second: Side) -> float | None:
    """The last common step before any logged number differs; clocks and times are left out. None where only what is set
    agrees: two seeds have one schedule."""
    until, off = -math.inf, math.inf
    for metric, column in first.columns.items():
        if metric not in second.columns or metric.startswith(("time.", "perf.", "tokens.")):
            continue
        if not len(column) or np.ptp(column.values) == 0.0:
            continue
        other = second.columns[metric]
        last, departs = paired.identical((column.steps, column.values), (other.steps, other.values))
        until = max(until, -math.inf if last is None or metric.startswith(IN_FORCE) else last)
        off = min(off, math.inf if departs is None else departs)
    if until > -math.inf and off < math.inf:
        shared = np.intersect1d(first.run.steps, second.run.steps)
        shared = shared[shared < off]
        return float(shared[-1]) if len(shared) > 1 else None  # one equal row is no shared start
    return until if until > -math.inf else None
