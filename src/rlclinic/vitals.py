"""What a log implies without saying it: the attainable reward, the weights of its parts, rows without any live group, and
which series cannot be what they claim, values that stand for none; what a configuration implies: how far updates are from
the sampling policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rlclinic import answers, names
from rlclinic.model import SAVED, Column, Component, Floats, Knob, RewardRange, Run

_FLAT = 1e-6
"""Spread below which rewards count as equal (TRL and verl add 1e-4 and 1e-6 to the group deviation before dividing)."""


def complete(run: Run) -> Run:
    """``run`` without the series that cannot be true and the zeros that stand for no answer, and with reward-part weights,
    the attainable reward range, ``group.all_dead`` and a missing share of cut answers added where they follow."""
    run = answers.complete(run)
    run = replace(run, columns={metric: without_placeholders(column) for metric, column in run.columns.items()})
    wrong = impossible(run.columns)
    if wrong:
        columns = {metric: column for metric, column in run.columns.items() if metric not in wrong}
        told = {run.columns[metric].key: why for metric, why in wrong.items()}
        run = replace(run, columns=columns, distrusted={**run.distrusted, **told})
    run = replace(run, components=_weighted(run))
    run = replace(run, reward_range=run.reward_range or reward_range(run))
    run = replace(run, seams={**dict.fromkeys(warm_ups(run), WARM_UP), **run.seams})
    found = {"group.all_dead": all_dead(run), "length.truncated_frac": run.get("length.truncated_frac") or all_cut(run)}
    return replace(run, columns={**run.columns, **{metric: one for metric, one in found.items() if one is not None}})


# ---------------------------------------------------------------- zeros that stand for no answer at all

_SOME_ANSWERS = ("length.terminated.", "length.correct.", "length.incorrect.")
LEFT_OUT = "where there was no such answer, is left out"
_FOR_NONE = re.compile(r"\b0 when (?:no\b|there is none)")
"""What the table of a trainer says of a key that is 0 in a batch without any such answer."""


def without_placeholders(column: Column) -> Column:
    """A length of some of the answers without the rows in which none was measured; a column of any other kind as it is.

    An answer has at least one token, so that the 0 of a trainer that is known to write it for "none" is no length.
    """
    if not column.metric.startswith(_SOME_ANSWERS) or not (column.key == SAVED or _FOR_NONE.search(column.note)):
        return column
    none = column.values <= 0
    if not none.any():
        return column
    said = "" if column.key != SAVED or not column.note else f"{column.note}; "
    note = f"{said}0 in {none.sum()} of {len(column)} rows, {LEFT_OUT}"
    return replace(column, steps=column.steps[~none], values=column.values[~none], note=note)


# ---------------------------------------------------------------- resumes that only the learning rate betrays

WARM_UP = "the learning rate warms up again"
_NEAR = 3
"""Rows within which a warm-up belongs to a seam that the log tells of (ours: the first rows after a resume may be lost)."""


def warm_ups(run: Run) -> list[float]:
    """Steps, away from every known seam, at which the learning rate falls from one row to the next and rises again."""
    rate = run.get("optim.lr")
    schedule = str(run.knob("lr_schedule")).lower()
    if rate is None or "restart" in schedule or "cycl" in schedule:
        return []
    c = rate.finite
    high = c.values[:-1] >= 0.3 * c.values.max(initial=0.0)
    fell = np.flatnonzero(high & (c.values[1:] < 0.5 * c.values[:-1])) + 1
    reach = _NEAR * float(np.median(np.diff(c.steps))) if len(c) > 1 else 0.0
    found = [float(c.steps[k]) for k in fell[:5] if schedule_again(c, float(c.steps[k]))]
    return [step for step in found if not any(abs(step - at) <= reach for at in run.seams)]


def schedule_again(rate: Column, step: float, rows: int = 20, share: float = 0.5) -> bool:
    """Whether the learning rate begins its schedule anew at ``step``: it falls below ``share`` of itself and rises again,
    or it had decayed below ``share`` of its peak and rises back above that, within ``rows`` rows."""
    c = rate.finite
    before, after = c.values[c.steps < step], c.values[c.steps >= step][:rows]
    if len(before) < 2 or len(after) < 2 or c.rounded_zero:
        return False
    last, peak, top = float(before[-1]), float(before.max()), float(after.max())
    fell = after[0] < share * last and top > 2 * max(float(after[0]), 0.0)
    decayed = last < share * peak and top > max(2 * last, share * peak)
    return bool(fell or decayed)


# ---------------------------------------------------------------- series that cannot be true

_SLACK = 1e-3
"""How far beyond its bounds rounding may carry a value (ours: three printed decimals)."""
_MOVES = ("entropy.mean", "kl.ref", "kl.old_new", "grad.norm", "ratio.", "mismatch.", "reward.std", "reward.group_std")
"""Measurements that never repeat to the last digit; rates over few answers, capped and configured values do."""
_ORDERED = (
    ("reward.min", "reward.mean", "reward.max"),
    ("length.response.min", "length.response.mean", "length.response.max"),
    ("length.terminated.min", "length.terminated.mean", "length.terminated.max"),
    ("entropy.min", "entropy.mean", "entropy.max"),
)


def impossible(columns: Mapping[str, Column]) -> dict[str, str]:
    """Metrics whose values cannot be what they claim to be, with what is impossible about each."""
    wrong: dict[str, str] = {}
    for metric, column in columns.items():
        if len(column.finite) and (why := _beyond(column) or _frozen(column, columns)) is not None:
            wrong[metric] = why
    for low, mean, high in _ORDERED:
        for extreme, sign in ((low, 1.0), (high, -1.0)):
            if extreme in columns and extreme not in wrong and _crossed(columns, extreme, mean, sign):
                side = "above" if sign > 0 else "below"
                wrong[extreme] = f"lies {side} the mean {columns[mean].key} in most rows"
    share = columns.get("group.zero_var_frac")
    if share is not None and share.status == "measured" and "group.zero_var_frac" not in wrong:
        why = _denied(share, columns)
        if why is not None:
            wrong["group.zero_var_frac"] = why
    return wrong


def _beyond(column: Column) -> str | None:
    """Words for values outside what the quantity can be: a share above 1, a negative length, a k3 estimate below 0."""
    if column.metric not in names.metrics():
        return None
    finite, bounds = column.finite.values, names.metric(column.metric)
    least, most = bounds.low, bounds.high
    if least is None and column.metric.startswith("kl.") and column.estimator.startswith(("k3", "k2")):
        least = 0.0  # r - log r - 1 and (log r)^2 / 2 have no negative values; the plain k1 has
    low, high = float(finite.min()), float(finite.max())
    if (least is None or low >= least - _SLACK) and (most is None or high <= most + _SLACK):
        return None
    wanted = " to ".join("any" if bound is None else f"{bound:g}" for bound in (least, most))
    percent = most == 1 and least == 0 and low >= 0 and 1.5 < high <= 100 + _SLACK and float(np.median(finite)) > 1
    estimator = f" ({column.estimator} estimate)" if bounds.low is None else ""
    return f"runs from {low:.3g} to {high:.3g} where {wanted} is possible{estimator}" + (
        "; it looks like percent" if percent else ""
    )


def _frozen(column: Column, columns: Mapping[str, Column]) -> str | None:
    """Words for a measurement that repeats one many-digit value in every row while the reward moves: nothing measures it."""
    values, reward = column.finite.values, columns.get("reward.mean")
    if not column.metric.startswith(_MOVES) or column.resolution or column.status != "measured" or len(values) < 10:
        return None
    value = float(values[0])
    if np.ptp(values) != 0 or value == 0 or abs(value - float(f"{value:.4g}")) <= 1e-6 * abs(value):
        return None
    if reward is None or len(np.unique(reward.finite.values)) < 5:
        return None
    return f"is {value:.10g} to the last digit in all {len(values)} rows while the reward moves"


def _crossed(columns: Mapping[str, Column], extreme: str, mean: str, sign: float) -> bool:
    """Whether the smallest value lies above the mean (or the largest below it) in more than half of the rows."""
    if mean not in columns:
        return False
    a, b = columns[extreme].finite, columns[mean].finite
    _, i, j = np.intersect1d(a.steps, b.steps, assume_unique=True, return_indices=True)
    if not len(i):
        return False
    slack = _SLACK * (1.0 + np.abs(b.values[j])) + 0.5 * (a.resolution + b.resolution)
    return bool((sign * (a.values[i] - b.values[j]) > slack).mean() > 0.5)


def _denied(share: Column, columns: Mapping[str, Column]) -> str | None:
    """Words for a share of dead groups that is below 1 in rows whose whole batch earned one and the same reward.

    Eight equal rewards of 1.2 have a float32 deviation of 1.3e-7, which a tolerance of 1e-8 takes for a spread.
    """
    for metric in ("reward.std", "reward.group_std", "reward.std_unresolved"):
        spread = columns.get(metric)
        if spread is None or spread.resolution > 1e-6:
            continue
        a, b = spread.finite, share.finite
        _, i, j = np.intersect1d(a.steps, b.steps, assume_unique=True, return_indices=True)
        flat = (a.values[i] > 0) & (a.values[i] < _FLAT)
        false = flat & (b.values[j] < 1.0 - _SLACK)
        if false.any() and false.sum() >= 0.5 * flat.sum():
            least, rows = float(b.values[j][false].min()), "1 row" if false.sum() == 1 else f"{false.sum()} rows"
            return (
                f"is {least:.3g} in {rows} whose answers all earned the same, where it must be 1: "
                f"rounding ({spread.key} {a.values[i][false].max():.1g}) counts as a spread"
            )
    return None


# ---------------------------------------------------------------- what the configuration implies


def chosen(run: Run, name: str) -> Knob | None:
    """A setting that somebody chose: it is stated, and not what the framework does by itself. None otherwise."""
    knob = run.knobs.get(name)
    if knob is None or knob.origin == "default":
        return None
    row = names.spell(name, run.framework)
    usual = None if row is None else names.default_knobs(run.framework).get(name)
    default = usual.value if usual is not None else None if row is None else row.default
    return None if default is not None and default == knob.value else knob


def on_policy(run: Run) -> bool | None:
    """Whether every update is made on answers of the very policy it changes, so that each ratio is 1; None: not known."""
    return updates(run)[0]


def updates(run: Run) -> tuple[bool | None, str]:
    """``on_policy`` and what says so. What the log shows wins over the configuration."""
    for metric in ("clip.frac", "clip.low_frac", "clip.high_frac"):
        clip = run.get(metric)
        if clip is not None and len(clip.finite) and bool((clip.finite.values > 0).any()):
            return False, f"{clip.key} is above 0, and a ratio of 1 cannot be clipped"
    passes = run.number("inner_epochs")
    if passes is not None and passes > 1:
        return False, f"{run.knobs['inner_epochs'].key} = {passes:g} passes over each batch"
    pieces, accumulated = run.number("steps_per_generation"), run.number("grad_accumulation")
    if pieces is not None and accumulated is not None and pieces > accumulated:
        return False, f"{run.knobs['steps_per_generation'].key} = {pieces:g} is more than one optimizer step"
    batch, piece = run.number("train_batch_size"), run.number("mini_batch_size")
    alike = run.framework is not None and run.framework.name == "verl"  # both count prompts there
    if alike and batch is not None and piece is not None and piece < batch:
        return False, f"{run.knobs['mini_batch_size'].key} = {piece:g} of a batch of {batch:g}"
    apart = run.get("kl.old_new")
    if apart is not None and len(apart.finite) >= 5 and not apart.rounded_zero and not apart.finite.values.any():
        return True, f"{apart.key} is exactly 0 in every row"
    if run.knob("sampler") is not False and run.knob("sampler_correction") not in (None, False, "off", "none"):
        return None, "importance weights for the sampler may move the ratio"
    whole = (pieces is not None and accumulated is not None) or (alike and batch is not None and piece is not None)
    if passes == 1 and whole:
        return True, "one pass and one optimizer step for each batch of answers"
    return None, "the passes and optimizer steps for each batch are not known"


def all_dead(run: Run) -> Column | None:
    """1.0 in rows where the log proves that every group had equal rewards, 0.0 where it proves the opposite.

    Any one proof suffices: a zero-variance share of 1, a spread of exactly 0 (over the batch or within groups, which
    both imply it), advantages whose deviation or mean size is 0 or whose largest and smallest both are, largest reward
    equal to smallest, or one and the same mean reward in every row while every gradient is exactly 0. A spread printed as
    0 counts from three decimals on: right and wrong answers in one batch cannot round to that.
    """
    learnt: list[tuple[Floats, NDArray[np.bool_]]] = []
    used: list[str] = []
    batch_only = True

    def learn(steps: Floats, dead: NDArray[np.bool_], key: str) -> None:
        if len(steps):
            used.append(key)
            learnt.append((steps, dead))

    share = run.get("group.zero_var_frac")
    if share is not None and share.status == "measured":
        batch_only = False
        learn(share.finite.steps, share.finite.values >= 1.0 - 1e-9, share.key)
    for metric in ("reward.group_std", "reward.std", "reward.std_unresolved"):
        spread = run.get(metric)
        if spread is not None and spread.resolution <= 1e-3:
            batch_only &= metric != "reward.group_std"
            learn(spread.finite.steps, np.abs(spread.finite.values) < _FLAT, spread.key)
    for metric in ("advantage.std", "advantage.abs_mean"):
        size = run.get(metric)
        if size is not None and size.resolution <= 1e-3:
            batch_only = False  # not 0 means that some group is alive, whatever its share
            learn(size.finite.steps, np.abs(size.finite.values) < _FLAT, size.key)
    for low, high, factor in (("advantage.min", "advantage.max", 0.0), ("reward.min", "reward.max", 1.0)):
        steps, least, most = run.paired(low, high)
        batch_only &= not len(steps)
        equal = (most - least < _FLAT) & ((factor == 1.0) | (np.abs(most) < _FLAT))
        learn(steps, equal, run[high].key if len(steps) else "")
    if not learnt:
        _learn_constant(run, learn)
    if not learnt or (batch_only and not any(dead.any() for _, dead in learnt)):
        return None  # a spread over the batch above 0 says nothing about groups
    steps = np.unique(np.concatenate([rows for rows, _ in learnt]))
    values = np.zeros(len(steps))
    for rows, dead in learnt:
        values[np.searchsorted(steps, rows[dead])] = 1.0
    return Column(
        metric="group.all_dead",
        key=" + ".join(dict.fromkeys(used)),
        steps=steps,
        values=values,
        note="derived: 1 where the row proves that all groups had equal rewards",
    )


def _learn_constant(run: Run, learn: Callable[[Floats, NDArray[np.bool_], str], None]) -> None:
    steps, reward, norm = run.paired("reward.mean", "grad.norm")
    if len(steps) >= 2 and np.ptp(reward) == 0 and not norm.any() and not run["grad.norm"].rounded_zero:
        learn(steps, np.ones(len(steps), dtype=bool), f"{run['reward.mean'].key} and {run['grad.norm'].key}")


ALIKE = 5
"""Rows in a row that must show one and the same whole mean length before it is taken for the limit (ours)."""


def all_cut(run: Run) -> Column | None:
    """1.0 in rows where every answer must have been cut, 0.0 elsewhere; None when no row shows it.

    A mean length that is a whole number, the largest of the run, and the same for ``ALIKE`` rows and more can only be a
    limit that every answer reaches; the longest answer, where logged, is then no longer.
    """
    mean, longest = run.get("length.response.mean"), run.get("length.response.max")
    if mean is None or len(mean.finite) <= ALIKE or mean.resolution > 0.1:
        return None
    c = mean.finite
    top = float(c.values.max())
    at_top = c.values == top
    changes = np.flatnonzero(np.diff(np.concatenate(([0], at_top.astype(int), [0]))))
    if top < 2 or top % 1 or at_top.all() or int(np.diff(changes)[::2].max(initial=0)) < ALIKE:
        return None
    if longest is not None and len(longest.finite) and float(longest.finite.values.max()) > top:
        return None
    note = f"derived: all answers have exactly {top:g} tokens in these rows; other rows may hold cut answers too"
    return Column("length.truncated_frac", mean.key, c.steps, at_top.astype(float), note=note)


def least_dead(run: Run) -> Column | None:
    """The share of dead groups that the pass rate alone implies, by row; None without right-or-wrong rewards or group size.

    A group of G answers agrees with probability p^G + (1-p)^G, which is convex in p: prompts that differ only raise it.
    With several right-or-wrong parts at most the sum of min(p, 1-p) of the answers leave the common outcome. The size is
    the framework's default where the logged share is known to be false and nothing states a size.
    """
    size, assumed = run.number("group_size"), ""
    if size is None and any("earned the same" in why for why in run.distrusted.values()):
        usual = names.spell("group_size", run.framework)
        size = float(usual.default) if usual is not None and isinstance(usual.default, int) else None
        assumed = ", the default,"
    reward, span = run.get("reward.mean"), run.reward_range
    if size is None or size < 2 or reward is None or span is None or not re.search("right-or-wrong|success", span.how):
        return None
    steps, p = reward.finite.steps, (reward.finite.values - span.low) / (span.high - span.low)
    agree = p**size + (1.0 - p) ** size
    if len(run.components) > 1:
        for part in run.components.values():
            steps = np.intersect1d(steps, part.mean.finite.steps, assume_unique=True)
        leave = sum(
            (np.minimum(q, 1.0 - q) for q in (_at(c.mean, steps) for c in run.components.values())), np.zeros(1)
        )
        agree = np.clip(1.0 - leave, 0.0, 1.0) ** size
    if not len(steps):
        return None
    note = f"so much follows from the pass rate and groups of {size:g}{assumed} alone; the share itself is not logged"
    return Column("group.all_dead", reward.key, steps, np.clip(agree, 0.0, 1.0), note=note)


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
            where = " and ".join(dict.fromkeys((bottom.key, top.key)))
            return RewardRange(low, high, f"extremes seen in {where}")
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


def evaluates(run: Run) -> bool:
    """Whether the trainer can measure a held-out score at all, as far as its table says."""
    return not names.remedy("eval_frequency", run.framework).unavailable
