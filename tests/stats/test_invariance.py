"""No series breaks the statistics, and what must not matter does not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlclinic.stats.cliff import apart, cliff
from rlclinic.stats.curve import reduce, smooth
from rlclinic.stats.level import held, late_mean, mean_difference, rank_p
from rlclinic.stats.shift import (
    crossing,
    lasting_change,
    longest_run,
    onset,
    spikes,
    step_scan,
    steps_found,
)
from rlclinic.stats.trend import Acceleration, Trend, acceleration, plateau, trend
from series import Array, axis, noise

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
    bent = acceleration(steps, values)
    assert bent.verdict in {"speeding_up", "slowing_down", "steady", "undecided"}
    assert 0.0 <= bent.p_value <= 1.0
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
    acceleration(steps, values)
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
    assert acceleration(steps, values) == acceleration(x, y)


def decided(found: Acceleration) -> bool:
    """Far enough from every limit that rounding cannot move the verdict."""
    margin = max(found.sd, 0.25 * abs(found.early + found.late))
    near = (
        [abs(found.late - found.early) / margin, -found.gain_low / margin, found.gain_high / margin] if margin else []
    )
    near += [found.p_value / 0.01, found.n_eff / 8.0]
    return all(not math.isfinite(value) or abs(value - 1.0) > 1e-6 for value in near)


@settings(max_examples=40, deadline=None)
@given(some_series, st.sampled_from([1e-12, 0.5, -1.0, -1024.0, 1e9]), st.sampled_from([0.0, 3.0, -50.0]))
def test_unit_origin_and_sign_do_not_change_what_a_drift_gains(y: Array, scale: float, shift: float) -> None:
    x = axis(len(y))
    plain, moved = acceleration(x, y), acceleration(7 * x + 3, scale * (y + shift))
    assume(decided(plain))
    assert moved.verdict == plain.verdict
    assert moved.p_value == pytest.approx(plain.p_value, rel=1e-4)
    assert moved.early == pytest.approx(scale * plain.early, rel=1e-5, abs=1e-9 * abs(scale))
    assert moved.late == pytest.approx(scale * plain.late, rel=1e-5, abs=1e-9 * abs(scale))
    assert moved.gain_high == pytest.approx(abs(scale) * plain.gain_high, rel=1e-5, abs=1e-9 * abs(scale))


@settings(max_examples=40, deadline=None)
@given(some_series, st.booleans())
def test_backwards_a_drift_that_sped_up_slows_down(y: Array, irregular: bool) -> None:
    x = np.cumsum(1.0 + np.arange(len(y)) % 7) if irregular else axis(len(y))
    plain = acceleration(x, y)
    assume(decided(plain))
    backwards = acceleration(x[-1] - x[::-1], y[::-1])
    swap = {"speeding_up": "slowing_down", "slowing_down": "speeding_up"}
    # Blocks of residuals are counted from the end of a series, so that its autocorrelation time differs backwards.
    if backwards.n_eff == pytest.approx(plain.n_eff, rel=1e-9):
        assert backwards.verdict == swap.get(plain.verdict, plain.verdict)
        assert backwards.p_value == pytest.approx(plain.p_value, rel=1e-6, abs=1e-12)
    assert plain.verdict not in swap or backwards.verdict != plain.verdict
    assert backwards.verdict != plain.verdict or plain.verdict not in swap


@settings(max_examples=40, deadline=None)
@given(some_series, st.sampled_from([1e-6, 0.5, 3.0]), st.sampled_from([0.0, 7.0]))
def test_plateau_follows_unit_origin_and_direction(y: Array, scale: float, shift: float) -> None:
    x = axis(len(y))
    plain = plateau(x, y, 1.0)
    moved = plateau(5 * x - 8, scale * (y + shift), scale)
    assert moved.change_low == pytest.approx(scale * plain.change_low, rel=1e-5, abs=1e-9 * scale)
    assert moved.slope_high * 5 == pytest.approx(scale * plain.slope_high, rel=1e-5, abs=1e-9 * scale)
    mirrored = plateau(x, -y, 1.0)
    assert (mirrored.change_low, mirrored.change_high) == pytest.approx(
        (-plain.change_high, -plain.change_low), rel=1e-6
    )
    near = [abs(abs(end) - 1.0) for end in (plain.change_low, plain.change_high)]
    if min(near) > 1e-6:
        assert moved.flat == plain.flat == mirrored.flat


@settings(max_examples=30, deadline=None)
@given(some_series, st.integers(0, 1000))
def test_only_the_order_of_irregular_steps_moves_the_rank_test(y: Array, seed: int) -> None:
    gaps = np.random.default_rng(seed).integers(1, 30, len(y))
    even, uneven = trend(axis(len(y)), y), trend(np.cumsum(gaps), y)
    assert uneven.tau == even.tau
    assert (uneven.start, uneven.end, uneven.n) == (even.start, even.end, even.n)
    before, after = step_scan(axis(len(y)), y), step_scan(np.cumsum(gaps), y)
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert (after.before, after.after, after.jump) == (before.before, before.after, before.jump)
    assert lasting_change(np.cumsum(gaps), y).p_value == lasting_change(axis(len(y)), y).p_value


@settings(max_examples=30, deadline=None)
@given(some_series, st.integers(2, 12))
def test_a_value_held_until_the_next_one_counts_once(y: Array, held: int) -> None:
    first = axis(len(y)) * held
    steps, values = axis(len(y) * held), np.repeat(y, held)
    assert trend(steps, values) == trend(first, y)
    assert acceleration(steps, values) == acceleration(first, y)
    assert plateau(steps, values, 1.0) == plateau(first, y, 1.0)
    assert step_scan(steps, values) == step_scan(first, y)
    assert lasting_change(steps, values) == lasting_change(first, y)


@settings(max_examples=30, deadline=None)
@given(some_series, st.integers(0, 1000))
def test_the_order_of_rows_and_gaps_of_nan_do_not_matter(y: Array, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = axis(len(y))
    steps = np.concatenate((x, x[:10] + 0.5))
    values = np.concatenate((y, np.full(10, math.nan)))
    order = rng.permutation(len(steps))
    assert trend(steps[order], values[order]) == trend(x, y)
    assert acceleration(steps[order], values[order]) == acceleration(x, y)
    assert step_scan(steps[order], values[order]) == step_scan(x, y)
    assert lasting_change(steps[order], values[order]) == lasting_change(x, y)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5]), st.sampled_from([-8.0, 8.0]))
def test_every_second_row_tells_the_same_story(seed: int, phi: float, size: float) -> None:
    y = noise(np.random.default_rng(seed), 400, phi) + size * axis(400) / 400
    expected = "rising" if size > 0 else "falling"
    assert trend(axis(400), y, share=True).verdict == expected
    assert trend(axis(400)[::2], y[::2], share=True).verdict == expected
    bent = noise(np.random.default_rng(seed + 1), 400, phi) + 3 * size * (axis(400) / 400) ** 4
    assert acceleration(axis(400), bent).verdict == "speeding_up"
    assert acceleration(axis(400)[::2], bent[::2]).verdict == "speeding_up"
    jump = noise(np.random.default_rng(seed + 2), 400, 0.0) + size * (axis(400) >= 240)
    for every in (1, 2):
        found = step_scan(axis(400)[::every], jump[::every])
        assert found is not None
        assert abs(found.step - 240) <= 4
        assert lasting_change(axis(400)[::every], jump[::every]).p_value < 0.01


@pytest.mark.slow
def test_p1_long_series_are_quick() -> None:
    y = np.exp(-axis(20_000) / 4000) + 0.05 * noise(np.random.default_rng(0), 20_000, 0.5)
    trend(axis(20_000), y)
    step_scan(axis(20_000), y)
    began = time.process_time()
    trend(axis(20_000), y)
    step_scan(axis(20_000), y)
    assert time.process_time() - began <= 0.5


@pytest.mark.parametrize("ask", [steps_found, lasting_change, trend])
def test_named_and_masked_series_are_the_same_series(ask: Callable[..., object]) -> None:
    y = noise(np.random.default_rng(31), 200, 0.5) + 6.0 * (axis(200) > 120)
    assert ask(steps=axis(200), values=y) == ask(axis(200), y)
    hidden = np.ma.masked_array(np.where(axis(200) < 190, y, 1e20), mask=axis(200) >= 190)
    assert ask(axis(200), hidden) == ask(axis(190), y[:190])


def test_next_to_no_noise_is_no_step() -> None:
    smooth_rise = 20.0 * (1.0 - np.exp(-6.0 * axis(700) / 700.0))
    found = [step_scan(axis(700), smooth_rise + 1e-6 * noise(np.random.default_rng(s), 700, 0.0)) for s in range(8)]
    assert found == [None] * 8


def test_lengths_must_agree() -> None:
    for ask in (trend, step_scan, spikes, lambda x, y: reduce(x, y, 50)):
        with pytest.raises(ValueError, match="60 steps but 59 values"):
            ask(axis(60), axis(59))


@pytest.mark.parametrize("name", ["huge", "extreme"])
def test_levels_of_extreme_values_warn_of_nothing(name: str) -> None:
    values = np.array(HOSTILE[name])
    held(values)
    late_mean(values)
    rank_p(values[:12])
    mean_difference(values[:20], values[40:])
    cliff(axis(60), values, falling=True)
    apart(axis(12), values[:12], falling=False)
