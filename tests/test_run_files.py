"""Run files of W&B and SwanLab: history, settings and end come back; what is damaged is left out and counted."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containers import SWANLAB, WANDB, field, run_file
from rlclinic.errors import CannotRead
from rlclinic.readers import read as read_run
from rlclinic.readers.binary.runlog import read_run_files
from rlclinic.readers.log import read_log
from rlclinic.readers.rows import Log

NAN, INF = math.nan, math.inf
ROWS: list[dict[str, object]] = [
    {"train/reward": 0.25 + 0.01 * k, "train/grad_norm": 0.5, "train/kl": 0.001 * k} for k in range(40)
]


def moment(seconds: float) -> bytes:
    return field(1, int(seconds)) + field(2, round(seconds % 1 * 1e9))


def item(key: str | tuple[str, ...], value: object, nested: bool = True) -> bytes:
    parts = (key,) if isinstance(key, str) else key
    names = b"".join(field(2 if nested else 1, part.encode()) for part in parts)
    return names + field(16, json.dumps(value).encode())


def history(step: int, row: Mapping[str, object], nested: bool = True) -> bytes:
    held = {**row, "_step": step, "_timestamp": 1.7e9 + step}
    return field(1, step + 1) + field(2, b"".join(field(1, item(key, value, nested)) for key, value in held.items()))


def begins(config: Mapping[str, object], began: float = 1.7e9, name: str = "run") -> bytes:
    items = b"".join(field(1, item(key, value, nested=False)) for key, value in config.items())
    return field(17, field(1, b"id") + field(4, items) + field(8, name.encode()) + field(17, moment(began)))


def changes(**config: object) -> bytes:
    return field(5, b"".join(field(1, item(key, value, nested=False)) for key, value in config.items()))


def said(text: str) -> bytes:
    return field(13, field(1, 1) + field(3, text.encode()))


def ends(code: int) -> bytes:
    return field(18, field(1, code) if code else b"")


def scalar(key: str, step: int, value: float, wall: float = 0.0) -> bytes:
    held = field(1, value) if value else b""
    about = field(1, key.encode()) + (field(2, step) if step else b"") + field(3, 1)
    return field(13, about + field(4, moment(wall)) + field(5, held))


def read(data: bytes) -> Log:
    return read_log(None, data, name="run-abc.wandb")


def values(log: Log, key: str) -> dict[float, float]:
    one = log.series[key]
    return dict(zip(log.steps[one.rows].tolist(), one.values.tolist(), strict=True))


def codes(log: Log) -> set[str]:
    return {warn.code for warn in log.warnings}


LOGGED = [history(k, row) for k, row in enumerate(ROWS)]
SEALED = run_file([begins({"beta": 0.04}), *LOGGED, ends(0)])


# W&B


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_history_settings_and_end(nested: bool, sealed: bool) -> None:
    records = [begins({"num_generations": 8, "actor": {"kl": 0.1}, "_wandb": {"x": 1}, "wrapped": {"value": 3}})]
    records += [history(k, row, nested) for k, row in enumerate(ROWS)]
    log = read(run_file([*records, ends(0)], sealed=sealed))
    assert (log.format, log.rows, log.nonfinite, log.ending) == ("wandb", 40, "kept", "")
    np.testing.assert_array_equal(log.series["train/reward"].values, [row["train/reward"] for row in ROWS])
    assert log.config == {"num_generations": 8, "actor.kl": 0.1, "wrapped": 3}
    assert log.facts["run"] == "run"
    assert not log.warnings


def test_numbers_that_json_lacks_and_values_that_are_none() -> None:
    odd = {"train/kl": NAN, "train/grad_norm": INF, "train/reward": -INF, "flag": True, "none": None, "word": "x"}
    table = {"_type": "table-file", "path": "x" * 70_000}
    chart = {"_type": "histogram", "values": [1, 2], "bins": [0, 1, 2]}
    parts = {("more", "_type"): "table-file", ("more", "nrows"): 3, ("more", "size"): 40}
    held = {"answers": table, "h": chart, "list": [1], **parts}
    records = [history(k, {**row, **held}) for k, row in enumerate(ROWS)]  # type: ignore[dict-item]
    log = read(run_file([*records, history(40, odd)]))
    assert log.rows == 41
    assert np.isnan(log.series["train/kl"].values[-1])
    assert log.series["train/grad_norm"].values[-1] == INF
    assert log.series["train/reward"].values[-1] == -INF
    assert set(log.series) == {"train/kl", "train/grad_norm", "train/reward", "_timestamp"}
    assert any("answers, more are saved answers" in warn.says for warn in log.warnings)


def test_nested_keys_are_joined_by_a_slash() -> None:
    records = [history(k, {**row, ("val", "math", "acc"): 0.5}) for k, row in enumerate(ROWS)]  # type: ignore[dict-item]
    assert set(read(run_file(records)).series["val/math/acc"].values) == {0.5}


def test_pieces_of_one_step_are_one_row() -> None:
    records = []
    for k, row in enumerate(ROWS):
        records += [history(k, {key: value}) for key, value in row.items()]
    log = read(run_file(records))
    assert log.rows == 40
    assert values(log, "train/kl") == {float(k): row["train/kl"] for k, row in enumerate(ROWS)}


def test_the_counter_of_the_trainer_is_the_step_and_timings_are_no_rows() -> None:
    """W&B puts the last counter, at first 0, into every row; TRL logs dozens of timings for each step."""
    records, count = [], 0
    for step in range(81, 121):
        for call in range(60):
            shown = step - 1 if step > 81 else 0
            records.append(history(count, {f"profiling/part{call % 3}": 0.1 * call, "train/global_step": shown}))
            count += 1
        records.append(history(count, {**ROWS[step - 81], "train/global_step": step}))
        count += 1
    log = read(run_file(records))
    np.testing.assert_array_equal(log.steps, np.arange(81.0, 121.0))
    assert values(log, "train/reward")[81.0] == ROWS[0]["train/reward"]
    assert log.series["profiling/part1"].values.tolist() == [pytest.approx(5.8)] * 39


def test_the_counter_that_the_run_declares_is_the_step() -> None:
    declared = field(12, field(2, b"*") + field(4, b"samples/seen"))
    log = read(run_file([declared, *(history(k, {**row, "samples/seen": 64 * k}) for k, row in enumerate(ROWS))]))
    np.testing.assert_array_equal(log.steps, 64.0 * np.arange(40))


def test_a_configuration_that_changes_on_the_way_is_a_seam() -> None:
    before = [begins({"learning_rate": 1e-6, "beta": 0.0}), changes(seed=3), changes(learning_rate=2e-6)]
    log = read(run_file([*before, *LOGGED[:25], changes(learning_rate=5e-6, beta=0.0, extra=1), *LOGGED[25:]]))
    assert log.seams == {25: "the configuration changed: learning_rate 2e-06 -> 5e-06"}
    assert log.config == {"learning_rate": 5e-6, "beta": 0.0, "seed": 3, "extra": 1}


@pytest.mark.parametrize(
    ("code", "ending"), [(0, ""), (1, "exit code 1"), (255, "interrupted, exit code 255"), (-9, "exit code -9")]
)
def test_the_exit_code_is_the_ending(code: int, ending: str) -> None:
    assert read(run_file([*LOGGED, ends(code)])).ending == ending


def test_the_console_text_tells_how_a_run_failed_but_not_whether() -> None:
    error = [said("Traceback (most recent call last)"), said(":\n"), said("ValueError: no more data\n")]
    assert read(run_file([*LOGGED, *error, ends(1)])).ending == "ValueError: no more data"
    assert read(run_file([*LOGGED, *error])).ending == "ValueError: no more data"
    assert read(run_file([*LOGGED, *error, ends(0)])).ending == ""


def test_console_text_is_read_where_the_history_holds_no_metric() -> None:
    lines = [said(f"step:{k} - critic/score/mean:0.{k + 10} - actor/grad_norm:0.5\n") for k in range(30)]
    log = read(run_file([begins({"beta": 0.1}), history(0, {"setup_seconds": 3.0}), *lines]))
    assert values(log, "critic/score/mean")[4.0] == 0.14
    assert log.config == {"beta": 0.1}
    assert "console_inside" in codes(log)


def test_of_much_console_text_the_end_is_heard() -> None:
    chatter = said("\r 42%|####      | 42/100 [00:10<00:10]" * 20_000)
    records = [*LOGGED, *[chatter] * 40, said("\nTraceback (most recent call last):\nOSError: disk full\n"), ends(1)]
    begin = time.process_time()
    assert read(run_file(records)).ending == "OSError: disk full"
    assert time.process_time() - begin < 15


def test_arguments_and_hardware_of_the_environment() -> None:
    words = [b"--learning_rate", b"1e-6", b"trainer.nnodes=2"]
    about = b"".join(field(5, word) for word in words) + field(18, b"NVIDIA H100") + field(19, 8)
    log = read(run_file([begins({"beta": 0.1}), field(26, about), *LOGGED]))
    assert log.config == {"learning_rate": 1e-6, "trainer.nnodes": 2, "beta": 0.1}
    assert (log.facts["hardware"], log.facts["gpus"]) == ("NVIDIA H100", "8")
    ray = about + b"".join(field(5, word) for word in (b"--raylet-name=/tmp/x",))
    assert read(run_file([begins({"beta": 0.1}), field(26, ray), *LOGGED])).config == {"beta": 0.1}


def test_library_versions() -> None:
    log = read(run_file([field(11, field(4, b"3.11.7") + field(5, b"0.31.0") + field(6, b"5.24.0")), *LOGGED]))
    assert log.versions == {"python": "3.11.7", "transformers": "5.24.0"}


def test_files_of_one_run_are_joined_by_their_time(tmp_path: Path) -> None:
    first, second = tmp_path / "run-b.wandb", tmp_path / "run-a.wandb"
    first.write_bytes(run_file([begins({"lr": 1.0}), *(history(k, {"reward": 1.0 * k}) for k in range(30)), ends(1)]))
    later = [history(k, {"reward": 0.5 + k}) for k in range(20, 60)]
    second.write_bytes(run_file([begins({"lr": 2.0}, began=1.7e9 + 900), *later, ends(0)]))
    for order in ([first, second], [second, first]):
        log = read_run_files(order)
        assert (log.rows, log.ending, log.config) == (70, "", {"lr": 2.0})
        assert values(log, "reward") == {k: k for k in range(20)} | {k: 0.5 + k for k in range(20, 60)}
        assert log.seams[30].endswith("the step went back from 29 to 20")
    with pytest.raises(CannotRead, match="absent"):
        read_run_files([tmp_path / "absent"])
    swan = tmp_path / "run.swanlab"
    swan.write_bytes(run_file([scalar("reward", 1, 1.0)], SWANLAB))
    with pytest.raises(CannotRead, match="different trackers"):
        read_run_files([first, swan])


def test_several_runs_of_a_tracker_are_listed(tmp_path: Path) -> None:
    for name, level in (("run-20260101_1-a", 0.1), ("run-20260102_1-b", 0.9)):
        folder = tmp_path / "wandb" / name
        folder.mkdir(parents=True)
        rows = [history(k, {"train/reward": level, "train/grad_norm": 0.1 * k}) for k in range(20)]
        (folder / "run.wandb").write_bytes(run_file(rows))
    with pytest.raises(CannotRead, match="2 runs"):
        read_run([tmp_path])
    assert read_run([tmp_path], run="b")["reward.mean"].values[0] == 0.9


# SwanLab


SWAN = [scalar(key, k, float(value)) for k, row in enumerate(ROWS) for key, value in row.items()]  # type: ignore[arg-type]


def test_a_swanlab_file() -> None:
    odd = [scalar("train/kl", 40, NAN), scalar("train/kl", 41, -INF)]
    log = read(run_file([*SWAN, *odd], SWANLAB))
    assert (log.format, log.rows, log.nonfinite) == ("swanlab", 42, "kept")
    np.testing.assert_array_equal(log.series["train/kl"].values[:40], [row["train/kl"] for row in ROWS])
    assert np.isnan(log.series["train/kl"].values[40])
    assert log.series["train/kl"].values[41] == -INF


def test_series_of_the_machine_are_passed_over() -> None:
    column = field(12, field(1, 2) + field(2, 1) + field(3, b"gpu.0.memory"))
    log = read(run_file([column, scalar("gpu.0.memory", 1, 5.0), *SWAN], SWANLAB))
    assert set(log.series) == set(ROWS[0])


def test_a_restart_in_a_swanlab_run_is_seen(tmp_path: Path) -> None:
    paths = []
    for n, steps in enumerate((range(30), range(20, 50))):
        paths.append(tmp_path / f"run-{n}.swanlab")
        records = [
            field(2, moment(1.7e9 + 600 * n)) + scalar("reward", k, n + 1.0 * k, 1.7e9 + 600 * n + k) for k in steps
        ]
        paths[-1].write_bytes(run_file(records, SWANLAB))
    log = read_run_files(paths[::-1])
    assert list(log.seams) == [30]
    assert values(log, "reward") == {k: k for k in range(20)} | {k: 1.0 + k for k in range(20, 50)}


@pytest.mark.parametrize(("state", "error", "ending"), [
    (1, b"", ""), (2, b"Traceback\n  x\nRuntimeError: CUDA\n", "RuntimeError: CUDA"), (3, b"", "the run was aborted"),
])  # fmt: skip
def test_how_a_swanlab_run_ended(state: int, error: bytes, ending: str) -> None:
    end = field(11, field(1, state) + (field(2, error) if error else b""))
    assert read(run_file([*SWAN, end], SWANLAB)).ending == ending


def test_the_json_records_of_old_swanlab_files() -> None:
    records = [
        json.dumps({"model_type": "Scalar", "data": {"key": key, "step": k, "metric": {"data": value}}}).encode()
        for k, row in enumerate([*ROWS, {"train/kl": "NaN"}])
        for key, value in row.items()
    ]
    log = read(run_file([b'{"model_type": "Header", "data": {}}', *records], b":SWL\xd6\xe1\x00"))
    assert values(log, "train/kl")[7.0] == ROWS[7]["train/kl"]
    assert np.isnan(log.series["train/kl"].values[-1])


# Damage


@pytest.mark.parametrize("data", [SEALED, run_file(SWAN, SWANLAB)])
def test_a_file_cut_anywhere_gives_what_is_whole(data: bytes) -> None:
    whole = sum(len(one.values) for one in read(data).series.values())
    for cut in [*range(len(data), len(data) - 100, -1), *range(len(data) - 100, 0, -97)]:
        try:
            log = read(data[:cut])
        except CannotRead:
            assert cut < 500
            continue
        got = sum(len(one.values) for one in log.series.values())
        assert got >= whole - 4 - (len(data) - cut) // 12
        assert codes(log) <= {"torn_record"}
        for step, value in values(log, "train/reward").items():
            assert value == ROWS[int(step)]["train/reward"]


@given(st.integers(0, 10_000), st.integers(0, 7))
@settings(max_examples=80, deadline=None)
def test_a_bit_turned_over_never_changes_a_value(place: int, bit: int) -> None:
    data = bytearray(SEALED)
    data[7 + place % (len(data) - 7)] ^= 1 << bit
    log = read(bytes(data))
    assert log.rows >= 38
    for step, value in values(log, "train/reward").items():
        assert value == ROWS[int(step)]["train/reward"]
    assert codes(log) & {"damaged_records", "torn_record"}


def test_reading_goes_on_at_the_block_behind_damage() -> None:
    long = [history(k, {**row, "note": "x" * 2_000}) for k, row in enumerate(ROWS * 5)]
    data = bytearray(run_file(long))
    data[70_000:70_100] = b"\xee" * 100
    log = read(bytes(data))
    assert 200 - 3 <= log.rows < 200
    assert "damaged_records" in codes(log)
    assert log.steps[-1] == 199


def test_a_record_over_several_blocks_that_loses_a_piece_is_left_out() -> None:
    big = history(20, {**ROWS[20], "note": "x" * 150_000})
    data = bytearray(run_file([*LOGGED[:20], big, *LOGGED[21:]]))
    data[70_000] ^= 1
    log = read(bytes(data))
    assert log.rows == 39
    assert 20 not in log.steps


@given(st.binary(max_size=300), st.sampled_from([WANDB, SWANLAB, SEALED[:2_000]]))
@settings(max_examples=80, deadline=None)
def test_noise_is_a_refusal_or_a_log(noise: bytes, start: bytes) -> None:
    try:
        log = read(start + noise)
    except CannotRead:
        return
    assert log.rows


@given(st.binary(max_size=200), st.sampled_from([2, 5, 7, 11, 12, 13, 17, 18, 26]))
@settings(max_examples=60, deadline=None)
def test_noise_in_a_record_is_passed_over(noise: bytes, number: int) -> None:
    for magic, good in ((WANDB, LOGGED), (SWANLAB, SWAN)):
        assert read(run_file([field(number, noise), *good], magic)).rows >= 40


def test_a_file_without_a_metric_is_refused() -> None:
    for data in (run_file([begins({"beta": 0.1})]), run_file([]), run_file([], SWANLAB), WANDB, SEALED[:8]):
        with pytest.raises(CannotRead, match="without a training metric"):
            read(data)


def test_damage_without_end_is_passed_over_soon() -> None:
    for filler in (b"\0", b"\xff", b"\0\0\0\0\x01\0\x01x"):
        begin = time.process_time()
        assert read(SEALED + filler * ((3 << 20) // len(filler))).rows == 40
        assert time.process_time() - begin < 20


# Real writers, each in a process of its own so that nothing of it stays

_WANDB = """
import os, sys, math, wandb
run = wandb.init(project="p", dir=sys.argv[1], config={"learning_rate": 1e-6, "actor": {"kl": 0.1}},
                 settings=wandb.Settings(x_disable_stats=True, console="off"))
