"""A learned reward model is pushed beyond where its score means anything.

## What you see
The reward model's score goes on rising as the policy moves away from the reference, while the held-out score has passed
its best: it rose with the first KL and falls with the rest.

## Why it matters
A reward model is right near the answers it was trained on. Further out the policy finds its errors faster than its
preferences, and every nat of KL beyond the peak lowers what people would have judged.

## When it is not a problem
A held-out score that still rises, or fewer than six evaluations. With a rule or a program as reward the same picture is
a gap in the verifier, which the check of reward and evaluation reports.
"""

import re

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import lasting, left_behind, sank
from rlclinic.model import Column, Evidence, Finding, Run, Severity
from rlclinic.stats.coupling import FEWEST_EVALUATIONS
from rlclinic.stats.level import late

_MODEL = re.compile(
    r"(?i:(^|[^a-z])rm([^a-z]|$)|reward[-_ ]?model|armorm|-reward-|preference|bradley)|[a-z]RM([A-Z]|$)"
)
"""How parts scored by a learned model are called: trainers name them after the model, whose name mostly says so."""


@check(
    page=__doc__, uses=["reward.mean", "reward.component.mean", "eval.score", "kl.ref", "kl.ref_seq_sum"], since="0.2"
)
def reward_model_overoptimisation(run: Run, limits: Limits) -> Answer:
    scored = _scored(run)
    if scored is None:
        if run.components:
            return NotApplicable("no reward part is named after a learned reward model")
        return Unexamined(("reward.component.mean",), "the log does not say whether a learned model gives the reward")
    kl = run.get("kl.ref") or run.get("kl.ref_seq_sum")
    held_out = run.get("eval.score")
    if kl is None or not len(kl.finite):
        return Unexamined(("kl.ref",), "no KL to the reference: how far the policy went is not known")
    if run.excerpt or held_out is None or len(held_out.finite) < FEWEST_EVALUATIONS:
        return Unexamined(("eval.score",), f"needs {FEWEST_EVALUATIONS} evaluations that do not use the reward model")
    score, gold, away = scored.finite, held_out.finite, kl.finite
    seen = left_behind(score, gold, limits["p_value"], held_out=True)
    further = lasting(away, falling=False)
    now = late(away.values, least=1)
    unit = "nats per token" if kl.metric == "kl.ref" else "nats per answer"
    metrics = (scored.metric, "eval.score", kl.metric)
    if seen is None or seen.verdict == "no_transfer" or further is None:
        says = f"the reward model's score and the held-out score do not part (KL {now:.3g} {unit})"
        return Finding(None, says, {"kl": now}, metrics)
    at = seen.rollback
    best = None if at is None else float(np.interp(at.step, away.steps, away.values))
    moved = sank(gold, seen.peak, seen.late) if seen.verdict == "falling" else "stopped following"
    budget = "" if best is None else f"; its best lies at a KL of {best:.3g} {unit}, now {now:.3g}"
    return Finding(
        severity=Severity.CRITICAL if seen.verdict == "falling" else Severity.WARNING,
        says=f"the reward model's score rose on by {seen.rise:.3g} while the held-out score {moved}{budget}",
        numbers={"kl": now, "held_out": seen.late, "gain": seen.rise, **({} if best is None else {"kl_at_best": best})},
        metrics=metrics,
        onset=at,
        evidence=Evidence(seen.effect, seen.p_value, "held-out score against the reward model's", n=seen.m),
        remedies=("roll_back", "kl_coefficient", "read_top_answers"),
        would_decide=("answers before and after the peak, compared blindly by people or another judge",),
    )


def _scored(run: Run) -> Column | None:
    """The series that a learned reward model gives, by its name; the reward itself where PPO logs both ``scores`` and the
    reward after KL, as preference training does."""
    for part in run.components.values():
        if _MODEL.search(part.name):
            return part.mean
    reward = run.get("reward.mean")
    return reward if reward is not None and reward.key.startswith("objective/") else None
