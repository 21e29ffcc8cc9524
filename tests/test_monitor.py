"""The monitor inside a training loop: it says what a diagnosis of the log says, and nothing in it can hurt the training."""

from __future__ import annotations

import copy
import errno
import gc
import json
import locale
import logging
import math
import os
import pickle
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlclinic
from rlclinic import BadRequest, Monitor, UnknownName, diagnose, read
from rlclinic.errors import BadTable
from rlclinic.live import keeping, options
from rlclinic.live import monitor as module
from rlclinic.live.course import Course, gap
from rlclinic.live.events import LINE, Event
from rlclinic.live.growing import Growing
from rlclinic.live.handed import plain_number, plain_row, plain_settings, plain_step
from rlclinic.live.keeping import Worker, load, save, set_aside
from rlclinic.model import Diagnosis, Severity
from rlclinic.readers.rows import Rows
from rlclinic.simulate import scenario, write

SOURCE = Path(__file__).parents[1] / "src"


FEW = ("entropy_collapse", "plateau", "nan_inf")
"""Checks that are enough where what they find does not matter."""


def quiet(*_: object) -> None:
    return None


def rows_of(name: str, steps: int = 150, seed: int = 4) -> list[dict[str, Any]]:
    text = write(scenario(name, steps=steps, seed=seed), dialect="trl", form="jsonl")
    return [json.loads(line) for line in text.splitlines()]


def said(diagnosis: Diagnosis | None) -> list[tuple[object, ...]]:
    assert diagnosis is not None
    return [(f.check, f.severity, f.onset, f.says, f.because_of) for f in diagnosis.findings]


def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def let_go(monitor: Monitor) -> None:
    """What the end of a process does."""
    assert monitor._keeper is not None
    assert monitor._worker is not None
    monitor._keeper.close()
    assert monitor._worker.drain(10.0)


def watched(**options: Any) -> Monitor:
    return Monitor(**{"share": None, "tell": quiet, "rank": 0, **options})


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RLCLINIC", *options.RANKS, *options.PLACES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "gap", lambda rows, waiting: max(4, rows // 2))  # few looks: each costs 0.1 s
    monkeypatch.setattr(module, "_warm", lambda *_: None)  # so does this


# What it says


@pytest.mark.parametrize("name", ["entropy_collapse", "resume_discontinuity"])
def test_it_says_what_a_diagnosis_of_the_file_says(name: str, tmp_path: Path) -> None:
    rows = rows_of(name, 80)
    monitor, looks = watched(framework="trl"), 0
    for count, row in enumerate(rows, 1):
        before = monitor.diagnosis
        monitor.log(row)
        if monitor.diagnosis is not before:
            looks += 1
            if looks % 4 == 3:
                (tmp_path / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows[:count]))
                assert said(monitor.diagnosis) == said(diagnose(read([tmp_path / "log.jsonl"], framework="trl")))
    monitor.finish()
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    whole = diagnose(read([tmp_path / "log.jsonl"], framework="trl"))
    assert said(monitor.diagnosis) == said(whole) == said(monitor.report())
    assert monitor.open == {f.check: f.severity for f in whole.findings if (f.severity or 0) >= Severity.WARNING}
    assert looks > 4


def test_steps_stated_beside_the_row_are_as_good_as_in_it() -> None:
    rows = rows_of("entropy_collapse", 90)
    inside, beside = watched(framework="trl", only=FEW), watched(framework="trl", only=FEW)
    for row in rows:
        inside.log(row)
        beside.log({key: value for key, value in row.items() if key != "step"}, row["step"])
    assert said(inside.report()) == said(beside.report()) != []


def test_a_configuration_with_lists_is_read_as_the_file_is(tmp_path: Path) -> None:
    rows, config = (
        rows_of("entropy_collapse", 80),
        {"beta": 0.04, "report_to": ["wandb"], "num_generations": 8, "more": {"epsilon": 0.2}},
    )
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (tmp_path / "config.json").write_text(json.dumps(config))
    monitor = watched(framework="trl", only=FEW, config={**config, "collator": object()})
    for row in rows:
        monitor.log(row)
    file = read([tmp_path / "log.jsonl"], framework="trl", config=[tmp_path / "config.json"])
    mine = monitor.report()
    assert mine is not None
    assert {n: k.value for n, k in mine.run.knobs.items()} == {n: k.value for n, k in diagnose(file).run.knobs.items()}
    assert said(mine) == said(diagnose(file, only=FEW)) != []


def test_own_names_and_the_held_out_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "names.toml").write_text('[metrics]\nmy_reward = "reward.mean"\n')
    monitor = watched(names=tmp_path / "names.toml", eval_key="eval/b")
    for step in range(1, 30):
        monitor.log({"my_reward": 0.5 + 0.01 * step, "loss": 0.1 / step, "entropy": 1.0}, step)
    found = monitor.report()
    assert found is not None
    assert "reward.mean" in found.run
    assert "eval.score" not in found.run
    for step in (30, 31):
        monitor.log({"eval/a": 0.1, "eval/b": 0.7}, step)
    found = monitor.report()
    assert found is not None
    assert found.run["eval.score"].key == "eval/b"
    assert capsys.readouterr().err == ""


def test_saved_answers_are_read_beside_the_training(tmp_path: Path) -> None:
    def save_answers(step: int) -> None:
        lines = [json.dumps({"step": step, "prompt": f"p{k // 4}", "completion": f"word {k} {step}", "reward": float(k % 2)})
                 for k in range(16)]  # fmt: skip
        (folder / f"{step}.jsonl").write_text("\n".join(lines) + "\n")

    folder = tmp_path / "rollouts"
    monitor = watched(framework="trl", rollouts=folder)  # it is not there yet
    rows = rows_of("plain", 80)
    for row in rows[:30]:
        monitor.log(row)
    assert monitor.diagnosis is not None
    assert not monitor.diagnosis.run.rollouts
    folder.mkdir()
    for step in range(1, 31):
        save_answers(step)
    for row in rows[30:50]:
        monitor.log(row)
    until(lambda: monitor._answers.saved is not None)
    found = monitor.report()
    assert found is not None
    assert found.run.rollouts[0].rows == 16 * 30
    save_answers(31)
    monitor.finish()
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows[:50]))
    assert said(monitor.diagnosis) == said(diagnose(read([tmp_path / "log.jsonl"], framework="trl", rollouts=[folder])))


def test_saved_states_say_where_to_go_back() -> None:
    told: list[Event] = []
    only = ["sudden_collapse", "reward_decline"]
    monitor = watched(framework="trl", only=only, tell=lambda events, diagnosis: told.extend(events))
    for row in rows_of("sudden_collapse", 100):
        monitor.log(row)
        if row["step"] % 20 == 0:
            monitor.checkpoint(row["step"], f"/out/checkpoint-{row['step']}")
    told += monitor.finish()
    assert any("checkpoint-" in event.go_on for event in told)


