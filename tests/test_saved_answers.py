"""Saved answers in every form say the same as far as the form can tell, and nothing where it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import answer_files
from answer_files import FORMS, PROMPTS, SIZE, STEPS, Sample, samples
from rlclinic.errors import CannotRead
from rlclinic.readers import read, rundir
from rlclinic.readers.answers import Settings, read_answers
from rlclinic.readers.answers.forms import form_of
from rlclinic.readers.answers.place import Place
from rlclinic.rollouts import ENDINGS, Answer, Rollouts

WEIGHTS = Settings(weights={"accuracy": 1.0, "format": 0.5}, group_size=SIZE)
TEXT = {"prompt", "text"}
TELLS: dict[str, set[str]] = {
    "verl": {*TEXT, "reward", "truth", "acc", "format"},
    "verl-table": {*TEXT, "reward"},
    "trl": {*TEXT, "reward", "accuracy", "format", "advantage"},
    "trl-table": {*TEXT, "reward", "accuracy", "format", "advantage"},
    "swift": {*TEXT, "reward", "accuracy", "format", "advantage", "truth"},
    "roll": {*TEXT, "reward", "truth", "key"},
    "nemo-rl": {*TEXT, "reward", "advantage", "tokens", "logp", "mismatch", "trained", "turns"},
    "prime-rl": {*TEXT, "reward", "accuracy", "format", "tokens", "ending", "truth", "key", "lag", "turns", "tool_calls",
                 "logp", "trained"},
    "verifiers": {*TEXT, "reward", "accuracy", "format", "cut", "truth", "key", "turns", "tool_calls"},
    "skyrl": {*TEXT, "reward", "ending", "truth"},
    "slime": {*TEXT, "reward", "tokens", "ending", "truth", "key", "lag", "logp", "trained"},
    "areal": {*TEXT, "reward", "tokens", "key", "lag"},
    "open-instruct": {"reward", "advantage", "tokens", "ending", "key", "logp", "tool_calls"},
    "tinker": {*TEXT, "reward", "accuracy", "format", "tokens", "ending", "truth", "key", "lag", "turns"},
    "art": {*TEXT, "reward", "ending", "key", "turns", "tool_calls"},
    "rllm": {*TEXT, "reward", "is_correct", "ending", "truth", "key", "turns"},
    "plain": {*TEXT, "reward", "accuracy", "format", "advantage", "tokens", "ending", "truth"},
    "plain-groups": {*TEXT, "accuracy-as-reward", "correct", "truth", "key"},
}  # fmt: skip
PARTS = {"accuracy": "accuracy", "acc": "accuracy", "correct": "accuracy", "is_correct": "accuracy", "format": "format"}


def _read(paths: list[Path], given: Settings = WEIGHTS, **more: Any) -> Rollouts:
    tables, left = read_answers(paths, settings=given, **more)
    assert not left, left
    assert len(tables) == 1
    return tables[0]


def _answers(*records: dict[str, Any], path: str = "runs/x/answers.jsonl", given: Settings = WEIGHTS) -> list[Answer]:
    place = Place.of(Path(path), given)
    form = form_of(records[0], place)
    return [one for record in records for one in form.answers(record, place)]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_says_what_the_others_say(name: str, tmp_path: Path) -> None:
    table = _read(FORMS[name](tmp_path))
    tells = TELLS[name]
    assert table.form == name
    held = {one.text: one for one in samples()}
    if "text" in tells:
        rows = [held[table.texts[row].answer] for row in range(len(table))]
    else:
        rows = samples()
        assert not table.texts
    assert len(table) == (2 * len(STEPS) if name == "verl-table" else len(held))
    assert (table.step == [one.step for one in rows]).all()
    _group_rightly(table, rows)
    known = {
        "advantage": [one.advantage for one in rows],
        "tokens": [one.tokens for one in rows],
        "lag": [1.0 for _ in rows],
        "turns": [1.0 for _ in rows],
        "tool_calls": [0.0 for _ in rows],
        "logp": [-0.5 for _ in rows],
        "trained": [1.0 for _ in rows],
        "worst_mismatch": [1.0 for _ in rows],
        "mismatch": [(0.1 * (one.tokens - 1) + 1.0) / one.tokens for one in rows],
    }
    for column, values in known.items():
        found = getattr(table, column)
        if column.removeprefix("worst_") in tells:
            assert found == pytest.approx(values), column
        else:
            assert np.isnan(found).all(), column
    parts = {part: PARTS[part] for part in tells if part in PARTS}
    assert set(table.parts) == set(parts)
    for part, attribute in parts.items():
        assert (table.parts[part] == [getattr(one, attribute) for one in rows]).all(), part
    rewards = [one.accuracy if "accuracy-as-reward" in tells else one.reward for one in rows]
    assert table.reward == pytest.approx(rewards)
    ended = {True: "cut", False: "stopped" if "ending" in tells else ""}
    says = {"ending", "cut"} & tells
    assert [ENDINGS[code] for code in table.ending] == [ended[one.cut] if says else "" for one in rows]
    assert (table.key >= 0).all() == (table.key >= 0).any() == ("key" in tells)
    assert table.held_out.all() == table.held_out.any() == (name in ("skyrl", "verl-table"))
    for row, one in enumerate(rows) if "text" in tells else ():
        assert table.texts[row].prompt == one.prompt
        assert table.texts[row].truth == (one.truth if "truth" in tells else "")


def _group_rightly(table: Rollouts, rows: list[Sample]) -> None:
    names: dict[tuple[int, int], np.int64] = {}
    for row, one in enumerate(rows):
        assert names.setdefault((one.step, one.group), table.group[row]) == table.group[row] >= 0
    assert len(set(names.values())) == len(names) == table.groups
    if table.form != "verl-table":
        assert (table.size == SIZE).all()
        assert table.groups == PROMPTS * len(STEPS)


@pytest.mark.parametrize("name", FORMS)
def test_the_files_of_a_form_are_found_in_the_directory_of_a_run(name: str, tmp_path: Path) -> None:
    written = FORMS[name](tmp_path)
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": step, "loss": 0.1, "reward": 0.5}) + "\n" for step in range(9))
    )
    found = rundir.find(tmp_path)
    assert sorted(found.rollouts) == sorted(written)
    assert [one.name for one in found.logs] == ["metrics.jsonl"]
    tables, left = read_answers([tmp_path], settings=WEIGHTS)
    assert [table.form for table in tables] == [name]
    assert [path.name for path, _ in left] == ["metrics.jsonl"]


@pytest.mark.parametrize("name", FORMS)
def test_one_file_of_a_form_is_no_log(name: str, tmp_path: Path) -> None:
    run = read([FORMS[name](tmp_path)[0]])
    assert [table.form for table in run.rollouts] == [name]
    assert not run.columns


def test_forms_that_hold_only_a_part_of_a_batch_say_so(tmp_path: Path) -> None:
    trace = {"nodes": [{"message": {"role": "user", "content": "a"}}], "rewards": {"x": 1.0}}
    for record, path, filtered, partial in (
        (trace, "rollouts/step_1/train/effective/traces.jsonl", True, False),
        (trace, "rollouts/step_1/train/all/traces.jsonl", False, False),
        (
            {"content": [["a", "b"]], "idx": 0, "rewards": [1], "filtered_rewards": [1]},
            "train_data_step1.jsonl",
            True,
            False,
        ),
        ({"global_step": 1, "text": "a b", "reward": 1.0}, "generated_samples_1_0123456789.table.json", False, True),
    ):
        shape = form_of(record, Place.of(Path(path), WEIGHTS)).shape
        assert (shape.filtered, shape.partial) == (filtered, partial), path


def test_settings_beside_the_log_say_what_the_files_do_not(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("trainer:\n  validation_data_dir: out/held\nreward_key: all\n")
    for folder in ("held", "kept"):
        (tmp_path / "out" / folder).mkdir(parents=True)
        row: dict[str, Any] = {"input": folder, "output": "b", "score": 1.0, "step": 3}
        (tmp_path / "out" / folder / "3.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "rollout_data").mkdir()
    row = {"group_index": 0, "prompt": "a", "response": "b", "response_length": 3, "reward": {"acc": 1.0, "all": 0.5}}
    (tmp_path / "rollout_data/3.jsonl").write_text(json.dumps(row) + "\n")
    tables = {table.form: table for table in read([tmp_path]).rollouts}
    held = {text.prompt: bool(tables["verl"].held_out[at]) for at, text in tables["verl"].texts.items()}
    assert held == {"held": True, "kept": False}
    assert tables["slime"].reward.tolist() == [0.5]


def test_rows_of_art_in_parquet() -> None:
    said = [{"role": "user", "content": "a", "tool_calls": None, "trainable": False},
            {"role": "assistant", "content": None, "tool_calls": '[{"name": "f", "arguments": "{}"}]', "trainable": True},
            {"role": "tool", "content": "5", "trainable": False},
            {"role": "assistant", "content": "b", "tool_calls": None, "trainable": True}]  # fmt: skip
    row = {"group_index": 3, "reward": 0.5, "metrics": '{"x": 1}', "messages": said}
    one = _answers(row, path="trajectories/val/0007.parquet")[0]
    assert (one.prompt, one.text, one.turns, one.tool_calls) == ("a", "f({})\nb", 2.0, 1.0)
    assert (one.step, one.reward, one.held_out) == (7.0, 0.5, True)


def test_a_prompt_drawn_twice_and_a_resume_make_groups_of_the_usual_size(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    rows = [
        {"step": step, "prompt_id": group, "prompt": f"p{group}", "completion": f"{at}", "reward": float(at)}
        for step in (1, 2, 3, 4, 3, 4, 5) for group in range(3) for at in range(4)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = _read([path])
    assert table.groups == 21
    assert set(table.size) == {4}


def test_evaluations_are_told_by_the_record_the_file_or_the_folder(tmp_path: Path) -> None:
    verl = {"input": "a", "output": "b", "score": 1.0, "step": 3}
    for path, held_out in (
        ("run/validation_data/3.jsonl", True), ("run/val/3.jsonl", True), ("run/rollout_data/3.jsonl", False),
        ("test/run/rollout_data/3.jsonl", False), ("run/test_3.jsonl", True), ("run/test_run_rollouts.jsonl", False),
        ("run/eval-rollout/7/3.jsonl", True), ("run/step_3/eval/all/traces.jsonl", True),
        ("eval/run/step_3/train/all/traces.jsonl", False), ("run/held_out.jsonl", True), ("run/latest.jsonl", False),
    ):  # fmt: skip
        assert _answers(verl, path=path)[0].held_out is held_out, path
    stated = Settings(evaluations="held")
    assert _answers(verl, path="run/held/3.jsonl", given=stated)[0].held_out
    assert not _answers(verl, path="run/kept/3.jsonl", given=stated)[0].held_out
    own = {"prompt": "a", "completion": "b", "reward": 1.0, "step": 3}
    assert [_answers({**own, "split": split})[0].held_out for split in ("train", "eval", "test")] == [False, True, True]
    assert _answers({**own, "is_eval": True})[0].held_out
    assert not _answers({**own, "split": "train"}, path="run/eval/a.jsonl")[0].held_out


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("a/120.jsonl", 120), ("a/step-100.jsonl", 100), ("a/train_data_step7.jsonl", 7),
        ("a/global_step_12_evals/x.jsonl", 12),
        ("a/iteration_000012/train_rollouts.jsonl", 12), ("a/completions_00020.parquet", 20), ("a/test_9.jsonl", 9),
        ("a/rollouts_30.jsonl.gz", 30), ("rollouts/step_4/train/all/traces.jsonl", 4), ("a/gsm8k.jsonl", None),
        ("seed42/answers.jsonl", None), ("a/rollouts_rank0.jsonl", None), ("a/20260812.jsonl", None),
        ("a/completions_226_a52f2a1e3a6b.table.json", None), ("qwen2.5/rollouts.jsonl", None), ("a/part-00003.jsonl", None),
        ("train_step_5_epoch_2/episode_hash1_id2.json", 5),
    ],
)  # fmt: skip
def test_a_step_is_read_off_names_that_state_one(path: str, step: float | None) -> None:
    assert Place.of(Path(path), Settings()).step == step


def test_a_reward_is_never_guessed() -> None:
    own = {"prompt": "a", "completion": "b", "step": 1}
    assert _answers({**own, "correct": True})[0].reward == 1.0
    assert _answers({**own, "rewards": {"x": 2.0}})[0].reward == 2.0
    assert _answers({**own, "reward": {"total": 3.0, "x": 1.0}})[0].reward == 3.0
    assert _answers({**own, "reward": 1, "score": 7})[0].reward == 1.0
    assert _answers({**own, "reward": "0.5"})[0].reward == 0.5
    assert _answers({**own, "reward": None, "correct": True})[0].reward is None
    none = _answers({**own, "correct": True, "format_score": 1.0, "difficulty": 3, "latency": 0.1})[0]
    assert none.reward is None
    assert none.parts == {"correct": 1.0, "format_score": 1.0}
    two = {**own, "rewards": {"accuracy": 1.0, "format": 1.0}}
    assert _answers(two)[0].reward == 1.5
    assert _answers(two, given=Settings())[0].reward is None
    place = Place.of(Path("a.jsonl"), Settings())
    list(form_of(two, place).answers(two, place))
    assert any("--columns reward=" in one for one in place.said)


def test_numbers_that_are_no_judgement_are_no_parts() -> None:
    own = {"prompt": "a", "completion": "b", "reward": 1.0, "length_penalty": -0.1, "style": 0.2, "exact_match": False}
    other = {"n_correct": 3, "mean_reward": 0.5, "length": 12, "latency_ms": 3, "temperature": 1.0, "seed": 1, "epoch": 2,
             "pred_value": 4.0, "logprob": -1.0, "note": "1.0", "kl": 0.1}  # fmt: skip
    assert _answers({**own, **other})[0].parts == {"length_penalty": -0.1, "style": 0.2, "exact_match": 0.0}


def test_parts_of_trl_are_weighed_and_empty_ones_do_not_count() -> None:
    row = {"step": "7", "prompt": "a", "completion": "b", "accuracy": 1.0, "format": None, "length": float("nan"),
           "note": "x", "advantage": 0.5}  # fmt: skip
    path = "completions/completions_00007.parquet"
    one = _answers(row, path=path)[0]
    assert (one.step, one.reward, one.advantage) == (7.0, 1.0, 0.5)
    assert _answers({**row, "accuracy": None}, path=path)[0].reward is None
    named = Settings(weights={"accuracy": 2.0}, parts=frozenset({"accuracy"}))
    one = _answers({**row, "extracted": 9.0}, path=path, given=named)[0]
    assert (one.reward, one.parts) == (2.0, {"accuracy": 1.0})
    old = {"step": "7", "prompt": "a", "completion": "b", "reward": 0.25}
    assert _answers(old, path="media/table/completions_1_abcdef0123.table.json")[0].reward == 0.25


def test_a_reward_of_slime_with_several_entries_needs_its_key() -> None:
    row = {"group_index": 0, "prompt": "a", "response": "b", "response_length": 3, "loss_mask": [1, 0, 1],
           "rollout_log_probs": [-1.0, -9.0, -3.0], "reward": {"acc": 1.0, "all": 0.5}, "status": "aborted"}  # fmt: skip
    unknown = _answers(row)[0]
    assert (unknown.reward, unknown.parts, unknown.ending) == (None, {"acc": 1.0, "all": 0.5}, "aborted")
    assert [unknown.logp, unknown.trained] == pytest.approx([-2.0, 2 / 3])
    assert _answers(row, given=Settings(reward_key="all"))[0].reward == 0.5
    assert _answers({**row, "remove_sample": True})[0].trained == 0.0


def test_conversations_become_texts_and_calls_of_tools_are_counted() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}
    talk = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "2+3?"}]}]
    rest = [call, {"role": "tool", "content": "5"}, {"role": "assistant", "content": "it is 5"}]
    whole = _answers({"messages": [*talk, *rest], "reward": 1.0})[0]
    apart = _answers({"prompt": talk, "completion": rest, "reward": 1.0})[0]
    for one in (whole, apart):
        assert one.prompt == "system: be brief\nuser: 2+3?"
        assert one.text == "add({})\nit is 5"
        assert (one.turns, one.tool_calls) == (2.0, 1.0)


def test_messages_of_nemo_rl_take_turns() -> None:
    row = {"rewards": [1.0], "idx": 0}
    one = _answers({**row, "content": [["system", "asked", "said", "tool", "then"]]}, path="train_data_step3.jsonl")[0]
    assert (one.step, one.prompt, one.text, one.turns) == (3.0, "system\nasked", "said\nthen", 2.0)
    alone = [_answers({**row, "content": ["said"], "idx": at}, path="train_data_step3.jsonl")[0] for at in range(6)]
    assert [one.key for one in alone] == [0, 0, 0, 1, 1, 1]
    assert {one.prompt for one in alone} == {None}
    kept = _answers({**row, "content": [["a", "b"]], "filtered_rewards": [0.25]})[0]
    assert kept.reward == 0.25
    masked = {**row, "token_loss_mask": [[0, 1, 1, 0]], "input_lengths": [3], "sample_loss_mask": [0.0],
              "generation_logprobs": [[0, -1, -1, 0]], "prev_logprobs": [[0, -1, -2, 0]],
              "content": [["a", "b"]]}  # fmt: skip
    out = _answers(masked)[0]
    assert (out.trained, out.mismatch, out.logp, out.tokens) == (0.0, None, -1.0, 2.0)


def test_traces_of_prime_rl_end_as_their_stop_or_last_call_says() -> None:
    base = {"nodes": [{"message": {"role": "user", "content": "a"}}, {"message": {"role": "assistant", "content": "b"},
                                                                      "sampled": True}], "rewards": {"x": 1.0}}  # fmt: skip
    for stop, call, ended in (("max_turns", "stop", "cut"), ("agent_completed", "length", "cut"), ("error", None, "aborted"),
                              ("agent_completed", "stop", "stopped"), (None, None, "")):  # fmt: skip
        trace = {**base, "stop_condition": stop, "calls": [{"finish_reason": call, "usage": {"completion_tokens": 3}}]}
        one = _answers(trace, path="rollouts/step_2/train_rollouts.jsonl")[0]
        assert (one.ending, one.tokens, one.reward, one.step, one.lag) == (ended, 3.0, 1.0, 2.0, None), stop
    assert _answers({"task": {}, "traces": [], "ok": False}) == []


def test_several_answers_in_a_line_take_lists_beside_them() -> None:
    line = {"problem": "a", "responses": ["x", "y"], "rewards": [1.0, 0.0], "finish_reasons": ["stop", "length"], "step": 4,
            "ground_truth": "x", "mean_reward": 0.5}  # fmt: skip
    first, second = _answers(line)
    assert [first.text, first.reward, first.ending, first.truth] == ["x", 1.0, "stopped", "x"]
    assert [second.text, second.reward, second.ending] == ["y", 0.0, "cut"]
    assert first.key == second.key is not None
    assert first.parts == {}
    again = _answers(line, line)
    assert again[0].key != again[2].key


def test_a_batch_in_a_line_has_prompts_of_its_own() -> None:
    line = {"step": 3, "prompts": ["a", "a", "b", "b"], "completions": ["1", "2", "3", "4"], "rewards": [0.0, 1.0, 1.0, 1.0],
            "ground_truths": ["1", "1", "3", "3"], "accuracy": [0, 1, 1, 1]}  # fmt: skip
    found = _answers(line)
    assert [one.prompt for one in found] == ["a", "a", "b", "b"]
    assert [one.reward for one in found] == [0.0, 1.0, 1.0, 1.0]
    assert [one.truth for one in found] == ["1", "1", "3", "3"]
    assert [one.parts for one in found] == [{"accuracy": value} for value in (0.0, 1.0, 1.0, 1.0)]
    assert {one.key for one in found} == {None}
    assert {one.step for one in found} == {3.0}
    same = _answers({"step": 3, "prompt": ["a", "b"], "response": ["1", "2"], "reward": [0.5, 1.0]})
    assert [(one.prompt, one.text, one.reward) for one in same] == [("a", "1", 0.5), ("b", "2", 1.0)]


@pytest.mark.parametrize(
    "record",
    [
        {"question": "a", "answer": "b"},
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {"step": 1, "loss": 0.3, "reward": 0.5},
        {"text": "a book"},
        {"step": 3, "text": "a sample"},
        {"step": 3, "reward": 0.5, "kl": 0.1, "actor/pg_loss": 0.2, "prompt": "a", "completion": "a sample"},
        {"question": "a", "answer": "b", "difficulty": 3},
        {"a": 1},
        {},
    ],
)
def test_a_data_set_or_a_log_is_no_saved_answer(record: dict[str, Any]) -> None:
    with pytest.raises(CannotRead, match=r"--columns prompt=NAME") as problem:
        form_of(record, Place.of(Path("data.jsonl"), Settings()))
    assert all(key in str(problem.value) for key in record)


def test_columns_name_a_form_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"q": "a", "sampled": {"words": f"b{at}"}, "r": at / 2, "it": 3, "style": 1.0} for at in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not read_answers([path])[0]
    columns = {"prompt": "q", "completion": "sampled.words", "reward": "r", "step": "it"}
    table = _read([path], columns=columns)
    assert table.reward.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert table.step.tolist() == [3.0] * 4
    assert table.texts[2].answer == "b2"
    assert set(table.parts) == {"style"}


WORDS = [
    "step", "prompt", "completion", "reward", "rewards", "advantage", "input", "output", "score", "content",
    "idx", "traces", "nodes", "task", "trajectories", "messages", "group_index", "response", "loss_mask",
    "responses", "scores", "steps", "token_loss_mask", "input_1", "output_1", "iteration", "group_idx",
    "traj_idx", "total_reward", "message", "role", "sampled", "calls", "usage", "x", "env_extras",
    "input_prompt", "output_response", "messages_and_choices", "training_step", "episode_id", "head_version",
    "tail_version", "task_id", "prompt_idx", "response_tokens", "example_id", "metrics"
]  # fmt: skip


def _value(draw: Random, depth: int = 0) -> Any:
    kind = draw.randrange(9 if depth < 3 else 6)
    if kind < 6:
        return (None, True, 10**400, float("nan"), draw.choice(["", "7", "stop", "assistant", "\ud800"]), 3)[kind]
    if kind == 6:
        return [_value(draw, depth + 1) for _ in range(draw.randrange(3))]
    return {draw.choice(WORDS): _value(draw, depth + 1) for _ in range(draw.randrange(5))}


@pytest.mark.parametrize("name", FORMS)
def test_no_record_breaks_a_form(name: str, tmp_path: Path) -> None:
    draw = Random(name)
    path = FORMS[name](tmp_path)[0]
    for _ in range(150):
        record = json.loads(path.read_text().splitlines()[0]) if path.suffix == ".jsonl" else {}
        for key in draw.sample([*record, *draw.sample(WORDS, 3)], 2):
            record[key] = _value(draw)
        place = Place.of(path, Settings())
        try:
            found = [*form_of(record, place).answers(record, place)]
        except CannotRead:
            continue
        for one in found:
            numbers = (one.step, one.reward, one.advantage, one.tokens, one.lag, one.turns, one.tool_calls, one.logp)
            values = (*numbers, one.trained, one.mismatch, *(one.parts or {}).values())
            assert all(value is None or type(value) in (int, float) for value in values), record
            assert all(value is None or isinstance(value, str) for value in (one.prompt, one.text, one.truth)), record
            assert one.key is None or isinstance(one.key, (str, int)), record


def test_later_records_may_lack_or_change_what_the_first_had(tmp_path: Path) -> None:
    for name, write in FORMS.items():
        for path in write(tmp_path / name)[:1]:
            if path.suffix != ".jsonl":
                continue
            first, *_ = path.read_text().splitlines()
            record = json.loads(first)
            broken = [{}, dict.fromkeys(record), dict.fromkeys(record, "x"), {key: [[]] for key in record}]
            path.write_text("".join(json.dumps(one) + "\n" for one in (record, *broken, record)))
            tables, _ = read_answers([path], settings=WEIGHTS)
            assert len(tables) == 1, name
            assert np.isfinite(tables[0].step[0])


def test_hostile_texts_take_no_time() -> None:
    long = "step" * 250_000
    names = ("prompt", "completion", "step", "reward", "finish_reason", "group", "truth", "split", long[:9_000])
    own: dict[str, Any] = {**dict.fromkeys(names, long), "advantage": 1.0}
    one = _answers(own, path=f"{'a-' * 100}.jsonl")[0]
    assert (one.reward, one.step, one.ending) == (None, None, "")
    assert len(str(one.key)) < 100


def test_own_rollouts_of_the_module_are_whole() -> None:
    assert len(samples()) == len({one.text for one in samples()}) == PROMPTS * SIZE * len(STEPS)
    assert set(TELLS) == set(answer_files.FORMS)
