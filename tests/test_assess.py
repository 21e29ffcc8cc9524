"""One step judged where it happens: what a public runbook asserts, with the histories it speaks of, and where it errs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from rlclinic import assess, diagnose
from rlclinic.errors import BadRequest, UnknownName
from rlclinic.model import Diagnosis, Severity

Row = dict[str, Any]


def course(seed: int, rows: int = 120, every: int = 10, **paths: Any) -> list[Row]:
    """Rows of a run that learns; ``paths`` replace the course of a metric (dots as double underscores; None drops it)."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 1.0, rows)
    means: dict[str, Any] = {
        "reward.mean": 0.36 + 0.19 * (1 - np.exp(-2.5 * x)),
        "reward.max": np.ones(rows),
        "reward.min": np.zeros(rows),
        "advantage.std": np.full(rows, 0.95),
        "entropy.mean": 1.55 - 0.15 * x,
        "kl.ref": 0.02 * x,
        "grad.norm": np.full(rows, 0.35),
        "length.response.mean": np.full(rows, 310.0),
        "length.truncated_frac": np.full(rows, 0.02),
    }
    held_out = paths.pop("held_out", 0.30 + 0.20 * x)
    means.update({key.replace("__", "."): path for key, path in paths.items()})
    made: list[Row] = []
    still = ("reward.max", "reward.min")
    for i in range(rows):
        row: Row = {"step": i + 1}
        for key, path in means.items():
            if path is not None:
                value = float(path[i])
                row[key] = value if key in still or value == 0.0 else value * (1 + 0.02 * rng.standard_normal())
        row["reward.mean"] = min(row["reward.mean"], 1.0)
        if held_out is not None and i % every == every - 1:
            row["eval.score"] = float(held_out[i]) + 0.004 * rng.standard_normal()
        made.append(row)
    return made


def judged(rows: list[Row], **options: Any) -> Diagnosis:
    return assess(rows[-1], history=rows[:-1], **options)


def loud(diagnosis: Diagnosis) -> set[str]:
    return {f.check for f in diagnosis.findings if f.severity is not None and f.severity >= Severity.WARNING}


def said(diagnosis: Diagnosis) -> set[str]:
    return {f.check for f in diagnosis.findings}


X = np.linspace(0.0, 1.0, 120)
LATE = np.clip((X - 0.6) / 0.4, 0.0, 1.0)
FLAT = 0.40 - 0.12 * np.exp(-X / 0.05)
COLLAPSED = 0.14 + 1.3 * np.exp(-X / 0.12)
BLOWN_UP = 0.02 * np.minimum(4 * X, 1.0) + 0.38 * LATE**1.5
SOLVED = {"reward__mean": 1.0 - 0.5 * np.exp(-X / 0.12), "advantage__std": np.where(X < 0.6, 0.5, 0.0)}


# ---------------------------------------------------------------- what the runbook asserts


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_step_has_no_findings(seed: int) -> None:
    found = judged(course(seed))
    assert not loud(found)
    assert found.verdict.severity in ("healthy", "info")


@pytest.mark.parametrize("seed", range(5))
def test_no_spread_at_the_top_is_two_findings(seed: int) -> None:
    found = judged(course(seed, held_out=None, **SOLVED))
    assert {"zero_variance_all_right", "reward_saturated"} <= loud(found)


@pytest.mark.parametrize("seed", range(5))
def test_entropy_gone_while_the_reward_stands(seed: int) -> None:
    found = judged(course(seed, entropy__mean=COLLAPSED, reward__mean=FLAT, held_out=FLAT - 0.03))
    assert "entropy_collapse" in loud(found)
    assert loud(found) <= {"entropy_collapse", "plateau"}, "a plateau may follow, nothing else"
    assert found.verdict.primary == "entropy_collapse"


@pytest.mark.parametrize("seed", range(5))
def test_distance_to_the_reference_that_buys_nothing(seed: int) -> None:
    reward = 0.60 - 0.2 * np.exp(-X / 0.1)
    found = judged(course(seed, kl__ref=BLOWN_UP, reward__mean=reward, held_out=reward - 0.03 - 0.15 * LATE))
    assert "kl_drift" in loud(found)
    assert not loud(found) & {"entropy_collapse", "reward_saturated", "zero_variance_all_right"}


