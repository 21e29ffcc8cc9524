"""Forms for continuous integration: what GitHub, GitLab, Jenkins and code scanning require of them, under a hostile log."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.cli import cli
from rlclinic.errors import BadRequest, UnknownName
from rlclinic.model import (
    Change,
    Column,
    Diagnosis,
    Evidence,
    Examination,
    Finding,
    Onset,
    Prescription,
    Run,
    Severity,
    Source,
    Verdict,
)
from rlclinic.report import CI_FORMATS, render, render_ci
from rlclinic.report.ci.github import MESSAGE, SHOWN, SUMMARY, bounded_summary
from rlclinic.report.ci.words import About
from rlclinic.simulate import scenario, write

ATTACK = (
    "x\n::error::owned\r\n::stop-commands::t\r::add-mask::a\x0b::warning file=a,line=1::b ##[error]c %0A::debug::d "
    "]]><script>&\x00\x1b[31m\u202e\ufffe\ud800 [[ATTACHMENT|/etc/passwd]] [click](http://evil.example) {0}"
)
COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\n\r]*)(?:,file=([^:,\n\r]*))?::([^\n\r]*)")


def finding(check: str, severity: Severity | None, says: str = "it moved", **more: Any) -> Finding:
    return Finding(severity, says, check=check, **more)


def diagnosis(
    *findings: Finding, verdict: str = "critical", says: str = "Something is wrong.", **more: Any
) -> Diagnosis:
    steps = np.arange(1.0, 61)
    sources = more.pop("sources", (Source("logs/run.jsonl", "jsonl", 60),))
    column = Column("reward.mean", "reward", steps, steps)
    run = Run(more.pop("name", "grpo"), columns={"reward.mean": column}, sources=sources)
    checks = [Examination(one.check, "examined", one) for one in findings] + list(more.pop("checks", ()))
    primary = more.pop("primary", findings[0].check if findings else None)
    return Diagnosis(run, Verdict(verdict, primary, says), findings, tuple(checks), ())  # type: ignore[arg-type]


SLOWER = Change("lr", "learning_rate", 1e-5, 1e-6, "learning_rate=1e-6")
CHANGE = Prescription("slower", "lower the learning rate", (SLOWER,))
SICK = diagnosis(
    finding("kl_drift", Severity.WARNING, "KL rose", because_of=("lr_too_high",), prescriptions=(CHANGE,)),
    finding("lr_too_high", Severity.CRITICAL, "the rate is too high", onset=Onset(12, 10, 14), prescriptions=(CHANGE,),
            evidence=Evidence(2.0, 0.001, "trend test"), numbers={"ratio": 3.0, "odd": float("inf")}),
    finding("trial", Severity.CRITICAL, "a trial", status="preview"),
    finding("plateau", Severity.INFO, "flat"),
    checks=(
        Examination("calm", "examined", Finding(None, "calm", check="calm")),
        Examination("blind", "unexamined", missing=("entropy.mean",)),
        Examination("other", "not_applicable", says="no critic"),
    ),
    primary="lr_too_high",
)  # fmt: skip
UNDECIDED = diagnosis(verdict="undecided", says="No reward is logged.")
BROKEN = diagnosis(verdict="healthy", says="Nothing.", checks=(Examination("bad", "failed", says="ZeroDivisionError"),))
HEALTHY = diagnosis(verdict="healthy", says="Nothing wrong was found in 50 checks.")
HOSTILE = diagnosis(
    finding(
        ATTACK,
        Severity.WARNING,
        ATTACK,
        prescriptions=(Prescription(ATTACK, ATTACK, (Change(ATTACK, ATTACK, ATTACK, ATTACK, ATTACK),)),),
    ),
    verdict="warning",
    says=ATTACK,
    name=ATTACK,
    sources=(Source(ATTACK, ATTACK, 60),),
    checks=(
        Examination(ATTACK + "2", "failed", says=ATTACK),
        Examination(ATTACK + "3", "unexamined", missing=(ATTACK,), says=ATTACK),
    ),
)
CASES = {"sick": SICK, "undecided": UNDECIDED, "broken": BROKEN, "healthy": HEALTHY, "hostile": HOSTILE}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checked-out repository with a log in it, as the present directory, outside of any continuous integration."""
    for variable in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "run.jsonl").write_text("{}\n")
    return tmp_path


