"""The console and native text forms of each trainer, drawn as its source draws them: values, steps, plans, endings."""

# ruff: noqa: E501
from __future__ import annotations

import contextlib
import io
import json
import math
import pprint
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from rlclinic import names
from rlclinic.errors import CannotRead
from rlclinic.readers.log import Log, read_log
from rlclinic.readers.rows import Rows
from rlclinic.readers.text.gather import Gathered, Piece, updates_per_round

NAN = float("nan")


def read(text: str) -> Log:
    return read_log(None, text.encode())


def values(log: Log, key: str) -> list[float]:
    return [float(v) for v in log.series[key].values]


def codes(log: Log) -> list[str]:
    return [warn.code for warn in log.warnings]


def lines(*records: Mapping[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def framework(log: Log) -> str | None:
    found = names.detect(list(log.series), text_versions=log.versions, complete=log.complete)
    return None if found is None else found.name


# What the trainers print


def grid(stats: Mapping[str, float], columns: int = 4) -> str:
    """A table as tabulate's fancy_grid draws it: ``columns`` pairs a row, down the columns first."""
    items = [(key, f"{value:.4e}") for key, value in stats.items()]
    height = -(-len(items) // columns)
    cells = [
        [
            part
            for at in range(columns)
            for part in (items[row + at * height] if row + at * height < len(items) else ("", ""))
        ]
        for row in range(height)
    ]
    widths = [max(len(row[at]) for row in cells) + 2 for at in range(2 * columns)]

    def rule(left: str, line: str, cross: str, right: str) -> str:
        return left + cross.join(line * width for width in widths) + right

    body = f"\n{rule('├', '─', '┼', '┤')}\n".join(
        "│" + "│".join(f" {cell:<{width - 1}}" for cell, width in zip(row, widths, strict=True)) + "│" for row in cells
    )
    return f"{rule('╒', '═', '╤', '╕')}\n{body}\n{rule('╘', '═', '╧', '╛')}"


def areal(step: int, total: int, *parts: Mapping[str, float]) -> str:
    stamp = "20260101-10:00:00.123 StatsLogger INFO:"
    text = f"\x1b[32m{stamp} Epoch 1/2 Step {step}/{total // 2} Train step {step}/{total} done.\x1b[0m\n"
    for place, part in enumerate(parts):
        text += f"{stamp} Stats ({place + 1}/{len(parts)}):\n{stamp} \n{grid(part)}\n\x1b[0m\n"
    return text


def drawn(thing: object, width: int = 80, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def open_instruct(metrics: Mapping[str, float], width: int = 80, colour: bool = False) -> str:
    table = Table(show_header=False, box=None)
    table.add_column("Category", style="cyan")
    table.add_column("Values", style="magenta")
    groups: dict[str, list[str]] = {}
    for key, value in metrics.items():
        group, _, name = key.rpartition("/") if key.count("/") < 2 else key.partition("/")
        shown = f"{value}" if isinstance(value, int) else f"{value:.2e}" if abs(value) < 1e-5 else f"{value:.2f}"
        groups.setdefault(group or "other", []).append(f"{name}: {shown}")
    for group in sorted(groups):
        table.add_row(group, " | ".join(groups[group]))
    return drawn(Panel(table, title="Metrics", expand=False, border_style="bold green"), width, colour)


def tinker(step: int, metrics: Mapping[str, float], width: int = 80) -> str:
    table = Table(show_header=True, header_style="bold magenta", title=f"Step {step}")
    table.add_column("Metric", style="cyan", width=min(max(max(map(len, metrics)), 20), 60))
    table.add_column("Value", style="green")
    for key, value in sorted(metrics.items()):
        table.add_row(key, f"{value:.6f}" if isinstance(value, float) else str(value))
    return f"tinker_cookbook.utils.ml_log:190 [INFO] \n{drawn(table, width)}\n"


def nemo(step: int, total: int, metrics: Mapping[str, float], accuracy: float | None = None) -> str:
    text = f"\n{'=' * 25} Step {step}/{total} {'=' * 25}\n▶ Preparing batch...\n▶ Training policy...\n"
    if accuracy is not None:
        text += (
            f"▶ Starting validation at step {step}...\n\n📊 Validation Results:\n    • Accuracy: {accuracy:.4f}\n"
            "    • Average response length: 512.5 tokens\n    • Samples processed: 256\n\n  ⏱️  Validation Timing:\n"
            "    • Total validation time: 12.34s\n"
        )
    bullets = "".join(f"  • {label}: {value:.4f}\n" for label, value in metrics.items())
    return (
        f"{text}\n📊 Training Results:\n{bullets}\n⏱️  Timing:\n  • Total step time: 35.70s\n"
        "  • policy_training: 10.97s (30.7%)\n\n🔍 Performance Metrics:\n  • Mean Total Tokens per Sample: 204.01\n"
    )


def skyrl(step: int, metrics: Mapping[str, float], prefix: str = "") -> str:
    shown = {key: f"{value:.4f}" if isinstance(value, float) else value for key, value in metrics.items()}
    body = f"2026-01-01 10:00:00.123 | INFO     | skyrl.train.utils.tracking:log:190 - Step {step}: \n{pprint.pformat(shown)}"
    return "".join(f"{prefix}{line}\n" for line in body.split("\n"))


NUMBERS = st.one_of(
    st.floats(min_value=-1e6, max_value=1e6, allow_nan=False), st.just(0.0), st.just(NAN), st.just(math.inf)
)
KEYS = st.from_regex(r"[a-z]{3,8}/[a-z_]{3,12}(/[a-z]{3,5})?", fullmatch=True)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(KEYS, min_size=2, max_size=14, unique=True),
    st.data(),
    st.sampled_from([0, 80, 100]),
    st.sampled_from(["", "(StatsWorker pid=12, ip=10.0.0.1) "]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_areal_tables_give_their_numbers_at_any_width(
    keys: list[str], data: st.DataObject, width: int, prefix: str, end: str
) -> None:
    rows = [{"loss/x": 0.5, **{key: data.draw(NUMBERS) for key in keys}} for _ in range(3)]
    text = "".join(areal(step + 1, 100, row) for step, row in enumerate(rows))
    if width:
        text = "\n".join(
            line[at : at + width] for line in text.split("\n") for at in range(0, max(len(line), 1), width)
        )
    log = read(end.join(prefix + line for line in text.split("\n")))
    assert log.steps.tolist() == [1, 2, 3]
    assert (log.planned_steps, log.nonfinite) == (100, "kept")
    for key in keys:
        wanted = [float(f"{row[key]:.4e}") for row in rows]
        assert np.array_equal(values(log, key), wanted, equal_nan=True), key


def test_areal_with_several_parts_a_step() -> None:
    first = {"ppo_actor/task_reward/avg": 0.5, "ppo_actor/actor_loss/avg": 0.25}
    log = read("".join(areal(step, 10, first, {"ppo_actor/actor_loss/avg": 0.125}) for step in (1, 2)))
    assert log.steps.tolist() == [1, 2]
    assert values(log, "ppo_actor/task_reward/avg") == [0.5, 0.5]
    assert values(log, "ppo_actor/actor_loss/avg") == [0.125, 0.125]
    assert "duplicated_steps" in codes(log)


def test_areal_as_it_was() -> None:
    table = grid({"task_reward/avg": 0.5, "actor_loss": 0.25}, 2)
    text = "".join(
        f"The next step is epoch 1/5 step {n}/20 (global step {n}). Should save? False.\nRPC returns:\n{table}\n"
        f"Epoch 1/5 step {n}/20 (global step {n}) finishes. #End to end# execution time: *3.210*s.\n"
        for n in (1, 2, 3)
    )
    log = read(text)
    assert log.steps.tolist() == [1, 2, 3]
    assert log.planned_steps == 100


def test_half_a_table_gives_the_whole_rows_of_it() -> None:
    text = areal(1, 10, {"a/loss": 1.5, "b/kl": 2.5, "c/reward": 3.5, "d/entropy": 4.5, "e/score": 5.5})
    whole = read(text)
    for end in range(len(text)):
        with contextlib.suppress(CannotRead):
            part = read(text[:end])
            for key, one in part.series.items():
                assert values(whole, key) == [float(v) for v in one.values], (end, key)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([80, 120, 200]), st.booleans(), st.lists(NUMBERS, min_size=6, max_size=6))
def test_open_instruct_frame(width: int, colour: bool, numbers: list[float]) -> None:
    keys = (
        "objective/kl_avg",
        "objective/scores",
        "val/stop_rate",
        "policy/entropy_avg",
        "val/verifiable/correct",
        "epoch",
    )
    rows = [
        {"episode": 64 * s, "training_step": s, "lr": 1e-6, **dict(zip(keys, numbers, strict=True))} for s in (1, 2, 3)
    ]
    log = read("".join(f"2026-01-01 - INFO - saved\n{open_instruct(row, width, colour)}" for row in rows))
    assert log.steps.tolist() == [1, 2, 3]
    assert values(log, "lr") == [1e-6] * 3
    assert values(log, "episode") == [64, 128, 192]
    for key, number in zip(keys, numbers, strict=True):
        wanted = float(f"{number:.2e}" if abs(number) < 1e-5 else f"{number:.2f}")
        assert np.array_equal(values(log, key), [wanted] * 3, equal_nan=True), key
    assert log.series["objective/scores"].decimals in (2, None)


def test_a_tiny_value_does_not_make_the_others_finer() -> None:
    rows = [{"training_step": s, "objective/kl": (0.001, 1e-7, 0.5)[s], "loss/policy": 0.5} for s in range(3)]
    log = read("".join(open_instruct(row) for row in rows))
    assert values(log, "objective/kl") == [0.0, 1e-7, 0.5]
    assert log.series["objective/kl"].decimals == 2


def test_tinker_tables() -> None:
    long = "env/all/by_group/" + "x" * 60
    rows = [
        {"env/all/reward/total": 0.5 + s / 100, "optim/lr": 1e-5, "progress/batch": s, "env/all/x": NAN, long: 0.25}
        for s in range(4)
    ]
    log = read("".join(tinker(s, row) for s, row in enumerate(rows)))
    assert log.steps.tolist() == [0, 1, 2, 3]
    assert values(log, "env/all/reward/total") == [0.5, 0.51, 0.52, 0.53]
    assert np.isnan(values(log, "env/all/x")).all()
    assert not any("…" in key for key in log.series)
    assert log.nonfinite == "kept"


def test_tables_of_completions_are_no_metrics() -> None:
    text = ""
    for step in (1, 2, 3):
        table = Table(show_header=True, expand=True)
        for head in ("Prompt", "Completion", "accuracy_reward", "Advantage"):
            table.add_column(head)
        table.add_row("Step 9 | 3s | Loss 0.5 | Entropy 3", "{'loss': 4, 'reward': 5, 'kl': 1}", "1.00", "0.50")
        text += drawn(Panel(table, expand=False, title=f"Step {step}"), 100)
        text += f"{{'loss': 0.25, 'reward': 0.{step}, 'epoch': 0.{step}}}\n"
    log = read(text)
    assert set(log.series) == {"loss", "reward", "epoch"}
    assert log.rows == 3


NEMO = {"Loss": 0.0123, "Generation KL Error": 0.0012, "Avg Reward": 0.25, "Mean Generation Length": 345.6789}


def test_nemo_rl_blocks() -> None:
    text = "".join(
        nemo(s, 5, {**NEMO, "Loss": NAN if s == 3 else 0.01 * s}, 0.1 * s if s % 2 == 0 else None) for s in range(1, 6)
    )
    log = read(text)
    assert log.steps.tolist() == [1, 2, 3, 4, 5]
    assert np.array_equal(values(log, "loss"), [0.01, 0.02, NAN, 0.04, 0.05], equal_nan=True)
    assert values(log, "reward") == [0.25] * 5
    assert values(log, "timing/train/total_step_time") == [35.7] * 5
    assert values(log, "validation/accuracy") == [0.2, 0.4]
    assert log.series["loss"].decimals == 4
    assert (log.planned_steps, log.nonfinite, log.complete) == (5, "kept", False)
    assert framework(log) == "nemo_rl"
    assert "printed_subset" in codes(log)


def test_nemo_rl_counts_on_through_epochs() -> None:
    text = ""
    for epoch in (1, 2):
        text += f"\n{'=' * 25} Epoch {epoch}/2 {'=' * 25}\n" + "".join(nemo(s, 3, NEMO) for s in (1, 2, 3))
    log = read(text)
    assert log.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert log.planned_steps is None


def test_nemo_rl_with_dynamic_sampling_and_pasted() -> None:
    metrics = {"Loss": 0.1, "Avg Filtered Reward": 0.5, "Avg Total Reward": 0.25}
    log = read(nemo(7, 9, metrics).split("Training policy...")[1])
    assert (values(log, "reward"), values(log, "filtered_reward")) == ([0.25], [0.5])


def test_nemo_rl_beside_its_workers() -> None:
    text = nemo(1, 2, NEMO) + nemo(2, 2, NEMO)
    noisy = text.replace("  • Avg", "(Worker pid=7) • Loss: 9.0000\n(Worker pid=7) INFO {'loss': 3\n  • Avg")
    assert values(read(noisy), "reward") == [0.25, 0.25]


SKYRL = {
    "policy/policy_loss": 0.0123,
    "policy/policy_entropy": 0.4,
    "policy/policy_lr": 1e-6,
    "reward/avg_raw_reward": 0.25,
    "generate/avg_num_tokens": 345.5,
    "trainer/global_step": 3,
}


@pytest.mark.parametrize("prefix", ["", "(skyrl_entrypoint pid=4321) ", "\x1b[36m(skyrl_entrypoint pid=4321)\x1b[0m "])
def test_skyrl_dictionaries(prefix: str) -> None:
    text = "".join(skyrl(s, {**SKYRL, "trainer/global_step": s, "policy/policy_kl": NAN}, prefix) for s in (1, 2, 3))
    log = read(text)
    assert log.steps.tolist() == [1, 2, 3]
    assert values(log, "policy/policy_loss") == [0.0123] * 3
    assert np.isnan(values(log, "policy/policy_kl")).all()
    assert (log.series["policy/policy_lr"].decimals, log.nonfinite) == (4, "kept")
    assert framework(log) == "skyrl"


def test_lines_of_other_processes_inside_a_dictionary() -> None:
    mine = skyrl(1, SKYRL, "(skyrl_entrypoint pid=1) ").splitlines()
    other = ["(raylet) warning: spilling", "(FSDPWorker pid=99) loading {'shard': 3}", "\x1b[33m(raylet)\x1b[0m {"]
    text = "\n".join(line for pair in zip(mine, other * 3, strict=False) for line in pair) + "\n" + mine[-1] + "\n"
    log = read(text)
    assert log.rows == 1
    assert set(log.series) >= set(SKYRL) - {"trainer/global_step"}


def slime(rounds: int, updates: int) -> str:
    text = "".join(f"  {name} {'.' * 30} {value}\n" for name, value in (("num_rollout", 40), ("kl_loss_coef", 0.01)))
    for r in range(rounds):
        text += f"[2026-01-01 10:00:00] rollout.py:269 - perf {r}: {{'rollout/response_len/mean': {300 + r}.5, 'perf/rollout_time': 12.5}}\n"
        text += f"[2026-01-01 10:00:00] data.py:100 - rollout {r}: {{'rollout/raw_reward': 0.{r}5, 'rollout/log_probs': -0.5}}\n"
        for u in range(updates):
            s = r * updates + u
            text += f"(Actor pid=7) [2026-01-01 10:00:00] model.py:1 - step {s}: {{'train/loss': {s}.5, 'train/grad_norm': nan, 'train/step': {s}}}\n"
        text += f"[2026-01-01 10:00:00] x.py:9 - perf {r}: {{'perf/train_time': 3.5}}\n"
        if r % 2:
            text += f"[2026-01-01 10:00:00] rollout.py:9 - eval {r}: {{'eval/aime': 0.{r}, 'eval/aime-truncated_ratio': 0.5}}\n"
    return text


@pytest.mark.parametrize("updates", [1, 2, 4])
def test_slime_has_one_axis(updates: int) -> None:
    log = read(slime(5, updates))
    assert log.steps.tolist() == list(range(5 * updates))
    assert values(log, "train/loss") == [s + 0.5 for s in range(5 * updates)]
    at = log.steps[log.series["rollout/raw_reward"].rows]
    assert at.tolist() == [r * updates for r in range(5)]
    assert log.steps[log.series["eval/aime"].rows].tolist() == [updates, 3 * updates]
    assert log.config["num_rollout"] == 40
    assert log.nonfinite == "kept"


@given(st.integers(1, 8), st.integers(0, 50), st.integers(1, 6))
def test_updates_per_round(updates: int, first: int, rounds: int) -> None:
    pieces = [
        Piece(counter, number, {})
        for r in range(first, first + rounds)
        for counter, number in [("rollout", float(r)), *(("step", float(r * updates + u)) for u in range(updates))]
    ]
    assert updates_per_round(pieces) == updates


def test_roll_and_openrlhf_lines() -> None:
    roll = read(
        "".join(
            f"[2026-01-01 10:00:00] [tracking.py (93)] [INFO] metrics_tag: {json.dumps({'step': s, 'metrics': {'critic/score/mean': 0.5, 'actor/kl': NAN}})}\n"
            for s in range(3)
        )
    )
    assert roll.steps.tolist() == [0, 1, 2]
    assert np.isnan(values(roll, "actor/kl")).all()
    bar = "Train epoch [1/1]:  50%|###   | 1/2 [00:10<00:10, 10.0s/it, act_loss=-0.01, reward=9.5, ret=0.3]"
    text = "".join(
        f"{bar}\r{bar}\n2026-01-01 INFO ✨ Global step {s}: {{'policy_loss': 0.5, 'reward': 0.{s}, 'kl': nan}}\n"
        for s in (1, 2, 3)
    )
    log = read(text)
    assert log.steps.tolist() == [1, 2, 3]
    assert values(log, "reward") == [0.1, 0.2, 0.3]
    assert set(log.series) == {"policy_loss", "reward", "kl"}


def passes(epochs: int) -> str:
    text = ""
    for step in range(4):
        for epoch in range(epochs):
            for batch in range(4):
                head = f"\rTrain epoch [{epoch + 1}/{epochs}]:  50%|####    | {{}}/4 [00:10<00:10,  2.50s/it"
                shown = f", pg={0.1 * batch:.3g}, rm={step}, ret=0.3, glen=100, tlen=200, kl=nan, act_lr=1e-6]"
                text += head.format(batch) + shown + head.format(batch + 1) + shown
        text += "\n"
    return text


@pytest.mark.parametrize("epochs", [1, 2])
def test_progress_bars_count_only_where_nothing_else_does(epochs: int) -> None:
    log = read("start\n" + passes(epochs))
    assert log.step_source == "row order"
    assert values(log, "reward") == [0, 1, 2, 3]
    assert np.allclose(values(log, "policy_loss"), 0.15)
    assert np.isnan(values(log, "kl")).all()
    assert "rounded_values" in codes(log)
    better = read(passes(epochs) + "Global step 1: {'policy_loss': 0.5, 'reward': 0.25}\n" + passes(epochs))
    assert (better.rows, values(better, "reward")) == (1, [0.25])


def test_one_long_progress_bar() -> None:
    text = "".join(
        f"\rTraining:  1%|#   | {n}/500 [00:01<01:00, 1.2it/s, loss=0.{n}, reward=0.5]" for n in (10, 20, 30)
    )
    log = read(text)
    assert (log.steps.tolist(), log.planned_steps) == ([10, 20, 30], 500)
    speed = "\rProcessed prompts: 50%|#  | 4/8 [00:01<00:01, 5.2it/s, est. speed input: 100 toks/s, output: 20 toks/s]"
    with pytest.raises(CannotRead):
        read(speed * 3)


def test_torchforge_blocks() -> None:
    def block(process: str, step: int, loss: float) -> str:
        return (
            f"2026-01-01 10:00:00 - forge - INFO - === [{process}] - METRICS STEP {step} ===\n  reward/mean: 0.{step}\n"
            f"  rl_trainer/loss: {loss}\n  {process}/x: 1.5\n==============================\n\nother: 5\n"
        )

    log = read("".join(block("global_reduce", s, 0.5) + block("Trainer_r1", s, 0.75) for s in (1, 2, 3)))
    assert log.steps.tolist() == [1, 2, 3]
    assert values(log, "rl_trainer/loss") == [0.5] * 3
    assert "other" not in log.series
    assert "several_processes" in codes(log)
    old = read("".join(f"=== [METRICS STEP {s} ===\n  loss: 0.{s}\n=====\n" for s in (1, 2)))
    assert (old.steps.tolist(), values(old, "loss")) == ([1, 2], [0.1, 0.2])


def prime(old: bool, steps: range) -> str:
    text = ""
    for s in steps:
        norm = "nan" if s == 3 else "0.2000"
        if old:
            text += f"10:00:00 SUCCESS Step {s + 1} | Time: 3.21s | Reward: 0.{s}000 | Throughput: 100.1 tokens/s | Seq. Length: 512.3 tokens/sample | Async Level: 1 | Max. Off-Policy Level: 2\n"
            text += f"10:00:00 DEBUG Micro Step 1/8 | Loss: 9.0000 | Entropy: 9.0000\n10:00:00 SUCCESS Step {s} | Time: 3.21s | Loss: 0.0{s}00 | Entropy: 0.4000 | Mismatch KL: 0.0012 | Grad. Norm: {norm} | LR: 1.00e-06 | Throughput: 1234 tokens/s | MFU: 31.2%\n"
        else:
            text += f"10:00:00 SUCCESS Step {s + 1} |  1m 3s | Reward 0.{s}000 | Trainable 120/128 (93.8%) | Turns 1.0 | Max Off-Policy 2 | Error 0.0% | Truncation 12.5% | Timeout 0.0%\n"
            text += f"10:00:00 DEBUG Micro Step 1/8 | Loss 9.0000 | Entropy 9.0000\n\x1b[32m10:00:00 SUCCESS\x1b[0m Step {s} |     34s | Loss 0.0{s}00 | Entropy 0.4000 | Mismatch KL 0.0012 | Grad. Norm {norm} | LR 1.00e-06 | Throughput 1234 tokens/s | MFU 31.2% | Peak Mem. 60.1 GiB\n"
    return text


@pytest.mark.parametrize("old", [False, True])
def test_prime_rl_lines_of_trainer_and_orchestrator(old: bool) -> None:
    log = read(prime(old, range(1, 6)))
    assert log.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert log.seams == {}
    assert np.array_equal(values(log, "optim/grad_norm"), [0.2, 0.2, NAN, 0.2, 0.2], equal_nan=True)
    assert values(log, "perf/mfu") == [31.2] * 5
    assert log.series["loss/mean"].decimals == 4
    assert framework(log) == "prime_rl"
    assert log.nonfinite == "kept"
    reward = values(log, "reward/mean" if old else "train/all/effective/reward/mean")
    assert reward == [0.1, 0.2, 0.3, 0.4, 0.5]
    if not old:
        assert values(log, "train/all/effective/is_truncated/mean") == [0.125] * 5


def test_other_lines_parted_by_bars_keep_their_names() -> None:
    log = read("Step 1 | Loss: 0.5 | Reward: 0.25 | LR: 1e-6\nStep 2 | Loss: 0.5 | Reward: 0.75 | LR: 1e-6\n")
    assert values(log, "Reward") == [0.25, 0.75]


def test_prime_rl_restart_in_one_console() -> None:
    log = read(prime(False, range(1, 8)) + prime(False, range(4, 9)).replace("Loss 0.0", "Loss 0.1"))
    assert len(log.seams) == 1


def test_verl_final_validation_metrics() -> None:
    metrics = {
        "val-core/openai/gsm8k/acc/mean@1": np.float64(0.7513267626990144),
        "val-aux/num_turns/mean": np.float64(2.0),
    }
    out = io.StringIO()
    pprint.pprint(f"Final validation metrics: {metrics}", stream=out)
    prefix = "(TaskRunner pid=7) "
    text = "".join(f"{prefix}step:{s} - actor/entropy:0.5 - critic/score/mean:np.float64(0.{s})\n" for s in (1, 2, 3))
    log = read(text + "".join(f"{prefix}{line}\n" for line in out.getvalue().splitlines()))
    assert log.steps.tolist() == [1, 2, 3, 3]
    assert values(log, "val-core/openai/gsm8k/acc/mean@1") == [0.7513267626990144]
    known = read(
        text.replace("0.3)", "0.3) - val-aux/num_turns/mean:2.0")
        + f"{prefix}\"Final validation metrics: {{'val-aux/num_turns/mean': np.float64(2.0)}}\"\n"
    )
    assert known.rows == 3


def test_printed_arguments_of_open_instruct() -> None:
    text = "[\n│   Args(\n│   │   exp_name='grpo',\n│   │   learning_rate=3e-07,\n│   │   beta=0.01,\n│   │   stop=None\n│   )\n]\n"
    log = read(text + open_instruct({"training_step": 1, "objective/kl": 0.5}))
    assert (log.config["learning_rate"], log.config["beta"], log.config["exp_name"]) == (3e-7, 0.01, "grpo")
    assert log.rows == 1


def test_a_drawn_traceback_ends_the_run() -> None:
    box = drawn(Panel("in train:12\n  loss.backward()", title="Traceback (most recent call last)"), 60)
    log = read(f"{nemo(1, 9, NEMO)}\n{box}OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    assert log.ending.startswith("OutOfMemoryError")


def test_printed_nemo_rl_configuration() -> None:
    config = {"grpo": {"max_num_steps": 40, "num_generations_per_prompt": 16}, "loss_fn": {"ratio_clip_max": 0.2}}
    log = read(f"Final config:\n{pprint.pformat(config)}\n{nemo(1, 40, NEMO)}")
    assert log.config["grpo.num_generations_per_prompt"] == 16


# JSON lines of one's own


def test_prime_rl_metrics_file() -> None:
    records: list[dict[str, object]] = []
    for s in range(1, 8):
        clock = 1.79e9 + s
        records.append({"step": s, "time": clock, "perf/throughput": 100.5})
        records.append({"step": s, "time": clock, "optim/lr": 1e-6} | ({} if s == 4 else {"optim/grad_norm": 0.2}))
        records.append({"step": s, "time": clock, "loss/mean": 0.01 * s, "mismatch_kl/all/mean": 0.001})
        if s > 2:
            records.append({"step": s - 2, "time": clock, "eval/gsm8k/avg@4": 0.1 * s})
    log = read(lines(*records))
    assert log.steps.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert (log.nonfinite, log.seams) == ("dropped", {})
    assert log.series["optim/grad_norm"].rows.tolist() == [0, 1, 2, 4, 5, 6]
    assert log.series["eval/gsm8k/avg@4"].rows.tolist() == [0, 1, 2, 3, 4]
    again = [{"step": s, "time": 1.8e9, "loss/mean": 0.5} for s in (5, 6)]
    resumed = read(lines(*records, *again))
    assert resumed.steps.tolist() == [1, 2, 3, 4, 5, 6, 7, 5, 6]
    assert list(resumed.seams) == [7]


def test_llama_factory_points_to_the_state_beside_it(tmp_path: Path) -> None:
    record = {"total_steps": 100, "loss": 0.5, "reward": 0.1, "lr": 1e-6, "epoch": 0.1, "percentage": 1.0}
    path = tmp_path / "trainer_log.jsonl"
    path.write_text(lines(*({"current_steps": s, **record} for s in (1, 2, 3))))
    log = read_log(path)
    assert (log.steps.tolist(), log.planned_steps) == ([1, 2, 3], 100)
    assert (log.nonfinite, log.complete) == ("filtered", False)
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "checkpoint-3" / "trainer_state.json").write_text("{}")
    assert "checkpoint-3" in next(warn.says for warn in read_log(path).warnings if warn.code == "printed_subset")


def test_swift_closing_history_is_read_only_where_rows_are_missing() -> None:
    history = [{"loss": 0.5, "reward": 0.1 * s, "step": s, "epoch": s / 10} for s in range(1, 9)]
    rows = [{"loss": 0.5, "reward": 0.1 * s, "epoch": s / 10, "global_step/max_steps": f"{s}/8"} for s in range(1, 9)]
    last = {"last_model_checkpoint": "x", "global_step": 8, "log_history": history}
    whole, short = read(lines(*rows, last)), read(lines(*rows[5:], last))
    assert whole.steps.tolist() == short.steps.tolist() == list(range(1, 9))
    assert whole.planned_steps == short.planned_steps == 8
    assert values(whole, "reward") == values(short, "reward")
    assert "closing_history" in codes(short)
    assert "closing_history" not in codes(whole)
    twice = read(lines(*rows[:5], *rows[3:]))
    assert list(twice.seams) == [5]


def test_swift_on_megatron() -> None:
    log = read(lines(*({"loss": 0.5, "grad_norm": NAN, "reward": 0.5, "iteration": f"{s}/20"} for s in (1, 2, 3))))
    assert (log.steps.tolist(), log.planned_steps, log.nonfinite) == ([1, 2, 3], 20, "kept")


@pytest.mark.parametrize("spelling", [{"step": 0}, {"progress/batch": 0}, {"step": 0, "progress/batch": 0}])
def test_tinker_spellings_of_the_step(spelling: dict[str, int]) -> None:
    records = [
        {**dict.fromkeys(spelling, s), "env/all/reward/total": 0.1 * s, "optim/lr": 1e-5, "time/x:mean": 3.5}
        for s in range(4)
    ]
    log = read(lines(*records))
    assert log.steps.tolist() == [0, 1, 2, 3]
    assert log.nonfinite == "kept"


def test_rows_of_a_split() -> None:
    records = [{"step": s, "split": split, "data": {"reward": 0.1 * s}} for s in range(3) for split in ("train", "val")]
    log = read(lines(*records))
    assert values(log, "reward") == values(log, "eval/reward")


# Both forms of one run, and hostile text


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(min_value=-100, max_value=100), min_size=3, max_size=12))
def test_console_and_file_of_one_run_agree_to_what_is_printed(numbers: list[float]) -> None:
    text = "".join(
        f"SUCCESS Step {s} | 34s | Loss {v:.4f} | Entropy {v:.4f} | Mismatch KL 0.0012 | Grad. Norm {v:.4f} | LR 1.00e-06\n"
        for s, v in enumerate(numbers)
    )
    records = [
        {"step": s, "time": 1.79e9, "loss/mean": v, "entropy/all/mean": v, "optim/grad_norm": v, "optim/lr": 1e-6}
        for s, v in enumerate(numbers)
    ]
    shown, kept = read(text), read(lines(*records))
    assert shown.steps.tolist() == kept.steps.tolist()
    for key in ("loss/mean", "entropy/all/mean", "optim/grad_norm", "optim/lr"):
        decimals = shown.series[key].decimals
        allowed = 0.5 * 10.0**-decimals if decimals is not None else 0.0
        assert np.allclose(values(shown, key), values(kept, key), rtol=1e-9, atol=allowed + 1e-12), key


def test_pieces_join_and_attempts_stay_apart() -> None:
    rows = Rows()
    gathered = Gathered(rows)
    for attempt in range(2):
        for step in range(1 + attempt, 6):
            gathered.add({"loss": float(step + attempt)}, step)
            gathered.add({"reward": 0.5}, step)
    gathered.flush()
    log = rows.finish(path="-", format="x")
    assert log.steps.tolist() == [1, 2, 3, 4, 5, 2, 3, 4, 5]


SHAPES = [
    areal(1, 9, {"a/loss": 0.5, "b/kl": 1.5}) + areal(2, 9, {"a/loss": 0.5, "b/kl": 2.5}),
    open_instruct({"training_step": 1, "objective/kl": 0.5})
    + open_instruct({"training_step": 2, "objective/kl": 0.75}),
    tinker(1, {"env/all/reward/total": 0.5, "optim/lr": 1e-5})
    + tinker(2, {"env/all/reward/total": 0.75, "optim/lr": 1e-5}),
    nemo(1, 2, NEMO, 0.5) + nemo(2, 2, NEMO),
    skyrl(1, SKYRL) + skyrl(2, SKYRL),
    slime(3, 2),
    prime(False, range(1, 4)) + prime(True, range(4, 6)),
    "=== [x] - METRICS STEP 1 ===\n  loss: 0.5\n  kl: 0.25\n=====\n=== [x] - METRICS STEP 2 ===\n  loss: 0.75\n",
]


@pytest.mark.parametrize("text", SHAPES)
def test_cutting_never_invents_a_value(text: str) -> None:
    whole = read(text)
    known = {
        key: {(float(whole.steps[r]), float(v)) for r, v in zip(one.rows, one.values, strict=True) if v == v}
        for key, one in whole.series.items()
    }
    for end in range(0, len(text), 7):
        with contextlib.suppress(CannotRead):
            part = read(text[:end])
            for key, one in part.series.items():
                got = {float(v) for v in one.values if v == v}
                assert got <= {v for _, v in known.get(key, ())}, (end, key, text[max(0, end - 60) : end])


@pytest.mark.parametrize("width", [60, 79, 80, 81, 100, 132])
@pytest.mark.parametrize("text", SHAPES[:1] + SHAPES[4:])
def test_a_terminal_that_breaks_lines_changes_no_value(text: str, width: int) -> None:
    whole = read(text)
    broken = read(
        "".join(f"{line[at : at + width]}\n" for line in text.splitlines() for at in range(0, max(len(line), 1), width))
    )
    for key, one in broken.series.items():
        assert set(one.values[np.isfinite(one.values)]) <= set(whole.series[key].values), key
    assert set(broken.steps) <= set(whole.steps)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(range(len(SHAPES))), st.integers(0, 400), st.integers(1, 200)), max_size=8))
