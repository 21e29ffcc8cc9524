"""Which step each row of a log belongs to, once restarts, repeats and disorder are understood."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlclinic import names
from rlclinic.errors import BadRequest, nearest
from rlclinic.model import Floats, Warn
from rlclinic.readers.axis import evaluated, starts_late
from rlclinic.readers.log import Log, Series

Mask: TypeAlias = NDArray[np.bool_]

FEW = 0.05
"""Distinct steps per row below which the steps say nothing (ours: loggers write up to five rows a step, not twenty)."""
CLOSE = 1.5
"""Usual distances within which a row follows another (ours)."""
BRIEF = 3
"""Steps up to which rows that went back may be neighbours that changed places (ours)."""
MOST_STARTS = 3
"""Restarts beyond which rows that repeat next to no step are in disorder (ours: sorted as text, or shuffled)."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """``steps`` (rows,) with NaN for rows that do not count; seams by step; where the last attempt began."""

    steps: Floats
    seams: dict[float, str]
    began: float | None
    warnings: tuple[Warn, ...]


_OF_AXIS = ("rows_without_step", "negative_steps", "fractional_steps", "several_starts")
_WENT_BACK = "the step went back"


def on_key(logs: Iterable[Log], key: str) -> list[Log]:
    """The logs with the series ``key`` as their steps, those that lack it as they were.

    Rows without the key lie at the step of the row before them that has it, since loops log one step in several calls.
    Raises BadRequest when no log has the key.
    """
    logs = list(logs)
    every = {name: one for log in logs for name, one in {**log.counters, **log.series}.items()}
    behind = [name for name in every if names.strip(name)[0] == key]
    if key not in every and len(behind) == 1:
        key = behind[0]  # a tracker has put train/ or the like before it
    if key not in every:
        choices = nearest(key, every) or tuple(list(every)[:12])
        raise BadRequest("the step under a key of the log", f"step = {key!r}, which is not in it", choices)
    return [_restepped(log, key) for log in logs]


def _restepped(log: Log, key: str) -> Log:
    counter = {**log.counters, **log.series}.get(key)
    if counter is None:
        return log
    steps = np.full(log.rows, np.nan)
    steps[counter.rows] = counter.values
    known = np.isfinite(steps)
    if known.any():
        last = np.maximum.accumulate(np.where(known, np.arange(log.rows), -1))
        steps = np.where(last >= 0, steps[last], steps[int(np.argmax(known))])
    seams = {row: why for row, why in log.seams.items() if not why.startswith(_WENT_BACK)}
    for row in np.flatnonzero(np.diff(steps) < 0) + 1:
        seams.setdefault(int(row), f"{_WENT_BACK} from {steps[row - 1]:g} to {steps[row]:g}")
    return replace(
        log,
        steps=steps,
        step_source=key,
        series={name: one for name, one in log.series.items() if name != key},
        seams=dict(sorted(seams.items())),
        warnings=tuple(warn for warn in log.warnings if warn.code not in _OF_AXIS),
        excerpt=starts_late(steps),
    )


def timeline(log: Log) -> Timeline:
    """The step of every row that counts.

    Training that goes back and goes on from there is a resume: earlier rows at or beyond its step belong to an
    abandoned branch. A start from scratch continues the count instead, so that both attempts stay visible. Rows that
    are merely out of order are sorted, and a step that never moves is no step.
    """
    steps = log.steps.copy()
    known = np.isfinite(steps)
    if not known.any():
        says = "no row has a usable step; rows are counted instead"
        return Timeline(np.arange(1.0, log.rows + 1), {}, None, (Warn("rows_without_step", says),) if log.rows else ())
    distinct = len(np.unique(steps[known]))
    # Trackers also take rows of profiling and of the system; a key of the trainer comes once a step.
    usual = float(np.median([len(one.rows) for one in log.series.values()])) if log.series else 0.0
    if log.rows >= 10 and distinct <= max(1, FEW * usual):
        says = f"{log.rows} rows carry only {distinct} different steps; rows are counted instead"
        return Timeline(np.arange(1.0, log.rows + 1), {}, None, (Warn("steps_do_not_move", says),))
    began, late = _restarts(log, steps)
    if len(began) > MOST_STARTS and int(known.sum()) - distinct <= FEW * log.rows:
        began, late = {}, []  # a restart repeats a stretch; disorder goes back often and repeats next to nothing
    behind = int((np.diff(steps[known]) < 0).sum()) - len(began)
    steps[_told_before(log, steps, late)] = np.nan
    seams = {row: why for row, why in log.seams.items() if not why.startswith(_WENT_BACK)}
    for row, why in began.items():
        seams.setdefault(row, log.seams.get(row, why))
    says = f"steps are out of order in {behind} places; rows are put at their step"
    return _attempts(replace(log, seams=seams), steps, (Warn("out_of_order", says),) if behind > 0 else ())


def _restarts(log: Log, steps: Floats) -> tuple[dict[int, str], list[int]]:
    """The rows at which training goes back and goes on from there, and why; and the training rows that are late.

    Late rows are followed by the old place and not by the step after theirs. Rows of evaluations and of a summary
    restart nothing.
    """
    trained = np.flatnonzero(_training(log) & np.isfinite(steps))
    if not len(trained):
        return {}, []
    heads = np.concatenate([[0], np.flatnonzero(np.diff(steps[trained])) + 1])
    ends = np.append(heads[1:], len(trained))
    t = steps[trained[heads]]
    up = np.diff(t)
    if bool((up > 0).all()):
        return {}, []
    usual = float(np.median(up[up > 0])) if bool((up > 0).any()) else 1.0
    began: dict[int, str] = {}
    late: list[int] = []
    reached, at = -np.inf, 0
    while at < len(t):
        if t[at] >= reached:
            reached, at = float(t[at]), at + 1
            continue
        if at + 1 < len(t) and 0 < t[at + 1] - t[at] <= CLOSE * usual:
            out = at + 1
            while out < len(t) and t[out] <= reached:
                out += 1
            gap = float(t[out] - t[out - 1]) if out < len(t) else 0.0
            twice = bool(((t[:at] >= t[at]) & (t[:at] <= t[out - 1])).any())  # else rows only fill a gap
            if twice and (gap <= CLOSE * usual or (out - at > BRIEF and gap <= 2 * CLOSE * usual)):
                began[int(trained[heads[at]])] = f"{_WENT_BACK} from {reached:g} to {t[at]:g}"
                reached, at = float(t[at]), at + 1
                continue
        else:
            out = at + 1
        late.extend(trained[heads[at] : ends[out - 1]].tolist())
        at = out
    return began, late


def _training(log: Log) -> Mask:
    """(rows,) True for rows that hold a key of training which comes more than once; all rows when none does."""
    own = np.zeros(log.rows, dtype=bool)
    for one in log.series.values():
        if len(one.rows) > 1:
            own[one.rows] = True
    own[evaluated(log.series, log.rows)] = False
    return own if own.any() else np.ones(log.rows, dtype=bool)


def _told_before(log: Log, steps: Floats, late: list[int]) -> list[int]:
    """The late rows whose step has a row in its place that holds as many keys: that one counts."""
    if not late:
        return []
    held = np.zeros(log.rows, dtype=np.int64)
    for one in log.series.values():
        held[one.rows] += 1
    in_place = np.ones(log.rows, dtype=bool)
    in_place[late] = False
    most: dict[float, int] = {}
    for row in np.flatnonzero(in_place & np.isfinite(steps)).tolist():
        most[steps[row]] = max(most.get(steps[row], 0), int(held[row]))
    return [row for row in late if most.get(steps[row], 0) >= held[row]]


def _attempts(log: Log, steps: Floats, warnings: tuple[Warn, ...]) -> Timeline:
    seams: dict[float, str] = {}
    began: float | None = None
    said = list(warnings)
    first = float(steps[np.isfinite(steps)][0])
    for row in sorted(log.seams):
        why = log.seams[row]
        if row >= log.rows or not np.isfinite(steps[row]):
            continue
        at = float(steps[row])
        earlier = np.flatnonzero(np.isfinite(steps[:row]))
        reached = float(steps[earlier].max()) if len(earlier) else at
        goes_back = at <= reached
        back = why.startswith(_WENT_BACK)
        repeats = back or bool(np.isin(steps[row:][np.isfinite(steps[row:])], steps[earlier]).any())
        scratch = ("started again" in why or _from_start(log, row)) and (not goes_back or at <= first + 1)
        if goes_back and scratch:
            steps[row:] += reached + 1 - at
            at = float(steps[row])
        elif goes_back and repeats:
            abandoned = earlier[steps[earlier] >= at]
            lost = int(np.sum(steps[abandoned] > np.nanmax(steps[row:])))
            steps[abandoned] = np.nan
            beyond = f", {lost} of them beyond where the log now ends" if lost else ""
            said.append(Warn("restarted", f"{why}; {len(abandoned)} rows of the abandoned branch are left out{beyond}"))
        elif goes_back:
            continue
        seams[at] = why
        if scratch:
            began = at
            says = f"{why} at row {row + 1}: the file holds several attempts, judged by the last"
            said.append(Warn("several_attempts", says))
    return Timeline(steps, seams, began, tuple(_folded(said)))


def _from_start(log: Log, row: int) -> bool:
    """True when rows that are known by their order only begin the data anew, as no resumed run does."""
    epoch = log.series.get("epoch")
    if epoch is None or not log.step_source.startswith(("row order", "progress bar, counted on")):
        return False
    at = int(np.searchsorted(epoch.rows, row))
    return 0 < at < len(epoch.rows) and bool(epoch.values[at] <= 1.01 * epoch.values[0])


def _folded(warnings: list[Warn], most: int = 3) -> list[Warn]:
    """At most ``most`` warnings of one kind, and how many more there were."""
    by_code: dict[str, list[Warn]] = {}
    for warning in warnings:
        by_code.setdefault(warning.code, []).append(warning)
    return [
        warning
        for code, mine in by_code.items()
        for warning in (
            *mine[:most],
            *([Warn(code, f"and {len(mine) - most} more of this kind")] if len(mine) > most else []),
        )
    ]


def fresh_rows(log: Log, moving: Iterable[Series]) -> Mask:
    """(rows,) False where a row repeats the one before in every metric, as no live measurement does by chance.

    At least two series must vary over the log and be present in all rows, else nothing counts as stale. A NaN repeats
    nothing: rows of NaN are what they say, also where the writer leaves them out or writes null.
    """
    fresh = np.ones(log.rows, dtype=bool)
    if log.rows < 3:
        return fresh
    moving = list(moving)
    dense = [s.values for s in moving if len(s.rows) == log.rows]
    varied = [v for v in dense if len(np.unique(v[np.isfinite(v)][:2000])) > 2]
    if len(varied) < 2:
        return fresh
    same = np.ones(log.rows - 1, dtype=bool)
    for values in dense:
        same &= values[1:] == values[:-1]
        if not same.any():
            return fresh
    fresh[1:] = ~same
    if log.nonfinite in ("dropped", "null"):
        for one in moving:
            if log.rows > len(one.rows) >= 0.5 * log.rows:
                fresh |= ~np.isin(np.arange(log.rows), one.rows, assume_unique=True)
    return fresh
