"""Series are tidied, smoothed and reduced without losing what matters."""

from __future__ import annotations

import math
import time
import timeit
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.stats.curve import basis, median_of, reduce, running_median, smooth, tidy
from rlclinic.stats.shift import (
    step_scan,
)
from rlclinic.stats.trend import trend
from series import Array, axis, decay, noise


def test_tidy_keeps_the_last_row_per_step() -> None:
    x, y = tidy([3, 1, 2, 1, 5], [30.0, 10.0, math.nan, 11.0, math.inf])
    assert x.tolist() == [1.0, 3.0]
    assert y.tolist() == [11.0, 30.0]
    with pytest.raises(ValueError, match="2 steps but 1 values"):
        tidy([1, 2], [1.0])


def test_held_values_count_once() -> None:
    rng = np.random.default_rng(15)
    measured = noise(rng, 99, 0.5)
    held = np.repeat(measured, 10)
    x, y = tidy(axis(990), held)
    np.testing.assert_array_equal(y, measured)
    assert x[1] == 10.0
    assert trend(axis(990), held).p_value == pytest.approx(trend(axis(99) * 10, measured).p_value)
    assert step_scan(axis(990), held) is None
    two_valued = (rng.random(400) < 0.2).astype(float)
    assert len(tidy(axis(400), two_valued)[0]) == 400
    assert len(tidy(axis(40), np.repeat([0.0, 1.0], 20))[0]) == 40


def test_running_median() -> None:
    y = np.random.default_rng(0).standard_normal(301)
    padded = np.pad(y, 3, mode="edge")
    expected = [np.median(padded[i : i + 7]) for i in range(301)]
    np.testing.assert_array_equal(running_median(y, 7), expected)
    wide = running_median(axis(5000), 101)
    assert np.abs(wide - axis(5000))[100:-100].max() < 4.0


@pytest.mark.parametrize("seed", range(4))
def test_reduce_keeps_spikes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = noise(rng, 20_000, 0.5)
    at = np.sort(rng.choice(20_000, 3, replace=False))
    y[at] += rng.choice([-40.0, 40.0], 3)
    x, kept = reduce(axis(20_000), y, 800)
    assert 700 <= len(x) <= 800
    assert np.isin(at, x).all()
    np.testing.assert_array_equal(kept, y[x.astype(int)])
    assert (x[0], x[-1]) == (0.0, 19_999.0)
    assert (np.diff(x) > 0).all()


def test_reduce_keeps_gaps() -> None:
    y = np.sin(axis(20_000) / 500)
    y[15_000:16_000] = math.nan
    y[3000] = math.inf
    y[19_990:] = -math.inf
    x, kept = reduce(axis(20_000), y, 400)
    assert len(x) <= 400
    assert x[np.isnan(kept)].tolist() == [15_500.0, 19_999.0]
    near = x[~np.isnan(kept)]
    assert near[near < 15_000].max() > 14_800
    assert near[near > 16_000].min() < 16_200
    every_other = np.where(axis(20_000) // 100 % 2 == 0, math.nan, 1.0)
    x, kept = reduce(axis(20_000), every_other, 400)
    assert len(x) <= 400
    assert np.isnan(kept).sum() >= 99
    x, kept = reduce(axis(900), np.full(900, math.nan), 100)
    assert np.isnan(kept).all()
    assert (x[0], x[-1]) == (0.0, 899.0)


def test_reduce_leaves_short_series_alone() -> None:
    y = np.array([1.0, math.nan, math.inf, 2.0])
    for kept, given_ in zip(reduce(axis(4), y, 4), (axis(4), y), strict=True):
        np.testing.assert_array_equal(kept, given_)
    assert len(reduce([], [], 10)[0]) == 0


@pytest.mark.parametrize("rate", [2.6, 9.0, 40.0])
def test_reduce_draws_a_curve_as_well_as_even_points(rate: float) -> None:
    y = decay(20_000, rate=rate)
    even = np.linspace(0, 19_999, 400).astype(int)

    def furthest(x: Array, drawn: Array) -> float:
        return float(np.abs(np.interp(axis(20_000), x, drawn) - y).max())

    assert furthest(*reduce(axis(20_000), y, 400)) <= 1.5 * furthest(even.astype(float), y[even])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([math.nan, math.inf, -7.5, 0.0, 1.0, 2.0, 40.0]), min_size=1, max_size=150),
    st.integers(1, 60),
    st.sampled_from([0.125, 1.0, 1024.0]),
)
def test_reduce_follows_units(values: list[float], most: int, pace: float) -> None:
    y = np.array(values)
    x, kept = reduce(axis(len(y)), y, most)
    assert len(x) <= max(most, 8)
    assert (x[0], x[-1]) == (0.0, len(y) - 1.0)
    moved, rescaled = reduce(axis(len(y)) * pace + 5.0, y * 1024.0, most)
    np.testing.assert_array_equal(moved, x * pace + 5.0)
    np.testing.assert_array_equal(rescaled, kept * 1024.0)
    if np.isfinite(y).any() and most >= 8:
        finite = y[np.isfinite(y)]
        assert finite[0] in kept
        assert finite[-1] in kept


