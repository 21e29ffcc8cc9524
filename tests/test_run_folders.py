"""Folders beside and inside that of a run: evaluations, parts, other runs, environments; and a run packed as one file."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from containers import trackio_database
from rlclinic.errors import CannotRead
from rlclinic.model import Run
from rlclinic.readers import read
from test_directories import Row, cloud, events, expected, jsonl, names_of, rewards, rows, said, state, tagged


def scores(level: float = 0.7, every: int = 10) -> list[Row]:
    return [{"step": k, "reward": level + k / 1000} for k in range(every, 41, every)]


# ------------------------------------------------------------------------------------------ folders of evaluations


@pytest.mark.parametrize("name", ["eval", "validation", "val", "test"])
@pytest.mark.parametrize("training", ["train", ""])
def test_a_folder_of_evaluations_is_held_out(tmp_path: Path, name: str, training: str) -> None:
    events(tmp_path / "tb" / training, rows())
    events(tmp_path / "tb" / name, scores())
    run = read([tmp_path / "tb"])
    assert rewards(run) == pytest.approx(expected(rows()), abs=1e-6)
    assert list(run.evaluations) == ["eval/reward"]
    assert list(run["eval.score"].values) == pytest.approx([0.71, 0.72, 0.73, 0.74])


@pytest.mark.parametrize("order", [1, -1])
def test_both_folders_as_two_sources(tmp_path: Path, order: int) -> None:
    both = [tmp_path / "train", tmp_path / "eval"]
    files = [events(both[0], rows()), events(both[1], scores())]
    assert list(read(both[::order]).evaluations) == ["eval/reward"]
    run = read(files[::order])
    assert list(run.evaluations) == ["eval/reward"]
    assert rewards(run) == pytest.approx(expected(rows()), abs=1e-6)


def test_evaluations_beside_the_state_of_the_trainer(tmp_path: Path) -> None:
    state(tmp_path / "trainer_state.json", rows())
    events(tmp_path / "eval", scores())
    run = read([tmp_path])
    assert rewards(run) == expected(rows())
    assert list(run.evaluations) == ["eval/reward"]


def test_a_training_in_a_folder_called_test_is_a_run(tmp_path: Path) -> None:
    events(tmp_path / "train", rows(seed=1))
    events(tmp_path / "test", rows(seed=2))
    with pytest.raises(CannotRead, match="2 runs") as several:
        read([tmp_path])
    assert set(several.value.choices) == {"train", "test"}
    assert rewards(read([tmp_path], run="test")) == pytest.approx(expected(rows(seed=2)), abs=1e-6)


# ------------------------------------------------------------------------------------------------- runs and parts


def halves(top: Path, second: int = 21, group: int = 8) -> None:
    state(top / "part1" / "trainer_state.json", rows(last=20))
    state(top / "part2" / "trainer_state.json", rows(first=second))
    (top / "part1" / "config.yaml").write_text("learning_rate: 1.0e-6\nnum_generations: 8\n")
    (top / "part2" / "config.yaml").write_text(f"learning_rate: 5.0e-6\nnum_generations: {group}\n")


def test_parts_in_folders_that_follow_each_other_are_joined(tmp_path: Path) -> None:
    halves(tmp_path)
    run = read([tmp_path])
    assert rewards(run) == expected(rows())
    assert "1e-06 in part1/config.yaml, 5e-06 in part2/config.yaml" in said(run)


@pytest.mark.parametrize(("second", "group"), [(15, 8), (25, 8), (21, 16)])
def test_folders_that_are_not_plainly_parts_are_asked_for(tmp_path: Path, second: int, group: int) -> None:
    halves(tmp_path, second, group)
    with pytest.raises(CannotRead) as asked:
        read([tmp_path])
    assert asked.value.choices == ("part1", "part2")
    assert f"rlclinic diagnose {tmp_path} --run part1" in asked.value.hint
    assert f"rlclinic diagnose {tmp_path}/part1 {tmp_path}/part2" in asked.value.hint


def test_the_title_does_not_hang_on_the_order(tmp_path: Path) -> None:
    halves(tmp_path / "long_run")
    both = [tmp_path / "long_run" / "part1", tmp_path / "long_run" / "part2"]
    assert read(both).name == read(both[::-1]).name == "long_run"


def test_a_collection_of_runs_is_listed(tmp_path: Path) -> None:
    for k, name in enumerate(("one.jsonl", "two.jsonl", "three.jsonl")):
        jsonl(tmp_path / name, rows(seed=k))
    for k, name in enumerate(("a", "b", "c")):
        jsonl(tmp_path / name / "metrics.jsonl", rows(seed=10 + k))
    with pytest.raises(CannotRead, match="3 folders with runs of their own") as listed:
        read([tmp_path])
    assert listed.value.choices == ("a", "b", "c")
    assert rewards(read([tmp_path], run="b")) == expected(rows(seed=11))


def test_runs_below_a_run_are_told_in_one_line(tmp_path: Path) -> None:
    state(tmp_path / "trainer_state.json", rows())
    for k, name in enumerate(("a", "b", "c")):
        jsonl(tmp_path / name / "metrics.jsonl", rows(seed=10 + k))
    assert "3 folders with runs of their own, name one to read it: a, b, c" in said(read([tmp_path]))


def test_which_run_of_a_database_is_joined_and_which_is_not(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows())
    path = trackio_database(tmp_path / "both.db", tagged(rows()), run="mine")
    (tmp_path / "node_modules").mkdir()
    second = trackio_database(tmp_path / "node_modules" / "second.db", tagged(rows(seed=5)), run="other")
    with closing(sqlite3.connect(path)) as db:
        db.execute("ATTACH ? AS second", (str(second),))
        db.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics, log_id)"
            " SELECT 'b', timestamp, run_name, step, metrics, log_id || 'b' FROM second.metrics"
        )
        db.commit()
    text = said(read([tmp_path]))
    assert "run other of both.db disagrees with metrics.jsonl" in text
    assert "run mine of it is joined" in text


def test_a_name_that_a_tracker_shows_names_the_run(tmp_path: Path) -> None:
    cloud(tmp_path, rows(seed=1), "000001-aaaa")
    cloud(tmp_path, rows(seed=2), "000002-bbbb")
    with pytest.raises(CannotRead) as several:
        read([tmp_path])
    for offered in several.value.choices:
        assert len(read([tmp_path], run=offered)["reward.mean"]) == 40
    assert several.value.hint == f"rlclinic diagnose {tmp_path} --run aaaa"


# ------------------------------------------------------------------------------------- endings, versions, left files


def test_how_a_run_ended_is_told_by_its_last_part(tmp_path: Path) -> None:
    lines = [str({key: value for key, value in row.items() if key != "step"}) for row in rows(last=15)]
    (tmp_path / "first.log").write_text("\n".join([*lines, "Traceback (most recent call last):", "ValueError: broken"]))
    jsonl(tmp_path / "metrics.jsonl", rows(last=40))
    first, whole = tmp_path / "first.log", tmp_path / "metrics.jsonl"
    assert "ValueError" in read([first]).ending
    assert read([whole, first]).ending == ""


@pytest.mark.parametrize(
    ("wanted", "version"), [("trl==0.20.0", "0.20.0"), ("trl==0.1.0", None), ("verl==0.5.0", None)]
)
def test_installed_packages_settle_the_version(tmp_path: Path, wanted: str, version: str | None) -> None:
    given = [{**row, "completions/clipped_ratio": 0.0, "frac_reward_zero_std": 0.0} for row in rows()]
    place = cloud(tmp_path, given, "000001-aaaa").parent / "files"
    place.mkdir()
    (place / "requirements.txt").write_text(f"numpy==2.0.0\n{wanted}\n")
    framework = read([tmp_path]).framework
    assert framework is not None
    assert (framework.name, framework.version) == ("trl", version)


def test_what_is_left_is_told_by_path_and_once(tmp_path: Path) -> None:
    for k in range(10, 70, 10):
        state(tmp_path / f"checkpoint-{k}" / "trainer_state.json", rows(last=k))
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    run = read([tmp_path])
    text = said(run)
    assert text.count("an earlier checkpoint of the same run") == 1
    assert "checkpoint-40/trainer_state.json" in text
    assert "config.json: that of the model, not of the training" in text
    assert "configuration" not in [source.role for source in run.sources]


def test_a_pickle_named_directly_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "training_args.bin").write_bytes(b"some text\n")
    with pytest.raises(CannotRead, match="weights or a pickle, never opened"):
        read([tmp_path / "training_args.bin"])


# ------------------------------------------------------------------------------------------------------- archives


def packed(top: Path) -> Path:
    path = top.parent / "packed.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for one in sorted(top.rglob("*")):
            if one.is_file():
                archive.write(one, one.relative_to(top.parent))
    return path


def told(run: Run) -> tuple[object, ...]:
    series = {name: (column.key, tuple(column.steps), tuple(column.values)) for name, column in run.columns.items()}
    left = [(one.code, one.says) for one in run.warnings]
    return series, left, names_of(run), [one.step for one in run.checkpoints], run.knobs, run.framework


def test_a_packed_directory_is_the_run_of_the_directory(tmp_path: Path) -> None:
    top = tmp_path / "out"
    for k in (10, 20, 40):
        state(top / f"checkpoint-{k}" / "trainer_state.json", rows(last=k))
        (top / f"checkpoint-{k}" / "model.safetensors").write_bytes(b"x" * 100)
    (top / "checkpoint-30").mkdir()
    (top / "checkpoint-30" / "model.safetensors").write_bytes(b"x" * 100)
    (top / "training_args.bin").write_bytes(b"x")
    plain = read([top])
    run = read([packed(top)])
    assert told(run) == told(plain)
    assert [one.path for one in run.checkpoints] == [
        f"{tmp_path}/packed.zip/out/checkpoint-{k}" for k in (10, 20, 30, 40)
    ]
    assert set(os.listdir(tmp_path)) == {"out", "packed.zip"}


def test_runs_of_an_archive_have_the_names_of_the_folder(tmp_path: Path) -> None:
    top = tmp_path / "sweep"
    for k in (1, 2):
        state(top / f"seed{k}" / "trainer_state.json", rows(seed=k))
    path = packed(top)
    shutil.rmtree(top)
    with pytest.raises(CannotRead) as several:
        read([path])
    assert several.value.choices == ("seed1", "seed2")
    assert several.value.hint == f"rlclinic diagnose {path} --run seed1"
    for name in ("seed2", "sweep/seed2"):
        assert rewards(read([path], run=name)) == expected(rows(seed=2))


def test_rows_of_an_evaluation_do_not_move_the_training(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows())
    (tmp_path / "notes.json").write_text(json.dumps({"about": "nothing"}))
    events(tmp_path / "eval", scores(level=5.0))
    assert float(np.max(read([tmp_path])["reward.mean"].values)) < 1
