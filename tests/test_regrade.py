"""A second verifier: the user's function in a process of its own, what it finds, and every way in which it can fail."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rlclinic import vitals
from rlclinic.checks.form import examine
from rlclinic.checks.verifier_disagreement import verifier_disagreement
from rlclinic.cli import cli
from rlclinic.errors import BadRequest
from rlclinic.grader import judged, load
from rlclinic.model import Examination, Run, Severity
from rlclinic.readers.answers.gather import Gatherer, Shape
from rlclinic.regrade import draw, regrade
from rlclinic.rollouts import Answer
from rlclinic.stats.verdicts import kappa, rank_correlation, rising

VERIFIERS = '''
"""Verifiers of the tests."""
import os, sys, time
print("noise while loading")
os.write(1, b"and some past Python")

def exact(prompt, answer, truth):
    print("noise")
    return answer == truth

def graded(prompt, answer, truth):
    return {"score": 1.0 if answer == truth else 0.25 * (answer[:1] == truth[:1])}

async def later(prompt, answer, truth):
    return answer == truth

def raising(prompt, answer, truth):
    raise ValueError("not this one")

def sometimes(prompt, answer, truth):
    if answer.endswith("3"):
        raise ValueError("3")
    return None if answer.endswith("4") else answer == truth

def never(prompt, answer, truth):
    time.sleep(60)

def dying(prompt, answer, truth):
    os._exit(7)

def words(prompt, answer, truth):
    return "yes"

def nothing(prompt, answer, truth):
    return None

def asking(prompt, answer, truth):
    return sys.stdin.read() == "" and answer == truth

def trl(prompts, completions):
    return [1.0]

number = 3
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(VERIFIERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@lru_cache(maxsize=8)
def run_of(gamed: float, seed: int = 0, answers: int = 8) -> Run:
    """Forty steps of four groups; the share of wrong answers that are paid all the same rises to ``gamed``."""
    rng = np.random.default_rng(seed)
    gatherer = Gatherer(Shape("plain"), "made")
    for step in range(40):
        for group in range(4):
            truth = f"{rng.integers(10**6)}"
            for _ in range(answers):
                right = rng.random() < 0.4
                text = truth if right else f"{rng.integers(10**6)}"
                paid = right or rng.random() < gamed * step / 39
                gatherer.add(
                    Answer(step=float(step), prompt=f"{step} {group}", text=text, truth=truth, reward=float(paid))
                )
    return Run(rollouts=(gatherer.table(),))


def seen(run: Run) -> Examination:
    found = examine(verifier_disagreement, run)[0]
    assert found.outcome != "failed", found.says
    return found


def test_a_reward_that_pays_more_and_more_wrong_answers(here: Path) -> None:
    run = regrade(run_of(0.8), "mine:exact")
    assert run.regraded is not None
    assert len(run.regraded.rows) == 200
    table = run.rollouts[0]
    right = np.array([table.texts[int(row)].answer == table.texts[int(row)].truth for row in run.regraded.rows])
    assert (run.regraded.accepted == right).all()
    finding = seen(run).finding
    assert finding is not None
    assert finding.severity is not None
    assert finding.severity >= Severity.WARNING
    assert "rising from" in finding.says
    assert finding.samples
    assert "mine" not in sys.modules
    assert seen(vitals.complete(run)).finding is not None


def test_a_sound_reward_agrees(here: Path) -> None:
    sound = run_of(0.0, answers=4)
    for verifier in ("mine.py:later", "mine:asking"):
        run = regrade(sound, verifier, sample=60)
        finding = seen(run).finding
        assert finding is not None, verifier
        assert finding.severity is None, finding.says
        assert "agreement 100%" in finding.says
        assert "agrees with the reward on 100%" in run.warnings[-1].says
    graded = regrade(run_of(0.0), "mine:graded", sample=60)
    assert "rank correlation" in seen(graded).says


def test_the_sample_is_fair_and_the_same_each_time() -> None:
    table = run_of(0.3).rollouts[0]
    rows, window, weight, level = draw(table, 200)
    again = draw(table, 200)[0]
    assert (rows == again).all()
    assert np.bincount(window).tolist() == [50] * 4
    assert level == 0.5
    paid = table.reward[rows] > level
    assert abs(float((weight * paid).sum() / weight.sum()) - float((table.reward > level).mean())) < 0.02
    assert len(draw(table, 10_000)[0]) <= len(table)


@pytest.mark.parametrize(
    ("verifier", "words"),
    [
        ("mine:missing", "mine has no missing; its functions: exact"),
        ("mine:number", "no function but int"),
        ("mine:trl", "cannot be called with"),
        ("absent:exact", "No module named 'absent'"),
        ("absent.py:exact", "does not exist"),
        ("mine", "--verifier mine"),
        ("mine:raising", "all raised: ValueError: not this one"),
        ("mine:words", "answered with str"),
        ("mine:nothing", "without a verdict"),
        ("mine:never", "no answer within 0.2 s"),
        ("mine:dying", "ended with exit code 7"),
    ],
)
def test_what_cannot_be_used_is_said(here: Path, verifier: str, words: str) -> None:
    began = time.monotonic()
    with pytest.raises(BadRequest) as refused:
        regrade(run_of(0.0, answers=4), verifier, seconds=0.2, sample=24)
    assert words in str(refused.value)
    assert "MODULE:FUNCTION" in str(refused.value)
    assert time.monotonic() - began < 10


def test_errors_and_abstentions_are_counted(here: Path) -> None:
    run = regrade(run_of(0.0), "mine:sometimes")
    assert run.regraded is not None
    assert run.regraded.failed > 5
    assert run.regraded.silent > 5
    assert len(run.regraded.rows) + run.regraded.failed + run.regraded.silent == run.regraded.asked == 200
    says = seen(run).says
    assert "raised an error" in says
    assert "got None" in says
    assert "ValueError" not in says  # it may hold the words of an answer


def test_nothing_to_grade(here: Path) -> None:
    with pytest.raises(BadRequest, match="without any"):
        regrade(Run(), "mine:exact")
    table = replace(run_of(0.0, answers=2).rollouts[0], texts={})
    with pytest.raises(BadRequest, match="answers without"):
        regrade(Run(rollouts=(table,)), "mine:exact")


def test_a_verifier_that_tells_nothing_is_no_evidence(here: Path) -> None:
    (here / "same.py").write_text("def all(prompt, answer, truth): return 1")
    assert seen(regrade(run_of(0.0), "same:all")).outcome == "unexamined"
    assert seen(run_of(0.0)).outcome == "not_applicable"


def test_on_the_command_line(here: Path) -> None:
    rows = []
    for step in range(12):
        for k in range(8):
            right = k % 2 == 0
            text = "7" if right else f"{k + 10}"
            rows.append({"step": step, "prompt": f"p{step}", "completion": text, "reward": 1.0 * right, "answer": "7"})
    (here / "rollouts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (here / "two.py").write_text("def grade(prompt, answer, truth): return answer == '7'")
    done = CliRunner().invoke(cli, ["diagnose", "rollouts.jsonl", "--verifier", "two:grade", "--format", "json"])
    assert done.exit_code == 0, done.output
    checks = {one["check"]: one for one in json.loads(done.output)["checks"]}
    assert checks["verifier_disagreement"]["outcome"] == "examined"
    refused = CliRunner().invoke(cli, ["diagnose", "rollouts.jsonl", "--verifier", "two:gone"])
    assert isinstance(refused.exception, BadRequest)


def test_the_other_side(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(here))
    (here / "other.py").write_text(
        VERIFIERS.replace('os.write(1, b"and some past Python")', "") + "\ndef inf(p, a, t): return float('inf')\n"
    )
    assert load("other:gone")[0] is None
    grade, problem = load("other:graded")
    assert grade is not None, problem
    assert judged(grade, "p", "7", "7") == {"score": 1.0}
    assert judged(lambda p, a, t: np.float32(0.5), "p", "a", "t") == {"score": 0.5}
    assert judged(lambda p, a, t: [0.5], "p", "a", "t") == {"score": 0.5}
    assert judged(lambda p, a, t: float("nan"), "p", "a", "t") == {"score": None}
    assert "error" in judged(lambda p, a, t: {"other": 1}, "p", "a", "t")
    assert "error" in judged(lambda p, a, t: sys.exit(3), "p", "a", "t")
    long = judged(lambda p, a, t: (_ for _ in ()).throw(ValueError("x" * 10_000)), "p", "a", "t")
    assert len(long["error"]) <= 200
    assert os.getcwd() == str(here)


def test_the_formulas() -> None:
    first = np.array([True] * 45 + [False] * 55)
    second = np.array([True] * 40 + [False] * 5 + [True] * 5 + [False] * 50)
    found = kappa(first, second, np.ones(100))
    assert found.agreement == pytest.approx(0.9)
    assert found.kappa == pytest.approx((0.9 - 0.505) / (1 - 0.505))
    assert found.low < found.kappa < found.high
    assert np.isnan(kappa(first[:45], first[:45], np.ones(45)).kappa)
    assert rising(np.array([1.0, 5, 12, 20]), np.full(4, 25.0)) < 1e-6
    assert rising(np.array([20.0, 12, 5, 1]), np.full(4, 25.0)) > 0.99
    assert rising(np.array([0.0, 0, 0, 0]), np.full(4, 25.0)) == 1.0
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([2.0, 4, 9])) == pytest.approx(1.0)
    assert np.isnan(rank_correlation(np.ones(3), np.arange(3.0)))
