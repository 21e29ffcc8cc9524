"""Real logs with an expert's labels, kept beside the project; skipped where they are absent."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlclinic.diagnose import diagnose
from rlclinic.errors import CannotRead
from rlclinic.readers import read
from rlclinic.report import render

SHARED = Path(__file__).parents[2] / "shared"
pytestmark = pytest.mark.skipif(not (SHARED / "corpus").is_dir(), reason="the labelled logs are not beside the project")


@lru_cache(maxsize=1)
def scorer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("score_corpus", SHARED / "tools" / "score_corpus.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["score_corpus"] = module
    spec.loader.exec_module(module)
    return module


def files(case: Path) -> list[Path]:
    return [p for p in sorted(case.rglob("*")) if p.is_file() and p.name != "label.json"]


def told(case: Path) -> dict[str, Any]:
    try:
        report = json.loads(render(diagnose(read(files(case))), "json"))
    except CannotRead as problem:
        return {"error": problem.message()}
    findings = [{**f, "names": {f["check"]}} for f in report["findings"]]
    return {"findings": findings, "notes": [n["id"] for n in report["notes"]], "verdict": report["verdict"]}


@cache
def score(folder: str) -> tuple[float, float, float]:
    """(readable, recall, share of cases with a false alarm) over a folder of cases."""
    module = scorer()
    verdicts = []
    for path in sorted((SHARED / "corpus" / folder).glob("*/label.json")):
        logs = [p for p in files(path.parent) if p.name not in ("args.txt", "config.yaml")]
        if logs:
            label = module.normalise(json.loads(path.read_text(encoding="utf-8")))
            verdicts.append(module.judge(label, told(path.parent)))
    must = sum(v["must"] for v in verdicts)
    return (
        sum(v["readable"] for v in verdicts) / len(verdicts),
        sum(v["recalled"] for v in verdicts) / must,
        sum(bool(v["false"]) for v in verdicts) / len(verdicts),
    )


@pytest.mark.parametrize(
    ("folder", "readable", "recall", "false_alarms"),
    [("runs", 0.90, 0.55, 0.08), ("casebook", 0.90, 0.50, 0.10), ("trl", 1.00, 0.60, 0.0)],
)
def test_agrees_with_the_expert(folder: str, readable: float, recall: float, false_alarms: float) -> None:
    got = score(folder)
    assert got[0] >= readable, f"readable {got[0]:.3f}"
    assert got[1] >= recall, f"recall {got[1]:.3f}"
    assert got[2] <= false_alarms, f"cases with a false alarm {got[2]:.3f}"


@pytest.mark.parametrize(
    "name", ["healthy", "truncation", "saturated", "kl_normal", "resumed", "grad_nan_skipped", "frozen"]
)
def test_the_same_run_in_two_forms_gets_the_same_verdict(name: str) -> None:
    case = SHARED / "corpus" / "trl" / name
    forms = ["metrics.jsonl", "console.log", "trainer_state.json"]
    seen = []
    for form in forms:
        diagnosis = diagnose(read([case / form]))
        # The state of a resumed trainer holds no trace of the rows that were given up, so an information may be missing.
        calm = diagnosis.verdict.severity in ("healthy", "info")
        loud = [f.check for f in diagnosis.findings if (f.severity or 0) >= 2]
        seen.append(("calm" if calm else diagnosis.verdict.severity, loud))
    assert seen[0] == seen[1] == seen[2], dict(zip(forms, seen, strict=True))


def test_several_forms_of_one_run_are_counted_once() -> None:
    case = SHARED / "corpus" / "trl" / "healthy"
    alone = read([case / "metrics.jsonl"])
    merged = read([case / "metrics.jsonl", case / "console.log", case / "trainer_state.json"])
    assert len(merged["reward.mean"]) == len(alone["reward.mean"]) == 200
    both, one = diagnose(merged).verdict, diagnose(alone).verdict
    assert (both.severity, both.primary) == (one.severity, one.primary)


def test_a_resumed_run_is_one_run() -> None:
    run = read([SHARED / "corpus" / "trl" / "resumed" / "metrics.jsonl"])
    assert len(run["reward.mean"]) == 160
    assert any(warn.code == "restarted" for warn in run.warnings), run.warnings


def test_two_different_runs_are_not_mixed_silently() -> None:
    trl = SHARED / "corpus" / "trl"
    run = read([trl / "healthy" / "metrics.jsonl", trl / "too_hard" / "metrics.jsonl"])
    assert any(warn.code == "sources_disagree" for warn in run.warnings), run.warnings
    assert len(run["reward.mean"]) == 200
