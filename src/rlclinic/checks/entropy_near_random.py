"""The policy's output is close to noise: its entropy is far above that of any text.

## What you see
Token entropy of several nats where text has a fraction of one: either far above where the run began, or from the first
row on. The answers are unreadable, run to the length limit and earn the least that can be earned.

## Why it matters
Nothing is left to reinforce. A pretrained model gets there only by damage (steps far too large, gradients of noise) or
when the weights that are trained are not those that were meant.

## When it is not a problem
A hot start of a base model: two nats or so, falling, with a reward that moves. Entropy summed over an answer is another
quantity. The rule "nine tenths of the logarithm of the vocabulary", 10.7 nats, is never reached by a pretrained model.
"""

import numpy as np

from rlclinic.checks.form import Limits, check
from rlclinic.checks.readings import at_seam
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import held, late
from rlclinic.stats.shift import crossing


@check(page=__doc__, needs=["entropy.mean"], uses=["reward.mean", "length.truncated_frac"], since="0.2")
def entropy_near_random(run: Run, limits: Limits) -> Finding:
    entropy = run["entropy.mean"].finite
    means, _ = held(entropy.values, 0.02, min(3, len(entropy)))
    first = float(np.median(entropy.values[: max(1, min(5, len(entropy) // 10))]))
    now, peak = late(entropy.values, 0.1, 1), float(means.max())
    bottom = _at_bottom(run)
    grade = limits.grade("nats", peak)
    began = limits.grade("nats", first)
    risen = peak > limits["multiple"] * first
    severity, told = None, ""
    if grade is not None and risen:
        over = limits.grade("nats", now) is None
        # It was noise and is no longer: recovered, or stuck in a single answer since.
        severity = min(grade, Severity.WARNING) if over and bottom is not True else grade
        told = f"rose from {first:.3g} to {peak:.3g}" + (f" and is {now:.3g} now" if over else "")
    elif began is not None and limits.grade("nats", now) is not None:
        severity = {True: Severity.CRITICAL, None: began, False: Severity.INFO}[bottom]
        told = f"is {now:.3g}" + (" from the first row on" if len(entropy) > 1 else "")
    elif began is not None:
        severity = min(began, Severity.WARNING) if bottom is not False else Severity.INFO
        told = f"was {first:.3g} at the start and is {now:.3g} now"
    if severity is None:
        return Finding(
            severity=None,
            says=f"entropy is {now:.3g} nats per token ({peak:.3g} at most)",
            numbers={"late": now, "peak": peak, "first": first},
            metrics=("entropy.mean",),
        )
    since = Onset(*[float(entropy.steps[0])] * 3)
    if risen:
        bound = limits.at("nats", Severity.WARNING)
        since = crossing(entropy.steps, entropy.values, bound, above=True, last=False) or since
    paid = {True: "; the reward is at its floor", False: "; the reward is above its floor", None: ""}[bottom]
    return Finding(
        severity=severity,
        says=f"entropy {told}, in nats per token: text has 0.1 to 1.5{paid}" + at_seam(run, since, entropy),
        numbers={"late": now, "peak": peak, "first": first},
        metrics=tuple(m for m in ("entropy.mean", "reward.mean", "length.truncated_frac") if m in run),
        onset=since,
        evidence=Evidence(peak, None, "highest running mean against a level"),
        remedies=("roll_back", "lower_learning_rate") if risen else ("check_weights", "log_completions"),
        would_decide=("the text of a few answers", "the entropy of the untrained model on the same prompts"),
    )


def _at_bottom(run: Run) -> bool | None:
    """Whether the reward ends at the least that can be earned; None where neither the log nor a 0..1 scale tells."""
    reward = run.get("reward.mean")
    if reward is None or not len(reward.finite):
        return None
    pay = late(reward.finite.values, 0.1, 1)
    if run.reward_range is not None:
        return run.reward_range.share(pay) < 0.05
    lowest = run.get("reward.min")
    if lowest is not None and len(lowest.finite):
        low, rows = late(lowest.finite.values, 0.1, 1), reward.finite.values
        top = run.get("reward.max")
        high = float(top.finite.values.max()) if top is not None and len(top.finite) else float(rows.max())
        return pay - low <= 0.05 * (high - low)
    return pay < 0.05 if 0 <= pay <= 1 else None
