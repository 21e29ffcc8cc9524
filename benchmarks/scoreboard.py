"""Holds rlclinic and four other detectors against the same runs of known truth, and writes docs/scoreboard.md.

    python benchmarks/scoreboard.py            # simulated runs, timings, and labelled logs where they are; writes the page
    python benchmarks/scoreboard.py --quick    # a part of it, printed only
    python benchmarks/scoreboard.py --full     # more seeds; writes the page
    python benchmarks/scoreboard.py --only labelled       # one part anew, the others as they were kept
    python benchmarks/scoreboard.py --page     # the page again from the kept figures; --check: whether it is fresh

Each tool runs in an environment of its own below ``build/benchmarks``, which is made at the first run.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import platform
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import diagnose as timing
import scoreboard_page
from rivals import LEVELS, US, Said, Tool, fingerprint, load, near, ours

ROOT = timing.ROOT
sys.path.insert(0, str(ROOT / "tools"))  # the labelled logs are read as the other measures read them

import labelled  # noqa: E402
from rlclinic import read  # noqa: E402
from rlclinic.checks import BY_NAME  # noqa: E402
from rlclinic.errors import RlclinicError  # noqa: E402
from rlclinic.model import Run  # noqa: E402
from rlclinic.simulate import as_run, configuration, healthy, scenario, scenarios, write  # noqa: E402

RESULTS = Path(__file__).with_suffix(".json")
PAGE = ROOT / "docs" / "scoreboard.md"
Shape = tuple[int, int]
"""Steps of a run, and after how many of them a row is logged."""
SHAPES: tuple[Shape, ...] = ((400, 1), (400, 5), (400, 10), (1500, 5))
SEED, MEMORY = 31_000, (0.5, 0.9)
"""The first seed, and the memory of the noise from step to step that seeds take in turn."""
NOT_SHOWN = {
    "premature_stop": "no line of this form of log says that the run has ended",
    "regression_forgetting": "this form of log holds one held-out score only",
}
"""Sick runs that are left out, because nobody can see in these files what they have."""
SIZES: Mapping[str, Shape] = {"400 rows": (400, 1), "5,000 rows": (5000, 1)}
"""Logs on which the whole process is timed."""


@dataclass(frozen=True)
class Mode:
    """How much is simulated: shapes and seeds of healthy and of sick runs."""

    healthy: tuple[Shape, ...]
    sick: tuple[Shape, ...]
    seeds: int
    sick_seeds: int


MODES = {
    "quick": Mode(SHAPES[:3:2], SHAPES[:1], 1, 1),
    "default": Mode(SHAPES, SHAPES, 2, 1),
    "full": Mode(SHAPES, SHAPES, 8, 3),
}


@dataclass(frozen=True)
class Simulated:
    """One simulated run: what is true of it, and its files for each tool."""

    name: str
    shape: Shape
    truth: Mapping[str, float | None]
    inputs: Mapping[str, list[list[str]]]


def rlprobe_rows(run: Run, tool: Tool) -> list[dict[str, Any]]:
    """Every row of a run in the fields of rlprobe; a gradient that is not finite counts as one in its own field."""
    rows: dict[int, dict[str, Any]] = {}
    for metric, to in tool.fields.items():
        if metric not in run.columns:
            continue
        column = run.columns[metric]
        for step, value in zip(column.steps.astype(int).tolist(), column.values.tolist(), strict=True):
            row = rows.setdefault(step, {"step": step})
            if np.isfinite(value):
                row[to] = value
            elif metric in ("grad.norm", "loss.total"):
                row["nan_count" if np.isnan(value) else "inf_count"] = 1
    for name, part in run.components.items():
        for step, value in zip(part.mean.steps.astype(int).tolist(), part.mean.values.tolist(), strict=True):
            if np.isfinite(value):
                rows.setdefault(step, {"step": step}).setdefault("reward_components", {})[name] = value
    return [rows[step] for step in sorted(rows)]


def simulate(mode: Mode, place: Path, tools: Mapping[str, Tool]) -> list[Simulated]:
    """Write every simulated run of a mode, once for each form that some tool is handed."""
    plan = [(name, shape, mode.seeds) for name in healthy() for shape in mode.healthy]
    sick = [name for name in scenarios() if name not in healthy() and name not in NOT_SHOWN]
    plan += [(name, shape, mode.sick_seeds) for name in sick for shape in mode.sick]
    return [simulated(name, shape, seed, place, tools) for name, shape, seeds in plan for seed in range(seeds)]


def simulated(name: str, shape: Shape, seed: int, place: Path, tools: Mapping[str, Tool]) -> Simulated:
    steps, every = shape
    made = scenario(name, steps=steps, log_every=every, seed=SEED + seed, phi=MEMORY[seed % 2])
    folder = place / f"{name}-{steps}-{every}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    text, settings = write(made), configuration(made)
    log, config = folder / "metrics.jsonl", folder / "config.yaml"
    log.write_text(text, encoding="utf-8")
    config.write_text(settings, encoding="utf-8")
    with_config = folder / "with_config.jsonl"
    with_config.write_text(json.dumps({"config": yaml.safe_load(settings)}) + "\n" + text, encoding="utf-8")
    rows = folder / "rows.json"
    rows.write_text(json.dumps(rlprobe_rows(as_run(made), tools["rlprobe"])), encoding="utf-8")
    inputs = {name: [[str(log)]] for name in tools}
    inputs |= {US: [[str(log), str(config)]], "rldoctor": [[str(with_config)]], "rlprobe": [[str(rows)]]}
    for tool in tools.values():
        renamed = text
        for old, new in tool.keys.items():
            renamed = renamed.replace(f'"{old}":', f'"{new}":')
        if renamed != text:
            own = folder / f"{tool.name}.jsonl"
            own.write_text(renamed, encoding="utf-8")
            inputs[tool.name] = [[str(own)]]
    return Simulated(name, shape, made.truth, inputs)


def inputs_of(case: labelled.Labelled, place: Path, tools: Mapping[str, Tool]) -> dict[str, list[list[str]]]:
    """What each tool is handed of a labelled log: all files together, each alone, and folders where a tool reads those."""
    files = [str(path) for path in case.files]
    folder = labelled.CORPUS / case.folder / case.name
    events = sorted({str(path.parent) for path in case.files if "tfevents" in path.name})
    alone = [[path] for path in files]
    inputs = {name: [*alone, *([path] for path in events)] for name in tools}
    inputs |= {US: [files], "runmedic": [[str(folder)], *alone], "rlprobe": []}
    try:
        rows = rlprobe_rows(read(case.files), tools["rlprobe"])
    except RlclinicError:
        rows = []
    if rows:
        into = place / f"{case.folder}-{case.name}.json"
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_text(json.dumps(rows), encoding="utf-8")
        inputs["rlprobe"] = [[str(into)]]
    return inputs


# ---------------------------------------------------------------- asking


def python_of(command: Path) -> Path:
    return command.parent / "python"


def ask(tool: str, command: Path, jobs: Sequence[Mapping[str, Any]], place: Path) -> list[dict[str, Any]]:
    """What one tool says of each job, in the order of the jobs; one that ended the whole process counts as unreadable."""
    asked, told = place / f"{tool}.jobs", place / f"{tool}.said"
    said: list[dict[str, Any]] = []
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"OPENBLAS_NUM_THREADS": "1"}
    while len(said) < len(jobs):
        asked.write_text("".join(json.dumps(job) + "\n" for job in jobs[len(said) :]), encoding="utf-8")
        driver = [str(python_of(command)), str(Path(__file__).with_name("driver.py")), tool, str(asked), str(told)]
        done = subprocess.run(driver, env=env, capture_output=True, text=True)
        said += [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()] if told.exists() else []
        if len(said) < len(jobs) and done.returncode >= 0:
            raise RuntimeError(f"{tool}: {done.stderr.strip()[-400:]}")
        if len(said) < len(jobs):
            said.append({"id": jobs[len(said)]["id"], "error": f"ended by signal {-done.returncode}"})
    told.write_text("".join(json.dumps(row) + "\n" for row in said), encoding="utf-8")
    return said


def ask_all(
    commands: Mapping[str, Path],
    inputs: Sequence[Mapping[str, list[list[str]]]],
    place: Path,
    at_once: int,
    anew: Collection[str],
) -> dict[str, list[dict[str, Any]]]:
    """What every tool says of every run: those of ``anew`` are asked, ``at_once`` at a time, the others said it before,
    unless that was of other runs."""
    place.mkdir(parents=True, exist_ok=True)
    said: dict[str, list[dict[str, Any]]] = {}
    for tool in set(commands) - set(anew):
        before = place / f"{tool}.said"
        lines = before.read_text(encoding="utf-8").splitlines() if before.exists() else []
        if len(lines) == len(inputs):
            said[tool] = [json.loads(line) for line in lines]
        else:
            tell(f"{tool} was asked about other runs, and is asked again")
    anew = set(commands) - set(said)
    jobs = {tool: [{"id": at, "inputs": each.get(tool, [])} for at, each in enumerate(inputs)] for tool in anew}
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        running = {tool: pool.submit(ask, tool, commands[tool], jobs[tool], place) for tool in anew}
        return said | {tool: one.result() for tool, one in running.items()}


def understood(told: Mapping[str, Any], tool: Tool | None) -> list[Said]:
    findings = told.get("findings", ())
    return ours(findings) if tool is None else tool.read(findings)


# ---------------------------------------------------------------- scoring


def score_simulated(runs: Sequence[Simulated], told: Sequence[Mapping[str, Any]], tool: Tool | None) -> dict[str, Any]:
    """Tallies by run name and shape. Healthy: runs, those that warn. Sick: runs, named, named at warning or worse,
    named with a known onset, onset right."""
    fine: dict[str, dict[str, list[int]]] = {}
    ill: dict[str, dict[str, list[int]]] = {}
    rules: Counter[str] = Counter()
    seconds: dict[str, list[float]] = {}
    errors = 0
    for run, row in zip(runs, told, strict=True):
        said = understood(row, tool)
        shape = "/".join(map(str, run.shape))
        errors += "error" in row
        seconds.setdefault(shape, []).append(row.get("seconds", 0.0))
        loud = [one for one in said if one.level >= LEVELS["warning"]]
        if not run.truth:
            cell = fine.setdefault(run.name, {}).setdefault(shape, [0, 0])
            cell[0] += 1
            cell[1] += bool(loud)
            rules.update({one.rule for one in loud})
            continue
        hits = [one for one in said if one.names & run.truth.keys()]
        starts = [at for at in run.truth.values() if at is not None]
        cell = ill.setdefault(run.name, {}).setdefault(shape, [0] * 5)
        right = any(near(hits, at, run.shape[0], run.shape[1]) for at in starts)
        more = (1, bool(hits), any(one in loud for one in hits), bool(hits and starts), right)
        cell[:] = [old + new for old, new in zip(cell, more, strict=True)]
    return {
        "healthy": fine,
        "sick": ill,
        "rules": dict(sorted(rules.items())),
        "unread": errors,
        "seconds": {shape: round(statistics.median(each), 3) for shape, each in seconds.items()},
    }


def score_labelled(case: labelled.Labelled, told: Mapping[str, Any], tool: Tool | None) -> dict[str, Any]:
    """One labelled log: labels asked for and met, onsets, what contradicts the label, and whether a healthy run warns."""
    label = json.loads((labelled.CORPUS / case.folder / case.name / "label.json").read_text(encoding="utf-8"))
    steps = label.get("n_steps") or label.get("n_rows") or 1
    interval = steps / max(label.get("n_rows") or steps, 1)
    begins = {row["finding"]: row.get("from_step") for row in label.get("must") or () if isinstance(row, dict)}
    said, notes = understood(told, tool), frozenset(told.get("notes", ()))
    loud = {name for one in said if one.level >= LEVELS["warning"] for name in one.names or {f"({one.rule})"}}
    allowed = {check for one in (*(m.label for m in case.must), *case.may) for check in labelled.satisfying(one)}
    calm = not case.must or any(must.label == "normal_behaviour" for must in case.must)
    labels: dict[str, bool] = {}
    onsets = right = 0
    for must in case.must:
        if not must.visible:
            continue
        if must.label == "normal_behaviour":
            labels[must.label] = "error" not in told and not loud
            continue
        names = {*labelled.satisfying(must.label), must.label}
        hits = [one for one in said if one.names & names and one.level >= int(must.severity) - 1]
        labels[must.label] = bool(hits) or (must.label.endswith("_expected") and must.label in notes)
        at = begins.get(must.label)
        if at is not None and hits:
            onsets += 1
            right += near(hits, at, steps, interval)
    return {
        "read": "error" not in told,
        "labels": labels,
        "onsets": onsets,
        "right": right,
        "wrong": bool(contradicts(said, case, allowed) or notes & set(case.must_not)),
        "calm": calm,
        "alarmed": calm and bool(loud - allowed),
        "seconds": told.get("seconds"),
    }


def contradicts(said: Iterable[Said], case: labelled.Labelled, allowed: set[str]) -> bool:
    """Whether a warning names what the label excludes and nothing that it allows: the generous reading of broad words."""
    loud = [one for one in said if one.level >= LEVELS["warning"]]
    return any(one.names & case.wrong and not one.names & allowed for one in loud)


def add_up(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Folder by folder: cases, read, labels asked and met, onsets asked and right, cases contradicted, calm and alarmed."""
    folders: dict[str, dict[str, int]] = {}
    labels: dict[str, list[int]] = {}
    for folder, row in rows:
        into = folders.setdefault(folder, Counter())
        into["cases"] += 1
        into["read"] += row["read"]
        into["asked"] += len(row["labels"])
        into["met"] += sum(row["labels"].values())
        into["asked_read"] += len(row["labels"]) if row["read"] else 0
        for key in ("onsets", "right", "wrong", "calm", "alarmed"):
            into[key] += row[key]
        for name, met in row["labels"].items():
            cell = labels.setdefault(name, [0, 0])
            cell[0] += 1
            cell[1] += met
    seconds = [row["seconds"] for _, row in rows if row["seconds"] is not None]
    return {
        "folders": {name: dict(each) for name, each in folders.items()},
        "labels": dict(sorted(labels.items())),
        "seconds": round(statistics.median(seconds), 3) if seconds else None,
    }


