"""Every layout and trap of the readers, from lines written for the purpose; the shared corpus is swept where present."""

# ruff: noqa: E501
from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlclinic.errors import CannotRead
from rlclinic.readers import read as read_run
from rlclinic.readers import rundir
from rlclinic.readers.config import config_from_text, read_config, versions_in
from rlclinic.readers.log import Log, read_log
from rlclinic.readers.text import prints

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"


def read(text: str | bytes) -> Log:
    return read_log(None, text.encode() if isinstance(text, str) else text)


def values(log: Log, key: str) -> list[float]:
    return [float(v) for v in log.series[key].values]


def codes(log: Log) -> list[str]:
    return [w.code for w in log.warnings]


def row(step: int, **more: float) -> dict[str, float]:
    return {"loss": 0.1 * step, "reward": 0.5, "grad_norm": 0.123456789 + step, "learning_rate": 1e-6, **more}


# JSON lines


def test_jsonl_flat() -> None:
    log = read("\n".join(json.dumps({"step": s, **row(s)}) for s in (1, 2, 3)))
    assert log.format == "jsonl"
    assert log.steps.tolist() == [1, 2, 3]
    assert log.step_source == "step"
    assert "step" not in log.series
    assert log.complete


def test_nulls_of_a_writer_that_has_no_nan() -> None:
    rows = [
        {"critic/score/mean": 0.5 + s, "actor/grad_norm": None if s in (1, 4) else 1.5, "note": None} for s in range(6)
    ]
    rows[2]["critic/score/mean"] = None
    log = read("\n".join(json.dumps({"step": s + 1, "data": one}) for s, one in enumerate(rows)))
    assert log.nonfinite == "null"
    assert {key: at.tolist() for key, at in log.nulls.items()} == {"actor/grad_norm": [1, 4], "critic/score/mean": [2]}
    assert log.series["actor/grad_norm"].rows.tolist() == [0, 2, 3, 5]


def test_nulls_elsewhere_are_absent_values() -> None:
    log = read(
        "\n".join(json.dumps({"step": s, "loss": 0.5, "reward": None if s == 3 else 0.1 * s}) for s in range(1, 6))
    )
    assert not log.nulls
    assert log.series["reward"].rows.tolist() == [0, 1, 3, 4]


def test_nan_far_down_a_long_log() -> None:
    lines = [json.dumps({"step": s, "loss": math.nan if s > 4_990 else 0.5, "reward": 0.001 * s}) for s in range(5_000)]
    log = read("\n".join([*lines[:3_000], "{broken", *lines[3_000:]]))
    assert np.isnan(log.series["loss"].values).sum() == 9
    assert log.rows == 5_000
    assert codes(log) == ["broken_lines"]


def test_keys_that_come_and_go() -> None:
    rows = [
        {"step": s, "loss": 0.5, **{f"m/{k}": s + k / 10 for k in range(12) if (s >> k) & 1 or s % 3 == k}}
        for s in range(3_000)
    ]
    log = read("\n".join(map(json.dumps, rows)))
    for key in ("loss", "m/0", "m/11"):
        kept = [(s, one[key]) for s, one in enumerate(rows) if key in one]
        assert log.series[key].rows.tolist() == [s for s, _ in kept]
        assert values(log, key) == [v for _, v in kept]


def test_decimals_of_printed_rows_after_the_first() -> None:
    lines = [str({"loss": 0.51, "reward": 1.25, "kl": 0.001, "entropy": 0.5}) for _ in range(5)]
    lines += [
        "{'loss': 0.512, 'reward': -.125, 'kl': 2e-05, 'entropy': nan}",
        "{'loss': 0.5, 'reward': 1.5, 'kl': 1E-6, 'entropy': 0.5}",
    ]
    log = read("\n".join(lines) + "\n")
    assert {key: one.decimals for key, one in log.series.items()} == {"loss": 3, "reward": 3, "kl": 6, "entropy": 1}
    assert math.isnan(values(log, "entropy")[5])
    assert values(log, "kl")[-2:] == [2e-05, 1e-06]


@pytest.mark.parametrize("wrapper", ["data", "metrics"])
def test_jsonl_wrapped(wrapper: str) -> None:
    log = read(
        "".join(json.dumps({"step": s, wrapper: {"actor/entropy": 0.4, "critic/score/mean": s}}) + "\n" for s in (5, 6))
    )
    assert log.steps.tolist() == [5, 6]
    assert values(log, "critic/score/mean") == [5, 6]


def test_verl_file_logger_writes_null_for_nan() -> None:
    log = read(
        '{"step":1,"data":{"actor/pg_loss":0.5,"critic/score/mean":0}}\n{"step":2,"data":{"actor/pg_loss":null,"critic/score/mean":0}}\n'
    )
    assert log.nonfinite == "null"
    assert log.series["actor/pg_loss"].rows.tolist() == [0]


def test_nonfinite_and_numeric_text_are_kept() -> None:
    log = read(
        '{"step": "1", "loss": NaN, "reward": "Infinity", "kl": "1e-5", "name": "x"}\n{"step": "2", "loss": 0.5, "reward": 1, "kl": "np.float64(0.25)"}\n'
    )
    assert math.isnan(values(log, "loss")[0])
    assert values(log, "reward") == [math.inf, 1]
    assert values(log, "kl") == [1e-5, 0.25]
    assert log.nonfinite == "kept"
    assert "name" not in log.series


def test_junk_blank_and_cut_lines_warn() -> None:
    log = read('\n{"step": 1, "loss": 0.25, "reward": 1}\nnot json\n\n{"step": 2, "loss": 0.5, "rew')
    assert "broken_lines" in codes(log)
    assert values(log, "loss") == [0.25, 0.5]
    assert values(log, "reward") == [1]


def test_a_cut_number_is_never_read() -> None:
    log = read('{"step": 1, "loss": 0.25, "reward": 1}\n{"step": 2, "loss": 0.5, "reward": 12')
    assert values(log, "reward") == [1]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_encodings(encoding: str) -> None:
    log = read(
        (json.dumps({"step": 1, "loss": 0.5, "reward": 1, "who": "é"}, ensure_ascii=False) + "\n").encode(encoding) * 2
    )
    assert log.rows >= 1
    assert values(log, "loss")[0] == 0.5


def test_histograms_lists_and_percent_strings_are_skipped() -> None:
    log = read(
        '{"step": 1, "loss": 1, "h": {"_type": "histogram", "values": [1]}, "l": [1, 2], "p": "3.2%", "n": {"a": {"b": 2}}}\n'
        * 2
    )
    assert set(log.series) == {"loss", "n/a/b"}


def test_bools_count_only_where_the_key_is_numeric_elsewhere() -> None:
    log = read('{"step": 1, "loss": 1, "ok": true, "done": 0}\n{"step": 2, "loss": 1, "ok": true, "done": true}\n')
    assert "ok" not in log.series
    assert values(log, "done") == [0, 1]


def test_ms_swift_counter_is_the_step_and_the_plan() -> None:
    log = read('{"loss": 0.1, "reward": 0.5, "global_step/max_steps": "10/300", "percentage": "3.3%"}\n')
    assert log.steps.tolist() == [10]
    assert log.planned_steps == 300


