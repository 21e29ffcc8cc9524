"""Blocks drawn as one self-contained HTML page: no network, no outside file, readable without script and on paper."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from itertools import groupby
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from rlclinic import __version__
from rlclinic.report import plot
from rlclinic.report.blocks import (
    Block,
    Bullets,
    Chain,
    Change,
    Curve,
    Folded,
    Heading,
    KeyNumbers,
    Note,
    Overlay,
    Paragraph,
    Passage,
    Shares,
    Sources,
    Table,
)

_HERE = resources.files("rlclinic.report")
_STYLES = ("page/page.css",)
_PICTURED = ("page/plot.css",)
"""Styles that only a page with a drawing carries."""
_ZOOMED = ("../_vendor/uplot/uPlot.min.css",)
_SCRIPTS = ("page/page.js",)
_PLOTTING = ("../_vendor/uplot/uPlot.iife.min.js", "page/plot.js")
"""Scripts that only a page with curves carries."""

_DRAWN = (Curve, Overlay, Chain, Shares)
_WORDS = re.compile(r"[^a-z0-9]+")
_BESIDE = 4
"""Most curves beside the text of a card; further ones stand below it."""
_NUMBERED = ("leads to", "follows")
"""Facts that begin with numbers of findings."""
_FLAGS = 3
_REMARK, _HEADLINE = 70, 100
_FIGURE, _FURTHER, _ROW, _CHARACTERS = 265, 185, 26, 52
"""Pixels of the first figure, of a further one and of a line of text beside them, and the characters of such a line: about
what page.css makes."""


def render_html(blocks: Sequence[Block], *, title: str) -> str:
    """The page, ending with a newline; the same blocks give the same bytes.

    ``title`` is that of the browser's tab. Blocks before the heading of level 1 are the answer and open the page below the
    name; blocks from there to the first heading of level 2 tell what was read; every heading of level 2 begins a section
    and every one of level 3 a card in it. A ``Heading`` with a ``number`` gets the anchor ``finding-NUMBER``.
    """
    drawer = _Drawer(blocks)
    lead, head, sections = _parts(blocks)
    name = next((block for block in blocks if isinstance(block, Heading) and block.level == 1), None)
    if not lead and head and isinstance(head[0], Paragraph) and head[0].label:
        lead, head = head, []  # the answer may stand below the name
    body = {
        "name": name,
        "head": drawer.nodes(head),
        "answers": [drawer.nodes(one) for one in _answers(lead)],
        "sections": [drawer.section(one) for one in sections],
    }
    scripts = [_resource(path) for path in (*(_PLOTTING if drawer.drawn else ()), *_SCRIPTS)]
    wanted = (*_STYLES, *(_PICTURED if drawer.pictured else ()), *(_ZOOMED if drawer.drawn else ()))
    styles = [_resource(path) for path in wanted]
    page: str = _template().render(
        title=title,
        version=__version__,
        csp=_policy(styles, scripts),
        styles=[Markup(style) for style in styles],
        scripts=[Markup(script) for script in scripts],
        island=Markup(plot.island(drawer.drawn)) if drawer.drawn else "",
        **body,
    )
    return page.rstrip("\n") + "\n"


def _policy(styles: Iterable[str], scripts: Iterable[str]) -> str:
    """The Content-Security-Policy (CSP level 3) under which only what is inlined here acts, told by its SHA-256."""

    def hashes(texts: Iterable[str]) -> str:
        digests = (hashlib.sha256(text.encode()).digest() for text in texts)
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes(scripts)}; style-src {hashes(styles)}; "
        "base-uri 'none'; form-action 'none'"
    )


@lru_cache(maxsize=16)
def _resource(path: str) -> str:
    """A text of ours that is inlined; it must not end the element it stands in."""
    place = _HERE.joinpath(path) if not path.startswith("../") else resources.files("rlclinic").joinpath(path[3:])
    text = place.read_text(encoding="utf-8").replace("\r\n", "\n")
    element = "style" if path.endswith(".css") else "script"
    if f"</{element}" in text.lower() or "<!--" in text:
        raise ValueError(f"{path} would end its own element")
    return text


@lru_cache(maxsize=1)
def _template() -> Any:
    loader = FunctionLoader(lambda name: _HERE.joinpath("page", name).read_text(encoding="utf-8"))
    room = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return room.get_template("report.html")


def _parts(blocks: Sequence[Block]) -> tuple[list[Block], list[Block], list[list[Block]]]:
    """What stands before the name, what stands between it and the first section, and the sections."""
    lead: list[Block] = []
    head: list[Block] = []
    sections: list[list[Block]] = []
    into = lead
    for block in blocks:
        if isinstance(block, Heading) and block.level == 1:
            into = head
        elif isinstance(block, Heading) and block.level == 2:
            into = [block]
            sections.append(into)
        else:
            into.append(block)
    return lead, head, sections


def _answers(lead: Sequence[Block]) -> Iterator[list[Block]]:
    """``lead`` from one verdict to the next, each with a short headline and the rest of its sentence below."""
    into: list[Block] = []
    for block in lead:
        if isinstance(block, Paragraph) and block.label:
            if into:
                yield into
            cut = re.search("[;.] (?=.)", block.text) if len(block.text) > _HEADLINE else None
            into = [block if cut is None else replace(block, text=block.text[: cut.start()])]
            into += [Paragraph(block.text[cut.end()].upper() + block.text[cut.end() + 1 :])] if cut is not None else []
        else:
            into.append(block)
    if into:
        yield into


@dataclass
class _Drawer:
    """One pass over the blocks; gives out ids and keeps the data of what was drawn."""

    blocks: Sequence[Block]
    drawn: dict[str, plot.Drawn] = field(default_factory=dict)
    pictured: bool = False
    ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        headings = [b for b in self.blocks if isinstance(b, Heading) and b.number]
        self.places = {(b.text, str(b.number)): f"finding-{b.number}" for b in headings}
        self.titles = {f"finding-{b.number}": b.plainly for b in headings}
        self.numbers = {str(b.number): f"finding-{b.number}" for b in headings}
        self.ids.update(self.numbers.values())

    def id(self, wanted: str) -> str:
        """An id of its own for every element, made of plain letters and figures."""
        stem = _WORDS.sub("-", wanted.lower())[:48].strip("-") or "part"
        name, again = stem, 1
        while name in self.ids:
            again += 1
            name = f"{stem}-{again}"
        self.ids.add(name)
        return name

    def section(self, blocks: Sequence[Block]) -> dict[str, Any]:
        """A heading of level 2 with what follows: blocks, then cards."""
        heading, *rest = blocks
        assert isinstance(heading, Heading)
        cards: list[list[Block]] = []
        plain: list[Block] = []
        into = plain
        for block in rest:
            if isinstance(block, Heading):
                cards.append(into := [])
            into.append(block)
        return {
            "id": self.id(heading.text),
            "heading": heading,
            "nodes": self.nodes(plain),
            "cards": [self.card(card) for card in cards],
        }

    def card(self, blocks: Sequence[Block]) -> dict[str, Any]:
        heading, *rest = blocks
        assert isinstance(heading, Heading)
        place = self.numbers.get(str(heading.number)) or self.id(heading.text)
        spark = [block for block in rest if isinstance(block, Curve) and not block.large]
        shown = [block for block in rest if isinstance(block, _DRAWN) and block not in spark]
        said = [block for block in rest if not isinstance(block, _DRAWN)]
        below = [block for block in said if isinstance(block, Passage)] if shown else []
        said = [block for block in said if block not in below]
        beside = min(1 + max(round((sum(map(_height, said)) - _FIGURE) / _FURTHER), 0), _BESIDE)
        beside += len(shown) == beside + 1  # a single one below would stand alone
        codes = [block for block in said if isinstance(block, Change) and block.settings]
        lines = [line for block in codes for line in written(block)]
        figures = _FIGURE + (min(beside, len(shown)) - 1) * _FURTHER
        first, rest = _divided(said, figures) if shown else (said, [])
        nodes, further = self.nodes(first, place), self.nodes(rest, place)
        if len(codes) > 1:
            into = further if any(node["kind"] == "change" for node in further) else nodes
            last = max(at for at, node in enumerate(into) if node["kind"] == "change")
            text = "\n".join(dict.fromkeys(lines))
            into.insert(last + 1, {"kind": "all", "code": {"id": self.id(f"{place}-all"), "text": text}})
        return {
            "id": place,
            "heading": heading,
            "severity": heading.label.rpartition(". ")[2],
            "figures": [self.figure(block, small=False, low=at > 0) for at, block in enumerate(shown[:beside])],
            "more": [self.figure(block, small=False, low=True) for block in shown[beside:]],
            "spark": [self.figure(block, small=True) for block in spark],
            "nodes": nodes,
            "rest": further,
            "below": self.nodes(below, place),
        }

    def nodes(self, blocks: Sequence[Block], place: str = "", *, low: bool = False) -> list[dict[str, Any]]:
        """Neighbours of one kind drawn together: small curves as tiles, notes as a list, answers side by side, each below
        its own prompt where it has one."""
        made: list[dict[str, Any]] = []
        asked = {id(b) for b in _own_prompts(blocks)}
        for kind, run in groupby(blocks, lambda block: "answers" if id(block) in asked else _kind(block)):
            same: list[Any] = list(run)
            if kind == "tiles":
                made.append({"kind": kind, "tiles": [self.tile(one) for one in same]})
            elif kind == "notes":
                made.append({"kind": kind, "blocks": same})
            elif kind == "figure" and len(same) > 1 and all(isinstance(one, Overlay) for one in same):
                made.append({"kind": "figures", "figures": [self.figure(one, small=False) for one in same]})
            elif kind == "answers":
                cells: list[list[dict[str, Any]]] = []
                below = False
                for one in same:
                    cells += [] if below else [[]]
                    cells[-1].append(self.node("passage", one, place))
                    below = id(one) in asked
                made.append({"kind": kind, "cells": cells})
            else:
                made += [self.node(kind, one, place, low=low) for one in same]
        return made

    def node(self, kind: str, block: Any, place: str, *, low: bool = False) -> dict[str, Any]:
        node: dict[str, Any] = {"kind": kind, "block": block}
        if kind == "figure":
            node["figure"] = self.figure(block, small=False, low=low)
        elif kind == "folded":
            node["nodes"] = self.nodes(block.blocks, place, low=True)
        elif kind == "change":
            text = "\n".join(written(block))
            node["code"] = {"id": self.id(f"{place or 'change'}-{block.number}"), "text": text} if text else None
        elif kind == "facts":
            node["pairs"] = [
                (label, self.numbered(value) if label in _NUMBERED else self.linked(value))
                for label, value in block.pairs
            ]
        elif kind == "list":
            node["items_"] = [self.linked(item) for item in block.items]
        elif kind == "words":
            node["text"] = self.linked(block.text)
        elif kind == "passage":
            node["text"] = Markup("\n").join(highlighted(line, block.marked) for line in block.lines)
        return node

    def tile(self, block: Curve) -> dict[str, Any]:
        flags = [(n, self.numbers[n]) for n in re.findall(r"\d+", block.flag) if n in self.numbers]
        shown = bool(block.first) and block.course
        return {
            "curve": block,
            "remarks": [_opened(remark) for remark in block.remarks],
            "flags": flags[:_FLAGS],
            "further": max(len(flags) - _FLAGS, 0),
            "figure": self.figure(block, small=True, zoom=block.low != block.high) if shown else None,
        }

    def figure(
        self, block: plot.Drawable, *, small: bool, low: bool = False, zoom: bool | None = None
    ) -> dict[str, Any]:
        """``small``: without axes and words; such a picture can be zoomed only where ``zoom`` says so. ``low``: as
        ``plot.draw`` says."""
        kind = type(block).__name__.lower()
        name = getattr(block, "name", "") or getattr(block, "title", "") or kind
        place = self.id(f"plot-{name}")
        drawn = plot.draw(block, place, small=small, low=low)
        self.pictured = True
        zooms = drawn.data is not None and (not small if zoom is None else zoom)
        if zooms:
            self.drawn[place] = drawn
        return {
            "id": place,
            "kind": f"{kind} low" if low else kind,
            "block": block,
            "title": getattr(block, "title", ""),
            "svg": drawn.svg,
            "remarks": getattr(block, "remarks", ()),
            "zoom": zooms,
        }

    def numbered(self, text: str) -> Markup:
        """``text`` with the numbers of findings before its first colon as links to them."""
        numbers, colon, rest = text.partition(":")
        parts = [part.strip() for part in numbers.split(",")]
        links = [
            Markup('<a class="n" href="#{}" title="{}" aria-label="finding {}">{}</a>').format(
                self.numbers[part], self.titles.get(self.numbers[part], ""), part, part
            )
            if part in self.numbers
            else escape(part)
            for part in parts
        ]
        return Markup(" ").join(links) + (
            Markup(' <span class="quiet">{}</span>').format(rest.strip()) if colon else ""
        )

    def linked(self, text: str) -> Markup:
        """``text`` with every ``check (3)`` of a finding on the page as a link to it."""
        if not self.places:
            return escape(text)
        out, at = Markup(""), 0
        for found in re.finditer(r"([a-z_]{3,40}) \((\d{1,3})\)", text):
            place = self.places.get((found[1], found[2]))
            if place is not None:
                words = f"{self.titles[place]} ({found[2]})" if self.titles.get(place) else found[0]
                link = Markup('<a href="#{}">{}</a>').format(place, words)
                out, at = out + escape(text[at : found.start()]) + link, found.end()
        return out + escape(text[at:])


def _divided(said: Sequence[Block], figures: float) -> tuple[list[Block], list[Block]]:
    """``said`` beside ``figures`` pixels of curves and below them, so that both columns are about as high: lists and the
    changes from the second on may stand below, what is folded stays."""
    changes = [at for at, block in enumerate(said) if isinstance(block, Change)][1:]
    changes += [at for at, block in enumerate(said) if isinstance(block, Bullets)]
    end = next((at for at, block in enumerate(said) if isinstance(block, Folded)), len(said))
    heights = [_height(block) for block in said]
    whole = sum(heights)

    def uneven(at: int) -> float:
        moved = sum(heights[at:end])
        return abs(figures + moved - (whole - moved))

    at = min([end, *(at for at in changes if at < end)], key=uneven)
    return [*said[:at], *said[end:]], list(said[at:end])


def _height(block: Block) -> float:
    """About how many pixels high a block is beside curves."""
    texts: list[str] = []
    if isinstance(block, Paragraph):
        texts = [block.text]
    elif isinstance(block, KeyNumbers):
        texts = [value + " " * 14 for _, value in block.pairs]
    elif isinstance(block, Bullets):
        texts = [block.label, *block.items]
    elif isinstance(block, Change):
        settings = [text for setting in block.settings for text in ("", "", setting[0])]
        texts = [block.says, *settings, *(value + " " * 14 for _, value in block.pairs)]
    return _ROW * sum(1 + len(text) // _CHARACTERS for text in texts) + _ROW / 2


def _opened(remark: str) -> tuple[str, str]:
    """A remark and what of it is folded: all after its first part, where it is long."""
    found = re.search(r"[:;] ", remark)
    if len(remark) <= _REMARK or found is None:
        return remark, ""
    return remark[: found.start()], remark[found.end() :]


def _own_prompts(blocks: Sequence[Block]) -> list[Block]:
    """Prompts of one answer each: those followed by one answer and then by the next prompt, or by anything else."""
    own = []
    for at, block in enumerate(blocks):
        labels = [b.label if isinstance(b, Passage) else "" for b in blocks[at : at + 3]]
        if labels[:2] == ["prompt", "answer"] and labels[2:] != ["answer"]:
            own.append(block)
    return own


def _kind(block: Block) -> str:
    if isinstance(block, Curve):
        return "figure" if block.large else "tiles"
    if isinstance(block, (Overlay, Chain, Shares)):
        return "figure"
    if isinstance(block, Passage):
        return "answers" if block.label == "answer" else "passage"
    if isinstance(block, Note):
        return "mind" if block.label else "notes"
    kinds: dict[type, str] = {
        Paragraph: "words",
        KeyNumbers: "facts",
        Table: "table",
        Change: "change",
        Bullets: "list",
        Sources: "sources",
        Folded: "folded",
    }
    return kinds.get(type(block), "words")


def written(change: Change) -> Iterator[str]:
    """What to write for each setting of a change, one line each; where that is not known, what becomes what."""
    for key, before, after, writes in change.settings:
        yield writes or (f"{key}: {before} -> {after}" if before and after else key)


def highlighted(line: str, words: Sequence[str]) -> Markup:
    """``line`` as inert text, with every one of ``words`` in it marked, in any case."""
    wanted = [re.escape(word) for word in sorted(words, key=len, reverse=True) if word.strip()]
    if not wanted:
        return escape(line)
    out, at = Markup(""), 0
    for found in re.finditer("|".join(wanted), line, re.IGNORECASE):
        out += escape(line[at : found.start()]) + Markup("<mark>{}</mark>").format(found[0])
        at = found.end()
    return out + escape(line[at:])
