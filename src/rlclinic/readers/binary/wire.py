"""Protocol-buffer messages taken apart without their schema: field numbers and raw values, bounded and never trusted."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

Value: TypeAlias = int | bytes
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


class Torn(ValueError):
    """The bytes end, or turn into something else, inside a message."""


def fields(message: bytes) -> Iterator[tuple[int, int, Value]]:
    """(field number, wire type, value) of every field of ``message`` in its order.

    Numbers come as int, everything else as its bytes: 8 for a double, 4 for a float, any for texts and messages. Raises
    Torn. Encoding: protobuf.dev, "Encoding".
    """
    place, size = 0, len(message)
    while place < size:
        tag, place = _varint(message, place)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield number, wire, value
            continue
        if wire == 2:
            length, place = _varint(message, place)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise Torn(f"wire type {wire}")
        if place + length > size:
            raise Torn("a field beyond the end")
        yield number, wire, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message) and shift < 70:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise Torn("a number beyond the end")


def double(raw: Value) -> float:
    """The eight bytes of a double; raises Torn."""
    if not isinstance(raw, bytes) or len(raw) != 8:
        raise Torn("no double")
    return float(_DOUBLE.unpack(raw)[0])


def single(raw: Value) -> float:
    """The four bytes of a float; raises Torn."""
    if not isinstance(raw, bytes) or len(raw) != 4:
        raise Torn("no float")
    return float(_FLOAT.unpack(raw)[0])


def text(raw: Value) -> str:
    """The bytes of a text, what is not UTF-8 replaced; raises Torn for a number."""
    if not isinstance(raw, bytes):
        raise Torn("no text")
    return raw.decode("utf-8", errors="replace")


def signed(raw: Value) -> int:
    """A varint as the signed 64-bit number it stands for; raises Torn."""
    if not isinstance(raw, int):
        raise Torn("no number")
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def moment(raw: Value) -> float:
    """Seconds since 1970 of a google.protobuf.Timestamp (seconds = 1, nanos = 2); raises Torn."""
    if not isinstance(raw, bytes):
        raise Torn("no timestamp")
    seconds = nanos = 0
    for number, _, value in fields(raw):
        if number == 1:
            seconds = signed(value)
        elif number == 2:
            nanos = signed(value)
    return seconds + nanos * 1e-9
