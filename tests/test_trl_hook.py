"""The callback for TRL in a stand-in for its trainer: what it says, keeps and does, and that training goes on."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rlclinic import Diagnosis, Event, Run, Severity, diagnose, read, render
from rlclinic.hooks.trl import RLClinicCallback, settings
from rlclinic.live.events import lines
from rlclinic.live.growing import Growing

BROKEN = 30
"""Step from which the reward of the sick run is 0."""


@dataclass
class State:
    """What the callback reads of ``transformers.TrainerState``."""

    max_steps: int
    global_step: int = 0
    is_world_process_zero: bool = True
    is_hyper_param_search: bool = False
    log_history: list[dict[str, Any]] = field(default_factory=list)


class GRPOConfig:
    """What the callback reads of TRL's configuration."""

    world_size = 1
    save_total_limit = None

    def __init__(self, output_dir: Path, **fields: Any) -> None:
        self.output_dir = str(output_dir)
        self.log_completions = False
        self.__dict__.update(fields)

    def to_dict(self) -> dict[str, Any]:
        known = {"num_generations": 8, "learning_rate": 1e-6, "max_steps": -1, "hub_token": "<HUB_TOKEN>", "beta": 0.0,
                 "scale_rewards": "group", "reward_weights": [1.0, 0.5], "max_completion_length": 256}  # fmt: skip
        return {**known, **vars(self)}


GRPOConfig.__module__ = "trl.trainer.grpo_config"


def row(step: int, broken: int | None = BROKEN) -> dict[str, float]:
    """What TRL logs at ``step``; the same each time."""
    chance = random.Random(step)
    reward = 0.3 + 0.3 * min(step / 100, 1.0) + chance.gauss(0, 0.03)
    live = broken is None or step < broken
    return {
        "loss": chance.gauss(0, 0.01), "grad_norm": (1.0 + chance.gauss(0, 0.1)) * live, "learning_rate": 1e-6,
        "num_tokens": 3000.0 * step, "completions/mean_length": 120 + chance.gauss(0, 4),
        "completions/clipped_ratio": 0.0, "rewards/hits/mean": reward * live, "rewards/hits/std": 0.4 * live,
        "reward": reward * live, "reward_std": 0.4 * live, "frac_reward_zero_std": 0.05 if live else 1.0,
        "entropy": 0.9 - 0.001 * step + chance.gauss(0, 0.01), "clip_ratio/region_mean": 0.0, "step_time": 12.0,
        "epoch": step / 60,
    }  # fmt: skip


class Trainer:
    """Calls its callback as ``transformers.Trainer`` does (5.24, trainer.py), one row of metrics a step."""

    def __init__(self, folder: Path, callback: Any, **fields: Any) -> None:
        self.folder, self.callback, self.args = folder, callback, GRPOConfig(folder, **fields)
        self.control = SimpleNamespace(should_training_stop=False, should_save=False)
        self.saved: list[int] = []

    def call(self, event: str, **more: Any) -> None:
        changed = getattr(self.callback, event)(self.args, self.state, self.control, model=None, **more)
        self.control = self.control if changed is None else changed

    def log(self, logs: dict[str, Any]) -> None:
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.call("on_log", logs=logs)

    def train(
        self, steps: int = 60, *, broken: int | None = BROKEN, resume: int | None = None, until: int | None = None,
        save_steps: int = 20, **state: Any
    ) -> Trainer:  # fmt: skip
        """Train; ``resume`` is the step of a checkpoint, ``until`` that of a crash."""
        self.state = State(steps, **state)
        if resume is not None:
            kept = json.loads((self.folder / f"checkpoint-{resume}" / "trainer_state.json").read_text())
            self.state.global_step, self.state.log_history = kept["global_step"], kept["log_history"]
        self.call("on_train_begin")
        while self.state.global_step < steps and not self.control.should_training_stop:
            self.call("on_step_begin")
            self.state.global_step += 1
            if self.state.global_step == until:
                return self
            self.control.should_save = self.state.global_step % save_steps == 0
            self.call("on_step_end")
            self.log(row(self.state.global_step, broken))
            if self.control.should_save:
                self.saved.append(self.state.global_step)
                self.save(self.folder / f"checkpoint-{self.state.global_step}")
                self.call("on_save")
        self.log({"train_runtime": 3.0, "train_loss": 0.01, "total_flos": 0.0, "epoch": 1.0})
        self.call("on_train_end")
        self.save(self.folder)
        return self

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        kept = {
            "global_step": self.state.global_step,
            "log_history": self.state.log_history,
            "max_steps": self.state.max_steps,
        }
        (folder / "trainer_state.json").write_text(json.dumps(kept))


