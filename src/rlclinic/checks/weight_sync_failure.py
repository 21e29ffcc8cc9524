"""The sampler keeps old weights: the trainer moves on, and what is sampled stays as it was.

## What you see
Reward and length stand still although the trainer's KL to the reference grows, and the KL between sampler and trainer
grows with it, in proportion.

## Why it matters
Every sample comes from the same old policy. The trainer learns further and further away from what it sees, and the
curves show none of it.

## When it is not a problem
On an ordinary plateau sampler and trainer agree. When KL to the reference stays small as well, learning has stopped; when
reward or length move, new weights do arrive.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import lasting
from rlclinic.model import Finding, Floats, Run, Severity
from rlclinic.stats.level import held

_GAPS = ("mismatch.kl_k3", "mismatch.kl", "mismatch.logp_diff.mean")


@check(page=__doc__, uses=["kl.ref", *_GAPS, "reward.mean", "length.response.mean"], since="0.2")
def weight_sync_failure(run: Run, limits: Limits) -> Answer:
    if run.knob("sampler") is False:
        return NotApplicable("the trainer samples with its own weights; nothing has to be sent")
    gap = next((run[m] for m in _GAPS if m in run and "signed" not in run[m].note and len(run[m].finite)), None)
    drift = run.get("kl.ref")
    if gap is None:
        return Unexamined(("mismatch.kl",), "nothing in this log compares the sampler with the trainer")
    if drift is None or drift.status != "measured" or not len(drift.finite):
        return Unexamined(("kl.ref",), "the trainer's distance from the reference is not logged")
    steps, apart, away = run.paired(gap.metric, "kl.ref")
    if len(steps) < limits["rows"]:
        return Unexamined((), f"{len(steps)} rows are too few to see whether the two grow together")
    apart, away = np.abs(apart), np.abs(away)
    rise = lasting(gap, falling=False, level=limits["p_value"])
    further = lasting(drift, falling=False, level=limits["p_value"])
    share = _proportion(apart, away, gap.metric)
    together = _together(apart, away)
    moved = [m for m in ("reward.mean", "length.response.mean") if _moves(run, m, limits)]
    seen = [m for m in ("reward.mean", "length.response.mean") if m in run]
    proportional = limits["least"] <= share <= 1.0 / limits["least"] and together >= limits["together"]
    grown = rise is not None and further is not None and rise.late >= limits["growth"] * max(rise.early, 1e-12)
    failed = grown and proportional and not moved and len(seen) == 2
    standing = "reward and length stand still" if not moved else f"{' and '.join(run[m].key for m in moved)} moves"
    return Finding(
        severity=Severity.CRITICAL if failed else None,
        says=f"the sampler is {rise.late:.2g} nats per token from the trainer, which is {further.late:.2g} from the "
        f"reference; both grew together while {standing}"
        if failed and rise is not None and further is not None
        else f"sampler and trainer do not part in proportion to the KL to the reference (a share of {share:.2g})",
        numbers={"share": share, "together": together},
        metrics=(gap.metric, "kl.ref", *seen),
        onset=rise.onset if failed and rise is not None else None,
        evidence=rise.sized(share) if failed and rise is not None else None,
        remedies=("sync_full_weights", "roll_back"),
        would_decide=("log-probabilities of one text in sampler and trainer, right before and right after a sync",)
        if failed
        else (),
    )


def _proportion(apart: Floats, away: Floats, metric: str) -> float:
    """The late gap of sampler and trainer as a multiple of the trainer's distance from the reference.

    Half the squared log-ratio is a KL, so a gap of log-probabilities counts with its square.
    """
    gap = float(np.median(apart[-max(5, len(apart) // 4) :]))
    if metric == "mismatch.logp_diff.mean":
        gap = 0.5 * gap * gap
    return gap / max(float(np.median(away[-max(5, len(away) // 4) :])), 1e-12)


def _together(apart: Floats, away: Floats) -> float:
    """Correlation of the two courses, smoothed over a tenth of the run."""
    a, b = held(apart)[0], held(away)[0]
    if len(a) < 5 or float(np.ptp(a)) == 0.0 or float(np.ptp(b)) == 0.0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _moves(run: Run, metric: str, limits: Limits) -> bool:
    if metric not in run:
        return False
    changes = [lasting(run[metric], falling=falling, level=limits["p_move"]) for falling in (True, False)]
    return any(c is not None and abs(c.change) > limits["moved"] * abs(c.early) for c in changes)
