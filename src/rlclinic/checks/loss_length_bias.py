"""The loss averages per answer, which makes long wrong answers cheap: they grow while right ones do not.

## What you see
Wrong answers lengthen and right ones keep their length, with a loss that is averaged inside each answer first.

## Why it matters
Each token of a long answer then counts less. A wrong answer lowers its penalty by going on, and a right one raises its
reward by being short, so length drifts without any gain in quality.

## When it is not a problem
Both kinds grow together and the score rises: the task needs longer thought. Wrong answers are longer in nearly every
run, because hard prompts take longer; only a gap that grows counts. Answers cut at the limit are wrong and long alike.
"""

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import lasting, now
from rlclinic.model import ROLLOUTS, Column, Evidence, Finding, Run, Severity
from rlclinic.stats.level import early, late

_PER_ANSWER = {"grpo": True, "dapo": False, "bnpo": False, "dr_grpo": False, "cispo": False, "gspo": True}


@check(
    page=__doc__,
    uses=["length.correct.mean", "length.incorrect.mean", "length.truncated_frac", "reward.mean"],
    since="0.2",
)
def loss_length_bias(run: Run, limits: Limits) -> Answer:
    per_answer = _per_answer(run)
    steps, wrong, right = run.paired("length.incorrect.mean", "length.correct.mean")
    if len(steps) < limits["rows"]:
        return Unexamined(
            (ROLLOUTS, "length.incorrect.mean"), "needs saved answers, or the lengths of right and wrong answers apart"
        )
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
    how = {True: "the loss is averaged per answer", False: "the loss is averaged over tokens, so it is not the cause"}
    told = f"; {how[per_answer]}" if per_answer is not None else "; how the loss is averaged is not known"
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


def _per_answer(run: Run) -> bool | None:
    """Whether token losses are averaged inside each answer first; None when the configuration is not known."""
    mode, loss = run.knob("loss_aggregation"), run.knob("loss_type")
    if isinstance(mode, str):
        return mode == "seq-mean-token-mean" or mode in ("sequence", "sample")
    return _PER_ANSWER.get(loss) if isinstance(loss, str) else None
