"""``rlclinic rollouts``: what was read, figures at both ends, and chosen answers with their words, at any size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlclinic import gallery
from rlclinic.answers.figures import _FIGURES as FIGURES
from rlclinic.answers.figures import _MEASURED as MEASURED
from rlclinic.cli import cli
from rlclinic.readers import read
from rlclinic.readers.answers import read_answers
from rlclinic.report import render_gallery
from rlclinic.report.blocks import LINES, PASSAGE, excerpt, visible

DEMO = Path(__file__).parents[1] / "src" / "rlclinic" / "demo"
STEPS, PROMPTS, SIZE = 12, 4, 4


def rows() -> list[dict[str, Any]]:
    """Four prompts asked at every step, four answers each; from step 7 on every answer is the same and wrong."""
    made = []
    for step in range(1, STEPS + 1):
        for prompt in range(PROMPTS):
            for k in range(SIZE):
                lost = step > STEPS // 2
                right = float(not lost and k < 2 + (prompt > 1))
                words = "give up" if lost else f"step {step} prompt {prompt} try {k} and so on"
                made.append(
                    {
                        "step": step, "prompt": f"What is {prompt} plus {prompt}?", "completion": words, "reward": right,
                        "rewards": {"accuracy": right, "format": 1.0}, "n_tokens": len(words.split()),
                        "finish": "length" if lost else "stop",
                    }
                )  # fmt: skip
    return made


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()), encoding="utf-8")
    return path


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["rollouts", *map(str, arguments)], catch_exceptions=True)


def told(*arguments: str | Path) -> dict[str, Any]:
    answer = call(*arguments, "--format", "json")
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


def test_the_overview_says_what_was_read_and_how_it_moved(saved: Path) -> None:
    page = told(saved)
    (table,) = page["tables"]
    assert (table["answers"], table["groups"], table["prompts"], table["steps"]) == (192, 48, PROMPTS, STEPS)
    assert "advantages" in table["lacks"]
    figures = {one["title"]: (one["first"], one["last"]) for one in page["figures"]}
    assert figures["groups without a spread of rewards"] == (0, 1)
    assert figures["- all wrong"] == (0, 1)
    assert figures["- of one and the same text"] == (0, 1)
    assert figures["pass@1"] == (0.625, 0)
    assert figures["never solved"] == (0, 1)
    assert figures["cut at the limit"] == (0, 1)
    assert not page["shelves"]
    assert any("sampler" in one["what"] for one in page["unseen"])
    text = call(saved).stdout
    assert "groups without a spread of rewards  0%" in text
    assert "What is" not in text, "the overview shows no words"


def test_one_prompt_through_the_steps(saved: Path) -> None:
    page = told(saved, "--prompt", "1", "--samples", "2")
    assert all(shelf["prompt"] == "What is 1 plus 1?" for shelf in page["shelves"])
    assert [shelf["answers"][0]["step"] for shelf in page["shelves"]] == sorted(
        shelf["answers"][0]["step"] for shelf in page["shelves"]
    )
    assert len(page["shelves"]) == gallery.GROUPS
    assert page["shelves"][-1]["answers"][0]["times"] == SIZE
    assert page["shelves"][0]["left"] == SIZE - 2
    by_words = told(saved, "--prompt", "IS 1 PLUS", "--samples", "2")
    assert by_words["shelves"] == page["shelves"]
    text = call(saved, "--prompt", "1").stdout
    assert text.count("What is 1 plus 1?") == 1, "the same prompt is told once"


def test_the_groups_of_a_step_show_both_ends_of_the_reward(saved: Path) -> None:
    page = told(saved, "--step", "2", "--samples", "2")
    assert len(page["shelves"]) == PROMPTS
    for shelf in page["shelves"]:
        assert [one["reward"] for one in shelf["answers"]] == [1, 0]


def test_worst_and_best(saved: Path) -> None:
    worst = told(saved, "--worst", "--samples", "2")["shelves"]
    assert {one["reward"] for one in worst[0]["answers"]} == {0}
    assert worst[0]["answers"][0]["step"] == STEPS
    assert any(shelf["title"].startswith("no signal") for shelf in worst)
    best = told(saved, "--best", "--samples", "2")["shelves"]
    assert {one["reward"] for one in best[0]["answers"]} == {1}
    assert len({one["prompt"] for one in best[0]["answers"]}) == 2


def test_exploits_are_told_or_said_not_to_be_there(saved: Path) -> None:
    answer = call(saved, "--exploits")
    assert answer.exit_code == 0
    assert "what pays besides being right" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--prompt", "99"], "number of a prompt"),
        (["--prompt", "no such words"], "words of a prompt"),
        (["--prompt", "2787254"], "0 to 3"),
        (["--step", "two"], "a number"),
        (["--step", "2.5"], "nearest: 1, 2, 3"),
        (["--worst", "--best"], "one way of choosing"),
        (["--step", "inf"], "finite"),
    ],
)
def test_what_is_not_there_is_said(saved: Path, arguments: list[str], says: str) -> None:
    answer = call(saved, *arguments)
    assert answer.exit_code != 0
    assert says in str(answer.exception) + answer.output


def test_the_next_command_is_one_that_runs_and_of_the_same_kind(tmp_path: Path) -> None:
    found = str(call(DEMO / "metrics.jsonl").exception)
    assert found.endswith("try    rlclinic explain log_completions")
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "metrics.jsonl").write_bytes((DEMO / "metrics.jsonl").read_bytes())
    assert "rlclinic rollouts" in str(call(tmp_path).exception)


def test_a_number_may_be_words_of_the_prompt_and_a_step_the_number_in_the_file() -> None:
    by_words, by_number = (told(DEMO, "--prompt", words) for words in ("2787254", "113"))
    assert by_words["shelves"] == by_number["shelves"]
    in_file, in_log = (told(DEMO, "--step", step) for step in ("110", "111"))
    assert in_file["shelves"] == in_log["shelves"]
    assert "step 111 of the log, 110 in the file" in in_log["says"]
    assert "--all" in in_log["says"]
    whole = told(DEMO, "--step", "111", "--all")
    assert (len(in_log["shelves"]), len(whole["shelves"])) == (gallery.GROUPS, 8)
    assert "--all" not in whole["says"]


def test_the_overview_reads_well_and_names_the_page_of_its_words() -> None:
    text = " ".join(call(DEMO).stdout.split())
    assert "0% at both ends: groups equal between the ends, aborted, empty or nearly, in a foreign script" in text
    assert "Right means paid in full by the reward" in text
    assert "1 of 159 prompts was asked" in text
    assert "-50.0 points" in text
    assert "pass@1 |" in call(DEMO, "--format", "markdown").stdout


def test_every_line_of_the_overview_is_explained() -> None:
    page = (DEMO.parents[2] / "docs" / "rollouts.md").read_text(encoding="utf-8")
    for title in (
        *(one[2] for one in MEASURED if one[0] == "words" and one[1] != "refusal"),
        *(one[1].removeprefix("- ") for one in FIGURES if one[0] in ("signal", "prompts") and "@" not in one[1]),
    ):
        assert title in page or title in ("answers in the window", "mean reward"), title


def test_no_saved_answers_and_no_source(tmp_path: Path) -> None:
    answer = call(DEMO / "metrics.jsonl")
    assert "saved answers" in str(answer.exception)
    assert "SOURCE" in str(call().exception)


def test_words_are_read_again_where_only_a_sample_was_kept(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = (["--worst"], ["--step", "3"], ["--prompt", "2 plus"])
    whole = [told(saved, *way)["shelves"] for way in ways]
    monkeypatch.setitem(read_answers.__kwdefaults__, "words", 8_000)  # type: ignore[index]
    assert len(read([saved]).rollouts[0].texts) < 100
    for way, shelves in zip(ways, whole, strict=True):
        assert told(saved, *way)["shelves"] == shelves
        assert all(one["words"] is not None for shelf in shelves for one in shelf["answers"])


def test_the_demo_has_its_answers() -> None:
    text = call(DEMO / "rollouts.jsonl.gz", "--step", "110").stdout
    assert "A1111111111111111111" in text
    assert sum(path.stat().st_size for path in DEMO.iterdir()) < 200_000


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("ascii", [False, True])
def test_no_line_is_wider_than_the_terminal_and_nothing_hidden_reaches_it(
    tmp_path: Path, width: int, ascii: bool
) -> None:
    path = tmp_path / "rollouts.jsonl"
    hostile = (
        "\x1b[2J\u202eevil\u200b\x07 e\u0301\u0301\u0301\u0301 漢字漢字 \ud800 ```\n<script>@me #1</script> | x\r"
        + "w" * 400
    )
    made = [
        {"step": 1 + k // 8, "prompt": f"\x1b]0;t\x07p{k // 4}", "completion": f"{hostile}{k}", "reward": float(k % 2)}
        for k in range(64)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    run = gallery.completed(read([path]))
    shown = gallery.gallery(run, gallery.choose(run, gallery.Asked(worst=2)))
    text = render_gallery(shown, "terminal", width=width, ascii=ascii)
    assert "\\x1b[2J\\u202eevil\\u200b\\x07" in text.replace("\n", "")
    assert all(c.isprintable() or c == "\n" for c in text)
    assert not ascii or text.isascii()
    assert max(map(len, text.splitlines())) <= width
    for format in ("markdown", "json"):
        drawn = render_gallery(shown, format)
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn
    assert "````text" in render_gallery(shown, "markdown"), "a fence longer than the one in the answer"


def test_an_excerpt_is_bounded_and_says_what_was_cut() -> None:
    assert excerpt("short\ntext") == ("short", "text")
    long = " ".join(f"word{k}" for k in range(5_000))
    shown = excerpt(long)
    cut = next(line for line in shown if line.startswith("[..."))
    left = int(cut.split()[1])
    assert sum(map(len, shown)) - len(cut) + left == len(long)
    assert sum(map(len, shown)) <= PASSAGE + 60
    assert shown[0].startswith("word0 ")
    assert shown[-1].endswith("word4999")
    many = excerpt("\n".join(map(str, range(1_000))))
    assert len(many) <= LINES + 1
    assert (many[0], many[-1]) == ("0", "999")
    barely = "x" * PASSAGE + " and eleven"
    assert excerpt(barely) == (barely,), "not cut for less than the notice costs"
    assert visible("a\tb\x00") == "a    b\\x00"


def test_single_answers_of_a_step_prove_no_group_dead(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    made = [{"step": k, "prompt": f"p{k}", "completion": f"a{k}", "reward": float(k % 3 == 0)} for k in range(1, 41)]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    run = gallery.completed(read([path]))
    assert "reward.mean" in run
    assert not {"reward.min", "reward.std", "group.all_dead", "group.zero_var_frac"} & set(run.columns)
