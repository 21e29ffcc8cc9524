"""How time and memory of a whole diagnosis grow with a log, from 400 to 1,000,000 rows, and which phase takes them.

    python benchmarks/growth.py                    # JSON lines of 15 and 60 metrics, all sizes (minutes, 3 GB of disk)
    python benchmarks/growth.py --most 100000      # up to this many rows
    python benchmarks/growth.py --forms            # trainer_state.json, console text, event files, .wandb
    python benchmarks/growth.py --phases LOG...    # one process each: CPU time and memory by phase, the dearest checks

Every measurement is a process of its own, from the start of the interpreter to the printed report. The exponent is that of
CPU time and memory between two neighbouring sizes: 1 is proportional, 0 does not grow.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import diagnose
import readers

SIZES = (400, 4_000, 20_000, 100_000, 300_000, 1_000_000)
METRICS = (15, 60)
FORM_SIZES = (20_000, 100_000)
LONGEST = 3_600.0
"""Seconds after which a run is ended."""
OFTEN = 20_000
"""Rows up to which a log is diagnosed three times and the median counts."""
COMMON = (
    "loss", "grad_norm", "learning_rate", "completions/mean_length", "completions/max_length", "completions/clipped_ratio",
    "rewards/accuracy_reward/mean", "rewards/format_reward/mean", "reward", "reward_std", "frac_reward_zero_std",
    "entropy", "kl", "clip_ratio/region_mean", "step_time",
)  # fmt: skip
"""The metrics of the narrow log."""
PHASES = """
import json, resource, sys, time
from pathlib import Path

unit = 1 << (20 if sys.platform == "darwin" else 10)
def now():
    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

told, checks = {}, {}
import rlclinic.cli, rlclinic.diagnose, rlclinic.readers, rlclinic.report, rlclinic.report.terminal
told["imports"] = now()
engine, opening = sys.modules["rlclinic.diagnose"], sys.modules["rlclinic.readers.opening"]
read_log, examine, complete = opening.read_log, engine.examine, engine.vitals.complete

def timed_read(*given, **named):
    log = read_log(*given, **named)
    told["reading"] = now()
    return log

def timed_check(one, *given, **named):
    before = now()[0]
    found = examine(one, *given, **named)
    checks[one.name] = now()[0] - before
    told["checks"] = now()
    return found

def timed_vitals(run):
    run = complete(run)
    told["vitals"] = now()
    return run

opening.read_log, engine.examine, engine.vitals.complete = timed_read, timed_check, timed_vitals
run = rlclinic.readers.read([Path(sys.argv[1])])
told["translating"] = now()
found = engine.diagnose(run)
told["ordering"] = now()
rlclinic.report.render(found, "terminal")
told["report"] = now()
print(json.dumps([told, checks]))
"""


def narrow(path: Path, wide: Path) -> None:
    """The rows of a wide log with the ``COMMON`` metrics only."""
    with wide.open(encoding="utf-8") as rows, path.open("w", encoding="utf-8") as out:
        for line in rows:
            kept = {
                k: v for k, v in json.loads(line).items() if k in COMMON or k in ("step", "eval_reward", "eval_loss")
            }
            out.write(json.dumps(kept) + "\n")


def trainer_state(path: Path, source: Path) -> None:
    """The rows as transformers' Trainer keeps them, one document."""
    with source.open(encoding="utf-8") as rows, path.open("w", encoding="utf-8") as out:
        out.write('{"global_step": 0, "log_history": [\n')
        out.writelines((",\n" if at else "") + line.rstrip("\n") for at, line in enumerate(rows))
        out.write("\n]}\n")


def console(path: Path, source: Path) -> None:
    """The rows as the Trainer prints them: a dictionary a line."""
    with source.open(encoding="utf-8") as rows, path.open("w", encoding="utf-8") as out:
        out.writelines(f"{json.loads(line)}\n" for line in rows)


WRITERS: dict[str, tuple[str, Callable[[Path, Path, int], None]]] = {
    "trainer_state.json": (".json", lambda path, source, _: trainer_state(path, source)),
    "console text": (".txt", lambda path, source, _: console(path, source)),
    "event file": (".tfevents", lambda path, _, many: readers.event_file(path, many)),
    ".wandb": (".wandb", lambda path, _, many: readers.wandb_file(path, many)),
}
"""Suffix of each other form, and what writes it from the JSON lines of as many rows."""