def test_shreds_of_all_layouts_only_ever_raise_cannot_read(shreds: list[tuple[int, int, int]]) -> None:
    text = "".join(SHAPES[shape][at : at + size] for shape, at, size in shreds)
    try:
        log = read(text)
    except CannotRead:
        return
    assert len(log.steps) == log.rows
    for one in log.series.values():
        assert len(one.rows) == len(one.values)
        assert bool((np.diff(one.rows) > 0).all())


@pytest.mark.parametrize(
    "piece",
    [
        "╒══╤══╕\n",
        "╒═",
        "│ a/loss │ 1 ",
        "│ ┏",
        "╭─ Metrics ─╮\n│ a  b: 1 | ",
        "│",
        "╘═╛\n╒═╤═╕\n",
        "📊 Training Results:\n  • Loss: 1\n",
        "  • Loss: ",
        "=== [x] - METRICS STEP 1 ===\n",
        "  a: 1\n",
        "Step 1 | 3s | ",
        "Step 1 | 3s | Loss 1 | Entropy ",
        "| Loss 1 ",
        "Epoch 1/1 ",
        "===== Step 1/2 =====\n",
        "a_b .... 1\n",
        " .",
        "perf 1: {'rollout/x': 1, 'perf/y': 2} ",
        "Step 1: \n{'loss': 1,\n",
        "\"Final validation metrics: {'a': 1}",
        "\u2026",
    ],
)
def test_hostile_repetition_stays_fast(piece: str) -> None:
    for text in (piece * 4000, (piece + "\n") * 4000, areal(1, 2, {"loss": 1.0, "kl": 2.0}) + piece * 4000):
        with contextlib.suppress(CannotRead):
            read(text)


