"""How often healthy runs are left alone and sick ones found, over many seeds: the promise, measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rlclinic.checks import BY_NAME
from rlclinic.diagnose import diagnose
from rlclinic.differential import MEASUREMENT
from rlclinic.model import Severity
from rlclinic.simulate import as_run, healthy, scenario, scenarios

pytestmark = pytest.mark.slow

LENGTHS = ((150, 34), (400, 33), (2000, 33))
"""Steps of a healthy run, and how many runs of that length: 100 in all, alternating between the two noise levels."""
SICK = [name for name in scenarios() if name not in healthy()]
LOGS = [(150, 1), (400, 1), (1500, 1), (150, 10), (400, 10), (1500, 10)]
FIFTEEN_ROWS = {
    "plateau": "flatness lacks independent values",
    "no_learning": "flatness lacks independent values",
    "entropy_cliff": "a jump needs 15 rows before it",
    "advantage_explosion": "the usual row is known from 20 rows on",
    "kl_spike": "means over ten steps hold no spike",
    "grad_vanishing": "an early and a late level need more rows",
    "lr_too_high": "the reaction lies within two rows, so the cliff is named first",
    "memory_creep": "a trend needs 20 rows",
    "train_inference_mismatch": "the gap and the cliff lie in the same rows",
    "format_break": "form and reward fall in the same row",
}
"""What 15 rows cannot show, with the reason."""


@pytest.mark.parametrize("family", healthy())
def test_healthy_runs_get_no_warning(
    family: str,
    most_alarms: Callable[[int, float], int],
    request: pytest.FixtureRequest,
) -> None:
    full = bool(request.config.getoption("--full"))
    alarms: Counter[str] = Counter()
    runs = 0
    for steps, count in LENGTHS:
        # 2,000 rows cost as much as all the others; without --full a few of them do.
        for seed in range(count if full else 2 if steps > 1000 else 8):
            run = as_run(scenario(family, steps=steps, seed=7000 + seed, phi=(0.5, 0.9)[seed % 2]))
            loud = [
                f.check for f in diagnose(run).findings if f.severity is not None and f.severity >= Severity.WARNING
            ]
            alarms.update(loud[:1])
            runs += 1
    assert sum(alarms.values()) <= most_alarms(runs, 0.02), f"{dict(alarms)} in {runs} runs"


@pytest.mark.parametrize("name", SICK)
def test_sick_runs_are_found_and_their_root_is_named_first(name: str, request: pytest.FixtureRequest) -> None:
    """In short and long logs, of every row and of every tenth: found in 95 %, the root first in 90 %."""
    full = bool(request.config.getoption("--full"))
    seeds, logs = (25, LOGS) if full else (2, [LOGS[0], LOGS[3], LOGS[5]])  # 150 rows, and 15 and 150 of every tenth
    found, first = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    shown: Counter[str] = Counter()
    for steps, every in logs:
        for seed in range(seeds):
            made = scenario(name, steps=steps, seed=9000 + seed, log_every=every)
            findings = diagnose(as_run(made)).findings
            found[steps, every] += set(made.truth) <= {f.check for f in findings}
            of_log = {BY_NAME[check].family for check in made.truth} == {MEASUREMENT}
            loud = [f for f in findings if (f.severity or 0) >= Severity.WARNING and f.check not in made.truth]
            told = [f for f in findings if f in loud or f.check in made.truth]
            named = [f.check for f in told if (BY_NAME[f.check].family == MEASUREMENT) == of_log][:1]
            first[steps, every] += bool(set(named) & set(made.truth))
            shown.update(named)
    counted = [log for log in logs if not (name in FIFTEEN_ROWS and log == (150, 10))]
    runs = seeds * len(counted)
    assert sum(found[log] for log in counted) >= least(0.95, runs), f"found {dict(found)} of {seeds} each"
    assert sum(first[log] for log in counted) >= least(0.90, runs), f"first {dict(first)} of {seeds} each: {shown}"


def least(share: float, runs: int) -> float:
    """Successes that ``runs`` must bring; of few runs one may fail, since one is more than the share allows."""
    return min(share * runs, runs - 1)


@pytest.mark.parametrize("dialect", ["trl", "verl"])
@pytest.mark.parametrize("name", ["plain", "truncation", "entropy_collapse", "nan_inf", "sudden_collapse"])
def test_both_dialects_get_the_same_answer(name: str, dialect: str, request: pytest.FixtureRequest) -> None:
    for seed in range(3 if request.config.getoption("--full") else 1):
        made = scenario(name, steps=400, seed=seed)
        got = {f.check for f in diagnose(as_run(made, dialect)).findings if (f.severity or 0) >= Severity.WARNING}
        assert set(made.truth) <= got
        if not made.truth:
            assert not got
