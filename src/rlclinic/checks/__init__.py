"""Every check, in one list; the order is the order of the documentation and means nothing else."""

from rlclinic.checks.clip_saturation import clip_saturation
from rlclinic.checks.entropy_collapse import entropy_collapse
from rlclinic.checks.entropy_rise import entropy_rise
from rlclinic.checks.eval_missing import eval_missing
from rlclinic.checks.form import Answer, Check, Limit, Limits, NotApplicable, Unexamined, check, examine
from rlclinic.checks.grad_spikes import grad_spikes
from rlclinic.checks.kl_drift import kl_drift
from rlclinic.checks.metric_not_logged import metric_not_logged
from rlclinic.checks.nan_inf import nan_inf
from rlclinic.checks.never_eos import never_eos
from rlclinic.checks.no_learning import no_learning
from rlclinic.checks.plateau import plateau
from rlclinic.checks.reward_decline import reward_decline
from rlclinic.checks.reward_saturated import reward_saturated
from rlclinic.checks.sudden_collapse import sudden_collapse
from rlclinic.checks.truncation import truncation
from rlclinic.checks.zero_gradient_steps import zero_gradient_steps
from rlclinic.checks.zero_variance_all_right import zero_variance_all_right
from rlclinic.checks.zero_variance_all_wrong import zero_variance_all_wrong
from rlclinic.checks.zero_variance_discrete_middle import zero_variance_discrete_middle

CHECKS: tuple[Check, ...] = (
    nan_inf,
    metric_not_logged,
    eval_missing,
    zero_variance_all_right,
    zero_variance_all_wrong,
    zero_variance_discrete_middle,
    reward_saturated,
    entropy_collapse,
    entropy_rise,
    kl_drift,
    clip_saturation,
    grad_spikes,
    zero_gradient_steps,
    truncation,
    never_eos,
    no_learning,
    plateau,
    reward_decline,
    sudden_collapse,
)

BY_NAME = {one.name: one for one in CHECKS}

RENAMED = {
    "advantage_collapse": ("zero_variance_all_right", "zero_variance_all_wrong", "zero_variance_discrete_middle"),
    "zero_variance_groups": ("zero_variance_all_right", "zero_variance_all_wrong", "zero_variance_discrete_middle"),
    "gradient_pathology": ("nan_inf", "grad_spikes", "zero_gradient_steps"),
    "gradient_nonfinite": ("nan_inf",),
    "length_pathology": ("truncation", "never_eos"),
    "collapse_event": ("sudden_collapse",),
    "reward_regression": ("reward_decline", "sudden_collapse"),
    "missing_metrics": ("metric_not_logged", "eval_missing"),
}
"""Names used elsewhere for what these checks look for, with the names to use here."""

__all__ = [
    "BY_NAME",
    "CHECKS",
    "RENAMED",
    "Answer",
    "Check",
    "Limit",
    "Limits",
    "NotApplicable",
    "Unexamined",
    "check",
    "examine",
]
