"""What a report says to do first: the change that acts on the cause, and from where to go on."""

from __future__ import annotations

import pytest

from casebook import cases
from rlclinic.diagnose import diagnose
from rlclinic.model import Finding, Severity
from rlclinic.simulate import load_spec, run_from_spec

CASES = {f"{case.check}: {case.title}": case.spec for case in cases()}


def told(spec: str, check: str) -> Finding:
    described = CASES[spec] if spec in CASES else load_spec(spec)
    return next(iter(diagnose(run_from_spec(described), only=[check]).findings))


FIRST = [
    ("clip_saturation: Seven in a hundred, and the policy gets worse", "clip_saturation", "updates_per_batch"),
    ("plateau: Flat in training, solved elsewhere", "plateau", "score_gold_answers"),
    ("plateau: Nine tenths of a long run are flat", "plateau", "harder_data"),
    ("truncation: Answers outgrow the limit", "truncation", "response_budget"),
]


@pytest.mark.parametrize(("spec", "check", "remedy"), FIRST)
def test_the_first_change_acts_on_the_cause(spec: str, check: str, remedy: str) -> None:
    ready = [one.id for one in told(spec, check).prescriptions if one.applies and one.id != "roll_back"]
    assert ready[0] == remedy


NEVER_ENDED = """
steps = 200
preset = "plain"
drop = [
    "length.response.mean", "length.response.min", "length.response.max", "length.terminated.min", "length.terminated.max",
]
["length.truncated_frac"]
level = 0.985
noise = 0.008
high = 1.0
["length.terminated.mean"]
level = 80
noise = 30
[knobs]
max_response_length = 400
"""


def test_where_nothing_ended_the_end_token_comes_before_a_longer_limit() -> None:
    ready = [one.id for one in told(NEVER_ENDED, "truncation").prescriptions if one.applies]
    assert ready[:2] == ["stop_tokens", "response_budget"]


SUNK = """
steps = 200
preset = "plain"
drop = ["part.accuracy"]
["reward.mean"]
level = 0.55
noise = 0.04
{reward}
["eval.score"]
level = 0.60
noise = 0.015
every = 20
falls = {{ to = 0.35, at = 60, over = 140, form = "linear" }}
"""


@pytest.mark.parametrize(
    ("reward", "says", "audited"),
    [
        ("", "held", True),
        ('falls = { to = 0.46, at = 60, over = 140, form = "linear" }', "ended lower, too", False),
    ],
)
def test_a_verifier_is_doubted_only_where_the_reward_did_not_sink_as_well(
    reward: str, says: str, audited: bool
) -> None:
    found = told(SUNK.format(reward=reward), "reward_decline")
    assert found.says.endswith(f"while the training reward {says}")
    assert ("audit_verifier" in found.remedies) == audited


HIGH_RATE = """
steps = 300
preset = "plain"
drop = ["part.accuracy"]
[knobs]
lora = 16
learning_rate = 4e-4
["optim.lr"]
level = 4e-4
["kl.ref"]
level = 0.004
noise_share = 0.06
rises = { to = 0.32, at = 4, over = 50 }
["reward.mean"]
level = 0.60
noise = 0.02
["eval.score"]
level = 0.60
noise = 0.02
every = 15
"""


def test_a_rate_that_did_no_harm_sends_nobody_back() -> None:
    found = told(HIGH_RATE, "lr_too_high")
    assert found.severity == Severity.WARNING
    assert (found.resume, found.rollback) == ("here", None)


def test_a_change_is_not_told_twice_under_two_names() -> None:
    written = [change.writes for one in told(HIGH_RATE, "lr_too_high").prescriptions for change in one.changes]
    assert len(written) == len(set(written))


def test_what_pays_against_the_task_is_not_cured_by_scaling() -> None:
    lost = "dominating_reward_component: Style has twenty times the weight, and accuracy falls"
    still = "dominating_reward_component: The format is learnt and accuracy stands still for 400 steps"
    assert "advantage_scaling" not in told(lost, "dominating_reward_component").remedies
    assert "advantage_scaling" in told(still, "dominating_reward_component").remedies
