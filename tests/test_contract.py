"""What every check must hold to, whatever it looks for: one suite over the whole list."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from rlclinic import names, vitals
from rlclinic.checks import BY_NAME, CHECKS, Check, examine
from rlclinic.diagnose import diagnose
from rlclinic.differential import order
from rlclinic.errors import BadTable
from rlclinic.model import ROLLOUTS, Column, Component, Examination, Finding, Run, Severity
from rlclinic.report import render
from rlclinic.simulate import healthy, scenario, scenarios

SCENARIOS = list(scenarios())
"""Healthy families and illnesses; every check must answer to each of them."""
RUNS = {name: scenario(name, steps=160, seed=5).run for name in SCENARIOS}
FROM_THE_FIRST_STEP = {"reference_wrong": "it speaks of the step before the first update, which a later log lacks"}
EVERY = pytest.mark.parametrize("one", CHECKS, ids=lambda one: one.name)


def look(one: Check, run: Run) -> Examination:
    return examine(one, vitals.complete(run))[0]


def verdict(outcome: Examination) -> tuple[str, Severity | None]:
    return outcome.outcome, outcome.finding.severity if outcome.finding is not None else None


def map_columns(run: Run, change) -> Run:  # type: ignore[no-untyped-def]
    columns = {m: change(c) for m, c in run.columns.items()}
    parts = {
        n: replace(p, mean=change(p.mean), std=None if p.std is None else change(p.std))
        for n, p in run.components.items()
    }
    return replace(run, columns=columns, components=parts)


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_answer_twice_and_run_untouched(name: str) -> None:
    run = RUNS[name]
    before = {m: (c.steps.copy(), c.values.copy()) for m, c in run.columns.items()}
    for one in CHECKS:
        assert look(one, run) == look(one, run), one.name
    for metric, (steps, values) in before.items():
        assert np.array_equal(run[metric].steps, steps)
        assert np.array_equal(run[metric].values, values, equal_nan=True)


@EVERY
def test_unrelated_columns_and_their_order_do_not_matter(one: Check) -> None:
    run = RUNS["plain"]
    noise = Column("perf.mfu", "perf/mfu/actor", run.steps, np.random.default_rng(3).random(len(run.steps)))
    more = replace(run, columns=dict(reversed([*run.columns.items(), ("perf.mfu", noise)])))
    assert verdict(look(one, run)) == verdict(look(one, more))


@EVERY
@pytest.mark.parametrize(
    "odd",
    ["one point", "empty", "all nan", "some nan", "infinite", "constant", "zero", "huge", "tiny", "gaps"],
)
def test_survives_odd_series(one: Check, odd: str) -> None:
    def bend(column: Column) -> Column:
        steps, values = column.steps, column.values.copy()
        if odd == "one point":
            return replace(column, steps=steps[:1], values=values[:1])
        if odd == "empty":
            return replace(column, steps=steps[:0], values=values[:0])
        if odd == "gaps":
            keep = np.random.default_rng(1).random(len(steps)) > 0.7
            return replace(column, steps=steps[keep], values=values[keep])
        if odd == "some nan":
            values[::3] = np.nan
        else:
            fill = {"all nan": np.nan, "infinite": np.inf, "constant": 0.3, "zero": 0.0}
            values = np.full_like(values, fill[odd]) if odd in fill else values * (1e300 if odd == "huge" else 1e-300)
        return replace(column, values=values)

    with np.errstate(all="ignore"):
        outcome = look(one, map_columns(RUNS["plain"], bend))
    assert outcome.outcome != "failed", outcome.says


@EVERY
def test_empty_run(one: Check) -> None:
    assert look(one, Run()).outcome != "failed"


@pytest.mark.parametrize("name", SCENARIOS)
def test_renumbering_steps_moves_only_the_onset(name: str) -> None:
    run = RUNS[name]
    moved = map_columns(run, lambda c: replace(c, steps=c.steps + 1000.0))
    moved = replace(
        moved,
        evaluations={k: replace(c, steps=c.steps + 1000.0) for k, c in run.evaluations.items()},
        seams={at + 1000.0: why for at, why in run.seams.items()},
        planned_steps=None,
    )
    still = replace(run, planned_steps=None)
    for one in CHECKS:
        if one.name in FROM_THE_FIRST_STEP:
            continue
        a, b = look(one, still), look(one, moved)
        assert verdict(a) == verdict(b), one.name
        if a.finding is not None and a.finding.onset is not None:
            assert b.finding is not None
            assert b.finding.onset is not None, one.name
            assert b.finding.onset.step == pytest.approx(a.finding.onset.step + 1000.0, abs=1.0), one.name


@pytest.mark.parametrize("name", SCENARIOS)
def test_finding_is_plain_data(name: str) -> None:
    for one in CHECKS:
        finding = look(one, RUNS[name]).finding
        if finding is None:
            continue
        json.dumps(dict(finding.numbers))
        assert all(type(v) is float for v in finding.numbers.values()), (one.name, finding.numbers)
        assert finding.says, one.name
        assert "\n" not in finding.says, one.name
        assert len(finding.says) < 240, (one.name, finding.says)
        unknown = set(finding.remedies) - set(one.remedies)
        assert not unknown, f"{unknown} is not in {one.name}.toml"
        assert finding.wasted is None or 0.0 <= finding.wasted <= 1.0, one.name
        for dated in (finding.onset, finding.forecast):
            if dated is not None and None not in (dated.low, dated.step, dated.high):
                assert dated.low <= dated.step <= dated.high, one.name  # type: ignore[operator]


def test_an_exception_is_an_outcome_and_shows_in_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: Run, limits: object) -> Finding:
        raise ZeroDivisionError("boom")

    bad = replace(BY_NAME["truncation"], judge=broken)
    monkeypatch.setattr(
        sys.modules["rlclinic.diagnose"], "CHECKS", (bad, *(c for c in CHECKS if c.name != "truncation"))
    )
    diagnosis = diagnose(RUNS["plain"])
    assert next(e for e in diagnosis.checks if e.check == "truncation").outcome == "failed"
    assert diagnosis.verdict.severity == "undecided"
    assert "truncation" in diagnosis.verdict.says


@EVERY
def test_table_is_whole(one: Check) -> None:
    assert one.tier in ("certain", "likely", "hint")
    assert one.status in ("preview", "stable", "deprecated")
    assert set(one.leads_to) <= set(BY_NAME), set(one.leads_to) - set(BY_NAME)
    assert set(one.rivals) <= set(BY_NAME) - {one.name}
    assert one.resume in ("", "here", "before")
    for limit in one.limits.values():
        assert limit.source not in ("", "ours", "judgement", "ours (judgement)"), f"{limit.name}: why this number?"
        assert limit.says
    for reference in one.references:
        assert names.reference(reference).link
    for remedy in one.remedies:
        assert names.remedy(remedy).says
    for need in (*one.needs, *one.uses):
        for metric in need.split("|"):
            assert metric in ("group.all_dead", ROLLOUTS) or names.metric(metric).says
    for heading in ("## What you see", "## Why it matters", "## When it is not a problem"):
        assert heading in one.page


def test_the_graph_of_causes_has_no_cycle() -> None:
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in done:
            for effect in BY_NAME[name].leads_to:
                walk(effect, (*path, name))
            done.add(name)

    for one in CHECKS:
        walk(one.name, ())


def test_a_limit_needs_a_source() -> None:
    class Sourceless(Check):
        table: ClassVar = {"limits": {"share": {"says": "a share", "value": 1.0}}}  # type: ignore[misc]

    with pytest.raises(BadTable):
        _ = Sourceless("x", CHECKS[0].judge, "", (), (), 1, "0.1").limits


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["truncation", "sudden_collapse", "entropy_rise", "nan_inf"])
def test_order_of_findings_does_not_depend_on_the_order_of_checks(name: str, seed: int) -> None:
    found = [e.finding for e in diagnose(RUNS[name]).checks if e.finding is not None and e.finding.severity is not None]
    shuffled = [found[i] for i in np.random.default_rng(seed).permutation(len(found))]
    assert [f.check for f in order(found)] == [f.check for f in order(shuffled)]


@pytest.mark.parametrize("name", SCENARIOS[::5])
def test_verdict_does_not_depend_on_key_order_nor_on_earlier_diagnoses(name: str) -> None:
    run = RUNS[name]
    turned = replace(run, columns=dict(reversed(run.columns.items())))
    first = render(diagnose(run), "json")
    assert first == render(diagnose(copy.copy(run)), "json")
    a, b = diagnose(run), diagnose(turned)
    assert [(f.check, f.severity, f.says) for f in a.findings] == [(f.check, f.severity, f.says) for f in b.findings]


def test_dead_parts_do_not_break_the_weights() -> None:
    run = RUNS["plain"]
    flat = Column("reward.component.mean", "rewards/never/mean", run.steps, np.zeros(len(run.steps)))
    parts = {**run.components, "never": Component("never", flat)}
    assert look(BY_NAME["reward_saturated"], replace(run, components=parts)).outcome != "failed"


def test_healthy_families_exist() -> None:
    assert len(healthy()) >= 8
