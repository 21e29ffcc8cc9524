"""The command that asks, after a change, whether the cure worked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlclinic.cli.options import (
    SEVERITIES,
    Number,
    finite,
    limits_option,
    names_option,
    output_options,
    run_options,
    speaking_as,
)
from rlclinic.cli.output import busy, drawing, settled, write_out
from rlclinic.errors import BadRequest

if TYPE_CHECKING:
    from rlclinic.verify import Verification


@click.command()
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="[AFTER]", required=False)
@run_options
@names_option
@limits_option
@click.option(
    "--at", type=Number(), callback=finite, metavar="STEP", help="One log holds both: the change was at STEP."
)
@click.option(
    "--resumed",
    type=Number(),
    callback=finite,
    metavar="STEP",
    help="AFTER goes on from STEP of BEFORE, should its own steps not tell.",
)
@output_options
def verify(
    before: str,
    after: str | None,
    at: float | None,
    resumed: float | None,
    form: str,
    output: Path | None,
    force: bool,
    fail_on: str | None,
    framework: str | None,
    configs: tuple[Path, ...],
    chosen_run: str | None,
    own_names: Path | None,
    limits: Path | None,
) -> None:
    """Judge by a later run whether a change cured the findings.

    Each finding of BEFORE is cured, improving, not changed, worse, or not to tell yet by what AFTER shows. AFTER is a
    new run with the changed settings, or one that goes on from a checkpoint of BEFORE. With --at STEP one log holds
    both. --config is the configuration of AFTER where its log holds none; each directory brings its own.

    \b
    Exit codes: 0 ran; 2 could not run; with --fail-on also 1 when a finding
    of that severity or worse is not cured and not improving, or is new, 3
    when it cannot be decided yet.
    """
    from rlclinic.diagnose import diagnose, read_limits
    from rlclinic.readers import read
    from rlclinic.report import render_verification
    from rlclinic.verify import split
    from rlclinic.verify import verify as judge

    form = settled(form, output)
    if (after is None) == (at is None):
        found = "only BEFORE" if after is None else f"AFTER and --at {at:g}"
        raise BadRequest("a run after the change, or --at STEP for one log", found, hint="rlclinic verify BEFORE AFTER")
    if at is not None and resumed is not None:
        raise BadRequest("one way to say where AFTER begins", "--at and --resumed")
    if after is not None and _same(before, after):
        raise BadRequest("two runs", f"the same twice: {before}", hint="rlclinic verify RUN --at STEP")
    given = None if limits is None else read_limits(limits)
    settings: dict[str, Any] = {"framework": framework, "run": chosen_run, "names": own_names}
    with speaking_as("verify"), busy([one for one in (before, after) if one is not None]):
        one = read([before], config=configs if after is None else (), **settings)
        two = None if after is None else read([after], config=configs, **settings)
    if at is not None:
        one, two = split(one, at)
    assert two is not None
    found_in = diagnose(one, limits=given), diagnose(two, limits=given)
    verification = judge(*found_in, resumed=resumed, one_log=at is not None, limits=given)
    read_from = [Path(source.path) for run in (one, two) for source in run.sources]
    given_files = [path for path in (*configs, own_names, limits) if path is not None]
    inputs = [Path(source) for source in (before, after) if source is not None and source != "-"]
    text = render_verification(verification, form, **drawing(form, output))
    write_out(text, output, force, [*inputs, *given_files, *read_from])
    if fail_on is not None:
        sys.exit(_code(verification, SEVERITIES.index(fail_on) + 1))


def _same(before: str, after: str) -> bool:
    if before == after:
        return True
    one, other = Path(before), Path(after)
    try:
        return one.exists() and other.exists() and one.samefile(other)
    except (OSError, ValueError):
        return False


def _code(verification: Verification, level: int) -> int:
    """1 for what is not cured and not improving, or new; 3 for what cannot be decided, or a run before that could not be
    judged; else 0."""
    asked = [cure for cure in verification.cures if (cure.finding.severity or 0) >= level]
    sick = any(cure.verdict in ("no_effect", "worse", "overshot") for cure in asked)
    if sick or any((finding.severity or 0) >= level for finding in verification.new):
        return 1
    blind = not verification.cures and verification.before.verdict.severity == "undecided"
    return 3 if blind or any(cure.verdict == "undecided" for cure in asked) else 0
