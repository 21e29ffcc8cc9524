"""verl's console form: one long line a step, ``step:3 - key:value - key:value``, also broken over several, and cut."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlclinic.readers.text.literal import PAIRS
from rlclinic.readers.tokens import decimals, number

_BEGIN = re.compile(r"\bstep:(-?\d{1,12})\s+-\s+")
_LEAD = r"(?i)\s*|.*(?:%\||\b(?:info|warning|debug|error)\b|\d\d:\d\d).*|\W{0,8}[\w.-]{0,40}\s?pid=\d+.*"
"""What stands before a line of the trainer itself: nothing, a progress bar, the prefix of a logger or a process."""
_CONTINUES = r"[\w/@.%()+:-]{0,200}(?:\s-\s[^:\n]{1,200}:[^\s:]{1,100}){1,2000}(?:\s-\s?)?[^\s]{0,200}\s*"
_FRAGMENT = r"[\w/@.:+()-]{1,200}"
_SCALED = r"(.{1,190})\((\d(?:\.\d{1,6})?e[+-]?\d{1,3})\)"


@dataclass(frozen=True)
class StepLine:
    """What one line held: its step, printed values by key, whether its end was cut off, whether a key stood twice."""

    step: float
    row: dict[str, str]
    cut: bool
    doubled: bool


class StepLines:
    """Takes the pieces of such lines; ``close`` gives the line that was begun."""

    def __init__(self) -> None:
        self.step = 0.0
        """The step of the last line, 0 before the first."""
        self.keys: frozenset[str] = frozenset()
        """The keys of the last line."""
        self._pieces: list[str] = []
        self._led = False

    def begins(self, text: str) -> bool:
        """True when a line begins in this text."""
        return "step:" in text and _BEGIN.search(text) is not None

    def begin(self, text: str) -> bool:
        """Take a text in which a line begins; False for any other, as one quoted in prose where others stand alone."""
        found = _BEGIN.search(text) if "step:" in text else None
        if found is None:
            return False
        led = re.fullmatch(_LEAD, text[: found.start()][-200:]) is not None
        if self._led and not led:
            return False
        self._led |= led
        self.step = float(found[1])
        self._pieces = [text[found.end() :]]
        return True

    def go_on(self, text: str) -> bool:
        """Take a text that continues the line that was begun; False for any other."""
        if not self._pieces or self.begins(text) or "{" in text or "%|" in text or not text.strip():
            return False
        tail = self._pieces[-1].rsplit(" - ", 1)[-1]
        if not re.fullmatch(_CONTINUES, text) and not (
            re.fullmatch(_FRAGMENT, text.strip()) and number(tail.rpartition(":")[2]) is None
        ):
            return False
        self._pieces.append(text.rstrip("\n"))
        return True

    def close(self, cut: bool) -> StepLine | None:
        """The line that was begun, without a value that may be incomplete; None when there is none."""
        if not self._pieces:
            return None
        content, self._pieces = "".join(self._pieces).rstrip().removesuffix(" -"), []
        row: dict[str, str] = {}
        parts = content.split(" - ")
        if not all(":" in part for part in parts[:-1]):
            parts = _rejoined(parts)
        doubled = False
        for part in parts[: PAIRS if not cut else min(PAIRS, len(parts) - 1)]:
            key, _, token = part.rpartition(":")
            if token[-1:] == ")" and "(" in token:
                token = token[token.index("(") + 1 : -1]
            if not key or not token:
                continue
            if key[-1] == ")" and (scaled := re.fullmatch(_SCALED, key)) and (value := number(token)) is not None:
                places = (decimals(token) or 0) + max(0, -int(scaled[2].partition("e")[2]))
                key, token = scaled[1], f"{value * float(scaled[2]):.{min(places, 30)}f}"
            if key in row:
                doubled = True
            else:
                row[key] = token
        whole = not cut and number(parts[-1].rpartition(":")[2]) is not None
        if not whole:
            if row and number(next(reversed(row.values()))) is None:
                row.popitem()
        elif _shortened(list(row.values())):
            whole = False
            row.popitem()
        self.keys = frozenset(row)
        return StepLine(self.step, row, not whole, doubled)


def _rejoined(parts: list[str]) -> list[str]:
    """Parts of a line in which keys hold `` - `` themselves: a part without a colon belongs to the one after it."""
    whole: list[str] = []
    begun: list[str] = []
    for part in parts:
        begun.append(part)
        if ":" in part:
            whole.append(" - ".join(begun))
            begun = []
    return [*whole, " - ".join(begun)] if begun else whole


def _shortened(tokens: list[str]) -> bool:
    """True when the last value shows fewer decimals than all others do alike, so it may have been cut."""
    dotted = [token for token in tokens[:-1] if "." in token]
    if len(tokens) < 4 or not dotted or "." not in tokens[-1]:
        return False
    usual = decimals(dotted[0])
    if usual is None or (decimals(tokens[-1]) or 0) >= usual:
        return False
    return all(decimals(token) == usual for token in dotted)
