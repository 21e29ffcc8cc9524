"""The model hardly ever ends an answer: from the first step on, nearly every one runs to the limit.

## What you see
The share of cut answers is about 1 from the start; shortest, mean and longest answer are all equal to the limit; no
answer that ended by itself is ever counted.

## Why it matters
No answer is finished, so rewards that need a result, or a length, are constant. Lowering the limit only cuts more.

## When it is not a problem
Answers that end with a stop string or with an end-of-turn token that is not the tokenizer's end token are counted as
cut although they are whole. A tiny limit looks the same: raise it fourfold on twenty prompts and see.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import bought
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import middle
from rlclinic.vitals import LEFT_OUT

_SAME = 0.01
"""Share by which lengths may differ and still be one limit (ours: a limit counted with or without its last token)."""


@check(
    page=__doc__,
    uses=[
        "length.truncated_frac",
        "length.terminated.mean",
        "length.stop_count",
        "length.response.mean",
        "length.response.min",
        "length.response.max",
    ],
    since="0.1",
)
def never_eos(run: Run, limits: Limits) -> Answer:
    cut, ended, stops = (
        run.get("length.truncated_frac"),
        run.get("length.terminated.mean"),
        run.get("length.stop_count"),
    )
    if stops is not None and len(stops.finite):
        none = float((stops.finite.values == 0).mean())
        return _finding(run, stops, none, f"{stops.key} is 0 in {none:.0%} of rows", limits, certain=False)
    if cut is None or not len(cut.finite):
        return Unexamined(("length.truncated_frac",), "no share of cut answers and no count of end tokens is logged")
    c = cut.finite
    share = float((c.values >= limits["share"]).mean())
    shown = " shown" if run.excerpt else ""
    says = f"{c.values.mean():.0%} of answers reach the limit from the first row{shown} to the last"
    if ended is not None and (len(ended.finite) or LEFT_OUT in ended.note):
        none = float((ended.finite.values == 0).mean()) if len(ended.finite) else 1.0
        if LEFT_OUT in ended.note:
            none = float((~np.isin(c.steps, ended.steps)).mean())
        says += f"; no answer ends by itself in {none:.0%} of rows"
        share = min(share, none)
    if run.short and share >= limits["rows"]:
        # A few rows are soon all cut by a limit that is merely too low: here the lengths have to show it too.
        proof, unlike = _one_length(run)
        if unlike:
            return Finding(
                severity=None,
                says=f"{c.values.mean():.0%} of answers reach the limit{shown}, but {unlike}: is the limit too low?",
                numbers={"rows": share},
                metrics=(cut.metric,),
                evidence=Evidence(share, None, "counted in the log"),
            )
        says += f"; {proof}" if proof else "; the lengths are not shown, so a limit that is too low is not ruled out"
        return _finding(run, cut, share, says, limits, certain=bool(proof))
    return _finding(run, cut, share, says, limits, certain=True)


def _one_length(run: Run) -> tuple[str, str]:
    """What the lengths say for a model that never stops (all answers have one length, none ended by itself), and what
    against it; both in words, empty where they say nothing."""
    ended = run.get("length.terminated.mean")
    if ended is not None and len(ended.finite) and middle(ended.finite.values) > 0:
        return "", f"those that end take {middle(ended.finite.values):.0f} tokens"
    mean = run.get("length.response.mean")
    if mean is None or not len(mean.finite):
        return ("no answer ended by itself" if ended is not None else ""), ""
    typical = float(mean.finite.values.mean())
    for metric, word in (("length.response.min", "shortest"), ("length.response.max", "longest")):
        other = run.get(metric)
        if other is not None and len(other.finite):
            value = float(other.finite.values.mean())
            if abs(value - typical) > _SAME * typical:
                return "", f"the {word} has {value:.0f} tokens and the mean {typical:.0f}"
    limit = run.number("max_response_length")
    pinned = "length.response.min" in run and "length.response.max" in run
    if limit and not pinned and typical < (1.0 - _SAME) * limit:
        return "", f"the mean has {typical:.0f} of {limit:.0f} tokens"
    known = limit or ended is not None or "length.response.min" in run
    return (f"every answer has {typical:.0f} tokens" if known else ""), ""


def _finding(run: Run, column: Column, share: float, says: str, limits: Limits, *, certain: bool) -> Finding:
    c = column.finite
    from_start = (
        bool(c.values[0] == 0) if column.metric == "length.stop_count" else bool(c.values[0] >= limits["share"])
    )
    fires = from_start and share >= limits["rows"]
    severity = (Severity.CRITICAL if certain else Severity.WARNING) if fires else None
    gain = bought(run, since=float(c.steps[0])) if fires and not run.short else None
    if gain is not None and gain.rising:
        severity, says = Severity.WARNING, f"{says}; the reward rises all the same"
    start = float(c.steps[0])
    return Finding(
        severity=severity,
        says=says if fires else "answers end by themselves in part of the log",
        numbers={"rows": share},
        metrics=(column.metric,),
        onset=Onset(start, start, start) if fires else None,
        evidence=Evidence(share, None, "counted in the log"),
        remedies=("stop_tokens", "warm_start", "response_budget", "penalise_truncated"),
        would_decide=("20 prompts with four times the limit: do the answers end then?",) if fires else (),
    )
