"""The numbers of all plots as one piece of JSON for the page: columns once each, packed, bounded in size."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlclinic.model import Column, Floats
from rlclinic.report.plot.points import Line, thinned

POINTS = 2000
"""Points of a column that no finding speaks of (architecture study: no eye tells them from 20,000)."""
WHOLE_BYTES, REST_BYTES = 800_000, 1_300_000
"""Bytes in which columns with all their points, and all others, must fit (ours: a page stays below 3 MB)."""
_FEWEST = 200
_BYTES = 8.5
"""Bytes of a point, packed and as base64."""
_SINGLE = 1e-4
"""Share of its range by which rounding to 32 bits may move a value (ours: a tenth of a pixel is more)."""
_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


@dataclass(frozen=True, eq=False)
class Points:
    """A column of which the page may zoom; ``whole``: a finding speaks of it, so that every point matters."""

    column: Column
    whole: bool = False


def pack(plots: Mapping[str, Mapping[str, object]]) -> str:
    """The plots by figure, their columns packed once each; safe between the tags of a script."""
    packing = _Packing(plots)
    drawn = {id: packing.packed(data) for id, data in plots.items()}
    text = json.dumps({"columns": packing.columns, "plots": drawn}, separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)


class _Packing:
    """One pass over the data of all plots."""

    def __init__(self, plots: Mapping[str, Mapping[str, object]]) -> None:
        every = [p for data in plots.values() for p in _points(data)]
        self.whole = {id(p.column) for p in every if p.whole}
        lengths = {id(p.column): len(p.column) for p in every}
        room = WHOLE_BYTES / _BYTES
        for key in sorted(self.whole, key=lambda k: lengths[k]):
            room -= lengths[key]
            if room < 0:
                self.whole.discard(key)
        many = max(len(lengths.keys() - self.whole), 1)
        self.most = int(min(POINTS, max(REST_BYTES / _BYTES / many, _FEWEST)))
        self.columns: list[dict[str, object]] = []
        self.known: dict[int, int] = {}
        self.kept: list[object] = []

    def packed(self, value: object) -> object:
        if isinstance(value, Points):
            return self.column(value.column)
        if isinstance(value, Line):
            return encoded(value)
        if isinstance(value, Mapping):
            return {str(k): self.packed(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.packed(v) for v in value]
        if isinstance(value, np.ndarray):
            return _values(value)
        if isinstance(value, float) and not np.isfinite(value):
            return None
        return value

    def column(self, column: Column) -> int:
        key = id(column)
        if key not in self.known:
            self.kept.append(column)  # so that no other object gets its id
            whole = key in self.whole or len(column) <= self.most
            line = everything(column) if whole else few(column, self.most)
            self.known[key] = len(self.columns)
            self.columns.append({**encoded(line), "of": len(column)})
        return self.known[key]


def _points(value: object) -> list[Points]:
    if isinstance(value, Points):
        return [value]
    if isinstance(value, Mapping):
        return [p for v in value.values() for p in _points(v)]
    if isinstance(value, (list, tuple)) and not isinstance(value, Line):
        return [p for v in value for p in _points(v)]
    return []


def few(column: Column, most: int) -> Line:
    """At most ``most`` points (at least 16), as ``thinned`` chooses them."""
    bins = max(most, 16) // 2 - 1
    while True:
        line = thinned(column, bins)
        if len(line.steps) <= most or bins <= 4:
            return line
        bins = bins * 3 // 4


def everything(column: Column) -> Line:
    """Every point, with the breaks that ``thinned`` leaves."""
    return thinned(column, max(len(column), 1))


def encoded(line: Line) -> dict[str, object]:
    """Steps as the first and what is added each time, exact; values as 32-bit floats where these show the same curve."""
    return {"steps": _steps(line.steps), "values": _values(line.values)}


def _steps(steps: Floats) -> dict[str, object]:
    """``first`` and either ``every`` (equally far apart), whole ``u2``/``u4`` differences, or all as ``f8``."""
    if not len(steps):
        return {"n": 0, "first": 0, "every": 1}
    whole = bool(np.all(steps == np.floor(steps))) and bool(np.all(np.abs(steps) < 2.0**53))
    moves = np.diff(steps)
    if whole and (not len(moves) or bool(np.all(moves == moves[0]))):
        return {"n": len(steps), "first": int(steps[0]), "every": int(moves[0]) if len(moves) else 1}
    if whole and moves.min() >= 0 and moves.max() < 2**32:
        kind = "u2" if moves.max() < 2**16 else "u4"
        return {"n": len(steps), "first": int(steps[0]), kind: _base64(moves, f"<{kind}")}
    return {"n": len(steps), "f8": _base64(steps, "<f8")}


def _values(values: Floats) -> dict[str, str]:
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = finite.astype(np.float32).astype(np.float64)
        extent = float(finite.max() / 2 - finite.min() / 2) if len(finite) else 0.0
        moved = float(np.abs(single / 2 - finite / 2).max()) if len(finite) else 0.0
    kind = "f4" if moved <= extent * _SINGLE or moved == 0.0 else "f8"
    if extent == 0.0 and len(finite) and np.isfinite(single).all():
        kind = "f4"
    return {kind: _base64(values, f"<{kind}")}


def _base64(values: Floats, kind: str) -> str:
    with np.errstate(over="ignore", under="ignore"):
        return base64.b64encode(values.astype(np.dtype(kind)).tobytes()).decode("ascii")
