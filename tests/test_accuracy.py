"""How often healthy runs are left alone and sick ones found, over many seeds: the promise, measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rlclinic.diagnose import diagnose
from rlclinic.model import Severity
from rlclinic.simulate import as_run, healthy, scenario, scenarios

pytestmark = pytest.mark.slow

LENGTHS = ((150, 34), (400, 33), (2000, 33))
"""Steps of a healthy run, and how many runs of that length: 100 in all, alternating between the two noise levels."""
SICK = [name for name in scenarios() if name not in healthy()]
LOGS = [(150, 1), (400, 1), (1500, 1), (150, 10), (400, 10), (1500, 10)]
FIFTEEN_ROWS = {"plateau": 0.6, "no_learning": 0.6}
"""Flatness cannot be shown more often than this in 15 rows: the equivalence test lacks independent values there."""


@pytest.mark.parametrize("family", healthy())
def test_healthy_runs_get_no_warning(
    family: str, repeats: Callable[[int], int], most_alarms: Callable[[int, float], int]
) -> None:
    alarms: Counter[str] = Counter()
    runs = 0
    for steps, count in LENGTHS:
        for seed in range(repeats(3 * count) // 3):
            run = as_run(scenario(family, steps=steps, seed=7000 + seed, phi=(0.5, 0.9)[seed % 2]))
            loud = [
                f.check for f in diagnose(run).findings if f.severity is not None and f.severity >= Severity.WARNING
            ]
            alarms.update(loud[:1])
            runs += 1
    assert sum(alarms.values()) <= most_alarms(runs, 0.02), f"{dict(alarms)} in {runs} runs"


@pytest.mark.parametrize(("steps", "every"), LOGS, ids=lambda value: str(value))
@pytest.mark.parametrize("name", SICK)
def test_sick_runs_are_found(name: str, steps: int, every: int, request: pytest.FixtureRequest) -> None:
    seeds = 25 if request.config.getoption("--full") else 8
    found = 0
    for seed in range(seeds):
        made = scenario(name, steps=steps, seed=9000 + seed, log_every=every)
        found += set(made.truth) <= {f.check for f in diagnose(as_run(made)).findings}
    least = FIFTEEN_ROWS.get(name, 0.95) if (steps, every) == (150, 10) else 0.95
    needed = least * seeds if seeds == 25 else int(least * seeds)
    assert found >= needed, f"found in {found} of {seeds}"


@pytest.mark.parametrize("dialect", ["trl", "verl"])
@pytest.mark.parametrize("name", ["plain", "truncation", "entropy_collapse", "nan_inf", "sudden_collapse"])
def test_both_dialects_get_the_same_answer(name: str, dialect: str) -> None:
    for seed in range(3):
        made = scenario(name, steps=400, seed=seed)
        got = {f.check for f in diagnose(as_run(made, dialect)).findings if (f.severity or 0) >= Severity.WARNING}
        assert set(made.truth) <= got
        if not made.truth:
            assert not got
