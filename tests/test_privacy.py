"""No word of a prompt or an answer leaves a report unasked, and what is shown is masked, quickly, whatever the text is."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.answers.mask import masked
from rlclinic.answers.shown import among_training, hidden, hung
from rlclinic.diagnose import diagnose
from rlclinic.model import Diagnosis, Run
from rlclinic.readers import read
from rlclinic.report import FORMATS, render

SECRETS = {
    "sk-proj-abcdEFGH1234ijklMNOP5678qrst": "<secret>",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a": "<secret>",
    "hf_abcdefghijklmnopqrstuvwxyzABCD": "<secret>",
    "AKIAIOSFODNN7EXAMPLE": "<secret>",
    "xoxb-123456789012-abcdefGHIJ": "<secret>",
    "AIzaSyD-1234567890abcdefghijklmnopqrstu": "<secret>",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P": "<secret>",
    "q8Zt3Kp9Lw2Xv7Bn5Rm1Yc4D": "<secret>",
    "5f4dcc3b5aa765d61d8327deb882cf99": "<secret>",
    "Authorization: Basic dXNlcjpwYXNz": "Authorization: Basic <secret>",
    'headers["Authorization"] = "Bearer dXNlcjpwYXNz"': 'headers["Authorization"] = "Bearer <secret>"',
    "password=hunter2": "password=<secret>",
    'api_key: "abc123def"': 'api_key: "<secret>"',
    "aws_secret_access_key = short1": "aws_secret_access_key = <secret>",
    "postgres://bob:s3cret@db/x": "postgres://bob:<secret>@db/x",
    "https://h/x?sig=abcdefgh12&v=1": "https://h/x?sig=<secret>&v=1",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----": "<secret>",
    "alice.smith+x@mail.example.co.uk": "<mail>",
    "+49 170 1234567": "<number>",
    "(555) 123-4567": "<number>",
    "123-45-6789": "<number>",
    "4111 1111 1111 1111": "<number>",
    "192.168.1.17": "<address>",
    "2001:db8::ff00:42:8329": "<address>",
    "00:1b:44:11:3a:b7": "<address>",
    "123e4567-e89b-12d3-a456-426614174000": "<id>",
    "/home/alice/x.py": "/home/<name>/x.py",
}
PLAIN = (
    r"\frac{x^2+3y}{\sqrt{2}} = \boxed{\frac{12}{5}}",
    "3.14159265358979323846264338327950288419716939937510",
    "1 + 2345678901 = 2345678902 and 5 +1234567890123",
    "2024-01-15 12:30:45, chapter 3.2.1, version 1.26.4, 127.0.0.1",
    "for i in range(10): a[1::2] = b[i]; std::vector<int> v; x@W.T; a@b.reshape(3)",
    "password = get_password(); token = tokens[i]; def f(key: str = None) -> None",
    "getHTTPResponseCodeFromServer2 and thisIsALongCamelCaseIdentifierWithManyWords",
    "commit 9fceb02d0ae598e9, A0033389BBA00112233CCDDEEFF001122, x2y3z4x2y3z4x2y3z4x2y3z4",
    "bearer responsibilities of citizens; the task-based risk-averse policy; @property",
    "01010101010101010101010101010101 7777777777777777777777777777",
    "len(data) != sizeEndCentDir64Locator; pwd = self.pwd; authorization = headers.get(name); +000000120; rfc-7.1.1.1",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_and_personal_strings_are_hidden(secret: str) -> None:
    for around in ("{}", "so: {} .", '"{}"\n', "({})", "x = '{}'"):
        assert masked(around.format(secret)) == around.format(SECRETS[secret])


@pytest.mark.parametrize("text", PLAIN)
def test_mathematics_and_code_stay_readable(text: str) -> None:
    assert masked(text) == text


@given(st.text(max_size=300))
@settings(max_examples=25, deadline=None)
def test_masking_never_raises_and_settles(text: str) -> None:
    once = masked(text)
    assert masked(once) == once


@pytest.mark.parametrize(
    "piece",
    ["a", "eyJ", "eyJa.", "sk-", "a@", "@a.", "+1 ", "f:", "password=", "authorization ", "-----BEGIN ", "aB1", "1."],
)
def test_masking_takes_linear_time(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    begin = time.perf_counter()
    masked(text)
    assert time.perf_counter() - begin < 1  # 0.01 to 0.1 s here


# ------------------------------------------------------------------------------------------------ reports

CANARY = "wombat"


@pytest.fixture(scope="module")
def diagnosis(run: Run) -> Diagnosis:
    return diagnose(run)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Every prompt, answer and truth holds the canary, and a secret; the answers fall into a loop."""
    path = tmp_path_factory.mktemp("run") / "rollouts.jsonl"
    rows = []
    for step in range(1, 25):
        for k in range(12):
            late = step > 12
            words = f"{CANARY} {step}.{k} q8Zt3Kp9Lw2Xv7Bn5Rm1Yc4D bob@{CANARY}.com " + (
                f"{CANARY} again. " * 40 if late else "ok"
            )
            rows.append(
                {
                    "step": step, "prompt": f"{CANARY} asks {k // 4} password=hunter2", "completion": words,
                    "reward": float(k % 3 == 0 and not late), "n_tokens": len(words) // 4,
                    "finish": "length" if late else "stop",
                }
            )  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read([path])


