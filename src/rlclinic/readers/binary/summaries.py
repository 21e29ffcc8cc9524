"""What one TensorBoard event says: a number, settings, or something to pass over; and the shape that numbers repeat."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rlclinic.readers.binary.wire import Torn, Value, double, fields, signed, single, text
from rlclinic.readers.config import SETTINGS, flat_settings, setting
from rlclinic.readers.tokens import KEY_LENGTH

TEXT = 1 << 20
"""Longest text summary in bytes that is read as settings (ours)."""

_SETTINGS = (
    r"(?i)(?:[\w.-]{1,80}/){0,3}(?:\w{0,40}_)?(?:args|arguments|config|hparams|hyper_?param(?:eter)?s|params)"
    r"(?:/text_summary)?"
)
_HPARAMS = "_hparams_/session_start_info"
_CELL = re.compile(r"^\|([^|\n]{1,200})\|([^|\n]{0,2000})\|\s*$", re.MULTILINE)
_START = 1
_NUMBERS = {
    1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 17: "<H", 19: "<e", 22: "<I", 23: "<Q",
}  # fmt: skip
"""How one element lies in ``tensor_content`` for each dtype number (tensorflow/core/framework/types.proto)."""
_BFLOAT16, _HALF, _STRING = 14, 19, 7


def shape(data: bytes, at: int, end: int) -> tuple[str, int, int] | None:
    """(tag, bytes after the number, bytes of the number) of an event that from ``at`` on is one scalar and nothing else."""
    try:
        at, stop = _inside(data, at, end, 0x2A)
        if stop != end:
            return None
        at, stop = _inside(data, at, end, 0x0A)
        if stop != end:
            return None
        tag, found = "", None
        for number, wire, a, z in _placed_fields(data, at, end):
            if number == 1 and wire == 2:
                tag = data[a:z].decode("utf-8", errors="replace")
            elif number == 2 and wire == 5:
                found = None if found else (a, 4)
            elif number == 8 and wire == 2:
                found = None if found else _number_in(data, a, z)
            elif number != 9 and number != 7:
                return None
        if found is None or (found[1] != 4 and found[1] != 8):
            return None
        return tag, end - found[0] - found[1], found[1]
    except (Torn, IndexError):
        return None


def _number_in(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """(place, bytes) of the one float or double in a tensor."""
    kind, found = 0, None
    for number, wire, a, z in _placed_fields(data, at, end):
        if number == 1 and wire == 0:
            kind = data[z - 1]
        elif number in (4, 5, 6) and wire in (2, 1, 5):
            if found is not None:
                return None
            found = a, z - a
        elif number not in (2, 3):
            return None
    return found if found is not None and {1: 4, 2: 8}.get(kind) == found[1] else None


def _inside(data: bytes, at: int, end: int, tag: int) -> tuple[int, int]:
    """Where the field of this tag byte at ``at`` begins and ends."""
    if at >= end or data[at] != tag:
        raise Torn("another field")
    size = shift = 0
    at += 1
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return at, at + size
        if shift > 28:
            raise Torn("a length without end")


def _placed_fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field number, wire type, begin, end) of the fields in a stretch of ``data`` with numbers below 16."""
    while at < end:
        number, wire = data[at] >> 3, data[at] & 7
        if data[at] >= 0x80:
            raise Torn("a field of a high number")
        if wire == 2:
            a, z = _inside(data, at, end, data[at])
        elif wire == 0:
            a = z = at + 1
            while data[z] >= 0x80:
                z += 1
            z += 1
        elif wire in (1, 5):
            a = at + 1
            z = a + (8 if wire == 1 else 4)
        else:
            raise Torn(f"wire type {wire}")
        if z > end:
            raise Torn("a field beyond the end")
        yield number, wire, a, z
        at = z


@dataclass
class Event:
    """What one event holds: its step, wall time in seconds since 1970 (0 when not told), numbers and settings."""

    step: int = 0
    wall: float = 0.0
    scalars: list[tuple[str, float]] = field(default_factory=list)
    texts: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    starts: bool = False
    """The writer declares all before it from this step on void."""


def read_event(message: bytes) -> Event:
    """One event taken apart; a step of 0 is left out of the message. Raises Torn."""
    event = Event()
    for number, wire, value in fields(message):
        if number == 1 and wire == 1:
            event.wall = double(value)
        elif number == 2:
            event.step = signed(value)
        elif number == 5 and isinstance(value, bytes):
            for inner, _, one in fields(value):
                if inner == 1 and isinstance(one, bytes):
                    _summary(one, event)
        elif number == 7 and isinstance(value, bytes):
            event.starts = any(inner == 1 and one == _START for inner, _, one in fields(value))
    return event


