"""Prompts are longer than the limit and reach the model cut.

## What you see
A share of the prompts has exactly the length of the prompt limit, in every part of the log.

## Why it matters
A prompt that loses its beginning or its end is another task, mostly one that cannot be solved: such groups are all wrong,
and the policy is taught to answer half a question.

## When it is not a problem
Some trainers pad prompts only to the longest of the batch; then that one always "reaches the limit", and the limit differs
from row to row.
"""

import numpy as np

from rlclinic.checks.form import Limits, check
from rlclinic.checks.readings import now, since
from rlclinic.model import Evidence, Finding, Floats, Run, Severity
from rlclinic.stats.level import lower_bound, trials_per_row


@check(page=__doc__, needs=["length.prompt_clip_frac"], uses=["length.prompt.max"], since="0.2")
def prompt_over_limit(run: Run, limits: Limits) -> Finding:
    cut = run["length.prompt_clip_frac"]
    c = cut.finite
    share = now(run, c.values)
    rows = max(1, len(c) // 3 if run.short else len(c) // 4)
    sure = lower_bound(share, rows * trials_per_row(c.values))
    severity = limits.grade("share", sure)
    width = _width(run)
    if severity is not None and width is not None and np.ptp(width) > 0:
        says = (
            f"each batch's longest prompt sets the width ({width.min():.0f} to {width.max():.0f} tokens), no limit does"
        )
        return Finding(
            severity=None,
            says=says,
            numbers={"share": share},
            metrics=("length.prompt_clip_frac", "length.prompt.max"),
            evidence=Evidence(share, None, "longest prompt of the rows in which one reaches the limit"),
        )
    limit = f" of {width[0]:.0f} tokens" if width is not None else ""
    filtered = run.knob("filter_long_prompts") is True
    return Finding(
        severity=severity,
        says=f"{share:.1%} of prompts reach the prompt limit{limit}"
        + (" although over-long prompts are filtered" if severity and filtered else ""),
        numbers={"share": share, "at_least": sure},
        metrics=tuple(m for m in ("length.prompt_clip_frac", "length.prompt.max") if m in run),
        onset=since(cut, limits.at("share", Severity.WARNING), share, told=limits.at("share", severity))
        if severity
        else None,
        evidence=Evidence(share, None, "share of prompts at the limit, Wilson lower bound"),
        remedies=("prompt_budget",),
        would_decide=("how many prompts of the data are longer than the limit",) if severity else (),
    )


def _width(run: Run) -> Floats | None:
    """(n,) the longest prompt of the rows in which some prompt reaches the limit; None when it is not logged."""
    steps, at, longest = run.paired("length.prompt_clip_frac", "length.prompt.max")
    return longest[at > 0] if len(steps) and (at > 0).any() else None
