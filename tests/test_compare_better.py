"""What a comparison answers first: which run is better, and since when; its intervals agree with its words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlclinic import names as vocabulary
from rlclinic.compare import compare
from rlclinic.model import Column, Component, Framework, Run, Severity
from rlclinic.report import render_comparison
from rlclinic.report.blocks import Overlay, Table
from rlclinic.report.comparison import answer, evidence, page
from rlclinic.report.terminal import render_terminal
from test_compare import against, course, made, seen, setting, simulated, unexamined

STEPS = 200


def scored(scores: list[float], reward: float = 0.0, seed: int = 1, **more: Any) -> Run:
    """A run of 200 steps with a reward that is ``reward`` higher, and held-out scores at even places."""
    run = made({"reward.mean": course(STEPS, seed) + reward}, **more)
    at = np.linspace(STEPS / len(scores), STEPS, len(scores)) if scores else np.empty(0)
    held = Column("eval.score", "exact_match", at, np.asarray(scores, dtype=float))
    more_columns = {"eval.score": held} if scores else {}
    return replace(run, columns={**run.columns, **more_columns}, evaluations={"exact_match": held} if scores else {})


def parts(run: Run, *named: str) -> Run:
    return replace(run, components={p: Component(p, replace(run["reward.mean"], metric="part", key=p)) for p in named})


GOOD = [0.3, 0.5, 0.6, 0.7, 0.72, 0.74, 0.73, 0.75, 0.74, 0.76]
FALLEN = [0.3, 0.5, 0.6, 0.1, 0.02, 0.0, 0.0, 0.01, 0.0, 0.0]


def test_the_held_out_score_decides_before_the_reward() -> None:
    pair = [scored(GOOD, seed=1), scored(FALLEN, 0.4, seed=2)]
    comparison = compare([unexamined(run) for run in pair])
    (one,) = comparison.others
    assert (one.better.run, one.better.row and one.better.row.name) == ("first", "held_out.exact_match")
    says = answer(comparison, one)
    assert says.startswith("B is worse than A: late held-out score 0.74")
    assert [row.name for row in one.metrics[:2]] == ["held_out.exact_match", "reward.mean"]


@pytest.mark.parametrize(
    ("first", "second", "run", "says"),
    [
        (scored([]), scored([], 0.4, 2), "second", ""),
        (scored([]), scored([], 0.0, 2), "neither", ""),
        (parts(scored([]), "accuracy"), parts(scored([], 0.4, 2), "accuracy", "length"), "unknown", "other parts"),
        (parts(scored([]), "accuracy"), scored([], 0.4, 2), "unknown", "only A tells the parts"),
        (scored([], knobs=setting("reward_weights", "1, 1")), scored([], 0.4, 2, knobs=setting("reward_weights", "1, 2")),
         "unknown", "given in another way"),
        (scored([]), scored([], 4.0, 2), "unknown", "another size"),
        (scored(GOOD[:3]), scored([0.3, 0.2, 0.1], 0.4, 2), "unknown", "too few values"),
        (scored([0.3, 0.2, 0.1]), scored(GOOD[:3], 0.4, 2), "second", ""),
        (made({"grad.norm": course(50, 1)}), made({"grad.norm": course(50, 2)}), "unknown", "no held-out score"),
    ],
)  # fmt: skip
def test_the_reward_decides_only_where_it_means_the_same(first: Run, second: Run, run: str, says: str) -> None:
    which = against(first, second).better
    assert which.run == run
    assert says in which.because


def test_a_higher_reward_of_a_critical_run_is_no_better_run() -> None:
    pair = [unexamined(scored([])), unexamined(scored([], 0.4, 2), seen("reward_hacking", Severity.CRITICAL))]
    comparison = compare(pair)
    says = answer(comparison, comparison.others[0])
    assert says.startswith("Cannot tell which is better (B earns the higher reward, but only B is critical)")
    assert "Root findings: A none; B reward_hacking (critical)." in says


def test_a_critical_root_in_preview_is_told_as_one() -> None:
    early = seen("lr_too_high", Severity.CRITICAL, status="preview")
    comparison = compare([unexamined(scored([])), unexamined(scored([], seed=2), early)])
    assert "Root findings: A none; B lr_too_high (critical, preview)." in answer(comparison, comparison.others[0])


def test_few_values_part_where_they_part_and_not_throughout() -> None:
    row = next(row for row in against(scored(GOOD), scored(FALLEN, seed=2)).metrics if row.name.startswith("held_out."))
    assert row.onset is not None
    assert (row.onset.low, row.onset.step) == (60.0, 80.0)
    assert evidence(row, "step").endswith("from step 80 on (60 to 80)")


def test_throughout_is_said_where_every_window_differs() -> None:
    def entropy(level: float, seed: int, ramp: float = 0.0) -> Run:
        noise = 0.02 * np.random.default_rng(seed).standard_normal(STEPS)
        return made({"entropy.mean": level + noise + ramp * np.linspace(0.0, 1.0, STEPS)})

    (row,) = against(entropy(0.6, 1), entropy(0.9, 2)).metrics
    assert evidence(row, "step") == "strong: throughout"
    (row,) = against(entropy(0.6, 1), entropy(0.6, 2, 0.5)).metrics
    assert "throughout" not in evidence(row, "step")


def test_the_interval_shown_agrees_with_the_word() -> None:
    seen_words = set()
    for sick in ("plain", "sudden_collapse"):
        one = against(simulated("plain", 1, steps=100), simulated(sick, 2, steps=100))
        for row in one.metrics:
            if row.half is None or row.shown is None:
                continue
            seen_words.add(row.word)
            if row.word == "different":
                assert abs(row.shown) > row.half, row.name
            elif row.word == "within_seeds" or (row.word == "open" and row.q_value is not None and row.q_value > 0.05):
                assert abs(row.shown) <= row.half, row.name
    assert {"different", "open", "same"} <= seen_words


def test_a_version_that_is_not_told_is_no_other_trainer() -> None:
    at = np.arange(1.0, 101.0)

    def spread(name: str, metric: str, version: str | None) -> Run:
        column = Column(metric, "reward_std", at, course(100, len(name)))
        return Run(name=name, framework=Framework("trl", "TRL", version), columns={metric: column})

    known, vague = spread("old", "reward.group_std", "1.16.0"), spread("newer", "reward.std_unresolved", None)
    one = against(known, vague)
    assert not one.warnings
    assert one.only == ((), ())
    (row,) = one.metrics
    assert (row.word, "which B does not tell" in row.says) == ("incomparable", True)
    newer = replace(known, framework=Framework("trl", "TRL", "0.20.0"))
    assert any("TRL 0.20.0" in said for said in against(known, newer).warnings)


def test_other_reward_parts_are_one_line_and_names_are_titles() -> None:
    def rewarded(seed: int, *named: str) -> Run:
        values = {"reward.mean": course(100, seed), "reward.min": course(100, seed), "reward.max": course(100, seed),
                  "group.all_dead": (course(100, seed) > 0.6).astype(float)}  # fmt: skip
        return parts(made(values), *named)

    comparison = compare([unexamined(rewarded(1, "accuracy", "format")), unexamined(rewarded(2, "accuracy"))])
    told = " ".join(render_comparison(comparison, "terminal", width=200).split())
    assert told.count("the reward is made of other parts") == 2  # in the answer and in one line for all
    assert "other parts (format in only one of them): reward, lowest reward, highest reward" in told
    internal = [
        name
        for name in vocabulary.metrics()
        if "." in name and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", told)
    ]
    assert not internal


def test_charts_begin_with_the_answer_and_name_the_runs() -> None:
    runs = [scored(GOOD, name="calm"), scored(FALLEN, seed=2, name="wild")]
    drawn = [one for one in page(compare([unexamined(run) for run in runs])) if isinstance(one, Overlay)]
    assert [one.title for one in drawn[:2]] == ["held out: exact_match", "reward"]
    assert [name for name, _ in drawn[0].lines] == ["A calm", "B wild"]


def test_a_table_does_not_break_words() -> None:
    row = ("zero-variance share", "0.241", "0.938", "+0.697 +- 0.49", "moderate: from step 61 on (60 to 101)")
    drawn = render_terminal([Table(("metric", "A late", "B late", "difference", "evidence"), (row,))], width=80)
    for word in " ".join(row).split():
        assert word in drawn.replace("\n", " ").split(), word


def test_a_table_does_not_break_the_names_of_checks() -> None:
    rows = (
        ("zero_variance_discrete_middle", "seen in one only", "info since 5", "could not look"),
        ("train_inference_mismatch", "seen in one only", "warning since 75", "could not look"),
        ("metric_not_logged", "new", "not found", "info"),
    )
    drawn = render_terminal([Table(("check", "in B", "A", "B"), rows)], width=80)
    for row in rows:
        assert row[0] in drawn, row
