"""An outcome beside a training signal: known answers, look-alikes that stay silent, and rows D of the acceptance
table."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.stats import coupling
from rlclinic.stats.coupling import Coupling, coupled, fall, lead
from rlclinic.stats.level import answers_behind
from series import Array, axis, decay, noise, ramp, sigmoid

STEPS = 400
T = axis(STEPS) / (STEPS - 1)


def logistic(start: float, top: float, middle: float, steepness: float) -> Array:
    return np.asarray(start + (top - start) / (1.0 + np.exp(-steepness * (T - middle))))


def world(name: str) -> tuple[Array, Array, float | None]:
    """(reward, true held-out score, share of the run at which they part) without noise."""
    if name.startswith("falls by"):
        reward, at = logistic(0.2, 0.93, 0.4, 8), 0.45
        top = float(np.interp(at, T, reward)) - 0.05
        return reward, np.where(at > T, reward - 0.05, top - float(name[8:]) * (T - at) / (1 - at)), at
    if name == "stalls":
        reward, at = logistic(0.2, 0.93, 0.5, 6), 0.4
        return reward, np.minimum(reward, float(np.interp(at, T, reward))) - 0.05, at
    reward = {
        "learns": logistic(0.2, 0.75, 0.5, 7),
        "saturates at .965": logistic(0.3, 0.965, 0.25, 12),
        "saturates at .995": logistic(0.4, 0.995, 0.2, 15),
        "half": logistic(0.2, 0.9, 0.45, 8),
        "concave": logistic(0.2, 0.9, 0.5, 7),
        "flat": np.full(STEPS, 0.5),
        "never": logistic(0.2, 0.8, 0.5, 7),
        "no room": logistic(0.2, 0.8, 0.5, 7),
        "saturated from the start": np.full(STEPS, 0.97),
    }[name]
    score = {
        "half": 0.15 + 0.5 * (reward - 0.2),
        "concave": 0.2 + 0.45 * ((reward - 0.2) / 0.7) ** 0.6,
        "never": np.full(STEPS, 0.35),
        "no room": np.full(STEPS, 0.93),
        "saturated from the start": np.full(STEPS, 0.4),
    }.get(name, reward - 0.05)
    return reward, score, None


def draw(name: str, m: int, questions: int, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """Steps, logged reward, steps of the evaluations, scores."""
    reward, score, _ = world(name)
    at = np.linspace(0, STEPS - 1, m).round().astype(int)
    scores = rng.binomial(questions, score[at]) / questions
    return axis(STEPS), reward + 0.02 * rng.standard_normal(STEPS), at.astype(float), scores


def test_a_score_that_falls_is_dated() -> None:
    run = draw("falls by .15", 20, 500, np.random.default_rng(1))
    found = coupled(*run, questions=500)
    assert found.verdict == "falling"
    assert found.effect == pytest.approx(0.15, abs=0.06)
    assert found.peak - found.late == pytest.approx(found.effect)
    assert found.rollback is not None
    assert found.rollback.low <= 180 <= found.rollback.high + 21
    assert found.advise == found.rollback.low
    assert found.noise == "questions"
    assert found.sd == pytest.approx(math.sqrt(0.24 / 500), rel=0.3)


@pytest.mark.parametrize(("name", "verdict"), [("falls by .30", "falling"), ("stalls", "stalled")])
def test_transfer_is_known_whenever_the_signal_moved(name: str, verdict: str) -> None:
    found = coupled(*draw(name, 20, 1000, np.random.default_rng(5)), questions=1000)
    reward, score, _ = world(name)
    at = np.linspace(0, STEPS - 1, 20).round().astype(int)
    assert found.verdict == verdict
    assert found.transfer == pytest.approx(np.polyfit(reward[at], score[at], 1)[0], abs=0.06)
    assert found.transfer_low < found.transfer < found.transfer_high
    still = coupled(*draw("flat", 20, 1000, np.random.default_rng(6)), questions=1000)
    assert math.isnan(still.transfer)


def test_a_score_that_stalls_is_dated_from_ten_evaluations_on() -> None:
    found = coupled(*draw("stalls", 17, 1000, np.random.default_rng(2)), questions=1000)
    assert found.verdict == "stalled"
    assert found.effect == pytest.approx(0.4, abs=0.15)
    assert found.rollback is not None
    assert found.rollback.low <= 160 <= found.rollback.high + 25
    few = coupled(*draw("stalls", 8, 1000, np.random.default_rng(3)), questions=1000)
    assert few.verdict == "stalled"
    assert few.rollback is None
    assert few.advise is None
    assert "no date" in few.reason


def test_no_transfer_is_shown_not_assumed() -> None:
    rng = np.random.default_rng(4)
    shown = coupled(*draw("never", 17, 500, rng), questions=500)
    assert shown.verdict == "no_transfer"
    assert shown.rise == pytest.approx(0.57, abs=0.06)
    assert shown.transfer_low < 0.0 < shown.transfer_high < 0.25
    assert shown.p_value < 0.01
    wide = coupled(*draw("never", 8, 16, rng), questions=16)
    assert wide.verdict == "undecided"
    assert "noisy" in wide.reason


@pytest.mark.parametrize("name", ["no room", "saturated from the start", "half", "flat"])
def test_no_transfer_needs_a_rise_and_room(name: str) -> None:
    rng = np.random.default_rng(5)
    seen = Counter(coupled(*draw(name, 17, 500, rng), questions=500).verdict for _ in range(20))
    assert seen["no_transfer"] == 0
    assert seen["falling"] + seen["stalled"] <= 1  # each has a level of 1 %


def test_units_that_differ_need_a_scale() -> None:
    steps, reward, at, scores = draw("never", 17, 500, np.random.default_rng(6))
    points = 10.0 * reward - 3.0
    assert coupled(steps, points, at, scores, questions=500).verdict == "undecided"
    assert coupled(steps, points, at, scores, questions=500, full=0.1).verdict == "no_transfer"
    assert coupled(steps, points, at, scores, questions=500, full=0.1, ceiling=0.4).verdict == "undecided"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("learns", "follows"), ("falls by .30", "falling"), ("stalls", "stalled"), ("never", "no_transfer")],
)
def test_a_dense_outcome_is_read_in_windows(name: str, verdict: str) -> None:
    reward, score, at = world(name)
    rng = np.random.default_rng(7)
    found = coupled(
        axis(STEPS), reward + 0.02 * noise(rng, STEPS, 0.3), axis(STEPS), score + 0.03 * noise(rng, STEPS, 0.3)
    )
    assert found.verdict == verdict
    assert found.noise == "windows"
    assert 24 <= found.m <= 40
    if at is not None:
        assert found.rollback is not None
        assert found.rollback.low - 10 <= at * STEPS <= found.rollback.high + 10


def test_more_scatter_than_questions_explain_is_believed() -> None:
    rng = np.random.default_rng(8)
    scores = np.round(0.5 + 0.08 * rng.standard_normal(30), 4)
    found = fall(axis(30), scores, questions=20_000)
    assert found.noise == "differences"
    assert found.sd == pytest.approx(0.08, rel=0.5)
    assert found.p_value > 0.01


def test_few_evaluations_decide_nothing() -> None:
    found = coupled(axis(100), axis(100) / 100, [0, 20, 40, 60, 80], [0.2, 0.5, 0.4, 0.2, 0.1], questions=1000)
    assert found.verdict == "undecided"
    assert "5 evaluations" in found.reason
    elsewhere = coupled(axis(100), axis(100) / 100, 5000 + axis(20), axis(20) / 20)
    assert elsewhere.verdict == "undecided"
    assert fall([0, 1, 2], [0.5, 0.9, 0.1]).p_value == 1.0


def test_fall_agrees_with_enumerated_fits() -> None:
    """The pooled fits against a search over all ways to cut six points into blocks."""
    y = np.array([0.1, 0.4, 0.3, 0.6, 0.2, 0.5])

    def loss(values: Array) -> float:
        best = math.inf
        for cuts in range(1 << (len(values) - 1)):
            blocks = np.split(values, [i + 1 for i in range(len(values) - 1) if cuts >> i & 1])
            means = [b.mean() for b in blocks]
            if all(p <= q for p, q in itertools.pairwise(means)):
                best = min(best, sum(float(((b - b.mean()) ** 2).sum()) for b in blocks))
        return best

    prefixes = coupling._prefix_loss(y[None, :])[0]
    assert prefixes == pytest.approx([loss(y[: k + 1]) for k in range(6)], abs=1e-12)
    whole, turned = coupling._turns(y)
    assert whole == pytest.approx(loss(y))
    assert turned == pytest.approx([loss(y[: k + 1]) + loss(y[k + 1 :][::-1]) for k in range(5)], abs=1e-12)


def test_the_null_is_quick_and_found_again() -> None:
    coupling._null.cache_clear()
    began = time.process_time()
    first = coupling._null(40)
    assert time.process_time() - began < 0.3
    assert coupling._null(40) is first


@pytest.mark.parametrize(("questions", "digits"), [(164, 12), (164, 3), (500, 12), (1319, 12), (1319, 4), (30, 3)])
def test_questions_are_read_off_the_lattice(questions: int, digits: int) -> None:
    rng = np.random.default_rng(questions)
    scores = np.round(rng.binomial(questions, np.linspace(0.2, 0.7, 20)) / questions, digits)
    assert answers_behind(scores) == questions
    assert answers_behind(scores.astype(np.float32)) in (questions, None)


def test_no_lattice_is_no_number() -> None:
    rng = np.random.default_rng(9)
    assert answers_behind(np.round(rng.uniform(0.2, 0.8, 20), 3)) is None
    assert answers_behind(rng.uniform(0.2, 0.8, 20)) is None
    assert answers_behind([0.0, 1.0, 1.0]) is None
    assert answers_behind([0.5, 0.25, 3.0]) is None
    assert answers_behind([]) is None
    assert answers_behind([math.nan, math.inf]) is None


def test_lead_by_lags() -> None:
    rng = np.random.default_rng(10)
    a = noise(rng, 410, 0.7)
    b = np.roll(a, 3) + 0.5 * noise(rng, 410, 0.7)
    found = lead(5 * axis(400), a[10:], 5 * axis(400), b[10:])
    assert (found.verdict, found.by) == ("a", "lags")
    assert found.low <= found.lag == 15.0 <= found.high
    assert found.correlation > 0.4
    back = lead(5 * axis(400), b[10:], 5 * axis(400), a[10:])
    assert (back.verdict, back.lag) == ("b", -15.0)
    assert lead(axis(400), a[10:], axis(400), -a[10:] + 0.5 * noise(rng, 400, 0.7)).verdict == "together"


def test_lead_by_onsets_at_different_cadences() -> None:
    rng = np.random.default_rng(11)
    a = 4.0 * (axis(400) >= 150) + noise(rng, 400, 0.5)
    b = (-4.0 * (axis(400) >= 230) + noise(rng, 400, 0.5))[::5]
    found = lead(axis(400), a, axis(400)[::5], b)
    assert (found.verdict, found.by) == ("a", "onsets")
    assert found.low <= 80 <= found.high
    assert found.p_value < 0.01
    same = lead(axis(400), a, axis(400)[::5], (4.0 * (axis(400) >= 150) + noise(rng, 400, 0.5))[::5])
    assert same.verdict in ("together", "undecided")


HOSTILE: list[list[float]] = [
    [], [1.0], [1.0, 2.0], [0.5] * 60, [0.0] * 12, [math.nan] * 20, [1.0, math.nan, math.inf, 2.0] * 12,
    [1e300 * (1 + math.sin(i)) for i in range(60)], [(-1.0) ** i * 1.7e308 for i in range(30)],
    [5e-324 * (i % 3) for i in range(20)], [float(i % 5) for i in range(50)], [float(i > 20) for i in range(45)],
]  # fmt: skip


@pytest.mark.parametrize("score", HOSTILE)
def test_degenerate_series_never_raise(score: list[float]) -> None:
    for signal in (*HOSTILE, (axis(80) / 80).tolist()):
        found = coupled(axis(len(signal)), signal, axis(len(score)), score, questions=100)
        assert found.verdict not in {"falling", "stalled"} or found.effect > 0.0
        coupled(axis(len(signal)), signal, axis(len(score)), score, full=1.0, ceiling=2.0)
        lead(axis(len(signal)), signal, axis(len(score)), score)
    fall(axis(len(score)), score, questions=100)
    answers_behind(score)


any_floats = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60)


@settings(max_examples=60, deadline=None)
@given(any_floats, any_floats, st.sampled_from([None, 1, 200]))
def test_any_floats_never_raise(signal: list[float], score: list[float], questions: int | None) -> None:
    found = coupled(axis(len(signal)), signal, 2 * axis(len(score)), score, questions=questions)
    assert 0.0 <= found.p_value <= 1.0
    lead(axis(len(signal)), signal, axis(len(score)), score)


def same(one: Coupling, other: Coupling) -> bool:
    return (one.verdict, one.rollback) == (other.verdict, other.rollback) and math.isclose(
        one.p_value, other.p_value, rel_tol=1e-4, abs_tol=1e-9
    )


worlds = st.sampled_from(["learns", "flat", "falls by .30", "stalls", "never"])


@settings(max_examples=25, deadline=None)
@given(worlds, st.sampled_from([8, 17, 60]), st.integers(0, 1000), st.sampled_from([1e-6, 4.0, 1e6]))
def test_unit_and_origin_do_not_matter(name: str, m: int, seed: int, scale: float) -> None:
    steps, reward, at, scores = draw(name, m, 200, np.random.default_rng(seed))
    plain = coupled(steps, reward + 5.0, at, scores + 2.0, full=1.0, ceiling=3.0)
    moved = coupled(steps, scale * reward, at, 8.0 * scores - 9.0, full=8.0 / scale, ceiling=-1.0)
    assert same(plain, moved)
    assert moved.effect == pytest.approx(8.0 * plain.effect, rel=1e-5, abs=1e-9)
    later = coupled(steps + 1000, reward + 5.0, at + 1000, scores + 2.0, full=1.0, ceiling=3.0)
    assert plain.p_value == pytest.approx(later.p_value, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(worlds, st.integers(0, 1000))
def test_rows_logged_again_change_nothing(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps, reward, at, scores = draw(name, 17, 200, rng)
    i, j = rng.integers(0, STEPS, 50), rng.integers(0, 17, 5)
    again = coupled(
        np.append(steps, steps[i]), np.append(reward, reward[i]), np.append(at, at[j]), np.append(scores, scores[j]),
        questions=200,
    )  # fmt: skip
    assert same(again, coupled(steps, reward, at, scores, questions=200))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([30, 120]), st.sampled_from([0.0, 0.8]))
def test_lead_is_antisymmetric(seed: int, n: int, phi: float) -> None:
    rng = np.random.default_rng(seed)
    a = noise(rng, n, phi) + 3.0 * (axis(n) > 0.3 * n)
    b = np.roll(a, 2) + 0.5 * noise(rng, n, phi)
    there, back = lead(axis(n), a, axis(n), b), lead(axis(n), b, axis(n), a)
    assert back.verdict == {"a": "b", "b": "a"}.get(there.verdict, there.verdict)
    assert back.by == there.by
    assert back.p_value == pytest.approx(there.p_value, rel=1e-6)


HEALTHY = ["learns", "saturates at .965", "saturates at .995", "half", "concave", "flat"]
CELLS = [(m, questions) for m in (8, 17, 40) for questions in (50, 200, 1000)]


def verdicts(name: str, m: int, questions: int, known: bool, runs: int) -> tuple[Counter[str], list[Coupling]]:
    rng = np.random.default_rng([41, m, questions, sum(map(ord, name))])
    found = [coupled(*draw(name, m, questions, rng), questions=questions if known else None) for _ in range(runs)]
    return Counter(f.verdict for f in found), found


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", HEALTHY)
def test_d1_healthy_worlds_are_silent(
    name: str,
    known: bool,
    repeats: Callable[[int], int],
    most_alarms: Callable[[int, float], int],
    request: pytest.FixtureRequest,
) -> None:
    made = repeats(100)
    cells = CELLS if request.config.getoption("--full") else CELLS[::4]  # few, some and many of both
    alarms = []
    for m, questions in cells:
        seen, _ = verdicts(name, m, questions, known, made)
        alarms.append(seen["falling"] + seen["stalled"] + seen["no_transfer"])
    assert sum(alarms) <= most_alarms(made * len(cells), 0.01)
    assert max(alarms) <= most_alarms(made, 0.03)


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True])
def test_d2_a_fall_is_found_and_dated(known: bool) -> None:
    seen, found = verdicts("falls by .15", 17, 200, known, 100)
    assert seen["falling"] + seen["stalled"] >= 95
    evaluations = np.linspace(0, STEPS - 1, 17).round()
    truth = int(np.flatnonzero(evaluations <= 0.45 * (STEPS - 1))[-1])
    dates = [f.rollback for f in found if f.rollback is not None]
    assert np.median([abs(int(np.searchsorted(evaluations, d.step)) - truth) for d in dates]) <= 1
    assert np.mean([d.low <= evaluations[truth] <= d.high for d in dates]) >= 0.8


@pytest.mark.slow
def test_d3_a_stall_is_found() -> None:
    seen, found = verdicts("stalls", 17, 1000, True, 100)
    assert seen["stalled"] >= 95
    dates = [f.rollback for f in found if f.rollback is not None]
    assert np.mean([d.low <= 150 <= d.high for d in dates]) >= 0.8


@pytest.mark.long
@pytest.mark.parametrize(("m", "questions", "least"), [(8, 200, 0.8), (17, 50, 0.6), (17, 200, 0.95), (40, 1000, 0.95)])
def test_no_transfer_is_found(m: int, questions: int, least: float) -> None:
    seen, _ = verdicts("never", m, questions, True, 100)
    assert seen["no_transfer"] >= least * 100
    assert seen["falling"] + seen["stalled"] <= 5


@pytest.mark.long
@pytest.mark.parametrize(("n", "phi"), [(60, 0.5), (150, 0.9), (400, 0.5), (400, 0.9)])
def test_dense_outcomes_with_slow_noise_are_silent(n: int, phi: float) -> None:
    rng = np.random.default_rng([43, n])
    rises = 0.2 + 0.6 * axis(n) / n
    alarms = []
    for _ in range(400):
        seen = coupled(axis(n), rises + 0.03 * noise(rng, n, phi), axis(n), 0.4 + 0.05 * noise(rng, n, phi)).verdict
        alarms.append(seen in ("falling", "stalled"))
    assert np.mean(alarms) <= 0.02


@pytest.mark.long
@pytest.mark.parametrize("n", [100, 400])
def test_unrelated_series_do_not_lead(n: int) -> None:
    rng = np.random.default_rng([44, n])
    trends = [0.0 * axis(n), ramp(n, 8.0), decay(n, 8.0), sigmoid(n, 8.0)]
    led = []
    for i in range(300):
        one, other = trends[i % 4], trends[(i // 4) % 4]
        if i % 4 == 3 or (i // 4) % 4 == 3:  # a sigmoid and a ramp do leave their levels at different times
            one = other
        a, b = one + noise(rng, n, 0.9), other + noise(rng, n, 0.9)
        led.append(lead(axis(n), a, axis(n), b).verdict in ("a", "b"))
    assert np.mean(led) <= 0.02


def test_a_steep_rise_that_levels_off_in_a_few_dozen_rows_has_risen_on() -> None:
    steps, evaluations = np.linspace(1, 200, 41), np.arange(20.0, 201.0, 20.0)
    course = 0.9 - 0.45 * np.exp(-steps / 15) + 0.0004 * steps
    rising, level = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(4300 + seed)
        spread = 0.018 * noise(rng, 41, 0.2)
        falling = np.round(128 * np.linspace(0.85, 0.07, 10) + rng.normal(0, 4, 10)).clip(0, 128) / 128
        rising += coupled(steps, course + spread, evaluations, falling, questions=128).verdict == "falling"
        level += coupled(steps, 0.9 + spread, evaluations, falling, questions=128).verdict == "falling"
    assert rising >= 15
    assert level <= 1


@pytest.mark.parametrize("m", [6, 13, 40])
def test_a_line_that_only_rises_has_not_fallen(m: int) -> None:
    found = fall(axis(m), np.linspace(0.0, 20.0, m))
    assert found.p_value > 0.5
    assert found.drop == 0.0
    assert found.rollback is None
