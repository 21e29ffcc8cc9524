"""Saved answers (rollouts) of any trainer, streamed into tables: what each file is, and which files are one set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rlclinic.errors import CannotRead
from rlclinic.readers.answers.forms import Form, Place, Settings, form_of
from rlclinic.readers.answers.gather import WORDS, Gatherer
from rlclinic.readers.answers.records import records
from rlclinic.rollouts import Answer, Rollouts

MOST_FILES = 50_000
"""Most files of saved answers that are read of one run (ours)."""


def read_answers(
    paths: Iterable[Path],
    *,
    settings: Settings | None = None,
    columns: Mapping[str, str] | None = None,
    wanted: Callable[[Answer], bool] | None = None,
    words: int = WORDS,
) -> tuple[tuple[Rollouts, ...], tuple[tuple[Path, str], ...]]:
    """The tables in ``paths`` (files), the one with most answers first, and the files that were left with the reason.

    Files of one form are one table. ``columns`` maps what we ask for (prompt, completion, reward, ...) to the names in a
    file whose form is the user's own. ``wanted`` says whose words must be kept. Raises nothing for a file that cannot be
    read; it is among those left.
    """
    given = settings or Settings()
    gatherers: dict[str, Gatherer] = {}
    left: list[tuple[Path, str]] = []
    for path in list(paths)[:MOST_FILES]:
        problem = _file(path, given, columns, wanted, words, gatherers)
        if problem:
            left.append((path, problem))
    tables = sorted((one.table() for one in gatherers.values() if len(one)), key=lambda one: (-len(one), one.form))
    return tuple(tables), tuple(left)


def _file(
    path: Path,
    settings: Settings,
    columns: Mapping[str, str] | None,
    wanted: Callable[[Answer], bool] | None,
    words: int,
    gatherers: dict[str, Gatherer],
) -> str:
    """Gather the answers of one file; returns why it is left, empty when it is not."""
    form: Form | None = None
    place = Place.of(path, settings)
    try:
        for record in records(path):
            if form is None:
                form = form_of(record, place, columns)
                name = form.shape.name
                gatherer = gatherers.setdefault(name, Gatherer(form.shape, str(path), words=words, wanted=wanted))
                gatherer.file()
            for answer in form.answers(record, place):
                gatherer.add(answer)
    except CannotRead as problem:
        return problem.found.removeprefix(f"{path}: ")
    return "" if form is not None else "holds no record"


__all__ = ["Settings", "read_answers"]
