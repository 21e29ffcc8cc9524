"""Series are tidied, smoothed and reduced without losing what matters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlclinic.stats.curve import basis, reduce, running_median, smooth, tidy
from rlclinic.stats.shift import (
    step_scan,
)
from rlclinic.stats.trend import trend
from series import axis, noise


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


def test_reduce_keeps_spikes_and_gaps() -> None:
    y = np.zeros(20_000)
    y[777] = 40.0
    y[15_000:16_000] = math.nan
    x, kept = reduce(axis(20_000), y, 400)
    assert len(x) <= 410
    assert np.nanmax(kept) == 40.0
    assert np.isnan(kept).any()
    assert (x[0], x[-1]) == (0.0, 19_999.0)
    short = reduce([1, 2], [1.0, math.nan], 400)
    assert len(short[0]) == 2


def test_smooth_ignores_spikes_and_keeps_gaps() -> None:
    y = np.ones(200)
    y[50], y[120], y[121] = 1e300, math.nan, math.inf
    drawn = smooth(y, 9)
    assert np.isnan(drawn[[120, 121]]).all()
    assert np.nanmax(drawn) == pytest.approx(1.0)
    assert np.isnan(smooth([math.nan], 5)).all()


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
