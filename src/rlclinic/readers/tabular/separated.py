"""Metrics out of separated columns: CSV and TSV in their wide, long and exported forms, and pasted tables."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from rlclinic.model import Warn
from rlclinic.readers.owners import Owners, of_one_run
from rlclinic.readers.rows import Inferred, Log, Nonfinite, Rows
from rlclinic.readers.tabular import sheets
from rlclinic.readers.tabular.records import refuse, trains
from rlclinic.readers.tabular.sheets import Columns, LongTable, Summaries
from rlclinic.readers.tokens import Commas, Printed, metric_like, number

SAMPLED = 500
"""Rows of a table from which its printed decimals are known (ours); later rows are read faster."""
TOGETHER = 2_000
"""Lines of a table that are read at once (ours: 1 MB of 60 metrics)."""
SPANNED = 5
"""Lines within one quoted cell that have all cells themselves, from which its quote counts as broken (ours)."""
_NOTHING = -2.718281828459e-289
"""Stands for an empty cell where many are read at once; no log holds this number."""

_HEADER_CELL = r"[\w./@()%+ #-]{1,200}"
_ODD_CELL = r"[\w./@()%+ #:=<>'&*|\[\]-]{1,200}"
"""As the name of a metric in a header that also names the step (TRL's profiling keys hold a colon)."""
_VALUED = r"\s[-+]?\d+\.\d"
_RULE = r"[\s|:+=-]+"
# What Transformers draws above the table in a notebook (transformers/utils/notebook.py): [ 20/300 01:02 < 14:30, 0.3 it/s]
_NOTEBOOK_BAR = r"\[\s{0,8}\d{1,9}/(\d{1,9}) [\d:]{4,12}(?: <[^\[\]]{1,60})?(?:, Epoch [\d./]{1,24})?\]"
_STEP_COLUMN = r"(?i)(?:train/|training/)?(?:global[_ ])?_?(?:step|steps|iter|iteration|epoch|update)"
_GAP = r"\s{2,}|\t"
_UNLOGGED = "no log"
"""How a notebook's table marks a value that its row lacks; such a column's bare 0 is a gap as well, no measured 0."""
_ESCAPED = ("'-", "'+")
"""How MLflow writes a leading sign, lest a spreadsheet take the cell for a formula (from its source)."""


def delimiter(header: str) -> str | None:
    """The delimiter of a table's header, None when the line is no header of at least two columns."""
    best = max("\t;,", key=header.count)
    if header.count(best) == 0:
        return None
    cells = [cell.strip() for cell in _split(header, best)]
    chart = len(cells) > 1 and (sheets.is_axis(cells[0]) or any(cell.endswith("__MIN") for cell in cells))
    if (
        len(cells) < 2
        or ("{" in header and not chart)
        or not all(cells[1:])
        or any(number(cell) is not None for cell in cells)
    ):
        return None
    sure = sheets.is_list(cells) or any(re.fullmatch(_STEP_COLUMN, cell) for cell in cells)
    form = _ODD_CELL if sure else _HEADER_CELL
    if "__MIN" not in header and not all(
        re.fullmatch(form, cell) or (chart and sheets.is_curve(cell)) for cell in cells[1:]
    ):
        return None
    if any(re.search(_VALUED, cell) for cell in cells) and not chart:
        return None
    known = metric_like(cells) or sheets.is_long(cells) or sheets.is_lone(cells)
    return best if known and all(len(cell) < 500 for cell in cells) else None


def shaped(sample: str, mark: str, *, whole: bool) -> bool:
    """True unless the first line of a text reads as a header and no later one as a row: prose with commas above a log.

    ``whole`` says that the sample is the whole text; the rows of a longer one may begin after it.
    """
    csv.field_size_limit(1 << 22)
    table = csv.reader(io.StringIO(sample), delimiter=mark)
    width = rows = 0
    try:
        for cells in table:
            if not width:
                width = sum(bool(line) for line in cells) and len(cells)
                continue
            rows += bool(cells)
            if len(cells) == width and any(number(cell) is not None for cell in cells):
                return True
    except csv.Error:
        return True
    return not rows or not whole


def _split(line: str, mark: str) -> list[str]:
    csv.field_size_limit(1 << 22)
    try:
        return next(csv.reader([line.lstrip("\ufeff")], delimiter=mark), [])
    except csv.Error:
        return []


class _OpenQuote(Exception):
    """A quote opens a cell that does not end where its row does."""


def read_csv(
    lines: Iterable[tuple[str, bool]], path: str, mark: str, said: Iterable[Warn] = (), *, run: str | None = None
) -> Log:
    """Separated columns: wide (one for each metric), long (run, step, key, value), a chart, or one row for each run.

    ``run`` names one of several runs. Raises CannotRead without metrics, and naming the runs when none is chosen.
    """
    warnings: list[Warn] = []
    source = iter(lines)
    pending: list[tuple[str, bool]] = []
    width = 0
    sheet: _Wide | _Long | None = None
    ended = whole = True

    def text() -> Iterator[str]:
        nonlocal ended, whole
        rows = 0
        while True:
            # Between two records many lines may be read at once, within a quoted cell that spans lines not.
            many = TOGETHER if whole and isinstance(sheet, _Wide) and sheet.quick else 1
            block = [pair for pair in itertools.islice(source, many) if pair[0] and not pair[0].isspace()]
            if many > 1 and isinstance(sheet, _Wide) and len(block) > 1 and block[-1][1]:
                if sheet.take_lines([line for line, _ in block], mark):
                    continue
            elif not block:
                following = next(source, None)
                if following is None:
                    if len(pending) > 1 and not whole:
                        raise _OpenQuote
                    return
                block = [following]
            for place, (line, ended) in enumerate(block):
                if line.strip():
                    rows = 0 if whole else rows + (line.count(mark) == width - 1)
                    if whole:
                        pending.clear()
                    pending.append((line, ended))
                    if rows >= SPANNED and width:
                        pending.extend(block[place + 1 :])
                        raise _OpenQuote
                    whole = False
                    yield line + "\n"

    csv.field_size_limit(1 << 22)
    table = csv.reader(text(), delimiter=mark)
    try:
        header = [cell.strip().lstrip("\ufeff") for cell in next(table)]
    except (StopIteration, csv.Error) as error:
        raise refuse(path, "an empty table", "give the log of the run") from error
    columns = sheets.understood(header, path, run)
    sheet = (_Long if columns.value is not None else _Wide)(columns, header, mark)
    width = len(header)
    broken = quotes = 0
    whole = True
    while True:
        try:
            cells = next(table)
        except StopIteration:
            break
        except (csv.Error, _OpenQuote) as error:
            # The line at which the cell begins is read without quotes, those after it once more.
            (line, ended), *after = pending or [("", True)]
            pending.clear()
            source = itertools.chain(after, source)
            table, whole = csv.reader(text(), delimiter=mark), True
            quotes += isinstance(error, _OpenQuote)
            cells = [] if "\0" in line or isinstance(error, csv.Error) else line.split(mark)
        whole = True
        if not ended and len(cells) <= width:
            says = "the last line does not end; its last cell may be incomplete and is left out"
            warnings.append(Warn("cut_text", says))
            cells = [*cells[:-1], *[""] * (width - len(cells) + 1)]
        if len(cells) == width:
            sheet.take(cells)
        else:
            broken += 1
    if broken:
        warnings.append(Warn("broken_lines", f"{broken} lines do not have {width} cells; skipped"))
    if quotes:
        warnings.append(Warn("broken_lines", f"{quotes} lines open a quote that nothing closes; it was left out"))
    if twice := sorted(name for name, count in Counter(columns.metrics.values()).items() if count > 1):
        says = f"several columns are called {', '.join(twice[:3])[:200]}; the last of them is read"
        warnings.append(Warn("broken_lines", says))
    return sheet.log(path, run, [*said, *warnings], broken)  # the lines say more while they are read


def _finished(
    rows: Rows,
    path: str,
    label: str,
    width: int,
    warnings: list[Warn],
    broken: int,
    why: Inferred | None = None,
    nonfinite: Nonfinite = "unknown",
) -> Log:
    if broken and not rows.rows:
        raise refuse(
            path,
            f"a table of which no line has the {width} cells of its header",
            "write decimal points for decimal commas, or put numbers with commas in quotes",
        )
    if not rows.rows or not trains(rows):
        raise refuse(
            path, f"a table of {width} columns without a training metric", "give the table to which the trainer logs"
        )
    return replace(
        rows.finish(path=path, format="csv", nonfinite=nonfinite, inferred=why, warnings=warnings), run=label
    )


class _Wide:
    """A table with a column for each metric; what its commas mean shows in its first rows."""

    def __init__(self, columns: Columns, header: list[str], mark: str) -> None:
        self._columns = columns
        self._names = dict(columns.metrics)
        self._header = header
        self._table = Rows()
        self._owners = Owners(columns.doubtful) if columns.run is not None or columns.run_id is not None else None
        self._lists = Summaries(columns, header)
        self._commas = Commas(decimal=None if mark == "," else True)
        self._first: list[list[str]] = []
        self._settled = False
        self._texts: set[int] = set()
        self._unlike = 0

    def take(self, cells: list[str]) -> None:
        for value, (low, high) in self._columns.bounds.items():
            if cells[low] != cells[high] and cells[value]:
                self._unlike += 1
        if self._settled:
            self._quick(cells)
            return
        self._first.append(cells)
        for cell in cells:
            self._commas.seen(cell.strip())
        if len(self._first) >= SAMPLED:
            self._settle()

    @property
    def quick(self) -> bool:
        """True when lines may be read many at a time: what commas and words mean is known by now."""
        return self._settled and not self._columns.bounds and not self._lists.possible and not self._commas.pointed

    def take_lines(self, lines: list[str], mark: str) -> bool:
        """Take many lines of plain numbers and words at once; False, and none taken, where one of them is anything else."""
        width = len(self._header)
        text = "\n".join(lines)
        if '"' in text:
            if any(line.count('"') != 2 * width for line in lines):
                return False
            lines = [line.replace('"', "") for line in lines]
        if any(line.count(mark) != width - 1 for line in lines):
            return False
        if "_" in text and re.search(r"\d_\d", text):
            return False
        plain = [at for at in self._names if at not in self._texts]
        filled = [_filled(line, mark) for line in lines] if mark + mark in text or '"' in text else lines
        filled = [_filled(line, mark) if line[0] == mark or line[-1] == mark else line for line in filled]
        try:
            table = np.loadtxt(filled, delimiter=mark, comments=None, ndmin=2, usecols=plain or None)
        except (ValueError, TypeError, IndexError):
            return False
        run, run_id = self._columns.run, self._columns.run_id
        wordy = sorted(self._texts)
        parts = [line.split(mark) for line in lines] if wordy or self._owners is not None else []
        tokens = {at: [_cell(cells[at], self._commas) for cells in parts] for at in wordy}
        found = {at: [None if t is None else number(t) for t in column] for at, column in tokens.items()}
        words = [[_NOTHING if value is None else value for value in column] for column in found.values()]
        whole = np.column_stack([table, *words]) if words else table
        place = self._table.add_table([self._names[at] for at in (*plain, *wordy)], whole, whole != _NOTHING)
        for at, column in tokens.items():
            for row, token, value in zip(place.tolist(), column, found[at], strict=True):
                if token is not None and value is None and row >= 0:
                    self._table.unread.other(self._names[at], token, row)
        if self._owners is not None:
            for row, cells in zip(place.tolist(), parts, strict=True):
                if row >= 0:
                    self._owners.note(
                        cells[run].strip() if run is not None else "",
                        cells[run_id].strip() if run_id is not None else "",
                    )
        return True

    def log(self, path: str, run: str | None, warnings: list[Warn], broken: int) -> Log:
        """The run that is meant; raises CannotRead when there are several, or no metric."""
        self._settle()
        label = self._columns.label
        if self._owners is not None:
            if self._lists.found(self._owners):
                return self._lists.log(self._owners, path, run, warnings)
            label = of_one_run(self._table, self._owners, path, run, warnings)
        warnings += sheets.told(self._columns, self._unlike, self._table.rows)
        return _finished(self._table, path, label, len(self._header), warnings, broken)

    def _settle(self) -> None:
        for cells in self._first:
            self._slow(cells)
        self._first, self._settled = [], True

    def _slow(self, cells: list[str]) -> None:
        row = {name: token for at, name in self._names.items() if (token := _cell(cells[at], self._commas)) is not None}
        self._texts.update(at for at, name in self._names.items() if name in row and number(row[name]) is None)
        self._belongs(cells, self._table.add_printed(row))

    def _belongs(self, cells: list[str], added: bool) -> None:
        if self._owners is None or not (added or self._lists.possible):
            return
        run, run_id = self._columns.run, self._columns.run_id
        place = self._owners.note(
            cells[run].strip() if run is not None else "", cells[run_id].strip() if run_id is not None else ""
        )
        self._lists.note(cells, place, self._owners)
        if not added:
            self._owners.rows.pop()

    def _quick(self, cells: list[str]) -> None:
        """As ``_slow`` for plain numbers, whose decimals are known by now."""
        texts = self._texts
        spelled = "".join([cells[at] for at in self._names if at not in texts])
        if self._commas.pointed or "_" in spelled or not spelled.isascii():  # which float() takes for digits
            self._slow(cells)
            return
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
        added = self._table.add(row)
        if self._owners is not None:
            self._belongs(cells, added)


def _filled(line: str, mark: str) -> str:
    """The line with ``_NOTHING`` in its empty cells."""
    empty, double = f"{mark}{_NOTHING}{mark}", mark + mark
    line = line.replace(double, empty).replace(double, empty)
    line = f"{line}{_NOTHING}" if line[-1:] == mark else line
    return f"{_NOTHING}{line}" if line[:1] == mark else line


class _Long:
    """A table with one value a line, gathered by run, key and step."""

    def __init__(self, columns: Columns, header: list[str], mark: str) -> None:
        self._columns = columns
        self._width = len(header)
        self._commas = Commas(decimal=None if mark == "," else True)
        self._long = LongTable(columns)
        self._first: list[list[str]] = []
        self._settled = False

    def take(self, cells: list[str]) -> None:
        if self._settled:
            self._place(cells)
            return
        self._first.append(cells)
        self._commas.seen(cells[self._columns.value or 0].strip())
        if len(self._first) >= SAMPLED:
            self._settle()

    def _settle(self) -> None:
        for cells in self._first:
            self._place(cells)
        self._first, self._settled = [], True

    def _place(self, cells: list[str]) -> None:
        token = _cell(cells[self._columns.value or 0], self._commas)
        if token is not None:
            self._long.take(cells, token)

    def log(self, path: str, run: str | None, warnings: list[Warn], broken: int) -> Log:
        """The run that is meant, one row for each step; raises CannotRead when there are several, or no metric."""
        self._settle()
        taken = self._long.rows(path, run, warnings)
        if self._columns.form == "lone" and taken.rows.rows and not trains(taken.rows):
            what = f"a table of one metric, which its name {PurePath(path).stem!r} does not tell"
            raise refuse(path, what, "name the file after the metric (reward.csv), as TensorBoard does")
        log = _finished(
            taken.rows, path, taken.label, self._width, warnings, broken, taken.seams, self._columns.nonfinite
        )
        return replace(log, config=taken.settings)


def _cell(cell: str, commas: Commas) -> Printed | None:
    text = cell.strip().strip('"').replace("\u2212", "-")
    if text[:2] in _ESCAPED:
        text = text[1:]
    return Printed(commas.plain(text)) if text else None


def read_table(lines: Iterable[tuple[str, bool]], path: str, said: Iterable[Warn] = ()) -> Log | None:
    """The pasted tables whose headers name metrics, with pipes or aligned columns; None without one.

    Several are read as one where the later ones show other columns of the same steps, or go on after them.
    """
    tables = _Pasted()
    for line, ended in lines:
        if len(line) <= 20_000:
            tables.take(line.strip(), ended)
    merged = tables.merged()
    rows = Rows()
    for step, values, whole in merged:
        rows.add(values, step, whole=whole)
    if not rows.rows or not trains(rows):
        return None
    warnings = [
        *said,
        *([Warn("cut_text", "the last line does not end; its last cell is left out")] if tables.cut else []),
    ]
    log = rows.finish(path=path, format="table", warnings=warnings)
    planned = tables.planned
    if planned is not None and len(log.steps) and planned < np.nanmax(log.steps):
        planned = None  # the bar of another table
    return replace(log, step_source=tables.counted, excerpt=True, planned_steps=log.planned_steps or planned)


class _Pasted:
    """Takes the lines of a text (``take``) and keeps the tables in it, by header."""

    def __init__(self) -> None:
        self.planned: int | None = None
        """Steps that a notebook's bar above the first table states."""
        self.cut = False
        self._tables: list[tuple[list[str], list[tuple[list[str], bool]]]] = []
        self._header: list[str] = []
        self._piped = False
        self._commas = Commas()

    @property
    def counted(self) -> str:
        """What the first column of the first table counts."""
        return self._tables[0][0][0].lower() if self._tables else "step"

    def take(self, text: str, ended: bool) -> None:
        """One line without the spaces around it; ``ended`` is False when the text stops inside it."""
        if not self._tables and text[:1] == "[" and (bar := re.fullmatch(_NOTEBOOK_BAR, text)):
            self.planned = int(bar[1])
            return
        if self._header and self._row(text, ended):
            return
        cells = _cells(text, "|" in text)
        if (
            len(cells) >= 2
            and all(cells)
            and metric_like(cells)
            and re.fullmatch(_STEP_COLUMN, cells[0])
            and not any(number(c) is not None for c in cells)
        ):
            self._piped = "|" in text
            self._header = [re.sub(r"\s*/\s*", "/", cell) for cell in cells]
            self._tables.append((self._header, []))

    def _row(self, text: str, ended: bool) -> bool:
        """True when the line belongs to the table that was begun; else that table is done with."""
        if not text or re.fullmatch(_RULE, text) or text in ("...", "\u2026"):
            return True
        cells = _cells(text, self._piped)
        if not ended:
            self.cut, cells = True, cells[:-1]
        step = _cell(cells[0], self._commas) if cells else None
        if step is None or number(step) is None or len(cells) > len(self._header):
            self._header = []
            return False
        self._tables[-1][1].append((cells, ended))
        for cell in cells:
            self._commas.seen(cell)
        return True

    def merged(self) -> list[tuple[float | None, dict[str, object], bool]]:
        """(step, values, whether its line ended) of each row; a table that contradicts those before it is left out."""
        self._tables = [table for table in self._tables if table[1]]
        merged: dict[float, tuple[dict[str, object], bool]] = {}
        cells_of = ((header, cells) for header, found in self._tables for cells, _ in found)
        unlogged = {name for h, cells in cells_of for name, c in zip(h, cells, strict=False) if c.lower() == _UNLOGGED}
        for place, (header, found) in enumerate(self._tables):
            rows: list[tuple[float, dict[str, object], bool]] = []
            for cells, whole in found:
                values = [
                    None if cell == "0" and header[at] in unlogged else _cell(cell, self._commas)
                    for at, cell in enumerate(cells)
                ]
                step = None if values[0] is None else number(values[0])
                row: dict[str, object] = {k: v for k, v in zip(header[1:], values[1:], strict=False) if v is not None}
                rows.append((math.nan if step is None else step, row, whole))
            if place == 0 and len({step for step, _, _ in rows}) < len(rows):
                return [(None if math.isnan(at) else at, one, whole) for at, one, whole in rows]
            if place and (
                header[0].lower() != self.counted
                or any(
                    merged[step][0].get(k, v) != v for step, row, _ in rows if step in merged for k, v in row.items()
                )
                or not (merged.keys() & {step for step, _, _ in rows} or min(s for s, _, _ in rows) > max(merged))
            ):
                break
            for at, one, whole in rows:
                before = merged.get(at, ({}, True))
                merged[at] = {**one, **before[0]}, whole and before[1]
        steps = list(merged) if len(self._tables) < 2 else sorted(merged)
        return [(step, *merged[step]) for step in steps]


def _cells(text: str, piped: bool) -> list[str]:
    parts = text.strip("|").split("|") if piped else re.split(_GAP, text)
    return [part.strip().strip("*`").strip() for part in parts]
