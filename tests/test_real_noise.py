"""False alarms on the noise of real logs, kept beside the project; skipped where they are absent."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from real_noise import NULLS, TESTS, Sample, interval, sample, table

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the labelled logs are not beside the project"),
]

LIMITS = {"trend p": 0.02, "trend verdict": 0.015, "acceleration": 0.02, "step": 0.04, "lasting p": 0.025}
"""Twice the level for what is tested at 1 %, with room for a few hundred series; steps have no nominal level."""
LIMITS_RESCALED = LIMITS | {"step": 0.06}
"""Where noise is several times larger in one part of a run than in the others, more steps are seen."""


@cache
def healthy() -> list[Sample]:
    return sample(CORPUS, 2, sizes=(60, 200), twins=False, keep=lambda series: series.healthy)


@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize("test", TESTS)
def test_alarms_on_healthy_runs_stay_rare(null: str, test: str) -> None:
    found = [s for s in healthy() if s.null == null]
    assert len(found) >= 80
    rate, low, high, effective = interval(found, TESTS.index(test))
    limit = (LIMITS_RESCALED if null == "rescaled" else LIMITS)[test]
    assert rate <= limit, f"{rate:.1%} ({low:.1%} to {high:.1%}) of {effective:.0f}"


def test_the_corpus_has_many_kinds_of_noise() -> None:
    kinds = {s.series.family for s in healthy()}
    assert kinds >= {"reward", "entropy", "kl", "grad", "length", "clip", "loss"}
    assert len({s.series.run for s in healthy()}) >= 8


def test_the_table_has_a_row_per_null() -> None:
    few = sample(CORPUS, 1, sizes=(60,), keep=lambda series: series.healthy and series.metric == "entropy.mean")
    lines = table(few, lambda s: s.series.family, "family").splitlines()
    assert lines[0].startswith("| null | family |")
    assert {line.split(" | ")[0] for line in lines[2:]} >= {"| shuffled", "| rescaled"}
