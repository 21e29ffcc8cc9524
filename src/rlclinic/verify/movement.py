"""Whether the metrics moved as the remedies that were carried out had promised."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from rlclinic import names
from rlclinic.model import Column, Finding
from rlclinic.stats.evidence import mean_interval, student_quantile
from rlclinic.stats.recovery import course, rates, rows_without, window
from rlclinic.stats.shift import spikes
from rlclinic.verify.alignment import Pair
from rlclinic.verify.form import Answer, Movement, Trial
from rlclinic.verify.levels import LEAST, MARGIN, Levels, incomparable, levels, series

_CALM = 0.8
"""Spread beside that before below which a series has calmed, shown by an interval (ours)."""


def movements(finding: Finding, pair: Pair, trials: Iterable[Trial]) -> tuple[Movement, ...]:
    """What each remedy that was taken, in part or perhaps, expects of each metric, judged once per metric and word."""
    tried = list(trials)
    chosen = [t for t in tried if t.taken in ("taken", "partly")] or [t for t in tried if t.taken != "not_taken"]
    found: dict[tuple[str, str], Movement] = {}
    for trial in chosen:
        remedy = names.remedy(trial.remedy.id, pair.before.framework)
        for metric, words in trial.remedy.expect.items():
            if (metric, words) not in found:
                move = remedy.moves.get(metric, "open")
                answer, says = _answer(finding, metric, move, pair, trial.remedy.within or 0)
                found[metric, words] = Movement(metric, words, move, answer, says)
    return tuple(found.values())


def _answer(
    finding: Finding, metric: str, move: str | Mapping[str, float], pair: Pair, within: int
) -> tuple[Answer, str]:
    before, after = series(pair.before, metric), series(pair.after, metric)
    if move == "open":
        return "open", "its values settle nothing"
    if move == "logged":
        return ("yes", f"{len(after)} values") if after is not None else ("no", "not in the log")
    if after is None:
        return "open", "not logged after the change"
    if move == "finite":
        return _finite(before, after)
    if before is not None and (why := incomparable(pair, metric, before, after)):
        return "open", why
    found = levels(finding, metric, pair, within)
    now = after.finite if isinstance(found, str) else found.now
    if len(now) < LEAST:
        return "open", f"{len(now)} values after the change"
    if isinstance(move, Mapping):
        return _bounded(now, move)
    if isinstance(found, str):
        return "open", found
    if move in ("rises", "falls"):
        return _moved(found, 1.0 if move == "rises" else -1.0)
    if move == "back":
        return _back(found)
    return _calmer(found) if move == "calmer" else _course(found, move)


def _moved(found: Levels, sign: float) -> tuple[Answer, str]:
    sick = window(found.sick.values, found.time, drifting=True)
    now = window(found.now.values, found.time, sick.sd, drifting=True)
    half = _wide(sick.n_eff + now.n_eff - 2.0) * math.sqrt(sick.error + now.error)
    change = sign * (now.mean - sick.mean)
    says = f"{sick.mean:.3g} to {now.mean:.3g}"
    return ("yes" if change > half else "no" if change < half and change + half < 0.5 * sick.sd else "open"), says


def _back(found: Levels) -> tuple[Answer, str]:
    way = found.way
    if way is None:
        return "open", "its level before the onset is not known or not another one"
    says = f"{100 * way.share:.0f} % of the way back"
    return ("yes" if way.low >= 1.0 - MARGIN else "no" if way.high < 1.0 - MARGIN else "open"), says


def _course(found: Levels, move: str) -> tuple[Answer, str]:
    was = course(found.sick.steps, found.sick.values, found.time)
    now = course(found.now.steps, found.now.values, found.time)
    if not math.isfinite(now.slope):
        return "open", f"{len(found.now)} values show no slope"
    wide = _wide(len(found.now) / found.time - 2.0)
    low, high = now.slope - wide * now.error, now.slope + wide * now.error
    says = f"{100 * now.slope:+.2g} per 100 steps"
    span = float(found.now.steps[-1] - found.now.steps[0]) or 1.0
    still = max(0.1 * abs(float(found.now.values.mean())) / span, MARGIN * abs(was.slope))
    if move == "rising":
        return ("yes" if low > 0 else "no" if high < still else "open"), says
    if move in ("not_rising", "not_falling"):
        sign = 1.0 if move == "not_rising" else -1.0
        fastest, slowest = max(sign * low, sign * high), min(sign * low, sign * high)
        if fastest < still and _stuck(found, sign):
            return "open", f"{says}; it stands where it had come to rest when sick"
        return ("yes" if fastest < still else "no" if slowest > 0 else "open"), says
    if not abs(was.slope) > 2.0 * was.error:
        return "open", f"{says}; it did not move before"
    sign = math.copysign(1.0, was.slope)
    fastest, slowest = max(sign * low, sign * high), min(sign * low, sign * high)
    says += f", {100 * was.slope:+.2g} before"
    return (
        "yes" if fastest < (1.0 - MARGIN) * abs(was.slope) else "no" if slowest > abs(was.slope) / 2 else "open"
    ), says


def _stuck(found: Levels, away: float) -> bool:
    """Whether the level is no better than the sick one, and that one did not move ``away`` any more either: at such a floor
    or ceiling a course that stands still is nobody's doing."""
    sick = window(found.sick.values, found.time, drifting=True)
    now = window(found.now.values, found.time, sick.sd, drifting=True)
    half = _wide(sick.n_eff + now.n_eff - 2.0) * math.sqrt(sick.error + now.error)
    if away * (sick.mean - now.mean) > half:
        return False
    was = course(found.sick.steps, found.sick.values, found.time)
    span = float(found.sick.steps[-1] - found.sick.steps[0]) or 1.0
    return not away * was.slope * span > max(0.25 * abs(sick.mean), 2.0 * was.error * span)


