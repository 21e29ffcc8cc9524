"""Metrics out of Parquet files, by whichever of pyarrow, polars and duckdb is installed, a few thousand rows at a time."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from typing import IO, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlclinic.errors import CannotRead
from rlclinic.model import Floats, Warn
from rlclinic.readers.owners import MOST_RUNS, Owners, of_one_run
from rlclinic.readers.rows import KEY_COUNT, Inferred, Log, Nonfinite, Rows
from rlclinic.readers.tabular import sheets
from rlclinic.readers.tabular.records import holds_answers, refuse, trains
from rlclinic.readers.tabular.sheets import Columns, LongTable, Summaries
from rlclinic.readers.tokens import metric_like, number

PARQUET = b"PAR1"
"""How a Parquet file begins (and ends)."""
PACKAGES = ("pyarrow", "polars", "duckdb")
"""What can read Parquet for us, first choice first: the first is the writer of most files, the last the smallest."""
TOGETHER = 8_192
"""Rows decoded at a time (ours: 4 MiB of 60 metrics)."""
MOST_VALUES = 32_000_000
"""Most values kept of one file (ours: 250 MiB; 500,000 rows of 60 metrics)."""
MOST_ROWS = 5_000_000
"""Most rows read of one file (ours: equal rows take no place in a file, and 100 bytes each in memory)."""
TEXTS = 128 << 20
"""Most bytes that the texts of one column and row group may have; a column with more is left out (ours)."""
UNPACKED = 1 << 30
"""Most bytes that the columns of one row group may unpack to, as the file itself states (ours)."""
TEXT = 500
"""Characters looked at of a text in a cell (ours)."""

Kind: TypeAlias = Literal["number", "text", "nested", "other"]
_INDEX = frozenset({"id", "log_id", "__index_level_0__"})
_TRACKIO = frozenset({"run_name", "log_id", "timestamp"})


@dataclass(frozen=True)
class _File:
    """A Parquet file that is open: the columns with their kinds, and a way to read some of them in parts.

    ``parts(names)`` gives lists with one array for each name: floats with a mask of what is there, or texts.
    """

    kinds: dict[str, Kind]
    rows: int
    by_pandas: bool
    parts: Callable[[Sequence[str]], Iterator[list[_Cells]]]


@dataclass(frozen=True)
class _Cells:
    """Some cells of one column: numbers (n,) where ``there``, or texts with None for what is missing."""

    there: NDArray[np.bool_]
    numbers: Floats
    texts: list[str | None] | None = None


def read_parquet(stream: IO[bytes], path: str, run: str | None = None) -> Log:
    """The metrics of one run: a column for each metric, or a value a line; ``run`` names one of several.

    Raises CannotRead for saved answers, several runs none of which is named, files without metrics or broken ones, and
    where no package that reads Parquet is installed.
    """
    stream.seek(0)
    with ExitStack() as stack:
        try:
            return _read(_open(stream, path, stack), path, run)
        except CannotRead:
            raise
        except BaseException as error:  # polars panics with one of these
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
                raise
            says = str(error).strip().splitlines()[:1] or [type(error).__name__]
            raise refuse(
                path, f"a broken Parquet file ({says[0][:100]})", "give the metrics as CSV or JSON lines"
            ) from error


def _open(stream: IO[bytes], path: str, stack: ExitStack) -> _File:
    openers = {"pyarrow": _by_pyarrow, "polars": _by_polars, "duckdb": _by_duckdb}
    for package in PACKAGES:
        try:
            module = import_module("pyarrow.parquet" if package == "pyarrow" else package)
        except ImportError:
            continue
        return openers[package](module, stream, stack)
    raise CannotRead(
        "a package that reads Parquet (pyarrow, polars or duckdb)",
        f"{path}: a Parquet file, and none of them is installed",
        hint="pip install pyarrow, or give the metrics as CSV or JSON lines",
    )


def _by_pyarrow(module: Any, stream: IO[bytes], stack: ExitStack) -> _File:
    arrow = import_module("pyarrow")
    types = arrow.types
    file = stack.enter_context(module.ParquetFile(stream, pre_buffer=False))
    schema = file.schema_arrow
    heavy: set[str] = set()
    for group in range(file.metadata.num_row_groups):
        held = file.metadata.row_group(group)
        chunks = [held.column(at) for at in range(held.num_columns)]
        heavy |= {c.path_in_schema for c in chunks if c.total_uncompressed_size > TEXTS}
    # One text for many rows stays one: a page of it may stand for thousands of times its size.
    texts = [f.name for f in schema if types.is_string(f.type) or types.is_large_string(f.type)]
    if texts:
        stream.seek(0)
        file = stack.enter_context(module.ParquetFile(stream, pre_buffer=False, read_dictionary=texts))

    def kind(held: Any) -> Kind:
        if types.is_dictionary(held):
            held = held.value_type
        if types.is_floating(held) or types.is_integer(held) or types.is_boolean(held) or types.is_decimal(held):
            return "number"
        if types.is_string(held) or types.is_large_string(held):
            return "text"
        return "nested" if types.is_nested(held) else "other"

    def parts(names: Sequence[str]) -> Iterator[list[_Cells]]:
        wanted = set(names)
        for group in range(file.metadata.num_row_groups):
            held = file.metadata.row_group(group)
            chunks = (held.column(at) for at in range(held.num_columns))
            if sum(c.total_uncompressed_size for c in chunks if c.path_in_schema in wanted) > UNPACKED:
                raise ValueError(f"a row group of more than {UNPACKED >> 30} GiB")
        for batch in file.iter_batches(batch_size=TOGETHER, columns=list(names), use_threads=False):
            yield [_arrow_cells(batch.column(batch.schema.get_field_index(name)), arrow) for name in names]

    kinds = {field.name: kind(field.type) for field in schema}
    kinds |= {name: "nested" for name, one in kinds.items() if one == "text" and name in heavy}
    pandas = b"pandas" in (schema.metadata or {})
    return _File(kinds, file.metadata.num_rows, pandas, parts)


def _arrow_cells(column: Any, arrow: Any) -> _Cells:
    if arrow.types.is_dictionary(column.type):
        kind = column.type.value_type
        if arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
            words = [_cut(one.as_py()) for one in column.dictionary]
            texts = [None if at is None else words[at] for at in column.indices.to_pylist()]
            return _Cells(np.array([one is not None for one in texts], dtype=bool), np.empty(0), texts)
        column = column.dictionary_decode()
    begin, end = column.offset, column.offset + len(column)
    bits = column.buffers()[0]  # read as they lie: to_numpy() would import pandas where it is installed
    there = (
        np.ones(len(column), dtype=bool)
        if bits is None
        else np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=end, bitorder="little")[begin:].astype(bool)
    )
    if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type):
        return _Cells(there, np.empty(0), [_cut(one.as_py()) for one in column])
    if arrow.types.is_boolean(column.type):
        column = column.cast(arrow.int8())
    column = column.cast(arrow.float64(), safe=False)
    begin, end = column.offset, column.offset + len(column)
    return _Cells(there, np.frombuffer(column.buffers()[1], dtype=np.float64)[begin:end])


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:TEXT]


def _by_polars(module: Any, stream: IO[bytes], stack: ExitStack) -> _File:
    schema = module.read_parquet_schema(stream)
    stream.seek(0)
    count = int(module.read_parquet(stream, columns=[]).height) if not schema else None
    lazy = module.scan_parquet(stream)
    if count is None:
        count = int(lazy.select(module.len()).collect().item())
    held = module.read_parquet_metadata(stream) if hasattr(module, "read_parquet_metadata") else {}

    def kind(held: Any) -> Kind:
        if held.is_numeric() or held == module.Boolean:
            return "number"
        if held in (module.String, module.Categorical) or str(held).startswith(("Enum", "Categorical")):
            return "text"
        return "nested" if held.is_nested() else "other"

    def parts(names: Sequence[str]) -> Iterator[list[_Cells]]:
        for start in range(0, count or 0, TOGETHER * 8):
            frame = lazy.select(list(names)).slice(start, TOGETHER * 8).collect()
            yield [cells(frame.get_column(name)) for name in names]

    def cells(column: Any) -> _Cells:
        there = np.asarray(column.is_not_null().to_numpy())
        if kind(column.dtype) == "text":
            texts = column.cast(module.String).to_list()
            return _Cells(there, np.empty(0), [None if text is None else text[:TEXT] for text in texts])
        return _Cells(there, np.asarray(column.cast(module.Float64, strict=False).fill_null(0.0).to_numpy()))

    return _File({name: kind(one) for name, one in schema.items()}, count, "pandas" in held, parts)


def opened_by_duckdb(module: Any, stream: IO[bytes], stack: ExitStack) -> tuple[Any, str, dict[str, str]]:
    """(a connection, the file's name for ``read_parquet(?)``, the type of each column) as long as ``stack`` is open."""
    name = str(getattr(stream, "name", ""))
    if not os.path.isfile(name) or any(letter in name for letter in "*?[{"):  # such a name may stand for several files
        held = stack.enter_context(tempfile.TemporaryDirectory())
        name = os.path.join(held, "table.parquet")
        stream.seek(0)
        with open(name, "wb") as copy:
            shutil.copyfileobj(stream, copy)
    link = stack.enter_context(module.connect(":memory:"))
    link.execute("SET threads=1; SET memory_limit='300MB'; SET autoinstall_known_extensions=false")
    described = link.execute("DESCRIBE SELECT * FROM read_parquet(?)", [name]).fetchall()
    return link, name, {str(row[0]): str(row[1]) for row in described}


def _by_duckdb(module: Any, stream: IO[bytes], stack: ExitStack) -> _File:
    link, name, described = opened_by_duckdb(module, stream, stack)
    count = int(link.execute("SELECT count(*) FROM read_parquet(?)", [name]).fetchone()[0])
    notes = link.execute("SELECT key FROM parquet_kv_metadata(?)", [name]).fetchall()

    def kind(held: str) -> Kind:
        if "[" in held or held.startswith(("STRUCT", "MAP", "UNION")):
            return "nested"
        if held.startswith(("DOUBLE", "FLOAT", "DECIMAL", "BOOLEAN")) or held.endswith("INT") or held == "INTEGER":
            return "number"
        return "number" if held.endswith(("INTEGER", "BIGINT")) else "text" if held.startswith("VARCHAR") else "other"

    kinds = {column: kind(held) for column, held in described.items()}

    def parts(names: Sequence[str]) -> Iterator[list[_Cells]]:
        wanted = [f"CAST({quoted(one)} AS {'DOUBLE' if kinds[one] == 'number' else 'VARCHAR'})" for one in names]
        link.execute(f"SELECT {', '.join(wanted)} FROM read_parquet(?)", [name])
        while some := link.fetchmany(TOGETHER):
            yield [cells(column, kinds[one]) for one, column in zip(names, zip(*some, strict=True), strict=True)]

    def cells(column: Sequence[Any], held: Kind) -> _Cells:
        there = np.array([one is not None for one in column])
        if held == "text":
            return _Cells(there, np.empty(0), [None if text is None else str(text)[:TEXT] for text in column])
        return _Cells(there, np.array([0.0 if one is None else one for one in column], dtype=np.float64))

    return _File(kinds, count, any(row[0] in (b"pandas", "pandas") for row in notes), parts)


def quoted(name: str) -> str:
    """A column's name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def _read(file: _File, path: str, run: str | None) -> Log:
    if holds_answers({name: kind in ("text", "nested") for name, kind in file.kinds.items()}):
        hint = "give the log of the run; rollouts are read beside it"
        raise refuse(path, "saved answers (rollouts) in Parquet, not metrics", hint)
    header = [name for name, kind in file.kinds.items() if kind in ("number", "text") and name not in _INDEX]
    if not header or not file.rows:
        raise refuse(path, f"a Parquet file of {file.rows} rows without a number", "give the log of the run")
    columns = sheets.understood(header, path, run)
    said: list[Warn] = []
    many = min(MOST_ROWS, max(1, MOST_VALUES // min(len(header), KEY_COUNT)))
    if file.rows > many:
        said.append(Warn("too_many_values", f"only the first {many} of {file.rows} rows were read"))
    if columns.value is not None:
        lines = LongTable(columns)
        _take_lines(file, header, columns, lines, many)
        taken = lines.rows(path, run, said)
        log = _finished(file, taken.rows, path, taken.label, said, taken.seams)
        return replace(log, config=taken.settings)
    table = _Wide(header, columns, file)
    table.take(file, many)
    if table.owners is not None and table.lists.found(table.owners):
        return table.lists.log(table.owners, path, run, said)
    label = columns.label
    if table.owners is not None:
        label = of_one_run(table.rows, table.owners, path, run, said)
    said += sheets.told(columns, table.unlike, table.rows.rows)
    return _finished(file, table.rows, path, label, said, None)


def _take_lines(file: _File, header: Sequence[str], columns: Columns, lines: LongTable, many: int) -> None:
    used = [
        at
        for at in (columns.key, columns.value, columns.step, columns.run, columns.run_id, columns.time)
        if at is not None
    ]
    done = 0
    for part in file.parts([header[at] for at in used]):
        held = {at: _objects(cells) for at, cells in zip(used, part, strict=True)}
        values = held[columns.value or 0]
        line: list[object] = [None] * len(header)
        for place, value in enumerate(values):
            if value is None:
                continue
            for at in used:
                line[at] = held[at][place]
            lines.take(line, value)
        done += len(values)
        if done >= many:
            return


def _objects(cells: _Cells) -> list[Any]:
    if cells.texts is not None:
        return list(cells.texts)
    return [value if there else None for value, there in zip(cells.numbers.tolist(), cells.there.tolist(), strict=True)]


class _Wide:
    """A table with a column for each metric."""

    def __init__(self, header: Sequence[str], columns: Columns, file: _File) -> None:
        self.rows = Rows()
        self.columns = columns
        self.header = header
        run, run_id = columns.run, columns.run_id
        self.owners = Owners(columns.doubtful) if run is not None or run_id is not None else None
        self.lists = Summaries(columns, header)
        self.unlike = 0
        listed = self.lists.possible and file.rows <= MOST_RUNS
        self.lists.possible = listed
        owning = [at for at in (run, run_id) if at is not None]
        bounds = [at for pair in columns.bounds.values() for at in pair]
        self.used = list(dict.fromkeys([*list(columns.metrics)[:KEY_COUNT], *owning, *bounds]))

    def take(self, file: _File, many: int) -> None:
        wordy: set[str] = set()
        done = 0
        for part in file.parts([self.header[at] for at in self.used]):
            held = dict(zip(self.used, part, strict=True))
            self._take(held, wordy)
            done += len(part[0].there)
            if done >= many:
                return

    def _take(self, held: dict[int, _Cells], wordy: set[str]) -> None:
        count = len(next(iter(held.values())).there)
        found: dict[str, _Cells] = {}
        for at, name in self.columns.metrics.items():
            if at in held and name not in wordy:
                cells = held[at]
                found[name] = cells if cells.texts is None else self._numbers(name, cells, wordy)
        for value, (low, high) in self.columns.bounds.items():
            if held[low].texts is None and held[high].texts is None:
                unlike = (held[low].numbers != held[high].numbers) & held[value].there
                self.unlike += int(np.count_nonzero(unlike))
        if not found:
            return
        table = np.column_stack([cells.numbers for cells in found.values()])
        place = self.rows.add_table(list(found), table, np.column_stack([cells.there for cells in found.values()]))
        if self.owners is None:
            return
        run, run_id = self.columns.run, self.columns.run_id
        first = _objects(held[run]) if run is not None else [""] * count
        second = _objects(held[run_id]) if run_id is not None else [""] * count
        lines = {at: _objects(cells) for at, cells in held.items()} if self.lists.possible else {}
        for number_, (one, other) in enumerate(zip(first, second, strict=True)):
            full = bool(place[number_] >= 0)
            if full or self.lists.possible:
                owner = self.owners.of(_word(one), _word(other))
                if full:
                    self.owners.rows.append(owner)
                if self.lists.possible:
                    line: list[object] = [lines[at][number_] if at in lines else None for at in range(len(self.header))]
                    self.lists.note(line, owner, self.owners)

    def _numbers(self, name: str, cells: _Cells, wordy: set[str]) -> _Cells:
        """The numbers among texts; a column of words is left out from then on."""
        texts = cells.texts or []
        found = [None if text is None else number(text.strip()) for text in texts]
        if not any(value is not None for value in found):
            example = next((text for text in texts if text), None)
            if example is not None:
                wordy.add(name)
                if metric_like([name]):
                    self.rows.unread.other(name, example, self.rows.rows)
            return _Cells(np.zeros(len(texts), dtype=bool), np.zeros(len(texts)))
        there = np.array([value is not None for value in found])
        return _Cells(there, np.array([0.0 if value is None else value for value in found]))


def _word(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if cell is None else str(cell).strip()


def _finished(file: _File, rows: Rows, path: str, label: str, said: list[Warn], why: Inferred | None) -> Log:
    if not rows.rows or not trains(rows):
        hint = "give the table to which the trainer logs"
        raise refuse(path, f"a Parquet file of {len(file.kinds)} columns without a training metric", hint)
    nonfinite: Nonfinite = "unknown"
    if file.kinds.keys() >= _TRACKIO:
        nonfinite = "kept"  # its export writes plain floats (from its source)
    elif file.by_pandas:
        spoken = any(np.isnan(one.values).any() for one in rows.merged().values())
        nonfinite = "kept" if spoken else "dropped"  # pandas writes NaN as a missing value (from its source)
    log = rows.finish(path=path, format="parquet", nonfinite=nonfinite, inferred=why, warnings=said)
    return replace(log, run=label)
