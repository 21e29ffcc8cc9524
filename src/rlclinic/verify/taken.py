"""Which remedies were carried out: the settings of both runs against what was prescribed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlclinic import names
from rlclinic.model import Change, Finding, Prescription, Run, Scalar
from rlclinic.verify.alignment import Pair
from rlclinic.verify.form import Changed, Taken, Trial, Turned

_CLOSE = 1e-3
"""Relative difference up to which a number is the prescribed one (ours: people round)."""


def trials(finding: Finding, pair: Pair) -> tuple[Trial, ...]:
    """Every remedy of the finding that could be carried out, in the order in which it was prescribed."""
    return tuple(_trial(remedy, finding, pair) for remedy in finding.prescriptions if remedy.applies)


def confounders(findings: Iterable[Finding], pair: Pair) -> tuple[Changed, ...]:
    """Settings known in both runs that differ, other than those that a remedy of ``findings`` changes."""
    prescribed = [remedy for f in findings for remedy in f.prescriptions]
    asked = {change.knob for remedy in prescribed for change in remedy.changes}
    asked |= {remedy.id for remedy in prescribed if remedy.id == "reward_weights"}
    found = []
    for name in sorted(set(pair.before.knobs) & set(pair.after.knobs) - asked - names.WATCHING):
        one, other = pair.before.knobs[name], pair.after.knobs[name]
        if not _equal(one.value, other.value) and not (one.origin == other.origin == "default"):
            found.append(Changed(name, other.key, one.value, other.value))
    return tuple(found)


def _trial(remedy: Prescription, finding: Finding, pair: Pair) -> Trial:
    if remedy.id == "roll_back":
        return _rolled_back(remedy, finding, pair)
    if remedy.id == "reward_weights":
        return _reweighted(remedy, pair)
    if not remedy.changes:
        return _restored(remedy, finding, pair)
    settings = tuple(_turned(change, pair.before, pair.after) for change in remedy.changes)
    words = {setting.taken for setting in settings}
    if words == {"taken"}:
        return Trial(remedy, "taken", settings)
    if words & {"taken", "partly"}:
        return Trial(remedy, "partly", settings)
    if "unknown" in words:
        lacking = ", ".join(setting.key for setting in settings if setting.taken == "unknown")
        side = "AFTER" if any(s.taken == "unknown" and s.after is None for s in settings) else "BEFORE"
        return Trial(remedy, "unknown", settings, f"{lacking} is not known of {side}: give its configuration")
    return Trial(remedy, "not_taken", settings)


def _rolled_back(remedy: Prescription, finding: Finding, pair: Pair) -> Trial:
    if pair.start is None:
        return Trial(remedy, "partly", says="AFTER starts anew instead")
    way = finding.rollback
    until = way.high if way is not None else finding.onset.low if finding.onset is not None else None
    told = f"AFTER goes on from step {pair.start:g}"
    if until is None:
        return Trial(remedy, "unknown", says=f"{told}; up to where the run was sound is not known")
    return Trial(remedy, "taken" if pair.start <= until + pair.pace else "not_taken", says=told)


def _reweighted(remedy: Prescription, pair: Pair) -> Trial:
    """Which part is the correct answer no setting says; but other weights, or a part that is gone, are a step."""
    parts = set(pair.before.components), set(pair.after.components)
    gone = sorted(parts[0] - parts[1]) if all(parts) else []
    says = f"no longer a part of the reward: {', '.join(gone)[:120]}" if gone else ""
    was, now = (run.knobs.get("reward_weights") for run in (pair.before, pair.after))
    if was is None or now is None:
        return Trial(remedy, "partly" if gone else "no_setting", says=says)
    word: Taken = "partly" if gone or not _equal(was.value, now.value) else "not_taken"
    return Trial(remedy, word, (Turned("reward_weights", now.key, was.value, None, now.value, word),), says)


def _restored(remedy: Prescription, finding: Finding, pair: Pair) -> Trial:
    """A learning rate that is to be set back to what it was: where no configuration knows it, the log does."""
    restores = names.remedy(remedy.id, pair.before.framework).restores
    one, other = pair.before.get("optim.lr"), pair.after.get("optim.lr")
    if "learning_rate" not in restores or finding.onset is None or one is None or other is None:
        return Trial(remedy, "no_setting")
    before, after = one.finite, other.finite
    early, sick = before.values[before.steps < finding.onset.low], before.since(finding.onset.high).values
    if not len(early) or not len(sick) or not len(after):
        return Trial(remedy, "no_setting")
    # The harm may show some rows behind the rise: the highest of the early rows need not be the level before it.
    right = float(np.quantile(early, 0.9, method="lower"))
    if not sick.max() > (1.0 + _CLOSE) * right:
        return Trial(remedy, "no_setting")
    was, now = float(sick.max()), float(after.values.max())
    turned = Turned("learning_rate", "logged learning rate", was, right, now, _word(was, right, now))
    return Trial(remedy, turned.taken, (turned,))


def _turned(change: Change, before: Run, after: Run) -> Turned:
    was = change.before if change.before is not None else _known(before, change.knob)
    now = _known(after, change.knob)
    return Turned(change.knob, change.key, was, change.after, now, _word(was, change.after, now))


def _known(run: Run, knob: str) -> Scalar:
    """A setting as configured; the learning rate else as the log has it, at its highest."""
    value = run.knob(knob)
    return peak_rate(run) if value is None and knob == "learning_rate" else value


def peak_rate(run: Run) -> float | None:
    """The highest learning rate that was logged, else the one configured; None where neither is known."""
    logged = run.get("optim.lr")
    return (
        float(logged.finite.values.max()) if logged is not None and len(logged.finite) else run.number("learning_rate")
    )


def _word(was: Scalar, wanted: Scalar, now: Scalar) -> Taken:
    if now is None:
        return "unknown"
    if wanted is not None and _equal(now, wanted):
        return "taken"
    if was is None:
        return "unknown"
    if _equal(now, was):
        return "not_taken"
    a, b, c = _number(was), _number(wanted), _number(now)
    if a is None or b is None or c is None:
        return "partly" if wanted is None else "not_taken"
    if (c - a) * (b - a) <= 0:
        return "not_taken"  # turned the other way
    return "taken" if abs(c - a) > abs(b - a) else "partly"


def _number(value: Scalar) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _equal(one: Scalar, other: Scalar) -> bool:
    a, b = _number(one), _number(other)
    if a is not None and b is not None:
        return abs(a - b) <= _CLOSE * max(abs(a), abs(b))
    return one == other
