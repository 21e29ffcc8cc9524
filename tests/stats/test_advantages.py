"""Recomputed advantages: known answers, the trainers' own formulas, invariances, and what a log may be held to."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlclinic
from rlclinic.errors import BadRequest
from rlclinic.stats.advantages import Scale, recompute_advantages

SCALES = get_args(Scale)
HALF = [1.0, 1.0, 0.0, 0.0]


# ---------------------------------------------------------------- known answers


def test_a_group_of_two_right_and_two_wrong() -> None:
    made = recompute_advantages(HALF, 4)
    assert made.mean == pytest.approx(0.0, abs=1e-12)
    assert made.values == pytest.approx(np.array([1, 1, -1, -1]) * 0.5 / (math.sqrt(1 / 3) + 1e-4))
    assert made.std == pytest.approx(made.expected_std or 0.0, rel=1e-3)
    assert made.expected_std == pytest.approx(math.sqrt(3 / 4))
    assert (made.dead, made.groups, made.alone, made.agrees) == (0.0, 1, 0, None)


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("none", [0.75, -0.25, -0.25, -0.25]),
        ("leave_one_out", [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ("group", [1.5, -0.5, -0.5, -0.5]),
        ("batch", [1.5, -0.5, -0.5, -0.5]),
        # the others of the right answer are all wrong: nothing to divide by, so it stays 1
        ("leave_one_out_std", [1.0, *[-1 / 3 / math.sqrt(1 / 3)] * 3]),
    ],
)
def test_one_right_answer_of_four(scale: Scale, expected: list[float]) -> None:
    made = recompute_advantages([1, 0, 0, 0], 4, scale, epsilon=0.0)
    assert made.values == pytest.approx(expected)


def test_dead_groups_and_the_deviation_they_leave() -> None:
    made = recompute_advantages([1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1], 4)
    assert made.dead == 0.75
    assert made.expected_std == pytest.approx(math.sqrt(0.25 * 3 / 4))
    assert made.std == pytest.approx(made.expected_std, rel=1e-3)
    gone = recompute_advantages([1, 1, 0, 0], 2)
    assert (gone.dead, gone.std, gone.expected_std) == (1.0, 0.0, 0.0)
    assert any("no answer carries a gradient" in note for note in gone.notes)


def test_groups_in_any_order_and_of_any_size() -> None:
    made = recompute_advantages([1, 5, 0, 7, 3], ["a", "b", "a", "b", "b"], "none")
    assert made.values == pytest.approx([0.5, 0.0, -0.5, 2.0, -2.0])
    assert (made.groups, made.smallest, made.largest) == (2, 2, 3)


def test_an_answer_alone_has_no_baseline() -> None:
    made = recompute_advantages([1, 0, 1], [7, 7, 8])
    assert math.isnan(made.values[2])
    assert made.alone == 1
    assert made.mean == pytest.approx(0.0)
    assert "no baseline" in made.notes[0]
    # the same prompt under different ids: the trainer trained on the raw reward
    split = recompute_advantages([1, 0, 1], [0, 1, 2], logged=[1, 0, 1])
    assert split.agrees is None
    assert "REINFORCE" in split.why
    assert math.isnan(split.dead)


def test_equal_up_to_rounding_is_said() -> None:
    made = recompute_advantages([0.3, 0.3 + 1e-6, 0.3, 0.3], 4)
    assert any("epsilon" in note for note in made.notes)


def test_tokens_weigh() -> None:
    made = recompute_advantages(HALF, 4, "none", weights=[100, 100, 300, 300])
    assert made.mean == 0.0
    assert made.token_mean == pytest.approx(-0.25)
    assert made.token_std == pytest.approx(math.sqrt(0.25 - 0.25**2))


def test_the_public_name_is_lazy() -> None:
    assert rlclinic.recompute_advantages is recompute_advantages
    assert "recompute_advantages" in dir(rlclinic)


# ---------------------------------------------------------------- the trainers' formulas, row by row

batches = st.integers(2, 6).flatmap(
    lambda size: st.lists(
        st.lists(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 1.0, 2.0]), min_size=size, max_size=size), min_size=1, max_size=6
    )
)


def by_hand(rows: list[list[float]], scale: str, epsilon: float) -> np.ndarray:
    every = np.array(rows).ravel()
    made = []
    for row in rows:
        group = np.array(row)
        for i, r in enumerate(group):
            others = np.delete(group, i)
            if scale == "group":
                made.append((r - group.mean()) / (group.std(ddof=1) + epsilon))
            elif scale == "batch":
                made.append((r - group.mean()) / (every.std(ddof=1) + epsilon))
            elif scale == "none":
                made.append(r - group.mean())
            elif scale == "leave_one_out":
                made.append(r - others.mean())
            else:
                spread = others.std(ddof=1) if len(others) > 1 else 0.0
                made.append((r - others.mean()) / (spread + epsilon if spread > 1e-9 else 1.0))
    return np.array(made)


@given(rows=batches, scale=st.sampled_from(SCALES), epsilon=st.sampled_from([1e-4, 1e-6]))
@settings(max_examples=150, deadline=None)
def test_agrees_with_the_formulas(rows: list[list[float]], scale: Scale, epsilon: float) -> None:
    flat = np.array(rows).ravel()
    made = recompute_advantages(flat, len(rows[0]), scale, epsilon=epsilon)
    assert made.values == pytest.approx(by_hand(rows, scale, epsilon), abs=1e-8)
    same = recompute_advantages(flat, len(rows[0]), scale, epsilon=epsilon, logged=by_hand(rows, scale, epsilon))
    assert same.agrees is True


@given(rows=batches, scale=st.sampled_from(SCALES), shift=st.floats(-50, 50), seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_invariances(rows: list[list[float]], scale: Scale, shift: float, seed: int) -> None:
    flat = np.round(np.array(rows).ravel(), 3)  # a spread below that of rounding is lost in the shift
    ids = np.repeat(np.arange(len(rows)), len(rows[0]))
    plain = recompute_advantages(flat, ids, scale, epsilon=0.0)
    moved = recompute_advantages(flat + shift, ids, scale, epsilon=0.0)
    live = plain.values != 0.0
    assert moved.values[live] == pytest.approx(plain.values[live], abs=1e-6)
    if scale != "leave_one_out_std":  # where the others are equal it does not divide, so nothing cancels
        power = 0.0 if scale in ("group", "batch") else 1.0
        grown = recompute_advantages(3.0 * flat, ids, scale, epsilon=0.0)
        assert grown.values[live] == pytest.approx(3.0**power * plain.values[live], abs=1e-6)
        for k in range(len(rows)):
            assert plain.values[ids == k].sum() == pytest.approx(0.0, abs=1e-6)
    mixed = np.random.default_rng(seed).permutation(len(flat))
    names = np.array([f"prompt {k}" for k in ids])
    shuffled = recompute_advantages(flat[mixed], names[mixed], scale, epsilon=0.0)
    assert shuffled.values == pytest.approx(plain.values[mixed], abs=1e-9)
    assert shuffled.dead == plain.dead


# ---------------------------------------------------------------- what a log may be held to

REWARDS = np.array([1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0], float)
TOKENS = np.array([90, 400, 380, 120, 100, 95, 130, 410, 350, 420, 110, 330], float)


def whitened(values: np.ndarray) -> np.ndarray:
    share = TOKENS / TOKENS.sum()
    mean = share @ values
    return np.asarray((values - mean) / math.sqrt(share @ (values - mean) ** 2))


GOOD = recompute_advantages(REWARDS, 4, weights=TOKENS)


@pytest.mark.parametrize(
    ("logged", "agrees", "why"),
    [
        (GOOD.values.astype(np.float32), True, "12 logged advantages"),
        (recompute_advantages(REWARDS, 4, epsilon=1e-6).values, True, "group"),
        (np.where(REWARDS > 0, GOOD.values, np.nan), True, "left out"),
        (REWARDS, False, "no baseline was subtracted"),
        (recompute_advantages(REWARDS, 4, "none").values, False, 'scale="none"'),
        (recompute_advantages(REWARDS, 4, "leave_one_out").values, False, 'scale="leave_one_out"'),
        (GOOD.values[[4, 1, 2, 3, 0, 5, 6, 7, 8, 9, 10, 11]], False, "another order"),
        (whitened(GOOD.values), None, "whitening"),
        (np.clip(GOOD.values, -0.7, 0.7), None, "clipped"),
        (REWARDS - REWARDS.mean(), False, "the mean of a group"),
        (GOOD.values * (1 + (TOKENS > 200)), False, "the mean of a group"),
        (np.full(12, np.nan), None, "no answer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_answer_by_answer(logged: np.ndarray, agrees: bool | None, why: str) -> None:
    made = recompute_advantages(REWARDS, 4, logged=logged)
    assert made.agrees is agrees, made.why
    assert why in made.why


@pytest.mark.parametrize(
    ("logged", "options", "agrees", "why"),
    [
        ({"mean": 0.0, "std": GOOD.std, "min": GOOD.min, "max": GOOD.max}, {}, True, "recomputed"),
        ({"std": GOOD.std * math.sqrt(12 / 11)}, {}, True, "std"),
        ({"critic/advantages/mean": GOOD.token_mean}, {"weights": TOKENS}, True, "over tokens"),
        # a mean that is not 0 proves nothing until it is known to count every answer once
        ({"mean": -0.3}, {}, None, "over tokens"),
        ({"mean": -0.3}, {"over": "answers"}, False, "recomputed"),
        ({"mean": 0.3}, {"weights": TOKENS}, False, "neither"),
        ({"advantage.mean": -0.3}, {"over": "tokens"}, None, "give weights"),
        ({"mean": -0.3}, {"over": "tokens", "weights": TOKENS}, False, "over tokens"),
        ({"min": 0.0, "max": 1.0}, {}, False, "no baseline was subtracted"),
        ({"min": -0.75, "max": 0.75}, {}, False, 'scale="none"'),
        ({"mean": math.nan}, {}, None, "finite"),
    ],
)
def test_statistics(logged: dict[str, float], options: dict[str, object], agrees: bool | None, why: str) -> None:
    made = recompute_advantages(REWARDS, 4, logged=logged, **options)  # type: ignore[arg-type]
    assert made.agrees is agrees, made.why
    assert why in made.why


def test_leave_one_out_with_deviation_need_not_have_mean_zero() -> None:
    rewards = [1, 0, 0, 0, 1, 1, 0, 0]
    made = recompute_advantages(rewards, 4, "leave_one_out_std")
    assert abs(made.mean) > 0.05
    assert recompute_advantages(rewards, 4, "leave_one_out_std", logged={"mean": made.mean}, over="answers").agrees


def test_lone_answers_cannot_be_compared() -> None:
    made = recompute_advantages([1, 0, 1], ["a", "a", "b"], logged={"mean": 0.4})
    assert made.agrees is None


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([], 2), {}, "at least one answer"),
        (([1, math.nan], 2), {}, "finite rewards"),
        (([1, "x"], 2), {}, "rewards as numbers"),
        (([[1, 0]], 2), {}, "in one row"),
        (([1, 0, 1], 2), {}, "divides 3 answers"),
        (([1, 0], 0), {}, "divides 2 answers"),
        (([1, 0], True), {}, "ids of groups"),
        (([1, 0], [1]), {}, "2 ids of groups"),
        (([1, 0], [1.0, math.nan]), {}, "an id for each answer"),
        (([1, 0], 2, "grup"), {}, "group"),
        (([1, 0], 2), {"epsilon": -1}, "epsilon"),
        (([1, 0], 2), {"weights": [1]}, "2 weights"),
        (([1, 0], 2), {"weights": [-1, 2]}, "negative"),
        (([1, 0], 2), {"over": "steps"}, "answers, tokens"),
        (([1, 0], 2), {"logged": [1.0]}, "2 logged advantages"),
        (([1, 0], 2), {"logged": {"median": 0.0}}, "mean, std, min, max"),
        (([1, 0], 2), {"logged": {}}, "mean, std, min, max"),
        (([1, 0], 2), {"logged": {"mean": "0"}}, "a number for mean"),
    ],
)
def test_refused(arguments: tuple[object, ...], options: dict[str, object], words: str) -> None:
    with pytest.raises(BadRequest) as problem:
        recompute_advantages(*arguments, **options)  # type: ignore[arg-type]
    assert words in problem.value.message()
