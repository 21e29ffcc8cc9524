"""Read one log of any known form, recognised by its content."""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TextIO

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.axis import Series
from rlclinic.readers.binary.eventfile import MARK, read_events
from rlclinic.readers.binary.runlog import SWANLAB, WANDB, read_runlog
from rlclinic.readers.config import FILE_LIMIT, config_from_text
from rlclinic.readers.rows import Log, Rows
from rlclinic.readers.stores.archive import ZIP, packed, read_packed, read_zip
from rlclinic.readers.stores.database import SQLITE
from rlclinic.readers.stores.offline import is_clearml, is_dvclive, read_clearml, read_dvclive
from rlclinic.readers.stores.trackers import is_mlflow_run, read_mlflow_tree, read_tracker
from rlclinic.readers.tabular import frames
from rlclinic.readers.tabular.parquet import PARQUET, read_parquet
from rlclinic.readers.tabular.records import DOCUMENT_LIMIT, is_rollout, read_document, read_jsonl, with_json_words
from rlclinic.readers.tabular.separated import delimiter, read_csv, read_table, shaped
from rlclinic.readers.text.console import Console
from rlclinic.readers.text.wrapped import unwrapped

__all__ = ["Log", "Rows", "Series", "drained", "read_log"]

SNIFF = 1 << 16
"""Bytes looked at to recognise a form (ours)."""
RECORD_LIMIT = 64 << 20
"""Longest JSON line in characters (ours: ms-swift's closing line repeats the whole history)."""
LINE_LIMIT = 4 << 20
"""Longest console line in characters (ours: the longest in the corpus has 200 KiB)."""
PIPE_SECONDS = 3.0
"""Seconds that a named pipe is waited for until somebody writes to it (ours)."""
TABLE_LINES = 200_000
"""Most lines searched for a pasted table (ours)."""
STREAM_LIMIT = 512 << 20
"""Most bytes read from a pipe, which may never end (ours: twice the longest document)."""
ARCHIVES = 2
"""Deepest nesting of archives (ours: a compressed log in a ZIP file)."""
HOLE = 256
"""Fewest NUL bytes in a row that are a hole in a text (ours: a power cut leaves whole sectors, of 512 bytes or more)."""
_HOLE = rf"\0{{{HOLE},}}"
NOISE = 0.02
"""Share of control characters from which content is no text (ours: compressed data has about 10 %, logs none)."""
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")) + b"\x7f"
_BINARY = (
    (b"\x89PNG", "a picture (PNG)", "the numbers it was drawn from, as CSV or JSON lines"),
    (b"\xff\xd8\xff", "a picture (JPEG)", "the numbers it was drawn from, as CSV or JSON lines"),
    (b"%PDF-", "a PDF document", "the log itself"),
    (b"PK\x05\x06", "an empty ZIP archive", "the log of the run"),
    *(
        (bytes((0x80, n)), "a Python pickle, never opened", "trainer_state.json or the console output")
        for n in range(2, 6)
    ),
    (b"\x93NUMPY", "a NumPy array", "trainer_state.json or the console output"),
)


def read_log(path: Path | None, data: bytes | None = None, name: str = "-", run: str | None = None) -> Log:
    """Read one log, recognised by its content: a file, or a directory that MLflow or DVCLive keep one run in.

    ``data`` is read instead of a file when given; ``name`` is then what the log is called. ``run`` names one of several
    runs in the source. A text with an error and no metric gives a log of kind ``crash``. Raises CannotRead, also for a
    source of several runs none of which is named.
    """
    if path is None or data is not None:
        return _read(io.BytesIO(data or b""), name if path is None else str(path), run)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            if is_mlflow_run(path):
                return read_mlflow_tree(path, run)
            if is_dvclive(path):
                return read_dvclive(path)
            hint = "give the directory to find(), or one file of it"
            raise CannotRead("a log file", f"{path}: a directory", hint=hint)
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            what = "an empty file" if str(path) == os.devnull else "a device or socket, which may never end"
            raise CannotRead("a log file", f"{path}: {what}", hint="give a file or a pipe")
        if stat.S_ISFIFO(mode):
            return _read(io.BytesIO(_piped(path)), str(path), run)
        with path.open("rb") as stream:
            return _read(stream, str(path), run)
    except OSError as error:
        raise CannotRead("a log file", f"{path}: {error.strerror or error}") from error


def _piped(path: Path) -> bytes:
    """All bytes of a pipe. Raises CannotRead for one that nobody writes to: opening it would wait for ever."""
    if os.path.realpath(path).startswith(("/proc/", "/dev/")):  # one of a shell's: <(...)
        with path.open("rb") as stream:
            return drained(stream, str(path))
    handle, first, until = os.open(path, os.O_RDONLY | os.O_NONBLOCK), b"", time.monotonic() + PIPE_SECONDS
    with os.fdopen(handle, "rb") as stream:
        while not first:
            try:
                first = os.read(
                    handle, SNIFF
                )  # nothing where there is no writer, an error where one has not written yet
            except BlockingIOError:
                break
            if not first and time.monotonic() > until:
                hint = "rlclinic diagnose LOGFILE, or let a program write to the pipe first"
                raise CannotRead("a log file", f"{path}: a pipe to which nobody writes", hint=hint)
            time.sleep(0.0 if first else 0.02)
        os.set_blocking(handle, True)
        return first + drained(stream, str(path))


