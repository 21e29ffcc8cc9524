"""Where the record of a run lies, and how an entry is added to it so that none is ever lost."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rlclinic.errors import BadRequest
from rlclinic.history import BYTES, ENTRIES, FILE, SCHEMA, Past, entries, past
from rlclinic.model import Run
from rlclinic.readers.past import home, on_disk, read_bytes

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PATIENCE = 20.0
"""Seconds that another process may take to add its entry (ours)."""
TRIES = 50
"""Times that a record which changes under our hands is read again, where directories cannot be locked (ours)."""
_HINT = "-o FILE keeps it elsewhere"


def place(run: Run, sources: Sequence[str]) -> Path:
    """Where the record of ``run`` belongs: in the directory of its main log, which is not one of a checkpoint.

    Raises BadRequest for a run that has no place on this disk.
    """
    logs = [one.path for role in ("metrics", "rollouts") for one in run.sources if one.role == role]
    for name in (*logs, *sources):
        if (path := on_disk(name)) is not None and (path.is_file() or path.is_dir()):
            return home(path) / FILE
    found = (
        "standard input" if "-" in sources else f"{sources[0]}, which is no file of this disk" if sources else "none"
    )
    raise BadRequest("a place for the record", found, hint="-o FILE")


def last_open(path: Path, run: str) -> Past | None:
    """The last entry about ``run`` that says what was changed, where no later one says what came of it."""
    try:
        told = [one for entry in entries(read_bytes(path)) if (one := past(entry)) is not None and one.run == run]
    except (OSError, ValueError):
        return None
    for one in reversed(told):
        if one.outcome and one.took:
            return None
        if one.took:
            return one
    return None


def keep(entry: Mapping[str, Any], path: Path, *, now: float | None = None) -> int:
    """Add ``entry`` with the present date to the record at ``path``, and say how many entries it holds then.

    The file is replaced as a whole, so that a write that is cut short leaves the old one; its permissions stay. Earlier
    entries stay as they are, also those that a later version wrote. ``now`` is in seconds since 1970. Raises BadRequest
    for a file that is no record of ours, for a link, and where it cannot be written.
    """
    at = datetime.fromtimestamp(time.time() if now is None else now, timezone.utc)
    dated = {**entry, "date": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
    try:
        with _alone(path.parent):
            for _ in range(TRIES):
                known, before = _present(path)
                if len(known) >= ENTRIES:
                    raise BadRequest("a record with room", f"{path} holds {ENTRIES} entries", hint=_HINT)
                text = _written([*known, dated])
                if len(text) >= BYTES:
                    raise BadRequest(f"a record of at most {BYTES >> 20} MiB", f"{path} would be larger", hint=_HINT)
                if _replaced(path, f"{text}\n".encode("ascii"), before):
                    return len(known) + 1
    except OSError as problem:
        why = _WHY.get(problem.errno or 0) or problem.strerror or str(problem)
        raise BadRequest("a record that can be written", f"{path}: {why}", hint=_HINT) from problem
    raise BadRequest("a record of one's own", f"{path} is changed all the time by another program", hint=_HINT)


_WHY = {
    errno.ENOSPC: "the disk is full; the record stays as it was",
    errno.EDQUOT: "the disk quota is used up; the record stays as it was",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission to write in this directory",
    errno.EPERM: "no permission to write in this directory",
}


def _written(held: Sequence[object]) -> str:
    """The record as text: its form first, so that the first bytes tell what it is; the keys of entries in order."""
    rows = json.dumps(held, indent=2, sort_keys=True, ensure_ascii=True).replace("\x7f", "\\u007f")
    return f'{{\n"schema": {json.dumps(SCHEMA)},\n"entries": {rows}\n}}'


def _present(path: Path) -> tuple[list[object], os.stat_result | None]:
    """The entries that are there, and the state of the file they were read from. Raises BadRequest for any other file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise BadRequest("a directory for the record", f"{path.parent} does not exist", hint=_HINT) from None
        return [], None
    if stat.S_ISLNK(found.st_mode):
        raise BadRequest("a file of its own for the record", f"{path} is a link", hint="-o the file that it leads to")
    if not stat.S_ISREG(found.st_mode):
        raise BadRequest("a file for the record", f"{path} is no plain file", hint=_HINT)
    if not os.access(path, os.W_OK):
        raise BadRequest("a record that can be written", f"{path} is read-only", hint=_HINT)
    try:
        return entries(read_bytes(path)), found
    except ValueError as problem:
        raise BadRequest("a record of rlclinic, or a new file", f"{path}: {problem}", hint=_HINT) from None


def _replaced(path: Path, data: bytes, before: os.stat_result | None) -> bool:
    """Put ``data`` in the place of ``path``; False where somebody else has changed it since ``before``."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    mode = 0o666 if before is None else stat.S_IMODE(before.st_mode)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(draft, flags, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if before is not None:
            with suppress(OSError, AttributeError):  # only its owner, or root, may
                os.chown(draft, before.st_uid, before.st_gid)
            os.chmod(draft, mode)
        if not _unchanged(path, before):
            return False
        if before is None and hasattr(os, "link"):
            try:
                os.link(draft, path)  # never over a file that came up meanwhile
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links
                os.replace(draft, path)
        else:
            os.replace(draft, path)
    finally:
        with suppress(OSError):
            os.unlink(draft)
    return True


def _unchanged(path: Path, before: os.stat_result | None) -> bool:
    try:
        now = os.lstat(path)
    except FileNotFoundError:
        return before is None
    return before is not None and (now.st_ino, now.st_size, now.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes that add an entry out of ``folder``; the system lets go when this one ends, however it ends.

    Where directories cannot be locked (Windows, some network file systems) ``_unchanged`` alone must do.
    """
    if fcntl is None or not folder.is_dir():
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as problem:
                if problem.errno not in (errno.EAGAIN, errno.EACCES):
                    break
                if time.monotonic() > until:
                    raise BadRequest(
                        "the record for itself", f"another process holds {folder}", hint="try again"
                    ) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)
