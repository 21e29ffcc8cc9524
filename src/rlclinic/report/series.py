"""A column as a report shows it: named, with its ends, its range and what must be known about its values."""

from __future__ import annotations

import numpy as np

from rlclinic import names
from rlclinic.model import Column, Framework, Onset, Run
from rlclinic.report.blocks import KEY, Curve, Marks, count, number, plain, step

_COURSE = 3
"""Up to this many points a line says no more than its ends (ours)."""


def title_of(metric: str) -> str:
    """The plain name of a metric; a reward part, a log key or a setting is its own name."""
    return names.metric(metric).title if metric in names.metrics() else plain(metric, KEY)


def spelled(metric: str, framework: Framework | None) -> str:
    """A metric by its title and log key; any other words as they are."""
    if metric not in names.metrics():
        return plain(metric)
    title = names.metric(metric).title
    key = None if framework is None else names.key_for(metric, framework)
    return f"{title} ({plain(key, KEY)})" if key and key != title else title


def seen(column: Column, title: str) -> str:
    key = plain(column.key, KEY)
    how = f", {plain(column.estimator, 32)}" if column.estimator else ""
    return f"{key}{how}" if key == title else f"{title} ({key}{how})"


def whole(run: Run, onset: Onset) -> Onset:
    """``onset`` in whole steps, its interval rounded outwards; as it is where steps are logged as fractions."""
    if not all(np.isfinite(v) for v in (onset.step, onset.low, onset.high)) or bool(np.any(run.steps % 1)):
        return onset
    return Onset(float(round(onset.step)), float(np.floor(onset.low)), float(np.ceil(onset.high)))


def curve(
    title: str,
    column: Column,
    over: tuple[float, float],
    *,
    flag: str = "",
    found_in: str = "",
    mark: Onset | None = None,
    large: bool = False,
    name: str = "",
    marks: Marks = Marks(),  # noqa: B008  (frozen)
) -> Curve:
    """``column`` with its ends and its range; two values have no course, and one has no end. ``name`` is its metric."""
    finite = column.finite.values
    first, last = ends(column)
    low = high = ""
    if first and len(finite) > 2:
        low, high = printed(float(finite.min()), column), printed(float(finite.max()), column)
    if len(column) == 1 and first:
        last = ""
    remarks = _remarks(column, found_in)
    course = len(column) > _COURSE
    return Curve(
        title, column, over, first, last, low, high, flag, remarks, mark, large, course, name=name, marks=marks
    )


def span(run: Run, *columns: Column) -> tuple[float, float]:
    """First and last step of the run and of ``columns``."""
    limits = [c.steps for c in columns if len(c)] + ([run.steps] if len(run.steps) else [])
    return (min(float(s[0]) for s in limits), max(float(s[-1]) for s in limits)) if limits else (0.0, 0.0)


def printed(value: float, column: Column) -> str:
    """A value as far as the log shows it: a 0 that may be a rounded number is given as an upper bound."""
    if value == 0.0 and column.rounded_zero:
        return f"<{number(column.resolution / 2)}"
    return number(value)


def ends(column: Column) -> tuple[str, str]:
    """Medians of the first and of the last tenth of the finite values; empty when there is nothing to read off."""
    finite = column.finite.values
    if not len(finite) or column.status == "structural_zero":
        return "", ""
    tenth = max(1, len(finite) // 10)
    with np.errstate(over="ignore"):  # two values near the largest float have no sum
        first, last = np.median(finite[:tenth]), np.median(finite[-tenth:])
    return printed(float(first), column), printed(float(last), column)


def _remarks(column: Column, found_in: str = "") -> tuple[str, ...]:
    remarks = []
    if len(column) == 1 and not column.nonfinite and column.status != "structural_zero":
        remarks.append(f"one value, at step {step(column.steps[0])}")
    if column.nonfinite:
        bad = column.steps[~np.isfinite(column.values)]
        remarks.append(
            f"{column.nonfinite} of {count(len(column), 'value')} NaN or infinite, first at step {step(bad[0])}"
        )
    if column.status == "structural_zero":
        remarks.append("zero by construction" + (f": {plain(column.because)}" if column.because else ""))
    elif column.status == "filtered":
        remarks.append("after filtering" + (f": {plain(column.because)}" if column.because else ""))
    if found_in:
        remarks.append(found_in)
    return tuple(remarks)