# ---------------------------------------------------------------- whole processes


def lean(line: list[str], build: Path) -> tuple[float, float, str]:
    """Wall seconds, peak MiB and why it failed, of a process started by a small one, whose size is the least."""
    code = "import json, sys, diagnose as d; print(json.dumps(d.run(json.loads(sys.argv[1]), d.Path(sys.argv[2]))))"
    asked = [sys.executable, "-c", code, json.dumps(line), str(build)]
    done = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    wall, _, peak, failed = json.loads(done.stdout)
    return wall, peak, failed


def whole(commands: Mapping[str, Path], tools: Mapping[str, Tool], build: Path, place: Path) -> dict[str, Any]:
    """Seconds and peak MiB of the whole process, median of three in turn, on one log of each size."""
    told: dict[str, Any] = {}
    for size, shape in SIZES.items():
        run = simulated("plain", shape, 0, place / "timed", tools)
        kept = place / "timed" / f"recording-{shape[0]}"
        if not kept.exists():
            job = {"id": 0, "inputs": run.inputs["rlprobe"], "into": str(kept)}
            ask("rlprobe", commands["rlprobe"], [job], place)
        lines = {US: ["diagnose", *run.inputs[US][0]], "rlprobe": ["doctor", str(kept)]}
        for name, tool in tools.items():
            if tool.command:
                lines[name] = [part.format(path=run.inputs[name][0][0]) for part in tool.command]
        for name, line in lines.items():
            lean([str(commands[name]), *line], build)  # warms caches; not counted
        taken: dict[str, list[tuple[float, float]]] = {}
        for _ in range(3):
            for name, line in lines.items():
                wall, peak, failed = lean([str(commands[name]), *line], build)
                if not failed:
                    taken.setdefault(name, []).append((wall, peak))
        told[size] = {
            name: [round(statistics.median(w for w, _ in each), 2), round(max(p for _, p in each))]
            for name, each in taken.items()
        }
    return told


