"""A patch changes the one setting or nothing: whatever the configuration looks like, it is read again before it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from rlclinic import assess
from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest
from rlclinic.prescribe import configurations, patch
from rlclinic.readers import read
from rlclinic.simulate import scenario, write


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    place.write_text(write(scenario("lr_too_high", steps=200), "trl"), encoding="utf-8")
    return place


def patched(log: Path, config: Path) -> str:
    run = read([log], config=[config] if config.suffix != ".sh" else [])
    return patch(diagnose(run), "patch", configs=configurations([], [config]))


def applied(before: str, diff: str) -> str:
    """The text after a unified diff with whole-line changes."""
    gone = [line[1:] for line in diff.splitlines() if line.startswith("-") and not line.startswith("---")]
    come = [line[1:] for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    lines = before.splitlines()
    for old, new in zip(gone, come, strict=False):
        lines[lines.index(old)] = new
    return "\n".join(lines) + "\n"


def test_a_plain_line_is_changed_and_stays_a_number(log: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("learning_rate: 1.0e-04\nnum_generations: 8\nwarmup_steps: 0\n")
    after = yaml.safe_load(applied(config.read_text(), patched(log, config)))
    assert isinstance(after["learning_rate"], float)
    assert after["learning_rate"] < 1e-4
    assert after["num_generations"] == 8


@pytest.mark.parametrize(
    "text",
    [
        "x: |\n  learning_rate: 3\nlearning_rate: 1.0e-04\n",
        "sft:\n  learning_rate: 2.0e-05\ngrpo:\n  learning_rate: 1.0e-04\n",
        "optim: {learning_rate: 0.0001, warmup_steps: 5}\n",
        "learning_rate:\n  value: 0.0001\n",
        "learning_rate: 0.0001",
        "learning_rate: 0.0001\r\nwarmup_steps: 5\r\n",
        "\ufefflearning_rate: 0.0001\n",
    ],
    ids=["block text", "two sections", "flow map", "tracker's form", "no last newline", "CRLF", "byte-order mark"],
)
def test_what_cannot_be_edited_safely_is_left_as_it_is(text: str, log: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_bytes(text.encode())
    diff = patched(log, config)
    removed = [line for line in diff.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert not [line for line in removed if line[1:] in text and "learning_rate" in line]


def test_brackets_of_json_stay(log: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"learning_rate": 0.0001,\n "warmup_steps": 5}\n')
    diff = patched(log, config)
    if "+++ b/" in diff:
        json.loads(applied(config.read_text(), diff))


def test_logs_and_comments_are_no_configuration(log: Path, tmp_path: Path) -> None:
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": [{"learning_rate": 0.0001, "step": 1}]}))
    (tmp_path / "analyse.py").write_text("def f(learning_rate=2): pass\n")
    assert configurations([tmp_path, state]) == []
    script = tmp_path / "run.sh"
    script.write_text("# old try: --learning_rate 0.003\ntrl grpo --learning_rate 0.0001\n")
    assert "-# old try" not in patched(log, script)


def test_what_is_printed_holds_no_control_character(log: Path, tmp_path: Path) -> None:
    name = tmp_path / "x\x1b[31m;rm.jsonl"
    name.write_bytes(log.read_bytes())
    for form in ("args", "yaml", "patch"):
        assert "\x1b" not in patch(diagnose(read([name])), form)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [".nan", ".inf", "1" * 401])
def test_a_setting_that_is_no_number_is_no_setting(value: str, log: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"num_generations: {value}\nlearning_rate: {value}\n")
    told = patch(diagnose(read([log], config=[config])), "args")
    assert "nan" not in told
    assert "inf " not in told


def test_an_input_in_a_directory_is_never_replaced(log: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(log.read_bytes())
    config = tmp_path / "config.yaml"
    config.write_text("learning_rate: 1.0e-04\n")
    for command in ("diagnose", "prescribe"):
        answer = CliRunner().invoke(cli, [command, str(tmp_path), "-o", str(config), "--force"])
        assert answer.exit_code != 0
        assert config.read_text() == "learning_rate: 1.0e-04\n"


@pytest.mark.parametrize(
    "options", [("--gpus", "nan"), ("--gpus", "inf"), ("--gpu-hour-price", "nan"), ("--checkpoint", "nan")]
)
def test_numbers_that_are_none_are_refused(options: tuple[str, str], log: Path) -> None:
    answer = CliRunner().invoke(cli, ["diagnose", str(log), *options])
    assert answer.exit_code == 2


@pytest.mark.parametrize(
    "wrong", [{"knobs": [1]}, {"history": 3}, {"history": {"reward": 1}}, {"framework": 3}, {"limits": {"kl_drift": 3}}]
)
def test_assess_says_what_it_wants(wrong: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        assess({"reward.mean": 0.5}, **wrong)  # type: ignore[arg-type]


def test_parts_of_a_run_may_come_in_any_order(tmp_path: Path, log: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    parts = []
    for number, start in enumerate(range(0, len(lines), 70), 1):
        part = tmp_path / f"part{number}.jsonl"
        part.write_text("".join(lines[start : start + 70]))
        parts.append(part)
    assert len(parts) >= 3
    turned = [parts[0], parts[2], parts[1], *parts[3:]]
    assert len(read(turned)["reward.mean"]) == len(read([log])["reward.mean"])
