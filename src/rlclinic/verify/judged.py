"""The verdict on one finding: by its level, its counts, its growth or by the check alone, whichever shows the illness."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from rlclinic.diagnose import diagnose
from rlclinic.model import Column, Diagnosis, Finding, Run, Severity
from rlclinic.stats.recovery import Way, memory, rates, rows_without, window
from rlclinic.stats.shift import spikes
from rlclinic.stats.trend import trend
from rlclinic.verify.alignment import FEWEST, Pair, spliced
from rlclinic.verify.form import Cure, Role, Seen, Trial, Word
from rlclinic.verify.levels import (
    LEAST,
    MARGIN,
    Levels,
    carried_on,
    decided,
    drift,
    incomparable,
    levels,
    no_level,
    series,
    titled,
    way_in_words,
)

Kind: TypeAlias = Literal["spike", "zero", "nonfinite", "growth", "state"]
KINDS: Mapping[str, Kind] = {
    "grad_spikes": "spike",
    "kl_spike": "spike",
    "zero_gradient_steps": "zero",
    "kl_pinned_zero": "zero",
    "nan_inf": "nonfinite",
    "plateau": "growth",
    "no_learning": "growth",
    **dict.fromkeys(
        (
            "logging_bug", "duplicated_or_missing_steps", "metric_not_logged", "eval_missing", "eval_too_noisy",
            "premature_stop", "contamination", "config_change_without_effect", "kl_not_applied",
            "clip_bound_misconfigured", "resume_discontinuity", "std_normalisation_bias", "advantage_not_centred",
            "verifier_disagreement", "self_judge_drift", "judge_noise_dominates", "dominating_reward_component",
            "dead_reward_component", "reward_hacking", "train_deploy_gap", "language_mixing", "loss_length_bias",
            "reward_model_overoptimisation", "format_break", "reward_eval_divergence", "reward_saturated",
        ),
        "state",
    ),
}  # fmt: skip
"""What shows an illness that is not the level of one metric: counted rows, a reward that does not grow, or a state that
only the check itself can read."""
_SETTINGS = ("optim.lr",)
"""Logged settings: they say what was done, not what came of it."""
_CHANCE = 0.05
"""Chance of no event at the old rate below which the silence counts."""
_HALF = 0.5
"""Rate beside the old one up to which events have stopped; between it and twice the old rate nothing has happened (ours)."""
_ALL: tuple[Word, ...] = ("cured", "improving", "no_effect", "worse")
_GROUPS = "zero_variance_"
WITHIN = 20
"""Steps that a change takes to act where its remedy names none (ours: most remedies say 20 or 50)."""

Limits: TypeAlias = Mapping[str, Mapping[str, Any]] | None


def judged(
    finding: Finding, role: Role, pair: Pair, after: Diagnosis, tried: tuple[Trial, ...], limits: Limits
) -> Cure:
    """What became of ``finding``; the trials and movements of its remedies are filled in by the caller."""
    kind = KINDS.get(finding.check)
    done = [t.remedy.within for t in tried if t.taken in ("taken", "partly") and t.remedy.within is not None]
    asked = [t.remedy.within for t in tried if t.taken in ("no_setting", "unknown") and t.remedy.within is not None]
    within = max(done or asked or [WITHIN])
    blank = Cure(finding, role, "undecided", "", (), tried)
    if kind in ("spike", "zero"):
        return _counted(blank, pair, after, kind == "zero", limits)
    if kind == "nonfinite":
        return _nonfinite(blank, pair)
    if kind == "growth":
        return _growing(blank, pair, after, limits)
    return _state(blank, pair, after, limits) if kind == "state" else _level(blank, pair, after, within, limits)


# ------------------------------------------------------------------------------------------------------ levels


def _level(blank: Cure, pair: Pair, after: Diagnosis, within: int, limits: Limits) -> Cure:
    finding, lacks = blank.finding, []
    for metric in [m for m in finding.metrics if m not in _SETTINGS] or list(finding.metrics):
        found = levels(finding, metric, pair, within)
        if isinstance(found, str):
            lacks.append(found)
            continue
        way = found.way
        if way is None:
            lacks.append(f"{titled(metric)} does not tell the sick rows from the healthy ones" if len(found.healthy) or
                         found.ideal is not None else no_level(found))  # fmt: skip
            if len(found.healthy) or not found.better:
                continue
            made = _without_band(blank, pair, after, found, limits)
        else:
            made = _by_way(blank, pair, after, found, way, limits)
        return _in_place(made, lacks[0], pair) if lacks else made
    young = next((lack for lack in lacks if "still well" in lack), "")
    if young and finding.onset is not None:
        first = float(pair.after.steps[-1])
        more = math.ceil((finding.onset.high - first) / pair.pace) + FEWEST
        says = f"{young} (it fell ill at step {finding.onset.step:g})"
        return replace(blank, says=says, possible=_ALL, more=more)
    told = _state(blank, pair, after, limits)
    if not any("does not tell" in lack for lack in lacks):
        return replace(told, says=f"{told.says}; {lacks[0]}") if lacks else told
    # A silent check is no proof of health, nor a loud one of no effect, where the level itself could be somewhere between.
    open_ends: tuple[Word, ...] = (
        ("improving", "no_effect", "worse") if told.check == "fires" else ("cured", "improving")
    )
    return replace(told, verdict="undecided", possible=open_ends, says=f"{told.says}; {lacks[0]}", more=None)


def _in_place(made: Cure, lack: str, pair: Pair) -> Cure:
    """A verdict by another metric than the one that shows the illness is no cure, unless the check confirms it: behind rows
    of the run before it is silent also for want of what is no longer logged."""
    says = made.says if lack in made.says else f"{lack}; {made.says}"
    heard = pair.relation == "fresh" or "does not tell" in lack or "fell ill" in lack
    if made.verdict != "cured" or (made.check == "silent" and heard):
        return replace(made, says=says)
    return replace(made, verdict="undecided", possible=("cured", "improving"), says=says, more=None)


def _by_way(blank: Cure, pair: Pair, after: Diagnosis, found: Levels, way: Way, limits: Limits) -> Cure:
    in_logs = found.in_logs
    verdict, possible = decided([way] if in_logs is None else [way, in_logs])
    seen, says, telling = _witness(blank.finding, pair, after, found, limits)
    remarks = []
    drifted = _drifted(found, way, verdict) if pair.relation == "continued" and len(found.healthy) else None
    if drifted is not None:
        verdict, remark = drifted
        possible = (verdict,)
        remarks.append(remark)
    if found.ideal is not None:
        # There is no healthy level of its own to come back to: the check's limit decides.
        if seen == "silent" and telling and way.low > 0.0 and way.share > MARGIN:
            verdict = "cured"
        elif verdict == "cured" and seen == "unseen":
            verdict = "undecided"
            possible = ("cured", "improving")
        elif verdict == "improving" and seen == "silent" and not telling:
            verdict, possible = "undecided", ("cured", "improving")
    if verdict == "cured" and seen == "fires":
        verdict = "improving"
        remarks.append("the check still fires")
    if verdict in ("no_effect", "worse") and not found.settled:
        verdict, possible = "undecided", _ALL
        remarks.append("the remedy has not had its steps yet")
    sibling = _other_kind(blank.finding, after, seen)
    if sibling and telling and verdict != "cured":
        verdict = "cured"
    more = None
    if verdict == "undecided":
        asked = [one.more for one in (way, in_logs) if one is not None]
        more = None if None in asked else max(m for m in asked if m is not None) or max(FEWEST, len(found.now) // 2)
        if not found.settled:
            more = max(more or 0, FEWEST)
    if verdict == "undecided" and more is None:
        remarks.append("no number of rows would decide: the run before is too short or too noisy")
    if in_logs is not None and decided([way])[0] != verdict:
        bounds = f"{100 * in_logs.low:.0f} to {100 * in_logs.high:.0f} %"
        remarks.insert(0, f"in orders of magnitude {100 * in_logs.share:.0f} % of it ({bounds})")
    told = "; ".join([way_in_words(found, way), *remarks])
    if sibling and verdict == "cured" and way.low < 1.0 - MARGIN:
        told = f"{titled(found.metric)} {way.sick:.3g} when sick, {way.now:.3g} now, of another kind ({sibling})"
    return replace(
        blank,
        verdict=verdict,
        says=told,
        possible=possible if verdict == "undecided" else (verdict,),
        check=seen,
        check_says=says,
        metric=found.metric,
        way=way,
        more=more,
        lines=(found.before, found.after),
        since=float(found.now.steps[0]),
    )


def _drifted(found: Levels, way: Way, verdict: Word) -> tuple[Word, str] | None:
    """A level that was still moving away when the run before ended: going on so is no effect, standing still is one."""
    if verdict not in ("no_effect", "worse", "undecided"):
        return None
    was, now = drift(found)
    away = -found.better
    span = float(found.sick.steps[-1] - found.sick.steps[0])
    if not away * was.slope > 3.0 * was.error or abs(was.slope) * span < MARGIN * abs(way.healthy - way.sick):
        return None
    ahead = carried_on(found, was)
    here = window(found.now.values, found.time, drifting=True)
    error = math.sqrt(ahead.error + here.error)
    slower = away * (was.slope - now.slope) > 2.0 * math.hypot(was.error, now.error)
    if slower and away * (ahead.mean - here.mean) > 2.0 * error and away * now.slope < MARGIN * away * was.slope:
        return "improving", "it has stopped moving away and has not come back"
    if verdict == "worse" and away * (here.mean - ahead.mean) < 2.0 * error:
        return "no_effect", "it goes on as before"
    return None


def _without_band(blank: Cure, pair: Pair, after: Diagnosis, found: Levels, limits: Limits) -> Cure:
    """Sick from the first row, and no bound to measure against: moved the right way, and does the check still fire."""
    sick = window(found.sick.values, found.time, drifting=True)
    now = window(found.now.values, found.time, sick.sd, drifting=True)
    error = math.sqrt(sick.error + now.error)
    moved = found.better * (now.mean - sick.mean)
    unit = max(0.1 * abs(sick.mean), 0.5 * sick.sd)
    seen, says, telling = _witness(blank.finding, pair, after, found, limits)
    verdict: Word = "undecided"
    if moved > 2.0 * error and moved > unit:
        verdict = "improving" if seen == "fires" else "cured" if seen == "silent" and telling else "undecided"
    elif moved < -2.0 * error and moved < -unit:
        verdict = "worse" if found.settled else "undecided"
    elif abs(moved) + 2.0 * error <= unit and found.settled and seen == "fires":
        verdict = "no_effect"  # without a healthy level sameness alone shows nothing
    return replace(
        blank,
        verdict=verdict,
        says=f"{titled(found.metric)} {sick.mean:.3g} when sick, {now.mean:.3g} now ({len(found.now)} rows); "
        f"{no_level(found)}, so that no healthy level is known",
        possible=_ALL if verdict == "undecided" else (verdict,),
        check=seen,
        check_says=says,
        metric=found.metric,
        more=max(FEWEST, len(found.now)) if verdict == "undecided" and seen != "unseen" else None,
        lines=(found.before, found.after),
        since=float(found.now.steps[0]),
    )


def _other_kind(finding: Finding, after: Diagnosis, seen: Seen) -> str:
    """The check that now sees groups without reward spread, where they are no more of the kind of ``finding``: the share of
    such groups is one metric for all kinds."""
    if not finding.check.startswith(_GROUPS) or seen != "silent":
        return ""
    others = (f for f in after.findings if f.check.startswith(_GROUPS) and f.check != finding.check)
    return next((f.check for f in others if (f.severity or 0) >= Severity.WARNING), "")


def _witness(finding: Finding, pair: Pair, after: Diagnosis, found: Levels, limits: Limits) -> tuple[Seen, str, bool]:
    """Whether the check fires on the rows after the change, in words, and whether its silence says something: whether it
    fires on as many sick rows of the run before.

    A check that compares with the run's own beginning needs one: the healthy rows of the run before stand in front,
    unless the run after has begun anew.
    """
    low = -np.inf if finding.onset is None else finding.onset.low
    head = pair.before.upto(low - pair.pace / 2) if np.isfinite(low) else None
    rows = int((pair.after.steps >= found.now.steps[0]).sum())
    alone = pair.relation == "fresh" or not len(found.healthy) or head is None or not len(head.steps)
    recent = _rows(pair.after, rows)
    if alone:
        seen, says = _examined(pair.after, finding.check, limits)
        other = pair.before.upto(float(pair.after.steps[-1])) if pair.relation == "fresh" else _rows(pair.before, rows)
    else:
        assert head is not None
        seen, says = _examined(spliced(head, recent, pair.pace)[0], finding.check, limits)
        other = spliced(head, _rows(pair.before, rows), pair.pace)[0]
    telling = seen == "silent" and _examined(other, finding.check, limits)[0] == "fires"
    return seen, says, telling


def _rows(run: Run, count: int) -> Run:
    from_step = float(run.steps[-min(count, len(run.steps))])
    return replace(
        run,
        columns={m: kept for m, c in run.columns.items() if len(kept := c.since(from_step))},
        evaluations={k: kept for k, c in run.evaluations.items() if len(kept := c.since(from_step))},
        components={
            n: replace(p, mean=kept, std=None if p.std is None else p.std.since(from_step))
            for n, p in run.components.items()
            if len(kept := p.mean.since(from_step))
        },
        seams={},
        began=None,
    )


def _examined(run: Run, check: str, limits: Limits) -> tuple[Seen, str]:
    return seen_by(diagnose(run, only=[check], limits=limits), check)


def seen_by(diagnosis: Diagnosis, check: str) -> tuple[Seen, str]:
    """Whether ``check`` fires at warning or above in a diagnosis, and what it says."""
    exam = next((e for e in diagnosis.checks if e.check == check), None)
    if exam is None or exam.outcome != "examined" or exam.finding is None:
        return "unseen", "" if exam is None else exam.says
    severity = exam.finding.severity
    return ("fires" if severity is not None and severity >= Severity.WARNING else "silent"), exam.finding.says


# ------------------------------------------------------------------------------------------------------ counts


def _counted(blank: Cure, pair: Pair, after: Diagnosis, zeros: bool, limits: Limits) -> Cure:
    finding = blank.finding
    metric = finding.metrics[0]
    one, other = series(pair.before, metric), series(pair.after, metric)
    if one is None or other is None:
        lacking = "before" if one is None else "after"
        return replace(_state(blank, pair, after, limits), says=f"{metric} is not logged {lacking} the change")
    before, now = one.finite, other.finite
    if finding.onset is not None and not zeros:
        before = before.since(finding.onset.low)
    if pair.relation != "continued":
        # The same age: rows at which the run before had no such event yet say nothing about the cure.
        first = before.steps[before.zero] if zeros else before.steps[:1]
        begin = float(first[0]) if len(first) else -np.inf
        before, now = before.since(begin), now.since(begin)
        if len(now) < LEAST:
            young = f"at step {other.steps[-1]:g} the run before was still well (it fell ill at step {begin:g})"
            waits = math.ceil((begin - float(other.steps[-1])) / pair.pace) + FEWEST
            return replace(blank, says=young, possible=_ALL, metric=metric, more=waits)
    hits, rows = _events(before, zeros), len(before)
    hits_now, rows_now = _events(now, zeros), len(now)
    found = rates(hits, rows, hits_now, rows_now)
    seen, says = seen_by(after, finding.check)
    verdict: Word = "undecided"
    if found.high <= _HALF and seen != "fires":
        verdict = "cured"
    elif found.low > 1.0 and found.ratio >= 1.0 / (1.0 - MARGIN):
        verdict = "worse"
    elif found.low > _HALF and found.high < 1.0 / _HALF:
        verdict = "no_effect"
    elif found.high < 1.0 and hits_now:
        verdict = "improving"
    what = "rows of exactly 0" if zeros else "spikes"
    chance = (1.0 - hits / rows) ** rows_now if rows else 1.0
    silence = f" (by chance at the old rate: {100 * chance:.2g} %)" if not hits_now and hits else ""
    told = f"{hits} {what} in {rows} rows before, {hits_now} in {rows_now} rows after{silence}"
    more = None
    if verdict == "undecided" and hits:
        needed = rows_without(hits / rows) or 0
        more = max(FEWEST, needed - rows_now if not hits_now else 2 * needed - rows_now)
    return replace(
        blank,
        verdict=verdict,
        says=told,
        possible=(verdict,) if verdict != "undecided" else _possible(found.low, found.high),
        check=seen,
        check_says=says,
        metric=metric,
        rates=found,
        more=more,
        lines=(one, other),
        since=float(other.steps[0]) if len(other) else None,
    )


def _possible(low: float, high: float) -> tuple[Word, ...]:
    allowed: list[Word] = []
    if low <= _HALF:
        allowed += ["cured"]
    if low < 1.0 and high > 0.1:
        allowed += ["improving"]
    if high >= 1.0:
        allowed += ["no_effect"]
    if high > 1.0 / (1.0 - MARGIN):
        allowed += ["worse"]
    return tuple(allowed)


def _events(column: Column, zeros: bool) -> int:
    return int(column.zero.sum()) if zeros else len(spikes(column.steps, column.values))


def _nonfinite(blank: Cure, pair: Pair) -> Cure:
    finding = blank.finding
    bad, bad_now = _broken(pair.before, finding), _broken(pair.after, finding)
    steps, rows_now = pair.before.steps, len(pair.after.steps)
    onset = float(bad[0]) if len(bad) else (finding.onset.step if finding.onset is not None else float(steps[-1]))
    lasting = len(bad) > 0.5 * max(1, int((steps >= onset).sum()))
    if lasting and pair.relation != "continued":
        begin = -np.inf if pair.start is None else pair.start
        waited = int(((steps > begin) & (steps < onset)).sum()) if begin < onset else 0
        rate, told = 1.0 / max(1, waited), f"the run before broke after {waited} rows"
    else:
        rows = int((steps >= onset).sum()) if lasting else len(steps)
        rate, told = min(1.0, len(bad) / max(1, rows)), f"{len(bad)} of {rows} rows with NaN or infinity before"
    chance = (1.0 - rate) ** rows_now
    told = f"{told}, {len(bad_now)} of {rows_now} rows after"
    verdict: Word
    found, more = None, None
    if len(bad_now):
        found = rates(len(bad), len(steps), len(bad_now), rows_now)
        verdict = "improving" if found.high < 1.0 else "worse" if found.low > 4.0 / 3.0 else "no_effect"
    elif chance <= _CHANCE:
        verdict = "cured"
        told += f" (by chance at the old rate: {100 * chance:.2g} %)"
    else:
        verdict = "undecided"
        more = max(1, math.ceil(math.log(_CHANCE) / math.log1p(-min(rate, 0.999))) - rows_now)
        told += f"; at the old rate that happens in {100 * chance:.0f} %"
    metric = next((m for m in finding.metrics if series(pair.after, m) is not None), "")
    lines = series(pair.before, metric), series(pair.after, metric)
    return replace(
        blank,
        verdict=verdict,
        says=told,
        possible=(verdict,) if verdict != "undecided" else ("cured", "no_effect"),
        check="fires" if len(bad_now) else "silent",
        metric=metric,
        rates=found,
        more=more,
        lines=(lines[0], lines[1]) if lines[0] is not None and lines[1] is not None else None,
        since=float(pair.after.steps[0]),
    )


def _broken(run: Run, finding: Finding) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Steps at which a metric of the finding is not finite."""
    columns = [c for m in finding.metrics if (c := series(run, m)) is not None]
    rows = [c.steps[~np.isfinite(c.values)] for c in columns]
    return np.unique(np.concatenate(rows)) if rows else np.empty(0)


