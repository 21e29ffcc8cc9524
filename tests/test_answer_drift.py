"""Answers scored more than once: noise of a judge, drift, a reward that changed, and rewards that stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from rlclinic import vitals
from rlclinic.answers.drift import REWARD, repeats, sides
from rlclinic.checks import CHECKS
from rlclinic.checks.form import examine
from rlclinic.model import Examination, Run, Severity
from rlclinic.readers import read
from rlclinic.readers.answers import read_answers
from rlclinic.readers.answers.gather import Gatherer, Shape
from rlclinic.rollouts import Answer, Rollouts
from rlclinic.stats.repeated import drift, jump, noise

BY_NAME = {one.name: one for one in CHECKS}
CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "trl"
Score = Callable[[np.random.Generator, float, np.ndarray], np.ndarray]


@lru_cache(maxsize=64)
def table(score: Score, *, name: str = "accuracy", seed: int = 0, held_out: bool = False, **more: object) -> Rollouts:
    """Twenty-five steps of four groups of eight: 40 prompts with 12 texts each, so that texts come again."""
    rng = np.random.default_rng(seed)
    gatherer = Gatherer(Shape("plain"), "made")
    worth = rng.normal(size=(40, 12))
    for step in range(0, 100, 4):
        for prompt in rng.choice(40, 4, replace=False):
            kinds = rng.integers(12, size=8)
            scores = score(rng, step / 100, worth[prompt, kinds])
            for place, (kind, value) in enumerate(zip(kinds, scores, strict=True)):
                one = Answer(
                    step=float(step),
                    prompt=f"prompt {prompt}",
                    text=f"answer {kind} of {prompt}",
                    reward=float(value),
                    parts={name: float(value)},
                    key=str(prompt),
                    tokens=10.0 + kind,
                    held_out=held_out and place == 0,
                    truth="t",
                )
                for field, given in more.items():
                    setattr(one, field, given)
                gatherer.add(one)
    return gatherer.table()


def judged(check: str, rollouts: Rollouts, run: Run | None = None) -> Examination:
    whole = vitals.complete(replace(run or Run(), rollouts=(rollouts,)))
    return examine(BY_NAME[check], whole)[0]


def severity(examination: Examination) -> Severity | None:
    assert examination.outcome != "failed", examination.says
    return None if examination.finding is None else examination.finding.severity


FIXED: Score = lambda rng, t, worth: worth  # noqa: E731
NOISY: Score = lambda rng, t, worth: worth + 3 * rng.normal(size=len(worth))  # noqa: E731
DRIFTS: Score = lambda rng, t, worth: worth + t  # noqa: E731
SWAPPED: Score = lambda rng, t, worth: np.where(t > 0.6, -worth, worth)  # noqa: E731
FLAKY: Score = lambda rng, t, worth: np.where(rng.random(len(worth)) < 0.1, worth <= 0, worth > 0).astype(float)  # noqa: E731


def test_a_reward_that_gives_every_answer_the_same_again_is_said_to_be_reproducible() -> None:
    found = repeats(table(FIXED))[REWARD]
    assert found.reproducible
    assert found.inside.texts > 100
    assert found.across.texts > 100
    says = judged("judge_noise_dominates", table(FIXED)).says
    assert says.startswith("in the saved answers the reward is reproducible: ")
    assert says.endswith("repeated answers, all scored the same")
    for check in ("judge_noise_dominates", "self_judge_drift", "verifier_broken"):
        assert severity(judged(check, table(FIXED, name="judge"))) is None


def test_held_out_answers_that_stand_alone_do_not_hide_the_groups() -> None:
    gatherer = Gatherer(Shape("plain"), "made")
    for k in range(160):
        gatherer.add(Answer(step=float(k // 8), prompt=f"p{k // 8}", text=f"a{k % 4}", reward=float(k % 2)))
        gatherer.add(Answer(step=float(k // 8), prompt=f"held {k}", text="a", reward=1.0, held_out=True))
    assert repeats(gatherer.table())[REWARD].inside.texts == 80


def test_noise_of_a_judge_is_measured_and_told() -> None:
    found = repeats(table(NOISY))[REWARD].inside
    assert found.noise is not None
    assert found.noise.variance == pytest.approx(9.0, rel=0.2)
    assert found.noise.low < 0.9 < found.noise.high
    examination = judged("judge_noise_dominates", table(NOISY, name="judge"))
    assert severity(examination) == Severity.CRITICAL
    assert examination.finding is not None
    assert examination.finding.numbers["noise_share"] > 0.8
    assert examination.finding.evidence is not None
    assert examination.finding.evidence.p_value is None
    assert examination.finding.samples


@pytest.mark.parametrize(
    "score",
    [
        lambda rng, t, worth: worth + 0.01 * rng.normal(size=len(worth)),  # rounding of a reward model
        lambda rng, t, worth: worth - worth.mean(),  # relative to the group
        lambda rng, t, worth: worth * (1 - t),  # a weight that is scheduled
        lambda rng, t, worth: np.where(rng.random(len(worth)) < 0.002, worth <= 0, worth > 0).astype(float),
        lambda rng, t, worth: np.array([w + (list(worth).index(w) == k) for k, w in enumerate(worth)]),  # for the first
    ],
    ids=["rounding", "relative", "schedule", "one odd verdict", "a bonus for the new"],
)
def test_what_looks_alike_is_no_noise_and_no_drift(score: Score) -> None:
    for check in ("judge_noise_dominates", "self_judge_drift", "verifier_broken"):
        assert severity(judged(check, table(score, name="judge"))) is None, check


def test_a_drifting_judge_is_found_with_its_direction_and_a_rule_only_mentioned() -> None:
    examination = judged("self_judge_drift", table(DRIFTS, name="judge"))
    assert severity(examination) == Severity.WARNING
    assert "judge gives to the same texts rose by 0.9" in examination.says
    rule = judged("self_judge_drift", table(DRIFTS, name="length_bonus"))
    assert severity(rule) == Severity.INFO
    assert "schedule" in rule.says
    noisy: Score = lambda rng, t, worth: worth - t + 0.5 * rng.normal(size=len(worth))  # noqa: E731
    examination = judged("self_judge_drift", table(noisy))
    assert severity(examination) == Severity.WARNING
    assert "fell by" in examination.says


def test_a_judge_without_drift_is_not_blamed() -> None:
    found = [severity(judged("self_judge_drift", table(NOISY, name="judge", seed=seed))) for seed in range(3)]
    assert all(one is None for one in found)


def test_a_scoring_that_changed_at_one_step_is_dated() -> None:
    examination = judged("verifier_broken", table(SWAPPED))
    assert severity(examination) == Severity.WARNING
    assert examination.finding is not None
    assert examination.finding.onset is not None
    assert (examination.finding.onset.low, examination.finding.onset.high) == (60, 64)
    assert severity(judged("self_judge_drift", table(SWAPPED, name="judge"))) is None
    texts, changed, before, after = sides(table(SWAPPED), 61)
    assert texts == changed > 50
    assert before == pytest.approx(-after)


def test_verdicts_that_flip_are_a_broken_verifier_and_those_of_a_judge_are_noise() -> None:
    assert severity(judged("verifier_broken", table(FLAKY))) == Severity.WARNING
    assert severity(judged("verifier_broken", table(FLAKY, name="judge"))) is None
    dice: Score = lambda rng, t, worth: (rng.random(len(worth)) < 0.5 + 0.1 * np.sign(worth)).astype(float)  # noqa: E731
    assert severity(judged("judge_noise_dominates", table(dice, name="judge"))) == Severity.CRITICAL


def test_what_may_be_another_question_is_left_out() -> None:
    assert not repeats(table(NOISY, prompt="<image> What is shown?"))
    assert not repeats(table(NOISY, tool_calls=1.0))
    assert not repeats(table(NOISY, text=""))
    assert not repeats(table(NOISY, prompt=None))


def test_no_answer_stands_twice() -> None:
    gatherer = Gatherer(Shape("plain"), "made")
    for k in range(64):
        gatherer.add(Answer(step=float(k // 8), prompt=f"p{k // 8}", text=f"a{k}", reward=float(k % 3)))
    assert not repeats(gatherer.table())
    assert judged("judge_noise_dominates", gatherer.table()).outcome in ("unexamined", "not_applicable")


def test_the_formulas() -> None:
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(200), 6)
    thing = group * 3 + np.tile([0, 0, 1, 1, 2, 2], 200)
    level = rng.normal(size=600)[thing]
    found = noise(thing, group, level + 0.5 * rng.normal(size=1200))
    assert found is not None
    assert found.variance == pytest.approx(0.25, rel=0.15)
    assert found.df == 600
    when = np.tile(np.arange(6.0), 200)
    same = np.repeat(np.arange(200), 6)
    own = rng.normal(size=200)[same]
    slope = drift(same, same, when, own + 0.3 * when + rng.normal(size=1200))
    assert slope is not None
    assert slope.change == pytest.approx(1.5, rel=0.2)
    assert slope.p_value < 1e-6
    step = jump(same, same, when, own + 2.0 * (when >= 4) + rng.normal(size=1200))
    assert step is not None
    assert step.step == 4
    assert step.change == pytest.approx(2.0, rel=0.2)
    calm = [drift(same, same, when, own + rng.normal(size=1200)) for _ in range(40)]
    assert sum(one is not None and one.p_value < 0.05 for one in calm) <= 6
    assert drift(np.arange(5), np.arange(5), np.arange(5.0), np.arange(5.0)) is None
    assert jump(np.arange(5), np.arange(5), np.arange(5.0), np.arange(5.0)) is None


@pytest.mark.skipif(not CORPUS.exists(), reason="the collection of real runs is not here")
def test_real_runs() -> None:
    loud = {}
    for path in sorted(CORPUS.glob("*/rollouts.jsonl"))[2::5]:
        tables, _ = read_answers([path])
        found = repeats(tables[0]).get(REWARD)
        if found is not None and found.inside.unlike:
            loud[path.parent.name] = found
    assert len(loud) == 1
    (one,) = loud.values()
    assert one.inside.noise is not None
    assert one.inside.noise.variance == pytest.approx(4.0, rel=0.25)
    (name,) = loud
    run = read([CORPUS / name / "metrics.jsonl"])
    tables, _ = read_answers([CORPUS / name / "rollouts.jsonl"])
    assert severity(judged("judge_noise_dominates", tables[0], run)) == Severity.CRITICAL
