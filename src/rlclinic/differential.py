"""Which finding stands behind which: roots, consequences, and roots that compete for the same consequence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rlclinic.checks import BY_NAME
from rlclinic.model import Finding, Severity

MEASUREMENT = "measurement"
"""Family of the checks that speak of the log rather than of the run."""


def order(found: Iterable[Finding]) -> list[Finding]:
    """Findings with causes before consequences: roots by severity and by how much they explain, each followed by what
    it explains. The result does not depend on the order of ``found``."""
    findings = {finding.check: finding for finding in found}
    causes: dict[str, list[str]] = {name: [] for name in findings}
    for name, finding in findings.items():
        for effect in BY_NAME[name].leads_to:
            if effect not in findings:
                continue
            if effect in BY_NAME[name].companion_of and not _clearly_before(finding, findings[effect]):
                if _can_explain(findings[effect], finding):
                    causes[name].append(effect)
            elif _can_explain(finding, findings[effect]):
                causes[effect].append(name)
    _cut_circles(causes)
    explains = {name: [e for e, why in causes.items() if name in why] for name in findings}

    def gravity(name: str) -> int:
        """Of a root the severity of the worst that it led to: an early cause is told before its loud effects."""
        if causes[name]:
            return int(findings[name].severity or 0)
        return max(int(findings[one].severity or 0) for one in (name, *_reached(name, explains)))

    def weight(name: str) -> tuple[float, ...]:
        finding = findings[name]
        one = BY_NAME[name]
        since = finding.onset.step if finding.onset is not None else float("inf")
        proven = one.tier == "certain"
        measured = one.family == MEASUREMENT
        return (
            measured,
            -gravity(name),
            -(finding.severity or 0),
            one.symptom,
            not any(n.startswith("not_") for n in finding.numbers),  # it proves that a usual cause is not its cause
            -len(explains[name]),
            not proven,
            since,
        )

    ranked = sorted(findings, key=lambda name: (*weight(name), name))
    placed: list[str] = []

    def place(name: str) -> None:
        if name in placed or any(cause not in placed for cause in causes[name]):
            return
        placed.append(name)
        for effect in sorted(explains[name], key=lambda e: (*weight(e), e)):
            place(effect)

    for name in ranked:
        place(name)
    return [
        replace(findings[name], because_of=tuple(sorted(causes[name])), leads_to=tuple(sorted(explains[name])))
        for name in placed
    ]


def told_once(found: Iterable[Finding]) -> list[Finding]:
    """The findings without those that say less of what another one warns of."""
    listed = list(found)
    said = {one for f in listed if (f.severity or 0) >= Severity.WARNING for one in BY_NAME[f.check].stands_for}
    return [f for f in listed if f.check not in said]


def dated(ordered: Iterable[Finding], row: float) -> list[Finding]:
    """The ordered findings with no consequence dated before its cause; ``row`` is the usual distance of two rows, in steps.

    Both onsets are estimates. A consequence that may lie within two rows of its cause is dated with it; where it surely
    began earlier, so did the cause, as early as its own interval allows. A symptom, such as a flat stretch, has no edge
    that could date its cause.
    """
    listed = list(ordered)
    by_check = {f.check: f for f in listed}
    for effect in reversed(listed):
        for name in effect.because_of:
            cause, began = by_check[name], by_check[effect.check].onset
            if cause.onset is None or began is None or BY_NAME[effect.check].symptom:
                continue
            if cause.onset.step <= began.high + 2 * row:
                continue
            least = cause.onset.low if cause.acts_from is None else min(cause.onset.low, cause.acts_from)
            step = max(least, began.high)
            by_check[name] = replace(cause, onset=replace(cause.onset, step=step, low=min(cause.onset.low, step)))
    for effect in listed:
        began = by_check[effect.check].onset
        causes = [onset.step for name in effect.because_of if (onset := by_check[name].onset) is not None]
        near = math.inf if BY_NAME[effect.check].symptom else 2 * row
        if began is not None and causes and began.step < max(causes) <= began.high + near:
            step = max(causes)
            by_check[effect.check] = replace(
                by_check[effect.check], onset=replace(began, step=step, high=max(began.high, step))
            )
    return [by_check[f.check] for f in listed]


def _clearly_before(cause: Finding, effect: Finding) -> bool:
    return cause.onset is not None and effect.onset is not None and cause.onset.step < effect.onset.low


def _cut_circles(causes: dict[str, list[str]]) -> None:
    """Drop the causes that would make a circle. Edges between companions may run against the graph of the tables, so a
    chance meeting of onsets could close one."""
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        for cause in list(causes[name]):
            if cause in path or cause == name:
                causes[name].remove(cause)
            elif cause not in done:
                walk(cause, (*path, name))
        done.add(name)

    for name in sorted(causes):
        if name not in done:
            walk(name, ())


def _can_explain(cause: Finding, effect: Finding) -> bool:
    """Whether ``cause`` may stand before ``effect``: serious enough, and not later within both intervals.

    A finding without an onset was there in every row shown.
    """
    if (cause.severity or 0) < Severity.WARNING or effect.own_cause:
        return False
    if effect.numbers.get(f"not_{cause.check}"):
        return False
    least = BY_NAME[cause.check].explains_from
    if not effect.numbers.get(f"of_{cause.check}") and any(cause.numbers.get(n, 0.0) < least[n] for n in least):
        return False
    if cause.onset is None or effect.onset is None:
        return True
    begun = cause.onset.low if cause.acts_from is None else min(cause.onset.low, cause.acts_from)
    return begun <= effect.onset.high


def ancestors(name: str, findings: Mapping[str, Finding]) -> set[str]:
    """Every finding that stands behind the named one."""
    return _reached(name, {f.check: f.because_of for f in findings.values()})


def descendants(name: str, findings: Mapping[str, Finding]) -> set[str]:
    """Every finding that the named one stands behind."""
    return _reached(name, {f.check: f.leads_to for f in findings.values()})


def _reached(name: str, edges: Mapping[str, Sequence[str]]) -> set[str]:
    seen: set[str] = set()
    stack = list(edges.get(name, ()))
    while stack:
        other = stack.pop()
        if other not in seen:
            seen.add(other)
            stack.extend(edges.get(other, ()))
    return seen


def rivalled(ordered: Iterable[Finding]) -> list[Finding]:
    """The ordered findings, with roots that explain the same consequence and are hard to tell apart named as each
    other's rivals, and with the measurement that decides between them."""
    listed = list(ordered)
    findings = {f.check: f for f in listed}
    roots = [f.check for f in listed if not f.because_of and (f.severity or 0) >= Severity.WARNING]
    reach = {name: descendants(name, findings) for name in roots}
    told = []
    for finding in listed:
        mine = reach.get(finding.check, set())
        apart = {other: told_apart(finding.check, other) for other in roots if reach[other] & mine}
        rivals = {other: ask for other, ask in apart.items() if ask and other != finding.check}
        asks = dict.fromkeys([*finding.would_decide, *rivals.values()])
        told.append(replace(finding, rivals=tuple(rivals), would_decide=tuple(asks)))
    return told


def told_apart(one: str, other: str) -> str:
    """The measurement that separates two failures, as the table of either names it; empty when neither does."""
    return BY_NAME[one].rivals.get(other) or BY_NAME[other].rivals.get(one) or ""
