"""Runs that were resumed, restarted or joined: every step counts once, and the report says where and what changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers import wandb_file
from rlclinic.diagnose import diagnose
from rlclinic.errors import CannotRead
from rlclinic.readers import read
from rlclinic.report import render
from test_directories import events, expected, jsonl, rewards, rows, said, state, tagged


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A run of 80 steps, saved at 50 and left at 60, that was resumed from 51 with other noise."""
    return [
        jsonl(tmp_path / "part1.jsonl", rows(last=60, seed=1)),
        jsonl(tmp_path / "part2.jsonl", rows(first=51, last=80, seed=2)),
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_parts_in_any_order_are_one_run(parts: list[Path], turned: bool) -> None:
    run = read(parts[::-1] if turned else parts)
    assert list(run["reward.mean"].steps) == list(range(1, 81))
    assert rewards(run) == expected(rows(last=50, seed=1) + rows(first=51, last=80, seed=2))
    assert run.seams == {51.0: "part2.jsonl goes on here, the part before reached step 60"}
    assert "10 steps of the abandoned branch are left out" in said(run)
    assert run.began is None


def test_parts_in_a_directory_are_one_run(parts: list[Path]) -> None:
    assert len(read([parts[0].parent])["reward.mean"]) == 80


def test_a_run_that_branches_off_is_another_run(tmp_path: Path) -> None:
    jsonl(tmp_path / "base.jsonl", rows(last=80, seed=1))
    jsonl(tmp_path / "branch.jsonl", rows(first=21, last=90, seed=2))
    with pytest.raises(CannotRead, match="2 runs"):
        read([tmp_path])


def test_the_seam_is_in_the_report(parts: list[Path]) -> None:
    diagnosis = diagnose(read(parts))
    assert "part2.jsonl goes on here" in render(diagnosis, "terminal")
    told = json.loads(render(diagnosis, "json"))
    assert "part2.jsonl goes on here" in json.dumps(told["run"])


def test_what_was_set_differently_stands_at_the_seam(tmp_path: Path) -> None:
    for k, (first, last, rate, beta) in enumerate([(1, 60, 1e-6, 0.0), (51, 90, 5e-6, 0.04)]):
        told = [(at, {**row, "train/global_step": float(at)}) for at, row in tagged(rows(first, last, seed=k))]
        folder = tmp_path / f"run-2026010{k + 1}_000000-id{k}"
        folder.mkdir()
        settings = {"learning_rate": rate, "beta": beta, "num_generations": 8}
        (folder / f"run-id{k}.wandb").write_bytes(wandb_file(told, settings))
    run = read([tmp_path], framework="trl")
    assert run.seams[51.0].endswith("learning_rate 1e-06 -> 5e-06, beta 0.0 -> 0.04")


def test_a_gap_between_parts_is_told(tmp_path: Path) -> None:
    run = read([jsonl(tmp_path / "a.jsonl", rows(last=40)), jsonl(tmp_path / "b.jsonl", rows(first=61, last=90))])
    assert len(run["reward.mean"]) == 70
    assert "no file holds the steps between 40 and 61" in said(run)


def test_one_file_with_the_resumed_steps_twice(tmp_path: Path) -> None:
    log = jsonl(tmp_path / "metrics.jsonl", rows(last=60, seed=1) + rows(first=51, last=80, seed=2))
    run = read([log])
    assert rewards(run) == expected(rows(last=50, seed=1) + rows(first=51, last=80, seed=2))
    assert list(run.seams) == [51.0]


def test_all_forms_of_a_resumed_run_agree(tmp_path: Path) -> None:
    first, second = rows(last=60, seed=1), rows(first=51, last=80, seed=2)
    clean = rows(last=50, seed=1) + second
    jsonl(tmp_path / "metrics.jsonl", first + second)
    state(tmp_path / "checkpoint-80" / "trainer_state.json", clean)
    events(tmp_path / "runs" / "a", first, 1_700_000_000)
    events(tmp_path / "runs" / "b", second, 1_700_100_000)
    for source in (
        [tmp_path],
        [tmp_path / "metrics.jsonl"],
        [tmp_path / "checkpoint-80"],
        [tmp_path / "runs"],
        [p for p in sorted(tmp_path.rglob("*")) if p.is_file()],
    ):
        run = read(source)
        assert rewards(run) == pytest.approx(expected(clean), abs=1e-6), source
        assert list(run.seams) in ([51.0], []), source


def test_a_console_that_lasted_longer_than_the_last_checkpoint_adds_its_rows(tmp_path: Path) -> None:
    given = rows(last=60)
    state(tmp_path / "checkpoint-40" / "trainer_state.json", given[:40])
    text = "".join(f"{ {k: v for k, v in row.items() if k != 'step'} }\n" for row in given)
    (tmp_path / "train.log").write_text(f"python train.py --logging_steps 1\n{text}")
    run = read([tmp_path])
    assert list(run["reward.mean"].steps)[-1] == 60
    assert rewards(run) == expected(given)
    assert not run.seams


def test_a_start_from_scratch_in_one_file_is_judged_by_the_last_attempt(tmp_path: Path) -> None:
    one = [dict(row, learning_rate=1e-6 * (1 - row["step"] / 50)) for row in rows(last=40, seed=1)]
    two = [dict(row, learning_rate=1e-6 * (1 - row["step"] / 50)) for row in rows(last=40, seed=2)]
    text = "".join(f"{ {k: v for k, v in row.items() if k != 'step'} }\n" for row in one + two)
    (tmp_path / "train.log").write_text(text)
    run = read([tmp_path / "train.log"])
    assert run.began == 41
    assert rewards(run.last_attempt) == expected(two)
    assert "several attempts" in said(run)


@given(cut=st.integers(12, 70), back=st.integers(0, 8), turned=st.booleans())
def test_wherever_a_run_was_cut_it_comes_back_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int, back: int, turned: bool
) -> None:
    place = tmp_path_factory.mktemp("cut")
    whole = rows(last=80)
    files = [jsonl(place / "a.jsonl", whole[:cut]), jsonl(place / "b.jsonl", whole[cut - back :])]
    run = read(files[::-1] if turned else files)
    assert rewards(run) == expected(whole)
    np.testing.assert_array_equal(run["reward.mean"].steps, np.arange(1, 81))


