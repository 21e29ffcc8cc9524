"""No series breaks the statistics, and what must not matter does not."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlclinic.stats.curve import reduce, smooth
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


@pytest.mark.slow
def test_p1_long_series_are_quick() -> None:
    y = np.exp(-axis(20_000) / 4000) + 0.05 * noise(np.random.default_rng(0), 20_000, 0.5)
    trend(axis(20_000), y)
    step_scan(axis(20_000), y)
    began = time.process_time()
    trend(axis(20_000), y)
    step_scan(axis(20_000), y)
    assert time.process_time() - began <= 0.5
