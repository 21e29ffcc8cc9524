"""One small whole log of every form that is read, as bytes with the name of its file."""

from __future__ import annotations

import gzip
import json
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import containers
from rlclinic.simulate import scenario, write
from rlclinic.simulate.dialects import DIALECTS, forms

STEPS = 24
_SETTINGS = {"num_generations": 8, "learning_rate": 1e-6, "model_name": "tiny"}


@lru_cache(maxsize=1)
def samples() -> dict[str, tuple[bytes, str]]:
    """(content, file name) by form: every dialect of the simulator, and every tracker's own file."""
    made: dict[str, tuple[bytes, str]] = {}
    run = scenario("plain", steps=STEPS, seed=1, log_every=2)
    for dialect in DIALECTS:
        for form in forms(dialect):
            made[f"{dialect}/{form}"] = write(run, dialect=dialect, form=form).encode(), "log"
    state = json.loads(made["trl/trainer_state"][0])
    rows = [(int(row["step"]), {f"train/{k}": float(v) for k, v in row.items() if k != "step"}) for row in
            state["log_history"] if "eval_reward" not in row]  # fmt: skip
    counted = [(7 * step, {**values, "train/global_step": float(step)}) for step, values in rows]
    made["tensorboard/simple"] = containers.event_file(rows), "events.out.tfevents.1.host"
    made["tensorboard/tensor by tag"] = (
        containers.event_file(rows, tensors=True, by_tag=True),
        "events.out.tfevents.1.host",
    )
    made["wandb"] = containers.wandb_file(counted, _SETTINGS), "run-abc.wandb"
    made["swanlab"] = containers.swanlab_file(rows), "run-abc.swanlab"
    made["comet"] = containers.comet_archive(rows, _SETTINGS), "run.zip"
    made["csv/wide"] = containers.wide_csv(rows).encode(), "log.csv"
    made["csv/long"] = containers.long_csv(rows).encode(), "log.csv"
    made["csv/wandb chart"] = containers.wandb_chart(rows, "train/reward").encode(), "chart.csv"
    made["gzip"] = gzip.compress(made["trl/jsonl"][0], mtime=0), "log.jsonl.gz"
    with tempfile.TemporaryDirectory() as place:
        made["mlflow"] = containers.mlflow_database(Path(place) / "a.db", rows, _SETTINGS).read_bytes(), "mlflow.db"
        made["trackio"] = containers.trackio_database(Path(place) / "b.db", counted, _SETTINGS).read_bytes(), "run.db"
        with suppress(ImportError):  # where nothing writes Parquet, nothing reads it
            made["parquet"] = containers.parquet_file(Path(place) / "c.parquet", rows).read_bytes(), "log.parquet"
    return made
