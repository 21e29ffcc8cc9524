"""What a terminal shows of a run that is being watched, cut to the height and width that the terminal has now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from rlclinic.model import Diagnosis, Finding, Run, Severity
from rlclinic.report.blocks import (
    Block,
    Bullets,
    Curve,
    Heading,
    KeyNumbers,
    Note,
    Paragraph,
    count,
    number,
    plain,
    tone,
)
from rlclinic.report.blocks import step as spelled
from rlclinic.report.document import VITALS, vitals
from rlclinic.report.findings import changes, plainly, root_of, since
from rlclinic.report.terminal import render_terminal

State: TypeAlias = Literal["waiting", "live", "stalled", "ended"]

NARROWEST = 40
"""Cells below which lines are cut rather than wrapped anew."""
LOUD = ("warning", "critical")
_LINE = 160
_CLOSED = 3
_SHORT = 5
"""Findings of which the shortest form of the page speaks (ours)."""
_CURVES = (len(VITALS), 6, 4, 2, 0)


@dataclass(frozen=True, eq=False)
class Watched:
    """What is known of a run under watch, besides its diagnosis."""

    diagnosis: Diagnosis | None
    told: Mapping[str, Severity] = field(default_factory=dict)
    """Findings that were told and not closed."""
    closed: Sequence[str] = ()
    """What was closed, oldest first, in words."""
    said: Sequence[str] = ()
    """What happened to the log, oldest first."""
    problem: str = ""
    """Why it cannot be read at this moment."""
    state: State = "waiting"
    waiting_for: str = ""
    """What is not there yet."""
    reading: str = ""
    """What is being read for the first time."""
    rows: int = 0
    speed: float | None = None
    """Steps a minute."""
    remaining: float | None = None
    """Seconds to the last planned step."""
    age: float | None = None
    """Seconds since the newest row."""
    ended: str = ""
    ends_with: str = "Ctrl-C ends with the whole report"


def live_page(watched: Watched, width: int, height: int, color: bool = False, ascii: bool = False) -> str:
    """The page, of at most ``height`` lines of at most ``width`` cells, ending with a newline.

    Where not all fits, what was told goes before curves, curves before what was closed; words of a log stay words.
    """

    def draw(blocks: Sequence[Block]) -> list[str]:
        return _lines(blocks, max(width, NARROWEST), color, ascii)

    sections = [
        [draw(_head(watched))],
        [draw(blocks) for blocks in _remarks(watched)],
        [draw(blocks) for blocks in _findings(watched)],
        [draw(blocks) for blocks in _vitals(watched)],
        [draw(blocks) for blocks in _closed(watched)],
        [draw([Paragraph(watched.ends_with, tone="dim")]), []],
    ]
    chosen = [len(one) - 1 for one in sections]
    left = height - sum(len(one[-1]) for one in sections)
    # The longest form that fits, but none better than ``best``: first what was told in short, then some curves, then more.
    for section, best in ((1, 0), (2, 2), (3, 2), (4, 1), (2, 0), (3, 0), (4, 0), (5, 0)):
        forms = sections[section]
        for k in range(min(best, len(forms) - 1), chosen[section]):
            more = len(forms[k]) - len(forms[chosen[section]])
            if more <= left:
                left, chosen[section] = left - more, k
                break
    lines = [line for forms, k in zip(sections, chosen, strict=True) for line in forms[k]]
    return "\n".join(lines[:height]) + "\n"


def _lines(blocks: Sequence[Block], width: int, color: bool, ascii: bool) -> list[str]:
    return [line for line in render_terminal(blocks, width, color, ascii).splitlines() if line.strip()]


def _head(watched: Watched) -> list[Block]:
    diagnosis = watched.diagnosis
    if diagnosis is None or not watched.rows:
        said = (
            f"waiting for {plain(watched.waiting_for, _LINE)}" if watched.waiting_for else "waiting for the first row"
        )
        said = f"reading {plain(watched.reading, _LINE)}" if watched.reading and not watched.waiting_for else said
        return [Heading("watching", 1, label="rlclinic"), Paragraph(said)]
    run, now = diagnosis.run, []
    planned = run.planned_steps
    last = f"step {spelled(run.steps[-1])}"
    share = f" of {planned} ({run.steps[-1] / planned:.0%})" if planned and run.steps[-1] <= planned else ""
    now.append(f"{last}{share}")
    if watched.ended:
        now.append("ended")
    else:
        if watched.speed is not None:
            left = f", {stretch(watched.remaining)} left" if watched.remaining is not None else ""
            now.append(f"{number(watched.speed)} steps/min{left}")
        if watched.age is not None:
            now.append(f"last row {stretch(watched.age)} ago")
    state = {"live": "", "waiting": "", "stalled": "NO NEW ROWS", "ended": ""}[watched.state]
    line = " | ".join(now)
    heading = Heading(plain(run.name, 60), 1, label="rlclinic", aside=_trainer(run))
    blocks: list[Block] = [heading, Paragraph(line, tone="plain")]
    blocks += [Paragraph(f"{state}: the run has stopped without a word, or hangs", tone="warning")] if state else []
    return blocks + ([Paragraph(plain(watched.ended, _LINE), tone="info")] if watched.ended else [])


def _trainer(run: Run) -> str:
    return plain(run.framework.title, 24) if run.framework is not None else "trainer not recognised"


def _remarks(watched: Watched) -> list[list[Block]]:
    """The present trouble with the log, and what happened to it; the shortest form has the trouble only."""
    now: list[Block] = []
    if watched.problem and watched.rows:
        now.append(Paragraph(f"cannot be read now: {plain(watched.problem, _LINE)}", tone="warning"))
    past: list[Block] = [Paragraph(plain(one, _LINE), tone="dim") for one in list(watched.said)[-2:]]
    return [now + past, now]


def _findings(watched: Watched) -> list[list[Block]]:
    """What was found: with the way back; without it; the first one with its words and the others in a line each; all of
    them in a line each; and these alone."""
    diagnosis = watched.diagnosis
    if diagnosis is None or not watched.rows:
        return [[]]
    loud = [f for f in diagnosis.findings if (f.severity or 0) >= Severity.WARNING]
    told = [f for f in loud if f.check in watched.told]
    waiting = [plain(f.check, 40) for f in loud if f.check not in watched.told]
    unseen = [plain(name, 40) for name in watched.told if name not in {f.check for f in told} and name != "no_new_rows"]
    after: list[Block] = []
    if waiting:
        after.append(Paragraph(f"seen, not told before more rows show it: {_named(waiting)}", tone="dim"))
    if unseen:
        after.append(Paragraph(f"told, not seen at this look: {_named(unseen)}", tone="dim"))
    if not told:
        quiet = "nothing told so far"
        says = [Paragraph(quiet if waiting else f"{quiet}: {plain(diagnosis.verdict.says, 240)}")]
        few: list[Block] = [Paragraph(quiet)]
        return [[Heading("Findings", 2), *says, *after], [*few, *after[:1]], few]
    aside = count(len(told), "finding") + (f", {len(waiting)} seen and not told yet" if waiting else "")
    heading = Heading("Findings", 2, aside=aside)
    shown = frozenset(f.check for f in told)
    whole = [block for f in told for block in _finding(diagnosis, f, True, shown)]
    words = [block for f in told for block in _finding(diagnosis, f, False, shown)]
    first = [*_finding(diagnosis, told[0], False, shown), *_in_short(told[1:])]
    return [[heading, *form, *after] for form in (whole, words, first)] + [
        [*_in_short(told), *after[:1]],
        _in_short(told),
    ]


def _in_short(told: Sequence[Finding]) -> list[Block]:
    """One line each: how grave, the name of the check, since when."""
    lines: list[Block] = []
    for finding in told[:_SHORT]:
        severity = (finding.severity or Severity.INFO).label
        since = "" if finding.onset is None else f" @{finding.onset.step:.0f}"
        lines.append(Paragraph(f"{severity}: {plain(finding.check, 40)}{since}", tone=tone(severity)))
    more = len(told) - _SHORT
    return [*lines, *([Paragraph(f"and {count(more, 'more finding')}", tone="dim")] if more > 0 else [])]


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _since(run: Run, finding: Finding) -> str:
    return "" if finding.onset is None else f", since {since(run, finding.onset)}"


def _finding(diagnosis: Diagnosis, finding: Finding, whole: bool, shown: frozenset[str]) -> list[Block]:
    """One finding in words. What follows from something else is mended with it: the change is that of its root, told where
    the root is not ``shown`` itself."""
    run, root = diagnosis.run, root_of(finding, diagnosis)
    severity = (finding.severity or Severity.INFO).label
    title = plain(finding.title, 120).rstrip(".")
    blocks: list[Block] = [
        Heading(title, 3, label=severity.upper(), tone=tone(severity)),
        Paragraph(f"{plain(finding.says, 300)}{_since(run, finding)}"),
    ]
    pairs = [] if root is None else [("behind it", f"{plain(plainly(root), 100)} ({plain(root.check, 40)})")]
    mended = finding if root is None else root
    repeated = root is not None and root.check in shown
    for remedy in [] if repeated else changes(mended)[:1]:
        writes = " ".join(plain(change.writes, 80) for change in remedy.changes if change.writes)
        pairs.append(("change", writes or plain(remedy.says, 160)))
    if whole and not repeated and mended.rollback is not None:
        pairs.append(("go on", plain(mended.rollback.says.removeprefix("go on "), 160)))
    if finding.forecast is not None:
        pairs.append(("forecast", plain(finding.forecast.says, 200)))
    return [*blocks, *([KeyNumbers(tuple(pairs))] if pairs else [])]


def _vitals(watched: Watched) -> list[list[Block]]:
    """The vital curves, most of them first."""
    if watched.diagnosis is None or not watched.rows:
        return [[]]
    curves = [block for block in vitals(watched.diagnosis) if isinstance(block, Curve)]
    # A flag names a finding by its number, which this page does not show; the colour and a star tell the same.
    flagged = [c for c in curves if c.flag and c.tone in LOUD]
    shown = {k: [c for c in curves if c in flagged or c in curves[:k]][:k] for k in _CURVES}
    head: Block = Heading("Vitals", 2, aside="* a finding speaks of it" if flagged else "")
    forms: list[list[Block]] = [[head, *map(_starred, shown[k])] if shown[k] else [] for k in _CURVES]
    return forms


def _starred(curve: Curve) -> Curve:
    remarks = curve.remarks if not curve.first or not curve.last else ()
    return replace(curve, flag="*" if curve.flag and curve.tone in LOUD else "", remarks=remarks)


def _closed(watched: Watched) -> list[list[Block]]:
    lately = [plain(one, _LINE) for one in list(watched.closed)[-_CLOSED:]]
    if not lately:
        return [[]]
    return [[Heading("Lately closed", 2), Bullets(tuple(lately))], [Note(lately[-1], label="closed")], []]


def stretch(seconds: float | None) -> str:
    """A stretch of time in the two units that matter."""
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if hours < 10 else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"
