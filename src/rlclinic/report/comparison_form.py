"""The JSON form of a comparison, versioned: what other programs may rely on."""

from __future__ import annotations

import math
from typing import Final, Literal, TypedDict

from rlclinic import __version__
from rlclinic.compare import Against, Comparison, FindingRow, MetricRow, SettingRow
from rlclinic.model import Diagnosis, Finding, Knob, Onset
from rlclinic.report.comparison import answer, verdict
from rlclinic.report.contract import (
    FrameworkForm,
    Grade,
    Number,
    OnsetForm,
    Value,
    number_of,
    step_of,
    value_of,
    written,
)

SCHEMA: Final = "rlclinic.comparison/1"

# Adding a key is compatible; renaming or removing one raises the number in SCHEMA. After a change here, run
# tools/build_schema.py.


class ComparedRunForm(TypedDict):
    """One run; ``name`` is the one that the comparison tells it by, ``run`` its own."""

    name: str
    run: str
    framework: FrameworkForm | None
    algorithm: str | None
    sources: list[str]
    verdict: Literal["healthy", "info", "warning", "critical", "undecided"]
    primary: str | None


KnobValueForm = TypedDict(
    "KnobValueForm", {"value": Value, "key": str, "from": Literal["config", "log", "given", "default"]}
)


class SettingForm(TypedDict):
    """``runs`` in the order of the runs, null where one does not tell it. ``other_meaning``: the frameworks count something
    else under this name, as ``says`` tells, so that the values must not be compared."""

    setting: str
    outcome: Literal["same", "different", "one_sided", "other_meaning"]
    runs: list[KnobValueForm | None]
    says: str


class DifferenceForm(TypedDict):
    """Differences are this run less the reference. ``late``: means over the last quarter of the axis; ``low`` to ``high``:
    95 % interval of the late difference by the noise of both runs alone, null with too few points. ``seeds``: standard
    deviation that two seeds of one recipe are allowed. ``p_value`` allows for both, ``q_value`` also for all metrics.
    ``where`` the difference is clearest and its ``size`` there; ``throughout`` only where every window differs by itself,
    empty for the mean of the whole axis. ``shown`` is the difference that the word speaks of, at ``place``, plus or minus
    ``half``, which leaves out 0 exactly where the test says different; null where no test decides.
    ``lead``: this run goes through the same course so many times as fast. ``clear``: the late values do not overlap, and
    seeds are far from differing so much."""

    late: tuple[Number, Number]
    difference: Number
    low: Number | None
    high: Number | None
    overall: Number
    noise: Number
    seeds: Number | None
    points: tuple[int, int]
    p_noise: Number
    p_value: Number
    q_value: Number | None
    where: Literal["", "throughout", "late", "early", "in between"]
    size: Number
    lead: Number | None
    clear: bool
    shown: Number | None
    half: Number | None
    place: Literal["", "throughout", "late", "early", "in between"]


class MetricComparisonForm(TypedDict):
    """``within_seeds``: beyond the noise of both runs, but no more than seeds differ by. ``open``: noise hides what may
    differ. ``exact``: the log itself shows the difference, no test was needed. ``onset`` is a place on the axis."""

    metric: str
    keys: tuple[str, str]
    word: Literal["different", "within_seeds", "same", "open", "incomparable"]
    says: str
    exact: bool
    difference: DifferenceForm | None
    onset: OnsetForm | None
    from_start: bool


class SeenForm(TypedDict):
    severity: Grade
    onset: OnsetForm | None
    says: str


class FindingComparisonForm(TypedDict):
    """``unseen``: the check could look in only one of the runs, as ``says`` tells; it is not counted as gone or new."""

    check: str
    change: Literal["gone", "new", "same", "worse", "better", "unseen"]
    before: SeenForm | None
    after: SeenForm | None
    says: str


class PartedForm(TypedDict):
    metric: str
    onset: OnsetForm


class BetterForm(TypedDict):
    """``run`` is the better one by name, null where neither is or it cannot be told; ``metric`` decides, or would have."""

    answer: Literal["first", "second", "neither", "unknown"]
    run: str | None
    metric: str | None
    because: str
    says: str


class AgainstForm(TypedDict):
    """One further run against the reference. ``span`` is the stretch of axis that both cover; null without any.
    ``identical_until``: the last step up to which all logged numbers are the same. ``repeats``: runs of one setting from
    which the spread between runs was taken, 0 where it is allowed for instead."""

    name: str
    says: str
    span: tuple[float, float] | None
    warnings: list[str]
    identical_until: float | None
    better: BetterForm
    first_apart: PartedForm | None
    repeats: int
    metrics: list[MetricComparisonForm]
    only_in_reference: list[str]
    only_in_this: list[str]
    findings: list[FindingComparisonForm]


