"""What several checks read of the words of saved answers: a share of them, counted, and whether it grew."""

from __future__ import annotations

from collections.abc import Sequence

from rlclinic.answers import texts
from rlclinic.checks.form import Limits
from rlclinic.checks.readings import at_seam, since
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import lower_bound
from rlclinic.stats.shift import crossing


def counted(
    run: Run,
    share: texts.Measure,
    limits: Limits,
    told: str,
    *,
    grade: str = "share",
    metric: str = "text.share",
    metrics: Sequence[str] = (),
    remedies: Sequence[str] = (),
) -> Finding:
    """The finding that a share of saved answers makes by the limits ``grade``, ``prompts`` and ``answers`` of its check.

    Graded on the lower end of the interval of the late share; none where fewer answers were read than ``answers``, or where
    the answers meant are to fewer different prompts than ``prompts``. ``told`` says what such answers do.
    """
    first, last = share.early, share.late
    least = lower_bound(last.value, last.count)
    enough = len(share) >= limits["answers"] and last.prompts >= limits["prompts"]
    severity = limits.grade(grade, least) if enough else None
    column = share.column(metric)
    began = None
    if severity is not None:
        began = _since(column, limits.at(grade, Severity.WARNING), last.value, limits.at(grade, severity))
    says = f"in the saved answers, {last.value:.1%} {told}"
    says += f", {first.value:.1%} at first" if len(share.steps) > 1 else ""
    says += f" ({last.count} answers{'' if share.of == 'all answers' else ' read'})"
    return Finding(
        severity=severity,
        says=says + at_seam(run, began, column),
        numbers={"late": last.value, "at_least": least, "first": first.value, "answers": float(last.count)},
        metrics=tuple(m for m in metrics if m in run),
        onset=began,
        evidence=Evidence(last.value, None, f"counted among {share.of}, Wilson lower bound"),
        remedies=tuple(remedies),
        samples=texts.shown(run, share) if severity is not None else (),
    )


def _since(column: Column, limit: float, level: float, told: float) -> Onset | None:
    """``since``, but never from a first row that is itself below the limit: answers are saved every so many steps, and a
    median of the first rows spans much of the run."""
    began = since(column, limit, level, told=told)
    if began is None or began.step > column.steps[0] or column.values[0] >= 0.5 * limit:
        return began
    return crossing(column.steps, column.values, limit, above=True, last=False) or began


def grew(share: texts.Measure) -> bool:
    """Whether the late share lies above the early one beyond both 90 % intervals (Wilson)."""
    first, last = share.early, share.late
    apart = len(share.steps) > 1
    return apart and lower_bound(last.value, last.count) > 1.0 - lower_bound(1.0 - first.value, first.count)
