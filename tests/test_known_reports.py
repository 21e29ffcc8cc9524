"""Two public documents that the report answers to: a sample report with all its parts, and a sick run with eight scopes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlclinic.diagnose import diagnose
from rlclinic.model import Diagnosis, Finding, Severity
from rlclinic.readers import read
from rlclinic.report import render
from rlclinic.simulate import as_run, configuration, scenario, write

STEPS, EVERY = 18_000, 10
"""The sick run's length; one row in ten steps keeps its 1,000 early steps at 100 rows."""


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """The sick run as its owner would hand it over: TRL's rows, and its configuration beside them."""
    folder: Path = tmp_path_factory.mktemp("sick")
    made = scenario("never_ends", steps=STEPS, log_every=EVERY)
    (folder / "metrics.jsonl").write_text(write(made, "trl"), encoding="utf-8")
    (folder / "config.yaml").write_text(configuration(made, "trl"), encoding="utf-8")
    return diagnose(read([folder]))


@pytest.fixture(scope="module")
def found(sick: Diagnosis) -> dict[str, Finding]:
    return {finding.check: finding for finding in sick.findings}


def test_an_answer_that_never_ends_is_the_root(sick: Diagnosis, found: dict[str, Finding]) -> None:
    root = sick.findings[0]
    assert (root.check, root.severity, root.because_of) == ("never_eos", Severity.CRITICAL, ())
    assert sick.verdict.primary == "never_eos"
    assert "truncation" in root.leads_to
    assert found["truncation"].severity == Severity.CRITICAL


def test_scope_1_the_end_token_is_taken_up_and_two_of_its_cures_are_corrected(found: dict[str, Finding]) -> None:
    cures = [cure.id for cure in found["never_eos"].prescriptions]
    assert cures[0] == "stop_tokens"
    assert "penalise_truncated" in cures
    corrected = " ".join(found["never_eos"].no_help)
    assert "lower length limit" in corrected
    assert "penalty on length" in corrected


def test_scope_2_a_judge_that_is_the_policy_is_to_be_frozen(found: dict[str, Finding]) -> None:
    judge = found["self_judge_drift"]
    assert judge.severity is not None
    assert judge.severity >= Severity.WARNING
    assert judge.prescriptions[0].id == "freeze_judge"


def test_scope_3_the_entropy_bonus_does_not_exist_in_this_version_and_the_next_cure_is_offered(
    found: dict[str, Finding],
) -> None:
    cures = {cure.id: cure for cure in found["entropy_collapse"].prescriptions}
    assert "1.8.0" in cures["entropy_bonus"].note
    assert not cures["entropy_bonus"].applies
    assert found["entropy_collapse"].prescriptions[0].applies
    assert "clip_higher" not in cures  # on-policy: it would do nothing


def test_scope_4_larger_groups_are_ranked_below_the_noise_of_the_judge(found: dict[str, Finding]) -> None:
    noise = found["judge_noise_dominates"]
    assert any("more answers per prompt" in line for line in noise.no_help)
    assert noise.prescriptions[0].id == "score_twice"


def test_scope_5_the_learning_rate_is_lowered_because_entropy_moved_not_because_of_its_value(
    found: dict[str, Finding],
) -> None:
    change = next(
        c for cure in found["entropy_collapse"].prescriptions for c in cure.changes if c.key == "learning_rate"
    )
    assert change.before == 5e-5
    assert isinstance(change.after, float)
    assert change.after < 5e-5
    assert "lr_too_high" not in found  # 5e-5 is a usual value for LoRA


def test_scope_6_the_callback_had_no_effect(found: dict[str, Finding]) -> None:
    assert "160" in found["config_change_without_effect"].says
    assert "256" in found["config_change_without_effect"].says


def test_scopes_7_and_8_reward_parts_and_answers_are_to_be_logged(sick: Diagnosis, found: dict[str, Finding]) -> None:
    assert any(cure.id == "log_reward_parts" for cure in found["metric_not_logged"].prescriptions)
    assert any("log_completions=True" in line for line in sick.to_log)


def test_a_clip_fraction_of_0_is_a_note_and_no_finding(sick: Diagnosis, found: dict[str, Finding]) -> None:
    assert "clip_zero_expected" in {note.id for note in sick.notes}
    assert not {"clip_saturation", "clip_asymmetry"} & set(found)


# ------------------------------------------------------------------------------------------- the sample report


@pytest.fixture(scope="module")
def sample() -> Diagnosis:
    return diagnose(as_run(scenario("saturated_groups")).told(gpus=8), gpu_hour_price=2.0)


def test_every_part_of_the_sample_report_is_there(sample: Diagnosis) -> None:
    text = re.sub(r"\s+", " ", render(sample, "terminal", width=100))
    for part in ("Vitals", "Findings", "Sources", "Checks", "since", "change 1", "expect", "confirm", "found nothing"):
        assert part in text, part
    for vital in ("reward", "held-out score", "entropy", "zero-variance share", "KL to reference", "response length"):
        assert vital in text, vital
    for vital in ("clip fraction", "gradient norm", "group size 8", "Qwen2.5-7B-Instruct", "H100", "GPU-hours"):
        assert vital in text, vital
    root = sample.findings[0]
    assert (root.check, root.severity) == ("zero_variance_all_right", Severity.CRITICAL)
    assert root.cost is not None
    assert root.cost.gpu_hours is not None
    assert root.references


def test_a_smooth_decay_is_no_abrupt_drop(sample: Diagnosis) -> None:
    told = {finding.check for finding in sample.findings}
    assert "entropy_collapse" in told
    assert not told & {"entropy_cliff", "sudden_collapse"}
    assert "jump" not in " ".join(finding.says for finding in sample.findings)


def test_two_curves_that_rise_together_do_not_diverge(sample: Diagnosis) -> None:
    outcome = next(e for e in sample.checks if e.check == "reward_eval_divergence")
    assert outcome.outcome == "examined"
    assert outcome.finding is not None
    assert outcome.finding.severity is None