class ComparisonForm(TypedDict):
    schema: Literal["rlclinic.comparison/1"]
    rlclinic: str
    by: Literal["step", "token", "time"]
    runs: list[ComparedRunForm]
    settings: list[SettingForm]
    against: list[AgainstForm]


# ---------------------------------------------------------------------------------------------------- filling


def to_dict(comparison: Comparison) -> ComparisonForm:
    """The comparison as plain JSON data, the reference first among the runs."""
    return {
        "schema": SCHEMA,
        "rlclinic": __version__,
        "by": comparison.by,
        "runs": [_run(name, one) for name, one in zip(comparison.names, comparison.diagnoses, strict=True)],
        "settings": [_setting(row) for row in comparison.settings],
        "against": [_against(comparison, one) for one in comparison.others],
    }


def to_json(comparison: Comparison) -> str:
    """``to_dict`` as text, see ``contract.written``."""
    return written(to_dict(comparison))


def _finite(value: float | None) -> Number | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _onset(onset: Onset | None) -> OnsetForm | None:
    if onset is None or not all(math.isfinite(v) for v in (onset.step, onset.low, onset.high)):
        return None
    return {"step": step_of(onset.step), "low": step_of(onset.low), "high": step_of(onset.high)}


def _run(name: str, one: Diagnosis) -> ComparedRunForm:
    run, known = one.run, one.run.framework
    return {
        "name": name,
        "run": run.name,
        "framework": None if known is None else {"name": known.name, "version": known.version, "how": known.how},
        "algorithm": run.algorithm,
        "sources": [source.path for source in run.sources],
        "verdict": one.verdict.severity,
        "primary": one.verdict.primary,
    }


def _knob(knob: Knob | None) -> KnobValueForm | None:
    return None if knob is None else {"value": value_of(knob.value), "key": knob.key, "from": knob.origin}


def _setting(row: SettingRow) -> SettingForm:
    return {"setting": row.name, "outcome": row.outcome, "runs": [_knob(knob) for knob in row.knobs], "says": row.says}


def _against(comparison: Comparison, one: Against) -> AgainstForm:
    first = one.parted
    onset = None if first is None else _onset(first.onset)
    return {
        "name": one.name,
        "says": answer(comparison, one),
        "span": None if one.span is None else (step_of(one.span[0]), step_of(one.span[1])),
        "warnings": list(one.warnings),
        "identical_until": None if one.identical is None else step_of(one.identical),
        "better": {
            "answer": one.better.run,
            "run": {"first": comparison.names[0], "second": one.name}.get(one.better.run),
            "metric": None if one.better.row is None else one.better.row.name,
            "because": one.better.because,
            "says": verdict(comparison, one),
        },
        "first_apart": None if first is None or onset is None else {"metric": first.name, "onset": onset},
        "repeats": one.repeats,
        "metrics": [_metric(row) for row in one.metrics],
        "only_in_reference": list(one.only[0]),
        "only_in_this": list(one.only[1]),
        "findings": [_finding(row) for row in one.findings],
    }


def _metric(row: MetricRow) -> MetricComparisonForm:
    return {
        "metric": row.name,
        "keys": (row.columns[0].key, row.columns[1].key),
        "word": row.word,
        "says": row.says,
        "exact": row.exact,
        "difference": _difference(row),
        "onset": _onset(row.onset),
        "from_start": row.from_start,
    }


def _difference(row: MetricRow) -> DifferenceForm | None:
    one = row.apart
    if one is None:
        return None
    return {
        "late": (number_of(one.late[0]), number_of(one.late[1])),
        "difference": number_of(one.difference),
        "low": _finite(one.low),
        "high": _finite(one.high),
        "overall": number_of(one.overall),
        "noise": number_of(one.sd),
        "seeds": _finite(one.seeds),
        "points": one.n,
        "p_noise": number_of(one.p_noise),
        "p_value": number_of(one.p_value),
        "q_value": None if row.q_value is None else number_of(row.q_value),
        "where": one.where,
        "size": number_of(one.size),
        "lead": _finite(one.lead),
        "clear": one.clear,
        "shown": _finite(row.shown),
        "half": _finite(row.half),
        "place": row.place,
    }


_GRADES: dict[str, Grade] = {"info": "info", "warning": "warning", "critical": "critical"}


def _seen(finding: Finding | None) -> SeenForm | None:
    if finding is None or finding.severity is None:
        return None
    return {"severity": _GRADES[finding.severity.label], "onset": _onset(finding.onset), "says": finding.says}


def _finding(row: FindingRow) -> FindingComparisonForm:
    return {
        "check": row.check,
        "change": row.change,
        "before": _seen(row.before),
        "after": _seen(row.after),
        "says": row.says,
    }
