"""The tables hold together: names resolve, rows have sources, remedies can be spelled, links are links."""

from __future__ import annotations

import re

import pytest

from rlclinic import names
from rlclinic.errors import BadTable, UnknownName
from rlclinic.model import Framework
from rlclinic.names.rows import MetricRow, release

REAL = [name for name in names.frameworks() if name != "generic"]


def rows(table: names.Table) -> list[MetricRow]:
    return [row for group in table.exact.values() for row in group] + [row for _, row in table.families]


@pytest.mark.parametrize("name", names.frameworks())
def test_every_row_resolves_and_has_a_source(name: str) -> None:
    table = names.load(name)
    assert table.title
    assert table.checked
    assert table.style in ("python", "hydra", "flags", "switches", "toml")
    for row in rows(table):
        assert names.metric(row.name).says
        assert row.source, row
        assert bool(row.key) != bool(row.pattern), row
        assert row.zero in ("", "on_policy", "no_reference", "not_measured"), row
        assert not row.component or "{name}" in row.pattern, row
        for condition in (*row.when, *row.unless):
            assert names.knob(condition).says
        for version in (row.since, row.until):
            assert not version or re.fullmatch(r"\d+\.\d+(\.\d+)?", version), row
    for spelled in (row for group in table.knobs.values() for row in group):
        assert names.knob(spelled.name).says
        assert spelled.source, spelled
        assert not spelled.default_from or spelled.default_from in table.knobs, spelled
        assert not spelled.writes or "{value}" in spelled.writes, spelled
        for one in spelled.defaults:
            assert "value" in one
            assert {"since", "until"} & one.keys(), spelled
    for metric, (writes, *_) in table.enables.items():
        assert names.metric(metric).says
        assert writes
    for mark in table.versions:
        known = mark.get("key") or mark["absent"]
        assert known in table.exact, mark
        assert release(mark.get("since", "") or mark["below"])
        assert "absent" not in mark or mark["beside"] in table.exact


@pytest.mark.parametrize("name", names.frameworks())
def test_one_key_means_one_thing_unless_something_decides(name: str) -> None:
    for key, group in names.load(name).exact.items():
        if len({row.name for row in group}) > 1:
            assert all(row.since or row.until or row.when or row.unless or row.depends for row in group), key


@pytest.mark.parametrize("name", REAL)
def test_two_keys_of_one_metric_are_ranked(name: str) -> None:
    taken: dict[tuple[str, int], str] = {}
    plain = names.load("generic").exact
    for key, group in names.load(name).exact.items():
        for row in group if group != plain.get(key) else ():  # plain words are of equal standing
            if row.name == "run.summary" or row.component:
                continue
            other = taken.setdefault((row.name, row.rank), key)
            assert other == key, f"{key} and {other} both mean {row.name} at rank {row.rank}"


def test_metrics_are_described() -> None:
    for name in names.metrics():
        told = names.metric(name)
        assert re.fullmatch(r"[a-z]+(\.[a-z0-9_]+)+", name)
        assert told.title
        assert len(told.title) <= 40, name
        assert told.direction in ("", "up", "down", "low", "steady")
        assert told.low is None or told.high is None or told.low < told.high
        assert not name.endswith("_frac") or (told.low, told.high) == (0, 1), name


def test_knobs_are_described() -> None:
    for name in names.knobs():
        assert names.knob(name).kind in ("int", "float", "switch", "word", "text")


def test_remedies_hold_together() -> None:
    for id in names.remedies():
        told = names.remedy(id)
        assert re.fullmatch(r"[a-z0-9_]+", id)
        assert told.says
        assert told.risk
        assert told.confirm
        assert told.needs in names.NEEDS
        for turn in told.set:
            assert names.knob(turn.knob).says
            assert not turn.like or names.knob(turn.like).says
            values = (turn.to, turn.times, turn.at_least, turn.at_most)
            assert any(value is not None for value in values), id
        for metric in told.expect:
            assert names.metric(metric).says
        assert not told.expect or told.within, id
        for reference in told.references:
            assert names.reference(reference).claim


@pytest.mark.parametrize("name", REAL)
def test_every_framework_spells_or_refuses_every_remedy(name: str) -> None:
    framework = Framework(name, name)
    for id in names.remedies():
        told = names.remedy(id, framework)
        for turn in told.set:
            assert names.spell(turn.knob, framework), f"{name}: {id} needs {turn.knob}"
    for id, own in names.load(name).remedies.items():
        assert id in names.remedies(), id
        assert set(own) <= {"says", "set", "needs", "writes", "note", "since", "unavailable"}, id
        assert not ("unavailable" in own and own.get("writes")), id
        assert not own.get("since") or release(own["since"]), id
        for changed in own.get("set", {}):
            assert changed in names.load(name).knobs, f"{name}: {id} sets {changed}, which has no row"


@pytest.mark.parametrize("name", REAL)
def test_settings_have_one_row_for_each_version(name: str) -> None:
    for group in names.load(name).knobs.values():
        for row in group:
            assert not row.renamed or row.aliases, row
            assert not row.before or row.since, row
            for version in (row.since, row.until, row.renamed):
                assert not version or re.fullmatch(r"\d+\.\d+(\.\d+)?", version), row


def test_references_are_well_formed() -> None:
    for id in names.references():
        told = names.reference(id)
        assert told.title
        assert told.claim
        assert re.fullmatch(r"https://[\w.\-]+/[\w./\-]+", told.link), id


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"reward\.mean"):
        names.metric("reward.men")
    with pytest.raises(UnknownName, match="group_size"):
        names.knob("groupsize")
    with pytest.raises(UnknownName, match="clip_higher"):
        names.remedy("clip_high")
    with pytest.raises(UnknownName, match="openrlhf"):
        names.load("openrl")
    with pytest.raises(UnknownName):
        names.reference("nothing like it")


def test_a_row_with_an_unknown_field_is_a_bad_table(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {"title": "x", "metric": [{"name": "reward.mean", "kee": "x"}], "knob": [], "enable": []}
    monkeypatch.setattr("rlclinic.names.rows._toml", lambda name: raw)
    names.load.cache_clear()
    with pytest.raises(BadTable):
        names.load("trl")
    names.load.cache_clear()


def test_a_table_without_its_head_is_a_bad_table_that_names_what_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {"library": "x", "metric": [], "knob": []}
    monkeypatch.setattr("rlclinic.names.rows._toml", lambda name: raw)
    names.load.cache_clear()
    with pytest.raises(BadTable, match="title"):
        names.load("trl")
    whole = {**raw, **dict.fromkeys(("title", "checked", "newest", "style"), "x")}
    monkeypatch.setattr("rlclinic.names.rows._toml", lambda name: whole)
    names.load.cache_clear()
    assert names.load("trl").versions == ()  # rows of versions, and what makes a metric appear, may be absent
    names.load.cache_clear()
