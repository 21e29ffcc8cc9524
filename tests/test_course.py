"""What is told while a run goes on: once, not too early, and at the end what the diagnosis says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replay
from rlclinic.checks import BY_NAME, CHECKS
from rlclinic.diagnose import diagnose
from rlclinic.live import course as rule
from rlclinic.live.course import FIRST, LOOKS, Broken, Course, gap
from rlclinic.live.events import Event
from rlclinic.live.growing import Growing
from rlclinic.model import Column, Diagnosis, Finding, Onset, Run, Severity, Verdict
from rlclinic.readers import read
from rlclinic.simulate import as_run, healthy, scenario

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
SHARED = Path(__file__).parents[2] / "shared" / "corpus" / "trl"
PLAN = 200


def finding(check: str, severity: Severity = WARNING, since: float | None = None) -> Finding:
    onset = None if since is None else Onset(since, since, since)
    return Finding(severity, f"{check} says", check=check, title=f"{check}.", onset=onset)


def seen(
    step: float, *findings: Finding | str, planned: int | None = PLAN, began: float | None = None, first: float = 1.0
) -> Diagnosis:
    """A diagnosis of a run that has come to ``step``."""
    column = Column("reward.mean", "reward", np.array([first, step]), np.zeros(2))
    run = Run(columns={"reward.mean": column}, planned_steps=planned, began=began)
    found = tuple(finding(one) if isinstance(one, str) else one for one in findings)
    return Diagnosis(run, Verdict("healthy", None, ""), found, (), ())


def told(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    return [(event.kind, event.check, event.severity.label) for event in events]


def feed(course: Course, steps: Sequence[float], *findings: Finding | str, **run: Any) -> list[Event]:
    return [event for step in steps for event in course.take(seen(step, *findings, **run))]


# ---------------------------------------------------------------- waiting


def test_a_finding_is_told_once_and_not_at_its_first_looks() -> None:
    course = Course()
    assert feed(course, [20, 24], "truncation") == []
    assert course.open == {}
    assert course.waiting
    events = feed(course, range(28, 200, 4), "truncation")
    assert told(events) == [("opened", "truncation", "warning")]
    assert events[0].step == 32, "5 % of 200 steps after step 20"
    assert course.open == {"truncation": WARNING}
    assert not course.waiting


def test_what_comes_and_goes_is_never_told() -> None:
    course = Course()
    for step in range(20, 200, 4):
        assert course.take(seen(step, *(["plateau", "reward_decline"] if step % 12 else []))) == []
    assert course.open == {}


def test_looks_in_quick_succession_are_not_enough() -> None:
    course = Course()
    assert feed(course, [100 + 0.1 * k for k in range(20)], "truncation") == []


def test_few_looks_are_not_enough_unless_they_lie_far_apart() -> None:
    course = Course()
    assert feed(course, [50, 60], "truncation") == []
    assert LOOKS == 3
    assert told(feed(course, [61], "truncation")) == [("opened", "truncation", "warning")]
    sparse = Course()
    assert feed(sparse, [50], "truncation") == []
    assert told(feed(sparse, [70], "truncation")) == [("opened", "truncation", "warning")], "a row every 20 steps"


def test_what_is_graver_waits_less_and_what_may_still_come_waits_long() -> None:
    at: dict[str, float] = {}
    for check, severity in (("truncation", CRITICAL), ("truncation", WARNING), ("plateau", WARNING)):
        events = feed(Course(), [10 + k for k in range(190)], finding(check, severity))
        at[f"{check} {severity}"] = events[0].step - 10
    assert at["truncation critical"] < at["truncation warning"] < at["plateau warning"]
    assert at["plateau warning"] >= 0.15 * PLAN


def test_nothing_that_only_informs_is_told() -> None:
    course = Course()
    assert feed(course, range(10, 300, 5), finding("truncation", INFO), finding("nan_inf", INFO)) == []
    assert course.take(seen(300, finding("truncation", INFO)), final=True) == []


@pytest.mark.parametrize("planned", [10_000_000, None, 0, 1, -5])
def test_a_plan_that_says_nothing_delays_nothing_for_ever(planned: int | None) -> None:
    steps, step = [], 1000.0
    while step < 40_000:
        steps.append(step)
        step *= 1.03
    assert told(feed(Course(), steps, "truncation", planned=planned)) == [("opened", "truncation", "warning")]
    assert told(feed(Course(), steps, "plateau", planned=planned)) == [("opened", "plateau", "warning")]


# ---------------------------------------------------------------- at once


def test_a_fact_is_told_at_its_first_look_with_its_weight() -> None:
    fact = finding("clip_bound_misconfigured", CRITICAL)
    assert told(Course().take(seen(10, fact))) == [("opened", "clip_bound_misconfigured", "critical")]


def test_one_value_that_is_not_finite_is_a_warning_and_critical_when_it_lasts() -> None:
    course = Course()
    feed(course, [10, 20])
    lasting = [course.take(seen(step, finding("nan_inf", CRITICAL, 21.0))) for step in (21, 24, 27, 30)]
    assert [told(events) for events in lasting] == [
        [("opened", "nan_inf", "warning")],
        [],
        [("worsened", "nan_inf", "critical")],
        [],
    ]
    course = Course()
    feed(course, [10, 20])
    severities = [CRITICAL, WARNING, WARNING, CRITICAL, WARNING, WARNING]
    events = [
        event
        for step, severity in enumerate(severities, 21)
        for event in course.take(seen(step, finding("nan_inf", severity, 21.0)))
    ]
    assert told(events) == [("opened", "nan_inf", "warning")], "single skipped steps"


def test_the_tables_say_when_a_check_is_told() -> None:
    assert all(one.live is None or 0 <= one.live <= 0.5 for one in CHECKS)
    assert all(one.tier == "certain" for one in CHECKS if one.live == 0), "chance makes none of them"
    assert all(one.live > rule.STAND[WARNING][0] for one in CHECKS if one.live)


def test_what_is_open_may_be_asked_for_while_another_thread_looks() -> None:
    course = Course()
    feed(course, range(20, 60, 4), "truncation")

    class Meddled:
        now = int(WARNING)

        @property
        def told(self) -> int:
            course._standing[f"another {len(course._standing)}"] = rule.Standing("plateau", 60.0)
            return int(WARNING)

    course._standing["kl_drift"] = Meddled()  # type: ignore[assignment]
    assert course.open == {"truncation": WARNING, "kl_drift": WARNING}
    assert len(course._standing) == 3


# ---------------------------------------------------------------- worse, milder, gone


def test_worse_is_told_once_and_milder_not_at_all() -> None:
    course = Course()
    events = feed(course, range(20, 60, 4), "truncation")
    events += feed(course, range(60, 120, 4), finding("truncation", CRITICAL))
    assert told(events) == [("opened", "truncation", "warning"), ("worsened", "truncation", "critical")]
    assert feed(course, range(120, 180, 4), "truncation") == []
    assert course.open == {"truncation": WARNING}, "what stands is what the last look saw"
    assert feed(course, range(180, 240, 4), finding("truncation", CRITICAL)) == []
    assert course.open == {"truncation": CRITICAL}


def test_one_critical_look_does_not_shorten_the_wait_of_a_warning() -> None:
    course = Course()
    looks = [finding("plateau", CRITICAL if step == 44 else WARNING) for step in range(20, 60, 4)]
    events = [event for at, one in enumerate(looks) for event in course.take(seen(20.0 + 4 * at, one))]
    assert told(events) == [("opened", "plateau", "warning")]
    assert events[0].step >= 20 + 0.15 * PLAN


def test_one_graver_look_is_not_worse() -> None:
    course = Course()
    feed(course, range(20, 60, 4), "truncation")
    assert feed(course, [60], finding("truncation", CRITICAL)) == []
    assert feed(course, range(64, 120, 4), "truncation") == []


def test_a_short_absence_closes_nothing_and_opens_nothing_again() -> None:
    course = Course()
    feed(course, range(20, 60, 4), "truncation")
    assert feed(course, [60, 64, 68]) == []
    assert course.open == {"truncation": WARNING}
    assert feed(course, range(72, 100, 4), "truncation") == []


def test_what_stays_away_is_closed_once_with_the_reason() -> None:
    course = Course()
    feed(course, range(20, 60, 4), finding("truncation", CRITICAL))
    events = feed(course, range(60, 120, 4))
    assert told(events) == [("closed", "truncation", "critical")]
    assert "no longer seen" in events[0].says
    assert course.open == {}
    assert course.state()["standing"] == []


def test_a_closed_finding_that_only_informs_now_says_so() -> None:
    course = Course()
    feed(course, range(20, 60, 4), "truncation")
    events = feed(course, range(60, 120, 4), finding("truncation", INFO))
    assert [event.says for event in events] == ["it is no warning any more: truncation says"]


def test_events_of_a_look_come_in_the_order_of_the_diagnosis_and_closed_ones_last() -> None:
    course = Course()
    feed(course, range(20, 40, 4), "plateau", "entropy_rise")
    feed(course, range(40, 100, 4), "kl_drift", "entropy_rise")
    events = course.take(seen(104, "sudden_collapse", "kl_drift", "reward_decline"), final=True)
    assert [(event.kind, event.check) for event in events] == [
        ("opened", "sudden_collapse"),
        ("opened", "reward_decline"),
        ("closed", "entropy_rise"),
    ]


def test_a_course_follows_as_many_findings_as_there_are_checks() -> None:
    course = Course()
    for step in range(20, 400, 2):
        course.take(seen(step, *(one.name for one in CHECKS[step % 7 :])))
    assert len(course.state()["standing"]) <= len(CHECKS)
    assert len(json.dumps(course.state())) < 400 * len(CHECKS)


# ---------------------------------------------------------------- resumed and begun anew


def test_a_resume_raises_no_second_alarm() -> None:
    course = Course()
    events = feed(course, range(20, 100, 4), "truncation")
    events += feed(course, range(81, 160, 4), "truncation")
    assert told(events) == [("opened", "truncation", "warning")]


def test_what_waits_is_still_told_after_a_resume() -> None:
    course = Course()
    assert feed(course, [150, 154], "truncation") == []
    assert told(feed(course, range(90, 140, 4), "truncation")) == [("opened", "truncation", "warning")]


def test_a_run_that_begins_anew_starts_over_and_says_so() -> None:
    course = Course()
    feed(course, range(20, 100, 4), "truncation")
    feed(course, [100, 104], "plateau", "truncation")
    events = feed(course, [106], began=105.0)
    assert told(events) == [("closed", "truncation", "warning")]
    assert "began anew at step 105" in events[0].says
    assert course.open == {}
    again = feed(course, range(120, 200, 4), "truncation", began=105.0)
    assert told(again) == [("opened", "truncation", "warning")], "the new attempt is told of its own"


def test_what_the_whole_log_shows_is_no_news_after_a_new_beginning() -> None:
    course = Course()
    feed(course, range(20, 100, 4), "nan_inf")
    assert feed(course, range(106, 160, 4), "nan_inf", began=105.0) == []
    assert course.open == {"nan_inf": WARNING}


# ---------------------------------------------------------------- whatever comes

NAMES = ["truncation", "nan_inf", "plateau", "kl_drift", "eval_missing"]
looks = st.lists(
    st.tuples(
        st.integers(-3, 40),
        st.dictionaries(st.sampled_from(NAMES), st.sampled_from(list(Severity)), max_size=5),
        st.sampled_from([None, None, None, 50.0]),
    ),
    max_size=60,
)


def played(sequence: list[tuple[int, dict[str, Severity], float | None]]) -> list[Diagnosis]:
    step, made = 10.0, []
    for ahead, found, began in sequence:
        step = max(2.0, step + ahead)
        made.append(seen(step, *(finding(name, severity, step) for name, severity in found.items()), began=began))
    return made


@given(looks)
@settings(max_examples=60)
def test_each_check_is_opened_worsened_and_closed_in_turn(sequence: Any) -> None:
    course, stands = Course(), dict[str, Severity]()
    diagnoses = played(sequence)
    for at, diagnosis in enumerate(diagnoses):
        for event in course.take(diagnosis, final=at == len(diagnoses) - 1):
            if event.kind == "opened":
                assert event.check not in stands
                stands[event.check] = event.severity
            elif event.kind == "worsened":
                assert event.severity > stands[event.check]
                stands[event.check] = event.severity
            else:
                assert stands.pop(event.check) == event.severity
        assert stands.keys() == course.open.keys()
    if diagnoses:
        last = {f.check: f.severity for f in diagnoses[-1].findings if (f.severity or 0) >= WARNING}
        assert course.open == last, "nothing waits at the last look"


@given(looks, st.integers(0, 60))
@settings(max_examples=60)
def test_a_course_goes_on_from_its_state(sequence: Any, at: int) -> None:
    course = Course()
    for index, diagnosis in enumerate(played(sequence)):
        other = Course.from_state(json.loads(json.dumps(course.state()))) if index == at else course
        assert told(other.take(diagnosis)) == told(course.take(diagnosis)) if other is not course else True
        if other is course:
            continue
        assert other.state() == course.state()


def test_events_repeat_from_a_saved_state() -> None:
    course = Course()
    feed(course, [20, 24], "truncation")
    other = Course.from_state(json.loads(json.dumps(course.state())))
    assert told(feed(other, [28, 32], "truncation")) == told(feed(course, [28, 32], "truncation"))
    assert other.state() == course.state()


# ---------------------------------------------------------------- state


def a_state() -> dict[str, Any]:
    course = Course()
    feed(course, range(20, 60, 4), "truncation", "plateau")
    return dict(json.loads(json.dumps(course.state())))


def test_fields_that_are_not_known_are_passed_over() -> None:
    state = a_state()
    state["mood"] = {"of": "tomorrow"}
    state["standing"][0]["colour"] = [1, 2]
    assert Course.from_state(state).state() == a_state()


def test_a_check_of_another_version_is_passed_over() -> None:
    state = a_state()
    state["standing"].append({**state["standing"][0], "check": "no_such_check"})
    assert Course.from_state(state).state() == a_state()


def test_a_field_that_is_missing_has_its_first_value() -> None:
    state = a_state()
    del state["standing"][0]["missed"]
    assert Course.from_state(state).open == Course.from_state(a_state()).open


DAMAGE: Mapping[str, Any] = {
    "nothing": {},
    "version": {**a_state(), "form": 99},
    "list": {**a_state(), "standing": {"truncation": 1}},
    "row": {**a_state(), "standing": [None]},
    "too many": {**a_state(), "standing": a_state()["standing"] * 1000},
    "last": {**a_state(), "last": "later"},
    "began": {**a_state(), "began": [1]},
    "infinite": {**a_state(), "last": float("inf")},
    **{
        f"{name} {value!r}"[:40]: {**a_state(), "standing": [{**a_state()["standing"][0], name: value}]}
        for name, value in [
            ("check", "x" * 10_000),
            ("check", 3),
            ("since", None),
            ("since", "1"),
            ("since", float("nan")),
            ("seen", -1),
            ("seen", 1.5),
            ("seen", True),
            ("seen", 10**400),
            ("told", 7),
            ("now", "critical"),
            ("now", 0),
            ("title", 5),
            ("title", "x" * 10_000),
            ("missed_since", []),
        ]
    },
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_state_is_a_value_error(damage: str) -> None:
    with pytest.raises(ValueError, match="state of a course"):
        Course.from_state(DAMAGE[damage])


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*a_state(), "x"]), inner),
    max_leaves=8,
)


@given(json_like, st.dictionaries(st.sampled_from(["since", "seen", "now", "told", "check", "title"]), json_like))
@settings(max_examples=40)
def test_any_state_is_read_or_refused(anything: Any, row: dict[str, Any]) -> None:
    for state in (anything, {**a_state(), "standing": [{**a_state()["standing"][0], **row}]}):
        try:
            course = Course.from_state(state)
        except ValueError:
            continue
        course.take(seen(100, "truncation"), final=True)
        assert course.open == {"truncation": WARNING}


# ---------------------------------------------------------------- when to look


def test_looks_lie_ever_further_apart() -> None:
    at, looks = [FIRST], 0
    while at[-1] < 1_000_000:
        at.append(at[-1] + gap(at[-1], False))
        looks += 1
    assert looks < 130
    assert all(after > before for before, after in pairwise(at))
    assert gap(2000, False) <= 0.1 * 2000


@given(st.integers(1, 100_000))
@settings(max_examples=40)
def test_looks_lie_on_one_grid(rows: int) -> None:
    soon, usual = gap(rows, True), gap(rows, False)
    assert 1 <= soon <= usual
    assert rows + gap(rows + soon - 1, True) + soon - 1 == rows + soon
    if rows >= FIRST:
        assert soon <= max(5, round(0.03 * rows)), "a row that is late for its look is not late for the next"


def test_the_first_value_that_is_not_finite_calls_for_a_look() -> None:
    broken = Broken()
    assert not broken.new({"loss": 1.0, "note": "nan", "n": None, "k": 10**400, 3: float("nan")})  # type: ignore[dict-item]
    assert broken.new({"loss": float("nan")})
    assert not broken.new({"loss": float("inf")})
    assert broken.new({"loss": 1.0, "grad_norm": float("inf")})
    calls = sum(broken.new({f"key {k}": float("nan")}) for k in range(1000))
    assert calls <= Broken.MOST_KEYS


# ---------------------------------------------------------------- whole runs


def test_healthy_runs_are_left_alone(request: pytest.FixtureRequest) -> None:
    families = healthy() if request.config.getoption("--full") else healthy()[4:12:4]
    for row, family in enumerate(families):
        made = replay.play(as_run(scenario(family, steps=150, seed=31_000 + row, phi=(0.5, 0.9)[row % 2])))
        assert made.events == [], family
        assert made.open == made.batch


@pytest.mark.long
@pytest.mark.slow
def test_false_alarms_of_a_whole_run(most_alarms: Callable[[int, float], int]) -> None:
    made = replay.of_healthy(replay.healthy_runs(200, seed=80_000))
    assert made["unequal"] == 0
    assert made["alarmed"] <= most_alarms(made["runs"], 0.05), made


@pytest.mark.parametrize("name", ["never_eos", "nan_inf"])
def test_a_sick_run_is_told_early_and_ends_as_its_diagnosis(name: str) -> None:
    made = scenario(name, steps=100, seed=5)
    shown = replay.play(as_run(made))
    onset = min(step for step in made.truth.values() if step is not None)
    assert replay.spent(shown, onset, made.truth) < 1 / 3
    assert {event.check for event in shown.opened} <= set(made.truth) | replay.consequences(made.truth) | set(made.may)
    assert shown.open == shown.batch


corpus = pytest.mark.skipif(not SHARED.is_dir(), reason="the labelled logs are not beside the project")


@corpus
def test_a_real_sick_run_is_told_early() -> None:
    shown = replay.play(read([SHARED / "too_hard" / "metrics.jsonl"]))
    assert replay.spent(shown, 1.0, ["zero_variance_all_wrong"]) < 1 / 3
    assert shown.open == shown.batch


@corpus
def test_a_real_resume_row_by_row() -> None:
    """Rows as they came, those that the resumed trainer wrote again included."""
    growing, course, events, due = Growing(framework="trl@1.16.0"), Course(), list[Event](), 40
    rows = (SHARED / "resumed" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    for line in rows:
        growing.add(json.loads(line))
        if growing.rows >= due:
            events += course.take(diagnose(growing.run()))
            due = growing.rows + gap(growing.rows, course.waiting)
    whole = diagnose(growing.run())
    events += course.take(whole, final=True)
    opened = [event.check for event in events if event.kind == "opened"]
    assert len(opened) == len(set(opened)), opened
    assert course.open == replay.loud(whole)


def test_every_check_that_waits_differently_exists() -> None:
    assert rule.CLOSE > rule.STAND[WARNING] > rule.STAND[CRITICAL]
    assert BY_NAME["truncation"].live is None
    assert BY_NAME["eval_missing"].live
