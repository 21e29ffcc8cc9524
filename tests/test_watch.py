"""A run followed through its files: rotated, cut, replaced, torn, moved, silent; told once, also by a killed watcher."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlclinic.cli import cli
from rlclinic.cli.following import beside
from rlclinic.cli.watching import _has_screen
from rlclinic.live import following, parts, rotated
from rlclinic.live.events import Event
from rlclinic.live.following import Follower, default_state
from rlclinic.live.joining import Beginning, beginning, continued, kinship
from rlclinic.live.pace import LEAST, UNKNOWN, Pace
from rlclinic.live.watching import Lines, Watch, line
from rlclinic.model import Diagnosis, Finding, Forecast, Onset, Prescription, Run, Severity, Verdict
from rlclinic.readers import read
from rlclinic.report.live_page import Watched, live_page, stretch

SICK = "kl_drift"


def rows(first: int, last: int, seed: int = 0) -> list[str]:
    """JSON lines of a small TRL run for the steps ``first`` to ``last``; a seed gives the same row at the same step."""
    said = []
    for step in range(first, last + 1):
        noise = np.random.default_rng((seed, step)).normal(size=4)
        said.append(
            json.dumps(
                {
                    "step": step,
                    "reward": round(0.5 + 0.01 * noise[0], 6),
                    "reward_std": round(0.3 + 0.01 * noise[1], 6),
                    "kl": round(0.05 + 0.001 * noise[2], 6),
                    "entropy": round(0.6 + 0.01 * noise[3], 6),
                    "completions/mean_length": 100.0 + step % 7,
                    "grad_norm": 1.0,
                    "loss": 0.01,
                }
            )
            + "\n"
        )
    return said


class Clock:
    """Seconds of the epoch that go on when told to."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock by which files are written, too."""
    monkeypatch.setattr(rotated, "written", lambda _: None)
    return Clock()


def judged(run: Run, ill: bool) -> Diagnosis:
    """A diagnosis with one grave finding or none, in no time."""
    step = float(run.steps[-1]) if len(run.steps) else 0.0
    finding = Finding(
        Severity.CRITICAL,
        f"KL is high at step {step:g}",
        metrics=("kl.ref",),
        onset=Onset(20.0, 18.0, 21.0),
        forecast=Forecast("reaches 10 by step 900"),
        check=SICK,
        title="The policy drifts.",
    )
    verdict = Verdict("critical", SICK, "drifting") if ill else Verdict("healthy", None, "Nothing wrong was found.")
    return Diagnosis(run, verdict, (finding,) if ill else (), (), ())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Run], bool]], None]:
    """Diagnoses that take no time: by default nothing is ever found; called with a rule, one finding where it holds."""
    rule: list[Callable[[Run], bool]] = [lambda _: False]
    monkeypatch.setattr(following, "diagnose", lambda run, limits=None: judged(run, rule[0](run)))

    def becomes(ill: Callable[[Run], bool]) -> None:
        rule[0] = ill

    return becomes


def after(step: float) -> Callable[[Run], bool]:
    return lambda run: bool(len(run.steps)) and float(run.steps[-1]) >= step


def add(path: Path, lines: Sequence[str]) -> None:
    with open(path, "a") as stream:
        stream.write("".join(lines))


def polled(follower: Follower, clock: Clock, said: list[Any] | None = None) -> list[Event]:
    """What the next look tells; what happened to the log goes to ``said``."""
    clock.now += 60.0
    look = follower.poll()
    if look is None:
        return []
    if said is not None:
        said += look.said
    return list(look.events)


def watched(path: Path | str, clock: Clock, **more: Any) -> Follower:
    return Follower([path], clock=clock, every=0.0, **more)


# ------------------------------------------------------------------------------------------------ growing and rotation


@pytest.mark.usefixtures("quick")
def test_what_was_not_written_to_is_not_read_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "train.jsonl"
    add(log, rows(1, 20))
    follower = watched(log, clock)
    assert polled(follower, clock) == []
    assert follower.rows == 20
    looks = []
    monkeypatch.setattr(follower, "look", lambda: looks.append(1))
    for _ in range(5):
        polled(follower, clock)
    assert looks == []
    add(log, rows(21, 21))
    polled(follower, clock)
    assert looks == [1]


@pytest.mark.usefixtures("quick")
def test_looks_are_apart_and_take_a_small_part_of_the_time(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    add(log, rows(1, 20))
    follower = Follower([log], clock=clock, every=30.0)
    assert follower.poll() is not None
    add(log, rows(21, 25))
    clock.now += 20.0
    assert follower.poll() is None
    clock.now += 11.0
    assert follower.poll() is not None
    follower.cost, follower._pause = 100.0, 900.0  # a look of 100 s
    add(log, rows(26, 30))
    clock.now += 800.0
    assert follower.poll() is None
    clock.now += 101.0
    assert follower.poll() is not None
    add(log, rows(31, 35))
    clock.now -= 3 * 3600.0  # set back, it does not stop us until it is as late again
    assert follower.poll() is not None


def pack(path: Path, place: Path) -> None:
    ways: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    with ways[place.suffix](place, "wb") as stream:
        stream.write(path.read_bytes())
    path.unlink()


def renamed(log: Path, turn: int) -> None:
    for number in range(turn, 0, -1):
        os.rename(f"{log}.{number}", f"{log}.{number + 1}")
    os.rename(log, f"{log}.1")


def copied(log: Path, turn: int) -> None:
    for number in range(turn, 0, -1):
        os.rename(f"{log}.{number}", f"{log}.{number + 1}")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)


ROTATIONS: dict[str, Callable[[Path, int], None]] = {
    "renamed": renamed,
    "copied and cut": copied,
    "dated": lambda log, turn: os.rename(log, f"{log}-2026113{turn}"),
    "dated before the ending": lambda log, turn: os.rename(
        log, log.with_name(f"train.2026-11-30_14-0{turn}-00_1234.jsonl")
    ),
    "packed": lambda log, turn: pack(log, Path(f"{log}-2026113{turn}-0405{turn}.gz")),
    "packed by others": lambda log, turn: pack(log, Path(f"{log}.{3 - turn}.{'xz' if turn else 'bz2'}")),
}


