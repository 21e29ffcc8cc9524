"""The callback in real trainings of TRL's GRPOTrainer: what it says in the end is what a diagnosis of the files says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("torch")

import tiny

from rlclinic import Diagnosis, Severity, diagnose, read, render
from rlclinic.hooks.trl import RLClinicCallback

BROKEN = 30
"""Step from which the reward of the sick run is 0."""
PLANNED = 100


def told(diagnosis: Diagnosis) -> dict[str, Any]:
    """All that is said of a run, without the names of the files it was read from."""
    form = json.loads(render(diagnosis, "json"))
    return {part: form[part] for part in ("verdict", "findings", "checks", "notes", "to_log") if part in form}


def by_command(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "rlclinic", "diagnose", str(folder), "--format", "json"], capture_output=True, text=True
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def marks(diagnosis: Diagnosis) -> list[Any]:
    return [(one.check, one.severity, one.onset, one.says) for one in diagnosis.findings]


def loud(diagnosis: Diagnosis) -> dict[str, Severity]:
    return {one.check: one.severity for one in diagnosis.findings if one.severity and one.severity > Severity.INFO}


class Ended:
    """A training and what its callback has told."""

    def __init__(self, folder: Path, steps: int = 60, **how: Any) -> None:
        options = how.pop("callback", {})
        self.folder, self.callback = folder, RLClinicCallback(share=None, **options)
        self.trainer = tiny.train(folder, steps=steps, callbacks=[self.callback], **how)
        self.steps = self.trainer.state.global_step
        assert self.callback.diagnosis is not None
        self.diagnosis: Diagnosis = self.callback.diagnosis


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("healthy")
    return Ended(folder, log_completions=True, num_completions_to_print=0, logging_steps=2, callback={"report": True})


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("sick")
    return Ended(folder, steps=PLANNED, broken_from=BROKEN, callback={"stop_at": "critical", "save_at": "critical"})


def test_a_healthy_run_is_left_alone(healthy: Ended) -> None:
    assert healthy.callback.events == []
    assert healthy.steps == 60
    assert loud(healthy.diagnosis) == {}
    assert healthy.callback.report == healthy.folder / "rlclinic.html"


def test_a_sick_run_is_flagged_and_stopped_while_it_goes_on(sick: Ended) -> None:
    first = sick.callback.events[0]
    assert (first.check, first.severity) == ("verifier_broken", Severity.CRITICAL)
    assert first.onset is not None
    assert first.onset.step == BROKEN + 1
    assert BROKEN < first.step < BROKEN + 30
    assert sick.steps == first.step, "stopped at the step at which it was told"
    assert (sick.folder / f"checkpoint-{sick.steps}").is_dir(), "and saved"


@pytest.mark.parametrize("which", ["healthy", "sick"])
def test_the_last_word_is_that_of_the_files(which: str, request: pytest.FixtureRequest) -> None:
    run: Ended = request.getfixturevalue(which)
    within = told(run.diagnosis)
    assert told(diagnose(read([run.folder]))) == within
    state, kept = run.folder / "trainer_state.json", run.folder / "rlclinic"
    answers = [run.folder / "completions"] if which == "healthy" else []
    alone = read([state], framework="trl@1.16.0", config=[kept / "config.json"], rollouts=answers)
    assert [one["check"] for one in told(diagnose(alone))["findings"]] == [one["check"] for one in within["findings"]]
    assert told(diagnose(alone))["findings"] == within["findings"]


def test_the_command_says_the_same(sick: Ended) -> None:
    said = by_command(sick.folder)
    within = told(sick.diagnosis)
    assert said["verdict"] == within["verdict"]
    assert said["findings"] == within["findings"]


def test_what_is_known_of_the_run(healthy: Ended) -> None:
    run = healthy.diagnosis.run
    assert run.framework is not None
    assert (run.framework.name, run.framework.version) == ("trl", "1.16.0")
    assert run.planned_steps == 60
    assert run.knobs["group_size"].value == 8
    assert run.rollouts, "the answers that the trainer saves are read"
    kept = (healthy.folder / "rlclinic" / "config.json").read_text()
    assert "token" not in json.loads(kept)
    assert "HUB_TOKEN" not in kept


def test_a_resumed_run_hears_nothing_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    how: dict[str, Any] = {"steps": 70, "broken_from": 20, "save_strategy": "steps", "save_steps": 20}
    before = RLClinicCallback(share=None)
    tiny.train(tmp_path, callbacks=[before], fails_at=55, **how)
    assert "verifier_broken" in {one.check for one in before.events}
    assert "goes on" not in capsys.readouterr().err
    assert before.monitor is not None
    before.monitor.finish()  # as at the end of that process
    after = RLClinicCallback(share=None)
    tiny.train(tmp_path, callbacks=[after], resume=str(tmp_path / "checkpoint-40"), **how)
    said = {one.check for one in before.events if one.kind == "opened"}
    again = [one for one in after.events if one.kind == "opened" and one.check in said]
    assert again == []
    assert "goes on from step 40; found before: " in capsys.readouterr().err
    assert after.diagnosis is not None
    state = read([tmp_path / "trainer_state.json"], framework="trl@1.16.0", config=[tmp_path / "rlclinic/config.json"])
    for files in (state, read([tmp_path])):
        assert told(diagnose(files))["verdict"] == told(after.diagnosis)["verdict"]
        assert marks(diagnose(files)) == marks(after.diagnosis)


def test_a_callback_that_breaks_does_not_stop_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> None:
        raise RuntimeError("broken within")

    monkeypatch.setattr("rlclinic.live.monitor.diagnose", breaks)
    monkeypatch.setattr("rlclinic.live.monitor.Monitor.checkpoint", breaks)
    trainer = tiny.train(
        tmp_path, steps=14, save_strategy="steps", save_steps=12, callbacks=[RLClinicCallback(share=None)]
    )
    assert trainer.state.global_step == 14
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rlclinic: ")]
    assert any("broken within" in line for line in said)
    assert len(said) <= 3, said


def test_it_is_a_callback_like_others(tmp_path: Path) -> None:
    from transformers import TrainerCallback

    callback = RLClinicCallback()
    assert isinstance(callback, TrainerCallback)
    trainer = tiny.train(tmp_path, steps=1, callbacks=[RLClinicCallback])
    assert trainer.pop_callback(RLClinicCallback) is not None
    assert trainer.pop_callback(RLClinicCallback) is None
    trainer.add_callback(callback)
    trainer.remove_callback(callback)


def test_two_processes_speak_once_and_stop_together(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"steps": PLANNED, "broken_from": 20, "batch": 16, "callback": {"stop_at": "critical", "share": None}}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
             "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}  # fmt: skip
    source = str(Path(__file__).parents[2] / "src")
    started = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("tiny.py")), str(tmp_path), json.dumps(options)],
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": source},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        (out, err), (out_1, err_1) = (one.communicate(timeout=400) for one in started)
    finally:
        for one in started:
            one.kill()
    assert [one.returncode for one in started] == [0, 0], f"{err[-2000:]}\n{err_1[-2000:]}"
    ended = [int(text.split("ENDED rank ")[1].split(" at ")[1]) for text in (out, out_1)]
    assert ended[0] == ended[1] < PLANNED
    assert err.count("verifier_broken (critical)") == 1
    assert "rlclinic:" not in err_1
