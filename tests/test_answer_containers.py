"""Files of saved answers: every container gives the same records, damaged and hostile ones an error or less, soon."""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib
import importlib.util
import io
import json
import lzma
import os
import pickle
import random
import struct
import sys
import time
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz import damaged
from rlclinic.errors import CannotRead
from rlclinic.readers.answers import pickled, read_answers, tables
from rlclinic.readers.answers.records import Saved, records

json_records = importlib.import_module("rlclinic.readers.answers.records")
SECONDS = 10
"""Longest time of the processor for one hostile file; each takes less than one."""
ROWS = [
    {"step": float(k // 8), "prompt": f"What is {k // 4}?", "completion": f"it is\n{k}", "reward": k % 2 / 1.0}
    for k in range(64)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
PARQUET = [name for name in ("pyarrow", "duckdb", "polars") if importlib.util.find_spec(name)]


def read(path: Path, data: bytes | str) -> tuple[list[dict[str, Any]], Saved]:
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    saved = Saved()
    return list(records(path, saved)), saved


# ---------------------------------------------------------------- JSON


def frame(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: {str(k): row[key] for k, row in enumerate(rows)} for key in rows[0]}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", LINES),
        ("a.jsonl", b"\xef\xbb\xbf" + LINES.encode()),
        ("a.jsonl", LINES.encode("utf-16")),
        ("a.jsonl", LINES.replace("\n", "\r\n")),
        ("a.jsonl", "\n\n" + LINES.replace("\n", "\n\n")),
        ("a.jsonl", LINES.replace("\n", "")),
        ("a.json", json.dumps(ROWS)),
        ("a.json", json.dumps(ROWS, indent=2)),
        ("a.json", "\n".join(json.dumps(row, indent=1) for row in ROWS)),
        ("a.json", json.dumps({"samples": ROWS})),
        ("a.json", json.dumps({"samples": ROWS}, indent=1)),
        ("a.json", json.dumps(frame(ROWS))),
        ("a.table.json", json.dumps({"columns": list(ROWS[0]), "data": [list(row.values()) for row in ROWS]})),
        ("a.jsonl.gz", gzip.compress(LINES.encode())),
        ("a.jsonl.bz2", bz2.compress(LINES.encode())),
        ("a.jsonl.xz", lzma.compress(LINES.encode())),
    ],
)
def test_json_in_every_dress(name: str, data: bytes | str, tmp_path: Path) -> None:
    found, saved = read(tmp_path / name, data)
    assert found == ROWS
    assert not saved.said
    assert saved.kind == ("board" if "table" in name else "json")


def test_what_stands_beside_a_list_of_samples_belongs_to_each(tmp_path: Path) -> None:
    bare = [{key: value for key, value in row.items() if key != "step"} for row in ROWS]
    found, _ = read(tmp_path / "a.json", json.dumps({"step": 7, "samples": bare, "config": {"a": 1}}))
    assert found == [{"step": 7, **row} for row in bare]


def test_torn_lines_are_left_and_told(tmp_path: Path) -> None:
    found, saved = read(tmp_path / "a.jsonl", LINES[30:-30])
    assert found == ROWS[1:-1]
    assert saved.said == ["the last line is cut off and left", "1 lines are no JSON and are left"]
    found, saved = read(tmp_path / "a.json", json.dumps(ROWS, indent=1)[:-30])
    assert found == ROWS[:-1]
    assert "cut off" in saved.said[0]


def test_numbers_in_words_and_broken_letters(tmp_path: Path) -> None:
    line = '{"prompt": "a", "reward": nan}\n{"prompt": "b", "reward": NaN}\n'
    found, _ = read(
        tmp_path / "a.jsonl", line.encode() + b'{"prompt": "c\xff", "reward": -Infinity}\n' + LINES.encode()
    )
    assert [row["prompt"] for row in found[:3]] == ["a", "b", "c\ufffd"]
    assert all(not abs(row["reward"]) < 1e9 for row in found[:3])


def test_the_decoder_of_large_files_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = (
        '{"prompt": "\\ud800", "reward": NaN, "big": 123456789012345678901234567890}\n{"a": 1}{"b": 2}\n[{"c": 3}, 4]\n'
    )
    small, _ = read(tmp_path / "a.jsonl", LINES + odd)
    monkeypatch.setattr(json_records, "LARGE", 0)
    large, _ = read(tmp_path / "a.jsonl", LINES + odd)
    assert str(large) == str(small)
    assert large[64:][1:] == [{"a": 1}, {"b": 2}, {"c": 3}]


@pytest.mark.parametrize(
    "data",
    [
        "[" * 300_000,
        LINES + '{"a":' * 300_000 + "\n" + LINES,
        LINES + "[" + "{}," * 1_400_000 + "{}]\n" + LINES,
        '{"samples": [' + "[" * 100_000,
        '{"prompt": "' + "a" * 5_000_000,
        gzip.compress(b'{"prompt":"' + b"a" * (40 << 20)),
        gzip.compress(gzip.compress(LINES.encode())),
        b"\x80\x04\x95" + b"x" * 1000,
        bytes(range(256)) * 400,
        'prompt,completion\n1,"' + "x\n" * 300_000,
        "just words\nand more\n",
        "",
        "\0" * 1000,
    ],
    ids=range(13),
)
def test_hostile_files_end_soon(data: bytes | str, tmp_path: Path) -> None:
    began = time.process_time()
    try:
        found, _ = read(tmp_path / "a.jsonl", data)
    except CannotRead:
        found = []
    assert found in ([], ROWS + ROWS, ROWS) or len(found) == 1
    assert time.process_time() - began < SECONDS


def test_lines_beyond_the_limit_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records, "LINE", 1 << 16)
    monkeypatch.setattr(json_records, "MANY", 1 << 12)
    long = json.dumps({"prompt": "a" * 200_000}) + "\n"
    found, saved = read(tmp_path / "a.jsonl", LINES + long + LINES)
    assert found == ROWS + ROWS
    assert saved.said == ["1 lines over 0 MiB are left"]


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    with pytest.raises(CannotRead):
        list(records(tmp_path / "none.jsonl"))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.jsonl")
        with pytest.raises(CannotRead):
            list(records(tmp_path / "pipe.jsonl"))


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize("mark", [",", "\t", ";"])
def test_separated_columns(mark: str, tmp_path: Path) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=mark)
    writer.writerow([*ROWS[0], "output_tokens", "answer", "ok"])
    writer.writerows([*row.values(), k + 0.0, k, k % 2 == 0] for k, row in enumerate(ROWS))
    found, saved = read(tmp_path / "a.csv", out.getvalue() + "one cell too few\n")
    rows = [{**row, "output_tokens": k + 0.0, "answer": str(k), "ok": float(k % 2 == 0)} for k, row in enumerate(ROWS)]
    assert found == rows, "numbers are numbers but in columns of texts"
    assert saved.said == ["1 rows have another number of cells than the header and are left"]