# --------------------------------------------------------------------------------------------------- GitHub


def commands(text: str) -> list[tuple[str, str, str, str]]:
    """(kind, title, file, message) of each line as the runner takes it apart; every line must be such a command."""
    found = []
    for line in text.removesuffix("\n").split("\n"):
        parts = COMMAND.fullmatch(line)
        assert parts is not None, line
        kind, *values = parts.groups(default="")
        found.append((kind, *(_unescaped(value) for value in values)))
    return found  # type: ignore[return-value]


def _unescaped(text: str) -> str:
    """As actions/runner does it: the percent sign last."""
    for token, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(token, character)
    return text


def test_annotations_put_the_gravest_first(repository: Path) -> None:
    told = commands(render_ci(SICK, "github"))
    assert [(kind, title.split(" in ")[0]) for kind, title, _, _ in told] == [
        ("error", "rlclinic: critical"),
        ("warning", "rlclinic: kl_drift (warning)"),
        ("notice", "rlclinic: trial (critical, preview)"),
        ("notice", "rlclinic: plateau (info)"),
    ]
    assert {file for _, _, file, _ in told} == {"logs/run.jsonl"}
    cause, consequence = told[0][3], told[1][3]
    assert told[0][1] == "rlclinic: critical in grpo, lr_too_high"
    assert cause.split("\n") == [
        "Something is wrong.",
        "Since step 12 (between 10 and 14).",
        "Change: lower the learning rate (learning_rate: 1e-05 -> 1e-06)",
    ]
    assert consequence == "KL rose\nFollows from lr_too_high."


def test_the_verdict_is_as_loud_as_what_it_explains() -> None:
    effect = finding("kl_drift", Severity.CRITICAL, because_of=("lr_too_high",))
    mild = diagnosis(finding("lr_too_high", Severity.WARNING, prescriptions=(CHANGE,)), effect)
    first, second = commands(render_ci(mild, "github"))
    assert (first[0], first[1]) == ("error", "rlclinic: critical in grpo, lr_too_high")
    assert "Change: lower the learning rate" in first[3]
    assert (second[0], second[1]) == ("error", "rlclinic: kl_drift (critical) in grpo")
    trial = diagnosis(finding("trial", Severity.CRITICAL, status="preview"), finding("flat", Severity.INFO))
    assert [kind for kind, *_ in commands(render_ci(trial, "github"))] == ["notice", "notice"]


@pytest.mark.parametrize(("case", "kind", "word"), [("undecided", "warning", "undecided"), ("broken", "warning", "broke"),
                                                    ("healthy", "notice", "healthy")])  # fmt: skip
def test_silence_is_never_an_annotation(case: str, kind: str, word: str) -> None:
    ((got, title, _, says),) = commands(render_ci(CASES[case], "github"))
    assert got == kind
    assert word in title
    assert says