@pytest.mark.parametrize("way", ROTATIONS)
@pytest.mark.usefixtures("quick")
def test_a_rotated_log_stays_one_run(way: str, tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    said: list[str] = []
    follower = watched(log, clock)
    for turn in range(3):
        add(log, rows(1 + 40 * turn, 40 + 40 * turn))
        if turn != 1:  # the second part is rotated before anybody looked at it
            polled(follower, clock, said)
        if turn < 2:
            ROTATIONS[way](log, turn)
    assert follower.last is not None
    assert not said
    assert follower.last.run.steps.tolist() == list(range(1, 121))
    assert follower.last.run.name
    assert str(log) in {source.path for source in follower.last.run.sources}
    # One who comes later reads the same.
    late = watched(log, clock)
    polled(late, clock)
    assert late.rows == 120 and not any(late.last.run.seams) if late.last else False


@pytest.mark.usefixtures("quick")
def test_a_log_rotated_in_the_directory_of_a_run_keeps_its_settings(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "run" / "train.jsonl"
    log.parent.mkdir()
    (log.parent / "config.yaml").write_text("beta: 0.05\nnum_generations: 8\nmax_steps: 300\n")
    add(log, rows(1, 40))
    os.rename(log, f"{log}.1")
    pack(Path(shutil.copy(f"{log}.1", f"{log}.bak")), Path(f"{log}.1.gz"))  # it is being packed at this moment
    add(log, rows(41, 60))
    follower = watched(log.parent, clock)
    polled(follower, clock)
    assert follower.last is not None
    assert follower.last.run.steps.tolist() == list(range(1, 61))
    assert follower.last.run.number("group_size") == 8
    assert follower.last.run.name == "run"


@pytest.mark.usefixtures("quick")
def test_a_pipe_is_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes")
    os.mkfifo(tmp_path / "train.log")
    follower = watched(tmp_path / "train.log", clock)
    assert polled(follower, clock) == []
    assert "is neither" in follower.problem


@pytest.mark.usefixtures("quick")
def test_a_log_cut_without_a_copy_keeps_what_was_read(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    said: list[str] = []
    follower = watched(log, clock)
    for turn in range(3):
        add(log, rows(1 + 40 * turn, 40 + 40 * turn))
        polled(follower, clock, said)
        os.truncate(log, 0)
        polled(follower, clock, said)
        assert follower.rows == 40 + 40 * turn  # nothing to read is no reason to forget
    add(log, rows(121, 123))
    polled(follower, clock, said)
    assert follower.last is not None
    assert follower.last.run.steps.tolist() == list(range(1, 124))
    assert not follower.last.run.seams
    assert len(said) == 3
    assert any(warn.code == "log_cut" for warn in follower.last.run.warnings)


@pytest.mark.usefixtures("quick")
def test_a_beginning_lost_while_nobody_watched_is_said_and_is_no_new_run(tmp_path: Path, clock: Clock) -> None:
    log, state = tmp_path / "train.jsonl", tmp_path / "state.json"
    add(log, rows(1, 40))
    polled(watched(log, clock, state=state), clock)
    log.write_text("".join(rows(41, 80)))
    said: list[str] = []
    again = watched(log, clock, state=state)
    polled(again, clock, said)
    assert again.rows == 40
    assert said == ["the log has lost its rows before step 41 while nobody watched"]
    add(log, rows(81, 82))
    polled(again, clock, said)
    assert len(said) == 1


@pytest.mark.usefixtures("quick")
def test_training_that_goes_back_after_a_cut_is_a_seam_and_the_new_rows_count(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    follower = watched(log, clock)
    add(log, rows(1, 60))
    polled(follower, clock)
    log.write_text("".join(rows(41, 50, seed=1)))
    polled(follower, clock)
    assert follower.last is not None
    run = follower.last.run
    assert run.steps.tolist() == list(range(1, 51))
    assert list(run.seams) == [41.0]
    new = read([log])
    assert run["reward.mean"].values[-10:].tolist() == new["reward.mean"].values.tolist()


def test_a_log_from_scratch_is_a_new_run_and_closes_what_was_open(
    tmp_path: Path, clock: Clock, quick: Callable[[Callable[[Run], bool]], None]
) -> None:
    log = tmp_path / "train.jsonl"
    quick(after(50))
    follower = watched(log, clock)
    add(log, rows(1, 100))
    opened = polled(follower, clock)
    assert [(event.kind, event.check) for event in opened] == [("opened", SICK)]
    said: list[str] = []
    log.write_text("".join(rows(1, 12, seed=3)))
    closed = polled(follower, clock, said)
    assert [(event.kind, event.check) for event in closed] == [("closed", SICK)]
    assert follower.open == {}
    assert follower.rows == 12
    assert "new run" in said[0]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_second_run_of_the_same_seed_is_a_new_run(
    restarted: bool, tmp_path: Path, clock: Clock, quick: Callable[[Callable[[Run], bool]], None]
) -> None:
    quick(after(50))
    log, state = tmp_path / "train.jsonl", tmp_path / "state.json"
    follower = watched(log, clock, state=state)
    add(log, rows(1, 100))
    assert [event.kind for event in polled(follower, clock)] == ["opened"]
    follower.told()
    log.write_text("".join(rows(1, 8)))
    again = watched(log, clock, state=state) if restarted else follower
    assert [event.kind for event in polled(again, clock)] == ["closed"]
    add(log, rows(9, 30))
    assert polled(again, clock) == []
    assert again.rows == 30


@pytest.mark.usefixtures("quick")
def test_rows_that_turn_out_to_be_further_apart_are_the_same_run(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    plain_rows = [{k: v for k, v in json.loads(one).items() if k != "step"} for one in rows(1, 40)]
    add(log, [json.dumps(one) + "\n" for one in plain_rows[:20]])
    follower = watched(log, clock)
    said: list[str] = []
    polled(follower, clock, said)
    log.write_text("".join(json.dumps({**one, "step": 5 * k}) + "\n" for k, one in enumerate(plain_rows, 1)))
    polled(follower, clock, said)
    assert follower.last is not None
    assert follower.last.run.steps.tolist() == [5.0 * k for k in range(1, 41)]
    assert said == []


@pytest.mark.usefixtures("quick")
def test_the_log_of_an_older_run_beside_it_is_no_part_of_this_one(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    add(Path(f"{log}.1"), rows(1, 90, seed=7))
    add(log, rows(1, 30))
    follower = watched(log, clock)
    polled(follower, clock)
    assert follower.rows == 30
    # Nor one that logs less often.
    log.write_text("".join(one for k, one in enumerate(rows(1, 200), 1) if k % 10 == 0))
    polled(follower, clock)
    assert follower.rows == 20


@pytest.mark.usefixtures("quick")
def test_a_log_deleted_and_made_again_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    follower = watched(log, clock)
    said: list[str] = []
    watch = Watch(follower, lambda *_: None, said.append)
    watch.turn()
    assert follower.missing() == [str(log)]
    assert follower.state == "waiting"
    assert "is not there yet" in said[0]
    assert "waiting for" in watch.page(80, 24)
    add(log, rows(1, 20))
    polled(follower, clock)
    log.unlink()
    assert polled(follower, clock) == []
    assert follower.rows == 20
    assert follower.problem
    add(log, rows(21, 40))
    polled(follower, clock)
    assert follower.rows == 40
    assert not follower.problem


@pytest.mark.usefixtures("quick")
def test_a_torn_line_damaged_bytes_and_a_lost_permission_are_passed_over(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    follower = watched(log, clock)
    add(log, [*rows(1, 20), rows(21, 21)[0][:30]])
    polled(follower, clock)
    assert follower.rows == 20
    add(log, [rows(21, 21)[0][30:]])
    polled(follower, clock)
    assert follower.rows == 21
    with open(log, "ab") as stream:
        stream.write(b"\xff\xfe\x00\x1b]0;owned\x07{]" * 50 + b"\n")
    add(log, rows(22, 30))
    polled(follower, clock)
    assert follower.rows == 30
    if os.getuid():
        log.chmod(0)
        polled(follower, clock)
        log.chmod(0o600)
    add(log, rows(31, 31))
    polled(follower, clock)
    assert follower.rows == 31


def test_a_reader_that_breaks_breaks_no_watcher(
    tmp_path: Path, clock: Clock, quick: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "train.jsonl"
    add(log, rows(1, 20))
    follower = watched(log, clock)
    polled(follower, clock)

    def broken(*_: object, **__: object) -> Run:
        raise IndexError("index 3 is out of bounds")

    with monkeypatch.context() as patched:
        patched.setattr(parts, "read", broken)
        add(log, rows(21, 21))
        assert polled(follower, clock) == []
        assert "IndexError" in follower.problem
        assert follower.rows == 20
    polled(follower, clock)  # again without a change: the failure may have been of the moment
    assert follower.rows == 21
    assert not follower.problem


@pytest.mark.usefixtures("quick")
def test_checkpoints_that_appear_and_a_link_that_moves_are_changes(tmp_path: Path, clock: Clock) -> None:
    def saved(folder: Path, last: int, seed: int = 0) -> None:
        folder.mkdir(parents=True)
        history = [json.loads(one) for one in rows(1, last, seed)]
        state = {"global_step": last, "max_steps": 100, "log_history": history}
        (folder / "trainer_state.json").write_text(json.dumps(state))

    saved(tmp_path / "one" / "checkpoint-20", 20)
    link = tmp_path / "latest-run"
    link.symlink_to("one")
    follower = watched(link, clock)
    polled(follower, clock)
    assert follower.rows == 20
    assert not follower.changed()
    saved(tmp_path / "one" / "checkpoint-40", 40)
    polled(follower, clock)
    assert follower.rows == 40
    assert follower.last is not None
    assert follower.last.run.planned_steps == 100
    saved(tmp_path / "two" / "checkpoint-10", 10, seed=5)
    link.unlink()
    link.symlink_to("two")
    said: list[str] = []
    polled(follower, clock, said)
    assert follower.rows == 10
    assert "new run" in said[0]


@pytest.mark.parametrize("once", [["--once"], []])
@pytest.mark.usefixtures("quick")
def test_several_runs_are_not_mixed_but_named(once: list[str], tmp_path: Path) -> None:
    for name in ("apple", "pear", "plum"):
        (tmp_path / name).mkdir()
        add(tmp_path / name / "metrics.jsonl", rows(1, 20, seed=len(name)))
    told = CliRunner().invoke(cli, ["watch", str(tmp_path), *once, "--state", str(tmp_path / "state.json")])
    assert told.exit_code != 0
    assert isinstance(told.exception, Exception)
    assert "apple" in str(told.exception)
    assert "--run" in str(told.exception)
    assert "rlclinic watch" in str(told.exception)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=4))
def test_joining_never_doubles_a_step_and_never_leaves_order(spans: list[tuple[int, int]]) -> None:
    whole: Run | None = None
    for seed, (first, length) in enumerate(spans):
        now = Run(columns=dict(made(first, length, seed)))
        whole = now if whole is None else continued(whole, now)
        assert len(whole.steps) == len(np.unique(whole.steps))
        assert bool(np.all(np.diff(whole.steps) > 0))
        assert all(bool(np.all(np.diff(one.steps) > 0)) for one in whole.columns.values())
        assert whole["reward.mean"].values[-length:].tolist() == now["reward.mean"].values.tolist()


def made(first: int, length: int, seed: int) -> Iterator[tuple[str, Any]]:
    from rlclinic.model import Column

    steps = np.arange(first, first + length, dtype=float)
    for name in ("reward.mean", "kl.ref", "entropy.mean"):
        yield name, Column(name, name, steps, np.random.default_rng((seed, len(name))).normal(size=length))


@pytest.mark.parametrize(
    ("first", "last", "seed", "kin"),
    [(1, 40, 0, "same"), (1, 10, 0, "same"), (1, 40, 9, "another"), (41, 60, 0, "goes on"), (30, 60, 9, "goes on")],
)
def test_a_run_is_known_again_by_its_first_rows(first: int, last: int, seed: int, kin: str, tmp_path: Path) -> None:
    add(tmp_path / "a.jsonl", rows(1, 40))
    add(tmp_path / "b.jsonl", rows(first, last, seed))
    known = beginning(read([tmp_path / "a.jsonl"]))
    assert known is not None
    again = Beginning.from_json(json.loads(json.dumps(known.as_json())))
    assert again == known
    assert kinship(again, read([tmp_path / "b.jsonl"])) == kin


def test_marks_of_a_directory_are_bounded_and_never_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotated, "ENTRIES", 40)
    for k in range(100):
        (tmp_path / f"step_{k:03d}").mkdir()
        (tmp_path / f"step_{k:03d}" / "weights.bin").write_bytes(b"x")
    seen = rotated.mark([tmp_path, tmp_path / "absent", "no\0file", "wandb://e/p/r"])
    assert len(seen) <= 42
    (tmp_path / "zz").write_bytes(b"")
    assert rotated.mark([tmp_path]) != seen  # that of the directory itself, whatever is cut
    assert rotated.siblings(tmp_path / "absent" / "train.log") == []
    assert rotated.joined([tmp_path]) == b""


def test_pieces_are_known_by_the_names_that_programs_give_them(tmp_path: Path) -> None:
    of_logrotate = [
        "train.log-20261130",
        "train.log-2026113014",
        "train-20261130.log.gz",
        "train.log.2",
        "train.log.1.xz",
    ]
    of_python = ["train.log.2026-11-30", "train.log.2026-11-30_14", "train.log.2026-11-30_14-05-33", "train.log.3"]
    others = [
        "train.1.log",
        "train-2.log",
        "train.log.bak",
        "train.log.1.tmp",
        "train.log.20261",
        "other.log.1",
        "train.log",
    ]
    for name in (*of_logrotate, *of_python, *others):
        (tmp_path / name).touch()
    found = [one.name for one in rotated.siblings(tmp_path / "train.log")]
    assert sorted(found) == sorted([*of_logrotate, *of_python])
    assert found[-3:] == ["train.log.3", "train.log.2", "train.log.1.xz"]
    for name in (*of_python, "train.log.2", "train.log.1.xz"):
        os.utime(tmp_path / name, (1e9, 1e9))
    os.utime(tmp_path / "train.log.3", (1e8, 1e8))
    assert rotated.siblings(tmp_path / "train.log")[0].name == "train.log.3"  # dates came into use later


# --------------------------------------------------------------------------------------------- told once, and restarts


def test_each_change_is_told_once_however_often_one_looks(
    tmp_path: Path, clock: Clock, quick: Callable[[Callable[[Run], bool]], None]
) -> None:
    quick(lambda run: 40 <= run.steps[-1] < 300)
    log = tmp_path / "train.jsonl"
    follower = watched(log, clock)
    heard = []
    for step in range(1, 900, 60):
        add(log, rows(step, step + 59))
        for _ in range(2):
            heard += [event.kind for event in polled(follower, clock)]
    assert heard == ["opened", "closed"]


def test_a_finding_of_a_single_look_is_not_told(
    tmp_path: Path, clock: Clock, quick: Callable[[Callable[[Run], bool]], None]
) -> None:
    quick(lambda run: run.steps[-1] == 49)
    log = tmp_path / "train.jsonl"
    follower = watched(log, clock)
    heard: list[Event] = []
    for step in range(1, 100, 7):
        add(log, rows(step, step + 6))
        heard += polled(follower, clock)
    assert heard == []


def test_a_run_under_way_is_told_as_it_stands(
    tmp_path: Path, clock: Clock, quick: Callable[[Callable[[Run], bool]], None]
) -> None:
    log = tmp_path / "train.jsonl"
    add(log, rows(1, 200))
    quick(after(60))
    assert [(event.kind, event.step) for event in polled(watched(log, clock), clock)] == [("opened", 200.0)]
    quick(lambda run: run.steps[-1] == 200)  # seen by this look alone: it may be chance
    assert polled(watched(log, clock), clock) == []
    quick(lambda run: 80 < run.steps[-1] < 200)  # gone: neither its beginning nor its end is news
    follower = watched(log, clock)
    heard = polled(follower, clock)
    for step in range(201, 700, 20):
        add(log, rows(step, step + 19))
        heard += polled(follower, clock)
    assert heard == []
    assert follower.open == {}


def test_a_restarted_watcher_tells_nothing_again(
    tmp_path: Path, clock: Clock, quick: Callable[[Callable[[Run], bool]], None]
) -> None:
    quick(after(30))
    log, state = tmp_path / "train.jsonl", tmp_path / "kept" / "state.json"
    heard = []
    for step in range(1, 400, 20):
        add(log, rows(step, step + 19))
        follower = watched(log, clock, state=state)
        heard += [event.kind for event in polled(follower, clock)]
        follower.told()
    assert heard == ["opened"]


def test_what_a_killed_watcher_may_not_have_told_goes_to_those_who_know_what_they_heard(
    tmp_path: Path, clock: Clock, quick: Callable[[Callable[[Run], bool]], None]
) -> None:
    quick(after(30))
    log, state = tmp_path / "train.jsonl", tmp_path / "state.json"
    add(log, rows(1, 100))
    (untold,) = polled(watched(log, clock, state=state), clock)  # and dies
    printed: list[Event] = []
    sent: list[Event] = []
    for _ in range(2):
        again = watched(log, clock, state=state)
        Watch(again, lambda events, _: printed.extend(events), alert=lambda events, _: sent.extend(events)).turn()
        assert again.open == {SICK: Severity.CRITICAL}
    assert printed == []
    assert sent == [untold]


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", '{"schema": "rlclinic.watch/1"}', '{"schema": "rlclinic.watch/1", "course": 3}', "\0" * 99],
)
@pytest.mark.usefixtures("quick")
def test_a_damaged_state_is_as_good_as_none(damage: str, tmp_path: Path, clock: Clock) -> None:
    log, state = tmp_path / "train.jsonl", tmp_path / "state.json"
    add(log, rows(1, 20))
    state.write_text(damage)
    follower = watched(log, clock, state=state)
    polled(follower, clock)
    assert follower.rows == 20
    assert not follower.unsaved


def test_a_state_in_which_any_value_is_another_raises_nothing(
    tmp_path: Path, clock: Clock, quick: Callable[[Callable[[Run], bool]], None]
) -> None:
    quick(after(30))
    log, state = tmp_path / "train.jsonl", tmp_path / "state.json"
    add(log, rows(1, 100))
    polled(watched(log, clock, state=state), clock)  # one event is told and not known to have arrived
    whole = state.read_text()
    numbers = [
        found.span() for found in re.finditer(r"(?<=[:,\[])(-?\d[\d.e+-]*|null|true|false|\"[^\"]*\")(?=[,\]}])", whole)
    ]
    assert len(numbers) > 40
    for odd in ("Infinity", "1" + "0" * 400, "null", "[]", '"x"'):
        for start, end in numbers:
            state.write_text(whole[:start] + odd + whole[end:])
            watched(log, clock, state=state).stalled()


@pytest.mark.usefixtures("quick")
def test_a_state_that_cannot_be_kept_is_said_and_stops_nothing(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    add(log, rows(1, 20))
    (tmp_path / "file").write_text("")
    said: list[str] = []
    watch = Watch(watched(log, clock, state=tmp_path / "file" / "state.json"), lambda *_: None, said.append)
    for _ in range(3):
        add(log, rows(21, 21))
        clock.now += 60.0
        watch.turn()
    assert watch.follower.rows == 21
    looks, others = [one for one in said if "looked at" in one], [one for one in said if "looked at" not in one]
    assert [re.sub(r"in \d+\.\d s", "in TIME", one) for one in looks] == [
        "looked at 21 rows in TIME: nothing to tell"
    ] * 3
    assert len(others) == 1
    assert "cannot be kept" in others[0]


def test_the_state_is_that_of_the_paths_and_never_beside_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert default_state(["a", "b"]) == default_state([tmp_path / "b", "a"]) != default_state(["a"])
    assert default_state(["a"]).parent == tmp_path / "home" / "rlclinic"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_state(["a"]).is_absolute()
    assert "relative" not in str(default_state(["a"]))


# --------------------------------------------------------------------------------------------------------- silence, end


@pytest.mark.usefixtures("quick")
def test_silence_is_told_once_and_again_when_rows_come(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    follower = watched(log, clock)
    for step in range(1, 40, 2):
        add(log, rows(step, step + 1))
        assert polled(follower, clock) == []
    clock.now += 8 * 30.0
    assert follower.poll() is None
    clock.now += LEAST
    silent = follower.poll()
    assert silent is not None
    assert [event.kind for event in silent.events] == ["opened"]
    assert "no new row since" in silent.events[0].says
    states = [follower.state]
    clock.now += 1e5
    assert follower.poll() is None
    add(log, rows(41, 41))
    (again,) = polled(follower, clock)
    assert again.kind == "closed"
    assert [*states, follower.state] == ["stalled", "live"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("slept", [8 * 3600.0, -8 * 3600.0])
def test_a_machine_that_slept_or_a_clock_that_was_set_is_no_silence(tmp_path: Path, clock: Clock, slept: float) -> None:
    log = tmp_path / "train.jsonl"
    awake = Clock()
    follower = Follower([log], clock=clock, every=0.0, steady=awake)

    def passes(seconds: float) -> None:
        clock.now += seconds
        awake.now += seconds

    for step in range(1, 40, 2):
        add(log, rows(step, step + 1))
        passes(30.0)
        assert follower.poll() is not None
    clock.now += slept
    passes(1.0)
    assert follower.poll() is None
    assert follower.quiet() == 0.0
    passes(LEAST - 10.0)
    assert follower.poll() is None
    passes(20.0)
    silent = follower.poll()
    assert (silent is not None) == (slept > 0)  # set back, the clock does not know how old the last row is


@pytest.mark.usefixtures("quick")
def test_a_state_that_is_saved_every_few_hours_and_a_run_at_its_planned_end_are_not_silent(
    tmp_path: Path, clock: Clock
) -> None:
    state = tmp_path / "trainer_state.json"
    follower = watched(state, clock)
    heard = []
    for last in (20, 40, 60, 80, 100):
        history = [json.loads(one) for one in rows(1, last)]
        state.write_text(json.dumps({"global_step": last, "max_steps": 100, "log_history": history}))
        for _ in range(8):
            clock.now += 3600.0
            look = follower.poll()
            heard += [] if look is None else list(look.events)
    clock.now += 1e6
    assert follower.poll() is None
    assert heard == []
    assert follower.state == "ended"


def test_pauses_that_were_seen_before_are_no_silence() -> None:
    pace, now = Pace(), 0.0
    for k in range(60):
        now += 900.0 if k % 10 == 0 else 30.0  # an evaluation every ten steps
        assert pace.seen(now, k + 1, k + 1.0, now)
    assert pace.patience() == 2700.0
    assert not pace.seen(now + 50.0, 60, 60.0, now + 50.0)
    assert Pace().patience() == UNKNOWN
    assert Pace().speed() is None
    assert Pace().remaining(100) is None
    assert Pace.from_json(json.loads(json.dumps(pace.as_json()))) == pace


def test_speed_is_that_of_the_steps_and_forgets_an_abandoned_branch() -> None:
    pace = Pace()
    for k in range(10):
        pace.seen(60.0 * k, 2 * k, 2.0 * k, 60.0 * k)
    assert pace.speed() == pytest.approx(2.0)
    assert pace.remaining(118) == pytest.approx(3000.0)
    pace.seen(600.0, 5, 5.0, 600.0)  # resumed from a checkpoint
    assert pace.speed() is None
    assert pace.remaining(118) is None
    pace.seen(50.0, 6, 6.0, 660.0)  # a file with the times of a copy
    assert pace.speed() == pytest.approx(1.0)


def test_the_end_that_the_log_states_lets_nothing_wait(
    tmp_path: Path, clock: Clock, quick: Callable[[Callable[[Run], bool]], None]
) -> None:
    quick(after(39))
    log = tmp_path / "train.jsonl"
    add(log, rows(1, 30))
    follower = watched(log, clock)
    watch = Watch(follower, lambda *_: None)
    assert polled(follower, clock) == []
    assert not watch.done(True, None)
    add(log, [*rows(31, 40), json.dumps({"step": 40, "train_runtime": 12.0, "train_loss": 0.1}) + "\n"])
    assert [event.kind for event in polled(follower, clock)] == ["opened"]
    assert follower.state == "ended"
    assert watch.done(True, None)
    assert not watch.done(False, None)
    clock.now += 1e6
    assert follower.poll() is None  # an end is no silence


def test_an_error_at_the_end_is_told_with_the_silence(tmp_path: Path, clock: Clock, quick: object) -> None:
    log = tmp_path / "train.log"
    text = "".join(f"step {k}: reward: 0.5{k % 7} kl: 0.0{k % 5 + 1} entropy: 0.6 loss: 0.1\n" for k in range(1, 31))
    log.write_text(
        text + "Traceback (most recent call last):\n  File 'x.py', line 1\ntorch.OutOfMemoryError: CUDA out of memory\n"
    )
    follower = watched(log, clock)
    assert polled(follower, clock) == []
    clock.now += 61.0
    silent = follower.poll()
    assert silent is not None
    assert silent.events[0].severity == Severity.CRITICAL
    assert "OutOfMemoryError" in silent.events[0].says


# ------------------------------------------------------------------------------------------------------------ the page


def hostile(run_name: str, log: Path) -> Watched:
    run = read([log])
    from dataclasses import replace

    diagnosis = judged(replace(run, name=run_name, planned_steps=400), True)
    return Watched(
        diagnosis=diagnosis,
        told={SICK: Severity.CRITICAL},
        closed=["\x1b[31m[bold]Old one[/bold]\x1b[0m"],
        said=["the log was cut\x07 and goes on\u202e at step 7"],
        problem="\x1b]0;title\x07gone",
        state="stalled",
        rows=len(run.steps),
        speed=1.5,
        remaining=9000.0,
        age=75.0,
    )


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60), (41, 5), (10, 3), (80, 1)])
@pytest.mark.parametrize("name", ["[red]run[/red]\x1b[2J\u202e\u0000", "漢字" * 400, "x" * 1_000_000, ""])
def test_the_page_fits_and_obeys_no_text(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    add(tmp_path / "log.jsonl", rows(1, 40))
    text = live_page(hostile(name, tmp_path / "log.jsonl"), *size)
    from rich.cells import cell_len

    lines = text.splitlines()
    assert 1 <= len(lines) <= size[1]
    assert max(map(cell_len, lines)) <= max(size[0], 40)
    assert not set("\x1b\x07\u202e\0") & set(text)
    assert text.endswith("\n")


def test_the_page_as_it_looks(tmp_path: Path) -> None:
    add(tmp_path / "log.jsonl", rows(1, 40))
    shown = hostile("my run", tmp_path / "log.jsonl")
    wide = live_page(shown, 80, 24, ascii=True)
    assert wide.splitlines()[:12] == [
        "rlclinic  my run  (TRL)",
        "step 40 of 400 (10%) | 1.5 steps/min, 2 h 30 min left | last row 75 s ago",
        "NO NEW ROWS: the run has stopped without a word, or hangs",
        "cannot be read now: gone",
        "the log was cut and goes on at step 7",
        "Findings  (1 finding)",
        "CRITICAL  The policy drifts",
        "   KL is high at step 40, since step 20 (between 18 and 21)",
        "   forecast   reaches 10 by step 900",
        "Vitals  (* a finding speaks of it)",
        wide.splitlines()[10],
        wide.splitlines()[11],
    ]
    assert "reward" in wide.splitlines()[10]
    assert "[bold]Old one[/bold]" in wide
    narrow = live_page(shown, 40, 10, ascii=True).splitlines()
    assert narrow[0] == "rlclinic  my run  (TRL)"
    assert "critical: kl_drift @20" in narrow
    quiet = live_page(Watched(judged(read([tmp_path / "log.jsonl"]), False), state="live", rows=40), 80, 24)
    assert "nothing told so far: Nothing wrong was found." in quiet


def test_a_consequence_on_the_page_shows_the_change_of_its_root_and_not_its_own(tmp_path: Path) -> None:
    add(tmp_path / "log.jsonl", rows(1, 40))
    remedies = [Prescription(name, f"do {name}") for name in ("lower_lr", "longer_limit")]
    root = Finding(
        Severity.CRITICAL, "fell", check="sudden_collapse", title="It broke: all of it", prescriptions=(remedies[0],)
    )
    after = Finding(Severity.CRITICAL, "cut", check="truncation", title="Cut", because_of=("sudden_collapse",),
                    prescriptions=(remedies[1],))  # fmt: skip
    run = read([tmp_path / "log.jsonl"])
    found = Diagnosis(run, Verdict("critical", root.check, "fell"), (root, after), (), ())
    alone = live_page(Watched(found, {after.check: Severity.CRITICAL}, state="live", rows=40), 80, 40)
    assert re.search(r"behind it +It broke \(sudden_collapse\)\n +change +do lower_lr\n", alone)
    assert "longer_limit" not in alone
    both = live_page(
        Watched(found, dict.fromkeys((root.check, after.check), Severity.CRITICAL), state="live", rows=40), 80, 40
    )
    assert both.count("do lower_lr") == 1
    assert "longer_limit" not in both


def test_what_is_seen_and_not_told_is_marked_quietly(tmp_path: Path) -> None:
    add(tmp_path / "log.jsonl", rows(1, 40))
    run = read([tmp_path / "log.jsonl"])
    page = live_page(Watched(judged(run, True), state="live", rows=40), 80, 24)
    assert f"seen, not told before more rows show it: {SICK}" in page
    assert "CRITICAL" not in page
    page = live_page(Watched(judged(run, False), {SICK: Severity.CRITICAL}, state="live", rows=40), 80, 24)
    assert f"told, not seen at this look: {SICK}" in page


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (75, "75 s"),
        (125, "2 min"),
        (600, "10 min"),
        (9000, "2 h 30 min"),
        (90_000, "25 h"),
        (2e5, "2 d 7 h"),
    ],
)
def test_stretches_of_time(seconds: float | None, words: str) -> None:
    assert stretch(seconds) == words


# ------------------------------------------------------------------------------------------------------------- command


def test_once_tells_nothing_twice_and_is_a_line_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlclinic.simulate import scenario, write

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    log = tmp_path / "train.jsonl"
    log.write_text(write(scenario("entropy_collapse", steps=120), "trl", "jsonl"))
    add(log, [json.dumps({"step": 120, "train_runtime": 9.0, "train_loss": 0.1}) + "\n"])
    before = sorted(os.listdir(tmp_path))
    first = CliRunner().invoke(cli, ["watch", str(log), "--once", "--fail-on", "warning"])
    told = first.output.splitlines()
    assert first.exit_code == 1
    assert 1 <= len(told) <= 3
    assert all(one[:2] == "20" and " at step 120" in one for one in told)
    assert any("entropy_collapse" in one for one in told)
    again = CliRunner().invoke(cli, ["watch", str(log), "--once", "--fail-on", "warning", "--format", "json"])
    assert again.output == ""
    assert again.exit_code == 1
    assert sorted(os.listdir(tmp_path)) == sorted({*before, "home"})


def test_once_as_json_is_one_object_an_event(tmp_path: Path, quick: Callable[[Callable[[Run], bool]], None]) -> None:
    quick(after(30))
    log, state = tmp_path / "train.jsonl", tmp_path / "state.json"
    add(log, rows(1, 120))
    command = ["watch", str(log), "--once", "--format", "json", "--state", str(state)]
    first, second = (CliRunner().invoke(cli, command) for _ in range(2))
    (told,) = map(json.loads, first.output.splitlines())
    assert (told["schema"], told["kind"], told["check"]) == ("rlclinic.event/1", "opened", SICK)
    assert second.output == ""
    assert (first.exit_code, second.exit_code) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "a SOURCE"),
        (["-"], "files or a directory that grow"),
        (["LOG", "--state", "LOG"], "a new file for the state"),
        (["LOG", "--state", "PIPE"], "a new file for the state"),
        (["not/there/yet.jsonl", "--framework", "nosuch"], "a framework"),
        (["not/there/yet.jsonl", "--names", "LOG"], "a TOML file"),
    ],
)
def test_what_cannot_be_watched_is_told(arguments: list[str], says: str, tmp_path: Path) -> None:
    log, pipe = tmp_path / "train.jsonl", tmp_path / "pipe"
    add(log, rows(1, 5))
    if "PIPE" in arguments:
        getattr(os, "mkfifo", Path.mkdir)(pipe)
    named = [one.replace("LOG", str(log)).replace("PIPE", str(pipe)) for one in arguments]
    told = CliRunner().invoke(cli, ["watch", "--once", *named])
    assert told.exit_code != 0
    assert says in f"{told.exception} {told.output}" or "PIPE" in arguments
    assert log.read_text() == "".join(rows(1, 5))
    assert pipe.exists() == ("PIPE" in arguments)
    assert not pipe.is_file()


