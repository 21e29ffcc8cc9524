"""The held-out score is too noisy to tell progress from chance.

## What you see
Evaluations go up and down by as much as the whole run could have changed them: few questions, so each score has a wide
standard error, sqrt(p(1-p)/n) for n answers at a score of p.

## Why it matters
Checkpoints chosen by such a score are chosen by luck, and neither progress nor loss can be claimed.

## When it is not a problem
A change far beyond the noise is visible all the same, and many evaluations together show a trend that two of them do
not.
"""

import math

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.model import Evidence, Finding, Run, Severity
from rlclinic.stats.coupling import FEWEST_EVALUATIONS, fall
from rlclinic.stats.level import answers_behind, rank_p
from rlclinic.stats.trend import trend


@check(page=__doc__, needs=["eval.score"], points=2, since="0.2")
def eval_too_noisy(run: Run, limits: Limits) -> Answer:
    score = run["eval.score"].finite
    values, m = score.values, len(score)
    share = bool(values.min() >= 0.0 and values.max() <= 1.0)
    answers = answers_behind(values) if share else None
    peak = fall(score.steps, values, questions=answers)
    if answers is None and m < FEWEST_EVALUATIONS:
        says = f"{m} evaluations and an unknown number of questions: the noise of one score is not known"
        return Unexamined(("eval.score",), says)
    middle = float(values.mean())
    # Half an answer at least: scores of exactly 0 or 1 are no certainties.
    binomial = None if answers is None else math.sqrt(max(middle * (1.0 - middle), 0.25 / answers) / answers)
    error = binomial if binomial is not None else peak.sd
    each = max(1, m // 3)
    visible = 2.0 * error * math.sqrt(2.0 / each)
    moved = float(values[-each:].mean() - values[:each].mean())
    size = 1.0 if share else float(np.abs(values).max())
    level = limits["p_value"]
    drift = trend(score.steps, values, level=level, share=share).verdict in ("rising", "falling")
    shown = abs(moved) > visible or peak.p_value <= level or rank_p(values) <= level or drift
    wide = visible > limits["visible"] * size
    basis = f"{answers} answers each" if answers is not None else "noise from their scatter"
    numbers = {"standard_error": error, "visible": visible, "moved": moved, "evaluations": float(m)}
    return Finding(
        severity=Severity.INFO if wide and not shown else None,
        says=f"held-out score: {m} evaluations, {basis}, standard error {error:.2g}; from first to last "
        + (
            f"{moved:+.2g}, and only {visible:.2g} would show: cannot decide" if wide and not shown else f"{moved:+.2g}"
        ),
        numbers=numbers if answers is None else {**numbers, "answers": float(answers)},
        metrics=("eval.score",),
        evidence=Evidence(visible, None, "binomial error" if answers is not None else "second differences"),
        remedies=("larger_held_out_set",),
        would_decide=(f"{_needed(middle, limits):.0f} held-out questions, or the same ones answered several times",)
        if wide and not shown and share
        else (),
    )


def _needed(p: float, limits: Limits) -> float:
    """Questions with which two single evaluations that differ by the limit differ by two standard errors."""
    return 10.0 * math.ceil(0.8 * max(p * (1.0 - p), 0.05) / limits["visible"] ** 2)
