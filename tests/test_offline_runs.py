"""Runs that trackers keep on disk to upload them later, and whole runs in one archive."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import tarfile
import textwrap
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rlclinic.errors import CannotRead
from rlclinic.model import Run
from rlclinic.readers import read
from rlclinic.readers.log import read_log
from rlclinic.readers.rows import Log
from rlclinic.readers.stores.offline import is_dvclive, read_dvclive

ODD = {3: math.nan, 4: math.inf, 5: -math.inf}


def event(title: str, series: str, step: int, value: float, kind: str = "training_stats_scalar") -> dict[str, object]:
    held = {"timestamp": 1_796_008_439_000 + step, "type": kind, "task": "t", "iter": step}
    return {**held, "metric": title, "variant": series, "value": value, "method": "get"}


def clearml(folder: Path) -> Path:
    """An offline session as ClearML writes it: events gathered in lists, NaN already made 0."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [[event("train", "reward", k, 0.1 * k), event("train", "grad_norm", k, 0.0)] for k in range(30)]
    lines.append([event("eval", "reward", 29, 0.7), event("Summary", "train_loss", -(2**31), 0.3)])
    lines.append([event(":monitor:gpu", "gpu_0_utilization", 5, 99.0), event("plots", "x", 5, 1.0, "plot")])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '[{"timest')
    task = {"name": "grpo-a", "hyperparams": {"Args": {"nested/lr": {"value": "1e-06"}, "beta": {"value": "0.0"}}}}
    (folder / "task.json").write_text(json.dumps(task))
    return folder / "metrics.jsonl"


def check_clearml(log: Log) -> None:
    assert (log.format, log.rows, log.nonfinite) == ("clearml", 30, "filtered")
    assert set(log.series) == {"train/reward", "train/grad_norm", "eval/reward"}
    np.testing.assert_array_equal(log.series["train/reward"].values, [0.1 * k for k in range(30)])
    assert log.config == {"nested.lr": 1e-6, "beta": 0.0}
    assert log.facts == {"run": "grpo-a"}
    assert {warn.code for warn in log.warnings} == {"nan_as_zero", "broken_lines"}


def test_a_clearml_session_as_a_file_and_as_an_archive(tmp_path: Path) -> None:
    file = clearml(tmp_path / "session")
    check_clearml(read_log(file))
    with zipfile.ZipFile(tmp_path / "session.zip", "w") as archive:
        archive.write(file, "metrics.jsonl")
        archive.write(file.with_name("task.json"), "task.json")
    check_clearml(read_log(tmp_path / "session.zip"))
    assert read([tmp_path / "session.zip"]).columns["reward.mean"].values[-1] == pytest.approx(2.9)


@pytest.mark.parametrize("task", ["", "[]", '{"hyperparams": 7, "name": 8}', '{"hyperparams": {"a": [1]}}', "{" * 9000])
def test_a_clearml_session_beside_a_strange_task(tmp_path: Path, task: str) -> None:
    file = clearml(tmp_path)
    file.with_name("task.json").write_text(task)
    log = read_log(file)
    assert (log.rows, log.config, log.facts) == (30, {}, {})


def dvclive(folder: Path) -> Path:
    for split, many in (("train", 12), ("eval", 4)):
        place = folder / "plots" / "metrics" / split
        place.mkdir(parents=True)
        (place / "reward.tsv").write_text("step\treward\n" + "".join(f"{k}\t{0.1 * k}\n" for k in range(many)))
    held = "".join(f"{1_796_008_451_000 + k}\t{k}\t{ODD.get(k, 0.5)}\n" for k in range(12))
    (folder / "plots/metrics/train/grad_norm.tsv").write_text("timestamp\tstep\tgrad_norm\n" + held)
    (folder / "params.yaml").write_text("learning_rate: 1.0e-06\nnested:\n  beta: 0.0\n")
    (folder / "metrics.json").write_text("{}")
    return folder