@pytest.fixture(autouse=True)
def _trl(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has imported TRL 1.16.0; no launcher, no switch, no addresses for alerts."""
    trl = ModuleType("trl")
    trl.__version__ = "1.16.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trl", trl)
    monkeypatch.setattr("rlclinic.live.monitor._warm", lambda *_: None)  # in a training nobody waits for it
    for name in ("RLCLINIC", "RLCLINIC_ALERT", "RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def seen() -> tuple[Diagnosis, Diagnosis]:
    """What is found in the healthy run and in the sick one."""
    logs = []
    for broken in (None, BROKEN):
        log = Growing(framework="trl@1.16.0")
        for step in range(1, 61):
            log.add(row(step, broken), step)
        logs.append(diagnose(log.run()))
    return logs[0], logs[1]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, seen: tuple[Diagnosis, Diagnosis]) -> None:
    """Looks that cost nothing, for what has nothing to do with how a run is judged."""

    def look(run: Run, **_: Any) -> Diagnosis:
        reward = run["reward.mean"].values
        return replace(seen[int(len(reward) > 0 and reward[-1] == 0)], run=run)

    monkeypatch.setattr("rlclinic.live.monitor.diagnose", look)


def told(diagnosis: Diagnosis) -> dict[str, Any]:
    """All that is said of a run, without the names of the files it was read from."""
    form = json.loads(render(diagnosis, "json"))
    return {part: form[part] for part in ("verdict", "findings", "checks", "notes", "to_log") if part in form}


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


# ------------------------------------------------------------------------------------------------ what it says


def test_a_healthy_run_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = RLClinicCallback(share=None)
    Trainer(tmp_path, callback).train(broken=None)
    assert callback.events == []
    assert len(said(capsys)) == 1


def test_what_is_found_is_said_once_and_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = RLClinicCallback(share=None)
    trainer = Trainer(tmp_path, callback).train()
    first = callback.events[0]
    assert (first.check, first.severity) == ("verifier_broken", Severity.CRITICAL)
    assert BROKEN < first.step < 60
    assert not trainer.control.should_training_stop
    heard = said(capsys)
    assert sum(line.startswith("rlclinic: verifier_broken (critical)") for line in heard) == 1
    assert any("Change: " in line for line in heard)


@pytest.mark.parametrize("broken", [None, BROKEN])
def test_the_last_word_is_that_of_the_files(tmp_path: Path, broken: int | None) -> None:
    callback = RLClinicCallback(share=None)
    Trainer(tmp_path, callback).train(broken=broken, save_steps=10)
    assert callback.diagnosis is not None
    assert [one.step for one in callback.diagnosis.run.checkpoints] == [10, 20, 30, 40, 50, 60]
    assert all("checkpoint-" in event.go_on for event in callback.events[:1])
    within = told(callback.diagnosis)
    assert told(diagnose(read([tmp_path]))) == within
    kept = tmp_path / "rlclinic" / "config.json"
    assert told(diagnose(read([tmp_path / "trainer_state.json"], framework="trl@1.16.0", config=[kept])))[
        "verdict"
    ] == within["verdict"]  # fmt: skip
    (tmp_path / "trainer_state.json").unlink()
    assert told(diagnose(read([tmp_path])))["verdict"] == within["verdict"], "the rows that are kept stand in for it"


def test_rows_are_counted_once(tmp_path: Path) -> None:
    callback = RLClinicCallback(share=None)
    Trainer(tmp_path, callback).train(broken=None)
    assert callback.diagnosis is not None
    found = read([tmp_path])
    assert len(found["reward.mean"]) == len(callback.diagnosis.run["reward.mean"]) == 60
    assert {warning.code for warning in found.warnings} <= {"source_left_out"}, "earlier checkpoints"
    assert found.seams == {}


def test_nothing_is_said_twice_after_a_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = RLClinicCallback(share=None), RLClinicCallback(share=None)
    Trainer(tmp_path, before).train(until=50)
    assert "verifier_broken" in {event.check for event in before.events}
    assert not any("goes on" in line for line in said(capsys))
    before.monitor.finish()  # type: ignore[union-attr]  # as at the end of that process
    Trainer(tmp_path, after).train(resume=40)
    opened = {event.check for event in before.events if event.kind == "opened"}
    assert [event for event in after.events if event.kind == "opened" and event.check in opened] == []
    assert any("goes on from step 40; found before: " in line for line in said(capsys))
    assert after.diagnosis is not None
    assert len(after.diagnosis.run["reward.mean"]) == 60
    kept = tmp_path / "rlclinic" / "config.json"
    state = read([tmp_path / "trainer_state.json"], framework="trl@1.16.0", config=[kept])
    assert told(diagnose(state))["verdict"] == told(after.diagnosis)["verdict"]
    whole = read([tmp_path])
    assert len(whole["reward.mean"]) == 60
    found = [one for one in told(diagnose(whole))["findings"] if one["check"] != "resume_discontinuity"]
    assert found == told(after.diagnosis)["findings"], "the rows that are kept may show the restart besides"


def test_a_second_training_in_the_same_folder_starts_afresh(tmp_path: Path) -> None:
    Trainer(tmp_path, RLClinicCallback()).train(40)
    again = RLClinicCallback()
    Trainer(tmp_path, again).train(broken=None)
    assert again.events == []
    assert again.diagnosis is not None
    assert len(again.diagnosis.run["reward.mean"]) == 60
    assert told(diagnose(read([tmp_path])))["findings"] == told(again.diagnosis)["findings"]
    assert list((tmp_path / "rlclinic").glob("rows.jsonl.*")), "the rows of the first one are kept"


@pytest.mark.usefixtures("quick")
def test_what_other_callbacks_make_of_a_row_is_not_read(tmp_path: Path) -> None:
    class Spoiling(RLClinicCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> Any:
            logs.pop("total_flos", None)
            logs["reward"] = -1.0
            return super().on_log(args, state, control, logs=logs, **more)

    callback = Spoiling(share=None)
    Trainer(tmp_path, callback).train(30, broken=None)
    assert callback.diagnosis is not None
    assert float(callback.diagnosis.run["reward.mean"].values.min()) > 0


def test_lines_are_clean_and_bounded() -> None:
    wild = "\x1b[31m[b]<script>‮" + "x" * 100_000
    event = Event("opened", "reward_decline", Severity.CRITICAL, 7.0, wild, wild, change=wild)
    after = Event("opened", "grad_vanishing", Severity.WARNING, 7.0, wild, wild, because_of=("reward_decline",))
    shown = lines([event, after])
    assert len(shown) == 2
    assert shown[1] == "with it grad_vanishing (warning): follows from reward_decline"
    assert all(len(line) < 700 and line.isprintable() for line in shown)


def test_a_consequence_told_before_its_root_says_what_mends_both() -> None:
    root = Event("opened", "sudden_collapse", Severity.CRITICAL, 7.0, "broke", "fell", change="learning_rate=1e-5")
    after = Event("opened", "truncation", Severity.CRITICAL, 7.0, "cut", "39% are cut", because_of=("length_explosion",),
                  change=root.change, root=root.check)  # fmt: skip
    (alone,) = lines([after])
    assert alone.startswith("truncation (critical) at step 7: 39% are cut. Behind it: sudden_collapse. Change: learn")
    assert lines([after, root]) == [str(root), "with it truncation (critical): follows from sudden_collapse"]
    gone = Event("closed", "truncation", Severity.CRITICAL, 9.0, "cut", "no longer seen")
    assert lines([gone, root]) == [str(gone), str(root)]


# ------------------------------------------------------------------------------------------------ what it does


@pytest.mark.usefixtures("quick")
def test_it_stops_and_saves_only_when_asked(tmp_path: Path) -> None:
    asked = Trainer(tmp_path / "a", RLClinicCallback(share=None, stop_at="critical", save_at="critical")).train()
    first = asked.callback.events[0].step
    assert asked.state.global_step == first
    assert asked.saved[-1] == first
    higher = Trainer(tmp_path / "b", RLClinicCallback(share=None, stop_at="critical")).train(broken=None)
    assert higher.state.global_step == 60


@pytest.mark.usefixtures("quick")
def test_a_checkpoint_that_pushes_out_others_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Trainer(tmp_path, RLClinicCallback(save_at="critical"), save_total_limit=2).train(5)
    assert any("save_total_limit=2" in line for line in said(capsys))


@pytest.mark.usefixtures("quick")
def test_events_go_where_they_are_wanted(tmp_path: Path) -> None:
    heard: list[Any] = []
    callback = RLClinicCallback(share=None, tell=lambda events, diagnosis: heard.append((list(events), diagnosis)))
    Trainer(tmp_path, callback).train()
    assert [event for events, _ in heard for event in events] == callback.events
    assert heard[0][1].findings


@pytest.mark.usefixtures("quick")
def test_a_page_at_the_end_is_never_written_over_another(tmp_path: Path) -> None:
    (tmp_path / "rlclinic.html").write_text("mine")
    callback = RLClinicCallback(report=True)
    Trainer(tmp_path, callback).train(20, broken=None)
    assert (tmp_path / "rlclinic.html").read_text() == "mine"
    assert callback.report == tmp_path / "rlclinic-2.html"
    assert callback.report.read_text().startswith("<!DOCTYPE html>")
    other = RLClinicCallback(report=tmp_path / "pages" / "run.html", state=False)
    Trainer(tmp_path, other).train(20, broken=None)
    assert other.report == tmp_path / "pages" / "run.html"


# ------------------------------------------------------------------------------------------------ settings


def test_settings_hold_no_secret() -> None:
    fields: dict[str, Any] = {
        "hub_token": "<HUB_TOKEN>", "push_to_hub_token": "hf_abc", "api_key": "k", "wandb_password": "p",
        "vllm_server_base_url": "http://me:secret@host", "num_tokens": 5, "include_num_input_tokens_seen": "no",
        "remove_unused_columns": False, "kwargs": {"a": 1}, "long": "x" * 5_000, "none": None, "many": [1] * 1_000,
        "reward_weights": (1.0, 2.0), "session_cookie": "c", "slack_webhook": "T0/B0", "private_key_file": "k", "pwd": "p",
        "run_name": "hf_" + "aB3" * 12, "tags": ["grpo", "sk-proj-" + "aB3dE" * 8], "max_new_tokens": 9,
    }  # fmt: skip
    kept = settings(SimpleNamespace(**fields), SimpleNamespace(max_steps=70))
    assert kept == {"num_tokens": 5, "include_num_input_tokens_seen": "no", "remove_unused_columns": False,
                    "reward_weights": [1.0, 2.0], "max_new_tokens": 9, "max_steps": 70}  # fmt: skip


@pytest.mark.usefixtures("quick")
def test_the_planned_steps_are_those_of_the_trainer(tmp_path: Path) -> None:
    callback = RLClinicCallback()
    Trainer(tmp_path, callback).train(20, broken=None)
    assert callback.diagnosis is not None
    run = callback.diagnosis.run
    assert run.planned_steps == 20
    assert run.framework is not None
    assert (run.framework.name, run.framework.version) == ("trl", "1.16.0")
    assert run.knobs["group_size"].value == 8
    kept = (tmp_path / "rlclinic" / "config.json").read_text()
    assert "TOKEN" not in kept
    assert (tmp_path / "rlclinic" / "pip-freeze.txt").read_text() == "trl==1.16.0\n"


@pytest.mark.usefixtures("quick")
def test_settings_that_were_changed_for_a_resume_count(tmp_path: Path) -> None:
    Trainer(tmp_path, RLClinicCallback()).train(50, broken=None)
    after = RLClinicCallback()
    Trainer(tmp_path, after, beta=0.04).train(broken=None, resume=40)
    assert after.diagnosis is not None
    assert after.diagnosis.run.knobs["kl_coef"].value == 0.04
    assert read([tmp_path]).knobs["kl_coef"].value == 0.04
    assert list((tmp_path / "rlclinic").glob("config.json.*")), "the settings before are kept"


@pytest.mark.parametrize(
    "bad", [{"stop_at": "info"}, {"save_at": 3}, {"nonsense": 1}, {"rank": 0}], ids=lambda bad: next(iter(bad))
)
def test_an_option_that_there_is_not_is_refused_at_once(bad: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        RLClinicCallback(**bad)


# ------------------------------------------------------------------------------------------------ it never disturbs


@pytest.mark.usefixtures("quick")
def test_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RLCLINIC", "0")
    callback = RLClinicCallback(share=None, stop_at="warning", report=True)
    trainer = Trainer(tmp_path, callback).train()
    assert trainer.state.global_step == 60
    assert (callback.events, callback.diagnosis, callback.report, said(capsys)) == ([], None, None, [])
    assert not (tmp_path / "rlclinic").exists()


@pytest.mark.usefixtures("quick")
def test_only_the_main_process_does_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = RLClinicCallback(share=None)
    Trainer(tmp_path, callback).train(is_world_process_zero=False)
    assert (callback.events, callback.diagnosis, said(capsys)) == ([], None, [])
    assert not (tmp_path / "rlclinic").exists()


def _raises(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken within")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "place", ["rlclinic.live.Monitor.__init__", "rlclinic.live.Monitor.log", "rlclinic.live.Monitor.finish",
              "rlclinic.live.Monitor.checkpoint", "rlclinic.hooks.trl._page", "rlclinic.hooks.trl.settings"],
)  # fmt: skip
def test_what_breaks_inside_is_told_once_and_training_goes_on(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(place, _raises)
    trainer = Trainer(tmp_path, RLClinicCallback(report=True)).train(30, broken=None, save_steps=10)
    assert trainer.state.global_step == 30
    assert [line for line in said(capsys) if "broken within" in line] == [
        "rlclinic: monitoring stopped, training goes on: RuntimeError: broken within"
    ]


@pytest.mark.usefixtures("quick")
def test_a_listener_that_raises_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(tmp_path, RLClinicCallback(share=None, tell=_raises)).train()
    assert trainer.state.global_step == 60
    assert sum("broken within" in line for line in said(capsys)) == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("odd", [None, {}, {"reward": "much"}, {"reward": float("nan")}, {1: 2}, [("reward", 1)]])
def test_odd_rows_are_borne(tmp_path: Path, odd: Any) -> None:
    callback = RLClinicCallback()
    state, control = State(100), SimpleNamespace()
    args = GRPOConfig(tmp_path)
    callback.on_train_begin(args, state, control)
    callback.on_log(args, state, control, logs=odd)
    callback.on_train_end(args, state, control)


@pytest.mark.usefixtures("quick")
def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rlclinic").write_text("a file in the way")
    callback = RLClinicCallback(share=None)
    Trainer(tmp_path, callback).train()
    assert (tmp_path / "rlclinic").read_text() == "a file in the way"
    assert callback.events[0].check == "verifier_broken"
    assert any("no state is kept" in line for line in said(capsys))


@pytest.mark.usefixtures("quick")
def test_a_callback_that_is_added_late_takes_over_the_rows_before(tmp_path: Path) -> None:
    callback = RLClinicCallback(share=None, state=False)
    trainer = Trainer(tmp_path, callback)
    trainer.state = State(100, 60, log_history=[{**row(step), "step": step} for step in range(1, 61)])
    trainer.state.global_step += 1
    trainer.log(row(61))
    trainer.call("on_train_end")
    assert callback.diagnosis is not None
    assert len(callback.diagnosis.run["reward.mean"]) == 61


def test_later_events_of_the_trainer_are_borne(tmp_path: Path) -> None:
    callback = RLClinicCallback()
    assert callback.on_push_begin(None, None, None) is None
    assert callback.on_something_new(None, None, None, model=None) is None
    with pytest.raises(AttributeError):
        callback.something_else()


@pytest.mark.usefixtures("quick")
def test_copies_begin_anew(tmp_path: Path) -> None:
    callback = RLClinicCallback(share=None, stop_at="critical", report=tmp_path / "a.html", state=False)
    Trainer(tmp_path, callback).train(20)
    for one in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert (one.events, one.diagnosis, one.monitor) == ([], None, None)
        assert Trainer(tmp_path, one).train().state.global_step < 60


def test_a_callback_of_transformers_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class TrainerCallback:
        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> str:
            return "theirs"

    theirs = ModuleType("transformers.trainer_callback")
    theirs.TrainerCallback = TrainerCallback  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", ModuleType("transformers"))
    monkeypatch.setitem(sys.modules, "transformers.trainer_callback", theirs)
    monkeypatch.setattr("rlclinic.hooks.trl._CLASSES", {})
    callback = RLClinicCallback()
    assert isinstance(callback, TrainerCallback)
    assert isinstance(callback, RLClinicCallback)
    assert type(callback).__name__ == "RLClinicCallback"
    assert callback.on_epoch_end(None, None, None) == "theirs"
    assert isinstance(copy.copy(callback), TrainerCallback)


def test_loading_the_module_loads_nothing_heavy() -> None:
    code = "import rlclinic.hooks.trl, sys; print(sorted({'numpy', 'torch', 'transformers', 'trl'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------ several processes


class Store:
    """What processes of a training share, as torch's store does; ``get`` of what is not there would wait for ever."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def add(self, key: str, amount: int) -> int:
        self.held[key] = self.held.get(key, 0) + amount
        return int(self.held[key])

    def set(self, key: str, value: str) -> None:
        self.held[key] = value.encode()

    def get(self, key: str) -> bytes:
        assert key in self.held, "would wait for ever"
        return self.held[key]  # type: ignore[no-any-return]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.held for key in keys)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Store]:
    """A process group as torch has it, with a store of its own."""

    def make() -> Store:
        store, torch = Store(), ModuleType("torch.distributed.distributed_c10d")
        torch._get_default_store = lambda: store  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", torch)
        monkeypatch.setattr("rlclinic.hooks.trl._trainings", 0)
        return store

    return make


def train_together(
    folder: Path, monkeypatch: pytest.MonkeyPatch, callbacks: list[Any], steps: int = 60
) -> list[Trainer]:
    """Several processes, each at the same step: the main one is the last to log and the first to end a step."""
    trainers = []
    for rank, callback in enumerate(callbacks):
        monkeypatch.setattr("rlclinic.hooks.trl._trainings", 0)  # one count in each process
        trainer = Trainer(folder, callback, world_size=len(callbacks))
        trainer.state = State(steps, is_world_process_zero=rank == 0)
        trainer.call("on_train_begin")
        trainers.append(trainer)
    for step in range(1, steps + 1):
        for trainer in trainers:
            trainer.state.global_step = step
            trainer.call("on_step_end")
        for trainer in reversed(trainers):
            trainer.log(row(step))
        stopped = {trainer.control.should_training_stop for trainer in trainers}
        assert len(stopped) == 1, "some stop and the others wait for them for ever"
        if stopped == {True}:
            break
    for trainer in trainers:
        trainer.call("on_train_end")
    return trainers


@pytest.mark.usefixtures("quick")
def test_all_processes_stop_and_save_at_the_same_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: Callable[[], Store], capsys: pytest.CaptureFixture[str]
) -> None:
    together()
    callbacks = [RLClinicCallback(share=None, stop_at="critical", save_at="critical") for _ in range(3)]
    trainers = train_together(tmp_path, monkeypatch, callbacks)
    assert {trainer.state.global_step for trainer in trainers} == {callbacks[0].events[0].step + 1}
    assert all(trainer.control.should_save for trainer in trainers)
    assert callbacks[1].events == callbacks[2].events == []
    assert sum("the training is stopped and saved" in line for line in said(capsys)) == 1