PARTS = ("simulated", "whole", "labelled")


def measure(mode: str, build: Path, at_once: int, parts: Collection[str], anew: Collection[str]) -> dict[str, Any]:
    """The figures of these parts of the page; those of labelled logs only where these are. Only ``anew`` are asked."""
    tools = load()
    packages = {US: ["--editable", str(ROOT)]} | {name: [tool.package] for name, tool in tools.items()}
    commands = timing.install(build, packages)
    place = build / "scoreboard"
    results: dict[str, Any] = {"table": fingerprint(), "python": platform.python_version(), "checks": len(BY_NAME)}
    if "simulated" in parts:
        tell("writing the simulated runs ...")
        runs = simulate(MODES[mode], place / "runs", tools)
        tell(f"asking {len(commands)} tools about {len(runs)} simulated runs ...")
        told = ask_all(commands, [run.inputs for run in runs], place, at_once, anew)
        results |= {
            "mode": mode,
            "runs": {
                "seeds": MODES[mode].seeds,
                "sick_seeds": MODES[mode].sick_seeds,
                "healthy": sum(not run.truth for run in runs),
                "sick": sum(bool(run.truth) for run in runs),
            },
            "truths": {run.name: sorted(run.truth) for run in runs if run.truth},
            "simulated": {name: score_simulated(runs, told[name], tools.get(name)) for name in commands},
        }
    if "whole" in parts:
        tell("timing whole processes ...")
        results["whole"] = whole(commands, tools, build, place)
    cases = list(labelled.cases()) if "labelled" in parts else []
    if cases:
        tell(f"asking about {len(cases)} labelled logs ...")
        place /= "labelled"
        said = ask_all(commands, [inputs_of(case, place, tools) for case in cases], place, at_once, anew)
        results["labelled"] = {
            name: add_up(
                [
                    (case.folder, score_labelled(case, row, tools.get(name)))
                    for case, row in zip(cases, said[name], strict=True)
                ]
            )
            for name in commands
        }
    return results


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def kept() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text(encoding="utf-8"))) if RESULTS.exists() else {}


