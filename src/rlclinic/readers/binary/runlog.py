"""The run files of W&B (.wandb) and SwanLab (.swanlab): one container, two vocabularies, read without either package."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.axis import STEP_KEYS
from rlclinic.readers.binary.blocks import Captured, Damage, each, records, with_console
from rlclinic.readers.binary.swanlab import Swanlab
from rlclinic.readers.binary.wire import Torn, fields, moment, signed, text
from rlclinic.readers.config import SETTINGS, arguments, flat_settings
from rlclinic.readers.rows import Log, Rows
from rlclinic.readers.tabular.records import refuse, trains
from rlclinic.readers.tokens import KEY_LENGTH

WANDB, SWANLAB = b":W&B", b":SWL"
"""How the files of the two trackers begin."""
FIRST = 100
"""Records among which the beginning of a run is looked for (ours: it is the second or third)."""
NAMED = 3
"""Most changed settings and tables named in one sentence (ours)."""
COUNTER, TIMINGS = "train/global_step", "profiling/"
"""The counter of the Transformers trainer, and the family that TRL logs beside it before the first step."""
RUNTIME = b"train_runtime"
"""The key under which the Transformers trainer states the whole time when it has ended."""
KIND = "/_type"
"""How the key ends under which an object in the history says what it is."""
_TABLES = ("table-file", "table", "joined-table", "partitioned-table", "incremental-table-file")
_INTERRUPTED = 255
"""The exit code that W&B notes for Ctrl-C."""


def read_runlog(stream: IO[bytes], path: str) -> Log:
    """The history, the settings and the end of one run file, up to where it is cut.

    Pieces that fail their checksum are left out and counted; reading goes on at the next block. Where the history holds
    no training metric, the console text that W&B and SwanLab keep in the file is read instead. Raises CannotRead when
    neither holds one.
    """
    head = stream.read(7)
    book: _Wandb | Swanlab = Swanlab() if head.startswith(SWANLAB) else _Wandb()
    book.take(stream, Path(path).name)
    return book.log(path)


def read_run_files(paths: Sequence[Path]) -> Log:
    """One log from all run files of one run, whichever attempt wrote them; the later one wins at every step.

    Raises CannotRead when none holds a training metric, and for files of different trackers.
    """
    where = str(paths[0]) if len(paths) == 1 else os.path.commonpath([path.parent for path in paths]) if paths else ""
    trouble: list[Warn] = []
    begun = sorted((*_begun(path, trouble), place, path) for place, path in enumerate(paths))
    kinds = {kind for _, kind, _, _ in begun if kind}
    if len(kinds) != 1:
        what = "files of different trackers" if kinds else "; ".join(one.says for one in trouble) or "no run file"
        raise CannotRead("the run files of one run", f"{where}: {what}", hint="give the files of one tracker")
    book: _Wandb | Swanlab = Swanlab() if SWANLAB in kinds else _Wandb()
    for _, kind, _, path in begun:
        if kind:
            _take(path, book, trouble)
    log = book.log(where)
    return replace(log, warnings=(*log.warnings, *trouble))


def history_rows(history: Iterable[Mapping[str, object]]) -> Rows:
    """The history of a W&B run as its server gives it, put together as that of a run file is."""
    book = _Wandb()
    book.begin()
    for row in history:
        book.entry(
            {key: float(value) if type(value) is int and abs(value) < 2**1000 else value for key, value in row.items()}
        )
    book.end()
    return book.rows


def _begun(path: Path, trouble: list[Warn]) -> tuple[float, bytes]:
    """When the run of a file began (seconds since 1970, infinite when its records do not tell), and whose file it is."""
    try:
        with path.open("rb") as stream:
            kind = stream.read(7)[:4]
            if kind in (WANDB, SWANLAB):
                return _begins(stream, kind), kind
            trouble.append(Warn("source_left_out", f"{path.name}: no run file of W&B or SwanLab"))
    except OSError as error:
        trouble.append(Warn("source_left_out", f"{path.name}: {error.strerror or error}"))
    return math.inf, b""


def _begins(stream: IO[bytes], kind: bytes) -> float:
    for record in itertools.islice(records(stream, Damage()), FIRST):
        with contextlib.suppress(Torn):
            for field, _, value in fields(record):
                if kind == SWANLAB and field == 2:
                    return moment(value)
                if kind == WANDB and field == 17 and isinstance(value, bytes):
                    return next((moment(one) for inner, _, one in fields(value) if inner == 17), math.inf)
    return math.inf


def _take(path: Path, book: _Wandb | Swanlab, trouble: list[Warn]) -> None:
    try:
        with path.open("rb") as stream:
            stream.read(7)
            book.take(stream, path.name)
    except OSError as error:
        trouble.append(Warn("source_left_out", f"{path.name}: {error.strerror or error}"))


class _Wandb:
    """The records of W&B run files, taken in their order (wandb/proto/wandb_internal.proto)."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.settings: dict[str, object] = {}
        self.given: dict[str, object] = {}
        self.facts: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.seams: dict[int, str] = {}
        self.tables: dict[str, None] = {}
        self.ending: str | None = None
        self.damage = Damage()
        self.text = Captured()
        self._axes: dict[str, None] = {}
        self._open: dict[str, object] = {}
        self._early: list[dict[str, object]] | None = None
        self._held: dict[str, object] = {}
        self._files = 0

    def take(self, stream: IO[bytes], name: str) -> None:
        """All records of one file, which begin after its header."""
        if self._files and self.rows.rows:
            self.seams[self.rows.rows] = f"another run file begins ({name})"
        self._files += 1
        self.begin()
        each(stream, self.damage, self._record)
        self.end()

    def begin(self) -> None:
        """Wait for the first counter of another attempt."""
        self.ending = None
        self._early = []

    def end(self) -> None:
        """Write every row that is still held back."""
        self._close()
        for row in self._early or []:
            self._add(row)
        self._flush()

    def _record(self, record: bytes) -> None:
        for number, _, value in fields(record):
            if not isinstance(value, bytes):
                continue
            if number == 2:
                self._history(value)
            elif number == 5:
                self._config(value)
            elif number == 17:
                for inner, _, one in fields(value):
                    if inner == 4 and isinstance(one, bytes):
                        self._config(one)
                    elif inner == 8:
                        self.facts["run"] = text(one)[:KEY_LENGTH]
            elif number == 3:
                if RUNTIME in value:  # what the trainer says once, at its end, is in no history
                    self.facts["train_runtime"] = str(_items(value, 1).get("train_runtime", ""))[:40]
            elif number in (4, 13):
                for inner, _, one in fields(value):
                    if inner == 3:
                        self.text.add(text(one))
            elif number == 12:
                for inner, _, one in fields(value):
                    if inner == 4 and len(self._axes) < NAMED:
                        self._axes[text(one)] = None
            elif number == 11:
                for inner, _, one in fields(value):
                    if inner in (4, 6):
                        self.versions["python" if inner == 4 else "transformers"] = text(one)[:40]
            elif number == 18:
                code = next((signed(one) for inner, _, one in fields(value) if inner == 1), 0)
                how = "interrupted, exit code" if code == _INTERRUPTED else "exit code"
                self.ending = f"{how} {code}" if code else ""
            elif number == 23:
                self.facts["preempted"] = "the run said that it was being preempted"
            elif number == 26:
                self._environment(value)

    def _history(self, message: bytes) -> None:
        self.entry(_row(message))

    def entry(self, row: dict[str, object]) -> None:
        """Take one row of the history, its numbers as float."""
        # Pictures, tables and histograms are objects with a type; newer clients write each of their fields as an item.
        media = {key[: -len(KIND)]: value for key, value in row.items() if key.endswith(KIND)}
        for key, value in list(row.items()):
            if isinstance(value, dict) and "_type" in value:
                media[key] = value["_type"]
            if isinstance(value, (dict, list)) or key.startswith("_wandb"):
                del row[key]
        for key, kind in media.items():
            if kind in _TABLES and len(self.tables) < FIRST:
                self.tables[key[:KEY_LENGTH]] = None
            for part in [part for part in row if part.startswith(f"{key}/")]:
                del row[part]
        # What is logged without being committed may come in pieces of one step.
        if self._open and ("_step" not in row or row["_step"] != self._open.get("_step")):
            self._close()
        self._open.update(row)

    def _close(self) -> None:
        row, self._open = self._open, {}
        if len(self._axes) == 1:
            axis = next(iter(self._axes))
            if axis in row and axis not in STEP_KEYS and "step" not in row:
                row["step"] = row[axis]  # the run says itself which counter its charts are drawn over
        if all(key[:1] == "_" for key in row):
            return
        if self._early is not None:
            self._first(row)
            return
        self._add(row)

    def _first(self, row: dict[str, object]) -> None:
        """The first rows of a file: W&B fills the counter in with 0 until the trainer states it, also after a resume.

        Timings logged before the first step therefore wait for that step.
        """
        early = self._early or []
        stated = row.get(COUNTER)
        if stated == 0 and len(early) < FIRST and _timings_only(row):
            self._early = [*early, row]
            return
        self._early = None
        for one in early:
            if isinstance(stated, float) and stated > 0:
                one[COUNTER] = stated
            self._add(one)
        self._add(row)

    def _add(self, row: dict[str, object]) -> None:
        """Hold a row back for the timings of its step, of which TRL logs one a row, dozens for each step."""
        held = self._held
        if held and COUNTER in row and held.get(COUNTER) == row[COUNTER]:
            if _timings_only(row):
                held.update({key: value for key, value in row.items() if key.startswith(TIMINGS)})
                return
            if _timings_only(held):
                row = {**held, **row}
                self._held = held = {}
        self._flush()
        self._held = row

    def _flush(self) -> None:
        if self._held:
            self.rows.add(dict(sorted(self._held.items())))  # the order of the items is random in every record
        self._held = {}

    def _config(self, message: bytes) -> None:
        found = flat_settings(_items(message, 1))
        changed = [
            f"{key} {self.settings[key]} -> {value}"
            for key, value in found.items()
            if key in self.settings and self.settings[key] != value and isinstance(value, (bool, int, float, str))
        ]
        if changed and (self.rows.rows or self._held or self._open):
            self._close()
            self._flush()
            more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
            self.seams[self.rows.rows] = f"the configuration changed: {', '.join(changed[:NAMED])[:300]}{more}"
        for key, value in found.items():
            if len(self.settings) < SETTINGS or key in self.settings:
                self.settings[key] = value
        for key in _items(message, 2, bare=True):
            self.settings.pop(key, None)

    def _environment(self, message: bytes) -> None:
        words: list[str] = []
        for number, wire, value in fields(message):
            if number == 5 and len(words) < SETTINGS:
                word = text(value)[:2_000]
                words.append(f'"{word}"' if any(c.isspace() for c in word) and '"' not in word else word)
            elif number == 18 and wire == 2:
                self.facts["hardware"] = text(value)[:100]
            elif number == 19 and wire == 0:
                self.facts["gpus"] = str(signed(value))
        given = arguments(" ".join(words)) if words else {}
        if "raylet-name" not in given:  # those of a worker of Ray say nothing of the training
            self.given.update(given)

    def log(self, path: str) -> Log:
        """Everything taken so far as a log."""
        what = "W&B run file" if self._files == 1 else f"{self._files} W&B run files"
        said = self.damage.said("W&B run file")
        if self.tables:
            named = ", ".join(sorted(self.tables)[:NAMED])
            says = (
                f"the tables {named} are saved answers; they are read where files/media/table of the run lies beside it"
            )
            said.append(Warn("source_left_out", says))
        log = None
        if self.rows.rows and trains(self.rows):
            log = self.rows.finish(path=path, format="wandb", nonfinite="kept", warnings=said)
            seams = dict(log.seams)
            for row, why in self.seams.items():
                if row < log.rows:
                    seams[row] = f"{why}: {seams[row]}" if row in seams else why
            log = replace(log, seams=dict(sorted(seams.items())))
        found = with_console(
            log,
            self.text.log(path, brief=log is not None),
            ending=self.ending,
            config={**self.given, **self.settings},
            versions=self.versions,
            facts=self.facts,
        )
        if found is None:
            raise refuse(path, f"a {what} without a training metric", "give files/output.log of the same run")
        return found


