"""A loop with names of its own: the file that tells them, what it changes in a run, and the draft made from a log."""

from __future__ import annotations

import json
import math
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic import names
from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest, BadTable, CannotRead, RlclinicError, UnknownName
from rlclinic.names.own import names_from, read_names, tomllib
from rlclinic.prescribe import patch
from rlclinic.readers import read
from rlclinic.suggest import suggest, words

MINE = """
title = "maze loop"
step = "my/step"
[metrics]
"my/reward" = "reward.mean"
my.kl = "kl.ref"
"rw/{name}" = "reward.component.mean"
"ent_bits" = { metric = "entropy.mean", scale = 0.5, note = "logged in half nats" }
"gnorm" = "grad.norm"
"bench/gsm8k" = "eval.score"
[settings]
"my.group" = "group_size"
"opt.step_size" = "learning_rate"
"kl_pct" = { setting = "kl_coef", scale = 0.01 }
"""
CONFIG = "my:\n  group: 8\nopt:\n  step_size: 1.0e-5\nkl_pct: 2\n"


def rows(count: int = 120, seed: int = 1) -> list[dict[str, Any]]:
    """A run whose entropy dies, logged three times a step by a counter of its own."""
    noise = random.Random(seed)
    table = []
    for k in range(count):
        row = {
            "my/step": 10 * k + 10,
            "_step": 3 * k,
            "my/reward": 0.3 + 0.003 * k + noise.gauss(0, 0.02),
            "my.kl": 0.001 * k + abs(noise.gauss(0, 1e-3)),
            "rw/fmt": 0.9 + noise.gauss(0, 0.01),
            "rw/acc": 0.2 + noise.gauss(0, 0.05),
            "ent_bits": max(0.02, 1.2 * 0.95**k) + abs(noise.gauss(0, 3e-3)),
            "gnorm": 1 + noise.gauss(0, 0.1),
            "wall": 3.2 * k,
        }
        table.append(row | ({"bench/gsm8k": 0.4 + noise.gauss(0, 0.01)} if k % 10 == 9 else {}))
    return table


def written(
    folder: Path, table: list[dict[str, Any]], toml: str = MINE, config: str = CONFIG
) -> tuple[Path, Path, Path]:
    log, own, knobs = folder / "log.jsonl", folder / "my.toml", folder / "config.yaml"
    log.write_text("\n".join(json.dumps(row) for row in table) + "\n")
    own.write_text(toml)
    knobs.write_text(config)
    return log, own, knobs


def test_ten_lines_tell_a_loop_of_ones_own(tmp_path: Path) -> None:
    table = rows()
    log, own, config = written(tmp_path, table)
    run = read([log, config], names=own)
    assert run.framework is not None
    assert (run.framework.title, run.framework.how) == ("maze loop", "given")
    reward = run.columns["reward.mean"]
    assert reward.key == "my/reward"
    assert list(reward.steps[:3]) == [10, 20, 30]
    assert list(reward.values) == pytest.approx([row["my/reward"] for row in table])
    assert list(run.columns["entropy.mean"].values) == pytest.approx([0.5 * row["ent_bits"] for row in table])
    assert run.columns["entropy.mean"].note == "logged in half nats"
    assert run.columns["kl.ref"].key == "my.kl"
    assert set(run.components) == {"fmt", "acc"}
    assert len(run.columns["eval.score"]) == 12
    assert "bench/gsm8k" in run.eval_rule
    assert {name: run.knob(name) for name in ("group_size", "learning_rate", "kl_coef")} == {
        "group_size": 8,
        "learning_rate": 1e-5,
        "kl_coef": 0.02,
    }
    assert [unknown.key for unknown in run.unrecognised] == ["wall"]


