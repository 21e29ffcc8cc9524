"""The scoreboard: how words of other tools are held against the truth, and that its page shows the figures that are kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import rivals  # noqa: E402
import scoreboard  # noqa: E402
import scoreboard_page  # noqa: E402
from labelled import labelled  # noqa: E402
from rlclinic.checks import BY_NAME  # noqa: E402
from rlclinic.simulate import as_run, scenario  # noqa: E402

TOOLS = rivals.load()


def test_every_rule_names_checks() -> None:
    assert not {name for tool in TOOLS.values() for name in tool.can_name} - BY_NAME.keys()


def test_the_first_rule_that_fits_counts() -> None:
    doctor = TOOLS["rldoctor"]
    said = doctor.read([
        ["plateau", "WARNING", "Stopped improving. best reward was 0.5 at step 120, 280 steps ago (70% of it)", None],
        ["plateau", "OK", "Still learning", None],
        ["kl_drift", "OK", "KL is exactly 0.0 at every step: this run has no KL term", None],
        ["made_up", "CRITICAL", "something", None],
    ])  # fmt: skip
    assert [(one.rule, one.level, one.step) for one in said] == [
        ("plateau", 2, 120.0),
        ("kl_drift", 1, None),
        ("made_up", 3, None),
    ]
    assert "plateau" in said[0].names
    assert "kl_pinned_zero" in said[1].names
    assert not said[2].names


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"), [(0, 100, 0.0, 0.0370), (50, 100, 0.4038, 0.5962), (100, 100, 0.9630, 1.0)]
)
def test_wilson_as_published_tables_have_it(part: int, whole: int, low: float, high: float) -> None:
    assert rivals.wilson(part, whole) == pytest.approx((low, high), abs=5e-4)


@pytest.mark.parametrize(("step", "right"), [(180.0, True), (179.0, False), (260.0, True), (None, False)])
def test_an_onset_is_right_within_a_fifth_or_two_rows(step: float | None, right: bool) -> None:
    said = [rivals.Said("x", 2, frozenset(), step)]
    assert rivals.near(said, 260.0, 400.0, 1.0) is right
    assert rivals.near(said, 380.0, 400.0, 100.0) is (step is not None and step >= 180.0)


def run_of(name: str, truth: dict[str, float | None]) -> scoreboard.Simulated:
    return scoreboard.Simulated(name, (400, 1), truth, {})


def test_a_rule_of_supervised_learning_is_a_false_alarm_only_where_nothing_is_wrong() -> None:
    told = {"findings": [["lr_schedule", "warning", "No LR warmup detected: x", 1]], "seconds": 0.5}
    unread = {"error": "cannot"}
    runs = [run_of("plain", {}), run_of("plain", {}), run_of("kl_drift", {"kl_drift": 10.0})]
    score = scoreboard.score_simulated(runs, [told, unread, told], TOOLS["trainspotter"])
    assert score["healthy"] == {"plain": {"400/1": [2, 1]}}
    assert score["sick"] == {"kl_drift": {"400/1": [1, 0, 0, 0, 0]}}
    assert score["rules"] == {"lr_schedule": 1}
    assert score["unread"] == 1


def test_a_hint_names_but_only_a_warning_warns() -> None:
    told = {"findings": [["kl_drift", "info", "", 30.0]]}
    score = scoreboard.score_simulated([run_of("kl_drift", {"kl_drift": 10.0})], [told], None)
    assert score["sick"] == {"kl_drift": {"400/1": [1, 1, 0, 1, 1]}}


def test_a_label_is_met_one_level_milder_and_contradicted_by_what_it_excludes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = {
        "n_steps": 100,
        "must": [
            {"finding": "truncation", "severity": "critical", "from_step": 50},
            {"finding": "kl_drift", "severity": "critical"},
        ],
        "must_not": ["entropy_collapse"],
    }
    place = tmp_path / "trl" / "a"
    place.mkdir(parents=True)
    (place / "label.json").write_text(json.dumps(label))
    monkeypatch.setattr(scoreboard.labelled, "CORPUS", tmp_path)
    case = labelled("trl", "a", (), label)
    found = [["truncation", "warning", "", 60], ["kl_drift", "info", "", 1], ["entropy_collapse", "warning", "", None]]
    row = scoreboard.score_labelled(case, {"findings": found}, None)
    assert row["labels"] == {"truncation": True, "kl_drift": False}
    assert (row["onsets"], row["right"], row["wrong"], row["calm"]) == (1, 1, True, False)
    broad = [["ENTROPY_COLLAPSE", "critical", "", None]]  # may also mean what is not excluded
    assert scoreboard.score_labelled(case, {"findings": broad}, TOOLS["rlprobe"])["wrong"]
    unread = scoreboard.score_labelled(case, {"error": "cannot"}, None)
    assert not unread["read"]
    assert not any(unread["labels"].values())


def test_rlprobe_is_told_what_is_not_finite() -> None:
    rows = scoreboard.rlprobe_rows(as_run(scenario("nan_inf", steps=60, seed=3)), TOOLS["rlprobe"])
    broken = [row["step"] for row in rows if row.get("nan_count") or row.get("inf_count")]
    assert broken
    assert min(broken) >= 36
    assert all(np.isfinite(v) for row in rows for v in row.values() if isinstance(v, float))


def test_the_page_shows_the_kept_figures() -> None:
    assert scoreboard.stale() == ""


def test_a_rival_that_does_better_is_told() -> None:
    def of_tool(found: int, alarmed: int) -> dict[str, object]:
        return {"sick": {"kl_drift": {"400/1": [2, found, 0, 0, 0]}}, "healthy": {"plain": {"400/1": [2, alarmed]}}}

    results = {"simulated": {"rlclinic": of_tool(1, 1), "rldoctor": of_tool(2, 0)}, "whole": {}}
    lines = scoreboard_page.better(results)
    assert lines[:2] == [
        "- simulated `kl_drift`, named: rldoctor 2/2, rlclinic 1/2",
        "- simulated `plain`, wrongly warned: rldoctor 0/2, rlclinic 1/2",
    ]


def test_who_was_asked_about_other_runs_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "as_now.said").write_text('{"id": 0}\n{"id": 1}\n')
    (tmp_path / "before.said").write_text('{"id": 0}\n')
    monkeypatch.setattr(scoreboard, "ask", lambda tool, command, jobs, place: [{"tool": tool} for _ in jobs])
    said = scoreboard.ask_all(dict.fromkeys(("as_now", "before", "new"), tmp_path), [{}, {}], tmp_path, 1, {"new"})
    assert said["as_now"] == [{"id": 0}, {"id": 1}]
    assert said["before"] == [{"tool": "before"}] * 2
    assert said["new"] == [{"tool": "new"}] * 2
