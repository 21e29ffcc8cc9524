"""The command that sets runs side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlclinic.cli.options import framework_option, names_option, output_options, speaking_as
from rlclinic.cli.output import busy, drawing, settled, write_out
from rlclinic.errors import BadRequest, RlclinicError

if TYPE_CHECKING:
    from rlclinic.model import Run

PART = "::"
"""Between a source and the name of one of several runs in it."""


@click.command()
@click.argument("sources", nargs=-1, metavar="A B [C...]")
@framework_option
@names_option
@click.option(
    "--by",
    type=click.Choice(("step", "token", "time")),
    default="step",
    show_default=True,
    help="The common axis: trainer steps, tokens so far, or seconds so far.",
)
@output_options
def compare(
    sources: tuple[str, ...],
    by: str,
    form: str,
    output: Path | None,
    force: bool,
    fail_on: str | None,
    framework: str | None,
    own_names: Path | None,
) -> None:
    """Set runs side by side: what differs, and since when.

    Settings, metrics and findings of each run are held against those of the first. Each argument is one run: a file,
    a directory or an address, as for diagnose; SOURCE::NAME is one of several runs in a source. Different means more
    than noise and than seeds of one recipe explain (docs/compare.md).

    \b
    Exit codes: 0 ran; 2 could not run; with --fail-on also 1 when a finding
    of that severity or worse is new or worse in a later run, 3 when that
    could not be judged.
    """
    from rlclinic.compare import compare as side_by_side
    from rlclinic.compare import failing
    from rlclinic.diagnose import diagnose
    from rlclinic.model import Severity
    from rlclinic.report import render_comparison

    form = settled(form, output)
    if len(sources) < 2:
        found = f"only {sources[0]}" if sources else "none"
        raise BadRequest("at least two runs", found, hint="rlclinic compare A B")
    _all_different(sources)
    with busy([_split(source)[0] for source in sources]):
        runs = [_read(source, framework, own_names) for source in sources]
    comparison = side_by_side([diagnose(run) for run in runs], by=by)  # type: ignore[arg-type]
    text = render_comparison(comparison, form, **drawing(form, output))
    inputs = [Path(_split(source)[0]) for source in sources]
    read_from = [Path(source.path) for run in runs for source in run.sources]
    write_out(text, output, force, [*inputs, *read_from, *([] if own_names is None else [own_names])])
    if fail_on is None:
        return
    worse, blind = failing(comparison, Severity[fail_on.upper()])
    if worse or blind:
        sys.exit(1 if worse else 3)


def _split(source: str) -> tuple[str, str | None]:
    """(source, name of a run in it); a path that exists is taken as it is."""
    if PART not in source or Path(source).exists():
        return source, None
    place, _, name = source.rpartition(PART)
    if not place or not name:
        raise BadRequest("SOURCE::NAME, the name of one of several runs", source, hint="rlclinic compare A B")
    return place, name


def _all_different(sources: Sequence[str]) -> None:
    seen: dict[tuple[str, str | None], str] = {}
    for source in sources:
        place, name = _split(source)
        if place == "-":
            raise BadRequest("files, directories or addresses", "standard input (-)", hint="rlclinic compare A B")
        real = place if "://" in place else str(Path(place).resolve())
        if (real, name) in seen:
            raise BadRequest(
                "different runs", f"{source} twice" if seen[real, name] == source else f"{source} is {seen[real, name]}"
            )
        seen[real, name] = source


def _read(source: str, framework: str | None, own_names: Path | None) -> Run:
    """One run; an error says which argument it is about, and how to name one of several runs."""
    from rlclinic.readers import read

    place, name = _split(source)
    try:
        with speaking_as("compare"):
            return read([place], framework=framework, run=name, names=own_names)
    except RlclinicError as problem:
        if "--run" in problem.hint or "several runs" in problem.found or "runs" in problem.wanted:
            problem.hint = f"rlclinic compare {place}{PART}NAME ..."
        elif place not in problem.found and place not in problem.wanted:
            problem.found = f"{place}: {problem.found}"
        problem.args = (problem.message(),)
        raise
