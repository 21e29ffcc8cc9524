"""What was found in a run before, what was changed and what came of it: the form of a record, read with suspicion."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

Value: TypeAlias = float | int | str | bool | None

FILE: Final = "rlclinic-record.json"
"""The name of the record beside a run's log."""
SCHEMA: Final = "rlclinic.record/1"
OUTCOMES: Final = ("cured", "improving", "no-effect", "worse", "undecided")
"""What can have come of a change."""

# Ours: a record of a hundred looks at one run has about 300 kB.
BYTES = 4 << 20
"""Most bytes of a record file."""
ENTRIES = 1_000
"""Most entries of a record file."""
ITEMS = 64
"""Most findings, changes or settings of one entry that are read."""
TEXT = 400
NAME = 120

_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SEVERITIES = ("info", "warning", "critical")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class Seen:
    """One finding of then: the check, how grave, since which trainer step (with its interval), and its one line."""

    check: str
    severity: str
    step: float | None = None
    low: float | None = None
    high: float | None = None
    says: str = ""


@dataclass(frozen=True)
class Moved:
    """One setting that was changed: ``knob`` is its canonical name, empty for a key of the user's own; ``before`` and
    ``after`` are None where not known."""

    knob: str
    key: str
    before: Value
    after: Value


@dataclass(frozen=True)
class Took:
    """What was done: a remedy with its settings, for which ``checks``; an empty ``remedy`` is settings alone."""

    remedy: str
    checks: tuple[str, ...] = ()
    changes: tuple[Moved, ...] = ()
    also: bool = False
    """Settings in which the next run differs and that nothing prescribed: perhaps nobody's answer to the findings."""


@dataclass(frozen=True)
class Past:
    """One entry of a record. ``date`` is UTC in ISO form; ``outcome`` is one of ``OUTCOMES``, or empty while open."""

    date: str
    run: str
    verdict: str
    primary: str = ""
    found: tuple[Seen, ...] = ()
    took: tuple[Took, ...] = ()
    after: str = ""
    """The run that the outcome was read off, where it is another one."""
    outcome: str = ""
    because: str = ""
    note: str = ""
    outcomes: tuple[tuple[str, str], ...] = ()
    """What came of single findings, (check, outcome), where the next run told them apart."""

    def outcome_for(self, check: str) -> str:
        """What came of the finding of ``check``: its own outcome where it is known, else that of the whole."""
        return dict(self.outcomes).get(check, self.outcome)

    @property
    def day(self) -> str:
        """The date as people write it, in any locale: 12 Nov 2026."""
        return f"{int(self.date[8:10])} {_MONTHS[int(self.date[5:7]) - 1]} {self.date[:4]}"


def entries(data: bytes) -> list[object]:
    """The entries of a record file as they stand in it. Raises ValueError, in words, for a file that is none of ours."""
    if len(data) > BYTES:
        raise ValueError(f"more than {BYTES >> 20} MiB")
    try:
        held = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("no UTF-8 text") from None
    except (ValueError, RecursionError):
        raise ValueError("no JSON, or cut off") from None
    schema = held.get("schema") if isinstance(held, dict) else None
    if not isinstance(schema, str) or not schema.startswith(SCHEMA.partition("/")[0] + "/"):
        raise ValueError("no record of rlclinic")
    if schema != SCHEMA:
        raise ValueError(f"a record of another form ({schema[:40]}); this rlclinic knows {SCHEMA}")
    found = held.get("entries")
    if not isinstance(found, list):
        raise ValueError("a record without entries")
    if len(found) > ENTRIES:
        raise ValueError(f"more than {ENTRIES} entries")
    return found


def read_entries(data: bytes) -> tuple[tuple[Past, ...], int]:
    """What a record file says, oldest first, and how many of its entries cannot be read. Raises what ``entries`` does."""
    every = entries(data)
    found = [one for entry in every if (one := past(entry)) is not None]
    return tuple(sorted(found, key=lambda one: one.date)), len(every) - len(found)


