"""Readings of saved log-probabilities, loss masks and prompts: what carries a gap, what is trained, what is held out."""

from __future__ import annotations

import numpy as np

from rlclinic.answers import prompts
from rlclinic.answers.mismatch import ENORMOUS, LOST, UNLIKELY, Gaps, gaps, trained
from rlclinic.checks.form import Limits
from rlclinic.model import SAVED, Evidence, Finding, Onset, Run, Severity
from rlclinic.rollouts import Rollouts
from rlclinic.stats.level import lower_bound

_IN = "in the saved answers "


def told_by(run: Run, *metrics: str) -> str:
    """Words to begin a sentence with where one of these columns was worked out from saved answers; else none."""
    return _IN if any(metric in run and run[metric].key == SAVED for metric in metrics) else ""


def gaps_of(run: Run) -> tuple[Rollouts, Gaps] | None:
    """The gaps between sampler and trainer by answer, from the first table that has any, and that table."""
    return next(((one.train, seen) for one in run.rollouts if (seen := gaps(one.train)) is not None), None)


def carried(run: Run, limits: Limits) -> tuple[str, tuple[int, ...], Severity | None]:
    """Which answers carry the gap, in words to append to a sentence, rows that show it, and how grave that alone is.

    Empty where all share it. One odd answer is not grave.
    """
    found = gaps_of(run)
    if found is None:
        return "", (), None
    table, seen = found
    words = []
    if seen.top >= 0.5 and seen.known >= 100:
        words.append(f"one answer in a hundred carries {seen.top:.0%} of the gap")
    if n := int(seen.lost.sum()):
        words.append(f"{n} of {seen.known} answers differ by more than {LOST:g} nat a token")
    elif n := int(seen.enormous.sum()):
        words.append(f"{n} of {seen.known} answers hold a token with a gap above {ENORMOUS:g} nats")
    if n := int(seen.unlikely.sum()):
        words.append(f"{n} have less than {UNLIKELY:g} nats a token under their own sampler: garbled text")
    n = int((seen.lost | seen.enormous).sum())
    grave = limits.grade("few", lower_bound(n / seen.known, seen.known)) if n > 1 else None
    rows = seen.worst if table is run.rollouts[0].train else ()
    return (f"; {_IN}{' and '.join(words)}" if words else ""), rows, grave


def several_turns(run: Run) -> bool:
    """Whether saved answers take several turns; where messages are counted, two are one exchange."""
    return any(bool((one.train.turns > 2).any()) for one in run.rollouts)


def one_turn(run: Run) -> bool:
    """Whether saved answers state their turns, and none takes several or calls a tool."""
    tables = [one.train for one in run.rollouts if np.isfinite(one.turns).any()]
    return bool(tables) and not several_turns(run) and not any((one.tool_calls > 0).any() for one in tables)


def drifted(run: Run) -> tuple[str, tuple[int, ...]]:
    """In how many saved answers some token was never sampled, by their turns, in words; empty without one."""
    found = gaps_of(run)
    if found is None or not found[1].enormous.any():
        return "", ()
    table, seen = found
    known = np.isfinite(table.worst_mismatch)
    many = known & (table.turns > 2)
    words = f"; {_IN}{seen.enormous.sum()} of {known.sum()} answers hold such a token"
    if many.any() and (known & ~many).any():
        ours, theirs = seen.enormous[many].mean(), seen.enormous[known & ~many].mean()
        words += f" ({ours:.1%} of those with several turns, {theirs:.1%} of the others)"
    return words, seen.worst if table is run.rollouts[0].train else ()


def masks(run: Run, limits: Limits) -> Finding | None:
    """Whether answers of several turns have every token after the prompt in the loss; None where no mask is saved."""
    tables = (one.train for one in run.rollouts)
    table, found = next(((one, seen) for one in tables if (seen := trained(one)) is not None), (None, None))
    if table is None or found is None or found.answers < limits["answers"]:
        return None
    n = int(found.whole.sum())
    severity = limits.grade("whole", lower_bound(n / found.answers, found.answers)) if n else None
    if severity is None:
        says = (
            f"{_IN}of several turns {found.share:.0%} of the tokens after the prompt are in the loss: what tools and "
        )
        return Finding(None, says + "environment wrote is left out", {"trained": found.share})
    rows = np.flatnonzero(found.whole)
    first = float(np.nanmin(table.step[rows])) if np.isfinite(table.step[rows]).any() else 0.0
    return Finding(
        severity=severity,
        says=f"{_IN}{n} of {found.answers} answers of several turns have every token after the prompt in the loss, with "
        "what tools and environment wrote",
        numbers={"whole": n / found.answers, "trained": found.share},
        onset=Onset(first, first, first),
        evidence=Evidence(n / found.answers, None, "the loss mask of each saved answer"),
        samples=tuple(rows[:8].tolist()) if table is run.rollouts[0].train else (),
    )


def overlap(run: Run, limits: Limits) -> Finding | None:
    """How many held-out prompts are also trained on; None where the two are not both saved."""
    found = prompts.overlap(run.rollouts)
    if found is None:
        return None
    sure = found.shared + found.like
    of = found.held_out if not (found.like or found.near) else max(found.compared, 1)
    severity = limits.grade("shared", sure / of) if sure else None
    if found.near:
        by_copies = limits.grade("shared", (sure + found.near) / of)
        severity = max(severity or Severity.INFO, min(by_copies or Severity.INFO, Severity.WARNING))
    words = f"{sure} of {of} held-out prompts are also trained on" if sure or not found.near else ""
    if found.shared and found.like:
        words += f" ({found.shared} word for word)"
    elif found.shared:
        words += " word for word"
    if found.near:
        who = f", {found.near} more" if words else f"{found.near} of {of} held-out prompts"
        words += f"{who} are near copies of trained ones"
    return Finding(
        severity=severity,
        says=f"{_IN}{words}" if severity else f"{_IN}none of {of} held-out prompts is trained on",
        numbers={"shared": float(found.shared), "like": float(found.like), "near": float(found.near),
                 "held_out": float(found.held_out)},
        metrics=("eval.score",) if "eval.score" in run else (),
        onset=Onset(*(float(run.rollouts[0].steps[0]),) * 3) if severity and len(run.rollouts[0].steps) else None,
        evidence=Evidence(sure / of, None, "held-out prompts among the trained ones, by their words"),
        remedies=("clean_held_out_set",),
    )  # fmt: skip
