"""What a user's baseline did in a diagnosis: a short section of the report, remarks beside findings, and its JSON form."""

from __future__ import annotations

from typing import TypedDict

from rlclinic.healthy import Band, Baseline, MovedLimit, Softened
from rlclinic.model import Diagnosis, Finding
from rlclinic.report.blocks import KEY, Block, Bullets, Heading, Note, Paragraph, bounded, count, number, plain

# Ours, chosen by reading reports.
_RUNS = 3
_FEW = 8

# Keys that are Python keywords need the functional notation.
MovedForm = TypedDict(
    "MovedForm", {"check": str, "limit": str, "grade": str | None, "from": float, "to": float, "because": str}
)


class LeftForm(TypedDict):
    """A moved limit that was not used here."""

    limit: str
    says: str


class SoftenedForm(TypedDict):
    """A finding that the limits without the baseline would have made (``before``) and what is left of it; null: nothing."""

    check: str
    before: str | None
    after: str | None
    says: str


class BaselineForm(TypedDict):
    """``unlike`` says why nothing of it was used; ``verdict_without`` is the severity of the verdict by the limits without
    it, null where it is the same; a ``grade`` is null for a limit of a single value."""

    runs: list[str]
    unlike: list[str]
    moved: list[MovedForm]
    left: list[LeftForm]
    softened: list[SoftenedForm]
    verdict_without: str | None
    outside: list[str]
    remarks: list[str]


def to_form(told: Baseline) -> BaselineForm:
    """The baseline as plain JSON data."""
    return {
        "runs": list(told.runs),
        "unlike": list(told.unlike),
        "moved": [
            {
                "check": one.check,
                "limit": one.limit,
                "grade": one.grade or None,
                "from": one.before,
                "to": one.after,
                "because": one.because,
            }
            for one in told.moved
        ],
        "left": [{"limit": limit, "says": says} for limit, says in told.left],
        "softened": [
            {"check": s.check, "before": s.before or None, "after": s.after or None, "says": s.says}
            for s in told.softened
        ],
        "verdict_without": told.before or None,
        "outside": list(told.outside),
        "remarks": list(told.remarks),
    }


def baseline(diagnosis: Diagnosis) -> list[Block]:
    """The section on the baseline; nothing without one."""
    told = diagnosis.baseline
    if told is None:
        return []
    shown = [plain(name, KEY) for name in told.runs[:_RUNS]]
    more = f" and {len(told.runs) - _RUNS} more" if len(told.runs) > _RUNS else ""
    aside = f"learned from {count(len(told.runs), 'run')}: {', '.join(shown)}{more}"
    if told.unlike:
        why = "; ".join(bounded(told.unlike, _FEW))
        return [
            Heading("Your baseline", 2, aside=aside),
            Paragraph(f"Not used, since the recipe is another: {why}. Every limit is as without it."),
        ]
    title = "Limits moved by your baseline" if told.moved else "Your baseline"
    if told.softened:
        title = "Allowed by your baseline"
    blocks: list[Block] = [Heading(title, 2, aside=aside)]
    if told.moved:
        limits = dict.fromkeys((one.check, one.limit) for one in told.moved)
        blocks.append(Bullets(bounded(map(_moved, [_rows(told, *limit) for limit in limits]))))
    else:
        blocks.append(Paragraph("No limit of the checks that could look is moved."))
    if told.softened:
        blocks.append(Bullets(bounded(_softened(told, one) for one in told.softened), label="without it"))
    if told.left:
        blocks.append(Bullets(bounded(f"{limit}: {says}" for limit, says in told.left), label="not used"))
    if told.outside:
        blocks.append(Bullets(bounded(told.outside), label="outside"))
    return [*blocks, *(Note(words, "mind") for words in bounded(told.remarks, _FEW))]


def in_short(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """A line beside the verdict where the baseline changed what is said, or was of no use."""
    told = diagnosis.baseline
    if told is None:
        return []
    if told.unlike:
        return [("baseline", f"not used: {plain(told.unlike[0], 120)}")]
    if not told.softened:
        return []
    checks = ", ".join(plain(one.check, KEY) for one in told.softened[:_RUNS])
    more = f" and {len(told.softened) - _RUNS} more" if len(told.softened) > _RUNS else ""
    verdict = f"; without them the verdict would be {told.before.upper()}" if told.before else ""
    return [("baseline", f"its limits change what is said of {checks}{more}{verdict}")]


def judged_by(diagnosis: Diagnosis, finding: Finding) -> list[tuple[str, str]]:
    """A line for a finding whose check judged by moved limits."""
    moved = () if diagnosis.baseline is None else diagnosis.baseline.of(finding.check)
    if not moved:
        return []
    return [("limits", f"your baseline's: {'; '.join(f'{plain(one.limit, KEY)} {_from_to(one)}' for one in moved)}")]


def band_of(diagnosis: Diagnosis, metric: str) -> Band | None:
    """The band of healthy runs behind the curve of a metric."""
    return None if diagnosis.baseline is None else diagnosis.baseline.bands.get(metric)


def _rows(told: Baseline, check: str, limit: str) -> list[MovedLimit]:
    return [one for one in told.moved if (one.check, one.limit) == (check, limit)]


def _moved(rows: list[MovedLimit]) -> str:
    first = rows[0]
    because = f" ({plain(first.because)})" if first.because else ""
    return f"{plain(first.check, KEY)}.{plain(first.limit, KEY)} {', '.join(map(_from_to, rows))}{because}"


def _from_to(one: MovedLimit) -> str:
    grade = f"{one.grade} " if one.grade else ""
    return f"{grade}{number(one.before)} -> {number(one.after)}"


def _softened(told: Baseline, one: Softened) -> str:
    allowed = ", ".join(
        f"{plain(limit.limit, KEY)} {number(limit.after)}"
        for limit in told.of(one.check)
        if limit.grade in ("", "warning")
    )
    was = f"would be {one.before}" if one.before else "would say nothing"
    now = f"is {one.after}" if one.after else "is not told"
    by = f", since your baseline allows {allowed}" if allowed else ""
    return f"{plain(one.check, KEY)} {was} and {now}{by}: {plain(one.says)}"
