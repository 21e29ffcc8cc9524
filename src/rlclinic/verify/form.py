"""What a verification says: frozen data, with no judgement of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rlclinic.model import Column, Diagnosis, Finding, Prescription, Scalar
from rlclinic.stats.recovery import Rates, Way

Word: TypeAlias = Literal["cured", "improving", "no_effect", "worse", "overshot", "undecided"]
Taken: TypeAlias = Literal["taken", "partly", "not_taken", "unknown", "no_setting"]
Relation: TypeAlias = Literal["fresh", "resumed", "continued"]
Role: TypeAlias = Literal["root", "consequence"]
Seen: TypeAlias = Literal["fires", "silent", "unseen"]
Answer: TypeAlias = Literal["yes", "no", "open"]

WORDS: Mapping[Word, str] = {
    "cured": "cured",
    "improving": "improving",
    "no_effect": "no effect",
    "worse": "worse",
    "overshot": "overshot",
    "undecided": "cannot decide yet",
}
"""How a verdict is written for people."""


@dataclass(frozen=True)
class Turned:
    """One setting that a remedy changes: as it was, as it should be, as it is; None where that is not known."""

    knob: str
    key: str
    before: Scalar
    wanted: Scalar
    after: Scalar
    taken: Taken


@dataclass(frozen=True)
class Trial:
    """One remedy of a finding and whether it was carried out."""

    remedy: Prescription
    taken: Taken
    settings: tuple[Turned, ...] = ()
    says: str = ""
    """What would tell, where it is unknown."""


@dataclass(frozen=True)
class Movement:
    """One expectation of a remedy: whether the metric moved as its words say."""

    metric: str
    words: str
    move: str | Mapping[str, float]
    answer: Answer
    says: str


@dataclass(frozen=True, eq=False)
class Cure:
    """What became of one finding of the run before."""

    finding: Finding
    role: Role
    verdict: Word
    says: str
    """The numbers that decide, in one sentence."""
    possible: tuple[Word, ...]
    """Verdicts that the data still allow; the verdict alone where it is decided."""
    trials: tuple[Trial, ...] = ()
    moves: tuple[Movement, ...] = ()
    check: Seen = "unseen"
    """Whether the check that made the finding still fires on the rows after the change."""
    check_says: str = ""
    metric: str = ""
    """The metric that decides; empty where only the check does."""
    way: Way | None = None
    rates: Rates | None = None
    more: int | None = None
    """How many more logged rows would decide, at the present noise; None where that is not known or none would."""
    absent: bool = False
    """What is ``cured`` has not been mended as far as the log can tell: it did not occur in the run after."""
    lines: tuple[Column, Column] | None = None
    """The deciding metric before and after, over the axis that ``since`` names."""
    since: float | None = None
    """The step of both runs from which the rows after the change are compared."""


@dataclass(frozen=True)
class Changed:
    """A setting that differs between the two runs and that no remedy asked for."""

    knob: str
    key: str
    before: Scalar
    after: Scalar


@dataclass(frozen=True, eq=False)
class Verification:
    """Whether the cure worked: a verdict for each finding of the run before, and what is new in the run after."""

    before: Diagnosis
    after: Diagnosis
    relation: Relation
    start: float | None
    """The step of the run before from which the run after goes on; None where it started anew."""
    rows: int
    """Rows of the run after that are its own."""
    verdict: Word | Literal["nothing"]
    says: str
    cures: tuple[Cure, ...] = ()
    confounders: tuple[Changed, ...] = ()
    new: tuple[Finding, ...] = ()
    """Findings at warning or above that the run before did not have."""
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        told = ", ".join(f"{cure.finding.check}: {cure.verdict}" for cure in self.cures)
        return f"Verification({self.verdict}: {told or 'nothing to verify'})"
