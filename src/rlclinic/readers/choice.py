"""Which of the several runs in one source is meant."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from rlclinic.errors import CannotRead, nearest


def command(source: str | Path, run: str) -> str:
    """The whole command that reads one run of a source."""
    if str(source) in ("", "-"):
        return f"--run {shlex.quote(run)}"
    return f"rlclinic diagnose {shlex.quote(str(source))} --run {shlex.quote(run)}"


def chosen(path: str, runs: Iterable[str], run: str | None, *, hint: str = "") -> str:
    """The name of the run to read from a source that holds ``runs``: the only one, or the one that ``run`` names.

    ``run`` may be a whole name or the beginning that only one of them has. ``hint`` replaces the advice to use ``--run``.
    Raises CannotRead with the names when several are there and none (or none of them) is named: one after the other
    they would pass for a run and its restart.
    """
    names = list(dict.fromkeys(runs))
    if run is None:
        if len(names) == 1:
            return names[0]
        advice = hint or (command(path, sorted(names)[0]) if names else "")
        raise CannotRead("the log of one run", f"{path}: {len(names)} runs", choices=sorted(names), hint=advice)
    if run in names:
        return run
    begun = [name for name in names if run and name.startswith(run)]
    if len(begun) == 1:
        return begun[0]
    choices = begun or list(nearest(run, names)) or sorted(names)
    raise CannotRead(f"the run {run!r}", f"{path}: {len(names)} runs, none of that name", choices=choices)
