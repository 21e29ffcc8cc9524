"""A local page that follows one run, and its figures for Prometheus; needs the extra ``serve``."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Protocol, TypeAlias

import uvicorn
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rlclinic.errors import BadRequest
from rlclinic.live.events import Event
from rlclinic.live.following import Look
from rlclinic.live.gate import LOOPBACK, Gate, Message, Receive, Scope, Send, loopback
from rlclinic.model import Diagnosis, Severity
from rlclinic.report import render
from rlclinic.report.blocks import KEY, plain
from rlclinic.report.exposition import CONTENT_TYPE, Sight, exposition

KEPT = 50
"""Events that the strip shows."""
CLIENTS = 32
"""Most pages that follow at once."""
CONNECTIONS = 100
"""Most connections of all kinds."""
KEEP_ALIVE = 15.0
"""Seconds of silence after which a comment tells a page, and all between, that the connection lives."""
PATIENCE = 10.0
"""Seconds for which a page may take nothing before it is dropped."""
RETRY = 3000
"""Milliseconds after which a page that lost its connection tries again."""
_FRAMED = "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
"""Of the report in its frame, which says by a policy of its own what may act in it."""
_HTML = "text/html; charset=utf-8"
_WAITING = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>The first look</title></head>'
    "<body><h1>The first look is not done yet</h1><p>{}</p></body></html>"
)

Tell: TypeAlias = Callable[[Sequence[Event], Diagnosis], None]


class Follows(Protocol):
    """What the board asks of that which looks; ``following.Follower`` is one."""

    problem: str
    unsaved: str
    failures: int
    cost: float

    def poll(self) -> Look | None: ...
    def wait(self) -> float: ...
    def told(self) -> None: ...
    def missing(self) -> list[str]: ...
    @property
    def open(self) -> Mapping[str, Severity]: ...
    @property
    def state(self) -> str: ...
    @property
    def last_row(self) -> float | None: ...


@dataclass(frozen=True)
class _Page:
    """All that requests are answered with, of one moment; never changed, only replaced."""

    sight: Sight = field(default_factory=Sight)
    look: int = 0
    events: tuple[Event, ...] = ()
    count: int = 0
    html: bytes = b""
    json: bytes = b""


class Board:
    """The last of what was seen, for requests to read; one thread asks ``follows`` and replaces it.

    ``tell`` is called with the events of a look, in that thread.
    """

    def __init__(self, follows: Follows, *, tell: Tell | None = None) -> None:
        self._follows, self._tell = follows, tell
        self.page = _Page()
        self.version = 0
        self.bells: set[asyncio.Event] = set()
        self.closing = False
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._failures = 0
        self._boot = secrets.token_hex(4)
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="rlclinic-looks", daemon=True)

    @property
    def id(self) -> str:
        """Of the present page; another process has others."""
        return f"{self._boot}-{self.version}"

    @property
    def look(self) -> str:
        """Of the present report, in the same way; empty before the first."""
        return f"{self._boot}-{self.page.look}" if self.page.look else ""

    @property
    def alive(self) -> bool:
        """Whether the thread that looks still does."""
        return self._thread.is_alive()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to look; ``loop`` is told when there is something new."""
        self._loop = loop
        self._thread.start()

    def close(self) -> None:
        """Let the pages go and stop looking; a look that is under way is not waited for longer than two seconds."""
        self.closing = True
        self._stop.set()
        for bell in self.bells:
            bell.set()
        self._thread.join(2.0)

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                look = self._follows.poll()
                if look is not None:
                    told = [*look.left, *look.events]  # also what a process that died may not have told
                    if self._tell is not None and told:
                        self._tell(told, look.diagnosis)
                    self._follows.told()
                self._take(look)
            except Exception as broken:  # whatever happens, the page stays and says so
                self._replace(problem=plain(f"{type(broken).__name__}: {broken}", 240))
            self._stop.wait(self._follows.wait())

    def _take(self, look: Look | None) -> None:
        follows, old = self._follows, self.page
        was = old.sight
        waits = follows.state == "waiting" and bool(follows.missing())  # that a log is not there yet is no failure
        failed = max(follows.failures - self._failures, 0) if follows.problem and not waits else 0
        self._failures = follows.failures
        unkept = f"what was told cannot be kept, so the next start tells it again: {follows.unsaved}"
        changes: dict[str, Any] = {
            "state": follows.state,
            "last_row": follows.last_row,
            "problem": plain(follows.problem or (unkept if follows.unsaved else ""), 240),
            "failures": was.failures + failed,
        }
        if look is None:
            return self._replace(**changes)
        self._events.extendleft(reversed(look.events))
        changes["open"] = dict(follows.open)
        told = {"events": tuple(self._events), "count": old.count + len(look.events)}
        if look.diagnosis is was.diagnosis:
            return self._replace(told, **changes)
        changes |= {
            "diagnosis": look.diagnosis,
            "looks": was.looks + 1,
            "seconds": follows.cost,
            "last_look": time.time(),
        }
        html, text = render(look.diagnosis, "html").encode(), render(look.diagnosis, "json").encode()
        self._replace({**told, "look": old.look + 1, "html": html, "json": text}, **changes)

    def _replace(self, page: Mapping[str, Any] | None = None, **changes: Any) -> None:
        """Put another page in the place of this one, and say so where it differs in what is shown."""
        old = self.page
        self.page = replace(old, sight=replace(old.sight, **changes), **(page or {}))
        shown = ("state", "problem", "last_row")
        differs = page or any(name in changes and changes[name] != getattr(old.sight, name) for name in shown)
        if differs and self._loop is not None and not self.closing:
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self.version += 1
        for bell in self.bells:
            bell.set()


