"""The records in a file of saved answers, one after another, whatever the file's form; bounded in time and memory."""

from __future__ import annotations

import codecs
import io
import json
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from rlclinic.errors import CannotRead
from rlclinic.readers.answers.pickled import pickled_records
from rlclinic.readers.answers.tables import parquet_records, separated_records, separator
from rlclinic.readers.stores.archive import ZIP, packed, unpacked
from rlclinic.readers.tabular.parquet import PARQUET
from rlclinic.readers.tabular.records import with_json_words

Record: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["json", "parquet", "separated", "board", "pickled"]
"""What holds the records; ``board`` is a table that a tracker keeps as JSON (columns beside rows)."""

LINE = 64 << 20
"""Longest JSON line in bytes (ours: a step of 2,000 answers of 8,000 tokens that ROLL or ms-swift write as one line)."""
DOCUMENT = 256 << 20
"""Longest JSON value in characters that spans lines (ours)."""
MANY = 4 << 20
"""Bytes of a value from which its parts are counted before it is decoded (ours)."""
OBJECTS, NUMBERS = 1_000_000, 12_000_000
"""Most objects or lists, and most commas, of such a value (ours: 64 to 230 bytes each, and 32)."""
UNPACKED = 32 << 30
"""Most bytes that a compressed file may unpack to; they are read as they unpack and not kept (ours)."""
LARGE = 2 << 20
"""Bytes of a file from which a faster decoder is worth its import (ours)."""
RESCUED = 1 << 20
"""Longest line in bytes that is looked through when it is no JSON (ours)."""
STRAY = 1_000
"""Values without a record after which a document is something else (ours)."""
SNIFF = 1 << 16
BUFFER = 1 << 17
"""Bytes read at once (measured: a line of 4 kB costs 6 microseconds with the usual buffer and one with this)."""
CHUNK = 1 << 20
_BETWEEN = re.compile(r"[\s,\[\]\ufeff]*")
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))
_WRAPPERS = ("samples", "rollouts", "records", "rows", "data", "examples", "completions", "answers")
_WORDS = ("prompt", "input", "messages", "question", "problem", "query", "completion", "response", "output")


@dataclass
class Saved:
    """What is learned of a file while its records are read: what holds them, and what there is to say about it."""

    kind: Kind = "json"
    said: list[str] = field(default_factory=list)


def records(path: Path, saved: Saved | None = None, only: Collection[str] | None = None) -> Iterator[Record]:
    """Every record of a file in its order: JSON lines and documents, also compressed, Parquet, CSV, slime's .pt.

    ``saved`` learns what the file is. ``only`` names the columns that are wanted of a table, where that is known. Raises
    CannotRead for a file that cannot be read, also after some records when it is damaged further on.
    """
    known = Saved() if saved is None else saved
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _refused(path, "no plain file")
        with path.open("rb", buffering=BUFFER) as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            yield from _read(stream, path, known, only, size)
    except OSError as problem:
        raise _refused(path, problem.strerror or str(problem)) from problem


def _refused(path: Path, why: str, hint: str = "") -> CannotRead:
    return CannotRead("saved answers", f"{path}: {why}", hint=hint)


def _read(
    stream: IO[bytes], path: Path, saved: Saved, only: Collection[str] | None, size: int, inside: bool = False
) -> Iterator[Record]:
    head = stream.read(SNIFF)
    if not head.strip(b"\0 \t\r\n\xef\xbb\xbf"):
        raise _refused(path, "an empty file")
    kind = packed(head)
    if inside and (kind is not None or head.startswith((PARQUET, ZIP))):
        raise _refused(path, "an archive within an archive", "unpack it and give the file in it")
    if kind is not None:
        raw = unpacked(stream, str(path), kind, UNPACKED)
        yield from _read(io.BufferedReader(raw, SNIFF), path, saved, only, 4 * size, inside=True)
        if raw.torn:
            saved.said.append(f"the {kind} archive is cut off; what could be unpacked is read")
        return
    if head.startswith(PARQUET):
        saved.kind = "parquet"
        yield from parquet_records(stream, str(path), only)
    elif head.startswith(ZIP):
        saved.kind = "pickled"
        for record in pickled_records(stream, str(path)):
            yield from _unwrapped(record, saved)
    elif head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5":
        raise _refused(path, "a Python pickle, never opened", "save the answers as JSON lines or Parquet")
    else:
        yield from _text(stream, head, path, saved, size)


