"""Readings of answers that were scored more than once: a reward that is not reproducible, that moved or that changed."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from rlclinic.answers.drift import REWARD, Repeats, repeats, sides
from rlclinic.checks.form import Answer, Limits
from rlclinic.checks.readings import at_seam, bought
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import lower_bound

_IN = "in the saved answers "
_JUDGE = re.compile(
    r"judge|grader|llm[-_ ]?as|critique|rubric|reward_?model|preference|majority|consensus"
    r"|self[-_ ]?(reward|eval|grad|consist|score)",
    re.I,
)
_ANCHORS = 5
"""Texts scored alike on both sides of a step from which the scoring did not change there (ours: chance gives one or two)."""


def scored_again(run: Run) -> dict[str, Repeats]:
    """What repeated answers say of each part of the reward, from the first table that holds any."""
    return next((dict(found) for table in run.rollouts if (found := repeats(table))), {})


def _samples(run: Run, one: Repeats) -> tuple[int, ...]:
    """Rows of the best table's training answers that show what was found; none where it was found in another table."""
    table = run.rollouts[0]
    if not repeats(table):
        return ()
    place = np.cumsum(~table.held_out) - 1
    return tuple(int(place[row]) for row in one.examples if not table.held_out[row])


def noisy(run: Run, limits: Limits) -> Finding | None:
    """Whether scores of one text within one group differ, and what share of the spread within groups that is."""
    found = scored_again(run)
    one = found.get(REWARD) or max(found.values(), key=lambda each: each.inside.texts, default=None)
    if one is None or one.inside.texts < limits["texts"]:
        return None
    if one.inside.unlike == 0:
        return Finding(None, f"{_IN}{reproducible(one)}", {"noise_share": 0.0}, ("reward.mean",))
    if one.inside.newness:
        says = (
            f"{_IN}{one.inside.unlike} answers earned more than their copies in the same group: a bonus for the first"
        )
        return Finding(None, says, {}, ("reward.mean",))
    noise = one.inside.noise
    if noise is None:
        return None
    share = min(noise.share, 1.0)
    least = f" (at least {noise.low:.0%})" if 0.005 < noise.low < share else ""
    severity = limits.grade("noise_share", min(noise.low, 1.0))
    gain = bought(run, since=float(run["reward.mean"].finite.steps[0])) if "reward.mean" in run else None
    if severity is not None and gain is not None and gain.rising and noise.low < limits["drowned"]:
        severity = Severity.INFO
    elif severity is not None and noise.low >= limits["drowned"] and gain is not None and not gain.rising:
        severity = Severity.CRITICAL
    parts = [name for name, part in found.items() if part.inside.unlike and name != REWARD and len(found) > 2]
    whose = f" (from {' and '.join(parts[:2])})" if parts else ""
    return Finding(
        severity=severity,
        says=f"{_IN}{one.inside.unlike} of {one.inside.texts} texts that stand twice in a group earned different rewards, "
        f"with a standard deviation of {noise.variance**0.5:.3g}{whose}: {share:.0%} of the variance within groups{least} "
        "is noise of the scoring" + (f"; {gain.says}" if severity is not None and gain is not None else ""),
        numbers={"noise_share": share, "noise_share_low": min(noise.low, 1.0), "noise_sd": noise.variance**0.5,
                 "texts": float(one.inside.texts)},
        metrics=tuple(m for m in ("reward.mean", "reward.group_std") if m in run),
        evidence=Evidence(share, None, "scores of the same text within one group; jackknife over groups"),
        # The saved answers were scored twice already: nothing is left to find out before the judge is calmed.
        remedies=("calm_judge", "advantage_scaling", "zero_variance_filter"),
        samples=_samples(run, one),
    )  # fmt: skip


def reproducible(one: Repeats) -> str:
    """Words for a reward that gave every repeated answer the same again."""
    if not one.reproducible:
        return f"{one.inside.texts} texts that stand twice in a group were scored the same there"
    many = one.inside.texts + one.across.texts
    return f"the reward is reproducible: {many} repeated answers, all scored the same"


def with_answers(run: Run, found: Answer | None, limits: Limits) -> Answer | None:
    """What the log shows of the scoring, or what saved answers show where that is as grave, or where nothing else is."""
    seen = [one for one in (_changed_at_once(run, limits), _flaky(run, limits)) if one is not None]
    worst = max(seen, key=lambda one: one.severity or 0, default=None)
    known = found.severity or 0 if isinstance(found, Finding) else 0
    if worst is not None and (worst.severity or 0) >= known:
        return worst
    return _on_both_sides(run, found) if isinstance(found, Finding) else found


def _on_both_sides(run: Run, found: Finding) -> Finding:
    """What the log shows, with what texts earned that were scored on both sides of it: the same, and the data changed."""
    if found.onset is None or found.onset.high <= found.onset.low or not run.rollouts:
        return found
    table = run.rollouts[0].train
    texts, changed, before, after = sides(table, found.onset.step)
    if changed:
        says = f"; {_IN}{changed} of {texts} texts scored on both sides earned {before:.3g}, then {after:.3g}"
        return replace(found, says=found.says + says)
    if texts >= _ANCHORS and found.severity is not None:
        says = f"; but {texts} texts scored on both sides earned the same: the data changed, not the scoring"
        return replace(found, says=found.says + says, severity=Severity.INFO)
    return found


