"""Hooks in trainers: nothing unless asked, the trainer as it was, and what is handed over is true."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlclinic
from rlclinic.cli import cli
from rlclinic.hooks import asked, lightning, slime, verl

HOOKS = ("verl", "slime", "lightning", "asked")


class Taken:
    """Stands in for the Monitor: keeps what it is given, or breaks."""

    made: list[Taken]
    broken: str = ""

    def __init__(self, **options: Any) -> None:
        if self.broken == "made":
            raise ValueError("cannot")
        self.options, self.rows, self.finished = options, list[tuple[dict[str, float], float]](), 0
        self.should_stop, self.saved = False, list[tuple[float, str]]()
        type(self).made.append(self)

    def log(self, metrics: Mapping[str, Any], step: float | None = None) -> list[Any]:
        if self.broken == "log":
            raise RuntimeError("\x1b[31mbroken\n" + "x" * 10_000)
        self.rows.append((dict(metrics), -1.0 if step is None else step))
        return []

    def checkpoint(self, step: float, path: str = "") -> None:
        self.saved.append((step, path))

    def finish(self) -> list[Any]:
        if self.broken == "finish":
            raise RuntimeError("broken")
        self.finished += 1
        return []


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Taken]]:
    for name in ("RLCLINIC", "RLCLINIC_STATE", "RLCLINIC_NAME", "RLCLINIC_STOP_AT", "RLCLINIC_ALERT"):
        monkeypatch.delenv(name, raising=False)
    kind = type("Mine", (Taken,), {"made": []})
    monkeypatch.setitem(rlclinic.__dict__, "Monitor", kind)
    monkeypatch.setattr(slime._Watch, "monitor", None)
    monkeypatch.setattr(slime._Watch, "failed", False)
    return kind


# What trainers load by themselves costs nothing and does nothing.


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_loads_the_standard_library_only(name: str) -> None:
    code = f"import sys; import rlclinic.hooks.{name}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {one.split(".")[0] for one in done.stdout.split()} - set(sys.stdlib_module_names)
    assert {one for one in found if not one.startswith("_")} == {"rlclinic"}
    assert "rlclinic.live" not in done.stdout


def test_entry_points_are_of_the_groups_that_the_trainers_read() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    points = dict(line.split(" = ") for line in text.splitlines() if line.startswith("rlclinic = "))
    assert points
    for group, target in (
        ("verl.plugins", "rlclinic.hooks.verl"),
        ("lightning.pytorch.callbacks_factory", "rlclinic.hooks.lightning:callbacks"),
        ("pytorch_lightning.callbacks_factory", "rlclinic.hooks.lightning:callbacks_of_pytorch_lightning"),
    ):
        assert f'[project.entry-points."{group}"]\nrlclinic = "{target}"\n' in text
        module, _, name = target.partition(":")
        loaded = importlib.import_module(module)
        assert not name or callable(getattr(loaded, name))


def test_the_environment_is_taken_at_its_word_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value, on, off in (("1", True, False), ("0", False, True), ("", False, False), ("true", False, False)):
        monkeypatch.setenv("RLCLINIC", value)
        assert (asked.on(), asked.off()) == (on, off)
    monkeypatch.setenv("RLCLINIC_STATE", "kept")
    monkeypatch.setenv("RLCLINIC_STOP_AT", "\x1b[1mnever")
    assert asked.options() == {"state": "kept"}
    said = capsys.readouterr().err
    assert "RLCLINIC_STOP_AT" in said
    assert "\x1b" not in said
    assert said.count("\n") == 1
    monkeypatch.setenv("RLCLINIC_STOP_AT", "Critical")
    assert asked.options()["stop_at"] == "critical"


def test_a_stream_that_is_closed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    asked.say("nobody hears this")


# verl


def a_tracking() -> type:
    """A class with the methods of verl's ``Tracking``, fresh each time."""

    class Tracking:
        """verl's own words."""

        def __init__(
            self, project_name: str, experiment_name: str, default_backend: Any = "console", config: Any = None
        ):
            self.logger: list[tuple[Any, Any, Any]] = []
            self.ended: list[int] = []

        def log(self, data: Any, step: Any, backend: Any = None) -> str:
            """Log."""
            if data == "bad":
                raise KeyError("verl's own error")
            self.logger.append((data, step, backend))
            return "told"

        def finish(self, exit_code: int = 0) -> None:
            self.ended.append(exit_code)

    return Tracking


