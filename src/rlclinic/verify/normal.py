"""What health is where the level before the onset does not say it: rows that were sick already, entropy that falls in every
run that learns, and a level that went past health into the opposite illness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from rlclinic.checks.readings import bought
from rlclinic.diagnose import diagnose
from rlclinic.model import Finding, Run, Severity
from rlclinic.stats.trend import trend
from rlclinic.verify.alignment import FEWEST, Pair
from rlclinic.verify.form import Cure
from rlclinic.verify.judged import KINDS, seen_by
from rlclinic.verify.levels import MARGIN

Limits: TypeAlias = Mapping[str, Mapping[str, Any]] | None

_LEARNING_LOWERS = ("entropy.mean", "entropy.sampled")
"""Metrics that fall in a healthy run too: their level before the onset is not where a healthy run of that age stands."""
_OPPOSITES: Sequence[tuple[frozenset[str], frozenset[str]]] = (
    (frozenset({"entropy_collapse", "entropy_cliff", "mode_collapse"}), frozenset({"entropy_rise", "entropy_near_random"})),
    (frozenset({"length_shrink", "empty_answers"}), frozenset({"length_explosion", "truncation", "never_eos"})),
    (frozenset({"tool_use_collapse"}), frozenset({"turn_explosion"})),
)  # fmt: skip
"""Checks that say too little and checks that say too much of one thing."""


def placed(finding: Finding, pair: Pair, limits: Limits) -> tuple[Finding, str]:
    """``finding`` without its onset where its check fires on the rows before it already, with the reason in words: these
    rows lie beyond the check's own limit, and are no healthy level."""
    if finding.onset is None or finding.check in KINDS:
        return finding, ""
    head = pair.before.upto(finding.onset.low - pair.pace / 2)
    if len(head.steps) < FEWEST or not _fires(head, finding.check, limits):
        return finding, ""
    return replace(finding, onset=None), f"the rows before step {finding.onset.step:g} set the check off too"


def sharpened(cure: Cure, pair: Pair, limits: Limits) -> Cure:
    """``cured`` where the entropy is not all the way back because the run learns.

    Asked of a run that was not sick at its begin: the check sees nothing in it, not even for information; the level is
    clearly off the sick one; the held-out score does not fall, and it or the reward rises. Undecided where the check
    would not fire on as many rows of the run before either.
    """
    way = cure.way
    if way is None or cure.metric not in _LEARNING_LOWERS or cure.verdict not in ("improving", "undecided"):
        return cure
    # Entropy that comes down to health has the other illness, and stands still higher than in a run that learns.
    if pair.relation == "continued" or cure.check != "silent" or way.low <= MARGIN or way.now > way.healthy:
        return cure
    gain = _gain(pair.after)
    if way.sick > way.healthy or not gain or _told(pair.after, cure.finding.check, limits) is not None:
        return cure
    seen = f"{cure.says}; the check sees nothing and the run learns ({gain})"
    if not _fires(pair.before.upto(float(pair.after.steps[-1])), cure.finding.check, limits):
        says = f"{seen}, but in as many rows of the run before it would not have fired either"
        more = max(FEWEST, len(pair.before.steps) - len(pair.after.steps))
        return replace(cure, verdict="undecided", possible=("cured", "improving"), says=says, more=more)
    says = f"{seen}: the rest is normal sharpening"
    return replace(cure, verdict="cured", possible=("cured",), says=says, more=None)


def overshot(cures: Iterable[Cure], new: Iterable[Finding]) -> tuple[Cure, ...]:
    """A level that is surely past the healthy one, where the opposite illness is new, is no cure."""
    there = [finding.check for finding in new]
    made = []
    for cure in cures:
        beyond = cure.way is not None and cure.way.low > 1.0 + MARGIN
        against = [check for check in there if check in _opposite(cure.finding.check)]
        if cure.verdict == "cured" and beyond and against:
            says = f"{cure.says}; it went past the healthy level into {', '.join(against)}"
            cure = replace(cure, verdict="overshot", possible=("overshot",), says=says)
        made.append(cure)
    return tuple(made)


def _opposite(check: str) -> frozenset[str]:
    for few, many in _OPPOSITES:
        if check in few or check in many:
            return many if check in few else few
    return frozenset()


def _gain(run: Run) -> str:
    """What a run has learned, in words: held-out score or reward rises, and the held-out score does not fall; else empty."""
    gain = bought(run, since=float(run.steps[0]))
    if gain is None or gain.metric != "eval.score" or gain.falling:
        return ""
    if gain.rising:
        return gain.says
    reward = run.get("reward.mean")
    slope = None if reward is None else trend(reward.finite.steps, reward.finite.values)
    if slope is None or slope.verdict != "rising":
        return ""
    return f"reward rose from {slope.start:.3g} to {slope.end:.3g}; {gain.says}"


def _told(run: Run, check: str, limits: Limits) -> Severity | None:
    exam = next((e for e in diagnose(run, only=[check], limits=limits).checks if e.check == check), None)
    return None if exam is None or exam.finding is None else exam.finding.severity


def _fires(run: Run, check: str, limits: Limits) -> bool:
    return seen_by(diagnose(run, only=[check], limits=limits), check)[0] == "fires"
