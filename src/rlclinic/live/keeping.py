"""What a monitor keeps on disk, so that a run that is taken up again is not told twice; written beside the training."""

from __future__ import annotations

import atexit
import json
import os
import queue
import secrets
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from rlclinic.live.handed import Plain

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ROWS, COURSE, LOCK = "rows.jsonl", "course.json", "rows.lock"
"""The files of a state: rows as logged, what has been said of them, and the mark that somebody writes here."""
ROWS_SCHEMA, COURSE_SCHEMA = "rlclinic.rows/1", "rlclinic.course/1"
HEAD = f'{{"schema":"{ROWS_SCHEMA}"}}\n'.encode("ascii")
COURSE_BYTES = 8 << 20
"""Longest course that is read (ours: that of a run has some kilobytes)."""
ROWS_BYTES = 2 << 30
"""Longest file of rows that is kept on (ours: 100,000 rows of 60 metrics have 0.13 GB)."""
LINE = 4 << 20
"""Longest line that is read (ours: 5,000 metrics have 0.3 MB)."""
WAITING = 1_000
"""Most pieces of work that wait for a disk (ours: 6 MB of rows of 60 metrics)."""
AGAIN = 5.0
"""Seconds after which a write that failed is tried again (ours)."""
PATIENCE = 2.0
"""Seconds that a monitor before this one may take to let go of its directory (ours: a job that is killed and restarted)."""
ASIDE = 10_000
"""Most states set aside in one directory (ours)."""

Say = Callable[[str, str], None]
"""Tells the user something once of each kind: (kind, sentence)."""


