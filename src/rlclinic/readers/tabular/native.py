"""What JSON lines of a known trainer mean beyond their keys: which rows belong together, what they lack, and where it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlclinic.model import Warn
from rlclinic.readers.rows import Nonfinite, Rows
from rlclinic.readers.text.gather import Gathered
from rlclinic.readers.tokens import number

EPOCH = 1_000_000_000.0
"""Least value of a clock in seconds since 1970 (September 2001), which no other number of a step's row reaches."""
HISTORY = 2_000_000
"""Most rows of a closing history (ours)."""


class Native:
    """JSON lines of no trainer in particular: every record is a row. Trainers with ways of their own extend this."""

    nonfinite: Nonfinite = "unknown"
    trainer = ""
    """The trainer that alone writes records of this form, as its package is called; empty where keys have to tell."""
    plain = False
    """True where every record is one row as it is, so that many of them may be taken at once."""

    def add(self, rows: Rows, record: Mapping[str, object], whole: bool = True) -> None:
        """Take one record."""
        rows.add(record, whole=whole)

    def closing(self, record: Mapping[str, object]) -> None:
        """Take a record that repeats a whole history, which is no row."""

    def finish(self, rows: Rows, path: str) -> tuple[Rows, list[Warn]]:
        """The rows of the log, and what there is to say about them."""
        return rows, []


class _Prime(Native):
    """prime-rl's file monitor (src/prime_rl/utils/monitor/file.py): several records a step, non-finite values left out."""

    nonfinite: Nonfinite = "dropped"
    trainer = "prime-rl"

    def __init__(self) -> None:
        self._into: Gathered | None = None

    def add(self, rows: Rows, record: Mapping[str, object], whole: bool = True) -> None:
        if self._into is None:
            self._into = Gathered(rows)
        step = _step(record)
        if step is None:
            rows.add(record, whole=whole)
        else:
            self._into.add({k: v for k, v in record.items() if k not in ("step", "time")}, step, whole)

    def finish(self, rows: Rows, path: str) -> tuple[Rows, list[Warn]]:
        if self._into is not None:
            self._into.flush()
        return rows, []


class _LlamaFactory(Native):
    """LLaMA-Factory's trainer_log.jsonl (src/llamafactory/train/callbacks.py): a fixed choice of metrics."""

    nonfinite: Nonfinite = "filtered"
    trainer = "llama-factory"

    def add(self, rows: Rows, record: Mapping[str, object], whole: bool = True) -> None:
        total = record.get("total_steps")
        if isinstance(total, int) and 0 < total < 10**12:
            rows.planned = total
        rows.add({k: v for k, v in record.items() if k not in ("total_steps", "percentage")}, whole=whole)

    def finish(self, rows: Rows, path: str) -> tuple[Rows, list[Warn]]:
        rows.whole = False
        beside = _state_beside(path)
        where = f"give {beside}, which holds all" if beside else "trainer_state.json of the same directory holds all"
        says = f"trainer_log.jsonl holds only loss, reward, accuracy and learning rate; {where}"
        return rows, [Warn("printed_subset", says)]


class _Swift(Native):
    """ms-swift's logging.jsonl: the last record repeats the history of the trainer, which then is the better source."""

    def __init__(self, nonfinite: Nonfinite) -> None:
        self.nonfinite = nonfinite
        self._history: list[Mapping[str, object]] = []

    def closing(self, record: Mapping[str, object]) -> None:
        history = record.get("log_history")
        if isinstance(history, list) and len(history) <= HISTORY:
            self._history = [row for row in history if isinstance(row, dict)]

    def finish(self, rows: Rows, path: str) -> tuple[Rows, list[Warn]]:
        if len(self._history) <= rows.rows:
            return rows, []
        whole = Rows()
        whole.planned = rows.planned
        for row in self._history:
            whole.add(row)
        says = f"the closing record repeats {whole.rows} rows of which {rows.rows} stand before it; it is read instead"
        return whole, [Warn("closing_history", says)]


class _Plain(Native):
    """Records of no known trainer."""

    plain = True


class _Art(_Plain):
    """ART's history.jsonl (src/art/model.py): what does not equal itself is left out, so NaN is; infinities stay."""

    nonfinite: Nonfinite = "dropped"
    trainer = "art"


class _Kept(_Plain):
    """Trainers whose records are plain rows, written by Python's json, which spells NaN and infinities out."""

    nonfinite: Nonfinite = "kept"


def native_form(record: Mapping[str, object]) -> Native:
    """Whose way of writing JSON lines the first record of a file shows."""
    keys = list(record)
    clock = record.get("time")
    if keys[:2] == ["step", "time"] and isinstance(clock, float) and clock > EPOCH:
        return _Prime()
    if "current_steps" in record and "total_steps" in record:
        return _LlamaFactory()
    if "recorded_at" in record and any(key.startswith(("train/", "val/")) for key in keys):
        return _Art()
    if "global_step/max_steps" in record:
        return _Swift("filtered")
    if isinstance(counted := record.get("iteration"), str) and "/" in counted:
        return _Swift("kept")
    if "log_history" in record:
        return _Swift("unknown")
    if "progress/batch" in record or any(key.startswith("env/all/") for key in keys):
        return _Kept()
    return _Plain()


def _step(record: Mapping[str, object]) -> float | None:
    step = record.get("step")
    if isinstance(step, (int, float)) and not isinstance(step, bool):
        return float(step)
    return number(step) if isinstance(step, str) else None


def _state_beside(path: str) -> Path | None:
    """The newest trainer_state.json beside a log, or in its checkpoints; None for standard input and where there is none."""
    folder = Path(path).parent
    if path == "-" or not folder.is_dir():
        return None
    try:
        found = (folder / "trainer_state.json", *folder.glob("checkpoint-*/trainer_state.json"))
        dated = [(one.stat().st_mtime, one) for one in found if one.is_file()]
    except OSError:
        return None
    return max(dated)[1] if dated else None
