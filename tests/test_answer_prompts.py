"""Prompts that come back or are held out and trained on; gaps, ages and loss masks of saved answers."""

from __future__ import annotations

import time

import numpy as np
import pytest

from rlclinic import vitals
from rlclinic.answers.mismatch import gaps, trained
from rlclinic.answers.prompts import near_copies, normal, overlap, stretches
from rlclinic.checks import CHECKS
from rlclinic.checks.form import examine
from rlclinic.model import Examination, Run, Severity
from rlclinic.readers.answers.gather import Gatherer, Shape
from rlclinic.rollouts import Answer, Rollouts

BY_NAME = {one.name: one for one in CHECKS}
WORDS = ("mill", "river", "seven", "farmer", "apples", "buys", "sells", "each", "day", "week", "old", "coins", "price",
         "left", "how", "many", "train", "leaves", "city", "hours")  # fmt: skip


def question(k: int, seed: int = 0, length: int = 40) -> str:
    rng = np.random.default_rng((seed, k))
    return " ".join(rng.choice(WORDS, length)) + f" {k}?"


def table(trained_on: list[str], held_out: list[str], shape: Shape | None = None) -> Rollouts:
    gatherer = Gatherer(shape or Shape("plain"), "made")
    for held, asked in ((False, trained_on), (True, held_out)):
        for k, prompt in enumerate(asked):
            for n in range(2):
                gatherer.add(
                    Answer(
                        step=float(k // 4), prompt=prompt, text=f"a{n}", reward=float(n), held_out=held, truth="left 3"
                    )
                )
    return gatherer.table()


def judged(check: str, *tables: Rollouts) -> Examination:
    found = examine(BY_NAME[check], vitals.complete(Run(rollouts=tables)))[0]
    assert found.outcome != "failed", found.says
    return found


def severity(found: Examination) -> Severity | None:
    return None if found.finding is None else found.finding.severity


TRAINED = [question(k) for k in range(100)]


def test_held_out_prompts_that_are_trained_on_are_counted() -> None:
    mine = [question(k, seed=1) for k in range(40)]
    sound = judged("contamination", table(TRAINED, mine))
    assert severity(sound) is None
    assert sound.says == "in the saved answers none of 40 held-out prompts is trained on"
    found = judged("contamination", table(TRAINED, mine[:20] + TRAINED[:20]))
    assert severity(found) == Severity.CRITICAL
    assert found.says.startswith("in the saved answers 20 of 40 held-out prompts are also trained on word for word")
    assert severity(judged("contamination", table(TRAINED, mine + TRAINED[:1]))) == Severity.INFO
    assert severity(judged("contamination", table(TRAINED, mine + TRAINED[:4]))) == Severity.WARNING


def test_copies_in_other_dress_and_near_copies() -> None:
    mine = [question(k, seed=1) for k in range(40)]
    dressed = [f"  {one.upper()} " for one in TRAINED[:10]]
    near = [one.replace(" ", " then ", 1) for one in TRAINED[20:30]]
    seen = overlap((table(TRAINED, mine + dressed + near),))
    assert seen is not None
    assert (seen.shared, seen.like, seen.near, seen.held_out) == (0, 10, 10, 60)
    assert "10 more are near copies" in judged("contamination", table(TRAINED, mine + dressed + near)).says
    only = judged("contamination", table(TRAINED, mine + near))
    assert severity(only) == Severity.WARNING
    assert only.says == "in the saved answers 10 of 50 held-out prompts are near copies of trained ones"


def test_a_template_is_no_copy() -> None:
    frame = (
        "You are a careful solver. Think step by step and then give the final answer in a box at the end. Question: "
    )
    asked = [frame + question(k, length=14) for k in range(60)]
    mine = [frame + question(k, seed=1, length=14) for k in range(40)]
    seen = overlap((table(asked, mine),))
    assert seen is not None
    assert seen.shared == seen.like == seen.near == 0


def test_the_two_may_stand_in_different_files() -> None:
    mine = [question(k, seed=1) for k in range(20)] + TRAINED[:10]
    found = judged("contamination", table(TRAINED, []), table([], mine, Shape("evaluation")))
    assert severity(found) == Severity.CRITICAL
    assert "10 of 30" in found.says


def test_without_both_nothing_is_said() -> None:
    assert overlap((table(TRAINED, []),)) is None
    assert judged("contamination", table(TRAINED, [])).outcome == "unexamined"


def test_long_prompts_are_compared_in_time() -> None:
    rng = np.random.default_rng(0)
    many = [" ".join(rng.choice(WORDS, 300)) for _ in range(600)]
    began = time.process_time()
    assert near_copies(many[:100], many[100:]) == []
    near_copies(["word " * 50_000], ["x" * 1_000_000, "word " * 50_000])
    assert len(stretches("a b c")) == 0
    assert time.process_time() - began < 4
    assert normal(" What  IS it?  ") == "what is it"


# ---------------------------------------------------------------- gaps, ages, masks


def answers(n: int = 400, **columns: object) -> Rollouts:
    gatherer = Gatherer(Shape("plain"), "made")
    for k in range(n):
        one = Answer(step=float(k // 8), prompt=f"p{k // 8}", text=f"a{k}", reward=float(k % 2), tokens=20.0)
        for name, values in columns.items():
            setattr(one, name, float(np.asarray(values)[k] if np.ndim(values) else values))  # type: ignore[arg-type]
        gatherer.add(one)
    return gatherer.table()


def test_a_gap_of_all_answers_and_one_of_a_few() -> None:
    rng = np.random.default_rng(0)
    small = np.abs(rng.normal(0.008, 0.002, 400))
    assert severity(judged("train_inference_mismatch", answers(mismatch=small, worst_mismatch=0.5))) is None
    wide = judged("train_inference_mismatch", answers(mismatch=small + 0.2, worst_mismatch=2.0))
    assert severity(wide) is not None
    assert wide.says.startswith("in the saved answers log-probabilities of sampler and trainer differ by 0.2")
    assert "carries" not in wide.says
    few = small.copy()
    few[::50] = 9.0
    found = judged("train_inference_mismatch", answers(mismatch=few, worst_mismatch=np.where(few > 1, 60.0, 0.5)))
    assert "8 of 400 answers differ by more than 1 nat a token" in found.says
    assert found.finding is not None
    assert set(found.finding.samples) == set(range(0, 400, 50))


def test_tokens_that_were_never_sampled_come_with_turns() -> None:
    turns = np.tile([1.0, 1, 1, 5], 100)
    worst = np.where((turns > 2) & (np.arange(400) % 8 == 3), 55.0, 0.4)
    found = judged("token_drift_retokenisation", answers(mismatch=0.02, worst_mismatch=worst, turns=turns))
    assert severity(found) == Severity.CRITICAL
    assert (
        "in the saved answers 50 of 400 answers hold such a token (50.0% of those with several turns, 0.0%"
        in found.says
    )
    calm = judged("token_drift_retokenisation", answers(mismatch=0.02, worst_mismatch=0.4, turns=turns))
    assert severity(calm) is None
    one = judged("token_drift_retokenisation", answers(mismatch=0.02, worst_mismatch=worst, turns=1.0))
    assert one.outcome == "not_applicable"


def test_the_age_of_samples() -> None:
    fresh = judged("stale_rollouts", answers(lag=np.tile([0.0, 1.0], 200)))
    assert severity(fresh) is None
    old = judged("stale_rollouts", answers(lag=np.tile([5.0, 9.0], 200)))
    assert severity(old) == Severity.WARNING
    assert old.says.startswith("in the saved answers samples are 7 policy versions old")
    assert old.finding is not None
    assert old.finding.numbers["largest"] >= 7
    assert judged("stale_rollouts", answers()).finding is None


def test_loss_masks() -> None:
    whole = judged("environment_tokens_trained", answers(turns=4.0, tool_calls=2.0, trained=1.0))
    assert severity(whole) == Severity.CRITICAL
    assert "400 of 400 answers of several turns have every token after the prompt in the loss" in whole.says
    masked = judged("environment_tokens_trained", answers(turns=4.0, tool_calls=2.0, trained=0.6))
    assert severity(masked) is None
    assert masked.outcome == "examined"
    assert "60% of the tokens" in masked.says
    odd = np.where(np.arange(400) == 7, 1.0, 0.6)
    assert severity(judged("environment_tokens_trained", answers(turns=4.0, tool_calls=2.0, trained=odd))) is None
    # An answer in one piece that ends in a call has no tool text yet.
    assert trained(answers(turns=1.0, tool_calls=1.0, trained=1.0)) is None
    assert trained(answers(turns=2.0, trained=1.0)) is None


def test_without_log_probabilities_there_are_no_gaps() -> None:
    assert gaps(answers()) is None
    seen = gaps(answers(logp=np.where(np.arange(400) % 100 == 0, -9.0, -0.4)))
    assert seen is not None
    assert seen.unlikely.sum() == 4
    assert np.isnan(seen.mean)
    run = vitals.complete(Run(rollouts=(answers(),)))
    assert not any(name.startswith(("mismatch.", "offpolicy.")) for name in run.columns)


def test_a_gap_counts_by_the_tokens_of_its_answer() -> None:
    gatherer = Gatherer(Shape("plain", filtered=True), "made")
    for step in range(3):
        gatherer.add(Answer(step=step, prompt="p", text="a", reward=1, tokens=90, mismatch=0.1, worst_mismatch=1))
        gatherer.add(Answer(step=step, prompt="p", text="b", reward=0, tokens=10, mismatch=1.1, worst_mismatch=7))
    run = vitals.complete(Run(rollouts=(gatherer.table(),)))
    assert run["mismatch.logp_diff.mean"].values == pytest.approx([0.2] * 3)
    assert run["mismatch.logp_diff.max"].values == pytest.approx([7.0] * 3)