@pytest.mark.usefixtures("quick")
def test_what_cannot_be_kept_is_said_once_by_the_command_too(tmp_path: Path) -> None:
    log = tmp_path / "train.jsonl"
    add(log, rows(1, 5))
    state = log / "inside" / "state.json"
    told = CliRunner().invoke(cli, ["watch", str(log), "--once", "--state", str(state)])
    assert told.exit_code == 0
    assert told.output.count("cannot be kept, so a restart may tell it again") == 1


def test_a_user_without_a_home_is_asked_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    told = CliRunner().invoke(cli, ["watch", str(tmp_path / "train.jsonl"), "--once"])
    assert "--state FILE" in str(told.exception)


@pytest.mark.parametrize(("term", "page"), [("xterm", True), ("dumb", False), ("", True)])
def test_a_terminal_that_cannot_be_drawn_upon_gets_lines(
    term: str, page: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert _has_screen() is page
    monkeypatch.setattr(sys, "stdout", None)
    assert _has_screen() is False


def test_states_side_by_side_keep_their_alerts_apart(tmp_path: Path) -> None:
    assert len({beside(tmp_path / name) for name in ("run.a", "run.b", "run", "run.alerts")}) == 4


def test_an_interrupted_command_has_found_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Follower, "look", interrupted)
    add(log := tmp_path / "train.jsonl", rows(1, 5))
    command = ["watch", str(log), "--once", "--state", str(tmp_path / "state"), "--fail-on", "warning"]
    assert CliRunner().invoke(cli, command).exit_code == 130


