"""What the columns of a table mean: a metric each, one value a line, the curves of a chart, or one row for each run."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.names.rows import frameworks, load
from rlclinic.readers.choice import chosen
from rlclinic.readers.owners import RUN_IDS, RUN_NAMES, Owners
from rlclinic.readers.rows import Inferred, Log, Nonfinite, Rows
from rlclinic.readers.tokens import KEY_LENGTH, Printed, metric_like, number
from rlclinic.readers.written import Points, gather

SETTINGS = 5_000
"""Most values without a step that are taken for settings (ours)."""
UNDERSCORES = 10
"""Most underscores of a file name that are tried as the slashes of a metric (ours: the longest known tag has eight)."""
_MAYBE_RUNS = ("seed", "trial")
_TABLE_NAMES = ("name", "display_name", *RUN_NAMES)
_STATES = frozenset({"state", "status", "created", "start_time", "runtime", "duration", "sweep", "user"})
_KEYS = ("metric_name", "metricname", "metric", "key", "tag", "attribute_path", "variable", "name")
_VALUES = ("value", "metric_value", "metricvalue", "float_value")
_TIMES = ("timestamp", "wall_time")
_STEPS = ("step", "global_step", "_step", "iteration", "index")
_LONE = frozenset({"wall_time", "step", "value", "timestamp", "index", "relative_time", "time", "date"})
_AXIS = r"(?i)step|(?:train/|trainer/)?(?:global[_ ])?_?step|relative time.{0,40}|wall ?time|_runtime|_timestamp|epoch"
_TIME_AXIS = r"(?i)relative time.{0,40}|wall ?time|_runtime|_timestamp"
_CHART_METRIC = r"[\w/@.()%+# -]{1,190}"
_OWNED = rf"[^\n]{{1,300}} - {_CHART_METRIC}"
_TENSORBOARD = r"run-(.{1,200}?)-tag-(.{1,200})"
_COPY = r"\s?\(\d{1,3}\)$"
_VALIDATION = r"val-(?:core|aux)/"


def plain(cell: str) -> str:
    """A column name as it is compared: lower case, with underscores for spaces."""
    return re.sub(r"[\s_]+", "_", cell.strip().lower()[:200])


@dataclass(frozen=True)
class Columns:
    """The columns of a table by number: what each metric is called, and which of them tell the run, key and value."""

    form: str
    """``wide`` (a column for each metric), ``long`` (a value a line), ``chart`` (exported curves) or ``lone`` (one)."""
    metrics: Mapping[int, str]
    run: int | None = None
    run_id: int | None = None
    doubtful: bool = False
    """True when the column of runs may be a mere setting (a seed)."""
    key: int | None = None
    value: int | None = None
    step: int | None = None
    time: int | None = None
    bounds: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The columns of the lowest and highest value that a point of a chart stands for."""
    label: str = ""
    """The run whose curves were chosen in a chart, or that the file name tells."""
    axis: str = ""
    """The horizontal axis of a chart."""

    @property
    def nonfinite(self) -> Nonfinite:
        """What the writer does with NaN and infinities, where the columns tell who it was: TensorBoard's download and
        MLflow's page print them (from their sources)."""
        mlflow = self.form == "long" and self.run_id is not None and self.time is not None
        return "kept" if mlflow or (self.form == "lone" and self.time is not None) else "unknown"


def understood(header: Sequence[str], path: str, run: str | None = None) -> Columns:
    """The meaning of the columns; ``run`` names one of several runs in a chart.

    Raises CannotRead for a chart of several runs when none of them is named.
    """
    place = {plain(cell): at for at, cell in reversed(list(enumerate(header)))}
    key = next((place[name] for name in _KEYS if name in place), None)
    value = next((place[name] for name in _VALUES if name in place), None)
    step = next((place[name] for name in _STEPS if name in place), None)
    time = next((place[name] for name in _TIMES if name in place), None)
    named = next((place[name] for name in RUN_NAMES if name in place), None)
    numbered = next((place[name] for name in RUN_IDS if name in place), None)
    if key is not None and value is not None:
        if named is None and numbered is not None:
            named = place.get("group")
        if named is None and key != place.get("name"):
            named = place.get("name")
        return Columns("long", {}, named, numbered, key=key, value=value, step=step, time=time)
    if place.keys() <= _LONE and value is not None and step is not None:
        owner, metric = _told_by_name(path)
        return Columns("lone", {value: metric}, value=value, step=step, time=time, label=owner)
    curves = _chart(header, path, run) or _swanlab(header, path, run)
    if curves is not None:
        return curves
    if named is None and is_list(place):
        named = next((place[name] for name in _TABLE_NAMES if name in place), None)
    doubtful = named is None and numbered is None
    if doubtful:
        named = next((place[name] for name in _MAYBE_RUNS if name in place), None)
    metrics = {
        at: cell
        for at, cell in enumerate(header)
        if cell and (doubtful or at not in (named, numbered)) and not re.fullmatch(r"Unnamed: \d{1,4}", cell)
    }
    return Columns("wide", metrics, named, numbered, doubtful=doubtful and named is not None)


