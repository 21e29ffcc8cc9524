"""Logs inside an archive: compressed streams read as they unpack, ZIP files by their members, all of bounded size."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import IO, Any, Protocol

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.choice import chosen
from rlclinic.readers.config import FILE_LIMIT, SETTINGS, VALUE_LENGTH, setting
from rlclinic.readers.rows import Log
from rlclinic.readers.stores.offline import is_clearml, read_clearml
from rlclinic.readers.tokens import number
from rlclinic.readers.written import Points, log_of

PACKED = {b"\x1f\x8b\x08": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""How the compressed streams that are unpacked begin."""
ZIP = b"PK\x03\x04"
"""How a ZIP file with a member begins."""
UNPACKED = 512 << 20
"""Most bytes unpacked from one archive (ours: as much as is read from a pipe)."""
SWELLING = 250
"""Times its size to which an archive may swell (ours: the log of a frozen run, whose lines differ in their step alone,
swells about 100 times)."""
ALLOWED = 32 << 20
"""Bytes up to which any swelling passes (ours)."""
PIECE = 1 << 16
MEMORY = 128 << 20
"""Most memory a decompressor may ask for (ours: xz -9 asks for 65 MiB, zstd --ultra for 128)."""
MEMBERS = 5_000
"""Most members of a ZIP file that are listed (ours)."""
DIRECTORY = 16 << 20
"""Largest table of contents of a ZIP file in bytes (ours)."""
TRIED = 40
"""Most members that are opened to see whether they hold metrics (ours)."""
PRINTED = 200_000
"""Most pieces of console output kept of a Comet archive (ours)."""
MESSAGE = 1 << 20
"""Longest line of a Comet archive in bytes (ours: a metric has 200)."""

_FOREIGN = (
    ("data.pkl", "a PyTorch file (weights or a pickle), never opened", "trainer_state.json or the console output"),
    ("[Content_Types].xml", "an Office document", "the sheet saved as CSV"),
)
_SWELLS = "unpack it yourself, look whether it is a log, and give that"
_RUNNING = "an archive within an archive, or a folder in one: unpack it, then give the folder"
_BESIDE = re.compile(
    r"(?:^|/)(?:__MACOSX/|\.)|\.(?:png|jpe?g|pdf|gif|svg|py|pyc|safetensors|bin|pt|pth|pkl|npz?|html)$"
)


class Reads(Protocol):
    """Reads a stream, called by a name, whatever form it has."""

    def __call__(self, stream: IO[bytes], label: str) -> Log: ...


# ---------------------------------------------------------------- compressed streams


def packed(head: bytes) -> str | None:
    """Which compression a file that begins with ``head`` has; None for none."""
    return next((name for magic, name in PACKED.items() if head.startswith(magic)), None)


def read_packed(stream: IO[bytes], label: str, kind: str, read: Reads) -> Log:
    """The log in a compressed stream, unpacked while it is read; one that is cut off gives what is there.

    Raises CannotRead for damage, for a content that swells beyond all logs, and where the package for zstd is missing.
    """
    raw = unpacked(stream, label, kind)
    raw.seek(0, 2)  # damage and swelling show before a line is taken for true
    raw.seek(0)
    log = read(io.BufferedReader(raw, PIECE), label)
    if not raw.torn:
        return log
    says = f"the {kind} archive is cut off; what could be unpacked is read"
    return replace(log, warnings=(*log.warnings, Warn("torn_record", says)))


def unpacked(stream: IO[bytes], label: str, kind: str, most: int | None = None) -> Unpacked:
    """The content, of at most ``most`` bytes, of a stream that is compressed by ``kind``; what reads it raises CannotRead
    for damage."""
    return Unpacked(stream, kind, label, most)


