"""Metrics out of structured files: JSON lines, trainer states and other JSON histories, CSV, and pasted tables."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.literal import scan
from rlclinic.readers.rows import STEP_KEYS, Log, Rows
from rlclinic.readers.tokens import Printed, metric_like, number

DOCUMENT_LIMIT = 256 << 20
"""Longest single JSON document in characters (ours: 100,000 rows of 60 metrics have about 250 MiB)."""

LONG = 2_000
"""Records from which a faster decoder is worth its import (ours)."""
SAMPLED = 500
"""Rows of a CSV from which its printed decimals are known (ours); later rows are read faster."""

_ROLLOUT_KEYS = frozenset(
    [
        "prompt",
        "prompts",
        "completion",
        "completions",
        "response",
        "responses",
        "question",
        "messages",
        "output",
        "outputs",
        "answer",
        "generation",
        "generated_text",
        "raw_outputs",
        "rollouts",
        "conversation",
    ]
)
_BETWEEN = re.compile(r"[\s,]*")
_HISTORY = r'"(log_history|history|log|logs|metrics|rows)"\s*:\s*\[\s*(?=[{\]])'
_LONG_FORM = frozenset({"key", "metric", "name", "tag", "metric_name"})
_LONG_VALUE = frozenset({"value", "metric_value"})
_EXPORTED = r"(.{1,300}) - ([^-].{0,190}|-?[\w/@.]{1,190})"
_HEADER_CELL = r"[\w./@()%+ #-]{1,200}"
_VALUED = r"\s[-+]?\d+\.\d"
_RULE = r"[\s|:+=-]+"
_THOUSANDS = r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?"
_DECIMAL_COMMA = r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?"
_STEP_COLUMN = r"(?i)(?:train/|training/)?(?:global[_ ])?_?(?:step|steps|iter|iteration|epoch|update)"
_GAP = r"\s{2,}|\t"


def as_row(record: Mapping[str, object]) -> Mapping[str, object]:
    """A record with its metrics at the top (``{"step": 3, "data": {...}}`` and ``{"step": 3, "metrics": {...}}``)."""
    if len(record) <= 4:
        for wrapper in ("data", "metrics"):
            inner = record.get(wrapper)
            if isinstance(inner, dict):
                return {**{k: v for k, v in record.items() if k != wrapper}, **inner}
    return record


def is_rollout(record: Mapping[str, object]) -> bool:
    """True when a record is one saved answer, not a row of metrics."""
    texts = [key for key in _ROLLOUT_KEYS & record.keys() if isinstance(record[key], (str, list))]
    return bool(texts) and not any(key in record for key in ("loss", "grad_norm", "learning_rate"))


def _refuse(path: str, what: str, hint: str) -> CannotRead:
    return CannotRead("a log with metrics", f"{path}: {what}", hint=hint)


def read_jsonl(lines: Iterable[tuple[str, bool]], path: str, said: Iterable[Warn] = ()) -> Log:
    """JSON lines, one record a line; broken ones are skipped and counted. Raises CannotRead without metrics."""
    rows, rollouts, broken, records = Rows(), 0, 0, 0
    last_broken, wrapped = False, 0
    decode: Callable[[str], object] = json.loads
    for line, _ in lines:
        if not line or line.isspace():
            continue
        try:
            record = decode(line)
        except (ValueError, RecursionError):
            broken, last_broken = broken + 1, True
            found = scan(line, line.find("{") + 1) if line.lstrip()[:1] == "{" and len(line) < 1_000_000 else None
            if found is not None and found.state == "open" and len(found.pairs) > 1:
                rows.add(found.pairs, whole=False)
            continue
        last_broken = False
        if not isinstance(record, dict) or "log_history" in record:
            continue
        records += 1
        if records <= 20 and is_rollout(record):
            rollouts += 1
        if records == 20 and rollouts > 10:
            break
        if records == LONG:
            decode = _quick()
        row = as_row(record)
        wrapped += row is not record and "data" in record
        rows.add(row)
    if rollouts * 2 > min(records, 20):
        raise _refuse(
            path,
            "saved answers (rollouts), one a line, not metrics",
            "give the log of the run; rollouts are read beside it",
        )
    if not rows.rows or not _trains(rows):
        raise _refuse(
            path,
            f"{records} JSON records without a training metric",
            "give the file to which the trainer logs its metrics",
        )
    warnings = list(said)
    if broken:
        where = (
            "the last line is cut off; only its complete values are read"
            if broken == 1 and last_broken
            else f"{broken} lines are no JSON record and were skipped"
        )
        warnings.append(Warn("broken_lines", where))
    return rows.finish(
        path=path,
        format="jsonl",
        nonfinite="null" if wrapped and any(rows.nulls.values()) else "unknown",
        warnings=warnings,
    )


def _quick() -> Callable[[str], object]:
    """The decoder for many lines: orjson where it is installed, else the standard one."""
    try:
        quick: Callable[[str], object] = import_module("orjson").loads
    except ImportError:
        return json.loads

    def decode(line: str) -> object:
        try:
            return quick(line)
        except ValueError:
            return json.loads(line)  # orjson refuses NaN and Infinity, which trainers write

    return decode


def _trains(rows: Rows) -> bool:
    return metric_like(rows.keys)


def read_document(text: str, path: str, said: Iterable[Warn] = ()) -> Log:
    """One JSON document: a trainer state, a list of rows, a dict of lists, or a W&B summary.

    Rows are decoded one at a time, so a document that was cut off gives the rows before the cut. Raises CannotRead.
    """
    if len(text) > DOCUMENT_LIMIT:
        raise _refuse(path, f"a JSON document over {DOCUMENT_LIMIT >> 20} MiB", "give the metrics as JSON lines")
    begin = len(text) - len(text.lstrip())
    warnings = list(said)
    rows = Rows()
    if text[begin : begin + 1] == "[":
        return _listed(_Array(text, begin + 1), path, warnings, "json_history")
    history = re.search(_HISTORY, text)
    if history:
        form = "trainer_state" if history[1] == "log_history" else "json_history"
        return _listed(_Array(text, history.end()), path, warnings, form)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refuse(path, "a JSON document that is cut off or broken", "give the whole file") from error
    if not isinstance(document, dict):
        raise _refuse(path, "a JSON value that is no table", "give the log of the run")
    columns = {k: v for k, v in document.items() if isinstance(v, list)}
    longest = max((len(v) for v in columns.values()), default=0)
    if longest > 1 and len(columns) * 2 >= len(document) and metric_like(columns):
        for place in range(min(longest, 10_000_000)):
            rows.add({k: v[place] for k, v in columns.items() if place < len(v)})
        return rows.finish(path=path, format="json_history", warnings=warnings)
    numbers = [k for k, v in document.items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    flat = sum(isinstance(v, (int, float)) for v in document.values()) * 2 > len(document)
    stepped = any(key in document for key in STEP_KEYS)
    if flat and len(numbers) >= 2 and metric_like(numbers) and (stepped or any("/" in key for key in numbers)):
        rows.add(document)
        if "step" in document:
            return rows.finish(path=path, format="jsonl", warnings=warnings)
        warnings.append(Warn("summary_only", "only the last value of each metric is known"))
        return rows.finish(path=path, format="summary", warnings=warnings)
    raise _refuse(path, "a configuration, not metrics", "give the log of the run, and this file as its configuration")


class _Array:
    """The objects of a JSON array, decoded one at a time; ``end`` is where it stopped, ``cut`` whether torn."""

    def __init__(self, text: str, place: int) -> None:
        self.text, self.end, self.cut = text, place, False

    def __iter__(self) -> Iterator[dict[str, object]]:
        decode = json.JSONDecoder().raw_decode
        while True:
            gap = _BETWEEN.match(self.text, self.end)
            self.end = gap.end() if gap else self.end
            if self.text[self.end : self.end + 1] == "]":
                return
            try:
                record, self.end = decode(self.text, self.end)
            except (ValueError, RecursionError):
                self.cut = True
                return
            if isinstance(record, dict):
                yield record


def _around(text: str) -> dict[str, float]:
    """The plain fields of a trainer state, from the text without its history."""
    return {
        found[1]: float(found[2])
        for found in re.finditer(
            r'"(max_steps|logging_steps|global_step|num_train_epochs|train_batch_size)"\s*:\s*(\d{1,12}(?:\.\d+)?)',
            text,
        )
    }


def _listed(records: _Array, path: str, said: list[Warn], form: str) -> Log:
    rows = Rows()
    start = records.end
    count = answers = 0
    for record in records:
        count += 1
        answers += count <= 20 and is_rollout(record)
        rows.add(as_row(record))
    if answers * 2 > min(count, 20):
        raise _refuse(
            path, "saved answers (rollouts), not metrics", "give the log of the run; rollouts are read beside it"
        )
    if records.cut:
        said.append(Warn("broken_lines", "the document is cut off; the rows before the cut are read"))
    if not rows.rows or not _trains(rows):
        raise _refuse(
            path,
            f"{count} JSON records without a training metric",
            "give the file to which the trainer logs its metrics",
        )
    around = _around(records.text[:start] + records.text[records.end :])
    planned, spacing = around.get("max_steps"), around.get("logging_steps")
    log = rows.finish(
        path=path,
        format=form,
        nonfinite="filtered" if form == "trainer_state" else "unknown",
        spacing=spacing,
        warnings=said,
    )
    config = {key: int(around[key]) for key in ("logging_steps", "num_train_epochs") if around.get(key, 0) >= 1}
    return replace(log, config=config, planned_steps=int(planned) if planned else log.planned_steps)


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
    if "__MIN" not in header and not all(re.fullmatch(_HEADER_CELL, cell) for cell in cells[1:]):
        return None
    if any(re.search(_VALUED, cell) for cell in cells):
        return None
    named = metric_like(cells) or {c.lower() for c in cells} & _LONG_FORM
    return best if named and all(len(cell) < 200 for cell in cells) else None


def read_csv(
    lines: Iterable[tuple[str, bool]], path: str, mark: str, said: Iterable[Warn] = (), run: str | None = None
) -> Log:
    """Separated columns: wide (one for each metric), long (run, step, key, value), or exported from W&B.

    ``run`` names the run to take when the table holds several. Raises CannotRead naming the runs otherwise.
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
        raise _refuse(path, "an empty table", "give the log of the run") from error
    lowered = [cell.lower() for cell in header]
    long = _LONG_FORM & set(lowered) and _LONG_VALUE & set(lowered)
    names, keep = _exported(header, path, run)
    rows, broken = Rows(), 0
    cells: list[str] | None = None
    records: dict[str, dict[float, dict[str, object]]] = {}

    texts: set[int] = set()

    def take(cells: list[str], sampled: bool) -> None:
        nonlocal broken
        if len(cells) != len(header):
            broken += 1
            return
        if long:
            _gather(records, lowered, cells, mark)
            return
        if not sampled:
            try:
                rows.add(
                    {
                        name: float(cells[at])
                        for at, name in zip(keep, names, strict=True)
                        if cells[at] and at not in texts
                    }
                )
                return
            except ValueError:
                pass
        row = {name: cell for at, name in zip(keep, names, strict=True) if (cell := _cell(cells[at], mark)) is not None}
        texts.update(at for at, name in zip(keep, names, strict=True) if name in row and number(row[name]) is None)
        rows.add_printed(row)

    try:
        for following in table:
            if cells is not None:
                take(cells, rows.rows < SAMPLED)
            cells = following
    except csv.Error:
        broken += 1
    if cells is not None:
        if not last[0] and len(cells) <= len(header):
            warnings.append(
                Warn("cut_text", "the last line does not end; its last cell may be incomplete and is left out")
            )
            cells = [*cells[:-1], *[""] * (len(header) - len(cells) + 1)]
        take(cells, True)
    if long:
        if len(records) > 1 and run not in records:
            raise CannotRead(
                "one run",
                f"{path}: a table of {len(records)} runs",
                choices=sorted(records),
                hint="name one with --run NAME",
            )
        for step, row in next(iter(records.values()), {}).items() if run not in records else records[run].items():
            rows.add(row, None if step != step else step)
    if broken:
        warnings.append(Warn("broken_lines", f"{broken} lines do not have {len(header)} cells; skipped"))
    if not rows.rows or not _trains(rows):
        raise _refuse(
            path,
            f"a table of {len(header)} columns without a training metric",
            "give the table to which the trainer logs",
        )
    return rows.finish(path=path, format="csv", warnings=warnings)