def test_tables_of_one_name_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    assert not is_dvclive(tmp_path)
    folder = dvclive(tmp_path / "dvclive")
    assert is_dvclive(folder)
    log = read_dvclive(folder)
    assert (log.format, log.rows, log.nonfinite) == ("dvclive", 12, "kept")
    np.testing.assert_array_equal(log.series["train/grad_norm"].values, [ODD.get(k, 0.5) for k in range(12)])
    assert len(log.series["eval/reward"].values) == 4
    for place in (folder, tmp_path):
        run = read([place])
        assert run.knobs["learning_rate"].value == 1e-6
        assert list(run.evaluations) == ["eval/reward"]
        assert len(run.columns["reward.mean"]) == 12


def test_damaged_tables(tmp_path: Path) -> None:
    place = dvclive(tmp_path) / "plots" / "metrics" / "train"
    with (place / "reward.tsv").open("a") as file:
        file.write("one\ttwo\tthree\nx\ty\n99\t0.")
    (place / "other.tsv").write_text("a\tb\n1\t2\n")
    (place / "empty.tsv").write_text("")
    log = read_dvclive(tmp_path)
    assert log.steps.max() == 11
    assert "torn_record" in {warn.code for warn in log.warnings}


@pytest.mark.parametrize(("folder", "word"), [(".aim", "aim"), (".neptune", "Neptune")])
def test_what_can_only_be_recognised_says_what_to_do(tmp_path: Path, folder: str, word: str) -> None:
    (tmp_path / folder / "meta").mkdir(parents=True)
    for place in (tmp_path, tmp_path / folder):
        with pytest.raises(CannotRead) as said:
            read([place])
        assert word in said.value.hint


# ---------------------------------------------------------------- a whole run in one archive


def run_folder(top: Path, name: str = "run", shift: float = 0.0) -> Path:
    """A run as TRL leaves it: trainer state, configuration, weights."""
    folder = top / name
    (folder / "checkpoint-60").mkdir(parents=True)
    history = [{"step": k, "reward": 0.01 * k + shift, "loss": 0.1, "grad_norm": 0.5 + 0.01 * k} for k in range(1, 61)]
    state = {"global_step": 60, "max_steps": 60, "log_history": history}
    (folder / "checkpoint-60" / "trainer_state.json").write_text(json.dumps(state))
    (folder / "checkpoint-60" / "model.safetensors").write_bytes(b"\0" * 5000)
    (folder / "args.json").write_text('{"learning_rate": 1e-6, "num_generations": 8}')
    (folder / "readme.md").write_text("text")
    return folder


def packed(folder: Path, form: str) -> Path:
    target = folder.parent / f"packed{form}"
    if form == ".zip":
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for one in sorted(folder.rglob("*")):
                archive.write(one, one.relative_to(folder.parent))
    else:
        mode = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz", ".tar.bz2": "w:bz2"}[form]
        with tarfile.open(target, mode) as tar:
            tar.add(folder, folder.name)
    return target


def told(run: Run) -> tuple[object, ...]:
    return sorted(run.columns), sorted((k, knob.value) for k, knob in run.knobs.items()), run.planned_steps, run.kind


@pytest.mark.parametrize("form", [".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2"])
def test_a_packed_run_is_the_run(tmp_path: Path, form: str) -> None:
    folder = run_folder(tmp_path)
    archive = packed(folder, form)
    found, wanted = read([archive]), read([folder])
    assert told(found) == told(wanted)
    np.testing.assert_array_equal(found.columns["reward.mean"].values, wanted.columns["reward.mean"].values)
    assert all(source.path.startswith(str(archive)) for source in found.sources)
    assert all(Path(source.path).name for source in found.sources)


def test_several_runs_in_one_archive(tmp_path: Path) -> None:
    both = tmp_path / "both"
    run_folder(both, "seed1")
    run_folder(both, "seed2", 0.3)
    archive = packed(both, ".tar.gz")
    with pytest.raises(CannotRead) as several:
        read([archive])
    assert "rlclinic-" not in several.value.message()
    assert several.value.hint.startswith(f"rlclinic diagnose {archive} --run ")
    name = several.value.choices[1]
    assert read([archive], run=name).columns["reward.mean"].values[0] == pytest.approx(0.31)