def test_a_log_outside_the_repository_is_not_named(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert commands(render_ci(SICK, "github", root=tmp_path_factory.mktemp("elsewhere")))[0][2] == ""
    for path in ("-", "wandb://a/b/c", "logs", "gone.jsonl"):
        away = replace(SICK, run=replace(SICK.run, sources=(Source(path, "x", 1),)))
        assert commands(render_ci(away, "github"))[0][2] == ""


def test_the_last_of_too_many_annotations_names_the_rest() -> None:
    many = diagnosis(*(finding(f"check_{i}", Severity.WARNING, "w" * 900) for i in range(25)), verdict="warning")
    told = commands(render_ci(many, "github"))
    assert len(told) == SHOWN
    assert "16 more findings" in told[-1][1]
    assert "check_24" in told[-1][3]
    assert len(commands(render_ci(replace(many, findings=many.findings[:SHOWN]), "github"))) == SHOWN


def test_no_text_of_a_log_becomes_a_command() -> None:
    text = render_ci(HOSTILE, "github")
    for kind, title, file, message in commands(text):
        assert kind in ("error", "warning", "notice")
        assert not file
        assert "\n" not in title
        assert len(message) <= MESSAGE
        assert "%0A::debug::d" in message or "broke" in title  # still the log's own five characters
    assert len(text.splitlines()) == 2


@settings(max_examples=30, deadline=None)
@given(st.text(alphabet=st.sampled_from("a:%,\n\r\v\x85\u2028=# []0A5D"), max_size=60))
def test_any_words_stay_one_command(words: str) -> None:
    sick = diagnosis(finding(words, Severity.CRITICAL, words), name=words, verdict="critical")
    assert len(commands(render_ci(sick, "github"))) == 1


# ------------------------------------------------------------------------------------------ the step summary


def test_a_summary_is_cut_between_paragraphs_and_says_so() -> None:
    page = "# run\n\n" + "word " * 20 + "\n\n```text\n" + "\n\n".join(["curve"] * 50) + "\n```\n\nend\n"
    assert bounded_summary(page) == page
    for room in range(100, len(page), 7):
        cut = bounded_summary(page, SUMMARY - room)
        assert len(cut.encode()) <= room
        assert not cut or "cut here" in cut
        assert cut.count("```") % 2 == 0
    assert bounded_summary(page, SUMMARY) == ""
    assert len(bounded_summary("é" * 10 + "\n\n" + "é" * SUMMARY)) < 200


def run_cli(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


@pytest.fixture
def log(repository: Path) -> str:
    """A run whose entropy collapses, in the repository."""
    path = repository / "logs" / "sick.jsonl"
    path.write_text(write(scenario("entropy_collapse", steps=120, seed=3), dialect="trl", form="jsonl"))
    return "logs/sick.jsonl"


def test_github_appends_to_the_step_summary(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    summary = Path("summary.md")
    summary.write_text("# before\n")
    ask = ("diagnose", log, "--only", "entropy_collapse", "--format", "github")
    done = run_cli(*ask, "--fail-on", "warning")
    assert done.exit_code == 1
    assert {file for _, _, file, _ in commands(done.stdout)} == {log}
    assert done.stderr == ""
    text = summary.read_text()
    assert text.startswith("# before\n\n")
    assert "## Findings" in text
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    plain = run_cli(*ask, "-o", "report.md")
    assert commands(plain.stdout) == commands(done.stdout)
    assert "# before\n\n" + Path("report.md").read_text() == text
    bare = run_cli(*ask)
    assert bare.stdout == plain.stdout
    assert "-o FILE" in bare.stderr


def test_a_summary_that_cannot_be_written_is_told(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path(log).read_bytes()
    Path("full.md").write_bytes(b"x" * SUMMARY)
    for bad, why in (
        (log, "one of the inputs"),
        ("logs", "no file"),
        ("full.md", "full"),
        ("no/where.md", "No such file"),
    ):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", bad)
        done = run_cli("diagnose", log, "--only", "entropy_collapse", "--format", "github")
        assert done.exit_code == 0
        assert why in commands(done.stdout)[-1][3]
    assert Path(log).read_bytes() == before
    assert Path("full.md").stat().st_size == SUMMARY + 1


# ---------------------------------------------------------------------------------------------------- JUnit

# Element: (required attributes, further attributes, children), after junit-10.xsd of Jenkins' xunit plugin.
SUITES = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"time", "skipped", "timestamp", "hostname", "id", "file"},
                  {"testsuite", "properties", "testcase", "system-out", "system-err"}),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"name"}, {"time", "classname", "group"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    "skipped": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "failure": (set(), {"type", "message"}, set()),
    "system-out": (set(), set(), set()),
}  # fmt: skip


def junit(told: Diagnosis, **more: Any) -> dict[str, ET.Element]:
    """The cases by name, of a tree that Jenkins' schema allows and whose counts are right."""
    root = ET.fromstring(render_ci(told, "junit", **more))
    for element in root.iter():
        required, allowed, children = SUITES[element.tag]
        assert required <= set(element.attrib) <= required | allowed
        assert {child.tag for child in element} <= children
    (suite,) = root
    for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == len(list(suite.iter(tag)))
    cases = list(suite.iter("testcase"))
    keys = {(case.attrib["classname"], case.attrib["name"]) for case in cases}
    assert len(keys) == len(cases), "GitLab drops cases of the same name"
    return {case.attrib["name"]: case for case in cases}


def state(case: ET.Element) -> str:
    return next((child.tag for child in case if child.tag != "system-out"), "passed")


def test_a_case_for_every_check(repository: Path) -> None:
    cases = junit(SICK, look=lambda check: About(check, "policy"))
    assert {name: state(case) for name, case in cases.items()} == {
        "verdict": "failure", "kl_drift": "failure", "lr_too_high": "failure", "trial": "passed", "plateau": "passed",
        "calm": "passed", "blind": "skipped", "other": "skipped",
    }  # fmt: skip
    failure = cases["lr_too_high"][0]
    assert failure.attrib == {"type": "critical", "message": "the rate is too high"}
    assert "Change: lower the learning rate" in (failure.text or "")
    assert "critical, preview: a trial" in (cases["trial"].findtext("system-out") or "")
    assert cases["calm"].attrib == {"name": "calm", "classname": "rlclinic.grpo.policy", "time": "0"}
    assert "not logged: entropy" in (cases["blind"].findtext("skipped") or "")


@pytest.mark.parametrize(("level", "failures"), [("critical", 2), ("warning", 3), ("info", 4)])
def test_cases_fail_from_the_level_asked_for(level: str, failures: int) -> None:
    assert [state(case) for case in junit(SICK, fail_on=level).values()].count("failure") == failures


def test_a_run_that_could_not_be_judged_is_an_error() -> None:
    assert state(junit(UNDECIDED)["verdict"]) == "error"
    assert "No reward is logged" in (junit(UNDECIDED)["verdict"].findtext("error") or "")
    assert state(junit(BROKEN)["bad"]) == "error"
    assert state(junit(HEALTHY)["verdict"]) == "passed"


def test_hostile_words_are_no_xml_and_no_attachment() -> None:
    text = render_ci(HOSTILE, "junit")
    junit(HOSTILE)
    assert "[[ATTACHMENT|" not in text
    assert not {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Cn"}} - {"\n"}


# ---------------------------------------------------------------------------------------------------- SARIF


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


TEXT = {"type": "string", "minLength": 1}
MESSAGE_FORM = _object("text", text=TEXT, markdown=TEXT)
LEVEL = {"enum": ["none", "note", "warning", "error"]}
BAG = {"type": "object", "properties": {"tags": {"type": "array", "items": TEXT, "uniqueItems": True}}}
RULE = _object("id shortDescription fullDescription help", id=TEXT, name=TEXT, shortDescription=MESSAGE_FORM,
               fullDescription=MESSAGE_FORM, help=MESSAGE_FORM, defaultConfiguration=_object("level", level=LEVEL),
               properties=BAG)  # fmt: skip
PLACE = _object("physicalLocation", physicalLocation=_object(
    "artifactLocation region", artifactLocation=_object("uri", uri={**TEXT, "pattern": r"^[!-~]+$"}, uriBaseId=TEXT),
    region=_object("startLine", startLine={"type": "integer", "minimum": 1})))  # fmt: skip
PRINTS = {"type": "object", "required": ["primaryLocationLineHash"], "additionalProperties": TEXT}
RESULT = _object("ruleId message partialFingerprints", ruleId=TEXT, ruleIndex={"type": "integer", "minimum": 0},
                 level=LEVEL, message=MESSAGE_FORM, locations={"type": "array", "items": PLACE, "minItems": 1},
                 properties=BAG, partialFingerprints=PRINTS)  # fmt: skip
NOTIFICATIONS = {"type": "array", "items": _object("message", message=MESSAGE_FORM, level=LEVEL)}
INVOCATION = _object(
    "executionSuccessful", executionSuccessful={"type": "boolean"}, toolExecutionNotifications=NOTIFICATIONS
)
DRIVER = _object("name rules", name=TEXT, version=TEXT, rules={"type": "array", "items": RULE})
RUN = _object("tool results", tool=_object("driver", driver=DRIVER), automationDetails=_object("id", id=TEXT),
              invocations={"type": "array", "items": INVOCATION}, originalUriBaseIds={"type": "object"},
              columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]}, results={"type": "array", "items": RESULT},
              properties=BAG)  # fmt: skip
