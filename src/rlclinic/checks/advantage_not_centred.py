"""Advantages carry the raw reward: no baseline is subtracted.

## What you see
The largest and the smallest advantage equal those of the reward row by row, whole batches have advantages of one sign,
and their mean follows the mean reward. Often because there is one answer per prompt with a group-relative estimator.

## Why it matters
Without a baseline every answer with a positive reward is reinforced, good or bad, and every one with a negative reward
is pushed down. What tells answers apart drowns in the level of the reward: the gradient is noise for the most part, and
entropy follows the sign of the reward.

Saved answers decide it: advantages are worked out again from their rewards and groups. A group name for each answer to
one prompt makes groups of one, as does an id that is drawn per answer.

## When it is not a problem
A mean that is merely not 0: it is weighted by tokens in most trainers, and wrong answers are longer. Leave-one-out
baselines, whitening over the batch, filtered batches and a critic all give means beside 0 too. REINFORCE without a
baseline, when chosen on purpose.
"""

import numpy as np

from rlclinic.checks.baselines import Baseline, baseline, extremes, mean_follows
from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.model import Evidence, Finding, Onset, Run, Severity

_RELATIVE = ("grpo", "rloo", "dr_grpo", "gspo", "dapo")
"""Estimators whose baseline is the mean of the group."""
_CURES = ("larger_groups", "batch_baseline", "check_group_ids")


@check(
    page=__doc__,
    needs=["reward.mean"],
    uses=["advantage.max", "advantage.min", "advantage.mean", "reward.max", "reward.min"],
    since="0.2",
)
def advantage_not_centred(run: Run, limits: Limits) -> Answer:
    if run.algorithm in ("ppo", "gae") or "value.loss" in run:
        return NotApplicable("a critic gives the baseline; its advantages need not agree with group means")
    proof = baseline(run, limits.at("share", Severity.CRITICAL), int(limits["prompts"]))
    if proof is not None and (proof.severity is not None or proof.centred):
        return _proven(proof)
    single = run.number("group_size") == 1 and run.algorithm in _RELATIVE
    seen = extremes(run, limits["tolerance"])
    follows = mean_follows(run, limits)
    if seen is None and follows is None:
        return _by_configuration(run) if single else _blind()
    steps, equal, one_sign = seen if seen is not None else (run["reward.mean"].finite.steps, np.zeros(0), np.zeros(0))
    share = float(np.mean(equal)) if len(equal) else float(bool(follows))
    one_signed = float(np.mean(one_sign)) if len(one_sign) else 0.0
    # Plus and minus 1 can meet as rewards and as centred advantages of pairs; sign or mean then tells them apart.
    proven = share if follows or one_signed > 0 else 0.0
    severity = limits.grade("share", proven)
    if severity is None and single and not len(equal):
        return _by_configuration(run)
    same = f"the largest and smallest advantage equal those of the reward in {np.sum(equal):.0f} of {len(equal)} rows"
    parts = [same if len(equal) else "the mean advantage equals the mean reward row by row"]
    parts += [f"all of one sign in {one_signed:.0%} of rows"] if one_signed else []
    parts += ["their mean follows the mean reward"] if follows and len(equal) else []
    parts += ["groups hold one answer, so they give no baseline"] if single else []
    healthy = f"advantages are no copy of the rewards (equal extremes in {share:.0%} of rows)"
    first = float(steps[0])
    return Finding(
        severity=severity,
        says="; ".join(parts) if severity is not None else healthy,
        numbers={"share": share, "one_sign": one_signed, "rows": float(len(equal))},
        metrics=tuple(m for m in ("advantage.max", "advantage.min", "advantage.mean", "reward.mean") if m in run),
        onset=Onset(first, first, first) if severity is not None else None,
        evidence=Evidence(proven, None, "advantages and rewards compared row by row"),
        remedies=_CURES if single else ("check_group_ids", "larger_groups", "batch_baseline"),
        would_decide=()
        if single
        else ("saved rewards by prompt: advantages recomputed from them must equal the logged",),
    )


def _proven(proof: Baseline) -> Finding:
    return Finding(
        severity=proof.severity,
        says=proof.says,
        numbers={"share": proof.share},
        metrics=("reward.mean",),
        onset=None if proof.severity is None else Onset(proof.since, proof.since, proof.since),
        evidence=Evidence(proof.share, None, "advantages worked out again from the saved rewards and groups"),
        remedies=("check_group_ids", "larger_groups", "batch_baseline") if proof.grouped else _CURES,
        would_decide=() if proof.severity != Severity.INFO else ("which estimator this run was meant to use",),
    )


def _by_configuration(run: Run) -> Finding:
    key = run.knobs["group_size"].key
    verl = run.framework is not None and run.framework.name == "verl"
    then = (
        "this trainer then takes the reward itself" if verl else "the advantage is then the reward itself, or always 0"
    )
    return Finding(
        severity=Severity.INFO,
        says=f"{key} = 1 with {run.algorithm}: groups of one answer have no mean to subtract; {then}",
        numbers={"group_size": 1.0},
        evidence=Evidence(1.0, None, "configuration"),
        remedies=_CURES,
        would_decide=("largest and smallest advantage beside those of the reward",),
    )


def _blind() -> Unexamined:
    return Unexamined(("advantage.max", "advantage.min"), "advantages are not logged beside the rewards")
