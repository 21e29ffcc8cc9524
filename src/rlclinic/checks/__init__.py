"""Every check, in one list, causes before what they lead to; the order has no meaning beyond that of the documentation."""

from rlclinic.checks.advantage_explosion import advantage_explosion
from rlclinic.checks.advantage_not_centred import advantage_not_centred
from rlclinic.checks.async_selection_bias import async_selection_bias
from rlclinic.checks.clip_asymmetry import clip_asymmetry
from rlclinic.checks.clip_bound_misconfigured import clip_bound_misconfigured
from rlclinic.checks.clip_saturation import clip_saturation
from rlclinic.checks.config_change_without_effect import config_change_without_effect
from rlclinic.checks.contamination import contamination
from rlclinic.checks.critic_failure import critic_failure
from rlclinic.checks.dead_reward_component import dead_reward_component
from rlclinic.checks.dominating_reward_component import dominating_reward_component
from rlclinic.checks.duplicated_or_missing_steps import duplicated_or_missing_steps
from rlclinic.checks.empty_answers import empty_answers
from rlclinic.checks.entropy_cliff import entropy_cliff
from rlclinic.checks.entropy_collapse import entropy_collapse
from rlclinic.checks.entropy_near_random import entropy_near_random
from rlclinic.checks.entropy_rise import entropy_rise
from rlclinic.checks.environment_tokens_trained import environment_tokens_trained
from rlclinic.checks.eval_missing import eval_missing
from rlclinic.checks.eval_too_noisy import eval_too_noisy
from rlclinic.checks.form import Answer, Check, Limit, Limits, NotApplicable, Unexamined, check, examine
from rlclinic.checks.format_break import format_break
from rlclinic.checks.grad_clip_always_active import grad_clip_always_active
from rlclinic.checks.grad_spikes import grad_spikes
from rlclinic.checks.grad_vanishing import grad_vanishing
from rlclinic.checks.judge_noise_dominates import judge_noise_dominates
from rlclinic.checks.kl_drift import kl_drift
from rlclinic.checks.kl_not_applied import kl_not_applied
from rlclinic.checks.kl_pinned_zero import kl_pinned_zero
from rlclinic.checks.kl_spike import kl_spike
from rlclinic.checks.language_mixing import language_mixing
from rlclinic.checks.length_explosion import length_explosion
from rlclinic.checks.length_shrink import length_shrink
from rlclinic.checks.logging_bug import logging_bug
from rlclinic.checks.loss_length_bias import loss_length_bias
from rlclinic.checks.lr_schedule_exhausted import lr_schedule_exhausted
from rlclinic.checks.lr_too_high import lr_too_high
from rlclinic.checks.memory_creep import memory_creep
from rlclinic.checks.metric_not_logged import metric_not_logged
from rlclinic.checks.mode_collapse import mode_collapse
from rlclinic.checks.nan_inf import nan_inf
from rlclinic.checks.never_eos import never_eos
from rlclinic.checks.no_learning import no_learning
from rlclinic.checks.plateau import plateau
from rlclinic.checks.premature_stop import premature_stop
from rlclinic.checks.prompt_over_limit import prompt_over_limit
from rlclinic.checks.reference_wrong import reference_wrong
from rlclinic.checks.regression_forgetting import regression_forgetting
from rlclinic.checks.repetition_loop import repetition_loop
from rlclinic.checks.resume_discontinuity import resume_discontinuity
from rlclinic.checks.reward_decline import reward_decline
from rlclinic.checks.reward_eval_divergence import reward_eval_divergence
from rlclinic.checks.reward_hacking import reward_hacking
from rlclinic.checks.reward_model_overoptimisation import reward_model_overoptimisation
from rlclinic.checks.reward_saturated import reward_saturated
from rlclinic.checks.sampler_corruption import sampler_corruption
from rlclinic.checks.self_judge_drift import self_judge_drift
from rlclinic.checks.silent_data_loss import silent_data_loss
from rlclinic.checks.sparse_reward import sparse_reward
from rlclinic.checks.stale_rollouts import stale_rollouts
from rlclinic.checks.std_normalisation_bias import std_normalisation_bias
from rlclinic.checks.straggler_generation import straggler_generation
from rlclinic.checks.sudden_collapse import sudden_collapse
from rlclinic.checks.throughput_decay import throughput_decay
from rlclinic.checks.token_drift_retokenisation import token_drift_retokenisation
from rlclinic.checks.tool_call_failure import tool_call_failure
from rlclinic.checks.tool_use_collapse import tool_use_collapse
from rlclinic.checks.train_deploy_gap import train_deploy_gap
from rlclinic.checks.train_inference_mismatch import train_inference_mismatch
from rlclinic.checks.truncation import truncation
from rlclinic.checks.turn_explosion import turn_explosion
from rlclinic.checks.value_loss_explosion import value_loss_explosion
from rlclinic.checks.verifier_broken import verifier_broken
from rlclinic.checks.verifier_disagreement import verifier_disagreement
from rlclinic.checks.weight_sync_failure import weight_sync_failure
from rlclinic.checks.zero_gradient_steps import zero_gradient_steps
from rlclinic.checks.zero_variance_all_right import zero_variance_all_right
from rlclinic.checks.zero_variance_all_wrong import zero_variance_all_wrong
from rlclinic.checks.zero_variance_discrete_middle import zero_variance_discrete_middle

CHECKS: tuple[Check, ...] = (
    logging_bug,
    duplicated_or_missing_steps,
    metric_not_logged,
    eval_missing,
    eval_too_noisy,
    premature_stop,
    contamination,
    config_change_without_effect,
    kl_not_applied,
    clip_bound_misconfigured,
    resume_discontinuity,
    reference_wrong,
    prompt_over_limit,
    lr_too_high,
    lr_schedule_exhausted,
    std_normalisation_bias,
    loss_length_bias,
    advantage_not_centred,
    verifier_broken,
    verifier_disagreement,
    self_judge_drift,
    judge_noise_dominates,
    dominating_reward_component,
    reward_hacking,
    token_drift_retokenisation,
    environment_tokens_trained,
    sampler_corruption,
    straggler_generation,
    throughput_decay,
    memory_creep,
    stale_rollouts,
    async_selection_bias,
    weight_sync_failure,
    train_inference_mismatch,
    silent_data_loss,
    critic_failure,
    value_loss_explosion,
    clip_asymmetry,
    clip_saturation,
    kl_spike,
    advantage_explosion,
    grad_spikes,
    nan_inf,
    entropy_rise,
    entropy_near_random,
    sudden_collapse,
    entropy_cliff,
    kl_drift,
    never_eos,
    turn_explosion,
    tool_call_failure,
    tool_use_collapse,
    repetition_loop,
    length_explosion,
    format_break,
    empty_answers,
    language_mixing,
    truncation,
    length_shrink,
    reward_model_overoptimisation,
    reward_eval_divergence,
    reward_decline,
    sparse_reward,
    mode_collapse,
    entropy_collapse,
    reward_saturated,
    zero_variance_discrete_middle,
    zero_variance_all_right,
    zero_variance_all_wrong,
    dead_reward_component,
    zero_gradient_steps,
    kl_pinned_zero,
    grad_vanishing,
    grad_clip_always_active,
    no_learning,
    regression_forgetting,
    train_deploy_gap,
    plateau,
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