STRAYS = [
    "{'reward': 1.0, 'format_reward': 0.0}",
    '{"completion_length": 33, "reward": 1.0}',
    "Sample 0: {'score': 1.0, 'length': 5}",
    "{'learning_rate': 0.5, 'kl_coef': 0.1, 'loss_type': 'grpo'}",
    "{'accuracy': 0.31, 'n': 500}",
    "{'step': 7, 'reward': 1.0}",
    "The model says: {'loss': 99, 'reward': 99.0}",
]


def _row_with_epoch(at: int) -> str:
    row = {"loss": 0.01, "grad_norm": 0.3, "learning_rate": 1e-6, "reward": 0.25 + at / 128, "epoch": at / 32}
    return f"{row}\n"


@pytest.mark.parametrize("stray", STRAYS)
@pytest.mark.parametrize("bars", [False, True])
def test_dictionaries_of_other_code_are_no_rows_where_the_trainer_counts(stray: str, bars: bool) -> None:
    text = ""
    for at in range(1, 13):
        text += f"  3%|3  | {10 * at}/120 [01:02<29:58,  1.2s/it]\n" * bars + _row_with_epoch(at) + f"{stray}\n" * 2
    log = read(text + "{'eval_reward': 0.5, 'epoch': 0.375}\n")
    assert log.rows == 13
    scale = 10 if bars else 1
    assert log.steps.tolist() == [*(scale * np.arange(1.0, 13.0)), scale * 12.0]
    assert log.series["reward"].values.tolist() == [0.25 + at / 128 for at in range(1, 13)]
    assert set(log.series) == {"loss", "grad_norm", "learning_rate", "reward", "epoch", "eval_reward"}
    says = [w.says for w in log.warnings if w.code == "stray_dictionaries"]
    assert len(says) == 1
    assert says[0].startswith("24 ")


