"""What a run is and what can be said about it: frozen data shared by every layer, with look-ups and no judgement."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlclinic.healthy import Baseline
from rlclinic.history import Past
from rlclinic.rollouts import Regraded, Rollouts
from rlclinic.steps import common, united

Floats: TypeAlias = NDArray[np.float64]
Scalar: TypeAlias = float | int | str | bool | None
Status: TypeAlias = Literal["measured", "structural_zero", "filtered"]
Tier: TypeAlias = Literal["certain", "likely", "hint"]
Strength: TypeAlias = Literal["strong", "moderate", "weak"]
Maturity: TypeAlias = Literal["preview", "stable", "deprecated"]
OutcomeName: TypeAlias = Literal["examined", "unexamined", "not_applicable", "failed"]

ROLLOUTS = "rollouts"
"""What can only be seen in saved answers; stands among canonical metrics in what a check needs and misses."""
SAVED = "saved answers"
"""The key of a column that was worked out from saved answers and is in no log."""


class Severity(enum.IntEnum):
    """How much a finding matters; ordered, so severities compare with ``<``."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def label(self) -> str:
        """The lower-case word used in JSON and on the command line."""
        return self.name.lower()

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True, eq=False)
class Column:
    """One metric over time, at the steps at which it was logged and nowhere else.

    ``steps`` (n,) strictly increasing trainer steps; ``values`` (n,) in the unit of the canonical metric. A NaN or an
    infinity among the values was written by the trainer; a missing value is an absent step, never a NaN.
    """

    metric: str
    key: str
    steps: Floats
    values: Floats
    status: Status = "measured"
    because: str = ""
    """Why ``status`` is not plain ``measured``: what makes the value structurally zero, or what filter biases it."""
    resolution: float = 0.0
    """Smallest printed increment (0.001 for text with three decimals): a 0 means |x| < resolution/2. 0: full precision."""
    estimator: str = ""
    """How the quantity was estimated where that changes its meaning (k1, k3, per sequence, sequence-level)."""
    note: str = ""
    """The trap of this key in this framework, in one sentence; shown beside findings that use it."""

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def finite(self) -> Column:
        """The same column without NaN and infinities."""
        keep = np.isfinite(self.values)
        return self if bool(keep.all()) else replace(self, steps=self.steps[keep], values=self.values[keep])

    @cached_property
    def nonfinite(self) -> int:
        """How many logged values are NaN or infinite."""
        return int(len(self.values) - np.isfinite(self.values).sum())

    @cached_property
    def zero(self) -> NDArray[np.bool_]:
        """(n,) True where the value is exactly zero as logged (not merely rounded to zero when full precision is known)."""
        return np.asarray(self.values == 0.0)

    @property
    def rounded_zero(self) -> bool:
        """True when a logged 0 may be a small number that was printed with too few decimals (six and more are enough)."""
        return self.resolution > 1e-6

    def upto(self, step: float) -> Column:
        """The column as it was at ``step``."""
        keep = self.steps <= step
        return replace(self, steps=self.steps[keep], values=self.values[keep])

    def since(self, step: float) -> Column:
        """The column from ``step`` on."""
        keep = self.steps >= step
        return replace(self, steps=self.steps[keep], values=self.values[keep])


@dataclass(frozen=True, eq=False)
class Component:
    """One reward part: its mean over the batch and, where logged, its spread over the batch (never within groups)."""

    name: str
    mean: Column
    std: Column | None = None
    weight: float | None = None


@dataclass(frozen=True)
class Knob:
    """One setting of the run in canonical form, with the framework's own key and where the value comes from."""

    name: str
    value: Scalar
    key: str
    origin: Literal["config", "log", "given", "default"]


@dataclass(frozen=True)
class Framework:
    """Which trainer wrote the log. ``version`` is the exact one when known; ``at_least``/``below`` bound it otherwise."""

    name: str
    title: str
    version: str | None = None
    at_least: str | None = None
    below: str | None = None
    how: Literal["keys", "config", "log", "given"] = "keys"
    why: str = ""
    own: object = field(default=None, repr=False, compare=False)
    """The user's own table of names (a ``names.Table``) where one was given; it stands before that of ``name``."""


@dataclass(frozen=True)
class Source:
    """One file, address or standard input that belongs to the run."""

    path: str
    format: str
    rows: int
    nonfinite: str = "unknown"
    """What its writer does with NaN and infinities: kept, null, dropped, filtered (out of the loss) or unknown."""
    role: str = "metrics"
    """What it was taken for: metrics, configuration, evaluation or rollouts."""


