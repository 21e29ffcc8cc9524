"""What each framework logs, as data: its keys in the order of its log, its forms of log, and its names of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rlclinic.simulate import layouts
from rlclinic.simulate.layouts import Layout


@dataclass(frozen=True)
class Key:
    """One log key with the canonical metric it carries and the versions that write it (``since`` <= v < ``below``)."""

    key: str
    metric: str
    since: str = ""
    below: str = ""
    estimator: str = ""
    scale: float = 1.0
    """Times this the logged number is in the metric's unit."""


@dataclass(frozen=True)
class Dialect:
    """What one framework writes: metrics in the order of its log, the held-out key, its forms, settings by knob.

    A metric given by name alone is written under the key that the framework's table has for it, with ``prefix`` in front
    where the table leaves it out.
    """

    name: str
    title: str
    version: str
    """Written when none is asked for."""
    keys: tuple[Key | str, ...]
    forms: Mapping[str, Layout]
    """The forms of its log, the default first."""
    score: str = ""
    """Key of the held-out score; empty where none is logged."""
    knobs: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    """Pattern of the keys of reward parts by "mean" and "std"; empty when parts are not logged."""
    prefix: str = ""
    filters: bool = False
    """True where the Transformers logger replaces a loss that is not finite."""
    shaped: bool = False
    """True where the reward with the KL term in it is logged too (the simulated term is in the loss)."""


