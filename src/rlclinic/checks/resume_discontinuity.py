"""The run was resumed, and not all of its state came with it.

## What you see
Where the log starts again, the learning rate warms up anew, KL to the reference falls to 0, or reward, gradient norm,
entropy or answer length make a step.

## Why it matters
An optimizer without its moments and with a fresh warm-up is another optimizer. A KL that starts at 0 is measured from the
resumed policy: the distance travelled before is forgotten. Prompts that repeat count twice.

## When it is not a problem
The twenty rows on either side lie in one band: the resume worked, and is only told. Several runs in one file each start
with their own warm-up. Schedules with restarts fall and rise by design.
"""

from dataclasses import dataclass

import numpy as np

from rlclinic import vitals
from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import middle
from rlclinic.stats.shift import steps_found

STEPS = {
    "reward.mean": "reward",
    "grad.norm": "gradient norm",
    "entropy.mean": "entropy",
    "length.response.mean": "answer length",
}
"""What may make a step at a resume, in plain words."""
AROUND = 80
"""Rows on either side in which a step is looked for (ours: enough for the scan, and little of the rest of the run)."""


@dataclass(frozen=True)
class Seam:
    """What changed at one resume; ``scratch`` when the run began anew there, ``seen`` what told of it."""

    step: float
    seen: str
    rate: bool
    kl: bool
    moved: tuple[str, ...]
    p_value: float | None
    scratch: bool

    @property
    def severity(self) -> Severity:
        proven = self.seen != vitals.WARM_UP or self.kl or bool(self.moved)
        if self.rate and proven and not self.scratch:
            return Severity.CRITICAL
        return Severity.WARNING if self.rate or self.kl or self.moved else Severity.INFO

    @property
    def says(self) -> str:
        changed = ["the learning rate starts its schedule again"] * (self.rate and self.seen != vitals.WARM_UP)
        changed += ["KL to the reference starts at 0"] * self.kl + [f"{name} makes a step" for name in self.moved]
        kind = "; from there on it is another run in the same file" if self.scratch else ""
        calm = "" if self.rate or self.scratch else "; the rows on either side lie in one band"
        return f"at step {self.step:g} {self.seen}{kind}" + ("; " + ", ".join(changed) if changed else calm)


@check(page=__doc__, uses=["optim.lr", "kl.ref", *STEPS], since="0.2")
def resume_discontinuity(run: Run, limits: Limits) -> Answer:
    if len(run.steps) < limits["rows"]:
        return Unexamined((), "too few rows to see a resume in")
    seams = [_seam(run, limits, step, seen) for step, seen in sorted(run.seams.items())]
    if not seams:
        return Finding(severity=None, says="the log shows no resume", numbers={"resumes": 0.0})
    worst = max(seams, key=lambda seam: (seam.severity, -seam.step))
    others = f"; {len(seams) - 1} more resume{'s' * (len(seams) > 2)}" if len(seams) > 1 else ""
    harm = worst.severity > Severity.INFO
    title = "The run starts anew in the middle of its log." if worst.scratch else "" if harm else "The run was resumed."
    return Finding(
        severity=worst.severity,
        title=title,
        says=worst.says + others,
        numbers={"resumes": float(len(seams)), "learning_rate": float(worst.rate), "kl": float(worst.kl)},
        metrics=tuple(m for m in ("optim.lr", "kl.ref", *STEPS) if m in run),
        onset=Onset(worst.step, worst.step, worst.step),
        evidence=Evidence(float(worst.rate + worst.kl + len(worst.moved)), worst.p_value, "rows before and after"),
        remedies=(() if not harm else ("deduplicate_steps",) if worst.scratch else ("resume_state",)),
        would_decide=("what was saved: optimizer, schedule, data order, reference",) if harm else (),
    )


def _seam(run: Run, limits: Limits, step: float, seen: str) -> Seam:
    columns = {name: c.finite for m, name in STEPS.items() if (c := run.get(m)) is not None}
    looks = max(1, len(columns) * len(run.seams))
    moved = {name: p for name, c in columns.items() if (p := _step_at(c, step) * looks) <= limits["p_value"]}
    rate, kl, epoch = run.get("optim.lr"), run.get("kl.ref"), run.get("progress.epoch")
    again = rate is not None and vitals.schedule_again(rate, step, int(limits["around"]), limits["rate"])
    fresh = epoch is not None and bool((epoch.finite.since(step).values[:1] <= 1.01 * epoch.finite.values[0]).any())
    from_zero = kl is not None and kl.status == "measured" and _from_zero(kl.finite, step, limits)
    p_value = None if again or from_zero else min(moved.values(), default=None)
    scratch = run.began == step or fresh or seen.endswith((" to 0", " to 1"))
    return Seam(step, seen, again, from_zero, tuple(moved), p_value, scratch)


def _from_zero(kl: Column, step: float, limits: Limits) -> bool:
    """Whether KL falls at ``step`` from a level that means something to a tenth of every value before."""
    before, after = kl.values[kl.steps < step][-int(limits["around"]) :], kl.since(step).values[:3]
    if len(before) < 3 or not len(after) or kl.rounded_zero:
        return False
    return middle(before) > limits["kl"] and bool((before > 10 * middle(after)).mean() >= 0.9)


def _step_at(c: Column, step: float) -> float:
    """The p-value of a step whose interval holds ``step``, give or take a row; 1 without one."""
    at = int(np.searchsorted(c.steps, step))
    rows = slice(max(0, at - AROUND), at + AROUND)
    x, y = c.steps[rows], c.values[rows]
    if len(x) < 20:
        return 1.0
    pace = float(np.median(np.diff(x)))
    return min(
        (s.p_value for s in steps_found(x, y, hidden=False) if s.low - pace <= step <= s.high + pace), default=1.0
    )
