"""What earlier looks at a run found and what came of them: a short section of the report, and its JSON form."""

from __future__ import annotations

from typing import TypedDict

from rlclinic.history import Moved, Past, Took
from rlclinic.model import Run
from rlclinic.report.blocks import KEY, TEXT, Block, Bullets, Heading, number, plain, step

# Ours, chosen by reading reports: the last looks are those that matter.
SHOWN = 5
_FOUND = 3
_CHANGES = 4
_NOTE = 160

Value = float | int | str | bool | None


class SeenForm(TypedDict):
    """A finding of then; ``step`` is null where it has no onset."""

    check: str
    severity: str
    step: float | None
    low: float | None
    high: float | None
    says: str


MovedForm = TypedDict("MovedForm", {"knob": str, "key": str, "from": Value, "to": Value})
TookForm = TypedDict("TookForm", {"remedy": str | None, "for": list[str], "changes": list[MovedForm], "also": bool})


class PastForm(TypedDict):
    """One entry of a record (rlclinic record), oldest first; ``outcome`` is null while it is open, ``remedy`` where only
    settings were changed, ``after`` where the outcome was read off no other run."""

    date: str
    run: str
    verdict: str
    primary: str | None
    findings: list[SeenForm]
    took: list[TookForm]
    after: str | None
    outcome: str | None
    because: str
    note: str


def history(run: Run) -> list[Block]:
    """The section ``History``; nothing without any. The newest entries stand last, and older ones are counted."""
    if not run.history:
        return []
    every = run.history
    shown = [_line(every[k], every[k - 1] if k else None, run) for k in range(max(len(every) - SHOWN, 0), len(every))]
    aside = f"the last {SHOWN} of {len(every)} looks" if len(every) > SHOWN else ""
    return [Heading("History", 2, aside=aside), Bullets(tuple(plain(line, 2 * TEXT) for line in shown))]


def _line(past: Past, earlier: Past | None, run: Run) -> str:
    where = f", {plain(past.run, KEY)}" if past.run and past.run != run.name else ""
    same = earlier is not None and past.found and (past.found, past.run) == (earlier.found, earlier.run)
    parts = ["the same findings" if same else _findings(past)]
    repeated = bool(past.outcome and past.took and earlier is not None and past.took == earlier.took)
    for word, also in () if repeated else (("took", False), ("also changed", True)):
        taken = [words for took in past.took if took.also is also and (words := took_in_words(took))]
        if taken:
            more = f" and {len(taken) - _CHANGES} more" if len(taken) > _CHANGES else ""
            parts.append(f"{word} {', '.join(taken[:_CHANGES])}{more}")
    if past.outcome:
        after = f" (seen in {plain(past.after, KEY)})" if past.after and past.after != run.name else ""
        of = " of that" if repeated else ""
        parts.append(f"outcome{of}: {past.outcome.replace('-', ' ')}{_apart(past)}{after}")
    parts += [f'note: "{plain(past.note, _NOTE)}"'] if past.note else []
    return f"{past.day}{where}: {'; '.join(parts)}"


def _apart(past: Past) -> str:
    """What came of single findings, where it is not the same for all."""
    if len({word for _, word in past.outcomes}) < 2:
        return ""
    told = [f"{check} {word.replace('-', ' ')}" for check, word in past.outcomes]
    rest = f" and {len(told) - _CHANGES} more" if len(told) > _CHANGES else ""
    return f" ({', '.join(told[:_CHANGES])}{rest})"


def _findings(past: Past) -> str:
    """The findings that ask for action; where none does, the verdict."""
    grave = [one for one in past.found if one.severity != "info"]
    if not grave:
        return "nothing that needs action" if past.verdict == "info" else past.verdict
    named = ", ".join(
        f"{one.check} ({one.severity}){'' if one.step is None else f' since {step(one.step)}'}"
        for one in grave[:_FOUND]
    )
    rest = len(past.found) - min(len(grave), _FOUND)
    return f"{named} and {rest} more" if rest else named


def took_in_words(took: Took) -> str:
    """A remedy with its settings, or the settings alone."""
    moved = ", ".join(_moved(one) for one in took.changes[:_CHANGES])
    moved += f" and {len(took.changes) - _CHANGES} more" if len(took.changes) > _CHANGES else ""
    return f"{took.remedy} ({moved})" if took.remedy and moved else took.remedy or moved


def _moved(one: Moved) -> str:
    key = plain(one.key, KEY)
    if one.after is None:
        return key
    return (
        f"{key} = {_value(one.after)}" if one.before is None else f"{key} {_value(one.before)} -> {_value(one.after)}"
    )


def _value(value: Value) -> str:
    return number(value) if isinstance(value, float) else plain(value, 40)


def to_forms(run: Run) -> list[PastForm]:
    """The history as plain JSON data."""
    return [_form(past) for past in run.history]


def _form(past: Past) -> PastForm:
    return {
        "date": past.date,
        "run": past.run,
        "verdict": past.verdict,
        "primary": past.primary or None,
        "findings": [
            {"check": s.check, "severity": s.severity, "step": s.step, "low": s.low, "high": s.high, "says": s.says}
            for s in past.found
        ],
        "took": [
            {
                "remedy": took.remedy or None,
                "for": list(took.checks),
                "changes": [{"knob": m.knob, "key": m.key, "from": m.before, "to": m.after} for m in took.changes],
                "also": took.also,
            }
            for took in past.took
        ],
        "after": past.after or None,
        "outcome": past.outcome or None,
        "because": past.because,
        "note": past.note,
    }
