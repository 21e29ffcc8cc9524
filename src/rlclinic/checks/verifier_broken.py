"""The reward function, not the policy, changed or fails: rewards no longer say how good an answer is.

## What you see
The reward becomes one and the same value, or steps to another level, while length and entropy go on as before. Or single
rows earn exactly the least amid good ones. Or there is only ever one value.

## Why it matters
A time-out or parser error that counts as 0 teaches that right answers are wrong; one that counts as 1, the opposite.
Every step after the change is lost or worse, and the policy that is blamed for it is sound.

## When it is not a problem
The policy broke: entropy, length or cut answers then move too. The data changed on purpose (a curriculum). A solved task
ends at its maximum, but gradually. A reward of 0 from the start may only mean that the task is too hard.
"""

from dataclasses import replace

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.groups import unequal
from rlclinic.checks.readings import POLICY, at_seam, policy_at
from rlclinic.checks.rescored import with_answers
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import early, late, middle
from rlclinic.stats.shift import spikes, steps_found

_SAME = 1e-9


@check(page=__doc__, needs=["reward.mean"], uses=[*POLICY, "reward.std", "eval.score"], since="0.2")
def verifier_broken(run: Run, limits: Limits) -> Answer:
    reward, attainable = run["reward.mean"].finite, run.reward_range
    if "kl.teacher" in run and not reward.values.any():
        return NotApplicable("the reward is never paid in this run; the objective is distillation")
    span = float(np.ptp(reward.values)) if attainable is None else attainable.high - attainable.low
    if float(np.ptp(reward.values)) < _SAME:
        found: Answer | None = _never_varied(run, reward, limits)
    else:
        least = limits["jump"] * span
        found = _stuck(run, reward, least, limits) or _stepped(run, reward, least, limits) or _outages(reward, limits)
    found = with_answers(run, found, limits)
    calm = Finding(None, "the reward neither stepped by itself nor got stuck", {"late": late(reward.values)})
    if not isinstance(found, Finding):
        return found or replace(calm, metrics=("reward.mean",))
    seen, cures = tuple(m for m in ("reward.mean", *POLICY) if m in run), ("score_gold_answers", "roll_back")
    ask = ("answers saved before and after, scored again now: do they earn what the log says?",)
    return replace(found, metrics=seen, remedies=cures, would_decide=ask)


def _stuck(run: Run, reward: Column, least: float, limits: Limits) -> Answer | None:
    """The reward jumped to one value and stayed exactly there, while the policy went on as before."""
    v = reward.values
    start = len(v) - int(np.argmax((np.abs(v - v[-1]) >= _SAME)[::-1]))
    before, rows = middle(v[max(0, start - 10) : start]), len(v) - start
    if min(start, rows) < limits["rows"] or abs(v[-1] - before) < least:
        return None
    at = float(reward.steps[start])
    moved, calm = policy_at(run, at)
    if not calm and not moved:
        return Unexamined(POLICY[:2], "the reward got stuck at one value; without entropy or length nothing tells why")
    if moved:
        return None
    onset = Onset(at, float(reward.steps[start - 1]), at)
    says = f"reward went from {before:.3g} to exactly {v[-1]:.3g} at step {at:g} and is the same in every row since, while "
    says += f"{' and '.join(calm[:2])} went on as before" + at_seam(run, onset, reward)
    how = Evidence(abs(float(v[-1]) - before), None, "one exact value after rows that varied")
    numbers = {"before": before, "late": float(v[-1]), "rows": float(rows)}
    return Finding(Severity.CRITICAL, says, numbers, onset=onset, evidence=how, wasted=rows / len(v))


def _stepped(run: Run, reward: Column, least: float, limits: Limits) -> Finding | None:
    """The reward stepped to another level and stayed, while nothing about the policy did."""
    for step in steps_found(reward.steps, reward.values, hidden=False):
        gone = late(reward.values) - np.array([step.before, early(reward.values)])  # coming back is no news
        held = (np.sign(step.jump) * gone).min() >= 0.5 * abs(step.jump)
        moved, calm = policy_at(run, step.step)
        small = step.size < limits["size"] or abs(step.jump) < least
        if small or not held or moved or len(calm) < 2 or _held_out_too(run, step.step, step.jump):
            continue
        onset = Onset(step.step, step.low, step.high)
        seam = at_seam(run, onset, reward)
        says = f"reward stepped from {step.before:.3g} to {step.after:.3g} at step {step.step:g}, while "
        says += f"{' and '.join(calm[:2])} went on as before: scoring or data changed, not the policy{seam}"
        how = Evidence(step.size, step.p_value, "step against a smooth curve, BIC, AR(1)-whitened", n=len(reward))
        numbers = {"before": step.before, "late": late(reward.values), "size": step.size}
        return Finding(Severity.INFO if seam else Severity.WARNING, says, numbers, onset=onset, evidence=how)
    return None


def _outages(reward: Column, limits: Limits) -> Finding | None:
    """Single rows in which every answer earned one and the same least reward, amid rows that earn well."""
    low, hits = float(reward.values.min()), spikes(reward.steps, reward.values, direction=-1)
    hits = hits[np.abs(reward.values[hits] - low) < _SAME]
    share, usual = len(hits) / len(reward), middle(reward.values)
    if len(hits) < limits["outages"]:
        return None
    says = f"in {len(hits)} rows every answer earned exactly {low:.3g}, amid rows near {usual:.3g}: the scoring failed there"
    how = Evidence(share, None, "rows at one exact least value, far below their neighbours")
    return Finding(limits.grade("share", share), says, {"share": share}, evidence=how, wasted=share)


def _never_varied(run: Run, reward: Column, limits: Limits) -> Finding | None:
    """One value from the first row on: a scorer that never matches, or a task that is too hard (or solved)."""
    dead, cut, length = (run.get(m) for m in ("group.all_dead", "length.truncated_frac", "length.response.mean"))
    unended = cut is not None and late(cut.finite.values, least=1) > limits["cut"]
    if dead is None or dead.values.min() < 1 or unequal(run) or unended:  # what is cut before its result earns nothing
        return None
    if length is not None and late(length.finite.values, least=1) < limits["tokens"]:
        return None
    value, at, rows = float(reward.values[0]), float(reward.steps[0]), len(reward)
    severity = Severity.WARNING if rows >= limits["constant"] and value <= 0 else Severity.INFO
    says = f"every answer earned exactly {value:.3g} ({rows} row{'s' * (rows > 1)}): "
    says += "the reward function may match none" if value <= 0 else "is it the most that can be earned?"
    how = Evidence(float(rows), None, "one exact value in every row")
    return Finding(severity, says, {"late": value}, onset=Onset(at, at, at), evidence=how)


def _held_out_too(run: Run, at: float, jump: float) -> bool:
    """Whether the held-out score moved the same way across a step: a policy can do that, a training scorer cannot."""
    score = run.get("eval.score")
    if score is None or len(score) < 2:
        return False
    gain = middle(score.finite.since(at).values[:3]) - middle(score.finite.upto(at).values[-3:])
    return bool(np.sign(jump) * gain > 0.3 * abs(jump))
