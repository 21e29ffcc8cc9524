"""What a comparison must not say: a difference that the logs do not show, a run that went wrong called the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlclinic.compare import compare, failing
from rlclinic.model import Column, Examination, Floats, Framework, Knob, Run, Severity
from rlclinic.names import evaluation_rank
from rlclinic.report import render_comparison
from rlclinic.report.comparison import answer, page
from test_compare import against, course, made, seen, setting, unexamined, word


def logged(metric: str, steps: Floats, values: Floats) -> Run:
    return Run(columns={metric: Column(metric, metric, np.asarray(steps, float), np.asarray(values, float))})


# ---------------------------------------------------------------------------------------------- no false difference


def test_single_values_are_no_constants() -> None:
    def scored(score: float) -> Run:
        held = logged("held", np.array([100.0]), np.array([score]))["held"]
        return replace(made({"reward.mean": course(100, 1)}), evaluations={"eval": held})

    one = against(scored(0.50), scored(0.52))
    assert word(one, "held_out.eval") == "open"
    flat = against(made({"grad.norm": np.ones(20)}), made({"grad.norm": 2 * np.ones(20)}))
    assert word(flat, "grad.norm") == "different"


@pytest.mark.parametrize("first", [5, 10])
def test_one_schedule_logged_at_other_steps_is_the_same(first: int) -> None:
    steps = np.arange(1.0, 201.0)
    rate = 1e-6 * np.minimum(steps / 15, 1) * (1 - steps / 250)
    whole = logged("optim.lr", steps, rate)
    tenth = logged("optim.lr", steps[first - 1 :: 10], rate[first - 1 :: 10])
    fifth = logged("optim.lr", steps[2::5], rate[2::5])
    for a, b in ((whole, tenth), (tenth, whole), (tenth, fifth)):
        assert word(against(a, b), "optim.lr") == "same"
    higher = logged("optim.lr", steps[first - 1 :: 10], 1.1 * rate[first - 1 :: 10])
    assert word(against(whole, higher), "optim.lr") == "different"
    apart = against(logged("optim.lr", np.array([1.0, 200.0]), rate[[0, 199]]),
                    logged("optim.lr", np.array([90.0, 110.0]), np.array([9e-6, 9e-6])))  # fmt: skip
    assert word(apart, "optim.lr") == "open"


def test_a_percentage_is_not_held_against_a_share() -> None:
    share = 0.4 + 0.02 * np.random.default_rng(1).standard_normal(100)
    runs = [made({"group.zero_var_frac": size * share, "reward.mean": size * course(100, 1)}) for size in (1, 100)]
    one = against(*runs)
    assert word(one, "group.zero_var_frac") == "incomparable"
    assert any("in another way" in said for said in one.warnings)
    assert not against(runs[0], made({"reward.mean": course(100, 2)})).warnings


def test_the_place_where_runs_part_lies_in_its_interval() -> None:
    rng = np.random.default_rng(5)
    told = inside = 0
    for pair in range(6):
        at = int(rng.integers(60, 280))
        fall = np.where(np.arange(300) >= at, -0.5, 0.0)
        one = against(
            made({"reward.mean": course(300, 2 * pair)}), made({"reward.mean": course(300, 2 * pair + 1) + fall})
        )
        onset = one.metrics[0].onset
        told += onset is not None
        inside += onset is not None and onset.low <= at + 1 <= onset.high and onset.low <= onset.step <= onset.high
    assert told >= 5
    assert inside >= told - 1


def test_a_schedule_alone_is_no_shared_start() -> None:
    def seed(one: int) -> Run:
        return made({"reward.mean": course(100, one), "optim.lr": np.linspace(1e-6, 1e-7, 100)})

    assert against(seed(1), seed(2)).identical is None
    sparse = Run(
        columns={**seed(1).columns, "reward.mean": replace(seed(1)["reward.mean"], steps=np.arange(100) + 0.5)}
    )
    assert against(seed(1), sparse).identical is None


@pytest.mark.parametrize(
    "key", ["eval/error_rate", "eval_wer", "val/failures", "test/invalid_frac", "eval/answers_wrong"]
)
def test_a_rate_of_errors_is_no_held_out_score(key: str) -> None:
    """Higher would pass for better."""
    assert evaluation_rank(key) is None
    assert evaluation_rank(key, named=key) is not None


# ------------------------------------------------------------------------------------------- no false sameness


def test_a_run_that_ends_ill_or_scatters_is_not_called_the_same() -> None:
    good, ill = course(300, 1), course(300, 2)
    ill[292:] = 0.0
    rng = np.random.default_rng(0)
    calm = 1 + 0.05 * rng.standard_normal(300)
    wild = 1 + 0.05 * rng.standard_normal(300) * np.where(np.arange(300) > 150, 10, 1)
    one = against(made({"reward.mean": good, "grad.norm": calm}), made({"reward.mean": ill, "grad.norm": wild}))
    rows = {row.name: row for row in one.metrics}
    assert rows["reward.mean"].word == rows["grad.norm"].word == "open"
    assert "last values" in rows["reward.mean"].says
    assert "B scatters" in rows["grad.norm"].says
    comparison = compare([unexamined(made({"reward.mean": good})), unexamined(made({"reward.mean": ill}))])
    assert "(1 open)" in answer(comparison, comparison.others[0])
    assert page(comparison)[0].tone != "healthy"  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [1.0, -1.0, (-1.0) ** np.arange(60)])
def test_huge_numbers_are_compared_without_a_word(shape: Any) -> None:
    with np.errstate(all="raise", under="ignore"):
        one = against(made({"reward.mean": 1.7e308 * shape * np.ones(60)}), made({"reward.mean": course(60, 1)}))
    assert len(one.warnings) == 1


# -------------------------------------------------------------------------------------------- settings, findings


def test_a_setting_that_a_third_run_does_not_tell_still_differs() -> None:
    runs = [
        unexamined(Run(knobs=knobs)) for knobs in (setting("learning_rate", 1e-6), setting("learning_rate", 1e-5), {})
    ]
    comparison = compare(runs)
    assert [row.outcome for row in comparison.settings] == ["different"]
    assert "not told" in render_comparison(comparison, "terminal")
    trl, verl = Framework("trl", "TRL"), Framework("verl", "verl")
    counts = [Run(framework=of, knobs={"train_batch_size": Knob("train_batch_size", n, "b", "config")})
              for of, n in ((trl, 64), (trl, 32), (verl, 64))]  # fmt: skip
    mixed = compare([unexamined(run) for run in counts])
    assert [row.outcome for row in mixed.settings] == ["other_meaning"]
    assert "share no stretch of the axis; they differ in 1 setting;" in answer(mixed, mixed.others[0])
    assert "they differ in 0 settings" in answer(mixed, mixed.others[1])


def test_other_numbers_of_answers_are_said() -> None:
    runs = [made({"reward.mean": course(50, n)}, knobs=setting("group_size", n)) for n in (4, 16)]
    assert any("zero-variance share" in said for said in against(*runs).warnings)


def test_what_began_after_the_end_of_the_shorter_run_is_neither_gone_nor_new() -> None:
    long, short = made({"reward.mean": course(300, 1)}), made({"reward.mean": course(100, 2)})
    early, late = seen("kl_drift", Severity.CRITICAL, 50.0), seen("plateau", Severity.CRITICAL, 200.0)
    looked = tuple(Examination(check, "examined") for check in ("kl_drift", "plateau"))
    ill, well = unexamined(long, early, late, checks=looked), unexamined(short, checks=looked)
    shorter = compare([ill, well])
    rows = {row.check: row for row in shorter.others[0].findings}
    assert {check: row.change for check, row in rows.items()} == {"kl_drift": "gone", "plateau": "unseen"}
    assert rows["plateau"].says == "B ends before it began in A"
    assert failing(shorter, Severity.CRITICAL) == (False, True)
    longer = compare([well, ill])
    assert {row.check: row.change for row in longer.others[0].findings} == {"kl_drift": "new", "plateau": "unseen"}
    assert failing(longer, Severity.CRITICAL) == (True, False)
    assert page(compare([ill, unexamined(long, early, late, checks=looked)]))[0].tone == "info"  # type: ignore[union-attr]
