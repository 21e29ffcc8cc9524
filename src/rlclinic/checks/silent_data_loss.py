"""Masks and filters take a large part of the batch out of the loss, and no curve says so.

## What you see
The share of tokens or answers that a mask drops is high, or the mean correcting weight is far below 1 in a mode in which
dropped items count as 0. Reward and length are those of the whole batch and look as ever.

## Why it matters
The paid compute of the dropped part teaches nothing, and the rest is no fair sample: masks drop rare tokens, filters of
cut answers drop long ones.

## When it is not a problem
Dynamic sampling drops groups without reward spread by design; they would not have taught anything either. Weights that
are truncated rather than masked may average below 1 with nothing dropped.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import now, since
from rlclinic.model import Column, Evidence, Finding, Run, Severity

_SHARES = {
    "mismatch.masked_frac": "{:.0%} of the tokens are dropped because sampler and trainer disagree",
    "mismatch.masked_seq_frac": "{:.0%} of the answers lose tokens because sampler and trainer disagree",
    "mismatch.kept_frac": "{:.0%} of the batch is dropped because sampler and trainer disagree",
    "mask.frac": "{:.0%} of the tokens are dropped by a trust-region or off-policy mask",
    "mismatch.is.mean": "about {:.0%} of the batch is dropped: masked items count as 0 in the mean weight",
    "length.truncated_frac": "{:.0%} of the answers are cut by the length limit and masked for it",
}


@check(page=__doc__, uses=[*_SHARES, "mismatch.is.min", "group.kept_frac"], since="0.2")
def silent_data_loss(run: Run, limits: Limits) -> Answer:
    lost = {name: column for name in _SHARES if (column := _lost(run, name, limits)) is not None}
    kept = run.get("group.kept_frac")
    if not lost and (kept is None or not len(kept.finite)):
        return Unexamined(("mismatch.masked_frac",), "no share of masked or filtered data is logged")
    if not lost and kept is not None:
        share = 1.0 - now(run, kept.finite.values)
        return Finding(
            severity=Severity.INFO if share > limits.at("share", Severity.CRITICAL) else None,
            says=f"{share:.0%} of the prompts are filtered out before training, as the filter is meant to do",
            numbers={"share": share},
            metrics=("group.kept_frac",),
            evidence=Evidence(share, None, "present share against a level"),
            remedies=("harder_data",),
        )
    name = max(lost, key=lambda n: now(run, lost[n].values))
    column = lost[name]
    share = now(run, column.values)
    severity = limits.grade("share", share)
    cut = name == "length.truncated_frac"
    return Finding(
        severity=severity,
        says=_SHARES[name].format(share) + ("" if severity is None else "; reward and length count them all the same"),
        numbers={"share": share, "whole": float(np.mean(column.values))},
        metrics=(name,),
        onset=since(column, limits.at("share", Severity.WARNING), share, told=limits.at("share", severity))
        if severity is not None
        else None,
        evidence=Evidence(share, None, "present share against a level"),
        remedies=("response_budget", "soft_overlong_penalty")
        if cut
        else ("truncate_weights", "precision", "staleness_limit"),
        would_decide=("reward and length of the dropped answers beside those of the rest",) if severity else (),
        wasted=float(np.mean(column.values)) if severity is not None and name != "mismatch.masked_seq_frac" else None,
    )


def _lost(run: Run, name: str, limits: Limits) -> Column | None:
    """The share that is lost row by row; None where the log does not show it."""
    column = run.get(name)
    if column is None or column.status != "measured" or not len(column.finite):
        return None
    steps, values = column.finite.steps, column.finite.values
    if name == "length.truncated_frac" and run.knob("mask_truncated") is not True:
        return None
    if name == "mismatch.is.mean":
        # Only an exact 0 shows that something was masked; a truncated weight is small, never 0.
        at, least, _ = run.paired("mismatch.is.min", name)
        mode = run.knob("correction_mode") or run.knob("sampler_correction")
        known = isinstance(mode, str) and "truncate" in mode
        if known or not len(at) or float(np.mean(least == 0.0)) < limits["zeros"]:
            return None
        values = 1.0 - values
    if name == "mismatch.kept_frac":
        values = 1.0 - values
    return Column(name, column.key, steps, np.clip(values, 0.0, 1.0))
