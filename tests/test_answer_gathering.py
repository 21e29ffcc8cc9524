"""Saved answers become tables: groups, fair thinning, the order of files, sets of the same answers, the user's own names."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.cli import cli
from rlclinic.errors import BadRequest, CannotRead, UnknownName
from rlclinic.readers import read
from rlclinic.readers.answers import parse_columns, read_answers
from rlclinic.readers.answers.gather import Gatherer, Shape, grouped
from rlclinic.rollouts import Answer, Rollouts

gather = importlib.import_module("rlclinic.readers.answers.gather")


def answers(steps: int = 6, prompts: int = 5, group: int = 4, seed: int = 0) -> list[Answer]:
    chance = random.Random(seed)
    return [
        Answer(
            step, f"prompt {step * prompts + p}", f"answer {chance.randrange(30)}", chance.randrange(2) / 1.0,
            {"format": chance.random()}, tokens=chance.randrange(9),
        )
        for step in range(steps) for p in range(prompts) for _ in range(group)
    ]  # fmt: skip


def table(rows: Iterable[Answer], words: int = gather.WORDS) -> Rollouts:
    made = Gatherer(Shape("x"), "x", words=words)
    for one in rows:
        made.add(one)
    return made.table()


def lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def plain(rows: Sequence[Answer]) -> list[dict[str, Any]]:
    return [{"step": one.step, "prompt": one.prompt, "completion": one.text, "reward": one.reward} for one in rows]


# ---------------------------------------------------------------- the table


def test_what_is_not_said_is_nan_and_what_no_row_says_costs_nothing() -> None:
    rows = [
        Answer(1, "a", "b", 1.0),
        Answer(2, "a", None, None, {"f": 2.0}, same=5),
        Answer(3, None, "b", 0.5, key="k"),
    ]
    made = table(rows)
    assert made.step.tolist() == [1, 2, 3]
    assert np.isnan(made.reward).tolist() == [False, True, False]
    assert np.isnan(made.parts["f"]).tolist() == [True, False, True]
    assert made.prompt.tolist() == [0, 0, -1]
    assert made.answer.tolist() == [0, 1, 0]
    assert made.key.tolist() == [-1, -1, 0]
    assert made.group.tolist() == [0, 1, 2]
    assert made.lag.strides == (0,)
    assert np.isnan(made.lag).all()


def test_values_that_are_no_numbers_are_nan() -> None:
    made = table([Answer(1, "a", "b", "x", {"f": "y", "g": 10**400}), Answer(1, "a", "c", 1.0, {"f": 1.0})])  # type: ignore[arg-type, dict-item]
    assert np.isnan(made.reward[0])
    assert made.reward[1] == 1.0
    assert np.isnan(made.parts["f"][0])
    assert not np.isfinite(made.parts["g"]).any()


def test_a_prompt_drawn_twice_is_two_groups_where_the_order_is_known() -> None:
    step = np.zeros(16)
    prompt = np.repeat([0, 1, 0, 2], 4)
    missing = np.full(16, -1)
    held_out = np.zeros(16, dtype=bool)
    assert grouped(step, held_out, missing, prompt, ordered=True).tolist() == np.repeat([0, 1, 2, 3], 4).tolist()
    assert grouped(step, held_out, missing, prompt, ordered=False).tolist() == np.repeat([0, 1, 0, 2], 4).tolist()
    assert grouped(step, held_out, prompt, missing, ordered=True).tolist() == np.repeat([0, 1, 0, 2], 4).tolist()


def test_uneven_groups_are_not_split() -> None:
    sizes = [2, 4, 3, 6, 5, 4, 2]
    prompt = np.repeat(np.arange(7), sizes)
    many = len(prompt)
    found = grouped(np.zeros(many), np.zeros(many, dtype=bool), np.full(many, -1), prompt, ordered=True)
    assert found.tolist() == prompt.tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(-1, 2), st.integers(-1, 3)), max_size=40))
@settings(max_examples=40, deadline=None)
def test_groups_are_what_they_are_defined_to_be(rows: list[tuple[int, bool, int, int]]) -> None:
    step, held_out, key, prompt = (np.array([row[k] for row in rows]) for k in range(4))
    found = grouped(
        step.astype(float), held_out.astype(bool), key.astype(np.int64), prompt.astype(np.int64), ordered=False
    )
    names: dict[tuple[object, ...], int] = {}
    for (at, held, name, asked), number in zip(rows, found.tolist(), strict=True):
        if name < 0 and asked < 0:
            assert number == -1
        else:
            assert number == names.setdefault((at, held, name, -1 if name >= 0 else asked), len(names))


@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_the_order_of_rows_does_not_matter_to_groups(chance: random.Random) -> None:
    rows = answers()
    whole = table(rows)
    mixed = list(answers())
    chance.shuffle(mixed)
    other = table(mixed)
    assert sorted(whole.means(whole.reward)) == sorted(other.means(other.reward))
    assert sorted(zip(whole.group_step, whole.dead, strict=True)) == sorted(
        zip(other.group_step, other.dead, strict=True)
    )


@given(st.integers(1, 119))
@settings(max_examples=6, deadline=None)
def test_splitting_files_does_not_matter(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    place = tmp_path_factory.mktemp("split")
    rows = plain(answers())
    (whole,), _ = read_answers([lines(place / "a.jsonl", rows)])
    (parts,), _ = read_answers([lines(place / "b" / "1.jsonl", rows[:cut]), lines(place / "b" / "2.jsonl", rows[cut:])])
    assert parts.files == 2
    assert parts.source == str(place / "b")
    for name in ("step", "group", "prompt", "answer", "reward"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


# ---------------------------------------------------------------- thinning


def test_words_are_those_of_whole_groups_evenly_over_the_steps() -> None:
    made = table(answers(steps=60, prompts=40, group=4), words=400_000)
    kept = np.array(sorted(made.texts))
    assert 400 < len(kept) < 4_000
    sizes = np.bincount(made.group[kept])
    assert set(sizes.tolist()) == {0, 4}, "all answers of a group or none"
    share = np.bincount(made.step[kept].astype(int), minlength=60) / 160
    assert share.std() < 0.12
    early, late = share[:30].mean(), share[30:].mean()
    assert abs(early - late) < 0.1


def test_rows_are_thinned_by_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "MOST_ANSWERS", 6_000)
    monkeypatch.setattr(gather, "TOGETHER", 256)
    rows = answers(steps=60, prompts=50, group=4)
    made = table(rows)
    assert 2_500 < len(made) < 6_300
    assert made.rows == 12_000
    assert set(made.size.tolist()) == {4}
    assert "are kept" in made.warnings[0]
    early = int((made.step < 30).sum())
    assert abs(early / len(made) - 0.5) < 0.06
    assert all(
        made.step[row] * 50 <= int(text.prompt.split()[1]) < made.step[row] * 50 + 50
        for row, text in made.texts.items()
    )


def test_prompts_with_a_long_common_beginning_are_drawn_one_by_one() -> None:
    same = "You are helpful. " * 400
    rows = [Answer(1, f"{same}{p}", f"answer {p} {k}", 1.0) for p in range(300) for k in range(2)]
    made = table(rows, words=600_000)
    kept = {made.group[row] for row in made.texts}
    assert 30 < len(kept) < 280


def test_one_endless_answer_does_not_push_out_the_others() -> None:
    rows = [*answers(), Answer(1, "p", "a" * 900_000, 1.0)]
    made = table(rows, words=1 << 20)
    assert len(made.texts) == 120
    assert "1 very long" in made.warnings[0]


def test_whose_words_are_wanted_are_kept() -> None:
    made = Gatherer(Shape("x"), "x", words=20_000, wanted=lambda one: one.step == 5)
    for one in answers(steps=40, prompts=20):
        made.add(one)
    found = made.table()
    assert sum(found.step[row] == 5 for row in found.texts) == 80


_PRINTS = """
import sys, zlib
from pathlib import Path
from rlclinic.readers.answers import read_answers
(t,), _ = read_answers([Path(sys.argv[1])], words=100_000)
print([zlib.crc32(x.tobytes()) for x in (t.group, t.prompt, t.answer, t.key)], sorted(t.texts))
"""


def test_no_number_depends_on_the_seed_of_hashes(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", plain(answers(steps=30, prompts=20)))
    (made,), _ = read_answers([path], words=100_000)
    marks = [zlib.crc32(one.tobytes()) for one in (made.group, made.prompt, made.answer, made.key)]
    own_seed = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", _PRINTS, str(path)], env=own_seed, capture_output=True, check=True)
    assert done.stdout.decode().strip() == f"{marks} {sorted(made.texts)}"


# ---------------------------------------------------------------- files and sets


def verl(step: int, many: int = 8) -> list[dict[str, Any]]:
    return [{"input": f"q{k // 4}", "output": f"a{k}", "gts": "1", "score": k % 2, "step": step} for k in range(many)]


def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for step in (1, 2, 9, 10, 100):
        lines(tmp_path / "dump" / f"{step}.jsonl", verl(step))
    (made,), left = read_answers([tmp_path / "dump"])
    assert np.unique(made.step, return_index=True)[1].tolist() == [0, 8, 16, 24, 32]
    assert (made.files, made.source, left) == (5, str(tmp_path / "dump"), ())


def test_sets_stay_apart_and_the_largest_comes_first(tmp_path: Path) -> None:
    rows = [{**row, "advantage": 0.0} for row in plain(answers())]
    lines(tmp_path / "rollouts.jsonl", plain(answers(steps=4)))
    for step in range(6):
        at = [row for row in rows if row["step"] == step]
        shown = {"columns": list(at[0]), "data": [list(row.values()) for row in at]}
        name = f"completions_{step * 33}_ab{step}c9f.table.json"
        (tmp_path / name).write_text(json.dumps(shown), encoding="utf-8")
    found, left = read_answers([tmp_path])
    assert [(len(one), one.files) for one in found] == [(120, 6), (80, 1)]
    assert not left


def test_a_table_that_repeats_those_before_it_counts_once(tmp_path: Path) -> None:
    data: list[list[object]] = []
    for step in range(4):
        data += [[step, "p", "same", 1.0, 0.0], [step, "p", "same", 1.0, 0.0]]
        shown = {"columns": ["step", "prompt", "completion", "reward", "advantage"], "data": data}
        (tmp_path / f"completions_{step}_a.table.json").write_text(json.dumps(shown), encoding="utf-8")
    (made,), _ = read_answers([tmp_path])
    assert made.step.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_answers_of_training_come_before_more_of_an_evaluation(tmp_path: Path) -> None:
    held_out = [
        {"input_prompt": f"q{k}", "output_response": "a", "score": 1.0, "stop_reason": "stop"} for k in range(50)
    ]
    lines(tmp_path / "dumped_evals" / "global_step_5_evals" / "math.jsonl", held_out)
    lines(tmp_path / "run" / "train.jsonl", plain(answers(steps=2)))
    found, _ = read_answers([tmp_path])
    assert [len(one.train) for one in found] == [40, 0]


def test_what_is_no_saved_answer_is_left_with_the_reason(tmp_path: Path) -> None:
    lines(tmp_path / "rollouts.jsonl", plain(answers()))
    lines(tmp_path / "log.jsonl", [{"step": 1, "loss": 0.5, "reward": 1.0, "num_tokens": 5}])
    lines(tmp_path / "other.jsonl", [{"a": 1, "b": 2}])
    (tmp_path / "batch.pkl").write_bytes(b"\x80\x04.")
    (tmp_path / "weights.pt").write_bytes(b"PK\x03\x04nothing")
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "trainer_state.json").write_text("{}", encoding="utf-8")
    found, left = read_answers([tmp_path])
    reasons = {path.name: why for path, why in left}
    assert [len(one) for one in found] == [120]
    assert sorted(reasons) == ["batch.pkl", "empty.csv", "log.jsonl", "other.jsonl", "weights.pt"]
    assert "never opened" in reasons["batch.pkl"]
    assert "metrics" in reasons["log.jsonl"]
    assert not any(str(tmp_path) in why for why in reasons.values())


def test_a_record_that_does_not_fit_costs_only_itself(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [*verl(1), {"input": ["x"], "output": {"y": 1}}, {}, *verl(2)]
    (made,), left = read_answers([lines(tmp_path / "1.jsonl", rows)])
    assert 16 <= len(made) <= 18
    assert made.rows == len(made)
    assert not left


def test_many_files_of_one_reason_are_told_once(tmp_path: Path) -> None:
    for k in range(40):
        lines(tmp_path / f"{k}.jsonl", [{"a": 1}])
    found, left = read_answers([tmp_path])
    assert not found
    assert len(left) == 1
    assert "39 more" in left[0][1]


def test_a_damaged_end_is_told_beside_what_was_read(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", plain(answers()))
    path.write_bytes(path.read_bytes() + b'{"step": 9, "prompt": "cut')
    (made,), left = read_answers([path])
    assert len(made) == 120
    assert made.warnings == ("a.jsonl: the last line is cut off and left",)
    assert not left


# ---------------------------------------------------------------- the user's own names


def test_columns_are_pairs_of_our_names_and_theirs() -> None:
    asked = "prompt=q, completion=meta.out,reward = r,part.format=fmt,held_out=test"
    assert parse_columns(asked) == {
        "prompt": "q", "completion": "meta.out", "reward": "r", "part.format": "fmt", "held_out": "test",
    }  # fmt: skip
    for wrong in ("", ",", "prompt", "prompt=", "=q", "prompt=a,prompt=b"):
        with pytest.raises(BadRequest):
            parse_columns(wrong)
    with pytest.raises(UnknownName) as error:
        parse_columns("promt=q")
    assert error.value.choices[0] == "prompt"


def own() -> list[dict[str, Any]]:
    return [
        {"at": one.step, "q": one.prompt, "meta": {"out": one.text}, "r": one.reward, "fmt": 1, "test": one.step == 3}
        for one in answers()
    ]


def test_a_form_of_ones_own(tmp_path: Path) -> None:
    path = lines(tmp_path / "mine.jsonl", own())
    asked = parse_columns("step=at,prompt=q,completion=meta.out,reward=r,part.format=fmt,held_out=test")
    (made,), _ = read_answers([path], columns=asked)
    assert (len(made), made.groups) == (120, 30)
    assert (made.parts["format"] == 1).all()
    assert "fmt" not in made.parts
    assert len(made.evaluation) == 20
    assert made.texts[0].answer.startswith("answer ")


def test_a_column_that_no_file_has_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    path = lines(tmp_path / "mine.jsonl", own())
    with pytest.raises(CannotRead) as error:
        read_answers([path], columns={"prompt": "q", "completion": "meta.out", "reward": "rr", "step": "att"})
    assert "'rr'" in error.value.wanted or "'att'" in error.value.wanted
    assert {"at", "q", "r"} <= set(error.value.choices)


def test_a_column_may_be_absent_from_the_first_rows(tmp_path: Path) -> None:
    rows = own()
    del rows[0]["r"], rows[1]["r"]
    (made,), _ = read_answers(
        [lines(tmp_path / "mine.jsonl", rows)],
        columns={"prompt": "q", "completion": "meta.out", "reward": "r", "step": "at"},
    )
    assert np.isnan(made.reward).tolist() == [True, True, *[False] * 118]


def test_the_command_takes_answers_without_a_log(tmp_path: Path) -> None:
    path = lines(tmp_path / "mine.jsonl", own())
    asked = ["--columns", "step=at,prompt=q,completion=meta.out,reward=r"]
    done = CliRunner().invoke(cli, ["diagnose", "--rollouts", str(path), *asked, "--format", "json"])
    assert done.exit_code == 0, done.output
    assert '"role": "rollouts"' in done.output
    for wrong in (["--rollouts", str(tmp_path / "none")], []):
        assert isinstance(CliRunner().invoke(cli, ["diagnose", *wrong]).exception, (CannotRead, BadRequest))


def test_answers_beside_a_log_and_answers_that_cannot_be_read(tmp_path: Path) -> None:
    log = lines(tmp_path / "log" / "metrics.jsonl", [{"step": k, "reward": 0.1 * k, "kl": 0.1} for k in range(20)])
    run = read([log], rollouts=[lines(tmp_path / "dump" / "1.jsonl", verl(1))])
    assert [len(one) for one in run.rollouts] == [8]
    assert "reward.mean" in run.columns
    with pytest.raises(CannotRead):
        read([log], rollouts=[lines(tmp_path / "other.jsonl", [{"a": 1}])])


def test_nothing_of_the_answers_is_in_a_warning(tmp_path: Path) -> None:
    secret = "sk-verysecretkey"
    rows = [{**row, "output": secret, "input": secret} for row in chain(verl(1), verl(2))]
    path = lines(tmp_path / "1.jsonl", rows)
    path.write_text(path.read_text() + f'{{"input": "{secret}", "out\n{secret}\n')
    (made,), left = read_answers([path])
    assert secret not in str(made.warnings) + str(left) + repr(made)
