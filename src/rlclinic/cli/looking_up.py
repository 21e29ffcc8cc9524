"""The commands that tell what there is: checks, metrics, trainers, their pages, and drafts of own names."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rlclinic.cli.output import busy, write_out


@click.group("names")
def own_names() -> None:
    """Tables of your own names, for a loop that is not one of the known trainers (diagnose --names)."""


@own_names.command()
@click.argument("sources", nargs=-1, required=True, metavar="LOG...")
@click.option("--framework", metavar="NAME[@VERSION]", help="The trainer underneath, where it cannot be told.")
@click.option("--config", "configs", multiple=True, type=click.Path(path_type=Path), help="A configuration file.")
@click.option("--run", "chosen_run", metavar="NAME", help="Which of several runs in a source.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option("--force", is_flag=True, help="Let -o replace an existing file.")
def suggest(
    sources: tuple[str, ...],
    framework: str | None,
    configs: tuple[Path, ...],
    chosen_run: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Draft a names file from LOG: every unknown key with what it may be; uncertain lines are comments."""
    from rlclinic.suggest import suggest as drafted

    with busy(sources):
        text = drafted(sources, framework=framework, config=configs, run=chosen_run)
    write_out(text, output, force, [*(Path(source) for source in sources if source != "-"), *configs])


@click.command()
@click.argument("name")
@click.option("--framework", metavar="NAME", help="Spell settings for this trainer.")
def explain(name: str, framework: str | None) -> None:
    """The page of a check, metric, knob, remedy or framework."""
    from rlclinic.explain import page

    click.echo_via_pager(page(name, framework)) if sys.stdout.isatty() else click.echo(page(name, framework))


@click.command()
def checks() -> None:
    """Every check, one line each."""
    from rlclinic.explain import list_checks

    click.echo(list_checks())


@click.command()
def metrics() -> None:
    """Every canonical metric, one line each."""
    from rlclinic.explain import list_metrics

    click.echo(list_metrics())


@click.command()
def frameworks() -> None:
    """Every trainer whose keys are known."""
    from rlclinic.explain import list_frameworks

    click.echo(list_frameworks())


@click.command()
@click.argument("of", default="diagnosis", metavar="[diagnosis|comparison|...]")
def schema(of: str) -> None:
    """The JSON Schema of `--format json`: of a diagnosis, or of what another command prints."""
    from rlclinic.report import schema as report_schema

    click.echo(report_schema(of))
