"""The parts of a reward: which of them is the task, and how much of the reward's variance each carries."""

from __future__ import annotations

import re

import numpy as np

from rlclinic.model import Component, Floats, Run

_OF_THE_TASK = re.compile(r"accura|correct|exact|answer|solv|pass|success|task|outcome|ndcg|unit_?test|win_?rate", re.I)
_BESIDE_IT = re.compile(
    r"format|style|length|\blen|(^|_)tags?|xml|json|struct|penal|bonus|lang|repet|overlong|(xml|token|word)_?count|brev|concis|think|cit(e|ation)"
    r"|tool_?(use|call)|(^|_)int_",
    re.I,
)


def task_parts(run: Run) -> tuple[Component, ...]:
    """The reward parts that measure the task itself, as far as names tell: those called after correctness or, without
    such, what is left beside parts called after form, length or a bonus; none when the names tell nothing."""
    beside = [part for part in run.components.values() if _BESIDE_IT.search(part.name)]
    rest = [part for part in run.components.values() if part not in beside]
    named = [part for part in rest if _OF_THE_TASK.search(part.name)]
    return tuple(named or (rest if beside else ()))


def weighted_variances(run: Run) -> dict[str, Floats]:
    """(n,) variance over the batch that each part brings to the reward (weight and spread squared) at the rows that all
    share; empty when a spread or a weight is missing. Shares over a stretch are those of its sums: parts are taken as
    independent, and rows without any spread do not count."""
    parts = [part for part in run.components.values() if part.weight != 0.0]
    if len(parts) < 2 or any(part.std is None or part.weight is None for part in parts):
        return {}
    columns = [part.std.finite for part in parts if part.std is not None]
    steps = columns[0].steps
    for column in columns[1:]:
        steps = np.intersect1d(steps, column.steps, assume_unique=True)
    return {
        part.name: np.square((part.weight or 0.0) * column.values[np.searchsorted(column.steps, steps)])
        for part, column in zip(parts, columns, strict=True)
    }


def parts_named(run: Run, words: re.Pattern[str]) -> tuple[Component, ...]:
    """The reward parts whose names say what ``words`` look for, longest series first."""
    found = [part for part in run.components.values() if words.search(part.name) and len(part.mean.finite)]
    return tuple(sorted(found, key=lambda part: (-len(part.mean.finite), part.name)))
