"""What a log implies without saying it: the attainable reward, the weights of its parts, rows without any live group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlclinic.model import Column, Component, Floats, RewardRange, Run

_FLAT = 1e-6
"""Spread below which rewards count as equal (TRL and verl add 1e-4 and 1e-6 to the group deviation before dividing)."""


def complete(run: Run) -> Run:
    """``run`` with reward-part weights, the attainable reward range and ``group.all_dead`` added where they follow."""
    run = replace(run, components=_weighted(run))
    run = replace(run, reward_range=run.reward_range or reward_range(run))
    dead = all_dead(run)
    return run if dead is None else replace(run, columns={**run.columns, "group.all_dead": dead})


def all_dead(run: Run) -> Column | None:
    """1.0 in rows where the log proves that every group had equal rewards, 0.0 where it proves the opposite.

    Any one proof suffices: a zero-variance share of 1, a spread of exactly 0 (over the batch or within groups, which
    both imply it), largest and smallest advantage both 0, largest reward equal to smallest, or one and the same mean reward
    in every row while every gradient is exactly 0. A spread printed as 0 counts from three decimals on: right and wrong
    answers in one batch cannot round to that.
    """
    rows: dict[float, float] = {}
    used: list[str] = []
    batch_only = True

    def learn(steps: Floats, dead: Floats, key: str) -> None:
        if len(steps):
            used.append(key)
        for step, value in zip(steps.tolist(), dead.tolist(), strict=True):
            rows[step] = max(rows.get(step, 0.0), value)

    share = run.get("group.zero_var_frac")
    if share is not None and share.status == "measured":
        batch_only = False
        learn(share.finite.steps, (share.finite.values >= 1.0 - 1e-9).astype(float), share.key)
    for metric in ("reward.group_std", "reward.std", "reward.std_unresolved"):
        spread = run.get(metric)
        if spread is not None and spread.resolution <= 1e-3:
            batch_only &= metric != "reward.group_std"
            learn(spread.finite.steps, (np.abs(spread.finite.values) < _FLAT).astype(float), spread.key)
    for low, high, factor in (("advantage.min", "advantage.max", 0.0), ("reward.min", "reward.max", 1.0)):
        steps, least, most = run.paired(low, high)
        batch_only &= not len(steps)
        equal = (most - least < _FLAT) & ((factor == 1.0) | (np.abs(most) < _FLAT))
        learn(steps, equal.astype(float), run[high].key if len(steps) else "")
    if not rows:
        _learn_constant(run, learn)
    if not rows or (batch_only and not any(rows.values())):
        return None  # a spread over the batch above 0 says nothing about groups
    steps = np.array(sorted(rows))
    return Column(
        metric="group.all_dead",
        key=" + ".join(dict.fromkeys(used)),
        steps=steps,
        values=np.array([rows[s] for s in steps.tolist()]),
        note="derived: 1 where the row proves that all groups had equal rewards",
    )


def _learn_constant(run: Run, learn: Callable[[Floats, Floats, str], None]) -> None:
    steps, reward, norm = run.paired("reward.mean", "grad.norm")
    if len(steps) >= 2 and np.ptp(reward) == 0 and not norm.any() and not run["grad.norm"].rounded_zero:
        learn(steps, np.ones(len(steps)), f"{run['reward.mean'].key} and {run['grad.norm'].key}")


def reward_range(run: Run) -> RewardRange | None:
    """The attainable reward of one answer, or None when the log cannot show it.

    From weighted parts that each behave like a right-or-wrong score (their batch spread is the binomial one), from the
    extremes a log prints, or from a total that itself behaves like one. Nothing is assumed from the mean alone.
    """
    reward = run.get("reward.mean")
    if reward is None or not len(reward.finite):
        return None
    parts = list(run.components.values())
    if parts and all(p.weight is not None and _binary(p.mean, p.std) for p in parts):
        weights = [p.weight or 0.0 for p in parts]
        low, high = sum(min(w, 0.0) for w in weights), sum(max(w, 0.0) for w in weights)
        if high > low:
            return RewardRange(low, high, "every reward part is a right-or-wrong score; weights from the log")
    top, bottom = run.get("reward.max"), run.get("reward.min")
    if top is not None and bottom is not None and len(top.finite) and len(bottom.finite):
        low, high = float(bottom.finite.values.min()), float(top.finite.values.max())
        if high > low:
            return RewardRange(low, high, f"extremes seen in {bottom.key} and {top.key}")
    spread = run.get("reward.std") or run.get("reward.std_unresolved")
    if not parts and _binary(reward, spread):
        return RewardRange(0.0, 1.0, "the reward behaves like a right-or-wrong score")
    success = run.get("reward.success_rate")
    if success is not None and success.key == reward.key:
        return RewardRange(0.0, 1.0, "a success rate")
    return None


def _binary(mean: Column, std: Column | None) -> bool:
    """Whether means in [0, 1] go with the batch spread sqrt(p(1-p)) of a 0/1 score, to 8 % or 0.03 (ours).

    The tolerance covers the n/(n-1) of the sample deviation (6 % at 8 answers) and averaging over a logging window.
    """
    if std is None:
        return False
    steps, i, j = np.intersect1d(mean.finite.steps, std.finite.steps, assume_unique=True, return_indices=True)
    p, s = mean.finite.values[i], std.finite.values[j]
    if not len(steps) or p.min() < -1e-9 or p.max() > 1 + 1e-9:
        return False
    binomial = np.sqrt(np.clip(p * (1 - p), 0, None))
    fits = np.abs(s - binomial) <= np.maximum(0.08 * binomial, 0.03)
    return bool(fits.mean() >= 0.8) and bool((s > _FLAT).any() or np.isin(np.round(p, 6), (0.0, 1.0)).all())


def _at(column: Column, steps: Floats) -> Floats:
    """The finite values of a column at ``steps``, which it must have."""
    return column.finite.values[np.searchsorted(column.finite.steps, steps)]


def _weighted(run: Run) -> dict[str, Component]:
    """The reward parts with the weights that make their weighted sum the logged reward exactly, where such exist."""
    parts = dict(run.components)
    reward = run.get("reward.mean")
    if reward is None or not parts or all(p.weight is not None for p in parts.values()):
        return parts
    steps = reward.finite.steps
    for part in parts.values():
        steps = np.intersect1d(steps, part.mean.finite.steps, assume_unique=True)
    if len(steps) < len(parts) + 3:
        return parts
    matrix = np.column_stack([_at(p.mean, steps) for p in parts.values()])
    total = _at(reward, steps)
    varies = np.ptp(matrix, axis=0) > 1e-9
    if not varies.any():
        return parts
    weights = np.zeros(len(parts))
    weights[varies] = np.linalg.lstsq(matrix[:, varies], total, rcond=None)[0]
    left = total - matrix @ weights
    exact = float(np.abs(left).max()) <= 1e-3 * max(float(np.abs(total).max()), 1e-9)
    if not exact:
        return parts
    # A part that never varies leaves no trace in the total unless it is 0, so its weight stays unknown.
    return {
        name: replace(part, weight=float(round(w, 4)) if v else None)
        for (name, part), w, v in zip(parts.items(), weights, varies, strict=True)
    }
