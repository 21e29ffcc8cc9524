"""Did the cure work: pairs of runs with a known outcome, remedies told from settings, and every kind of finding."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

import pairs
import rlclinic
from rlclinic import names
from rlclinic.checks import CHECKS
from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest
from rlclinic.model import Change, Column, Diagnosis, Framework, Onset, RewardRange, Run
from rlclinic.report import render_verification
from rlclinic.report.verification import to_dict
from rlclinic.simulate import as_run, run_from_spec, scenario
from rlclinic.simulate.shapes import autoregressive
from rlclinic.stats import recovery
from rlclinic.verify import Cure, Verification, split, taken, verify
from rlclinic.verify.alignment import align, spliced
from rlclinic.verify.judged import KINDS
from rlclinic.verify.levels import incomparable

ILLNESSES = (*pairs.SPECS, *pairs.DESCRIBED)


@cache
def seen(run: Run, *checks: str) -> Diagnosis:
    """The diagnosis of one run, made once."""
    return diagnose(run, only=checks)


def cures(name: str, before: Run, after: Run, **more: Any) -> tuple[Cure, ...]:
    """The verdict on one finding, without looking at what else either run has; none where there is no such finding."""
    return verify(seen(before, name), seen(after, name), **more).cures


def alone(name: str, before: Run, after: Run, **more: Any) -> Cure:
    (cure,) = cures(name, before, after, **more)
    return cure


def plain(steps: int = 300, seed: int = 0, **spec: Any) -> Run:
    return run_from_spec({"preset": "plain", "steps": steps, **spec}, seed)


def later(run: Run, by: int) -> Run:
    return pairs._moved(run, by)


# ------------------------------------------------------------------------------------------------- error rates


def measured(count: int, some: bool) -> tuple[Counter[str], dict[tuple[int, str, float], Counter[str]]]:
    """Verdicts on ``count`` pairs of each illness and outcome (with ``some`` one outcome of each): right, wrong, undecided,
    in all and by rows, way and memory of the noise."""
    total: Counter[str] = Counter()
    parts: dict[tuple[int, str, float], Counter[str]] = {}
    for at, name in enumerate(ILLNESSES):
        for also, truth in enumerate(pairs.BACK):
            if some and (at + also) % 4:
                continue
            for i in range(count):
                k = i + 5 * at + also
                rows, phi = (30, 100, 400)[k % 3], (0.5, 0.9)[k // 9 % 2]
                way = pairs.WAYS[k // 3 % 3] if name != "grad_spikes" else "continued"
                made = pairs.pair(name, truth, way=way, rows=rows, phi=phi, seed=1000 + 7 * i)
                found = cures(name, made.before, made.after)
                if not found:
                    total["not found"] += 1
                    continue
                verdict = found[0].verdict
                word = "undecided" if verdict == "undecided" else "right" if verdict == truth else "wrong"
                total[word] += 1
                parts.setdefault((rows, way, phi), Counter())[word] += 1
    return total, parts


@pytest.mark.slow
def test_verdicts_on_pairs_of_known_outcome(
    request: pytest.FixtureRequest, most_alarms: Callable[[int, float], int]
) -> None:
    """Of all verdicts at most one in twenty is wrong, and of the decided ones nine in ten are right."""
    full = bool(request.config.getoption("--full"))
    total, parts = measured(40 if full else 1, some=not full)
    made = total["right"] + total["wrong"] + total["undecided"]
    assert total["not found"] <= 0.1 * made
    assert total["wrong"] <= most_alarms(made, 0.05), (total, parts)
    decided = total["right"] + total["wrong"]
    assert total["wrong"] <= most_alarms(decided, 0.10), (total, parts)
    long = sum((counts for (rows, _, _), counts in parts.items() if rows == 400), Counter())
    assert long["undecided"] <= 0.2 * long.total(), "a verdict that is never given is of no use"
    if full:
        print(total, *sorted(parts.items()), sep="\n")


def test_the_rows_that_are_asked_for_are_enough() -> None:
    """At the present noise as many more rows bring the interval to a quarter of the way; from a longer run none is asked."""
    healthy, sick = recovery.Window(0.0, 0.01, 1.0, 200, 100.0), recovery.Window(3.0, 0.01, 1.0, 200, 100.0)

    def after(n: int) -> recovery.Way:
        part = recovery.shrinkage(n, 19.0)
        found = recovery.way(healthy, sick, recovery.Window(1.5, part, 1.0, n, 1.0 / part), 19.0)
        assert found is not None
        return found

    short = after(20)
    assert short.more is not None
    assert short.more > 100
    longer = after(20 + short.more)
    assert longer.more == 0
    assert longer.high - longer.low < 0.5 < short.high - short.low


# ------------------------------------------------------------------------------------------------------ formulas


def test_the_interval_of_the_way_back_covers_the_truth() -> None:
    """95 % intervals of a level half of the way back, in noise with memory, hold it in at least nine cases of ten."""
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(60):
        x = autoregressive(rng, 1, 360, 0.9)[0]
        healthy, sick, now = x[:150], 5.0 + x[150:300], 2.5 + x[300:]
        time = recovery.memory(healthy, sick, now)
        first, then, last = (recovery.window(part, time) for part in (healthy, sick, now))
        found = recovery.way(first, then, last, time)
        held += found is not None and found.low <= 0.5 <= found.high
    assert held >= 54


def test_shrinkage_is_that_of_an_autoregressive_mean() -> None:
    n, phi = 40, 0.8
    exact = sum(phi ** abs(i - j) for i in range(n) for j in range(n)) / n**2
    assert recovery.shrinkage(n, (1 + phi) / (1 - phi)) == pytest.approx(exact)
    assert recovery.shrinkage(7, 1.0) == pytest.approx(1 / 7)


def test_rates_are_exact() -> None:
    """Bounds of the ratio from the binomial of the count after the change, given both."""
    found = recovery.rates(20, 400, 3, 100)
    assert found.ratio == pytest.approx(0.6)
    p = 0.25 * found.high / (1 + 0.25 * found.high)
    assert stats.binom.cdf(3, 23, p) == pytest.approx(recovery.LEVEL, rel=1e-3)
    p = 0.25 * found.low / (1 + 0.25 * found.low)
    assert stats.binom.sf(2, 23, p) == pytest.approx(recovery.LEVEL, rel=1e-3)
    assert recovery.rates(0, 400, 0, 100).high == np.inf
    assert recovery.rows_without(0.05) == 146


# ------------------------------------------------------------------------------------------- remedies and settings


def test_every_expectation_of_every_remedy_can_be_judged() -> None:
    for id in names.remedies():
        remedy = names.remedy(id)
        assert set(remedy.moves) == set(remedy.expect), id
        for metric, move in remedy.moves.items():
            names.metric(metric)
            if isinstance(move, str):
                assert move in names.rows.MOVES, (id, metric)
            else:
                assert 0 < len(move) == len(set(move) & set(names.rows.BOUNDS)), (id, metric)


def test_words_and_movements_of_a_remedy_agree() -> None:
    opposite = {"falls": ("rises", "jumps up", "grows"), "rises": ("falls", "stops growing"), "finite": ("logged",)}
    for id in names.remedies():
        remedy = names.remedy(id)
        for metric, move in remedy.moves.items():
            if isinstance(move, str):
                assert not remedy.expect[metric].startswith(opposite.get(move, ())), (id, metric)


def test_kinds_are_checks() -> None:
    assert set(KINDS) <= {check.name for check in CHECKS}


@cache
def truncated(seed: int = 3, rows: int = 100) -> tuple[Run, Run]:
    made = pairs.pair("truncation", "cured", way="continued", rows=rows, phi=0.5, seed=seed)
    return made.before, made.after


@pytest.mark.parametrize(
    ("now", "taken"), [(2048, "taken"), (4096, "taken"), (1536, "partly"), (1024, "not_taken"), (512, "not_taken")]
)
def test_what_was_done_is_read_from_the_settings(now: int, taken: str) -> None:
    before, after = truncated()
    before = pairs.with_knobs(before, max_response_length=1024)
    cure = alone("truncation", before, pairs.with_knobs(after, max_response_length=now))
    budget = next(trial for trial in cure.trials if trial.remedy.id == "response_budget")
    assert budget.taken == taken
    assert cure.verdict == "cured"  # whatever was done, what moved is verified


def test_unknown_settings_are_said_and_others_are_listed() -> None:
    before, after = truncated()
    before = pairs.with_knobs(before, max_response_length=1024, group_size=8)
    knobs = {k: v for k, v in after.knobs.items() if k != "max_response_length"}
    after = pairs.with_knobs(replace(after, knobs=knobs), group_size=16)
    shown = verify(seen(before, "truncation"), seen(after, "truncation"))
    trial = shown.cures[0].trials[0]
    assert trial.taken == "unknown"
    assert "configuration" in trial.says
    assert [(c.knob, c.before, c.after) for c in shown.confounders if c.knob == "group_size"] == [("group_size", 8, 16)]


def test_going_back_to_a_checkpoint_is_told_from_the_steps() -> None:
    early = pairs.pair("entropy_rise", "cured", way="resumed", rows=400, phi=0.5, seed=2)
    cure = alone("entropy_rise", early.before, early.after)
    assert cure.verdict == "cured"
    shown = verify(diagnose(early.before, only=["entropy_rise"]), diagnose(early.after, only=["entropy_rise"]))
    assert (shown.relation, shown.start) == ("resumed", 130.0)


# ---------------------------------------------------------------------------------------- how the runs hang together


def test_a_young_run_says_nothing_about_an_illness_of_age() -> None:
    made = pairs.pair("truncation", "cured", way="fresh", rows=100, phi=0.5, seed=1)
    cure = alone("truncation", made.before, made.after)
    assert cure.verdict == "undecided"
    assert "still well" in cure.says
    assert cure.more is not None
    assert 60 <= cure.more <= 130


def test_rows_of_the_run_before_in_the_log_after_are_left_out() -> None:
    before, after = truncated()
    joined, join = spliced(before, after, 1.0)
    shown = verify(seen(before, "truncation"), seen(joined, "truncation"))
    assert (shown.relation, shown.start, shown.rows) == ("continued", 400.0, 100)
    assert join == 401.0
    assert shown.cures[0].verdict == "cured"


def test_one_log_is_split_at_a_step() -> None:
    before, after = truncated()
    one, two = split(spliced(before, after, 1.0)[0], 400)
    shown = verify(seen(one, "truncation"), seen(two, "truncation"), one_log=True)
    assert shown.cures[0].verdict == "cured"
    assert any("one configuration" in remark for remark in shown.remarks)
    with pytest.raises(BadRequest, match="--at"):
        split(before, 4000)


def test_steps_that_are_counted_anew_are_told_by_the_owner() -> None:
    before, after = truncated()
    cure = alone("truncation", before, later(after, -400), resumed=400.0)
    assert cure.verdict == "cured"


def test_runs_that_cannot_be_a_pair_are_refused() -> None:
    before, after = truncated()
    sick = seen(before, "truncation")

    def refused(run: Run, why: str) -> None:
        with pytest.raises(BadRequest, match=why):
            verify(sick, Diagnosis(run, sick.verdict, (), (), ()))

    refused(before, "same run twice")
    refused(split(after, 492)[1], "at least 10")
    refused(replace(after, columns={}, components={}), "training steps")
    other = Framework("verl", "verl")
    ours = diagnose(replace(before, framework=Framework("trl", "TRL")), only=["truncation"])
    theirs = diagnose(replace(after, framework=other), only=["truncation"])
    with pytest.raises(BadRequest, match="one trainer"):
        verify(ours, theirs)


def test_a_healthy_run_has_nothing_to_verify() -> None:
    shown = verify(diagnose(plain(60)), diagnose(plain(60, seed=1)))
    assert (shown.verdict, shown.cures, shown.new) == ("nothing", (), ())


# ------------------------------------------------------------------------------------------------ kinds of finding


def broken(rows: tuple[int, ...], steps: int = 300, seed: int = 0) -> Run:
    run = plain(steps, seed)
    norm = run.columns["grad.norm"]
    values = norm.values.copy()
    values[list(rows)] = np.nan
    return replace(run, columns={**run.columns, "grad.norm": replace(norm, values=values)})


def test_nan_is_cured_only_when_its_absence_is_unlikely() -> None:
    sick = broken(tuple(range(40, 300, 20)))
    words = {n: alone("nan_inf", sick, later(plain(n, 5), 300)) for n in (20, 100)}
    assert words[20].verdict == "undecided"
    assert (words[20].more or 0) > 20
    assert words[100].verdict == "cured"
    assert "by chance" in words[100].says
    again = alone("nan_inf", sick, later(broken((30, 60, 90), 100, 5), 300))
    assert again.verdict == "no_effect"


def test_a_run_that_broke_for_good_must_pass_that_age_three_times() -> None:
    sick = broken(tuple(range(100, 300)))
    young, old = alone("nan_inf", sick, plain(150, 5)), alone("nan_inf", sick, plain(330, 5))
    assert young.verdict == "undecided"
    assert old.verdict == "cured"


def test_a_setting_is_verified_by_its_check() -> None:
    sick = as_run(scenario("clip_bound_misconfigured"))
    right = later(pairs.with_knobs(sick, clip_high=5.0), 400)
    cure = alone("clip_bound_misconfigured", sick, right)
    assert cure.verdict == "cured"
    assert cure.check == "silent"
    again = alone("clip_bound_misconfigured", sick, later(sick, 400))
    assert again.verdict == "no_effect"


def test_a_restart_can_only_be_verified_by_another() -> None:
    sick = scenario("resume_discontinuity").run
    cure = alone("resume_discontinuity", sick, later(plain(200, 3), 400))
    assert cure.verdict == "undecided"
    assert "cannot be verified" in cure.says


def test_what_was_not_logged_is_cured_when_it_is() -> None:
    sick = scenario("eval_missing").run
    cure = alone("eval_missing", sick, plain(200, 3))
    assert cure.verdict == "cured"


def test_a_metric_that_is_gone_decides_nothing() -> None:
    before, after = truncated()
    blind = replace(after, columns={m: c for m, c in after.columns.items() if "length" not in m})
    cure = alone("truncation", before, blind)
    assert cure.verdict == "undecided"
    assert "not logged after" in cure.says


def test_a_new_illness_is_told_beside_the_cure() -> None:
    before, after = truncated(rows=300)
    spec = {"entropy.mean": {"level": 0.5, "noise": 0.02, "rises": {"to": 3.0, "at": 60, "over": 100}},
            "reward.mean": {"level": 0.5, "noise": 0.02, "falls": {"to": 0.1, "at": 80, "over": 100}},
            "eval.score": {"level": 0.5, "noise": 0.01, "every": 9, "falls": {"to": 0.1, "at": 80, "over": 90}}}  # fmt: skip
    ill = later(plain(300, 9, **spec), 400)
    columns = {**after.columns, **{m: ill.columns[m] for m in spec}}
    looked = ["truncation", "entropy_rise"]
    shown = verify(diagnose(before, only=looked), diagnose(replace(after, columns=columns), only=looked))
    assert shown.cures[0].verdict == "cured"
    assert [finding.check for finding in shown.new] == ["entropy_rise"]
    assert "New since then: entropy_rise" in shown.says


def test_the_recovery_itself_is_no_new_illness() -> None:
    made = pairs.pair("length_shrink", "cured", way="continued", rows=100, phi=0.9, seed=507)
    looked = ["length_shrink", "length_explosion"]
    shown = verify(diagnose(made.before, only=looked), diagnose(made.after, only=looked))
    assert [finding.check for finding in shown.after.findings] == ["length_explosion"]
    assert (shown.verdict, shown.new) == ("cured", ())


def test_a_run_before_that_could_not_be_judged_is_not_taken_for_a_healthy_one(tmp_path: Path) -> None:
    log = "".join(json.dumps({"step": i, "loss": 0.1}) + "\n" for i in range(1, 31))
    for name, by in (("one", 0), ("two", 30)):
        (tmp_path / name).write_text(log if not by else log.replace("0.1", "0.2"), encoding="utf-8")
    done = CliRunner().invoke(cli, ["verify", str(tmp_path / "one"), str(tmp_path / "two"), "--fail-on", "warning"])
    assert done.exit_code == 3, done.output
    assert "the run before could not be judged" in " ".join(done.output.split())


# ------------------------------------------------------------------------------------------ what would be a wrong cure


def test_another_metric_does_not_stand_in_for_the_one_that_is_gone() -> None:
    """A held-out score that is back says nothing of a KL that is no longer logged."""
    made = pairs.pair("kl_drift", "cured", way="continued", rows=100, phi=0.5, seed=3)
    blind = replace(made.after, columns={m: c for m, c in made.after.columns.items() if not m.startswith("kl")})
    sick = diagnose(made.before, only=["kl_drift"])
    sick = replace(sick, findings=(replace(sick.findings[0], metrics=("kl.ref", "reward.mean")),))
    (cure,) = verify(sick, diagnose(blind, only=["kl_drift"])).cures
    assert cure.verdict != "cured"
    assert cure.says.startswith("KL to reference is not logged after the change; reward ")


def test_levels_of_another_scale_are_not_compared() -> None:
    made = pairs.pair("truncation", "cured", way="continued", rows=100, phi=0.5, seed=3)
    share = made.after.columns["length.truncated_frac"]
    percent = replace(share, values=100.0 * share.values)
    columns = {**made.after.columns, share.metric: percent}
    cure = alone("truncation", made.before, replace(made.after, columns=columns))
    assert cure.verdict == "undecided", "a series that cannot be true is as good as not logged"
    pair = align(made.before, made.after)
    one, other = (run.columns["reward.mean"] for run in (made.before, made.after))
    assert incomparable(pair, "reward.mean", one, other) == ""
    wide = replace(pair, before=replace(pair.before, reward_range=RewardRange(0.0, 1.0, "given")),
                   after=replace(pair.after, reward_range=RewardRange(0.0, 5.0, "given")))  # fmt: skip
    assert "another scale" in incomparable(wide, "reward.mean", one, other)
    assert incomparable(wide, share.metric, share, share) == ""
    assert "other units after" in incomparable(pair, share.metric, share, percent)
    k1, k3 = replace(one, metric="kl.ref", estimator="k1"), replace(one, metric="kl.ref", estimator="k3")
    assert "estimated otherwise now (k1 before, k3 after)" in incomparable(pair, "kl.ref", k1, k3)


def stalled(steps: int, at: int, top: float, seed: int) -> Run:
    shape = {"level": 0.2, "noise": 0.02, "rises": {"to": top, "at": 1, "over": at}}
    return plain(steps, seed, **{"reward.mean": shape, "eval.score": {**shape, "every": 10}})


def test_growth_is_no_cure_of_a_plateau_that_is_not_reached_yet() -> None:
    """Before it stood still the run before grew too; and a run that only grows more slowly has passed nothing."""
    sick = stalled(300, 60, 0.6, 0)
    onset = diagnose(sick, only=["plateau"]).findings[0].onset
    assert onset is not None
    words = {
        "young": alone("plateau", sick, stalled(int(onset.high) - 1, 60, 0.6, 5)),
        "slower": alone("plateau", sick, stalled(140, 280, 0.6, 5)),
        "past it": alone("plateau", sick, stalled(300, 280, 0.9, 5)),
    }
    assert {name: cure.verdict for name, cure in words.items()} == {
        "young": "undecided",
        "slower": "undecided",
        "past it": "cured",
    }
    assert "still learned" in words["young"].says
    assert "not yet passed" in words["slower"].says


def test_events_are_counted_from_the_same_age_on() -> None:
    sick = plain(300)
    norm = sick.columns["grad.norm"]
    values = norm.values.copy()
    values[200::10] *= 30.0
    sick = replace(sick, columns={**sick.columns, "grad.norm": replace(norm, values=values)})
    young = alone("grad_spikes", sick, plain(150, 5))
    assert (young.verdict, "still well" in young.says) == ("undecided", True)


def test_groups_that_are_dead_for_another_reason_are_told_as_such() -> None:
    both = {"group.zero_var_frac": {"level": 0.9, "noise": 0.02}}
    wrong = plain(100, 1, **both, **{"reward.mean": {"level": 0.01, "noise": 0.003}})
    right = plain(100, 2, **both, **{"reward.mean": {"level": 0.98, "noise": 0.003}})
    looked = ["zero_variance_all_wrong", "zero_variance_all_right"]
    shown = verify(diagnose(wrong, only=looked), diagnose(right, only=looked))
    assert [(cure.finding.check, cure.verdict) for cure in shown.cures] == [(looked[0], "cured")]
    assert "now, of another kind (zero_variance_all_right)" in shown.cures[0].says
    assert shown.says.startswith("What was wrong is cured, but the run is critical")
    assert "New since then: zero_variance_all_right" in shown.says


def test_a_learning_rate_that_only_the_log_states_is_read_there() -> None:
    steps = np.arange(1.0, 61.0)
    frozen = Column("optim.lr", "lr", steps, np.zeros(60))
    before = replace(plain(60), columns={"optim.lr": frozen}, knobs={})
    after = pairs.with_knobs(replace(before, columns={}), learning_rate=1e-4)
    change = Change("learning_rate", "lr", None, 1e-6, "lr=1e-6")
    assert taken._turned(change, before, after).taken == "taken"
    assert taken._turned(change, replace(before, columns={}), after).taken == "unknown", "neither done nor left undone"


def test_a_level_that_is_not_known_is_told_with_its_reason() -> None:
    made = pairs.pair("truncation", "cured", way="continued", rows=60, phi=0.5, seed=3)
    (found,) = seen(made.before, "truncation").findings
    found = replace(found, metrics=("reward.mean",), onset=Onset(4.0, 4.0, 4.0))
    shown = verify(
        replace(seen(made.before, "truncation"), findings=(found,)),
        seen(made.after, "truncation"),
    )
    assert "only 3 values of reward lie before it fell ill" in shown.cures[0].says


def test_another_model_is_told() -> None:
    before, after = (
        pairs.with_knobs(run, model=name) for run, name in zip(truncated(), ("Qwen/A", "/home/me/B"), strict=True)
    )
    shown = verify(seen(before, "truncation"), seen(after, "truncation"))
    assert any("the model is A before and B after" in words for words in shown.remarks)


# ------------------------------------------------------------------------------------------------ forms and command


@pytest.fixture(scope="module")
def shown() -> Verification:
    before, after = truncated()
    looked = ["truncation", "entropy_collapse"]
    hostile = replace(after, name="<script>\x1b[31m\u202e")
    return verify(diagnose(before, only=looked), diagnose(hostile, only=looked))


@pytest.mark.parametrize("form", ["terminal", "markdown", "html", "json"])
def test_every_form_tells_the_answer_and_is_clean(shown: Verification, form: str) -> None:
    text = render_verification(shown, form)
    assert "cured" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    if form == "html":
        assert "<script>\x1b" not in text


def test_json_follows_its_schema(shown: Verification) -> None:
    from rlclinic.report import schema

    form = json.loads(render_verification(shown, "json"))
    jsonschema.validate(form, json.loads(schema("verification")))
    assert form == json.loads(json.dumps(to_dict(shown)))
    assert form["findings"][0]["way"]["low"] > 0.75


def written(run: Run, path: Path) -> str:
    rows: dict[float, dict[str, float]] = {}
    for metric in ("reward.mean", "entropy.mean", "length.response.mean", "length.truncated_frac"):
        for at, value in zip(run.columns[metric].steps, run.columns[metric].values, strict=True):
            rows.setdefault(at, {})[metric] = float(value)
    path.write_text("".join(json.dumps({"step": int(at), **rows[at]}) + "\n" for at in sorted(rows)), encoding="utf-8")
    return str(path)


def test_the_command(tmp_path: Path) -> None:
    before, after = truncated()
    before, after = before.upto(250), later(after, -150)
    one, two = written(before, tmp_path / "before.jsonl"), written(after, tmp_path / "after.jsonl")
    call = CliRunner()
    done = call.invoke(cli, ["verify", one, two, "--fail-on", "critical", "-o", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "cured"
    both = tmp_path / "both.jsonl"
    both.write_text(Path(one).read_text() + Path(two).read_text(), encoding="utf-8")
    done = call.invoke(cli, ["verify", str(both), "--at", "250", "--fail-on", "warning"])
    assert "The cure worked" in done.output
    assert "one configuration" in done.output


@pytest.mark.parametrize(
    "arguments",
    ["{one}", "{one} {one}", "{one} {one} --at 3", "{one} --at nan", "{one} --at 900", "{one} " + 5_000 * "x"],
)
def test_requests_that_make_no_sense(tmp_path: Path, arguments: str) -> None:
    one = tmp_path / "log.jsonl"
    one.write_text(
        "".join(json.dumps({"step": i, "reward": 0.1 * (i % 3)}) + "\n" for i in range(40)), encoding="utf-8"
    )
    done = CliRunner().invoke(cli, ["verify", *arguments.format(one=one).split()])
    assert done.exit_code != 0
    assert done.exception is None or isinstance(done.exception, (SystemExit, rlclinic.RlclinicError))


def test_the_public_name_is_the_function() -> None:
    import rlclinic.verify.levels

    assert callable(rlclinic.verify)
    assert rlclinic.verify is verify
