"""The worst of servers and files: a secret repeated, a drip, a bomb, a broken quote; memory and time stay bounded."""

from __future__ import annotations

import base64
import json
import math
import os
import tarfile
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rlclinic.diagnose import diagnose
from rlclinic.errors import BadTable, CannotRead
from rlclinic.names.own import names_from
from rlclinic.readers import read
from rlclinic.readers.log import read_log
from rlclinic.readers.stores import remote, web
from rlclinic.readers.tabular import parquet, records
from rlclinic.report import render
from standin_wandb import KEY, serving

RUN = "0123456789abcdef" * 2
TOKEN = "tok/en-0123456789"


@pytest.fixture(autouse=True)
def _no_accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith(("WANDB_", "MLFLOW_")) or n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb"))


class _Quiet(BaseHTTPRequestHandler):
    def send(self, told: object) -> None:
        body = told if isinstance(told, bytes) else json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class _EchoingWandb(_Quiet):
    """Repeats the key in every field, plainly and, as ``spelled`` has it, with escapes."""

    escaped = False

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = base64.b64decode(self.headers["Authorization"].split()[1]).decode()
        if "history(" in asked["query"]:
            rows = [json.dumps({"_step": k, "loss": 0.1, "reward": 0.1 * k, key: 1.0}) for k in range(30)]
            told: object = {"history": rows}
        elif "query Runs(" in asked["query"]:
            nodes = [{"name": "a", "displayName": key}, {"name": f"b{key}", "displayName": "B"}]
            self.answer({"runs": {"edges": [{"node": node} for node in nodes]}}, key)
            return
        elif asked["variables"]["name"] == "none":
            told = None
        else:
            config = {"learning_rate": {"value": 1e-6}, "model_name": {"value": key}, key: {"value": [key]}}
            told = {
                "name": "a",
                "displayName": key,
                "state": f"crashed {key}",
                "config": json.dumps(config),
                "historyKeys": json.dumps({"lastStep": 29}),
                "historyLineCount": 30,
            }
        self.answer({"run": told}, key)

    def answer(self, project: object, key: str) -> None:
        text = json.dumps({"data": {"project": project}})
        if self.escaped:
            text = text.replace(KEY, f"\\u00{ord(KEY[0]):x}{KEY[1:]}")
        self.send(text.encode())


class _EchoingMlflow(_Quiet):
    def do_GET(self) -> None:
        key = self.headers["Authorization"]
        if "runs/get" in self.path:
            metrics = [{"key": "loss"}, {"key": "reward"}, {"key": f"reward{key}"}]
            params = [{"key": "model_name", "value": key}, {"key": key, "value": "1"}]
            info = {"run_name": key, "status": f"FAILED {key}"}
            self.send({"run": {"info": info, "data": {"metrics": metrics, "params": params}}})
        else:
            self.send({"metrics": [{"value": 0.1, "step": k, "timestamp": k * 1000, "key": key} for k in range(30)]})

    def do_POST(self) -> None:
        key = self.headers["Authorization"]
        self.send({"experiments": [{"name": f"{key} {k}", "experiment_id": str(k)} for k in range(2)]})


def told(address: str) -> str:
    """All that is said of the run: the reports, and the run as it is read."""
    run = read([address])
    return "\n".join([repr(run), *(render(diagnose(run), form) for form in ("terminal", "json", "markdown"))])


@pytest.mark.parametrize("escaped", [False, True])
def test_a_key_that_wandb_repeats_is_not_shown(monkeypatch: pytest.MonkeyPatch, escaped: bool) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with serving(type("Handler", (_EchoingWandb,), {"escaped": escaped})) as base:
        monkeypatch.setenv("WANDB_BASE_URL", base)
        assert KEY not in told("wandb://e/p/a")
        log = remote.fetch("wandb://e/p/a")
        assert KEY not in repr((log.config, log.facts, log.series.keys(), log.ending))
        assert list(log.series["reward"].values) == [0.1 * k for k in range(30)]
        for address in ("wandb://e/p", "wandb://e/p/none"):
            with pytest.raises(CannotRead) as refused:
                remote.fetch(address)
            assert KEY not in str(refused.value)
            assert "***" in str(refused.value)


def test_a_token_that_mlflow_repeats_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    with serving(_EchoingMlflow) as base:
        place = f"mlflow://{base.partition('://')[2]}"
        assert TOKEN not in told(f"{place}/{RUN}")
        log = remote.fetch(f"{place}/{RUN}")
        assert TOKEN not in repr((log.config, log.facts, log.series.keys(), log.ending))
        with pytest.raises(CannotRead) as refused:
            remote.fetch(place)
        assert "***" in str(refused.value)
        assert TOKEN not in str(refused.value)


