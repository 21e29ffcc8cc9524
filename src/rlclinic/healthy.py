"""What a run's diagnosis says of the baseline that it was judged by: limits moved, findings softened, bands; plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Band:
    """Where healthy runs stayed: ``low`` and ``high`` (k,) at ``steps`` (k,), increasing; ``says`` is whose band it is."""

    steps: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    says: str = ""


@dataclass(frozen=True)
class MovedLimit:
    """One number that decides otherwise than built in. ``grade`` is the severity that begins there, empty for a limit of a
    single value; ``because`` says what the healthy runs did."""

    check: str
    limit: str
    grade: str
    before: float
    after: float
    because: str


@dataclass(frozen=True)
class Softened:
    """A finding that the built-in limits would have made, or made graver; ``after`` is empty where it is gone."""

    check: str
    before: str
    after: str
    says: str


@dataclass(frozen=True, eq=False)
class Baseline:
    """What the user's healthy runs meant for one diagnosis.

    ``unlike`` says why none of its limits was used, ``left`` why single ones were not (check.limit, reason); ``bands`` are
    by metric at steps of this run, ``outside`` says where its vitals lie beyond them, ``remarks`` what else differs.
    """

    runs: tuple[str, ...]
    unlike: tuple[str, ...] = ()
    moved: tuple[MovedLimit, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    softened: tuple[Softened, ...] = ()
    before: str = ""
    """Severity of the verdict by the limits without the baseline, where they give another."""
    bands: Mapping[str, Band] = field(default_factory=dict)
    outside: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def of(self, check: str) -> tuple[MovedLimit, ...]:
        """The moved limits by which ``check`` judged."""
        return tuple(one for one in self.moved if one.check == check)
