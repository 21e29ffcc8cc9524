"""The command line under hostile, clumsy and ordinary use: one clear message or a report, never a traceback or a guess."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import random
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from rlclinic.__main__ import main
from rlclinic.checks import CHECKS
from rlclinic.simulate import scenario

ROOT = Path(__file__).resolve().parent.parent

FORBIDDEN = (
    {chr(c) for c in range(32)} - {"\n"}
    | {chr(c) for c in range(127, 160)}
    | set("\u200b\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
)
"""Characters that may move a cursor, change a colour or reorder a line; none may reach the reader of a report."""


# ------------------------------------------------------------------------------------------------- the caller


@dataclass(frozen=True)
class Answer:
    """What one call left behind, as a shell would see it."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        def refuse(word: str) -> None:
            raise AssertionError(f"bare {word} in JSON")

        return json.loads(self.out, parse_constant=refuse)


def call(*args: str | Path, stdin: bytes = b"", encoding: str = "utf-8") -> Answer:
    """One call through ``main`` in this process, standard output in ``encoding``; an exception that escapes gives exit
    code 1 and a traceback."""
    out, err = io.BytesIO(), io.BytesIO()
    kept = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["rlclinic", *map(str, args)]
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding=encoding, write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", write_through=True)
    streams = sys.stdout, sys.stderr
    code = 0
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", RuntimeWarning)
            main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except BaseException:
        code = 1
        print(traceback.format_exc(), file=sys.stderr)
    finally:
        for stream in streams:
            stream.flush()
        sys.argv, sys.stdin, sys.stdout, sys.stderr = kept
    told = "".join(f"{one.category.__name__}: {one.message}\n" for one in seen if one.category is RuntimeWarning)
    return Answer(code, out.getvalue().decode(encoding), err.getvalue().decode("utf-8") + told)


def diagnose(*args: str | Path, stdin: bytes = b"") -> Any:
    """The JSON form of a diagnosis that must succeed."""
    answer = call("diagnose", *args, "--format", "json", stdin=stdin)
    assert (answer.code, answer.err) == (0, "")
    return answer.json


