"""One saved answer as somebody may see it: its numbers, and its words with secrets and personal strings hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlclinic.answers.mask import masked
from rlclinic.model import Run
from rlclinic.rollouts import ENDINGS, Ending, Rollouts

LONGEST = 200_000
"""Characters of one text that are masked and handed on; what is shown is far less, from both ends."""


@dataclass(frozen=True)
class Hung:
    """One answer: its row in the table, its numbers (NaN where not known), and its masked words (None where not at hand)."""

    row: int
    step: float
    prompt: int
    """The number of its prompt; -1 where that is not known."""
    reward: float
    parts: tuple[tuple[str, float], ...]
    advantage: float
    tokens: float
    ending: Ending
    mismatch: float
    """The largest difference of log-probability at one token between trainer and sampler, else the mean one, in nats."""
    words: str | None
    asked: str | None = None
    """The words of its prompt, where they are not told above it."""
    times: int = 1
    """How many answers of its group are this text."""


def hung(run: Run, rows: Sequence[int]) -> tuple[Hung, ...]:
    """The answers in ``rows`` of ``run.rollouts[0].train``; rows that do not exist are left out."""
    if not rows or not run.rollouts:
        return ()
    table = run.rollouts[0].train
    return tuple(hang(table, row) for row in rows if 0 <= row < len(table))


def among_training(run: Run, table: Rollouts, rows: Sequence[int]) -> tuple[int, ...]:
    """``rows`` of ``table`` as rows of ``run.rollouts[0].train``, for ``Finding.samples``; empty for another table."""
    if not run.rollouts or table is not run.rollouts[0]:
        return ()
    place = np.cumsum(~table.held_out) - 1
    return tuple(int(place[row]) for row in rows if not table.held_out[row])


def hang(table: Rollouts, row: int, *, asked: bool = True) -> Hung:
    """The answer in ``row`` of ``table``, with the words of its prompt where ``asked``."""
    text = table.texts.get(row)
    parts = tuple((name, float(values[row])) for name, values in table.parts.items() if np.isfinite(values[row]))
    off = table.worst_mismatch[row] if np.isfinite(table.worst_mismatch[row]) else table.mismatch[row]
    return Hung(
        row=int(row),
        step=float(table.step[row]),
        prompt=int(table.prompt[row]),
        reward=float(table.reward[row]),
        parts=parts,
        advantage=float(table.advantage[row]),
        tokens=float(table.tokens[row]),
        ending=ENDINGS[table.ending[row]],
        mismatch=float(off),
        words=None if text is None else hidden(text.answer),
        asked=hidden(text.prompt) if asked and text is not None and text.prompt else None,
    )


def hidden(text: str) -> str:
    """``text`` masked; of a very long one only the ends, which is more than is ever shown."""
    if len(text) <= LONGEST:
        return masked(text)
    half = LONGEST // 2
    return f"{masked(text[:half])}\n[... {len(text) - 2 * half} characters left out ...]\n{masked(text[-half:])}"