def test_backward_steps_are_a_seam_and_stay_in_order() -> None:
    log = read("".join(json.dumps({"step": s, "reward": i}) + "\n" for i, s in enumerate((1, 2, 3, 2, 3, 4))))
    assert log.steps.tolist() == [1, 2, 3, 2, 3, 4]
    assert list(log.seams) == [3]
    assert "went back from 3 to 2" in log.seams[3]


@pytest.mark.parametrize(("step", "code"), [(-1, "negative_steps"), (0.5, "fractional_steps")])
def test_strange_steps_warn(step: float, code: str) -> None:
    assert code in codes(
        read(json.dumps({"step": step, "loss": 1, "reward": 2}) + "\n" + '{"step": 3, "loss": 1, "reward": 2}\n')
    )


def test_repeated_rows_of_several_processes_count_once() -> None:
    line = '{"step": %d, "loss": 0.1, "reward": 0.123456789}\n'
    log = read((line % 1) * 4 + (line % 2) * 4)
    assert log.steps.tolist() == [1, 2]
    assert "duplicated_rows" in codes(log)


def test_a_frozen_run_is_not_a_repeat() -> None:
    log = read("{'loss': 0.0, 'reward': 0.0, 'learning_rate': 1e-06, 'epoch': 0.0}\n" * 3)
    assert log.rows == 3


def test_supervised_and_rollouts_and_configuration() -> None:
    assert (
        read('{"step": 1, "loss": 1.5, "learning_rate": 1e-5, "mean_token_accuracy": 0.6}\n' * 2).kind == "supervised"
    )
    assert (
        read('{"step": 1, "loss": 1.5, "learning_rate": 1e-5, "rewards/chosen": 0.6, "rewards/margins": 1}\n' * 2).kind
        == "supervised"
    )
    with pytest.raises(CannotRead, match="rollouts"):
        read('{"prompt": "2+2", "completion": "4", "reward": 1.0, "step": 0}\n' * 5)
    with pytest.raises(CannotRead, match="configuration"):
        read("learning_rate: 1e-6\nnum_generations: 8\n")


def test_key_bounds() -> None:
    log = read(json.dumps({"step": 1, "loss": 1, "k" * 300: 2, **{f"m{i}": i for i in range(6000)}}) + "\n")
    assert {"overlong_keys", "too_many_keys"} <= set(codes(log))
    assert len(log.series) <= 5000


ROWS = [{"step": s, "loss": 0.5 * s, "reward": 0.125 * s} for s in range(1, 5)]
LINES = [json.dumps(one) for one in ROWS]


@pytest.mark.parametrize("word", ["nan", "NaN", "NAN", "-nan", "inf", "INF", "-inf", "Infinity", "-infinity", "+inf"])
@pytest.mark.parametrize("place", [0, 2])
def test_bare_words_for_non_finite_numbers(word: str, place: int) -> None:
    lines = [*LINES]
    lines[place] = lines[place].replace(str(0.5 * (place + 1)), word, 1)
    log = read("\n".join(lines))
    assert log.rows == 4
    assert str(values(log, "loss")[place]) == str(float(word.lstrip("-+" if "a" in word.lower() else "+")))
    assert values(log, "reward") == [0.125, 0.25, 0.375, 0.5]
    assert log.series["reward"].decimals is None
    assert codes(log) == []


@pytest.mark.parametrize("indent", [None, 1])
def test_bare_words_in_documents(indent: int | None) -> None:
    text = json.dumps({"max_steps": 9, "log_history": ROWS}, indent=indent).replace("0.5,", "nan,", 1)
    log = read(text)
    assert (log.format, log.planned_steps, log.rows) == ("trainer_state", 9, 4)
    assert math.isnan(values(log, "loss")[0])


def test_printed_dictionaries_among_json_lines() -> None:
    log = read("\n".join([*LINES[:2], "{'step': 3, 'loss': nan, 'reward': 0.375, 'ok': True, 'none': None}", LINES[3]]))
    assert (log.format, log.rows, codes(log)) == ("jsonl", 4, [])
    assert values(log, "reward") == [0.125, 0.25, 0.375, 0.5]
    assert log.series["reward"].decimals is None


@pytest.mark.parametrize("times", [1, 300])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("between", ["", " ", ", "])
def test_records_joined_without_newlines(times: int, indent: int | None, between: str) -> None:
    rows = [{"step": s, "loss": 0.5, "reward": 0.001 * s} for s in range(1, 4 * times + 1)]
    text = between.join(json.dumps(one, indent=indent) for one in rows)
    log = read(text)
    assert (log.format, log.rows, codes(log)) == ("jsonl", 4 * times, [])
    cut = read(text[:-8])
    assert 4 * times - 1 <= cut.rows <= 4 * times
    assert codes(cut) == ["broken_lines"]


def test_two_records_on_one_line_and_a_record_with_something_behind_it() -> None:
    log = read("\n".join([LINES[0], LINES[1] + LINES[2], LINES[3] + " # last"]))
    assert log.steps.tolist() == [1, 2, 3, 4]
    assert codes(log) == ["broken_lines"]


@pytest.mark.parametrize("text", ["\r".join(LINES), "step,loss,reward\r1,0.5,1\r2,0.5,2\r3,0.5,3\r4,0.5,4\r"])
def test_lines_that_end_in_a_carriage_return_only(text: str) -> None:
    log = read(text)
    assert log.steps.tolist() == [1, 2, 3, 4]
    assert log.series["reward"].rows.tolist() == [0, 1, 2, 3]


# Values that are no number


def told(log: Log) -> list[str]:
    return [one.says for one in log.warnings if one.code == "unread_values"]


@pytest.mark.parametrize("value", ["0.53 pts", "53%", "N/A", None, "None", "", [1, 2], {"a": 1}, "\x1b[31m\u202e"])
def test_a_number_that_is_lost_is_told_once(value: object) -> None:
    rows = [{"step": s, "loss": 0.5, "name": "x", "reward": 0.1 if s < 6 else value, "kl": 0.1} for s in range(1, 11)]
    rows[3]["kl"] = "?? nats"
    log = read("\n".join(map(json.dumps, rows)))
    assert len(values(log, "reward")) == 5
    (says,) = told(log)
    assert says.startswith("reward holds no number in 5 of 10 rows")
    assert "kl (1)" in says
    assert "name" not in says
    assert says.isprintable()


def test_a_key_that_is_never_a_number_is_told_only_as_a_quantity_of_training() -> None:
    rows = [{"step": s, "loss": 0.5, "reward": f"{s}%", "note": "12 o'clock", "percentage": "3%"} for s in range(5)]
    (says,) = told(read("\n".join(map(json.dumps, rows))))
    assert says.startswith("reward holds no number in 5 of 5 rows, but '0%'")
    assert "note" not in says
    assert "percentage" not in says


@pytest.mark.parametrize("empty", [None, "N/A", ""])
def test_a_key_that_is_logged_now_and_then_lacks_nothing(empty: object) -> None:
    rows = [{"step": s, "loss": 0.5, "reward": 0.1, "eval/reward": 0.2 if s % 5 == 0 else empty} for s in range(40)]
    assert told(read("\n".join(map(json.dumps, rows)))) == []


