"""Where a step and a value lie in a plot, and the round numbers that stand at its axes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rlclinic import names
from rlclinic.errors import UnknownName
from rlclinic.model import Floats
from rlclinic.report.blocks import number, step

WIDE = 2000
"""Units of the drawing layer from its first to its last step; they are stretched to whatever room there is."""
FINE = 2
"""Units of the drawing layer to a pixel of height."""
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_MARGIN, _NEAR = 0.06, 0.3
"""Share of the range left free above and below; share of the highest value up to which a scale begins at 0 (ours)."""
_HUGE, _LEAST = 1.7e308, 1e-300


class Field(NamedTuple):
    """The drawing area: ``height`` pixels for values from ``low`` to ``high``, any width for steps ``first`` to ``last``."""

    first: float
    last: float
    low: float
    high: float
    height: int

    def across(self, steps: Floats) -> Floats:
        """(n,) units of the drawing layer from its left edge."""
        half = self.last / 2 - self.first / 2
        share = (steps / 2 - self.first / 2) / half if half > 0 else np.full(len(steps), 0.5)
        return np.asarray(share * WIDE)

    def down(self, values: Floats) -> Floats:
        """(n,) units of the drawing layer from its top; what lies beyond the scale just beyond its edge, NaN stays."""
        half = self.high / 2 - self.low / 2
        share = (
            (np.clip(values, self.low, self.high) / 2 - self.low / 2) / half if half > 0 else np.full(len(values), 0.5)
        )
        share = np.where(values > self.high, 1.05, np.where(values < self.low, -0.05, share))
        return np.asarray(np.where(np.isnan(values), np.nan, (1.0 - share) * self.height * FINE))

    def percent(self, at: float) -> float:
        """How far ``at`` lies from the left, 0 to 100."""
        return float(np.clip(self.across(np.array([at]))[0] / WIDE * 100.0, 0.0, 100.0))

    def pixel(self, value: float) -> float:
        """How far ``value`` lies from the top, within the field."""
        return float(np.clip(self.down(np.array([value]))[0] / FINE, 0.0, self.height))


def roomy(low: float, high: float, bounds: tuple[float | None, float | None] = (None, None)) -> tuple[float, float]:
    """``low`` and ``high`` with some air, from 0 where that is near, not beyond what the metric can be."""
    floor, ceiling = bounds
    if low == high == 0.0:
        return 0.0, 1.0
    if low == high:
        air = abs(low) * 0.1 or 1.0
    else:
        air = min((high / 2 - low / 2) * 2 * _MARGIN, _HUGE)
    bottom = 0.0 if 0.0 <= low <= _NEAR * high else low - air
    top = 0.0 if _NEAR * low <= high <= 0.0 and low < high else high + air
    if floor is not None and bottom < floor <= low:
        bottom = floor
    if ceiling is not None and top > ceiling >= high and bottom < ceiling:
        top = ceiling
    return max(bottom, -_HUGE), min(top, _HUGE)


def bounds(name: str) -> tuple[float | None, float | None]:
    """What a metric can be at least and at most, where that is known."""
    try:
        metric = names.metric(name)
    except UnknownName:
        return None, None
    return metric.low, metric.high


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` round numbers from ``low`` to ``high``."""
    extent = high - low
    if not math.isfinite(extent):
        return [low, 0.0, high]
    if extent <= _LEAST:
        return [low, high] if low < high else [low]
    rough = extent / max(most, 1)
    power = math.floor(math.log10(rough))
    size = next((r for r in _ROUND if r * 10.0**power >= rough * (1 - 1e-9)), 10.0) * 10.0**power
    if size <= 0.0 or low + size == low or high - size == high:  # finer than numbers of this size can be told apart
        return [low, high]
    first = math.ceil(low / size - 1e-9)
    return [k * size for k in range(first, math.floor(high / size + 1e-9) + 1)][: most + 1]


def labels(values: list[float]) -> list[str]:
    """Ticks as text, all with the same number of decimals; powers of ten where these would be long."""
    size = max((abs(v) for v in values), default=0.0)
    gap = min((abs(b - a) for a, b in pairwise(values)), default=0.0)
    if size >= 1e6 or (0 < gap < 1e-4) or not math.isfinite(gap):
        return [number(v) for v in values]
    decimals = next((d for d in range(6) if gap and abs(gap * 10**d - round(gap * 10**d)) < 1e-6 * gap * 10**d), 3)
    if not gap:
        return [number(v) for v in values]
    return [
        f"{v:,.{decimals}f}".replace("-0", "0", 1) if not round(v, decimals) else f"{v:,.{decimals}f}" for v in values
    ]


def step_labels(first: float, last: float, most: int) -> list[tuple[float, str]]:
    """The first and the last step, and round ones between them that stand clear of both."""
    if last <= first:
        return [(first, step(first))]
    clear = (last - first) * 0.09
    between = [t for t in ticks(first, last, most) if first + clear < t < last - clear]
    whole = float(first).is_integer() and float(last).is_integer()
    between = [t for t in between if not whole or float(t).is_integer()]
    return [(at, step(at)) for at in (first, *between, last)]
