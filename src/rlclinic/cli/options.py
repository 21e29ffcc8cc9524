"""Options that several commands share, and how their mistakes are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from rlclinic.errors import BadRequest, RlclinicError

SEVERITIES = ("info", "warning", "critical")
FORMATS = ("terminal", "json", "markdown", "html")
ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".txt": "terminal"}
"""The format that a file is written in where none is asked for, by the ending of its name."""
CI_FORMATS = ("github", "junit", "sarif")
"""What programs of continuous integration read; only a diagnosis has these forms."""


class Number(click.types.FloatParamType):
    """A number; what is none is told like every request that cannot be carried out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(value)
        except ValueError:
            raise BadRequest("a number", f"{param.opts[0] if param else ''} {value}".strip()) from None


@contextmanager
def speaking_as(name: str) -> Iterator[None]:
    """Errors whose next command is a diagnosis name this command instead."""
    try:
        yield
    except RlclinicError as problem:
        hint = problem.hint.replace("rlclinic diagnose LOGFILE", "rlclinic diagnose RUN")
        problem.hint = hint.replace("rlclinic diagnose", f"rlclinic {name}")
        problem.args = (problem.message(),)
        raise


def finite(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """The number (or numbers) given, none of them infinite or no number."""
    for one in value if isinstance(value, tuple) else (value,):
        if one is not None and not abs(one) < float("inf"):
            raise click.BadParameter(f"a finite number is wanted, not {one}", context, option)
    return value


def output_options(command: Any, forms: Sequence[str] = FORMATS) -> Any:
    for option in (
        click.option("--format", "form", type=click.Choice(forms), default="terminal", show_default=True),
        click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file."),
        click.option("--force", is_flag=True, help="Let -o replace an existing file."),
        click.option("--fail-on", type=click.Choice(SEVERITIES), help="Exit 1 at findings of this severity or worse."),
    ):
        command = option(command)
    return command


def report_options(command: Any) -> Any:
    """Those of a command that delivers a diagnosis, which also continuous integration can read."""
    return output_options(command, (*FORMATS, *CI_FORMATS))


def run_options(command: Any) -> Any:
    for option in (
        click.option("--run", "chosen_run", metavar="NAME", help="Which of several runs in a source."),
        click.option(
            "--config", "configs", multiple=True, type=click.Path(path_type=Path), help="A configuration file."
        ),
        click.option(
            "--framework", metavar="NAME[@VERSION]", help="The trainer that wrote the log, where it cannot be told."
        ),
    ):
        command = option(command)
    return command


names_option = click.option(
    "--names", "own_names", type=click.Path(path_type=Path, dir_okay=False), help="Your own names (docs/own_names.md)."
)

eval_option = click.option("--eval", "eval_key", metavar="KEY", help="Which held-out series is the score.")

limits_option = click.option(
    "--limits", type=click.Path(path_type=Path), help="A TOML file of limits: [check] or [check.limit]."
)

baseline_option = click.option(
    "--baseline",
    "baseline_file",
    type=click.Path(path_type=Path),
    help="What your healthy runs allow (rlclinic baseline learn); --limits win over it.",
)


def checkpoint_option(command: Any) -> Any:
    return click.option(
        "--checkpoint",
        "saved",
        type=click.FloatRange(min=0),
        multiple=True,
        callback=finite,
        metavar="STEP",
        help="A step with a saved checkpoint; repeatable.",
    )(command)


verifier_option = click.option(
    "--verifier",
    metavar="MODULE:FUNCTION",
    help="Your own function(prompt, answer, truth) that grades 200 saved answers again; also FILE.py:FUNCTION.",
)


def alert_options(command: Any) -> Any:
    """Those of a command that watches: ``cli.alerting.posted`` makes of them whom to tell."""
    for option in (
        click.option("--on-critical", metavar="COMMAND", help="Run this, without a shell, at critical findings."),
        click.option("--on-warning", metavar="COMMAND", help="Run this, without a shell, at warnings and worse."),
        click.option(
            "--alert-at",
            type=click.Choice(SEVERITIES[1:]),
            default="warning",
            show_default=True,
            help="Least severity that --alert tells.",
        ),
        click.option(
            "--alert",
            "alert_addresses",
            multiple=True,
            metavar="ADDRESS",
            help="Tell changes there: Slack, Discord, https, cmd:, mail, @FILE; repeatable, else RLCLINIC_ALERT.",
        ),
    ):
        command = option(command)
    return command


def answer_options(command: Any) -> Any:
    for option in (
        click.option(
            "--rollouts",
            "answers",
            multiple=True,
            type=click.Path(path_type=Path),
            help="A file or folder of saved answers; repeatable.",
        ),
        click.option(
            "--columns",
            multiple=True,
            metavar="NAME=COLUMN,...",
            help="What the columns of your own saved answers are: prompt=question,completion=text.",
        ),
    ):
        command = option(command)
    return command


def columns_of(given: Sequence[str]) -> Mapping[str, str] | None:
    """What the columns of the user's own form are, where he says it."""
    if not given:
        return None
    from rlclinic.readers.answers import parse_columns

    return parse_columns(",".join(given))
