"""Group-relative advantages worked out again from the rewards, independently of the trainer, and held against its log."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlclinic.errors import BadRequest, nearest
from rlclinic.model import Floats
from rlclinic.stats.groups import count_dead

Scale: TypeAlias = Literal["group", "batch", "none", "leave_one_out", "leave_one_out_std"]
Over: TypeAlias = Literal["answers", "tokens"]
Verdict: TypeAlias = tuple[bool | None, str]

_NEAR = 5e-3
"""Share of the largest advantage by which a logged one may differ (ours: bfloat16 keeps two to three digits, and trainers
add different constants to the deviation)."""
_ROUNDING = 1e-4
"""Absolute part of the same tolerance (ours: what equal rewards leave after a division by TRL's or verl's constant)."""
_STATISTICS = ("mean", "std", "min", "max")
_RAW = "they are the rewards themselves: no baseline was subtracted, which is REINFORCE and not group-relative"


@dataclass(frozen=True, eq=False)
class Advantages:
    """Recomputed advantages and how a log compares with them.

    ``values`` (n,) in the order of the rewards; NaN for an answer that is alone in its group and so has no baseline.
    """

    values: Floats
    scale: Scale
    epsilon: float
    mean: float
    """Over answers, each counted once; like all statistics here without the answers that are alone."""
    std: float
    """Over answers, with n in the denominator."""
    min: float
    max: float
    token_mean: float | None
    """Each answer counted as often as it has tokens, as verl, NeMo-RL, AReaL and SkyRL log it; not 0 as soon as right and
    wrong answers differ in length. None without ``weights``."""
    token_std: float | None
    groups: int
    smallest: int
    largest: int
    """Answers in the smallest and in the largest group."""
    alone: int
    """Groups of one answer."""
    dead: float
    """Share of the groups of two and more whose rewards are all equal; NaN without such a group."""
    expected_std: float | None
    """For ``scale="group"`` what ``std`` should be: sqrt of the sum of (size - 1) over live groups / answers, about the
    root of the share of live groups. A deviation near 0 therefore shows up only when every group is dead."""
    agrees: bool | None = None
    """Whether the logged values are these; None when nothing was given to compare, or when they cannot be compared."""
    why: str = "nothing logged was given to compare with"
    notes: tuple[str, ...] = ()


def recompute_advantages(
    rewards: ArrayLike,
    groups: ArrayLike | int,
    scale: Scale = "group",
    *,
    epsilon: float = 1e-4,
    logged: Mapping[str, float] | ArrayLike | None = None,
    weights: ArrayLike | None = None,
    over: Over | None = None,
) -> Advantages:
    """The advantages that ``rewards`` (n,) give, from the arithmetic alone.

    ``groups`` (n,) names the group of each answer, in any order and of any size; a whole number says that every so many
    answers in a row are one group. ``scale``, from the reward r, the mean m and the sample deviation s (n - 1) of its
    group:

    - ``group``: (r - m) / (s + epsilon), GRPO (TRL, epsilon 1e-4; verl, 1e-6)
    - ``batch``: (r - m) / (deviation of all rewards + epsilon), TRL with ``scale_rewards="batch"``
    - ``none``: r - m, Dr. GRPO
    - ``leave_one_out``: r less the mean of the others of its group, RLOO
    - ``leave_one_out_std``: the same over the deviation of the others plus epsilon, where that is above 0 (NeMo-RL)

    ``logged`` are the trainer's advantages per answer (NaN: filtered out), or statistics of them by name (``mean``,
    ``std``, ``min``, ``max``, also at the end of a key such as ``critic/advantages/mean``). ``weights`` (n,) are the
    tokens of each answer. ``over`` states what the logged statistics were taken over. A logged mean other than 0 proves
    a fault only when it is known to count every answer once: a mean over tokens is rarely 0, nor is one after filters,
    masks, GAE or whitening. Raises BadRequest.
    """
    r = _numbers(rewards, "rewards")
    if not len(r):
        raise BadRequest("the reward of at least one answer", "none")
    if not np.isfinite(r).all():
        raise BadRequest("finite rewards", f"{r[~np.isfinite(r)][0]} at answer {int(np.argmin(np.isfinite(r)))}")
    if scale not in get_args(Scale):
        raise BadRequest(
            "a way to scale advantages", repr(scale), nearest(str(scale), get_args(Scale)) or get_args(Scale)
        )
    if over not in (None, *get_args(Over)):
        raise BadRequest("what the logged statistics were taken over", repr(over), get_args(Over))
    if not (isinstance(epsilon, numbers.Real) and 0.0 <= epsilon < math.inf):
        raise BadRequest("an epsilon of at least 0", repr(epsilon))
    at = _membership(groups, len(r))
    tokens = None if weights is None else _tokens(weights, len(r))
    values = _advantages(r, at, scale, float(epsilon))
    made = _described(values, r, at, scale, float(epsilon), tokens)
    if logged is None:
        return made
    if isinstance(logged, Mapping):
        agrees, why = _against_statistics(made, logged, r, at, over)
    else:
        agrees, why = _against_answers(made, _numbers(logged, "logged advantages"), r, at)
    return replace(made, agrees=agrees, why=why)


def _advantages(r: Floats, at: NDArray[np.intp], scale: Scale, epsilon: float) -> Floats:
    """(n,) by the formulas of ``recompute_advantages``; NaN where a group holds one answer."""
    size = np.bincount(at)[at].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        centred = r - (np.bincount(at, r) / np.bincount(at))[at]
        squares = np.bincount(at, centred**2)[at]
        if scale == "group":
            made = centred / (np.sqrt(squares / (size - 1.0)) + epsilon)
        elif scale == "batch":
            made = centred / ((r.std(ddof=1) if len(r) > 1 else 0.0) + epsilon)
        elif scale == "none":
            made = centred
        else:
            made = centred * size / (size - 1.0)
        if scale == "leave_one_out_std":
            left = squares - centred**2 * size / (size - 1.0)  # sum of squares of the others around their own mean
            left = np.where(left > 1e-12 * squares, left, 0.0)
            spread = np.where(size > 2.0, np.sqrt(left / np.maximum(size - 2.0, 1.0)), 0.0)
            made = np.where(spread > 0.0, made / (spread + epsilon), made)
    return np.where(size > 1.0, np.where(centred == 0.0, 0.0, made), np.nan)


def _described(
    values: Floats, r: Floats, at: NDArray[np.intp], scale: Scale, epsilon: float, tokens: Floats | None
) -> Advantages:
    sizes = np.bincount(at)
    known = np.isfinite(values)
    v = values[known]
    dead = count_dead(r, at)
    alone = int((sizes == 1).sum())
    notes = []
    if alone:
        notes.append(
            f"{alone} of {len(sizes)} groups hold one answer and so have no baseline: verl trains those on the raw reward, "
            "others on nothing"
        )
    if dead.groups and dead.share == 1.0:
        notes.append("the rewards are equal within every group: no answer carries a gradient")
    expected = None
    if scale == "group" and len(v):
        low, high = np.full(len(sizes), np.inf), np.full(len(sizes), -np.inf)
        np.minimum.at(low, at, r)
        np.maximum.at(high, at, r)
        live = (sizes > 1) & (high - low > 1e-8 * np.abs(r).max())
        expected = math.sqrt(float((sizes[live] - 1).sum()) / len(v))
        faint = live & (high - low < 20.0 * epsilon)
        if faint.any():
            notes.append(
                f"in {int(faint.sum())} groups the rewards differ by less than 20 epsilon: the constant, not the rewards, "
                "decides how large these advantages are"
            )
    token_mean = token_std = None
    if tokens is not None and len(v) and float(tokens[known].sum()) > 0.0:
        share = tokens[known] / tokens[known].sum()
        token_mean = float(share @ v)
        token_std = math.sqrt(float(share @ (v - token_mean) ** 2))
    return Advantages(
        values=values,
        scale=scale,
        epsilon=epsilon,
        mean=float(v.mean()) if len(v) else math.nan,
        std=float(v.std()) if len(v) else math.nan,
        min=float(v.min()) if len(v) else math.nan,
        max=float(v.max()) if len(v) else math.nan,
        token_mean=token_mean,
        token_std=token_std,
        groups=len(sizes),
        smallest=int(sizes.min()),
        largest=int(sizes.max()),
        alone=alone,
        dead=dead.share,
        expected_std=expected,
        notes=tuple(notes),
    )


# ---------------------------------------------------------------- comparison with a log


def _against_answers(made: Advantages, logged: Floats, r: Floats, at: NDArray[np.intp]) -> Verdict:
    if len(logged) != len(r):
        raise BadRequest(f"{len(r)} logged advantages, one for each reward", f"{len(logged)}")
    both = np.isfinite(logged) & np.isfinite(made.values)
    seen, mine = logged[both], made.values[both]
    if not both.any():
        shown = logged[np.isfinite(logged)]
        raw = len(shown) and _close(shown, r[np.isfinite(logged)])
        return None, f"no answer has a baseline to compare with{f'; {_RAW}' if raw else ''}"
    left_out = f" ({len(r) - len(seen)} of {len(r)} answers left out)" if len(seen) < len(r) else ""
    if _close(seen, mine):
        return True, f'the {len(seen)} logged advantages are those of scale="{made.scale}"{left_out}'
    if _close(seen, r[both]):
        return False, _RAW + left_out
    for other in get_args(Scale):
        if other != made.scale and _close(seen, _advantages(r, at, other, made.epsilon)[both]):
            return False, f'they are those of scale="{other}", not of "{made.scale}"{left_out}'
    if _close(np.sort(seen), np.sort(mine)):
        return False, f"they are the recomputed values in another order: answers and groups were mixed up{left_out}"
    bounds = float(seen.min()), float(seen.max())
    near = _tolerance(mine)
    inside = (mine > bounds[0] + near) & (
        mine < bounds[1] - near
    )  # without any, every log of two values would look cut
    if inside.any() and _close(seen, np.clip(mine, *bounds)):
        return None, f"they are the recomputed values cut to {bounds[0]:.3g} .. {bounds[1]:.3g}: clipped afterwards"
    if len(seen) > 3 and np.ptp(mine) > 0.0:
        slope, shift = np.polyfit(mine, seen, 1)
        if slope > 0.0 and _close(seen, slope * mine + shift):
            says = (
                f"they are the recomputed values times {slope:.3g} plus {shift:.3g}, as whitening over the batch makes"
            )
            return None, f"{says}: not comparable one by one"
    size = np.bincount(at[both], minlength=made.groups)
    means = np.bincount(at[both], seen, minlength=made.groups) / np.maximum(size, 1)
    off = float(np.abs(means).max())
    if made.scale != "leave_one_out_std" and off > 10.0 * near:
        return (
            False,
            f"the mean of a group reaches {off:.3g} where centring gives 0: groups or baseline differ{left_out}",
        )
    worst = float(np.abs(seen - mine).max())
    count = int((np.abs(seen - mine) > near).sum())
    return False, f"{count} of {len(seen)} differ, by up to {worst:.3g}{left_out}"


def _against_statistics(
    made: Advantages, logged: Mapping[str, float], r: Floats, at: NDArray[np.intp], over: Over | None
) -> Verdict:
    given = _statistics(logged)
    if made.alone:
        return None, f"{made.alone} groups hold one answer, and trainers differ in what advantage those get"
    verdicts = [_judged(made, name, value, over) for name, value in given.items() if math.isfinite(value)]
    if not verdicts:
        return None, "no logged statistic is finite"
    agrees = False if any(v[0] is False for v in verdicts) else None if any(v[0] is None for v in verdicts) else True
    told = [says for verdict, says in verdicts if verdict is agrees]
    if agrees is False and (named := _other_scale(made, given, r, at)):
        told.append(named)
    return agrees, "; ".join(told)


def _judged(made: Advantages, name: str, value: float, over: Over | None) -> Verdict:
    own = float(getattr(made, name))
    tokens = made.token_mean if name == "mean" else made.token_std if name == "std" else None
    near = _tolerance(made.values)
    if name == "std":
        n = len(made.values)
        by_answer = abs(value - own) <= near or (n > 1 and abs(value - own * math.sqrt(n / (n - 1))) <= near)
    else:
        by_answer = abs(value - own) <= near
    if over == "tokens" and name in ("mean", "std"):
        if tokens is None:
            return None, f"{name} {value:.3g} is taken over tokens: give weights, the tokens of each answer"
        return abs(value - tokens) <= near, f"{name} {value:.3g}, recomputed over tokens {tokens:.3g}"
    if by_answer:
        return True, f"{name} {value:.3g}, recomputed {own:.3g}"
    if name in ("min", "max") or over == "answers":
        return False, f"{name} {value:.3g}, recomputed {own:.3g}"
    if tokens is None:
        says = (
            f"{name} {value:.3g} is not the {own:.3g} over answers, but may be one over tokens, as most trainers log it"
        )
        return None, f'{says}: give weights, or over="answers" where it is known not to be'
    if abs(value - tokens) <= near:
        return True, f"{name} {value:.3g}, recomputed over tokens {tokens:.3g}"
    says = f"{name} {value:.3g} is neither {own:.3g} over answers nor {tokens:.3g} over tokens"
    return False, f"{says}, so answers were filtered, tokens masked, or the baseline differs"


def _other_scale(made: Advantages, given: Mapping[str, float], r: Floats, at: NDArray[np.intp]) -> str:
    """Which other way to scale would give the logged extremes; empty when none does, or when they are not logged."""
    ends = {name: given[name] for name in ("min", "max") if name in given}
    for other in get_args(Scale):
        values = _advantages(r, at, other, made.epsilon)
        if len(ends) == 2 and other != made.scale:
            near = _tolerance(values)
            if abs(ends["min"] - values.min()) <= near and abs(ends["max"] - values.max()) <= near:
                return f'the extremes are those of scale="{other}"'
    near = _tolerance(r)
    if len(ends) == 2 and abs(ends["min"] - r.min()) <= near and abs(ends["max"] - r.max()) <= near:
        return "the extremes are those of the rewards: no baseline was subtracted"
    return ""


def _tolerance(values: Floats) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return _ROUNDING + _NEAR * (float(finite.max()) if len(finite) else 0.0)


def _close(seen: Floats, mine: Floats) -> bool:
    return bool((np.abs(seen - mine) <= _tolerance(mine)).all())


# ---------------------------------------------------------------- input


def _numbers(given: ArrayLike, what: str) -> Floats:
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise BadRequest(f"{what} as numbers", f"{problem}") from problem
    if found.ndim != 1:
        raise BadRequest(f"{what} in one row, one for each answer", f"an array of shape {found.shape}")
    return found


def _tokens(weights: ArrayLike, n: int) -> Floats:
    tokens = _numbers(weights, "weights")
    if len(tokens) != n:
        raise BadRequest(f"{n} weights, the tokens of each answer", f"{len(tokens)}")
    if not (np.isfinite(tokens).all() and (tokens >= 0.0).all() and tokens.sum() > 0.0):
        raise BadRequest("numbers of tokens, none negative and not all 0", f"from {tokens.min():g} to {tokens.max():g}")
    return tokens


def _membership(groups: ArrayLike | int, n: int) -> NDArray[np.intp]:
    """(n,) the number of the group that each answer belongs to."""
    if isinstance(groups, numbers.Integral) and not isinstance(groups, bool):
        size = int(groups)
        if size < 1 or n % size:
            hint = "an id for each answer, where groups are incomplete"
            raise BadRequest(f"a group size that divides {n} answers", str(size), hint=hint)
        return np.arange(n) // size
    try:
        ids = np.asarray(groups)
    except ValueError as problem:
        raise BadRequest("one id of a group for each answer", str(problem)) from problem
    if ids.ndim != 1 or len(ids) != n:
        found = f"an array of shape {ids.shape}" if ids.ndim else repr(groups)
        raise BadRequest(f"{n} ids of groups, one for each reward, or a group size", found)
    if ids.dtype.kind == "f" and np.isnan(ids).any():
        raise BadRequest("an id for each answer", "NaN")
    if ids.dtype.kind == "O":
        numbered = {one: k for k, one in enumerate(dict.fromkeys(ids.tolist()))}
        return np.array([numbered[one] for one in ids.tolist()])
    return np.unique(ids, return_inverse=True)[1].ravel()


def _statistics(logged: Mapping[str, float]) -> dict[str, float]:
    """The logged statistics by plain name; ``critic/advantages/mean`` and ``advantage.mean`` both mean ``mean``."""
    found: dict[str, float] = {}
    for key, value in logged.items():
        name = str(key).replace("/", ".").rsplit(".", 1)[-1].lower()
        if name not in _STATISTICS:
            raise BadRequest("statistics of the logged advantages", repr(key), _STATISTICS)
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise BadRequest(f"a number for {key}", repr(value)[:60])
        found[name] = float(value)
    if not found:
        raise BadRequest("statistics of the logged advantages", "none", _STATISTICS)
    return found
