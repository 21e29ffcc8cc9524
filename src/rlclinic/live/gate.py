"""What stands before the live page: which hosts, methods and tokens are let through, and the headers of every answer."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode

from rlclinic.errors import BadRequest

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

VARIABLE = "RLCLINIC_TOKEN"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
OPEN = "/healthz"
"""Says whether the program works and nothing of the run, so it needs no token."""
NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")
"""What needs no escape in an address, a cookie or a header."""
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def chosen(token: str | None, host: str) -> str:
    """The token that requests must show: the one given, one made at random where ``host`` is not the machine's own loopback,
    else none. Raises BadRequest for a token that is short or would need escapes."""
    if token is not None:
        if not _TOKEN.fullmatch(token):
            raise BadRequest(
                "a token of 16 to 200 letters, figures, '-', '.', '_' or '~'",
                f"one of {len(token)} characters",
                hint=f"{VARIABLE}=$(python3 -c 'import secrets; print(secrets.token_urlsafe())')",
            )
        return token
    return "" if loopback(host) else secrets.token_urlsafe(24)


def loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Gate:
    """An ASGI application before another one.

    Without a ``token`` a request must name one of ``hosts``, so that a page of another site whose name was pointed at this
    machine reads nothing. With one it must show it: as ``Authorization: Bearer``, as a cookie, or once in the address as
    ``?token=``, which sets the cookie and leads on without it. Only GET and HEAD are answered.
    """

    def __init__(self, app: App, *, token: str = "", hosts: Iterable[str] = LOOPBACK, port: int = 0) -> None:
        self._app, self._token = app, token
        self._hosts = frozenset(_bare(host) for host in hosts)
        self._cookie = f"rlclinic_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = list(message.get("headers", ()))
                there = {name.lower() for name, _ in headers}
                more = {**_HEADERS, "content-security-policy": NOTHING}
                headers += [(n.encode(), v.encode()) for n, v in more.items() if n.encode() not in there]
                message = {**message, "headers": headers}
            await send(message)

        try:
            refusal = self._refusal(scope)
            await (self._app(scope, receive, guarded) if refusal is None else refusal(guarded))
        except Exception as broken:  # told in one line; a traceback would be of no use to who runs it
            print(f"rlclinic: {type(broken).__name__}: {broken}"[:300], file=sys.stderr)
            if not begun:
                await _answer(500, "something went wrong here; the next look may do\n")(guarded)

    def _refusal(self, scope: Scope) -> Callable[[Send], Awaitable[None]] | None:
        """The answer to a request that is not let through; None for one that is."""
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        if scope["method"] not in ("GET", "HEAD"):
            return _answer(405, "only GET and HEAD are answered\n", {"allow": "GET, HEAD"})
        if not self._token:
            named = [value for name, value in headers if name == b"host"]
            if len(named) != 1 or _bare(named[0]) not in self._hosts:
                return _answer(
                    403, "this name of the machine is not allowed; rlclinic serve --allow-host NAME allows it\n"
                )
            return None
        if scope["path"] == OPEN:
            return None
        try:
            asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=20)
        except ValueError:  # more fields than any request of ours
            asked = []
        shown = [value for name, value in asked if name == "token"]
        if any(map(self._right, shown)):
            left = urlencode([(name, value) for name, value in asked if name != "token"])
            return self._let_in(scope["path"], left, dict(headers).get(b"sec-fetch-site", ""))
        bearer = [v[7:].strip() for name, v in headers if name == b"authorization" and v[:7].lower() == "bearer "]
        cookies = [part.strip() for name, value in headers if name == b"cookie" for part in value.split(";")]
        kept = [part.partition("=")[2] for part in cookies if part.partition("=")[0] == self._cookie]
        if any(map(self._right, [*bearer, *kept[:8]])):
            return None
        says = "a token is needed: open the address that rlclinic serve printed, or send Authorization: Bearer TOKEN\n"
        return _answer(401, says, {"www-authenticate": 'Bearer realm="rlclinic"'})

    def _right(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._token.encode())

    def _let_in(self, path: str, query: str, site: str) -> Callable[[Send], Awaitable[None]]:
        """The cookie, and on to the same place without the token in its address."""
        last = path.rpartition("/")[2]
        place = "./" + (last if re.fullmatch(r"[a-z.]*", last) else "")
        cookie = {"set-cookie": f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"}
        if site != "cross-site":
            return _answer(303, "", {**cookie, "location": place + (f"?{query}" if query else "")})
        # A redirect of a click on another site would not carry a strict cookie; what this page itself asks for does.
        page = (
            f'<!DOCTYPE html><html lang="en"><title>rlclinic</title><meta http-equiv="refresh" content="0;url={place}">'
        )
        return _answer(200, page, {**cookie, "content-type": "text/html; charset=utf-8"})


def _answer(status: int, text: str, headers: dict[str, str] | None = None) -> Callable[[Send], Awaitable[None]]:
    body = text.encode()
    all_of = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body)), **(headers or {})}

    async def give(send: Send) -> None:
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in all_of.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    return give


def _bare(host: str) -> str:
    """A Host header without its port, brackets and last dot, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return (host if host.count(":") > 1 else host.partition(":")[0]).rstrip(".")
