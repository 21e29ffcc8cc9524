"""Runs side by side: how often seeds of one recipe are called different, what is found, and what is never compared."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
from click.testing import CliRunner, Result

import rlclinic
from rlclinic.cli import cli
from rlclinic.compare import Against, Comparison, compare, failing
from rlclinic.errors import BadRequest, UnknownName
from rlclinic.model import (
    Column,
    Component,
    Diagnosis,
    Examination,
    Finding,
    Floats,
    Framework,
    Knob,
    Onset,
    Run,
    Severity,
    Source,
    Verdict,
)
from rlclinic.report import render_comparison, schema
from rlclinic.report.comparison_form import to_dict
from rlclinic.simulate import scenario, scenarios, write
from rlclinic.simulate.scenarios import HEALTHY
from rlclinic.simulate.shapes import autoregressive
from rlclinic.stats import paired

SHOWN = ("reward.mean", "entropy.mean", "kl.ref", "grad.norm", "length.response.mean", "group.zero_var_frac")
HEALTHY_VERDICT = Verdict("healthy", None, "Nothing wrong was found.")


def unexamined(run: Run, *findings: Finding, checks: tuple[Examination, ...] = ()) -> Diagnosis:
    """A run whose checks are not what a test is about."""
    looked = tuple(Examination(one.check, "examined", one) for one in findings)
    return Diagnosis(run, HEALTHY_VERDICT, findings, (*looked, *checks), ())


def against(first: Run, second: Run, **how: Any) -> Against:
    (one,) = compare([unexamined(first), unexamined(second)], **how).others
    return one


def simulated(name: str, seed: int, *, only: tuple[str, ...] = SHOWN, **shape: Any) -> Run:
    run = scenario(name, seed=seed, **shape).run
    return replace(run, columns={m: run.columns[m] for m in only}, components={}, evaluations={})


def made(values: Mapping[str, Floats], every: int = 1, first: int = 1, **more: Any) -> Run:
    """A run that logs (n,) values of each metric every so many steps."""
    columns = {
        metric: Column(metric, metric, first + every * np.arange(len(v), dtype=np.float64), np.asarray(v, dtype=float))
        for metric, v in values.items()
    }
    return Run(**{"name": "made", "columns": columns, **more})


def course(n: int, seed: int, pace: float = 6.0, noise: float = 0.03, phi: float = 0.5) -> Floats:
    """(n,) a reward that levels off, under AR(1) noise."""
    done = np.arange(1, n + 1) / n
    made = 0.3 + 0.4 * (1.0 - np.exp(-pace * done))
    return np.asarray(made + noise * autoregressive(np.random.default_rng(seed), 1, n, phi)[0])


def word(one: Against, metric: str) -> str:
    return next(row.word for row in one.metrics if row.name == metric)


# ------------------------------------------------------------------------------------------------- error rates


def seeds_told_apart(pairs: int, shapes: list[dict[str, Any]], only: tuple[str, ...] = SHOWN) -> tuple[int, int]:
    """(metrics called different, metrics) over pairs of seeds of every healthy family."""
    called = looked = 0
    for shape in shapes:
        for name in HEALTHY:
            for pair in range(pairs):
                runs = [simulated(name, 2 * pair + i, only=only, **shape) for i in range(2)]
                one = against(*runs)
                looked += len(one.metrics)
                called += len(one.of("different"))
    return called, looked


def test_two_seeds_of_a_healthy_recipe_are_not_called_different() -> None:
    called, looked = seeds_told_apart(
        1, [{"steps": 120, "phi": 0.5}, {"steps": 900, "log_every": 10, "phi": 0.5}], SHOWN[:2]
    )
    assert looked > 40
    assert called <= 0.05 * looked


@pytest.mark.long
def test_many_pairs_of_seeds() -> None:
    shapes: list[dict[str, Any]] = [
        {"steps": 150, "phi": 0.5},
        {"steps": 400, "phi": 0.9},
        {"steps": 1500, "log_every": 10, "phi": 0.5},
        {"steps": 1500, "phi": 0.5},
    ]
    called, looked = seeds_told_apart(10, shapes)
    assert called <= 0.05 * looked


def wandering(seed: int, n: int, size: float) -> Floats:
    """(n,) a course that each seed goes through at its own pace, to its own height, with slow noise of its own."""
    rng = np.random.default_rng(seed)
    pace, height = 5.0 * math.exp(0.15 * rng.standard_normal()), 0.4 * math.exp(size * rng.standard_normal())
    done = np.arange(1, n + 1) / n
    slow = 0.05 * height * autoregressive(rng, 1, n, 0.98)[0]
    return np.asarray(0.3 + height * (1.0 - np.exp(-pace * done)) + slow + 0.03 * rng.standard_normal(n))


def test_seeds_that_differ_in_pace_and_height_are_seldom_called_different() -> None:
    """What one pair cannot show: 10 % in height and 15 % in pace from seed to seed, and noise as slow as the windows."""
    called = 0
    for pair in range(12):
        one = against(
            made({"reward.mean": wandering(2 * pair, 200, 0.1)}),
            made({"reward.mean": wandering(2 * pair + 1, 200, 0.1)}),
        )
        called += len(one.of("different"))
    assert called <= 2


@pytest.mark.parametrize(
    ("sick", "metric"),
    [("entropy_collapse", "entropy.mean"), ("reward_decline", "reward.mean"), ("sudden_collapse", "reward.mean"),
     ("kl_drift", "kl.ref"), ("no_learning", "reward.mean")],
)  # fmt: skip
def test_a_sick_run_is_told_from_a_healthy_one(sick: str, metric: str) -> None:
    runs = [simulated(name, seed, steps=300, only=(metric,)) for name, seed in (("plain", 1), (sick, 2))]
    assert word(against(*runs), metric) == "different"


def test_a_shifted_level_is_found_and_measured() -> None:
    flat = 0.6 * np.ones(200)
    noise = [0.03 * autoregressive(np.random.default_rng(i), 1, 200, 0.5)[0] for i in range(2)]
    one = against(made({"entropy.mean": flat + noise[0]}), made({"entropy.mean": 1.3 * flat + noise[1]}))
    (row,) = one.metrics
    assert row.word == "different"
    assert row.from_start
    assert row.apart is not None
    assert row.apart.low < 0.18 < row.apart.high


def test_a_short_run_that_runs_away_is_not_left_open() -> None:
    """Its own course leaves no estimate of noise; that nothing overlaps and the gap is out of all proportion does."""
    n = 40
    calm = 0.06 + 0.004 * np.random.default_rng(1).standard_normal(n)
    away = 0.06 + np.where(np.arange(n) > 16, 2.2 + np.cumsum(0.25 * np.random.default_rng(2).standard_normal(n)), 0.0)
    assert word(against(made({"entropy.mean": calm}), made({"entropy.mean": away})), "entropy.mean") == "different"


def test_a_small_shift_is_the_same() -> None:
    flat = 0.6 * np.ones(400)
    noise = [0.01 * np.random.default_rng(i).standard_normal(400) for i in range(2)]
    one = against(made({"entropy.mean": flat + noise[0]}), made({"entropy.mean": 1.02 * flat + noise[1]}))
    assert word(one, "entropy.mean") == "same"


# --------------------------------------------------------------------------------------------- when, how much earlier


def test_runs_that_were_alike_part_where_they_part() -> None:
    n, at = 300, 180
    fall = np.where(np.arange(n) >= at, -0.25, 0.0)
    late = np.where(np.arange(n) >= at + 60, 0.4, 0.0)
    a = made({"reward.mean": course(n, 1), "entropy.mean": 0.5 + 0.02 * np.random.default_rng(5).standard_normal(n)})
    b = made(
        {
            "reward.mean": course(n, 2) + fall,
            "entropy.mean": 0.5 + late + 0.02 * np.random.default_rng(6).standard_normal(n),
        }
    )
    one = against(a, b)
    assert one.parted is not None
    assert one.parted.onset is not None
    assert one.parted.name == "reward.mean"
    assert one.parted.onset.low - 8 <= at <= one.parted.onset.high + 8
    assert not one.parted.from_start
    assert [row.name for row in one.of("different")] == ["reward.mean", "entropy.mean"]


def test_the_same_course_in_half_the_time_is_told_as_that() -> None:
    one = against(
        made({"reward.mean": course(400, 1, pace=3.0, noise=0.01)}),
        made({"reward.mean": course(400, 2, pace=5.4, noise=0.01)}),
    )
    (row,) = one.metrics
    assert row.word == "different"
    assert row.apart is not None
    assert row.apart.lead is not None
    assert 1.5 < row.apart.lead < 2.1


def test_a_shared_start_is_told_to_the_step() -> None:
    values = course(200, 1)
    other = np.where(np.arange(200) < 80, values, course(200, 2) - 0.3)
    one = against(made({"reward.mean": values}), made({"reward.mean": other}))
    assert one.identical == 80
    assert one.parted is not None
    assert one.parted.onset is not None
    assert 70 <= one.parted.onset.step <= 95


def test_the_very_same_run_differs_in_nothing() -> None:
    run = simulated("plain", 3, steps=100)
    one = against(run, run)
    assert {row.word for row in one.metrics} == {"same"}
    assert one.identical == 100
    assert one.parted is None


# ------------------------------------------------------------------------------------------------------ alignment


def test_rows_of_ten_steps_are_compared_with_single_steps() -> None:
    a, b = course(1000, 1, noise=0.05), course(1000, 2, noise=0.05)
    tenth = made({"reward.mean": b.reshape(100, 10).mean(axis=1)}, every=10, first=10)
    one = against(made({"reward.mean": a}), tenth)
    assert word(one, "reward.mean") in ("same", "open")
    assert one.span == (10.0, 1000.0)


def test_only_the_stretch_that_both_cover_is_compared() -> None:
    long = np.append(course(200, 1), np.zeros(100))
    one = against(made({"reward.mean": long}), made({"reward.mean": course(200, 2)}))
    assert one.span == (1.0, 200.0)
    assert word(one, "reward.mean") != "different"
    apart = against(made({"reward.mean": course(50, 1)}), made({"reward.mean": course(50, 2)}, first=100))
    assert apart.span is None
    assert not apart.metrics
    assert "share no stretch" in apart.warnings[0]


def by_tokens(n: int, seed: int, each: float, **more: Any) -> Run:
    """A run whose reward follows the tokens seen, ``each`` of them a step."""
    steps = np.arange(1, n + 1, dtype=np.float64)
    tokens = each * steps
    reward = 0.3 + 0.4 * (1.0 - np.exp(-tokens / 60_000)) + 0.01 * np.random.default_rng(seed).standard_normal(n)
    columns = {m: Column(m, m, steps, v) for m, v in (("reward.mean", reward), ("tokens.total", tokens))}
    return Run(columns=columns, **more)


def test_other_batch_sizes_are_compared_by_token() -> None:
    def knobs(size: int) -> dict[str, Any]:
        return {"knobs": {"train_batch_size": Knob("train_batch_size", size, "batch", "config")}}

    a, b = by_tokens(200, 1, 1_000, **knobs(32)), by_tokens(200, 2, 3_000, **knobs(96))
    by_step = against(a, b)
    assert word(by_step, "reward.mean") == "different"
    assert any("--by token" in said for said in by_step.warnings)
    by_token = against(a, b, by="token")
    assert word(by_token, "reward.mean") == "same"
    assert by_token.span == (3_000.0, 200_000.0)
    assert not by_token.warnings


def test_an_axis_that_a_log_lacks_is_said() -> None:
    run = made({"reward.mean": course(50, 1)})
    for by in ("token", "time"):
        with pytest.raises(BadRequest, match="in every run"):
            against(run, run, by=by)
    with pytest.raises(UnknownName, match="step"):
        compare([run, run], by="epoch")  # type: ignore[arg-type]


def test_seconds_are_added_up_from_step_times() -> None:
    steps = np.arange(10.0, 410.0, 10.0)
    one, two = (
        Run(columns={"time.step": Column("time.step", "t", steps, np.full(40, each)),
                     "reward.mean": Column("reward.mean", "r", steps, course(40, seed))})
        for each, seed in ((2.0, 1), (4.0, 2))
    )  # fmt: skip
    assert against(one, two, by="time").span == (40.0, 800.0)


# ------------------------------------------------------------------------------------------ what is never compared


def with_column(**changes: Any) -> Run:
    return made(
        {}, columns={"kl.ref": replace(Column("kl.ref", "kl", np.arange(1.0, 101.0), course(100, 1)), **changes)}
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"estimator": "k1"}, "another estimator"), ({"status": "structural_zero", "because": "no reference"}, "no reference"),
     ({"status": "filtered"}, "after filtering")],
)  # fmt: skip
def test_quantities_of_another_meaning_are_not_compared(changes: dict[str, Any], says: str) -> None:
    one = against(with_column(estimator="k3") if "estimator" in changes else with_column(), with_column(**changes))
    (row,) = one.metrics
    assert row.word == "incomparable"
    assert says in row.says
    assert "not compared" in render_comparison(
        Comparison(("A", "B"), unexamined(with_column()), "step", (), (one,)), "terminal"
    )


def test_a_reward_of_other_parts_is_compared_part_by_part() -> None:
    def rewarded(seed: int, *parts: str) -> Run:
        run = made({"reward.mean": course(100, seed)})
        return replace(run, components={p: Component(p, replace(run["reward.mean"], metric="part")) for p in parts})

    one = against(rewarded(1, "accuracy", "format"), rewarded(2, "accuracy"))
    assert word(one, "reward.mean") == "incomparable"
    assert word(one, "part.accuracy") == "same"
    assert one.only == (("part.format",), ())


def test_nan_in_one_run_is_a_fact() -> None:
    values = course(100, 2)
    values[60:] = math.nan
    one = against(made({"entropy.mean": course(100, 1)}), made({"entropy.mean": values}))
    (row,) = one.metrics
    assert (row.word, row.exact, row.q_value) == ("different", True, None)
    assert row.onset == Onset(61.0, 61.0, 61.0)
    assert "40 of 100" in row.says


def test_too_few_values_are_open() -> None:
    one = against(made({"reward.mean": course(5, 1)}), made({"reward.mean": course(5, 2) + 9.0}))
    (row,) = one.metrics
    assert row.word == "open"
    assert "too few values: 5 in A and 5 in B" in row.says


# ------------------------------------------------------------------------------------------------------- settings


def setting(name: str, value: Any, key: str = "") -> dict[str, Knob]:
    return {name: Knob(name, value, key or name, "config")}


def test_settings_are_told_by_what_they_are() -> None:
    a = Run(knobs=setting("learning_rate", 1e-6) | setting("clip_low", 0.2) | setting("temperature", 1))
    b = Run(knobs=setting("learning_rate", 3e-6) | setting("clip_low", 0.2) | setting("top_p", 0.9))
    rows = {row.name: row.outcome for row in compare([unexamined(a), unexamined(b)]).settings}
    assert rows == {"learning_rate": "different", "clip_low": "same", "temperature": "one_sided", "top_p": "one_sided"}


def test_settings_that_count_other_things_are_not_called_the_same() -> None:
    trl = Run(
        framework=Framework("trl", "TRL", "1.16.0"), knobs=setting("train_batch_size", 64, "generation_batch_size")
    )
    verl = Run(framework=Framework("verl", "verl"), knobs=setting("train_batch_size", 64, "data.train_batch_size"))
    comparison = compare([unexamined(trl), unexamined(verl)])
    (row,) = comparison.settings
    assert row.outcome == "other_meaning"
    assert "counts answers" in row.says
    assert "counts prompts" in row.says
    assert any("TRL 1.16.0" in said and "verl" in said for said in comparison.others[0].warnings)


def test_three_runs_of_one_setting_give_their_own_spread() -> None:
    rng = np.random.default_rng(8)
    levels = [0.5, 0.56, 0.44, 0.75]
    runs = [
        made(
            {"entropy.mean": level + 0.01 * rng.standard_normal(200)},
            knobs=setting("learning_rate", 1e-6 if i < 3 else 1e-5),
        )
        for i, level in enumerate(levels)
    ]
    comparison = compare([unexamined(run) for run in runs])
    assert [one.repeats for one in comparison.others] == [3, 3, 3]
    assert [word(one, "entropy.mean") == "different" for one in comparison.others] == [False, False, False]
    alone = compare([unexamined(runs[0]), unexamined(runs[3])])
    assert word(alone.others[0], "entropy.mean") == "different"
    assert alone.others[0].repeats == 0


def test_repeats_that_agree_find_what_a_pair_cannot() -> None:
    rng = np.random.default_rng(9)
    runs = [
        made({"entropy.mean": level + 0.004 * rng.standard_normal(300)}, knobs=setting("learning_rate", rate))
        for level, rate in ((0.500, 1), (0.501, 1), (0.499, 1), (0.5005, 1), (0.56, 2))
    ]
    last = compare([unexamined(run) for run in runs]).others[-1]
    assert word(last, "entropy.mean") == "different"


# ------------------------------------------------------------------------------------------------------- findings


def seen(check: str, severity: Severity, step: float = 5.0, **more: Any) -> Finding:
    return replace(Finding(severity, f"{check} is there", onset=Onset(step, step, step)), check=check, **more)


def test_findings_are_gone_new_worse_or_unseen() -> None:
    run = made({"reward.mean": course(40, 1)})
    info, bad = Severity.INFO, Severity.CRITICAL
    no_answers = Examination("mode_collapse", "unexamined", missing=("rollouts",), says="no answers")
    quiet = (Examination("plateau", "examined"), Examination("never_eos", "unexamined", says="no ends"))
    before = (("plateau", bad), ("kl_drift", info), ("truncation", bad), ("never_eos", bad))
    after = (("kl_drift", bad), ("truncation", info), ("grad_spikes", bad), ("mode_collapse", bad))
    first = unexamined(run, *(seen(check, grade) for check, grade in before), checks=(no_answers,))
    second = unexamined(run, *(seen(check, grade) for check, grade in after), checks=quiet)
    comparison = compare([first, second])
    found = {row.check: row.change for row in comparison.others[0].findings}
    # The reference did not run grad_spikes at all, so nothing is known of it there.
    assert found == {"kl_drift": "worse", "grad_spikes": "unseen", "mode_collapse": "unseen", "never_eos": "unseen",
                     "plateau": "gone", "truncation": "better"}  # fmt: skip
    assert failing(comparison, Severity.CRITICAL) == (True, True)
    assert failing(compare([second, replace(second, findings=second.findings[:1])]), Severity.INFO) == (False, False)


# ------------------------------------------------------------------------------------------- forms, command line


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two healthy seeds and a sick run as logs of TRL."""
    folder = tmp_path_factory.mktemp("compared")
    for name, kind, seed in (("a", "plain", 1), ("b", "plain", 2), ("sick", "sudden_collapse", 3)):
        (folder / f"{name}.json").write_text(
            write(scenario(kind, steps=120, seed=seed), dialect="trl", form="trainer_state")
        )
    return folder


