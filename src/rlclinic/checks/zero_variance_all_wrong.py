"""Many groups are all wrong: no answer of theirs earns anything, so no answer is better than another and nothing is learned.

## What you see
The share of groups without reward spread is high from the first steps, with the reward at its minimum; perhaps one
format part alone is above it.

## Why it matters
The gradient of a group is zero when its answers earn the same, whatever the reason. A run can stay here for good.

## When it is not a problem
Early in training, while the first successes are still rare. Before blaming the task: answers that are cut before they
end, a parser that rejects everything and a broken template look just like this.
"""

from dataclasses import replace

import numpy as np

from rlclinic.checks.form import Answer, Limits, check
from rlclinic.checks.groups import Dead, dead_finding, dead_groups
from rlclinic.checks.readings import now
from rlclinic.model import Run, Severity


@check(
    page=__doc__, uses=["group.zero_var_frac", "reward.group_std", "reward.mean", "length.truncated_frac"], since="0.1"
)
def zero_variance_all_wrong(run: Run, limits: Limits) -> Answer:
    dead = dead_groups(run, limits)
    if not isinstance(dead, Dead):
        return dead
    # Of groups of twice the size, no larger share can be live than of twice as many groups of this size: when nearly all
    # are dead, nearly all stay dead.
    helps = 1 - 2 * (1 - dead.share) < limits.at("share", Severity.CRITICAL)
    cures = ("score_gold_answers", "warm_start", "easier_data", *(("larger_groups",) if helps else ()))
    found = dead_finding(dead, run, limits, "wrong", cures)
    if found.severity is None or dead.share < limits["every"] or not _ended_as_poor(run, limits["ended"]):
        return found
    says = f"{found.says}; answers that end by themselves earn no more than those that are cut"
    return replace(found, says=says, numbers={**found.numbers, "not_truncation": 1.0})


def _ended_as_poor(run: Run, least: float) -> bool:
    """Whether answers are cut, at least this share of them is not, and one reward is all that any answer earned of late."""
    cut, reward = run.get("length.truncated_frac"), run.get("reward.mean")
    if cut is None or reward is None or not len(cut.finite) or not len(reward.finite):
        return False
    lately = reward.finite.values[-max(1, len(reward.finite) // 4) :]
    same = float(np.ptp(lately)) <= 1e-9 * max(1.0, float(np.abs(lately).max()))
    return same and 0.0 < now(run, cut.finite.values) <= 1.0 - least
