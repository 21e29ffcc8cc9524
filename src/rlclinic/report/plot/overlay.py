"""One metric of several runs over one axis, each in a colour and a dash of its own, all named."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from rlclinic.report.blocks import Overlay, number, plain, step
from rlclinic.report.curves import scale
from rlclinic.report.plot import svg
from rlclinic.report.plot.curve import ABOVE, BELOW, BINS, HEIGHT, beside, grid, marked, onset_words, steps_below
from rlclinic.report.plot.islands import Points
from rlclinic.report.plot.legend import NAME, legend
from rlclinic.report.plot.points import course, thinned
from rlclinic.report.plot.scales import Field, bounds, roomy

RUNS = 6
"""Runs told apart by colour and dash; further ones share the last."""
_APART = 14
"""Pixels between the values named at the ends of lines."""


def drawn(block: Overlay, id: str) -> tuple[Markup, dict[str, object] | None, str]:
    """The picture, its data, and what is seen."""
    limits = [scale(column)[:2] for _, column in block.lines if len(column.finite)]
    low, high = min((v[0] for v in limits), default=0.0), max((v[1] for v in limits), default=1.0)
    area = Field(*block.span, *roomy(low, high, bounds(block.name)), HEIGHT)
    inner: list[Markup] = []
    words: list[Markup] = []
    if (mark := marked(block.mark)) is not None:
        inner += [svg.tall("band", area, mark.low, mark.high), svg.upright("onset", area, np.array([mark.step]))]
        words.append(beside("since", _part(block), area.percent(mark.step), -8))
    pale, bold, ends, lines = [], [], [], []
    for place, (name, column) in enumerate(block.lines):
        run, points, robust = min(place + 1, RUNS), thinned(column, BINS // 2), course(column)
        if robust is not None:
            pale.append(svg.drawn(f"raw run{run}", svg.path(points, area)))
        shown = points if robust is None else robust
        bold.append(svg.drawn(f"line run{run}", svg.path(shown, area)))
        lines.append({"name": plain(name, NAME), "points": Points(column), "course": robust})
        known = shown.values[np.isfinite(shown.values)]
        if len(known):
            ends.append((area.pixel(float(known[-1])), area.percent(float(shown.steps[-1])), run, float(known[-1])))
    words += _ends(ends, area)
    named = [(f"run{min(i + 1, RUNS)}", plain(name, NAME)) for i, (name, _) in enumerate(block.lines)]
    keys, height = legend(named, HEIGHT + BELOW + 6, "line")
    pieces = [*grid(area), svg.layer(area, *inner, *pale, *bold), *words, *steps_below(area), *keys]
    body = Markup('<g transform="translate(0 {})">').format(ABOVE) + svg.NOTHING.join(pieces) + Markup("</g>")
    summary = _said(block)
    kind, whole = f"chart overlay {block.tone}", ABOVE + HEIGHT + BELOW + 6 + height
    return svg.picture(kind, id, block.title, summary, whole, body), _data(block, area, lines), summary


def _ends(ends: list[tuple[float, float, int, float]], area: Field) -> list[Markup]:
    """The last value of each run at the end of its line, no two on top of each other, all beside the area."""
    words, y = [], -float(_APART)
    room = area.height - _APART * (len(ends) - 1)
    for place, (at, share, run, value) in enumerate(sorted(ends)):
        y = max(min(at, room + _APART * place), y + _APART)
        words.append(svg.text(f"last run{run}", number(float(f"{value:.3g}")), f"{share:.2f}%", y + 4, "start", 6))
    return words


def _part(block: Overlay) -> str:
    mark = marked(block.mark)
    return "" if mark is None else onset_words(mark).replace("since", plain(block.marked, NAME), 1)


def _data(block: Overlay, area: Field, lines: list[dict[str, object]]) -> dict[str, object] | None:
    if not any(len(column.finite) > 1 for _, column in block.lines):
        return None
    found: dict[str, object] = {
        "kind": "overlay",
        "title": block.title,
        "tone": block.tone,
        "x": [area.first, area.last],
        "y": [area.low, area.high],
        "axis": block.axis,
        "lines": lines,
    }
    if (mark := marked(block.mark)) is not None:
        found["mark"] = {"step": mark.step, "low": mark.low, "high": mark.high, "says": _part(block)}
    return found


def _said(block: Overlay) -> str:
    ends = []
    for name, column in block.lines:
        values = column.finite.values
        told = f"{number(float(values[0]))} to {number(float(values[-1]))}" if len(values) else "no value"
        ends.append(f"{plain(name, NAME)} {told}")
    words = f"{block.title} over {block.axis} {step(block.span[0])} to {step(block.span[1])}: {'; '.join(ends)}"
    they = "they " if block.marked == Overlay.marked else ""
    return words + (f"; {they}{_part(block)}." if _part(block) else ".")
