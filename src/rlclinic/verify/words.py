"""The overall verdict of a verification and the sentence that tells it: what is cured, what is not, what is new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rlclinic.checks import BY_NAME
from rlclinic.differential import MEASUREMENT
from rlclinic.model import Diagnosis, Finding, Severity
from rlclinic.verify.form import Cure, Word

_WORST_FIRST: tuple[Word, ...] = ("worse", "overshot", "no_effect", "undecided", "improving", "cured")
_FEW = 6
"""Findings that a sentence names; the report lists them all."""
_HEADS: dict[Word, str] = {
    "cured": "The cure worked",
    "improving": "The cure works, but not all the way",
    "no_effect": "The cure did not work",
    "worse": "It is worse than before",
    "overshot": "The change went too far, into the opposite illness",
    "undecided": "Whether the cure worked cannot be decided yet",
}


def headline(cures: Sequence[Cure], after: Diagnosis, new: Sequence[Finding]) -> tuple[Any, str]:
    """The overall verdict, that of the root that fares worst, and one sentence: it names whatever an exit code is about."""
    measured = all(BY_NAME[cure.finding.check].family == MEASUREMENT for cure in cures)
    if not cures or (measured and any((finding.severity or 0) >= Severity.CRITICAL for finding in new)):
        return _nothing_before(after, new, "" if not cures else " but about its log")
    roots = [cure for cure in cures if cure.role == "root"]
    verdict = next(word for word in _WORST_FIRST if any(cure.verdict == word for cure in roots))
    worse = _WORST_FIRST[: _WORST_FIRST.index(verdict)]
    left = [cure for cure in cures if cure.role != "root" and cure.verdict in worse]
    head = _HEADS[verdict]
    if verdict == "cured" and new:
        grave = any((finding.severity or 0) >= Severity.CRITICAL for finding in new)
        head = f"What was wrong is cured, but the run is {'critical' if grave else 'not well'}"
    elif verdict == "cured" and left:
        open_only = all(cure.verdict == "undecided" for cure in left)
        head = "What began it is cured, " + ("but not all is decided yet" if open_only else "but not all that followed")
    says = f"{head} ({_by_word(roots)})."
    waits = [cure.more for cure in roots if cure.verdict == "undecided" and cure.more]
    if verdict == "undecided" and waits:
        says += f" About {max(waits)} more logged rows would decide."
    if left:
        says += f" Of what followed, {_by_word(left)}."
    if new:
        says += f" New since then: {_named(finding.check for finding in new)}."
    return verdict, says


def _nothing_before(after: Diagnosis, new: Sequence[Finding], but: str = "") -> tuple[Any, str]:
    """No illness to cure: the run after is looked at all the same, since a change can harm a run that was well."""
    none = f"The run before has no finding at warning or above{but}"
    if not new:
        if after.verdict.severity == "undecided":
            return (
                "nothing",
                f"{none}: there is nothing to verify. The run after could not be judged: {after.verdict.says}",
            )
        return "nothing", f"{none}: there is nothing to verify."
    critical = [finding for finding in new if (finding.severity or 0) >= Severity.CRITICAL]
    told = f"New since then: {_named(finding.check for finding in critical or new)}"
    if not critical:
        return "nothing", f"{none}, so there is no cure to verify; but the run after has warnings. {told}."
    mild = len(new) - len(critical)
    beside = f" (critical), and {mild} at warning" if mild else " (critical)"
    return "worse", f"It is worse than before: {none[0].lower()}{none[1:]}, the run after is critical. {told}{beside}."


def _by_word(cures: Sequence[Cure]) -> str:
    told = []
    for word in _WORST_FIRST:
        of_it = [cure for cure in cures if cure.verdict == word and not cure.absent]
        if of_it:
            told.append(
                f"{'open' if word == 'undecided' else word.replace('_', ' ')}: {_named(map(_with_rows, of_it))}"
            )
    if absent := [cure.finding.check for cure in cures if cure.absent]:
        told.append(f"did not occur: {_named(absent)}")
    return "; ".join(told)


def _with_rows(cure: Cure) -> str:
    more = f" ({cure.more} more rows)" if cure.role != "root" and cure.verdict == "undecided" and cure.more else ""
    return f"{cure.finding.check}{more}"


def _named(names: Iterable[str]) -> str:
    every = list(names)
    rest = f" and {len(every) - _FEW} more" if len(every) > _FEW else ""
    return f"{', '.join(every[:_FEW])}{rest}"


def agreed(cures: Sequence[Cure]) -> tuple[Cure, ...]:
    """One metric, one verdict: where a finding stays open by the metric that decided on its own cause, and allows that
    verdict, it has it. The windows of the two differ only in where the illness is taken to begin."""
    decided = {cure.finding.check: cure for cure in cures if cure.verdict != "undecided" and cure.metric and cure.way}
    made = []
    for cure in cures:
        causes = [decided[check] for check in cure.finding.because_of if check in decided]
        cause = next((one for one in causes if one.metric == cure.metric and one.verdict in cure.possible), None)
        if cure.verdict != "undecided" or cure.check == "fires" or cause is None:
            made.append(cure)
            continue
        says = f"{cure.says}; the same metric decides on its cause {cause.finding.check}"
        made.append(replace(cure, verdict=cause.verdict, possible=(cause.verdict,), says=says, more=None))
    return tuple(made)
