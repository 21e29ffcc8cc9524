"""Answers lose the form that the scorer reads, or never have it.

## What you see
The part of the reward that pays for form (format, tags, JSON) falls from a held level, or stays at 0 while correctness
does too; the logged share of answers with broken form is high; or saved answers that were not cut leave a tag or a box
open, or lack what nearly all paid ones have.

## Why it matters
What cannot be parsed earns nothing, however right it is. The policy is then taught by parser errors.

## When it is not a problem
Answers cut by the length limit never close their tags. A form that is never met while correctness is learned all the
same is a dead part of the reward. Special tokens stripped before scoring break the form without the policy's doing.
"""

import re
from dataclasses import replace

from rlclinic.answers import agreement, texts
from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import Lasting, at_seam, bought, lasting, now
from rlclinic.checks.rewards import parts_named, task_parts
from rlclinic.checks.wording import counted, grew
from rlclinic.model import Column, Component, Evidence, Finding, Run, Severity
from rlclinic.stats.level import held

_FORM = re.compile(r"format|(^|_)tags?(_|$)|xml|json|pars(e|ing|able)|struct|template|schema|boxed", re.I)
_ASK = "ten raw answers, special tokens kept, beside the pattern that the scorer looks for"


@check(page=__doc__, uses=["text.format_error_frac", "length.truncated_frac", "reward.mean"], since="0.2")
def format_break(run: Run, limits: Limits) -> Answer:
    errors, parts, seen = run.get("text.format_error_frac"), parts_named(run, _FORM), _seen(run, limits)
    if seen is not None and (seen.severity is not None or not parts):
        return seen
    if errors is not None and len(errors.finite) and errors.key != agreement.KEY:
        return _errors(run, errors.finite, limits)
    if not parts:
        if run.components:
            return NotApplicable("no part of the reward is named after the form of the answers")
        return Unexamined(("reward.component.mean", "text.format_error_frac"), "no reward part for the form is logged")
    if falls := [(part, fall) for part in parts if (fall := _lost(run, part, limits)) is not None]:
        part, fall = max(falls, key=lambda one: -one[1].change / max(abs(one[1].early), 1e-9))
        return _fell(run, part, fall, limits)
    task = [c for c in task_parts(run) if c not in parts]
    barren = bool(task) and all(now(run, c.mean.finite.values) <= limits["paid"] for c in task if len(c.mean.finite))
    never = barren and not any(part.mean.finite.values.any() for part in parts)
    level, cut = now(run, parts[0].mean.finite.values), _cut(run, limits)
    certain = len(parts[0].mean.finite) >= limits["rows"] and cut is None
    severity = None if not never else Severity.WARNING if certain else Severity.INFO
    says = f"{parts[0].name} holds its level ({level:.3g} now)"
    if never:
        says = (
            f"{parts[0].name} is 0 in every row and {task[0].name} earns nothing: no answer has the form that is read"
        )
    return Finding(
        severity=severity,
        says=says + (f"; {cut}" if cut and never else ""),
        numbers={"late": level},
        metrics=tuple(m for m in ("reward.mean", "length.truncated_frac") if m in run),
        evidence=Evidence(level, None, "level of the parts paid for form"),
        remedies=("read_raw_answers", "score_gold_answers", "warm_start"),
        would_decide=(_ASK,),
    )


def _lost(run: Run, part: Component, limits: Limits) -> Lasting | None:
    """The fall of a part from a level it had held, if it fell for good and far."""
    fall = None if run.excerpt else lasting(part.mean, falling=True, level=limits["p_value"])
    values = part.mean.finite.values
    floor = min(0.0, float(values.min()))
    least = limits.at("share", Severity.WARNING) * (held(values)[0].max() - floor)
    return fall if fall is not None and fall.early > floor and -fall.change > least else None


def _fell(run: Run, part: Component, fall: Lasting, limits: Limits) -> Finding:
    share = -fall.change / max(fall.early - min(0.0, float(part.mean.finite.values.min())), 1e-12)
    severity, cut = limits.grade("share", share), _cut(run, limits)
    gain = bought(run, since=fall.onset.step)
    harmed = any(lasting(task.mean, falling=True) is not None for task in task_parts(run) if task.name != part.name)
    if severity is not None and (cut is not None or (gain is not None and gain.rising)):
        severity = Severity.INFO
    elif severity == Severity.CRITICAL and not (gain is not None and gain.falling) and not harmed:
        severity = Severity.WARNING  # nothing shows that the form mattered
    more = [gain.says if gain is not None else "", cut or ""]
    told = "; ".join([f"{part.name} fell from {fall.early:.3g} to {fall.late:.3g}", *filter(None, more)])
    return Finding(
        severity=severity,
        says=told + at_seam(run, fall.onset, part.mean.finite),
        numbers={"early": fall.early, "late": fall.late, "share": share},
        metrics=tuple(m for m in ("reward.mean", "length.truncated_frac", "eval.score") if m in run),
        onset=fall.onset,
        evidence=fall.sized(share),
        remedies=("response_budget",) if cut is not None else ("read_raw_answers", "roll_back", "kl_coefficient"),
        would_decide=(_ASK,),
    )


def _cut(run: Run, limits: Limits) -> str | None:
    """Words for cut answers that explain unclosed tags; None where few are cut."""
    cut = run.get("length.truncated_frac")
    share = 0.0 if cut is None or not len(cut.finite) else now(run, cut.finite.values)
    return f"{share:.0%} of answers are cut and cannot close their form" if share > limits["cut"] else None


def _errors(run: Run, errors: Column, limits: Limits) -> Finding:
    level, cut = now(run, errors.values), _cut(run, limits)
    severity = Severity.INFO if limits.grade("errors", level) and cut is not None else limits.grade("errors", level)
    says = f"{level:.0%} of answers lack the form that is read" + (f"; {cut}" if cut is not None else "")
    proof, cures = Evidence(level, None, errors.key), ("read_raw_answers", "warm_start")
    return Finding(severity, says, {"late": level}, (errors.metric,), evidence=proof, remedies=cures)


def _seen(run: Run, limits: Limits) -> Finding | None:
    """What the structure of saved answers shows: it counts as lost where it was there and where it is paid."""
    words = texts.of(run)
    if words is None or words.malformed is None:
        return None
    metrics, cures = ("text.format_error_frac", "reward.mean"), ("read_raw_answers", "roll_back", "kl_coefficient")
    told = f"of those that were not cut are {words.malformed.says}"
    found = counted(
        run, words.malformed, limits, told, grade="errors", metric=metrics[0], metrics=metrics, remedies=cures
    )
    lost = grew(words.malformed) and words.needed_by == "paid"
    return found if found.severity is None or lost else replace(found, severity=Severity.INFO)
