"""A fall or rise so complete that no curve is needed to see it: everything after lies beyond everything just before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from rlclinic.model import Floats, Onset
from rlclinic.stats.curve import median_of, running_median, tidy
from rlclinic.stats.evidence import spread

LEAST = 3
"""Points that must have held the level before, so that a cliff may lie near the start of a log, where the step scan
has no margin (ours)."""
BEFORE = 10
"""Most points of the level before (ours)."""


class Cliff(NamedTuple):
    """A change of level with nothing left in between: levels, size in noise deviations, and when."""

    before: float
    after: float
    near: float
    """Level of the first rows (at most ten) after the change; ``after`` is that of all rows to the end."""
    size: float
    onset: Onset


@np.errstate(over="ignore", invalid="ignore")
def cliff(
    steps: ArrayLike, values: ArrayLike, *, falling: bool, whole: bool = True, most_rows: int = 30
) -> Cliff | None:
    """The largest change after which every value to the end lies beyond every one of the points before it.

    ``steps``, ``values`` (n,), non-finite dropped, three to ten points before, at least five and 5 % of the log after,
    and at most ``most_rows`` rows (or 4 % of the log, at least 2) in between. Complete separation of 3 points from 5
    has a chance of 1/56 among exchangeable values and next to none once the levels must differ by several noise
    deviations, which the caller demands through ``size``. With ``whole`` every earlier point must lie beyond, not only
    those just before: after the highest stretch of slow noise everything is lower. None when there is no such place.
    """
    x, y = tidy(steps, values)
    n = len(y)
    rest_least = max(5, round(0.05 * n))
    if n < LEAST + rest_least:
        return None
    y = -y if not falling else y
    calm = running_median(y, 3) if n >= 60 else y
    later = np.maximum.accumulate(calm[::-1])[::-1]
    earlier = np.minimum.accumulate(calm)
    gap = int(min(most_rows, max(2, round(0.04 * n))))
    best: Cliff | None = None
    for i in _starts(calm, later, gap, rest_least):
        window = calm[max(0, i - BEFORE) : i]
        bound = float(earlier[i - 1]) if whole else float(window.min())
        # The shortest passage that leaves the two levels apart gives the sharpest onset.
        after = next((j for j in range(i, min(i + gap, n - rest_least) + 1) if later[j] < bound), None)
        if after is None:
            continue
        rest = calm[after:]
        level, low = median_of(window), median_of(rest)
        noise = max(float(np.sqrt((_steady(window) ** 2 + _local(rest) ** 2) / 2)), 1e-9 * abs(level) + 1e-300)
        near = median_of(rest[:BEFORE])
        found = Cliff(level, low, near, (level - low) / noise, Onset(float(x[i]), float(x[i - 1]), float(x[after])))
        if best is None or found.before - found.after > best.before - best.after:
            best = found
    if best is None or falling:
        return best
    return Cliff(-best.before, -best.after, -best.near, best.size, best.onset)


@np.errstate(over="ignore", invalid="ignore")
def apart(steps: ArrayLike, values: ArrayLike, *, falling: bool) -> Cliff | None:
    """The change from the first to the last third of a short log when the two thirds do not overlap, else None.

    ``steps``, ``values`` (n,), n >= 9. The chance of this among exchangeable values is 1/20 for thirds of 3 and 1/252
    for thirds of 5, so the caller must also demand a ``size``. The onset lies anywhere between the thirds.
    """
    x, y = tidy(steps, values)
    third = len(y) // 3
    if third < LEAST:
        return None
    first, last = y[:third], y[-third:]
    clear = first.min() > last.max() if falling else first.max() < last.min()
    if not clear:
        return None
    before, after = median_of(first), median_of(last)
    noise = max(_bends(y), 1e-9 * abs(before) + 1e-300)
    middle = 0.5 * (before + after)
    crossed = np.flatnonzero(y <= middle if falling else y >= middle)
    at = float(x[int(crossed[0])]) if len(crossed) else float(x[third])
    return Cliff(before, after, after, abs(before - after) / noise, Onset(at, float(x[0]), float(x[-third])))


def _starts(calm: Floats, later: Floats, gap: int, rest_least: int) -> list[int]:
    """Positions whose points before lie above everything from at most ``gap`` rows later on, largest drops first."""
    n = len(calm)
    shortest = sliding_window_view(calm, LEAST).min(axis=1)
    places = np.arange(LEAST, n - rest_least)
    if not len(places):
        return []
    beyond = later[np.minimum(places + gap, n - rest_least)]
    drop = shortest[places - LEAST] - beyond
    fits = drop > 0
    order = np.argsort(-drop[fits], kind="stable")
    return [int(i) for i in places[fits][order][:64]]


def _steady(window: Floats) -> float:
    """Spread of the level before, which must have held."""
    return max(spread(window), float(np.std(np.diff(window))) / 1.4142135623730951 if len(window) > 2 else 0.0)


def _local(rest: Floats) -> float:
    """Row-to-row noise after the change, whose level may wander on: a robust spread of the differences."""
    return median_of(np.abs(np.diff(rest))) * 1.0484


def _bends(values: Floats) -> float:
    """Row-to-row noise around whatever smooth course a short log takes: a robust spread of the second differences."""
    return median_of(np.abs(np.diff(values, 2))) * 1.4826 / 2.449489742783178 if len(values) > 2 else 0.0
