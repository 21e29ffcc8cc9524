"""Answer a question about a series once, though several checks ask it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from rlclinic.stats.curve import unmasked

P = ParamSpec("P")
T = TypeVar("T")


def once(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep the last ``most`` answers of a pure function of series and numbers, found again by the content of both.

    The function sees its series as read-only float arrays; an array it answers with becomes read-only too.
    """

    def wrap(ask: Callable[P, T]) -> Callable[P, T]:
        @lru_cache(maxsize=most)
        def answer(series: tuple[Any, ...], how: tuple[tuple[str, Any], ...]) -> T:
            found = ask(*map(_thawed, series), **{name: _thawed(value) for name, value in how})
            if isinstance(found, np.ndarray):
                found.flags.writeable = False
            return found

        @wraps(ask)
        def asked(*series: P.args, **how: P.kwargs) -> T:
            named = tuple((name, _frozen(value)) for name, value in sorted(how.items()))
            return answer(tuple(map(_frozen, series)), named)

        return asked

    return wrap


def _frozen(value: Any) -> Any:
    if value is None or isinstance(value, (int, float, str)):
        return value
    return unmasked(value).tobytes()


def _thawed(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    return np.frombuffer(value) if value else np.empty(0)
