"""The container of W&B and SwanLab run files: records cut into checked pieces, in blocks; and the console text in them."""

from __future__ import annotations

import re
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import IO

from rlclinic.model import Warn
from rlclinic.readers.binary.wire import Torn
from rlclinic.readers.rows import Log
from rlclinic.readers.text.console import Console

BLOCK = 1 << 15
"""Bytes of a block; no piece of a record crosses its border (LevelDB's log format)."""
RECORD = 256 << 20
"""Longest record in bytes that is put together (ours)."""
CONSOLE, CONSOLE_END = 24 << 20, 4 << 20
"""Most characters of captured console text that are kept, of its beginning and of its end (ours)."""
BRIEF = 256 << 10
"""Characters of the beginning and of the end that are looked through for settings and errors alone (ours)."""
HEADER = 7
"""Bytes before the first piece."""
SEARCHED = 500
"""Most damaged places behind which the rest of the block is searched (ours: each costs up to 30 ms)."""
_KIND = re.compile(b"[\\x01-\\x04]")
_PIECE = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SEED = {kind: zlib.crc32(bytes([kind])) for kind in (_FULL, _FIRST, _MIDDLE, _LAST)}


class Damage:
    """What of a container was lost."""

    def __init__(self) -> None:
        self.pieces = 0
        self.cut = False
        self.searched = 0

    def said(self, what: str) -> list[Warn]:
        said = []
        if self.pieces:
            said.append(Warn("damaged_records", f"{self.pieces} damaged places of the {what} were skipped"))
        if self.cut:
            said.append(Warn("torn_record", f"the {what} ends inside a record; everything before it is read"))
        return said


def records(stream: IO[bytes], damage: Damage) -> Iterator[bytes]:
    """Every whole record after the file header of 7 bytes, which counts to the first block.

    A block (32 KiB) holds pieces: checksum (4 bytes), length (2), kind (1), data. A piece that does not agree with its
    checksum loses its record, and reading goes on at the next one that does. Writers without checksums put 0.
    """
    parts: list[bytes] = []
    size = -1  # of the record being put together; -1 outside of one
    room = BLOCK - HEADER
    while block := stream.read(room):
        at = 0
        while at + _PIECE.size <= len(block):
            check, length, kind = _PIECE.unpack_from(block, at)
            after = at + _PIECE.size + length
            if kind == 0 and length == 0 and not block[at:].strip(b"\0"):
                at = len(block)
                break
            possible = kind in _SEED and after <= room
            if possible and after > len(block):
                behind = _next_piece(block, at, 0, damage)
                if behind == len(block):  # the file ends here, and not with a damaged length
                    break
                possible = False
            body = block[at + _PIECE.size : after]
            if not possible or (check and zlib.crc32(body, _SEED[kind]) != check):
                damage.pieces += 1
                parts, size = [], -1
                at = _next_piece(block, at, after if possible else 0, damage)
                continue
            at = after
            if kind in (_FULL, _FIRST):
                damage.pieces += size >= 0
                parts, size = [], 0
            if size < 0:
                continue  # the rest of a record whose beginning is lost
            parts.append(body)
            size += length
            if kind in (_FULL, _LAST):
                yield b"".join(parts)
                parts, size = [], -1
            elif size > RECORD:
                damage.pieces += 1
                parts, size = [], -1
        if block[at:].strip(b"\0"):
            damage.cut = True
        room = BLOCK
    damage.cut |= size >= 0


def _next_piece(block: bytes, at: int, after: int, damage: Damage) -> int:
    """Where the first piece that agrees with its checksum begins, behind the damaged one at ``at``; the end without one.

    ``after`` is where the damaged piece says that it ends, tried first.
    """
    if after and _agrees(block, after):
        return after
    damage.searched += 1
    if damage.searched <= SEARCHED:
        for kind in _KIND.finditer(block, at + _PIECE.size):
            if _agrees(block, kind.start() - _PIECE.size + 1):
                return kind.start() - _PIECE.size + 1
    return len(block)


def _agrees(block: bytes, at: int) -> bool:
    if at + _PIECE.size > len(block):
        return False
    check, length, kind = _PIECE.unpack_from(block, at)
    start = at + _PIECE.size
    whole = kind in _SEED and start + length <= len(block)
    return whole and check != 0 and zlib.crc32(block[start : start + length], _SEED[kind]) == check


class Captured:
    """Captured console text, bounded: its beginning and its end."""

    def __init__(self) -> None:
        self._begin: list[str] = []
        self._end: deque[str] = deque()
        self._sizes = [0, 0]

    def add(self, piece: str) -> None:
        """The next piece of text, as it came."""
        if self._sizes[0] < CONSOLE and not self._end:
            self._begin.append(piece)
            self._sizes[0] += len(piece)
            return
        self._end.append(piece)
        self._sizes[1] += len(piece)
        while self._sizes[1] > CONSOLE_END and len(self._end) > 1:
            self._sizes[1] -= len(self._end.popleft())

    def log(self, path: str, *, brief: bool) -> Log | None:
        """What a reader of console text makes of it; ``brief`` where its metrics are not wanted, only what stands around."""
        if not self._begin:
            return None
        text = "".join(self._begin) + "\n" + "".join(self._end)
        if brief and len(text) > 2 * BRIEF:
            text = text[:BRIEF] + "\n" + text[-BRIEF:]
        console = Console()
        for line in text.split("\n"):
            console.feed(line)
        return console.close(path)


def each(stream: IO[bytes], damage: Damage, take: Callable[[bytes], None]) -> None:
    """Give every whole record to ``take``; one that turns out to be torn inside is counted."""

    def tried(record: bytes) -> None:
        try:
            take(record)
        except Torn:
            damage.pieces += 1

    for record in records(stream, damage):
        tried(record)


def with_console(
    log: Log | None,
    told: Log | None,
    *,
    ending: str | None,
    config: Mapping[str, object],
    versions: Mapping[str, str],
    facts: Mapping[str, str],
) -> Log | None:
    """The log with what its console text tells beside it; the log in the console text where there is no other.

    The tracker's own record of the ``ending`` decides whether the run failed (None: it has none); the console text says
    how. None when neither holds a metric.
    """
    if log is None:
        if told is None or not told.rows:
            return None
        says = "the history in the run file holds no training metric; the console text in it is read"
        log = replace(told, warnings=(*told.warnings, Warn("console_inside", says)))
    heard = told.ending if told is not None else ""
    return replace(
        log,
        config=config or (told.config if told is not None else {}),
        versions={**(told.versions if told is not None else {}), **versions},
        planned_steps=log.planned_steps or (told.planned_steps if told is not None else None),
        ending=heard if ending is None else (heard or ending) if ending else "",
        facts={**(told.facts if told is not None else {}), **{key: one for key, one in facts.items() if one}},
    )
