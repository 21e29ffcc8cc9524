"""Saved advantages held against those that the saved rewards give, and the groups they were really worked out in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from rlclinic.model import Floats
from rlclinic.rollouts import Flags, Ints, Rollouts
from rlclinic.stats.advantages import Scale, recompute_advantages

Kind: TypeAlias = Literal["group", "masked", "rescaled", "batch", "raw", "blocks", "mixed", "zero", "other"]
"""What the saved advantages are: those of their groups; the same with some answers set to 0, or stretched and moved for
each batch; rewards whitened over the batch; the rewards themselves; those of rows that stand side by side, whatever their
prompt; those of the groups in another order; all 0; something else."""

_NEAR = 5e-3
"""Share of the largest advantage within which two are one number (ours: bfloat16 keeps two to three digits)."""
_ROUNDING = 2e-4
_MOST = 0.98
"""Share of the answers that must agree (ours: a saved reward may be rounded, a group may have lost an answer)."""
_SEVERAL = 8
"""Different advantages that must be seen before the same ones in another order are more than chance (ours)."""
_FAINT = 1e-3
"""Deviation within a group, as a share of that of all rewards, below which rounding decides its advantages (ours)."""
_SCALES: tuple[tuple[Scale, float], ...] = (
    ("group", 1e-4), ("group", 1e-6), ("group", 1e-8), ("none", 0.0), ("leave_one_out", 0.0), ("leave_one_out_std", 1e-6),
)  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """How the saved advantages of live groups compare with those recomputed."""

    kind: Kind
    how: str
    """The normalisation that gives them, in words; empty for ``other``."""
    scale: str
    """``group``, ``batch``, ``none``, ``leave_one_out``, ``leave_one_out_std``; empty where none of these does."""
    epsilon: float
    largest: float
    """The largest difference from the recomputed values, over the answers that agree."""
    answers: int
    groups: int
    agreeing: float
    """Share of the compared answers that agree with ``how``."""
    off_centre: float
    """Share of the groups whose mean advantage is further from 0 than a tenth of their spread."""


def compare(table: Rollouts) -> Compared | None:
    """What the saved advantages of ``table`` are; None where none are saved or no group is alive.

    TRL: (r - mean) / (deviation + 1e-4) with the sample deviation of the group or of the batch, or r - mean, by
    ``scale_rewards``; verl: ``grpo`` with 1e-6 and ``dr_grpo`` without a division; RLOO: r less the mean of the others.
    Only groups whose rewards differ by more than rounding are compared: equal ones have advantage 0 in all of these.
    """
    shown = np.isfinite(table.advantage) & np.isfinite(table.reward) & (table.group >= 0)
    if table.partial or not shown.any():
        return None
    whole = table.judged & np.isfinite(table.sums(table.advantage))
    within = np.sqrt(table.sums(table.centred(table.reward) ** 2) / np.maximum(table.size - 1, 1))
    everywhere = float(np.std(table.reward[shown]))
    live = whole & ~table.dead & (within > _FAINT * everywhere)
    rows = shown & live[np.maximum(table.group, 0)]
    if not rows.any():
        return _ungrouped(table, shown)
    saved, reward, step = table.advantage[rows], table.reward[rows], table.step[rows]
    means = np.abs(table.means(table.advantage)[live])
    spread = np.sqrt(table.sums(table.centred(table.advantage) ** 2)[live] / table.size[live])
    away = float((means > 0.1 * spread + _ROUNDING).mean())

    def told(kind: Kind, how: str, scale: str, epsilon: float, made: Floats, use: Flags | None = None) -> Compared:
        off = np.abs(saved - made)
        good = off <= _tolerance(made)
        use = np.ones(len(saved), dtype=np.bool_) if use is None else use
        largest = float(off[good & use].max(initial=0.0))
        return Compared(kind, how, scale, epsilon, largest, len(saved), int(live.sum()), float(good[use].mean()), away)

    if not np.any(np.abs(saved) > _ROUNDING):
        return told("zero", "all 0 although rewards differ within groups", "", 0.0, np.zeros(len(saved)))
    best: Compared | None = None
    made_by = list(_recomputed(table, rows))
    for scale, epsilon, how, made in made_by:
        one = told("group", how, scale, epsilon, made)
        if best is None or (one.agreeing, -one.largest) > (best.agreeing + 1e-9, -best.largest):
            best = one
    if best is not None and best.agreeing >= _MOST:
        return best
    if _one(saved, reward):
        return told("raw", "the rewards themselves", "", 0.0, reward)
    for scale, epsilon, how, made in made_by:
        nonzero = saved != 0.0
        one = told("masked", f"{how}, some answers set to 0", scale, epsilon, made, nonzero)
        if nonzero.mean() > 0.3 and one.agreeing >= _MOST:
            return one
    whitened: tuple[tuple[Kind, str, Floats], ...] = (
        ("rescaled", "differences from the group mean, stretched and moved for each batch", made_by[0][3]),
        ("rescaled", "differences from the group mean, stretched and moved for each batch", _of(made_by, "none")),
        ("batch", "rewards whitened over the batch, without a mean of the group", reward),
    )
    for kind, how, base in whitened:
        fitted = _affine(saved, base, step)
        if fitted is not None and (one := told(kind, how, "", 0.0, fitted)).agreeing >= _MOST:
            return one
    if (found := _blocks(table.advantage[shown], table.reward[shown])) is not None:
        size, scale, epsilon, made = found
        if _pure(table.prompt[shown], size):  # a prompt that was drawn twice, whose two groups were taken for one
            return told("group", f"those of groups of {size} rows side by side", scale, epsilon, made[rows[shown]])
        how = f"those of {size} rows side by side, whatever their prompt"
        return told("blocks", how, scale, epsilon, made[rows[shown]])
    if (order := _mixed(table, whole)) is not None:
        how = f"(reward - group mean) / (group deviation + {order[0]:g}), in another order"
        largest = float(np.abs(order[1] - order[2]).max())
        return Compared("mixed", how, "group", order[0], largest, len(order[1]), int(live.sum()), 1.0, away)
    return told("other", "", "", 0.0, made_by[0][3])


def _tolerance(made: Floats) -> float:
    finite = np.abs(made[np.isfinite(made)])
    return _ROUNDING + _NEAR * float(finite.max(initial=0.0))


def _one(saved: Floats, made: Floats) -> bool:
    return float((np.abs(saved - made) <= _tolerance(made)).mean()) >= _MOST


def _of(made_by: list[tuple[str, float, str, Floats]], scale: str) -> Floats:
    return next(made for one, _, _, made in made_by if one == scale)


def _recomputed(table: Rollouts, rows: Flags) -> Iterator[tuple[str, float, str, Floats]]:
    """(scale, epsilon, words, advantages of the rows) by every known normalisation within groups."""
    reward, group = table.reward[rows], table.group[rows]
    words = {
        "group": "(reward - group mean) / (group deviation + {:g})",
        "none": "reward - group mean",
        "leave_one_out": "reward - mean of the others of the group",
        "leave_one_out_std": "(reward - mean of the others) / their deviation",
    }
    for scale, epsilon in _SCALES:
        made = recompute_advantages(reward, group, scale, epsilon=epsilon).values
        yield scale, epsilon, words[scale].format(epsilon), made
    known = np.isfinite(table.reward)
    steps, place = np.unique(np.nan_to_num(table.step[known], nan=-1.0), return_inverse=True)
    count = np.bincount(place)
    centred = table.reward[known] - (np.bincount(place, table.reward[known]) / count)[place]
    spread = np.sqrt(np.bincount(place, centred**2) / np.maximum(count - 1, 1))
    of_row = spread[np.searchsorted(steps, np.nan_to_num(table.step[rows], nan=-1.0))]
    plain = recompute_advantages(reward, group, "none").values
    yield "batch", 1e-4, "(reward - group mean) / (batch deviation + 0.0001)", plain / (of_row + 1e-4)


def _affine(saved: Floats, base: Floats, step: Floats) -> Floats | None:
    """(n,) the best a + b * base for each step by least squares; None where steps hold too few answers to tell."""
    _, place = np.unique(np.nan_to_num(step, nan=-1.0), return_inverse=True)
    count = np.bincount(place)
    if np.median(count) < 8:
        return None
    x = base - (np.bincount(place, base) / count)[place]
    mean = np.bincount(place, saved) / count
    below = np.bincount(place, x * x)
    slope = np.bincount(place, x * (saved - mean[place])) / np.where(below > 0, below, 1.0)
    if not (slope[below > 0] > 0).all():
        return None
    return mean[place] + slope[place] * x


def _blocks(saved: Floats, reward: Floats) -> tuple[int, str, float, Floats] | None:
    """(size, scale, epsilon, advantages) where rows that stand side by side were one group, whatever their prompts."""
    for size in (8, 4, 16, 2, 32, 64, 3, 5, 6, 10, 12, 24):
        even = len(saved) // size * size
        if even < 4 * size:
            continue
        for scale, epsilon in (("group", 1e-4), ("group", 1e-6), ("none", 0.0)):
            made = recompute_advantages(reward[:even], size, scale, epsilon=epsilon).values  # type: ignore[arg-type]
            if _one(saved[:even], made):
                return size, scale, epsilon, np.concatenate([made, saved[even:]])
    return None


def _pure(prompt: Ints, size: int) -> bool:
    """Whether more than half of the blocks of ``size`` rows hold one prompt only, or prompts are not known."""
    blocks = prompt[: len(prompt) // size * size].reshape(-1, size)
    return bool((blocks < 0).any()) or float((blocks == blocks[:, :1]).all(axis=1).mean()) > 0.5


def _mixed(table: Rollouts, whole: Flags) -> tuple[float, Floats, Floats] | None:
    """(epsilon, saved, recomputed) where the saved advantages of each step are the recomputed ones in another order.

    Equal groups count too, with 0. Few different values in a step would agree by chance, so there must be several.
    """
    rows = np.isfinite(table.advantage) & whole[np.maximum(table.group, 0)] & (table.group >= 0)
    saved, step = table.advantage[rows], np.nan_to_num(table.step[rows], nan=-1.0)
    for epsilon in (1e-4, 1e-6):
        made = recompute_advantages(table.reward[rows], table.group[rows], "group", epsilon=epsilon).values
        if len(np.unique(np.round(made, 3))) < _SEVERAL:
            return None
        mine, theirs = made[np.lexsort((made, step))], saved[np.lexsort((saved, step))]
        if _one(theirs, mine):
            return epsilon, theirs, mine
    return None


def _ungrouped(table: Rollouts, shown: Flags) -> Compared | None:
    """Advantages where no group is alive or all hold one answer: the rewards themselves, or nothing that can be told."""
    saved, reward = table.advantage[shown], table.reward[shown]
    alone = table.size[table.group[shown]] == 1
    if not alone.all() or float(np.ptp(reward)) <= 1e-9 or not _one(saved, reward):
        return None
    off, groups = float(np.abs(saved - reward).max()), len(np.unique(table.group[shown]))
    return Compared("raw", "the rewards themselves", "", 0.0, off, len(saved), groups, 1.0, 1.0)


# ---------------------------------------------------------------- ids that break groups


@dataclass(frozen=True)
class Split:
    """Answers to one prompt in one step under several of the trainer's own names for a group."""

    prompts: int
    """Prompts (in a step) with several answers."""
    broken: int
    """Those whose answers all have a name of their own."""
    answers: int
    """Answers to these."""


