"""Saved answers beside a run that goes on: read again when their files changed, where the training does not wait for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlclinic.model import Run
from rlclinic.readers import Saved, saved_answers

FILES = 20_000
"""Most files looked at to see whether one changed (ours)."""


class Answered:
    """The saved answers in ``paths``, files or folders that may come up later.

    ``later`` does a piece of work beside the training; ``share`` is the most of the time that reading may take of it.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        config: Mapping[str, Any],
        later: Callable[[Callable[[], None]], bool],
        share: float | None,
    ) -> None:
        self._paths, self._config, self._later, self._share = [Path(path) for path in paths], config, later, share
        self.saved: Saved | None = None
        """What was read last; None before anything was."""
        self._stamp: tuple[tuple[str, int, int], ...] = ()
        self._busy, self._not_before = False, 0.0

    def refresh(self, run: Run) -> None:
        """Have the answers read, for the looks after this one, where they changed; ``run`` is what is known of it."""
        if not self._paths or self._busy or time.monotonic() < self._not_before:
            return
        self._busy = True
        if not self._later(lambda: self._beside(run)):
            self._busy = False

    def read(self, run: Run) -> None:
        """Read the answers where they changed. Raises what the reader raises."""
        stamp = tuple(self._files()) if self._paths else ()
        if stamp and stamp != self._stamp:
            self.saved = saved_answers(run, [path for path in self._paths if path.exists()], self._config)
            self._stamp = stamp

    def _beside(self, run: Run) -> None:
        began = time.thread_time()
        try:
            self.read(run)
        finally:
            spent = time.thread_time() - began
            self._not_before = 0.0 if not self._share else time.monotonic() + spent / self._share
            self._busy = False

    def _files(self) -> Iterator[tuple[str, int, int]]:
        """(path, time of change, bytes) of each file there is."""
        looked = 0
        for path in self._paths:
            inside = (
                (Path(folder) / name for folder, _, names in sorted(os.walk(path)) for name in sorted(names))
                if path.is_dir()
                else iter([path])
            )
            for one in inside:
                looked += 1
                if looked > FILES:
                    return
                try:
                    found = one.stat()
                except OSError:
                    continue
                yield str(one), found.st_mtime_ns, found.st_size
