"""Advantages carry the raw reward: no baseline is subtracted.

## What you see
The largest and the smallest advantage equal those of the reward row by row, whole batches have advantages of one sign,
and their mean follows the mean reward. Often because there is one answer per prompt with a group-relative estimator.

## Why it matters
Without a baseline every answer with a positive reward is reinforced, good or bad, and every one with a negative reward
is pushed down. What tells answers apart drowns in the level of the reward: the gradient is noise for the most part, and
entropy follows the sign of the reward.

## When it is not a problem
A mean that is merely not 0: it is weighted by tokens in most trainers, and wrong answers are longer. Leave-one-out
baselines, whitening over the batch, filtered batches and a critic all give means beside 0 too. REINFORCE without a
baseline, when chosen on purpose.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.model import Evidence, Finding, Floats, Onset, Run, Severity

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
    single = run.number("group_size") == 1 and run.algorithm in _RELATIVE
    seen = _extremes(run, limits["tolerance"])
    follows = _follows(run, limits)
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


def _extremes(run: Run, tolerance: float) -> tuple[Floats, Floats, Floats] | None:
    """(steps, rows in which both extremes agree, rows in which all advantages have one sign); None without the extremes.

    Rows without any advantage or reward that differs from 0 say nothing and are left out.
    """
    best: tuple[Floats, Floats, Floats] | None = None
    for kind in ("reward", "reward.shaped"):
        steps, top, most = run.paired("advantage.max", f"{kind}.max")
        other, bottom, least = run.paired("advantage.min", f"{kind}.min")
        steps, i, j = np.intersect1d(steps, other, assume_unique=True, return_indices=True)
        top, most, bottom, least = top[i], most[i], bottom[j], least[j]
        told = (np.maximum(np.abs(most), np.abs(least)) > 0) & (np.maximum(np.abs(top), np.abs(bottom)) > tolerance)
        if not told.any():
            continue
        rounding = max(run["advantage.max"].resolution, run[f"{kind}.max"].resolution)
        near = tolerance * np.maximum(np.abs(most), np.abs(least)) + rounding
        equal = (np.abs(top - most) <= near) & (np.abs(bottom - least) <= near)
        one_sign = equal & ((bottom >= 0) | (top <= 0))
        found = steps[told], equal[told].astype(float), one_sign[told].astype(float)
        if best is None or found[1].mean() > best[1].mean():
            best = found
    return best


def _follows(run: Run, limits: Limits) -> bool | None:
    """Whether the mean advantage is the mean reward, row by row, to a share of its size; None when it cannot be told."""
    _, advantage, reward = run.paired("advantage.mean", "reward.mean")
    if not len(reward) or float(np.median(np.abs(reward))) <= limits["tolerance"]:
        return None
    extremes = "advantage.max" in run and "reward.max" in run
    if not extremes and (len(reward) < limits["rows"] or float(np.ptp(reward)) == 0.0):
        return None  # one level may agree with another by chance; a course may not
    off = float(np.median(np.abs(advantage - reward)))
    scale = float(np.median(np.abs(reward))) if extremes else float(np.ptp(reward))
    return off <= limits["off"] * scale


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