def _timings_only(row: Mapping[str, object]) -> bool:
    return all(key[:1] == "_" or key == COUNTER or key.startswith(TIMINGS) for key in row)


def _row(message: bytes) -> dict[str, object]:
    """Key and value of every item of a history record; nested keys are joined by a slash, as everywhere else here.

    Almost every item is one key and a short value; those are taken apart here, the others in ``_item``.
    """
    row: dict[str, object] = {}
    at, end = 0, len(message)
    try:
        while at < end:
            if message[at] != 0x0A:
                at = _past(message, at)
                continue
            size = message[at + 1]
            at += 2
            if size >= 0x80:
                size, at = (size & 0x7F) | message[at] << 7, at + 1
                if message[at - 1] >= 0x80:
                    raise Torn("a long item")
            stop = at + size
            if stop > end:
                raise Torn("an item beyond the end")
            key_end = at + 2 + message[at + 1]
            if (
                (message[at] == 0x12 or message[at] == 0x0A)
                and message[at + 1] < 0x80
                and message[key_end : key_end + 2] == b"\x82\x01"
                and key_end + 3 + message[key_end + 2] == stop
            ):
                key, held = message[at + 2 : key_end].decode("utf-8", "replace"), message[key_end + 3 : stop]
                try:
                    row[key] = float(held)
                except ValueError:
                    row[key] = _json(held)
            else:
                name, value = _item(message[at:stop])
                if name:
                    row[name] = value
            at = stop
    except (IndexError, Torn):
        return _items(message, 1, joint="/")  # an item longer than 16 KiB, or damage
    return row


