"""Which files of saved answers are of one run: folders that hold the same steps and prompts are of several."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from rlclinic.errors import CannotRead
from rlclinic.readers.answers.place import numbered
from rlclinic.rollouts import Answer

SCANNED = 5_000
"""Answers of a folder that are looked at for its steps and prompts (ours)."""
MOST = 40
"""Folders of one form of which it is asked whether they are of one run (ours)."""
SAME = 0.5
"""Share of the steps of the smaller folder that both hold, from which they are no parts that follow each other (ours)."""
SHARED = 0.01
"""Share of the prompts of the smaller folder that both hold; tasks and processes of one run share none (ours)."""
COUNTED = 8
"""Folders side by side that are named by a number alone, from which the number counts steps (ours)."""
_PROCESS = re.compile(
    r"(?i)(?:global|local|dp|tp|train|data|rollout)?[-_]?(?:rank|worker|shard|proc|process|node|gpu|actor|host|part)s?[-_]?\d{1,6}"
)

Peek: TypeAlias = Callable[[Path], "tuple[Hashable, Iterator[Answer]] | None"]
"""Opens a file: its form and kind, and its answers; None for a file that holds none."""


@dataclass
class _Folder:
    """The files of one folder, or of folders that differ in their step alone, and what their first answers hold."""

    name: tuple[str, ...]
    files: list[Path]
    steps: set[tuple[float | None, bool]] = field(default_factory=set)
    prompts: set[Hashable] = field(default_factory=set)

    def look(self, peek: Peek) -> None:
        left = SCANNED
        for path in self.files:
            opened = peek(path) if left > 0 else None
            if opened is None:
                continue
            for one in itertools.islice(opened[1], left):
                left -= 1
                self.steps.add((one.step, one.held_out))
                self.prompts.add(one.prompt if one.prompt is not None else one.key)

    def repeats(self, other: _Folder) -> bool:
        """True where both hold most of the same steps, and answers to the same prompts."""
        same = len(self.steps & other.steps) / max(1, min(len(self.steps), len(other.steps)))
        asked = len(self.prompts & other.prompts) / max(1, min(len(self.prompts), len(other.prompts)))
        return same >= SAME and asked > SHARED


def runs_of(files: Sequence[Path], peek: Peek) -> list[list[Path]]:
    """The ``files`` in sets that are each of one run; one set where no folder repeats another.

    Parts of a resumed run follow each other, folders of training and evaluation are told apart by their answers, and
    processes by their names. Only folders of one form are held against each other, by their first answers.
    """
    folders = _folders(files)
    if len(folders) < 2:
        return [list(files)]
    forms: dict[Hashable, list[_Folder]] = {}
    for one in folders:
        opened = next((found for path in one.files[:3] if (found := peek(path)) is not None), None)
        if opened is not None:
            forms.setdefault(opened[0], []).append(one)
    runs: list[list[_Folder]] = []
    for alike in forms.values():
        if 1 < len(alike) <= MOST:
            for one in alike:
                one.look(peek)
                _settle(one, runs)
    if len(runs) < 2:
        return [list(files)]
    told = {path for run in runs for one in run for path in one.files}
    sets = [[path for one in run for path in one.files] for run in runs]
    for path in files:  # forms that lie in one folder alone belong to the run around them
        if path not in told:
            max(sets, key=lambda one: _together(path, one[0])).append(path)
    places = {path: place for place, path in enumerate(files)}
    return [sorted(one, key=places.__getitem__) for one in sets]


def folder_of(files: Iterable[Path]) -> Path:
    """The innermost folder around all ``files``."""
    return Path(os.path.commonpath([os.path.abspath(path.parent) for path in files]))


def one_run(files: Sequence[Path], peek: Peek, top: Path, run: str | None) -> list[Path]:
    """The files of the run that is named ``run`` below ``top``, all where there is one. Raises CannotRead where there are
    several and ``run`` names none of them."""
    sets = runs_of(files, peek)
    if len(sets) < 2:
        return list(files)
    named: dict[str, list[Path]] = {}
    for one in sets:
        named.setdefault(os.path.relpath(folder_of(one), os.path.abspath(top)), []).extend(one)
    if len(named) < 2:
        return list(files)
    if run is not None and run.strip("/") in named:
        return named[run.strip("/")]
    raise CannotRead(
        "the saved answers of one run" if run is None else f"the run {run[:80]!r}",
        f"{top}: folders with answers of the same steps, as several runs save them",
        choices=sorted(named),
        hint=f"--run {min(named)}",
    )


def _settle(one: _Folder, runs: list[list[_Folder]]) -> None:
    """Add a folder to the run that it does not repeat and lies nearest to, else to a new one."""
    free = [run for run in runs if not any(one.repeats(other) for other in run)]
    if free:
        max(free, key=lambda run: _prefix(one.name, run[0].name)).append(one)
    else:
        runs.append([one])


def _prefix(one: Sequence[str], two: Sequence[str]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def _together(one: Path, two: Path) -> int:
    return _prefix(Path(os.path.abspath(one)).parts, Path(os.path.abspath(two)).parts)


def _folders(files: Sequence[Path]) -> list[_Folder]:
    """The files by their folders; what only tells a step or a process in the name of a folder makes no other one."""
    parents = [Path(os.path.abspath(path.parent)).parts for path in files]
    if len(set(parents)) < 2:
        return [_Folder((), list(files))]
    counted: dict[tuple[str, ...], set[str]] = {}
    for parts in set(parents):
        for place, part in enumerate(parts):
            if part.isdigit():
                counted.setdefault(parts[:place], set()).add(part)
    found: dict[tuple[str, ...], _Folder] = {}
    for path, parts in zip(files, parents, strict=True):
        name = tuple(
            "#" if part.isdigit() and len(counted[parts[:place]]) > COUNTED else _plain(part)
            for place, part in enumerate(parts)
        )
        found.setdefault(name, _Folder(name, [])).files.append(path)
    return list(found.values())


def _plain(part: str) -> str:
    """The name of a folder without the number of a step or a process in it."""
    counts = numbered(part) is not None or _PROCESS.fullmatch(part)
    return re.sub(r"\d{1,20}", "#", part) if counts else part


__all__ = ["Peek", "folder_of", "one_run", "runs_of"]
