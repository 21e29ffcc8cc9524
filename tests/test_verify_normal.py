"""What counts as healthy in a verification: sick rows are no level to come back to, entropy falls in every run that learns,
and a level that went past health is no cure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import pairs
from rlclinic.diagnose import diagnose
from rlclinic.model import Diagnosis, Onset, RewardRange, Run
from rlclinic.simulate import as_run, run_from_spec, scenario
from rlclinic.verify import Cure, verify
from rlclinic.verify.alignment import align
from rlclinic.verify.levels import incomparable

COLLAPSE = pairs.SPECS["entropy_collapse"][1]


def made(seed: int, steps: int = 400, **spec: Any) -> Run:
    return run_from_spec({"preset": "plain", "steps": steps, **spec}, seed)


def only(check: str, *runs: Run) -> list[Diagnosis]:
    return [diagnose(run, only=[check]) for run in runs]


def cure(check: str, before: Run, after: Run) -> Cure:
    (found,) = verify(*only(check, before, after)).cures
    return found


def test_rows_that_set_the_check_off_are_no_healthy_level() -> None:
    """An onset that was found too late leaves sick rows before it: coming back to these is no cure."""
    shape = {"level": 0.28, "noise": 0.02, "rises": {"to": 0.42, "at": 200, "over": 20}}
    before = diagnose(made(1, **{"length.truncated_frac": shape}), only=["truncation"])
    late = replace(before, findings=tuple(replace(f, onset=Onset(201, 199, 203)) for f in before.findings))
    after = diagnose(made(2, **{"length.truncated_frac": {"level": 0.28, "noise": 0.02}}), only=["truncation"])
    (found,) = verify(late, after).cures
    assert found.verdict == "improving"
    assert found.way is not None
    assert found.way.healthy == 0.0
    assert "set the check off too" in found.says


@pytest.mark.parametrize("learns", [True, False])
def test_entropy_is_cured_in_a_fresh_run_that_learns(learns: bool) -> None:
    """Half of the way back is a cure where the rest is what every run loses that learns, and only there."""
    rises = {"rises": {"to": 0.75, "at": 1, "over": 380}} if learns else {}
    after = made(
        5, **{
            "entropy.mean": {"level": 0.9, "noise": 0.03, "falls": {"to": 0.6, "at": 120, "over": 120}},
            "reward.mean": {"level": 0.4, "noise": 0.03, **rises},
            "eval.score": {"level": 0.38, "noise": 0.01, "every": 20, **rises},
        }
    )  # fmt: skip
    found = cure("entropy_collapse", made(4, **COLLAPSE), after)
    assert found.verdict == ("cured" if learns else "improving")
    assert ("normal sharpening" in found.says) == learns


def test_a_run_as_young_as_a_silent_sick_one_decides_nothing_by_learning() -> None:
    rises = {"rises": {"to": 0.75, "at": 1, "over": 150}}
    after = made(
        5, 220, **{
            "entropy.mean": {"level": 0.9, "noise": 0.03, "falls": {"to": 0.75, "at": 120, "over": 40}},
            "reward.mean": {"level": 0.4, "noise": 0.03, **rises},
            "eval.score": {"level": 0.38, "noise": 0.01, "every": 10, **rises},
        }
    )  # fmt: skip
    found = cure("entropy_collapse", made(4, **COLLAPSE), after)
    assert found.verdict == "undecided"
    assert found.more
    assert "would not have fired either" in found.says


@pytest.mark.parametrize("also_in_the_way", [True, False])
def test_past_health_into_the_opposite_illness_is_no_cure(also_in_the_way: bool) -> None:
    to = 2.6 if also_in_the_way else 1.2
    fall = {"falls": {"to": 0.2, "at": 150, "over": 100}} if also_in_the_way else {}
    after = made(
        7, **{
            "entropy.mean": {"level": 0.9, "noise": 0.03, "rises": {"to": to, "at": 120, "over": 80}},
            "reward.mean": {"level": 0.45, "noise": 0.02, **fall},
            "eval.score": {"level": 0.42, "noise": 0.01, "every": 10, **fall},
        }
    )  # fmt: skip
    both = ["entropy_collapse", "entropy_rise"]
    found = verify(diagnose(made(4, **COLLAPSE), only=both), diagnose(after, only=both))
    assert found.verdict == ("overshot" if also_in_the_way else "cured")
    if also_in_the_way:
        assert "went past the healthy level into entropy_rise" in found.cures[0].says
        assert found.says.startswith("The change went too far")


def test_a_floor_is_no_effect_of_a_remedy() -> None:
    found = cure("entropy_collapse", made(4, **COLLAPSE), made(8, **COLLAPSE))
    assert found.verdict == "no_effect"
    (told,) = [move for move in found.moves if move.move == "not_falling"][:1]
    assert told.answer == "open"
    assert "come to rest" in told.says


def test_sameness_without_a_healthy_level_and_with_a_silent_check_is_not_no_effect() -> None:
    """A task solved from the first row on, and a fresh run below the top: the check alone knows the attainable reward."""
    top = {"reward.mean": {"level": 0.985, "noise": 0.003}, "eval.score": {"level": 0.97, "noise": 0.005, "every": 20}}
    span = RewardRange(0.0, 1.0, "given")
    sick, again = (replace(made(seed, **top), reward_range=span, components={}) for seed in (1, 3))
    well = replace(made(2), reward_range=RewardRange(0.0, 1.25, "given"), components={})
    found = cure("reward_saturated", sick, well)
    assert found.verdict == "cured"
    assert "of the attainable 1.25" in found.says
    assert cure("reward_saturated", sick, again).verdict == "no_effect", "as near to the top, and the check says so"


def test_a_reward_of_other_parts_or_weights_is_not_compared() -> None:
    one, other = made(1), made(2)
    assert not incomparable(align(one, other), "reward.mean", one["reward.mean"], other["reward.mean"])
    heavy = pairs.with_knobs(other, reward_weights="1.0, 0.25")
    light = pairs.with_knobs(one, reward_weights="1.0, 1.0")
    says = incomparable(align(light, heavy), "reward.mean", light["reward.mean"], heavy["reward.mean"])
    assert "weighted otherwise" in says
    part = next(iter(one.components.values()))
    more = replace(other, components={**other.components, "length_bonus": replace(part, name="length_bonus")})
    assert "other parts" in incomparable(align(one, more), "reward.mean", one["reward.mean"], more["reward.mean"])


def test_rows_are_not_asked_for_where_the_check_cannot_look() -> None:
    """The metric of the illness is gone from the log: no number of further rows brings it back."""
    drift = {"kl.ref": {"level": 0.02, "noise_share": 0.1, "rises": {"to": 4.0, "at": 5, "over": 20}},
             "eval.score": {"level": 0.1, "noise": 0.01, "every": 20}}  # fmt: skip
    before, after = made(3, 200, **drift), made(4, 200)
    columns = {m: c for m, c in after.columns.items() if not m.startswith("kl.")}
    found = cure("kl_drift", before, replace(after, columns=columns))
    assert found.check == "unseen"
    assert found.verdict == "undecided"
    assert not found.more


@pytest.mark.parametrize(
    ("rate", "steps", "verdict"), [(1e-6, 400, "cured"), (5e-7, 290, "undecided"), (5e-7, 400, "cured")]
)
def test_at_half_the_learning_rate_an_illness_comes_at_twice_the_step(rate: float, steps: int, verdict: str) -> None:
    """A run that takes smaller steps and is still well at the age at which the other fell ill has not shown a cure."""
    plain = {
        k: {a: b for a, b in v.items() if a not in ("rises", "falls")}
        for k, v in pairs.SPECS["entropy_rise"][1].items()
    }
    before = pairs.with_knobs(made(8, **pairs.SPECS["entropy_rise"][1]), learning_rate=1e-6)
    after = pairs.with_knobs(made(9, steps, **plain), learning_rate=rate)
    runs = [replace(run, columns={m: c for m, c in run.columns.items() if m != "optim.lr"}) for run in (before, after)]
    found = cure("entropy_rise", *runs)
    assert found.verdict == verdict
    assert ("would come near step" in found.says) is (verdict == "undecided")


@pytest.mark.parametrize("score", [0.38, 0.30])
def test_a_cure_that_costs_the_held_out_score_is_told(score: float) -> None:
    """A bonus that holds the entropy up may pay for randomness: the metric is back and the task is lost."""
    after = made(
        7, **{
            "entropy.mean": {"level": 0.9, "noise": 0.03},
            "reward.mean": {"level": 0.4, "noise": 0.03},
            "eval.score": {"level": score, "noise": 0.01, "every": 20},
        }
    )  # fmt: skip
    found = verify(*only("entropy_collapse", made(4, **COLLAPSE), after))
    assert found.verdict == "cured"
    assert ("The held-out score is 0.3" in found.says) is (score == 0.30)


def test_a_part_that_was_taken_out_dominates_no_more() -> None:
    """With one part left the check has nothing to compare: that is the cure, not a want of data."""
    before = as_run(scenario("dominating_reward_component", steps=400, seed=1, log_every=1))
    left = {name: part for name, part in before.components.items() if "acc" in name or "correct" in name}
    after = replace(
        made(2), components={k: replace(p, mean=replace(p.mean, values=p.mean.values + 1e-3)) for k, p in left.items()}
    )
    assert len(before.components) > len(after.components) == 1
    assert cure("dominating_reward_component", before, after).verdict == "cured"
