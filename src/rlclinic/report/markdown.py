"""Blocks drawn as GitHub-flavoured Markdown, for issues and pull requests; nothing from a log can act as markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

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

# Characters that mark up wherever they stand; an underscore within a word does not.
_SPECIAL = re.compile(r"[\\`*\[\]#|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_AT_START = re.compile(r"^(?:[-+](?=\s|$)|[-=]+$|>|\d{1,9}[.)](?=\s|$))")
# What GitHub turns into links and pings by itself, wherever it stands in plain text.
_ACTIVE = re.compile(r"(@(?!(?<=pass@)\d+\b(?![.-]))|(?<=:)//|(?<=[wW])\.|(?<=GH)-|\\#)(?=\w)")
_INERT = "<!-- -->"
_CURVE = 24
_PANEL = 48


def render_markdown(blocks: Sequence[Block]) -> str:
    """The report as Markdown text, curves in braille."""
    parts: list[str] = []
    for kind, run in groupby(blocks, _kind):
        same = list(run)
        if kind == "vitals":
            parts.append(_vitals([b for b in same if isinstance(b, Curve)]))
        elif kind == "notes":
            parts.append("\n".join(_note(b) for b in same if isinstance(b, Note)))
        else:
            parts += [drawn for b in same if (drawn := _block(b))]
    return "\n\n".join(parts) + "\n"


def text(words: str) -> str:
    """``words`` as inert text: no markup, HTML, link, mention or issue reference comes to life."""
    inert = _SPECIAL.sub(r"\\\g<0>", words.replace("&", "&amp;").replace("<", "&lt;"))
    inert = _AT_START.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", inert)
    return _ACTIVE.sub(rf"\1{_INERT}", inert)


def code(words: str) -> str:
    """``words`` as a code span, with a fence longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall("`+", words)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if words[:1] in ("`", " ") or words[-1:] in ("`", " ") else ""
    return f"{fence}{pad}{words}{pad}{fence}" if words else ""


def _cell(words: str) -> str:
    return text(words) or " "


def _note(block: Note) -> str:
    return f"- {block.label}: {text(block.text)}" if block.label else f"- {text(block.text)}"


def _kind(block: Block) -> str:
    if isinstance(block, Curve) and not block.large:
        return "vitals"
    return "notes" if isinstance(block, Note) else "other"


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        label = f"{block.label} " if block.label else ""
        aside = f" ({text(block.aside)})" if block.aside else ""
        name = code(block.text) if block.level != 2 else text(block.text)
        return f"{'#' * block.level} {label}{name}{aside}"
    if isinstance(block, Paragraph):
        return f"**{text(block.label)}** {text(block.text)}" if block.label else text(block.text)
    if isinstance(block, KeyNumbers):
        return "\n".join(f"- {text(label)}: {text(value)}" for label, value in block.pairs)
    if isinstance(block, Bullets):
        title = f"{text(block.label)}:\n\n" if block.label else ""
        return title + "\n".join(f"- {text(item)}" for item in block.items)
    if isinstance(block, Table):
        return _table(block.head, [[_cell(cell) for cell in row] for row in block.rows])
    if isinstance(block, Change):
        return "\n".join(_change(block))
    if isinstance(block, Passage):
        aside = f" {text(block.aside)}" if block.aside else ""
        return f"**{text(block.label)}**{aside}\n\n{_fenced(block.lines)}"
    if isinstance(block, Overlay):
        return _overlay(block)
    return _panel(block) if isinstance(block, Curve) else ""


def _fenced(lines: Sequence[str]) -> str:
    """``lines`` as a block of code, in a fence longer than any run of backticks inside."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(longest + 1, 3)
    return "\n".join([f"{fence}text", *lines, fence])


def _change(block: Change) -> Iterator[str]:
    yield f"{block.number}. **{text(block.says)}**"
    indent = " " * (len(str(block.number)) + 2)
    for key, before, after, writes in block.settings:
        now = f" (now {code(before)})" if before else ""
        moved = f": {code(before)} -> {code(after)}" if before and after else ""
        yield (
            f"{indent}- {'write' if after else 'set'} {code(writes)}{now}"
            if writes
            else f"{indent}- {code(key)}{moved}"
        )
    for label, value in block.pairs:
        yield f"{indent}- {text(label)}: {text(value)}"


def _panel(block: Curve) -> str:
    mark = block.mark.step if block.mark else None
    lines = curves.panel(block.column, _PANEL, span=block.span, ends=(block.low, block.high), mark=mark)
    wide = max(len(block.low), len(block.high))
    drawn = "\n".join(["```text", *(f"{label:>{wide}}  {drawn}".rstrip() for label, drawn in lines), "```"])
    return f"{text(block.title)}\n\n{drawn}"


def _overlay(block: Overlay) -> str:
    """The runs one below the other on one scale, which the title tells."""
    mark = block.mark.step if block.mark else None
    drawn, ends, axis = curves.overlay([column for _, column in block.lines], _PANEL, span=block.span, mark=mark)
    names = [name.replace("`", "'") for name, _ in block.lines]
    wide = max(map(len, names), default=0)
    lines = [
        f"{name if i == len(rows) - 1 else '':<{wide}}  {row}".rstrip()
        for name, rows in zip(names, drawn, strict=True)
        for i, row in enumerate(rows)
    ]
    by = "" if block.axis == "step" else f", by {block.axis}"
    title = f"{block.title}, {number(ends[0])} to {number(ends[1])}{by}"
    below = [text(remark) for remark in block.remarks]
    picture = "\n".join(["```text", *lines, f"{'':<{wide}}  {axis}".rstrip(), "```"])
    return "\n\n".join([text(title), picture, *below])


def _vitals(block: Sequence[Curve]) -> str:
    rows, remarks = [], []
    for curve in block:
        shown = bool(curve.first) and curve.course
        course = curves.draw(curve.column, _CURVE, span=curve.span)[0].strip() if shown else ""
        extent = f"{curve.low}..{curve.high}" if curve.low else ""
        rows.append([_cell(w) for w in (curve.title, curve.first, curve.last, extent)] + [course, _cell(curve.flag)])
        remarks += [f"- {text(curve.title)}: {text(remark)}" for remark in curve.remarks]
    table = _table(("", "first", "last", "range", "course", "finding"), rows)
    return table + ("\n\n" + "\n".join(remarks) if remarks else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
