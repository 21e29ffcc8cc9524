"""Did the cure work: a run after a change against the diagnosis of the run before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlclinic.checks import BY_NAME
from rlclinic.diagnose import diagnose
from rlclinic.differential import MEASUREMENT
from rlclinic.model import Diagnosis, Finding, Severity
from rlclinic.verify.alignment import FEWEST, Pair, align, spliced, split
from rlclinic.verify.form import WORDS, Changed, Cure, Movement, Trial, Turned, Verification, Word
from rlclinic.verify.judged import judged
from rlclinic.verify.movement import movements
from rlclinic.verify.taken import confounders, trials

__all__ = [
    "FEWEST",
    "WORDS",
    "Changed",
    "Cure",
    "Movement",
    "Trial",
    "Turned",
    "Verification",
    "split",
    "verify",
]

_WORST_FIRST: tuple[Word, ...] = ("worse", "no_effect", "undecided", "improving", "cured")
_OF_LENGTH = frozenset({"plateau", "no_learning", "premature_stop", "eval_too_noisy", "lr_schedule_exhausted"})
"""Checks that speak of how far a run has come: in another length of log they are no news."""
_OF_JOIN = frozenset({"resume_discontinuity", "entropy_cliff", "sudden_collapse"})
"""Checks for breaks: where two logs are laid behind each other there may be one that no training has seen."""


def verify(
    before: Diagnosis,
    after: Diagnosis,
    *,
    resumed: float | None = None,
    one_log: bool = False,
    limits: Mapping[str, Mapping[str, Any]] | None = None,
) -> Verification:
    """A verdict on each finding of ``before`` at warning or above, judged by the run of ``after``.

    ``after`` is a fresh run with changed settings, or one that goes on from a checkpoint; ``resumed`` is the step of
    ``before`` where it does, should its own steps not tell. ``one_log``: both are parts of one log (``split``), whose
    settings before the change are not known. ``limits``: as for ``diagnose``.

    The level of the metric that shows the illness is measured against the run's own rows before the onset and from it
    on, its intervals corrected for the memory of the noise; see docs/verify.md. Raises BadRequest where the runs cannot
    be two attempts at one task, are the same, or ``after`` has fewer than ``FEWEST`` rows of its own.
    """
    was, now = before.run.last_attempt, after.run.last_attempt
    if one_log:
        was = replace(was, knobs={})
    with np.errstate(all="ignore"):
        pair = align(was, now, resumed)
        if len(pair.after.steps) < len(after.run.steps) or pair.after.steps[0] != after.run.steps[0]:
            after = diagnose(pair.after, limits=limits)
        found = [f for f in before.findings if f.severity is not None and f.severity >= Severity.WARNING]
        cures = _cures(found, pair, after, limits)
        new = _new(before, after, pair, limits) if found else ()
    verdict, says = _headline(cures, new)
    remarks = list(pair.remarks)
    if one_log:
        remarks.append("one log has one configuration: which setting changed at that step is not known")
    if cures and not any(t.taken in ("taken", "partly") for c in cures for t in c.trials):
        unknown = any(t.taken in ("no_setting", "unknown") for c in cures for t in c.trials)
        remarks.append(
            "whether a remedy was taken cannot be told from the settings; what moved is verified all the same"
            if unknown
            else "none of the prescribed changes was made; what moved has another cause"
        )
    return Verification(
        before,
        after,
        pair.relation,
        pair.start,
        len(pair.after.steps),
        verdict,
        says,
        cures,
        () if one_log else confounders(found, pair),
        new,
        tuple(remarks),
    )


def _cures(
    found: list[Finding], pair: Pair, after: Diagnosis, limits: Mapping[str, Mapping[str, Any]] | None
) -> tuple[Cure, ...]:
    names = {finding.check for finding in found}
    made = []
    for finding in found:
        tried = trials(finding, pair)
        cure = judged(finding, "consequence" if names & set(finding.because_of) else "root", pair, after, tried, limits)
        made.append(replace(cure, moves=movements(finding, pair, tried)))
    return tuple(made)


def _new(
    before: Diagnosis, after: Diagnosis, pair: Pair, limits: Mapping[str, Mapping[str, Any]] | None
) -> tuple[Finding, ...]:
    """Findings at warning or above that the run before did not have, in the run after, or in it behind the healthy rows
    of the run before where it goes on from them."""
    known = {f.check for f in before.findings if f.severity is not None and f.severity >= Severity.WARNING}
    looked = [exam.check for exam in before.checks if exam.check not in _OF_LENGTH]
    seen: dict[str, Finding] = {}
    for finding in after.findings:
        seen.setdefault(finding.check, finding)
    onsets = [f.onset.low for f in before.findings if f.onset is not None and (f.severity or 0) >= Severity.WARNING]
    if pair.relation != "fresh" and onsets:
        head = pair.before.upto(min(onsets) - pair.pace / 2)
        if len(head.steps) >= FEWEST:
            run, join = spliced(head, pair.after, pair.pace)
            there = {
                finding.check: finding
                for finding in diagnose(run, limits=limits, only=[c for c in looked if c not in _OF_JOIN]).findings
                if finding.onset is not None and finding.onset.high >= join
            }
            # A run that begins sick and recovers looks, by itself, as if it fell: entropy that comes down again collapses.
            by_itself = {c: f for c, f in seen.items() if f.tier == "certain" or c in there or c == "sudden_collapse"}
            seen = {**there, **by_itself}
    return tuple(
        finding
        for finding in seen.values()
        if (finding.severity or 0) >= Severity.WARNING
        and finding.check not in known
        and finding.check in looked
        and BY_NAME[finding.check].family != MEASUREMENT
    )


def _headline(cures: tuple[Cure, ...], new: tuple[Finding, ...]) -> tuple[Any, str]:
    """The overall verdict, that of the root that fares worst, and one sentence."""
    if not cures:
        return "nothing", "The run before has no finding at warning or above: there is nothing to verify."
    roots = [cure for cure in cures if cure.role == "root"]
    words = Counter(cure.verdict for cure in roots)
    verdict = next(word for word in _WORST_FIRST if words[word])
    told = []
    for word in _WORST_FIRST:
        of_it = [cure.finding.check for cure in roots if cure.verdict == word]
        if of_it:
            told.append(f"{'open' if word == 'undecided' else WORDS[word]}: {', '.join(of_it)}")
    heads = {
        "cured": "The cure worked",
        "improving": "The cure works, but not all the way",
        "no_effect": "The cure did not work",
        "worse": "It is worse than before",
        "undecided": "Whether the cure worked cannot be decided yet",
    }
    says = f"{heads[verdict]} ({'; '.join(told)})."
    waits = [cure.more for cure in roots if cure.verdict == "undecided" and cure.more]
    if verdict == "undecided" and waits:
        says += f" About {max(waits)} more logged rows would decide."
    if new:
        many = ", ".join(finding.check for finding in new)
        says += f" New since then: {many}."
    return verdict, says