odd = {5: math.nan, 6: math.inf, 7: -math.inf}
for k in range(30):
    run.log({"train/reward": 0.1 * k, "train/global_step": 10 * k, "nest": {"a": {"b": k}}}, commit=False)
    run.log({"train/kl": odd.get(k, 0.5 * k)})
    if k == 10:
        run.config.update({"learning_rate": 5e-6}, allow_val_change=True)
    if k == 12:
        run.log({"answers": wandb.Table(columns=["p"], data=[["a"]])}, commit=False)
run.finish(exit_code=3)
"""
_SWANLAB = """
import sys, math, swanlab
swanlab.init(project="p", mode=sys.argv[2], logdir=sys.argv[1], config={"learning_rate": 1e-6})
odd = {5: math.nan, 6: math.inf, 7: -math.inf}
for k in range(30):
    swanlab.log({"train/reward": 0.1 * k, "nest": {"a": {"b": k}}, "train/kl": odd.get(k, 0.5 * k)}, step=2 * k)
swanlab.finish()
"""
ODD = {5: NAN, 6: INF, 7: -INF}


def run_alone(code: str, *words: str) -> None:
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr[-2000:]


@pytest.mark.libraries
def test_what_wandb_writes(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run_alone(_WANDB, str(tmp_path))
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    log = read_log(path)
    assert (log.rows, log.step_source) == (30, "train/global_step")
    np.testing.assert_array_equal(log.steps, 10.0 * np.arange(30))
    np.testing.assert_array_equal(log.series["train/kl"].values, [ODD.get(k, 0.5 * k) for k in range(30)])
    np.testing.assert_array_equal(log.series["train/reward"].values, [0.1 * k for k in range(30)])
    np.testing.assert_array_equal(log.series["nest/a/b"].values, np.arange(30.0))
    assert log.config == {"learning_rate": 5e-6, "actor.kl": 0.1}
    assert log.seams == {11: "the configuration changed: learning_rate 1e-06 -> 5e-06"}
    assert log.ending == "exit code 3"
    assert any("answers" in warn.says for warn in log.warnings)


@pytest.mark.libraries
@pytest.mark.parametrize("mode", ["offline", "local"])
def test_what_swanlab_writes(tmp_path: Path, mode: str) -> None:
    pytest.importorskip("swanlab")
    run_alone(_SWANLAB, str(tmp_path / "log"), mode)
    (path,) = tmp_path.glob("log/run-*/*.swanlab")
    log = read_log(path)
    np.testing.assert_array_equal(log.steps, 2.0 * np.arange(30))
    np.testing.assert_array_equal(log.series["train/kl"].values, [ODD.get(k, 0.5 * k) for k in range(30)])
    np.testing.assert_array_equal(log.series["train/reward"].values, [0.1 * k for k in range(30)])
    np.testing.assert_array_equal(log.series["nest/a/b"].values, np.arange(30.0))
    assert log.ending == ""
