"""A Diagnosis as SARIF 2.1.0, for code scanning and for viewers of static analysis."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from rlclinic import __version__
from rlclinic.model import Diagnosis, Finding, Tier
from rlclinic.report.blocks import KEY, plain
from rlclinic.report.ci.words import SAYS, Level, Look, broken, inside, level, lines, log_of, name_of

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
"""The address of the schema that GitHub's documentation names."""
_ROOT = "%SRCROOT%"
_SHORT, _LONG = 200, 1_000
"""Characters of the descriptions of a rule: GitHub takes 1,024."""
_PRECISION: dict[Tier, str] = {"certain": "very-high", "likely": "high", "hint": "low"}
_PROBLEM: dict[Level, str] = {"error": "error", "warning": "warning", "note": "recommendation"}
_UNDECIDED = "undecided"
_DETAILS = "\n## What it reads"
"""Where the page of a check turns from what is meant to what is measured: names of every trainer, ten times as long."""


def to_sarif(diagnosis: Diagnosis, look: Look, root: Path) -> str:
    """One SARIF run: a rule for each check that spoke, a result for each finding, for each check that broke, and for a run
    that could not be judged (rule ``undecided``).

    A result lies at the log as a whole, line 1, since no reader keeps the lines of rows. Its fingerprint is made of the
    check and the log alone, so that a log that grows raises the same alert and not a second one.
    """
    run = diagnosis.run
    log = log_of(run)
    where = None if log is None else _location(log, root)
    identity = name_of(run) if where is None else str(where["physicalLocation"]["artifactLocation"]["uri"])
    if log is not None and inside(log, root) is None:
        identity += f"-{hashlib.sha256(os.fsencode(log.resolve())).hexdigest()[:8]}"  # of two that are named alike
    rules: dict[str, dict[str, Any]] = {}
    results: list[dict[str, Any]] = []

    def add(rule: str, kind: Level, text: str, about: dict[str, Any], more: dict[str, Any]) -> None:
        rules.setdefault(rule, about)
        print_of = hashlib.sha256(f"{rule}\n{identity}".encode()).hexdigest()[:32]
        results.append(
            {
                "ruleId": rule,
                "ruleIndex": list(rules).index(rule),
                "level": kind,
                "message": {"text": _message(text)},
                **({} if where is None else {"locations": [where]}),
                "partialFingerprints": {"primaryLocationLineHash": f"{print_of[:16]}:1", "rlclinic/v1": print_of},
                **({"properties": more} if more else {}),
            }
        )

    if diagnosis.verdict.severity == "undecided":
        about = _rule(_UNDECIDED, "The run could not be judged.", "", "verdict", "warning", "very-high")
        add(_UNDECIDED, "warning", f"The run could not be judged: {plain(diagnosis.verdict.says, SAYS)}", about, {})
    for check, says in broken(diagnosis):
        add(check, "warning", says, _about(check, look, "warning", "very-high"), {"outcome": "failed"})
    for finding in diagnosis.findings:
        check, kind = plain(finding.check, KEY), level(finding)
        trust = "low" if finding.status == "preview" else _PRECISION[finding.tier]
        about = _about(check, look, kind, trust)
        add(check, kind, "\n".join(lines(diagnosis, finding)), about, _properties(finding))
    told = _run(diagnosis, rules, results, identity)
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [told]}, ensure_ascii=False, indent=2) + "\n"


def _run(
    diagnosis: Diagnosis, rules: dict[str, dict[str, Any]], results: list[dict[str, Any]], identity: str
) -> dict[str, Any]:
    failed = broken(diagnosis)
    notifications = [{"level": "error", "message": {"text": _message(f"{check}: {says}")}} for check, says in failed]
    if diagnosis.verdict.severity == "undecided":
        says = f"The run could not be judged: {plain(diagnosis.verdict.says, SAYS)}"
        notifications.append({"level": "warning", "message": {"text": _message(says)}})
    return {
        "tool": {"driver": {"name": "rlclinic", "version": __version__, "rules": list(rules.values())}},
        "automationDetails": {"id": f"rlclinic/{identity}/"},
        "invocations": [
            {
                "executionSuccessful": not failed,
                **({"toolExecutionNotifications": notifications} if notifications else {}),
            }
        ],
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {"verdict": diagnosis.verdict.severity, "says": plain(diagnosis.verdict.says, SAYS)},
    }


def _about(check: str, look: Look, kind: Level, trust: str) -> dict[str, Any]:
    known = look(check)
    page, details, _ = known.page.partition(_DETAILS)
    more = f"\n`rlclinic explain {check}` says more.\n" if details else ""
    return _rule(check, known.title, f"{page}{more}", known.family, kind, trust)


def _rule(check: str, title: str, page: str, family: str, kind: Level, trust: str) -> dict[str, Any]:
    """A rule with what code scanning requires of it; the page of the check is its help."""
    title = plain(title, _LONG) or check
    return {
        "id": check,
        "name": check,
        "shortDescription": {"text": _message(plain(title, _SHORT))},
        "fullDescription": {"text": _message(title)},
        "help": {"text": _message(title), **({"markdown": page} if page else {})},
        "defaultConfiguration": {"level": kind},
        "properties": {
            "tags": [tag for tag in ("rlclinic", plain(family, KEY)) if tag],
            "precision": trust,
            "problem.severity": _PROBLEM[kind],
        },
    }


def _location(log: Path, root: Path) -> dict[str, Any]:
    """The log: from the root of the repository on. Of one that lies elsewhere the last folder and its name are told, since
    an upload can place no path of a machine, and paths name people."""
    near = inside(log, root)
    told = "/".join(log.resolve().parts[-2:]).lstrip("/") if near is None else near
    artifact = {"uri": quote(os.fsencode(told)), "uriBaseId": _ROOT}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": 1}}}


def _properties(finding: Finding) -> dict[str, Any]:
    """What programs may want besides the words; numbers that are not finite are left out, as JSON has none."""
    onset, evidence = finding.onset, finding.evidence
    more: dict[str, Any] = {"tier": finding.tier, "status": finding.status}
    if finding.severity is not None:
        more["severity"] = finding.severity.label
    if onset is not None:
        more["onset"] = _finite({"step": onset.step, "low": onset.low, "high": onset.high})
    if evidence is not None:
        chance = {} if evidence.p_value is None else {"p_value": evidence.p_value}
        more["evidence"] = {**_finite({"effect": evidence.effect, **chance}), "method": plain(evidence.method)}
    more["numbers"] = _finite({plain(name, KEY): value for name, value in finding.numbers.items()})
    return {key: value for key, value in more.items() if value != {}}


def _finite(numbers: dict[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items() if np.isfinite(value)}


def _message(text: str) -> str:
    """``text`` as a plain SARIF message: no link and no placeholder in it (SARIF 2.1.0, sections 3.11.5 and 3.11.6)."""
    return re.sub(r"\{(\d+)\}", r"{{\1}}", re.sub(r"[\\\[\]]", r"\\\g<0>", text))