def _exported(header: list[str], path: str, run: str | None) -> tuple[list[str], list[int]]:
    """Metric names and column numbers; the run prefix of W&B exports (``run - metric``) is taken off."""
    paired = [name for name in header if name.endswith(("__MIN", "__MAX"))]
    if not paired:
        return header, list(range(len(header)))
    names, keep, runs = [], [], set()
    for at, name in enumerate(header):
        if name.endswith(("__MIN", "__MAX")):
            continue
        owner, dash, metric = name.rpartition(" - ")
        if dash:
            runs.add(owner)
            if run is not None and owner != run:
                continue
        names.append(metric if dash else name)
        keep.append(at)
    if len(runs) > 1 and run not in runs:
        raise CannotRead(
            "one run", f"{path}: an export of {len(runs)} runs", choices=sorted(runs), hint="name one with --run NAME"
        )
    return names, keep


def _gather(records: dict[str, dict[float, dict[str, object]]], header: list[str], cells: list[str], mark: str) -> None:
    at = dict(zip(header, cells, strict=True))
    owner = next((at[k] for k in ("run", "run_name", "run_id", "experiment") if k in at), "")
    name = next((at[k] for k in _LONG_FORM if k in at), "")
    value = next((_cell(at[k], mark) for k in _LONG_VALUE if k in at), None)
    step = next((number(at[k]) for k in ("step", "global_step", "_step", "iteration") if k in at), None)
    if name and value is not None and len(records) <= 1000:
        records.setdefault(owner, {}).setdefault(float("nan") if step is None else step, {})[name] = value


