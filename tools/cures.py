"""Train sick runs again with the change that their report prescribes, let verify judge, and keep the figures.

    python tools/cures.py LAB CORPUS --python PYTHON [--work DIR] [--only SCENARIO ...] [--judge]

LAB is the fault laboratory, a script that trains a tiny model by TRL's GRPOTrainer with a known fault; CORPUS holds a
sick run of each scenario, by its name; PYTHON has TRL. ``tools/cures.toml`` says what is trained; what WORK holds already
is not trained again, and with ``--judge`` nothing is. Without LAB or CORPUS the kept figures stay as they are.
The figures go to ``tools/cures.json``, from which ``tools/measure.py`` writes the section of docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlclinic.verify import WORDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
PLAN, KEPT = HERE / "cures.toml", HERE / "cures.json"
SCORE = "eval_heldout_exact_match"
"""Key of the true figure: the share of held-out prompts answered exactly right, greedily; no reward knows it."""

TRAIN = """
import functools, importlib.util, json, sys
path, name, out, cache, sets, retire = sys.argv[1:]
found = importlib.util.spec_from_file_location("lab", path)
lab = importlib.util.module_from_spec(found)
found.loader.exec_module(lab)
sick = lab.config_for(name)
cfg = {**sick, **json.loads(sets)}
more = {key: cfg.pop(key) for key in set(cfg) - set(lab.BASE)}
if more:  # settings of the trainer that the laboratory does not know
    import trl
    trl.GRPOConfig = functools.partial(trl.GRPOConfig, **more)
plain, seen = lab.base_model, {}

def same_start(cfg, tok, train, cache):  # whatever changes, training starts from the weights of the sick run
    taught = {key: cfg[key] for key in cfg if key.startswith("sft_")}
    model = plain({**sick, **taught}, tok, lab.split_prompts(sick)[0], cache)
    seen.update(model=model, tok=tok)
    return model

def unsolved(cfg, train):  # a prompt is solved when nine in ten of 20 sampled answers are right
    import torch
    torch.manual_seed(cfg["seed"])
    right = [0] * len(train)
    enc = seen["tok"]([row["prompt"] for row in train], return_tensors="pt", padding=True)
    for _ in range(20):
        with torch.no_grad():
            ids = seen["model"].generate(**{k: enc[k] for k in ("input_ids", "attention_mask")}, do_sample=True,
                max_new_tokens=cfg["max_completion_length"], pad_token_id=0, eos_token_id=1)
        for i, text in enumerate(seen["tok"].batch_decode(ids[:, enc["input_ids"].size(1):], skip_special_tokens=True)):
            right[i] += lab.strict_ok(text, train[i]["answer"])
    kept = [row for row, n in zip(train, right) if n < 18]
    print(f"kept {len(kept)} of {len(train)} prompts", flush=True)
    return kept

lab.base_model = same_start
if json.loads(retire):
    lab.mislabel = unsolved