@dataclass(frozen=True)
class Unrecognised:
    """A log key that no table knows, with the nearest known keys."""

    key: str
    nearest: tuple[str, ...] = ()
    points: int = 0


@dataclass(frozen=True)
class Undecided:
    """A log key whose meaning hangs on something unknown, mostly the version; ``decided_by`` would settle it."""

    key: str
    meanings: tuple[str, ...]
    decided_by: str


@dataclass(frozen=True)
class Warn:
    """Something about the log that the reader must know before trusting it."""

    code: str
    says: str


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of the policy: after which step, and its folder; ``path`` is empty when only the step is given."""

    step: float
    path: str = ""


@dataclass(frozen=True)
class RewardRange:
    """The attainable reward of one answer, from ``low`` to ``high``, and how that is known."""

    low: float
    high: float
    how: str

    def share(self, reward: float) -> float:
        """Where a mean reward lies between the lowest (0) and the highest (1) attainable value."""
        return (reward - self.low) / (self.high - self.low)


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """One training run: columns by canonical metric, reward parts, evaluations, knobs, and where all that came from."""

    name: str = "run"
    framework: Framework | None = None
    algorithm: str | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)
    components: Mapping[str, Component] = field(default_factory=dict)
    evaluations: Mapping[str, Column] = field(default_factory=dict)
    """Every held-out series by its log key; the one chosen as *the* score is also ``columns["eval.score"]``."""
    eval_rule: str = ""
    """Which held-out series was chosen and by which rule; empty without any."""
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    unrecognised: tuple[Unrecognised, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    warnings: tuple[Warn, ...] = ()
    seams: Mapping[float, str] = field(default_factory=dict)
    """Steps at which the log shows a restart, a resume or a change of configuration, with what was seen there."""
    began: float | None = None
    """Step at which the last attempt began, when the log holds several that each started from scratch."""
    reward_range: RewardRange | None = None
    """What one answer can earn at least and at most, where the log or configuration shows it; see ``vitals``."""
    planned_steps: int | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    """Saved states by rising step, found on disk beside the log or given; empty means that none was looked at or found."""
    distrusted: Mapping[str, str] = field(default_factory=dict)
    """Log keys whose values are impossible, with what is impossible about them; no check reads them. See ``vitals``."""
    excerpt: bool = False
    """True when the source is a pasted or cut piece of a log: an absent metric then proves nothing."""
    kind: Literal["rl", "supervised", "crash"] = "rl"
    """``supervised``: a fine-tuning log without rewards; ``crash``: the text holds an error and no training step."""
    ending: str = ""
    """The error that ended the run, in the log's own (bounded) words; empty when the log shows none."""
    rollouts: tuple[Rollouts, ...] = ()
    """Saved answers, those with most rows first; several where they were saved in several forms."""
    regraded: Regraded | None = None
    """What a second verifier says of a sample of them, where the user gave one."""
    history: tuple[Past, ...] = ()
    """What earlier looks at it (or at the run before it) found and what came of them, oldest first."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Model, hardware and similar plain facts for the head line, only where the log or configuration states them."""

    def __getitem__(self, metric: str) -> Column:
        return self.columns[metric]

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {len(self.steps)} steps, {len(self.columns)} metrics)"

    def __contains__(self, metric: object) -> bool:
        return metric in self.columns

    def get(self, metric: str) -> Column | None:
        """The column of a canonical metric, or None when the log lacks it."""
        return self.columns.get(metric)

    @property
    def nonfinite(self) -> str:
        """What the writers of the metrics do with NaN and infinities (see ``Source``); "unknown" where they differ."""
        ways = {source.nonfinite for source in self.sources if source.role == "metrics"}
        return ways.pop() if len(ways) == 1 else "unknown"

    def knob(self, name: str) -> Scalar:
        """The value of a canonical setting, or None when unknown."""
        found = self.knobs.get(name)
        return None if found is None else found.value

    def number(self, name: str) -> float | None:
        """The value of a numeric setting as a float; None when unknown or not a number."""
        value = self.knob(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def partial(self) -> bool:
        """True when the source shows only some metrics (a paste, a text that prints a subset, or saved answers without a
        log): absence proves nothing."""
        return self.excerpt or not self.logged or any(warn.code == "printed_subset" for warn in self.warnings)

    @property
    def logged(self) -> bool:
        """False when there are saved answers and no log beside them."""
        return not self.rollouts or any(source.role == "metrics" for source in self.sources)

    @property
    def thinned(self) -> str:
        """What a source says that shows only some points of its curves, or means of several; empty when none does."""
        return next((warn.says for warn in self.warnings if warn.code == "downsampled"), "")

    def paired(self, first: str, second: str) -> tuple[Floats, Floats, Floats]:
        """(steps, first, second) at the steps where both metrics are logged and finite; empty arrays when there are none."""
        if first not in self.columns or second not in self.columns:
            return np.empty(0), np.empty(0), np.empty(0)
        a, b = self.columns[first].finite, self.columns[second].finite
        steps, i, j = common(a.steps, b.steps)
        return steps, a.values[i], b.values[j]

    @cached_property
    def steps(self) -> Floats:
        """Every step at which a training metric was logged, increasing; without a log, at which answers were saved."""
        columns = [c for name, c in self.columns.items() if not name.startswith("eval.")]
        columns += [c.mean for c in self.components.values()]
        return united([c.steps for c in columns if SAVED not in c.key] or [c.steps for c in columns])

    @property
    def short(self) -> bool:
        """True for a paste or a log of at most ``SHORT`` rows: only states can be judged, no trends."""
        return len(self.steps) <= SHORT

    @property
    def counted(self) -> bool:
        """True when the log states no step, so that its rows are counted: the first row need not be the first step."""
        return any(warning.code == "row_order" and "states no step" in warning.says for warning in self.warnings)

    def told(self, *, gpus: float | None = None, checkpoints: Iterable[float] = ()) -> Run:
        """The run with what only its owner knows: the GPUs of the whole job, and steps at which the policy was saved."""
        knobs = dict(self.knobs)
        if gpus is not None:
            knobs.pop("nodes", None)
            knobs["gpus"] = Knob("gpus", gpus, "--gpus", "given")
        known = {saved.step: saved for saved in (*map(Checkpoint, checkpoints), *self.checkpoints)}
        return replace(self, knobs=knobs, checkpoints=tuple(known[step] for step in sorted(known)))

    def upto(self, step: float) -> Run:
        """The run as its log stood at ``step``."""
        seams = {s: why for s, why in self.seams.items() if s <= step}
        saved = tuple(one for one in self.checkpoints if one.step <= step)
        tables = tuple(found for one in self.rollouts if len(found := one.only(~(one.step > step))))
        cut = self._cut(lambda column: column.upto(step))
        return replace(cut, seams=seams, checkpoints=saved, rollouts=tables)

    @cached_property
    def last_attempt(self) -> Run:
        """The run from the last start from scratch on; the run itself when there was only one start."""
        began = self.began
        return self if began is None else replace(self._cut(lambda column: column.since(began)), began=None)

    def _cut(self, cut: Callable[[Column], Column]) -> Run:
        columns = {m: cut(c) for m, c in self.columns.items()}
        parts = {
            n: replace(p, mean=cut(p.mean), std=None if p.std is None else cut(p.std))
            for n, p in self.components.items()
        }
        return replace(
            self,
            columns={m: c for m, c in columns.items() if len(c)},
            components={n: p for n, p in parts.items() if len(p.mean)},
            evaluations={k: e for k, c in self.evaluations.items() if len(e := cut(c))},
        )


SHORT = 30
"""Rows up to which a log counts as short (ours: with fewer, the trend test has next to no power and a step scan has no
room for its margins, see docs/statistics.md); between 30 and 100 rows only large effects are reported."""


@dataclass(frozen=True)
class Onset:
    """Since which trainer step, with the interval of steps that the data allow."""

    step: float
    low: float
    high: float


@dataclass(frozen=True)
class Evidence:
    """Effect size first; ``p_value`` is corrected for autocorrelation and None where no chance is involved: the log shows
    the fact, or two levels are far apart on every scale.

    ``n`` points worth ``n_eff`` independent ones stand behind a p-value. ``diagnose`` fills the rest: ``q_value`` is
    ``p_value`` corrected for all checks of the diagnosis, ``strength`` what a tested finding may claim.
    """

    effect: float
    p_value: float | None
    method: str
    n: int | None = None
    n_eff: float | None = None
    agreeing: bool | None = None
    """True when a second test says the same, False when it says otherwise; None when it says nothing."""
    q_value: float | None = None
    strength: Strength | None = None
    equivalence: bool = False
    """True when sameness was shown, not change: ``p_value`` is then that of a change as large as would matter."""

    @property
    def of_chance(self) -> bool:
        """Whether noise alone makes such a finding now and then, so that many looks need a correction."""
        return self.p_value is not None and not self.equivalence


@dataclass(frozen=True)
class Note:
    """A reassurance: something that often worries people and is normal in this log."""

    id: str
    says: str


@dataclass(frozen=True)
class Change:
    """One setting to change, in the framework's own spelling; ``before`` is None when the present value is unknown."""

    knob: str
    key: str
    before: Scalar
    after: Scalar
    writes: str


@dataclass(frozen=True)
class Prescription:
    """A remedy worked out for this run: exact changes, what should move, within how many steps, at which risk."""

    id: str
    says: str
    changes: tuple[Change, ...] = ()
    expect: Mapping[str, str] = field(default_factory=dict)
    within: int | None = None
    risk: str = ""
    confirm: str = ""
    note: str = ""
    """A caveat of this framework or version for the change (an ignored flag, a condition that must also hold)."""
    applies: bool = True
    """False when this framework or version cannot do it, or when it would do nothing in this run; ``note`` says why."""


@dataclass(frozen=True)
class Reference:
    """A paper, issue or documentation page and the one claim we rely on."""

    id: str
    title: str
    claim: str
    link: str = ""


@dataclass(frozen=True)
class Forecast:
    """When something will be met if the present course holds: in words, and the step with its interval."""

    says: str
    step: float | None = None
    low: float | None = None
    high: float | None = None
    """None when the interval is open: it may never be met."""


@dataclass(frozen=True)
class Rollback:
    """From where to go on: the step up to which the run was sound, with the interval of the earliest mover's onset, and
    the last checkpoint before it, None where none is known."""

    step: float
    low: float
    high: float
    checkpoint: str | None
    says: str
    kept: float | None = None
    """The last step whose training is kept: that of the checkpoint, or the latest that it can be of where only a bound is
    known (``bound``); None when the run goes on from its start."""
    bound: bool = False


@dataclass(frozen=True)
class Cost:
    """What a failure wasted: the share of the run's compute, GPU-hours and money where known, and what was assumed."""

    wasted_share: float
    gpu_hours: float | None
    money: float | None
    says: str


@dataclass(frozen=True)
class Finding:
    """What one check saw. A check fills the upper half; the engine and ``diagnose`` fill the lower."""

    severity: Severity | None
    says: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    onset: Onset | None = None
    evidence: Evidence | None = None
    remedies: tuple[str, ...] = ()
    would_decide: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    forecast: Forecast | None = None
    wasted: float | None = None
    """Share of the compute of all logged steps that taught nothing because of this failure, 0..1; None where the failure
    distorts what is learnt rather than wasting it, or where the share cannot be told."""
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    """Values that the check knows to be right for settings which its remedies change (the rate before it was raised)."""
    acts_from: float | None = None
    """Step from which a cause that is a setting has acted, where that is earlier than what it did became visible."""
    own_cause: bool = False
    """True when what was seen rules out that another failure explains it (a bug shown by live groups)."""
    samples: tuple[int, ...] = ()
    """Rows of ``run.rollouts[0].train`` that show what is meant, the clearest first; their words are told only on demand."""

    check: str = ""
    title: str = ""
    """What the failure is, in one plain sentence: that of the check, unless that would not be true of this run: the
    check may choose another, and its table may hold one for what only informs."""
    tier: Tier = "likely"
    status: Maturity = "stable"
    resume: str = ""
    """From where a cured run goes on: ``before`` the onset, from ``here``; empty where neither follows. A check sets it
    only where its table does not hold for this run."""
    because_of: tuple[str, ...] = ()
    leads_to: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    """Checks that would explain the same consequences as this root and stand beside it; ``would_decide`` then tells which
    measurement separates them."""
    rollback: Rollback | None = None
    cost: Cost | None = None
    prescriptions: tuple[Prescription, ...] = ()
    no_help: tuple[str, ...] = ()
    """What is often advised here and does not help, each with its reason."""
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True)
class Examination:
    """The outcome of one check on one run; ``finding`` is present when it was examined, healthy or not."""

    check: str
    outcome: OutcomeName
    finding: Finding | None = None
    missing: tuple[str, ...] = ()
    says: str = ""


@dataclass(frozen=True)
class Verdict:
    """The answer in one line. ``undecided`` means that the log cannot carry a verdict."""

    severity: Literal["healthy", "info", "warning", "critical", "undecided"]
    primary: str | None
    says: str


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """Everything said about one run, in the order in which it should be read."""

    run: Run
    verdict: Verdict
    findings: tuple[Finding, ...]
    checks: tuple[Examination, ...]
    notes: tuple[Note, ...]
    to_log: tuple[str, ...] = ()
    """Lines or settings that would let the unexamined checks speak, in the framework's own spelling."""
    baseline: Baseline | None = None
    """What the user's healthy runs meant for it, where it was judged by them."""

    def __repr__(self) -> str:
        found = ", ".join(f"{finding.check} ({finding.severity})" for finding in self.findings)
        return f"Diagnosis({self.run.name!r}, {self.verdict.severity}: {self.verdict.says} Findings: {found or 'none'})"
