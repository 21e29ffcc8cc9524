"""A KL coefficient is set, but no KL term is in use.

## What you see
The configuration names a coefficient above 0 and the log holds no KL to the reference; or the coefficient belongs to a
KL in the loss that is switched off.

## Why it matters
The policy is held to nothing although it was meant to be: drift, reward hacking and forgetting meet no resistance, and
a change of the coefficient changes nothing.

## When it is not a problem
Runs without a KL term are a common recipe for verifiable rewards. A coefficient that is only the framework's default,
printed with everything else, was not asked for. A pasted excerpt, or a console that prints some of the metrics, need
not show the series.
"""

from rlclinic import vitals
from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.model import Evidence, Finding, Knob, Run, Severity

KLS = ("kl.ref", "kl.ref_seq_sum", "kl.loss_term", "kl.teacher")
ALWAYS = ("trl", "unsloth", "ms_swift", "verl")
"""Trainers that write the KL in every row in which its term is in use."""

WHOLE = (
    ("grad.norm", "loss.total", "loss.policy"),
    ("length.response.mean", "entropy.mean", "clip.frac", "group.zero_var_frac"),
)
"""What stands beside the KL in a row that the trainer wrote; without it the log holds something else's rows."""


@check(page=__doc__, uses=["kl.ref", "kl.ref_seq_sum", "kl.loss_term"], since="0.2")
def kl_not_applied(run: Run, limits: Limits) -> Answer:
    weight = run.knobs.get("kl_coef")
    size = run.number("kl_coef")
    if weight is None:
        return Unexamined(("kl_coef",), "the KL coefficient is not known")
    if not size or size <= limits["coefficient"]:
        return NotApplicable("no KL term is configured: the coefficient is 0")
    if run.partial or not len(run.steps):
        return Unexamined(("kl.ref",), "this text shows only some of the metrics and need not show the KL")
    seen = [m for m in KLS if (c := run.get(m)) is not None and len(c) and c.status != "structural_zero"]
    if seen:
        says = f"{run[seen[0]].key} is logged beside {weight.key} = {size:g}: the term is in use"
        return Finding(severity=None, says=says, numbers={"coefficient": size}, metrics=tuple(seen))
    off = _switched_off(run, weight)
    if off is None and not all(any(m in run for m in some) for some in WHOLE):
        return Unexamined(("kl.ref",), "the rows are not those of the trainer itself, which would hold the KL")
    asked = vitals.chosen(run, "kl_coef") is not None
    sure = off is not None or (run.framework is not None and run.framework.name in ALWAYS)
    if not asked:
        severity = None  # a default that nobody set acts or not; nobody believes in it
    else:
        severity = Severity.WARNING if sure else Severity.INFO
    why = f"{off.key} is off" if off is not None else f"no KL is logged in {len(run.steps)} rows"
    return Finding(
        severity=severity,
        says=f"{weight.key} = {size:g} has no effect: {why}"
        if asked
        else f"{weight.key} = {size:g} is the default of the framework and {why}",
        numbers={"coefficient": size},
        evidence=Evidence(size, None, "configuration against the keys of the log"),
        remedies=("restart_with_value",),
        would_decide=() if off is not None else ("the configuration as the trainer resolved it",),
    )


def _switched_off(run: Run, weight: Knob) -> Knob | None:
    """The switch that keeps the coefficient of a KL *in the loss* from acting (verl, slime, SkyRL name both so)."""
    switch = run.knobs.get("kl_in_loss")
    if switch is None or switch.value is not False or run.knob("kl_in_reward") is True:
        return None
    return switch if "loss" in weight.key and "kl" in weight.key else None
