"""Levels of windows, bounds of shares, lattices of scores, and cliffs: known answers, worked out elsewhere or by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from rlclinic.stats.cliff import apart, cliff
from rlclinic.stats.level import held, lower_bound, mean_difference, rank_p, trials_per_row
from series import axis, noise

# Shares


@pytest.mark.parametrize(("hits", "trials"), [(0, 20), (1, 64), (7, 10), (250, 256), (16, 16)])
def test_the_lower_bound_of_a_share_is_that_of_wilson(hits: int, trials: int) -> None:
    interval = stats.binomtest(hits, trials).proportion_ci(0.90, "wilson")
    assert lower_bound(hits / trials, trials) == pytest.approx(interval.low, abs=2e-4)
    wide = stats.binomtest(hits, trials).proportion_ci(0.99, "wilson")
    assert lower_bound(hits / trials, trials, z=2.5758) == pytest.approx(wide.low, abs=2e-4)
    assert lower_bound(hits / trials, 0) == 0.0


@pytest.mark.parametrize("answers", [8, 16, 48, 64, 256])
def test_how_many_answers_a_share_is_of_shows_in_its_lattice(answers: int) -> None:
    hits = np.random.default_rng(answers).integers(1, answers, 60)
    assert trials_per_row(hits / answers) == answers
    assert trials_per_row(np.round(hits / answers, 6)) == answers


def test_without_a_lattice_a_small_batch_is_guessed() -> None:
    assert trials_per_row(np.array([])) == 8
    assert trials_per_row(np.array([0.0, 1.0, 1.0])) == 8
    assert trials_per_row(np.array([0.25, 0.5, 0.75, 0.5])) == 8  # never fewer
    assert trials_per_row(np.random.default_rng(0).random(60)) == 8


# Windows


def test_running_means_of_a_share_of_the_run() -> None:
    means, width = held(axis(100), 0.1)
    assert width == 10
    assert means.tolist() == pytest.approx((axis(91) + 4.5).tolist())
    assert held(axis(95), 0.1)[1] == 10
    assert held(axis(20), 0.1)[1] == 5
    assert held(axis(3), 0.1)[1] == 3
    assert held(np.array([]))[1] == 0


@pytest.mark.parametrize("n", [4, 10, 25])
def test_the_rank_test_is_that_of_kendall(n: int) -> None:
    s, deviation = n * (n - 1) / 2, math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    assert rank_p(axis(n)) == rank_p(-axis(n)) == pytest.approx(2 * stats.norm.sf((s - 1) / deviation), rel=1e-6)
    assert rank_p(np.ones(n)) == 1.0
    assert rank_p(axis(3)) == 1.0


def test_two_windows_are_compared_as_by_welch() -> None:
    rng = np.random.default_rng(71)
    first, second = rng.standard_normal(60), 0.8 + 2.0 * rng.standard_normal(40)
    found, theirs = mean_difference(first, second), stats.ttest_ind(first, second, equal_var=False)
    assert theirs.pvalue <= found.p_value <= 4 * theirs.pvalue  # fewer effective points than points
    assert 80 <= found.n_eff <= 100
    assert found.sd == pytest.approx(math.sqrt((first.var() + second.var()) / 2), rel=0.1)
    assert mean_difference(first + 7.0, second + 7.0).p_value == pytest.approx(found.p_value)
    assert mean_difference(second, first).p_value == pytest.approx(found.p_value)
    assert mean_difference(np.ones(9), np.ones(9)).p_value == 1.0
    assert mean_difference(np.ones(9), np.full(9, 2.0)).p_value == 0.0
    assert mean_difference(np.ones(1), axis(9)).p_value == 1.0


@pytest.mark.parametrize(("phi", "most"), [(0.0, 0.04), (0.7, 0.08)])
def test_windows_of_slow_noise_are_not_taken_for_different(phi: float, most: float) -> None:
    rng = np.random.default_rng(72)
    wrong = [mean_difference(noise(rng, 80, phi), noise(rng, 80, phi)).p_value < 0.01 for _ in range(50)]
    assert np.mean(wrong) <= most


# Cliffs


def test_a_cliff_has_its_levels_its_size_and_its_row() -> None:
    y = np.concatenate([np.full(40, 1.0), np.full(60, 0.25)]) + np.resize([0.01, -0.01, 0.02, -0.02], 100)
    found = cliff(axis(100) * 5, y, falling=True)
    assert found is not None
    assert (found.before, found.after, found.near) == pytest.approx((1.0, 0.25, 0.25), abs=0.02)
    assert found.onset.low <= found.onset.step <= found.onset.high
    assert found.onset.step == pytest.approx(200.0, abs=25.0)
    assert found.size > 20
    assert cliff(axis(100) * 5, y, falling=False) is None
    mirrored = cliff(axis(100) * 5, -y, falling=False)
    assert mirrored is not None
    assert mirrored == found._replace(before=-found.before, after=-found.after, near=-found.near)


def test_what_was_as_low_before_is_no_cliff_of_the_whole_run() -> None:
    y = np.concatenate([np.full(20, 0.2), np.full(30, 1.0), np.full(50, 0.25)]) + np.resize([0.01, -0.01, 0.02], 100)
    assert cliff(axis(100), y, falling=True) is None
    near = cliff(axis(100), y, falling=True, whole=False)
    assert near is not None
    assert near.onset.step == pytest.approx(50, abs=5)


def test_what_comes_back_is_no_cliff() -> None:
    y = np.concatenate([np.full(40, 1.0), np.full(30, 0.25), np.full(30, 1.0)])
    assert cliff(axis(100), y, falling=True) is None
    assert cliff(axis(7), np.array([1, 1, 1, 0, 0, 0, 0.0]), falling=True) is None


def test_the_thirds_of_a_short_log_lie_apart() -> None:
    y = np.array([1.0, 0.9, 1.1, 0.8, 0.5, 0.4, 0.2, 0.3, 0.1])
    found = apart(axis(9), y, falling=True)
    assert found is not None
    assert (found.before, found.after, found.onset.step) == (1.0, 0.2, 4.0)
    assert (found.onset.low, found.onset.high) == (0.0, 6.0)
    assert apart(axis(9), y, falling=False) is None
    assert apart(axis(9), np.array([*y[:8], 0.95]), falling=True) is None
    assert apart(axis(8), y[:8], falling=True) is None
