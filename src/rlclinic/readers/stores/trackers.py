"""The runs that MLflow and Trackio keep on disk: SQLite databases and MLflow's tree of files."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.axis import STANDING, STEP_KEYS
from rlclinic.readers.choice import chosen
from rlclinic.readers.config import SETTINGS, VALUE_LENGTH, setting
from rlclinic.readers.rows import KEY_COUNT, Log, Nonfinite, Rows
from rlclinic.readers.stores.database import Database, read_database
from rlclinic.readers.tabular.records import trains
from rlclinic.readers.tokens import metric_like
from rlclinic.readers.written import Points, log_of

INFINITE = 1.7976931348623157e308
"""What MLflow's SQL store puts for an infinity (``sanitize_metric_value`` of its store)."""
RUNS = 5_000
"""Most runs looked at in one source (ours)."""
SAMPLED = 5_000
"""Rows of a Trackio run from which its step axis is told (ours)."""
VALUES_FILE = 256 << 20
"""Most bytes read of one metric file of an MLflow tree (ours: ten million values)."""

_STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
_BROKEN = ("FAILED", "KILLED")
_AXES = tuple(key for key in STEP_KEYS if key not in ("_step", "Step", "global_step/max_steps"))


@dataclass
class _Run:
    """One run of a tracker: how it is called, what it states beside its metrics."""

    id: str
    name: str
    group: str = ""
    status: str = ""
    begun: int = 0
    settings: dict[str, object] = field(default_factory=dict)


def read_tracker(stream: IO[bytes], path: str, run: str | None = None) -> Log:
    """One run of an MLflow or Trackio database. Raises CannotRead for others, and where several runs are there and
    ``run`` (a name, or an id or its beginning) names none."""

    def read(database: Database) -> Log:
        if database.has("metrics", "run_name", "step", "metrics"):
            return _trackio(database, run)
        if database.has("metrics", "key", "value", "timestamp", "run_uuid") and database.has("runs", "run_uuid"):
            return _mlflow(database, run)
        if path.endswith("run_operations.sqlite3"):
            raise CannotRead(
                "a database of MLflow or Trackio",
                f"{path}: a run that Neptune kept for uploading, in a form that is not published",
                hint="give the console output or trainer_state.json of the run",
            )
        names = ", ".join(sorted(table.name for table in database.tables.values())[:8]) or "no tables"
        raise CannotRead(
            "a database of MLflow or Trackio",
            f"{path}: a SQLite database of another kind ({names})",
            hint="export the metrics as CSV: sqlite3 -csv -header FILE 'SELECT ...' > metrics.csv",
        )

    log: Log = read_database(stream, path, read)
    return log


# ---------------------------------------------------------------- MLflow, SQLite


def _mlflow(database: Database, wanted: str | None) -> Log:
    run = _picked(database.path, _mlflow_runs(database), wanted)
    columns = database.tables["metrics"].columns
    own_nan, stepped = "is_nan" in columns, "step" in columns
    shown = ("key", "value", "timestamp", "step" if stepped else "NULL", "is_nan" if own_nan else "0")
    points, known = Points(database.path), dict[object, int]()
    for batch in database.batches("metrics", shown, "run_uuid = ?", (run.id,)):
        _take(batch, points, known)
        if points.full:
            break
    if database.has("params", "key", "value", "run_uuid"):
        found = database.all(
            f"SELECT key, value FROM params WHERE run_uuid = ? LIMIT {SETTINGS}",
            (run.id,),
        )
        run.settings.update(_settings(found))
    return _log(database.path, "mlflow", points, run, "kept" if own_nan else "unknown", database.said)


