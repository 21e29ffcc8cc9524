"""Learning has stopped: for a long stretch the reward stays within a narrow band around one level.

## What you see
Reward, and held-out score where there is one, move by less than their own noise over the last third of the run or more,
shown as an equivalence and not merely as a trend that was missed.

## Why it matters
The rest of the budget buys nothing unless what holds the run back is found: dead groups, lost entropy, an exhausted
learning rate, a noisy judge, wrong reference answers.

## When it is not a problem
The run is at its planned end, or at the top of its reward. A slow start before the rise of a sigmoid looks flat too.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.rewards import underpaid
from rlclinic.model import Column, Evidence, Finding, Forecast, Onset, Run, Severity
from rlclinic.stats.level import EARLY, early, late
from rlclinic.stats.trend import Plateau, net_change, trend
from rlclinic.stats.trend import plateau as equivalence

_ASK = ("ten training answers that were scored wrong, read by a person: are they?",)


@check(
    page=__doc__, needs=["reward.mean"], uses=["eval.score", "optim.lr", "group.zero_var_frac"], points=12, since="0.1"
)
def plateau(run: Run, limits: Limits) -> Answer:
    reward = run["reward.mean"].finite
    span = float(reward.steps[-1] - reward.steps[0])
    if len(reward) < limits["rows"] and span < limits["span"]:
        return Unexamined((), f"{len(reward)} rows over {span:.0f} steps are too few to call flat")
    flat, drift = _flat_share(reward, limits)
    level = late(reward.values)
    if flat == 0.0 or drift is None:
        return Finding(
            severity=None, says=f"reward is not shown to be flat (late level {level:.3g})", numbers={"flat": 0.0}
        )
    start = float(reward.steps[len(reward) - int(flat * len(reward))])
    held_out = run.get("eval.score")
    if held_out is not None and len(held_out.finite.since(start)) >= 6 and not _still(held_out, start):
        return Finding(severity=None, says="reward is flat but the held-out score still rises", numbers={"flat": flat})
    planned = run.planned_steps or 0
    left = max(0.0, 1 - float(reward.steps[-1]) / planned) if planned else 0.0
    top = run.reward_range is not None and run.reward_range.share(level) > limits["top"]
    earlier = reward.values[reward.steps < start]
    learned = len(earlier) >= 5 and float(np.median(earlier[: max(3, len(earlier) // 4)])) < level
    severity, long = Severity.INFO, flat > limits["share"] and span >= limits["steps"]
    if not top and (long or (left > limits["budget"] and flat >= 0.5)):
        severity = Severity.WARNING
    rest = f"; {min(left, 0.99):.0%} of the planned {planned} steps remain" if left > 0.02 else ""
    still = _still(held_out, start) and drift.change_low <= 0
    stretch = reward.values[reward.steps >= start]
    says = f"reward has stayed near {float(np.median(stretch)):.3g} since step {start:.0f}, {flat:.0%} of the run"
    moving = drift.change_low > 0 or drift.change_high < 0
    apart = underpaid(run, limits["apart"])
    doubt = ("score_gold_answers",) if apart else ()
    if moving:
        ends = f"{early(stretch):.3g} to {late(stretch, EARLY):.3g}"
        says = f"reward {'gains' if drift.change > 0 else 'loses'} little: {drift.change:+.2g} in the "
        says += f"{reward.steps[-1] - start:.0f} steps since step {start:.0f} ({ends}), {flat:.0%} of the run"
    return Finding(
        severity=severity,
        title="Learning has all but stopped: for a long stretch the reward changes little." if moving else "",
        says=says + (f"; {apart}" if apart else "") + rest,
        numbers={"flat": flat, "level": level, "left": left, "learned": float(learned)},
        metrics=tuple(m for m in ("reward.mean", "eval.score") if m in run),
        onset=Onset(start, max(float(reward.steps[0]), start - 0.1 * span), start + 0.1 * span),
        evidence=Evidence(
            flat, limits["p_value"], "equivalence: the interval of the change lies inside the margin", equivalence=True
        ),
        remedies=(*doubt, "harder_data", "larger_groups", *(("lr_schedule",) if _decays(run) else ()), "stop_here"),
        would_decide=_ASK if apart else () if held_out is not None else ("a held-out score",),
        forecast=_rest(planned - float(reward.steps[-1]), flat * span, drift) if left > 0.02 else None,
        wasted=flat - 0.1 if severity == Severity.WARNING and long and not top and still else None,
    )


def _rest(steps: float, flat: float, drift: Plateau) -> Forecast | None:
    """What the planned rest buys if the course of the flat stretch holds; None far beyond the length of that stretch."""
    if steps > 2 * flat:
        return None
    low, high = sorted((drift.slope_low * steps, drift.slope_high * steps))
    return Forecast(f"at this slope the {steps:.0f} planned steps left change the reward by {low:+.2g} to {high:+.2g}")


def _still(held_out: Column | None, start: float) -> bool:
    """Whether the held-out score stands still too: training reward alone may lie at a ceiling of its own."""
    evals = None if held_out is None else held_out.finite.since(start)
    return evals is not None and len(evals) >= 6 and trend(evals.steps, evals.values, share=True).verdict != "rising"


def _decays(run: Run) -> bool:
    """Whether the logged learning rate has run down; only then can the schedule be what holds the run back."""
    rate = run.get("optim.lr")
    return (
        rate is not None and len(rate.finite) > 0 and late(rate.finite.values) < 0.3 * float(rate.finite.values.max())
    )


def _flat_share(reward: Column, limits: Limits) -> tuple[float, Plateau | None]:
    """The largest share of the run, counted from its end, over which the reward is shown to be flat, with the test that
    shows it; 0 when none is."""
    n = len(reward)
    noise = float(np.median(np.abs(np.diff(reward.values)))) * 1.0484
    scale = max(abs(late(reward.values)), float(np.ptp(reward.values)) / 4, 1e-12)
    margin = max(limits["margin"] * scale, noise)
    small = limits["margin"] * scale
    for share in (0.9, 0.8, 0.66, 0.5, 1 / 3):
        k = int(share * n)
        if k < min(20, n - 2):
            continue
        steps, values = reward.steps[n - k :], reward.values[n - k :]
        # The likeliest change must be small in itself; the interval only has to stay within the noise.
        if abs(net_change(steps, values)) > small:
            continue
        shown = equivalence(steps, values, margin, limits["p_value"])
        if shown.flat is True and abs(shown.change) <= small:
            return share, shown
    return 0.0, None
