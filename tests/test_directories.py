"""Directories as users have them: everything of one run is found, nothing of another, and what is left is said."""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from containers import field, framed, mlflow_tree, trackio_database, wandb_file
from rlclinic.errors import CannotRead
from rlclinic.model import Run
from rlclinic.readers import read, rundir

Row = dict[str, float]


def rows(first: int = 1, last: int = 40, seed: int = 0, level: float = 0.4) -> list[Row]:
    """Rows of a TRL run; runs of another seed differ in every step."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 0.03, (1000, 4))
    return [
        {
            "step": k,
            "loss": round(float(noise[k, 0]), 4),
            "grad_norm": 0.5 + float(noise[k, 1]),
            "learning_rate": 1e-6,
            "reward": level + float(noise[k, 2]),
            "reward_std": 0.2,
            "completions/mean_length": 200 + 100 * float(noise[k, 3]),
            "epoch": k / 100,
        }
        for k in range(first, last + 1)
    ]


def jsonl(path: Path, given: Iterable[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


def state(path: Path, given: Iterable[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    history = list(given)
    path.write_text(json.dumps({"global_step": history[-1]["step"], "max_steps": 100, "log_history": history}))
    return path


def tagged(given: Iterable[Row]) -> list[tuple[int, Row]]:
    return [(int(row["step"]), {f"train/{k}": v for k, v in row.items() if k != "step"}) for row in given]


def events(folder: Path, given: Iterable[Row], stamp: int = 1_700_000_000) -> Path:
    """An event file whose first value was logged at ``stamp``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{stamp}.host.1.0"
    told = tagged(given)
    data = b"".join(framed(field(1, float(stamp + at - told[0][0])) + _scalars(at, row)) for at, row in told)
    path.write_bytes(framed(field(1, float(stamp)) + field(3, b"brain.Event:2")) + data)
    return path


def _scalars(step: int, row: Row) -> bytes:
    values = b"".join(field(1, field(1, tag.encode()) + field(2, value, 5)) for tag, value in map(_float, row.items()))
    return field(2, step) + field(5, values)


def _float(item: tuple[str, float]) -> tuple[str, float]:
    return item[0], float(item[1])


def cloud(top: Path, given: Iterable[Row], name: str, settings: dict[str, object] | None = None) -> Path:
    folder = top / "wandb" / f"run-20260101_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    told = [(at, {**row, "train/global_step": float(at)}) for at, row in tagged(given)]
    path = folder / f"run-{name.rpartition('-')[2]}.wandb"
    path.write_bytes(wandb_file(told, settings))
    return path


def names_of(run: Run, role: str = "metrics") -> list[str]:
    return [Path(source.path).name for source in run.sources if source.role == role]


def said(run: Run) -> str:
    return "\n".join(warn.says for warn in run.warnings)


def rewards(run: Run) -> list[float]:
    return [round(float(v), 6) for v in run["reward.mean"].values]


def expected(given: Iterable[Row]) -> list[float]:
    return [round(row["reward"], 6) for row in given]


# ---------------------------------------------------------------------------------------------- layouts of trainers


def test_output_directory_of_trl(tmp_path: Path) -> None:
    for step in (20, 40):
        state(tmp_path / f"checkpoint-{step}" / "trainer_state.json", rows(last=step))
        (tmp_path / f"checkpoint-{step}" / "training_args.bin").write_bytes(b"\x80\x02}")
    events(tmp_path / "runs" / "Nov30_02-31-57_host", rows())
    (tmp_path / "completions").mkdir()
    for step in (1, 2, 3):
        (tmp_path / "completions" / f"completions_{step:05d}.parquet").write_bytes(b"PAR1")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", "architectures": ["Q"], "temperature": 9}))
    (tmp_path / "training_args.json").write_text(json.dumps({"num_generations": 8, "learning_rate": 1e-6}))
    (tmp_path / "README.md").write_text("a model")
    run = read([tmp_path])
    assert rewards(run) == pytest.approx(expected(rows()), abs=1e-6)
    assert run.knob("group_size") == 8
    assert run.knob("temperature") != 9
    assert [saved.step for saved in run.checkpoints] == [20, 40]
    assert any("completions_00001.parquet" in warn.says for warn in run.warnings)  # it is no whole Parquet file
    assert names_of(run, "configuration") == ["training_args.json"]
    assert "trainer_state.json" in names_of(run)