# ---------------------------------------------------------------------------------------------- growth and states


def _growing(blank: Cure, pair: Pair, after: Diagnosis, limits: Limits) -> Cure:
    """A reward that did not grow: does it grow now, or does the check prove again that it stands still."""
    finding = blank.finding
    metric = next((m for m in finding.metrics if m in ("reward.mean", "eval.score")), "reward.mean")
    one, other = series(pair.before, metric), series(pair.after, metric)
    if one is None or other is None:
        return replace(_state(blank, pair, after, limits), says=f"{metric} is not logged in both runs")
    seen, says = seen_by(after, finding.check)
    c, stood = other.finite, one.finite
    if finding.onset is not None:
        stood = stood.since(finding.onset.high)
        if pair.relation != "continued":
            # The same age: in its first rows the run before grew too.
            c = c.since(finding.onset.high)
    if len(c) < FEWEST:
        last = float(other.steps[-1])
        begin = last if finding.onset is None else finding.onset.high
        told = (
            f"at step {last:g} the run before still learned"
            if last < begin
            else f"{titled(metric)} has {len(c)} values"
        )
        lacking = math.ceil(max(0.0, begin - last) / pair.pace) + FEWEST - len(c)
        return replace(blank, says=told, possible=("cured", "no_effect"), metric=metric, more=lacking)
    slope = trend(c.steps, c.values)
    time = memory(stood.values, c.values)
    level = window(stood.values, time, drifting=True)
    late = window(c.values[-max(LEAST, len(c) // 4) :], time, level.sd, drifting=True)
    above = late.mean - level.mean > 3.0 * math.sqrt(late.error + level.error)
    scale = incomparable(pair, metric, one, other)
    verdict: Word = "undecided"
    if slope.verdict == "falling":
        verdict = "worse"
    elif slope.verdict == "rising" and seen != "fires" and (above or scale):
        verdict = "cured"
    elif above and not scale:
        verdict = "improving"
    elif seen == "fires":
        verdict = "no_effect"
    told = f"{titled(metric)} went from {slope.start:.3g} to {slope.end:.3g} in {slope.n} rows"
    told += {"rising": ": it grows", "falling": ": it falls", "none": ": no growth is shown"}.get(slope.verdict, "")
    told += f"; {scale}" if scale else f"; it stood at {level.mean:.3g} before" + ("" if above else ", not yet passed")
    rows = int((pair.before.steps >= (finding.onset.step if finding.onset else 0.0)).sum())
    return replace(
        blank,
        verdict=verdict,
        says=told,
        possible=(verdict,) if verdict != "undecided" else ("cured", "no_effect"),
        check=seen,
        check_says=says,
        metric=metric,
        more=max(FEWEST, min(rows, 100) - len(c)) if verdict == "undecided" else None,
        lines=(one, other),
        since=float(other.steps[0]) if len(other) else None,
    )


_INCIDENTS = ("logging_bug", "duplicated_or_missing_steps")
"""Faults of the log that may stay away without anybody's doing."""
_CANNOT: Mapping[str, str] = {
    "resume_discontinuity": "a restart is only seen where one happens, and the log after the change holds none",
    "premature_stop": "whether a run ends early shows when it has ended",
}


def _state(blank: Cure, pair: Pair, after: Diagnosis, limits: Limits) -> Cure:
    """What only the check itself can read. Its silence counts where it fires on as many rows of the run before, or where
    it states a fact."""
    check = blank.finding.check
    seen, says = seen_by(after, check)
    if seen == "unseen" and check == "dominating_reward_component" and len(pair.after.components) == 1:
        seen, says = "silent", "one reward part is left, and no other that it could dominate"
    cannot = _CANNOT.get(check, "")
    if check == "resume_discontinuity" and after.run.seams:
        cannot = ""
    if check == "premature_stop" and after.run.planned_steps and after.run.steps[-1] >= after.run.planned_steps:
        cannot = ""
    if check == "reward_saturated" and seen == "silent" and any(f.check == check for f in after.findings):
        cannot = "the reward is as near to its maximum, only the held-out score rises with it"
    verdict: Word = "no_effect" if seen == "fires" else "cured" if seen == "silent" and not cannot else "undecided"
    told = {
        "fires": "the check fires again",
        "silent": "the check no longer fires",
        "unseen": "the check could not look",
    }
    text = f"cannot be verified from this log: {cannot}" if cannot and seen != "fires" else told[seen]
    absent = check in _INCIDENTS or (check == "eval_missing" and pair.after.get("eval.score") is None)
    if seen == "silent" and absent:
        text = "it did not occur after the change, which does not show that anything was mended"
    text = f"{text}{f' ({says})' if says and not cannot else ''}"
    rows, more = len(pair.after.steps), None
    onset = blank.finding.onset
    young = onset is not None and pair.relation != "continued" and pair.after.steps[-1] < onset.high
    if verdict == "cured" and (young or blank.finding.tier != "certain") and rows < len(pair.before.steps):
        fresh = pair.relation == "fresh"
        same = pair.before.upto(float(pair.before.steps[rows - 1])) if fresh else _rows(pair.before, rows)
        if _examined(same, check, limits)[0] != "fires":
            verdict, more = "undecided", len(pair.before.steps) - rows
            text += f"; in {rows} rows of the run before it would not have fired either"
    return replace(
        blank,
        verdict=verdict,
        says=text,
        possible=(verdict,) if verdict != "undecided" else ("cured", "improving", "no_effect"),
        check=seen,
        check_says=says,
        more=more,
        absent=verdict == "cured" and absent,
    )
