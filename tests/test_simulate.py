"""The simulator: the same seed gives the same run, its numbers agree with each other, and its logs hold them all."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

import rlclinic.names as names
from rlclinic.checks import BY_NAME
from rlclinic.errors import BadRequest, BadTable, UnknownName
from rlclinic.model import Undecided
from rlclinic.readers import read
from rlclinic.simulate import (
    DIALECTS,
    as_run,
    configuration,
    forms,
    healthy,
    listing,
    load_spec,
    run_from_spec,
    scenario,
    scenarios,
    write,
)
from rlclinic.simulate.scenarios import scenarios as built
from rlclinic.simulate.shapes import Move, Shape, Spikes, autoregressive, series

NOT_IN_A_LOG = {
    "contamination": "the settings show it: which data is trained and which is held out",
    "environment_tokens_trained": "only a setting or saved answers show the loss mask",
    "eval_too_noisy": "it says that nothing can be decided, beside whatever the run has",
    "reward_hacking": "only saved answers show what is paid",
    "verifier_disagreement": "it needs saved answers and a second verifier",
}
"""Checks without a simulated run, with the reason."""
BUILT = tuple(built())
"""The scenarios whose numbers follow from one course, so that they must agree with each other."""
EVERY = tuple(scenarios())
SHARES = ("group.zero_var_frac", "length.truncated_frac", "clip.low_frac", "clip.high_frac", "clip.frac", "eval.score")
SIZES = ((150, 1, 0.5), (400, 10, 0.9), (1500, 1, 0.9))


def lag_one(values: np.ndarray) -> float:
    centred = values - values.mean()
    return float((centred[1:] * centred[:-1]).mean() / centred.var())


def test_every_check_has_a_scenario_and_healthy_ones_expect_nothing() -> None:
    sick = {check for name in EVERY for check in scenario(name, steps=150).truth}
    assert sick == set(BY_NAME) - set(NOT_IN_A_LOG)
    assert all(scenario(name, steps=150).healthy for name in healthy())
    assert all(says and f"{name} " in listing() for name, says in scenarios().items())
    assert max(map(len, listing().splitlines())) <= 100


@pytest.mark.parametrize("name", EVERY)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(name: str) -> None:
    first, again, other = (scenario(name, steps=150, seed=seed) for seed in (3, 3, 4))
    assert first.run.columns.keys() == again.run.columns.keys()
    for metric, column in first.run.columns.items():
        np.testing.assert_array_equal(column.values, again.run[metric].values)
    assert any(not np.array_equal(column.values, other.run[m].values) for m, column in first.run.columns.items())


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("steps", "every", "phi"), SIZES)
def test_values_stay_within_what_the_metrics_allow(name: str, steps: int, every: int, phi: float) -> None:
    made = scenario(name, steps=steps, seed=1, phi=phi, log_every=every)
    for metric, column in made.run.columns.items():
        finite = column.finite.values
        assert np.all(np.diff(column.steps) > 0)
        assert len(column) >= 2
        if metric in SHARES:
            assert finite.min() >= 0
            assert finite.max() <= 1
        elif name in BUILT and not metric.startswith(("loss", "advantage", "kl.old_new")):
            assert finite.min() >= 0
        assert column.nonfinite == 0 or "nan_inf" in made.truth
    for onset in made.truth.values():
        assert onset is None or 1 <= onset <= steps


@pytest.mark.parametrize("name", BUILT)
def test_the_numbers_of_a_step_agree_with_each_other(name: str) -> None:
    made = scenario(name, steps=300, seed=2)
    run, group_size = made.run, int(made.run.number("group_size") or 0)
    if not {"group.zero_var_frac", "reward.group_std", "length.truncated_frac"} <= run.columns.keys():
        return
    answers = group_size * int(run.number("train_batch_size") or 0)
    if name not in ("logged_every_10", "zero_variance_discrete_middle"):
        right = run["reward.mean"].values * answers
        np.testing.assert_allclose(right, np.round(right), atol=1e-6)
        live = (1 - run["group.zero_var_frac"].values) * answers / group_size
        assert np.all(live <= np.minimum(right, answers - right) + 1e-6)
        assert np.all((run["reward.group_std"].values == 0) == (live < 0.5))
    limit = run.number("max_response_length")
    cut, mean = run["length.truncated_frac"].values, run["length.response.mean"].values
    np.testing.assert_allclose(mean, cut * limit + (1 - cut) * run["length.terminated.mean"].values, rtol=0.01)
    assert np.all(run["length.response.min"].values <= mean + 1e-9)
    assert np.all(mean <= run["length.response.max"].values + 1e-9)
    assert np.all(run["length.response.max"].values <= limit)
    np.testing.assert_allclose(
        run["clip.frac"].values, run["clip.low_frac"].values + run["clip.high_frac"].values, atol=1e-12
    )


def test_the_zero_variance_share_is_what_the_pass_rates_give() -> None:
    """Against rewards that are really drawn: Beta pass rates, then answers one by one."""
    rng = np.random.default_rng(8)
    for name in ("plain", "saturating_well"):
        made = scenario(name, steps=1000, seed=5)
        last = slice(900, None)
        mean = made.run["reward.mean"].values[last].mean()
        size, spread = int(made.run.number("group_size") or 0), {"saturating_well": 15.0}.get(name, 8.0)
        rates = rng.beta(mean * spread, (1 - mean) * spread, 40_000)
        right = rng.binomial(size, rates)
        drawn = float(((right == 0) | (right == size)).mean())
        assert made.run["group.zero_var_frac"].values[last].mean() == pytest.approx(drawn, abs=0.03)
        within = np.sqrt(right * (size - right) / (size * (size - 1.0))).mean()
        assert made.run["reward.group_std"].values[last].mean() == pytest.approx(within, abs=0.02)


def test_when_no_answer_ends_every_length_is_the_limit() -> None:
    run = scenario("never_eos", steps=150).run
    assert set(run["length.truncated_frac"].values) == {1.0}
    for kind in ("mean", "min", "max"):
        assert set(run[f"length.response.{kind}"].values) == {run.number("max_response_length")}
        assert set(run[f"length.terminated.{kind}"].values) == {0.0}


def test_each_illness_is_plain_to_see() -> None:
    def late(name: str, metric: str) -> float:
        values = scenario(name, steps=150, seed=7).run[metric].values
        return float(values[-len(values) // 5 :].mean())

    assert late("zero_variance_all_right", "group.zero_var_frac") > 0.75
    assert late("zero_variance_all_wrong", "group.zero_var_frac") > 0.9
    assert 0.4 < late("zero_variance_discrete_middle", "reward.mean") < 0.6
    assert late("zero_variance_discrete_middle", "reward.std") < 0.35
    assert late("zero_variance_discrete_middle", "group.zero_var_frac") > 0.75
    assert late("reward_saturated", "reward.mean") > 0.98
    assert late("entropy_collapse", "entropy.mean") < 0.1 * 0.8
    assert late("entropy_rise", "entropy.mean") > 2.0
    assert late("truncation", "length.truncated_frac") > 0.3
    assert late("kl_drift", "kl.ref") > 0.5
    assert late("clip_saturation", "clip.frac") > 0.4
    assert late("sudden_collapse", "reward.mean") < 0.05
    nan = scenario("nan_inf", steps=150).run["grad.norm"]
    assert np.isnan(nan.values[89:]).all()
    assert np.isfinite(nan.values[:89]).all()
    for every in (1, 10):
        gradients = scenario("grad_spikes", steps=150, log_every=every).run["grad.norm"].values
        assert (gradients > 5 * np.median(gradients)).sum() >= 3
        assert (scenario("zero_gradient_steps", steps=400, log_every=every).run["grad.norm"].zero).mean() > 0.6


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, 0.97])
def test_noise_has_the_autocorrelation_and_variance_asked_for(phi: float) -> None:
    noise = autoregressive(np.random.default_rng(1), 200, 500, phi)
    assert np.mean(noise[:, 1:] * noise[:, :-1]) / np.mean(noise**2) == pytest.approx(phi, abs=0.01)
    assert noise[:, 0].std() == pytest.approx(1.0, abs=0.15)
    assert noise[:, 400:].std() == pytest.approx(1.0, abs=0.08)
    # Across a block boundary as inside a block.
    assert np.corrcoef(noise[:, 127], noise[:, 128])[0, 1] == pytest.approx(phi, abs=0.15)


@pytest.mark.parametrize("phi", [0.5, 0.9])
def test_logged_rewards_and_lengths_have_it_too(phi: float) -> None:
    runs = [scenario("no_learning", steps=2000, seed=s, phi=phi).run for s in range(8)]
    for metric in ("reward.mean", "entropy.mean", "length.terminated.mean"):
        assert np.mean([lag_one(run[metric].values) for run in runs]) == pytest.approx(phi, abs=0.06)


def test_rows_of_ten_steps_are_means_except_the_last_values() -> None:
    fine, coarse = (scenario("plain", steps=200, seed=1, log_every=e).run for e in (1, 10))
    np.testing.assert_allclose(fine["entropy.mean"].values.reshape(20, 10).mean(axis=1), coarse["entropy.mean"].values)
    np.testing.assert_array_equal(fine["grad.norm"].values[9::10], coarse["grad.norm"].values)
    np.testing.assert_array_equal(fine["eval.score"].values, coarse["eval.score"].values)


def test_bad_requests_are_answered_with_what_is_valid() -> None:
    with pytest.raises(UnknownName, match="entropy_collapse"):
        scenario("entropy_colapse")
    with pytest.raises(BadRequest):
        scenario("plain", steps=5)
    with pytest.raises(BadRequest):
        scenario("plain", log_every=300)
    with pytest.raises(UnknownName, match="trl"):
        write(scenario("plain", steps=20), "tlr")
    with pytest.raises(UnknownName, match="console5"):
        write(scenario("plain", steps=20), "trl", "consol")


SPEC = """
steps = 600
seeds = 5
dialect = "trl"
version = "1.16.0"
[knobs]
group_size = 8
["entropy.mean"]
level = 1.1
noise = 0.03
falls = { to = 0.75, at = 0, over = 600 }
["part.accuracy"]
level = 0.4
noise = 0.02
weight = 2.0
["part.accuracy.std"]
level = 0.49
["eval.score"]
level = 0.4
every = 50
"""


def test_a_specification_becomes_a_run() -> None:
    run = run_from_spec(load_spec(SPEC), seed=3)
    entropy = run["entropy.mean"]
    assert len(entropy) == 600
    assert entropy.values[:20].mean() == pytest.approx(1.1, abs=0.03)
    assert entropy.values[-20:].mean() == pytest.approx(0.75, abs=0.03)
    assert run.knob("group_size") == 8
    assert run.framework is not None
    assert run.framework.name == "trl"
    assert run.framework.version == "1.16.0"
    accuracy = run.components["accuracy"]
    assert accuracy.weight == 2.0
    assert accuracy.std is not None
    assert accuracy.mean.metric == "reward.component.mean"
    assert run["eval.score"].steps.tolist() == list(range(50, 601, 50))
    again = run_from_spec({**load_spec(SPEC), "kl.ref": {"level": 0.01, "noise": 0.001}}, seed=3)
    np.testing.assert_array_equal(entropy.values, again["entropy.mean"].values)
    assert not np.array_equal(entropy.values, run_from_spec(load_spec(SPEC), seed=4)["entropy.mean"].values)


def test_a_specification_may_start_from_a_scenario() -> None:
    spec = load_spec('preset = "plain"\nsteps = 200\ndrop = ["kl.ref"]\n["entropy.mean"]\nlevel = 2.0')
    run = run_from_spec(spec)
    assert "kl.ref" not in run
    assert set(run["entropy.mean"].values) == {2.0}
    np.testing.assert_array_equal(run["reward.mean"].values, scenario("plain", steps=200).run["reward.mean"].values)


@pytest.mark.parametrize(
    ("text", "names_"),
    [
        ("steps = ", "TOML"),
        ("stepz = 3", "'stepz'.*\n.*steps"),
        ("steps = 0", "at least 1"),
        ("steps = true", "steps"),
        ("phi = 1.0", "phi"),
        ('preset = "plane"', "plain"),
        ('dialect = "tlr"', "trl"),
        ("[knobs]\ngroup_sise = 8", "group_size"),
        ('["entropy.maen"]\nlevel = 1', "entropy.mean"),
        ('["entropy.mean"]\nlevl = 1', "'levl'.*\n.*level"),
        ('["entropy.mean"]\nlevel = "high"', "entropy.mean.level"),
        ('["entropy.mean"]\nphi = 2', "between"),
        ('["entropy.mean"]\nevery = 2.5', "whole"),
        ('["entropy.mean"]\nlevel = 1\nfalls = { to = 2, over = 5 }', "direction"),
        ('["entropy.mean"]\nlevel = 1\nfalls = { to = 0 }', "over"),
        ('["entropy.mean"]\nlevel = 1\nrises = { too = 2, over = 5 }', "'too'"),
        ('["entropy.mean"]\nlevel = 1\njumps = { at = 2 }', "jumps.to"),
        ('["entropy.mean"]\nspikes = { times = [3] }', "spikes.size"),
        ('["entropy.mean"]\nstatus = "odd"', "structural_zero"),
        ('["entropy.mean"]\nweight = 1', "reward part"),
        ('["part.a.std"]\nlevel = 1', "part.a"),
    ],
)
def test_a_wrong_specification_names_the_key_and_the_valid_ones(text: str, names_: str) -> None:
    with pytest.raises(BadTable, match=names_):
        load_spec(text)


def test_shapes_do_what_they_say() -> None:
    flat = Shape(level=1.0)
    assert series(flat, 10, 0)[1].tolist() == [1.0] * 10
    assert series(flat, 10, 0, log_every=3)[0].tolist() == [3, 6, 9]
    jump = series(Shape(level=1.0, moves=(Move(to=5.0, at=6),)), 10, 0)[1]
    assert jump.tolist() == [1.0] * 5 + [5.0] * 5
    moves = Shape(level=0.0, moves=(Move(1.0, 10, 20, "linear"), Move(0.0, 50, 20, "exponential")))
    path = series(moves, 100, 0)[1]
    assert path[[8, 19, 39, 98]].tolist() == pytest.approx([0, 0.5, 1, 0])
    spiky = series(Shape(level=1.0, spikes=Spikes((5.0, 14.0), 9.0)), 20, 0, log_every=2)
    assert spiky[0][spiky[1] == 10.0].tolist() == [6, 14]
    steps, values = series(Shape(level=1.0, nan_from=8, nan_at=(2,), missing_every=5), 10, 0)
    assert steps.tolist() == [1, 2, 3, 4, 6, 7, 8, 9]
    assert np.isnan(values).tolist() == [False, True, False, False, False, False, True, True]
    quantised = series(Shape(level=0.5, noise=0.1, quantum=1 / 64, low=0.0, high=0.5), 500, 0)[1]
    np.testing.assert_array_equal(quantised * 64, np.round(quantised * 64))
    assert quantised.max() == 0.5
    assert np.mean(series(Shape(level=1.0, zero_share=0.3), 4000, 0)[1] == 0) == pytest.approx(0.3, abs=0.03)
    assert series(Shape(level=0.0, trend=0.5), 4, 0)[1].tolist() == [0.5, 1.0, 1.5, 2.0]
    assert series(Shape(values=(1.0, math.inf)), 9, 0)[1].tolist() == [1.0, math.inf]
    assert lag_one(series(Shape(noise=1.0, phi=0.9), 20_000, 0)[1]) == pytest.approx(0.9, abs=0.03)
    assert series(Shape(level=2.0, noise_share=0.5), 20_000, 0)[1].std() == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("name", ["plain", "nan_inf", "never_eos", "logged_every_10", "metric_not_logged"])
@pytest.mark.parametrize("dialect", ["trl", "verl"])
def test_what_is_written_can_be_read_back(name: str, dialect: str) -> None:
    made = scenario(name, steps=60, seed=2)
    run = as_run(made, dialect)
    rows = [json.loads(line) for line in write(made, dialect, "jsonl").splitlines()]
    if dialect == "verl":
        rows = [{**row["data"], "step": row["step"]} for row in rows]
    columns = [*run.columns.values()]
    for part in run.components.values():
        columns += [part.mean, *([part.std] if part.std else [])]
    assert len(columns) > 15
    for column in columns:
        pairs = [(row["step"], row[column.key]) for row in rows if column.key in row]
        assert [step for step, _ in pairs] == column.steps.tolist()
        np.testing.assert_array_equal([math.nan if v is None else v for _, v in pairs], column.values)
    if dialect == "trl":
        state = json.loads(write(made, dialect, "trainer_state"))
        # NaN differs from itself, so the texts are compared.
        assert json.dumps(state["log_history"]) == json.dumps(rows)


@pytest.mark.parametrize(("dialect", "form"), [(d, form) for d in ("trl", "verl") for form in forms(d)])
def test_the_reader_makes_the_same_run_of_it(dialect: str, form: str, tmp_path: Path) -> None:
    made = scenario("never_eos", steps=60, seed=3)
    wanted = as_run(made, dialect)
    assert wanted.framework is not None
    log, settings = tmp_path / ("log.json" if form == "trainer_state" else "log.txt"), tmp_path / "config.yaml"
    log.write_text(write(made, dialect, form), encoding="utf-8")
    settings.write_text(configuration(made, dialect), encoding="utf-8")
    found = read([log, settings], framework=f"{dialect}@{wanted.framework.version}")
    assert wanted.columns.keys() <= found.columns.keys()
    for metric, column in wanted.columns.items():
        np.testing.assert_array_equal(found[metric].steps, column.steps)
        np.testing.assert_allclose(found[metric].values, column.values, rtol=6e-4, atol=6e-5)
    assert {name: found.knob(name) for name in wanted.knobs} == {n: k.value for n, k in wanted.knobs.items()}
    assert not found.unrecognised


def test_console_lines_carry_the_same_numbers() -> None:
    made = scenario("plain", steps=40, seed=1)
    reward = as_run(made).columns["reward.mean"].values
    for form, digits in (("console", 1e-12), ("console5", 6e-5)):
        text = write(made, form=form)
        pieces = [line[line.index("{") :] for line in text.splitlines() if "'reward':" in line]
        found = [float(str(yaml.safe_load(piece)["reward"])) for piece in pieces]
        np.testing.assert_allclose(found, reward, atol=digits)
        assert "40/40" in text
        assert "'step'" not in text
        assert ("'reward': '" in text) == (form == "console5")
    verl = write(made, "verl", "console").splitlines()
    assert len(verl) == 40
    assert " step:1 - " in verl[0]
    pairs = dict(item.rsplit(":", 1) for item in verl[-1].split(" - ")[1:])
    assert float(pairs["critic/score/mean"]) == reward[-1]
    assert pairs["actor/ppo_kl"].startswith("np.float64(")


def test_the_meaning_of_reward_std_follows_the_version() -> None:
    made = scenario("plain", steps=40)
    old, new = as_run(made, "trl", "0.26.2"), as_run(made, "trl", "0.27.0")
    assert "reward.group_std" in old
    assert "reward.std" not in old
    assert "reward.std" in new
    assert "reward.group_std" not in new
    assert old["reward.group_std"].key == new["reward.std"].key == "reward_std"
    first = json.loads(write(made, version="0.26.2").splitlines()[0])
    assert first["reward_std"] == made.run["reward.group_std"].values[0]
    assert "entropy" not in json.loads(write(made, version="0.19.1").splitlines()[0])


@pytest.mark.parametrize("dialect", tuple(DIALECTS))
def test_the_configuration_holds_every_setting(dialect: str) -> None:
    made = scenario("asymmetric_clip", steps=40)
    settings = yaml.safe_load(configuration(made, dialect))
    known = as_run(made, dialect).knobs
    assert len(known) > 3
    for knob in known.values():
        place = settings
        for branch in knob.key.split("."):
            place = place[branch]
        assert place == knob.value
    assert as_run(made, dialect).number("clip_high") == (0.28 if "clip_high" in known else None)


@pytest.mark.parametrize("dialect", tuple(DIALECTS))
def test_the_writer_and_the_framework_table_agree(dialect: str) -> None:
    run = as_run(scenario("plain", steps=20), dialect)
    for metric, column in run.columns.items():
        meaning = names.translate(column.key, run.framework, {})
        meant = meaning.meanings if isinstance(meaning, Undecided) else (getattr(meaning, "metric", None),)
        assert metric in meant, column.key
    for part in run.components.values():
        assert getattr(names.translate(part.mean.key, run.framework, {}), "part", None) == part.name
    for knob, spelled in DIALECTS[dialect].knobs.items():
        row = names.spell(knob, run.framework)
        assert row is not None, knob
        assert spelled in (row.key, *row.aliases), knob


@pytest.mark.parametrize("dialect", tuple(DIALECTS))
def test_a_dialect_logs_what_its_framework_has_a_key_for(dialect: str) -> None:
    found = DIALECTS[dialect]
    written = {column.metric for column in as_run(scenario("plain", steps=20), dialect).columns.values()}
    assert {one for one in found.keys if isinstance(one, str)} <= written
    assert "reward.mean" in written
    assert found.title == names.load(dialect).title
    assert ("eval.score" in written) == bool(found.score)


def test_a_run_whose_settings_leave_out_when_it_evaluates_is_written() -> None:
    made = scenario("duplicated_or_missing_steps", steps=40)
    assert "eval_every" not in made.settings
    assert json.loads(write(made, "trl", "trainer_state"))["eval_steps"] == -1


def test_every_dialect_has_a_form_and_generation_is_fast() -> None:
    assert forms("trl") == ("jsonl", "trainer_state", "console", "console5")
    assert forms("verl") == ("jsonl", "console")
    assert all(forms(dialect) for dialect in DIALECTS)
    with pytest.raises(UnknownName, match="console"):
        write(scenario("plain", steps=20), "openrlhf", "jsonl")
    scenario("plain", steps=2000)
    begun = time.perf_counter()
    for seed in range(5):
        scenario("plain", steps=2000, seed=seed)
    assert (time.perf_counter() - begun) / 5 < 0.1
