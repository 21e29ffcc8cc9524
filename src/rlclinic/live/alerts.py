"""Where alerts go: one address as the user writes it becomes a channel, and one message is handed to it once."""

from __future__ import annotations

import contextlib
import contextvars
import http.client
import importlib
import importlib.util
import ipaddress
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from rlclinic.errors import BadRequest
from rlclinic.live.events import Event, Kind
from rlclinic.live.message import Message, as_json, item_of, message
from rlclinic.model import Severity
from rlclinic.readers.stores.web import basic, send
from rlclinic.report.blocks import KEY, plain

Way: TypeAlias = Literal["slack", "discord", "json", "command", "apprise"]

VARIABLE = "RLCLINIC_ALERT"
"""The environment variable that holds addresses, several separated by blanks (quoted as in a shell)."""
SECONDS = 15.0
"""Seconds within which a server has answered, from the look-up of its name to the last byte (ours)."""
COMMAND_SECONDS = 60.0
"""Seconds that a command may take before it and its children are ended (ours)."""
SAID = 400
"""Last characters of what a command prints that are kept, to tell why it failed (ours)."""
SLACK_BLOCK, SLACK_HEADER = 3_000, 150
"""Characters of a text object and of a header block (Slack, Block Kit reference)."""
DISCORD = 2_000
"""Characters of the content of a message (Discord, Execute Webhook); counted as UTF-16 does."""
OTHER = 1_500
"""Characters that other services are sent (ours: most push services take 1,024 to 4,096)."""
LONGEST_ADDRESS = 4_096
FILE_BYTES = 64 << 10
FORMS = (
    "https://hooks.slack.com/...",
    "https://discord.com/api/webhooks/...",
    "https://HOST/... (JSON)",
    "cmd:PROGRAM ARGUMENTS",
    "mailtos://USER:PASSWORD@HOST?to=ADDRESS and what else apprise knows",
    "@FILE",
)
_SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
_DISCORD = re.compile(r"(?:[a-z]+\.)?discord(?:app)?\.com")
_KINDS: tuple[Kind, ...] = ("opened", "worsened", "closed")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
_GONE = (401, 403, 404, 410)
"""Statuses with which Slack and Discord say that an address is no longer one; Discord restricts who keeps trying."""
_SUPPRESS_EMBEDS = 4


@dataclass(frozen=True)
class Channel:
    """One place that alerts go to. The address is a secret: it is in no text that we print or keep."""

    way: Way
    address: str = field(repr=False)
    shown: str
    """What it is called in messages: its host or program, never the whole of it."""
    at: Severity = Severity.WARNING
    """The least severity of a finding that it hears of."""
    kinds: frozenset[Kind] = frozenset(_KINDS)


class NotSent(Exception):
    """A message that was not taken. ``again`` is False where another try cannot help, ``wait`` are the seconds that the
    server asks for, ``gone`` says that the address itself is no longer one. The text holds no secret."""

    def __init__(self, says: str, *, again: bool = True, wait: float = 0.0, gone: bool = False) -> None:
        super().__init__(says)
        self.says, self.again, self.wait, self.gone = says, again, wait, gone


def channel(text: str, *, at: Severity | str = Severity.WARNING, closed: bool = True) -> Channel:
    """The channel that ``text`` names.

    ``https://hooks.slack.com/...`` and ``https://discord.com/api/webhooks/...`` are spoken to in their own form, any other
    ``https://`` gets JSON; ``slack+https://``, ``discord+https://`` and ``json+https://`` say which. ``cmd:`` runs a
    program without a shell. Everything else is apprise's (``mailtos://``, ``tgram://``, ...). ``closed`` tells whether it
    hears of what is closed too. Raises BadRequest, which never shows the address.
    """
    text = text.strip()
    level = at if isinstance(at, Severity) else _level(at)
    kinds: frozenset[Kind] = frozenset(_KINDS if closed else _KINDS[:2])
    if text.startswith("cmd:"):
        return Channel("command", text[4:], _program(text[4:]), level, kinds)
    scheme = text.partition(":")[0].lower() if _SCHEME.match(text) else ""
    if (wrong := _unlike(text)) or not scheme:
        raise BadRequest("an address for alerts", wrong or "none", FORMS)
    *words, last = scheme.split("+")
    if last in ("http", "https") and {*words} <= {"slack", "discord", "json", "insecure"}:
        way, address, host = _web(text[len(scheme) :], words, last)
        return Channel(way, address, f"{host}/...", level, kinds)
    return Channel("apprise", text, _apprised(text, scheme), level, kinds)


