"""Text that tools or the environment wrote is in the loss: the policy is trained to predict what it did not say.

## What you see
The mask of tool tokens is off in a run with tools or several turns. KL and entropy are dominated by tool output, and the
policy begins to write the tool's answers itself. Saved answers with their loss mask show it exactly.

## Why it matters
Advantages push the probability of text that the policy does not choose; runs of several turns collapse fast.

## When it is not a problem
Runs without tools: every token of the answer is the policy's own.
"""

from dataclasses import replace

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.sampled import masks
from rlclinic.model import ROLLOUTS, Evidence, Finding, Run, Severity
from rlclinic.stats.level import late

_TURNS = ("agent.tool_calls.mean", "agent.env_tokens", "agent.turns.mean")


@check(page=__doc__, uses=_TURNS, since="0.2")
def environment_tokens_trained(run: Run, limits: Limits) -> Answer:
    exact = masks(run, limits)
    if exact is not None:
        cures, ask = ("mask_tool_tokens", "roll_back"), ("the loss mask of ten conversations beside their text",)
        return replace(exact, remedies=cures, would_decide=ask if exact.severity else ())
    masked = run.knobs.get("mask_tool_tokens")
    used = _used(run)
    if not used and run.partial:
        return Unexamined((ROLLOUTS,), "a piece of a log does not show whether the run uses tools")
    if not used:
        return NotApplicable("no sign of tools or of several turns in this run")
    if masked is None or not isinstance(masked.value, bool):
        return Unexamined((ROLLOUTS,), f"{used}, but only saved answers with their loss mask show what is trained on")
    return Finding(
        severity=None if masked.value else Severity.CRITICAL,
        says=f"{used}, and {masked.key} is {'on' if masked.value else 'off: tool output is trained on'}",
        numbers={"masked": float(masked.value)},
        metrics=tuple(m for m in _TURNS if m in run),
        evidence=Evidence(1.0, None, f"the setting {masked.key}"),
        remedies=("mask_tool_tokens", "roll_back"),
        would_decide=() if masked.value else ("the loss mask of ten conversations beside their text",),
    )


def _used(run: Run) -> str:
    """What shows that the run uses tools or several turns, in words; empty without a sign of either."""
    for metric, least, words in (
        ("agent.tool_calls.mean", 0.0, "answers make {:.2g} tool calls"),
        ("agent.env_tokens", 0.0, "the environment adds {:.0f} tokens per conversation"),
        # Some logs count messages: one exchange then shows as two.
        ("agent.turns.mean", 2.0, "conversations take {:.2g} turns"),
    ):
        column = run.get(metric)
        if column is not None and len(column.finite) and (level := late(column.finite.values, least=1)) > least:
            return words.format(level)
    turns = run.number("max_turns")
    return f"up to {turns:.0f} turns are allowed" if turns is not None and turns > 1 else ""