def settings(**trainer: Any) -> dict[str, Any]:
    return {
        "trainer": {"total_training_steps": 60, **trainer},
        "actor_rollout_ref": {"actor": {"optim": {"total_training_steps": 240}}, "rollout": {"n": 8}},
    }


def test_verl_is_watched_after_its_own_loggers(taken: type[Taken]) -> None:
    tracking = a_tracking()
    assert verl.wrap(tracking)
    one = tracking("project", "trial", ["console"], config=settings(rollout_data_dir="answers"))
    assert one.log({"critic/score/mean": 0.5}, 1) == "told"
    assert one.log(data={"critic/score/mean": 0.6}, step=2, backend=["console"]) == "told"
    assert [row[1:] for row in one.logger] == [(1, None), (2, ["console"])]
    (mine,) = taken.made
    assert mine.rows == [({"critic/score/mean": 0.5}, 1), ({"critic/score/mean": 0.6}, 2)]
    assert mine.options["framework"] == "verl"
    assert mine.options["planned_steps"] == 60
    assert mine.options["config"] == settings(rollout_data_dir="answers")
    assert mine.options["rollouts"] == "answers"
    assert mine.options["name"] == "trial"
    assert mine.options["rank"] == 0, "the driver may run on a node whose launcher gave it another rank"
    one.finish(exit_code=3)
    assert mine.finished == 1
    assert one.ended == [3]


def test_wrapping_verl_again_changes_nothing_and_its_words_stay(taken: type[Taken]) -> None:
    tracking = a_tracking()
    plain = a_tracking()
    verl.wrap(tracking)
    first = (tracking.__init__, tracking.log, tracking.finish)
    verl.wrap(tracking)
    assert (tracking.__init__, tracking.log, tracking.finish) == first
    assert tracking.log.__doc__ == plain.log.__doc__
    assert tracking.__doc__ == plain.__doc__
    assert inspect.signature(tracking.log) == inspect.signature(plain.log)
    one = tracking("p", "e", config=settings())
    one.log({"a": 1.0}, 1)
    assert len(taken.made) == 1
    assert len(taken.made[0].rows) == 1


def test_errors_of_verl_stay_its_own(taken: type[Taken]) -> None:
    tracking = a_tracking()
    verl.wrap(tracking)
    one = tracking("p", "e", config=settings())
    with pytest.raises(KeyError, match="verl's own error"):
        one.log("bad", 1)
    with pytest.raises(TypeError):
        one.log()
    with pytest.raises(TypeError):
        tracking()
    one.log(None, 1)
    assert taken.made[0].rows == []