def test_each_change_is_told_once_with_its_diagnosis() -> None:
    told: list[tuple[Event, Diagnosis]] = []
    only = [
        "entropy_collapse",
        "grad_vanishing",
        "plateau",
        "metric_not_logged",
        "reward_decline",
        "zero_variance_all_right",
    ]
    told_to = lambda events, diagnosis: told.extend((one, diagnosis) for one in events)  # noqa: E731
    monitor = watched(framework="trl", only=only, tell=told_to)
    given = [event for row in rows_of("entropy_collapse", 120) for event in monitor.log(row)]
    given += monitor.finish()
    assert [event for event, _ in told] == given
    assert given
    opened = [event.check for event, _ in told if event.kind == "opened"]
    closed = [event.check for event, _ in told if event.kind == "closed"]
    assert all(opened.count(check) <= 1 + closed.count(check) for check in opened)
    assert all(any(f.check == e.check for f in d.findings) for e, d in told if e.kind != "closed")
    assert monitor.finish() == []


def test_a_key_that_may_mean_two_things_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    monitor, known = watched(only=FEW), watched(only=FEW, framework="trl")
    for step in range(20):
        for one in (monitor, known):
            one.log({"reward": 0.5 + 0.01 * (step % 3), "kl": 0.1, "loss": 0.1}, step)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "kl (kl.ref or kl.old_new)" in lines[0]


def test_nothing_is_said_of_a_few_rows_or_of_supervised_training(capsys: pytest.CaptureFixture[str]) -> None:
    few, other = watched(), watched()
    for step in range(module.FIRST - 1):
        few.log({"val/accuracy": 0.4}, step)
    for step in range(60):
        other.log({"loss": 2.0 / (step + 1), "learning_rate": 1e-5, "grad_norm": 1.0, "mean_token_accuracy": 0.7}, step)
    assert few.finish() == [] == other.finish()
    assert other.open == {} == few.open
    assert capsys.readouterr().err == ""


def test_an_event_is_one_clean_line_and_clean_json() -> None:
    bad = "\x1b[31m<b>\u202e" + "x" * 10_000 + "\nsecond"
    event = Event("opened", "entropy_collapse", Severity.WARNING, math.nan, bad, bad, change=bad, go_on=bad, run=bad)
    for text in (str(event), *[v for v in event.as_json().values() if isinstance(v, str)]):
        assert "\x1b" not in text
        assert "\n" not in text
        assert "\u202e" not in text
        assert len(text) <= LINE
    assert json.loads(json.dumps(event.as_json(), allow_nan=False))["step"] is None
    assert "entropy_collapse (warning) at step 7" in str(
        Event("opened", "entropy_collapse", Severity.WARNING, 7.0, "t", "s")
    )


def test_without_a_place_to_tell_each_event_is_a_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    monitor = watched(framework="trl", only=FEW, tell=None)
    events = [event for row in rows_of("entropy_collapse", 120) for event in monitor.log(row)] + monitor.finish()
    assert capsys.readouterr().err.splitlines() == [f"rlclinic: {event}" for event in events]


# What it does


def event_of(check: str, severity: Severity) -> Event:
    return Event("opened", check, severity, 5.0, "t", "s")


