"""Answers run into loops that repeat themselves until they are cut.

## What you see
Saved answers end in a loop: one piece again and again up to the end, a filler of one character, sentences in which only
numbers change. Or the logged share of repetitive answers is high. Without both: more and more answers reach the length
limit while entropy falls and the answers that do end grow no longer, so that two kinds of answers stand side by side.

## Why it matters
A loop is certain of its next token and never ends: it costs the full length, earns nothing and drives entropy down.

## When it is not a problem
Answers that all grow reach the limit too, and end when it is raised. Rows of one token after a NaN are broken weights,
not a habit. A broken sampler repeats as well; the trainer then finds the text unlikely. Tables, code, refrains and short
answers are no loops, nor is what prompt or truth repeat.
"""

from dataclasses import replace

from rlclinic.answers import agreement, texts
from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import Lasting, at_seam, bought, lasting, now, since
from rlclinic.checks.wording import counted
from rlclinic.model import ROLLOUTS, Column, Evidence, Finding, Run, Severity
from rlclinic.stats.level import lower_bound, trials_per_row

_CURES = ("repetition_control", "kl_coefficient", "roll_back")


@check(
    page=__doc__,
    uses=["text.repetition_frac", "length.truncated_frac", "entropy.mean", "length.terminated.mean"],
    since="0.2",
)
def repetition_loop(run: Run, limits: Limits) -> Answer:
    logged, words = run.get("text.repetition_frac"), texts.of(run)
    seen = words.repetition if words is not None else None
    if logged is not None and len(logged.finite) and logged.key != agreement.KEY:
        found = _logged(run, logged.finite, limits)
        if found.severity is not None or seen is None:
            return found
    if seen is not None and len(seen) >= limits["answers"]:
        return _seen(run, seen, limits)
    cut, entropy = run.get("length.truncated_frac"), run.get("entropy.mean")
    if run.short or cut is None or entropy is None or len(cut.finite) < limits["rows"]:
        return Unexamined((ROLLOUTS, "text.repetition_frac"), "needs saved answers, or the share of repetitive ones")
    share = now(run, cut.finite.values)
    rise = lasting(cut, falling=False, level=limits["p_value"])
    fall = lasting(entropy, falling=True, level=limits["p_value"]) if rise is not None else None
    if rise is None or fall is None or rise.change < limits["rise"] or fall.late > limits["entropy"] * fall.early:
        return Finding(
            severity=None,
            says=f"{share:.0%} of answers are cut, without a rise that goes with falling entropy",
            numbers={"cut": share},
            metrics=("length.truncated_frac", "entropy.mean"),
        )
    return _suspected(run, rise, fall, limits)


def _seen(run: Run, share: texts.Measure, limits: Limits) -> Finding:
    """What the words of saved answers show; a share that falls as training goes on is no more than a remark."""
    metrics = ("text.repetition_frac", "length.truncated_frac", "entropy.mean")
    found = counted(run, share, limits, "end in a loop", metric=metrics[0], metrics=metrics, remedies=_CURES)
    waning = len(share.steps) > 1 and share.late.value <= limits["waning"] * share.early.value
    return replace(found, severity=Severity.INFO) if found.severity is not None and waning else found


def _logged(run: Run, share: Column, limits: Limits) -> Finding:
    level = now(run, share.values)
    rows = max(1, len(share) // 3 if run.short else len(share) // 4)
    severity = limits.grade("share", lower_bound(level, rows * trials_per_row(share.values)))
    began = (
        None
        if severity is None
        else since(share, limits.at("share", Severity.WARNING), level, told=limits.at("share", severity))
    )
    return Finding(
        severity=severity,
        says=f"{level:.1%} of answers repeat themselves" + at_seam(run, began, share),
        numbers={"late": level, "first": float(share.values[: max(1, len(share) // 10)].mean())},
        metrics=tuple(m for m in ("text.repetition_frac", "length.truncated_frac", "entropy.mean") if m in run),
        onset=began,
        evidence=Evidence(level, None, f"{share.key}, Wilson lower bound"),
        remedies=_CURES,
    )


def _suspected(run: Run, rise: Lasting, fall: Lasting, limits: Limits) -> Finding:
    """More cut answers with less entropy: a warning only where those that end grow no longer and nothing was gained."""
    ended = run.get("length.terminated.mean")
    grown = None
    if ended is not None and len(ended.finite) >= limits["rows"] and rise.late < limits["all"]:
        growth = lasting(ended, falling=False, level=limits["p_value"])
        grown = growth is not None and growth.late > limits["growth"] * growth.early
    gain = bought(run, since=rise.onset.step)
    loops = grown is False and gain is not None and gain.falling
    paid = gain is not None and gain.rising
    told = (
        f"{rise.early:.0%} of answers were cut, {rise.late:.0%} are now, while entropy fell from {fall.early:.3g} to "
    )
    told += f"{fall.late:.3g}"
    told += "; those that end grew no longer" if grown is False else ""
    return Finding(
        severity=Severity.WARNING if loops else None if paid else Severity.INFO,
        says=told + (f"; {gain.says}" if gain is not None else "") + ("" if paid else "; consistent with loops"),
        numbers={"cut": rise.late, "entropy": fall.late},
        metrics=tuple(m for m in ("length.truncated_frac", "entropy.mean", "length.terminated.mean") if m in run),
        onset=rise.onset,
        evidence=rise.sized(rise.change),
        remedies=_CURES,
        would_decide=("ten of the answers that reach the limit: do they end in a loop?",),
    )
