"""What is said of a run while it goes on: a finding was opened, got worse, or is closed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from rlclinic.checks import BY_NAME
from rlclinic.model import Diagnosis, Finding, Maturity, Onset, Severity
from rlclinic.report.blocks import KEY, TEXT, plain
from rlclinic.report.findings import changes, root_of

Kind: TypeAlias = Literal["opened", "worsened", "closed"]

SCHEMA = "rlclinic.event/1"
LINE = 600
"""Most characters of an event as one line (ours: four lines of a wide terminal)."""
_WORD = {"opened": "", "worsened": "worse: ", "closed": "closed: "}


@dataclass(frozen=True)
class Event:
    """One change of what is known of a run, told once. Its texts are clean and bounded, whatever the log held."""

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
    """The first change to make, in the framework's own spelling; empty where none is known. Of what follows from something
    else, the change that mends its root."""
    go_on: str = ""
    """From where to go on, in words, after that change; empty where nothing has to be undone."""
    run: str = ""
    root: str = ""
    """The check at the far end of ``because_of``; empty for a root. It may not have been told yet."""

    def __post_init__(self) -> None:
        for name, most in (
            ("check", KEY),
            ("run", KEY),
            ("title", TEXT),
            ("says", TEXT),
            ("change", TEXT),
            ("go_on", TEXT),
            ("root", KEY),
        ):
            object.__setattr__(self, name, plain(getattr(self, name), most))

    @property
    def status(self) -> Maturity:
        """``preview`` for a check that is not measured well enough yet to stop a run or to fail a job."""
        known = BY_NAME.get(self.check)
        return "stable" if known is None else known.status

    @property
    def counts(self) -> bool:
        """Whether it may stop a run: something new or worse, of a check that is no preview."""
        return self.kind != "closed" and self.status != "preview"

    def __str__(self) -> str:
        """The event as one line."""
        trial = ", preview" if self.status == "preview" else ""
        since = f", since about {_number(self.onset.step)}" if self.onset is not None and self.kind != "closed" else ""
        head = (
            f"{_WORD[self.kind]}{self.check} ({self.severity}{trial}) at step {_number(self.step)}{since}: {self.says}"
        )
        cause = f" Behind it: {self.root or ', '.join(self.because_of[:3])}." if self.because_of else ""
        change = f" Change: {self.change}." if self.change else ""
        back = f" {self.go_on[:1].upper()}{self.go_on[1:]}." if self.go_on else ""
        done = plain(f"{cause}{change}{back}", LINE // 2)  # a long sentence must not push out what is to be done
        return f"{plain(head, LINE - len(done) - 2).rstrip('.')}.{' ' * bool(done)}{done}"

    def as_json(self) -> dict[str, Any]:
        """The event as plain JSON: a number that JSON does not know becomes null."""
        onset = self.onset
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "run": self.run,
            "check": self.check,
            "status": self.status,
            "severity": self.severity.label,
            "step": _known(self.step),
            "title": self.title,
            "says": self.says,
            "onset": None
            if onset is None
            else {"step": _known(onset.step), "low": _known(onset.low), "high": _known(onset.high)},
            "because_of": list(self.because_of),
            "change": self.change,
            "go_on": self.go_on,
            "root": self.root,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Event:
        """The event that ``as_json`` made. Raises KeyError, TypeError, ValueError or AttributeError for anything else."""
        onset = told["onset"]
        if told["kind"] not in get_args(Kind):
            raise ValueError("no kind of event")
        return cls(
            kind=told["kind"],
            check=str(told["check"]),
            severity=Severity[str(told["severity"]).upper()],
            step=_finite(told["step"]),
            title=str(told["title"]),
            says=str(told["says"]),
            onset=None if onset is None else Onset(*(_finite(onset[name]) for name in ("step", "low", "high"))),
            because_of=tuple(map(str, told["because_of"])),
            change=str(told["change"]),
            go_on=str(told["go_on"]),
            run=str(told["run"]),
            root=str(told.get("root", "")),
        )


def of_finding(kind: Kind, finding: Finding, diagnosis: Diagnosis, step: float) -> Event:
    """The event that ``finding`` makes of kind ``kind`` at ``step``."""
    assert finding.severity is not None
    root = root_of(finding, diagnosis)
    mended = finding if root is None else root
    first = next(iter(changes(mended)), None)
    writes = "" if first is None else " ".join(one.writes for one in first.changes if one.writes) or first.says
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
        go_on="" if mended.rollback is None else mended.rollback.says,
        run=diagnosis.run.name,
        root="" if root is None else root.check,
    )


def lines(events: Sequence[Event]) -> list[str]:
    """The events of one look for a console: each root with its change, what follows from them in one line. What is told
    before its root says itself what is behind it and what mends that."""
    loud = {event.check for event in events if event.kind != "closed"}
    rest = [event for event in events if event.check in loud and loud & {event.root, *event.because_of}]
    said = [str(event) for event in events if event not in rest]
    if rest:
        causes = dict.fromkeys(cause for event in rest for cause in ({event.root} & loud or event.because_of))
        roots = [cause for cause in causes if cause not in {event.check for event in rest}] or list(causes)
        named = ", ".join(f"{event.check} ({event.severity})" for event in rest)
        said.append(f"with it {named}: follows from {', '.join(roots[:3])}")
    return said


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _finite(told: Any) -> float:
    """A number as JSON has it: what it does not know is null there."""
    return math.nan if told is None else float(told)


def _number(step: float) -> str:
    return f"{step:.0f}" if float(step).is_integer() else f"{step:g}"
