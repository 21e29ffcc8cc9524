"""Memory use grows from step to step.

## What you see
The peak of the GPU memory, or the memory of the host, rises over more than a hundred steps and has not slowed down.

## Why it matters
It ends in an out-of-memory error hours or days later, at a step that has nothing to do with the cause, and the run loses
everything since the last checkpoint.

## When it is not a problem
A peak is a record: each longest answer so far lifts it, in steps that become rarer, and then it stays. Memory that follows
the length of the answers is the length's doing.
"""

import re

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import Lasting, ahead, lasting
from rlclinic.model import Evidence, Finding, Run, Severity
from rlclinic.stats.level import late
from rlclinic.stats.trend import acceleration

_KINDS = {"perf.memory": "GPU memory", "perf.memory_cpu": "host memory"}


@check(
    page=__doc__,
    needs=["perf.memory|perf.memory_cpu"],
    uses=["length.response.mean", "length.response.max"],
    since="0.2",
)
def memory_creep(run: Run, limits: Limits) -> Answer:
    found = [_finding(run, metric, limits) for metric in _KINDS if metric in run and _long(run, metric, limits)]
    if not found:
        says = f"fewer than 20 rows or {limits['steps']:.0f} steps of memory use"
        return Unexamined(("perf.memory",), says)
    return max(found, key=lambda finding: finding.severity or 0)


def _long(run: Run, metric: str, limits: Limits) -> bool:
    c = run[metric].finite
    return len(c) >= 20 and float(c.steps[-1] - c.steps[0]) >= limits["steps"]


def _finding(run: Run, metric: str, limits: Limits) -> Finding:
    column, kind = run[metric], _KINDS[metric]
    rise = _creep(run, metric, limits)
    level = late(column.finite.values, 0.1, 5)
    if rise is None:
        return Finding(
            severity=None,
            says=f"{kind} is {level:.1f} GiB and does not creep up",
            numbers={"late": level},
            metrics=(metric,),
            evidence=Evidence(0.0, None, "trend test"),
        )
    growth = rise.late / rise.early - 1.0
    size = _device(run) if metric == "perf.memory" else None
    full = ahead(run, column, size, f"{kind} reaches the {size:.0f} GB of the device") if size else None
    longer = _with_length(run, limits)
    severity = limits.grade("growth", growth)
    if severity is not None:
        # What is known decides: a device that will be full, one that will not, or only the size of the growth.
        severity = Severity.WARNING if full is not None else Severity.INFO if size or longer else severity
    rate = 100.0 * rise.change / max(float(column.finite.steps[-1]) - rise.onset.step, 1.0)
    told = ", as the answers grow longer" if longer else ""
    return Finding(
        severity=severity,
        says=f"{kind} crept from {rise.early:.1f} to {rise.late:.1f} GiB, {rate:.2g} GiB per 100 steps now{told}",
        numbers={"early": rise.early, "late": rise.late, "growth": growth},
        metrics=(metric,),
        onset=rise.onset,
        evidence=rise.sized(growth),
        forecast=full,
        remedies=("length_penalty", "bound_memory") if longer else ("bound_memory", "restart_often"),
        would_decide=() if size else ("the size of the device: when will it be full?",),
    )


def _creep(run: Run, metric: str, limits: Limits) -> Lasting | None:
    """The rise of a memory that is still growing as fast as before; a jump, and records that become rare, are none."""
    c = run[metric].finite
    rise = lasting(c, falling=False, level=limits["p_value"])
    if rise is None or rise.abrupt or rise.early <= 0 or limits.grade("growth", rise.late / rise.early - 1.0) is None:
        return None
    pace = acceleration(c.steps, c.values)
    return rise if pace.late >= limits["pace"] * pace.early else None


def _with_length(run: Run, limits: Limits) -> bool:
    for metric in ("length.response.mean", "length.response.max"):
        rise = lasting(run[metric], falling=False) if metric in run else None
        if rise is not None and rise.early > 0 and rise.late / rise.early - 1.0 > limits["longer"]:
            return True
    return False


def _device(run: Run) -> float | None:
    """The memory of the device in GB, where the name of the hardware states it."""
    found = re.search(r"(\d{2,3})\s?Gi?B", run.facts.get("hardware", ""))
    return float(found[1]) if found else None
