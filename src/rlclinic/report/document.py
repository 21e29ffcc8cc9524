"""What a report says and in which order: a Diagnosis as a short list of blocks that every format can draw."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from rlclinic import names
from rlclinic.model import ROLLOUTS, Column, Diagnosis, Examination, Framework, Run, Severity, Source, Unrecognised
from rlclinic.report import baselined, curves
from rlclinic.report.blocks import (
    KEY,
    Block,
    Bullets,
    Heading,
    KeyNumbers,
    Marks,
    Note,
    Paragraph,
    Table,
    bounded,
    count,
    number,
    plain,
    saved_as,
    step,
    tone,
)
from rlclinic.report.findings import ANSWER, change_of, changes, findings, goes_on, since
from rlclinic.report.history import history
from rlclinic.report.series import curve, ends, span, spelled, title_of
from rlclinic.rollouts import Rollouts

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

_HOW = {"keys": "by its log keys", "config": "from its settings", "log": "as the log says", "given": "as given"}


_LEFT = ("source_left_out", "answers_unread")
"""Warnings for files that were not read."""
_SUGGEST = "rlclinic names suggest LOG drafts names for them"
"""Said where most keys are unknown; where all are, the verdict says so."""

_BESIDE = (
    ("configuration", "settings from"),
    ("rollouts", "saved answers not read:"),
    ("evaluation", "results, not read:"),
)
"""How the files of a run that hold no log are told."""

_SENTENCE = re.compile(r"(?<=[a-z0-9)][.!?])\s+(?=[A-Z])")

# Ours, chosen by reading reports: a healthy run should fit on one screen.
_HEALTHY = 2
_BLIND = 6
_FEW = 4
_LINE = 78
_FILES = 2
ABOUT = 20


def document(diagnosis: Diagnosis, samples: int = 0) -> list[Block]:
    """The report as blocks, answer first. Every string is clean: one line, no control characters, bounded length.

    Words of saved answers are in it only where ``samples`` of them are asked for each finding; they are masked.
    """
    word, run = diagnosis.verdict.severity, diagnosis.run
    healthy = word == "healthy" and not diagnosis.findings
    brief = healthy or word == "undecided" or run.short or run.excerpt
    blocks: list[Block] = [*verdict(diagnosis), *_head(run), *vitals(diagnosis), *findings(diagnosis, samples)]
    blocks += baselined.baseline(diagnosis)
    blocks += history(run)
    if diagnosis.notes:
        blocks.append(Heading("Normal here", 2))
        said = [plain(note.says) for note in diagnosis.notes]
        blocks += [Note(words) for words in (bounded(map(_opening, said), _HEALTHY + 1) if healthy else said)]
    if diagnosis.to_log and not healthy:
        blocks.append(Heading("What to log", 2, aside="so that more can be judged next time"))
        blocks.append(Bullets(bounded(diagnosis.to_log)))
    blocks += [] if brief else _checks(diagnosis)
    return blocks + about_the_log(diagnosis, brief, _HEALTHY if healthy else ABOUT) + broken(diagnosis)


def _opening(says: str) -> str:
    """The first sentence: enough where nothing is wrong."""
    return _SENTENCE.split(says, maxsplit=1)[0]


# --------------------------------------------------------------------------------------------- verdict, head


def verdict(diagnosis: Diagnosis) -> list[Block]:
    verdict, run = diagnosis.verdict, diagnosis.run
    primary = next((f for f in diagnosis.findings if f.check == verdict.primary), None)
    trial = primary is not None and primary.status == "preview" and (primary.severity or 0) >= Severity.WARNING
    says = plain(verdict.says, ANSWER) + (" (A check in preview: it changes no exit code.)" if trial else "")
    blocks: list[Block] = [Paragraph(says, label=verdict.severity.upper(), tone=verdict.severity)]
    pairs: list[tuple[str, str]] = []
    if primary is not None and (primary.severity or 0) >= Severity.WARNING:
        if primary.onset is not None:
            pairs.append(("since", since(run, primary.onset)))
        for remedy in changes(primary)[:1]:
            settings = ", ".join(_moved(*change_of(setting)) for setting in remedy.changes)
            pairs.append(("change", settings or plain(remedy.says)))
        if primary.rollback is not None and (go_on := goes_on(primary)) is not None:
            pairs.append(("go on from", go_on))
    if verdict.severity == "undecided" and (asked := _to_send(diagnosis)):
        pairs.append(("to decide", asked))
    if run.ending and run.ending not in verdict.says:
        pairs.append(("ended by", plain(run.ending, 200)))
    pairs += baselined.in_short(diagnosis)
    if pairs:
        blocks.append(KeyNumbers(tuple(pairs)))
    return blocks


def _to_send(diagnosis: Diagnosis) -> str:
    """What would let pasted lines be judged: more of them, the vital series that they lack, the settings."""
    run = diagnosis.run
    if not run.excerpt or not run.logged or not len(run.steps) or run.kind != "rl":
        return ""
    lack = next((f.would_decide for f in diagnosis.findings if f.check == "metric_not_logged"), ())
    series = ", ".join(names.metric(metric).title for metric in lack[:4] if metric in names.metrics())
    asked = ["the whole log, or 50 rows from its start and the latest 50"]
    asked += [f"with {series}"] if series else []
    asked += ["the settings of the run"] if not run.knobs else []
    return "; ".join(asked)


def _moved(key: str, before: str, after: str, writes: str) -> str:
    if before and after:
        return f"{key}: {before} -> {after}"
    return f"{writes} (present value not known)" if after and writes else writes or key


def _framework(framework: Framework) -> str:
    limits = [
        f"{word} {plain(limit, 24)}"
        for word, limit in (("from", framework.at_least), ("before", framework.below))
        if limit is not None
    ]
    version = plain(framework.version, 24) if framework.version is not None else " ".join(limits)
    if framework.name == "generic":  # a loop of the user's own has no versions
        return f"{plain(framework.title, 40)}, {_HOW[framework.how]}"
    return f"{plain(framework.title, 40)} {version or '(version not known)'}, {_HOW[framework.how]}"


def _extent(run: Run) -> str:
    first, last = step(run.steps[0]), step(run.steps[-1])
    planned = "" if run.planned_steps is None else f", {run.planned_steps} planned"
    return f"step {first}{planned}" if first == last else f"steps {first} to {last} ({len(run.steps)} logged{planned})"


def _fact(key: str, value: str) -> str:
    try:
        value = number(float(value))
    except ValueError:
        value = plain(value, 60)
    return f"{plain(key, 24).replace('_', ' ')} {value}"


def head_lines(run: Run) -> tuple[Heading, list[str], list[str], list[str]]:
    """The name of the run; what trained it, how much there is of it, what was trained."""
    trainer = [_framework(run.framework)] if run.framework is not None else ["trainer not recognised"]
    trainer += [plain(run.algorithm, 40)] if run.algorithm else []
    nothing = "no known metric" if run.unrecognised else "no training step"
    size = [_extent(run)] if len(run.steps) else [nothing]
    size.append(count(len(run.columns), "metric"))
    size += [count(len(run.components), "reward part")] if run.components else []
    facts = dict(run.facts)
    model = facts.pop("model", None) or run.knob("model")
    group = run.number("group_size")
    setup = [] if model is None else [plain(model, 60)]
    setup += [f"group size {number(group)}"] if group is not None else []
    setup += [_fact(key, value) for key, value in list(facts.items())[:4]]
    return Heading(plain(run.name, KEY), 1, label="rlclinic"), trainer, size, setup


def _head(run: Run) -> list[Block]:
    title, trainer, size, setup = head_lines(run)
    lines = [*_packed([*trainer, *size, *setup]), *sources(run)]
    return [title, *(Paragraph(line, tone="dim") for line in lines)]


def _packed(items: Sequence[str]) -> list[str]:
    """``items`` side by side in as few lines as the usual terminal allows."""
    lines: list[str] = []
    for item in items:
        room = [i for i, line in enumerate(lines) if len(line) + 3 + len(item) <= _LINE]
        if room:
            lines[room[0]] += f" | {item}"
        else:
            lines.append(item)
    return lines


def sources(run: Run) -> list[str]:
    """What was read, and what of the run lies beside it; a folder that all files share is named once."""
    logs = [s for s in run.sources if s.role == "metrics"]
    folder = _folder([s.path for s in logs])
    read = [f"{plain(s.path[len(folder) :], 60)} ({count(s.rows, 'row')})" for s in logs[:_FILES]]
    read += [f"and {len(logs) - _FILES} more"] if len(logs) > _FILES else []
    within = f"{plain(folder[:-1], 60)}: " if folder[:-1] else ""
    lines = [f"read from {within}{', '.join(read)}"] if read else []
    lines += [_answers(table) for table in run.rollouts[:_FILES]]
    more = len(run.rollouts) - _FILES
    lines += [f"and {count(more, 'more table')} of saved answers"] if more > 0 else []
    looked = {table.source for table in run.rollouts}
    left = [s for s in run.sources if s.path not in looked]
    beside = [
        f"{word} {', '.join(named)}" for role, word in _BESIDE if (named := _named([s for s in left if s.role == role]))
    ]
    if run.checkpoints and len(run.sources) > len(logs):
        beside.append(f"{count(len(run.checkpoints), 'checkpoint')}")
    return lines + _packed(beside)


def _answers(table: Rollouts) -> str:
    """A table of saved answers in one line."""
    name = plain(table.source.rstrip("/").rpartition("/")[2], 40)
    name = f"{count(table.files, 'file')} in {name}/" if table.files > 1 else name
    held = f", {table.held_out.sum()} of them held out" if table.held_out.any() else ""
    groups = f" in {count(table.groups, 'group')}" if table.groups else ", groups not told"
    only = ", only what it trains on" if table.filtered else ", parts of batches" if table.partial else ""
    return f"saved answers {name} ({saved_as(table.form)}: {count(len(table), 'answer')}{groups}{held}{only})"


def _folder(paths: Sequence[str]) -> str:
    """The folder in which several files lie, with its last slash; empty for one file and without such."""
    parts = [path.split("/")[:-1] for path in paths]
    if len(parts) < 2:
        return ""
    shared = list(takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False)))
    return "".join(f"{level[0]}/" for level in shared)


def _named(sources: Sequence[Source]) -> list[str]:
    """The last part of each path, of at most ``_FILES``, and how many more there are."""
    shown = [plain(source.path.rstrip("/").rpartition("/")[2], 40) for source in sources[:_FILES]]
    return shown + ([f"and {len(sources) - _FILES} more"] if len(sources) > _FILES else [])


# ---------------------------------------------------------------------------------------------------- vitals


def vitals(diagnosis: Diagnosis, *, page: bool = False) -> list[Block]:
    run = diagnosis.run
    present, absent = [], []
    for choices in VITALS:
        metric = next((m for m in choices if m in run and len(run[m])), None)
        (absent.append(title_of(choices[0])) if metric is None else present.append(metric))
    if not present:
        return []
    over = span(run, *(run[m] for m in present))
    drawn = []
    for metric in present:
        speaking = [i for i, f in enumerate(diagnosis.findings, 1) if metric in f.metrics]
        about = [f for f in diagnosis.findings if metric in (f.metrics[:3] if page else f.metrics)]
        severities = [f.severity for f in about if f.severity is not None]
        numbers = ",".join(str(i) for i in (speaking if page else speaking[:3]))
        flag = f"[{numbers}]" if speaking else "[!]" if run[metric].nonfinite else ""
        found_in = _which_score(run) if metric == "eval.score" else _instead(run, run[metric])
        marks = Marks(band=baselined.band_of(diagnosis, metric))
        one = curve(title_of(metric), run[metric], over, flag=flag, found_in=found_in, name=metric, marks=marks)
        drawn.append(replace(one, tone=tone(max(severities).label if severities else "plain")))
    told = "medians of first and last tenth, range, course"
    told = "median of the last tenth of the run, and of the first; numbers lead to findings" if page else told
    said = [] if run.short else [told]
    said += ["^ v beyond the scale"] if not page and any(c.course and curves.scale(c.column)[2] for c in drawn) else []
    said += ["[1]: see finding 1"] if not page and any(c.flag.strip("[!]") for c in drawn) else []
    blocks: list[Block] = [Heading("Vitals", 2, aside="; ".join(said)), *drawn]
    if run.components and not page:
        parts = [_part(plain(name, 32), part.mean) for name, part in list(run.components.items())[:8]]
        more = f", and {len(run.components) - 8} more" if len(run.components) > 8 else ""
        blocks.append(Paragraph(f"reward parts: {', '.join(parts)}{more}", tone="dim"))
    if absent:
        where = (
            "not in this excerpt: " if run.excerpt else "not shown in this text: " if run.partial else "not logged: "
        )
        where = where if run.logged else "not in saved answers: "
        blocks.append(Paragraph(where + ", ".join(absent), tone="dim"))
    return blocks


def _part(name: str, column: Column) -> str:
    first, last = ends(column)
    return f"{name} {first} -> {last}" if first else name


def _instead(run: Run, column: Column) -> str:
    """What the log says instead of ``column``, where the saved answers show that to be false."""
    lost = [f"{plain(key, KEY)} {plain(why)}" for key, why in run.distrusted.items() if key and key in column.note]
    return f"counted in the saved answers; the log's {lost[0]}" if lost and column.key not in run.distrusted else ""


def _which_score(run: Run) -> str:
    """Which held-out series is *the* score, where there was a choice."""
    rule = plain(run.eval_rule)
    if len(run.evaluations) < 2 and not rule.endswith("as asked"):
        return ""
    key = plain(run["eval.score"].key, KEY)
    return rule if rule.startswith(key) else ": ".join(part for part in (key, rule) if part)


# ---------------------------------------------------------------------------------------- checks and the log


def lacking(run: Run, examination: Examination) -> str:
    """What a check lacks, in the log's own spelling where the framework is known."""
    thin = [metric for need in examination.missing for metric in need.split("|") if metric in run]
    says = plain(examination.says)
    if thin:
        for metric in sorted(thin, key=len, reverse=True):
            says = says.replace(metric, title_of(metric))
        return says or f"too few values of {', '.join(map(title_of, thin))}"
    if not examination.missing:
        return says or "no reason given"
    if ROLLOUTS in examination.missing:
        return (
            (says or "the saved answers do not show it") if run.rollouts else "only the sampled answers would show it"
        )
    needs = [" or ".join(spelled(m, run.framework) for m in need.split("|")) for need in examination.missing]
    return f"not logged: {', '.join(needs)}"


