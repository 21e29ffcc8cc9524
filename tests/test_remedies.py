"""Remedies: what is written is read back, versions are kept to, nothing inert is advised, and changes can be pasted."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from rlclinic import names
from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.model import Column, Framework, Knob, Prescription, Run, Scalar
from rlclinic.names import Turn
from rlclinic.prescribe import Form, configurations, patch
from rlclinic.readers.config import arguments, flat_settings, from_call
from rlclinic.remedies import prescribe
from rlclinic.simulate import as_run, run_from_spec, scenario

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REAL = [name for name in names.frameworks() if name != "generic"]
DEMO = Path(__file__).parents[1] / "src" / "rlclinic" / "demo"


def of(name: str, version: str | None = None, /, **knobs: Scalar) -> Run:
    framework = Framework(name, name, version=version, how="given")
    return Run(framework=framework, knobs={k: Knob(k, v, k, "config") for k, v in knobs.items()})


def one(id: str, run: Run) -> Prescription:
    (told,) = prescribe([id], run)
    return told


def column(metric: str, *values: float) -> Column:
    return Column(metric, metric, np.arange(1.0, len(values) + 1), np.array(values))


def before(turn: Turn) -> Scalar:
    """A present value from which the remedy has something to change."""
    whole = names.knob(turn.like or turn.knob).kind == "int"
    if turn.at_most is not None and (turn.times or 1) > 1:
        return 1 if whole else turn.at_most / 100
    return 512 if whole else 0.5


# ---------------------------------------------------------------- round trip


def known_for(id: str, framework: Framework) -> dict[str, Scalar]:
    """Present values from which the remedy has something to change in every setting."""
    turns = [turn for turn in names.remedy(id, framework).set if turn.times is not None]
    known = {turn.like or turn.knob: before(turn) for turn in turns}
    return {**known, "train_batch_size": 64, "group_size": 8} if "answers_per_step" in known else known


def parsed(texts: list[str], style: str) -> list[dict[str, object]]:
    """What our readers make of the written changes: as pasted arguments, and as a file or call of that trainer."""
    together = (", " if style == "python" else " ").join(texts)
    if style == "python":
        return [names.flags(together), from_call(f"GRPOConfig({together})")]
    if style == "toml":
        return [names.flags(together), flat_settings(tomllib.loads("\n".join(texts)))]
    return [names.flags(together), arguments("\n".join(texts), labels=True)]


@pytest.mark.parametrize("name", REAL)
def test_what_a_remedy_writes_is_read_back_as_what_it_wants(name: str) -> None:
    framework = Framework(name, name, how="given")
    style, checked = names.load(name).style, 0
    for id in names.remedies():
        told = one(id, of(name, **known_for(id, framework)))
        if not told.applies or not names.remedy(id, framework).set:
            assert told.note or told.applies, id
            continue
        assert told.changes, id
        pasted, filed = parsed([change.writes for change in told.changes], style)
        for settings in (pasted, filed):
            read = names.read_knobs(settings, framework, "given")
            for change in told.changes:
                if change.writes.startswith("remove ") or (change.after == "none" and settings is filed):
                    continue  # the readers of calls and command lines take a bare none for no value
                assert change.after is not None, (id, change)
                assert read[change.knob].value == change.after, (id, change)
                checked += 1
    assert checked > 20


@pytest.mark.parametrize("name", REAL)
def test_every_remedy_has_an_answer_everywhere(name: str) -> None:
    able = 0
    for id in names.remedies():
        told = one(id, of(name))
        assert told.applies or told.note, id
        able += told.applies
    assert able > len(names.remedies()) / 2


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("name", "version", "id", "says"),
    [
        ("trl", "0.15.2", "clip_higher", "epsilon_high does not exist in TRL before 0.16.0"),
        ("trl", "1.7.0", "entropy_bonus", "entropy_coef does not exist in TRL before 1.8.0"),
        ("trl", "1.16.0", "dynamic_sampling", "TRL has no dynamic sampling"),
        ("trl", "0.25.0", "cispo", "does not exist in TRL before 0.26.0"),
        ("trl", "0.24.0", "fp32_head", "before 0.25.0"),
        ("verl", "0.8.0", "dynamic_sampling", "nothing in verl reads algorithm.filter_groups before 0.9.0"),
        ("verl", "0.8.0", "staleness_limit", "before 0.9.0"),
        ("openrlhf", "0.11.0", "rollout_is_correction", "before 0.11.1"),
        ("ms_swift", "3.6.0", "log_entropy", "log_entropy does not exist in ms-swift before 3.7.0"),
        ("nemo_rl", "0.3.0", "dynamic_sampling", "before 0.4.0"),
        ("unsloth", "1.7.0", "entropy_bonus", "does not exist in TRL before 1.8.0"),
        ("areal", "0.3.2", "clip_higher", "before 0.3.3"),
    ],
)
def test_what_the_version_lacks_is_not_advised(name: str, version: str, id: str, says: str) -> None:
    ordered = prescribe([id, "lower_learning_rate"], of(name, version, learning_rate=1e-5))
    assert [told.applies for told in ordered] == [True, False]
    assert ordered[1].id == id
    assert ordered[1].changes == ()
    assert says in ordered[1].note


def test_an_unknown_version_is_told_since_when() -> None:
    told = one("entropy_bonus", of("trl"))
    assert told.applies
    assert "entropy_coef exists since TRL 1.8.0" in told.note
    assert "exists since" not in one("entropy_bonus", of("trl", "1.16.0")).note


def test_an_older_version_gets_the_older_name() -> None:
    old = one("clip_higher", of("openrlhf", "0.9.0", clip_low=0.1))
    new = one("clip_higher", of("openrlhf", "0.11.2", clip_low=0.1))
    assert [change.writes for change in old.changes] == ["--eps_clip_low_high 0.1 0.28"]
    assert [change.writes for change in new.changes] == ["--actor.eps_clip_low_high 0.1 0.28"]
    bounds = one("sequence_level_ratio", of("openrlhf", "0.11.2", clip_low=0.2))
    assert bounds.changes[-1].writes == "--actor.eps_clip_low_high 0.0003 0.0004"


# ---------------------------------------------------------------- values


def test_a_setting_is_never_moved_the_wrong_way() -> None:
    assert prescribe(["kl_coefficient"], of("trl", "1.16.0", kl_coef=0.5)) == ()
    assert prescribe(["larger_groups"], of("trl", "1.16.0", group_size=128)) == ()
    assert prescribe(["clip_higher"], of("trl", "1.16.0", clip_high=0.3)) == ()
    assert prescribe(["turn_limit"], of("trl", "1.16.0", max_turns=4)) == ()
    (change,) = one("kl_coefficient", of("trl", "1.16.0", kl_coef=0.0)).changes
    assert (change.before, change.after, change.writes) == (0.0, 0.001, "beta=0.001")
    (change,) = one("grad_clip", of("verl", grad_clip=1.0)).changes
    assert change.after == 0.5


def test_relative_changes_without_a_present_value_are_told_in_words() -> None:
    (change,) = one("response_budget", of("verl")).changes
    assert (change.after, change.writes) == (None, "data.max_response_length: multiply by 2")
    change = one("updates_per_batch", of("verl")).changes[-1]
    assert change.writes == "actor_rollout_ref.actor.ppo_mini_batch_size: as data.train_batch_size"
    change = one("updates_per_batch", of("openrlhf", train_batch_size=128, group_size=8)).changes[-1]
    assert change.writes == "--train.batch_size 1024"


# ---------------------------------------------------------------- what would do nothing


def test_what_would_do_nothing_is_said_last_and_never_advised() -> None:
    on_policy = of("trl", "1.16.0", inner_epochs=1, steps_per_generation=4, grad_accumulation=4)
    ordered = prescribe(["clip_higher", "dual_clip", "dynamic_sampling", "entropy_bonus"], on_policy)
    assert [told.id for told in ordered] == ["entropy_bonus", "dynamic_sampling", "clip_higher", "dual_clip"]
    assert [told.applies for told in ordered] == [True, False, False, False]
    assert "one on-policy update" in ordered[2].note
    assert ordered[2].changes == ()
    assert one("clip_higher", of("trl", "1.16.0", inner_epochs=2)).applies
    assert one("clip_higher", of("trl", "1.16.0")).applies


@pytest.mark.parametrize(
    ("id", "run", "applies"),
    [
        ("adaptive_kl", of("verl", kl_in_loss=False, kl_in_reward=False), False),
        ("adaptive_kl", of("verl", kl_in_loss=True), True),
        ("reference_reset", of("trl", "1.16.0", kl_coef=0.0), False),
        ("kl_coefficient", of("trl", "1.16.0", kl_coef=0.0), True),
        ("critic_lr", replace(of("verl", critic_learning_rate=1e-5), algorithm="grpo"), False),
        ("critic_lr", replace(of("verl", critic_learning_rate=1e-5), algorithm="gae"), True),
        ("mismatch_filter", of("trl", "1.16.0", sampler=False), False),
        ("staleness_limit", replace(of("verl", "0.9.1"), columns={"reward.mean": column("reward.mean", 1, 2)}), False),
        ("staleness_limit", of("verl", "0.9.1", staleness_limit=8), True),
        ("turn_limit", replace(of("verl"), columns={"reward.mean": column("reward.mean", 1, 2)}), False),
        ("turn_limit", replace(of("verl"), columns={"agent.turns.max": column("agent.turns.max", 2, 9)}), True),
    ],
)
def test_what_a_remedy_needs(id: str, run: Run, applies: bool) -> None:
    told = one(id, run)
    assert told.applies is applies
    assert told.note.startswith("would do nothing here") is not applies


def test_every_need_is_known() -> None:
    for id in names.remedies():
        assert names.remedy(id).needs in names.NEEDS


# ---------------------------------------------------------------- the changes alone


@pytest.fixture(scope="module")
def sick() -> Run:
    made = as_run(scenario("entropy_collapse", steps=300, seed=3))
    knobs = {"learning_rate": Knob("learning_rate", 1e-5, "learning_rate", "config")}
    return replace(made, knobs={**made.knobs, **knobs})


@pytest.mark.parametrize("form", ["args", "yaml", "patch"])
@pytest.mark.parametrize("everything", [False, True])
def test_each_form_says_why(sick: Run, form: Form, everything: bool) -> None:
    told = diagnose(sick)
    text = patch(told, form, everything=everything)
    assert text.startswith("# ")
    assert told.findings[0].check in text
    assert text.endswith("\n")


def test_arguments_are_on_one_line_and_yaml_is_a_tree() -> None:
    run = of("verl", "0.9.1", learning_rate=1e-6, max_response_length=1024)
    finding = replace(diagnose(as_run(scenario("entropy_collapse", steps=300, seed=3))).findings[0], because_of=())
    ids = ["lower_learning_rate", "response_budget", "entropy_bonus"]
    told = diagnose(as_run(scenario("entropy_collapse", steps=300, seed=3)))
    told = replace(told, run=run, findings=(replace(finding, prescriptions=prescribe(ids, run)),))
    (line,) = [line for line in patch(told, "args", everything=True).splitlines() if not line.startswith("#")]
    assert line.split() == [
        "actor_rollout_ref.actor.optim.lr=5e-07",
        "data.max_response_length=2048",
        "actor_rollout_ref.actor.entropy_coeff=0.001",
    ]
    tree = yaml.safe_load(patch(told, "yaml", everything=True))
    assert tree["data"] == {"max_response_length": 2048}
    assert tree["actor_rollout_ref"]["actor"] == {"optim": {"lr": 5e-07}, "entropy_coeff": 0.001}
    first = [line for line in patch(told, "args").splitlines() if not line.startswith("#")]
    assert first == ["actor_rollout_ref.actor.optim.lr=5e-07"]


VERL_YAML = """\
data:
  max_response_length: 1024  # tokens
