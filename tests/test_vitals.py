"""What a log implies: series that cannot be true, resumes, how far updates are from the sampling policy, dead groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlclinic import vitals
from rlclinic.model import Column, Framework, Knob, RewardRange, Run, Scalar

STEPS = np.arange(1.0, 41.0)
TRL = Framework("trl", "TRL", "1.16.0")
VERL = Framework("verl", "verl", "0.9.1")


def column(metric: str, values: object, **more: object) -> Column:
    filled = np.broadcast_to(np.asarray(values, dtype=float), STEPS.shape).copy()
    return Column(metric, metric, STEPS, filled, **more)  # type: ignore[arg-type]


def run_of(*columns: Column, framework: Framework | None = None, **knobs: Scalar) -> Run:
    settings = {name: Knob(name, value, name, "config") for name, value in knobs.items()}
    return Run(columns={c.metric: c for c in columns}, knobs=settings, framework=framework)


WAVE = 0.5 + 0.1 * np.sin(STEPS)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (column("entropy.mean", -WAVE), "-"),
        (column("length.truncated_frac", 1.0 + WAVE), "0 to 1"),
        (column("length.truncated_frac", 100 * WAVE), "percent"),
        (column("kl.ref", -0.1 * WAVE, estimator="k3"), "k3"),
        (column("reward.min", 2.0 * WAVE), "above the mean"),
        (column("reward.max", 0.5 * WAVE), "below the mean"),
        (column("entropy.mean", 0.5317294061937), "last digit"),
        (column("grad.norm", -WAVE), "0 to any"),
    ],
)
def test_impossible_series_leave_the_columns(wrong: Column, word: str) -> None:
    run = vitals.complete(run_of(column("reward.mean", WAVE), wrong))
    assert wrong.metric not in run
    assert word in run.distrusted[wrong.key]
    assert vitals.complete(run).distrusted == run.distrusted


@pytest.mark.parametrize(
    "sound",
    [
        column("kl.ref", -0.1 * WAVE, estimator="k1"),
        column("kl.ref", -0.1 * WAVE),
        column("length.truncated_frac", 1.0004),
        column("entropy.mean", 0.5),
        column("advantage.max", 2.4748737341529163),
        column("grad.norm", 1.0000000149),
        column("reward.mean", 0.3333333333333333),
        column("entropy.mean", 0.53173, resolution=1e-5),
    ],
)
def test_strange_but_possible_series_stay(sound: Column) -> None:
    assert vitals.impossible({"reward.mean": column("reward.mean", WAVE), sound.metric: sound}) == {}


def test_a_tolerance_that_takes_rounding_for_a_spread() -> None:
    spread = np.where(STEPS % 4 == 0, 1.2e-7, 0.3)
    share = column("group.zero_var_frac", 0.0)
    columns = {"reward.std": column("reward.std", spread), "group.zero_var_frac": share}
    assert "rounding" in vitals.impossible(columns)["group.zero_var_frac"]
    honest = column("group.zero_var_frac", (spread < 1e-6).astype(float))
    assert vitals.impossible({**columns, "group.zero_var_frac": honest}) == {}


def test_a_warm_up_in_the_middle_is_a_seam_unless_a_schedule_or_the_log_explains_it() -> None:
    ramp = np.minimum(STEPS, 5) / 5
    rate = column("optim.lr", np.where(STEPS < 20, ramp, np.minimum(STEPS - 20, 5) / 5))
    assert vitals.complete(run_of(rate)).seams == {20.0: vitals.WARM_UP}
    assert vitals.complete(run_of(rate, lr_schedule="cosine_with_restarts")).seams == {}
    known = replace(run_of(rate), seams={19.0: "the step went back"})
    assert vitals.complete(known).seams == known.seams
    assert vitals.complete(run_of(column("optim.lr", 1.0 - STEPS / 40))).seams == {}


@pytest.mark.parametrize(
    ("run", "answer"),
    [
        (run_of(), None),
        (run_of(column("clip.frac", 0.01)), False),
        (run_of(column("clip.frac", 0.0)), None),
        (run_of(column("kl.old_new", 0.0)), True),
        (run_of(column("kl.old_new", 0.0, resolution=1e-3)), None),
        (run_of(inner_epochs=2), False),
        (run_of(framework=TRL, inner_epochs=1, steps_per_generation=8, grad_accumulation=8), True),
        (run_of(framework=TRL, inner_epochs=1, steps_per_generation=16, grad_accumulation=8), False),
        (
            run_of(framework=TRL, inner_epochs=1, steps_per_generation=8, grad_accumulation=8, sampler_correction="on"),
            None,
        ),
        (
            run_of(
                framework=TRL,
                inner_epochs=1,
                steps_per_generation=8,
                grad_accumulation=8,
                sampler_correction="on",
                sampler=False,
            ),
            True,
        ),
        (run_of(framework=VERL, inner_epochs=1, train_batch_size=256, mini_batch_size=256), True),
        (run_of(framework=VERL, inner_epochs=1, train_batch_size=256, mini_batch_size=64), False),
        (run_of(inner_epochs=1, train_batch_size=256, mini_batch_size=64), None),
    ],
)
def test_on_policy(run: Run, answer: bool | None) -> None:
    assert vitals.on_policy(run) is answer
    assert vitals.updates(run)[1]


def test_a_chosen_setting_is_stated_and_no_default() -> None:
    assert vitals.chosen(run_of(framework=VERL, kl_coef=0.001), "kl_coef") is None
    assert vitals.chosen(run_of(framework=VERL, kl_coef=0.01), "kl_coef") is not None
    assert vitals.chosen(run_of(framework=TRL), "kl_coef") is None
    assert vitals.chosen(run_of(kl_coef=0.001), "kl_coef") is not None


def test_dead_groups_that_the_pass_rate_implies() -> None:
    span = RewardRange(0.0, 1.0, "the reward behaves like a right-or-wrong score")
    run = replace(run_of(column("reward.mean", 0.9), group_size=8), reward_range=span)
    least = vitals.least_dead(run)
    assert least is not None
    assert least.values == pytest.approx(0.9**8 + 0.1**8)
    assert vitals.least_dead(replace(run, knobs={})) is None
    assert vitals.least_dead(replace(run, reward_range=RewardRange(0.0, 1.0, "extremes seen"))) is None
