"""The arithmetic of evidence agrees with a reference, and its corrections with known noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from rlclinic.stats.evidence import (
    autocorrelation_time,
    benjamini_hochberg,
    effective_size,
    hampel,
    scaled_mad,
    student_quantile,
    student_tail,
)
from series import axis, noise


@pytest.mark.parametrize("df", [1.0, 1.5, 2.0, 7.3, 30.0, 59.9, 60.1, 1e3, 1e4, 1e6])
def test_student_agrees_with_scipy(df: float) -> None:
    for t in (1e-6, 0.3, 1.0, 1.7, 2.0, 5.0, 12.0, 36.0):
        truth = float(stats.t.sf(t, df))
        if truth > 1e-280:
            assert student_tail(t, df) == pytest.approx(truth, rel=1e-9)
        assert student_tail(-t, df) == pytest.approx(1 - truth, rel=1e-9)
    for p in (0.4999, 0.4, 0.05, 0.01, 1e-4, 1e-9, 1e-20):
        assert student_quantile(p, df) == pytest.approx(float(stats.t.isf(p, df)), rel=1e-9)
    for p in (0.4, 0.05, 0.01, 1e-4):
        assert student_quantile(1 - p, df) == pytest.approx(-student_quantile(p, df), rel=1e-6)


def test_student_limits() -> None:
    assert student_tail(0.0, 3.0) == 0.5
    assert student_tail(math.inf, 3.0) == 0.0
    assert math.isnan(student_tail(math.nan, 3.0))
    assert student_tail(1e200, 1.0) == pytest.approx(1 / (math.pi * 1e200), rel=1e-9)
    assert student_tail(2.0, math.inf) == pytest.approx(float(stats.norm.sf(2.0)), rel=1e-12)
    assert student_quantile(0.025, math.inf) == pytest.approx(1.959963984540054, rel=1e-12)
    assert math.isnan(student_quantile(0.0, 5.0))


def test_benjamini_hochberg_agrees_with_scipy() -> None:
    p = np.random.default_rng(1).uniform(size=40) ** 2
    np.testing.assert_allclose(benjamini_hochberg(p), stats.false_discovery_control(p))
    q = benjamini_hochberg([0.01, math.nan, 0.04])
    assert q[0] == pytest.approx(0.02)
    assert q[2] == pytest.approx(0.04)
    assert math.isnan(q[1])
    assert len(benjamini_hochberg([])) == 0


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_ar1(phi: float) -> None:
    rng = np.random.default_rng(3)
    times = [autocorrelation_time(noise(rng, 2000, phi)) for _ in range(20)]
    assert 0.9 <= np.median(times) * (1 - phi) / (1 + phi) <= 1.8


def test_small_evidence() -> None:
    assert scaled_mad(np.array([1.0, 1.0, 1.0, 9.0])) == 0.0
    assert scaled_mad(np.empty(0)) == 0.0
    assert effective_size(np.zeros(50)) == 50.0
    y = np.sin(axis(60))
    y[30] = 50.0
    assert hampel(y)[30] < 2.0
    step = np.where(axis(60) < 30, 0.0, 5.0) + 0.01 * np.sin(7 * axis(60))
    np.testing.assert_array_equal(hampel(step), step)
