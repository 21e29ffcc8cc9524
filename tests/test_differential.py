"""Roots, consequences and rivals: which finding stands behind which, and what would tell two roots apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlclinic.checks import BY_NAME, CHECKS
from rlclinic.diagnose import diagnose
from rlclinic.differential import ancestors, dated, descendants, order, rivalled, told_apart
from rlclinic.model import Finding, Onset, Severity
from rlclinic.simulate import as_run, scenario


def finding(check: str, severity: Severity = Severity.WARNING, at: tuple[float, float, float] | None = None) -> Finding:
    onset = None if at is None else Onset(*at)
    return Finding(severity=severity, says=f"{check} says", check=check, onset=onset, numbers={"share": 1.0})


def test_truncation_to_zero_gradient_is_one_illness_with_one_root() -> None:
    chain = ["truncation", "zero_variance_all_wrong", "zero_gradient_steps", "no_learning"]
    ordered = order(finding(name, Severity.CRITICAL) for name in reversed(chain))
    assert ordered[0].check == "truncation"
    assert [f.check for f in ordered if not f.because_of] == ["truncation"]
    assert descendants("truncation", {f.check: f for f in ordered}) == set(chain[1:])
    assert "truncation" in ancestors("no_learning", {f.check: f for f in ordered})


def test_a_cause_does_not_come_after_its_effect() -> None:
    late, early = (200.0, 190.0, 210.0), (50.0, 45.0, 55.0)
    ordered = order([finding("truncation", at=late), finding("zero_variance_all_wrong", at=early)])
    assert all(not f.because_of for f in ordered)
    overlapping = order([finding("truncation", at=(200, 40, 210)), finding("zero_variance_all_wrong", at=early)])
    assert overlapping[1].because_of == ("truncation",)


def test_a_cause_that_was_there_all_along_acts_before_it_shows() -> None:
    """A part that is paid since the first step; what merely begins later is no cause, however grave."""
    part = finding("dominating_reward_component", at=(59.0, 58.0, 60.0))
    effect = finding("reward_eval_divergence", Severity.CRITICAL, at=(20.0, 20.0, 40.0))
    assert all(not f.because_of for f in order([part, effect]))
    assert order([effect, replace(part, acts_from=1.0)])[1].because_of == ("dominating_reward_component",)


def test_an_information_explains_nothing() -> None:
    ordered = order([finding("truncation", Severity.INFO), finding("zero_variance_all_wrong")])
    assert ordered[0].check == "zero_variance_all_wrong"
    assert not ordered[0].because_of


def test_of_two_as_grave_a_symptom_is_told_last() -> None:
    pair = [finding("plateau"), finding("kl_spike")]
    symptom = [one.name for one in CHECKS if one.symptom]
    assert "plateau" in symptom
    assert [f.check for f in order(pair)] == ["kl_spike", "plateau"]


def test_rivals_name_each_other_and_say_what_would_decide() -> None:
    found = rivalled(order([finding("truncation"), finding("entropy_rise"), finding("reward_decline")]))
    roots = {f.check: f for f in found if not f.because_of}
    for f in roots.values():
        for other in f.rivals:
            assert f.check in roots[other].rivals
            ask = told_apart(f.check, other)
            assert not ask or ask in f.would_decide
    assert all(not f.rivals for f in found if f.because_of)


@pytest.mark.parametrize("one", [c for c in CHECKS if c.rivals], ids=lambda c: c.name)
def test_a_measurement_that_decides_is_found_from_either_side(one: object) -> None:
    name = one.name  # type: ignore[attr-defined]
    for other, ask in BY_NAME[name].rivals.items():
        assert told_apart(name, other) == ask
        assert told_apart(other, name) in (ask, BY_NAME[other].rivals.get(name, ask))


@pytest.mark.parametrize("name", ["truncation", "nan_inf", "sudden_collapse", "never_eos"])
def test_the_graph_of_a_diagnosis_is_whole(name: str) -> None:
    findings = {f.check: f for f in diagnose(as_run(scenario(name, seed=3))).findings}
    for f in findings.values():
        assert set(f.because_of) <= set(findings)
        for effect in f.leads_to:
            assert f.check in findings[effect].because_of
    places = {check: place for place, check in enumerate(findings)}
    assert all(places[cause] < places[f.check] for f in findings.values() for cause in f.because_of)
    assert np.all(np.diff(sorted(places.values())) == 1)


def test_a_mover_that_begins_with_the_cliff_is_part_of_it() -> None:
    cliff = finding("sudden_collapse", Severity.CRITICAL, (200.0, 198.0, 202.0))
    with_it = order([finding("entropy_rise", Severity.CRITICAL, (201.0, 199.0, 203.0)), cliff])
    assert [f.check for f in with_it] == ["sudden_collapse", "entropy_rise"]
    assert with_it[1].because_of == ("sudden_collapse",)
    before = order([finding("entropy_rise", Severity.CRITICAL, (150.0, 140.0, 160.0)), cliff])
    assert [f.check for f in before] == ["entropy_rise", "sudden_collapse"]
    assert before[1].because_of == ("entropy_rise",)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_found_is_placed_once_and_never_in_a_circle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = rng.choice([one.name for one in CHECKS], size=30, replace=False)
    found = []
    for name in names:
        step = float(rng.integers(1, 300))
        at = (
            None if rng.random() < 0.3 else (step, step - float(rng.integers(0, 40)), step + float(rng.integers(0, 40)))
        )
        found.append(finding(str(name), Severity(int(rng.integers(1, 4))), at))
    ordered = order(found)
    assert sorted(f.check for f in ordered) == sorted(map(str, names))
    places = {f.check: i for i, f in enumerate(ordered)}
    assert all(places[cause] < places[f.check] for f in ordered for cause in f.because_of)


def test_no_consequence_is_dated_before_its_cause() -> None:
    """Within two rows both are one event, dated by the cause; a cause of which the effect was there earlier was, too."""
    fall, decline = finding("sudden_collapse", at=(155, 150, 160)), finding("reward_decline", at=(150, 145, 150))
    near = {f.check: f.onset for f in dated(order([fall, decline]), row=5.0)}
    assert near["sudden_collapse"] == fall.onset
    assert near["reward_decline"] == Onset(155, 145, 155)
    cut, dead = finding("truncation", at=(200, 40, 210)), finding("zero_variance_all_wrong", at=(50, 45, 55))
    far = {f.check: f.onset for f in dated(order([cut, dead]), row=1.0)}
    assert far["truncation"] == Onset(55, 40, 210)
    assert far["zero_variance_all_wrong"] == Onset(55, 45, 55)
    after = order([finding("truncation", at=(50, 45, 55)), finding("zero_variance_all_wrong", at=(90, 80, 95))])
    assert dated(after, row=1.0) == after
