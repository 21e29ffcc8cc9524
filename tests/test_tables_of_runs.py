"""Tables that hold one run or several: exports of trackers, values a line, lists of runs, Parquet, JSON of several runs."""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.errors import CannotRead
from rlclinic.readers import read as read_run
from rlclinic.readers.log import Log, read_log
from rlclinic.readers.tabular import parquet
from rlclinic.readers.tabular import separated as tabular

REWARD = [0.125, 0.25, 0.5, 0.625]


def read(text: str, name: str = "table.csv", run: str | None = None) -> Log:
    return read_log(None, text.encode(), name=name, run=run)


def sheet(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return out.getvalue()


def values(log: Log, key: str) -> list[float]:
    return log.series[key].values.tolist()


def codes(log: Log) -> list[str]:
    return [warn.code for warn in log.warnings]


def chart(runs: dict[str, str], axis: str = "Step", spread: float = 0.0) -> str:
    """As W&B's web page writes a chart: for each run its curve between its lowest and highest values."""
    header = [axis]
    for run, metric in runs.items():
        header += [f"{run} - {metric}", f"{run} - {metric}__MIN", f"{run} - {metric}__MAX"]
    lines = [
        [10 * (k + 1), *(cell for n, _ in enumerate(runs) for cell in (v + n, v + n - spread, v + n + spread))]
        for k, v in enumerate(REWARD)
    ]
    return sheet(header, lines)


# Charts


@pytest.mark.parametrize("axis", ["Step", "train/global_step", "global_step", "trainer/global_step"])
@pytest.mark.parametrize("name", ["grpo", "lr=1e-6, seed=1 - new", "Group: base", "7"])
def test_a_chart_of_one_run(axis: str, name: str) -> None:
    log = read(chart({name: "train/reward"}, axis))
    assert set(log.series) == {"train/reward"}
    assert log.steps.tolist() == [10, 20, 30, 40]
    assert values(log, "train/reward") == REWARD
    assert log.run == name
    assert codes(log) == []


def test_a_chart_of_several_runs() -> None:
    text = chart({"a - 1": "train/reward", "a - 2": "train/reward"})
    with pytest.raises(CannotRead, match=r"2 runs\nvalid  a - 1, a - 2\ntry    .*--run 'a - 1'"):
        read(text)
    assert values(read(text, run="a - 2"), "train/reward") == [v + 1 for v in REWARD]
    with pytest.raises(CannotRead, match="the run 'b'"):
        read(text, run="b")


def test_a_group_is_found_by_its_name() -> None:
    text = chart({"Group: a": "train/reward", "Group: b": "train/reward"}, spread=0.1)
    log = read(text, run="b")
    assert (log.run, codes(log)) == ("Group: b", ["downsampled"])
    assert "mean over a group" in log.warnings[0].says


def test_points_that_stand_for_several() -> None:
    assert codes(read(chart({"a": "train/reward"}, spread=0.01))) == ["downsampled"]


def test_the_chart_of_a_single_runs_page() -> None:
    text = sheet(["Step", "train/reward", "train/reward__MIN", "train/reward__MAX"], [[1, 0.5, 0.5, 0.5]])
    assert values(read(text), "train/reward") == [0.5]


def test_a_chart_over_time_has_no_steps() -> None:
    log = read(chart({"a": "train/reward"}, "Relative Time (Process)"))
    assert set(log.series) == {"train/reward"}
    assert log.step_source == "row order"
    assert codes(log) == ["rows_without_step"]


def test_a_chart_with_the_trackers_counter_in_it() -> None:
    header = ["train/global_step", "a - _step", "a - _step__MIN", "a - _step__MAX", "a - train/reward"]
    log = read(sheet(header, [[10, 3, 3, 3, 0.5], [20, 6, 6, 6, 0.25]]))
    assert (log.steps.tolist(), log.step_source) == ([10, 20], "train/global_step")


def test_several_charts_of_one_run_are_one_run(tmp_path: Path) -> None:
    for metric in ("train/reward", "train/grad_norm"):
        (tmp_path / f"wandb_export_{metric[6:]}.csv").write_text(chart({"a": metric}))
    (tmp_path / "wandb_export_other.csv").write_text(chart({"b": "train/entropy"}))
    run = read_run([tmp_path / "wandb_export_reward.csv", tmp_path / "wandb_export_grad_norm.csv"])
    assert {"reward.mean", "grad.norm"} <= run.columns.keys()
    mixed = read_run([tmp_path / "wandb_export_reward.csv", tmp_path / "wandb_export_other.csv"])
    assert "entropy.mean" not in mixed.columns
    assert any(warn.code == "sources_disagree" and "run b" in warn.says for warn in mixed.warnings)


def test_swanlab_charts() -> None:
    one = "step,grpo-7b-2-train/reward,grpo-7b-2-train/reward_timestamp\n1,0.5,1795968795823\n2,0.25,1795968796823\n"
    log = read(one)
    assert (set(log.series), log.run, values(log, "train/reward")) == ({"train/reward"}, "grpo-7b-2", [0.5, 0.25])
    two = "step,a-1-train/reward,a-2-train/reward\n1,0.5,0.75\n2,0.25,1.75\n"
    assert values(read(two, run="a-2"), "train/reward") == [0.75, 1.75]
    with pytest.raises(CannotRead, match="a-1, a-2"):
        read(two)
    interface = "step,e-1-train/reward_step,e-1-train/reward_timestamp,e-1-train/kl_step,e-1-train/kl_timestamp\n"
    log = read(interface + "1,0.5,17,0.1,17\n2,0.25,18,0.2,18\n")
    assert (set(log.series), values(log, "train/kl")) == ({"train/reward", "train/kl"}, [0.1, 0.2])


def test_hyphens_of_plain_columns_stay() -> None:
    header = "step,val-core/aime24/acc/mean@1,val-aux/aime24/len/mean,actor/pg-loss\n"
    assert set(read(header + "1,0.5,2,3\n2,0.6,2,3\n").series) == set(header.strip().split(",")[1:])
    assert set(read("step,kl-loss,policy-loss\n1,0.5,2\n2,0.6,2\n").series) == {"kl-loss", "policy-loss"}


# One metric, named by the file


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("run-grpo_7b-tag-train_reward.csv", "train/reward"),
        ("run-.-tag-train_rewards_accuracy_reward_mean.csv", "train/rewards/accuracy_reward/mean"),
        ("run-a-tag-train_completions_mean_length (1).csv", "train/completions/mean_length"),
        ("run-a-tag-actor_pg_clipfrac.csv", "actor/pg_clipfrac"),
        ("run-a-tag-critic_score_mean.csv", "critic/score/mean"),
        ("reward.csv", "reward"),
    ],
)
def test_tensorboards_download(name: str, key: str) -> None:
    log = read("Wall time,Step,Value\n1795968795.8,10,0.5\n1795968799.8,20,nan\n1795968801.8,30,0.25\n", name)
    assert set(log.series) == {key}
    assert log.steps.tolist() == [10, 20, 30]
    assert math.isnan(values(log, key)[1])
    assert log.nonfinite == "kept"


