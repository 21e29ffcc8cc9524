"""What saved advantages and group names prove about the baseline: which one gives them, or that there is none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlclinic.answers.advantages import Compared, Split, by_prompt, compare, split
from rlclinic.checks.form import Limits
from rlclinic.checks.groups import GROUPED
from rlclinic.model import Floats, Run, Severity
from rlclinic.rollouts import Rollouts

_CENTRED = ("group", "masked", "rescaled", "batch")
"""Baselines that are a choice: whichever it is, something is subtracted."""


class Baseline(NamedTuple):
    """What was proven, in words, and how grave it is."""

    severity: Severity | None
    says: str
    share: float
    """Share of the answers (or prompts) that show it."""
    since: float
    grouped: bool
    """True where the saved groups hold several answers."""
    centred: bool
    """True where the advantages are those of a known baseline, so that nothing else needs to be asked."""


def baseline(run: Run, least: float, prompts: int) -> Baseline | None:
    """What the first table with whole groups proves about the baseline; None where none does.

    ``least`` is the share of answers or prompts, ``prompts`` the number of prompts that a proof takes.
    """
    for table in run.rollouts:
        train = table.train
        if table.partial or not len(train.steps):
            continue
        found = _broken(run, train, least, prompts) or _compared(run, train, least)
        if found is not None:
            return found
    return None


def _broken(run: Run, table: Rollouts, least: float, prompts: int) -> Baseline | None:
    """One name for each answer where a prompt was answered several times: groups of one, unless the advantages differ."""
    apart = split(table)
    if apart is None or apart.broken < max(prompts, least * apart.prompts):
        return None
    seen = compare(by_prompt(table))
    if seen is not None and seen.kind not in ("raw", "zero"):
        return None
    relative = _family(run) in GROUPED
    if seen is None and not relative and run.algorithm is not None:
        return None
    severity = Severity.CRITICAL if relative or seen is not None else Severity.WARNING
    then = "" if seen is None else f"; the advantages are {seen.how} in {seen.agreeing:.0%} of {seen.answers}"
    share = apart.broken / apart.prompts
    return Baseline(severity, _words(apart) + then, share, float(table.steps[0]), True, centred=False)


def _words(apart: Split) -> str:
    return (
        f"in the saved answers {apart.broken} of {apart.prompts} prompts with several answers in a step have another group "
        f"name for each: {apart.answers} groups of one, without a mean to subtract"
    )


def _compared(run: Run, table: Rollouts, least: float) -> Baseline | None:
    seen = compare(table)
    if seen is None:
        return None
    grouped, relative = bool((table.size > 1).any()), _family(run) in GROUPED
    told = _told(seen)
    severity: Severity | None = None
    if seen.kind == "raw" and seen.agreeing >= least:
        severity = Severity.CRITICAL if relative or (grouped and run.algorithm is None) else Severity.INFO
        told += "" if grouped else "; groups hold one answer, so they give no baseline"
    elif seen.kind in ("blocks", "mixed"):
        severity = Severity.CRITICAL
    elif relative and (seen.kind == "zero" or (seen.kind == "other" and seen.off_centre > 0.5)):
        severity = Severity.INFO
    since = float(table.steps[0])
    return Baseline(severity, told, seen.agreeing, since, grouped, centred=seen.kind in _CENTRED)


def _told(seen: Compared) -> str:
    where = f"in the saved answers of {seen.groups} groups the advantages are"
    if seen.kind == "other":
        return (
            f"in the saved answers of {seen.groups} groups no known normalisation of the rewards gives the advantages, and "
            f"in {seen.off_centre:.0%} of the groups their mean is not 0"
        )
    how_many = "all" if seen.agreeing == 1.0 else f"{seen.agreeing:.1%} of"
    return f"{where} {seen.how}, to {seen.largest:.1g} in {how_many} {seen.answers} answers"


def _family(run: Run) -> str:
    return (run.algorithm or "").split("(")[0].strip()


# ---------------------------------------------------------------- what a log alone shows


def extremes(run: Run, tolerance: float) -> tuple[Floats, Floats, Floats] | None:
    """(steps, rows in which both extremes agree, rows in which all advantages have one sign); None without the extremes.

    Rows without any advantage or reward that differs from 0 say nothing and are left out.
    """
    best: tuple[Floats, Floats, Floats] | None = None
    for kind in ("reward", "reward.shaped"):
        steps, top, most = run.paired("advantage.max", f"{kind}.max")
        other, bottom, least = run.paired("advantage.min", f"{kind}.min")
        steps, i, j = np.intersect1d(steps, other, assume_unique=True, return_indices=True)
        top, most, bottom, least = top[i], most[i], bottom[j], least[j]
        told = (np.maximum(np.abs(most), np.abs(least)) > 0) & (np.maximum(np.abs(top), np.abs(bottom)) > tolerance)
        if not told.any():
            continue
        rounding = max(run["advantage.max"].resolution, run[f"{kind}.max"].resolution)
        near = tolerance * np.maximum(np.abs(most), np.abs(least)) + rounding
        equal = (np.abs(top - most) <= near) & (np.abs(bottom - least) <= near)
        one_sign = equal & ((bottom >= 0) | (top <= 0))
        found = steps[told], equal[told].astype(float), one_sign[told].astype(float)
        if best is None or found[1].mean() > best[1].mean():
            best = found
    return best


def mean_follows(run: Run, limits: Limits) -> bool | None:
    """Whether the mean advantage is the mean reward, row by row, to a share of its size; None when it cannot be told."""
    _, advantage, reward = run.paired("advantage.mean", "reward.mean")
    if not len(reward) or float(np.median(np.abs(reward))) <= limits["tolerance"]:
        return None
    extremes = "advantage.max" in run and "reward.max" in run
    if not extremes and (len(reward) < limits["rows"] or float(np.ptp(reward)) == 0.0):
        return None  # one level may agree with another by chance; a course may not
    off = float(np.median(np.abs(advantage - reward)))
    scale = float(np.median(np.abs(reward))) if extremes else float(np.ptp(reward))
    return off <= limits["off"] * scale
