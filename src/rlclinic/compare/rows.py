"""What a comparison is made of: frozen rows for settings, metrics and findings, and what is said of each further run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from rlclinic.model import Column, Diagnosis, Finding, Knob, Onset
from rlclinic.stats.paired import Apart, Where

By: TypeAlias = Literal["step", "token", "time"]
Word: TypeAlias = Literal["different", "within_seeds", "same", "open", "incomparable"]
Outcome: TypeAlias = Literal["same", "different", "one_sided", "other_meaning"]
Change: TypeAlias = Literal["gone", "new", "same", "worse", "better", "unseen"]

AXES: tuple[By, ...] = get_args(By)
IN_FORCE = ("optim.lr", "optim.lr_critic", "optim.wd", "kl.ref_coef", "entropy.coef", "entropy.threshold")
"""Settings that the log repeats row by row: they are compared as written, without any noise."""


@dataclass(frozen=True)
class SettingRow:
    """One canonical setting in every run, in the order of the runs; None where a run does not tell it."""

    name: str
    title: str
    knobs: tuple[Knob | None, ...]
    outcome: Outcome
    says: str = ""
    """What else must be known: that the frameworks count differently, or that a value is only a default."""


@dataclass(frozen=True, eq=False)
class MetricRow:
    """One metric of the reference and one further run."""

    name: str
    """The canonical metric; ``part.NAME`` is a reward part, ``held_out.KEY`` a held-out series."""
    columns: tuple[Column, Column]
    """Over the common axis, whose values stand in ``steps``."""
    word: Word
    says: str = ""
    apart: Apart | None = None
    q_value: float | None = None
    """``apart.p_value`` corrected for all metrics of the pair; None where nothing was tested."""
    onset: Onset | None = None
    """Where on the axis the two part; None where they do not or it cannot be told."""
    from_start: bool = False
    exact: bool = False
    """The log itself shows the difference (NaN in one of them, a schedule, two constants): no chance is involved."""
    shown: float | None = None
    """The difference that ``word`` speaks of: the late one, or the clearest where only that differs. None without one."""
    half: float | None = None
    """Half of the interval of ``shown``, by noise and what seeds may differ by, at the level of all metrics of the pair: it
    leaves out 0 exactly where the test says so. Of what is the same, by the noise of both runs alone. None where no test
    decides (a lead in pace, values without overlap)."""
    place: Where = ""
    """Where ``shown`` is; empty for the mean of the whole stretch."""


@dataclass(frozen=True, eq=False)
class Better:
    """Which of two runs is better."""

    run: Literal["first", "second", "neither", "unknown"]
    """``neither`` where the two are the same in ``row``."""
    row: MetricRow | None = None
    """The metric that decides, or that would have."""
    because: str = ""
    """Why it cannot be told; empty where it is."""
    looked: tuple[MetricRow, ...] = ()
    """The held-out score and the reward, as far as both runs have them."""


@dataclass(frozen=True)
class FindingRow:
    """One check in the reference (``before``) and one further run (``after``)."""

    check: str
    change: Change
    before: Finding | None
    after: Finding | None
    says: str = ""
    """Why a run could not be looked at; empty where both were."""


@dataclass(frozen=True, eq=False)
class Against:
    """One further run held against the reference."""

    name: str
    diagnosis: Diagnosis
    span: tuple[float, float] | None
    """The stretch of axis that both runs cover; None where there is none."""
    warnings: tuple[str, ...]
    metrics: tuple[MetricRow, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]
    """Metrics that only the reference has, and those that only this run has."""
    findings: tuple[FindingRow, ...]
    parted: MetricRow | None
    """The metric that has surely parted first, with its ``onset``."""
    identical: float | None = None
    """The last step up to which every logged number is the same in both (a shared seed or start)."""
    repeats: int = 0
    """Runs of one setting from which the spread between runs was taken; 0 where it is allowed for instead."""
    better: Better = Better("unknown")

    def of(self, *words: Word) -> tuple[MetricRow, ...]:
        """The metrics of which one of ``words`` is said."""
        return tuple(row for row in self.metrics if row.word in words)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Everything that is said about several runs; each further one is compared with the first."""

    names: tuple[str, ...]
    reference: Diagnosis
    by: By
    settings: tuple[SettingRow, ...]
    others: tuple[Against, ...]

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """Of every run, the reference first."""
        return (self.reference, *(one.diagnosis for one in self.others))