@pytest.mark.parametrize("broken", ["made", "log", "finish"])
def test_nothing_of_ours_reaches_verl(taken: type[Taken], broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    taken.broken = broken
    tracking = a_tracking()
    verl.wrap(tracking)
    one = tracking("p", "e", config=settings())
    for step in range(3):
        assert one.log({"a": 1.0}, step) == "told"
    one.finish()
    assert len(one.logger) == 3
    assert one.ended == [0]
    said = capsys.readouterr().err
    assert said
    assert "\x1b" not in said
    assert all(len(line) < 700 for line in said.splitlines())


@pytest.mark.parametrize("config", [None, {}, {"trainer": {}, "model": {}, "optim": {}}, "text", [1]])
def test_what_is_no_rl_run_of_verl_is_left_alone(taken: type[Taken], config: object) -> None:
    tracking = a_tracking()
    verl.wrap(tracking)
    one = tracking("p", "e", config=config)
    one.log({"train/loss": 1.0}, 1)
    one.finish()
    assert taken.made == []


def test_verl_is_not_watched_when_all_is_off(taken: type[Taken], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCLINIC", "0")
    tracking = a_tracking()
    verl.wrap(tracking)
    tracking("p", "e", config=settings()).log({"a": 1.0}, 1)
    assert taken.made == []


def test_a_tracking_that_is_dropped_has_its_last_look(taken: type[Taken]) -> None:
    tracking = a_tracking()
    del tracking.finish  # type: ignore[attr-defined]  # before verl 0.9
    verl.wrap(tracking)
    one = tracking("p", "e", config=settings())
    one.log({"a": 1.0}, 1)
    assert taken.made[0].finished == 0
    del one
    assert taken.made[0].finished == 1


def test_a_class_without_room_for_a_monitor_goes_on(taken: type[Taken], capsys: pytest.CaptureFixture[str]) -> None:
    class Tracking:
        __slots__ = ("rows",)

        def __init__(self, project_name: str, experiment_name: str, config: Any = None) -> None:
            self.rows = 0

        def log(self, data: Any, step: Any, backend: Any = None) -> None:
            self.rows += 1

    verl.wrap(Tracking)
    one = Tracking("p", "e", config=settings())
    one.log({}, 1)
    assert one.rows == 1


def test_saved_states_of_verl_are_told_where_they_are_there(taken: type[Taken], tmp_path: Path) -> None:
    tracking = a_tracking()
    verl.wrap(tracking)
    one = tracking("p", "e", config=settings(default_local_dir=str(tmp_path), save_freq=10))
    (tmp_path / "global_step_10").mkdir()
    for step in (9, 10, 20):
        one.log({"a": 1.0}, step)
    assert taken.made[0].saved == [(10, str(tmp_path / "global_step_10"))]


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        (settings(), 60),
        (settings(total_training_steps=None), 240),
        (settings(total_training_steps=None, use_v1=True, v1={"trainer_mode": "sync", "sync": {}}), 240),
        (
            settings(
                total_training_steps=None,
                use_v1=True,
                v1={"trainer_mode": "separate_async", "separate_async": {"parameter_sync_step": 4}},
            ),
            60,
        ),
        ({**settings(), "async_training": {}}, None),
        ({"actor_rollout_ref": {"actor": {"optim": {"total_training_steps": -1}}}}, None),
        ({"trainer": "odd", "actor_rollout_ref": None}, None),
    ],
)
def test_the_length_of_a_run_of_verl(config: dict[str, Any], steps: int | None) -> None:
    assert verl.planned(config) == steps


def test_importing_verl_loads_the_plug_in(tmp_path: Path) -> None:
    """In a process of its own: a package with verl's shape, which loads us in the middle of its own import."""
    package = tmp_path / "verl"
    (package / "utils").mkdir(parents=True)
    (package / "utils" / "__init__.py").write_text("")
    (package / "utils" / "tracking.py").write_text(
        "class Tracking:\n"
        "    def __init__(self, project_name, experiment_name, default_backend='console', config=None):\n"
        "        self.rows = []\n"
        "    def log(self, data, step, backend=None):\n"
        "        self.rows.append(step)\n"
    )
    (package / "__init__.py").write_text(
        "import importlib, os\n"
        "for name in os.environ['VERL_USE_EXTERNAL_MODULES'].split(','):\n"
        "    importlib.import_module(name)\n"
        "__version__ = '0.8.0'\n"
    )
    code = """
import json, math, sys, verl
from verl.utils.tracking import Tracking
config = {"actor_rollout_ref": {"rollout": {"n": 8}}, "trainer": {"total_training_steps": 80}}
one = Tracking("p", "trial", config=config)
for step in range(1, 61):
    one.log({"critic/score/mean": 0.5, "actor/grad_norm": math.nan if step > 30 else 0.1, "actor/pg_loss": 0.0,
             "actor/entropy": 0.5 + 0.01 * (step % 7), "response_length/mean": 300.0 + step % 5}, step)
held = getattr(one, "_rlclinic", None)
print(json.dumps([len(one.rows), None if held is None else str(held.monitor.diagnosis.run.framework.version)]))
"""
    results = {}
    for value in ("1", "0", ""):
        environment = {
            "PYTHONPATH": f"{tmp_path}:{Path(rlclinic.__file__).parents[1]}",
            "VERL_USE_EXTERNAL_MODULES": "rlclinic.hooks.verl",
            "RLCLINIC": value,
            "SLURM_PROCID": "3",
            "OPENBLAS_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True, cwd=tmp_path
        )
        results[value] = (json.loads(done.stdout), done.stderr)
    assert results["1"][0] == [60, "0.8.0"]
    assert "nan_inf" in results["1"][1]
    assert "Traceback" not in results["1"][1]
    assert results["0"] == ([60, None], "") == results[""]