def strip(board: Board) -> dict[str, Any]:
    """What the head of the page tells, as plain text and numbers."""
    page, now = board.page, time.time()
    sight, diagnosis = page.sight, page.sight.diagnosis
    told: dict[str, Any] = {"run": "rlclinic", "tone": "undecided", "verdict": "reading the log", "step": ""}
    if diagnosis is not None:
        steps, planned = diagnosis.run.steps, diagnosis.run.planned_steps
        of = "" if planned is None else f" of {planned:,}"
        told["run"] = plain(diagnosis.run.name, KEY)
        told["tone"] = diagnosis.verdict.severity
        told["verdict"] = diagnosis.verdict.severity
        told["step"] = f"step {steps[-1]:,.10g}{of}" if len(steps) else "no step yet"
    age = "" if sight.last_row is None else f"last row {max(now - sight.last_row, 0.0):,.0f} s ago"
    return {
        **told,
        "state": sight.state,
        "age": age,
        "problem": sight.problem,
        "look": board.look,
        "now": now,
        "last_row": sight.last_row,
        "count": page.count,
        "events": [_event(one) for one in page.events],
    }


def _event(event: Event) -> dict[str, str]:
    kind = "closed" if event.kind == "closed" else event.severity.label
    after = f", follows from {event.root}" if event.root else ""
    says = f"step {event.step:,.10g}: {event.kind} ({event.severity.label}{after}): {event.title} {event.says}"
    return {"severity": kind, "says": plain(says, 300)}


class _Stream(Response):
    """Server-sent events: each change once, a comment when nothing happens. A page that takes nothing is dropped; one that
    comes late gets the present state only, so that nothing is queued for anybody."""

    def __init__(self, board: Board, last: str) -> None:
        super().__init__(media_type="text/event-stream")
        self._board, self._last = board, last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        board = self._board
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        bell, gone = asyncio.Event(), asyncio.ensure_future(_left(receive))
        board.bells.add(bell)
        try:
            await self._put(send, f"retry: {RETRY}\n\n")
            sent = self._last
            while not gone.done() and not board.closing:
                bell.clear()
                if board.id != sent:
                    sent = board.id
                    await self._put(send, f"id: {sent}\nevent: look\ndata: {json.dumps(strip(board))}\n\n")
                else:
                    await self._put(send, ": nothing new\n\n")
                if board.id == sent and not board.closing:
                    rung = asyncio.ensure_future(bell.wait())
                    await asyncio.wait({rung, gone}, timeout=KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED)
                    rung.cancel()
            if not gone.done():
                await self._put(send, "", more=False)
        except (asyncio.TimeoutError, OSError):
            pass
        finally:
            board.bells.discard(bell)
            gone.cancel()

    async def _put(self, send: Send, text: str, *, more: bool = True) -> None:
        message: Message = {"type": "http.response.body", "body": text.encode(), "more_body": more}
        await asyncio.wait_for(_sent(send, message), PATIENCE)