def load(path: Path, schema: str = COURSE_SCHEMA) -> dict[str, Any] | None:
    """The state kept at ``path``; None where there is none.

    Raises ValueError for what ``save`` has not written or another version has, OSError where it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("no plain file")
        data = stream.read(COURSE_BYTES + 1)
    if len(data) > COURSE_BYTES:
        raise ValueError(f"more than {COURSE_BYTES >> 20} MiB")
    try:
        state = json.loads(data)
    except (ValueError, RecursionError) as broken:
        raise ValueError("no JSON") from broken
    if not isinstance(state, dict):
        raise ValueError("no state of rlclinic")
    if state.get("schema") != schema:
        raise ValueError(f"written by another version: {str(state.get('schema'))[:60]}")
    return state


def save(path: Path, state: Mapping[str, Any], schema: str = COURSE_SCHEMA) -> None:
    """Keep ``state`` at ``path``: wholly or, where the machine dies meanwhile, not at all. Raises OSError."""
    data = json.dumps({"schema": schema, **state}, separators=(",", ":"), default=str).encode("ascii")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(draft, flags, 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def set_aside(*paths: Path) -> list[Path]:
    """Give the files of a state that are there other names, with one number for all of them; the new names. No file is
    ever replaced. Raises OSError."""
    there = [path for path in paths if os.path.lexists(path)]
    for number in range(1, ASIDE):
        names = [path.with_name(f"{path.name}.{number}.old") for path in paths]
        if not any(map(os.path.lexists, names)):
            moved = [path.with_name(f"{path.name}.{number}.old") for path in there]
            for path, name in zip(there, moved, strict=True):
                os.rename(path, name)
            return moved
    raise OSError(f"{ASIDE} old states in {paths[0].parent}")


def _named_again(path: Path) -> None:
    """Give the file at ``path`` a second name as ``set_aside`` does; the only one where a file can have but one. Raises
    OSError."""
    for number in range(1, ASIDE):
        name = path.with_name(f"{path.name}.{number}.old")
        try:
            os.link(path, name)
            return
        except FileExistsError:
            continue
        except (OSError, AttributeError):
            set_aside(path)
            return


class Worker:
    """Does pieces of work one after the other in a thread of its own, which ends with the process.

    ``put`` returns at once; a piece that raises is told once through ``say`` and the next one goes on.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._go, name="rlclinic", daemon=True)
        self._thread.start()
        atexit.register(_last_words, weakref.ref(self))

    def put(self, work: Callable[[], None], most: int = WAITING) -> bool:
        """Have ``work`` done later; False, and nothing done, when ``most`` pieces wait already."""
        if self._work.qsize() >= most:
            return False
        self._work.put(work)
        return True

    def drain(self, seconds: float) -> bool:
        """Wait until all that was put is done, at most ``seconds``; whether it is."""
        if not self._thread.is_alive() or threading.current_thread() is self._thread:
            return False
        done = threading.Event()
        self._work.put(done.set)
        return done.wait(seconds)

    def stop(self) -> None:
        """End the thread once all that was put is done."""
        self._work.put(None)

    def _go(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as broken:
                self._say("background", f"what is done beside the training failed: {reason(broken)}")
            del work


def _last_words(worker: weakref.ref[Worker]) -> None:
    """At the end of the process: what is still to be written, unless the disk hangs."""
    there = worker()
    if there is not None:
        there.drain(1.0)


class Keeper:
    """The state of one monitor in a directory: rows are appended, the course is replaced, all by a ``Worker``.

    While the disk is full, rows wait; when ``WAITING`` of them do, or the disk hangs, no more is kept, and that is said.
    """

    def __init__(self, folder: Path, worker: Worker, say: Say, *, fresh: bool = False) -> None:
        self._folder, self._worker, self._say = folder, worker, say
        self._rows, self._course = folder / ROWS, folder / COURSE
        self._lock: _Lock | None = None
        self._handle = -1
        self._let_go: tuple[int, int] | None = None
        """Device and inode of the rows, once the directory was let go of."""
        self._size = 0
        self._waiting: list[bytes] = []
        self._latest: Mapping[str, Any] | None = None
        self._not_before = 0.0
        self.on = True
        """Whether a state is kept; from the first on that cannot be done it is False for good."""
        self.found = 0
        """Rows found at the start."""
        self.progress = 0
        """Bytes read so far at the start."""
        self.opened = threading.Event()
        """Set when the directory was looked through."""
        self._fresh = fresh

    def open(
        self,
        row: Callable[[Mapping[str, Any]], None],
        course: Callable[[Mapping[str, Any]], None],
        forget: Callable[[], None],
    ) -> None:
        """Find what is kept and go on with it: ``row`` gets every row, ``course`` then what was said of them, where anything
        was. ``course`` raises ValueError for a state that it does not understand; ``forget`` then takes all back.
        Runs in the thread of the worker.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = _Lock.of(self._folder, PATIENCE)
            if self._lock is None:
                self.give_up(f"another monitor keeps its state in {self._folder}; this one keeps none")
                return
            if self._fresh:
                set_aside(self._rows, self._course)
            try:
                self._read(row, course)
            except ValueError as broken:
                self.found = 0
                moved = set_aside(self._rows, self._course)
                names = ", ".join(path.name for path in moved)
                self._say(
                    "state", f"the state in {self._folder} is damaged ({broken}); it now is {names}, a new one is begun"
                )
                forget()
            self._append_to()
        except (OSError, ValueError) as broken:
            self.give_up(f"no state is kept in {self._folder}: {reason(broken)}")
        finally:
            self.opened.set()

    def row(self, row: Plain, step: float | None) -> None:
        """Keep one row."""
        self._later(lambda: self._write(_line(row, step)))

    def replace(self, rows: Iterable[tuple[float | None, Plain]]) -> None:
        """Keep these rows, each with its step, instead of all before, which get another name."""
        lines = b"".join([HEAD, *(_line(row, step) for step, row in rows)])
        self._later(lambda: self._replace(lines))

    def course(self, state: Mapping[str, Any]) -> None:
        """Keep what was said, instead of what was said before."""
        self._later(lambda: self._write(b"", state))

    def anew(self) -> None:
        """Another run begins in this directory: what is kept of the one before gets another name."""
        self._later(self._begin_anew)

    def give_up(self, why: str) -> None:
        """Keep nothing from now on, and say so."""
        if self.on:
            self.on = False
            self._say("state", f"{why}; training and monitoring go on")

    def _later(self, work: Callable[[], None]) -> None:
        if self.on and not self._worker.put(work):
            self.give_up(f"{self._folder} does not answer: no state is kept any more")

    def _read(self, row: Callable[[Mapping[str, Any]], None], course: Callable[[Mapping[str, Any]], None]) -> None:
        """Raises ValueError for a state that is damaged or of another version, OSError where it cannot be read."""
        state = load(self._course)
        rows, end = 0, 0
        for one, end in self._lines():
            if one is not None:
                rows += 1
                row(one)
            self.progress = end
        if state is not None and not rows:
            raise ValueError("what was said without the rows it was said of")
        if state is not None:
            course(state)
        self.found, self._size = rows, end

    def _lines(self) -> Iterator[tuple[dict[str, Any] | None, int]]:
        """(row, bytes up to its end) for every whole line; None for the head, and for a line that holds no row. A last line
        that was cut off is left out. Raises ValueError for a file that is none of ours."""
        try:
            handle = os.open(self._rows, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            return
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(f"{self._rows.name} is no plain file")
            end = 0
            while line := stream.readline(LINE):
                if not line.endswith(b"\n"):
                    if len(line) == LINE:
                        raise ValueError("a line of more than 4 MiB")
                    return
                found = _parsed(line)
                if not end and (found is None or found.get("schema") != ROWS_SCHEMA):
                    schema = None if found is None else found.get("schema")
                    raise ValueError(
                        f"written by another version: {str(schema)[:60]}" if schema else "no rows of rlclinic"
                    )
                first, end = not end, end + len(line)
                yield (None if first else found), end

    def _append_to(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK if hasattr(os, "O_NONBLOCK") else os.O_WRONLY | os.O_CREAT
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        self._handle = os.open(self._rows, flags, 0o666)
        if not stat.S_ISREG(os.fstat(self._handle).st_mode):
            raise OSError(f"{self._rows.name} is no plain file")
        os.ftruncate(self._handle, self._size)
        if not self._size:
            self._write(HEAD)

    def _replace(self, lines: bytes) -> None:
        """At no moment is there no whole file of rows."""
        if self._let_go is not None:
            self._take_again(self._let_go)
        if not self.on or self._handle < 0:
            return
        self._waiting, draft = [], self._rows.with_name(f".{ROWS}.{secrets.token_hex(6)}.tmp")
        try:
            with draft.open("xb") as stream:
                stream.write(lines)
                stream.flush()
                os.fsync(stream.fileno())
            if self._size > len(HEAD):
                _named_again(self._rows)
            os.replace(draft, self._rows)
            self._close()
            self._size = len(lines)
            self._append_to()
        except OSError as broken:
            with suppress(OSError):
                os.unlink(draft)
            self.give_up(f"no state is kept in {self._folder} any more: {reason(broken)}")

    def _begin_anew(self) -> None:
        self._close()
        self._waiting, self._latest, self._size = [], None, 0
        try:
            set_aside(self._rows, self._course)
            self._append_to()
        except OSError as broken:
            self.give_up(f"no state is kept in {self._folder} any more: {reason(broken)}")

    def _write(self, line: bytes, state: Mapping[str, Any] | None = None) -> None:
        """Write what waits and ``line``, then the course; what cannot be written waits."""
        if line and self._let_go is not None:
            self._take_again(self._let_go)
        if not self.on or self._handle < 0:
            return
        if line:
            self._waiting.append(line)
        self._latest = self._latest if state is None else state
        if time.monotonic() < self._not_before:
            if len(self._waiting) > WAITING:
                self.give_up(f"nothing can be written to {self._folder}: no state is kept any more")
                self._waiting = []
            return
        try:
            while self._waiting:
                self._put(self._waiting[0])
                del self._waiting[0]
            if self._latest is not None:
                os.fsync(self._handle)
                save(self._course, self._latest)
                self._latest = None
            self._not_before = 0.0
        except OSError as broken:
            self._not_before = time.monotonic() + AGAIN
            self._say("disk", f"the state in {self._folder} cannot be written now, and is later: {reason(broken)}")
        if self._size > ROWS_BYTES:
            self.give_up(f"{self._rows} has {ROWS_BYTES >> 30} GiB: no more is kept")

    def _put(self, line: bytes) -> None:
        """Append ``line`` as a whole; where that fails the file ends where it did. Raises OSError."""
        os.lseek(self._handle, self._size, os.SEEK_SET)
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._handle, left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        """Let go of the directory, once what was handed over is written."""
        self._later(self._close_all)

    def _close_all(self) -> None:
        self._not_before = 0.0
        self._write(b"")
        if self.on and (self._waiting or self._latest is not None):
            self._say("lost", f"the end of the run is not in the state in {self._folder}, which could not be written")
        if self._handle >= 0:
            found = os.fstat(self._handle)
            self._let_go = found.st_dev, found.st_ino
        self._close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take_again(self, rows: tuple[int, int]) -> None:
        """Go on after ``close``, where nobody has written since."""
        self._let_go = None
        try:
            self._lock = _Lock.of(self._folder, 0.0)
            found = os.stat(self._rows, follow_symlinks=False)
            same = (found.st_dev, found.st_ino) == rows and found.st_size == self._size
            if self._lock is not None and same:
                self._append_to()
                return
            self.give_up(f"another monitor keeps its state in {self._folder}; rows after the end are not kept")
        except OSError as broken:
            self.give_up(f"no state is kept in {self._folder} any more: {reason(broken)}")
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _close(self) -> None:
        if self._handle >= 0:
            with suppress(OSError):
                os.close(self._handle)
            self._handle = -1


class _Lock:
    """The right to write in a directory: one process, and one monitor in it. The system takes it back when the process
    ends, however it ends, and a child does not inherit it."""

    _mine: ClassVar[set[str]] = set()
    _guard = threading.Lock()

    def __init__(self, name: str, handle: int) -> None:
        self._name, self._handle = name, handle

    @classmethod
    def of(cls, folder: Path, patience: float) -> _Lock | None:
        """The lock of ``folder``; None when somebody else still has it after ``patience`` seconds. Raises OSError."""
        name = os.path.realpath(folder)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        until = time.monotonic() + patience
        while True:
            with cls._guard:
                held = name in cls._mine
                if not held:
                    handle = os.open(folder / LOCK, flags, 0o666)
                    if _locked(handle):
                        cls._mine.add(name)
                        return cls(name, handle)
                    os.close(handle)
            if held or time.monotonic() > until:
                return None
            time.sleep(0.02)

    def release(self) -> None:
        with self._guard:
            self._mine.discard(self._name)
            with suppress(OSError):
                os.close(self._handle)


def _locked(handle: int) -> bool:
    """Whether this process has the file now; True also where files cannot be locked (Windows, some network disks)."""
    if fcntl is None:
        return True
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def _line(row: Plain, step: float | None) -> bytes:
    """One row as a line; a step that was stated beside it stands first."""
    if step is not None:
        row = {"step": int(step) if step.is_integer() else step, **row}
    elif next(iter(row), "") == "step":
        row = {**{key: value for key, value in row.items() if key != "step"}, "step": row["step"]}
    return (json.dumps(row, separators=(",", ":")) + "\n").encode("ascii")


def taken_apart(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], float | None]:
    """The metrics and the step of a row as ``_line`` wrote it."""
    if next(iter(row), "") == "step" and len(row) > 1:
        return {key: value for key, value in row.items() if key != "step"}, row["step"]
    return row, None


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def reason(broken: BaseException) -> str:
    """Why something failed, in a few words."""
    if isinstance(broken, OSError) and broken.strerror:
        return broken.strerror
    return f"{type(broken).__name__}: {broken}"


def complain(text: str) -> None:
    """One clean line on standard error, whatever state that is in."""
    with suppress(Exception):
        if not sys.is_finalizing():
            sys.stderr.write(f"rlclinic: {text}\n")
            sys.stderr.flush()
