"""Ask one server for JSON, or send it some: bounded, and never with a secret for another host or in a message."""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

from rlclinic.errors import CannotRead

TIMEOUT = 30.0
"""Seconds that a server may be silent (ours)."""
PATIENCE = 900.0
"""Seconds that reading one run may take altogether (ours: ten thousand pages at 90 ms)."""
PAGE = 64 << 20
"""Most bytes of one answer (ours: a thousand rows of a thousand series have about 20 MiB)."""
ANSWER = 300.0
"""Seconds that one answer may take from the request to its last byte (ours: a page of 64 MiB at 220 KiB a second)."""
OBJECTS = 2_000_000
"""Most objects, lists and texts that look like them in one answer (ours: a thousand rows of a thousand histograms)."""
TOTAL = 1 << 30
"""Most bytes read of one run (ours)."""
RETRIES = 4
"""Times that a busy server is asked again (ours)."""
LONGEST_WAIT = 20.0
"""Most seconds waited before asking again, whatever the server wishes (ours)."""
_BUSY = (429, 500, 502, 503, 504)
_CHUNK = 1 << 20
_ESCAPE = re.compile(r"\\(?:u00|/)")

_sleep = time.sleep


class Refused(CannotRead):
    """An answer with an error status; ``status`` is the number of HTTP and ``says`` the server's own words."""

    def __init__(self, wanted: str, found: str, status: int, says: str, hint: str = "") -> None:
        super().__init__(wanted, found, hint=hint)
        self.status = status
        self.says = says