def test_nulls_that_stand_for_nan_are_not_told_twice() -> None:
    rows = [{"critic/score/mean": 0.5, "actor/grad_norm": None if s > 2 else 1.5} for s in range(6)]
    log = read("\n".join(json.dumps({"step": s + 1, "data": one}) for s, one in enumerate(rows)))
    assert list(log.nulls) == ["actor/grad_norm"]
    assert told(log) == []


def test_words_among_the_first_numbers_of_a_csv_do_not_hide_the_later_ones() -> None:
    cells = ["N/A" if s in (3, 700) else f"{s / 1000}" for s in range(1200)]
    log = read("step,loss,reward,note\n" + "".join(f"{s},0.5,{cell},a b\n" for s, cell in enumerate(cells)))
    assert len(values(log, "reward")) == 1198
    assert told(log)[0].startswith("reward holds no number in 2 of 1200 rows")


def test_only_some_rows_without_a_step_are_told() -> None:
    some = read("\n".join([*LINES, '{"loss": 0.5, "reward": 1}']))
    assert [w.says for w in some.warnings] == ["1 of 5 rows state no step"]
    none = read('{"step": NaN, "loss": 0.5, "reward": 1}\n{"step": NaN, "loss": 0.5, "reward": 2}\n')
    assert "rows_without_step" not in codes(none)


# JSON documents


def test_trainer_state() -> None:
    history = [{**row(s), "step": s} for s in (10, 20)] + [{"eval_reward": 0.5, "step": 20}]
    state = {"global_step": 20, "max_steps": 100, "logging_steps": 10, "log_history": history, "trial_name": None}
    log = read(json.dumps(state, indent=2))
    assert (log.format, log.planned_steps, log.nonfinite) == ("trainer_state", 100, "filtered")
    assert log.config["logging_steps"] == 10
    assert log.steps.tolist() == [10, 20, 20]


def test_cut_trainer_state_gives_the_rows_before_the_cut() -> None:
    text = json.dumps(
        {"max_steps": 9, "log_history": [{"step": s, "loss": s, "reward": 1} for s in range(1, 6)]}, indent=2
    )
    log = read(text[:-60])
    assert 0 < log.rows < 5
    assert "broken_lines" in codes(log)


@pytest.mark.parametrize(
    "document",
    [
        [{"step": 1, "reward": 0.1, "loss": 2}, {"step": 2, "reward": 0.2, "loss": 2}],
        {"history": [{"step": 1, "reward": 0.1, "loss": 2}, {"step": 2, "reward": 0.2, "loss": 2}]},
        {"step": [1, 2], "reward": [0.1, 0.2], "loss": [2, 2]},
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_json_histories(document: object, indent: int | None) -> None:
    log = read(json.dumps(document, indent=indent))
    assert log.steps.tolist() == [1, 2]
    assert values(log, "reward") == [0.1, 0.2]


def test_wandb_summary_says_it_holds_last_values_only() -> None:
    log = read(
        '{"train/reward": 0.5, "train/kl": 0.1, "_step": 7, "train/global_step": 6, "h": {"_type": "histogram"}}'
    )
    assert "summary_only" in codes(log)
    assert log.steps.tolist() == [6]


# CSV and tables


def test_csv_wide() -> None:
    log = read("step,reward,loss\n1,0.5,\n2,0.25,0.1\n")
    assert log.format == "csv"
    assert values(log, "reward") == [0.5, 0.25]
    assert log.series["loss"].rows.tolist() == [1]


def test_csv_semicolon_decimal_comma_and_thousands() -> None:
    log = read("Step;reward;num_tokens\n1;0,5;1000\n2;0,25;2000\n")
    assert values(log, "reward") == [0.5, 0.25]
    assert values(read('step,reward,tokens\n1,0.5,"1,234.5"\n'), "tokens") == [1234.5]


@pytest.mark.parametrize(
    ("cells", "want"),
    [
        (("0,22", "0,225"), [0.22, 0.225]),
        (("1,225", "0,9"), [1.225, 0.9]),
        (("-1,225", "12,5e-1"), [-1.225, 1.25]),
        (("1.234,5", "1,234"), [1234.5, 1.234]),
        (("1,234,567", "1,234"), [1234567, 1234]),
        (("1,234.5", "0.5"), [1234.5, 0.5]),
        (("1,234", "0.5"), [1234, 0.5]),
        (("1,234", "5"), [5]),
        (("0,22", "1,234.5"), [0.22, 1234.5]),
    ],
)
@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_comma_in_a_number_is_read_as_the_other_numbers_allow(
    cells: tuple[str, str], want: list[float], mark: str
) -> None:
    if want == [5]:
        want = [5] if mark == "," else [1.234, 5]
    rows = "".join(f'"{s}"{mark}"{cell}"\n' for s, cell in enumerate(cells))
    log = read(f"step{mark}reward\n{rows}")
    assert values(log, "reward") == want
    assert len(told(log)) == 2 - len(want)


ONE_RUN = "".join(f"%s,{s},0.5,0.1\n" for s in range(20))


@pytest.mark.parametrize("column", ["run", "run_name", "run_id", "experiment"])
def test_a_column_of_runs(column: str) -> None:
    header = f"{column},step,loss,reward\n"
    log = read(header + ONE_RUN.replace("%s", "7"))
    assert (log.rows, set(log.series)) == (20, {"loss", "reward"})
    for names in (("a", "b"), ("1", "2")):
        with pytest.raises(CannotRead, match=rf"2 runs\nvalid  {names[0]}, {names[1]}\ntry    .*--run {names[0]}"):
            read(header + "".join(ONE_RUN.replace("%s", name) for name in names))
    assert read(header + "".join(f"{s},{s},0.5,0.1\n" for s in range(20))).rows == 20  # a counter is no name


def test_exports_of_one_and_of_several_runs() -> None:
    log = read('"Step","lr=1e-6 - a - train/reward","lr=1e-6 - a - train/loss"\n"1","0.5","2"\n"2","0.6","2"\n')
    assert set(log.series) == {"train/reward", "train/loss"}
    with pytest.raises(CannotRead, match="a, b"):
        read('"Step","a - train/reward","b - train/reward"\n"1","0.5","2"\n"2","0.6","2"\n')
    plain = read("step,reward - mean,loss - mean\n1,0.5,2\n")
    assert set(plain.series) == {"reward - mean", "loss - mean"}


def test_csv_long_and_several_runs() -> None:
    rows = "run,step,key,value\na,1,reward,0.5\na,1,kl,0.1\na,2,reward,0.6\n"
    log = read(rows)
    assert log.steps.tolist() == [1, 2]
    assert values(log, "reward") == [0.5, 0.6]
    with pytest.raises(CannotRead, match="a, b"):
        read(rows + "b,1,reward,0.1\n")


def test_wandb_export() -> None:
    text = '"Step","r - a - train/reward","r - a - train/reward__MIN","r - a - train/reward__MAX"\n"10","0.5","0.5","0.5"\n"20","0.6","0.6","0.6"\n'
    log = read(text)
    assert list(log.series) == ["train/reward"]
    assert log.steps.tolist() == [10, 20]


def test_csv_cut_in_its_last_cell() -> None:
    log = read("step,loss,reward\n1,0.5,0.25\n2,0.75,0.12")
    assert values(log, "reward") == [0.25]
    assert values(log, "loss") == [0.5, 0.75]


@pytest.mark.parametrize(
    "text",
    [
        "| Step | reward | kl |\n|---|---|---|\n| 1 | 0.5 | 0.01 |\n| 2 | **0.6** | 0.02 |\n",
        "Step | reward | kl\n-- | -- | --\n1 | 0.5 | 0.01\n2 | 0.6 | 0.02\n",
        "Step  reward  kl\n1     0.5     0.01\n...\n2     0.6     0.02\n",
        "look at this:\n\nStep  reward  kl\n1     0.5     0.01\n2     0.6     0.02\n\nwhat is wrong?\n",
    ],
)
def test_pasted_tables(text: str) -> None:
    log = read(text)
    assert log.steps.tolist() == [1, 2]
    assert values(log, "reward") == [0.5, 0.6]
    assert log.excerpt


def test_pasted_tables_of_the_same_steps_are_one() -> None:
    log = read(
        "Step | reward | kl | entropy\n-- | -- | -- | --\n1 | 0.5 | nan | 0\n2 | 0.6 | 0.02 | No Log\n\n"
        "Step | reward | completions / mean_length | entropy\n-- | -- | -- | --\n1 | 0.5 | 210.0 | 0\n2 | 0.6 | 19\n\n"
        "Step | reward | grad_norm\n-- | -- | --\n1 | 0.9 | 3.0\n2 | 0.8 | 3.5\n"  # of another run
    )
    assert log.steps.tolist() == [1, 2]
    assert values(log, "completions/mean_length") == [210.0, 19.0]
    assert "entropy" not in log.series  # its 0 stands where nothing was logged
    assert "grad_norm" not in log.series


@pytest.mark.parametrize(
    "text",
    [
        "When I use the new code, rewards/format_reward is not 0, but rewards/accuracy_reward is\n\n{}\n",
        "1. The dynamic, grad_norm is large. Here are the steps 1, 2\n```\n{}\n```\n",
        "> > It stopped, reward stays\n> > {}\n",
    ],
)
def test_prose_with_commas_above_a_log(text: str) -> None:
    line = "{'loss': 0.1, 'grad_norm': 0.5, 'reward': 0.25, 'kl': 0.01, 'epoch': 0.1}"
    assert values(read(text.replace("{}", line)), "reward") == [0.25]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("step: 7, loss: 0.5, reward: 0.25\nstep: 8, loss: 0.4, reward: 0.5\n", [7, 8]),
        ("Step 7: loss: 0.5 reward: 0.25\nStep 8: loss: 0.4 reward: 0.5\n", [7, 8]),
        ("loss: 0.5 | reward: 0.25 | kl: nan\nloss: 0.4 | reward: 0.5 | kl: inf\n", [1, 2]),
        ("step: 7|loss: 0.5\nreward: 0.25\n-----\nstep: 8|loss: 0.4\nreward: 0.5\n-----\n", [7, 8]),
        ("2025-05-01 10:00:01 INFO step: 7, reward: 0.25\n2025-05-01 10:00:09 INFO step: 8, reward: 0.5\n", [7, 8]),
        (
            "[2025-05-01 10:00:01] INFO iter 7: reward=0.25 kl=0.1\n[2025-05-01 10:00:09] INFO iter 8: reward=0.5 kl=0.1\n",
            [7, 8],
        ),
        ("INFO:root:step=7 reward=0.25\nINFO:root:step=8 reward=0.5\n", [7, 8]),
    ],
)
def test_a_loop_that_prints_names_and_numbers(text: str, steps: list[int]) -> None:
    log = read(text)
    assert values(log, "reward") == [0.25, 0.5]
    assert log.steps.tolist() == steps


