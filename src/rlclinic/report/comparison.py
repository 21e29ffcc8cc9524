"""A comparison as blocks: the answer first, then settings, metrics, findings, and what was not compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rlclinic.compare import Against, Comparison, FindingRow, MetricRow, SettingRow, Word
from rlclinic.compare.metrics import LEVEL
from rlclinic.compare.settings import differs
from rlclinic.model import Column, Diagnosis, Finding, Knob, Onset, Severity
from rlclinic.report.blocks import (
    KEY,
    Block,
    Bullets,
    Heading,
    KeyNumbers,
    Overlay,
    Paragraph,
    Table,
    Tone,
    bounded,
    count,
    number,
    plain,
    step,
    tone,
)
from rlclinic.report.series import title_of

# Ours, chosen by reading comparisons.
_ROWS = 16
_OVERLAYS = 6
_NAME = 24
_VALUE = 40
_STRONG = 0.01
"""q-value up to which a difference is called strong, as for findings."""

UNITS = {"step": "step", "token": "tokens", "time": "seconds"}
WORDS = {
    "different": "different",
    "within_seeds": "as seeds differ",
    "same": "same",
    "open": "open",
    "incomparable": "not compared",
}
CHANGES = {
    "gone": "gone",
    "new": "new",
    "same": "same",
    "worse": "worse",
    "better": "better",
    "unseen": "seen in one only",
}
_CAUTION = (
    "Different: by more than the noise of both runs and than two seeds of one recipe are allowed to differ by. It is said of"
    " these runs; that a setting did it is shown by repeats of both (three runs of one setting give their real spread)."
)


def title(comparison: Comparison) -> str:
    """What stands in the tab of a browser."""
    runs = [plain(one.run.name, KEY) for one in comparison.diagnoses]
    return plain(f"{runs[0]} against {', '.join(runs[1:])}", 120)


def page(comparison: Comparison) -> list[Block]:
    """The whole comparison, answer first."""
    blocks: list[Block] = [
        Paragraph(answer(comparison, one), label=plain(one.name, _NAME), tone=_tone(one)) for one in comparison.others
    ]
    blocks.append(Heading(title(comparison), 1, label="rlclinic"))
    names = comparison.names
    blocks.append(
        KeyNumbers(
            tuple((plain(name, _NAME), _run(one)) for name, one in zip(names, comparison.diagnoses, strict=True))
        )
    )
    warnings = [plain(text) for one in comparison.others for text in one.warnings]
    if warnings:
        blocks += [Heading("What to mind", 2), Bullets(bounded(dict.fromkeys(warnings)))]
    blocks += _settings(comparison)
    for one in comparison.others:
        blocks += _metrics(comparison, one)
    blocks += _findings(comparison)
    return blocks


def answer(comparison: Comparison, one: Against) -> str:
    """Which run is better and by what, the root findings of both, and how they differ."""
    if one.span is None:
        return f"{_differences(comparison, one)} {_roots(comparison, one)}."
    return f"{verdict(comparison, one)}. {_roots(comparison, one)}. {_differences(comparison, one)}"


def verdict(comparison: Comparison, one: Against) -> str:
    """Which of the two runs is better and by what, or why that cannot be told."""
    first, second = plain(comparison.names[0], _NAME), plain(one.name, _NAME)
    which, row = one.better, one.better.row
    rows = one.better.looked if which.run == "unknown" or row is None else (row,)
    ends = [
        f"late {_short(each)} {before} in {first}, {after} in {second}{gap}"
        for each in rows
        if each.word != "incomparable"
        for before, after, gap in [(*_late(each), "" if each.half is None else f" ({_gap(each)})")]
    ]
    by = "; ".join(ends) + (_until(comparison, one) if ends else "")
    if which.run == "unknown":
        about = f"{_short(row)}: " if row is not None and row.word in ("open", "incomparable") else ""
        why = f"Cannot tell which is better ({about}{plain(which.because)})"
        return f"{why}: {by}" if by else why
    if which.run == "neither":
        return f"Neither is better: the same {by}"
    return f"{second} is {'better' if which.run == 'second' else 'worse'} than {first}: {by}"


def _short(row: MetricRow) -> str:
    return "held-out score" if row.name.startswith("held_out.") else _title(row.name)


def _until(comparison: Comparison, one: Against) -> str:
    """Where the common stretch ends, when one of the runs goes on for long."""
    ends = [each.run.last_attempt.steps[-1] for each in (comparison.reference, one.diagnosis) if len(each.run.steps)]
    if comparison.by != "step" or one.span is None or not ends or max(ends) <= one.span[1] + 0.1 * abs(one.span[1]):
        return ""
    return f", up to step {_axis(one.span[1], comparison.by)}, which both reach"


def _roots(comparison: Comparison, one: Against) -> str:
    """What stands behind the other findings of each run, at warning or worse; a check in preview is called one."""
    said = []
    for name, each in ((comparison.names[0], comparison.reference), (one.name, one.diagnosis)):
        roots = [
            f"{plain(f.check, KEY)} ({f.severity.label}{', preview' * (f.status == 'preview')})"
            for f in each.findings
            if f.severity is not None and f.severity >= Severity.WARNING and not f.because_of
        ]
        none = "verdict undecided" if each.verdict.severity == "undecided" else "none"
        said.append(f"{plain(name, _NAME)} {', '.join(bounded(roots, 3)) if roots else none}")
    return f"Root findings: {'; '.join(said)}"


def _differences(comparison: Comparison, one: Against) -> str:
    """How one run differs from the reference, in a sentence."""
    place = comparison.others.index(one) + 1
    pair = comparison.reference.run, one.diagnosis.run
    settings = sum(differs(row, *pair, place) for row in comparison.settings)
    compared = [row for row in one.metrics if row.word != "incomparable"]
    different = len(one.of("different"))
    still = f" ({len(one.of('open'))} open)" if compared and _mostly_open(one) else ""
    told = any(row.knobs[0] is not None and row.knobs[place] is not None for row in comparison.settings)
    parts = [
        f"{count(settings, 'setting')}" if told else "settings that are not told by both",
        f"{different} of {count(len(compared), 'metric')}{still}",
    ]
    says = f"{plain(one.name, _NAME)} differs from {plain(comparison.names[0], _NAME)} in {' and '.join(parts)}"
    if one.span is None:
        says = f"{plain(one.name, _NAME)} and {plain(comparison.names[0], _NAME)} share no stretch of the axis"
        says += f"; they differ in {parts[0]}" if told else ""
    if one.identical is not None:
        says += f"; the very same numbers up to step {step(one.identical)}"
    if one.parted is not None and one.parted.onset is not None:
        says += f"; first apart {_at(one.parted, comparison.by)}: {_title(one.parted.name)}"
    elif different and one.span is not None:
        says += "; where they part cannot be told"
    tally = {word: sum(row.change == word for row in one.findings) for word in CHANGES}
    moved = [
        f"{tally[word]} {'seen in one run only' if word == 'unseen' else word}"
        for word in ("gone", "new", "worse", "better", "unseen")
        if tally[word]
    ]
    kept = f"{count(tally['same'], 'finding')} the same" if tally["same"] and not moved else ""
    says += f"; findings: {', '.join(moved)}" if moved else f"; {kept}" if kept else "; no finding in either"
    return says + "."


def _tone(one: Against) -> Tone:
    """That of the gravest finding that the reference was not seen to have; calm only where nothing is left open."""
    there = [(f.change, f.after.severity) for f in one.findings if f.after is not None and f.after.severity is not None]
    gravest = max((grade for change, grade in there if change in ("new", "worse", "unseen")), default=Severity.INFO)
    if gravest >= Severity.WARNING:
        return tone(gravest.label)
    if one.diagnosis.verdict.severity == "undecided":
        return "undecided"
    ill = any(grade >= Severity.WARNING for _, grade in there)
    lost = any(f.change == "unseen" for f in one.findings)
    return "info" if ill or lost or one.of("different") or one.span is None or _mostly_open(one) else "healthy"


def _mostly_open(one: Against) -> bool:
    compared = [row for row in one.metrics if row.word != "incomparable"]
    return 2 * len(one.of("open")) >= len(compared)


def _run(one: Diagnosis) -> str:
    run = one.run
    framework = None if run.framework is None else f"{run.framework.title} {run.framework.version or ''}".strip()
    extent = "no step" if not len(run.steps) else f"steps {step(run.steps[0])} to {step(run.steps[-1])}"
    parts = [run.name, framework or "trainer not recognised", extent, one.verdict.severity]
    if one.verdict.primary:
        parts[-1] += f" ({one.verdict.primary})"
    return "; ".join(plain(part, KEY) for part in parts)


def _axis(value: float, by: str, up: int = 0) -> str:
    """A place on the axis; steps are whole, rounded outwards."""
    if by != "step":
        return number(value)
    return step(math.ceil(value) if up > 0 else math.floor(value) if up < 0 else round(value))


def _at(row: MetricRow, by: str) -> str:
    onset = row.onset
    if onset is None:
        return ""
    low, high = _axis(onset.low, by, -1), _axis(onset.high, by, 1)
    at = _axis(onset.step, by)
    between = "" if low == high else f" ({low} to {high})"
    if row.from_start:
        return f"from the start{between if by == 'step' else ''}"
    unit = {"step": "at step ", "token": "at ", "time": "at "}[by]
    after = {"step": "", "token": " tokens", "time": " s"}[by]
    return f"{unit}{at}{after}{between}"


# ----------------------------------------------------------------------------------------------------- settings


def _settings(comparison: Comparison) -> list[Block]:
    rows = comparison.settings
    blocks: list[Block] = [Heading("Settings", 2)]
    if not rows:
        return [*blocks, Paragraph("no run tells its settings", tone="dim")]
    differ = [row for row in rows if row.outcome in ("different", "other_meaning")]
    if differ:
        head = ("setting", *(plain(name, _NAME) for name in comparison.names))
        table = [(plain(row.title, 32), *(_value(knob) for knob in row.knobs)) for row in differ[:_ROWS]]
        blocks.append(Table(head, tuple(table)))
    more = len(differ) - _ROWS
    lines = [f"and {more} more that differ"] if more > 0 else []
    lines += [f"{plain(row.title)}: {plain(row.says)}" for row in differ if row.says]
    keys = [
        f"{plain(row.title)}: {', '.join(plain(k, KEY) for k in written)}"
        for row in differ
        if len(written := dict.fromkeys(knob.key for knob in row.knobs if knob is not None)) > 1
    ]
    lines += keys
    one_sided = [row for row in rows if row.outcome == "one_sided"]
    if one_sided:
        known = [_known(row, comparison.names) for row in one_sided]
        lines.append(f"told by some runs only: {'; '.join(bounded(known))}")
    same = [row for row in rows if row.outcome == "same"]
    if same:
        lines.append(f"{len(same)} the same: {', '.join(bounded(row.title for row in same))}")
    elif not differ:
        lines.append("no setting is told by all runs, so none can be compared")
    return [*blocks, *([Bullets(tuple(lines))] if lines else [])]


def _value(knob: Knob | None) -> str:
    if knob is None:
        return "not told"
    value = knob.value
    told = number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return plain(told, _VALUE) + (" (default)" if knob.origin == "default" else "")


def _known(row: SettingRow, names: Sequence[str]) -> str:
    told = [
        f"{_value(knob)} in {plain(name, _NAME)}"
        for name, knob in zip(names, row.knobs, strict=True)
        if knob is not None
    ]
    return f"{plain(row.title, 32)} {', '.join(told)}"


# ------------------------------------------------------------------------------------------------------ metrics


def _title(name: str) -> str:
    for prefix, words in (("part.", "reward part "), ("held_out.", "held out: ")):
        if name.startswith(prefix):
            return words + plain(name[len(prefix) :], 48)
    return title_of(name)


def _metrics(comparison: Comparison, one: Against) -> Iterator[Block]:
    by = comparison.by
    first, second = plain(comparison.names[0], _NAME), plain(one.name, _NAME)
    if one.span is None:
        return
    low, high = _axis(one.span[0], by), _axis(one.span[1], by)
    where = f"steps {low} to {high}" if by == "step" else f"{low} to {high} {UNITS[by]}"
    aside = (
        f"{where}, which both cover; late: its last quarter (of few values the last half); \u00b1: noise and what seeds may"
        " differ by, 95 % over all metrics (of the same: noise alone)"
    )
    yield Heading(f"Metrics, {second} against {first}", 2, aside=aside)
    leading = [row.name for row in one.better.looked]
    moved = one.of("different")
    table = [*one.better.looked, *(row for row in moved if row.name not in leading)]
    if table:
        head = ("metric", f"{first} late", f"{second} late", "difference", "evidence")
        rows = [
            (_short(row) if row.name in leading else cells[0], *cells[1:])
            for row in table[:_ROWS]
            for cells in [_row(row, by)]
        ]
        yield Table(head, tuple(rows))
        if len(table) > _ROWS:
            yield Paragraph(f"and {len(table) - _ROWS} more: {', '.join(_title(r.name) for r in table[_ROWS:])}")
    for row in [row for row in table if row.word != "incomparable"][:_OVERLAYS]:
        yield from _overlay(row, comparison, one)
    lines = []
    seeds = one.of("within_seeds")
    if rest := _besides(one, "within_seeds"):
        each = [f"{_title(row.name)} ({_gap(row)})" for row in rest]
        lines.append(f"beyond noise, but no more than seeds of one recipe differ by: {', '.join(bounded(each))}")
    hidden = [f"{_title(row.name)} ({_gap(row)}{_tiny(row)})" for row in _besides(one, "open") if not row.says]
    if hidden:
        lines.append(f"open, noise hides what may differ: {', '.join(bounded(hidden))}")
    told = [f"{_title(row.name)} ({plain(row.says, KEY)})" for row in _besides(one, "open") if row.says]
    if told:
        lines.append(f"open: {', '.join(bounded(told))}")
    if rest := _besides(one, "same"):
        lines.append(f"{len(rest)} the same: {', '.join(bounded(_title(row.name) for row in rest))}")
    whys: dict[str, list[str]] = {}
    for row in one.of("incomparable"):
        whys.setdefault(plain(row.says), []).append(_title(row.name))
    lines += [f"not compared, {why}: {', '.join(bounded(titles))}" for why, titles in list(whys.items())[:_ROWS]]
    for name, absent in zip((first, second), one.only, strict=True):
        if absent:
            lines.append(f"only in {name}: {', '.join(bounded(_title(metric) for metric in absent))}")
    if lines:
        yield Bullets(tuple(lines))
    if one.repeats:
        yield Paragraph(f"The spread between runs is that of {one.repeats} runs that repeat a setting.", tone="dim")
    elif moved or seeds:
        yield Paragraph(_CAUTION, tone="dim")


def _besides(one: Against, word: Word) -> list[MetricRow]:
    """The metrics of which ``word`` is said and that the table does not hold already."""
    leading = [row.name for row in one.better.looked]
    return [row for row in one.of(word) if row.name not in leading]


def _gap(row: MetricRow, placed: bool = True) -> str:
    """The difference that the word speaks of, half of its interval, and where it is when not late."""
    if row.shown is None or not math.isfinite(row.shown):
        return plain(row.says, KEY) or "no value to compare late"
    half = "" if row.half is None or not math.isfinite(row.half) else f" \u00b1 {row.half:.2g}"
    place = {"late": "", "": " on average"}.get(row.place, f" {row.place}")
    return f"{'+' if row.shown > 0 else ''}{number(row.shown)}{half}{place if placed else ''}"


def _tiny(row: MetricRow) -> str:
    return ", sure but too small to matter" if not row.says and row.q_value is not None and row.q_value <= LEVEL else ""


def _row(row: MetricRow, by: str) -> tuple[str, ...]:
    ends = _late(row)
    if row.word == "incomparable":
        return (_title(row.name), *ends, "", WORDS[row.word])
    if row.word == "different" and (row.apart is None or row.exact):
        since = f", {_at(row, by)}" if row.onset else ""
        return (_title(row.name), *ends, "", f"as logged: {plain(row.says, KEY)}{since}")
    return (_title(row.name), *ends, "" if row.shown is None else _gap(row, False), evidence(row, by))


def evidence(row: MetricRow, by: str) -> str:
    """How sure a difference is, of what kind, and since when, in a few words."""
    one = row.apart
    if row.word != "different" or one is None or row.q_value is None:
        return WORDS[row.word] + (f": {plain(row.says, KEY)}" if row.says else _tiny(row))
    sure = "strong" if row.q_value <= _STRONG else "moderate"
    if row.q_value > LEVEL and one.clear:
        sure = "no overlap"
    if one.lead is not None:
        return f"{sure}: same course, {'earlier' if one.lead > 1 else 'later'}, {_lead(one.lead)}"
    since = "" if row.onset is None else _at(row, by)
    if row.place in ("early", "in between"):
        return f"{sure} {row.place}: {f'{since}, ' if since else ''}not surely at the end"
    sure += " on average" if not row.place else ""
    if row.from_start:
        return f"{sure}: {'throughout' if one.everywhere else since}"
    if since:
        place, _, between = since.removeprefix("at ").partition(" (")
        return f"{sure}: from {place} on" + (f" ({between}" if between else "")
    return f"{sure}: late" if row.place == "late" else sure


def _lead(lead: float) -> str:
    """How much sooner or later the second run gets to the same place."""
    return f"after {100.0 / lead:.0f} % of the time"


def _late(row: MetricRow) -> tuple[str, str]:
    if row.apart is not None:
        return tuple("-" if math.isnan(v) else number(v) for v in row.apart.late)  # type: ignore[return-value]
    return _tail(row.columns[0]), _tail(row.columns[1])


def _tail(column: Column) -> str:
    finite = column.finite.values
    return number(float(np.median(finite[-max(1, len(finite) // 4) :] * 0.5)) * 2.0) if len(finite) else "NaN"


def _overlay(row: MetricRow, comparison: Comparison, one: Against) -> Iterator[Block]:
    if one.span is None or any(len(column.finite) < 3 for column in row.columns):
        return
    mark = row.onset
    if mark is not None and comparison.by == "step":
        mark = Onset(round(mark.step), math.floor(mark.low), math.ceil(mark.high))
    yield Overlay(
        _title(row.name),
        tuple(zip(_legend(comparison, one), row.columns, strict=True)),
        one.span,
        axis=UNITS[comparison.by],
        mark=mark,
        name=row.name if not row.name.startswith(("part.", "held_out.")) else "",
    )


def _legend(comparison: Comparison, one: Against) -> tuple[str, str]:
    """What the lines of a chart are called: the runs' own names beside those of the comparison, where they differ."""
    names = (comparison.names[0], one.name)
    own = (comparison.reference.run.name, one.diagnosis.run.name)
    told = [name if run == name or own[0] == own[1] else f"{name} {run}" for name, run in zip(names, own, strict=True)]
    return plain(told[0], _NAME), plain(told[1], _NAME)


