"""Many groups are solved by all their answers: all earn the same top reward, so that they carry no gradient.

## What you see
The share of groups without reward spread is high while the reward sits near its maximum; the gradient norm shrinks with
the share of groups that still differ. Saved answers are counted: how many groups agree, at which end, and whether their
texts are copies; a logged share that they contradict is not believed.

## Why it matters
Advantages are differences within a group. A group of equals teaches nothing and still costs its generation: at a share
z, each useful answer costs 1/(1-z) answers. The cost that is told counts every answer of a dead group, those included
that the group size makes unavoidable: they were generated all the same.

## When it is not a problem
The share that a group size and a pass rate imply is arithmetic, p^G + (1-p)^G averaged over prompts: two answers at a
pass rate of 0.85 agree in 0.75 of all groups. It is a loss all the same, and a larger group or harder prompts cure it.
If the held-out score is high as well, the task is simply solved.
"""

from dataclasses import replace

from rlclinic.checks.form import Answer, Limits, check
from rlclinic.checks.groups import Dead, dead_finding, dead_groups, unequal
from rlclinic.model import SAVED, Note, Run, Severity


@check(page=__doc__, uses=["group.zero_var_frac", "reward.group_std", "reward.mean", "eval.score"], since="0.1")
def zero_variance_all_right(run: Run, limits: Limits) -> Answer:
    dead = dead_groups(run, limits)
    if not isinstance(dead, Dead):
        return dead
    small = dead.group_size is not None and dead.group_size < limits["small_group"]
    remedies = ("larger_groups",) if small else ()
    # Where no group is left alive there is nothing to sample on for; when answers differ all the same, they may be copies.
    every = dead.share > 0.995
    seeds = ("check_sampling_seeds",) if every and dead.counted is None and unequal(run) else ()
    more = () if every else ("dynamic_sampling",)
    # Where most groups are solved, leaving the solved prompts out leaves hardly any, and these are solved next.
    if limits.grade("share", dead.share) is Severity.CRITICAL:
        cures = (*seeds, *remedies, "harder_data", *more, "retire_solved_prompts")
    else:
        cures = (*seeds, *remedies, *more, "retire_solved_prompts", "harder_data")
    found = dead_finding(dead, run, limits, "right", cures)
    if seeds:
        says = f"{found.says}; answers of other prompts earn less, yet no group is mixed"
        found = replace(
            found, says=says, would_decide=(*found.would_decide, "whether the answers of a group are copies")
        )
    spread = run.get("reward.std")
    if spread is None or run.framework is None or run.framework.name != "trl" or not (spread.finite.values > 0).any():
        return found
    if SAVED in (spread.key, *(run[m].key for m in ("reward.group_std", "group.zero_var_frac") if m in run)):
        return found  # the groups were counted: nothing is left that the two could be confused for
    note = Note(
        "reward_std_not_group_std",
        f"{spread.key} here is the spread over the whole batch (TRL from 0.27 on): it stays above 0 even when every "
        "group is dead, so it says nothing about the signal. Look at frac_reward_zero_std.",
    )
    return replace(found, notes=(note,))
