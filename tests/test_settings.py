"""Settings in every form in which trainers and their users leave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlclinic.errors import CannotRead
from rlclinic.readers import read
from rlclinic.readers.config import arguments, config_from_text, from_call, from_script, read_config, setting
from rlclinic.readers.log import read_log


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('python -m verl.trainer.main_ppo a.b="c d" x.y=[1,2]', {"a.b": "c d", "x.y": [1, 2]}),
        ("python train.py beta=0.04 name=x", {"beta": 0.04, "name": "x"}),
        ("python train.py --scale_rewards none --ref None", {"scale_rewards": "none", "ref": None}),
        ("trl grpo --loss_type 'none' --beta=0.1", {"loss_type": "none", "beta": 0.1}),
        ("python train.py ++trainer.logger=['console','wandb']", {"trainer.logger": ["console", "wandb"]}),
        ("+algorithm.kl='null'", {"algorithm.kl": "null"}),
    ],
)
def test_command_lines(line: str, found: dict[str, object]) -> None:
    told = arguments(line)
    assert {key: told.get(key, "absent") for key in found} == found


def test_words_outside_commands_are_no_settings() -> None:
    assert arguments("--x 1 a=b") == {"x": 1} or "a" not in arguments("--x 1 a=b")


def test_a_word_that_means_none_only_in_python() -> None:
    assert (setting("none"), setting("None"), setting("null"), setting("'None'")) == ("none", None, None, "None")


def test_configuration_of_wandb(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "_wandb:\n    value:\n        cli_version: 0.31.0\n        t:\n            '1': [1, 5]\n"
        "beta:\n    value: 0.04\nscale_rewards:\n    desc: null\n    value: none\nmodel:\n    value:\n        name: Q\n"
    )
    assert read_config(path) == {"beta": 0.04, "scale_rewards": "none", "model.name": "Q"}


def test_arguments_in_the_metadata_of_wandb(tmp_path: Path) -> None:
    path = tmp_path / "wandb-metadata.json"
    args = ["--config", "a b.yaml", "--beta=0.04", "--num_generations", "8", "trainer.n=2"]
    path.write_text(json.dumps({"program": "/home/u/train.py", "args": args, "gpu_count": 8}))
    found = read_config(path)
    assert (found["beta"], found["num_generations"], found["trainer.n"]) == (0.04, 8, 2)


def test_the_configuration_of_a_model_is_not_that_of_the_training(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "qwen2", "architectures": ["Q"], "temperature": 0.6}))
    with pytest.raises(CannotRead, match="of the model"):
        read_config(path)


@pytest.mark.parametrize(
    "text",
    [
        "!dataclass:Args\nbeta: 0.04\nmodel: !dataclass:Model\n  name: q\n",
        "!!python/object:__main__.Args\nbeta: 0.04\nmodel: !!python/object/apply:os.system\n  name: q\n",
        "beta: 0.04\nmodel:\n  name: q\n",
    ],
)
def test_tags_of_programs_are_passed_over(text: str) -> None:
    assert config_from_text(text) == {"beta": 0.04, "model.name": "q"}


def test_overrides_of_hydra(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text("- beta=0.04\n- actor.optim.lr=1e-6\n- data.files=[a,b]\n")
    assert read_config(path) == {"beta": 0.04, "actor.optim.lr": 1e-6, "data.files": ["a", "b"]}


def test_a_script_with_variables() -> None:
    text = """#!/bin/bash
#SBATCH --gpus=8
export LR=5e-6
N=${N:-16}
trl vllm-serve --model q --max_model_len 4096 &
accelerate launch --num_processes 7 train.py \\
    --learning_rate "$LR" \\
    --num_generations ${N} --output_dir "$OUT/x" \\
    --beta=${BETA:-0.04}
