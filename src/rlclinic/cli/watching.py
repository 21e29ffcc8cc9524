"""The command that watches a run while it is trained: on a terminal as a page, elsewhere as lines, once for cron."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlclinic.cli.alerting import posted
from rlclinic.cli.following import alone, apart, beside, follower, growing
from rlclinic.cli.options import (
    SEVERITIES,
    alert_options,
    every_option,
    fail_option,
    finite,
    judge_options,
    read_options,
    speaking_as,
)
from rlclinic.cli.output import drawing, write_out
from rlclinic.errors import BadRequest

if TYPE_CHECKING:
    from rlclinic.live.following import Follower
    from rlclinic.live.watching import JsonLines, Lines, Tell, Watch


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@read_options
@judge_options
@every_option(0)
@click.option("--once", is_flag=True, help="One look, then leave: for cron.")
@click.option("--until-done", is_flag=True, help="Leave when the log says that the run has ended.")
@click.option(
    "--stop-after",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    metavar="SECONDS",
    help="Leave when nothing was written for so long.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep here what was told, so that a restart does not repeat it. [default: a file under ~/.local/state/rlclinic]",
)
@alert_options
@click.option(
    "--format",
    "form",
    type=click.Choice(("terminal", "json")),
    default="terminal",
    show_default=True,
    help="A page (or lines where there is no terminal), or one JSON object an event.",
)
@click.option("--lines", is_flag=True, help="One line an event on a terminal, too.")
@click.option("-v", "--verbose", is_flag=True, help="Also tell each look and what happens to the log.")
@fail_option
def watch(
    sources: tuple[str, ...],
    once: bool,
    until_done: bool,
    stop_after: float | None,
    state: Path | None,
    form: str,
    lines: bool,
    alert_addresses: tuple[str, ...],
    alert_at: str,
    on_warning: str | None,
    on_critical: str | None,
    fail_on: str | None,
    verbose: bool,
    **read_and_judged: Any,
) -> None:
    """Follow a run as it trains: on a terminal, in a job, in cron.

    SOURCEs are its growing log files, its directory, or an address. On a terminal a page shows how it stands;
    elsewhere one line an event is printed. Each finding is told once, when enough rows show it, and again when it
    gets worse or closes, also when this command was stopped in between. Logs may be rotated, cut, replaced, or not be
    there yet; nothing is ever written beside them.

    \b
    rlclinic watch output/                                   a page
    rlclinic watch train.log --until-done --fail-on critical   in a job script
    */10 * * * * rlclinic watch output/ --once               in cron

    \b
    Exit codes: 0 ran; 1 open findings at or above --fail-on; 2 could not run;
    3 with --fail-on when the run could not be judged.
    """
    from rlclinic.live.following import default_state

    growing("watch", sources)
    place = default_state(sources) if state is None else state
    if state is not None:
        apart(state, [*map(Path, sources), *read_and_judged["configs"], *read_and_judged["answers"]])
    with alone(place), speaking_as("watch"):
        followed = follower("watch", sources, state=place, **read_and_judged)
        post = posted(alert_addresses, alert_at, on_warning, on_critical, beside(place))
        try:
            _run(followed, post.tell, once, until_done, stop_after, form, lines, verbose)
        finally:
            post.close(10.0)
    _leave(followed, fail_on)


def _run(
    follower: Follower,
    alert: Tell,
    once: bool,
    until_done: bool,
    stop_after: float | None,
    form: str,
    lines: bool,
    verbose: bool,
) -> None:
    """Watch until there is reason to leave; told on standard output."""
    from rlclinic.live.watching import JsonLines, Lines, Watch

    out = JsonLines(sys.stdout) if form == "json" else Lines(sys.stdout)
    aside = Lines(sys.stderr)
    on_page = form == "terminal" and not lines and not once and _has_screen()
    say = (lambda _: None) if on_page or not verbose else aside.say if form == "json" else Lines(sys.stdout).say

    warn = None if on_page or verbose else aside.say
    watch = Watch(follower, (lambda *_: None) if on_page else out.tell, say, alert, warn)
    if once:
        watch.once()
        _complain(out)
        return
    with _stoppable():
        try:
            if on_page:
                _on_a_page(watch, until_done, stop_after)
            else:
                while not watch.done(until_done, stop_after) and not out.broken:
                    watch.turn()
                    watch.rest()
        except KeyboardInterrupt:
            pass
    last = follower.last
    if last is None or out.broken:
        return _complain(out)
    if on_page:
        from rlclinic.report import render

        write_out(render(last.diagnosis, "terminal", **drawing("terminal", None)), None, False)
    elif form != "json":
        verdict = last.diagnosis.verdict
        out.say(f"watch ends at step {follower.step or 0:g} ({follower.state}): {verdict.severity}: {verdict.says}")
    _complain(out)


def _has_screen() -> bool:
    """Whether standard output is a terminal that can be drawn upon; that of an editor mostly is none."""
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return sys.stdout is not None and sys.stdout.isatty() and not dumb


def _complain(out: JsonLines | Lines) -> None:
    """Raises BadRequest where events could not be written, unless whoever read them has gone."""
    if out.why:
        raise BadRequest("a place to print to", f"standard output: {out.why}", hint="--alert ADDRESS tells elsewhere")


def _on_a_page(watch: Watch, until_done: bool, stop_after: float | None) -> None:
    """The page on the other screen of the terminal, drawn anew when something on it has changed."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(markup=False, highlight=False, emoji=False)
    ascii = "utf" not in (console.encoding or "ascii").lower()
    shown, drawn = Text(""), ""
    with Live(shown, console=console, screen=True, auto_refresh=False, transient=True) as live:
        for quarter in count():  # a quarter of a turn, so that a new size of the terminal is met at once
            width, height = console.size
            page = watch.page(width, height, color=console.color_system is not None, ascii=ascii)
            if page != drawn:
                drawn = page
                live.update(Text.from_ansi(page.rstrip("\n"), no_wrap=True, overflow="crop"), refresh=True)
            if quarter % 4 == 0:
                watch.turn()
                if watch.done(until_done, stop_after):
                    return
            else:
                watch.rest(4)


@contextmanager
def _stoppable() -> Iterator[None]:
    """A request to end (SIGTERM, SIGHUP) ends like Ctrl-C, so that a terminal is left as it was found."""
    import signal

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before: list[tuple[Any, Any]] = []
    for name in ("SIGTERM", "SIGHUP"):
        if (number := getattr(signal, name, None)) is not None:
            try:
                before.append((number, signal.signal(number, stop)))
            except ValueError:  # not in the main thread
                break
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _leave(follower: Follower, fail_on: str | None) -> None:
    """Leave with the exit code that ``--fail-on`` asks for; findings in preview do not count."""
    if fail_on is None:
        return
    from rlclinic.checks import BY_NAME

    level = SEVERITIES.index(fail_on) + 1
    counted = {
        name: one for name, one in follower.open.items() if name not in BY_NAME or BY_NAME[name].status != "preview"
    }
    if any(one >= level for one in counted.values()):
        sys.exit(1)
    diagnosis = None if follower.last is None else follower.last.diagnosis
    if (
        diagnosis is None
        or diagnosis.verdict.severity == "undecided"
        or any(c.outcome == "failed" for c in diagnosis.checks)
    ):
        sys.exit(3)
