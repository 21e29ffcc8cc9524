"""The learning rate is too high: the policy reacts within the first steps and then comes to harm.

## What you see
Within a hundred steps of the rate reaching its peak, KL runs up, entropy is lost or explodes, or the gradient grows; the
reward rises and falls again, or falls at once. The rate lies above the usual band of the method.

## Why it matters
Steps that are too large leave the region in which the sampled answers say anything about the next policy.

## When it is not a problem
A rate of 5e-5 with LoRA is a common default. Small models bear more. A high rate alone proves nothing: it takes an early
reaction to say so. A mismatch between sampler and trainer looks alike.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import bought, lost_for_good, rate_raised, rises
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import held
from rlclinic.stats.shift import crossing


@check(page=__doc__, uses=["optim.lr", "kl.ref", "entropy.mean", "grad.norm", "reward.mean", "eval.score"], since="0.2")
def lr_too_high(run: Run, limits: Limits) -> Answer:
    rate = run.get("optim.lr")
    logged = float(rate.finite.values.max()) if rate is not None and len(rate.finite) else 0.0
    peak = logged or run.number("learning_rate") or 0.0
    if peak <= 0:
        return Unexamined(("optim.lr",), "the learning rate is not known")
    method, band = _band(run, limits)
    times = peak / band
    since = _peak_reached(run, peak)
    reactions = _reactions(run, since, limits) if times > 1 and not run.short else []
    gain = bought(run, since=since) if reactions else None
    harm = lost_for_good(run, limits["p_value"], limits["harm"]) if reactions else None
    far = limits.grade("times", times)
    severity = far
    if harm is not None and rises(run):  # oversized steps undo what is paid; this policy does more and more of it
        harm += " while the reward rose, as steps do that earn it"
    elif harm is not None:
        severity = Severity.CRITICAL if far is not None else Severity.WARNING
    elif far is not None and reactions and gain is not None and not gain.rising:
        severity = Severity.WARNING
    told = "; ".join(says for _, says in reactions)
    told = f"; {told}" if told else "; nothing reacted early" if not run.short and severity is not None else ""
    if reactions and (harm is not None or gain is not None):
        told += f"; {harm or (gain.says if gain is not None else '')}"
    began = min((at for at, _ in reactions), key=lambda at: at.step, default=None)
    raised = rate_raised(rate.finite) if rate is not None else None
    if raised is not None and raised.step == since and began is not None:
        began = Onset(raised.step, raised.step, raised.step)
    return Finding(
        severity=severity,
        says=(raised.says if raised is not None else f"learning rate reaches {peak:.2g}")
        + f", {times:.3g} times the upper end of {method}{told}",
        numbers={"peak": peak, "band": band, "times": times, "reactions": float(len(reactions))},
        metrics=tuple(m for m in ("optim.lr", "kl.ref", "entropy.mean", "grad.norm", "reward.mean") if m in run),
        onset=began,
        evidence=Evidence(times, None, "configuration, and what moved within a hundred steps of the peak"),
        remedies=("restore_learning_rate", "roll_back")
        if raised is not None
        else ("learning_rate", "roll_back")
        if began
        else ("learning_rate",),
        settings={"learning_rate": float(f"{min(peak / 3, band):.1g}") if raised is None else raised.before},
        acts_from=since if np.isfinite(since) else None,
        resume="here"
        if severity == Severity.WARNING and harm is None and gain is not None and not gain.falling
        else "",
        would_decide=("the same run with a third of the rate: KL and entropy over its first hundred steps",),
    )


def _band(run: Run, limits: Limits) -> tuple[str, float]:
    """Where the rate should end, in words and as a number; the wider band, of LoRA, where the method is not known.

    A rank that is only the trainer's default does not say that adapters are in use; a rank of 0 says that none are.
    """
    rank = run.knobs.get("lora")
    if rank is not None and rank.value and rank.origin != "default":
        return "the usual band for LoRA", limits["lora"]
    if rank is not None and rank.value in (0, None, False):
        return "the usual band for full fine-tuning", limits["full"]
    return "any usual band", limits["lora"]


def _peak_reached(run: Run, peak: float) -> float:
    """The first step with half of the peak rate; the first of the run where the rate is not logged."""
    rate = run.get("optim.lr")
    up = rate.finite.steps[rate.finite.values >= 0.5 * peak] if rate is not None else run.steps
    return float(up[0]) if len(up) else float("inf")


def _reactions(run: Run, since: float, limits: Limits) -> list[tuple[Onset, str]]:
    """What left its first level within the window after the rate had reached half of its peak, with when and how far."""
    until = since + max(limits["window"], 0.1 * float(np.ptp(run.steps)))
    found = []
    for metric, name in (("kl.ref", "KL"), ("entropy.mean", "entropy"), ("grad.norm", "gradient norm")):
        column = run.get(metric)
        if column is None or len(column.finite) < 20 or len(near := column.finite.upto(until).since(since)) < 3:
            continue
        c = column.finite
        begun = c.upto(max(since, float(c.steps[4]))).values[-5:]
        first = float(np.median(begun[begun > 0])) if (begun > 0).any() else 0.0
        high = {"kl.ref": limits["nats"], "entropy.mean": limits["risen"] * first}.get(metric, limits["grown"] * first)
        low = limits["lost"] * first if metric == "entropy.mean" else -np.inf
        means, _ = held(near.values, 0.05, min(3, len(near)))
        up = float(means.max()) > high > 0
        at = crossing(c.steps, c.values, high if up else low, above=up, last=False) if up or means.min() < low else None
        if at is not None and at.step <= until:
            reached = float(means.max() if up else means.min())
            found.append((at, f"{name} went from {first:.2g} to {reached:.2g}"))
    if found:
        found[-1] = (found[-1][0], f"{found[-1][1]} within {until - since:.0f} steps")
    return found
