"""CPU time and peak memory of reading one large log of each form, beside the package that made the form where there is one.

``python benchmarks/readers.py [CASE...] [--repeat N] [--rivals]``. Each reading is a process of its own that already has
everything imported, so only the reading counts. A form is one line of ``CASES``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import venv
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "benchmarks"
KEYS = [*(f"train/metric_{k:02d}/of_some_length" for k in range(56)), "reward", "train/kl", "train/loss", "grad_norm"]


def rows(many: int, keys: int = 60, seed: int = 0) -> Iterator[tuple[int, dict[str, float]]]:
    """(step, values) of a made-up run."""
    chance = random.Random(seed)
    for step in range(many):
        yield step, {key: round(chance.gauss(0.5, 0.2), 6) for key in KEYS[-keys:]}


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


_SUM = [0] * 256
for _byte in range(256):
    _rest = _byte
    for _ in range(8):
        _rest = _rest >> 1 ^ (0x82F63B78 if _rest & 1 else 0)
    _SUM[_byte] = _rest


def crc(data: bytes) -> bytes:
    """CRC-32C as TensorFlow masks it."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest = _SUM[(rest ^ byte) & 255] ^ rest >> 8
    rest ^= 0xFFFFFFFF
    return struct.pack("<I", ((rest >> 15 | rest << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def event_file(path: Path, many: int) -> None:
    """One event for each value, as SummaryWriter.add_scalar writes them."""
    sizes: dict[int, bytes] = {}
    with path.open("wb") as out:

        def put(message: bytes) -> None:
            if len(message) not in sizes:
                head = struct.pack("<Q", len(message))
                sizes[len(message)] = head + crc(head)
            out.write(sizes[len(message)] + message + crc(message))

        put(b"\x09" + struct.pack("<d", 1.7e9) + field(3, b"brain.Event:2"))
        for step, row in rows(many):
            for key, value in row.items():
                summary = field(1, field(1, key.encode()) + b"\x15" + struct.pack("<f", value))
                place = b"\x10" + varint(step) if step else b""
                put(b"\x09" + struct.pack("<d", 1.7e9 + step) + place + field(5, summary))


def wandb_file(path: Path, many: int) -> None:
    """The transaction log of an offline run."""
    data = bytearray(b":W&B\xe1\xbe\x00")
    for step, row in rows(many):
        items = b"".join(
            field(1, field(2, key.encode()) + field(16, json.dumps(value).encode()))
            for key, value in {**row, "_step": step, "_timestamp": 1.7e9 + step}.items()
        )
        rest, first = b"\x08" + varint(step + 1) + field(2, items), True
        while rest or first:
            left = (1 << 15) - len(data) % (1 << 15)
            if left < 7:
                data += bytes(left)
                continue
            piece, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            data += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            first = False
    path.write_bytes(data)


def json_lines(path: Path, many: int) -> None:
    """One record a step."""
    with path.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps({"step": step, **row}) + "\n" for step, row in rows(many))


def wide_csv(path: Path, many: int) -> None:
    """A column for each metric, as pandas and trackers export it."""
    with path.open("w", encoding="utf-8") as out:
        out.write(",".join(["step", *KEYS]) + "\n")
        out.writelines(",".join(map(repr, [step, *row.values()])) + "\n" for step, row in rows(many))


def parquet_file(path: Path, many: int) -> None:
    """The same table as Parquet, written in an environment that can."""
    source = path.with_name("source.csv")
    wide_csv(source, many)
    code = f"import pandas; pandas.read_csv({str(source)!r}).to_parquet({str(path)!r})"
    subprocess.run([environment(_PANDAS_NEEDS), "-c", code], check=True)
    source.unlink()


@dataclass(frozen=True)
class Case:
    """``write`` makes a log of ``many`` steps; ``rival`` is code that reads the log at ``path`` and counts ``values``.

    ``own`` are packages that our reading needs beside the base installation. ``times`` is how many times the rival's CPU
    time ours is to save at least, ``peak`` the most MiB; 0 where nothing is promised.
    """

    write: Callable[[Path, int], None]
    many: int
    suffix: str
    needs: str = ""
    rival: str = ""
    own: str = ""
    times: float = 0.0
    peak: float = 0.0


_TENSORBOARD = """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
begin()
read = EventAccumulator(path, size_guidance={"scalars": 0}).Reload()
values = sum(len(read.Scalars(tag)) for tag in read.Tags()["scalars"])
"""
_PANDAS_NEEDS = "pandas==3.1.1 pyarrow==25.0.1"
_PANDAS = """
import pandas, pyarrow.parquet
begin()
values = int(pandas.{call}.notna().sum().sum())
"""
_WANDB = """
import struct
from wandb.proto.wandb_internal_pb2 import Record
begin()
data, at, parts, values = open(path, "rb").read(), 7, b"", 0
while at + 7 <= len(data):
    left = 32768 - at % 32768
    if left < 7:
        at += left
        continue
    _, length, kind = struct.unpack_from("<IHB", data, at)
    parts += data[at + 7 : at + 7 + length]
    at += 7 + length
    if kind in (1, 4):
        record = Record()
        record.ParseFromString(parts)
        parts = b""
        values += sum(isinstance(json.loads(item.value_json), (int, float)) for item in record.history.item)
"""
_OURS = """
from pathlib import Path
from rlclinic.readers import read
from rlclinic.readers.log import read_log
import rlclinic.readers.binary.eventfile, rlclinic.readers.binary.runlog
import rlclinic.readers.text.console, rlclinic.readers.tabular.parquet
try:
    import pyarrow.parquet
except ImportError:
    pass
begin()
values = sum(len(one.values) for one in read_log(Path(path)).series.values())
"""
_AROUND = """
import json, resource, sys, time
path = sys.argv[1]
def begin():
    global began, before
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{code}
used = time.process_time() - began
print(json.dumps([used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, values]))
"""

CASES = {
    "event file": Case(
        event_file, 12_784, ".tfevents", "tensorboard==2.21.0 setuptools<81", _TENSORBOARD, times=8, peak=200
    ),
    ".wandb": Case(wandb_file, 5_000, ".wandb", "wandb==0.31.0", _WANDB),
    "JSON lines": Case(
        json_lines,
        100_000,
        ".jsonl",
        _PANDAS_NEEDS,
        _PANDAS.format(call="read_json(path, lines=True)"),
        times=2,
        peak=200,
    ),
    "with orjson": Case(
        json_lines,
        100_000,
        ".jsonl",
        _PANDAS_NEEDS,
        _PANDAS.format(call="read_json(path, lines=True)"),
        "fast",
        times=2,
        peak=200,
    ),
    "CSV": Case(wide_csv, 100_000, ".csv", _PANDAS_NEEDS, _PANDAS.format(call="read_csv(path)")),
    "Parquet": Case(
        parquet_file, 100_000, ".parquet", _PANDAS_NEEDS, _PANDAS.format(call="read_parquet(path)"), "parquet"
    ),
}


def measured(python: str, code: str, path: Path, repeat: int) -> tuple[float, float, int]:
    """Median CPU seconds, peak MiB and how many values were read."""
    found = []
    for _ in range(repeat):
        done = subprocess.run(
            [python, "-c", _AROUND.format(code=code), str(path)], capture_output=True, text=True, check=True
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return statistics.median(one[0] for one in found), max(one[1] for one in found), found[-1][2]


def environment(needs: str) -> str:
    """The Python of an environment with these packages, made at the first run."""
    home = BUILD / re.sub(r"\W+", "-", needs.removeprefix(f"--editable {ROOT}").split("=")[0]).strip("-")
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    ready = home / ".ready"
    if not ready.exists() or ready.read_text() != needs:
        print(f"installing {needs} ...", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *needs.split()], check=True)
        ready.write_text(needs)
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rivals", action="store_true", help="install the other packages and time them too")
    given = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    print("| form | size | ours | peak | beside | its time | its peak | ratio | goals |")
    print("|---|--:|--:|--:|---|--:|--:|--:|---|")
    for name in given.cases:
        case = CASES[name]
        path = BUILD / f"log{case.suffix}"
        if not path.exists():
            print(f"writing {path.name} ...", file=sys.stderr)
            case.write(path, case.many)
        mega = path.stat().st_size / 1e6
        python = environment(f"--editable {ROOT}[{case.own}]") if case.own else sys.executable
        used, peak, _ = measured(python, _OURS, path, given.repeat)
        line = f"| {name} | {mega:.0f} MB | {used:.2f} s, {mega / used:.0f} MB/s | {peak:.0f} MiB | "
        goals = [f"at most {case.peak:.0f} MiB: {_met(peak <= case.peak)}"] if case.peak else []
        if given.rivals and case.rival:
            other, theirs, _ = measured(environment(case.needs), case.rival, path, 1)
            line += (
                f"{case.needs.split()[0].replace('==', ' ')} | {other:.2f} s | {theirs:.0f} MiB | {other / used:.2f} | "
            )
            if case.times:
                goals.insert(0, f"{case.times:g} times as fast: {_met(other >= case.times * used)}")
        else:
            line += "| | | | "
        print(f"{line}{'; '.join(goals)} |", flush=True)


def _met(reached: bool) -> str:
    return "met" if reached else "**missed**"


if __name__ == "__main__":
    main()
