"""What the user calls the columns of his own saved answers: the option that says so, and whether his files have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlclinic.errors import BadRequest, CannotRead, UnknownName, nearest
from rlclinic.readers.answers.forms import ASKED

PART = "part."
"""Begins the name of a part of the reward: ``part.format=format_score``."""
OURS = (*ASKED, "held_out", f"{PART}NAME")
LONGEST = 10_000
"""Longest option in characters (ours)."""
_HINT = "--columns prompt=question,completion=model_answer,reward=score"


def parse_columns(text: str) -> dict[str, str]:
    """Ours -> theirs out of ``prompt=question,completion=model_answer``; ``a.b`` stands for ``b`` inside ``a``.

    Raises UnknownName for a name that is none of ours, BadRequest for a text of another form or a name given twice.
    """
    found: dict[str, str] = {}
    for piece in text[:LONGEST].split(","):
        ours, mark, theirs = (one.strip() for one in piece.partition("="))
        if not ours and not mark:
            continue
        if not ours or not theirs:
            raise BadRequest("pairs of our name and that of a column", repr(piece[:80]), hint=_HINT)
        if ours not in OURS and not (ours.startswith(PART) and len(ours) > len(PART)):
            close = nearest(ours, OURS)
            raise UnknownName(
                "one of our names for a column of saved answers",
                repr(ours[:80]),
                (*close, *(name for name in OURS if name not in close)),
                _HINT,
            )
        if ours in found:
            raise BadRequest("one column for each name", f"{ours} given twice", hint=_HINT)
        found[ours] = theirs
    if not found:
        raise BadRequest("pairs of our name and that of a column", repr(text[:80]), hint=_HINT)
    return found


class Own:
    """The user's names at work: parts of the reward under his names, and a watch on which columns were met."""

    def __init__(self, columns: Mapping[str, str] | None) -> None:
        given = dict(columns or {})
        self.columns = {ours: theirs for ours, theirs in given.items() if not ours.startswith(PART)}
        if "held_out" in self.columns:
            self.columns.setdefault("split", self.columns.pop("held_out"))
        self._parts = {ours[len(PART) :]: theirs for ours, theirs in given.items() if ours.startswith(PART)}
        self._missing = dict.fromkeys(given.values())
        self._met: dict[str, None] = {}

    @property
    def given(self) -> bool:
        """Whether the user named any column."""
        return bool(self.columns or self._parts)

    def meet(self, record: Mapping[str, Any]) -> None:
        """Note which columns a record has."""
        if len(self._met) < 1_000:
            self._met.update(dict.fromkeys(map(str, record)))
        for name in [name for name in self._missing if _inside(record, name) is not None or name in record]:
            del self._missing[name]

    def renamed(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record with the parts of the reward under the user's names."""
        for name, theirs in self._parts.items():
            value = _inside(record, theirs)
            if value is not None:
                record = {key: held for key, held in record.items() if key != theirs}
                record[name] = float(value) if isinstance(value, bool) else value
        return record

    def check(self, where: Iterable[object]) -> None:
        """Raises CannotRead when a column that the user named is in no file, with those that are there."""
        if not self._missing:
            return
        wanted = next(iter(self._missing))
        close = nearest(wanted, self._met)
        there = (*close, *(name for name in self._met if name not in close))
        files = [str(path) for path in where]
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        found = f"{files[0] if files else 'no file'}{more} without it" if there else "no record in any file"
        raise CannotRead(f"a column {wanted[:80]!r} of saved answers (--columns)", found, there)


def _inside(record: Mapping[str, Any], name: str) -> Any:
    if name in record or "." not in name:
        return record.get(name)
    found: Any = record
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
