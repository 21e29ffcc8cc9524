"""Blocks drawn for a terminal: aligned columns, braille curves, colour only when asked for."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rlclinic.report import curves
from rlclinic.report.blocks import (
    Block,
    Bullets,
    Change,
    Curve,
    Heading,
    KeyNumbers,
    Note,
    Overlay,
    Paragraph,
    Passage,
    Table,
    number,
)

_STYLES = {
    "plain": "",
    "dim": "dim",
    "healthy": "bold green",
    "info": "bold cyan",
    "warning": "bold yellow",
    "critical": "bold red",
    "undecided": "bold magenta",
}
_INDENT = {1: 0, 2: 2, 3: 3}
_LABEL = 11
_NARROWEST = 40
_CURVE = (8, 48)
_LARGE = 64
_WORDS = 26
"""Cells of a column of sentences below which a table takes no more from it (ours)."""
_ASCII = str.maketrans(
    {
        "→": "->",
        "–": "-",
        "—": "-",
        "±": "+-",
        "×": "x",
        "…": "...",
        "≥": ">=",
        "≤": "<=",
        "≈": "~",
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
    }
)


def render_terminal(blocks: Sequence[Block], width: int = 80, color: bool = False, ascii: bool = False) -> str:
    """The report as text of lines at most ``width`` cells wide (at least 40), without trailing blanks.

    Nothing in the blocks is read as markup. ``ascii`` keeps to ASCII, for terminals that cannot show braille.
    """
    drawing = _Drawing(max(width, _NARROWEST), ascii)
    lines = list(drawing.lines(blocks))
    for line in lines:
        line.rstrip()
        line.truncate(drawing.width, overflow="crop")
    if not color:
        return "\n".join(line.plain for line in lines) + "\n"
    out = io.StringIO()
    console = Console(
        file=out,
        width=drawing.width,
        force_terminal=True,
        color_system="standard",
        no_color=False,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    return out.getvalue()


class _Drawing:
    """One pass over the blocks; the last heading decides how far what follows is indented."""

    def __init__(self, width: int, ascii: bool) -> None:
        self.width = width
        self.ascii = ascii
        self.indent = 0
        self.console = Console(file=io.StringIO(), width=width, color_system=None)

    def lines(self, blocks: Sequence[Block]) -> Iterator[Text]:
        started = False
        for line in self.drawn(blocks):
            started = started or bool(line.plain)
            if started:
                yield line

    def drawn(self, blocks: Sequence[Block]) -> Iterator[Text]:
        for small, run in groupby(blocks, lambda b: isinstance(b, Curve) and not b.large):
            if small:
                yield from self.vitals([b for b in run if isinstance(b, Curve)])
            else:
                for block in run:
                    yield from self.block(block)

    def block(self, block: Block) -> Iterator[Text]:
        if isinstance(block, Heading):
            yield from self.heading(block)
        elif isinstance(block, Paragraph):
            yield from self.paragraph(block)
        elif isinstance(block, KeyNumbers):
            yield from self.pairs(block.pairs, self.indent, _LABEL)
        elif isinstance(block, Table):
            yield from self.table(block)
        elif isinstance(block, Curve):
            yield from self.large(block)
        elif isinstance(block, Overlay):
            yield from self.overlay(block)
        elif isinstance(block, Change):
            yield from self.change(block)
        elif isinstance(block, Passage):
            yield from self.passage(block)
        elif isinstance(block, Note):
            yield from self.labelled(block.label or "-", block.text, self.indent, _LABEL if block.label else 2)
        elif isinstance(block, Bullets):
            yield from self.bullets(block)

    def fit(self, text: str) -> str:
        """``text`` as this terminal can show it; done before anything is measured."""
        if not self.ascii or text.isascii():
            return text
        return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")

    def labelled(
        self, label: str, text: str, indent: int, column: int, style: str = "", label_style: str = "dim"
    ) -> Iterator[Text]:
        """``label`` in a column of its own, ``text`` wrapped beside it; a label too long for it gets its own line."""
        start = indent + column
        label = self.fit(label)
        wrapped = Text(self.fit(text), style=style).wrap(self.console, max(self.width - start, 8), overflow="fold")
        lines = list(wrapped) or [Text("")]
        if cell_len(label) >= column > 0:
            for line in Text(label, style=label_style).wrap(self.console, self.width - indent, overflow="fold"):
                yield Text(" " * indent) + line
            label = ""
        for line in lines:
            yield Text(" " * indent) + Text(label + " " * (column - cell_len(label)), style=label_style) + line
            label = ""

    def heading(self, block: Heading) -> Iterator[Text]:
        self.indent = _INDENT[block.level]
        parts = [(block.label, _STYLES[block.tone] or "dim"), (block.text, "bold"), (block.aside, "dim")]
        if block.aside:
            parts[2] = (f"({block.aside})", "dim")
        line = Text("  ").join(Text(self.fit(text), style=style) for text, style in parts if text)
        yield Text("")
        yield from line.wrap(self.console, self.width, overflow="fold")

    def paragraph(self, block: Paragraph) -> Iterator[Text]:
        style = _STYLES[block.tone]
        if block.label:
            yield Text("")
            yield from self.labelled(block.label, block.text, 0, _LABEL, style="bold", label_style=style)
        else:
            yield from self.labelled("", block.text, self.indent, 0, style=style)

    def pairs(self, pairs: Sequence[tuple[str, str]], indent: int, column: int) -> Iterator[Text]:
        for label, text in pairs:
            yield from self.labelled(label, text, indent, column)

    def bullets(self, block: Bullets) -> Iterator[Text]:
        for i, item in enumerate(block.items):
            if not block.label:
                yield from self.labelled("-", item, self.indent, 2)
            else:
                yield from self.labelled(block.label if i == 0 else "", item, self.indent, _LABEL)

    def change(self, block: Change) -> Iterator[Text]:
        inner, column = self.indent + _LABEL, 9
        yield from self.labelled(f"change {block.number}", block.says, self.indent, _LABEL, style="bold")
        for key, before, after, writes in block.settings:
            moved = f"{key}: {before} -> {after}" if before and after else key
            now = f"   (now {before})" if before and writes else ""
            label = "write" if writes and after else "set"
            yield from self.labelled(label, (writes or moved) + now, inner, column, "cyan")
        yield from self.pairs(block.pairs, inner, column)

    def passage(self, block: Passage) -> Iterator[Text]:
        """The lines as they are behind a rule, under what is known of them; the label stands beside the first."""
        label, style, edge = block.label, _STYLES[block.tone], "| " if self.ascii else "\u2502 "
        if block.aside:
            yield from self.labelled(label, block.aside, self.indent, _LABEL, style=style, label_style=style or "dim")
            label = ""
        start = self.indent + _LABEL
        for line in block.lines:
            wrapped = Text(self.fit(line)).wrap(self.console, max(self.width - start - 2, 8), overflow="fold")
            for piece in wrapped or [Text("")]:
                shown = self.fit(label)[: _LABEL - 1]
                yield Text(" " * self.indent).append(f"{shown:<{_LABEL}}", style="dim").append(edge, "dim") + piece
                label = ""

    def table(self, block: Table) -> Iterator[Text]:
        rows = [tuple(self.fit(cell) for cell in row) for row in (block.head, *block.rows)]
        others = len(block.head) - 1
        most = max(8, (self.width - self.indent) * 11 // 20 // max(others, 1))
        widths = [max(cell_len(row[i]) for row in rows) for i in range(others + 1)]
        if self.indent + sum(widths) + 2 * others > self.width:
            whole = widths[:others]
            least = min(_WORDS, widths[-1])
            widths = [min(wide, most) for wide in whole]
            spare = self.width - self.indent - sum(widths) - 2 * others
            # Words are not broken, then cells not wrapped, while the last column keeps what it needs of a line of words.
            words = [max((cell_len(w) for row in rows for w in row[i].split()), default=0) for i in range(others)]
            for goal in (words, [min(wide, _WORDS) for wide in whole]):
                for i in sorted(range(others), key=lambda i: goal[i] - widths[i]):
                    if 0 < (more := goal[i] - widths[i]) <= spare - least:
                        widths[i] += more
                        spare -= more
            widths.append(max(8, spare))
        for place, row in enumerate(rows):
            style = "dim" if place == 0 else ""
            cells = [
                list(Text(cell, style=style).wrap(self.console, wide, overflow="fold")) or [Text("")]
                for cell, wide in zip(row, widths, strict=True)
            ]
            for k in range(max(len(cell) for cell in cells)):
                line = Text(" " * self.indent)
                for cell, wide in zip(cells, widths, strict=True):
                    piece = cell[k] if k < len(cell) else Text("")
                    line += piece + Text(" " * (wide - cell_len(piece.plain) + 2))
                yield line

    def vitals(self, block: Sequence[Curve]) -> Iterator[Text]:
        """One line a curve: flag, title, first -> last, range, course; narrow terminals lose the range first."""
        wide = {
            name: max(cell_len(self.fit(getattr(curve, name))) for curve in block)
            for name in ("flag", "title", "first", "last", "low", "high")
        }
        flag = max(wide["flag"] + 2 if wide["flag"] else 0, 2)
        values = wide["first"] + 4 + wide["last"]
        wide["title"] = min(wide["title"], max(8, self.width - flag - 2 - values))
        start = flag + wide["title"] + 2 + values
        extent = wide["low"] + 2 + wide["high"]
        ranged = extent > 2 and self.width - start - 3 - extent - 3 >= _CURVE[0]
        room = min(self.width - start - 3 - (extent + 3 if ranged else 0), _CURVE[1])
        for curve in block:
            style = _STYLES[curve.tone]
            title = Text(self.fit(curve.title))
            title.truncate(wide["title"], overflow="ellipsis" if not self.ascii else "crop", pad=True)
            line = Text("").append(f"{curve.flag:<{flag}}", style=style) + title + Text("  ")
            remarks = list(curve.remarks)
            if not curve.first or not curve.last:
                line += Text(f"{curve.first:>{wide['first']}}   " if curve.first else "", style=style)
                beside = cell_len(line.plain)
                said = self.labelled("", remarks.pop(0), beside, 0, style="dim" if curve.first else style or "dim")
                yield line + next(said)[beside:]
                yield from said
            else:
                line += Text(f"{curve.first:>{wide['first']}} -> {curve.last:<{wide['last']}}", style=style)
                if ranged:
                    dots = ".." if curve.low else "  "
                    line += Text(f"   {curve.low:>{wide['low']}}{dots}{curve.high:<{wide['high']}}", style="dim")
                if room >= _CURVE[0] and curve.course:
                    drawn = curves.draw(curve.column, room, span=curve.span, ascii=self.ascii)[0]
                    line += Text("   ") + Text(drawn, style=style)
                yield line
            for remark in remarks:
                yield from self.labelled("", remark, flag + 2, 0, style="dim")

    def large(self, block: Curve) -> Iterator[Text]:
        """The curve of a finding, its labels in the column of the finding's other labels."""
        scale = max(len(block.low), len(block.high), _LABEL - 2)
        room = min(self.width - self.indent - scale - 2, _LARGE)
        mark = block.mark.step if block.mark else None
        ends = (block.low, block.high)
        yield from self.labelled("", block.title, self.indent + scale + 2, 0, style="dim")
        *rows, axis = curves.panel(block.column, room, span=block.span, ends=ends, mark=mark, ascii=self.ascii)
        for (label, drawn), style in [*((row, _STYLES[block.tone]) for row in rows), (axis, "dim")]:
            yield Text(" " * self.indent).append(f"{label:>{scale}}  ", style="dim").append(drawn, style=style)

    def overlay(self, block: Overlay) -> Iterator[Text]:
        """The runs one below the other on one scale, which the title tells."""
        names = [self.fit(name) for name, _ in block.lines]
        wide = min(max(_LABEL - 2, *map(cell_len, names)), self.width // 4)
        room = min(self.width - self.indent - wide - 2, _LARGE)
        mark = block.mark.step if block.mark else None
        columns = [column for _, column in block.lines]
        drawn, ends, axis = curves.overlay(columns, room, span=block.span, mark=mark, ascii=self.ascii)
        title = f"{block.title}, {number(ends[0])} to {number(ends[1])}" + (
            "" if block.axis == "step" else f", by {block.axis}"
        )
        yield from self.labelled("", title, self.indent + wide + 2, 0, style="dim")
        for name, rows in zip(names, drawn, strict=True):
            label = Text(name)
            label.truncate(wide, overflow="crop")
            for i, row in enumerate(rows):
                shown = label.plain if i == len(rows) - 1 else ""
                pad = " " * (wide - cell_len(shown) + 2)
                yield Text(" " * self.indent).append(shown + pad, style="dim").append(row, style=_STYLES[block.tone])
        yield Text(" " * (self.indent + wide + 2)).append(axis, style="dim")
        for remark in block.remarks:
            yield from self.labelled("", remark, self.indent + wide + 2, 0, style="dim")