lab.run(cfg, name, out, cache)
"""
"""Runs a scenario of the laboratory with other settings, in a process of its own."""


def told(*arguments: str) -> dict[str, Any]:
    """What the command line says, as JSON; ValueError with its last words where it says nothing."""
    command = [sys.executable, "-m", "rlclinic", *arguments, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        raise ValueError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return dict(json.loads(done.stdout))


def prescribed(report: Mapping[str, Any], remedy: str) -> tuple[dict[str, Any], str]:
    """(settings, what it says) of a remedy of the first finding, as its report spells them."""
    for one in report["findings"][0]["remedies"]:
        if one["id"] == remedy and one["applies"]:
            return {change["key"]: change["to"] for change in one["changes"]}, one["says"]
    raise ValueError(f"{remedy} is not prescribed to {report['findings'][0]['check']}")


def trained(run: Path) -> bool:
    return (run / "lab.json").exists()


@dataclass(frozen=True)
class Planned:
    """One training: where it goes, the settings of the laboratory that it changes, and what is told of it."""

    after: Path
    sets: dict[str, Any]
    retire: bool
    row: dict[str, Any]


def planned(trial: Mapping[str, Any], before: Path, work: Path) -> Iterator[Planned]:
    """The trainings of one row of the plan, one for each seed; BEFORE is the sick run, read where its report decides."""
    remedy, was = trial["remedy"], "was" in trial
    sets, says = (
        ({}, trial.get("was", "")) if remedy == "none" or was else prescribed(told("diagnose", str(before)), remedy)
    )
    sets = {key: None if value == "none" else value for key, value in {**sets, **trial.get("set", {})}.items()}
    row = {"scenario": trial["scenario"], "remedy": remedy, "change": says, "sets": sets}
    row |= {key: trial.get(key, "") for key in ("title", "how", "seen")}
    row |= {"was": was, "by_hand": "set" in trial and not was}
    for seed in trial["seeds"]:
        after = work / "-".join([trial["scenario"], remedy, *filter(None, [trial.get("label")]), str(seed)])
        yield Planned(after, {**sets, "seed": seed}, trial.get("retire", False), {**row, "seed": seed})


def train(lab: Path, python: str, one: Planned) -> None:
    """Train it, on one thread; raise CalledProcessError when the laboratory breaks (a crash may be the illness)."""
    one.after.mkdir(parents=True, exist_ok=True)
    sets = {"reporters": ["tensorboard"], "log_completions": False, "tqdm": False, **one.sets}
    models = str(one.after.parent / "models")
    arguments = [str(lab), one.row["scenario"], str(one.after), models, json.dumps(sets), json.dumps(one.retire)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with open(one.after / "console.log", "w", encoding="utf-8") as console:
        command = [python, "-c", TRAIN, *arguments]
        subprocess.run(command, stdout=console, stderr=subprocess.STDOUT, check=True, env=env)


def score(run: Path) -> list[float]:
    """The true figure of the last third of a run's evaluations; repeated steps count once, the last time."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    every = {row["step"]: float(row[SCORE]) for row in rows if SCORE in row}
    values = [every[step] for step in sorted(every)]
    return values[-max(1, len(values) // 3) :]


def judged(before: Path, after: Path) -> dict[str, Any]:
    """What verify says of the first finding of BEFORE, and of the whole, beside the true figures of both runs."""
    said = told("verify", str(before), str(after))
    first = said["findings"][0]
    return {
        "illness": first["check"],
        "verdict": first["verdict"],
        "headline": said["verdict"],
        "says": first["says"],
        "new": [one["check"] for one in said["new"]],
        "before": round(sum(values := score(before)) / len(values), 3),
        "after": round(sum(values := score(after)) / len(values), 3),
    }


def trials(plan: Mapping[str, Any], only: Iterable[str]) -> list[dict[str, Any]]:
    chosen = set(only)
    return [one for one in plan["trial"] if not chosen or one["scenario"] in chosen]


# ---------------------------------------------------------------- the section of docs/accuracy.md

HEAD = """
## Prescriptions that cure

{treated} sick runs of ours with known causes (TRL's GRPOTrainer, a tiny model on one core, 100 to 300 steps) were trained
again from the same weights and for as many steps, with seed 2 instead of 1 and the first change that the report of the sick
run prescribes and that can be carried out; `rlclinic verify` then judged (`tools/cures.py`, figures in
`tools/cures.json`). *Held-out* is the true score of the task, which no reward knows, mean of the last third of its
evaluations: of the sick run, then of the treated one. *Without* is the sick recipe trained again, with the seed of the
treated run and nothing changed: what a second try alone brings. A tiny model shows whether a change removes the cause, not
which size of it suits a large one.
"""


def section(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of what the prescribed changes did, and what verify said of it; empty without figures."""
    if not rows:
        return ""
    again = {row["scenario"]: row for row in rows if row["remedy"] == "none"}
    treated = [row for row in rows if row["remedy"] != "none" and not row["was"]]
    lines = [HEAD.format(treated=len(treated))]
    lines += _table(treated, again)
    former = [row for row in rows if row["was"]]
    if former:
        lines += ["", "Advice that is not, or no longer, given first for what this showed:", ""]
        lines += _table(former, again)
    if again:
        lines += ["", "What verify says of the sick recipes trained again with nothing changed:", ""]
        lines += ["| sick run | finding | verify | held-out |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {row['title']} | {row['illness']} | {WORDS[row['verdict']]} | {row['before']:.2f} -> {row['after']:.2f} |"
            for row in again.values()
        ]
    return "\n".join(lines) + "\n"


def _table(rows: Iterable[Mapping[str, Any]], again: Mapping[str, Mapping[str, Any]]) -> list[str]:
    head = ["sick run", "finding", "first change", "verify", "held-out", "without", "read by eye"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        settings = "" if row["by_hand"] else ", ".join(f"{key}={_value(value)}" for key, value in row["sets"].items())
        change = "; ".join(filter(None, (row["change"], f"`{settings}`" if settings else "", row["how"])))
        control = again.get(row["scenario"])
        without = "-" if control is None else f"{control['after']:.2f}"
        figures = f"{row['before']:.2f} -> {row['after']:.2f}"
        cells = [row["title"], row["illness"], change, WORDS[row["verdict"]], figures, without, row["seen"] or "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def kept() -> list[dict[str, Any]]:
    """The figures as last taken; none where they never were."""
    return list(json.loads(KEPT.read_text(encoding="utf-8"))) if KEPT.exists() else []


# ---------------------------------------------------------------- taking the figures


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--work", type=Path, default=Path("cures"))
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--judge", action="store_true", help="train nothing")
    given = parser.parse_args(arguments)
    if not given.lab.exists() or not given.corpus.exists():
        print("no laboratory or no sick runs here: the kept figures stay", file=sys.stderr)
        return 0
    rows = []
    for trial in trials(tomllib.loads(PLAN.read_text(encoding="utf-8")), given.only):
        before = given.corpus / trial["scenario"]
        if given.judge and not any(given.work.glob(f"{trial['scenario']}-{trial['remedy']}-*[0-9]/lab.json")):
            continue
        for one in planned(trial, before, given.work):
            if not given.judge and not trained(one.after):
                print(f"training {one.after.name}", file=sys.stderr)
                try:
                    train(given.lab, given.python, one)
                except subprocess.CalledProcessError as broke:
                    print(f"{one.after.name}: {broke}", file=sys.stderr)
            if trained(one.after):
                rows.append(one.row | judged(before, one.after))
                print("{scenario} {remedy}: {verdict}, {before} -> {after}".format(**rows[-1]), file=sys.stderr)
    if not given.only:
        KEPT.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
