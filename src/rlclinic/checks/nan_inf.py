"""A value that must be finite is not: loss, gradient, KL or entropy became NaN or infinite.

## What you see
NaN or infinity in a series; often a loss of 0 beside a NaN gradient, because trainers filter the loss they print. Later
the reward falls to its minimum and the text turns into one repeated token.

## Why it matters
One step with a non-finite gradient poisons the weights unless the optimizer skips it. Everything after it is damage.

## When it is not a problem
Averages over nothing are NaN by definition: lengths of ended answers when none ended, tool rates without calls, a
reward function that abstained; so is the variance of one element, in every row. A loss scaler (fp16) skips single steps
on purpose; a run that stays finite afterwards lost those steps only.
Some writers leave NaN out: a value that vanishes while others go on may have been one, which is said so.
"""

import numpy as np

from rlclinic.checks.finite import WOULD_SHOW, absences, first_lost, undefined, updated
from rlclinic.checks.form import Limits, check
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity

EMPTY_AVERAGE = ("length.terminated.", "agent.", "length.correct.", "length.incorrect.", "mask.", "mismatch.masked")
"""Averages that are NaN when there was nothing to average; a NaN there is no fault."""
STOPPED = 3  # rows from which an absence up to the end is called lasting (ours)
FILTERING = ("trl", "unsloth", "ms_swift", "hf_trainer", "llama_factory")
VITAL = ("grad.", "loss.", "kl.", "entropy.", "value.", "reward.mean", "reward.shaped.mean")
OF_TOKENS = ("kl.", "clip.", "ratio.")


@check(page=__doc__, uses=["grad.norm", "loss.total", "kl.ref", "entropy.mean"], since="0.1")
def nan_inf(run: Run, limits: Limits) -> Finding:
    odd = [c for name, c in sorted(run.columns.items()) if c.nonfinite and not name.startswith(EMPTY_AVERAGE)]
    bad = [c for c in odd if not undefined(run, c)]
    if not bad:
        return _never(odd) if odd else _unseen(run)
    vital = [c for c in bad if c.metric.startswith(VITAL)]
    first = min(vital or bad, key=lambda c: (first_lost(c), c.key))
    start = first_lost(first)
    share = max(c.nonfinite / len(c) for c in bad)
    lasting = any(not np.isfinite(c.values[-1]) for c in vital)
    severity = Severity.CRITICAL if lasting or share > limits["share"] else Severity.WARNING
    if not vital:
        severity = Severity.WARNING if run.short else Severity.INFO
    critic = all(c.metric.startswith(("value.", "grad.norm_critic")) for c in bad)
    masked = not critic and updated(run, bad) and all(c.metric.startswith(OF_TOKENS) for c in bad)
    if masked:
        severity, lasting = Severity.WARNING, False
    names = ", ".join(dict.fromkeys(c.key for c in sorted(bad, key=first_lost)[:4]))
    rest = f" and {len(bad) - 4} more" if len(bad) > 4 else ""
    count = sum(c.nonfinite for c in bad)
    says = f"{names}{rest}: {count} NaN or infinite value{'s' if count > 1 else ''}, first at step {start:g}"
    if critic:
        says += "; the critic alone, the policy is finite"
    elif masked:
        whole, other = (
            ("loss and gradient are", "") if "grad.norm" in run else ("the loss is", ", or a term of weight 0")
        )
        says += f"; {whole} finite, so these are averages over answers without a counted token{other}"
    elif vital and not lasting:
        says += "; finite again at the end"
    before = first.steps[np.isfinite(first.values) & (first.steps < start)]
    return Finding(
        severity=severity,
        says=says,
        numbers={"nonfinite": float(count), "share": share, "lasting": float(lasting)},
        metrics=tuple(dict.fromkeys(c.metric for c in bad)),
        onset=Onset(start, float(before[-1]) if len(before) else start, start),
        evidence=Evidence(share, None, "counted in the log"),
        remedies=_remedies(run, critic, masked, lasting),
        resume="here" if masked else "",
        wasted=_wasted(run, vital, start, lasting) if vital and not critic and not masked else None,
        would_decide=()
        if lasting
        else ("whether the optimizer skipped those steps (optimizer state, loss-scaler log)",),
    )


def _never(odd: list[Column]) -> Finding:
    keys, verb = ", ".join(c.key for c in odd[:4]), "have" if len(odd) > 1 else "has"
    says = f"{keys} {verb} no finite value in any row while the loss is finite: a statistic that is not defined here"
    return Finding(Severity.INFO, says, {"nonfinite": float(sum(map(len, odd)))}, tuple(c.metric for c in odd))


def _unseen(run: Run) -> Finding:
    """No NaN in the log: worth only as much as its writer would have shown one."""
    seen = f"no NaN and no infinity in any series{WOULD_SHOW.get(run.nonfinite, '')}"
    if run.framework is not None and run.framework.name in FILTERING and "grad.norm" in run and "loss.total" in run:
        seen += " (the trainer filters its printed loss, so the gradient norm is what counts)"
    lost = absences(run, VITAL) if run.nonfinite == "dropped" else []
    if not lost:
        return Finding(severity=None, says=seen, numbers={"nonfinite": 0.0})
    column, absent = lost[0]
    lasting = len(absent) >= STOPPED and float(column.steps[-1]) < absent[0]
    ended = {c.metric.split(".")[0] for c, rows in lost if len(rows) >= STOPPED and c.steps[-1] < rows[0] == absent[0]}
    broken = lasting and {"loss", "grad"} <= ended
    names = ", ".join(keys := [c.key for c, rows in lost if rows[0] == absent[0]][:4])
    times = "from then on" if lasting else f"in {len(absent)} rows"
    return Finding(
        severity=Severity.WARNING if lasting else Severity.INFO,
        says=f"{names} {'is' if len(keys) == 1 else 'are'} missing {times}, first at step {absent[0]:g}, where other"
        " values go on; this log's writer leaves NaN and infinities out, so it may have been one",
        numbers={"nonfinite": 0.0, "missing": float(len(absent)), "lasting": float(broken)},
        metrics=tuple(c.metric for c, _ in lost),
        onset=Onset(absent[0], column.steps[column.steps < absent[0]][-1], absent[0]),
        evidence=Evidence(len(absent) / (len(absent) + len(column)), None, "counted in the log"),
        remedies=_remedies(run, False, False, False) if broken else ("nan_visibility",),
        would_decide=("the console output of those steps, or a tracker that keeps NaN",),
    )


def _wasted(run: Run, vital: list[Column], start: float, lasting: bool) -> float:
    """Everything from the first non-finite value on where it lasts, else the steps that were lost one by one."""
    if lasting:
        return float((run.steps >= start).mean()) if len(run.steps) else 1.0
    return max(c.nonfinite / len(c) for c in vital)


def _remedies(run: Run, critic: bool, masked: bool, lasting: bool) -> tuple[str, ...]:
    if critic or masked:
        return ("critic_warmup", "value_clip") if critic else ("check_masks", "response_budget")
    # bf16 reaches as far as fp32: it cures what overflows in fp16, and nothing else.
    half = run.knob("fp16") is not False and run.knob("precision") not in ("bf16", "fp32")
    return (*("roll_back",) * lasting, "precision" if half else "inspect_batch", "grad_clip", "nan_visibility")