def test_one_row_of_names_and_numbers() -> None:
    log = read("My run shows\n- reward: 0.0\n- reward_std: 0.0\n- loss: 0.0001\n- accuracy: 12%\nand nothing moves.\n")
    assert {key: values(log, key) for key in log.series} == {"reward": [0.0], "reward_std": [0.0], "loss": [0.0001]}
    with pytest.raises(CannotRead):  # settings: nothing among them is measured
        read("learning_rate: 1e-6\nnum_generations: 8\nkl_coef: 0.04\n")
    with pytest.raises(CannotRead):  # round values beside names that only a configuration has
        read("temperature: 0.9\nreward: 1.0\nentropy: 0.0\nkl: 0.0\n")
    with pytest.raises(CannotRead):  # a program assigns what nobody measured
        read("def step(self):\n    reward = 0.0; entropy = 0.0\n    clip_ratio = 0.2, grad_norm = 1.0\n")
    assert values(read("import torch\nand it prints\nreward: 0.0\nloss: 0.0\n"), "reward") == [0.0]
    table = read(
        "mean reward: 0.5\nloss: 0.1\n\n| Step | reward | kl |\n|---|---|---|\n| 1 | 0.5 | 0.01 |\n| 2 | 0.6 | 0.02 |\n"
    )
    assert values(table, "reward") == [0.5, 0.6]


def test_held_out_rows_between_those_of_a_loop_are_kept() -> None:
    rows = [f"step: {i} | reward: 0.{i} | loss: 0.1" for i in range(1, 9)]
    rows[4:4] = ["step: 4 | eval_accuracy: 0.5"]
    log = read("\n".join([*rows, "size: 3 | clip: 4", ""]))
    assert log.steps.tolist()[-1] == 8
    assert values(log, "eval_accuracy") == [0.5]
    assert "size" not in log.series


def test_a_long_loop_is_read_to_its_end_or_says_where_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"step: {i} | reward: 0.5 | kl: 0.1\n" for i in range(6000))
    log = read(text)
    assert (log.steps[-1], log.warnings) == (5999, ())
    monkeypatch.setattr(prints, "REMEMBERED", 300)
    short = read(text)
    assert (len(short.steps), [w.code for w in short.warnings]) == (100, ["cut_text"])


@pytest.mark.parametrize(
    "keys",
    [
        ("rewards/chosen", "rewards/rejected", "logps/chosen", "kl"),  # KTO
        ("accuracy", "min_reward", "mean_reward", "max_reward", "margin"),
        ("val_loss",),
    ],
)
def test_preference_training_and_reward_models_are_no_rl(keys: tuple[str, ...]) -> None:
    row = dict.fromkeys(("loss", *keys), 0.5)
    assert read("".join(f"{row}\n" for _ in range(5))).kind == "supervised"
    assert read("".join(f"{row | {'completion_length': 9.5}}\n" for _ in range(5))).kind == "metrics"


@pytest.mark.parametrize("key", ["role", "chosen", "question"])
def test_what_a_chat_says_of_training_is_no_log(key: str) -> None:
    lines = [{"message": f"step: {i} | loss: 0.1 | reward: 0.5"} for i in range(3)]
    assert len(read("".join(f"{json.dumps(line)}\n" for line in lines)).steps) == 3
    with pytest.raises(CannotRead):
        read("".join(f"{json.dumps(line | {key: 'x'})}\n" for line in lines))


def test_an_update_that_verl_skipped() -> None:
    log = read("[Global Step: 20] Update Actor Starts ...\n WARN: rank 0 grad_norm is not finite: inf\n")
    assert values(log, "grad_norm") == [math.inf]


