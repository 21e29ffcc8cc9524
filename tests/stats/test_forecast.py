"""When a metric will cross a limit: known answers and measured cover (rows X of the acceptance table)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.stats.forecast import Forecast, fan, forecast
from series import Array, axis, decay, noise, ramp, sigmoid

SEEN, WINDOWS = 200, 3.0
TIME = np.arange(4 * SEEN + 1) / (SEEN - 1.0)
"""One observed window and three more, in windows."""


def falling(seed: int = 0, n: int = 200) -> Array:
    """0.7 down to 0.17 along an exponential that ends at 0 and passes 0.07 at 1.6 windows."""
    return decay(n, 0.7, math.log(10.0) / 1.6) + 0.012 * noise(np.random.default_rng(seed), n, 0.5)


def test_known_answers_downwards() -> None:
    found = forecast(axis(200), falling(), 0.07)
    assert found.verdict in {"will", "cannot_tell"}
    assert found.low < 1.6 * 199 < found.high
    assert found.chance > 0.8
    assert found.level == pytest.approx(0.166, abs=0.02)
    assert found.until == 4 * 199
    straight = forecast(axis(200), 1.0 - ramp(200, 0.6) + 0.01 * noise(np.random.default_rng(1), 200, 0.5), 0.1)
    assert straight.verdict == "will"
    assert straight.step == pytest.approx(1.5 * 199, rel=0.05)
    assert straight.low < 1.5 * 199 < straight.high < math.inf


def test_known_answers_upwards() -> None:
    rise = 0.02 + ramp(200, 0.2) + 0.005 * noise(np.random.default_rng(2), 200, 0.5)
    found = forecast(axis(200) * 10, rise, 0.5)
    assert found.verdict in {"will", "cannot_tell"}
    assert found.low < 2.4 * 1990 < found.high


def test_levels_off_above_the_limit() -> None:
    level = 0.3 + decay(200, 0.4, 4.0) + 0.012 * noise(np.random.default_rng(3), 200, 0.5)
    found = forecast(axis(200), level, 0.07)
    assert (found.verdict, found.reason) == ("will_not", None)
    assert found.chance < 0.1
    assert (found.step, found.high) == (math.inf, math.inf)


def test_a_fall_that_begins_late_is_not_taken_for_one_that_ends() -> None:
    u = axis(200) / 199
    for seed in range(5):
        curve = np.where(u < 0.63, 1.0, 1.0 - 0.6 * (u - 0.63) / 0.37)
        found = forecast(axis(200), curve + 0.02 * noise(np.random.default_rng(seed), 200, 0.5), 0.1)
        assert found.verdict != "will_not"


def test_side_of_the_limit() -> None:
    behind = forecast(axis(200), falling(), 0.9)
    assert (behind.verdict, behind.reason, behind.chance) == ("will_not", "moving_away", 0.0)
    passed = forecast(axis(200), falling(), 0.4)
    assert (passed.verdict, passed.reason) == ("reached", None)
    assert passed.low <= passed.step <= passed.high < 199
    assert passed.step == pytest.approx(199 * 1.6 * math.log10(0.7 / 0.4), rel=0.1)
    risen = forecast(axis(200), -falling(), -0.4)
    assert risen.verdict == "reached"


def test_no_trend() -> None:
    flat = 0.5 + 0.01 * noise(np.random.default_rng(4), 300, 0.5)
    far = forecast(axis(300), flat, 0.07)
    assert (far.verdict, far.reason) == ("will_not", "no_trend")
    near = forecast(axis(300), flat, 0.5)
    assert (near.verdict, near.reason) == ("undecided", "no_trend")
    constant = np.full(60, 0.5)
    assert forecast(axis(60), constant, 0.1)[:3] == ("will_not", "no_trend", 0.0)
    assert forecast(axis(60), constant, 0.5).verdict == "reached"


def test_undecided_for_want_of_information() -> None:
    assert forecast([], [], 1.0).reason == "few_points"
    assert forecast(axis(39), -ramp(39), -100.0).reason == "few_points"
    # Most of these walks move, but none of them says where to.
    walks = np.cumsum(np.random.default_rng(5).standard_normal((40, 150)), axis=1)
    verdicts = [forecast(axis(150), w, w[-1] - 3 * np.std(w)) for w in walks]
    assert np.mean([f.reason == "little_information" for f in verdicts]) > 0.5
    assert np.mean([f.verdict == "will" for f in verdicts]) <= 0.1
    u = axis(200) / 199
    for curve in (2 * (u - 0.5) ** 2, np.sin(3 * u), np.maximum(1 - 2 * u, 0.4)):
        bent = forecast(axis(200), curve + 0.02 * noise(np.random.default_rng(6), 200, 0.5), 0.1)
        assert (bent.verdict, bent.reason) == ("undecided", "no_simple_curve")
        assert math.isnan(bent.chance)
        assert math.isnan(bent.level)


def test_without_noise_the_limit_is_dated_well() -> None:
    for curve, limit, crossing in (
        (decay(200, 0.7, 1.44), 0.07, math.log(10.0) / 1.44),
        (1.0 - ramp(200, 0.6), 0.1, 1.5),
        (1.0 - sigmoid(200, 1.0, 5.0, 1.1), 0.3, 1.1 + math.log(0.7 / 0.3) / 5.0),
    ):
        found = forecast(axis(200), curve, limit)
        assert found.chance > 0.85
        assert found.step == pytest.approx(crossing * 199, rel=0.08)
        assert found.low <= crossing * 199 <= found.high


def test_horizon() -> None:
    y = falling()
    near, far = forecast(axis(200), y, 0.07, horizon=20), forecast(axis(200), y, 0.07, horizon=1500)
    assert near.until == 219
    assert near.verdict == "will_not"
    assert near.chance < 0.05 < 0.8 < far.chance
    assert forecast(axis(200), y, 0.07, horizon=1e12).until == 101 * 199
    assert forecast(axis(200), y, 0.07, horizon=3 * 199) == forecast(axis(200), y, 0.07)
    for odd in (0.0, -5.0, math.nan, math.inf):
        assert forecast(axis(200), y, 0.07, horizon=odd).chance >= 0.0


def test_fan_and_forecast_agree() -> None:
    for seed in range(4):
        y = falling(seed)
        band = fan(axis(200), y, points=400)
        assert band.steps[0] == 199
        assert band.steps[-1] == pytest.approx(796)
        assert (band.low < band.middle).all()
        assert (band.middle < band.high).all()
        for limit in (0.05, 0.1, 0.14):
            found = forecast(axis(200), y, limit)
            for edge, when in ((band.low, found.low), (band.middle, found.step), (band.high, found.high)):
                under = np.flatnonzero(edge <= limit)
                if math.isinf(when) or when < 200:
                    assert len(under) == 0 or math.isfinite(when)
                else:
                    assert band.steps[under[0]] == pytest.approx(when, rel=0.02)
    assert len(fan([], []).steps) == 0
    assert len(fan(axis(30), ramp(30)).steps) == 0
    assert (fan(axis(50), np.full(50, 2.0)).high == 2.0).all()


WITHOUT_TREND: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "white": lambda rng, n: noise(rng, n, 0.0),
    "correlated": lambda rng, n: noise(rng, n, 0.5),
    "spiky": lambda rng, n: rng.standard_t(2, n),
    "early step": lambda rng, n: 6.0 * (axis(n) > 0.3 * n) + noise(rng, n, 0.0),
    "step": lambda rng, n: -16.0 * (axis(n) >= n // 2) + noise(rng, n, 0.0),
    "late step": lambda rng, n: 6.0 * (axis(n) > 0.81 * n) + noise(rng, n, 0.0),
}


@pytest.mark.parametrize("name", WITHOUT_TREND)
@pytest.mark.parametrize("n", [60, 300, 3000])
def test_without_a_trend_the_fan_is_a_level_band(name: str, n: int) -> None:
    widths, moves = [], []
    for seed in range(10):
        y = 0.5 + 0.03 * WITHOUT_TREND[name](np.random.default_rng(seed), n)
        band = fan(axis(n), y)
        if len(band.steps):
            assert (band.low < band.middle).all()
            assert (band.middle < band.high).all()
            widths.append((band.high[-1] - band.low[-1]) / np.ptp(y))
            moves.append(abs(band.middle[-1] - band.middle[0]) / np.ptp(y))
    if widths:
        assert np.median(widths) < 2.0
        assert np.median(moves) < 0.1
        assert max(moves) < 0.6
    assert widths or name == "step"


@pytest.mark.parametrize("n", [100, 300, 3000])
def test_far_limits_are_not_reached_without_a_trend(n: int) -> None:
    steps = axis(n)
    chances = []
    for seed in range(20):
        y = 0.5 + 0.03 * noise(np.random.default_rng(seed), n, 0.0)
        for horizon in (None, 100.0 * n):
            assert forecast(steps, y, 1e9, horizon=horizon).chance < 1e-9
        chances += [forecast(steps, y, limit).chance for limit in (0.05, 0.95)]
    assert max(chances) < 0.1
    assert np.mean(chances) < 0.01


def test_weak_trends_do_not_explode() -> None:
    for change in (0.3, 1.0, 2.0):
        for seed in range(10):
            y = ramp(300, change) + noise(np.random.default_rng(seed), 300, 0.0)
            band = fan(axis(300), y)
            assert (band.high - band.low).max() < 3.0 * np.ptp(y)
            assert abs(band.middle[-1] - band.middle[0]) < 5.0 * change


@pytest.mark.parametrize("curve", [0.0 * TIME, TIME, np.exp(-2.0 * TIME), TIME**2, np.exp(3.0 * TIME - 3.0)])
def test_the_chance_beyond_an_edge_of_the_fan_is_a_tenth(curve: Array) -> None:
    for seed in range(4):
        y = curve[:SEEN] + 0.02 * noise(np.random.default_rng(seed), SEEN, 0.5)
        band = fan(axis(SEEN), y)
        for edge in (band.low[-1], band.high[-1]):
            found = forecast(axis(SEEN), y, edge)
            likely = abs(edge - found.level) > abs(band.middle[-1] - found.level)
            assert found.reason == "moving_away" or found.chance == pytest.approx(0.1 if likely else 0.9, abs=0.05)


def test_exponential_growth_is_still_seen_coming() -> None:
    """From a hundredth to one in the window; the alarm at ten is half a window away."""
    curve = 0.01 * np.exp(math.log(100.0) * TIME)
    for seed in range(5):
        y = curve[:SEEN] + 0.01 * noise(np.random.default_rng(seed), SEEN, 0.5)
        found = forecast(axis(SEEN), y, 10.0)
        assert found.verdict in {"will", "cannot_tell"}
        assert found.low / 1.05 < 1.5 * (SEEN - 1) < found.high * 1.05
        assert found.chance > 0.8


def test_a_chance_is_at_most_one() -> None:
    for seed in range(20):
        y = ramp(200, 1.0) + 0.03 * noise(np.random.default_rng(seed), 200, 0.0)
        for limit in (0.5, 1.02, 1.2):
            assert forecast(axis(200), y, limit).chance <= 1.0


def test_the_fan_keeps_to_the_bounds_of_the_metric() -> None:
    y = 1.0 - ramp(200, 0.6) + 0.01 * noise(np.random.default_rng(1), 200, 0.5)
    free, share = fan(axis(200), y), fan(axis(200), y, low=0.0, high=1.0)
    assert free.low[-1] < 0.0
    for open_edge, edge in zip(free[1:], share[1:], strict=True):
        assert (edge == np.clip(open_edge, 0.0, 1.0)).all()
    assert (fan(axis(200), -y, high=math.nan).low == fan(axis(200), -y).low).all()


def test_there_is_a_fan_where_there_is_a_chance() -> None:
    rng = np.random.default_rng(9)
    empty = 0
    for phi in (0.0, 0.9):
        for curve in (0.0 * TIME, np.exp(-2 * TIME), np.maximum(1 - 2 * TIME, 0.4)):
            y = curve[:SEEN] + 0.05 * noise(rng, SEEN, phi)
            chance = forecast(axis(SEEN), y, -9.0).chance
            assert (len(fan(axis(SEEN), y).steps) == 0) == math.isnan(chance)
            empty += math.isnan(chance)
    assert 0 < empty < 6


HOSTILE: dict[str, list[float]] = {
    "one": [1.0],
    "two": [1.0, 2.0],
    "all nan": [math.nan] * 60,
    "nan and inf": [1.0, math.nan, math.inf, -math.inf, 2.0] * 30,
    "huge": [1e300 * (1 + i / 60) for i in range(60)],
    "extreme": [(-1.0) ** i * 1.7e308 for i in range(60)],
    "tiny": [1e-300 * i for i in range(60)],
    "subnormal": [5e-324 * (i % 3) for i in range(60)],
    "one huge": [math.sin(i) for i in range(59)] + [1e300],
    "mixed": [1e300, 1e-300] * 30,
    "integers": [float(i // 5) for i in range(120)],
    "two-valued": [float(i > 40) for i in range(120)],
    "rare": [float(i % 29 == 0) for i in range(120)],
    "once": [0.0] * 119 + [1.0],
    "long two-valued": [float(i % 7 == 0) for i in range(2500)],
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("limit", [0.5, 0.0, -1e308, math.inf, -math.inf, math.nan])
def test_degenerate_series_never_raise(name: str, limit: float) -> None:
    well_formed(forecast(axis(len(HOSTILE[name])), HOSTILE[name], limit))
    fan(axis(len(HOSTILE[name])), HOSTILE[name])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=30, max_size=80), st.floats(allow_nan=True))
def test_any_floats_never_raise(values: list[float], limit: float) -> None:
    well_formed(forecast(axis(len(values)), values, limit))


def well_formed(found: Forecast) -> None:
    decided = found.verdict != "undecided"
    assert 0.0 <= found.chance <= 1.0 if decided else found.reason is not None or math.isnan(found.chance)
    assert found.low <= found.step <= found.high
    assert not (decided and math.isnan(found.level))


def series(seed: int, n: int, phi: float, kind: int) -> Array:
    u = axis(n) / (n - 1)
    shape = [-u, np.exp(-2 * u), -(u**2), -1 / (1 + np.exp(-8 * (u - 1))), 0 * u][kind]
    return 0.6 * shape + 0.02 * noise(np.random.default_rng(seed), n, phi)


some_series = st.builds(
    series, st.integers(0, 10_000), st.sampled_from([60, 150, 300]), st.sampled_from([0.0, 0.5]), st.integers(0, 4)
)


@settings(max_examples=40, deadline=None)
@given(some_series, st.sampled_from([1e-12, 0.5, -1.0, 1024.0]), st.sampled_from([0.0, 3.0]), st.floats(-1.0, 1.0))
def test_unit_origin_and_direction_do_not_matter(y: Array, scale: float, shift: float, limit: float) -> None:
    x = axis(len(y))
    plain = forecast(x, y, limit)
    moved = forecast(7 * x + 3, scale * (y + shift), scale * (limit + shift))
    same(moved._replace(level=plain.level), plain, 7.0, 3.0)


def same(found: Forecast, plain: Forecast, scale: float, shift: float) -> None:
    if min(abs(plain.chance - edge) for edge in (0.0, 0.1, 0.5, 0.9, 1.0)) < 1e-5:
        return
    assert (found.verdict, found.reason) == (plain.verdict, plain.reason)
    assert found.chance == pytest.approx(plain.chance, abs=1e-6, nan_ok=True)
    for ours, theirs in zip(found[3:7], plain[3:7], strict=True):
        assert ours == pytest.approx(scale * theirs + shift, rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(some_series, st.integers(0, 1000))
def test_rows_logged_again_or_out_of_order_change_nothing(y: Array, seed: int) -> None:
    x = axis(len(y))
    rng = np.random.default_rng(seed)
    again = rng.integers(0, len(y), 40)
    order = rng.permutation(len(y))
    steps, values = np.concatenate((x[order], x[again])), np.concatenate((y[order], y[again]))
    assert repr(forecast(steps, values, -0.5)) == repr(forecast(x, y, -0.5))


@settings(max_examples=30, deadline=None)
@given(some_series, st.lists(st.floats(-2.0, 0.5), min_size=2, max_size=6))
def test_nearer_limits_are_likelier_and_earlier(y: Array, limits: list[float]) -> None:
    found = [(limit, forecast(axis(len(y)), y, limit)) for limit in sorted(limits)]
    ahead = [f for limit, f in found if f.reason is None and limit < f.level]
    for farther, nearer in pairwise(ahead):
        assert farther.chance <= nearer.chance + 1e-9
        assert farther.step >= nearer.step - 1e-6


def test_half_of_the_rows_tell_the_same_story() -> None:
    rng = np.random.default_rng(8)
    y = decay(1200, 0.7, 1.44) + 0.012 * noise(rng, 1200, 0.5)
    for keep in (slice(None, None, 2), np.sort(rng.choice(1200, 500, replace=False))):
        full, part = forecast(axis(1200), y, 0.07), forecast(axis(1200)[keep], y[keep], 0.07)
        assert full.verdict == part.verdict == "will"
        assert part.step == pytest.approx(full.step, rel=0.1)


def test_long_series_are_quick() -> None:
    y = np.exp(-2 * axis(20_000) / 20_000) + 0.02 * noise(np.random.default_rng(0), 20_000, 0.5)
    forecast(axis(20_000), y[::-1], 0.07)
    began = time.process_time()
    forecast(axis(20_000), y, 0.07)
    assert time.process_time() - began < 0.3


World = Callable[[np.random.Generator], tuple[Array, float]]
"""A course of a metric over ``TIME`` and the limit that is asked about."""

FLOOR, ALARM, HEIGHT = 0.07, 0.5, 0.7


def exponential(rng: np.random.Generator) -> tuple[Array, float]:
    return HEIGHT * np.exp(-math.log(HEIGHT / FLOOR) / rng.uniform(1.25, 3.0) * TIME), FLOOR


def exponential_to_below(rng: np.random.Generator) -> tuple[Array, float]:
    end, at = rng.uniform(0.0, 0.05), rng.uniform(1.25, 3.0)
    return end + (HEIGHT - end) * np.exp(-math.log((HEIGHT - end) / (FLOOR - end)) / at * TIME), FLOOR


def levelling_off(rng: np.random.Generator) -> tuple[Array, float]:
    end = rng.uniform(0.11, 0.35)
    return end + (HEIGHT - end) * np.exp(-rng.uniform(1.2, 5.0) * TIME), FLOOR


def power_law(rng: np.random.Generator) -> tuple[Array, float]:
    exponent = rng.uniform(0.7, 2.0)
    return HEIGHT * (1 + TIME * ((HEIGHT / FLOOR) ** (1 / exponent) - 1) / rng.uniform(1.25, 3.0)) ** -exponent, FLOOR


def slow_power_law(rng: np.random.Generator) -> tuple[Array, float]:
    return HEIGHT * (1 + TIME / rng.uniform(0.05, 0.3)) ** -rng.uniform(0.1, 0.4), FLOOR


def straight(rng: np.random.Generator) -> tuple[Array, float]:
    return np.maximum(HEIGHT - (HEIGHT - FLOOR) / rng.uniform(1.25, 3.0) * TIME, 0.01), FLOOR


def late_sigmoid(rng: np.random.Generator) -> tuple[Array, float]:
    middle, width = rng.uniform(0.8, 1.6), rng.uniform(0.15, 0.3)
    return 0.02 + (HEIGHT - 0.02) / (1 + np.exp((TIME - middle) / width)), FLOOR


def late_sigmoid_above(rng: np.random.Generator) -> tuple[Array, float]:
    middle, width, end = rng.uniform(0.8, 1.6), rng.uniform(0.15, 0.3), rng.uniform(0.11, 0.35)
    return end + (HEIGHT - end) / (1 + np.exp((TIME - middle) / width)), FLOOR


def flat(rng: np.random.Generator) -> tuple[Array, float]:
    return np.full_like(TIME, rng.uniform(0.15, 0.6)), FLOOR


def growing(rng: np.random.Generator) -> tuple[Array, float]:
    return 0.02 + (ALARM - 0.02) * (TIME / rng.uniform(1.2, 3.0)) ** rng.uniform(1.0, 2.2), ALARM


def growing_to_below(rng: np.random.Generator) -> tuple[Array, float]:
    return 0.02 + rng.uniform(0.1, 0.4) * (1 - np.exp(-rng.uniform(1.5, 5.0) * TIME)), ALARM


def outcomes(world: World, runs: int, sd: float = 0.012, phi: float = 0.5) -> dict[str, float]:
    """Shares over runs that begin on this side of the limit: of the decided ones, how many intervals ``cover`` the
    crossing (to 1 % of a window), end (``finite``), end and cover, say that it is likely, announce it."""
    rng = np.random.default_rng([20_26, *map(ord, world.__name__)])
    rows: list[tuple[bool, bool, bool, bool]] = []
    undecided = 0
    while len(rows) + undecided < runs:
        curve, limit = world(rng)
        hit = np.flatnonzero(curve <= limit if curve[0] > limit else curve >= limit)
        crossing = TIME[hit[0]] if len(hit) and TIME[hit[0]] <= 1 + WINDOWS else math.inf
        if crossing <= 1.02:
            continue
        y = curve[:SEEN] + (sd if limit == FLOOR else sd / 1.2) * noise(rng, SEEN, phi)
        found = forecast(axis(SEEN), y, limit)
        if found.verdict == "undecided":
            undecided += 1
            continue
        low, high = found.low / (SEEN - 1), found.high / (SEEN - 1)
        cover = low - 0.01 <= crossing <= high + 0.01 if math.isfinite(crossing) else math.isinf(high)
        rows.append((cover, math.isfinite(high), found.chance > 0.5, found.verdict == "will"))
    table = np.array(rows, dtype=float)
    return {
        "undecided": undecided / runs,
        "cover": float(table[:, 0].mean()),
        "finite": float(table[:, 1].mean()),
        "finite and cover": float((table[:, 0] * table[:, 1]).mean()),
        "likely": float(table[:, 2].mean()),
        "will": float(table[:, 3].mean()),
    }


@pytest.mark.slow
@pytest.mark.parametrize("world", [levelling_off, slow_power_law, flat, growing_to_below])
def test_x1_what_levels_off_is_not_said_to_reach(
    world: World, part: Callable[[int], int], most_alarms: Callable[[int, float], int]
) -> None:
    made = part(200)
    found = outcomes(world, made)
    assert found["likely"] <= most_alarms(made, 0.05) / made
    assert found["will"] == 0.0
    assert found["undecided"] <= most_alarms(made, 0.15) / made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "finite"),
    [(exponential, 0.45), (exponential_to_below, 0.3), (power_law, 0.15), (straight, 0.7), (growing, 0.1)],
)
def test_x2_intervals_cover(
    world: World,
    finite: float,
    part: Callable[[int], int],
    most_alarms: Callable[[int, float], int],
    least_hits: Callable[[int, float], float],
) -> None:
    made = part(200)
    found = outcomes(world, made)
    assert found["cover"] >= least_hits(made, 0.80) / made
    assert found["finite"] >= least_hits(made, finite) / made
    assert found["undecided"] <= most_alarms(made, 0.03) / made


@pytest.mark.slow
def test_x3_intervals_cover_while_a_fall_still_speeds_up(
    part: Callable[[int], int], most_alarms: Callable[[int, float], int], least_hits: Callable[[int, float], float]
) -> None:
    made = part(200)
    found = outcomes(late_sigmoid, made)
    assert found["cover"] >= least_hits(made, 0.80) / made
    assert found["likely"] >= least_hits(made, 0.5) / made
    assert outcomes(late_sigmoid_above, made)["will"] <= most_alarms(made, 0.05) / made


@pytest.mark.long
@pytest.mark.parametrize("world", [exponential, straight, growing, late_sigmoid])
def test_x_intervals_cover_in_strong_noise(world: World) -> None:
    assert outcomes(world, 100, sd=0.036)["cover"] >= 0.75


@pytest.mark.long
@pytest.mark.parametrize(
    ("world", "cover"), [(exponential, 0.75), (straight, 0.85), (growing, 0.7), (late_sigmoid, 0.5)]
)
def test_x_intervals_in_slow_noise(world: World, cover: float) -> None:
    """Most runs stay undecided here, and those that are not are the ones whose noise looks quicker than it is."""
    found = outcomes(world, 150, phi=0.9)
    assert found["cover"] >= cover
    assert found["undecided"] >= 0.4


@pytest.mark.long
@pytest.mark.parametrize(("sd", "phi", "most"), [(0.036, 0.5, 0.01), (0.012, 0.9, 0.05)])
def test_x_what_levels_off_is_not_said_to_reach_in_any_noise(sd: float, phi: float, most: float) -> None:
    assert outcomes(levelling_off, 150, sd, phi)["will"] <= most


@pytest.mark.parametrize("tau", [40.0, 60.0, 100.0])
@pytest.mark.parametrize("sd", [0.001, 0.01])
def test_what_has_levelled_off_does_not_reach_a_limit_just_above(tau: float, sd: float) -> None:
    y = 1.0 - np.exp(-axis(300) / tau) + sd * noise(np.random.default_rng(7), 300, 0.0)
    found = forecast(axis(300), y, 1.0 + max(5.0 * sd, 0.02))
    assert found.verdict not in ("will", "reached")
    assert found.level == pytest.approx(float(y[-30:].mean()), abs=0.02)
