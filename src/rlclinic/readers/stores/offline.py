"""Runs kept on disk by trackers that mean to upload them: ClearML, DVCLive; and what can only be recognised."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.config import FILE_LIMIT, SETTINGS, VALUE_LENGTH, read_config, setting
from rlclinic.readers.rows import KEY_COUNT, Log, Nonfinite
from rlclinic.readers.stores.trackers import files_below
from rlclinic.readers.tokens import number
from rlclinic.readers.written import Points, log_of

LINE = 64 << 20
"""Longest line of ClearML's events in bytes (ours: a line holds all that gathered since the last flush)."""
TABLE = 64 << 20
"""Most bytes read of one DVCLive table (ours: two million rows)."""
SINGLE = -(1 << 31)
"""The iteration under which ClearML stores a value that has none (``report_single_value``)."""

_EVENT = (b'"variant"', b'"metric"', b'"iter"')


# ---------------------------------------------------------------- ClearML


def is_clearml(head: bytes) -> bool:
    """True when a file begins as the ``metrics.jsonl`` of a ClearML offline session: lists of events, one a line."""
    start = head.lstrip()[:4096]
    return start.startswith(b'[{"') and all(mark in start for mark in _EVENT)


def read_clearml(stream: IO[bytes], path: str, about: bytes = b"") -> Log:
    """The scalars of a ClearML offline session; ``about`` is its ``task.json`` when it is not beside the file ``path``.

    Title and series make the key (``train/reward``). ClearML has written 0 for NaN and infinities. Raises CannotRead
    without a training metric.
    """
    points, said = Points(path), list[Warn]()
    broken = 0
    stream.seek(0)
    while line := stream.readline(LINE):
        try:
            events = json.loads(line)
        except (ValueError, RecursionError):
            broken += bool(line.strip())
            continue
        for event in events if isinstance(events, list) else ():
            _event(event, points)
    if broken:
        said.append(
            Warn("broken_lines", f"{broken} lines hold something other than a list of events; they were skipped")
        )
    said.append(Warn("nan_as_zero", "ClearML writes 0 in the place of NaN and infinities: a 0 here may have been one"))
    settings, facts = _task(about or _beside(path))
    return _finished(points, path, "clearml", "filtered", said, settings, facts)


def _event(event: object, points: Points) -> None:
    if not isinstance(event, dict) or event.get("type") != "training_stats_scalar":
        return
    title, series, step, value = (event.get(name) for name in ("metric", "variant", "iter", "value"))
    if not isinstance(title, str) or not isinstance(series, str) or title.startswith(":monitor:") or step == SINGLE:
        return
    at = event.get("timestamp")
    if isinstance(value, (int, float)) and isinstance(step, int) and len(points.names) < KEY_COUNT:
        wall = float(at) / 1000 if isinstance(at, (int, float)) else 0.0
        points.add(points.key(f"{title}/{series}"), step, wall, float(value))


def _beside(path: str) -> bytes:
    try:
        with Path(path).with_name("task.json").open("rb") as stream:
            return stream.read(FILE_LIMIT)
    except (OSError, ValueError):
        return b""


def _task(about: bytes) -> tuple[dict[str, object], dict[str, str]]:
    """The connected parameters and the name of the task."""
    try:
        task = json.loads(about or b"{}")
    except (ValueError, RecursionError):
        return {}, {}
    settings: dict[str, object] = {}
    sections = task.get("hyperparams") if isinstance(task, dict) else None
    for section in sections.values() if isinstance(sections, dict) else ():
        for name, held in section.items() if isinstance(section, dict) else ():
            value = held.get("value") if isinstance(held, dict) else None
            if isinstance(value, str) and len(value) <= VALUE_LENGTH and len(settings) < SETTINGS:
                settings[name.replace("/", ".")] = setting(value)
    name = task.get("name") if isinstance(task, dict) else None
    return settings, {"run": name[:200]} if isinstance(name, str) and name else {}


