"""Sentences that name a value say which number it is, and what they claim of a course holds in all of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rlclinic import names, vitals
from rlclinic.checks import CHECKS
from rlclinic.checks.readings import bought, sank
from rlclinic.diagnose import diagnose
from rlclinic.model import Column, Framework, Knob, Run
from rlclinic.remedies import prescribe

STEPS = np.arange(1.0, 121.0)
TRL = Framework("trl", "TRL", "1.16.0")
NONE = "0 when no answer ended"


def series(metric: str, values: object, steps: object = STEPS, note: str = "") -> Column:
    at = np.asarray(steps, dtype=float)
    return Column(metric, metric, at, np.broadcast_to(np.asarray(values, dtype=float), at.shape).copy(), note=note)


def run_of(*columns: Column, **knobs: float) -> Run:
    given = {name: Knob(name, value, name, "config") for name, value in knobs.items()}
    return Run(columns={c.metric: c for c in columns}, framework=TRL, knobs=given)


def scores(*values: float) -> Column:
    return series("eval.score", values, 20.0 * np.arange(1, len(values) + 1))


def test_few_evaluations_are_told_as_they_were_logged() -> None:
    run = run_of(scores(0.906, 0.789, 0.023, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    gain = bought(run, 1.0)
    assert gain is not None
    assert gain.falling
    assert gain.says == "held-out score fell from 0.906 (step 20) to 0 (step 200)"
    assert sank(run["eval.score"], 0.85, 0.0) == "fell from a best 0.906 (step 20) to 0 (step 200)"


def test_smoothed_values_are_called_so() -> None:
    reward = series("reward.mean", 0.9 - 0.005 * STEPS + 0.05 * np.sin(7 * STEPS))
    gain = bought(run_of(reward), 1.0)
    assert gain is not None
    assert "means of the first and last third)" in gain.says
    assert sank(reward, 0.9, 0.3) == "fell from a best 0.9 to 0.3 (smoothed)"


@pytest.mark.parametrize(
    ("values", "since", "told"),
    [
        ([0.4] * 12, 1.0, "held-out score stayed near 0.4"),
        ([0.9, 0.8] + [0.0] * 10, 60.0, "held-out score is near 0 since step 60, 0.85 before (means)"),
        ([0.4] * 4 + [0.6, 0.2, 0.6, 0.6] + [0.4] * 4, 1.0, "ends near where it began"),
    ],
)
def test_what_stayed_was_there_before_and_between(values: list[float], since: float, told: str) -> None:
    gain = bought(run_of(scores(*values)), since)
    assert gain is not None
    assert told in gain.says


# ---------------------------------------------------------------- zeros that stand for no answer


def cut_from(step: int, *, note: str = NONE) -> Run:
    ended = series("length.terminated.mean", np.where((step <= STEPS) & (STEPS % 4 > 0), 0.0, 12.0), note=note)
    return run_of(
        series("reward.mean", 0.5 + 0.1 * np.sin(STEPS)),
        series("length.truncated_frac", np.where(step <= STEPS, 0.97, 0.0)),
        ended,
        max_response_length=48,
    )


def test_the_mean_length_of_no_answer_is_no_length() -> None:
    run = vitals.complete(cut_from(60))
    ended = run["length.terminated.mean"]
    assert set(ended.values) == {12.0}
    assert "0 in 45 of 120 rows" in ended.note
    assert vitals.complete(run)["length.terminated.mean"] is ended
    (found,) = diagnose(run, only=["truncation"]).findings
    assert "answers that end take 12 tokens" in found.says
    assert vitals.complete(cut_from(60, note=""))["length.terminated.mean"].values.min() == 0.0


def test_rows_in_which_none_ended_still_tell_that_the_model_never_stops() -> None:
    ended = series("length.terminated.mean", 0.0, note=NONE)
    run = vitals.complete(run_of(series("reward.mean", 0.5), series("length.truncated_frac", 1.0), ended))
    assert len(run["length.terminated.mean"]) == 0
    found = {f.check: f for f in diagnose(run).findings}
    assert "no answer ends by itself in 100% of rows" in found["never_eos"].says


# ---------------------------------------------------------------- titles and remedies

QUANTITY = re.compile(r"\b(most|mostly|all|always|never|every|nearly|hardly)\b", re.IGNORECASE)
TRUE_AS_GRADED = {
    "clip_asymmetry": "three times the other bound is three quarters",
    "clip_bound_misconfigured": "a proof: what every ratio does",
    "async_selection_bias": "hardly is what is measured",
    "never_eos": "nine rows in ten, in which 95 of 100 answers are cut",
    "format_break": "it falls, or is at 0 from the first row on",
    "grad_clip_always_active": "nine rows in ten",
    "resume_discontinuity": "any part of it",
    "sampler_corruption": "a level, no share",
    "std_normalisation_bias": "what the division does, by definition",
    "advantage_explosion": "twenty times as large or more",
    "zero_variance_all_right": "many groups: what all their answers earn",
    "zero_variance_all_wrong": "many groups: all their answers are wrong",
}
"""Checks whose titles say how many, and why that holds at their mildest severity."""


def test_a_title_with_a_quantity_holds_at_every_severity() -> None:
    named = {one.name for one in CHECKS if QUANTITY.search(one.title)}
    assert named == set(TRUE_AS_GRADED), "a title says how many: look whether it holds at the mildest severity"


FACTORS = {"halve": 0.5, "half": 0.5, "double": 2.0, "twice": 2.0, "triple": 3.0, "threefold": 3.0, "third": 1 / 3}


def test_a_factor_in_words_is_the_one_that_is_written() -> None:
    for id in names.remedies():
        remedy = names.remedy(id)
        said = [factor for word, factor in FACTORS.items() if re.search(rf"\b{word}\b", remedy.says)]
        turns = [turn for turn in remedy.set if turn.times is not None and not turn.like]
        if said and turns:
            assert [turn.times for turn in turns] == pytest.approx(said, abs=0.01), id
            bounded = any(turn.at_least is not None or turn.at_most is not None for turn in turns)
            assert not bounded or re.search(r"up to|at most|at least|or less", remedy.says), id


def test_nothing_is_expected_of_a_series_that_cannot_be_there() -> None:
    bare = run_of(series("reward.mean", 0.5), series("grad.norm", 1.0), kl_coef=0.0)
    (lower,) = prescribe(["restore_learning_rate"], bare)
    assert set(lower.expect) == {"grad.norm"}
    (pull,) = prescribe(["kl_coefficient"], bare)
    assert set(pull.expect) == {"kl.ref"}
    (whole,) = prescribe(["restore_learning_rate"], run_of(series("kl.ref", 0.1), kl_coef=0.01))
    assert set(whole.expect) == {"kl.ref", "grad.norm"}