def test_installing_without_verl_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "verl.utils.tracking", None)
    assert verl.install() is False
    assert "verl is not watched" in capsys.readouterr().err


# slime


class Status(Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"


def answer(group: int, reward: Any, length: int = 10, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{
            "group_index": group, "reward": reward, "response_length": length, "loss_mask": None,
            "status": Status.COMPLETED, "response": "x", **more,
        }
    )  # fmt: skip


def arguments(**more: Any) -> SimpleNamespace:
    given = {
        "reward_key": None, "advantage_estimator": "grpo", "custom_reward_post_process_path": None, "num_rollout": 3,
        "n_samples_per_prompt": 2, "sglang": object(), **more,
    }  # fmt: skip
    return SimpleNamespace(**given)


ANSWERS = [
    answer(0, 1.0, 10), answer(0, 1.0, 20, loss_mask=[1] * 12 + [0] * 8), answer(1, 0.0, 30, status=Status.TRUNCATED),
    answer(1, 1.0, 40), answer(2, 0.0), answer(2, 0, 10), answer(3, 0.0), answer(3, 0.0),
]  # fmt: skip


def test_answers_of_slime_under_its_own_keys() -> None:
    found = slime.of_training(arguments(), ANSWERS)
    assert found == {
        "rollout/response_len/mean": (10 + 12 + 30 + 40 + 4 * 10) / 8,
        "rollout/response_len/median": 10.0,
        "rollout/response_len/max": 40.0,
        "rollout/response_len/min": 10.0,
        "rollout/truncated_ratio": 1 / 8,
        "rollout/repetition_frac": 0.0,
        "rollout/raw_reward": 3 / 8,
        "rollout/zero_std/count_1.0": 1.0,
        "rollout/zero_std/count_0.0": 2.0,
    }


def test_what_slime_would_log_otherwise_is_left_out() -> None:
    assert not any("zero_std" in key for key in slime.of_training(arguments(advantage_estimator="ppo"), ANSWERS))
    later = slime.of_training(arguments(custom_reward_post_process_path="mine.function"), ANSWERS)
    assert "rollout/raw_reward" not in later
    assert later["reward.mean"] == 3 / 8
    lacking = slime.of_training(arguments(), [*ANSWERS, answer(4, None)])
    assert "rollout/raw_reward" not in lacking
    assert not any("zero_std" in key for key in lacking)
    several = [answer(0, {"score": 1.0, "format": 0.0}), answer(0, {"score": 0.5, "format": 0.0})]
    assert slime.of_training(arguments(reward_key="score"), several)["rollout/raw_reward"] == 0.75
    assert "rollout/raw_reward" not in slime.of_training(arguments(), several)
    assert "rollout/raw_reward" not in slime.of_training(arguments(reward_key="other"), several)
    assert slime.of_training(arguments(), []) == {}


def test_a_long_answer_that_repeats_is_counted_as_slime_counts_it() -> None:
    samples = [answer(0, 1.0, response="again and " * 2_000), answer(0, 0.0, response="again and " * 900)]
    assert slime.of_training(arguments(), samples)["rollout/repetition_frac"] == 0.5


def test_evaluations_of_slime() -> None:
    data = {
        "aime": {"rewards": [1, 0, 0, 1], "truncated": [True, False, False, False], "samples": ANSWERS[:2]},
        "odd": {"rewards": [1, None]},
        "none": {"rewards": []},
    }
    found = slime.of_evaluation(data)
    assert found["eval/aime"] == 0.5
    assert found["eval/aime-truncated_ratio"] == 0.25
    assert found["eval/aime/response_len/mean"] == 11.0
    assert not any(key.startswith(("eval/odd", "eval/none")) for key in found)


def test_slime_goes_on_with_its_own_logging(taken: type[Taken]) -> None:
    given = arguments()
    assert slime.log_rollout(0, given, ANSWERS, {"extra": 1}, 12.5) is False
    assert slime.log_eval(0, given, {"aime": {"rewards": [1.0]}}, None) is False
    assert slime.log_rollout(1, given, ANSWERS, None, 12.5, weight_version=3) is False
    (mine,) = taken.made
    assert [step for _, step in mine.rows] == [0, 0, 1]
    assert mine.finished == 0
    assert mine.options["framework"] == "slime"
    assert mine.options["rank"] == 0
    assert mine.options["config"]["n_samples_per_prompt"] == 2
    assert "sglang" not in mine.options["config"]
    slime.log_rollout(2, given, ANSWERS, None, 12.5)
    assert mine.finished == 1, "Ray ends the process without a word"


@pytest.mark.parametrize("broken", ["made", "log", "finish"])
def test_nothing_of_ours_reaches_slime(taken: type[Taken], broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    taken.broken = broken
    assert [slime.log_rollout(step, arguments(), ANSWERS, None, 1.0) for step in range(4)] == [False] * 4
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("samples", [[object()], [answer(0, 1.0, status=None)], [answer(0, 1.0, response=None)], 5])
def test_samples_of_another_shape_are_no_error(
    taken: type[Taken], samples: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slime.log_rollout(0, arguments(), samples, None, 1.0) is False
    assert slime.log_eval(0, arguments(), samples, None) is False
    assert capsys.readouterr().err.count("\n") == 1


def test_slime_is_not_watched_when_all_is_off(taken: type[Taken], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCLINIC", "0")
    assert slime.log_rollout(0, arguments(), ANSWERS, None, 1.0) is False
    assert taken.made == []


def test_rows_of_the_hook_are_read_as_those_of_slime(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real Monitor: keys are translated, an evaluation that comes one rollout late is no restart."""
    monkeypatch.setattr(slime._Watch, "monitor", None)
    monkeypatch.setattr(slime._Watch, "failed", False)
    monkeypatch.delenv("RLCLINIC", raising=False)
    given = arguments(num_rollout=15, rollout_batch_size=4)
    for step in range(15):
        samples = [
            answer(group, float((group + i + step) % 3 == 0), 100 + step + i) for group in range(4) for i in (0, 1)
        ]
        slime.log_rollout(step, given, samples, None, 1.0)
        if step % 5 == 1:
            slime.log_eval(step - 1, given, {"aime": {"rewards": [1.0, 0.0]}}, None)
    assert "metric_not_logged" not in {one.check for one in slime._Watch.monitor.diagnosis.findings}
    run = slime._Watch.monitor.diagnosis.run
    assert run.framework.name == "slime"
    assert run.number("group_size") == 2
    assert list(run.columns["reward.mean"].steps) == list(range(15))
    assert run.planned_steps == 15
    assert not run.seams
    assert list(run.evaluations["eval/aime"].steps) == [0, 5, 10]


# Lightning


class Callback:
    """What Lightning's Callback is to us: a class to inherit from."""

    @property
    def state_key(self) -> str:
        return type(self).__qualname__


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        module = types.ModuleType(name)
        module.Callback = Callback  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    yield
    for name in ("RLClinicCallback", "RLClinicCallbackPL"):
        vars(lightning).pop(name, None)


class Trainer:
    """The parts of Lightning's Trainer that a callback reads."""

    def __init__(self, rank: int = 0, size: int = 1, every: int = 2) -> None:
        self.is_global_zero, self.world_size, self.log_every_n_steps = rank == 0, size, every
        self.fast_dev_run = self.sanity_checking = self.should_stop = self.accumulates = False
        self.max_steps, self.estimated_stepping_batches = -1, 40
        self._logger_connector = SimpleNamespace(_logged_metrics={}, _callback_metrics={})
        self.batch_metrics: dict[str, Any] | None = None
        loop = SimpleNamespace(_batches_that_stepped=0)
        self.fit_loop = SimpleNamespace(epoch_loop=loop, _should_accumulate=lambda: self.accumulates)

    @property
    def logged_metrics(self) -> dict[str, Any]:
        """Outside of a batch this would make all processes wait for each other."""
        assert self.batch_metrics is not None
        self._logger_connector._logged_metrics |= {key: copy(value) for key, value in self.batch_metrics.items()}
        return self._logger_connector._logged_metrics

    @property
    def callback_metrics(self) -> dict[str, Any]:
        assert self.batch_metrics is not None
        return self._logger_connector._callback_metrics

    def batch(self, callback: Any, evaluation: Mapping[str, Any] | None = None, **metrics: Any) -> None:
        self.batch_metrics = metrics
        self._logger_connector._callback_metrics |= metrics
        callback.on_train_batch_end(self, None, None, None, 0)
        _ = self.logged_metrics
        self.batch_metrics = None
        if evaluation is not None:
            self.evaluate(callback, **evaluation)
        self.fit_loop.epoch_loop._batches_that_stepped += 1

    def evaluate(self, callback: Any, **metrics: Any) -> None:
        callback.on_validation_start(self, None)
        self._logger_connector._logged_metrics |= metrics
        callback.on_validation_end(self, None)

    def end_epoch(self, callback: Any, **metrics: Any) -> None:
        callback.on_train_epoch_end(self, None)
        self._logger_connector._logged_metrics |= metrics


class Store:
    """What processes find each other by."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def add(self, key: str, number: int) -> int:
        self.held[key] = self.held.get(key, 0) + number
        return int(self.held[key])

    def set(self, key: str, value: str) -> None:
        self.held[key] = value.encode()

    def get(self, key: str) -> bytes:
        return bytes(self.held[key])

    def check(self, keys: list[str]) -> bool:
        return all(key in self.held for key in keys)


MODULE = SimpleNamespace(hparams={"lr": 1e-6, "num_generations": 8})


class Value:
    """A tensor of one element: another object at each step."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


def test_the_factories_give_nothing_unless_asked(
    taken: type[Taken], packages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("", "0", "yes"):
        monkeypatch.setenv("RLCLINIC", value)
        assert lightning.callbacks() == [] == lightning.callbacks_of_pytorch_lightning()
    monkeypatch.setenv("RLCLINIC", "1")
    (one,), (other,) = lightning.callbacks(), lightning.callbacks_of_pytorch_lightning()
    assert isinstance(one, Callback)
    assert one.state_key == "RLClinicCallback"
    assert isinstance(other, Callback)
    assert other.state_key == "RLClinicCallbackPL"


def test_a_factory_without_lightning_is_no_error(
    taken: type[Taken], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RLCLINIC", "1")
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    assert lightning.callbacks() == [] == lightning.callbacks_of_pytorch_lightning()
    assert "Lightning is not watched" in capsys.readouterr().err


def test_a_callback_survives_being_spawned(taken: type[Taken], packages: None) -> None:
    one = lightning.RLClinicCallback(stop_at="critical")
    again = pickle.loads(pickle.dumps(one))
    assert type(again) is type(one)
    assert again._options["stop_at"] == "critical"
    with pytest.raises(ValueError, match="stop_at"):
        lightning.RLClinicCallback(stop_at="fatal")
    with pytest.raises(AttributeError):
        _ = lightning.Other


def test_rows_of_lightning_hold_what_is_new(taken: type[Taken], packages: None) -> None:
    callback, trainer = lightning.RLClinicCallback(), Trainer()
    trainer.sanity_checking = True
    trainer.evaluate(callback, **{"val/score": Value(0.1)})
    trainer.sanity_checking = False
    trainer._logger_connector._logged_metrics.clear()
    callback.on_train_start(trainer, MODULE)
    for step in range(4):
        callback.on_train_epoch_start(trainer, MODULE)
        score = {"val/score": Value(0.3)} if step < 2 else None
        trainer.batch(callback, score, reward=Value(step / 10), note="text")
        trainer.end_epoch(callback, **({"epoch_reward": Value(0.7)} if step == 3 else {}))
    callback.on_train_end(trainer, MODULE)
    callback.on_exception(trainer, MODULE, KeyboardInterrupt())
    (mine,) = taken.made
    assert [({key: float(value) for key, value in row.items()}, step) for row, step in mine.rows] == [
        ({"val/score": 0.3}, 0),
        ({"reward": 0.1}, 1),
        ({"val/score": 0.3}, 1),
        ({"reward": 0.3}, 3),
        ({"epoch_reward": 0.7}, 3),
    ]
    assert mine.options["config"] == MODULE.hparams
    assert mine.options["planned_steps"] == 40
    assert mine.finished == 1


def test_a_metric_of_steps_and_epochs_is_one_metric(taken: type[Taken], packages: None) -> None:
    callback, trainer = lightning.RLClinicCallback(), Trainer(every=1)
    callback.on_train_start(trainer, MODULE)
    trainer._logger_connector._callback_metrics |= {"reward": Value(0.0), "env_step": Value(0.0)}
    trainer.batch(callback, reward_step=Value(0.1), env_step=Value(5.0))
    trainer.end_epoch(callback, reward_epoch=Value(0.9))
    callback.on_train_epoch_start(trainer, MODULE)
    ((row, step),) = taken.made[0].rows
    assert ({key: float(value) for key, value in row.items()}, step) == ({"reward": 0.1, "env_step": 5.0}, 0)


@pytest.mark.parametrize("change", [{"is_global_zero": False}, {"fast_dev_run": True}])
def test_lightning_is_watched_in_one_process_of_a_real_training(
    taken: type[Taken], packages: None, change: dict[str, bool]
) -> None:
    callback, trainer = lightning.RLClinicCallback(), Trainer(every=1)
    vars(trainer).update(change)
    callback.on_train_start(trainer, MODULE)
    trainer.batch(callback, reward=Value(0.1))
    trainer.evaluate(callback, score=Value(0.1))
    callback.on_train_end(trainer, MODULE)
    assert taken.made == []
    assert not trainer.should_stop


def test_no_row_while_gradients_are_gathered_or_logging_is_off(taken: type[Taken], packages: None) -> None:
    callback, trainer = lightning.RLClinicCallback(), Trainer(every=1)
    callback.on_train_start(trainer, MODULE)
    trainer.accumulates = True
    trainer.batch(callback, reward=Value(0.1))
    trainer.accumulates, trainer.log_every_n_steps = False, 0
    trainer.batch(callback, reward=Value(0.1))
    assert taken.made[0].rows == []


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    held = Store()
    module = types.ModuleType("torch.distributed.distributed_c10d")
    module._get_default_store = lambda: held  # type: ignore[attr-defined]
    for name in ("torch", "torch.distributed"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return held


def a_crew(monkeypatch: pytest.MonkeyPatch, options: tuple[dict[str, Any], ...]) -> list[tuple[Any, Trainer]]:
    crew = [(lightning.RLClinicCallback(**given), Trainer(rank, len(options))) for rank, given in enumerate(options)]
    for callback, trainer in crew:
        monkeypatch.setattr(lightning, "_trainings", 0)  # each is a process of its own
        callback.on_train_start(trainer, MODULE)
    return crew


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("breaks", [False, True])
def test_all_processes_stop_at_one_step(
    taken: type[Taken], packages: None, store: Store, monkeypatch: pytest.MonkeyPatch, order: int, breaks: bool
) -> None:
    crew = a_crew(monkeypatch, ({"stop_at": "critical"}, {"stop_at": "critical"}))
    stopped: list[list[bool]] = []
    for step in range(5):
        taken.made[0].should_stop = step == 2
        for callback, trainer in crew[::order]:
            trainer.batch(callback, reward=Value(0.1))
        if step == 2 and breaks:
            taken.made[0].broken = "log"  # the order stands
        stopped.append([trainer.should_stop for _, trainer in crew])
    assert stopped == [[False] * 2] * 3 + [[True] * 2] * 2


def test_a_process_does_not_stop_alone(
    taken: type[Taken],
    packages: None,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    crew = a_crew(monkeypatch, ({"stop_at": "critical"}, {}))
    for _ in range(4):
        taken.made[0].should_stop = True
        for callback, trainer in crew:
            trainer.batch(callback, reward=Value(0.1))
    assert not any(trainer.should_stop for _, trainer in crew)
    assert "only 1 of 2 processes" in capsys.readouterr().err


def test_processes_without_a_store_train_on(
    taken: type[Taken], packages: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", None)
    ((callback, trainer), _) = a_crew(monkeypatch, ({"stop_at": "critical"}, {"stop_at": "critical"}))
    taken.made[0].should_stop = True
    trainer.batch(callback, reward=Value(0.1))
    assert not trainer.should_stop
    assert "cannot be stopped together" in capsys.readouterr().err


def test_what_is_chosen_in_code_wins(taken: type[Taken], packages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCLINIC_STATE", "kept")
    monkeypatch.setenv("RLCLINIC_NAME", "night")
    callback = lightning.RLClinicCallback(share=None, knobs={"group_size": 4}, state="mine")
    callback.on_train_start(Trainer(), MODULE)
    assert taken.made[0].options == {
        "share": None, "knobs": {"group_size": 4}, "state": "mine", "name": "night", "planned_steps": 40, "rank": 0,
        "config": MODULE.hparams,
    }  # fmt: skip


def test_a_stop_is_a_wish_of_the_user(taken: type[Taken], packages: None) -> None:
    for options, stops in (({}, False), ({"stop_at": "critical"}, True)):
        callback, trainer = lightning.RLClinicCallback(**options), Trainer(every=1)
        callback.on_train_start(trainer, MODULE)
        taken.made[-1].should_stop = True
        trainer.batch(callback, reward=Value(0.1))
        assert trainer.should_stop is stops


@pytest.mark.parametrize("broken", ["made", "log", "finish"])
def test_nothing_of_ours_reaches_lightning(
    taken: type[Taken], packages: None, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    taken.broken = broken
    callback, trainer = lightning.RLClinicCallback(), Trainer(every=1)
    callback.on_train_start(trainer, MODULE)
    for _ in range(3):
        trainer.batch(callback, reward=Value(0.1))
    callback.on_train_end(trainer, MODULE)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("lacking", ["fit_loop", "_logger_connector", "log_every_n_steps", "max_steps", "world_size"])
def test_a_trainer_of_another_version_goes_on(taken: type[Taken], packages: None, lacking: str) -> None:
    callback, trainer = lightning.RLClinicCallback(stop_at="warning"), Trainer(every=1)
    delattr(trainer, lacking)
    calls: tuple[Callable[[], None], ...] = (
        lambda: callback.on_train_start(trainer, MODULE),
        lambda: callback.on_train_batch_end(trainer, MODULE, None, None, 0),
        lambda: callback.on_train_batch_end(trainer, MODULE, None, None, 0, 0),
        lambda: callback.on_validation_start(trainer, MODULE),
        lambda: callback.on_validation_end(trainer, MODULE),
        lambda: callback.on_train_epoch_start(trainer, MODULE),
        lambda: callback.on_train_epoch_end(trainer, MODULE),
        lambda: callback.on_train_end(trainer, MODULE),
    )
    for call in calls:
        call()
    assert not trainer.should_stop


# The page


def test_what_the_page_names_is_there() -> None:
    home = Path(__file__).parents[1]
    page = (home / "docs" / "live.md").read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in (home / "src" / "rlclinic").rglob("*.py"))
    for name in set(re.findall(r"\bRLCLINIC(?:_[A-Z_]+)?\b", page)):
        assert name in source, name
    for module, name in set(re.findall(r"rlclinic\.hooks\.(\w+)\.(log_\w+)", page)):
        assert callable(getattr(importlib.import_module(f"rlclinic.hooks.{module}"), name))
    for name in set(re.findall(r"rlclinic\.([a-zA-Z_]+)\(", page)):
        assert callable(getattr(rlclinic, name)), name
    for name in set(re.findall(r"monitor\.([a-z_]+)\(", page)):
        assert callable(getattr(rlclinic.Monitor, name)), name
    options = set(inspect.signature(rlclinic.Monitor).parameters)
    table = page.partition("| option |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"(?m)^\|([^|]*)\|", table)))) <= options
    for command, rest in re.findall(r"(?m)rlclinic (watch|serve)\b([^`\n]*)", page):
        known = {flag for one in cli.commands[command].params for flag in one.opts}
        assert set(re.findall(r"(?<= )--[a-z-]+", rest)) <= known, rest