@pytest.mark.usefixtures("quick")
def test_a_process_without_the_callback_would_hang_so_nothing_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: Callable[[], Store], capsys: pytest.CaptureFixture[str]
) -> None:
    together()
    idle = SimpleNamespace(
        **{f"on_{name}": lambda *_, **__: None for name in ("train_begin", "step_end", "log", "train_end")}
    )
    trainers = train_together(tmp_path, monkeypatch, [RLClinicCallback(share=None, stop_at="critical"), idle])
    assert trainers[0].state.global_step == 60
    assert any("only 1 of 2 processes have the callback" in line for line in said(capsys))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", ["off in one", "broken in one"])
def test_processes_that_differ_still_act_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: Callable[[], Store], how: str
) -> None:
    together()
    callbacks = [RLClinicCallback(share=None, stop_at="critical") for _ in range(2)]
    if how == "broken in one":
        callbacks[1]._broken = True  # something went wrong there before
    else:
        monkeypatch.setattr("rlclinic.hooks.trl.off", iter([False, True]).__next__)
    trainers = train_together(tmp_path, monkeypatch, callbacks)
    assert {trainer.state.global_step for trainer in trainers} in ({callbacks[0].events[0].step + 1}, {60})


@pytest.mark.usefixtures("quick")
def test_processes_that_cannot_be_told_together_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", ModuleType("no group"))
    callbacks = [RLClinicCallback(share=None, stop_at="critical") for _ in range(2)]
    trainers = train_together(tmp_path, monkeypatch, callbacks)
    assert trainers[0].state.global_step == 60
    assert any("cannot be told together" in line for line in said(capsys))


@pytest.mark.usefixtures("quick")
def test_no_store_is_touched_where_nothing_is_to_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: Callable[[], Store]
) -> None:
    store = together()
    train_together(tmp_path, monkeypatch, [RLClinicCallback() for _ in range(2)], 20)
    assert store.held == {}


# ------------------------------------------------------------------------------------------------ progress bars


@pytest.mark.usefixtures("quick")
def test_lines_go_beside_a_progress_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    bars = ModuleType("tqdm")
    bars.tqdm = SimpleNamespace(write=lambda line, file: written.append(line))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", bars)
    Trainer(tmp_path, RLClinicCallback(share=None)).train()
    assert written[0].startswith("rlclinic: verifier_broken (critical)")


@pytest.mark.usefixtures("quick")
def test_a_closed_console_is_borne(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w", encoding="utf-8") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
    Trainer(tmp_path, RLClinicCallback(share=None)).train()
