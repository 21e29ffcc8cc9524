"""The findings of a report: causes told in full, consequences in a few lines, nothing said twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from rlclinic.answers.shown import hung
from rlclinic.model import SAVED, Column, Diagnosis, Finding, Onset, Prescription, Reference, Run, Scalar, Severity
from rlclinic.model import Change as Setting
from rlclinic.report.baselined import band_of, judged_by
from rlclinic.report.blocks import (
    KEY,
    LIST,
    Block,
    Bullets,
    Chain,
    Change,
    Curve,
    Folded,
    Heading,
    KeyNumbers,
    Marks,
    Note,
    Paragraph,
    Sources,
    bounded,
    count,
    number,
    plain,
    step,
    tone,
)
from rlclinic.report.samples import answer
from rlclinic.report.series import curve, seen, span, spelled, title_of, whole

Detail: TypeAlias = Literal["whole", "expect", "mind"]

TIERS = {"certain": "sure", "likely": "likely", "hint": "hint"}
_CONSISTENT = "consistent in time and mechanism"

_PLAINLY = (
    ("step against a smooth curve, BIC, AR(1)-whitened", "a step that no smooth curve explains"),
    ("a step or a complete separation of levels, in noise deviations", "a break between two levels"),
    ("Wilson lower bound", "judged by the lower end of its interval"),
    ("local median and MAD of the run itself", "against the usual scatter of the run itself"),
    ("equivalence: the interval of the change lies inside the margin", "any change is smaller than what would matter"),
    ("equivalence over the whole run", "any change over the whole run is smaller than what would matter"),
    ("late mean against a level", "the late mean against a fixed limit"),
    ("late median against a level", "the late median against a fixed limit"),
    ("early against late window", "the early part against the late part"),
    ("trend test", "a trend, with the memory of the series allowed for"),
    ("keys of the log", "read off the keys of the log"),
)
"""Methods as the checks name them, and the words for a reader; any other method is told as it is named."""

_UNSHOWN = "Saved answers show what is meant; --samples N prints some of them, masked."
_NO_CHANCE = 0.05
"""A p-value above this is no evidence, so it is not shown as such: the method's other half decided."""

# Ours, chosen by reading reports.
_SETTLED_BY = 3
_SOURCE = 76
_CURVES = 4
_CURVES_ASIDE = 2
ANSWER = 800
"""Characters of the verdict: its check's title, a whole finding and what it explains."""
_ENOUGH = 3
"""Curves of a cause, unless its sentence speaks of more."""
_NUMBERS = 40


def findings(diagnosis: Diagnosis, samples: int = 0, *, page: bool = False) -> list[Block]:
    """Every finding in the order of the diagnosis with at most ``samples`` saved answers each, then the sources of those
    told in full, once. A ``page`` has room: every metric of a finding as a curve, its evidence and sources folded, and how
    the findings hang together as a drawing above."""
    if not diagnosis.findings:
        return []
    telling = _OnPage(diagnosis) if page else _Telling(diagnosis)
    hidden = not samples and any(finding.samples for finding in diagnosis.findings)
    blocks: list[Block] = [*(telling.chain() if page else [])]
    blocks.append(Heading("Findings", 2, aside=_UNSHOWN if page and hidden else ""))
    for order in range(1, len(diagnosis.findings) + 1):
        blocks += telling.finding(order)
        blocks += _examples(diagnosis.run, diagnosis.findings[order - 1], samples)
    if hidden and not page:
        blocks.append(Paragraph(_UNSHOWN, tone="dim"))
    if telling.sources and not page:
        listed = bounded(_source(r) for r in telling.sources.values())
        blocks += [Heading("Sources", 2), Bullets(listed)]
    return blocks


def _examples(run: Run, finding: Finding, samples: int) -> list[Block]:
    """Saved answers that show what a finding means."""
    return [block for one in hung(run, finding.samples[: max(samples, 0)]) for block in answer(one, alone=True)]