def test_event_files_given_one_by_one_are_one_run(tmp_path: Path) -> None:
    a = events(tmp_path, rows(last=60, seed=1), 1_700_000_000)
    b = events(tmp_path, rows(first=51, last=80, seed=2), 1_700_100_000)
    run = read([b, a])
    assert rewards(run) == pytest.approx(expected(rows(last=50, seed=1) + rows(first=51, last=80, seed=2)), abs=1e-6)


@given(cut=st.integers(12, 60), back=st.integers(2, 10), every=st.integers(1, 10), offset=st.integers(0, 9))
def test_the_last_branch_counts_at_any_interval_and_offset(
    tmp_path_factory: pytest.TempPathFactory, cut: int, back: int, every: int, offset: int
) -> None:
    old = [dict(row, step=row["step"] * every) for row in rows(last=cut, seed=1)]
    start = (cut - back) * every + offset % every
    new = [dict(row, step=start + k * every) for k, row in enumerate(rows(last=40, seed=2))]
    run = read([jsonl(tmp_path_factory.mktemp("cut") / "metrics.jsonl", old + new)])
    assert rewards(run) == expected([row for row in old if row["step"] < start] + new)
    assert list(run.seams) == [start]


@given(late=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 59)), min_size=1, max_size=8))
def test_late_evaluations_change_no_training_value(
    tmp_path_factory: pytest.TempPathFactory, late: list[tuple[int, int]]
) -> None:
    whole = rows(last=60)
    told = list(whole)
    for place, behind in late:
        told.insert(place, {"eval_reward": 0.5, "step": max(1, place - behind)})
    run = read([jsonl(tmp_path_factory.mktemp("late") / "metrics.jsonl", told)])
    assert rewards(run) == expected(whole)
    assert not run.seams


@given(places=st.lists(st.integers(1, 19), min_size=1, max_size=3, unique=True))
def test_neighbours_that_changed_places_are_sorted(tmp_path_factory: pytest.TempPathFactory, places: list[int]) -> None:
    told = rows(last=60)
    for at in (3 * place for place in places):
        told[at], told[at + 1] = told[at + 1], told[at]
    run = read([jsonl(tmp_path_factory.mktemp("swapped") / "metrics.jsonl", told)])
    assert rewards(run) == expected(rows(last=60))
    assert "out of order" in said(run)
    assert not run.seams


def test_one_late_row_takes_nothing_back(tmp_path: Path) -> None:
    whole = rows(last=50)
    late = dict(rows(last=12, seed=3)[-1])
    run = read([jsonl(tmp_path / "metrics.jsonl", [*whole[:30], late, *whole[30:]])])
    assert rewards(run) == expected(whole)
    assert "out of order" in said(run)
