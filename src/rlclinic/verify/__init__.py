"""Did the cure work: a run after a change against the diagnosis of the run before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlclinic.checks import BY_NAME
from rlclinic.diagnose import diagnose
from rlclinic.differential import MEASUREMENT
from rlclinic.model import Diagnosis, Finding, Severity
from rlclinic.verify.alignment import FEWEST, Pair, align, spliced, split, unlike_rewards
from rlclinic.verify.form import WORDS, Changed, Cure, Movement, Trial, Turned, Verification
from rlclinic.verify.judged import judged
from rlclinic.verify.movement import movements
from rlclinic.verify.normal import cost, overshot, placed, sharpened, slowed
from rlclinic.verify.taken import confounders, trials
from rlclinic.verify.words import agreed, headline

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
        new = _new(before, after, pair, limits)
        cures = overshot(cures, new)
    verdict, says = headline(cures, after, new)
    if verdict in ("cured", "improving") and (lost := cost(pair)):
        says = f"{says} {lost}"
    remarks = [*pair.remarks, *_other_model(pair)]
    if unlike_rewards(was, now):
        remarks.append(
            "no reward part in common: rewards are not compared, only what is held out and what else is logged"
        )
    if not found and before.verdict.severity == "undecided":
        remarks.append(
            f"the run before could not be judged, so what there is to cure is not known: {before.verdict.says}"
        )
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


def _other_model(pair: Pair) -> list[str]:
    """Levels of entropy, length and the like belong to a model: one that was exchanged is told."""
    names = [run.knob("model") or run.facts.get("model") for run in (pair.before, pair.after)]
    one, other = (str(name).replace("\\", "/").rstrip("/").rpartition("/")[2] for name in names)
    if all(names) and one != other:
        return [f"the model is {one[:80]} before and {other[:80]} after: levels of another model show little"]
    return []


def _cures(
    found: list[Finding], pair: Pair, after: Diagnosis, limits: Mapping[str, Mapping[str, Any]] | None
) -> tuple[Cure, ...]:
    names = {finding.check for finding in found}
    made = []
    for one in found:
        finding, why = placed(one, pair, limits)
        tried = trials(finding, pair)
        cure = judged(finding, "consequence" if names & set(finding.because_of) else "root", pair, after, tried, limits)
        cure = slowed(sharpened(cure, pair, limits), pair, names)
        says = f"{cure.says}; {why}" if why else cure.says
        made.append(replace(cure, says=says, moves=movements(finding, pair, tried)))
    return agreed(made)


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
    if pair.relation != "fresh" and (onsets or not known):
        head = pair.before.upto(min(onsets) - pair.pace / 2) if onsets else pair.before.upto(pair.start or 0.0)
        if len(head.steps) >= FEWEST:
            run, join = spliced(head, pair.after, pair.pace)
            slack = 0.0 if onsets else pair.pace  # the change of a run that was well may show in its last row
            there = {
                finding.check: finding
                for finding in diagnose(run, limits=limits, only=[c for c in looked if c not in _OF_JOIN]).findings
                if finding.onset is not None and finding.onset.high >= join - slack
            }
            # A run that begins sick and recovers looks, by itself, as if it fell: entropy that comes down again collapses.
            by_itself = {c: f for c, f in seen.items() if f.tier == "certain" or c in there or c == "sudden_collapse"}
            graver = {c: f for c, f in there.items() if c in seen and (f.severity or 0) > (seen[c].severity or 0)}
            seen = {**there, **by_itself, **graver}
    return tuple(
        finding
        for finding in seen.values()
        if (finding.severity or 0) >= Severity.WARNING
        and finding.check not in known
        and finding.check in looked
        and BY_NAME[finding.check].family != MEASUREMENT
    )
