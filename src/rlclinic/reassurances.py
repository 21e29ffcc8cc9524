"""What often worries people and is normal: said only when the log shows it, and never beside a finding that says otherwise.

Notes that are the other side of a check (a clip fraction of 0, an absent KL) are left by that check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from rlclinic.model import Finding, Note, Run, Severity

_CONTRADICTED: Mapping[str, frozenset[str]] = {
    "loss_zero_expected": frozenset({"zero_gradient_steps", "nan_inf"}),
    "clip_zero_expected": frozenset({"zero_gradient_steps", "nan_inf", "kl_pinned_zero"}),
    "loss_negative_expected": frozenset({"nan_inf"}),
    "kl_negative_expected": frozenset({"logging_bug"}),
    "advantage_mean_expected": frozenset({"advantage_not_centred"}),
    "grad_above_limit_expected": frozenset({"grad_spikes", "grad_clip_always_active", "nan_inf", "sudden_collapse"}),
    "low_entropy_expected": frozenset({"entropy_collapse", "mode_collapse"}),
    "reward_negative_expected": frozenset({"reward_decline", "sudden_collapse", "no_learning", "verifier_broken"}),
    "kl_first_step_expected": frozenset({"kl_pinned_zero", "weight_sync_failure"}),
}
"""Findings at warning or worse beside which a note would be wrong."""


def reassurances(run: Run) -> list[Note]:
    """Every reassurance that this log calls for, in the order of their ids."""
    found = [note for look in _LOOKS if (note := look(run)) is not None]
    return sorted(found, key=lambda note: note.id)


def uncontradicted(notes: Iterable[Note], findings: Iterable[Finding]) -> list[Note]:
    """The notes that no finding contradicts."""
    sick = {f.check for f in findings if (f.severity or 0) >= Severity.WARNING}
    return [note for note in notes if not _CONTRADICTED.get(note.id, frozenset()) & sick]


def _loss_negative(run: Run) -> Note | None:
    loss = run.get("loss.total") or run.get("loss.policy")
    if loss is None or not len(loss.finite) or float(np.median(loss.finite.values)) >= 0:
        return None
    says = (
        f"{loss.key} is below 0 in most rows: a policy-gradient loss is a weighted sum of log-probabilities, not a "
        "distance to a target; neither its sign nor its fall says that the policy gets better"
    )
    return Note("loss_negative_expected", says)


def _kl_negative(run: Run) -> Note | None:
    for metric in ("kl.old_new", "kl.ref"):
        kl = run.get(metric)
        if kl is None or not len(kl.finite) or kl.estimator.startswith("k3"):
            continue
        least, most = float(kl.finite.values.min()), float(np.abs(kl.finite.values).max())
        if least < 0 and most < 0.05:
            says = (
                f"{kl.key} is slightly negative in some rows: a mean of log-ratios estimates a KL that is never "
                "negative, with noise on both sides of 0"
            )
            return Note("kl_negative_expected", says)
    return None


def _advantage_mean(run: Run) -> Note | None:
    mean = run.get("advantage.mean")
    if mean is None or not len(mean.finite) or run.framework is None or run.framework.name != "verl":
        return None
    level = float(np.mean(mean.finite.values))
    if not 1e-3 <= abs(level) <= 0.3:
        return None
    longer = "longer" if level < 0 else "shorter"
    says = (
        f"{mean.key} is {level:.2g} and not 0: it is weighted by tokens, so it leaves 0 as soon as wrong answers are "
        f"{longer} than right ones; only a mean over answers must be 0"
    )
    return Note("advantage_mean_expected", says)


def _gradient_above_limit(run: Run) -> Note | None:
    norm, limit = run.get("grad.norm"), run.number("grad_clip")
    if norm is None or not limit or limit <= 0 or not len(norm.finite):
        return None
    above = float(np.mean(norm.finite.values > limit))
    if above < 0.2:
        return None
    says = (
        f"{norm.key} is above the limit of {limit:g} in {above:.0%} of the rows: it is the norm before shortening; the "
        "update itself keeps the limit"
    )
    return Note("grad_above_limit_expected", says)


def _low_entropy(run: Run) -> Note | None:
    entropy = run.get("entropy.mean")
    if entropy is None or len(entropy.finite) < 3:
        return None
    values = entropy.finite.values
    rows = max(1, min(5, len(values) // 5))
    first, last = float(np.median(values[:rows])), float(np.median(values[-rows:]))
    if not (0.02 <= first <= 0.6 and last >= 0.6 * first):
        return None
    says = (
        f"entropy of {last:.2g} nats per token is no collapse: it began at {first:.2g}, as instruction-tuned and "
        "distilled models do (0.1 to 0.6); what counts is how much of the beginning is lost"
    )
    return Note("low_entropy_expected", says)


def _negative_reward(run: Run) -> Note | None:
    reward = run.get("reward.mean")
    if reward is None or len(reward.finite) < 3 or float(np.median(reward.finite.values)) >= 0:
        return None
    says = f"{reward.key} is negative: rewards may have any zero point; what counts is whether it rises"
    return Note("reward_negative_expected", says)


def _first_step(run: Run) -> Note | None:
    kl = run.get("kl.ref")
    if kl is None or kl.status != "measured" or not len(kl.finite) or len(kl.finite) > 10 or run.counted:
        return None
    c = kl.finite
    if c.steps[0] > 2 or c.values[0] > 1e-3 or (len(c) > 1 and not float(c.values[1:].max()) > c.values[0]):
        return None
    says = f"{kl.key} is about 0 at step {c.steps[0]:g}: before the first update the policy is the reference"
    return Note("kl_first_step_expected", says)


_LOOKS: tuple[Callable[[Run], Note | None], ...] = (
    _loss_negative,
    _kl_negative,
    _advantage_mean,
    _gradient_above_limit,
    _low_entropy,
    _negative_reward,
    _first_step,
)
