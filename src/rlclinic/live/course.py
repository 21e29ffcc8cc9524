"""What has been said of a run so far, so that each change is said once and chance is not taken for a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rlclinic.live.events import Event, of_finding
from rlclinic.model import Diagnosis, Finding, Severity

LOOKS = 3
"""Looks in a row at which a finding must be there before it is told, and absent before it is closed."""
FIRST = 10
"""Rows before the first look."""


@dataclass
class Standing:
    """How one finding stands between looks."""

    check: str
    first: float
    """Step of the look that saw it first, of the present spell."""
    seen: int = 0
    missed: int = 0
    told: int = 0
    """Severity that was told; 0 while it waits."""
    worse: int = 0
    """Looks in a row that saw it graver than told."""
    title: str = ""


class Course:
    """Takes one diagnosis after the other of the same run and says what changed.

    A finding waits until it was there at several looks in a row, and is closed after it was absent at as many. Findings
    that only inform are not told. At the last look nothing waits: what stands then is what the diagnosis says.
    """

    def __init__(self) -> None:
        self._standing: dict[str, Standing] = {}
        self._last = 0.0

    @property
    def open(self) -> dict[str, Severity]:
        """The findings that were told and not closed, with the severity that was told."""
        return {name: Severity(one.told) for name, one in self._standing.items() if one.told}

    @property
    def waiting(self) -> bool:
        """Whether a finding is seen and not told yet, so that the next look should come soon."""
        return any(not one.told for one in self._standing.values())

    def take(self, diagnosis: Diagnosis, *, final: bool = False) -> list[Event]:
        """What changed since the look before, roots before what follows from them."""
        steps = diagnosis.run.steps
        step = float(steps[-1]) if len(steps) else 0.0
        loud = {f.check: f for f in diagnosis.findings if (f.severity or 0) >= Severity.WARNING}
        events = [event for f in loud.values() if (event := self._seen(f, diagnosis, step, final)) is not None]
        for name in [name for name in self._standing if name not in loud]:
            event = self._missed(self._standing[name], diagnosis, step, final)
            events += [] if event is None else [event]
        self._last = step
        return events

    def _seen(self, finding: Finding, diagnosis: Diagnosis, step: float, final: bool) -> Event | None:
        assert finding.severity is not None
        one = self._standing.setdefault(finding.check, Standing(finding.check, step))
        one.seen, one.missed, one.title = one.seen + 1, 0, finding.title
        if not one.told:
            if not (final or one.seen >= LOOKS):
                return None
            one.told = int(finding.severity)
            return of_finding("opened", finding, diagnosis, step)
        one.worse = one.worse + 1 if finding.severity > one.told else 0
        if finding.severity > one.told and (final or one.worse >= LOOKS):
            one.told, one.worse = int(finding.severity), 0
            return of_finding("worsened", finding, diagnosis, step)
        if final:
            one.told = int(finding.severity)
        return None

    def _missed(self, one: Standing, diagnosis: Diagnosis, step: float, final: bool) -> Event | None:
        one.missed, one.seen, one.worse = one.missed + 1, 0, 0
        if not one.told:
            del self._standing[one.check]
            return None
        if not (final or one.missed >= LOOKS):
            return None
        del self._standing[one.check]
        says = f"no longer seen at {one.missed} looks" if one.missed > 1 else "no longer seen"
        return Event("closed", one.check, Severity(one.told), step, one.title, says, run=diagnosis.run.name)

    def state(self) -> dict[str, Any]:
        """All that the future depends on, as plain JSON."""
        return {"form": 1, "last": self._last, "standing": [asdict(one) for one in self._standing.values()]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Course:
        """The course whose ``state`` this is. Raises ValueError for anything else."""
        course = cls()
        try:
            if state["form"] != 1:
                raise ValueError("another version")
            course._last = float(state["last"])
            for row in state["standing"]:
                one = replace(Standing("", 0.0), **row)
                course._standing[str(one.check)] = one
        except (KeyError, TypeError, AttributeError) as broken:
            raise ValueError(f"no state of a course: {type(broken).__name__}: {broken}") from broken
        return course


def gap(rows: int, waiting: bool) -> int:
    """Rows until the next look: a twentieth of those so far, and sooner while a finding waits.

    Looks that lie ever further apart are as good as independent ones, and their number grows with the logarithm of the
    run's length.
    """
    return max(3, rows // 50) if waiting else max(5, rows // 20)