@pytest.mark.parametrize(
    "place",
    [
        "metrics.jsonl",
        "outputs/2026-11-30/12-00-00/metrics.jsonl",
        "logs/exp_001/metrics.jsonl",
        "saves/qwen/lora/metrics.jsonl",
        "v0-20261130-120000/logging.jsonl",
        "log/project/exp.jsonl",
    ],
)
def test_one_log_is_found_wherever_a_trainer_puts_it(tmp_path: Path, place: str) -> None:
    jsonl(tmp_path / place, rows())
    (tmp_path / "notes.md").write_text("warm up")
    assert rewards(read([tmp_path])) == expected(rows())


def test_settings_of_hydra_lie_in_a_hidden_folder(tmp_path: Path) -> None:
    run_folder = tmp_path / "outputs" / "2026-11-30" / "12-00-00"
    jsonl(run_folder / "metrics.jsonl", rows())
    (run_folder / ".hydra").mkdir()
    (run_folder / ".hydra" / "config.yaml").write_text("num_generations: 8\nbeta: 0.04\n")
    (run_folder / ".hydra" / "overrides.yaml").write_text("- beta=0.04\n- num_generations=8\n")
    (run_folder / ".hydra" / "hydra.yaml").write_text("hydra:\n  job:\n    name: beta\n")
    run = read([tmp_path])
    assert (run.knob("group_size"), run.knob("kl_coef")) == (8, 0.04)


def test_two_processes_of_one_run_complete_each_other(tmp_path: Path) -> None:
    given = rows()
    jsonl(
        tmp_path / "outputs" / "trainer" / "metrics.jsonl",
        [{"step": r["step"], "loss": r["loss"], "grad_norm": r["grad_norm"]} for r in given],
    )
    jsonl(
        tmp_path / "outputs" / "orchestrator" / "metrics.jsonl",
        [{"step": r["step"], "reward": r["reward"]} for r in given],
    )
    run = read([tmp_path])
    assert rewards(run) == expected(given)
    assert "grad.norm" in run


def test_saved_answers_are_read_beside_a_log_and_alone(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows())
    for step in range(1, 30):
        answers = [
            {"prompt": f"{k}+2", "completion": "4", "reward": float(k == m), "step": step}
            for k in (1, 2)
            for m in (1, 2)
        ]
        (tmp_path / "dumps").mkdir(exist_ok=True)
        (tmp_path / "dumps" / f"{step}.jsonl").write_text("".join(json.dumps(a) + "\n" for a in answers))
    run = read([tmp_path])
    assert names_of(run) == ["metrics.jsonl"]
    alone = read([tmp_path / "dumps"])
    for one in (run, alone):
        (table,) = one.rollouts
        assert (len(table), table.groups, table.files, len(table.steps)) == (116, 58, 29, 29)
        assert len(names_of(one, "rollouts")) == 1
    assert not alone.columns


def test_saved_answers_of_another_run_below_stay_there(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows())
    jsonl(tmp_path / "second" / "metrics.jsonl", rows())
    for folder, word in (("", "mine"), ("second", "other")):
        answers = [{"prompt": "1+2", "completion": word, "reward": float(k), "step": 1} for k in range(2)]
        jsonl(tmp_path / folder / "rollouts" / "1.jsonl", answers)
    (table,) = read([tmp_path]).rollouts
    assert {text.answer for text in table.texts.values()} == {"mine"}


def test_saved_answers_in_an_archive_and_on_standard_input(tmp_path: Path) -> None:
    answers = [{"prompt": "1+2", "completion": str(k), "reward": float(k), "step": 1} for k in range(2)]
    packed = tmp_path / "run.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("run/metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows()))
        archive.writestr("run/rollouts/1.jsonl", "".join(json.dumps(one) + "\n" for one in answers))
    run = read([packed])
    (table,) = run.rollouts
    assert len(table) == 2
    assert table.source.startswith(str(packed))
    piped = read(["-"], stdin="".join(json.dumps(one) + "\n" for one in answers * 20).encode())
    assert (len(piped.rollouts[0]), piped.rollouts[0].source.startswith("-")) == (40, True)
    assert piped.partial


