"""Metrics out of JSON: lines, trainer states and other histories, also joined, cut, or with Python's values in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module

from rlclinic.errors import CannotRead
from rlclinic.model import Warn
from rlclinic.readers.axis import STEP_KEYS
from rlclinic.readers.choice import chosen
from rlclinic.readers.owners import RowOwners
from rlclinic.readers.rows import Log, Rows
from rlclinic.readers.tabular import frames
from rlclinic.readers.tabular.native import Native, native_form
from rlclinic.readers.tabular.sheets import lone_points
from rlclinic.readers.text.literal import scan
from rlclinic.readers.tokens import Printed, metric_like, number

DOCUMENT_LIMIT = 256 << 20
"""Longest single JSON document in characters (ours: 100,000 rows of 60 metrics have about 250 MiB)."""

LONG = 2_000
"""Records from which a faster decoder is worth its import (ours)."""
TOGETHER, TOGETHER_CHARACTERS = 16, 1 << 18
"""Most lines and characters decoded at once by the faster decoder (ours; the standard one gains nothing by it)."""
MOST_KINDS = 10_000
"""Most sets of keys known to need no second look (ours; a log has a handful)."""
RESCUED = 1_000_000
"""Longest line in characters that is looked through when it is no JSON (ours)."""

NEAR = 8_192
"""Characters within which a record of a joined line mostly ends (ours: 200 metrics)."""
OBJECTS = 2_000_000
"""Most objects, and most lists, of a document that is decoded as a whole (ours: 64 to 230 bytes each)."""
SHORT = 100_000
"""Longest row in characters of a list that is too long to be decoded as a whole (ours)."""
NUMBERS = 24_000_000
"""Most commas in such a document (ours: one a number, of 32 bytes)."""

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
_HELD_OUT = frozenset({"eval", "val", "valid", "validation", "test", "held_out", "heldout"})
_CUT = Warn("broken_lines", "the document is cut off; the rows before the cut are read")
# Not aware of quotes: inside a text value the spelling of such a word means nothing to us.
_BARE_WORD = r"(?i)(?<=[:,\[ ])([-+]?)(nan|inf(?:inity)?)(?=\s{0,8}[,}\]])"
_DIVIDER = ",0,"
_BETWEEN = re.compile(r"[\s,]*")
_HISTORY = r'"(log_history|history|log|logs|metrics|rows)"\s*:\s*\[\s*(?=[{\]])'


def as_row(record: Mapping[str, object]) -> Mapping[str, object]:
    """A record with its metrics at the top (``{"step": 3, "data": {...}}`` and ``{"step": 3, "metrics": {...}}``), and
    those of a row that says it is of an evaluation under ``eval/``."""
    held_out = record.get("eval") is True or record.get("split") in _HELD_OUT
    if len(record) <= 4 + held_out:
        for wrapper in ("data", "metrics"):
            inner = record.get(wrapper)
            if isinstance(inner, dict):
                record = {**{k: v for k, v in record.items() if k != wrapper}, **inner}
                break
    if held_out:
        return {k if k in STEP_KEYS or k == "epoch" else f"eval/{k}": v for k, v in record.items() if k != "eval"}
    return record


def is_rollout(record: Mapping[str, object]) -> bool:
    """True when a record is one saved answer, not a row of metrics."""
    texts = [key for key in _ROLLOUT_KEYS & record.keys() if isinstance(record[key], (str, list))]
    return bool(texts) and not any(key in record for key in ("loss", "grad_norm", "learning_rate"))


def holds_answers(columns: Mapping[str, bool]) -> bool:
    """As ``is_rollout`` for the columns of a table, each with whether it holds texts or lists."""
    texts = [key for key in _ROLLOUT_KEYS & columns.keys() if columns[key]]
    return bool(texts) and not any(key in columns for key in ("loss", "grad_norm", "learning_rate"))


def refuse(path: str, what: str, hint: str) -> CannotRead:
    return CannotRead("a log with metrics", f"{path}: {what}", hint=hint)


@dataclass
class _Tally:
    """What did not read as records: lines with something else in them, and whether the text ends inside a record.

    ``tight`` says that the records have no blanks between their parts, as orjson writes them and Python's json does not.
    """

    broken: int = 0
    cut: bool = False
    tight: bool = False


def read_jsonl(
    lines: Iterable[tuple[str, bool]], path: str, said: Iterable[Warn] = (), *, run: str | None = None
) -> Log:
    """JSON lines, mostly one record a line; broken ones are skipped and counted. Raises CannotRead without metrics.

    Lines of several records, printed Python dictionaries and bare ``nan`` and ``inf`` are read as well.
    """
    tally = _Tally()
    return _logged(_decoded(lines, tally), tally, path, said, run)


def _decoded(lines: Iterable[tuple[str, bool]], tally: _Tally) -> Iterator[tuple[Mapping[str, object], bool]]:
    """(record, whether it is whole) for every record in the lines, many of which are decoded together."""
    decode: Callable[[str], object] = json.loads
    count = size = 0
    most = 1
    block: list[str] = []
    for line, _ in lines:
        if not line or line.isspace():
            continue
        if len(line) > OBJECTS and max(line.count("{"), line.count("[")) > OBJECTS:
            tally.broken += 1
            continue
        count += 1
        tally.tight |= count == 1 and line[:8] == '{"step":' and line[8:9] != " "
        block.append(line)
        size += len(line)
        if len(block) < most and size < TOGETHER_CHARACTERS:
            continue
        yield from _block(block, decode, tally)
        block, size = [], 0
        if count == LONG:
            decode = _quick()
            most = 1 if decode is json.loads else TOGETHER
    yield from _block(block, decode, tally)


def _block(
    lines: list[str], decode: Callable[[str], object], tally: _Tally
) -> Iterator[tuple[Mapping[str, object], bool]]:
    """The records of some lines: all of them decoded at once where each line is an object of its own."""
    if len(lines) > 1 and all(line[0] == "{" and line[-1] == "}" for line in lines):
        try:
            records = decode(f"[{_DIVIDER.join(lines)}]")
        except (ValueError, RecursionError):
            records = None
        # The divider between the lines shows that no object reaches over the end of its line.
        if isinstance(records, list) and len(records) == 2 * len(lines) - 1 and not any(records[1::2]):
            tally.cut = False
            for record in records[::2]:
                yield record, True
            return
    for line in lines:
        try:
            record = decode(line)
        except (ValueError, RecursionError):
            yield from _rescued(line, tally)
            continue
        tally.cut = False
        if isinstance(record, dict):
            yield record, True


def _rescued(line: str, tally: _Tally) -> Iterator[tuple[Mapping[str, object], bool]]:
    """The records of a line that is no JSON value: joined ones, printed Python, and the whole values of a cut one."""
    text = with_json_words(line)
    place = 0
    while True:
        gap = _BETWEEN.match(text, place)
        place = gap.end() if gap else place
        if place >= len(text):
            tally.cut = False
            return
        try:
            record, place = _record_at(text, place)
        except (ValueError, RecursionError):
            found = scan(text, place + 1) if text[place] == "{" and len(text) - place < RESCUED else None
            if found is not None and found.state == "closed":
                place = found.end
                yield _plain(found.pairs), True
                continue
            if found is not None and found.state == "open" and len(found.pairs) > 1:
                yield found.pairs, False
            tally.cut = found is not None and found.state == "open"
            break
        if not isinstance(record, dict):
            tally.cut = False
            break
        yield record, True
    tally.broken += 1


def _record_at(text: str, place: int) -> tuple[object, int]:
    """The JSON value at ``place`` and where it ends, as ``raw_decode``, whose error counts all lines before it."""
    decode = json.JSONDecoder().raw_decode
    if len(text) - place > NEAR:
        try:
            record, end = decode(text[place : place + NEAR])
        except json.JSONDecodeError as error:
            if error.pos < NEAR - 20 and not error.msg.startswith("Unterminated"):
                raise
        else:
            if isinstance(record, dict):
                return record, place + end
    return decode(text, place)


def with_json_words(text: str) -> str:
    """The text with bare ``nan`` and ``inf`` in any case spelt as JSON readers take them."""

    def word(found: re.Match[str]) -> str:
        if found[2][0] in "nN":
            return "NaN"
        return "-Infinity" if found[1] == "-" else "Infinity"

    return re.sub(_BARE_WORD, word, text)


def _plain(pairs: Mapping[str, object]) -> dict[str, object]:
    """Printed pairs with numbers for tokens: in a file of records the number of decimals means nothing."""
    plain: dict[str, object] = {}
    for key, value in pairs.items():
        if isinstance(value, Mapping):
            plain[key] = _plain(value)
        else:
            found = number(value) if isinstance(value, Printed) else None
            plain[key] = value if found is None else found
    return plain


def _logged(
    records: Iterable[tuple[Mapping[str, object], bool]],
    tally: _Tally,
    path: str,
    said: Iterable[Warn],
    run: str | None,
) -> Log:
    rows, rollouts, count, wrapped = Rows(), 0, 0, 0
    native: Native | None = None
    owners = RowOwners()
    ordinary: set[tuple[str, ...]] = set()
    for record, whole in records:
        keys = tuple(record)
        if keys in ordinary and whole and rows.add_known(keys, record):
            owners.plain()
            count += 1
            continue
        native = native or native_form(record)
        if not whole:
            native.add(rows, record, whole=False)
            continue
        if "log_history" in record:
            native.closing(record)
            continue
        count += 1
        if count <= 20 and is_rollout(record):
            rollouts += 1
        if count == 20 and rollouts > 10:
            break
        row = as_row(record)
        wrapped += row is not record and "data" in record
        before = rows.rows
        native.add(rows, row)
        owned = owners.note(row, rows.rows - before)
        if row is record and count > 20 and not owned and native.plain and len(ordinary) < MOST_KINDS:
            ordinary.add(keys)
    if rollouts * 2 > min(count, 20):
        raise refuse(
            path,
            "saved answers (rollouts), one a line, not metrics",
            "give the log of the run; rollouts are read beside it",
        )
    warnings = list(said)
    if native is not None:
        rows, told = native.finish(rows, path)
        warnings += told
    _demand_training(rows, count, path)
    label = owners.restrict(rows, path, run, warnings)
    if tally.broken:
        where = (
            "the last line is cut off; only its complete values are read"
            if tally.broken == 1 and tally.cut
            else f"{tally.broken} lines hold something other than JSON records; it was skipped"
        )
        warnings.append(Warn("broken_lines", where))
    nulled = wrapped and any(rows.unread.nulls.values())
    log = rows.finish(
        path=path,
        format="jsonl",
        nonfinite="null" if nulled else native.nonfinite if native is not None else "unknown",
        warnings=warnings,
    )
    written_by = {native.trainer: ""} if native is not None and native.trainer else {}
    if wrapped == count and log.nonfinite == "unknown":
        # verl writes them with orjson, which turns NaN into null; rLLM the same records with json, which keeps it
        log = replace(log, nonfinite="null" if tally.tight else "kept")
    return replace(log, run=label, versions={**log.versions, **written_by})


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


def trains(rows: Rows) -> bool:
    return metric_like(rows.keys)


def _demand_training(rows: Rows, records: int, path: str) -> None:
    """Raises CannotRead for rows made of ``records`` JSON records when no key of theirs is one of training."""
    if not rows.rows or not trains(rows):
        raise refuse(
            path,
            f"{records} JSON records without a training metric",
            "give the file of the metrics; keys of your own: rlclinic names suggest LOG",
        )


def read_document(text: str, path: str, said: Iterable[Warn] = (), *, run: str | None = None) -> Log:
    """One JSON document: a trainer state, a list of rows, a dict of lists, or a W&B summary.

    Rows are decoded one at a time, so a document that was cut off gives the rows before the cut. Raises CannotRead.
    """
    if len(text) > DOCUMENT_LIMIT:
        raise refuse(path, f"a JSON document over {DOCUMENT_LIMIT >> 20} MiB", "give the metrics as JSON lines")
    begin = len(text) - len(text.lstrip())
    warnings = list(said)
    rows = Rows()
    # Counted before anything is built of them, which takes up to a hundred times the text.
    if text.count("[") > OBJECTS or (text.count("{") > OBJECTS and not _flat_rows(text, begin)):
        what = f"a JSON document of over {OBJECTS} objects or lists within others"
        raise refuse(path, what, "give the metrics as JSON lines")
    if text.count(",") > NUMBERS and not _flat_rows(text, begin):
        raise refuse(path, f"a JSON document of over {NUMBERS} values", "give the metrics as JSON lines")
    histories = [found for found, _ in zip(re.finditer(_HISTORY, text), range(2), strict=False)]
    if len(histories) > 1 and (one := _of_runs(text, path, warnings, run)) is not None:
        return one
    if re.match(r"\[\s*\[", text[begin : begin + 100]):
        return _points(text, path, warnings)
    if text[begin : begin + 1] == "[":
        return _listed(_Array(text, begin + 1), path, warnings, "json_history", run)
    if histories:
        form = "trainer_state" if histories[0][1] == "log_history" else "json_history"
        return _listed(_Array(text, histories[0].end()), path, warnings, form, run)
    try:
        document, end = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        if (spoken := with_json_words(text)) != text:
            return read_document(spoken, path, said, run=run)
        raise refuse(path, "a JSON document that is cut off or broken", "give the whole file") from error
    gap = _BETWEEN.match(text, end)
    if text[gap.end() if gap else end :][:1] == "{":
        several = _Array(text, begin, closed=False)
        tally = _Tally()
        log = _logged(((record, True) for record in several), tally, path, said, run)
        return replace(log, warnings=(*log.warnings, _CUT)) if several.cut else log
    if text[end:].strip():
        raise refuse(path, "a JSON document that is cut off or broken", "give the whole file")
    if not isinstance(document, dict):
        raise refuse(path, "a JSON value that is no table", "give the log of the run")
    if table := frames.table(document):
        for row in table:
            rows.add(as_row(row))
        return rows.finish(path=path, format="json_history", warnings=warnings)
    if (one := _chosen(document, path, warnings, run)) is not None:
        return one
    numbers = [k for k, v in document.items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    flat = sum(isinstance(v, (int, float)) for v in document.values()) * 2 > len(document)
    stepped = any(key in document for key in STEP_KEYS)
    if flat and len(numbers) >= 2 and metric_like(numbers) and (stepped or any("/" in key for key in numbers)):
        rows.add(document)
        if "step" in document:
            return rows.finish(path=path, format="jsonl", warnings=warnings)
        warnings.append(Warn("summary_only", "only the last value of each metric is known"))
        return rows.finish(path=path, format="summary", warnings=warnings)
    raise refuse(path, "a configuration, not metrics", "give the log of the run, and this file as its configuration")


def _flat_rows(text: str, begin: int) -> bool:
    """True for a list of short rows without anything in them, which are decoded one by one however many there are."""
    if text[begin : begin + 1] != "[":
        found = re.search(_HISTORY, text[begin : begin + 100_000])
        if found is None:
            return False
        begin += found.end()
    most, place = 0, begin
    while (end := text.find("}", place)) >= 0:
        most = max(most, end - place)
        if most > SHORT or text.count("{", place, end) > 1:
            return False
        place = end + 1
    return True


def _points(text: str, path: str, said: list[Warn]) -> Log:
    """TensorBoard's download of one metric, which the file name tells. Raises CannotRead for other lists of lists."""
    try:
        found = lone_points(json.loads(with_json_words(text)), path)
    except (ValueError, RecursionError):
        found = None
    if found is None or not trains(found[2]):
        raise refuse(path, "a JSON list of lists that no name of a metric goes with", "give the log of the run")
    log = found[2].finish(path=path, format="json_history", nonfinite="kept", warnings=said)
    return replace(log, run=found[0])


