"""Baselines: which limits move and how far, what a file holds, and what a diagnosis says of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from loud_recipes import RECIPES, SICK, learned, loud, of, rates, warned
from rlclinic.baseline import Learning, judged, learn, read_baseline, to_toml
from rlclinic.baseline.bands import bands, beyond, outside
from rlclinic.baseline.moving import NEAR, Reach, _log, most, movable, start, widened
from rlclinic.checks import BY_NAME, CHECKS
from rlclinic.checks.form import Limit
from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest, BadTable, RlclinicError, UnknownName
from rlclinic.model import Column, Component, Framework, Knob, Run, Severity
from rlclinic.report import render, schema
from rlclinic.simulate import run_from_spec, scenario, write

CUT = "large gradients, cut answers"
MOVABLE = [(one.name, name) for one in CHECKS for name in movable(one)]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [replace(run, name=f"logs/of/someone/run{i}") for i, run in enumerate(of(CUT, (50, 51), steps=60))]


@pytest.fixture(scope="module")
def learning(runs: list[Run]) -> Learning:
    return learn(runs, accept=["truncation", "grad_spikes"])


@pytest.fixture(scope="module")
def text(learning: Learning) -> str:
    return to_toml(learning)


@pytest.fixture(scope="module")
def fresh() -> Run:
    return of(CUT, [70], steps=60)[0]


# ---------------------------------------------------------------- which limits move, and how far


@pytest.mark.parametrize(("check", "name"), MOVABLE)
def test_a_widened_limit_is_wider_and_still_one(check: str, name: str) -> None:
    limit = BY_NAME[check].limits[name]
    before = start(limit)
    assert before > 0
    assert limit.value is not None or Severity.WARNING in limit.grades
    assert limit.value is None or limit.worse == "above", "of a single value a larger one must be the quieter one"
    last = before
    for share in (0.3, 0.6, 1.0):
        factor = most(limit) ** share
        moved = widened(limit, factor)
        now = moved if isinstance(moved, float) else moved["warning"]
        assert now > last if limit.worse == "above" else now < last
        assert limit.moves != "share" or 0 < now < 1
        assert limit.moves != "change" or (now > 1) == (before > 1)
        if isinstance(moved, dict):
            grades = [moved["warning"], moved.get("critical", math.inf if limit.worse == "above" else 0.0)]
            assert grades == sorted(grades, reverse=limit.worse == "below"), "critical comes after warning"
        last = now
    assert limit.moves_to is None or last == pytest.approx(limit.moves_to)


@pytest.mark.parametrize(("check", "name"), MOVABLE)
def test_the_critical_limit_has_a_smaller_cap(check: str, name: str) -> None:
    limit = BY_NAME[check].limits[name]
    grave = limit.grades.get(Severity.CRITICAL)
    if grave is None:
        return
    apart = abs(_log(limit, grave) - _log(limit, start(limit)))
    for share in (0.05, 0.5, 1.0):
        factor = most(limit) ** share
        moved = widened(limit, factor)
        assert isinstance(moved, dict)
        went = abs(_log(limit, moved["critical"]) - _log(limit, grave))
        left = abs(_log(limit, moved["critical"]) - _log(limit, moved["warning"]))
        assert went <= 0.5 * math.log(most(limit)) + 1e-9 or left == pytest.approx(0.1 * apart)
        assert left >= 0.1 * apart - 1e-9


def test_what_no_recipe_excuses_does_not_move() -> None:
    fixed = ("p_", "rows", "answers", "prompts", "points", "steps", "groups", "texts", "warm")
    assert not [pair for pair in MOVABLE if pair[1].startswith(fixed)]
    harm = ("nan_inf", "reward_decline", "sudden_collapse", "regression_forgetting", "logging_bug", "contamination")
    assert not [check for check, _ in MOVABLE if check in harm]


def _limit() -> Limit:
    return Limit("nats", "nats", "ours", grades={Severity.WARNING: 1.0, Severity.CRITICAL: 10.0}, moves="level")


def test_the_margin_shrinks_as_runs_are_added_and_is_bounded() -> None:
    margins = [Reach("x", _limit(), (1.2,) * n).factor / 1.2 for n in (1, 2, 5, 20)]
    assert margins == sorted(margins, reverse=True)
    assert 1.15 < margins[-1] < margins[0] < 2.2
    assert Reach("x", _limit(), (3.5,)).factor == 4.0, "no farther than four times the level"
    wide = Reach("x", _limit(), (0.5, 0.9, 1.6)).factor
    assert wide > Reach("x", _limit(), (0.95, 1.0, 1.05)).factor, "runs that differ more ask for more room"


def test_the_margin_holds_for_a_next_run() -> None:
    """Over many recipes whose runs spread as assumed, about one next run in two hundred is beyond the bound."""
    rng = np.random.default_rng(5)
    for n in (1, 3, 10):
        drawn = np.exp(rng.normal(0.0, 0.15, (250, n + 1)))
        beyond_it = [row[-1] > Reach("x", _limit(), tuple(row[:-1])).factor for row in drawn]
        assert float(np.mean(beyond_it)) < 0.025


# ---------------------------------------------------------------- learning


def test_limits_move_as_far_as_the_runs_ask(learning: Learning, runs: list[Run]) -> None:
    assert {(one.check, one.limit) for one in learning.limits} == {("truncation", "share"), ("grad_spikes", "huge")}
    for one in learning.limits:
        assert (
            one.numbers["warning"]
            > one.before["warning"]
            == BY_NAME[one.check].limits[one.limit].grades[Severity.WARNING]
        )
        assert "2 of 2 healthy runs are above" in one.because
    assert learning.accepted == ("grad_spikes", "truncation")
    assert not warned(runs[0], learning)[0]
    assert [run.name for run in learning.runs] == ["run0", "run1"], "names, never places"


def test_quiet_runs_move_nothing() -> None:
    quiet = learn([scenario("plain", steps=60, seed=1).run])
    assert not quiet.limits
    assert not quiet.accepted
    assert any("margin is wide" in words for words in quiet.told)


def test_sick_runs_are_refused_until_told(runs: list[Run]) -> None:
    with pytest.raises(BadRequest) as refused:
        learn(runs[:1])
    assert "truncation" in str(refused.value)
    assert "--accept grad_spikes,truncation" in str(refused.value)
    with pytest.raises(UnknownName, match="truncation"):
        learn(runs[:1], accept=["truncatoin"])


def test_what_no_widening_silences_is_refused() -> None:
    fallen = scenario("sudden_collapse", steps=60, seed=1).run
    with pytest.raises(BadRequest, match="not healthy by sudden_collapse, since no limit of it may move"):
        learn([fallen], accept=[one.name for one in CHECKS])
    taken = learn([fallen], anyway=True)
    assert any(words.startswith("sudden_collapse goes on warning") for words in taken.told)
    again = judged(replace(fallen, name="again"), taken)
    assert "sudden_collapse" in {f.check for f in again.findings}
    assert any("sudden_collapse warns of them" in words for words in again.baseline.remarks)  # type: ignore[union-attr]


def test_a_log_that_cannot_be_judged_is_refused() -> None:
    short = scenario("plain", steps=60, seed=3).run.upto(20)
    with pytest.raises(BadRequest, match="cannot be judged"):
        learn([short])
    assert learn([short], anyway=True).bands
    with pytest.raises(BadRequest, match="training steps"):
        learn([replace(short, columns={}, components={}, evaluations={})], anyway=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"framework": Framework("verl", "verl")}, "the trainer: trl in a, verl in b"),
        ({"algorithm": "ppo"}, "the algorithm: grpo in a, ppo in b"),
        ({"knobs": {"group_size": Knob("group_size", 16, "n", "config")}}, "the group size: 8 in a, 16 in b"),
    ],
)
def test_runs_of_other_recipes_are_refused(change: dict[str, object], says: str) -> None:
    one = replace(scenario("plain", steps=60, seed=1).run, name="a", framework=Framework("trl", "TRL"))
    other = replace(scenario("plain", steps=60, seed=2).run, name="b", framework=Framework("trl", "TRL"))
    with pytest.raises(BadRequest, match=says):
        learn([one, replace(other, **change)])  # type: ignore[arg-type]


def test_one_run_given_twice_is_refused(runs: list[Run]) -> None:
    with pytest.raises(BadRequest, match="the same numbers"):
        learn([runs[0], replace(runs[0], name="copy")], anyway=True)


# ---------------------------------------------------------------- the file


def test_the_file_is_the_same_for_the_same_runs(runs: list[Run], text: str, tmp_path: Path) -> None:
    assert to_toml(learn(runs[::-1], anyway=True)) == text
    file = tmp_path / "my.toml"
    file.write_text(text, encoding="utf-8")
    assert to_toml(read_baseline(file)) == text
    assert "someone" not in text


DAMAGES = {
    "no TOML": ("[recipe]", "[recipe", "line 7"),
    "another form": ("baseline/1", "baseline/9", "line 4"),
    "an unknown part": ("[recipe]", "[recepe]", "recipe"),
    "an unknown check": ("[limits.truncation.share]", "[limits.truncatoin.share]", "truncation"),
    "an unknown limit": ("[limits.truncation.share]", "[limits.truncation.shard]", "share"),
    "a limit that does not move": ("[limits.truncation.share]", "[limits.entropy_collapse.p_value]", "no recipe excuses"),
    "an unknown grade": ("[limits.truncation.share]\nwarning", "[limits.truncation.share]\nwarming", "warning"),
    "a negative limit": ("[limits.truncation.share]\nwarning = ", "[limits.truncation.share]\nwarning = -", "from 0 on"),
    "no number": ("[limits.truncation.share]\nwarning = ", "[limits.truncation.share]\nwarning = nan #", "nan"),
    "critical first": ("[limits.truncation.share]\nwarning = ", "[limits.truncation.share]\nwarning = 9", "this order"),
    "no runs": ("[[run]]", "[[runs]]", "run"),
    "a band of two lengths": ('[bands."grad.norm"]', '[bands."grad.norm"]\nlow = [1.0]\n[bands.rest]', "share"),
    "a huge number": ("steps = 60", f"steps = 1{'0' * 400}", "steps"),
    "a number of many digits": ("steps = 60", f"steps = 1{'0' * 5000}", "baseline"),
    "accepted what is no check": ('accepted = ["grad_spikes"', 'accepted = [["x"]', "check"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_says_where(damage: str, text: str, tmp_path: Path) -> None:
    before, after, says = DAMAGES[damage]
    assert before in text
    file = tmp_path / "my.toml"
    file.write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises((BadTable, UnknownName)) as told:
        read_baseline(file)
    assert says in str(told.value)
    if damage in ("an unknown check", "an unknown limit", "an unknown grade", "a negative limit"):
        line = text[: text.index(before)].count("\n") + 1 + before.count("\n")
        assert f"line {line}" in str(told.value)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_no_file_breaks_the_reader(data: st.DataObject, text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = text.splitlines()[:60]
    at = data.draw(st.integers(0, len(lines) - 1))
    values = ("[1]", "{}", '"x"', "1e999", "-1", "true", "1979-05-27", "[[[]]]", "{ a = [] }", '"\\u202e"')
    key = lines[at].partition(" = ")[0]
    lines[at] = data.draw(st.one_of(st.sampled_from([f"{key} = {value}" for value in values]), st.text(max_size=20)))
    file = tmp_path_factory.mktemp("files") / "my.toml"
    file.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    told = ""
    try:
        to_toml(read_baseline(file))
    except RlclinicError as problem:
        told = str(problem)
    assert len(told) < 3000
    assert "\u202e" not in told


def test_hostile_names_stay_text(runs: list[Run], tmp_path: Path) -> None:
    bad = '"\x1b[31m</script>\u202e\ud800' + "x" * 100_000
    named = bad[:5_000]  # what readers keep of a key is far shorter
    part = Component(named, runs[0]["reward.mean"])
    strange = replace(runs[0], name=bad, facts={"model": bad}, components={named: part, "odd\n]": part, "fine": part})
    file = tmp_path / "my.toml"
    file.write_text(to_toml(learn([strange], anyway=True)), encoding="utf-8")
    assert file.stat().st_size < 50_000
    learning = read_baseline(file)
    told = judged(replace(runs[1], facts={"model": "other"}), learning)
    for form in ("terminal", "markdown", "json"):
        shown = render(told, form)
        assert not {"\x1b", "\u202e"} & set(shown)
        assert len(shown) < 200_000


# ---------------------------------------------------------------- a diagnosis by it


def test_moved_limits_and_what_they_changed_are_told(learning: Learning, fresh: Run) -> None:
    plain, ours = diagnose(fresh), judged(fresh, learning)
    assert plain.verdict.severity == "warning"
    assert ours.verdict.severity in ("healthy", "info")
    told = ours.baseline
    assert told is not None
    assert {one.check for one in told.softened} == {"truncation", "grad_spikes"}
    assert told.before == "warning"
    shown = " ".join(render(ours, "terminal").split())
    assert "without them the verdict would be WARNING" in shown
    assert "Allowed by your baseline (learned from 2 runs: run0, run1)" in shown
    assert "truncation would be warning and is not told, since your baseline allows share" in shown
    form = json.loads(render(ours, "json"))
    jsonschema.validate(form, json.loads(schema()))
    assert form["baseline"]["verdict_without"] == "warning"
    assert {row["limit"] for row in form["baseline"]["moved"]} == {"share", "huge"}
    assert "baseline" not in json.loads(render(plain, "json"))


def test_a_worse_run_is_still_found_and_says_by_which_limit(learning: Learning, fresh: Run) -> None:
    column = fresh["length.truncated_frac"]
    worse = replace(column, values=np.clip(column.values + 0.4 * column.steps / column.steps[-1], 0, 1))
    found = judged(replace(fresh, columns={**fresh.columns, worse.metric: worse}), learning)
    assert found.verdict.severity in ("warning", "critical")
    assert "truncation" in {f.check for f in found.findings}
    assert "your baseline's: share warning 0.05 ->" in " ".join(render(found, "terminal").split())


def test_your_limits_file_wins(learning: Learning, fresh: Run) -> None:
    ours = judged(fresh, learning, limits={"truncation": {"share": {"warning": 0.06}}})
    assert "truncation" in {f.check for f in ours.findings}
    assert ("truncation.share", "your limits file decides") in ours.baseline.left  # type: ignore[union-attr]


def test_another_recipe_leaves_the_limits_alone(learning: Learning, fresh: Run) -> None:
    other = replace(fresh, knobs={**fresh.knobs, "group_size": Knob("group_size", 64, "n", "config")})
    ours = judged(other, learning)
    assert ours.baseline is not None
    assert ours.baseline.unlike == ("the group size is 64 here and 8 there",)
    assert not ours.baseline.moved
    assert not ours.baseline.bands
    assert "truncation" in {f.check for f in ours.findings}
    assert "Not used, since the recipe is another: the group size is 64" in " ".join(render(ours, "terminal").split())


def test_another_estimator_leaves_its_limits_alone(learning: Learning, fresh: Run) -> None:
    column = replace(fresh["length.truncated_frac"], estimator="counted otherwise")
    ours = judged(replace(fresh, columns={**fresh.columns, column.metric: column}), learning)
    assert [limit for limit, _ in ours.baseline.left] == ["truncation.share"]  # type: ignore[union-attr]
    assert column.metric not in ours.baseline.bands  # type: ignore[union-attr]
    assert "truncation" in {f.check for f in ours.findings}


@pytest.mark.parametrize("what", ["parts", "weights"])
def test_the_level_of_another_reward_is_not_compared(what: str) -> None:
    def made(shift: float, part: str, weights: str) -> Run:
        run = run_from_spec({"preset": "plain", "steps": 60}, int(shift))
        high = replace(run["reward.mean"], values=run["reward.mean"].values + (5.0 if shift == 9 else 0.0))
        knob = Knob("reward_weights", weights, "reward_weights", "config")
        mean = replace(run["reward.mean"], metric=part)
        return replace(
            run, columns={**run.columns, "reward.mean": high}, components={part: Component(part, mean)},
            knobs={**run.knobs, "reward_weights": knob}, name=f"r{shift}", reward_range=None,
        )  # fmt: skip

    learning = learn([made(i, "right", "1.0, 0.5") for i in range(3)], anyway=True)
    same = judged(made(9, "right", "1.0, 0.5"), learning).baseline
    assert same is not None
    assert any("reward" in words for words in same.outside)
    other = judged(made(9, "right" if what == "weights" else "long", "1.0, 2.0"), learning).baseline
    assert other is not None
    assert not other.outside
    assert "reward.mean" not in other.bands
    assert any("levels of the reward are not compared" in words for words in other.remarks)


def test_other_settings_are_told(learning: Learning, fresh: Run) -> None:
    faster = replace(fresh, knobs={**fresh.knobs, "learning_rate": Knob("learning_rate", 5e-6, "lr", "config")})
    assert "learning_rate is 5e-06 here and 1e-06 there" in judged(faster, learning).baseline.remarks  # type: ignore[union-attr]


# ---------------------------------------------------------------- bands


def _flat(levels: Sequence[float], steps: int = 100, planned: int | None = None) -> list[Run]:
    made = []
    for i, level in enumerate(levels):
        rng = np.random.default_rng(i)
        at = np.arange(1.0, steps + 1)
        column = Column("entropy.mean", "entropy", at, level + rng.normal(0, 0.01, steps))
        made.append(Run(name=f"r{i}", columns={"entropy.mean": column}, planned_steps=planned))
    return made


def test_bands_span_the_runs_and_say_how_many() -> None:
    course = bands(_flat([1.0, 1.2, 1.4]))["entropy.mean"]
    assert (course.runs, course.rows, len(course.share)) == (3, 300, 10)
    assert (course.low > 0.97).all()
    assert (course.low < 1.0).all()
    assert (course.high < 1.43).all()
    assert (course.high > 1.4).all()


def test_a_run_that_is_not_over_is_compared_with_the_same_part_of_training() -> None:
    course = bands(_flat([1.0, 1.1], planned=100))["entropy.mean"]
    (half,) = _flat([2.0], steps=50, planned=100)
    below, above, looked = beyond(course, half["entropy.mean"], 100.0)
    assert (below, above, looked) == ([], [0, 1, 2, 3, 4], 5)


def test_being_outside_is_told_from_three_runs_on() -> None:
    vital = {"entropy.mean": "entropy"}
    (far,), (near,) = _flat([2.0]), _flat([1.21])
    three = bands(_flat([1.0, 1.1, 1.2]))
    assert outside(three, far, vital, 0.0) == [
        "entropy is clearly above the band in 10 of 10 tenths of training, from step 1"
    ]
    assert not outside(three, near, vital, 0.0)
    assert not outside(bands(_flat([1.0, 1.1])), far, vital, 0.0), "two runs show too little"


def test_an_end_far_beyond_the_band_is_told_though_the_way_was_within() -> None:
    vital = {"entropy.mean": "entropy"}
    three = bands(_flat([1.0, 1.1, 1.2]))
    (run,) = _flat([1.1])
    column = run["entropy.mean"]
    far = np.where(column.steps > 0.7 * column.steps[-1], 0.4, column.values)
    (said,) = outside(three, replace(run, columns={"entropy.mean": replace(column, values=far)}), vital, 0.0)
    assert said.startswith("entropy ends at 0.4, far below the band there (")
    near = np.where(column.steps > 0.7 * column.steps[-1], 0.85, column.values)
    assert not outside(three, replace(run, columns={"entropy.mean": replace(column, values=near)}), vital, 0.0)


def test_the_hint_names_every_check_or_none(runs: list[Run]) -> None:
    with pytest.raises(BadRequest) as refused:
        learn(runs[:1], accept=["grad_spikes"])
    assert refused.value.hint.startswith("--accept truncation,grad_spikes ")
    with pytest.raises(BadRequest) as refused:
        learn([replace(runs[0], columns={**runs[0].columns, "grad.norm": replace(
            runs[0]["grad.norm"], values=np.where(np.arange(len(runs[0]["grad.norm"])) > 50, np.nan, 1.0))})])  # fmt: skip
    assert "--accept" not in refused.value.hint, "no limit of NaN may move"


def test_a_series_estimated_in_two_ways_has_no_band() -> None:
    one, other = _flat([1.0, 1.1])
    column = replace(other["entropy.mean"], estimator="sampled")
    assert not bands([one, replace(other, columns={"entropy.mean": column})])


def test_bands_reach_the_curves(learning: Learning, fresh: Run) -> None:
    from rlclinic.report.blocks import Curve
    from rlclinic.report.document import document

    drawn = [block for block in document(judged(fresh, learning)) if isinstance(block, Curve)]
    banded = {block.name for block in drawn if block.marks.band is not None}
    assert {"reward.mean", "grad.norm"} <= banded
    for block in drawn:
        if block.marks.band is not None:
            band = block.marks.band
            assert (np.diff(band.steps) > 0).all()
            assert (band.low <= band.high).all()
            assert "2 healthy runs" in band.says


# ---------------------------------------------------------------- the command


def test_the_commands(tmp_path: Path) -> None:
    logs = []
    for seed in (50, 51):
        made = scenario("plain", steps=60, seed=seed)
        log = tmp_path / f"run{seed}.jsonl"
        log.write_text(write(replace(made, run=loud(made.run, CUT, seed)), dialect="trl"), encoding="utf-8")
        logs.append(str(log))
    runner, out = CliRunner(), tmp_path / "my.toml"

    def call(*words: str) -> tuple[int, str]:
        result = runner.invoke(cli, list(words))
        if isinstance(result.exception, RlclinicError):
            return 2, str(result.exception)
        return result.exit_code, result.output

    assert call("baseline", "learn")[0] == 2
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for nothing in (tmp_path / "loop", "x" * 5_000):
        code, said = call("baseline", "learn", str(nothing))
        assert code == 2
        assert "wanted a log file" in said
    code, said = call("baseline", "learn", logs[0], "-o", str(out))
    assert code == 2
    assert "--accept" in said
    assert not out.exists()
    code, said = call("baseline", "learn", logs[0], "-o", str(out), "--accept", "truncation,grad_spikes")
    assert code == 0, said
    assert "moved: truncation.share" in said
    kept = out.read_bytes()
    assert call("baseline", "learn", logs[0], "-o", str(out), "--anyway")[0] == 2, "nothing is overwritten unasked"
    assert call("baseline", "learn", logs[0], "-o", logs[0], "--anyway", "--force")[0] == 2, "an input never is"
    assert call("baseline", "learn", logs[0], logs[0], "--anyway")[0] == 2
    assert out.read_bytes() == kept
    code, said = call("baseline", "show", str(out))
    assert code == 0
    assert "\nreward  " in said
    assert not any(name in said for name in ("reward.mean", "progress.", "run.summary", "optim.lr"))
    loud_still = replace(read_baseline(out), limits=())
    out.write_text(to_toml(loud_still), encoding="utf-8")
    assert "well within" not in call("baseline", "show", str(out))[1], "checks warn of these runs"
    out.write_bytes(kept)
    code, said = call("diagnose", logs[1], "--fail-on", "warning", "--baseline", str(out))
    assert code == 0, said
    assert call("diagnose", logs[1], "--baseline", logs[0])[0] == 2


# ---------------------------------------------------------------- rates (docs/baselines.md)


def test_the_short_way_of_measuring_is_the_diagnosis(learning: Learning, fresh: Run) -> None:
    sick = loud(scenario("entropy_collapse", steps=60, seed=1).run, CUT, 3)
    for run in (fresh, sick):
        said = {f.check for f in judged(run, learning).findings if (f.severity or 0) >= Severity.WARNING}
        assert warned(run, learning) == [said]


@pytest.mark.long
@pytest.mark.parametrize("recipe", RECIPES)
def test_rates(recipe: str) -> None:
    """The table of docs/baselines.md: few healthy runs are warned of, and hardly a sick one is lost."""
    baselines = [learned(recipe, n) for n in (1, 3, 5, 10)]
    before, *after = rates(recipe, (None, *baselines), 40, [(name, 0) for name in SICK])
    assert before.alarms > 0.4, "without a baseline such a recipe warns"
    for rate in after:
        assert rate.alarms <= 0.05, "2 % are wanted; one run in forty is 2.5 %"
        assert rate.found >= before.found - 0.05


def test_near_is_nearer_than_beyond() -> None:
    assert 0.5 < NEAR < 1.0