_PARTS: Mapping[str, str] = {"mean": "rewards/{}/mean", "std": "rewards/{}/std"}
_STATE = Layout(layouts.trainer_state, keeps="filtered", planned=True)
_CONSOLE = Layout(layouts.hf_console, atol=5e-5, keeps="filtered", planned=True)
_CONSOLE5 = Layout(layouts.hf_console5, rtol=5e-4, keeps="filtered", planned=True)
TRL = Dialect(
    name="trl",
    title="TRL",
    version="1.16.0",
    keys=(
        Key("loss", "loss.total"),
        Key("grad_norm", "grad.norm"),
        Key("learning_rate", "optim.lr"),
        Key("num_tokens", "tokens.total", since="0.16"),
        Key("completion_length", "length.response.mean", below="0.17"),
        Key("completions/mean_length", "length.response.mean", since="0.17"),
        Key("completions/min_length", "length.response.min", since="0.17"),
        Key("completions/max_length", "length.response.max", since="0.17"),
        Key("completions/clipped_ratio", "length.truncated_frac", since="0.17"),
        Key("completions/mean_terminated_length", "length.terminated.mean", since="0.17"),
        Key("completions/min_terminated_length", "length.terminated.min", since="0.17"),
        Key("completions/max_terminated_length", "length.terminated.max", since="0.17"),
        Key("reward", "reward.mean"),
        Key("reward_std", "reward.group_std", below="0.27"),
        Key("reward_std", "reward.std", since="0.27"),
        Key("frac_reward_zero_std", "group.zero_var_frac", since="0.18"),
        Key("kl", "kl.ref", estimator="k3"),
        Key("entropy", "entropy.mean", since="0.20"),
        Key("clip_ratio", "clip.frac", below="0.17"),
        Key("clip_ratio/low_mean", "clip.low_frac", since="0.17"),
        Key("clip_ratio/high_mean", "clip.high_frac", since="0.17"),
        Key("clip_ratio/region_mean", "clip.frac", since="0.17"),
        Key("step_time", "time.step", since="0.26"),
    ),
    score="eval_reward",
    filters=True,
    forms={
        "jsonl": Layout(layouts.hf_jsonl),
        "trainer_state": _STATE,
        "console": _CONSOLE,
        "console5": _CONSOLE5,
    },
    parts=_PARTS,
    knobs={
        "group_size": "num_generations",
        "per_device_batch_size": "per_device_train_batch_size",
        "grad_accumulation": "gradient_accumulation_steps",
        "inner_epochs": "num_iterations",
        "clip_low": "epsilon",
        "clip_high": "epsilon_high",
        "kl_coef": "beta",
        "learning_rate": "learning_rate",
        "lr_schedule": "lr_scheduler_type",
        "warmup_steps": "warmup_steps",
        "grad_clip": "max_grad_norm",
        "temperature": "temperature",
        "max_response_length": "max_completion_length",
        "eval_strategy": "eval_strategy",
        "eval_every": "eval_steps",
        "logging_every": "logging_steps",
        "planned_steps": "max_steps",
    },
)
VERL = Dialect(
    name="verl",
    title="verl",
    version="0.9.1",
    keys=(
        Key("actor/entropy", "entropy.mean"),
        Key("actor/kl_loss", "kl.ref", estimator="k3"),
        Key("actor/pg_loss", "loss.policy"),
        Key("actor/pg_clipfrac", "clip.frac"),
        Key("actor/ppo_kl", "kl.old_new", estimator="k1"),
        Key("actor/pg_clipfrac_lower", "clip.dual_frac"),
        Key("actor/grad_norm", "grad.norm"),
        Key("actor/lr", "optim.lr"),
        Key("critic/score/mean", "reward.mean"),
        Key("critic/score/max", "reward.max"),
        Key("critic/score/min", "reward.min"),
        Key("critic/rewards/mean", "reward.shaped.mean"),
        Key("critic/rewards/max", "reward.shaped.max"),
        Key("critic/rewards/min", "reward.shaped.min"),
        Key("critic/advantages/mean", "advantage.mean"),
        Key("critic/advantages/max", "advantage.max"),
        Key("critic/advantages/min", "advantage.min"),
        Key("response_length/mean", "length.response.mean"),
        Key("response_length/max", "length.response.max"),
        Key("response_length/min", "length.response.min"),
        Key("response_length/clip_ratio", "length.truncated_frac"),
        Key("perf/total_num_tokens", "tokens.step"),
        Key("timing_s/step", "time.step"),
    ),
    score="val-core/heldout/acc/mean@1",
    shaped=True,
    forms={"jsonl": Layout(layouts.verl_jsonl, keeps="null"), "console": Layout(layouts.verl_console)},
    knobs={
        "algorithm": "algorithm.adv_estimator",
        "group_size": "actor_rollout_ref.rollout.n",
        "temperature": "actor_rollout_ref.rollout.temperature",
        "train_batch_size": "data.train_batch_size",
        "max_response_length": "data.max_response_length",
        "max_prompt_length": "data.max_prompt_length",
        "mini_batch_size": "actor_rollout_ref.actor.ppo_mini_batch_size",
        "inner_epochs": "actor_rollout_ref.actor.ppo_epochs",
        "clip_low": "actor_rollout_ref.actor.clip_ratio_low",
        "clip_high": "actor_rollout_ref.actor.clip_ratio_high",
        "kl_in_loss": "actor_rollout_ref.actor.use_kl_loss",
        "kl_coef": "actor_rollout_ref.actor.kl_loss_coef",
        "learning_rate": "actor_rollout_ref.actor.optim.lr",
        "warmup_steps": "actor_rollout_ref.actor.optim.lr_warmup_steps",
        "grad_clip": "actor_rollout_ref.actor.optim.clip_grad",
        "eval_every": "trainer.test_freq",
        "planned_steps": "trainer.total_training_steps",
    },
)
UNSLOTH = replace(
    TRL,
    name="unsloth",
    title="Unsloth on TRL",
    version="0.24.0",
    keys=(*TRL.keys, Key("completion_length", "length.response.mean")),
    forms={
        "trainer_state": _STATE,
        "console": _CONSOLE,
        "console5": _CONSOLE5,
        "notebook": Layout(
            layouts.notebook,
            atol=5e-7,
            planned=True,
            held_out=False,
            only=frozenset(
                (
                    *("loss.total", "reward.mean", "reward.std", "reward.group_std", "kl.ref"),
                    *(f"length.{of}.{kind}" for of in ("response", "terminated") for kind in ("mean", "min", "max")),
                    "length.truncated_frac",
                )
            ),
        ),
    },
)
MS_SWIFT = Dialect(
    name="ms_swift",
    title="ms-swift",
    version="4.5.2",
    keys=(
        *("loss.total", "grad.norm", "optim.lr", "length.response.mean", "length.response.min", "length.response.max"),
        *("length.truncated_frac", "reward.mean", "reward.group_std", "group.zero_var_frac"),
        *("kl.ref", "entropy.mean", "clip.low_frac", "clip.high_frac", "clip.frac"),
    ),
    score="eval_reward",
    parts=_PARTS,
    filters=True,
    forms={
        "jsonl": Layout(layouts.swift_jsonl, atol=5e-9, keeps="filtered", planned=True),
        "megatron": Layout(layouts.swift_megatron, atol=5e-9, planned=True),
        "console": Layout(layouts.swift_console, atol=5e-9, keeps="filtered", planned=True),
    },
)
LLAMA_FACTORY = Dialect(
    name="llama_factory",
    title="LLaMA-Factory",
    version="0.9.4",
    keys=(Key("loss", "loss.total"), Key("reward", "reward.mean"), Key("learning_rate", "optim.lr")),
    forms={
        "jsonl": Layout(layouts.trainer_log, keeps="filtered", planned=True, renamed=(("learning_rate", "lr"),)),
        "trainer_state": _STATE,
    },
)
OPENRLHF = Dialect(
    name="openrlhf",
    title="OpenRLHF",
    version="0.11.0",
    keys=(
        *("loss.policy", "optim.lr", "grad.norm", "kl.ref", "kl.old_new", "clip.frac", "entropy.mean"),
        *(
            "reward.group_std",
            "reward.mean",
            "reward.std",
            "length.response.mean",
            "length.truncated_frac",
            "time.step",
        ),
    ),
    score="eval_heldout_pass1",
    forms={"console": Layout(layouts.openrlhf_console)},
)
NEMO_RL = Dialect(
    name="nemo_rl",
    title="NeMo-RL",
    version="0.7.0",
    prefix="train/",
    keys=(
        *("loss.total", "reward.mean", "grad.norm", "optim.lr", "tokens.step"),
        *("reward.min", "reward.max", "advantage.mean", "advantage.min", "advantage.max"),
        *("entropy.mean", "kl.ref", "length.response.mean", "length.response.max", "length.truncated_frac"),
        *("group.mixed_frac", "time.step"),
    ),
    score="validation/accuracy",
    forms={
        "console": Layout(
            layouts.nemo_console,
            atol=5e-5,
            coarse=(("time.step", 0.0, 5e-3),),
            planned=True,
            only=frozenset(
                ("loss.total", "reward.mean", "length.response.mean", "mismatch.kl", "time.step", "eval.score")
            ),
        )
    },
)
_PRIME_TRAINER = ("loss.total", "entropy.mean", "mismatch.kl_k3", "grad.norm", "optim.lr", "time.step")
_PRIME_COARSE = (("time.step", 0.0, 5e-3), ("optim.lr", 5e-3, 0.0))
PRIME_RL = Dialect(
    name="prime_rl",
    title="prime-rl",
    version="0.8.0",
    keys=(
        *("optim.lr", "grad.norm", "loss.total", "entropy.mean", "kl.ref", "time.step", "tokens.step", "tokens.total"),
        Key("train/all/all/agent/reward/mean", "reward.mean"),
        Key("train/all/all/agent/reward/min", "reward.min"),
        Key("train/all/all/agent/reward/max", "reward.max"),
        Key("train/all/all/agent/is_truncated/mean", "length.truncated_frac"),
        Key("train/all/all/agent/solved_some", "group.mixed_frac"),
        Key("train/all/all/num_output_tokens/mean", "length.response.mean"),
    ),
    score="eval/heldout/all/agent/avg@1",
    forms={
        "jsonl": Layout(layouts.prime_jsonl, keeps="dropped"),
        "console": Layout(
            layouts.prime_console,
            atol=5e-5,
            coarse=_PRIME_COARSE,
            held_out=False,
            only=frozenset((*_PRIME_TRAINER, "reward.mean")),
        ),
        "console8": Layout(
            layouts.prime_console8,
            atol=5e-5,
            coarse=_PRIME_COARSE,
            held_out=False,
            only=frozenset(_PRIME_TRAINER),
        ),
    },
)
SKYRL = Dialect(
    name="skyrl",
    title="SkyRL",
    version="0.3.0",
    keys=(
        *(
            "reward.mean",
            "advantage.mean",
            "loss.total",
            "loss.policy",
            "entropy.mean",
            "kl.ref",
            "optim.lr",
            "grad.norm",
        ),
        *("clip.frac", "length.response.mean", "length.response.min", "length.response.max"),
    ),
    parts={"mean": "environment/{}"},
    score="eval/all/avg_score",
    forms={"console": Layout(layouts.skyrl_console, atol=5e-5)},
)
SLIME = Dialect(
    name="slime",
    title="slime",
    version="0.3.1",
    prefix="train/",
    keys=(
        *("length.response.mean", "length.response.min", "length.response.max", "length.truncated_frac", "time.step"),
        *("reward.mean", "advantage.mean", "loss.total", "loss.policy", "entropy.mean", "clip.frac", "kl.old_new"),
        *("kl.ref", "grad.norm"),
        Key("train/lr-pg_0", "optim.lr"),
    ),
    score="eval/heldout",
    forms={"console": Layout(layouts.slime_console)},
)
AREAL = Dialect(
    name="areal",
    title="AReaL",
    version="1.0.4",
    keys=(
        *("reward.mean", "reward.min", "reward.max", "advantage.mean", "advantage.min", "advantage.max"),
        *("length.truncated_frac", "tokens.step", "loss.policy", "entropy.mean", "kl.old_new"),
        *("clip.frac", "clip.dual_frac", "grad.norm", "optim.lr"),
    ),
    score="eval-rollout/reward",
    forms={"console": Layout(layouts.areal_console, rtol=5e-5, planned=True)},
)
OPEN_INSTRUCT = Dialect(
    name="open_instruct",
    title="open-instruct",
    version="0.3.0",
    keys=(
        *("tokens.total", "tokens.step", "time.step", "reward.mean", "group.zero_var_frac"),
        *("length.response.mean", "length.response.min", "length.response.max", "length.stop_frac"),
        *("advantage.mean", "advantage.min", "advantage.max", "kl.ref", "loss.policy", "loss.total"),
        *("clip.frac", "entropy.mean", "grad.norm", "optim.lr"),
    ),
    parts={"mean": "objective/{}_reward"},
    score="eval/scores",
    forms={"console": Layout(layouts.open_instruct_console, atol=5e-3)},
)
TINKER = Dialect(
    name="tinker",
    title="tinker-cookbook",
    version="0.5.5",
    keys=(
        *("optim.lr", "reward.mean", "group.mixed_frac", "length.response.mean", "tokens.step"),
        *("kl.ref", "kl.old_new", "time.step"),
    ),
    parts={"mean": "env/all/{}"},
    score="test/env/all/reward/total",
    forms={
        "jsonl": Layout(layouts.tinker_jsonl),
        "console": Layout(layouts.tinker_console, atol=5e-7),
    },
)
ROLL = Dialect(
    name="roll",
    title="ROLL",
    version="0.2.1",
    shaped=True,
    keys=(
        Key("critic/score/mean", "reward.mean"),
        Key("critic/score/max", "reward.max"),
        Key("critic/score/min", "reward.min"),
        Key("critic/rewards/mean", "reward.shaped.mean"),
        Key("critic/advantages/mean", "advantage.mean"),
        Key("critic/advantages/max", "advantage.max"),
        Key("critic/advantages/min", "advantage.min"),
        Key("critic/entropy/mean", "entropy.mean"),
        Key("token/response_length/mean", "length.response.mean"),
        Key("token/response_length/max", "length.response.max"),
        Key("token/response_length/min", "length.response.min"),
        Key("actor/lr", "optim.lr"),
        Key("actor/pg_loss", "loss.policy"),
        Key("actor/total_loss", "loss.total"),
        Key("actor/kl_loss", "kl.ref"),
        Key("actor/policykl", "kl.old_new"),
        Key("actor/ppo_ratio_clipfrac", "clip.frac"),
        Key("actor/ppo_ratio_low_clipfrac", "clip.low_frac"),
        Key("actor/ppo_ratio_high_clipfrac", "clip.high_frac"),
        Key("time/step_total", "time.step"),
    ),
    score="val_correct/all/mean",
    forms={"console": Layout(layouts.roll_console)},
)
ART = Dialect(
    name="art",
    title="ART",
    version="",
    keys=(
        Key("train/reward", "reward.mean"),
        Key("train/reward_std_dev", "reward.group_std"),
        Key("train/policy_loss", "loss.policy"),
        Key("train/kl_div", "kl.ref"),
        Key("train/learning_rate", "optim.lr"),
    ),
    score="val/reward",
    forms={"jsonl": Layout(layouts.art_jsonl, keeps="nan dropped")},
)
TORCHFORGE = Dialect(
    name="torchforge",
    title="torchforge",
    version="",
    keys=(
        Key("reward/evaluate_response/avg_total_reward", "reward.mean"),
        Key("generator/generate/avg_tokens_generated", "length.response.mean"),
        Key("rl_trainer/avg_loss", "loss.total"),
        Key("rl_trainer/learning_rate", "optim.lr"),
        Key("rl_trainer/step/avg_kl_divergence", "kl.ref"),
        Key("rl_trainer/step/avg_policy_entropy", "entropy.mean"),
    ),
    parts={"mean": "reward/evaluate_response/avg_{}_reward", "std": "reward/evaluate_response/std_{}_reward"},
    forms={"console": Layout(layouts.torchforge_console)},
)
RLLM = Dialect(
    name="rllm",
    title="rLLM",
    version="",
    keys=(
        Key("reward/default/mean", "reward.mean"),
        Key("reward/default/max", "reward.max"),
        Key("reward/default/min", "reward.min"),
        Key("advantage/default/mean", "advantage.mean"),
        Key("advantage/default/max", "advantage.max"),
        Key("advantage/default/min", "advantage.min"),
        Key("batch/default/fractions/effective", "group.mixed_frac"),
        Key("episode/response_tokens", "length.response.mean"),
    ),
    score="val/heldout/pass@1",
    forms={"console": Layout(layouts.rllm_console), "jsonl": Layout(layouts.rllm_jsonl)},
)
DIALECTS: Mapping[str, Dialect] = {
    one.name: one
    for one in (
        *(TRL, VERL, OPENRLHF, MS_SWIFT, UNSLOTH, LLAMA_FACTORY, NEMO_RL, PRIME_RL, SKYRL, SLIME, AREAL),
        *(OPEN_INSTRUCT, TINKER, ROLL, ART, TORCHFORGE, RLLM),
    )
}
