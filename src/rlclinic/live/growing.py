"""The rows that a trainer hands over, held in bounded memory, as a Run whenever it is asked for."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlclinic.errors import BadRequest
from rlclinic.live.handed import EASY, Plain, plain_row, plain_settings, plain_step
from rlclinic.model import Checkpoint, Run, Warn
from rlclinic.names.own import read_names
from rlclinic.readers import Saved, read_rows
from rlclinic.readers.assemble import PASTE
from rlclinic.readers.axis import STEP_KEYS
from rlclinic.readers.rows import KEY_COUNT, Log, Nonfinite, Rows

MOST = 5_000
"""Most rows held (ours: 2.5 MB of 60 metrics, and a look at them takes ten times that)."""
OFTEN = 0.05
"""Share of the rows from which a set of keys is a usual one, whose rows may be thinned (ours)."""
ODD = 50
"""Most rows kept for a value that is not finite, so that their share is told right to half a percent (ours)."""
KINDS = 1_000
"""Most sets of keys told apart (ours: a log has a handful)."""
SAVED = 2_000
"""Most saved states remembered (ours)."""
_HELD_OUT = ("eval", "val", "test")
_OF_TRACKERS = frozenset({"_step", "Step"})
"""Steps that may count calls instead of steps: rows of one step then have different ones."""


@dataclass
class _Kind:
    """Rows with the same keys."""

    keys: tuple[str, ...]
    number: int
    stepped: str
    """The key that states their step; empty where none does."""
    held_out: bool
    rows: int = 0
    since: int = 0
    """Rows of it that came since the last that was kept."""


class Growing:
    """A log in memory: all rows up to ``most``; of a longer run every second, then every fourth step and so on.

    Rows are kept as logged and never averaged. Beside them stay the first row, evaluations and other rare rows, the row
    at which the step goes back, and the first rows with a value that is not finite.

    ``knobs`` are some settings, ``config`` the whole configuration, beside which the framework's own defaults hold; both in
    canonical or in the framework's spelling. ``eval_key`` names the held-out score, ``names`` is a file of the user's own
    names, ``nonfinite`` what the trainer does with NaN and infinities (``Source``). Raises what ``read_names`` raises.
    """

    def __init__(
        self,
        *,
        framework: str | None = None,
        knobs: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        planned_steps: int | None = None,
        name: str = "run",
        eval_key: str | None = None,
        names: str | Path | None = None,
        nonfinite: Nonfinite = "kept",
        most: int = MOST,
    ) -> None:
        self.config = plain_settings(config or {})
        self._framework, self.knobs, self._name, self._most = framework, plain_settings(knobs or {}), name, most
        planned = plain_step(planned_steps)
        self._planned = int(planned) if planned is not None and planned >= 1 else None
        self._eval_key, self._nonfinite = eval_key, nonfinite
        self._own = None if names is None else read_names(names)
        self._saved: dict[float, str] = {}
        self._clear()

    def _clear(self) -> None:
        self._rows = Rows()
        self.rows = 0
        """Rows logged."""
        self.first: float | None = None
        """Step of the first row and, below, of the last; None where it states none."""
        self.last: float | None = None
        self.eval_missed = False
        """Whether ``eval_key`` was not in the log when the run was last asked for."""
        self._stride, self._distinct, self._odd, self._exempt = 1, 0, 0, 0
        self._kinds: dict[tuple[str, ...], _Kind] = {}
        self._quick: dict[tuple[Any, ...], _Kind] = {}
        self._torn = False
        # Of every row held: which step it is, or which of its kind; its kind; whether it stays whatever its place.
        self._place, self._kind, self._stays = array("q"), array("q"), array("b")

    @property
    def held(self) -> int:
        """Rows in memory."""
        return self._rows.rows

    @property
    def stride(self) -> int:
        """Of how many steps one is held."""
        return self._stride

    @property
    def checkpoints(self) -> dict[float, str]:
        """The saved states told, by step."""
        return dict(self._saved)

    def fresh(self) -> Growing:
        """One of the same run without rows."""
        new = object.__new__(Growing)
        new.__dict__.update(self.__dict__)
        new._saved = {}
        new._clear()
        return new

    def add(self, metrics: Mapping[Any, Any], step: object = None) -> tuple[float | None, Plain] | None:
        """Append one row; without ``step`` the row states it or is counted. The step and the row as taken, None when it
        holds no number. Raises what ``metrics`` raises when it is gone through, TypeError when it is no mapping."""
        if self._torn:
            self._mend()
        told = None if step is None else plain_step(step)
        quick = self._quickly(metrics, told)
        row, kind = quick or (None, None)
        if row is None:
            if not isinstance(metrics, Mapping):
                raise TypeError(f"a row of metrics is a mapping, not {type(metrics).__name__}")
            row = plain_row(metrics, () if told is None else STEP_KEYS)
        self._torn = True
        kind = self._take(row, told, kind)
        self._torn = False
        if kind is None:
            return None
        if quick is None and type(metrics) is dict and kind.keys == tuple(metrics) and len(self._quick) < KINDS:
            self._quick[kind.keys] = kind
        return told, row

    def _quickly(self, metrics: Mapping[Any, Any], told: float | None) -> tuple[Plain, _Kind] | None:
        """The row when it has the keys of an earlier one and numbers only; None when it has to be looked at."""
        if type(metrics) is not dict or len(metrics) > KEY_COUNT:
            return None
        try:
            keys = tuple(metrics)
            kind = self._quick.get(keys)
            if kind is None or (told is not None and kind.stepped):
                return None
            if not EASY.issuperset(map(type, metrics.values())):
                return None
            return dict(zip(keys, array("d", metrics.values()), strict=True)), kind
        except Exception:
            return None

    def _take(self, row: Plain, told: float | None, kind: _Kind | None) -> _Kind | None:
        """Count a row, and keep it where it is its turn; None when it holds no number."""
        kind = kind or self._kind_of(tuple(k for k, v in row.items() if v is not None and type(v) is not bool))
        step = told if told is not None or not kind.stepped else plain_step(row.get(kind.stepped))
        stepped = step is not None and (told is not None or kind.stepped not in _OF_TRACKERS)
        distinct = self._distinct + (step is None or step != self.last)
        place = distinct - 1 if stepped else kind.rows
        back = step is not None and self.last is not None and step < self.last
        odd = self._odd < ODD and not all(map(_sound, row.values()))
        stays = self.rows == 0 or back or odd or kind.held_out
        free = self._exempt < self._most // 5
        rare = self._stride > 1 and kind.rows < OFTEN * self.rows
        due = place % self._stride == 0 or kind.since + 1 >= self._stride
        if due or (free and (stays or rare)):
            if not self._rows.add(row, told):
                return None
            self._exempt += not due
            kind.since = 0
            self._place.append(place)
            self._kind.append(kind.number)
            self._stays.append(stays)
        elif not any(type(value) in (float, int) for value in row.values()):
            return None
        else:
            kind.since += 1
        kind.rows += 1
        self.first = step if self.rows == 0 else self.first
        self.last = self.last if step is None else step
        self.rows, self._distinct, self._odd = self.rows + 1, distinct, self._odd + odd
        if self._rows.rows > self._most:
            self._thin()
        return kind

    def _kind_of(self, keys: tuple[str, ...]) -> _Kind:
        """The kind of rows with these keys; kinds that come late, where every row has other keys, are one."""
        kind = self._kinds.get(keys)
        if kind is None:
            stepped = next((key for key in STEP_KEYS if key in keys), "")
            others = [key for key in keys if key not in STEP_KEYS and key != "epoch"]
            held_out = bool(others) and all(key.lower().startswith(_HELD_OUT) for key in others)
            if len(self._kinds) < KINDS:
                kind = self._kinds[keys] = _Kind(keys, len(self._kinds), stepped, held_out)
            else:
                kind = self._kinds.setdefault((), _Kind((), len(self._kinds), stepped, False))
                kind.stepped = stepped
        return kind

    def _thin(self) -> None:
        """Keep every second of the steps held; rows that stay whatever their place only while they are few."""
        usual = np.array([kind.rows >= OFTEN * self.rows for kind in self._kinds.values()])
        place, kinds = np.frombuffer(self._place, dtype=np.int64), np.frombuffer(self._kind, dtype=np.int64)
        stays = (np.frombuffer(self._stays, dtype=np.int8) != 0) | ~usual[kinds]
        if 4 * int(stays.sum()) > self._most:
            stays = np.arange(len(place)) == 0
        self._exempt = int(stays.sum())
        self._stride *= 2
        keep = stays | (place % self._stride == 0)
        since = [0] * len(usual)
        for row, kind in enumerate(kinds.tolist()):
            since[kind] = 0 if keep[row] else since[kind] + 1
            if since[kind] == 2:  # a kind that never comes at such a step
                keep[row], since[kind] = True, 0
        self._hold(keep)

    def _hold(self, keep: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        self._rows.keep(keep)
        for name, kind in (("_place", np.int64), ("_kind", np.int64), ("_stays", np.int8)):
            held: array[int] = getattr(self, name)
            setattr(self, name, array(held.typecode, np.frombuffer(held, dtype=kind)[: len(keep)][keep].tobytes()))

    def _mend(self) -> None:
        """Forget half a row: the one that was being added when the training was interrupted."""
        rows = min(self._rows.rows, len(self._place), len(self._kind), len(self._stays))
        self._hold(np.arange(self._rows.rows) < rows)
        self._torn = False

    def saved(self, step: object, path: object = "") -> None:
        """A state of the policy was saved after ``step``, at ``path``."""
        at = plain_step(step)
        if at is not None:
            self._saved.pop(at, None)
            self._saved[at] = str(path)[:4096]
            if len(self._saved) > SAVED:
                del self._saved[min(self._saved)]

    def run(self, answers: Saved | None = None) -> Run:
        """The run as far as it was logged, with the saved ``answers`` beside it."""
        if self._torn:
            self._mend()
        said = []
        if self._stride > 1:
            says = f"of {self.rows} rows logged, {self.held} are held: one of {self._stride} steps, as logged"
            said.append(Warn("downsampled", says))
        log = self._rows.finish(path=self._name, format="mapping", nonfinite=self._nonfinite, warnings=said)
        try:
            self.eval_missed = False
            run = self._read(log, self._eval_key)
        except BadRequest:  # an evaluation that has not come yet
            self.eval_missed = self._eval_key is not None
            run = self._read(log, None)
        saved = tuple(Checkpoint(step, self._saved[step]) for step in sorted(self._saved))
        run = replace(run, excerpt=run.excerpt or log.rows <= PASTE, checkpoints=saved)
        if self._planned is not None:
            run = replace(run, planned_steps=self._planned)
        return run if answers is None else answers.beside(run)

    def _read(self, log: Log, eval_key: str | None) -> Run:
        return read_rows(
            log,
            framework=self._framework,
            knobs=self.knobs,
            config=self.config,
            names_of=self._own,
            eval_key=eval_key,
        )


def _sound(value: object) -> bool:
    return type(value) is not float or math.isfinite(value)
