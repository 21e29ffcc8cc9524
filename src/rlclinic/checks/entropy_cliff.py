"""The run jumped: from one step to the next its measurements lie on another level, and they stay there.

## What you see
Entropy, answer length, reward or KL change within one row by many times their noise and hold the new level, mostly
several of them at the same step.

## Why it matters
Training moves smoothly. A jump says that something was changed: data, reward, configuration, code, weights; or that one
step destroyed the policy. What moved at the same step says which.

## When it is not a problem
A resumed run, a new stage of a curriculum, a reward or a metric that is computed in another way from that step on. A
smooth fall, however steep, is no jump. Where the reward itself collapsed, that is the finding.
"""

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import at_seam
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import early, late
from rlclinic.stats.seams import settled_from
from rlclinic.stats.shift import Shift, steps_found

WATCHED = ("entropy.mean", "length.response.mean", "reward.mean", "kl.ref")
BESIDE = ("length.truncated_frac", "grad.norm", "length.prompt.mean", "mismatch.logp_diff.mean")


@check(page=__doc__, needs=["|".join(WATCHED)], uses=list(BESIDE), points=30, since="0.2")
def entropy_cliff(run: Run, limits: Limits) -> Answer:
    jumps = {m: j for m in WATCHED if (c := run.get(m)) is not None and (j := _jump(run, c, limits)) is not None}
    judged = [m for m in WATCHED if (c := run.get(m)) is not None and len(c.finite) >= limits["rows"] + 10]
    if not judged:
        return Unexamined((), f"too few rows for {limits['rows']:.0f} before a jump")
    if not jumps:
        return Finding(
            severity=None,
            says=f"no jump in {', '.join(run[m].key for m in judged)}",
            numbers={},
            metrics=tuple(judged),
        )
    main = max(jumps, key=lambda m: jumps[m].size)
    at = jumps[main]
    near = {m: j for m, j in jumps.items() if _same(j, at, run)}
    beside = {
        m: j for m in BESIDE if (c := run.get(m)) is not None and (j := _jump(run, c, limits, near=at)) is not None
    }
    began = Onset(at.step, at.low, at.high)
    seam = at_seam(run, began, run[main].finite)
    severity, told = _weigh(near, beside, judged)
    others = [run[m].key for m in (*near, *beside) if m != main]
    with_it = (
        f" and {', '.join(others[:3])}" + (f" and {len(others) - 3} more" if len(others) > 3 else "") if others else ""
    )
    return Finding(
        severity=Severity.INFO if seam else severity,
        says=f"at step {at.step:g} {run[main].key} jumped from {at.before:.3g} to {at.after:.3g} ({at.size:.0f} noise "
        f"deviations){with_it}, and stayed{told}{seam}",
        numbers={"size": at.size, "before": at.before, "after": at.after, "series": float(len(near) + len(beside))},
        metrics=(*near, *beside),
        onset=began,
        evidence=Evidence(at.size, at.p_value, "step against a smooth curve, BIC, AR(1)-whitened", n=len(run[main])),
        remedies=("undo_change", "inspect_batch"),
        would_decide=("the difference of configuration, data and code between the two sides of that step",),
    )


def _jump(run: Run, column: Column, limits: Limits, near: Shift | None = None) -> Shift | None:
    """The largest step that is far beyond the noise, carries most of the whole change and still holds at the end."""
    c = column.finite
    begin = settled_from(c.steps, run.number("warmup_steps") or 0.0)
    kept = c.since(begin)
    if len(kept) < limits["rows"] + 10:
        return None
    now, first = late(kept.values), early(kept.values)
    whole = max(abs(now - first), 1e-12)
    size = limits["size"] if near is None else limits["beside"]
    held = [
        s
        for s in steps_found(c.steps, c.values, hidden=False)
        if s.step > begin
        and s.size >= size
        and abs(s.jump) >= limits["share"] * whole
        and (column.metric != "kl.ref" or s.before != 0)  # it leaves 0 when a run starts, or starts again
        and (s.after - s.before) * (now - s.before) >= limits["holds"] * (s.after - s.before) ** 2
        and int((kept.steps < s.step).sum()) >= limits["rows"]
    ]
    if near is not None:
        held = [s for s in held if _same(s, near, run)]
    return max(held, key=lambda s: s.size, default=None)


def _same(one: Shift, other: Shift, run: Run) -> bool:
    """Whether two steps may be one event: their intervals meet, or lie within two rows of each other."""
    rows = run.steps
    apart = 2.0 * float((rows[-1] - rows[0]) / max(1, len(rows) - 1))
    return one.low <= other.high + apart and other.low <= one.high + apart


def _weigh(near: dict[str, Shift], beside: dict[str, Shift], judged: list[str]) -> tuple[Severity, str]:
    """How much the jump matters, by what moved with it."""
    reward = near.get("reward.mean")
    if reward is not None and reward.jump < 0:
        return Severity.INFO, "; the reward fell with it: follow that"
    if "length.prompt.mean" in beside:
        return Severity.INFO, "; the prompts changed: other data since then"
    if len(near) + len(beside) == 1 and len(judged) >= 3:
        return Severity.INFO, "; nothing else did: is it computed in another way since then?"
    return Severity.WARNING, ""
