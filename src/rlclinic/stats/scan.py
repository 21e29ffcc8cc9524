"""What a step or a box gains at every place beside a smooth curve under AR(1) noise, and whether BIC prefers it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlclinic.model import Floats
from rlclinic.stats.curve import Basis, basis, median_of, whiten
from rlclinic.stats.evidence import lag_one, scaled_mad

_COLUMNS = (2, 4, 6, 9, 13, 19, 28)
"""Columns of the smooth curves that compete (statistics study, section 2)."""
_RICHER = (*_COLUMNS, 40, 56)
FEWEST = 24
"""Points below which no event is looked for (ours: with fewer, not even a straight line is left on both sides)."""
LEVEL = 0.01
"""Largest p-value of an event over all places there are (statistics study, section 2)."""
LEAST_GAIN = 6.0
"""BIC difference an event must win, and, times the noise variance, the loss of fit that its location interval allows
(statistics study, section 2)."""
HOPELESS = 40.0
"""BIC lag from which a curve is not fitted again after the residuals were cut (ours, for speed)."""
_LONG = 100
"""Points below which an event must survive the second richer curve instead of the first (ours: false alarms on steep
but smooth curves of 40 to 60 points fall from about 9 to 4 %, for a sixth of the power)."""
_CUT = 3.5
"""Scaled MAD at which residuals are cut before the second race (statistics study, section 2)."""
_RATIO, _STRIDE = 1.25, 5
"""Ratio of neighbouring box lengths on the coarse grid, and positions per length (ours: the nearest box on the grid has
at least 0.8 of the gain; its ends are moved to their optimum afterwards)."""
_NEXT, _SHOWN = 5, 0.25
"""Neighbouring points on each side that must show an event, and by what share of its height (ours: few and little,
since a steep course may run against it)."""
SHORTEST = 4
"""Points of the shortest box: up to three points are a spike, which the Hampel filter has removed."""


class Place(NamedTuple):
    """A step at ``at`` (``until`` is n) or a box over [at, until), with the whitened sum of squares that it wins."""

    at: int
    until: int
    gain: float
    height: float
    weight: float


@dataclass(frozen=True, eq=False)
class Places:
    """The whitened inner products of a unit step at every position, from which those of every box follow.

    A whitened step is 0, then 1, then 1 - phi for ever, so that they are reversed cumulative sums; a box is the
    difference of two steps.
    """

    rss: float
    number: Floats
    """(n + 1,) step times residual; 0 for the step behind the last point."""
    base: Basis
    phi: float

    @cached_property
    def taken(self) -> Floats:
        """(n + 1, k) step times the orthonormal whitened columns of the curve."""
        return self.base.of_steps(self.phi)

    def steps(self, guard: int) -> tuple[Floats, Floats, Floats]:
        """(gain, height, weight), each (n,), of a step at every position at least ``guard`` from both ends."""
        n = len(self.number) - 1
        weight = self.base.left_of_steps(self.phi)
        usable = weight > 0.0
        usable[:guard] = usable[n - guard :] = False
        return _gains(self.number[:n], weight, usable)

    def boxes(self, first: NDArray[np.intp] | int, last: NDArray[np.intp] | int) -> tuple[Floats, Floats, Floats]:
        """The same of boxes over [first, last), first > 0 and last < n."""
        taken = self.taken[first] - self.taken[last]
        full = 2.0 * self.phi + (np.asarray(last) - first) * (1.0 - self.phi) ** 2
        weight = full - np.einsum("ij,ij->i", taken, taken)
        return _gains(self.number[first] - self.number[last], weight, weight > 1e-6 * full)


class Candidate(NamedTuple):
    """The best event beside one curve of ``k`` columns, the known events among them."""

    bic: float
    k: int
    place: Place
    places: Places
    residuals: Floats

    @property
    def rss(self) -> float:
        """The whitened residual sum of squares with the event."""
        return self.places.rss - self.place.gain

    @property
    def variance(self) -> float:
        """Innovation variance of the noise beside the event."""
        n = len(self.residuals)
        return max(self.rss, 1e-20 * n) / max(n - self.k - 3, 5)


class Race(NamedTuple):
    """The smooth curve of least ``bic`` and its ``k`` spline columns, the best candidate of every kind, and the columns
    still in play."""

    bic: float
    k: int
    best: tuple[Candidate | None, ...]
    close: tuple[int, ...]
    hint: float
    """Largest squared t of any event beside any curve that is not hopeless with it."""


Finder = Callable[[Places], "Place | None"]


def race(z: Floats, columns: Sequence[int], finders: Sequence[Finder], events: Sequence[Floats] = ()) -> Race:
    """Fit every curve (with the known ``events``) alone and with its best new event of each kind, each with its own
    AR(1) coefficient."""
    smooth: list[float] = []
    found: list[list[Candidate | None]] = []
    for k in columns:
        base = beside(basis(len(z), k), events)
        residual = base.residual(z)
        phi = _noise_phi(residual, k)
        rss = float(base.whitened_rss(residual, np.array([phi]))[0])
        smooth.append(_bic(rss, len(z), phi, base.q.shape[1] + 2))
        start = places_of(base, residual, 0.0)
        found.append([candidate(base, residual, find, start=start) for find in finders])
    fewest = min(smooth)
    kinds = ([c for c in kind if c is not None] for kind in zip(*found, strict=True))
    best = tuple(min(kind, key=lambda c: c.bic, default=None) for kind in kinds)
    close = tuple(
        k
        for k, bic, row in zip(columns, smooth, found, strict=True)
        if bic < fewest + HOPELESS or any(c and b and c.bic < b.bic + HOPELESS for c, b in zip(row, best, strict=True))
    )
    near = (c for row in found for c in row if c is not None and c.bic < fewest + HOPELESS)
    hint = max((c.place.gain / c.variance for c in near), default=0.0)
    return Race(fewest, columns[smooth.index(fewest)], best, close, hint)


def candidate(
    base: Basis, residual: Floats, find: Finder, phi: float | None = None, start: Places | None = None
) -> Candidate | None:
    """The best event beside one curve. The AR(1) coefficient is that of the residuals with the event removed, which
    would otherwise pass for autocorrelation; ``phi``: that of a like fit, to start from; ``start``: the places at it."""
    n, k = base.q.shape
    places = start or places_of(base, residual, phi or 0.0)
    place = find(places)
    rest = residual
    for _ in range(2 if phi is None else 1):
        if place is None:
            return None
        before = place
        rest = residual - _part(base, residual, place)
        places = places_of(base, residual, _noise_phi(rest, k + 1))
        place = find(places)
        if place is not None and place[:2] == before[:2]:
            break  # once more would only say the same again
    if place is None or not place.gain > 0.0:
        return None
    locations = 1 if place.until == n else 2
    bic = _bic(places.rss - place.gain, n, places.phi, k + 3 + 2 * locations)
    return Candidate(bic, k, place, places, rest)


def best_step(guard: int, known: Sequence[Place] = ()) -> Finder:
    """Finds the step of largest gain at least ``guard`` points from both ends and from the ``known`` ones."""

    def find(places: Places) -> Place | None:
        gain, height, weight = places.steps(guard)
        for place in known:
            gain[max(0, place.at - guard + 1) : place.at + guard] = 0.0
        at = int(np.argmax(gain))
        return Place(at, len(gain), float(gain[at]), float(height[at]), float(weight[at]))

    return find


def best_box(guard: int, longest: int) -> Finder:
    """Finds the box of 4 to ``longest`` points of largest gain at least ``guard`` points from both ends: the best of a
    grid, its ends moved in turn to their optimum."""

    def find(places: Places) -> Place | None:
        n = len(places.number) - 1
        best = _best_of(places, *_grid(n, guard, longest))
        if best is None:
            return None
        for _ in range(2):
            last = np.arange(best.at + SHORTEST, min(best.at + longest, n - guard) + 1)
            best = _best_of(places, np.full(len(last), best.at), last) or best
            first = np.arange(max(guard, best.until - longest), best.until - SHORTEST + 1)
            best = _best_of(places, first, np.full(len(first), best.until)) or best
        return best

    return find


def box_ends(box: Candidate, guard: int) -> tuple[int, int, int, int]:
    """First and last possible position of the first point of a box and of its last one: those whose gain lies within 6
    noise variances of the best, the other end held."""
    at, until = box.place.at, box.place.until
    n = len(box.residuals)
    least = box.place.gain - LEAST_GAIN * box.variance
    first, last = np.arange(guard, until - SHORTEST + 1), np.arange(at + SHORTEST, n - guard + 1)
    firsts = first[box.places.boxes(first, np.full(len(first), until))[0] >= least]
    lasts = last[box.places.boxes(np.full(len(last), at), last)[0] >= least]
    return (
        min(at, int(firsts.min(initial=at))),
        max(at, int(firsts.max(initial=at))),
        min(until, int(lasts.min(initial=until))) - 1,
        max(until, int(lasts.max(initial=until))) - 1,
    )


@lru_cache(maxsize=8)
def _grid(n: int, guard: int, longest: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First and last (exclusive) points of boxes on the coarse grid."""
    first, last = [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.intp)]
    length = SHORTEST
    while length <= min(longest, n - 2 * guard):
        first.append(np.arange(guard, n - guard - length + 1, max(1, length // _STRIDE)))
        last.append(first[-1] + length)
        length = max(length + 1, round(length * _RATIO))
    return np.concatenate(first), np.concatenate(last)


def places_of(base: Basis, residual: Floats, phi: float) -> Places:
    """The whitened inner products beside a curve; ``residual`` orthogonal to it."""
    w = residual
    if phi > 0.0:
        root = base.root(phi)
        w = whiten(residual - base.q @ ((root @ base.lagged(residual, phi)) @ root), phi)
    number = np.zeros(len(w) + 1)
    number[:-1] = (1.0 - phi) * np.cumsum(w[::-1])[::-1] + phi * w
    return Places(float(w @ w), number, base, phi)


def beside(base: Basis, events: Sequence[Floats]) -> Basis:
    """The curve with further columns (n,) made orthonormal; those that it can express already are left out."""
    q = base.q
    for event in events:
        column = event
        for _ in range(2):
            column = column - q @ (q.T @ column)
        size = math.sqrt(float(column @ column))
        if size > 1e-6 * math.sqrt(float(event @ event)):
            q = np.column_stack((q, column / size))
    return base if q is base.q else Basis(np.ascontiguousarray(q))


def margin(n: int) -> int:
    """Points that an event leaves on each side: five, or 2 % (statistics study, section 2)."""
    return max(5, int(0.02 * n))


def curves(n: int) -> tuple[int, ...]:
    """Columns of the curves that compete on n points."""
    return tuple(k for k in _COLUMNS if k <= max(2, n // 12))


def richer_than(n: int, k: int) -> Basis | None:
    """The curve an event must survive too: steep but smooth courses are no event. None when n points carry none."""
    richer = [more for more in _RICHER if k < more <= n // 4][: 1 if n >= _LONG else 2]
    return basis(n, richer[-1]) if richer else None


def event(n: int, place: Place) -> Floats:
    """(n,) the unit step or box."""
    out = np.zeros(n)
    out[place.at : place.until] = 1.0
    return out


def visible(z: Floats, place: Place) -> bool:
    """Whether the points themselves show the event: after a step, and inside a box, they lie beyond the neighbouring
    ones by a quarter of its height. A curve that a mostly constant series or a wild start has bent shows it alone."""
    at, until = place.at, place.until
    step = until == len(z)
    inside = median_of(z[at : at + _NEXT] if step else z[at:until])
    sides = [z[max(0, at - _NEXT) : at]] if step else [z[max(0, at - _NEXT) : at], z[until : until + _NEXT]]
    moved = min(math.copysign(1.0, place.height) * (inside - median_of(side)) for side in sides)
    return moved >= _SHOWN * abs(place.height)


def cut(z: Floats, residuals: Floats) -> tuple[Floats, float]:
    """(series with its residuals cut at 3.5 noise deviations, least noise deviation): half the plain deviation, because
    the MAD of a mostly constant series is near 0 and would turn every blip into an event; and 1e-4 of the range, because
    beside next to no noise the misfit of a curve is one."""
    least = max(0.5 * float(np.std(residuals)), 1e-4 * float(np.ptp(z)))
    limit = _CUT * max(scaled_mad(residuals), least)
    return np.asarray(z - residuals + np.clip(residuals, -limit, limit)), max(least, 1e-9)


def _gains(number: Floats, weight: Floats, usable: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    weight = np.where(usable, weight, 1.0)
    height = np.where(usable, number / weight, 0.0)
    return height * height * weight, height, weight


def _best_of(places: Places, first: NDArray[np.intp], last: NDArray[np.intp]) -> Place | None:
    """The box of largest gain among those over [first, last); None without any."""
    if not len(first):
        return None
    gain, height, weight = places.boxes(first, last)
    i = int(np.argmax(gain))
    return Place(int(first[i]), int(last[i]), float(gain[i]), float(height[i]), float(weight[i]))


def _bic(rss: float, n: int, phi: float, parameters: int) -> float:
    return n * math.log(max(rss / n, 1e-20)) - math.log(1.0 - phi * phi) + parameters * math.log(n)


def _noise_phi(residuals: Floats, fitted: int) -> float:
    """The AR(1) coefficient to two digits, which it is never known to, so that the factors of a curve are shared."""
    return round(lag_one(residuals, fitted, lowest=0.0, highest=0.98), 2)


def _part(base: Basis, residual: Floats, place: Place) -> Floats:
    """(n,) the least-squares event in the residuals, with what the curve takes of it removed."""
    shape = event(len(residual), place)
    shape -= base.q @ (shape @ base.q)
    power = float(shape @ shape)
    return shape * (float(shape @ residual) / power) if power > 0.0 else np.zeros(len(shape))
