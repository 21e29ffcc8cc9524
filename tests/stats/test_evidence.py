"""The arithmetic of evidence agrees with a reference, and its corrections with known noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlclinic.model import Strength
from rlclinic.stats.evidence import (
    autocorrelation_time,
    benjamini_hochberg,
    e_benjamini_hochberg,
    effective_size,
    hampel,
    mean_interval,
    scaled_mad,
    strength,
    student_quantile,
    student_tail,
)
from series import Array, axis, noise


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


def test_e_values_are_corrected() -> None:
    q = e_benjamini_hochberg([400.0, 30.0, math.nan, 0.0, 90.0])
    assert q[[0, 4, 1]] == pytest.approx([4 / 400, 4 / 2 / 90, 4 / 3 / 30])
    assert math.isnan(q[2])
    assert q[3] == 1.0
    assert e_benjamini_hochberg([math.inf, 0.0])[0] == 0.0
    assert len(e_benjamini_hochberg([])) == 0


def test_false_alarms_of_dependent_e_values() -> None:
    """One likelihood ratio seen by 20 detectors at once: any finding is false, and all come together."""
    z = np.random.default_rng(6).standard_normal(20_000)
    alarms = [e_benjamini_hochberg(np.full(20, e)).min() <= 0.05 for e in np.exp(1.5 * z - 1.125)]
    assert 0.0 < np.mean(alarms) <= 0.05


# Tiers


def tier(p: float | None = 1e-6, q: float | None = 1e-4, **changed: object) -> Strength | None:
    known: dict[str, object] = {"effect": True, "n": 400, "n_eff": 80.0} | changed
    return strength(p, q, **known)  # type: ignore[arg-type]


def test_tiers() -> None:
    assert tier() == tier(agreeing=True) == tier(q=0.01, n=100, n_eff=15.0) == "strong"
    assert tier(agreeing=False) == tier(n_eff=14.9) == tier(q=0.011) == tier(p=0.04, q=0.05) == "moderate"
    assert (
        tier(n=99)
        == tier(estimated=True)
        == tier(p=0.01, q=0.4)
        == tier(q=None)
        == tier(p=0.03, q=0.04, n=60)
        == "weak"
    )


def test_too_little_for_a_tier() -> None:
    assert tier(p=0.011, q=0.051) is None
    assert tier(p=0.011, q=None) is None
    assert tier(p=math.nan, q=math.nan) is None
    assert tier(effect=False) is None
    assert tier(n_eff=7.9) is None


def test_a_fact_needs_no_test() -> None:
    assert strength(None, None, effect=True, n=1, n_eff=1.0) == "strong"
    assert strength(None, None, effect=False, n=0, n_eff=0.0, estimated=True, agreeing=False) == "strong"


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 500), st.floats(1, 500), st.sampled_from([None, False, True]))
def test_more_evidence_never_weakens(p: float, q: float, n: int, n_eff: float, agreeing: bool | None) -> None:
    order = [None, "weak", "moderate", "strong"]
    least = order.index(strength(p, q, effect=True, n=n, n_eff=n_eff, agreeing=agreeing))
    for better in (
        strength(p / 2, q / 2, effect=True, n=n, n_eff=n_eff, agreeing=agreeing),
        strength(p, q, effect=True, n=2 * n, n_eff=2 * n_eff, agreeing=agreeing),
        strength(p, q, effect=True, n=n, n_eff=n_eff, agreeing=True),
    ):
        assert order.index(better) >= least
    assert order.index(strength(p, q, effect=True, n=n, n_eff=n_eff, estimated=True)) <= order.index("weak")


# Intervals and autocorrelation


def test_mean_interval_of_independent_values() -> None:
    y = np.random.default_rng(8).standard_normal(30) * 3.0 + 7.0
    found = mean_interval(y)
    shrunk = math.sqrt((found.n_eff - 1.0) / 29.0)  # the autocorrelation time of a sample is seldom exactly 1
    half = (found.high - found.low) / 2.0 * shrunk
    assert found.mean == pytest.approx(y.mean())
    expected = stats.t.isf(0.025, found.n_eff - 1.0) * stats.sem(y)
    assert half == pytest.approx(expected, rel=1e-9)
    lower, upper = mean_interval(y, level=0.975, sides="lower"), mean_interval(y, level=0.975, sides="upper")
    assert (lower.low, lower.high) == (pytest.approx(found.low), math.inf)
    assert (upper.low, upper.high) == (-math.inf, pytest.approx(found.high))


def test_mean_interval_of_almost_nothing() -> None:
    assert mean_interval(np.array([2.0]))[:3] == (2.0, -math.inf, math.inf)
    assert math.isnan(mean_interval(np.array([math.nan])).mean)
    assert mean_interval(np.full(9, 3.0))[:3] == (3.0, 3.0, 3.0)
    assert mean_interval(np.array([1.0, math.nan, 3.0])).mean == 2.0
    wide = mean_interval(np.array([1.7e308, -1.7e308, 0.0, 1e308]))
    assert wide.low == -math.inf or wide.low < wide.mean


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_mean_interval_covers(phi: float) -> None:
    """R = 400 at 600 points: 95 % intervals of AR(1) noise around 0."""
    rng = np.random.default_rng(9)
    found = [mean_interval(noise(rng, 600, phi)) for _ in range(400)]
    assert 0.92 <= np.mean([f.low <= 0.0 <= f.high for f in found]) <= 0.995


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3), st.booleans()
)
def test_mean_interval_follows_the_unit(values: list[float], scale: float, shift: float, mirror: bool) -> None:
    y = np.round(np.array(values), 3)
    first, second = mean_interval(y), mean_interval((-y if mirror else y) * scale + shift)
    low, high = (-first.high, -first.low) if mirror else (first.low, first.high)
    size = (float(np.abs(y).max()) + 1.0) * scale + abs(shift)
    assert second.low == pytest.approx(low * scale + shift, rel=1e-6, abs=1e-6 * size)
    assert second.high == pytest.approx(high * scale + shift, rel=1e-6, abs=1e-6 * size)


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


# Acceptance


@pytest.mark.slow
def test_m1_false_findings_of_many_correlated_checks() -> None:
    """M1: 25 detectors x 60 metrics without any true effect, 400 runs: at most .2 findings per run; and with 1 % true
    effects, at least .9 of them found (study: .01 and .95)."""
    rng = np.random.default_rng(60)
    detectors, metrics, runs = 25, 60, 400

    def deviates() -> Array:
        by_metric, by_detector = rng.standard_normal((1, metrics)), rng.standard_normal((detectors, 1))
        own = rng.standard_normal((detectors, metrics))
        return np.asarray(math.sqrt(0.5) * by_metric + math.sqrt(0.1) * by_detector + math.sqrt(0.4) * own).ravel()

    def findings(z: Array, size: Array) -> set[int]:
        p = 2.0 * stats.norm.sf(np.abs(z))
        q = benjamini_hochberg(p)
        likely = np.flatnonzero(q <= 0.5).tolist()
        told = {i: strength(p[i], q[i], effect=bool(size[i] > 1.0), n=400, n_eff=100.0) for i in likely}
        return {i for i, how in told.items() if how in ("strong", "moderate")}

    false, found, all_found, true = 0, 0, 0, 0
    for _ in range(runs):
        size = 0.6 * np.abs(rng.standard_normal(detectors * metrics))
        false += len(findings(deviates(), size))
        real = rng.random(size.shape) < 0.01
        reported = findings(deviates() + real * rng.uniform(4, 8, real.shape), size + 1.5 * real)
        hits = reported & set(np.flatnonzero(real).tolist())
        found, all_found, true = found + len(hits), all_found + len(reported), true + int(real.sum())
    assert false / runs <= 0.2
    assert found / true >= 0.9
    assert (all_found - found) / all_found <= 0.05