def drained(stream: IO[bytes], label: str) -> bytes:
    """All bytes of a pipe or of standard input; raises CannotRead when there are too many, as from a source without end."""
    data = stream.read(STREAM_LIMIT + 1)
    if len(data) > STREAM_LIMIT:
        raise CannotRead(
            "a log that ends",
            f"{label}: more than {STREAM_LIMIT >> 20} MiB",
            hint="write it to a file and give that, or cut it with tail",
        )
    return data


def _read(stream: IO[bytes], label: str, run: str | None = None, depth: int = 0) -> Log:
    head = stream.read(SNIFF)
    if not head.strip(b"\0 \t\r\n"):
        raise CannotRead("a log with metrics", f"{label}: an empty file", hint="give the file the trainer writes to")
    if head.startswith((WANDB, SWANLAB)) or MARK in head[:64]:
        stream.seek(0)
        return read_runlog(stream, label) if head.startswith((WANDB, SWANLAB)) else read_events(stream, label)
    if head.startswith(SQLITE):
        stream.seek(0)
        return read_tracker(stream, label, run)
    if head.startswith(PARQUET):
        return read_parquet(stream, label, run)
    if is_clearml(head):
        return read_clearml(stream, label)
    kind = packed(head)
    if kind is not None or head.startswith(ZIP):
        if depth >= ARCHIVES:
            raise CannotRead("a log", f"{label}: an archive within an archive", hint="unpack it and give the log")
        if kind is not None:
            return read_packed(stream, label, kind, lambda inner, name: _read(inner, name, run, depth + 1))
        return read_zip(stream, label, run, lambda inner, name: _read(inner, name, run, depth + 1))
    _refuse_binary(head, label)
    encoding = _encoding(head)
    sample = re.sub(_HOLE, "", head.decode(encoding, errors="replace")).lstrip("\ufeff")
    stream.seek(0)
    newline = "\n"
    if "\n" not in sample and "\r" in sample.strip("\r"):
        sample, newline = sample.replace("\r", "\n"), "\r"
    first = next((line.strip() for line in sample.splitlines() if line.strip()), "")
    form = _form(first, sample)
    ends = "" if form == "console" else newline
    text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline=ends)
    try:
        return _parse(text, form, sample, label, run)
    finally:
        text.detach()


def _parse(text: TextIO, form: str, sample: str, label: str, run: str | None) -> Log:
    try:
        return _parsed(text, form, sample, label, run)
    except CannotRead:
        if not sample.lstrip().startswith(("{", "[")):
            raise
        text.seek(0)
        said: list[Warn] = []
        console = Console()
        for line, ended in unwrapped(_lines(text, RECORD_LIMIT, said)):
            console.feed(line, ended)
        log = console.close(label, said)
        if log is None or log.kind == "crash":
            raise
        return log


