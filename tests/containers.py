"""What trackers leave on disk, written without their packages: each writer takes rows ``[(step, {key: value})]``."""

from __future__ import annotations

import csv
import io
import json
import math
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Rows: TypeAlias = Sequence[tuple[int, Mapping[str, float]]]
Settings: TypeAlias = Mapping[str, object]

EPOCH = 1_767_261_600
"""Seconds at which step 0 was logged; a step takes 30."""
BIGGEST = 1.7976931348623157e308


def _at(step: int) -> float:
    return float(EPOCH + 30 * step)


def in_words(value: float) -> float | str:
    """A number as trackers put it into strict JSON: NaN and infinities as words."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# ---------------------------------------------------------------- protocol buffers


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | float, wire: int | None = None) -> bytes:
    """One field: a varint for int, a double (a float with ``wire`` 5) for float, a length and the bytes for bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        kind = 5 if wire == 5 else 1
        return varint(number << 3 | kind) + struct.pack("<f" if kind == 5 else "<d", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


# ---------------------------------------------------------------- TensorBoard


def framed(message: bytes, sealed: bool = False) -> bytes:
    """A record of an event file, with its checksums when ``sealed``, else with zeros in their place."""
    size = struct.pack("<Q", len(message))
    return size + (_crc(size) if sealed else b"\0" * 4) + message + (_crc(message) if sealed else b"\0" * 4)


def _crc(data: bytes) -> bytes:
    """CRC-32C bit by bit, masked, as event files hold it."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    rest ^= 0xFFFFFFFF
    return struct.pack("<I", ((rest >> 15 | rest << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def event(step: int, scalars: Mapping[str, float], tensors: bool = False) -> bytes:
    summary = b""
    for tag, value in scalars.items():
        number = field(8, field(1, 1) + field(4, struct.pack("<f", value))) if tensors else field(2, float(value), 5)
        summary += field(1, field(1, tag.encode()) + number)
    return field(1, _at(step)) + (field(2, step) if step else b"") + field(5, summary)


def event_file(rows: Rows, *, tensors: bool = False, by_tag: bool = False) -> bytes:
    """A TensorBoard event file, one event for each value; ``by_tag`` writes all steps of a tag before the next tag.

    Values are single precision, as TensorBoard keeps them.
    """
    data = framed(field(1, float(EPOCH)) + field(3, b"brain.Event:2"))
    values = [(step, tag, value) for step, row in rows for tag, value in row.items()]
    if by_tag:
        tags = list(dict.fromkeys(tag for _, tag, _ in values))
        values.sort(key=lambda one: tags.index(one[1]))
    return data + b"".join(framed(event(step, {tag: value}, tensors)) for step, tag, value in values)


# ---------------------------------------------------------------- W&B and SwanLab


WANDB, SWANLAB = b":W&B\xe1\xbe\x00", b":SWL\xd6\xe1\x02"


def run_file(records: Iterable[bytes], magic: bytes = WANDB, sealed: bool = True) -> bytes:
    """Records in LevelDB's log format: blocks of 32 KiB, no piece across a border; zeros for checksums unless ``sealed``."""
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
            check = zlib.crc32(bytes([kind]) + piece) if sealed else 0
            data += struct.pack("<IHB", check, len(piece), kind) + piece
            first = False
    return bytes(data)


def wandb_file(rows: Rows, settings: Settings | None = None, *, nested: bool = True) -> bytes:
    """A ``.wandb`` file of an offline run; ``nested`` writes keys as clients since 0.13 do."""
    records = []
    if settings:
        items = b"".join(
            field(1, field(1, k.encode()) + field(16, json.dumps({"value": v}).encode())) for k, v in settings.items()
        )
        records.append(field(17, field(4, items)))
    for step, row in rows:
        items = b""
        for key, value in {**row, "_step": step, "_timestamp": _at(step), "_runtime": 30.0 * step}.items():
            name = field(2, key.encode()) if nested else field(1, key.encode())
            items += field(1, name + field(16, json.dumps(value).encode()))
        records.append(field(1, step + 1) + field(2, items))
    return run_file(records, sealed=False)


def swanlab_file(rows: Rows) -> bytes:
    """A ``.swanlab`` file: one record for each value, which is a message of its own, empty for a zero."""
    records = [
        field(13, field(1, key.encode()) + field(2, step) + field(5, field(1, float(value)) if value != 0 else b""))
        for step, row in rows
        for key, value in row.items()
    ]
    return run_file(records, SWANLAB, sealed=False)


def wandb_chart(rows: Rows, key: str, run: str = "run-a") -> str:
    """The CSV that the download button of one W&B chart gives."""
    out = io.StringIO()
    table = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerow(["Step", *(f"{run} - {key}{end}" for end in ("", "__MIN", "__MAX"))])
    for step, row in rows:
        if key in row:
            table.writerow([step, *[in_words(row[key])] * 3])
    return out.getvalue()


# ---------------------------------------------------------------- databases


def mlflow_database(path: Path, rows: Rows, settings: Settings | None = None, run: str = "run-a") -> Path:
    """MLflow's SQLite store: NaN is 0 with a flag, infinities are the largest doubles, ``@`` is spelled ``_at_``."""
    id = "8582486c932a431a8e54542e3e900a3d"
    with _database(path) as db:
        db.executescript(
            "CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name VARCHAR(256), lifecycle_stage VARCHAR(32));"
            "CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), status VARCHAR(9), start_time BIGINT,"
            " end_time BIGINT, lifecycle_stage VARCHAR(20), experiment_id INTEGER);"
            'CREATE TABLE metrics ("key" VARCHAR(250), value FLOAT, timestamp BIGINT, run_uuid VARCHAR(32), step BIGINT,'
            " is_nan BOOLEAN);"
            'CREATE TABLE latest_metrics ("key" VARCHAR(250), value FLOAT, timestamp BIGINT, step BIGINT, is_nan BOOLEAN,'
            " run_uuid VARCHAR(32));"
            'CREATE TABLE params ("key" VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32));'
            'CREATE TABLE tags ("key" VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32));'
        )
        db.execute("INSERT INTO experiments VALUES (1, 'grpo', 'active')")
        start, end = 1000 * EPOCH, int(1000 * _at(rows[-1][0]))
        db.execute("INSERT INTO runs VALUES (?, ?, 'FINISHED', ?, ?, 'active', 1)", (id, run, start, end))
        for step, row in rows:
            for key, value in row.items():
                stored = 0.0 if math.isnan(value) else max(min(value, BIGGEST), -BIGGEST)
                at, nan = int(1000 * _at(step)), int(math.isnan(value))
                name = key.replace("@", "_at_")
                db.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", (name, stored, at, id, step, nan))
        db.execute(
            "INSERT INTO latest_metrics SELECT key, value, timestamp, MAX(step), is_nan, run_uuid FROM metrics GROUP BY key"
        )
        for key, setting in (settings or {}).items():
            db.execute("INSERT INTO params VALUES (?, ?, ?)", (key, str(setting), id))
    return path


def trackio_database(path: Path, rows: Rows, settings: Settings | None = None, run: str = "run-a") -> Path:
    """Trackio's database of a project: a row for each call, its metrics JSON in a blob, NaN and infinities as words."""
    id = "a1235a8b9d30497a925090ccfcad0051"
    with _database(path) as db:
        db.executescript(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT, timestamp TEXT, run_name TEXT,"
            " step INTEGER, metrics TEXT, log_id TEXT, space_id TEXT);"
            "CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT, run_name TEXT, config TEXT,"
            " created_at TEXT);"
            "CREATE TABLE system_metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT, timestamp TEXT,"
            " run_name TEXT, metrics TEXT, log_id TEXT, space_id TEXT);"
        )
        for step, row in rows:
            held = json.dumps({key: in_words(value) for key, value in row.items()}).encode()
            at = f"2026-01-01T{step // 120 % 24:02d}:{step // 2 % 60:02d}:{step % 2 * 30:02d}+00:00"
            db.execute(
                "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics, log_id) VALUES (?, ?, ?, ?, ?, ?)",
                (id, at, run, step, held, f"{step:032x}"),
            )
        held = json.dumps(dict(settings or {})).encode()
        db.execute(
            "INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, '2026-01-01T00:00:00+00:00')",
            (id, run, held),
        )
    return path


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    """A database that is committed and closed at the end of the block."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")  # a test needs no disk
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


# ---------------------------------------------------------------- directories and archives


def mlflow_tree(root: Path, rows: Rows, settings: Settings | None = None, run: str = "run-a") -> Path:
    """MLflow's file store; the directory of the one run. Slashes of a key become folders."""
    home = root / "mlruns" / "1" / "8582486c932a431a8e54542e3e900a3d"
    for folder in ("metrics", "params", "tags"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home.parent / "meta.yaml").write_text("experiment_id: '1'\nname: grpo\nlifecycle_stage: active\n")
    (home / "meta.yaml").write_text(
        f"run_id: {home.name}\nrun_uuid: {home.name}\nrun_name: {run}\nstatus: 3\nlifecycle_stage: active\n"
        f"experiment_id: '1'\nstart_time: {1000 * EPOCH}\nend_time: {1000 * int(_at(rows[-1][0]))}\n"
    )
    (home / "tags" / "mlflow.runName").write_text(run)
    lines: dict[str, list[str]] = {}
    for step, row in rows:
        for key, value in row.items():
            lines.setdefault(key.replace("@", "_at_"), []).append(f"{int(1000 * _at(step))} {value} {step}\n")
    for name, held in lines.items():
        file = home / "metrics" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(held))
    for key, setting in (settings or {}).items():
        (home / "params" / key).write_text(str(setting))
    return home


