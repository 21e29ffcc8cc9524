"""CPU time and peak memory of examining saved answers, beside only parsing them and beside scripts for one number of them.

``python benchmarks/rollouts.py [--size MB] [--parquet] [--python PYTHON]`` makes a file of that size in a temporary place:
answers of about 4 kB in groups of 8 with several reward keys, as verl writes them. Each measurement is a process of its own
that has everything imported before the clock starts. ``--python`` is an interpreter with pandas, polars or orjson in it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GROUP, PROMPTS = 8, 64
"""Answers to a prompt, and prompts of a step."""
GOALS_FROM = 1_000
"""Megabytes from which on the goals hold; below, the checks cost more than the file."""
SLOWEST, MOST = 0.60, 400
"""The goals: at least this share of the speed of parsing alone, and at most so many MiB."""

_AROUND = """
import json, resource, sys, time
path = sys.argv[1]
{before}
began = time.process_time()
{code}
used = time.process_time() - began
print(json.dumps([used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, result]))
"""
_LOADS = """
try:
    from orjson import loads
except ImportError:
    from json import loads
"""
_PARSE = (_LOADS, "result = 0\nfor line in open(path, 'rb'):\n    loads(line)\n    result += 1")
_PARSE_PARQUET = (
    "import pyarrow.parquet as pq",
    "result = 0\nfor part in pq.ParquetFile(path, pre_buffer=False).iter_batches(2048, use_threads=False):\n"
    "    result += len(part.to_pylist())",
)
_READ = (
    "from pathlib import Path\nfrom rlclinic.readers.answers import read_answers",
    "table = read_answers([Path(path)])[0][0]\nresult = float(table.dead[table.judged].mean())",
)
_OURS = (
    "from rlclinic.diagnose import diagnose\nfrom rlclinic.readers import read\nimport rlclinic.report",
    "found = diagnose(read([path]))\ntable = found.run.rollouts[0]\nresult = float(table.dead[table.judged].mean())",
)
_PANDAS = (
    "import pandas",
    "frame = pandas.read_{form}\n"
    "rewards = frame.groupby(['step', 'input'])['score']\n"
    "result = float(((rewards.max() - rewards.min()) <= 1e-6).mean())",
)
_POLARS = (
    "import polars as pl",
    "rewards = pl.scan_{form}.group_by('step', 'input').agg((pl.col('score').max() - pl.col('score').min() <= 1e-6)\n"
    "    .alias('dead')).select(pl.col('dead').mean()).collect()\nresult = float(rewards.item())",
)


def write(path: Path, size: int, seed: int = 0) -> int:
    """Answers as verl's ``rollout_data_dir`` has them, ``size`` bytes; returns how many."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 10))) for _ in range(4_000)]
    sentences = [" ".join(chance.choices(words, k=chance.randint(6, 22))).capitalize() + "." for _ in range(20_000)]
    step = rows = written = 0
    with path.open("w", encoding="utf-8") as out:
        while written < size:
            step += 1
            lines = []
            for _ in range(PROMPTS):
                truth = str(chance.randint(1, 9_999))
                prompt = f"user\n{' '.join(chance.choices(sentences, k=6))} Put the answer in \\boxed{{}}.\nassistant\n"
                ease = chance.betavariate(0.5, 0.5)
                for _ in range(GROUP):
                    right, tidy = chance.random() < ease, chance.random() < 0.9
                    said = "\n\n".join(
                        " ".join(chance.choices(sentences, k=4)) for _ in range(chance.choice((8, 9, 10, 12)))
                    )
                    last = truth if right else str(chance.randint(1, 9_999))
                    record = {
                        "input": prompt, "output": f"<think>{said}</think>\n\n\\boxed{{{last}}}", "gts": truth,
                        "score": right + 0.1 * tidy, "step": step, "acc": right, "format": 0.1 * tidy, "pred": last,
                        "overlong_reward": 0.0,
                    }  # fmt: skip
                    lines.append(json.dumps(record, ensure_ascii=False) + "\n")
            chance.shuffle(lines)  # as its balancing of batches leaves them
            out.writelines(lines)
            rows += len(lines)
            written += sum(map(len, lines))
    return rows


def to_parquet(lines: Path, path: Path, python: str) -> None:
    """The same rows as Parquet, in row groups of 10,000."""
    code = (
        "import json, sys, pyarrow as pa, pyarrow.parquet as pq\n"
        "from itertools import islice\n"
        "source, writer = open(sys.argv[1]), None\n"
        "while rows := [json.loads(line) for line in islice(source, 10000)]:\n"
        "    table = pa.Table.from_pylist(rows)\n"
        "    writer = writer or pq.ParquetWriter(sys.argv[2], table.schema)\n"
        "    writer.write_table(table)\n"
        "writer.close()\n"
    )
    subprocess.run([python, "-c", code, str(lines), str(path)], check=True)


def measured(python: str, case: tuple[str, str], path: Path) -> tuple[float, float, float] | None:
    """CPU seconds, peak MiB and what was found; None where a package is missing."""
    code = _AROUND.format(before=case[0], code=case[1])
    around = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    done = subprocess.run([python, "-c", code, str(path)], capture_output=True, text=True, env=around)
    if done.returncode:
        if "ModuleNotFoundError" not in done.stderr:
            print(done.stderr[-800:], file=sys.stderr)
        return None
    used, peak, found = json.loads(done.stdout.splitlines()[-1])
    return used, peak, found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=GOALS_FROM, metavar="MB")
    parser.add_argument("--parquet", action="store_true", help="the same rows as Parquet")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter with the packages to be timed beside it"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rollouts.jsonl"
        rows = write(path, given.size * 1_000_000)
        form = f"json({str(path)!r}, lines=True)", f"ndjson({str(path)!r})"
        parse = _PARSE
        if given.parquet:
            to_parquet(path, path.with_suffix(".parquet"), given.python)
            path.unlink()
            path = path.with_suffix(".parquet")
            form = f"parquet({str(path)!r})", f"parquet({str(path)!r})"
            parse = _PARSE_PARQUET
        print(f"{path.stat().st_size / 1e6:,.0f} MB, {rows:,} answers")
        alone = measured(given.python, parse, path)
        if alone is None:
            sys.exit("the file cannot be parsed with this interpreter")
        print("| what | CPU | peak | to parsing alone | zero-variance share |\n|---|--:|--:|--:|--:|")
        print(f"| parsing alone | {alone[0]:.1f} s | {alone[1]:.0f} MiB | 1.00 | |")
        cases = {
            "reading into a table": _READ,
            "diagnose": _OURS,
            "pandas, that share alone": (_PANDAS[0], _PANDAS[1].format(form=form[0])),
            "polars, that share alone": (_POLARS[0], _POLARS[1].format(form=form[1])),
        }
        for name, case in cases.items():
            found = measured(given.python, case, path)
            if found is None:
                print(f"| {name} | not measured | | | |")
                continue
            used, peak, share = found
            goal = ""
            if name == "diagnose" and given.size >= GOALS_FROM:
                reached = alone[0] >= SLOWEST * used and peak <= MOST
                goal = f" goals ({SLOWEST:.0%} of that speed, {MOST} MiB): {'met' if reached else '**missed**'}"
            print(f"| {name} | {used:.1f} s | {peak:.0f} MiB | {alone[0] / used:.2f} | {share:.4f} |{goal}", flush=True)


if __name__ == "__main__":
    main()