def test_a_lone_metric_without_a_name() -> None:
    with pytest.raises(CannotRead, match="name the file after the metric"):
        read("Wall time,Step,Value\n1.5,10,0.5\n", "data.csv")


def test_tensorboards_download_as_json() -> None:
    points = '[[1795968795.8, 10, 0.5], [1795968799.8, 20, 0.25], [1795968800.8, 30, "NaN"]]'
    log = read(points, "run-a-tag-train_reward.json")
    assert (log.steps.tolist(), log.run) == ([10, 20, 30], "a")
    assert repr(values(log, "train/reward")) == "[0.5, 0.25, nan]"


def test_downloads_of_one_run(tmp_path: Path) -> None:
    for tag in ("train_reward", "train_grad_norm"):
        (tmp_path / f"run-a-tag-{tag}.csv").write_text("Wall time,Step,Value\n1.5,10,0.5\n2.5,20,0.25\n")
    assert {"reward.mean", "grad.norm"} <= read_run([tmp_path]).columns.keys()


# A value a line


def test_mlflow_chart_history() -> None:
    header = ["Run", "Run ID", "metric", "step", "timestamp", "value"]
    lines = [["a", "0f1", "loss", k, 1000 + k, f"'-{0.5 + k}"] for k in range(3)]
    lines += [["a", "0f1", "reward", k, 1000 + k, v] for k, v in enumerate(["NaN", "Infinity", "0.5"])]
    log = read(sheet(header, lines))
    assert values(log, "loss") == [-0.5, -1.5, -2.5]
    assert math.isnan(values(log, "reward")[0])
    assert math.isinf(values(log, "reward")[1])
    assert (log.run, log.nonfinite) == ("a", "kept")
    both = sheet(header, [*lines, ["a", "9c2", "reward", 0, 1, 0.75]])
    with pytest.raises(CannotRead, match=r"a \(0f1\), a \(9c2\)"):
        read(both)
    assert values(read(both, run="9c2"), "reward") == [0.75]


