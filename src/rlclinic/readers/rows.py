"""A log as rows and series under the trainer's own keys, grown row by row, whatever form it was written in."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlclinic.model import SHORT, Floats, Warn

IntArray: TypeAlias = NDArray[np.int64]
Nonfinite: TypeAlias = Literal["kept", "null", "dropped", "filtered", "unknown"]
Kind: TypeAlias = Literal["metrics", "rollouts", "config", "crash", "supervised", "nothing"]

KEY_LENGTH = 200
"""Longest key taken as a metric (ours: the longest real key in the corpus has 97 characters)."""
KEY_COUNT = 5_000
"""Most distinct keys of one log (ours: the widest real log has about 300)."""
DEPTH = 8
"""Deepest nesting that is flattened (ours)."""
FULL_PRECISION = 9
"""Decimals from which a printed number counts as a full float (ours: no fixed format seen prints more than 8)."""

STEP_KEYS = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "_step",
    "Step",
    "iteration",
    "iter",
    "global_step/max_steps",
    "current_steps",
    "rollout_id",
    "train/step",
    "rollout/step",
)
"""Keys that hold the step, best first."""

_EVALUATION = ("eval_", "eval/")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
_WRAPPED = re.compile(r"(?:np|numpy|torch|jnp)?\.?(?:float|int|uint|bfloat|tensor|array)\d{0,2}\(([^()]{1,60})\)")
_NONFINITE = {
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "-infinity": -math.inf,
}
_COUNTED = re.compile(r"(\d{1,12})\s*/\s*(\d{1,12})")


_WORD = re.compile(r"[a-z]+")
_METRIC_WORDS = frozenset(
    [
        "loss",
        "reward",
        "rewards",
        "kl",
        "entropy",
        "grad",
        "lr",
        "learning",
        "epoch",
        "score",
        "scores",
        "advantage",
        "advantages",
        "response",
        "completion",
        "completions",
        "clip",
        "clipfrac",
        "clipped",
        "accuracy",
        "acc",
        "objective",
        "policy",
        "hacking",
        "pg",
        "ppo",
        "logps",
        "tme",
        "fbeta",
    ]
)
_RL_WORDS = frozenset(
    [
        "reward",
        "rewards",
        "kl",
        "advantage",
        "advantages",
        "completion",
        "completions",
        "response",
        "ppo",
        "grpo",
        "rollout",
        "policy",
        "score",
        "scores",
        "objective",
        "clipfrac",
        "episode",
        "returns",
    ]
)
_PREFERENCE = re.compile(r"(?:eval_|train/|eval/)?(?:rewards|logps|logits)/(?:chosen|rejected|margins|accuracies)")
_SUPERVISED = (
    "mean_token_accuracy",
    "rewards/chosen",
    "rewards/margins",
    "logps/chosen",
    "learning_rate",
    "grad_norm",
    "eval_loss",
    "perplexity",
)


def words(key: str) -> frozenset[str]:
    """The lower-case words of a key (``rewards/format/mean`` -> rewards, format, mean)."""
    return frozenset(_WORD.findall(key.lower()))


def metric_like(keys: Iterable[str]) -> bool:
    """True when at least one key speaks of training (loss, reward, kl, entropy, ...)."""
    return any(words(key) & _METRIC_WORDS for key in keys)


def supervised(keys: Iterable[str]) -> bool:
    """True when the keys are those of fine-tuning or preference training and none is of reinforcement learning."""
    names = [key for key in keys if len(key) <= KEY_LENGTH]
    if any(words(key) & _RL_WORDS and not _PREFERENCE.match(key) for key in names):
        return False
    return any("loss" in key for key in names) and any(key.endswith(_SUPERVISED) for key in names)


class Printed(str):
    """A number as printed without quotes: its decimals tell how finely it was rounded."""

    __slots__ = ()


def number(text: str) -> float | None:
    """The number a printed token holds (``0.5``, ``1e-5``, ``nan``, ``-Infinity``, ``np.float64(0.5)``), else None."""
    token = text.strip()
    if _NUMBER.fullmatch(token):
        return float(token)
    if not 3 <= len(token) <= 100:
        return None
    if (special := _NONFINITE.get(token.lower())) is not None:
        return special
    inner = _WRAPPED.fullmatch(token)
    return number(inner[1].split(",")[0]) if inner else None


def decimals(token: str) -> int | None:
    """How many decimals a printed number shows, its exponent included (``1.2e-05`` shows 6); None without a point."""
    if inner := _WRAPPED.fullmatch(token):
        token = inner[1]
    mantissa, _, exponent = token.lower().partition("e")
    _, point, tail = mantissa.partition(".")
    if not point and not exponent:
        return None
    try:
        return max(0, len(tail) - int(exponent or 0))
    except ValueError:
        return None


@dataclass(frozen=True, eq=False)
class Series:
    """One key of the log: ``rows`` (k,) row numbers, increasing; ``values`` (k,) as logged.

    ``decimals`` is the largest number of decimals printed for this key; None means full precision.
    """

    rows: IntArray
    values: Floats
    decimals: int | None = None


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
    config: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    planned_steps: int | None = None
    ending: str = ""
    excerpt: bool = False
    complete: bool = False
    """True when at least one row is known to be whole, so that a key absent from it was not logged there."""
    facts: Mapping[str, str] = field(default_factory=dict)
    kind: Kind = "metrics"
    warnings: tuple[Warn, ...] = ()
    seams: Mapping[int, str] = field(default_factory=dict)
    """Row at which a restart shows, with what was seen there."""


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
        self.nulls: dict[str, int] = {}
        self.planned: int | None = None
        self.overlong = 0
        self.overfull = 0
        self.whole = False
        self._blocks: dict[tuple[str, ...], _Block] = {}
        self._keys: set[str] = set()
        self._given = array("d")
        self._decimals: dict[str, int] = {}
        self._full = False

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
            else:
                self._append(block, step, whole)
                return True
        clean: dict[str, float] = {}
        self._clean(row, "", clean, 0)
        if not clean:
            return False
        keys = tuple(clean)
        block = self._blocks.get(keys)
        if block is None:
            block = self._blocks[keys] = _Block()
        block.data.extend(clean.values())
        self._append(block, step, whole)
        return True

    def _append(self, block: _Block, step: float | None, whole: bool) -> None:
        block.rows.append(self.rows)
        self._given.append(math.nan if step is None else step)
        self.rows += 1
        self.whole |= whole

    def _clean(self, row: Mapping[str, object], prefix: str, into: dict[str, float], depth: int) -> None:
        for name, value in row.items():
            key = f"{prefix}{name}"
            if isinstance(value, Mapping):
                if "_type" not in value and depth < DEPTH:
                    self._clean(value, f"{key}/", into, depth + 1)
                continue
            if isinstance(value, bool):
                if key in self._keys and self._admits(key):
                    into[key] = float(value)
                continue
            if value is None or value == "None":
                if self._admits(key):
                    self.nulls[key] = self.nulls.get(key, 0) + 1
                continue
            found = self._coerce(key, value)
            if found is not None and self._admits(key):
                self._keys.add(key)
                into[key] = found
                if isinstance(value, Printed):
                    self._note_decimals(key, value)

    def _coerce(self, key: str, value: object) -> float | None:
        if isinstance(value, (int, float)):
            try:
                return float(value)
            except OverflowError:
                return math.inf if value > 0 else -math.inf
        if not isinstance(value, str):
            return None
        if key in STEP_KEYS and (counted := _COUNTED.fullmatch(value.strip())):
            self.planned = int(counted[2])
            return float(counted[1])
        return number(value)

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
        shown = decimals(token)
        if shown is None:
            return
        if shown >= FULL_PRECISION and "e" not in token:
            self._full = True
        if shown > self._decimals.get(key, -1):
            self._decimals[key] = shown

    def merged(self) -> dict[str, Series]:
        """One series for each key over all rows so far, repeats included."""
        return _merge(self._columns()[1], np.ones(self.rows, dtype=bool))[0]

    def printed(self, key: str, places: int) -> bool:
        """True when every value of a key was printed without quotes and with at most ``places`` decimals."""
        return 0 <= self._decimals.get(key, -1) <= places

    def finish(
        self,
        *,
        path: str,
        format: str,
        steps: Floats | None = None,
        step_source: str = "",
        spacing: float | None = None,
        rounded: Mapping[str, int] | None = None,
        warnings: Iterable[Warn] = (),
        seams: Mapping[int, str] | None = None,
        **rest: object,
    ) -> Log:
        """The finished log; ``rest`` goes to ``Log`` unchanged.

        ``steps`` (rows,) are steps inferred from the surroundings, used only where the rows state none. ``spacing`` is
        the logging interval, for rows that are known by their order only. ``rounded`` gives the decimals of keys that
        the writer is known to round.
        """
        said = list(warnings)
        keep, columns = self._columns()
        series, count = _merge(columns, keep)
        if count < self.rows:
            said.append(
                Warn(
                    "duplicated_rows",
                    f"{self.rows - count} rows repeat the row before them in every value (several processes writing the same log); each is counted once",
                )
            )
        given = np.frombuffer(self._given, dtype=np.float64)[keep] if self.rows else np.empty(0)
        axis, source, used = _axis(series, count, given)
        breaks = {int(np.count_nonzero(keep[:row])): why for row, why in (seams or {}).items()}
        if source == "" and steps is not None:
            axis, source = steps[keep], step_source
        if source == "" and count:
            axis, source, used = _ordered(series, count, spacing)
        axis = _shared(axis, series, count)
        said += self._said(axis, source)
        for row in np.flatnonzero(np.diff(axis) < 0) + 1:
            breaks.setdefault(int(row), f"the step went back from {axis[row - 1]:g} to {axis[row]:g}")
        if breaks and not any(w.code == "several_starts" for w in said):
            first = min(breaks)
            more = f" (and {len(breaks) - 1} more)" if len(breaks) > 1 else ""
            said.append(Warn("several_starts", f"the log starts again at row {first + 1}: {breaks[first]}{more}"))
        rest["excerpt"] = bool(rest.get("excerpt")) or _starts_late(axis)
        shown = {} if self._full else self._decimals
        known = rounded or {}
        named: dict[str, Series] = {}
        for key, one in series.items():
            if key in used or key in STEP_KEYS:
                continue
            finest = known.get(key, shown.get(key))
            named[key] = Series(one.rows, one.values, finest if finest is None or finest < FULL_PRECISION else None)
        return Log(
            path=path,
            format=format,
            rows=count,
            steps=axis,
            step_source=source,
            series=named,
            complete=self.whole,
            warnings=tuple(said),
            seams=dict(sorted(breaks.items())),
            **{"planned_steps": self.planned, **rest},  # type: ignore[arg-type]
        )

    def _columns(self) -> tuple[NDArray[np.bool_], dict[str, list[tuple[IntArray, Floats]]]]:
        """Which rows stay (each once), and every key's parts (rows, values) before merging."""
        keep = np.ones(self.rows, dtype=bool)
        columns: dict[str, list[tuple[IntArray, Floats]]] = {}
        given = np.frombuffer(self._given, dtype=np.float64) if self.rows else np.empty(0)
        for keys, block in self._blocks.items():
            if not len(block.rows):
                continue
            rows = np.frombuffer(block.rows, dtype=np.int64)
            table = np.ascontiguousarray(np.frombuffer(block.data, dtype=np.float64).reshape(len(rows), len(keys)).T)
            keep[rows[1:][_repeats(keys, rows, table, given[rows])]] = False
            for key, column in zip(keys, table, strict=True):
                columns.setdefault(key, []).append((rows, column))
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
        if len(known) < len(axis):
            said.append(Warn("rows_without_step", f"{len(axis) - len(known)} of {len(axis)} rows state no step"))
        if len(known) and known.min() < 0:
            said.append(Warn("negative_steps", f"the steps ({source}) go down to {known.min():g}"))
        if len(known) and bool((known != np.floor(known)).any()):
            said.append(Warn("fractional_steps", f"the steps ({source}) are not whole numbers"))
        return said


