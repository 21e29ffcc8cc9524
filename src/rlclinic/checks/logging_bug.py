"""A series in the log cannot be what its name says.

## What you see
A share outside 0 to 1, an entropy or a length below 0, a k3 estimate of KL below 0, the smallest answer longer than the
mean, a share of live groups beside a batch without any spread, a measurement frozen to its last digit. Or saved answers
whose mean reward is not the logged one: they are of another run, or their total is another one.

## Why it matters
What is drawn from such a series is drawn from a mistake of the logger. It is kept from every other check, and what these
would have seen stays unseen until it is repaired. Answers of another run say nothing of this one; no check judges them.

## When it is not a problem
The plain k1 estimate of KL is a mean of log ratios and may be negative. Rounding carries a share a little beyond 1. A
share logged in percent is sound in itself; only its scale has to be known. A utilisation above 1 means that the peak of
the hardware was guessed too low, and says nothing about training.
"""

from rlclinic.answers import agreement
from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.model import Evidence, Finding, Run, Severity

ASIDE = ("perf/", "perf.", "timing", "time", "mfu", "memory", "tokens", "throughput")
"""How keys begin that no other check rests on."""
LONGEST = 190
"""Letters of two series together beyond which only the first is told."""


@check(page=__doc__, since="0.2")
def logging_bug(run: Run, limits: Limits) -> Answer:
    foreign = agreement.foreign(run)
    looked = len(run.columns) + len(run.distrusted)
    if not looked:
        return Unexamined((), "the log holds no series to look at")
    wrong = dict(run.distrusted)
    vital = [key for key in wrong if not key.lower().removeprefix("train/").startswith(ASIDE)]
    severity = limits.grade("series", len(vital)) or (Severity.INFO if wrong else None)
    ranked = [*vital, *(key for key in wrong if key not in vital)]
    shown = [f"{key[-60:]} {wrong[key]}" for key in ranked]
    told = shown[:2] if len("; ".join(shown[:2])) <= LONGEST else shown[:1]
    says = "; ".join(told) + (f"; and {len(wrong) - len(told)} more" if len(wrong) > len(told) else "")
    says = f"{says}; no other check reads it" if wrong else f"none of {looked} series holds impossible values"
    if foreign:
        severity = max(severity or Severity.WARNING, Severity.WARNING)
        says = f"{foreign}; {says}" if wrong else foreign
    return Finding(
        severity=severity,
        says=says,
        numbers={"series": float(len(wrong)), "looked_at": float(looked)},
        evidence=Evidence(
            len(wrong) / looked, None, "bounds of each quantity, and series that must agree with each other"
        ),
        remedies=() if foreign and not wrong else ("repair_logging",),
        would_decide=(
            *(("the folder of answers that this very run saved",) if foreign else ()),
            *(("the code that computes the logged value",) if wrong and severity else ()),
        ),
    )