@pytest.mark.parametrize(
    ("kind", "check", "severity", "stops"),
    [
        ("opened", "entropy_collapse", Severity.CRITICAL, True),
        ("worsened", "entropy_collapse", Severity.CRITICAL, True),
        ("closed", "entropy_collapse", Severity.CRITICAL, False),
        ("opened", "entropy_collapse", Severity.WARNING, False),
        ("opened", "lr_too_high", Severity.CRITICAL, False),  # a check in preview
    ],
)
def test_only_what_is_new_grave_and_no_preview_stops(
    kind: Any, check: str, severity: Severity, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Event(kind, check, severity, 5.0, "t", "s")
    monkeypatch.setattr(Course, "take", lambda *a, **k: [one])
    monitor = watched(stop_at="critical", save_at="CRITICAL")
    for row in rows_of("plain", 20)[:12]:
        monitor.log(row)
    assert (monitor.should_stop, monitor.should_save) == (stops, stops)
    monitor.should_save = False
    assert not monitor.should_save


def test_actions_are_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Course, "take", lambda *a, **k: [event_of("entropy_collapse", Severity.CRITICAL)])
    monitor = watched()
    for row in rows_of("plain", 20)[:12]:
        monitor.log(row)
    assert monitor.diagnosis is not None
    assert not monitor.should_stop
    assert not monitor.should_save


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"stop_at": "fatal"}, BadRequest),
        ({"save_at": 3}, BadRequest),
        ({"stop_at": "info"}, BadRequest),
        ({"share": 0.0}, BadRequest),
        ({"share": "much"}, BadRequest),
        ({"framework": "no_such_trainer"}, UnknownName),
        ({"framework": 7}, BadRequest),
        ({"limits": {"no_such_check": {}}}, UnknownName),
        ({"limits": ["entropy_collapse"]}, BadRequest),
        ({"limits": {"entropy_collapse": {"no_such_limit": 1}}}, UnknownName),
        ({"limits": {"entropy_collapse": {"p_value": "small"}}}, BadTable),
        ({"knobs": [8]}, BadRequest),
        ({"config": "trl"}, BadRequest),
        ({"eval_key": 7}, BadRequest),
        ({"nonfinite": "lost"}, BadRequest),
        ({"rank": "first"}, BadRequest),
        ({"rank": 0.5}, BadRequest),
        ({"only": ["no_such_check"]}, UnknownName),
        ({"tell": "slack"}, BadRequest),
        ({"names": "/no/such/names.toml"}, rlclinic.RlclinicError),
        ({"baseline": "/no/such/baseline.toml"}, rlclinic.RlclinicError),
    ],
)
def test_what_is_asked_wrongly_is_said_before_the_training(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        watched(**options)


def test_only_some_checks_and_other_limits() -> None:
    monitor = watched(only=["entropy_collapse"], limits={"entropy_collapse": {"p_value": 0.5}})
    for row in rows_of("entropy_collapse", 60):
        monitor.log(row)
    found = monitor.report()
    assert found is not None
    assert {e.check for e in found.checks} == {"entropy_collapse"}


# Where it is silent


def test_only_the_first_process_monitors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in options.RANKS:
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            assert not Monitor().enabled
            assert Monitor(rank=0).enabled
            patch.setenv(name, "0")
            assert Monitor().enabled
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("RANK", "0")
    assert Monitor().enabled
    for name in options.RANKS:
        monkeypatch.delenv(name, raising=False)
    for name in options.PLACES:  # all that some launchers tell; with RANK it says nothing
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            assert not Monitor().enabled
            patch.setenv("SLURM_PROCID", "0")
            assert not Monitor().enabled
            patch.setenv("RANK", "0")
            assert Monitor().enabled
    for word in ("", "-1", "\u00b2", "9" * 5000, "first", "1.0"):
        monkeypatch.setenv("RANK", word)
        assert Monitor().enabled
    ranks: list[Any] = ["0", 0.0, np.int64(0), -1, "1", 3]
    assert [Monitor(rank=rank).enabled for rank in ranks] == [True] * 4 + [False] * 2
    other = Monitor(rank=2, state=tmp_path / "state")
    assert other.log({"loss": 1.0}) == [] == other.finish()
    assert other.report() is None
    assert other.open == {}
    assert not (tmp_path / "state").exists()
    assert repr(other) == "Monitor('run', off)"


def test_switched_off_it_costs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLCLINIC", "0")
    threads = set(threading.enumerate())
    monitor = Monitor(state=tmp_path / "state", framework="no_such_trainer", rank=0)
    for step in range(100):
        assert monitor.log({"loss": math.nan}, step) == []
    monitor.checkpoint(3)
    monitor.resume([{"loss": 1.0}])
    with monitor:
        pass
    assert set(threading.enumerate()) <= threads
    assert not monitor.enabled
    assert not (tmp_path / "state").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_is_silent_and_ends(tmp_path: Path) -> None:
    monitor = watched(state=tmp_path)
    for row in rows_of("plain", 20)[:12]:
        monitor.log(row)
    with monitor._lock:  # as if another thread were at it
        child = os.fork()
        if not child:
            ok = monitor.log({"loss": 1.0}) == [] and monitor.finish() == [] and monitor.open == {}
            os._exit(0 if ok else 1)
    until(lambda: os.waitpid(child, os.WNOHANG)[0] == child or False)
    assert monitor.rows == 12
    monitor.finish()
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 13


def test_a_copy_in_another_process_is_silent() -> None:
    monitor = watched()
    for other in (pickle.loads(pickle.dumps(monitor)), copy.deepcopy(monitor)):
        assert not other.enabled
        assert other.log({"loss": 1.0}) == []
    assert monitor.enabled


# What is handed over


class Tensor:
    """A stand-in for what torch, numpy and jax hand over."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def item(self) -> float:
        if len(self.values) != 1:
            raise RuntimeError(f"a Tensor with {len(self.values)} elements cannot be converted to Scalar")
        return self.values[0]

    def tolist(self) -> list[float]:
        return list(self.values)


class Raising:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __float__(self) -> float:
        raise ValueError("no number")

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class BadItems(dict[str, float]):
    def items(self) -> Any:
        raise RuntimeError("items")


class Interrupting:
    def __float__(self) -> float:
        raise KeyboardInterrupt


def cyclic() -> dict[str, Any]:
    one: dict[str, Any] = {"x": 1.0}
    one["again"] = one["more"] = one
    return one


ROWS: list[Any] = [
    {"loss": math.nan, "kl": math.inf, "x": -math.inf},
    {"loss": "a" * 1_000_000, "b": "\x1b[31m", "c": "nan", "d": "\ud800"},
    {"k" * 1_000_000: 1.0, "\x00": 2.0, "": 3.0, "\ud800": 1.0},
    {"loss": None, "b": True, "c": b"1.0", "d": 1j, "e": Decimal("0.5"), "f": Decimal("sNaN")},
    {"i": 10**400, "j": -(10**400), "k": 2**63},
    {"t": Tensor(0.5), "u": Tensor(1.0, 2.0), "v": Tensor(), "w": Raising()},
    {"n": np.float32(1.5), "m": np.zeros(3), "o": np.array([2.0]), "p": np.datetime64("2026-01-01"), "q": np.int64(3)},
    {"list": [1.0], "set": {1.0}, "deep": {"er": {"est": 1.0}}, "bad": BadItems(a=1.0)},
    {1: 2.0, (1, 2): 3.0, None: 1.0, 2.5: 1.0, False: 1.0},
    cyclic(),
    BadItems(a=1.0),
    {},
    {"word": "text"},
    "nothing",
    None,
    42,
    [1.0, 2.0],
    Raising(),
    {"loss": 1.0, "w": {"_type": "histogram", "values": [1, 2]}},
]
STEPS: list[Any] = [None, 3, "7", "x", math.nan, -5, 10**30, 10**400, math.inf, Tensor(4.0), Raising(), b"1", 2]


def test_nothing_that_is_handed_over_raises(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monitor = watched(only=["nan_inf", "logging_bug"], state=tmp_path)
    for row in ROWS:
        monitor.log(row, 1)
    for step in STEPS:
        monitor.log({"loss": 1.0, "reward": 0.5}, step)
        monitor.checkpoint(step, Raising() if step is None else "")
    monitor.resume([{"loss": 1.0, "step": 1}, *ROWS[:8]])
    monitor.finish()
    assert monitor.enabled
    assert monitor.report() is not None
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 3, lines
    assert all(line.startswith("rlclinic: ") and len(line) < 500 for line in lines)
    for line in (tmp_path / "rows.jsonl").read_text().splitlines():
        json.loads(line)
    again = watched(only=["nan_inf"], state=tmp_path)
    assert again.rows > 5


def test_a_row_of_very_many_keys_is_cut() -> None:
    monitor = watched()
    monitor._next = 10**9
    row = dict.fromkeys(map(str, range(300_000)), 1.0)
    for step in range(2):
        monitor.log(row, step)
    assert monitor.rows == 2
    assert monitor._growing.held == 2
    assert len(monitor._growing._rows.keys) == 5000


def test_settings_of_any_kind_are_taken() -> None:
    config: Any = {"a": 1, "b": Raising(), "c": cyclic(), "d": [1, Raising(), {"e": math.nan}], 3: "x", "f": 10**400}
    config["g"] = BadItems(a=1.0)
    found = plain_settings(config)
    assert found["a"] == 1
    assert found["d"][0] == 1
    assert found["3"] == "x"
    monitor = watched(config=config, knobs=config, name=Raising, only=FEW)
    for row in rows_of("plain", 20)[:12]:
        monitor.log(row)
    assert monitor.enabled
    assert monitor.diagnosis is not None


def test_what_a_number_is() -> None:
    row = plain_row(
        {"a": Tensor(0.5), "b": Tensor(1.0, 2.0), "c": np.float32(1.5), "d": np.array([2.0]), "e": {"f": 1}, "g": True}
    )
    assert row == {"a": 0.5, "c": 1.5, "d": 2.0, "e/f": 1, "g": True}
    assert plain_number(Decimal("0.5")) == 0.5
    assert plain_number("1") is None
    assert plain_number(Raising()) is None
    assert plain_step("7") == 7.0
    assert plain_step(math.nan) is None
    assert plain_step(10**30) is None
    assert plain_step(True) == 1.0


def test_a_value_that_warns_when_it_becomes_a_number_does_not_and_a_masked_one_is_missing() -> None:
    class Graded:
        """As a tensor of torch that has a gradient."""

        def __float__(self) -> float:
            warnings.warn("Converting a tensor with requires_grad=True to a scalar", stacklevel=1)
            return 0.0

        item = __float__

        def detach(self) -> Any:
            return np.float32(0.25)

    growing = Growing()
    for step in range(12):
        growing.add({"loss": 0.5, "reward": 1.0}, step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(12, 24):
            growing.add({"loss": Graded(), "reward": np.ma.masked}, step)
            growing.add({"loss": np.array([0.25]), "reward": np.ma.array([1.0], mask=[step % 2 > 0])}, step + 0.5)
    run = growing.run()
    assert run["loss.total"].values.tolist() == [0.5] * 12 + [0.25] * 24
    assert run["reward.mean"].values.tolist() == [1.0] * 18


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_and_leaves_whole_rows(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = watched(framework="trl", only=FEW)
    rows = rows_of("plain", 60)
    for row in rows[:30]:
        monitor.log(row)
    with pytest.raises(KeyboardInterrupt):
        monitor.log({**rows[30], "x": Interrupting()})
    for place in ("_append", "add"):
        original = getattr(Rows, place)

        def broken(self: Any, *args: Any, original: Any = original, place: str = place) -> Any:
            if place == "add":
                original(self, *args)
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(f"rlclinic.readers.rows.Rows.{place}", broken)
            with pytest.raises(error):
                monitor.log(rows[30])
    for row in rows[30:]:
        monitor.log(row)
    monitor.finish()
    plain = Growing(framework="trl")
    for row in rows:
        plain.add(row)
    assert said(monitor.diagnosis) == said(diagnose(plain.run(), only=FEW))


def test_an_error_of_the_training_is_not_swallowed() -> None:
    monitor = watched(framework="trl")

    def train() -> None:
        with monitor:
            for row in rows_of("plain", 20)[:12]:
                monitor.log(row)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert monitor.diagnosis is not None


# Looks


def test_a_failing_look_is_said_once_tried_again_and_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = 0

    def broken(*_: Any, **__: Any) -> Any:
        nonlocal calls
        calls += 1
        raise RuntimeError("\x1b[31m" + "x" * 10_000)

    monitor, rows = watched(framework="trl"), rows_of("plain", 200)
    with monkeypatch.context() as patch:
        patch.setattr(module, "diagnose", broken)
        for row in rows[:20]:
            monitor.log(row)
        assert calls >= 2
        assert monitor.enabled
    for row in rows[20:40]:
        monitor.log(row)
    assert monitor.diagnosis is not None, "one failing look ended monitoring"
    monkeypatch.setattr(module, "diagnose", broken)
    monkeypatch.setattr(module, "FAILURES", 2)
    before = calls
    for row in rows[40:]:
        assert monitor.log(row) == []
    assert calls == before + module.FAILURES
    assert not monitor.enabled
    assert monitor.finish() == []
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "tried again" in lines[0]
    assert "stopped" in lines[1]
    assert all("\x1b" not in line and len(line) < 500 for line in lines)


def test_a_place_to_tell_that_raises_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(Course, "take", lambda *a, **k: [event_of("entropy_collapse", Severity.CRITICAL)])
    monitor = watched(tell=tell, stop_at="critical")
    for row in rows_of("plain", 40):
        monitor.log(row)
    assert monitor.should_stop
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_place_to_tell_may_log_and_is_closed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Place:
        closed = 0.0

        def __call__(self, events: Any, diagnosis: Diagnosis) -> None:
            monitor.log({"rlclinic/events": 1.0}, 1)
            assert monitor.report() is not None

        def close(self, seconds: float) -> None:
            self.closed = seconds

    monkeypatch.setattr(Course, "take", lambda *a, **k: [event_of("entropy_collapse", Severity.CRITICAL)])
    place = Place()
    monitor = watched(tell=place)
    for row in rows_of("plain", 20)[: module.FIRST + 1]:
        monitor.log(row)
    assert monitor.rows == module.FIRST + 2
    monitor.finish()
    assert place.closed > 0


def test_the_first_nan_is_not_waited_for() -> None:
    told: list[Event] = []
    monitor = watched(framework="trl", only=FEW, tell=lambda events, diagnosis: told.extend(events))
    for row in rows_of("plain", 40)[:30]:
        monitor.log(row)
    monitor._next, monitor._spent = 10**9, math.inf
    monitor.log({"step": 31, "loss": 0.1, "reward": 0.5, "grad_norm": math.nan})
    assert [(event.kind, event.check) for event in told] == [("opened", "nan_inf")]


def test_a_look_takes_its_share_of_the_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [0.0], 0
    monitor = Monitor(share=0.02, tell=quiet, rank=0, only=FEW)
    assert monitor._worker is not None
    assert monitor._worker.drain(20.0)  # the tables are loaded by a diagnosis, too
    monkeypatch.setattr("rlclinic.live.monitor.time.monotonic", lambda: now[0])
    monitor._started = 0.0

    def slow(run: Any, **_: Any) -> Diagnosis:
        nonlocal looks
        now[0], looks = now[0] + 2.0, looks + 1
        return diagnose(run, only=["nan_inf"])

    monkeypatch.setattr(module, "diagnose", slow)
    for step in range(2000):
        monitor.log({"loss": 1.0, "reward": 0.5}, step)
        now[0] += 0.1
    assert 5 < looks <= 1 + (10.0 + now[0] * 0.02) / 2.0


def test_a_training_of_a_minute_is_looked_at_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [0.0], list[Event]()
    noise = random.Random(1)
    monkeypatch.setattr(module, "gap", gap)
    monitor = Monitor(
        tell=lambda events, diagnosis: told.extend(events), rank=0, only=["sudden_collapse"], planned_steps=200
    )
    assert monitor._worker is not None
    assert monitor._worker.drain(20.0)
    monkeypatch.setattr("rlclinic.live.monitor.time.monotonic", lambda: now[0])
    monitor._started = 0.0
    for step in range(200):
        monitor.log({"reward": (0.6 if step < 100 else 0.1) + 0.03 * noise.gauss(0.0, 1.0), "loss": 0.1}, step)
        now[0] += 0.3
        if told:
            break
    assert told
    assert told[0].step < 140


def test_a_program_that_forgets_to_finish_still_gets_the_last_look() -> None:
    code = (
        "import rlclinic\nmonitor = rlclinic.Monitor(only=['sudden_collapse'], rank=0, planned_steps=10_000)\n"
        "for step in range(120):\n"
        "    monitor.log({'reward': (0.8 if step < 90 else 0.1) + 0.01 * (step * 7 % 5), 'loss': 0.1}, step)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sudden_collapse" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_that_are_misspelt_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    monitor = watched(knobs={"groupsize": 8, "clip_low": 0.2}, only=["nan_inf"])
    for step in range(40):
        monitor.log({"loss": 1.0, "reward": 0.5}, step)
    monitor.finish()
    said = capsys.readouterr().err
    assert said.count("groupsize") == 2  # what was found, and what may be meant
    assert "group_size" in said
    assert "clip_low" not in said
    for wrong in ("abc", Raising()):
        with pytest.raises(BadRequest, match="planned_steps"):
            watched(planned_steps=wrong)


def test_addresses_of_the_environment_hear_what_a_plain_monitor_finds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    heard = tmp_path / "heard.json"
    code = f"import sys; open({str(heard)!r}, 'w').write(sys.stdin.read())"
    monkeypatch.setenv("RLCLINIC_ALERT", shlex.join([f"cmd:{shlex.join([sys.executable, '-c', code])}"]))
    monitor = Monitor(rank=0, share=None, only=["nan_inf"])
    for step in range(12):
        monitor.log({"loss": math.nan, "reward": 0.5, "grad_norm": math.nan}, step)
    monitor.finish()
    assert "nan_inf" in heard.read_text(encoding="utf-8")
    assert "nan_inf" in capsys.readouterr().err


def test_logging_from_several_threads_loses_nothing() -> None:
    monitor = watched(only=["nan_inf"])

    def work(first: int) -> None:
        for step in range(first, 2000, 4):
            monitor.log({"loss": 1.0 / (step + 1), "reward": float(step)}, step)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = monitor.report()
    assert monitor.rows == 2000
    assert found is not None
    assert len(found.run["reward.mean"]) == 2000
    assert found.run["reward.mean"].values.tolist() == [float(k) for k in range(2000)]


def test_a_row_that_comes_during_a_look_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place to tell takes a lock that a thread has which logs: with a lock of the monitor's both would wait for ever."""
    looking, theirs = threading.Event(), threading.Lock()

    def tell(*_: object) -> None:
        looking.set()
        assert theirs.acquire(timeout=10.0)

    monkeypatch.setattr(Course, "take", lambda *a, **k: [event_of("entropy_collapse", Severity.CRITICAL)])
    monitor = watched(only=FEW, tell=tell)
    row, loss = dict[str, Any](), np.zeros(1)

    def other() -> None:
        with theirs:
            looking.wait(10.0)
            for step in (50, 51):
                loss[0] = step
                row.update(reward=0.5, loss=loss, step=7)
                monitor.log(row, step)
            loss[0] = row["reward"] = -1.0  # the row that was logged stays as it was

    thread = threading.Thread(target=other)
    thread.start()
    for step in range(module.FIRST):
        monitor.log({"reward": 0.5, "loss": 0.1}, step)
    thread.join(10.0)
    assert monitor.rows == module.FIRST + 2
    found = monitor.report()
    assert found is not None
    assert found.run["loss.total"].steps.tolist()[-2:] == found.run["loss.total"].values.tolist()[-2:] == [50.0, 51.0]
    assert found.run["reward.mean"].values.tolist() == [0.5] * 7


def test_no_row_is_left_aside_when_two_threads_pass_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = watched(only=FEW)
    aside = monitor._put_aside

    def late(*row: Any) -> None:
        """The row is put aside when whoever was at it has gone."""
        monitor._lock.release()
        aside(*row)

    monkeypatch.setattr(monitor, "_put_aside", late)
    thread = threading.Thread(target=lambda: monitor.log({"loss": 1.0}, 1))
    monkeypatch.setattr(monitor, "_lock", threading.Lock())
    assert monitor._lock.acquire()
    thread.start()
    thread.join(10.0)
    assert (monitor.rows, len(monitor._inbox)) == (1, 0)


def test_rows_during_a_look_are_bounded_and_the_first_nan_among_them_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "INBOX", 3)

    def tell(*_: object) -> None:
        for step in range(20, 30):
            monitor.log({"reward": 0.5, "loss": math.nan if step == 21 else 0.1}, step)
        monitor.log("nothing", 30)  # type: ignore[arg-type]

    monitor = watched(only=["logging_bug", "nan_inf"], tell=tell)
    monkeypatch.setattr(monitor._course, "take", lambda *a, **k: [event_of("entropy_collapse", Severity.CRITICAL)])
    for step in range(module.FIRST):
        monitor.log({"reward": 0.5, "loss": 0.1}, step)
    assert monitor.rows == module.FIRST + 3
    monitor._course, monitor._tell = Course(), quiet
    assert [event.check for event in monitor.log({"reward": 0.5, "loss": 0.1}, 31)] == ["nan_inf"]
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("name", ["sudden_collapse", "plain"])
def test_what_the_training_has_set_stays_and_disturbs_nothing(name: str, tmp_path: Path) -> None:
    """numpy that raises, warnings that are errors, numbers that overflow; and nothing of it is changed."""
    rows = rows_of(name, 60)
    for count, row in enumerate(rows):
        if count % 7 == 3:
            row["loss"], row["kl"] = 1e308, -1e308
        if count % 7 == 4:
            row["reward"] = 1e-320

    def settings() -> list[Any]:
        return [
            np.geterr(), random.getstate(), repr(np.random.get_state()), warnings.filters[:],
            [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)], locale.setlocale(locale.LC_ALL),
            logging.root.level, logging.root.handlers[:], sys.excepthook, threading.excepthook, os.getcwd(),
        ]  # fmt: skip

    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        before = settings()
        monitor = watched(framework="trl", state=tmp_path / "a")
        for row in rows:
            monitor.log(row)
        monitor.finish()
        again = watched(framework="trl", only=FEW)
        again.resume(rows)
        assert settings() == before
        assert said(monitor.diagnosis) == said(monitor.report())
    assert monitor._failed == 0
    assert monitor._voice._said == again._voice._said == set()
    assert again.diagnosis is not None


