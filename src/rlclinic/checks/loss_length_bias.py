"""The loss averages per answer, which makes long wrong answers cheap: they grow while right ones do not.

## What you see
Wrong answers lengthen and right ones keep their length, with a loss that is averaged inside each answer first. In saved
answers both are compared within the same groups, cut ones left out.

## Why it matters
Each token of a long answer then counts less. A wrong answer lowers its penalty by going on, and a right one raises its
reward by being short, so length drifts without any gain in quality.

## When it is not a problem
Both kinds grow together and the score rises: the task needs longer thought. Wrong answers are longer in nearly every
run, because hard prompts take longer; only a gap that grows counts. Answers cut at the limit are wrong and long alike.
"""

import numpy as np

from rlclinic.answers import lengths, texts
from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import lasting, now
from rlclinic.model import ROLLOUTS, Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import early, late, mean_difference

_PER_ANSWER = {"grpo": True, "dapo": False, "bnpo": False, "dr_grpo": False, "cispo": False, "gspo": True}


@check(
    page=__doc__,
    uses=["length.correct.mean", "length.incorrect.mean", "length.truncated_frac", "reward.mean"],
    since="0.2",
)
def loss_length_bias(run: Run, limits: Limits) -> Answer:
    per_answer, words = _per_answer(run), texts.of(run)
    found = _seen(run, words.apart, limits) if words is not None and words.apart is not None else None
    if found is not None:
        return found
    steps, wrong, right = run.paired("length.incorrect.mean", "length.correct.mean")
    if len(steps) < limits["rows"]:
        have = (
            "saved groups with right and wrong answers are too few; else" if run.rollouts else "needs saved answers, or"
        )
        return Unexamined((ROLLOUTS, "length.incorrect.mean"), f"{have} the lengths of right and wrong answers apart")
    gap = Column("length.incorrect.mean", "length of wrong over right answers", steps, wrong / right.clip(min=1.0))
    before, after = early(gap.values), late(gap.values)
    wider = lasting(gap, falling=False, level=limits["p_value"])
    longer = lasting(Column(gap.metric, gap.key, steps, wrong), falling=False, level=limits["p_value"])
    growth = after / before if before > 0 else 1.0
    severity = limits.grade("growth", growth) if wider is not None and longer is not None else None
    cut = run.get("length.truncated_frac")
    pressed = cut is not None and len(cut.finite) > 0 and now(run, cut.finite.values) > limits["cut"]
    if severity is not None and (per_answer is not True or pressed):
        severity = Severity.INFO
    told = _how(per_answer)
    told += "; many are cut at the limit" if pressed else ""
    ask = () if per_answer is not None else ("how the loss is averaged: per token or per answer",)
    return Finding(
        severity=severity,
        says=f"wrong answers are {after:.2f} times as long as right ones, from {before:.2f}; "
        f"wrong {early(wrong):.0f} to {late(wrong):.0f}, right {early(right):.0f} to {late(right):.0f} tokens{told}",
        numbers={"early": before, "late": after, "growth": growth},
        metrics=("length.incorrect.mean", "length.correct.mean"),
        onset=wider.onset if wider is not None and severity is not None else None,
        evidence=wider.sized(growth - 1) if wider is not None else Evidence(growth - 1, None, "early against late"),
        remedies=("loss_aggregation", "soft_overlong_penalty"),
        would_decide=ask if severity is not None else (),
    )


def _seen(run: Run, apart: lengths.Apart, limits: Limits) -> Finding | None:
    """What saved groups with right and wrong answers show; None where too few of them are early or late."""
    low, high = np.quantile(apart.steps, (1 / 3, 2 / 3)) if len(apart.steps) else (0.0, 0.0)
    first, last = apart.steps <= low, apart.steps >= high
    if min(first.sum(), last.sum()) < limits["groups"] or low >= high:
        return None
    ratio = np.log(apart.wrong.clip(min=1.0) / apart.right.clip(min=1.0))
    before, after = (float(np.exp(ratio[part].mean())) for part in (first, last))
    test = mean_difference(ratio[first], ratio[last])
    wrong, right = ([float(of[part].mean()) for part in (first, last)] for of in (apart.wrong, apart.right))
    grown = wrong[1] > limits["longer"] * wrong[0] and wrong[1] / wrong[0] > right[1] / right[0]
    growth = after / before
    severity = limits.grade("growth", growth) if grown and test.p_value <= limits["p_value"] else None
    per_answer = _per_answer(run)
    if severity is not None and (per_answer is not True or not apart.ended):
        severity = Severity.INFO
    gap = apart.wrong - apart.right
    half = 1.96 * float(gap[last].std(ddof=1) / np.sqrt(last.sum()))
    return Finding(
        severity=severity,
        says=f"in {last.sum()} saved groups, wrong answers are {after:.2f} times as long as right ones, from {before:.2f}; "
        f"wrong {wrong[0]:.0f} to {wrong[1]:.0f}, right {right[0]:.0f} to {right[1]:.0f} {apart.unit}, apart by "
        f"{gap[last].mean():.0f} ({gap[last].mean() - half:.0f} to {gap[last].mean() + half:.0f})"
        + (_how(per_answer) if severity is not None else ""),
        numbers={"early": before, "late": after, "growth": growth, "gap": float(gap[last].mean())},
        metrics=("length.incorrect.mean", "length.correct.mean"),
        onset=Onset(float(low), float(apart.steps[0]), float(high)) if severity is not None else None,
        evidence=Evidence(growth - 1, test.p_value, "lengths within groups, first against last third", n=len(ratio)),
        remedies=("loss_aggregation", "soft_overlong_penalty"),
    )


def _how(per_answer: bool | None) -> str:
    how = {True: "the loss is averaged per answer", False: "the loss is averaged over tokens, so it is not the cause"}
    return f"; {how[per_answer]}" if per_answer is not None else "; how the loss is averaged is not known"


def _per_answer(run: Run) -> bool | None:
    """Whether token losses are averaged inside each answer first; None when the configuration is not known."""
    mode, loss = run.knob("loss_aggregation"), run.knob("loss_type")
    if isinstance(mode, str):
        return mode == "seq-mean-token-mean" or mode in ("sequence", "sample")
    return _PER_ANSWER.get(loss) if isinstance(loss, str) else None
