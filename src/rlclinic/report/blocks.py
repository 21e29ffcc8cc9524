"""The kinds of block that a report is made of, and the words in them: clean, bounded, rounded for reading."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from rlclinic.healthy import Band
from rlclinic.model import Column, Floats, Forecast, Onset

Tone: TypeAlias = Literal["plain", "dim", "healthy", "info", "warning", "critical", "undecided"]

# Ours, chosen by reading reports: longer texts lose their middle, longer lists say how many entries are left out.
_WORD = 24
"""Characters within which a word ends, where a text is one of words."""
TEXT = 400
KEY = 72
LIST = 12
PASSAGE = 720
LINES = 12


@dataclass(frozen=True)
class Heading:
    """Level 1: the run, 2: a section, 3: a finding. ``label`` goes before the text, ``aside`` after it."""

    text: str
    level: Literal[1, 2, 3]
    label: str = ""
    aside: str = ""
    tone: Tone = "plain"
    plainly: str = ""
    """What the text, a name, means in plain words; shown on pages only."""
    number: int = 0
    """Of a finding, by which pages link to it; 0 for what nothing links to."""
    under: bool = False
    """A consequence of a finding above it: pages draw it less loudly."""


@dataclass(frozen=True)
class Paragraph:
    """Running text; with a ``label`` it is the verdict."""

    text: str
    label: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True)
class KeyNumbers:
    """Label and value, one pair a line."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first column holds names."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Marks:
    """What a page draws on a curve besides its points, in trainer steps."""

    forecast: Forecast | None = None
    checkpoints: tuple[float, ...] = ()
    seams: tuple[float, ...] = ()
    back: float | None = None
    """Where to go on from."""
    band: Band | None = None
    """Behind the curve: where runs that the user calls healthy stayed."""


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric over the run: its ends, its range, its course. Neighbouring curves are drawn as one aligned list.

    With an empty ``first`` there is nothing to draw and the first remark says why; with an empty ``last`` there is one
    value, and the first remark says when. ``flag`` names the findings that speak of it; ``mark`` is drawn below a
    ``large`` curve. ``course`` is off where the points are too few for a line to say anything.
    """

    title: str
    column: Column
    span: tuple[float, float]
    first: str
    last: str
    low: str
    high: str
    flag: str = ""
    remarks: tuple[str, ...] = ()
    mark: Onset | None = None
    large: bool = False
    course: bool = True
    tone: Tone = "plain"
    name: str = ""
    """The canonical metric, where there is one."""
    marks: Marks = Marks()


@dataclass(frozen=True, eq=False)
class Overlay:
    """One metric of several runs over one axis, the runs named; ``mark`` is where they part, or what ``marked`` says."""

    title: str
    lines: tuple[tuple[str, Column], ...]
    span: tuple[float, float]
    axis: str = "step"
    mark: Onset | None = None
    remarks: tuple[str, ...] = ()
    tone: Tone = "plain"
    name: str = ""
    marked: str = "part at"


@dataclass(frozen=True)
class Chain:
    """Findings, by their number in the report, and which leads to which; drawn on pages only."""

    nodes: tuple[tuple[int, str, Tone], ...]
    arrows: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Shares:
    """How parts divide a whole over the steps; drawn on pages only. ``shares`` is (parts, steps): each column adds up to 1,
    or is NaN where there is nothing to divide."""

    title: str
    names: tuple[str, ...]
    steps: Floats
    shares: Floats
    remark: str = ""


@dataclass(frozen=True)
class Change:
    """One remedy: numbered, its settings as (key, before, after, what to write), and what goes with it.

    ``before`` is empty where the present value is not known, ``after`` where the new one depends on it.
    """

    number: int
    says: str
    settings: tuple[tuple[str, str, str, str], ...]
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Note:
    """Something that reassures, or with the ``label`` ``mind`` a trap in the meaning of a key."""

    text: str
    label: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list; ``label`` stands before it."""

    items: tuple[str, ...]
    label: str = ""


@dataclass(frozen=True)
class Passage:
    """Words of a prompt or an answer, line by line (``excerpt``); ``label`` says whose, ``aside`` what is known of it."""

    label: str
    lines: tuple[str, ...]
    aside: str = ""
    tone: Tone = "plain"
    marked: tuple[str, ...] = ()
    """Words in the lines that pages highlight, in any case."""


@dataclass(frozen=True)
class Sources:
    """References as (name, what is claimed, address); the addresses are our own, never a log's. On pages only."""

    items: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, eq=False)
class Folded:
    """Blocks behind one line, which a click unfolds and print shows; on pages only."""

    title: str
    blocks: tuple[Block, ...]


