"""Answers lose the form that the scorer reads, or never have it.

## What you see
The part of the reward that pays for form (format, tags, JSON) falls from a held level, or stays at 0 while correctness
does too; or the logged share of answers with broken form is high.

## Why it matters
What cannot be parsed earns nothing, however right it is. The policy is then taught by parser errors.

## When it is not a problem
Answers cut by the length limit never close their tags. A form that is never met while correctness is learned all the
same is a dead part of the reward. Special tokens stripped before scoring break the form without the policy's doing.
"""

import re

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import Lasting, at_seam, bought, lasting, now
from rlclinic.checks.rewards import parts_named, task_parts
from rlclinic.model import Column, Component, Evidence, Finding, Run, Severity
from rlclinic.stats.level import held

_FORM = re.compile(r"format|(^|_)tags?(_|$)|xml|json|pars(e|ing|able)|struct|template|schema|boxed", re.I)


@check(page=__doc__, uses=["text.format_error_frac", "length.truncated_frac", "reward.mean"], since="0.2")
def format_break(run: Run, limits: Limits) -> Answer:
    errors, parts = run.get("text.format_error_frac"), parts_named(run, _FORM)
    if errors is not None and len(errors.finite):
        return _errors(run, errors.finite, limits)
    if not parts and run.components:
        return NotApplicable("no part of the reward is named after the form of the answers")
    if not parts:
        return Unexamined(("reward.component.mean", "text.format_error_frac"), "no reward part for the form is logged")
    falls = [(part, fall) for part in parts if (fall := _lost(run, part, limits)) is not None]
    if falls:
        part, fall = max(falls, key=lambda one: -one[1].change / max(abs(one[1].early), 1e-9))
        return _fell(run, part, fall, limits)
    mute = [part for part in parts if not part.mean.finite.values.any()]
    task = [c for c in task_parts(run) if c not in parts]
    barren = bool(task) and all(now(run, c.mean.finite.values) <= limits["paid"] for c in task if len(c.mean.finite))
    never = len(mute) == len(parts) and barren
    level, cut = now(run, parts[0].mean.finite.values), _cut(run, limits)
    certain = len(parts[0].mean.finite) >= limits["rows"] and cut is None
    severity = (Severity.WARNING if certain else Severity.INFO) if never else None
    says = (
        f"{parts[0].name} is 0 in every row and {task[0].name} earns nothing: no answer has the form that is read"
        if never
        else ""
    )
    return Finding(
        severity=severity,
        says=(says + (f"; {cut}" if cut and never else "")) or f"{parts[0].name} holds its level ({level:.3g} now)",
        numbers={"late": level},
        metrics=tuple(m for m in ("reward.mean", "length.truncated_frac") if m in run),
        evidence=Evidence(level, None, "level of the parts paid for form"),
        remedies=("read_raw_answers", "score_gold_answers", "warm_start"),
        would_decide=("ten raw answers, special tokens kept, beside the pattern that the scorer looks for",),
    )


def _lost(run: Run, part: Component, limits: Limits) -> Lasting | None:
    """The fall of a part from a level it had held, if it fell for good and far."""
    if run.excerpt:
        return None
    fall = lasting(part.mean, falling=True, level=limits["p_value"])
    values = part.mean.finite.values
    floor = min(0.0, float(values.min()))
    kept = held(values)[0].max() - floor
    return (
        fall
        if fall is not None and fall.early > floor and -fall.change > limits.at("share", Severity.WARNING) * kept
        else None
    )


def _fell(run: Run, part: Component, fall: Lasting, limits: Limits) -> Finding:
    floor = min(0.0, float(part.mean.finite.values.min()))
    share = -fall.change / max(fall.early - floor, 1e-12)
    severity = limits.grade("share", share)
    gain = bought(run, since=fall.onset.step)
    cut = _cut(run, limits)
    if severity is not None and (cut is not None or (gain is not None and gain.rising)):
        severity = Severity.INFO
    elif severity == Severity.CRITICAL and not (gain is not None and gain.falling) and not _task_fell(run, part):
        severity = Severity.WARNING  # nothing shows that the form mattered
    told = [f"{part.name} fell from {fall.early:.3g} to {fall.late:.3g}"]
    told += [gain.says] if gain is not None else []
    told += [cut] if cut is not None else []
    return Finding(
        severity=severity,
        says="; ".join(told) + at_seam(run, fall.onset, part.mean.finite),
        numbers={"early": fall.early, "late": fall.late, "share": share},
        metrics=tuple(m for m in ("reward.mean", "length.truncated_frac", "eval.score") if m in run),
        onset=fall.onset,
        evidence=fall.sized(share),
        remedies=("response_budget",) if cut is not None else ("read_raw_answers", "roll_back", "kl_coefficient"),
        would_decide=("ten raw answers, special tokens kept, beside the pattern that the scorer looks for",),
    )


def _task_fell(run: Run, form: Component) -> bool:
    return any(lasting(part.mean, falling=True) is not None for part in task_parts(run) if part.name != form.name)


def _cut(run: Run, limits: Limits) -> str | None:
    """Words for cut answers that explain unclosed tags; None where few are cut."""
    cut = run.get("length.truncated_frac")
    share = 0.0 if cut is None or not len(cut.finite) else now(run, cut.finite.values)
    return f"{share:.0%} of answers are cut and cannot close their form" if share > limits["cut"] else None


def _errors(run: Run, errors: Column, limits: Limits) -> Finding:
    level = now(run, errors.values)
    severity, cut = limits.grade("errors", level), _cut(run, limits)
    if severity is not None and cut is not None:
        severity = Severity.INFO
    return Finding(
        severity=severity,
        says=f"{level:.0%} of answers lack the form that is read" + (f"; {cut}" if cut is not None else ""),
        numbers={"late": level},
        metrics=("text.format_error_frac",),
        evidence=Evidence(level, None, errors.key),
        remedies=("read_raw_answers", "warm_start"),
    )
