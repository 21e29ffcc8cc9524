"""What a monitor costs inside a training loop: time of each step, of a look, and memory, beside two others in one run."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from diagnose import ROOT, TOOLS, install, run

METRICS = 60
LOOKED_AT = 10_000
"""Rows at which a look is timed, check by check."""
CHECKS = 30
"""Checks of which a look is asked to stay within ``LOOK`` seconds."""
STEP, LOOK, GROWTH = 1e-3, 0.050, 30.0
"""Goals: seconds of a step between looks (99 %), CPU seconds of a look, MiB that a long run may add."""
LENGTHS = (1_000, 3_000, 10_000, 30_000, 100_000)
"""Steps after which memory is read."""
BESIDE = 1_000
"""Steps of the run that all tools watch (rldoctor's time grows with the square of them)."""
RIVALS = {"rldoctor": TOOLS["rldoctor"], "rlwatch": ["rlwatch==0.5.1"]}
REPEATS = 7

Row = dict[str, float]
Log = Callable[[Row, int], object]


@dataclass
class Steps:
    """The seconds that each step of a run cost, those with a look apart; ``rss`` in MiB before and after the run."""

    between: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    """CPU seconds of the thread in the steps between looks: what a machine at rest would show."""
    looks: list[float] = field(default_factory=list)
    cpu: float = 0.0
    rss: tuple[float, float] = (0.0, 0.0)


def rows(steps: int) -> Iterator[Row]:
    """Rows of TRL's GRPOTrainer in a run of ``steps`` steps that learns, with AR(1) noise, made one by one; a score on a
    held-out set every 20 rows. Made without numpy, which not every tool has loaded by then."""
    import random

    draw = random.Random(0)
    state = [0.0] * METRICS
    keys = ["loss", "grad_norm", "learning_rate", "num_tokens", "completions/mean_length", "completions/min_length",
            "completions/max_length", "completions/clipped_ratio", "rewards/accuracy_reward/mean",
            "rewards/accuracy_reward/std", "rewards/format_reward/mean", "rewards/format_reward/std", "reward",
            "reward_std", "frac_reward_zero_std", "entropy", "kl", "clip_ratio/low_mean", "clip_ratio/high_mean",
            "clip_ratio/region_mean", "step_time", "epoch"]  # fmt: skip
    keys += [f"profiling/part_{i}" for i in range(METRICS - len(keys))]
    for step in range(1, steps + 1):
        state = [0.5 * old + draw.gauss(0.0, 1.0) for old in state]
        done = step / steps
        learnt = done / (0.2 + done)
        right = min(1.0, max(0.0, round((0.15 + 0.6 * learnt + 0.04 * state[8]) * 64) / 64))
        shaped = min(1.0, max(0.0, round((0.9 + 0.08 * learnt + 0.01 * state[10]) * 64) / 64))
        length = 300.0 + 150.0 * learnt + 12.0 * state[4]
        row = {key: abs(1.0 + 0.1 * noise) for key, noise in zip(keys, state, strict=True)}
        row |= {
            "loss": 0.02 * state[0],
            "grad_norm": abs(0.4 + 0.06 * state[1]),
            "learning_rate": 1e-6 * (1.0 - done),
            "num_tokens": float(step * 64 * 375),
            "completions/mean_length": length,
            "completions/min_length": 0.3 * length,
            "completions/max_length": min(2.2 * length, 1024.0),
            "completions/clipped_ratio": max(0.0, round((0.02 + 0.01 * state[7]) * 64) / 64),
            "rewards/accuracy_reward/mean": right,
            "rewards/accuracy_reward/std": (right * (1.0 - right) * 64 / 63) ** 0.5,
            "rewards/format_reward/mean": shaped,
            "rewards/format_reward/std": (shaped * (1.0 - shaped) * 64 / 63) ** 0.5,
            "reward": right + shaped,
            "reward_std": abs(0.3 + 0.03 * state[13]),
            "frac_reward_zero_std": min(1.0, max(0.0, round((0.25 + 0.06 * state[14]) * 8) / 8)),
            "entropy": abs(0.6 - 0.15 * learnt + 0.02 * state[15]),
            "kl": abs(0.002 + 0.02 * learnt + 0.001 * state[16]),
            "epoch": done,
        }
        yield row
        if step % 20 == 0:
            yield {"eval_reward": round(min(1.0, max(0.0, 0.1 + 0.55 * learnt + draw.gauss(0.0, 0.02))), 4)}


def resident() -> float:
    """MiB that the process holds now; where the system does not tell, the most that it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)
    return pages * resource.getpagesize() / 2**20


# ---------------------------------------------------------------- the tools, each in a process of its own


def ours(state: str | None = None) -> tuple[Log, Callable[[], object]]:
    """``log`` of our monitor, and what changes with every look; looks are made as often as rows allow."""
    from rlclinic import Monitor

    monitor = Monitor(framework="trl", share=None, tell=lambda events, diagnosis: None, rank=0, state=state)
    return monitor.log, lambda: monitor.diagnosis


def rldoctor() -> tuple[Log, Callable[[], object]]:
    from rl_doctor.live import LiveMonitor

    monitor = LiveMonitor(on_finding=lambda finding: None)
    return monitor.log, lambda: monitor.latest


def rlwatch(folder: str) -> tuple[Log, Callable[[], object]]:
    """It looks at every step, under names of its own, and keeps each row in SQLite."""
    import rlwatch as module

    logging.disable(logging.CRITICAL)
    os.chdir(folder)
    monitor = module.attach(framework="manual", run_id="benchmark")
    named = {"entropy": "entropy", "kl_divergence": "kl", "reward_mean": "reward", "reward_std": "reward_std",
             "loss": "loss", "learning_rate": "learning_rate", "grad_norm": "grad_norm"}  # fmt: skip
    taken = set(named.values())

    def log(row: Row, step: int) -> object:
        rest = {key: value for key, value in row.items() if key not in taken}
        return monitor.log_step(step, **{name: row.get(key) for name, key in named.items()}, **rest)

    return log, lambda: None


def watched(log: Log, looked: Callable[[], object], steps: int) -> Steps:
    """A run of ``steps`` steps under one tool."""
    made = Steps()
    step, before = 0, looked()
    for count, row in enumerate(rows(steps)):
        step += "loss" in row
        spent, busy, began = time.process_time(), time.thread_time(), time.perf_counter()
        log(row, step)
        took, busy = time.perf_counter() - began, time.thread_time() - busy
        made.cpu += time.process_time() - spent
        now = looked()
        (made.between if now is before else made.looks).append(took)
        made.busy += [busy] if now is before else []
        before = now
        if count == 99:
            made.rss = (resident(), 0.0)
    made.rss = (made.rss[0], resident())
    return made


def memory() -> list[tuple[int, float, float]]:
    """(steps, MiB more than after the first looks, most MiB more until then) of our monitor in one long run."""
    log, _ = ours()
    found, first, most, step = [], 0.0, 0.0, 0
    for row in rows(max(LENGTHS)):
        step += "loss" in row
        log(row, step)
        if step == 100 and "loss" in row:
            first = resident()
        if step % 250 == 0 and "loss" in row and step > 100:
            most = max(most, resident() - first)
            if step in LENGTHS:
                found.append((step, resident() - first, most))
    return found


def looks() -> dict[str, Any]:
    """CPU seconds of a warm look at ``LOOKED_AT`` rows: the parts of it, every check in turn, and the least costly checks
    alone. Each look has one more row than the one before, so that no answer is found again."""
    from rlclinic import vitals
    from rlclinic.answers import agreement
    from rlclinic.checks import CHECKS as EVERY
    from rlclinic.checks import examine
    from rlclinic.diagnose import diagnose
    from rlclinic.live.growing import Growing

    growing, step = Growing(framework="trl"), 0
    coming = rows(LOOKED_AT)

    def longer(by: int) -> None:
        nonlocal step
        for row in islice(coming, by):
            step += "loss" in row
            growing.add(row, step)

    def timed(ask: Callable[[Any], object]) -> float:
        """Median CPU seconds of ``ask`` about runs of different length."""
        spent = []
        for _ in range(REPEATS):
            longer(1)
            run = growing.run()
            began = time.process_time()
            ask(run)
            spent.append(time.process_time() - began)
        return statistics.median(spent)

    longer(LOOKED_AT - 4 * REPEATS - 1)
    diagnose(growing.run())
    made, whole = timed(lambda run: growing.run()), timed(diagnose)
    each: dict[str, list[float]] = {}

    def one_by_one(run: Any) -> None:
        judged = agreement.own(vitals.complete(run))
        for check in EVERY:
            began = time.process_time()
            outcome, _ = examine(check, judged)
            if outcome.outcome == "examined":
                each.setdefault(check.name, []).append(time.process_time() - began)

    timed(one_by_one)
    cost = {name: statistics.median(times) for name, times in each.items()}
    chosen = sorted(cost, key=lambda name: cost[name])[:CHECKS]
    least = timed(lambda run: diagnose(run, only=chosen))
    return {
        "rows to run": made,
        "diagnose": whole,
        "each": cost,
        "least": least,
    }


def work(job: str, answer: Path) -> None:
    """What the child process does: one job, its answer left in a file."""
    what, _, tool = job.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        if what == "memory":
            found: Any = memory()
        elif what == "looks":
            found = looks()
        else:
            steps = LOOKED_AT if what == "long" else BESIDE
            tools = {
                "rlclinic": ours,
                "rlclinic, state kept": lambda: ours(f"{folder}/state"),
                "rldoctor": rldoctor,
                "rlwatch": lambda: rlwatch(folder),
            }
            found = asdict(watched(*tools[tool](), steps))
        answer.write_text(json.dumps(found))
        os._exit(0) if tool == "rlwatch" else None  # it keeps files open in its folder until it exits


# ---------------------------------------------------------------- the report


def child(python: Path, job: str, build: Path) -> Any:
    """What one job in a process of its own found; a text says why there is nothing."""
    answer = build / "live.json"
    answer.unlink(missing_ok=True)
    print(f"measuring {job} ...", file=sys.stderr)
    _, _, _, failed = run([str(python), __file__, "--build", str(build), "--job", job], build)
    return json.loads(answer.read_text()) if answer.exists() and not failed else failed or "no answer"


def high(times: list[float], share: float) -> float:
    """The ``share`` quantile."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def of_steps(found: dict[str, Steps | str]) -> list[str]:
    """The steps of a run under each tool as a Markdown table."""
    lines = [
        "| tool | step: median | 99 % | 99 %, CPU | looks | a look: median | longest | all, CPU | memory more |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for tool, one in found.items():
        if isinstance(one, str):
            lines.append(f"| {tool} | {one} | | | | | | | |")
            continue
        b, looked = one.between, one.looks
        look = f"{1e3 * statistics.median(looked):,.0f} ms | {1e3 * max(looked):,.0f} ms" if looked else "| "
        step = " | ".join(f"{1e6 * t:,.0f} us" for t in (statistics.median(b), high(b, 0.99), high(one.busy, 0.99)))
        lines.append(
            f"| {tool} | {step}"
            f" | {len(looked) or 'every step'} | {look} | {one.cpu:,.1f} s | {one.rss[1] - one.rss[0]:,.0f} MiB |"
        )
    return lines


def report(long: Steps, beside: dict[str, Steps | str], look: dict[str, Any], grown: list[list[float]]) -> list[str]:
    """Everything as Markdown."""
    cost: dict[str, float] = look["each"]
    dearest = sorted(cost.items(), key=lambda pair: -pair[1])[:8]
    every = sum(cost.values())
    lines = [f"{LOOKED_AT:,} steps x {METRICS} metrics, each look that is due:", "", *of_steps({"rlclinic": long}), ""]
    lines += [f"{BESIDE:,} steps x {METRICS} metrics:", "", *of_steps(beside), ""]
    lines += [
        f"A look at {LOOKED_AT:,} rows, CPU time of one core, warm:",
        "",
        "| | |",
        "|---|--:|",
        f"| the rows made a run | {1e3 * look['rows to run']:.0f} ms |",
        f"| the whole diagnosis | {1e3 * look['diagnose']:.0f} ms |",
        f"| of it the {len(cost)} checks that apply | {1e3 * every:.0f} ms |",
        f"| {CHECKS} checks at their mean cost | {1e3 * every / max(1, len(cost)) * CHECKS:.0f} ms |",
        f"| the {CHECKS} least costly of them alone, whole diagnosis | {1e3 * look['least']:.0f} ms |",
        f"| dearest, the first that asks pays for shared readings | "
        f"{', '.join(f'{name} {1e3 * seconds:.0f}' for name, seconds in dearest)} ms |",
        "",
        "Memory of one run, more than after its first 100 steps:",
        "",
        "| steps | now | most so far |",
        "|--:|--:|--:|",
        *(f"| {int(steps):,} | {now:.1f} MiB | {most:.1f} MiB |" for steps, now, most in grown),
        "",
        "| goal | measured | |",
        "|---|--:|---|",
    ]

    def say(goal: str, measured: str, met: bool) -> None:
        lines.append(f"| {goal} | {measured} | {'met' if met else '**missed**'} |")

    step = high(long.busy, 0.99)
    say(f"{METRICS} metrics: 99 % of the steps between looks under 1 ms of CPU", f"{1e3 * step:.2f} ms", step < STEP)
    least = look["least"]
    say(f"{CHECKS} checks at {LOOKED_AT:,} rows under 50 ms of one core", f"{1e3 * least:.0f} ms", least < LOOK)
    say(f"all {len(cost)} checks that apply within the same time", f"{1e3 * every:.0f} ms", every < LOOK)
    most = max((one[2] for one in grown), default=float("nan"))
    say(f"{max(LENGTHS):,} steps x {METRICS} add less than 30 MiB", f"{most:.1f} MiB", most < GROWTH)
    mine = beside["rlclinic"]
    for tool, theirs in beside.items():
        if not isinstance(mine, str) and not isinstance(theirs, str) and tool in RIVALS:
            ratio = theirs.cpu / mine.cpu
            lines.append(f"| {BESIDE:,} steps: CPU time of {tool} over ours | {ratio:,.1f} times | |")
    return lines


def main() -> None:
    """Install, measure, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the other tools")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "benchmarks", help="environments go here")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    build: Path = chosen.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    if chosen.job:
        work(chosen.job, build / "live.json")
        return

    for library in ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    tools = {"rlclinic": TOOLS["rlclinic"]} | ({} if chosen.quick else RIVALS)
    python = {tool: command.with_name("python") for tool, command in install(build, tools).items()}
    beside: dict[str, Steps | str] = {}
    for tool in ("rlclinic", "rlclinic, state kept", *(tool for tool in RIVALS if tool in tools)):
        found = child(python[tool.split(",")[0]], f"beside:{tool}", build)
        beside[tool] = found if isinstance(found, str) else Steps(**found)
    wanted = {job: child(python["rlclinic"], job, build) for job in ("long:rlclinic", "looks", "memory")}
    for job, found in wanted.items():
        if isinstance(found, str):
            sys.exit(f"{job}: {found}")
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, one BLAS thread\n")
    print("\n".join(report(Steps(**wanted["long:rlclinic"]), beside, wanted["looks"], wanted["memory"])))


if __name__ == "__main__":
    main()