def log(build: Path, rows: int, metrics: int) -> Path:
    """JSON lines of that size, written when they are not there yet."""
    path = build / f"growth-{rows}x{metrics}.jsonl"
    if not path.exists():
        part = path.with_suffix(".part")
        print(f"writing {path.name} ...", file=sys.stderr)
        if metrics == len(COMMON):
            narrow(part, log(build, rows, METRICS[-1]))
        else:
            diagnose.write_log(part, rows, metrics)
        part.rename(path)
    return path


def measured(path: Path, build: Path, times: int) -> tuple[float, float, float]:
    """(wall seconds, CPU seconds, peak MiB) of ``rlclinic diagnose``, medians and the highest peak."""
    command = [sys.executable, "-m", "rlclinic", "diagnose", str(path)]
    found = [diagnose.run(command, build) for _ in range(times)]
    if why := next((failed for *_, failed in found if failed), ""):
        print(f"{path.name}: {why}", file=sys.stderr)
    return statistics.median(f[0] for f in found), statistics.median(f[1] for f in found), max(f[2] for f in found)


def lines(name: str, paths: list[tuple[int, int, Path]], build: Path) -> None:
    """A row of the table for each (rows, metrics, log), with its growth over the one before."""
    before: tuple[int, float, float] | None = None
    for rows, metrics, path in paths:
        wall, cpu, peak = measured(path, build, 3 if rows <= OFTEN else 1)
        grown = "| |"
        if before is not None:
            more = math.log(rows / before[0])
            grown = f"{math.log(cpu / before[1]) / more:.2f} | {math.log(peak / before[2]) / more:.2f} |"
        values = rows * metrics
        rate = f"{1e6 * cpu / values:.2f}"
        size = f"{path.stat().st_size / 1e6:,.1f} MB"
        print(
            f"| {name} | {rows:,} x {metrics} | {size} | {wall:.1f} s | {cpu:.1f} s | {rate} us | {peak:,.0f} MiB | {grown}",
            flush=True,
        )
        before = rows, cpu, peak


def phases(path: Path) -> None:
    """CPU seconds and peak memory of each phase of one diagnosis, and its dearest checks."""
    done = subprocess.run([sys.executable, "-c", PHASES, str(path)], capture_output=True, text=True, check=True)
    told, checks = json.loads(done.stdout.splitlines()[-1])
    print(f"\n| {path.name} | CPU | peak so far |\n|---|--:|--:|")
    spent = 0.0
    for name, (until, peak) in sorted(told.items(), key=lambda item: item[1][0]):
        print(f"| {name} | {until - spent:.2f} s | {peak:,.0f} MiB |")
        spent = until
    dearest = sorted(checks.items(), key=lambda item: -item[1])[:5]
    print("\n" + ", ".join(f"{name} {1000 * used:.0f} ms" for name, used in dearest))


def main() -> None:
    """Write the logs that are missing, measure, print Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=SIZES[-1], help="rows of the largest log")
    parser.add_argument("--forms", action="store_true", help="other forms, at 20,000 and 100,000 rows of 60 metrics")
    parser.add_argument("--phases", nargs="+", type=Path, metavar="LOG", help="only these logs, phase by phase")
    parser.add_argument("--build", type=Path, default=diagnose.ROOT / "build" / "benchmarks", help="logs go here")
    chosen = parser.parse_args()
    if chosen.phases:
        for path in chosen.phases:
            phases(path)
        return
    build: Path = chosen.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    began, diagnose.LIMIT = time.monotonic(), LONGEST
    measured(log(build, SIZES[0], METRICS[0]), build, 1)  # warms caches; not counted
    print("| form | log | size | wall | CPU | CPU a value | peak memory | exponent of CPU | of memory |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    if chosen.forms:
        for name, (suffix, write) in WRITERS.items():
            paths = []
            for rows in (rows for rows in FORM_SIZES if rows <= chosen.most):
                path, source = build / f"growth-{rows}{suffix}", log(build, rows, METRICS[-1])
                if not path.exists():
                    write(path, source, rows)
                paths.append((rows, METRICS[-1], path))
            lines(name, paths, build)
    else:
        for metrics in METRICS:
            sizes = [rows for rows in SIZES if rows <= chosen.most]
            lines("JSON lines", [(rows, metrics, log(build, rows, metrics)) for rows in sizes], build)
    print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)


if __name__ == "__main__":
    main()
