"""Titles, onsets and words that are true of the run they are said of, at every severity at which they appear."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlclinic.checks import BY_NAME, CHECKS, examine
from rlclinic.checks.readings import since
from rlclinic.diagnose import diagnose
from rlclinic.model import Column, Component, Floats, Knob, Run, Severity
from rlclinic.readers import read
from rlclinic.report import render

STEPS = np.arange(1.0, 301.0)
NOISE: Floats = np.random.default_rng(1).normal(size=300)


def column(name: str, values: Floats) -> Column:
    return Column(name, name, STEPS, values)


def run(**series: Floats) -> Run:
    named = {name.replace("__", "."): values for name, values in series.items()}
    return Run(columns={name: column(name, values) for name, values in named.items()})


def title(check: str, sick: Run) -> str:
    """The title under which ``diagnose`` tells a finding of the check."""
    found = [f for f in diagnose(sick, only=[check]).findings if f.check == check]
    return found[0].title if found else ""


@pytest.mark.parametrize(
    ("course", "first", "last"),
    [
        (np.linspace(0.28, 0.42, 300), 1, 1),  # beyond from the first row on, and rising
        (np.where(STEPS < 200, 0.28, 0.42), 1, 1),
        (np.where(STEPS < 200, 0.20, 0.90), 198, 202),  # what more than doubles at once is an event of its own
        (np.linspace(0.07, 0.60, 300), 60, 200),  # beyond the warning, not beyond what is told
        (np.where((STEPS > 90) & (STEPS < 140), 0.02, np.linspace(0.28, 0.42, 300)), 130, 260),  # it had left
    ],
)
def test_a_share_that_was_beyond_from_the_first_rows_on_has_been_so_since_then(
    course: Floats, first: float, last: float
) -> None:
    values = course + 0.01 * NOISE
    began = since(column("length.truncated_frac", values), 0.05, float(values[-75:].mean()), told=0.15)
    assert began is not None
    assert first <= began.step <= last


def test_checks_of_a_level_say_so_of_their_own() -> None:
    """Every check that dates a share by ``since``, on one that climbs from beyond its own limit."""
    shares = {
        "truncation": "length.truncated_frac",
        "prompt_over_limit": "length.prompt_clip_frac",
        "repetition_loop": "text.repetition_frac",
    }
    for check, metric in shares.items():
        level = BY_NAME[check].limits["share"].grades[Severity.CRITICAL]
        climbing = run(**{metric: np.linspace(1.5 * level, 2.5 * level, 300) + 0.01 * NOISE})
        finding = examine(BY_NAME[check], climbing)[0].finding
        assert finding is not None
        assert finding.onset is not None, check
        assert finding.onset.step == 1.0, check


@pytest.mark.parametrize(
    ("gain", "words"), [(0.0, "stayed near"), (0.05, "gains little: +0.04"), (-0.05, "loses little")]
)
def test_a_reward_that_still_moves_has_not_stayed(gain: float, words: str) -> None:
    climbs = np.minimum(1.0, 0.2 + STEPS / 75)
    drift = gain * np.clip((STEPS - 60) / 240, 0, 1)
    finding = examine(BY_NAME["plateau"], run(reward__mean=climbs + drift + 0.02 * NOISE))[0].finding
    assert finding is not None
    assert words in finding.says
    assert ("all but" in finding.title) == (gain != 0.0)


def test_a_title_speaks_of_the_score_that_fell() -> None:
    sick = run(reward__mean=0.3 + STEPS / 600 + 0.01 * NOISE)
    at = np.arange(0, 300, 15)
    score = Column(
        "eval.score", "eval", STEPS[at], np.interp(STEPS[at], [1, 45, 300], [0.5, 0.9, 0.1]) + 0.01 * NOISE[at]
    )
    told = title("reward_decline", Run(columns={**sick.columns, "eval.score": score}))
    assert told.startswith("The held-out score fell")


def test_a_part_that_varies_is_not_called_constant() -> None:
    def part(name: str, weight: float, spread: float) -> Component:
        mean = column(f"{name}/mean", 0.5 + 0.1 * NOISE)
        return Component(name, mean, column(f"{name}/std", np.full(300, spread)), weight=weight)

    parts = {"task": part("task", 1.0, 0.5), "hint": part("hint", 1.0, 0.01)}
    told = title("dead_reward_component", Run(components=parts))
    assert told == "A part of the reward hardly counts."


def test_what_only_informs_claims_no_more_than_it_saw() -> None:
    stale = run(staleness__mean=np.full(300, 9.0), reward__mean=STEPS / 300 + 0.01 * NOISE)
    assert "nothing corrects" not in title("stale_rollouts", stale)
    assert all(one.info_title != one.title and one.info_title[-1:] in ("", ".") for one in CHECKS)


def test_only_the_reward_was_read(tmp_path: Path) -> None:
    rows = [{"step": step, "reward": 0.1 + 0.01 * step} for step in range(24)]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    verdict = diagnose(read([log])).verdict
    assert "only the reward is read" in verdict.says
    assert "could not look" in verdict.says


def test_a_page_offers_no_change_where_nothing_needs_action() -> None:
    clip = {"grad_clip": Knob("grad_clip", 1.0, "max_grad_norm", "config")}
    calm = run(reward__mean=0.2 + STEPS / 500 + 0.02 * NOISE, grad__norm=2.0 + 0.1 * NOISE)
    told = diagnose(replace(calm, knobs=clip), only=["grad_clip_always_active"])
    assert told.verdict.severity == "info", told.verdict
    assert any(f.prescriptions for f in told.findings)
    assert 'class="change' not in render(told, "html")


def test_a_policy_that_melts_over_some_rows_jumped_with_its_reward() -> None:
    """Its entropy climbs row by row from the cliff on, which no step scan calls a step; a verifier leaves it alone."""
    reward = np.where(STEPS < 200, 0.8, 0.01) + 0.02 * NOISE
    calm = 0.3 + 0.02 * NOISE
    melting = calm + np.clip((STEPS - 199) * 0.2, 0.0, 6.0)
    for entropy, told, first in (
        (melting, "with it entropy.mean", "roll_back"),
        (calm, "nothing else", "score_gold_answers"),
    ):
        found = diagnose(run(reward__mean=reward, entropy__mean=entropy)).findings
        collapse = next(f for f in found if f.check == "sudden_collapse")
        assert told in collapse.says
        assert collapse.remedies[0] == first


def test_a_flat_reward_is_told_once() -> None:
    flat = diagnose(run(reward__mean=0.4 + 0.02 * NOISE))
    assert "no_learning" in {f.check for f in flat.findings}
    assert "plateau" not in {f.check for f in flat.findings}
    assert next(c.finding.severity for c in flat.checks if c.check == "plateau" and c.finding) is None
    stopped = diagnose(run(reward__mean=0.4 + 0.3 * np.minimum(STEPS / 60, 1.0) + 0.02 * NOISE))
    assert "plateau" in {f.check for f in stopped.findings}


def test_a_kl_that_stood_still_for_want_of_a_finite_gradient_follows_from_that() -> None:
    """Also where the run is finite again; the same rows of 0 beside finite gradients have a cause of their own."""
    kl = np.where(STEPS < 60, 0.0, 0.001 + 1e-5 * NOISE)
    series = {"reward__mean": 0.4 + 0.1 * STEPS / 300 + 0.02 * NOISE, "optim__lr": np.full(300, 1e-6), "kl__ref": kl}
    lost = diagnose(run(grad__norm=np.where(STEPS < 60, np.nan, 0.3), **series))
    assert next(f for f in lost.findings if f.check == "kl_pinned_zero").because_of == ("nan_inf",)
    kept = diagnose(run(grad__norm=np.where(STEPS > 250, np.nan, 0.3), **series))
    assert next(f for f in kept.findings if f.check == "kl_pinned_zero").because_of == ()


def test_a_kl_that_leaves_0_is_no_jump() -> None:
    kl = np.where(STEPS < 60, 0.0, 0.001 + 1e-5 * NOISE)
    assert "no jump" in _says("entropy_cliff", run(kl__ref=kl))
    assert "jumped" in _says("entropy_cliff", run(kl__ref=np.where(STEPS < 60, 1e-4, 0.001) + 1e-5 * NOISE))


def _says(check: str, sick: Run) -> str:
    finding = examine(BY_NAME[check], sick)[0].finding
    assert finding is not None
    return finding.says