class _Watch:
    """Ends the connection of one request when its time is over; ``over`` tells that it did.

    A timeout of the socket does not: a byte now and then, also of the headers, begins it anew.
    """

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(max(seconds, 0.0), self._end)
        self._timer.daemon = True
        with suppress(RuntimeError):  # at the end of the program no thread can be started, nor need it be
            self._timer.start()

    def hold(self, connected: socket.socket) -> None:
        """Watch this connection. Raises TimeoutError when the time is over already."""
        self._socket = connected
        if self.over:
            raise TimeoutError("timed out")

    def _end(self) -> None:
        self.over = True
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not that of TLS, which would say good-bye

    def stop(self) -> None:
        """The request is answered."""
        self._timer.cancel()


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        watch = self._watch

        class Watched(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                watch.hold(self.sock)

        return self.do_open(Watched, req)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self, watch: _Watch, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._watch, self._own = watch, context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        watch = self._watch

        class Watched(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                watch.hold(self.sock)

        return self.do_open(Watched, req, context=self._own)


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only within one scheme, host and port, so that no key leaves it."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if (before.scheme, before.netloc) != (after.scheme, after.netloc) or req.data is not None:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Server:
    """One server. ``base`` is its address without a path at the end, ``authorization`` the header's value or "".

    No answer has more than ``objects`` objects and lists. Nothing that it gives holds a secret.
    """

    def __init__(
        self, base: str, title: str, authorization: str = "", secrets: tuple[str, ...] = (), objects: int = OBJECTS
    ) -> None:
        self.base = base.rstrip("/")
        self.title = title
        self.host = urlsplit(base).netloc.rpartition("@")[2]
        self._headers = {"User-Agent": "rlclinic", "Accept": "application/json"}
        if authorization:
            self._headers["Authorization"] = authorization
        self._secrets = tuple(secret for secret in (*secrets, authorization.partition(" ")[2]) if len(secret) > 3)
        self._objects = objects
        # Quotes and backslashes are written otherwise, once more in each text within a text.
        self._spelled_otherwise = any(not secret.isprintable() or {*secret} & {*'"\\'} for secret in self._secrets)
        self._context: ssl.SSLContext | None = None
        self._until = time.monotonic() + PATIENCE
        self._left = TOTAL

    def get(self, path: str, values: Mapping[str, object]) -> dict[str, Any]:
        """The JSON object at ``path``. Raises CannotRead (``Refused`` for an error status)."""
        return self._ask(f"{path}?{urlencode({k: str(v) for k, v in values.items()})}" if values else path, None)

    def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """The JSON object that answers ``body``. Raises CannotRead (``Refused`` for an error status)."""
        return self._ask(path, json.dumps(body).encode())

    def _ask(self, path: str, data: bytes | None) -> dict[str, Any]:
        headers = {**self._headers, **({"Content-Type": "application/json"} if data is not None else {})}
        request = urllib.request.Request(f"{self.base}{path}", data=data, headers=headers)
        attempt = 0
        while (body := self._once(request, attempt)) is None:
            attempt += 1
        return self._object(body)

    def _once(self, request: urllib.request.Request, attempt: int) -> bytes | None:
        """The body of an answer; None after a pause when the server is busy and may be asked again."""
        watch = _Watch(min(ANSWER, self._until - time.monotonic()))
        try:
            with self._opener(watch).open(request, timeout=TIMEOUT) as answer:
                body = self._body(answer)
                if watch.over:
                    raise self._late()
                return body
        except urllib.error.HTTPError as error:
            with error:
                says = self._words(error)
            if watch.over:
                raise self._late() from None
            if error.code not in _BUSY or attempt >= RETRIES:
                raise self._refused(error.code, says) from None
            self._pause(error.headers.get("Retry-After", "") if error.headers else "", attempt)
            return None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise (self._late() if watch.over else self._unreachable(error)) from None
        finally:
            watch.stop()

    def _opener(self, watch: _Watch) -> urllib.request.OpenerDirector:
        if self._context is None:
            self._context = ssl.create_default_context()
        return urllib.request.build_opener(_SameHost, _Plain(watch), _Secure(watch, self._context))

    def _late(self) -> CannotRead:
        return CannotRead(
            "an answer in time",
            f"{self.host}: an answer takes more than {min(ANSWER, PATIENCE) / 60:g} minutes",
            hint="try again, or export the metrics to CSV with the tracker's own client",
        )

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        while chunk := answer.read1(_CHUNK):
            parts.append(chunk)
            size += len(chunk)
            self._left -= len(chunk)
            if size > PAGE or self._left < 0:
                limit = PAGE if size > PAGE else TOTAL
                raise CannotRead(
                    "a run of bounded size",
                    f"{self.host}: more than {limit >> 20} MiB",
                    hint="export the metrics to CSV with the tracker's own client",
                )
            if time.monotonic() > self._until:
                raise CannotRead(
                    "an answer in time",
                    f"{self.host}: not done after {PATIENCE / 60:g} minutes",
                    hint="try again, or export the metrics to CSV with the tracker's own client",
                )
        return b"".join(parts)

    def _object(self, body: bytes) -> dict[str, Any]:
        # An object has a hundred times the size of its text at the worst, so they are counted before one is built.
        if body.count(b"{") + body.count(b"[") > self._objects or body.count(b",") > 12 * self._objects:
            raise CannotRead(
                "an answer of bounded size",
                f"{self.host}: an answer of more values than were asked for",
                hint="export the metrics to CSV with the tracker's own client",
            )
        try:
            text = body.decode("utf-8-sig")
            found = json.loads(text)
            # An escape may spell any letter of a secret.
            if self._secrets and (
                self._spelled_otherwise or any(one in text for one in self._secrets) or re.search(_ESCAPE, text)
            ):
                found = self._without_secrets(found)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            shown = self.clean(body[:2_000].decode("utf-8", "replace"))[:80]
            raise CannotRead(f"an answer of {self.title}", f"{self.host} answers {shown!r}", hint="check the address")
        return found

    def _words(self, error: urllib.error.HTTPError) -> str:
        """What the server says about an error, one bounded line."""
        try:
            text = error.read(4096).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return ""
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            return "" if text.lstrip().startswith("<") else self.clean(text)
        if isinstance(told, dict):
            for key in ("message", "error", "errors"):
                if told.get(key):
                    return self.clean(_first_words(told[key]))
        return self.clean(text)

    def _without_secrets(self, held: object) -> Any:
        """What the server says with ``***`` for secrets; text that is a JSON object becomes that object.

        Numbers stay, as text also: a password of digits may stand within the digits of any of them.
        """
        if isinstance(held, dict):
            return {self._hidden(key): self._without_secrets(value) for key, value in held.items()}
        if isinstance(held, list):
            return [self._without_secrets(value) for value in held]
        if not isinstance(held, str):
            return held
        if held.lstrip()[:1] == "{":
            try:
                return self._without_secrets(json.loads(held))
            except ValueError:
                pass
        return self._hidden(held)

    def _hidden(self, text: str) -> str:
        if text not in self._secrets:
            try:
                float(text)
                return text
            except ValueError:
                pass
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def clean(self, text: str) -> str:
        """Words of a server as one bounded line without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]

    def _refused(self, status: int, says: str) -> Refused:
        words = f" ({says})" if says else ""
        if status in (301, 302, 303, 307, 308):
            found = f"{self.host} sends on to another place, where no key is sent"
            return Refused(f"an answer of {self.title}", found, status, says, "give the address that it sends on to")
        if status == 429:
            found = f"{self.host} is asked too often (429){words}"
            return Refused(f"an answer of {self.title}", found, status, says, "try again in a few minutes")
        return Refused(f"an answer of {self.title}", f"{self.host} refuses with {status}{words}", status, says)

    def _pause(self, wished: str, attempt: int) -> None:
        wait = float(wished) if wished.isdigit() and len(wished) < 6 else 2.0**attempt / 2
        _sleep(min(wait, LONGEST_WAIT))
        if time.monotonic() > self._until:
            raise CannotRead("an answer in time", f"{self.host}: not done after {PATIENCE / 60:g} minutes")

    def _unreachable(self, error: Exception) -> CannotRead:
        reason = getattr(error, "reason", error)
        hint = "check the address and the network, or give a file that is here"
        if isinstance(reason, (TimeoutError, socket.timeout)) or "timed out" in str(reason):
            why = f"silent for {TIMEOUT:g} seconds"
        elif isinstance(reason, ssl.SSLError):
            why = f"no secure connection ({str(reason)[:100]})"
            hint = "for a server without TLS name the transport, as in mlflow+http://HOST:PORT/RUN"
        elif isinstance(reason, socket.gaierror):
            why = "no such host"
        else:
            why = (reason.strerror or str(reason)) if isinstance(reason, OSError) else str(reason)
        return CannotRead(f"an answer of {self.title}", f"{self.host}: {self.clean(why)}", hint=hint)


def _first_words(told: object) -> str:
    if isinstance(told, list) and told:
        told = told[0]
    return str(told.get("message", told)) if isinstance(told, dict) else str(told)


def basic(user: str, password: str) -> str:
    """The value of an ``Authorization`` header for a user and a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


WORDS = 4096
"""Bytes of the answer to what was sent that are read (ours)."""


@dataclass(frozen=True)
class Answer:
    """What a server says to what was sent: the status of HTTP, its header ``Retry-After`` and its first words."""

    status: int
    retry_after: str
    words: str


def send(address: str, body: bytes, headers: Mapping[str, str], seconds: float, *, direct: bool = False) -> Answer:
    """Post ``body`` once; an error status is an answer too. Everything is over within ``seconds``.

    ``direct`` asks no proxy, as is right for this machine itself.
    No redirection is followed, so that a secret in the address stays with its host. Raises OSError,
    http.client.HTTPException or ValueError where there is no answer; their texts may hold the address.
    """
    watch = _Watch(seconds)
    request = urllib.request.Request(address, data=body, headers={"User-Agent": "rlclinic", **headers}, method="POST")
    secure = [_Secure(watch, ssl.create_default_context())] if request.type == "https" else []
    proxies = [urllib.request.ProxyHandler({})] if direct else []
    opener = urllib.request.build_opener(_SameHost, _Plain(watch), *secure, *proxies)
    try:
        try:
            answer = opener.open(request, timeout=seconds)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            words = answer.read(WORDS).decode("utf-8", "replace")
            status, headers_back = int(answer.status), answer.headers
        if watch.over:  # while the last words were read
            raise TimeoutError("timed out")
        return Answer(status, str(headers_back.get("Retry-After", "")) if headers_back else "", words)
    except (OSError, http.client.HTTPException):
        if watch.over:
            raise TimeoutError("timed out") from None
        raise
    finally:
        watch.stop()
