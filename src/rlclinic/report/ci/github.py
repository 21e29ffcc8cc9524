"""A Diagnosis for a step of GitHub Actions: workflow commands that become annotations, and a bounded step summary."""

from __future__ import annotations

from pathlib import Path

from rlclinic.model import Diagnosis
from rlclinic.report.blocks import KEY, count, plain
from rlclinic.report.ci.words import GRADES, SAYS, Level, broken, grade, inside, level, lines, log_of, name_of

SHOWN = 10
"""Annotations of one kind that a step shows (GitHub's REST documentation of check runs; the runner drops the rest)."""
MESSAGE = 4_096
"""Characters of a message that the runner forwards to an annotation (actions/runner, ExecutionContext)."""
SUMMARY = 1_048_576
"""Bytes of the summary of a step; with more, GitHub shows none of it (its documentation of workflow commands)."""

_COMMANDS: dict[Level, str] = {"error": "error", "warning": "warning", "note": "notice"}
_CUT = "\n\nThe report was cut here: a step summary holds 1 MiB. `-o FILE` writes it whole.\n"


def commands(diagnosis: Diagnosis, root: Path) -> str:
    """Workflow commands, one a line: the verdict with the change to make, then the other findings, the gravest first; at
    most ``SHOWN`` of each kind, the last of which names the rest.

    The verdict is as loud as the gravest finding that it explains, since its cause may be milder than what it led to.
    Paths are told relative to ``root``, the checked-out repository; a log outside it is not named, since GitHub could not
    show it. There is always at least one command: the verdict, where nothing was found or nothing could be judged.
    """
    log = log_of(diagnosis.run)
    file = None if log is None else inside(log, root)
    told: dict[Level, list[tuple[str, str, list[str]]]] = {grade: [] for grade in GRADES}
    verdict, run = diagnosis.verdict, name_of(diagnosis.run)
    if verdict.severity == "undecided":
        told["warning"].append(("undecided", f"undecided, {run} could not be judged", [plain(verdict.says, SAYS)]))
    for check, says in broken(diagnosis):
        told["warning"].append((check, f"{check} broke on {run}", [says]))
    first = next((one for one in diagnosis.findings if one.check == verdict.primary), None)
    if first is not None and verdict.severity != "undecided":
        kind = level(first) if first.status == "preview" else min(map(level, diagnosis.findings), key=GRADES.index)
        answer = [plain(verdict.says, SAYS), *lines(diagnosis, first)[1:]]
        told[kind].append((plain(first.check, KEY), f"{verdict.severity} in {run}, {plain(first.check, KEY)}", answer))
    for finding in sorted(diagnosis.findings, key=lambda one: -(one.severity or 0)):
        if finding is first and verdict.severity != "undecided":
            continue
        check = plain(finding.check, KEY)
        told[level(finding)].append((check, f"{check} ({grade(finding)}) in {run}", lines(diagnosis, finding)))
    if not any(told.values()):
        title = f"{run} is healthy" if verdict.severity == "healthy" else f"{verdict.severity}, {run}"
        told["note"].append((verdict.severity, title, [plain(verdict.says, SAYS)]))
    written = [command for kind in GRADES for command in _bounded(_COMMANDS[kind], told[kind], file)]
    return "\n".join(written) + "\n"


def _bounded(command: str, told: list[tuple[str, str, list[str]]], file: str | None) -> list[str]:
    shown = told if len(told) <= SHOWN else told[: SHOWN - 1]
    written = [_command(command, title, says, file) for _, title, says in shown]
    if rest := told[len(shown) :]:
        names = plain(", ".join(name for name, _, _ in rest), SAYS)
        written.append(_command(command, f"{count(len(rest), 'more finding')}, see the summary", [names], file))
    return written


def _command(command: str, title: str, says: list[str], file: str | None) -> str:
    properties = {"title": f"rlclinic: {title}"} | ({} if file is None else {"file": file})
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{command} {told}::{_data(chr(10).join(says)[:MESSAGE])}"


def _data(text: str) -> str:
    """``text`` so that it stays on one line (@actions/core, command.ts)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """``text`` so that it also ends no property (@actions/core, command.ts)."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def bounded_summary(markdown: str, taken: int = 0, most: int = SUMMARY) -> str:
    """As much of ``markdown`` as a step summary with ``taken`` bytes still holds, cut between two paragraphs and said so.

    Empty where not even the notice has room.
    """
    whole = markdown.encode()
    if taken + len(whole) <= most:
        return markdown
    room = most - taken - len(_CUT.encode())
    if room <= 0:
        return ""
    kept: list[str] = []
    used, fence = 0, ""
    safe = 0
    for block in markdown.split("\n\n"):
        used += len(block.encode()) + 2
        if used > room:
            break
        kept.append(block)
        for line in block.split("\n"):
            marker = line.strip()
            if fence:
                fence = "" if marker == fence else fence
            elif marker.startswith("```"):
                fence = marker[: len(marker) - len(marker.lstrip("`"))]
        safe = len(kept) if not fence else safe
    return "\n\n".join(kept[:safe]) + _CUT
