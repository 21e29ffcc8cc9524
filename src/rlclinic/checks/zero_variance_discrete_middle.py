"""Groups agree on a middle reward: ties of a coarse score, or answers that are copies of each other.

## What you see
The share of groups without reward spread is high although the reward lies far from both of its ends.

## Why it matters
Such ties are no sign of a task that is too easy or too hard; the reward cannot tell answers apart, or the answers do
not differ. Both stop the gradient.

## When it is not a problem
Never for long; but whether answers are copies or merely tie only saved answers tell: they are counted where they are
given. A mixture of solved and hopeless prompts gives the same mean with groups at both ends: a logged share of all-right
and all-wrong groups, or saved answers, tells. Copies at both ends are counted here too: it is not the reward that ties them.
"""

from dataclasses import replace

from rlclinic.checks.form import Answer, Limits, check
from rlclinic.checks.groups import Dead, copied, dead_finding, dead_groups, unequal
from rlclinic.model import Run


@check(page=__doc__, uses=["group.zero_var_frac", "reward.group_std", "reward.mean"], since="0.1")
def zero_variance_discrete_middle(run: Run, limits: Limits) -> Answer:
    dead = dead_groups(run, limits)
    if not isinstance(dead, Dead):
        return dead
    seeds, finer = "check_sampling_seeds", "finer_reward"
    ties = dead.counted is not None and copied(dead.counted) < limits["copies"]
    cures = (finer, "dynamic_sampling", seeds) if ties else (seeds, finer, "dynamic_sampling")
    found = dead_finding(dead, run, limits, "middle", cures)
    if dead.counted is not None:
        return found
    if dead.place is None and unequal(run):
        found = replace(found, title="The answers of a group earn the same, those of other prompts do not.")
    ask = ("saved rollouts: do the answers of a group differ, and do groups agree at both ends?", *found.would_decide)
    return replace(found, would_decide=ask)
