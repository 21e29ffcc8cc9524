"""Groups without spread: arithmetic against a reference, simulated groups, filtered batches (rows Z1 and Z2)."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlclinic.readers import read
from rlclinic.stats.groups import (
    BetaBinomial,
    Dead,
    Share,
    at_other_sizes,
    before_filter,
    beta_binomial_zero_variance,
    count_dead,
    current_share,
    dropped_share,
    dropped_share_by_batches,
    expected_zero_variance,
    fit_beta_binomial,
    two_valued,
    zero_variance,
    zero_variance_at,
)
from series import Array, noise

# Arithmetic


def test_zero_variance_arithmetic() -> None:
    assert expected_zero_variance(0.5, 2) == 0.5
    assert expected_zero_variance([0.0, 1.0, math.nan], 8) == 1.0
    assert expected_zero_variance(0.95, 8) == pytest.approx(0.663, abs=5e-4)
    assert math.isnan(expected_zero_variance([], 8))
    assert expected_zero_variance(0.3, 1) == 1.0
    with pytest.raises(ValueError, match=r"pass_rate: a share in \[0, 1\], got 1.2; percent"):
        expected_zero_variance(1.2, 8)


@pytest.mark.parametrize(("mean", "rho"), [(0.05, 0.2), (0.25, 0.5), (0.5, 0.8), (0.9, 0.0), (0.5, 0.01)])
@pytest.mark.parametrize("group", [2, 4, 8, 16, 32])
def test_beta_binomial_agrees_with_scipy(mean: float, rho: float, group: int) -> None:
    if rho:
        k = stats.betabinom(group, mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1))
    else:
        k = stats.binom(group, mean)
    model = BetaBinomial(mean, rho)
    assert model.share_at(group) == pytest.approx(float(k.pmf(0) + k.pmf(group)), rel=1e-8)
    counts = np.arange(group + 1)
    std = float((k.pmf(counts) * np.sqrt(counts * (group - counts) / (group * (group - 1)))).sum())
    assert model.group_std(group) == pytest.approx(std, rel=1e-8)
    fitted = fit_beta_binomial(mean, std, group)
    if fitted is not None:
        assert fitted.share_at(group) == pytest.approx(model.share_at(group), abs=1e-6)


def test_group_spread_that_says_nothing() -> None:
    assert beta_binomial_zero_variance(0.5, 0.5, 8) is None
    assert beta_binomial_zero_variance(0.5, math.nan, 8) is None
    assert beta_binomial_zero_variance(math.nan, 0.1, 8) is None
    assert beta_binomial_zero_variance(1.0, 0.0, 8) == 1.0
    assert beta_binomial_zero_variance(0.5, 0.0, 8) == pytest.approx(1.0)
    assert beta_binomial_zero_variance(0.4, 0.1, 1) is None


# Counted from rollouts


def test_groups_are_counted_by_kind() -> None:
    rewards = [0, 0, 1, 1, 0.5, 0.5, 0, 1, 1, 0.3, math.nan]
    groups = ["a", "a", "b", "b", "c", "c", "d", "d", "single", "e", "e"]
    assert count_dead(rewards, groups) == Dead(groups=4, all_low=1, all_high=1, middle=1)
    assert count_dead(rewards, groups).share == 0.75
    assert count_dead(rewards, groups, low=-1.0, high=1.0) == Dead(4, all_low=0, all_high=1, middle=2)
    assert count_dead([0.1 + 0.2, 0.3, 1.0, 0.0], [1, 1, 2, 2]).middle == 1


def test_a_reward_that_never_moves_has_no_ends() -> None:
    assert count_dead([0.4] * 6, [1, 1, 1, 2, 2, 2]) == Dead(2, all_low=0, all_high=0, middle=2)
    assert count_dead([0.0] * 6, [1, 1, 1, 2, 2, 2], low=0.0) == Dead(2, all_low=2, all_high=0, middle=0)


def test_nothing_to_count() -> None:
    assert math.isnan(count_dead([], []).share)
    assert count_dead([math.nan, math.inf], [1, 1]).groups == 0
    assert count_dead([1.0, 0.0], [1, 2]).groups == 0
    assert count_dead([1.7e308, -1.7e308], [1, 1]) == Dead(1, 0, 0, 0)
    with pytest.raises(ValueError, match="2 rewards but 1 groups"):
        count_dead([1.0, 2.0], [1])


rollouts = st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3)), min_size=1, max_size=40)


@given(rollouts, st.randoms(use_true_random=False), st.floats(0.01, 100), st.floats(-50, 50))
def test_neither_order_nor_unit_of_rollouts_matters(
    pairs: list[tuple[int, int]], order: random.Random, scale: float, shift: float
) -> None:
    groups, rewards = np.array(pairs).T
    found = count_dead(rewards, groups)
    order.shuffle(pairs)
    groups, rewards = np.array(pairs).T
    assert count_dead(rewards, groups) == found
    assert count_dead(shift + scale * rewards, groups) == found
    mirrored = count_dead(-rewards, groups)
    assert (mirrored.all_low, mirrored.all_high, mirrored.middle) == (found.all_high, found.all_low, found.middle)
    by_hand = [[r for g, r in pairs if g == one] for one in {g for g, _ in pairs}]
    assert found.groups == sum(len(one) > 1 for one in by_hand)
    assert found.all_low + found.all_high + found.middle == sum(len(one) > 1 and len(set(one)) == 1 for one in by_hand)


# Order of evidence


def test_the_best_evidence_counts() -> None:
    counted = Dead(10, 3, 2, 0)
    known = {"mean": 0.5, "group_std": 0.3, "group_size": 8}
    assert zero_variance(counted=counted, logged=0.1, binary=True, **known) == Share(0.5, "rollouts")
    assert zero_variance(counted=Dead(0, 0, 0, 0), logged=0.1, binary=True, **known) == Share(0.1, "logged")
    estimated = zero_variance(binary=True, **known)
    assert estimated == Share(beta_binomial_zero_variance(0.5, 0.3, 8) or 0.0, "estimated")
    whole_batch = zero_variance(binary=True, mean=0.5, group_std=0.5, group_size=8)
    assert whole_batch == Share(2 * 0.5**8, "at least")
    assert zero_variance(binary=True, mean=0.5, group_size=8) == whole_batch


def test_graded_rewards_are_never_estimated() -> None:
    assert zero_variance(mean=0.5, group_std=0.3, group_size=8) is None
    assert zero_variance(logged=math.nan) is None
    assert zero_variance() is None
    assert two_valued([0.0, 1.0, math.nan, 1.0])
    assert two_valued([-1, 2])
    assert not two_valued([0.0, 0.5, 1.0])
    assert not two_valued([1.0, 1.0])
    assert not two_valued([])


@pytest.mark.parametrize(
    "ask",
    [
        lambda share: current_share([0.3, share, 0.5]),
        lambda share: zero_variance(logged=share),
        lambda share: zero_variance(counted=Dead(10, 3, 2, 0), logged=share),
        lambda share: zero_variance(binary=True, mean=share, group_size=8),
        lambda share: expected_zero_variance([0.5, share], 8),
        lambda share: at_other_sizes([share], 8),
        lambda share: fit_beta_binomial(share, 0.1, 8),
        lambda share: beta_binomial_zero_variance(share, 0.1, 8),
        lambda share: before_filter(share, 0.5),
        lambda share: before_filter(0.5, share),
        lambda share: before_filter(0.5, 0.5, right=share),
    ],
)
def test_percent_are_refused_wherever_a_share_is_asked_for(ask: Callable[[float], object]) -> None:
    with pytest.raises(ValueError, match=r"a share in \[0, 1\], got 40; percent\?"):
        ask(40.0)
    with pytest.raises(ValueError, match=r"a share in \[0, 1\], got -0.2$"):
        ask(-0.2)
    ask(math.nan)
    ask(1.0 + 1e-7)


def test_a_mean_of_graded_rewards_is_no_share() -> None:
    assert zero_variance(mean=40.0, group_std=3.0, group_size=8) is None


# Other group sizes


def test_shares_at_half_same_and_double_size() -> None:
    assert at_other_sizes(BetaBinomial(0.1, 0.5), 16) == pytest.approx((0.772, 0.716, 0.665), abs=5e-4)
    assert at_other_sizes([0.0, 0.5], 4) == ((1 + 0.5) / 2, (1 + 0.125) / 2, (1 + 2 / 256) / 2)
    assert at_other_sizes(BetaBinomial(0.5, 0.2), 1)[0] == 1.0


@pytest.mark.parametrize(("passes", "rollouts", "size"), [(3, 8, 4), (0, 5, 5), (5, 5, 2), (1, 6, 3), (6, 7, 2)])
def test_smaller_groups_from_counts(passes: int, rollouts: int, size: int) -> None:
    answers = [1] * passes + [0] * (rollouts - passes)
    draws = list(itertools.combinations(answers, size))
    expected = sum(len(set(draw)) == 1 for draw in draws) / len(draws)
    assert zero_variance_at([passes], rollouts, size) == pytest.approx(expected, rel=1e-12)


def test_more_rollouts_than_seen_need_a_model() -> None:
    assert math.isnan(zero_variance_at([3, 4], 8, 16))
    assert zero_variance_at([3, 16], [8, 16], 16) == 1.0
    assert zero_variance_at([3], 8, 1) == 1.0
    assert math.isnan(zero_variance_at([], [], 2))


def test_smaller_groups_are_unbiased() -> None:
    rng = np.random.default_rng(41)
    rates = rng.beta(0.5, 0.9, 40_000)
    passes = rng.binomial(16, rates)
    for size in (2, 4, 8, 16):
        truth = expected_zero_variance(rates, size)
        assert zero_variance_at(passes, 16, size) == pytest.approx(truth, abs=0.006)
    # The observed rates taken for known ones overstate what a group of 8 would do.
    assert expected_zero_variance(passes / 16, 8) > expected_zero_variance(rates, 8) + 0.03


# The current share


def test_few_independent_steps_give_a_range() -> None:
    drifting = np.linspace(0.2, 0.6, 40)
    found = current_share(drifting)
    assert found is not None
    assert (found.by, found.low, found.high) == ("range", drifting[-10], 0.6)
    short = current_share([0.5, 0.25])
    assert short is not None
    assert (short.by, short.low, short.high, short.share) == ("range", 0.25, 0.5, 0.375)
    assert current_share([math.nan]) is None
    assert current_share([]) is None


def test_a_share_that_never_moves_is_not_certain() -> None:
    found = current_share([1.0] * 20, groups=8)
    assert found is not None
    assert found.by == "interval"
    assert found.high == pytest.approx(1.0)
    assert found.low == pytest.approx(float(stats.binomtest(160, 160).proportion_ci(0.95, "wilson").low), abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(("phi", "steps"), [(0.0, 60), (0.5, 100), (0.9, 600)])
def test_the_interval_of_the_current_share_covers(phi: float, steps: int) -> None:
    """Difficulty of batches drifts as in the statistics study, section 7; R = 200."""
    rng = np.random.default_rng(42)

    def shares(latent: Array) -> Array:
        a = 1.0 / (1.0 + np.exp(-0.5 - 0.8 * latent))[:, None]
        passes = rng.binomial(8, rng.beta(2 * a, 2 * (1 - a), (len(latent), 64)))
        return np.asarray(((passes == 0) | (passes == 8)).mean(axis=1))

    truth = float(shares(rng.standard_normal(20_000)).mean())
    found = [current_share(shares(noise(rng, steps, phi)), groups=64) for _ in range(200)]
    given = [f for f in found if f is not None and f.by == "interval"]
    assert len(given) >= 150
    assert np.mean([f.low <= truth <= f.high for f in given]) >= 0.87


# Filtered batches


def test_share_dropped_from_counts() -> None:
    assert dropped_share([32, 32, math.nan], [64, 96, 64]) == pytest.approx(1 - 64 / 160)
    assert dropped_share([0.0], 8.0) == 1.0
    assert dropped_share([9.0], [8.0]) is None
    assert dropped_share([], []) is None
    assert dropped_share([0.0], [0.0]) is None


def test_share_dropped_from_numbers_of_batches() -> None:
    assert dropped_share_by_batches([10] * 5, trained=64, generated=64) == pytest.approx((8 / 9, 0.9))
    assert dropped_share_by_batches([1, 1], trained=64, generated=192) == pytest.approx((0.0, 2 / 3))
    assert dropped_share_by_batches([math.nan, 0.0], trained=64, generated=64) is None
    assert dropped_share_by_batches([2.0], trained=0, generated=64) is None


@pytest.mark.parametrize("kept", [0.9, 0.45, 0.2, 0.04])
@pytest.mark.parametrize("generated", [64, 192])
def test_numbers_of_batches_bound_the_share(kept: float, generated: int) -> None:
    rng = np.random.default_rng(43)
    batches = []
    for _ in range(200):
        held = np.cumsum(rng.binomial(generated, kept, 200))
        batches.append(1 + int(np.argmax(held >= 64)))
    bounds = dropped_share_by_batches(batches, trained=64, generated=generated)
    assert bounds is not None
    assert bounds[0] <= 1 - kept <= bounds[1]


def filtered(rates: Array, group: int, rng: np.random.Generator) -> tuple[float, float, float, float, int]:
    """(kept mean, kept within-group std, share dropped, share dropped for being right, groups kept)."""
    k = rng.binomial(group, rates)
    live = k[(k > 0) & (k < group)]
    spread = np.sqrt(live * (group - live) / (group * (group - 1)))
    return (
        float(live.mean()) / group,
        float(spread.mean()),
        1 - len(live) / len(k),
        float((k == group).mean()),
        len(live),
    )


@pytest.mark.parametrize("group", [4, 8, 16])
@pytest.mark.parametrize("world", ["hard", "easy", "uniform", "wide normal"])
def test_the_pass_rate_before_filtering(world: str, group: int) -> None:
    rng = np.random.default_rng(44)
    rates = {
        "hard": rng.beta(0.25, 1.2, 8000),
        "easy": rng.beta(2.0, 0.35, 8000),
        "uniform": rng.random(8000),
        "wide normal": 1.0 / (1.0 + np.exp(1.5 - 2.0 * rng.standard_normal(8000))),
    }[world]
    mean, std, dropped, right, groups = filtered(rates, group, rng)
    truth = float(rates.mean())
    found = before_filter(mean, dropped, kept_std=std, group_size=group, groups=groups)
    assert found is not None
    assert found.low - 0.01 <= truth <= found.high + 0.01
    assert found.mean == pytest.approx(truth, abs=0.03)
    exact = before_filter(mean, dropped, right=right)
    assert exact is not None
    assert exact.low == exact.high == exact.mean == pytest.approx(truth, abs=0.01)


@pytest.mark.parametrize("group", [4, 8, 16])
def test_heaps_of_hopeless_prompts_are_not_guessed_away(group: int) -> None:
    rng = np.random.default_rng(45)
    kind = rng.random(8000)
    for never, always in ((0.35, 0.25), (0.5, 0.1), (0.6, 0.0)):
        rates = np.where(kind < never, 0.0, np.where(kind > 1 - always, 1.0, rng.beta(2, 2, 8000)))
        mean, std, dropped, _, groups = filtered(rates, group, rng)
        found = before_filter(mean, dropped, kept_std=std, group_size=group, groups=groups)
        assert found is not None
        assert found.mean is None
        assert found.low - 0.01 <= rates.mean() <= found.high + 0.01


def test_before_filtering_nothing_is_known() -> None:
    pairs = before_filter(0.5, 0.4, kept_std=math.sqrt(0.5), group_size=2, groups=3000)
    assert pairs is not None
    assert (pairs.low, pairs.high, pairs.mean) == pytest.approx((0.3, 0.7, None))
    only_mean = before_filter(0.5, 0.4)
    assert only_mean == pairs
    assert before_filter(0.5, 0.4, kept_std=math.nan, group_size=8) == pairs
    assert before_filter(0.5, 1.0) is None
    assert before_filter(math.nan, 0.4) is None
    assert before_filter(0.5, 0.4, right=0.5) is None


# Acceptance


@pytest.mark.slow
@pytest.mark.parametrize("group", [4, 8, 16])
@pytest.mark.parametrize(("a", "b"), [(0.3, 0.3), (1.0, 1.0), (0.25, 1.2), (2.0, 0.35)])
def test_z1_beta_binomial_share(a: float, b: float, group: int) -> None:
    """Z1: within .01 on beta pass rates; 60 logs of 3200 groups."""
    assert estimate(lambda rng, n: rng.beta(a, b, n), group) == pytest.approx((0.0, 0.0), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("group", [4, 8, 16])
def test_z1_share_of_a_mixture(group: int) -> None:
    """Z1: within .03 where 35 % of the prompts are nearly hopeless and 25 % nearly certain.

    Prompts that can never, or always, be solved are further from the beta family: low by up to .06.
    """

    def mixture(rng: np.random.Generator, n: int, edge: float) -> Array:
        kind = rng.random(n)
        return np.where(kind < 0.35, edge, np.where(kind < 0.6, 1 - edge, rng.beta(2, 2, n)))

    assert estimate(lambda rng, n: mixture(rng, n, 0.01), group)[0] == pytest.approx(0.0, abs=0.03)
    assert -0.065 <= estimate(lambda rng, n: mixture(rng, n, 0.0), group)[0] <= 0.0


def estimate(draw: Callable[[np.random.Generator, int], Array], group: int) -> tuple[float, float]:
    """(mean error of the estimated share, its error at double the group size) over 60 logs of 3200 groups."""
    rng = np.random.default_rng(46)
    rates = draw(rng, 200_000)
    found = []
    for _ in range(60):
        passes = rng.binomial(group, draw(rng, 3200))
        spread = np.sqrt(passes * (group - passes) / (group * (group - 1)))
        model = fit_beta_binomial(float(passes.mean()) / group, float(spread.mean()), group)
        assert model is not None
        found.append(at_other_sizes(model, group)[1:])
    same, double = np.mean(found, axis=0)
    return same - expected_zero_variance(rates, group), double - expected_zero_variance(rates, 2 * group)


@pytest.mark.parametrize(
    ("settings", "of_groups"),
    [
        ("scale_rewards: batch", False),
        ("scale_rewards: group\nmulti_objective_aggregation: normalize_then_sum", False),
        ("scale_rewards: group", True),
        ("scale_rewards: none", True),
        ("scale_rewards: true\nmulti_objective_aggregation: sum_then_normalize", True),
    ],
)
def test_z2_a_share_over_the_batch_is_no_share_of_groups(tmp_path: Path, settings: str, of_groups: bool) -> None:
    """Z2: TRL's ``frac_reward_zero_std`` is refused where it compares the spread over the whole batch."""
    rows = [
        {"loss": 0.01, "reward": 0.5, "reward_std": 0.4, "frac_reward_zero_std": 0.25, "kl": 0.01, "step": step}
        | {"completions/mean_length": 200.0, "clip_ratio/region_mean": 0.01}
        for step in range(1, 41)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "config.yaml").write_text(f"num_generations: 8\n{settings}\n")
    run = read([tmp_path])
    assert run.framework is not None
    assert run.framework.name == "trl"
    assert ("group.zero_var_frac" in run) is of_groups
    assert ("reward.zero_std_frac" in run) is not of_groups
