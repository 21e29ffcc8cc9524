"""The sampler writes text that the trainer finds all but impossible: the engine is broken, not the weights.

## What you see
The trainer's log-probability of the sampled text is whole nats per token below the sampler's own, at once and in every
answer; answers are garbled and run to the limit, and another engine setting cures it. Saved answers hold scraps of many
scripts or broken characters from the first step on, before anything was learnt.

## Why it matters
Nothing that is learnt from such text is about the task, and every step on it harms the policy.

## When it is not a problem
Gaps of hundredths of a nat are rounding. A gap that grows with the distance from the reference is a sampler that keeps old
weights.
"""

from dataclasses import replace

import numpy as np

from rlclinic.answers import texts
from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.wording import counted, grew
from rlclinic.model import ROLLOUTS, Column, Evidence, Finding, Run, Severity
from rlclinic.stats.level import late
from rlclinic.stats.shift import crossing

_PAIRS = (("mismatch.log_ppl_train", "mismatch.log_ppl_rollout"), ("mismatch.ppl_train", "mismatch.ppl_rollout"))


@check(
    page=__doc__,
    uses=[*(name for pair in _PAIRS for name in pair), "mismatch.logp_diff.mean", "length.truncated_frac"],
    since="0.2",
)
def sampler_corruption(run: Run, limits: Limits) -> Answer:
    gap, words = _gap(run), texts.of(run)
    seen = _garbled(run, words.gibberish, limits) if words is not None and words.gibberish is not None else None
    if seen is not None and (gap is None or seen.severity is not None):
        return seen
    if gap is None:
        says = "saved answers, or the log-probability of the sampled text under sampler and trainer, are not at hand"
        return Unexamined((ROLLOUTS, "mismatch.log_ppl_train"), says)
    level = late(gap.values, least=1)
    severity = limits.grade("gap", level)
    cut = run.get("length.truncated_frac")
    share = late(cut.finite.values, least=1) if cut is not None and len(cut.finite) else None
    whole = severity == Severity.CRITICAL and share is not None and share < limits["cut"] and _pays(run)
    if whole:
        severity = Severity.WARNING  # answers that end and earn are no garbage, whatever the two engines make of them
    bound = limits.at("gap", Severity.WARNING)
    return Finding(
        severity=severity,
        says=f"on the sampled text, trainer and sampler are {level:.2g} nats per token apart"
        + (f"; {share:.0%} of answers run to the limit" if severity is not None and share is not None else ""),
        numbers={"gap": level, **({} if share is None else {"cut": share})},
        metrics=(gap.metric, *(m for m in ("length.truncated_frac", "reward.mean") if m in run)),
        onset=crossing(gap.steps, gap.values, bound, above=True) if severity is not None else None,
        evidence=Evidence(level, None, "late level against a limit"),
        remedies=("engine_flags", "precision", "roll_back"),
        would_decide=("ten sampled answers as text, and the same prompts with prefix caching off and eager mode on",)
        if severity
        else (),
    )


def _gap(run: Run) -> Column | None:
    """Nats per token by which the trainer finds the text less likely than the sampler; an absolute gap where only that
    is logged."""
    for trainer, sampler in _PAIRS:
        steps, high, low = run.paired(trainer, sampler)
        if len(steps):
            if trainer == "mismatch.ppl_train":
                high, low = np.log(np.maximum(high, 1e-12)), np.log(np.maximum(low, 1e-12))
            return Column(trainer, run[trainer].key, steps, high - low)
    column = run.get("mismatch.logp_diff.mean")
    if column is None or "signed" in column.note or not len(column.finite):
        return None
    return column.finite


def _pays(run: Run) -> bool:
    reward = run.get("reward.mean")
    if reward is None or not len(reward.finite):
        return False
    floor = run.reward_range.low if run.reward_range is not None else float(reward.finite.values.min())
    return late(reward.finite.values, least=1) > floor + 0.1 * max(
        abs(float(reward.finite.values.max()) - floor), 1e-12
    )


def _garbled(run: Run, share: texts.Measure, limits: Limits) -> Finding:
    """What the words of saved answers show: garbled from the first steps on, it is the engine's doing; later it may be the
    policy's, and is left to entropy and reward."""
    found = counted(
        run,
        share,
        limits,
        "hold scraps of many scripts or broken characters",
        grade="garbled",
        metrics=("length.truncated_frac", "reward.mean"),
        remedies=("engine_flags", "precision", "roll_back"),
    )
    early = len(share.steps) > 0 and float(share.steps[0]) <= limits["first"] and not grew(share)
    ask = ("the same prompts with prefix caching off and eager mode on",) if found.severity is not None else ()
    severity = found.severity if early or found.severity is None else Severity.INFO
    return replace(found, severity=severity, would_decide=ask)