def test_a_table_without_training_metrics_is_no_log() -> None:
    with pytest.raises(CannotRead):
        read("| `num_generations` | share |\n|---|---|\n| 2 | 70,2 % |\n| 4 | 44,9 % |\n")


# Dictionary lines


def test_trl_four_and_five() -> None:
    old = read(
        "{'loss': 0.0, 'grad_norm': 0.3123456789012345, 'learning_rate': 9e-07, 'reward': 0.42187511, 'epoch': 0.1}\n"
    )
    new = read("{'loss': '0.001234', 'grad_norm': '0.3128', 'reward': '0.4219', 'kl': '0', 'epoch': '0.05'}\n")
    assert values(old, "reward") == [0.42187511]
    assert (old.series["loss"].decimals, old.series["reward"].decimals) == (4, None)
    assert values(new, "loss") == [0.001234]
    assert new.series["kl"].decimals is None
    assert old.nonfinite == "filtered"


def test_steps_come_from_the_progress_bar() -> None:
    bar = "{p}%|███| {n}/300 [01:02<29:58, 1.2s/it]"
    text = "".join(
        f"\r {bar.format(p=1, n=10 * k)}\r      \r{{'loss': '0.1', 'reward': '0.5', 'epoch': '0.0{k}'}}\n\r {bar.format(p=1, n=10 * k)}"
        for k in (1, 2, 3)
    )
    log = read("Loading checkpoint shards: 100%|██| 2/2 [00:01<00:00, 1.0it/s]\n" + text)
    assert log.steps.tolist() == [10, 20, 30]
    assert (log.step_source, log.planned_steps) == ("progress bar", 300)


def test_rows_written_apart_from_the_bar() -> None:
    bars = "".join(
        f"\r 1%|#| {n}/20 [00:01<00:02, 3s/it]" + (f"\r 1%|#| {n}/20 [00:01<00:02, 3s/it]" if n % 5 == 0 else "")
        for n in range(1, 21)
    )
    rows = "".join(f"{{'loss': 0.5, 'reward': {k}.5, 'epoch': 0.0{k}}}\n" for k in range(1, 5))
    assert read(bars + "\n" + rows).steps.tolist() == [5, 10, 15, 20]


def test_evaluation_rows_share_the_step_of_their_epoch() -> None:
    lines = []
    for s in (1, 2, 3):
        if s == 2:
            lines.append("{'eval_score': '0.5', 'epoch': '0.0220'}")
        lines.append(f"{{'loss': '0.1', 'reward': '0.{s}', 'epoch': '0.0{s}{s}0'}}")
    text = "".join(f"{line}\r 1%|#| {line.count('loss') and i}/300 [0:01<0:02]\n" for i, line in enumerate(lines))
    log = read(" 0%|#| 0/300 [0:00<?]\n" + text)
    assert log.rows == 4
    if log.step_source == "progress bar":
        assert log.steps[1] == log.steps[2]


def test_order_times_the_logging_interval() -> None:
    log = read(
        "python train.py --logging_steps 10 --learning_rate 1e-6\n"
        + "{'loss': 0.1, 'reward': 0.25, 'epoch': 0.1}\n{'loss': 0.2, 'reward': 0.5, 'epoch': 0.2}\n"
    )
    assert log.steps.tolist() == [10, 20]
    assert log.config["learning_rate"] == 1e-6


def test_several_dictionaries_colours_prefixes_and_timestamps_on_one_line() -> None:
    text = "\x1b[36m(Trainer pid=12)\x1b[0m [2026-01-01 10:00:00] {'loss': 0.5, 'reward': 1.0} {'loss': 0.25, 'reward': 2.0}\n"
    assert values(read(text), "reward") == [1, 2]
    assert values(read("[rank0]:{'loss': 0.5, 'reward': 1.0}\n"), "reward") == [1]


def test_braces_in_ordinary_text_are_no_metrics() -> None:
    text = "the set {1, 2} and f(x) = {x} {'role': 'user', 'content': 'hi'} kwargs: {'n': 1, 'max_tokens': 256, 'temperature': 1.0, 'top_p': 1}\n"
    log = read(text + "{'loss': 0.5, 'reward': 1.0}\n")
    assert log.rows == 1


def test_pretty_printed_wrapped_and_unclosed_dictionaries() -> None:
    pretty = read("{'loss': 0.5,\n 'reward': 1.0,\n 'epoch': 0.09}\n")
    wrapped = read("{'loss': 0.5, 'rew\nard': 1.2\n5, 'epoch': 0.09}\n")
    assert values(pretty, "reward") == [1.0]
    assert values(wrapped, "reward") == [1.25]
    headless = read("std': 0.5, 'loss': 0.5, 'reward': 1.0, 'kl': 0.1, 'epoch': 0.09}\n")
    assert values(headless, "reward") == [1.0]
    assert not headless.complete
    tailless = read("{'loss': 0.5, 'reward': 1.0, 'kl': 0.1\n")
    assert "kl" not in tailless.series
    assert "cut_text" in codes(tailless)
    broken = read(
        "{'loss': 0.5, 'reward': 1.0, 'k\nTraceback (most recent call last):\n  File \"x.py\", line 1\nValueError: no\n"
    )
    assert values(broken, "reward") == [1.0]
    assert broken.ending == "ValueError: no"


def test_labelled_dictionaries() -> None:
    log = read(
        "✨ Global step 12: {'rollout/reward_mean': 0.5, 'policy_loss': 0.1}\n✨ Global step 13: {'rollout/reward_mean': 0.6, 'policy_loss': 0.1}\n"
    )
    assert log.steps.tolist() == [12, 13]
    slime = read(
        "[2026-01-01 10:00:00] rollout.py:269 - perf 0: {'rollout/response_len/mean': 5.5, 'perf/time': 3}\n[2026-01-01] x.py:1 - step 0: {'train/loss': 0.5, 'train/kl_loss': 0.1}\n"
    )
    assert (slime.rows, slime.steps.tolist()) == (1, [0])


def test_sections_of_records_take_the_first_and_name_the_others() -> None:
    records = json.dumps([{"epoch": e, "average_reward": 0.5 + e, "n": 3} for e in (0, 64)], indent=2)
    log = read(f"Loaded\n====\nENV: A\n====\n{records}\n====\nENV: B\n====\n{records}\n")
    assert (log.rows, log.step_source) == (2, "epoch")
    assert "ENV: B" in next(w.says for w in log.warnings if w.code == "several_sections")


def test_runs_joined_in_one_file() -> None:
    one = "".join(
        f" 1%|#| {n}/3 [0:01<0:02]\r{{'loss': 0.1, 'reward': 0.{n}, 'epoch': 0.{n}}}\r 1%|#| {n}/3 [0:01<0:02]\n"
        for n in (1, 2, 3)
    )
    log = read(one + one.replace("/3 [", "/4 ["))
    assert log.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert list(log.seams) == [3]
    assert "counted on" in log.step_source


# verl and labelled lines