def comet_archive(rows: Rows, settings: Settings | None = None) -> bytes:
    """The zip of a Comet offline experiment: messages as JSON lines, NaN and infinities as words."""
    messages: list[dict[str, object]] = []
    for step, row in rows:
        for key, value in row.items():
            metric = {"epoch": None, "metricName": key, "metricValue": in_words(value), "step": step}
            payload = {"local_timestamp": int(1000 * _at(step)), "message_id": len(messages) + 2, "metric": metric}
            messages.append({"payload": payload, "type": "metric_msg"})
    for key, setting in (settings or {}).items():
        param = {"paramName": key, "paramValue": setting, "source": "manual", "step": None}
        payload = {"local_timestamp": 1000 * EPOCH, "message_id": len(messages) + 2, "param": param}
        messages.append({"payload": payload, "type": "parameter_msg"})
    about = {"offline_id": "d2aedcc6", "project_name": "grpo", "start_time": 1000 * EPOCH, "workspace": "w"}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("experiment.json", json.dumps(about))
        archive.writestr("messages.json", "".join(json.dumps(one) + "\n" for one in messages))
    return out.getvalue()


# ---------------------------------------------------------------- plain tables


def wide_csv(rows: Rows, *, delimiter: str = ",", step: str = "step") -> str:
    """One line for each step, one column for each key; an absent value is an empty cell."""
    keys = list(dict.fromkeys(key for _, row in rows for key in row))
    out = io.StringIO()
    table = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    table.writerow([step, *keys])
    for at, row in rows:
        table.writerow([at, *(repr(float(row[key])) if key in row else "" for key in keys)])
    return out.getvalue()


def long_csv(rows: Rows, run: str = "run-a") -> str:
    """One line for each value: run, step, key, value."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["run", "step", "key", "value"])
    for step, row in rows:
        for key, value in row.items():
            table.writerow([run, step, key, repr(float(value))])
    return out.getvalue()


def parquet_file(path: Path, rows: Rows) -> Path:
    """A table as data frames are saved: a column for each key, nothing where a step lacks it. Needs pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = list(dict.fromkeys(key for _, row in rows for key in row))
    columns = {"step": [step for step, _ in rows], **{key: [row.get(key) for _, row in rows] for key in keys}}
    pq.write_table(pa.table(columns), path)
    return path