def is_axis(cell: str) -> bool:
    """True for the name of a chart's horizontal axis."""
    return re.fullmatch(_AXIS, cell) is not None


def is_curve(cell: str) -> bool:
    """True for the column of a chart: ``RUN - METRIC``."""
    return re.fullmatch(_OWNED, cell) is not None


def is_lone(cells: Iterable[str]) -> bool:
    """True for the header of one metric that only the file name tells (TensorBoard's download)."""
    found = {plain(cell) for cell in cells}
    return found <= _LONE and "value" in found and bool(found & {"step", "index"})


def is_list(cells: Iterable[str]) -> bool:
    """True for the header of a list of runs: a name, what became of it, and anything else."""
    found = {plain(cell) for cell in cells}
    fate = found & _STATES
    return bool(found & set(_TABLE_NAMES)) and (len(fate) > 1 or bool(fate & {"state", "status"}))


def is_long(cells: Iterable[str]) -> bool:
    """True for the header of a table with one value a line."""
    found = {plain(cell) for cell in cells}
    return bool(found & set(_KEYS)) and bool(found & set(_VALUES))


def _chart(header: Sequence[str], path: str, run: str | None) -> Columns | None:
    """The curves of a W&B chart: its axis, then ``RUN - METRIC`` with ``__MIN`` and ``__MAX`` beside it for each run.

    A run's name may hold `` - `` itself, a metric hardly ever does. The page of a single run leaves its name out.
    """
    place = {cell: at for at, cell in enumerate(header)}
    curves = {at: cell for at, cell in enumerate(header) if not cell.endswith(("__MIN", "__MAX"))}
    bounded = len(curves) < len(header)
    first, *others = curves
    pairs = {at: (owner, metric) for at in others for owner, dash, metric in [curves[at].rpartition(" - ")] if dash}
    if not bounded:
        metrics = [metric for _, metric in pairs.values()]
        alike = len({owner for owner, _ in pairs.values()}) == 1 or len(set(metrics)) < len(metrics)
        if not (is_axis(header[0]) and len(pairs) == len(header) - 1 and alike and metric_like(metrics)):
            return None
    owners = list(dict.fromkeys(owner for owner, _ in pairs.values()))
    mine = _named(path, owners, run) if owners else ""
    taken = {at: metric for at, (owner, metric) in pairs.items() if owner == mine}
    taken |= {at: curves[at] for at in others if at not in pairs}
    bounds = {
        at: (place[f"{header[at]}__MIN"], place[f"{header[at]}__MAX"])
        for at in taken
        if {f"{header[at]}__MIN", f"{header[at]}__MAX"} <= place.keys()
    }
    axis = curves[first]
    steps = {} if re.fullmatch(_TIME_AXIS, axis) else {first: axis}
    return Columns("chart", {**steps, **taken}, bounds=bounds, label=mine, axis=axis)


def _named(path: str, owners: list[str], run: str | None) -> str:
    """The chosen one of a chart's runs; a group is also found by its name alone."""
    grouped = {owner.split(": ", 1)[1]: owner for owner in owners if ": " in owner}
    if run is not None and run not in owners and run in grouped:
        return grouped[run]
    return chosen(path, owners, run)


def _swanlab(header: Sequence[str], path: str, run: str | None) -> Columns | None:
    """The curves of SwanLab: ``step``, then ``EXPERIMENT-METRIC`` (a chart), with ``_step`` after the metric that holds the
    value and a ``_timestamp`` column beside it where its programming interface wrote the file."""
    if plain(header[0]) != "step" or len(header) < 2:
        return None
    timed = [cell for cell in header[1:] if cell.endswith("_timestamp")]
    curves = {at: cell for at, cell in enumerate(header) if at and not cell.endswith("_timestamp")}
    if timed:
        stems = {cell.removesuffix("_timestamp") for cell in timed}
        curves = {
            at: cell.removesuffix("_step") if cell.removesuffix("_step") in stems else cell
            for at, cell in curves.items()
        }
    if not curves or not all("-" in cell for cell in curves.values()) or _plain_table(curves.values(), bool(timed)):
        return None
    pairs = _split(list(curves.values()))
    if pairs is None or not metric_like(metric for _, metric in pairs):
        return None
    mine = chosen(path, (owner for owner, _ in pairs), run)
    taken = {at: metric for at, (owner, metric) in zip(curves, pairs, strict=True) if owner == mine}
    return Columns("chart", {0: "step", **taken}, label=mine, axis="step")