def _starts_late(axis: Floats) -> bool:
    """True for a short log whose first step is not near the beginning, so what came before was left out."""
    known = axis[np.isfinite(axis)]
    if not 0 < len(known) <= SHORT:
        return False
    gaps = np.diff(known)
    usual = float(np.median(gaps[gaps > 0])) if bool((gaps > 0).any()) else 1.0
    return bool(known[0] > 2 * usual)


def _repeats(keys: tuple[str, ...], rows: IntArray, table: Floats, given: Floats) -> NDArray[np.bool_]:
    """(n-1,) True where a row of a block repeats the row just before it in the log and cannot be a new step.

    Equal values alone prove nothing in a frozen run, so a repeat must also share a stated step, a token counter, or a
    number with more than six decimals that is no setting.
    """
    if len(rows) < 2:
        return np.zeros(0, dtype=bool)
    same = rows[1:] == rows[:-1] + 1
    for column in table:
        if not same.any():
            return same
        same &= column[1:].view(np.int64) == column[:-1].view(np.int64)
    if not same.any():
        return same
    proof = given[1:] == given[:-1]
    for key, column in zip(keys, table, strict=True):
        values = column[1:]
        if key in STEP_KEYS or key.endswith("num_tokens"):
            proof |= values != 0
        elif not key.endswith(("lr", "learning_rate", "epoch", "coef", "coeff", "max_steps")):
            proof |= (np.abs(values) > 1e-3) & (values != np.round(values, 6))
    return same & proof


