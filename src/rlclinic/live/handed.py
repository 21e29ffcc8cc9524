"""What a training loop hands over, made plain: numbers out of tensors, keys out of nested tables, and nothing that bites."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from rlclinic.readers.rows import DEPTH, KEY_COUNT
from rlclinic.readers.tokens import KEY_LENGTH

Plain: TypeAlias = dict[str, float | int | bool | str | None]

EASY = frozenset({float, int, bool, np.float64, np.float32, np.float16, np.int64, np.int32})
"""Types that become a number without a word; of others some warn on the console when they do (tensors with a gradient)."""
WORD = 200
"""Most characters of a text that are kept (ours: a number has at most some thirty, and other texts are not read)."""
FARTHEST = 2.0**53
"""Greatest step: beyond it two steps in a row are the same number."""
_NESTED = 20_000
"""Most values, and most characters of a text, of a configuration that are taken over (ours: the longest has about 2,000)."""


def plain_row(metrics: Mapping[Any, Any], without: Iterable[str] = ()) -> Plain:
    """The values of one row by flat key, nested tables with ``/`` between; what holds no single number is left out.

    A tensor or an array of one element is a number, a longer one is nothing: whether to sum or to average it is not ours to
    guess. At most ``KEY_COUNT`` values are looked at. Raises whatever ``metrics`` itself raises when it is gone through.
    """
    into: Plain = {}
    _flatten(metrics, "", into, 0, [KEY_COUNT], frozenset(without))
    return into


def _flatten(
    table: Mapping[Any, Any], prefix: str, into: Plain, depth: int, left: list[int], out: frozenset[str]
) -> None:
    for name, value in islice(table.items(), max(left[0], 0)):
        left[0] -= 1
        if left[0] < 0:
            return
        key = _key(name)
        if key is None or key in out or len(key := prefix + key) > KEY_LENGTH:
            continue
        kind = type(value)
        if kind is float or kind is bool or value is None or (kind is int and abs(value) <= FARTHEST):
            into[key] = value
        elif isinstance(value, str):
            into[key] = str.__str__(value)[:WORD]
        elif isinstance(value, Mapping):
            try:
                if depth < DEPTH and "_type" not in value:
                    _flatten(value, f"{key}/", into, depth + 1, left, frozenset())
            except Exception:  # the other values of the row are as good as before
                continue
        elif (number := plain_number(value)) is not None:
            into[key] = number


def _key(name: object) -> str | None:
    """A key as JSON would write it; None for one that JSON does not know."""
    if isinstance(name, str):
        return str.__str__(name)
    if name is None or type(name) is bool:
        return "null" if name is None else "true" if name else "false"
    return str(name) if type(name) in (int, float) else None


def plain_number(value: object) -> float | None:
    """The one number that ``value`` is, whatever its type; None where it is none, several, or does not tell."""
    if type(value) is float:
        return value
    found: object = value
    try:
        if isinstance(value, (str, bytes, bytearray, complex)):
            return None
        if isinstance(value, np.ma.MaskedArray) and np.all(value.mask):  # missing, not NaN
            return None
        detach = getattr(value, "detach", None)
        value = detach() if callable(detach) else value
        item = getattr(value, "item", None)
        found = item() if callable(item) else value
        if isinstance(found, (str, bytes, bytearray, complex, Mapping)):
            return None
        return float(found)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf if found > 0 else -math.inf  # type: ignore[operator]
    except Exception:
        return None


def plain_step(step: object) -> float | None:
    """A step as a number; None for anything that cannot be one, which then counts as not stated."""
    if type(step) is int:
        return float(step) if -FARTHEST <= step <= FARTHEST else None
    if isinstance(step, str):
        try:
            step = float(step[:WORD])
        except ValueError:
            return None
    found = plain_number(step)
    return found if found is not None and abs(found) <= FARTHEST else None


def plain_settings(settings: object) -> dict[str, Any]:
    """A configuration as tables, lists, numbers and texts, at most ``_NESTED`` values of it; what is none of these is left
    out. Never raises: of a table that cannot be read on, what was read is kept."""
    found = _setting(settings, 0, [_NESTED])
    return found if isinstance(found, dict) else {}


def _setting(value: object, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if value is None or type(value) in (bool, int, float):
        return value
    try:
        if isinstance(value, str):
            return str.__str__(value)[:_NESTED]
        if depth >= DEPTH or left[0] <= 0:
            return None
        if isinstance(value, Mapping):
            return _table(value, depth, left)
        if isinstance(value, (list, tuple)):
            return [_setting(one, depth + 1, left) for one in value[: max(left[0], 0)]]
        stated = getattr(value, "value", None)  # an enumeration
        return stated if type(stated) in (bool, int, float, str) else plain_number(value)
    except Exception:
        return None


def _table(value: Mapping[Any, Any], depth: int, left: list[int]) -> dict[str, Any]:
    into: dict[str, Any] = {}
    try:
        for name, inner in value.items():
            if left[0] <= 0:
                break
            key = _key(name)
            if key is not None:
                into[key] = _setting(inner, depth + 1, left)
    except Exception:
        return into
    return into
