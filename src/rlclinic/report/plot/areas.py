"""How parts divide a whole over the steps: areas stacked on each other, each named where it is widest."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from rlclinic.model import Floats
from rlclinic.report.blocks import Shares, number, plain, step
from rlclinic.report.plot import svg
from rlclinic.report.plot.curve import BELOW, steps_below
from rlclinic.report.plot.legend import NAME, legend
from rlclinic.report.plot.scales import Field

HEIGHT = 150
PARTS = 8
"""Parts told apart; further ones are one area."""
_COLUMNS = 120
"""Steps drawn; more are averaged."""
_ROOM = 15
"""Pixels that a name needs inside its area."""


def drawn(block: Shares, id: str) -> tuple[Markup, None, str]:
    """The picture, no data to zoom, and what is seen."""
    named, steps, shares = _few(block)
    first, last = (float(block.steps[0]), float(block.steps[-1])) if len(block.steps) else (0.0, 0.0)
    area = Field(first, last, 0.0, 1.0, HEIGHT)
    pieces, words, unnamed = [], [], False
    below = np.zeros(len(steps))
    for i, (name, share) in enumerate(zip(named, shares, strict=True)):
        top = np.minimum(below + share, 1.0)  # sums of shares may round to a hair above
        told_apart = np.isfinite(share)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], told_apart, [False]))))
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            at = slice(start, end)
            ribbon = _ribbon(steps[at], below[at], top[at], area, (steps[-1] - steps[0]) / len(steps))
            pieces.append(svg.drawn(f"part run{i + 1}", ribbon))
        word = _name(name, steps, below, top, area)
        words.append(word)
        unnamed |= not word
        below = top
    for share in (0.25, 0.5, 0.75):
        y = area.pixel(share)
        words.insert(0, Markup('<line class="over" x2="100%" y1="{:g}" y2="{:g}"/>').format(y, y))
    words += [svg.text("y", f"{share:.0%}", "0", area.pixel(share) + 4, "end", -8) for share in (0.0, 0.5, 1.0)]
    entries = [(f"run{i + 1}", name) for i, name in enumerate(named)]
    keys, height = legend(entries, HEIGHT + BELOW + 6, "part") if unnamed else ([], 0)
    inside = [svg.layer(area, *pieces), *words, *steps_below(area), *keys]
    body = Markup('<g transform="translate(0 {})">').format(10) + svg.NOTHING.join(inside) + Markup("</g>")
    told = "; ".join(
        f"{name} {number(s[0] * 100)} % at first, {number(s[-1] * 100)} % at last"
        for name, s in zip(named, shares[:, np.isfinite(shares).all(axis=0)], strict=True)
        if len(s)
    )
    summary = f"{block.title} over steps {step(first)} to {step(last)}: {told or 'nothing to draw'}."
    tall = 10 + HEIGHT + BELOW + (6 + height if height else 0)
    return svg.picture("chart shares plain", id, block.title, summary, tall, body), None, summary


def _ribbon(steps: Floats, below: Floats, top: Floats, area: Field, width: float) -> str:
    """The stretch between two lines; one step alone as wide as a step is."""
    if len(steps) == 1:
        half = width / 2
        steps = np.array([max(steps[0] - half, area.first), min(steps[0] + half, area.last)])
        below, top = np.repeat(below, 2), np.repeat(top, 2)
    return svg.ribbon(steps, below, top, area)


def _few(block: Shares) -> tuple[list[str], Floats, Floats]:
    """At most ``PARTS`` names, at most ``_COLUMNS`` steps, and (parts, steps) shares of them, NaN where there are none."""
    steps = block.steps
    given = np.asarray(block.shares, dtype=np.float64)
    shares = np.where(np.isfinite(given), np.clip(given, 0.0, 1.0), np.nan)
    named = [plain(name, NAME) for name in block.names]
    if len(named) > PARTS:
        shares = np.vstack((shares[: PARTS - 1], shares[PARTS - 1 :].sum(axis=0)))
        named = [*named[: PARTS - 1], f"{len(block.names) - PARTS + 1} others"]
    if len(steps) > _COLUMNS:
        edges = (np.arange(_COLUMNS) * len(steps)) // _COLUMNS
        counts = np.diff(np.append(edges, len(steps)))
        ends = steps[0], steps[-1]
        known = np.isfinite(shares)
        many = np.add.reduceat(known, edges, axis=1, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            means = np.add.reduceat(np.where(known, shares, 0.0), edges, axis=1) / many
        # A piece is told where at least half of its steps have a share.
        shares, steps = np.where(2 * many >= counts, means, np.nan), np.add.reduceat(steps, edges) / counts
        steps[0], steps[-1] = ends
    return named, steps, shares


def _name(name: str, steps: Floats, below: Floats, top: Floats, area: Field) -> Markup:
    """The name where its area is widest, nothing where there is no room for it."""
    if not len(steps):
        return svg.NOTHING
    half = min(len(name) * 1.4, 50.0)  # per cent of a narrow page
    inside = np.array([half <= area.percent(float(s)) <= 100 - half for s in steps])
    share = np.where(inside & np.isfinite(top), top - below, -1.0)
    wide = np.concatenate(([False], share >= 0.9 * share.max(), [False]))  # the middle of its longest wide stretch
    edges = np.flatnonzero(np.diff(wide))
    longest = int(np.argmax(edges[1::2] - edges[::2]))
    at = int(edges[2 * longest] + edges[2 * longest + 1] - 1) // 2
    if share[at] * area.height < _ROOM:
        return svg.NOTHING
    y = area.pixel(float(below[at] / 2 + top[at] / 2)) + 4
    return svg.text("part-word", name, f"{area.percent(float(steps[at])):.1f}%", y, "middle")