async def _sent(send: Send, message: Message) -> None:
    await send(message)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def application(
    board: Board, *, token: str = "", hosts: Iterable[str] = LOOPBACK, port: int = 0
) -> Gate:  # fmt: skip
    """The ASGI application; ``board`` looks while its lifespan lasts. ``port`` keeps cookies of several apart."""

    def home(request: Request) -> Response:
        style, script = _resource("live.css"), _resource("live.js")
        policy = (
            f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
            "frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        )
        text = _template().render(strip=strip(board), id=board.id, style=Markup(style), script=Markup(script))
        return Response(text, media_type=_HTML, headers={"content-security-policy": policy})

    def report(request: Request) -> Response:
        html = board.page.html
        if not html:
            says = str(Markup.escape(board.page.sight.problem or "The log is being read."))
            headers = {"retry-after": "5", "content-security-policy": f"default-src 'none'; {_FRAMED}"}
            return Response(_WAITING.format(says), 503, headers, _HTML)
        return Response(html, media_type=_HTML, headers={"content-security-policy": _FRAMED})

    def contract(request: Request) -> Response:
        if not board.page.json:
            return PlainTextResponse("the first look is not done yet\n", 503, {"retry-after": "5"})
        return Response(board.page.json, media_type="application/json")

    def metrics(request: Request) -> Response:
        return Response(exposition(board.page.sight), media_type=None, headers={"content-type": CONTENT_TYPE})

    async def events(request: Request) -> Response:
        if len(board.bells) >= CLIENTS:
            return PlainTextResponse("too many pages follow already\n", 503, {"retry-after": "30"})
        return _Stream(board, request.headers.get("last-event-id", ""))

    def health(request: Request) -> Response:
        works = board.alive and not board.closing
        return PlainTextResponse("ok\n" if works else "no longer looking\n", 200 if works else 503)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        board.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            board.close()

    places = {
        "/": home,
        "/report.html": report,
        "/report.json": contract,
        "/metrics": metrics,
        "/events": events,
        "/healthz": health,
    }
    routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in places.items()]
    inner = Starlette(routes=routes, lifespan=lifespan)
    inner.router.redirect_slashes = False  # it would lead to whatever name the request gave
    return Gate(inner, token=token, hosts=hosts, port=port)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _resource(name: str) -> str:
    text = resources.files("rlclinic.live").joinpath("page", name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")


@cache
def _template() -> Any:
    room = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return room.from_string(_resource("live.html"))


# ------------------------------------------------------------------------------------------------------- the server


def bound(host: str, port: int) -> socket.socket:
    """A listening socket at ``host``; ``port`` 0 is any that is free. Raises BadRequest."""
    try:
        family, kind, proto, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as problem:
        raise BadRequest("a name or an address of this machine", f"--host {plain(host, 80)}") from problem
    made = socket.socket(family, kind, proto)
    try:
        if sys.platform != "win32":  # there, it would take the port of a program that runs
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(64)
    except (OSError, OverflowError) as problem:
        made.close()
        why = getattr(problem, "strerror", None) or str(problem)
        raise BadRequest(
            "a free port", f"{plain(host, 80)}:{port}: {why}", hint="rlclinic serve RUN --port 0"
        ) from problem
    return made


def address(host: str, port: int, token: str = "") -> str:
    """Where the page is, as a browser takes it."""
    shown = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")


def prepared(
    board: Board, listening: socket.socket, *, token: str = "", hosts: Iterable[str] = LOOPBACK
) -> uvicorn.Server:
    """The server of ``board`` at ``listening``; ``run(sockets=[listening])`` answers requests until it should exit."""
    app = application(board, token=token, hosts=hosts, port=int(listening.getsockname()[1]))
    settings = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,  # it would hold the token of an address
        server_header=False,
        proxy_headers=False,
        ws="none",
        http="h11",
        loop="asyncio",
        lifespan="on",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(settings)


def run(board: Board, listening: socket.socket, *, token: str, hosts: Iterable[str]) -> None:
    """Answer requests until the program is interrupted or asked to end; called in the main thread."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server hands on what it was sent when it is done
    try:
        prepared(board, listening, token=token, hosts=hosts).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()


__all__ = ["Board", "Follows", "address", "application", "bound", "loopback", "prepared", "run", "strip"]