def test_totals_and_results_of_a_harness_are_no_course_of_training(tmp_path: Path) -> None:
    state(tmp_path / "trainer_state.json", rows())
    (tmp_path / "all_results.json").write_text(
        json.dumps({"train_loss": 0.1, "eval_reward": 0.9, "train_runtime": 3.0})
    )
    (tmp_path / "results_2026-11-30T12-00-00.json").write_text(
        json.dumps({"results": {"gsm8k": {"acc": 0.5}}, "versions": {}})
    )
    run = read([tmp_path])
    assert sorted(names_of(run, "evaluation")) == ["all_results.json", "results_2026-11-30T12-00-00.json"]
    assert names_of(run) == ["trainer_state.json"]
    assert not run.evaluations


# --------------------------------------------------------------------------------------- several runs, several forms


def test_sibling_runs_are_listed(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        jsonl(tmp_path / f"seed{seed}" / "metrics.jsonl", rows(seed=seed))
    with pytest.raises(CannotRead, match="seed1, seed2, seed3") as refused:
        read([tmp_path])
    assert str(tmp_path / "seed1") in refused.value.hint
    assert rewards(read([tmp_path], run="seed2")) == expected(rows(seed=2))
    assert rewards(read([tmp_path / "seed3"])) == expected(rows(seed=3))


@pytest.mark.parametrize(
    "first", ["run_a.jsonl", "lr1e-6.jsonl", "outputs/2026-01-01/12-00-00/m.jsonl", "logs/a.jsonl"]
)
def test_different_runs_beside_each_other_are_listed(tmp_path: Path, first: str) -> None:
    second = first.replace("a.", "b.").replace("1e-6", "5e-6").replace("12-00", "13-00").replace("/m", "/m")
    jsonl(tmp_path / first, rows(seed=1))
    jsonl(tmp_path / second, rows(seed=2))
    with pytest.raises(CannotRead, match="2 runs") as refused:
        read([tmp_path])
    assert set(refused.value.choices) == {first, second}
    assert rewards(read([tmp_path], run=second)) == expected(rows(seed=2))


def test_old_copies_are_left(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows(seed=1))
    jsonl(tmp_path / "archive" / "metrics.jsonl", rows(seed=2))
    run = read([tmp_path])
    assert rewards(run) == expected(rows(seed=1))
    assert "a folder with a run of its own" in said(run)
    assert "archive" in said(run)


def test_a_console_of_an_earlier_attempt_does_not_count(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows(seed=1))
    jsonl(tmp_path / "train_old.log", rows(last=12, seed=2))
    run = read([tmp_path])
    assert rewards(run) == expected(rows(seed=1))
    assert "train_old.log disagrees with metrics.jsonl" in said(run)


def test_a_copied_checkpoint_of_another_run_is_noticed(tmp_path: Path) -> None:
    for step in (20, 40):
        state(tmp_path / f"checkpoint-{step}" / "trainer_state.json", rows(last=step, seed=1))
    state(tmp_path / "checkpoint-500" / "trainer_state.json", rows(last=500, seed=2))
    with pytest.raises(CannotRead, match="checkpoint-40, checkpoint-500"):
        read([tmp_path])
    assert len(read([tmp_path], run="checkpoint-40")["reward.mean"]) == 40


def test_of_a_trackers_runs_that_of_the_trainers_log_is_taken(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-40" / "trainer_state.json", rows(seed=2))
    for seed in (1, 2, 3):
        cloud(tmp_path, rows(seed=seed), f"00000{seed}-id{seed}", {"num_generations": seed})
    run = read([tmp_path])
    assert set(names_of(run)) == {"run-id2.wandb", "trainer_state.json"}
    assert run.knob("group_size") == 2
    assert "run-id1.wandb disagrees" in said(run)


def test_different_runs_of_a_tracker_alone_are_listed(tmp_path: Path) -> None:
    for seed in (1, 2):
        cloud(tmp_path, rows(seed=seed), f"00000{seed}-id{seed}")
    with pytest.raises(CannotRead, match="id1, id2"):
        read([tmp_path])
    assert rewards(read([tmp_path], run="id2")) == pytest.approx(expected(rows(seed=2)))


def test_attempts_of_a_tracker_without_metrics_are_left(tmp_path: Path) -> None:
    cloud(tmp_path, [{"step": 1, "system": 0.0}], "000001-dead")
    cloud(tmp_path, rows(), "000002-good")
    run = read([tmp_path])
    assert names_of(run) == ["run-good.wandb"]
    assert "run-dead.wandb" in said(run)


def test_parts_of_one_run_in_a_trackers_folders_are_joined(tmp_path: Path) -> None:
    events(tmp_path / "runs" / "Nov30_01-00-00_h", rows(last=30), 1_700_000_000)
    events(tmp_path / "runs" / "Nov30_05-00-00_h", rows(first=21, last=60), 1_700_010_000)
    run = read([tmp_path])
    assert list(run["reward.mean"].steps) == list(range(1, 61))
    assert list(run.seams) == [21.0]


def test_the_same_folder_twice_counts_once(tmp_path: Path) -> None:
    cloud(tmp_path, rows(), "000001-abc")
    (tmp_path / "wandb" / "latest-run").symlink_to("run-20260101_000001-abc", target_is_directory=True)
    events(tmp_path / "runs" / "h", rows())
    assert len(read([tmp_path])["reward.mean"]) == 40


def test_databases_and_trees_of_trackers_are_read_as_logs(tmp_path: Path) -> None:
    (tmp_path / "a" / "trackio").mkdir(parents=True)
    trackio_database(tmp_path / "a" / "trackio" / "project.db", tagged(rows()))
    assert rewards(read([tmp_path / "a"])) == pytest.approx(expected(rows()))
    (tmp_path / "b").mkdir()
    mlflow_tree(tmp_path / "b", tagged(rows()))
    assert rewards(read([tmp_path / "b"])) == pytest.approx(expected(rows()))


def test_the_configuration_of_another_run_is_left(tmp_path: Path) -> None:
    for hour, group in (("12-00-00", 4), ("13-00-00", 16)):
        folder = tmp_path / "outputs" / "2026-01-01" / hour
        jsonl(folder / "metrics.jsonl", rows(seed=group))
        (folder / "config.yaml").write_text(f"num_generations: {group}\n")
    run = read([tmp_path], run="outputs/2026-01-01/13-00-00")
    assert run.knob("group_size") == 16


def test_configurations_that_disagree_are_told(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows())
    (tmp_path / "args.json").write_text(json.dumps({"num_generations": 4, "beta": 0.0}))
    (tmp_path / "config.yaml").write_text("num_generations: 8\nbeta: 0.0\n")
    run = read([tmp_path], framework="trl")
    assert [w.says for w in run.warnings if w.code == "settings_disagree"] == [
        "two configurations disagree, the latter is believed: num_generations 4 in args.json, 8 in config.yaml"
    ]


def test_the_script_that_started_the_run_gives_settings(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows())
    (tmp_path / "train.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --gpus 8\nexport LR=5e-6\n"
        'accelerate launch --num_processes 8 train.py \\\n  --num_generations 16 \\\n  --learning_rate "$LR" --beta=0.0\n'
    )
    run = read([tmp_path], framework="trl")
    assert run.knob("group_size") == 16
    assert run.knob("learning_rate") == 5e-6
    (tmp_path / "other.sh").write_text("python train.py --num_generations 4\n")
    run = read([tmp_path], framework="trl")
    assert run.knob("group_size") is None or run.knobs["group_size"].origin == "default"
    assert "one of several scripts" in said(run)


# ------------------------------------------------------------------------------------------------- hostile directories


def test_many_files_are_quick(tmp_path: Path) -> None:
    for folder in range(40):
        place = tmp_path / f"d{folder:02d}"
        place.mkdir()
        for k in range(500):
            os.close(os.open(place / f"part-{k}.bin", os.O_CREAT | os.O_WRONLY))
    jsonl(tmp_path / "metrics.jsonl", rows())
    begun = time.process_time()
    found = rundir.find(tmp_path)
    assert time.process_time() - begun < 1.0
    assert [one.name for one in found.logs] == ["metrics.jsonl"]
    assert found.cut
    assert len(found.left) <= rundir.LEFT


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows())
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "broken.log").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to(".", target_is_directory=True)
    (tmp_path / "up").symlink_to("..", target_is_directory=True)
    assert rewards(read([tmp_path])) == expected(rows())


def test_a_link_to_a_folder_elsewhere_is_followed(tmp_path: Path) -> None:
    jsonl(tmp_path / "disk" / "metrics.jsonl", rows())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "logs").symlink_to(tmp_path / "disk", target_is_directory=True)
    assert rewards(read([tmp_path / "run"])) == expected(rows())


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may open everything")
def test_a_folder_that_may_not_be_opened_is_told(tmp_path: Path) -> None:
    jsonl(tmp_path / "metrics.jsonl", rows())
    (tmp_path / "logs").mkdir(mode=0)
    assert "logs: Permission denied" in said(read([tmp_path]))