def _merge(columns: dict[str, list[tuple[IntArray, Floats]]], keep: NDArray[np.bool_]) -> tuple[dict[str, Series], int]:
    """One series for each key over the kept rows, renumbered, and how many rows are kept."""
    whole = bool(keep.all())
    place = np.cumsum(keep) - 1
    series: dict[str, Series] = {}
    for key, parts in columns.items():
        if len(parts) == 1:
            rows, values = parts[0]
        else:
            rows = np.concatenate([r for r, _ in parts])
            values = np.concatenate([v for _, v in parts])
            order = np.argsort(rows, kind="stable")
            rows, values = rows[order], values[order]
        if not whole:
            kept = keep[rows]
            rows, values = place[rows[kept]].astype(np.int64), values[kept]
        series[key] = Series(rows, values)
    return series, int(keep.sum())


def _axis(series: Mapping[str, Series], count: int, given: Floats) -> tuple[Floats, str, tuple[str, ...]]:
    """The step of every row as stated beside or inside the rows; an empty source when nothing states it."""
    if count and np.isfinite(given).sum() * 2 >= count:
        return given.copy(), "step", ()
    best: tuple[int, str] | None = None
    for key in STEP_KEYS:
        one = series.get(key)
        if one is None:
            continue
        if len(one.rows) * 2 >= count:
            best = (len(one.rows), key)
            break
        if best is None or len(one.rows) > best[0]:
            best = (len(one.rows), key)
    axis = given.copy()
    if best is None:
        stated = bool(np.isfinite(given).any())
        return axis, "step" if stated else "", ()
    chosen = series[best[1]]
    axis[chosen.rows] = chosen.values
    return axis, best[1], (best[1],)


