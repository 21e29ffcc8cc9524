"""One metric over the run as a picture: its points, its course, and what the finding says of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from rlclinic.model import Floats, Onset
from rlclinic.report.blocks import Curve, count, number, plain, step
from rlclinic.report.curves import scale
from rlclinic.report.plot import svg
from rlclinic.report.plot.islands import Points
from rlclinic.report.plot.points import Line, course, lasting, thinned, unreadable
from rlclinic.report.plot.scales import Field, bounds, labels, roomy, step_labels, ticks
from rlclinic.stats.forecast import Fan, fan
from rlclinic.stats.level import answers_behind

HEIGHT, LOW, SMALL = 190, 110, 44
"""Pixels of the drawing area of a plot, of a less important one, and of the small form beside a vital sign."""
ABOVE, BELOW, LINE = 24, 22, 18
"""Pixels for the words above the area, for the steps below it, and for each further line."""
BINS, SMALL_BINS = 500, 160
"""Pieces of the steps of which the lowest and the highest point are drawn: about two pixels each."""
DOTS = 60
"""Points up to which each is a dot (ours)."""
_AHEAD = 0.6
"""Share of the run that a forecast may add to the axis (ours)."""
_FAN = 24
_ARROWS = 24
_SEAMS = 4
_NORMAL = 1.96
_MARKS = 400
_SHORT = 0.1
"""Values below it stand with two figures at the end of a line: there is no room for more."""
_LETTER, _NARROW, _MARGIN = 7.0, 250, 36
"""Pixels of a letter at most, of the field on a page of 400 pixels, and beside it (ours, measured)."""
_WORDS = 60
"""Per cent of a narrow page that words at two marks take side by side."""
_NOTE = 48


@dataclass(frozen=True, eq=False)
class Seen:
    """What is drawn of a curve, worked out once for the picture and for the form that is zoomed."""

    field: Field
    points: Line
    course: Line | None
    bad: list[tuple[float, float]]
    above: Floats
    below: Floats
    """Steps of the finite values beyond the scale."""
    fan: Fan | None = None
    errors: tuple[Floats, Floats] | None = None
    """(points,) ends of the 95 % interval of each held-out score."""
    answers: int | None = None
    healthy: tuple[Floats, Floats, Floats] | None = None


def look(block: Curve, *, small: bool, flat: bool = False) -> Seen:
    """Scale, points and marks of ``block``; nothing is drawn yet."""
    height = SMALL if small else LOW if flat else HEIGHT
    column, (first, last) = block.column, block.span
    low, high, beyond = scale(column)
    line = course(column) if not block.name.startswith("eval.") else None
    if beyond and line is None and lasting(column, low, high):  # without noise, a stretch beyond is no spike
        low, high, beyond = float(column.finite.values.min()), float(column.finite.values.max()), False
    ahead = None if small else _ahead(block)
    band = None if ahead is None else _fan(block, ahead)
    errors, answers = (None, None) if small else _errors(block)
    top, bottom = high, low
    if band is not None:  # the fan may widen the scale by half, not flatten the curve
        reach = (high / 2 - low / 2) or 0.5
        top, bottom = (
            min(max(high, float(band.high.max())), high + reach),
            max(min(low, float(band.low.min())), low - reach),
        )
    healthy = _healthy(block)
    if healthy is not None:  # likewise
        reach = (high / 2 - low / 2) or 0.5
        top, bottom = (
            min(max(top, float(healthy[2].max())), top + reach),
            max(min(bottom, float(healthy[1].min())), bottom - reach),
        )
    if errors is not None and len(errors[0]):
        top, bottom = max(top, float(errors[1].max())), min(bottom, float(errors[0].min()))
    bottom, top = roomy(bottom, top, bounds(block.name))
    area = Field(first, last if ahead is None else max(last, ahead), bottom, top, height)
    finite = column.finite
    out_above, out_below = (finite.values > top, finite.values < bottom) if beyond else (np.zeros(0, bool),) * 2
    nothing = np.empty(0)
    return Seen(
        area,
        thinned(column, SMALL_BINS if small else BINS),
        line,
        unreadable(column),
        finite.steps[out_above] if beyond else nothing,
        finite.steps[out_below] if beyond else nothing,
        fan=band,
        errors=errors,
        answers=answers,
        healthy=healthy,
    )


def _healthy(block: Curve) -> tuple[Floats, Floats, Floats] | None:
    """Steps, lower and upper edge of where healthy runs stayed, where all are known."""
    band = block.marks.band
    if band is None:
        return None
    steps, low, high = (np.asarray(v, dtype=np.float64) for v in (band.steps, band.low, band.high))
    known = np.isfinite(steps) & np.isfinite(low) & np.isfinite(high)
    return (steps[known], low[known], high[known]) if known.sum() > 1 else None


def _ahead(block: Curve) -> float | None:
    """The last step of the axis of a plot with a forecast that names a step."""
    forecast, (first, last) = block.marks.forecast, block.span
    if forecast is None:
        return None
    told = [v for v in (forecast.low, forecast.step, forecast.high) if v is not None and _known(v)]
    if not told or max(told) <= last:
        return None
    end = min(last + (max(told) - last) * 1.15, last + (last - first) * _AHEAD)
    return float(math.ceil(end)) if float(last).is_integer() and end < 2**53 else end


def _fan(block: Curve, ahead: float) -> Fan | None:
    """The fan from the last step to ``ahead``; of what came after the onset where no simple curve fits the whole."""
    low, high = bounds(block.name)
    finite = block.column.finite
    if not len(finite) or ahead <= finite.steps[-1]:
        return None
    parts = [finite] if block.mark is None else [finite, finite.since(block.mark.step)]
    for part in parts:
        found = fan(
            part.steps,
            part.values,
            horizon=ahead - float(finite.steps[-1]),
            points=_FAN,
            low=-math.inf if low is None else low,
            high=math.inf if high is None else high,
        )
        if len(found.steps) and all(np.isfinite(edge).all() for edge in found):
            return found
    return None


def _errors(block: Curve) -> tuple[tuple[Floats, Floats] | None, int | None]:
    """Wilson's interval of each held-out score (Wilson 1927, 95 %), where it shows of how many answers it is the mean."""
    finite = block.column.finite
    if not block.name.startswith("eval.") or not 2 <= len(finite) <= DOTS:
        return None, None
    n = answers_behind(finite.values)
    if n is None:
        return None, None
    share, z2 = finite.values, _NORMAL**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _NORMAL / (1 + z2 / n) * np.sqrt(np.maximum(share * (1 - share), 0) / n + z2 / (4 * n * n))
    return (centre - half, centre + half), n