def nested() -> list[dict[str, Any]]:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    return [{**row, "messages": talk, "ids": [1, 2, 3], "none": None} for row in ROWS]


@pytest.mark.parametrize("package", PARQUET)
def test_parquet(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pyarrow" not in PARQUET:
        pytest.skip("nothing that writes nested Parquet is installed")
    import pyarrow
    import pyarrow.parquet

    monkeypatch.setattr(tables, "PACKAGES", (package,))
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(nested()), path, row_group_size=10)
    assert list(records(path)) == nested()
    assert list(records(path, only=("prompt", "reward"))) == [
        {"prompt": row["prompt"], "reward": row["reward"]} for row in ROWS
    ]
    assert list(records(path, only=("prompt", "lost"))) == nested(), "so that it can be told what the file has"


@pytest.mark.skipif("pyarrow" not in PARQUET, reason="pyarrow writes it")
def test_one_text_of_many_rows_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    import pyarrow.parquet

    monkeypatch.setattr(tables, "PACKAGES", ("pyarrow",))
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"prompt": ["a" * 20_000] * 5_000, "reward": [1.0] * 5_000}), path)
    found = [row["prompt"] for row in records(path)]
    assert len(found) == 5_000
    assert len({id(text) for text in found}) < 500


@pytest.mark.skipif(bool(PARQUET), reason="a reader of Parquet is installed")
def test_parquet_without_a_reader_says_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    with pytest.raises(CannotRead) as error:
        list(records(path))
    assert "pip install pyarrow" in error.value.hint


