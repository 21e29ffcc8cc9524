"""Excursions: known answers, look-alikes that must stay silent, and measured error rates."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.stats.curve import basis, precision
from rlclinic.stats.excursion import excursions
from rlclinic.stats.scan import Place, event, places_of, visible
from series import Array, axis, decay, noise, ramp, sigmoid, slow_noise


def away(n: int, start: int, length: int, height: float = 5.0) -> Array:
    """(n,) ``height`` over [start, start + length), else 0."""
    return height * ((axis(n) >= start) & (axis(n) < start + length))


def test_gains_are_those_of_generalised_least_squares() -> None:
    rng = np.random.default_rng(20)
    n, phi = 60, 0.4
    z, base = rng.standard_normal(n), basis(n, 4)
    places = places_of(base, base.residual(z), phi)
    weights = np.column_stack([precision(column, phi) for column in np.eye(n)])

    def rss(design: Array) -> float:
        fit = np.linalg.solve(design.T @ weights @ design, design.T @ weights @ z)
        return float((z - design @ fit) @ weights @ (z - design @ fit))

    assert places.rss == pytest.approx(rss(base.q))
    for at, until in ((20, 33), (9, 14), (30, n)):
        place = Place(at, until, 0.0, 0.0, 0.0)
        gain = places.rss - rss(np.column_stack((base.q, event(n, place))))
        found = places.steps(5)[0][at] if until == n else places.boxes(np.array([at]), np.array([until]))[0][0]
        assert found == pytest.approx(gain)


def test_an_excursion_is_dated_and_sized() -> None:
    rng = np.random.default_rng(21)
    y = 0.5 - 0.1 * away(400, 150, 40) / 5 * 4 + 0.05 * noise(rng, 400, 0.5)
    (found,) = excursions(axis(400) * 10 + 5, y)
    assert found.onset.low <= 1505 <= found.onset.high
    assert found.end.low <= 1895 <= found.end.high
    assert found.direction == -1
    assert found.height == pytest.approx(-0.4, abs=0.08)
    assert found.sd == pytest.approx(0.05, abs=0.015)
    assert found.size > 5
    assert found.before == pytest.approx(0.5, abs=0.06)
    assert found.after == pytest.approx(0.5, abs=0.06)
    assert found.peak < 0.15
    assert 1505 <= found.peak_step <= 1895
    assert found.p_value < 1e-6


def test_on_a_smooth_course_and_more_than_once() -> None:
    rng = np.random.default_rng(22)
    y = decay(600, 20.0) + away(600, 200, 30, 7.0) + away(600, 420, 60, -7.0) + noise(rng, 600, 0.3)
    found = excursions(axis(600), y)
    assert [e.direction for e in found] == [1, -1]
    assert [abs(e.onset.step - at) <= 3 for e, at in zip(found, (200, 420), strict=True)] == [True, True]
    assert len(excursions(axis(600), y, most=1)) == 1


def test_a_bump_without_edges_has_wide_intervals() -> None:
    rng = np.random.default_rng(23)
    bump = np.where((axis(400) >= 180) & (axis(400) < 230), np.sin(np.pi * (axis(400) - 180) / 50), 0.0)
    (found,) = excursions(axis(400), 8 * bump + noise(rng, 400, 0.0))
    assert found.onset.low <= 182
    assert found.end.high >= 227
    assert found.onset.high < found.end.low


def test_stairs_into_one_excursion_are_one() -> None:
    rng = np.random.default_rng(24)
    y = away(400, 150, 60, 6.0) + away(400, 170, 15, 4.0) + noise(rng, 400, 0.0)
    (found,) = excursions(axis(400), y)
    assert found.onset.low <= 150 <= found.onset.high
    assert found.end.low <= 209 <= found.end.high


def test_long_logs_are_binned() -> None:
    rng = np.random.default_rng(25)
    (found,) = excursions(axis(20_000), away(20_000, 9_000, 1_200) + noise(rng, 20_000, 0.5))
    assert found.onset.low <= 9_000 <= found.onset.high
    assert found.onset.high - found.onset.low <= 200
    assert found.end.low <= 10_199 <= found.end.high


def test_what_only_looks_like_one() -> None:
    rng = np.random.default_rng(26)
    flat = noise(rng, 400, 0.3)
    unfinished, early = away(400, 330, 70, 6.0), away(400, 0, 30, 6.0)
    spike = away(400, 200, 3, 20.0)
    for shape in (unfinished, early, spike, away(400, 120, 280, 6.0)):
        assert excursions(axis(400), flat + shape) == ()
    sparse = np.zeros(300)
    sparse[[40, 90, 97, 130, 180, 250]] = 1.0
    assert excursions(axis(300), sparse) == ()
    wild_start = 50.0 * np.exp(-axis(300) / 4) + 0.01 * noise(rng, 300, 0.0)
    assert excursions(axis(300), wild_start) == ()


def test_an_event_must_show_in_the_points() -> None:
    z = np.where(axis(40) >= 20, 1.0, 0.0)
    assert visible(z, Place(20, 40, 1.0, 1.0, 1.0))
    assert not visible(z, Place(20, 40, 1.0, -1.0, 1.0))
    assert not visible(z, Place(25, 40, 1.0, 1.0, 1.0))
    assert not visible(z, Place(20, 30, 1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0],
        [1.0, 2.0],
        [4.2] * 60,
        [math.nan] * 60,
        [1.0, math.nan, math.inf, -math.inf, 2.0] * 12,
        [1e300 * (1 + math.sin(i)) for i in range(60)],
        [(-1.0) ** i * 1.7e308 for i in range(60)],
        [5e-324 * (i % 3) for i in range(60)],
        [math.sin(i) for i in range(59)] + [1e300],
        [1e300, 1e-300] * 30,
        [float(i % 5) for i in range(120)],
        [float(30 < i < 40) for i in range(120)],
        [float(i % 7 == 0) for i in range(2500)],
    ],
)
def test_degenerate_series_never_raise(values: list[float]) -> None:
    for found in excursions(axis(len(values)), np.array(values)):
        assert found.onset.low <= found.onset.step <= found.onset.high
        assert found.end.low <= found.end.step <= found.end.high
        assert 0.0 <= found.p_value <= 0.01


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([60, 150, 300]), st.sampled_from([0.0, 0.5]), st.integers(0, 3))
def test_unit_origin_mirror_and_repeated_rows_do_not_matter(seed: int, n: int, phi: float, times: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = axis(n), noise(rng, n, phi) + away(n, n // 3, n // 8, 7.0)
    plain = excursions(x, y)
    moved = excursions(7 * x + 3, 1024.0 * y)
    assert [(e.onset.step * 7 + 3, e.end.step * 7 + 3) for e in plain] == [(e.onset.step, e.end.step) for e in moved]
    assert [e.height for e in moved] == pytest.approx([1024 * e.height for e in plain])
    assert [(e.onset, e.end, -e.height) for e in excursions(x, -y)] == [(e.onset, e.end, e.height) for e in plain]
    again = rng.integers(0, n, 20 * times)
    assert excursions(np.concatenate((x, x[again])), np.concatenate((y, y[again]))) == plain


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_backwards_onset_and_end_change_places(seed: int) -> None:
    y = noise(np.random.default_rng(seed), 300, 0.3) + away(300, 120, 40, 8.0)
    (found,), (backwards,) = excursions(axis(300), y), excursions(axis(300), y[::-1])
    assert abs(299 - backwards.end.step - found.onset.step) <= 3
    assert abs(299 - backwards.onset.step - found.end.step) <= 3


NOISE: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "white": lambda rng, n: noise(rng, n, 0.0),
    "AR(.5)": lambda rng, n: noise(rng, n, 0.5),
    "AR(.9)": lambda rng, n: noise(rng, n, 0.9),
    "AR(.95)": lambda rng, n: noise(rng, n, 0.95),
    "slow": slow_noise,
}


@pytest.mark.long
@pytest.mark.parametrize(("n", "rounds"), [(100, 100), (400, 50), (2000, 10)])
@pytest.mark.parametrize("name", NOISE)
def test_noise_has_no_excursion(name: str, n: int, rounds: int) -> None:
    rng = np.random.default_rng(7100 + n)
    assert np.mean([len(excursions(axis(n), NOISE[name](rng, n))) > 0 for _ in range(rounds)]) <= 0.02


COURSES: dict[str, Array] = {
    "decay": decay(400),
    "fast decay": decay(400, rate=6.5),
    "ramp": ramp(400),
    "sigmoid": sigmoid(400),
    "steep sigmoid": sigmoid(400, steepness=25.0),
    "rise and fall": 20.0 * np.sin(np.pi * axis(400) / 400),
    "three periods": 10.0 * np.sin(6 * np.pi * axis(400) / 400),
    "ten periods": 10.0 * np.sin(20 * np.pi * axis(400) / 400),
    "square wave": 5.0 * np.sign(np.sin(20 * np.pi * axis(400) / 400 + 0.1)),
    "step": 5.0 * (axis(400) >= 240),
    "stairs": 5.0 * (axis(400) // 100),
}


@pytest.mark.long
@pytest.mark.parametrize("name", COURSES)
def test_smooth_courses_steps_and_oscillations_have_no_excursion(name: str) -> None:
    rng = np.random.default_rng(7200)
    found = [len(excursions(axis(400), COURSES[name] + noise(rng, 400, phi))) > 0 for phi in (0, 0.5, 0.9) * 5]
    assert np.mean(found) <= 0.02


@pytest.mark.slow
def test_spikes_are_no_excursion() -> None:
    rng = np.random.default_rng(7300)
    found = []
    for _ in range(60):
        y = noise(rng, 400, 0.5)
        y[rng.choice(400, 4, replace=False)] += rng.choice([-1, 1], 4) * rng.uniform(8, 40, 4)
        found.append(len(excursions(axis(400), y)) > 0)
    assert np.mean(found) <= 0.02


@pytest.mark.long
@pytest.mark.parametrize(("n", "rounds"), [(100, 25), (400, 13)])
@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_five_deviations_are_found_and_dated(n: int, rounds: int, phi: float) -> None:
    rng = np.random.default_rng(7400 + n)
    hits, onsets, ends = [], [], []
    for share in (0.03, 0.05, 0.1, 0.25):
        length = max(5, round(share * n))
        for _ in range(rounds):
            at = int(rng.integers(n // 10, n - length - n // 10))
            y = noise(rng, n, phi) + away(n, at, length, 5.0 * rng.choice([-1, 1]))
            found = excursions(axis(n), y)
            hits.append(len(found) == 1)
            if hits[-1]:
                onsets.append(found[0].onset.low <= at <= found[0].onset.high)
                ends.append(found[0].end.low <= at + length - 1 <= found[0].end.high)
    assert np.mean(hits) >= 0.9
    assert np.mean(onsets) >= 0.9
    assert np.mean(ends) >= 0.9
