"""`--full` measures every error rate at the size of the acceptance table; without it the longest ones take a part."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does: on matrices this small threads only wait

from collections.abc import Callable

import hypothesis
import pytest
from scipy import stats

# How long an example takes says more about what else the machine does than about us.
hypothesis.settings.register_profile("calm", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("calm")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="acceptance rows with all their repetitions")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        skip = pytest.mark.skip(reason="a rate beyond the acceptance table: make acceptance")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)


@pytest.fixture
def repeats(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """How many of a row's repetitions to make: all of them with ``--full``, else an eighth, at least 40."""
    full = bool(request.config.getoption("--full"))
    return lambda most: most if full else min(most, max(40, most // 8))


@pytest.fixture
def part(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """How many of a row's repetitions to make: all of them with ``--full``, else a third, at least 50."""
    full = bool(request.config.getoption("--full"))
    return lambda most: most if full else min(most, max(50, most // 3))


@pytest.fixture
def least_hits(request: pytest.FixtureRequest) -> Callable[[int, float], float]:
    """Hits that ``made`` repetitions must bring at the ``limit`` of a row: with ``--full`` the limit itself, else what a
    rate at the limit stays above in 999 of 1000 samples of that size."""
    full = bool(request.config.getoption("--full"))
    return lambda made, limit: limit * made if full else float(stats.binom.ppf(0.001, made, limit))


@pytest.fixture
def most_alarms(request: pytest.FixtureRequest) -> Callable[[int, float], int]:
    """Alarms that ``made`` repetitions may raise at the ``limit`` of a row: with ``--full`` the limit itself, else what a
    rate at the limit stays below in 999 of 1000 samples of that size."""
    full = bool(request.config.getoption("--full"))
    return lambda made, limit: int(limit * made) if full else int(stats.binom.ppf(0.999, made, limit))
