"""What every form for continuous integration says of a diagnosis: its findings, graded and in plain lines, and its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rlclinic.model import Diagnosis, Finding, Run, Severity
from rlclinic.report.blocks import KEY, plain
from rlclinic.report.findings import change_of, changes, goes_on, since

Level: TypeAlias = Literal["error", "warning", "note"]
GRADES: tuple[Level, ...] = ("error", "warning", "note")
"""The gravest first."""

SAYS = 800
"""Characters of one sentence of a finding or of the verdict (ours, as in the report)."""


@dataclass(frozen=True)
class About:
    """What is known of a check apart from any run: one sentence, its family, its page in Markdown."""

    title: str
    family: str = ""
    page: str = ""


Look: TypeAlias = Callable[[str], About]


def unknown(check: str) -> About:
    """Where nobody says what a check is, its name in words."""
    return About(plain(check, KEY).replace("_", " "))


def level(finding: Finding) -> Level:
    """How loud a finding is. A check in preview changes no exit code, so it is never louder than a note."""
    if finding.status == "preview" or finding.severity is None or finding.severity < Severity.WARNING:
        return "note"
    return "error" if finding.severity == Severity.CRITICAL else "warning"


def grade(finding: Finding) -> str:
    """The severity in words, with what weakens it."""
    word = "note" if finding.severity is None else finding.severity.label
    return f"{word}, preview" if finding.status == "preview" else word


def lines(diagnosis: Diagnosis, finding: Finding) -> list[str]:
    """What was seen, since when, from what it follows, the change to make and where to go on from; a line each, clean.

    What follows from a serious cause is mended with it, so no change is told for it.
    """
    grave = {one.check for one in diagnosis.findings if (one.severity or 0) >= Severity.WARNING}
    told = [plain(finding.says, SAYS)]
    if finding.onset is not None:
        told.append(f"Since {since(diagnosis.run, finding.onset)}.")
    if finding.because_of:
        told.append(f"Follows from {', '.join(plain(check, KEY) for check in finding.because_of[:3])}.")
    for remedy in [] if grave & set(finding.because_of) else changes(finding)[:1]:
        settings = "; ".join(_setting(*change_of(one)) for one in remedy.changes)
        told.append(f"Change: {plain(remedy.says)}{f' ({settings})' if settings else ''}")
    if finding.check == diagnosis.verdict.primary and (go_on := goes_on(finding)) is not None:
        told.append(f"Go on from {go_on}.")
    return told


def _setting(key: str, before: str, after: str, writes: str) -> str:
    if before and after:
        return f"{key}: {before} -> {after}"
    return (writes if after and writes else "") or key


def broken(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """(check, what happened) of every check that failed: a fault of ours, and no sign of health."""
    return [
        (
            plain(one.check, KEY),
            f"This check broke and judged nothing, please report it: {plain(one.says) or 'no message'}",
        )
        for one in diagnosis.checks
        if one.outcome == "failed"
    ]


def name_of(run: Run) -> str:
    """The name of the run as one bounded word for a title or a class."""
    return plain(run.name, KEY) or "run"


def log_of(run: Run) -> Path | None:
    """The file that the findings are about: the first log, else the first saved answers; None where it is no file here."""
    for role in ("metrics", "rollouts"):
        for source in run.sources:
            if source.role == role and source.path != "-" and "://" not in source.path:
                path = Path(source.path)
                try:
                    if path.is_file():
                        return path
                except (OSError, ValueError):  # a name that no file system takes
                    pass
    return None


def inside(path: Path, root: Path) -> str | None:
    """``path`` as people write it from ``root`` on, with slashes; None where it lies elsewhere."""
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except (OSError, ValueError):
        return None