def test_a_password_of_digits_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler(_Quiet):
        def do_GET(self) -> None:
            if "runs/get" in self.path:
                data = {"metrics": [{"key": "reward"}], "params": [{"key": "learning_rate", "value": "0.1234"}]}
                self.send({"run": {"info": {"run_name": "1234"}, "data": data}})
            else:
                self.send({"metrics": [{"value": "0.1234", "step": k, "timestamp": 1234} for k in range(30)]})

    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "1234")
    with serving(Handler) as base:
        log = remote.fetch(f"mlflow://{base.partition('://')[2]}/{RUN}")
    assert set(log.series["reward"].values) == {0.1234}
    assert log.config == {"learning_rate": 0.1234}
    assert log.facts["run"] == "***"


def test_an_answer_of_more_values_than_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler(_Quiet):
        def do_GET(self) -> None:
            if "runs/get" in self.path:
                self.send({"run": {"info": {}, "data": {"metrics": [{"key": f"loss{k}"} for k in range(8)]}}})
            else:
                page = b'{"next_page_token":"%d","metrics":[' % time.time_ns()
                self.send(page + b",".join([b'{"step":1}'] * self.many) + b"]}")

        many = 300_000

    with serving(Handler) as base, pytest.raises(CannotRead, match="more values than were asked for"):
        remote.fetch(f"mlflow://{base.partition('://')[2]}/{RUN}")
    monkeypatch.setattr(remote, "MOST", 5_000)
    with serving(type("Few", (Handler,), {"many": 1_000})) as base, pytest.raises(CannotRead, match="more than 5000"):
        remote.fetch(f"mlflow://{base.partition('://')[2]}/{RUN}")


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX: y", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_a_server_that_drips_is_left(monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    class Handler(_Quiet):
        def do_GET(self) -> None:
            try:
                self.wfile.write(start)
                for _ in range(60):
                    self.wfile.write(b"y")
                    self.wfile.flush()
                    time.sleep(0.05)
            except OSError:
                self.close_connection = True

    monkeypatch.setattr(web, "ANSWER", 0.4)
    begun = time.monotonic()
    with serving(Handler) as base, pytest.raises(CannotRead, match="in time"):
        remote.fetch(f"mlflow://{base.partition('://')[2]}/{RUN}")
    assert time.monotonic() - begun < 3.0


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_of_a_tar_archive_is_bounded(tmp_path: Path, kind: bytes) -> None:
    def header(name: str, size: int, form: bytes) -> bytes:
        one = tarfile.TarInfo(name)
        one.size, one.type = size, form
        return one.tobuf(tarfile.USTAR_FORMAT)

    file = tmp_path / "run.tar"
    row = b'{"step": 1, "reward": 0.1, "loss": 0.2}\n' * 20
    for size, refused in ((64 << 20, True), (0, False)):
        with file.open("wb") as out:
            if size:
                out.write(header("x", size, kind) + b"a" * size)
            out.write(header("run/metrics.jsonl", len(row), tarfile.REGTYPE) + row.ljust(1024, b"\0") + bytes(1024))
        if refused:
            with pytest.raises(CannotRead, match="header of more than"):
                read([file])
        else:
            assert read([file]).columns


@pytest.mark.parametrize("key", ["{name}{path}{name}", "a/{n}/{n}", "{name}/x/{name}"])
def test_a_place_stands_once_in_a_key(key: str) -> None:
    with pytest.raises(BadTable, match="once in a key"):
        names_from({"metrics": {key: "reward.mean"}}, "my.toml")


# ---------------------------------------------------------------- JSON


def test_a_line_of_many_printed_records_takes_time_by_its_length() -> None:
    text = '{"step": 0, "reward": 0.5}\n' + "{'reward': 1.5} " * 60_000 + "\n"
    begun = time.process_time()
    log = read_log(None, text.encode(), "a.jsonl")
    assert log.rows == 60_001
    assert time.process_time() - begun < 8.0
    text = '{"step": 0, "reward": 0.5}\n{"a": ' + json.dumps("x" * 20_000) + ', "reward": 2.5} {"reward": nan}\n'
    assert read_log(None, text.encode(), "a.jsonl").rows == 3


