"""Logs in archives: every compression gives what the plain file gives; damage, bombs and traps give one error, quickly."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import lzma
import math
import os
import resource
import struct
import subprocess
import sys
import tarfile
import textwrap
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.errors import CannotRead
from rlclinic.readers.log import read_log
from rlclinic.readers.rows import Log, Rows
from rlclinic.readers.stores import archive

PLAIN = "".join(f'{{"step": {k}, "reward": {0.01 * k}, "loss": 0.5, "kl": 0.001}}\n' for k in range(1, 301)).encode()
CONSOLE = "".join(f"{{'loss': 0.5, 'reward': {0.01 * k}, 'epoch': {0.1 * k:.2f}}}\n" for k in range(1, 40)).encode()
ZSTD = b"\x28\xb5\x2f\xfd"
PACK: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
}


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return held.getvalue()


def same(log: Log, plain: Log) -> None:
    assert (log.format, log.rows, log.nonfinite) == (plain.format, plain.rows, plain.nonfinite)
    np.testing.assert_array_equal(log.steps, plain.steps)
    assert log.series.keys() == plain.series.keys()
    for key, one in plain.series.items():
        np.testing.assert_array_equal(log.series[key].values, one.values)


# ---------------------------------------------------------------- compressed streams


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK.keys())
@pytest.mark.parametrize("data", [PLAIN, CONSOLE], ids=["lines", "console"])
def test_a_compressed_log_is_the_log(tmp_path: Path, pack: Callable[[bytes], bytes], data: bytes) -> None:
    plain = read_log(None, data)
    same(read_log(None, pack(data)), plain)
    (tmp_path / "log.packed").write_bytes(pack(data))
    same(read_log(tmp_path / "log.packed"), plain)
    half = data.index(b"\n", len(data) // 2) + 1  # as logs that are rotated and joined
    same(read_log(None, pack(data[:half]) + pack(data[half:])), plain)


def test_zstd_needs_its_package_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "import_module", _no_module)
    with pytest.raises(CannotRead, match="pip install"):
        read_log(None, ZSTD + bytes(range(40)))


def _no_module(name: str) -> object:
    raise ImportError(name)


class OwnZstd:
    """The standard library's decompressor from Python 3.14 on, with bzip2 inside its frames."""

    def __init__(self, options: object) -> None:
        self._inner, self._begun = bz2.BZ2Decompressor(), False

    def decompress(self, data: bytes, most: int) -> bytes:
        if not self._begun:
            assert data.startswith(ZSTD)
            data, self._begun = data[len(ZSTD) :], True
        return self._inner.decompress(data, most)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_zstd_of_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    names = SimpleNamespace(window_log_max=0)
    own = SimpleNamespace(ZstdDecompressor=OwnZstd, DecompressionParameter=names, ZstdError=ZeroDivisionError)
    monkeypatch.setattr(archive, "import_module", {"compression.zstd": own}.__getitem__)
    frame = ZSTD + bz2.compress(PLAIN[:6000])
    same(read_log(None, frame + ZSTD + bz2.compress(PLAIN[6000:])), read_log(None, PLAIN))


def test_zstd() -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress
    same(read_log(None, packed(PLAIN)), read_log(None, PLAIN))
    same(read_log(None, packed(PLAIN[:6000]) + packed(PLAIN[6000:])), read_log(None, PLAIN))
    for broken in (packed(PLAIN)[:-30], packed(PLAIN)[:20] + b"\xff" * 40):
        with contextlib.suppress(CannotRead):
            assert read_log(None, broken).rows <= 300
    with pytest.raises(CannotRead, match="swell"):
        read_log(None, packed(b"\n{}" + bytes(archive.ALLOWED * 2)))


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK.keys())
def test_a_torn_archive_gives_what_is_there_and_says_so(pack: Callable[[bytes], bytes]) -> None:
    lines = [{"step": k, "reward": hashlib.sha256(b"%d" % k).digest()[0] / 7, "loss": 1 / k} for k in range(1, 25_000)]
    packed = pack("".join(json.dumps(line) + "\n" for line in lines).encode())
    log = read_log(None, packed[: -len(packed) // 8])
    assert 2_000 < log.rows < 25_000
    assert any(warn.code == "torn_record" for warn in log.warnings)


def test_damage_inside_is_an_error_not_a_number() -> None:
    packed = bytearray(gzip.compress(PLAIN))
    packed[-6] ^= 0xFF  # the checksum
    with pytest.raises(CannotRead, match="damaged"):
        read_log(None, bytes(packed))


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK.keys())
def test_a_bomb_is_refused_before_it_is_read(pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "ALLOWED", 1 << 20)
    monkeypatch.setattr(archive, "SWELLING", 50)
    bomb = pack(b'{"step": 1, "reward": 0.5}\n' * 60_000)
    monkeypatch.setattr(Rows, "add", None)
    with pytest.raises(CannotRead, match="swell"):
        read_log(None, bomb)


def test_archives_in_archives_end_somewhere() -> None:
    data = PLAIN
    same(read_log(None, gzip.compress(gzip.compress(data))), read_log(None, data))
    for _ in range(6):
        data = gzip.compress(data)
    with pytest.raises(CannotRead, match="within an archive"):
        read_log(None, data)


def test_a_tar_archive_is_recognised() -> None:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as file:
        info = tarfile.TarInfo("run/metrics.jsonl")
        info.size = len(PLAIN)
        file.addfile(info, io.BytesIO(PLAIN))
    for data in (held.getvalue(), gzip.compress(held.getvalue())):
        with pytest.raises(CannotRead, match="tar xf"):
            read_log(None, data)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PACK)), st.binary(max_size=400), st.data())