def stale() -> str:
    """Why the page and its figures do not belong together; empty where they do."""
    results = kept()
    if results.get("table") != fingerprint():
        return f"{RESULTS.name} was taken with another rivals.toml; run benchmarks/scoreboard.py"
    unknown = {name for tool in load().values() for name in tool.can_name} - BY_NAME.keys()
    if unknown:
        return f"rivals.toml names no checks: {sorted(unknown)}"
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != scoreboard_page.page(results, load()):
        return f"stale: {PAGE.relative_to(ROOT)}; run benchmarks/scoreboard.py --page"
    return ""


def main() -> int:
    """Measure, or only write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="a part of it, printed only")
    how.add_argument("--full", action="store_true", help="more seeds")
    how.add_argument("--page", action="store_true", help="write the page from the kept figures")
    how.add_argument("--check", action="store_true", help="exit code 1 when the page does not show the kept figures")
    parser.add_argument("--only", choices=PARTS, action="append", help="take this part anew and keep the others")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "benchmarks", help="environments and logs go here"
    )
    parser.add_argument("--at-once", type=int, default=2, help="tools that run at a time (2)")
    parser.add_argument("--ask", metavar="TOOLS", help="ask only these (with commas); score what others said before")
    chosen = parser.parse_args()
    if chosen.check:
        why = stale()
        if why:
            tell(why)
        return bool(why)
    results = kept()
    if not chosen.page:
        mode = "quick" if chosen.quick else "full" if chosen.full else "default"
        build = chosen.build.resolve()
        build.mkdir(parents=True, exist_ok=True)
        parts = chosen.only or PARTS[: 1 if chosen.quick else None]
        anew = {US, *load()} if chosen.ask is None else set(filter(None, chosen.ask.split(",")))
        taken = measure(mode, build, chosen.at_once, parts, anew)
        if chosen.quick:
            print(scoreboard_page.summary(taken, load()))
            return 0
        results = {**kept(), **taken}
        RESULTS.write_text(json.dumps(results, sort_keys=True, separators=(",", ":")) + "\n", encoding="utf-8")
    if all(part in results for part in PARTS[:2]):
        PAGE.write_text(scoreboard_page.page(results, load()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