def _text(stream: IO[bytes], head: bytes, path: Path, saved: Saved, size: int) -> Iterator[Record]:
    wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if not wide and len(head) - len(head.translate(None, _CONTROLS)) > max(3, 0.02 * len(head)):
        raise _refused(path, "binary data of no known form")
    stream.seek(0)
    encoding = "utf-16" if wide else "utf-8-sig"
    sample = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    first, _, rest = sample.partition("\n")
    mark = separator(first)
    if sample[0] in "{[" or rest.lstrip().startswith('{"'):
        text = partial(io.TextIOWrapper, stream, encoding=encoding, errors="replace")
        yield from _json(stream, text, wide, path, saved, size)
    elif mark:
        saved.kind = "separated"
        lines = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="")
        try:
            yield from separated_records(lines, mark, str(path), saved.said)
        finally:
            lines.detach()
    else:
        raise _refused(path, "neither JSON nor a table")


# ---------------------------------------------------------------- JSON


def _json(
    stream: IO[bytes], text: Callable[[], io.TextIOWrapper], wide: bool, path: Path, saved: Saved, size: int
) -> Iterator[Record]:
    """Lines when the first one is a value of its own, else a document; else lines some of which are broken."""
    if wide:
        lines = text()
        source: Iterator[bytes] = (line.encode("utf-8", "replace") for line in iter(partial(lines.readline, LINE), ""))
    else:
        source = iter(partial(stream.readline, LINE), b"")
    first = next((line for line in source if line.strip(b" \t\r\n\xef\xbb\xbf")), b"")
    try:
        value = _one(first)
    except (ValueError, RecursionError):
        value = None
    if value is None and not wide:
        stream.seek(0)
        document = text()
        try:
            found = False
            for record in _values(document, path, saved):
                for one in _unwrapped(record, saved):
                    found = True
                    yield one
        finally:
            document.detach()
        if found:
            return
        saved.said.clear()
        stream.seek(0)
        source = iter(partial(stream.readline, LINE), b"")
        first = b""
    started = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    wrapped = value is not None and isinstance(value, dict) and _wraps(value)
    for record in started:
        if isinstance(record, dict):
            yield from _unwrapped(record, saved) if wrapped else (record,)
    rest = _lines(source, saved, _decoder(size))
    if not wrapped:
        yield from rest
        return
    for record in rest:
        yield from _unwrapped(record, saved)


def _decoder(size: int) -> Callable[[bytes], Any]:
    """What decodes a line: orjson where it is installed and the file is large, else the standard scanner."""
    if size >= LARGE:
        try:
            quick: Callable[[bytes], Any] = import_module("orjson").loads
        except ImportError:
            pass
        else:
            return quick
    decoder: Any = json.JSONDecoder()
    scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once

    def decode(line: bytes) -> Any:
        text = line.decode()
        try:
            value, end = scan(text, 0)
        except StopIteration as stop:
            raise ValueError(stop.value) from None
        if end < len(text) - 1 and text[end:].strip():
            raise ValueError(end)
        return value

    return decode


def _lines(source: Iterable[bytes], saved: Saved, decode: Callable[[bytes], Any]) -> Iterator[Record]:
    broken = long = 0
    cut = False
    continued = False
    for line in source:
        whole = line[-1:] == b"\n"
        if len(line) > MANY:
            # A line over the limit comes in pieces, none of which is looked at.
            if continued or (len(line) >= LINE and not whole):
                long += not continued
                continued = not whole
                continue
            if _heavy(line):
                broken += 1
                continue
        elif continued:
            continued = not whole
            continue
        try:
            record = decode(line)
        except (ValueError, RecursionError):
            if line.isspace():
                continue
            found = list(_rescued(line))
            broken += not found
            cut = not found and not whole
            yield from found
            continue
        if type(record) is dict:
            yield record
        elif type(record) is list:
            yield from (one for one in record if isinstance(one, dict))
    if cut:
        saved.said.append("the last line is cut off and left")
    if broken - cut > 0:
        saved.said.append(f"{broken - cut} lines are no JSON and are left")
    if long:
        saved.said.append(f"{long} lines over {LINE >> 20} MiB are left")


