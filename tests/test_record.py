"""The record that is kept with a run: what is in it, that nothing of it is lost, and what the next diagnosis makes of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import standin_wandb
from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest, CannotRead, UnknownName
from rlclinic.history import (
    ENTRIES,
    FILE,
    ITEMS,
    OUTCOMES,
    SCHEMA,
    Moved,
    Past,
    Seen,
    Took,
    past,
    read_entries,
)
from rlclinic.model import Diagnosis, Knob, Run
from rlclinic.readers import read
from rlclinic.readers.past import UNREAD
from rlclinic.record import Record, keep, keeping, last_open, place, record, telling
from rlclinic.remedies import prescribe
from rlclinic.report import render
from rlclinic.report.findings import changes
from rlclinic.report.history import history
from rlclinic.simulate import as_run, scenario, write

DAY = 1_795_000_000.0
"""A day in November 2026, in seconds since 1970."""


@pytest.fixture(scope="module")
def sick() -> Diagnosis:
    run = as_run(scenario("entropy_collapse", steps=120, seed=0))
    knobs = {"learning_rate": Knob("learning_rate", 1e-5, "learning_rate", "config")}
    diagnosis = diagnose(replace(run, knobs={**run.knobs, **knobs}))
    worked_out = prescribe(("clip_higher", "lower_learning_rate"), diagnosis.run)
    return replace(diagnosis, findings=(replace(diagnosis.findings[0], prescriptions=worked_out),))


@pytest.fixture(scope="module")
def log() -> str:
    return write(scenario("entropy_collapse", steps=120, seed=0), dialect="trl", form="jsonl")


@pytest.fixture
def folder(tmp_path: Path, log: str) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text(log)
    return tmp_path / "run"


@pytest.fixture
def quick(sick: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run has what the sick one has: for tests of what is done with a diagnosis."""
    monkeypatch.setattr(sys.modules["rlclinic.diagnose"], "diagnose", lambda run: replace(sick, run=run))


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["record", *map(str, arguments)])


