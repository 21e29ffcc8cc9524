"""What is known of a run at one moment as text that Prometheus scrapes, and the names of those series."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rlclinic import __version__
from rlclinic.model import Diagnosis, Finding, Severity
from rlclinic.report.blocks import KEY, plain

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("waiting", "live", "stalled", "ended")
VERDICTS = ("healthy", "info", "warning", "critical", "undecided")
_PARTS = 20
"""Most reward parts that get a series, so that a log of odd keys does not fill a database (ours)."""

Labels: TypeAlias = Mapping[str, str]
Kind: TypeAlias = Literal["gauge", "counter"]


@dataclass(frozen=True)
class Series:
    """One family of series: its name without the prefix, its type, and what it says."""

    stem: str
    kind: Kind
    says: str

    @property
    def name(self) -> str:
        """The name as it is scraped."""
        return f"rlclinic_{self.stem}"


BUILD = Series("build_info", "gauge", "Version of rlclinic; always 1.")
RUN = Series("run_info", "gauge", "Name and trainer of the run; always 1.")
STATE = Series(
    "run_state",
    "gauge",
    "1 for the state of the run: no row yet, rows come, none come any more, or the log says that it ended.",
)
STEP = Series("step", "gauge", "Last trainer step that was logged.")
ROWS = Series("steps_logged", "gauge", "Steps at which something was logged.")
PLANNED = Series("planned_steps", "gauge", "Steps that the run is planned to take, where that is known.")
LAST_ROW = Series("last_row_timestamp_seconds", "gauge", "Unix time at which the log last grew.")
LAST_LOOK = Series("last_look_timestamp_seconds", "gauge", "Unix time of the last look.")
LOOK = Series("look_duration_seconds", "gauge", "What the last look cost: reading and diagnosing.")
LOOKS = Series("looks_total", "counter", "Looks since the start of this program.")
FAILURES = Series("look_failures_total", "counter", "Looks that could not be made since the start of this program.")
METRIC = Series("metric", "gauge", "Last logged value of a metric, under its canonical name and in its unit.")
PART = Series("reward_part", "gauge", "Last logged mean of a part of the reward, without its weight.")
VERDICT = Series("verdict", "gauge", "1 for the verdict of the last look.")
FINDING = Series("finding", "gauge", "1 for every open finding: one that was seen at several looks in a row.")
SEVERITY = Series(
    "finding_severity",
    "gauge",
    "Severity of what a check found: 0 nothing, 1 info, 2 warning, 3 critical. From warning on only once it was seen at "
    "several looks in a row. A check that cannot look has no series.",
)
SEEN = Series(
    "finding_last_look_severity",
    "gauge",
    "The same by the last look alone: it comes and goes with chance, so no alert should hang on it.",
)
OUTCOMES = Series("checks", "gauge", "Checks by outcome of the last look.")

SERIES = (BUILD, RUN, STATE, STEP, ROWS, PLANNED, LAST_ROW, LAST_LOOK, LOOK, LOOKS, FAILURES, METRIC, PART, VERDICT,
          FINDING, SEVERITY, SEEN, OUTCOMES)  # fmt: skip
"""Every family, in the order in which it is written."""


@dataclass(frozen=True)
class Sight:
    """What is known of a run at one moment. ``open`` are the findings that were told and not closed; ``last_row`` and
    ``last_look`` are Unix times, None before there was any; ``seconds`` is the cost of the last look."""

    diagnosis: Diagnosis | None = None
    open: Mapping[str, Severity] = field(default_factory=dict)
    state: str = "waiting"
    last_row: float | None = None
    last_look: float | None = None
    seconds: float = 0.0
    looks: int = 0
    failures: int = 0
    problem: str = ""
    """Why the last look could not be made; empty when it was."""


def exposition(sight: Sight) -> str:
    """Text exposition format 0.0.4 of ``sight``, ending with a newline.

    At most about 80 series for each kind of finding, one for each canonical metric and 20 for parts of the reward. Source
    of the form: prometheus.io/docs/instrumenting/exposition_formats.
    """
    samples = {**_of_watching(sight), **({} if sight.diagnosis is None else _of_diagnosis(sight.diagnosis, sight.open))}
    lines: list[str] = []
    for series in SERIES:
        rows = [_line(series.name, labels, value) for labels, value in samples.get(series, ())]
        if rows:
            lines += [f"# HELP {series.name} {_help(series.says)}", f"# TYPE {series.name} {series.kind}", *rows]
    return "\n".join(lines) + "\n"


_Samples: TypeAlias = dict[Series, Iterable[tuple[Labels, float]]]


def _of_watching(sight: Sight) -> _Samples:
    alone: Labels = {}
    numbers = {LAST_ROW: sight.last_row, LAST_LOOK: sight.last_look}
    return {
        BUILD: [({"version": __version__}, 1)],
        STATE: [({"state": name}, float(name == sight.state)) for name in STATES],
        LOOKS: [(alone, sight.looks)],
        FAILURES: [(alone, sight.failures)],
        **{series: [(alone, value)] for series, value in numbers.items() if value is not None},
        **({LOOK: [(alone, sight.seconds)]} if sight.looks else {}),
    }


def _of_diagnosis(diagnosis: Diagnosis, open: Mapping[str, Severity]) -> _Samples:
    run = diagnosis.run
    steps, alone = run.steps, dict[str, str]()
    found = {finding.check: finding for finding in diagnosis.findings if finding.severity is not None}
    looked = sorted({one.check for one in diagnosis.checks if one.outcome == "examined"} | set(open))
    seen = {check: int(found[check].severity or 0) if check in found else 0 for check in looked}
    known = {one.check: one.finding for one in diagnosis.checks if one.finding is not None}
    outcomes = ("examined", "unexamined", "not_applicable", "failed")
    trainer = run.framework.name if run.framework is not None else ""
    names = sorted(metric for metric, column in run.columns.items() if len(column))
    return {
        RUN: [({"run": plain(run.name, KEY), "framework": trainer}, 1)],
        ROWS: [(alone, len(steps))],
        **({STEP: [(alone, float(steps[-1]))]} if len(steps) else {}),
        **({PLANNED: [(alone, run.planned_steps)]} if run.planned_steps is not None else {}),
        METRIC: [({"metric": name}, float(run[name].values[-1])) for name in names],
        PART: _once(
            (plain(part.name, KEY), float(part.mean.values[-1])) for part in run.components.values() if len(part.mean)
        ),
        VERDICT: [({"severity": name}, float(name == diagnosis.verdict.severity)) for name in VERDICTS],
        FINDING: [(_about(check, severity, known.get(check)), 1) for check, severity in sorted(open.items())],
        SEVERITY: [({"check": check}, _told(check, open, seen)) for check in looked],
        SEEN: [({"check": check}, seen[check]) for check in looked],
        OUTCOMES: [({"outcome": name}, sum(one.outcome == name for one in diagnosis.checks)) for name in outcomes],
    }


def _about(check: str, severity: Severity, finding: Finding | None) -> Labels:
    """The labels of an open finding; it may be open and not be seen by the last look."""
    status, title = ("stable", check) if finding is None else (finding.status, plain(finding.title, 160))
    return {"check": check, "severity": severity.label, "status": status, "title": title}


def _told(check: str, open: Mapping[str, Severity], seen: Mapping[str, int]) -> int:
    """What was told of a check; what only informs is not told, and counts as it is seen."""
    return int(open[check]) if check in open else seen[check] if seen[check] <= Severity.INFO else 0


def _once(parts: Iterable[tuple[str, float]]) -> list[tuple[Labels, float]]:
    """The first parts by name: two that are cut to one name are one series, which may be written only once."""
    first: dict[str, float] = {}
    for name, value in parts:
        first.setdefault(name, value)
    return [({"part": name}, value) for name, value in sorted(first.items())[:_PARTS]]


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    """As Go parses it; what is not finite has names of its own."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _escaped(text: str) -> str:
    """A label's value: backslash, double quote and line feed are escaped; text that is no UTF-8 is replaced."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
