"""Pieces of SVG: paths of whole numbers, texts at a place, all that comes from outside escaped."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from rlclinic.model import Floats
from rlclinic.report.plot.points import Line
from rlclinic.report.plot.scales import FINE, WIDE, Field

NOTHING = Markup("")
EDGE = 2
"""Pixels above and below the field in which a line along its edge still shows its whole width."""


def path(line: Line, field: Field) -> str:
    """The data of a path through ``line``: whole units, relative, a new piece after each NaN; a lone point is a dot."""
    if not len(line.steps):
        return ""
    x, y = field.across(line.steps), field.down(line.values)
    whole = np.flatnonzero(~np.isnan(y))
    if not len(whole):
        return ""
    units = np.rint(np.column_stack((x[whole], y[whole]))).astype(np.int64)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(whole) > 1) + 1))
    ends = np.concatenate((starts[1:], [len(whole)]))
    moves = np.diff(units, axis=0, prepend=units[:1])
    pieces = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        a, b = units[start].tolist()
        rest = moves[start + 1 : end].ravel().tolist()
        pieces.append(f"M{a} {b}" + ("l" + " ".join(map(str, rest)).replace(" -", "-") if rest else "h0"))
    return "".join(pieces)


def ribbon(steps: Floats, low: Floats, high: Floats, field: Field) -> str:
    """The data of a closed path between two lines (n,) without NaN."""
    x = np.concatenate((field.across(steps), field.across(steps)[::-1]))
    y = np.concatenate((field.down(low), field.down(high)[::-1]))
    flat = np.rint(np.column_stack((x, y))).astype(np.int64).ravel().tolist()
    return "M" + " ".join(map(str, flat)).replace(" -", "-") + "z" if len(steps) else ""


def drawn(kind: str, data: str) -> Markup:
    """A path of the class ``kind``; nothing without data."""
    return Markup('<path class="{}" d="{}"/>').format(kind, data) if data else NOTHING


def tall(kind: str, field: Field, first: float, last: float) -> Markup:
    """A band over the whole height, at least a hair wide."""
    a, b = (round(float(v)) for v in np.clip(field.across(np.array([first, last])), 0, WIDE))
    return Markup('<rect class="{}" x="{}" width="{}" height="{}"/>').format(
        kind, a, max(b - a, 3), field.height * FINE
    )


def upright(kind: str, field: Field, steps: Floats, height: int | None = None) -> Markup:
    """Vertical lines at ``steps``: over the whole height, or ``height`` pixels up from the axis."""
    at = field.across(steps)
    at = np.unique(np.rint(at[(at >= 0) & (at <= WIDE)])).astype(np.int64).tolist()
    full = field.height * FINE
    return drawn(kind, "".join(f"M{x} {full}v-{full if height is None else height * FINE}" for x in at))


def text(kind: str, words: str, x: str, y: float, anchor: str = "start", dx: float = 0) -> Markup:
    """Words at a place; ``x`` may be a share of the width."""
    shift = Markup(' dx="{:g}"').format(dx) if dx else NOTHING
    anchored = Markup(' text-anchor="{}"').format(anchor) if anchor != "start" else NOTHING
    return Markup('<text class="{}" x="{}" y="{:g}"{}{}>{}</text>').format(kind, x, y, shift, anchored, words)


def layer(field: Field, *pieces: Markup) -> Markup:
    """The drawing layer: its width stretches, its strokes do not (plot.css), and nothing of it is drawn outside."""
    box = f"0 {-EDGE * FINE} {WIDE} {(field.height + 2 * EDGE) * FINE}"
    start = Markup('<svg class="ink" y="{}" viewBox="{}" preserveAspectRatio="none" width="100%" height="{}">')
    return start.format(-EDGE, box, field.height + 2 * EDGE) + NOTHING.join(pieces) + Markup("</svg>")


def picture(kind: str, id: str, title: str, summary: str, height: float, *pieces: Markup) -> Markup:
    """The whole image with its name and its description."""
    head = Markup(
        '<svg class="{}" width="100%" height="{:g}" role="img" aria-labelledby="{}-t {}-d">'
        '<title id="{}-t">{}</title><desc id="{}-d">{}</desc>'
    ).format(kind, height, id, id, id, title, id, summary)
    return head + NOTHING.join(pieces) + Markup("</svg>")
