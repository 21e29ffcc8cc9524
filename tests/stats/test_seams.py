"""The warm-up to leave out, and onsets that fall on a restart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlclinic.model import Onset
from rlclinic.stats.excursion import excursions
from rlclinic.stats.seams import coincident, settled_from
from rlclinic.stats.shift import step_scan, steps_found
from series import axis, decay, noise

EVENTS = {50.0: "resumed", 120.0: "learning rate changed", 300.0: "restarted"}


def test_settled_from() -> None:
    assert settled_from(axis(401) + 100) == 108.0
    assert settled_from(axis(401) + 100, 15) == 115.0
    assert settled_from(axis(401) * 10, 15) == 80.0
    assert settled_from([math.nan, 5.0, 3.0], 1.0) == 4.0
    assert math.isnan(settled_from([]))


def test_an_onset_on_a_seam() -> None:
    found = coincident(Onset(121.0, 119.0, 122.0), EVENTS, axis(400))
    assert found is not None
    assert (found.step, found.event) == (120.0, "learning rate changed")
    assert found.chance == pytest.approx(1 - (1 - 5 / 399) ** 3)
    assert coincident(Onset(60.0, 55.0, 65.0), EVENTS, axis(400)) is None
    assert coincident(Onset(60.0, 60.0, 60.0), {}, axis(400)) is None


def test_one_logging_interval_on_both_sides() -> None:
    steps, events = 10 * axis(100), {300.0: "restarted"}
    assert coincident(Onset(310.0, 310.0, 310.0), events, steps) is not None
    assert coincident(Onset(320.0, 320.0, 320.0), events, steps) is None
    assert coincident(Onset(290.0, 290.0, 290.0), events, steps) is not None


def test_the_nearest_event_counts_and_the_earlier_of_equals() -> None:
    near = {10.0: "a", 11.0: "b", 13.0: "c"}
    found = coincident(Onset(12.0, 10.0, 13.0), near, axis(1000))
    assert found is not None
    assert found.event == "b"


def test_a_wide_interval_coincides_with_nothing() -> None:
    assert coincident(Onset(100.0, 80.0, 140.0), {120.0: "resumed"}, axis(400)) is None
    wide = coincident(Onset(100.0, 80.0, 140.0), {120.0: "resumed"}, axis(400), most=0.2)
    assert wide is not None
    assert wide.chance == pytest.approx(62 / 399)
    every = {float(at): "resumed" for at in range(0, 400, 10)}
    assert coincident(Onset(100.0, 100.0, 100.0), every, axis(400)) is None


@pytest.mark.parametrize("steps", [[], [1.0], [1.0, 1.0], [math.nan, 2.0]])
def test_without_steps_nothing_coincides(steps: list[float]) -> None:
    assert coincident(Onset(1.0, 1.0, 1.0), {1.0: "resumed"}, steps) is None


@given(st.floats(0.001, 1000.0), st.floats(-1e6, 1e6), st.integers(0, 399))
def test_the_unit_of_steps_does_not_matter(scale: float, origin: float, at: int) -> None:
    found = coincident(Onset(120.25, 120.25, 120.25), {at + 0.5: "resumed"}, axis(400))
    moved = coincident(
        Onset(*[scale * 120.25 + origin] * 3), {scale * (at + 0.5) + origin: "resumed"}, scale * axis(400) + origin
    )
    assert (found is None) == (moved is None)


@pytest.mark.long
def test_random_onsets_coincide_as_often_as_they_say() -> None:
    rng = np.random.default_rng(7500)
    said, chances = [], []
    for _ in range(3000):
        at = float(rng.uniform(20, 380))
        events = {float(step): "resumed" for step in rng.uniform(0, 399, 2)}
        found = coincident(Onset(at, at - 3, at + 3), events, axis(400), most=1.0)
        said.append(found is not None)
        chances.append(1 - (1 - 8 / 399) ** 2)
    assert np.mean(said) == pytest.approx(np.mean(chances), abs=0.01)


@pytest.mark.long
@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a_warm_up_left_out_is_no_step(phi: float) -> None:
    rng = np.random.default_rng(7600)
    kept, cut = [], []
    for _ in range(30):
        y = decay(400, 10.0) + noise(rng, 400, phi)
        y[:15] += 6.0
        settled = axis(400) >= settled_from(axis(400), 15)
        kept.append(step_scan(axis(400), y) is not None)
        cut.append(len(steps_found(axis(400)[settled], y[settled])) + len(excursions(axis(400)[settled], y[settled])))
    assert np.mean(kept) >= 0.1
    assert sum(cut) == 0
