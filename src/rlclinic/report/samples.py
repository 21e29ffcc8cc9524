"""The saved answers of a run as blocks: what was read, figures at both ends, and chosen answers with their words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from rlclinic import __version__
from rlclinic.answers.shown import Hung
from rlclinic.report.blocks import (
    KEY,
    LIST,
    Block,
    Bullets,
    Heading,
    KeyNumbers,
    Paragraph,
    Passage,
    Table,
    bounded,
    count,
    excerpt,
    number,
    plain,
    saved_as,
    step,
)
from rlclinic.report.contract import written

if TYPE_CHECKING:  # a report of a log without saved answers needs no search through them
    from rlclinic.answers.figures import Figure
    from rlclinic.gallery import Gallery, Shelf, Shown

SCHEMA: Final = "rlclinic.rollouts/1"
QUOTED = re.compile("“([^”]{2,200})”")
"""The words of a candidate, which stand in it between these marks."""
_PROMPT = 320
_PROMPT_LINES = 5
_PARTS = 8
_FURTHER = "The answers themselves, masked: --exploits, --worst, --best, --step STEP, --prompt NUMBER or words."
_RIGHT = "Right means paid in full by the reward, or by its part for being right: only reading tells whether it is."
_WORDS = "What each line means: docs/rollouts.md."
_TELLING = ("groups without a spread of rewards", "pass@1", "cut at the limit", "ending in a loop")
"""Shares that are told even where they are 0."""


def page(gallery: Gallery) -> list[Block]:
    """The page as blocks. Every string is clean, bounded and masked."""
    blocks: list[Block] = [Heading(plain(gallery.name, KEY), 1, label="rlclinic rollouts")]
    for table in gallery.tables:
        blocks += _read(table, alone=len(gallery.tables) == 1)
    if len(gallery.tables) > 1:
        blocks.append(Paragraph("What follows is of the first of them.", tone="dim"))
    if gallery.foreign:
        blocks.append(Paragraph(plain(gallery.foreign)))
    if gallery.shelves or gallery.says:
        blocks.append(Heading(plain(gallery.says) or "Answers", 2))
        told = None
        for shelf in gallery.shelves:
            blocks += _shelf(shelf, told)
            told = shelf.prompt
        return blocks
    if gallery.figures:
        blocks += _figures(gallery.figures, gallery.windows)
        judged = any(one.title.startswith(("pass@", "- all right")) for one in gallery.figures)
        blocks.append(Paragraph(f"{_RIGHT} {_WORDS}" if judged else _WORDS, tone="dim"))
    if gallery.facts:
        blocks += [Heading("All answers", 2), _pairs(gallery.facts)]
    if gallery.candidates:
        blocks += [Heading("What pays besides being right", 2), Bullets(bounded(gallery.candidates))]
    if gallery.unseen:
        blocks.append(Heading("Not to be seen here", 2))
        blocks.append(Bullets(bounded((f"{what}: {why}" for what, why in gallery.unseen), LIST + 4)))
    blocks.append(Paragraph(_FURTHER, tone="dim"))
    return blocks


def _pairs(facts: Sequence[tuple[str, str]]) -> KeyNumbers:
    return KeyNumbers(tuple((label, plain(words)) for label, words in facts))


def _read(table: Shown, *, alone: bool) -> Iterator[Block]:
    steps = "no steps" if not table.steps else f"step {step(table.first)}" if table.steps == 1 else (
        f"{table.steps} steps from {step(table.first)} to {step(table.last)}"
    )  # fmt: skip
    of_them = f" of {table.rows}" if table.rows > table.answers else ""
    apart = f", {table.held_out} held out" if table.held_out else ""
    size = [
        f"{table.answers}{of_them} {'answer' if table.answers == 1 else 'answers'}{apart}",
        count(table.groups, "group"),
        *([count(table.prompts, "prompt")] if table.prompts else []),
        steps,
    ]
    pairs = [("read", f"{plain(table.source, 120)} ({saved_as(table.form)}, {count(table.files, 'file')})")]
    pairs.append(("hold", ", ".join(size)))
    if table.lacks and not alone:
        pairs.append(("do not say", ", ".join(table.lacks)))
    yield KeyNumbers(tuple(pairs + [("mind", plain(note)) for note in table.notes[:3]]))


# ------------------------------------------------------------------------------------------------------ figures


def _figures(figures: Sequence[Figure], windows: Sequence[tuple[float, float]]) -> Iterator[Block]:
    heads = [
        "all answers"
        if math.isnan(low)
        else f"step {step(low)}"
        if low == high
        else f"steps {step(low)} to {step(high)}"
        for low, high in windows
    ]
    yield Heading("At both ends" if len(heads) > 1 else "At a glance", 2)
    rows: list[tuple[str, ...]] = []
    about, none = "", []
    for one in figures:
        if one.unit == "share" and one.title not in _TELLING and not one.first > 0 and one.last == 0:
            none.append(plain(f"groups {one.title[2:]}" if one.title.startswith("- ") else one.title, 44))
            continue
        if one.about != about:
            about = one.about
            rows.append((about.upper(), *("" for _ in heads)))
        cells = [_value(one.first, one), _value(one.last, one)][-len(heads) :]
        rows.append((f"  {plain(one.title, 44)}", *cells))
    yield Table(("", *heads), tuple(rows))
    if none:
        yield Paragraph(f"0% {'at both ends' if len(heads) > 1 else 'here'}: {', '.join(none)}", tone="dim")


def _value(value: float, figure: Figure) -> str:
    if not math.isfinite(value):
        return "-"
    if figure.unit == "share":
        return f"{100 * value:.3g}%" if abs(value) < 0.995 else f"{100 * value:.0f}%"
    return f"{number(value)} nats" if figure.unit == "nats" else number(value)


# ------------------------------------------------------------------------------------------------------ answers


def _shelf(shelf: Shelf, told: str | None) -> Iterator[Block]:
    """One shelf; its prompt is left out where it is the one ``told`` just before."""
    yield Heading(plain(shelf.title, KEY), 3, aside=plain(shelf.says))
    if shelf.facts:
        yield _pairs(shelf.facts)
    if shelf.prompt is not None and shelf.prompt != told:
        yield Passage("prompt", excerpt(shelf.prompt, _PROMPT, _PROMPT_LINES))
    if shelf.truth is not None and (shelf.prompt is None or shelf.prompt != told):
        yield Passage("truth", excerpt(shelf.truth, _PROMPT, 3))
    quoted = tuple(QUOTED.findall(shelf.title))
    for hung in shelf.answers:
        for block in answer(hung, alone=not shelf.group):
            yield replace(block, marked=quoted) if block.label == "answer" else block
    if shelf.left > 0:
        yield Paragraph(f"{count(shelf.left, 'more answer')} not shown (--samples N shows more)", tone="dim")


def answer(hung: Hung, *, alone: bool) -> Iterator[Passage]:
    """One answer with what is known of it, after its prompt where that goes with it; ``alone`` where its step is not told
    above."""
    if hung.asked is not None:
        yield Passage("prompt", excerpt(hung.asked, _PROMPT // 2, 3))
    told = [f"reward {number(hung.reward)}"] if math.isfinite(hung.reward) else ["no reward"]
    if hung.parts and len(hung.parts) > 1:
        shown = [f"{plain(name, 24)} {number(value)}" for name, value in hung.parts[:_PARTS]]
        more = f", and {len(hung.parts) - _PARTS} more" if len(hung.parts) > _PARTS else ""
        told[0] += f" ({', '.join(shown)}{more})"
    if alone and math.isfinite(hung.step):
        told.append(f"step {step(hung.step)}" + (f", prompt {hung.prompt}" if hung.prompt >= 0 else ""))
    told += [f"{number(hung.tokens)} tokens"] if math.isfinite(hung.tokens) else []
    told += [hung.ending] if hung.ending else []
    told += [f"advantage {number(hung.advantage)}"] if math.isfinite(hung.advantage) else []
    told += [f"off by {number(hung.mismatch)} nats"] if math.isfinite(hung.mismatch) else []
    told += [f"{hung.times} times"] if hung.times > 1 else []
    if hung.words is None:
        lines: tuple[str, ...] = ("(its words are not saved or not kept)",)
    else:
        lines = excerpt(hung.words) if hung.words else ("(empty)",)
    yield Passage("answer", lines, aside=", ".join(told))


# --------------------------------------------------------------------------------------------------------- JSON


def to_json(gallery: Gallery) -> str:
    """``to_dict`` as text, see ``contract.written``."""
    return written(to_dict(gallery))


def to_dict(gallery: Gallery) -> dict[str, Any]:
    """The page as plain JSON data: words in full length as far as they are kept, masked; NaN becomes null."""
    data = {name: _plain(value) for name, value in asdict(gallery).items()}
    data["windows"] = [{"first": low, "last": high} for low, high in data["windows"]]
    data["facts"] = [{"about": about, "says": says} for about, says in data["facts"]]
    data["unseen"] = [{"what": what, "why": why} for what, why in data["unseen"]]
    for shelf in data["shelves"]:
        shelf["facts"] = [{"about": about, "says": says} for about, says in shelf["facts"]]
        for hung in shelf["answers"]:
            hung["parts"] = dict(hung["parts"])
    return {"schema": SCHEMA, "rlclinic": __version__, **data}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
