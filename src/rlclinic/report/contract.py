"""The JSON form of a Diagnosis, versioned: what other programs may rely on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final, Literal, TypeAlias, TypedDict

import numpy as np

from rlclinic import __version__
from rlclinic.answers.shown import Hung, hung
from rlclinic.model import (
    Column,
    Component,
    Cost,
    Diagnosis,
    Examination,
    Finding,
    Forecast,
    Onset,
    Prescription,
    Rollback,
    Run,
    Scalar,
)
from rlclinic.report.baselined import BaselineForm, to_form
from rlclinic.report.history import PastForm, to_forms

SCHEMA: Final = "rlclinic.diagnosis/1"
WORDS = 4_000
"""Characters of a prompt or an answer that stand in a sample (ours)."""

Number: TypeAlias = float | Literal["NaN", "Infinity", "-Infinity"]
Value: TypeAlias = float | int | str | bool | None
Grade: TypeAlias = Literal["info", "warning", "critical"]

# ------------------------------------------------------------------------------------------------------- form
# Adding a key is compatible; renaming or removing one raises the number in SCHEMA. After a change here, run
# tools/build_schema.py.


class FrameworkForm(TypedDict):
    name: str
    version: str | None
    how: Literal["keys", "config", "log", "given"]


class SourceForm(TypedDict):
    path: str
    format: str
    rows: int
    nonfinite: str
    role: str


class StepsForm(TypedDict):
    """The trainer's own step numbers; null without any."""

    first: float | None
    last: float | None
    count: int


class SeriesForm(TypedDict):
    """``first`` and ``last`` as logged, ``min`` and ``max`` over the finite values (null without any)."""

    key: str
    status: Literal["measured", "structural_zero", "filtered"]
    points: int
    first: Number | None
    last: Number | None
    min: Number | None
    max: Number | None
    nonfinite: int


# Keys that are Python keywords need the functional notation.
KnobForm = TypedDict("KnobForm", {"value": Value, "key": str, "from": Literal["config", "log", "given", "default"]})
ChangeForm = TypedDict("ChangeForm", {"knob": str, "key": str, "from": Value, "to": Value, "writes": str})


class WarningForm(TypedDict):
    code: str
    says: str


class SeamForm(TypedDict):
    """A step at which the log shows a restart, a resume or a change of settings, with what was seen there."""

    step: float
    says: str


class RolloutsForm(TypedDict):
    """One table of saved answers; ``steps`` counts those with answers. ``filtered``: the trainer saves only groups that it
    trains on; ``partial``: only some answers of each batch are saved."""

    form: str
    source: str
    files: int
    answers: int
    groups: int
    steps: int
    held_out: int
    filtered: bool
    partial: bool


class RunForm(TypedDict):
    """``began`` is the step at which the last of several attempts that each started from scratch began."""

    name: str
    algorithm: str | None
    framework: FrameworkForm | None
    sources: list[SourceForm]
    steps: StepsForm
    metrics: dict[str, SeriesForm]
    components: dict[str, SeriesForm]
    knobs: dict[str, KnobForm]
    unrecognised: list[str]
    seams: list[SeamForm]
    began: float | None
    warnings: list[WarningForm]
    rollouts: list[RolloutsForm]


class VerdictForm(TypedDict):
    severity: Literal["healthy", "info", "warning", "critical", "undecided"]
    primary: str | None
    says: str


class OnsetForm(TypedDict):
    step: float
    low: float
    high: float


class EvidenceForm(TypedDict):
    """``p_value`` is corrected for autocorrelation, ``q_value`` also for all checks of the diagnosis; both are null where
    the log itself shows the fact, and ``strength`` is then null too: it weighs tests alone."""

    effect: Number
    p_value: Number | None
    q_value: Number | None
    n: int | None
    n_eff: Number | None
    strength: Literal["strong", "moderate", "weak"] | None
    method: str


class ForecastForm(TypedDict):
    """A step is null where none is foreseen; ``high`` is null where the limit may never be met."""

    says: str
    step: float | None
    low: float | None
    high: float | None