def _flaky(run: Run, limits: Limits) -> Finding | None:
    """A right-or-wrong score that gives one text both verdicts within one group; judges by name have their own check."""
    found = scored_again(run)
    parts = [one for name, one in found.items() if name != REWARD] or list(found.values())
    one = max(
        (part for part in parts if part.inside.flips and not part.inside.newness),
        key=lambda part: part.inside.unlike,
        default=None,
    )
    if one is None or one.inside.texts < limits["texts"] or _JUDGE.search(one.name):
        return None
    unlike, texts = one.inside.unlike, one.inside.texts
    share = unlike / texts
    severity = limits.grade("flaky", lower_bound(share, texts))
    return Finding(
        severity=severity,
        says=f"{_IN}{unlike} of {texts} texts that stand twice in a group were scored right once and wrong once"
        + (f" by {one.name}" if one.name != REWARD else "") + ": the scoring is not reproducible",
        numbers={"flaky": share, "texts": float(texts)},
        evidence=Evidence(share, None, "verdicts on the same text within one group"),
        samples=_samples(run, one),
    )  # fmt: skip


def _changed_at_once(run: Run, limits: Limits) -> Finding | None:
    """A score of the same texts that changed at one step: the reward function did, whatever the policy does."""
    found = scored_again(run)
    one = max(
        (each for each in found.values() if each.across.at_once), key=lambda each: each.across.changed, default=None
    )
    one = found[REWARD] if REWARD in found and found[REWARD].across.at_once else one
    if one is None or one.across.at_once is None or one.inside.unlike:
        return None
    low, high, n = one.across.at_once
    before, after = one.across.before, one.across.after
    if not one.across.apart >= limits["jump"] * max(one.inside.spread, 1e-12):
        return None
    onset = Onset(high, low, high)
    seam = at_seam(run, onset, run["reward.mean"].finite) if "reward.mean" in run else ""
    return Finding(
        severity=Severity.INFO if seam else Severity.WARNING,
        says=f"{_IN}{n} texts that came again after step {low:g} earned {after:.3g} instead of {before:.3g} on average, "
        f"{one.across.apart:.3g} apart each: the scoring changed by step {high:g}, not the answers{seam}",
        numbers={"before": before, "late": after, "texts": float(n)},
        onset=onset,
        evidence=Evidence(one.across.apart, None, "scores of the same text before and after one step"),
        samples=_samples(run, one),
    )


def moved(run: Run, limits: Limits) -> Finding | None:
    """Whether the score of the same texts moves with time, as a judge that drifts; None where too few came again."""
    found = scored_again(run)
    parts = [one for name, one in found.items() if name != REWARD and one.across.texts >= limits["texts"]]
    whole = [one for one in (found.get(REWARD),) if one is not None and one.across.texts >= limits["texts"]]
    named = [one for one in parts if _JUDGE.search(one.name)]
    one = max(named or parts or whole, key=lambda each: each.across.changed, default=None)
    if one is None:
        return None
    what = "the reward" if one.name == REWARD else one.name
    if one.across.changed == 0:
        if one.across.reach < limits["reach"]:
            return None
        says = f"{_IN}{one.across.texts} answers that came again in later steps kept their score from {what}"
        return Finding(None, says, {"moved": 0.0}, ("reward.mean",))
    best, jump = one.across.trend, one.across.jump
    if best is None or (one.across.at_once is not None and not one.inside.unlike):
        return None
    stepped = jump is not None and jump.p_value <= limits["p_value"] and jump.explained > 1.2 * best.explained
    best = jump if stepped and jump is not None else best
    effect = abs(best.change) / one.inside.spread if one.inside.spread > 0 else 0.0
    judged = bool(_JUDGE.search(one.name)) or "judge" in run.knobs or one.inside.unlike > 0
    sure = best.p_value <= limits["p_value" if not judged else "faint"]
    severity = limits.grade("moved", effect) if sure else None
    if severity is not None and (not judged or best.p_value > limits["p_value"]):
        severity = Severity.INFO
    besides = "" if judged else "; a schedule or other answers of the group do so too"
    way = "rose" if best.change > 0 else "fell"
    when = f"at step {best.step:g}" if stepped else "over the run"
    steps = run.rollouts[0].steps
    onset = Onset(best.step, best.low, best.high) if stepped else Onset(*(float(steps[k]) for k in (0, 0, -1)))
    return Finding(
        severity=severity,
        says=f"{_IN}the score that {what} gives to the same texts {way} by {abs(best.change):.3g} {when} "
        f"({one.across.texts} texts in several steps){besides}"
        if sure
        else f"{_IN}the score of {one.across.texts} texts that came again shows no common move",
        numbers={"moved": effect, "change": best.change, "texts": float(one.across.texts)},
        metrics=("reward.component.mean",) if run.components else ("reward.mean",),
        onset=onset if severity is not None else None,
        evidence=Evidence(effect, best.p_value, "same texts over time, each with its own level; errors by prompt",
                          n=one.across.texts),
        remedies=("freeze_judge", "anchor_answers"),
        would_decide=("the score of a fixed set of answers, every few steps: it must not move",) if severity else (),
        samples=_samples(run, one),
    )  # fmt: skip
