"""Rows out of what a trainer writes in pieces: several lines for one step, or several counters in one log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rlclinic.readers.rows import Rows

BEHIND = 512
"""Steps for which a late piece still joins its row (ours: an evaluation that runs beside training lags a few steps)."""
HELD = 200_000
"""Most pieces of a log with several counters that wait for its end (ours: ten times the longest such run known)."""
ROUNDS = frozenset({"perf", "rollout", "eval", "passrate"})
"""Words before the number of a rollout in slime's lines; ``step`` stands before the number of an update."""


class Gathered:
    """Joins pieces that speak of one step into one row, and keeps an attempt apart from the one before it.

    A piece belongs to the row of its step as long as that row lacks its keys. Keys that come again with other values are
    a later update of the same step, which then counts, or, for a step that was left behind, a new attempt.
    """

    def __init__(self, rows: Rows) -> None:
        self.repeated = 0
        """Values that a later piece of the same step replaced."""
        self._rows = rows
        self._open: dict[float, dict[str, object]] = {}
        self._done: dict[float, frozenset[str]] = {}
        self._shapes: dict[frozenset[str], frozenset[str]] = {}
        self._last = float("-inf")
        self._whole = True

    def add(self, row: Mapping[str, object], step: float, whole: bool = True) -> None:
        """Take one piece of the row of ``step``; nothing of it is in ``rows`` before ``flush`` or much later steps.

        ``whole`` is False for a piece from which metrics of the step may be missing.
        """
        self._whole &= whole
        have = self._open.get(step)
        if have is not None:
            again = [key for key in row if key in have]
            if again and step < self._last and any(have[key] != row[key] for key in again):
                self._start_anew()
            else:
                self.repeated += sum(have[key] != row[key] for key in again)
                have.update(row)
                return
        elif (done := self._done.get(step)) is not None and not done.isdisjoint(row):
            self._start_anew()
        self._open[step] = dict(row)
        self._last = max(self._last, step)
        if len(self._open) > 2 * BEHIND:
            self._write(sorted(self._open)[:BEHIND])

    def flush(self) -> None:
        """Write every row that is still held."""
        self._write(sorted(self._open))

    def _start_anew(self) -> None:
        self.flush()
        self._done.clear()
        self._last = float("-inf")

    def _write(self, steps: list[float]) -> None:
        for step in steps:
            row = self._open.pop(step)
            self._rows.add(row, step, self._whole)
            keys = frozenset(row)
            self._done[step] = self._shapes.setdefault(keys, keys)


@dataclass(frozen=True)
class Piece:
    """One line of a log with several counters: which counter its number is of, and the metrics."""

    counter: str
    number: float
    row: Mapping[str, object]
    whole: bool = True


def updates_per_round(pieces: list[Piece]) -> int:
    """How many updates of the policy one rollout serves, from numbers of both kinds; 1 where they do not tell.

    slime numbers the updates through: update ``s`` belongs to rollout ``s // updates_per_round``.
    """
    rounds = "rollout" if any(piece.counter == "rollout" for piece in pieces) else "perf"
    last: dict[float, float] = {}
    now: float | None = None
    for piece in pieces:
        if piece.counter == rounds:
            now = piece.number
        elif piece.counter == "step" and now is not None:
            last[now] = max(last.get(now, 0.0), piece.number)
    found = Counter(int((top + 1) // (at + 1)) for at, top in last.items() if (top + 1) % (at + 1) == 0)
    if not found:
        return 1
    times, votes = found.most_common(1)[0]
    return times if times >= 1 and votes * 2 > len(last) else 1


class Counters:
    """Pieces of a log whose rollouts and updates are counted apart, brought onto the one count of updates."""

    def __init__(self, into: Gathered) -> None:
        self._into = into
        self._pieces: list[Piece] = []
        self._factor: int | None = None
        self._mixed = False

    @property
    def mixed(self) -> bool:
        """True when numbers of rollouts were seen, so that this log has several counters."""
        return self._mixed

    def add(self, counter: str, number: float, row: Mapping[str, object], whole: bool = True) -> None:
        """Take one line: the word before its number, the number, the metrics, and whether the line is whole."""
        self._mixed |= counter in ROUNDS
        piece = Piece(counter, number, row, whole)
        if self._factor is not None:
            self._pass_on(piece, self._factor)
        else:
            self._pieces.append(piece)
            if len(self._pieces) >= HELD:
                self.flush()

    def flush(self) -> None:
        """Pass every piece on, at the update its rollout began with."""
        pieces, self._pieces = self._pieces, []
        if self._factor is None:
            self._factor = updates_per_round(pieces)
        for piece in pieces:
            self._pass_on(piece, self._factor)

    def _pass_on(self, piece: Piece, factor: int) -> None:
        step = piece.number * factor if piece.counter in ROUNDS else piece.number
        self._into.add({key: value for key, value in piece.row.items() if key not in _AXES}, step, piece.whole)


_AXES = frozenset({"train/step", "rollout/step", "eval/step"})