def test_smooth_ignores_spikes_and_keeps_gaps() -> None:
    y = np.ones(200)
    y[50], y[120], y[121] = 1e300, math.nan, math.inf
    drawn = smooth(y, 9)
    assert np.isnan(drawn[[120, 121]]).all()
    assert np.nanmax(drawn) == pytest.approx(1.0)
    assert np.isnan(smooth([math.nan], 5)).all()


def test_a_spike_at_either_end_is_no_level() -> None:
    y = np.sin(axis(100) / 30)
    calm = smooth(y, 25)
    y[[0, 99]] = 50.0
    assert np.abs(smooth(y, 25) - calm).max() < 0.2


def test_smooth_follows_a_jump_under_spikes() -> None:
    """Statistics study, section 8: decay with a jump of 4 sd, AR(.5), 15 spikes of 8 to 60 sd; its robust Whittaker
    smoother reaches .45, an exponential moving average 1.05."""
    rng = np.random.default_rng(70)
    f = axis(1000) / 999
    truth = 10.0 * np.exp(-4.0 * f) + 4.0 * (f >= 0.6)
    errors = []
    for _ in range(20):
        y = truth + noise(rng, 1000, 0.5)
        y[rng.choice(1000, 15, replace=False)] += rng.uniform(8, 60, 15)
        errors.append(math.sqrt(float(np.mean((smooth(y, 25) - truth) ** 2))))
    assert np.mean(errors) <= 0.45


@pytest.mark.slow
def test_drawing_long_series_takes_no_time() -> None:
    y = noise(np.random.default_rng(71), 20_000, 0.5)

    def fastest(draw: Callable[[], object]) -> float:
        return min(timeit.repeat(draw, timer=time.process_time, number=1, repeat=15))

    assert fastest(lambda: smooth(y, 31)) <= 0.020
    assert fastest(lambda: smooth(y, 500)) <= 0.020
    assert fastest(lambda: reduce(axis(20_000), y, 800)) <= 0.010


@pytest.mark.parametrize("k", [2, 3, 4, 9, 28])
def test_whitened_sums_agree_with_plain_algebra(k: int) -> None:
    n, phi = 400, 0.7
    b = basis(n, k)
    np.testing.assert_allclose(b.q.T @ b.q, np.eye(k), atol=1e-10)
    y = np.random.default_rng(k).standard_normal(n)
    w = np.eye(n) - phi * np.eye(n, k=-1)
    w[0, 0] = math.sqrt(1 - phi * phi)
    expected = np.linalg.lstsq(w @ b.q, w @ y, rcond=None)[1][0]
    assert b.whitened_rss(b.residual(y), np.array([phi]))[0] == pytest.approx(expected, rel=1e-9)
    several = b.whitened_rss(b.residual(y), np.array([0.0, phi, 0.95]))
    assert several[1] == b.whitened_rss(b.residual(y), np.array([phi]))[0]


@pytest.mark.parametrize("n", [1, 2, 3, 40, 41, 799, 800, 801, 2000, 2001])
def test_a_median_is_that_of_numpy_to_the_last_bit(n: int) -> None:
    y = np.random.default_rng(n).standard_normal(n)
    for values in (y, np.round(y), y * 1e300):
        assert median_of(values) == np.median(values)
    assert math.isnan(median_of(np.append(y, math.nan)))
    assert math.isnan(median_of(y[:0]))
    assert median_of(np.full(2 * n, math.inf)) == math.inf
