"""What is normal is said when the log shows it, and never beside a finding that says otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlclinic.diagnose import diagnose
from rlclinic.model import SAVED, Finding, Note, Severity
from rlclinic.reassurances import reassurances, uncontradicted
from rlclinic.simulate import run_from_spec


def notes(**spec: Any) -> set[str]:
    described = {"steps": 40, "reward.mean": {"level": 0.4, "noise": 0.02}, **spec}
    return {note.id for note in reassurances(run_from_spec(described))}


@pytest.mark.parametrize(
    ("note", "shown", "otherwise"),
    [
        ("loss_negative_expected", {"loss.total": {"level": -0.02, "noise": 0.005}}, {"loss.total": {"level": 0.02}}),
        (
            "kl_negative_expected",
            {"kl.old_new": {"level": 0.0, "noise": 0.001, "estimator": "k1", "low": -1.0}},
            {"kl.ref": {"level": -0.2, "noise": 0.001, "estimator": "k1", "low": -1.0}},
        ),
        (
            "advantage_mean_expected",
            {"dialect": "verl", "advantage.mean": {"level": -0.08, "noise": 0.01}},
            {"dialect": "trl", "advantage.mean": {"level": -0.08, "noise": 0.01}},
        ),
        (
            "grad_above_limit_expected",
            {"knobs": {"grad_clip": 1.0}, "grad.norm": {"level": 2.0, "noise": 0.3}},
            {"knobs": {"grad_clip": 1.0}, "grad.norm": {"level": 0.3, "noise": 0.1}},
        ),
        (
            "low_entropy_expected",
            {"entropy.mean": {"level": 0.3, "noise": 0.01}},
            {"entropy.mean": {"level": 0.5, "noise": 0.01, "falls": {"to": 0.05, "at": 0, "over": 30}}},
        ),
        (
            "reward_negative_expected",
            {"reward.mean": {"level": -2.0, "noise": 0.1}},
            {"reward.mean": {"level": 2.0, "noise": 0.1}},
        ),
        (
            "kl_first_step_expected",
            {"steps": 3, "kl.ref": {"values": [0.0, 0.001, 0.002]}},
            {"steps": 3, "kl.ref": {"values": [0.02, 0.021, 0.022]}},
        ),
    ],
)
def test_said_where_the_log_shows_it_and_only_there(
    note: str, shown: dict[str, Any], otherwise: dict[str, Any]
) -> None:
    assert note in notes(**shown)
    assert note not in notes(**otherwise)


def test_nothing_is_said_of_an_empty_log() -> None:
    assert reassurances(run_from_spec({"steps": 1})) == []


def test_a_finding_silences_the_note_that_it_contradicts() -> None:
    note = Note("low_entropy_expected", "fine")
    sick = Finding(severity=Severity.WARNING, says="", check="entropy_collapse")
    mild = Finding(severity=Severity.INFO, says="", check="entropy_collapse")
    assert uncontradicted([note], [sick]) == []
    assert uncontradicted([note], [mild]) == [note]


def test_a_diagnosis_carries_them_in_order() -> None:
    spec = {
        "steps": 60,
        "reward.mean": {"level": -2.0, "noise": 0.1, "rises": {"to": -1.0, "at": 0, "over": 55}},
        "loss.total": {"level": -0.02, "noise": 0.002},
    }
    ids = [note.id for note in diagnose(run_from_spec(spec)).notes]
    assert ids == sorted(ids)
    assert {"loss_negative_expected", "reward_negative_expected"} <= set(ids)


def test_a_spread_that_was_counted_needs_no_warning() -> None:
    """TRL's spread over the batch is told apart from that of groups, unless the groups of the saved answers were counted."""
    run = run_from_spec({"steps": 100, "preset": "plain", "dialect": "trl", "version": "1.4.0"})
    assert "reward_std_not_group_std" in {note.id for note in diagnose(run).notes}
    for metric in ("reward.std", "group.zero_var_frac"):
        counted = replace(run, columns={**run.columns, metric: replace(run.columns[metric], key=SAVED)})
        assert "reward_std_not_group_std" not in {note.id for note in diagnose(counted).notes}
