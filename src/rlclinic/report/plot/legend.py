"""Names of lines and areas under a picture, in two columns where a narrow page has room for them."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from rlclinic.report.plot import svg

ROW = 19
"""Pixels of a row."""
NAME, _SHORT = 28, 12
"""Characters of a name that fit a narrow page, and half of it."""


def legend(entries: Sequence[tuple[str, str]], top: float, mark: str) -> tuple[list[Markup], int]:
    """Entries of (class, words) from ``top`` down, each behind a ``line`` or a ``part``; and the pixels they take."""
    pieces = []
    columns = 2 if all(len(words) <= _SHORT for _, words in entries) else 1
    for place, (kind, words) in enumerate(entries):
        y = top + ROW * (place // columns) + ROW // 2
        if mark == "line":
            sample = '<path class="line {}" d="M0 {:g}h24"/>'
        else:
            sample = '<path class="part {}" d="M6 {:g}m0-5h14v10h-14z"/>'
        inside = Markup(sample).format(kind, y) + svg.text("key", words, "31", y + 4)
        pieces.append(Markup('<svg x="{}%" overflow="visible">{}</svg>').format(50 * (place % columns), inside))
    return pieces, ROW * (-(-len(entries) // columns))
