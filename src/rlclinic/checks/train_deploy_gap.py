"""What holds in training does not hold where the model is used.

## What you see
One and the same quantity, such as the share of answers in the right format or of answers that are cut, is much better
in the training rows than in an evaluation of the same policy.

## Why it matters
Format, stopping and tool syntax hardly depend on the question. If they differ, the evaluation runs another stack: another
chat template, other sampling, a merged adapter, another limit. That gap appears again for every user.

## When it is not a problem
Harder questions lower the share of right answers without any fault. A gap that closes as training goes on was a matter
of learning.
"""

import re
from typing import NamedTuple

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.rewards import task_parts
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import late_mean, mean_difference


class _Same(NamedTuple):
    """One quantity in both places; ``sign`` -1 where less of it is better."""

    name: str
    trained: Column
    held_out: Column
    of_the_task: bool
    sign: float = 1.0


@check(
    page=__doc__,
    uses=["reward.component.mean", "length.truncated_frac", "eval.truncated_frac", "eval.score"],
    since="0.2",
)
def train_deploy_gap(run: Run, limits: Limits) -> Answer:
    least = int(limits["evaluations"])
    same = [one for one in _same(run) if len(one.held_out) >= least and len(one.trained) >= least]
    if not same or run.excerpt:
        says = "needs one quantity both in training and in evaluation rows, such as the format part of the reward"
        return Unexamined(("eval.score", "eval.truncated_frac"), says)
    found = [(gap, p_value, one) for one in same for gap, p_value in [_gap(one, least)]]
    gap, p_value, worst = max(found, key=lambda row: (not row[2].of_the_task, row[0]))
    severity = limits.grade("gap", gap) if p_value <= limits["p_value"] else None
    if severity is not None and worst.of_the_task:
        severity = Severity.INFO
    here, there = late_mean(worst.trained.values), late_mean(worst.held_out.values)
    first = float(worst.held_out.steps[0])
    harder = "; harder questions explain that as well" if worst.of_the_task and severity is not None else ""
    return Finding(
        severity=severity,
        says=f"{worst.name} is {here:.3g} in training and {there:.3g} in evaluation ({worst.held_out.key}){harder}",
        numbers={"training": here, "evaluation": there, "gap": gap},
        metrics=(worst.trained.metric, worst.held_out.metric),
        onset=Onset(first, first, float(worst.held_out.steps[-1])) if severity is not None else None,
        evidence=Evidence(gap, p_value, "last rows of either, Welch's t"),
        remedies=("evaluate_deployed_stack",),
        would_decide=("the same prompts through the training sampler and through the stack that is deployed",),
    )


def _same(run: Run) -> list[_Same]:
    task = [part.name for part in task_parts(run)]
    found = []
    for part in run.components.values():
        token = re.compile(rf"(^|[^a-z0-9]){re.escape(part.name.lower())}([^a-z0-9]|$)")
        for key, column in run.evaluations.items():
            mean = column.finite.values
            share = len(mean) > 0 and mean.min() >= 0.0 and mean.max() <= 1.0
            spread = re.search(r"std|max|min", key.lower().replace(part.name.lower(), ""))
            if share and token.search(key.lower()) and not spread:
                alone = not task or part.name in task
                found.append(_Same(f"reward part {part.name}", part.mean.finite, column.finite, alone))
    cut, held = run.get("length.truncated_frac"), run.get("eval.truncated_frac")
    if cut is not None and held is not None:
        found.append(_Same("the share of cut answers", cut.finite, held.finite, False, -1.0))
    return found


def _gap(one: _Same, least: int) -> tuple[float, float]:
    """By how much training is better over the last evaluations (a third, ``least`` at least), and the p-value."""
    last = one.held_out.values[-max(least, len(one.held_out) // 3) :]
    rows = one.trained.since(float(one.held_out.steps[-len(last)])).values
    rows = rows if len(rows) >= least else one.trained.values[-least:]
    return one.sign * float(rows.mean() - last.mean()), mean_difference(last, rows).p_value
