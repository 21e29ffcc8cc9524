"""What a report says and in which order: a Diagnosis as a short list of blocks that every format can draw."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from rlclinic import names
from rlclinic.errors import UnknownName
from rlclinic.model import Change as Setting
from rlclinic.model import Column, Diagnosis, Evidence, Examination, Framework, Onset, Prescription, Run, Scalar

Tone: TypeAlias = Literal["plain", "dim", "healthy", "info", "warning", "critical", "undecided"]


@dataclass(frozen=True)
class Heading:
    """Level 1: the report, 2: a section, 3: a finding. ``label`` goes before the text, ``aside`` after it."""

    text: str
    level: Literal[1, 2, 3]
    label: str = ""
    aside: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True)
class Paragraph:
    """Running text; with a ``label`` it is the verdict."""

    text: str
    label: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True)
class KeyNumbers:
    """Label and value, one pair a line."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first column holds names."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric over the run: its ends, its range, its course. Neighbouring curves are drawn as one aligned list.

    With an empty ``first`` there is nothing to draw and the first remark says why.

    ``flag`` names the findings that speak of it; ``mark`` is drawn below a ``large`` curve.
    """

    title: str
    column: Column
    span: tuple[float, float]
    first: str
    last: str
    low: str
    high: str
    flag: str = ""
    remarks: tuple[str, ...] = ()
    mark: Onset | None = None
    large: bool = False
    tone: Tone = "plain"


@dataclass(frozen=True)
class Change:
    """One remedy: numbered, its settings as (key, before, after, what to write), and what goes with it.

    Where the new value depends on a present one that is not known, before and after are empty.
    """

    number: int
    says: str
    settings: tuple[tuple[str, str, str, str], ...]
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Note:
    """Something that reassures, or with the ``label`` ``mind`` a trap in the meaning of a key."""

    text: str
    label: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list; ``label`` stands before it."""

    items: tuple[str, ...]
    label: str = ""


Block: TypeAlias = Heading | Paragraph | KeyNumbers | Table | Curve | Change | Note | Bullets

VITALS: tuple[tuple[str, ...], ...] = (
    ("reward.mean", "reward.success_rate"),
    ("eval.score",),
    ("entropy.mean", "entropy.sampled", "entropy.seq_sum"),
    ("group.zero_var_frac",),
    ("kl.ref", "kl.ref_seq_sum"),
    ("length.response.mean", "length.total.mean"),
    ("length.truncated_frac",),
    ("clip.frac", "clip.high_frac"),
    ("grad.norm",),
)
"""The metrics shown at a glance; of each line the first that the log has, its absence under the first name."""

_TIERS = {"certain": "sure", "likely": "likely", "hint": "hint"}
_HOW = {"keys": "by its log keys", "config": "from its settings", "log": "as the log says", "given": "as given"}

_CONSISTENT = "consistent in time and mechanism"

# Ours, chosen by reading reports: longer lists are cut and say how many entries are left out.
_LIST = 12
_TEXT = 400
_KEY = 72


def document(diagnosis: Diagnosis) -> list[Block]:
    """The report as blocks, answer first. Every string is clean: one line, no control characters, bounded length."""
    quiet = diagnosis.verdict.severity == "healthy" and not diagnosis.findings
    blocks: list[Block] = [*_head(diagnosis.run), *_verdict(diagnosis), *_vitals(diagnosis)]
    if diagnosis.findings:
        blocks.append(Heading("Findings", 2))
        for number in range(1, len(diagnosis.findings) + 1):
            blocks += _finding(diagnosis, number)
    if diagnosis.notes:
        blocks.append(Heading("Normal here", 2))
        blocks += [Note(plain(note.says)) for note in diagnosis.notes]
    if diagnosis.to_log and not quiet:
        blocks.append(Heading("What to log", 2, aside="so that more can be judged next time"))
        blocks.append(Bullets(_bounded(diagnosis.to_log)))
    blocks += _checks_in_short(diagnosis) if quiet else _checks(diagnosis)
    return blocks + _about_the_log(diagnosis.run)


# ---------------------------------------------------------------------------------------------------- words

_ESCAPES = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*|\x9b[0-9;:?]*[@-~]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def plain(text: object, most: int = _TEXT) -> str:
    """``text`` as one clean line: terminal codes, control, bidirectional and zero-width characters removed.

    Longer than ``most`` characters, the middle is left out, so that both ends of a key stay readable.
    """
    line = str(text)
    if len(line) > 4 * most:
        line = line[: 2 * most] + "..." + line[-2 * most :]
    if not (line.isascii() and line.isprintable()):
        line = _ESCAPES.sub("", line)
        line = "".join(" " if c in "\t\n\r\v\f\u2028\u2029" else c for c in line)
        line = "".join(c for c in line if unicodedata.category(c) not in _UNSEEN)
    line = " ".join(line.split())
    if len(line) <= most:
        return line
    head = (most - 3) * 2 // 3
    return line[:head] + "..." + line[len(line) - (most - 3 - head) :]


