"""Read dictionaries as Python or JSON print them, also cut and broken ones, without evaluating anything."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from rlclinic.readers.tokens import Printed

PAIRS = 2_000
"""Most pairs taken of one dictionary or line (ours)."""

_KEY = re.compile(r"""\s*(?:'([^'\n]{1,300})'|"([^"\n]{1,300})")\s*:\s*""")
_BEFORE_COLON = re.compile(r"""(?:'[^'\n]{1,300}'|"[^"\n]{1,300}")\s*""")
_PAIR = re.compile(r"\s?'([^'\n]{1,300})'\s?:\s?(?:'([^'\\,\n]{0,200})'|([-+\w.]{1,80}))(?:,|$)")
_BARE_VALUES = re.compile(r": [-+\w.]{1,80}(?:, : [-+\w.]{1,80})*")
_SCALAR = re.compile(
    r"""'((?:[^'\\\n]|\\.){0,4000})'|"((?:[^"\\\n]|\\.){0,4000})"|([\w.+-]{1,80}(?:\([^()\n]{0,120}\))?)"""
)


@dataclass
class Scan:
    """A dictionary as far as its text is sound: ``end`` is where reading stopped, ``state`` how."""

    pairs: dict[str, object] = field(default_factory=dict)
    end: int = 0
    state: Literal["open", "closed", "broken"] = "open"


def scan(text: str, start: int, depth: int = 0) -> Scan:
    """Read the printed dictionary (Python or JSON) whose first pair begins at or after ``start``; nothing is evaluated.

    A pair counts only when a comma or a closing brace follows it, so a value that was cut off is never read. ``state``
    is ``closed``, ``open`` (the text ends inside) or ``broken`` (no dictionary from ``end`` on).
    """
    stop = text.find("}", start, start + 20_000)
    body = text[start:stop] if stop > 0 else "{"
    if "{" not in body:
        if (bare := _bare(body)) is not None:
            return Scan(bare, stop + 1, "closed")
        simple = _PAIR.findall(body)
        if len(simple) == body.count(",") + (body[-1:] != ","):
            return Scan({key: Printed(bare) if bare else quoted for key, quoted, bare in simple}, stop + 1, "closed")
    found = Scan(end=start)
    place, size = start, len(text)
    while len(found.pairs) < PAIRS:
        while place < size and text[place] in " \t\n,":
            place += 1
        if place >= size:
            return found
        if text[place] == "}":
            found.end, found.state = place + 1, "closed"
            return found
        key = _KEY.match(text, place)
        if key is None:
            torn = _unfinished(text, place, 320) or (size - place < 320 and _BEFORE_COLON.fullmatch(text, place))
            return found if torn else _broken(found, place)
        name = key[1] or key[2]
        place = key.end()
        if place >= size:
            return found
        value: object
        if text[place] == "{":
            inner = scan(text, place + 1, depth + 1) if depth < 12 else Scan(end=place, state="broken")
            if inner.state != "closed":
                found.state = inner.state
                if inner.state == "broken":
                    found.end = inner.end
                return found
            value, place = inner.pairs, inner.end
        elif text[place] in "[(":
            stop = _closing(text, place)
            if stop < 0:
                return found if size - place < 20_000 else _broken(found, place)
            value, place = text[place:stop], stop
        else:
            scalar = _SCALAR.match(text, place)
            if scalar is None:
                return found if _unfinished(text, place, 4_200) else _broken(found, place)
            value = Printed(scalar[3]) if scalar[3] is not None else scalar[1] if scalar[1] is not None else scalar[2]
            place = scalar.end()
        while place < size and text[place] in " \t\n":
            place += 1
        if place >= size:
            return found
        if text[place] not in ",}":
            return _broken(found, place)
        found.pairs.setdefault(name, value)
        found.end = place
    return _broken(found, place)


def _bare(body: str) -> dict[str, object] | None:
    """The pairs of the commonest body, quoted keys with plain numbers, without a match for each; None for any other."""
    first, *pieces = body.split("'")
    keys, values = pieces[::2], "".join(pieces[1::2])
    if first or "\n" in body or len(pieces) % 2 or not _BARE_VALUES.fullmatch(values) or len(max(keys, key=len)) > 300:
        return None
    tokens = values[2:].split(", : ")
    return dict(zip(keys, map(Printed, tokens), strict=True)) if all(keys) and len(tokens) == len(keys) else None


def _broken(found: Scan, place: int) -> Scan:
    found.end, found.state = place, "broken"
    return found


def _unfinished(text: str, place: int, most: int) -> bool:
    """True when the text may end inside a quoted piece that begins at ``place``."""
    return text[place] in "'\"" and len(text) - place < most and text[place] not in text[place + 1 :]


def _closing(text: str, place: int) -> int:
    """Where the bracket opened at ``place`` closes, or -1 within the next 20,000 characters."""
    level, quote = 0, ""
    for at in range(place, min(len(text), place + 20_000)):
        char = text[at]
        if quote:
            if char == quote and text[at - 1] != "\\":
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "[(":
            level += 1
        elif char in "])":
            level -= 1
            if level == 0:
                return at + 1
    return -1
