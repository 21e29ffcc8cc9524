"""The page of what is reached never says more than what was measured."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import status
from status import ABSENT, FAILED, MET, MISSED, NEVER, PARTLY, Claim, Figure, Measure, Outcome

COMMAND = Measure("m", run="true")
TESTS = Measure("m", tests=("tests/test_x.py",))
RECALL = Claim("row", "area", "at least 0.9", "m", figures=(Figure(r"recall=([\d.]+)", least=0.9),))
PLAIN = Claim("row", "area", "works", "m")
AT = {"when": "2026-01-02 03:04", "commit": "abcdef1"}


def said(claim: Claim, measure: Measure, outcome: Outcome | str, before: dict[str, Any] | None = None) -> str:
    return status.state(claim, measure, status.record(claim, outcome, before, AT))


@pytest.mark.parametrize(
    ("claim", "outcome", "state"),
    [
        (RECALL, Outcome(0, 1.0, "recall=0.95"), MET),
        (RECALL, Outcome(0, 1.0, "recall=0.90"), MET),
        (RECALL, Outcome(0, 1.0, "recall=0.89"), MISSED),
        (RECALL, Outcome(0, 1.0, "recall=nan"), FAILED),
        (RECALL, Outcome(0, 1.0, "nothing of the kind"), FAILED),
        (RECALL, Outcome(1, 1.0, "recall=0.95"), FAILED),
        (RECALL, Outcome(124, 1.0, "recall=0.95"), FAILED),
        (PLAIN, Outcome(0, 1.0), MET),
        (PLAIN, Outcome(1, 1.0, "Traceback"), MISSED),
    ],
)
def test_a_command_that_fails_or_falls_short_is_never_met(claim: Claim, outcome: Outcome, state: str) -> None:
    assert said(claim, COMMAND, outcome) == state


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome(0, 1.0, passed=3), MET),
        (Outcome(0, 1.0, passed=3, skipped=["no browser"]), PARTLY),
        (Outcome(0, 1.0, skipped=["no browser"]), ABSENT),
        (Outcome(0, 1.0), ABSENT),
        (Outcome(1, 1.0, passed=3, failed=["test_one"]), MISSED),
        (Outcome(2, 1.0, passed=3), FAILED),
    ],
)
def test_skipped_tests_meet_nothing(outcome: Outcome, state: str) -> None:
    assert said(PLAIN, TESTS, outcome) == state


def test_what_is_absent_keeps_the_last_figures_but_is_not_met() -> None:
    before = status.record(RECALL, Outcome(0, 1.0, "recall=0.95"), None, AT)
    kept = status.record(RECALL, "needs the logs", before, {"when": "2027-01-01 00:00", "commit": "0000000"})
    assert status.state(RECALL, COMMAND, kept) == ABSENT
    assert status.reached(RECALL, kept) == "0.95"
    assert kept["when"] == AT["when"]
    assert status.state(RECALL, COMMAND, status.record(RECALL, Outcome(0, 1.0, "recall=0.95"), kept, AT)) == MET
    assert status.state(RECALL, COMMAND, None) == NEVER
    assert (
        status.lacking(Measure("m", needs=("it",)), {"it": {"says": "the logs", "path": "no/such/path"}}) == "the logs"
    )


def test_shares_means_and_seconds_are_figures() -> None:
    share = Figure(r"right (\d+) of (\d+)", least=0.9)
    assert share.find("right 19 of 20", 0.0) == "19 of 20"
    assert share.kept("19 of 20")
    assert not share.kept("17 of 20")
    assert not share.kept("0 of 0")
    mean = Figure(r"cases=(\d+) readable=([\d.]+)", least=0.98, mean=True)
    assert mean.find("cases=90 readable=1.000\ncases=10 readable=0.5", 0.0) == "0.950"
    assert Figure(r"(\d+) MB", most=500, worst=True).find("60 MB\n501 MB\n70 MB", 0.0) == "501"
    assert Figure(most=1.0).find("", cpu=1.25) == "1.25"


def test_a_command_is_ended_with_its_children_and_says_so() -> None:
    outcome = status.ran("sleep 60 & wait", 0.2)
    assert (outcome.exit, outcome.seconds < 5) == (124, True)
    assert status.ran("echo yes; exit 3", 5.0).exit == 3
    assert status.ran("false | cat", 5.0).exit == 1


def test_each_measure_counts_its_own_tests() -> None:
    cases = (
        '<testcase classname="tests.test_x" name="test_a[1]" time="0.5"/>'
        '<testcase classname="tests.test_x" name="test_ab"><failure message="no"/></testcase>'
        '<testcase classname="tests.test_y" name="test_a"><skipped message="no browser"/></testcase>'
        f'<testcase classname="tests.test_y" name="test_b"><skipped message="{status.BEYOND}: x"/></testcase>'
    )
    one, other = (
        Measure("one", tests=("tests/test_x.py::test_a",)),
        Measure("other", tests=("tests/test_x.py", "tests/test_y.py")),
    )
    found = status.divided(f"<testsuites>{cases}</testsuites>", [one, other], Outcome(1, 1.0))
    assert (found["one"].passed, found["one"].failed, found["one"].exit) == (1, [], 0)
    assert (found["other"].passed, found["other"].failed, found["other"].skipped) == (1, ["test_ab"], ["no browser"])
    stopped = status.divided("<testsuites/>", [one], Outcome(4, 1.0))
    assert said(PLAIN, one, stopped["one"]) == FAILED


def test_the_page_is_that_of_the_data_and_the_data_fit_the_table() -> None:
    rows, kept = status.table(status.ROWS.read_text("utf-8")), json.loads(status.KEPT.read_text("utf-8"))
    assert status.PAGE.read_text("utf-8") == status.page(rows, kept), "run python tools/status.py --write"
    names = [one.name for one in rows.claims]
    assert len(set(names)) == len(names)
    assert set(kept) <= set(names)
    assert {one.measure for one in rows.claims if not one.judged} == set(rows.measures)
    assert {need for one in rows.measures.values() for need in one.needs} <= set(rows.needs)
    assert all(line.claim in names if line.claim else line.reached for line in rows.short)


def test_a_row_that_is_not_met_is_named_first_and_among_what_falls_short() -> None:
    low = {"row": status.record(RECALL, Outcome(0, 1.0, "recall=0.5"), None, AT)}
    rows = status.Table((RECALL,), {"m": COMMAND}, {}, ())
    first, _, last = status.page(rows, low).partition("## What falls short")
    assert "Not met: `row`." in first
    assert "| `row` | at least 0.9 | 0.5 | not explained yet |" in last
    because = status.Short("Recall", "at least 0.9", "too few rows", claim="row")
    last = status.page(replace(rows, short=(because,)), low).partition("## What falls short")[2]
    assert "too few rows" in last
    assert "not explained yet" not in last


def test_every_test_that_a_row_names_exists() -> None:
    rows = status.table(status.ROWS.read_text("utf-8"))
    for node in {node for one in rows.measures.values() for node in one.tests}:
        file, _, name = node.partition("::")
        text = (status.ROOT / file).read_text("utf-8")
        assert not name or re.search(rf"^def {name}\(", text, re.M), node


def test_saved_output_is_read_with_its_exit_code(tmp_path: Path) -> None:
    left = tmp_path / "out.txt"
    for end, state in (("exit 0\n", MET), ("exit 2\n", FAILED), ("", FAILED)):
        left.write_text(f"recall=0.95\n{end}", encoding="utf-8")
        assert said(RECALL, COMMAND, status.left(left, [COMMAND])["m"]) == state


def test_unknown_rows_are_refused() -> None:
    rows = status.table(status.ROWS.read_text("utf-8"))
    with pytest.raises(SystemExit, match="no row"):
        status.chosen(rows, ["nothing"], every=False)
    assert not any(one.long for one in status.chosen(rows, [], every=False))