def test_a_log_call_between_looks_is_short() -> None:
    monitor = watched()
    monitor._next = 10**9
    rows = [{f"group/metric_{k}": float(k + step) for k in range(60)} for step in range(500)]
    spent = []
    for step, row in enumerate(rows):
        began = time.thread_time()
        monitor.log(row, step)
        spent.append(time.thread_time() - began)
    assert sorted(spent)[int(0.98 * len(spent))] < 1e-3


# A long run


def test_a_long_run_is_held_in_bounded_memory_as_logged() -> None:
    growing = Growing(most=200)
    for step in range(5000):
        growing.add({"loss": step / 7.0, "reward": float(step)}, step)
        if step % 100 == 99:
            growing.add({"eval/score": float(step)}, step)
    run = growing.run()
    assert growing.held <= 200
    assert growing.rows == 5050
    assert run.thinned
    column = run["reward.mean"]
    assert column.values.tolist() == column.steps.tolist()
    assert column.steps[0] == 0
    assert len(run["eval.score"]) >= 20
    assert np.diff(column.steps)[5:-5].max() <= 4 * growing.stride


def test_rows_that_are_odd_stay() -> None:
    growing = Growing(most=200)
    for step in range(3000):
        growing.add({"loss": math.nan if step in (777, 778, 1501) else 1.0, "reward": 0.5 + step / 9000}, step)
        if step == 1999:
            growing.add({"loss": 1.0, "reward": 0.9, "rare": 3.0}, step)
    run = growing.run()
    assert run["loss.total"].steps[~np.isfinite(run["loss.total"].values)].tolist() == [777, 778, 1501]
    assert any(unknown.key == "rare" for unknown in run.unrecognised)