# ----------------------------------------------------------------------------------------------------- findings


def _findings(comparison: Comparison) -> Iterator[Block]:
    yield Heading("Findings", 2)
    quiet = []
    for one in comparison.others:
        if not one.findings:
            quiet.append(plain(one.name, _NAME))
            continue
        head = (
            "check",
            f"in {plain(one.name, _NAME)}",
            plain(comparison.names[0], _NAME),
            plain(one.name, _NAME),
        )
        yield Table(head, tuple(_finding(row) for row in one.findings))
        blind = [f"{plain(row.check, KEY)}: {plain(row.says)}" for row in one.findings if row.says]
        if blind:
            yield Bullets(bounded(blind), label="not seen")
    if quiet:
        yield Paragraph(f"none in {plain(comparison.names[0], _NAME)} nor in {', '.join(quiet)}", tone="dim")


def _finding(row: FindingRow) -> tuple[str, ...]:
    absent = ("could not look" if row.change == "unseen" else "not found", "not found")
    before = _seen(row.before) if row.before is not None else absent[0]
    after = _seen(row.after) if row.after is not None else absent[0]
    return (plain(row.check, KEY), CHANGES[row.change], before, after)


def _seen(finding: Finding) -> str:
    grade = "note" if finding.severity is None else finding.severity.label
    return grade if finding.onset is None else f"{grade} since {step(round(finding.onset.step))}"
