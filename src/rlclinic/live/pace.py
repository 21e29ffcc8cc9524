"""How fast rows come in, as observed: speed, time still needed, and when silence is longer than it should be."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

KEPT = 32
"""Observations kept (ours)."""
USUAL = 10.0
"""Times the usual distance of two rows after which a log is called silent (ours)."""
PAUSE = 3.0
"""Times the longest pause seen so far after which a log is called silent (ours: evaluations and buffered output pause
often)."""
LEAST = 300.0
"""Seconds below which silence is never told (ours: a checkpoint of a large model takes minutes)."""
UNKNOWN = 3600.0
"""Seconds of silence that are told where no pace is known (ours)."""


@dataclass
class Pace:
    """Observations as (second of the epoch, rows, last step), oldest first."""

    observed: list[tuple[float, int, float]] = field(default_factory=list)
    longest: float = 0.0
    """Longest pause between two observations with new rows, in seconds."""

    def seen(self, written: float, rows: int, step: float, now: float) -> bool:
        """Take a look at the log, which was last ``written`` then; True when it holds rows that the look before did not."""
        before = self.observed[-1] if self.observed else None
        if before is not None and (rows, step) == before[1:]:
            return False
        at = min(written, now)
        if before is not None:
            at = now if at < before[0] else at  # clocks of file servers, and times that a copy keeps
            self.longest = max(self.longest, at - before[0])
        self.observed = [*self.observed, (at, rows, step)][-KEPT:]
        return True

    @property
    def last(self) -> float | None:
        """When the newest row was written; None before the first look."""
        return self.observed[-1][0] if self.observed else None

    def interval(self) -> float | None:
        """Usual seconds between two rows; None before three observations."""
        pairs = list(zip(self.observed, self.observed[1:], strict=False))
        each = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairs if b[1] > a[1]]
        return statistics.median(each) if len(each) >= 2 else None

    def speed(self) -> float | None:
        """Trainer steps per minute over the observations kept; None where they do not go forward."""
        forward = self.observed
        for k in range(len(forward) - 1, 0, -1):
            if forward[k][2] < forward[k - 1][2]:  # training went back and on from there
                forward = forward[k:]
                break
        if len(forward) < 2 or forward[-1][0] - forward[0][0] < 1.0 or forward[-1][2] <= forward[0][2]:
            return None
        return 60.0 * (forward[-1][2] - forward[0][2]) / (forward[-1][0] - forward[0][0])

    def remaining(self, planned: float | None) -> float | None:
        """Seconds to the step ``planned`` at this speed; None where either is unknown."""
        speed = self.speed()
        if speed is None or planned is None or not self.observed:
            return None
        return max(0.0, planned - self.observed[-1][2]) * 60.0 / speed

    def patience(self) -> float:
        """Seconds of silence after which something is probably wrong."""
        usual = self.interval()
        return UNKNOWN if usual is None else max(LEAST, USUAL * usual, PAUSE * self.longest)

    def as_json(self) -> dict[str, Any]:
        """The pace as plain JSON."""
        return {"observed": [list(one) for one in self.observed], "longest": self.longest}

    @classmethod
    def from_json(cls, told: Any) -> Pace:
        """Raises ValueError, TypeError or KeyError for anything else than ``as_json`` gives."""
        rows: Sequence[Any] = told["observed"]
        return cls([(float(at), int(n), float(step)) for at, n, step in rows][-KEPT:], float(told["longest"]))