@pytest.mark.parametrize("stray", STRAYS[:5])
def test_dictionaries_are_rows_where_nothing_counts(stray: str) -> None:
    log = read(f"{stray}\n" * 3)
    assert log.rows == 3
    assert not any(w.code == "stray_dictionaries" for w in log.warnings)


def test_a_richer_dictionary_without_an_epoch_stays_beside_sums_by_epoch() -> None:
    rows = "".join(f"{ {'loss': 0.5, 'reward': at / 8, 'kl': 0.1} }\n" for at in range(8))
    assert len(read(rows + "{'epoch': 1, 'loss': 0.5}\n").series["reward"].rows) == 8


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("every", [1, 3])
def test_other_metrics_at_a_steady_distance_belong_to_the_rows_of_the_trainer(first: bool, every: int) -> None:
    text = ""
    for at in range(1, 13):
        extra = f"{ {'pass_rate': at / 16, 'kl_to_start': 1 / 3} }\n" * ((at - first * 1) % every == 0)
        text += extra + _row_with_epoch(at) if first else _row_with_epoch(at) + extra
    log = read(text)
    assert log.steps.tolist() == list(range(1, 13))
    extra_rows = log.series["pass_rate"]
    assert (extra_rows.values * 16).tolist() == log.steps[extra_rows.rows].tolist()
    assert len(extra_rows.rows) == 12 // every
    assert not any(w.code == "stray_dictionaries" for w in log.warnings)