class RollbackForm(TypedDict):
    """``checkpoint`` is null where none before the onset is known; ``says`` then tells which would do."""

    step: float
    low: float
    high: float
    checkpoint: str | None
    says: str


class CostForm(TypedDict):
    """``gpu_hours`` is null without a step time or a number of GPUs, ``money`` without a price."""

    wasted_share: Number
    gpu_hours: Number | None
    money: Number | None
    says: str


class RemedyForm(TypedDict):
    """``note`` is a caveat of the framework or version; empty when there is none. Where ``applies`` is false it says why the
    remedy cannot be carried out in this version, or would do nothing in this run."""

    id: str
    says: str
    changes: list[ChangeForm]
    expect: dict[str, str]
    within: int | None
    risk: str
    confirm: str
    note: str
    applies: bool


class ReferenceForm(TypedDict):
    id: str
    title: str
    claim: str


class SampleForm(TypedDict):
    """One saved answer, its words masked; null what is not known. Of ``prompt`` and ``answer`` at most 4,000 characters."""

    step: float | None
    reward: Number | None
    parts: dict[str, Number]
    tokens: Number | None
    ending: Literal["", "stopped", "cut", "aborted"]
    prompt: str | None
    answer: str | None


class FindingForm(TypedDict):
    """``rivals``: roots that would explain the same consequences. ``no_help``: what is often advised and does not help here.
    ``resume``: from where a cured run goes on, before the onset or from here. ``status`` preview: not yet measured well
    enough to change an exit code. ``samples`` is empty unless saved answers were asked for (--samples)."""

    check: str
    severity: Grade
    tier: Literal["certain", "likely", "hint"]
    status: Literal["preview", "stable", "deprecated"]
    says: str
    numbers: dict[str, Number]
    metrics: list[str]
    onset: OnsetForm | None
    evidence: EvidenceForm | None
    forecast: ForecastForm | None
    because_of: list[str]
    leads_to: list[str]
    rivals: list[str]
    resume: str
    would_decide: list[str]
    remedies: list[RemedyForm]
    no_help: list[str]
    rollback: RollbackForm | None
    cost: CostForm | None
    references: list[ReferenceForm]
    samples: list[SampleForm]


class CheckForm(TypedDict):
    """``missing`` lists canonical metrics; where one of several would do, all of them stand there."""

    check: str
    outcome: Literal["examined", "unexamined", "not_applicable", "failed"]
    severity: Literal["none", "info", "warning", "critical"] | None
    missing: list[str]
    says: str


class NoteForm(TypedDict):
    id: str
    says: str


class _WholeForm(TypedDict):
    schema: Literal["rlclinic.diagnosis/1"]
    rlclinic: str
    run: RunForm
    verdict: VerdictForm
    findings: list[FindingForm]
    checks: list[CheckForm]
    notes: list[NoteForm]
    to_log: list[str]


class DiagnosisForm(_WholeForm, total=False):
    """``history`` is there only where a record of earlier looks was read (rlclinic record), oldest first; ``baseline`` only
    where the run was judged by one (diagnose --baseline)."""

    history: list[PastForm]
    baseline: BaselineForm


# ---------------------------------------------------------------------------------------------------- filling


def to_dict(diagnosis: Diagnosis, samples: int = 0) -> DiagnosisForm:
    """The diagnosis as plain JSON data; equal diagnoses give equal data, key for key in the same order.

    ``findings`` keeps what deserves attention (info and above), in the order of the diagnosis; each has at most ``samples``
    saved answers.
    """
    verdict = diagnosis.verdict
    form: DiagnosisForm = {
        "schema": SCHEMA,
        "rlclinic": __version__,
        "run": _run(diagnosis.run),
        "verdict": {"severity": verdict.severity, "primary": verdict.primary, "says": verdict.says},
        "findings": [
            told for finding in diagnosis.findings if (told := _finding(finding, diagnosis.run, samples)) is not None
        ],
        "checks": [_check(examination) for examination in diagnosis.checks],
        "notes": [{"id": note.id, "says": note.says} for note in diagnosis.notes],
        "to_log": list(diagnosis.to_log),
    }
    if diagnosis.run.history:
        form["history"] = to_forms(diagnosis.run)
    if diagnosis.baseline is not None:
        form["baseline"] = to_form(diagnosis.baseline)
    return form