class Unpacked(io.RawIOBase):
    """The content of a compressed stream; going back begins anew. ``torn`` is True at an end that came too early."""

    def __init__(self, stream: IO[bytes], kind: str, label: str, most: int | None = None) -> None:
        self.torn = False
        self._most = UNPACKED if most is None else most
        self._stream = stream
        self._kind = kind
        self._label = label
        self._begin()

    def _begin(self) -> None:
        self._stream.seek(0)
        self._pieces = _PIECES[self._kind](self)
        self._rest = b""
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 2:
            while self.read(PIECE):
                pass
            offset += self._at
        target = offset + (self._at if whence == 1 else 0)
        if target < self._at:
            self._begin()
        while self._at < target and self.read(min(PIECE, target - self._at)):
            pass
        return self._at

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                piece = next(self._pieces, None)
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
                raise self.damaged(error) from error
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        self._at += size
        if self._at > ALLOWED and (self._at > self._most or self._at > SWELLING * max(self._stream.tell(), 1)):
            found = f"{self._label}: {self._kind} data that swell to more than {self._at >> 20} MiB"
            raise CannotRead("a log of bounded size", found, hint=_SWELLS)
        return size

    def damaged(self, error: Exception) -> CannotRead:
        """The error for content that cannot be unpacked."""
        found = f"{self._label}: damaged {self._kind} data ({str(error)[:100]})"
        return CannotRead("a log in an archive that can be unpacked", found, hint="copy the file again")

    def chunks(self) -> Iterator[bytes]:
        """The packed bytes."""
        while chunk := self._stream.read(PIECE):
            yield chunk


def _gzip(source: Unpacked) -> Iterator[bytes]:
    decoder, fed = zlib.decompressobj(31), False
    for chunk in source.chunks():
        while chunk:
            fed = True
            if out := decoder.decompress(chunk, PIECE):
                yield out
            if not decoder.eof:
                chunk = decoder.unconsumed_tail
                continue
            chunk, fed = decoder.unused_data.lstrip(b"\0"), False
            if chunk[:2] not in (b"", b"\x1f", b"\x1f\x8b"):
                return  # what follows the last member is no part of it
            decoder = zlib.decompressobj(31)
    while out := decoder.decompress(b"", PIECE):
        yield out
    source.torn = fed and not decoder.eof


def _in_blocks(source: Unpacked, make: Callable[[], Any]) -> Iterator[bytes]:
    decoder, fed = make(), False
    for chunk in source.chunks():
        while chunk:
            fed = True
            out = decoder.decompress(chunk, PIECE)
            while out or not (decoder.eof or decoder.needs_input):
                yield out
                out = b"" if decoder.eof else decoder.decompress(b"", PIECE)
            chunk = b""
            if decoder.eof:
                chunk, fed = decoder.unused_data.lstrip(b"\0"), False
                if chunk[:1] not in (b"", b"B", b"\xfd", b"\x28"):
                    return
                decoder = make()
    source.torn = fed


def _bzip2(source: Unpacked) -> Iterator[bytes]:
    return _in_blocks(source, bz2.BZ2Decompressor)


def _xz(source: Unpacked) -> Iterator[bytes]:
    return _in_blocks(source, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY))


def _zstd(source: Unpacked) -> Iterator[bytes]:
    try:
        own = import_module("compression.zstd")
    except ImportError:
        pass
    else:
        largest = {own.DecompressionParameter.window_log_max: 27}
        try:
            yield from _in_blocks(source, lambda: own.ZstdDecompressor(options=largest))
        except own.ZstdError as error:
            raise source.damaged(error) from error
        return
    try:
        package = import_module("zstandard")
    except ImportError as error:
        raise CannotRead(
            "a log", f"{source._label}: zstd data", hint="pip install zstandard, or unpack it with: zstd -d"
        ) from error
    try:
        reader = package.ZstdDecompressor(max_window_size=MEMORY).stream_reader(
            source._stream, read_size=PIECE, read_across_frames=True, closefd=False
        )
        while out := reader.read(PIECE):
            yield out
    except package.ZstdError as error:
        raise source.damaged(error) from error


_PIECES: Mapping[str, Callable[[Unpacked], Iterator[bytes]]] = {
    "gzip": _gzip,
    "bzip2": _bzip2,
    "xz": _xz,
    "zstd": _zstd,
}


# ---------------------------------------------------------------- ZIP


def read_zip(stream: IO[bytes], label: str, run: str | None, read: Reads) -> Log:
    """The log in a ZIP file: a Comet offline experiment, the only member with metrics, or the one that ``run`` names.

    Members are read where they lie and never written to disk. Raises CannotRead for a damaged, encrypted or swelling
    archive, for names that lead out of it, and where several members hold metrics and none is named.
    """
    try:
        members = listed(stream, label)
        with zipfile.ZipFile(stream) as archive:
            names = {one.filename.rpartition("/")[2] for one in members}
            for name, what, instead in _FOREIGN:
                if name in names:
                    raise CannotRead("a log", f"{label}: {what}, recognised but not read", hint=f"give {instead}")
            comet = next((one for one in members if one.filename.rpartition("/")[2] == "messages.json"), None)
            if comet is not None and "experiment.json" in names:
                return _comet(archive, comet, members, label, read)
            if {"metrics.jsonl", "task.json"} <= names and (task := _clearml(archive, members, label)) is not None:
                return task
            return _only_log(archive, members, label, run, read)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, struct.error) as error:
        found = f"{label}: a damaged ZIP archive ({str(error)[:100]})"
        raise CannotRead("a ZIP archive that can be unpacked", found, hint="copy the file again") from error
    except (RuntimeError, ValueError, OSError, UnicodeError) as error:
        raise CannotRead("a ZIP archive that can be unpacked", f"{label}: {str(error)[:200]}") from error