def test_dictionaries_and_quoted_lines_among_verl_lines() -> None:
    text = ""
    for at in range(1, 9):
        text += "{'reward': 1.0, 'format_reward': 0.0}\n"
        text += f"(TaskRunner pid=17) step:{at} - actor/entropy:0.5 - critic/score/mean:0.{at}25\n"
        text += f"[response] step:{at} - critic/score/mean:99\n"
    log = read(text)
    assert log.format == "console (verl)"
    assert log.steps.tolist() == list(range(1, 9))
    assert log.series["critic/score/mean"].values.tolist() == [float(f"0.{at}25") for at in range(1, 9)]
    assert "reward" not in log.series
    told = "Training Progress:  3%|3  | 1/9 [00:01<00:08]step:1 - a/reward:0.5 - b/kl:0.25\nINFO:x:step:2 - a/reward:1.5 - b/kl:0.25\n"
    assert read(told).steps.tolist() == [1, 2]


@pytest.mark.parametrize("wrap", ["docker", "cloud", "lines", "document", "cut"])
def test_console_lines_that_something_wrapped_in_json(wrap: str) -> None:
    """What a container's log driver or a log service keeps is the console all the same."""
    printed = [
        f"(TaskRunner pid=7) step:{i} - actor/entropy:0.{i + 30} - critic/score/mean:0.{i + 10}" for i in range(5)
    ]
    lines = [line for one in printed for line in (one, "Training Progress:  4%| | 4/80 [1:40<20:13, 86s/it]")]
    if wrap == "docker":
        text = "".join(
            json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-01-01T10:00:00Z"}) + "\n"
            for line in lines
        )
    elif wrap == "cut":  # at 16 KiB, here at 30 characters
        pieces = [piece for line in lines for piece in (line[:30], line[30:] + "\n")]
        text = "".join(json.dumps({"log": piece, "stream": "stdout"}) + "\n" for piece in ["\n", *pieces])
    elif wrap == "cloud":
        text = "".join(json.dumps({"timestamp": 17, "textPayload": line, "labels": {"k": 1}}) + "\n" for line in lines)
    elif wrap == "lines":
        text = "".join(json.dumps({"line": 3790 + i, "text": line}) + "\n" for i, line in enumerate(lines))
    else:
        text = json.dumps({"available": True, "lines": [{"line": i, "text": line} for i, line in enumerate(lines)]})
    log = read(text)
    assert values(log, "critic/score/mean") == [0.10, 0.11, 0.12, 0.13, 0.14]


def test_what_a_saved_answer_says_of_training_is_no_log() -> None:
    said = "step:1 - actor/entropy:0.3 - critic/score/mean:0.4"
    for record in ({"prompt": "p", "completion": said, "message": said}, {"text": said}):
        with pytest.raises(CannotRead):
            read((json.dumps(record) + "\n") * 5)
