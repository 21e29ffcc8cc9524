"""Values that are no number: noted row by row, told at the end where they stand in the place of one."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rlclinic.model import Warn
from rlclinic.readers.axis import STEP_KEYS, IntArray, Series
from rlclinic.readers.tokens import KEY_LENGTH, metric_like

KEYS = 5_000
"""Most keys noted (ours; as many as are read)."""
NAMED = 4
"""Most keys named in the warning (ours)."""
TRIED = 20
"""Texts of a key that are looked at to tell quantities from words (ours)."""

_ABSENT = frozenset({"", "-", "--", "n/a", "na", "null", "none", "nil", "?"})
_QUANTITY = r"\s*[-+]?(?:\d[\d.,]{0,30}|\.\d{1,30})(?:[eE][-+]?\d{1,3})?\s?(?:%|[A-Za-z/]{0,12})\s*"


class Unread:
    """What the rows hold beside numbers, as row numbers for each key (8 bytes a value)."""

    def __init__(self) -> None:
        self.nulls: dict[str, array[int]] = {}
        self._texts: dict[str, array[int]] = {}
        self._examples: dict[str, str] = {}
        self._wordy: set[str] = set()

    def null(self, key: str, row: int) -> None:
        """``key`` holds null in ``row``."""
        self.nulls.setdefault(key, array("q")).append(row)

    def other(self, key: str, value: object, row: int) -> None:
        """``key`` holds a text, a list or a table in ``row``; whether that matters is not known yet."""
        held = self._texts.get(key)
        if held is None:
            if len(self._texts) >= KEYS or len(key) > KEY_LENGTH:
                return
            held = self._texts[key] = array("q")
        if isinstance(value, str):
            if value in ("True", "False", "true", "false"):
                return
            if len(held) < TRIED and not re.fullmatch(_QUANTITY, value[:60]):
                self._wordy.add(key)
        else:
            self._wordy.add(key)
        if key not in self._examples:
            plain = value[:40] if isinstance(value, str) else "a list" if isinstance(value, list) else "a nested table"
            self._examples[key] = plain
        held.append(row)

    def forget(self, row: int) -> None:
        """A record without any number becomes no row, so what was noted of it goes."""
        for noted in (self.nulls, self._texts):
            for held in noted.values():
                while held and held[-1] == row:
                    held.pop()

    def keep(self, mine: NDArray[np.bool_]) -> None:
        """Only the rows of ``mine`` (rows,) stay, renumbered."""
        for noted in (self.nulls, self._texts):
            for key, held in noted.items():
                kept = _kept({key: held[: int(np.searchsorted(held, len(mine)))]}, mine).get(key)
                noted[key] = array("q", b"" if kept is None else kept.tobytes())

    def nulls_of(self, series: Mapping[str, Series], keep: NDArray[np.bool_]) -> dict[str, IntArray]:
        """Kept rows in which a numeric key holds null; a key that never holds a number is not known to be numeric."""
        found = _kept(self.nulls, keep)
        return {key: rows for key, rows in found.items() if key in series and key not in STEP_KEYS}

    def said(self, series: Mapping[str, Series], keep: NDArray[np.bool_], told: Mapping[str, IntArray]) -> list[Warn]:
        """One warning for all keys whose numbers are lost in some rows; nulls ``told`` elsewhere are not repeated."""
        lost: dict[str, tuple[int, str]] = {}
        for key, rows in self.nulls_of(series, keep).items():
            if key not in told and _dense(series[key].rows, rows):
                lost[key] = len(rows), "null"
        for key, rows in _kept(self._texts, keep).items():
            example = self._examples.get(key, "")
            pause = example.strip().lower() in _ABSENT and not (key in series and _dense(series[key].rows, rows))
            if key in STEP_KEYS or pause:
                continue
            if key in series or (key not in self._wordy and metric_like([key])):
                before = lost[key][0] if key in lost else 0
                lost[key] = before + len(rows), repr(example)
        if not lost:
            return []
        first, *others = sorted(lost, key=lambda key: -lost[key][0])
        says = (
            f"{_printable(first)} holds no number in {lost[first][0]} of {int(keep.sum())} rows, but {lost[first][1]}"
        )
        if others:
            says += "; so do " + ", ".join(f"{_printable(key)} ({lost[key][0]})" for key in others[: NAMED - 1])
            says += f" and {len(others) - NAMED + 1} more keys" if len(others) >= NAMED else ""
        return [Warn("unread_values", f"{says}; such values are left out")]


def _kept(noted: Mapping[str, array[int]], keep: NDArray[np.bool_]) -> dict[str, IntArray]:
    """The noted rows that are kept, renumbered."""
    place = np.cumsum(keep) - 1
    found: dict[str, IntArray] = {}
    for key, held in noted.items():
        if len(held):
            rows = np.frombuffer(held, dtype=np.int64)
            rows = rows[keep[rows]]
            if len(rows):
                found[key] = place[rows].astype(np.int64)
    return found


def _dense(numbers: IntArray, empty: IntArray) -> bool:
    """True when a key mostly holds numbers in rows that follow each other, so that an empty value is no mere pause.

    Exports write null wherever a key was not logged; an evaluation every tenth row then never holds two in a row.
    """
    if len(numbers) < 2:
        return False
    place = np.searchsorted(np.union1d(numbers, empty), numbers)
    return bool(2 * np.count_nonzero(np.diff(place) == 1) >= len(place) - 1)


def _printable(key: str) -> str:
    return "".join(c if c.isprintable() else " " for c in key[:80])