def addresses(given: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
    """The addresses that were given, with those of a file for ``@FILE`` (one a line, ``#`` begins a remark), or without
    any those of ``RLCLINIC_ALERT``; each once. Raises BadRequest for a file that cannot be read."""
    environment = os.environ if environment is None else environment
    if not given:
        try:
            given = shlex.split(environment.get(VARIABLE, ""))
        except ValueError as problem:
            raise BadRequest(f"addresses in {VARIABLE}", str(problem), FORMS) from None
    found: list[str] = []
    for one in given:
        found += _lines(Path(one[1:]).expanduser()) if one.startswith("@") else [one]
    return list(dict.fromkeys(found))


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            held = file.read(FILE_BYTES + 1)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or "no name of a file"
        raise BadRequest("a file of addresses, one a line", f"{path}: {why}") from None
    if len(held) > FILE_BYTES:
        raise BadRequest("a file of addresses, one a line", f"{path} has more than {FILE_BYTES >> 10} KiB")
    lines = [line.strip() for line in held.decode("utf-8", "replace").splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "@"))]


def _level(name: str) -> Severity:
    if name.upper() not in Severity.__members__:
        raise BadRequest("a severity", name, [one.label for one in Severity])
    return Severity[name.upper()]


def _unlike(text: str) -> str:
    """Why ``text`` cannot be an address, with no more of it than what can only be its scheme; empty where it can."""
    scheme = re.match(r"[a-z+]{2,20}(?=:)", text) or re.match("https?(?=:)", text.lower())
    shown = f"{scheme[0]}:..." if scheme is not None else "one"
    if not text:
        return "none"
    if len(text) > LONGEST_ADDRESS:
        return f"one of {len(text)} characters"
    if any(map(str.isspace, text)):
        return f"{shown} with a blank in it; a command begins with cmd:"
    if not text.isascii() or not text.isprintable():
        return f"{shown} with signs that no address has"
    if "://" not in text and not re.match("https?:", text.lower()):
        return f"{shown} without a scheme://" if scheme is None else f"{shown} without //"
    return ""


def trial() -> Message:
    """A message that says it is none, to try an address with."""
    event = Event(
        "opened",
        "test",
        Severity.WARNING,
        0.0,
        "This is a test of alerts; nothing is wrong with any run",
        "What rlclinic finds in a run while it goes on will be told here.",
        run="test",
    )
    return message([item_of(event, None, time.time())])


# --------------------------------------------------------------------------------------------------- addresses


def _web(rest: str, words: Sequence[str], scheme: str) -> tuple[Way, str, str]:
    """(form, address, host) of a webhook."""
    try:
        parts = urlsplit(scheme + rest)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise BadRequest("an address for alerts", f"{scheme}:..., which is no address", FORMS) from None
    if not host:
        raise BadRequest("an address for alerts", f"{scheme}:... without a host", FORMS)
    shown = plain(host, KEY)
    if scheme == "http" and "insecure" not in words and not _own(host):
        raise BadRequest(
            "https for alerts, since the address itself is the secret and http shows it to everyone on the way",
            f"http://{shown}/...",
            hint=f"https://{shown}/..., or insecure+http://{shown}/... if that is meant",
        )
    named: list[Way] = [way for way in ("slack", "discord", "json") if way in words]
    way = named[0] if named else _form(host, parts.path)
    return way, urlunsplit(parts._replace(fragment="")), shown


def _form(host: str, path: str) -> Way:
    if host in _SLACK or (_DISCORD.fullmatch(host) and path.endswith("/slack")):
        return "slack"
    return "discord" if _DISCORD.fullmatch(host) and "/webhooks/" in path else "json"


