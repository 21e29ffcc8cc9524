"""The measuring tools on small input: what counts as right, wrong and neither, and that the page holds its figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import corpus_diff
import labelled
import measure
import replay
import try_check
from casebook import cases
from labelled import Must
from measure import Logs, Tally
from rlclinic.checks import BY_NAME, CHECKS
from rlclinic.live.events import Event
from rlclinic.model import Severity

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
PAGE = measure.PAGE


# ---------------------------------------------------------------- counting


def test_what_counts() -> None:
    tallies = measure.empty()
    said = {"truncation": CRITICAL, "plateau": WARNING, "kl_drift": WARNING, "entropy_rise": INFO}
    measure.count(tallies, said, {"truncation": WARNING, "nan_inf": INFO}, other=["plateau"])
    assert tallies["truncation"] == Tally(asked=1, found=1, right=1)
    assert tallies["nan_inf"] == Tally(asked=1)
    assert tallies["plateau"] == Tally(other=1)
    assert tallies["kl_drift"] == Tally(wrong=1, silent=1)
    assert tallies["entropy_rise"] == Tally(silent=1), "an information line is no alarm"
    measure.count(tallies, {"truncation": INFO}, {"truncation": WARNING})
    assert tallies["truncation"] == Tally(asked=2, found=1, right=1)


def test_consequences_are_those_of_the_graph() -> None:
    direct = set(BY_NAME["never_eos"].leads_to)
    assert direct
    assert direct <= measure.consequences(["never_eos"])
    further = {effect for name in direct for effect in BY_NAME[name].leads_to}
    assert further <= measure.consequences(["never_eos"])


def test_the_casebook_is_measured_as_it_is_tested() -> None:
    book = [case for case in cases() if case.check == "nan_inf"]
    tallies = measure.from_casebook(book)
    asked = sum(any(line.startswith(("nan_inf: w", "nan_inf: c", "nan_inf: i")) for line in c.expect) for c in book)
    mine = tallies["nan_inf"]
    assert (mine.asked, mine.found, mine.wrong) == (asked, asked, 0)


def test_simulated_runs_are_measured() -> None:
    sick = measure.from_sick(["nan_inf"], 1, [(150, 1)])
    assert (sick["nan_inf"].asked, sick["nan_inf"].found, sick["nan_inf"].right) == (1, 1, 1)
    fine, runs = measure.from_healthy(["plain"], 2, [(150, 1, 0.5)])
    assert runs == 2
    assert fine["nan_inf"] == Tally(silent=2)


@pytest.mark.parametrize(
    ("made", "healthy", "logs", "status"),
    [
        (Tally(9, 9, 9), Tally(silent=100), Tally(), "stable"),
        (Tally(7, 7, 7), Tally(silent=100), Tally(), "preview"),
        (Tally(7, 7, 7), Tally(silent=100), Tally(right=1), "stable"),
        (Tally(9, 9, 9), Tally(silent=100), Tally(wrong=2), "preview"),
        (Tally(9, 9, 9), Tally(silent=50, wrong=1), Tally(), "preview"),
        (Tally(20, 15, 15), Tally(silent=100), Tally(), "preview"),
    ],
)
def test_the_rule_for_a_status(made: Tally, healthy: Tally, logs: Tally, status: str) -> None:
    assert measure.suggested(made, healthy, logs)[0] == status


# ---------------------------------------------------------------- labelled logs


def case(label: dict[str, Any], folder: Path, name: str = "one", log: str = "") -> labelled.Labelled:
    home = folder / "runs" / name
    home.mkdir(parents=True)
    (home / "label.json").write_text(json.dumps(label), encoding="utf-8")
    (home / "log.jsonl").write_text(log, encoding="utf-8")
    return next(one for one in labelled.cases(folder) if one.name == name)


def rows(broken: bool) -> str:
    made = []
    for i in range(1, 61):
        norm: float | str = "NaN" if broken and i > 30 else 0.3 + 0.01 * (i % 7)
        made.append(
            {"step": i, "reward": 0.3 + 0.002 * i, "grad_norm": norm, "kl": 1e-4 * i, "entropy": 1.0 - 0.001 * i}
        )
    return "\n".join(json.dumps(row) for row in made)


def test_a_label_is_met_or_contradicted(tmp_path: Path) -> None:
    label = {
        "must": [{"finding": "gradient_nonfinite", "severity": "critical"}],
        "may": ["plateau"],
        "must_not": ["entropy_collapse", "plateau", {"finding": "gradient_nonfinite"}],
    }
    sick = case(label, tmp_path, log=rows(True))
    assert sick.wrong == {"entropy_collapse"}, "what must or may be said is never wrong"
    wronged = case({"must_not": ["gradient_nonfinite"]}, tmp_path, "two", rows(True))
    unread = case({"must": ["truncation"]}, tmp_path, "zero", "")
    logs = measure.from_logs([sick, wronged, unread])
    assert logs.checks["nan_inf"].right == 1
    assert logs.checks["nan_inf"].wrong == 1
    assert logs.labels["gradient_nonfinite"] == [0, 0, 1, 1]
    assert logs.folders["runs"] == {"cases": 3, "unread": 1, "asked": 2, "met": 1, "wrong": 1}


@pytest.mark.parametrize(
    ("must", "said", "notes", "met"),
    [
        (Must("truncation", CRITICAL, True), {"never_eos": WARNING}, (), True),
        (Must("truncation", CRITICAL, True), {"truncation": INFO}, (), False),
        (Must("truncation", INFO, True), {}, (), False),
        (Must("normal_behaviour", WARNING, True), {"plateau": INFO}, (), True),
        (Must("normal_behaviour", WARNING, True), {"plateau": WARNING}, (), False),
        (Must("loss_zero_expected", INFO, True), {}, ("loss_zero_expected",), True),
    ],
)
def test_met(must: Must, said: dict[str, Severity], notes: tuple[str, ...], met: bool) -> None:
    assert labelled.met(must, said, frozenset(notes)) is met


def test_the_table_of_labels_names_checks_that_exist() -> None:
    for label, checks in labelled.SATISFIES.items():
        assert set(checks) <= BY_NAME.keys(), label


# ---------------------------------------------------------------- the page


def test_the_page_keeps_the_figures_of_logs_that_are_not_there() -> None:
    logs = Logs({"nan_inf": Tally(right=3, silent=2)}, {"truncation": [2, 1, 5, 4]}, {"runs": {
        "cases": 7, "unread": 1, "asked": 9, "met": 8, "wrong": 0}})  # fmt: skip
    text = measure.page(measure.empty(), measure.empty(), measure.empty(), 0, logs)
    assert measure.kept_logs(text) == logs
    assert "| truncation | truncation, never_eos | 1 of 2 | 4 of 5 |" in text
    assert "| public runs | 6 of 7 | 8 of 9 | 0 of 7 |" in text
    assert measure.page(measure.empty(), measure.empty(), measure.empty(), 0, measure.kept_logs(text)) == text


def test_the_written_page_speaks_of_every_check() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(measure.MARK)
    missing = [one.name for one in CHECKS if f"[{one.name}](checks/{one.name}.md)" not in text]
    assert not missing, f"make accuracy: {missing}"


# ---------------------------------------------------------------- while the run goes on


def test_the_page_keeps_the_figures_of_runs_that_go_on() -> None:
    spans = replay.share_spent([0.1, 0.2, 1.0])
    assert spans == {"runs": 3, "median": 0.2, "early": 2, "never": 1}
    row = {"runs": 9, "unequal": 0, "spent": spans, "opened": 5, "unfounded": 1, "again": 0, "wrong": 2, "checks": {}}
    fine = {"runs": 40, "alarmed": 1, "unequal": 0, "checks": {"plateau": 1}}
    figures = {"healthy": fine, "sick": row, "logs": {**row, "findings": spans}}
    text = measure.with_live("the page\n", figures)
    assert measure.kept_live(text) == figures
    assert measure.with_live(text, figures) == text
    assert measure.with_live(text, {}) == "the page\n"
    assert "| 40 | 1 of 40 | plateau in 1 |" in text
    assert "| simulated sick runs, 9 | 3 | 2 of 3 | 1 of 3 | 0.20 | 5 | 2 | 1 | 0 |" in text


def test_a_delay_is_the_share_of_what_was_left() -> None:
    def opened(check: str, step: float) -> Event:
        return Event("opened", check, WARNING, step, "", "")

    played = replay.Played("one", 100, 100.0, 9, [opened("plateau", 30.0), opened("truncation", 60.0)], [], {}, {})
    assert replay.spent(played, 20.0, ["truncation"]) == 0.5
    assert replay.spent(played, 50.0, ["plateau"]) == 0.0, "told before the labelled onset"
    assert replay.spent(played, 20.0, ["nan_inf"]) == 1.0
    assert replay.spent(played, 100.0, ["nan_inf"]) == 1.0
    asked = replay.Asked("runs", [replay.Onset("truncation", 20.0, ("truncation",))], frozenset({"plateau"}))
    figures = replay.of_logs([(asked, played)])
    assert (figures["spent"]["median"], figures["wrong"], figures["unfounded"]) == (0.5, 1, 2)


# ---------------------------------------------------------------- before and after


def saved(**findings: tuple[str, float | None, float | None]) -> dict[str, Any]:
    made = {
        name: {"severity": severity, "onset": onset, "p": p, "q": p, "because_of": [], "says": f"{name} says"}
        for name, (severity, onset, p) in findings.items()
    }
    return {"verdict": "warning", "primary": None, "findings": made, "notes": [], "failed": []}


def test_differences_are_named_and_counted() -> None:
    before = {
        "runs/a": saved(plateau=("info", 10.0, 0.01), truncation=("warning", None, None)),
        "runs/b": saved(),
        "runs/c": {"error": "cannot read: x"},
        "runs/gone": saved(),
    }
    after = {
        "runs/a": saved(plateau=("warning", 40.0, 1e-6), nan_inf=("critical", 7.0, None)),
        "runs/b": saved(),
        "runs/c": saved(),
    }
    found = corpus_diff.differences(before, after)
    told = {(case, what, old, new) for case, what, old, new, _ in found}
    assert told == {
        ("runs/a", "nan_inf", "-", "critical"),
        ("runs/a", "plateau", "info", "warning"),
        ("runs/a", "plateau", "onset 10", "onset 40"),
        ("runs/a", "plateau", "p 0.01 q 0.01", "p 1e-06 q 1e-06"),
        ("runs/a", "truncation", "warning", "-"),
        ("runs/c", "read", "cannot read: x", "read"),
        ("runs/gone", "case", "here", "-"),
    }
    text = corpus_diff.table(found)
    assert "now at warning or worse: nan_inf 1, plateau 1" in text
    assert "no longer: truncation 1" in text
    assert "7 differences in 3 cases" in text
    assert corpus_diff.table([]) == "nothing changed"


def test_saving_and_comparing_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case({"must": []}, tmp_path / "corpus", log=rows(True))
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert corpus_diff.main(["--save", str(first), str(tmp_path / "corpus")]) == 0
    kept = json.loads(first.read_text(encoding="utf-8"))
    assert kept["runs/one"]["findings"]["nan_inf"]["severity"] == "critical"
    assert corpus_diff.main([str(first), str(first)]) == 0
    kept["runs/one"]["findings"]["nan_inf"]["severity"] = "warning"
    second.write_text(json.dumps(kept), encoding="utf-8")
    assert corpus_diff.main([str(first), str(second)]) == 1
    assert "critical -> warning" in capsys.readouterr().out
    assert corpus_diff.main(["--save", str(first), str(tmp_path / "empty")]) == 2


def test_one_check_is_tried_alone_on_runs_that_hold_what_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert try_check.main(["advantage_explosion", "nowhere"]) == 0
    told = capsys.readouterr().out
    assert "sick advantage_explosion" in told
    assert "healthy" not in told
    assert int(re.search(r"simulated runs: examined (\d+)", told)[1]) > 100  # type: ignore[index]
    with pytest.raises(SystemExit):
        try_check.main(["advantage_explosions"])
    assert "did you mean advantage_explosion?" in capsys.readouterr().err