SARIF = jsonschema.Draft7Validator(
    _object(
        "$schema version runs",
        **{"$schema": TEXT},
        version={"const": "2.1.0"},
        runs={"type": "array", "items": RUN},
    )
)
"""The part of the schema of SARIF 2.1.0 that is written here, and what GitHub's documentation requires beyond it; written
by hand, since no package on PyPI that could be installed for it was found to ship the schema."""


def sarif(told: Diagnosis, **more: Any) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"bare {word} in JSON")

    made = json.loads(render_ci(told, "sarif", **more), parse_constant=refuse)
    SARIF.validate(made)
    (run,) = made["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    return dict(run)


def test_a_rule_holds_what_is_meant_and_no_names_of_every_trainer(repository: Path) -> None:
    page = "# x\n\n## What you see\nA fall.\n\n## What it reads\n" + "- a key\n" * 1_000
    run = sarif(SICK, look=lambda check: About("About.", "policy", page))
    told = run["tool"]["driver"]["rules"][0]["help"]["markdown"]
    assert told == "# x\n\n## What you see\nA fall.\n\n`rlclinic explain kl_drift` says more.\n"


def test_results_lie_at_the_log(repository: Path) -> None:
    run = sarif(SICK, look=lambda check: About(f"About {check}.", "policy", f"# {check}\n"))
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [
        ("kl_drift", "warning"), ("lr_too_high", "error"), ("trial", "note"), ("plateau", "note"),
    ]  # fmt: skip
    place = {"artifactLocation": {"uri": "logs/run.jsonl", "uriBaseId": "%SRCROOT%"}, "region": {"startLine": 1}}
    assert all(one["locations"] == [{"physicalLocation": place}] for one in run["results"])
    more = run["results"][1]["properties"]
    assert more["onset"] == {"step": 12.0, "low": 10.0, "high": 14.0}
    assert more["numbers"] == {"ratio": 3.0}
    assert more["evidence"]["p_value"] == 0.001
    rule = run["tool"]["driver"]["rules"][1]
    assert rule["help"]["markdown"] == "# lr_too_high\n"
    assert rule["properties"]["tags"] == ["rlclinic", "policy"]
    assert run["invocations"] == [{"executionSuccessful": True}]
    assert str(repository) not in json.dumps(run)


def test_a_log_elsewhere_is_told_without_the_path_of_a_machine(repository: Path) -> None:
    run = sarif(SICK, root=repository / "other")
    artifact = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "logs/run.jsonl", "uriBaseId": "%SRCROOT%"}
    assert str(repository) not in json.dumps(run)
    assert run["automationDetails"]["id"].startswith("rlclinic/logs/run.jsonl-")
    nowhere = sarif(replace(SICK, run=replace(SICK.run, sources=(Source("-", "jsonl", 60),))))
    assert not any("locations" in one for one in nowhere["results"])


