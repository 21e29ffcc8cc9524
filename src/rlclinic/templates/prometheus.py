"""Alert rules for Prometheus: on what ``rlclinic serve`` tells, and on series that a user exports himself."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rlclinic import __version__
from rlclinic.model import Severity
from rlclinic.report import exposition as served
from rlclinic.templates.levels import PLAIN, Level, Naming, left_out, levels, not_finite, number

WINDOW = "30m"
"""Over which a series is averaged (ours: several rows of most runs)."""
_PENDING = "10m"

_RUNBOOK = """\
Expressions that are often copied from runbooks, and what to use instead:
  avg_over_time(advantage_std[15m]) near 0: only when EVERY group is dead. With a share z of dead groups, advantages that are
    divided by the spread of their group have a spread of about sqrt(1 - z): 0.32 at z = 0.9. Use the share of dead groups;
    where only the spread is exported and it is divided so, 1 - avg_over_time(advantage_std[30m])^2 estimates that share.
  avg_over_time(policy_entropy[15m]) below 0.5: instruct and distilled models start at 0.1 to 0.6 nats. What counts is the
    fall against the run's own start, which no window holds; the limit below is one at which answers are all but fixed.
  rate(kl_sum[15m]) / rate(kl_count[15m]): right only for a Summary or a Histogram. A KL that is logged once a row is a
    gauge: avg_over_time(kl[30m]). Sound runs cross a limit of 0.10: rlclinic explain kl_drift."""


def rules(naming: Naming, *, window: str = WINDOW) -> str:
    """A file of rules in YAML, ending with a newline, valid for ``promtool check rules``."""
    head = f"""\