def _plain_table(cells: Iterable[str], timed: bool) -> bool:
    """True when hyphens belong to the metrics themselves, as in verl's ``val-core/...``."""
    return any(re.match(_VALIDATION, cell) for cell in cells) or not (timed or all("/" in cell for cell in cells))


def _split(cells: Sequence[str]) -> list[tuple[str, str]] | None:
    """(experiment, metric) of every column, None when one of them names no experiment."""
    pairs = [(cell[: _hyphen(cell)], cell[_hyphen(cell) + 1 :]) for cell in cells if _hyphen(cell) > 0]
    return pairs if len(pairs) == len(cells) else None


def _hyphen(cell: str) -> int:
    """Where the metric begins: after the last hyphen before its first slash."""
    validation = re.search(rf"-(?={_VALIDATION})", cell)
    if validation:
        return validation.start()
    slash = cell.find("/")
    return cell.rfind("-", 0, slash if slash > 0 else len(cell))


def _told_by_name(path: str) -> tuple[str, str]:
    """(run, metric) that a file name tells: ``run-NAME-tag-train_reward.csv`` as TensorBoard calls its downloads."""
    stem = re.sub(_COPY, "", PurePath(path).stem)
    found = re.fullmatch(_TENSORBOARD, stem)
    return (found[1], _slashed(found[2])) if found else ("", _slashed(stem))


def _slashed(tag: str) -> str:
    """The metric whose slashes a browser turned into underscores: of all spellings that a trainer writes the one with the
    most slashes, else only the leading ``train_`` or ``eval_`` is turned back."""
    head = next((word for word in ("train", "eval", "val", "test") if tag.startswith(f"{word}_")), "")
    rest = tag[len(head) + 1 :] if head else tag
    places = [at for at, letter in enumerate(rest) if letter == "_"][:UNDERSCORES]
    plainest = f"{head}/{rest}" if head else rest
    for many in reversed(range(min(4, len(places) + 1))):
        for chosen_ones in itertools.combinations(places, many):
            spelt = "".join("/" if at in chosen_ones else letter for at, letter in enumerate(rest))
            if _written(spelt):
                return f"{head}/{spelt}" if head else spelt
    return plainest


def _written(key: str) -> bool:
    """True for a key that a trainer writes, by the tables."""
    tables = [load(name) for name in frameworks() if name != "generic"]
    return any(key in table.exact or any(regex.fullmatch(key) for regex, _ in table.families) for table in tables)


@dataclass(frozen=True)
class Taken:
    """One run of a table with a value a line; values without a step, each given once, are its ``settings``."""

    rows: Rows
    label: str
    seams: Inferred | None
    settings: Mapping[str, object]


class LongTable:
    """A table with one value a line: the values of every run, by key and step, in the order of writing."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._owners = Owners()
        self._points: dict[int, Points] = {}
        self._counts: dict[tuple[int, int], int] = {}
        self._finest: dict[tuple[int, int], str] = {}
        self._notes = Rows()
        self._stepless: dict[int, dict[str, object]] = {}
        self._lost = 0

    def take(self, cells: Sequence[object], value: object) -> None:
        """One line; ``value`` is the number in it, or its printed form."""
        at = self._columns
        name = at.metrics.get(at.value or 0, "") if at.key is None else _text(cells, at.key)
        found = number(value) if isinstance(value, str) else value
        if not name or len(name) > KEY_LENGTH:
            return
        owner = self._owners.of(_text(cells, at.run), _text(cells, at.run_id))
        if not isinstance(found, (int, float)):
            self._notes.unread.other(name, value, 0)
            return
        points = self._points.get(owner)
        if points is None:
            points = self._points[owner] = Points(str(owner))
        key = points.key(name)
        if at.step is None:
            step: float | None = self._counts.get((owner, key), 0) + 1
            self._counts[owner, key] = int(step or 0)
        else:
            step = _number(cells[at.step])
        if step is None or not math.isfinite(step):
            settings = self._stepless.setdefault(owner, {})
            self._lost += name in settings or len(settings) >= SETTINGS
            if len(settings) < SETTINGS:
                settings[name] = found
            return
        wall = None if at.time is None else _number(cells[at.time])
        points.add(key, int(step), 0.0 if wall is None or not math.isfinite(wall) else wall, float(found))
        if isinstance(value, str) and len(value) > len(self._finest.get((owner, key), "")):
            self._finest[owner, key] = value

    def rows(self, path: str, run: str | None, said: list[Warn]) -> Taken:
        """The run that is meant. Raises CannotRead when there are several and none is named."""
        label, mine = self._columns.label, -1
        if len(self._owners):
            place, label = self._owners.chosen(path, run)
            mine = 0 if place is None else place
        rows = self._notes
        if self._lost:
            said.append(Warn("rows_without_step", f"{self._lost} values without a step are left out"))
        points = self._points.get(mine)
        seams, more = gather([] if points is None else [points], rows)
        said += more
        for (owner, key), token in self._finest.items():
            if points is not None and owner == mine:
                rows.note_printed(points.names[key], token)
        if self._columns.step is None:
            rows.forget_steps()
        return Taken(rows, label, Inferred(seams=seams) if seams else None, self._stepless.get(mine, {}))


def lone_points(document: object, path: str) -> tuple[str, str, Rows] | None:
    """(run, metric, rows) of TensorBoard's download as JSON, a list of [wall time, step, value]; None for anything else."""
    if not isinstance(document, list) or not all(
        isinstance(point, list) and len(point) == 3 and all(_number(one) is not None for one in point)
        for point in document
    ):
        return None
    owner, metric = _told_by_name(path)
    rows = Rows()
    for _, step, value in document:
        rows.add({metric: _number(value)}, _number(step))
    return owner, metric, rows


