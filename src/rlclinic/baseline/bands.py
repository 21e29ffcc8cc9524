"""Where healthy runs stayed: quantile bands of each metric over the progress of training, and what lies outside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlclinic.healthy import Band
from rlclinic.model import Column, Floats, Run

BINS = 10
LOW, HIGH = 0.05, 0.95
METRICS = 200
"""Series of which bands are kept (ours; reward parts after metrics)."""
_LAST = 3
"""Tenths of training that are the end of a run (ours)."""
_CLEAR = 2.0
"""Chosen so that of runs of one recipe few are called outside: docs/baselines.md (ours)."""
_ROWS = 3
"""Rows of a run in a tenth of training below which that run says nothing there (ours)."""
PART = "part."
_NAME = 200
"""Characters of the name of a reward part beyond which it has no band (ours)."""


@dataclass(frozen=True, eq=False)
class Course:
    """The band of one series: by share of the run (k,) the lowest 5 % and the highest 95 % quantile and the median of the
    medians among ``runs`` runs with ``rows`` rows; ``key`` and ``estimator`` say which quantity it is."""

    key: str
    estimator: str
    runs: int
    rows: int
    share: Floats
    low: Floats
    middle: Floats
    high: Floats


def series_of(run: Run) -> dict[str, Column]:
    """Every measured series that can have a band: metrics by name, reward parts as ``part.NAME``."""
    found = {name: column for name, column in run.columns.items() if column.status != "structural_zero"}
    found |= {f"{PART}{name}": part.mean for name, part in run.components.items()}
    good = {name for name in found if len(name) <= _NAME and name.isprintable()}
    return {name: column for name, column in found.items() if name in good and len(column.finite)}


def extent(run: Run, usual: float = 0.0) -> float:
    """The steps that a whole run like this one has: as planned, else as logged, and not less than ``usual``."""
    logged = float(run.steps[-1]) if len(run.steps) else 0.0
    return max(float(run.planned_steps), logged) if run.planned_steps else max(logged, usual)


def bands(runs: Sequence[Run]) -> dict[str, Course]:
    """The band of every series of ``runs``, at most ``METRICS``; one whose estimator differs between runs has none."""
    every: dict[str, list[tuple[Column, float]]] = {}
    for run in runs:
        for name, column in series_of(run).items():
            every.setdefault(name, []).append((column.finite, extent(run)))
    names = sorted(every, key=lambda name: (name.startswith(PART), name))[:METRICS]
    made = {name: _course(every[name]) for name in names if len({c.estimator for c, _ in every[name]}) == 1}
    return {name: course for name, course in made.items() if course is not None}


def _course(columns: Sequence[tuple[Column, float]]) -> Course | None:
    cut = np.full((len(columns), BINS, 3), np.nan)
    for i, (column, length) in enumerate(columns):
        tenth = tenths(column.steps, length)
        for at in np.unique(tenth):
            inside = column.values[tenth == at]
            if len(inside) >= min(_ROWS, max(1, len(column) // BINS)):
                cut[i, at] = np.quantile(inside, (LOW, 0.5, HIGH))
    there = np.isfinite(cut).all(axis=2).any(axis=0)
    if not there.any():
        return None
    kept = cut[:, there]
    return Course(
        key=columns[0][0].key,
        estimator=columns[0][0].estimator,
        runs=len(columns),
        rows=sum(len(column) for column, _ in columns),
        share=(np.flatnonzero(there) + 0.5) / BINS,
        low=np.nanmin(kept[:, :, 0], axis=0),
        middle=np.nanmedian(kept[:, :, 1], axis=0),
        high=np.nanmax(kept[:, :, 2], axis=0),
    )


def tenths(steps: Floats, length: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """(n,) In which tenth of a run of ``length`` steps each step lies, 0..9."""
    share = (steps - 1e-9) / length if length > 0 else np.zeros(len(steps))
    return np.clip((share * BINS).astype(np.int64), 0, BINS - 1)


def drawn(course: Course, run: Run, usual: float) -> Band:
    """The band at the steps of ``run``, carried on to both ends of a run of its length."""
    length = extent(run, usual)
    share = np.concatenate(([course.share[0] - 0.5 / BINS], course.share, [course.share[-1] + 0.5 / BINS]))
    low, high = (np.concatenate((v[:1], v, v[-1:])) for v in (course.low, course.high))
    runs = "a healthy run" if course.runs == 1 else f"{course.runs} healthy runs"
    return Band(share * length, low, high, f"where {runs} stayed")


def beyond(course: Course, column: Column, length: float) -> tuple[list[int], list[int], int]:
    """The tenths of training in which the median of ``column`` is clearly below the band, those in which it is clearly
    above, and how many tenths both know. Clearly: by ``_CLEAR`` times the band's width, divided by the runs behind it."""
    known = {round(share * BINS - 0.5): i for i, share in enumerate(course.share)}
    finite = column.finite
    tenth = tenths(finite.steps, length)
    below, above, looked = [], [], 0
    for at in sorted(set(tenth.tolist()) & set(known)):
        inside = finite.values[tenth == at]
        if len(inside) < _ROWS:
            continue
        looked += 1
        middle = float(np.median(inside))
        low, high = course.low[known[at]], course.high[known[at]]
        slack = _CLEAR * (high - low) / course.runs + 1e-3 * abs(middle)  # bounds are written with four digits
        if middle < low - slack:
            below.append(at)
        elif middle > high + slack:
            above.append(at)
    return below, above, looked


def outside(courses: Mapping[str, Course], run: Run, vitals: Mapping[str, str], usual: float) -> list[str]:
    """Where the ``vitals`` (title by metric) of ``run`` lie clearly beyond the bands of three runs or more for half
    of the training that there is to see, in words."""
    told = []
    length = extent(run, usual)
    for metric, title in vitals.items():
        column = run.get(metric)
        course = courses.get(metric)
        if column is None or course is None or course.runs < 3 or course.estimator != column.estimator:
            continue
        below, above, looked = beyond(course, column, length)
        for where, word in ((below, "below"), (above, "above")):
            if len(where) >= max(3, looked / 2):
                begins = f"{max(where[0] / BINS * length, float(run.steps[0])):.0f}"
                told.append(
                    f"{title} is clearly {word} the band in {len(where)} of {looked} tenths of training, from step {begins}"
                )
                break
        else:
            told += [f"{title} {words}"] if (words := _ends(course, column, length)) else []
    return told


def _ends(course: Course, column: Column, length: float) -> str:
    """Where the last ``_LAST`` tenths that both know lie beyond the band by its whole width: few, but the newest."""
    known = {round(share * BINS - 0.5): i for i, share in enumerate(course.share)}
    finite = column.finite
    tenth = tenths(finite.steps, length)
    seen = [at for at in sorted(set(tenth.tolist()) & set(known)) if int((tenth == at).sum()) >= _ROWS][-_LAST:]
    if len(seen) < _LAST:
        return ""
    middles = [float(np.median(finite.values[tenth == at])) for at in seen]
    below = above = True
    for at, middle in zip(seen, middles, strict=True):
        low, high = float(course.low[known[at]]), float(course.high[known[at]])
        slack = max(1.0, _CLEAR / course.runs) * (high - low) + 1e-3 * abs(middle)
        below, above = below and middle < low - slack, above and middle > high + slack
    word = "below" if below else "above" if above else ""
    return f"ends at {middles[-1]:.3g}, far {word} the band there ({low:.3g} to {high:.3g})" if word else ""
