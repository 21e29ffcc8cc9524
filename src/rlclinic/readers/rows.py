"""A log as rows and series under the trainer's own keys, grown row by row, whatever form it was written in."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlclinic.model import Floats, Warn
from rlclinic.readers.axis import STEP_KEYS, IntArray, Series, ordered, shared, starts_late, stated
from rlclinic.readers.tokens import FULL_PRECISION, KEY_LENGTH, Printed, decimals, number, supervised
from rlclinic.readers.unread import Unread

Nonfinite: TypeAlias = Literal["kept", "null", "dropped", "filtered", "unknown"]
Kind: TypeAlias = Literal["metrics", "rollouts", "config", "crash", "supervised", "nothing"]

KEY_COUNT = 5_000
"""Most distinct keys of one log (ours: the widest real log has about 300)."""
DEPTH = 8
"""Deepest nesting that is flattened (ours)."""

RARE = 8
"""Rows below which those of one set of keys are not kept as a table of their own (ours: faster where keys come and go)."""

SAMPLES = 500
"""Rows that W&B's ``run.history()`` gives unless asked for more (from its source)."""
_TEXTUAL = frozenset({"csv", "jsonl", "json_history", "parquet"})
_COUNTED = r"(\d{1,12})\s*/\s*(\d{1,12})"


@dataclass(frozen=True, eq=False)
class Log:
    """One file as read, before any key is understood. ``steps`` (rows,) holds NaN where the step is unknown."""

    path: str
    format: str
    rows: int = 0
    steps: Floats = field(default_factory=lambda: np.empty(0))
    step_source: str = ""
    series: Mapping[str, Series] = field(default_factory=dict)
    nonfinite: Nonfinite = "unknown"
    """What the writer does with NaN and infinities: keeps, writes null, drops, or filters them out of the loss."""
    nulls: Mapping[str, IntArray] = field(default_factory=dict)
    """Rows (increasing, numbered as in ``series``) in which a numeric key holds null, where the form of the file tells
    that its writer turns NaN and infinities into null; elsewhere a null is an absent value and is not listed."""
    config: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    planned_steps: int | None = None
    ending: str = ""
    excerpt: bool = False
    complete: bool = False
    """True when at least one row is known to be whole, so that a key absent from it was not logged there."""
    facts: Mapping[str, str] = field(default_factory=dict)
    kind: Kind = "metrics"
    run: str = ""
    """The run in the source's own words, where it names one."""
    warnings: tuple[Warn, ...] = ()
    counters: Mapping[str, Series] = field(default_factory=dict)
    """Every series that may hold the step, also those that were not chosen for it."""
    seams: Mapping[int, str] = field(default_factory=dict)
    """Row at which a restart shows, with what was seen there."""


@dataclass(frozen=True, eq=False)
class Inferred:
    """Steps (rows,) that the surroundings of the rows tell, None when they tell none, and the restarts seen there."""

    steps: Floats | None = None
    source: str = ""
    seams: Mapping[int, str] = field(default_factory=dict)


class _Block:
    """Rows that share one tuple of keys, row-major in one flat buffer."""

    __slots__ = ("data", "rows")

    def __init__(self) -> None:
        self.data = array("d")
        self.rows = array("q")


