"""What a failure has cost, and from which saved state to go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rlclinic.checks import BY_NAME
from rlclinic.differential import descendants
from rlclinic.model import Cost, Finding, Onset, Rollback, Run, Severity


def rollback(finding: Finding, findings: Mapping[str, Finding], run: Run) -> Rollback | None:
    """From where a run with this root goes on once it is cured; None when it may go on from where it is.

    A failure that spoils the weights (its table says ``resume = "before"``, or that of something it led to; the check may
    know better of this run) sends the run back to before the earliest of the movers; lost signal or a policy that is
    merely too sure does not.
    """
    if (finding.severity or 0) < Severity.WARNING or finding.because_of:
        return None
    chain = [finding, *(findings[name] for name in sorted(descendants(finding.check, findings)))]
    spoiling = [f for f in chain if resume(f) == "before" and (f.severity or 0) >= Severity.WARNING]
    if not spoiling:
        return None
    # What led to the damage may have begun earlier than the damage itself: the chain as a whole is gone back on.
    dated = [f.onset for f in {f.check: f for f in [finding, *spoiling]}.values() if f.onset is not None]
    if BY_NAME[finding.check].resume == "here" and finding.onset is not None and len(run.steps):
        # A state of the first row on spoiled nothing until the damage came: the weights are sound up to there.
        begins = float(run.steps[0])
        later = [onset for onset in dated if onset.low > begins]
        dated = later if finding.onset.step <= begins and later else dated
    if not dated:
        return None
    first = min(dated, key=lambda onset: (onset.low, onset.step))
    first = replace(first, step=min(onset.step for onset in dated))
    way = _whence(first, run)
    return Rollback(first.step, first.low, first.high, way.checkpoint, f"go on from {way.says}", way.kept, way.bound)


def resume(finding: Finding) -> str:
    """From where a run goes on after this failure: what the check says of this run, else its table."""
    return finding.resume or BY_NAME[finding.check].resume


class _Way(NamedTuple):
    """From where to go on: a checkpoint where one is known, in words, and what is kept (``Rollback``)."""

    checkpoint: str | None
    says: str
    kept: float | None = None
    bound: bool = False


def _whence(first: Onset, run: Run) -> _Way:
    """From where to go on after an illness of this onset."""
    begins = float(run.steps[0]) if len(run.steps) else 0.0
    if run.excerpt and (run.counted or first.step > max(begins, 1)):
        whence = "the rows shown" if run.counted and first.step <= begins else f"step {first.step:g}"
        untold = "; they do not tell when it began" if first.step <= begins else ""
        return _Way(None, f"a checkpoint from before {whence}{untold}")
    if run.excerpt and first.step > 1:
        return _Way(None, f"a checkpoint before step {first.step:g}; the rows shown do not tell when it began")
    if first.step <= begins:
        return _Way(None, "the start: it was there from the first row on")
    # The answers of a row come from the weights saved one step before it, so those of the step before are sick as well.
    sound, hoped = first.low - 1, first.step - 1
    unsure = f"; the onset may lie as early as step {first.low:g}, so evaluate it first"
    sure = [saved for saved in run.checkpoints if saved.step < sound]
    likely = [saved for saved in run.checkpoints if saved.step < hoped]
    if sure or likely:
        saved = max(sure or likely, key=lambda one: one.step)
        name = saved.path or f"step {saved.step:g}"
        return _Way(name, f"{name}{'' if sure else unsure}", saved.step)
    if run.checkpoints:
        oldest = run.checkpoints[0].step
        return _Way(None, f"the start: the oldest checkpoint, of step {oldest:g}, is too young; save more often")
    every = run.number("save_every")
    if every is None or every <= 0:
        told = f"the last checkpoint before step {hoped:g}" + (unsure if first.low <= begins else "")
        return _Way(None, told, hoped - 1, bound=True)
    due = every * ((sound - 1) // every)
    if due <= 0:
        if len(run.steps) and every > run.steps[-1]:
            return _Way(None, f"the start: no checkpoint was due yet, with one every {every:g} steps")
        early = f", which may lie as early as step {first.low:g}" if first.low < first.step else ""
        return _Way(None, f"the start: the first checkpoint is due at step {every:g}, not before the onset{early}")
    told = f"the last checkpoint before step {sound:g}; with one every {every:g} steps that of step {due:g}"
    return _Way(None, told, due)


def cost(finding: Finding, run: Run, *, gpu_hour_price: float | None = None) -> Cost | None:
    """What the failure wasted of the logged steps; None where it distorts without wasting, or where nothing was lost.

    A check states its own share where it can (groups without gradient); otherwise the steps behind the state that the run
    goes on from are lost. Hours need the logged step time, GPU-hours the number of GPUs, money a price; each is named as
    used.
    """
    if (finding.severity or 0) < Severity.WARNING:
        return None
    total = _steps(run)
    least, share, lost = "", finding.wasted, "of the answers sampled in the logged steps carried no gradient"
    if run.excerpt:
        return None
    if share is None and finding.rollback is not None and finding.severity == Severity.CRITICAL and total > 0:
        kept = finding.rollback.kept
        anew = kept is None or kept < run.steps[0]
        share = 1.0 if kept is None or anew else max(0.0, (float(run.steps[-1]) - kept) / total)
        least = "at least " if finding.rollback.bound and not anew else ""
        lost = f"of the {total:g} steps{'' if anew else f', those after step {kept:g},'} have to be given up"
    elif BY_NAME[finding.check].resume == "before":
        lost = f"of the {total:g} steps of the log taught nothing"
    elif BY_NAME[finding.check].family == "evaluation":
        lost = f"of the {total:g} steps of the log brought nothing more"
    if not share or not 0.0 < share <= 1.0:
        return None
    says = f"{least}{share:.0%} {lost}"
    hours = _hours(run, total)
    if hours is None:
        return Cost(share, None, None, f"{says}; no step time is logged, so hours are not known")
    if hours < 0.05:
        return Cost(share, None, None, f"{says}: {3600 * share * hours:.3g} of {3600 * hours:.3g} seconds")
    gpus, whence = _gpus(run)
    if gpus is None:
        says += f": {share * hours:.3g} of {hours:.3g} hours (step time as logged); --gpus turns them into GPU-hours"
        return Cost(share, None, None, says)
    spent = share * hours * gpus
    counted = "1 GPU" if gpus == 1 else f"{gpus:g} GPUs"
    says += f": {spent:.3g} of {hours * gpus:.3g} GPU-hours ({counted} {whence}, step time as logged)"
    money = None if gpu_hour_price is None else spent * gpu_hour_price
    if money is not None:
        says += f", {money:,.2f} at {gpu_hour_price:g} a GPU-hour"
    return Cost(share, spent, money, says)


def _steps(run: Run) -> float:
    return float(run.steps[-1] - run.steps[0] + 1) if len(run.steps) else 0.0


def _hours(run: Run, steps: float) -> float | None:
    """Wall time of all logged steps by the mean logged step time; None without one."""
    time = run.get("time.step")
    if time is None or not len(time.finite):
        return None
    mean = float(np.mean(time.finite.values))
    return mean * steps / 3600.0 if mean > 0 else None


def _gpus(run: Run) -> tuple[float | None, str]:
    per_node, nodes = run.number("gpus"), run.number("nodes")
    if per_node is None or per_node <= 0:
        return None, ""
    return per_node * (nodes or 1.0), "as given" if run.knobs["gpus"].origin == "given" else "as configured"
