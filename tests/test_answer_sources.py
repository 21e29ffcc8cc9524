"""Which files of saved answers are read, which of them are of one run, and what the user's own columns do to both."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest, CannotRead
from rlclinic.model import Run
from rlclinic.readers import parse_columns, read
from rlclinic.readers.answers import read_answers
from rlclinic.readers.answers.values import is_part

COLUMNS = "prompt=instr,completion=gen,reward=pts,step=it"


def lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answers(steps: Sequence[int], mark: str = "", prompts: int = 3) -> list[dict[str, Any]]:
    return [
        {"step": s, "prompt": f"What is {p} + 1?", "completion": f"{mark}{p + k}", "reward": float(k == 1)}
        for s in steps for p in range(prompts) for k in range(4)
    ]  # fmt: skip


def odd(steps: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "it": a["step"],
            "instr": a["prompt"],
            "gen": a["completion"],
            "pts": a["reward"],
            "ntok": len(a["completion"]),
        }
        for a in answers(steps)
    ]


def log(path: Path, steps: int = 10) -> Path:
    return lines(path, [{"step": s, "reward": 0.25, "loss": 0.0} for s in range(steps)])


def said(run: Run) -> str:
    return "; ".join(one.says for one in run.warnings)


def test_named_answers_replace_those_beside_the_log(tmp_path: Path) -> None:
    log(tmp_path / "a" / "metrics.jsonl")
    lines(tmp_path / "a" / "rollouts.jsonl", answers(range(10)))
    other = lines(tmp_path / "b" / "rollouts.jsonl", answers(range(10), "so "))
    run = read([tmp_path / "a"], rollouts=[other])
    (table,) = run.rollouts
    assert (len(table), table.groups, table.source) == (120, 30, str(other))
    assert "beside the log (rollouts.jsonl) are left, since --rollouts names others" in said(run)
    for same in (tmp_path / "a", tmp_path / "a" / "rollouts.jsonl"):
        again = read([tmp_path / "a"], rollouts=[same])
        assert len(again.rollouts[0]) == 120
        assert "are left" not in said(again)


@pytest.mark.parametrize("place", ["async_rollouts_8k/metrics.jsonl", "run/rollout_metrics.jsonl"])
def test_a_log_is_a_log_whatever_it_or_its_folder_is_called(tmp_path: Path, place: str) -> None:
    run = read([log(tmp_path / place)])
    assert run["reward.mean"].values.tolist() == [0.25] * 10
    assert not run.rollouts


def test_answers_of_two_runs_stay_apart(tmp_path: Path) -> None:
    one = lines(tmp_path / "a" / "x.jsonl", answers(range(10)))
    two = lines(tmp_path / "b" / "y.jsonl", answers(range(10), "so "))
    for named in ([one, two], [tmp_path / "a", tmp_path / "b"]):
        run = read(named)
        assert [(len(t), t.groups, t.source) for t in run.rollouts] == [(120, 30, str(one)), (120, 30, str(two))]
        assert f"{one} and {two} hold answers of the same steps" in said(run)
    with pytest.raises(CannotRead, match="several runs") as raised:
        read([tmp_path])
    assert raised.value.choices == ("a", "b")
    assert [t.source for t in read([tmp_path], run="b").rollouts] == [str(two)]
    with pytest.raises(CannotRead, match="'c'"):
        read([tmp_path], run="c")
    log(tmp_path / "metrics.jsonl")
    assert len(read([tmp_path]).rollouts) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("part1/x.jsonl", answers(range(10))), ("part2/x.jsonl", answers(range(9, 20), "so "))),
        (("train/x.jsonl", answers(range(10))), ("eval/x.jsonl", answers(range(10), "so "))),
        (("rank_0/x.jsonl", answers(range(10))), ("rank_1/x.jsonl", answers(range(10), "so "))),
        (("step_1/x.jsonl", answers([1])), ("step_2/x.jsonl", answers([2], "so "))),
        (
            ("math/x.jsonl", answers(range(10))),
            ("code/x.jsonl", [{**one, "prompt": f"write {one['prompt']}"} for one in answers(range(10))]),
        ),
    ],
    ids=["resumed", "evaluation", "processes", "steps", "tasks"],
)
def test_folders_of_one_run_are_one_set(tmp_path: Path, first: tuple[str, Any], second: tuple[str, Any]) -> None:
    for name, rows in (first, second):
        lines(tmp_path / name, rows)
    tables, _ = read_answers([tmp_path])
    assert [len(table) for table in tables] == [len(first[1]) + len(second[1])]


def test_folders_beside_a_run_stay_with_it(tmp_path: Path) -> None:
    for run in ("a", "b"):
        lines(tmp_path / run / "rollouts" / "x.jsonl", answers(range(4), run))
        lines(tmp_path / run / "eval" / "x.jsonl", answers(range(4), run))
    tables, _ = read_answers([tmp_path])
    assert sorted(table.source for table in tables) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert [(len(table), table.held_out.sum()) for table in tables] == [(96, 48)] * 2


@pytest.mark.parametrize("form", ["jsonl", "csv", "nested"])
def test_a_source_with_the_named_columns_is_saved_answers(tmp_path: Path, form: str) -> None:
    rows, columns = odd(range(5)), parse_columns(COLUMNS)
    if form == "csv":
        path = tmp_path / "odd.csv"
        with path.open("w", newline="") as stream:
            table = csv.DictWriter(stream, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    elif form == "nested":
        path = lines(tmp_path / "odd.jsonl", [{"a": {"it": row["it"]}, "b": row} for row in rows])
        columns = parse_columns("prompt=b.instr,completion=b.gen,reward=b.pts,step=a.it")
    else:
        path = lines(tmp_path / "odd.jsonl", rows)
    (made,) = read([path], answer_columns=columns).rollouts
    (named,) = read([path], rollouts=[path], answer_columns=columns).rollouts
    assert (len(made), made.groups, len(made.steps)) == (len(named), named.groups, len(named.steps)) == (60, 15, 5)
    assert not made.parts


def test_named_columns_find_the_answers_in_a_directory(tmp_path: Path) -> None:
    log(tmp_path / "metrics.jsonl")
    lines(tmp_path / "odd.jsonl", odd(range(10)))
    run = read([tmp_path], answer_columns=parse_columns(COLUMNS))
    assert len(run.rollouts[0]) == 120
    assert "repeat" not in said(run)
    (tmp_path / "metrics.jsonl").unlink()
    assert len(read([tmp_path], answer_columns=parse_columns(COLUMNS)).rollouts[0]) == 120


def test_columns_that_nothing_has_are_an_error(tmp_path: Path) -> None:
    path = lines(tmp_path / "odd.jsonl", odd(range(5)))
    with pytest.raises(CannotRead, match="'question'") as raised:
        read([path], answer_columns={"prompt": "question", "completion": "gen"})
    assert "instr" in raised.value.choices
    with pytest.raises(CannotRead, match="reward"):
        read([log(tmp_path / "log" / "metrics.jsonl")], answer_columns={"prompt": "question"})
    shown = CliRunner().invoke(cli, ["rollouts", str(path)])
    assert "its keys are those of no known form: it, instr" in str(shown.exception)
    assert "say which is which" in str(shown.exception)


def test_columns_hold_for_the_form_that_has_them(tmp_path: Path) -> None:
    paths = [lines(tmp_path / "odd.jsonl", odd([1])), lines(tmp_path / "std.jsonl", answers([2]))]
    (table,), _ = read_answers(paths, columns=parse_columns(COLUMNS))
    assert table.steps.tolist() == [1.0, 2.0]


def test_columns_may_be_given_twice() -> None:
    both = CliRunner().invoke(cli, ["rollouts", "none.jsonl", "--columns", "step=a", "--columns", "step=b"])
    assert isinstance(both.exception, BadRequest)
    assert "step given twice" in str(both.exception)


def test_what_a_prompt_says_holds_for_all_its_answers(tmp_path: Path) -> None:
    rows = [
        {"it": s, "ask": f"{s}?", "outs": ["1", "2"], "pts": [0.0, 1.0], "right": "2", "kind": "eval"} for s in range(4)
    ]
    columns = parse_columns("prompt=ask,completion=outs,reward=pts,step=it,truth=right,held_out=kind")
    (table,), _ = read_answers([lines(tmp_path / "x.jsonl", rows)], columns=columns)
    assert table.steps.tolist() == [0, 1, 2, 3]
    assert (table.groups, bool(table.held_out.all()), table.texts[1].truth) == (4, True, "2")
    assert table.texts[1].answer == "2"


def test_a_column_that_may_be_the_step_is_named(tmp_path: Path) -> None:
    columns = parse_columns("prompt=instr,completion=gen,reward=pts")
    path = lines(tmp_path / "odd.jsonl", odd(range(5)))
    assert "no step is known; column 'it' may be it: --columns step=it" in said(read([path], answer_columns=columns))
    rows = [{**row, "row": k, "uid": k, "it": 3} for k, row in enumerate(odd(range(5)))]
    assert "no step is known" not in said(read([lines(path, rows)], answer_columns=columns))


def test_a_reward_of_words_is_an_error(tmp_path: Path) -> None:
    path = lines(tmp_path / "odd.jsonl", [{**row, "pts": "fine"} for row in odd([1])])
    with pytest.raises(BadRequest, match="'pts' holds texts"):
        read([path], answer_columns=parse_columns(COLUMNS))


def test_a_missing_reader_of_parquet_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pyarrow", "pyarrow.parquet", "polars", "duckdb"):
        monkeypatch.setitem(sys.modules, package, None)
    path = tmp_path / "odd.parquet"
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    for columns in (None, parse_columns(COLUMNS)):
        with pytest.raises(CannotRead, match="no package that reads it is installed") as raised:
            read([path], rollouts=[path], answer_columns=columns)
        assert raised.value.hint == "pip install pyarrow"
    lines(tmp_path / "rollouts.jsonl", answers(range(5)))
    shown = CliRunner().invoke(cli, ["rollouts", str(tmp_path / "rollouts.jsonl"), "--rollouts", str(path), "--rollouts",
                                     str(tmp_path / "rollouts.jsonl")])  # fmt: skip
    assert "no package that" in shown.output


@pytest.mark.parametrize(
    "name", ["ntok", "n_chars", "nchars", "num_words", "length", "gen_len", "time", "gentime", "nid"]
)
def test_what_counts_is_no_part_of_the_reward(name: str) -> None:
    assert not is_part(name)
    assert all(map(is_part, ("format", "style", "length_reward", "valid", "brevity", "token_penalty")))


def test_the_table_in_use_is_told(tmp_path: Path) -> None:
    rows = answers(range(5))
    log(tmp_path / "metrics.jsonl")
    lines(tmp_path / "rollouts.jsonl", rows)
    lines(
        tmp_path / "rollouts" / "b.jsonl",
        [{"step": row["step"], "input": "?", "output": "1", "score": 1.0} for row in rows[:4]],
    )
    run = read([tmp_path])
    assert len(run.rollouts) == 2
    assert f"{tmp_path / 'rollouts.jsonl'} is used first" in said(run)


def test_a_log_of_unknown_keys_breaks_no_check(tmp_path: Path) -> None:
    rows = [{"it": 1, "acc": 0.5, "ntok": 3}] * 40
    checks = diagnose(read([lines(tmp_path / "odd.jsonl", rows)])).checks
    assert not [one for one in checks if one.outcome == "failed"]
