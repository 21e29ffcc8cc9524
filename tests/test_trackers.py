"""Databases and trees of MLflow and Trackio: every value comes back from every schema; hostile files give one error."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import containers
from rlclinic.errors import CannotRead
from rlclinic.readers import read
from rlclinic.readers.log import read_log
from rlclinic.readers.rows import Log
from rlclinic.readers.stores import database
from rlclinic.readers.stores.trackers import is_mlflow_run, read_mlflow_tree

TRIO = Path(__file__).parents[2] / "shared" / "corpus" / "trl"
BIG = 1.7976931348623157e308
MLFLOW = """
    CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name VARCHAR(256), lifecycle_stage VARCHAR(32));
    CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), status VARCHAR(20), start_time BIGINT,
        lifecycle_stage VARCHAR(20), experiment_id INTEGER);
    CREATE TABLE metrics (key VARCHAR(250), value FLOAT NOT NULL, timestamp BIGINT NOT NULL, run_uuid VARCHAR(32),
        step BIGINT NOT NULL DEFAULT 0, is_nan BOOLEAN NOT NULL DEFAULT 0,
        PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan));
    CREATE TABLE latest_metrics (key VARCHAR(250), value FLOAT, timestamp BIGINT, step BIGINT, is_nan BOOLEAN,
        run_uuid VARCHAR(32), PRIMARY KEY (key, run_uuid));
    CREATE TABLE params (key VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32), PRIMARY KEY (key, run_uuid));
    CREATE TABLE tags (key VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32), PRIMARY KEY (key, run_uuid));
    INSERT INTO experiments VALUES (1, 'grpo', 'active');
"""
FIRST_MLFLOW = """
    CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name VARCHAR(256));
    CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), status VARCHAR(20), start_time BIGINT,
        experiment_id INTEGER);
    CREATE TABLE metrics (key VARCHAR(250), value FLOAT NOT NULL, timestamp BIGINT NOT NULL, run_uuid VARCHAR(32),
        PRIMARY KEY (key, timestamp, run_uuid, value));
"""
TRACKIO = """
    CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
        run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
    CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
        config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id));
    CREATE TABLE system_metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name TEXT, metrics TEXT);
"""
FIRST_TRACKIO = """
    CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL, run_name TEXT NOT NULL,
        step INTEGER NOT NULL, metrics TEXT NOT NULL);
    CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_name TEXT NOT NULL, config TEXT NOT NULL);