def _own(host: str) -> bool:
    """Whether ``host`` is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _program(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise BadRequest("a command as in a shell", f"cmd: with {problem}".lower(), ["cmd:PROGRAM ARGUMENTS"]) from None
    if not words:
        raise BadRequest("a command", "none", ["cmd:PROGRAM ARGUMENTS"])
    name = plain(Path(words[0]).name, 32)
    if shutil.which(os.path.expanduser(words[0])) is None:
        found = f"{plain(words[0], KEY)}, which is none"
        raise BadRequest("a program that can be run", found, ["PROGRAM ARGUMENTS, found on the PATH or by its path"])
    return f"{name} ..." if len(words) > 1 else name


_hearing: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("rlclinic_hearing", default=None)


class _Unheard(logging.Filter):
    """Keeps what apprise logs about our own calls from every log, since it may hold an address; we take its warnings."""

    def filter(self, record: logging.LogRecord) -> bool:
        heard = _hearing.get()
        if heard is not None and record.levelno >= logging.WARNING and len(heard) < 20:
            heard.append(record.getMessage())
        return heard is None


_UNHEARD = _Unheard()


@contextlib.contextmanager
def _apprise(heard: list[str]) -> Iterator[Any]:
    log = logging.getLogger("apprise")
    if _UNHEARD not in log.filters:
        log.addFilter(_UNHEARD)
    token = _hearing.set(heard)
    try:
        yield importlib.import_module("apprise")
    finally:
        _hearing.reset(token)


def _apprised(text: str, scheme: str) -> str:
    shown = f"{scheme}://..." if re.fullmatch("[a-z0-9+]{2,20}", scheme) else "no scheme of an address"
    if importlib.util.find_spec("apprise") is None:
        raise BadRequest(
            "Slack, Discord, an https address or a command, or apprise for mail and other services",
            f"{shown}, and apprise is not installed",
            FORMS,
            hint="pip install 'rlclinic[alerts]'",
        )
    with _apprise([]) as apprise:
        try:
            known = apprise.Apprise.instantiate(text)
        except Exception:  # a plug-in's own
            known = None
    if known is None:
        mail = "mailtos://USER:PASSWORD@HOST?to=ADDRESS" if scheme.startswith("mail") else ""
        raise BadRequest("an address that apprise knows", shown, FORMS, hint=mail)
    return shown


# ---------------------------------------------------------------------------------------------------- payloads


def payload(way: Way, told: Message) -> bytes:
    """What is sent as the body of a webhook: JSON in the form of Slack, of Discord, or our own (``message.as_json``).

    Nothing of a log is markup, a mention or a link text in it: Slack's three characters are escaped and its text objects are
    plain; Discord's characters are escaped, no mention is allowed and no link is unfolded.
    """
    if way == "slack":
        head, _, rest = told.text(SLACK_BLOCK).partition("\n")
        blocks = [{"type": "header", "text": _plain_text(head, SLACK_HEADER)}]
        if _units(_slack(head)) > SLACK_HEADER:
            blocks = [{"type": "section", "text": _plain_text(head, SLACK_BLOCK)}]
        if rest:
            blocks.append({"type": "section", "text": _plain_text(rest, SLACK_BLOCK)})
        return _json({"text": _fitting(told.text(SLACK_BLOCK), SLACK_BLOCK, _slack), "mrkdwn": False, "blocks": blocks})
    if way == "discord":
        head, _, rest = told.text(DISCORD).partition("\n")
        bold = f"**{_fitting(head, 400, _discord)}**"
        content = bold + ("\n" + _fitting(rest, DISCORD - _units(bold) - 1, _discord) if rest else "")
        mentions: dict[str, list[str]] = {"parse": []}
        return _json({"content": content, "allowed_mentions": mentions, "flags": _SUPPRESS_EMBEDS})
    return _json(as_json(told))


def _json(form: Mapping[str, Any]) -> bytes:
    return json.dumps(form, ensure_ascii=True, allow_nan=False).encode("ascii")


def _plain_text(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": _fitting(text, most, _slack) or "-", "emoji": False}


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _discord(text: str) -> str:
    return re.sub(r"([\\`*_~|<>\[\]()#@])", r"\\\1", text)


def _fitting(text: str, most: int, escape: Callable[[str], str]) -> str:
    """As much of ``text`` as fits into ``most`` units once it is escaped, cut before an escape, never within one."""
    shown = escape(text)
    if _units(shown) <= most:
        return shown
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _units(escape(text[:middle])) <= most - 4 else (low, middle - 1)
    return escape(text[:low]) + " ..."


def _units(text: str) -> int:
    """Length as UTF-16 counts it."""
    return len(text.encode("utf-16-le", "replace")) // 2


# ----------------------------------------------------------------------------------------------------- sending


def deliver(to: Channel, told: Message, seconds: float = SECONDS) -> None:
    """Hand ``told`` over once, within ``seconds`` (a command has ``COMMAND_SECONDS``). Raises NotSent and nothing else."""
    try:
        if to.way == "command":
            _run(to, told)
        elif to.way == "apprise":
            _notify(to, told)
        else:
            _post(to, told, seconds)
    except NotSent:
        raise
    except Exception as broken:  # its text may hold the address
        again = isinstance(broken, (OSError, http.client.HTTPException))
        raise NotSent(f"{to.shown}: {_why(broken)}", again=again) from None


def _why(problem: Exception) -> str:
    reason = getattr(problem, "reason", problem)
    if isinstance(reason, TimeoutError) or "timed out" in str(reason):
        return "no answer in time"
    if isinstance(reason, OSError) and reason.strerror and "://" not in reason.strerror:
        return plain(reason.strerror, KEY)
    return "the connection was cut" if isinstance(problem, http.client.HTTPException) else type(problem).__name__


def _post(to: Channel, told: Message, seconds: float) -> None:
    parts = urlsplit(to.address)
    headers = {"Content-Type": "application/json"}
    if parts.username is not None:
        headers["Authorization"] = basic(unquote(parts.username), unquote(parts.password or ""))
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    if to.way == "discord":
        # Without it a message that was not kept is no error.
        parts = parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), "wait": "true"}))
    parts = parts._replace(path=parts.path or "/")
    answer = send(urlunsplit(parts), payload(to.way, told), headers, seconds, direct=_own(parts.hostname or ""))
    if 200 <= answer.status < 300:
        return
    says = f"{to.shown} answers {answer.status}{_masked(answer.words, f'{parts.path}?{parts.query}')}"
    if 300 <= answer.status < 400:
        raise NotSent(f"{says}: it sends on to another address, where none is sent", again=False, gone=True)
    if answer.status in (408, 425, 429) or answer.status >= 500:
        raise NotSent(says, wait=_wait(answer.retry_after, answer.words))
    gone = to.way in ("slack", "discord") and answer.status in _GONE
    # The server of a user's own may be on its way up, so only what it calls malformed is not tried again.
    raise NotSent(says, again=not gone and to.way == "json" and answer.status in _GONE, gone=gone)


def _masked(words: str, address: str) -> str:
    """Words of others in brackets, without what may be a piece of the address; a page of HTML says nothing."""
    text = plain(words, 160)
    pieces = {piece for piece in re.split(r"[^\w.~%+-]+", address) if len(piece) >= 4}
    for piece in sorted(pieces | {unquote(piece) for piece in pieces}, key=len, reverse=True):
        text = text.replace(piece, "***")
    return f" ({plain(text, 80)})" if text and not text.startswith("<") else ""


def _wait(header: str, words: str) -> float:
    """Seconds that a busy server asks for: the header ``Retry-After``, or Discord's own number in its answer."""
    try:
        return max(0.0, float(header))  # in this order NaN is no wait
    except ValueError:
        pass
    try:
        return max(0.0, float(json.loads(words)["retry_after"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return 0.0


_NO_MENTION = str.maketrans({"@": "(at)", "<": "‹", ">": "›"})


def _notify(to: Channel, told: Message) -> None:
    head, _, rest = told.text(OTHER).partition("\n")
    heard: list[str] = []
    with _apprise(heard) as apprise:
        service = apprise.Apprise.instantiate(to.address)
        box = apprise.Apprise()
        if service is None or not box.add(service):
            raise NotSent(f"{to.shown}: apprise does not know it", again=False)
        kinds = {Severity.CRITICAL: "failure", Severity.WARNING: "warning"}
        taken = box.notify(
            title=head.translate(_NO_MENTION),
            body=rest.translate(_NO_MENTION) or head.translate(_NO_MENTION),
            notify_type=kinds.get(told.severity, "info") if told.severity is not None else "info",
            body_format="text",
        )
    if not taken:
        raise NotSent(f"{to.shown}: apprise could not hand it over{_masked(heard[-1] if heard else '', to.address)}")


def _run(to: Channel, told: Message) -> None:
    """Run a command without a shell: what happened as JSON on its standard input, and words of ours in its environment.

    Text of a log is in neither its arguments nor its environment.
    """
    words = shlex.split(to.address)
    event = told.items[0].event
    own = {
        "RLCLINIC_SEVERITY": "" if told.severity is None else told.severity.label,
        "RLCLINIC_KIND": event.kind,
        "RLCLINIC_CHECK": event.check if re.fullmatch("[a-z0-9_]+", event.check) else "",
        "RLCLINIC_STEP": f"{event.step:g}",
    }
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE} | own
    with tempfile.TemporaryFile() as given:
        given.write(_json(as_json(told)) + b"\n")
        given.seek(0)
        try:
            process = subprocess.Popen(
                [os.path.expanduser(words[0]), *words[1:]],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as problem:
            raise NotSent(f"{to.shown}: {problem.strerror or 'cannot be run'}", again=False) from None
    said = bytearray()
    reading = threading.Thread(target=_drain, args=(process, said), name="rlclinic-command", daemon=True)
    with contextlib.suppress(RuntimeError):  # at the end of the program none can be started
        reading.start()
    try:
        code = process.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        _end(process)
        raise NotSent(f"{to.shown}: ended after {COMMAND_SECONDS:g} seconds", again=False) from None
    if reading.is_alive():
        reading.join(0.2)
    if code:
        words_of_it = plain(bytes(said).decode("utf-8", "replace"), 120)
        raise NotSent(f"{to.shown}: exit code {code}{f' ({words_of_it})' if words_of_it else ''}", again=False)


def _drain(process: subprocess.Popen[bytes], said: bytearray) -> None:
    """Read all that a command prints, and keep the end of it. A child that it left behind may go on printing."""
    with contextlib.suppress(OSError, ValueError), process.stdout or contextlib.nullcontext() as pipe:
        while pipe is not None and (chunk := os.read(pipe.fileno(), 1 << 16)):
            said += chunk
            del said[: max(len(said) - SAID, 0)]


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGTERM)
            until = time.monotonic() + 2.0
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2.0)