# ---------------------------------------------------------------- slime


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The few names of PyTorch that its files refer to; none of them can be called."""
    package, inner = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("FloatStorage", "BFloat16Storage", "LongStorage"):
        setattr(package, name, type(name, (), {"__module__": "torch"}))

    def rebuild(*arguments: object) -> None:
        raise AssertionError("called")

    rebuild.__module__, rebuild.__qualname__, rebuild.__name__ = "torch._utils", *["_rebuild_tensor_v2"] * 2
    inner._rebuild_tensor_v2 = rebuild  # type: ignore[attr-defined]
    package._utils = inner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", package)
    monkeypatch.setitem(sys.modules, "torch._utils", inner)
    return package


class Storage:
    def __init__(self, kind: str, raw: bytes, many: int) -> None:
        self.kind, self.raw, self.many = kind, raw, many


class Tensor:
    def __init__(self, storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> None:
        self.parts = storage, offset, size, stride

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.modules["torch._utils"]._rebuild_tensor_v2, (*self.parts, False, {})


def save(path: Path, held: object, protocol: int = 2) -> None:
    """As ``torch.save`` writes a file."""
    storages: list[Storage] = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, one: object) -> object:
            if not isinstance(one, Storage):
                return None
            storages.append(one)
            return "storage", getattr(sys.modules["torch"], one.kind), str(len(storages) - 1), "cpu", one.many

    out = io.BytesIO()
    Pickler(out, protocol).dump(held)
    packed(path, out.getvalue(), [one.raw for one in storages])


def packed(path: Path, data: bytes, storages: list[bytes] | None = None) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("dump/data.pkl", data)
        archive.writestr("dump/byteorder", "little")
        for place, raw in enumerate(storages or ()):
            archive.writestr(f"dump/data/{place}", raw)


@pytest.mark.parametrize(("protocol", "many"), [(2, 1), (2, 3), (2, 1003), (4, 1003), (5, 2)])
def test_samples_of_slime(protocol: int, many: int, tmp_path: Path, torch: types.ModuleType) -> None:
    chance = random.Random(many)
    samples = [
        {
            "group_index": k // 4, "prompt": f"p{k // 4}", "response": "r" * (k % 7), "reward": k % 2 / 1.0, "none": None,
            "tokens": [chance.randrange(200_000) for _ in range(12)], "rollout_log_probs": [-chance.random()] * 12,
            "loss_mask": [1] * 66, "status": "completed", "metadata": {"a": [1, {"b": True}]}, "below": -5,
        }
        for k in range(many)
    ]  # fmt: skip
    save(tmp_path / "3.pt", {"rollout_id": 3, "samples": samples}, protocol)
    found = list(records(tmp_path / "3.pt"))
    assert found == [{"rollout_id": 3, **sample} for sample in samples]


def test_tensors_become_lists(tmp_path: Path, torch: types.ModuleType) -> None:
    floats = Storage("FloatStorage", np.arange(12, dtype="<f4").tobytes(), 12)
    halves = Storage("BFloat16Storage", (np.array([1.5, -2.0], "<f4").view("<u4") >> 16).astype("<u2").tobytes(), 2)
    sample = {
        "line": Tensor(floats, 2, (3,), (1,)), "table": Tensor(floats, 0, (3, 4), (4, 1)), "one": Tensor(floats, 3, (), ()),
        "short": Tensor(halves, 0, (2,), (1,)), "numpy": np.float32(2.5), "outside": Tensor(floats, 10, (5,), (1,)),
        "turned": Tensor(floats, 0, (4, 3), (1, 4)), "huge": Tensor(floats, 0, (10**12,), (1,)), "array": np.arange(3),
    }  # fmt: skip
    save(tmp_path / "a.pt", {"samples": [sample]})
    assert list(records(tmp_path / "a.pt")) == [
        {
            "line": [2.0, 3.0, 4.0], "table": np.arange(12.0).reshape(3, 4).tolist(), "one": 3.0, "short": [1.5, -2.0],
            "numpy": 2.5, "outside": None, "turned": None, "huge": None, "array": None,
        }
    ]  # fmt: skip


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("never",)


def test_nothing_is_called(tmp_path: Path, torch: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "a.pt", {"samples": [{"response": "x", "reward": 1.0, "evil": Evil()}]})
    assert list(records(tmp_path / "a.pt")) == [{"response": "x", "reward": 1.0, "evil": None}]
    assert not (tmp_path / "never").exists()
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CannotRead, match="never opened"):
        list(records(tmp_path / "a.pkl"))


def test_weights_are_told_at_once(tmp_path: Path, torch: types.ModuleType) -> None:
    weights = {
        f"layer.{k}": Tensor(Storage("FloatStorage", b"\0" * 40_000, 10_000), 0, (100, 100), (100, 1))
        for k in range(50)
    }
    save(tmp_path / "a.pt", weights)
    with pytest.raises(CannotRead, match="no samples"):
        list(records(tmp_path / "a.pt"))


_SAMPLES = b"\x80\x02}(X\x07\0\0\0samples]("


def _doubling() -> bytes:
    made = b"]q\x00"
    for k in range(60):
        made += b"]q" + bytes([k + 1]) + b"(h" + bytes([k]) + b"h" + bytes([k]) + b"e"
    return _SAMPLES + b"}(X\x01\0\0\0a" + made + b"X\x01\0\0\0b" + b"h\x3c" + b"ueu."


@pytest.mark.parametrize(
    "data",
    [
        _doubling(),
        _SAMPLES + b"}q\x01(X\x01\0\0\0ah\x01ueu.",
        b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\xff" * 1000,
        b"\x80\x02\x8b" + struct.pack("<I", 1 << 20) + b"\xff" * (1 << 20) + b".",
        b"\x80\x02L" + b"9" * 4000 + b"\n.",
        b"\x80\x02L" + b"9" * 5000 + b"\n.",
        b"(" * 60_000 + b".",
        b"\x80\x02N" + b"".join(b"r" + struct.pack("<I", k) for k in range(60_000)) + b".",
        b"\x80\x02N" + b"2" * 60_000 + b".",
        b"\x80\x02" + b"]" * 40_000 + b"a" * 39_999 + b".",
        b"\x80\x02X\xff\xff\xff\xffabc",
        b"\x80\x02cos\nsystem\n(X\x02\0\0\0ls\x85R.",
        b"\x80\x02(ios\nsystem\n.",
        b"",
        b"a.",
    ],
    ids=range(15),
)
def test_hostile_pickles_end_soon(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("STACK", "MEMO", "STEPS"):
        monkeypatch.setattr(pickled, limit, 50_000)
    packed(tmp_path / "a.pt", data)
    began = time.process_time()
    try:
        found = list(records(tmp_path / "a.pt"))
    except CannotRead:
        found = []
    assert len(str(found)) < 100_000_000
    assert time.process_time() - began < SECONDS


def test_damaged_pickles(torch: types.ModuleType, tmp_path: Path) -> None:
    floats = Storage("FloatStorage", np.arange(12, dtype="<f4").tobytes(), 12)
    save(tmp_path / "a.pt", {"rollout_id": 1, "samples": [{"response": "a", "t": Tensor(floats, 2, (3,), (1,))}] * 3})
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        whole = archive.read("dump/data.pkl")
    chance = random.Random(3)
    for _ in range(60):
        packed(tmp_path / "b.pt", damaged(whole, b"abc" * 2000, chance), [floats.raw])
        try:
            list(pickled.pickled_records((tmp_path / "b.pt").open("rb"), "b"))
        except CannotRead:
            continue


# ---------------------------------------------------------------- damage of every container


def containers() -> Iterator[tuple[str, bytes]]:
    yield "a.jsonl", LINES.encode()
    yield "a.json", json.dumps(ROWS, indent=1).encode()
    yield "a.table.json", json.dumps({"columns": list(ROWS[0]), "data": [list(r.values()) for r in ROWS]}).encode()
    yield "a.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)
    yield "a.jsonl.xz", lzma.compress(LINES.encode())
    out = io.StringIO()
    csv.writer(out).writerows([list(ROWS[0]), *(list(row.values()) for row in ROWS)])
    yield "a.csv", out.getvalue().encode()
    if "pyarrow" in PARQUET:
        import pyarrow
        import pyarrow.parquet

        sink = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(nested()), sink)
        yield "a.parquet", sink.getvalue()


@pytest.mark.parametrize(("name", "whole"), list(containers()), ids=lambda one: one if isinstance(one, str) else "")
def test_damage_ends_in_a_table_or_a_reason(name: str, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(whole)
    (table,), left = read_answers([path])
    assert len(table) == 64
    assert not left
    chance = random.Random(name)
    for _ in range(20):
        path.write_bytes(damaged(whole, LINES.encode(), chance))
        began = time.process_time()
        found, left = read_answers([path])
        assert found or left
        assert sum(map(len, found)) < 20_000
        assert time.process_time() - began < SECONDS
