"""The loss of the critic grows many times over: its predictions run away from the returns.

## What you see
The value loss ends at ten times its best level and more, and above what returns of that range can cost. Clipped values
and the critic's gradient norm go up with it; NaN comes next.

## Why it matters
Advantages are returns less values, so the policy is pushed by the error of the critic.

## When it is not a problem
Rewards that became larger, or that began to differ at all: a loss grows with the square of its scale. The first steps of
an untrained value head.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import lasting
from rlclinic.model import Column, Finding, Floats, Run, Severity
from rlclinic.stats.level import early, held, late

_LOSSES = ("value.loss", "value.error")


@check(page=__doc__, uses=[*_LOSSES, "value.clip_frac", "grad.norm_critic", "return.min", "return.max"], since="0.2")
def value_loss_explosion(run: Run, limits: Limits) -> Answer:
    name = next((m for m in _LOSSES if m in run and len(run[m].finite)), None)
    if name is None and run.algorithm not in (None, "ppo", "gae") and not run.partial:
        return NotApplicable(f"{run.algorithm} takes its baseline from the group or the batch; there is no critic")
    if name is None:
        return Unexamined(("value.loss",), "no loss of a critic is in this log")
    loss = run[name].finite
    if len(loss) < limits["rows"]:
        return Unexamined((), f"{len(loss)} values of the value loss are too few to call it growing")
    means, width = held(loss.values)
    low = int(np.argmin(means))
    best, level = float(means[low]), late(loss.values, 0.1, 5)
    after = loss.since(float(loss.steps[low]))
    rise = lasting(after if len(after) >= limits["rows"] else loss, falling=False, level=limits["p_value"])
    scale = _scale(run, float(loss.steps[min(low + width, len(loss) - 1)]))
    growth = level / max(best, 1e-12) / scale[0]
    severity = limits.grade("growth", growth) if rise is not None else None
    borne = severity is not None and scale[1] is not None and level <= limits["bound"] * scale[1] ** 2
    if borne:
        severity = Severity.INFO
    norm = run.get("grad.norm_critic")
    steep = lasting(norm, falling=False) if severity is not None and norm is not None else None
    if severity == Severity.WARNING and steep is not None and steep.late > limits["gradient"] * max(steep.early, 1e-12):
        severity = Severity.CRITICAL
    told = f"; the rewards grew by a factor of {scale[0] ** 0.5:.2g} meanwhile" if scale[0] > 2 else ""
    told += "; still within what returns of this range can cost" if borne else ""
    told += f"; the critic's gradient norm went from {steep.early:.3g} to {steep.late:.3g}" if steep is not None else ""
    return Finding(
        severity=severity,
        says=f"value loss is {level:.3g}"
        + (
            f", {level / max(best, 1e-12):.3g} times its best level of {best:.3g}{told}" if severity is not None else ""
        ),
        numbers={"late": level, "best": best, "growth": growth},
        metrics=(name, *(m for m in ("value.clip_frac", "grad.norm_critic") if m in run)),
        onset=rise.onset if severity is not None and rise is not None else None,
        evidence=rise.sized(growth) if rise is not None and severity is not None else None,
        remedies=("reward_normalise", "reward_clip", "value_clip", "critic_lr", "roll_back"),
        would_decide=("mean and spread of values beside returns, before and after that step",) if severity else (),
    )


def _scale(run: Run, since: float) -> tuple[float, float | None]:
    """(growth of the squared scale of the returns since then, at least 1; their present range, None if unknown)."""
    for top, bottom in (("return.max", "return.min"), ("reward.max", "reward.min")):
        steps, most, least = run.paired(top, bottom)
        if len(steps) >= 10:
            spread = most - least
            return _squared(spread[steps <= since], spread), max(late(spread), 0.0)
    mean, std = run.get("reward.mean"), run.get("reward.std")
    known = None if run.reward_range is None else run.reward_range.high - run.reward_range.low
    column: Column | None = std if std is not None else mean
    if column is None or len(column.finite) < 10:
        return 1.0, known
    sizes = np.abs(column.finite.values)
    return _squared(sizes[column.finite.steps <= since], sizes), known


def _squared(before: Floats, sizes: Floats) -> float:
    first = early(before, 1.0) if len(before) else early(sizes)
    return max(1.0, (late(sizes) / first) ** 2) if first > 0 else 1.0
