"""Which printed dictionaries are no rows of the log: those that reward functions and other code print between its rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlclinic.readers.axis import STEP_KEYS, IntArray
from rlclinic.readers.rows import Rows

SHAPES = 1_000
"""Most sets of keys that are told apart (ours); rows of all further ones count as one set that is never steady."""
STEADY = 3
"""Fewest rows from which a second dictionary at every row of the trainer, or at every n-th one, counts as its (ours)."""
STATED = 2
"""Fewest rows in a form with the step before them from which a dictionary without one is no row (ours)."""

_MARKS = frozenset({"epoch", *STEP_KEYS})
_OPTIMISED = frozenset({"grad_norm", "learning_rate"})
"""Beside an epoch, what tells Transformers, whose dictionaries all hold an epoch; a step alone is then no mark."""
_EVALUATION = ("eval", "val/", "val-", "test/")


@dataclass
class _Kind:
    """Rows of one set of keys without an epoch, with the first as an example."""

    example: str
    rows: array[int] = field(default_factory=lambda: array("q"))


class Strays:
    """Notes the dictionaries of a text (``note``) and leaves out at the end those that are no rows (``leave_out``).

    A trainer that counts writes its epoch or step into each of its dictionaries, or before each line. Where it does, a
    smaller dictionary that holds neither is of something else. Where nothing counts, all dictionaries stay.
    """

    def __init__(self) -> None:
        self.left_out = 0
        """Rows that were left out."""
        self.example = ""
        """The first of them, as short text."""
        self._noted = 0
        self._real = array("q")
        self._real_keys: set[str] = set()
        self._width = 0
        self._epochs = False
        self._others: dict[tuple[str, ...], _Kind] = {}

    @property
    def all_out(self) -> bool:
        """True when every dictionary that was noted was left out."""
        return 0 < self._noted == self.left_out

    def note(self, pairs: Mapping[str, object], row: int) -> None:
        """A whole dictionary without a label became row number ``row``."""
        shape = tuple(pairs)
        self._noted += 1
        if any(key.startswith(_EVALUATION) for key in shape):
            return
        if "epoch" in shape:
            self._epochs |= not _OPTIMISED.isdisjoint(shape)
            self._count(shape, (row,))
            return
        if shape not in self._others and len(self._others) >= SHAPES:
            shape = ()
        if shape not in self._others:
            text = ", ".join(f"{key}: {str(value)[:20]}" for key, value in list(pairs.items())[:3])[:120]
            self._others[shape] = _Kind("{" + text + (", ...}" if len(pairs) > 3 else "}"))
        self._others[shape].rows.append(row)

    def _count(self, shape: tuple[str, ...], rows: Iterable[int]) -> None:
        """Rows of a trainer that counts."""
        self._real.extend(rows)
        if not self._real_keys.issuperset(shape):
            self._real_keys.update(shape)
        self._width = max(self._width, len(shape))

    def leave_out(self, rows: Rows, stated: int) -> None:
        """Leave out of ``rows`` those of other code; ``stated`` rows came in a form with the step before them."""
        if not self._epochs:
            for shape in [shape for shape in self._others if not _MARKS.isdisjoint(shape)]:
                self._count(shape, self._others.pop(shape).rows)
        if not self._others or not (len(self._real) or stated >= STATED):
            return
        mine = np.ones(rows.rows, dtype=bool)
        real = np.sort(np.array(self._real, dtype=np.int64))
        for shape, kind in self._others.items():
            if stated < STATED and len(shape) >= self._width:
                continue
            held = np.frombuffer(kind.rows, dtype=np.int64)
            mine[held] = False
            if shape and self._real_keys.isdisjoint(shape) and (onto := _steady(held, real)) is not None:
                rows.lay_onto(held, onto)
                self._noted -= len(held)
                continue
            self.left_out += len(held)
            self.example = self.example or kind.example
        if not mine.all():
            rows.only(mine)


def _steady(held: IntArray, real: IntArray) -> NDArray[np.int64] | None:
    """The row of the trainer that each row of ``held`` belongs to, where one comes with every n-th; else None."""
    if len(held) < STEADY or len(real) < STEADY:
        return None
    behind = np.searchsorted(real, held)  # rows of the trainer before each
    gaps = np.diff(behind)
    if int(gaps.min()) < 1 or bool((gaps != gaps[0]).any()):
        return None
    ahead = behind[0] == 0
    if ahead and behind[-1] >= len(real):
        return None
    return np.asarray(real[behind if ahead else behind - 1], dtype=np.int64)
