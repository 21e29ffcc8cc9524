"""TensorBoard event files: scalars in both encodings, read without TensorFlow up to the first torn record."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO

from rlclinic.model import Warn
from rlclinic.readers.records import refuse, trains
from rlclinic.readers.rows import Log, Rows
from rlclinic.readers.wire import Torn, Value, double, fields, signed, single, text

MARK = b"brain.Event:"
"""What the first record of every event file holds."""
RECORD = 64 << 20
"""Longest record in bytes that is believed (ours: pictures and histograms are far smaller)."""
_HEAD = struct.Struct("<Q")
_FLOAT, _DOUBLE = 1, 2
_LIST_ITEM = {_FLOAT: 4, _DOUBLE: 8}


def read_events(stream: IO[bytes], path: str) -> Log:
    """The scalars of one event file, a row for each step; of values repeated at a step the last counts.

    Record: length (8 bytes, little-endian), its checksum (4), the message, its checksum (4); checksums are not verified.
    Raises CannotRead when no training metric is inside.
    """
    rows, torn = Rows(), False
    row, at = dict[str, float](), None
    for message in _messages(stream):
        if message is None:
            torn = True
            break
        try:
            step, scalars = _event(message)
        except Torn:
            torn = True
            continue
        if at is not None and scalars and step != at:
            rows.add(row, float(at))
            row = {}
        if scalars:
            at = step
            row.update(scalars)
    if at is not None:
        rows.add(row, float(at))
    if not rows.rows or not trains(rows):
        raise refuse(
            path,
            "a TensorBoard event file without a training metric",
            "give the directory: scalars may lie in another of its files",
        )
    said = [Warn("torn_record", "the event file ends inside a record; everything before it is read")] if torn else []
    return rows.finish(path=path, format="tensorboard", nonfinite="kept", warnings=said)


def _messages(stream: IO[bytes]) -> Iterator[bytes | None]:
    """Every whole record; None where the file ends inside one."""
    while head := stream.read(12):
        length = _HEAD.unpack(head[:8])[0] if len(head) == 12 else RECORD + 1
        if length > RECORD:
            yield None
            return
        body = stream.read(length + 4)
        if len(body) < length:
            yield None
            return
        yield body[:length]


def _event(message: bytes) -> tuple[int, dict[str, float]]:
    """(step, scalars) of one event; a step of 0 is left out of the message."""
    step, scalars = 0, dict[str, float]()
    for number, _, value in fields(message):
        if number == 2:
            step = signed(value)
        elif number == 5 and isinstance(value, bytes):
            for inner, _, one in fields(value):
                if inner == 1 and isinstance(one, bytes):
                    scalar = _scalar(one)
                    if scalar is not None:
                        scalars[scalar[0]] = scalar[1]
    return step, scalars


def _scalar(value: bytes) -> tuple[str, float] | None:
    """(tag, number) of a summary value; None for pictures, texts and histograms."""
    tag, found = "", None
    for number, wire, raw in fields(value):
        if number == 1:
            tag = text(raw)
        elif number == 2 and wire == 5:
            found = single(raw)
        elif number == 8 and isinstance(raw, bytes):
            found = _tensor(raw)
    return (tag, found) if tag and found is not None else None


def _tensor(raw: bytes) -> float | None:
    """The number in a tensor of one element of type float or double; None for any other."""
    kind, content = 0, b""
    listed: Value | None = None
    for number, _, value in fields(raw):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in (5, 6):
            listed = value
    size = _LIST_ITEM.get(kind)
    body = content or listed
    if size is None or not isinstance(body, bytes) or len(body) != size:
        return None
    return single(body) if kind == _FLOAT else double(body)
