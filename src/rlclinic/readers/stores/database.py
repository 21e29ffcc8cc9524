"""SQLite databases of trackers (MLflow, Trackio), opened so that neither the file nor a running training is touched."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.roles import size

if TYPE_CHECKING:
    import sqlite3

SQLITE = b"SQLite format 3\0"
"""How every SQLite database begins."""
BATCH = 20_000
"""Rows fetched with one statement (ours: some 20 ms; a reader that holds its lock for seconds would make the write of a
running training fail, since MLflow waits five seconds for it)."""
CELL = 16 << 20
"""Longest text or blob taken from a cell, in bytes (ours: a row of metrics has a few KiB)."""
COPY = 4 << 30
"""Largest database that is copied aside because it cannot be opened where it lies (ours)."""
PATIENCE = 60.0
"""Seconds after which one statement is given up (ours: a batch takes milliseconds, a hostile view never ends)."""
_WAIT = 5.0
_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""How a rollback journal begins, and how it ends when it names a super-journal (SQLite's file format)."""
_CHECK = 100_000


@dataclass(frozen=True)
class Table:
    """An ordinary table of the database: its ``name`` and its column names in lower case."""

    name: str
    columns: frozenset[str]


class Database:
    """Read access to the ordinary tables of one SQLite file; views and virtual tables count as absent."""

    def __init__(self, connection: sqlite3.Connection, path: str, said: list[Warn]) -> None:
        self.path = path
        self.said = said
        self._connection = connection
        self._until = 0.0
        connection.set_progress_handler(self._late, _CHECK)
        self.tables: dict[str, Table] = {}
        found = self.all("SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT 1000")
        for name, sql in found:
            if isinstance(name, str) and isinstance(sql, str) and sql.upper().startswith("CREATE TABLE"):
                listed = self.all("SELECT name FROM pragma_table_info(?) LIMIT 500", (name,))
                self.tables[name.lower()] = Table(name, frozenset(str(row[0]).lower() for row in listed))

    def has(self, table: str, *columns: str) -> bool:
        """True when there is such a table with at least these columns."""
        return table in self.tables and self.tables[table].columns.issuperset(columns)

    def all(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement, fetched at once so that no lock is held afterwards."""
        self._until = time.monotonic() + PATIENCE
        return self._connection.execute(statement, tuple(values)).fetchall()

    def batches(
        self, table: str, columns: Sequence[str], where: str, values: Sequence[object]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """``rowid`` and ``columns`` of the rows for which ``where`` holds, in the order of writing, many at a time."""
        last: int = -(1 << 63)
        chosen = ", ".join(columns)
        statement = f"SELECT rowid, {chosen} FROM {table} WHERE rowid > ? AND {where} ORDER BY rowid LIMIT {BATCH}"
        while rows := self.all(statement, (last, *values)):
            yield rows
            if len(rows) < BATCH:
                return
            last = rows[-1][0]

    def _late(self) -> int:
        return int(time.monotonic() > self._until)


def read_database(stream: IO[bytes], path: str, read: Callable[[Database], Any]) -> Any:
    """What ``read`` makes of the database in ``stream``, which is the file ``path`` or its content.

    A database that a training writes to is read without disturbing it, what it holds in its write-ahead log included.
    Raises CannotRead for a damaged file.
    """
    try:
        import sqlite3
    except ImportError as error:
        hint = "use a Python built with sqlite3"
        raise CannotRead("a SQLite database", f"{path}: this Python has no sqlite3", hint=hint) from error
    try:
        with _placed(stream, path) as (file, copied, said), _opened(file, copied) as connection:
            return read(Database(connection, path, said))
    except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError, MemoryError) as error:
        # MemoryError: a damaged page may state a value of gigabytes, for which sqlite3 asks before it looks.
        text = str(error)[:200]
        hint = f"copy it with: sqlite3 {path} '.backup copy.db', or rescue it with: sqlite3 {path} .recover"
        if "interrupted" in text:
            text = f"a statement took more than {PATIENCE:g} seconds"
        elif "too big" in text:
            text, hint = (
                f"a cell of more than {CELL >> 20} MiB, which is no row of metrics",
                "give the log of the trainer",
            )
        raise CannotRead("a readable SQLite database", f"{path}: {text}", hint=hint) from error
    except OSError as error:
        raise CannotRead("a SQLite database", f"{path}: {error.strerror or error}") from error


@contextmanager
def _placed(stream: IO[bytes], path: str) -> Iterator[tuple[Path, bool, list[Warn]]]:
    """The database as a file, whether that is a copy, and what is to be said: where it lies when it can be opened there
    without a trace, else a copy."""
    file = Path(path)
    if isinstance(stream, io.BytesIO) or not _same_file(stream, file):
        with tempfile.TemporaryDirectory(prefix="rlclinic-") as folder:
            copy = Path(folder) / "copy.db"
            stream.seek(0)
            with copy.open("wb") as target:
                shutil.copyfileobj(stream, target)
            yield copy, True, []
        return
    log, shared, journal = (Path(f"{path}{end}") for end in ("-wal", "-shm", "-journal"))
    if size(log) and not shared.exists():
        beside = log
    elif size(journal) and _left_behind(file) and not _names_another(journal):
        beside = journal
    else:
        yield file, False, []
        return
    # Left by a writer that died: SQLite would have to write beside the file to put it in order.
    if size(file) + size(beside) > COPY:
        says = f"{beside.name} was not read: what the tracker wrote last may be missing"
        yield file, False, [Warn("left_beside", says)]
        return
    with tempfile.TemporaryDirectory(prefix="rlclinic-") as folder:
        copy = Path(folder) / file.name
        shutil.copyfile(file, copy)
        shutil.copyfile(beside, Path(folder) / beside.name)
        yield copy, True, []


def _left_behind(file: Path) -> bool:
    """True when a rollback journal belongs to a writer that died; a living one holds its lock while it has one."""
    import sqlite3

    try:
        with _opened(file, False) as connection:
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return "readonly" in str(error) or "unable to open" in str(error)
    return False


def _names_another(journal: Path) -> bool:
    """True when a rollback journal ends with the name of a further file, which SQLite would delete on rolling back."""
    with journal.open("rb") as stream:
        stream.seek(max(0, size(journal) - len(_JOURNAL)))
        return stream.read() == _JOURNAL


def _same_file(stream: IO[bytes], file: Path) -> bool:
    try:
        here, there = os.fstat(stream.fileno()), file.stat()
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISREG(here.st_mode) and (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


@contextmanager
def _opened(file: Path, copied: bool) -> Iterator[sqlite3.Connection]:
    """A connection that can only read, with everything off that a hostile schema could use."""
    import sqlite3

    with file.open("rb") as stream:
        head = stream.read(20)
    ahead = len(head) == 20 and head[18] == 2
    beside = Path(f"{file}-shm").exists()
    # In write-ahead mode even a reader creates files beside the database, unless told that nothing changes it.
    mode = (
        "mode=rw" if copied else "mode=ro&readonly_shm=1" if beside else "mode=ro&immutable=1" if ahead else "mode=ro"
    )
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?{mode}", uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False
    )
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        if hasattr(connection, "setlimit"):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute("PRAGMA cache_size = -8000")
        yield connection
    finally:
        connection.close()
