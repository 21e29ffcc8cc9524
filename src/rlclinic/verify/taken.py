"""Which remedies were carried out: the settings of both runs against what was prescribed."""

from __future__ import annotations

from collections.abc import Iterable

from rlclinic.model import Change, Finding, Prescription, Run, Scalar
from rlclinic.verify.alignment import Pair
from rlclinic.verify.form import Changed, Taken, Trial, Turned

_CLOSE = 1e-3
"""Relative difference up to which a number is the prescribed one (ours: people round)."""
_OF_THE_LOG = frozenset({
    "planned_steps", "epochs", "save_every", "logging_every", "log_entropy", "log_completions", "rollout_dir", "eval_every",
    "eval_strategy", "eval_answers", "eval_data", "eval_split", "answers_shown", "log_post_kl", "planned_samples", "resume",
    "gpus", "nodes", "hide_nonfinite", "calculate_log_probs", "algorithm",
})  # fmt: skip
"""Settings that say how a run is watched or how long it goes on; they change nothing that is learnt."""


def trials(finding: Finding, pair: Pair) -> tuple[Trial, ...]:
    """Every remedy of the finding that could be carried out, in the order in which it was prescribed."""
    return tuple(_trial(remedy, finding, pair) for remedy in finding.prescriptions if remedy.applies)


def confounders(findings: Iterable[Finding], pair: Pair) -> tuple[Changed, ...]:
    """Settings known in both runs that differ, other than those that a remedy of ``findings`` changes."""
    asked = {change.knob for f in findings for remedy in f.prescriptions for change in remedy.changes}
    found = []
    for name in sorted(set(pair.before.knobs) & set(pair.after.knobs) - asked - _OF_THE_LOG):
        one, other = pair.before.knobs[name], pair.after.knobs[name]
        if not _equal(one.value, other.value) and not (one.origin == other.origin == "default"):
            found.append(Changed(name, other.key, one.value, other.value))
    return tuple(found)


def _trial(remedy: Prescription, finding: Finding, pair: Pair) -> Trial:
    if remedy.id == "roll_back":
        return _rolled_back(remedy, finding, pair)
    if not remedy.changes:
        return Trial(remedy, "no_setting", says="no setting of the log tells")
    settings = tuple(_turned(change, pair.before, pair.after) for change in remedy.changes)
    words = {setting.taken for setting in settings}
    if words == {"taken"}:
        return Trial(remedy, "taken", settings)
    if words & {"taken", "partly"}:
        return Trial(remedy, "partly", settings)
    if "unknown" in words:
        lacking = ", ".join(setting.key for setting in settings if setting.taken == "unknown")
        side = "AFTER" if any(s.taken == "unknown" and s.knob not in pair.after.knobs for s in settings) else "BEFORE"
        return Trial(remedy, "unknown", settings, f"{lacking} is not known of {side}: give its configuration")
    return Trial(remedy, "not_taken", settings)


def _rolled_back(remedy: Prescription, finding: Finding, pair: Pair) -> Trial:
    if pair.start is None:
        return Trial(remedy, "taken", says="AFTER starts anew")
    way = finding.rollback
    until = way.high if way is not None else finding.onset.low if finding.onset is not None else None
    told = f"AFTER goes on from step {pair.start:g}"
    if until is None:
        return Trial(remedy, "unknown", says=f"{told}; up to where the run was sound is not known")
    return Trial(remedy, "taken" if pair.start <= until + pair.pace else "not_taken", says=told)


def _turned(change: Change, before: Run, after: Run) -> Turned:
    was = change.before if change.before is not None else before.knob(change.knob)
    now = after.knob(change.knob)
    return Turned(change.knob, change.key, was, change.after, now, _word(was, change.after, now))


def _word(was: Scalar, wanted: Scalar, now: Scalar) -> Taken:
    if now is None:
        return "unknown"
    if wanted is not None and _equal(now, wanted):
        return "taken"
    if was is None:
        return "unknown" if wanted is None else "not_taken"
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
