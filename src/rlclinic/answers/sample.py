"""Which saved answers the contrast looks at: whole groups, evenly over windows of steps, within a budget of characters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlclinic.answers.phrases import MOST_CHARACTERS
from rlclinic.rollouts import Flags, Floats, Ints, Rollouts, Text

BUDGET = 3 << 20
"""Characters of answers that are looked at (ours: about a second)."""
MOST_ROWS = 12_000
"""Answers that are looked at (ours)."""
MOST_WINDOWS = 9
"""Windows into which the steps are cut (ours: thirds of three)."""
FEWEST = 24
"""Answers below which nothing is said (ours)."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Answers (n) in order of step and group, with all that is compared."""

    rows: Ints
    """(n,) their rows in the table."""
    texts: tuple[Text, ...]
    group: Ints
    """(n,) numbered anew, not falling."""
    prompt: Ints
    """(n,) numbered anew from 0."""
    step: Floats
    window: Ints
    windows: int
    spans: tuple[tuple[float, float], ...]
    reward: Floats
    parts: dict[str, Floats]
    length: Floats
    """(n,) tokens, or characters where these are not known."""
    grouped: bool
    """False where the table has no groups: answers of a step are compared instead."""

    @property
    def n(self) -> int:
        return len(self.rows)


def sample(table: Rollouts) -> Sample | None:
    """The answers of ``table`` that are looked at; None where fewer than ``FEWEST`` have a text, a reward and another
    answer to compare with."""
    rows = np.fromiter(table.texts, dtype=np.int64, count=len(table.texts))
    rows = rows[np.isfinite(table.reward[rows])]
    if len(rows) < FEWEST:
        return None
    step = np.where(np.isfinite(table.step[rows]), table.step[rows], 0.0)
    group, grouped = table.group[rows], True
    rows, group, step = _in_groups(rows, group, step)
    if len(rows) < FEWEST:
        rows = np.sort(np.fromiter(table.texts, dtype=np.int64, count=len(table.texts)))
        rows = rows[np.isfinite(table.reward[rows])]
        step = np.where(np.isfinite(table.step[rows]), table.step[rows], 0.0)
        rows, group, step = _in_groups(rows, np.unique(step, return_inverse=True)[1].astype(np.int64), step)
        grouped = False
    if len(rows) < FEWEST:
        return None
    window = _windows(step, group)
    keep = _within_budget(table, rows, group, window)
    rows, group, step, window = rows[keep], group[keep], step[keep], window[keep]
    _, window = np.unique(window, return_inverse=True)
    _, group = np.unique(group, return_inverse=True)
    asked = table.prompt[rows]
    prompt = np.unique(np.where(asked >= 0, asked, -2 - group), return_inverse=True)[1]
    tokens = table.tokens[rows]
    length = tokens if np.isfinite(tokens).all() else table.characters[rows]
    known = np.isfinite(table.step[rows]).all()
    spans = [(float(step[window == w].min()), float(step[window == w].max())) for w in range(int(window.max()) + 1)]
    return Sample(
        rows=rows,
        texts=tuple(table.texts[int(row)] for row in rows),
        group=group.astype(np.int64),
        prompt=prompt.astype(np.int64),
        step=step if known else np.full(len(rows), np.nan),
        window=window.astype(np.int64),
        windows=int(window.max()) + 1,
        spans=tuple(spans) if known else (),
        reward=table.reward[rows],
        parts={name: values[rows] for name, values in table.parts.items()},
        length=np.nan_to_num(length),
        grouped=grouped,
    )


def _in_groups(rows: Ints, group: Ints, step: Floats) -> tuple[Ints, Ints, Floats]:
    """Those with a companion in their group, by step and group; groups numbered in that order."""
    known = group >= 0
    rows, group, step = rows[known], group[known], step[known]
    if not len(rows):
        return rows, group, step
    size = np.bincount(group)
    first = np.full(len(size), np.inf)
    np.minimum.at(first, group, step)
    keep = size[group] >= 2
    rows, group, step = rows[keep], group[keep], step[keep]
    order = np.lexsort((rows, group, first[group]))
    rows, group, step = rows[order], group[order], step[order]
    if len(group):
        group = np.cumsum(np.diff(group, prepend=group[0]) != 0)
    return rows, group.astype(np.int64), step


def _windows(step: Floats, group: Ints) -> Ints:
    """(n,) the window of each row: whole steps, about as many groups in each."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    values, counts = np.unique(step[starts], return_counts=True)
    windows = min(MOST_WINDOWS, len(values))
    ends = np.cumsum(counts) - counts / 2.0
    place = np.minimum((ends * windows / counts.sum()).astype(np.int64), windows - 1)
    _, place = np.unique(place, return_inverse=True)
    return place[np.searchsorted(values, step)].astype(np.int64)


def _within_budget(table: Rollouts, rows: Ints, group: Ints, window: Ints) -> Flags:
    """Whole groups, evenly spread over each window, so that windows have about the same share of the budget."""
    size = np.minimum(np.nan_to_num(table.characters[rows], nan=1000.0), MOST_CHARACTERS)
    if size.sum() <= BUDGET and len(rows) <= MOST_ROWS:
        return np.ones(len(rows), dtype=bool)
    windows = int(window.max()) + 1
    keep = np.zeros(len(rows), dtype=bool)
    for w in range(windows):
        inside = np.flatnonzero(window == w)
        share = max(size[inside].sum() * windows / BUDGET, len(inside) * windows / MOST_ROWS, 1.0)
        groups = np.unique(group[inside])
        places = np.linspace(0, len(groups) - 1, max(int(len(groups) / share), 2)).astype(np.int64)
        keep[inside] = np.isin(group[inside], groups[places])
    return keep