@cache
def examined(log: Path) -> Diagnosis:
    """The diagnosis of one of those logs, made once for all tests."""
    return rlclinic.diagnose(rlclinic.read([str(log)]))


def run_cli(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(one) for one in arguments])


def test_the_answer_comes_first_in_every_form(place: Path) -> None:
    comparison = rlclinic.compare([examined(place / f"{name}.json") for name in ("a", "sick")])
    said = to_dict(comparison)
    jsonschema.validate(json.loads(json.dumps(said)), json.loads(schema("comparison")))
    answer = said["against"][0]["says"]
    assert answer.startswith("B is worse than A: ")
    assert said["against"][0]["better"]["run"] == "A"
    assert "B differs from A in" in answer
    assert "first apart at step" in answer
    assert "new" in answer
    terminal = render_comparison(comparison, "terminal", width=100)
    assert " ".join(terminal.split("\n\n")[0].split()).startswith(f"B {answer}"[:60])
    assert "held" not in terminal or max(map(len, terminal.splitlines())) <= 100
    assert any("\u2800" < c < "\u2900" for c in terminal)
    assert render_comparison(comparison, "terminal", ascii=True).isascii()
    markdown = render_comparison(comparison, "markdown")
    assert markdown.startswith("**B** B is worse than A")
    assert "```text" in markdown
    page = render_comparison(comparison, "html")
    assert page.startswith("<!")
    assert "differs from A" in page
    first = said["against"][0]["first_apart"]
    assert first is not None
    assert 60 <= first["onset"]["step"] <= 90


