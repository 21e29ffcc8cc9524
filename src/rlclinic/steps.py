"""The steps of several series as one axis: those that any of them has, and those that two of them share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def united(axes: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Every step of one of these increasing arrays, increasing; columns that share one array are looked at once."""
    each = list({id(axis): axis for axis in axes}.values())
    if len(each) == 1 and bool((np.diff(each[0]) > 0).all()):
        return each[0]
    return np.unique(np.concatenate(each)) if each else np.empty(0)


def common(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any, Any]:
    """(steps of both increasing arrays, what picks them out of ``a``, what picks them out of ``b``)."""
    if a is b:
        return a, slice(None), slice(None)
    return np.intersect1d(a, b, assume_unique=True, return_indices=True)
