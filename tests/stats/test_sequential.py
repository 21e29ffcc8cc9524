"""Watching a run row by row: what rings, when it is dated, what must not ring, and resuming (rows O of the table)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.stats import sequential
from rlclinic.stats.evidence import student_quantile, student_tail
from rlclinic.stats.sequential import Alarm, Detector, LevelWatch, replay
from series import Array, axis, noise, slow_noise

AT = 1003


def jump(rng: np.random.Generator, n: int, phi: float, height: float, at: int = AT) -> Array:
    return noise(rng, n, phi) + height * (axis(n) >= at)


def first_alarm(values: Array, **options: float) -> Alarm | None:
    """The alarm that ends the watch of one stream, so that a run is not watched further than needed."""
    watch = Detector(planned_steps=len(values), **options)  # type: ignore[arg-type]
    found = (watch.update(step, value) for step, value in enumerate(values.tolist()))
    return next((alarm for alarm in found if alarm is not None), None)


# Known answers


@pytest.mark.parametrize("height", [4.0, -4.0])
def test_a_jump_rings_and_is_dated(height: float) -> None:
    alarm = first_alarm(jump(np.random.default_rng(1), 1500, 0.5, height))
    assert alarm is not None
    assert AT < alarm.step <= AT + 60
    assert alarm.onset.low <= AT <= alarm.onset.high <= alarm.step
    assert alarm.onset.high - alarm.onset.low < 60
    assert alarm.direction == math.copysign(1, height)
    assert alarm.e_value > 20 / 0.05
    assert alarm.level_before == pytest.approx(0, abs=0.3)
    assert alarm.level_now == pytest.approx(height, abs=1.0)


def test_a_drift_rings() -> None:
    rng = np.random.default_rng(2)
    alarm = first_alarm(noise(rng, 2000, 0.5) + 4 * np.clip((axis(2000) - 1000) / 500, 0, 1))
    assert alarm is not None
    assert 1000 < alarm.step < 1300
    assert alarm.direction == 1


def test_after_an_alarm_the_new_level_is_learnt() -> None:
    rng = np.random.default_rng(3)
    levels = np.repeat([0.0, 5.0, 1.0], 700)
    alarms = replay(axis(2100), levels + noise(rng, 2100, 0.5), Detector(planned_steps=2100))
    assert [alarm.direction for alarm in alarms] == [1, -1]
    assert all(0 <= alarm.step - at < 60 for alarm, at in zip(alarms, (700, 1400), strict=True))
    assert alarms[1].level_before == pytest.approx(5, abs=0.5)


def test_a_change_inside_the_burn_in_rings_at_its_end() -> None:
    values = jump(np.random.default_rng(4), 600, 0.0, 6.0, at=190)
    alarm = first_alarm(values)
    assert alarm is not None
    assert alarm.step <= 256
    assert alarm.onset.low <= 190 <= alarm.onset.high


def test_more_detectors_and_longer_plans_ask_for_more_evidence() -> None:
    values = jump(np.random.default_rng(5), 2000, 0.5, 1.2)

    def rings(planned: float, detectors: int) -> float:
        alarms = replay(axis(2000), values, Detector(planned_steps=planned, detectors=detectors))
        return alarms[0].step if alarms else math.inf

    assert rings(2000, 1) < rings(2000, 200)
    assert rings(2000, 20) < rings(2e6, 20)


def test_a_careless_detector_still_rings_properly() -> None:
    rng = np.random.default_rng(26)
    for values in (noise(rng, 1500, 0.0), np.repeat([0.0, 1.0], 750)):
        alarms = replay(axis(1500), values, Detector(planned_steps=1, detectors=1, false_alarms=1e6))
        assert alarms
        assert all(alarm.onset.low <= alarm.onset.step <= alarm.onset.high <= alarm.step for alarm in alarms)
        assert all(math.isfinite(alarm.level_now + alarm.level_before) for alarm in alarms)


def test_an_unknown_run_length_is_planned_in_doubling_epochs() -> None:
    watch = Detector(detectors=1)
    watch._size, watch._stride = 8, 1.0
    spent = []
    for points in (1, 1024, 1025, 2049, 5000):
        watch._points = points
        planned, chance = watch._plan()
        spent.append((planned * 8, chance))
    assert spent == [(1024, 0.025), (1024, 0.025), (2048, 0.0125), (4096, 0.00625), (8192, 0.003125)]
    known = Detector(detectors=1, planned_steps=3000)
    known._size, known._stride, known._points = 8, 1.0, 3000
    assert known._plan() == (375, 0.05)


def test_normal_score() -> None:
    for df in (7, 20, 500):
        for t in (0.3, 1.0, 2.0, 4.0):
            exact = student_quantile(student_tail(t, df), math.inf)
            assert sequential._normal_score(t, df) == pytest.approx(exact, abs=0.01)
            assert sequential._normal_score(-t, df) == -sequential._normal_score(t, df)


def test_the_blind_period_is_told() -> None:
    rng = np.random.default_rng(31)
    for phi, least, most in ((0.0, 128, 140), (0.9, 300, 1100)):
        watch = Detector(planned_steps=3000)
        assert (watch.ready, watch.blind_for) == (False, 128)
        values = noise(rng, 3000, phi).tolist()
        ready = []
        for step, value in enumerate(values):
            assert watch.update(step, value) is None
            ready.append(watch.ready)
            assert watch.ready == (watch.blind_for == 0)
        assert least <= ready.index(True) <= most
        assert ready[-1]
    resumed = Detector.from_state(watch.state())
    assert (resumed.ready, resumed.blind_for) == (True, 0)
    assert replay([3000 + i for i in range(400)], [50.0] * 400, watch)
    level = LevelWatch(0.5)
    replay(axis(60), np.zeros(60), level)
    assert (level.ready, level.blind_for) == (False, 4)


def test_nothing_rings_inside_the_blind_period_and_it_returns_after_an_alarm() -> None:
    watch = Detector(planned_steps=1200)
    assert replay(axis(127), 9.0 * (axis(127) >= 60), watch) == []
    watch = Detector(planned_steps=1200)
    for step, value in enumerate(jump(np.random.default_rng(32), 1200, 0.0, 6.0, at=700).tolist()):
        if watch.update(step, value) is not None:
            assert (watch.ready, watch.blind_for) == (False, 128)
            break
    else:
        raise AssertionError("no alarm")


# A metric at rest


@pytest.mark.parametrize("level", [0.0, 0.3, -7.0])
def test_a_metric_at_rest_that_begins_to_move_rings(level: float) -> None:
    rng = np.random.default_rng(6)
    values = np.where(axis(900) < 400, level, level + rng.random(900))
    alarm = first_alarm(values)
    assert alarm is not None
    assert alarm.step <= 415
    assert alarm.onset.low <= 400 <= alarm.onset.high
    assert alarm.direction == 1
    assert alarm.level_before == level
    assert alarm.level_now > level


def test_a_metric_at_rest_may_twitch() -> None:
    rng = np.random.default_rng(7)
    rare = (rng.random((40, 2000)) < 0.03) * rng.random((40, 2000))
    rare[:, 700:703] = 1.0
    assert all(first_alarm(row) is None for row in rare)
    assert first_alarm(np.zeros(2000)) is None


def test_lumpy_fractions_do_not_ring() -> None:
    rng = np.random.default_rng(8)
    rows = [*(rng.random((15, 2000)) < 0.1).astype(float), *(rng.binomial(16, 0.3, (15, 2000)) / 16)]
    assert sum(first_alarm(row) is not None for row in rows) == 0


def test_a_periodic_metric_does_not_ring_for_rounding() -> None:
    assert first_alarm(0.1 + 0.2 * (axis(2000) % 2)) is None
    assert first_alarm(np.sin(axis(2000))) is None


# Look-alikes


def test_a_warmup_is_left_out() -> None:
    rng = np.random.default_rng(9)
    values = noise(rng, 1000, 0.3) + 8 * (axis(1000) < 150)
    assert first_alarm(values) is not None
    assert first_alarm(values, warmup=150) is None


def test_spikes_are_filtered() -> None:
    rng = np.random.default_rng(10)
    values = noise(rng, 1500, 0.5)
    values[np.arange(140, 1500, 50)[:, None] + np.arange(2)] += 40
    assert first_alarm(values) is None


def test_rows_logged_again_change_nothing() -> None:
    values = jump(np.random.default_rng(11), 1300, 0.5, 3.0)
    once = replay(axis(1300), values, Detector())
    assert once
    assert replay(np.repeat(axis(1300), 3), np.repeat(values, 3), Detector()) == once
    resumed = np.concatenate([axis(900), axis(1300)[600:]]), np.concatenate([values[:900], values[600:]])
    assert replay(*resumed, Detector()) == once
    assert replay([*axis(1300), math.nan, math.inf], [*values, 1.0, 1.0], Detector()) == once


def test_missing_values_are_skipped() -> None:
    values = jump(np.random.default_rng(12), 1300, 0.5, 3.0)
    once = replay(axis(1300), values, Detector())
    holes = np.full(2600, math.nan)
    holes[::2] = values
    assert replay(axis(2600) / 2, holes, Detector()) == once


def test_the_same_step_again_replaces_the_newest_value() -> None:
    values = jump(np.random.default_rng(13), 1300, 0.5, 3.0)
    wrong = np.full(100, 1e6)
    steps, mixed = np.repeat(axis(1300), 2)[:200], np.column_stack([wrong, values[:100]]).ravel()
    assert replay([*steps, *axis(1300)[100:]], [*mixed, *values[100:]], Detector()) == replay(
        axis(1300), values, Detector()
    )


def test_a_step_before_the_first_starts_over() -> None:
    values = jump(np.random.default_rng(14), 1300, 0.5, 3.0)
    watch = Detector()
    replay(axis(400) + 10, 100 + noise(np.random.default_rng(15), 400, 0.5), watch)
    assert replay(axis(1300), values, watch) == replay(axis(1300), values, Detector())


# Saving, resuming, degenerate input


@pytest.mark.parametrize("cut", [0, 60, 128, 131, 300, 700, 1010, 1030, 1100, 1250])
def test_resuming_gives_the_same_future(cut: int) -> None:
    values = jump(np.random.default_rng(16), 1600, 0.5, 3.0) - 6 * (axis(1600) >= 1300)
    whole = replay(axis(1600), values, Detector(planned_steps=1600))
    assert len(whole) == 2
    watch = Detector(planned_steps=1600)
    before = replay(axis(cut), values[:cut], watch)
    saved = json.dumps(watch.state(), allow_nan=False)
    assert before + replay(axis(1600)[cut:], values[cut:], Detector.from_state(json.loads(saved))) == whole
    assert before + replay(axis(1600)[cut:], values[cut:], watch) == whole


def test_a_state_is_small_and_stays_its_own() -> None:
    watch = Detector()
    replay(axis(5000), noise(np.random.default_rng(17), 5000, 0.5), watch)
    state = watch.state()
    assert len(json.dumps(state)) < 4000
    kept = json.dumps(state)
    other = Detector.from_state(state)
    replay(axis(5100)[5000:], np.zeros(100), watch)
    replay(axis(5100)[5000:], np.ones(100), other)
    assert json.dumps(state) == kept
    with pytest.raises(ValueError, match="LevelWatch"):
        LevelWatch.from_state(state)
    with pytest.raises(ValueError, match="version"):
        Detector.from_state({**state, "form": 0})


def test_replay_refuses_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="3 steps but 2 values"):
        replay([1, 2, 3], [1, 2], Detector())


@pytest.mark.parametrize("make", [Detector, lambda: LevelWatch(0.5)])
def test_odd_input_never_raises(make: Callable[[], Detector | LevelWatch]) -> None:
    rng = np.random.default_rng(18)
    extremes = [1e300, -1e300, 1.7e308, -1.7e308, 5e-324, 0.0, -0.0, 1.0, math.nan, math.inf]
    series: list[list[float]] = [
        [],
        [1.0],
        [1.0, 2.0] * 400,
        rng.choice(extremes, 900).tolist(),
        [0.0] * 200 + [1e308] * 200 + [-1e308] * 300,
        (5e-324 * rng.integers(0, 3, 900)).tolist(),
        [1e300] * 300 + [1e-300] * 300,
        rng.integers(0, 3, 900).tolist(),
    ]
    for values in series:
        watch = make()
        for step, value in enumerate(values):
            watch.update(step, value)
        json.dumps(watch.state(), allow_nan=False)
    watch = make()
    for odd in (None, "x", [1], 10**400):
        assert watch.update(odd, odd) is None  # type: ignore[arg-type]
    for step in (1e308, -1e308, 5e-324, 1e17, 1e17 + 1):
        watch.update(step, 1.0)


# Properties


@settings(max_examples=12, deadline=None)
@given(
    scale=st.sampled_from([2.0**-40, 0.5, 4.0, 2.0**60]),
    shift=st.sampled_from([0.0, 3.0, -1000.0]),
    stride=st.sampled_from([1, 8, 64]),
    start=st.sampled_from([0, 1024]),
    seed=st.integers(0, 5),
)
def test_unit_and_step_size_do_not_matter(scale: float, shift: float, stride: int, start: int, seed: int) -> None:
    values = np.round(jump(np.random.default_rng(seed), 1200, 0.4, 3.0), 6)
    plain = replay(axis(1200), values, Detector(planned_steps=1200))
    other = replay(start + stride * axis(1200), scale * (values + shift), Detector(planned_steps=1200 * stride))
    assert [a.step * stride + start for a in plain] == [a.step for a in other]
    for a, b in zip(plain, other, strict=True):
        assert b.onset.step == pytest.approx(a.onset.step * stride + start, abs=1e-3 * stride)
        assert b.level_now == pytest.approx(scale * (a.level_now + shift), abs=1e-6 * scale)
        assert b.e_value == pytest.approx(a.e_value, rel=1e-4)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), phi=st.sampled_from([0.0, 0.5, 0.9]))
def test_mirrored_values_ring_mirrored(seed: int, phi: float) -> None:
    values = jump(np.random.default_rng(seed), 1200, phi, 3.0, at=600)
    up, down = (replay(axis(1200), sign * values, Detector()) for sign in (1, -1))
    assert [(a.step, a.direction) for a in up] == [(a.step, -a.direction) for a in down]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.floats(allow_nan=True, allow_infinity=True, width=64)),
        min_size=0,
        max_size=300,
    )
)
def test_any_rows_leave_a_state_that_can_be_saved(rows: list[tuple[int, float]]) -> None:
    for watch in (Detector(), LevelWatch(0.0)):
        for i, (step, value) in enumerate(rows):
            watch.update(step + i, value)
        json.dumps(watch.state(), allow_nan=False)


# Levels


def test_a_level_opens_and_clears() -> None:
    rng = np.random.default_rng(20)
    n = 2000
    values = 0.3 + 0.3 * ((axis(n) >= 1003) & (axis(n) < 1603)) + 0.05 * noise(rng, n, 0.5)
    watch = LevelWatch(0.5)
    opened, cleared = replay(axis(n), values, watch)
    assert opened.opened
    assert not cleared.opened
    assert not watch.open
    assert AT < opened.step < AT + 80
    assert abs(opened.since - AT) <= 16
    assert opened.level == pytest.approx(0.6, abs=0.05)
    assert 1603 < cleared.step <= 1603 + 40
    assert cleared.level == pytest.approx(0.3, abs=0.05)


def test_a_level_from_below() -> None:
    rng = np.random.default_rng(21)
    values = 0.8 - 0.6 * (axis(800) >= 400) + 0.05 * noise(rng, 800, 0.5)
    events = replay(axis(800), values, LevelWatch(0.5, above=False))
    mirrored = replay(axis(800), -values, LevelWatch(-0.5))
    assert [event.opened for event in events] == [True]
    assert [event.step for event in mirrored] == [event.step for event in events]


def test_a_run_that_begins_beyond_the_limit_opens_there() -> None:
    for values in (np.full(200, 1.0), 0.9 + 0.02 * noise(np.random.default_rng(22), 200, 0.5)):
        events = replay(axis(200), values, LevelWatch(0.5))
        assert [(event.opened, event.step, event.since) for event in events] == [(True, 63, 0)]


def test_levels_do_not_chatter() -> None:
    rng = np.random.default_rng(23)
    for level in (0.3, 0.4, 0.44, 0.6):
        for _ in range(5):
            events = replay(axis(2000), level + 0.05 * noise(rng, 2000, 0.5), LevelWatch(0.5))
            assert len(events) == (level > 0.5)
    for _ in range(10):
        assert len(replay(axis(2000), 0.5 + 0.05 * noise(rng, 2000, 0.5), LevelWatch(0.5))) <= 3


def test_spikes_do_not_open_a_level() -> None:
    rng = np.random.default_rng(24)
    values = 0.2 + 0.05 * noise(rng, 2000, 0.5)
    values[np.arange(70, 2000, 30)[:, None] + np.arange(2)] = 3.0
    assert replay(axis(2000), values, LevelWatch(0.5)) == []


def test_an_open_level_is_resumed() -> None:
    values = 0.3 + 0.3 * ((axis(1200) >= 400) & (axis(1200) < 800)) + 0.05 * noise(np.random.default_rng(25), 1200, 0.5)
    whole = replay(axis(1200), values, LevelWatch(0.5))
    watch = LevelWatch(0.5)
    before = replay(axis(600), values[:600], watch)
    after = LevelWatch.from_state(json.loads(json.dumps(watch.state())))
    assert after.open
    assert before + replay(axis(1200)[600:], values[600:], after) == whole
    assert [event.opened for event in whole] == [True, False]


# Acceptance rows


def spiked(rng: np.random.Generator, n: int, phi: float) -> Array:
    return noise(rng, n, phi) + (rng.random(n) < 0.01) * rng.uniform(5, 40, n)


def rings(make: Callable[[np.random.Generator, int], Array], runs: int, n: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    return sum(first_alarm(make(rng, n)) is not None for _ in range(runs))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "phi"), [(10_000, 0.5), (10_000, 0.9), (2000, 0.5), (2000, 0.9)])
def test_o1_twenty_detectors_ring_in_five_percent_of_runs(
    n: int, phi: float, repeats: Callable[[int], int], most_alarms: Callable[[int, float], int]
) -> None:
    # Streams of 10,000 rows cost as much as all the others; half of the part suffices without --full.
    made = repeats(800) if n < 10_000 or repeats(800) == 800 else 50
    ringing = rings(lambda rng, n: noise(rng, n, phi), made, n, 9100 + n + int(10 * phi))
    assert ringing <= most_alarms(made, 1 - 0.95 ** (1 / 20))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phi", "height", "delay", "detected"),
    [(0.5, 2.0, 60, 0.98), (0.5, 4.0, 48, 0.98), (0.9, 2.0, 340, 0.70), (0.9, 4.0, 150, 0.98)],
)
def test_o2_delay_of_a_jump(
    phi: float,
    height: float,
    delay: float,
    detected: float,
    part: Callable[[int], int],
    least_hits: Callable[[int, float], float],
) -> None:
    rng = np.random.default_rng(9201)
    made = part(150)
    alarms = [first_alarm(jump(rng, 2000, phi, height)) for _ in range(made)]
    true = [alarm for alarm in alarms if alarm is not None and alarm.step >= AT]
    assert len(true) >= least_hits(made, detected)
    assert np.median([alarm.step - AT for alarm in true]) <= delay
    assert sum(alarm.onset.low <= AT <= alarm.onset.high for alarm in true) >= least_hits(len(true), 0.93)


@pytest.mark.slow
def test_o3_spikes_ring_in_two_percent_of_streams(
    part: Callable[[int], int], most_alarms: Callable[[int, float], int]
) -> None:
    made = part(400)
    assert rings(lambda rng, n: spiked(rng, n, 0.5), made, 2000, 9301) <= most_alarms(made, 0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda rng, n: noise(rng, n, 0.0), 1),
        (lambda rng, n: noise(rng, n, 0.95), 1),
        (lambda rng, n: rng.standard_t(3, n), 1),
        (lambda rng, n: slow_noise(rng, n), 3),
        (lambda rng, n: np.exp(noise(rng, n, 0.5)), 3),
    ],
    ids=["white", "ar95", "t3", "slow", "lognormal"],
)
def test_other_noise_rarely_rings(
    make: Callable[[np.random.Generator, int], Array], most: int, part: Callable[[int], int]
) -> None:
    assert rings(make, part(100), 2000, 9401) <= most


class Odd:
    """A value whose conversion fails in its own way, as a tensor of two elements does."""

    def __float__(self) -> float:
        raise RuntimeError("cannot be converted to a scalar")


@pytest.mark.parametrize("value", [Odd(), np.ma.masked, None, "x", [1.0, 2.0], 10**400])
def test_nothing_a_trainer_hands_over_raises(value: Any) -> None:
    for watch in (Detector(), LevelWatch(0.5)):
        assert watch.update(1, value) is None
        assert watch.update(value, 1.0) is None


@pytest.mark.parametrize("rows", [10, 300, 900])
def test_a_damaged_state_is_refused(rows: int) -> None:
    for watch in (Detector(planned_steps=1000), LevelWatch(0.5)):
        replay(axis(rows), noise(np.random.default_rng(3), rows, 0.5), watch)
        state = watch.state()
        kind = type(watch)
        assert kind.from_state(state).state() == state
        for broken in (None, [], "x", {}, {**state, "first": "x"}, {**state, "raw": [0.0] * 5000}):
            with pytest.raises(ValueError, match="state"):
                kind.from_state(broken)  # type: ignore[arg-type]
        for name in set(state) - {"form", "kind"}:
            lacking = {key: value for key, value in state.items() if key != name}
            try:
                restored = kind.from_state(lacking)
            except ValueError:
                continue
            replay(axis(rows + 1500)[rows:], noise(np.random.default_rng(4), 1500, 0.5), restored)


@pytest.mark.parametrize(
    "given", [{"planned_steps": math.inf}, {"false_alarms": 0.0}, {"false_alarms": math.nan}, {"warmup": math.inf}]
)
def test_settings_that_mean_nothing_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="wanted"):
        Detector(**given)
    with pytest.raises(ValueError, match="wanted"):
        LevelWatch(math.nan)
