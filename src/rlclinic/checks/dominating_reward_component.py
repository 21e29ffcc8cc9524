"""A cheap part of the reward crowds out the task.

## What you see
One part, mostly format, style, length or tool use, carries most of the reward's variance or of its rise, and the part
that counts right answers stays flat or falls. Where parts are saved with the answers, a part's share is its covariance
with the reward within groups, and a part that is an exact function of the answer's length is named as one.

## Why it matters
Advantages follow the variance. A part that is easy to move and has most of it decides which answers are strengthened,
and the task is learnt only as far as it happens to agree.

## When it is not a problem
Learning the format first and the task after it, within about a hundred steps, is the normal order. A part that carries
most of the variance because it is the task, or while right answers become more frequent, does no harm.
"""

from dataclasses import replace

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import lasting, likeliest
from rlclinic.checks.rewards import leading, task_parts
from rlclinic.model import Evidence, Finding, Run, Severity
from rlclinic.stats.coupling import fall
from rlclinic.stats.level import early, late, late_mean
from rlclinic.stats.trend import plateau, trend


@check(page=__doc__, uses=["reward.component.mean", "reward.component.std", "reward.mean"], since="0.2")
def dominating_reward_component(run: Run, limits: Limits) -> Answer:
    if not run.components:
        return Unexamined(("reward.component.mean",), "the parts of the reward are not logged")
    if len(run.components) == 1:
        return NotApplicable("the reward has a single part")
    leader = leading(run)
    if leader is None:
        says = "neither the spread nor the weight of every reward part is known"
        return Unexamined(("reward.component.std",), f"{says}, so their shares cannot be told")
    task = task_parts(run)
    numbers, metrics = {"share": leader.share}, ("reward.component.mean", "reward.component.std")
    plain = f"reward part {leader.part.name}{leader.note} carries {leader.share:.0%} of {leader.of}"
    names = [part.name for part in task]
    graded = limits.grade("share", leader.share)
    if graded is None or leader.part.name in names or not names:
        what = "" if names else "; names do not tell which part is the task"
        return Finding(None, plain + what, numbers, metrics)
    aim = max(task, key=lambda part: len(part.mean.finite))
    right = aim.mean.finite
    steps = float(np.ptp(right.steps)) if len(right) else 0.0
    if run.short and (len(right) < limits["rows"] or run.excerpt):
        severity = Severity.INFO if graded > Severity.INFO else None
        return Finding(severity, f"{plain}; a few rows do not show what the task does", numbers, metrics)
    down = lasting(right, falling=True)
    peak = fall(right.steps, right.values)
    level, begun = late(right.values), early(right.values)
    lost = peak.p_value <= limits["p_value"] and peak.drop > max(limits["lost"] * abs(peak.peak), 1.4 * peak.sd)
    drift = trend(right.steps, right.values, share=True)
    rising = drift.verdict == "rising" or (lasting(right, falling=False) is not None and level > begun)
    if rising and not lost:
        return Finding(None, f"{plain}; {aim.name} rises all the same ({begun:.3g} to {level:.3g})", numbers, metrics)
    own, best = leader.part.mean.finite.values, peak.peak if lost or down is None else down.early
    weights = [part.weight for part in (leader.part, aim)]
    gain, loss = ((w or 0.0) * by for w, by in zip(weights, (late_mean(own) - early(own), best - level), strict=True))
    if (down is not None or lost) and gain < loss:
        says = f"{plain} now, but gained less than {aim.name} lost ({best:.3g} to {level:.3g}): something else took the task"
        return Finding(None, says, numbers, metrics)
    if down is None and not lost:
        still = plateau(right.steps, right.values, limits["still"]).flat is True
        early_days = steps < limits["patience"] or gain <= 0.0 or not still
        severity = Severity.INFO if early_days else min(graded, Severity.WARNING)
        says = f"{plain}, and {aim.name} {'stays' if still else 'is'} near {level:.3g}" + (
            " so far" if early_days else ""
        )
        onset = None
        evidence = Evidence(leader.share, None, "share of variance; no trend of the task part")
    else:
        method = "share of variance; fall of the task part"
        grew = gain > 0.0 or (leader.part.weight is None and late_mean(own) > early(own))
        severity = Severity.CRITICAL if grew else Severity.WARNING
        top, low = (peak.peak, peak.late) if lost or down is None else (down.early, down.late)
        says = f"{plain}, and {aim.name} fell from {top:.3g} to {low:.3g} (smoothed)"
        onset = down.onset if down is not None else peak.rollback
        shown = [Evidence(leader.share, peak.p_value, method, n=len(right))] if lost else []
        shown += [] if down is None else [down.sized(leader.share)]
        evidence = likeliest(shown, 2, leader.share) if down is None or down.evidence.of_chance else shown[-1]
        evidence = replace(evidence, method=method)
    if leader.since is not None and (onset is None or leader.since.step < onset.step):
        onset = leader.since
    first = float(run["reward.mean"].finite.steps[0]) if "reward.mean" in run else None
    if onset is not None and first is not None and first < onset.low:
        says += f"; {leader.part.name} is paid since step {first:g}"
        if leader.since is not None and first < leader.since.step <= onset.step:
            says += f" and dominates since step {leader.since.step:g}"
    return Finding(
        severity=severity,
        says=says,
        numbers={**numbers, "task_early": begun, "task_late": level},
        metrics=metrics,
        onset=onset,
        acts_from=first,
        evidence=evidence,
        remedies=(
            *(("cap_part",) if leader.by_length else ()),
            "reward_weights",
            # What pays against the task does so at any scale of the advantages.
            *(("advantage_scaling",) if down is None and not lost else ()),
            "read_top_answers",
        ),
        would_decide=("the held-out score of the task alone",) if "eval.score" not in run else (),
    )
