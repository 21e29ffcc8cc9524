"""What is rewarded rises while what it stands for falls or stays.

## What you see
The training reward climbs, and a second measure of the same skill does not follow: the held-out score, the part of the
reward that counts right answers, or the task score under a reward with penalties added to it.

## Why it matters
The policy has found something that pays without solving the task: a gap in the verifier, a cheap part of the reward, a
penalty that is smallest when nothing is said. Every further step makes the model worse while the curve looks better.

## When it is not a problem
Two curves that both rise do not diverge, however different their slopes. A held-out score near its ceiling, on much
harder questions, or with fewer than six evaluations says little. A penalty may grow while the task score rises: that is
what it costs to learn.
"""

from typing import NamedTuple

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import at_seam, lasting, left_behind, sank
from rlclinic.checks.rewards import task_parts
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.coupling import FEWEST_EVALUATIONS


class _Pair(NamedTuple):
    """What the policy is paid for, and what that should bring."""

    signal: Column
    outcome: Column
    paid: str
    meant: str
    held_out: bool
    cures: tuple[str, ...]


class _Split(NamedTuple):
    pair: _Pair
    severity: Severity
    says: str
    effect: float
    p_value: float | None
    points: int
    since: Onset | None


@check(
    page=__doc__,
    uses=["reward.mean", "eval.score", "reward.shaped.mean", "reward.success_rate", "reward.component.mean"],
    since="0.2",
)
def reward_eval_divergence(run: Run, limits: Limits) -> Answer:
    pairs = [pair for pair in _pairs(run) if len(pair.signal) >= limits["rows"]]
    if not pairs or run.excerpt:
        says = "needs a second measure beside the reward over a stretch of the run: a held-out score"
        return Unexamined(("eval.score",), f"{says} with {FEWEST_EVALUATIONS} evaluations, or the parts of the reward")
    made = len(pairs)
    found = [split for pair in pairs if (split := _split(pair, limits, made)) is not None]
    metrics = tuple(dict.fromkeys(c.metric for pair in pairs for c in (pair.signal, pair.outcome)))
    if not found:
        told = " and ".join(pair.meant for pair in pairs)
        return Finding(None, f"no split between the reward and {told}", {"pairs": float(made)}, metrics)
    worst = max(found, key=lambda split: (split.severity, split.pair.held_out, -(split.p_value or 0.0)))
    p_value = None if worst.p_value is None else min(1.0, made * worst.p_value)
    agreeing = len(found) > 1 or None
    return Finding(
        severity=worst.severity,
        says=worst.says + at_seam(run, worst.since, worst.pair.signal),
        numbers={"lost": worst.effect, "pairs": float(made), "apart": float(len(found))},
        metrics=metrics,
        onset=worst.since,
        evidence=Evidence(worst.effect, p_value, "outcome against signal", n=worst.points, agreeing=agreeing),
        remedies=worst.pair.cures,
        would_decide=(
            "twenty answers of the highest reward, read by a person",
            "the same answers under a second verifier",
        ),
    )


def _pairs(run: Run) -> list[_Pair]:
    reward, shaped, score = run.get("reward.mean"), run.get("reward.shaped.mean"), run.get("eval.score")
    read = ("read_top_answers", "audit_verifier", "roll_back")
    pairs = []
    if reward is not None and score is not None and len(score.finite) >= FEWEST_EVALUATIONS:
        pairs.append(_Pair(reward.finite, score.finite, "the training reward", "the held-out score", True, read))
    _, first, second = run.paired("reward.shaped.mean", "reward.mean")
    if reward is not None and shaped is not None and len(first) and abs(first - second).max() > 0.0:
        paid, meant = f"the reward with its penalties ({shaped.key})", f"the task score ({reward.key})"
        pairs.append(_Pair(shaped.finite, reward.finite, paid, meant, False, ("read_top_answers", "roll_back")))
    right = run.get("reward.success_rate")
    if reward is not None and right is not None and right.key != reward.key:
        pairs.append(_Pair(reward.finite, right.finite, "the reward", "the share of right answers", False, read))
    for part in task_parts(run) if reward is not None and len(run.components) > 1 else ():
        cures = ("reward_weights", "read_top_answers", "roll_back")
        pairs.append(
            _Pair(run["reward.mean"].finite, part.mean.finite, "the reward", f"its part {part.name}", False, cures)
        )
    return pairs


def _split(pair: _Pair, limits: Limits, made: int) -> _Split | None:
    """How the pair came apart, or None. Only a held-out score may be blamed for standing still: a part of the reward
    that waits while another is learnt is the business of the check of dominating parts."""
    signal, outcome = pair.signal, pair.outcome
    level = limits["p_value"] / made
    seen = left_behind(signal, outcome, level, held_out=pair.held_out)
    if seen is not None and seen.verdict == "falling":
        says = f"{pair.paid} rose while {pair.meant} {sank(outcome, seen.peak, seen.late)}"
        return _Split(pair, Severity.CRITICAL, says, seen.effect, seen.p_value, seen.m, seen.rollback)
    if pair.held_out and seen is not None:
        ever = "followed at first and then no more" if seen.verdict == "stalled" else "did not follow"
        says = f"{pair.paid} rose by {seen.rise:.3g}, and {pair.meant} {ever}: it ends near {seen.late:.3g}"
        return _Split(pair, Severity.WARNING, says, abs(seen.effect), seen.p_value, seen.m, seen.rollback)
    if pair.held_out or len(outcome) < limits["dense"]:
        return None
    down, up = lasting(outcome, falling=True, level=level), lasting(signal, falling=False, level=level)
    if down is None or up is None or abs(down.change) < limits["least"] * abs(down.early):
        return None
    p_values = [p for p in (down.evidence.p_value, up.evidence.p_value) if p is not None]
    rose, fell = (f"from {change.early:.3g} to {change.late:.3g}" for change in (up, down))
    says = f"{pair.paid} rose {rose} while {pair.meant} fell {fell} (levels before and after)"
    p_value = max(p_values, default=None)
    return _Split(pair, Severity.CRITICAL, says, abs(down.change), p_value, len(outcome), down.onset)
