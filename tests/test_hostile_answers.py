"""Saved answers that are odd in some rows, unfinished, copied or far too large: read as meant, or left in silence."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rlclinic import diagnose
from rlclinic.answers import lengths, scripts, texts
from rlclinic.cli import cli
from rlclinic.errors import BadRequest
from rlclinic.grader import judged
from rlclinic.readers import read
from rlclinic.readers.answers import read_answers
from rlclinic.readers.answers.files import content
from rlclinic.rollouts import Rollouts

Row = dict[str, Any]


def rows(steps: int = 4, prompts: int = 2, size: int = 4) -> list[Row]:
    """Ordinary answers, a line each, with all that a line can say."""
    return [
        {
            "step": step, "prompt": f"{prompt} and {step}?", "completion": f"it is {prompt}.{step}.{k}",
            "reward": float(k % 2), "rewards": {"acc": float(k % 2), "form": 1.0}, "group_id": 10 * step + prompt,
            "finish_reason": "stop", "ground_truth": "4", "advantage": 0.5, "turns": 1,
        }
        for step in range(1, steps + 1) for prompt in range(prompts) for k in range(size)
    ]  # fmt: skip


def save(path: Path, made: Iterable[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
    return path


def table(path: Path, made: Iterable[Row]) -> Rollouts:
    (found,), _ = read_answers([save(path, made)])
    return found


# ------------------------------------------------------------------------------ a row that does not say everything


def _missing(found: Rollouts, field: str) -> int:
    """Rows in which a field is not known."""
    known: dict[str, Callable[[], Any]] = {
        "step": lambda: np.isfinite(found.step),
        "prompt": lambda: found.prompt >= 0,
        "completion": lambda: found.answer >= 0,
        "reward": lambda: np.isfinite(found.reward),
        "rewards": lambda: np.isfinite(found.parts["acc"]),
        "group_id": lambda: found.key >= 0,
        "finish_reason": lambda: found.ending > 0,
        "ground_truth": lambda: np.array([text.truth == "4" for text in found.texts.values()]),
        "advantage": lambda: np.isfinite(found.advantage),
        "turns": lambda: np.isfinite(found.turns),
    }
    return int((~known[field]()).sum())


@pytest.mark.parametrize("field", [name for name in rows(1)[0] if name != "completion"])
@pytest.mark.parametrize("void", [None, "", []], ids=["null", "empty", "list"])
def test_what_the_first_row_lacks_is_read_in_the_others(tmp_path: Path, field: str, void: object) -> None:
    made = rows()
    made[0][field] = void
    assert _missing(table(tmp_path / "a.jsonl", made), field) <= 1


@pytest.mark.parametrize("first", [{"completion": None}, {"completion": math.nan}, {}], ids=["null", "nan", "lacking"])
def test_a_first_row_without_an_answer_does_not_refuse_the_file(tmp_path: Path, first: Row) -> None:
    made = rows()
    del made[0]["completion"]
    made[0] |= first
    found = table(tmp_path / "a.jsonl", made)
    assert (len(found), len(found.texts)) == (32, 31)
    assert content(tmp_path / "a.jsonl") == "answers"


def test_a_line_before_the_answers_is_no_answer(tmp_path: Path) -> None:
    found = table(tmp_path / "a.jsonl", [{"config": {"lr": 1e-6}, "version": 2}, *rows()])
    assert len(found) == 32


def test_rows_of_a_log_do_not_become_answers_by_a_later_row(tmp_path: Path) -> None:
    log = [{"event": "start"}, {"step": 1, "loss": 0.1}, *rows()]
    tables, ((_, why),) = read_answers([save(tmp_path / "a.jsonl", log)])
    assert not tables
    assert "no known form" in why


def test_either_of_two_names_is_taken_row_by_row(tmp_path: Path) -> None:
    made = [
        {"step": 1, "prompt": "p", "response": "a" if k % 2 else None, "text": None if k % 2 else "b", "reward": 1.0}
        for k in range(8)
    ]
    found = table(tmp_path / "a.jsonl", made)
    assert [text.answer for text in found.texts.values()] == ["b", "a"] * 4


def test_groups_with_rows_that_cannot_be_read_are_not_whole(tmp_path: Path) -> None:
    made = [
        row if k % 2 else {"input": row["prompt"], "output": row["completion"], "score": row["reward"], "step": 1}
        for k, row in enumerate(rows())
    ]
    assert table(tmp_path / "a.jsonl", made).partial
    assert not table(tmp_path / "b.jsonl", rows()).partial


# ------------------------------------------------------------------------------ flags and names in any spelling


@pytest.mark.parametrize(
    ("written", "means"),
    [(1, True), (0, False), ("True", True), ("false", False), (1.0, True), (None, False), ("no", False)],
)  # fmt: skip
def test_flags_are_read_however_they_are_written(tmp_path: Path, written: object, means: bool) -> None:
    found = table(tmp_path / "a.jsonl", [row | {"is_eval": written} for row in rows()])
    assert (found.held_out == means).all()
    cut = table(
        tmp_path / "b.jsonl",
        [{k: v for k, v in row.items() if k != "finish_reason"} | {"truncated": written} for row in rows()],
    )
    if not isinstance(written, str) or written in ("True", "false"):
        assert (cut.ending == (0 if written is None else 2 if means else 1)).all()


def test_a_split_that_says_nothing_leaves_it_to_the_folder(tmp_path: Path) -> None:
    blank = [row | {"split": None} for row in rows()]
    assert table(tmp_path / "eval" / "a.jsonl", blank).held_out.all()
    train = [row | {"split": "train"} for row in rows()]
    assert not table(tmp_path / "eval" / "b.jsonl", train).held_out.any()


@pytest.mark.parametrize("word", ["N/A", "error", {}, [None]])
def test_a_first_reward_that_is_none_does_not_hide_the_others(tmp_path: Path, word: object) -> None:
    made = [{key: value for key, value in row.items() if key != "rewards"} for row in rows()]
    made[0]["reward"] = word
    reward = table(tmp_path / "a.jsonl", made).reward
    assert np.isnan(reward[0])
    assert np.isfinite(reward[1:]).all()


@pytest.mark.parametrize("name", [math.nan, math.inf, ""])
def test_no_number_is_no_name_of_a_group(tmp_path: Path, name: object) -> None:
    assert table(tmp_path / "a.jsonl", [row | {"group_id": name} for row in rows()]).groups == 8


# ------------------------------------------------------------------------------ numbers that cannot be computed with


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("reward", [-1e308, math.inf, 10**400], ids=["large", "infinite", "whole"])
def test_rewards_beyond_float32_count_as_not_known(tmp_path: Path, reward: float) -> None:
    made = rows()
    for row in made[::5]:
        row["reward"], row["advantage"], row["rewards"]["acc"] = reward, reward, reward
    path = save(tmp_path / "a.jsonl", made)
    run = read([path])
    assert np.isnan(run.rollouts[0].reward[::5]).all()
    assert np.isfinite(run.rollouts[0].reward[1:5]).all()
    diagnose(run)
    answer = CliRunner().invoke(cli, ["rollouts", str(path)])
    assert answer.exit_code == 0, answer.output


def test_the_few_groups_with_all_their_rewards_do_not_speak_for_the_rest(tmp_path: Path) -> None:
    made = rows(steps=20)
    for k, row in enumerate(made):
        row["reward"] = row["rewards"] = None
        if k % 3 == 0 or k < 4:
            row["reward"] = 0.0
    run = read([save(tmp_path / "a.jsonl", made)])
    assert not run.rollouts[0].judged.any()
    assert not [found.check for found in diagnose(run).findings if found.severity is not None and found.severity >= 2]
    every = table(tmp_path / "b.jsonl", [row | ({"reward": None} if row["step"] % 2 else {}) for row in rows()])
    assert every.judged.sum() == 4, "steps without any reward do not count against those with"


# ------------------------------------------------------------------------------ files that stand twice


def test_a_copy_of_a_file_is_left_and_told(tmp_path: Path) -> None:
    save(tmp_path / "a" / "x.jsonl", rows())
    save(tmp_path / "b" / "x (1).jsonl", rows())
    (found,), ((path, why),) = read_answers([tmp_path])
    assert (len(found), found.groups) == (32, 8)
    assert path.name == "x (1).jsonl"
    assert "copy" in why


def test_equal_answers_of_two_steps_are_no_copies(tmp_path: Path) -> None:
    made = [{"prompt": "2+3?", "completion": "5", "reward": 1.0}] * 4
    for step in (1, 2):
        save(tmp_path / f"step_{step}.jsonl", made)
    (found,), left = read_answers([tmp_path])
    assert (len(found), found.groups, left) == (8, 2, ())


# ------------------------------------------------------------------------------ what is healthy


def test_letters_that_answer_questions_with_choices_are_not_empty(tmp_path: Path) -> None:
    made = rows(steps=10)
    for k, row in enumerate(made):
        row["completion"] = "ABCD"[k % 4] if row["prompt"][0] == "0" else f"Because of {k} it must be so. " * 20
    found = table(tmp_path / "a.jsonl", made)
    nothing = lengths.empty(found)
    assert nothing is not None
    assert not nothing.any()
    for row in made:
        row["reward"] = float(len(row["completion"]) > 9 and row["reward"])
    nothing = lengths.empty(table(tmp_path / "b.jsonl", made))
    assert nothing is not None
    assert nothing.mean() == 0.5, "where none of them earns more they say nothing"


def test_short_prompts_of_one_language_are_not_taken_for_those_of_the_others(tmp_path: Path) -> None:
    english = "What is the sum of the numbers {} and {}, and how many of them are in the set? It is {}."
    german = "Was ist die Hauptstadt von dem Land {} und wie viele Einwohner hat es? {} {}"
    answer = "Das ist nicht leicht. Die Hauptstadt von diesem Land ist {} und sie hat nicht mehr als {} Einwohner."
    made = []
    for k, (step, prompt) in enumerate(itertools.product(range(10), range(4))):
        asks = german if prompt == 3 else english
        said = answer if prompt == 3 else "The sum of the two is {} and that is all of it, as you can see from {}."
        made.append(
            {"step": step, "prompt": asks.format(k, step, prompt), "completion": said.format(k, step), "reward": 1.0}
        )
    seen = texts.read(table(tmp_path / "a.jsonl", made))
    assert seen.foreign is not None
    assert not seen.foreign.values.any()


@pytest.mark.parametrize(
    "prompt",
    [
        "\u6b21\u306e\u6587\u3092\u82f1\u8a9e\u306b\u3057\u3066",
        "\u00dcbersetze den Satz", "Traduisez cette phrase",
        "Antworte auf Englisch", "R\u00e9pondez en anglais",
    ],
)  # fmt: skip
def test_a_language_is_asked_for_in_many_languages(prompt: str) -> None:
    assert scripts.asked(prompt)
    assert not scripts.asked("What is trade, and who traded in 1600?")


# ------------------------------------------------------------------------------ options


def test_until_no_number_is_refused(tmp_path: Path) -> None:
    answer = CliRunner().invoke(cli, ["diagnose", str(save(tmp_path / "a.jsonl", rows())), "--until", "nan"])
    assert isinstance(answer.exception, BadRequest)


def test_a_verifier_may_answer_with_an_array_of_one_number() -> None:
    assert judged(lambda *_: np.array([0.5]), "", "", "") == {"score": 0.5}
    assert judged(lambda *_: np.float32(1), "", "", "") == {"score": 1.0}
    assert "error" in judged(lambda *_: np.array([0.5, 1.0]), "", "", "")
