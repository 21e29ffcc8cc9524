"""Keys, settings and versions: what they mean, what stays undecided, and that writing and reading agree."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic import names
from rlclinic.errors import UnknownName
from rlclinic.model import Framework, Knob, Scalar, Undecided

TRL_KEYS = ["completions/mean_length", "clip_ratio/region_mean", "frac_reward_zero_std", "reward", "reward_std", "loss"]
VERL_KEYS = ["actor/ppo_kl", "critic/score/mean", "critic/rewards/mean", "response_length/clip_ratio", "actor/pg_loss"]


def of(name: str, version: str | None = None) -> Framework:
    return Framework(name, name, version=version, how="given")


def meaning(key: str, framework: Framework | None, **known: Scalar) -> str | None:
    told = names.translate(key, framework, {n: Knob(n, v, n, "config") for n, v in known.items()})
    return told.metric if isinstance(told, names.Meaning) else None


# ---------------------------------------------------------------- traps


@pytest.mark.parametrize(
    ("framework", "key", "metric"),
    [
        ("verl", "actor/ppo_kl", "kl.old_new"),
        ("verl", "actor/kl_loss", "kl.ref"),
        ("verl", "actor/pg_clipfrac", "clip.frac"),
        ("verl", "actor/pg_clipfrac_lower", "clip.dual_frac"),
        ("verl", "critic/score/mean", "reward.mean"),
        ("verl", "critic/rewards/mean", "reward.shaped.mean"),
        ("verl", "response_length/clip_ratio", "length.truncated_frac"),
        ("verl", "prompt_length/clip_ratio", "length.prompt_clip_frac"),
        ("verl", "actor/entropy_loss", "entropy.mean"),
        ("verl", "training/global_step", "progress.step"),
        ("trl", "completions/clipped_ratio", "length.truncated_frac"),
        ("trl", "clip_ratio/low_mean", "clip.low_frac"),
        ("trl", "val/ratio", "ratio.mean"),
        ("trl", "val/clipfrac_avg", "value.clip_frac"),
        ("trl", "objective/kl", "kl.ref_seq_sum"),
        ("trl", "rewards/chosen", "reward.dpo_chosen"),
        ("ms_swift", "entropy/mean", "entropy.mean"),
        ("ms_swift", "reward_std", "reward.group_std"),
        ("openrlhf", "ppo_kl", "kl.old_new"),
        ("openrlhf", "response_clip_ratio", "length.truncated_frac"),
        ("openrlhf", "group_reward_std", "reward.group_std"),
        ("openrlhf", "rollout/reward_std", "reward.std"),
        ("unsloth", "clip_ratio/high_mean", "clip.high_frac"),
        ("nemo_rl", "kl_penalty", "kl.ref"),
        ("nemo_rl", "gen_kl_error", "mismatch.kl"),
        ("nemo_rl", "truncation_rate", "length.truncated_frac"),
        ("prime_rl", "mismatch_kl/all/mean", "mismatch.kl_k3"),
        ("prime_rl", "is_masked/mean", "mask.frac"),
        ("skyrl", "policy/response_length", "length.total.max"),
        ("skyrl", "reward/avg_raw_reward", "reward.mean"),
        ("slime", "rollout/raw_reward", "reward.mean"),
        ("slime", "rollout/rewards", "reward.shaped.mean"),
        ("slime", "entropy_loss", "entropy.mean"),
        ("slime", "rollout/zero_std/count_0.0", "group.zero_var_count"),
        ("areal", "ppo_actor/update/approx_kl/avg", "kl.old_new"),
        ("areal", "grpo_actor/task_reward/avg", "reward.mean"),
        ("open_instruct", "val/stop_rate", "length.stop_frac"),
        ("open_instruct", "objective/kl2_avg", "kl.ref"),
        ("open_instruct", "global_step", "progress.samples"),
        ("tinker", "env/all/by_group/frac_mixed", "group.mixed_frac"),
    ],
)
def test_keys_that_sound_like_something_else(framework: str, key: str, metric: str) -> None:
    assert meaning(key, of(framework)) == metric
    assert meaning(f"train/{key}", of(framework)) == metric
    assert meaning(f"my run - 2 - train/{key}", of(framework)) == metric


def test_trl_reward_std_follows_the_version() -> None:
    assert meaning("reward_std", of("trl", "0.26.2")) == "reward.group_std"
    assert meaning("reward_std", of("trl", "0.27.0")) == "reward.std"
    assert meaning("reward_std", of("trl", "1.16.0")) == "reward.std"
    unknown = names.translate("reward_std", names.detect([*TRL_KEYS, "step_time"]), {})
    assert isinstance(unknown, Undecided)
    assert unknown.meanings == ("reward.group_std", "reward.std")
    assert unknown.decided_by == "the TRL version (changed at 0.27.0; give it with --framework NAME@VERSION)"
    assert meaning("reward_std", names.detect(TRL_KEYS, complete=True)) == "reward.group_std"
    assert isinstance(names.translate("reward_std", names.detect(TRL_KEYS, complete=False), {}), Undecided)


def test_settings_decide_where_the_version_cannot() -> None:
    unknown = of("trl")
    assert meaning("reward_std", unknown, scale_rewards="batch") == "reward.std"
    assert meaning("frac_reward_zero_std", unknown) == "group.zero_var_frac"
    assert meaning("frac_reward_zero_std", unknown, scale_rewards="batch") == "reward.zero_std_frac"
    assert meaning("frac_reward_zero_std", unknown, aggregation="normalize_then_sum") == "reward.zero_std_frac"
    assert meaning("actor/entropy", of("verl"), loss_aggregation="seq-mean-token-sum") == "entropy.seq_sum"


def test_reward_parts() -> None:
    mean = names.translate("rewards/format_reward/mean", of("trl"), {})
    spread = names.translate("train/rewards/format_reward/std", of("trl"), {})
    old = names.translate("rewards/format_reward", of("trl", "0.16.0"), {})
    assert isinstance(mean, names.Meaning)
    assert isinstance(spread, names.Meaning)
    assert isinstance(old, names.Meaning)
    assert (mean.role, mean.part) == ("component_mean", "format_reward")
    assert (spread.role, spread.part) == ("component_std", "format_reward")
    assert (old.role, old.part) == ("component_mean", "format_reward")


def test_a_constant_zero_is_explained() -> None:
    told = {
        key: names.translate(key, of(name), {}) for name, key in [("unsloth", "kl"), ("trl", "clip_ratio/low_mean")]
    }
    assert [getattr(t, "zero", None) for t in told.values()] == ["no_reference", "on_policy"]
    assert getattr(names.translate("actor/kl_loss", of("verl"), {}), "zero", None) == "not_measured"


@pytest.mark.parametrize(
    ("framework", "key", "scale"),
    [
        ("openrlhf", "dynamic_filtering_pass_rate", 0.01),
        ("nemo_rl", "baseline_reward/pct_1", 0.01),
        ("nemo_rl", "masked_correct_pct", 1.0),
        ("prime_rl", "perf/mfu", 0.01),
        ("open_instruct", "batch/filtered_prompts_pct", 1.0),
        ("slime", "rollout/log_probs", -1.0),
        ("areal", "ppo_actor/update/approx_kl/avg", -1.0),
    ],
)
def test_units_and_signs_are_turned(framework: str, key: str, scale: float) -> None:
    told = names.translate(key, of(framework), {})
    assert isinstance(told, names.Meaning)
    assert told.scale == scale


@pytest.mark.parametrize(
    ("framework", "key", "metric"),
    [
        ("prime_rl", "train/all/all/policy/reward/mean", "reward.mean"),
        ("prime_rl", "train/math/effective/policy/reward/mean", "reward.mean"),
        ("prime_rl", "eval/aime/all/policy/avg@4", "eval.score"),
        ("skyrl", "eval/gsm8k/avg_score", "eval.score"),
        ("slime", "eval/aime", "eval.score"),
        ("slime", "eval/aime-truncated_ratio", "eval.truncated_frac"),
        ("nemo_rl", "validation/accuracy", "eval.score"),
        ("areal", "eval-rollout/reward", "eval.score"),
        ("open_instruct", "eval/scores", "eval.score"),
        ("open_instruct", "objective/gsm8k_reward", "reward.component.mean"),
    ],
)
def test_families_of_keys(framework: str, key: str, metric: str) -> None:
    assert meaning(key, of(framework)) == metric


def test_the_whole_run_wins_over_one_environment() -> None:
    whole = names.translate("train/all/all/policy/reward/mean", of("prime_rl"), {})
    part = names.translate("train/math/all/policy/reward/mean", of("prime_rl"), {})
    assert isinstance(whole, names.Meaning)
    assert isinstance(part, names.Meaning)
    assert whole.rank < part.rank


def test_plain_words_without_a_framework() -> None:
    assert meaning("mean_reward", None) == "reward.mean"
    assert meaning("lr", None) == "optim.lr"
    for key in ("kl", "clip_frac", "reward_std"):
        told = names.translate(key, None, {})
        assert isinstance(told, Undecided)
        assert len(told.meanings) == 2
        assert "version" not in told.decided_by
    assert names.translate("wibble", None, {}) is None


@pytest.mark.parametrize("name", names.frameworks())
def test_an_undecided_key_says_what_would_decide_it(name: str) -> None:
    for key in names.load(name).exact:
        told = names.translate(key, of(name), {})
        assert told is not None
        if isinstance(told, Undecided):
            assert len(told.meanings) > 1
            depends = {row.depends for row in names.load(name).exact[key]}
            assert "version (changed at 0" in told.decided_by or depends == {told.decided_by}, told
            assert told.decided_by


def test_own_keys_win_over_plain_words() -> None:
    own = names.translate("actor/entropy", of("verl"), {})
    plain = names.translate("entropy", of("verl"), {})
    assert isinstance(own, names.Meaning)
    assert isinstance(plain, names.Meaning)
    assert own.rank < plain.rank


# ---------------------------------------------------------------- evaluations


def test_the_score_is_chosen_by_rule() -> None:
    order = [
        "heldout/exact_match",
        "val-core/openai/gsm8k/acc/mean@32",
        "val-core/openai/gsm8k/acc/mean@8",
        "val-aux/aime/acc/mean@8",
        "val-core/openai/gsm8k/reward/mean@32",
        "eval_aime_pass1",
        "eval/accuracy",
        "eval_reward",
        "eval/aime24",
    ]
    ranks = [names.evaluation_rank(key) for key in order]
    assert None not in ranks
    assert ranks == sorted(ranks, key=lambda rank: rank or ())
    assert all(rank is not None and rank[0] < len(names.EVAL_RULES) for rank in ranks)
    assert names.evaluation_rank("my/odd/key", named="my/odd/key") == (0, 0, 0)
    assert names.evaluation_rank("val-core/openai/gsm8k/acc/mean_at_8") == ranks[2]


@pytest.mark.parametrize(
    "key",
    [
        "val/ratio",
        "val/clipfrac_avg",
        "eval_loss",
        "eval_runtime",
        "eval_samples_per_second",
        "eval/completions/mean_length",
        "eval_clip_ratio/low_mean",
        "eval_entropy",
        "eval_kl",
        "eval_reward_std",
        "eval_frac_reward_zero_std",
        "eval_rewards/accuracy/std",
        "val-aux/aime/acc/std@8",
        "val-core/aime/acc/best@8/mean",
        "rewards/test_passed/mean",
        "reward",
        "test_freq",
        "critic/score/mean",
    ],
)
def test_what_is_no_held_out_score(key: str) -> None:
    assert names.evaluation_rank(key) is None


def test_evaluation_keys_stay_apart_from_training() -> None:
    for key, metric in [
        ("eval_reward", "eval.score"),
        ("eval/reward", "eval.score"),
        ("eval_completions/mean_length", "eval.length.mean"),
        ("eval_kl", "eval.other"),
        ("eval_loss", "eval.other"),
    ]:
        told = names.translate(key, of("trl"), {})
        assert isinstance(told, names.Meaning)
        assert (told.metric, told.role) == (metric, "evaluation"), key
    told = names.translate("val-core/openai/gsm8k/acc/mean@8", of("verl"), {})
    assert isinstance(told, names.Meaning)
    assert (told.metric, told.role) == ("eval.score", "evaluation")
    assert getattr(names.translate("val/ratio", of("trl"), {}), "role", None) == "metric"


# ---------------------------------------------------------------- detection


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (TRL_KEYS, "trl"),
        ([f"train/{k}" for k in TRL_KEYS], "trl"),
        (["loss", "grad_norm", "learning_rate", "reward", "reward_std", "epoch"], "trl"),
        ([*TRL_KEYS, "completion_length", "kl"], "unsloth"),
        ([*TRL_KEYS, "global_step/max_steps", "memory(GiB)"], "ms_swift"),
        (VERL_KEYS, "verl"),
        (["policy_loss", "actor_lr", "kl", "reward", "return", "response_length"], "openrlhf"),
        (["train/reward", "train/probs_ratio", "train/probs_ratio_clamped", "train/loss"], "nemo_rl"),
        (["mismatch_kl/all/mean", "entropy/all/mean", "optim/grad_norm", "time/wait_for_batch"], "prime_rl"),
        (["policy/policy_entropy", "reward/avg_raw_reward", "loss/avg_final_rewards"], "skyrl"),
        (["train/pg_loss", "train/pg_clipfrac", "train/entropy_loss", "train/ppo_kl", "train/grad_norm"], "slime"),
        (["ppo_actor/task_reward/avg", "ppo_actor/update/grad_norm"], "areal"),
        (["scores", "val/stop_rate", "val/sequence_lengths", "policy/clipfrac_avg", "lr"], "open_instruct"),
        (["env/all/reward/total", "optim/kl_sample_train_v1", "progress/batch"], "tinker"),
    ],
)
def test_dialects_are_told_apart(keys: list[str], name: str) -> None:
    found = names.detect(keys)
    assert found is not None
    assert (found.name, found.how) == (name, "keys")
    assert found.why.startswith("keys ")


def test_plain_keys_name_no_framework() -> None:
    assert names.detect(["reward", "loss", "entropy"]) is None
    assert names.detect([]) is None


def test_versions_come_from_the_text_else_from_the_keys() -> None:
    exact = names.detect(TRL_KEYS, text_versions={"trl": "0.27.1"})
    assert exact is not None
    assert (exact.version, exact.at_least, exact.below) == ("0.27.1", None, None)
    bounded = names.detect([*TRL_KEYS, "entropy"])
    assert bounded is not None
    assert (bounded.version, bounded.at_least, bounded.below) == (None, "0.20.0", "0.26.0")
    development = names.detect(TRL_KEYS, text_versions={"trl": "0.27.0.dev0"})
    assert development is not None
    assert (development.version, development.at_least) == (None, "0.26.0")
    assert isinstance(names.translate("reward_std", development, {}), Undecided)


def test_unsloth_says_nothing_about_trl() -> None:
    found = names.detect([*TRL_KEYS, "completion_length"], text_versions={"unsloth": "2026.10.9"})
    assert found is not None
    assert (found.name, found.version, found.below) == ("unsloth", None, None)
    assert isinstance(names.translate("reward_std", found, {}), Undecided)
    seen = names.detect([*TRL_KEYS, "completion_length"], text_versions={"unsloth": "2026.10.9", "trl": "0.24.0"})
    assert meaning("reward_std", seen) == "reward.group_std"


def test_what_is_given_wins() -> None:
    found = names.detect(VERL_KEYS, given="trl@0.26.0")
    assert found is not None
    assert (found.name, found.version, found.how) == ("trl", "0.26.0", "given")
    swift = names.detect([], given="ms-swift")
    assert swift is not None
    assert swift.name == "ms_swift"
    for wrong in ("trll", "trl@new", "", "nemo@1"):
        if wrong:
            with pytest.raises(UnknownName):
                names.detect(VERL_KEYS, given=wrong)


# ---------------------------------------------------------------- settings


def test_configurations_of_every_shape() -> None:
    nested = {"actor_rollout_ref": {"rollout": {"n": "8"}, "actor": {"clip_ratio_high": 0.28}}, "data": None}
    dotted = {"actor_rollout_ref.rollout.n": 8, "+actor_rollout_ref.actor.clip_ratio_high": "0.28"}
    for config in (nested, dotted, {"config": nested}):
        read = names.read_knobs(config, of("verl"), "config")
        assert (read["group_size"].value, read["clip_high"].value) == (8, 0.28)
    trl = {"num_generations": {"value": 8, "desc": None}, "beta": "1e-3", "scale_rewards": True, "epsilon_high": None}
    read = names.read_knobs(trl, of("trl"), "config")
    assert {n: k.value for n, k in read.items()} == {"group_size": 8, "kl_coef": 0.001, "scale_rewards": "group"}
    flags = names.flags("python x.py --n_samples_per_prompt 8 --eps_clip_low_high 0.2 0.28 --use_kl_loss --lr_x=1")
    read = names.read_knobs(flags, of("openrlhf"), "log")
    assert {n: k.value for n, k in read.items()} == {
        "group_size": 8,
        "clip_low": 0.2,
        "clip_high": 0.28,
        "kl_in_loss": True,
    }


def test_evaluation_settings_are_not_those_of_training() -> None:
    read = names.read_knobs({"eval": {"temperature": 0.6}, "train": {"num_generations": 4}}, of("trl"), "config")
    assert {n: k.value for n, k in read.items()} == {"group_size": 4}


def test_defaults_only_where_the_version_is_sure() -> None:
    assert names.default_knobs(of("trl", "0.18.0"))["kl_coef"].value == 0.04
    assert names.default_knobs(of("trl", "0.19.0"))["kl_coef"].value == 0.0
    assert "kl_coef" not in names.default_knobs(of("trl"))
    assert names.default_knobs(of("trl"))["group_size"].value == 8
    known = {"clip_low": Knob("clip_low", 0.1, "epsilon", "config")}
    follows = names.default_knobs(of("trl", "1.16.0"), known)
    assert follows["clip_high"].value == 0.1
    assert "clip_low" not in follows
    assert all(k.origin == "default" for k in follows.values())


def test_one_flag_with_two_values_keeps_the_other_value() -> None:
    present = {"clip_low": Knob("clip_low", 0.1, "actor.eps_clip", "config")}
    assert names.write("clip_high", 0.28, of("openrlhf"), present) == "--actor.eps_clip_low_high 0.1 0.28"
    assert names.write("clip_high", 0.28, of("openrlhf")) == "--actor.eps_clip_low_high 0.2 0.28"


@pytest.mark.parametrize(
    ("framework", "knob", "value", "text"),
    [
        ("trl", "clip_high", 0.28, "epsilon_high=0.28"),
        ("trl", "scale_rewards", "none", 'scale_rewards="none"'),
        ("verl", "dynamic_sampling", True, "algorithm.filter_groups.enable=True"),
        ("verl", "scale_rewards", "none", "algorithm.norm_adv_by_std_in_grpo=False"),
        ("ms_swift", "log_entropy", True, "--log_entropy true"),
        ("openrlhf", "dynamic_sampling", True, "--algo.dynamic_filtering_enable"),
        ("nemo_rl", "mask_truncated", True, "grpo.overlong_filtering=True"),
        ("prime_rl", "router_replay", True, "trainer.enable_router_replay=true"),
        ("prime_rl", "lr_schedule", "constant", 'trainer.scheduler.type="constant"'),
        ("skyrl", "loss_aggregation", "token-mean", "trainer.algorithm.loss_reduction=token_mean"),
        ("slime", "kl_in_loss", True, "--use-kl-loss"),
        ("slime", "scale_rewards", "none", "--disable-grpo-std-normalization"),
        ("areal", "resume", "on", "recover.mode=auto"),
        ("open_instruct", "dynamic_sampling", True, "--active_sampling true"),
    ],
)
def test_spelling(framework: str, knob: str, value: Scalar, text: str) -> None:
    assert names.write(knob, value, of(framework)) == text


def test_a_framework_refuses_what_it_does_not_have() -> None:
    assert names.spell("dynamic_sampling", of("trl")) is None
    assert names.spell("entropy_coef", of("trl", "1.7.0")) is None
    assert names.spell("entropy_coef", of("trl", "1.8.0")) is not None
    with pytest.raises(UnknownName):
        names.write("dynamic_sampling", True, of("trl"))
    with pytest.raises(UnknownName):
        names.spell("group_sise", of("trl"))


SPELLED = [(f, k) for f in names.frameworks() for k in names.load(f).knobs if names.spell(k, of(f)) is not None]
VALUES: dict[str, st.SearchStrategy[Scalar]] = {
    "int": st.integers(-1, 10**9),
    "float": st.floats(0, 1e6, allow_nan=False) | st.integers(0, 1000),
    "switch": st.booleans(),
    "word": st.sampled_from(["alpha", "two-words", "cosine_with_min_lr", "bf16"]),
    "text": st.from_regex(r"[A-Za-z][\w./\-]{0,30}", fullmatch=True).filter(
        lambda v: v.lower() not in ("true", "false", "none", "null")
    ),
}


@settings(max_examples=300, deadline=None)
@given(spelled=st.sampled_from(SPELLED), data=st.data())
def test_what_is_written_is_read_back(spelled: tuple[str, str], data: st.DataObject) -> None:
    framework, knob = spelled
    row = names.spell(knob, of(framework))
    assert row is not None
    known = [name for name in row.map if name not in ("True", "False")]
    value = data.draw(st.sampled_from(known) if known else VALUES[names.knob(knob).kind])
    text = names.write(knob, value, of(framework))
    read = names.read_knobs(names.flags(text), of(framework), "given")
    assert read[knob].value == value, text


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_survived(text: str) -> None:
    names.strip(text)
    names.evaluation_rank(text)
    names.flags(text)
    for name in names.frameworks():
        names.translate(text, of(name), {})
        names.read_knobs({text: text}, of(name), "config")
    names.detect([text], config_keys=[text], text_versions={text: text, "trl": text})


def test_near_keys_are_offered() -> None:
    assert "actor/ppo_kl" in names.nearest_keys("actor/ppo_k1", of("verl"))
    assert names.nearest_keys("zzzzzzzz", of("verl")) == ()


def test_how_to_log_what_is_missing() -> None:
    assert names.enable("entropy.mean", of("ms_swift")) == ("--log_entropy true", "off by default")
    assert names.key_for("reward.mean", of("verl")) == "critic/score/mean"
    assert names.key_for("eval.score", of("trl")) == "eval_reward"
    assert names.key_for("group.zero_var_frac", of("verl")) is None


def test_detection_reads_no_whole_table_and_translation_is_quick() -> None:
    names.load.cache_clear()
    begun = time.perf_counter()
    for name in names.frameworks():
        names.load(name)
    assert time.perf_counter() - begun < 0.5
    framework = names.detect(TRL_KEYS)
    begun = time.perf_counter()
    for i in range(500):
        names.translate(f"rewards/part_{i}/mean", framework, {})
    assert time.perf_counter() - begun < 0.5