@pytest.mark.parametrize("kind", ["all odd", "all rare", "two a step", "counted", "every other step"])
def test_no_log_grows_without_bound(kind: str) -> None:
    growing = Growing(most=100)
    for step in range(3000):
        if kind == "all odd":
            growing.add({"loss": math.nan}, step)
        elif kind == "all rare":
            growing.add({"loss": 1.0, f"k{step}": 1.0}, step)
        elif kind == "two a step":
            growing.add({"loss": 1.0 + step}, step)
            growing.add({"reward": 2.0 + step}, step)
        elif kind == "counted":
            growing.add({"loss": 1.0 + step})
            growing.add({"reward": 2.0 + step})
        else:
            growing.add({"loss": 1.0 + step}, step)
            if step % 2:
                growing.add({"reward": 2.0 + step}, step)
    run = growing.run()
    assert growing.held <= 100
    if kind == "two a step":
        assert len(run.paired("loss.total", "reward.mean")[0]) >= 20
    if kind in ("counted", "every other step"):
        assert len(run["reward.mean"]) >= 12
        assert len(run["loss.total"]) >= 12


@pytest.mark.parametrize("name", ["plain", "noisy"])
def test_a_thinned_healthy_run_stays_healthy(name: str) -> None:
    growing = Growing(most=150)
    for row in rows_of(name, 900):
        growing.add(row)
    found = diagnose(growing.run())
    assert growing.stride >= 4
    assert [f.check for f in found.findings if (f.severity or 0) >= Severity.WARNING] == []