def command(line: str, *, cwd: Path, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A real shell line in which ``rlclinic`` is this interpreter's."""
    home = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    made = {**os.environ, "PYTHONPATH": home, "PYTHONIOENCODING": "utf-8", **environment}
    line = f'rlclinic() {{ "{sys.executable}" -m rlclinic "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", line], cwd=cwd, input=stdin, env=made, capture_output=True, timeout=30)


def refused(answer: Answer, *words: str) -> None:
    """Exit 2 with one short message, nothing on standard output, no traceback and nothing a terminal would obey."""
    assert answer.code == 2, answer
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert "wanted" in answer.err or "Usage:" in answer.err
    assert len(answer.err) < 1500
    assert not FORBIDDEN & set(answer.err)
    for word in words:
        assert word in answer.err


# ------------------------------------------------------------------------------------------------- logs


Row = dict[str, Any]
Change = Callable[[int], Row]


def row(i: int, n: int = 200) -> Row:
    """One row of a healthy run as TRL writes it: the reward climbs, everything else wanders a little."""
    return {
        "loss": 0.01 * math.sin(i),
        "grad_norm": 0.3 + 0.05 * math.sin(i * 1.7),
        "learning_rate": 1e-6,
        "completions/mean_length": 200 + 5 * math.sin(i),
        "completions/clipped_ratio": 0.02,
        "reward": 0.2 + 0.5 * i / n + 0.03 * math.sin(i * 2.4),
        "reward_std": 0.3,
        "frac_reward_zero_std": 0.1 + 0.02 * math.sin(i * 3),
        "kl": 0.01 + 0.0001 * i,
        "entropy": 0.9 + 0.02 * math.sin(i * 1.1),
        "epoch": i / n,
        "step": i,
    }


def rows(change: Change = lambda i: {}, n: int = 200) -> list[Row]:
    return [row(i, n) | change(i) for i in range(1, n + 1)]


def without(many: Iterable[Row], *keys: str) -> list[Row]:
    return [{key: value for key, value in one.items() if key not in keys} for one in many]


def lines(many: Iterable[Row]) -> str:
    return "".join(json.dumps(one) + "\n" for one in many)


def table(many: list[Row], mark: str = ",", point: str = ".", quote: str = "") -> str:
    cells = [list(many[0]), *([str(v).replace(".", point) for v in one.values()] for one in many)]
    return "".join(mark.join(f"{quote}{cell}{quote}" for cell in line) + "\n" for line in cells)


def spoken(key: str, token: str, after: int = 100, n: int = 200) -> str:
    """JSON lines in which ``key`` is written as ``token``, as it stands, after a row."""
    text = lines(rows(lambda i: {key: "@"} if i > after else {}, n))
    return text.replace('"@"', token)


PASTE = "".join(
    str(
        {
            "loss": 0.0,
            "grad_norm": 0.5,
            "learning_rate": 1e-06,
            "reward": 0.3 + i / 100,
            "reward_std": 0.2,
            "completion_length": 120.5,
            "kl": 0.0005,
            "epoch": i / 100,
        }
    )
    + "\n"
    for i in range(1, 4)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one log of every ordinary kind."""
    top = tmp_path_factory.mktemp("logs")
    (top / "good.jsonl").write_text(lines(rows()))
    (top / "falling.jsonl").write_text(
        lines(rows(lambda i: {"reward": 0.9 - 0.5 * i / 200 + 0.03 * math.sin(i), "entropy": 0.3}))
    )
    (top / "evaluated.jsonl").write_text(
        lines(
            line
            for one in rows()
            for line in ([one, {"eval_reward": one["reward"], "step": one["step"]}] if one["step"] % 10 == 0 else [one])
        )
    )
    (top / "paste.txt").write_text(PASTE)
    (top / "verl.log").write_text(
        "".join(
            f"step:{i} - actor/entropy:0.{900 - i} - critic/score/mean:{0.2 + i / 500:.3f} - actor/grad_norm:0.{300 + i % 7}"
            f" - response_length/mean:512.25 - response_length/clip_ratio:0.010\n"
            for i in range(1, 201)
        )
    )
    (top / "sft.jsonl").write_text(
        lines(
            {"loss": 2 / (1 + i / 10), "grad_norm": 1.0, "learning_rate": 1e-5, "mean_token_accuracy": 0.5, "step": i}
            for i in range(1, 200)
        )
    )
    (top / "dpo.jsonl").write_text(
        lines(
            {
                "loss": 0.69 / (1 + i / 100),
                "learning_rate": 1e-5,
                "rewards/chosen": 0.01 * i,
                "rewards/rejected": -0.01 * i,
                "rewards/accuracies": 0.6,
                "rewards/margins": 0.02 * i,
                "logps/chosen": -100.0,
                "step": i,
            }
            for i in range(1, 200)
        )
    )
    (top / "crash.log").write_text(
        "INFO starting, torch==2.7.0 on NVIDIA A100\nTraceback (most recent call last):\n"
        '  File "t.py", line 3, in <module>\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried 2.00 GiB\x1b[31m\n'
    )
    (top / "rollouts.jsonl").write_text(
        lines({"step": i // 8, "prompt": "1+1?", "completion": "2", "reward": float(i % 2)} for i in range(400))
    )
    (top / "config.yaml").write_text("beta: 0.04\nnum_generations: 8\nlearning_rate: 1.0e-6\nepsilon: 0.2\n")
    (top / "nothing").write_bytes(b"")
    (top / "empty").mkdir()
    (top / "foreign").mkdir()
    (top / "foreign" / "notes.md").write_text("hello\n")
    return top


@pytest.fixture
def log(tmp_path: Path) -> Callable[[str | bytes | list[Row], str], Path]:
    """Writes a log and gives its path."""

    def write(content: str | bytes | list[Row], name: str = "log.jsonl") -> Path:
        path = tmp_path / name
        data = lines(content) if isinstance(content, list) else content
        path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
        return path

    return write


# ------------------------------------------------------------------------------------------------- nothing to read

NOISE = random.Random(0).randbytes(4000)

UNREADABLE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty file"),
    "only blank lines": (b"\n\n   \n", "empty file"),
    "only zero bytes": (b"\0" * 5000, "empty file"),
    "gzip of noise": (gzip.compress(NOISE), ""),
    "gzip cut": (gzip.compress(NOISE)[:400], ""),
    "sqlite": (b"SQLite format 3\0" + NOISE, "SQLite"),
    "parquet": (b"PAR1" + NOISE, "arquet"),
    "zip": (b"PK\x03\x04" + NOISE, "ZIP"),
    "png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + NOISE, ""),
    "noise": (NOISE, ""),
    "prose": (b"The quick brown fox, 1 of 2, jumped over the reward.\n" * 50, ""),
    "html": (b"<!doctype html><html><body><p>reward: 3</p></body></html>\n", ""),
    "a number": (b"3\n", ""),
    "a JSON string": (b'"reward"', ""),
    "JSON null": (b"null", ""),
    "numbers": (b"1\n2\n3\n", ""),
    "deep list": (b"[" * 20_000, ""),
    "deep object": (b'{"a":' * 100_000, ""),
    "deep object, closed": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n", ""),
    "trainer state without history": (b'{"log_history": [], "global_step": 0}', ""),
    "header only": (b"step,reward,kl\n", ""),
    "table without header": (table(rows()).split("\n", 1)[1].encode(), ""),
    "decimal commas between commas": (table(rows(), point=",").encode(), ""),
    "unknown keys": (lines({"foo": math.sin(i), "bar": i * 0.5} for i in range(100)).encode(), "100 JSON records"),
    "one long line": (b"x" * 9_000_000, ""),
    "open dictionary": (b"{'a': " * 100_000, ""),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_holds_no_run_is_refused_with_its_name(kind: str, log: Callable[..., Path]) -> None:
    content, word = UNREADABLE[kind]
    path = log(content, "input.dat")
    refused(call("diagnose", path), "input.dat", "try", word)
    refused(call("diagnose", "-", stdin=content), "try", word)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["missing.jsonl"], ["missing.jsonl", "does not exist"]),
        (["good.jsonl", "missing.jsonl"], ["missing.jsonl", "does not exist"]),
        (["nothing"], ["nothing", "empty"]),
        (["empty"], ["empty", "directory", "trainer_state.json"]),
        (["foreign"], ["foreign", "directory"]),
        (["/dev/null"], ["/dev/null", "empty"]),
        (["config.yaml"], ["no metrics"]),
        (["nothing", "empty"], []),
        (["--", "-x"], ["-x"]),
        ([], ["SOURCE"]),
        (["good.jsonl", "--config", "missing.yaml"], ["missing.yaml"]),
        (["good.jsonl", "--config", "nothing"], ["nothing", "no setting"]),
        (["good.jsonl", "--config", "good.jsonl"], ["good.jsonl"]),
        (["good.jsonl", "--config", "empty"], ["empty"]),
        (["good.jsonl", "--limits", "missing.toml"], ["missing.toml", "limits"]),
        (["good.jsonl", "--limits", "empty"], ["empty"]),
        (
            ["good.jsonl", "--only", "entropy_colapse"],
            ["entropy_colapse", "valid  entropy_collapse", "rlclinic checks"],
        ),
        (["good.jsonl", "--only", "kl_drift,zzz"], ["zzz", "and", "more", "rlclinic checks"]),
        (["good.jsonl", "--only", "\x1b[31m"], ["rlclinic checks"]),
        (["good.jsonl", "--framework", "nope"], ["nope", "trl", "verl"]),
        (["good.jsonl", "--framework", "trl@banana"], ["banana", "trl@"]),
        (["good.jsonl", "--framework", "@1.0"], ["trl"]),
        (["good.jsonl", "--framework", "\x1b[31m"], ["trl"]),
        (["good.jsonl", "--eval", "nope"], ["--eval nope"]),
        (["evaluated.jsonl", "--eval", "eval_rewrd"], ["eval_rewrd", "valid  eval_reward"]),
        (["good.jsonl", "--until", "0.5"], ["--until 0.5", "before the first step"]),
        (["good.jsonl", "--until", "-5"], ["--until -5"]),
        (["good.jsonl", "--until", "nan"], ["--until nan"]),
        (["good.jsonl", "--until", "soon"], ["soon"]),
        (["good.jsonl", "--format", "xml"], ["xml", "terminal", "json", "markdown"]),
        (["good.jsonl", "--fail-on", "never"], ["never", "critical"]),
        (["good.jsonl", "-o", "good.jsonl"], ["good.jsonl", "-o another name"]),
        (["good.jsonl", "-o", "nowhere/report.txt"], ["nowhere"]),
        (["good.jsonl", "-o", "empty"], ["empty"]),
    ],
    ids=" ".join,
)
def test_a_bad_request_is_one_message(
    args: list[str] | str, words: list[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    refused(call("diagnose", *args), *words)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("[entropy_colapse]\np_value = 1\n", "valid  entropy_collapse"),
        ("[entropy_collapse]\nnope = 1\n", "ratio"),
        ("[kl_drift.level]\nwarning = 1\n", "level"),
        ("[[[\n", "line 1"),
        ("entropy_collapse = 3\n", "[entropy_collapse]"),
        (NOISE, "limits"),
        ("[entropy_collapse]\np_value = 'x'\n", "p_value"),
        ("[entropy_collapse.ratio]\nwarning = 'x'\n", "ratio"),
        ("[entropy_collapse.ratio]\nterrible = 0.1\n", "ratio"),
        ("[entropy_collapse]\np_value = [1, 2]\n", "p_value"),
        pytest.param("[entropy_collapse]\np_value = nan\n", "p_value"),
        pytest.param("[entropy_collapse]\np_value = -3\n", "p_value"),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, str) else "bytes",
)
def test_limits_that_cannot_be_used_are_refused(
    content: str | bytes, word: str, log: Callable[..., Path], place: Path
) -> None:
    refused(call("diagnose", place / "good.jsonl", "--limits", log(content, "limits.toml")), word)


def test_an_unreadable_file_is_named(log: Callable[..., Path]) -> None:
    path = log(rows(), "secret.jsonl")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("permissions do not bind this user")
    refused(call("diagnose", path), "secret.jsonl", "ermission")


def test_limits_that_say_nothing_change_nothing(log: Callable[..., Path], place: Path) -> None:
    plain = call("diagnose", place / "good.jsonl")
    assert call("diagnose", place / "good.jsonl", "--limits", log("", "limits.toml")) == plain


@pytest.mark.parametrize("source", ["", "   "])
def test_an_empty_name_is_not_the_current_directory(
    source: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics.jsonl").write_bytes((place / "good.jsonl").read_bytes())
    monkeypatch.chdir(tmp_path)
    refused(call("diagnose", source))


@pytest.mark.parametrize(
    "args",
    [["a\x1b[31mb\u202ec"], ["good.jsonl", "--eval", "a\x1b[31mb"], ["good.jsonl", "--config", "a\x1b[31mb\x07"]],
    ids=["source", "eval", "config"],
)
def test_messages_do_not_repeat_control_characters(
    args: list[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    refused(call("diagnose", *args))


# ------------------------------------------------------------------------------------------------- forms of one log


def halves(text: str) -> bytes:
    return text.encode("utf-16-le")


FORMS: dict[str, tuple[bytes, str]] = {
    "plain": (lines(rows()).encode(), "a.jsonl"),
    "utf-8 with BOM": (lines(rows()).encode("utf-8-sig"), "a.jsonl"),
    "utf-16 with BOM": (lines(rows()).encode("utf-16"), "a.jsonl"),
    "utf-16-le without BOM": (lines(rows()).encode("utf-16-le"), "a.jsonl"),
    "utf-16-be without BOM": (lines(rows()).encode("utf-16-be"), "a.jsonl"),
    "CRLF": (lines(rows()).replace("\n", "\r\n").encode(), "a.jsonl"),
    "no last newline": (lines(rows()).rstrip().encode(), "a.jsonl"),
    "blank lines between": (lines(rows()).replace("\n", "\n\n").encode(), "a.jsonl"),
    "steps as strings": (lines(rows(lambda i: {"step": str(i)})).encode(), "a.jsonl"),
    "null steps": (lines(rows(lambda i: {"step": None})).encode(), "a.jsonl"),
    "no steps": (lines(without(rows(), "step", "epoch")).encode(), "a.jsonl"),
    "other name": (lines(rows()).encode(), "a.txt"),
    "array": (json.dumps(rows()).encode(), "a.json"),
    "trainer state": (json.dumps({"log_history": rows(), "max_steps": 200}, indent=2).encode(), "a.json"),
    "csv": (table(rows()).encode(), "a.csv"),
    "csv with semicolons": (table(rows(), ";").encode(), "a.csv"),
    "csv with semicolons and decimal commas": (table(rows(), ";", ",").encode(), "a.csv"),
    "csv quoted": (table(rows(), quote='"').encode(), "a.csv"),
    "csv with decimal commas, quoted": (table(rows(), ",", ",", '"').encode(), "a.csv"),
    "csv with an unclosed quote": ((table(rows()) + '"open,1,2\n3,4\n').encode(), "a.csv"),
    "tabs": (table(rows(), "\t").encode(), "a.tsv"),
    "python dictionaries": ("".join(f"{one}\n" for one in rows()).encode(), "a.log"),
    "coloured dictionaries": ("".join(f"\x1b[32m{one}\x1b[0m\n" for one in rows()).encode(), "a.log"),
    "foreign bytes in a value": (
        lines(rows(lambda i: {"note": "@"})).encode().replace(b"@", b"\xff\xfe\x80"),
        "a.jsonl",
    ),
    "latin-1": (lines(rows(lambda i: {"note": "@"})).encode().replace(b"@", "é".encode("latin-1")), "a.jsonl"),
    "joined without newlines": (lines(rows()).replace("\n", "").encode(), "a.jsonl"),
    "carriage returns only": (lines(rows()).replace("\n", "\r").encode(), "a.jsonl"),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_log_does_not_change_what_it_says(form: str, log: Callable[..., Path]) -> None:
    content, name = FORMS[form]
    seen = diagnose(log(content, name))
    assert seen["run"]["steps"] == {"first": 1, "last": 200, "count": 200}
    reward = seen["run"]["metrics"]["reward.mean"]
    assert reward["points"] == 200
    assert reward["last"] == pytest.approx(row(200)["reward"], abs=1e-3)
    assert seen["verdict"] == diagnose("-", stdin=lines(rows()).encode())["verdict"]


def test_a_cut_last_line_costs_at_most_that_line(log: Callable[..., Path]) -> None:
    text = lines(rows())
    for cut in (1, 10, 37, 150):
        seen = diagnose(log(text[:-cut]))
        assert seen["run"]["steps"]["count"] >= 199
        assert seen["run"]["metrics"]["reward.mean"]["last"] in (row(200)["reward"], row(199)["reward"])


@pytest.mark.parametrize("end", ["reward", "kl", "completion_length", "grad_norm"])
def test_a_paste_cut_inside_a_number_invents_nothing(end: str) -> None:
    at = PASTE.rindex(f"'{end}': ") + len(end) + 4
    for more in (1, 2, 3):
        seen = diagnose("-", stdin=PASTE[: at + more].encode())
        for metric in seen["run"]["metrics"].values():
            assert all(metric["key"] not in ("kl",) or value == 0.0005 for value in (metric["min"], metric["max"]))
            assert metric["key"] != "completion_length" or metric["last"] == 120.5
            assert metric["key"] != "grad_norm" or metric["last"] == 0.5
            assert metric["key"] != "reward" or metric["min"] >= 0.31


def test_a_verl_line_cut_inside_a_number_invents_nothing(place: Path) -> None:
    text = "".join((place / "verl.log").read_text().splitlines(True)[:3])
    at = text.rindex("512.25")
    for more in (1, 2, 3, 4, 5):
        seen = diagnose("-", stdin=text[: at + more].encode())
        assert seen["run"]["metrics"]["length.response.mean"]["min"] == 512.25
        assert "cut_text" in [one["code"] for one in seen["run"]["warnings"]]


def test_three_pasted_lines_are_answered_at_once_with_reassurance(place: Path) -> None:
    start = time.monotonic()
    done = command("rlclinic diagnose - < paste.txt", cwd=place)
    took = time.monotonic() - start
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert "UNDECIDED" in text
    assert "3 rows" in text
    assert took < 4, "under a second on an idle machine"
    seen = diagnose(place / "paste.txt")
    assert seen["notes"]
    assert not [one for one in seen["findings"] if one["severity"] in ("warning", "critical")]


# ------------------------------------------------------------------------------------------------- odd values

NONFINITE = [
    "NaN",
    "Infinity",
    "-Infinity",
    '"nan"',
    '"NaN"',
    '"inf"',
    '"-Infinity"',
    "1e999",
    "-1e999",
    '"1e999"',
    '"-nan"',
]
NONFINITE_BARE = ["nan", "inf", "-inf"]


@pytest.mark.parametrize(
    "token",
    [
        *NONFINITE,
        *NONFINITE_BARE,
    ],
)
def test_every_spelling_of_a_non_finite_number_is_seen(token: str, log: Callable[..., Path]) -> None:
    seen = diagnose(log(spoken("reward", token)))
    assert seen["run"]["metrics"]["reward.mean"]["nonfinite"] == 100
    assert seen["verdict"]["severity"] == "critical"
    assert "nan_inf" in [one["check"] for one in seen["findings"]]


UNREADABLE_VALUES = ["null", '"None"', '"N/A"', '"0.53 pts"', '"53%"', '"0x1F"', '"1_000"', "[1, 2]", '{"a": {"b": 1}}']


@pytest.mark.parametrize("token", UNREADABLE_VALUES)
def test_a_value_that_is_no_number_is_not_made_one(token: str, log: Callable[..., Path]) -> None:
    reward = diagnose(log(spoken("reward", token)))["run"]["metrics"]["reward.mean"]
    assert (reward["points"], reward["nonfinite"]) == (100, 0)
    assert reward["last"] == row(100)["reward"]


@pytest.mark.parametrize("token", UNREADABLE_VALUES)
def test_a_vital_value_that_could_not_be_read_is_told(token: str, log: Callable[..., Path]) -> None:
    assert [one for one in diagnose(log(spoken("reward", token)))["run"]["warnings"] if "reward" in one["says"]]


NUMBERS: dict[str, Change] = {
    "1e308, alternating sign": lambda i: {"reward": 1e308 * (-1) ** i, "grad_norm": 1e308},
    "1e308 everywhere": lambda i: {"reward": 1e308, "kl": 1e308, "entropy": 1e308},
    "denormals": lambda i: {"reward": 5e-324 * i, "grad_norm": 5e-324, "entropy": 5e-324},
    "a number of 400 digits": lambda i: {"kl": 10**400},
    "minus zero": lambda i: {"loss": -0.0, "kl": -0.0},
    "true": lambda i: {"reward": i % 2 == 0},
    "constants": lambda i: row(1) | {"step": i},
    "zeros": lambda i: dict.fromkeys(row(1), 0.0) | {"step": i},
    "NaN everywhere": lambda i: dict.fromkeys(row(1), math.nan) | {"step": i},
    "infinity everywhere": lambda i: dict.fromkeys(row(1), math.inf) | {"step": i},
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("n", [1, 3, 200])
def test_extreme_numbers_break_no_check(kind: str, n: int, log: Callable[..., Path]) -> None:
    answer = call("diagnose", log(rows(NUMBERS[kind], n)), "--format", "json")
    assert answer.code == 0
    assert "Traceback" not in answer.err
    assert [one for one in answer.json["checks"] if one["outcome"] == "failed"] == []
    if n == 200:
        assert call("diagnose", log(rows(NUMBERS[kind], n))).code == 0


def test_extreme_numbers_leave_standard_error_clean(log: Callable[..., Path]) -> None:
    answer = call("diagnose", log(rows(NUMBERS["1e308, alternating sign"])))
    assert answer.err == ""


def test_a_large_number_does_not_become_infinite(log: Callable[..., Path]) -> None:
    says = [one["says"] for one in diagnose(log(rows(lambda i: {"kl": 1e308})))["findings"]]
    assert not [one for one in says if "inf" in one.split() or "inf%" in one]


@pytest.mark.parametrize("key", ["completions/clipped_ratio", "frac_reward_zero_std"])
@pytest.mark.parametrize("value", [2.0, 45.0, -3.0])
def test_a_share_outside_its_range_is_told_and_not_judged(key: str, value: float, log: Callable[..., Path]) -> None:
    seen = diagnose(log(rows(lambda i: {key: value})))
    judged = [one for one in seen["findings"] if one["check"] != "logging_bug"]
    assert not [one for one in judged if key in str(one["metrics"]) or "%" in one["says"]]
    assert [one for one in seen["run"]["warnings"] if key in one["says"]]


# ------------------------------------------------------------------------------------------------- odd steps


def shuffled(many: list[Row]) -> list[Row]:
    random.Random(1).shuffle(many)
    return many


def swapped(many: list[Row]) -> list[Row]:
    for i in range(4, len(many) - 1, 10):
        many[i], many[i + 1] = many[i + 1], many[i]
    return many


ORDERS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "swapped neighbours": swapped,
    "sorted as text": lambda many: sorted(many, key=lambda one: str(one["step"])),
    "newest first": lambda many: many[::-1],
    "shuffled": shuffled,
}


@pytest.mark.parametrize("order", ORDERS)
def test_rows_out_of_order_lose_nothing(order: str, log: Callable[..., Path]) -> None:
    seen = diagnose(log(ORDERS[order](rows())))
    assert seen["run"]["steps"] == {"first": 1, "last": 200, "count": 200}
    assert 0 < len(seen["run"]["warnings"]) < 4


STEPS: dict[str, tuple[Change, dict[str, float]]] = {
    "fractional": (lambda i: {"step": i / 10}, {"first": 0.1, "last": 20, "count": 200}),
    "from below zero": (lambda i: {"step": i - 100}, {"first": -99, "last": 100, "count": 200}),
    "twice each": (lambda i: {"step": (i + 1) // 2}, {"first": 1, "last": 100, "count": 100}),
    "in millions": (lambda i: {"step": i * 10**9}, {"first": 10**9, "last": 2 * 10**11, "count": 200}),
    "up to 1e300": (lambda i: {"step": i * 1e298}, {"first": 1e298, "last": 2e300, "count": 200}),
    "words": (lambda i: {"step": f"step {i}"}, {"first": 1, "last": 200, "count": 200}),
    "nowhere": (lambda i: {"step": None}, {"first": 1, "last": 200, "count": 200}),
    "not a number": (lambda i: {"step": math.nan}, {"first": 1, "last": 200, "count": 200}),
    "infinite": (lambda i: {"step": math.inf}, {"first": 1, "last": 200, "count": 200}),
}


@pytest.mark.parametrize(
    "kind",
    STEPS,
)
def test_steps_of_every_kind_are_kept(kind: str, log: Callable[..., Path]) -> None:
    change, expected = STEPS[kind]
    assert diagnose(log(rows(change)))["run"]["steps"] == pytest.approx(expected)


@pytest.mark.parametrize("step", [lambda i: 0, lambda i: 7, lambda i: 10**18 + i], ids=["zero", "seven", "1e18"])
def test_rows_that_share_a_step_are_told(step: Callable[[int], int], log: Callable[..., Path]) -> None:
    seen = diagnose(log(rows(lambda i: {"step": step(i)})))
    assert seen["run"]["steps"]["count"] == 200 or seen["run"]["warnings"]


def test_a_dead_end_is_part_of_the_run(log: Callable[..., Path]) -> None:
    seen = diagnose(log(rows(lambda i: dict.fromkeys(without([row(1)], "step")[0], math.nan) if i > 100 else {})))
    assert seen["run"]["steps"]["last"] == 200
    assert seen["run"]["metrics"]["reward.mean"]["nonfinite"] == 100


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_a_few_rows_are_no_verdict(n: int, log: Callable[..., Path]) -> None:
    seen = diagnose(log(rows(n=n)))
    assert seen["verdict"]["severity"] == "undecided"
    assert f"{n} row" in seen["verdict"]["says"]
    assert not [one for one in seen["findings"] if one["severity"] in ("warning", "critical")]


# ------------------------------------------------------------------------------------------------- odd keys

NAMES = [
    "[bold red]x[/bold red]",
    "[/]",
    "[link=file:///etc/passwd]y[/link]",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a\nb",
    "a\rb",
    "tab\tb",
    "nul\0b",
    "a\u202eb",
    "a\u2066b",
    "a\u2028b",
    "a\u200bb",
    "lone\ud800surrogate",
    "|pipe|",
    "`tick`",
    "",
    " ",
    "K" * 10_240,
    "%s%n{0}",
    "../../etc/passwd",
]


@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
@pytest.mark.parametrize("kind", ["unknown", "rewards/{}/mean", "eval_{}"])
def test_hostile_names_stay_text(form: str, kind: str, log: Callable[..., Path]) -> None:
    keys = [kind.format(name) if "{}" in kind else name for name in NAMES]
    path = log(rows(lambda i: {key: 0.4 + 0.1 * math.sin(i) for key in keys}))
    answer = call("diagnose", path, "--format", form)
    assert (answer.code, answer.err) == (0, "")
    assert not FORBIDDEN & set(answer.out)
    assert "K" * 300 not in answer.out
    assert "reward" in answer.out
    if form == "markdown":
        assert "<script>" not in answer.out
        assert "<img" not in answer.out


def test_hostile_file_names_and_errors_stay_text(log: Callable[..., Path]) -> None:
    path = log(rows(), "a\x1b[31m[bold]\u202e<b>.jsonl")
    for form in ("terminal", "markdown", "json"):
        answer = call("diagnose", path, "--format", form)
        assert answer.code == 0
        assert not FORBIDDEN & set(answer.out)


def test_ten_thousand_columns_take_seconds_and_are_told(log: Callable[..., Path]) -> None:
    extra = {f"custom/{j}": 0.1 * j for j in range(10_000)}
    start = time.monotonic()
    seen = diagnose(log(rows(lambda i: extra, n=10)))
    assert time.monotonic() - start < 10
    assert "too_many_keys" in [one["code"] for one in seen["run"]["warnings"]]
    assert seen["run"]["metrics"]["reward.mean"]["points"] == 10


def test_a_very_long_line_between_rows_is_skipped_and_told(log: Callable[..., Path]) -> None:
    text = '{"step": 0, "text": "' + "y" * (70 << 20) + '"}\n' + lines(rows())
    seen = diagnose(log(text))
    assert seen["run"]["steps"]["count"] == 200
    assert "long_lines" in [one["code"] for one in seen["run"]["warnings"]]


# ------------------------------------------------------------------------------------------------- what kind of log


@pytest.mark.parametrize("name", ["sft.jsonl", "dpo.jsonl"])
def test_supervised_training_is_not_judged(name: str, place: Path) -> None:
    seen = diagnose(place / name)
    assert seen["verdict"]["severity"] == "undecided"
    assert "supervised" in seen["verdict"]["says"]
    assert seen["findings"] == []
    assert call("diagnose", place / name, "--fail-on", "info").code == 3


def test_a_crash_before_the_first_step_is_named(place: Path) -> None:
    seen = diagnose(place / "crash.log")
    assert seen["verdict"]["severity"] == "undecided"
    assert "OutOfMemoryError" in seen["verdict"]["says"]
    answer = call("diagnose", place / "crash.log")
    assert answer.out.count("OutOfMemoryError") == 1, "told once"
    assert not FORBIDDEN & set(answer.out)


def test_keys_of_no_known_trainer_are_neither_sick_nor_well(log: Callable[..., Path]) -> None:
    path = log([{"iter": i, "avg_return": math.sin(i), "policy_objective": i * 0.5} for i in range(1, 200)])
    answer = call("diagnose", path)
    assert answer.code in (0, 2)
    assert "CRITICAL" not in answer.out
    assert "first error in the text" not in answer.out
    assert call("diagnose", path, "--fail-on", "critical").code in (2, 3)


def test_rows_that_are_not_understood_are_still_rows(log: Callable[..., Path]) -> None:
    path = log([{"iter": i, "avg_return": math.sin(i), "policy_objective": i * 0.5} for i in range(1, 200)])
    assert "no training step" not in call("diagnose", path).out


def test_rows_of_training_and_evaluation_are_told_apart(place: Path) -> None:
    seen = diagnose(place / "evaluated.jsonl")
    assert seen["run"]["metrics"]["eval.score"]["points"] == 20
    assert seen["run"]["metrics"]["reward.mean"]["points"] == 200
    assert seen["verdict"]["severity"] in ("healthy", "info")


@pytest.mark.parametrize(
    "content",
    [
        "run,"
        + table(rows()).replace("\n", "\na,").rstrip("a,")
        + table(rows()).split("\n", 1)[1].replace("\n", "\nb,"),
        '"Step","run-a - train/reward","run-b - train/reward"\n'
        + "".join(f'"{i}","{0.1 * math.sin(i)}","{0.5 + 0.2 * math.sin(i)}"\n' for i in range(1, 200)),
    ],
    ids=["run column", "export of two runs"],
)
def test_a_table_of_several_runs_is_not_read_as_one(content: str, log: Callable[..., Path]) -> None:
    answer = call("diagnose", log(content, "runs.csv"))
    refused(answer, "2 runs", "--run run-a" if "run-a" in content else "--run a")
    chosen = call("diagnose", log(content, "runs.csv"), "--run", "run-b" if "run-b" in content else "b")
    assert chosen.code == 0
    assert chosen.err == ""


# ------------------------------------------------------------------------------------------------- several sources


def test_the_same_log_twice_counts_once(place: Path) -> None:
    once, twice = diagnose(place / "good.jsonl"), diagnose(place / "good.jsonl", place / "good.jsonl")
    assert twice["run"]["steps"] == once["run"]["steps"]
    assert twice["run"]["metrics"] == once["run"]["metrics"]
    assert twice["verdict"] == once["verdict"]


def test_the_parts_of_a_run_make_the_run(log: Callable[..., Path]) -> None:
    first, second = log(rows()[:120], "part1.jsonl"), log(rows()[100:], "part2.jsonl")
    whole = diagnose("-", stdin=lines(rows()).encode())
    for order in ([first, second], [second, first]):
        seen = diagnose(*order)
        assert seen["run"]["steps"] == whole["run"]["steps"]
        assert seen["run"]["metrics"]["reward.mean"] == whole["run"]["metrics"]["reward.mean"]


def test_a_log_and_its_configuration_in_any_order(place: Path) -> None:
    good, config = place / "good.jsonl", place / "config.yaml"
    for args in ([good, config], [config, good], [good, "--config", config]):
        seen = diagnose(*args)
        assert seen["run"]["knobs"]["group_size"]["value"] == 8
        assert seen["run"]["knobs"]["kl_coef"] == {"value": 0.04, "key": "beta", "from": "config"}
    assert diagnose("-", config, stdin=good.read_bytes())["run"]["knobs"]["group_size"]["value"] == 8


@pytest.mark.parametrize("other", ["nothing", "sft.jsonl"])
def test_a_source_that_holds_no_run_is_a_warning_beside_one_that_does(other: str, place: Path) -> None:
    seen = diagnose(place / "good.jsonl", place / other)
    assert seen["run"]["steps"]["count"] == 200
    assert [one for one in seen["run"]["warnings"] if other in one["says"]]


def test_of_two_different_runs_the_first_named_is_diagnosed(place: Path) -> None:
    seen = diagnose(place / "good.jsonl", place / "falling.jsonl")
    assert seen["run"]["name"] == "good"
    assert seen["run"]["metrics"]["reward.mean"]["last"] == row(200)["reward"]


def test_two_different_runs_are_told(place: Path) -> None:
    seen = diagnose(place / "falling.jsonl", place / "good.jsonl")
    assert seen["run"]["metrics"]["reward.mean"]["last"] < 0.5
    assert [one for one in seen["run"]["warnings"] if "good.jsonl" in one["says"]]


def test_two_different_runs_are_never_mixed(place: Path, log: Callable[..., Path]) -> None:
    first = log(without(rows(), "entropy"), "a_first.jsonl")
    seen = diagnose(first, place / "falling.jsonl")
    assert seen["run"]["metrics"]["reward.mean"]["last"] == row(200)["reward"]
    assert "entropy.mean" not in seen["run"]["metrics"]


def test_a_run_that_is_left_out_does_not_choose_the_framework(place: Path) -> None:
    seen = diagnose(place / "falling.jsonl", place / "verl.log")
    assert [one for one in seen["run"]["warnings"] if one["code"] == "sources_disagree"]
    assert seen["run"]["framework"]["name"] == "trl"
    assert "kl.ref" in seen["run"]["metrics"]


def test_two_writers_of_the_same_steps_are_told(log: Callable[..., Path]) -> None:
    many = [one for i in range(1, 201) for one in (row(i), row(i) | {"reward": 0.9 - 0.001 * i})]
    assert diagnose(log(many))["run"]["warnings"]


def test_a_directory_is_read_as_its_run(place: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "outputs" / "checkpoint-200"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": rows(), "global_step": 200}))
    assert diagnose(tmp_path / "outputs")["run"]["steps"]["count"] == 200


def test_a_directory_of_several_runs_names_them(place: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_bytes((place / "good.jsonl").read_bytes())
    refused(call("diagnose", tmp_path), "2 runs", "valid  a, b")


# ------------------------------------------------------------------------------------------------- configurations

CONFIGS: dict[str, str] = {
    "a list": "- 1\n- 2\n",
    "words": "just words\n",
    "broken": "a: [1,\nb: }\n",
    "a bomb": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_configuration_that_holds_no_setting_is_refused(kind: str, place: Path, log: Callable[..., Path]) -> None:
    path = log(CONFIGS[kind], "bad.yaml")
    start = time.monotonic()
    refused(call("diagnose", place / "good.jsonl", "--config", path), "bad.yaml")
    seen = diagnose(place / "good.jsonl", path)
    assert [one for one in seen["run"]["warnings"] if "bad.yaml" in one["says"]]
    assert time.monotonic() - start < 5


def test_a_configuration_runs_no_code(place: Path, log: Callable[..., Path], tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = log(f"beta: !!python/object/apply:os.system ['touch {mark}']\nnum_generations: 8\n", "bad.yaml")
    assert call("diagnose", place / "good.jsonl", "--config", path).code in (0, 2)
    assert not mark.exists()


NESTED = (
    "actor_rollout_ref:\n  actor:\n    optim:\n      lr: 1.0e-6\n    clip_ratio_high: 0.28\n  rollout:\n    n: 8\n"
    "algorithm:\n  adv_estimator: grpo\n"
)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "# comment\n",
        "# a & b, c * d\n",
        "data:\n  train_files: data/*.parquet\nsetup: cd x && make\n",
    ],
    ids=["plain", "comment", "ampersand and star in a comment", "glob and shell in values"],
)
def test_a_nested_configuration_is_read(before: str, place: Path, log: Callable[..., Path]) -> None:
    knobs = diagnose(place / "verl.log", "--config", log(before + NESTED, "verl.yaml"))["run"]["knobs"]
    assert knobs["group_size"]["value"] == 8
    assert knobs["clip_high"]["value"] == 0.28


# ------------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["good.jsonl"], 0),
        (["falling.jsonl"], 0),
        (["paste.txt"], 0),
        (["evaluated.jsonl", "--fail-on", "info"], 0),
        (["falling.jsonl", "--fail-on", "critical"], 1),
        (["falling.jsonl", "--fail-on", "warning"], 1),
        (["good.jsonl", "--fail-on", "critical"], 0),
        (["good.jsonl", "--fail-on", "warning"], 1),
        (["paste.txt", "--fail-on", "warning"], 3),
        (["sft.jsonl", "--fail-on", "warning"], 3),
        (["nothing", "--fail-on", "warning"], 2),
        (["missing", "--fail-on", "warning"], 2),
        (["good.jsonl", "--only", "eval_missing", "--fail-on", "critical"], 0),
        (["good.jsonl", "--only", "zero_variance_groups", "--fail-on", "info"], 0),
        (["verl.log", "--only", "kl_drift", "--fail-on", "critical"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
@pytest.mark.parametrize("form", ["terminal", "json"])
def test_exit_codes(args: list[str], code: int, form: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    answer = call("diagnose", *args, "--format", form)
    assert answer.code == code
    assert "Traceback" not in answer.err
    assert bool(answer.out) is (code != 2)


@pytest.mark.parametrize("only", ["", ",", " , "])
def test_no_check_is_never_health(only: str, place: Path) -> None:
    answer = call("diagnose", place / "good.jsonl", "--only", only, "--fail-on", "info")
    assert answer.code in (2, 3)
    assert "HEALTHY" not in answer.out


def test_until_is_the_log_as_it_stood(place: Path, log: Callable[..., Path]) -> None:
    then = diagnose(place / "falling.jsonl", "--until", "120")
    cut = diagnose(log("".join((place / "falling.jsonl").read_text().splitlines(True)[:120]), "falling.jsonl"))
    assert then["findings"] == cut["findings"]
    assert then["verdict"] == cut["verdict"]
    assert diagnose(place / "falling.jsonl", "--until", "inf") == diagnose(place / "falling.jsonl")


@pytest.mark.parametrize("given", ["TRL", "trl", "trl@1.0.0", "trl@"])
def test_a_given_framework_is_taken(given: str, place: Path) -> None:
    framework = diagnose(place / "good.jsonl", "--framework", given)["run"]["framework"]
    assert (framework["name"], framework["how"]) == ("trl", "given")


def test_the_verdict_speaks_only_of_what_is_logged(log: Callable[..., Path]) -> None:
    seen = diagnose(log(rows(NUMBERS["constants"])))
    assert seen["verdict"]["primary"] == "no_learning"
    assert "held-out score with it" not in seen["verdict"]["says"]


# ------------------------------------------------------------------------------------------------- output


def test_a_report_goes_to_a_new_file_only(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    assert call("diagnose", place / "good.jsonl", "--format", "markdown", "-o", path) == Answer(0, "", "")
    first = path.read_bytes()
    assert first.decode("utf-8")
    refused(call("diagnose", place / "falling.jsonl", "-o", path), "exists", "--force")
    assert path.read_bytes() == first
    assert call("diagnose", place / "falling.jsonl", "-o", path, "--force").code == 0
    assert path.read_bytes() != first


@pytest.mark.parametrize("option", ["source", "config", "limits"])
def test_a_report_never_replaces_what_it_was_made_from(option: str, place: Path, tmp_path: Path) -> None:
    log, config, limits = tmp_path / "a.jsonl", tmp_path / "c.yaml", tmp_path / "l.toml"
    log.write_bytes((place / "good.jsonl").read_bytes())
    config.write_bytes((place / "config.yaml").read_bytes())
    limits.write_text("[entropy_collapse]\np_value = 0.001\n")
    target = {"source": log, "config": config, "limits": limits}[option]
    before = target.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(target)
    for name in (target, link, tmp_path / ".." / tmp_path.name / target.name):
        answer = call("diagnose", log, "--config", config, "--limits", limits, "-o", name, "--force")
        refused(answer)
        assert target.read_bytes() == before


@pytest.mark.parametrize("way", ["hard link", "directory"])
def test_a_report_never_replaces_a_log_by_a_detour(way: str, place: Path, tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_bytes((place / "good.jsonl").read_bytes())
    source = target = log
    if way == "hard link":
        target = tmp_path / "other.jsonl"
        target.hardlink_to(log)
    else:
        source = tmp_path
    answer = call("diagnose", source, "-o", target, "--force")
    assert log.read_bytes() == (place / "good.jsonl").read_bytes()
    refused(answer)


def test_demo_and_simulate_do_not_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("mine")
    for args in (["demo", "plain"], ["simulate", "plain"]):
        refused(call(*args, "-o", path), "exists")
        assert path.read_text() == "mine"


def test_the_same_request_gives_the_same_answer(place: Path) -> None:
    for form in ("terminal", "json", "markdown"):
        args = ("diagnose", place / "falling.jsonl", "--format", form)
        assert call(*args) == call(*args)


def test_every_json_form_fits_the_schema(place: Path) -> None:
    form = call("schema").json
    for name in ("good.jsonl", "falling.jsonl", "evaluated.jsonl", "paste.txt", "verl.log", "sft.jsonl", "dpo.jsonl"):
        jsonschema.validate(diagnose(place / name), form)


@pytest.mark.parametrize(
    "line",
    [
        "rlclinic diagnose good.jsonl | head -1",
        "rlclinic diagnose good.jsonl --format json | head -c 5",
        "rlclinic explain zero_variance_groups | head -1",
        "rlclinic metrics | head -1",
        "rlclinic simulate plain | head -1",
    ],
)
def test_a_reader_that_leaves_early_is_no_error(line: str, place: Path) -> None:
    done = command(f"set -o pipefail; {line}", cwd=place)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_any_encoding_of_the_terminal_will_do(
    encoding: str, form: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    answer = call("diagnose", place / "falling.jsonl", "--format", form, encoding=encoding)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out


def test_the_encoding_of_a_real_terminal_will_do(place: Path) -> None:
    done = command("rlclinic diagnose falling.jsonl", cwd=place, PYTHONIOENCODING="ascii", COLUMNS="40")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("rlclinic diagnose - <&-", id="closed input"),
        pytest.param("rlclinic diagnose good.jsonl >&-", id="closed output"),
        pytest.param("rlclinic diagnose good.jsonl > /dev/full", id="full disk"),
    ],
)
def test_streams_that_cannot_be_used_are_one_message(line: str, place: Path) -> None:
    if "/dev/full" in line and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    done = command(line, cwd=place)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


# ------------------------------------------------------------------------------------------------- the other commands

COMMANDS = ["diagnose", "explain", "checks", "metrics", "frameworks", "demo", "simulate", "schema"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    for flag in ("--help", "-h"):
        answer = call(name, flag)
        assert answer.code == 0
        assert "Usage:" in answer.out
    assert name in call("--help").out
    refused(call(name, "--nonsense"), "--nonsense")


def test_version_and_wrong_commands() -> None:
    assert call("--version").out.startswith("rlclinic")
    refused(call("diagnos"), "diagnos")
    assert call().code in (0, 2)


@pytest.mark.parametrize("name", ["checks", "metrics", "frameworks"])
def test_lists_are_one_line_each(name: str) -> None:
    answer = call(name)
    assert answer.code == 0
    assert all(len(line.split()) >= 3 for line in answer.out.splitlines() if line)
    assert max(map(len, answer.out.splitlines())) <= 100 or name != "frameworks"


@pytest.mark.parametrize("name", [one.name for one in CHECKS])
def test_every_check_has_its_page(name: str) -> None:
    answer = call("explain", name)
    assert answer.code == 0
    assert answer.out.startswith(f"# {name}")
    assert call("explain", name, "--framework", "trl").code == 0


@pytest.mark.parametrize("name", ["kl.ref", "reward.mean", "group_size", "clip_higher", "zero_variance_groups"])
def test_metrics_knobs_remedies_and_old_names_have_pages(name: str) -> None:
    assert name in call("explain", name).out


def test_a_setting_and_its_remedy_of_one_name_are_one_page() -> None:
    answer = call("explain", "log_completions").out
    assert "verl: `trainer.rollout_data_dir`" in answer
    assert "As a remedy:" in answer
    assert call("explain", "log_completion").err.count("log_completions") == 1


def test_both_pages_agree_on_how_answers_are_saved() -> None:
    """Every setting that docs/rollouts.md names is the one that ``rlclinic explain log_completions`` names."""
    page = (Path(__file__).parents[1] / "docs" / "rollouts.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^- (.+?): (.+)$", call("explain", "log_completions").out, re.M))
    rows = re.findall(r"^\| ([^|]+?) \| [^|]+ \| ([^|]+?) \|$", page.partition("| trainer | files |")[2], re.M)
    trainers = [(trainer.partition(" (")[0], how) for row, how in rows for trainer in row.split(", ")]
    named = {trainer: how for trainer, how in trainers if trainer in told}
    assert {"TRL", "verl", "ms-swift", "slime", "AReaL", "ROLL", "SkyRL", "open-instruct"} <= set(named)
    for trainer, how in named.items():
        assert "no such setting" not in told[trainer], trainer
        keys = re.findall(r"`-{0,2}([\w.-]+)", how)
        assert not keys or "written" in how or any(key in told[trainer] for key in keys), (trainer, how)


def test_the_pages_state_how_many_checks_there_are() -> None:
    home = Path(__file__).parents[1]
    assert f"\n{len(CHECKS)} failures; `rlclinic checks`" in (home / "README.md").read_text(encoding="utf-8")
    assert f"- **Checks**: {len(CHECKS)}, one" in (home / "CHANGELOG.md").read_text(encoding="utf-8")


def test_examples_that_are_asked_for_and_not_there_are_said() -> None:
    demo = Path(__file__).parents[1] / "src" / "rlclinic" / "demo" / "metrics.jsonl"
    assert "no saved answers were read" in " ".join(call("diagnose", demo, "--samples", "2").out.split())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["entropy_colapse"], ["valid  entropy_collapse"]),
        (["zzz"], ["zzz", "rlclinic checks"]),
        ([""], ["rlclinic checks"]),
        (["\x1b]0;x\x07"], ["rlclinic checks"]),
        (["entropy_collapse", "--framework", "nope"], ["nope", "trl"]),
        ([], ["NAME"]),
    ],
    ids=["near", "far", "empty", "escape", "framework", "none"],
)
def test_explain_of_an_unknown_name(args: list[str], words: list[str]) -> None:
    refused(call("explain", *args), *words)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ENTROPY_COLLAPSE", "entropy_collapse"),
        *(
            pytest.param(key, metric)
            for key, metric in (("reward", "reward.mean"), ("kl", "kl.ref"), ("epsilon_high", "clip_high"))
        ),
    ],
)
def test_explain_helps_with_the_words_people_have(name: str, near: str) -> None:
    answer = call("explain", name)
    assert near in answer.out + answer.err


def scenarios() -> Iterator[tuple[str, bool]]:
    sick = False
    for line in call("demo", "--list").out.splitlines():
        if line.startswith("sick"):
            sick = True
        elif line.startswith("  ") and not line.startswith("   "):
            yield line.split()[0], sick


@pytest.mark.parametrize(("name", "sick"), list(scenarios()))
def test_every_scenario_is_diagnosed_as_its_name_says(name: str, sick: bool, request: pytest.FixtureRequest) -> None:
    answer = call("demo", name, "--format", "json")
    assert (answer.code, answer.err) == (0, "")
    found = {one["check"]: one["severity"] for one in answer.json["findings"]}
    if sick:
        assert set(scenario(name).truth) <= set(found)
    else:
        assert set(found.values()) <= {"info"}


def test_the_demo_needs_no_arguments() -> None:
    answer = call("demo")
    assert answer.code == 0
    assert "CRITICAL" in answer.out
    assert "real" in answer.err


@pytest.mark.parametrize("name", ["plain", "entropy_collapse", "nan_inf"])
@pytest.mark.parametrize(
    ("dialect", "form"),
    [
        ("trl", "jsonl"),
        ("trl", "trainer_state"),
        ("trl", "console"),
        ("trl", "console5"),
        ("verl", "jsonl"),
        ("verl", "console"),
    ],
)
def test_what_is_simulated_is_diagnosed(name: str, dialect: str, form: str) -> None:
    made = call("simulate", name, "--dialect", dialect, "--form", form)
    assert (made.code, made.err) == (0, "")
    seen = diagnose("-", stdin=made.out.encode())
    assert seen["run"]["framework"]["name"] == dialect
    found = [one["check"] for one in seen["findings"] if one["severity"] != "info"]
    assert found == [] if name == "plain" else name in found


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["simulate", "nope"], ["nope", "rlclinic demo --list"]),
        (["demo", "entropy_colapse"], ["entropy_collapse"]),
        (["simulate"], ["SCENARIO"]),
        (["simulate", "plain", "--dialect", "nope"], ["trl", "verl"]),
        (["simulate", "plain", "--dialect", "verl", "--form", "console5"], ["jsonl", "console"]),
        (["simulate", "plain", "--steps", "0"], ["--steps"]),
        (["simulate", "plain", "--log-every", "10000"], ["10000"]),
        (["demo", "plain", "--steps", "1"], ["1 steps"]),
        (["demo", "plain", "--seed", "-1"], ["seed"]),
        (["simulate", "plain", "--seed", "-1"], ["seed"]),
    ],
)
def test_a_simulation_that_cannot_be_made(args: list[str], words: list[str]) -> None:
    refused(call(*args), *words)
