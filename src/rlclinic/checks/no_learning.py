"""The reward has not moved since the start: it is where it began, and the held-out score with it.

## What you see
Over the whole run the reward has no trend, no step and no lasting change, and the log is long enough to show one.

## Why it matters
The budget is spent without an update that matters: a learning rate of zero, groups without a single success, a reward
that is mostly noise, weights that never reach the sampler.

## When it is not a problem
The reward was at its top from the start, or the run is still in warm-up.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import lasting
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.trend import plateau as equivalence
from rlclinic.stats.trend import trend


@check(page=__doc__, needs=["reward.mean"], uses=["eval.score", "optim.lr", "entropy.mean"], points=12, since="0.1")
def no_learning(run: Run, limits: Limits) -> Answer:
    reward = run["reward.mean"].finite
    if "kl.teacher" in run and bool((reward.values == 0).all()):
        return NotApplicable("the reward is never paid in this run; the objective is distillation")
    span = float(reward.steps[-1] - reward.steps[0])
    if span < limits["steps"]:
        return Unexamined((), f"{span:.0f} steps are too few to say that nothing is learned")
    level = float(np.median(reward.values))
    if run.reward_range is not None and run.reward_range.share(level) > limits["top"]:
        return NotApplicable("the reward is at the top of its range from the start")
    rate = run.get("optim.lr")
    off = rate is not None and not rate.rounded_zero and bool((rate.finite.values == 0).all())
    moved = trend(reward.steps, reward.values)
    noise = float(np.std(np.diff(reward.values)) / np.sqrt(2))
    usual = limits["noise"] * noise
    if 2 * noise <= abs(
        level
    ):  # a level that stands out of the noise: a good part of it matters, however noisy the rows
        usual = min(usual, limits["most"] * abs(level))
    margin = max(limits["margin"] * abs(level), usual, 1e-9)
    shown = equivalence(reward.steps, reward.values, margin, 0.05)
    constant = float(np.ptp(reward.values)) < 1e-9
    still = constant or (
        moved.verdict == "none"
        and moved.p_value > limits["p_value"]
        and shown.flat is True
        and abs(shown.change) <= max(limits["margin"] * abs(level), 0.5 * noise)
        and lasting(reward, falling=False) is None
        and lasting(reward, falling=True) is None
        and not _moved(run.get("eval.score"))
    )
    off = off and moved.verdict != "rising"  # a rate logged as 0 beside a reward that climbs is a logging fault
    if not still and not off:
        if moved.verdict == "undecided" or (moved.verdict == "none" and shown.flat is not True):
            return Unexamined((), "too few independent values to tell a flat reward from a slow one")
        return Finding(
            severity=None,
            says=f"reward moved (from {moved.start:.3g} to {moved.end:.3g})",
            numbers={"change": moved.change},
            metrics=("reward.mean",),
        )
    sure = off or constant or _idle(run)
    kl = run.get("kl.ref")
    adapter = kl is None or lasting(kl, falling=False) is None  # a KL that grows shows that the weights move
    cures = ("score_gold_answers", *(("check_adapter",) if adapter else ()), "raise_learning_rate")
    cause = "; the learning rate is 0 in every row" if off else ""
    return Finding(
        severity=Severity.CRITICAL if sure and not run.short else Severity.WARNING,
        says=f"reward stays near {level:.3g} for all {len(reward)} rows: its change lies between "
        f"{shown.change_low:+.2g} and {shown.change_high:+.2g}, less than would matter{cause}",
        numbers={"level": level, "margin": margin, "change_low": shown.change_low, "change_high": shown.change_high},
        metrics=tuple(m for m in ("reward.mean", "eval.score", "optim.lr") if m in run),
        onset=Onset(float(reward.steps[0]), float(reward.steps[0]), float(reward.steps[0])),
        evidence=Evidence(margin, 0.05, "no trend, no step, and equivalence over the whole run", equivalence=True),
        remedies=("set_learning_rate",) if off else cures,
        would_decide=() if "eval.score" in run else ("a held-out score",),
    )


def _moved(score: Column | None) -> bool:
    """Whether the held-out score shows a trend of its own; False without enough evaluations."""
    if score is None or len(score.finite) < 6:
        return False
    c = score.finite
    third = max(2, len(c) // 3)
    first, last = c.values[:third], c.values[-third:]
    spread = float(np.sqrt(np.var(first) / len(first) + np.var(last) / len(last)))
    return abs(float(last.mean() - first.mean())) > max(3 * spread, 0.05)


def _idle(run: Run) -> bool:
    """Whether a second quantity, entropy, stands still as well over a run of a length that would show it."""
    entropy = run.get("entropy.mean")
    if entropy is None or len(entropy.finite) < 100:
        return False
    c = entropy.finite
    return equivalence(c.steps, c.values, 0.05 * float(np.median(np.abs(c.values))), 0.05).flat is True