def test_verl_line() -> None:
    log = read(
        "(TaskRunner pid=7) step:12 - actor/entropy:np.float64(0.41) - critic/score/mean:0.5312345678 - actor/lr(1e-4):0.010 - a/b:nan\n"
    )
    assert log.steps.tolist() == [12]
    assert values(log, "actor/entropy") == [0.41]
    assert values(log, "actor/lr") == [pytest.approx(1e-6)]
    assert math.isnan(values(log, "a/b")[0])
    assert log.nonfinite == "kept"


def test_verl_fixed_decimals_and_duplicates() -> None:
    log = read("step:1 - actor/x:0.000 - actor/x:0.001 - critic/score/mean:0.500\n")
    assert values(log, "actor/x") == [0.0]
    assert log.series["actor/x"].decimals == 3
    assert "duplicate_key" in codes(log)


def test_verl_wrapped_lines() -> None:
    log = read(
        "step:9 - actor/entropy_loss:0.001 - actor/ppo_kl:0.0\n00 - critic/score/mean:0.104 - c\nritic/values/\nmean:0.516\nnext line\n"
    )
    assert values(log, "actor/ppo_kl") == [0.0]
    assert values(log, "critic/values/mean") == [0.516]


def test_verl_cut_last_value_is_dropped() -> None:
    assert "c/d" not in read("step:9 - actor/entropy:0.001 - critic/score/mean:0.104 - c/d:0.5").series
    assert "c/d" not in read("step:9 - actor/entropy:0.001 - a/b:0.104 - e/f:0.200 - c/d:0.5\n").series


def test_mlx_prime_and_loop_lines() -> None:
    mlx = read(
        "Iter 20: Train loss 0.125, Total rewards mean 0.500, KL 0.001, Peak mem 34.745 GB\nIter 21: Train loss 0.250, Total rewards mean 0.500, KL 0.001, Peak mem 34.745 GB\n"
    )
    assert mlx.steps.tolist() == [20, 21]
    assert values(mlx, "Train loss") == [0.125, 0.25]
    prime = read("SUCCESS Step 12 | 34.5s | Loss 0.0123 | Entropy 0.4321 | MFU 31.2% | Peak Mem. 60.1 GiB\n")
    assert values(prime, "entropy/all/mean") == [0.4321]
    assert values(prime, "perf/mfu") == [31.2]
    loop = read("epoch=0, i=0, ratio=1.0\nepoch=0, i=1, ratio=1.00236\n")
    assert values(loop, "ratio") == [1.0, 1.00236]
    prose = read(
        "vLLM decode  vs vLLM prefill:  TME = 322.49   DIVERGED\nvLLM prefill vs Megatron:  TME = 1.03  HEALTHY\n"
    )
    assert len(prose.series) == 2


def test_wandb_run_summary_block() -> None:
    log = read("wandb:      train/kl ▁\nwandb:    train/kl 0.25\nwandb:    train/reward -0.14781\n")
    assert values(log, "train/reward") == [-0.14781]
    assert "summary_only" in codes(log)


# Around the metrics


def test_surroundings() -> None:
    text = (
        "==((====))==  Unsloth 2025.8.6: Fast Qwen3 patching. Transformers: 4.55.2. vLLM: 0.8.5.post1.\n"
        "   \\\\   /|    NVIDIA GeForce RTX 4090 D. Num GPUs = 1. Max memory: 23.546 GB.\n"
        "   \\\\   /|    Num examples = 1,622 | Num Epochs = 1 | Total steps = 405\n"
        "O^O/ \\_/ \\    Batch size per device = 4 | Gradient accumulation steps = 8\n"
        "args: GRPOConfig(output_dir='x', beta=0.04, num_generations=8)\n"
        "{'loss': 0.5, 'reward': 1.0}\n"
    )
    log = read(text)
    assert log.versions == {"unsloth": "2025.8.6", "transformers": "4.55.2", "vllm": "0.8.5.post1"}
    assert log.facts["hardware"] == "NVIDIA GeForce RTX 4090 D"
    assert log.planned_steps == 405
    assert log.config["beta"] == 0.04
    assert log.config["gradient_accumulation_steps"] == 8


def test_printed_verl_configuration() -> None:
    text = "(TaskRunner pid=1) {'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,\n(TaskRunner pid=1)    'optim': {'lr': 1e-06}},\n(TaskRunner pid=1)   'rollout': {'n': 5, 'do': True}}}\nstep:1 - critic/score/mean:0.5 - actor/entropy:0.25\n"
    log = read(text)
    assert log.rows == 1
    assert log.config["actor_rollout_ref.actor.optim.lr"] == 1e-6
    assert log.config["actor_rollout_ref.rollout.n"] == 5


def test_a_crash_without_rows() -> None:
    log = read(
        'starting\nTraceback (most recent call last):\n  File "a.py", line 1, in x\n    y()\ntorch.OutOfMemoryError: CUDA out of memory. Tried\n'
    )
    assert (log.kind, log.rows) == ("crash", 0)
    assert log.ending.startswith("torch.OutOfMemoryError")


def test_an_error_that_training_survived_is_no_ending() -> None:
    assert read("Traceback (most recent call last):\n  x\nValueError: y\n{'loss': 0.5, 'reward': 1.0}\n").ending == ""


def test_versions_in_sentences_are_not_taken() -> None:
    assert versions_in("deprecated and will be removed in Transformers 5.0") == {}
    assert versions_in("deepspeed 0.15.4, trl 0.19.0, ms-swift 3.8.1, 8 nodes") == {
        "deepspeed": "0.15.4",
        "trl": "0.19.0",
        "ms-swift": "3.8.1",
    }


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("learning_rate: 1e-6\nbeta: 0.0\n", "learning_rate", 1e-6),
        ('{"args": {"beta": 0.04}}', "args.beta", 0.04),
        ("beta:\n  value: 0.5\n", "beta", 0.5),
        ("--beta 0.04\n--use_vllm true\n--bf16\n", "beta", 0.04),
        ("--bf16\n--x 1\n", "bf16", True),
        ("--reward_funcs a b\n", "reward_funcs", ["a", "b"]),
        ("data.train_batch_size=1024\nactor.lr=1e-6\n", "data.train_batch_size", 1024),
        ("--rm-type deepscaler\nmodel: tiny\n", "model", "tiny"),
    ],
)
def test_configurations(text: str, key: str, value: object) -> None:
    assert config_from_text(text)[key] == value


