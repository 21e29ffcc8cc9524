"""A column drawn in characters: braille or ASCII, smallest and largest value per cell, so that no spike is lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlclinic.model import Column, Floats

NONFINITE = {False: "×", True: "x"}
"""What stands in a cell whose values are all NaN or infinite (key: ASCII only)."""

PANEL = 3
"""Lines of the larger form of a curve."""

# Dot bits of a braille cell, top to bottom, for its left and its right half (Unicode chapter 21.1).
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_LOW_TO_HIGH = "_.-'"

BEYOND = "^v"
"""What stands in a cell of a one-line curve for values above and below its scale."""

# Ours: extremes are left off the scale of a one-line curve when they are so few and would flatten all the rest so much.
_FEW = 40
_FLATTENING = 3.0
_LEAST_POINTS = 10

# Ours: neighbours farther apart than this many median distances are a hole in the log and stay unconnected.
_HOLE = 3.0


def draw(
    column: Column,
    width: int,
    *,
    height: int = 1,
    span: tuple[float, float] | None = None,
    ascii: bool = False,
    limits: tuple[float, float] | None = None,
) -> tuple[str, ...]:
    """``height`` lines of ``width`` characters, top line first.

    ``span`` is the range of trainer steps that the width stands for (default: the column's own); curves drawn with one
    span line up. Missing steps stay blank, a cell that holds only NaN or infinities shows ``NONFINITE``. One line has
    the robust ``scale`` and marks what lies beyond it; more lines have the full range, or with ``limits`` that range.
    """
    if width < 1 or height < 1 or not len(column):
        return (" " * max(width, 0),) * max(height, 1)
    low, high = span if span is not None else (float(column.steps[0]), float(column.steps[-1]))
    per_cell = 1 if ascii else 2
    at, values = _on_grid(column.steps, column.values, low, high, width * per_cell)
    least, most = _extremes(at, values, width * per_cell)
    robust = scale(column)[:2] if height == 1 and limits is None else None
    bottom, top = _levels(least, most, height * 4, limits or robust)
    rows = _ascii_rows(bottom, top, height) if ascii else _braille_rows(bottom, top, height)
    if robust is not None:
        inside = column.finite
        inside = inside.since(low).upto(high)
        cells = _positions(inside.steps, low, high, width * per_cell) // per_cell
        for sign, beyond in zip(BEYOND, (inside.values > robust[1], inside.values < robust[0]), strict=True):
            for cell in np.unique(cells[beyond]).tolist():
                rows[0][cell] = sign
    return _with_nonfinite(rows, bottom, at[~np.isfinite(values)] // per_cell, per_cell, ascii)


def scale(column: Column) -> tuple[float, float, bool]:
    """Lowest and highest value that a one-line curve of ``column`` shows, and whether some lie beyond.

    They are the extremes, unless a few values would flatten all the others: a single spike, say.
    """
    values = column.finite.values
    if not len(values):
        return 0.0, 0.0, False
    floor, ceiling = float(values.min()), float(values.max())
    if len(values) < _LEAST_POINTS:
        return floor, ceiling, False
    few = max(1, len(values) // _FEW)
    sorted_ends = np.partition(values, (few, len(values) - 1 - few))
    low, high = float(sorted_ends[few]), float(sorted_ends[-1 - few])
    half = high / 2 - low / 2
    if half > 0 and (ceiling / 2 - high / 2) / _FLATTENING > half:
        ceiling = high + half / 2
    if half > 0 and (low / 2 - floor / 2) / _FLATTENING > half:
        floor = low - half / 2
    return floor, ceiling, bool(np.any((values < floor) | (values > ceiling)))


def panel(
    column: Column,
    width: int,
    *,
    span: tuple[float, float],
    ends: tuple[str, str],
    mark: float | None = None,
    ascii: bool = False,
) -> list[tuple[str, str]]:
    """A larger curve as (label, line) pairs: ``PANEL`` lines named by ``ends`` (lowest, highest), then the axis."""
    rows = draw(column, width, height=PANEL, span=span, ascii=ascii)
    labels = (ends[1], *[""] * (PANEL - 2), ends[0])
    return [*zip(labels, rows, strict=True), ("", axis(span, width, mark))]


def overlay(
    columns: Sequence[Column], width: int, *, span: tuple[float, float], mark: float | None = None, ascii: bool = False
) -> tuple[list[tuple[str, ...]], tuple[float, float], str]:
    """Several runs of one metric on one scale: two lines for each, the (lowest, highest) value of that scale, which is
    ``scale`` over all of them, and the axis below."""
    limits = [scale(column)[:2] for column in columns if len(column.finite)]
    low, high = min((v[0] for v in limits), default=0.0), max((v[1] for v in limits), default=0.0)
    drawn = [draw(column, width, height=2, span=span, ascii=ascii, limits=(low, high)) for column in columns]
    return drawn, (low, high), axis(span, width, mark)


def axis(span: tuple[float, float], width: int, mark: float | None = None) -> str:
    """A line of ``width`` characters to stand below a curve: first and last step, and ``^`` with the step ``mark``."""
    line = [" "] * width

    def put(text: str, at: int) -> None:
        at = max(0, min(at, width - len(text)))
        if len(text) <= width and not "".join(line[max(0, at - 1) : at + len(text) + 1]).strip():
            line[at : at + len(text)] = text

    if mark is not None and span[0] <= mark <= span[1]:
        place, text = int(_positions(np.array([mark]), *span, width)[0]), f"{mark:.10g}"
        fits = place + len(text) + 2 <= width
        put(f"^ {text}" if fits else f"{text} ^", place if fits else place - len(text) - 1)
    put(f"{span[0]:.10g}", 0)
    put(f"{span[1]:.10g}", width)
    return "".join(line)


def _positions(steps: Floats, low: float, high: float, cells: int) -> NDArray[np.int64]:
    share = (steps - low) / (high - low) if high > low else np.full(len(steps), 0.5)
    return np.clip((share * cells).astype(np.int64), 0, cells - 1)


def _on_grid(steps: Floats, values: Floats, low: float, high: float, cells: int) -> tuple[NDArray[np.int64], Floats]:
    """Cell and value of every point; where points are fewer than cells, the straight lines between them as well."""
    inside = (steps >= low) & (steps <= high)
    steps, values = steps[inside], values[inside]
    at = _positions(steps, low, high, cells)
    if len(steps) < 2 or len(steps) >= cells:
        return at, values
    usual = float(np.median(np.diff(steps)))
    known = np.asarray(np.isfinite(values))
    extra_at, extra = [at], [values]
    for i in range(len(steps) - 1):
        between = int(at[i + 1] - at[i])
        joined = steps[i + 1] - steps[i] <= _HOLE * usual and bool(known[i] and known[i + 1])
        if between > 1 and joined:
            share = np.arange(1, between) / between
            extra_at.append(at[i] + np.arange(1, between))
            extra.append(values[i] * (1 - share) + values[i + 1] * share)
    return np.concatenate(extra_at), np.concatenate(extra)


def _extremes(at: NDArray[np.int64], values: Floats, cells: int) -> tuple[Floats, Floats]:
    """Smallest and largest finite value per cell; NaN where a cell has none."""
    finite = np.isfinite(values)
    least, most = np.full(cells, np.inf), np.full(cells, -np.inf)
    np.minimum.at(least, at[finite], values[finite])
    np.maximum.at(most, at[finite], values[finite])
    empty = ~np.isfinite(least)
    least[empty] = most[empty] = np.nan
    return least, most


def _levels(
    least: Floats, most: Floats, dots: int, limits: tuple[float, float] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lowest and highest dot per cell, counted from below; -1 where the cell is empty.

    The dots stand for the range between ``limits`` (default: the extremes); what lies beyond is drawn at its edge.
    """
    known = np.isfinite(least)
    bottom = np.full(len(least), -1, dtype=np.int64)
    top = bottom.copy()
    if known.any():
        floor, ceiling = limits or (float(least[known].min()), float(most[known].max()))
        # Halved before subtracting: the range of two huge values of opposite sign overflows otherwise.
        half = ceiling / 2 - floor / 2
        for target, source in ((bottom, least), (top, most)):
            inside = np.clip(source[known], floor, ceiling)
            share = (inside / 2 - floor / 2) / half if half > 0 else np.zeros(int(known.sum()))
            target[known] = np.clip(np.rint(share * (dots - 1)), 0, dots - 1).astype(np.int64)
    return bottom, top


def _braille_rows(bottom: NDArray[np.int64], top: NDArray[np.int64], height: int) -> list[list[str]]:
    rows = []
    for row in range(height):
        base = (height - 1 - row) * 4
        line = []
        for cell in range(len(bottom) // 2):
            bits = 0
            for half in (0, 1):
                i = 2 * cell + half
                if bottom[i] >= 0:
                    for dot in range(max(bottom[i], base), min(top[i], base + 3) + 1):
                        bits |= _BITS[half][3 - (dot - base)]
            line.append(chr(0x2800 + bits) if bits else " ")
        rows.append(line)
    return rows


def _ascii_rows(bottom: NDArray[np.int64], top: NDArray[np.int64], height: int) -> list[list[str]]:
    rows = []
    for row in range(height):
        base = (height - 1 - row) * 4
        line = []
        for b, t in zip(bottom.tolist(), top.tolist(), strict=True):
            lowest, highest = max(b, base) - base, min(t, base + 3) - base
            if b < 0 or lowest > highest:
                line.append(" ")
            else:
                line.append("|" if highest - lowest > 1 else _LOW_TO_HIGH[highest])
        rows.append(line)
    return rows


def _with_nonfinite(
    rows: list[list[str]], bottom: NDArray[np.int64], bad: NDArray[np.int64], per_cell: int, ascii: bool
) -> tuple[str, ...]:
    filled = np.any(bottom.reshape(-1, per_cell) >= 0, axis=1)
    for cell in np.unique(bad).tolist():
        if not filled[cell]:
            rows[-1][cell] = NONFINITE[ascii]
    return tuple("".join(line) for line in rows)
