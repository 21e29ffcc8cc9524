"""The commands that need no run of one's own: a demonstration, and simulated logs."""

from __future__ import annotations

from pathlib import Path

import click

from rlclinic.cli.options import report_options
from rlclinic.cli.output import deliver, settled, write_out
from rlclinic.errors import BadRequest


@click.command()
@click.argument("scenario", required=False)
@click.option("--list", "listing", is_flag=True, help="List the scenarios.")
@click.option("--steps", default=400, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1))
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
    """Diagnose a run with a known illness: a real one, or a simulated SCENARIO."""
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
    help="A form of text: jsonl, trainer_state, console, ...; else its first. console5: as Transformers 5 prints.",
)
@click.option("--steps", default=400, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--log-every", default=1, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option(
    "--config-output", type=click.Path(path_type=Path, dir_okay=False), help="Write its settings to this file."
)
@click.option("--force", is_flag=True, help="Let existing files be replaced.")
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
    """Write the log of a simulated SCENARIO as a trainer would (rlclinic demo --list names them)."""
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
