"""Metrics out of separated columns: CSV in its wide, long and exported forms, and pasted tables."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.records import refuse, trains
from rlclinic.readers.rows import Log, Rows
from rlclinic.readers.tokens import Commas, Printed, metric_like, number

SAMPLED = 500
"""Rows of a CSV from which its printed decimals are known (ours); later rows are read faster."""

MOST_RUNS = 1_000
"""Most runs of one table that are told apart (ours)."""

_LONG_FORM = frozenset({"key", "metric", "name", "tag", "metric_name"})
_LONG_VALUE = frozenset({"value", "metric_value"})
_RUN_COLUMNS = ("run", "run_name", "run_id", "experiment", "run name", "run id", "experiment_name")
_EXPORTED = r".{1,300} - [\w/@. ]{1,190}"
_EXPORT_AXIS = r"(?i)step|(?:train/)?(?:global[_ ])?_?step|relative time.*|wall ?time|_runtime|epoch"
_HEADER_CELL = r"[\w./@()%+ #-]{1,200}"
_VALUED = r"\s[-+]?\d+\.\d"
_RULE = r"[\s|:+=-]+"
_STEP_COLUMN = r"(?i)(?:train/|training/)?(?:global[_ ])?_?(?:step|steps|iter|iteration|epoch|update)"
_GAP = r"\s{2,}|\t"


def delimiter(header: str) -> str | None:
    """The delimiter of a CSV header, None when the line is no header of at least two columns."""
    best = max("\t;,", key=header.count)
    cells = [cell.strip().strip('"') for cell in header.split(best)]
    if (
        header.count(best) == 0
        or "{" in header
        or not all(cells[1:])
        or any(number(cell) is not None for cell in cells)
    ):
        return None
    exported = re.fullmatch(_EXPORT_AXIS, cells[0]) is not None
    if "__MIN" not in header and not all(
        re.fullmatch(_HEADER_CELL, cell) or (exported and re.fullmatch(_EXPORTED, cell)) for cell in cells[1:]
    ):
        return None
    if any(re.search(_VALUED, cell) for cell in cells):
        return None
    named = metric_like(cells) or {c.lower() for c in cells} & _LONG_FORM
    return best if named and all(len(cell) < 200 for cell in cells) else None


def read_csv(
    lines: Iterable[tuple[str, bool]], path: str, mark: str, said: Iterable[Warn] = (), *, run: str | None = None
) -> Log:
    """Separated columns: wide (one for each metric), long (run, step, key, value), or exported from W&B.

    ``run`` names one of several runs. Raises CannotRead without metrics, and naming the runs when none is chosen.
    """
    warnings = list(said)
    last = [True]

    def text() -> Iterator[str]:
        for line, ended in lines:
            last[0] = ended
            if line.strip():
                yield line + "\n"

    csv.field_size_limit(1 << 22)
    table = csv.reader(text(), delimiter=mark)
    try:
        header = [cell.strip().lstrip("\ufeff") for cell in next(table)]
    except (StopIteration, csv.Error) as error:
        raise refuse(path, "an empty table", "give the log of the run") from error
    lowered = {cell.lower() for cell in header}
    sheet: _Wide | _Long
    sheet = _Long(header, mark) if _LONG_FORM & lowered and _LONG_VALUE & lowered else _Wide(header, mark, path)
    broken = 0
    cells: list[str] | None = None

    def take(cells: list[str]) -> int:
        if len(cells) != len(header):
            return 1
        sheet.take(cells)
        return 0

    try:
        for following in table:
            if cells is not None:
                broken += take(cells)
            cells = following
    except csv.Error:
        broken += 1
    if cells is not None:
        if not last[0] and len(cells) <= len(header):
            warnings.append(
                Warn("cut_text", "the last line does not end; its last cell may be incomplete and is left out")
            )
            cells = [*cells[:-1], *[""] * (len(header) - len(cells) + 1)]
        broken += take(cells)
    rows = sheet.rows(path)
    if broken:
        warnings.append(Warn("broken_lines", f"{broken} lines do not have {len(header)} cells; skipped"))
    if broken and not rows.rows:
        raise refuse(
            path,
            f"a table of which no line has the {len(header)} cells of its header",
            "write decimal points for decimal commas, or put numbers with commas in quotes",
        )
    if not rows.rows or not trains(rows):
        raise refuse(
            path,
            f"a table of {len(header)} columns without a training metric",
            "give the table to which the trainer logs",
        )
    return rows.finish(path=path, format="csv", warnings=warnings)


def _one_run(path: str, runs: Iterable[str]) -> None:
    """Raises CannotRead when a table holds several runs: one after the other they would pass for a run and its restart."""
    names = sorted(runs)
    if len(names) > 1:
        raise CannotRead(
            "the table of one run",
            f"{path}: a table of {len(names)} runs",
            choices=names,
            hint="write the columns or lines of one of them to a file of its own (in W&B: export with one run selected)",
        )


class _Wide:
    """A table with a column for each metric; what its commas mean shows in its first rows."""

    def __init__(self, header: list[str], mark: str, path: str) -> None:
        names = _exported(header, path)
        self._run = next((at for at, name in names.items() if name.lower() in _RUN_COLUMNS), None)
        self._names = {at: name for at, name in names.items() if at != self._run}
        self._runs: set[str] = set()
        self._table = Rows()
        self._commas = Commas(decimal=None if mark == "," else True)
        self._first: list[list[str]] = []
        self._settled = False
        self._texts: set[int] = set()

    def take(self, cells: list[str]) -> None:
        if self._run is not None and cells[self._run].strip() and len(self._runs) < MOST_RUNS:
            self._runs.add(cells[self._run].strip())
        if self._settled:
            self._quick(cells)
            return
        self._first.append(cells)
        for cell in cells:
            self._commas.seen(cell.strip())
        if len(self._first) >= SAMPLED:
            self._settle()

    def rows(self, path: str) -> Rows:
        """The table; raises CannotRead when its column of runs names several."""
        self._settle()
        counter = all(number(run) is not None for run in self._runs) and 2 * len(self._runs) > self._table.rows
        if not counter:
            _one_run(path, self._runs)
        return self._table

    def _settle(self) -> None:
        for cells in self._first:
            self._slow(cells)
        self._first, self._settled = [], True

    def _slow(self, cells: list[str]) -> None:
        row = {name: token for at, name in self._names.items() if (token := _cell(cells[at], self._commas)) is not None}
        self._texts.update(at for at, name in self._names.items() if name in row and number(row[name]) is None)
        self._table.add_printed(row)

    def _quick(self, cells: list[str]) -> None:
        """As ``_slow`` for plain numbers, whose decimals are known by now."""
        texts = self._texts
        try:
            row: dict[str, object] = {
                name: float(cells[at]) for at, name in self._names.items() if cells[at] and at not in texts
            }
        except ValueError:
            self._slow(cells)
            return
        for at in texts:
            if (token := _cell(cells[at], self._commas)) is not None:
                row[self._names[at]] = token
        self._table.add(row)


class _Long:
    """A table with one value a line, gathered by step."""

    def __init__(self, header: list[str], mark: str) -> None:
        self._header = [cell.lower() for cell in header]
        self._commas = Commas(decimal=None if mark == "," else True)
        self._runs: dict[str, dict[float, dict[str, str]]] = {}

    def take(self, cells: list[str]) -> None:
        at = dict(zip(self._header, cells, strict=True))
        owner = next((at[k] for k in _RUN_COLUMNS if k in at), "")
        name = next((at[k] for k in sorted(_LONG_FORM) if k in at), "")
        value = next((at[k].strip() for k in sorted(_LONG_VALUE) if k in at), "")
        step = next((number(at[k]) for k in ("step", "global_step", "_step", "iteration") if k in at), None)
        if name and value and (owner in self._runs or len(self._runs) < MOST_RUNS):
            self._commas.seen(value)
            self._runs.setdefault(owner, {}).setdefault(math.nan if step is None else step, {})[name] = value

    def rows(self, path: str) -> Rows:
        """One row for each step; raises CannotRead when there are several runs."""
        _one_run(path, self._runs)
        rows = Rows()
        for step, values in next(iter(self._runs.values()), {}).items():
            row = {name: token for name, value in values.items() if (token := _cell(value, self._commas)) is not None}
            rows.add(row, None if math.isnan(step) else step)
        return rows


def _exported(header: list[str], path: str) -> dict[int, str]:
    """Metric names by column number; the run before each metric of a W&B export (``run - metric``) is taken off.

    Raises CannotRead for an export of several runs.
    """
    names = {at: name for at, name in enumerate(header) if not name.endswith(("__MIN", "__MAX"))}
    pairs = {
        at: (owner, metric) for at, name in names.items() for owner, dash, metric in [name.rpartition(" - ")] if dash
    }
    owners = {owner for owner, _ in pairs.values()}
    if len(names) == len(header):
        metrics = [metric for _, metric in pairs.values()]
        shared = len(owners) == 1 or len(set(metrics)) < len(metrics)
        axis = re.fullmatch(_EXPORT_AXIS, header[0]) is not None
        if not (axis and len(pairs) == len(header) - 1 and shared and metric_like(metrics)):
            return names
    _one_run(path, owners)
    return names | {at: metric for at, (_, metric) in pairs.items()}


def _cell(cell: str, commas: Commas) -> Printed | None:
    text = cell.strip().strip('"').replace("\u2212", "-")
    return Printed(commas.plain(text)) if text else None


def read_table(lines: Iterable[tuple[str, bool]], path: str, said: Iterable[Warn] = ()) -> Log | None:
    """The first pasted table whose header names metrics, with pipes or aligned columns; None without one."""
    header: list[str] = []
    cut, piped = False, False
    commas = Commas()
    found: list[tuple[list[str], bool]] = []
    for line, ended in lines:
        if len(line) > 20_000:
            continue
        text = line.strip()
        cells = _cells(text, piped if header else "|" in text)
        if not header:
            piped = "|" in text
            if (
                len(cells) >= 2
                and all(cells)
                and metric_like(cells)
                and re.fullmatch(_STEP_COLUMN, cells[0])
                and not any(number(c) is not None for c in cells)
            ):
                header = [re.sub(r"\s*/\s*", "/", cell) for cell in cells]
            continue
        if not text or re.fullmatch(_RULE, text) or text in ("...", "\u2026"):
            continue
        if not ended:
            cut, cells = True, cells[:-1]
        step = _cell(cells[0], commas) if cells else None
        if step is None or number(step) is None or len(cells) > len(header):
            if found:
                break
            header = []
            continue
        found.append((cells, ended))
        for cell in cells:
            commas.seen(cell)
    rows = Rows()
    for cells, whole in found:
        values = [_cell(cell, commas) for cell in cells]
        step = values[0]
        rows.add(
            {k: v for k, v in zip(header[1:], values[1:], strict=False) if v is not None},
            None if step is None else number(step),
            whole=whole,
        )
    if not rows.rows or not trains(rows):
        return None
    warnings = [*said, *([Warn("cut_text", "the last line does not end; its last cell is left out")] if cut else [])]
    log = rows.finish(path=path, format="table", warnings=warnings)
    return replace(log, step_source=header[0].lower(), excerpt=True)


def _cells(text: str, piped: bool) -> list[str]:
    parts = text.strip("|").split("|") if piped else re.split(_GAP, text)
    return [part.strip().strip("*`").strip() for part in parts]