def _of_runs(text: str, path: str, said: list[Warn], run: str | None) -> Log | None:
    """One run of a document with several histories; None when it does not read as a whole or as several runs."""
    try:
        document = json.loads(with_json_words(text))
    except (ValueError, RecursionError):
        return None
    return _chosen(document, path, said, run)


def _chosen(document: object, path: str, said: list[Warn], run: str | None) -> Log | None:
    """The run of a document of several that is meant, with its settings. Raises CannotRead to ask for its name."""
    runs = frames.members(document)
    if not runs:
        return None
    name = chosen(path, runs, run)
    rows = Rows()
    for row in runs[name].rows:
        rows.add(as_row(row))
    log = rows.finish(path=path, format="json_history", warnings=said)
    return replace(log, run=name, config=runs[name].config)


class _Array:
    """The objects of a JSON array, decoded one at a time; ``end`` is where it stopped, ``cut`` whether torn.

    ``closed`` is False for objects that follow each other without an array around them, up to the end of the text.
    """

    def __init__(self, text: str, place: int, closed: bool = True) -> None:
        self.text, self.end, self.cut = text, place, False
        self._closed, self._spoken = closed, False

    def __iter__(self) -> Iterator[dict[str, object]]:
        decode = json.JSONDecoder().raw_decode
        while True:
            gap = _BETWEEN.match(self.text, self.end)
            self.end = gap.end() if gap else self.end
            if self.text[self.end : self.end + 1] == "]" or (not self._closed and self.end >= len(self.text)):
                return
            try:
                record, self.end = decode(self.text, self.end)
            except (ValueError, RecursionError):
                if not self._spoken:
                    self._spoken = True
                    self.text = self.text[: self.end] + with_json_words(self.text[self.end :])
                    continue
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


def _listed(records: _Array, path: str, said: list[Warn], form: str, run: str | None) -> Log:
    rows, owners = Rows(), RowOwners()
    start = records.end
    count = answers = 0
    for record in records:
        count += 1
        answers += count <= 20 and is_rollout(record)
        before = rows.rows
        rows.add(as_row(record))
        owners.note(record, rows.rows - before)
    if answers * 2 > min(count, 20):
        raise refuse(
            path, "saved answers (rollouts), not metrics", "give the log of the run; rollouts are read beside it"
        )
    if records.cut:
        said.append(_CUT)
    _demand_training(rows, count, path)
    label = owners.restrict(rows, path, run, said)
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
    return replace(log, config=config, run=label, planned_steps=int(planned) if planned else log.planned_steps)
