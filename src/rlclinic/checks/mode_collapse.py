"""Answers to one prompt become near copies: more tries no longer find what one try misses.

## What you see
Held-out pass@k (or best of n) comes down to pass@1: of what one answer misses, further answers recover less and less,
although much is still missed. In saved answers, the words of two answers to one prompt come to be nearly the same, in groups
that are not solved and whose answers are long.

## Why it matters
A policy that gives one answer per prompt has nothing left to choose from: groups agree, the gradient dies, and the run
ends at what the base model could do with several tries. Token entropy may look fine all the while.

## When it is not a problem
The gap narrows in every good run, because pass@1 rises towards pass@k, and while pass@k rises too. A score that
falls takes both down. Fixed sampling seeds make copies without the policy's doing, from the first step on. Answers to
a solved prompt, and short ones, are alike because they are right.
"""

import numpy as np

from rlclinic.answers import texts
from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import bought, lasting
from rlclinic.model import ROLLOUTS, Column, Evidence, Finding, Floats, Onset, Run, Severity
from rlclinic.stats.level import mean_difference, middle, rank_p
from rlclinic.stats.shift import crossing
from rlclinic.stats.trend import trend


@check(page=__doc__, uses=["eval.pass_at_k", "eval.best_of_n", "eval.score", "group.zero_var_frac"], since="0.2")
def mode_collapse(run: Run, limits: Limits) -> Answer:
    words = texts.of(run)
    alike = _alike(run, words, limits) if words is not None else None
    if alike is not None and alike.severity is not None:
        return alike
    found = _held_out(run, limits)
    return alike if alike is not None and isinstance(found, Unexamined) else found


def _alike(run: Run, words: texts.Texts, limits: Limits) -> Finding | None:
    """What the words of saved groups show: copies where there was variety. None where too few groups can be judged."""
    share = words.likeness
    if share is None or len(share.steps) < 2 or min(share.early.count, share.late.count) < limits["groups"]:
        return None
    first, last, between = share.early, share.late, words.between
    p_value = mean_difference(share.values[share.is_early], share.values[share.is_late]).p_value
    fell = first.value <= limits["varied"] and p_value <= limits["p_value"]
    severity = limits.grade("copies", last.value) if fell else None
    steps, values, _ = share.by_step()
    began = crossing(steps, values, 0.5 * (first.value + last.value)) if severity is not None else None
    gain = bought(run, since=began.low) if began is not None else None
    apart = between.late.value if between is not None and between.late.count else None
    told = f"in {last.count} unsolved groups of saved answers, each shares {last.value:.0%} of its pieces with the one most "
    told += f"like it, {first.value:.0%} at first" + (f"; {gain.says}" if gain is not None else "")
    if severity is not None and apart is not None and apart >= limits["varied"]:
        told += f"; answers to different prompts share {apart:.0%}: one text for all"
    return Finding(
        severity=severity,
        says=told,
        numbers={"first": first.value, "late": last.value, "groups": float(last.count)},
        metrics=tuple(m for m in ("group.zero_var_frac", "eval.score") if m in run),
        onset=began,
        evidence=Evidence(
            last.value - first.value, p_value, "nearest answers within groups, early against late", n=len(share)
        ),
        remedies=("clip_higher", "entropy_bonus", "kl_coefficient", "stop_here"),
        would_decide=("distinct answers per prompt at a higher temperature",) if severity is not None else (),
    )


def _held_out(run: Run, limits: Limits) -> Answer:
    many = next((m for m in ("eval.pass_at_k", "eval.best_of_n") if m in run), None)
    if many is None or "eval.score" not in run:
        have = (
            "saved groups are few, solved, or of short answers; neither" if run.rollouts else "needs saved answers, or"
        )
        return Unexamined((ROLLOUTS, "eval.pass_at_k"), f"{have} held-out pass@k beside pass@1")
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
    if severity is not None:
        severity = Severity.INFO if way == "rising" else Severity.CRITICAL if falls else severity
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


def _top(run: Run, best: Floats, one: Floats) -> float | None:
    """The score of an answer that is right: 1 for a share, else the most that training pays."""
    if one.size and one.min() >= 0 and best.max() <= 1:
        return 1.0
    span = run.reward_range
    return None if span is None or not one.size or best.max() > span.high else span.high