def _take(batch: list[tuple[Any, ...]], points: Points, known: dict[object, int]) -> None:
    """Add rows of MLflow's table of metrics; ``known`` are the numbers of the keys so far, -1 for keys left out."""
    _, keys, values, times, steps, nans = zip(*batch, strict=True)
    for key in dict.fromkeys(keys):
        if key not in known:
            takes = isinstance(key, str) and not key.startswith("system/") and len(points.names) < KEY_COUNT
            known[key] = points.key(plain_key(key)) if takes else -1
    plain = set(map(type, values)) <= {int, float} and set(map(type, times)) <= {int, float}
    if not plain or not set(map(type, steps)) <= {int, type(None)} or not set(map(type, nans)) <= {int}:
        batch = [row for row in batch if _number(row[2]) is not None]  # SQLite keeps any type in any column
        values = tuple(row[2] for row in batch)
        keys, nans = tuple(row[1] for row in batch), tuple(row[5] in (1, "1") for row in batch)
        times, steps = (tuple(_whole(row[k]) or 0 for row in batch) for k in (3, 4))
    number = np.array(values, dtype=np.float64)
    number = np.where(np.abs(number) >= INFINITE, np.copysign(np.inf, number), number)
    number[np.array(nans, dtype=bool)] = np.nan
    place = np.array([known[key] for key in keys], dtype=np.int64)
    step = np.array([0 if step is None else step for step in steps], dtype=np.int64)
    took = place >= 0
    points.extend(place[took], step[took], np.array(times, dtype=np.float64)[took] / 1000, number[took])


def _mlflow_runs(database: Database) -> list[_Run]:
    """The runs with metrics that nobody has deleted, oldest first."""
    latest = "latest_metrics" if database.has("latest_metrics", "key", "run_uuid") else "metrics"
    keys: dict[str, list[str]] = {}
    for run, key in database.all(f"SELECT DISTINCT run_uuid, key FROM {latest} LIMIT {RUNS * 100}"):
        if isinstance(key, str) and not key.startswith("system/"):
            keys.setdefault(str(run), []).append(key)
    columns = database.tables["runs"].columns
    wanted = ("run_uuid", "name", "status", "lifecycle_stage", "experiment_id", "start_time")
    chosen_columns = ", ".join(name if name in columns else "NULL" for name in wanted)
    listed = database.all(f"SELECT {chosen_columns} FROM runs ORDER BY rowid LIMIT {RUNS}")
    groups: dict[object, str] = {}
    gone: set[object] = set()
    if database.has("experiments", "experiment_id", "name"):
        stage = "lifecycle_stage" if "lifecycle_stage" in database.tables["experiments"].columns else "NULL"
        for number, name, state in database.all(f"SELECT experiment_id, name, {stage} FROM experiments LIMIT {RUNS}"):
            groups[number] = str(name)
            if state == "deleted":
                gone.add(number)
    named: dict[str, str] = {}
    if database.has("tags", "key", "value", "run_uuid"):
        named = {
            str(run): str(value)
            for run, value in database.all(
                f"SELECT run_uuid, value FROM tags WHERE key = 'mlflow.runName' LIMIT {RUNS}"
            )
        }
    alive = sorted(
        (row for row in listed if row[3] != "deleted" and row[4] not in gone), key=lambda r: _whole(r[5]) or 0
    )
    runs = [
        _Run(
            id=str(identity),
            name=named.get(str(identity)) or str(name or "") or str(identity),
            group=groups.get(experiment, ""),
            status=str(status or ""),
        )
        for identity, name, status, _, experiment, _ in alive
    ]
    return _training(runs, keys)


# ---------------------------------------------------------------- MLflow, tree of files


def is_mlflow_run(path: Path) -> bool:
    """True for a directory of MLflow's file store: one run, an experiment, ``mlruns``, or the directory around it."""
    return next(_run_folders(path), None) is not None