def test_any_damage_is_no_traceback(kind: str, tail: bytes, data: st.DataObject) -> None:
    packed = bytearray(PACK[kind](PLAIN[:3000]) + tail)
    for _ in range(data.draw(st.integers(0, 5))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CannotRead):
        read_log(None, bytes(packed))


# ---------------------------------------------------------------- ZIP


def test_the_only_log_of_a_zip_file(tmp_path: Path) -> None:
    plain = read_log(None, PLAIN)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        file = tmp_path / f"run{method}.zip"
        file.write_bytes(zipped({"a/readme.md": b"text", "a/metrics.jsonl": PLAIN, "__MACOSX/._m": b"\0" * 99}, method))
        same(read_log(file), plain)
    same(read_log(None, zipped({"metrics.jsonl.gz": gzip.compress(PLAIN)})), plain)


def test_several_logs_in_a_zip_file_are_named() -> None:
    data = zipped({"a/metrics.jsonl": PLAIN, "b/metrics.jsonl": PLAIN[:4000], "b/args.json": b"{}"})
    with pytest.raises(CannotRead) as several:
        read_log(None, data, name="runs.zip")
    assert several.value.choices == ("a/metrics.jsonl", "b/metrics.jsonl")
    assert "unzip" in several.value.hint
    assert read_log(None, data, run="a/metrics.jsonl").rows == 300


TRAPS = {
    "absolute names": zipped({"/etc/metrics.jsonl": PLAIN}),
    "names that climb": zipped({"../../metrics.jsonl": PLAIN}),
    "names of another system": zipped({"C:\\metrics.jsonl": PLAIN}),
    "a bomb": zipped({"metrics.jsonl": b'{"step": 1, "reward": 0.5}\n' * 1_500_000}),
    "nothing": zipped({}),
    "no log": zipped({"picture.png": b"\x89PNG", "notes.txt": b"hello"}),
    "weights": zipped({"archive/data.pkl": b"\x80\x02}", "archive/data/0": b"\0" * 99}),
    "a sheet": zipped({"[Content_Types].xml": b"<x/>", "xl/workbook.xml": b"<x/>"}),
    "half": zipped({"metrics.jsonl": PLAIN})[:-40],
    "a lie about the members": zipped({"m.jsonl": PLAIN})[:-22]
    + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFE, 0xFFFE, 1 << 30, 0, 0),
}


@pytest.mark.parametrize("data", TRAPS.values(), ids=TRAPS.keys())
def test_traps_in_zip_files(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(data)
    began = time.monotonic()
    with pytest.raises(CannotRead):
        read_log(tmp_path / "x.zip")
    assert time.monotonic() - began < 10
    assert [one.name for one in tmp_path.iterdir()] == ["x.zip"]


def test_an_encrypted_member_is_said() -> None:
    data = bytearray(zipped({"metrics.jsonl": PLAIN}))
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(magic) + place] |= 1
    with pytest.raises(CannotRead, match="encrypted"):
        read_log(None, bytes(data))


