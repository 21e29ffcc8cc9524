"""Something the model could do before is lost while the trained task improves.

## What you see
Of several held-out series one falls from its best by more than two standard errors, while another, or the training
reward, rises.

## Why it matters
The policy pays for the trained task with skills that are not rewarded. A single score hides it, and users meet it first.

## When it is not a problem
A change of format can break the parser of another set without any loss of skill. When every held-out series falls the
model as a whole gets worse, which other checks report. A dip of one evaluation is noise.
"""

import re

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import lasting, sank
from rlclinic.model import Column, Evidence, Finding, Run
from rlclinic.stats.coupling import FEWEST_EVALUATIONS, Fall, fall
from rlclinic.stats.level import answers_behind, late_mean, rank_p

_NO_SKILL = re.compile(
    r"loss|len|token|time|entropy|kl|std|turn|clip|step|worst|best@|maj@|pass@|count|num_|zero", re.I
)
"""Held-out series that do not say how good the answers are, or that restate another series of the same set."""


@check(page=__doc__, uses=["eval.score", "reward.mean"], since="0.2")
def regression_forgetting(run: Run, limits: Limits) -> Answer:
    series = {key: c.finite for key, c in run.evaluations.items() if not _NO_SKILL.search(key)}
    series = {key: c for key, c in series.items() if len(c) >= FEWEST_EVALUATIONS}
    if len(series) < 2:
        says = f"needs two held-out sets with {FEWEST_EVALUATIONS} evaluations each; {len(series)} found"
        return Unexamined(("eval.score",), says)
    level = limits["p_value"] / len(series)
    turns = {key: fall(c.steps, c.values, questions=answers_behind(c.values)) for key, c in series.items()}
    lost = {key: turn for key, turn in turns.items() if _fell(turn, series[key], level, limits)}
    reward = run.get("reward.mean")
    gained = [key for key, c in series.items() if key not in lost and rank_p(c.values) <= level and _rose(c)]
    trained = reward is not None and lasting(reward, falling=False) is not None
    numbers = {"series": float(len(series)), "fallen": float(len(lost))}
    if not lost or len(lost) == len(series) or not (gained or trained):
        says = f"of {len(series)} held-out series {len(lost)} fell" + (
            "" if gained or trained else ", and nothing rose"
        )
        return Finding(None, says, numbers, ("eval.score",))
    worst = max(lost, key=lambda key: _share(lost[key]))
    turn = lost[worst]
    beside = gained[0] if gained else "the training reward"
    return Finding(
        severity=limits.grade("loss", _share(turn)),
        says=f"{worst} {sank(series[worst], turn.peak, turn.late)} while {beside} rose"
        + (f"; so did {len(lost) - 1} other{'s' * (len(lost) > 2)}" if len(lost) > 1 else ""),
        numbers={**numbers, "best": turn.peak, "late": turn.late},
        metrics=("eval.score",),
        onset=turn.rollback,
        evidence=Evidence(
            _share(turn), min(1.0, len(series) * turn.p_value), "rise and fall against never falls", n=turn.m
        ),
        remedies=("mix_other_data", "kl_coefficient", "roll_back", "lower_learning_rate"),
        would_decide=("twenty of the lost answers: a lost skill, or another format that the parser does not read?",),
    )


def _fell(turn: Fall, column: Column, level: float, limits: Limits) -> bool:
    share = column.values.min() >= 0.0 and column.values.max() <= 1.0
    least = limits["least"] if share else 0.0
    return (
        turn.p_value <= level
        and turn.drop > max(1.4 * turn.sd, least)
        and limits.grade("loss", _share(turn)) is not None
    )


def _share(turn: Fall) -> float:
    return turn.drop / abs(turn.peak) if turn.peak else 0.0


def _rose(column: Column) -> bool:
    return late_mean(column.values) > float(column.values[: max(2, len(column) // 4)].mean())
