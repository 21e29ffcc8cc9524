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

SECTIONS = {
    "Look at a run": (examining.diagnose, examining.rollouts, examining.prescribe),
    "Before and after": (comparing.compare, verifying.verify, recording.record, baselines.baseline),
    "While it trains": (watching.watch, serving.serve, alerting.alerts, templating.templates),
    "Look up": (
        looking_up.checks,
        looking_up.metrics,
        looking_up.frameworks,
        looking_up.explain,
        looking_up.own_names,
        looking_up.schema,
    ),
    "Try it without a run": (trying.demo, trying.simulate),
}
"""The commands as ``--help`` lists them: what one comes for first."""


class _Commands(click.Group):
    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section, each with its first sentence."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(one.name or "", one.get_short_help_str(80)) for one in commands])

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

    A check looks for one failure. What it saw is a finding, by how grave it is: info, warning or critical. A limit is
    the number from which a check warns. A remedy is a change of settings. A check in preview is not measured well
    enough yet: it changes no exit code and stops no training. A hook looks from inside a training, as its callback.

    Exit codes: 0 ran, 2 could not run; --fail-on adds 1, found, and 3, could not judge.
    """


for section in SECTIONS.values():
    for command in section:
        cli.add_command(command)