@pytest.mark.parametrize("format", FORMATS)
def test_no_report_holds_a_word_unasked(diagnosis: Diagnosis, format: str) -> None:
    text = render(diagnosis, format)
    assert CANARY not in text
    assert "288 answers" in text or '"answers": 288' in text


@pytest.mark.parametrize("format", FORMATS)
def test_examples_are_shown_on_demand_and_masked(diagnosis: Diagnosis, format: str) -> None:
    first = replace(diagnosis.findings[0], samples=(287, 286, 285, 99_999))
    text = render(replace(diagnosis, findings=(first,)), format, samples=2)
    assert CANARY in text
    assert "24.11" in text
    assert "24.10" in text
    assert format == "html" or "24.9 " not in text  # a page shows whole groups
    for secret in ("q8Zt3Kp9", f"bob@{CANARY}", "hunter2"):
        assert secret not in text
    if format == "json":
        (finding,) = json.loads(text)["findings"]
        assert [one["step"] for one in finding["samples"]] == [24, 24]
        assert len(finding["samples"][0]["answer"]) <= 4_000
        assert not json.loads(render(diagnosis, "json"))["findings"][0]["samples"]


def test_rows_of_a_table_are_found_among_its_training_answers(run: Run) -> None:
    table = run.rollouts[0]
    held_out = np.arange(len(table)) % 2 == 0
    apart = replace(run, rollouts=(replace(table, held_out=held_out),))
    assert among_training(apart, apart.rollouts[0], (1, 2, 5)) == (0, 2)
    assert among_training(apart, table, (1,)) == ()
    assert [one.words for one in hung(apart, (0, 2))] == [hidden(table.texts[row].answer) for row in (1, 5)]


def test_rows_that_are_not_there_show_nothing(run: Run) -> None:
    assert hung(run, (-1, 10**9)) == ()
    assert hung(replace(run, rollouts=()), (0,)) == ()
    (one,) = hung(replace(run, rollouts=(replace(run.rollouts[0], texts={}),)), (0,))
    assert one.words is None


def test_reports_name_what_was_read_and_no_longer_ask_for_it(diagnosis: Diagnosis) -> None:
    text = render(diagnosis, "terminal", width=100)
    assert "saved answers rollouts.jsonl" in text
    assert "not read" not in text
    assert not [line for line in diagnosis.to_log if line.startswith("sampled answers")]
    told = json.loads(render(diagnosis, "json"))["run"]
    assert told["rollouts"][0]["answers"] == 288
    assert [source["role"] for source in told["sources"]] == ["rollouts"]