def test_a_resumed_branch_is_replaced_also_in_a_thinned_run() -> None:
    whole, thin = Growing(), Growing(most=150)
    for growing in (whole, thin):
        for step in [*range(1, 401), *range(301, 701)]:
            growing.add({"loss": 1.0 + (step % 7), "reward": step + math.sin(step)}, step)
    a, b = whole.run(), thin.run()
    assert len(a["reward.mean"]) == 700
    assert sorted(a.seams) == [301.0]
    assert [abs(at - 301) <= 1 for at in b.seams] == [True]
    assert bool((np.diff(b["reward.mean"].steps) > 0).all())


# State


def test_a_run_goes_on_and_is_told_nothing_twice(tmp_path: Path) -> None:
    rows = rows_of("entropy_collapse", 120)
    whole = watched(framework="trl", only=FEW)
    once = [event.check for row in rows for event in whole.log(row)] + [event.check for event in whole.finish()]
    told: list[str] = []
    for begin, end in ((0, 50), (50, 90), (70, len(rows))):  # the last goes on from an earlier saved state
        monitor = watched(framework="trl", only=FEW, state=tmp_path / "state")
        told += [event.check for row in rows[begin:end] for event in monitor.log(row)]
        let_go(monitor)
    told += [event.check for event in monitor.finish()]
    assert sorted(told) == sorted(once)
    assert monitor.open == whole.open
    assert monitor.rows == len(rows) + 20
    steps = monitor.diagnosis.run.steps if monitor.diagnosis is not None else np.empty(0)
    assert steps.tolist() == [float(row["step"]) for row in rows if "reward" in row]
    same = read([tmp_path / "state"], framework="trl")
    assert said(diagnose(same, only=FEW)) == said(monitor.diagnosis)


def test_the_restored_rows_are_the_logged_ones(tmp_path: Path) -> None:
    first = watched(state=tmp_path, only=FEW)
    rows: list[tuple[dict[str, Any], Any]] = [
        ({"loss": 1.0 / 3.0, "b": True, "s": "0.25", "n": None}, 1),
        ({"loss": math.nan, "x": {"y": 2.0}}, 2),
        ({"loss": -math.inf, "step": 9}, 3.5),
        *[({"loss": 0.1 * k, "reward": k}, k) for k in range(4, 30)],
    ]
    for row, step in rows:
        first.log(row, step)
    first.finish()
    second = watched(state=tmp_path, only=FEW)
    assert said(first.report()) == said(second.report())
    assert second.rows == 29
    a, b = first.report(), second.report()
    assert a is not None
    assert b is not None
    for name, column in a.run.columns.items():
        np.testing.assert_array_equal(column.values, b.run[name].values)
        np.testing.assert_array_equal(column.steps, b.run[name].steps)


def test_a_run_from_scratch_begins_a_state_of_its_own(tmp_path: Path) -> None:
    rows = rows_of("entropy_collapse", 40)
    for count in (1, 2, 3):
        monitor = watched(framework="trl", only=FEW, state=tmp_path)
        for row in rows:
            monitor.log(row)
        monitor.finish()
        assert monitor.rows == len(rows)
        assert len(list(tmp_path.glob("rows.jsonl*"))) == count
    assert read([tmp_path]).sources[0].rows == len(rows)
    fresh = watched(framework="trl", only=FEW, state=tmp_path, fresh=True)
    assert fresh.rows == 0
    fresh.log(rows[30])
    fresh.finish()
    assert len(list(tmp_path.glob("rows.jsonl.*.old"))) == 3


def test_the_history_of_a_trainer_takes_the_place_of_the_rows(tmp_path: Path) -> None:
    rows = rows_of("entropy_collapse", 100)
    first = watched(framework="trl", only=FEW, state=tmp_path)
    told = [event.check for row in rows[:80] for event in first.log(row)]
    first.finish()
    second = watched(framework="trl", only=FEW, state=tmp_path)
    second.resume(rows[:60])
    assert second.rows == 60
    assert second.open == first.open
    again = [event.check for row in rows[60:] for event in second.log(row) if event.kind == "opened"]
    assert not set(again) & set(told) & set(second.open) or set(again).isdisjoint(first.open)
    plain = Growing(framework="trl")
    for row in rows:
        plain.add(row)
    second.finish()
    assert said(second.diagnosis) == said(diagnose(plain.run(), only=FEW))
    assert said(diagnose(read([tmp_path], framework="trl"), only=FEW)) == said(second.diagnosis)
    assert len((tmp_path / "rows.jsonl.1.old").read_text().splitlines()) == 81
    alone = watched(framework="trl", only=FEW)  # no state: what stands is taken for told
    alone.resume(rows)
    assert alone.open == {
        f.check: f.severity for f in diagnose(plain.run(), only=FEW).findings if (f.severity or 0) >= 2
    }
    assert alone.finish() == []