@pytest.mark.parametrize("seed", range(5))
def test_all_four_at_once_are_all_reported(seed: int) -> None:
    found = judged(course(seed, entropy__mean=COLLAPSED * 0.7, kl__ref=BLOWN_UP, held_out=0.45 - 0.10 * LATE, **SOLVED))
    assert {"zero_variance_all_right", "reward_saturated", "entropy_collapse", "kl_drift"} <= loud(found)


# ---------------------------------------------------------------- where its limits are wrong, the guard speaks


@pytest.mark.parametrize("seed", range(3))
def test_a_low_entropy_that_never_moved_is_no_collapse(seed: int) -> None:
    assert "entropy_collapse" not in said(judged(course(seed, entropy__mean=0.30 - 0.02 * X)))


@pytest.mark.parametrize("seed", range(3))
def test_distance_that_buys_held_out_score_is_no_alarm(seed: int) -> None:
    assert not loud(judged(course(seed, kl__ref=0.30 * X)))


@pytest.mark.parametrize("seed", range(3))
def test_entropy_may_rise_while_the_run_learns(seed: int) -> None:
    assert not loud(judged(course(seed, entropy__mean=0.50 + 0.14 * X)))


@pytest.mark.parametrize("seed", range(3))
def test_a_reward_of_one_is_not_the_top_where_ten_can_be_earned(seed: int) -> None:
    reward = 0.6 + 0.4 * X
    rows = course(seed, reward__mean=reward, reward__max=np.full(120, 10.0))
    assert "reward_saturated" not in said(judged(rows))


@pytest.mark.parametrize("seed", range(3))
def test_a_mean_over_tokens_need_not_be_zero(seed: int) -> None:
    rows = course(seed)
    for row in rows:
        row["critic/advantages/mean"] = -0.15
    assert not loud(judged(rows, framework="verl"))


def test_most_groups_dead_is_seen_by_their_share_not_by_the_deviation() -> None:
    rows = course(
        1, advantage__std=np.full(120, 0.43), reward__mean=0.9 + 0.02 * X, group__zero_var_frac=0.70 + 0.11 * X
    )
    found = judged(rows, knobs={"group_size": 8})
    assert "zero_variance_all_right" in loud(found)


# ---------------------------------------------------------------- one row, and the forms of the input


def test_one_row_judges_states_only() -> None:
    found = assess({"reward.mean": 0.55, "advantage.std": 0.95, "entropy.mean": 1.4, "kl.ref": 0.02})
    assert not loud(found)
    assert found.verdict.severity == "undecided"
    assert found.run.excerpt
    sick = assess(
        {"reward.mean": 0.99, "reward.max": 1.0, "reward.min": 0.0, "advantage.std": 0.0, "entropy.mean": 0.004}
    )
    assert {"zero_variance_all_right", "reward_saturated", "entropy_collapse"} <= loud(sick)


@pytest.mark.parametrize("metric", ["advantage.std", "advantage.abs_mean", "advantage_std"])
def test_advantages_without_spread_prove_that_every_group_is_dead(metric: str) -> None:
    dead = assess({"reward.mean": 0.02, metric: 0.0})
    assert dead.run["group.all_dead"].values.tolist() == [1.0]
    assert "zero_variance_all_wrong" in loud(dead)
    assert assess({"reward.mean": 0.02, metric: 0.3}).run["group.all_dead"].values.tolist() == [0.0]


def test_a_framework_may_speak_in_its_own_words() -> None:
    rows = [
        {
            "step": i,
            "critic/score/mean": 0.3 + 0.001 * i,
            "actor/entropy": 1.0,
            "actor/kl_loss": 0.001 * i,
            "response_length/clip_ratio": 0.6,
            "critic/advantages/mean": 0.0,
        }
        for i in range(1, 41)
    ]
    found = judged(rows, knobs={"actor_rollout_ref.rollout.n": 8, "kl_coef": 0.001})
    assert found.run.framework is not None
    assert found.run.framework.name == "verl"
    assert found.run.number("group_size") == 8
    assert found.run.number("kl_coef") == 0.001
    assert "truncation" in loud(found)
    assert "learning_rate" not in found.run.knobs, "no default is assumed beside settings that need not be complete"


