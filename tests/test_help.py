"""`--help` as one reads it who comes for the first time: every command and option says what it does, alike everywhere."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from rlclinic.cli import SECTIONS, cli
from rlclinic.cli import options as shared
from rlclinic.live import following

WIDTH = 80
OWN_WORDS = {"--all", "--config", "--format", "--output", "--samples", "--state"}
"""Options that say more precisely what they do where they stand; what they take is the same everywhere."""
FIRST = ("--framework", "--config", "--run", "--names", "--eval", "--rollouts", "--columns", "--limits", "--baseline")
"""How the log is read and what it is judged by: in this order, before all that is a command's own."""
LAST = ("--format", "--output", "--force", "--fail-on")
"""Where the report goes, and the exit code: in this order, in the end."""


def commands() -> Iterator[tuple[str, click.Command]]:
    for name, command in cli.commands.items():
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in command.commands.items())


def named(command: click.Command) -> dict[str, click.Option]:
    return {max(one.opts, key=len): one for one in command.params if isinstance(one, click.Option)}


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=lambda one: one if isinstance(one, str) else "")
def test_a_command_says_what_it_does(name: str, command: click.Command) -> None:
    says = command.get_short_help_str(WIDTH - 2 - len("frameworks") - 2)
    assert says.endswith("."), f"{name}: its first sentence is cut in the list: {says}"
    assert says[0].isupper()
    for option, one in named(command).items():
        assert (one.help or "").endswith((".", "]", ".)")), f"{name} {option} says nothing"
    options = list(named(command))
    for order in (FIRST, LAST):
        assert [one for one in options if one in order] == [one for one in order if one in options], name
    if LAST[0] in options and name != "watch":
        assert options[-1] in LAST


def test_an_option_is_the_same_everywhere() -> None:
    said: dict[str, set[str]] = {}
    takes: dict[str, set[str]] = {}
    for _, command in commands():
        for option, one in named(command).items():
            said.setdefault(option, set()).add(one.help or "")
            takes.setdefault(option, set()).add(f"{type(one.type).__name__} {one.metavar} {one.multiple}")
    # The trainer of a log has a version; --framework is also whose words a page, and whose names a template takes.
    assert takes.pop("--framework") == {"StringParamType NAME[@VERSION] False", "StringParamType NAME False"}
    assert len(said.pop("--framework")) == 3
    assert {option for option, kinds in takes.items() if len(kinds) > 1} == set()
    assert {option for option, words in said.items() if len(words) > 1} <= OWN_WORDS


def test_every_command_has_its_place_in_the_list() -> None:
    text = CliRunner().invoke(cli, ["--help"], prog_name="rlclinic").output
    places = [text.index(f"\n{title}:") for title in SECTIONS]
    assert places == sorted(places)
    for command in cli.commands:
        assert f"\n  {command} " in text


def test_looks_are_as_far_apart_as_the_library_says() -> None:
    assert shared.EVERY == following.EVERY
