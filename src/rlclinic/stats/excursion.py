"""A metric that went wrong and came back: when it left its course, when it was back, and how far it went."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rlclinic.model import Floats, Onset
from rlclinic.stats.curve import MOST, basis, bin_edges, bin_means, median_of, running_median, standardise, tidy
from rlclinic.stats.evidence import hampel, scaled_mad, student_tail
from rlclinic.stats.once import once
from rlclinic.stats.scan import (
    FEWEST,
    LEAST_GAIN,
    LEVEL,
    Place,
    beside,
    best_box,
    best_step,
    box_ends,
    curves,
    cut,
    event,
    margin,
    places_of,
    race,
    richer_than,
    visible,
)
from rlclinic.stats.shift import departure

_BINS = 1000
"""Bins that more than 2000 points are averaged into (ours, for speed: two places cost twice as much as one)."""
_LONGEST = 0.5
"""Longest share of the run: a change that lasts longer is the level, and what came before it the excursion (ours)."""
_LEAST_SIZE = 3.0
"""Noise standard deviations of the smallest excursion: from there on a change is called abrupt (statistics study,
section 2)."""
_REACH = 3
"""Lengths of level before and after that date the two ends, at least ``_LEAST_REACH`` points (ours: far off, another
event may lie)."""
_LEAST_REACH = 20
_BACK = 0.5
"""Largest share of the height by which both sides may stay away from the course (ours)."""


class Excursion(NamedTuple):
    """A passing change of level, beside the smooth course of the metric where it has one."""

    onset: Onset
    """The first step away from the course."""
    end: Onset
    """The last step away from it."""
    before: float
    after: float
    """Medians of the neighbouring points on either side (5 % of the run, at least five points)."""
    peak: float
    peak_step: float
    """The value furthest from the course, spikes left out, and when; in long logs a mean of neighbouring points."""
    height: float
    """Mean distance from the course while away, signed, in the unit of the metric."""
    sd: float
    size: float
    """|height| / sd, at least 3."""
    p_value: float
    """Of the best place and length under AR(1) noise, times the number of places and lengths there are."""

    @property
    def direction(self) -> int:
        """1 up, -1 down."""
        return 1 if self.height > 0 else -1


class _Found(NamedTuple):
    place: Place
    ends: tuple[int, int, int, int]
    """First and last possible position of its first point and of its last one."""
    sd: float
    p_value: float


@once(8)
def excursions(steps: ArrayLike, values: ArrayLike, most: int = 4) -> tuple[Excursion, ...]:
    """Up to ``most`` times in which the metric left its level, or its smooth course, and came back; in order of time.

    ``steps``, ``values`` (n,), non-finite dropped. Spline curves of 2 to 28 columns compete by BIC with the same curves
    plus one step and plus one box (an epidemic change, Levin and Kline 1985) under AR(1) noise, as in the step scan;
    what wins by more than 6 joins the curve and the race is run again. A box is reported when it also beats the step,
    measures at least 3 noise deviations, is significant at 1 % over all places and lengths (also beside the next richer
    curve), shows in the points themselves, and the points on both sides are back by more than half of the way: .5, then
    .8, then .6 is an excursion (with ``before`` .5 and ``after`` .6). It lasts 4 points (fewer are a spike) to half of
    the run and leaves max(5, 2 %) points on each side. What is still away at the end is a lasting change, what was away
    at the start a warm-up.

    A box is looked for, so there must be edges. What rises and falls gradually and is wider than about a tenth of the
    run counts as course, however high. Measured at 13 deviations and 300 points, five runs each: Gaussian bumps are
    found up to a standard deviation of 6 rows and not from 8 on, triangles up to a base of 20 and not from 40 on,
    trapezoids with ramps of 20 rows up to a base of 30 and not from 40 on; a box of any of these widths is found. For
    those see ``Plateau.departure``.

    Onset and end are dated as ``onset`` does, with gradual departures among the shapes, so that their intervals hold
    for bumps too. Above 2000 points the means of 1000 bins are scanned: excursions shorter than four bins are not seen.
    """
    x, y = tidy(steps, values)
    z, centre, scale = standardise(y)
    n = len(z)
    if n < FEWEST or scale == 0.0:
        return ()
    z = hampel(z)
    first = last = x
    if n > MOST:
        edges = bin_edges(n, _BINS)
        z = bin_means(z, edges)
        first, last = x[edges[:-1]], x[edges[1:] - 1]
    found, lasting, k = _search(z, most)
    if not found:
        return ()
    courses = _courses(z, [one.place for one in found], lasting, k)
    side = max(5, n // 20)
    answer: list[Excursion] = []
    for one, course in zip(found, courses, strict=True):
        rest = z - course
        height = float(np.mean(rest[one.place.at : one.place.until]))
        place = one.place._replace(height=height)
        away = abs(height) >= _LEAST_SIZE * one.sd and visible(z, place)
        if not away or not _is_back(rest, place, lasting):
            continue
        onset, end = _ends(math.copysign(1.0, height) * rest, one, first, last)
        top = place.at + int(np.argmax(math.copysign(1.0, height) * running_median(rest, 3)[place.at : place.until]))
        begin, stop = np.searchsorted(x, (onset.step, end.step))
        before, after = y[max(0, begin - side) : begin], y[stop + 1 : stop + 1 + side]
        answer.append(
            Excursion(
                onset=onset,
                end=end,
                before=2.0 * median_of(before * 0.5) if len(before) else float(y[0]),
                after=2.0 * median_of(after * 0.5) if len(after) else float(y[-1]),
                peak=centre + scale * float(running_median(z, 3)[top]),
                peak_step=float(first[top]),
                height=scale * height,
                sd=scale * one.sd,
                size=abs(height) / one.sd,
                p_value=one.p_value,
            )
        )
    return tuple(sorted(answer, key=lambda e: e.onset.step))


def _search(z: Floats, most: int) -> tuple[list[_Found], list[Place], int]:
    """Boxes that beat the smooth curve and the step; the steps that did so too; columns of the smooth curve at last."""
    n = len(z)
    guard = margin(n)
    finders = (best_step(guard), best_box(guard, int(_LONGEST * n)))
    found: list[_Found] = []
    steps: list[Place] = []
    k = 2
    for _ in range(most + 2):
        events = [event(n, place) for place in (*steps, *(one.place for one in found))]
        first = race(z, curves(n), finders, events)
        k = first.k
        best = min((c for c in first.best if c is not None), key=lambda c: c.bic, default=None)
        if best is None or best.bic > first.bic + LEAST_GAIN:
            break
        calm, least = cut(z, best.residuals)
        second = race(calm, first.close, finders, events)
        k = second.k
        step, box = second.best
        if box is not None and box.bic + LEAST_GAIN < min(second.bic, math.inf if step is None else step.bic):
            sd = scaled_mad(box.residuals)
            if sd < least:
                sd = 2.0 * least  # a mostly constant series: its whole deviation
            gain = box.place.gain
            richer = richer_than(n, box.k - len(events))
            if richer is not None:
                richer = beside(richer, events)
                there = places_of(richer, richer.residual(calm), box.places.phi)
                gain = min(gain, float(there.boxes(np.array([box.place.at]), np.array([box.place.until]))[0][0]))
            t = math.sqrt(gain / box.variance)
            p_value = min(1.0, 2.0 * student_tail(t, max(n - box.k - 5, 5)) * n * n * _LONGEST)
            if abs(box.place.height) < _LEAST_SIZE * sd or p_value > LEVEL or len(found) == most:
                break
            found.append(_Found(box.place, box_ends(box, guard), sd, p_value))
        elif step is not None and step.bic + LEAST_GAIN < second.bic:
            steps.append(step.place)
        else:
            break
    return _merged(found, guard), steps, k


def _merged(found: list[_Found], guard: int) -> list[_Found]:
    """Boxes that overlap or nearly touch are one excursion: in the same direction its stairs, else the weaker one is
    only its shape."""
    merged: list[_Found] = []
    for one in sorted(found, key=lambda one: one.place.at):
        last = merged[-1] if merged else None
        if last is None or one.place.at > last.place.until + guard:
            merged.append(one)
            continue
        strong = min(last, one, key=lambda each: each.p_value)
        if one.place.height * last.place.height > 0.0:
            later = max(last, one, key=lambda each: each.place.until)
            place = strong.place._replace(at=last.place.at, until=later.place.until)
            strong = strong._replace(place=place, ends=(*last.ends[:2], *later.ends[2:]))
        merged[-1] = strong
    return merged


def _courses(z: Floats, places: list[Place], steps: list[Place], k: int) -> list[Floats]:
    """For each box, what the metric would have been without it: the curve, the steps and the other boxes."""
    n = len(z)
    boxes = [event(n, place) for place in places]
    design = np.column_stack((basis(n, k).q, *(event(n, place) for place in steps), *boxes))
    coefficients = np.linalg.lstsq(design, z, rcond=None)[0]
    whole = design @ coefficients
    sizes = coefficients[len(coefficients) - len(boxes) :]
    return [np.asarray(whole - size * box) for size, box in zip(sizes, boxes, strict=True)]


def _is_back(rest: Floats, place: Place, lasting: list[Place]) -> bool:
    """Whether the points before and after lie on the course, and no lasting steps in between carried it there."""
    guard = margin(len(rest))
    carried = [step for step in lasting if place.at - guard <= step.at <= place.until + guard]
    if abs(sum(step.height for step in carried)) >= _BACK * abs(place.height):
        return False
    reach = max(guard, min(place.until - place.at, _LEAST_REACH))
    sides = rest[max(0, place.at - reach) : place.at], rest[place.until : place.until + reach]
    return all(abs(median_of(side)) < _BACK * abs(place.height) for side in sides)


def _ends(up: Floats, found: _Found, first: Floats, last: Floats) -> tuple[Onset, Onset]:
    """Onset and end of an upward box in the distances from the course: as the departures on both sides date them, with
    every place that the box itself allows in the interval."""
    a, b = found.place.at, found.place.until
    length = b - a
    reach = max(_LEAST_REACH, _REACH * length)
    # The top divides rise from return; in a plain box it lies anywhere, so it is kept off both ends.
    top = a + int(np.argmax(running_median(up, max(3, length // 3))[a:b]))
    top = min(max(top, a + length // 3), b - 1 - length // 3)
    start, stop = max(0, a - reach), min(len(up), b + reach)
    rise = departure(up[start : max(top, min(a + 4, b - 1)) + 1], 1)
    fall = departure(up[min(top, max(b - 5, a)) : stop][::-1], 1)
    onset, end = (a, *found.ends[:2]), (b - 1, *found.ends[2:])
    if rise is not None:
        onset = start + rise.at, min(start + rise.low, onset[1]), max(start + rise.high, onset[2])
    if fall is not None:
        end = stop - 1 - fall.at, min(stop - 1 - fall.high, end[1]), max(stop - 1 - fall.low, end[2])
    return (
        Onset(float(first[onset[0]]), float(first[onset[1]]), float(last[onset[2]])),
        Onset(float(last[end[0]]), float(first[end[1]]), float(last[end[2]])),
    )