def test_a_remedy_is_written_in_the_users_own_setting(tmp_path: Path) -> None:
    log, own, config = written(tmp_path, rows())
    found = diagnose(read([log, config], names=own))
    told = [change.writes for f in found.findings for p in f.prescriptions for change in p.changes]
    assert "opt.step_size=5e-06" in told
    assert "opt.step_size=5e-06" in patch(found, "args", everything=True)
    framework = found.run.framework
    assert names.write("kl_coef", 0.05, framework) == "kl_pct=5.0"
    assert names.write("group_size", 16, framework) == "my.group=16"
    assert names.write("entropy_coef", 0.001, framework) == "entropy_coef=0.001"  # not named: the plain word


def test_own_names_win_over_those_of_the_trainer(tmp_path: Path) -> None:
    table = [
        {"step": k + 1, "reward": 1.0 + k, "reward_std": 0.1, "task_reward": 0.01 * k, "completions/mean_length": 9.0}
        | {"frac_reward_zero_std": 0.1, "grad_norm": 1.0, "beta": 0.5, "entropy": 0.3 + k / 100}
        for k in range(30)
    ]
    toml = '[metrics]\n"task_reward" = "reward.mean"\n[settings]\n"beta" = "temperature"\n'
    log, own, config = written(tmp_path, table, 'extends = "trl"\n' + toml, "beta: 0.7\nlearning_rate: 1.0e-6\n")
    run = read([log, config], names=own)
    assert run.framework is not None
    assert run.framework.name == "trl"
    assert run.columns["reward.mean"].key == "task_reward"
    assert run.columns["length.response.mean"].key == "completions/mean_length"
    assert run.knob("temperature") == 0.7
    assert run.knob("kl_coef") != 0.7  # TRL's meaning of beta is gone
    assert run.knob("learning_rate") == 1e-6
    assert names.write("learning_rate", 2e-6, run.framework) == "learning_rate=2e-06"
    bounded = read([log, config], names=own, framework="trl@0.26.2")
    assert bounded.framework is not None
    assert bounded.framework.version == "0.26.2"
    with pytest.raises(BadRequest, match="extends trl"):
        read([log, config], names=own, framework="verl")
    plain = read([log], names=written(tmp_path, table, toml)[1])
    assert any(warn.code == "names_base" and 'extends = "trl"' in warn.says for warn in plain.warnings)


def test_a_tracker_s_prefix_does_not_hide_an_own_key(tmp_path: Path) -> None:
    table = [{"step": k, "train/my/reward": 0.1 * k, "eval/my/reward": 5.0, "train/loss": 0.1} for k in range(20)]
    log, own, _ = written(tmp_path, table, '[metrics]\n"my/reward" = "reward.mean"\n')
    run = read([log], names=own)
    assert run.columns["reward.mean"].key == "train/my/reward"
    assert float(run.columns["reward.mean"].values.max()) < 2


def test_keys_that_say_nothing_are_read_with_names_only(tmp_path: Path) -> None:
    table = [{"it": k, "R": 0.01 * k, "H": 1.0 - 0.001 * k} for k in range(60)]
    log, own, _ = written(tmp_path, table, 'step = "it"\n[metrics]\nR = "reward.mean"\nH = "entropy.mean"\n')
    with pytest.raises(CannotRead, match="names suggest"):
        read([log])
    run = read([log], names=own)
    assert run.columns["reward.mean"].steps[-1] == 59
    with pytest.raises(CannotRead):  # and nothing stays behind
        read([log])
    as_csv = tmp_path / "log.csv"
    as_csv.write_text("it,R,H\n" + "".join(f"{row['it']},{row['R']},{row['H']}\n" for row in table))
    assert len(read([as_csv], names=own).columns["entropy.mean"]) == 60


