"""The same run in several forms is the same run: steps, values to the digits of the form, settings, and the verdict."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from rlclinic import names
from rlclinic.diagnose import diagnose
from rlclinic.model import Column, Diagnosis, Run
from rlclinic.readers import read

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the labelled logs are not beside the project")

ASIDE = {"run.summary", "time.phase"}
"""The console prints the summary apart from the rows and W&B keeps it outside its history; only W&B gets TRL's profile."""
OPEN = {"reward.std_unresolved"}
"""What only a version decides: packages listed beside a run settle it, and one file alone leaves it open."""
ONLY_WITH_ENDING = {"premature_stop"}
"""Only a console holds the error that ended a run."""
ONLY_WITH_SETTINGS = {"grad_clip_always_active", "std_normalisation_bias", "config_change_without_effect"}
"""Findings that hang on a setting: W&B and Trackio files and event files hold the arguments, the others do not."""
ONLY_WITH_SEAMS = {"resume_discontinuity", "duplicated_or_missing_steps"}
"""Findings that hang on steps written twice: a trainer's state keeps each step once."""
UNSTATED = {"healthy_gaps"}
"""Runs whose console states no step and lacks rows in the middle: its rows are counted, so the steps after lag behind."""


def forms(case: Path) -> dict[str, list[Path]]:
    found = {name: [case / name] for name in ("trainer_state.json", "metrics.jsonl", "console.log")}
    for folder in ("tensorboard", "wandb", "trackio"):
        inside = [p for p in sorted((case / folder).rglob("*")) if p.is_file()]
        logs = [p for p in inside if p.suffix in (".wandb", ".db") or "tfevents" in p.name]
        found |= {folder: logs} if logs else {}
    return {name: files for name, files in found.items() if files[0].exists()}


@cache
def run_of(files: tuple[Path, ...]) -> Run:
    """The run by its log; the saved answers beside it, which show more, are left."""
    return replace(read(files), rollouts=())


@cache
def told(files: tuple[Path, ...]) -> Diagnosis:
    return diagnose(run_of(files))


def cases() -> list[Path]:
    return [p.parent for p in sorted((CORPUS / "trl").glob("*/label.json"))] if CORPUS.is_dir() else []


def best(case: Path) -> tuple[Path, ...]:
    every = forms(case)
    return tuple(every.get("metrics.jsonl") or next(iter(every.values())))


def some() -> list[Path]:
    """Every ninth run and those that a tracker holds: a diagnosis of each form of each run would take a minute."""
    return [case for k, case in enumerate(cases()) if k % 9 == 0 or (case / "wandb").is_dir()]


def assert_alike(one: Column, two: Column) -> None:
    np.testing.assert_array_equal(one.steps, two.steps, err_msg=one.metric)
    near = max(one.resolution, two.resolution)
    np.testing.assert_allclose(one.values, two.values, rtol=1e-3, atol=max(near, 1e-12), err_msg=one.metric)


def summary(diagnosis: Diagnosis, without: set[str]) -> dict[str, tuple[int, float | None]]:
    return {
        f.check: (int(f.severity or 0), None if f.onset is None else f.onset.step)
        for f in diagnosis.findings
        if f.check not in without
    }


def assert_same_answer(one: Diagnosis, two: Diagnosis, without: set[str], within: float) -> None:
    first, second = summary(one, without), summary(two, without)
    assert first.keys() == second.keys()
    for check, (severity, onset) in first.items():
        assert abs(severity - second[check][0]) <= 1, check
        if onset is not None and second[check][1] is not None:
            assert abs(onset - second[check][1]) <= within, check


def row(run: Run) -> float:
    """Steps between two rows."""
    return float(np.median(np.diff(run["reward.mean"].steps)))


@pytest.mark.parametrize("case", cases(), ids=lambda p: p.name)
def test_every_form_of_a_run_is_that_run(case: Path) -> None:
    run = run_of(best(case))
    for name, files in forms(case).items():
        other = run_of(tuple(files))
        assert run.columns.keys() - ASIDE == other.columns.keys() - ASIDE, name
        assert run.components.keys() == other.components.keys(), name
        held_out = [{names.strip(key)[0] for key in r.evaluations} for r in (run, other)]
        assert held_out[0] == held_out[1], name
        if name == "console.log" and case.name in UNSTATED:
            continue
        for metric in (run.columns.keys() & other.columns.keys()) - ASIDE:
            assert_alike(run[metric], other[metric])
        for part in run.components:
            assert_alike(run.components[part].mean, other.components[part].mean)
        for knob in run.knobs.keys() & other.knobs.keys():
            assert run.knob(knob) == pytest.approx(other.knob(knob), rel=1e-3), (name, knob)
        if run.planned_steps and other.planned_steps:
            assert run.planned_steps == other.planned_steps


@pytest.mark.parametrize("case", some(), ids=lambda p: p.name)
def test_every_form_of_a_run_gets_the_same_answer(case: Path) -> None:
    reference = told(best(case))
    for files in forms(case).values():
        other = told(tuple(files))
        without = ONLY_WITH_SETTINGS | ONLY_WITH_SEAMS | ONLY_WITH_ENDING | {"eval_too_noisy"}
        assert_same_answer(reference, other, without, row(reference.run))


@pytest.mark.parametrize("case", cases(), ids=lambda p: p.name)
def test_all_forms_together_say_what_the_best_one_says(case: Path) -> None:
    one, every = run_of(best(case)), run_of((case,))
    assert one.columns.keys() - OPEN <= every.columns.keys()
    for metric in one.columns.keys() - ASIDE - OPEN:
        assert_alike(one[metric], every[metric])
    assert one.seams.keys() == every.seams.keys()
    if case in some():
        assert_same_answer(told(best(case)), told((case,)), ONLY_WITH_SETTINGS | ONLY_WITH_ENDING, 0.0)


def pairs() -> list[tuple[Path, Path]]:
    runs = CORPUS / "runs"
    found = []
    for one in sorted(runs.iterdir()) if runs.is_dir() else []:
        for ending in ("-tb", "-wandb", "-console"):
            whole = runs / one.name.removesuffix(ending)
            if one.name.endswith(ending) and whole.is_dir():
                found.append((whole, one))
    return found


@pytest.mark.parametrize(("whole", "form"), pairs(), ids=lambda p: p.name)
def test_pairs_of_public_logs_agree(whole: Path, form: Path) -> None:
    one, two = run_of((whole,)), run_of((form,))
    common = one.columns.keys() & two.columns.keys() - ASIDE
    assert len(common) >= 5
    for metric in common:
        a, b = one[metric], two[metric]
        _, i, j = np.intersect1d(a.steps, b.steps, return_indices=True)
        np.testing.assert_allclose(a.values[i], b.values[j], rtol=1e-3, atol=max(a.resolution, b.resolution, 1e-12))
