"""Where to go on from, and what a failure cost: only what the log, the disk and the user state, every assumption named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlclinic.diagnose import _one_way_back, diagnose
from rlclinic.model import Checkpoint, Column, Finding, Knob, Onset, Rollback, Run, Severity
from rlclinic.prognosis import cost, rollback
from rlclinic.simulate import as_run, scenario

STEPS = np.arange(1.0, 201.0)


def run(**more: object) -> Run:
    columns = {"reward.mean": Column("reward.mean", "reward", STEPS, np.full(200, 0.5))}
    return replace(Run(columns=columns), **more)  # type: ignore[arg-type]


def timed(seconds: float = 36.0, **more: object) -> Run:
    base = run(**more)
    step_time = Column("time.step", "step_time", STEPS, np.full(200, seconds))
    return replace(base, columns={**base.columns, "time.step": step_time})


def collapse(low: float = 150.0) -> Finding:
    at = Onset(low + 2, low, low + 5)
    return Finding(severity=Severity.CRITICAL, says="", check="sudden_collapse", onset=at)


def saved(*steps: float) -> tuple[Checkpoint, ...]:
    return tuple(Checkpoint(step, f"checkpoint-{step:g}") for step in steps)


def test_the_last_checkpoint_before_the_onset() -> None:
    found = rollback(collapse(), {"sudden_collapse": collapse()}, run(checkpoints=saved(50, 100, 150, 200)))
    assert found is not None
    assert (found.checkpoint, found.low) == ("checkpoint-100", 150.0)


def test_no_checkpoint_is_old_enough() -> None:
    found = rollback(collapse(), {"sudden_collapse": collapse()}, run(checkpoints=saved(160, 200)))
    assert found is not None
    assert found.checkpoint is None
    assert "the start" in found.says


def test_only_an_interval_is_known() -> None:
    every = {"save_every": Knob("save_every", 40, "save_steps", "config")}
    found = rollback(collapse(), {"sudden_collapse": collapse()}, run(knobs=every))
    assert found is not None
    assert found.checkpoint is None
    assert "step 120" in found.says


def test_there_from_the_first_row() -> None:
    found = rollback(collapse(1.0), {"sudden_collapse": collapse(1.0)}, run(checkpoints=saved(50)))
    assert found is not None
    assert found.checkpoint is None
    assert "the start" in found.says


def test_an_onset_that_may_be_early_asks_for_an_evaluation() -> None:
    one = Finding(severity=Severity.CRITICAL, says="", check="sudden_collapse", onset=Onset(120, 1, 130))
    found = rollback(one, {one.check: one}, run(checkpoints=saved(50, 100, 150)))
    assert found is not None
    assert found.checkpoint == "checkpoint-100"
    assert "evaluate it first" in found.says


def test_the_earliest_mover_counts() -> None:
    root = Finding(
        severity=Severity.WARNING,
        says="",
        check="grad_spikes",
        onset=Onset(90, 85, 95),
        leads_to=("sudden_collapse",),
    )
    effect = replace(collapse(), because_of=("grad_spikes",))
    findings = {"grad_spikes": root, "sudden_collapse": effect}
    found = rollback(root, findings, run(checkpoints=saved(50, 100, 140)))
    assert found is not None
    assert found.checkpoint == "checkpoint-50"
    assert rollback(effect, findings, run()) is None


@pytest.mark.parametrize("check", ["zero_variance_all_right", "entropy_collapse", "truncation"])
def test_lost_signal_goes_on_from_here(check: str) -> None:
    one = Finding(severity=Severity.CRITICAL, says="", check=check, onset=Onset(100, 90, 110))
    assert rollback(one, {check: one}, run(checkpoints=saved(50))) is None


def test_a_state_of_the_first_row_sends_nothing_back_beyond_the_damage() -> None:
    cut = Finding(severity=Severity.CRITICAL, says="", check="truncation", onset=Onset(1, 1, 1))
    findings = {"truncation": replace(cut, leads_to=("reward_decline",)), "reward_decline": collapse()}
    found = rollback(findings["truncation"], findings, run(checkpoints=saved(50, 100)))
    assert found is not None
    assert found.checkpoint == "checkpoint-100"
    spoiled = {**findings, "reward_decline": replace(collapse(), onset=Onset(1, 1, 1))}
    assert rollback(spoiled["truncation"], spoiled, run(checkpoints=saved(50, 100))).checkpoint is None  # type: ignore[union-attr]


def test_money_needs_time_gpus_and_a_price() -> None:
    dead = Finding(severity=Severity.CRITICAL, says="", check="zero_variance_all_right", wasted=0.5)
    plain = cost(dead, run())
    assert plain is not None
    assert (plain.gpu_hours, plain.money) == (None, None)
    assert "no step time" in plain.says
    without = cost(dead, timed())
    assert without is not None
    assert without.gpu_hours is None
    assert "--gpus" in without.says
    given = timed().told(gpus=8)
    told = cost(dead, given, gpu_hour_price=2.5)
    assert told is not None
    assert told.gpu_hours == pytest.approx(0.5 * 200 * 36 / 3600 * 8)
    assert told.money == pytest.approx(2.5 * told.gpu_hours)
    for assumption in ("8 GPUs as given", "step time as logged", "2.5 a GPU-hour"):
        assert assumption in told.says


def test_configured_nodes_multiply_and_given_gpus_replace_them() -> None:
    knobs = {"gpus": Knob("gpus", 8, "n_gpus", "config"), "nodes": Knob("nodes", 2, "nnodes", "config")}
    dead = Finding(severity=Severity.CRITICAL, says="", check="zero_variance_all_right", wasted=1.0)
    both, given = cost(dead, timed(knobs=knobs)), cost(dead, timed(knobs=knobs).told(gpus=4))
    assert both is not None
    assert given is not None
    assert both.gpu_hours == pytest.approx(32.0)
    assert given.gpu_hours == pytest.approx(8.0)


def test_what_only_distorts_costs_nothing() -> None:
    for check in ("entropy_collapse", "kl_drift", "clip_saturation"):
        assert cost(Finding(severity=Severity.CRITICAL, says="", check=check), timed()) is None


def test_a_collapse_costs_the_steps_that_are_given_up() -> None:
    one = collapse()
    told = cost(replace(one, rollback=rollback(one, {one.check: one}, timed())), timed())
    assert told is not None
    assert told.wasted_share == pytest.approx(50 / 200)
    assert "at least 25% of the 200 steps, those after step 150, have to be given up" in told.says


@pytest.mark.parametrize(
    ("more", "share"),
    [
        ({"checkpoints": saved(50, 100, 150)}, 0.5),
        ({"checkpoints": saved(160)}, 1.0),
        ({"knobs": {"save_every": Knob("save_every", 40, "save_steps", "config")}}, 0.4),
        ({"knobs": {"save_every": Knob("save_every", 500, "save_steps", "config")}}, 1.0),
    ],
)
def test_the_cost_is_counted_from_where_the_run_goes_on(more: dict[str, object], share: float) -> None:
    one, sick = collapse(), run(**more)
    told = cost(replace(one, rollback=rollback(one, {one.check: one}, sick)), sick)
    assert told is not None
    assert told.wasted_share == pytest.approx(share)
    assert "at least" not in told.says


def test_a_way_back_that_is_not_its_own_says_whose_it_is() -> None:
    way = Rollback(150, 148, 155, None, "go on from the last checkpoint before step 149")
    first = Finding(Severity.WARNING, "", check="reference_wrong", onset=Onset(2, 2, 2))
    told = _one_way_back([first, replace(collapse(), rollback=way)])
    assert [f.rollback is not None and f.rollback.says.endswith("sudden_collapse began") for f in told] == [True, False]


def test_a_diagnosis_carries_both() -> None:
    sick = as_run(scenario("sudden_collapse", seed=2)).told(gpus=8, checkpoints=range(50, 401, 50))
    root = diagnose(sick, gpu_hour_price=2.0).findings[0]
    assert root.rollback is not None
    assert root.rollback.checkpoint == "step 250"
    assert root.cost is not None
    assert root.cost.money is not None
    assert 0.2 < root.cost.wasted_share < 0.5
    healthy = diagnose(as_run(scenario("plain")).told(gpus=8), gpu_hour_price=2.0)
    assert all(f.cost is None for f in healthy.findings)


def test_what_is_wasted_is_called_what_it_is() -> None:
    """Answers of dead groups carried no gradient; those of a plateau did, and nothing came of it."""
    for check, words in (("zero_variance_all_right", "carried no gradient"), ("plateau", "brought nothing more")):
        told = cost(Finding(severity=Severity.WARNING, says="", check=check, wasted=0.8), timed())
        assert told is not None
        assert words in told.says


def test_an_interval_longer_than_the_run_left_no_checkpoint() -> None:
    every = {"save_every": Knob("save_every", 500, "save_steps", "config")}
    found = rollback(collapse(), {"sudden_collapse": collapse()}, run(knobs=every))
    assert found is not None
    assert found.says == "go on from the start: no checkpoint was due yet, with one every 500 steps"
