"""Tables drawn with box characters, put together from the lines of a console, also wrapped, nested, coloured and cut."""

from __future__ import annotations

from dataclasses import dataclass, field

CELLS = 40_000
"""Most cells of one table (ours: the widest drawn table of a trainer holds about 600)."""
COLUMNS = 64
"""Most columns of one table (ours: trainers draw one to eight)."""
CELL = 2_000
"""Longest cell in characters (ours)."""

_TOP, _TOP_END = "╒┌╭┏╔", "╕┐╮┓╗"
_BOTTOM = "╘└╰┗╚"
_MIDDLE = "├╞┡┢┠╟╠┣"
_BETWEEN = str.maketrans(dict.fromkeys("╤┬┳╦╥", "+"))
_RULES = frozenset("─━═╌┄┈ ┼╪╋╇╈╀╁╂┿╫╬┴╧┻╩┬╤┳╦╡┤┨┩┪╢╣┫╇")
_UPRIGHT = "│┃║"
_ONE = str.maketrans("┃║", "││")
EDGES = frozenset(_TOP + _BOTTOM + _MIDDLE + _UPRIGHT)


@dataclass
class Box:
    """A drawn table: ``title`` as its upper edge holds it, ``head`` the rows above the first heavy rule, ``rows`` below.

    A cell keeps its blanks, which tell a continued cell from a new one. ``corner`` is the upper left character.
    """

    corner: str = ""
    title: str = ""
    columns: int = 0
    head: list[list[str]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    torn: int = 0
    """Rows that could not be put together."""


class Boxes:
    """Takes lines in order; gives a table once it is drawn to its lower edge, or at the next one or the end."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._box: Box | None = None
        self._edge = ""
        self._line = ""
        self._width = 0
        self._cells = 0
        self._inner: Boxes | None = None

    @property
    def drawing(self) -> bool:
        """True inside a table."""
        return self._box is not None or bool(self._edge)

    def take(self, text: str) -> tuple[bool, list[Box]]:
        """Whether the line is part of a drawing, and the tables that it finishes."""
        bare = text.strip()
        if not bare:
            return False, []
        if self._edge:
            return self._top(self._edge + bare)
        first = bare[0]
        if first in _TOP:
            done = self.close()
            taken, more = self._top(bare)
            return taken, done + more
        if self._box is None:
            return first in EDGES, []
        if first in _BOTTOM and not self._line:
            return True, self.close()
        if not self._line and all(char in _RULES for char in bare[1:]) and (first in _MIDDLE or first in _RULES):
            if first in _MIDDLE and self._box.rows and not self._box.head and _heavy(bare):
                self._box.head, self._box.rows = self._box.rows, []
            return True, []
        return self._row(text.strip("\r\n"), bare)

    def close(self) -> list[Box]:
        """The table as far as it was drawn, if any."""
        box, self._box = self._box, None
        inner = self._inner.close() if self._inner is not None else []
        self._edge, self._line, self._inner = "", "", None
        return ([box] if box is not None and (box.rows or box.head) else []) + inner

    def _top(self, edge: str) -> tuple[bool, list[Box]]:
        if edge[-1] not in _TOP_END:
            if len(edge) > CELL or not any(char in _RULES for char in edge[1:4]):
                self._edge = ""
                return edge[0] in EDGES, []
            self._edge = edge
            return True, []
        self._edge = ""
        body = edge[1:-1]
        columns = body.translate(_BETWEEN).count("+") + 1 if not any(char.isalnum() for char in body) else 1
        if columns > COLUMNS:
            return True, []
        title = "".join(" " if char in _RULES else char for char in body).strip()
        self._box = Box(edge[0], title[:200], columns)
        self._width = len(edge)
        self._cells = 0
        return True, []

    def _row(self, text: str, bare: str) -> tuple[bool, list[Box]]:
        assert self._box is not None
        box = self._box
        starts = bare[0] in _UPRIGHT
        if not self._line and not starts:
            return False, []
        joined = self._line + text.lstrip() if not self._line else self._line + text
        if self._line and len(joined.rstrip()) > self._width + 4:
            # What was begun cannot end in this line: a foreign line between, or a row that was torn.
            box.torn += 1
            self._line = ""
            return self._row(text, bare) if starts else (False, [])
        plain = joined.translate(_ONE)
        if box.columns == 1:
            whole = plain.rstrip()[-1:] == "│" and len(plain.rstrip()) >= 2
        else:
            whole = plain.count("│") >= box.columns + 1
        if not whole:
            self._line = joined if len(joined) <= self._width + 4 else ""
            return True, []
        self._line = ""
        if box.columns == 1:
            return self._panel(plain.rstrip())
        cells = plain.strip().strip("│").split("│") if plain.strip()[-1:] == "│" else []
        if len(cells) != box.columns:
            box.torn += 1
            return True, []
        self._cells += len(cells)
        if self._cells <= CELLS and all(len(cell) <= CELL for cell in cells):
            box.rows.append(cells)
        return True, []

    def _panel(self, plain: str) -> tuple[bool, list[Box]]:
        """One line inside a frame of one column; a table drawn inside the frame is read as a table."""
        assert self._box is not None
        content = plain[1:-1]
        bare = content.strip()
        if self._inner is None and self._depth < 2 and bare[:1] and bare[0] in _TOP:
            self._inner = Boxes(self._depth + 1)
        if self._inner is not None:
            taken, done = self._inner.take(content)
            if taken or done:
                return True, done
        if self._cells < CELLS and len(content) <= CELL:
            self._cells += 1
            self._box.rows.append([content])
        return True, []


def _heavy(rule: str) -> bool:
    return rule[0] in "╞┡┢╠┣" or "━" in rule or "═" in rule