def _past(message: bytes, at: int) -> int:
    """Where the field after the one at ``at`` begins; only fields of a short length are passed."""
    wire = message[at] & 7
    if message[at] >= 0x80 or wire not in (0, 2) or message[at + 1] >= 0x80:
        raise Torn("another field")
    return at + 2 + (message[at + 1] if wire == 2 else 0)


def _json(held: bytes) -> object:
    try:
        return json.loads(held)
    except (ValueError, RecursionError):
        return ""


def _item(message: bytes) -> tuple[str, object]:
    key, nested, held = "", list[str](), b""
    for number, _, value in fields(message):
        if number == 1:
            key = text(value)
        elif number == 2:
            nested.append(text(value))
        elif number == 16 and isinstance(value, bytes):
            held = value
    return "/".join(nested) or key, _json(held)


def _items(message: bytes, item: int, *, joint: str = ".", bare: bool = False) -> dict[str, object]:
    """Key and JSON value of every item; nested keys are joined. With ``bare`` the keys alone count."""
    found: dict[str, object] = {}
    for number, _, value in fields(message):
        if number != item or not isinstance(value, bytes):
            continue
        name, read = _item(value)
        if joint != "/":
            name = name.replace("/", joint) if _nested(value) else name
        if name and not name.startswith("_wandb") and (bare or read != ""):
            found[name] = read
    return found


def _nested(item: bytes) -> bool:
    return sum(number == 2 for number, _, _ in fields(item)) > 1


__all__ = ["SWANLAB", "WANDB", "history_rows", "read_run_files", "read_runlog"]