def to_json(diagnosis: Diagnosis, samples: int = 0) -> str:
    """``to_dict`` as text, see ``written``."""
    return written(to_dict(diagnosis, samples))


def written(form: Mapping[str, Any]) -> str:
    """A form as ASCII text that ends with a newline, so that no control or bidirectional character of a log reaches a
    terminal raw. Raises ValueError for a number that is not finite: ``number_of`` spells those."""
    text = json.dumps(form, indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"


def schema() -> str:
    """The JSON Schema of ``to_dict``, as committed beside this module."""
    return resources.files("rlclinic.report").joinpath("schema.json").read_text(encoding="utf-8")


def number_of(value: float) -> Number:
    """A number of JSON; what is not finite by its name."""
    plain = float(value)
    if math.isfinite(plain):
        return plain
    return "NaN" if math.isnan(plain) else ("Infinity" if plain > 0 else "-Infinity")


def step_of(value: float) -> float:
    """Step numbers are whole wherever the trainer counts in whole steps."""
    plain = float(value)
    return int(plain) if plain.is_integer() else plain


def value_of(value: Scalar) -> Value:
    """A setting as JSON has it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return number_of(value)


def _series(column: Column) -> SeriesForm:
    finite = column.finite.values
    return {
        "key": column.key,
        "status": column.status,
        "points": len(column),
        "first": number_of(column.values[0]) if len(column) else None,
        "last": number_of(column.values[-1]) if len(column) else None,
        "min": number_of(np.min(finite)) if len(finite) else None,
        "max": number_of(np.max(finite)) if len(finite) else None,
        "nonfinite": column.nonfinite,
    }


def _components(components: Mapping[str, Component]) -> dict[str, SeriesForm]:
    return {name: _series(part.mean) for name, part in components.items()}


def _run(run: Run) -> RunForm:
    framework, steps = run.framework, run.steps
    warnings: list[WarningForm] = [{"code": warn.code, "says": warn.says} for warn in run.warnings]
    warnings += [
        {"code": "impossible_values", "says": f"{key} is left out: {why}"} for key, why in run.distrusted.items()
    ]
    warnings += [
        {
            "code": "undecided_key",
            "says": f"{u.key} may be {' or '.join(u.meanings)} and was left unread; {u.decided_by} decides",
        }
        for u in run.undecided
    ]
    return {
        "name": run.name,
        "algorithm": run.algorithm,
        "framework": None
        if framework is None
        else {"name": framework.name, "version": framework.version, "how": framework.how},
        "sources": [
            {"path": s.path, "format": s.format, "rows": int(s.rows), "nonfinite": s.nonfinite, "role": s.role}
            for s in run.sources
        ],
        "steps": {
            "first": step_of(steps[0]) if len(steps) else None,
            "last": step_of(steps[-1]) if len(steps) else None,
            "count": len(steps),
        },
        "metrics": {metric: _series(column) for metric, column in run.columns.items()},
        "components": _components(run.components),
        "knobs": {
            name: {"value": value_of(knob.value), "key": knob.key, "from": knob.origin}
            for name, knob in run.knobs.items()
        },
        "unrecognised": [unknown.key for unknown in run.unrecognised],
        "seams": [{"step": step_of(at), "says": why} for at, why in sorted(run.seams.items())],
        "began": None if run.began is None else step_of(run.began),
        "warnings": warnings,
        "rollouts": [
            {
                "form": table.form,
                "source": table.source,
                "files": table.files,
                "answers": len(table),
                "groups": table.groups,
                "steps": len(table.steps),
                "held_out": int(table.held_out.sum()),
                "filtered": table.filtered,
                "partial": table.partial,
            }
            for table in run.rollouts
        ],
    }


def _onset(onset: Onset | None) -> OnsetForm | None:
    if onset is None:
        return None
    return {"step": step_of(onset.step), "low": step_of(onset.low), "high": step_of(onset.high)}


def _at(value: float | None) -> float | None:
    return None if value is None else step_of(value)


def _forecast(forecast: Forecast | None) -> ForecastForm | None:
    if forecast is None:
        return None
    step, low, high = _at(forecast.step), _at(forecast.low), _at(forecast.high)
    return {"says": forecast.says, "step": step, "low": low, "high": high}


def _rollback(rollback: Rollback | None) -> RollbackForm | None:
    if rollback is None:
        return None
    step, low, high = step_of(rollback.step), step_of(rollback.low), step_of(rollback.high)
    return {"step": step, "low": low, "high": high, "checkpoint": rollback.checkpoint, "says": rollback.says}


def _cost(cost: Cost | None) -> CostForm | None:
    if cost is None:
        return None
    return {
        "wasted_share": number_of(cost.wasted_share),
        "gpu_hours": None if cost.gpu_hours is None else number_of(cost.gpu_hours),
        "money": None if cost.money is None else number_of(cost.money),
        "says": cost.says,
    }


_GRADES: dict[str, Grade] = {"info": "info", "warning": "warning", "critical": "critical"}


def _sample(one: Hung) -> SampleForm:
    def known(value: float) -> Number | None:
        return None if math.isnan(value) else number_of(value)

    return {
        "step": step_of(one.step) if math.isfinite(one.step) else None,
        "reward": known(one.reward),
        "parts": {name: number_of(value) for name, value in one.parts},
        "tokens": known(one.tokens),
        "ending": one.ending,
        "prompt": None if one.asked is None else one.asked[:WORDS],
        "answer": None if one.words is None else one.words[:WORDS],
    }


def _finding(finding: Finding, run: Run, samples: int) -> FindingForm | None:
    if finding.severity is None:
        return None
    evidence = finding.evidence
    return {
        "check": finding.check,
        "severity": _GRADES[finding.severity.label],
        "tier": finding.tier,
        "status": finding.status,
        "says": finding.says,
        "numbers": {name: number_of(value) for name, value in finding.numbers.items()},
        "metrics": list(finding.metrics),
        "onset": _onset(finding.onset),
        "evidence": None
        if evidence is None
        else {
            "effect": number_of(evidence.effect),
            "p_value": None if evidence.p_value is None else number_of(evidence.p_value),
            "q_value": None if evidence.q_value is None else number_of(evidence.q_value),
            "n": evidence.n,
            "n_eff": None if evidence.n_eff is None else number_of(evidence.n_eff),
            "strength": evidence.strength,
            "method": evidence.method,
        },
        "forecast": _forecast(finding.forecast),
        "because_of": list(finding.because_of),
        "leads_to": list(finding.leads_to),
        "rivals": list(finding.rivals),
        "resume": finding.resume,
        "would_decide": list(finding.would_decide),
        "remedies": [_remedy(remedy) for remedy in finding.prescriptions],
        "no_help": list(finding.no_help),
        "rollback": _rollback(finding.rollback),
        "cost": _cost(finding.cost),
        "references": [{"id": r.id, "title": r.title, "claim": r.claim} for r in finding.references],
        "samples": [_sample(one) for one in hung(run, finding.samples[: max(samples, 0)])],
    }


def _remedy(remedy: Prescription) -> RemedyForm:
    return {
        "id": remedy.id,
        "says": remedy.says,
        "changes": [
            {"knob": c.knob, "key": c.key, "from": value_of(c.before), "to": value_of(c.after), "writes": c.writes}
            for c in remedy.changes
        ],
        "expect": dict(remedy.expect),
        "within": remedy.within,
        "risk": remedy.risk,
        "confirm": remedy.confirm,
        "note": remedy.note,
        "applies": remedy.applies,
    }


def _check(examination: Examination) -> CheckForm:
    finding = examination.finding
    severity: Literal["none", "info", "warning", "critical"] | None = None
    if examination.outcome == "examined":
        severity = "none" if finding is None or finding.severity is None else _GRADES[finding.severity.label]
    return {
        "check": examination.check,
        "outcome": examination.outcome,
        "severity": severity,
        "missing": list(dict.fromkeys(metric for need in examination.missing for metric in need.split("|"))),
        "says": examination.says or ("" if finding is None else finding.says),
    }
