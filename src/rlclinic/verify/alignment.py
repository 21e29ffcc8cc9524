"""How the run after relates to the run before: started anew, resumed from a step of it, or going on from its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rlclinic.errors import BadRequest
from rlclinic.model import Column, Floats, Run
from rlclinic.verify.form import Relation

FEWEST = 10
"""Rows of the run after below which nothing is said (ours: the level of fewer autocorrelated rows is a guess)."""
_NEAR = 2.0
"""Rows from the first of the run before within which a run starts anew (ours)."""
_OWN = 3
"""Equal rows at the beginning that show that a log was copied (ours)."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two runs on one axis of steps. ``after`` holds only rows of its own; ``start``: see ``Verification``."""

    before: Run
    after: Run
    relation: Relation
    start: float | None
    pace: float
    """Steps from one logged row to the next."""
    remarks: tuple[str, ...] = ()


def mapped(run: Run, change: Callable[[Column], Column]) -> Run:
    """The run with every column changed, without those that are then empty, and without saved answers."""
    parts = {
        name: replace(part, mean=change(part.mean), std=None if part.std is None else change(part.std))
        for name, part in run.components.items()
    }
    return replace(
        run,
        columns={m: c for m, old in run.columns.items() if len(c := change(old))},
        components={name: part for name, part in parts.items() if len(part.mean)},
        evaluations={k: c for k, old in run.evaluations.items() if len(c := change(old))},
        began=None,
    )


def since(run: Run, step: float) -> Run:
    """The run as a log that begins at ``step``."""
    tables = tuple(kept for table in run.rollouts if len(kept := table.only(~(table.step < step))))
    seams = {at: why for at, why in run.seams.items() if at > step}
    return replace(mapped(run, lambda column: column.since(step)), rollouts=tables, seams=seams)


def split(run: Run, at: float) -> tuple[Run, Run]:
    """One log that holds both: up to ``at``, and behind it. Raises BadRequest where one of them holds no row."""
    steps = run.steps
    later = steps[steps > at]
    if not len(later) or len(later) == len(steps):
        span = f"steps {steps[0]:g} to {steps[-1]:g}" if len(steps) else "no step"
        raise BadRequest("a step inside the log for --at", f"--at {at:g} in {span}")
    return run.upto(at), since(run, float(later[0]))


def spliced(first: Run, second: Run, pace: float) -> tuple[Run, float]:
    """``second`` behind ``first`` without a gap, as one log with the settings of ``second``, and the step at which it
    begins. What a check finds there is not that two logs were joined: no seam is in it."""
    join = float(first.steps[-1]) + pace
    by = join - float(second.steps[0])
    moved = mapped(second, lambda column: replace(column, steps=column.steps + by))

    def behind(one: Column | None, other: Column | None) -> Column | None:
        if one is None or other is None:
            return one if other is None else other
        steps, values = np.concatenate([one.steps, other.steps]), np.concatenate([one.values, other.values])
        return replace(other, steps=steps, values=values)

    columns = {m: behind(first.get(m), moved.get(m)) for m in {*first.columns, *moved.columns}}
    held = {
        k: behind(first.evaluations.get(k), moved.evaluations.get(k)) for k in {*first.evaluations, *moved.evaluations}
    }
    parts = dict(moved.components)
    for name, part in first.components.items():
        other = parts.get(name)
        if other is None:
            parts[name] = part
            continue
        mean = behind(part.mean, other.mean)
        parts[name] = replace(other, mean=mean or other.mean, std=behind(part.std, other.std))
    planned = None if moved.planned_steps is None else max(moved.planned_steps, int(join) + len(moved.steps))
    run = replace(
        moved,
        columns={m: c for m, c in sorted(columns.items()) if c is not None},
        evaluations={k: c for k, c in sorted(held.items()) if c is not None},
        components=parts,
        rollouts=(),
        seams={},
        checkpoints=(),
        planned_steps=planned,
        warnings=(),
    )
    return run, join


