"""The contrast within groups: its formulas against plain regression, its size, courses and conflicts by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.stats.contrast import Presence, Results, corrected, course, effects, prepare, tails
from rlclinic.stats.evidence import student_tail


def plain(group: np.ndarray, reward: np.ndarray, length: np.ndarray, has: np.ndarray) -> tuple[float, float]:
    """Effect and clustered error by least squares on everything centred by group."""

    def centred(values: np.ndarray) -> np.ndarray:
        return values - (np.bincount(group, values) / np.bincount(group))[group]

    y, long, x = centred(reward), centred(np.log1p(length)), centred(has.astype(float))
    columns = np.column_stack([x, long])
    beta, *_ = np.linalg.lstsq(columns, y, rcond=None)
    left = y - columns @ beta
    own = x - long * (long @ x) / (long @ long)
    rows = np.bincount(group, has)
    varied = int(((rows > 0) & (rows < np.bincount(group))).sum())
    meat = np.square(np.bincount(group, own * left)).sum() * varied / (varied - 1)
    return float(beta[0]), float(np.sqrt(meat) / (own @ own))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(6, 20), st.integers(2, 9))
def test_effects_are_those_of_a_regression_on_group_and_length(seed: int, groups: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), size)
    reward, length = rng.normal(size=len(group)), rng.integers(5, 90, len(group)).astype(float)
    table = rng.random((4, len(group))) < rng.random((4, 1))
    found = effects(Presence.of(table), prepare(group, reward, length))
    for i, has in enumerate(table):
        if found.groups[i] >= 5 and 0 < has.sum() < len(has):
            effect, error = plain(group, reward, length, has)
            assert found.effect[i] == pytest.approx(effect, rel=1e-6, abs=1e-9)
            floor = abs(effect) / found.groups[i] / 3.0
            assert found.error[i] == pytest.approx(max(error, floor), rel=1e-6)


def test_features_of_no_meaning_are_found_as_often_as_the_level_says() -> None:
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(120), 8)
    hard = rng.normal(size=120)[group]
    table = rng.random((1500, len(group))) < 0.2
    length = np.exp(rng.normal(5, 0.4, len(group)))
    found = effects(
        Presence.of(table), prepare(group, hard + 0.3 * np.log(length) + rng.normal(size=len(group)), length)
    )
    assert 0.003 < (found.p_value < 0.01).mean() < 0.02
    assert np.nanmin(corrected(found.p_value)[0]) > 0.01


def test_what_goes_along_with_length_only_has_no_effect() -> None:
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(100), 8)
    length = np.exp(rng.normal(5, 0.5, len(group)))
    wordy = (rng.random(len(group)) < 1 / (1 + np.exp(-4 * (np.log(length) - 5))))[None, :]
    outcome = prepare(group, np.log(length) + 0.3 * rng.normal(size=len(group)), length)
    assert effects(Presence.of(wordy), outcome).p_value[0] > 0.01
    assert outcome.share_of_length > 0.6


def test_a_perfect_rule_leaves_a_doubt() -> None:
    group = np.repeat(np.arange(10), 4)
    has = np.tile([True, True, False, False], 10)
    found = effects(Presence.of(has[None, :]), prepare(group, has.astype(float), np.ones(len(group))))
    assert found.effect[0] == pytest.approx(1.0)
    assert 0.0 < found.p_value[0] < 1e-4


def test_few_groups_and_no_feature_are_no_test() -> None:
    group = np.repeat(np.arange(4), 4)
    has = np.tile([True, False, False, False], 4)[None, :]
    assert np.isnan(effects(Presence.of(has), prepare(group, np.arange(16.0), np.ones(16))).p_value[0])
    nothing = effects(Presence.of(has & False), prepare(group, np.arange(16.0), np.ones(16)))
    assert np.isnan(nothing.p_value[0])
    assert nothing.rows[0] == 0


@pytest.mark.parametrize("df", [4.0, 9.0, 80.0])
def test_tails_are_students(df: float) -> None:
    t = np.array([0.5, 2.0, 4.0])
    wanted = [2 * student_tail(float(one), df) for one in t]
    assert tails(t, np.full(3, df)) == pytest.approx(wanted, rel=0.06)


def test_a_course_rises_only_beyond_the_scatter_of_its_windows() -> None:
    totals = np.full(9, 200.0)
    taken = course(np.array([2, 3, 2, 4, 60, 150, 180, 185, 190.0]), totals)
    assert taken.rising
    assert taken.last == pytest.approx(185 / 200)
    assert not course(np.array([40, 42, 39, 41, 40, 38, 41, 40, 42.0]), totals).rising
    assert not course(np.array([20, 90, 30, 100, 25, 80, 110, 30, 95.0]), totals).rising
    assert not course(np.array([2, 3, 150, 190, 180, 60, 10, 4, 3.0]), totals).rising, "it was given up"
    assert course(np.array([5.0, 120.0]), np.array([200.0, 200.0])).rising
    assert not course(np.array([50.0]), np.array([100.0])).rising
    assert not course(np.empty(0), np.empty(0)).rising


def test_conflicts_by_hand() -> None:
    question = np.array([0, 0, 0, 1, 1, 2])
    result = np.array([5, 5, 6, 7, -1, 5])
    chosen = np.array([True, True, True, True, True, True])
    found = Results.of_answers(question, result).conflict(chosen)
    assert (found.share, found.questions) == (pytest.approx(2 / 3), 1)
    ready = Results.of_answers(np.array([0, 0, 1, 1]), np.array([1, 2, 3, 3]))
    crossed = ready.conflict(np.array([True, False, True, False]), np.array([False, True, False, True]))
    assert (crossed.share, crossed.questions) == (pytest.approx(0.5), 2)
    assert ready.conflict(np.zeros(4, dtype=bool)).questions == 0
    assert Results.of_answers(np.zeros(3, np.int64), np.full(3, -1)).conflict(np.ones(3, dtype=bool)).questions == 0