def read_mlflow_tree(path: Path, run: str | None = None) -> Log:
    """One run of MLflow's file store, from any of the directories that ``is_mlflow_run`` accepts.

    Raises CannotRead where several runs are there and ``run`` (a name, or an id or its beginning) names none.
    """
    folders: dict[str, Path] = {}
    runs: list[_Run] = []
    keys: dict[str, list[str]] = {}
    for folder in _run_folders(path):
        meta = _meta(folder)
        if meta.get("lifecycle_stage") == "deleted" or len(folders) >= RUNS:
            continue
        identity = meta.get("run_id") or meta.get("run_uuid") or folder.name
        name = _text(folder / "tags" / "mlflow.runName") or meta.get("run_name") or identity
        status = _STATUS.get(meta.get("status", ""), meta.get("status", ""))
        group = _meta(folder.parent).get("name", "")
        runs.append(
            _Run(identity, name, group, status, begun=_whole(_printed(meta.get("start_time", "").encode())) or 0)
        )
        folders[identity] = folder
        keys[identity] = [key for key, _ in files_below(folder / "metrics") if not key.startswith("system/")]
    runs.sort(key=lambda one: one.begun)
    picked = _picked(str(path), _training(runs, keys), run)
    folder = folders[picked.id]
    points, said = Points(str(folder)), list[Warn]()
    torn = broken = 0
    for key, file in files_below(folder / "metrics"):
        if key.startswith("system/"):
            continue
        try:
            with file.open("rb") as stream:
                text = stream.read(VALUES_FILE + 1)
        except OSError as error:
            raise CannotRead("a metric file", f"{file}: {error.strerror or error}") from error
        if len(text) > VALUES_FILE:
            found = f"{file}: more than {VALUES_FILE >> 20} MiB in one metric"
            raise CannotRead("a metric file of bounded size", found, hint="export every tenth step as CSV")
        place = points.key(plain_key(key))
        *lines, rest = text.split(b"\n")
        torn += bool(rest.strip())
        for line in lines:
            fields = line.split()
            value = _printed(fields[1]) if len(fields) in (2, 3, 5) else None
            at = _printed(fields[0]) if value is not None else None
            step = _printed(fields[2]) if len(fields) > 2 else 0.0
            if value is None or at is None or step is None:
                broken += bool(fields)
                continue
            points.add(place, _whole(step) or 0, (_whole(at) or 0) / 1000, value)
    if torn:
        said.append(Warn("torn_record", f"{torn} metric files end inside a line; everything before it is read"))
    if broken:
        says = f"{broken} lines of metric files hold something other than a time, a value and a step; they were skipped"
        said.append(Warn("broken_lines", says))
    picked.settings.update(_settings((key, _text(file)) for key, file in files_below(folder / "params")))
    return _log(str(folder), "mlflow", points, picked, "kept", said)


def _run_folders(path: Path) -> Iterator[Path]:
    """The run directories at or below ``path``, at most three levels down."""
    if _is_run(path):
        yield path
        return
    below = path / "mlruns" if (path / "mlruns").is_dir() else path
    experiments = [below] if (below / "meta.yaml").is_file() else [one for one in _folders(below) if _is_group(one)]
    for experiment in experiments:
        yield from (one for one in _folders(experiment) if _is_run(one))


def _is_run(path: Path) -> bool:
    return (path / "meta.yaml").is_file() and (path / "metrics").is_dir() and (path / "params").is_dir()


def _is_group(path: Path) -> bool:
    return path.name not in (".trash", "models") and (path / "meta.yaml").is_file()


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return sorted(Path(one.path) for _, one in zip(range(RUNS), entries, strict=False) if one.is_dir())
    except OSError:
        return []


def files_below(top: Path, ending: str = "") -> Iterator[tuple[str, Path]]:
    """Key and file of everything below ``top`` whose name has the ``ending``; slashes in a key are directories."""
    taken = 0
    for place, folders, names in os.walk(top, followlinks=False):
        folders.sort()
        for name in sorted(names):
            file = Path(place) / name
            if name.endswith(ending) and taken < KEY_COUNT and file.is_file():
                taken += 1
                yield file.relative_to(top).as_posix().removesuffix(ending), file


def _meta(folder: Path) -> dict[str, str]:
    """The plain ``key: value`` lines of a ``meta.yaml``."""
    pairs = (line.split(":", 1) for line in _text(folder / "meta.yaml").splitlines() if ":" in line)
    return {key.strip(): value.strip().strip("'\"") for key, value in pairs}


