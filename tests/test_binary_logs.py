"""Event files and run files of trackers: every value comes back, a cut file gives what is whole, damage is no traceback."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.errors import CannotRead
from rlclinic.readers import read, rundir
from rlclinic.readers.log import read_log
from rlclinic.readers.wire import Torn, fields

ROWS = [{"train/reward": 0.25 + 0.01 * k, "train/grad_norm": 0.5, "train/kl": 0.001 * k} for k in range(40)]


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | float, wire: int | None = None) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        kind = 5 if wire == 5 else 1
        return varint(number << 3 | kind) + struct.pack("<f" if kind == 5 else "<d", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def event(step: int, scalars: dict[str, float], tensors: bool) -> bytes:
    summary = b""
    for tag, value in scalars.items():
        number = field(8, field(1, 1) + field(4, struct.pack("<f", value))) if tensors else field(2, value, 5)
        summary += field(1, field(1, tag.encode()) + number)
    return field(1, 1.7e9) + (field(2, step) if step else b"") + field(5, summary)


def framed(message: bytes) -> bytes:
    return struct.pack("<Q", len(message)) + b"\0" * 4 + message + b"\0" * 4


def event_file(rows: list[dict[str, float]] = ROWS, *, tensors: bool = False, one_by_one: bool = False) -> bytes:
    data = framed(field(1, 1.7e9) + field(3, b"brain.Event:2"))
    for step, row in enumerate(rows):
        pieces = [{tag: value} for tag, value in row.items()] if one_by_one else [row]
        data += b"".join(framed(event(step, piece, tensors)) for piece in pieces)
    return data


def run_file(records: list[bytes], magic: bytes = b":W&B\xe1\xbe\x00") -> bytes:
    data = bytearray(magic)
    for record in records:
        rest, first = record, True
        while first or rest:
            left = (1 << 15) - len(data) % (1 << 15)
            if left < 7:
                data += b"\0" * left
                continue
            piece, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            data += struct.pack("<IHB", 0, len(piece), kind) + piece
            first = False
    return bytes(data)


def history(step: int, row: dict[str, object], nested: bool) -> bytes:
    items = b""
    for key, value in {**row, "_step": step}.items():
        names = b"".join(field(2, part.encode()) for part in [key]) if nested else field(1, key.encode())
        items += field(1, names + field(16, json.dumps(value).encode()))
    return field(1, step) + field(2, items)


def config(**settings: object) -> bytes:
    items = b"".join(field(1, field(1, k.encode()) + field(16, json.dumps(v).encode())) for k, v in settings.items())
    return field(17, field(4, items))


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_scalars_of_both_encodings(tensors: bool, one_by_one: bool) -> None:
    log = read_log(None, event_file(tensors=tensors, one_by_one=one_by_one), name="events")
    assert (log.format, log.rows) == ("tensorboard", 40)
    np.testing.assert_array_equal(log.steps, np.arange(40))
    wanted = [row["train/reward"] for row in ROWS]
    np.testing.assert_allclose(log.series["train/reward"].values, wanted, rtol=1e-6)


def test_a_nan_stays_and_text_and_pictures_are_passed_over() -> None:
    rows = [*ROWS[:10], {"train/reward": float("nan"), "train/grad_norm": float("inf")}]
    picture = framed(field(2, 11) + field(5, field(1, field(1, b"image") + field(4, b"\x89PNG"))))
    log = read_log(None, event_file(rows) + picture, name="events")
    assert log.rows == 11
    assert np.isnan(log.series["train/reward"].values[-1])
    assert np.isinf(log.series["train/grad_norm"].values[-1])
    assert log.nonfinite == "kept"


@pytest.mark.parametrize("cut", [5, 13, 37, 200])
def test_a_torn_event_file_gives_what_is_whole(cut: int) -> None:
    log = read_log(None, event_file()[:-cut], name="events")
    assert log.rows >= 36
    assert any(warn.code == "torn_record" for warn in log.warnings)


@pytest.mark.parametrize("nested", [False, True])
def test_history_and_settings_of_a_run_file(nested: bool) -> None:
    records = [config(num_generations=8, beta=0.04), *(history(k, row, nested) for k, row in enumerate(ROWS))]
    log = read_log(None, run_file(records), name="run.wandb")
    assert (log.format, log.rows) == ("wandb", 40)
    np.testing.assert_array_equal(log.series["train/reward"].values, [row["train/reward"] for row in ROWS])
    assert log.config["num_generations"] == 8


def test_records_longer_than_a_block_and_objects() -> None:
    table = {"_type": "table-file", "path": "x" * 70_000}
    records = [history(k, {**row, "table": table, "bad": float("nan")}, True) for k, row in enumerate(ROWS)]
    log = read_log(None, run_file(records), name="run.wandb")
    assert log.rows == 40
    assert "table" not in log.series
    assert np.isnan(log.series["bad"].values).all()


@pytest.mark.parametrize("cut", [3, 40, 400])
def test_a_torn_run_file_gives_what_is_whole(cut: int) -> None:
    data = run_file([history(k, dict(row), True) for k, row in enumerate(ROWS)])
    log = read_log(None, data[:-cut], name="run.wandb")
    assert 30 <= log.rows < 40
    assert any(warn.code == "torn_record" for warn in log.warnings)


def test_a_swanlab_file() -> None:
    records = [
        field(13, field(1, key.encode()) + (field(2, step) if step else b"") + (field(5, value) if value else b""))
        for step, row in enumerate(ROWS)
        for key, value in row.items()
    ]
    log = read_log(None, run_file(records, b":SWL\xe1\xbe\x00"), name="run.swanlab")
    assert (log.format, log.rows) == ("swanlab", 40)
    np.testing.assert_array_equal(log.series["train/kl"].values, [row["train/kl"] for row in ROWS])


def test_files_without_a_metric_are_refused() -> None:
    for data in (event_file([{"weights": 1.0}]), run_file([config(beta=0.1)]), run_file([])):
        with pytest.raises(CannotRead, match="without a training metric"):
            read_log(None, data, name="x")


@given(st.binary(max_size=300), st.sampled_from([b":W&B\xe1\xbe\x00", b":SWL\xe1\xbe\x00", event_file()[:60]]))
@settings(max_examples=200, deadline=None)
def test_damage_is_a_refusal_or_a_log(noise: bytes, start: bytes) -> None:
    try:
        log = read_log(None, start + noise, name="x")
    except CannotRead:
        return
    assert log.rows


@given(st.binary(max_size=200))
def test_a_message_is_taken_apart_or_torn(message: bytes) -> None:
    try:
        for number, wire, value in fields(message):
            assert number >= 0
            assert wire in (0, 1, 2, 5)
            assert isinstance(value, int) == (wire == 0)
    except Torn:
        pass


def test_a_directory_of_event_files_is_one_run(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.out.tfevents.1.h").write_bytes(event_file(ROWS[:20]))
    later = framed(field(1, 1.7e9) + field(3, b"brain.Event:2"))
    later += b"".join(framed(event(step, row, False)) for step, row in enumerate(ROWS) if step >= 20)
    (tmp_path / "runs" / "events.out.tfevents.2.h").write_bytes(later)
    run = read([tmp_path])
    assert len(run["reward.mean"]) == 40


def test_another_log_of_the_same_run_wins(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.h").write_bytes(event_file())
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": k, **row}) + "\n" for k, row in enumerate(ROWS))
    )
    found = rundir.find(tmp_path)
    assert [one.name for one in found.logs] == ["metrics.jsonl"]
    assert [one.name for one, _ in found.left] == ["events.out.tfevents.1.h"]


def test_of_several_runs_of_a_tracker_the_last_is_read(tmp_path: Path) -> None:
    for name, level in (("run-20260101_1-a", 0.1), ("run-20260102_1-b", 0.9)):
        folder = tmp_path / "wandb" / name
        folder.mkdir(parents=True)
        rows = [{"train/reward": level, "train/grad_norm": 0.1 * k} for k in range(20)]
        (folder / "run.wandb").write_bytes(run_file([history(k, dict(row), True) for k, row in enumerate(rows)]))
    run = read([tmp_path])
    assert run["reward.mean"].values[0] == 0.9
    assert any("another run of the tracker" in warn.says for warn in run.warnings)
