"""Answers to one prompt become near copies: more tries no longer find what one try misses.

## What you see
Held-out pass@k (or best of n) comes down to pass@1: of what one answer misses, further answers recover less and less,
although much is still missed. In saved answers, the texts of a group are nearly the same.

## Why it matters
A policy that gives one answer per prompt has nothing left to choose from: groups agree, the gradient dies, and the run
ends at what the base model could do with several tries. Token entropy may look fine all the while.

## When it is not a problem
The gap narrows in every good run, because pass@1 rises towards pass@k, and while pass@k rises too. A score that
falls takes both down. Fixed sampling seeds make copies without the policy's doing.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import lasting
from rlclinic.model import ROLLOUTS, Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import middle, rank_p
from rlclinic.stats.trend import trend


@check(page=__doc__, uses=["eval.pass_at_k", "eval.best_of_n", "eval.score", "group.zero_var_frac"], since="0.2")
def mode_collapse(run: Run, limits: Limits) -> Answer:
    many = next((m for m in ("eval.pass_at_k", "eval.best_of_n") if m in run), None)
    if many is None or "eval.score" not in run:
        return Unexamined((ROLLOUTS, "eval.pass_at_k"), "needs saved answers, or held-out pass@k beside pass@1")
    steps, best, one = run.paired(many, "eval.score")
    top = _top(run, best, one)
    if len(steps) < limits["points"] or top is None:
        return Unexamined(
            (ROLLOUTS, many), f"{len(steps)} held-out points with several tries; at least {limits['points']:.0f}"
        )
    missed = top - one
    if float(np.median(missed)) < limits["missed"] * (top - min(0.0, float(one.min()))) or (best < one - 1e-9).any():
        return Finding(
            None, "little is missed by one answer, so more tries have nothing to find", metrics=(many, "eval.score")
        )
    recovered = Column(many, run[many].key, steps, (best - one) / np.maximum(missed, 1e-9))
    third = max(2, len(steps) // 3)
    first, last = middle(recovered.values[:third]), middle(recovered.values[-third:])
    left = last / first if first > 0 else 1.0
    fall = lasting(recovered, falling=True, level=limits["p_value"])
    sure = fall is not None or (rank_p(recovered.values) <= limits["p_value"] and last < first)
    sunk = middle(one[-third:]) < middle(one[:third]) - 0.05 * (top - middle(one[:third]))
    severity = limits.grade("left", left) if sure and not sunk and first > limits["spread"] else None
    way = trend(steps, best, share=True).verdict
    lost = middle(best[:third]) - middle(best[-third:])
    falls = lost > 0 and (way == "falling" or rank_p(best) <= limits["p_value"])
    if severity is not None and way == "rising":
        severity = Severity.INFO
    elif severity is not None and falls:
        severity = Severity.CRITICAL
    began = fall.onset if fall is not None else Onset(float(steps[0]), float(steps[0]), float(steps[-third]))
    moved = f"from {middle(best[:third]):.3g} to {middle(best[-third:]):.3g}"
    return Finding(
        severity=severity,
        says=f"of what one answer misses, {run[many].key} recovers {last:.0%} where it was {first:.0%}; it went {moved}",
        numbers={"first": first, "late": last, "left": left},
        metrics=(many, "eval.score"),
        onset=began if severity is not None else None,
        evidence=fall.sized(1 - left)
        if fall is not None
        else Evidence(1 - left, rank_p(recovered.values), "rank test", n=len(steps)),
        remedies=("clip_higher", "entropy_bonus", "kl_coefficient", "stop_here"),
        would_decide=("distinct answers per prompt among the saved ones",),
    )


def _top(
    run: Run, best: np.ndarray[tuple[int], np.dtype[np.float64]], one: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> float | None:
    """The score of an answer that is right: 1 for a share, else the most that training pays."""
    if one.size and one.min() >= 0 and best.max() <= 1:
        return 1.0
    return (
        None
        if run.reward_range is None or not one.size or best.max() > run.reward_range.high
        else run.reward_range.high
    )