def test_the_command_compares_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["rlclinic.diagnose"], "diagnose", lambda run: examined(Path(run.sources[0].path)))
    told = run_cli("compare", place / "a.json", place / "b.json", "--format", "json", "--fail-on", "warning")
    assert told.exit_code == 0, told.output
    assert not [row for row in json.loads(told.output)["against"][0]["metrics"] if row["word"] == "different"]
    worse = run_cli("compare", place / "a.json", place / "sick.json", "--fail-on", "critical", "-o", place / "page.md")
    assert worse.exit_code == 1
    assert (place / "page.md").read_text(encoding="utf-8").startswith("**B**")
    again = run_cli("compare", place / "a.json", place / "b.json", "-o", place / "page.md")
    assert isinstance(again.exception, BadRequest)
    assert "exists" in str(again.exception)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((), "at least two runs"), (("a.json",), "at least two runs"), (("a.json", "a.json"), "twice"),
     (("a.json", "./a.json"), "is a.json"), (("a.json", "missing.json"), "missing.json"),
     (("a.json", "-"), "standard input"),
     (("a.json", "empty.json"), "empty.json"), (("a.json", "b.json::"), "b.json::")],
)  # fmt: skip
def test_what_cannot_be_compared_is_one_message(
    arguments: tuple[str, ...], says: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (place / "empty.json").write_text("")
    done = run_cli("compare", *arguments)
    assert isinstance(done.exception, rlclinic.RlclinicError), done.output
    assert says in str(done.exception)
    assert "rlclinic diagnose" not in str(done.exception)


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e|`x`" + "y" * 5_000


def test_names_of_a_log_stay_text() -> None:
    columns = {HOSTILE: Column(HOSTILE, HOSTILE, np.arange(1.0, 101.0), course(100, 1), note=HOSTILE)}
    low = {HOSTILE: replace(columns[HOSTILE], values=course(100, 2) - 5.0)}
    parts = {HOSTILE: Component(HOSTILE, columns[HOSTILE])}
    runs = [
        Run(name=HOSTILE, columns=c, components=parts, knobs=setting("model", HOSTILE + str(i), HOSTILE), algorithm=HOSTILE,
            framework=Framework("trl", HOSTILE + str(i)), sources=(Source(HOSTILE, HOSTILE, 1),))
        for i, c in enumerate((columns, low))
    ]  # fmt: skip
    comparison = compare([unexamined(runs[0], seen(HOSTILE, Severity.INFO)), unexamined(runs[1])], names=("A", HOSTILE))
    assert comparison.others[0].of("different")
    for form in ("terminal", "markdown", "html", "json"):
        drawn = render_comparison(comparison, form)
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn
        assert "<script>alert" not in drawn or form != "html"
        assert len(drawn) < 400_000 or form == "html"


def test_names_must_fit() -> None:
    run = made({"reward.mean": course(20, 1)})
    for names in (("A",), ("A", "A")):
        with pytest.raises(BadRequest, match="2 different names"):
            compare([unexamined(run), unexamined(run)], names=names)
    with pytest.raises(BadRequest, match="at least two runs"):
        compare([unexamined(run)])


@pytest.mark.parametrize("values", [np.zeros(50), np.full(50, 1e308), np.full(50, -1e-300), np.r_[np.zeros(49), 1e300]])
def test_no_number_breaks_a_comparison(values: Floats) -> None:
    with np.errstate(all="raise", under="ignore"):
        one = against(made({"grad.norm": values}), made({"grad.norm": course(50, 1)}))
    assert one.metrics


def test_there_are_as_many_families_as_the_rate_is_told_for() -> None:
    assert len(HEALTHY) >= 12
    assert set(HEALTHY) <= set(scenarios())
    assert paired.WINDOWS * paired.IN_WINDOW <= 32
