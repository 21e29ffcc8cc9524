"""Runs behind an address: what is asked of a tracker's server, what is made of its answers, and what it never learns."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.errors import CannotRead
from rlclinic.readers import read
from rlclinic.readers.stores import web
from rlclinic.readers.stores.remote import FORMS, fetch, wandb_server
from rlclinic.report import render
from standin_wandb import KEY, Standin, Stored, serving, standin


@pytest.fixture(autouse=True)
def _no_accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, no settings and no proxy of the machine that runs the tests."""
    for name in [n for n in os.environ if n.startswith(("WANDB_", "MLFLOW_")) or n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb"))
    monkeypatch.setattr(web, "_sleep", lambda seconds: None)


def history(count: int = 2_300, seed: int = 3) -> list[dict[str, Any]]:
    """A TRL run as W&B keeps it: its own count of calls, a NaN, a table, and evaluations in rows of their own."""
    noise = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for k in range(count):
        row: dict[str, Any] = {
            "_step": k,
            "_timestamp": 1.7e9 + k,
            "train/global_step": k + 1,
            "train/reward": 0.2 + 0.0002 * k + noise.gauss(0, 0.02),
            "train/kl": math.nan if k == 7 else math.inf if k == 9 else 0.001 + abs(noise.gauss(0, 1e-3)),
            "train/completions/mean_length": 300 + noise.gauss(0, 9),
            "train/frac_reward_zero_std": 0.2,
            "train/grad_norm": 1 + abs(noise.gauss(0, 0.1)),
        }
        rows.append(row | ({"completions": {"_type": "table-file", "nrows": 8}} if k == 5 else {}))
    return rows


CONFIG = {"learning_rate": 1e-6, "num_generations": 8, "transformers_version": "4.57.1"}


@pytest.fixture(scope="module")
def table() -> list[dict[str, Any]]:
    return history()


@pytest.fixture
def server(table: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    with standin(Stored("abc123", table, "grpo first", CONFIG), Stored("def456", table[:40], "grpo second")) as held:
        monkeypatch.setenv("WANDB_BASE_URL", held.base)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        yield held


# ---------------------------------------------------------------- W&B


def test_every_row_of_a_run_is_read(server: Standin, table: list[dict[str, Any]]) -> None:
    log = fetch("wandb://lab/grpo/abc123")
    assert (log.path, log.format, log.rows) == ("wandb://lab/grpo/abc123", "wandb server", len(table))
    assert list(log.series["train/reward"].values) == [row["train/reward"] for row in table]
    kl = log.series["train/kl"].values
    assert (math.isnan(kl[7]), kl[9]) == (True, math.inf)
    assert log.nonfinite == "kept"
    assert log.config == CONFIG
    assert log.versions == {"transformers": "4.57.1"}
    assert log.facts == {"run": "grpo first", "status": "finished"}
    assert not any("nrows" in key for key in log.series)
    pages = [values for name, values in server.asked if name == "HistoryPage"]
    assert [(page["minStep"], page["maxStep"]) for page in pages] == [(0, 1000), (1000, 2000), (2000, 2300)]
    assert all(page["maxStep"] - page["minStep"] <= page["pageSize"] for page in pages)  # nothing to thin out
    assert set(server.keys) == {KEY}


def test_a_run_behind_an_address_is_diagnosed_like_its_file(
    server: Standin, table: list[dict[str, Any]], tmp_path: Path
) -> None:
    far = read(["wandb://lab/grpo/abc123"])
    file = tmp_path / "history.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in table))
    near = read([file])
    assert far.columns.keys() == near.columns.keys()
    for metric, column in far.columns.items():
        assert column.values.tobytes() == near.columns[metric].values.tobytes(), metric
        assert list(column.steps) == list(near.columns[metric].steps)
    assert far.framework is not None
    assert far.framework.name == "trl"
    assert far.knob("learning_rate") == 1e-6
    assert [source.path for source in far.sources] == ["wandb://lab/grpo/abc123"]
    assert "abc123" in far.name
    nans = next(f for f in diagnose(far).findings if f.check == "nan_inf")
    assert nans.severity is not None
    text = CliRunner().invoke(cli, ["diagnose", "wandb://lab/grpo/abc123"]).output
    assert "wandb://lab/grpo/abc123" in text
    assert KEY not in text + render(diagnose(far), "json")


def test_a_project_lists_its_runs(server: Standin) -> None:
    with pytest.raises(CannotRead) as told:
        fetch("wandb://lab/grpo")
    assert told.value.choices == ("abc123 (grpo first)", "def456 (grpo second)")
    assert "wandb://lab/grpo/abc123" in told.value.hint
    assert fetch("wandb://lab/grpo", "def456").rows == 40
    assert fetch("wandb://lab/grpo", "grpo second").rows == 40
    assert fetch("wandb://lab/grpo", "def").rows == 40
    assert fetch("wandb://lab/grpo/runs/def456").path == "wandb://lab/grpo/def456"
    assert fetch("wandb://lab/grpo/grpo%20second").path == "wandb://lab/grpo/def456"  # by the name that is shown
    assert read(["wandb://lab/grpo"], run="def456").sources[0].rows == 40
    with pytest.raises(CannotRead) as told:
        fetch("wandb://lab/grpo/zzz")
    assert told.value.choices == ("abc123 (grpo first)", "def456 (grpo second)")


def test_the_only_run_of_a_project_needs_no_name(monkeypatch: pytest.MonkeyPatch, table: list[dict[str, Any]]) -> None:
    with standin(Stored("only", table[:30])) as held:
        monkeypatch.setenv("WANDB_BASE_URL", held.base + "/")
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        assert fetch("wandb://lab/grpo").path == "wandb://lab/grpo/only"


def test_a_missing_or_wrong_key_says_which_variable_to_set(server: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "not-the-key-of-anyone")
    with pytest.raises(CannotRead, match="WANDB_API_KEY") as told:
        fetch("wandb://lab/grpo/abc123")
    assert "401" in str(told.value)
    assert "not-the-key" not in str(told.value)
    monkeypatch.delenv("WANDB_API_KEY")
    with pytest.raises(CannotRead, match="export WANDB_API_KEY"):
        fetch("wandb://lab/grpo/abc123")
    server.public = True
    assert fetch("wandb://lab/grpo/def456").rows == 40  # a public project needs none
    with pytest.raises(CannotRead, match="WANDB_API_KEY"):
        fetch("wandb://other/grpo/abc123")


def test_the_key_may_lie_in_netrc_for_this_host_only(
    server: Standin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    host = urlsplit(server.base).netloc
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine {host}\n  login user\n  password {KEY}\n")
    assert fetch("wandb://lab/grpo/def456").rows == 40
    for other in ("machine api.wandb.ai", "default"):
        server.keys.clear()
        netrc.write_text(f"{other}\n  login user\n  password {KEY}\n")
        with pytest.raises(CannotRead):
            fetch("wandb://lab/grpo/def456")
        assert set(server.keys) == {""}
    netrc.write_text("machine\n\x00 broken")
    with pytest.raises(CannotRead, match="WANDB_API_KEY"):
        fetch("wandb://lab/grpo/def456")


def test_the_server_of_wandb_login_is_asked(server: Standin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WANDB_BASE_URL")
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text(f"[default]\nbase_url = {server.base}\n")
    assert fetch("wandb://lab/grpo/def456").rows == 40
    monkeypatch.setenv("WANDB_BASE_URL", "file:///etc")
    with pytest.raises(CannotRead, match="WANDB_BASE_URL"):
        fetch("wandb://lab/grpo/def456")


def test_w_and_b_s_own_server_has_two_names(tmp_path: Path) -> None:
    for machine, known in (("api.wandb.ai", True), ("api.forge.coreweave.com", True), ("example.com", False)):
        (tmp_path / "netrc").write_text(f"machine {machine}\n  login user\n  password {KEY}\n")
        server, keyed = wandb_server()
        assert (server.host, keyed) == ("api.wandb.ai", known)


def test_a_busy_server_is_asked_again_a_few_times(server: Standin) -> None:
    server.trouble = [(429, {"Retry-After": "7"}, b""), (503, {}, b""), (500, {}, b"<html>")]
    assert fetch("wandb://lab/grpo/def456").rows == 40
    server.trouble = [(429, {}, b"")] * 50
    with pytest.raises(CannotRead, match="too often"):
        fetch("wandb://lab/grpo/def456")
    assert len(server.trouble) == 50 - web.RETRIES - 1


def test_the_waits_are_bounded(server: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(web, "_sleep", waited.append)
    server.trouble = [(429, {"Retry-After": "99999"}, b""), (429, {"Retry-After": "-4"}, b""), (429, {}, b"")]
    fetch("wandb://lab/grpo/def456")
    assert waited == [web.LONGEST_WAIT, 1.0, 2.0]


def test_no_key_goes_to_another_host(server: Standin, table: list[dict[str, Any]]) -> None:
    with standin(Stored("abc123", table[:30])) as other:
        for status in (301, 302, 303, 307, 308):
            server.trouble = [(status, {"Location": f"{other.base}/graphql"}, b"")]
            with pytest.raises(CannotRead, match="sends on to another place"):
                fetch("wandb://lab/grpo/abc123")
        assert other.asked == []


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"<html>", b"null", b'{"data": 3}', b'{"data": {"project": {"run": 3}}}', b"[" * 100_000, b'{"data":'],
)
def test_any_answer_is_an_error_and_no_accident(server: Standin, body: bytes) -> None:
    server.trouble = [(200, {}, body)] * 9
    with pytest.raises(CannotRead):
        fetch("wandb://lab/grpo/abc123")


def test_a_server_s_words_never_repeat_the_key(server: Standin) -> None:
    for status in (200, 401, 400):
        server.trouble = [(status, {}, json.dumps({"errors": [{"message": f"key {KEY} \x1b[31mfailed"}]}).encode())]
        with pytest.raises(CannotRead) as told:
            fetch("wandb://lab/grpo/abc123")
        assert KEY not in str(told.value)
        assert "\x1b" not in str(told.value)


def test_answers_are_bounded(server: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PAGE", 1_000)
    with pytest.raises(CannotRead, match="bounded"):
        fetch("wandb://lab/grpo/abc123")
    monkeypatch.setattr(web, "PAGE", 64 << 20)
    monkeypatch.setattr(web, "TOTAL", 300_000)
    with pytest.raises(CannotRead, match="bounded"):
        fetch("wandb://lab/grpo/abc123")


def test_a_silent_server_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "TIMEOUT", 0.2)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(CannotRead, match="silent"):
            fetch("wandb://lab/grpo/abc123")
        port = listening.getsockname()[1]
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(CannotRead, match="refused"):
        fetch("wandb://lab/grpo/abc123")


def test_rows_that_the_server_keeps_back_are_said(server: Standin) -> None:
    assert not fetch("wandb://lab/grpo/abc123").warnings
    server.most = 100
    said = [warn.says for warn in fetch("wandb://lab/grpo/abc123").warnings if warn.code == "downsampled"]
    assert said == ["the server holds 2300 rows and gave 300: single values may be missing"]


def test_steps_far_apart_are_asked_for_in_wide_windows(
    monkeypatch: pytest.MonkeyPatch, table: list[dict[str, Any]]
) -> None:
    sparse = [{**row, "_step": 40_000 * k} for k, row in enumerate(table[:200])]
    with standin(Stored("sparse", sparse)) as held:
        monkeypatch.setenv("WANDB_BASE_URL", held.base)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setattr("rlclinic.readers.stores.remote.WINDOWS", 20)
        assert fetch("wandb://lab/grpo/sparse").rows == 200
        assert len(held.asked) <= 22


@pytest.mark.libraries
def test_w_and_b_s_own_client_reads_the_same_from_the_same_server(
    server: Standin, table: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The stand-in speaks what the real client speaks, and both ask for the history in the same words."""
    pytest.importorskip("wandb")
    code = (
        "import json, wandb\n"
        "run = wandb.Api(timeout=20).run('lab/grpo/abc123')\n"
        "print(json.dumps([dict(run.config), list(run.scan_history())]))\n"
    )
    environment = {
        **os.environ,
        **{f"WANDB_{part}_DIR": str(tmp_path / part) for part in ("CACHE", "CONFIG", "DATA")},
        "WANDB_DIR": str(tmp_path),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    config, theirs = json.loads(done.stdout.splitlines()[-1])
    asked = [query for query in server.queries if "history(" in query]
    server.queries.clear()
    log = fetch("wandb://lab/grpo/abc123")
    assert config == log.config
    assert len(theirs) == log.rows
    assert [row["train/reward"] for row in theirs] == list(log.series["train/reward"].values)
    ours = [query for query in server.queries if "history(" in query]
    field = re.compile(r"history\([^)]*\)")
    assert field.findall(asked[0]) == field.findall(ours[0]) != []


FIELDS = [
    *("data", "project", "run", "runs", "edges", "node", "name", "history", "historyKeys", "lastStep", "config"),
    *("errors", "message", "info", "metrics", "key", "value", "step", "params", "run_id", "experiments"),
]
ANSWERS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["NaN", "{}", "[]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from(["data", "run", "errors", "metrics"]), ANSWERS), min_size=1))
def test_no_answer_of_a_server_is_an_accident(monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, Any]]) -> None:
    told = itertools.cycle(answers)
    monkeypatch.setattr(web.Server, "post", lambda self, path, body: next(told))
    monkeypatch.setattr(web.Server, "get", lambda self, path, values: next(told))
    monkeypatch.setattr("rlclinic.readers.stores.remote.WINDOWS", 5)
    for address in ("wandb://a/b/c", "wandb://a/b", f"mlflow://h/{RUN}", "mlflow://h/e/r", "mlflow://h"):
        with pytest.raises(CannotRead):
            fetch(address)


CELLS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["NaN", "x", [], {"_type": 3}, 10**400])
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["", "_", "_step", "train/global_step", "train/reward", "a/_type", "é"]), CELLS
        ),
        max_size=5,
    )
)
def test_no_row_of_a_history_is_an_accident(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> None:
    run = {"name": "c", "config": "{}", "historyKeys": {"lastStep": 3}, "history": [*map(json.dumps, rows), "[1", 7]}
    monkeypatch.setattr(web.Server, "post", lambda self, path, body: {"data": {"project": {"run": run}}})
    try:
        log = fetch("wandb://a/b/c")
    except CannotRead:
        sound = [row for row in rows if set(row) == {"train/reward"} and isinstance(row["train/reward"], float)]
        assert len(sound) < len(rows) or not rows
        return
    assert {warn.code for warn in log.warnings} >= {"broken_lines"}


def test_pieces_of_a_step_are_put_together_as_those_of_a_run_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL logs every timing in a row of its own, the first ones before there is a step."""
    rows: list[dict[str, Any]] = []
    for k in range(1, 21):
        rows += [{"profiling/a": 0.5, "train/global_step": k - 1}, {"profiling/b": 0.1, "train/global_step": k - 1}]
        rows += [{"train/reward": 0.01 * k, "train/loss": 0.1, "train/global_step": k}]
    with standin(Stored("c", [{"_step": step, **row} for step, row in enumerate(rows)])) as held:
        monkeypatch.setenv("WANDB_BASE_URL", held.base)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        log = fetch("wandb://lab/grpo/c")
    assert log.rows == 20
    assert list(log.steps) == list(range(1, 21))


# ---------------------------------------------------------------- other addresses


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3://bucket/run", "aws s3 cp --recursive s3://bucket/run run/"),
        ("gs://bucket/run", "gcloud storage cp -r gs://bucket/run run/"),
        ("hf://lab/model", "hf download lab/model --local-dir run"),
        ("hf://datasets/lab/logs/file.csv", "hf download lab/logs --repo-type dataset"),
        ("ssh://me@host/runs/1", "scp -r me@host:runs/1 run/"),
        ("s3://bucket/$(x);", "'s3://bucket/$(x);'"),
        ("https://wandb.ai/lab/grpo/runs/abc123?nw=me", "diagnose wandb://lab/grpo/abc123"),
        ("https://forge.coreweave.com/wandb/lab/grpo/runs/abc123/overview", "diagnose wandb://lab/grpo/abc123"),
        ("http://host:5000/#/experiments/1/runs/" + "a" * 32, "diagnose mlflow+http://host:5000/" + "a" * 32),
        ("https://host/log.jsonl", "curl"),
        ("file:///tmp/run", "rlclinic diagnose /tmp/run"),
        ("nonsense://x", "wandb://ENTITY/PROJECT/RUN"),
        ("wandb://lab", "wandb://ENTITY/PROJECT/RUN"),
        ("wandb://a/b/c/d/e", "wandb://ENTITY/PROJECT/RUN"),
        ("mlflow://", "mlflow"),
        ("mlflow://host/a/b/c/d", "RUN_ID"),
        ("wandb://lab/grpo/a b", "spaces"),
        ("mlflow://host/\x1b[31m", "control"),
        ("mlflow://[::1/1", "IPv6"),
        ("mlflow://host:port/1", "port"),
        ("mlflow://" + "h" * 300 + "/1", "MLflow"),
    ],
)
def test_an_address_that_is_not_read_says_what_to_do(address: str, words: str) -> None:
    with pytest.raises(CannotRead) as told:
        fetch(address)
    assert words in str(told.value).replace("\n", " ")
    with pytest.raises(CannotRead) as again:
        read([address])
    assert str(again.value) == str(told.value)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    for address in ("mlflow://user:hunter2@host/1", "wandb://k:hunter2@lab/grpo/a", "https://a:hunter2@h/x"):
        with pytest.raises(CannotRead) as told:
            fetch(address)
        assert "hunter2" not in str(told.value)
    shown = CliRunner().invoke(cli, ["diagnose", "mlflow://user:hunter2@host/1"])
    assert "hunter2" not in str(shown.exception)


# ---------------------------------------------------------------- MLflow, a stand-in


RUN = "0123456789abcdef0123456789abcdef"


class _MLflow(BaseHTTPRequestHandler):
    """The five questions that are asked of MLflow's server, pages of three values, an inf as its SQL store keeps it."""

    series: dict[str, list[Any]]
    seen: list[tuple[str, str]]

    def do_GET(self) -> None:
        place, values = urlsplit(self.path).path, {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
        self.seen.append((place.rpartition("/")[2], self.headers.get("Authorization", "")))
        if self.headers.get("Authorization", "") == "Bearer wrong-token":
            return self._send(403, {"error_code": "PERMISSION_DENIED", "message": "no wrong-token here"})
        if place == "/base/api/2.0/mlflow/runs/get" and values.get("run_id") == RUN:
            metrics = [{"key": key, "value": 0, "step": 0, "timestamp": 0} for key in [*self.series, "system/cpu"]]
            info = {"run_id": RUN, "run_name": "first", "status": "FAILED", "experiment_id": "7"}
            params = [{"key": "actor_rollout_ref.rollout.n", "value": "8"}, {"key": "flag", "value": "True"}]
            return self._send(200, {"run": {"info": info, "data": {"metrics": metrics, "params": params}}})
        if place == "/base/api/2.0/mlflow/metrics/get-history" and values["metric_key"] in self.series:
            first = int(values.get("page_token", 0))
            held = self.series[values["metric_key"]]
            rows = [{"key": "k", "value": v, "step": s, "timestamp": 1000 * s} for s, v in enumerate(held)]
            more = {"next_page_token": str(first + 3)} if first + 3 < len(rows) else {}
            return self._send(200, {"metrics": rows[first : first + 3], **more})
        return self._send(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "not found here"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("experiments/search"):
            return self._send(
                200,
                {"experiments": [{"experiment_id": "7", "name": "maze"}, {"experiment_id": "0", "name": "Default"}]},
            )
        runs = [{"info": {"run_id": RUN, "run_name": "first"}}, {"info": {"run_id": "f" * 32, "run_name": "second"}}]
        return self._send(200, {"runs": runs if body["experiment_ids"] == ["7"] else []})

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its own."""


@pytest.fixture
def tracker() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    big = 1.7976931348623157e308
    series = {
        "critic/score/mean": [0.1 * k for k in range(8)],
        "actor/entropy": [1.0, "NaN", big, -big, 0.5, 0.4, 0.3, 0.2],
        "val-core/gsm8k/acc/mean_at_8": [0.5] * 4,
    }
    seen: list[tuple[str, str]] = []
    with serving(type("Handler", (_MLflow,), {"series": series, "seen": seen})) as base:
        yield base.replace("http://", "mlflow://") + "/base", seen


def test_every_value_of_an_mlflow_run_is_read(tracker: tuple[str, list[tuple[str, str]]]) -> None:
    place, seen = tracker
    log = fetch(f"{place}/{RUN}")
    assert (log.path, log.format, log.nonfinite) == (f"{place}/{RUN}", "mlflow server", "kept")
    assert list(log.series["critic/score/mean"].values) == pytest.approx([0.1 * k for k in range(8)])
    entropy = log.series["actor/entropy"].values
    assert math.isnan(entropy[1])
    assert list(entropy[2:5]) == [math.inf, -math.inf, 0.5]
    assert "val-core/gsm8k/acc/mean@8" in log.series
    assert log.config == {"actor_rollout_ref.rollout.n": 8, "flag": True}
    assert log.ending
    assert not any("system/cpu" in key for key in log.series)
    assert {authorization for _, authorization in seen} == {""}
    assert read([f"{place}/{RUN}"]).columns["reward.mean"].key == "critic/score/mean"


def test_an_mlflow_run_by_its_name(tracker: tuple[str, list[tuple[str, str]]]) -> None:
    place, _ = tracker
    assert fetch(f"{place}/{RUN}").rows == 8
    root = place.removesuffix("/base")
    for asked in (f"{root}/maze", f"{root}/maze/first"):  # the stand-in answers below /base only
        with pytest.raises(CannotRead):
            fetch(asked)


def test_mlflow_s_own_variables_are_used_and_never_shown(
    tracker: tuple[str, list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, seen = tracker
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "wrong-token")
    with pytest.raises(CannotRead, match="MLFLOW_TRACKING_TOKEN") as told:
        fetch(f"{place}/{RUN}")
    assert "wrong-token" not in str(told.value)
    assert "403" in str(told.value)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "right-token")
    fetch(f"{place}/{RUN}")
    assert seen[-1][1] == "Bearer right-token"
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    fetch(f"{place}/{RUN}")
    assert seen[-1][1] == web.basic("me", "secret")


def test_a_run_that_is_not_there_lists_the_experiments(tracker: tuple[str, list[tuple[str, str]]]) -> None:
    place, _ = tracker
    with pytest.raises(CannotRead) as told:
        fetch(f"{place}/{'e' * 32}")
    assert told.value.choices == ("Default", "maze")
    assert "not found here" in str(told.value)


# ---------------------------------------------------------------- MLflow, the real server


@pytest.mark.libraries
def test_a_real_mlflow_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("_MLFLOW_SERVER_FILE_STORE", f"sqlite:///{tmp_path / 'm.db'}")
    monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", str(tmp_path))
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    serve, application = importlib.import_module("werkzeug.serving"), importlib.import_module("mlflow.server").app
    server = serve.make_server("127.0.0.1", 0, application, threaded=True)
    port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        client = mlflow.MlflowClient(f"http://127.0.0.1:{port}")
        experiment = client.create_experiment("maze")
        run = client.create_run(experiment, run_name="first")
        values = [0.5, math.nan, math.inf, -math.inf, 0.25]
        entities = mlflow.entities
        client.log_batch(
            run.info.run_id,
            metrics=[
                entities.Metric(key, value, 1000 + step, step)
                for step, value in enumerate(values)
                for key in ("actor/entropy", "critic/score/mean")
            ],
            params=[entities.Param("algorithm.kl_ctrl.kl_coef", "0.001")],
        )
        client.set_terminated(run.info.run_id, "KILLED")
        for address in (f"mlflow://127.0.0.1:{port}/{run.info.run_id}", f"mlflow://127.0.0.1:{port}/maze/first"):
            log = fetch(address)
            assert log.rows == 5
            got = log.series["actor/entropy"].values
            assert [repr(float(value)) for value in got] == [repr(value) for value in values]
            assert log.config == {"algorithm.kl_ctrl.kl_coef": 0.001}
            assert "killed" in log.ending
            assert log.path == f"mlflow://127.0.0.1:{port}/{run.info.run_id}"
        client.create_run(experiment, run_name="second")
        with pytest.raises(CannotRead) as told:
            fetch(f"mlflow://127.0.0.1:{port}/maze")
        assert set(told.value.choices) == {"first", "second"}
        with pytest.raises(CannotRead) as told:
            fetch(f"mlflow://127.0.0.1:{port}/{'0' * 32}")
        assert "maze" in told.value.choices
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_an_address_without_a_server_is_explained_before_the_network() -> None:
    with pytest.raises(CannotRead, match="without a run") as told:
        fetch("mlflow://abc")
    assert told.value.choices == FORMS


def test_an_unreachable_server_and_a_missing_key_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("NETRC", "/nonexistent")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(CannotRead, match="WANDB_API_KEY"):
        fetch("wandb://me/proj")