def outcomes(diagnosis: Diagnosis) -> tuple[list[str], list[Examination], list[Examination]]:
    """Names of the checks that found nothing; the checks that could not look, and those that do not apply."""
    told = {f.check for f in diagnosis.findings}
    nothing = [plain(c.check, KEY) for c in diagnosis.checks if c.outcome == "examined" and c.check not in told]
    blind = [c for c in diagnosis.checks if c.outcome == "unexamined"]
    return nothing, blind, [c for c in diagnosis.checks if c.outcome == "not_applicable"]


def grouped(rows: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """(check, reason) as (reason, checks), in the order in which the reasons come up."""
    groups: dict[str, list[str]] = {}
    for check, reason in rows:
        groups.setdefault(reason, []).append(check)
    return tuple((reason, ", ".join(checks)) for reason, checks in groups.items())


def _checks(diagnosis: Diagnosis) -> list[Block]:
    nothing, blind, unfit = outcomes(diagnosis)
    blocks: list[Block] = [Heading("Checks", 2)] if diagnosis.checks else []
    if nothing:
        blocks.append(Paragraph(f"{len(nothing)} found nothing: {', '.join(nothing)}"))
    if blind:
        needs = grouped([(plain(c.check, KEY), lacking(diagnosis.run, c)) for c in blind])
        label = f"{len(blind)} could not look"
        blocks.append(Bullets(bounded((f"{checks} ({why})" for why, checks in needs), _BLIND), label=label))
    if unfit:
        few = "; ".join(f"{plain(c.check, KEY)}: {plain(c.says)}" for c in unfit) if len(unfit) <= _FEW else ""
        blocks.append(Paragraph(f"{len(unfit)} do not apply to this run{f' ({few})' if few else ''}"))
    return blocks


def _checks_in_short(diagnosis: Diagnosis) -> list[str]:
    nothing, blind, unfit = outcomes(diagnosis)
    if not (nothing or blind):
        return []
    parts = [f"{count(len(nothing), 'check')} found nothing"]
    told = f" ({', '.join(plain(c.check, KEY) for c in blind)})" if len(blind) <= _FEW else ""
    parts += [f"{len(blind)} could not look{told}"] if blind else []
    return ["; ".join([*parts, *([f"{len(unfit)} do not apply"] if unfit else [])])]


def broken(diagnosis: Diagnosis) -> list[Block]:
    """Checks that failed are faults of ours and never pass for silence."""
    rows = [(plain(c.check, KEY), plain(c.says) or "no message") for c in diagnosis.checks if c.outcome == "failed"]
    return [Heading("Broken checks", 2), Table((f"{len(rows)} broke", "please report"), tuple(rows))] if rows else []


def about_the_log(diagnosis: Diagnosis, brief: bool, most: int) -> list[Block]:
    run = diagnosis.run
    lines = [_undecided(u.key, u.meanings, u.decided_by) for u in run.undecided]
    left_out = [plain(w.says) for w in run.warnings if w.code in _LEFT]
    warnings = [plain(w.says) for w in run.warnings if w.code not in _LEFT]
    seams = [(at, plain(what)) for at, what in sorted(run.seams.items())]
    lines += warnings
    lines += [f"step {step(at)}: {what}" for at, what in seams if not any(what in said for said in warnings)]
    lines += left_out  # they may be many, and say nothing of the run
    if run.unrecognised:
        said = _unrecognised(run.unrecognised, named=most > _HEALTHY)
        said += f"; {_SUGGEST}" if len(run.unrecognised) > len(run.columns) > 0 else ""
        lines.insert(len(run.undecided), said)
    shown = [*(_checks_in_short(diagnosis) if brief else []), *bounded(lines, most)]
    return [Heading("About this log", 2), Bullets(tuple(shown))] if shown else []


def _unrecognised(keys: Sequence[Unrecognised], *, named: bool) -> str:
    if not named:
        return f"{count(len(keys), 'key')} not recognised, so not judged"
    shown = []
    for unknown in keys[:8]:
        close = f" (close to {', '.join(plain(k, KEY) for k in unknown.nearest[:2])})" if unknown.nearest else ""
        shown.append(plain(unknown.key, KEY) + close)
    more = f" and {len(keys) - 8} more" if len(keys) > 8 else ""
    return f"not recognised, so not judged: {', '.join(shown)}{more}"


def _undecided(key: str, meanings: Sequence[str], decided_by: str) -> str:
    """Why a key was left unread, and what would settle it."""
    means = " or ".join(title_of(m) for m in meanings)
    return f"{plain(key, KEY)} left unread: it may be {means}; {plain(decided_by)} decides"
