"""Answers are empty, or end within a few tokens.

## What you see
A share of the answers has no tokens at all (saved ones are counted one by one), or the mean length of an answer is a
handful of tokens, while the reward sits at its floor and the answers of a group are all alike.

## Why it matters
Nothing is said, so nothing can be learnt. Some trainers leave empty answers out of their means: a policy that answers
nothing then keeps a good reward in the log.

## When it is not a problem
Tasks that ask for a label or a number have answers of a few tokens, and such answers earn something at some time. An
engine that gives up on a request also returns nothing: its own log holds the error then.
"""

from dataclasses import replace

from rlclinic.answers import agreement, texts
from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import now, since
from rlclinic.checks.rewards import at_floor, has_earned
from rlclinic.checks.wording import counted
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import early, late, lower_bound, middle, trials_per_row
from rlclinic.stats.shift import crossing

_FELL = 5.0
"""Times the present length that the first answers must have had (ours: a model that grows concise does not come near)."""


@check(page=__doc__, uses=["length.aborted_frac", "length.response.mean", "reward.mean"], since="0.2")
def empty_answers(run: Run, limits: Limits) -> Answer:
    share, length = run.get("length.aborted_frac"), run.get("length.response.mean")
    words = texts.of(run)
    seen = _seen(run, words, limits) if words is not None else None
    if seen is not None and seen.severity is not None:
        return seen
    if share is not None and share.key == agreement.KEY:
        share = None
    by_share = _by_share(run, share, limits) if share is not None and len(share.finite) else seen
    if by_share is not None and by_share.severity is not None:
        return by_share
    by_length = _by_length(run, length, limits) if length is not None and len(length.finite) else None
    return (
        by_length or by_share or Unexamined(("length.response.mean",), "neither lengths nor a share of empty answers")
    )


def _seen(run: Run, words: texts.Texts, limits: Limits) -> Finding | None:
    """What saved answers show: those that say nothing, and those that the engine gave up; None where neither is known."""
    shares = [one for one in (words.empty, words.aborted) if one is not None]
    if not shares:
        return None
    share = max(shares, key=lambda one: one.late.value)
    gone = share is words.aborted
    told = "were aborted" if gone else "are empty or next to it"
    metrics = ("length.aborted_frac", "reward.mean")
    found = counted(run, share, limits, told, metric=metrics[0], metrics=metrics, remedies=("read_short_answers",))
    ask = ("the engine's log: why was a request given up?",) if found.severity is not None and gone else ()
    return replace(found, would_decide=ask)


def _by_share(run: Run, column: Column, limits: Limits) -> Finding:
    c = column.finite
    level = now(run, c.values)
    rows = max(1, len(c) // 3 if run.short else len(c) // 4)
    sure = lower_bound(level, rows * trials_per_row(c.values))
    severity = limits.grade("share", sure)
    return Finding(
        severity=severity,
        says=f"{level:.1%} of answers are empty or were aborted{'; they do not count in the reward' if severity else ''}",
        numbers={"share": level, "at_least": sure},
        metrics=(column.metric,),
        onset=since(column, limits.at("share", Severity.WARNING), level, told=limits.at("share", severity))
        if severity
        else None,
        evidence=Evidence(level, None, "share of answers without tokens, Wilson lower bound"),
        remedies=("read_short_answers",),
        would_decide=("the reason each empty answer ended: end token first, or an engine that gave up?",)
        if severity
        else (),
    )


def _by_length(run: Run, column: Column, limits: Limits) -> Finding:
    c = column.finite
    level = middle(c.values) if run.short else late(c.values)
    first = early(c.values, 0.02, 3)
    few = level <= limits["tokens"]
    dead = _all_alike(run)
    floor = at_floor(run)
    fell = first >= _FELL * max(level, 1.0)
    severity = None
    if few and (fell or not has_earned(run)):
        severity = Severity.CRITICAL if dead or floor else Severity.WARNING if fell else None
    why = "the reward is at its floor" if floor else "all answers of a group earn the same" if dead else ""
    detail = f"; {why}" if few and why else "; as the task may ask" if few and severity is None else ""
    start = float(c.steps[0])
    began = crossing(c.steps, c.values, limits["tokens"], above=False) if fell else Onset(start, start, start)
    return Finding(
        severity=severity,
        says=f"the mean answer has {level:.3g} tokens" + (f", {first:.0f} at first" if fell else "") + detail,
        numbers={"tokens": level, "first": first},
        metrics=tuple(m for m in ("length.response.mean", "reward.mean") if m in run),
        onset=began if severity else None,
        evidence=Evidence(level, None, "late median length"),
        remedies=("read_short_answers", "roll_back") if fell else ("read_short_answers", "stop_tokens"),
        would_decide=("ten raw answers with the reason they ended",) if severity else (),
    )


def _all_alike(run: Run) -> bool:
    for metric in ("group.zero_var_frac", "group.all_dead"):
        column = run.get(metric)
        if column is not None and column.status == "measured" and len(column.finite):
            return now(run, column.finite.values) >= 0.9
    return False
