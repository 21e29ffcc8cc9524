"""A Diagnosis as JUnit XML: one suite a run, one case a check, for the test views of GitLab, Jenkins and others."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from rlclinic.model import Diagnosis, Examination, Finding, Severity
from rlclinic.report.blocks import KEY, plain
from rlclinic.report.ci.words import SAYS, Look, broken, grade, inside, lines, log_of, name_of
from rlclinic.report.document import lacking

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Everything outside the characters of XML 1.0 (section 2.2)."""
_ATTACHMENT = re.compile(r"\[\[(?=ATTACHMENT\|)")
"""GitLab takes a path after this mark, in the output of a case, for a picture to show."""


def to_junit(diagnosis: Diagnosis, look: Look, root: Path, fail_on: Severity = Severity.WARNING) -> str:
    """XML of Jenkins' form (junit-10.xsd): a case fails at findings of ``fail_on`` or worse, checks in preview excepted.

    What a check could not look at is skipped with its reason, a check that broke is an error, and so is the case
    ``verdict`` of a run that could not be judged: a viewer never shows such a run as green. What a failure says stands in
    the text of its element, which every viewer shows; GitLab reads neither its attributes nor the output of the case.
    """
    run, found = diagnosis.run, {one.check: one for one in diagnosis.findings}
    name = name_of(run)
    words = re.sub(r"[./\\\s]+", "_", name)
    suite = ET.Element("testsuite", name=_clean(f"rlclinic {name}"))
    properties = ET.SubElement(suite, "properties")
    for key, value in (("verdict", diagnosis.verdict.severity), ("says", plain(diagnosis.verdict.says, SAYS)),
                       ("framework", "" if run.framework is None else plain(run.framework.name, KEY))):  # fmt: skip
        ET.SubElement(properties, "property", name=key, value=_clean(value))
    if (log := log_of(run)) is not None and (file := inside(log, root)) is not None:
        suite.set("file", _clean(file))
    _verdict(suite, diagnosis, f"rlclinic.{words}", fail_on)
    failed = dict(broken(diagnosis))
    for one in diagnosis.checks:
        check = plain(one.check, KEY)
        family = plain(look(one.check).family, KEY) or "checks"
        case = ET.SubElement(
            suite, "testcase", name=_clean(check), classname=_clean(f"rlclinic.{words}.{family}"), time="0"
        )
        if one.outcome == "failed":
            _say(case, "error", "broken", failed[check])
        elif (finding := found.get(one.check)) is not None:
            _finding(case, diagnosis, finding, fail_on)
        elif one.outcome == "unexamined":
            _say(case, "skipped", "unexamined", _why(diagnosis, one))
        elif one.outcome == "not_applicable":
            _say(
                case, "skipped", "not_applicable", f"does not apply to this run: {plain(one.says) or 'no reason given'}"
            )
    counts = {kind: str(sum(1 for _ in suite.iter(tag))) for kind, tag in
              (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))}  # fmt: skip
    suite.attrib.update(counts)
    whole = ET.Element("testsuites", {"name": "rlclinic", **{k: v for k, v in counts.items() if k != "skipped"}})
    whole.append(suite)
    ET.indent(whole)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(whole, encoding="unicode")}\n'


def _verdict(suite: ET.Element, diagnosis: Diagnosis, classname: str, fail_on: Severity) -> None:
    """The case that is an error where the run could not be judged, and fails where any finding does."""
    case = ET.SubElement(suite, "testcase", name="verdict", classname=_clean(classname), time="0")
    says = plain(diagnosis.verdict.says, SAYS)
    if diagnosis.verdict.severity == "undecided":
        _say(case, "error", "undecided", f"The run could not be judged: {says}")
    elif any(_fails(finding, fail_on) for finding in diagnosis.findings):
        _say(case, "failure", diagnosis.verdict.severity, says)
    else:
        _output(case, says)


def _finding(case: ET.Element, diagnosis: Diagnosis, finding: Finding, fail_on: Severity) -> None:
    told = "\n".join(lines(diagnosis, finding))
    if finding.severity is not None and _fails(finding, fail_on):
        _say(case, "failure", finding.severity.label, told)
    else:
        _output(case, f"{grade(finding)}: {told}")


def _fails(finding: Finding, fail_on: Severity) -> bool:
    return finding.status != "preview" and finding.severity is not None and finding.severity >= fail_on


def _why(diagnosis: Diagnosis, one: Examination) -> str:
    return f"could not look: {lacking(diagnosis.run, one)}"


def _say(case: ET.Element, tag: str, kind: str, text: str) -> None:
    child = ET.SubElement(case, tag, type=kind, message=_clean(text.split("\n", 1)[0]))
    child.text = _clean(text)


def _output(case: ET.Element, text: str) -> None:
    ET.SubElement(case, "system-out").text = _clean(text)


def _clean(text: str) -> str:
    return _ATTACHMENT.sub("[ [", _NOT_XML.sub("", text))
