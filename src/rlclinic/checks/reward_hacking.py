"""Something other than the task is paid, and the policy has found it: the saved answers show what.

## What you see
Among the saved answers, those with one phrase, one form, one result or one simple property are paid, whatever the prompt
and whatever else they say, and their share rises from step to step. In the curves this is a reward that climbs.

Right, here and in the overview of `rlclinic rollouts`, is what the reward pays in full; it need not be right.

## Why it matters
The policy learns what the verifier looks at instead of what it stands for. Training on makes it worse at the task, and
the reward shows the opposite.

## When it is not a problem
A form that the prompt asks for is learnt in the same way, and right answers share words. So an alarm needs more than a
phrase that goes along with reward: paid answers to one prompt whose results contradict each other or the known right
one, words that speak to the verifier, or pay where all other answers to the prompt fail. Without a held-out score or a
second verifier even that is a strong suspicion and no proof; three answers, read by a person, decide.
"""

from rlclinic.answers.exploits import Candidate, candidates, table_of
from rlclinic.answers.shown import among_training
from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.model import ROLLOUTS, Evidence, Finding, Run, Severity


@check(page=__doc__, uses=["reward.mean", "eval.score"], since="0.3")
def reward_hacking(run: Run, limits: Limits) -> Answer:
    table = table_of(run)
    if table is None:
        return Unexamined((ROLLOUTS,), "needs saved answers with their texts and rewards")
    if len(table.train.texts) < limits["answers"]:
        says = f"{len(table.train.texts)} saved answers have their texts; at least {limits['answers']:.0f} are needed"
        return Unexamined((ROLLOUTS,), says)
    found = candidates(run)
    grave = [one for one in found if one.severity > Severity.INFO or "bonus" in one.evidence]
    metrics = tuple(m for m in ("reward.mean", "eval.score") if m in run)
    if not grave:
        looked = found[0].answers if found else len(table.train.texts)
        return Finding(
            severity=None,
            says=f"{looked} saved answers looked at: nothing is paid that is not the task, as far as texts can show",
            numbers={"answers": float(looked), "candidates": float(len(found))},
            metrics=metrics,
        )
    worst = grave[0]
    return Finding(
        severity=worst.severity,
        says=_says(worst),
        numbers={
            "early": worst.first,
            "late": worst.last,
            "paid": worst.paid,
            "paid_without": worst.paid_without,
            "prompts": float(worst.prompts),
            "answers": float(worst.answers),
            "candidates": float(len(grave)),
        },
        metrics=metrics,
        onset=worst.onset,
        evidence=Evidence(
            effect=worst.effect if worst.effect == worst.effect else worst.paid - worst.paid_without,
            p_value=None,
            method=f"{'rewards' if worst.kind == 'length' else 'counts'} in the saved answers, within prompts"
            + ("" if worst.kind == "length" or "bonus" in worst.evidence else " at equal length")
            + f"; {worst.why}",
            n=worst.answers,
        ),
        remedies=("audit_verifier", "read_top_answers", *(("roll_back",) if worst.severity > Severity.INFO else ())),
        would_decide=(
            "three of these answers, read by a person",
            "the same answers under a second verifier",
        ),
        samples=among_training(run, table, worst.rows),
    )


def _says(worst: Candidate) -> str:
    """The one line: what is paid, how it pays and spread, and what it costs."""
    task = "; the task's part of the reward falls" if "part of the reward for the task falls" in worst.why else ""
    outside = next((f"; {one.removesuffix(' meanwhile')}" for one in worst.why.split("; ") if "held-out" in one), task)
    return f"{worst.in_words}{outside}"