# ------------------------------------------------------------------------------------------------------- drawing


def sparkline(block: Curve, id: str, seen: Seen, summary: str) -> Markup:
    """The small form: points, course, NaN, and the onset where there is one; no axes and no words."""
    area = seen.field
    pieces = [_healthy_drawn(seen), *_tint(block, seen), *_lines(block, seen), _nan(seen)]
    pieces += [svg.upright("seam", area, np.array(block.marks.seams))] if len(block.marks.seams) <= _SEAMS else []
    edges = "".join(f"M{x} 0v10" for x in _across(area, seen.above))
    edges += "".join(f"M{x} {area.height * 2}v-10" for x in _across(area, seen.below))
    pieces.append(svg.drawn("beyond", edges))
    inside = Markup('<g transform="translate(0 {})">').format(svg.EDGE) + svg.layer(area, *pieces) + Markup("</g>")
    return svg.picture(f"spark {block.tone}", id, block.title, summary, area.height + 2 * svg.EDGE, inside)


def picture(block: Curve, id: str, seen: Seen, summary: str) -> Markup:
    """The large form, with axes and with words at what is marked."""
    area = seen.field
    inner = [
        _healthy_drawn(seen),
        *_tint(block, seen),
        *_ahead_drawn(seen),
        *_lines(block, seen),
        *_errors_drawn(seen),
        _nan(seen),
    ]
    if block.marks.checkpoints:
        inner.append(svg.upright("saved", area, np.array(block.marks.checkpoints), 5))
    if block.marks.seams:
        inner.append(svg.upright("seam", area, np.array(block.marks.seams)))
    below, lines = _below(block, seen)
    axes = grid(area) if block.first else []
    pieces = [*axes, svg.layer(area, *inner), *_words(block, seen), *steps_below(area), *below]
    body = Markup('<g transform="translate(0 {})">').format(ABOVE) + svg.NOTHING.join(pieces) + Markup("</g>")
    height = ABOVE + area.height + BELOW + LINE * lines
    return svg.picture(f"chart {block.tone}", id, block.title, summary, height, body)


