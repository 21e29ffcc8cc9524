"""What is said of a run while it goes on: a finding was opened, got worse, or is closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rlclinic.model import Diagnosis, Finding, Onset, Severity

Kind: TypeAlias = Literal["opened", "worsened", "closed"]

SCHEMA = "rlclinic.event/1"


@dataclass(frozen=True)
class Event:
    """One change of what is known of a run, told once."""

    kind: Kind
    check: str
    severity: Severity
    """That of the finding now; of a closed one, the last that was told."""
    step: float
    """Last step that had been logged when it was said."""
    title: str
    says: str
    """The finding in the words of its check; of a closed one, why it is closed."""
    onset: Onset | None = None
    because_of: tuple[str, ...] = ()
    """Checks that stand behind it in the same diagnosis; empty for a root."""
    change: str = ""
    """The first change to make, in the framework's own spelling; empty where none is known."""
    go_on: str = ""
    """From where to go on, in words; empty where nothing has to be undone."""
    run: str = ""

    def as_json(self) -> dict[str, Any]:
        """The event as plain JSON."""
        onset = (
            None if self.onset is None else {"step": self.onset.step, "low": self.onset.low, "high": self.onset.high}
        )
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "run": self.run,
            "check": self.check,
            "severity": self.severity.label,
            "step": self.step,
            "title": self.title,
            "says": self.says,
            "onset": onset,
            "because_of": list(self.because_of),
            "change": self.change,
            "go_on": self.go_on,
        }


def of_finding(kind: Kind, finding: Finding, diagnosis: Diagnosis, step: float) -> Event:
    """The event that ``finding`` makes of kind ``kind`` at ``step``."""
    assert finding.severity is not None
    first = next((p for p in finding.prescriptions if p.applies), None)
    writes = "" if first is None else " ".join(change.writes for change in first.changes) or first.says
    return Event(
        kind=kind,
        check=finding.check,
        severity=finding.severity,
        step=step,
        title=finding.title,
        says=finding.says,
        onset=finding.onset,
        because_of=finding.because_of,
        change=writes,
        go_on="" if finding.rollback is None else finding.rollback.says,
        run=diagnosis.run.name,
    )
