"""A server on this machine that answers what W&B's own client and ours ask of a W&B server about one run."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "0123456789abcdef0123456789abcdef01234567"
"""The one key that the server accepts (W&B's have 40 characters)."""


@dataclass
class Stored:
    """One run: history rows with ``_step``, configuration without wrappers, and how it is shown."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    title: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    state: str = "finished"
    tags: list[str] = field(default_factory=list)
    summary: str = ""
    """The summary as it was written, instead of the last row."""


@dataclass
class Standin:
    """What the server holds, what it was asked, and how it misbehaves (statuses to answer first, one a request)."""

    runs: dict[str, Stored]
    entity: str = "lab"
    project: str = "grpo"
    base: str = ""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    trouble: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    public: bool = False
    most: int = 10**9
    """Rows that one answer holds at most, whatever was asked for."""


def _as_server_writes(value: Any) -> Any:
    """JSON has no NaN: the server gives such numbers as text."""
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps({key: _as_server_writes(value) for key, value in row.items()})


def _sampled(rows: Sequence[Mapping[str, Any]], low: int, high: int, samples: int) -> list[str]:
    """Rows of [low, high), thinned to ``samples`` as a server does that is asked for fewer than it has."""
    held = [row for row in rows if low <= row["_step"] < high]
    if len(held) > samples:
        held = [held[k * len(held) // samples] for k in range(samples)]
    return [_line(row) for row in held]


def _run(run: Stored) -> dict[str, Any]:
    last = run.rows[-1] if run.rows else {"_step": -1}
    config = {key: {"desc": None, "value": value} for key, value in run.config.items()}
    return {
        "id": base64.b64encode(f"Run:v1:{run.name}".encode()).decode(),
        "projectId": "1",
        "name": run.name,
        "displayName": run.title or run.name,
        "state": run.state,
        "tags": list(run.tags),
        "config": json.dumps({**config, "_wandb": {"value": {"cli_version": "0.31.0"}}}),
        "summaryMetrics": run.summary or _line(last),
        "systemMetrics": "{}",
        "historyLineCount": len(run.rows),
        "historyKeys": {"sets": [], "keys": {}, "lastStep": last["_step"]},
        "createdAt": "2026-01-01T00:00:00Z",
        "heartbeatAt": "2026-01-01T00:00:00Z",
        "readOnly": True,
        "user": {"name": "lab", "username": "lab"},
        **dict.fromkeys(("sweepName", "group", "jobType", "commit", "description", "notes")),
    }


def _answer(held: Standin, query: str, values: dict[str, Any]) -> Any:
    """The ``data`` for one GraphQL request, by the fields that it asks for."""
    if "upsertBucket" in query:
        name = base64.b64decode(values["id"]).decode().removeprefix("Run:v1:")
        held.runs[name].tags, held.runs[name].summary = list(values["tags"]), values["summaryMetrics"]
        return {"upsertBucket": {"bucket": {"id": values["id"]}}}
    if "project(" not in query:
        viewer = {"id": "VXNlcjox", "entity": held.entity, "username": "lab", "flags": "{}", "admin": False}
        if "serverInfo" in query:
            return {"serverInfo": {"cliVersionInfo": {"max_cli_version": "1.0.0"}, "features": []}, "viewer": viewer}
        return {"viewer": {**viewer, "teams": {"edges": []}, "apiKeys": {"edges": []}}}
    if (values.get("entity"), values.get("project")) != (held.entity, held.project):
        return {"project": None}
    if re.search(r"\bruns\(", query):
        edges = [{"node": _run(run), "cursor": name} for name, run in held.runs.items()]
        page = {"endCursor": "", "hasNextPage": False}
        runs = {"edges": edges[: values.get("first") or values.get("perPage") or 50], "pageInfo": page}
        return {"project": {"internalId": "1", "runCount": len(edges), "readOnly": True, "runs": runs}}
    run = held.runs.get(values.get("name") or values.get("run") or values.get("runName") or "")
    if run is None:
        return {"project": {"run": None}}
    told = _run(run)
    if "history(" in query:
        low, high = int(values["minStep"]), int(values["maxStep"])
        told["history"] = _sampled(run.rows, low, high, min(int(values["pageSize"]), held.most))
    if "parquetHistory(" in query:
        told["parquetHistory"] = {"parquetUrls": [], "liveData": [json.loads(_line(row)) for row in run.rows]}
    return {"project": {"run": told}}


class _Handler(BaseHTTPRequestHandler):
    held: Standin

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        told = base64.b64decode(self.headers.get("Authorization", "Basic ").partition(" ")[2] or b"").decode()
        key = told.partition(":")[2]
        query = str(body.get("query", ""))
        name = re.search(r"(?:query|mutation)\s+(\w+)", query)
        held = self.held
        held.keys.append(key)
        held.queries.append(query)
        held.asked.append((name[1] if name else "", dict(body.get("variables") or {})))
        if held.trouble:
            self._send(*held.trouble.pop(0))
        elif key != KEY and not (held.public and not key):
            self._send(401, {}, b'{"errors":[{"message":"user is not logged in"}]}')
        else:
            data = _answer(held, query, dict(body.get("variables") or {}))
            self._send(200, {}, json.dumps({"data": data}).encode())

    def do_GET(self) -> None:
        self._send(404, {}, b"not found")

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its own."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on this machine that lives as long as the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def standin(*runs: Stored) -> Iterator[Standin]:
    """A W&B server with these runs in the project lab/grpo."""
    held = Standin({run.name: run for run in runs})
    with serving(type("Handler", (_Handler,), {"held": held})) as base:
        held.base = base
        yield held
