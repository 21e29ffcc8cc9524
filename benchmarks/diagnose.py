"""Time and peak memory of a whole diagnosis, start of the interpreter included, beside two other tools in one run."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path

from rivals import load

ROOT = Path(__file__).resolve().parents[1]
TOOLS = {
    "rlclinic": ["--editable", str(ROOT)],
    **{name: [tool.package] for name, tool in load().items() if name in ("rldoctor", "runmedic")},
}
SIZES = {"small": (400, 30), "medium": (20_000, 60), "large": (100_000, 60)}
LIMIT = 300.0
"""Seconds after which a run is ended; its ratio is then a lower bound."""
ROUNDING = 6
"""Decimals of the generated values, as a JSON log holds about that many digits."""


@dataclass
class Measured:
    """Repeated whole-process runs of one tool on one log."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: float = 0.0
    """Peak resident memory in MiB."""
    failed: str = ""
    """Why the tool gave no diagnosis; empty when it did."""

    @property
    def median(self) -> float:
        return statistics.median(self.wall)

    @property
    def ended(self) -> bool:
        return self.failed.startswith("ended")


def install(build: Path, tools: dict[str, list[str]] = TOOLS) -> dict[str, Path]:
    """The command of each tool, installed into an environment of its own below ``build`` unless that exists."""
    commands = {}
    scripts = "Scripts" if os.name == "nt" else "bin"
    for tool, wanted in tools.items():
        home, ready = build / tool, build / tool / ".ready"
        if not ready.exists() or ready.read_text() != " ".join(wanted):
            print(f"installing {tool} ...", file=sys.stderr)
            venv.create(home, with_pip=True, clear=True)
            pip = [str(home / scripts / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *wanted], check=True)
            ready.write_text(" ".join(wanted))
        commands[tool] = home / scripts / tool
    return commands


