"""JSON documents that hold several runs, or one table in the ways pandas writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rlclinic.readers.tokens import metric_like

Rows: TypeAlias = list[Mapping[str, object]]

LONGEST = 10_000_000
"""Most rows made of columns (ours)."""
_HISTORIES = ("log_history", "history", "log", "logs", "metrics", "rows", "data")
_GROUPS = ("runs", "experiments", "trials")
_NAMES = ("run_name", "name", "run", "experiment_name", "experiment", "run_id", "id")
_PARTS = frozenset({"train", "training", "eval", "evaluation", "val", "valid", "validation", "test", *_HISTORIES})


@dataclass(frozen=True)
class Member:
    """One run of a document: its rows, and the settings beside them."""

    rows: Rows
    config: Mapping[str, object]


def members(document: object) -> dict[str, Member]:
    """The runs of a document by name: ``{run: rows}``, ``{run: columns}``, or a list of objects with a history each.

    Empty when the document has no such form. Parts of one run (``train``, ``eval``) are not taken for runs.
    """
    if isinstance(document, dict):
        for group in _GROUPS:
            if isinstance(document.get(group), (dict, list)) and (found := members(document[group])):
                return found
        items: list[tuple[str, object]] = list(document.items())
        if any(name in _PARTS for name, value in items if isinstance(value, (dict, list))):
            return {}
    elif isinstance(document, list):
        items = [
            (next((str(one[key]) for key in _NAMES if isinstance(one.get(key), (str, int))), f"run {place}"), one)
            for place, one in enumerate(document)
            if isinstance(one, dict) and _history(one) is not None
        ]
    else:
        return {}
    found = {}
    for name, value in items:
        member = _member(value)
        if member is not None:
            found[name[:500]] = member
    return found


def _member(value: object) -> Member | None:
    if isinstance(value, dict) and (history := _history(value)) is not None:
        rows = table(history)
        config = value.get("config")
        return Member(rows, config if isinstance(config, dict) else {}) if rows else None
    rows = table(value)
    return Member(rows, {}) if rows else None


def _history(one: Mapping[str, object]) -> object | None:
    """What an object holds as its history: rows or columns."""
    return next((one[key] for key in _HISTORIES if isinstance(one.get(key), (list, dict)) and table(one[key])), None)


def table(value: object) -> Rows:
    """The rows of a list of rows, of columns, or of pandas' frames (``columns``, ``index`` and ``split``); else empty."""
    if isinstance(value, list):
        rows: Rows = [row for row in value if isinstance(row, dict)]
        return rows if 2 * len(rows) > len(value) and _metrics(rows) else []
    if not isinstance(value, dict):
        return []
    names, data = value.get("columns"), value.get("data")
    if isinstance(names, list) and isinstance(data, list) and all(isinstance(name, str) for name in names):
        lines: Rows = [dict(zip(names, line, strict=False)) for line in data if isinstance(line, list)]
        return lines if metric_like(names) else []
    inner = [one for one in value.values() if isinstance(one, dict)]
    if len(inner) == len(value) > 0:
        if all(key.isdecimal() for key in value):
            ordered = sorted(value, key=int)
            return [value[key] for key in ordered] if _metrics(inner) else []
        places = list(inner[0])
        if places and all(place.isdecimal() for place in places) and metric_like(value):
            return [{name: column.get(place) for name, column in value.items()} for place in places[:LONGEST]]
        return []
    columns = {name: column for name, column in value.items() if isinstance(column, list)}
    longest = max(map(len, columns.values()), default=0)
    if longest > 1 and 2 * len(columns) >= len(value) and metric_like(columns) and not _nested(columns.values()):
        return [
            {name: column[place] for name, column in columns.items() if place < len(column)}
            for place in range(min(longest, LONGEST))
        ]
    return []


def _metrics(rows: Iterable[Mapping[str, object]]) -> bool:
    """True when rows hold numbers under names that speak of training."""
    for row, _ in zip(rows, range(50), strict=False):
        if metric_like(key for key, value in row.items() if isinstance(value, (int, float))):
            return True
    return False


def _nested(columns: Iterable[list[object]]) -> bool:
    return all(isinstance(value, (dict, list)) for column in columns for value in column[:5])
