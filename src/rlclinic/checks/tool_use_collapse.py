"""The policy stops using its tools.

## What you see
Tool calls per answer fall to almost none, or conversations settle at a single exchange, and the reward does not gain by
it.

## Why it matters
An agent that guesses instead of looking has left the task it was trained for. Calls that are no longer made can no
longer be rewarded, so the way back is long.

## When it is not a problem
A policy that has learnt to answer from memory and scores better for it. Calls that are zero from the first step are
another matter: then the tools never reached the prompt.
"""

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import agentic, at_seam, came_of, lasting
from rlclinic.model import Column, Evidence, Finding, Run, Severity
from rlclinic.stats.level import late


@check(page=__doc__, uses=["agent.tool_calls.mean", "agent.turns.mean", "eval.score", "reward.mean"], since="0.2")
def tool_use_collapse(run: Run, limits: Limits) -> Answer:
    absent = agentic(run)
    if absent is not None:
        return absent
    calls, turns = run.get("agent.tool_calls.mean"), run.get("agent.turns.mean")
    if calls is not None and len(calls.finite):
        column, floor, unit = calls, 0.0, "tool calls per answer"
    elif turns is not None and len(turns.finite):
        column, floor, unit = turns, _exchange(turns), "turns per conversation"
    else:
        return Unexamined(("agent.tool_calls.mean",), "tool calls are not counted in this log")
    c = column.finite
    level = late(c.values, 0.1, 5)
    if column is calls and not c.values.any():
        return _never(column)
    fall = lasting(column, falling=True, level=limits["p_value"]) if len(c) >= 8 else None
    left = (fall.late - floor) / (fall.early - floor) if fall is not None and fall.early > floor else 1.0
    severity = limits.grade("left", left)
    if fall is None or severity is None or fall.early - floor < limits["calls"]:
        return Finding(
            severity=None,
            says=f"{level:.2g} {unit}",
            numbers={"late": level},
            metrics=(column.metric,),
            evidence=Evidence(1.0 - left, None, "lasting change of level") if fall is None else fall.sized(1.0 - left),
        )
    gain = came_of(run, fall.onset, column)
    if gain is not None and gain.rising:
        severity = None if gain.metric == "eval.score" else Severity.INFO
    elif gain is not None and gain.falling:
        severity = Severity.CRITICAL
    told = f"; {gain.says}" if gain is not None else ""
    return Finding(
        severity=severity,
        says=f"{unit} fell from {fall.early:.2g} to {fall.late:.2g}{told}{at_seam(run, fall.onset, column)}",
        numbers={"early": fall.early, "late": fall.late, "left": left},
        metrics=tuple(m for m in (column.metric, "agent.tool_fail_frac", "eval.score", "reward.mean") if m in run),
        onset=fall.onset,
        evidence=fall.sized(1.0 - left),
        remedies=("repair_tools", "reward_tool_use", "tool_response_budget"),
        would_decide=("the held-out score with and without the tools",) if gain is None or not gain.falling else (),
    )


def _exchange(turns: Column) -> float:
    """The turns of a single exchange: 2 where messages are counted, else 1."""
    return 2.0 if turns.finite.values.min() >= 2.0 else 1.0


def _never(column: Column) -> Answer:
    if len(column.finite) < 3:
        return NotApplicable("no tool is called in the few rows shown")
    return Finding(
        severity=Severity.INFO,
        says="not one tool call from the first row to the last: do the tools reach the prompt?",
        numbers={"late": 0.0},
        metrics=(column.metric,),
        evidence=Evidence(1.0, None, "counted in the log"),
        remedies=("repair_tools",),
        would_decide=(
            "one prompt as it is sent, with the tools in it",
            "one conversation in which a tool is called by hand",
        ),
    )
