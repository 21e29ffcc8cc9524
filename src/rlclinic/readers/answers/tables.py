"""Records out of tables of saved answers: Parquet, by whichever package is installed, and separated columns."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from itertools import chain, islice
from typing import IO, Any, TextIO

from rlclinic.errors import CannotRead
from rlclinic.readers.tabular.parquet import opened_by_duckdb, quoted
from rlclinic.readers.tokens import number

PACKAGES = ("pyarrow", "duckdb", "polars")
"""What can read Parquet for us, first choice first: those that give a large row group in parts come first."""
LACKING = "no package that reads it"
TOGETHER = 8 << 20
"""Bytes of rows that are decoded at a time, by what the file states of their size (ours)."""
MOST_ROWS = 20_000_000
"""Most rows read of one file (ours: equal rows take no place in a file, but a microsecond each)."""
SWELLING, ALLOWED = 250, 1 << 30
"""Times its size to which a file may unpack, and the bytes up to which any swelling passes (ours)."""
REPEATED = 256
"""Bytes a row below which the texts of a column count as repeated ones (ours: eight answers share a prompt)."""
BUFFER = 1 << 20
"""Bytes of a column that are read at once; without it a whole row group of it is (ours)."""
CELL = 16 << 20
"""Longest cell in characters (ours)."""
SAMPLED = 200
"""Rows from which it is known which columns hold numbers (ours)."""
NESTED = 1 << 20
"""Longest cell in characters that is looked at for JSON in it (ours)."""
_HEAVY = r"(?i)(?:pixel_values|images?|videos?|audios?|multi_?modal\w{0,40}|\w{0,40}routed_experts|\w{0,40}embeddings?)"
"""Columns that nothing is read from, and that are large."""
_TEXTS = frozenset(
    ["prompt", "completion", "response", "output", "input", "answer", "text", "question", "query", "generation", "solution",
     "truth", "label", "target", "reference", "expected", "gt", "pred", "prediction", "content", "message", "problem"]
)  # fmt: skip


def _refused(label: str, what: str, hint: str = "") -> CannotRead:
    return CannotRead("saved answers", f"{label}: {what}", hint=hint)


# ---------------------------------------------------------------- Parquet


def parquet_records(stream: IO[bytes], label: str, only: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
    """Every row of a Parquet file in its order; ``only`` these columns where given. Raises CannotRead, also on the way."""
    stream.seek(0)
    openers = {"pyarrow": _by_pyarrow, "polars": _by_polars, "duckdb": _by_duckdb}
    with ExitStack() as stack:
        try:
            for package in PACKAGES:
                try:
                    module = import_module("pyarrow.parquet" if package == "pyarrow" else package)
                except ImportError:
                    continue
                rows = openers[package](module, stream, stack, partial(_chosen, only))
                break
            else:
                raise _refused(
                    label,
                    f"a Parquet file, and {LACKING} is installed (pyarrow, polars or duckdb)",
                    "pip install pyarrow",
                )
            yield from islice(rows, MOST_ROWS)
        except CannotRead:
            raise
        except BaseException as error:  # polars panics with one of these
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
                raise
            says = str(error).strip().splitlines()[:1] or [type(error).__name__]
            raise _refused(label, f"a broken Parquet file ({says[0][:100]})") from error


def _chosen(only: Collection[str] | None, names: Sequence[str]) -> list[str]:
    """The columns to read. A file that lacks one of those wanted is read whole, so that it can be said what it has."""
    if only and set(only) <= set(names):
        return [name for name in names if name in only]
    return [name for name in names if re.fullmatch(_HEAVY, name) is None]


def _rows(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for cells in zip(*columns, strict=True):
        yield dict(zip(names, cells, strict=True))


def _together(size: int, rows: int) -> int:
    return int(min(4_096, max(16, TOGETHER * rows // max(size, 1))))


def _by_pyarrow(
    module: Any, stream: IO[bytes], stack: ExitStack, chosen: Callable[[Sequence[str]], list[str]]
) -> Iterator[dict[str, Any]]:
    arrow = import_module("pyarrow")
    types = arrow.types
    file = stack.enter_context(module.ParquetFile(stream, pre_buffer=False))
    held, schema = file.metadata, file.schema_arrow
    sizes: dict[str, int] = {}
    for group in range(held.num_row_groups):
        one = held.row_group(group)
        for at in range(one.num_columns):
            chunk = one.column(at)
            name = chunk.path_in_schema
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
    size = sum(sizes.values())
    if size > max(ALLOWED, SWELLING * stream.seek(0, 2)):
        raise ValueError(f"it would unpack to {size >> 20} MiB")
    skipped = {field.name for field in schema if types.is_binary(field.type) or types.is_large_binary(field.type)}
    names = [name for name in chosen(schema.names) if name not in skipped]
    # One text for many rows stays one: a page of it may stand for thousands of times its size. Where each row has a text of
    # its own that would only cost time.
    texts = [
        field.name
        for field in schema
        if (types.is_string(field.type) or types.is_large_string(field.type))
        and sizes.get(field.name, 0) < REPEATED * held.num_rows
    ]
    stream.seek(0)
    file = stack.enter_context(module.ParquetFile(stream, pre_buffer=False, buffer_size=BUFFER, read_dictionary=texts))
    many = _together(size, held.num_rows)
    for batch in file.iter_batches(batch_size=many, columns=names, use_threads=False):
        yield from _rows(batch.schema.names, [_arrow_cells(column, arrow) for column in batch.columns])


def _arrow_cells(column: Any, arrow: Any) -> Sequence[Any]:
    if not arrow.types.is_dictionary(column.type):
        cells: list[Any] = column.to_pylist()
        return cells
    places = column.indices.to_pylist()
    used = sorted({at for at in places if at is not None})
    words = dict(zip(used, column.dictionary.take(arrow.array(used, arrow.int64())).to_pylist(), strict=True))
    return [None if at is None else words[at] for at in places]


def _by_duckdb(
    module: Any, stream: IO[bytes], stack: ExitStack, chosen: Callable[[Sequence[str]], list[str]]
) -> Iterator[dict[str, Any]]:
    link, name, kinds = opened_by_duckdb(module, stream, stack)
    names = [one for one in chosen(list(kinds)) if kinds[one] != "BLOB"]
    exact = ("DECIMAL", "HUGEINT")
    wanted = [f"CAST({quoted(n)} AS DOUBLE)" if kinds[n].startswith(exact) else quoted(n) for n in names]
    link.execute(f"SELECT {', '.join(wanted)} FROM read_parquet(?)", [name])
    while some := link.fetchmany(1_024):
        for cells in some:
            yield dict(zip(names, cells, strict=True))


def _by_polars(
    module: Any, stream: IO[bytes], stack: ExitStack, chosen: Callable[[Sequence[str]], list[str]]
) -> Iterator[dict[str, Any]]:
    schema = module.read_parquet_schema(stream)
    stream.seek(0)
    lazy = module.scan_parquet(stream)
    rows = int(lazy.select(module.len()).collect().item())
    names = [name for name in chosen(list(schema)) if schema[name] != module.Binary]
    size = stream.seek(0, 2)
    # Each part decodes its row groups anew, so that parts must be large.
    many = max(8 * _together(4 * size, rows), rows // 64)
    for start in range(0, rows, many):
        frame = lazy.select(names).slice(start, many).collect()
        yield from _rows(names, [frame.get_column(name).to_list() for name in names])


# ---------------------------------------------------------------- separated columns


def separator(header: str) -> str:
    """The mark between the columns of a table with this first line; empty when it is none."""
    best = max("\t,;", key=header.count)
    cells = [cell.strip().strip('"') for cell in header.rstrip("\r\n").split(best)]
    named = len(cells) > 1 and all(len(cell) < 200 and "{" not in cell for cell in cells)
    wordy = sum(bool(cell) and number(cell) is None for cell in cells)
    return best if named and wordy >= len(cells) - 1 else ""


def separated_records(lines: TextIO, mark: str, label: str, said: list[str]) -> Iterator[dict[str, Any]]:
    """Every row of a table of separated columns: numbers where a column holds nothing else and is no text by its name,
    JSON where a cell holds it. ``said`` takes what is left out. Raises CannotRead for a cell without an end."""
    before = csv.field_size_limit(CELL)
    try:
        yield from _separated(lines, mark, said)
    except csv.Error as error:
        raise _refused(label, f"a damaged table ({error})") from error
    finally:
        csv.field_size_limit(before)


def _separated(lines: TextIO, mark: str, said: list[str]) -> Iterator[dict[str, Any]]:
    source = (line.replace("\0", "") if "\0" in line else line for line in iter(partial(lines.readline, CELL), ""))
    reader = csv.reader(source, delimiter=mark)
    header = [name.strip() for name in next(reader, [])]
    rows = list(islice(reader, SAMPLED))
    whole = [cells for cells in rows if len(cells) == len(header)]
    reads = [_nested if _texts(name) or not _numeric(whole, at) else _value for at, name in enumerate(header)]
    ragged = 0
    for cells in chain(rows, reader):
        if len(cells) != len(header):
            ragged += bool(cells)
            continue
        yield {name: read(cell) for name, read, cell in zip(header, reads, cells, strict=True)}
    if ragged:
        said.append(f"{ragged} rows have another number of cells than the header and are left")


def _texts(name: str) -> bool:
    """Whether a column is one of texts by the last word of its name."""
    words = re.findall(r"[a-z]{1,40}", name.lower()[-200:])
    return bool(words) and (words[-1] in _TEXTS or words[-1].rstrip("s") in _TEXTS)


def _numeric(rows: list[list[str]], at: int) -> bool:
    cells = [row[at] for row in rows if row[at].strip()]
    return bool(cells) and all(not isinstance(_value(cell), str) for cell in cells)


def _value(cell: str) -> float | str | None:
    if not cell or cell.isspace():
        return None
    word = cell.strip().lower()
    if word in ("true", "false"):
        return float(word == "true")
    if len(word) > 40:
        return cell
    try:
        return float(word)
    except ValueError:
        return cell


def _nested(cell: str) -> Any:
    if cell[:2] in ("[{", '{"', '["', "[]", "{}") and cell[-1:] in "]}" and len(cell) <= NESTED:
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):
            return cell
    return cell
