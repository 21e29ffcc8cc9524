"""What the user calls the columns of his own saved answers: the option that says so, and whether his files have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlclinic.errors import BadRequest, CannotRead, UnknownName, nearest
from rlclinic.readers.answers.forms import ASKED
from rlclinic.readers.answers.values import is_part, number

PART = "part."
"""Begins the name of a part of the reward: ``part.format=format_score``."""
OURS = (*ASKED, "held_out", f"{PART}NAME")
_TELLING = ("prompt", "completion", "answers", "messages", "reward")
LONGEST = 10_000
"""Longest option in characters (ours)."""
UNDATED = "no step is known"
_STEPS = frozenset(
    {"it", "iter", "iters", "iteration", "step", "steps", "update", "updates", "epoch", "round", "version"}
)
"""Words in the name of a column that counts steps."""
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
        self.met: dict[str, None] = {}
        self._numbers = {
            theirs: ours for ours, theirs in given.items() if ours.startswith(PART) or ours in ("reward", "advantage")
        }
        self._texts: set[str] = set()

    @property
    def given(self) -> bool:
        """Whether the user named any column."""
        return bool(self.columns or self._parts)

    def fits(self, record: Mapping[str, Any]) -> bool:
        """True for a record that has every column that the user named for the words and the worth of an answer."""
        wanted = [*(self.columns[ours] for ours in _TELLING if ours in self.columns), *self._parts.values()]
        wanted = wanted or list(self.columns.values())
        return bool(wanted) and all(name in record or _inside(record, name) is not None for name in wanted)

    def touches(self, record: Mapping[str, Any]) -> bool:
        """True for a record that has any column that the user named, the parts of the reward under his names."""
        return any(_inside(record, name) is not None for name in self.columns.values()) or any(
            name in record for name in self._parts
        )

    def meet(self, record: Mapping[str, Any]) -> None:
        """Note which columns a record has."""
        for name in list(self._numbers):
            value = _inside(record, name)
            if isinstance(value, str) and number(value) is None:
                self._texts.add(name)
            elif value is not None:
                del self._numbers[name]
        if len(self.met) < 1_000:
            self.met.update(dict.fromkeys(map(str, record)))
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
        """Raises CannotRead when a column that the user named is in no file, with those that are there, and BadRequest
        when it holds texts where numbers are asked for."""
        for name in self._texts & self._numbers.keys():
            raise BadRequest(
                f"numbers in the column of the {self._numbers[name]} (--columns)",
                f"{name[:80]!r} holds texts",
                hint=_HINT,
            )
        if not self._missing:
            return
        wanted = next(iter(self._missing))
        close = nearest(wanted, self.met)
        there = (*close, *(name for name in self.met if name not in close))
        files = [str(path) for path in where]
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        found = f"{files[0] if files else 'no file'}{more} without it" if there else "no record in any file"
        raise CannotRead(f"a column {wanted[:80]!r} of saved answers (--columns)", found, there)


class Rising:
    """Looks for whole numbers that rise through a file whose steps are not known: one of them may be the step."""

    def __init__(self, known: Iterable[str]) -> None:
        self._last: dict[str, int] | None = None
        self._known = frozenset(known)
        self._risen: dict[str, int] = {}
        self._count = 0

    def watched(self, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The records as they are, each looked at."""
        for record in records:
            if self._last is None:
                self._last = {
                    key: value for key, value in record.items()
                    if type(value) is int and isinstance(key, str) and key not in self._known and _may_count(key)
                }  # fmt: skip
            self._count += 1
            for key in tuple(self._last):
                value = record.get(key)
                if type(value) is not int or value < self._last[key]:
                    del self._last[key]
                elif value > self._last[key]:
                    self._last[key] = value
                    self._risen[key] = self._risen.get(key, 0) + 1
            yield record

    def says(self) -> str:
        """What to tell the user; empty where no column may be the step. One that rises with every record and is not called
        like a step numbers the records."""
        found = [
            key for key in self._last or () if self._risen.get(key)
            and (_is_step(key) or 2 * (self._risen[key] + 1) <= self._count)
        ]  # fmt: skip
        best = sorted(found, key=lambda key: not _is_step(key))[:1]
        return f"{UNDATED}; column {best[0][:80]!r} may be it: --columns step={best[0][:80]}" if best else ""


def _is_step(name: str) -> bool:
    return not _STEPS.isdisjoint(re.split(r"[^a-z0-9]", name.lower()[:80]))


def _may_count(name: str) -> bool:
    return _is_step(name) or is_part(name)


def _inside(record: Mapping[str, Any], name: str) -> Any:
    if name in record or "." not in name:
        return record.get(name)
    found: Any = record
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