# ---------------------------------------------------------------- DVCLive


def is_dvclive(path: Path) -> bool:
    """True for the directory of a DVCLive run (``dvclive`` by default), which has a table for each metric."""
    return next(files_below(path / "plots" / "metrics", ".tsv"), None) is not None


def read_dvclive(path: Path) -> Log:
    """The metrics and parameters of a DVCLive directory. Raises CannotRead without a training metric.

    The step of a table counts the calls of ``next_step``, which is not the training step where the trainer calls it at
    every log line.
    """
    points, said = Points(str(path)), list[Warn]()
    for key, file in files_below(path / "plots" / "metrics", ".tsv"):
        _table(file, points, points.key(key), said)
    settings: dict[str, object] = {}
    if (path / "params.yaml").is_file():
        try:
            settings = read_config(path / "params.yaml")
        except CannotRead as problem:
            said.append(Warn("source_left_out", f"params.yaml: {problem.found}"))
    return _finished(points, str(path), "dvclive", "kept", said, settings, {})


def _table(file: Path, points: Points, key: int, said: list[Warn]) -> None:
    try:
        with file.open("rb") as stream:
            text = stream.read(TABLE).decode("utf-8", "replace")
    except OSError as error:
        raise CannotRead("a table of DVCLive", f"{file}: {error.strerror or error}") from error
    if not text.endswith("\n"):
        said.append(Warn("torn_record", f"{file.name} ends inside a line; everything before it is read"))
        text = text[: text.rfind("\n") + 1]
    lines = csv.reader(text.splitlines(), delimiter="\t")
    header = next(lines, [])
    if "step" not in header or len(header) not in (2, 3):
        return
    step_at, value_at = header.index("step"), len(header) - 1
    time_at = header.index("timestamp") if "timestamp" in header else None
    try:
        for cells in lines:
            if len(cells) != len(header):
                continue
            step, value = number(cells[step_at]), number(cells[value_at])
            wall = number(cells[time_at]) if time_at is not None else None
            if step is not None and value is not None and math.isfinite(step):
                points.add(key, int(step), 0.0 if wall is None else wall / 1000, value)
    except csv.Error:
        said.append(Warn("broken_lines", f"{file.name} is no table from line {lines.line_num} on"))


# ---------------------------------------------------------------- recognised only


def recognised(path: Path) -> CannotRead | None:
    """The error that says what a directory of a tracker is that cannot be read without its own package, and what to do.

    None for any other directory.
    """
    if path.name == ".aim" or (path / ".aim").is_dir():
        repo = path.parent if path.name == ".aim" else path
        code = (
            "import pandas; from aim import Repo; pandas.concat(pandas.DataFrame({'run': m.run.hash, 'key': '/'.join(["
            "*map(str, m.context.to_dict().values()), m.name]), 'step': s, 'value': v}) for r in Repo('.').query_metrics()"
            ".iter_runs() for m in r for s, v in [m.values.sparse_numpy()]).to_csv('metrics.csv', index=False)"
        )
        return CannotRead(
            "a log that can be read without its tracker",
            f"{path}: a repository of Aim, whose store only Aim itself can open",
            hint=f'cd {repo} && python -c "{code}" (where aim is installed), then rlclinic diagnose metrics.csv',
        )
    if path.name == ".neptune" or (path / ".neptune").is_dir():
        return CannotRead(
            "a log that can be read without its tracker",
            f"{path}: runs that Neptune kept for uploading, in a form that is not published",
            hint="give the console output or trainer_state.json of the run; Neptune's servers closed in March 2026",
        )
    return None


def _finished(
    points: Points,
    path: str,
    form: str,
    nonfinite: Nonfinite,
    said: list[Warn],
    settings: dict[str, Any],
    facts: dict[str, str],
) -> Log:
    found = f"{len(points.names)} metrics of {form}, none of training"
    return replace(log_of(points, path, form, nonfinite, said, found=found), config=settings, facts=facts)