def number(value: float) -> str:
    """A number as people read it: three figures, whole numbers from 1,000 on, never more digits than it has."""
    value = float(value)
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else ("infinity" if value > 0 else "-infinity")
    size = abs(value)
    if value == int(value) and size < 1e6:
        return f"{int(value)}"
    if size >= 1e6 or size < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.0f}" if size >= 1000 else f"{value:.3g}"


def _step(value: float) -> str:
    return f"{value:.10g}"


def _since(onset: Onset) -> str:
    interval = "" if onset.low == onset.high else f" (between {_step(onset.low)} and {_step(onset.high)})"
    return f"step {_step(onset.step)}{interval}"


def _title(metric: str) -> str:
    """The plain name of a metric; a reward part, a log key or a setting is its own name."""
    try:
        return names.metric(metric).title
    except UnknownName:
        return plain(metric, _KEY)


def _setting(value: Scalar) -> str:
    return "(not known)" if value is None else plain(value, _KEY)


def _count(many: int, one: str) -> str:
    return f"{many} {one}" if many == 1 else f"{many} {one}s"


def _bounded(items: Iterable[object], most: int = _LIST) -> tuple[str, ...]:
    every = list(items)
    shown = [plain(item) for item in every[:most]]
    return (*shown, *([f"and {len(every) - most} more"] if len(every) > most else []))


# --------------------------------------------------------------------------------------------- head, verdict


def _framework(framework: Framework) -> str:
    bounds = [
        f"{word} {plain(bound, 24)}"
        for word, bound in (("from", framework.at_least), ("before", framework.below))
        if bound is not None
    ]
    version = plain(framework.version, 24) if framework.version is not None else " ".join(bounds)
    return f"{plain(framework.title, 40)} {version or '(version not known)'}, {_HOW[framework.how]}"


def _extent(run: Run) -> str:
    first, last = _step(run.steps[0]), _step(run.steps[-1])
    planned = "" if run.planned_steps is None else f", {run.planned_steps} planned"
    return f"step {first}{planned}" if first == last else f"steps {first} to {last} ({len(run.steps)} logged{planned})"


def _head(run: Run) -> list[Block]:
    trainer = [_framework(run.framework)] if run.framework is not None else ["trainer not recognised"]
    trainer += [plain(run.algorithm, 40)] if run.algorithm else []
    size = [_extent(run)] if len(run.steps) else ["no training step"]
    size.append(_count(len(run.columns), "metric"))
    size += [_count(len(run.components), "reward part")] if run.components else []
    facts = {key: plain(value, 60) for key, value in run.facts.items()}
    model = facts.pop("model", None) or (plain(run.knob("model"), 60) if run.knob("model") is not None else None)
    group = run.number("group_size")
    setup = [model] if model else []
    setup += [f"group size {number(group)}"] if group is not None else []
    setup += [f"{plain(key, 24).replace('_', ' ')} {value}" for key, value in list(facts.items())[:4]]
    read = [f"{plain(s.path, 60)} ({_count(s.rows, 'row')})" for s in run.sources[:4]]
    read += [f"and {len(run.sources) - 4} more"] if len(run.sources) > 4 else []
    lines = (" | ".join(trainer), " | ".join(size), " | ".join(setup), "read from " + ", ".join(read) if read else "")
    title = Heading(plain(run.name, _KEY), 1, label="rlclinic")
    return [title, *(Paragraph(line, tone="dim") for line in lines if line)]


def _verdict(diagnosis: Diagnosis) -> list[Block]:
    verdict, run = diagnosis.verdict, diagnosis.run
    blocks: list[Block] = [Paragraph(plain(verdict.says), label=verdict.severity.upper(), tone=verdict.severity)]
    pairs: list[tuple[str, str]] = []
    primary = next((f for f in diagnosis.findings if f.check == verdict.primary), None)
    if primary is not None:
        if primary.onset is not None:
            pairs.append(("since", _since(primary.onset)))
        for remedy in primary.prescriptions[:1]:
            shown = [_change_of(setting) for setting in remedy.changes]
            changed = ", ".join(f"{key}: {old} -> {new}" if new else writes for key, old, new, writes in shown)
            pairs.append(("change", changed or plain(remedy.says)))
    if run.ending:
        pairs.append(("ended by", plain(run.ending, 200)))
    if pairs:
        blocks.append(KeyNumbers(tuple(pairs)))
    return blocks