def split(table: Rollouts) -> Split | None:
    """How often the trainer's names make groups of one out of several answers to one prompt in one step.

    None where a name or a prompt is not saved. A prompt drawn twice in a step under two names with several answers each is
    no such case.
    """
    known = (table.key >= 0) & (table.prompt >= 0)
    if table.partial or known.mean() < _MOST:
        return None
    step, held = np.nan_to_num(table.step[known], nan=-1.0), table.held_out[known]
    asked = _number(step, held, table.prompt[known])
    named = _number(step, held, table.key[known])
    answers = np.bincount(asked)
    alone = np.bincount(asked, np.bincount(named)[named] == 1)
    several = answers > 1
    broken = several & (alone == answers)
    return Split(int(several.sum()), int(broken.sum()), int(answers[broken].sum()))


def _number(step: Floats, held_out: Flags, name: Ints) -> Ints:
    """(n,) one number for each combination of step, held out or not, and ``name``."""
    _, when = np.unique(step, return_inverse=True)
    code = (2 * when + held_out) * (int(name.max(initial=0)) + 2) + name
    number: Ints = np.unique(code, return_inverse=True)[1].astype(np.int64)
    return number


def by_prompt(table: Rollouts) -> Rollouts:
    """The table with the answers to one prompt in one step as its groups, whatever the trainer named them."""
    number = _number(np.nan_to_num(table.step, nan=-1.0), table.held_out, table.prompt)
    known = table.prompt >= 0
    group = np.full(len(table), -1, dtype=np.int64)
    group[known] = np.unique(number[known], return_inverse=True)[1]
    return replace(table, group=group)
