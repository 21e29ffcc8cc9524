"""Options that several commands share, and how their mistakes are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from rlclinic.errors import BadRequest, RlclinicError

_Command = TypeVar("_Command", bound=Callable[..., Any])

SEVERITIES = ("info", "warning", "critical")
FORMATS = ("terminal", "json", "markdown", "html")
ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".txt": "terminal"}
"""The format that a file is written in where none is asked for, by the ending of its name."""
CI_FORMATS = ("github", "junit", "sarif")
"""What programs of continuous integration read; only a diagnosis has these forms."""
EVERY = 10.0
"""Seconds between looks at least: that of ``live.following``, which is too heavy to be asked for ``--help``."""


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


def _all(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """One decorator of several options, which ``--help`` then lists in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


file_options = _all(
    click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file."),
    click.option("--force", is_flag=True, help="Let -o replace an existing file."),
)
"""Where a command writes what it would print."""


def form_option(forms: Sequence[str] = FORMATS) -> Callable[[_Command], _Command]:
    return click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        default="terminal",
        show_default=True,
        help="The form of the report; else the ending of -o says it.",
    )


fail_option = click.option(
    "--fail-on", type=click.Choice(SEVERITIES), help="Exit 1 at findings of this severity or worse."
)
output_options = _all(form_option(), file_options, fail_option)
report_options = _all(form_option((*FORMATS, *CI_FORMATS)), file_options, fail_option)
"""Those of a command that delivers a diagnosis, which also continuous integration can read."""

framework_option = click.option(
    "--framework", metavar="NAME[@VERSION]", help="The trainer that wrote the log, where it cannot be told."
)
run_options = _all(
    framework_option,
    click.option(
        "--config",
        "configs",
        multiple=True,
        type=click.Path(path_type=Path),
        help="A file with the settings of the run, where it is not found beside the log; repeatable.",
    ),
    click.option("--run", "chosen_run", metavar="NAME", help="Which of several runs in a source."),
)
names_option = click.option(
    "--names",
    "own_names",
    type=click.Path(path_type=Path, dir_okay=False),
    help="What the keys of a loop of your own mean (docs/own_names.md).",
)
eval_option = click.option(
    "--eval", "eval_key", metavar="KEY", help="Which evaluation series is the score, where several are logged."
)
answer_options = _all(
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
)
read_options = _all(run_options, names_option, eval_option, answer_options)
"""How the files of one run are to be read."""

limits_option = click.option(
    "--limits",
    type=click.Path(path_type=Path),
    help="Limits of your own, in TOML: [CHECK] and LIMIT = NUMBER (rlclinic explain CHECK names them).",
)
checkpoint_option = click.option(
    "--checkpoint",
    "saved",
    type=click.FloatRange(min=0),
    multiple=True,
    callback=finite,
    metavar="STEP",
    help="A step with a saved checkpoint, to go back to; repeatable.",
)
judge_options = _all(
    limits_option,
    click.option(
        "--baseline",
        "baseline_file",
        type=click.Path(path_type=Path),
        help="What your healthy runs allow (rlclinic baseline learn); --limits win over it.",
    ),
    checkpoint_option,
)
"""What a diagnosis is judged by besides the log."""

verifier_option = click.option(
    "--verifier",
    metavar="MODULE:FUNCTION",
    help="Your own function(prompt, answer, truth) that grades 200 saved answers again; also FILE.py:FUNCTION.",
)


def every_option(least: float) -> Callable[[_Command], _Command]:
    return click.option(
        "--every",
        type=click.FloatRange(least, 86_400),
        default=EVERY,
        show_default=True,
        callback=finite,
        metavar="SECONDS",
        help="Shortest time between two looks; they never take more than a tenth of the time.",
    )


alert_options = _all(
    click.option(
        "--alert",
        "alert_addresses",
        multiple=True,
        metavar="ADDRESS",
        help="Tell changes there: Slack, Discord, https, cmd:, mail, @FILE; repeatable, else RLCLINIC_ALERT.",
    ),
    click.option(
        "--alert-at",
        type=click.Choice(SEVERITIES[1:]),
        default="warning",
        show_default=True,
        help="Least severity that --alert tells.",
    ),
    click.option("--on-warning", metavar="COMMAND", help="Run this, without a shell, at warnings and worse."),
    click.option("--on-critical", metavar="COMMAND", help="Run this, without a shell, at critical findings."),
)
"""Those of a command that watches: ``cli.alerting.posted`` makes of them whom to tell."""
simulated_options = _all(
    click.option(
        "--steps", default=400, show_default=True, type=click.IntRange(1, 1_000_000), help="How long the run is."
    ),
    click.option(
        "--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1), help="Another run of the same kind."
    ),
)


def columns_of(given: Sequence[str]) -> Mapping[str, str] | None:
    """What the columns of the user's own form are, where he says it."""
    if not given:
        return None
    from rlclinic.readers.answers import parse_columns

    return parse_columns(",".join(given))
