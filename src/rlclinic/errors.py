"""The errors a user can meet; each says what was wanted, what was found, the valid choices and the next command."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

CHOICES = 24
"""Most valid answers that a message names (ours: room for every framework)."""


class RlclinicError(Exception):
    """A request that cannot be carried out; shown as one message, exit code 2.

    ``wanted`` and ``found`` are clauses, ``choices`` the valid answers (nearest first), ``hint`` the next command.
    """

    def __init__(self, wanted: str, found: str, choices: Iterable[str] = (), hint: str = "") -> None:
        self.wanted = wanted
        self.found = found
        self.choices = tuple(choices)
        self.hint = hint
        super().__init__(self.message())

    def message(self) -> str:
        """The whole text, several short lines."""
        lines = [f"wanted {_shown(self.wanted)}", f"found  {_shown(self.found)}"]
        if self.choices:
            shown = ", ".join(_shown(choice) for choice in self.choices[:CHOICES])
            more = f" and {len(self.choices) - CHOICES} more" if len(self.choices) > CHOICES else ""
            lines.append(f"valid  {shown}{more}")
        if self.hint:
            lines.append(f"try    {_shown(self.hint)}")
        return "\n".join(lines)


class CannotRead(RlclinicError):
    """A source that is missing, empty, binary or holds no metrics."""


class UnknownName(RlclinicError):
    """A check, metric, knob, framework, format or scenario that does not exist."""


class BadTable(RlclinicError):
    """A table (framework, limits, remedies) that breaks its form."""


class BadRequest(RlclinicError):
    """Options that contradict each other or do not fit the input."""


def _shown(text: str, most: int = 600) -> str:
    """Text that may hold a file name or a log line, without anything a terminal would obey, and bounded."""
    printable = "".join(c if c.isprintable() else " " for c in text[:most])
    return printable if len(text) <= most else printable + " ..."


LONGEST = 200
"""Characters from which on a text is no misspelt name (ours: the longest name of a metric that we know has 60)."""


def nearest(name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """The known names closest in spelling to ``name``, best first; empty when none is close."""
    if len(name) > LONGEST:  # comparing a text of a megabyte takes a second
        return ()
    return _nearest(name, tuple(known), most)


@lru_cache(maxsize=512)  # every look at a growing log asks for the same names
def _nearest(name: str, known: tuple[str, ...], most: int) -> tuple[str, ...]:
    return tuple(get_close_matches(name, known, n=most, cutoff=0.6))
