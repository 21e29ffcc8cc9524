"""Time, growth and memory of the statistics on long series, on one core, beside rldoctor's own functions in one run."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diagnose import ROOT, install, run

SIZES = {400: 15, 2_000: 11, 20_000: 7, 100_000: 3}
"""Points of a series, and how many series of that length are timed."""
THEIRS = {"trend": "trend", "step_scan": "cusum_changepoint"}
"""Our functions and those of rldoctor that answer the same question."""
PAIRWISE = 2_000
"""Points up to which rldoctor's trend runs everywhere: it holds several n x n arrays, 3.2 GB each at 20,000."""
EXAMINED = (20_000, 60)
NOISE = 1.3
"""Times of two sizes count as no worse than n log n up to this factor, which repeated runs differ by."""

Series = tuple[Any, Any]


def series(n: int, seed: int) -> Series:
    """(n,) steps and values: AR(1) noise with spikes, around nothing, a decay, a step, a saw-tooth or a slow wave."""
    import numpy as np

    rng = np.random.default_rng(seed)
    phi = (0.0, 0.5, 0.9)[seed % 3]
    kernel = phi ** np.arange(1 + int(6 / (1 - phi)))
    y = np.convolve(rng.standard_normal(n + len(kernel)), kernel)[len(kernel) : len(kernel) + n] * (1 - phi**2) ** 0.5
    f = np.arange(n) / n
    y += (0.0 * f, 10 * np.exp(-4 * f), 4.0 * (f > 0.6), 2 * (8 * f % 1), 2 * np.sin(9 * f))[seed % 5]
    y[rng.choice(n, max(1, n // 500), replace=False)] += 20
    return np.arange(n, dtype=np.float64), y


def ours() -> dict[str, Callable[[Any, Any], object]]:
    """What is timed of rlclinic."""
    from rlclinic.stats.excursion import excursions
    from rlclinic.stats.forecast import forecast
    from rlclinic.stats.shift import lasting_change, step_scan, steps_found
    from rlclinic.stats.trend import plateau, trend

    def crossing(steps: Any, values: Any) -> object:
        return forecast(steps, values, float(values.min()) - 1.0)

    return {
        "trend": trend,
        "plateau": lambda steps, values: plateau(steps, values, 0.1),
        "step_scan": step_scan,
        "steps_found": steps_found,
        "lasting_change": lasting_change,
        "excursions": excursions,
        "forecast": crossing,
    }


def theirs() -> dict[str, Callable[[Any, Any], object]]:
    """The functions of rldoctor under the names of ours."""
    import rl_doctor.stats as module

    return {mine: getattr(module, name) for mine, name in THEIRS.items()}


def time_each(functions: dict[str, Callable[[Any, Any], object]], n: int, times: int) -> dict[str, float]:
    """Median CPU seconds of each function on ``times`` series of ``n`` points, each asked once and one more before
    them that warms caches (unless it is asked only once)."""
    found = {}
    for number, (name, ask) in enumerate(functions.items()):
        spent = []
        for seed in range(times + (times > 1)):
            steps, values = series(n, 1000 * number + seed)
            began = time.process_time()
            ask(steps, values)
            spent.append(time.process_time() - began)
        found[name] = statistics.median(spent[-times:])
    return found


def examine() -> dict[str, float]:
    """CPU seconds that each function takes over all columns of a long log, asked one after the other per column."""
    n, columns = EXAMINED
    functions = {name: ours()[name] for name in ("trend", "steps_found", "lasting_change", "plateau")}
    spent = dict.fromkeys(functions, 0.0)
    table = [series(n, seed) for seed in range(columns)]
    for steps, values in table:
        for name, ask in functions.items():
            began = time.process_time()
            ask(steps, values)
            spent[name] += time.process_time() - began
    return spent


def work(job: str, build: Path) -> None:
    """What the child process does: one job, its answer left in a file."""
    what, n, only = job.split(":")
    if what == "examine":
        found = examine()
    elif what == "ours":
        found = time_each(ours(), int(n), SIZES[int(n)])
    else:
        slow = only == "trend" and int(n) > PAIRWISE
        found = time_each({only: theirs()[only]}, int(n), 1 if slow else SIZES[int(n)])
    (build / "stats.json").write_text(json.dumps(found))


def child(python: Path, job: str, build: Path) -> tuple[dict[str, float], float, str]:
    """(CPU seconds per function, peak MiB, why there are none) of one job in a process of its own."""
    answer = build / "stats.json"
    answer.unlink(missing_ok=True)
    _, _, peak, failed = run([str(python), __file__, "--build", str(build), "--job", job], build)
    if failed or not answer.exists():
        return {}, peak, failed or "no answer"
    return json.loads(answer.read_text()), peak, ""


def growth(times: dict[int, float]) -> tuple[str, bool]:
    """Exponents between neighbouring sizes, and whether each of these steps is no worse than n log n."""
    sizes = sorted(times)
    exponents, even = [], True
    for a, b in itertools.pairwise(sizes):
        ratio = times[b] / times[a]
        exponents.append(f"{math.log(ratio) / math.log(b / a):.2f}")
        even &= ratio <= NOISE * b * math.log(b) / (a * math.log(a))
    return " / ".join(exponents), even


def report(
    mine: dict[str, dict[int, float]], rival: dict[str, dict[int, float | str]], spent: dict[str, float], peak: float
) -> None:
    """Print everything as Markdown."""
    print(
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, one core, CPU time, medians\n"
    )
    sizes = " | ".join(f"{n:,}" for n in SIZES)
    print(f"| function | {sizes} points | exponents | at most n log n |\n|---|{'--:|' * len(SIZES)}---|---|")
    for name, times in mine.items():
        exponents, even = growth(times)
        row = " | ".join(f"{1e3 * times[n]:.1f} ms" for n in SIZES)
        print(f"| {name} | {row} | {exponents} | {'yes' if even else '**no**'} |")

    print("\n| rldoctor 0.2.0 | points | its time | ours | its time over ours |\n|---|--:|--:|--:|--:|")
    for name, times in rival.items():
        for n, theirs in times.items():
            own = mine[name][n]
            ratio = "" if isinstance(theirs, str) else f"{theirs / own:,.1f}"
            said = theirs if isinstance(theirs, str) else f"{1e3 * theirs:,.1f} ms"
            print(f"| {THEIRS[name]} | {n:,} | {said} | {name}: {1e3 * own:.1f} ms | {ratio} |")

    total = sum(spent.values())
    parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())
    n, columns = EXAMINED
    print("\n| goal | measured | |\n|---|--:|---|")
    for goal, measured, met in (
        (f"{n:,} x {columns} examined ({parts}): under 3 s of one core", f"{total:.2f} s", total < 3.0),
        (f"{n:,} x {columns}: under 300 MiB", f"{peak:.0f} MiB", peak < 300.0),
    ):
        print(f"| {goal} | {measured} | {'met' if met else '**missed**'} |")


def main() -> None:
    """Install, measure, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="leave out rldoctor's trend at 20,000 points (about 6.5 GiB)"
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "benchmarks", help="environments go here")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    build: Path = chosen.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    if chosen.job:
        work(chosen.job, build)
        return

    for library in ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    python = {tool: command.with_name("python") for tool, command in install(build).items()}
    mine: dict[str, dict[int, float]] = {}
    rival: dict[str, dict[int, float | str]] = {name: {} for name in THEIRS}
    for n in SIZES:
        print(f"measuring {n:,} points ...", file=sys.stderr)
        found, _, failed = child(python["rlclinic"], f"ours:{n}:", build)
        if failed:
            sys.exit(f"rlclinic: {failed}")
        for name, seconds in found.items():
            mine.setdefault(name, {})[n] = seconds
        for name in THEIRS:
            if name == "trend" and n > (PAIRWISE if chosen.quick else 20_000):
                rival[name][n] = f"not run: {8e-9 * n * n:.1f} GB per n x n array"
                continue
            found, _, failed = child(python["rldoctor"], f"theirs:{n}:{name}", build)
            rival[name][n] = failed or found[name]
    print("examining a long log ...", file=sys.stderr)
    spent, peak, failed = child(python["rlclinic"], "examine::", build)
    if failed:
        sys.exit(f"rlclinic: {failed}")
    report(mine, rival, spent, peak)


if __name__ == "__main__":
    main()