def test_a_name_that_is_no_utf_8_has_an_address(repository: Path) -> None:
    name = os.fsdecode(b"run\xff.jsonl")
    try:
        (repository / name).write_text("{}\n")
    except OSError:  # a file system that takes only UTF-8
        pytest.skip("no such name here")
    run = sarif(replace(SICK, run=replace(SICK.run, sources=(Source(name, "jsonl", 60),))))
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "run%FF.jsonl"


def test_fingerprints_outlive_a_growing_log(repository: Path) -> None:
    def prints(told: Diagnosis, **more: Any) -> list[str]:
        return [one["partialFingerprints"]["primaryLocationLineHash"] for one in sarif(told, **more)["results"]]

    first = prints(SICK)
    later = replace(
        SICK, findings=tuple(replace(one, says="other words", onset=Onset(50, 40, 60)) for one in SICK.findings)
    )
    assert prints(later) == first
    assert len(set(first)) == len(first)
    (repository / "b c%.jsonl").write_text("{}\n")
    other = replace(SICK, run=replace(SICK.run, sources=(Source("b c%.jsonl", "jsonl", 60),)))
    assert not set(prints(other)) & set(first)
    assert sarif(other)["automationDetails"]["id"] == "rlclinic/b%20c%25.jsonl/"


def test_code_scanning_shows_what_could_not_be_judged() -> None:
    run = sarif(UNDECIDED)
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [("undecided", "warning")]
    assert "No reward is logged" in run["results"][0]["message"]["text"]
    assert run["invocations"][0]["executionSuccessful"]
    run = sarif(BROKEN)
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [("bad", "warning")]
    says = run["results"][0]["message"]["text"]
    assert run["invocations"][0] == {
        "executionSuccessful": False,
        "toolExecutionNotifications": [{"level": "error", "message": {"text": f"bad: {says}"}}],
    }
    assert sarif(HEALTHY)["results"] == []