def test_read_config_refuses(tmp_path: Path) -> None:
    for content in (b"", b"\0\1\2", b"just words here"):
        (tmp_path / "c.yaml").write_bytes(content)
        with pytest.raises(CannotRead):
            read_config(tmp_path / "c.yaml")
    with pytest.raises(CannotRead):
        read_config(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "# a & b, c * d\nbeta: 0.5\n",
        "files: data/*.parquet\nsetup: cd x && make\nbeta: 0.5\n",
        "a: '&x *x'\nbeta: 0.5\n",
        "a: &x 1\nbeta: 0.5\n",
    ],
)
def test_marks_of_aliases_outside_aliases(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert read_config(tmp_path / "c.yaml")["beta"] == 0.5


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("c.yaml", "a: &x [1]\nb: *x\nbeta: 0.5\n", "aliases"),
        ("c.yaml", "beta: 0.5\na: [1,\nb: }\n", "line 3"),
        ("c.json", '{"beta": 0.5,\n"b": ]}\n', "line 2"),
        ("c.yaml", "[" * 5000, "nested|broken"),
    ],
)
def test_a_broken_configuration_says_where(name: str, text: str, word: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(CannotRead, match=word):
        read_config(tmp_path / name)


def test_settings_that_nobody_knows_are_settings(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("colour: blue\n")
    assert read_config(tmp_path / "c.yaml") == {"colour": "blue"}


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such devices here")
def test_sources_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("/dev/zero", "/dev/urandom"):
        with pytest.raises(CannotRead, match="never end"):
            read_log(Path(device))
        with pytest.raises(CannotRead):
            read_config(Path(device))
        assert not rundir.is_config(Path(device))
    monkeypatch.setattr("rlclinic.readers.log.STREAM_LIMIT", 100_000)
    pipe = tmp_path / "metrics.jsonl"
    os.mkfifo(pipe)
    for size, ends in ((10, True), (3_000, False)):
        text = "".join(f"{line}\n" for line in LINES * size).encode()
        writer = threading.Thread(target=_pour, args=(pipe, text))
        writer.start()
        if ends:
            assert read_log(pipe).rows == 4 * size
        else:
            with pytest.raises(CannotRead, match="a log that ends"):
                read_log(pipe)
        writer.join()
    monkeypatch.setattr("rlclinic.readers.log.PIPE_SECONDS", 0.05)
    with pytest.raises(CannotRead, match="nobody writes"):  # opening it would wait for a writer
        read_log(pipe)
    with pytest.raises(CannotRead):
        rundir.find(tmp_path)


def _pour(pipe: Path, text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe.open("wb") as stream:
        stream.write(text)


# Refusals


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b":W&B\xe1\xbe\x00abc", "W&B run file"),
        (b"SQLite format 3\0abc", "SQLite"),
        (b"PAR1abc", "Parquet"),
        (b"\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0\xc0brain.Event:2", "TensorBoard"),
        (b"\0\1\2\3" * 100, "binary"),
        (b"step,loss,reward\n1,0,5,0,25\n2,0,5,0,75\n", "3 cells of its header"),
        (bytes(range(256)) * 20, "binary data"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "picture"),
        (b"Dear all, this is a letter.\n", "without a training metric"),
    ],
)
def test_refusals_say_what_was_seen(data: bytes, word: str) -> None:
    with pytest.raises(CannotRead, match=word):
        read(data)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(CannotRead):
        read_log(tmp_path / "absent")
    with pytest.raises(CannotRead):
        read_log(tmp_path)


def test_an_overlong_line_is_skipped() -> None:
    log = read(b"x" * (5 << 20) + b"\n" + b"{'loss': 0.5, 'reward': 1.0}\n")
    assert log.rows == 1
    assert "long_lines" in codes(log)


# Directories


def write_state(path: Path, steps: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"log_history": [{"step": s, "loss": 1, "reward": s} for s in range(1, steps)]}))


def test_run_directory(tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-50" / "trainer_state.json", 50)
    write_state(tmp_path / "checkpoint-100" / "trainer_state.json", 100)
    (tmp_path / "console.log").write_text("{'loss': 0.5, 'reward': 1.0}\n")
    (tmp_path / "config.yaml").write_text("beta: 0.1\n")
    (tmp_path / "rollouts.jsonl").write_text("{}\n")
    (tmp_path / "events.out.tfevents.1.h").write_text("x")
    found = rundir.find(tmp_path)
    assert [one.relative_to(tmp_path).as_posix() for one in found.logs] == [
        "checkpoint-100/trainer_state.json",
        "console.log",
    ]
    assert [one.name for one in found.configs] == ["config.yaml"]
    assert [one.parent.name for one in found.earlier] == ["checkpoint-50"]
    assert [one.name for one in found.rollouts] == ["rollouts.jsonl"]
    assert [one.form for one in found.tracked] == ["events"]


def test_checkpoints_beside_a_log(tmp_path: Path) -> None:
    for name in (
        "checkpoint-50",
        "checkpoint-100",
        "global_step_75",
        "iter_0000010",
        "checkpoint-best",
        "step_60/inner",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "checkpoints" / "step_120").mkdir(parents=True)
    (tmp_path / "step_60" / "checkpoint-7").mkdir()
    (tmp_path / "step_5.jsonl").write_text("{}\n")
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"step": s, "loss": 1.0, "reward": s}) + "\n" for s in range(1, 5)))
    for source in (tmp_path, log):
        found = rundir.checkpoints([source])
        assert [one.step for one in found] == [10.0, 50.0, 60.0, 75.0, 100.0, 120.0], source
        assert [Path(one.path).name for one in found][1] == "checkpoint-50"
    assert [one.step for one in read_run([log]).checkpoints] == [10.0, 50.0, 60.0, 75.0, 100.0, 120.0]
    assert rundir.checkpoints([tmp_path / "checkpoint-50" / "trainer_state.json"]) == found
    assert rundir.checkpoints([tmp_path / "absent" / "log.jsonl"]) == ()


def test_a_setting_that_the_log_prints_otherwise(tmp_path: Path) -> None:
    rows = "".join(
        f"{{'loss': 0.1, 'grad_norm': 0.2, 'reward': 0.5, 'reward_std': 0.1, 'epoch': 0.{k}}}\n" for k in range(1, 9)
    )
    (tmp_path / "console.log").write_text("python train.py --num_generations 4 --learning_rate 1e-6\n" + rows)
    (tmp_path / "config.yaml").write_text("num_generations: 8\nlearning_rate: 1e-6\nbeta: 0.0\n")
    run = read_run([tmp_path / "console.log", tmp_path / "config.yaml"], framework="trl")
    said = [warn.says for warn in run.warnings if warn.code == "settings_disagree"]
    assert said == ["num_generations is 8 in the configuration and 4 in the log"]