def kept(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["entries"]  # type: ignore[no-any-return]


def looked(**changes: Any) -> Past:
    told: dict[str, Any] = {
        "date": "2026-11-12T10:00:00Z",
        "run": "run",
        "verdict": "critical",
        "primary": "entropy_collapse",
        "found": (Seen("entropy_collapse", "critical", 140.0, 130.0, 150.0, "entropy fell"),),
    }
    return Past(**{**told, **changes})


# --------------------------------------------------------------------------------------------- what is in a record


def test_a_record_holds_the_findings_the_settings_and_no_date(sick: Diagnosis) -> None:
    entry = record(sick, note="by hand").to_dict()
    assert entry["verdict"]["primary"] == sick.verdict.primary
    assert [one["check"] for one in entry["findings"]] == [f.check for f in sick.findings if f.severity is not None]
    assert entry["settings"]["learning_rate"] == {"key": "learning_rate", "value": 1e-5}
    assert entry["note"] == "by hand"
    assert "date" not in entry
    assert entry == record(sick, note="by hand").to_dict()


def test_a_remedy_that_was_taken_has_the_prescribed_settings(sick: Diagnosis) -> None:
    prescribed = next(one for f in sick.findings for one in f.prescriptions if one.changes and one.applies)
    (took,) = record(sick, took=[prescribed.id, prescribed.id]).took
    assert (took.remedy, took.changes[0].after) == (prescribed.id, prescribed.changes[0].after)
    assert took.checks == tuple(f.check for f in sick.findings if prescribed.id in {p.id for p in f.prescriptions})
    with pytest.raises(UnknownName) as told:
        record(sick, took=["clip_highr"])
    assert "clip_higher" in told.value.choices


def test_settings_that_amount_to_a_remedy_are_recognised(sick: Diagnosis) -> None:
    change = next(c for f in sick.findings for p in f.prescriptions for c in p.changes if c.knob == "learning_rate")
    half = record(sick, given={"learning_rate": str(change.after), "seed_of_mine": "3"}).took
    assert half[0].remedy == "lower_learning_rate"
    assert half[0].changes == (Moved("learning_rate", "learning_rate", 1e-5, change.after),)
    assert half[1] == Took("", (), (Moved("", "seed_of_mine", None, 3),))
    more = record(sick, given={"learning_rate": "1e-6"}).took
    assert (more[0].remedy, more[0].changes[0].after) == ("lower_learning_rate", 1e-6)
    up = record(sick, given={"learning_rate": "2e-5"}).took
    assert [one.remedy for one in up] == [""]


def test_what_was_changed_is_read_off_the_next_run(sick: Diagnosis) -> None:
    knobs = {**sick.run.knobs, "learning_rate": Knob("learning_rate", 2e-6, "learning_rate", "config")}
    entry = record(sick, after=replace(sick.run, name="second", knobs=knobs), outcome="cured", because="it shows")
    assert [(one.remedy, one.changes[0].after) for one in entry.took] == [("lower_learning_rate", 2e-6)]
    assert (entry.after, entry.outcome) == ("second", "cured")
    assert record(sick, after=sick.run).took == ()


def test_what_does_not_fit_is_refused(sick: Diagnosis) -> None:
    for wrong in ({"outcome": "splendid"}, {"note": "x" * 401}):
        with pytest.raises(BadRequest):
            record(sick, **wrong)  # type: ignore[arg-type]


def test_names_and_notes_are_one_clean_line(sick: Diagnosis) -> None:
    hostile = "a\x1b[31m\nb\u202e</script>" + "x" * 5_000
    entry = record(replace(sick, run=replace(sick.run, name=hostile)), note="one\ntwo\x1b[0m")
    assert entry.note == "one two [0m"
    text = json.dumps(entry.to_dict(), ensure_ascii=False)
    assert entry.run.isprintable()
    assert len(entry.run) <= 120
    assert not any(c in text for c in "\x1b\u202e\n")


# ------------------------------------------------------------------------------------------------- how it is kept


def test_entries_are_added_and_earlier_ones_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text(json.dumps({"schema": SCHEMA, "entries": [{"from": "the future", "deep": {"a": [1.5]}}, 7]}))
    path.chmod(0o640)
    assert keep({"note": "new"}, path, now=DAY) == 3
    assert kept(path)[:2] == [{"from": "the future", "deep": {"a": [1.5]}}, 7]
    assert kept(path)[2] == {"note": "new", "date": "2026-11-18T11:06:40Z"}
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == [FILE]


def test_equal_records_are_equal_bytes(tmp_path: Path, sick: Diagnosis) -> None:
    for name in ("a.json", "b.json"):
        keep(record(sick).to_dict(), tmp_path / name, now=DAY)
    text = (tmp_path / "a.json").read_text()
    assert text == (tmp_path / "b.json").read_text()
    assert text.isascii()
    assert list(json.loads(text)["entries"][0]) == sorted(json.loads(text)["entries"][0])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{}", "no record"),
        (b"[1, 2", "no JSON"),
        (b'{"schema": "rlclinic.record/2", "entries": []}', "another form"),
        (b'{"schema": "rlclinic.record/1"}', "without entries"),
        (b'{"loss": 1.0}\n{"loss": 2.0}\n', "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff\xfe\x00", "no UTF-8"),
        (b"", "no JSON"),
    ],
)
def test_a_file_of_somebody_else_is_never_written(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(content)
    with pytest.raises(BadRequest, match=why):
        keep({}, path)
    assert path.read_bytes() == content


def test_links_folders_and_full_records_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "real.json"
    keep({}, real, now=DAY)
    (tmp_path / "link.json").symlink_to(real)
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("link.json", "dangling.json", "pipe.json"):
        with pytest.raises(BadRequest):
            keep({}, tmp_path / name)
    with pytest.raises(BadRequest, match="does not exist"):
        keep({}, tmp_path / "nowhere" / FILE)
    assert len(kept(real)) == 1
    real.write_text(json.dumps({"schema": SCHEMA, "entries": [0] * ENTRIES}))
    with pytest.raises(BadRequest, match=f"{ENTRIES} entries"):
        keep({}, real)


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    path = tmp_path / FILE
    keep({"note": "old"}, path, now=DAY)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeping.os, broken, full)
    with pytest.raises(BadRequest, match="disk is full"):
        keep({"note": "new"}, path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [FILE]


def test_a_record_that_changes_meanwhile_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where directories cannot be locked, a second writer shows in the file alone."""
    path = tmp_path / FILE
    monkeypatch.setattr(keeping, "fcntl", None)
    whole = keeping._replaced

    def raced(where: Path, data: bytes, before: os.stat_result | None) -> bool:
        monkeypatch.setattr(keeping, "_replaced", whole)
        keep({"note": "the other"}, path, now=DAY)
        return whole(where, data, before)

    monkeypatch.setattr(keeping, "_replaced", raced)
    assert keep({"note": "mine"}, path, now=DAY) == 2
    assert [one["note"] for one in kept(path)] == ["the other", "mine"]


def _many(path: str, who: int) -> None:
    for k in range(12):
        keep({"note": f"{who}-{k}"}, Path(path), now=DAY)


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / FILE
    forked = multiprocessing.get_context("fork")
    both = [forked.Process(target=_many, args=(str(path), who)) for who in (1, 2)]
    for one in both:
        one.start()
    for one in both:
        one.join(30)
    assert {one["note"] for one in kept(path)} == {f"{who}-{k}" for who in (1, 2) for k in range(12)}
    assert [one.name for one in tmp_path.iterdir()] == [FILE]


# -------------------------------------------------------------------------------------------------------- reading

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(OUTCOMES),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["date", "verdict", "severity", "findings", "took", "changes", "key", "onset", "check", "for"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=15, deadline=None)
@given(JSON, JSON)
def test_no_entry_breaks_the_reader(sick: Diagnosis, one: Any, other: Any) -> None:
    whole = {"date": "2026-11-12T10:00:00Z", "verdict": {"severity": "info"}, "findings": one, "took": other}
    data = json.dumps({"schema": SCHEMA, "entries": [one, whole]}).encode()
    told, broken = read_entries(data)
    assert len(told) + broken == 2
    assert len(told) >= 1
    assert history(replace(sick.run, history=told))


def test_what_is_read_is_bounded_and_clean() -> None:
    rows = [{"check": "entropy_collapse", "severity": "warning", "says": "s" * 9_999, "onset": {"step": 10**400}}] * 999
    hostile = {"remedy": "rm -rf", "for": ["../x", 3], "changes": [{"key": "a\nb\x1b[1m", "from": "\u202e", "to": [1]}]}
    entry = {
        "date": "2026-11-12T10:00:00Z",
        "verdict": {"severity": "warning", "primary": "<b>"},
        "run": {"name": "x\ny" * 999},
        "findings": rows,
        "took": [hostile, "no table"],
        "outcome": "splendid",
        "note": 7,
    }
    told = past(entry)
    assert told is not None
    assert len(told.found) == ITEMS
    assert len(told.found[0].says) == 400
    assert told.found[0].step is None
    assert told.took == (Took("", (), (Moved("", "a b [1m", "", None),)),)
    assert (told.outcome, told.note, told.primary) == ("", "", "")
    assert told.run.isprintable()
    for date in ("", "2026-13-40T10:00:00Z", "12 Nov", None, "2026-11-12T10:00:00Z; rm"):
        assert past({**entry, "date": date}) is None


def test_the_record_beside_the_log_is_the_history_of_the_run(folder: Path) -> None:
    before = render(diagnose(read([folder])), "json")
    assert "history" not in json.loads(before)
    assert command(folder, "--took", "clip_higher", "--note", "a hunch").exit_code == 0
    for source in (folder, folder / "metrics.jsonl"):
        (entry,) = read([source]).history
        assert (entry.run, entry.took[0].remedy, entry.note) == ("run", "clip_higher", "a hunch") or source.is_file()
    diagnosis = diagnose(read([folder]))
    form = json.loads(render(diagnosis, "json"))
    assert form.pop("history")[0]["took"][0]["remedy"] == "clip_higher"
    assert {**form, "findings": []} == {**json.loads(before), "findings": []}
    assert re.search(
        r"History\n.*entropy_collapse \(\w+\) since \d+.*took\s+clip_higher", render(diagnosis, "terminal"), re.S
    )
    assert "## History" in render(diagnosis, "markdown")


def test_each_finding_has_its_own_outcome(sick: Diagnosis) -> None:
    """A remedy that cured what it was taken for is not put behind the others because something else was not cured."""
    single = {"entropy_collapse": "cured", "truncation": "no-effect"}
    entry = record(sick, took=["lower_learning_rate"], outcome="no-effect", outcomes=single).to_dict()
    told = past({**json.loads(json.dumps(entry)), "date": "2026-11-12T10:00:00Z"})
    assert told is not None
    assert [told.outcome_for(check) for check in (*single, "kl_drift")] == ["cured", "no-effect", "no-effect"]
    assert (
        past({**entry, "date": told.date, "outcomes": {"Bad one": "cured", "kl_drift": ["x"], "nan_inf": 7}}).outcomes
        == ()
    )  # type: ignore[union-attr]
    run = replace(sick.run, history=(told,))
    first, *_ = prescribe(("clip_higher", "lower_learning_rate"), run, check="entropy_collapse")
    assert (first.id, "cured" in first.note) == ("lower_learning_rate", True)
    shown = " ".join(render(replace(sick, run=run), "markdown").split())
    assert "outcome: no effect (entropy_collapse cured, truncation no effect)" in shown


def test_a_pipe_is_no_place(tmp_path: Path, sick: Diagnosis) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadRequest, match="no file of this disk"):
        place(replace(sick.run, sources=()), [str(tmp_path / "pipe")])


def test_history_lies_outside_checkpoints_and_is_found_there(tmp_path: Path, sick: Diagnosis) -> None:
    state = write(scenario("plain", steps=40, seed=1), dialect="trl", form="trainer_state")
    (tmp_path / "checkpoint-40").mkdir()
    (tmp_path / "checkpoint-40" / "trainer_state.json").write_text(state)
    run = read([tmp_path])
    assert place(run, [str(tmp_path)]) == tmp_path / FILE
    keep(record(sick).to_dict(), tmp_path / FILE, now=DAY)
    assert [one.day for one in read([tmp_path]).history] == ["18 Nov 2026"]


def test_the_record_of_another_run_counts_when_it_is_named(
    folder: Path, tmp_path: Path, log: str, sick: Diagnosis
) -> None:
    first = replace(sick, run=replace(sick.run, name="run"))
    keep(record(first, took=["clip_higher"], outcome="no-effect").to_dict(), folder / FILE, now=DAY)
    (tmp_path / "next").mkdir()
    (tmp_path / "next" / "metrics.jsonl").write_text(log)
    assert read([tmp_path / "next"]).history == ()
    for named in (folder, folder / FILE):
        assert len(read([tmp_path / "next"], history=[named]).history) == 1
    assert len(read([tmp_path / "next" / "metrics.jsonl", folder / FILE]).history) == 1
    shown = CliRunner().invoke(
        cli, ["diagnose", str(tmp_path / "next"), "--history", str(folder), "--format", "markdown"]
    )
    assert shown.exit_code == 0
    assert "18 Nov 2026, run: entropy" in shown.output.replace("\\", "")
    assert "outcome: no effect" in shown.output


def test_a_broken_record_is_a_warning_and_a_record_alone_no_log(folder: Path) -> None:
    for content in (b"{", b"[]", b'{"schema": "rlclinic.record/9", "entries": []}', b"\0" * 100):
        (folder / FILE).write_bytes(content)
        run = read([folder])
        assert run.history == ()
        assert [one.code for one in run.warnings].count(UNREAD) == 1
    (folder / FILE).write_text(json.dumps({"schema": SCHEMA, "entries": [1, 2]}))
    assert any("2 entries cannot be read" in one.says for one in read([folder]).warnings)
    with pytest.raises(CannotRead, match="record of earlier looks"):
        read([folder / FILE])
    (folder / FILE).unlink()
    keep({"verdict": {"severity": "info"}}, folder / "notes.json", now=DAY)
    assert read([folder]).history == ()
    (told,) = read([folder / "metrics.jsonl", folder / "notes.json"]).history
    assert told.verdict == "info"
    with pytest.raises(CannotRead, match="does not exist"):
        read([folder], history=[folder / "no.json"])


# ----------------------------------------------------------------------------------------------- what it changes


def taken(id: str, outcome: str, date: str = "2026-11-12T10:00:00Z", **more: Any) -> Past:
    return looked(date=date, took=(Took(id, ("entropy_collapse",)),), outcome=outcome, **more)


IDS = ("clip_higher", "lower_learning_rate", "read_top_answers")


def order(run: Run, *pasts: Past, check: str = "entropy_collapse") -> list[tuple[str, str]]:
    return [(one.id, one.note.split(";")[0]) for one in prescribe(IDS, replace(run, history=pasts), check=check)]


def test_what_did_not_help_comes_last_and_what_cured_first(sick: Diagnosis) -> None:
    run = replace(sick.run, name="run")
    plain = [id for id, _ in order(run)]
    first, second, third = plain
    none = order(run, taken(first, "no-effect"))
    assert [id for id, _ in none] == [second, third, first]
    assert none[-1][1] == "taken before (12 Nov 2026): no effect"
    cured = order(run, taken(third, "cured", run="other"), taken(first, "worse"))
    assert [id for id, _ in cured] == [third, second, first]
    assert cured[0][1] == "taken before (12 Nov 2026 in other): cured"
    assert [id for id, _ in order(run, taken(first, "improving"))] == plain
    assert order(run, taken(first, "improving"))[0][1] == "taken before (12 Nov 2026): improving"


def test_only_a_known_outcome_for_the_same_failure_counts(sick: Diagnosis) -> None:
    run = replace(sick.run, name="run")
    plain = order(run)
    first = plain[0][0]
    for past_one in (taken(first, ""), taken(first, "undecided"), taken("larger_groups", "worse")):
        assert order(run, past_one) == plain
    assert order(run, taken(first, "worse"), check="kl_drift") == plain
    unsaid = looked(took=(Took(first),), outcome="worse")
    assert [id for id, _ in order(run, unsaid)][-1] == first  # for what was found then


def test_the_last_outcome_counts_and_company_is_named(sick: Diagnosis) -> None:
    run = replace(sick.run, name="run")
    first = order(run)[0][0]
    again = order(run, taken(first, "worse"), taken(first, "cured", date="2026-11-14T10:00:00Z"))
    assert again[0] == (first, "taken before (14 Nov 2026): cured")
    both = looked(took=(Took(first, ("entropy_collapse",)), Took("larger_groups", ())), outcome="worse")
    assert order(run, both)[-1] == (first, "taken before with larger_groups (12 Nov 2026): worse")


def test_history_says_a_few_lines(sick: Diagnosis) -> None:
    run = replace(sick.run, name="run")
    moved = Took("clip_higher", ("entropy_collapse",), (Moved("clip_high", "epsilon_high", 0.2, 0.28),))
    one = looked(took=(moved,), outcome="no-effect")
    (_, bullets) = history(replace(run, history=(one,)))
    assert bullets.items == (  # type: ignore[union-attr]
        "12 Nov 2026: entropy_collapse (critical) since 140; took clip_higher (epsilon_high 0.2 -> 0.28);"
        " outcome: no effect",
    )
    (head, bullets) = history(replace(run, history=(one,) * 9))
    assert len(bullets.items) == 5
    assert head.aside == "the last 5 of 9 looks"
    assert history(run) == []


# -------------------------------------------------------------------------------------------------------- command


def test_the_command_says_what_it_kept_and_where(folder: Path, quick: None) -> None:
    done = command(folder, "--took", "clip_higher")
    assert done.exit_code == 0
    assert f"kept in {folder / FILE}" in done.output
    assert "took clip_higher" in done.output
    opened = last_open(folder / FILE, "run")
    assert opened is not None
    assert opened.took[0].remedy == "clip_higher"
    done = command(folder, "--outcome", "cured")
    assert "took clip_higher" in done.output
    assert "beside 1 earlier entry" in done.output
    assert [one["outcome"] for one in kept(folder / FILE)] == [None, "cured"]
    assert kept(folder / FILE)[1]["took"] == kept(folder / FILE)[0]["took"]
    assert last_open(folder / FILE, "run") is None
    assert kept(folder / FILE)[0]["run"]["log"] == ["metrics.jsonl"]
    assert str(folder) not in (folder / FILE).read_text()


def test_a_dry_run_prints_and_writes_nothing(folder: Path, quick: None) -> None:
    done = command(folder, "--dry-run", "--to", "wandb://lab/grpo/abc")
    assert done.exit_code == 0
    assert not (folder / FILE).exists()
    assert json.loads(done.stdout)["verdict"]["primary"] == "entropy_collapse"
    assert "would be kept in" in done.stderr
    assert "rlclinic/verdict" in done.stderr


def test_two_runs_give_the_change_and_the_outcome(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "after.jsonl").write_text(write(scenario("plain", steps=120, seed=3), dialect="trl", form="jsonl"))
    done = command(folder, "--after", tmp_path / "after.jsonl", "--set", "learning_rate=1e-6")
    assert done.exit_code == 0, done.output
    (entry,) = kept(folder / FILE)
    assert entry["outcome"] in OUTCOMES
    assert entry["because"]
    assert entry["after"]["name"] == "after"


def test_a_finding_names_its_remedies_in_took(folder: Path, quick: None, sick: Diagnosis) -> None:
    finding = next(one for one in sick.findings if one.check == "entropy_collapse")
    first, second = (one.id for one in changes(finding)[:2])
    told = command(folder)
    assert "--took REMEDY" in told.output
    assert first in told.output
    for text, id in (("entropy_collapse", first), ("entropy_collapse:2", second), (second, second)):
        assert command(folder, "--took", text).exit_code == 0
        assert kept(folder / FILE)[-1]["took"][0]["remedy"] == id
    for wrong in ("entropy_collapse:99", "entropy_collapse:x", "nonsense"):
        assert command(folder, "--took", wrong).exit_code != 0


def test_an_outcome_alone_repeats_no_settings(folder: Path, quick: None) -> None:
    command(folder, "--took", "clip_higher", "--set", "seed_of_mine=3")
    done = command(folder, "--outcome", "no-effect")
    assert "took clip_higher, seed_of_mine\n" in done.output
    (_, bullets) = history(read([folder]))
    assert bullets.items[1].endswith("the same findings; outcome of that: no effect")  # type: ignore[union-attr]


def test_no_outcome_is_kept_of_a_run_without_fault(
    folder: Path, sick: Diagnosis, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = replace(sick, findings=(), verdict=replace(sick.verdict, severity="healthy", primary=None))
    monkeypatch.setattr(sys.modules["rlclinic.diagnose"], "diagnose", lambda run: replace(well, run=run))
    assert command(folder, "--outcome", "cured").exit_code != 0
    assert command(folder, "--outcome", "worse", "--set", "lr=2").exit_code == 0


def test_a_dry_run_is_a_few_lines(folder: Path, quick: None) -> None:
    assert len(command(folder, "--dry-run").stdout.splitlines()) < 90


def test_what_else_differs_is_not_told_as_taken(sick: Diagnosis) -> None:
    def having(**knobs: Any) -> Any:
        return replace(sick.run, knobs={k: Knob(k, v, k, "config") for k, v in knobs.items()})

    later = having(seed_data=2, max_prompt_length=900, eval_every=20)
    before = replace(sick, run=having(seed_data=1, max_prompt_length=512, eval_every=10))
    entry = record(before, took=("audit_verifier",), after=later)
    assert [(one.remedy, one.also) for one in entry.took] == [("audit_verifier", False), ("", True)]
    assert [one.key for one in entry.took[1].changes] == ["max_prompt_length", "seed_data"]
    held = past({**entry.to_dict(), "date": "2026-11-12T10:00:00Z"})
    assert held is not None
    assert held.took == entry.took
    (_, bullets) = history(replace(sick.run, history=(held,)))
    assert "took audit_verifier; also changed max_prompt_length" in bullets.items[0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-"], "-o FILE"),
        (["{run}", "--took", "nonsense"], "a remedy"),
        (["{run}", "--set", "nonsense"], "KEY=VALUE"),
        (["{run}", "--to", "neptune"], "wandb"),
        (["{run}", "--to", "wandb"], "--to wandb://ENTITY/PROJECT/RUN"),
        (["{run}", "--to", "mlflow"], "--to mlflow://"),
        (["{run}", "-o", "{run}/metrics.jsonl"], "one of the inputs"),
        (["{run}", "--after", "{run}/nothing"], "does not exist"),
        ([], "a SOURCE"),
    ],
)
def test_what_cannot_be_recorded_is_explained(folder: Path, log: str, arguments: list[str], says: str) -> None:
    filled = [one.replace("{run}", str(folder)) for one in arguments]
    done = CliRunner().invoke(cli, ["record", *filled], input=log)
    told = done.output + str(done.exception or "")
    assert (done.exit_code != 0, says in told) == (True, True), told
    assert not (folder / FILE).exists()


@pytest.mark.skipif(os.geteuid() == 0 and not hasattr(os, "seteuid"), reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(keeping.os, "open", refused)
    with pytest.raises(BadRequest, match="no permission to write in this directory") as told:
        keep({}, folder / FILE)
    assert "-o FILE" in told.value.hint


# ------------------------------------------------------------------------------------------------------- trackers

CURED = Record(
    run="run", log=("m.jsonl",), steps=(1, 200, 200), framework=("trl", ""), algorithm="grpo", settings={},
    verdict=("critical", "entropy_collapse", "it fell"),
    found=(Seen("entropy_collapse", "critical", 140.0), Seen("plateau", "info")),
    took=(Took("clip_higher", ("entropy_collapse",)),), outcome="cured",
)  # fmt: skip


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[standin_wandb.Standin]:
    rows = [{"_step": k, "train/reward": 0.1 * k} for k in range(40)]
    with standin_wandb.standin(standin_wandb.Stored("abc", rows)) as held:
        monkeypatch.setenv("WANDB_BASE_URL", held.base)
        monkeypatch.setenv("WANDB_API_KEY", standin_wandb.KEY)
        yield held


def test_wandb_keeps_what_the_user_had(wandb: standin_wandb.Standin) -> None:
    run = wandb.runs["abc"]
    run.tags[:] = ["mine", "rlclinic:kl_drift", "rlclinic:mine"]
    text = '{"best": 0.1, "odd": "NaN", "text": "{\\"a\\": 1}", "key": "' + standin_wandb.KEY + '"}'
    run.summary = text
    lines = telling.tell(CURED, "wandb://lab/grpo/abc")
    assert run.tags == ["mine", "rlclinic:mine", "rlclinic:entropy_collapse"]
    after = json.loads(run.summary)
    assert {key: after[key] for key in json.loads(text)} == json.loads(text)
    assert after["rlclinic/verdict"] == "critical"
    assert after["rlclinic/took"] == "clip_higher"
    assert after["rlclinic/findings"] == "entropy_collapse:critical@140, plateau:info"
    assert "4 other keys stay" in lines[0]
    assert "2 other tags stay" in lines[1]
    assert "rlclinic:kl_drift" in lines[2]
    assert telling.tell(CURED, "wandb://lab/grpo/abc")[1] == lines[1]
    assert run.tags[0] == "mine"


def test_wandb_that_refuses_is_told_and_the_record_stays(
    folder: Path, wandb: standin_wandb.Standin, quick: None
) -> None:
    for address, says in (("wandb://lab/grpo/none", "wandb sync"), ("wandb://lab/grpo", "ENTITY/PROJECT/RUN")):
        done = command(folder, "--to", address)
        assert done.exit_code != 0
        assert says in str(done.exception)
        assert f"the record in {folder / FILE} is kept" in str(done.exception)
    wandb.trouble.append((403, {}, b'{"errors":[{"message":"permission denied"}]}'))
    done = command(folder, "--to", "wandb://lab/grpo/abc")
    assert "may write" in str(done.exception)
    assert standin_wandb.KEY not in str(done.exception)
    assert len(kept(folder / FILE)) == 3
    assert command("wandb://lab/grpo/abc").exit_code != 0  # a run that is not on this disk needs -o


class _MLflow(BaseHTTPRequestHandler):
    tags: dict[str, str]
    refuse: set[str]

    def do_POST(self) -> None:
        body: Mapping[str, str] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 403 if body["key"] in self.refuse else 200
        if status == 200 and self.path == "/api/2.0/mlflow/runs/set-tag" and body["run_id"] == "a" * 32:
            self.tags[body["key"]] = body["value"]
        answer = b"{}" if status == 200 else b'{"message": "not yours"}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its own."""


def test_mlflow_is_given_tags_of_its_own() -> None:
    tags, refuse = {"mine": "kept"}, set[str]()
    with standin_wandb.serving(type("Handler", (_MLflow,), {"tags": tags, "refuse": refuse})) as base:
        address = f"{base.replace('http', 'mlflow+http')}/{'a' * 32}"
        (line,) = telling.tell(CURED, address)
        assert tags["mine"] == "kept"
        assert tags["rlclinic.verdict"] == "critical"
        assert tags["rlclinic.outcome"] == "cured"
        assert line.startswith(address)
        refuse.add("rlclinic.took")
        with pytest.raises(CannotRead, match=r"not yours.*written before that: rlclinic.verdict"):
            telling.tell(CURED, address)


def test_mlflow_s_own_files_get_a_file_for_each_tag(tmp_path: Path) -> None:
    for name in ("metrics", "params", "tags"):
        (tmp_path / "exp" / "run" / name).mkdir(parents=True)
    place = tmp_path / "exp" / "run"
    (place / "meta.yaml").write_text("run_id: run\n")
    (place / "tags" / "mine").write_text("kept")
    telling.tell(CURED, str(place))
    assert (place / "tags" / "mine").read_text() == "kept"
    assert (place / "tags" / "rlclinic.primary").read_text() == "entropy_collapse"
    (place / "tags" / "rlclinic.took").unlink()
    (place / "tags" / "rlclinic.took").symlink_to(tmp_path / "victim")
    with pytest.raises(BadRequest):
        telling.tell(CURED, str(place))
    assert not (tmp_path / "victim").exists()