"""
    assert from_script(text) == {"learning_rate": 5e-6, "num_generations": 16, "beta": 0.04}


def test_a_script_of_two_trainings_tells_nothing() -> None:
    assert from_script("python a.py --lr 1\npython b.py --lr 2\n") == {}


@pytest.mark.parametrize(
    "text",
    [
        "Namespace(beta=0.04, loss_type='none', files=['a', 'b'], seed=None)",
        "argparse.Namespace(beta=0.04, loss_type='none', files=['a', 'b'], seed=None)",
        "args: GRPOScriptArguments(beta=0.04, loss_type='none', files=['a', 'b'], seed=None)",
    ],
)
def test_printed_objects(text: str) -> None:
    found = from_call(text)
    assert (found["beta"], found["loss_type"], found["files"], found["seed"]) == (0.04, "none", ["a", "b"], None)


ROWS = "".join(f"{ {'loss': 0.1, 'grad_norm': 0.2 + k / 100, 'reward': 0.5, 'epoch': k / 100} }\n" for k in range(9))


def test_an_object_printed_over_many_lines() -> None:
    text = "GRPOConfig(\n_n_gpu=1,\nbeta=0.04,\nloss_type=dr_grpo,\nlearning_rate=1e-06,\n)\nbeta=9,\n" + ROWS
    found = read_log(None, text.encode()).config
    assert (found["beta"], found["loss_type"], found["learning_rate"]) == (0.04, "dr_grpo", 1e-6)


def test_a_configuration_printed_as_yaml() -> None:
    text = """actor:
  optim:
    lr: 1.0e-06
    betas: [0.9, 0.95]
  clip_ratio: 0.2
  use_kl_loss: false
algorithm:
  adv_estimator: grpo
  kl_ctrl:
    kl_coef: 0.001
trainer:
  total_epochs: 3
  logger: ['console']
"""
    found = read_log(None, (text + ROWS).encode()).config
    assert (found["actor.optim.lr"], found["algorithm.kl_ctrl.kl_coef"]) == (1e-6, 0.001)
    assert found["actor.use_kl_loss"] is False


@given(st.text(alphabet="abc.=-'\"[]{}(),:!&*$\\ \n\t019nN", max_size=300))
def test_any_text_is_settings_or_none(text: str) -> None:
    for reader in (arguments, from_script, from_call, config_from_text):
        assert isinstance(reader(text), dict)


@pytest.mark.parametrize("piece", ["a.b=", "a=", "--x ", "${", "x:\n ", "A(", "a='", "[", "\\\n", "!x ", "$a"])
def test_repetition_is_quick(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    for reader in (arguments, from_script, from_call):
        reader(text)
    read_log(None, (ROWS + text).encode())


@pytest.mark.parametrize("before", ["", " 54%|█████▍    | 81/150 [00:09<00:10,  6.75it/s]"])
def test_the_error_that_ended_a_run_is_kept(before: str) -> None:
    end = f'{before}Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    main()\nRuntimeError: no\n'
    assert read_log(None, (ROWS + end).encode()).ending == "RuntimeError: no"
    assert read_log(None, (ROWS + end + ROWS).encode()).ending == "", "the run went on"


def test_the_module_that_is_started_names_the_trainer() -> None:
    shared = "--init_kl_coef 0.01 --rollout_batch_size 128"
    text = f"entrypoint: python3 -m openrlhf.cli.train_ppo_ray --pretrain m {shared}\n" + ROWS
    run = read(["-"], stdin=text.encode())
    assert run.framework is not None
    assert run.framework.name == "openrlhf"
    assert "openrlhf" not in read_log(None, ("from openrlhf.cli import x\n" + ROWS).encode()).versions


@pytest.mark.parametrize(("weights", "known"), [([0.3] * 30, 0.3), ([0.3 + 0.001 * i for i in range(30)], None)])
def test_a_setting_that_the_trainer_logs_as_a_series(tmp_path: Path, weights: list[float], known: float | None) -> None:
    """The cure of a rising entropy is its bonus, of which the log alone may tell; what a controller moves is no setting."""
    rows = [
        {"step": i + 1, "reward": 0.4, "reward_std": 0.2, "entropy": 0.4, "completions/mean_length": 90.0, "kl": 0.01}
        | {"entropy_coef": weight, "policy_loss": 0.01}
        for i, weight in enumerate(weights)
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read([path])
    assert run.framework is not None
    assert run.framework.name == "trl"
    assert run.knob("entropy_coef") == known


@pytest.mark.parametrize(("said", "sampler"), [({}, None), ({"use_vllm": False}, False), ({"use_vllm": True}, True)])
def test_a_default_without_a_second_engine_yields_to_its_measured_mismatch(
    tmp_path: Path, said: dict[str, bool], sampler: bool | None
) -> None:
    log = tmp_path / "metrics.jsonl"
    rows = [{"step": s, "reward": 0.5, "loss": 0.1, "frac_reward_zero_std": 0.1} for s in range(1, 9)]
    gap = "sampling/sampling_logp_difference/mean"
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"num_generations": 8, "scale_rewards": "group", "max_completion_length": 64, **said}))
    log.write_text("".join(json.dumps({**row, gap: 0.02}) + "\n" for row in rows))
    assert read([log, config]).knob("sampler") is sampler
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read([log, config]).knob("sampler") is bool(sampler)