def test_the_step_may_be_any_counter_of_the_log(tmp_path: Path) -> None:
    table = [{"step": 7 * k, "outer": k + 1 if k < 30 else k - 9, "reward": 0.1 + k / 100} for k in range(50)]
    log, own, _ = written(tmp_path, table, 'step = "outer"\n')
    run = read([log], names=own)
    assert list(run.columns["reward.mean"].steps) == list(range(1, 41))
    assert run.seams  # the counter went back: a restart
    back = written(tmp_path, table, 'step = "step"\n')[1]
    assert read([log], names=back).columns["reward.mean"].steps[-1] == 7 * 49
    prefixed = [{f"train/{key}": value for key, value in row.items() if key != "step"} for row in table]
    log.write_text("\n".join(json.dumps(row) for row in prefixed))
    own.write_text('step = "outer"\n')
    assert list(read([log], names=own).columns["reward.mean"].steps) == list(range(1, 41))
    with pytest.raises(BadRequest, match="outr"):
        read([log], names=written(tmp_path, table, 'step = "outr"\n')[1])


def test_rows_without_the_counter_belong_to_the_step_before(tmp_path: Path) -> None:
    table: list[dict[str, Any]] = []
    for k in range(20):
        table += [{"my/step": k, "_step": 2 * k, "reward": 0.1 * k}, {"_step": 2 * k + 1, "entropy": 1.0 + k}]
    log, own, _ = written(tmp_path, table, 'step = "my/step"\n')
    run = read([log], names=own)
    assert list(run.columns["entropy.mean"].steps) == list(range(20))
    assert list(run.columns["entropy.mean"].values) == [1.0 + k for k in range(20)]


def test_names_that_meet_nothing_are_said(tmp_path: Path) -> None:
    log, own, _ = written(tmp_path, rows(), MINE + '"x" = "top_p"\n' + "", "a: 1\n")
    own.write_text(MINE.replace('"gnorm"', '"gnrom"'))
    said = [warn.says for warn in read([log], names=own).warnings if warn.code == "names_unused"]
    assert len(said) == 1
    assert said[0].endswith("gnrom")


def test_two_reads_at_once_share_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"step": k, "a": 0.1 * k, "b": 1.0, "reward_x": 2.0}) for k in range(40)))
    found: dict[int, str] = {}

    def one(number: int) -> None:
        key = "a" if number % 2 else "b"
        own = tmp_path / f"{number}.toml"
        own.write_text(f'title = "t{number}"\n[metrics]\n{key} = "reward.mean"\n')
        run = read([log], names=own)
        assert run.framework is not None
        found[number] = f"{run.framework.title} {run.columns['reward.mean'].key}"

    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: f"t{n} {'a' if n % 2 else 'b'}" for n in range(8)}
    assert read([log]).framework is None
    assert names.translate("a", None, {}) is None


