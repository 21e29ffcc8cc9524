"""What is read of a run whose log grows: the log, and before it the parts that were rotated away, as one text."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlclinic import model
from rlclinic.errors import CannotRead
from rlclinic.live import rotated
from rlclinic.live.joining import beginning, kinship, recounted
from rlclinic.model import ROLLOUTS, Run, Warn
from rlclinic.readers import read
from rlclinic.readers.roles import checkpoints

SURE = 5
"""Steps of a log from which it is settled whether its rotated parts belong to it (ours)."""

TEE = "TRAINING 2>&1 | tee train.log, and beside it rlclinic watch train.log"
"""What to do with a log that goes into a pipe."""


class Source:
    """The run in ``paths``, read with the ``options`` of ``readers.read`` whenever it is asked for."""

    def __init__(self, paths: Sequence[str], options: Mapping[str, Any]) -> None:
        self.paths, self._options = tuple(paths), dict(options)
        self._pieces: tuple[rotated.Mark, Run | None] | None = None
        self._sure: object = None
        """The rotated parts, and the place of the log, that are known to be of one run; its name is ``_name``."""
        self._name = ""

    def read(self) -> Run:
        """The run as it stands. Raises what ``readers.read`` raises, and CannotRead for what cannot grow."""
        for one in self.paths:
            if not is_address(one) and exists(one) and not (os.path.isfile(one) or os.path.isdir(one)):
                # A pipe would be waited for, and what was read once is gone.
                raise CannotRead("files or a directory that grow", f"{one} is neither", hint=TEE)
        if len(self.paths) > 1 or is_address(self.paths[0]):
            return read(self.paths, **self._options)
        path = Path(self.paths[0])
        return self._directory() if path.is_dir() else self._file(path)

    def _file(self, path: Path) -> Run:
        older = rotated.siblings(path) if plain(path) else []
        sure = (rotated.mark(older), rotated.place(path))
        if older and self._sure == sure:  # once it went on where they end, it does until it is rotated again
            return self._with_parts(older, path, self._options)
        try:
            alone = read(self.paths, **self._options)
        except CannotRead:
            if not older:
                raise
            self._name = path.stem
            return self._with_parts(older, path, self._options)
        if not older or not self._follows(older, alone):
            return alone
        self._sure, self._name = sure if len(alone.steps) >= SURE else None, alone.name
        return self._with_parts(older, path, self._options)

    def _directory(self) -> Run:
        alone = read(self.paths, **self._options)
        logs = [Path(one.path) for one in alone.sources if one.role == "metrics"]
        older = rotated.siblings(logs[0]) if len(logs) == 1 and plain(logs[0]) else []
        if not older or not self._follows(older, alone):
            return alone
        beside = {role: [one.path for one in alone.sources if one.role == role] for role in ("configuration", ROLLOUTS)}
        options = dict(self._options)
        options["config"] = [*beside["configuration"], *options.get("config", ())]
        options["rollouts"] = options.get("rollouts") or beside[ROLLOUTS]
        self._name = alone.name
        return self._with_parts(older, logs[0], options)

    def _with_parts(self, older: Sequence[Path], path: Path, options: Mapping[str, Any]) -> Run:
        """The run of the log ``path`` and its rotated parts, read as the one text that they were."""
        whole = read(["-"], **options, stdin=rotated.joined([*older, path]))
        sources = [
            model.Source(str(path), one.format, one.rows, one.nonfinite, one.role) if one.path == "-" else one
            for one in whole.sources
        ]
        says = f"read with its rotated parts: {', '.join(one.name for one in older[-3:])}"
        says += f" and {len(older) - 3} more" if len(older) > 3 else ""
        return replace(
            whole,
            name=self._name,
            sources=tuple(sources),
            warnings=(*whole.warnings, Warn("rotated", says)),
            checkpoints=checkpoints([path]),
        )

    def _follows(self, older: Sequence[Path], now: Run) -> bool:
        """Whether ``now`` goes on where the rotated pieces end, rather than being a run of its own."""
        if not len(now.steps):
            return True
        seen = rotated.mark(older)
        if self._pieces is None or self._pieces[0] != seen:
            try:
                self._pieces = (seen, read(["-"], **self._options, stdin=rotated.joined(older)))
            except CannotRead:
                self._pieces = (seen, None)
        before = self._pieces[1]
        begin = None if before is None else beginning(before)
        if before is None or begin is None:
            return True  # a header, or an error before the first step
        return recounted(before, now) is not None or kinship(begin, now) == "goes on"


def is_address(path: str) -> bool:
    """Whether ``path`` is an address of a server rather than a place on the disk."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.\-]{0,30}://", path) is not None


def exists(path: str) -> bool:
    """Whether something is there; False for a name that no file system takes."""
    try:
        return os.path.exists(path)
    except ValueError:
        return False


def plain(path: Path) -> bool:
    """True for a text that may be cut into pieces: a file (or none at this moment) that is no database and no tracker's."""
    try:
        return not path.is_dir() and path.suffix not in (".wandb", ".swanlab", ".db", ".sqlite", ".zip", ".parquet")
    except OSError:
        return False