actor_rollout_ref:
  actor:
    optim:
      lr: 1e-6
"""
PRIME = "[trainer.optim]\nlr = 1e-6\n\n[orchestrator]\ngroup_size = 4\n"


OVERRIDES = "python main.py \\\n  actor_rollout_ref.actor.optim.lr=1e-6 \\\n"
DIFFS = {
    ("verl", "c.yaml", VERL_YAML): [
        "+      lr: 5.0e-07",
        "+  max_response_length: 2048  # tokens",
        "+    entropy_coeff: 0.001",
    ],
    ("verl", "run.sh", OVERRIDES): ["+  actor_rollout_ref.actor.optim.lr=5.0e-07 \\"],
    ("trl", "train.py", "GRPOConfig(learning_rate=1e-6, beta=0.0)\n"): ["+GRPOConfig(learning_rate=5.0e-07, beta=0.0)"],
    ("openrlhf", "run.sh", "x --actor.adam.lr 1e-6 --rollout.max_new_tokens 1024\n"): [
        "+x --actor.adam.lr 5.0e-07 --rollout.max_new_tokens 2048"
    ],
    ("prime_rl", "rl.toml", PRIME): ["+lr = 5.0e-07"],
}


@pytest.mark.parametrize(("written", "expected"), DIFFS.items(), ids=[f"{name}-{file}" for name, file, _ in DIFFS])
def test_a_diff_changes_the_lines_of_the_configuration(
    tmp_path: Path, written: tuple[str, str, str], expected: list[str]
) -> None:
    name, file, text = written
    config = tmp_path / file
    config.write_text(text)
    run = of(name, learning_rate=1e-6, max_response_length=1024)
    told = diagnose(as_run(scenario("entropy_collapse", steps=300, seed=3)))
    ids = ["lower_learning_rate", "response_budget", "entropy_bonus"]
    finding = replace(told.findings[0], prescriptions=prescribe(ids, run), because_of=())
    told = replace(told, run=run, findings=(finding,))
    lines = patch(told, "patch", everything=True, configs=configurations([], [config])).splitlines()
    assert any(line.startswith("--- a/") for line in lines)
    for line in expected:
        assert line in lines
    without = patch(told, "patch", everything=True)
    assert "no configuration file was read" in without


def test_the_command(tmp_path: Path) -> None:
    run = CliRunner()
    given = [str(DEMO / "metrics.jsonl"), "--config", str(DEMO / "config.yaml")]
    for form in ("args", "yaml", "patch"):
        told = run.invoke(cli, ["prescribe", *given, "--as", form])
        assert told.exit_code == 0, told.output
        assert "learning_rate" in told.output
    target = tmp_path / "changes.txt"
    assert run.invoke(cli, ["prescribe", *given, "-o", str(target)]).exit_code == 0
    assert "learning_rate=" in target.read_text()
    assert run.invoke(cli, ["prescribe", *given, "-o", str(target)]).exit_code != 0


# ---------------------------------------------------------------- values that the log holds


def test_a_value_in_single_precision_is_written_as_it_was_set() -> None:
    (told,) = prescribe(["restore_learning_rate"], of("trl"), {"learning_rate": float(np.float32(1e-4))})
    assert [(change.after, change.writes) for change in told.changes] == [(1e-4, "learning_rate=0.0001")]


def test_a_setting_that_is_right_already_is_not_changed() -> None:
    run = of("trl", None, learning_rate=1e-4)
    (told,) = prescribe(["restore_learning_rate"], run, {"learning_rate": float(np.float32(1e-4))})
    assert told.applies
    assert not told.changes
    assert "already learning_rate=0.0001: find what overrides it" in told.note


def test_a_setting_of_an_unknown_trainer_is_told_as_ours() -> None:
    unknown = prescribe(["dynamic_sampling"], Run())[0]
    assert unknown.changes
    assert "dynamic_sampling: our name" in unknown.note
    assert "our name" not in one("log_completions", of("trl")).note


@pytest.mark.parametrize(("share", "helps"), [(0.6, True), (0.95, False)])
def test_larger_groups_are_not_prescribed_where_nearly_all_groups_would_stay_dead(share: float, helps: bool) -> None:
    spec = {"steps": 6, "reward.mean": {"values": [0.01] * 6}, "group.zero_var_frac": {"values": [share] * 6}}
    finding = diagnose(run_from_spec(spec, 0), only=["zero_variance_all_wrong"]).findings[0]
    assert ("larger_groups" in [one.id for one in finding.prescriptions]) is helps


@pytest.mark.parametrize(("fp16", "first"), [(None, "precision"), (True, "precision"), (False, "inspect_batch")])
def test_bf16_is_prescribed_for_nan_only_where_the_run_may_be_in_fp16(fp16: bool | None, first: str) -> None:
    values = [1.0, 1.2, float("nan"), 1.1, 0.9, 1.0]
    run = Run(columns={"grad.norm": column("grad.norm", *values), "reward.mean": column("reward.mean", *[0.4] * 6)})
    known = {} if fp16 is None else {"fp16": Knob("fp16", fp16, "fp16", "config")}
    finding = diagnose(replace(run, knobs=known), only=["nan_inf"]).findings[0]
    assert finding.prescriptions[0].id == first


@pytest.mark.parametrize(("bonus", "writes"), [(0.0, "entropy_coef=0.001"), (0.003, "entropy_coef=0.009")])
def test_an_entropy_bonus_that_does_not_hold_the_entropy_is_raised(bonus: float, writes: str) -> None:
    run = run_from_spec({"preset": "entropy_collapse", "steps": 300, "drop": ["clip.high_frac"]}, 0)
    framework = Framework("trl", "TRL", version="1.16.0", how="given")
    run = replace(
        run, framework=framework, knobs={"entropy_coef": Knob("entropy_coef", bonus, "entropy_coef", "config")}
    )
    finding = diagnose(run, only=["entropy_collapse"]).findings[0]
    assert [change.writes for change in finding.prescriptions[0].changes] == [writes]