def _calmer(found: Levels) -> tuple[Answer, str]:
    before, after = found.sick, found.now
    counts = len(spikes(before.steps, before.values)), len(spikes(after.steps, after.values))
    if counts[0]:
        ratio = rates(counts[0], len(before), counts[1], len(after))
        says = f"{counts[0]} spikes in {len(before)} rows before, {counts[1]} in {len(after)} after"
        return ("yes" if ratio.high < 1.0 else "no" if ratio.low > 0.5 else "open"), says
    one, other = window(before.values, found.time, drifting=True), window(after.values, found.time, drifting=True)
    if not (one.sd > 0.0 and other.sd > 0.0):
        return "open", "no noise to compare"
    half = 2.0 * math.sqrt(0.5 * found.time / len(before) + 0.5 * found.time / len(after))
    ratio_of = other.sd / one.sd
    says = f"spread {other.sd:.2g} after {one.sd:.2g}"
    return ("yes" if ratio_of * math.exp(half) < 1.0 else "no" if ratio_of * math.exp(-half) > _CALM else "open"), says


def _finite(before: Column | None, after: Column) -> tuple[Answer, str]:
    if after.nonfinite:
        return "no", f"{after.nonfinite} of {len(after)} values are not finite"
    rate = before.nonfinite / len(before) if before is not None and len(before) else 0.0
    needed = rows_without(rate, 1.0)
    says = f"all {len(after)} values are finite"
    return ("yes" if needed is None or len(after) >= needed else "open"), says


def _bounded(now: Column, move: Mapping[str, float]) -> tuple[Answer, str]:
    shown = mean_interval(now.values)
    low, high = move.get("above", -np.inf), move.get("below", np.inf)
    inside = shown.low > low and shown.high < high
    return ("yes" if inside else "no" if shown.high <= low or shown.low >= high else "open"), f"mean {shown.mean:.3g}"


def _wide(freedom: float) -> float:
    return student_quantile(0.025, max(1.0, freedom))