def test_directories_of_several_runs_and_of_none(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_state(tmp_path / name / "trainer_state.json", 5)
    with pytest.raises(CannotRead, match="a, b"):
        rundir.find(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CannotRead):
        rundir.find(tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train_grpo.log", "{'loss': 0.5, 'reward': 1.0}\n"),
        ("grpo.jsonl", '{"step": 1, "loss": 0.5, "reward": 1.0}\n'),
        ("log.txt", "step:1 - critic/score/mean:0.5 - actor/entropy:0.4\n"),
        ("second try.txt", "{'loss': 0.5, 'reward': 1.0}\n"),
        ("job-4711", "{'loss': 0.5, 'reward': 1.0}\n"),
        (
            "wandb/run-1/files/wandb-summary.json",
            '{"_step": 5, "train/reward": 1.0, "train/loss": 0.5, "train/kl": 0.1}',
        ),
    ],
)
def test_a_directory_with_one_log_of_any_name(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    (tmp_path / "notes.txt").write_text("restart with a lower rate\n")
    (tmp_path / "requirements.txt").write_text("trl==1.2.0\n")
    found = rundir.find(tmp_path)
    assert [one.relative_to(tmp_path).as_posix() for one in found.logs] == [name]


def test_a_known_name_is_taken_before_an_unknown_one(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5, "reward": 1.0}\n')
    (tmp_path / "other.txt").write_text("{'loss': 0.5, 'reward': 1.0}\n")
    assert [one.name for one in rundir.find(tmp_path).logs] == ["metrics.jsonl"]


def test_a_known_name_without_metrics_does_not_hide_the_log(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("nothing here\n")
    (tmp_path / "job-4711").write_text("{'loss': 0.5, 'reward': 1.0}\n")
    assert {one.name for one in rundir.find(tmp_path).logs} == {"train.log", "job-4711"}
    (tmp_path / "run").mkdir()
    (tmp_path / "job-4711").rename(tmp_path / "run" / "metrics.jsonl")
    found = rundir.find(tmp_path)
    assert [one.name for one in found.logs] == ["metrics.jsonl"]
    assert ("train.log", "no metrics in it") in [(one.name, why) for one, why in found.left]


# Properties

SAMPLES = [
    "\n".join(json.dumps({"step": s, "loss": 0.125 * s, "reward": -s, "kl": 12.5}) for s in range(1, 5)),
    json.dumps(
        {"max_steps": 9, "log_history": [{"step": s, "loss": 0.125 * s, "reward": -s} for s in range(1, 5)]}, indent=1
    ),
    "step,loss,reward\n" + "".join(f"{s},0.{s}25,-{s}.75\n" for s in range(1, 5)),
    "".join(f"{{'loss': 0.{s}25, 'reward': -1.{s}75, 'kl': 1e-0{s}, 'epoch': 0.{s}}}\n" for s in range(1, 5)),
    "".join(f"{{'loss': '0.{s}25', 'reward': '-1.{s}75', 'epoch': '0.{s}'}}\n" for s in range(1, 5)),
    "".join(f"step:{s} - actor/entropy:0.{s}25 - critic/score/mean:-1.{s}75 - actor/lr:1e-0{s}\n" for s in range(1, 5)),
    "".join(
        f"step:{s} - actor/entropy:np.float64(0.{s}25) - critic/score/mean:np.float64(-1.{s}75)\n" for s in range(1, 5)
    ),
    "Step | reward | kl\n-- | -- | --\n" + "".join(f"{s} | 0.{s}25 | 1.{s}75\n" for s in range(1, 5)),
    "".join(f"Iter {s}: Train loss 0.{s}25, Total rewards mean 1.{s}75, KL 12.{s}5\n" for s in range(1, 5)),
    "".join(f"epoch=0, i={s}, ratio=1.{s}25\n" for s in range(1, 5)),
]


@pytest.mark.parametrize("text", SAMPLES)
def test_cutting_a_log_never_invents_a_value(text: str) -> None:
    whole = read(text)
    known = {
        key: {(int(r), float(v)) for r, v in zip(one.rows, one.values, strict=True)}
        for key, one in whole.series.items()
    }
    for end in range(1, len(text)):
        try:
            part = read(text[:end])
        except CannotRead:
            continue
        for key, one in part.series.items():
            got = {(int(r), float(v)) for r, v in zip(one.rows, one.values, strict=True)}
            assert got <= known.get(key, set()), (end, key, text[:end][-60:])
        assert set(part.steps[np.isfinite(part.steps)]) <= set(whole.steps), (end, text[:end][-60:])


@settings(max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=600))
def test_arbitrary_bytes_only_ever_raise_cannot_read(data: bytes) -> None:
    with contextlib.suppress(CannotRead):
        read_log(None, data)


PIECES = st.sampled_from(
    [
        "{",
        "}",
        "'loss': ",
        "0.5",
        ", ",
        "\n",
        "'reward': '1",
        "'",
        '"',
        "step:1 - ",
        "a/b:0.1",
        " - ",
        "[",
        "]",
        "wandb: x 1\n",
        "10%|##| 1/30 [",
        "\r",
        "Traceback (most recent call last):\n",
        "ValueError: x\n",
        "| Step | reward |\n",
        "1 | 2\n",
        "--x y ",
        "a.b=c ",
        "nan",
        "\\",
        "(",
        ")",
        "Iter 3: loss 1, kl 2\n",
        "step,reward\n",
        "1,2\n",
        '{"step": 1, "reward": 2}\n',
        '"log_history": [',
    ]
)


@settings(max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=60))
def test_scrambled_log_text_only_ever_raises_cannot_read(pieces: list[str]) -> None:
    try:
        log = read("".join(pieces))
    except CannotRead:
        return
    assert len(log.steps) == log.rows
    for one in log.series.values():
        assert len(one.rows) == len(one.values)
        assert bool((np.diff(one.rows) > 0).all())


@pytest.mark.parametrize(
    "piece",
    [
        "{'a",
        "{'a': ",
        "[",
        "(",
        "'x': 1, ",
        " - a:1",
        "x=1, ",
        "a" * 50,
        " ",
        "\\",
        "1%|",
        "--a ",
        "{\n",
        "'",
        "wandb: a 1",
    ],
)
def test_hostile_repetition_stays_fast(piece: str) -> None:
    for text in (piece * 4000, (piece + "\n") * 4000, "step:1 - " + piece * 4000):
        with contextlib.suppress(CannotRead):
            read(text)


# Fixtures and the shared corpus


@pytest.mark.skipif(not CORPUS.exists(), reason="the shared corpus is not here")
@pytest.mark.parametrize("part", ["runs", "casebook"])
def test_corpus(part: str) -> None:
    unread = []
    for label in sorted((CORPUS / part).glob("*/label.json")):
        want = json.loads(label.read_text())
        for name in want.get("files") or []:
            path = label.parent / name
            if not path.exists() or rundir.is_config(path) or "rollouts" in want.get("format", ""):
                continue
            try:
                log = read_log(path)
            except CannotRead as refused:
                if "recognised but not read" not in refused.found:
                    unread.append(path)
                continue
            n_rows, n_steps = want.get("n_rows") or 0, want.get("n_steps") or 0
            if log.rows and n_rows:
                # One call of a tracker is often only a piece of a row: pieces joined give the rows of the steps.
                near = [abs(log.rows - n) <= max(2, 0.05 * n) for n in (n_rows, n_steps)]
                assert near[0] or (near[1] and log.format == "wandb"), path
            if log.rows and n_steps > 1 and log.step_source != "_step":  # a tracker counts its own calls
                assert abs(np.nanmax(log.steps) - n_steps) <= max(2, 0.05 * n_steps), path
    assert [one.parent.name for one in unread] == (["case_057"] if part == "casebook" else [])


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("form", ["jsonl", "csv", "console"])
def test_a_hole_of_zero_bytes_costs_only_the_rows_beside_it(form: str, torn: bool) -> None:
    rows = [{"step": k, "reward": k + 0.125, "loss": 0.5} for k in range(1, 41)]
    if form == "csv":
        lines = [f"{row['step']},{row['reward']},0.5\n" for row in rows]
    else:
        lines = [f"{json.dumps(row) if form == 'jsonl' else row}\n" for row in rows]
    head = "step,reward,loss\n" if form == "csv" else ""
    before, after = head + "".join(lines[:20]), "".join(lines[20:])
    if torn:
        before, after = before[:-5], after[5:]
    log = read(before.encode() + b"\0" * 4096 + after.encode())
    assert log.rows >= 38
    assert (values(log, "reward") - log.steps == 0.125).all()
    assert any(w.code == "holes" for w in log.warnings)