def _cell(cell: str, mark: str) -> Printed | None:
    text = cell.strip().strip('"').replace("\u2212", "-")
    if not text or text.endswith("%"):
        return None
    if mark != "," and re.fullmatch(_DECIMAL_COMMA, text):
        text = text.replace(",", ".")
    elif re.fullmatch(_THOUSANDS, text):
        text = text.replace(",", "")
    return Printed(text)


def read_table(lines: Iterable[tuple[str, bool]], path: str, said: Iterable[Warn] = ()) -> Log | None:
    """The first pasted table whose header names metrics, with pipes or aligned columns; None without one."""
    header: list[str] = []
    rows, cut, piped = Rows(), False, False
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
        values = [_cell(cell, "|") for cell in cells]
        if not values or values[0] is None or number(values[0]) is None or len(cells) > len(header):
            if rows.rows:
                break
            header = []
            continue
        rows.add(
            {k: v for k, v in zip(header[1:], values[1:], strict=False) if v is not None},
            number(values[0]),
            whole=ended,
        )
    if not rows.rows or not _trains(rows):
        return None
    warnings = [*said, *([Warn("cut_text", "the last line does not end; its last cell is left out")] if cut else [])]
    log = rows.finish(path=path, format="table", warnings=warnings)
    return replace(log, step_source=header[0].lower(), excerpt=True)


def _cells(text: str, piped: bool) -> list[str]:
    parts = text.strip("|").split("|") if piped else re.split(_GAP, text)
    return [part.strip().strip("*`").strip() for part in parts]
