"""Vital series are absent from the log, so whole kinds of failure cannot be seen.

## What you see
No entropy, no spread within groups, no gradient norm, no reward, or no row at all.

## Why it matters
A run looks fine when nothing is measured. Each missing series blinds some checks; one flag usually turns it on.

## When it is not a problem
A pasted excerpt never shows everything, nor does a console that prints some of the metrics; and some trainers cannot
log some series.
"""

import re

from rlclinic.checks.form import Limits, check
from rlclinic.model import Evidence, Finding, Run, Severity

SPREAD = "group.zero_var_frac|reward.group_std|group.all_dead|group.mixed_frac|group.all_wrong_frac"
VITAL = {
    "reward.mean": "reward",
    SPREAD: "spread within groups",
    "entropy.mean|entropy.sampled": "entropy",
    "grad.norm": "gradient norm",
    "length.response.mean": "response length",
    "length.truncated_frac": "share of cut answers",
}

_SUM = re.compile(r"combin|total|overall|weighted|aggregat|blend|(^|_)(sum|mix)(_|$)", re.I)
"""Names of a reward that is put together from several parts."""


@check(page=__doc__, uses=[m for need in VITAL for m in need.split("|")], since="0.1")
def metric_not_logged(run: Run, limits: Limits) -> Finding:
    absent = {need: name for need, name in VITAL.items() if not any(m in run for m in need.split("|"))}
    if not len(run.steps) and run.unrecognised:
        shown = ", ".join(unknown.key[:40] for unknown in run.unrecognised[:3])
        return Finding(
            severity=Severity.INFO if run.partial else Severity.WARNING,
            says=f"none of the {len(run.unrecognised)} keys of this log is known ({shown})",
            numbers={"absent": float(len(VITAL)), "unknown": float(len(run.unrecognised))},
            remedies=("name_keys",),
            would_decide=("the trainer and its version",),
        )
    if not len(run.steps):
        ending = ": the log ends in an error before one" if run.ending else ""
        return Finding(
            severity=Severity.CRITICAL,
            says=f"no training step is in the log{ending}",
            numbers={"absent": float(len(VITAL))},
            remedies=("read_the_error",),
        )
    lumped = _lumped(run)
    if not absent and not lumped:
        return Finding(severity=None, says="every vital series is logged", numbers={"absent": 0.0})
    core = {"entropy.mean|entropy.sampled", SPREAD}
    blind = "reward.mean" in absent or len(absent) > limits["many"] or core <= set(absent)
    severity = Severity.WARNING if blind and not run.partial and not run.short else Severity.INFO
    if not absent:
        return Finding(severity, lumped, {"absent": 0.0}, remedies=("log_reward_parts",))
    where = "are not logged" if not run.partial else "are not among the lines shown"
    if not run.logged:
        where = "are not in the saved answers, and no log was given"
    alike = [u.key[:40] for u in run.unrecognised if "reward" in u.key.lower()][:3] if "reward.mean" in absent else []
    return Finding(
        severity=severity,
        says=f"{', '.join(absent.values())} {where if len(absent) > 1 else where.replace('are', 'is', 1)}"
        + (f" ({', '.join(alike)} may be of the reward: name it with --names)" if alike else "")
        + (f"; {lumped}" if lumped else ""),
        numbers={"absent": float(len(absent))},
        evidence=Evidence(len(absent) / len(VITAL), None, "keys of the log"),
        remedies=(*(("name_keys",) if alike else ()), "log_more", *(("log_reward_parts",) if lumped else ())),
        would_decide=tuple(need.split("|")[0] for need in absent),
    )


def _lumped(run: Run) -> str:
    """Words for a reward of several parts that is logged as one sum; empty where nothing says that it has parts."""
    parts = tuple(run.components.values())
    if len(parts) != 1 or not _SUM.search(parts[0].name):
        return ""
    return f"of the reward only the sum {parts[0].name} is logged, so which part drives it cannot be told"
