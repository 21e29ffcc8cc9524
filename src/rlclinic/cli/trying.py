"""The commands that need no run of one's own: a demonstration, and simulated logs."""

from __future__ import annotations

from pathlib import Path

import click

from rlclinic.cli.delivering import deliver
from rlclinic.cli.options import file_options, report_options, simulated_options
from rlclinic.cli.output import settled, write_out
from rlclinic.errors import BadRequest


@click.command()
@click.argument("scenario", required=False)
@click.option("--list", "listing", is_flag=True, help="List the scenarios.")
@simulated_options
@report_options
def demo(
    scenario: str | None,
    listing: bool,
    steps: int,
    seed: int,
    form: str,
    output: Path | None,
    force: bool,
    fail_on: str | None,
) -> None:
    """Diagnose a run that was made sick on purpose.

    A real one of ours; with SCENARIO a simulated one.
    """
    from rlclinic.diagnose import diagnose as examine_run
    from rlclinic.simulate import as_run
    from rlclinic.simulate import listing as scenario_list
    from rlclinic.simulate import scenario as simulated

    if listing:
        click.echo(scenario_list())
        return
    form = settled(form, output)
    if scenario is None:
        from rlclinic.readers import read

        home = Path(__file__).parents[1] / "demo"
        run = read([home / "metrics.jsonl", home / "config.yaml"])
        click.echo("A real run: TRL's GRPOTrainer on a small model, made sick on purpose.\n", err=True)
    else:
        run = as_run(simulated(scenario, steps=steps, seed=seed))
    deliver(examine_run(run), form, output, force, fail_on)


@click.command()
@click.argument("scenario")
@click.option(
    "--dialect",
    default="trl",
    show_default=True,
    metavar="NAME",
    help="Whose log to write: trl, verl and most others of `rlclinic frameworks`; a wrong name lists them.",
)
@click.option(
    "--form",
    "layout",
    metavar="FORM",
    help="A form of its logs: jsonl, trainer_state, console, console5 (as Transformers 5 prints), ...; else its first.",
)
@simulated_options
@click.option(
    "--log-every",
    default=1,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Steps from one row of the log to the next.",
)
@click.option(
    "--config-output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the settings of the run to this file.",
)
@file_options
def simulate(
    scenario: str,
    dialect: str,
    layout: str | None,
    steps: int,
    log_every: int,
    seed: int,
    output: Path | None,
    config_output: Path | None,
    force: bool,
) -> None:
    """Write the log of a simulated run, healthy or sick.

    `rlclinic demo --list` names the SCENARIOs.
    """
    from rlclinic.simulate import configuration, write
    from rlclinic.simulate import scenario as simulated

    if config_output is not None and output is not None and config_output.resolve() == output.resolve():
        raise BadRequest(
            "two files", f"{output} for both the log and its settings", hint="--config-output another name"
        )
    made = simulated(scenario, steps=steps, seed=seed, log_every=log_every)
    write_out(write(made, dialect=dialect, form=layout), output, force)
    if config_output is not None:
        write_out(configuration(made, dialect=dialect), config_output, force)
