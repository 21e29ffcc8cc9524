"""The critic predicts worse than the plain mean of the returns would, so its advantages are noise.

## What you see
After the warm-up the explained variance stays below 0, the values lie far from the returns, or the critic's own numbers
are not finite.

## Why it matters
Advantages are returns less values: a wrong critic turns right answers into wrong signs, and one with NaN ruins the
policy at its next update.

## When it is not a problem
The first 20 to 50 steps, when the value head is untrained. Returns that are all the same have no variance to explain, and
the ratio is then undefined however good the critic.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.evidence import hampel, mean_interval
from rlclinic.stats.level import late
from rlclinic.stats.shift import crossing

_CRITIC = ("value.explained_var", "value.mean", "value.loss", "grad.norm_critic")


@check(page=__doc__, uses=[*_CRITIC, "return.mean", "return.min", "return.max"], since="0.2")
def critic_failure(run: Run, limits: Limits) -> Answer:
    present = tuple(name for name in _CRITIC if name in run)
    if not present and run.algorithm not in (None, "ppo", "gae") and not run.partial:
        return NotApplicable(f"{run.algorithm} takes its baseline from the group or the batch; there is no critic")
    broken = _not_finite(run) if present else None
    if broken is not None:
        return broken
    first = 0.0 if run.excerpt else float(run.steps[0]) if len(run.steps) else 0.0
    ready = first + max(limits["warmup"], run.number("critic_warmup") or 0.0)
    explained, away = _explained(run, first, limits), _distance(run, first)
    if explained is None and away is None:
        return Unexamined(("value.explained_var",), "neither explained variance nor values beside returns are logged")
    if float(run.steps[-1]) <= ready:
        wide = away is not None and limits.grade("distance", away[0]) is not None
        says = f"in its first {ready - first:.0f} steps the critic " + (away[1] if wide and away else "is untrained")
        return Finding(Severity.INFO if wide else None, f"{says}: nothing to act on yet", metrics=present)
    explained, away = _explained(run, ready, limits), _distance(run, ready)
    severity, says, onset, level = None, "the values lie near the returns", None, 0.0
    if explained is not None:
        level = late(explained.values, least=1)
        says = (
            f"the critic explains {level:.2g} of the variance of the returns (1 is all, 0 what the plain mean explains)"
        )
        tail = explained.values[-max(3, len(explained) // 4) :]
        sure = run.short or mean_interval(hampel(tail), level=0.95, sides="upper").high < 0 or bool((tail < 0).all())
        severity = limits.grade("explained", level) if sure else None
        onset = crossing(explained.steps, explained.values, 0.0, above=False) if severity is not None else None
    if away is not None and (graded := limits.grade("distance", away[0])) is not None:
        says = f"{says}; it {away[1]}" if explained is not None else f"the critic {away[1]}"
        severity = max(severity or graded, graded)
    return Finding(
        severity=severity,
        says=says,
        numbers={} if explained is None else {"explained": level},
        metrics=present,
        onset=onset,
        evidence=Evidence(
            level if explained is not None or away is None else away[0], None, "late level against a limit"
        ),
        remedies=("critic_warmup", "gae_lambda", "critic_lr", "reward_normalise"),
        would_decide=("the critic alone on a frozen policy for 50 steps: does it explain more?",) if severity else (),
    )


def _not_finite(run: Run) -> Finding | None:
    """The critic's own loss or gradient is not finite, now or for good; single overflows of a scaled loss are none.

    Mean values are left out: some trainers write NaN for them when a batch is empty.
    """
    now = {name: run[name] for name in ("value.loss", "grad.norm_critic") if name in run}
    now = {name: c for name, c in now.items() if not np.isfinite(c.values[-max(1, len(c) // 10) :]).any()}
    if not now:
        return None
    first = min(float(c.steps[~np.isfinite(c.values)][0]) for c in now.values())
    policy = [
        c for name, c in run.columns.items() if name in ("grad.norm", "loss.policy", "loss.total") and c.nonfinite
    ]
    before = [float(c.steps[~np.isfinite(c.values)][0]) for c in policy]
    follows = any(step <= first for step in before)
    return Finding(
        severity=Severity.INFO if follows else Severity.CRITICAL,
        says=f"{' and '.join(c.key for c in now.values())} not finite from step {first:g}"
        + ("; the policy broke with it or before" if follows else "; the advantages follow at the next update"),
        numbers={"first": first},
        metrics=tuple(now),
        onset=Onset(first, first, first),
        evidence=Evidence(1.0, None, "the log shows it"),
        remedies=("precision", "value_clip", "check_masks", "roll_back"),
        would_decide=() if follows else ("the critic alone on one batch in fp32: is its loss finite?",),
    )


def _explained(run: Run, ready: float, limits: Limits) -> Column | None:
    """Explained variance from ``ready`` on, in the rows whose returns differ."""
    column = run.get("value.explained_var")
    if column is None:
        return None
    c = column.finite.since(ready)
    steps, most, least = run.paired("return.max", "return.min")
    alike = steps[most - least <= limits["alike"] * max(float((most - least).max(initial=0.0)), 1e-12)]
    keep = ~np.isin(c.steps, alike)
    return Column(c.metric, c.key, c.steps[keep], c.values[keep]) if keep.any() else None


def _distance(run: Run, ready: float) -> tuple[float, str] | None:
    """How far values lie from returns, as a multiple of the scale of the returns, and in words."""
    steps, values, returns = run.paired("value.mean", "return.mean")
    if not (kept := steps >= ready).any():
        return None
    _, most, least = run.paired("return.max", "return.min")
    known = 0.0 if run.reward_range is None else run.reward_range.high - run.reward_range.low
    spread = float(most.max() - least.min()) if len(most) else float(np.ptp(returns))
    scale = max(spread, known, float(np.abs(returns[kept]).max()))
    if scale <= 0:
        return None  # all returns are 0: what would be near cannot be told
    value, paid = late(values[kept], least=1), late(returns[kept], least=1)
    size = late(np.abs(values[kept] - returns[kept]), least=1)
    return size / scale, f"predicts {value:.3g} where the returns are {paid:.3g}"
