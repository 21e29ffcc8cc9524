"""The step of every row of a log: as stated, from whole epochs, or from the order of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlclinic.model import SHORT, Floats

IntArray: TypeAlias = NDArray[np.int64]

STEP_KEYS = (
    "step",
    "training_step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "_step",
    "Step",
    "iteration",
    "iter",
    "global_step/max_steps",
    "current_steps",
    "rollout_id",
    "train/step",
    "rollout/step",
    "progress/batch",
)
"""Keys that hold the step, best first."""

TRAINERS = ("train/global_step", "training/global_step", "trainer/global_step", "global_step/max_steps")
"""Those of them that only a trainer writes; beside them a tracker's own counter (``_step``, Trackio's) counts log calls."""

STANDING = 5
"""Rows beyond which a counter that stays where it is is no counter (ours: a step may be logged in a few pieces)."""
_EVALUATION = ("eval_", "eval/")


@dataclass(frozen=True, eq=False)
class Series:
    """One key of the log: ``rows`` (k,) row numbers, increasing; ``values`` (k,) as logged.

    ``decimals`` is the largest number of decimals printed for this key; None means full precision.
    """

    rows: IntArray
    values: Floats
    decimals: int | None = None


def stated(series: Mapping[str, Series], count: int, given: Floats) -> tuple[Floats, str, tuple[str, ...]]:
    """The step of every row as stated beside or inside the rows; an empty source when nothing states it.

    The trainer's own count wins over that of a tracker, also where only the rows of the trainer hold it: rows between
    two of them (profiling, system statistics) were logged on the way to the later one.
    """
    for key in TRAINERS:
        one = series.get(key)
        if one is not None and not _stands(one) and _speaks_for(one, series):
            return _carried(one, evaluated(series, count), count), key, (key,)
    if count and np.isfinite(given).sum() * 2 >= count:
        return given.copy(), "step", ()
    best: tuple[int, str] | None = None
    # A trainer's counter that never moves shows that the tracker's own beside it counts calls and not steps.
    unsure = any(key in series and _stands(series[key]) for key in TRAINERS)
    for key in STEP_KEYS:
        one = series.get(key)
        if one is None or _stands(one) or (unsure and key == "_step"):
            continue
        if len(one.rows) * 2 >= count:
            best = (len(one.rows), key)
            break
        if best is None or len(one.rows) > best[0]:
            best = (len(one.rows), key)
    axis = given.copy()
    if best is None:
        stated = bool(np.isfinite(given).any())
        return axis, "step" if stated else "", ()
    chosen = series[best[1]]
    axis[chosen.rows] = chosen.values
    return axis, best[1], (best[1],)


def _speaks_for(counter: Series, series: Mapping[str, Series]) -> bool:
    """True when most keys of the log appear in rows that hold this counter, so that it is not that of a by-stander."""
    others = [one for key, one in series.items() if key not in STEP_KEYS and not key.startswith("_") and len(one.rows)]
    beside = sum(bool(np.isin(one.rows[:64], counter.rows).any()) for one in others)
    return len(counter.rows) > 0 and beside * 2 >= len(others)


def _carried(counter: Series, aside: IntArray, count: int) -> Floats:
    """The counter for every row: of rows between two counted ones that of the later, of evaluations and the last rows
    that of the one before."""
    known = np.flatnonzero(np.isfinite(counter.values))
    if not len(known):
        return np.full(count, np.nan)
    rows, values = counter.rows[known], counter.values[known]
    places = np.arange(count)
    after = np.searchsorted(rows, places)
    before = np.searchsorted(rows, places, side="right") - 1
    # Where the counter falls back a new start lies between; rows there belong to it.
    chosen = np.minimum(after, len(rows) - 1)
    held_out = np.zeros(count, dtype=bool)
    held_out[aside] = True
    chosen = np.where(held_out & (before >= 0), before, chosen)
    return np.asarray(values[chosen], dtype=np.float64)


def _stands(one: Series) -> bool:
    """A counter that never moves counts nothing (a callback that logs before the trainer's own step is set)."""
    return len(one.values) > STANDING and bool((one.values == one.values[0]).all())


def ordered(series: Mapping[str, Series], count: int, spacing: float | None) -> tuple[Floats, str, tuple[str, ...]]:
    """Steps of rows that state none: whole epochs where those count up, else the order of the rows."""
    epoch = series.get("epoch")
    if epoch is not None and count > 1 and len(epoch.rows) == count:
        values = epoch.values
        if bool((np.diff(values) > 0).all()) and bool((values == np.floor(values)).all()):
            return values.copy(), "epoch", ("epoch",)
    aside = evaluated(series, count)
    held_out = np.zeros(count, dtype=bool)
    held_out[aside] = True
    trained = np.flatnonzero(~held_out)
    order = np.arange(1, count + 1, dtype=np.float64)
    if 0 < len(aside) < count:
        order[trained] = np.arange(1, len(trained) + 1)
        shown = np.full(count, np.nan)
        if epoch is not None:
            shown[epoch.rows] = epoch.values
        for row in aside:
            order[row] = beside(int(row), trained, shown, order)
    if spacing and spacing > 0:
        return order * spacing, f"row order times the logging interval of {spacing:g}", ()
    return order, "row order", ()


def evaluated(series: Mapping[str, Series], count: int) -> IntArray:
    """Rows that hold evaluation keys and no training key."""
    held_out = np.zeros(count, dtype=bool)
    trained = np.zeros(count, dtype=bool)
    for key, one in series.items():
        if key.startswith(_EVALUATION):
            held_out[one.rows] = True
        elif key not in STEP_KEYS and key != "epoch" and not key.startswith("_"):
            trained[one.rows] = True
    return np.flatnonzero(held_out & ~trained)


def shared(axis: Floats, series: Mapping[str, Series], count: int) -> Floats:
    """The axis with evaluation rows that state no step put at the step of the row before them."""
    if not count or bool(np.isfinite(axis).all()):
        return axis
    axis = axis.copy()
    for row in evaluated(series, count):
        if row and not np.isfinite(axis[row]):
            axis[row] = axis[row - 1]
    return axis


def beside(row: int, trained: IntArray, epoch: Floats, steps: Floats) -> float:
    """The step of an evaluation or closing row: that of the training row before it, or of the next one at its epoch."""
    at = int(np.searchsorted(trained, row))
    before = trained[at - 1] if at else None
    after = trained[at] if at < len(trained) else None
    if after is not None and (before is None or (epoch[before] != epoch[row] and epoch[after] == epoch[row])):
        return float(steps[after])
    return float(steps[before]) if before is not None else float("nan")


def starts_late(axis: Floats) -> bool:
    """True for a short log whose first step is not near the beginning, so what came before was left out."""
    known = axis[np.isfinite(axis)]
    if not 0 < len(known) <= SHORT:
        return False
    gaps = np.diff(known)
    usual = float(np.median(gaps[gaps > 0])) if bool((gaps > 0).any()) else 1.0
    return bool(known[0] > 2 * usual)