# ---------------------------------------------------------------------------------------------------- vitals


def _printed(value: float, column: Column) -> str:
    """A value as far as the log shows it: a 0 that may be a rounded number is given as an upper bound."""
    if value == 0.0 and column.rounded_zero:
        return f"<{number(column.resolution / 2)}"
    return number(value)


def _remarks(column: Column, found_in: str = "") -> tuple[str, ...]:
    remarks = []
    if column.nonfinite:
        bad = column.steps[~np.isfinite(column.values)]
        remarks.append(
            f"{column.nonfinite} of {_count(len(column), 'value')} NaN or infinite, first at step {_step(bad[0])}"
        )
    if column.status == "structural_zero":
        remarks.append("zero by construction" + (f": {plain(column.because)}" if column.because else ""))
    elif column.status == "filtered":
        remarks.append("after filtering" + (f": {plain(column.because)}" if column.because else ""))
    if len(column) == 1:
        remarks.append(f"one value, at step {_step(column.steps[0])}")
    if found_in:
        remarks.append(found_in)
    return tuple(remarks)


def _ends(column: Column) -> tuple[str, str]:
    """Medians of the first and of the last tenth of the finite values; empty when there is nothing to read off."""
    finite = column.finite.values
    if not len(finite) or column.status == "structural_zero":
        return "", ""
    tenth = max(1, len(finite) // 10)
    first, last = np.sort(finite[:tenth])[tenth // 2], np.sort(finite[-tenth:])[tenth // 2]
    return _printed(float(first), column), _printed(float(last), column)


def _curve(
    title: str,
    column: Column,
    span: tuple[float, float],
    *,
    flag: str = "",
    found_in: str = "",
    mark: Onset | None = None,
    large: bool = False,
    tone: Tone = "plain",
) -> Curve:
    finite = column.finite.values
    first, last = _ends(column)
    low = high = ""
    if first:
        low, high = _printed(float(finite.min()), column), _printed(float(finite.max()), column)
    return Curve(title, column, span, first, last, low, high, flag, _remarks(column, found_in), mark, large, tone)


def _span(run: Run, *columns: Column) -> tuple[float, float]:
    ends = [c.steps for c in columns if len(c)] + ([run.steps] if len(run.steps) else [])
    return (min(float(s[0]) for s in ends), max(float(s[-1]) for s in ends)) if ends else (0.0, 0.0)


def _vitals(diagnosis: Diagnosis) -> list[Block]:
    run = diagnosis.run
    present, absent = [], []
    for choices in VITALS:
        metric = next((m for m in choices if m in run and len(run[m])), None)
        (absent.append(_title(choices[0])) if metric is None else present.append(metric))
    if not present:
        return []
    span = _span(run, *(run[m] for m in present))
    aside = "" if run.short else "medians of the first and last tenth, range, course"
    blocks: list[Block] = [Heading("Vitals", 2, aside=aside)]
    for metric in present:
        speaking = [i for i, f in enumerate(diagnosis.findings, 1) if metric in f.metrics]
        severities = [s for i in speaking if (s := diagnosis.findings[i - 1].severity) is not None]
        flag = f"[{','.join(str(i) for i in speaking[:3])}]" if speaking else "[!]" if run[metric].nonfinite else ""
        found_in = _which_score(run) if metric == "eval.score" else ""
        tone = _tone(max(severities).label if severities else "plain")
        blocks.append(_curve(_title(metric), run[metric], span, flag=flag, found_in=found_in, tone=tone))
    if run.components:
        parts = [_part(plain(name, 32), part.mean) for name, part in list(run.components.items())[:8]]
        more = f", and {len(run.components) - 8} more" if len(run.components) > 8 else ""
        blocks.append(Paragraph(f"reward parts: {', '.join(parts)}{more}", tone="dim"))
    if absent:
        where = "not in this excerpt: " if run.excerpt else "not logged: "
        blocks.append(Paragraph(where + ", ".join(absent), tone="dim"))
    return blocks


def _part(name: str, column: Column) -> str:
    first, last = _ends(column)
    return f"{name} {first} -> {last}" if first else name


def _which_score(run: Run) -> str:
    key, rule = plain(run["eval.score"].key, _KEY), plain(run.eval_rule)
    return rule if rule.startswith(key) else ": ".join(part for part in (key, rule) if part)


def _tone(word: str) -> Tone:
    tones: dict[str, Tone] = {"info": "info", "warning": "warning", "critical": "critical"}
    return tones.get(word, "plain")


# -------------------------------------------------------------------------------------------------- findings


def _finding(diagnosis: Diagnosis, order: int) -> list[Block]:
    run, finding = diagnosis.run, diagnosis.findings[order - 1]
    word = "note" if finding.severity is None else finding.severity.label
    label = f"{order}. {word.upper()}"
    blocks: list[Block] = [
        Heading(plain(finding.check, _KEY), 3, label=label, aside=_TIERS[finding.tier], tone=_tone(word)),
        Paragraph(plain(finding.says)),
    ]
    pairs = [("since", _since(finding.onset))] if finding.onset is not None else []
    pairs += [("evidence", text) for text in [_evidence(finding.evidence)] if text]
    if finding.numbers:
        shown = [
            f"{plain(name, 32).replace('_', ' ')} {number(v)}" for name, v in list(finding.numbers.items())[:_LIST]
        ]
        pairs.append(("numbers", ", ".join(shown)))
    columns = _columns(run, finding.metrics)
    if columns:
        pairs.append(("seen in", "; ".join(_seen(column, title) for title, column in columns[:6])))
    if finding.because_of:
        pairs.append(("follows", f"from {_others(diagnosis, finding.because_of)}: {_CONSISTENT}"))
    if finding.leads_to:
        pairs.append(("leads to", f"{_others(diagnosis, finding.leads_to)}: {_CONSISTENT}"))
    blocks += [KeyNumbers(tuple(pairs))] if pairs else []
    if columns and not finding.because_of and not run.short:
        title, column = columns[0]
        drawn = _curve(title, column, _span(run, column), mark=finding.onset, large=True, tone=_tone(word))
        blocks += [drawn] if drawn.first else []
    traps = dict.fromkeys(f"{plain(c.key, _KEY)}: {plain(c.note)}" for _, c in columns if c.note)
    blocks += [Note(trap, "mind") for trap in list(traps)[:3]]
    blocks += [_change(number, remedy) for number, remedy in enumerate(finding.prescriptions, 1)]
    if finding.would_decide:
        blocks.append(Bullets(_bounded(_spelled(w, run.framework) for w in finding.would_decide), label="to settle"))
    if finding.references:
        blocks.append(
            Bullets(tuple(plain(f"{r.id}, {r.title}: {r.claim}") for r in finding.references[:_LIST]), label="sources")
        )
    return blocks


def _evidence(evidence: Evidence | None) -> str:
    if evidence is None:
        return ""
    if evidence.p_value is None:
        chance = "the log itself proves it"
    else:
        chance = f"p {'< 1e-6' if evidence.p_value < 1e-6 else '= ' + number(evidence.p_value)}"
    return ", ".join(part for part in (f"effect {number(evidence.effect)}", chance, plain(evidence.method)) if part)


def _columns(run: Run, metrics: Sequence[str]) -> list[tuple[str, Column]]:
    """Title and column of everything that a finding speaks of, be it a metric, a reward part or a held-out series."""
    found = []
    for metric in metrics:
        part = run.components.get(metric)
        column = run.get(metric) or run.evaluations.get(metric) or (None if part is None else part.mean)
        if column is not None:
            found.append((_title(metric), column))
    return found


def _seen(column: Column, title: str) -> str:
    key = plain(column.key, _KEY)
    how = f", {plain(column.estimator, 32)}" if column.estimator else ""
    return f"{key}{how}" if key == title else f"{title} ({key}{how})"


def _others(diagnosis: Diagnosis, checks: Sequence[str]) -> str:
    place = {f.check: i for i, f in enumerate(diagnosis.findings, 1)}
    return ", ".join(f"{plain(c, _KEY)} ({place[c]})" if c in place else plain(c, _KEY) for c in checks)


def _change(order: int, remedy: Prescription) -> Change:
    moves = [f"{_title(metric)} {plain(move)}" for metric, move in remedy.expect.items()]
    within = f"within {_count(remedy.within, 'step')}" if remedy.within is not None else ""
    pairs = [
        ("expect", ", ".join([*moves, within] if within else moves)),
        ("risk", plain(remedy.risk)),
        ("confirm", plain(remedy.confirm)),
        ("mind", plain(remedy.note)),
    ]
    return Change(
        order,
        plain(remedy.says),
        tuple(_change_of(setting) for setting in remedy.changes),
        tuple((label, text) for label, text in pairs if text),
    )


def _change_of(setting: Setting) -> tuple[str, str, str, str]:
    key, writes = plain(setting.key), plain(setting.writes)
    if setting.after is None and writes:
        return key, "", "", writes
    return key, _setting(setting.before), _setting(setting.after), writes


# ---------------------------------------------------------------------------------------- checks and the log


def _needs(run: Run, examination: Examination) -> str:
    """What a check lacks, in the log's own spelling where the framework is known."""
    spelled = [" or ".join(_spelled(m, run.framework) for m in need.split("|")) for need in examination.missing]
    # Reasons that only list the missing metrics by their canonical names say nothing new.
    repeats = any(metric in examination.says for need in examination.missing for metric in need.split("|"))
    return "; ".join(part for part in (", ".join(spelled), "" if repeats else plain(examination.says)) if part)


def _spelled(metric: str, framework: Framework | None) -> str:
    """A metric by its title and log key; any other words as they are."""
    try:
        title = names.metric(metric).title
    except UnknownName:
        return plain(metric)
    key = None if framework is None else names.key_for(metric, framework)
    return f"{title} ({plain(key, _KEY)})" if key and key != title else title


def _outcomes(diagnosis: Diagnosis) -> tuple[list[str], list[Examination], list[Examination], list[Examination]]:
    """Names of the checks that found nothing; the checks that could not look, do not apply, and broke."""
    told = {f.check for f in diagnosis.findings}
    nothing = [plain(c.check, _KEY) for c in diagnosis.checks if c.outcome == "examined" and c.check not in told]
    blind = [c for c in diagnosis.checks if c.outcome == "unexamined"]
    unfit = [c for c in diagnosis.checks if c.outcome == "not_applicable"]
    return nothing, blind, unfit, [c for c in diagnosis.checks if c.outcome == "failed"]


def _checks_in_short(diagnosis: Diagnosis) -> list[Block]:
    nothing, blind, unfit, broke = _outcomes(diagnosis)
    parts = [f"{_count(len(nothing), 'check')} found nothing"]
    if blind:
        parts.append(f"{len(blind)} could not look ({', '.join(plain(c.check, _KEY) for c in blind)})")
    parts += [f"{len(unfit)} not applicable"] if unfit else []
    blocks: list[Block] = [Heading("Checks", 2), Paragraph("; ".join(parts))]
    return blocks + _unheard([], [], broke)


def _checks(diagnosis: Diagnosis) -> list[Block]:
    nothing, blind, unfit, broke = _outcomes(diagnosis)
    blocks: list[Block] = [Heading("Checks", 2)] if diagnosis.checks else []
    if nothing:
        blocks.append(Paragraph(f"{len(nothing)} found nothing: {', '.join(nothing)}"))
    needs = [(plain(c.check, _KEY), _needs(diagnosis.run, c)) for c in blind]
    return blocks + _unheard(needs, [(plain(c.check, _KEY), plain(c.says)) for c in unfit], broke)


def _unheard(blind: list[tuple[str, str]], unfit: list[tuple[str, str]], broke: list[Examination]) -> list[Block]:
    """The checks that said nothing, each with its reason."""
    broken = [(plain(c.check, _KEY), plain(c.says) or "no message") for c in broke]
    groups = (
        ("could not look", "missing", blind),
        ("not applicable", "because", unfit),
        ("broke", "please report", broken),
    )
    return [Table((f"{len(rows)} {outcome}", why), tuple(rows)) for outcome, why, rows in groups if rows]


def _about_the_log(run: Run) -> list[Block]:
    lines = [plain(w.says) for w in run.warnings]
    lines += [f"step {_step(step)}: {plain(seen)}" for step, seen in sorted(run.seams.items())]
    lines += [_undecided(u.key, u.meanings, u.decided_by) for u in run.undecided]
    shown = list(_bounded(lines, 20))
    if run.unrecognised:
        keys = []
        for unknown in run.unrecognised[:8]:
            close = f" (close to {', '.join(plain(k, _KEY) for k in unknown.nearest[:2])})" if unknown.nearest else ""
            keys.append(plain(unknown.key, _KEY) + close)
        more = f" and {len(run.unrecognised) - 8} more" if len(run.unrecognised) > 8 else ""
        shown.append(f"not recognised, so not judged: {', '.join(keys)}{more}")
    return [Heading("About this log", 2), Bullets(tuple(shown))] if shown else []


def _undecided(key: str, meanings: Sequence[str], decided_by: str) -> str:
    """Why a key was left unread, and what would settle it."""
    means = " or ".join(_title(m) for m in meanings)
    return f"{plain(key, _KEY)} left unread: it may be {means}; {plain(decided_by)} decides"
