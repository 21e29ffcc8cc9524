"""The commands on baselines: learn one from healthy runs, and show what a file holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlclinic.cli.options import eval_option, file_options, framework_option, names_option, speaking_as
from rlclinic.cli.output import busy, write_out
from rlclinic.errors import BadRequest

if TYPE_CHECKING:
    from rlclinic.baseline import Learning


@click.group("baseline")
def baseline() -> None:
    """Let runs of yours that went well loosen the limits.

    Learned once, used by diagnose, watch and serve with --baseline (docs/baselines.md).
    """


@baseline.command()
@click.argument("sources", nargs=-1, metavar="HEALTHY...")
@framework_option
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file with settings that hold for all of the runs; repeatable.",
)
@names_option
@eval_option
@click.option(
    "--accept",
    metavar="CHECK[,CHECK]",
    help="Take runs as healthy of which these checks warn, and move their limits until they are silent.",
)
@click.option("--anyway", is_flag=True, help="Take every run as healthy, whatever is found.")
@file_options
def learn(
    sources: tuple[str, ...],
    output: Path | None,
    force: bool,
    accept: str | None,
    anyway: bool,
    framework: str | None,
    configs: tuple[Path, ...],
    own_names: Path | None,
    eval_key: str | None,
) -> None:
    """Learn a baseline from healthy runs of one recipe.

    Each HEALTHY is one run: a file, a directory or an address.
    Without -o the file is printed and nothing is written; with it, what was learned is told.
    """
    from rlclinic import baseline as baselines
    from rlclinic.readers import read

    if not sources:
        raise BadRequest("healthy runs", "none", hint="rlclinic baseline learn RUN... -o my.toml")
    places = [source if "://" in source or source == "-" else os.path.realpath(source) for source in sources]
    twice = next((source for i, source in enumerate(sources) if places[i] in places[:i]), None)
    if twice is not None:
        raise BadRequest("different runs", f"{twice} given twice", hint="give each run once")
    accepted = [name.strip() for name in (accept or "").split(",") if name.strip()]
    if accept is not None and not accepted:
        raise BadRequest("the names of checks after --accept", repr(accept), hint="rlclinic checks")
    with speaking_as("baseline learn"), busy(sources):
        runs = [
            read([source], framework=framework, config=configs, names=own_names, eval_key=eval_key)
            for source in sources
        ]
    learning = baselines.learn(runs, accept=accepted, anyway=anyway)
    inputs = [Path(source) for source in sources if source != "-"]
    inputs += [*configs, *([] if own_names is None else [own_names])]
    inputs += [Path(source.path) for run in runs for source in run.sources]
    write_out(baselines.to_toml(learning), output, force, inputs)
    told = "\n".join(f"mind: {words}" for words in learning.told)
    if output is not None and str(output) != "-":
        told = "\n".join(
            (
                f"{output}: {_summary(learning)}",
                *([told] if told else []),
                f"use it: rlclinic diagnose RUN --baseline {output}",
            )
        )
    if told:
        click.echo(_clean(told), err=output is None or str(output) == "-")


@baseline.command()
@click.argument("file", type=click.Path(path_type=Path))
def show(file: Path) -> None:
    """Show what a baseline FILE holds.

    Its runs and their recipe, the limits that it moves, and its bands: where each metric of those runs lay.
    """
    from rlclinic import baseline as baselines

    learning = baselines.read_baseline(file)
    click.echo(_clean(_summary(learning)))
    # How far a run has come, and its totals, are no measure of it.
    bands = [(_title(name), one) for name, one in learning.bands.items() if not name.startswith(("progress.", "run."))]
    if bands:
        width = min(max(len(name) for name, _ in bands), 40)
        click.echo(f"\n{'band':{width}}  {'first tenth':>23}  {'last tenth':>23}  runs    rows")
        for name, course in bands:
            ends = [f"{course.low[at]:.4g} to {course.high[at]:.4g}" for at in (0, -1)]
            line = f"{_clean(name)[:width]:{width}}  {ends[0]:>23}  {ends[1]:>23}  {course.runs:4}  {course.rows:6}"
            click.echo(line)


def _title(name: str) -> str:
    """A band by the plain name of its metric, which a reward part and a held-out key are themselves."""
    from rlclinic.report.series import title_of

    kind, _, own = name.partition(".")
    return f"reward part {own}" if kind == "part" else f"held out: {own}" if kind == "held_out" else title_of(name)


def _summary(learning: Learning) -> str:
    """Runs, recipe and moved limits in a few lines."""
    recipe, runs = learning.recipe, learning.runs
    names = ", ".join(run.name for run in runs[:6]) + (f" and {len(runs) - 6} more" if len(runs) > 6 else "")
    rows = sum(run.rows for run in runs)
    lines = [
        f"learned from {len(runs)} run{'s' * (len(runs) != 1)} ({names}), {rows} rows, {len(learning.bands)} bands"
    ]
    settings = ", ".join(f"{name} {value}" for name, value in recipe.settings.items())
    versions = f" ({', '.join(recipe.versions)})" if recipe.versions else ""
    lines.append(f"recipe: {settings or 'not known'}{versions}")
    lines += [f"differs between the runs: {', '.join(recipe.varied)}"] if recipe.varied else []
    if not learning.limits:
        lines.append(
            f"no limit is moved{'' if learning.accepted else ': these runs are well within the built-in ones'}"
        )
    for one in learning.limits:
        moved = ", ".join(
            f"{'' if grade == 'value' else f'{grade} '}{one.before[grade]:g} -> {number:g}"
            for grade, number in one.numbers.items()
        )
        lines.append(f"moved: {one.check}.{one.limit} {moved} ({one.because})")
    return "\n".join(lines)


def _clean(text: str) -> str:
    """Without anything that a terminal would obey; line breaks are ours."""
    from rlclinic.report.blocks import plain

    return "\n".join(plain(line, 600) for line in text.split("\n"))