def test_both_forms_of_history_are_one() -> None:
    rows = course(3)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lists = {key: [row.get(key) for row in rows[:-1]] for key in keys}
    assert assess(rows[-1], history=lists).verdict == judged(rows).verdict
    columns = {key: np.array([row[key] for row in rows[:-1]]) for key in ("step", "reward.mean", "entropy.mean")}
    found = assess({"step": 120, "reward.mean": np.float32(0.5), "entropy.mean": np.float64(1.4)}, history=columns)
    assert len(found.run["reward.mean"]) == 120


def test_the_same_checks_and_limits_as_a_log_of_the_same_rows() -> None:
    rows = course(4, entropy__mean=COLLAPSED, reward__mean=FLAT, held_out=FLAT - 0.03)
    found = judged(rows)
    assert diagnose(found.run).verdict == found.verdict
    strict = judged(rows, limits={"entropy_collapse": {"ratio": {"info": 0.01, "warning": 0.005, "critical": 0.001}}})
    assert "entropy_collapse" in loud(found)
    assert "entropy_collapse" not in loud(strict)


@pytest.mark.parametrize("seed", range(3))
def test_a_window_is_not_the_beginning_of_the_run(seed: int) -> None:
    rows = course(seed, kl__ref=0.02 + 0.01 * X, reward__mean=0.50 + 0.08 * X)
    for row in rows:
        row["step"] += 400
    found = judged(rows)
    assert not loud(found)
    assert "reference_wrong" not in said(found)


@pytest.mark.parametrize(
    ("history", "present", "steps"),
    [
        ([{}, {}], {}, [1, 2, 3]),
        ([{"step": 10}, {"step": 20}], {}, [10, 20, 30]),
        ([{}, {}], {"step": 50}, [48, 49, 50]),
        ([{"global_step": 5}, {}], {"global_step": 15}, [5, 10, 15]),
        ([{}, {}], {"step": 1}, [1, 2, 3]),
    ],
)
def test_steps(history: list[Row], present: Row, steps: list[float]) -> None:
    rows = [{"reward.mean": 0.1 * i, **row} for i, row in enumerate([*history, present])]
    assert assess(rows[-1], history=rows[:-1]).run["reward.mean"].steps.tolist() == steps


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (({},), "at least one number"),
        (({"note": "hello"},), "at least one number"),
        (([1, 2],), "a mapping"),
        (({"reward.mean": [0.1, 0.2]}, {"history": [1]}), "every row of the history"),
        (({"reward.mean": np.array([0.1, 0.2])},), "one number for reward.mean"),
        (({"reward.mean": 0.1}, {"history": {"reward.mean": [1, 2], "entropy.mean": [1]}}), "lists of one length"),
        (({"reward.mean": 0.1}, {"knobs": {"grup_size": 8}}), "group_size"),
    ],
)
def test_refused(arguments: tuple[Any, ...], words: str) -> None:
    options = arguments[1] if len(arguments) > 1 else {}
    with pytest.raises(BadRequest) as problem:
        assess(arguments[0], **options)
    assert words in problem.value.message()


def test_unknown_names() -> None:
    with pytest.raises(UnknownName):
        assess({"reward.mean": 0.1}, framework="tlr")
    with pytest.raises(UnknownName):
        assess({"reward.mean": 0.1}, limits={"entropy_colapse": {}})


@pytest.mark.parametrize("first", ["from rlclinic import assess, diagnose", "import rlclinic.cli, rlclinic.assess"])
def test_public_names_stand_before_modules_of_the_same_name(first: str) -> None:
    code = f"{first}\nimport rlclinic\nprint(callable(rlclinic.diagnose), callable(rlclinic.assess), dir(rlclinic))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True True")
    assert "'assess'" in done.stdout