def _text(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as stream:
            return stream.read(VALUE_LENGTH * 4).decode("utf-8", "replace").strip()
    except OSError:
        return ""


# ---------------------------------------------------------------- Trackio


def _trackio(database: Database, wanted: str | None) -> Log:
    known = "run_id" in database.tables["metrics"].columns
    identity = "run_id" if known else "run_name"
    counted = database.all(
        f"SELECT {identity}, run_name, COUNT(*) FROM metrics GROUP BY {identity}, run_name"
        f" ORDER BY MIN(rowid) LIMIT {RUNS}"
    )
    run = _picked(database.path, [_Run(str(one), str(name)) for one, name, _ in dict.fromkeys(counted)], wanted)
    axis = _trackio_axis(database, identity, run)
    calls = _Calls(axis)
    broken = 0
    found = database.batches("metrics", ("step", "metrics"), f"{identity} = ?", (run.id,))
    for _, step, held in itertools.chain.from_iterable(found):
        row = _decoded(held)
        if row is None:
            broken += 1
        else:
            calls.take(row, _whole(step))
    rows = calls.close()
    said = list(database.said)
    if broken:
        said.append(Warn("broken_lines", f"{broken} rows hold something other than a JSON object; they were skipped"))
    if not rows.rows or not trains(rows):
        raise CannotRead(
            "a run with training metrics",
            f"{database.path}: the run {run.name} has {rows.rows} rows without any",
            hint="give the log of the trainer",
        )
    if database.has("configs", identity, "config"):
        for (held,) in database.all(f"SELECT config FROM configs WHERE {identity} = ? LIMIT 20", (run.id,)):
            config = _decoded(held) or {}
            own = (key for key in config if not key.startswith("_") or key == "_name_or_path")  # else Trackio's own
            run.settings.update((key, config[key]) for _, key in zip(range(SETTINGS), own, strict=False))
    log = rows.finish(path=database.path, format="trackio", nonfinite="kept", warnings=said)
    return _with_run(log, run)


def _trackio_axis(database: Database, identity: str, run: _Run) -> str | None:
    """The key that holds the training step, where calls with most of the values state one.

    Trackio's own ``step`` counts the calls when the trainer names no step, and timers call it several times a step.
    """
    values, states = 0, dict[str, Counter[object]]()
    covered: Counter[str] = Counter()
    found = database.batches("metrics", ("metrics",), f"{identity} = ?", (run.id,))
    for _, held in itertools.islice(itertools.chain.from_iterable(found), SAMPLED):
        row = _decoded(held) or {}
        values += len(row)
        for key in _AXES:
            if key in row and isinstance(row[key], (int, float)):
                states.setdefault(key, Counter())[row[key]] += 1
                covered[key] += len(row)
    for key in _AXES:
        seen = states.get(key, Counter())
        if 2 * covered[key] > values and (len(seen) > 1 or sum(seen.values()) <= STANDING):
            return key
    return None


class _Calls:
    """Log calls, several of which may belong to one training step, as rows of one step each.

    A call that states no training step belongs to the last one stated (evaluations and timings follow their step).
    """

    def __init__(self, axis: str | None) -> None:
        self._axis = axis
        self._rows = Rows()
        self._row: dict[str, object] = {}
        self._step: float | None = None

    def take(self, call: Mapping[str, object], step: int | None) -> None:
        """Take one call; ``step`` is the tracker's own count."""
        at, own = (step, True) if self._axis is None else (self._step, False)
        stated = call.get(self._axis) if self._axis is not None else None
        if isinstance(stated, (int, float)) and not isinstance(stated, bool):
            at, own = float(stated), True
        known = self._row
        clash = own and any(key in known and known[key] != value for key, value in call.items() if key not in _AXES)
        if self._row and (clash or (at != self._step and self._step is not None)):
            self._flush()
        self._step = at
        self._row.update(call)

    def _flush(self) -> None:
        self._rows.add({key: value for key, value in self._row.items() if key != self._axis}, self._step)
        self._row = {}

    def close(self) -> Rows:
        """The rows of all calls taken."""
        if self._row:
            self._flush()
        return self._rows


def _decoded(held: object) -> dict[str, object] | None:
    """A JSON object in a cell, text or blob."""
    if not isinstance(held, (str, bytes)):
        return None
    try:
        row = json.loads(held)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


# ---------------------------------------------------------------- common to both


def _training(runs: list[_Run], keys: Mapping[str, list[str]]) -> list[_Run]:
    """The runs that logged a training metric, or where none did those that logged any."""
    held = [run for run in runs if keys.get(run.id)]
    return [run for run in held if metric_like(keys[run.id])] or held


def _picked(path: str, runs: list[_Run], wanted: str | None) -> _Run:
    """The run that ``wanted`` names by its name or id, or the only one."""
    if not runs:
        raise CannotRead("a run with metrics", f"{path}: no run in it has any", hint="give the log of the trainer")
    named = Counter(run.name for run in runs)
    grouped = Counter((run.group, run.name) for run in runs)
    labels: dict[str, _Run] = {}
    for run in runs:
        label = run.name
        if named[run.name] > 1:
            alone = run.group and grouped[run.group, run.name] == 1
            label = f"{run.group}/{run.name}" if alone else f"{run.name} {run.id[:8]}"
        labels[label if label not in labels else f"{run.name} {run.id}"] = run
    if wanted and named[wanted] > 1:
        several = [label for label, one in labels.items() if one.name == wanted]
        raise CannotRead("one run", f"{path}: {len(several)} runs called {wanted}", several, f"--run '{several[-1]}'")
    if wanted and len(wanted) >= 6:
        meant = [run for run in runs if run.id.startswith(wanted)]
        if len(meant) == 1 and wanted not in labels:
            return meant[0]
    hint = f"--run '{next(reversed(labels))}' (the last one that was started)"
    return labels[chosen(path, labels, wanted, hint=hint)]


def _log(path: str, form: str, points: Points, run: _Run, nonfinite: Nonfinite, said: Iterable[Warn]) -> Log:
    found = f"the run {run.name} has {len(points.names)} metrics, none of training"
    return _with_run(log_of(points, path, form, nonfinite, said, found=found), run)


def plain_key(key: str) -> str:
    """A key as the trainer wrote it: MLflow takes no ``@``, for which trainers put ``_at_`` (``mean_at_8``).

    ``pass_at_8`` stays, since some trainers spell it so themselves; the tables know both.
    """
    return re.sub(r"(?<!pass)_at_(?=\d{1,6}(?:/|$))", "@", key) if "_at_" in key else key


def _with_run(log: Log, run: _Run) -> Log:
    """The log with what the tracker states about its run."""
    version = run.settings.get("transformers_version")
    ending = f"{log.format} says that the run {'was killed' if run.status == 'KILLED' else 'failed'}"
    return replace(
        log,
        config=run.settings,
        versions={"transformers": version} if isinstance(version, str) else {},
        facts={"run": run.name, **({"status": run.status} if run.status else {})},
        ending=ending if run.status in _BROKEN else "",
    )


def _settings(pairs: Iterable[tuple[object, object]]) -> dict[str, object]:
    """Parameters as settings: trainers that flatten a nested configuration put slashes where a file has dots."""
    found: dict[str, object] = {}
    for key, value in pairs:
        if isinstance(key, str) and isinstance(value, str) and len(value) <= VALUE_LENGTH and len(found) < SETTINGS:
            found[key.replace("/", ".")] = setting(value)
    return found


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _printed(text: bytes) -> float | None:
    try:
        return float(text) if len(text) < 60 and b"_" not in text else None
    except ValueError:
        return None


def _whole(value: object) -> int | None:
    """A step or a time as a whole number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return int(value)
