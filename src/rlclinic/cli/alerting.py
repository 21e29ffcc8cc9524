"""Alerts on the command line: options become a Post, and a test message shows before the night that an address works."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlclinic.errors import BadRequest

if TYPE_CHECKING:
    from rlclinic.live.alerts import Channel
    from rlclinic.live.post import Post


def posted(
    given: Sequence[str],
    at: str = "warning",
    on_warning: str | None = None,
    on_critical: str | None = None,
    state: Path | None = None,
) -> Post:
    """What ``alert_options`` ask for; nobody to tell where they ask for nothing. Raises BadRequest for a bad address."""
    from rlclinic.live.alerts import addresses, channel
    from rlclinic.live.post import Post

    channels = [channel(one, at=at) for one in addresses(given)]
    for command, least in ((on_warning, "warning"), (on_critical, "critical")):
        if command is not None:
            channels.append(channel(f"cmd:{command}", at=least, closed=False))
    return Post(channels, state)


@click.group("alerts")
def alerts() -> None:
    """Try the addresses that watch, serve and monitors tell.

    docs/live.md says which there are, and what is told when.
    """


@alerts.command("test")
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
def test(addresses: tuple[str, ...]) -> None:
    """Send a test message to every ADDRESS.

    Without one, to those of the environment variable RLCLINIC_ALERT.

    \b
    https://hooks.slack.com/services/...      Slack
    https://discord.com/api/webhooks/...      Discord
    https://HOST/PATH                         JSON (slack+https:// and discord+https:// say otherwise)
    "cmd:notify-send --urgency critical"      a program; what happened is JSON on its input
    "mailtos://USER:PASSWORD@HOST?to=ADDRESS" mail, and what else apprise knows: pip install 'rlclinic[alerts]'
    @FILE                                     addresses in a file, one a line

    An address is a secret, and what stands on a command line is seen by others: prefer @FILE or RLCLINIC_ALERT.

    Exit codes: 0 everything was taken; 2 something was not.
    """
    from rlclinic.live import alerts as ways

    found = ways.addresses(addresses)
    if not found:
        raise BadRequest("an ADDRESS", f"none, and {ways.VARIABLE} is not set", ways.FORMS)
    refused = [says for one in map(ways.channel, found) if (says := _tried(one))]
    if refused:
        raise BadRequest(
            "addresses that take a message",
            "; ".join(refused),
            hint="check the address, and that this machine may reach it",
        )


def _tried(channel: Channel) -> str:
    """Why ``channel`` did not take a test message; empty when it did."""
    from rlclinic.live.alerts import NotSent, deliver, trial

    try:
        deliver(channel, trial())
    except NotSent as problem:
        return problem.says
    click.echo(f"{channel.shown}: sent")
    return ""
