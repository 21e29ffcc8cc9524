"""The command that writes alert rules and panels for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from rlclinic.cli.options import file_options
from rlclinic.cli.output import write_out

KINDS = ("prometheus", "grafana", "wandb")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--framework", metavar="NAME[@VERSION]", help="Name series as this trainer names its metrics.")
@click.option("--prefix", default="", metavar="TEXT", help="What stands before the names of your series: grpo_.")
@click.option(
    "--series",
    "own",
    multiple=True,
    metavar="METRIC=SERIES",
    help="What you call one metric: kl.ref=grpo_kl_to_reference; repeatable.",
)
@file_options
def templates(
    kind: str, framework: str | None, prefix: str, own: tuple[str, ...], output: Path | None, force: bool
) -> None:
    """Write alert rules or panels for Prometheus, Grafana or W&B.

    They hold the limits of the checks against the series that your trainer already sends there (docs/templates.md).

    \b
    prometheus   alert rules: on `rlclinic serve` (everything), and on series that you export
    grafana      a dashboard to import, with the limits as lines
    wandb        a Python script that makes a workspace and, if asked, automations
    """
    from rlclinic.templates import naming, template

    write_out(template(kind, naming(framework, prefix, own)), output, force)
    if kind == "wandb" and framework is None and not own:
        says = "keys are rlclinic's own names (entropy.mean); --framework trl writes those of your W&B project"
        click.echo(f"rlclinic: {says}", err=True)
