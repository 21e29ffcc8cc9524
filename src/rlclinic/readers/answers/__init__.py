"""Saved answers (rollouts) of any trainer, streamed into tables: what each file is, and which files are one set."""

from __future__ import annotations

import contextlib
import filecmp
import gc
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rlclinic.errors import CannotRead
from rlclinic.readers.answers.forms import Form, Place, Settings, form_of, is_answer
from rlclinic.readers.answers.gather import WORDS, Gatherer, Shape
from rlclinic.readers.answers.own import Own, Rising, parse_columns
from rlclinic.readers.answers.records import Kind, Record, Saved, records
from rlclinic.readers.answers.runs import one_run, runs_of
from rlclinic.readers.roles import role
from rlclinic.rollouts import Answer, Rollouts

MOST_FILES = 50_000
"""Most files of saved answers that are read of one run (ours)."""
ENTRIES = 200_000
"""Most entries of a folder that are looked at for saved answers (ours)."""
LATER = 20
"""Records in which a form is looked for where the first one has none: its answer may be null (ours)."""
FIRST = 50
"""Records in which the columns are looked for that the user names; a trainer may leave out what is null (ours)."""
HOLES = 0.02
"""Records that cannot be read, over answers, from which groups are not taken as whole (ours)."""
HEAD = 1 << 16
"""Bytes by which files of one size are told apart before they are compared as a whole (ours)."""
TOLD = 5
"""Most files that a warning names, and most warnings of one kind (ours)."""
REASONS = 20
"""Most files left that are named (ours)."""
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv", ".pt")
_PACKED = (".gz", ".bz2", ".xz", ".zst")
_METRICS = frozenset({"loss", "learning_rate", "grad_norm"})
"""No record of an answer has one of these keys; rows of metrics that count tokens otherwise look like one."""
_UNFIT = (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)
_PASSED = frozenset({".git", "__pycache__", "node_modules", ".venv"})


def read_answers(
    paths: Iterable[Path],
    *,
    settings: Settings | None = None,
    columns: Mapping[str, str] | None = None,
    wanted: Callable[[Answer], bool] | None = None,
    words: int = WORDS,
    top: Path | None = None,
    run: str | None = None,
) -> tuple[tuple[Rollouts, ...], tuple[tuple[Path, str], ...]]:
    """The tables in ``paths``, the best first, and the files that were left with the reason.

    ``paths`` are files, and folders in which files of saved answers lie at any depth; they are read in the order in which
    people count. Files of one form and one kind (JSON, Parquet, tables of a tracker) are one table, since the same answers
    may be saved in several; folders that repeat the steps and prompts of another are of another run, and a table of their
    own. Where ``top``, the one directory that was given, holds several runs, ``run`` names the one to read.
    Best is the one with most answers of training, each counted by how much is known of it.
    ``columns`` maps what we ask for (prompt, completion, reward, ...) to the names in a file whose form is the user's own.
    ``wanted`` says whose words must be kept. A file that cannot be read is among those left. Raises CannotRead when none
    has a column that ``columns`` names, and for several runs in ``top``; BadRequest for texts in a column of numbers.
    """
    reading = _Reading(settings or Settings(), Own(columns), wanted, words)
    files, left = saved_files(paths)
    files, copies = _without_copies(files[: MOST_FILES + 1], reading.settings)
    left += copies
    if top is not None:
        files = one_run(files, reading.peek, top, run)
    reading.several(files)
    collecting = gc.isenabled()
    gc.disable()  # records hold no cycles, and looking for them in millions of short-lived parts costs 8 %
    try:
        for path in files[:MOST_FILES]:
            problem = reading.file(path)
            if problem:
                left.append((path, problem))
    finally:
        if collecting:
            gc.enable()
    if len(files) > MOST_FILES:
        left.append((files[MOST_FILES], f"more than {MOST_FILES} files; it and those after it are not read"))
    if reading.own.given and (reading.own.met or not left):
        reading.own.check(files)
    return reading.tables(), _grouped(left)


def saved_files(paths: Iterable[Path]) -> tuple[list[Path], list[tuple[Path, str]]]:
    """The files in ``paths`` and below them, each once, in counting order; and what is left of folders."""
    found: dict[str, Path] = {}
    left: list[tuple[Path, str]] = []
    for path in paths:
        if not path.is_dir():
            found.setdefault(os.path.realpath(path), path)
            continue
        before = len(found)
        for one in itertools.islice(_below(path), ENTRIES):
            suffixes = one.name.lower().split(".")[-2:]
            kind = role((), one.name)[0]
            if kind in ("state", "config", "script", "evaluation") or (not kind and suffixes[-1] == "json"):
                continue
            if f".{suffixes[-1]}" == ".pkl":
                left.append((one, "a Python pickle, never opened"))
            elif f".{suffixes[-1]}" in _SUFFIXES or (f".{suffixes[-1]}" in _PACKED and f".{suffixes[0]}" in _SUFFIXES):
                found.setdefault(os.path.realpath(one), one)
        if len(found) == before:
            left.append((path, "a folder without files of saved answers"))
    return sorted(found.values(), key=_counted), left


