"""The learning rate has run down while training continues.

## What you see
The rate is below a twentieth of its peak for the last part of the run. Reward and KL stand still, the gradient does not.

## Why it matters
Answers are generated and scored, and the steps taken from them are next to nothing.

## When it is not a problem
The planned end: a linear schedule spends its last twentieth there, a cosine its last seventh. A warm-up is low, too, at
the other end. A plateau with the rate still up has another cause.
"""

import math

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import bought
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.shift import longest_run


@check(page=__doc__, uses=["optim.lr", "reward.mean", "eval.score"], since="0.2")
def lr_schedule_exhausted(run: Run, limits: Limits) -> Answer:
    rate = run.get("optim.lr")
    rate = rate if rate is not None and len(rate.finite) else _planned(run)
    if rate is None:
        return Unexamined(("optim.lr",), "neither the learning rate nor its schedule and length are known")
    c = rate.finite
    peak = max(float(c.values.max()), run.number("learning_rate") or 0.0)
    if peak <= 0:
        says = "the rate is 0 as printed" if rate.rounded_zero else "the rate is 0 in every row: no schedule ended"
        return Unexamined((), says) if rate.rounded_zero else NotApplicable(says)
    if rate.resolution > 0.02 * peak:
        return Unexamined((), f"the rate is printed in steps of {rate.resolution:g}, too coarse beside {peak:g}")
    low = c.values < limits["left"] * peak
    if run.short and not low.any():
        return _tiny(run, c, limits)
    first, last, rows = longest_run(c.steps, low)
    ends = rows > 0 and last == c.steps[-1] and first > c.steps[int(np.argmax(c.values))]
    share = rows / len(c) if ends else 0.0
    if not ends:
        return Finding(
            severity=None,
            says=f"learning rate is {c.values[-1]:.2g} at the end, {c.values[-1] / peak:.0%} of its peak",
            numbers={"share": 0.0, "last": float(c.values[-1]), "peak": peak},
            metrics=("optim.lr",) if "optim.lr" in run else (),
        )
    gain = bought(run, since=first)
    still = gain is not None and not gain.rising and not gain.falling
    told_of = Severity.INFO if share >= limits["ending"] else None  # the last rows of a planned decay are no news
    severity = (limits.grade("share", share) if still else None) or told_of
    told = f"; since then {gain.says}" if gain is not None else ""
    return Finding(
        severity=severity,
        says=f"learning rate is below {limits['left']:.0%} of its peak of {peak:.2g} since step {first:g}, "
        f"{share:.0%} of the run{told}",
        numbers={"share": share, "last": float(c.values[-1]), "peak": peak},
        metrics=tuple(m for m in ("optim.lr", "reward.mean", "eval.score") if m in run),
        onset=Onset(first, first, first) if severity is not None else None,
        evidence=Evidence(share, None, "the logged rate" if "optim.lr" in run else "schedule and planned steps"),
        remedies=("lr_schedule", "stop_here"),
        wasted=share if (severity or 0) >= Severity.WARNING else None,
    )


def _tiny(run: Run, c: Column, limits: Limits) -> Answer:
    """A pasted row does not tell the peak; but a rate this small, not rising, moves no weights."""
    epoch = run.get("progress.epoch")
    now, early = float(c.values[-1]), run.planned_steps is not None and c.steps[-1] < 0.1 * run.planned_steps
    early = early or (epoch is not None and len(epoch.finite) > 0 and float(epoch.finite.values[-1]) < 0.2)
    if not 0 < now < limits["tiny"] or now > c.values[0] or early or len(c) > len(run.steps):
        return Unexamined((), f"the peak of the learning rate is not known; it is {now:.2g} now")
    return Finding(
        severity=Severity.INFO,
        says=f"learning rate is {now:.2g}: steps of that size change next to nothing, as at the end of a schedule",
        numbers={"last": now},
        metrics=("optim.lr",),
        evidence=Evidence(now, None, "a level"),
        remedies=("lr_schedule",),
        would_decide=("the peak of the learning rate, and the step of this row among the planned ones",),
    )


def _planned(run: Run) -> Column | None:
    """The rate that schedule and planned steps imply, for a log without it; None for other schedules."""
    word, peak, total = run.knob("lr_schedule"), run.number("learning_rate"), run.planned_steps
    if word not in ("linear", "cosine") or not peak or not total or not len(run.steps):
        return None
    done = np.clip(run.steps / total, 0.0, 1.0)
    left = 1.0 - done if word == "linear" else 0.5 * (1.0 + np.cos(math.pi * done))
    floor = run.number("min_lr_ratio") or 0.0
    return Column("optim.lr", "schedule", run.steps, peak * np.maximum(left, floor))
