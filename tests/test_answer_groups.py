"""Groups, parts and advantages counted in saved answers, and how these are brought together with the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic import answers, recompute_advantages, vitals
from rlclinic.answers import advantages, agreement, groups, parts
from rlclinic.checks import rewards
from rlclinic.diagnose import diagnose
from rlclinic.model import Column, Component, Finding, Knob, Run, Severity
from rlclinic.readers import read
from rlclinic.readers.answers import read_answers
from rlclinic.readers.answers.gather import Gatherer, Shape
from rlclinic.rollouts import Answer, Regraded, Rollouts

CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "trl"
SHARE = "group.zero_var_frac"


def table_of(rows: Iterable[Answer], **shape: bool) -> Rollouts:
    gatherer = Gatherer(Shape("test", **shape), "test")
    for row in rows:
        gatherer.add(row)
    return gatherer.table()


def sampled(
    pay: Callable[[np.random.Generator, int, int], float],
    *,
    steps: int = 20,
    prompts: int = 8,
    size: int = 8,
    first: int = 1,
    seed: int = 0,
    text: Callable[[int, int, int], str] = lambda step, prompt, k: f"{step} {prompt} {k}",
) -> list[Answer]:
    """Answers whose reward is ``pay(rng, step, prompt)``."""
    rng = np.random.default_rng(seed)
    return [
        Answer(
            step=step, prompt=f"{step} {prompt}", text=text(step, prompt, k), reward=pay(rng, step, prompt), key=prompt
        )
        for step in range(first, first + steps)
        for prompt in range(prompts)
        for k in range(size)
    ]


def coin(rate: float) -> Callable[[np.random.Generator, int, int], float]:
    return lambda rng, step, prompt: float(rng.random() < rate)


def logged(table: Rollouts, *, shift: int = 0, **more: float) -> Run:
    """A run whose log states the mean reward of each step of ``table`` and ``more`` metrics at one level."""
    steps, means = answers.columns.by_step(table.step, table.reward) or (np.empty(0), np.empty(0))
    columns = {"reward.mean": Column("reward.mean", "reward", steps + shift, means)}
    for metric, level in more.items():
        name = metric.replace("__", ".")
        columns[name] = Column(name, name, steps + shift, np.full(len(steps), level))
    return Run(
        columns=columns, rollouts=(table,), algorithm="grpo", knobs={"group_size": Knob("group_size", 8, "n", "config")}
    )


def finding(run: Run, check: str) -> Finding:
    found = next(one.finding for one in diagnose(run, only=[check]).checks)
    assert found is not None
    return found


def codes(run: Run) -> set[str]:
    return {warn.code for warn in run.warnings}


# ---------------------------------------------------------------- the answers and the log


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_steps_are_counted_as_the_log_counts_them(shift: int) -> None:
    table = table_of(sampled(coin(0.5), first=5))
    run = vitals.complete(logged(table, shift=shift))
    assert run.rollouts[0].steps[0] == 5 + shift
    assert ("answers_shifted" in codes(run)) == (shift != 0)
    again = vitals.complete(run)
    assert again.warnings == run.warnings
    assert np.array_equal(again.rollouts[0].step, run.rollouts[0].step)
    assert run[SHARE].steps[0] == 5 + shift


def test_a_run_as_it_stood_has_the_answers_it_had() -> None:
    run = logged(table_of(sampled(coin(0.5)))).upto(8)
    assert run.rollouts[0].steps[-1] == 8
    assert vitals.complete(run).steps[-1] == 8


def test_gaps_in_the_saved_steps_do_not_hide_the_shift() -> None:
    whole = table_of(sampled(coin(0.4), steps=60, first=0))
    run = logged(whole, shift=1)
    some = whole.only(whole.step % 10 == 0)
    found = vitals.complete(replace(run, rollouts=(some,)))
    assert found.rollouts[0].steps.tolist() == [1, 11, 21, 31, 41, 51]


def test_nothing_is_moved_where_nothing_tells() -> None:
    table = table_of(sampled(lambda rng, step, prompt: 0.0, first=5))
    run = vitals.complete(logged(table))
    assert run.rollouts[0].steps[0] == 5
    assert not codes(run)


def test_answers_of_another_run_leave_the_log_alone() -> None:
    mine, other = table_of(sampled(coin(0.5))), table_of(sampled(coin(0.5), seed=9))
    run = vitals.complete(replace(logged(mine), rollouts=(other,)))
    assert agreement.CONTRADICTED in codes(run)
    assert SHARE not in run
    assert agreement.trusted(run) is None


def test_a_log_of_the_kept_groups_does_not_contradict_all_of_them() -> None:
    table = table_of(sampled(coin(0.85)))
    live = table.only(~table.dead[table.group])
    run = vitals.complete(replace(logged(live, shift=1), rollouts=(table,)))
    assert "answers_unfiltered" in codes(run)
    assert run.rollouts[0].steps[0] == 2
    assert run[SHARE].values.mean() > 0.1


def test_the_answers_of_one_process_are_a_part_of_each_batch() -> None:
    whole = table_of(sampled(coin(0.5), steps=60))
    run = logged(whole, shift=1)
    half = whole.only(whole.key % 2 == 0)
    found = vitals.complete(replace(run, rollouts=(half,)))
    assert "answers_of_a_part" in codes(found)
    assert found.rollouts[0].steps[0] == 2
    assert SHARE in found
    assert not found.distrusted


@pytest.mark.parametrize("kind", ["filtered", "partial"])
def test_no_column_from_what_was_filtered_or_is_a_part(kind: str) -> None:
    run = vitals.complete(Run(rollouts=(table_of(sampled(coin(0.5)), **{kind: True}),)))
    assert not run.columns


def test_evaluation_between_training_steps_is_told_by_the_log() -> None:
    trained = sampled(coin(0.5), steps=24)
    run = logged(table_of(trained))
    rows: list[Answer] = []
    for step in range(1, 25):
        if step % 4 == 0:  # an evaluation before the step; one of its prompts is also of the batch
            rows += [Answer(step=step, prompt=f"e{k}", text="e", reward=1.0, key=1000 + k) for k in range(40)]
            rows.append(Answer(step=step, prompt=f"{step} 0", text="e", reward=1.0, key=0))
        rows += [one for one in trained if one.step == step]
    found = vitals.complete(replace(run, rollouts=(table_of(rows),)))
    assert "answers_held_out" in codes(found)
    assert len(found.rollouts[0].train) == len(trained)
    assert set(found.rollouts[0].train.size.tolist()) == {8}


def test_a_restart_replaces_the_answers_it_makes_again() -> None:
    one, two = sampled(coin(0.5), steps=10), sampled(coin(0.5), steps=6, first=7, seed=5)
    run = vitals.complete(Run(rollouts=(table_of([*one, *two]),)))
    assert "answers_repeated" in codes(run)
    assert set(run.rollouts[0].size.tolist()) == {8}
    assert len(run.rollouts[0]) == 12 * 64


def test_what_a_second_verifier_said_follows_its_rows() -> None:
    one, two = sampled(coin(0.5), steps=10), sampled(coin(0.5), steps=6, first=7, seed=5)
    rows = np.array([0, 400, 650, 700])
    nothing, yes = np.zeros(4), np.ones(4, dtype=bool)
    table = table_of([*one, *two])
    said = Regraded("v", rows, rows * 0, table.reward[rows], nothing, nothing, yes, yes)
    run = vitals.complete(Run(rollouts=(table,), regraded=said))
    assert run.regraded is not None
    assert run.regraded.rows.tolist() == [0, 650 - 256, 700 - 256]
    assert run.rollouts[0].train.reward[run.regraded.rows].tolist() == table.reward[[0, 650, 700]].tolist()


def test_weights_follow_from_the_log_where_the_saved_total_is_not_the_reward() -> None:
    rng = np.random.default_rng(3)
    rows = []
    for step in range(1, 25):
        for k in range(64):
            a, b = float(rng.random() < 0.5), float(rng.random() < 0.7)
            rows.append(
                Answer(step=step, prompt=str(k // 8), text=f"{k}", reward=a + b, parts={"accuracy": a, "format": b})
            )
    table = table_of(rows)
    true = replace(table, reward=table.parts["accuracy"] + 0.2 * table.parts["format"])
    run = vitals.complete(replace(logged(true), rollouts=(table,)))
    assert "answers_weighed" in codes(run)
    assert np.allclose(run.rollouts[0].reward, true.reward, atol=1e-3)
    assert {name: part.weight for name, part in run.components.items()} == {"accuracy": 1.0, "format": 0.2}


def test_rows_of_several_batches_are_not_forced() -> None:
    table = table_of(sampled(coin(0.5), steps=100, first=0))
    means = np.bincount(table.step.astype(int), table.reward) / 64
    rows = np.arange(5.0, 101.0, 5.0)
    column = Column("reward.mean", "reward", rows, means.reshape(20, 5).mean(axis=1))
    run = Run(columns={"reward.mean": column}, rollouts=(table,))
    assert vitals.complete(run).rollouts[0].steps[0] == 1  # every batch is saved, so the means of five can be compared
    some = table.only(table.step % 5 == 0)
    found = vitals.complete(replace(run, rollouts=(some,)))
    assert "answers_averaged" in codes(found)
    assert agreement.CONTRADICTED not in codes(found)
    assert found.steps.tolist() == rows.tolist()


@pytest.mark.parametrize("kin", ["", "accuracy"])
def test_no_check_judges_answers_of_another_run(kin: str) -> None:
    """Neither a part of the reward nor its moves are those of the log: the answers are of another run."""
    table = table_of(sampled(coin(0.5)))
    table = replace(table, parts={"accuracy": table.reward})
    rng = np.random.default_rng(1)
    other = rng.random(len(table.steps))
    part = (np.bincount((table.step - table.step.min()).astype(int), table.reward) / 64) if kin else other
    named = {"accuracy": Component("accuracy", Column("reward.part", "accuracy", table.steps, part))}
    column = Column("reward.mean", "reward", table.steps, other)
    run = vitals.complete(Run(columns={"reward.mean": column}, components=named, rollouts=(table,)))
    assert (agreement.CONTRADICTED in codes(run)) is not bool(kin)
    assert (agreement.OTHERWISE in codes(run)) is bool(kin)
    assert bool(agreement.own(run).rollouts) is bool(kin)
    found = diagnose(run)
    assert len(found.run.rollouts) == 1  # still told as what was read
    bug = next((one for one in found.findings if one.check == "logging_bug"), None)
    assert (bug is None) is bool(kin)
    if bug is not None:
        assert "of 20 rows" in bug.says
        assert next(e for e in found.checks if e.check == "reward_hacking").outcome == "unexamined"


# ---------------------------------------------------------------- dead groups


def test_a_share_that_rounding_falsifies_is_replaced() -> None:
    table = table_of(sampled(lambda rng, step, prompt: 1.2 if prompt < 5 else 1.2 * float(rng.random() < 0.5)))
    run = vitals.complete(logged(table, group__zero_var_frac=0.0))
    assert "float32" in run.distrusted[SHARE]
    assert run[SHARE].key == "saved answers"
    assert run[SHARE].values.min() >= 5 / 8
    assert vitals.complete(run).distrusted == run.distrusted
    found = finding(run, "zero_variance_all_right")
    assert found.severity is not None
    assert "in the saved answers" in found.says
    assert finding(run, "logging_bug").severity == Severity.WARNING


def test_a_share_that_is_right_is_confirmed() -> None:
    table = table_of(sampled(lambda rng, step, prompt: float(prompt < 4) if prompt < 6 else float(rng.random() < 0.5)))
    counted = vitals.complete(Run(rollouts=(table,)))[SHARE]
    run = logged(table)
    run = replace(run, columns={**run.columns, SHARE: replace(counted, key="zero")})
    found = vitals.complete(run)
    assert found[SHARE].key == "zero"
    assert "equal to the count" in found[SHARE].note
    assert not found.distrusted


def test_kinds_of_dead_groups_are_counted() -> None:
    def pay(rng: np.random.Generator, step: int, prompt: int) -> float:
        return (1.0, 1.0, 1.0, 1.0, 1.0, 0.0, float(rng.random() < 0.5), float(rng.random() < 0.5))[prompt]

    run = vitals.complete(logged(table_of(sampled(pay))))
    right = finding(run, "zero_variance_all_right")
    assert right.severity == Severity.WARNING
    assert "(25 all right, 5 all wrong)" in right.says
    assert finding(run, "zero_variance_all_wrong").severity is None
    assert finding(run, "zero_variance_discrete_middle").severity is None


def test_one_share_is_told_of_one_window() -> None:
    run = vitals.complete(Run(rollouts=(table_of(sampled(lambda rng, step, prompt: float(step < 18 or prompt < 4))),)))
    found = finding(run, "zero_variance_all_right")
    assert f"{found.numbers['share']:.0%} of groups" in found.says
    assert found.numbers["share"] == found.numbers["dead_groups"] / found.numbers["groups"]


def test_an_end_without_most_of_the_dead_groups_is_no_alarm() -> None:
    def pay(rng: np.random.Generator, step: int, prompt: int) -> float:
        return (1.0, 1.0, 0.0, 0.5, 0.0, 1.0, 0.5, float(rng.random() < 0.5))[prompt]

    found = finding(vitals.complete(logged(table_of(sampled(pay)))), "zero_variance_all_right")
    assert found.severity == Severity.INFO
    assert "all wrong" in found.says


def test_a_mixture_of_both_ends_is_no_middle() -> None:
    run = vitals.complete(logged(table_of(sampled(lambda rng, step, prompt: float(prompt % 2)))))
    assert finding(run, "zero_variance_discrete_middle").severity is None


def test_copies_at_both_ends_are_a_fault_of_sampling() -> None:
    rows = sampled(lambda rng, step, prompt: float(prompt % 2), text=lambda step, prompt, k: f"{step} {prompt}")
    found = finding(vitals.complete(logged(table_of(rows))), "zero_variance_discrete_middle")
    assert found.severity == Severity.CRITICAL
    assert "one text throughout" in found.says
    assert found.remedies[0] == "check_sampling_seeds"


def test_ties_of_a_coarse_score_are_told_from_copies() -> None:
    def pay(rng: np.random.Generator, step: int, prompt: int) -> float:
        return 0.5 if prompt < 6 else float(rng.integers(0, 3)) / 2

    found = finding(vitals.complete(logged(table_of(sampled(pay)))), "zero_variance_discrete_middle")
    assert found.severity is not None
    assert "30 of 40 groups from step 16 on earn the same (tied in between)" in found.says
    assert found.remedies[0] == "finer_reward"


def test_groups_of_one_are_not_judged() -> None:
    run = vitals.complete(Run(rollouts=(table_of(sampled(coin(0.5), size=1, prompts=64)),)))
    assert SHARE not in run
    assert "group_size" not in run.knobs
    assert "reward.mean" in run


# ---------------------------------------------------------------- advantages


def saved(table: Rollouts, values: np.ndarray) -> Rollouts:
    return replace(table, advantage=np.asarray(values, dtype=float))


@pytest.fixture(scope="module")
def batch() -> Rollouts:
    return table_of(sampled(coin(0.4)))


def deviation(table: Rollouts) -> np.ndarray:
    within = np.sqrt(table.sums(table.centred(table.reward) ** 2) / (table.size - 1))
    return np.asarray(within[table.group])


@pytest.mark.parametrize(
    ("kind", "scale", "made"),
    [
        ("group", "group", lambda t: t.centred(t.reward) / (deviation(t) + 1e-4)),
        ("group", "group", lambda t: (t.centred(t.reward) / (deviation(t) + 1e-6)).astype(np.float16)),
        ("group", "none", lambda t: t.centred(t.reward)),
        ("group", "leave_one_out", lambda t: t.centred(t.reward) * 8 / 7),
        (
            "masked",
            "group",
            lambda t: np.where(np.arange(len(t)) % 5 == 0, 0.0, t.centred(t.reward) / (deviation(t) + 1e-4)),
        ),
        ("rescaled", "", lambda t: 0.3 + 1.7 * t.centred(t.reward)),
        ("batch", "", lambda t: (t.reward - t.reward.mean()) / t.reward.std()),
        ("raw", "", lambda t: t.reward),
        ("zero", "", lambda t: np.zeros(len(t))),
        ("other", "", lambda t: t.reward - np.random.default_rng(1).random(len(t))),
    ],
)
def test_the_normalisation_is_named(
    batch: Rollouts, kind: str, scale: str, made: Callable[[Rollouts], np.ndarray]
) -> None:
    found = advantages.compare(saved(batch, made(batch)))
    assert found is not None
    assert (found.kind, found.scale) == (kind, scale)


def test_groups_of_neighbours_whatever_their_prompt(batch: Rollouts) -> None:
    order = np.argsort(np.arange(len(batch)) % 8, kind="stable")  # rows reordered before they are cut into groups
    mixed = batch.only(np.ones(len(batch), dtype=bool))
    names = ("step", "group", "prompt", "answer", "reward", "key", "tokens", "characters")
    mixed = replace(mixed, **{name: getattr(mixed, name)[order] for name in names})
    blocks = mixed.reward.reshape(-1, 8)
    made = (blocks - blocks.mean(1, keepdims=True)) / (blocks.std(1, ddof=1, keepdims=True) + 1e-4)
    table = saved(mixed, made.ravel())
    found = advantages.compare(table)
    assert found is not None
    assert found.kind == "blocks"
    assert finding(logged(table), "advantage_not_centred").severity == Severity.CRITICAL


def test_a_prompt_drawn_twice_is_no_fault_of_the_groups() -> None:
    rows = [replace(one, prompt=str((one.key or 0) % 2), key=None) for one in sampled(coin(0.4))]  # type: ignore[operator]
    table = table_of(rows)
    blocks = table.reward.reshape(-1, 8)
    made = (blocks - blocks.mean(1, keepdims=True)) / (blocks.std(1, ddof=1, keepdims=True) + 1e-4)
    found = finding(logged(saved(table, made.ravel())), "advantage_not_centred")
    assert found.severity is None, found.says


def test_rewards_saved_as_advantages_are_critical(batch: Rollouts) -> None:
    found = finding(logged(saved(batch, batch.reward)), "advantage_not_centred")
    assert found.severity == Severity.CRITICAL
    assert found.onset is not None
    assert found.onset.step == 1


@pytest.mark.parametrize(
    "made", [lambda t: 0.3 + 1.7 * t.centred(t.reward), lambda t: (t.reward - t.reward.mean()) / t.reward.std()]
)
def test_whitening_is_a_choice(batch: Rollouts, made: Callable[[Rollouts], np.ndarray]) -> None:
    assert finding(logged(saved(batch, made(batch))), "advantage_not_centred").severity is None


def named(rows: list[Answer]) -> list[Answer]:
    return [replace(one, key=f"id{k}") for k, one in enumerate(rows)]


def test_a_name_for_each_answer_breaks_the_groups() -> None:
    run = logged(table_of(named(sampled(coin(0.4)))))
    found = finding(run, "advantage_not_centred")
    assert found.severity == Severity.CRITICAL
    assert "160 of 160 prompts" in found.says
    assert found.remedies[0] == "check_group_ids"


def test_a_name_for_each_answer_is_harmless_where_the_advantages_are_of_the_prompts(batch: Rollouts) -> None:
    made = batch.centred(batch.reward) / (deviation(batch) + 1e-4)
    rows = [replace(one, advantage=float(value)) for one, value in zip(named(sampled(coin(0.4))), made, strict=True)]
    run = vitals.complete(logged(table_of(rows)))
    assert set(run.rollouts[0].size.tolist()) == {8}
    assert SHARE in run
    assert finding(run, "advantage_not_centred").severity is None


def test_a_prompt_drawn_twice_keeps_its_two_names() -> None:
    rows = [replace(one, prompt="again" if one.key in (0, 1) else one.prompt) for one in sampled(coin(0.4))]
    assert advantages.split(table_of(rows)) == advantages.Split(prompts=140, broken=0, answers=0)


# ---------------------------------------------------------------- parts and pass rates


def in_parts(weight: float, bonus: Callable[[np.random.Generator, int, int], float]) -> Rollouts:
    rng = np.random.default_rng(2)
    rows = []
    for step in range(1, 31):
        for k in range(64):
            length = int(rng.integers(5, 40))
            right, more = float(rng.random() < 0.5), bonus(rng, k // 8, length)
            rows.append(
                Answer(step=step, prompt=f"{step} {k // 8}", text="x" * length, tokens=length, reward=right + weight * more,
                       parts={"accuracy": right, "bonus": more})
            )  # fmt: skip
    return table_of(rows)


def test_covariance_shares_sum_to_one() -> None:
    table = in_parts(0.5, lambda rng, prompt, length: float(rng.random() < 0.3))
    found = parts.shares(table)
    assert sum(one.share for one in found) == pytest.approx(1.0)
    assert [one.weight for one in found] == [1.0, 0.5]
    assert found[0].share == pytest.approx(0.25 / (0.25 + 0.25 * 0.21), abs=0.02)


def test_a_bonus_for_length_is_named() -> None:
    table = in_parts(3.0, lambda rng, prompt, length: min(0.05 * length, 1.5))
    assert [one.by_length for one in parts.shares(table)] == [False, True]
    falling = lambda rng, prompt, length: 0.05 * length if length < 20 else 0.5  # noqa: E731
    assert not parts.shares(in_parts(3.0, falling))[1].by_length


def test_a_part_that_differs_only_between_prompts_teaches_nothing() -> None:
    table = in_parts(1.0, lambda rng, prompt, length: prompt / 8)
    run = vitals.complete(Run(rollouts=(table,)))
    found = finding(run, "dead_reward_component")
    assert found.severity == Severity.WARNING
    assert "never within a group" in found.says
    alive = vitals.complete(Run(rollouts=(in_parts(1.0, lambda rng, prompt, length: rng.random()),)))
    assert finding(alive, "dead_reward_component").severity is None


def test_a_part_that_nobody_earns() -> None:
    run = vitals.complete(Run(rollouts=(in_parts(1.0, lambda rng, prompt, length: 0.0),)))
    found = finding(run, "dead_reward_component")
    assert found.severity == Severity.WARNING
    assert "the same in all 1920 saved answers" in found.says


def test_a_remark_that_is_not_paid_is_no_part() -> None:
    rng = np.random.default_rng(4)
    rows = [
        Answer(step=k // 64, prompt=f"{k // 8}", text=f"{k}", reward=right + 0.2 * form,
               parts={"acc": right, "form": form, "digits": float(rng.integers(0, 9)), "aborted": 0.0})
        for k in range(1280)
        for right, form in [(float(rng.random() < 0.5), float(rng.random() < 0.8))]
    ]  # fmt: skip
    run = vitals.complete(Run(rollouts=(replace(table_of(rows), form="verl"),)))
    assert {name: part.weight for name, part in run.components.items()} == {"acc": 1.0, "form": 0.2}


@given(st.integers(1, 30), st.data())
@settings(max_examples=20, deadline=None)
def test_pass_at_k_is_what_drawing_gives(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    expected = 1.0 - comb(n - c, k) / comb(n, k)
    assert groups.pass_at_k(np.array([n]), np.array([float(c)]), k)[0] == pytest.approx(expected)


def test_pass_rates_of_prompts_and_their_drift() -> None:
    rows = [
        Answer(step=step, prompt=f"p{prompt}", text=f"{k}", reward=float(prompt < 2 or (prompt < 6 and k < step)))
        for step in (1, 4)
        for prompt in range(8)
        for k in range(8)
    ]
    found = groups.overview(table_of(rows))
    assert found is not None
    assert (found.prompts, found.solved, found.hopeless, found.again, found.rose, found.fell) == (
        8,
        0.25,
        0.25,
        8,
        4,
        0,
    )
    assert found.mean == pytest.approx((2 + 4 * 5 / 16) / 8)
    assert found.change == pytest.approx(4 * (3 / 8) / 8)
    assert found.at[1] == pytest.approx(found.mean)
    assert found.at[16] == pytest.approx(0.75)


def test_graded_rewards_have_no_pass_rate() -> None:
    assert groups.overview(table_of(sampled(lambda rng, step, prompt: rng.random()))) is None
    assert groups.overview(table_of(sampled(lambda rng, step, prompt: 0.1 * float(rng.random() < 0.5)))) is None


# ---------------------------------------------------------------- whatever the file holds

NUMBER = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, 1.0]))


@given(
    st.lists(
        st.builds(
            Answer, step=NUMBER, prompt=st.one_of(st.none(), st.sampled_from("ab")), text=st.one_of(st.none(), st.just("x")),
            reward=NUMBER, parts=st.one_of(st.none(), st.fixed_dictionaries({"accuracy": NUMBER, "b": NUMBER})),
            key=st.one_of(st.none(), st.integers(0, 3)), advantage=NUMBER, tokens=NUMBER, held_out=st.booleans(),
        ),
        min_size=1,
        max_size=24,
    ),
    st.booleans(),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_any_answers_give_an_answer(rows: list[Answer], ordered: bool) -> None:
    table = table_of(rows, ordered=ordered)
    log = Column("reward.mean", "reward", np.arange(1.0, 9.0), np.linspace(0, 1, 8))
    for columns in ({}, {"reward.mean": log, SHARE: replace(log, metric=SHARE, key="z")}):
        with np.errstate(all="ignore"):
            run = vitals.complete(Run(columns=columns, rollouts=(table,)))
            groups.overview(table)
            advantages.compare(table)
        mine = ["zero_variance_all_right", "advantage_not_centred", "dead_reward_component", "dominating_reward_component",
                "sparse_reward", "reward_saturated", "std_normalisation_bias"]  # fmt: skip
        assert not [one for one in diagnose(run, only=mine).checks if one.outcome == "failed"]


# ---------------------------------------------------------------- real runs


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the labelled logs are not beside the project")
def test_the_trainers_own_share_is_the_count_where_it_is_right(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    false: list[str] = []
    cases = [path.parent for path in sorted(CORPUS.glob("*/rollouts.jsonl"))]
    full = bool(request.config.getoption("--full"))
    for case in cases if full else cases[::2]:
        run = answers.complete(read([case / "metrics.jsonl"], rollouts=[case / "rollouts.jsonl"]))
        assert agreement.trusted(run) is not None, case.name
        assert agreement.CONTRADICTED not in codes(run), case.name
        if run.distrusted:
            assert all("float32" in why for why in run.distrusted.values()), case.name
            false.append(case.name)
        else:
            assert "equal to the count" in run[SHARE].note, case.name
    record_property("distrusted", len(false))
    record_property("runs", len(cases))
    assert len(false) == (3 if full else 2)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the labelled logs are not beside the project")
def test_advantages_are_those_that_trl_saved(record_property: Callable[[str, object], None]) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'rlclinic[parquet]'")
    tables, _ = read_answers(sorted(CORPUS.glob("*/completions/*.parquet")))
    live, off = 0, 0.0
    for table in tables:
        made = np.asarray(recompute_advantages(table.reward, groups=table.group).values)
        live += int(np.sum(table.sums(table.centred(table.reward) ** 2)[table.group] > 0))
        off = max(off, float(np.abs(made - table.advantage).max()))
    record_property("live", live)
    record_property("off", f"{off:.1e}")
    assert live > 1000
    assert off < 1e-6


def test_a_part_leads_from_the_step_at_which_it_does() -> None:
    """The bonus varies little until step 9 and far more than the task afterwards, so that pooled sums are its own."""
    rows = []
    rng = np.random.default_rng(3)
    for step in range(1, 31):
        for k in range(32):
            right, bonus = float(rng.random() < 0.5), rng.normal() * (0.1 if step < 10 else 3.0)
            made = {"accuracy": right, "bonus": bonus}
            rows.append(Answer(step=step, prompt=f"{step} {k // 8}", reward=right + bonus, key=k // 8, parts=made))
    table = table_of(rows)
    steps, own = parts.share_by_step(table, "bonus", {})
    assert len(steps) == 30
    assert own[:9].max() < 0.3
    assert own[9:].min() > 0.8
    (bonus,) = [one for one in parts.shares(table, {}) if one.name == "bonus"]
    assert bonus.first > 0.7
    columns = {name: Column(name, name, steps, np.ones(30)) for name in ("accuracy", "bonus")}
    run = replace(logged(table), components={name: Component(name, column) for name, column in columns.items()})
    leader = rewards.leading(agreement.settle(run)[0])
    assert leader is not None
    assert leader.since is not None
    assert (leader.part.name, leader.since.step, leader.since.low) == ("bonus", 10.0, 9.0)
