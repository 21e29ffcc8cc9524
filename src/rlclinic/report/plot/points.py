"""The points that a plot draws of a column: few enough to be quick, every spike kept, every hole left open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlclinic.model import Column, Floats
from rlclinic.stats.curve import smooth

HOLE = 3.0
"""Neighbours farther apart than this many median distances are a hole in the log and stay unconnected (ours)."""
SMOOTHED = 40
"""Points from which a robust line is drawn over them; fewer are joined as they are (ours)."""
_WIDTH, _LEAST_WIDTH = 0.04, 9
"""Share of the points under the running median, and their least number (ours, by eye, near the 2.5 % of ``smooth``)."""
_COURSE = 240
"""Points of the robust line: no screen shows more bends of a line that has been smoothed over 4 % of its length."""
_MOST_OF, _NO_NOISE = (0.05, 0.95), 2e-3
"""Where nearly all points lie within so small a share of their range from the line, they are the line (ours)."""
_NOTHING = 1e-9
"""Share of the largest value below which a smoothed one is a rounding error."""
_RUNS = 200
"""Runs of NaN that are told apart; nearer ones are drawn as one (ours)."""


class Line(NamedTuple):
    """(n,) steps, never falling, and values; a NaN among the values is where the line is broken."""

    steps: Floats
    values: Floats


def thinned(column: Column, bins: int) -> Line:
    """The finite points of ``column``, of each of ``bins`` equal pieces of its steps the lowest and the highest.

    Both stand in their true order, so that no spike is lost and none is moved by more than a piece. A hole in the log
    or a NaN breaks the line, unless it is narrower than a piece. At most 4 ``bins`` points, mostly less than half.
    """
    steps, values, seen = column.steps, column.values, np.isfinite(column.values)
    found = np.flatnonzero(seen)
    if not len(found):
        return Line(np.empty(0), np.empty(0))
    x, y = steps[found], values[found]
    broken = _breaks(steps, found, bins)
    kept = np.arange(len(x)) if len(x) <= 2 * bins else _lowest_and_highest(x, y, broken, bins)
    behind = np.searchsorted(kept, np.flatnonzero(broken), side="right")  # where a break falls among the kept points
    at = x[np.flatnonzero(broken)] / 2 + x[np.flatnonzero(broken) + 1] / 2
    return Line(np.insert(x[kept], behind, at), np.insert(y[kept], behind, np.nan))


def _breaks(steps: Floats, found: NDArray[np.intp], bins: int) -> NDArray[np.bool_]:
    """(finite points - 1,) whether the line is broken between two neighbours."""
    distance = np.diff(steps[found])
    if not len(distance):
        return np.zeros(0, dtype=np.bool_)
    piece = (steps[found[-1]] - steps[found[0]]) / bins
    if distance.max() <= piece:
        return np.zeros(len(distance), dtype=np.bool_)
    unseen = np.diff(found) > 1
    usual = float(np.median(distance))
    return np.asarray((unseen | (distance > HOLE * usual)) & (distance > piece))


def _lowest_and_highest(x: Floats, y: Floats, broken: NDArray[np.bool_], bins: int) -> NDArray[np.intp]:
    """Indices of the lowest and the highest point of each piece on each side of a break, and of both ends, in order."""
    low, high = float(x[0]), float(x[-1])
    piece = np.minimum(((x - low) / (high - low) * bins).astype(np.int64), bins - 1)
    starts = np.concatenate(([0], np.flatnonzero((piece[1:] != piece[:-1]) | broken) + 1))
    lengths = np.diff(np.append(starts, len(x)))
    keep = np.zeros(len(x), dtype=np.bool_)
    keep[[0, -1]] = True
    for extreme in (np.minimum, np.maximum):
        found = np.flatnonzero(y == np.repeat(extreme.reduceat(y, starts), lengths))
        group = np.searchsorted(starts, found, side="right")
        keep[found[np.concatenate(([True], group[1:] != group[:-1]))]] = True
    return np.flatnonzero(keep)


def course(column: Column) -> Line | None:
    """The robust line of ``column``, broken where its points are; None where they are too few for one, or a schedule whose
    corners it would only round off."""
    finite = column.finite
    if len(finite) < SMOOTHED:
        return None
    width = max(_LEAST_WIDTH, round(_WIDTH * len(finite)))
    found = np.flatnonzero(np.isfinite(column.values))
    broken = np.flatnonzero(_breaks(column.steps, found, _COURSE))
    line = smooth(finite.values, width)
    if _noiseless(finite.values, line):
        return None
    line[np.abs(line) < _NOTHING * np.abs(finite.values).max()] = 0.0
    kept = np.unique(np.concatenate((np.linspace(0, len(line) - 1, _COURSE).astype(np.intp), broken, broken + 1)))
    at = finite.steps[broken] / 2 + finite.steps[broken + 1] / 2
    behind = np.searchsorted(kept, broken, side="right")
    return Line(np.insert(finite.steps[kept], behind, at), np.insert(line[kept], behind, np.nan))


def _noiseless(values: Floats, line: Floats) -> bool:
    """Whether nearly all of (n,) values lie on the smoothed line: a schedule, a count, a setting."""
    with np.errstate(over="ignore"):
        low, high = np.quantile(values, _MOST_OF)
        rest = float(np.quantile(np.abs(values - line), _MOST_OF[1]))
        return rest <= max(_NO_NOISE * float(high - low), 1e-12 * float(np.abs(values).max())) < np.inf


def lasting(column: Column, low: float, high: float) -> bool:
    """Whether three neighbouring finite values lie beyond ``low`` or ``high``: a stretch of the course, no spike."""
    values = column.finite.values
    beyond = (values < low) | (values > high)
    return bool(np.any(beyond[2:] & beyond[1:-1] & beyond[:-2]))


def unreadable(column: Column) -> list[tuple[float, float]]:
    """First and last step of each run of NaN and infinities; runs that no eye tells apart are one."""
    bad = np.flatnonzero(~np.isfinite(column.values))
    if not len(bad):
        return []
    steps = column.steps[bad]
    apart = np.diff(bad) > 1
    apart &= np.diff(steps) > (column.steps[-1] - column.steps[0]) / _RUNS
    edge = np.flatnonzero(apart)
    firsts, lasts = np.concatenate(([0], edge + 1)), np.concatenate((edge, [len(bad) - 1]))
    return list(zip(steps[firsts].tolist(), steps[lasts].tolist(), strict=True))
