"""The statistics give known answers, keep their invariances, survive degenerate input and hold their error rates."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from rlclinic.model import Onset
from rlclinic.stats.curve import basis, reduce, running_median, smooth, tidy
from rlclinic.stats.evidence import (
    autocorrelation_time,
    benjamini_hochberg,
    effective_size,
    hampel,
    scaled_mad,
    student_quantile,
    student_tail,
)
from rlclinic.stats.groups import (
    BetaBinomial,
    beta_binomial_zero_variance,
    expected_zero_variance,
    fit_beta_binomial,
)
from rlclinic.stats.shift import (
    crossing,
    lasting_change,
    longest_run,
    onset,
    spikes,
    step_scan,
    steps_found,
)
from rlclinic.stats.trend import Trend, plateau, trend
from series import Array, axis, noise


@pytest.fixture(autouse=True)
def _no_warnings() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ---------------------------------------------------------------- evidence


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


# ---------------------------------------------------------------- curve


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


# ---------------------------------------------------------------- trend


def test_trend_known_answers() -> None:
    rng = np.random.default_rng(0)
    n = 400
    rise = trend(axis(n), 0.2 + 0.3 * axis(n) / n + 0.05 * noise(rng, n, 0.5), share=True)
    assert rise.verdict == "rising"
    assert rise.change == pytest.approx(0.3, abs=0.06)
    assert rise.sd == pytest.approx(0.05, rel=0.3)
    fall = trend(axis(n) * 10, np.exp(-axis(n) / 60) + 0.02 * noise(rng, n, 0.5))
    assert fall.verdict == "falling"
    assert fall.start > 0.6 > 0.1 > fall.end
    assert trend(axis(n), 5 + noise(rng, n, 0.5)).verdict == "none"
    # Significant, yet under 10 % of the start level.
    small = trend(axis(n), 100 + 4 * axis(n) / n + noise(rng, n, 0.0))
    assert small.p_value < 1e-6
    assert small.verdict == "none"
    assert trend(axis(n), 100 + 4 * axis(n) / n + noise(rng, n, 0.0), floor=1.0, share=True).verdict == "rising"


def test_trend_says_undecided_rather_than_none() -> None:
    assert trend([], []).verdict == "undecided"
    assert trend([1, 2, 3], [1.0, 2.0, 3.0]).verdict == "undecided"
    walk = np.cumsum(np.random.default_rng(2).standard_normal(300))
    assert trend(axis(300), walk).n_eff < 30
    assert trend(axis(50), np.full(50, 3.0)).verdict == "none"


@pytest.mark.parametrize("n", [12, 40, 400, 3000])
def test_noise_free_series_are_decided(n: int) -> None:
    assert trend(axis(n), axis(n)).verdict == "rising"
    assert trend(axis(n), -axis(n)).verdict == "falling"
    if n >= 400:
        assert trend(axis(n), 1 / (1 + np.exp(-10 * (axis(n) / n - 0.4)))).verdict == "rising"


def test_rank_sum_agrees_with_kendall() -> None:
    rng = np.random.default_rng(4)
    for n in (20, 333, 1500):
        y = np.round(rng.standard_normal(n) * 3 + axis(n) / n)
        expected = stats.kendalltau(axis(n), y, variant="c").statistic
        m = len(np.unique(y))
        s = expected * n * n * (m - 1) / (2 * m)
        assert trend(axis(n), y).tau == pytest.approx(s / (n * (n - 1) / 2), rel=1e-9)


def test_slope_agrees_with_theil_sen() -> None:
    rng = np.random.default_rng(5)
    y = 0.01 * axis(150) + noise(rng, 150, 0.3)
    assert trend(axis(150), y).slope == pytest.approx(stats.theilslopes(y)[0], rel=1e-9)
    y = 0.001 * axis(1000) + noise(rng, 1000, 0.0)
    standard_error = 1.0 / math.sqrt(1000**3 / 12)
    assert abs(trend(axis(1000), y).slope - stats.theilslopes(y)[0]) < 0.3 * standard_error


def test_plateau() -> None:
    rng = np.random.default_rng(6)
    level = 0.7 + 0.02 * noise(rng, 300, 0.5)
    flat = plateau(axis(300), level, margin=0.05)
    assert flat.flat is True
    assert flat.change_low < 0 < flat.change_high
    assert flat.slope_low == pytest.approx(flat.change_low / 299)
    assert plateau(axis(300), level, margin=0.001).flat is False
    assert plateau(axis(300), level + axis(300) / 300, margin=0.05).flat is False
    assert plateau([1, 2, 3], [1.0, 1.0, 1.0], margin=1.0).flat is None
    assert plateau(axis(20), np.ones(20), margin=0.0).flat is True


# ---------------------------------------------------------------- shift


def test_step_scan_finds_the_step() -> None:
    rng = np.random.default_rng(7)
    curve = 10 * np.exp(-axis(400) / 100) + 6 * (axis(400) >= 240) + noise(rng, 400, 0.5)
    found = step_scan(axis(400) * 2 + 5, curve)
    assert found is not None
    assert found.low <= 485 <= found.high
    assert found.jump == pytest.approx(6, abs=1.5)
    assert found.size > 3
    assert found.after > found.before
    assert step_scan(axis(400), 10 * np.exp(-axis(400) / 100) + noise(rng, 400, 0.5)) is None


def test_step_scan_on_long_series_returns_the_raw_step() -> None:
    rng = np.random.default_rng(8)
    found = step_scan(axis(20_000), 5.0 * (axis(20_000) >= 12_345) + noise(rng, 20_000, 0.5))
    assert found is not None
    assert abs(found.step - 12_345) <= 2


def test_steps_found_recurses() -> None:
    rng = np.random.default_rng(9)
    y = np.repeat([0.0, 8.0, 1.0, 12.0], 150) + noise(rng, 600, 0.3)
    found = steps_found(axis(600), y)
    assert len(found) == 3
    assert all(abs(s.step - at) <= 3 for s, at in zip(found, (150, 300, 450), strict=True))
    assert len(steps_found(axis(600), y, most=1)) == 1


def test_spikes() -> None:
    rng = np.random.default_rng(10)
    level = np.where(axis(500) < 250, 1.0, 20.0) + 0.1 * noise(rng, 500, 0.0)
    level[[60, 400]] = 9.0, 90.0
    level[100] = math.nan
    assert spikes(axis(500), level).tolist() == [60, 400]
    assert len(spikes(axis(500), np.ones(500))) == 0
    assert spikes(axis(50), np.where(axis(50) == 7, 5.0, 0.0)).tolist() == [7]


def test_lasting_change_and_onset() -> None:
    rng = np.random.default_rng(11)
    y = np.where(axis(400) < 150, 1.0, 0.2) + 0.1 * noise(rng, 400, 0.8)
    fall = lasting_change(axis(400), y)
    assert fall.p_value < 0.001
    assert fall.ratio == pytest.approx(0.2, abs=0.1)
    assert fall.onset is not None
    assert fall.onset.low <= 150 <= fall.onset.high
    assert not fall.recovered
    calm = lasting_change(axis(400), 1 + 0.1 * noise(rng, 400, 0.8))
    assert calm.onset is None
    assert calm.p_value > 0.01


def test_lasting_change_sees_a_recovery() -> None:
    rng = np.random.default_rng(12)
    y = 1.0 + 3.0 * ((axis(300) > 120) & (axis(300) < 160)) + 0.1 * noise(rng, 300, 0.5)
    passing = lasting_change(axis(300), y)
    assert passing.recovered
    assert 120 < passing.extreme_step < 160
    assert passing.extreme == pytest.approx(4.0, abs=0.4)


def test_warm_up_is_left_out() -> None:
    y = np.concatenate((np.full(70, 9.0), np.ones(330))) + 0.05 * np.sin(axis(400) * 2.1)
    assert lasting_change(axis(400), y).ratio == pytest.approx(1 / 9, rel=0.1)
    assert lasting_change(axis(400), y, warmup=70).ratio == pytest.approx(1.0, abs=0.05)


def test_onset_of_a_decay_is_its_first_step() -> None:
    rng = np.random.default_rng(13)
    y = np.exp(-axis(300) / 50) + 0.02 * noise(rng, 300, 0.5)
    found = onset(axis(300) + 100, y, direction=-1)
    assert found is not None
    assert found.low == 100
    assert found.step <= 105
    assert onset(axis(300), y, direction=1) is None or onset(axis(300), y, direction=1) != found
    assert onset(axis(300), np.ones(300), direction=1) is None


def test_crossing() -> None:
    y = np.where(axis(100) < 60, 0.1, 0.9)
    assert crossing(axis(100), y, 0.5) == Onset(60.0, 60.0, 60.0)
    assert crossing(axis(100), y, 0.5, above=False) is None
    assert crossing(axis(100), y, 0.5, above=False, last=False) == Onset(0.0, 0.0, 0.0)
    y[20] = 2.0
    assert crossing(axis(100), y, 0.5, last=False) == Onset(60.0, 60.0, 60.0)
    assert crossing([1, 2, 3], [0.0, 1.0, 1.0], 1.0) == Onset(2.0, 2.0, 2.0)
    assert crossing([], [], 1.0) is None
    ragged = np.where((axis(100) >= 58) & (axis(100) != 59), 0.9, 0.1)
    found = crossing(axis(100), ragged, 0.5)
    assert found is not None
    assert (found.low, found.high) == (58.0, 60.0)


def test_longest_run() -> None:
    assert longest_run([10, 20, 30, 40], [True, False, True, True]) == (30.0, 40.0, 2)
    assert longest_run([10, 20], [True, True]) == (10.0, 20.0, 2)
    first, last, length = longest_run([1, 2], [False, False])
    assert math.isnan(first)
    assert math.isnan(last)
    assert length == 0


# ---------------------------------------------------------------- groups


def test_zero_variance_arithmetic() -> None:
    assert expected_zero_variance(0.5, 2) == 0.5
    assert expected_zero_variance([0.0, 1.0, math.nan], 8) == 1.0
    assert expected_zero_variance(0.95, 8) == pytest.approx(0.663, abs=5e-4)
    assert math.isnan(expected_zero_variance([], 8))
    assert expected_zero_variance(0.3, 1) == 1.0
    with pytest.raises(ValueError, match="pass rates"):
        expected_zero_variance(1.2, 8)


@pytest.mark.parametrize(("mean", "rho"), [(0.05, 0.2), (0.25, 0.5), (0.5, 0.8), (0.9, 0.0), (0.5, 0.01)])
@pytest.mark.parametrize("group", [2, 4, 8, 16, 32])
def test_beta_binomial_agrees_with_scipy(mean: float, rho: float, group: int) -> None:
    if rho:
        k = stats.betabinom(group, mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1))
    else:
        k = stats.binom(group, mean)
    model = BetaBinomial(mean, rho)
    assert model.share_at(group) == pytest.approx(float(k.pmf(0) + k.pmf(group)), rel=1e-8)
    counts = np.arange(group + 1)
    std = float((k.pmf(counts) * np.sqrt(counts * (group - counts) / (group * (group - 1)))).sum())
    assert model.group_std(group) == pytest.approx(std, rel=1e-8)
    fitted = fit_beta_binomial(mean, std, group)
    if fitted is not None:
        assert fitted.share_at(group) == pytest.approx(model.share_at(group), abs=1e-6)


def test_beta_binomial_from_simulated_groups() -> None:
    """Z1: within .01 on beta pass rates and within .03 on a three-part mixture."""
    rng = np.random.default_rng(14)

    def mixture(never: float, always: float) -> Array:
        kind = rng.random(60_000)
        return np.where(kind < 0.35, never, np.where(kind < 0.6, always, rng.beta(2, 2, 60_000)))

    worlds = [
        (rng.beta(0.3, 0.3, 60_000), 0.01),
        (rng.beta(2.0, 0.35, 60_000), 0.01),
        (mixture(0.01, 0.99), 0.03),
        # Prompts that can never be solved are outside the beta family: the estimate is low by up to .06.
        (mixture(0.0, 1.0), 0.07),
    ]
    for rates, tolerance in worlds:
        for group in (4, 8, 16):
            rewards = rng.random((60_000, group)) < rates[:, None]
            spread = rewards.std(axis=1, ddof=1)
            estimate = beta_binomial_zero_variance(float(rewards.mean()), float(spread.mean()), group)
            assert estimate == pytest.approx(float((spread == 0).mean()), abs=tolerance)


def test_group_spread_that_says_nothing() -> None:
    assert beta_binomial_zero_variance(0.5, 0.5, 8) is None
    assert beta_binomial_zero_variance(0.5, math.nan, 8) is None
    assert beta_binomial_zero_variance(1.2, 0.1, 8) is None
    assert beta_binomial_zero_variance(1.0, 0.0, 8) == 1.0
    assert beta_binomial_zero_variance(0.5, 0.0, 8) == pytest.approx(1.0)
    assert beta_binomial_zero_variance(0.4, 0.1, 1) is None


# ---------------------------------------------------------------- degenerate input


HOSTILE: dict[str, list[float]] = {
    "empty": [],
    "one": [1.0],
    "two": [1.0, 2.0],
    "three": [1.0, 2.0, 1.0],
    "constant": [4.2] * 60,
    "zeros": [0.0] * 60,
    "all nan": [math.nan] * 60,
    "nan and inf": [1.0, math.nan, math.inf, -math.inf, 2.0] * 12,
    "huge": [1e300 * (1 + math.sin(i)) for i in range(60)],
    "extreme": [(-1.0) ** i * 1.7e308 for i in range(60)],
    "tiny": [1e-300 * math.sin(i) for i in range(60)],
    "subnormal": [5e-324 * (i % 3) for i in range(60)],
    "one huge": [math.sin(i) for i in range(59)] + [1e300],
    "mixed": [1e300, 1e-300] * 30,
    "integers": [float(i % 5) for i in range(120)],
    "two-valued": [float(i > 40) for i in range(120)],
    "rare": [float(i % 29 == 0) for i in range(120)],
    "long constant": [1.0] * 2500,
    "long two-valued": [float(i % 7 == 0) for i in range(2500)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_degenerate_series_never_raise(name: str) -> None:
    values = np.array(HOSTILE[name])
    steps = axis(len(values))
    found = trend(steps, values)
    assert found.verdict in {"rising", "falling", "none", "undecided"}
    assert 0.0 <= found.p_value <= 1.0
    plateau(steps, values, 1.0)
    step_scan(steps, values)
    steps_found(steps, values)
    spikes(steps, values)
    assert 0.0 <= lasting_change(steps, values).p_value <= 1.0
    onset(steps, values, direction=1)
    onset(steps, values, direction=-1)
    for limit in (0.5, 0.0, math.inf, math.nan):
        crossing(steps, values, limit)
        crossing(steps, values, limit, above=False, last=False)
    longest_run(steps, values > 0)
    smooth(values, 9)
    reduce(steps, values, 20)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=70), st.integers(0, 3))
def test_any_floats_never_raise(values: list[float], repeats: int) -> None:
    steps = axis(len(values)) // (repeats + 1)
    trend(steps, values)
    plateau(steps, values, 1.0)
    step_scan(steps, values)
    spikes(steps, values)
    lasting_change(steps, values)
    crossing(steps, values, 0.0, last=False)
    smooth(values, 7)
    reduce(steps, values, 10)


def test_repeating_blips_are_no_step() -> None:
    y = np.zeros(400)
    y[::37] = 1.0
    assert step_scan(axis(400), y) is None


# ---------------------------------------------------------------- invariances


def series(seed: int, n: int, phi: float, size: float) -> Array:
    rng = np.random.default_rng(seed)
    shape = [axis(n) / n, np.exp(-4 * axis(n) / n), (axis(n) > n * 0.6).astype(float)][seed % 3]
    return noise(rng, n, phi) + size * shape


some_series = st.builds(
    series,
    st.integers(0, 10_000),
    st.sampled_from([30, 60, 150, 300]),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.sampled_from([0.0, 2.0, -6.0]),
)


def clear_of_the_gates(found: Trend) -> bool:
    return abs(found.n_eff - 8) > 1e-6 and abs(found.snr - 1) > 1e-6 and abs(found.p_value / 0.01 - 1) > 1e-6


@settings(max_examples=40, deadline=None)
@given(some_series, st.sampled_from([1e-12, 0.5, 1024.0, 1e9]), st.sampled_from([0.0, 3.0, -50.0]))
def test_unit_and_origin_do_not_matter(y: Array, scale: float, shift: float) -> None:
    x = axis(len(y))
    plain = trend(x, y, floor=1.0)
    moved = trend(7 * x + 3, scale * (y + shift), floor=1e-6 * scale)
    assert moved.p_value == pytest.approx(plain.p_value, rel=1e-5)
    assert moved.snr == pytest.approx(plain.snr, rel=1e-5)
    assert moved.slope * 7 == pytest.approx(scale * plain.slope, rel=1e-5, abs=1e-9 * scale)
    if shift == 0.0 and clear_of_the_gates(plain):
        assert trend(7 * x + 3, scale * y, floor=scale).verdict == plain.verdict
    before, after = step_scan(x, y), step_scan(x, scale * (y + shift))
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert (before.step, before.low, before.high) == (after.step, after.low, after.high)
    assert lasting_change(x, scale * (y + shift)).p_value == pytest.approx(lasting_change(x, y).p_value, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(some_series)
def test_mirror_images_flip_the_direction(y: Array) -> None:
    x = axis(len(y))
    plain = trend(x, y, share=True)
    assume(clear_of_the_gates(plain))
    flip = {"rising": "falling", "falling": "rising"}
    negative = trend(x, -y, share=True)
    assert negative.verdict == flip.get(plain.verdict, plain.verdict)
    assert negative.p_value == pytest.approx(plain.p_value, rel=1e-6)
    backwards = trend(x, y[::-1], share=True)
    assert backwards.slope == pytest.approx(-plain.slope, rel=1e-6, abs=1e-12)
    assert backwards.tau == pytest.approx(-plain.tau, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(some_series, st.integers(0, 1000))
def test_rows_logged_again_change_nothing(y: Array, seed: int) -> None:
    x = axis(len(y))
    again = np.random.default_rng(seed).integers(0, len(y), 40)
    steps, values = np.concatenate((x, x[again])), np.concatenate((y, y[again]))
    assert trend(steps, values) == trend(x, y)
    assert step_scan(steps, values) == step_scan(x, y)
    assert lasting_change(steps, values) == lasting_change(x, y)
    assert plateau(steps, values, 1.0) == plateau(x, y, 1.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5]), st.sampled_from([-8.0, 8.0]))
def test_every_second_row_tells_the_same_story(seed: int, phi: float, size: float) -> None:
    y = noise(np.random.default_rng(seed), 400, phi) + size * axis(400) / 400
    expected = "rising" if size > 0 else "falling"
    assert trend(axis(400), y, share=True).verdict == expected
    assert trend(axis(400)[::2], y[::2], share=True).verdict == expected


# ---------------------------------------------------------------- measured error rates


def share_found(repeats: int, seed: int, n: int, phi: float, curve: Array | float = 0.0) -> float:
    rng = np.random.default_rng(seed)
    return float(np.mean([trend(axis(n), curve + noise(rng, n, phi)).p_value < 0.01 for _ in range(repeats)]))


@pytest.mark.slow
@pytest.mark.parametrize(("phi", "n"), [(0.0, 60), (0.0, 400), (0.5, 60), (0.5, 100), (0.5, 400), (0.5, 1000)])
def test_a1_trend_false_positives(phi: float, n: int) -> None:
    assert share_found(600 if n < 1000 else 300, 9000 + n, n, phi) <= 0.015 + 0.003


@pytest.mark.slow
def test_a2_trend_false_positives_in_slow_noise() -> None:
    assert share_found(400, 9100, 400, 0.9) <= 0.02


@pytest.mark.slow
def test_a3_trend_false_positives_in_slow_short_noise() -> None:
    assert share_found(800, 9200, 60, 0.9) <= 0.03


@pytest.mark.slow
@pytest.mark.parametrize(("n", "limit"), [(400, 0.08), (2000, 0.025)])
def test_a4_slow_noise_under_white_noise(n: int, limit: float) -> None:
    rng = np.random.default_rng(9300 + n)
    found = [
        trend(axis(n), math.sqrt(0.5) * (noise(rng, n, 0.95) + noise(rng, n, 0.0))).p_value < 0.01 for _ in range(400)
    ]
    assert np.mean(found) <= limit


@pytest.mark.slow
def test_a5_trend_power() -> None:
    f = axis(400) / 399
    assert share_found(200, 9400, 400, 0.5, 2 * f) >= 0.95
    assert share_found(100, 9401, 400, 0.5, 8 * np.exp(-4 * f)) >= 0.95
    assert share_found(100, 9402, 400, 0.5, 10 / (1 + np.exp(-12 * (f - 0.4)))) >= 0.95


@pytest.mark.slow
def test_a6_trend_power_in_slow_noise() -> None:
    assert share_found(150, 9500, 1000, 0.9, 4 * axis(1000) / 999) >= 0.95


@pytest.mark.slow
def test_a7_rows_logged_three_times() -> None:
    rng = np.random.default_rng(9600)
    steps = np.repeat(axis(200), 3)
    found = [trend(steps, np.repeat(noise(rng, 200, 0.0), 3)).p_value < 0.01 for _ in range(400)]
    assert np.mean(found) <= 0.02


CURVES: dict[str, Callable[[Array], Array]] = {
    "flat": lambda f: 0 * f,
    "decay": lambda f: 30 * np.exp(-2.6 * f),
    "fast decay": lambda f: 30 * np.exp(-6.5 * f),
    "ramp": lambda f: 30 * f,
    "sigmoid": lambda f: 30 / (1 + np.exp(-12 * (f - 0.3))),
    "steep sigmoid": lambda f: 30 / (1 + np.exp(-25 * (f - 0.3))),
}


@pytest.mark.slow
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("name", CURVES)
def test_s1_smooth_curves_have_no_step(name: str, phi: float) -> None:
    rng = np.random.default_rng(9700 + len(name))
    curve = CURVES[name](axis(400) / 399)
    found = [step_scan(axis(400), curve + noise(rng, 400, phi)) is not None for _ in range(250)]
    assert np.mean(found) <= (0.05 if name == "steep sigmoid" and phi == 0.9 else 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("jump", "least"), [(5.0, 0.95), (3.0, 0.65)])
def test_s3_jumps_on_a_decay_are_found(jump: float, least: float, phi: float) -> None:
    rng = np.random.default_rng(9800)
    curve = CURVES["decay"](axis(400) / 399)
    hits = []
    for _ in range(150):
        at = int(rng.integers(40, 360))
        found = step_scan(axis(400), curve + jump * rng.choice([-1, 1]) * (axis(400) >= at) + noise(rng, 400, phi))
        hits.append(found is not None and abs(found.step - at) <= 5)
    assert np.mean(hits) >= least


@pytest.mark.slow
def test_s4_spikes_are_no_step() -> None:
    rng = np.random.default_rng(9900)
    found = []
    for _ in range(200):
        y = noise(rng, 400, 0.5)
        y[rng.choice(400, 4, replace=False)] += rng.choice([-1, 1], 4) * rng.uniform(8, 40, 4)
        found.append(step_scan(axis(400), y) is not None)
    assert np.mean(found) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "phi", "limit"), [(100, 0.5, 0.02), (400, 0.0, 0.02), (400, 0.8, 0.02), (400, 0.95, 0.04)]
)
def test_lasting_change_false_alarms_and_hits(n: int, phi: float, limit: float) -> None:
    rng = np.random.default_rng(9950 + n)
    alarms = [lasting_change(axis(n), noise(rng, n, phi)).p_value < 0.01 for _ in range(300)]
    assert np.mean(alarms) <= limit
    if phi <= 0.8:
        fall = -4.0 * (axis(n) >= 0.375 * n)
        hits = [lasting_change(axis(n), fall + noise(rng, n, phi)) for _ in range(150)]
        assert np.mean([hit.p_value < 0.01 for hit in hits]) >= 0.85
        near = [hit.onset is not None and abs(hit.onset.step - 0.375 * n) <= 3 for hit in hits if hit.p_value < 0.01]
        assert np.mean(near) >= 0.9


@pytest.mark.slow
def test_p1_long_series_are_quick() -> None:
    y = np.exp(-axis(20_000) / 4000) + 0.05 * noise(np.random.default_rng(0), 20_000, 0.5)
    trend(axis(20_000), y)
    step_scan(axis(20_000), y)
    began = time.process_time()
    trend(axis(20_000), y)
    step_scan(axis(20_000), y)
    assert time.process_time() - began <= 0.5
