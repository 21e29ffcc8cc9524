"""Answers shrink for good, and with them what they achieve.

## What you see
The mean length of an answer falls to half or less and stays down. The working disappears, a reward for form may even
rise, and the held-out score stalls or falls.

## Why it matters
Short answers are cheap to get right in form. A policy that has learnt to skip its working seldom takes it up again,
because answers that still reason have become too rare to be rewarded.

## When it is not a problem
Models grow more concise as they learn, and a held-out score that keeps its level says so. A limit that cuts many of the
early answers also teaches shortness: then the limit is the cause, not the policy.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import Gain, Lasting, at_seam, came_of, lasting, steady_length
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import early, late_mean


@check(
    page=__doc__,
    needs=["length.response.mean"],
    uses=["eval.score", "reward.mean", "length.truncated_frac"],
    points=2,
    since="0.2",
)
def length_shrink(run: Run, limits: Limits) -> Answer:
    column = run["length.response.mean"]
    if len(column.finite) < 8:
        return _in_few_rows(run, column.finite, limits)
    fall = lasting(column, falling=True, level=limits["p_value"])
    ratio = fall.late / fall.early if fall is not None and fall.early > 0 else 1.0
    severity = limits.grade("ratio", ratio)
    if fall is None or severity is None or -fall.change < limits["tokens"]:
        return steady_length(column, fall, 1.0 - ratio)
    gain = came_of(run, fall.onset, column)
    cut = _cut_before(run, fall, limits)
    sunk = _sunk(run, fall)
    told = f"; {gain.says}" if gain is not None else ""
    told += f"; the reward part {sunk} fell" if sunk else ""
    if cut is not None:
        told += f"; {cut:.0%} of the early answers were cut by the length limit, which teaches shortness"
    return Finding(
        severity=_severity(run, severity, gain, cut=cut is not None, sunk=bool(sunk)),
        says=f"answers shrank from {fall.early:.0f} to {fall.late:.0f} tokens{told}{at_seam(run, fall.onset, column)}",
        numbers={"early": fall.early, "late": fall.late, "ratio": ratio, **({} if cut is None else {"cut": cut})},
        metrics=tuple(m for m in ("length.response.mean", "eval.score", "reward.mean") if m in run),
        onset=fall.onset,
        evidence=fall.sized(1.0 - ratio),
        remedies=_remedies(run, cut=cut is not None, sunk=bool(sunk)),
        would_decide=() if "eval.score" in run else ("a held-out score: is what became shorter still right?",),
    )


def _in_few_rows(run: Run, c: Column, limits: Limits) -> Answer:
    """Few rows show no trend; that the longest answer is shorter than the shortest one was is plain to see."""
    shortest, longest = (run.get(f"length.response.{end}") for end in ("min", "max"))
    first, last = float(c.values[0]), float(c.values[-1])
    severity = limits.grade("ratio", last / first) if first - last >= limits["tokens"] else None
    least = float(shortest.finite.values[0]) if shortest is not None and len(shortest.finite) else -np.inf
    under = longest.finite.values < least if longest is not None else np.empty(0, dtype=bool)
    if severity is None or longest is None or not len(under) or not under[-1]:
        return Unexamined(("length.response.mean",), f"{len(c)} rows; a trend needs 8")
    begin = 0 if under.all() else len(under) - int(np.argmin(under[::-1]))
    return Finding(
        severity=Severity.WARNING if severity == Severity.CRITICAL else Severity.INFO,
        title="Answers shrink to a fraction of what they were.",
        says=f"answers shrank from {first:.0f} to {last:.3g} tokens; the longest of the last row has "
        f"{longest.finite.values[-1]:.3g}, the shortest of the first had {least:.3g}",
        numbers={"early": first, "late": last, "ratio": last / first},
        metrics=tuple(m for m in ("length.response.mean", "reward.mean") if m in run),
        onset=Onset(*(float(longest.finite.steps[i]) for i in (begin, max(begin - 1, 0), begin))),
        evidence=Evidence(1 - last / first, None, "no answer of the last row is as long as any of the first", n=len(c)),
        remedies=_remedies(run, cut=False, sunk=False),
    )


def _severity(run: Run, by_ratio: Severity, gain: Gain | None, *, cut: bool, sunk: bool) -> Severity | None:
    """A held-out score that holds means concision; without one, only what the reward lost or a part of it can tell."""
    if gain is None:
        return Severity.INFO if "reward.mean" in run else Severity.WARNING
    if gain.falling:
        return Severity.CRITICAL if gain.metric == "eval.score" else by_ratio
    if gain.metric == "eval.score" or (gain.rising and not sunk):
        return None
    if sunk:
        return Severity.WARNING
    return by_ratio if by_ratio == Severity.CRITICAL and not cut else Severity.INFO


def _cut_before(run: Run, fall: Lasting, limits: Limits) -> float | None:
    """The share of answers that were cut before the fall, where they were many and no longer are."""
    column = run.get("length.truncated_frac")
    if column is None or not len(column.finite):
        return None
    before = early(column.finite.upto(max(fall.onset.step, float(column.steps[0]))).values, 1.0)
    return before if before >= limits["cut"] and late_mean(column.finite.values) < 0.5 * before else None


def _sunk(run: Run, fall: Lasting) -> str:
    """The reward part that fell most for good since the answers began to shrink; empty when none did."""
    fallen = {
        name: seen.change / max(abs(seen.early), 1e-9)
        for name, part in run.components.items()
        if len(run.components) > 1
        and part.weight != 0
        and (seen := lasting(part.mean, falling=True)) is not None
        and seen.onset.high >= fall.onset.low
        and seen.late < 0.8 * seen.early
    }
    return min(fallen, key=lambda name: (fallen[name], name)) if fallen else ""


def _remedies(run: Run, *, cut: bool, sunk: bool) -> tuple[str, ...]:
    if cut:
        return ("response_budget",)
    per_answer = run.knob("loss_aggregation") in ("seq-mean-token-mean", "seq-mean-token-sum")
    averaging = ("loss_aggregation",) if per_answer or run.knob("loss_type") == "grpo" else ()
    anchor = ("kl_coefficient",) if not run.number("kl_coef") else ()
    first = "reward_weights" if sunk or len(run.components) > 1 else "roll_back"
    return (first, *averaging, *anchor)
