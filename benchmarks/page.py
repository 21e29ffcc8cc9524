"""Size, time to write and time to open of the HTML report of a long run: 60 metrics x 20,000 steps.

    python benchmarks/page.py                  # writes build/benchmarks/page.html
    python benchmarks/page.py --steps 2000 --metrics 40
    python benchmarks/page.py --beside PAGE.html   # another page to open in turn, for the ratio

Opening is measured in Chromium where playwright and a browser are there, else left out and said so.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from rlclinic import names
from rlclinic.diagnose import diagnose
from rlclinic.model import Column, Run
from rlclinic.report import render

ROOT = Path(__file__).resolve().parents[1]
OPENED = 5
"""Times each page is opened; the median counts."""
GOALS = {"page": 3_000_000, "write": 5.0, "open": 1.0, "zoom": 0.5}


def long_run(steps: int, metrics: int) -> Run:
    """A run that loses its entropy half-way, with spikes, a hole and a stretch of NaN in the gradient norm."""
    draw = np.random.default_rng(0)
    at = np.arange(1.0, steps + 1)
    progress = at / steps
    collapse = np.clip((progress - 0.45) * 4, 0, 1)
    columns = {}
    vital = ("reward.mean", "entropy.mean", "group.zero_var_frac", "kl.ref", "length.response.mean", "grad.norm")
    rest = [name for name in names.metrics() if not name.startswith("eval.") and name not in vital]
    for i, name in enumerate([*vital, *rest][:metrics]):
        metric = names.metric(name)
        noise = draw.normal(0, 0.02, steps)
        values = 0.4 + 0.1 * np.sin(progress * (3 + i % 7)) + noise
        if name == "entropy.mean":
            values = 0.9 * (1 - collapse) + 0.02 + np.abs(noise)
        elif name == "reward.mean":
            values = 0.2 + 0.5 * progress * (1 - collapse) + noise
        elif name == "grad.norm":
            values = np.abs(values)
            values[steps // 3 :: 997] = 60.0
            values[steps // 2 : steps // 2 + 40] = np.nan
        elif metric.low is not None or metric.high is not None:
            values = np.clip(values, metric.low, metric.high)
        keep = np.ones(steps, dtype=bool)
        keep[steps // 5 : steps // 5 + steps // 40] = name != "kl.ref"
        columns[name] = Column(name, name, at[keep], values[keep])
    return Run(name="long-run", columns=columns)


def browser() -> str | None:
    """A Chromium that playwright can start, if there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return None
    return next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)


def opened(pages: dict[str, Path], program: str) -> dict[str, dict[str, float]]:
    """Median seconds to the load event and its painting, of the page's own processor time until then, and to the first
    zoomed plot, of each page; they take turns."""
    from playwright.sync_api import sync_playwright

    taken: dict[str, dict[str, list[float]]] = {name: {"open": [], "busy": [], "zoom": []} for name in pages}
    with sync_playwright() as start:
        chromium = start.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(OPENED):
            for name, path in pages.items():
                page = chromium.new_page(viewport={"width": 1200, "height": 900})
                tools = page.context.new_cdp_session(page)
                tools.send("Performance.enable", {"timeDomain": "threadTicks"})
                began = time.perf_counter()
                page.goto(path.resolve().as_uri(), wait_until="load")
                page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
                taken[name]["open"].append(time.perf_counter() - began)
                told = tools.send("Performance.getMetrics")["metrics"]
                taken[name]["busy"].append(next(row["value"] for row in told if row["name"] == "TaskDuration"))
                button = page.locator("figure.plot.ready .zoom").first
                if button.count():
                    began = time.perf_counter()
                    button.click()
                    page.wait_for_selector("figure.plot.open canvas")
                    taken[name]["zoom"].append(time.perf_counter() - began)
                page.close()
        chromium.close()
    return {
        name: {what: statistics.median(times) for what, times in rows.items() if times} for name, rows in taken.items()
    }


def main() -> None:
    """Make the run, write its page, open it, and print Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--metrics", type=int, default=60)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "benchmarks", help="the page goes here")
    parser.add_argument("--beside", type=Path, help="another HTML page, opened in turn")
    chosen = parser.parse_args()
    chosen.build.mkdir(parents=True, exist_ok=True)
    run = long_run(chosen.steps, chosen.metrics)
    print("diagnosing ...", file=sys.stderr)
    diagnosis = diagnose(run)
    began, cpu = time.perf_counter(), time.process_time()
    text = render(diagnosis, "html")
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    page = chosen.build / "page.html"
    page.write_text(text, encoding="utf-8")
    size = page.stat().st_size

    print(
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors\n"
    )
    print(f"{chosen.steps:,} steps x {len(run.columns)} metrics, {len(diagnosis.findings)} findings,", end=" ")
    print(f"{text.count('<figure')} figures\n\n| | measured | goal | |\n|---|--:|--:|---|")

    def say(what: str, measured: float, goal: float, unit: str, digits: int) -> None:
        met = "met" if measured <= goal else "**missed**"
        print(f"| {what} | {measured:,.{digits}f} {unit} | {goal:,.{digits}f} {unit} | {met} |")

    say("page", size / 1e6, GOALS["page"] / 1e6, "MB", 2)
    say("to write it (CPU)", cpu, GOALS["write"], "s", 2)
    print(f"| to write it (wall) | {wall:.2f} s | | |")
    program = browser()
    if program is None:
        print("\nNo browser for playwright here: opening was not measured.")
        return
    pages = {"ours": page} | ({"other": chosen.beside} if chosen.beside else {})
    times = opened(pages, program)
    say("to open it", times["ours"]["open"], GOALS["open"], "s", 2)
    print(f"| of that, its own processor time | {times['ours']['busy']:.2f} s | | |")
    if "zoom" in times["ours"]:
        say("to the first zoomed plot", times["ours"]["zoom"], GOALS["zoom"], "s", 2)
    if "other" in times:
        ratio = times["ours"]["open"] / times["other"]["open"]
        mega = chosen.beside.stat().st_size / 1e6
        print(f"| the other page ({mega:.2f} MB) | {times['other']['open']:.2f} s | | {ratio:.1f} times its time |")


if __name__ == "__main__":
    main()
