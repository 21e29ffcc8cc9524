"""Whether what is read now is the run that was read before, and both as one where the log lost its beginning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from rlclinic.model import Column, Component, Floats, Run, Warn

Kinship: TypeAlias = Literal["same", "goes on", "another"]

_METRICS = 8
_ROWS = 5
"""Metrics and rows by whose values a run is known again (ours: two runs of one seed differ within these)."""
_SHARED = 0.5
"""Part of the metrics that a log which goes on must share with what was read before (ours)."""
_SCRATCH = 1.5
"""Distances of its rows within which the first row of a run from scratch lies (ours)."""
_COUNTED = frozenset({"rows_without_step", "steps_do_not_move", "row_order"})
"""Warnings of the readers that rows were counted where the log states no step."""
_EPOCH = "progress.epoch"


@dataclass(frozen=True)
class Beginning:
    """By what a run is known again: its first step, and some values of its first rows, by metric and step."""

    first: float
    values: Mapping[str, Mapping[float, float]]
    metrics: frozenset[str]

    @property
    def whole(self) -> bool:
        """Whether all the rows are known by which a run is known again."""
        return any(len(one) >= _ROWS for one in self.values.values())

    def as_json(self) -> dict[str, Any]:
        """The beginning as plain JSON."""
        values = {name: [[step, value] for step, value in one.items()] for name, one in self.values.items()}
        return {"first": self.first, "values": values, "metrics": sorted(self.metrics)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Beginning:
        """Raises ValueError, KeyError, TypeError or AttributeError for anything else than ``as_json`` gives."""
        values = {str(k): {float(step): float(value) for step, value in one} for k, one in told["values"].items()}
        metrics = frozenset(map(str, told["metrics"]))
        return cls(float(told["first"]), values, metrics)


def beginning(run: Run) -> Beginning | None:
    """How ``run`` begins; None before its first step."""
    if not len(run.steps):
        return None
    firsts = {
        name: dict(zip(one.steps[:_ROWS].tolist(), one.values[:_ROWS].tolist(), strict=True))
        for name, column in run.columns.items()
        if not name.startswith(("progress.", "optim.")) and len(one := column.finite)
    }
    # Counts and zeros are alike in many runs.
    telling = {name: len({v for v in one.values() if not v.is_integer()}) for name, one in firsts.items()}
    values = {name: firsts[name] for name in sorted(firsts, key=lambda name: (-telling[name], name))[:_METRICS]}
    return Beginning(float(run.steps[0]), values, frozenset(run.columns))


def kinship(before: Beginning, now: Run) -> Kinship:
    """Whether ``now``, read from where ``before`` was read, is the same run, goes on where its beginning was lost, or is
    another run from scratch.

    A log that begins later than before lost its beginning; one that begins as before is the same run if its first rows
    say what they said.
    """
    if not len(now.steps):
        return "same"
    agrees = _agrees(before, now)
    first = float(now.steps[0])
    if agrees is None and float(now.steps[-1]) < before.first:
        return "another"
    if first > before.first and agrees is not True:
        if len(now.steps) > 1 and first <= _SCRATCH * float(np.median(np.diff(now.steps))):
            return "another"  # it only logs less often
        shared = len(before.metrics & set(now.columns))
        return "goes on" if shared >= _SHARED * min(len(before.metrics), len(now.columns)) else "another"
    return "another" if agrees is False else "same"


def _agrees(before: Beginning, now: Run) -> bool | None:
    """Whether most of the values kept of the beginning are there, at their steps or, since a log that grows may show that
    its rows are further apart, as the first ones; None where none of their steps is."""
    kept = {name: values for name, values in before.values.items() if name in now}
    firsts = [(list(values.values()), now[name].finite.values.tolist()) for name, values in kept.items()]
    in_order = [_alike(one, other) for mine, first in firsts for one, other in zip(mine, first, strict=False)]
    if in_order and sum(in_order) * 2 > len(in_order):
        return True
    at_steps: list[bool] = []
    for name, values in kept.items():
        steps, at, _ = np.intersect1d(now[name].steps, list(values), return_indices=True)
        at_steps += [
            _alike(values[step], value)
            for step, value in zip(steps.tolist(), now[name].values[at].tolist(), strict=True)
        ]
    return None if not at_steps else sum(at_steps) * 2 >= len(at_steps)


def _alike(one: float, other: float) -> bool:
    return bool(np.isclose(one, other, rtol=1e-6, atol=0.0))


def recounted(earlier: Run, now: Run) -> Run | None:
    """``now`` with its rows counted on from those of ``earlier``, where both only count rows and the epoch goes on.

    None where the step is stated, or nothing tells that the training went on.
    """
    if not all(any(warn.code in _COUNTED for warn in run.warnings) for run in (earlier, now)):
        return None
    before, after = earlier.get(_EPOCH), now.get(_EPOCH)
    if before is None or after is None or not len(before.finite) or not len(after.finite):
        return None
    if after.finite.values[0] < before.finite.values[-1]:
        return None
    shift = float(earlier.steps[-1]) + 1.0 - float(now.steps[0])

    def move(column: Column) -> Column:
        return replace(column, steps=column.steps + shift)

    return replace(
        now,
        columns={name: move(one) for name, one in now.columns.items()},
        components={
            name: replace(one, mean=move(one.mean), std=None if one.std is None else move(one.std))
            for name, one in now.components.items()
        },
        evaluations={name: move(one) for name, one in now.evaluations.items()},
        seams={at + shift: why for at, why in now.seams.items()},
        began=None if now.began is None else now.began + shift,
    )


def continued(earlier: Run, now: Run) -> Run:
    """``now`` with what ``earlier`` knows of the steps before its first; from there on ``now`` is right.

    Where the log goes back there, that is a seam, as of every training that went on from an earlier step.
    """
    if not len(now.steps):
        return replace(earlier, ending=now.ending or earlier.ending)
    if not len(earlier.steps):
        return now
    at, last = float(now.steps[0]), float(earlier.steps[-1])
    seams = {step: why for step, why in earlier.seams.items() if step < at} | dict(now.seams)
    if at <= last:
        seams.setdefault(at, f"the log goes on here, after it had reached step {last:g}")
    says = f"the log was cut: steps before {at:g} are known from earlier looks"
    kept = [warn for warn in earlier.warnings if warn.code not in {one.code for one in now.warnings} | {"log_cut"}]
    known = {**{one.key: one for one in earlier.unrecognised}, **{one.key: one for one in now.unrecognised}}
    return replace(
        now,
        framework=now.framework or earlier.framework,
        algorithm=now.algorithm or earlier.algorithm,
        columns=_columns(earlier.columns, now.columns, at),
        components=_parts(earlier.components, now.components, at),
        evaluations=_columns(earlier.evaluations, now.evaluations, at),
        eval_rule=now.eval_rule or earlier.eval_rule,
        knobs={**earlier.knobs, **now.knobs},
        facts={**{key: text for key, text in earlier.facts.items() if key != "train_runtime"}, **now.facts},
        unrecognised=tuple(known[key] for key in sorted(known)),
        warnings=(*now.warnings, *kept, Warn("log_cut", says)),
        seams=dict(sorted(seams.items())),
        began=now.began if now.began is not None else earlier.began,
        planned_steps=now.planned_steps or earlier.planned_steps,
        excerpt=earlier.excerpt and now.excerpt,
        kind="rl" if "rl" in (earlier.kind, now.kind) else now.kind,
    )


def _columns(earlier: Mapping[str, Column], now: Mapping[str, Column], at: float) -> dict[str, Column]:
    whole = {name: _column(one, now.get(name), at) for name, one in earlier.items()}
    return {name: one for name, one in {**now, **whole}.items() if len(one)}


def _column(earlier: Column, now: Column | None, at: float) -> Column:
    """The values of ``earlier`` before ``at`` and those of ``now``, which are never doubled."""
    if now is None or not len(now):
        keep = earlier.steps < at
        return replace(earlier, steps=earlier.steps[keep], values=earlier.values[keep])
    keep = earlier.steps < min(at, float(now.steps[0]))
    steps: Floats = np.concatenate([earlier.steps[keep], now.steps])
    return replace(
        now,
        steps=steps,
        values=np.concatenate([earlier.values[keep], now.values]),
        status=now.status if now.status == earlier.status else "measured",
        because=now.because if now.status == earlier.status else "",
        resolution=max(earlier.resolution, now.resolution),
    )


def _parts(earlier: Mapping[str, Component], now: Mapping[str, Component], at: float) -> dict[str, Component]:
    whole: dict[str, Component] = dict(now)
    for name, one in earlier.items():
        other = now.get(name)
        mean = _column(one.mean, None if other is None else other.mean, at)
        std = None if one.std is None else _column(one.std, None if other is None else other.std, at)
        std = std if std is not None else None if other is None else other.std
        if len(mean):
            whole[name] = Component(name, mean, std, one.weight if other is None else other.weight)
    return whole
