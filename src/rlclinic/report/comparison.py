"""A comparison as blocks: the answer first, then settings, metrics, findings, and what was not compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rlclinic.compare import Against, Comparison, FindingRow, MetricRow, SettingRow
from rlclinic.compare.metrics import LEVEL
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
    """How one run differs from the reference, in a sentence."""
    place = comparison.others.index(one) + 1
    settings = sum(_moved(row, place) for row in comparison.settings)
    compared = [row for row in one.metrics if row.word != "incomparable"]
    different = len(one.of("different"))
    told = any(row.knobs[0] is not None and row.knobs[place] is not None for row in comparison.settings)
    parts = [
        f"{count(settings, 'setting')}" if told else "settings that are not told by both",
        f"{different} of {count(len(compared), 'metric')}",
    ]
    says = f"{plain(one.name, _NAME)} differs from {plain(comparison.names[0], _NAME)} in {' and '.join(parts)}"
    if one.span is None:
        says = f"{plain(one.name, _NAME)} and {plain(comparison.names[0], _NAME)} share no stretch of the axis"
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


def _moved(row: SettingRow, place: int) -> bool:
    """Whether a setting differs between the reference and one further run."""
    a, b = row.knobs[0], row.knobs[place]
    if row.outcome == "same" or a is None or b is None:
        return False
    return row.outcome == "different" and not _alike(a, b)


def _alike(a: Knob, b: Knob) -> bool:
    if isinstance(a.value, (int, float)) and isinstance(b.value, (int, float)):
        return math.isclose(float(a.value), float(b.value), rel_tol=1e-9)
    return a.value == b.value


def _tone(one: Against) -> Tone:
    worse = [f.after for f in one.findings if f.change in ("new", "worse") and f.after is not None]
    gravest = max((f.severity for f in worse if f.severity is not None), default=None)
    if gravest is not None and gravest >= Severity.WARNING:
        return tone(gravest.label)
    return "info" if one.of("different") or one.span is None else "healthy"


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
    aside = f"{where}, which both cover; late: its last quarter; \u00b1: 95 %, noise of both runs alone"
    yield Heading(f"Metrics, {second} against {first}", 2, aside=aside)
    moved = one.of("different")
    if moved:
        head = ("metric", f"{first} late", f"{second} late", "difference", "evidence")
        yield Table(head, tuple(_row(row, by) for row in moved[:_ROWS]))
        if len(moved) > _ROWS:
            yield Paragraph(f"and {len(moved) - _ROWS} more: {', '.join(_title(r.name) for r in moved[_ROWS:])}")
    for row in moved[:_OVERLAYS]:
        yield from _overlay(row, comparison, one)
    lines = []
    seeds = one.of("within_seeds")
    if seeds:
        each = [f"{_title(row.name)} ({_gap(row)})" for row in seeds]
        lines.append(f"beyond noise, but no more than seeds of one recipe differ by: {', '.join(bounded(each))}")
    still = one.of("open")
    if still:
        each = [f"{_title(row.name)} ({plain(row.says, KEY) if row.says else _gap(row)})" for row in still]
        lines.append(f"open, noise hides what may differ: {', '.join(bounded(each))}")
    same = one.of("same")
    if same:
        lines.append(f"{len(same)} the same: {', '.join(bounded(_title(row.name) for row in same))}")
    lines += [f"{_title(row.name)} not compared: {plain(row.says)}" for row in one.of("incomparable")[:_ROWS]]
    for name, absent in zip((first, second), one.only, strict=True):
        if absent:
            lines.append(f"only in {name}: {', '.join(bounded(_title(metric) for metric in absent))}")
    if lines:
        yield Bullets(tuple(lines))
    if one.repeats:
        yield Paragraph(f"The spread between runs is that of {one.repeats} runs that repeat a setting.", tone="dim")
    elif moved or seeds:
        yield Paragraph(_CAUTION, tone="dim")


def _gap(row: MetricRow) -> str:
    """The late difference with the half-width of its interval."""
    one = row.apart
    if one is None:
        return plain(row.says, KEY)
    sign = "+" if one.difference > 0 else ""
    half = (one.high - one.low) / 2.0
    return f"{sign}{number(one.difference)}" + (f" \u00b1 {half:.2g}" if math.isfinite(half) else "")


def _row(row: MetricRow, by: str) -> tuple[str, ...]:
    ends = _late(row)
    if row.apart is None or row.exact:
        since = f", {_at(row, by)}" if row.onset else ""
        return (_title(row.name), *ends, "", f"as logged: {plain(row.says, KEY)}{since}")
    return (_title(row.name), *ends, _gap(row), evidence(row, by))


def evidence(row: MetricRow, by: str) -> str:
    """How sure a difference is, of what kind, and since when, in a few words."""
    one = row.apart
    if one is None or row.q_value is None:
        return WORDS[row.word]
    sure = "strong" if row.q_value <= _STRONG else "moderate"
    if row.q_value > LEVEL and one.clear:
        sure = "no overlap"
    if one.lead is not None:
        return f"{sure}: same course, {'earlier' if one.lead > 1 else 'later'}, {_lead(one.lead)}"
    elsewhere = one.where in ("early", "in between") and abs(one.size - one.difference) > abs(one.difference) / 2.0
    kind = f"{one.where} {'+' if one.size > 0 else ''}{number(one.size)}" if elsewhere else ""
    since = _at(row, by)
    parts = [
        part
        for part in (kind, since if row.from_start else f"since {since.removeprefix('at ')}" if since else "")
        if part
    ]
    return f"{sure}: {', '.join(parts)}" if parts else f"{sure}: {one.where}"


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
        tuple(zip((plain(comparison.names[0], _NAME), plain(one.name, _NAME)), row.columns, strict=True)),
        one.span,
        axis=UNITS[comparison.by],
        mark=mark,
        name=row.name if not row.name.startswith(("part.", "held_out.")) else "",
    )


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
