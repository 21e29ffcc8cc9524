"""Metrics worked out from saved answers, one column each, and what of the log they prove right or wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlclinic.answers import agreement, groups, lengths, mismatch, parts, texts
from rlclinic.answers.agreement import KEY
from rlclinic.model import Column, Component, Floats, Knob, RewardRange, Run
from rlclinic.rollouts import EQUAL, Flags, Rollouts

_SHARE = "group.zero_var_frac"
_NOTE = "counted in the saved answers"
_REMARKS = ("verl", "verl-table", "art", "rllm", "tinker", "verifiers")
"""Forms whose parts are whatever the reward function remarks; one that never differs need not be paid."""
_TOLD = 0.1
"""Share of the compared rows that must contradict a logged share before it counts as false (ours)."""


@np.errstate(all="ignore")  # values of 1e308 overflow in sums; what comes of it is judged, not printed
def complete(run: Run) -> Run:
    """``run`` with what its saved answers give: their steps as the log counts them, columns and parts that the log lacks.

    A logged share of dead groups that the answers contradict is distrusted and replaced by the count. Columns come from
    whole groups as they were sampled, never from filtered or partial tables nor from answers that contradict the log.
    """
    if not run.rollouts:
        return run
    run, same = agreement.settle(run)
    run = mismatch.complete(run)
    table = agreement.trusted(run)
    if table is None:
        return run
    columns = dict(run.columns)
    rewarded = _rewarded(table)
    for metric, values in COLUMNS.items():
        if not rewarded and metric.startswith(("reward.", "group.")):
            continue
        known = columns.get(metric)
        if (known is None or known.status != "measured") and (found := values(table)) is not None:
            columns[metric] = Column(metric, KEY, *found, note=_NOTE)
    run = replace(run, columns=columns, knobs=_sized(run, table), components=_parts(run, table))
    rows = next((same[place] for place, one in enumerate(run.rollouts) if place in same and one.train is table), None)
    run = replace(run, reward_range=run.reward_range or _range(run, table))
    return run if rows is None else _compared(run, table, rows)


def by_step(steps: Floats, values: Floats) -> tuple[Floats, Floats] | None:
    """(steps, mean of the finite ``values`` at each); None where there are none."""
    keep = np.isfinite(steps) & np.isfinite(values)
    if not keep.any():
        return None
    found, place = np.unique(steps[keep], return_inverse=True)
    return found, np.bincount(place, values[keep]) / np.bincount(place)


def _rewarded(table: Rollouts) -> bool:
    """Whether the rewards speak for the answers: at least half of those at steps with rewards have one."""
    known = np.isfinite(table.reward)
    return bool(2 * known.sum() >= np.isin(table.step, table.step[known]).sum())


_BATCH = 16
"""Answers of a step, none of which shares its group with another, that are a batch (ours: fewer often earn the same by
chance, which would pass for groups without a spread)."""


def _batched(table: Rollouts, keep: Flags) -> bool:
    """Whether the answers of each step are a batch whose spread says something: whole groups, or many answers."""
    return bool(table.judged.any()) or int(np.unique(table.step[keep], return_counts=True)[1].min()) >= _BATCH


def _extreme(ufunc: np.ufunc) -> Callable[[Rollouts], tuple[Floats, Floats] | None]:
    def of(table: Rollouts) -> tuple[Floats, Floats] | None:
        keep = np.isfinite(table.step) & np.isfinite(table.reward)
        if not keep.any() or not _batched(table, keep):
            return None
        order = np.argsort(table.step[keep], kind="stable")
        steps, first = np.unique(table.step[keep][order], return_index=True)
        return steps, ufunc.reduceat(table.reward[keep][order], first)

    return of


def _reward(table: Rollouts) -> tuple[Floats, Floats] | None:
    return by_step(table.step, table.reward)


def _spread(table: Rollouts) -> tuple[Floats, Floats] | None:
    """Deviation over the batch (n - 1), as TRL and torch take it."""
    keep = np.isfinite(table.step) & np.isfinite(table.reward)
    steps, place = np.unique(table.step[keep], return_inverse=True)
    count = np.bincount(place)
    if not len(steps) or count.min() < 2 or not _batched(table, keep):
        return None
    centred = table.reward[keep] - (np.bincount(place, table.reward[keep]) / count)[place]
    return steps, np.sqrt(np.bincount(place, centred**2) / (count - 1))


def _group_spread(table: Rollouts) -> tuple[Floats, Floats] | None:
    """Mean over the groups of a step of the deviation (n - 1) within the group; dead groups count as exactly 0."""
    if not table.judged.any():
        return None
    within = np.sqrt(table.sums(table.centred(table.reward) ** 2) / np.maximum(table.size - 1, 1))
    return by_step(table.group_step[table.judged], np.where(table.dead, 0.0, within)[table.judged])


def _dead(table: Rollouts) -> tuple[Floats, Floats] | None:
    if not table.judged.any():
        return None
    return by_step(table.group_step[table.judged], table.dead[table.judged].astype(float))


def _ends(kind: str) -> Callable[[Rollouts], tuple[Floats, Floats] | None]:
    def of(table: Rollouts) -> tuple[Floats, Floats] | None:
        counted = groups.census(table)
        if not counted.by or not len(counted):
            return None
        return by_step(counted.step, np.asarray(getattr(counted, kind)).astype(float))

    return of


def _pass_rate(table: Rollouts) -> tuple[Floats, Floats] | None:
    right = parts.success(table)
    if right is None or not table.judged.any():
        return None
    return by_step(table.group_step[table.judged], table.means(right)[table.judged])


COLUMNS: dict[str, Callable[[Rollouts], tuple[Floats, Floats] | None]] = {
    "reward.mean": _reward,
    "reward.std": _spread,
    "reward.min": _extreme(np.minimum),
    "reward.max": _extreme(np.maximum),
    "reward.group_std": _group_spread,
    "group.zero_var_frac": _dead,
    "group.all_correct_frac": _ends("right"),
    "group.all_wrong_frac": _ends("wrong"),
    "group.pass_rate_mean": _pass_rate,
    **lengths.COLUMNS,
    **texts.COLUMNS,
}
"""What is worked out where the log lacks it, from the training answers: (steps, values), None where it cannot be told."""


# ---------------------------------------------------------------- what else the answers state


def _sized(run: Run, table: Rollouts) -> dict[str, Knob]:
    """The settings with the group size that the answers show where no setting states one."""
    knobs = dict(run.knobs)
    stated = knobs.get("group_size")
    size = groups.census(table).group_size
    if size is not None and (stated is None or stated.origin == "default"):
        knobs["group_size"] = Knob("group_size", size, KEY, "log")
    return knobs


def _parts(run: Run, table: Rollouts) -> dict[str, Component]:
    """The reward parts of the log or, where it has none, those of the answers, with the weights that the answers prove."""
    components = dict(run.components)
    given = {name: part.weight for name, part in components.items()}
    weights = parts.weights(table, given)
    if not components and len(table.parts) > 1 and weights is not None:
        for name, values in table.parts.items():
            varies = np.ptp(np.nan_to_num(values)) > EQUAL
            paid = abs(weights[name]) > EQUAL if varies else table.form not in _REMARKS
            if paid and (mean := by_step(table.step, values)) is not None:
                std = _spread(replace(table, reward=values))
                components[name] = Component(
                    name,
                    Column("reward.component.mean", KEY, *mean, note=_NOTE),
                    None if std is None else Column("reward.component.std", KEY, *std, note=_NOTE),
                )
    for name, part in components.items():
        own = table.parts.get(name)
        if part.weight is None and weights is not None and own is not None and np.ptp(np.nan_to_num(own)) > EQUAL:
            components[name] = replace(part, weight=weights[name])
    return components


def _range(run: Run, table: Rollouts) -> RewardRange | None:
    """What an answer can earn where each part, or the reward itself, has two values in all answers."""
    ends = {name: np.unique(values[np.isfinite(values)]) for name, values in table.parts.items()}
    weights = parts.weights(table, {name: part.weight for name, part in run.components.items()})
    if len(ends) > 1 and weights is not None:
        if not all(len(seen) and np.isin(seen, (0.0, 1.0)).all() for seen in ends.values()):
            return None
        worth = [weights[name] for name in ends]
        low, high = sum(min(one, 0.0) for one in worth), sum(max(one, 0.0) for one in worth)
        how = f"every reward part is a right-or-wrong score in all {len(table)} saved answers"
        return RewardRange(low, high, how) if high > low else None
    seen = np.unique(table.reward[np.isfinite(table.reward)])
    if len(ends) < 2 and parts.success(table) is not None and len(seen) == 2:
        return RewardRange(float(seen[0]), float(seen[1]), f"right-or-wrong in all {len(table)} saved answers")
    return None


def _compared(run: Run, table: Rollouts, rows: Floats) -> Run:
    """``run`` with its logged share of dead groups confirmed, or distrusted and replaced by the count in the answers.

    Only rows count whose mean reward is that of the very answers, so that both speak of one batch.
    """
    logged, counted = run.get(_SHARE), _dead(table)
    if logged is None or logged.key == KEY or logged.status != "measured" or counted is None:
        return run
    steps, share = counted
    both, i, j = np.intersect1d(logged.finite.steps, steps, assume_unique=True, return_indices=True)
    shown = np.isin(both, rows)
    said, true = logged.finite.values[i][shown], share[j][shown]
    if not len(said):
        return run
    off = np.abs(said - true) > 1e-3 + 0.5 * logged.resolution
    if not off.any():
        confirmed = "equal to the count in the saved answers"
        if confirmed in logged.note:
            return run
        note = f"{logged.note}; " * bool(logged.note) + f"{confirmed} in all {len(said)} rows compared"
        return replace(run, columns={**run.columns, _SHARE: replace(logged, note=note)})
    if off.sum() < 2 or off.mean() < _TOLD:
        return run
    why = (
        f"is {said.mean():.2g} on average in {len(said)} rows where {true.mean():.0%} of the groups in the saved answers "
        f"earned the same ({true[off].min():.0%} to {true[off].max():.0%} where it is false){_because(table, said, true)}"
    )
    exact = Column(_SHARE, KEY, steps, share, note=f"{_NOTE}; {logged.key} is false")
    return replace(run, columns={**run.columns, _SHARE: exact}, distrusted={**run.distrusted, logged.key: why})


def _because(table: Rollouts, said: Floats, true: Floats) -> str:
    """Why a trainer's own share is too low, where the rewards show it."""
    if said.mean() > true.mean():
        return ""
    rewards = table.means(table.reward)[table.dead]
    faint = float(np.mean(np.abs(rewards * 64 - np.round(rewards * 64)) > 1e-6)) if len(rewards) else 0.0
    if faint > 0.5:
        return ": equal rewards that float32 cannot hold exactly leave a deviation near 1e-7, which counts as a spread"
    if np.isin(said, (0.0, 1.0)).all():
        return ": only ever 0 or 1, it may be that of whole batches, as where rewards are scaled by the batch"
    return ""