Block: TypeAlias = (
    Heading | Paragraph | KeyNumbers | Table | Curve | Overlay | Chain | Shares | Change | Note | Bullets | Passage
    | Sources | Folded
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------- words

_ESCAPES = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*|\x9b[0-9;:?]*[@-~]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def plain(text: object, most: int = TEXT) -> str:
    """``text`` as one clean line: terminal codes, control, bidirectional and zero-width characters removed.

    Longer than ``most`` characters, the middle is left out, so that both ends of a key stay readable; of a sentence (what
    may be longer than a key) between two words.
    """
    line = str(text)
    if len(line) > 4 * most:
        line = line[: 2 * most] + "..." + line[-2 * most :]
    if not (line.isascii() and line.isprintable()):
        line = _ESCAPES.sub("", line)
        line = "".join(" " if c in "\t\n\r\v\f\u2028\u2029" else c for c in line)
        line = "".join(c for c in line if unicodedata.category(c) not in _UNSEEN)
    line = " ".join(line.split())
    if len(line) <= most:
        return line
    head = (most - 3) * 2 // 3
    front, back = line[:head], line[len(line) - (most - 3 - head) :]
    at, end = front.rfind(" ", head - _WORD), back.find(" ", 0, _WORD)
    between = most > KEY and at > 0 and end >= 0
    return f"{front[:at]} ... {back[end + 1 :]}" if between else f"{front}...{back}"


_SAVED_AS = {
    "plain": "one answer a line",
    "plain-groups": "one prompt with its answers a line",
    "trl": "as TRL saves them",
    "trl-table": "TRL's tables in W&B",
    "swift": "as ms-swift saves them",
    "verl-table": "verl's table in W&B",
    "nemo-rl": "as NeMo-RL saves them",
    "nemo-rl-filtered": "as NeMo-RL saves them after filtering",
    "prime-rl-effective": "what prime-rl trains on",
    "skyrl": "as SkyRL saves them",
    "areal": "as AReaL saves them",
    "tinker": "as tinker-cookbook saves them",
    "roll": "as ROLL saves them",
    "art": "as ART saves them",
    "rllm": "as rLLM saves them",
    "openrlhf": "OpenRLHF's table in W&B",
}
"""Forms of saved answers in words; of others the name of the form is that of what wrote them."""


def saved_as(form: str) -> str:
    """How answers of a ``form`` are saved, in words."""
    return _SAVED_AS.get(form) or f"as {plain(form, 24)} saves them"


def excerpt(text: str, characters: int = PASSAGE, lines: int = LINES) -> tuple[str, ...]:
    """``text`` line by line; beyond ``characters`` or ``lines`` its middle is left out, and how much that was is said.

    Nothing is dropped unseen: control, bidirectional and zero-width characters are spelled as escapes.
    """
    if len(text) <= characters and text.count("\n") < lines:
        return tuple(visible(line) for line in text.split("\n"))
    head = "\n".join(text[: characters * 2 // 3].split("\n")[: lines * 2 // 3])
    head = _to_a_word(head) if not text[len(head) : len(head) + 1].isspace() else head
    tail = "\n".join(text[max(len(head), len(text) - characters // 3) :].split("\n")[-(lines // 3) :])
    if not text[-len(tail) - 1 : -len(tail)].isspace():
        tail = _to_a_word(tail[::-1])[::-1]
    left = len(text) - len(head) - len(tail)
    cut = f"[... {count(left, 'character')} left out ...]"
    if len(text) <= characters + len(cut) and text.count("\n") < lines:  # the notice would cost more than it spares
        return tuple(visible(line) for line in text.split("\n"))
    return tuple(visible(line) for line in (*head.split("\n"), cut, *tail.strip("\n").split("\n")))


def _to_a_word(text: str, most: int = 24) -> str:
    """``text`` without the piece of a word at its end, where that is short."""
    piece = re.search(rf"\S{{1,{most}}}\Z", text[-most - 1 :])
    return text[: len(text) - len(piece[0])] if piece is not None and len(piece[0]) <= most < len(text) else text


def visible(line: str) -> str:
    """``line`` with every character that is not seen, or stacks up, spelled as an escape; tabs become four blanks."""
    if line.isascii() and line.isprintable():
        return line
    shown, stacked = [], 0
    for c in line:
        kind = unicodedata.category(c)
        stacked = stacked + 1 if kind in ("Mn", "Me") else 0
        if c == "\t":
            shown.append("    ")
        elif kind in _UNSEEN or stacked > 2:
            shown.append(
                f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" if ord(c) < 65536 else f"\\U{ord(c):08x}"
            )
        else:
            shown.append(c)
    return "".join(shown)


def number(value: float) -> str:
    """A number as people read it: three figures, whole numbers from 1,000 on, never more digits than it has."""
    value = float(value)
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else ("infinity" if value > 0 else "-infinity")
    size = abs(value)
    if value == int(value) and size < 1e6:
        return f"{int(value)}"
    if size >= 1e6 or size < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.0f}" if size >= 1000 else f"{value:.3g}"


def step(value: float) -> str:
    """A trainer step in full, however large: neighbours are told apart."""
    return f"{value + 0.0:.0f}" if abs(value) < 2**53 and float(value).is_integer() else f"{value:.10g}"


def count(many: int, one: str) -> str:
    """``many`` of ``one``, in the plural where there are several."""
    return f"{many} {one}" if many == 1 else f"{many} {one}s"


def bounded(items: Iterable[object], most: int = LIST) -> tuple[str, ...]:
    """At most ``most`` clean entries, and how many more there are."""
    every = list(items)
    shown = [plain(item) for item in every[:most]]
    return (*shown, *([f"and {len(every) - most} more"] if len(every) > most else []))


def tone(word: str) -> Tone:
    """The colour of a severity."""
    tones: dict[str, Tone] = {"info": "info", "warning": "warning", "critical": "critical"}
    return tones.get(word, "plain")
