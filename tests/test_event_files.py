"""TensorBoard event files: every value comes back at its step, restarts are told from disorder, damage is counted."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containers import field, framed, varint
from rlclinic.errors import CannotRead
from rlclinic.readers import read as read_run
from rlclinic.readers.binary.eventfile import read_event_files
from rlclinic.readers.binary.wire import Torn, fields
from rlclinic.readers.log import read_log
from rlclinic.readers.rows import Log

Point = tuple[str, int, float]
"""Tag, step, value."""
NAN, INF = math.nan, math.inf
ROWS = [{"train/reward": 0.25 + 0.5 * k, "train/grad_norm": 0.5, "train/kl": 0.125 * k} for k in range(40)]
POINTS = [(tag, step, value) for step, row in enumerate(ROWS) for tag, value in row.items()]


def number(value: float, form: str) -> bytes:
    if form == "simple":
        return field(2, float(value), 5)
    half = struct.pack("<e", value) if form.startswith("half") else b""
    tensor = {
        "content": lambda: field(1, 1) + field(2, b"") + field(4, struct.pack("<f", value)),
        "float_val": lambda: field(1, 1) + field(5, struct.pack("<f", value)),
        "double": lambda: field(1, 2) + field(4, struct.pack("<d", value)),
        "double_val": lambda: field(1, 2) + field(6, struct.pack("<d", value)),
        "half": lambda: field(1, 19) + field(4, half),
        "half_val": lambda: field(1, 19) + field(13, varint(struct.unpack("<H", half)[0])),
        "bfloat16": lambda: field(1, 14) + field(4, struct.pack("<f", value)[2:]),
    }[form]
    return field(8, tensor()) + field(9, field(1, field(1, b"scalars")))


def event(points: Iterable[Point], step: int, wall: float, form: str = "simple") -> bytes:
    values = b"".join(field(1, field(1, tag.encode()) + number(value, form)) for tag, _, value in points)
    return field(1, float(wall)) + (field(2, step) if step else b"") + field(5, values)


def event_file(
    points: Sequence[Point] = POINTS, *, form: str = "simple", began: float = 1.7e9, sealed: bool = False
) -> bytes:
    """One event for each value, a second apart."""
    data = framed(field(1, began) + field(3, b"brain.Event:2"), sealed)
    for k, (tag, step, value) in enumerate(points):
        data += framed(event([(tag, step, value)], step, began + k, form), sealed)
    return data


SEALED = event_file(sealed=True)


def read(data: bytes) -> Log:
    return read_log(None, data, name="events")


def values(log: Log, key: str) -> dict[float, float]:
    one = log.series[key]
    return dict(zip(log.steps[one.rows].tolist(), one.values.tolist(), strict=True))


def codes(log: Log) -> set[str]:
    return {warn.code for warn in log.warnings}


# Encodings


@pytest.mark.parametrize(
    "form", ["simple", "content", "float_val", "double", "double_val", "half", "half_val", "bfloat16"]
)
def test_every_encoding_of_a_number(form: str) -> None:
    log = read(event_file(form=form, sealed=True))
    assert (log.format, log.rows, log.nonfinite) == ("tensorboard", 40, "kept")
    np.testing.assert_array_equal(log.steps, np.arange(40))
    np.testing.assert_array_equal(log.series["train/reward"].values, [row["train/reward"] for row in ROWS])
    assert not log.warnings


def test_several_values_in_one_event() -> None:
    data = framed(field(1, 1.7e9) + field(3, b"brain.Event:2"))
    for step, row in enumerate(ROWS):
        data += framed(event([(tag, step, value) for tag, value in row.items()], step, 1.7e9 + step))
    log = read(data)
    assert values(log, "train/kl") == {float(k): row["train/kl"] for k, row in enumerate(ROWS)}


def test_both_encodings_and_several_values_in_one_file_keep_their_order() -> None:
    data = framed(field(1, 1.7e9) + field(3, b"brain.Event:2"))
    for step in range(30):
        form = ("simple", "content", "double")[step % 3]
        data += framed(event([("reward", step, 1.0), ("loss", step, 2.0 * step)], step, 1.7e9 + step, form))
        data += framed(event([("reward", step, float(step))], step, 1.7e9 + step, form))
    log = read(data)
    last = {float(step): float(step) for step in range(30)}
    assert values(log, "reward") == last | {1.0: 1.0}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reward", "loss", "train/kl", "x" * 130]),
            st.integers(-(2**40), 2**40),
            st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100) | st.sampled_from([NAN, INF, -INF]),
        ),
        min_size=1,
        max_size=60,
        unique_by=lambda point: point[:2],
    ),
    st.sampled_from(["simple", "content", "double"]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_what_was_written_is_read(points: list[Point], form: str, sealed: bool) -> None:
    points = [*sorted(points, key=lambda point: point[1]), ("reward", 2**41, 0.5), ("reward", 2**41 + 1, 0.75)]
    log = read(event_file(points, form=form, sealed=sealed))
    for tag in {point[0] for point in points}:
        found = values(log, tag)
        wanted = {float(step): value for name, step, value in points if name == tag}
        assert found.keys() == wanted.keys()
        for step, value in wanted.items():
            assert found[step] == value or (math.isnan(value) and math.isnan(found[step]))


def test_nan_and_infinities_stay_and_what_is_no_number_is_passed_over() -> None:
    odd = [("train/reward", 40, NAN), ("train/grad_norm", 40, INF), ("train/kl", 40, -INF)]
    picture = framed(field(2, 41) + field(5, field(1, field(1, b"image") + field(4, b"\x89PNG"))))
    curve = field(8, field(1, 1) + field(2, field(2, field(1, 3))) + field(4, struct.pack("<fff", 1, 2, 3)))
    log = read(event_file([*POINTS, *odd]) + picture + framed(field(5, field(1, field(1, b"reward_curve") + curve))))
    assert log.rows == 41
    assert np.isnan(log.series["train/reward"].values[-1])
    assert log.series["train/grad_norm"].values[-1] == INF
    assert log.series["train/kl"].values[-1] == -INF
    assert "reward_curve" not in log.series


def test_a_picture_of_several_mebibytes_is_passed_over() -> None:
    picture = framed(field(2, 3) + field(5, field(1, field(1, b"image") + field(4, b"\xff" * (9 << 20)))))
    whole = event_file()
    log = read(whole + picture + framed(event([("train/reward", 40, 7.0)], 40, 1.8e9)))
    assert values(log, "train/reward")[40.0] == 7.0


# Order


def test_tags_written_one_after_another() -> None:
    by_tag = sorted(POINTS, key=lambda point: point[0])
    log = read(event_file(by_tag))
    assert log.rows == 40
    assert not log.seams
    assert not log.warnings
    assert values(log, "train/kl") == {float(k): row["train/kl"] for k, row in enumerate(ROWS)}


@pytest.mark.parametrize("timed", [True, False])
def test_tags_written_one_after_another_with_a_restart_in_each(timed: bool) -> None:
    """A converted file: with the times of the first writing, or written at one go."""
    steps = [*range(20), *range(12, 30)]
    points = [(tag, step, float(k)) for tag in ("loss", "reward") for k, step in enumerate(steps)]
    data = framed(field(1, 1.7e9) + field(3, b"brain.Event:2"))
    for place, (tag, step, value) in enumerate(points):
        wall = 1.7e9 + (value if timed else place)
        data += framed(event([(tag, step, value)], step, wall))
    log = read(data)
    assert log.rows == len(steps)
    assert list(log.seams) == [20]
    np.testing.assert_array_equal(log.steps, steps)
    np.testing.assert_array_equal(log.series["reward"].values, np.arange(38.0))


def test_tags_at_different_steps_share_rows_where_they_meet() -> None:
    points = [("loss", k, 1.0 * k) for k in range(0, 40, 2)] + [("reward", k, 1.0 * k) for k in range(0, 40, 5)]
    log = read(event_file(sorted(points, key=lambda point: point[1])))
    assert log.rows == len({step for _, step, _ in points})
    assert values(log, "reward") == {float(k): float(k) for k in range(0, 40, 5)}


def test_a_restart_in_one_file_is_seen_and_the_later_value_counts() -> None:
    first = [(tag, k, 1.0 + k) for k in range(50) for tag in ("reward", "loss")]
    second = [(tag, k, 2.0 + k) for k in range(30, 80) for tag in ("reward", "loss")]
    log = read(event_file(first + second))
    assert log.rows == 100
    assert list(log.seams) == [50]
    assert values(log, "reward") == {k: 1.0 + k for k in range(30)} | {k: 2.0 + k for k in range(30, 80)}


@pytest.mark.parametrize("starts", [2, 3, 5])
def test_several_restarts(starts: int) -> None:
    points = [("reward", k + 20 * n, float(n)) for n in range(starts) for k in range(40)]
    log = read(event_file(points))
    assert list(log.seams) == [40 * n for n in range(1, starts)]


def test_a_crash_before_the_old_step_was_reached_again() -> None:
    steps = [*range(50), *range(30, 40), *range(35, 60)]
    log = read(event_file([("reward", step, float(k)) for k, step in enumerate(steps)]))
    np.testing.assert_array_equal(log.steps, steps)
    assert list(log.seams) == [50, 60]


def test_a_late_value_is_no_restart() -> None:
    """An evaluation that runs beside training logs its result when training has gone on."""
    points = [("reward", k, float(k)) for k in range(60)]
    for k in range(10, 60, 10):
        points.insert(points.index(("reward", k, float(k))) + 1, ("val/acc", k - 3, 0.5))
    swapped = [*points[:20], points[21], points[20], *points[22:]]
    log = read(event_file(swapped))
    assert not log.seams
    np.testing.assert_array_equal(log.steps, np.arange(60))


def test_a_value_written_again_counts_and_the_same_value_again_is_nothing() -> None:
    twice = [("reward", 7, 9.0), ("loss", 7, 1.0), ("reward", 7, 9.0), ("reward", 7, 8.0)]
    points = [("reward", k, float(k)) for k in range(7)] + twice + [("reward", 8, 1.0), ("reward", 9, 1.5)]
    log = read(event_file(points))
    assert not log.seams
    assert log.steps.tolist() == [*range(7), 7, 7, 8, 9]
    assert values(log, "reward")[7.0] == 8.0


def test_a_log_without_steps_is_read_in_the_order_of_writing() -> None:
    log = read(event_file([(tag, 0, float(k)) for k in range(30) for tag in ("reward", "loss")]))
    assert log.step_source == "row order"
    np.testing.assert_array_equal(log.series["reward"].values, np.arange(30.0))


def test_one_series_without_steps_beside_others_is_left_out() -> None:
    points = [one for k in range(30) for one in (("reward", k, float(k)), ("extra", 0, 5.0 * k))]
    log = read(event_file(points))
    assert log.rows == 30
    assert "extra" not in log.series
    assert "values_without_step" in codes(log)


def test_steps_before_zero_and_beyond_a_word() -> None:
    steps = [-5, -4, 0, 1, 2**40, 2**53, 2**62]
    log = read(event_file([("reward", step, 0.5) for step in steps]))
    np.testing.assert_array_equal(log.steps, np.array(steps, dtype=float))


# Several files


def written(folder: Path, name: str, points: Sequence[Point], began: float = 1.7e9) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{name}"
    path.write_bytes(event_file(points, began=began, sealed=True))
    return path


def run(first: int, last: int, level: float) -> list[Point]:
    return [(tag, k, level + k) for k in range(first, last) for tag in ("train/reward", "train/loss")]


def test_files_of_one_run_are_joined_by_their_time(tmp_path: Path) -> None:
    later = written(tmp_path, "1.a", run(30, 60, 0.5), began=1.7e9 + 7200)
    earlier = written(tmp_path, "2.b", run(0, 40, 0.0))
    for order in ([earlier, later], [later, earlier]):
        log = read_event_files(order)
        assert log.path == str(tmp_path)
        assert values(log, "train/reward") == {k: k for k in range(30)} | {k: 0.5 + k for k in range(30, 60)}
        assert list(log.seams) == [40]
        assert "another file begins 2 h after the last value, and the step goes back from 39 to 30" in log.seams[40]


def test_a_clean_resume_is_remembered(tmp_path: Path) -> None:
    paths = [written(tmp_path, "1", run(0, 30, 0.0)), written(tmp_path, "2", run(30, 60, 0.0), began=1.7e9 + 600)]
    log = read_event_files(paths)
    np.testing.assert_array_equal(log.steps, np.arange(60))
    assert log.seams == {30: "another file begins 9 min after the last value"}


def test_writers_of_different_series_at_one_time_share_the_rows(tmp_path: Path) -> None:
    train = written(tmp_path, "1", run(0, 30, 0.0))
    held_out = written(tmp_path, "2", [("eval/acc", k, 0.5) for k in range(0, 30, 10)], began=1.7e9 + 5)
    log = read_event_files([train, held_out])
    assert log.rows == 30
    assert not log.seams
    assert len(log.series["eval/acc"].values) == 3


def test_two_processes_that_write_the_same_series_are_not_mixed(tmp_path: Path) -> None:
    paths = [written(tmp_path, "rank0", run(0, 30, 0.0)), written(tmp_path, "rank1", run(0, 29, 100.0), 1.7e9 + 0.5)]
    log = read_event_files(paths)
    assert values(log, "train/reward") == {k: k for k in range(30)}
    assert any("rank1 was written at the same time as" in warn.says for warn in log.warnings)


@pytest.mark.parametrize(("folder", "key"), [("train_reward_best", "train/reward/best"), ("loss/value", "loss/value")])
def test_folders_of_add_scalars_name_their_series(tmp_path: Path, folder: str, key: str) -> None:
    tag = key.rpartition("/")[0]
    paths = [written(tmp_path, "1", [("train/kl", k, 0.1) for k in range(20)])]
    paths.append(written(tmp_path / folder, "1", [(tag, k, float(k)) for k in range(20)]))
    log = read_event_files(paths)
    assert log.rows == 20
    assert values(log, key) == {k: k for k in range(20)}


def test_folders_for_training_and_validation_are_kept_apart(tmp_path: Path) -> None:
    paths = [written(tmp_path / "train", "1", [("loss", k, 1.0 * k) for k in range(20)])]
    paths.append(written(tmp_path / "validation", "1", [("loss", k, 100.0) for k in range(20)]))
    log = read_event_files(paths)
    assert values(log, "train/loss") == {k: k for k in range(20)}
    assert set(values(log, "validation/loss").values()) == {100.0}


def test_a_writer_may_declare_what_was_before_void(tmp_path: Path) -> None:
    first = written(tmp_path, "1", run(0, 40, 0.0))
    second = tmp_path / "events.out.tfevents.2"
    began = 1.7e9 + 600
    data = framed(field(1, began) + field(3, b"brain.Event:2"))
    data += framed(field(1, began) + field(2, 25) + field(7, field(1, 1)))
    data += b"".join(framed(event([point], point[1], began + 1)) for point in run(26, 30, 0.5))
    second.write_bytes(data)
    log = read_event_files([second, first])
    assert values(log, "train/reward") == {k: k for k in range(25)} | {k: 0.5 + k for k in range(26, 30)}


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    good = written(tmp_path, "1", run(0, 30, 0.0))
    log = read_event_files([good, tmp_path / "absent"])
    assert any("absent" in warn.says for warn in log.warnings)
    with pytest.raises(CannotRead, match="absent"):
        read_event_files([tmp_path / "absent"])
    with pytest.raises(CannotRead):
        read_event_files([])


def test_an_evaluation_afterwards_takes_nothing_back(tmp_path: Path) -> None:
    held_out = [("eval/acc", k, 0.5) for k in range(10, 60, 10)]
    train = written(tmp_path, "1", sorted(run(0, 60, 0.0) + held_out, key=lambda point: point[1]))
    after = written(tmp_path, "2", [("eval/acc", k, 0.75) for k in range(10, 60, 10)], began=1.7e9 + 9999)
    log = read_event_files([train, after])
    np.testing.assert_array_equal(np.unique(log.steps), np.arange(60))
    assert set(values(log, "eval/acc").values()) == {0.75}
    assert all(np.diff(log.steps) >= 0)
    log = read(event_file(run(0, 60, 0.0) + held_out + [("eval/acc", k, 0.75) for k in range(10, 60, 10)]))
    assert all(np.diff(log.steps) >= 0)
    assert set(values(log, "eval/acc").values()) == {0.75}


def test_several_files_of_several_attempts(tmp_path: Path) -> None:
    spans = [(0, 50), (30, 45), (45, 60), (40, 80)]
    paths = [written(tmp_path, str(n), run(a, b, n / 8), began=1.7e9 + 999 * n) for n, (a, b) in enumerate(spans)]
    log = read_event_files(paths)
    np.testing.assert_array_equal(log.steps, [step for a, b in spans for step in range(a, b)])
    assert ["goes back" in why for why in log.seams.values()] == [True, False, True]
    wanted = {k: k + 3 / 8 for k in range(40, 80)} | {k: float(k) for k in range(30)}
    assert values(log, "train/reward") == wanted | {k: k + 1 / 8 for k in range(30, 40)}


def test_a_directory_of_event_files_is_one_run(tmp_path: Path) -> None:
    written(tmp_path / "runs", "1.h", run(0, 20, 0.0))
    written(tmp_path / "runs", "2.h", run(20, 40, 0.0), began=1.7e9 + 60)
    found = read_run([tmp_path])
    assert len(found["reward.mean"]) == 40


def test_another_log_of_the_same_run_is_believed(tmp_path: Path) -> None:
    written(tmp_path, "1.h", run(0, 40, 0.0))
    rows = ({"step": k, "train/reward": float(k), "train/loss": float(k)} for k in range(40))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = [Path(source.path).name for source in read_run([tmp_path]).sources]
    assert names == ["metrics.jsonl", "events.out.tfevents.1.h"]


# Settings


def summary_text(tag: str, words: str) -> bytes:
    tensor = field(1, 7) + field(8, words.encode())
    value = field(1, tag.encode()) + field(8, tensor) + field(9, field(1, field(1, b"text")))
    return framed(field(1, 1.7e9) + field(5, field(1, value)), sealed=True)


def test_arguments_written_as_text_are_settings() -> None:
    table = "|param|value|\n|-|-|\n|num_generations|8|\n|use_kl|True|\n|name|a b|"
    data = SEALED
    data += summary_text("model_config/text_summary", json.dumps({"hidden_size": 896, "learning_rate": 7.0}))
    data += summary_text("args/text_summary", json.dumps({"learning_rate": 1e-6, "nested": {"beta": 0.04}}))
    data += summary_text("hyperparameters/text_summary", table)
    data += summary_text("sample/text_summary", '{"answer": 42}') + summary_text("args/text_summary", "no settings")
    log = read(data)
    assert log.config == {
        "hidden_size": 896,
        "learning_rate": 1e-6,
        "nested.beta": 0.04,
        "num_generations": 8,
        "use_kl": True,
        "name": "a b",
    }


def test_settings_that_differ_after_a_restart_are_told_at_the_seam(tmp_path: Path) -> None:
    paths = [written(tmp_path, "1", run(0, 40, 0.0)), written(tmp_path, "2", run(30, 60, 0.5), began=1.7e9 + 600)]
    for path, rate, folder in zip(paths, (1e-6, 5e-6), ("a", "b"), strict=True):
        words = json.dumps({"learning_rate": rate, "beta": 0.1, "output_dir": folder})
        path.write_bytes(path.read_bytes() + summary_text("args/text_summary", words))
    log = read_event_files(paths[::-1])
    assert log.seams[40].endswith("goes back from 39 to 30; learning_rate 1e-06 -> 5e-06")
    assert log.config == {"learning_rate": 5e-6, "beta": 0.1, "output_dir": "b"}


def test_hyperparameters_of_the_plugin_are_settings() -> None:
    held = {b"lr": field(2, 1e-6), b"n": field(2, 8.0), b"name": field(3, b"x"), b"flag": field(4, 1)}
    session = b"".join(field(1, field(1, key) + field(2, value)) for key, value in held.items())
    plugin = field(1, field(1, b"hparams") + field(2, field(3, session)))
    value = field(1, b"_hparams_/session_start_info") + field(9, plugin)
    log = read(event_file() + framed(field(5, field(1, value))))
    assert log.config == {"lr": 1e-6, "n": 8, "name": "x", "flag": True}


@pytest.mark.parametrize("points", [[], [("weights", 0, 1.0), ("weights", 1, 1.0)]])
def test_a_file_without_a_training_metric_is_refused(points: list[Point]) -> None:
    with pytest.raises(CannotRead, match="event file without a training metric"):
        read(event_file(points))
    with pytest.raises(CannotRead, match="settings only"):
        read(event_file([]) + summary_text("args/text_summary", '{"a": 1}'))


# Damage


def test_a_file_cut_anywhere_gives_what_is_whole() -> None:
    points = POINTS[:60]
    data = event_file(points, sealed=True)
    for cut in [*range(len(data), len(data) - 150, -1), *range(len(data) - 150, 0, -41)]:
        try:
            log = read(data[:cut])
        except CannotRead:
            assert cut < 200
            continue
        got = sum(len(one.values) for one in log.series.values())
        assert got >= len(points) - 1 - (len(data) - cut) // 40
        for step, value in values(log, "train/reward").items():
            assert value == ROWS[int(step)]["train/reward"]
        assert log.warnings == () or codes(log) <= {"torn_record"}


@given(st.integers(0, 10_000), st.integers(0, 7))
@settings(max_examples=80, deadline=None)
def test_a_bit_turned_over_never_changes_a_value(place: int, bit: int) -> None:
    data = bytearray(SEALED)
    data[50 + place % (len(data) - 50)] ^= 1 << bit
    log = read(bytes(data))
    found = {(key, step, v) for key in log.series for step, v in values(log, key).items()}
    assert found < set(POINTS)
    assert len(found) >= len(POINTS) - 2
    assert codes(log) & {"damaged_records", "torn_record"}


def test_reading_goes_on_behind_damage() -> None:
    data = SEALED
    hurt = data[:2000] + b"\xee" * 300 + data[2300:]
    log = read(hurt)
    got = sum(len(one.values) for one in log.series.values())
    assert len(POINTS) - 9 <= got < len(POINTS)
    assert "damaged_records" in codes(log)
    lost = data[:2000] + data[2300:]
    assert sum(len(one.values) for one in read(lost).series.values()) >= len(POINTS) - 9


@given(st.binary(max_size=300))
@settings(max_examples=80, deadline=None)
def test_noise_is_a_refusal_or_a_log(noise: bytes) -> None:
    for start in (event_file([])[:60], SEALED[:1500]):
        try:
            log = read(start + noise)
        except CannotRead:
            continue
        assert log.rows


@given(st.binary(max_size=200))
def test_a_message_is_taken_apart_or_torn(message: bytes) -> None:
    try:
        for place, wire, value in fields(message):
            assert place >= 0
            assert wire in (0, 1, 2, 5)
            assert isinstance(value, int) == (wire == 0)
    except Torn:
        pass


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\0\0\0\0\0\0\0\x01", bytes(range(256))])
def test_damage_without_end_is_passed_over_soon(filler: bytes) -> None:
    data = SEALED + filler * ((12 << 20) // len(filler)) + event_file(sealed=True)
    begin = time.process_time()
    assert read(data).rows >= 40
    assert time.process_time() - begin < 20


def test_ten_thousand_series_are_bounded() -> None:
    points = [(f"reward/{k}", 0, 1.0) for k in range(10_000)] + [("loss", k, 1.0 * k) for k in range(5)]
    log = read(event_file(points))
    assert len(log.series) <= 5_000


# Real writers


def test_what_tensorboardx_writes(tmp_path: Path) -> None:
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(tmp_path))
    odd = {5: NAN, 6: INF, 7: -INF}
    for step in range(30):
        writer.add_scalar("train/reward", odd.get(step, 0.1 * step), step)
        writer.add_scalars("train/loss", {"policy": 2.0 * step, "value": 3.0 * step}, step)
        writer.add_histogram("weights", np.arange(10.0), step)
    writer.add_text("args", json.dumps({"learning_rate": 1e-6, "beta": 0.04}), 0)
    writer.add_hparams({"num_generations": 8, "kind": "grpo"}, {})
    writer.close()
    log = read_event_files(sorted(tmp_path.rglob("events*")))
    assert log.rows == 30
    wanted = [np.float32(odd.get(step, 0.1 * step)) for step in range(30)]
    np.testing.assert_array_equal(log.series["train/reward"].values, wanted)
    assert values(log, "train/loss/value") == {k: 3.0 * k for k in range(30)}
    assert log.config == {"learning_rate": 1e-6, "beta": 0.04, "num_generations": 8, "kind": "grpo"}
    assert not log.seams


@pytest.mark.libraries
def test_what_tensorboard_writes_and_reads(tmp_path: Path) -> None:
    summary = pytest.importorskip("tensorboard.summary")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    writer = summary.Writer(str(tmp_path))
    for step in range(300):
        for tag in ("train/reward", "train/grad_norm"):
            writer.add_scalar(tag, NAN if step == 5 else 0.1 * step, step)
    writer.flush()
    writer.close()
    (path,) = tmp_path.glob("events*")
    log = read_log(path)
    theirs = accumulator.EventAccumulator(str(path), size_guidance={"tensors": 0}).Reload()
    for tag in ("train/reward", "train/grad_norm"):
        wanted = {one.step: one.tensor_proto.float_val[0] if one.tensor_proto.float_val else
                  np.frombuffer(one.tensor_proto.tensor_content, "<f4")[0] for one in theirs.Tensors(tag)}  # fmt: skip
        np.testing.assert_array_equal(log.series[tag].values, list(wanted.values()))
        np.testing.assert_array_equal(log.steps, list(wanted))
