"""Conversations use ever more turns, and nothing is gained.

## What you see
The mean number of turns rises by half or more and stays up, or most conversations end because no turn is left, while the
held-out score or the reward does not follow.

## Why it matters
Every turn is sampled, and each tool call waits for its tool. A conversation that ends for want of turns has no result.

## When it is not a problem
Harder tasks need more turns, and a policy that learns to look twice is paid for it.
"""

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import agentic, ahead, at_seam, came_of, lasting, now, since
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import late


@check(
    page=__doc__,
    uses=["agent.turns.mean", "agent.max_turns_frac", "agent.turns.max", "eval.score", "reward.mean"],
    since="0.2",
)
def turn_explosion(run: Run, limits: Limits) -> Answer:
    absent = agentic(run)
    if absent is not None:
        return absent
    turns, out = run.get("agent.turns.mean"), run.get("agent.max_turns_frac")
    if turns is None or not len(turns.finite):
        return Unexamined(("agent.turns.mean",), "turns are not counted in this log")
    c = turns.finite
    share = now(run, out.finite.values) if out is not None and len(out.finite) else 0.0
    rise = lasting(turns, falling=False, level=limits["p_value"]) if len(c) >= 8 else None
    ratio = rise.late / rise.early if rise is not None and rise.early > 0 else 1.0
    by_turns, by_limit = limits.grade("ratio", ratio), limits.grade("share", share)
    severity = max((s for s in (by_turns, by_limit) if s is not None), default=None)
    began: Onset | None = None
    if by_turns is not None and rise is not None:
        began = rise.onset
    elif by_limit is not None and out is not None:
        began = since(out, limits.at("share", Severity.WARNING), share, told=limits.at("share", by_limit))
    gain = came_of(run, began, turns) if began is not None else None
    if gain is not None and gain.rising:
        severity = None if gain.metric == "eval.score" and by_limit is None else Severity.INFO
    elif gain is not None and gain.falling and gain.metric == "eval.score":
        severity = Severity.CRITICAL
    level = late(c.values, 0.1, 5)
    grown = (
        f"turns grew from {rise.early:.2g} to {rise.late:.2g}"
        if rise is not None and by_turns
        else f"{level:.2g} turns"
    )
    limit = run.number("max_turns")
    told = (f"; {share:.0%} of conversations end for want of turns" if by_limit else "") + (
        f"; {gain.says}" if gain else ""
    )
    return Finding(
        severity=severity,
        says=f"{grown} per conversation{told}{at_seam(run, began, turns)}",
        numbers={"late": level, "ratio": ratio, "share": share},
        metrics=tuple(m for m in ("agent.turns.mean", "agent.max_turns_frac", "eval.score", "reward.mean") if m in run),
        onset=began if severity is not None else None,
        evidence=Evidence(share, None, "late mean of a logged share") if rise is None else rise.sized(ratio - 1.0),
        forecast=ahead(run, turns, limit, f"the mean reaches the limit of {limit:.0f} turns")
        if limit and by_turns
        else None,
        remedies=("turn_limit", "repair_tools"),
        would_decide=() if "eval.score" in run else ("a held-out score: do more turns solve more?",),
    )
