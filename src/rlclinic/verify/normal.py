"""What health is where the level before the onset does not say it: rows that were sick already, entropy that falls in every
run that learns, and a level that went past health into the opposite illness."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from rlclinic.checks.readings import bought
from rlclinic.diagnose import diagnose
from rlclinic.model import Finding, Run, Severity
from rlclinic.stats.trend import trend
from rlclinic.verify.alignment import FEWEST, Pair
from rlclinic.verify.form import Cure
from rlclinic.verify.judged import KINDS, seen_by
from rlclinic.verify.levels import MARGIN, incomparable, series
from rlclinic.verify.taken import peak_rate

Limits: TypeAlias = Mapping[str, Mapping[str, Any]] | None

_LEARNING_LOWERS = ("entropy.mean", "entropy.sampled")
"""Metrics that fall in a healthy run too: their level before the onset is not where a healthy run of that age stands."""
SLOWER = 1.5
"""Ratio of the learning rates before and after from which a run is behind another of the same age (ours)."""
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


def slowed(cure: Cure, pair: Pair, roots: Iterable[str]) -> Cure:
    """``undecided`` where an illness that came with the steps may still come: AFTER takes smaller ones, and is not as far.

    At half of the learning rate a run is at step 200 about where the other was at step 100. Not asked where the learning
    rate was the illness, where another remedy of the finding was taken, and of a run that was sick from its begin.
    """
    onset, rates = cure.finding.onset, [peak_rate(run) for run in (pair.before, pair.after)]
    other = any(
        trial.taken in ("taken", "partly") and trial.settings and {s.knob for s in trial.settings} != {"learning_rate"}
        for trial in cure.trials
    )
    if (
        cure.verdict != "cured"
        or cure.absent
        or pair.relation == "continued"
        or onset is None
        or other
        or None in rates
    ):
        return cure
    was, now = (float(rate or 0.0) for rate in rates)
    if "lr_too_high" in roots or now <= 0 or was < SLOWER * now or int((pair.before.steps < onset.low).sum()) < FEWEST:
        return cure
    begin = float(pair.before.steps[0]) if pair.start is None else pair.start
    due, last = begin + (onset.high - begin) * was / now, float(pair.after.steps[-1])
    if last >= due + FEWEST * pair.pace:
        return cure
    says = (
        f"{cure.says}; but at a learning rate of {now:g} instead of {was:g} what came at step {onset.step:g} would come "
        f"near step {due:.0f}"
    )
    more = math.ceil((due - last) / pair.pace) + FEWEST
    return replace(cure, verdict="undecided", possible=("cured", "improving", "no_effect"), says=says, more=more)


def cost(pair: Pair) -> str:
    """A held-out score that is lower than that of the run before at the same steps, in words; empty where it is not.

    The later half of the common evaluations, three or more of each run: four standard errors and a tenth of the level.
    """
    one, other = series(pair.before, "eval.score"), series(pair.after, "eval.score")
    if pair.relation == "continued" or one is None or other is None or incomparable(pair, "eval.score", one, other):
        return ""
    last = min(float(one.steps[-1]), float(other.steps[-1]))
    was, now = (c.finite.upto(last).since(last / 2).values for c in (one, other))
    if min(len(was), len(now)) < 3:
        return ""
    error = math.hypot(*(float(np.std(values, ddof=1)) / math.sqrt(len(values)) for values in (was, now)))
    fall = float(was.mean() - now.mean())
    if fall <= max(4.0 * error, 0.1 * abs(float(was.mean()))):
        return ""
    return f"The held-out score is {now.mean():.3g} where the run before had {was.mean():.3g} at the same steps."


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