"""


class Mlflow:
    """A database as MLflow 2 and 3 write it, filled by hand; a second passes from one call to the next."""

    def __init__(self, file: Path, schema: str = MLFLOW) -> None:
        self.file = file
        self.clock = 1_795_968_000_000
        self.link = sqlite3.connect(file)
        self.link.executescript("PRAGMA synchronous = OFF;" + schema)

    def run(self, run: str, name: str, status: str = "FINISHED", stage: str = "active", experiment: int = 1) -> None:
        values = (run, name, status, self.clock, stage, experiment)
        self.link.execute("INSERT INTO runs VALUES (?,?,?,?,?,?)", values)
        self.link.execute("INSERT INTO tags VALUES ('mlflow.runName', ?, ?)", (name, run))

    def log(self, run: str, row: Mapping[str, float], step: int = 0) -> None:
        self.clock += 1000
        for key, value in row.items():
            nan, infinite = math.isnan(value), math.isinf(value)
            held = 0.0 if nan else math.copysign(BIG, value) if infinite else value
            self.link.execute("INSERT INTO metrics VALUES (?,?,?,?,?,?)", (key, held, self.clock, run, step, nan))
            latest = (key, held, self.clock, step, nan, run)
            self.link.execute("INSERT OR REPLACE INTO latest_metrics VALUES (?,?,?,?,?,?)", latest)

    def close(self) -> Path:
        self.link.commit()
        self.link.close()
        return self.file


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Mlflow]:
    one = Mlflow(tmp_path / "mlflow.db")
    yield one
    one.link.close()


def row(step: int) -> dict[str, float]:
    return {
        "critic/score/mean": 0.3 + 0.01 * step,
        "actor/pg_loss": 0.001 * step,
        "actor/grad_norm": 0.5 + 0.1 * (step % 3),
    }


# ---------------------------------------------------------------- MLflow, SQLite


def test_values_settings_and_words_for_no_number(store: Mlflow) -> None:
    store.run("a" * 32, "first", "FAILED")
    for step in range(1, 31):
        odd = {7: math.nan, 8: math.inf, 9: -math.inf}.get(step)
        store.log("a" * 32, row(step) | ({} if odd is None else {"actor/grad_norm": odd}), step)
        if step % 10 == 0:
            store.log("a" * 32, {"val-core/gsm8k/acc/mean_at_8": 0.01 * step}, step)
        store.log("a" * 32, {"system/cpu_utilization_percentage": 40.0}, step // 3)
    pairs = {"actor_rollout_ref/actor/optim/lr": "1e-06", "algorithm/use_kl_in_reward": "False", "trainer/x": "None"}
    store.link.executemany("INSERT INTO params VALUES (?, ?, ?)", [(k, v, "a" * 32) for k, v in pairs.items()])
    log = read_log(store.close())
    assert (log.format, log.rows, log.nonfinite) == ("mlflow", 30, "kept")
    np.testing.assert_array_equal(log.steps, np.arange(1, 31))
    norm = log.series["actor/grad_norm"].values
    assert np.isnan(norm[6])
    assert (norm[7], norm[8]) == (math.inf, -math.inf)
    np.testing.assert_array_equal(
        log.series["critic/score/mean"].values, [row(k)["critic/score/mean"] for k in range(1, 31)]
    )
    assert log.series["val-core/gsm8k/acc/mean@8"].rows.tolist() == [9, 19, 29]
    assert not any(key.startswith("system/") for key in log.series)
    assert log.config["actor_rollout_ref.actor.optim.lr"] == 1e-6
    assert log.config["algorithm.use_kl_in_reward"] is False
    assert log.facts == {"run": "first", "status": "FAILED"}
    assert "failed" in log.ending


def test_a_resumed_run_writes_steps_again(store: Mlflow) -> None:
    store.run("a" * 32, "resumed", "RUNNING")
    for step in range(1, 41):
        store.log("a" * 32, row(step), step)
    for step in range(31, 61):
        store.log("a" * 32, row(step) | {"critic/score/mean": 0.9}, step)
    file = store.close()
    log = read_log(file)
    assert log.rows == 70
    assert any("went back from 40 to 31" in why for why in log.seams.values())
    score = read([file]).columns["reward.mean"]
    np.testing.assert_array_equal(score.steps, np.arange(1, 61))
    assert set(score.values[30:]) == {0.9}


def test_without_steps_the_order_of_writing_counts(store: Mlflow) -> None:
    store.run("a" * 32, "stepless")
    for step in range(20):
        store.log("a" * 32, {"loss": float(step), "reward": 0.1 * step})
    log = read_log(store.close())
    assert log.step_source == "row order"
    np.testing.assert_array_equal(log.series["loss"].values, np.arange(20.0))
    np.testing.assert_array_equal(log.series["reward"].rows, np.arange(20))


def test_a_series_without_steps_beside_others_is_left_out_and_said(store: Mlflow) -> None:
    store.run("a" * 32, "mixed")
    for step in range(1, 21):
        store.log("a" * 32, {"reward": 0.1 * step}, step)
        store.log("a" * 32, {"train_loss_now": 0.5})
    log = read_log(store.close())
    assert set(log.series) == {"reward"}
    assert any(warn.code == "values_without_step" and "train_loss_now" in warn.says for warn in log.warnings)


def test_which_run_is_meant(store: Mlflow) -> None:
    store.link.execute("INSERT INTO experiments VALUES (2, 'other', 'active'), (3, 'gone', 'deleted')")
    for run, name, stage, experiment in [
        ("a1" * 16, "same", "active", 1),
        ("b2" * 16, "same", "active", 2),
        ("c3" * 16, "alone", "active", 1),
        ("d4" * 16, "deleted", "deleted", 1),
        ("e5" * 16, "of a deleted experiment", "active", 3),
        ("f6" * 16, "parent without metrics", "active", 1),
    ]:
        store.run(run, name, stage=stage, experiment=experiment)
        if name != "parent without metrics":
            store.log(run, {"reward": float(int(run[1]))}, 1)
            store.log(run, {"reward": float(int(run[1]))}, 2)
    file = store.close()
    with pytest.raises(CannotRead) as several:
        read_log(file)
    assert set(several.value.choices) == {"grpo/same", "other/same", "alone"}
    assert "--run" in several.value.hint
    for wanted, value in {"alone": 3, "grpo/same": 1, "other/same": 2, "b2b2b2b2": 2, "a1" * 16: 1, "al": 3}.items():
        assert read_log(file, run=wanted).series["reward"].values[0] == value
    for wanted in ("same", "deleted", "nobody"):
        with pytest.raises(CannotRead):
            read_log(file, run=wanted)


def test_the_oldest_schema_has_no_steps_and_no_nan(tmp_path: Path) -> None:
    store = Mlflow(tmp_path / "old.db", FIRST_MLFLOW)
    store.link.execute("INSERT INTO runs VALUES ('a', 'old', 'FINISHED', 5, 0)")
    for k in range(10):
        store.link.execute("INSERT INTO metrics VALUES ('reward', ?, ?, 'a')", (0.1 * k, 1_550_000_000 + k))
    log = read_log(store.close())
    assert (log.rows, log.step_source, log.nonfinite) == (10, "row order", "unknown")


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["reward", "loss", "kl"]), st.floats(width=64), min_size=1),
        min_size=2,
        max_size=20,
    )
)
def test_whatever_was_logged_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, float]]) -> None:
    store = Mlflow(tmp_path_factory.mktemp("m") / "any.db")
    store.run("a" * 32, "any")
    for step, one in enumerate(rows):
        store.log("a" * 32, one, step)
    log = read_log(store.close())
    for key in {key for one in rows for key in one}:
        wanted = {k: one[key] for k, one in enumerate(rows) if key in one}
        found = dict(zip(log.steps[log.series[key].rows].tolist(), log.series[key].values.tolist(), strict=True))
        assert found.keys() == wanted.keys()
        for step, value in wanted.items():
            held = math.copysign(math.inf, value) if abs(value) >= BIG else value
            assert found[step] == held or (math.isnan(value) and math.isnan(found[step]))


# ---------------------------------------------------------------- MLflow, tree of files


def tree(top: Path, runs: Mapping[str, int], experiment: str = "0") -> Path:
    """``mlruns`` with one experiment and runs of so many rows."""
    below = top / "mlruns" / experiment
    for name, many in runs.items():
        run = below / (name * 32)[:32]
        for key, text in {
            "metrics/critic/score/mean": "".join(f"{1000 + k} {0.1 * k} {k}\n" for k in range(many)),
            "metrics/actor/grad_norm": "".join(f"{1000 + k} {'nan' if k == 1 else 'inf'} {k}\n" for k in range(many)),
            "metrics/system/cpu": "5 5 5\n",
            "params/trainer/total_epochs": "3",
            "tags/mlflow.runName": f"run {name}",
            "meta.yaml": f"artifact_uri: x\nlifecycle_stage: active\nrun_id: {(name * 32)[:32]}\nstatus: 4\n",
        }.items():
            (run / key).parent.mkdir(parents=True, exist_ok=True)
            (run / key).write_text(text)
    (below / "meta.yaml").write_text(f"experiment_id: '{experiment}'\nlifecycle_stage: active\nname: Default\n")
    return top / "mlruns"


def test_the_tree_of_one_run_from_any_of_its_directories(tmp_path: Path) -> None:
    top = tree(tmp_path, {"a": 12})
    for place in (tmp_path, top, top / "0", top / "0" / ("a" * 32)):
        assert is_mlflow_run(place)
        log = read_mlflow_tree(place)
        assert (log.rows, log.nonfinite, log.facts["status"]) == (12, "kept", "FAILED")
        assert np.isnan(log.series["actor/grad_norm"].values[1])
        assert np.isinf(log.series["actor/grad_norm"].values[2])
        assert log.config == {"trainer.total_epochs": 3}
        assert "system/cpu" not in log.series
    assert not is_mlflow_run(tmp_path / "nowhere")
    assert not is_mlflow_run(top / "0" / ("a" * 32) / "metrics")


def test_a_resumed_tree_with_rare_series(tmp_path: Path) -> None:
    """Each key has a file of its own, so only the times tell that the evaluations belong to two attempts."""
    top = tree(tmp_path, {"a": 1})
    written = [*range(1, 81), *range(51, 121)]
    for key, every in {"reward": 1, "eval_accuracy": 20, "train_runtime": 120, "loss": 1}.items():
        lines = [f"{1000 + at} {0.001 * at} {step}\n" for at, step in enumerate(written) if step % every == 0]
        (top / "0" / ("a" * 32) / "metrics" / key).write_text("".join(lines))
    for old in ("critic/score/mean", "actor/grad_norm"):
        (top / "0" / ("a" * 32) / "metrics" / old).unlink()
    log = read_mlflow_tree(top)
    assert (log.rows, list(log.seams)) == (150, [80])
    run = read([top])
    np.testing.assert_array_equal(run.columns["reward.mean"].steps, np.arange(1, 121))
    np.testing.assert_array_equal(run.columns["eval.score"].steps, [20, 40, 60, 80, 100, 120])
    assert run.columns["eval.score"].values[2] == pytest.approx(0.001 * 89)


def test_several_runs_of_a_tree_and_damaged_lines(tmp_path: Path) -> None:
    top = tree(tmp_path, {"a": 12, "b": 5})
    with pytest.raises(CannotRead) as several:
        read_mlflow_tree(top)
    assert several.value.choices == ("run a", "run b")
    with (top / "0" / ("b" * 32) / "metrics/critic/score/mean").open("a") as file:
        file.write("not a line\n1005 0.9 5\n1006 0.9")
    log = read_mlflow_tree(top, "run b")
    assert log.rows == 6
    assert {warn.code for warn in log.warnings} >= {"torn_record", "broken_lines"}
    (top / "0" / ("a" * 32) / "meta.yaml").write_text("lifecycle_stage: deleted\n")
    assert read_mlflow_tree(top).rows == 6


# ---------------------------------------------------------------- Trackio


def trackio(file: Path, rows: list[tuple[str, str, int, object]], config: object = None, schema: str = TRACKIO) -> Path:
    """A Trackio database: (run id, run name, step, metrics) in the order of logging."""
    known = schema is TRACKIO
    with closing(sqlite3.connect(file)) as link:
        link.executescript("PRAGMA synchronous = OFF;" + schema)
        for run, name, step, held in rows:
            text = held if isinstance(held, (str, bytes)) else json.dumps(held).encode()
            columns = "run_id, timestamp, run_name, step, metrics" if known else "timestamp, run_name, step, metrics"
            values = (run, "2026-01-01T00:00:00", name, step, text)[not known :]
            link.execute(f"INSERT INTO metrics ({columns}) VALUES ({', '.join('?' * len(values))})", values)
        if config is not None and known:
            link.execute("INSERT INTO configs VALUES (1, ?, ?, ?, 'now')", (rows[0][0], rows[0][1], json.dumps(config)))
        link.commit()
    return file


def test_words_configuration_and_what_is_no_number(tmp_path: Path) -> None:
    rows: list[tuple[str, str, int, object]] = [
        ("i", "one", k, {"reward": 0.1 * k, "loss": {3: "NaN", 4: "Infinity", 5: "-Infinity"}.get(k, 0.5)})
        for k in range(9)
    ]
    rows[2] = ("i", "one", 2, {**rows[2][3], "samples": {"_type": "trackio.table", "_value": [[1]]}})  # type: ignore[dict-item]
    rows.insert(3, ("i", "one", 2, "no JSON"))
    config = {"_Username": None, "_Created": "today", "learning_rate": 1e-6, "_name_or_path": "models/tiny"}
    log = read_log(trackio(tmp_path / "p.db", rows, config))
    assert (log.format, log.rows, log.nonfinite) == ("trackio", 9, "kept")
    loss = log.series["loss"].values
    assert np.isnan(loss[3])
    assert (loss[4], loss[5]) == (math.inf, -math.inf)
    assert set(log.series) == {"reward", "loss"}
    assert log.config == {"learning_rate": 1e-6, "_name_or_path": "models/tiny"}
    assert any(warn.code == "broken_lines" for warn in log.warnings)


def test_the_training_step_beats_the_count_of_calls(tmp_path: Path) -> None:
    rows: list[tuple[str, str, int, object]] = []
    for step in range(1, 31):
        rows += [
            ("i", "one", len(rows), {f"profiling/Time taken: Trainer.{name}": 0.1}) for name in ("loss", "accuracy")
        ]
        rows.append(
            ("i", "one", len(rows), {"train/reward": 0.01 * step, "train/loss": 0.5, "train/global_step": step})
        )
        if step % 10 == 0:
            rows.append(("i", "one", len(rows), {"eval/reward": 0.02 * step}))
    log = read_log(trackio(tmp_path / "p.db", rows))
    np.testing.assert_array_equal(log.steps, np.arange(1, 31))
    assert log.seams == {}
    assert log.steps[log.series["eval/reward"].rows].tolist() == [10, 20, 30]


def test_a_resumed_run_keeps_its_id_and_a_repeated_one_does_not(tmp_path: Path) -> None:
    def calls(run: str, first: int, last: int, value: float) -> list[tuple[str, str, int, object]]:
        return [(run, "one", k, {"reward": value, "train/global_step": k}) for k in range(first, last)]

    resumed = read_log(trackio(tmp_path / "resumed.db", calls("i", 1, 21, 0.1) + calls("i", 11, 41, 0.2)))
    assert (resumed.rows, list(resumed.seams)) == (50, [20])
    file = trackio(tmp_path / "repeated.db", calls("i" * 12, 1, 21, 0.1) + calls("k" * 12, 1, 31, 0.2))
    with pytest.raises(CannotRead) as several:
        read_log(file)
    assert several.value.choices == ("one iiiiiiii", "one kkkkkkkk")
    assert "one kkkkkkkk" in several.value.hint
    assert read_log(file, run="one kkkkkkkk").rows == 30


def test_the_schema_without_run_ids(tmp_path: Path) -> None:
    rows: list[tuple[str, str, int, object]] = [
        ("", name, k, json.dumps({"reward": 0.1 * k, "nested": {"kl": 0.5}}))
        for k in range(9)
        for name in ("one", "two")
    ]
    file = trackio(tmp_path / "old.db", rows, schema=FIRST_TRACKIO)
    log = read_log(file, run="two")
    assert log.rows == 9
    assert set(log.series) == {"reward", "nested/kl"}
    with pytest.raises(CannotRead):
        read_log(file)


@pytest.mark.skipif(not TRIO.is_dir(), reason="needs the corpus")
def test_trackio_and_the_trainers_own_rows_agree() -> None:
    pairs = [(one, one.parents[1] / "metrics.jsonl") for one in TRIO.glob("*/trackio/*.db")]
    assert pairs
    for file, own in pairs:
        held, wanted = read([file]), read([own])
        assert held.columns.keys() >= wanted.columns.keys() - {"run.summary"}
        for name in wanted.columns.keys() & held.columns.keys():
            np.testing.assert_array_equal(held.columns[name].steps, wanted.columns[name].steps)
            np.testing.assert_allclose(held.columns[name].values, wanted.columns[name].values, rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- a live file, a dead one, a hostile one


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {one.name: (one.stat().st_size, one.stat().st_mtime_ns) for one in folder.iterdir()}


def filled(file: Path, mode: str) -> sqlite3.Connection:
    """A connection that still writes: 20 rows in the file, 20 more where the journal mode puts them."""
    rows: list[tuple[str, str, int, object]] = [("i", "one", k, {"reward": 0.1 * k}) for k in range(20)]
    link = sqlite3.connect(trackio(file, rows))
    link.execute(f"PRAGMA journal_mode = {mode}")
    link.execute("PRAGMA wal_autocheckpoint = 0")
    for k in range(20, 40):
        link.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES ('i', 't', 'one', ?, ?)",
            (k, json.dumps({"reward": 0.1 * k})),
        )
    link.commit()
    return link


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_database_that_is_being_written_is_read_and_left_alone(tmp_path: Path, mode: str) -> None:
    with closing(filled(tmp_path / "live.db", mode)) as link:
        before = snapshot(tmp_path)
        assert read_log(tmp_path / "live.db").rows == 40
        assert snapshot(tmp_path).keys() == before.keys()
        assert {k: v for k, v in snapshot(tmp_path).items() if k != "live.db-shm"} == {
            k: v for k, v in before.items() if k != "live.db-shm"
        }
        link.execute("DELETE FROM configs")
        link.commit()


def test_what_a_dead_writer_left_beside_the_file_counts(tmp_path: Path) -> None:
    code = f"""
        import os, sys
        sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
        from pathlib import Path
        import test_trackers
        test_trackers.filled(Path({str(tmp_path / "dead.db")!r}), "WAL")
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    assert (tmp_path / "dead.db-wal").stat().st_size > 0
    assert read_log(tmp_path / "dead.db").rows == 40
    (tmp_path / "dead.db-shm").unlink(missing_ok=True)  # as after copying two of the three files
    before = snapshot(tmp_path)
    assert read_log(tmp_path / "dead.db").rows == 40
    assert snapshot(tmp_path) == before
    (tmp_path / "dead.db-wal").unlink()
    assert read_log(tmp_path / "dead.db").rows == 20


