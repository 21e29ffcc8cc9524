"""A diagnosis delivered: printed, written or handed to continuous integration, and the exit code that it asks for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlclinic.cli.options import CI_FORMATS, ENDINGS, SEVERITIES
from rlclinic.cli.output import drawing, write_out
from rlclinic.errors import BadRequest

if TYPE_CHECKING:
    from rlclinic.model import Diagnosis
    from rlclinic.report.ci.words import Look

SUMMARY = "GITHUB_STEP_SUMMARY"
"""Names the file to which a step of GitHub Actions appends its Markdown."""
ROOTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Name the checked-out repository, on GitHub and on GitLab."""
_NO_SUMMARY = f"{SUMMARY} is not set, so only the annotations were printed; -o FILE writes the report as Markdown."


def deliver(
    diagnosis: Diagnosis,
    form: str,
    output: Path | None,
    force: bool,
    fail_on: str | None,
    inputs: Sequence[Path] = (),
    samples: int = 0,
) -> None:
    """Print or write the report, then leave with the exit code that ``--fail-on`` asks for."""
    from rlclinic.report import render

    read_from = [Path(source.path) for source in diagnosis.run.sources]
    if form in CI_FORMATS:
        _hand_over(diagnosis, form, output, force, fail_on, [*inputs, *read_from], samples)
    else:
        text = render(diagnosis, form, samples=samples, **drawing(form, output))
        write_out(text, output, force, [*inputs, *read_from])
    if fail_on is None:
        return
    level = SEVERITIES.index(fail_on) + 1
    counted = [f for f in diagnosis.findings if f.status != "preview"]
    if any(f.severity is not None and f.severity >= level for f in counted):
        sys.exit(1)
    if diagnosis.verdict.severity == "undecided" or any(c.outcome == "failed" for c in diagnosis.checks):
        sys.exit(3)


def _hand_over(
    diagnosis: Diagnosis,
    form: str,
    output: Path | None,
    force: bool,
    fail_on: str | None,
    inputs: Sequence[Path],
    samples: int,
) -> None:
    """Write ``diagnosis`` in one of the forms of ``CI_FORMATS``. JUnit and SARIF go where ``-o`` says or are printed.

    For GitHub the annotations are always printed, since only standard output is searched for commands; the report
    goes to the file of ``-o`` (in the form of its ending, else Markdown), else is appended to the step summary. Saved
    answers are never printed: a line of one could be a command.
    """
    from rlclinic.report import render, render_ci

    root = repository()
    if form != "github":
        if samples:
            raise BadRequest(
                "a form that shows saved answers", f"--samples with --format {form}", hint="--format markdown"
            )
        text = render_ci(diagnosis, form, root=root, fail_on=fail_on or "warning", look=_look(form))
        write_out(text, output, force, inputs)
        return
    write_out(render_ci(diagnosis, form, root=root), None, False)
    if output is not None and str(output) != "-":
        ending = ENDINGS.get(output.suffix.lower(), "markdown")
        page = render(diagnosis, ending, samples=samples, **drawing(ending, output))
        write_out(page, output, force, inputs)
    elif summary := os.environ.get(SUMMARY):
        if problem := _append(Path(summary), render(diagnosis, "markdown", samples=samples), inputs):
            write_out(f"::warning title=rlclinic::The step summary was not written: {problem}\n", None, False)
    else:
        click.echo(_NO_SUMMARY, err=True)


def repository() -> Path:
    """The checked-out repository as the environment names it, else the present directory."""
    named = (Path(path) for variable in ROOTS if (path := os.environ.get(variable)))
    return next((path for path in named if path.is_dir()), Path.cwd())


def _append(summary: Path, page: str, inputs: Sequence[Path]) -> str:
    """Add ``page`` to the step summary as far as it has room; what kept that from being done, empty when it was."""
    from rlclinic.report.ci.github import bounded_summary

    try:
        if summary.exists() and not summary.is_file():
            return f"{SUMMARY} names no file"
        if summary.exists() and any(path.exists() and summary.samefile(path) for path in inputs):
            return f"{SUMMARY} names one of the inputs"
        taken = summary.stat().st_size + 1 if summary.exists() else 0
        text = bounded_summary(page, taken)
        with summary.open("a", encoding="utf-8", newline="\n") as file:
            file.write("\n" * (taken > 1) + text)
    except (OSError, ValueError) as problem:
        return getattr(problem, "strerror", None) or "it cannot be opened"
    return "" if text else "it is full"


def _look(form: str) -> Look:
    """What is known of each check; its whole page only where the form shows one."""
    from rlclinic.checks import BY_NAME
    from rlclinic.explain import page
    from rlclinic.report.ci.words import About, unknown

    def about(check: str) -> About:
        one = BY_NAME.get(check)
        return unknown(check) if one is None else About(one.title, one.family, page(check) if form == "sarif" else "")

    return about