def _text(cells: Sequence[object], at: int | None) -> str:
    if at is None or cells[at] is None:
        return ""
    return str(cells[at])[:500].strip()


def _number(cell: object) -> float | None:
    if isinstance(cell, str):
        return number(cell.strip())
    return float(cell) if isinstance(cell, (int, float)) and not isinstance(cell, bool) else None


@dataclass
class Summaries:
    """A table with one row for each run (W&B's and MLflow's lists of runs), while it can still be one."""

    columns: Columns
    header: Sequence[str]
    cells: list[Sequence[object]] = field(default_factory=list)
    possible: bool = True

    def __post_init__(self) -> None:
        state = {plain(cell) for cell in self.header} & _STATES
        self.possible = not self.columns.doubtful and (
            self.columns.run is not None or (self.columns.run_id is not None and bool(state))
        )
        self._sure = bool(state)

    def note(self, cells: Sequence[object], owner: int, owners: Owners) -> None:
        """One more row: a run that appears twice has a history, not a summary."""
        if self.possible:
            self.possible = owner == len(self.cells) and len(owners) == owner + 1
            self.cells.append(cells)

    def found(self, owners: Owners) -> bool:
        """True when every row was that of another run, and no mere counter."""
        return (
            self.possible
            and bool(self.cells)
            and (self._sure or len(self.cells) > 1)
            and not owners.counting(len(self.cells))
        )

    def log(self, owners: Owners, path: str, run: str | None, said: Iterable[Warn]) -> Log:
        """The last values of the chosen run, its words and its plain numbers as settings. Raises CannotRead."""
        at, label = owners.chosen(path, run)
        row: dict[str, object] = {}
        settings: dict[str, object] = {}
        nested = any("/" in cell or cell.startswith("metrics.") for cell in self.columns.metrics.values())
        for place, name in self.columns.metrics.items():
            cell = self.cells[at or 0][place]
            if cell is None or cell == "" or plain(name) in _STATES or name.startswith("tags."):
                continue
            value = number(cell) if isinstance(cell, str) else cell
            bare = name.removeprefix("metrics.")
            if bare != name or (value is not None and "/" in name):
                row[bare] = Printed(cell) if isinstance(cell, str) else cell
            else:
                settings[name.removeprefix("params.")] = cell if value is None else value
                if value is not None and not nested:
                    row[name] = value
        rows = Rows()
        rows.add(row)
        if not metric_like(rows.keys):
            raise CannotRead(
                "a log with metrics", f"{path}: a list of runs without a training metric", hint="export the history"
            )
        warnings = [
            *said,
            Warn("summary_only", f"a list of runs: only the last value of each metric of {label} is known"),
        ]
        log = rows.finish(path=path, format="summary", warnings=warnings)
        return replace(log, config=settings, run=label)


def told(columns: Columns, unlike: int, rows: int) -> list[Warn]:
    """What a chart withholds: points that stand for several, and steps that its axis does not show."""
    said: list[Warn] = []
    if columns.form != "chart":
        return said
    if unlike:
        why = "a mean over a group of runs" if ": " in columns.label else "binned, smoothed or averaged over runs"
        says = f"in {unlike} of {rows} points the lowest and highest value differ: each stands for several ({why})"
        said.append(Warn("downsampled", says))
    if re.fullmatch(_TIME_AXIS, columns.axis):
        says = f"the axis of the chart is {columns.axis!r}: export it with Step as its axis to know the steps"
        said.append(Warn("rows_without_step", says))
    return said