def test_hostile_archives_stay_small_in_memory(tmp_path: Path) -> None:
    bomb = zlib.compressobj(9, wbits=31)
    part = b'{"step": 1, "reward": 0.5}\n' * 40_000
    (tmp_path / "bomb.gz").write_bytes(b"".join(bomb.compress(part) for _ in range(60)) + bomb.flush())
    code = f"""
        import resource, sys
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from rlclinic.errors import CannotRead
        from rlclinic.readers.log import read_log
        try:
            read_log(Path({str(tmp_path / "bomb.gz")!r}))
        except CannotRead:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500 << (20 if sys.platform == "darwin" else 10)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0


# ---------------------------------------------------------------- Comet


def message(kind: str, **payload: object) -> str:
    return json.dumps({"type": kind, "payload": payload}) + "\n"


def metric(name: str, value: object, step: int | None, **more: object) -> str:
    held = {"metricName": name, "metricValue": value, "step": step, "epoch": 0}
    return message("metric_msg", metric=held, local_timestamp=1_796_006_672_000, message_id=1, **more)


def comet(text: str, **about: object) -> bytes:
    return zipped(
        {"experiment.json": json.dumps({"offline_id": "x", **about}).encode(), "messages.json": text.encode()}
    )


def test_a_comet_experiment() -> None:
    odd = {3: "NaN", 4: "Infinity", 5: "-Infinity"}
    text = message("log_other", key="Name", value="grpo-a")
    text += message("parameter_msg", param={"paramName": "args/learning_rate", "paramValue": 1e-6, "step": None})
    text += message("parameter_msg", param={"paramName": "args/num_generations", "paramValue": "8", "step": None})
    for k in range(10):
        text += message("parameter_msg", param={"paramName": "curr_step", "paramValue": k, "step": k})
        text += metric("train/reward", 0.1 * k, k) + metric("train/grad_norm", odd.get(k, 0.5), k)
        text += metric("sys.cpu", 4.0, k) + "not JSON\n"
    text += metric("reward", 0.7, 9, context="validate") + metric("final_loss", 0.1, None)
    log = read_log(None, comet(text, customer_error_reported=True, customer_error_message="CUDA out of memory"))
    assert (log.format, log.rows, log.nonfinite) == ("comet", 10, "kept")
    norm = log.series["train/grad_norm"].values
    assert np.isnan(norm[3])
    assert (norm[4], norm[5]) == (math.inf, -math.inf)
    assert log.series["eval/reward"].values.tolist() == [0.7]
    assert set(log.series) == {"train/reward", "train/grad_norm", "eval/reward"}
    assert log.config == {"learning_rate": 1e-6, "num_generations": 8}
    assert (log.facts["run"], log.ending) == ("grpo-a", "CUDA out of memory")
    assert {warn.code for warn in log.warnings} == {"broken_lines", "values_without_step"}


def test_the_console_in_a_comet_experiment_stands_in_for_metrics() -> None:
    text = "".join(
        message("standard_output", output=line + "\n", stderr=False) for line in CONSOLE.decode().splitlines()
    )
    same(read_log(None, comet(text)), read_log(None, CONSOLE))
    for nothing in ("", message("log_other", key="Name", value="x"), "[[[\n" * 50, '{"a":' * 3000):
        with pytest.raises(CannotRead):
            read_log(None, comet(nothing))


@pytest.mark.libraries
def test_what_comet_writes(tmp_path: Path) -> None:
    pytest.importorskip("comet_ml")
    code = f"""
        import comet_ml
        experiment = comet_ml.OfflineExperiment(project_name="p", offline_directory={str(tmp_path)!r}, log_code=False,
            log_git_metadata=False, log_git_patch=False, log_env_details=False, auto_output_logging=False, parse_args=False)
        experiment.set_name("one")
        experiment.log_parameters({{"learning_rate": 1e-6}})
        odd = {{3: float("nan"), 4: float("inf"), 5: -float("inf")}}
        for step in range(12):
            experiment.log_metrics({{"train/reward": 0.1 * step, "train/grad_norm": odd.get(step, 0.5)}}, step=step)
        experiment.end()
    """
    env = {**os.environ, "COMET_LOGGING_CONSOLE": "ERROR", "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=env, timeout=120, capture_output=True)
    log = read_log(next(tmp_path.glob("*.zip")))
    np.testing.assert_array_equal(log.steps, np.arange(12))
    odd = {3: math.nan, 4: math.inf, 5: -math.inf}
    np.testing.assert_array_equal(log.series["train/grad_norm"].values, [odd.get(k, 0.5) for k in range(12)])
    np.testing.assert_array_equal(log.series["train/reward"].values, [0.1 * k for k in range(12)])
    assert (log.config["learning_rate"], log.nonfinite) == (1e-6, "kept")
