"""The policy has moved far from the reference.

## What you see
KL to the reference is high and grows while reward and held-out score stall or fall.

## Why it matters
Beyond some distance the proxy reward keeps rising while real quality falls; language and other skills go first.

## When it is not a problem
Drift that buys held-out score is the point of training, and many recipes use no KL term at all. What counts as far
depends on the estimator, and on whether it is a mean per token or a sum per answer.
"""

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.readings import bought, foreseen
from rlclinic.model import Column, Evidence, Finding, Forecast, Note, Onset, Run, Severity
from rlclinic.stats.level import early, late, middle
from rlclinic.stats.shift import crossing
from rlclinic.stats.trend import acceleration


@check(page=__doc__, uses=["kl.ref", "kl.ref_seq_sum", "eval.score", "reward.mean"], since="0.1")
def kl_drift(run: Run, limits: Limits) -> Answer:
    column, limit = run.get("kl.ref"), "per_token"
    if column is None or not len(column.finite):
        column, limit = run.get("kl.ref_seq_sum"), "per_answer"
    if column is None or not len(column.finite):
        return Unexamined(("kl.ref",), "no KL to the reference is logged", _absent(run))
    kl = column.finite
    if column.status == "structural_zero":
        return Unexamined(("kl.ref",), column.because, _absent(run))
    level = late(kl.values, least=1)
    severity = limits.grade(limit, level)
    gain = bought(run, since=float(kl.steps[0])) if severity is not None and not run.short else None
    if severity is not None and gain is not None:
        if gain.rising:
            # Drift that buys reward is the point; only the held-out score can excuse an extreme one.
            excused = gain.metric == "eval.score" or severity == Severity.WARNING
            severity = Severity.INFO if excused else Severity.WARNING
        elif gain.falling:
            severity = Severity.CRITICAL
    bound = limits.at(limit, Severity.WARNING)
    running = severity is None and limit == "per_token" and _runs_away(run, kl, limits)
    if running:
        severity, gain, bound = Severity.WARNING, bought(run, since=float(kl.steps[0])), limits["away"]
    unit = "per token" if limit == "per_token" else "per answer"
    told = "; it still grows faster and faster" if running else ""
    told += f"; {gain.says}" if gain is not None else ""
    weight = run.number("kl_coef")
    fell = severity is not None and _first(kl) > 3 * level
    # The row of the second step is the earliest that an update can have moved, and one update moves a policy by little.
    at_once = severity is not None and not run.counted and kl.steps[0] <= 2 and float(kl.values[0]) >= bound
    both = ("lower_learning_rate", "kl_coefficient") if weight else ("kl_coefficient", "lower_learning_rate")
    cures = ("check_reference",) if at_once else ("lower_learning_rate",) if fell else both
    before = f" (from {_first(kl):.3g})" if len(kl) > 1 else ""
    odd = "; it was far from the first row on and falls: do sampler and scorer differ?" if fell else ""
    odd = f"; it was that far at step {kl.steps[0]:g}, before the policy can have moved" if at_once else odd
    ask = () if "eval.score" in run else ("a held-out score: what did the drift buy?",)
    due = severity is not None and not fell and not at_once and not run.short
    return Finding(
        severity=severity,
        says=f"KL to the reference is {level:.3g} nats {unit}{before}{told}{odd}",
        numbers={"late": level, "first": _first(kl), "largest": float(kl.values.max())},
        metrics=tuple(m for m in (column.metric, "eval.score", "reward.mean") if m in run),
        onset=_since(kl, bound) if severity else None,
        evidence=Evidence(level, None, f"late median against a level; estimator {column.estimator or 'not known'}"),
        remedies=cures,
        would_decide=("the KL before the first update: 0 for the model the run began from",) if at_once else ask,
        forecast=_next(kl, limit, level, limits) if due else None,
    )


def _since(kl: Column, bound: float) -> Onset | None:
    """Where the bound was crossed for good; the drift itself may have begun as early as it left a fifth of the bound."""
    at = crossing(kl.steps, kl.values, bound, above=True)
    left = crossing(kl.steps, kl.values, 0.2 * bound, above=True)
    return at if at is None or left is None else Onset(at.step, min(at.low, left.low), at.high)


def _next(kl: Column, limit: str, level: float, limits: Limits) -> Forecast | None:
    """When the present course meets the next of the two levels."""
    for severity, word in ((Severity.WARNING, "high"), (Severity.CRITICAL, "extreme")):
        if level < limits.at(limit, severity):
            return foreseen(kl, limits.at(limit, severity), f"{limits.at(limit, severity):g} nats, a {word} level,")
    return None


def _runs_away(run: Run, kl: Column, limits: Limits) -> bool:
    """Still below every level, but grown by far, gaining speed, and without anything bought."""
    now = late(kl.values, 0.1)
    if run.short or now < limits["away"] or now < limits["grown"] * max(early(kl.values), 1e-9):
        return False
    gain = bought(run, since=float(kl.steps[0]))
    speed = acceleration(kl.steps, kl.values, level=limits["p_value"])
    return gain is not None and not gain.rising and speed.verdict == "speeding_up" and speed.late > 0


def _first(kl: Column) -> float:
    return middle(kl.values[: max(1, min(3, len(kl) // 4))])


def _absent(run: Run) -> tuple[Note, ...]:
    """The reassurance that no KL is normal, given only when the KL term is known to be off."""
    weight = run.knobs.get("kl_coef")
    switch = run.knobs.get("kl_in_loss")
    off = (weight is not None and weight.value in (0, 0.0)) or (
        switch is not None and switch.value is False and run.knob("kl_in_reward") is not True
    )
    # TRL writes the key whenever beta is not 0, so in whole rows its absence proves that the term is off.
    implied = weight is None and not run.partial and run.framework is not None and run.framework.name == "trl"
    if not off and not (implied and "reward.mean" in run):
        return ()
    if switch is not None and switch.value is False:
        how = f"({switch.key} is off)"
    else:
        how = f"({weight.key} = 0)" if weight is not None else "(TRL logs it whenever beta is not 0)"
    return (
        Note(
            "kl_absent_expected",
            f"no KL to the reference is logged because the KL term is not in use {how}: there is no reference model to "
            "measure against. That is a common recipe for verifiable rewards, not a fault.",
        ),
    )