KILLED = """
import json, os, random, signal, sys, time
from rlclinic import Monitor
from rlclinic.live import monitor as module
from rlclinic.live.keeping import load
module.gap, module._warm = lambda rows, waiting: max(4, rows // 6), lambda *_: None  # looks cost most of the time
rows, state = [json.loads(line) for line in open(sys.argv[1])], sys.argv[2]
random.seed(5)


def train(out):
    say = lambda *words: os.write(out, (" ".join(words) + "\\n").encode())
    monitor = Monitor(framework="trl", state=state, share=None, rank=0, only=["entropy_collapse", "nan_inf"],
                      tell=lambda events, diagnosis: [say(event.kind, event.check) for event in events])
    done = monitor._growing.last
    say("from", str(done), *monitor.open)
    for row in rows:
        if done is None or row["step"] > done - 5:
            monitor.log(row)
            time.sleep(0.002)
    monitor.finish()
    say("open", *sorted(monitor.open))


def once(seconds):
    into, out = os.pipe()
    child = os.fork()
    if not child:
        train(out)
        os._exit(0)
    os.close(out)
    told = b""
    while not told.endswith(b"\\n"):
        told += os.read(into, 1000)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    while more := os.read(into, 1000):
        told += more
    os.waitpid(child, 0)
    return told.decode().splitlines()


course = os.path.join(state, "course.json")
for attempt in range(6):
    kept = load(course) or {"course": {"standing": []}}
    known = [one["check"] for one in kept["course"]["standing"] if one["told"]]
    print(json.dumps([known, once(random.uniform(0.0, 0.15) if attempt < 5 else None)]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_killed_at_any_moment_it_goes_on(tmp_path: Path) -> None:
    rows = rows_of("entropy_collapse", 120)
    log, state = tmp_path / "log.jsonl", tmp_path / "state"
    log.write_text("".join(json.dumps(one) + "\n" for one in rows))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(log), str(state)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    attempts = [json.loads(line) for line in done.stdout.splitlines()]
    for known, lines in attempts:
        opened = {line.split()[1] for line in lines if line.startswith("opened")}
        closed = {line.split()[1] for line in lines if line.startswith("closed")}
        assert not (opened & set(known)) - closed, "told twice"
    whole = watched(framework="trl", only=FEW)
    for row in rows:
        whole.log(row)
    whole.finish()
    assert whole.open
    assert attempts[-1][1][-1].split()[1:] == sorted(whole.open)
    assert len(read([state], framework="trl").steps) == len({row["step"] for row in rows if "reward" in row})


@pytest.mark.parametrize("what", ["cut", "cut in the head", "empty", "middle"])
def test_a_state_that_was_cut_off_is_read(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = watched(state=tmp_path, only=FEW)
    for step in range(20):
        monitor.log({"loss": 1.0, "reward": 0.5 + step}, step)
    monitor.finish()
    file = tmp_path / "rows.jsonl"
    data = file.read_bytes()
    if what.startswith("cut in") or what == "empty":
        (tmp_path / "course.json").unlink()
    lines = data.splitlines(keepends=True)
    lines[5] = b'{"loss": 1.0, "rew\n'
    file.write_bytes({"cut": data[:-9], "cut in the head": data[:9], "empty": b"", "middle": b"".join(lines)}[what])
    again = watched(state=tmp_path, only=FEW)
    assert again.rows == {"cut": 19, "cut in the head": 0, "empty": 0, "middle": 19}[what]
    for step in range(20, 40):
        again.log({"loss": 1.0, "reward": 0.5 + step}, step)
    again.finish()
    parsed = [keeping._parsed(line) for line in file.read_bytes().splitlines()]
    assert parsed.count(None) == (what == "middle")
    assert len(parsed) == again.rows + 1 + (what == "middle")
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.glob("*.old"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("course.json", b"{"),
        ("course.json", b"[]"),
        ("course.json", b"\0" * 4096),
        ("course.json", b'{"schema":"rlclinic.course/99"}'),
        ("course.json", b'{"schema":"rlclinic.course/1","next":1,"course":{"form":2,"standing":7}}'),
        ("course.json", b'{"schema":"rlclinic.course/1","next":"x"}'),
        ("rows.jsonl", b'{"schema":"rlclinic.rows/99"}\n{"loss":1}\n'),
        ("rows.jsonl", b'{"step":1,"loss":0.5}\n'),
        ("rows.jsonl", b"\0" * 4096 + b"\n"),
        ("rows.jsonl", b"\x80\x04pickle\n"),
    ],
)
def test_a_damaged_state_is_set_aside(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor = watched(state=tmp_path, only=FEW)
    for step in range(20):
        monitor.log({"loss": 1.0, "reward": 0.5}, step)
    monitor.finish()
    capsys.readouterr()
    (tmp_path / name).write_bytes(content)
    again = watched(state=tmp_path, only=FEW)
    assert again.rows == 0
    assert again.open == {}
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (tmp_path / f"{name}.1.old").read_bytes() == content
    again.log({"loss": 2.0}, 0)
    again.finish()
    assert watched(state=tmp_path, only=FEW).rows == 1


def test_two_monitors_do_not_share_a_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PATIENCE", 0.0)
    first, second = watched(state=tmp_path, only=FEW), watched(state=tmp_path, only=FEW)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "another monitor" in lines[0]
    for step in range(20):
        first.log({"loss": 1.0}, step)
        second.log({"loss": 2.0}, step)
    second.finish()
    first.finish()
    assert (tmp_path / "rows.jsonl").read_text().count('"loss":1.0') == 20
    assert "2.0" not in (tmp_path / "rows.jsonl").read_text()
    assert watched(state=tmp_path, only=FEW).rows == 20  # finish lets go


def test_another_process_has_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "PATIENCE", 0.0)
    code = f"""
import sys
from rlclinic.live import keeping, options
lock = keeping._Lock.of(__import__("pathlib").Path({str(tmp_path)!r}), 0.0)
print("locked", flush=True)
sys.stdin.read()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        held = watched(state=tmp_path, only=FEW)
        assert held._keeper is None
    finally:
        child.kill()
        child.communicate()
    assert watched(state=tmp_path, only=FEW)._keeper is not None


def test_rows_after_the_end_are_kept_too_unless_another_has_the_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor = watched(state=tmp_path, only=FEW)
    for end in (10, 20):
        for step in range(end - 10, end):
            monitor.log({"loss": 1.0}, step)
        monitor.finish()
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 21
    monitor.resume([{"loss": 1.0, "step": step} for step in range(20)][:15])
    for step in range(15, 20):
        monitor.log({"loss": 1.0}, step)
    monitor.finish()
    other = watched(state=tmp_path, only=FEW)
    assert other.rows == 20
    monitor.log({"loss": 2.0}, 20)
    monitor.finish()
    assert capsys.readouterr().err.count("another monitor") == 1
    other.log({"loss": 3.0}, 20)
    other.finish()
    assert (tmp_path / "rows.jsonl").read_text().splitlines()[-1] == '{"step":20,"loss":3.0}'
    late = watched(state=tmp_path, only=FEW)
    late.log({"loss": 4.0}, 21)
    late.finish()
    other.log({"loss": 5.0}, 22)  # the file is not as this one left it
    other.finish()
    assert watched(state=tmp_path, only=FEW).rows == 22
    assert capsys.readouterr().err.count("another monitor") == 1


def test_a_long_history_is_kept_as_a_whole(tmp_path: Path) -> None:
    monitor = watched(state=tmp_path, only=FEW)
    monitor.resume({"loss": 1.0 / step, "step": step} for step in range(1, 3001))
    monitor.log({"loss": 1.0, "step": 3001})
    monitor.finish()
    assert watched(state=tmp_path, only=FEW).rows == 3001
    assert not list(tmp_path.glob("*.old"))


def test_a_monitor_that_is_dropped_frees_its_state_and_thread(tmp_path: Path) -> None:
    monitor = watched(state=tmp_path, only=FEW)
    monitor.log({"loss": 1.0}, 1)
    assert monitor._worker is not None
    thread, gone = monitor._worker._thread, weakref.ref(monitor)
    del monitor
    gc.collect()
    assert gone() is None
    until(lambda: not thread.is_alive())
    assert watched(state=tmp_path, only=FEW).rows == 1