def member(
    name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, link
    return info, data


TRAPS = {
    "absolute": [member("/tmp/metrics.jsonl")],
    "climbing": [member("a/../../../metrics.jsonl")],
    "endless folders": [member("/".join("a" * 40) + "/metrics.jsonl")],
    "links": [
        member("metrics.jsonl", b"", tarfile.SYMTYPE, "/etc/passwd"),
        member("b", b"", tarfile.LNKTYPE, "/etc/passwd"),
    ],
    "a pipe": [member("metrics.jsonl", b"", tarfile.FIFOTYPE)],
    "a device": [member("metrics.jsonl", b"", tarfile.CHRTYPE)],
    "a file and a folder of one name": [member("a"), member("a/b"), member("a/b/c")],
    "nothing": [],
}


@pytest.mark.parametrize("members", TRAPS.values(), ids=TRAPS.keys())
def test_traps_in_tar_files(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    began = time.monotonic()
    with pytest.raises(CannotRead):
        read([tmp_path / "x.tar"])
    assert time.monotonic() - began < 10
    assert [one.name for one in tmp_path.iterdir()] == ["x.tar"]


@pytest.mark.parametrize("form", [".zip", ".tar.gz", ".tar.xz", ".tar"])
@pytest.mark.parametrize("keep", [0.3, 0.6])
def test_half_an_archive_is_one_error(tmp_path: Path, form: str, keep: float) -> None:
    archive = packed(run_folder(tmp_path), form)
    data = archive.read_bytes()
    archive.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(CannotRead) as said:
        read([archive])
    assert "rlclinic-" not in said.value.message()


# ---------------------------------------------------------------- the trackers themselves


def wrote(code: str, folder: Path, **env: str) -> None:
    held = {**os.environ, "HOME": str(folder), **env}
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=True,
        env=held,
        cwd=folder,
        timeout=120,
        capture_output=True,
    )


@pytest.mark.libraries
def test_what_clearml_writes(tmp_path: Path) -> None:
    pytest.importorskip("clearml")
    code = """
        from clearml import Task
        Task.set_offline(True)
        task = Task.init(project_name="p", task_name="one", auto_connect_frameworks=False, auto_connect_arg_parser=False,
            auto_resource_monitoring=False, auto_connect_streams=False)
        task.connect({"learning_rate": 1e-6}, name="Args")
        for step in range(12):
            task.get_logger().report_scalar("train", "reward", 0.1 * step, step)
            task.get_logger().report_scalar("train", "grad_norm", {3: float("nan")}.get(step, 0.5), step)
        task.close()
    """
    wrote(code, tmp_path, CLEARML_CACHE_DIR=str(tmp_path))
    log = read_log(next(tmp_path.rglob("*.zip")))
    np.testing.assert_allclose(log.series["train/reward"].values, [0.1 * k for k in range(12)])
    assert log.series["train/grad_norm"].values[3] == 0
    assert (log.nonfinite, log.config["learning_rate"]) == ("filtered", 1e-6)


@pytest.mark.libraries
def test_what_dvclive_writes(tmp_path: Path) -> None:
    pytest.importorskip("dvclive")
    code = """
        from dvclive import Live
        with Live("dvclive", dvcyaml=False, save_dvc_exp=False, report=None) as live:
            live.log_params({"learning_rate": 1e-6})
            for step in range(12):
                live.log_metric("train/reward", 0.1 * step)
                live.log_metric("train/grad_norm", {3: float("nan"), 4: float("inf"), 5: -float("inf")}.get(step, 0.5))
                live.next_step()
    """
    wrote(code, tmp_path)
    log = read_dvclive(tmp_path / "dvclive")
    np.testing.assert_array_equal(log.steps, np.arange(12))
    np.testing.assert_array_equal(log.series["train/grad_norm"].values, [ODD.get(k, 0.5) for k in range(12)])
    np.testing.assert_array_equal(log.series["train/reward"].values, [0.1 * k for k in range(12)])
    assert log.config == {"learning_rate": 1e-6}
