"""Steps, spikes, lasting changes, crossings: known answers and measured error rates (rows S of the acceptance table)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from rlclinic.model import Onset
from rlclinic.stats.shift import (
    crossing,
    lasting_change,
    longest_run,
    onset,
    spikes,
    step_scan,
    steps_found,
)
from series import Array, axis, noise


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


@pytest.mark.parametrize(
    "levels",
    [
        np.repeat([0.0, 5.0, 10.0], 134)[:400],
        np.repeat([0.0, 5.0, 0.0], 134)[:400],
        6.0 * (5 * axis(400) / 400 - axis(400) // 80),
    ],
)
def test_steps_that_hide_each_other_are_found_together(levels: Array) -> None:
    y = levels + noise(np.random.default_rng(14), 400, 0.5)
    cuts = np.flatnonzero(np.abs(np.diff(levels)) > 3) + 1
    found = steps_found(axis(400), y)
    assert len(found) == len(cuts)
    assert all(abs(s.step - at) <= 5 for s, at in zip(found, cuts, strict=True))
    assert all(0.0 <= s.p_value < 0.01 for s in found)


def test_several_steps_in_a_long_log() -> None:
    rng = np.random.default_rng(15)
    y = 5.0 * (5 * axis(10_000) / 10_000 - axis(10_000) // 2_000) + noise(rng, 10_000, 0.5)
    found = steps_found(axis(10_000), y)
    assert [abs(s.step - at) <= 10 for s, at in zip(found, (2_000, 4_000, 6_000, 8_000), strict=True)] == [True] * 4


def test_a_step_must_show_in_the_points() -> None:
    flat = np.ones(200)
    flat[:20] = [40.0, 30.0, 1.0, 22.0, 1.0, 15.0, 1.0, 9.0, 1.0, 1.0] * 2
    for found in steps_found(axis(200), flat):
        at = int(found.step)
        moved = float(np.median(flat[at : at + 5]) - np.median(flat[at - 5 : at]))
        assert moved * found.jump > 0


def test_spikes_downwards() -> None:
    rng = np.random.default_rng(16)
    level = np.where(axis(500) < 250, 1.0, 20.0) + 0.02 * noise(rng, 500, 0.0)
    level[[60, 400]] = 0.1, 2.0
    level[200] = 9.0
    assert spikes(axis(500), level, direction=-1).tolist() == [60, 400]
    assert spikes(axis(500), level).tolist() == [200]
    assert spikes(axis(500), -level, direction=-1).tolist() == [200]
    assert spikes(axis(500), level - 1.0, direction=-1).tolist() == [60, 400]
    assert len(spikes(axis(500), np.ones(500), direction=-1)) == 0


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
    calm = lasting_change(axis(400), 1 + 0.1 * noise(rng, 400, 0.8))
    assert calm.onset is None
    assert calm.p_value > 0.01


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
def test_s1_smooth_curves_have_no_step(
    name: str, phi: float, repeats: Callable[[int], int], most_alarms: Callable[[int, float], int]
) -> None:
    rng = np.random.default_rng(9700 + len(name))
    curve = CURVES[name](axis(400) / 399)
    found = [step_scan(axis(400), curve + noise(rng, 400, phi)) is not None for _ in range(repeats(250))]
    assert sum(found) <= most_alarms(len(found), 0.05 if name == "steep sigmoid" and phi == 0.9 else 0.02)


@pytest.mark.long
@pytest.mark.parametrize("name", CURVES)
def test_looking_for_several_steps_adds_no_false_alarm(name: str) -> None:
    rng = np.random.default_rng(9750)
    curve = CURVES[name](axis(400) / 399)
    added = []
    for phi in (0.0, 0.5, 0.9) * 17:
        y = curve + noise(rng, 400, phi)
        added.append(len(steps_found(axis(400), y)) > (step_scan(axis(400), y) is not None))
    assert np.mean(added) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("jump", "least"), [(5.0, 0.95), (3.0, 0.65)])
def test_s3_jumps_on_a_decay_are_found(
    jump: float, least: float, phi: float, part: Callable[[int], int], least_hits: Callable[[int, float], float]
) -> None:
    rng = np.random.default_rng(9800)
    curve = CURVES["decay"](axis(400) / 399)
    hits = []
    for _ in range(part(150)):
        at = int(rng.integers(40, 360))
        found = step_scan(axis(400), curve + jump * rng.choice([-1, 1]) * (axis(400) >= at) + noise(rng, 400, phi))
        hits.append(found is not None and abs(found.step - at) <= 5)
    assert sum(hits) >= least_hits(len(hits), least)


SEVERAL: dict[str, tuple[list[int], Array]] = {
    "saw-tooth": ([80, 160, 240, 320], 5 * axis(400) / 400 - axis(400) // 80),
    "up and down": ([133, 266], ((axis(400) >= 133) & (axis(400) < 266)).astype(float)),
    "stairs": ([133, 266], (axis(400) >= 133).astype(float) + (axis(400) >= 266)),
    "close": ([200, 240], (axis(400) >= 200).astype(float) + (axis(400) >= 240)),
}


@pytest.mark.slow
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_steps_are_found(name: str, phi: float) -> None:
    rng = np.random.default_rng(9850)
    cuts, shape = SEVERAL[name]
    hits, extra = [], []
    for _ in range(10):
        found = [s.step for s in steps_found(axis(400), 5.0 * shape + noise(rng, 400, phi))]
        hits += [any(abs(at - cut) <= 5 for at in found) for cut in cuts]
        extra.append(any(all(abs(at - cut) > 5 for cut in cuts) for at in found))
    assert np.mean(hits) >= 0.9
    assert np.mean(extra) <= 0.1


@pytest.mark.long
def test_a_saw_tooth_of_three_deviations_is_often_found() -> None:
    rng = np.random.default_rng(9860)
    hits = []
    for _ in range(20):
        found = [s.step for s in steps_found(axis(400), 3.0 * SEVERAL["saw-tooth"][1] + noise(rng, 400, 0.5))]
        hits += [any(abs(at - cut) <= 5 for at in found) for cut in SEVERAL["saw-tooth"][0]]
    assert np.mean(hits) >= 0.4


ENTROPY: dict[str, Callable[[Array], Array]] = {
    "healthy decay": lambda f: 0.9 * np.exp(-1.2 * f),
    "levelling off": lambda f: 0.6 * np.exp(-2.6 * f) + 0.1,
    "collapse by decay": lambda f: 0.9 * np.exp(-7.0 * f),
    "late sigmoid": lambda f: 0.9 - 0.7 / (1 + np.exp(-14 * (f - 0.65))),
    "early sigmoid": lambda f: 0.9 - 0.7 / (1 + np.exp(-18 * (f - 0.2))),
    "ramp down": lambda f: 0.9 - 0.7 * f,
    "ramp that ends": lambda f: 0.9 - 0.7 * np.minimum(f / 0.6, 1.0),
    "ramp that begins": lambda f: 0.9 - 0.7 * np.maximum((f - 0.4) / 0.6, 0.0),
    "rise": lambda f: 0.3 + 0.9 * f**2,
    "fall and rise": lambda f: 0.3 + 2.0 * (f - 0.5) ** 2,
    "oscillation": lambda f: 0.6 + 0.2 * np.sin(8 * np.pi * f),
    "dying oscillation": lambda f: 0.5 + 0.3 * np.exp(-3 * f) * np.cos(12 * np.pi * f),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTROPY)
def test_s2_entropy_without_a_jump_is_never_abrupt(name: str) -> None:
    curve = ENTROPY[name](axis(400) / 399)
    for seed in range(20):
        rng = np.random.default_rng(9700 + seed)
        found = steps_found(axis(400), curve + 0.02 * noise(rng, 400, 0.5 * (seed % 2)))
        assert not [shift for shift in found if shift.size >= 3]


@pytest.mark.slow
def test_s2_another_tools_scenarios_without_a_jump_are_never_abrupt() -> None:
    simulate = pytest.importorskip("rl_doctor.simulate")
    for name in simulate.SCENARIOS:
        for seed in range(20):
            entropy = np.array([row["entropy"] for row in simulate.simulate(name, seed=seed)[0]])
            found = steps_found(axis(len(entropy)), entropy)
            assert not [shift for shift in found if shift.size >= 3], (name, seed)


@pytest.mark.slow
def test_s4_spikes_are_no_step() -> None:
    rng = np.random.default_rng(9900)
    found = []
    for _ in range(200):
        y = noise(rng, 400, 0.5)
        y[rng.choice(400, 4, replace=False)] += rng.choice([-1, 1], 4) * rng.uniform(8, 40, 4)
        found.append(step_scan(axis(400), y) is not None)
    assert np.mean(found) <= 0.02


@pytest.mark.long
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