class Rows:
    """Grows a table whose rows may hold different keys; 8 bytes for each value, whatever the number of rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.unread = Unread()
        self.planned: int | None = None
        self.overlong = 0
        self.overfull = 0
        self.whole = False
        self._blocks: dict[tuple[str, ...], _Block] = {}
        self._keys: set[str] = set()
        self._given = array("d")
        self._decimals: dict[str, int] = {}
        self._full = False
        self._parts: dict[str, list[tuple[IntArray, Floats]]] = {}
        self._mine: NDArray[np.bool_] | None = None

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    @property
    def keys(self) -> frozenset[str]:
        """Every key seen so far."""
        return frozenset(self._keys)

    def add(self, row: Mapping[str, object], step: float | None = None, whole: bool = True) -> bool:
        """Append one row; nested mappings are flattened with ``/``. False when the row holds no number at all.

        ``step`` is a step stated beside the row. ``whole`` says that the row is known not to be cut.
        """
        block = self._blocks.get(tuple(row))
        if block is not None:
            size = len(block.data)
            try:
                block.data.extend(row.values())  # type: ignore[arg-type]
            except (TypeError, OverflowError):
                del block.data[size:]
                known = self._extend(block, row)
            else:
                known = True
            if known:
                self._append(block, step, whole)
                return True
        clean: dict[str, float] = {}
        self._clean(row, "", clean, 0)
        if not clean:
            self.unread.forget(self.rows)
            return False
        keys = tuple(clean)
        block = self._blocks.get(keys)
        if block is None:
            block = self._blocks[keys] = _Block()
        block.data.extend(clean.values())
        self._append(block, step, whole)
        return True

    def add_known(self, keys: tuple[str, ...], row: Mapping[str, object]) -> bool:
        """The quick way for a whole row of numbers whose ``keys`` an earlier row had; False when it is not one."""
        block = self._blocks.get(keys)
        if block is None:
            return False
        size = len(block.data)
        try:
            block.data.extend(row.values())  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            del block.data[size:]
            return False
        block.rows.append(self.rows)
        self._given.append(math.nan)
        self.rows += 1
        self.whole = True
        return True

    def _extend(self, block: _Block, row: Mapping[str, object]) -> bool:
        """The quick way for a row of numbers as text under the keys of ``block``; False when it is not one."""
        try:
            text = "".join(row.values())  # type: ignore[arg-type]
        except TypeError:
            return False
        if "_" in text or not text.isascii():
            return False
        size = len(block.data)
        try:
            block.data.extend(map(float, row.values()))  # type: ignore[arg-type]
        except ValueError:
            del block.data[size:]
            return False
        if not self._full:
            for key, token in row.items():
                if type(token) is Printed:
                    self._note_decimals(key, token)
        return True

    def _append(self, block: _Block, step: float | None, whole: bool) -> None:
        block.rows.append(self.rows)
        self._given.append(math.nan if step is None else step)
        self.rows += 1
        self.whole |= whole

    def add_printed(self, row: Mapping[str, str], step: float | None = None, whole: bool = True) -> bool:
        """Append one row of printed numbers; tokens that are no number are left out."""
        values: dict[str, float] = {}
        for key, token in row.items():
            if (value := number(token)) is not None:
                values[key] = value
            else:
                self.unread.other(key, token, self.rows)
        if not values or not self.add(values, step, whole):
            self.unread.forget(self.rows)
            return False
        if not self._full:
            for key in values:
                self._note_decimals(key, row[key])
        return True

    def add_table(self, keys: Sequence[str], table: Floats, there: NDArray[np.bool_]) -> IntArray:
        """Append many rows at once: ``table`` (n, k) numbers under ``keys``, of which only those ``there`` (n, k) count.

        Returns (n,) the number that each row has from now on, -1 for rows without any number, which are left out.
        """
        last = {key: at for at, key in enumerate(keys) if self._admits(key)}
        columns = np.array(list(last.values()), dtype=np.int64)
        names = np.array(list(last), dtype=object)
        self._keys.update(names[there[:, columns].any(axis=0)])
        there = there[:, columns]
        held = there.any(axis=1)
        place = np.where(held, np.cumsum(held) - 1 + self.rows, -1)
        for mine in _alike(there):
            present = there[mine[0]]
            if not present.any():
                continue
            block = self._blocks.setdefault(tuple(names[present]), _Block())
            block.rows.frombytes(place[mine].astype(np.int64).tobytes())
            block.data.frombytes(np.ascontiguousarray(table[np.ix_(mine, columns[present])]).tobytes())
        many = int(held.sum())
        self._given.frombytes(np.full(many, np.nan).tobytes())
        self.rows += many
        self.whole |= many > 0
        return place

    def note_printed(self, key: str, token: str) -> None:
        """``key`` was printed as ``token``, which tells how finely it was rounded."""
        if not self._full:
            self._note_decimals(key, token)

    def forget_steps(self) -> None:
        """The steps stated beside the rows so far were mere counts of lines."""
        self._given = array("d", [math.nan]) * self.rows

    def only(self, mine: NDArray[np.bool_]) -> None:
        """From now on only the rows of ``mine`` (rows,) belong to the table; those of other runs are as if never read."""
        self._mine = mine

    @property
    def others(self) -> NDArray[np.bool_]:
        """(rows,) True for rows that do not belong to the table (``only``)."""
        return np.zeros(self.rows, dtype=bool) if self._mine is None else ~self._mine

    def keep(self, mine: NDArray[np.bool_]) -> None:
        """Only the rows of ``mine`` (rows,) stay, renumbered, also after an ``add`` that was broken off."""
        place = np.cumsum(mine) - 1
        for keys, block in self._blocks.items():
            rows = np.frombuffer(block.rows, dtype=np.int64)
            rows = rows[rows < self.rows]
            table = np.frombuffer(block.data, dtype=np.float64)[: len(rows) * len(keys)].reshape(len(rows), len(keys))
            stays = mine[rows]
            block.rows, block.data = array("q", place[rows[stays]].tobytes()), array("d", table[stays].tobytes())
        self._given = array("d", np.frombuffer(self._given, dtype=np.float64)[: self.rows][mine].tobytes())
        self.unread.keep(mine)
        self.rows = int(mine.sum())

    def lay_onto(self, held: IntArray, onto: IntArray) -> None:
        """The values of the rows ``held`` (k,) count as values of the rows ``onto`` (k,), which lack their keys."""
        place = np.full(self.rows, -1, dtype=np.int64)
        place[held] = onto
        for keys, block in self._blocks.items():
            rows = np.frombuffer(block.rows, dtype=np.int64)
            moved = place[rows]
            there = moved >= 0
            if there.any():
                table = np.frombuffer(block.data, dtype=np.float64).reshape(len(rows), len(keys))[there]
                for column, key in enumerate(keys):
                    self._parts.setdefault(key, []).append((moved[there], table[:, column].copy()))

    def _clean(self, row: Mapping[str, object], prefix: str, into: dict[str, float], depth: int) -> None:
        keys = self._keys
        for name, value in row.items():
            key = prefix + name
            kind = type(value)
            if kind is float and key in keys:
                into[key] = value  # type: ignore[assignment]
            elif kind is Printed and key in keys and (printed := number(value)) is not None:  # type: ignore[arg-type]
                into[key] = printed
                if not self._full:
                    self._note_decimals(key, value)  # type: ignore[arg-type]
            elif value is None or value == "None":
                if self._admits(key):
                    self.unread.null(key, self.rows)
            elif kind is bool:
                if key in keys:
                    into[key] = float(value)  # type: ignore[arg-type]
            elif isinstance(value, dict):
                if key in keys:
                    self.unread.other(key, value, self.rows)
                if "_type" not in value and depth < DEPTH:
                    self._clean(value, f"{key}/", into, depth + 1)
            else:
                found = self._coerce(key, value)
                if found is None:
                    self.unread.other(key, value, self.rows)
                elif self._admits(key):
                    keys.add(key)
                    into[key] = found
                    if kind is Printed and not self._full:
                        self._note_decimals(key, value)  # type: ignore[arg-type]

    def _coerce(self, key: str, value: object) -> float | None:
        if isinstance(value, str):
            found = number(value)
            if found is None and key in STEP_KEYS and (counted := re.fullmatch(_COUNTED, value.strip())):
                self.planned = int(counted[2])
                return float(counted[1])
            return found
        if isinstance(value, (int, float)):
            try:
                return float(value)
            except OverflowError:
                return math.inf if value > 0 else -math.inf
        return None

    def _admits(self, key: str) -> bool:
        if key in self._keys:
            return True
        if len(key) > KEY_LENGTH:
            self.overlong += 1
            return False
        if len(self._keys) >= KEY_COUNT:
            self.overfull += 1
            return False
        return True

    def _note_decimals(self, key: str, token: str) -> None:
        # Most tokens are as long as those before them and so cannot show more decimals.
        if (
            len(token) - 2 <= self._decimals.get(key, -1) < FULL_PRECISION
            and not ("e" in token or "E" in token)
            and token[0] in "0123456789-"
        ):
            return
        shown = decimals(token)
        if shown is None or key not in self._keys:
            return
        if shown >= FULL_PRECISION and "e" not in token.lower():
            self._full = True
        if shown > self._decimals.get(key, -1):
            self._decimals[key] = shown

    def merged(self) -> dict[str, Series]:
        """One series for each key over all rows so far, repeats included."""
        return _merge(self._columns()[1], np.ones(self.rows, dtype=bool))[0]

    def finish(
        self,
        *,
        path: str,
        format: str,
        nonfinite: Nonfinite = "unknown",
        inferred: Inferred | None = None,
        spacing: float | None = None,
        warnings: Iterable[Warn] = (),
    ) -> Log:
        """The table as a log.

        ``inferred`` are steps found in the surroundings, used only where the rows state none. ``spacing`` is the
        logging interval in steps, for rows that are known by their order only.
        """
        said = list(warnings)
        keep, columns = self._columns()
        series, count = _merge(columns, keep)
        mine = self.rows if self._mine is None else int(self._mine.sum())
        if count < mine:
            repeated = f"{mine - count} rows repeat the row before them in every value"
            said.append(Warn("duplicated_rows", f"{repeated} (several processes, one log); each is counted once"))
        given = np.frombuffer(self._given, dtype=np.float64)[keep] if self.rows else np.empty(0)
        axis, source, used = stated(series, count, given)
        seams = inferred.seams if inferred is not None else {}
        breaks = {int(np.count_nonzero(keep[:row])): why for row, why in seams.items()}
        if source == "" and inferred is not None and inferred.steps is not None:
            axis, source = inferred.steps[keep], inferred.source
        if source == "" and count:
            axis, source, used = ordered(series, count, spacing)
        axis = shared(axis, series, count)
        if count == SAMPLES and format in _TEXTUAL and _uneven(series.get("_step"), axis):
            says = f"{count} rows at uneven steps are W&B's sample of a longer history; scan_history() gives all of it"
            said.append(Warn("downsampled", says))
        said += self._said(axis, source)
        for row in np.flatnonzero(np.diff(axis) < 0) + 1:
            breaks.setdefault(int(row), f"the step went back from {axis[row - 1]:g} to {axis[row]:g}")
        if breaks:
            first = min(breaks)
            more = f" (and {len(breaks) - 1} more)" if len(breaks) > 1 else ""
            said.append(Warn("several_starts", f"the log starts again at row {first + 1}: {breaks[first]}{more}"))
        finest = self._finest(series)
        nulls = self.unread.nulls_of(series, keep) if nonfinite == "null" else {}
        said += self.unread.said(series, keep, nulls)
        if nonfinite == "unknown":
            kept = any(not np.isfinite(one.values).all() for one in series.values())
            nonfinite = (
                "kept"
                if kept
                else "null"
                if any(self.unread.nulls[key] for key in self.unread.nulls.keys() & series.keys())
                else "unknown"
            )
        return Log(
            path=path,
            format=format,
            rows=count,
            steps=axis,
            step_source=source,
            series={
                key: Series(one.rows, one.values, finest.get(key))
                for key, one in series.items()
                if key not in used and key not in STEP_KEYS
            },
            counters={key: one for key, one in series.items() if key in used or key in STEP_KEYS},
            nonfinite=nonfinite,
            nulls=nulls,
            planned_steps=self.planned,
            excerpt=starts_late(axis),
            complete=self.whole,
            kind="supervised" if supervised([*series, source]) else "metrics",
            warnings=tuple(said),
            seams=dict(sorted(breaks.items())),
        )

    def _finest(self, series: Mapping[str, Series]) -> dict[str, int]:
        """Decimals of the keys that were rounded: as printed, and where the writer is known to round.

        Transformers before 5 rounds the loss to four decimals and ms-swift every value to eight (from their sources).
        """
        finest = {} if self._full else {key: n for key, n in self._decimals.items() if n < FULL_PRECISION}
        if "global_step/max_steps" in series:
            finest = dict.fromkeys(series, FULL_PRECISION - 1) | finest
        loss = series.get("loss")
        if loss is not None and "learning_rate" in series:
            values = loss.values[np.isfinite(loss.values)]
            if bool((np.round(values, 4) == values).all()):
                finest["loss"] = 4
        return finest

    def _columns(self) -> tuple[NDArray[np.bool_], dict[str, list[tuple[IntArray, Floats]]]]:
        """Which rows stay (each once), and every key's parts (rows, values) before merging."""
        keep = np.ones(self.rows, dtype=bool) if self._mine is None else self._mine.copy()
        columns: dict[str, list[tuple[IntArray, Floats]]] = {key: list(parts) for key, parts in self._parts.items()}
        given = np.frombuffer(self._given, dtype=np.float64) if self.rows else np.empty(0)
        place = np.cumsum(keep) - 1  # rows of other runs between two rows do not part them
        rare: dict[str, _Block] = {}
        for keys, block in self._blocks.items():
            rows = np.frombuffer(block.rows, dtype=np.int64)
            if len(rows) < RARE and not (rows[1:] == rows[:-1] + 1).any():
                for column, key in enumerate(keys):
                    one = rare.get(key)
                    if one is None:
                        one = rare[key] = _Block()
                    one.rows.extend(block.rows)
                    one.data.extend(block.data[column :: len(keys)])
                continue
            table = np.ascontiguousarray(np.frombuffer(block.data, dtype=np.float64).reshape(len(rows), len(keys)).T)
            if self._mine is not None:
                rows, table = rows[self._mine[rows]], table[:, self._mine[rows]]
            keep[rows[1:][_repeats(keys, place[rows], table, given[rows])]] = False
            for key, values in zip(keys, table, strict=True):
                columns.setdefault(key, []).append((rows, values))
        for key, one in rare.items():
            part = np.frombuffer(one.rows, dtype=np.int64), np.frombuffer(one.data, dtype=np.float64)
            columns.setdefault(key, []).append(part)
        return keep, columns

    def _said(self, axis: Floats, source: str) -> list[Warn]:
        said: list[Warn] = []
        if self.overlong:
            said.append(
                Warn(
                    "overlong_keys",
                    f"{self.overlong} values under keys longer than {KEY_LENGTH} characters were skipped",
                )
            )
        if self.overfull:
            said.append(
                Warn("too_many_keys", f"only the first {KEY_COUNT} keys were read; {self.overfull} values were skipped")
            )
        known = axis[np.isfinite(axis)]
        if 0 < len(known) < len(axis):
            said.append(Warn("rows_without_step", f"{len(axis) - len(known)} of {len(axis)} rows state no step"))
        if len(known) and known.min() < 0:
            said.append(Warn("negative_steps", f"the steps ({source}) go down to {known.min():g}"))
        if len(known) and bool((known != np.floor(known)).any()):
            said.append(Warn("fractional_steps", f"the steps ({source}) are not whole numbers"))
        return said


