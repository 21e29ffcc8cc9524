"""The commands that look at one run: its diagnosis, its saved answers, the changes that it asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rlclinic.cli.delivering import deliver
from rlclinic.cli.options import (
    Number,
    answer_options,
    columns_of,
    file_options,
    finite,
    form_option,
    judge_options,
    names_option,
    read_options,
    report_options,
    run_options,
    speaking_as,
    verifier_option,
)
from rlclinic.cli.output import busy, drawing, settled, write_out
from rlclinic.errors import BadRequest

CHANGES = ("args", "yaml", "patch")


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@read_options
@judge_options
@click.option("--only", metavar="CHECK[,CHECK]", help="Run these checks only.")
@click.option("--until", type=Number(), metavar="STEP", help="Diagnose the log as it stood at this step.")
@click.option(
    "--gpus",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    metavar="N",
    help="GPUs of the whole job, to count what a failure has cost.",
)
@click.option(
    "--gpu-hour-price",
    type=click.FloatRange(min=0),
    callback=finite,
    metavar="X",
    help="Price of a GPU-hour, in your currency.",
)
@click.option(
    "--history",
    "records",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A record of earlier looks (rlclinic record), beside the one that lies with the log; repeatable.",
)
@verifier_option
@click.option(
    "--samples",
    type=click.IntRange(0, 50),
    default=0,
    metavar="N",
    help="Show up to N saved answers of each finding that has examples, masked; by default no text is shown.",
)
@report_options
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
    baseline_file: Path | None,
    only: str | None,
    until: float | None,
    samples: int,
    gpus: float | None,
    gpu_hour_price: float | None,
    saved: tuple[float, ...],
    records: tuple[Path, ...],
    verifier: str | None,
) -> None:
    """Say what is wrong with a run, since when, and what to change.

    A SOURCE is a log file, the directory of the run, an address, or - for standard input. Several are one run (a log
    and its configuration, the parts of a resumed run) and are merged by step.
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

    form = settled(form, output)
    sources = sources or tuple(map(str, answers))
    if not sources:
        raise BadRequest("a SOURCE", "none", hint="rlclinic diagnose LOGFILE")
    given = None if limits is None else read_limits(limits)
    learning = None
    if baseline_file is not None:
        from rlclinic.baseline import judged, read_baseline

        learning = read_baseline(baseline_file)
    with busy(sources):
        run = read(
            sources,
            framework=framework,
            config=configs,
            eval_key=eval_key,
            run=chosen_run,
            names=own_names,
            rollouts=answers,
            answer_columns=columns_of(columns),
            history=records,
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
    given_files = [path for path in (limits, own_names, baseline_file) if path is not None]
    inputs = [Path(source) for source in sources if source != "-"] + [*configs, *answers, *given_files, *records]
    asked: dict[str, Any] = {"only": chosen, "limits": given, "gpu_hour_price": gpu_hour_price}
    diagnosis = examine_run(run, **asked) if learning is None else judged(run, learning, **asked)
    deliver(diagnosis, form, output, force, fail_on, inputs, samples)


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@run_options
@answer_options
@click.option("--prompt", metavar="TEXT|NUMBER", help="One prompt through the steps, by words of it or by its number.")
@click.option(
    "--step",
    type=Number(),
    callback=finite,
    metavar="STEP",
    help="The groups of one step: all answers to each of its prompts.",
)
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
@verifier_option
@form_option()
@file_options
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
    """Look at the saved answers (rollouts) of a run.

    A SOURCE is a file of them or the directory of the run. Without an option: what was read, figures at the beginning
    and at the end, and what pays besides being right. With one: the answers themselves. Secrets and personal strings
    are masked, always.
    """
    from rlclinic import gallery
    from rlclinic.readers import read
    from rlclinic.readers.opening import standard_input
    from rlclinic.report import render_gallery

    form = settled(form, output)
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
        "answer_columns": columns_of(columns),
        "stdin": standard_input() if "-" in sources else None,
    }
    with speaking_as("rollouts"), busy(sources):
        run = gallery.completed(read(sources, wanted=asked.wanted(), show=True, **given))
        choice = gallery.choose(run, asked)
        more = gallery.unread(run, choice)
        if more is not None:
            run = gallery.completed(read(sources, wanted=more, **given))
    if verifier is not None:
        from rlclinic.regrade import regrade

        run = regrade(run, verifier)
    text = render_gallery(gallery.gallery(run, choice), form, **drawing(form, output))
    inputs = [Path(source) for source in sources if source != "-"]
    write_out(text, output, force, [*inputs, *configs, *answers, *(Path(source.path) for source in run.sources)])


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@run_options
@names_option
@answer_options
@click.option("--as", "form", type=click.Choice(CHANGES), default="args", show_default=True, help="How to write them.")
@click.option("--all", "everything", is_flag=True, help="Every change of every finding, not the first of each root.")
@file_options
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
    """Print only the settings to change, ready to paste.

    They are those that `rlclinic diagnose` of the same SOURCEs asks for: as arguments of the command line, as YAML, or
    as a diff (patch) of the configuration file.
    """
    from rlclinic.diagnose import diagnose as examine_run
    from rlclinic.prescribe import configurations, patch
    from rlclinic.readers import read

    sources = sources or tuple(map(str, answers))
    if not sources:
        raise BadRequest("a SOURCE", "none", hint="rlclinic prescribe RUN")
    given: dict[str, Any] = {"rollouts": answers, "answer_columns": columns_of(columns)}
    with speaking_as("prescribe"), busy(sources):
        run = read(sources, framework=framework, config=configs, run=chosen_run, names=own_names, **given)
    inputs = [Path(source) for source in sources if source != "-"]
    files = configurations(inputs, configs)
    text = patch(examine_run(run), form, everything=everything, configs=files)
    own = [] if own_names is None else [own_names]
    write_out(text, output, force, [*inputs, *configs, *answers, *own, *(Path(source.path) for source in run.sources)])