def grid(area: Field) -> list[Markup]:
    """Light lines at round values, named on the left."""
    at = ticks(area.low, area.high, 4 if area.height > LOW else 3)
    pieces = []
    for value, words in zip(at, labels(at), strict=True):
        y = round(area.pixel(value), 1)
        kind = "zero" if value == 0 else "rule"
        pieces.append(Markup('<line class="{}" x2="100%" y1="{:g}" y2="{:g}"/>').format(kind, y, y))
        pieces.append(svg.text("y", words, "0", y + 4, "end", -8))
    return pieces


def steps_below(area: Field) -> list[Markup]:
    """The axis with the first and the last step and round ones between; of those a narrow page shows every other."""
    y = area.height
    pieces = [Markup('<line class="axis" x2="100%" y1="{}" y2="{}"/>').format(y, y)]
    told = step_labels(area.first, area.last, 7)
    for i, (at, words) in enumerate(told):
        end = i in (0, len(told) - 1)
        share = area.percent(at)
        anchor = "start" if share == 0 else "end" if share == 100 else "middle"
        pieces.append(svg.text("x" if end or i % 2 == 0 else "x odd", words, f"{share:.2f}%", y + 17, anchor))
    return pieces


def _tint(block: Curve, seen: Seen) -> list[Markup]:
    """The interval of the onset, its line, and a breath of colour over what came of it."""
    mark, area = marked(block.mark), seen.field
    if mark is None:
        return []
    pieces = [svg.tall("after", area, mark.step, max(float(block.span[1]), mark.step))]
    pieces += [svg.tall("band", area, mark.low, mark.high)] if mark.high > mark.low else []
    return [*pieces, svg.upright("onset", area, np.array([mark.step]))]


def _healthy_drawn(seen: Seen) -> Markup:
    return svg.NOTHING if seen.healthy is None else svg.drawn("sound", svg.ribbon(*seen.healthy, seen.field))


def _ahead_drawn(seen: Seen) -> list[Markup]:
    if seen.fan is None:
        return []
    ahead = seen.fan
    return [
        svg.drawn("fan", svg.ribbon(ahead.steps, ahead.low, ahead.high, seen.field)),
        svg.drawn("ahead", svg.path(Line(ahead.steps, ahead.middle), seen.field)),
    ]


def _lines(block: Curve, seen: Seen) -> list[Markup]:
    area = seen.field
    if not block.first and block.large:
        return []
    if seen.course is not None:
        return [
            svg.drawn("raw", svg.path(seen.points, area)),
            svg.drawn("line", svg.path(seen.course, area)),
        ]
    few = len(block.column) <= DOTS
    joined = block.course and not (seen.errors is not None)
    pieces = [svg.drawn("line" if joined else "thin", svg.path(seen.points, area))] if block.course or few else []
    if few and area.height != SMALL:
        pieces.append(svg.drawn("dots", dots(seen.points, area)))
    return pieces


