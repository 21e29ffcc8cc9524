"""Most clipping happens at one of the two bounds.

## What you see
Of the tokens that are clipped, more than three quarters hit the same bound, and more than a hundredth of all are clipped.

## Why it matters
At the upper bound, rare tokens of good answers cannot grow: the policy narrows, and its entropy falls. At the lower one,
tokens of bad answers are pushed down as far as one batch allows.

## When it is not a problem
Clip fractions below a hundredth. One on-policy update per batch, where nothing can be clipped. Bounds set apart on
purpose. Sequence-level ratios (GSPO) and CISPO clip on other terms. The bound against huge ratios (dual clip) is no side.
"""

from rlclinic.checks.form import Answer, Limits, NotApplicable, check
from rlclinic.checks.readings import bought, lasting, now
from rlclinic.model import Evidence, Finding, Run, Severity


@check(page=__doc__, needs=["clip.low_frac", "clip.high_frac"], uses=["entropy.mean", "reward.mean"], since="0.2")
def clip_asymmetry(run: Run, limits: Limits) -> Answer:
    columns = run["clip.low_frac"], run["clip.high_frac"]
    other = any("sequence" in c.estimator or "cispo" in c.estimator for c in columns)
    if other or run.knob("ratio_level") == "sequence":
        return NotApplicable("sequence-level and CISPO clipping is far higher by design")
    _, lows, highs = run.paired("clip.low_frac", "clip.high_frac")
    if not len(lows) or not (lows + highs).any():
        return NotApplicable("nothing is clipped: each batch gets one on-policy update")
    low, high = now(run, lows), now(run, highs)
    total, upper = low + high, high > low
    ratio = max(low, high) / max(min(low, high), 1e-4 * total, 1e-12)
    severity = limits.grade("ratio", ratio) if total > limits["total"] else None
    entropy = run.get("entropy.mean")
    fall = (
        lasting(entropy, falling=True, level=limits["p_value"]) if severity and upper and entropy is not None else None
    )
    narrowed = fall is not None and fall.late < limits["left"] * fall.early
    gain = bought(run, since=fall.onset.step) if fall is not None and narrowed else None
    if severity is not None and narrowed and (gain is None or not gain.rising):
        severity = Severity.WARNING
    side, against = ("upper", "lower") if upper else ("lower", "upper")
    told = ""
    if fall is not None and narrowed:
        told = f"; entropy fell from {fall.early:.3g} to {fall.late:.3g}" + (f" and the {gain.says}" if gain else "")
    return Finding(
        severity=severity,
        says=f"{max(low, high):.1%} of tokens are clipped at the {side} bound and {min(low, high):.1%} at the {against} one"
        + told,
        numbers={"low": low, "high": high, "ratio": ratio, "total": total},
        metrics=("clip.low_frac", "clip.high_frac", *(("entropy.mean",) if narrowed else ())),
        onset=fall.onset if fall is not None and narrowed else None,
        evidence=Evidence(ratio, fall.evidence.p_value if fall is not None and narrowed else None, "late means"),
        remedies=("clip_higher", "updates_per_batch") if upper else ("updates_per_batch", "dual_clip"),
        would_decide=() if entropy is not None else ("the entropy of the policy: does it fall?",),
    )
