"""The gradient is exactly zero in many steps.

## What you see
`grad_norm` is 0 (not small: 0) in many steps, and often the loss with it.

## Why it matters
If all groups of these steps were dead, the data gave nothing to learn. If they were alive, something is broken: adapters
without gradient, every token masked, a loss that does not depend on the weights.

## When it is not a problem
A *loss* of zero is normal: with one on-policy update per batch and centred advantages it is 0 by construction while the
gradient is not. A printed 0.000 may be a small number.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.model import Column, Evidence, Finding, Floats, Note, Onset, Run, Severity
from rlclinic.stats.shift import longest_run

PRINTED_ZERO = 1e-4
"""A loss below this counts as "zero" to the reader: Transformers before 5 rounds it to four decimals."""


@check(page=__doc__, uses=["grad.norm", "group.zero_var_frac", "reward.group_std", "loss.total"], since="0.1")
def zero_gradient_steps(run: Run, limits: Limits) -> Answer:
    column = run.get("grad.norm")
    if column is None or not len(column.finite):
        return Unexamined(("grad.norm",), "no finite gradient norm in this log", _loss_zero(run))
    norm = column.finite
    zero = norm.zero
    share = float(zero.mean())
    live, dead = _split(run, norm, zero)
    notes = () if share > 0 else _loss_zero(run)
    if share == 0.0 or norm.rounded_zero:
        rounded = " (printed with few decimals: 0 may be a small number)" if share and norm.rounded_zero else ""
        says = f"gradient norm is 0 in {share:.0%} of {len(norm)} rows{rounded}"
        return Finding(severity=None, says=says, numbers={"share": share}, metrics=("grad.norm",), notes=notes)
    broken = live is not None and live > limits["live"] and (share > 0.5 or zero.sum() >= 3)
    if (expected := _windowed(run, norm)) is not None:
        # The norm is the last step's, the share a mean over the window: at most that share of steps can be all dead.
        broken = broken and dead is not None and share > expected + limits["excess"]
    severity = Severity.CRITICAL if broken else limits.grade("share", share)
    start, _, length = longest_run(norm.steps, zero)
    if broken:
        why = " while groups still differed in reward: a bug, not the data"
    elif dead is not None and dead > 0.9:
        why = ", and all groups of these steps were dead: the data, not the optimizer"
    elif expected is not None and dead is not None:
        why = ", no more than dead groups explain"
    else:
        why = "; whether groups had spread in these steps is not logged"
    says = f"gradient norm is exactly 0 in {share:.0%} of {len(norm)} rows{why}"
    return Finding(
        severity=severity,
        says=says,
        numbers={"share": share, "longest": float(length), **({"live": live} if live is not None else {})},
        metrics=tuple(m for m in ("grad.norm", "group.zero_var_frac", "reward.group_std") if m in run),
        # Explained by dead groups it is their echo and has no beginning of its own.
        onset=Onset(float(norm.steps[zero][0]), float(norm.steps[zero][0]), start) if broken else None,
        evidence=Evidence(share, None, "counted in the log"),
        remedies=("check_adapter", "check_masks") if broken else ("dynamic_sampling", "check_adapter"),
        own_cause=broken,
        wasted=share if severity is not None else None,
        would_decide=() if live is not None else ("the zero-variance share or the within-group spread in these steps",),
    )


def _windowed(run: Run, norm: Column) -> float | None:
    """The mean share of dead groups in a log that averages over several steps; None for a log of every step."""
    if len(norm) < 2 or float(np.median(np.diff(norm.steps))) <= 1.0:
        return None
    share = run.get("group.zero_var_frac") or run.get("group.all_dead")
    return 1.0 if share is None or not len(share.finite) else float(share.finite.values.mean())


def _split(run: Run, norm: Column, zero: NDArray[np.bool_]) -> tuple[float | None, float | None]:
    """Share of the zero-gradient rows in which some group was provably alive, and in which all were provably dead."""
    alive: dict[float, bool] = {}

    def learn(metric: str, live: Callable[[Floats], NDArray[np.bool_]]) -> None:
        column = run.get(metric)
        if column is not None and column.status != "structural_zero":
            alive.update(zip(column.finite.steps.tolist(), live(column.finite.values).tolist(), strict=True))

    learn("reward.group_std", lambda spread: np.asarray(spread > 1e-6))
    learn("group.zero_var_frac", lambda share: np.asarray(share < 1.0 - 1e-6))
    all_dead = run.get("group.all_dead")
    if all_dead is not None:
        alive.update(dict.fromkeys(all_dead.steps[all_dead.values == 1.0].tolist(), False))
    known = [alive[s] for s in norm.steps[zero].tolist() if s in alive]
    if not known:
        return None, None
    return float(np.mean(known)), float(1 - np.mean(known))


def _loss_zero(run: Run) -> tuple[Note, ...]:
    """The reassurance about a zero loss, given only when the weights provably move and the rewards differ."""
    loss, dead = run.get("loss.total"), run.get("group.all_dead")
    if loss is None or not len(loss.finite) or any(c.nonfinite for c in run.columns.values()):
        return ()
    if float(np.median(np.abs(loss.finite.values))) > PRINTED_ZERO:
        return ()
    if dead is not None and float(dead.values.mean()) > 0.9:
        return ()
    norm, kl = run.get("grad.norm"), run.get("kl.ref")
    drift = kl is not None and len(kl.finite) > 1 and float(np.abs(kl.finite.values).max()) > 0
    if norm is not None and len(norm.finite) and bool((norm.finite.values > 0).all()):
        proof = f"the gradient does not vanish (norm {np.median(norm.finite.values):.2g})"
    elif norm is None and drift:
        proof = "the weights move (KL to the reference has left 0)"
    else:
        return ()
    term = " What little it shows is the KL term." if drift else ""
    return (
        Note(
            "loss_zero_expected",
            f"{loss.key} is about 0 and should be: advantages are centred in each group and the ratio is 1 on the first "
            f"update, so the value cancels while {proof}.{term} Judge progress by reward and held-out score.",
        ),
    )