def _alike(there: NDArray[np.bool_]) -> list[IntArray]:
    """The rows of a table by which of its columns they hold."""
    if there.all():
        return [np.arange(len(there))]
    packed = np.packbits(there, axis=1)
    width, whole = packed.shape[1], packed.tobytes()
    kinds: dict[bytes, list[int]] = {}
    for row in range(len(there)):
        kinds.setdefault(whole[row * width : (row + 1) * width], []).append(row)
    return [np.array(rows, dtype=np.int64) for rows in kinds.values()]


def _uneven(counter: Series | None, axis: Floats) -> bool:
    """True when the steps lie at different distances, as those of a sample do and those of a trainer do not."""
    steps = axis if counter is None or len(counter.rows) < len(axis) else counter.values
    gaps = np.diff(steps[np.isfinite(steps)])
    return len(gaps) > 0 and float(gaps.max()) > 1.0 and float(np.mean(gaps == np.median(gaps))) < 0.9


def _repeats(keys: tuple[str, ...], rows: IntArray, table: Floats, given: Floats) -> NDArray[np.bool_]:
    """(n-1,) True where a row of a block repeats the row just before it in the log and cannot be a new step.

    Equal values alone prove nothing in a frozen run, so a repeat must also share a stated step, a token counter, or a
    number with more than six decimals that is no setting.
    """
    if len(rows) < 2:
        return np.zeros(0, dtype=bool)
    same: NDArray[np.bool_] = np.asarray(rows[1:] == rows[:-1] + 1)
    same &= ~(np.abs(given[1:] - given[:-1]) > 0)  # rows that state different steps are different rows
    for column in table:
        if not same.any():
            return same
        same &= column[1:].view(np.int64) == column[:-1].view(np.int64)
    if not same.any():
        return same
    proof: NDArray[np.bool_] = np.asarray(given[1:] == given[:-1])
    for key, column in zip(keys, table, strict=True):
        values = column[1:]
        if key in STEP_KEYS or key.endswith("num_tokens"):
            proof |= values != 0
        elif not key.endswith(("lr", "learning_rate", "epoch", "coef", "coeff", "max_steps")):
            proof |= (np.abs(values) > 1e-3) & (values != np.round(values, 6))
    return np.asarray(same & proof)


def _merge(columns: dict[str, list[tuple[IntArray, Floats]]], keep: NDArray[np.bool_]) -> tuple[dict[str, Series], int]:
    """One series for each key over the kept rows, renumbered, and how many rows are kept."""
    whole = bool(keep.all())
    place = np.cumsum(keep) - 1
    series: dict[str, Series] = {}
    for key, parts in columns.items():
        if len(parts) == 1 and bool((np.diff(parts[0][0]) > 0).all()):
            rows, values = parts[0]
        else:
            rows = np.concatenate([r for r, _ in parts])
            values = np.concatenate([v for _, v in parts])
            order = np.argsort(rows, kind="stable")
            rows, values = rows[order], values[order]
        if not whole:
            kept = keep[rows]
            rows, values = place[rows[kept]].astype(np.int64), values[kept]
            if not len(rows):
                continue
        series[key] = Series(rows, values)
    return series, int(keep.sum())