# Alert rules written by rlclinic {__version__}: rlclinic templates prometheus
# The first group needs `rlclinic serve RUN` scraped at /metrics and carries everything that rlclinic sees. The second is for
# series that you export yourself: it holds the mean of each over {window} against the limits of the checks, and so knows
# neither chance nor the run's own beginning. Limits: rlclinic explain CHECK.
# A window is time, not steps: make it at least five rows long (put another length for [{window}] where a step takes long).
groups:
"""
    lines = [*_group("rlclinic-serve", _on_serve()), *_group("rlclinic-series", _on_series(naming, window))]
    notes = [f"# {line}".rstrip() for line in (*_RUNBOOK.splitlines(), "", *_silent(naming))]
    return head + "\n".join([*lines, *notes]) + "\n"


def _group(name: str, rules: Iterator[list[str]]) -> Iterator[str]:
    yield f"  - name: {name}"
    yield "    rules:"
    for rule in rules:
        yield from (f"      {line}" for line in rule)


def _rule(alert: str, expression: str, severity: str, summary: str, description: str, pending: str = "") -> list[str]:
    lines = [f"- alert: {alert}", f"  expr: {json.dumps(expression)}"]
    lines += [f"  for: {pending}"] if pending else []
    lines += ["  labels:", f"    severity: {severity}", "  annotations:"]
    return [*lines, f"    summary: {json.dumps(summary)}", f"    description: {json.dumps(description)}"]


def _on_serve() -> Iterator[list[str]]:
    for severity in ("critical", "warning"):
        yield _rule(
            f"Rlclinic{severity.title()}",
            f'{served.FINDING.name}{{severity="{severity}", status!="preview"}} == 1',
            severity,
            "{{ $labels.title }}",
            "rlclinic found {{ $labels.check }} at several looks in a row. "
            "What it is and what to change: rlclinic explain {{ $labels.check }}, and the page of rlclinic serve.",
        )
    yield _rule(
        "RlclinicPreview",
        f'{served.FINDING.name}{{severity=~"warning|critical", status="preview"}} == 1',
        "info",
        "{{ $labels.title }}",
        "rlclinic found {{ $labels.check }}, a check in preview: not measured well enough to wake anybody. "
        "Look at it with the others: rlclinic explain {{ $labels.check }}.",
    )
    yield _rule(
        "RlclinicGone",
        f'last_over_time({served.STATE.name}{{state="live"}}[1h]) == 1 unless {served.STATE.name}{{state="live"}}',
        "warning",
        "Nobody watches the run any more: rlclinic serve does not answer.",
        "The run was live when it was last asked. Nothing is found meanwhile, so silence is no health: start it again.",
        _PENDING,
    )
    yield _rule(
        "RlclinicRunStalled",
        f'{served.STATE.name}{{state="stalled"}} == 1',
        "warning",
        "The log of the run no longer grows.",
        "No new row has come for many times as long as one usually takes; the training may hang or be gone.",
    )
    yield _rule(
        "RlclinicCannotLook",
        f"increase({served.FAILURES.name}[15m]) >= 3",
        "warning",
        "rlclinic cannot read the log of the run.",
        "Nothing is diagnosed meanwhile, so silence is no health. The page of rlclinic serve says why.",
        _PENDING,
    )
    yield _rule(
        "RlclinicUndecided",
        f'{served.VERDICT.name}{{severity="undecided"}} == 1',
        "info",
        "The log of the run cannot carry a verdict.",
        "Something needed is not logged, or a check broke; rlclinic diagnose says what would help.",
        "1h",
    )


def _on_series(naming: Naming, window: str) -> Iterator[list[str]]:
    check, metrics, mind = not_finite()
    there = [series for metric in metrics if (series := naming.series(metric)) is not None]
    if there:
        parts = [f"({name} != {name}) or (abs({name}) == Inf)" for name in dict.fromkeys(there)]
        yield _rule(
            _alert(check.name, Severity.CRITICAL),
            " or ".join(parts),
            "critical",
            check.title,
            f"{mind[0].upper()}{mind[1:]}. Runbook: rlclinic explain {check.name}",
            _PENDING,
        )
    for level in levels():
        series = naming.series(level.metric)
        if series is not None:
            for severity in sorted(level.told, reverse=True):
                yield _on_level(level, severity, series, naming.scale(level.metric), window)


def _on_level(level: Level, severity: Severity, series: str, scale: float, window: str) -> list[str]:
    mean = f"quantile_over_time(0.5, {series}[{window}])" if level.middle else f"avg_over_time({series}[{window}])"
    mean = mean if scale == 1.0 else f"({number(scale)} * {mean})"
    value = mean if level.value == PLAIN else f"({level.value.replace(PLAIN, mean)})"
    expression = f"{value} {level.sign} {number(level.grades[severity])}"
    if severity is Severity.WARNING and Severity.CRITICAL in level.grades:  # beyond, the other rule speaks
        expression += f" {'<=' if level.sign == '>' else '>='} {number(level.grades[Severity.CRITICAL])}"
    title = level.checks[0].title if len(level.checks) == 1 else _together(level)
    what = f"{level.limit.says}: {severity.label} from {number(level.grades[severity])} ({level.limit.source})"
    runbook = " or ".join(f"rlclinic explain {check.name}" for check in level.checks)
    parts = [what, *([f"mind: {level.mind}"] if level.mind else []), f"series {series} is {level.metric} of rlclinic"]
    description = f"{'. '.join(part[0].upper() + part[1:] for part in parts)}. Runbook: {runbook}"
    return _rule(_alert(level.name, severity), expression, severity.label, title, description, level.stands or _PENDING)


def _together(level: Level) -> str:
    return f"Too much of {level.metric}: {', '.join(check.name for check in level.checks)}."


def _alert(name: str, severity: Severity) -> str:
    return f"Series{''.join(part.title() for part in name.split('_'))}{severity.label.title()}"


def _silent(naming: Naming) -> Iterator[str]:
    """What has no rule, and why."""
    yield "Without a rule on single series (the first group has them all):"
    for limits, why in left_out():
        yield f"  {', '.join(limits)}: {why}"
    yield "  limits on changes, p-values and counts of rows: they need the run's own past and its noise, which PromQL lacks"
    trainer = naming.framework
    lacking = sorted({level.metric for level in levels() if naming.series(level.metric) is None})
    if trainer is not None and lacking:
        yield f"  {trainer.title} reports none of: {', '.join(lacking)}"