def test_a_transaction_that_a_dead_writer_left_open_does_not_count(tmp_path: Path) -> None:
    code = f"""
        import os, sys
        sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
        from pathlib import Path
        import test_trackers
        link = test_trackers.filled(Path({str(tmp_path / "dead.db")!r}), "DELETE")
        link.execute("PRAGMA cache_size = 1")
        link.execute("UPDATE metrics SET metrics = ?", ('{{"reward": 99.0, "more": "' + "x" * 5000 + '"}}',))
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    journal = tmp_path / "dead.db-journal"
    assert journal.stat().st_size > 0
    before = snapshot(tmp_path)
    np.testing.assert_allclose(read_log(tmp_path / "dead.db").series["reward"].values, 0.1 * np.arange(40))
    assert snapshot(tmp_path) == before
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    name = str(victim).encode()
    record = struct.pack(">I", 1) + name + struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7")
    journal.write_bytes(journal.read_bytes() + record)  # rolling this back would delete the file it names
    with pytest.raises(CannotRead):
        read_log(tmp_path / "dead.db")
    assert victim.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    filled(tmp_path / "closed.db", "WAL").close()
    tmp_path.chmod(0o500)
    assert read_log(tmp_path / "closed.db").rows == 40
    tmp_path.chmod(0o700)


def test_a_database_from_standard_input(tmp_path: Path) -> None:
    file = trackio(tmp_path / "p.db", [("i", "one", k, {"reward": 0.1 * k}) for k in range(9)])
    assert read_log(None, file.read_bytes()).rows == 9


HOSTILE = {
    "nothing but a header": "",
    "another kind": "CREATE TABLE people (name TEXT);",
    "a view in place of the table": (
        "CREATE VIEW metrics AS WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n)"
        " SELECT k AS id, 'i' AS run_id, 'one' AS run_name, k AS step, '{}' AS metrics FROM n;"
    ),
    "no rows": TRACKIO,
    "no metrics of training": TRACKIO + "INSERT INTO metrics VALUES (1,'i','t','one',1,'{\"cpu\": 1}',NULL,NULL);",
    "rows that are no JSON": TRACKIO + "INSERT INTO metrics VALUES (1,'i','t','one',1,x'00ff',NULL,NULL);",
    "values of other types": MLFLOW
    + "INSERT INTO runs VALUES (x'00', 7, 8, 'x', NULL, 'y');"
    + "INSERT INTO metrics VALUES (x'0102', 'many', 'when', x'00', 'late', 'maybe');",
    "deep JSON": TRACKIO + f"INSERT INTO metrics VALUES (1,'i','t','one',1,'{'[' * 5000}',NULL,NULL);",
}


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_or_foreign_database_is_one_error(tmp_path: Path, script: str) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as link:
        link.executescript("PRAGMA user_version = 1;" + script)
    with pytest.raises(CannotRead):
        read_log(tmp_path / "x.db")


def test_a_statement_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    endless = "(WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n) SELECT max(k) FROM n)"

    def ask(held: database.Database) -> object:
        return held.all(f"SELECT {endless}")

    file = trackio(tmp_path / "p.db", [("i", "one", 1, {"reward": 1})])
    with file.open("rb") as stream, pytest.raises(CannotRead, match="seconds"):
        database.read_database(stream, str(file), ask)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_damage_is_no_traceback(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damage")
    rows: list[tuple[str, str, int, object]] = [("i", "one", k, {"reward": 0.1 * k, "x": "y" * 200}) for k in range(60)]
    whole = bytearray(trackio(folder / "p.db", rows).read_bytes())
    for _ in range(data.draw(st.integers(1, 30))):
        whole[data.draw(st.integers(16, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(100, len(whole)))
    (folder / "broken.db").write_bytes(whole[:cut])
    try:
        log = read_log(folder / "broken.db")
    except CannotRead:
        return
    assert isinstance(log, Log)


# ---------------------------------------------------------------- the trackers themselves


ROWS = [
    {"train/reward": 0.1 * k, "train/grad_norm": {3: math.nan, 4: math.inf, 5: -math.inf}.get(k, 0.5)}
    for k in range(12)
]


def same(log: Log) -> None:
    np.testing.assert_array_equal(log.steps, np.arange(12))
    for key in ROWS[0]:
        np.testing.assert_array_equal(log.series[key].values, [one[key] for one in ROWS])
    assert log.nonfinite == "kept"


@pytest.mark.libraries
@pytest.mark.parametrize("form", ["sqlite", "tree"])
def test_what_mlflow_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = pytest.importorskip("mlflow.tracking")
    place = tmp_path / ("store.db" if form == "sqlite" else "mlruns")
    client = tracking.MlflowClient(f"sqlite:///{place}" if form == "sqlite" else place.as_uri())
    experiment = client.create_experiment("grpo", artifact_location=str(tmp_path / "artifacts"))
    run = client.create_run(experiment, run_name="one").info.run_id
    client.log_param(run, "actor_rollout_ref/actor/optim/lr", 1e-6)
    for step, one in enumerate(ROWS):
        for key, value in one.items():
            client.log_metric(run, key, value, step=step)
    client.set_terminated(run, "KILLED")
    log = read_log(place) if form == "sqlite" else read_mlflow_tree(place)
    same(log)
    assert log.config == {"actor_rollout_ref.actor.optim.lr": 1e-6}
    assert log.facts == {"run": "one", "status": "KILLED"}


@pytest.mark.libraries
def test_what_trackio_writes(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    code = (
        f"""
        import math, sys, trackio
        trackio.init(project="p", name="one", config={{"learning_rate": 1e-6}}, embed=False)
        for step, one in enumerate({ROWS!r}):
            trackio.log(one, step=step)
        trackio.finish()
    """.replace("nan", "math.nan")
        .replace("inf,", "math.inf,")
        .replace("inf}", "math.inf}")
    )
    env = {**os.environ, "TRACKIO_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1", "GRADIO_ANALYTICS_ENABLED": "False"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=env, timeout=120, capture_output=True)
    log = read_log(tmp_path / "p.db")
    same(log)
    assert log.config["learning_rate"] == 1e-6


def test_success_of_many_tries_is_no_held_out_score(tmp_path: Path) -> None:
    """MLflow holds no @, and some trainers write pass_at_8 themselves: it is pass@k either way."""
    rows = [
        (step, {"reward": 0.5, "eval/all/pass_at_8": 0.9, "val-core/a/acc/mean_at_8": 0.4}) for step in range(1, 12)
    ]
    run = read([containers.mlflow_database(tmp_path / "mlflow.db", rows)], framework="skyrl")
    assert run["eval.pass_at_k"].values.tolist() == [0.9] * 11
    assert list(run.evaluations) == ["val-core/a/acc/mean@8"]