def _summary(value: bytes, event: Event) -> None:
    """One summary value: a number, settings, or what is passed over (pictures, histograms, other texts)."""
    tag, found, words, plugin, content = "", None, None, "", b""
    for number, wire, raw in fields(value):
        if number == 1:
            tag = text(raw)
        elif number == 2 and wire == 5:
            found = single(raw)
        elif number == 8 and isinstance(raw, bytes):
            found, words = _tensor(raw)
        elif number == 9 and isinstance(raw, bytes):
            plugin, content = _metadata(raw)
    if tag == _HPARAMS:
        event.texts.append((tag, flat_settings(_hparams(content))))
    elif found is not None and tag and plugin in ("", "scalars"):
        event.scalars.append((tag, found))
    elif words and len(words) <= TEXT and re.fullmatch(_SETTINGS, tag[:KEY_LENGTH]):
        event.texts.append((tag, _written(words.decode("utf-8", errors="replace"))))


def _tensor(raw: bytes) -> tuple[float | None, bytes | None]:
    """(the number in a tensor of one element, or its text); both None for any other."""
    kind, content, text_value, listed = 0, b"", None, list[Value]()
    for number, _, value in fields(raw):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number == 8 and isinstance(value, bytes):
            text_value = value if text_value is None else text_value
        elif number in (5, 6, 7, 10, 11, 13, 16, 17):
            listed.append(value)
    if kind == _STRING:
        return None, text_value
    if content:
        return _element(kind, content), None
    return (_listed(kind, listed[0]) if len(listed) == 1 else None), None


def _element(kind: int, content: bytes) -> float | None:
    if kind == _BFLOAT16 and len(content) == 2:
        return single(b"\0\0" + content)
    form = _NUMBERS.get(kind)
    return float(struct.unpack(form, content)[0]) if form and struct.calcsize(form) == len(content) else None


def _listed(kind: int, value: Value) -> float | None:
    """The one value of a repeated field: packed floats and doubles as bytes, whole numbers as varints."""
    if kind in (1, 2):
        return _element(kind, value) if isinstance(value, bytes) else None
    if isinstance(value, bytes):
        packed = [number for _, _, number in fields(b"\x08" + value)] if 0 < len(value) <= 10 else []
        value = packed[0] if len(packed) == 1 else b""
    if isinstance(value, bytes):
        return None
    if kind in (_HALF, _BFLOAT16):
        return _element(kind, (value & 0xFFFF).to_bytes(2, "little"))
    return float(signed(value)) if kind in _NUMBERS else None


def _metadata(raw: bytes) -> tuple[str, bytes]:
    """(name, content) of the plugin that a summary is for."""
    name, content = "", b""
    for number, _, value in fields(raw):
        if number == 1 and isinstance(value, bytes):
            for inner, _, one in fields(value):
                if inner == 1:
                    name = text(one)
                elif inner == 2 and isinstance(one, bytes):
                    content = one
    return name, content


def _hparams(content: bytes) -> dict[str, object]:
    """The hyperparameters of a session: a map of names to numbers, texts and truth values."""
    found: dict[str, object] = {}
    for number, _, session in fields(content):
        if number != 3 or not isinstance(session, bytes):
            continue
        for inner, _, entry in fields(session):
            if inner != 1 or not isinstance(entry, bytes) or len(found) >= SETTINGS:
                continue
            name, value = "", None
            for place, _, one in fields(entry):
                if place == 1:
                    name = text(one)
                elif place == 2 and isinstance(one, bytes):
                    for kind, _, held in fields(one):
                        value = _plain(kind, held)
            if name:
                found[name] = value
    return found


def _plain(kind: int, held: Value) -> object:
    """One google.protobuf.Value: number (a whole one as int), text or truth value; None for the rest."""
    if kind == 2:
        number = double(held)
        return int(number) if number.is_integer() and abs(number) < 1e15 else number
    return text(held) if kind == 3 else bool(held) if kind == 4 else None


def _written(words: str) -> dict[str, object]:
    """The settings of a text summary: JSON, or a Markdown table of names and values; none in any other text."""
    start = words.find("{")
    if 0 <= start < 200:
        try:
            return flat_settings(json.JSONDecoder().raw_decode(words, start)[0])
        except (ValueError, RecursionError):
            return {}
    cells = [(key.strip(), value.strip()) for key, value in _CELL.findall(words)]
    return {
        key: setting(value) for key, value in cells[:SETTINGS] if key and key.strip("-: ") and key.lower() != "param"
    }