def _ordered(series: Mapping[str, Series], count: int, spacing: float | None) -> tuple[Floats, str, tuple[str, ...]]:
    """Steps of rows that state none: whole epochs where those count up, else the order of the rows."""
    epoch = series.get("epoch")
    if epoch is not None and count > 1 and len(epoch.rows) == count:
        values = epoch.values
        if bool((np.diff(values) > 0).all()) and bool((values == np.floor(values)).all()):
            return values.copy(), "epoch", ("epoch",)
    order = np.arange(1, count + 1, dtype=np.float64)
    trained = np.ones(count, dtype=bool)
    for row in evaluated(series, count):
        trained[row] = False
    if 0 < trained.sum() < count:
        order = np.maximum(np.cumsum(trained), 1).astype(np.float64)
    if spacing and spacing > 0:
        return order * spacing, f"row order times the logging interval of {spacing:g}", ()
    return order, "row order", ()


def evaluated(series: Mapping[str, Series], count: int) -> IntArray:
    """Rows that hold evaluation keys and no training key."""
    held_out = np.zeros(count, dtype=bool)
    trained = np.zeros(count, dtype=bool)
    for key, one in series.items():
        if key.startswith(_EVALUATION):
            held_out[one.rows] = True
        elif key not in STEP_KEYS and key != "epoch" and not key.startswith("_"):
            trained[one.rows] = True
    return np.flatnonzero(held_out & ~trained)


def _shared(axis: Floats, series: Mapping[str, Series], count: int) -> Floats:
    """The axis with evaluation rows that state no step put at the step of the row before them."""
    if not count or bool(np.isfinite(axis).all()):
        return axis
    axis = axis.copy()
    for row in evaluated(series, count):
        if row and not np.isfinite(axis[row]):
            axis[row] = axis[row - 1]
    return axis
