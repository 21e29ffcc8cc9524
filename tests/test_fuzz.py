"""Damaged logs of every form: a part of what ``make fuzz`` reads, with other chances."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fuzz import SECONDS, trial
from samples import samples

FILES = 30


@pytest.mark.parametrize("form", samples())
def test_damage_ends_in_a_log_or_a_refusal(form: str, tmp_path: Path) -> None:
    if form == "parquet" and not any(map(importlib.util.find_spec, ("pyarrow", "polars", "duckdb"))):
        pytest.skip("nothing that reads Parquet is installed")
    told = trial(form, FILES, 1, tmp_path)
    assert told["files"] == FILES
    assert float(str(told["slowest"])) < SECONDS
