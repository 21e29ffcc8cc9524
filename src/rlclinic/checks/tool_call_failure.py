"""Tool calls fail.

## What you see
A fifth or more of the tool calls end in an error: they cannot be parsed, name no tool, or the tool itself fails.

## Why it matters
A failed call costs a turn and teaches nothing about the task. Where failing is cheaper than succeeding, the policy stops
calling its tools.

## When it is not a problem
An outage of the sandbox makes every tool fail at one time and passes. Early in training a policy still learns the form of
a call: then the share falls.
"""

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import agentic, at_seam, came_of, lasting, now, since
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import late_mean
from rlclinic.stats.shift import longest_run


@check(page=__doc__, uses=["agent.tool_fail_frac", "agent.tool_calls.mean", "reward.mean"], since="0.2")
def tool_call_failure(run: Run, limits: Limits) -> Answer:
    column, calls = run.get("agent.tool_fail_frac"), run.get("agent.tool_calls.mean")
    if column is None or not len(column.finite):
        return agentic(run) or Unexamined(("agent.tool_fail_frac",), "failed tool calls are not counted in this log")
    if calls is not None and len(calls.finite) and not calls.finite.values.any():
        return NotApplicable("no tool is ever called, so none can fail")
    c = column.finite
    share = now(run, c.values)
    severity = limits.grade("share", share)
    fall = lasting(column, falling=True) if severity is not None and not run.short else None
    learning = fall is not None and fall.late < 0.7 * fall.early
    first, last, rows = longest_run(c.steps, c.values >= limits.at("share", Severity.WARNING))
    over = severity is None and not run.short and rows >= max(5, 0.1 * len(c))
    began = (
        None
        if severity is None
        else since(column, limits.at("share", Severity.WARNING), share, told=limits.at("share", severity))
    )
    if severity is not None and learning:
        severity = Severity.INFO
    told = ", and fewer from step to step" if learning else at_seam(run, began, column)
    if over:
        inside = late_mean(c.values[(c.steps >= first) & (c.steps <= last)], 1.0)
        told = f"; {inside:.0%} did from step {first:g} to {last:g}: an outage?"
        severity, began = Severity.INFO, Onset(first, first, first)
    gain = came_of(run, began, column) if began is not None and severity == Severity.WARNING and not run.short else None
    told += f"; {gain.says}" if gain is not None else ""
    return Finding(
        severity=severity,
        says=f"{share:.0%} of tool calls fail{told}",
        numbers={"share": share},
        metrics=tuple(m for m in ("agent.tool_fail_frac", "agent.tool_calls.mean") if m in run),
        onset=began,
        evidence=Evidence(share, None, "late mean of a logged share"),
        remedies=("repair_tools", "tool_response_budget", "tool_failure_penalty"),
        would_decide=("the error texts of twenty failed calls: parser, arguments, or the tool itself?",)
        if severity
        else (),
    )