def _heavy(text: bytes) -> bool:
    """True for a text whose decoded parts would fill the memory."""
    return max(text.count(b"{"), text.count(b"[")) > OBJECTS or text.count(b",") > NUMBERS


def _one(line: bytes) -> Any:
    """The value of a line that is one. Raises ValueError, RecursionError."""
    if len(line) >= LINE or (len(line) > MANY and _heavy(line)):
        raise ValueError
    return json.loads(line.decode("utf-8-sig"))


def _rescued(line: bytes) -> Iterator[Record]:
    """The records of a line that is not one value: bare words for numbers, broken letters, several values."""
    text = line.decode("utf-8-sig", "replace").strip()
    if text[:1] not in ("{", "["):
        return
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        if len(line) > RESCUED:
            return
        text = with_json_words(text)
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return
    while True:
        if isinstance(value, dict):
            yield value
        end = _after(text, end)
        if end >= len(text) or text[end] != "{":
            return
        try:
            value, end = json.JSONDecoder().raw_decode(text, end)
        except (ValueError, RecursionError):
            return


def _after(text: str, place: int) -> int:
    gap = _BETWEEN.match(text, place)
    return gap.end() if gap else place


def _values(text: io.TextIOWrapper, path: Path, saved: Saved) -> Iterator[Record]:
    """The objects of a document: of a list, or one after another, over several lines each; read piece by piece."""
    decode = json.JSONDecoder().raw_decode
    buffer, place, ended, stray, count = text.read(CHUNK), 0, False, 0, 0
    while stray < STRAY:
        place = _after(buffer, place)
        if place < len(buffer):
            try:
                value, end = decode(buffer, place)
            except RecursionError:
                break
            except json.JSONDecodeError as error:
                # An error well before the end of what is read is one of the document, unless a text goes on and on.
                short = error.pos > len(buffer) - 20 or error.msg.startswith("Unterminated")
                if ended or not short:
                    break
            else:
                if end < len(buffer) or ended:
                    place = end
                    count += isinstance(value, dict)
                    stray += not isinstance(value, dict)
                    if isinstance(value, dict):
                        yield value
                    continue
        elif ended:
            return
        rest = buffer[place:]
        if len(rest) > DOCUMENT:
            raise _refused(path, f"a JSON value of more than {DOCUMENT >> 20} MiB", "save one answer a line")
        more = text.read(max(CHUNK, len(rest)))
        ended = not more
        buffer, place = rest + more, 0
        if len(buffer) > MANY and (max(buffer.count("{"), buffer.count("[")) > OBJECTS or buffer.count(",") > NUMBERS):
            raise _refused(path, "a JSON value of too many parts", "save one answer a line")
    if count:
        saved.said.append(f"the document is cut off or damaged after {count} records; those are read")


def _wraps(record: Mapping[str, Any]) -> bool:
    """True for a record that holds others: a table of a tracker, or a step with its samples."""
    if (isinstance(record.get("columns"), list) and isinstance(record.get("data"), list)) or _by_index(record):
        return True
    return not any(name in record for name in _WORDS) and any(_listed(record.get(name)) for name in _WRAPPERS)


def _listed(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value[:3])


def _by_index(record: Mapping[str, Any]) -> bool:
    """True for columns of cells by row number, as pandas writes a table by default."""
    cells = [value for value in list(record.values())[:50] if isinstance(value, dict)]
    return len(cells) > 1 and len(cells) == min(len(record), 50) and all("0" in one for one in cells)


def _unwrapped(record: Record, saved: Saved) -> Iterator[Record]:
    """The records within one, with what stands beside them; else the record itself."""
    if not _wraps(record):
        yield record
        return
    columns, data = record.get("columns"), record.get("data")
    if isinstance(columns, list) and isinstance(data, list):
        saved.kind = "board"
        names = [str(name) for name in columns]
        for row in data:
            if isinstance(row, list):
                yield dict(zip(names, row, strict=False))
        return
    around = {key: value for key, value in record.items() if isinstance(value, (str, int, float))}
    for name in _WRAPPERS:
        inner = record.get(name)
        if isinstance(inner, list) and _listed(inner):
            for one in inner:
                if isinstance(one, dict):
                    yield {**around, **one}
            return
    cells = {key: value for key, value in record.items() if isinstance(value, dict)}
    for at in chain.from_iterable(list(cells.values())[:1]):
        yield {key: value.get(at) for key, value in cells.items()}
