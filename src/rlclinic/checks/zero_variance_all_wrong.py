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

from rlclinic.checks.form import Answer, Limits, check
from rlclinic.checks.groups import Dead, dead_finding, dead_groups
from rlclinic.model import Run


@check(
    page=__doc__, uses=["group.zero_var_frac", "reward.group_std", "reward.mean", "length.truncated_frac"], since="0.1"
)
def zero_variance_all_wrong(run: Run, limits: Limits) -> Answer:
    dead = dead_groups(run, limits)
    if not isinstance(dead, Dead):
        return dead
    return dead_finding(
        dead, run, limits, "wrong", ("score_gold_answers", "warm_start", "easier_data", "larger_groups")
    )
