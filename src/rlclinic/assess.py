"""One training step, or one rolling window, judged where it happens: in a callback, a notebook or an alert."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, SupportsFloat, TypeAlias

from rlclinic import names
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest, nearest
from rlclinic.model import Diagnosis
from rlclinic.readers import read_rows
from rlclinic.readers.axis import STEP_KEYS
from rlclinic.readers.log import Rows

History: TypeAlias = Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]]


def assess(
    metrics: Mapping[str, Any],
    *,
    knobs: Mapping[str, Any] | None = None,
    history: History | None = None,
    framework: str | None = None,
    limits: Mapping[str, Mapping[str, Any]] | None = None,
) -> Diagnosis:
    """Everything that holds at this step, root causes first: the checks, limits and order of ``diagnose``.

    ``metrics`` are the present values, under canonical names (``entropy.mean``) or a framework's own keys
    (``actor/entropy``); ``history`` the rows before, oldest first, as a sequence of such mappings or as key to list
    (None where a row lacks the key; a NaN is one that the trainer logged). ``knobs`` are settings in either spelling;
    they need not be complete, so no default is assumed beside them. ``framework`` is a name or ``name@version``.

    Rows state their steps (``step``, ``global_step``) or are counted from 1; a rolling window has to state them, so that
    its first row is not taken for the first of the run.

    Without history only states are judged, as in a paste of one line; trends and comparisons need about 100 rows of it.
    A metric that is absent proves nothing while there are so few rows that only states are judged. Raises BadRequest,
    and UnknownName for a framework, check or limit that does not exist.
    """
    for what, given in (("knobs", knobs), ("limits", limits)):
        if given is not None and not isinstance(given, Mapping):
            raise BadRequest(f"{what} as a mapping", repr(given)[:60])
    if any(not isinstance(rows, Mapping) for rows in (limits or {}).values()):
        raise BadRequest("limits as check: {limit: number}", repr(limits)[:60], hint="rlclinic explain CHECK")
    if framework is not None and not isinstance(framework, str):
        raise BadRequest("a framework as text, such as trl@1.16.0", repr(framework)[:60])
    told = [*_rows(history), _plain(metrics, "the metrics")]
    rows = Rows()
    for step, row in zip(_steps(told), told, strict=True):
        rows.add({key: value for key, value in row.items() if key not in STEP_KEYS}, step)
    if not any(key in rows for key in told[-1]):
        raise BadRequest("at least one number among the metrics", f"keys {', '.join(told[-1])[:80] or 'none'}")
    run = read_rows(rows.finish(path="run", format="mapping", nonfinite="kept"), framework=framework, knobs=knobs)
    if knobs and not any(knob.origin == "given" for knob in run.knobs.values()):
        found = ", ".join(map(str, knobs))[:80]
        choices = [close for name in knobs for close in nearest(str(name), names.knobs())]
        raise BadRequest("settings by canonical name or in the framework's spelling", found, choices or names.knobs())
    return diagnose(replace(run, excerpt=run.short), limits=limits)


def _rows(history: History | None) -> Iterator[dict[str, Any]]:
    """The rows of a history in either form, oldest first."""
    if history is None:
        return
    if not isinstance(history, Iterable) or isinstance(history, (str, bytes)):
        raise BadRequest("a history of rows, or of key to list", repr(history)[:60])
    if isinstance(history, Mapping):
        scalars = [key for key, values in history.items() if not isinstance(values, Iterable)]
        if scalars:
            raise BadRequest("a list for every key of the history", f"{scalars[0]!r}: {history[scalars[0]]!r}"[:80])
        lists = {str(key): list(values) for key, values in history.items() if not isinstance(values, (str, bytes))}
        lengths = {key: len(values) for key, values in lists.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{key}: {n}" for key, n in lengths.items())
            raise BadRequest("lists of one length, None where a row lacks the key", shown[:200])
        history = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    for row in history:
        yield _plain(row, "every row of the history")


def _plain(row: object, what: str) -> dict[str, Any]:
    """A row without what is absent, every number of whatever type as a float."""
    if not isinstance(row, Mapping):
        raise BadRequest(
            f"a mapping of keys to numbers for {what}", repr(row)[:60], hint='a DataFrame: .to_dict("list")'
        )
    plain: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, SupportsFloat) and not isinstance(value, bool):
            try:
                plain[str(key)] = float(value)
            except (TypeError, ValueError, RuntimeError, OverflowError) as problem:
                raise BadRequest(f"one number for {key}", repr(value)[:60]) from problem
        elif value is not None:
            plain[str(key)] = value
    return plain


def _steps(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """The step of every row: as stated; where it is not, counted on from the row before, or back from the first that
    states one. Rows that state none are counted from 1."""
    steps = [next((float(row[key]) for key in STEP_KEYS if isinstance(row.get(key), float)), math.nan) for row in rows]
    stated = [k for k, step in enumerate(steps) if math.isfinite(step)]
    if not stated or steps[stated[0]] < stated[0]:
        return [float(k + 1) for k in range(len(rows))]
    gaps = sorted((steps[b] - steps[a]) / (b - a) for a, b in pairwise(stated) if steps[b] > steps[a])
    gap = gaps[len(gaps) // 2] if gaps else 1.0
    for k in range(stated[0] - 1, -1, -1):
        steps[k] = steps[k + 1] - min(gap, steps[stated[0]] / (stated[0] + 1))
    for k in range(stated[0] + 1, len(rows)):
        if not math.isfinite(steps[k]):
            steps[k] = steps[k - 1] + gap
    return steps
