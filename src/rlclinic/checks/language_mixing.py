"""Answers mix languages: the part of the reward for one language falls, or foreign script shows in the saved answers.

## What you see
More and more saved answers hold words in a script or language that neither prompt nor truth has, often with rising
entropy. In a log only a reward part for language consistency can show it, by falling.

## Why it matters
Readers cannot follow such answers. Accuracy may not suffer, which is why it goes unnoticed.

## When it is not a problem
For a maths score alone it hardly matters. Prompts in several languages deserve answers in several. Gibberish of many
scripts at once is a collapse, not a mixture: entropy and reward say so. Greek letters in formulas, code and signs are no
language; a prompt that asks for a language, or for a translation, is left out.
"""

import re
from dataclasses import replace

from rlclinic.answers import texts
from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import at_seam, bought, lasting, now
from rlclinic.checks.rewards import parts_named
from rlclinic.checks.wording import counted, grew
from rlclinic.model import ROLLOUTS, Evidence, Finding, Run, Severity

_LANGUAGE = re.compile(r"language|(^|_)lang(_|$)|(^|_)script(_|$)|chinese|english|monolingual", re.I)


@check(page=__doc__, uses=["reward.mean", "entropy.mean"], since="0.2")
def language_mixing(run: Run, limits: Limits) -> Answer:
    parts, words = parts_named(run, _LANGUAGE), texts.of(run)
    seen = words.foreign if words is not None else None
    if words is not None and seen is not None and len(seen) >= limits["answers"]:
        found = _seen(run, words, seen, limits)
        if found.severity is not None or not parts:
            return found
    if not parts:
        return Unexamined((ROLLOUTS,), "needs saved answers, or a reward part for the language of the answers")
    part, level = parts[0], now(run, parts[0].mean.finite.values)
    fall = lasting(part.mean, falling=True, level=limits["p_value"]) if not run.excerpt else None
    if fall is None or fall.early <= 0:
        return Finding(
            severity=None,
            says=f"{part.name} holds its level ({level:.3g} now)",
            numbers={"late": level},
            metrics=("reward.mean",),
        )
    share = -fall.change / fall.early
    severity = limits.grade("share", share)
    gain = bought(run, since=fall.onset.step)
    if severity is not None and gain is not None and gain.rising and gain.metric == "eval.score":
        severity = Severity.INFO
    told = f"; {gain.says}" if gain is not None else ""
    return Finding(
        severity=severity,
        says=f"{part.name} fell from {fall.early:.3g} to {fall.late:.3g}{told}"
        + at_seam(run, fall.onset, part.mean.finite),
        numbers={"early": fall.early, "late": fall.late, "share": share},
        metrics=tuple(m for m in ("reward.mean", "entropy.mean", "eval.score") if m in run),
        onset=fall.onset if severity is not None else None,
        evidence=fall.sized(share) if severity is not None else Evidence(share, None, "early against late"),
        remedies=("language_reward", "kl_coefficient"),
        would_decide=("the share of characters of each script in saved answers, early and late",),
    )


def _seen(run: Run, words: texts.Texts, share: texts.Measure, limits: Limits) -> Finding:
    """What the scripts of saved answers show: a share that grew; one that was there from the start is a remark."""
    whole = words.whole_foreign is not None and words.whole_foreign.late.value > 0.5 * share.late.value
    told = f"{'are in' if whole else 'mix in'} another language than their prompt"
    metrics, cures = ("reward.mean", "entropy.mean", "eval.score"), ("language_reward", "kl_coefficient")
    found = counted(run, share, limits, told, grade="foreign", metrics=metrics, remedies=cures)
    scraps = words.gibberish
    if scraps is not None and scraps.late.value > max(share.late.value, limits["scraps"]):
        told = "hold scraps of many scripts: a collapse, no mixture of languages"
        found = counted(
            run, scraps, limits, told, grade="foreign", metrics=metrics, remedies=("kl_coefficient", "roll_back")
        )
        return replace(found, severity=Severity.INFO) if found.severity is not None else found
    if found.severity is None:
        return found
    gain = bought(run, since=found.onset.low) if found.onset is not None else None
    told = f"{found.says}; {gain.says}" if gain is not None else found.says
    better = gain is not None and gain.rising and gain.metric == "eval.score" and share.late.value < limits["many"]
    found = replace(found, says=told, severity=Severity.INFO if better else found.severity)
    return found if grew(share) else replace(found, severity=Severity.INFO)
