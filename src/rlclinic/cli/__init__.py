"""The command line: one module for each kind of command; everything heavy is imported inside the command that needs it."""

from __future__ import annotations

import sys

import click

from rlclinic import __version__
from rlclinic.cli import (
    alerting,
    baselines,
    comparing,
    examining,
    looking_up,
    recording,
    serving,
    templating,
    trying,
    verifying,
    watching,
)


class _Commands(click.Group):
    def invoke(self, context: click.Context) -> object:
        """Run a command; Ctrl-C leaves as shells count it, since 1 would say that something was found."""
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            sys.exit(130)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="rlclinic")
def cli() -> None:
    """Diagnose the RL post-training run of a language model from its logs.

    \b
    rlclinic diagnose run/trainer_state.json     a file, a directory, several parts
    tail -n 20 train.log | rlclinic diagnose -   pasted lines
    rlclinic demo                                a real sick run, diagnosed
    """


for command in (
    examining.diagnose,
    examining.rollouts,
    examining.prescribe,
    comparing.compare,
    serving.serve,
    templating.templates,
    recording.record,
    verifying.verify,
    watching.watch,
    looking_up.own_names,
    looking_up.explain,
    looking_up.checks,
    looking_up.metrics,
    looking_up.frameworks,
    looking_up.schema,
    alerting.alerts,
    baselines.baseline,
    trying.demo,
    trying.simulate,
):
    cli.add_command(command)