@pytest.mark.parametrize(
    ("toml", "kind", "words_of_it"),
    [
        ('[metrics]\n"a" = "reward.men"\n', UnknownName, "reward.mean"),
        ('[metrics]\n"a" = "entropy"\n', UnknownName, "entropy.mean"),
        ('[metrics]\n"a" = 3\n', BadTable, '"a" = 3'),
        ('[metrics]\n"a" = ""\n', UnknownName, "rlclinic metrics"),
        ('[metrics]\n"a" = "reward.mean"\n"b" = "reward.mean"\n', BadTable, "both name reward.mean"),
        ('[metrics]\n"a" = { metric = "kl.ref", scale = 0 }\n', BadTable, "other than 0"),
        ('[metrics]\n"a" = { metric = "kl.ref", scael = 2 }\n', BadTable, "scale"),
        ('[metrics]\n"a" = { metric = "kl.ref", scale = nan }\n', BadTable, "scale"),
        ('[metrics]\n"a" = { metric = "kl.ref", component = "x" }\n', BadTable, "component only"),
        ('[metrics]\n"a.b" = "kl.ref"\na.b = "kl.ref"\n', BadTable, "each key once"),
        ('[settings]\n"lr" = "learning_rat"\n', UnknownName, "learning_rate"),
        ('[settings]\n"a" = "learning_rate"\n"b" = "learning_rate"\n', BadTable, "both name learning_rate"),
        ('[settings]\n"m" = { setting = "model", scale = 2 }\n', BadTable, "scale only beside a number"),
        ('extends = "trll"\n[metrics]\n', UnknownName, "trl"),
        ("extends = 3\n", BadTable, "text in quotes"),
        ('"my/reward" = "reward.mean"\n', BadTable, "[metrics]"),
        ('[metric]\n"a" = "reward.mean"\n', BadTable, "metrics"),
        ("metrics = 3\n", BadTable, "as a table"),
        ("[metrics]\nmy/reward = 'x'\n", BadTable, "line 2"),
        ('[metrics]\n"a" = "reward.mean"\n"a" = "kl.ref"\n', BadTable, "my.toml"),
        ("", BadTable, "nothing is named"),
        ("title = 'x'\n", BadTable, "names suggest"),
        ('[metrics]\n# "a" = "kl.ref"\n[settings]\n', BadTable, "holds no live line"),
        ('[metrics]\n"a" = "length.truncated"\n', UnknownName, "valid  length."),
        (f'[metrics]\n"{"k" * 300}" = "reward.mean"\n', BadTable, "characters"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(
    tmp_path: Path, toml: str, kind: type[RlclinicError], words_of_it: str
) -> None:
    path = tmp_path / "my.toml"
    path.write_text(toml)
    with pytest.raises(kind) as told:
        read_names(path)
    assert words_of_it in str(told.value)


TOML = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from(["reward.mean", "kl_coef", "trl"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "a.b", "{name}", "metric", "setting", "scale", "note", "", "é"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(["extends", "title", "step", "metrics", "settings", "x"]), TOML))
def test_any_table_is_a_file_of_names_or_an_error_in_words(table: dict[str, Any]) -> None:
    try:
        own = names_from(table, "my.toml")
    except RlclinicError:
        return
    framework = own.over(names.detect([], given=own.base(None)) or pytest.fail("no framework"))
    for row in own.metrics:
        assert names.is_own(row.key or row.pattern.replace("{name}", "x"), framework)
    for row in own.settings:
        spelled = names.spell(row.name, framework)
        assert spelled is not None
        assert spelled.key == row.key


def test_unreadable_files_of_names(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match="names suggest"):
        read_names(tmp_path / "no.toml")
    with pytest.raises(CannotRead):
        read_names(tmp_path)
    (tmp_path / "bin.toml").write_bytes(b"\xff\xfe\x00[metrics]")
    with pytest.raises(BadTable):
        read_names(tmp_path / "bin.toml")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000)
    with pytest.raises(BadTable):
        read_names(tmp_path / "deep.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(CannotRead):
        read_names(tmp_path / "big.toml")


# ---------------------------------------------------------------- the draft


def test_the_draft_names_what_is_unknown_and_asserts_nothing_uncertain(tmp_path: Path) -> None:
    table = [row | {"grad_norm": 1.0, "advStd": 0.5 + row["rw/acc"]} for row in rows()]
    log, _, config = written(tmp_path, table)
    text = suggest([log], config=[config])
    told = names_from(tomllib.loads(text), "draft")
    assert [(row.key, row.name) for row in told.metrics] == [("advStd", "advantage.std")]  # the very words of it
    assert '# "my/reward" = "reward.mean"' in text
    assert '# "my.kl" = "kl.ref"' in text
    assert '# "ent_bits" = "entropy.mean"' in text
    assert '# "bench/gsm8k" = "eval.score"' in text
    assert '# step = "my/step"' in text
    assert '# "wall" = ""' in text
    assert "only rises" in text
    assert '"grad_norm"' not in text  # known already
    assert "gradient norm" not in next(line for line in text.splitlines() if "still missing" in line)
    assert "share of cut answers" in next(line for line in text.splitlines() if "still missing" in line)
    assert '"my.group"' in text
    assert all(line.startswith("#") for line in text.partition("\n[settings]\n")[2].splitlines() if line)


def test_the_draft_of_a_known_trainer_extends_it(tmp_path: Path) -> None:
    table = [
        {"step": k, "reward": 0.1, "reward_std": 0.1, "frac_reward_zero_std": 0.1, "completions/mean_length": 9.0}
        | {"abstention": 12.0 + k, "kl_percent_of_bound": 40.0}
        for k in range(30)
    ]
    log, own, _ = written(tmp_path, table)
    text = suggest([log])
    assert 'extends = "trl"' in text
    assert '"reward" =' not in text
    own.write_text(text)
    assert read([log], names=own).columns["reward.mean"].key == "reward"


def test_uncommented_guesses_are_a_valid_file(tmp_path: Path) -> None:
    log, own, config = written(tmp_path, rows())
    lines = suggest([log], config=[config]).splitlines()
    live = [
        line.removeprefix("# ")
        if (line.startswith('# "') and ' = ""' not in line) or line.startswith("# step")
        else line
        for line in lines
    ]
    own.write_text("\n".join(live))
    run = read([log, config], names=own)
    assert {"reward.mean", "kl.ref", "entropy.mean", "grad.norm", "eval.score"} <= set(run.columns)
    assert run.columns["reward.mean"].steps[0] == 10


KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30) | st.sampled_from(
    ["my/reward", "ent", 'quo"te', "back\\slash", "tab\tkey", "new\nline", "a = b # c", "{name}", "é/日本", "x" * 250]
)
VALUES = st.floats() | st.integers(-(10**20), 10**20)


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(KEYS, st.lists(VALUES, min_size=4, max_size=4), min_size=1, max_size=6))
def test_every_draft_is_a_file_that_is_accepted(
    tmp_path_factory: pytest.TempPathFactory, columns: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("draft")
    log, own = folder / "log.jsonl", folder / "my.toml"
    log.write_text(
        "\n".join(json.dumps({"step": k, "reward": 0.1, **{c: v[k] for c, v in columns.items()}}) for k in range(4))
    )
    try:
        text = suggest([log])
    except RlclinicError:
        return
    own.write_text(text, encoding="utf-8")
    if not any(line and not line.startswith(("#", "[", "title")) for line in text.splitlines()):
        with pytest.raises(BadTable, match="holds no live line"):  # every line is a guess
            read_names(own)
        return
    run = read([log], names=own)
    before = read([log])
    assert set(before.columns) <= set(run.columns)


def test_a_reward_with_a_word_of_its_own_may_be_a_part(tmp_path: Path) -> None:
    table = [{"step": k, "reward": 0.01 * k, "fmtx_reward": 0.5 + 0.001 * k, "zeta": 1.0} for k in range(30)]
    log, _, _ = written(tmp_path, table)
    assert '# "fmtx_reward" = "reward.component.mean"' in suggest([log])


def test_percent_is_seen_by_the_values(tmp_path: Path) -> None:
    table = [{"step": k, "reward": 0.1, "my/truncatedFrac": 20.0 + k} for k in range(30)]
    log, _, _ = written(tmp_path, table)
    assert '# "my/truncatedFrac" = { metric = "length.truncated_frac", scale = 0.01 }' in suggest([log])


def test_words_are_those_of_one_spelling() -> None:
    assert words("train/avgRewardStd") == words("reward_std_mean") == {"mean", "reward", "std"}
    assert words("metrics/learning-rate") == {"lr"}


# ---------------------------------------------------------------- the command line


def test_the_command_line_takes_names(tmp_path: Path) -> None:
    log, own, config = written(tmp_path, rows())
    run = CliRunner().invoke
    told = run(cli, ["diagnose", str(log), str(config), "--names", str(own)])
    assert told.exit_code == 0
    assert "maze loop" in told.output
    told = run(cli, ["prescribe", str(log), str(config), "--names", str(own), "--all"])
    assert "opt.step_size=5e-06" in told.output
    draft = tmp_path / "draft.toml"
    told = run(cli, ["names", "suggest", str(log), "-o", str(draft)])
    assert told.exit_code == 0
    read_names(draft)
    again = run(cli, ["names", "suggest", str(log), "-o", str(draft)])
    assert isinstance(again.exception, BadRequest)
    clash = run(cli, ["diagnose", str(log), "--names", str(own), "-o", str(own), "--force"])
    assert isinstance(clash.exception, BadRequest)
    assert own.read_text() == MINE
    wrong = run(cli, ["diagnose", str(log), "--names", str(config)])
    assert isinstance(wrong.exception, BadTable)


def test_numbers_of_the_draft_are_those_of_the_log(tmp_path: Path) -> None:
    table = [{"step": k, "reward": 0.5, "odd": math.nan if k == 3 else float(k)} for k in range(30)]
    log, _, _ = written(tmp_path, table)
    line = next(line for line in suggest([log]).splitlines() if '"odd"' in line)
    assert "0 .. 29, 29 values, 1 not finite" in line


def test_usual_abbreviations_are_guessed_and_never_asserted(tmp_path: Path) -> None:
    table = [
        {
            "it": k,
            "roll/mean_return": 0.5 + 0.01 * math.sin(k),
            "pi/H": 0.4 - 0.001 * k,
            "opt/gnorm": 1.5 + 0.1 * math.sin(k),
            "opt/eta": 1e-6 * k if k < 20 else 1e-3,
            "gen/avg_toks": 100.0 + math.sin(k),
            "gen/cut_frac": 0.1,
            "roll/dead_groups": 0.25,
            "score/acc": 0.5,
            "score/fmt": 0.9,
        }
        for k in range(1, 60)
    ]
    text = suggest([written(tmp_path, table)[0]])
    for key, metric in {
        "pi/H": "entropy.mean",
        "opt/gnorm": "grad.norm",
        "opt/eta": "optim.lr",
        "gen/avg_toks": "length.response.mean",
        "gen/cut_frac": "length.truncated_frac",
        "roll/dead_groups": "group.zero_var_frac",
        "score/acc": "reward.component.mean",
    }.items():
        assert f'# "{key}" = "{metric}"' in text
    assert "reward.mean" in next(line for line in text.splitlines() if "roll/mean_return" in line)
    assert '# step = "it"' in text
    assert '# "it"' not in text
    assert "a clock or a sum" not in text


def test_a_log_of_unknown_keys_leads_to_the_draft(tmp_path: Path) -> None:
    log, _, _ = written(tmp_path, [{"aa/loss_q": 0.1 * k, "bb/kl_q": 2.0} for k in range(30)])
    told = CliRunner().invoke(cli, ["diagnose", str(log)])
    assert "rlclinic names suggest" in told.output
    assert "listed under what to log" not in told.output


def test_keys_of_trainers_that_are_no_own_names(tmp_path: Path) -> None:
    table = [
        {"step": k, "loss": 0.1, "reward": 0.5, "reward_std": 0.1, "frac_reward_zero_std": 0.2, "kl": 0.01,
         "completions/mean_length": 90.0, "profiling/Time taken: GRPOTrainer._calculate_rewards": 0.2}
        for k in range(1, 30)
    ]  # fmt: skip
    log, _, _ = written(tmp_path, table)
    told = read([log])
    assert told.framework is not None
    assert told.framework.name == "trl"
    assert not [unknown.key for unknown in told.unrecognised if "profiling" in unknown.key]
    table = [
        {
            "current_steps": k,
            "total_steps": 30,
            "loss": 0.6,
            "accuracy": 0.7,
            "lr": 1e-6,
            "epoch": 0.1,
            "percentage": 1.0,
        }
        for k in range(1, 30)
    ]
    log, _, _ = written(tmp_path, table)
    assert read([log]).kind == "supervised"
