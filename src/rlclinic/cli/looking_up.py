"""The commands that tell what there is: checks, metrics, trainers, their pages, and drafts of own names."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rlclinic.cli.options import file_options, run_options
from rlclinic.cli.output import busy, write_out


@click.group("names")
def own_names() -> None:
    """Tell rlclinic what the keys of a loop of your own mean.

    For a training loop that is none of `rlclinic frameworks`; used with --names (docs/own_names.md).
    """


@own_names.command()
@click.argument("sources", nargs=-1, required=True, metavar="LOG...")
@run_options
@file_options
def suggest(
    sources: tuple[str, ...],
    framework: str | None,
    configs: tuple[Path, ...],
    chosen_run: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Draft a names file from a log of yours.

    Every unknown key of the LOG stands in it with what it may be; uncertain lines are comments.
    """
    from rlclinic.suggest import suggest as drafted

    with busy(sources):
        text = drafted(sources, framework=framework, config=configs, run=chosen_run)
    write_out(text, output, force, [*(Path(source) for source in sources if source != "-"), *configs])


@click.command()
@click.argument("name")
@click.option("--framework", metavar="NAME", help="Spell settings as this trainer does.")
def explain(name: str, framework: str | None) -> None:
    """Explain a check, metric, setting, remedy or trainer.

    NAME is one that a report, `rlclinic checks`, `rlclinic metrics` or `rlclinic frameworks` shows.
    """
    from rlclinic.explain import page

    click.echo_via_pager(page(name, framework)) if sys.stdout.isatty() else click.echo(page(name, framework))


@click.command()
def checks() -> None:
    """List every check: the failures that are looked for."""
    from rlclinic.explain import list_checks

    click.echo(list_checks())


@click.command()
def metrics() -> None:
    """List every metric, by the name that all trainers share here."""
    from rlclinic.explain import list_metrics

    click.echo(list_metrics())


@click.command()
def frameworks() -> None:
    """List every trainer whose logs and settings are known."""
    from rlclinic.explain import list_frameworks

    click.echo(list_frameworks())


@click.command()
@click.argument("of", default="diagnosis", metavar="[diagnosis|comparison|...]")
def schema(of: str) -> None:
    """Print the JSON Schema of `--format json`.

    That of a diagnosis, or of what another command prints.
    """
    from rlclinic.report import schema as report_schema

    click.echo(report_schema(of))
