"""The pictures of a page: curves, overlays, shares and chains as SVG, and the numbers with which a reader can zoom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from rlclinic.report.blocks import Chain, Curve, Overlay, Shares
from rlclinic.report.plot import areas, chain, curve, islands, overlay

Drawable: TypeAlias = Curve | Overlay | Shares | Chain


@dataclass(frozen=True, eq=False)
class Drawn:
    """A picture; ``data`` is what ``island`` packs for the page, None where there is nothing to zoom; ``summary`` says in
    one sentence what is seen, and is the description of the picture."""

    svg: Markup
    data: Mapping[str, object] | None
    summary: str


def draw(block: Drawable, id: str, *, small: bool = False, low: bool = False) -> Drawn:
    """The picture of ``block``. ``id`` is that of its figure on the page; ``small``: without axes and words;
    ``low``: a curve of about half the height."""
    if isinstance(block, Curve):
        seen = curve.look(block, small=small, flat=low)
        summary = curve.said(block, seen)
        draw_it = curve.sparkline if small else curve.picture
        return Drawn(draw_it(block, id, seen, summary), curve.data(block, seen), summary)
    if isinstance(block, Overlay):
        return Drawn(*overlay.drawn(block, id))
    if isinstance(block, Shares):
        return Drawn(*areas.drawn(block, id))
    return Drawn(*chain.drawn(block, id))


def island(drawn: Mapping[str, Drawn]) -> str:
    """JSON for one ``<script type="application/json" id="plots">``: the numbers of ``drawn``, by the id of their figure."""
    return islands.pack({id: one.data for id, one in drawn.items() if one.data is not None})
