"""An answer is found again by the content of its series, and what a cheap look rules out the full one never says."""

from __future__ import annotations

import numpy as np
import pytest

from rlclinic.model import Column, Run
from rlclinic.stats.curve import running_median
from rlclinic.stats.level import answers_behind, trials_per_row
from rlclinic.stats.once import _Question, once
from rlclinic.stats.shift import lasting_change, may_have_moved
from rlclinic.stats.trend import trend
from rlclinic.vitals import all_dead
from series import Array, axis, noise

asked: list[Array] = []


@once(2)
def scaled(values: Array, *, factor: float = 1.0) -> Array:
    asked.append(values)
    return values * factor


def test_the_same_content_is_answered_once_and_another_anew() -> None:
    asked.clear()
    first = scaled(axis(50), factor=2.0)
    assert scaled(axis(50) + 0.0, factor=2.0) is first
    assert len(asked) == 1
    np.testing.assert_array_equal(scaled(axis(50), factor=3.0), axis(50) * 3.0)
    np.testing.assert_array_equal(scaled(axis(49), factor=2.0), axis(49) * 2.0)
    np.testing.assert_array_equal(scaled(axis(50) + 1e-12, factor=2.0), (axis(50) + 1e-12) * 2.0)
    assert len(asked) == 4
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1.0


def test_a_kept_question_holds_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[_Question] = []
    begin = _Question.__init__

    def noted(self: _Question, *args: object) -> None:
        begin(self, *args)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(_Question, "__init__", noted)
    scaled(axis(1234), factor=5.0)
    assert made
    assert made[0].series == ()
    assert made[0].named == {}
    assert not any(isinstance(part, bytes) for part in made[0].content)


@pytest.mark.parametrize("seed", range(60))
def test_a_change_that_is_ruled_out_is_never_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.choice([20, 37, 80, 400, 2500]))
    y = noise(rng, n, (0.0, 0.5, 0.9)[seed % 3]) + float(rng.normal(0.0, 3.0)) * axis(n) / n
    y += float(rng.normal(0.0, 3.0)) * (axis(n) > n * rng.uniform(0.1, 0.9))
    y = np.round(y, int(rng.integers(0, 4)))
    y[rng.integers(0, n, 2)] = rng.choice([1e9, -1e300, np.nan, np.inf])
    for direction, verdict in ((1, "rising"), (-1, "falling")):
        if not may_have_moved(axis(n), y, direction):
            assert trend(axis(n), y, level=0.99).verdict != verdict
            assert direction * lasting_change(axis(n), y).change <= 0.0


def test_a_change_is_ruled_out_only_on_the_other_side() -> None:
    rise = axis(200) + noise(np.random.default_rng(0), 200, 0.5)
    assert may_have_moved(axis(200), rise, 1)
    assert not may_have_moved(axis(200), rise, -1)
    assert not may_have_moved(axis(200), np.ones(200), 1)


@pytest.mark.parametrize("width", [1, 3, 5, 7, 9, 11, 13, 31])
def test_running_medians_of_every_width(width: int) -> None:
    rng = np.random.default_rng(width)
    for n in (1, 2, 3, 6, 12, 90):
        y = np.round(rng.standard_normal(n), 1)
        half = min(width, n) // 2
        padded = np.pad(y, half, mode="edge")
        expected = [np.median(padded[i : i + 2 * half + 1]) for i in range(n)]
        np.testing.assert_array_equal(running_median(y, width), expected)


@pytest.mark.parametrize("answers", [8, 24, 125, 500])
def test_the_lattice_of_shares_by_trying_every_number(answers: int) -> None:
    rng = np.random.default_rng(answers)
    for shares in (rng.integers(0, answers, 40) / answers, rng.random(40), rng.integers(0, answers, 2) / answers):
        inside = shares[(shares > 0) & (shares < 1)]
        most = 1024 if len(inside) >= 4 else 128
        fits = [n for n in range(2, most + 1) if len(inside) and np.abs(inside * n - np.round(inside * n)).max() < 0.01]
        assert trials_per_row(shares) == (max(8, fits[0]) if fits else 8)
    shares = np.round(rng.integers(1, answers, 30) / answers, 4)
    assert answers_behind(shares) in (answers, *(n for n in range(2, answers) if answers % n == 0), None)


def test_dead_groups_are_learnt_from_whichever_row_proves_them() -> None:
    def column(metric: str, steps: list[float], values: list[float]) -> Column:
        return Column(metric, metric, np.array(steps), np.array(values))

    columns = {
        "group.zero_var_frac": column("group.zero_var_frac", [1, 2, 3], [0.5, 1.0, np.nan]),
        "reward.std": column("reward.std", [2, 3, 5], [0.2, 0.0, 0.3]),
        "advantage.std": column("advantage.std", [4, 5], [0.0, 0.0]),
    }
    found = all_dead(Run(columns=columns))
    assert found is not None
    assert dict(zip(found.steps.tolist(), found.values.tolist(), strict=True)) == {1: 0, 2: 1, 3: 1, 4: 1, 5: 1}
    assert found.key == "group.zero_var_frac + reward.std + advantage.std"
    alive = {"reward.std": column("reward.std", [1, 2], [0.2, 0.1])}
    assert all_dead(Run(columns=alive)) is None
    assert all_dead(Run()) is None
