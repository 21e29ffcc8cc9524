"""A real server of the live page on a free port, in a thread, and ways to ask it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlclinic.live import following
from rlclinic.live.following import Follower
from rlclinic.simulate import scenario, write

pytest.importorskip("starlette", reason="needs the extra: pip install 'rlclinic[serve]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'rlclinic[serve]'")

from rlclinic.live import serve


def rows(name: str, steps: int = 120, seed: int = 3) -> list[str]:
    """The lines of TRL's log of a simulated run."""
    return write(scenario(name, steps=steps, seed=seed), dialect="trl", form="jsonl").splitlines(keepends=True)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: str


@dataclass
class Served:
    """A server that runs; ``board`` is what it shows."""

    board: serve.Board
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(self, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
        """The whole answer; cookies are not kept and nothing is followed."""
        asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            asking.request(method, path, headers=headers or {})
            got = asking.getresponse()
            return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read().decode())
        finally:
            asking.close()

    def until_look(self, number: int, seconds: float = 20.0) -> None:
        """Wait until so many looks were taken."""
        end = time.monotonic() + seconds
        while self.board.page.look < number:
            assert time.monotonic() < end, f"no look {number}: {self.board.page.sight.problem}"
            time.sleep(0.02)


@contextmanager
def served(*paths: Path, token: str = "", hosts: Sequence[str] = serve.LOOPBACK, **given: Any) -> Iterator[Served]:
    """The page of the run in ``paths``, looked at every 50 ms where something was written."""
    share, following.SHARE = following.SHARE, 1.0  # a busy machine makes looks dear, and the next one late
    follower = Follower(paths, every=0.0)
    follower.wait = lambda: 0.05  # type: ignore[method-assign]
    board = serve.Board(follower, **given)
    listening = serve.bound("127.0.0.1", 0)
    server = serve.prepared(board, listening, token=token, hosts=hosts)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        end = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < end, "the server does not start"
            time.sleep(0.02)
        yield Served(board, int(listening.getsockname()[1]))
    finally:
        following.SHARE = share
        server.should_exit = True
        thread.join(10)
        listening.close()
    assert not thread.is_alive(), "the server does not stop"