def align(before: Run, after: Run, resumed: float | None = None) -> Pair:
    """The two runs on one axis, and how they hang together.

    ``resumed``: the step of ``before`` from which ``after`` goes on, where only its owner knows. Rows that ``after`` has
    in common with ``before`` (a log that was copied and continued) are not its own and are left out. Raises BadRequest
    where the runs cannot be two attempts at one task, or ``after`` has fewer than ``FEWEST`` rows of its own.
    """
    _same_task(before, after)
    steps = before.steps
    pace = float(np.median(np.diff(steps))) if len(steps) > 1 else 1.0
    own = _own(before, after)
    remarks: tuple[str, ...] = ()
    start: float | None
    if len(own) >= _OWN:
        if len(own) == len(after.steps):
            raise BadRequest(
                "a run after the change", "AFTER holds no row that BEFORE does not hold: the same run twice"
            )
        start = float(own[-1])
        after = since(after, float(after.steps[len(own)]))
        remarks = (f"the first {len(own)} rows of AFTER are rows of BEFORE (up to step {start:g}) and are left out",)
        relation: Relation = "continued" if start >= steps[-1] else "resumed"
    elif resumed is not None:
        start = resumed
        if float(after.steps[0]) <= resumed:
            after = mapped(after, lambda column: replace(column, steps=column.steps + resumed))
            remarks = (f"the steps of AFTER are counted from step {resumed:g} of BEFORE",)
        relation = "continued" if resumed >= steps[-1] else "resumed"
    elif float(after.steps[0]) > steps[-1]:
        start, relation = float(steps[-1]), "continued"
    elif float(after.steps[0]) <= steps[0] + _NEAR * pace:
        start, relation = None, "fresh"
    else:
        start, relation = float(after.steps[0]) - pace, "resumed"
    if len(after.steps) < FEWEST:
        raise BadRequest(
            f"at least {FEWEST} logged rows after the change",
            f"{len(after.steps)} in {after.name}",
            hint="let it run on, then rlclinic verify BEFORE AFTER",
        )
    return Pair(before, after, relation, start, pace, remarks)


def unlike_rewards(before: Run, after: Run) -> bool:
    """Whether the rewards of the two are made of other parts altogether: their levels are then of two quantities."""
    parts = set(before.components), set(after.components)
    return all(parts) and not parts[0] & parts[1]


def _held_out(run: Run) -> set[str]:
    """Held-out series that are no reward, which would change with its parts."""
    return {name for name in run.evaluations if "reward" not in name.lower()}


def _own(before: Run, after: Run) -> Floats:
    """Steps at the beginning of ``after`` whose rows are those of ``before``, value by value."""
    steps = after.steps
    same, seen = np.ones(len(steps), dtype=bool), np.zeros(len(steps), dtype=bool)
    for metric, column in after.columns.items():
        other = before.get(metric)
        if other is None or metric == "optim.lr":
            continue
        common, i, j = np.intersect1d(column.steps, other.steps, assume_unique=True, return_indices=True)
        if not len(common):
            continue
        rows = np.searchsorted(steps, common)
        inside = rows < len(steps)
        a, b = column.values[i], other.values[j]
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        varies = float(np.ptp(a[np.isfinite(a)])) > 0.0 if np.isfinite(a).any() else False
        same[rows[inside]] &= equal[inside]
        seen[rows[inside]] |= equal[inside] & varies
    shared = same & seen
    return steps[: len(steps) if shared.all() else int(np.argmin(shared))]


def _same_task(before: Run, after: Run) -> None:
    for run, name in ((before, "BEFORE"), (after, "AFTER")):
        if not len(run.steps) or not run.logged:
            raise BadRequest(
                f"a log with training steps as {name}", f"none in {run.name}", hint="rlclinic diagnose RUN"
            )
    one, other = before.framework, after.framework
    if one is not None and other is not None and one.name != other.name:
        raise BadRequest(
            "two runs of one trainer", f"{one.title} before and {other.title} after", hint="--framework NAME"
        )
    if not _held_out(before) & _held_out(after) and unlike_rewards(before, after):
        told = " and ".join(", ".join(sorted(run.components))[:120] for run in (before, after))
        raise BadRequest("two runs of one task", f"neither a reward part nor a held-out series in common: {told}")
    if not set(before.columns) & set(after.columns):
        raise BadRequest("two runs that log the same metrics", "no metric in common")
