"""The command line: arguments and exit codes; everything else is imported inside the command that needs it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlclinic import __version__
from rlclinic.errors import BadRequest
from rlclinic.options import (
    FORMATS,
    SEVERITIES,
    Number,
    answer_options,
    finite,
    output_options,
    run_options,
    speaking_as,
    verifier_option,
)

if TYPE_CHECKING:
    from rlclinic.model import Diagnosis

CHANGES = ("args", "yaml", "patch")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="rlclinic")
def cli() -> None:
    """Diagnose the RL post-training run of a language model from its logs.

    \b
    rlclinic diagnose run/trainer_state.json     a file, a directory, several parts
    tail -n 20 train.log | rlclinic diagnose -   pasted lines
    rlclinic demo                                a real sick run, diagnosed
    """


@cli.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@output_options
@answer_options
@run_options
@click.option(
    "--names", "own_names", type=click.Path(path_type=Path, dir_okay=False), help="Your own names (docs/own_names.md)."
)
@click.option("--eval", "eval_key", metavar="KEY", help="Which held-out series is the score.")
@click.option("--limits", type=click.Path(path_type=Path), help="A TOML file of limits: [check] or [check.limit].")
@click.option("--only", metavar="CHECK[,CHECK]", help="Run these checks only.")
@click.option("--until", type=Number(), metavar="STEP", help="Diagnose the log as it stood at this step.")
@click.option(
    "--samples",
    type=click.IntRange(0, 50),
    default=0,
    metavar="N",
    help="Show up to N saved answers of each finding that has examples, masked; by default no text is shown.",
)
@click.option(
    "--gpus",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    metavar="N",
    help="GPUs of the whole job.",
)
@click.option(
    "--gpu-hour-price",
    type=click.FloatRange(min=0),
    callback=finite,
    metavar="X",
    help="Price of a GPU-hour.",
)
@click.option(
    "--checkpoint",
    "saved",
    type=click.FloatRange(min=0),
    multiple=True,
    callback=finite,
    metavar="STEP",
    help="A step with a saved checkpoint; repeatable.",
)
@verifier_option
def diagnose(
    sources: tuple[str, ...],
    form: str,
    output: Path | None,
    force: bool,
    fail_on: str | None,
    answers: tuple[Path, ...],
    columns: tuple[str, ...],
    framework: str | None,
    configs: tuple[Path, ...],
    chosen_run: str | None,
    own_names: Path | None,
    eval_key: str | None,
    limits: Path | None,
    only: str | None,
    until: float | None,
    samples: int,
    gpus: float | None,
    gpu_hour_price: float | None,
    saved: tuple[float, ...],
    verifier: str | None,
) -> None:
    """Diagnose one run from its SOURCEs: log files, a directory, an address, or - for standard input.

    Several sources are one run (a log and its configuration, the parts of a resumed run) and are merged by step.
    Saved answers are found in a directory; --rollouts names others, and needs no SOURCE beside it.
    An address is wandb://ENTITY/PROJECT/RUN (without RUN the runs are listed), mlflow://HOST:PORT/RUN_ID or
    mlflow+http://HOST:PORT/EXPERIMENT/RUN_NAME; nothing else is ever asked of a network.

    \b
    Exit codes: 0 ran; 1 findings at or above --fail-on; 2 could not run;
    3 with --fail-on when the run could not be judged.
    """
    from rlclinic.diagnose import diagnose as examine_run
    from rlclinic.diagnose import read_limits
    from rlclinic.readers import read

    sources = sources or tuple(map(str, answers))
    if not sources:
        raise BadRequest("a SOURCE", "none", hint="rlclinic diagnose LOGFILE")
    given = None if limits is None else read_limits(limits)
    with _busy(sources):
        run = read(
            sources,
            framework=framework,
            config=configs,
            eval_key=eval_key,
            run=chosen_run,
            names=own_names,
            rollouts=answers,
            answer_columns=_columns(columns),
        )
    run = run.told(gpus=gpus, checkpoints=saved)
    if until is not None:
        if until != until:
            raise BadRequest("a step", "--until nan")
        run = run.upto(until)
        if not len(run.steps) and not any(len(table) for table in run.rollouts):
            raise BadRequest("a step that the log has reached", f"--until {until:g}, before the first step")
    if verifier is not None:
        from rlclinic.regrade import regrade

        run = regrade(run, verifier)
    chosen = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    if chosen is not None and not chosen:
        raise BadRequest("the names of checks after --only", repr(only), hint="rlclinic checks")
    given_files = [path for path in (limits, own_names) if path is not None]
    inputs = [Path(source) for source in sources if source != "-"] + [*configs, *answers, *given_files]
    diagnosis = examine_run(run, only=chosen, limits=given, gpu_hour_price=gpu_hour_price)
    _deliver(diagnosis, form, output, force, fail_on, inputs, samples)


def _columns(given: Sequence[str]) -> Mapping[str, str] | None:
    """What the columns of the user's own form are, where he says it."""
    if not given:
        return None
    from rlclinic.readers.answers import parse_columns

    return parse_columns(",".join(given))


