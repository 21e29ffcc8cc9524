"""The command that shows a run as a local page while it goes on, and hands its figures to Prometheus."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlclinic.cli.alerting import posted
from rlclinic.cli.following import alone, apart, beside, follower, growing
from rlclinic.cli.options import alert_options, every_option, judge_options, read_options, speaking_as
from rlclinic.errors import BadRequest

if TYPE_CHECKING:
    from types import ModuleType

    from rlclinic.live.following import Follower

PORT = 8642


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@read_options
@judge_options
@every_option(0.1)
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep here what was told, so that a restart does not repeat it. [default: nowhere]",
)
@alert_options
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option(
    "--token",
    metavar="TEXT",
    help="What a request must show; made at random where another machine can reach the page. Better in $RLCLINIC_TOKEN.",
)
@click.option(
    "--allow-host", "more_hosts", multiple=True, metavar="NAME", help="A further name of the page, as a proxy gives it."
)
def serve(
    sources: tuple[str, ...],
    state: Path | None,
    alert_addresses: tuple[str, ...],
    alert_at: str,
    on_warning: str | None,
    on_critical: str | None,
    host: str,
    port: int,
    token: str | None,
    more_hosts: tuple[str, ...],
    **read_and_judged: Any,
) -> None:
    """Follow a run as it trains: as a local web page.

    SOURCEs are its growing log files, its directory, or an address. The figures of the page are at /metrics for
    Prometheus. Only this machine can open it unless --host says otherwise; then a token is needed, which is printed
    with the address. Nothing but the diagnosis is handed out, and nothing is written but --state, without which
    findings that are open are told again by the next start. Needs: pip install 'rlclinic[serve]'
    """
    growing("serve", sources)
    server = _server()
    from rlclinic.live.gate import LOOPBACK, VARIABLE, chosen

    token = token if token is not None else os.environ.get(VARIABLE) or None
    wanted = chosen(token, host)
    if state is not None:
        apart(state, [*map(Path, sources), *read_and_judged["configs"], *read_and_judged["answers"]])
    with alone(state), speaking_as("serve"):
        followed = follower("serve", sources, state=state, **read_and_judged)
        post = posted(alert_addresses, alert_at, on_warning, on_critical, None if state is None else beside(state))
        listening = server.bound(host, port)
        _tell_where(followed, server.address(host, listening.getsockname()[1], "" if token else wanted), bool(token))
        board = server.Board(followed, tell=post.tell)
        try:
            server.run(board, listening, token=wanted, hosts=(*LOOPBACK, host, *more_hosts))
        finally:
            post.close(5.0)


def _tell_where(follower: Follower, place: str, own_token: bool) -> None:
    from rlclinic.report.blocks import plain

    place += " (your token: ?token= once, or Authorization: Bearer)" if own_token else ""
    absent = follower.missing()
    if absent:
        click.echo(f"not there yet: {plain(', '.join(absent), 400)}", err=True)
    click.echo(f"following {plain(', '.join(follower.paths), 400)} at {place}\nstop with Ctrl-C", err=True)


def _server() -> ModuleType:
    """The server, whose packages are an extra."""
    try:
        from rlclinic.live import serve as server
    except ImportError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        raise BadRequest(
            "the extra 'serve' (starlette and uvicorn)", f"no {name}", hint="pip install 'rlclinic[serve]'"
        ) from missing
    return server
