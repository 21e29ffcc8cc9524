"""Every case of the casebook: what fires, what must stay silent, what cannot be judged; each over several seeds."""

from __future__ import annotations

import re

import pytest

from casebook import FOLDER, Case, cases
from rlclinic.checks import CHECKS
from rlclinic.diagnose import diagnose
from rlclinic.model import Diagnosis, Severity
from rlclinic.simulate import run_from_spec

EXPECTED = re.compile(
    r"(?P<check>[a-z_]+): (?:(?P<severity>info|warning|critical)(?: or worse)?|(?P<outcome>unexamined|not_applicable|quiet))"
    r"(?:, onset (?P<low>\d+)\.\.(?P<high>\d+))?(?P<first>, first)?$"
)


CASES = cases()
CHECK_NAMES = {one.name for one in CHECKS}


def verify(diagnosis: Diagnosis, case: Case, seed: int) -> None:
    outcome = {e.check: e for e in diagnosis.checks}
    loud = {f.check: f for f in diagnosis.findings if f.severity is not None and f.severity >= Severity.WARNING}
    notes = {note.id for note in diagnosis.notes}
    allowed = set()
    for line in case.expect:
        if line == "silent":
            continue
        if line.startswith("may: "):
            allowed |= {name.strip() for name in line[5:].split(",")}
            continue
        if line.startswith(("note: ", "no note: ")):
            assert (line.split(": ")[1] in notes) == line.startswith("note"), f"seed {seed}: notes {sorted(notes)}"
            continue
        want = EXPECTED.match(line)
        assert want, f"cannot read the expectation {line!r}"
        name = want["check"]
        allowed.add(name)
        if want["outcome"] == "quiet":
            assert outcome[name].outcome == "examined", f"seed {seed}: {outcome[name]}"
            assert name not in loud, f"seed {seed}: {loud[name].says}"
        elif want["outcome"]:
            assert outcome[name].outcome == want["outcome"], f"seed {seed}: {outcome[name]}"
        else:
            finding = outcome[name].finding
            assert finding is not None, f"seed {seed}: {outcome[name]}"
            assert finding.severity is not None, f"seed {seed}: {finding.says}"
            least = Severity[want["severity"].upper()]
            fits = finding.severity >= least if "or worse" in line else finding.severity == least
            assert fits, f"seed {seed}: {finding.severity.label}: {finding.says}"
            if want["first"]:  # the change that the first three lines of the report advise is its own
                assert diagnosis.verdict.primary == name, f"seed {seed}: {diagnosis.verdict.says}"
            if want["low"]:
                assert finding.onset is not None, f"seed {seed}: no onset: {finding.says}"
                assert float(want["low"]) <= finding.onset.step <= float(want["high"]), f"seed {seed}: {finding.onset}"
    extra = {name: finding.says for name, finding in loud.items() if name not in allowed}
    assert not extra, f"seed {seed}: {extra}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    usual = 5 if request.config.getoption("--full") else 1
    for seed in range(case.spec.get("seeds", usual)):
        verify(diagnose(run_from_spec(case.spec, seed)), case, seed)


def test_every_heading_is_a_case_that_can_be_read() -> None:
    written = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert set(written) == CHECK_NAMES
    for check, text in written.items():
        mine = [case for case in CASES if case.check == check]
        titles = re.findall(r"^## (.+)$", text, re.M)
        assert [case.title for case in mine] == [title.strip() for title in titles], check
        assert len(set(titles)) == len(titles), check
        assert text.partition("## ")[0].strip(), f"{check} does not say what it is about"
    for case in CASES:
        assert case.expect, str(case)
        assert case.prose, str(case)
        assert case.expect.count("silent") == 0 or case.silent, f"{case}: silent and a warning"
        assert names_in(case) <= CHECK_NAMES, str(case)
    lines = {line for case in CASES for line in case.expect}
    withheld = {line.removeprefix("no ") for line in lines if line.startswith("no note: ")}
    assert withheld <= lines, "a note that no case gives proves nothing when it is withheld"


def names_in(case: Case) -> set[str]:
    """Every check that the expectations of a case name; a misspelt one would silently allow nothing."""
    found = set()
    for line in case.expect:
        head, _, rest = line.partition(": ")
        if head == "may":
            found |= {name.strip() for name in rest.split(",")}
        elif head not in ("silent", "note", "no note"):
            found.add(head)
    return found


def test_every_check_has_a_firing_a_silent_and_a_blind_case() -> None:
    by_check = {one.name: [c for c in CASES if c.check == one.name] for one in CHECKS}
    for name, mine in by_check.items():
        fires = [
            c
            for c in mine
            if any(line.startswith(f"{name}: ") and re.search(r"info|warning|critical", line) for line in c.expect)
        ]
        blind = [c for c in mine if any(re.match(rf"{name}: (unexamined|not_applicable)", line) for line in c.expect)]
        assert fires, f"{name} has no firing case"
        assert sum(c.silent and c not in blind for c in mine) >= 2, f"{name} has fewer than two silent look-alikes"
        assert blind, f"{name} has no case without data"


def test_more_than_half_of_the_cases_are_silent() -> None:
    assert sum(case.silent for case in CASES) > len(CASES) / 2
