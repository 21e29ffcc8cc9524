"""The command that shows a run as a local page while it goes on, and hands its figures to Prometheus."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlclinic.cli.options import (
    alert_options,
    answer_options,
    baseline_option,
    checkpoint_option,
    columns_of,
    eval_option,
    finite,
    limits_option,
    names_option,
    run_options,
    speaking_as,
)
from rlclinic.errors import BadRequest

if TYPE_CHECKING:
    from types import ModuleType

    from rlclinic.live.following import Follower

PORT = 8642
EVERY = 10.0


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
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
@click.option(
    "--every",
    type=click.FloatRange(0.1, 86_400),
    default=EVERY,
    show_default=True,
    callback=finite,
    metavar="SECONDS",
    help="Between looks at least.",
)
@answer_options
@run_options
@names_option
@eval_option
@limits_option
@baseline_option
@checkpoint_option
@click.option(
    "--state", type=click.Path(path_type=Path, dir_okay=False), help="Keep here what was told. [default: nowhere]"
)
@alert_options
def serve(
    sources: tuple[str, ...],
    host: str,
    port: int,
    token: str | None,
    more_hosts: tuple[str, ...],
    every: float,
    answers: tuple[Path, ...],
    columns: tuple[str, ...],
    framework: str | None,
    configs: tuple[Path, ...],
    chosen_run: str | None,
    own_names: Path | None,
    eval_key: str | None,
    limits: Path | None,
    baseline_file: Path | None,
    saved: tuple[float, ...],
    state: Path | None,
    alert_addresses: tuple[str, ...],
    alert_at: str,
    on_warning: str | None,
    on_critical: str | None,
) -> None:
    """Show the run in SOURCEs as a page that follows it, and its figures for Prometheus at /metrics.

    Only this machine can open it unless --host says otherwise; then a token is needed, which is printed with the address.
    Nothing but the diagnosis is handed out, and nothing is written but --state, without which findings that are open are
    told again by the next start. Needs: pip install 'rlclinic[serve]'
    """
    if not sources:
        raise BadRequest("a SOURCE", "none", hint="rlclinic serve RUN")
    if "-" in sources:
        raise BadRequest("a file or a directory that grows", "standard input", hint="rlclinic serve RUN")
    server = _server()
    from rlclinic.cli.alerting import beside, posted
    from rlclinic.cli.watching import alone, apart
    from rlclinic.diagnose import read_limits
    from rlclinic.live.following import Follower
    from rlclinic.live.gate import LOOPBACK, VARIABLE, chosen

    token = token if token is not None else os.environ.get(VARIABLE) or None
    wanted = chosen(token, host)
    given: dict[str, Any] = {"limits": None if limits is None else read_limits(limits), "every": every, "state": state}
    given["checkpoints"] = saved
    if baseline_file is not None:
        from rlclinic.baseline import read_baseline

        given["baseline"] = read_baseline(baseline_file)
    options: dict[str, Any] = {
        "framework": framework,
        "config": configs,
        "run": chosen_run,
        "names": own_names,
        "eval_key": eval_key,
        "rollouts": answers,
        "answer_columns": columns_of(columns),
    }
    _known(framework, own_names)
    if state is not None:
        apart(state, [*map(Path, sources), *configs, *answers])
    with nullcontext() if state is None else alone(state), speaking_as("serve"):
        place = None if state is None else beside(state)
        post = posted(alert_addresses, alert_at, on_warning, on_critical, place)
        follower = Follower(sources, options=options, **given)
        listening = server.bound(host, port)
        _tell_where(follower, server.address(host, listening.getsockname()[1], "" if token else wanted), bool(token))
        board = server.Board(follower, tell=post.tell)
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


def _known(framework: str | None, own_names: Path | None) -> None:
    """Raises for a trainer or a file of names that no look could use: the page would only say so again and again."""
    from rlclinic import names
    from rlclinic.names.own import read_names

    if framework is not None:
        names.detect((), given=framework)
    if own_names is not None:
        read_names(own_names)


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
