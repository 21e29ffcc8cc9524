"""Trends and plateaus: known answers and measured error rates (rows A of the acceptance table)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from rlclinic.stats.evidence import strength
from rlclinic.stats.trend import acceleration, net_change, plateau, trend
from series import Array, axis, decay, noise, ramp, sigmoid


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


@pytest.mark.parametrize("n", [1, 2, 5, 60, 400, 2500])
def test_the_change_of_a_plateau_is_known_without_its_test(n: int) -> None:
    for curve in (0.0 * axis(n), 0.01 * axis(n), decay(n) if n > 1 else axis(n)):
        y = curve + noise(np.random.default_rng(n), n, 0.5)
        if n > 2:
            assert net_change(axis(n), y) == plateau(axis(n), y, margin=0.5).change
        else:
            assert net_change(axis(n), y) == 0.0
    assert net_change(axis(n), np.ones(n)) == 0.0


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


MOVED: dict[str, Array] = {
    "decay": 0.1 + 0.9 * np.exp(-5 * axis(300) / 299),
    "approach": 1.0 - np.exp(-4 * axis(300) / 299),
    "square": (axis(300) / 299) ** 2,
    "logistic": sigmoid(300, 1.0),
    "steep logistic": sigmoid(300, 1.0, steepness=25.0, middle=0.5),
    "step": 0.3 * (axis(300) >= 150),
    "stairs": 0.3 * (axis(300) // 100),
    "wave": 0.3 * np.sin(2 * np.pi * axis(300) / 299),
    "three periods": 0.3 * np.sin(6 * np.pi * axis(300) / 299),
    "hump": 0.5 * np.sin(np.pi * axis(300) / 299),
    "bump": 0.5 * np.exp(-(((axis(300) / 299 - 0.5) / 0.1) ** 2)),
    "box": 0.5 * ((axis(300) >= 120) & (axis(300) < 180)),
}


# A steep logistic of 33 deviations in AR(.5) noise stays undecided in one series of ten.
@pytest.mark.parametrize(
    ("name", "phi"), [(name, phi) for name in MOVED for phi in (0.0, 0.5) if (name, phi) != ("steep logistic", 0.5)]
)
def test_what_moved_is_not_flat_and_not_undecided(name: str, phi: float) -> None:
    rng = np.random.default_rng(61)
    curve = MOVED[name]
    for sign in (1.0, -1.0):
        found = plateau(axis(300), 5.0 + sign * curve + 0.03 * noise(rng, 300, phi), 0.05)
        assert found.flat is False
        slope = 299 * stats.linregress(axis(300), sign * curve).slope
        assert found.change == pytest.approx(slope, abs=0.05)
        assert found.departure == pytest.approx(np.ptp(curve), rel=0.35)


def test_what_bends_or_steps_inside_the_margin_is_flat() -> None:
    rng = np.random.default_rng(62)
    for name in ("decay", "logistic", "step", "wave", "hump"):
        curve = MOVED[name] / np.ptp(MOVED[name])
        assert plateau(axis(300), 0.4 * curve + 0.02 * noise(rng, 300, 0.0), 1.0).flat is True


def test_an_undecided_plateau_still_names_its_change() -> None:
    for values in ([], [2.0], [1.0, 4.0], [1.0, 1.0, 1.0], noise(np.random.default_rng(63), 300, 0.97)):
        found = plateau(axis(len(values)), values, 1.0)
        assert found.flat is None
        assert math.isfinite(found.change)
        assert math.isfinite(found.departure)
    assert plateau([1, 2], [1.0, 4.0], 0.1).change == 3.0


def test_a_margin_of_numpy_gives_a_plain_answer() -> None:
    assert plateau(axis(300), noise(np.random.default_rng(64), 300, 0.0), np.float64(1.0)).flat is True


def test_a_step_leaves_the_trend_undecided_and_its_slope_is_no_difference_of_levels() -> None:
    rng = np.random.default_rng(65)
    assert trend(axis(300), 17.0 * (axis(300) >= 150) + noise(rng, 300, 0.0)).verdict == "undecided"
    found = trend(axis(300), sigmoid(300, 1.0, middle=0.5) + 0.03 * noise(rng, 300, 0.0))
    assert found.end - found.start == pytest.approx(1.0, abs=0.05)
    assert found.change > 1.15


def test_acceleration_known_answers() -> None:
    rng = np.random.default_rng(7)
    n = 400
    e = noise(rng, n, 0.5)
    late = sigmoid(n, 10.0, middle=0.8)
    found = acceleration(axis(n), late + e)
    assert found.verdict == "speeding_up"
    assert found.late == pytest.approx(late[-1] - late[n // 2], abs=1.0)
    assert found.early == pytest.approx(late[n // 2] - late[0], abs=1.0)
    assert found.sd == pytest.approx(1.0, rel=0.2)
    assert found.snr == pytest.approx(abs(found.late - found.early) / found.sd)
    assert 0.0 < found.gain_low < found.gain_high
    assert acceleration(axis(n), -late + e).verdict == "speeding_up", "falls gain speed too"
    assert acceleration(axis(n), decay(n) + e).verdict == "slowing_down"
    assert acceleration(axis(n), -decay(n) + e).verdict == "slowing_down"
    line = acceleration(axis(n), ramp(n) + e)
    assert line.verdict == "steady"
    assert line.gain_low < 0.0 < line.gain_high
    assert line.early + line.late == pytest.approx(30.0, abs=2.0)


def test_a_turn_is_neither_faster_nor_slower() -> None:
    f = axis(400) / 399
    hill = 8 * np.exp(-(((f - 0.5) / 0.2) ** 2)) + noise(np.random.default_rng(8), 400, 0.0)
    found = acceleration(axis(400), hill)
    assert found.verdict == "undecided"
    assert found.early > 5.0 > -5.0 > found.late


def test_steady_is_shown_and_not_merely_not_refuted() -> None:
    rng = np.random.default_rng(9)
    assert acceleration(axis(40), noise(rng, 40, 0.0)).verdict == "undecided"
    assert acceleration(axis(2000), noise(rng, 2000, 0.0)).verdict == "steady"
    assert acceleration(axis(60), np.full(60, 3.0)).verdict == "steady"
    for few in ([], [1.0], [1.0, 2.0], [1.0, 2.0, 4.0], [3.0] * 5):
        assert acceleration(axis(len(few)), few).verdict == "undecided"


def test_one_step_far_beyond_the_rest_shows_no_bend() -> None:
    steps = np.append(axis(60), 1e15)
    found = acceleration(steps, np.append(noise(np.random.default_rng(3), 60, 0.0), 50.0))
    assert found.verdict == "undecided"
    assert found.gain_low == -math.inf


@pytest.mark.parametrize("n", [12, 40, 400, 3000])
def test_noise_free_bends_are_decided(n: int) -> None:
    f = axis(n) / (n - 1)
    assert acceleration(axis(n), f).verdict == "steady"
    assert acceleration(axis(n), f**2).verdict == "speeding_up"
    assert acceleration(axis(n), 5 - f**2).verdict == "speeding_up"
    assert acceleration(axis(n), f - f**2 / 2).verdict == "slowing_down"


def test_half_of_the_steps_is_meant_and_not_half_of_the_rows() -> None:
    rng = np.random.default_rng(10)
    steps = np.sort(400 * rng.random(300) ** 3)
    assert acceleration(steps, 0.05 * steps + noise(rng, 300, 0.0)).verdict == "steady"
    assert acceleration(axis(300), 0.05 * steps + noise(rng, 300, 0.0)).verdict == "speeding_up"


def share_found(repeats: int, seed: int, n: int, phi: float, curve: Array | float = 0.0) -> float:
    rng = np.random.default_rng(seed)
    return float(np.mean([trend(axis(n), curve + noise(rng, n, phi)).p_value < 0.01 for _ in range(repeats)]))


@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 100, 400, 1000])
@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a1_trend_false_positives(
    phi: float, n: int, repeats: Callable[[int], int], most_alarms: Callable[[int, float], int]
) -> None:
    made = repeats(2000)
    assert round(made * share_found(made, 9000 + n, n, phi)) <= most_alarms(made, 0.015)


@pytest.mark.slow
def test_a2_trend_false_positives_in_slow_noise(
    part: Callable[[int], int], most_alarms: Callable[[int, float], int]
) -> None:
    made = part(400)
    assert round(made * share_found(made, 9100, 400, 0.9)) <= most_alarms(made, 0.02)


@pytest.mark.slow
def test_a3_trend_false_positives_in_slow_short_noise_and_their_tier(
    part: Callable[[int], int], most_alarms: Callable[[int, float], int]
) -> None:
    rng = np.random.default_rng(9200)
    drifts = [trend(axis(60), noise(rng, 60, 0.9)) for _ in range(part(1500))]
    false = [d for d in drifts if d.p_value < 0.01]
    assert 0 < len(false) <= most_alarms(len(drifts), 0.03)
    tiers = {strength(d.p_value, d.p_value, effect=True, n=d.n, n_eff=d.n_eff, agreeing=True) for d in false}
    assert tiers <= {"weak", None}
    assert "weak" in tiers


@pytest.mark.slow
@pytest.mark.parametrize(("n", "limit"), [(400, 0.08), (2000, 0.025)])
def test_a4_slow_noise_under_white_noise(
    n: int, limit: float, part: Callable[[int], int], most_alarms: Callable[[int, float], int]
) -> None:
    rng = np.random.default_rng(9300 + n)
    found = [
        trend(axis(n), math.sqrt(0.5) * (noise(rng, n, 0.95) + noise(rng, n, 0.0))).p_value < 0.01
        for _ in range(part(400))
    ]
    assert sum(found) <= most_alarms(len(found), limit)


@pytest.mark.slow
def test_a5_trend_power(part: Callable[[int], int], least_hits: Callable[[int, float], float]) -> None:
    f = axis(400) / 399
    curves = (2 * f, 8 * np.exp(-4 * f), 10 / (1 + np.exp(-12 * (f - 0.4))))
    for seed, curve, most in zip((9400, 9401, 9402), curves, (200, 100, 100), strict=True):
        made = part(most)
        assert round(made * share_found(made, seed, 400, 0.5, curve)) >= least_hits(made, 0.95)


@pytest.mark.slow
def test_a6_trend_power_in_slow_noise() -> None:
    assert share_found(150, 9500, 1000, 0.9, 4 * axis(1000) / 999) >= 0.95


@pytest.mark.slow
def test_a7_rows_logged_three_times(part: Callable[[int], int], most_alarms: Callable[[int, float], int]) -> None:
    rng = np.random.default_rng(9600)
    steps = np.repeat(axis(200), 3)
    found = [trend(steps, np.repeat(noise(rng, 200, 0.0), 3)).p_value < 0.01 for _ in range(part(400))]
    assert sum(found) <= most_alarms(len(found), 0.02)


@pytest.mark.long
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", [60, 100, 300, 1000])
def test_a_change_of_the_margin_is_called_flat_at_most_at_the_level(n: int, phi: float) -> None:
    """R = 300; 0.08 is five per cent and 2.4 standard errors. A hump of twice the margin ends where it began."""
    rng = np.random.default_rng(9650 + n)
    f = axis(n) / (n - 1)
    margin = 5.0 * math.sqrt(12 / n * (1 + phi) / (1 - phi))
    draws = [noise(rng, n, phi) for _ in range(300)]
    for curve in (margin * f, 2.0 * margin * np.sin(np.pi * f)):
        assert np.mean([plateau(axis(n), curve + e, margin).flat is True for e in draws]) <= 0.08
    if phi < 0.9:
        assert np.mean([plateau(axis(n), e, margin).flat is True for e in draws[:100]]) >= 0.95


def bends(repeats: int, seed: int, n: int, phi: float, curve: Array | float) -> dict[str, float]:
    """Share of each verdict, and under "p" that of p < 0.01."""
    rng = np.random.default_rng(seed)
    found = [acceleration(axis(n), curve + noise(rng, n, phi)) for _ in range(repeats)]
    names = ("speeding_up", "slowing_down", "steady", "undecided")
    return {name: float(np.mean([f.verdict == name for f in found])) for name in names} | {
        "p": float(np.mean([f.p_value < 0.01 for f in found]))
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "phi", "height", "repeats"),
    [
        (60, 0.0, 4.0, 1000),
        (60, 0.5, 0.0, 400),
        (60, 0.5, 4.0, 2000),
        (60, 0.5, 20.0, 400),
        (100, 0.5, 4.0, 1000),
        (100, 0.9, 4.0, 400),
        (400, 0.5, 4.0, 400),
        (400, 0.9, 20.0, 200),
    ],
)
def test_acceleration_false_positives(n: int, phi: float, height: float, repeats: int) -> None:
    found = bends(repeats, 9700 + n, n, phi, ramp(n, height))
    assert found["speeding_up"] + found["slowing_down"] <= 0.015


@pytest.mark.long
@pytest.mark.parametrize(("n", "phi"), [(100, 0.0), (400, 0.5), (1000, 0.9)])
def test_acceleration_power(n: int, phi: float) -> None:
    f = axis(n) / (n - 1)
    assert bends(100, 9800, n, phi, 10 / (1 + np.exp(-12 * (f - 0.8))))["speeding_up"] >= 0.95
    assert bends(100, 9801, n, phi, 8 * np.exp(-4 * (1 - f)))["speeding_up"] >= 0.90
    assert bends(100, 9801, n, phi, 8 * np.exp(-4 * f))["slowing_down"] >= 0.90


@pytest.mark.long
def test_acceleration_calls_bent_drifts_steady_at_most_at_its_level() -> None:
    """The halves of this parabola differ by just more than the margin."""
    f = axis(400) / 399
    for height in (4.0, 20.0):
        gain = 1.1 * max(1.0, 0.25 * height)
        assert bends(200, 9850, 400, 0.0, height * f + 2 * gain * (f * f - f))["steady"] <= 0.05


def test_a_rise_that_ends_in_collapse_is_not_rising() -> None:
    y = np.where(axis(300) < 280, axis(300), -1000.0) + noise(np.random.default_rng(0), 300, 0.0)
    assert trend(axis(300), y).verdict not in ("rising", "falling")
