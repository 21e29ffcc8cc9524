"""The policy stopped exploring: its token entropy fell early and did not come back.

## What you see
Entropy drops to a small part of its first level and stays there; the reward flattens later.

## Why it matters
Equal answers earn equal rewards, so groups lose their spread, the gradient fades, and what the policy has not tried by
then it will not try any more.

## When it is not a problem
Reward and held-out score still climb: the policy grows sure of what it now solves. Instruct and distilled models may
start at 0.1 to 0.6 nat; a low entropy that never moved is not a collapse.
"""

from rlclinic.checks.form import Limits, check
from rlclinic.checks.readings import Lasting, at_seam, bought, foreseen, lasting
from rlclinic.model import Column, Finding, Forecast, Onset, Run, Severity
from rlclinic.stats.level import held, late
from rlclinic.stats.shift import crossing


@check(
    page=__doc__,
    needs=["entropy.mean|entropy.sampled"],
    uses=["reward.mean", "eval.score", "clip.high_frac"],
    since="0.1",
)
def entropy_collapse(run: Run, limits: Limits) -> Finding:
    entropy = run.get("entropy.mean") or run["entropy.sampled"]
    now = late(entropy.finite.values)
    fall = lasting(entropy, falling=True, level=limits["p_value"])
    ratio = now / fall.early if fall is not None and fall.early > 0 else 1.0
    severity = limits.grade("ratio", ratio) if fall is not None else None
    deterministic = limits.grade("nats", now)
    gain = bought(run, since=fall.onset.step) if fall is not None else None
    title = ""
    if severity is not None and gain is not None and gain.rising and deterministic is None:
        severity = Severity.INFO
        title = f"The policy grew sure while its {'reward' if gain.metric == 'reward.mean' else 'held-out score'} rose."
    elif severity is not None and fall is not None and not fall.abrupt and deterministic is None:
        title = "The policy explores less and less."  # the onset is that of the fall
    once = float(held(entropy.finite.values, 0.1, 3)[0].max()) if len(entropy.finite) >= 20 else 0.0
    if deterministic is not None and (run.short or fall is not None or once > 10 * max(now, 1e-12)):
        severity = max(severity or deterministic, deterministic)
    off_policy = (run.number("inner_epochs") or 1) > 1 or bool(
        (run["clip.high_frac"].finite.values > 0).any() if "clip.high_frac" in run else False
    )
    paid = (run.number("entropy_coef") or 0.0) > 0 and run.knob("entropy_in_loss") is not False
    bonus = "stronger_entropy_bonus" if paid else "entropy_bonus"
    cures = ("clip_higher", bonus) if off_policy else (bonus, "lower_learning_rate")
    if fall is not None:
        says = f"entropy fell from {fall.early:.3g} to {now:.3g} nats per token" + (f"; {gain.says}" if gain else "")
        says += at_seam(run, fall.onset, entropy.finite)
    elif severity is not None and not run.short:
        says = f"entropy was as high as {once:.3g} and is {now:.2g} nats per token now: answers are all but fixed"
    elif deterministic is not None and run.short:
        says = f"entropy is {now:.2g} nats per token: answers are all but fixed"
    else:
        says = f"entropy is {now:.3g} nats per token, without a lasting fall"
    return Finding(
        severity=severity,
        title=title,
        says=says,
        numbers={"late": now, "ratio": ratio, **({"early": fall.early} if fall is not None else {})},
        metrics=(entropy.metric,),
        onset=_began(entropy, fall, once, now) if severity is not None else None,
        evidence=fall.sized(1 - ratio) if fall is not None else None,
        remedies=("roll_back", *cures) if deterministic is not None else cures,
        forecast=_floor(entropy, fall, limits) if severity is not None and fall is not None else None,
        would_decide=() if "eval.score" in run else ("a held-out score: does the certainty still buy anything?",),
    )


def _began(entropy: Column, fall: Lasting | None, once: float, now: float) -> Onset | None:
    """The onset of the fall or, after a rise that hides it from the test, where the way down from the top was half done."""
    if fall is not None or not once:
        return None if fall is None else fall.onset
    c = entropy.finite
    return crossing(c.steps, c.values, max(0.1 * once, 2 * now), above=False)


def _floor(entropy: Column, fall: Lasting, limits: Limits) -> Forecast | None:
    """When a fall that is still under way leaves a tenth of where it began; none for a jump, which has no course."""
    floor = limits.at("ratio", Severity.CRITICAL)
    if fall.abrupt:
        return None
    return foreseen(
        entropy.finite.since(fall.onset.step), floor * fall.early, f"{floor:.0%} of its level before the fall"
    )
