"""The run does not do what its settings say, or a setting cannot act as it is meant to.

## What you see
Answers longer than the configured limit, or cut at another number; a learning rate that peaks elsewhere; dead batches
although dynamic sampling is on; a group of one answer; a log that prints another value than the file beside it.

## Why it matters
Conclusions are drawn about a run that did not happen: the change that was to be tried has not been tried yet.

## When it is not a problem
Answers far below the limit contradict nothing. A warm-up or a decay keeps the rate below its peak. With tools or several
turns the answers of a conversation may together exceed the limit of one.
"""

import re
from typing import NamedTuple

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.groups import ungrouped
from rlclinic.model import Evidence, Finding, Knob, Onset, Run, Severity


class Clash(NamedTuple):
    severity: Severity
    says: str
    cure: str
    since: float | None = None


@check(page=__doc__, uses=["length.response.max", "length.truncated_frac", "optim.lr"], since="0.2")
def config_change_without_effect(run: Run, limits: Limits) -> Answer:
    told = [warn.says for warn in run.warnings if warn.code == "settings_disagree"]
    keys = {column.key for column in run.columns.values()}  # what was read off a series was not set by anybody
    known = {n: k for n, k in run.knobs.items() if k.origin != "default" and (k.origin != "log" or k.key not in keys)}
    if not told and not known:
        return Unexamined(("configuration",), "no setting of the run is known")
    made = [
        Clash(Severity.CRITICAL, alone, "group_size") if (alone := ungrouped(run, known.get("group_size"))) else None,
        _longest(run, known.get("max_response_length"), limits),
        _rate(run, known.get("learning_rate"), limits),
        _sampling(run, known.get("dynamic_sampling"), limits),
        _reference(run, known.get("sync_reference")),
        *(Clash(Severity.WARNING, says, "restart_with_value") for says in told),
    ]
    clashes = sorted((clash for clash in made if clash is not None), key=lambda clash: -clash.severity)
    first = (clashes[0].since or float(run.steps[0])) if len(run.steps) and clashes else None
    lone = bool(clashes) and clashes[0].cure == "group_size"
    return Finding(
        severity=clashes[0].severity if clashes else None,
        title="Groups of one answer have no baseline." if lone else "",
        says="; ".join(clash.says for clash in clashes[:3]) or f"nothing contradicts the {len(known)} stated settings",
        numbers={"clashes": float(len(clashes)), "harm": float(any(c.severity > Severity.INFO for c in clashes))},
        onset=None if first is None else Onset(first, first, first),
        evidence=Evidence(float(len(clashes)), None, "configuration against what is logged"),
        remedies=tuple(dict.fromkeys(clash.cure for clash in clashes)),
        would_decide=("the configuration as the trainer resolved and printed it",) if clashes else (),
    )


def _longest(run: Run, limit: Knob | None, limits: Limits) -> Clash | None:
    """Answers beyond the configured limit, or cut at another number; with turns a conversation may exceed it."""
    longest, size = run.get("length.response.max"), run.number("max_response_length")
    turns = (run.number("max_turns") or 0) > 1 or any(
        "agent." in m or "tool" in m.lower() for m in (*run.columns, *run.components)
    )
    if limit is None or not size or turns or longest is None or not len(longest.finite):
        return None
    seen = float(longest.finite.values.max())
    if seen > max(limits["beyond"] * size, size + 8):
        return Clash(
            Severity.WARNING, f"answers of {seen:.0f} tokens exceed {limit.key} = {size:g}", "restart_with_value"
        )
    _, at, cut = run.paired("length.response.max", "length.truncated_frac")
    pinned = len(at) >= 5 and seen == int(seen) and float(((at == seen) & (cut > 0)).mean()) >= limits["pinned"]
    says = f"answers are cut at {seen:.0f} tokens while {limit.key} = {size:g}"
    return Clash(Severity.WARNING, says, "restart_with_value") if pinned and seen < limits["below"] * size else None


def _rate(run: Run, peak: Knob | None, limits: Limits) -> Clash | None:
    """A learning rate above the configured peak, or level at another value."""
    rate, size = run.get("optim.lr"), run.number("learning_rate")
    if rate is None or rate.resolution or peak is None or not size or len(c := rate.finite.values) < 5 or not c.any():
        return None
    flat = len(c) >= 20 and float(np.ptp(c[len(c) // 2 :])) <= 1e-3 * float(c[-1])
    says = f"the learning rate peaks at {c.max():.3g} while {peak.key} = {size:.3g}"
    above = c > limits["rate"] * size
    wrong = above.any() or (flat and c.max() < size / limits["rate"])
    return (
        Clash(Severity.WARNING, says, "restart_with_value", float(rate.finite.steps[np.argmax(above)]))
        if wrong
        else None
    )


def _sampling(run: Run, switch: Knob | None, limits: Limits) -> Clash | None:
    """Dynamic sampling that is on and that nothing reads, or beside batches without a live group."""
    if switch is None or switch.value is not True:
        return None
    dead, by = run.get("group.all_dead"), run.framework
    if by is not None and by.name == "verl" and re.match(r"0\.(?:7\.[1-9]|8\.)", by.version or ""):
        return Clash(
            Severity.WARNING, f"{switch.key} is on, but verl {by.version} reads it nowhere", "restart_with_value"
        )
    share = 0.0 if dead is None or len(dead) < 5 else float(dead.values.mean())
    says = f"{switch.key} is on, yet every group is dead in {share:.0%} of the rows"
    return Clash(Severity.WARNING, says, "dynamic_sampling") if share >= limits["dead"] else None


def _reference(run: Run, switch: Knob | None) -> Clash | None:
    weight = run.knobs.get("kl_coef")
    if switch is None or switch.value is not True or weight is None or weight.value not in (0, 0.0):
        return None
    return Clash(Severity.INFO, f"{switch.key} is on with {weight.key} = 0: no reference to refresh", "kl_coefficient")
