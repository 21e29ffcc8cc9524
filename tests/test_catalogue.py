"""Every catalogued log key is read as what it is, every framework is told from the others, and the list says how."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic import names
from rlclinic.explain import frameworks_page, list_frameworks, page
from rlclinic.model import Framework, Undecided

CATALOGUE = Path(__file__).parents[2] / "shared" / "catalog" / "metrics.csv"
REAL = [name for name in names.frameworks() if name != "generic"]
TABLES = {"ROLL": "roll", "HF-Trainer": "hf_trainer", "LLaMA-Factory": "llama_factory", "tinker-cookbook": "tinker"}
FILLED = {"N": "8", "n": "8", "k": "8", "i": "0", "q": "50", "env or agg": "all", "reward": "0.5", "subset": "all"}

LEFT_OUT = {
    ("TRL", "<custom> (log_metric kwarg)"): "any name a user chooses; nothing tells that it is a part of the reward",
    ("TRL", "objective/scores_margin"): "difference of two answers' scores, no spread and no part of the reward",
    ("TRL", "rewards/accuracies"): "order of preference pairs, no held-out score",
    ("TRL", "mean_token_accuracy"): "supervised training",
    ("HF-Trainer", "train_runtime"): "a total of the run, no series",
    ("HF-Trainer", "train_loss"): "a total of the run, no series",
    ("verl", "val-aux/num_turns/mean"): "turns of held-out conversations, not of training",
    ("verl", "global_seqlen/<stat>"): "tokens per worker, no length of a sequence",
    ("verl", "rollout_corr/training_log_ppl"): "logarithm of a perplexity, which has a name of its own",
    ("verl", "rollout_corr/rollout_log_ppl"): "logarithm of a perplexity, which has a name of its own",
    ("verl", "mismatch/<stat>"): "one row for each statistic",
    ("OpenRLHF", "<extra_logs key>"): "any name a user chooses; nothing tells that it is a part of the reward",
    ("OpenRLHF", "act_loss / gen_len / tot_len / act_lr (tqdm postfix)"): "of one micro-batch",
    ("NeMo-RL", "performance/<name>"): "figures of different units under one prefix",
    ("prime-rl", "eval/<env>/policy_version"): "version of the evaluated policy, no step of training",
    ("slime", "rollout/error_cat/<cat>"): "share of a category, no part of the reward",
    ("AReaL", "rollout/accepted"): "1 in every row, whatever happened",
    ("AReaL", "rollout/rejected"): "1 in every row, whatever happened",
    ("ms-swift", "fipo/future_kl_mean"): "a term of one loss, no distance to the sampling policy",
    ("ms-swift", "elapsed_time"): "text",
    ("ms-swift", "remaining_time"): "text",
    ("tinker-cookbook", "kl_pre_post_v2"): "squared form, which has a name of its own",
    ("tinker-cookbook", "optim/<server key>"): "a name that the service chooses",
    ("LLaMA-Factory", "accuracy"): "order of preference pairs, no held-out score",
    ("LLaMA-Factory", "elapsed_time"): "text",
    ("ROLL", "critic/clipfrac"): "a share only while value_clip is set, else the squared error: said to be undecided",
    (
        "ROLL",
        "token/total_response_length/clip",
    ): "a number of answers: the source sums where the catalogue has a share",
    ("rllm", "reward/<role>/std"): "over the batch or inside tasks, as training is synchronous or not",
    ("rllm", "train/perplexity"): "of the sampler: the source takes the sampler's log-probabilities",
}
"""Catalogued keys that are read as something else, or not at all, with the reason."""


def table_of(framework: str) -> str:
    return TABLES.get(framework, framework.lower().replace("-", "_"))


def catalogue() -> list[dict[str, str]]:
    if not CATALOGUE.exists():
        return []
    with CATALOGUE.open(encoding="utf-8", newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["canonical"] in names.metrics()]


def written(pattern: str) -> str:
    """A key as it stands in a log: placeholders filled in, remarks in brackets dropped."""
    bare = re.sub(r" \((?:RLOO|online-DPO|old|Megatron)\)$", "", pattern)
    return re.sub(r"<([^<>]+)>", lambda found: FILLED.get(found[1], "alpha"), bare)


def release_of(row: dict[str, str]) -> str | None:
    """A release in which the row holds: its last one, else its first."""
    stated = row["until"] or ("" if row["since"].startswith(("<=", "unreleased")) else row["since"])
    found = re.search(r"\d+\.\d+(?:\.\d+)?", stated)
    return found[0] if found else None


def meaning(key: str, name: str, version: str | None = None) -> names.Meaning | Undecided | None:
    return names.translate(key, Framework(name, name, version=version, how="given"), {})


@pytest.mark.skipif(not CATALOGUE.exists(), reason="the catalogue is not here")
def test_every_framework_of_the_catalogue_has_a_table() -> None:
    assert {table_of(row["framework"]) for row in catalogue()} <= set(names.frameworks())


@pytest.mark.parametrize("name", sorted({table_of(row["framework"]) for row in catalogue()}))
def test_catalogued_keys_mean_what_the_catalogue_says(name: str) -> None:
    wrong = []
    for row in catalogue():
        if table_of(row["framework"]) != name or (row["framework"], row["key_or_pattern"]) in LEFT_OUT:
            continue
        told = meaning(written(row["key_or_pattern"]), name, release_of(row))
        if not isinstance(told, names.Meaning) or told.metric != row["canonical"]:
            wrong.append((row["key_or_pattern"], row["canonical"], told))
        elif "percent" in row["unit"].lower():
            assert told.scale == 0.01, row
        elif row["unit"].startswith("fraction"):
            assert told.scale == 1.0, row
    assert not wrong


def test_what_is_left_out_is_catalogued_and_really_is() -> None:
    known = {(row["framework"], row["key_or_pattern"]): row for row in catalogue()}
    for left in LEFT_OUT if known else ():
        row = known[left]
        told = meaning(written(row["key_or_pattern"]), table_of(row["framework"]), release_of(row))
        assert not isinstance(told, names.Meaning) or told.metric != row["canonical"], left


# ---------------------------------------------------------------- telling them apart

HF = ["loss", "grad_norm", "learning_rate", "epoch", "step"]
GRPO = [*HF, "reward", "reward_std", "completions/mean_length", "completions/clipped_ratio", "frac_reward_zero_std"]
VERL = ["critic/score/mean", "critic/rewards/mean", "critic/advantages/mean", "actor/pg_loss", "actor/kl_loss"]
PPO = ["objective/kl", "objective/entropy", "objective/scores", "objective/rlhf_reward", "policy/approxkl_avg"]
ROWS = {
    "trl": [*GRPO, "entropy", "kl", "clip_ratio/region_mean"],
    "unsloth": [*GRPO, "completion_length", "kl"],
    "ms_swift": [*GRPO, "global_step/max_steps", "memory(GiB)", "train_speed(s/it)"],
    "trl_ppo": [*PPO, "loss/value_avg", "loss/policy_avg", "val/ratio", "val/num_eos_tokens", "lr", "episode", "eps"],
    "llama_factory": ["current_steps", "total_steps", "loss", "reward", "lr", "epoch", "percentage", "elapsed_time"],
    "hf_trainer": [*HF, "train_runtime", "train_samples_per_second", "train_loss", "total_flos"],
    "verl": [
        *VERL,
        "actor/ppo_kl",
        "actor/pg_clipfrac",
        "actor/entropy",
        "response_length/clip_ratio",
        "timing_s/step",
    ],
    "roll": [*VERL, "actor/ppo_ratio_clipfrac", "actor/policykl", "token/response_length/mean", "system/samples"],
    "rllm": [*VERL, "actor/ppo_kl", "response_length/mean", "reward/default/mean", "advantage/default/fraction_zero"],
    "art": [
        "train/reward",
        "train/reward_std_dev",
        "train/exception_rate",
        "loss/train",
        "training_step",
        "val/reward",
    ],
    "torchforge": ["reward/evaluate_response/avg_total_reward", "rl_trainer/loss", "rl_trainer/learning_rate"],
    "tinker": ["env/all/reward/total", "optim/kl_sample_train_v1", "optim/entropy", "progress/batch", "time/total"],
    "oat": ["actor/rewards", "train/pg_loss", "train/adv_max", "train/learning_round", "misc/query_step", "misc/lr"],
    "prime_rl": ["mismatch_kl/all/mean", "entropy/all/mean", "optim/grad_norm", "loss/mean", "time/wait_for_batch"],
    "openrlhf": ["policy_loss", "actor_lr", "kl", "reward", "return", "response_length", "ppo_clip_ratio"],
    "nemo_rl": ["train/reward", "train/loss", "train/probs_ratio", "train/probs_ratio_clamped", "train/gen_kl_error"],
    "skyrl": ["reward/avg_raw_reward", "policy/policy_entropy", "policy/final_loss", "generate/avg_num_tokens"],
    "slime": ["rollout/raw_reward", "train/pg_loss", "train/pg_clipfrac", "train/entropy_loss", "train/grad_norm"],
    "areal": ["ppo_actor/task_reward/avg", "ppo_actor/update/approx_kl/avg", "ppo_actor/update/grad_norm"],
    "open_instruct": ["scores", "val/stop_rate", "val/sequence_lengths", "policy/clipfrac_avg", "objective/kl2_avg"],
}


@pytest.mark.parametrize("name", REAL)
def test_a_usual_row_tells_its_framework(name: str) -> None:
    found = names.detect(ROWS[name])
    assert found is not None
    assert (found.name, found.how) == (name, "keys")
    if "@" not in "".join(ROWS[name]):
        tagged = names.detect([f"my run - {key}" for key in ROWS[name]])
        assert tagged is not None
        assert tagged.name == name


@pytest.mark.parametrize("name", REAL)
def test_a_usual_row_is_understood(name: str) -> None:
    told = [meaning(key, name) for key in ROWS[name]]
    assert None not in told


def test_who_builds_on_whom() -> None:
    supervised = names.detect([*HF, "train_runtime", "train_samples_per_second"])
    assert supervised is not None
    assert supervised.name == "hf_trainer"
    for name in ("trl", "unsloth", "ms_swift"):
        ended = names.detect([*ROWS[name], "train_runtime", "train_samples_per_second", "total_flos"])
        assert ended is not None
        assert ended.name == name
    assert names.detect(HF) is None, "any loop may write these"
    sampled = names.detect([*PPO, "loss/policy_avg", "val/ratio"])
    assert sampled is not None
    assert sampled.name == "trl", "RLOO of old releases has no critic"
    verl = names.detect(VERL)
    assert verl is not None
    assert verl.name == "verl"


KIN = {"unsloth": "trl", "ms_swift": "trl", "trl_ppo": "trl", "llama_factory": "trl", "rllm": "verl"}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(REAL), st.data())
def test_three_keys_are_never_read_as_another_frameworks_other_metric(name: str, data: st.DataObject) -> None:
    keys = sorted(names.load(name).exact)
    few = data.draw(st.lists(st.sampled_from(keys), min_size=3, max_size=3, unique=True))
    found = names.detect(few, complete=False)
    if found is None or KIN.get(found.name, found.name) == KIN.get(name, name):
        return
    for key in few:
        own, other = meaning(key, name), meaning(key, found.name)
        if isinstance(own, names.Meaning) and isinstance(other, names.Meaning):
            assert own.metric == other.metric or "time.phase" in (own.metric, other.metric), (key, found)


def test_a_development_mark_says_at_least_and_a_key_of_one_release_both() -> None:
    one = names.detect([*ROWS["verl"], "mismatch/mismatch_kl"])
    assert one is not None
    assert (one.at_least, one.below) == ("0.6.0", "0.6.1")
    new = names.detect(ROWS["art"])
    assert new is not None
    assert new.at_least == "0.5.18"
    old = names.detect(["train/reward", "train/exception_rate", "train/policy_loss"])
    assert old is not None
    assert old.below == "0.5.18"


# ---------------------------------------------------------------- traps of the tables above


@pytest.mark.parametrize(
    ("framework", "key", "metric"),
    [
        ("roll", "actor/pg_loss@sum", "loss.policy"),
        ("roll", "actor/approxkl@sum", "kl.old_new_k2"),
        ("roll", "math/critic/score/mean", "reward.mean"),
        ("roll", "val_correct/aime/mean", "eval.score"),
        ("roll", "critic/rewards/mean", "reward.shaped.mean"),
        ("skyrl", "eval/all/pass_at_8", "eval.pass_at_k"),
        ("open_instruct", "eval/pass_at_4", "eval.pass_at_k"),
        ("verl", "val-core/aime/acc/mean_at_8", "eval.score"),
        ("rllm", "val/openai/gsm8k/pass@1", "eval.score"),
        ("rllm", "val/openai/gsm8k/pass@8", "eval.pass_at_k"),
        ("rllm", "batch/solver/fractions/too_hard", "group.all_wrong_frac"),
        ("rllm", "actor/ppo_kl", "kl.old_new"),
        ("art", "train/found_answer", "reward.component.mean"),
        ("art", "train/policy_loss", "loss.policy"),
        ("torchforge", "reward/evaluate_response/avg_MathReward_reward", "reward.component.mean"),
        ("llama_factory", "accuracy", "reward.dpo_accuracy"),
        ("llama_factory", "env/reward_mean", "reward.mean"),
        ("hf_trainer", "train_loss", "run.summary"),
        ("hf_trainer", "mean_reward", "reward.mean"),
        ("trl_ppo", "val/ratio", "ratio.mean"),
        ("prime_rl", "eval/aime/policy_version", "offpolicy.version"),
        ("prime_rl", "train/math/all/policy/rewards/format/mean", "reward.component.mean"),
    ],
)
def test_keys_that_are_easily_misread(framework: str, key: str, metric: str) -> None:
    told = meaning(key, framework)
    assert isinstance(told, names.Meaning)
    assert told.metric == metric


def test_a_version_of_a_policy_is_no_held_out_score() -> None:
    assert names.evaluation_rank("eval/aime/policy_version") is None
    assert names.evaluation_rank("val/solve_rate_hist") is None


def test_what_a_key_means_may_hang_on_more_than_a_version() -> None:
    told = meaning("critic/clipfrac", "roll")
    assert isinstance(told, Undecided)
    assert "value_clip" in told.decided_by
    told = meaning("batch/solve_none", "rllm")
    assert isinstance(told, Undecided)
    assert set(told.meanings) == {"group.all_wrong_frac", "group.all_wrong_count"}


def test_settings_of_trls_ppo() -> None:
    given = {"num_ppo_epochs": 2, "cliprange": 0.1, "kl_coef": 0.02, "missing_eos_penalty": 1.0, "stop_token": "eos"}
    found = names.detect(ROWS["trl_ppo"], config_keys=given)
    assert found is not None
    assert found.name == "trl_ppo"
    read = names.read_knobs(given, found, "config")
    assert {name: knob.value for name, knob in read.items()} == {
        "inner_epochs": 2,
        "clip_low": 0.1,
        "clip_high": 0.1,
        "kl_coef": 0.02,
        "truncation_penalty": 1.0,
        "stop_token": "eos",
    }
    assert names.spell("group_size", found) is None
    assert names.default_knobs(found)["max_response_length"].value == 53
    assert names.remedy("clip_higher", found).unavailable
    by_settings = names.detect([], config_keys=given)
    assert by_settings is not None
    assert by_settings.name == "trl_ppo"


# ---------------------------------------------------------------- the list and its page


def test_the_list_fits_and_names_all() -> None:
    lines = list_frameworks().splitlines()
    assert max(map(len, lines)) <= 100
    for name in names.frameworks():
        assert sum(line.split("  ")[0] == name for line in lines) == 1
        assert names.head(name)["forms"]


def test_the_page_says_how_each_is_told() -> None:
    text = frameworks_page()
    for name in names.frameworks():
        assert f"`{name}`" in text
        assert all(f"`{mark['keys'][0]}`" in text for mark in names.head(name)["signature"])
        alone = page(name).splitlines()
        assert alone[0] == f"# {names.load(name).title}"
        assert "\n".join(alone[2:]) in text
