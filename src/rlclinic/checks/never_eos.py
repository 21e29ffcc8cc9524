"""The model never ends an answer: every answer, from the first step on, runs to the limit.

## What you see
The share of cut answers is about 1 from the start; shortest, mean and longest answer are all equal to the limit; no
answer that ended by itself is ever counted.

## Why it matters
No answer is finished, so rewards that need a result, or a length, are constant. Lowering the limit only cuts more.

## When it is not a problem
Answers that end with a stop string or with an end-of-turn token that is not the tokenizer's end token are counted as
cut although they are whole. A tiny limit looks the same: raise it fourfold on twenty prompts and see.
"""

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import bought
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity


@check(page=__doc__, uses=["length.truncated_frac", "length.terminated.mean", "length.stop_count"], since="0.1")
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
    if ended is not None and len(ended.finite):
        none = float((ended.finite.values == 0).mean())
        says += f"; no answer ends by itself in {none:.0%} of rows"
    return _finding(run, cut, share, says, limits, certain=True)


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
        remedies=("stop_tokens", "response_budget", "warm_start"),
        would_decide=("20 prompts with four times the limit: do the answers end then?",) if fires else (),
    )
