"""A whole run in one archive (ZIP, tar), laid out in a temporary directory for as long as it is read."""

from __future__ import annotations

import io
import lzma
import os
import re
import shutil
import struct
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TypeVar, cast

from rlclinic.errors import CannotRead
from rlclinic.model import Source, Warn
from rlclinic.readers.choice import command
from rlclinic.readers.kinship import Held
from rlclinic.readers.roles import checkpoint as role_of_folder
from rlclinic.readers.stores.archive import MEMBERS, PIECE, UNPACKED, ZIP, listed, opened_member, packed, unpacked

T = TypeVar("T", str, Path)

DEPTH = 20
"""Deepest folder of an archive that is laid out (ours)."""
NAME = 200
"""Longest name of a file or folder in characters (ours; most file systems take 255 bytes)."""
HEADERS = 4 << 20
"""Most bytes of an archive before a member and beyond its content (ours: a name has 200 bytes, its notes some KiB)."""
_WEIGHTS = re.compile(r"\.(?:safetensors|bin|pt|pth|ckpt|gguf|distcp|npz?|pkl)$")
_RESIDUE = re.compile(r"(?:^|/)(?:__MACOSX/|\._)")
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    struct.error,
    RuntimeError,
    ValueError,
)


def is_bundle(path: Path, run: str | None = None) -> bool:
    """True for a tar archive, and for a ZIP file of several files none of which ``run`` names.

    False for what one reader takes whole: a ZIP file with one log, an offline experiment of a tracker, damage.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(512)
            if head.startswith(ZIP):
                names = [one.filename for one in listed(stream, str(path))]
                inside = {name.rpartition("/")[2] for name in names}
                whole = {"messages.json", "experiment.json"} <= inside or {"metrics.jsonl", "task.json"} == inside
                foreign = inside & {"data.pkl", "[Content_Types].xml"}
                kept = [name for name in names if not re.search(_WEIGHTS, name) and not re.search(_RESIDUE, name)]
                return not whole and not foreign and len(kept) > 1 and run not in names
            kind = packed(head)
            if kind is not None:
                head = unpacked(stream, str(path), kind).read(512)
            return _is_tar(head)
    except (OSError, CannotRead, *_BROKEN):
        return False


@contextmanager
def laid_out(path: Path) -> Iterator[tuple[Path, Path]]:
    """The files of the archive ``path`` in a directory that is gone afterwards, and the directory of the run in it.

    Of weights only the names are there. A single folder around everything is not what a user calls a run by.

    What is raised inside names the archive and not the directory. Raises CannotRead for damage, for a content that
    swells beyond all runs, and for names that lead out of the archive.
    """
    with tempfile.TemporaryDirectory(prefix="rlclinic-") as place:
        top = Path(place) / (path.name.split(".")[0][:NAME] or "run")
        top.mkdir()
        try:
            _lay_out(path, top)
        except _BROKEN as error:
            found = f"{path}: a damaged archive ({str(error)[:100]})"
            raise CannotRead("an archive that can be unpacked", found, hint="copy the file again") from error
        except OSError as error:
            raise CannotRead("an archive that can be unpacked", f"{path}: {error.strerror or error}") from error
        try:
            yield top, _inner(top)
        except CannotRead as problem:
            hint = renamed(problem.hint, top, path)
            if problem.choices:
                hint = command(path, problem.choices[0])
            raise CannotRead(problem.wanted, renamed(problem.found, top, path), problem.choices, hint) from problem


def renamed(text: T, top: Path, path: Path) -> T:
    """The text or path with the archive in the place of the directory in which it was laid out."""
    return type(text)(str(text).replace(str(top), str(path)))


def renamed_log(held: Held, top: Path, path: Path) -> Held:
    """The same for a log, its warnings included."""
    said = tuple(Warn(one.code, renamed(one.says, top, path)) for one in held.log.warnings)
    log = replace(held.log, path=renamed(held.log.path, top, path), warnings=said)
    return replace(held, log=log, path=None if held.path is None else renamed(held.path, top, path))


def renamed_source(source: Source, top: Path, path: Path) -> Source:
    """The same for a file that is named beside the logs."""
    return replace(source, path=renamed(source.path, top, path))


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _lay_out(path: Path, top: Path) -> None:
    left, count = UNPACKED, 0
    for name, size, when, content in _entries(path):
        weights = re.search(_WEIGHTS, name)
        if re.search(_RESIDUE, name):
            continue
        left, count = left - (0 if weights else size), count + 1
        if left < 0 or count > MEMBERS:
            found = f"{path}: more than {UNPACKED >> 20} MiB" if left < 0 else f"{path}: more than {MEMBERS} files"
            raise CannotRead("an archive of one run", found, hint="unpack it and give the folder of one run")
        target = top.joinpath(*_parts(name, path))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                if not weights:
                    shutil.copyfileobj(content, file, PIECE)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue  # a second member of that name
        with suppress(OSError, OverflowError, ValueError):
            os.utime(target, (when, when))


def _inner(top: Path) -> Path:
    """The folder in ``top`` that holds everything, unless its name tells what lies in it; else ``top``."""
    inside = list(top.iterdir())
    alone = len(inside) == 1 and inside[0].is_dir() and role_of_folder(inside[0].name) is None
    return inside[0] if alone else top


def _parts(name: str, path: Path) -> list[str]:
    pieces = name.replace("\\", "/").split("/")
    parts = [piece for piece in pieces if piece not in ("", ".")]
    outside = ".." in parts or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name) or "\0" in name
    if outside or not parts or len(parts) > DEPTH or any(len(part) > NAME for part in parts):
        raise CannotRead(
            "an archive of harmless names",
            f"{path}: the member {name[:100]!r} leads out of the archive or is too long",
            hint="do not unpack it; ask where it comes from",
        )
    return parts


def _entries(path: Path) -> Iterator[tuple[str, int, float, IO[bytes]]]:
    """(name, size, time, content) of every plain file, one at a time."""
    with path.open("rb") as stream:
        head = stream.read(512)
        if head.startswith(ZIP):
            members = listed(stream, str(path))
            with zipfile.ZipFile(stream) as archive:
                for one in members:
                    with opened_member(archive, one, str(path)) as content:
                        yield one.filename, one.file_size, _time(one), content
            return
        stream.seek(0)
        kind = packed(head)
        source: IO[bytes] = stream if kind is None else io.BufferedReader(unpacked(stream, str(path), kind), PIECE)
        counted = _Counted(source, str(path))
        with tarfile.open(fileobj=cast("IO[bytes]", counted), mode="r|") as tar:
            for member in tar:
                counted.left = max(member.size, 0) + HEADERS
                inside = tar.extractfile(member) if member.isreg() else None
                if inside is not None:
                    with inside:
                        yield member.name, member.size, float(member.mtime), inside


class _Counted:
    """A tar archive of which ``left`` bytes may be read until a member comes: headers of any length are read as one."""

    def __init__(self, stream: IO[bytes], label: str) -> None:
        self.left = HEADERS
        self._stream = stream
        self._label = label

    def read(self, size: int) -> bytes:
        piece = self._stream.read(size)
        self.left -= len(piece)
        if self.left < 0:
            found = f"{self._label}: a tar archive with a header of more than {HEADERS >> 20} MiB"
            raise CannotRead("an archive of one run", found, hint="do not unpack it; ask where it comes from")
        return piece


def _time(member: zipfile.ZipInfo) -> float:
    with suppress(ValueError, OverflowError):
        return time.mktime((*member.date_time, 0, 0, -1))
    return 0.0
