"""A second verifier refuses answers that the reward pays.

## What you see
Saved answers graded again by a function of your own (`--verifier`) earn another verdict: paid by the reward and refused by
the verifier, or the reverse; above all where the share of paid answers that are refused rises.

## Why it matters
The policy moves to where the reward pays. If that is where the reward is wrong, every further step teaches the wrong thing
while the curve looks its best.

## When it is not a problem
The second verifier may be the wrong one of the two: read some answers on which they differ. Parts of the reward for form or
length are not its business; a few per cent of disagreement at the edges of a format are usual.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.rollouts import Floats, Regraded
from rlclinic.stats.level import lower_bound
from rlclinic.stats.verdicts import kappa, rank_correlation, rising


@check(page=__doc__, uses=["reward.mean"], since="0.5")
def verifier_disagreement(run: Run, limits: Limits) -> Answer:
    again = run.regraded
    if again is None:
        return NotApplicable("no second verifier was given (--verifier MODULE:FUNCTION)")
    if len(again.rows) < limits["answers"]:
        return Unexamined((), f"{again.verifier} gave a verdict on {len(again.rows)} answers only; {_lost(again)}")
    paid = again.paid
    if np.ptp(again.score) == 0 and (paid != again.accepted).any():
        return Unexamined(
            (), f"{again.verifier} gives all {len(again.rows)} answers the same score, so it tells nothing"
        )
    refused, of = _by_window(again, paid & ~again.accepted), _by_window(again, paid)
    share, missed = again.refused, again.missed
    sure = lower_bound(share, float(paid.sum())) if paid.any() else 0.0
    sure_missed = lower_bound(missed, float((~paid).sum())) if (~paid).any() else 0.0
    grown = rising(refused, of)
    last = np.flatnonzero(of > 0)
    early, late = ((refused[k] / of[k]) if len(last) else 0.0 for k in (last[[0, -1]] if len(last) else (0, 0)))
    climbs = grown <= limits["p_value"] and late - early >= limits["climb"]
    severity = limits.grade("refused", max(sure, lower_bound(late, of[last[-1]]) if climbs else 0.0))
    if climbs and severity is not None:
        severity = max(severity, Severity.WARNING)
    turned = severity is None and (severity := limits.grade("missed", sure_missed)) is not None
    agree = kappa(paid, again.accepted, again.weight)
    order = rank_correlation(again.reward, again.score)
    said = f"{again.verifier} refuses {share:.0%} of the answers that the reward pays"
    if turned:
        said = f"{again.verifier} accepts {missed:.0%} of the answers that the reward does not pay"
    elif climbs:
        said += f", rising from {early:.0%} of {of[last[0]]:.0f} to {late:.0%} of {of[last[-1]]:.0f} over the run"
    return Finding(
        severity=severity,
        says=f"in the saved answers {said} ({len(again.rows)} graded again, agreement {agree.agreement:.0%}"
        + (f", kappa {agree.kappa:.2f}, {agree.low:.2f} to {agree.high:.2f}" if np.isfinite(agree.kappa) else "")
        + (f", rank correlation {order:.2f}" if len(np.unique(again.score)) > 2 and np.isfinite(order) else "")
        + f"){_lost(again, '; ')}",
        numbers={"refused": share, "missed": missed, "agreement": agree.agreement}
        | ({"kappa": agree.kappa} if np.isfinite(agree.kappa) else {})
        | {f"refused_{k + 1}": float(refused[k] / of[k]) for k in last.tolist()},
        metrics=("reward.mean",) if "reward.mean" in run else (),
        onset=_since(run, refused, of) if climbs else None,
        evidence=Evidence(share, grown if climbs else None, "verdicts on the same answers; Cochran-Armitage trend",
                          n=len(again.rows)),
        remedies=("audit_verifier", "read_top_answers", "roll_back"),
        would_decide=("ten paid answers that it refuses, read by a person: which of the two is right?",) if severity else (),
        samples=_examples(again, turned),
    )  # fmt: skip


def _by_window(again: Regraded, which: np.ndarray) -> Floats:
    return np.bincount(again.window[which], minlength=4).astype(np.float64)


def _since(run: Run, refused: Floats, of: Floats) -> Onset | None:
    """The first quarter with at least half of the last rate, or late in the one before it, as an interval of steps."""
    if not run.rollouts or not len(run.rollouts[0].train.steps):
        return None
    rate = refused / np.maximum(of, 1)
    first = int(np.argmax((rate >= 0.5 * rate[of > 0][-1]) & (of > 0)))
    steps = run.rollouts[0].train.steps
    ends = (steps[min(max(k, 0) * len(steps) // 4, len(steps) - 1)] for k in (first - 1, first, first + 1))
    low, at, high = map(float, ends)
    return Onset(at, low, high)


def _lost(again: Regraded, before: str = "") -> str:
    """What did not come to a verdict, in words; empty when all did."""
    told = [f"{n} {what}" for n, what in ((again.failed, "raised an error"), (again.slow, "were stopped at the time limit"),
                                          (again.silent, "got None")) if n]  # fmt: skip
    return before + f"of {again.asked} asked {' and '.join(told)}" if told else ""


def _examples(again: Regraded, turned: bool) -> tuple[int, ...]:
    """Answers on which the two differ, the latest first."""
    differ = (~again.paid & again.accepted) if turned else (again.paid & ~again.accepted)
    return tuple(again.rows[differ][::-1][:8].tolist())
