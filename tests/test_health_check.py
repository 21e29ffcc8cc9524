"""The runbook keeps its word: its examples run, its limits are accepted, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlclinic.checks import BY_NAME
from rlclinic.checks.form import override
from rlclinic.diagnose import read_limits

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "health_check.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


@pytest.mark.parametrize("code", blocks("python"))
def test_every_example_runs(code: str) -> None:
    exec(compile(code, "health_check.md", "exec"), {})


def test_the_limits_are_accepted(tmp_path: Path) -> None:
    (mine,) = blocks("toml")
    path = tmp_path / "mine.toml"
    path.write_text(mine, encoding="utf-8")
    for name, given in read_limits(path).items():
        override(BY_NAME[name].limits, given, check_name=name, by="test")


def test_every_check_that_is_named_exists() -> None:
    (graph,) = blocks("mermaid")
    named = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", graph))
    named |= set(re.findall(r"\]\(checks/(\w+)\.md\)", TEXT))
    assert len(named) > 25
    assert not named - BY_NAME.keys() - {"plateau"}