def test_hostile_words_are_no_link_and_no_placeholder() -> None:
    text = sarif(HOSTILE)["results"][1]["message"]["text"]
    assert r"\[click\](http://evil.example) {{0}}" in text
    assert not re.search(r"(?<!\\)[\[\]]", text)


# ------------------------------------------------------------------------------------------------ all of them


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", CI_FORMATS)
def test_no_unseen_character_reaches_a_reader(case: str, form: str) -> None:
    text = render(CASES[case], form)
    assert not {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn"}} - {"\n"}
    assert text == render(CASES[case], form)


def test_a_form_that_is_none_is_told_with_the_choices() -> None:
    for ask in (lambda: render(SICK, "junitt"), lambda: render_ci(SICK, "terminal")):  # type: ignore[name-defined]
        wrong: Callable[[], str] = ask
        with pytest.raises(UnknownName, match="junit"):
            wrong()


def test_the_command_writes_every_form(log: str) -> None:
    few = ("diagnose", log, "--only", "entropy_collapse,kl_drift")
    for form, code in (("junit", 1), ("sarif", 1)):
        done = run_cli(*few, "--format", form, "-o", f"out.{form}", "--fail-on", "warning")
        assert (done.exit_code, done.output) == (code, "")
    rule = json.loads(Path("out.sarif").read_text())["runs"][0]["tool"]["driver"]["rules"][0]
    assert "## Why it matters" in rule["help"]["markdown"]
    cases = ET.parse("out.junit").getroot().findall(".//testcase")
    assert [case.attrib["classname"].rpartition(".")[2] for case in cases[1:]] == ["exploration", "policy"]
    assert isinstance(run_cli(*few, "--format", "junit", "--samples", "2").exception, BadRequest)
    refused = run_cli("rollouts", log, "--format", "sarif")
    assert refused.exit_code == 2
    assert "'sarif' is not one of" in refused.stderr