def test_mlflow_metric_plot() -> None:
    log = read("run_id,key,value,timestamp,step\n0f1,reward,0.5,17,0\n0f1,reward,0.25,18,10\n")
    assert (log.steps.tolist(), values(log, "reward")) == ([0, 10], [0.5, 0.25])


@pytest.mark.parametrize(
    "header",
    [
        "dir_name,step,tag,value",
        "run,step,tag,value",
        "run_name,step,variable,value",
        "run,step,metricName,metricValue",
    ],
)
def test_long_forms(header: str) -> None:
    lines = "".join(f"{run},{k},reward,{k}.5\n" for run in ("a", "b") for k in range(3))
    assert values(read(f"{header}\n{lines}", run="b"), "reward") == [0.5, 1.5, 2.5]
    with pytest.raises(CannotRead, match="valid  a, b"):
        read(f"{header}\n{lines}")


def test_a_restart_in_long_form() -> None:
    steps = [1, 2, 3, 4, 5, 3, 4, 5, 6]
    text = "step,key,value\n" + "".join(f"{s},{key},{n}.25\n" for n, s in enumerate(steps) for key in ("reward", "kl"))
    log = read(text)
    assert log.seams
    text = "step,key,value\n" + "".join(f"{s},{key},{n}.25\n" for key in ("reward", "kl") for n, s in enumerate(steps))
    assert read(text).seams


def test_settings_among_the_lines() -> None:
    """As neptune-exporter writes a run: what was logged once has no step."""
    header = "run_id,attribute_path,attribute_type,step,float_value"
    series = "r,train/reward,float_series,1.0,0.5\nr,train/reward,float_series,2.0,0.25\n"
    log = read(f"{header}\nr,config/beta,float,,0.1\n{series}")
    assert (log.steps.tolist(), log.config, codes(log)) == ([1, 2], {"config/beta": 0.1}, [])


def test_long_form_without_steps() -> None:
    log = read("key,value\nreward,0.5\nkl,0.125\nreward,0.25\nkl,0.25\n")
    assert (values(log, "reward"), log.step_source) == ([0.5, 0.25], "row order")


# Columns and records that name the run


ROWS = [(run, step, 0.5 + step + 100 * (run == "b")) for step in range(1, 6) for run in ("a", "b")]


@pytest.mark.parametrize("column", ["run", "run_id", "run_name", "experiment", "Run Name", "seed"])
@pytest.mark.parametrize("order", [0, 1])
def test_several_runs_in_a_wide_table(column: str, order: int) -> None:
    rows = [(1 if run == "a" else 2, *rest) for run, *rest in ROWS] if column == "seed" else ROWS
    rows = sorted(rows, key=lambda row: row[order])
    text = sheet([column, "step", "reward"], rows)
    second = "2" if column == "seed" else "b"
    with pytest.raises(CannotRead, match="2 runs"):
        read(text)
    log = read(text, run=second)
    assert (log.steps.tolist(), values(log, "reward")) == ([1, 2, 3, 4, 5], [101.5, 102.5, 103.5, 104.5, 105.5])
    assert (log.run, codes(log)) == (second, [])