# A bad disk


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes a call of the system wait until the test is over."""
    over = threading.Event()

    def hang(name: str) -> None:
        original = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread().name == "rlclinic":
                over.wait(30.0)
            return original(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    yield hang
    over.set()


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_disk_that_hangs_stops_nothing(
    call: str,
    hung: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "FLUSH", 0.05)
    monkeypatch.setattr(keeping, "WAITING", 50)
    monkeypatch.setattr(Worker.put, "__defaults__", (50,))
    monitor = watched(state=tmp_path, only=["nan_inf"])
    hung(call)
    began = time.monotonic()
    for step in range(300):
        monitor.log({"loss": 1.0}, step)
    monitor.finish()
    assert time.monotonic() - began < 5.0
    assert monitor.diagnosis is not None
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_directory_that_hangs_does_not_hold_up_the_start(
    hung: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "HUNG", 0.1)
    monkeypatch.setattr(module, "FLUSH", 0.05)
    hung("open")
    began = time.monotonic()
    monitor = watched(state=tmp_path, only=["nan_inf"])
    for step in range(30):
        monitor.log({"loss": 1.0}, step)
    monitor.finish()
    assert time.monotonic() - began < 5.0
    assert monitor.diagnosis is not None
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("again", [True, False])
def test_a_full_disk_is_waited_out(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keeping, "AGAIN", 0.0)
    monitor = watched(state=tmp_path, only=["nan_inf"])
    worker = monitor._worker
    assert worker is not None
    write, full = os.write, True

    def short(handle: int, data: Any) -> int:
        if full and threading.current_thread().name == "rlclinic":
            if len(data) > 10:
                return write(handle, bytes(data)[:10])  # a part still fits
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data)

    monkeypatch.setattr(os, "write", short)
    for step in range(30):
        monitor.log({"loss": 1.0 + step}, step)
    assert worker.drain(5.0)
    if not again:
        monitor.finish()
        monitor.finish()
        lines = capsys.readouterr().err.splitlines()
        assert ["now" in line for line in lines] == [True, False]
        assert "the end of the run is not in the state" in lines[1]
        return
    full = False
    for step in range(30, 40):
        monitor.log({"loss": 1.0 + step}, step)
    monitor.finish()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "No space" in lines[0]
    assert watched(state=tmp_path).rows == 40


@pytest.mark.parametrize("place", ["no\0name", "file/state", "fifo rows", "fifo course", "folder rows", "link rows"])
def test_a_place_that_cannot_hold_a_state_is_said(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "state"
    if place == "file/state":
        (tmp_path / "file").write_text("mine")
        folder = tmp_path / "file" / "state"
    elif "\0" in place:
        folder = tmp_path / place
    else:
        folder.mkdir()
        kind, name = place.split()
        target = folder / {"rows": "rows.jsonl", "course": "course.json"}[name]
        if kind == "fifo" and not hasattr(os, "mkfifo"):
            pytest.skip("no pipes with names here")
        (tmp_path / "mine").write_text("mine")
        {
            "fifo": lambda: os.mkfifo(target),
            "folder": target.mkdir,
            "link": lambda: target.symlink_to(tmp_path / "mine"),
        }[kind]()
    monitor = watched(state=folder, only=["nan_inf"])
    for step in range(30):
        monitor.log({"loss": 1.0}, step)
    monitor.finish()
    assert monitor.diagnosis is not None
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "mine").exists() or (tmp_path / "mine").read_text() == "mine"


def test_a_state_is_replaced_wholly_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "course.json"
    assert load(path) is None
    save(path, {"a": 1})

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save(path, {"a": 2})
    kept = load(path)
    assert kept is not None
    assert kept["a"] == 1
    assert os.listdir(tmp_path) == ["course.json"]
    with pytest.raises(ValueError, match="another version"):
        load(path, "rlclinic.other/1")
    (tmp_path / "course.json.1.old").write_text("older")
    assert [one.name for one in set_aside(path, tmp_path / "rows.jsonl")] == ["course.json.2.old"]
    assert (tmp_path / "course.json.1.old").read_text() == "older"


# The end of the process


def test_the_process_ends_cleanly_without_finish(tmp_path: Path) -> None:
    code = f"""
import threading
from rlclinic import Monitor
monitor = Monitor(state={str(tmp_path)!r}, rank=0, only=["nan_inf"])
for step in range(9):
    monitor.log({{"loss": 1.0}}, step)
assert [t for t in threading.enumerate() if not t.daemon] == [threading.main_thread()]
raise ZeroDivisionError
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError", done.stderr
    assert "Fatal" not in done.stderr
    assert "rlclinic" not in done.stderr
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 10


def test_the_process_ends_while_a_thread_hangs_in_a_place_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HUNG", 0.05)
    monkeypatch.setattr(Course, "take", lambda *a, **k: [event_of("entropy_collapse", Severity.CRITICAL)])
    hangs, over = threading.Event(), threading.Event()

    def tell(*_: object) -> None:
        hangs.set()
        over.wait(30.0)

    monitor = watched(only=FEW, tell=tell)
    thread = threading.Thread(target=lambda: [monitor.log({"reward": 0.5}, step) for step in range(module.FIRST)])
    thread.start()
    assert hangs.wait(10.0)
    began = time.monotonic()
    module._at_exit(weakref.ref(monitor))
    assert time.monotonic() - began < 5.0
    assert monitor._finished == -1
    over.set()
    thread.join(10.0)
    module._at_exit(weakref.ref(monitor))
    assert monitor._finished == module.FIRST


def test_no_thread_to_be_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    monitor = watched(state=tmp_path, rollouts=tmp_path, only=["nan_inf"])
    for step in range(12):
        monitor.log({"loss": 1.0}, step)
    monitor.finish()
    assert monitor.diagnosis is not None
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_standard_error_may_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> None:
            raise BrokenPipeError

    for stream in (None, Closed()):
        monkeypatch.setattr(sys, "stderr", stream)
        monitor = watched(tell=None)
        monitor.log(None)  # type: ignore[arg-type]
        monitor._say([event_of("entropy_collapse", Severity.CRITICAL)], None)  # type: ignore[arg-type]


def test_repr_names_what_is_open() -> None:
    monitor = watched(framework="trl", only=FEW, name="\x1b[31mrun")
    for row in rows_of("entropy_collapse", 120):
        monitor.log(row)
    monitor.finish()
    assert repr(monitor).startswith("Monitor('run', 1")
    assert "(" in repr(monitor)
    assert "\x1b" not in repr(monitor)


def test_the_tables_are_loaded_before_the_first_look() -> None:
    monitor = watched(framework="trl")
    assert monitor._worker is not None
    assert monitor._worker.drain(20.0)


def _mapping_is_public(row: Mapping[str, float]) -> None:
    """Any mapping may be logged, as its type says."""
    Monitor(rank=1).log(row)
