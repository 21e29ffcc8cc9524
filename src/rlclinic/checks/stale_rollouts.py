"""The samples are many policy versions old when they are trained on, and nothing corrects for it.

## What you see
The age of the sampling policy is several versions, often at its limit; clip fraction and the KL to the sampling policy
are up with it, and few samples count once they are weighted.

## Why it matters
The gradient is that of an older policy. A few versions are harmless; beyond that the ratios grow wild and clipping or
weighting throws most of the batch away.

## When it is not a problem
Asynchronous training with importance weights or a decoupled loss is made for some age, and a reward that rises all the
same says that it is borne. Several updates per batch add to the age without any waiting.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import bought, now, since
from rlclinic.checks.sampled import told_by
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity

_AGES = ("offpolicy.staleness.mean", "offpolicy.version_min")


@check(page=__doc__, uses=[*_AGES, "mismatch.is.ess", "clip.frac", "kl.old_new", "reward.mean"], since="0.2")
def stale_rollouts(run: Run, limits: Limits) -> Answer:
    age = _age(run)
    if age is None and not run.partial and not any(name.startswith("offpolicy.") for name in run.columns):
        return NotApplicable("nothing in the log says that sampling runs ahead of training")
    if age is None:
        return Unexamined(("offpolicy.staleness.mean",), "the age of the samples is not logged")
    level = now(run, age.values)
    severity = limits.grade("versions", level)
    counts = run.get("mismatch.is.ess")
    share = now(run, counts.finite.values) if counts is not None and len(counts.finite) else None
    corrected = run.knob("sampler_correction") not in (None, False, "off", "none") or "mismatch.is.mean" in run
    gain = bought(run, since=float(age.steps[0])) if severity is not None and not run.short else None
    few = share is not None and share < limits["counted"]
    if severity is not None and few:
        severity = Severity.CRITICAL
    elif severity is not None and (corrected or (gain is not None and gain.rising)):
        severity = Severity.INFO
    least = limits.at("versions", Severity.WARNING)
    began: Onset | None = since(age, least, level, told=least) if severity is not None else None
    how = "" if severity is None else ", with correcting weights" if corrected else ", without correcting weights"
    return Finding(
        severity=severity,
        says=f"{told_by(run, *_AGES)}samples are {level:.3g} policy versions old when trained on{how}"
        + (f"; only {share:.0%} of them count after weighting" if few else "")
        + (f"; {gain.says}" if gain is not None else ""),
        numbers={
            "versions": level,
            "largest": float(age.values.max()),
            **({} if share is None else {"counted": share}),
        },
        metrics=tuple(
            m for m in ("offpolicy.staleness.mean", "mismatch.is.ess", "clip.frac", "kl.old_new") if m in run
        ),
        onset=began,
        evidence=Evidence(level, None, "present age against a level"),
        remedies=("staleness_limit", *(() if corrected else ("rollout_is_correction",)), "off_policy_sequence_mask")
        + (("updates_per_batch",) if (run.number("inner_epochs") or 1) > 1 else ()),
        would_decide=("100 steps with an age of at most 1: does the reward rise faster per step?",) if severity else (),
    )


def _age(run: Run) -> Column | None:
    """Mean age of the samples in versions, as logged or as the present version less the oldest one (then the largest)."""
    logged = run.get("offpolicy.staleness.mean")
    if logged is not None and len(logged.finite):
        return logged.finite
    steps, present, oldest = run.paired("offpolicy.version", "offpolicy.version_min")
    if not len(steps):
        return None
    return Column("offpolicy.staleness.max", run["offpolicy.version_min"].key, steps, np.maximum(present - oldest, 0.0))