def past(entry: object) -> Past | None:
    """One entry, bounded; None for what has no valid date or no verdict. Keys that are not known are passed over."""
    if not isinstance(entry, Mapping):
        return None
    date, verdict = _text(entry.get("date"), NAME), _table(entry.get("verdict"))
    severity = _text(verdict.get("severity"), NAME)
    if not _is_date(date) or severity not in ("healthy", "undecided", *_SEVERITIES):
        return None
    outcome = _text(entry.get("outcome"), NAME)
    return Past(
        date=date,
        run=_text(_table(entry.get("run")).get("name"), NAME),
        verdict=severity,
        primary=_word(verdict.get("primary")),
        found=tuple(seen for one in _rows(entry.get("findings")) if (seen := _seen(one)) is not None),
        took=tuple(took for one in _rows(entry.get("took")) if (took := _took(one)) is not None),
        after=_text(_table(entry.get("after")).get("name"), NAME),
        outcome=outcome if outcome in OUTCOMES else "",
        because=_text(entry.get("because"), TEXT),
        note=_text(entry.get("note"), TEXT),
        outcomes=_outcomes(entry.get("outcomes")),
    )


def _seen(row: Mapping[str, object]) -> Seen | None:
    check, severity = _word(row.get("check")), _text(row.get("severity"), NAME)
    if not check or severity not in _SEVERITIES:
        return None
    onset = _table(row.get("onset"))
    step, low, high = (_number(onset.get(name)) for name in ("step", "low", "high"))
    return Seen(check, severity, step, low, high, _text(row.get("says"), TEXT))


def _took(row: Mapping[str, object]) -> Took | None:
    remedy = _word(row.get("remedy"))
    listed = row.get("for")
    checks = [_word(one) for one in listed[:ITEMS]] if isinstance(listed, list) else []
    changes = tuple(moved for one in _rows(row.get("changes")) if (moved := _moved(one)) is not None)
    also = row.get("also") is True and not remedy
    return Took(remedy, tuple(filter(None, checks)), changes, also) if remedy or changes else None


def _moved(row: Mapping[str, object]) -> Moved | None:
    key = _text(row.get("key"), NAME)
    return Moved(_word(row.get("knob")), key, _value(row.get("from")), _value(row.get("to"))) if key else None


def _outcomes(held: object) -> tuple[tuple[str, str], ...]:
    rows = list(_table(held).items())[:ITEMS]
    return tuple((_word(check), str(word)) for check, word in rows if _word(check) and word in OUTCOMES)


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text) or not text.isascii():
        return False
    try:
        datetime.fromisoformat(text[:-1])
    except ValueError:
        return False
    return True


def _text(held: object, most: int) -> str:
    """One line without anything that is not seen; it may come to stand in a comment of a shell script."""
    line = held[:most] if isinstance(held, str) else ""
    return line if line.isprintable() else " ".join("".join(c if c.isprintable() else " " for c in line).split())


def _word(held: object) -> str:
    """The name of a check, a remedy or a setting; empty for anything else."""
    return held if isinstance(held, str) and _WORD.fullmatch(held) else ""


def _number(held: object) -> float | None:
    if isinstance(held, bool) or not isinstance(held, (int, float)) or abs(held) > 1e300:
        return None
    return float(held) if math.isfinite(held) else None


def _value(held: object) -> Value:
    if isinstance(held, str):
        return _text(held, NAME)
    if isinstance(held, bool) or (isinstance(held, int) and abs(held) < 1 << 53):
        return held
    return _number(held)


def _table(held: object) -> Mapping[str, object]:
    return held if isinstance(held, dict) else {}


def _rows(held: object) -> Sequence[Mapping[str, object]]:
    return [one for one in held[:ITEMS] if isinstance(one, dict)] if isinstance(held, list) else []
