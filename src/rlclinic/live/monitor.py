"""A diagnosis inside the training loop: rows in, changes out; it never raises into the training and never waits."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlclinic.diagnose import diagnose
from rlclinic.live.course import FIRST, Course, gap
from rlclinic.live.events import Event
from rlclinic.live.growing import Growing
from rlclinic.model import Diagnosis, Severity

SWITCH = "RLCLINIC"
"""The environment variable that turns every monitor off with ``0``."""
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SHARE = 0.02
"""Most of the time between looks that a look may cost (ours)."""


class Monitor:
    """Watches one run from inside the training loop.

    ``framework`` is a name or ``name@version``; ``knobs`` are settings, ``config`` a whole configuration;
    ``planned_steps`` is the length of the run where it is known. ``stop_at`` and ``save_at`` are severities (``"warning"``,
    ``"critical"``) from which ``should_stop`` and ``should_save`` become true; off by default. ``tell`` is called with the
    events of a look, in the thread of the training. Only the process of rank 0 does anything.
    """

    def __init__(
        self,
        *,
        framework: str | None = None,
        knobs: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        planned_steps: int | None = None,
        name: str = "run",
        limits: Mapping[str, Mapping[str, Any]] | None = None,
        stop_at: str | None = None,
        save_at: str | None = None,
        tell: Callable[[Sequence[Event]], None] | None = None,
        rank: int | None = None,
        share: float | None = SHARE,
    ) -> None:
        self.enabled = os.environ.get(SWITCH, "") != "0" and (_rank() if rank is None else rank) == 0
        self.should_stop = self.should_save = False
        self.diagnosis: Diagnosis | None = None
        self._growing = Growing(framework=framework, knobs=knobs, config=config, planned_steps=planned_steps, name=name)
        self._limits, self._share, self._tell = limits, share, tell
        self._levels = {"stop": _level(stop_at), "save": _level(save_at)}
        self._course = Course()
        self._next, self._not_before = FIRST, 0.0

    def log(self, metrics: Mapping[str, Any], step: float | None = None) -> list[Event]:
        """Take one row of metrics, under the trainer's own keys or canonical names; what changed, mostly nothing."""
        if not self.enabled:
            return []
        try:
            self._growing.add(metrics, step)
            if self._growing.rows < self._next or time.monotonic() < self._not_before:
                return []
            return self._look()
        except Exception as broken:
            self._give_up(broken)
            return []

    def finish(self) -> list[Event]:
        """The last look, after which nothing waits: what is open then is what a diagnosis of the whole log says."""
        if not self.enabled:
            return []
        try:
            return self._look(final=True)
        except Exception as broken:
            self._give_up(broken)
            return []

    @property
    def open(self) -> dict[str, Severity]:
        """The findings that were told and not closed, with the severity that was told."""
        return self._course.open

    def _look(self, final: bool = False) -> list[Event]:
        began = time.monotonic()
        self.diagnosis = diagnose(self._growing.run(), limits=self._limits)
        events = self._course.take(self.diagnosis, final=final)
        self._next = self._growing.rows + gap(self._growing.rows, self._course.waiting)
        now = time.monotonic()
        self._not_before = 0.0 if self._share is None else now + (now - began) * (1.0 / self._share - 1.0)
        worst = max((event.severity for event in events if event.kind != "closed"), default=0)
        self.should_stop |= 0 < self._levels["stop"] <= worst
        self.should_save |= 0 < self._levels["save"] <= worst
        if events and self._tell is not None:
            self._tell(events)
        return events

    def _give_up(self, broken: Exception) -> None:
        self.enabled = False
        print(
            f"rlclinic: monitoring stopped, training goes on: {type(broken).__name__}: {broken}"[:300], file=sys.stderr
        )


def _rank() -> int:
    for name in _RANKS:
        told = os.environ.get(name, "")
        if told.isdigit():
            return int(told)
    return 0


def _level(name: str | None) -> int:
    return 0 if name is None else int(Severity[name.upper()])