def test_two_watchers_of_the_same_do_not_tell_the_same(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    log, state = tmp_path / "train.jsonl", tmp_path / "state.json"
    add(log, rows(1, 5))
    with open(f"{state}.lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        told = CliRunner().invoke(cli, ["watch", str(log), "--once", "--state", str(state)])
    assert "is being watched already" in str(told.exception)


def test_a_line_holds_no_line_break_and_a_closed_pipe_ends_quietly() -> None:
    event = Event("opened", "kl\ndrift", Severity.WARNING, 3.0, "Title.\x1b[2J", "says\nmuch " * 400, change="a\nb")
    said = line(event, 0.0)
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) < 1200

    class Closed:
        encoding = "ascii"

        def write(self, _: str) -> int:
            raise BrokenPipeError

    out = Lines(Closed())  # type: ignore[arg-type]
    out.say("one")
    out.say("two")
    assert (out.broken, out.why) == (True, "")


def test_what_is_to_be_done_stands_beside_the_root_alone() -> None:
    root = Event(
        "opened", "verifier_broken", Severity.CRITICAL, 9.0, "It fails.", "reward is 0", change="read 20 answers"
    )
    after = Event("opened", "reward_decline", Severity.CRITICAL, 9.0, "It fell.", "reward fell",
                  because_of=("verifier_broken",), change="read 20 answers", root="verifier_broken")  # fmt: skip
    for events, times in (([root, after], 1), ([after], 1)):
        out = io.StringIO()
        Lines(out, lambda: 0.0).tell(events, None)  # type: ignore[arg-type]
        assert out.getvalue().count("read 20 answers") == times
        assert "Behind it: verifier_broken" in out.getvalue()


def test_a_place_that_takes_nothing_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        encoding = "ascii"

        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    out = Lines(Full())  # type: ignore[arg-type]
    out.say("one")
    assert (out.broken, out.why) == (True, "No space left on device")
    closed = Lines(None)  # as Python has it where standard output was closed
    closed.say("one")
    assert (closed.broken, closed.why) == (True, "")


@pytest.mark.usefixtures("quick")
def test_memory_does_not_grow_with_the_number_of_looks(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "train.jsonl"
    add(log, rows(1, 30))
    follower = watched(log, clock)
    for step in range(31, 34):
        add(log, rows(step, step))
        polled(follower, clock)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for step in range(37, 45):
        add(log, rows(step, step))
        polled(follower, clock)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert follower.rows == 41
    assert grown < 300_000


def test_a_terminal_gets_the_page_and_at_the_end_its_screen_back_with_the_report(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    log = tmp_path / "train.jsonl"
    add(log, rows(1, 12))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"}
    command = [
        sys.executable,
        "-m",
        "rlclinic",
        "watch",
        str(log),
        "--until-done",
        "--every",
        "0",
        "--fail-on",
        "critical",
    ]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown, ended = b"", False
    deadline = threading.Timer(60.0, process.kill)
    deadline.start()
    try:
        while part := os.read(ours, 1 << 16):
            shown += part
            if b"step 12" in shown and not ended:
                ended = True
                add(log, [json.dumps({"step": 12, "train_runtime": 9.0, "train_loss": 0.1}) + "\n"])
    except OSError:  # the other end is closed
        pass
    finally:
        deadline.cancel()
        os.close(ours)
    assert process.wait(10) in (0, 3)
    before, _, rest = shown.partition(b"\x1b[?1049h")
    page, _, report = rest.partition(b"\x1b[?1049l")
    assert before.strip() == b""
    assert b"waiting" not in page
    assert b"step 12" in page
    assert b"About this log" in report


NURSERY = """
import os, sys
from pathlib import Path
from rlclinic.live import following
from rlclinic.live.watching import JsonLines, Watch
from rlclinic.model import Diagnosis, Finding, Severity, Verdict

def diagnose(run, limits=None):
    step = run.steps[-1]
    bounds = {"kl_drift": (20, 1e9), "grad_spikes": (40, 1e9)}
    found = [Finding(Severity.WARNING, "so", check=c, title=c) for c, (low, high) in bounds.items() if low <= step < high]
    return Diagnosis(run, Verdict("warning", "kl_drift", "so"), tuple(found), (), ())

following.diagnose = diagnose
following.POLL, following.SHARE = 0.01, 1.0
for _ in sys.stdin:  # a line is a wish for one more watcher; all that is slow has been imported by then
    child = os.fork()
    if child == 0:
        follower = following.Follower([sys.argv[1]], every=0.0, state=Path(sys.argv[2]))
        watch = Watch(follower, JsonLines(open(sys.argv[3], "a")).tell, alert=JsonLines(open(sys.argv[4], "a")).tell)
        while True:
            watch.turn()
            watch.rest()
    print(child, flush=True)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_processes_killed_at_any_moment_tell_together_what_one_would(tmp_path: Path) -> None:
    """Real processes, killed without warning while the log grows and is rotated: what dies before it has printed an event
    never prints it, but who knows what he was told hears of it from the next."""
    log, state = tmp_path / "train.jsonl", tmp_path / "state.json"
    out, alerted = tmp_path / "out.jsonl", tmp_path / "alerted.jsonl"
    command = [sys.executable, "-c", NURSERY, str(log), str(state), str(out), str(alerted)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    at = 0
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for turn in range(3):
            nursery.stdin.write("one more\n")
            nursery.stdin.flush()
            child = int(nursery.stdout.readline())
            try:
                for _ in range(4):
                    kept = state.read_bytes() if state.exists() else b""
                    add(log, rows(at + 1, at + 12))
                    at += 12
                    deadline = time.monotonic() + 30.0
                    while (state.read_bytes() if state.exists() else b"") == kept:
                        assert time.monotonic() < deadline
                        time.sleep(0.005)
                if turn < 2:
                    add(log, rows(at + 1, at + 12))  # so that it dies at work
                    at += 12
                    os.rename(log, f"{log}.{2 - turn}")
                    time.sleep(0.01 * turn)
            finally:
                os.kill(child, signal.SIGKILL)
                assert nursery.stdout.readline() == "gone\n"
        nursery.stdin.close()
    printed, heard = (
        [(one["check"], one["kind"], one["step"]) for one in map(json.loads, path.read_text().splitlines())]
        for path in (out, alerted)
    )
    assert len(printed) == len(set(printed))
    assert set(printed) <= set(heard)
    assert sorted(one[:2] for one in set(heard)) == [("grad_spikes", "opened"), ("kl_drift", "opened")]