def _below(top: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in _PASSED)
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))


def _counted(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Paths in the order in which people count: step 9 before step 10, whatever their names are filled up with."""
    pieces = re.findall(r"\d{1,18}|\D{1,200}", str(path))
    return [(int(piece), "") if piece.isascii() and piece.isdigit() else (-1, piece) for piece in pieces], str(path)


def _without_copies(files: Sequence[Path], settings: Settings) -> tuple[list[Path], list[tuple[Path, str]]]:
    """(the files that differ, the copies of one of these): answers read twice would make groups of twice their size.

    Equal bytes whose names tell different steps are none: a model that does not change answers alike.
    """
    alike: dict[tuple[object, ...], list[Path]] = {}
    for path in files:
        place = Place.of(path, settings)
        with contextlib.suppress(OSError):
            seen = path.stat()
            if stat.S_ISREG(seen.st_mode) and seen.st_size:
                alike.setdefault((seen.st_size, place.step, place.number, place.held_out), []).append(path)
    copies: dict[Path, str] = {}
    for same in alike.values():
        first: dict[bytes, Path] = {}
        for path in same if len(same) > 1 else ():
            with contextlib.suppress(OSError), path.open("rb") as stream:
                head = stream.read(HEAD)
                known = first.setdefault(head, path)
                if known is not path and filecmp.cmp(known, path, shallow=False):
                    copies[path] = "a copy of another file of saved answers, left out"
    return [path for path in files if path not in copies], list(copies.items())


def _grouped(left: Sequence[tuple[Path, str]]) -> tuple[tuple[Path, str], ...]:
    """The files left, only the first of each reason where it holds for many."""
    reasons: dict[str, list[Path]] = {}
    for path, why in left:
        reasons.setdefault(why, []).append(path)
    told: list[tuple[Path, str]] = []
    for why, files in reasons.items():
        if len(files) <= TOLD:
            told += [(path, why) for path in files]
        else:
            told.append((files[0], f"{why} (so are {len(files) - 1} more files)"))
    if len(told) > REASONS:
        told[REASONS - 1 :] = [(told[REASONS - 1][0], f"not read, nor {len(told) - REASONS} more files")]
    return tuple(told)


@dataclass
class _Set:
    """The files of one form and kind."""

    gatherer: Gatherer
    files: list[Path] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    """Fingerprints of the rows of a tracker's tables: each of them may repeat those before it."""
    said: dict[str, list[str]] = field(default_factory=dict)
    unfit: int = 0
    """Records that could not be read."""

    def say(self, path: Path, says: Iterable[str]) -> None:
        for one in says:
            self.said.setdefault(one, []).append(path.name)

    def table(self) -> Rollouts:
        warnings = []
        for says, names in self.said.items():
            more = f" and {len(names) - 1} more files" if len(names) > 1 else ""
            warnings.append(f"{names[0]}{more}: {says}")
        rest = [f"and {len(warnings) - TOLD} more warnings of single files"] if len(warnings) > TOLD else []
        made = self.gatherer.table()
        source = (
            self.files[0] if len(self.files) == 1 else os.path.commonpath([path.parent for path in self.files]) or "."
        )
        partial = made.partial or self.unfit > HOLES * made.rows
        return replace(made, source=str(source), partial=partial, warnings=(*made.warnings, *warnings[:TOLD], *rest))


class _Reading:
    """Reads files one after another into the sets that they belong to."""

    def __init__(self, settings: Settings, own: Own, wanted: Callable[[Answer], bool] | None, words: int) -> None:
        self.own = own
        self.settings, self._wanted, self._words = settings, wanted, words
        self._sets: dict[tuple[Shape, Kind, int], _Set] = {}
        self._runs: dict[Path, int] = {}

    def several(self, files: Sequence[Path]) -> None:
        """Tell the runs apart that ``files`` are of; each gets tables of its own."""
        self._runs = {path: place for place, one in enumerate(runs_of(files, self.peek)) for path in one}

    def peek(self, path: Path) -> tuple[tuple[Shape, Kind], Iterator[Answer]] | None:
        """The form and the answers of a file that is only looked into; None where it cannot be read."""
        saved, place = Saved(), Place.of(path, self.settings)
        source = records(path, saved)
        try:
            first = list(itertools.islice(source, FIRST if self.own.given else 1))
            if not first or not _METRICS.isdisjoint(first[0]):
                return None
            form, first = self._form(first, source, place)
        except (CannotRead, *_UNFIT):
            return None
        rows: Iterator[Record] = itertools.chain(first, source)
        return (form.shape, saved.kind), _tried(map(self.own.renamed, rows) if self.own.given else rows, form, place)

    def file(self, path: Path) -> str:
        """Gather the answers of one file; returns why it is left, empty when it is not."""
        saved = Saved()
        place = Place.of(path, self.settings)
        only = None
        source = records(path, saved, only)
        problem = ""
        form: Form | None = None
        into: _Set | None = None
        rising: Rising | None = None
        unfit = 0
        try:
            first = list(itertools.islice(source, FIRST if self.own.given else 1))
            if not first:
                return "holds no record"
            rows: Iterator[Record] = itertools.chain(first, source)
            if self.own.given:
                for record in first:
                    self.own.meet(record)
                rows = map(self.own.renamed, rows)
            if not _METRICS.isdisjoint(first[0]):
                return "rows of metrics, not saved answers"
            form, first = self._form(first, source, place)
            if not self.own.given:
                rows = itertools.chain(first, source)
            if form.shape.name.startswith("plain") and place.step is None and not _dated(form, first[0], place):
                rising = Rising(self.own.columns.values())
                rows = rising.watched(rows)
            into = self._set(form.shape, saved.kind, path)
            if saved.kind == "board":
                rows = _fresh(rows, into.seen)
            unfit = _gather(rows, form, place, into.gatherer)
        except CannotRead as error:
            problem = error.found.removeprefix(f"{path}: ")
            if into is None:
                return problem
            saved.said.append(f"{problem}; what stands before that is read")
        except _UNFIT as error:
            if into is None:
                return f"records of no form that can be read ({type(error).__name__})"
            raise
        if into is not None:
            if unfit:
                saved.said.append(f"{unfit} records do not fit its form and are left")
                into.unfit += unfit
            saved.said += [says] if rising is not None and (says := rising.says()) else []
            into.say(path, saved.said)
            into.gatherer.warnings += [one for one in place.said if one not in into.gatherer.warnings]
        return ""

    def _form(self, first: list[Record], source: Iterator[Record], place: Place) -> tuple[Form, list[Record]]:
        """The form of a file by its first record, or where that lacks what tells it by one of the next; and the records that
        this took from ``source``, without what stands before the answers. Raises CannotRead."""
        try:
            whole = self._whole(first)
            if self.own.given and not self.own.touches(whole):  # another form beside the user's own
                with contextlib.suppress(CannotRead):
                    return form_of(whole, place), first
            return form_of(whole, place, self.own.columns or None), first
        except CannotRead:
            if self.own.given:
                raise
            met = list(first)
            for record in itertools.islice(source, LATER):
                if not _METRICS.isdisjoint(record):
                    break
                met.append(record)
                if is_answer(record, place):
                    alike = [one for one in met if 2 * len(one.keys() & record.keys()) >= len(record)]
                    return form_of(record, place), alike
            raise

    def _whole(self, first: Sequence[Record]) -> Record:
        """The first record, with what the next ones have beside it where the user names columns."""
        whole = dict(first[0])
        if self.own.given:
            for record in map(self.own.renamed, map(dict, first)):
                for key, value in record.items():
                    if whole.get(key) is None:
                        whole[key] = value
            whole = self.own.renamed(whole)
        return whole

    def _set(self, shape: Shape, kind: Kind, path: Path) -> _Set:
        name = shape, kind, self._runs.get(path, 0)
        known = self._sets.get(name)
        if known is None:
            made = Gatherer(shape, str(path), words=self._words, wanted=self._wanted)
            known = self._sets[name] = _Set(made)
        known.files.append(path)
        known.gatherer.file()
        return known

    def tables(self) -> tuple[Rollouts, ...]:
        """The tables, the best first."""
        return tuple(sorted((one.table() for one in self._sets.values() if len(one.gatherer)), key=_rank))


def _gather(rows: Iterator[Record], form: Form, place: Place, gatherer: Gatherer) -> int:
    """Add the answers of all records; returns how many of these cannot be read."""
    answers, add = form.answers, gatherer.add
    unfit = 0
    for record in rows:
        try:
            for answer in answers(record, place):
                add(answer)
        except _UNFIT:  # noqa: PERF203  # one bad record must not cost the others
            unfit += 1
    return unfit


def _tried(rows: Iterator[Record], form: Form, place: Place) -> Iterator[Answer]:
    """The answers of all records that can be read."""
    with contextlib.suppress(CannotRead):
        for record in rows:
            with contextlib.suppress(*_UNFIT):
                yield from form.answers(record, place)


def _dated(form: Form, record: Record, place: Place) -> bool:
    """Whether the first answer of a record has a step."""
    return any(one.step is not None for one in itertools.islice(form.answers(record, place), 1))


def _fresh(rows: Iterator[Record], seen: set[int]) -> Iterator[Record]:
    """The rows that no table before held; equal rows of one table stay, since equal answers are drawn."""
    met: set[int] = set()
    for record in rows:
        mark = hash(repr(record))
        if mark not in seen:
            met.add(mark)
            yield record
    seen |= met


def _rank(table: Rollouts) -> tuple[float, int, str]:
    """Most answers of training, each counted by how much is known of it; then most answers."""
    known = sum(
        bool(np.isfinite(getattr(table, name)).any()) for name in ("step", "reward", "advantage", "tokens", "logp")
    )
    known += bool(table.ending.any()) + bool(table.parts)
    share = table.rows / max(len(table), 1)
    return (-share * float((~table.held_out).sum()) * (4 + known), -table.rows, table.form)


__all__ = ["Settings", "parse_columns", "read_answers", "saved_files"]
