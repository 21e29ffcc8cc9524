"""Find and read the records that lie beside the logs of a run, or that the user names; a broken one is a warning."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlclinic.errors import CannotRead
from rlclinic.history import BYTES, FILE, SCHEMA, Past, read_entries
from rlclinic.model import Warn
from rlclinic.readers.roles import checkpoint

_MARK = f'"schema": "{SCHEMA.partition("/")[0]}/'.encode()
UNREAD = "record_unread"
"""The warning for a record, or entries of one, that cannot be read."""


def home(path: Path) -> Path:
    """The directory in which the record of a run lies whose log is ``path``: its own, or that around a checkpoint, which
    trainers delete."""
    place = path if path.is_dir() else path.parent
    return place.parent if checkpoint(place.name) is not None else place


def on_disk(path: str | Path) -> Path | None:
    """The path, where it is one of this disk; None for an address, standard input and what is not there."""
    try:
        return Path(path) if str(path) != "-" and "://" not in str(path) and Path(path).exists() else None
    except (OSError, ValueError):  # a name that is too long, or holds a zero byte
        return None


def is_record(source: str | Path) -> bool:
    """True for a file of this disk that is a record of ours, whatever it is called, by its first bytes."""
    path = on_disk(source)
    if path is None or path.suffix.lower() != ".json" or not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            return path.name == FILE or _MARK in stream.read(256)
    except OSError:
        return False


def histories(
    logs: Iterable[str], named: Iterable[str | Path], given: Sequence[str | Path] = ()
) -> tuple[tuple[Past, ...], list[Warn]]:
    """What the records beside ``logs``, beside the files among ``named``, and the ``given`` ones (files, or directories
    with one) say, oldest first. A directory that is named may hold several runs: their logs tell which is meant.

    Raises CannotRead for a given one that does not exist.
    """
    files: dict[Path, Path] = {}
    there = [path for log in logs if (path := on_disk(log)) is not None]
    there += [path for source in named if (path := on_disk(source)) is not None and path.is_file()]
    for log in there:
        if (one := home(log) / FILE).is_file():
            files.setdefault(one.resolve(), one)
    for record in map(Path, given):
        one = record / FILE if os.path.isdir(record) else record
        if not os.path.exists(one):
            raise CannotRead("a record of rlclinic", f"{one} does not exist", hint="rlclinic record RUN writes one")
        files.setdefault(one.resolve(), one)
    found: dict[Past, None] = {}
    warnings: list[Warn] = []
    for one in files.values():
        try:
            told, broken = read_entries(read_bytes(one))
        except (OSError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else str(problem)
            warnings.append(Warn(UNREAD, f"{one.name}: {why}; what it says of earlier looks is not known"))
            continue
        found.update(dict.fromkeys(told))
        if broken:
            warnings.append(Warn(UNREAD, f"{one.name}: {broken} entries cannot be read"))
    return tuple(sorted(found, key=lambda past: past.date)), warnings


def read_bytes(path: Path) -> bytes:
    """The bytes of a record file, one more than ``BYTES`` at most. Raises OSError, and ValueError for no plain file."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("no plain file")
    with path.open("rb") as stream:
        return stream.read(BYTES + 1)
