"""Which of several runs in one source a row belongs to, by the name or the id beside it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rlclinic.model import Warn
from rlclinic.readers.axis import STEP_KEYS
from rlclinic.readers.choice import chosen
from rlclinic.readers.rows import Rows
from rlclinic.readers.tokens import number

MOST_RUNS = 1_000
"""Most runs of one source that are told apart (ours)."""

RUN_NAMES = ("run_name", "run", "experiment_name", "experiment", "dir_name", "tags.mlflow.runname")
"""Columns that name the run of a row, best first, as ``sheets.plain`` spells them."""
RUN_IDS = ("run_id", "run_uuid", "experiment_key")
"""Columns that hold its id."""
_ROW_NAMES = ("run_name", "run", "experiment_name", "experiment")
_OWNING = frozenset((*_ROW_NAMES, *RUN_IDS))


class Owners:
    """Which run each row of a table belongs to, by the name and the id beside it."""

    def __init__(self, doubtful: bool = False) -> None:
        self.rows = array("q")
        self.doubtful = doubtful
        self._places: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def note(self, name: str, number: str = "") -> int:
        """The row that was just added belongs to this run; its place among the runs, -1 without a name."""
        place = self.of(name, number)
        self.rows.append(place)
        return place

    def of(self, name: str, number: str = "") -> int:
        """The place of a run among the runs, given at its first mention; -1 without a name or beyond ``MOST_RUNS``."""
        pair = name, number
        place = self._places.get(pair)
        if place is None:
            if not (name or number) or len(self._places) >= MOST_RUNS:
                place = -1
            else:
                place = self._places[pair] = len(self._places)
        return place

    @property
    def labels(self) -> list[str]:
        """What to call each run: its name, with its id where two share a name."""
        shared = [name for name, _ in self._places]
        return [
            name if name and shared.count(name) == 1 else f"{name} ({number})" if name and number else number or name
            for name, number in self._places
        ]

    def chosen(self, path: str, run: str | None) -> tuple[int | None, str]:
        """(place, label) of the run to read; the place is None when there is but one, so that every row is its.

        Raises CannotRead when several are there and none of them is named.
        """
        labels = self.labels
        if len(labels) == 1 and run is None:
            return None, labels[0]
        numbers = [number for _, number in self._places]
        if run and run in numbers and run not in labels:
            at = numbers.index(run)
        elif labels:
            at = labels.index(chosen(path, labels, run))
        else:
            return None, ""
        return (None if len(labels) == 1 else at), labels[at]

    def counting(self, rows: int) -> bool:
        """True when the names are numbers of which nearly every row has its own: a counter, no names of runs."""
        return 2 * len(self._places) > rows and all(number(name or other) is not None for name, other in self._places)


def of_one_run(rows: Rows, owners: Owners, path: str, run: str | None, said: list[Warn]) -> str:
    """Restricts ``rows`` to one run where several are told apart, and says which. Raises CannotRead to ask for the name."""
    if not len(owners) or owners.counting(rows.rows):
        return ""
    places = np.frombuffer(owners.rows, dtype=np.int64)
    if owners.doubtful and not _repeating(rows, places):
        return ""
    at, label = owners.chosen(path, run)
    if at is not None:
        rows.only(np.asarray(places == at))
        if lost := int(np.count_nonzero(places < 0)):
            said.append(Warn("rows_without_run", f"{lost} rows name none of the {len(owners)} runs; they are left out"))
    return label


def _repeating(rows: Rows, places: NDArray[np.int64]) -> bool:
    """True when rows of different runs share a step, so that they cannot be one run."""
    series = rows.merged()
    for key in STEP_KEYS:
        if key in series:
            one = series[key]
            seen = {
                (float(step), int(place))
                for step, place in zip(one.values[:10_000], places[one.rows[:10_000]], strict=True)
            }
            return len(seen) > len({step for step, _ in seen})
    return False


class RowOwners:
    """The runs of records that name them (``run``, ``run_id``, ``run_name``, ``experiment``), once the first one does."""

    def __init__(self) -> None:
        self._owners: Owners | None = None
        self._before = 0

    def plain(self) -> None:
        """A row without such a key was added."""
        if self._owners is None:
            self._before += 1
        else:
            self._owners.rows.append(-1)

    def note(self, record: Mapping[str, object], added: int) -> bool:
        """``added`` rows came of this record; True when it names its run."""
        owned = not _OWNING.isdisjoint(record)
        if owned and self._owners is None:
            self._owners = Owners()
            self._owners.rows.extend([-1] * self._before)
        if self._owners is None:
            self._before += added
            return False
        name = next((_word(record[key]) for key in _ROW_NAMES if key in record), "")
        identity = next((_word(record[key]) for key in RUN_IDS if key in record), "")
        place = self._owners.of(name, identity)
        self._owners.rows.extend([place] * added)
        return owned

    def restrict(self, rows: Rows, path: str, run: str | None, said: list[Warn]) -> str:
        """Restricts ``rows`` to one run where there are several, and says which. Raises CannotRead to ask for the name."""
        if self._owners is None or len(self._owners.rows) != rows.rows:
            return ""
        return of_one_run(rows, self._owners, path, run, said)


def _word(value: object) -> str:
    return str(value)[:500].strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
