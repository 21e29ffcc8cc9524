"""Simulated saved answers: what is planted is there, what a description asks for holds, and the same seed gives the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlclinic.errors import BadTable, UnknownName
from rlclinic.readers.answers import read_answers
from rlclinic.rollouts import Rollouts
from rlclinic.simulate import load_spec, run_from_spec
from rlclinic.simulate.answers import DEFAULTS, LEVELS, answers_of, as_lines, clean, families, kinds, matched, planted

SMALL = {"steps": 16, "prompts": 3, "answers": 4}
RUN = run_from_spec({"steps": 200, "preset": "plain"}, 3)


def asked(**given: Any) -> Rollouts:
    """The table that a description with these keys gives; small."""
    return answers_of({"saved": 8, "prompts": 5, "group": 6, **given}, RUN, 0).table


def texts(table: Rollouts) -> list[str]:
    return [table.texts[row].answer for row in range(len(table))]


@pytest.mark.parametrize("kind", kinds())
def test_an_exploit_spreads_and_is_paid(kind: str) -> None:
    made = planted(kind, 1, **SMALL)
    table, uses = made.table, made.carries
    early, late = table.step <= 2, table.step > 12
    assert not uses[early].any()
    assert uses[late].mean() > 0.2
    assert table.reward[uses].mean() > table.reward[~uses].mean() + 0.1
    assert set(table.texts) == set(range(len(table)))


@pytest.mark.parametrize("family", families())
def test_a_healthy_family_holds_no_exploit(family: str) -> None:
    made = clean(family, 1, **SMALL)
    assert not made.carries.any()
    assert np.isfinite(made.table.reward).all()
    assert (made.table.size == 4).all()
    assert families()[family]["says"]


def test_there_are_enough_kinds() -> None:
    assert len(kinds()) >= 20
    assert len(families()) >= 20


def test_the_same_seed_gives_the_same() -> None:
    lines = [list(as_lines(planted("padding", seed, **SMALL).table)) for seed in (5, 5, 6)]
    assert lines[0] == lines[1]
    assert lines[0] != lines[2]
    assert list(as_lines(asked(loops=0.3))) == list(as_lines(asked(loops=0.3)))


def test_unknown_names() -> None:
    with pytest.raises(UnknownName, match="judge_praised"):
        planted("judge_praise", 0)
    with pytest.raises(UnknownName, match="curriculum"):
        clean("curiculum", 0)


def test_texts_are_varied() -> None:
    table = clean("learning", 2, **SMALL).table
    said = texts(table)
    assert len(set(said)) > 0.95 * len(said)
    starts = Counter(text[:25] for text in said)
    assert starts.most_common(1)[0][1] < 0.25 * len(said)
    lengths = [len(text) for text in said]
    assert np.std(lengths) > 0.2 * np.mean(lengths)


def test_lines_can_be_read(tmp_path: Path) -> None:
    made = clean("format_paid_late", 4, **SMALL).table
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(as_lines(made)) + "\n", encoding="utf-8")
    (read,), left = read_answers([path])
    assert not left
    assert np.array_equal(read.reward, made.reward)
    assert np.array_equal(read.group, made.group)
    assert np.array_equal(read.step, made.step)
    assert read.texts[7].answer == made.texts[7].answer
    assert np.array_equal(read.tokens, made.tokens)
    assert json.loads(next(as_lines(made)))["finish"] == "stop"


def test_answers_fit_the_log() -> None:
    table = asked()
    place = [int(np.flatnonzero(table.steps == step)[0]) for step in table.steps]
    logged = np.interp(table.steps, RUN["reward.mean"].steps, RUN["reward.mean"].values)
    found = np.array([table.reward[table.step == step].mean() for step in table.steps])
    assert np.abs(found - logged)[place].max() <= 0.5 / 30 + 1e-9
    length = np.interp(table.steps, RUN["length.response.mean"].steps, RUN["length.response.mean"].values)
    tokens = np.array([table.tokens[table.step == step].mean() for step in table.steps])
    assert np.abs(tokens / length - 1).max() < 0.25
    assert np.abs(table.centred(table.reward) * table.advantage >= 0).all()


def test_what_the_description_does_not_state_follows_the_answers() -> None:
    table = asked(exploit="always_zero")
    run = matched(RUN, table, ())
    step = table.steps[4]
    at = int(np.flatnonzero(run["reward.mean"].steps == step)[0])
    assert run["reward.mean"].values[at] == pytest.approx(table.reward[table.step == step].mean())
    assert matched(RUN, table, ("reward.mean",))["reward.mean"] is RUN["reward.mean"]


@pytest.mark.parametrize("way", ["copies", "ties"])
def test_dead_groups(way: str) -> None:
    table = asked(dead=way, dead_share=0.6)
    dead = np.flatnonzero(table.dead)
    assert table.dead.mean() == pytest.approx(0.6, abs=0.15)
    said = [{table.texts[int(row)].answer for row in table.members(int(group))} for group in dead]
    assert all((len(one) == 1) == (way == "copies") for one in said)


def test_mishaps() -> None:
    def share(table: Rollouts, flags: list[bool]) -> tuple[float, float]:
        late = table.step > table.steps[4]
        return float(np.mean(np.array(flags)[~late])), float(np.mean(np.array(flags)[late]))

    rising = {"from": 0.0, "to": 0.4, "at": 100, "over": 20}
    table = asked(loops=rising, cut=0.0)
    early, late = share(table, [one == 2 for one in table.ending])
    assert early < 0.1
    assert late == pytest.approx(0.4, abs=0.06)
    looped = table.texts[int(np.flatnonzero(table.ending == 2)[0])].answer
    assert looped.count(looped[-60:-20]) > 5
    assert len(looped) < 8_000
    table = asked(empty=rising)
    assert share(table, [not one for one in texts(table)])[1] == pytest.approx(0.4, abs=0.06)
    table = asked(unclosed=rising)
    assert share(table, ["</think>" not in one for one in texts(table)])[1] > 0.35
    table = asked(foreign=0.9)
    words = (
        "Ergebnis",
        "Antwort",
        "respuesta",
        "resultado",
        "total",
        "final",
        "Ende",
        "Insgesamt",
        "答案",
        "得到",
        "结果",
    )
    assert np.mean([any(word in one for word in words) for one in texts(table)]) > 0.8
    table = asked(copies=0.8)
    assert len(set(texts(table))) < 0.6 * len(table)
    assert len(set(texts(asked(near_copies=0.8)))) > 0.8 * len(table)
    wrong = asked(wrong_longer=3.0)
    length = wrong.characters
    assert length[wrong.reward == 0].mean() > 1.3 * length[wrong.reward == 1].mean()
    assert asked(stale=4.0).lag.mean() == pytest.approx(4.0, abs=0.3)
    assert asked(mismatch=0.02).mismatch.mean() == pytest.approx(0.02, rel=0.1)


def test_a_noisy_judge_and_one_that_drifts() -> None:
    table = asked(judge_noise=0.2)
    spreads = []
    for group in range(table.groups):
        rows = table.members(group)
        for same in np.unique(table.answer[rows]):
            again = table.reward[rows[table.answer[rows] == same]]
            if len(again) > 1:
                spreads.append(float(np.std(again)))
    assert np.mean(spreads) > 0.08
    table = answers_of({"saved": 16, "judge_drift": 0.4}, run_from_spec({}, 0), 0, 200).table
    same = [np.flatnonzero(table.answer == one) for one in np.unique(table.answer)]
    rises = [np.polyfit(table.step[rows], table.reward[rows], 1)[0] * 200 for rows in same if len(rows) > 20]
    assert len(rises) >= 5
    assert np.mean(rises) == pytest.approx(0.35, abs=0.15)


def test_advantages_and_what_is_left_out() -> None:
    assert np.array_equal(asked(advantage="raw").advantage, asked().reward)
    table = asked(advantage="centred")
    assert np.allclose(table.advantage, table.centred(table.reward))
    assert np.isnan(asked(advantage="none").advantage).all()
    assert not asked(filtered=True).dead.any()
    assert (asked(partial=True).size == 5).all()
    assert not asked(texts=False).texts
    assert not asked(endings=False).ending.any()
    assert np.isnan(asked(tokens=False).tokens).all()
    assert set(asked(parts=True).parts) == {"accuracy"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("loop = 0.1", "loops"),
        ("loops = true", "number"),
        ("loops = { form = 0.1 }", "from"),
        ('dead = "yes"', "copies"),
        ('exploit = "odd_marks"', "odd_mark"),
        ('family = "x"', "learning"),
        ('task = ["arithmetic", "chess"]', "algebra"),
        ("saved = 1000000", "2000"),
        ("group = 0", "512"),
        ("truth = 1", "True"),
        ("loops = { to = nan }", "number"),
    ],
)
def test_a_wrong_description_is_told(given: str, says: str) -> None:
    with pytest.raises(BadTable) as told:
        load_spec(f"steps = 100\n[answers]\n{given}\n")
    assert says in str(told.value)


def test_a_description_gives_the_run_its_answers() -> None:
    spec = load_spec('steps = 100\npreset = "plain"\n["answers"]\nsaved = 5\nprompts = 3\n')
    run = run_from_spec(spec, 1)
    assert len(run.rollouts[0]) == 5 * 3 * 8
    assert run_from_spec({"steps": 100, "preset": "plain"}, 1).rollouts == ()
    alone = run_from_spec({"steps": 100, "answers": {"saved": 4, "accuracy": 0.5}}, 1)
    assert not alone.columns
    assert len(alone.rollouts[0].steps) == 4


def test_every_key_is_documented() -> None:
    from rlclinic.simulate import answers

    told = answers.__doc__ or ""
    assert all(f"{key}" in told for key in (*DEFAULTS, *LEVELS))
