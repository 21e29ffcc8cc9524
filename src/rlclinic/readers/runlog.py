"""The run files of W&B (.wandb) and SwanLab (.swanlab): one container, two vocabularies, read without either package."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import IO

from rlclinic.model import Warn
from rlclinic.readers.records import refuse, trains
from rlclinic.readers.rows import Log, Rows
from rlclinic.readers.wire import Torn, double, fields, signed, text

WANDB, SWANLAB = b":W&B", b":SWL"
"""How the files of the two trackers begin."""
BLOCK = 1 << 15
"""Bytes of a block; no piece of a record crosses its border (LevelDB's log format)."""
RECORD = 256 << 20
"""Longest record in bytes that is put together (ours)."""
SETTINGS = 5_000
"""Most settings taken from the file (ours)."""
_PIECE = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def read_runlog(stream: IO[bytes], path: str) -> Log:
    """The history and the settings of one run file, up to where it is cut. Raises CannotRead without a training metric."""
    swan = stream.read(7).startswith(SWANLAB)
    rows, settings = Rows(), dict[str, object]()
    points: dict[int, dict[str, float]] = {}
    torn = False
    for record in _records(stream):
        if record is None:
            torn = True
            break
        try:
            if swan:
                _point(record, points)
            else:
                _record(record, rows, settings)
        except Torn:
            torn = True
    for step in sorted(points):
        rows.add(points[step], float(step))
    what = "SwanLab run file" if swan else "W&B run file"
    if not rows.rows or not trains(rows):
        raise refuse(path, f"a {what} without a training metric", "give files/output.log of the same run")
    said = [Warn("torn_record", "the run file ends inside a record; everything before it is read")] if torn else []
    log = rows.finish(path=path, format="swanlab" if swan else "wandb", nonfinite="kept", warnings=said)
    return replace(log, config=settings)


def _records(stream: IO[bytes]) -> Iterator[bytes | None]:
    """Every whole record; None where the file ends inside one. The file header of 7 bytes counts to the first block."""
    parts: list[bytes] = []
    at = 7
    while True:
        left = BLOCK - at % BLOCK
        if left < _PIECE.size:
            stream.read(left)
            at += left
            continue
        head = stream.read(_PIECE.size)
        if len(head) < _PIECE.size:
            if head.strip(b"\0") or parts:
                yield None
            return
        _, length, kind = _PIECE.unpack(head)
        if kind == 0 and length == 0:
            at += _PIECE.size
            continue
        body = stream.read(length)
        at += _PIECE.size + length
        if len(body) < length or kind > _LAST or sum(map(len, parts)) > RECORD:
            yield None
            return
        if kind in (_FULL, _FIRST):
            parts = []
        parts.append(body)
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = []


def _record(record: bytes, rows: Rows, settings: dict[str, object]) -> None:
    """History rows and settings of one W&B record; its other kinds (console text, system statistics) are passed over."""
    for number, _, value in fields(record):
        if not isinstance(value, bytes):
            continue
        if number == 2:
            row = _items(value, 1, keep_objects=False)
            if row:
                rows.add(row)
        elif number == 5:
            settings.update(_limited(_items(value, 1), settings))
        elif number == 17:
            for inner, _, config in fields(value):
                if inner == 4 and isinstance(config, bytes):
                    settings.update(_limited(_items(config, 1), settings))


def _limited(found: Mapping[str, object], known: Mapping[str, object]) -> dict[str, object]:
    room = max(0, SETTINGS - len(known))
    return dict(list(found.items())[:room]) if len(found) > room else dict(found)


def _items(message: bytes, item: int, *, keep_objects: bool = True) -> dict[str, object]:
    """Key and JSON value of every item; nested keys are joined by a slash."""
    found: dict[str, object] = {}
    for number, _, value in fields(message):
        if number != item or not isinstance(value, bytes):
            continue
        key, nested, held = "", list[str](), ""
        for inner, _, one in fields(value):
            if inner == 1:
                key = text(one)
            elif inner == 2:
                nested.append(text(one))
            elif inner == 16:
                held = text(one)
        name = "/".join(nested) or key
        try:
            read = json.loads(held)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict) and not keep_objects:
            continue  # a table, a picture, a histogram
        if name and not name.startswith("_wandb"):
            found[name] = read
    return found


def _point(record: bytes, points: dict[int, dict[str, float]]) -> None:
    """One scalar of a SwanLab record: key, step and a double; zeros are left out of the message."""
    for number, _, value in fields(record):
        if number != 13 or not isinstance(value, bytes):
            continue
        key, step, scalar = "", 0, 0.0
        for inner, wire, one in fields(value):
            if inner == 1:
                key = text(one)
            elif inner == 2:
                step = signed(one)
            elif inner == 5 and wire == 1:
                scalar = double(one)
        if key:
            points.setdefault(step, {})[key] = scalar