def _bounded(stream: IO[bytes], label: str) -> None:
    """Refuse a table of contents that would fill the memory before it is read."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - (1 << 16) - 22))
    tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 20:
        raise zipfile.BadZipFile("it ends before its table of contents")
    count, table = struct.unpack_from("<HI", tail, at + 10)
    if count > MEMBERS or table > DIRECTORY:
        found = f"{label}: a ZIP archive of {'over ' if count == 0xFFFF else ''}{count} members"
        raise CannotRead("a ZIP archive with a log in it", found, hint="unpack it and give the log")
    stream.seek(0)


def listed(stream: IO[bytes], label: str) -> list[zipfile.ZipInfo]:
    """The files in a ZIP archive. Raises CannotRead for too many and for names that lead out of it, BadZipFile."""
    _bounded(stream, label)
    with zipfile.ZipFile(stream) as archive:
        members = [one for one in archive.infolist() if not one.is_dir()]
    for one in members:
        parts = one.filename.replace("\\", "/").split("/")
        if one.filename.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:", one.filename):
            raise CannotRead(
                "a ZIP archive of harmless names",
                f"{label}: the member {one.filename[:100]} leads out of the archive",
                hint="do not unpack it; ask where it comes from",
            )
    return members


def opened_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, label: str) -> IO[bytes]:
    """The content of one member. Raises CannotRead for an encrypted or swelling one."""
    if member.flag_bits & 1:
        hint = "unpack it with its password and give the log"
        raise CannotRead("a log", f"{label}: {member.filename[:100]} is encrypted", hint=hint)
    size = member.file_size
    if size > UNPACKED or (size > ALLOWED and size > SWELLING * max(member.compress_size, 1)):
        found = f"{label}: {member.filename[:100]} swells to {size >> 20} MiB"
        raise CannotRead("a log of bounded size", found, hint=_SWELLS)
    return archive.open(member)


def _only_log(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], label: str, run: str | None, read: Reads
) -> Log:
    tried = [one for one in members if not re.search(_BESIDE, one.filename) and one.file_size]
    named = [one for one in tried if run is not None and one.filename == run]
    found: dict[str, Log] = {}
    failed: list[CannotRead] = []
    left = UNPACKED
    for one in (named or tried)[:TRIED]:
        left -= one.file_size
        if left < 0:
            break
        try:
            with opened_member(archive, one, label) as content:
                log = read(content, f"{label}/{one.filename}")
            if log.kind in ("metrics", "supervised") and log.series:
                found[one.filename] = log
        except CannotRead as problem:
            failed.append(problem)
    if not found:
        if len(failed) == 1:
            raise failed[0]
        shown = ", ".join(one.filename[:60] for one in members[:5]) or "nothing"
        raise CannotRead(
            "a log in the ZIP archive", f"{label}: {len(members)} members, none with metrics ({shown})", hint=_RUNNING
        )
    names = list(found)
    hint = f"--run {names[0]}, or unpack it and give the folder: unzip {label} -d run"
    return found[chosen(label, names, None if len(found) == 1 else run, hint=hint)]


def _clearml(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], label: str) -> Log | None:
    """The log of a ClearML offline session; None where the archive is none after all."""
    held = {one.filename.rpartition("/")[2]: one for one in members}
    with opened_member(archive, held["metrics.jsonl"], label) as content:
        if not is_clearml(content.read(PIECE)):
            return None
        with opened_member(archive, held["task.json"], label) as about:
            return read_clearml(content, label, about.read(FILE_LIMIT))


# ---------------------------------------------------------------- Comet


@dataclass
class _Told:
    """What the messages of a Comet experiment say, beside its metrics."""

    settings: dict[str, object]
    facts: dict[str, str]
    ending: str = ""


_CONTEXTS = {"train": "train/", "validate": "eval/", "validation": "eval/", "eval": "eval/", "test": "test/"}


def _comet(
    archive: zipfile.ZipFile, messages: zipfile.ZipInfo, members: list[zipfile.ZipInfo], label: str, read: Reads
) -> Log:
    """A Comet offline experiment: one JSON message a line, one metric each; NaN and infinities are kept as words.

    Where it holds no metric of training, the console output in it is read instead.
    """
    told = _Told({}, {})
    stepped, unstepped, said = Points(label), Points(label), list[Warn]()
    console: list[str] = []
    broken = 0
    with opened_member(archive, messages, label) as content:
        while line := content.readline(MESSAGE):
            if line[-1:] != b"\n" and len(line) == MESSAGE:
                while (rest := content.readline(MESSAGE)) and rest[-1:] != b"\n":
                    pass
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                broken += bool(line.strip())
                continue
            _heard(message, stepped, unstepped, told, console)
    points = stepped if len(stepped) else unstepped
    if len(stepped) and len(unstepped):
        says = f"{len(unstepped)} values logged without a step beside others with one are left out"
        said.append(Warn("values_without_step", says))
    if broken:
        said.append(Warn("broken_lines", f"{broken} lines hold something other than a message; they were skipped"))
    _experiment(archive, members, told, label)
    found, hint = "a Comet experiment without a training metric", "give the console output of the trainer"
    try:
        log = log_of(points, label, "comet", "kept", said, found=found, hint=hint)
    except CannotRead:
        if not console:
            raise
        return read(io.BytesIO("".join(console).encode("utf-8", "replace")), label)
    return replace(log, config=told.settings, facts=told.facts, ending=told.ending)


def _heard(message: object, stepped: Points, unstepped: Points, told: _Told, console: list[str]) -> None:
    """One message: a metric, a parameter, or another fact; the names of its parts are looked for at any depth."""
    metric, around = _holding(message, "metricName")
    if metric is not None:
        name, value, step = metric.get("metricName"), metric.get("metricValue"), metric.get("step")
        at = (around or {}).get("local_timestamp", 0)
        context = (around or {}).get("context")
        found = number(value) if isinstance(value, str) else value
        if isinstance(name, str) and isinstance(found, (int, float)) and not name.startswith(("sys.", "sys/")):
            wall = float(at) / 1000 if isinstance(at, (int, float)) else 0.0
            at_step = int(step) if isinstance(step, (int, float)) and math.isfinite(step) else None
            points = unstepped if at_step is None else stepped
            points.add(points.key(_in_context(name, context)), at_step or 0, wall, _float(found))
        return
    param, _ = _holding(message, "paramName")
    if param is not None:
        name, value = param.get("paramName"), param.get("paramValue")
        if isinstance(name, str) and name not in ("curr_step", "curr_epoch") and len(told.settings) < SETTINGS:
            key = name.removeprefix("args/").replace("|", ".").replace("/", ".")
            told.settings[key] = setting(value[:VALUE_LENGTH]) if isinstance(value, str) else value
        return
    printed, _ = _holding(message, "output")
    if printed is not None and isinstance(printed.get("output"), str) and len(console) < PRINTED:
        console.append(printed["output"])
    other, _ = _holding(message, "key")
    if other is not None and other.get("key") == "Name" and isinstance(other.get("value"), str):
        told.facts["run"] = other["value"][:200]


def _holding(message: object, key: str, depth: int = 0) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The mapping that holds ``key`` and the one around it, at most five levels down."""
    if not isinstance(message, dict) or depth > 5:
        return None, None
    if key in message:
        return message, None
    for inner in message.values():
        found, around = _holding(inner, key, depth + 1)
        if found is not None:
            return found, around if around is not None else message
    return None, None


def _in_context(name: str, context: object) -> str:
    """The name under which Comet shows a metric logged in a context such as ``experiment.validate()``."""
    if not isinstance(context, str) or not context or len(context) > 40:
        return name
    prefix = _CONTEXTS.get(context, f"{context}_")
    return name if name.startswith((prefix, *_CONTEXTS.values())) else prefix + name


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _experiment(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], told: _Told, label: str) -> None:
    """What ``experiment.json`` adds: an error that the training reported."""
    about = next((one for one in members if one.filename.endswith("experiment.json")), None)
    if about is None or about.file_size > MESSAGE:
        return
    with opened_member(archive, about, label) as content:
        try:
            held = json.loads(content.read(MESSAGE))
        except (ValueError, RecursionError):
            return
    if isinstance(held, dict) and held.get("customer_error_reported"):
        told.ending = str(held.get("customer_error_message") or "Comet says that the run failed")[:200]