def test_a_seed_that_is_a_setting() -> None:
    log = read(sheet(["seed", "step", "reward"], [[step // 3, step, 0.5] for step in range(9)]))
    assert log.rows == 9


@pytest.mark.parametrize("key", ["run", "run_id", "run_name", "experiment"])
@pytest.mark.parametrize("many", [1, 250])
def test_several_runs_in_records(key: str, many: int) -> None:
    rows = [{"step": 5 * n + step, "reward": value, key: run} for n in range(many) for run, step, value in ROWS]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    with pytest.raises(CannotRead, match="2 runs\nvalid  a, b"):
        read(text)
    log = read(text, run="b")
    assert (log.rows, log.run, log.seams) == (5 * many, "b", {})
    assert all(value > 100 for value in values(log, "reward"))
    one = "".join(json.dumps(row) + "\n" for row in rows if row[key] == "a")
    assert read(one).run == "a"
    with pytest.raises(CannotRead, match="the run 'c'"):
        read(one, run="c")


def test_records_that_name_no_run() -> None:
    rows = [{"step": step, "reward": value, "run": run} for run, step, value in ROWS]
    text = "".join(json.dumps(row) + "\n" for row in [{"reward": 0.5}, *rows])
    assert codes(read(text, run="b")) == ["rows_without_run"]


def test_a_list_of_rows_that_name_their_run() -> None:
    text = json.dumps([{"run": run, "step": step, "reward": value} for run, step, value in ROWS])
    with pytest.raises(CannotRead, match="2 runs\nvalid  a, b"):
        read(text)
    assert read(text, run="a").steps.tolist() == [1, 2, 3, 4, 5]


HISTORY = [{"step": step, "reward": step / 8, "kl": 0.25} for step in range(1, 5)]
OTHER = [{"step": step, "reward": step / 4, "kl": 0.5} for step in range(1, 5)]


@pytest.mark.parametrize(
    "document",
    [
        {"a": HISTORY, "b": OTHER},
        {"runs": {"a": HISTORY, "b": OTHER}},
        {"a": {"config": {"beta": 0.1}, "history": HISTORY}, "b": {"history": OTHER}},
        {"runs": [{"name": "a", "history": HISTORY}, {"name": "b", "history": OTHER}]},
        [{"run": "a", "history": HISTORY}, {"run": "b", "history": OTHER}],
        {run: {k: [row[k] for row in rows] for k in rows[0]} for run, rows in (("a", HISTORY), ("b", OTHER))},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_of_several_runs(document: Any, indent: int | None) -> None:
    text = json.dumps(document, indent=indent)
    with pytest.raises(CannotRead, match="2 runs\nvalid  a, b"):
        read(text, "all.json")
    log = read(text, "all.json", run="b")
    assert (log.steps.tolist(), values(log, "reward"), log.run) == ([1, 2, 3, 4], [0.25, 0.5, 0.75, 1.0], "b")


# Frames of a tracker's programming interface


def frame(rows: int, every: Callable[[int], int]) -> list[dict[str, object]]:
    return [
        {"_step": every(k), "_runtime": 2.5 * k, "_timestamp": 1.7e9 + k, "train/reward": k / 512, "train/kl": 0.25}
        for k in range(rows)
    ]


def test_a_sampled_history_says_so() -> None:
    draw = np.random.default_rng(0)
    uneven = np.sort(draw.choice(3000, 500, replace=False)).tolist()
    for every, want in ((lambda k: 10 * k, []), (lambda k: int(uneven[k]), ["downsampled"])):
        rows = frame(500, every)
        text = sheet(list(rows[0]), [list(row.values()) for row in rows])
        assert codes(read(text)) == want
        assert codes(read("".join(json.dumps(row) + "\n" for row in rows), "history.jsonl")) == want


@pytest.mark.parametrize("orient", ["columns", "split", "records", "index"])
def test_a_pandas_frame_as_json(orient: str) -> None:
    rows = frame(5, lambda k: 10 * k)
    rows[2]["train/kl"] = None
    names = list(rows[0])
    text = {
        "columns": {name: {str(k): row[name] for k, row in enumerate(rows)} for name in names},
        "split": {"columns": names, "index": list(range(5)), "data": [list(row.values()) for row in rows]},
        "records": rows,
        "index": {str(k): row for k, row in enumerate(rows)},
    }[orient]
    log = read(json.dumps(text), "history.json")
    assert log.steps.tolist() == [0, 10, 20, 30, 40]
    assert values(log, "train/reward") == [k / 512 for k in range(5)]
    assert log.series["train/kl"].rows.tolist() == [0, 1, 3, 4]


def test_a_history_with_words_for_numbers() -> None:
    log = read(",_step,_runtime,train/reward\n0,0,1.5,NaN\n1,1,2.5,Infinity\n2,2,3.5,0.5\n")
    assert math.isnan(values(log, "train/reward")[0])
    assert log.nonfinite == "kept"
    assert "" not in log.series


# Lists of runs


def test_wandbs_table_of_runs() -> None:
    header = ["Name", "State", "Created", "Runtime", "learning_rate", "model_name", "train/reward", "train/kl"]
    lines = [
        ["a", "finished", "2026-01-01", 60, 1e-6, "qwen", 0.5, 0.125],
        ["b", "crashed", "", 5, 2e-6, "qwen", 0.25, ""],
    ]
    with pytest.raises(CannotRead, match="valid  a, b"):
        read(sheet(header, lines))
    log = read(sheet(header, lines), run="a")
    assert (log.format, set(log.series), codes(log)) == ("summary", {"train/reward", "train/kl"}, ["summary_only"])
    assert log.config == {"learning_rate": 1e-6, "model_name": "qwen"}
    assert read(sheet(header, lines[:1])).run == "a"


def test_a_table_of_checkpoints_is_no_list_of_runs() -> None:
    log = read(sheet(["name", "step", "reward", "runtime"], [[f"ckpt-{k}", k, k / 8, 2.5] for k in range(5)]))
    assert (log.format, log.steps.tolist()) == ("csv", [0, 1, 2, 3, 4])


def test_mlflows_tables_of_runs() -> None:
    header = ["Start Time", "Duration", "Run ID", "Name", "Source Type", "User", "Status", "beta", "reward", "kl"]
    lines = [["2026-01-01", "1min", "0f1", "a", "LOCAL", "me", "FINISHED", "0.1", "0.5", "0.25"]]
    lines += [["2026-01-01", "1min", "9c2", "b", "LOCAL", "me", "FAILED", "0.2", "0.75", "0.5"]]
    assert values(read(sheet(header, lines), run="9c2"), "reward") == [0.75]
    search = [
        "run_id",
        "experiment_id",
        "status",
        "metrics.train/reward",
        "metrics.train/kl",
        "params.beta",
        "tags.mlflow.runName",
    ]
    text = sheet(search, [["0f1", 0, "FINISHED", 0.5, 0.25, "0.1", "a"], ["9c2", 0, "FINISHED", 0.75, 0.5, "0.2", "b"]])
    log = read(text, run="b")
    assert (values(log, "train/reward"), log.config["beta"], log.format) == ([0.75], 0.2, "summary")


# Parquet


PACKAGES = ["pyarrow", "polars", "duckdb"]


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each package that reads Parquet in turn; the tests write with pyarrow."""
    pytest.importorskip("pyarrow")
    pytest.importorskip(request.param)
    monkeypatch.setattr(parquet, "PACKAGES", (request.param,))
    return str(request.param)


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    arrow: ModuleType = importlib.import_module("pyarrow")
    importlib.import_module("pyarrow.parquet").write_table(arrow.table(columns), path, **options)
    return path


def test_a_wide_parquet_file(package: str, tmp_path: Path) -> None:
    columns = {
        "step": list(range(1, 6)),
        "train/reward": [0.5, None, float("nan"), float("inf"), 0.25],
        "count": [1, 2, 3, 4, 5],
        "done": [True, False, True, True, None],
        "note": ["x", "y", "z", None, ""],
        "loss": ["0.5", "NaN", None, "0.25", "0.125"],
        "time": [None] * 5,
    }
    log = read_log(write(tmp_path / "a.parquet", columns, row_group_size=2))
    assert (log.format, log.rows, log.steps.tolist()) == ("parquet", 5, [1, 2, 3, 4, 5])
    assert log.series["train/reward"].rows.tolist() == [0, 2, 3, 4]
    assert repr(values(log, "train/reward")) == "[0.5, nan, inf, 0.25]"
    assert values(log, "count") == [1, 2, 3, 4, 5]
    assert log.series["loss"].rows.tolist() == [0, 1, 3, 4]
    assert log.nonfinite == "kept"


def test_parquet_of_several_runs(package: str, tmp_path: Path) -> None:
    runs, steps, rewards = (list(cells) for cells in zip(*ROWS, strict=True))
    wide = write(tmp_path / "wide.parquet", {"run": runs, "step": steps, "reward": rewards}, row_group_size=3)
    long = write(tmp_path / "long.parquet", {"run": runs, "step": steps, "key": ["reward"] * 10, "value": rewards})
    for path in (wide, long):
        with pytest.raises(CannotRead, match="2 runs\nvalid  a, b"):
            read_log(path)
        log = read_log(path, run="b")
        assert (log.steps.tolist(), values(log, "reward")) == ([1, 2, 3, 4, 5], [101.5, 102.5, 103.5, 104.5, 105.5])


def test_answers_in_parquet(package: str, tmp_path: Path) -> None:
    columns = {
        "step": [1, 1],
        "prompt": ["2+2=", "3+3="],
        "completion": ["4", "6"],
        "accuracy": [1.0, 1.0],
        "advantage": [0.5, -0.5],
    }
    with pytest.raises(CannotRead, match="saved answers"):
        read_log(write(tmp_path / "completions_00001.parquet", columns))
    chats = {
        "step": [1],
        "prompt": [[{"role": "user", "content": "x"}]],
        "completion": [[{"role": "user", "content": "x"}]],
    }
    with pytest.raises(CannotRead, match="saved answers"):
        read_log(write(tmp_path / "chats.parquet", chats))


def test_broken_parquet(package: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"step": list(range(500)), "reward": [k / 500 for k in range(500)]})
    whole = path.read_bytes()
    draw = np.random.default_rng(1)
    for cut in (4, 5, 100, len(whole) // 2, len(whole) - 1):
        with pytest.raises(CannotRead, match="broken Parquet"):
            read_log(None, whole[:cut], name="a.parquet")
    for _ in range(8):
        spoilt = bytearray(whole)
        for at in draw.integers(4, len(whole), 5):
            spoilt[at] ^= 1 << int(draw.integers(8))
        with contextlib.suppress(CannotRead):
            read_log(None, bytes(spoilt), name="a.parquet")


def test_the_export_of_trackio(package: str, tmp_path: Path) -> None:
    columns = {
        "id": [1, 2, 3, 4],
        "timestamp": ["2026-01-01T00:00:00"] * 4,
        "run_id": ["x", "x", "y", "y"],
        "run_name": ["a", "a", "b", "b"],
        "step": [0, 1, 0, 1],
        "log_id": ["1", "2", "3", "4"],
        "space_id": [None] * 4,
        "train/global_step": [10, 20, 10, 20],
        "train/reward": [0.5, float("nan"), 0.75, 0.25],
    }
    log = read_log(write(tmp_path / "project.parquet", columns), run="b")
    assert (log.steps.tolist(), values(log, "train/reward")) == ([10, 20], [0.75, 0.25])
    log = read_log(tmp_path / "project.parquet", run="a")
    assert (math.isnan(values(log, "train/reward")[1]), log.nonfinite) == (True, "kept")


def test_pandas_drops_nan(package: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"step": [1, 2, 3], "reward": [0.5, float("nan"), 0.25]}).to_parquet(tmp_path / "a.parquet")
    log = read_log(tmp_path / "a.parquet")
    assert (log.nonfinite, log.series["reward"].rows.tolist()) == ("dropped", [0, 2])


def test_parquet_without_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "PACKAGES", ())
    with pytest.raises(CannotRead, match="pip install pyarrow"):
        read_log(None, b"PAR1" + bytes(100), name="a.parquet")


# Every form of one table


cells = st.one_of(st.none(), st.floats(width=32, allow_nan=False))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(cells, cells), min_size=2, max_size=20).filter(
        lambda rows: any(row != (None, None) for row in rows)
    )
)
def test_wide_long_and_records_agree(rows: list[tuple[float | None, float | None]]) -> None:
    names = ["reward", "kl"]
    numbered = [(k, row) for k, row in enumerate(rows) if row != (None, None)]
    wide = sheet(["step", *names], [[k, *("" if cell is None else repr(cell) for cell in row)] for k, row in numbered])
    lines = [
        [k, name, repr(cell)] for k, row in numbered for name, cell in zip(names, row, strict=True) if cell is not None
    ]
    records = "".join(
        json.dumps({"step": k, **{n: c for n, c in zip(names, row, strict=True) if c is not None}}) + "\n"
        for k, row in numbered
    )
    logs = [read(wide), read(sheet(["step", "key", "value"], lines)), read(records, "a.jsonl")]
    for log in logs[1:]:
        assert log.steps.tolist() == logs[0].steps.tolist()
        assert log.series.keys() == logs[0].series.keys()
        for key in log.series:
            assert log.series[key].rows.tolist() == logs[0].series[key].rows.tolist()
            assert values(log, key) == values(logs[0], key)


# A tracker counts its calls, a trainer its steps


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_rows_of_a_tracker_between_those_of_the_trainer(form: str) -> None:
    rows: list[dict[str, float]] = []
    for step in range(1, 201):
        rows += [{"profiling/Time taken: Trainer.generate": 0.5 + part / 8} for part in range(6)]
        rows += [
            {"train/global_step": step, "train/reward": step / 256, "train/grad_norm": 0.5, "train/epoch": step / 200}
        ]
        rows += [{"system/gpu": 40.0}] if step % 3 == 0 else []
        rows += [{"eval/reward": step / 512, "train/global_step": step}] if step % 50 == 0 else []
    rows = [{"_step": count, **row} for count, row in enumerate(rows)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = {
        "jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "csv": sheet(names, [[row.get(name, "") for name in names] for row in rows]),
    }[form]
    log = read(text, f"history.{form}")
    assert log.step_source == "train/global_step"
    assert np.unique(log.steps).tolist() == list(range(1, 201))
    at = log.steps[log.series["train/reward"].rows]
    assert (at.tolist(), values(log, "train/reward")) == (list(range(1, 201)), [step / 256 for step in range(1, 201)])
    assert log.steps[log.series["eval/reward"].rows].tolist() == [50, 100, 150, 200]
    assert set(log.steps[log.series["system/gpu"].rows].tolist()) <= set(range(1, 201))


# Reading many lines at once


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 30), st.booleans(), st.sampled_from([",", ";", "\t"]))
def test_many_lines_at_once_read_as_line_by_line(seed: int, quoted: bool, mark: str) -> None:
    chance = random.Random(seed)

    def cell(at: int) -> str:
        kind = chance.randrange(30)
        odd = ["", "nan", "-inf", "n/a", "1e-7", " 0.5 ", "0x1", "1_0"]
        return odd[kind] if kind < len(odd) and at % 3 == 0 else repr(chance.uniform(-1, 1))

    lines = [[str(k), *(cell(k) for _ in range(3)), chance.choice(["good", "0.25", ""])] for k in range(1100)]
    rows = [mark.join(f'"{one}"' if quoted else one for one in line) for line in lines]
    rows[700] += f"{mark}1" if chance.random() < 0.5 else ""
    text = "\n".join([mark.join(["step", "reward", "kl", "loss", "word_loss"]), *rows]) + "\n"
    fast = read(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tabular._Wide, "quick", property(lambda _: False))
        slow = read(text)
    assert (fast.rows, fast.steps.tolist(), fast.warnings) == (slow.rows, slow.steps.tolist(), slow.warnings)
    assert fast.series.keys() == slow.series.keys()
    for key, one in slow.series.items():
        assert fast.series[key].rows.tolist() == one.rows.tolist()
        assert np.array_equal(fast.series[key].values, one.values, equal_nan=True)


def test_many_lines_of_several_runs() -> None:
    rows = [(run, step, step / 8, "fine") for step in range(2000) for run in ("a", "b")]
    log = read(sheet(["run", "step", "reward", "note"], rows), run="b")
    assert (log.rows, log.steps.tolist()) == (2000, list(range(2000)))


def test_a_cell_over_several_lines() -> None:
    text = "step,reward,note\n" + "".join(f'{k},0.5,"one\ntwo"\n' for k in range(1500))
    assert read(text).rows == 1500
    text = "step,reward\n" + "".join(f"{k},0.5\n" for k in range(1500)) + '1500,"0.\n5"\n1501,0.25'
    log = read(text)
    assert (log.rows, log.steps[-1]) == (1502, 1501)
