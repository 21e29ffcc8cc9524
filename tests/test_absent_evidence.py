"""What an absent series may prove, and what a log with rewards of another kind is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlclinic.diagnose import diagnose
from rlclinic.model import Column, Framework, Run, Unrecognised, Warn
from rlclinic.report.series import ends
from rlclinic.simulate import run_from_spec


def _run(**more: object) -> Run:
    return run_from_spec({"steps": 120, "preset": "plain", **more})


def test_a_text_that_prints_a_subset_is_partial() -> None:
    run = _run()
    assert not run.partial
    assert replace(run, warnings=(Warn("printed_subset", "some only"),)).partial
    assert replace(run, excerpt=True).partial


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_without_a_critic_nothing_of_a_critic_is_asked_for(algorithm: str) -> None:
    run = _run(dialect="trl", algorithm=algorithm, warnings={"printed_subset": "some only"})
    assert not [line for line in diagnose(run).to_log if "value" in line]


def test_the_ends_of_a_curve_are_true_medians() -> None:
    column = Column("grad.norm", "grad_norm", np.arange(20.0), np.r_[1.0, 3.0, np.full(16, 9.0), 5.0, 7.0])
    assert ends(column) == ("2", "6")


def test_keys_like_a_reward_are_named_where_no_mean_reward_is_known() -> None:
    run = _run(drop=["reward.mean", "part.accuracy"])
    run = replace(run, unrecognised=(Unrecognised("reward_latest"),))
    told = diagnose(run)
    says = next(f.says for f in told.findings if f.check == "metric_not_logged")
    assert "reward_latest" in says
    assert "--names" in says


def _asked(**more: object) -> list[str]:
    return list(diagnose(_run(drop=["entropy.mean"], **more)).to_log)


def test_what_a_run_cannot_have_is_not_asked_for() -> None:
    """A trainer that samples by itself has no sampler to differ from; without turns or a queue there is none to log."""
    assert not [line for line in _asked(dialect="trl") if "vllm" in line]
    assert [line for line in _asked(dialect="trl", knobs={"sampler": True}) if "use_vllm" in line]
    verl = _asked(dialect="verl")
    assert not [line for line in verl if "turn" in line or "tool" in line or "staleness" in line]
    assert len([line for line in verl if line.startswith("sampler-trainer")]) == 1


def test_no_version_is_asked_for_that_the_run_has() -> None:
    old, new = Framework("trl", "TRL", below="0.17.0"), Framework("trl", "TRL", at_least="0.26.0")
    run = _run(drop=["clip.frac", "clip.high_frac", "clip.low_frac"])
    assert [line for line in diagnose(replace(run, framework=old)).to_log if "trl>=0.17" in line]
    assert not [line for line in diagnose(replace(run, framework=new)).to_log if "clip" in line]


def test_a_log_without_a_training_step_asks_for_no_series() -> None:
    assert diagnose(Run(kind="crash", ending="CUDA out of memory", framework=Framework("verl", "verl"))).to_log == ()