@pytest.mark.parametrize("text", ['{"step":1,"loss":[%s]}', '[{"step":1,"loss":[%s]}]', '{"runs":{"a":[%s]}}'])
def test_objects_of_a_document_are_counted_before_they_are_built(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(records, "OBJECTS", 1_000)
    for held in ("{}", '{"a":1}', "[]"):
        whole = text % ",\n".join([held] * 1_001)
        with pytest.raises(CannotRead, match="objects or lists"):
            records.read_document(whole, "a.json")
    rows = "[" + ",".join(f'{{"step":{k},"reward":0.5}}' for k in range(1_500)) + "]"
    assert records.read_document(rows, "a.json").rows == 1_500
    assert records.read_document(f'{{"log_history":{rows}}}', "a.json").rows == 1_500


# ---------------------------------------------------------------- tables


def csv(text: str) -> tuple[dict[str, list[float]], str]:
    log = read_log(None, text.encode(), "a.csv")
    said = " ".join(one.says for one in log.warnings)
    return {name: [float(v) for v in one.values] for name, one in log.series.items()}, said


@pytest.mark.parametrize("at", [4, 700, 2_990, 2_998])
def test_a_quote_that_nothing_closes_costs_no_row(at: int) -> None:
    rows = []
    for k in range(1, 3_000):
        quote = '"' if k == at else ""
        rows.append(f"{k},{quote}{0.001 * k:.3f},0.5\n")
    series, said = csv("step,reward,loss\n" + "".join(rows))
    assert series["reward"] == [float(f"{0.001 * k:.3f}") for k in range(1, 3_000)]
    assert "quote that nothing closes" in said


def test_a_cell_of_several_lines_is_one_cell() -> None:
    rows = [f'{k},{0.001 * k:.3f},"a\n\nb, c\nd"\n' for k in range(1, 900)]
    series, said = csv("step,reward,text\n" + "".join(rows))
    assert len(series["reward"]) == 899
    assert "quote" not in said


def test_an_underscore_is_in_no_number() -> None:
    rows = [f"{k},{'1_0' if k in (5, 800) else 0.1},0.5\n" for k in range(1, 3_000)]
    series, said = csv("step,reward,loss\n" + "".join(rows))
    assert 10.0 not in series["reward"]
    assert "1_0" in said or len(series["reward"]) >= 2_997


def test_columns_of_one_name_are_said() -> None:
    series, said = csv("step,reward,loss,loss\n" + "".join(f"{k},0.1,0.2,0.3\n" for k in range(1, 30)))
    assert set(series["loss"]) == {0.3}
    assert "several columns are called loss" in said


def test_the_words_of_windows_for_what_is_not_finite() -> None:
    spelled = ("nan(ind)", "-nan(ind)", "1.#QNAN", "-1.#IND", "1.#INF", "-1.#INF")
    series, _ = csv("step,reward,loss\n" + "".join(f"{k},0.1,{word}\n" for k, word in enumerate((*spelled, "1", "2"))))
    assert [math.isnan(v) for v in series["loss"]] == [True] * 4 + [False] * 4
    assert series["loss"][4:6] == [math.inf, -math.inf]


def test_points_stand_between_thousands_where_commas_are_decimal() -> None:
    rows = [
        f"{k};{0.001 * k:.4f};{k:,}\n".replace(".", "!").replace(",", ".").replace("!", ",") for k in range(600, 2_900)
    ]
    series, _ = csv("step;reward;tokens_loss\n" + "".join(rows))
    assert series["tokens_loss"] == [float(k) for k in range(600, 2_900)]
    series, _ = csv("step;reward;loss\n" + "".join(f"{k};0.5;1.125\n" for k in range(30)))
    assert set(series["loss"]) == {1.125}
    series, _ = csv("step;reward;loss\n" + "".join(f"{k};0,5;{'1.125' if k else '0.25'}\n" for k in range(30)))
    assert set(series["loss"]) == {0.25, 1.125}


def test_rows_and_texts_of_parquet_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    count = 20_000
    columns = {
        "step": pa.array(range(count)),
        "reward": pa.array([0.5] * count),
        "note": pa.array(["x" * 1_000] * count),
    }
    pq.write_table(pa.table(columns).slice(0, 200), tmp_path / "text.parquet", compression="zstd")
    del columns["note"]
    pq.write_table(pa.table(columns), tmp_path / "long.parquet")
    with (tmp_path / "text.parquet").open("rb") as stream:
        assert parquet.read_parquet(stream, "text.parquet").rows == 200
    monkeypatch.setattr(parquet, "MOST_ROWS", 8_192)
    with (tmp_path / "long.parquet").open("rb") as stream:
        log = parquet.read_parquet(stream, "long.parquet")
    assert log.rows == 8_192
    assert any(one.code == "too_many_values" for one in log.warnings)
