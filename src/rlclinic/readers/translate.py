"""One log in canonical names: what each key means here, and at which steps it counts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlclinic import names
from rlclinic.model import Column, Component, Floats, Framework, Knob, Undecided, Warn
from rlclinic.readers.log import Log, Series
from rlclinic.readers.timeline import Mask, fresh_rows, timeline

SUMMED = 8
"""Rows in which series must add up to the reward before they count as its parts (ours)."""
MOST_SUMMED = 10
"""Most unrecognised series whose sums are tried (ours: 375 sums)."""
CLOCKS = ("progress.", "time.", "tokens.", "perf.")
"""Families that move by themselves; they do not tell whether a row repeats the one before."""


@dataclass(frozen=True, eq=False)
class Translated:
    """One log in canonical names, before merging."""

    columns: dict[str, Column]
    components: dict[str, Component]
    evaluations: dict[str, Column]
    unrecognised: dict[str, int]
    undecided: dict[str, Undecided]
    seams: dict[float, str]
    began: float | None
    warnings: list[Warn]


def translate(log: Log, framework: Framework | None, knobs: Mapping[str, Knob]) -> Translated:
    meanings = {key: names.translate(key, framework, knobs) for key in log.series}
    time = timeline(log)
    warnings = list(time.warnings)
    if log.step_source.startswith("row order") and log.rows:
        warnings.append(Warn("row_order", "the log states no step: what is called a step here is a row"))
    moving = [s for key, s in log.series.items() if not _is_clock(meanings[key])]
    fresh = fresh_rows(log, moving)
    if not fresh.all():
        stale = int((~fresh).sum())
        warnings.append(
            Warn(
                "stale_rows", f"{stale} of {log.rows} rows repeat the row before in every metric; each is counted once"
            )
        )
    nulls = {key: len(rows) for key, rows in log.nulls.items() if len(rows)}
    if nulls:
        shown = ", ".join(sorted(nulls, key=lambda key: -nulls[key])[:4])
        says = f"{max(nulls.values())} rows hold null for {shown}: this writer turns NaN and infinities into null"
        warnings.append(Warn("nulls_for_nan", says))
    columns: dict[str, tuple[int, Column]] = {}
    means: dict[str, tuple[int, Column]] = {}
    spreads: dict[str, tuple[int, Column]] = {}
    evaluations: dict[str, Column] = {}
    unrecognised: dict[str, int] = {}
    undecided: dict[str, Undecided] = {}
    axes: dict[int, Floats] = {}
    for key, logged in log.series.items():
        series = _with_nulls(logged, log.nulls.get(key))
        meaning = meanings[key]
        if meaning is None and key in ("_runtime", "_timestamp"):
            continue  # the clock of W&B
        if meaning is None:
            unrecognised[key] = len(series.values)
            continue
        if isinstance(meaning, Undecided):
            undecided[key] = meaning
            if set(meaning.meanings) == {"reward.std", "reward.group_std"}:
                column = _column(series, "reward.std_unresolved", key, time.steps, fresh, axes)
                columns.setdefault("reward.std_unresolved", (0, column))
            continue
        counted = fresh if meaning.role == "metric" else None
        column = _column(series, meaning.metric, key, time.steps, counted, axes)
        column = _annotate(column, meaning, knobs)
        if not len(column):
            continue
        if meaning.role == "evaluation":
            own = key if names.is_own(key, framework) and meaning.metric == "eval.score" else None
            if names.evaluation_rank(key, own) is not None and (own or not names.is_own(key, framework)):
                evaluations[key] = column
            elif meaning.metric != "eval.other":
                columns.setdefault(meaning.metric, (meaning.rank, column))
            continue
        table, name = {
            "metric": (columns, meaning.metric),
            "component_mean": (means, meaning.part or key),
            "component_std": (spreads, meaning.part or key),
        }[meaning.role]
        if name not in table or meaning.rank < table[name][0]:
            table[name] = (meaning.rank, column)
    repeated = max(
        (len(log.series[c.key].values) - len(c) for m, (_, c) in columns.items() if not m.startswith(CLOCKS)), default=0
    )
    repeated -= int((~fresh).sum()) + int(np.isnan(time.steps).sum())
    if repeated > 0 and not time.seams and log.step_source != "row order":
        says = f"{repeated} rows repeat a step with other values; the last row of each step counts"
        warnings.append(Warn("duplicated_steps", says))
    parts = {
        part: Component(part, mean, spreads[part][1] if part in spreads else None) for part, (_, mean) in means.items()
    }
    plain = {metric: column for metric, (_, column) in columns.items()}
    if not parts and "reward.mean" in plain:
        unknown = (
            _column(
                _with_nulls(log.series[key], log.nulls.get(key)), "reward.component.mean", key, time.steps, fresh, axes
            )
            for key in list(unrecognised)
        )
        for column in summands(plain["reward.mean"], unknown):
            name = re.sub(r"[_/](?:mean|avg)$", "", column.key.rpartition("/")[2] or column.key)
            parts[name] = Component(name, column, weight=1.0)
            del unrecognised[column.key]
    return Translated(plain, parts, evaluations, unrecognised, undecided, time.seams, time.began, warnings)


def summands(reward: Column, unknown: Iterable[Column]) -> tuple[Column, ...]:
    """The unrecognised series that add up to the reward in every row, so that they are its parts; empty without such.

    Two to four series, each moving, in at least ``SUMMED`` common rows: by chance no sum fits them all to the digits shown.
    """
    whole = reward.finite
    moving = (c for c in unknown if len(c.finite) >= SUMMED and float(np.ptp(c.finite.values)) > 0)
    tried = list(itertools.islice(moving, MOST_SUMMED))
    for many in (2, 3, 4):
        for chosen in itertools.combinations(tried, many):
            steps = whole.steps
            for one in chosen:
                steps = np.intersect1d(steps, one.finite.steps, assume_unique=True)
            if len(steps) < max(SUMMED, 0.9 * len(whole)):
                continue
            wanted = whole.values[np.searchsorted(whole.steps, steps)]
            terms = [c.finite.values[np.searchsorted(c.finite.steps, steps)] for c in chosen]
            near = 1e-4 * max(float(np.abs(wanted).max()), 1e-9) + (many + 1) * 0.5 * max(c.resolution for c in chosen)
            if float(np.ptp(wanted)) > 4 * near and bool((np.abs(wanted - np.sum(terms, axis=0)) <= near).all()):
                return chosen
    return ()


def _with_nulls(series: Series, nulls: NDArray[np.int64] | None) -> Series:
    """The series with NaN in the rows where the writer had to put null in the place of one."""
    if nulls is None or not len(nulls):
        return series
    rows = np.concatenate([series.rows, nulls])
    values = np.concatenate([series.values, np.full(len(nulls), np.nan)])
    rank = np.argsort(rows, kind="stable")
    return replace(series, rows=rows[rank], values=values[rank])


def _is_clock(meaning: object) -> bool:
    return isinstance(meaning, names.Meaning) and meaning.metric.startswith(CLOCKS)


def _column(
    series: Series, metric: str, key: str, steps: Floats, fresh: Mask | None, axes: dict[int, Floats]
) -> Column:
    """The series at the steps of its rows; columns with the same steps share one array, kept in ``axes`` by length."""
    at = steps[series.rows]
    keep = np.isfinite(at) if fresh is None else np.isfinite(at) & fresh[series.rows]
    at, values = at[keep], series.values[keep]
    if len(at) > 1 and not bool((np.diff(at) > 0).all()):
        # Stable sort, then the last row of each step: a step logged twice keeps what was written last.
        ranked = np.argsort(at, kind="stable")
        at, values = at[ranked], values[ranked]
        last = np.append(np.diff(at) > 0, True)
        at, values = at[last], values[last]
    known = axes.setdefault(len(at), at)
    at = known if np.array_equal(known, at) else at
    # One decimal and none are how Python prints a plain 0.0 or an integer, not a format that rounds.
    resolution = 0.0 if series.decimals is None or series.decimals < 2 else 10.0**-series.decimals
    return Column(metric=metric, key=key, steps=at, values=values, resolution=resolution)


def _annotate(column: Column, meaning: names.Meaning, knobs: Mapping[str, Knob]) -> Column:
    """The column with its scale applied, its trap noted, and structural zeros and filtered means marked as such."""
    values = column.values if meaning.scale == 1.0 else column.values * meaning.scale
    column = replace(column, values=values, estimator=meaning.estimator, note=meaning.note)
    weight = knobs.get("kl_coef")
    # One or two rows may be those before the first update, whose KL is 0 with a reference too.
    shown = len(values) > 2 or (weight is not None and weight.value in (0, 0.0))
    constant_zero = shown and bool((values == 0).all())
    if meaning.zero == "no_reference" and constant_zero and (weight is None or weight.value in (0, 0.0)):
        return replace(column, status="structural_zero", because="it is 0 in every row: no reference model is in use")
    if meaning.zero == "not_measured" and constant_zero:
        return replace(column, status="structural_zero", because="this key is 0 in every row when it is not measured")
    filtering = knobs.get("dynamic_sampling")
    if meaning.metric in ("reward.mean", "group.zero_var_frac") and filtering is not None and filtering.value is True:
        return replace(column, status="filtered", because="dead groups are filtered out before this is computed")
    return column