def dots(line: Line, area: Field) -> str:
    """The data of a path with a dot at each point of ``line``."""
    known = ~np.isnan(line.values)
    x, y = area.across(line.steps[known]), area.down(line.values[known])
    return "".join(f"M{a:.0f} {b:.0f}h0" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _errors_drawn(seen: Seen) -> list[Markup]:
    if seen.errors is None:
        return []
    area, known = seen.field, ~np.isnan(seen.points.values)
    x = area.across(seen.points.steps[known])
    low, high = area.down(seen.errors[0]), area.down(seen.errors[1])
    bars = "".join(f"M{a:.0f} {b:.0f}V{c:.0f}" for a, b, c in zip(x.tolist(), low.tolist(), high.tolist(), strict=True))
    return [svg.drawn("error", bars)]


def _nan(seen: Seen) -> Markup:
    """Runs of NaN as a bar along the bottom."""
    area = seen.field
    y = area.height * 2 - 6
    bars = []
    for first, last in seen.bad:
        a, b = (round(float(v)) for v in area.across(np.array([first, last])))
        bars.append(f"M{a} {y}" + (f"H{b}" if b > a else "h0"))
    return svg.drawn("nan", "".join(bars))


def _across(area: Field, steps: Floats) -> list[int]:
    """Places of arrows for values beyond the scale, no two on top of each other."""
    at = np.unique(np.rint(area.across(steps) / 2000 * 160)) * 2000 / 160
    return [int(v) for v in at[: _ARROWS * 4]]


def _words(block: Curve, seen: Seen) -> list[Markup]:
    """What stands in the plot: the onset, what lies beyond the scale, NaN, the last value, restarts."""
    area, pieces = seen.field, []
    if not block.first or not len(seen.points.steps):
        why = plain(block.remarks[0], _NOTE) if block.remarks else "no value to draw"
        return [svg.text("note", why, "50%", area.height / 2, "middle")]
    if (mark := marked(block.mark)) is not None:
        pieces.append(beside("since", onset_words(mark), area.percent(mark.step), -8))
    arrows = ""
    for steps, edge, sign in ((seen.above, 0, 1), (seen.below, area.height, -1)):
        for at in sorted({round(area.percent(v), 0) for v in steps.tolist()})[:_ARROWS]:
            arrows += f'<svg x="{at:g}%" y="{edge}" overflow="visible"><path d="M0 {sign}l-4 {7 * sign}h8z"/></svg>'
    if arrows:
        pieces.append(Markup('<g class="arrow">' + arrows + "</g>"))  # numbers of ours only
    if seen.bad:
        share = area.percent(max(seen.bad, key=lambda run: run[1] - run[0])[0])
        pieces.append(beside("nan-word", f"{block.column.nonfinite} NaN or infinite", share, area.height - 10, 0))
    seams = [area.percent(at) for at in block.marks.seams if area.first <= at <= area.last]
    taken = None if mark is None else area.percent(mark.step)
    if 0 < len(seams) <= _SEAMS and (
        taken is None or (abs(taken - seams[0]) > _WORDS and (taken > 50) != (seams[0] <= 50))
    ):
        pieces.append(beside("seam-word", "restart or change", seams[0], -8))
    if seen.healthy is not None:
        steps, _, high = seen.healthy
        at = len(steps) // 2
        share, y = area.percent(float(steps[at])), area.pixel(float(high[at]))
        says = (
            plain(block.marks.band.says, 40)
            if block.marks.band is not None and block.marks.band.says
            else "healthy runs"
        )
        pieces.append(svg.text("sound-word", says, f"{share:.2f}%", y + 14 if y < 16 else y - 5, "middle"))
    finite = block.column.finite
    if block.column.rounded_zero and bool(block.column.zero.any()) and area.low <= 0.0 <= area.high:
        y = area.pixel(0.0)
        words = f"printed 0: below {number(block.column.resolution / 2)}"
        pieces.append(svg.text("seam-word", words, "0", y - 5 if y > 20 else y + 14, "start", 4))
    if block.last and len(finite) > 1:
        last = finite.values[-1] if seen.course is None else seen.course.values[~np.isnan(seen.course.values)][-1]
        share, y = area.percent(float(finite.steps[-1])), min(max(area.pixel(float(last)), 6), area.height - 4)
        words = number(float(last) if abs(last) >= _SHORT else float(f"{float(last):.2g}"))
        if seen.fan is None:
            pieces.append(svg.text("last", words, f"{share:.2f}%", y + 4, "start", 6))
        else:  # above the line, for the forecast goes on from here
            pieces.append(svg.text("last on", words, f"{share:.2f}%", y - 9 if y > 24 else y + 18, "middle"))
    return pieces


def marked(mark: Onset | None) -> Onset | None:
    """The onset as it can be drawn: an interval without an end is none; None where no step is known."""
    if mark is None or not math.isfinite(mark.step):
        return None
    low, high = (v if math.isfinite(v) else mark.step for v in (mark.low, mark.high))
    return Onset(mark.step, low, high)


def onset_words(mark: Onset) -> str:
    """The onset with its interval in a few words."""
    between = "" if mark.low == mark.high else f" ({step(mark.low)}\u2013{step(mark.high)})"
    words = f"since step {step(mark.step)}"
    return f"{words}{between}" if (len(words) + len(between)) * _LETTER < _NARROW + _MARGIN else words


def beside(kind: str, words: str, share: float, y: float, dx: float = 0) -> Markup:
    """Words at a vertical line, on the side where a narrow page has room; in the middle where neither side has."""
    left, wide = share > 50, len(words) * _LETTER
    if wide > (share if left else 100 - share) / 100 * _NARROW + _MARGIN:
        return svg.text(kind, words, "50%", y, "middle")
    return svg.text(kind, words, f"{share:.2f}%", y, "end" if left else "start", -dx if left else dx)


def _below(block: Curve, seen: Seen) -> tuple[list[Markup], int]:
    """Lines of words under the axis: where to go back to, when the forecast is met; and how many lines they take."""
    area, marks, pieces, lines = seen.field, block.marks, [], 0
    y = area.height + BELOW + 12
    if marks.back is not None and area.first <= marks.back <= area.last:
        share = area.percent(marks.back)
        where = (
            f'<svg x="{share:.2f}%" y="{area.height}" overflow="visible"><path class="back" d="M0 0l-5-9h10z"/></svg>'
        )
        pieces.append(Markup(where))  # numbers of ours only
        saved = "checkpoint" if marks.back in marks.checkpoints else "go on from step"
        pieces.append(beside("back-word", f"{saved} {step(marks.back)}", share, y))
        lines += 1
    met = _met(block, area)
    if met is not None:
        low, at, high = met
        line = Markup('<line class="met" x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>')
        pieces.append(line.format(area.percent(low), area.percent(high), area.height, area.height))
        if at <= area.last:
            pieces.append(
                Markup('<circle class="met-at" cx="{:.2f}%" cy="{}" r="4.5"/>').format(area.percent(at), area.height)
            )
        pieces.append(beside("met-word", _met_words(block), area.percent(high), y + LINE * lines))
        lines += 1
    return pieces, lines


def _met(block: Curve, area: Field) -> tuple[float, float, float] | None:
    """Between which steps a forecast is met, and when; an open end is the end of the axis."""
    forecast = block.marks.forecast
    if forecast is None or not _known(forecast.step) or area.last <= block.span[1]:
        return None
    at = float(forecast.step or 0.0)
    low = forecast.low if _known(forecast.low) else at
    high = forecast.high if _known(forecast.high) else area.last
    return float(low or 0.0), at, float(high or 0.0)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _met_words(block: Curve) -> str:
    forecast = block.marks.forecast
    if forecast is None or not _known(forecast.step):
        return ""
    at, low, high = (
        float(v) if _known(v) and v is not None else None for v in (forecast.step, forecast.low, forecast.high)
    )
    at = at or 0.0
    first = step(round(at if low is None else low))
    between = f"{first} or later" if high is None else f"{first}\u2013{step(round(high))}"
    return f"forecast: step {step(round(at))} ({between})"


def said(block: Curve, seen: Seen) -> str:
    """The picture in one sentence."""
    if not block.first:
        return f"{block.title}: {block.remarks[0] if block.remarks else 'nothing to draw'}."
    if not block.last:
        return f"{block.title}: {block.first}, {block.remarks[0] if block.remarks else 'one value'}."
    over = f"over steps {step(block.span[0])} to {step(block.span[1])}"
    words = f"{block.title} {over}: {block.first} at first, {block.last} at last"
    words += f", between {block.low} and {block.high}" if block.low else ""
    if (mark := marked(block.mark)) is not None:
        words += f"; {onset_words(mark)}"
    words += f"; {count(block.column.nonfinite, 'value')} NaN or infinite" if block.column.nonfinite else ""
    beyond = len(seen.above) + len(seen.below)
    words += f"; {count(beyond, 'value')} beyond the scale" if beyond else ""
    words += f"; {_met_words(block)}" if _met_words(block) else ""
    words += f"; {plain(band.says, 80)} shaded" if (band := block.marks.band) is not None and band.says else ""
    words += f"; bars: 95 % intervals of {seen.answers} answers each" if seen.answers else ""
    return words + "."


def data(block: Curve, seen: Seen) -> dict[str, object] | None:
    """What the zoomed form draws; None where there is no course."""
    if not block.course or not block.first or len(seen.points.steps) < 2:
        return None
    area, mark = seen.field, marked(block.mark)
    found: dict[str, object] = {
        "kind": "curve",
        "title": block.title,
        "tone": block.tone,
        "x": [area.first, area.last],
        "y": [area.low, area.high],
        "lines": [{"name": "", "points": Points(block.column, whole=mark is not None), "course": seen.course}],
        "nan": [[first, last] for first, last in seen.bad],
        "saved": list(block.marks.checkpoints[:_MARKS]),
        "seams": list(block.marks.seams[:_MARKS]),
        "back": block.marks.back,
        "dots": len(block.column) <= DOTS,
    }
    if mark is not None:
        found["mark"] = {"step": mark.step, "low": mark.low, "high": mark.high, "says": onset_words(mark)}
    if seen.fan is not None:
        found["fan"] = {name: part.tolist() for name, part in zip(("x", "low", "mid", "high"), seen.fan, strict=True)}
    if seen.healthy is not None:
        found["sound"] = {name: part.tolist() for name, part in zip(("x", "low", "high"), seen.healthy, strict=True)}
    met = _met(block, area)
    if met is not None:
        found["met"] = list(met)
    if seen.errors is not None:
        low, high = seen.errors
        found["errors"] = {"x": block.column.finite.steps.tolist(), "low": low.tolist(), "high": high.tolist()}
    return found
