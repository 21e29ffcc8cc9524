"""Alerts: every change arrives once, whatever the other end does; nothing waits, raises, leaks or becomes markup."""

from __future__ import annotations

import copy
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.checks import CHECKS
from rlclinic.cli import cli
from rlclinic.cli.alerting import posted
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest
from rlclinic.live import alerts as ways
from rlclinic.live import post as posting
from rlclinic.live.alerts import Channel, NotSent, addresses, channel, deliver, payload, trial
from rlclinic.live.events import LINE, Event, of_finding
from rlclinic.live.message import Item, as_json, item_of, kept, message, replaced, taken
from rlclinic.live.post import Post, alerts, asked
from rlclinic.model import Diagnosis, Finding, Onset, Run, Severity, Verdict
from rlclinic.readers import read
from rlclinic.simulate import scenario, write

SECRET = "T0SECRET0/B0SECRET0/XXSECRETXX"
HOSTILE = (
    "@everyone <!channel> <@U123> <#C1> @here [click](https://evil.example) **b** `c` ~~d~~ ||e|| \x1b[31mred\x1b[0m "
    "\u202egnp.exe \u0000\u0007 </script><b>&amp; ${PATH} $(touch /tmp/x) `touch /tmp/y` ; rm -rf / \n# head\n> quote\n"
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No proxy, no address from outside, pauses that a test can wait for, and nothing that goes on after a test."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "RLCLINIC_ALERT", "RLCLINIC_ALERT_AT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(posting, "FIRST_WAIT", 0.02)
    monkeypatch.setattr(posting, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(posting, "IDLE", 0.2)
    yield
    monkeypatch.setattr(posting, "IDLE", 0.0)
    lanes = list(posting._LANES)
    for lane in lanes:  # one that is still being answered would complain in the middle of the next test
        lane._said |= {"stuck", "left", "full", "gone", "lost", "failing", "state"}
        lane._gone = True
        lane._inbox.put([])
    until(lambda: not any(lane._running for lane in lanes), 2)


class Server:
    """A webhook on this machine: answers as told, the last answer for ever, and keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: list[Any] = [200]
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.tries = 0
        self.free = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.tries += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                if answer == "hang":
                    outer.free.wait(10)
                    return
                if answer == "busy when let go":
                    outer.free.wait(10)
                    answer = 503
                if answer == "close":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, headers, words = answer if isinstance(answer, tuple) else (answer, {}, b"ok")
                if 200 <= status < 300:
                    outer.got.append(json.loads(body))
                    outer.paths.append(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(words)))
                self.end_headers()
                self.wfile.write(words)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.free.set()
    one.server.shutdown()
    one.server.server_close()


def until(true: Callable[[], object], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.005)
    return bool(true())


def event(kind: Any = "opened", check: str = "kl_drift", step: float = 10.0, **more: Any) -> Event:
    values: dict[str, Any] = {"severity": Severity.WARNING, "title": "It drifts.", "says": "kl rose", "run": "r"}
    return Event(kind, check, step=step, **{**values, **more})


# -------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("text", "way", "shown"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "slack", "hooks.slack.com/..."),
        ("https://discord.com/api/webhooks/1/x", "discord", "discord.com/..."),
        ("https://ptb.discord.com/api/v10/webhooks/1/x", "discord", "ptb.discord.com/..."),
        ("https://discord.com/api/webhooks/1/x/slack", "slack", "discord.com/..."),
        ("https://discord.com.evil.example/api/webhooks/1/x", "json", "discord.com.evil.example/..."),
        ("https://ops.example/hook?key=1", "json", "ops.example/..."),
        ("json+https://hooks.slack.com/services/T0", "json", "hooks.slack.com/..."),
        ("slack+https://chat.example/hooks/x", "slack", "chat.example/..."),
        ("http://localhost:8080/x", "json", "localhost/..."),
        ("slack+http://[::1]:8080/x", "slack", "::1/..."),
        ("insecure+http://ops.internal/x", "json", "ops.internal/..."),
        ("https://user:word@ops.example/x", "json", "ops.example/..."),
        (f"cmd:{sys.executable} -c pass", "command", f"{Path(sys.executable).name} ..."),
    ],
)
def test_an_address_says_how_it_is_spoken_to(text: str, way: str, shown: str) -> None:
    one = channel(text)
    assert (one.way, one.shown) == (way, shown)
    assert "word" not in repr(one)
    assert text not in repr(one)


@pytest.mark.parametrize(
    "text",
    [
        f"http://ops.example/{SECRET}",
        f"https:///{SECRET}",
        f"https://[::1/{SECRET}",
        f"https://ops.example:port/{SECRET}",
        f"https://ops.example/{SECRET} and more",
        f"https://ops.example/{SECRET}\nHost: evil",
        f"https://öps.example/{SECRET}",
        f"https://ops.example/{SECRET * 500}",
        f"slack+insecure+ftp://{SECRET}",
        f"/{SECRET}",
        SECRET,
        "",
        "cmd:",
        "cmd:'",
        f"XX-{SECRET.split('/')[0]}:x",
        f"cmd:no-such-program-here {SECRET}",
        f"mailto:{SECRET}",
    ],
)
def test_what_is_no_address_is_told_and_never_shown(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    with pytest.raises(BadRequest) as problem:
        channel(text)
    assert "secret0" not in str(problem.value).lower()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("hooks.slack.com/services/x", "one without a scheme://"),
        ("word", "one without a scheme://"),
        ("ls -l", "one with a blank in it; a command begins with cmd:"),
        ("HTTPS://hooks.slack.com/x y", "https:... with a blank in it"),
        ("mailto:me@mail.example", "mailto:... without //"),
        ("htps://ops.example/x", "htps://..., and apprise is not installed"),
        ("123456:word", "one without a scheme://"),
    ],
)
def test_what_is_wrong_with_an_address_is_said(text: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    with pytest.raises(BadRequest) as problem:
        channel(text)
    assert problem.value.found.startswith(found)
    assert problem.value.choices == ways.FORMS


def test_what_apprise_is_for_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    for text in ("mailtos://me:word@mail.example?to=a@b.example", "tgram://word/12"):
        with pytest.raises(BadRequest) as problem:
            channel(text)
        assert "pip install 'rlclinic[alerts]'" in str(problem.value)
        assert "word" not in str(problem.value)


def test_http_is_refused_with_the_reason() -> None:
    with pytest.raises(BadRequest, match="the address itself is the secret"):
        channel("http://10.0.0.5/hook")


def test_addresses_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "to"
    file.write_text("# mine\nhttps://a.example/x\n\nhttps://b.example/y\nhttps://a.example/x\n@/etc/passwd\n")
    assert addresses([f"@{file}"]) == ["https://a.example/x", "https://b.example/y"]
    assert addresses([], {"RLCLINIC_ALERT": f"https://c.example 'cmd:echo hello' @{file}"})[:2] == [
        "https://c.example",
        "cmd:echo hello",
    ]
    assert addresses(["cmd:x"], {"RLCLINIC_ALERT": "https://c.example"}) == ["cmd:x"]
    assert addresses([], {}) == []
    for bad in (tmp_path / "none", tmp_path):
        with pytest.raises(BadRequest):
            addresses([f"@{bad}"])
    with pytest.raises(BadRequest):
        addresses([], {"RLCLINIC_ALERT": "'https://c.example/SECRET"})
    file.write_bytes(b"x" * (1 << 17))
    with pytest.raises(BadRequest, match="KiB"):
        addresses([f"@{file}"])


def test_what_is_asked_by_the_environment_never_raises(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked({}) is None
    assert asked({"RLCLINIC_ALERT": f"http://far.example/{SECRET} nonsense:{SECRET}"}) is None
    assert asked({"RLCLINIC_ALERT": f"'https://far.example/{SECRET}"}) is None
    assert asked({"RLCLINIC_ALERT": "https://a.example", "RLCLINIC_ALERT_AT": "loud"}) is None
    two = asked({"RLCLINIC_ALERT": f"https://a.example/{SECRET} http://b.example/{SECRET}"})
    assert repr(two) == "Post(a.example/...)"
    told = capsys.readouterr().err
    assert told.count("\n") == 5
    assert "SECRET" not in told


# --------------------------------------------------------------------------------------------------- the words


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Event], Diagnosis]:
    """What the last look at a run with one cause and three consequences tells."""
    log = tmp_path_factory.mktemp("log") / "log.jsonl"
    log.write_text(write(scenario("lr_too_high", steps=160, seed=1), dialect="trl", form="jsonl"))
    found = diagnose(read([log]))
    loud = [one for one in found.findings if (one.severity or 0) >= Severity.WARNING]
    return [of_finding("opened", one, found, 160.0) for one in loud], found


def items(events: list[Event], diagnosis: Diagnosis | None = None) -> list[Item]:
    return [item_of(one, diagnosis, 1.0) for one in events]


def test_one_look_is_one_message_the_cause_and_its_cure_first(sick: tuple[list[Event], Diagnosis]) -> None:
    events, found = sick
    told = message(items(events, found))
    assert told.title.startswith("CRITICAL in ")
    assert "learning rate is too high" in told.title
    assert ", since step " in told.title
    text = told.text(4000)
    assert found.findings[0].says in text
    assert re.search(r"^Change: .*learning_rate", text, re.M)
    assert re.search(r"^Go on from ", text, re.M)
    assert re.search(r"^It leads to kl_drift \(critical\), ", text, re.M)
    assert text.count("\n") < 8
    assert told.severity == Severity.CRITICAL


def test_a_consequence_that_is_told_first_says_what_is_behind_it_and_what_mends_that(
    sick: tuple[list[Event], Diagnosis],
) -> None:
    events, found = sick
    root, after = (next(one for one in events if one.check == name) for name in ("lr_too_high", "kl_drift"))
    lines = message(items([after], found)).text(4000).splitlines()
    assert re.match(r"CRITICAL in \S+ \(follows from lr_too_high\): The policy has moved", lines[0])
    assert re.fullmatch(
        r"Behind it, as it looks now: The learning rate is too high.*, since .*\(lr_too_high.*\)", lines[2]
    )
    assert lines[3].startswith("Change: ")
    assert "learning_rate" in lines[3]
    assert lines[4].startswith("Go on from ")
    assert (after.root, after.change, after.go_on) == ("lr_too_high", root.change, root.go_on)
    assert root.root == ""
    assert f"Behind it: lr_too_high. Change: {root.change}. Go on from " in str(after)


def test_what_follows_by_way_of_something_that_is_not_told_stands_behind_its_root() -> None:
    chain = (("lr_too_high", ()), ("length_explosion", ("lr_too_high",)), ("truncation", ("length_explosion",)))
    found = tuple(Finding(Severity.CRITICAL, "so", check=check, because_of=cause) for check, cause in chain)
    diagnosis = Diagnosis(Run(), Verdict("critical", "lr_too_high", "so"), found, (), ())
    last, root = (of_finding("opened", one, diagnosis, 9.0) for one in (found[2], found[0]))
    assert (last.root, root.root) == ("lr_too_high", "")
    told = message([item_of(one, diagnosis, 0.0) for one in (last, root)])
    assert "It leads to truncation (critical)." in told.text(999)
    assert "Also" not in told.text(999)
    loop = replace(diagnosis, findings=(found[1], replace(found[0], because_of=("length_explosion",))))
    assert of_finding("opened", loop.findings[0], loop, 9.0).root == "lr_too_high"  # a foreign diagnosis hangs nothing


def test_a_long_sentence_does_not_push_out_what_is_to_be_done() -> None:
    told = str(event(says="word " * 400, change="beta=0.01", go_on="go on from the last checkpoint before step 7"))
    assert len(told) <= LINE
    assert told.endswith(". Change: beta=0.01. Go on from the last checkpoint before step 7.")


def test_what_is_closed_takes_one_line() -> None:
    gone = [event("closed", check, says="no longer seen at 3 looks") for check in ("a", "b", "c")]
    assert message(items(gone[:1])).text(999) == "Closed in r (was warning): It drifts\nno longer seen at 3 looks"
    assert message(items(gone[:1])).severity is None
    text = message(items([event(), *gone])).text(999)
    assert text.startswith("WARNING in r: It drifts")
    assert "\nClosed: a, b, c.\n" in text
    many = message(items([event("closed", f"c{i}") for i in range(90)])).text(4000)
    assert len(many) < 500
    assert " more" in many


def test_an_event_that_no_finding_stands_behind_is_told_in_its_own_words(sick: tuple[list[Event], Diagnosis]) -> None:
    silent = event(check="no_new_rows", title="No new row", says="none for 30 minutes", change="look", go_on="go on")
    for diagnosis in (None, sick[1]):
        text = message(items([silent], diagnosis)).text(999)
        assert text.splitlines()[:4] == ["WARNING in r: No new row", "none for 30 minutes", "Change: look", "go on"]


def test_a_root_is_told_as_grave_as_what_it_led_to() -> None:
    root = event(check="lr_too_high", title="Too high")
    after = event(check="kl_drift", severity=Severity.CRITICAL, because_of=("lr_too_high",))
    last = event(check="plateau", because_of=("kl_drift",))
    told = message(items([last, after, root]))
    assert told.title.startswith("CRITICAL in r: Too high")
    assert "It leads to kl_drift (critical), plateau (warning)." in told.text(999)


def test_what_is_in_preview_is_marked_and_makes_nothing_graver(server: Server, tmp_path: Path) -> None:
    names = [one.name for one in CHECKS if one.status == "preview"]
    if not names:
        pytest.skip("every check is measured well enough")
    trial_only = event(check=names[0], severity=Severity.CRITICAL)
    told = message(items([trial_only, event(check="kl_drift", because_of=(names[0],))]))
    assert told.title.startswith("WARNING in r")
    assert told.severity == Severity.WARNING
    assert message(items([trial_only])).title.startswith("CRITICAL (preview) in r")
    out = tmp_path / "out"
    post = Post([channel(f"cmd:touch {out}"), channel(server.url)])
    post.tell([trial_only], None)
    assert post.close(5)
    assert len(server.got) == 1
    assert not out.exists(), "no command is run for a check that is not measured well enough"


def test_later_events_take_the_place_of_unsent_ones() -> None:
    opened, worsened = event(), event("worsened", step=20.0, severity=Severity.CRITICAL)
    closed, again = event("closed", step=30.0), event(step=40.0)

    def over(*events: Event) -> Item | None:
        first, *rest = items(list(events))
        kept: Item | None = first
        for one in rest:
            kept = one if kept is None else replaced(kept, one)
        return kept

    both = over(opened, worsened)
    assert both is not None
    assert (both.event.kind, both.event.severity, both.unsaid) == ("opened", Severity.CRITICAL, False)
    gone = over(opened, closed)
    assert gone is not None
    assert (gone.event.kind, gone.unsaid) == ("closed", True)
    assert "Came and went in r" in message([gone]).title
    plainly = over(worsened, closed)
    assert plainly is not None
    assert not plainly.unsaid
    assert over(closed, again) is None
    worse = over(closed, replace(again, severity=Severity.CRITICAL))
    assert worse is not None
    assert worse.event.kind == "worsened"


@given(st.lists(st.sampled_from(["opened", "worsened", "closed"]), min_size=1, max_size=12))
@settings(max_examples=15)
def test_any_course_of_one_finding_leaves_at_most_one_item_with_few_ids(kinds: list[Any]) -> None:
    left: Item | None = None
    for step, kind in enumerate(kinds):
        item = items([event(kind, step=float(step))])[0]
        left = item if left is None else replaced(left, item)
        assert left is None or len(left.covers) <= 13
    assert left is None or left.event.step <= len(kinds)


# ------------------------------------------------------------------------------------------------ hostile text

WIDE = {
    "mentions and markup": HOSTILE,
    "a megabyte": HOSTILE * 7000,
    "a megabyte of astral letters": "\U0001f4a3" * 300_000,
    "a megabyte of what is escaped": "<" * 500_000 + "`" * 500_000,
    "half of a pair": "\ud800 lonely \udfff",
    "nothing": "",
}


def hostile(text: str) -> list[Event]:
    """Events every text of which is ``text``."""
    onset = Onset(float("nan"), float("-inf"), float("inf"))
    values: dict[str, Any] = {"title": text, "says": text, "change": text, "go_on": text, "run": text}
    return [
        event(kind, text[:40] + str(i), onset=onset, because_of=(text,), **values)
        for i, kind in enumerate(["opened", "worsened", "closed", "opened"] * 5)
    ]


@pytest.mark.parametrize("text", WIDE.values(), ids=list(WIDE))
def test_hostile_text_stays_text_in_every_form(text: str) -> None:
    told = message(items(hostile(text)))
    slack = json.loads(payload("slack", told))
    for one in [slack["text"], *(block["text"]["text"] for block in slack["blocks"])]:
        assert 0 < len(one) <= 3000
        assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", one)
    assert slack["mrkdwn"] is False
    assert {block["text"]["type"] for block in slack["blocks"]} == {"plain_text"}
    assert all(len(block["text"]["text"]) <= 150 for block in slack["blocks"] if block["type"] == "header")
    discord = json.loads(payload("discord", told))
    assert discord["allowed_mentions"] == {"parse": []}
    assert discord["flags"] == 4
    assert 0 < len(discord["content"].encode("utf-16-le", "surrogatepass")) // 2 <= 2000
    inside = discord["content"].replace("**", "")
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_~|<>\[\]#@]", inside)
    own = payload("json", told)
    assert len(own) < 1_000_000
    form = json.loads(own)
    assert form["schema"] == "rlclinic.alert/1"
    assert form["events"][0]["onset"] == {"step": None, "low": None, "high": None}
    for body in (slack["text"], discord["content"], form["text"], form["title"]):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e\u200b]", body)


@given(st.text(max_size=400), st.integers(min_value=10, max_value=200))
@settings(max_examples=8)
def test_what_is_cut_is_cut_between_escapes(text: str, most: int) -> None:
    for escape in (ways._slack, ways._discord):
        cut = ways._fitting(text, most, escape)
        assert ways._units(cut) <= most
        if cut != escape(text):
            assert any(cut == escape(text[:n]) + " ..." for n in range(len(text)))


# ----------------------------------------------------------------------------------------------------- sending


def test_a_message_arrives_as_the_documents_of_each_service_say(server: Server) -> None:
    for way in ("slack", "discord", "json"):
        deliver(channel(f"{way}+{server.url}"), trial())
    slack, discord, own = server.got
    assert slack["text"].startswith("WARNING in test")
    assert slack["blocks"][0]["type"] == "header"
    assert discord["content"].startswith("**WARNING in test")
    assert own["events"][0]["check"] == "test"
    assert server.paths == [f"/{SECRET}", f"/{SECRET}?wait=true", f"/{SECRET}"]


@pytest.mark.parametrize(
    ("answer", "again", "gone", "wait"),
    [
        ((429, {"Retry-After": "7"}, b"rate_limited"), True, False, 7.0),
        ((429, {}, b'{"message": "slow", "retry_after": 0.65, "global": false}'), True, False, 0.65),
        ((429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"[" * 4000), True, False, 0.0),
        ((429, {"Retry-After": "-1"}, b"null"), True, False, 0.0),
        ((429, {"Retry-After": "nan"}, b"null"), True, False, 0.0),
        ((429, {}, b'{"retry_after": NaN}'), True, False, 0.0),
        (500, True, False, 0.0),
        (503, True, False, 0.0),
        ((404, {}, b"no_service"), False, True, 0.0),
        ((410, {}, b"channel_is_archived"), False, True, 0.0),
        ((400, {}, b"invalid_payload"), False, False, 0.0),
        ((302, {"Location": "http://127.0.0.1:9/"}, b""), False, True, 0.0),
        ("close", True, False, 0.0),
    ],
)
def test_what_a_server_answers(server: Server, answer: Any, again: bool, gone: bool, wait: float) -> None:
    server.answers = [answer]
    with pytest.raises(NotSent) as no:
        deliver(channel(f"slack+{server.url}"), trial())
    assert (no.value.again, no.value.gone, no.value.wait) == (again, gone, wait)
    assert server.tries == 1
    assert "SECRET" not in str(no.value)


def test_what_a_server_says_of_the_address_is_not_repeated(server: Server) -> None:
    server.answers = [(403, {}, f"no access to {SECRET} with 's3cretkey'\x1b[31m".encode())]
    with pytest.raises(NotSent) as no:
        deliver(channel(f"{server.url}?key=s3cretkey"), trial())
    assert "SECRET" not in str(no.value)
    assert "s3cretkey" not in str(no.value)
    assert "\x1b" not in str(no.value)
    assert no.value.again, "a server of one's own may be on its way up"


def test_silence_and_what_is_not_there_are_told_in_time(server: Server) -> None:
    server.answers = ["hang"]
    begin = time.monotonic()
    with pytest.raises(NotSent, match="no answer in time"):
        deliver(channel(server.url), trial(), 0.15)
    assert time.monotonic() - begin < 3
    with socket.socket() as taken_by_nobody:
        taken_by_nobody.bind(("127.0.0.1", 0))
        with pytest.raises(NotSent, match=r"^127.0.0.1/...: Connection refused"):
            deliver(channel(f"http://127.0.0.1:{taken_by_nobody.getsockname()[1]}/{SECRET}"), trial())
    with pytest.raises(NotSent) as no:
        deliver(channel(f"https://127.0.0.1:{server.server.server_port}/{SECRET}"), trial(), 0.15)
    assert "SECRET" not in str(no.value)


# ---------------------------------------------------------------------------------------------------- commands

KEEPS = (
    "import os,sys;own={k:v for k,v in os.environ.items() if 'RLCLINIC' in k};"
    "open(sys.argv[1],'w').write(sys.stdin.read()+repr(own)+repr(sys.argv[2:]))"
)


def test_a_command_reads_what_happened_and_no_shell_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCLINIC_ALERT", f"https://a.example/{SECRET}")
    out = tmp_path / "out"
    told = message(items(hostile(HOSTILE)))
    deliver(channel(f'cmd:{sys.executable} -c "{KEEPS}" {out} "$(touch {tmp_path}/x)" ;'), told)
    read_by_it, _, rest = out.read_text().partition("\n")
    assert json.loads(read_by_it) == json.loads(json.dumps(as_json(told)))
    assert rest.endswith(f"['$(touch {tmp_path}/x)', ';']")
    for word in ("SECRET", "everyone", "evil", "\x1b", "$("):
        assert word not in rest.partition("}")[0]
    assert "'RLCLINIC_SEVERITY': 'warning'" in rest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_command_that_fails_prints_or_hangs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "COMMAND_SECONDS", 5.0)
    loud = "import sys;[print('x'*9999) for _ in range(300)];print('the end');sys.exit(3)"
    failing = channel(f'cmd:{sys.executable} -c "{loud}"')
    with pytest.raises(NotSent, match=r"exit code 3 \(.*the end\)") as no:
        deliver(failing, trial())
    assert not no.value.again
    assert len(str(no.value)) < 250
    monkeypatch.setattr(ways, "COMMAND_SECONDS", 0.2)
    begin = time.monotonic()
    with pytest.raises(NotSent, match="ended after"):
        deliver(channel("cmd:sleep 30"), trial())
    assert time.monotonic() - begin < 4


# -------------------------------------------------------------------------------------------------- on its way


def test_every_change_is_told_once(server: Server, sick: tuple[list[Event], Diagnosis]) -> None:
    post = Post([channel(server.url)])
    events, found = sick
    post.tell(events, found)
    post.tell(events, found)
    post.tell([], found)
    assert post.close(5)
    post.tell(events, found)
    assert post.close(5)
    assert len(server.got) == 1
    assert [one["check"] for one in server.got[0]["events"]] == [one.check for one in events]
    assert server.got[0]["verdict"] == {"severity": found.verdict.severity, "says": found.verdict.says}


def test_a_channel_hears_what_it_asked_for(server: Server) -> None:
    loud, opened = channel(server.url, at="critical"), channel(f"{server.url}/o", closed=False)
    post = Post([loud, opened])
    post.tell([event(), event("closed", "other")], None)
    assert post.close(5)
    assert [path[-2:] for path in server.paths] == ["/o"]
    post.tell([event("worsened", step=20.0, severity=Severity.CRITICAL)], None)
    assert post.close(5)
    post.tell([event("closed", step=30.0)], None)
    assert post.close(5)
    kinds = [[(one["kind"], one["check"]) for one in got["events"]] for got in server.got]
    assert sorted(kinds) == sorted(
        [[("opened", "kl_drift")], [("worsened", "kl_drift")], [("worsened", "kl_drift")], [("closed", "kl_drift")]]
    )


def test_telling_takes_no_time_while_a_server_hangs(server: Server, sick: tuple[list[Event], Diagnosis]) -> None:
    server.answers = ["hang"]
    other = Server()
    post = Post([channel(server.url), channel(other.url)])
    events, found = sick
    took = []
    for step in range(20):
        begin = time.thread_time(), time.monotonic()
        post.tell([replace(one, step=float(step)) for one in events[:1]], found)
        took.append((time.thread_time() - begin[0], time.monotonic() - begin[1]))
    assert sorted(cpu for cpu, _ in took)[10] < 0.002
    assert sorted(wall for _, wall in took)[10] < 0.05
    assert until(lambda: other.got), "the other channel must not wait for the one that hangs"
    begin_close = time.monotonic()
    assert not post.close(0.1)
    assert time.monotonic() - begin_close < 3
    other.server.shutdown()


def test_what_fails_is_tried_again_until_it_is_taken(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers = [500, "close", (429, {"Retry-After": "0.05"}, b""), 503, 200]
    post = Post([channel(server.url)])
    post.tell([event()], None)
    assert until(lambda: server.got)
    assert post.close(5)
    assert server.tries == 5
    assert len(server.got) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1, "one line, however often it fails"
    assert "SECRET" not in told


def test_a_server_says_when_it_wants_to_be_asked_again(server: Server) -> None:
    server.answers = [(429, {"Retry-After": "3000"}, b""), 200]
    post = Post([channel(server.url)])
    post.tell([event()], None)
    assert until(lambda: server.tries)
    assert not post.close(0.15)
    assert server.tries == 1


def test_an_address_that_is_gone_is_left_alone(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers = [(404, {}, b"no_service")]
    post = Post([channel(f"slack+{server.url}")])
    for step in range(5):
        post.tell([event(step=float(step), check=f"c{step}")], None)
        post.close(0.5)
    assert server.tries == 1
    assert (
        capsys.readouterr().err == "rlclinic: 127.0.0.1/... answers 404 (no_service); no more alerts are sent there\n"
    )


def test_what_waits_is_told_as_it_stands_when_it_gets_through(server: Server) -> None:
    server.answers = ["busy when let go", 200]
    post = Post([channel(server.url, closed=False)])
    post.tell([event(), event(check="other")], None)
    assert until(lambda: server.tries)
    post.tell([event("worsened", step=20.0, severity=Severity.CRITICAL)], None)
    post.tell([event("closed", "other", step=20.0)], None)
    server.free.set()
    assert until(lambda: server.got)
    assert post.close(5)
    assert len(server.got) == 1
    assert {(one["kind"], one["severity"]) for one in server.got[0]["events"]} == {
        ("opened", "critical"),
        ("closed", "warning"),
    }
    assert "Came and went before it could be told: other." in server.got[0]["text"]


def test_flapping_is_bounded_and_nothing_of_it_is_lost(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    post = Post([channel(server.url)])
    for step in range(60):
        post.tell([event("closed" if step % 2 else "opened", step=float(step))], None)
        time.sleep(0.002)
    assert until(lambda: len(server.got) == posting.BURST)
    assert not until(lambda: len(server.got) > posting.BURST, 0.1)
    post.tell([event(check="new", step=99.0, severity=Severity.CRITICAL)], None)
    assert post.close(5)
    assert len(server.got) == posting.BURST + 1
    assert "new" in {one["check"] for one in server.got[-1]["events"]}


def test_a_queue_that_overflows_drops_what_is_closed_first(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers = ["busy when let go", 200]
    post = Post([channel(server.url)])
    post.tell([event(check="first")], None)
    assert until(lambda: server.tries)
    post.tell([event("closed", f"gone{i}") for i in range(80)], None)
    post.tell([event(check=f"c{i}") for i in range(80)], None)
    post.tell([event(check=f"d{i}", severity=Severity.CRITICAL) for i in range(40)], None)
    server.free.set()
    assert until(lambda: server.got)
    assert post.close(5)
    arrived = [one["check"] for one in server.got[0]["events"]]
    assert len(arrived) == posting.MOST
    assert sum(check.startswith("d") for check in arrived) == 40
    assert not any(check.startswith("gone") for check in arrived)
    assert len(json.dumps(server.got[0]["text"])) < 4200
    assert capsys.readouterr().err.count("are dropped") == 1


def test_what_nobody_takes_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(posting, "GIVE_UP", 0.1)
    server.answers = [500]
    post = Post([channel(server.url)])
    post.tell([event()], None)
    told = ""

    def said() -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return "given up: 1" in told

    assert until(said)
    tries = server.tries
    assert not until(lambda: server.tries > tries, 0.15), told
    assert post.close(1)


def test_several_runs_are_never_told_in_one_message(server: Server) -> None:
    post = Post([channel(server.url)])
    post.tell([event(run="one"), event(run="two"), event(check="b", run="one")], None)
    assert post.close(5)
    assert sorted((got["run"], len(got["events"])) for got in server.got) == [("one", 2), ("two", 1)]


def test_nothing_that_tell_is_given_makes_it_raise(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    post = Post([channel(server.url)])
    for odd in ([None], ["x"], 3, [event(title=None, says=b"x", because_of=None)]):
        post.tell(odd, None)  # type: ignore[arg-type]
        post.tell([event()], object())  # type: ignore[arg-type]
    assert post.close(5)
    assert capsys.readouterr().err.count("please report it") == 1


def test_no_thread_before_there_is_something_to_send(server: Server) -> None:
    before = threading.active_count()
    post = Post([channel(server.url) for _ in range(5)])
    assert post
    assert not Post([])
    assert threading.active_count() == before
    assert post.close(5)
    assert server.tries == 0


def test_an_error_of_ours_in_the_thread_ends_alerts_and_nothing_else(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(posting, "message", broken)
    post = Post([channel(server.url)])
    post.tell([event()], None)
    assert not post.close(2)
    post.tell([event(step=20.0)], None)
    assert not post.close(2)
    assert capsys.readouterr().err.count("please report it") == 1


# ----------------------------------------------------------------------------------------------------- restarts


def test_what_was_sent_is_known_after_a_restart_and_what_was_not_is_sent(server: Server, tmp_path: Path) -> None:
    server.answers = [200, 503]
    first = Post([channel(server.url)], state=tmp_path / "state")
    first.tell([event()], None)
    assert until(lambda: len(server.got) == 1)
    first.tell([event("worsened", step=20.0, severity=Severity.CRITICAL)], None)
    assert until(lambda: server.tries >= 2)
    first._lanes[0].reset()  # as if the process had ended here
    held = (tmp_path / "state" / "alerts.json").read_text()
    assert "SECRET" not in held
    server.answers = [200]
    again = Post([channel(server.url)], state=tmp_path / "state")
    assert until(lambda: len(server.got) == 2)
    again.tell([event(), event("worsened", step=20.0, severity=Severity.CRITICAL)], None)
    assert again.close(5)
    assert [got["events"][0]["kind"] for got in server.got] == ["opened", "worsened"]
    third = Post([channel(server.url)], state=tmp_path / "state")
    third.tell([event("worsened", step=20.0, severity=Severity.CRITICAL)], None)
    assert third.close(5)
    assert len(server.got) == 2
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["alerts.json"]


def test_a_command_is_never_run_again_after_a_restart(tmp_path: Path) -> None:
    """It may be what ended the process."""
    out = tmp_path / "out"
    code = f"import time;open('{out}','a').write('x');time.sleep(0 if open('{out}').read() != 'x' else 3)"
    to = f'cmd:{sys.executable} -c "{code}"'
    first = Post([to], state=tmp_path)
    first.tell([event()], None)
    assert until(lambda: out.exists() and out.read_text() == "x")
    assert not first.close(0.05), "it still runs"
    again = Post([to], state=tmp_path)
    again.tell([event()], None)
    assert again.close(5)
    assert out.read_text() == "x"
    again.tell([event(step=20.0)], None)
    assert again.close(5)
    assert out.read_text() == "xx"


@pytest.mark.parametrize(
    "held", [b"mine", b"[1]", b'{"schema": "other"}', b"[" * 100_000, b'{"a":' * 9000, b"\xff\x00"]
)
def test_a_file_that_is_not_ours_stays_as_it_is(server: Server, tmp_path: Path, held: bytes, capsys: Any) -> None:
    file = tmp_path / "alerts.json"
    file.write_bytes(held)
    post = Post([channel(server.url)], state=tmp_path)
    post.tell([event()], None)
    assert post.close(5)
    assert len(server.got) == 1
    assert file.read_bytes() == held
    assert "not kept on disk" in capsys.readouterr().err


def test_a_state_with_a_number_that_is_none_is_no_obstacle(server: Server, tmp_path: Path) -> None:
    item = kept(item_of(event(), None, time.time()))
    stepped = {**item, "event": {**item["event"], "step": 10**400}}
    waiting = [{**item, "born": 10**400}, {**item, "born": float("nan")}, stepped]
    channels = {"json 127.0.0.1/... 0": {"sent": [], "waiting": waiting}}
    (tmp_path / "alerts.json").write_text(json.dumps({"schema": "rlclinic.alerts/1", "channels": channels}))
    post = Post([channel(server.url)], state=tmp_path)
    post.tell([event()], None)
    assert post.close(5)
    assert len(server.got) == 1


@pytest.mark.parametrize(
    "channels",
    [
        [],
        3,
        {"json 127.0.0.1/... 0": 5},
        {"json 127.0.0.1/... 0": {"sent": [1, {}], "waiting": [1, {}, {"event": {}}, None]}},
    ],
)
def test_a_state_of_odd_form_is_no_obstacle(server: Server, tmp_path: Path, channels: Any) -> None:
    (tmp_path / "alerts.json").write_text(json.dumps({"schema": "rlclinic.alerts/1", "channels": channels}))
    post = Post([channel(server.url)], state=tmp_path)
    post.tell([event()], None)
    assert post.close(5)
    assert len(server.got) == 1


def test_a_state_that_cannot_be_written_hinders_no_alert(server: Server, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    post = Post([channel(server.url)], state=tmp_path / "file" / "below")
    post.tell([event()], None)
    assert post.close(5)
    assert len(server.got) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("text", WIDE.values(), ids=list(WIDE))
def test_what_is_kept_comes_back_as_it_was(text: str) -> None:
    for item in items(hostile(text)):
        back = taken(json.loads(json.dumps(kept(item))))
        assert back.id == item.id
        assert (back.told, back.event.kind, back.since, back.covers) == (
            item.told,
            item.event.kind,
            item.since,
            item.covers,
        )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_and_the_end_of_a_program_lose_nothing_and_send_nothing_twice(server: Server, tmp_path: Path) -> None:
    code = f"""
import atexit, os, rlclinic
from rlclinic.model import Severity
def event(check):
    return rlclinic.Event("opened", check, Severity.WARNING, 1.0, "t", "s")
post = rlclinic.alerts({server.url!r}, state={str(tmp_path)!r})
post([event("before")], None)
assert post.close(20)
post([event("parent")], None)
child = os.fork()
if child == 0:
    post([event("child")], None)
    os._exit(0 if post.close(20) else 1)
assert os.waitpid(child, 0)[1] == 0
atexit.register(lambda: post([event("at_exit")], None))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src"), "no_proxy": "127.0.0.1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    sent = [one["check"] for got in server.got for one in got["events"]]
    assert sorted(sent) == ["at_exit", "before", "child", "parent"]


# ------------------------------------------------------------------------------------------- options and a loop


def test_a_loop_names_its_channels_in_one_line(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    import rlclinic

    tell = rlclinic.alerts(server.url, f"discord+{server.url}", at="critical")
    tell([event(severity=Severity.CRITICAL)], None)
    assert tell.close(5)
    assert len(server.got) == 2
    with pytest.raises(BadRequest, match="RLCLINIC_ALERT is not set"):  # else nobody would ever hear
        rlclinic.alerts()
    monkeypatch.setenv("RLCLINIC_ALERT", server.url)
    assert repr(rlclinic.alerts()) == repr(Post(server.url)) == "Post(127.0.0.1/...)"
    with pytest.raises(BadRequest):
        alerts("nonsense")


def test_options_become_channels() -> None:
    post = posted(["https://a.example/x"], "critical", None, f"{sys.executable} -c pass")
    one, two = (lane.channel for lane in post._lanes)
    assert (one.way, one.at, "closed" in one.kinds) == ("json", Severity.CRITICAL, True)
    assert (two.way, two.at, "closed" in two.kinds) == ("command", Severity.CRITICAL, False)
    assert not posted([])


def test_an_address_is_tried_before_the_night(server: Server, tmp_path: Path) -> None:
    run = CliRunner()
    assert run.invoke(cli, ["alerts", "test", server.url]).output == "127.0.0.1/...: sent\n"
    file = tmp_path / "to"
    file.write_text(f"slack+{server.url}\n")
    assert run.invoke(cli, ["alerts", "test", f"@{file}"]).exit_code == 0
    assert [("blocks" in got) for got in server.got] == [False, True]
    server.answers = [(403, {}, b"action_prohibited")]
    for given_to_it in ([server.url], []):
        failed = run.invoke(cli, ["alerts", "test", *given_to_it])
        assert isinstance(failed.exception, BadRequest)
        assert "SECRET" not in str(failed.exception)
    assert isinstance(run.invoke(cli, ["alerts", "test", "@/no/file"]).exception, BadRequest)
    assert "heavy" not in run.invoke(cli, ["alerts", "test", "--help"]).output


def test_a_copy_has_the_same_channels_and_sends_nothing_twice(server: Server) -> None:
    server.answers = [(503, {"Retry-After": "0.1"}, b""), 200]
    post = Post([channel(server.url)])
    post.tell([event()], None)
    other = copy.deepcopy(post)
    assert repr(other) == repr(post)
    assert other.close(1)
    assert until(lambda: server.got)
    assert post.close(5)
    assert len(server.got) == 1


def test_this_machine_is_asked_without_a_proxy(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    deliver(channel(server.url), trial())
    assert len(server.got) == 1


def test_a_channel_is_data() -> None:
    one = Channel("json", f"https://a.example/{SECRET}", "a.example/...")
    assert "SECRET" not in f"{one!r} {one}"
    assert one == replace(one)