def _busy(sources: Sequence[str], large: int = 20_000_000) -> AbstractContextManager[object]:
    """A spinner on a terminal's standard error while an address or more than ``large`` bytes are read; else nothing."""
    afar = [source for source in sources if "://" in source]
    size = sum(path.stat().st_size for source in sources if (path := Path(source)).is_file())
    if (size < large and not afar) or sys.stderr is None or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.markup import escape

    return Console(stderr=True).status(
        f"fetching {escape(afar[0])} ..." if afar else f"reading {size / 1e6:,.0f} MB ..."
    )


def _deliver(
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

    text = render(diagnosis, form, samples=samples, **_drawing(form, output))
    read_from = [Path(source.path) for source in diagnosis.run.sources]
    _write(text, output, force, [*inputs, *read_from])
    if fail_on is None:
        return
    level = SEVERITIES.index(fail_on) + 1
    counted = [f for f in diagnosis.findings if f.status != "preview"]
    if any(f.severity is not None and f.severity >= level for f in counted):
        sys.exit(1)
    if diagnosis.verdict.severity == "undecided" or any(c.outcome == "failed" for c in diagnosis.checks):
        sys.exit(3)


def _drawing(form: str, output: Path | None) -> dict[str, Any]:
    """How wide, in colour or not, and in ASCII or not the place of the output can show a page."""
    import shutil

    terminal = sys.stdout is not None and sys.stdout.isatty() and output is None
    width = min(shutil.get_terminal_size((80, 24)).columns, 120) if output is None else 100
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower() if output is None else "utf-8"
    return {"width": max(width, 60), "color": terminal, "ascii": form == "terminal" and "utf" not in encoding}


def _write(text: str, output: Path | None, force: bool, inputs: Sequence[Path] = ()) -> None:
    """Print, or write to a file that is new (or given up with ``--force``) and none of the ``inputs``."""
    if output is None or str(output) == "-":
        if sys.stdout is None:
            raise BadRequest("a place to print to", "standard output is closed", hint="-o FILE")
        encoding = sys.stdout.encoding or "ascii"
        click.echo(text.encode(encoding, "replace").decode(encoding), nl=not text.endswith("\n"))
        return
    if str(output) == ".":
        raise BadRequest("a file to write", "an empty name after -o")
    inside = [path for path in inputs if path.is_dir() and path.resolve() in output.resolve().parents]
    if output.exists() and (inside or any(path.exists() and output.samefile(path) for path in inputs)):
        raise BadRequest("a file of its own for the report", f"{output} is one of the inputs", hint="-o another name")
    if output.exists() and not force:
        raise BadRequest("a new file to write", f"{output} exists", hint="another name, or --force to replace it")
    try:
        output.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as problem:
        raise BadRequest("a file that can be written", f"{output}: {problem.strerror}") from problem


@cli.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option("--prompt", metavar="TEXT|NUMBER", help="One prompt through the steps, by words of it or by its number.")
@click.option("--step", type=Number(), callback=finite, metavar="STEP", help="The groups of one step.")
@click.option("--all", "everything", is_flag=True, help="Every group of that prompt or step, not six of them.")
@click.option("--worst", is_flag=True, help="Lowest reward, groups without a signal, largest mismatch.")
@click.option("--best", is_flag=True, help="The highest reward, one answer a prompt.")
@click.option("--exploits", is_flag=True, help="What is rewarded besides being right, with counts and examples.")
@click.option(
    "--samples",
    type=click.IntRange(1, 200),
    default=3,
    show_default=True,
    metavar="N",
    help="Answers shown of each kind.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="terminal", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option("--force", is_flag=True, help="Let -o replace an existing file.")
@answer_options
@run_options
@verifier_option
def rollouts(
    sources: tuple[str, ...],
    prompt: str | None,
    step: float | None,
    everything: bool,
    worst: bool,
    best: bool,
    exploits: bool,
    samples: int,
    form: str,
    output: Path | None,
    force: bool,
    answers: tuple[Path, ...],
    columns: tuple[str, ...],
    framework: str | None,
    configs: tuple[Path, ...],
    chosen_run: str | None,
    verifier: str | None,
) -> None:
    """Look at the saved answers of one run: files of them, its directory, or both.

    Without an option: what was read, figures at the beginning and at the end, and what pays besides being right. With one:
    the answers themselves. Secrets and personal strings are masked, always.
    """
    from rlclinic import gallery
    from rlclinic.readers import read
    from rlclinic.readers.opening import standard_input
    from rlclinic.report import render_gallery

    sources = sources or tuple(map(str, answers))
    if not sources:
        raise BadRequest("a SOURCE", "none", hint="rlclinic rollouts RUN")
    ways = [name for name, given in (("--prompt", prompt is not None), ("--step", step is not None), ("--worst", worst),
                                     ("--best", best), ("--exploits", exploits)) if given]  # fmt: skip
    if len(ways) > 1:
        raise BadRequest("one way of choosing answers", " and ".join(ways))
    asked = gallery.Asked(prompt, step, samples if worst else None, samples if best else None, exploits, samples)
    asked = replace(asked, groups=None) if everything else asked
    given: dict[str, Any] = {
        "framework": framework,
        "config": configs,
        "run": chosen_run,
        "rollouts": answers,
        "answer_columns": _columns(columns),
        "stdin": standard_input() if "-" in sources else None,
    }
    with speaking_as("rollouts"), _busy(sources):
        run = gallery.completed(read(sources, wanted=asked.wanted(), show=True, **given))
        choice = gallery.choose(run, asked)
        more = gallery.unread(run, choice)
        if more is not None:
            run = gallery.completed(read(sources, wanted=more, **given))
    if verifier is not None:
        from rlclinic.regrade import regrade

        run = regrade(run, verifier)
    text = render_gallery(gallery.gallery(run, choice), form, **_drawing(form, output))
    inputs = [Path(source) for source in sources if source != "-"]
    _write(text, output, force, [*inputs, *configs, *answers, *(Path(source.path) for source in run.sources)])


@cli.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option("--as", "form", type=click.Choice(CHANGES), default="args", show_default=True, help="How to write them.")
@run_options
@click.option(
    "--names", "own_names", type=click.Path(path_type=Path, dir_okay=False), help="Your own names (docs/own_names.md)."
)
@answer_options
@click.option("--all", "everything", is_flag=True, help="Every change of every finding, not the first of each root.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option("--force", is_flag=True, help="Let -o replace an existing file.")
def prescribe(
    sources: tuple[str, ...],
    form: Any,
    framework: str | None,
    configs: tuple[Path, ...],
    chosen_run: str | None,
    own_names: Path | None,
    answers: tuple[Path, ...],
    columns: tuple[str, ...],
    everything: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Only the changes that a diagnosis asks for: as arguments, as YAML, or as a diff of the configuration file."""
    from rlclinic.diagnose import diagnose as examine_run
    from rlclinic.prescribe import configurations, patch
    from rlclinic.readers import read

    sources = sources or tuple(map(str, answers))
    if not sources:
        raise BadRequest("a SOURCE", "none", hint="rlclinic prescribe RUN")
    given: dict[str, Any] = {"rollouts": answers, "answer_columns": _columns(columns)}
    with speaking_as("prescribe"), _busy(sources):
        run = read(sources, framework=framework, config=configs, run=chosen_run, names=own_names, **given)
    inputs = [Path(source) for source in sources if source != "-"]
    files = configurations(inputs, configs)
    text = patch(examine_run(run), form, everything=everything, configs=files)
    own = [] if own_names is None else [own_names]
    _write(text, output, force, [*inputs, *configs, *answers, *own, *(Path(source.path) for source in run.sources)])


@cli.group("names")
def own_names_group() -> None:
    """Tables of your own names, for a loop that is not one of the known trainers (diagnose --names)."""


@own_names_group.command()
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

    with _busy(sources):
        text = drafted(sources, framework=framework, config=configs, run=chosen_run)
    _write(text, output, force, [*(Path(source) for source in sources if source != "-"), *configs])


@cli.command()
@click.argument("name")
@click.option("--framework", metavar="NAME", help="Spell settings for this trainer.")
def explain(name: str, framework: str | None) -> None:
    """The page of a check, metric, knob, remedy or framework."""
    from rlclinic.explain import page

    click.echo_via_pager(page(name, framework)) if sys.stdout.isatty() else click.echo(page(name, framework))


@cli.command()
def checks() -> None:
    """Every check, one line each."""
    from rlclinic.explain import list_checks

    click.echo(list_checks())


@cli.command()
def metrics() -> None:
    """Every canonical metric, one line each."""
    from rlclinic.explain import list_metrics

    click.echo(list_metrics())


@cli.command()
def frameworks() -> None:
    """Every trainer whose keys are known."""
    from rlclinic.explain import list_frameworks

    click.echo(list_frameworks())


@cli.command()
@click.argument("scenario", required=False)
@click.option("--list", "listing", is_flag=True, help="List the scenarios.")
@click.option("--steps", default=400, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1))
@output_options
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
    if scenario is None:
        from rlclinic.readers import read

        home = Path(__file__).parent / "demo"
        run = read([home / "metrics.jsonl", home / "config.yaml"])
        click.echo("A real run: TRL's GRPOTrainer on a small model, made sick on purpose.\n", err=True)
    else:
        run = as_run(simulated(scenario, steps=steps, seed=seed))
    _deliver(examine_run(run), form, output, force, fail_on)


@cli.command()
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
    _write(write(made, dialect=dialect, form=layout), output, force)
    if config_output is not None:
        _write(configuration(made, dialect=dialect), config_output, force)


@cli.command()
def schema() -> None:
    """The JSON Schema of `diagnose --format json`."""
    from rlclinic.report import schema as report_schema

    click.echo(report_schema())
