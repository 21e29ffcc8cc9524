"""The live page: what it answers and to whom, the events of a growing log, and the figures for Prometheus."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from live_pages import Served, rows, serve, served
from rlclinic import diagnose
from rlclinic.cli import cli
from rlclinic.errors import BadRequest, RlclinicError
from rlclinic.live.events import Event
from rlclinic.live.following import Look
from rlclinic.live.gate import Gate, chosen, loopback
from rlclinic.model import Column, Component, Run, Severity
from rlclinic.report import exposition as form
from rlclinic.report import render
from rlclinic.simulate import as_run, scenario

TOKEN = "0123456789abcdefTOKEN"
HOSTILE = '<script>alert(1)</script>"\\\n\u202e\x1b[31m{{7*7}}'


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    path.write_text("".join(rows("plain", 40)))
    return path


@pytest.fixture(scope="module")
def open_page(log: Path) -> Iterator[Served]:
    with served(log) as page:
        page.until_look(1)
        yield page


@pytest.fixture(scope="module")
def closed_page(log: Path) -> Iterator[Served]:
    with served(log, token=TOKEN) as page:
        page.until_look(1)
        yield page


# ------------------------------------------------------------------------------------------------- what is answered


def test_the_frame_holds_the_report_byte_for_byte(open_page: Served) -> None:
    diagnosis = open_page.board.page.sight.diagnosis
    assert diagnosis is not None
    assert open_page.ask("/report.html").body == render(diagnosis, "html")
    assert json.loads(open_page.ask("/report.json").body)["schema"] == "rlclinic.diagnosis/1"
    home = open_page.ask("/").body
    assert f'src="report.html?look={open_page.board.look}"' in home
    assert "live" in home


def test_every_place_says_what_it_is_and_keeps_nothing(open_page: Served) -> None:
    kinds = {
        "/": "text/html",
        "/report.html": "text/html",
        "/report.json": "application/json",
        "/metrics": "text/plain; version=0.0.4",
        "/healthz": "text/plain",
    }
    for path, kind in kinds.items():
        got = open_page.ask(path)
        assert got.status == 200
        assert got.headers["content-type"].startswith(kind)
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in got.headers
        assert open_page.ask(path, "HEAD").body == ""
    assert open_page.ask("/events", "HEAD").headers["content-type"].startswith("text/event-stream")


def test_only_what_is_ours_acts_on_the_page(open_page: Served) -> None:
    policy = open_page.ask("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\son[a-z]+=|style=|javascript:", open_page.ask("/").body.split("<script>")[0])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_nothing_but_reading(open_page: Served, method: str) -> None:
    assert open_page.ask("/", method).status == 405


@pytest.mark.parametrize(
    "path", ["/..", "/../metrics.jsonl", "/%2e%2e/etc/passwd", "//etc/passwd", "/static/x", "/metrics/", "/x" * 3000]
)
def test_no_path_of_the_disk_is_served(open_page: Served, path: str) -> None:
    got = open_page.ask(path)
    assert got.status in (404, 400)
    assert len(got.body) < 200


# ----------------------------------------------------------------------------------------------------- who may ask


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "", "[::2]"]
)
def test_a_foreign_name_of_this_machine_reads_nothing(open_page: Served, host: str) -> None:
    for path in ("/", "/metrics", "/report.json", "/healthz"):
        assert open_page.ask(path, headers={"Host": host}).status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:1", "[::1]:8642", "localhost."])
def test_its_own_names_do(open_page: Served, host: str) -> None:
    assert open_page.ask("/healthz", headers={"Host": host}).status == 200


def test_a_name_that_was_allowed(log: Path) -> None:
    with served(log, hosts=("localhost", "Box.example")) as page:
        assert page.ask("/healthz", headers={"Host": "box.example:80"}).status == 200
        assert page.ask("/healthz", headers={"Host": "127.0.0.1"}).status == 403


def test_without_the_token_nothing_of_the_run_is_told(closed_page: Served) -> None:
    for path in ("/", "/metrics", "/report.json", "/report.html", "/events", "/nowhere"):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN},
                        {"Cookie": f"rlclinic_{closed_page.port}=wrong"}, {"Cookie": f"rlclinic_1={TOKEN}"}):  # fmt: skip
            got = closed_page.ask(path, headers=headers)
            assert got.status == 401
            assert "reward" not in got.body
            assert "set-cookie" not in got.headers
    assert closed_page.ask("/?token=wrong").status == 401
    assert closed_page.ask("/?token=" + "\u00e9".encode().hex()).status == 401
    assert closed_page.ask("/?" + "token=x&" * 500).status == 401
    assert closed_page.ask("/healthz").body == "ok\n"


def test_with_it_everything_is(closed_page: Served) -> None:
    assert closed_page.ask("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200
    assert closed_page.ask("/", headers={"Authorization": f"bearer {TOKEN}", "Host": "node7:80"}).status == 200
    assert closed_page.ask("/", headers={"Cookie": f"a=b; rlclinic_{closed_page.port}={TOKEN}"}).status == 200


def test_a_token_in_the_address_becomes_a_cookie_and_leaves_it(closed_page: Served) -> None:
    got = closed_page.ask(f"/report.html?token={TOKEN}&look=3")
    assert got.status == 303
    assert got.headers["location"] == "./report.html?look=3"
    cookie = got.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert closed_page.ask("/", headers={"Cookie": cookie.partition(";")[0]}).status == 200
    assert closed_page.ask(f"//evil.example/?token={TOKEN}").headers["location"] == "./"
    clicked = closed_page.ask(f"/?token={TOKEN}", headers={"Sec-Fetch-Site": "cross-site"})
    assert 'content="0;url=./"' in clicked.body
    assert TOKEN not in clicked.body


def test_a_token_is_asked_for_where_others_reach_the_page() -> None:
    assert chosen(None, "127.0.0.1") == chosen(None, "localhost") == chosen(None, "::1") == ""
    made = {chosen(None, host) for host in ("0.0.0.0", "::", "192.168.1.7", "node7")}
    assert len(made) == 4
    assert all(len(token) >= 24 for token in made)
    assert chosen(TOKEN, "127.0.0.1") == TOKEN
    for bad in ("", "short", "with space 0123456789", "semicolon;0123456789", "\u00fc" * 20, "x" * 300):
        with pytest.raises(BadRequest):
            chosen(bad, "127.0.0.1")


@given(st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_no_text_is_taken_for_loopback_or_breaks_the_gate(text: str) -> None:
    if loopback(text):
        assert text.lower() == "localhost" or text.startswith(("127.", "::", "0:", "0"))
    raw = text.encode("utf-8", "replace")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def never(*_: Any) -> None:
        raise AssertionError("let through")

    headers = [(b"host", raw), (b"cookie", raw), (b"authorization", b"Bearer " + raw), (b"authorization", raw)]
    scope = {"type": "http", "method": "GET", "path": "/" + text, "query_string": b"token=" + raw, "headers": headers}
    asyncio.run(Gate(never, token=TOKEN)(scope, never, send))
    assert sent[0]["status"] == 401


# ------------------------------------------------------------------------------------------------ a log that grows


class Told:
    """One page that follows, event by event."""

    def __init__(self, port: int, last: str = "") -> None:
        self.asking = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.asking.request("GET", "/events", headers={"Last-Event-ID": last} if last else {})
        self.got = self.asking.getresponse()
        self.id = ""

    def line(self) -> str:
        return self.got.readline().decode().rstrip("\n")

    def next(self) -> dict[str, Any]:
        while True:
            line = self.line()
            if line.startswith("id: "):
                self.id = line[4:]
            if line.startswith("data: "):
                told: dict[str, Any] = json.loads(line[6:])
                return told


def test_a_page_is_told_when_the_log_grew(tmp_path: Path) -> None:
    path, lines = tmp_path / "log.jsonl", rows("plain", 60)
    path.write_text("".join(lines[:30]))
    told: list[Event] = []
    with served(path, tell=lambda events, diagnosis: told.extend(events)) as page:
        page.until_look(1)
        follows = Told(page.port)
        assert follows.line() == f"retry: {serve.RETRY}"
        first = follows.next()
        assert first["look"] == page.board.look
        assert first["state"] == "live"
        with path.open("a") as file:
            file.write("".join(lines[30:]))
        later = follows.next()
        while later["look"] == first["look"]:
            later = follows.next()
        assert later["step"] != first["step"]
        assert later["verdict"]
        again = Told(page.port, last=follows.id)  # it has seen this already
        again.line()
        again.line()
        assert again.line() == ": nothing new"
        other = Told(page.port, last="another-1")  # of a process before
        assert other.next()["look"] == later["look"]
    assert told == []


def test_an_illness_is_told_on_the_page_and_to_prometheus(tmp_path: Path) -> None:
    path, lines = tmp_path / "log.jsonl", rows("zero_variance_all_right", 200)
    path.write_text("".join(lines))
    told: list[Event] = []
    with served(path, tell=lambda events, diagnosis: told.extend(events)) as page:
        page.until_look(1)
        check = told[0].check
        assert any(
            check_line.startswith(f'rlclinic_finding{{check="{check}",')
            for check_line in page.ask("/metrics").body.splitlines()
        )
        assert Told(page.port).next()["events"]
        assert "events" in page.ask("/").body


def test_what_cannot_be_read_is_said_and_the_page_stays(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with served(path) as page:
        got = page.ask("/report.html")
        assert got.status == 503
        assert "frame-ancestors 'self'" in got.headers["content-security-policy"]  # else the frame looks crashed
        assert "rlclinic_look_failures_total 0" in page.ask("/metrics").body
        assert page.ask("/report.json").status == 503
        assert page.ask("/").status == 200
        assert "rlclinic_step" not in page.ask("/metrics").body
        path.write_text("".join(rows("plain", 20)))
        page.until_look(1)
        path.write_bytes(b"\x00\x01\x02")
        end = time.monotonic() + 10
        while not page.board.page.sight.problem and page.board.page.look < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert page.ask("/report.html").status == 200
        assert page.ask("/healthz").status == 200


def test_a_look_that_breaks_breaks_no_page(log: Path) -> None:
    with served(log) as page:
        page.until_look(1)

        def broken() -> None:
            raise RuntimeError(HOSTILE)

        page.board._follows.poll = broken  # type: ignore[assignment,method-assign]
        end = time.monotonic() + 10
        while "RuntimeError" not in page.board.page.sight.problem:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert page.ask("/healthz").status == 200
        assert "<script>alert" not in page.ask("/").body


def test_a_page_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "PATIENCE", 0.02)
    board = serve.Board(_Still())
    begun: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        begun.append(message)
        if len(begun) > 2:
            await asyncio.sleep(60)

    async def follow() -> None:
        await asyncio.wait_for(serve._Stream(board, "")({"type": "http", "method": "GET"}, receive, send), 5)

    asyncio.run(follow())
    assert board.bells == set()


def test_more_pages_than_it_can_serve_are_sent_away(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "CLIENTS", 2)
    with served(log) as page:
        pages = [Told(page.port) for _ in range(2)]
        assert [one.got.status for one in pages] == [200, 200]
        for one in pages:
            one.next()
        assert Told(page.port).got.status == 503


def test_what_a_process_that_died_did_not_tell_is_told_to_those_who_know_what_they_heard() -> None:
    diagnosis = diagnose(as_run(scenario("plain", steps=20)))
    lost = Event("opened", "kl_drift", Severity.WARNING, 3.0, "so", "so")
    heard: list[Any] = []

    class Restarted(_Still):
        def poll(self) -> Any:
            board._stop.set()
            return Look(diagnosis.run, diagnosis, (), left=(lost,))

    board = serve.Board(Restarted(), tell=lambda events, _: heard.extend(events))
    board._work()
    assert heard == [lost]
    assert board.page.events == ()  # the page has a past of its own


def test_a_state_that_cannot_be_kept_is_said_on_the_page() -> None:
    class Full(_Still):
        unsaved = "state.json: No space left on device"

        def poll(self) -> None:
            board._stop.set()

    board = serve.Board(Full())
    board._work()
    assert "cannot be kept" in serve.strip(board)["problem"]
    assert board.page.sight.failures == 0


class _Still:
    """Something to follow at which nothing ever happens."""

    problem, unsaved, failures, cost, state, last_row = "", "", 0, 0.0, "waiting", None
    open: dict[str, Severity] = {}  # noqa: RUF012

    def poll(self) -> None:
        return None

    def wait(self) -> float:
        return 0.05

    def told(self) -> None:
        return None

    def missing(self) -> list[str]:
        return []


# -------------------------------------------------------------------------------------------------------- hostile


def hostile_run() -> Run:
    run = as_run(scenario("plain", seed=1, steps=40), "trl")
    column = next(iter(run.columns.values()))
    part = Component(HOSTILE, replace(column, metric="reward.component.mean", key=HOSTILE))
    return replace(run, name=HOSTILE * 200, components={HOSTILE: part})


def test_hostile_words_stay_text_on_the_strip() -> None:
    board = serve.Board(_Still())
    event = Event("opened", "truncation", Severity.WARNING, 3.0, HOSTILE, HOSTILE * 500, run=HOSTILE)
    board.page = replace(board.page, sight=form.Sight(diagnose(hostile_run())), look=1, events=(event,) * 3, count=3)
    told = serve.strip(board)
    assert len(json.dumps(told)) < 3000
    assert not re.search("[\u202e\x1b\n]", told["run"] + "".join(one["says"] for one in told["events"]))
    page = serve._template().render(strip=told, id="1", style="", script="")
    assert "<script>alert" not in page
    assert "49" not in page.partition("<ol")[2]


# ------------------------------------------------------------------------------------------------------ Prometheus


def sight(run: Run, **changes: Any) -> form.Sight:
    known = form.Sight(diagnose(run), {"truncation": Severity.CRITICAL}, "live", 1.7e9, 1.7e9, 0.5, 3, 1)
    return replace(known, **changes)


def values(text: str) -> dict[str, str]:
    return dict(line.rpartition(" ")[::2] for line in text.splitlines() if not line.startswith("#"))


def test_figures_of_a_run() -> None:
    run = as_run(scenario("plain", seed=1, steps=40), "trl")
    got = values(form.exposition(sight(run)))
    assert got["rlclinic_step"] == "40"
    assert float(got['rlclinic_metric{metric="reward.mean"}']) == run["reward.mean"].values[-1]
    assert any(
        name.startswith('rlclinic_finding{check="truncation",severity="critical",status="stable",title="')
        for name in got
    )
    assert got['rlclinic_finding_severity{check="truncation"}'] == "3"
    assert got['rlclinic_finding_severity{check="nan_inf"}'] == "0"
    assert sum(float(value) for name, value in got.items() if name.startswith("rlclinic_run_state")) == 1
    assert sum(float(value) for name, value in got.items() if name.startswith("rlclinic_verdict")) == 1


def test_what_one_look_sees_is_not_yet_a_finding() -> None:
    run = as_run(scenario("zero_variance_all_right", seed=1, steps=200), "trl")
    got = values(form.exposition(sight(run, open={})))
    seen = {
        name: value for name, value in got.items() if name.startswith("rlclinic_finding_last_look") and value >= "2"
    }
    assert seen
    for name in seen:
        assert got[name.replace("_last_look", "")] == "0"
    assert not any(name.startswith("rlclinic_finding{") for name in got)


def test_what_is_not_finite_has_its_own_spelling() -> None:
    run = as_run(scenario("plain", seed=1, steps=30), "trl")
    known = diagnose(run)
    column = run["reward.mean"]
    for value, spelled in ((np.nan, "NaN"), (np.inf, "+Inf"), (-np.inf, "-Inf"), (-0.0, "0"), (1e300, "1e+300")):
        changed = replace(column, values=np.append(column.values[:-1], value))
        shown = replace(known, run=replace(run, columns={**run.columns, "reward.mean": changed}))
        got = values(form.exposition(form.Sight(shown)))
        assert got['rlclinic_metric{metric="reward.mean"}'] == spelled


def test_before_the_first_look_little_is_said() -> None:
    got = values(form.exposition(form.Sight()))
    assert got["rlclinic_looks_total"] == "0"
    assert not any("metric" in name or "finding" in name for name in got)


def test_a_log_of_odd_keys_makes_few_series() -> None:
    column = Column("reward.component.mean", "k", np.arange(3.0), np.ones(3))
    parts = {f"part{i}": Component(f"part{i}", column) for i in range(500)}
    parts |= {"x" * 4000 + str(i): Component("x" * 4000 + "y" * 90 + str(i) + "z" * 4000, column) for i in range(3)}
    run = Run(name=HOSTILE * 4000, columns={"reward.mean": replace(column, metric="reward.mean")}, components=parts)
    text = form.exposition(form.Sight(replace(diagnose(as_run(scenario("plain", seed=1, steps=20), "trl")), run=run)))
    assert len(text) < 40_000
    assert text.count("rlclinic_reward_part{") == 20
    assert len(values(text)) == len([line for line in text.splitlines() if not line.startswith("#")]), (
        "a series stands twice"
    )


_GRAMMAR = re.compile(
    r'(# HELP [a-z_]+ [^\n]*|# TYPE [a-z_]+ (gauge|counter)|[a-z_]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)+\})? '
    r"(NaN|[+-]Inf|-?[0-9.]+(e[+-]?[0-9]+)?))"
)


@given(st.text(max_size=60), st.floats())
@settings(max_examples=20, deadline=None)
def test_any_name_and_number_keeps_the_form(name: str, value: float) -> None:
    column = Column("reward.component.mean", "k", np.arange(2.0), np.array([0.0, value]))
    run = Run(name=name, columns={"reward.mean": column}, components={name: Component(name, column)})
    known = _KNOWN.setdefault("diagnosis", diagnose(as_run(scenario("plain", seed=1, steps=20), "trl")))
    text = form.exposition(form.Sight(replace(known, run=run)))
    assert text.endswith("\n")
    assert [line for line in text[:-1].split("\n") if not _GRAMMAR.fullmatch(line)] == []


_KNOWN: dict[str, Any] = {}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus")
def test_promtool_finds_nothing_wrong() -> None:
    for given_sight in (form.Sight(), sight(hostile_run())):
        text = form.exposition(given_sight)
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, timeout=30)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# -------------------------------------------------------------------------------------------------- the command line


def test_a_port_in_use_is_told_with_the_next_command(log: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadRequest, match="--port 0"):
            serve.bound("127.0.0.1", port)
    with pytest.raises(BadRequest):
        serve.bound("no such host \u202e", 0)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-"],
        ["x", "--port", "70000"],
        ["x", "--token", "short"],
        ["x", "--every", "nan"],
        ["x", "--limits", "/none"],
        ["x", "--framework", "tlr"],
        ["x", "--names", "/none"],
        ["x", "--alert", "ftp://x"],
    ],
)
def test_what_cannot_be_served_is_said(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("it was served")

    monkeypatch.setattr(serve, "run", started)
    result = CliRunner().invoke(cli, ["serve", *arguments, *(["--port", "0"] if "--port" not in arguments else [])])
    assert isinstance(result.exception, (RlclinicError, SystemExit))
    assert result.exit_code != 0


def test_a_file_of_the_users_is_not_taken_for_a_state(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(rows("plain", 20)))
    (tmp_path / "notes.txt").write_text("mine")
    for name in ("metrics.jsonl", "notes.txt"):
        command = ["serve", str(tmp_path / "metrics.jsonl"), "--port", "0", "--state", str(tmp_path / name)]
        assert "a new file for the state" in str(CliRunner().invoke(cli, command).exception)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "notes.txt"]


def test_a_log_that_is_not_there_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(serve, "run", lambda board, listening, **given: asked.append((listening.close(), given)))
    monkeypatch.setenv("RLCLINIC_TOKEN", TOKEN)
    result = CliRunner().invoke(cli, ["serve", str(tmp_path / "later.jsonl"), "--port", "0", "--allow-host", "box"])
    assert result.exit_code == 0
    assert "not there yet" in result.output
    assert TOKEN not in result.output
    assert "your token" in result.output
    assert asked[0][1]["token"] == TOKEN
    assert "box" in asked[0][1]["hosts"]


def test_without_the_extra_it_says_what_to_install(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "rlclinic.live.serve")
    monkeypatch.delattr("rlclinic.live.serve")
    refused = CliRunner().invoke(cli, ["serve", str(log)]).exception
    assert isinstance(refused, BadRequest)
    assert refused.hint == "pip install 'rlclinic[serve]'"


def test_addresses_are_as_a_browser_takes_them() -> None:
    assert serve.address("127.0.0.1", 80) == "http://127.0.0.1:80/"
    assert serve.address("::1", 80, "t") == "http://[::1]:80/?token=t"
    assert "0.0.0.0" not in serve.address("0.0.0.0", 80)
