"""Answers grow far longer without growing better.

## What you see
The mean length of an answer rises by half or more and stays up, while the held-out score, or without one the reward,
does not follow. More answers reach the length limit, and steps take longer.

## Why it matters
Sampling is most of what a step costs, and it grows with the answers. Length that earns nothing is filler, repetition,
or a reward that pays for length itself; where it meets the limit, answers are cut and lose their result.

## When it is not a problem
Growth that buys held-out score is longer thinking, and many good runs double in length. Two series that both rise always
correlate: length is called the driver of the reward only when, around both trends, steps with longer answers earn more.
"""

from dataclasses import dataclass

from rlclinic.checks.form import Limits, check
from rlclinic.checks.readings import Gain, Lasting, ahead, at_seam, came_of, lasting, now, steady_length
from rlclinic.model import Finding, Forecast, Run, Severity
from rlclinic.stats.coupling import lead
from rlclinic.stats.level import early


@dataclass(frozen=True)
class _Growth:
    """What surrounds a lasting growth of the answers."""

    gain: Gain | None
    cut: float | None
    """Share of cut answers now, where it grew with the length into the range that matters."""
    tie: float
    """Correlation of length and reward from step to step around their trends; 0 where none is shown."""
    heading: Forecast | None


@check(
    page=__doc__,
    needs=["length.response.mean"],
    uses=["eval.score", "reward.mean", "length.truncated_frac"],
    points=8,
    since="0.2",
)
def length_explosion(run: Run, limits: Limits) -> Finding:
    column = run["length.response.mean"]
    rise = lasting(column, falling=False, level=limits["p_value"])
    ratio = rise.late / rise.early if rise is not None and rise.early > 0 else 1.0
    severity = limits.grade("ratio", ratio)
    if rise is None or severity is None or rise.change < limits["tokens"]:
        return steady_length(column, rise, ratio - 1.0)
    seen = _around(run, rise, limits)
    told = f"; {seen.gain.says}" if seen.gain is not None else ""
    if seen.tie:
        told += f"; step by step the reward follows the length (correlation {seen.tie:.2f} around both trends)"
    if seen.cut is not None:
        told += f"; {seen.cut:.0%} of answers are cut now"
    return Finding(
        severity=_severity(severity, seen),
        says=f"answers grew from {rise.early:.0f} to {rise.late:.0f} tokens{told}{at_seam(run, rise.onset, column)}",
        numbers={
            "early": rise.early,
            "late": rise.late,
            "ratio": ratio,
            **({"correlation": seen.tie} if seen.tie else {}),
            **({"cut": seen.cut} if seen.cut is not None else {}),
        },
        metrics=tuple(m for m in (column.metric, "length.truncated_frac", "eval.score", "reward.mean") if m in run),
        onset=rise.onset,
        evidence=rise.sized(ratio - 1.0),
        forecast=seen.heading,
        remedies=_remedies(run, seen),
        would_decide=() if "eval.score" in run else ("a held-out score: do the longer answers solve more?",),
    )


def _around(run: Run, rise: Lasting, limits: Limits) -> _Growth:
    column, reward, cut = run["length.response.mean"], run.get("reward.mean"), run.get("length.truncated_frac")
    share = None
    if cut is not None and len(cut.finite):
        share = now(run, cut.finite.values)
        begun = early(cut.finite.values, 0.1, 3)
        share = share if share >= limits["cut"] and share >= 2 * begun else None
    tie = 0.0
    if reward is not None:
        seen = lead(column.finite.steps, column.finite.values, reward.finite.steps, reward.finite.values)
        tie = seen.correlation if seen.verdict == "together" and seen.correlation >= limits["correlation"] else 0.0
    limit = run.number("max_response_length")
    heading = ahead(run, column, limit, f"the mean length reaches the limit of {limit:.0f} tokens") if limit else None
    gain = came_of(run, rise.onset, column)
    if gain is None and reward is not None and len(reward.finite):
        gain = Gain("reward.mean", 0.0, 0.0, rising=True, falling=False, says="too few rows to say what it bought")
    return _Growth(gain, share, tie, None if share is not None and share > 0.5 else heading)


def _severity(by_ratio: Severity, seen: _Growth) -> Severity | None:
    """Held-out score excuses growth that does not run into the limit; a training reward, which may pay for length,
    excuses it only as far as the steps do not show that it does."""
    gain = seen.gain
    if gain is None or not (gain.rising or gain.falling):
        if seen.tie and gain is not None:
            return Severity.CRITICAL
        perhaps = gain is not None and gain.last - gain.first > max(0.05 * abs(gain.first), 0.01)
        return Severity.WARNING if perhaps else by_ratio  # something may have been gained, too little to be sure
    held_out = gain.metric == "eval.score"
    if gain.falling:
        return Severity.CRITICAL if held_out else by_ratio
    if seen.cut is not None or (seen.tie and not held_out):
        return Severity.WARNING
    return Severity.INFO if seen.heading is not None or not held_out else None


def _remedies(run: Run, seen: _Growth) -> tuple[str, ...]:
    if "reward.mean" not in run:
        return ("roll_back", "lower_learning_rate")
    paid = ("reward_weights", "length_penalty") if seen.tie or len(run.components) > 1 else ("length_penalty",)
    return ("soft_overlong_penalty", *paid) if seen.cut is not None else paid
