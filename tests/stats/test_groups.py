"""Groups without spread: arithmetic against a reference and simulated groups (row Z1 of the acceptance table)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from rlclinic.stats.groups import (
    BetaBinomial,
    beta_binomial_zero_variance,
    expected_zero_variance,
    fit_beta_binomial,
)
from series import Array


def test_zero_variance_arithmetic() -> None:
    assert expected_zero_variance(0.5, 2) == 0.5
    assert expected_zero_variance([0.0, 1.0, math.nan], 8) == 1.0
    assert expected_zero_variance(0.95, 8) == pytest.approx(0.663, abs=5e-4)
    assert math.isnan(expected_zero_variance([], 8))
    assert expected_zero_variance(0.3, 1) == 1.0
    with pytest.raises(ValueError, match="pass rates"):
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


def test_beta_binomial_from_simulated_groups() -> None:
    """Z1: within .01 on beta pass rates and within .03 on a three-part mixture."""
    rng = np.random.default_rng(14)

    def mixture(never: float, always: float) -> Array:
        kind = rng.random(60_000)
        return np.where(kind < 0.35, never, np.where(kind < 0.6, always, rng.beta(2, 2, 60_000)))

    worlds = [
        (rng.beta(0.3, 0.3, 60_000), 0.01),
        (rng.beta(2.0, 0.35, 60_000), 0.01),
        (mixture(0.01, 0.99), 0.03),
        # Prompts that can never be solved are outside the beta family: the estimate is low by up to .06.
        (mixture(0.0, 1.0), 0.07),
    ]
    for rates, tolerance in worlds:
        for group in (4, 8, 16):
            rewards = rng.random((60_000, group)) < rates[:, None]
            spread = rewards.std(axis=1, ddof=1)
            estimate = beta_binomial_zero_variance(float(rewards.mean()), float(spread.mean()), group)
            assert estimate == pytest.approx(float((spread == 0).mean()), abs=tolerance)


def test_group_spread_that_says_nothing() -> None:
    assert beta_binomial_zero_variance(0.5, 0.5, 8) is None
    assert beta_binomial_zero_variance(0.5, math.nan, 8) is None
    assert beta_binomial_zero_variance(1.2, 0.1, 8) is None
    assert beta_binomial_zero_variance(1.0, 0.0, 8) == 1.0
    assert beta_binomial_zero_variance(0.5, 0.0, 8) == pytest.approx(1.0)
    assert beta_binomial_zero_variance(0.4, 0.1, 1) is None