def _parsed(text: TextIO, form: str, sample: str, label: str, run: str | None) -> Log:
    said: list[Warn] = []
    if form == "lines":
        return read_jsonl(_lines(text, RECORD_LIMIT, said), label, said, run=run)
    if form == "document":
        whole = text.read(DOCUMENT_LIMIT + 1).lstrip("\ufeff")
        if len(sample) >= SNIFF // 4 and "\n" not in sample.strip() and re.search(r"\n[ \t]*\{", whole):
            return read_jsonl(_lines(io.StringIO(whole), RECORD_LIMIT, said), label, said, run=run)
        return read_document(whole, label, said, run=run)
    table_form = form in (",", ";", "\t")
    if table_form and shaped(sample, form, whole=len(sample) < SNIFF // 4):
        return read_csv(_lines(text, LINE_LIMIT, said), label, form, said, run=run)
    console = Console()
    for line, ended in _lines(text, LINE_LIMIT, said):
        console.feed(line, ended)
    log = console.close(label, said)
    if log is not None and log.kind != "crash" and not console.pieced:
        return log
    text.seek(0)
    if table_form and log is None:  # the table says why it cannot be read
        return read_csv(_lines(text, LINE_LIMIT, []), label, form, said, run=run)
    table = read_table(
        (pair for _, pair in zip(range(TABLE_LINES), _lines(text, LINE_LIMIT, []), strict=False)), label, said
    )
    if table is not None:
        return table
    if log is not None:
        return log
    settings = config_from_text(sample) if len(sample) < FILE_LIMIT else {}
    if len(settings) >= 2 or (settings and len(sample.split()) < 20):
        raise CannotRead(
            "a log with metrics",
            f"{label}: a configuration, not metrics",
            hint="give the log, and this file as its configuration",
        )
    raise CannotRead(
        "a log with metrics",
        f"{label}: text without a training metric or an error",
        hint="give trainer_state.json, a metrics .jsonl or .csv, or the console output of the trainer",
    )


def _refuse_binary(head: bytes, label: str) -> None:
    for magic, what, instead in _BINARY:
        if head.startswith(magic):
            raise CannotRead("a log in text form", f"{label}: {what}, recognised but not read", hint=f"give {instead}")
    if head[257:262] == b"ustar":
        folder = "give the log in it, or unpack it and give the folder: mkdir run && tar xf FILE -C run"
        raise CannotRead("a log", f"{label}: a tar archive, recognised but not read", hint=folder)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or _wide(head) is not None:
        return
    head = re.sub(_HOLE.encode(), b"", head)
    if len(head) - len(head.translate(None, _CONTROLS)) > max(3, NOISE * len(head)):
        raise CannotRead(
            "a log in text form",
            f"{label}: binary data of no known form",
            hint="give the console output or a JSON, JSON lines or CSV log",
        )


def _wide(head: bytes) -> str | None:
    """UTF-16 without a byte-order mark: every second byte of plain text is zero."""
    even, odd = head[0:2000:2].count(0), head[1:2000:2].count(0)
    half = max(1, min(len(head), 2000) // 2)
    return "utf-16-le" if odd > 0.8 * half and even == 0 else "utf-16-be" if even > 0.8 * half and odd == 0 else None


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if wide := _wide(head):
        return wide
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "utf-8" if head.count(b"\xef\xbf\xbd") else "latin-1"
    return "utf-8-sig"


def _form(first: str, sample: str) -> str:
    """``lines`` (JSON), ``document`` (JSON), a CSV delimiter, or ``console``."""
    if first[:1] == "{":
        if first.endswith("}") or len(first) >= SNIFF - 2:
            try:
                json.loads(with_json_words(first))
            except (ValueError, RecursionError):
                return (
                    "document"
                    if first[1:].lstrip()[:1] == '"' and len(first) > 1000 and "\n" not in sample.strip()
                    else "console"
                    if "'" in first[:3]
                    else _braced(sample)
                )
            rest = sample.split("\n", 1)[1] if "\n" in sample else ""
            return "lines" if rest.strip() or not _single(first) else "document"
        return _braced(sample)
    if first == "[" or first.startswith(("[{", "[ {")):
        return "document" if re.match(r"\[\s*\{\s*\"", sample.lstrip()) else "console"
    if re.match(r"\[\s?\[\s?\d[\d.eE+-]{0,40}, ?\d", first[:100]):
        return "document"
    mark = delimiter(first) if len(first) < LINE_LIMIT else None
    return mark or "console"


def _braced(sample: str) -> str:
    """A text that begins with a brace: a printed document, JSON lines with a broken first one, or console text."""
    body = sample.lstrip()
    if ((opened := re.match(r"\{(\s*)\"", body)) and "\n" in opened[1]) or re.match(
        r"\{[^{}\n]{0,5000}\"log_history\"\s*:\s*\[\s", body
    ):
        return "document"
    if re.match(r"\{\s*\"", body):
        return "lines" if re.search(r"\n[ \t]*\{ ?\"", body) or "\n" not in body.strip() else "document"
    return "console"


def _single(first: str) -> bool:
    """True when a lone JSON object is a document (a summary, a history, a configuration) and not one metric row."""
    record = json.loads(with_json_words(first))
    if not isinstance(record, dict) or is_rollout(record):
        return False
    return (
        any(isinstance(v, list) for v in record.values())
        or "_step" in record
        or "_runtime" in record
        or "_wandb" in record
        or bool(frames.table(record) or frames.members(record))
    )


def _lines(text: TextIO, limit: int, said: list[Warn]) -> Iterator[tuple[str, bool]]:
    """(line without its newline, whether it ended) for every line of at most ``limit`` characters."""
    skipped = holes = 0
    while line := text.readline(limit):
        if "\0" in line and len(pieces := re.split(_HOLE, line)) > 1:
            holes += len(pieces) - 1
            # What touches a hole may be half a row, except a record that shows its end and one that shows its beginning.
            if pieces[0].endswith("}"):
                yield pieces[0], True
            line = pieces[-1] if pieces[-1].startswith("{") else ""
            if not line:
                continue
        if line[-1] in "\r\n":
            yield line.rstrip("\r\n"), True
            continue
        if len(line) < limit:
            yield line, False
            break
        skipped += 1
        while (more := text.readline(limit)) and more[-1] not in "\r\n":
            pass
    if holes:
        says = f"{holes} stretches of NUL bytes, as a power cut leaves, are skipped; rows of the log may be lost there"
        said.append(Warn("holes", says))
    if skipped:
        said.append(Warn("long_lines", f"{skipped} lines over {limit >> 20} MiB were skipped"))