def write_log(path: Path, steps: int, metrics: int) -> None:
    """JSON lines as TRL's GRPOTrainer logs them: ``metrics`` keys in each of ``steps`` rows and a score on a held-out
    set every 20 rows; a run that learns, with AR(1) noise."""
    import numpy as np  # only in the process that writes: a child's peak memory counts from the size of its parent

    draw = np.random.default_rng(0)

    def noise(spread: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        white = draw.normal(0.0, spread, steps)
        for at in range(1, steps):
            white[at] += 0.5 * white[at - 1]
        return white

    progress = 1.0 / (1.0 + np.exp(-8.0 * (np.arange(steps) / steps - 0.4)))
    answers = 64
    right = np.clip(np.round((0.15 + 0.6 * progress + noise(0.04)) * answers) / answers, 0, 1)
    shaped = np.clip(np.round((0.9 + 0.08 * progress + noise(0.01)) * answers) / answers, 0, 1)
    bernoulli = answers / (answers - 1)
    length = 300 + 150 * progress + noise(12)
    columns = {
        "loss": noise(0.02),
        "grad_norm": np.abs(0.4 + noise(0.06)),
        "learning_rate": 1e-6 * (1 - np.arange(steps) / steps),
        "num_tokens": np.cumsum(length * answers).round(),
        "completions/mean_length": length,
        "completions/min_length": length * 0.3,
        "completions/max_length": np.minimum(length * 2.2, 1024),
        "completions/clipped_ratio": np.clip(np.round((0.02 + noise(0.01)) * answers) / answers, 0, 1),
        "rewards/accuracy_reward/mean": right,
        "rewards/accuracy_reward/std": np.sqrt(right * (1 - right) * bernoulli),
        "rewards/format_reward/mean": shaped,
        "rewards/format_reward/std": np.sqrt(shaped * (1 - shaped) * bernoulli),
        "reward": right + shaped,
        "reward_std": np.abs(0.3 + noise(0.03)),
        "frac_reward_zero_std": np.clip(np.round((0.25 + noise(0.06)) * 8) / 8, 0, 1),
        "entropy": np.abs(0.6 - 0.15 * progress + noise(0.02)),
        "kl": np.abs(0.002 + 0.02 * progress + noise(0.001)),
        "clip_ratio/low_mean": np.abs(noise(0.002)),
        "clip_ratio/high_mean": np.abs(noise(0.002)),
        "clip_ratio/region_mean": np.abs(noise(0.003)),
        "step_time": np.abs(9 + noise(0.5)),
        "epoch": np.arange(1, steps + 1) / steps,
    }
    columns |= {f"profiling/part_{i}": np.abs(1 + noise(0.1)) for i in range(metrics - len(columns))}
    table = np.column_stack(
        [np.round(values, 9 if key == "learning_rate" else ROUNDING) for key, values in columns.items()]
    )
    with path.open("w", encoding="utf-8") as out:
        for at, row in enumerate(table.tolist()):
            out.write(json.dumps({**dict(zip(columns, row, strict=True)), "step": at + 1}) + "\n")
            if at % 20 == 19:
                score = round(float(np.clip(0.1 + 0.55 * progress[at] + draw.normal(0, 0.02), 0, 1)), 4)
                out.write(json.dumps({"eval_reward": score, "eval_loss": 0.1, "step": at + 1}) + "\n")


def run(command: list[str], build: Path) -> tuple[float, float, float, str]:
    """(wall seconds, CPU seconds, peak MiB, why it failed) of one process, ended after ``LIMIT``."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env["PYTHONPYCACHEPREFIX"] = str(build / "bytecode")  # warm for every tool, whatever the surroundings forbid
    errors = build / "stderr.txt"
    with errors.open("wb") as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=env)
        timer = threading.Timer(LIMIT, process.kill)
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    peak = used.ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)
    failed = ""
    if wall >= LIMIT:
        failed = f"ended after {LIMIT:.0f} s"
    elif process.returncode not in (0, 1):
        last = errors.read_text(errors="replace").strip().splitlines()[-1:]
        failed = f"exit code {process.returncode}: {' '.join(last)[:80]}"
    return wall, used.ru_utime + used.ru_stime, peak, failed


def measure(commands: dict[str, Path], tools: dict[str, int], log: Path, build: Path) -> dict[str, Measured]:
    """Each tool as often as asked, taking turns so that a busy machine slows all of them alike."""
    results = {tool: Measured() for tool in tools}
    for turn in range(max(tools.values())):
        for tool, times in tools.items():
            if turn < times and not results[tool].failed:
                wall, cpu, peak, failed = run([str(commands[tool]), "diagnose", str(log)], build)
                one = results[tool]
                one.wall.append(wall)
                one.cpu.append(cpu)
                one.peak, one.failed = max(one.peak, peak), failed
    return results


def examined(command: Path, log: Path) -> tuple[set[str], set[str]]:
    """Names of the checks that looked at the log, and of all checks."""
    report = json.loads(
        subprocess.run([command, "diagnose", "--format", "json", log], capture_output=True, check=True).stdout
    )
    checks = {row["check"]: row["outcome"] for row in report["checks"]}
    return {name for name, outcome in checks.items() if outcome == "examined"}, set(checks)


def table(sizes: dict[str, dict[str, Measured]], build: Path) -> list[str]:
    """The measurements as a Markdown table."""
    lines = ["| log | tool | wall, median | lowest to highest | CPU | peak memory | |", "|---|---|--:|--:|--:|--:|---|"]
    for size, results in sizes.items():
        steps, metrics = SIZES[size]
        mega = (build / f"{size}.jsonl").stat().st_size / 1e6
        for tool, one in results.items():
            wall = f"> {LIMIT:.0f} s" if one.ended else f"{one.median:.2f} s"
            lines.append(
                f"| {steps:,} x {metrics} ({mega:.1f} MB) | {tool} | {wall} | {min(one.wall):.2f} to {max(one.wall):.2f} s"
                f" | {statistics.median(one.cpu):.2f} s | {one.peak:,.0f} MiB | {one.failed or f'{len(one.wall)} runs'} |"
            )
    return lines


def goals(sizes: dict[str, dict[str, Measured]], looked: dict[str, tuple[set[str], set[str]]]) -> list[str]:
    """Each goal with what was measured and whether it is met."""
    lines = ["| goal | measured | |", "|---|--:|---|"]

    def say(goal: str, measured: str, met: bool) -> None:
        lines.append(f"| {goal} | {measured} | {'met' if met else '**missed**'} |")

    small, medium, large = (sizes.get(size, {}) for size in SIZES)
    if "rldoctor" in small:
        ratio = small["rlclinic"].median / small["rldoctor"].median
        say("400 x 30: at most 1.5 times rldoctor's time", f"{ratio:.2f} times", ratio <= 1.5)
    if "rldoctor" in medium:
        theirs = medium["rldoctor"]
        ratio = theirs.median / medium["rlclinic"].median
        bound = "more than " if theirs.failed else ""
        say("20,000 x 60: at least 20 times faster than rldoctor", f"{bound}{ratio:.0f} times", ratio >= 20)
    if medium:
        peak = medium["rlclinic"].peak
        say("20,000 x 60: at most 300 MiB", f"{peak:.0f} MiB", peak <= 300)
    if "runmedic" in medium:
        ratio = medium["rlclinic"].median / medium["runmedic"].median
        say("20,000 x 60: not slower than runmedic", f"{ratio:.2f} times its time", ratio <= 1)
    if medium and large:
        ratio = large["rlclinic"].median / medium["rlclinic"].median
        say("100,000 x 60: at most 6 times the time of 20,000", f"{ratio:.1f} times", ratio <= 6)
    able = looked["small"][0]
    for size, (names, every) in looked.items():
        left = ", ".join(sorted(able - names))
        say(
            f"{SIZES[size][0]:,} x {SIZES[size][1]}: every check examined that 400 x 30 can answer",
            f"{len(names & able)} of {len(able)} ({len(every)} checks in all)" + (f", not {left}" if left else ""),
            not left,
        )
    return lines


def main() -> None:
    """Install, generate, measure, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out rldoctor at 20,000 rows (minutes, about 6 GiB)")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "benchmarks", help="environments and logs go here"
    )
    parser.add_argument("--repeat", type=int, default=9, help="runs of each tool on the small log")
    parser.add_argument("--write", choices=SIZES, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    build: Path = chosen.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    if chosen.write:
        write_log(build / f"{chosen.write}.jsonl", *SIZES[chosen.write])
        return
    commands = install(build)
    for size in SIZES:
        if not (build / f"{size}.jsonl").exists():
            print(f"writing {size}.jsonl ...", file=sys.stderr)
            subprocess.run([sys.executable, __file__, "--build", build, "--write", size], check=True)

    plan: dict[str, dict[str, int]] = {
        "small": {"rlclinic": chosen.repeat, "rldoctor": chosen.repeat, "runmedic": chosen.repeat},
        "medium": {"rlclinic": 3, "runmedic": 3} | ({} if chosen.quick else {"rldoctor": 1}),
        "large": {"rlclinic": 2} | ({} if chosen.quick else {"runmedic": 1}),
    }
    measure(commands, dict.fromkeys(commands, 1), build / "small.jsonl", build)  # warms caches; not counted
    sizes = {}
    for size, tools in plan.items():
        print(f"measuring {size} ...", file=sys.stderr)
        sizes[size] = measure(commands, tools, build / f"{size}.jsonl", build)
    looked = {size: examined(commands["rlclinic"], build / f"{size}.jsonl") for size in SIZES}

    print(
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors\n"
    )
    print("\n".join(table(sizes, build)), end="\n\n")
    print("\n".join(goals(sizes, looked)))


if __name__ == "__main__":
    main()