class _Telling:
    """One pass over the findings; remembers which changes and which traps have been told, and where."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.diagnosis = diagnosis
        self.run = diagnosis.run
        self.by_check = {f.check: f for f in diagnosis.findings}
        self.place = {f.check: i for i, f in enumerate(diagnosis.findings, 1)}
        self.changes: dict[tuple[object, ...], int] = {}
        self.traps: set[str] = set()
        self.sources: dict[str, Reference] = {}

    def finding(self, order: int) -> list[Block]:
        finding = self.diagnosis.findings[order - 1]
        word = "note" if finding.severity is None else finding.severity.label
        head: list[Block] = [
            Heading(
                plain(finding.check, KEY),
                3,
                label=f"{order}. {word.upper()}",
                aside=TIERS[finding.tier] + (", preview" if finding.status == "preview" else ""),
                tone=tone(word),
                plainly=plainly(finding),
                number=order,
                under=bool(finding.because_of),
            ),
            Paragraph(plain(finding.says)),
        ]
        if limits := judged_by(self.diagnosis, finding):
            head.append(KeyNumbers(tuple(limits)))
        if finding.because_of:
            return head + self.consequence(order, finding)
        loud = (finding.severity or 0) >= Severity.WARNING or finding.check == self.diagnosis.verdict.primary
        return head + (self.root(order, finding) if loud else self.aside(order, finding))

    def root(self, order: int, finding: Finding) -> list[Block]:
        """A cause, with all that is needed to believe it, to act on it and to settle what is open."""
        pairs = [("since", since(self.run, finding.onset))] if finding.onset is not None else []
        pairs += [("evidence", text) for text in [_evidence(finding)] if text]
        if finding.numbers and not any(c.isdigit() for c in finding.says):
            shown = [f"{plain(name, 32).replace('_', ' ')} {number(v)}" for name, v in finding.numbers.items()]
            pairs.append(("numbers", ", ".join(shown[:LIST])))
        columns = _columns(self.run, finding.metrics)
        drawn = self.curve(finding, columns)
        if columns and not drawn and columns[0][1].key not in finding.says:
            pairs.append(("seen in", "; ".join(seen(column, title) for title, column in columns[:2])))
        if finding.forecast is not None:
            pairs.append(("forecast", plain(finding.forecast.says)))
        if finding.leads_to:
            places = ", ".join(str(self.place[c]) if c in self.place else plain(c, KEY) for c in finding.leads_to)
            pairs.append(("leads to", f"{_in_order(places)}: {_CONSISTENT}"))
        rivals = [f"{plain(c, KEY)} ({self.place[c]})" for c in finding.rivals if c in self.place]
        if rivals:
            pairs.append(("or", f"{', '.join(rivals)} would explain the same"))
        if finding.cost is not None:
            pairs.append(("cost", plain(finding.cost.says)))
        if finding.check == self.diagnosis.verdict.primary and (go_on := goes_on(finding)) is not None:
            pairs.append(("go on from", go_on))
        blocks: list[Block] = [*([KeyNumbers(tuple(pairs))] if pairs else []), *drawn]
        blocks += self.trap(columns)
        blocks += self.remedies(order, finding, full=True)
        if finding.no_help:
            blocks.append(Bullets(bounded(map(plain, finding.no_help)), label="no help"))
        if finding.would_decide:
            items = bounded((spelled(w, self.run.framework) for w in finding.would_decide), _SETTLED_BY)
            blocks.append(Bullets(items, label="to settle"))
        if finding.references:
            self.sources.update((r.id, r) for r in finding.references)
            blocks.append(KeyNumbers((("sources", ", ".join(plain(r.id, KEY) for r in finding.references[:LIST])),)))
        return blocks

    def aside(self, order: int, finding: Finding) -> list[Block]:
        """A cause that needs no action now."""
        blocks: list[Block] = []
        if finding.onset is not None:
            blocks.append(KeyNumbers((("since", since(self.run, finding.onset)),)))
        return blocks + self.remedies(order, finding, full=False)

    def consequence(self, order: int, finding: Finding) -> list[Block]:
        """What follows from a finding above; its own changes only where no cause is serious enough to be changed."""
        onset = [since(self.run, finding.onset)] if finding.onset is not None else []
        causes = ", ".join(
            f"{plain(c, KEY)} ({self.place[c]})" if c in self.place else plain(c, KEY) for c in self.nearest(finding)
        )
        label = "since" if onset else "follows"
        blocks: list[Block] = [
            KeyNumbers(((label, "; ".join([*onset, f"follows from {causes}" if onset else f"from {causes}"])),))
        ]
        return blocks + (self.remedies(order, finding, full=False) if self.quietly_caused(finding) else [])

    def quietly_caused(self, finding: Finding) -> bool:
        """Whether no cause of ``finding`` is serious enough to be changed."""
        causes = [self.by_check[c] for c in finding.because_of if c in self.by_check]
        return all((f.severity or 0) < Severity.WARNING for f in causes)

    def nearest(self, finding: Finding) -> list[str]:
        """The causes of ``finding`` that do not stand behind another of its causes."""
        behind = {c for cause in finding.because_of if cause in self.by_check for c in self.by_check[cause].because_of}
        near = [c for c in finding.because_of if c not in behind] or list(finding.because_of)
        return sorted(near, key=lambda c: (self.place.get(c, len(self.place) + 1), c))

    def curve(self, finding: Finding, columns: Sequence[tuple[str, Column]]) -> list[Curve]:
        if not columns or self.run.short or finding.severity is None:
            return []
        title, column = columns[0]
        mark = None if finding.onset is None else whole(self.run, finding.onset)
        name = next((m for m in finding.metrics if self.run.get(m) is column), "")
        marks = Marks(
            forecast=finding.forecast,
            checkpoints=tuple(saved.step for saved in self.run.checkpoints),
            seams=tuple(self.run.seams),
            back=_back(self.run, finding),
            band=band_of(self.diagnosis, name),
        )
        over = span(self.run, column)
        drawn = curve(seen(column, title), column, over, mark=mark, large=True, name=name, marks=marks)
        return [replace(drawn, tone=tone(finding.severity.label))] if drawn.first and drawn.course else []

    def trap(self, columns: Sequence[tuple[str, Column]]) -> list[Block]:
        """The trap of the metric that decides, unless it has been told."""
        for title, column in columns[:1]:
            name = title if column.key == SAVED else plain(column.key, KEY)
            text = f"{name}: {plain(column.note)}"
            if column.note and text not in self.traps:
                self.traps.add(text)
                return [Note(text, "mind")]
        return []

    def remedies(self, order: int, finding: Finding, *, full: bool) -> list[Block]:
        """The changes of a finding, or only the first; one that was told before is only named."""
        blocks: list[Block] = []
        told: dict[int, list[tuple[int, Prescription]]] = {}
        able = changes(finding)
        for place, remedy in enumerate(able if full else able[:1], 1):
            known = (remedy.id, remedy.says, remedy.changes)
            if known in self.changes:
                told.setdefault(self.changes[known], []).append((place, remedy))
                continue
            self.changes[known] = order
            detail: Detail = "mind"
            if full and finding.check == self.diagnosis.verdict.primary:
                detail = "whole" if place == 1 else "expect"
            elif full and place == 1:
                detail = "expect"
            blocks.append(_change(place, remedy, detail))
        for before, again in told.items():
            says = "; ".join(plain(remedy.says) for _, remedy in again)
            blocks.append(Change(again[0][0], f"{says} (as in {before})", (), ()))
        blocks.sort(key=lambda b: b.number if isinstance(b, Change) else 0)
        not_here = [f"{plain(r.says)}: {plain(r.note)}" for r in finding.prescriptions if not r.applies]
        return [*blocks, *([Bullets(bounded(not_here), label="not here")] if full and not_here else [])]

    def chain(self) -> list[Block]:
        """Which finding follows from which, where there are several."""
        every = self.diagnosis.findings
        arrows = [(self.place[c], self.place[f.check]) for f in every for c in self.nearest(f) if c in self.place]
        if not arrows:
            return []
        nodes = [
            (order, plainly(f) or plain(f.check, KEY), tone("" if f.severity is None else f.severity.label))
            for order, f in enumerate(every, 1)
        ]
        return [Heading("How it hangs together", 2), Chain(tuple(nodes), tuple(arrows))]


class _OnPage(_Telling):
    """The same with room beside it: more curves, and what not everybody reads folded instead of left out."""

    def finding(self, order: int) -> list[Block]:
        """Without the sentence that the verdict has said."""
        finding = self.diagnosis.findings[order - 1]
        head, says, *rest = super().finding(order)
        return [head, *([] if self.told_above(finding) else [says]), *rest]

    def told_above(self, finding: Finding) -> bool:
        """Whether the verdict says what was seen of ``finding``, since when, what it costs and where to go on from."""
        verdict = self.diagnosis.verdict
        loud = finding.check == verdict.primary and (finding.severity or 0) >= Severity.WARNING
        return loud and plain(finding.says).rstrip(". ") in plain(verdict.says, ANSWER)

    def root(self, order: int, finding: Finding) -> list[Block]:
        told = self.told_above(finding)
        pairs = [("since", since(self.run, finding.onset))] if finding.onset is not None and not told else []
        pairs += [("shown by", text) for text in [_evidence(finding)] if text and told]
        pairs += [("forecast", plain(finding.forecast.says))] if finding.forecast is not None else []
        if finding.leads_to:
            places = ", ".join(str(self.place[c]) if c in self.place else plain(c, KEY) for c in finding.leads_to)
            pairs.append(("leads to", f"{_in_order(places)}: {_CONSISTENT}"))
        rivals = [self.named(c) for c in finding.rivals if c in self.place]
        pairs += [("or", f"{', '.join(rivals)} would explain the same")] if rivals else []
        pairs += [("cost", costs(finding)[0])] if finding.cost is not None and not told else []
        if finding.check == self.diagnosis.verdict.primary and not told and (go_on := goes_on(finding)) is not None:
            pairs.append(("go on from", go_on))
        blocks: list[Block] = [KeyNumbers(tuple(pairs))] if pairs else []
        blocks += self.curves(finding, _CURVES)
        blocks += self.remedies(order, finding, full=True)
        if finding.no_help:
            blocks.append(Bullets(bounded(map(plain, finding.no_help)), label="no help"))
        if finding.would_decide:
            items = bounded((spelled(w, self.run.framework) for w in finding.would_decide), _SETTLED_BY)
            blocks.append(Bullets(items, label="to settle"))
        return blocks + self.evidence(finding)

    def remedies(self, order: int, finding: Finding, *, full: bool) -> list[Block]:
        """None under a verdict that nothing needs action: what can be copied there would be carried out."""
        calm = self.diagnosis.verdict.severity in ("healthy", "info")
        return [] if calm else super().remedies(order, finding, full=full)

    def aside(self, order: int, finding: Finding) -> list[Block]:
        return [*super().aside(order, finding), *self.curves(finding, _CURVES_ASIDE), *self.evidence(finding)]

    def consequence(self, order: int, finding: Finding) -> list[Block]:
        """In a few lines, with its first curve; the rest is folded."""
        curves = self.curves(finding, _CURVES_ASIDE)
        inside = [*curves, *(block for one in self.evidence(finding) for block in one.blocks)]
        told: list[Block] = [replace(block, large=False) for block in curves[:1]]
        causes = ", ".join(str(self.place.get(c) or plain(c, KEY)) for c in self.nearest(finding))
        pairs = [("since", since(self.run, finding.onset))] if finding.onset is not None else []
        told.append(KeyNumbers((*pairs, ("follows", causes))))
        if self.quietly_caused(finding):
            told += self.remedies(order, finding, full=False)
        return [*told, *([Folded("Evidence", tuple(inside))] if inside else [])]

    def named(self, check: str) -> str:
        """A check with its number in the report, by which it can be found."""
        return f"{plain(check, KEY)} ({self.place[check]})" if check in self.place else plain(check, KEY)

    def curves(self, finding: Finding, most: int) -> list[Curve]:
        """The metrics that a finding speaks of, as far as there is a course to see."""
        parts = [(plain(name, 48), part.mean) for name, part in self.run.components.items()]
        drawn: list[Curve] = []
        told = [metric for metric in ("eval.score",) if title_of(metric) in finding.says]
        named = dict.fromkeys((*finding.metrics, *told))
        spoken = {m for m in named if m in finding.metrics[:1] or title_of(m) in finding.says}
        most = min(most, max(len(spoken), _ENOUGH))
        for metric in sorted(named, key=lambda m: m not in spoken):
            seen_in = parts if metric == "reward.component.mean" else _columns(self.run, [metric])
            for title_and_column in seen_in:
                drawn += self.curve(finding, [title_and_column])
        return drawn[:most]

    def evidence(self, finding: Finding) -> list[Folded]:
        """What is known behind a finding, folded: how it was shown, its numbers, the traps of its keys, its sources."""
        pairs = [("shown by", text) for text in [_evidence(finding)] if text and not self.told_above(finding)]
        evidence = finding.evidence
        if evidence is not None and evidence.of_chance and evidence.n is not None:
            worth = f", worth {number(round(evidence.n_eff))} independent ones" if evidence.n_eff is not None else ""
            corrected = (
                f"; q = {number(evidence.q_value)} with all checks counted" if evidence.q_value is not None else ""
            )
            pairs.append(("points", f"{evidence.n}{worth}{corrected}"))
        columns = _columns(self.run, finding.metrics)
        pairs += [("seen in", "; ".join(seen(column, title) for title, column in columns[:LIST]))] if columns else []
        shown = [f"{plain(n, 48).replace('_', ' ')} {number(v)}" for n, v in list(finding.numbers.items())[:_NUMBERS]]
        pairs += [("numbers", ", ".join(shown))] if shown else []
        pairs += [("hours", hint) for hint in costs(finding)[1:] if hint]
        inside: list[Block] = [KeyNumbers(tuple(pairs))] if pairs else []
        for one in columns[:_CURVES]:
            inside += self.trap([one])
        if finding.references:
            listed = finding.references[:LIST]
            inside.append(Sources(tuple((plain(r.title or r.id), plain(r.claim), plain(r.link, 200)) for r in listed)))
        title = "Evidence and sources" if finding.references else "Evidence"
        return [Folded(title, tuple(inside))] if inside else []


# --------------------------------------------------------------------------------------------------- wording


def plainly(finding: Finding) -> str:
    """What a finding is, in a few plain words."""
    return plain(finding.title.partition(":")[0].rstrip(". "))


def costs(finding: Finding) -> tuple[str, str]:
    """What a finding costs, and how to have it told in other units; pages keep the second apart."""
    says, _, hint = (plain(finding.cost.says) if finding.cost is not None else "").partition("; --")
    return says, f"--{hint}" if hint else ""


def since(run: Run, onset: Onset) -> str:
    """The onset with its interval, in whole steps where the trainer counts in whole steps."""
    at = whole(run, onset)
    if run.excerpt and len(run.steps) and at.step <= run.steps[0]:
        first = "the first row shown" if run.counted else f"step {step(at.step)}"
        return f"seen from {first} on; when it began is not in the rows shown"
    interval = "" if at.low == at.high else f" (between {step(at.low)} and {step(at.high)})"
    return f"step {step(at.step)}{interval}"


def causes_of(finding: Finding, diagnosis: Diagnosis) -> list[Finding]:
    """All at warning or worse that stands behind ``finding``, also by way of others, in the order of the diagnosis."""
    grave = {one.check: one for one in diagnosis.findings if (one.severity or 0) >= Severity.WARNING}
    seen, stack = {finding.check}, list(finding.because_of)
    while stack:
        check = stack.pop()
        if check in grave and check not in seen:
            seen.add(check)
            stack += grave[check].because_of
    return [one for check, one in grave.items() if check in seen - {finding.check}]


def root_of(finding: Finding, diagnosis: Diagnosis) -> Finding | None:
    """The one of its causes that has none itself: the one of the verdict before others, checks in preview last. None for
    what follows from nothing grave."""
    causes = causes_of(finding, diagnosis)
    names = {one.check for one in causes}
    roots = [one for one in causes if not names & {*one.because_of}] or causes
    first = diagnosis.verdict.primary
    return min(roots, key=lambda one: (one.check != first, one.status == "preview", -(one.severity or 0)), default=None)


def changes(finding: Finding) -> list[Prescription]:
    """The remedies that can be carried out here. Going back to a checkpoint mends no cause and has a line of its own."""
    able = [remedy for remedy in finding.prescriptions if remedy.applies]
    return [remedy for remedy in able if remedy.id != "roll_back"] or able


def goes_on(finding: Finding) -> str | None:
    """From which saved state a cured run goes on; None where nothing follows for that."""
    if finding.rollback is not None:
        return plain(finding.rollback.says.removeprefix("go on from "))
    return "the present checkpoint" if finding.resume == "here" else None


def _back(run: Run, finding: Finding) -> float | None:
    """The step of the saved state that a cured run goes on from, where one is known."""
    named = finding.rollback.checkpoint if finding.rollback is not None else None
    return next((s.step for s in run.checkpoints if named is not None and named in (s.path, f"step {s.step:g}")), None)


def _in_order(places: str) -> str:
    parts = places.split(", ")
    return ", ".join(sorted(parts, key=int)) if all(p.isdigit() for p in parts) else places


def _evidence(finding: Finding) -> str:
    """How we know, in plain words; sizes stand in ``says``."""
    evidence = finding.evidence
    if evidence is None:
        return ""
    method = plain(evidence.method)
    for term, words in _PLAINLY:
        method = method.replace(term, words)
    if "in noise deviations" in evidence.method and np.isfinite(evidence.effect):
        method = f"{method}, {number(round(evidence.effect))} times the noise"
    if evidence.p_value is None:
        open_end = "assumed" in evidence.method or "not known" in evidence.method
        proven = finding.tier == "certain" and not open_end
        return f"the log itself proves it: {method}" if proven else method
    if evidence.equivalence:
        return f"{method}, at the {100 * evidence.p_value:.3g} % level"
    if evidence.p_value > _NO_CHANCE:
        return method
    few = f" from {evidence.n} points" if evidence.strength == "weak" and evidence.n is not None else ""
    sure = f"{evidence.strength}{few}: " if evidence.strength is not None else ""
    return f"{sure}{method}, p {'< 1e-6' if evidence.p_value < 1e-6 else '= ' + number(evidence.p_value)}"


def _columns(run: Run, metrics: Sequence[str]) -> list[tuple[str, Column]]:
    """Title and column of everything that a finding speaks of, be it a metric, a reward part or a held-out series."""
    found = []
    for metric in metrics:
        part = run.components.get(metric)
        column = run.get(metric) or run.evaluations.get(metric) or (None if part is None else part.mean)
        if column is not None:
            found.append((title_of(metric), column))
    return found


def _source(reference: Reference) -> str:
    """A reference in one line: an issue by its claim, a paper by its title and where to find it."""
    name, title, claim = plain(reference.id, KEY), plain(reference.title), plain(reference.claim)
    link = plain(reference.link, KEY).removeprefix("https://").replace("arxiv.org/abs/", "arXiv:")
    if "/issues/" in link or "/pull/" in link:
        return f"{name}: {claim}"
    title, year = (title[:-7], title[-5:-1]) if title[-7:-5] == " (" and title[-1] == ")" else (title, "")
    where = ", ".join(part for part in (year, link if link.startswith("arXiv:") and link != name else "") if part)
    head, tail = "" if title.startswith(name) else f"{name}: ", f" ({where})" if where else ""
    room = _SOURCE - len(head) - len(tail)
    if len(title) > room > 24:
        title = title[: title.rfind(" ", 0, room - 3)].rstrip(":,") + "..."
    line = f"{head}{title}{tail}"
    return f"{line}: {claim}" if len(line) + len(claim) + 2 <= _SOURCE else line


def _setting(value: Scalar) -> str:
    return "" if value is None else plain(value, KEY)


def change_of(setting: Setting) -> tuple[str, str, str, str]:
    """Key, value before, value after, what to write; empty what is not known."""
    return plain(setting.key), _setting(setting.before), _setting(setting.after), plain(setting.writes)


def _change(order: int, remedy: Prescription, detail: Detail) -> Change:
    """A remedy with everything that goes with it, with what to expect, or with what to mind only."""
    moves = [f"{title_of(metric)} {plain(move)}" for metric, move in remedy.expect.items()]
    within = [f"within {count(remedy.within, 'step')}"] if remedy.within is not None else []
    expect, risk = ", ".join([*moves, *within]), "" if remedy.risk == "none" else plain(remedy.risk)
    pairs: list[tuple[str, str]] = []
    if detail == "whole":
        pairs = [("expect", expect), ("risk", risk), ("confirm", plain(remedy.confirm))]
    elif detail == "expect":
        pairs = [("expect", f"{expect}; risk: {risk}" if risk else expect) if expect else ("risk", risk)]
    shown = tuple((label, text) for label, text in [*pairs, ("mind", plain(remedy.note))] if text)
    return Change(order, plain(remedy.says), tuple(change_of(setting) for setting in remedy.changes), shown)
