"""What is written in a framework's own words and layout, or into a tracker's store, is read as the same run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from click import unstyle
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import containers
from containers import Rows
from rlclinic import names
from rlclinic.cli import cli
from rlclinic.diagnose import diagnose
from rlclinic.errors import UnknownName
from rlclinic.model import Column, Component, Run, Severity
from rlclinic.readers import read
from rlclinic.simulate import DIALECTS, Scenario, as_run, configuration, forms, scenario, write
from rlclinic.simulate.layouts import Layout

EVERY_FORM = [(name, form) for name in DIALECTS for form in forms(name)]
WHOLE = ("tokens.", "length.response.m", "length.terminated.m", "progress.")
SHARES = ("frac", "entropy", "eval.score", "reward.")
few = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a Draft is small as it is
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Draft:
    """What a small run is made of: rows, spacing, evaluations, which values are not finite, and the seed of the rest."""

    rows: int
    every: int
    held_out: int
    odd: tuple[tuple[int, int, float], ...]
    parts: int
    seed: int


drafts = st.builds(
    Draft,
    rows=st.integers(2, 20),
    every=st.sampled_from([1, 1, 2, 5, 10]),
    held_out=st.integers(0, 4),
    odd=st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 19), st.sampled_from([math.nan, math.inf, -math.inf])), max_size=4
    ).map(tuple),
    parts=st.integers(0, 2),
    seed=st.integers(0, 2**32 - 1),
)


def drawn(draft: Draft) -> Scenario:
    """A scenario of arbitrary numbers within what each metric allows; the first row is always finite."""
    model = scenario("plain", steps=20)
    rng = np.random.default_rng(draft.seed)
    steps = draft.every * np.arange(1.0, draft.rows + 1)
    columns = {}
    for metric, shape in model.run.columns.items():
        values = rng.normal(0.0, 1.0, draft.rows) * 10.0 ** rng.integers(-5, 3)
        if any(word in metric for word in SHARES):
            values = rng.integers(0, 65, draft.rows) / 64.0
        elif metric.startswith(WHOLE):
            values = np.cumsum(rng.integers(1, 2000, draft.rows)).astype(float)
        elif metric.startswith(("grad", "optim", "kl", "time")):
            values = np.abs(values)
        columns[metric] = replace(shape, steps=steps, values=values, resolution=0.0)
    usual = [metric for metric in columns if metric not in ("eval.score", "loss.total", "time.step")]
    for which, row, value in draft.odd:
        if row < draft.rows:
            columns[usual[which % len(usual)]].values[row] = value
    held = sorted({int(rng.integers(1, draft.rows + 1)) for _ in range(draft.held_out)})
    if held:
        at = draft.every * np.array(held, dtype=float)
        columns["eval.score"] = Column("eval.score", "eval.score", at, rng.integers(0, 101, len(at)) / 100.0)
    else:
        columns.pop("eval.score", None)
    parts = {
        name: Component(name, *(replace(columns["reward.mean"], values=rng.random(draft.rows)) for _ in range(2)))
        for name in ("accuracy", "format")[: draft.parts]
    }
    planned = int(steps[-1]) + draft.every * (draft.seed % 3) * draft.rows
    run = replace(
        model.run, columns=columns, components=parts, evaluations={}, planned_steps=planned, seams={}, knobs={}
    )
    return replace(model, run=run, settings={**model.settings, "logging_every": draft.every}, own=())


def surviving(column: Column, layout: Layout) -> Column:
    """What the form leaves of a column whose values are not all finite."""
    keep = np.ones(len(column), dtype=bool)
    values = column.values
    if layout.keeps == "dropped":
        keep = np.isfinite(values)
    elif layout.keeps == "nan dropped":
        keep = ~np.isnan(values)
    elif layout.keeps == "null":
        values = np.where(np.isfinite(values), values, np.nan)
    return replace(column, steps=column.steps[keep], values=values[keep])


def pairs(wanted: Run, found: Run) -> Iterator[tuple[str, Column, Column | None]]:
    for metric, column in wanted.columns.items():
        yield metric, column, found.columns.get(metric)
    for name, part in wanted.components.items():
        got = found.components.get(name)
        yield f"part {name} mean", part.mean, got.mean if got is not None else None
        if part.std is not None:
            yield f"part {name} std", part.std, got.std if got is not None else None


def same(wanted: Run, found: Run, layout: Layout, *, keys: bool = True) -> None:
    """Every column of ``wanted`` is in ``found``: the same steps, the same key, values equal as finely as printed."""
    for name, column, got in pairs(wanted, found):
        left = surviving(column, layout)
        if not len(left):
            continue
        assert got is not None, f"{name} ({column.key}) was not read"
        np.testing.assert_array_equal(got.steps, left.steps, err_msg=name)
        rtol, atol = next(((r, a) for metric, r, a in layout.coarse if metric == name), (layout.rtol, layout.atol))
        np.testing.assert_allclose(
            got.values, left.values, rtol=1.001 * rtol + 1e-12, atol=1.001 * atol + 1e-300, err_msg=name
        )
        if keys:
            assert got.key == column.key, name
    assert found.components.keys() == wanted.components.keys()
    assert ("eval.score" in found) == ("eval.score" in wanted)
    if layout.planned:
        assert found.planned_steps == wanted.planned_steps


@pytest.mark.parametrize(("dialect", "form"), EVERY_FORM)
@given(draft=drafts)
@few
def test_what_a_trainer_writes_is_read_as_the_same_run(dialect: str, form: str, draft: Draft) -> None:
    made, layout = drawn(draft), DIALECTS[dialect].forms[form]
    wanted = as_run(made, dialect, form=form)
    found = read(["-"], stdin=write(made, dialect, form).encode(), framework=given_as(dialect))
    same(wanted, found, layout, keys=not layout.only)


def given_as(dialect: str) -> str | None:
    if dialect not in names.frameworks():
        pytest.skip(f"no table of {dialect}")
    version = DIALECTS[dialect].version
    return f"{dialect}@{version}" if version else dialect


@pytest.mark.parametrize(("dialect", "form"), EVERY_FORM)
def test_the_log_says_whose_it_is(dialect: str, form: str) -> None:
    found = read(["-"], stdin=write(scenario("plain", steps=30), dialect, form).encode())
    kin = KIN.get((dialect, form), {dialect})
    assert (found.framework.name if found.framework else None) in kin


@pytest.mark.parametrize("name", ["plain", "nan_inf"])
@pytest.mark.parametrize(("dialect", "form"), EVERY_FORM)
def test_what_a_form_does_to_nan_is_declared(dialect: str, form: str, name: str) -> None:
    found = read(["-"], stdin=write(scenario(name, steps=20), dialect, form).encode())
    assert found.nonfinite in {DIALECTS[dialect].forms[form].keeps.removeprefix("nan "), "unknown"}


OLDER = [
    *(("trl", version) for version in ("0.14.0", "0.17.0", "0.19.1", "0.26.2", "1.0.0")),
    *(("openrlhf", "0.8.9"), ("openrlhf", "0.9.7"), ("nemo_rl", "0.4.0"), ("slime", "0.1.0"), ("verl", "0.7.0")),
]


@pytest.mark.parametrize(("dialect", "version"), OLDER)
def test_the_version_read_off_the_keys_is_the_one_that_wrote_them(dialect: str, version: str) -> None:
    made, form = scenario("plain", steps=30), forms(dialect)[0]
    text = write(made, dialect, version=version).encode()
    same(
        as_run(made, dialect, version, form),
        read(["-"], stdin=text, framework=f"{dialect}@{version}"),
        layout := DIALECTS[dialect].forms[form],
        keys=not layout.only,
    )
    told = read(["-"], stdin=text).framework
    assert told is not None
    assert told.name == dialect
    low, wrote, high = (tuple(map(int, one.split("."))) for one in (told.at_least or "0", version, told.below or "999"))
    assert low <= wrote < high


KIN: dict[tuple[str, str], set[str | None]] = {
    ("unsloth", "notebook"): {"unsloth", "trl"},
    ("llama_factory", "trainer_state"): {None, "llama_factory", "hf_trainer"},
    ("prime_rl", "console"): {"prime_rl", None},
    ("prime_rl", "console8"): {"prime_rl", None},
    ("nemo_rl", "console"): {"nemo_rl", None},
}
"""Forms that show too little to tell the framework for certain, with what may be made of them."""


@pytest.mark.parametrize(("dialect", "form"), [("areal", "console"), ("prime_rl", "jsonl"), ("art", "jsonl")])
def test_a_run_that_breaks_is_judged_from_its_log_as_from_its_numbers(dialect: str, form: str) -> None:
    made = scenario("nan_inf", steps=60)
    told, known = (
        {one.check for one in diagnose(run).findings if (one.severity or 0) >= Severity.WARNING}
        for run in (read(["-"], stdin=write(made, dialect, form).encode()), as_run(made, dialect, form=form))
    )
    assert told - {"nan_inf"} == known - {"nan_inf"}  # where NaN is left out there is none to see
    assert "sudden_collapse" in told


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_settings_come_back(dialect: str, tmp_path: Path) -> None:
    made = scenario("asymmetric_clip", steps=30)
    wanted = as_run(made, dialect)
    log, config = tmp_path / "log.txt", tmp_path / "config.yaml"
    log.write_text(write(made, dialect), encoding="utf-8")
    config.write_text(configuration(made, dialect), encoding="utf-8")
    found = read([log, config], framework=given_as(dialect))
    assert {name: found.knob(name) for name in wanted.knobs} == {n: k.value for n, k in wanted.knobs.items()}


@pytest.mark.parametrize(("dialect", "form"), EVERY_FORM)
def test_the_command_writes_it(dialect: str, form: str) -> None:
    made = CliRunner().invoke(cli, ["simulate", "nan_inf", "--steps", "20", "--dialect", dialect, "--form", form])
    assert made.exit_code == 0
    assert made.stdout == unstyle(write(scenario("nan_inf", steps=20), dialect, form))


def test_the_command_knows_every_dialect_and_tells_the_forms() -> None:
    with pytest.raises(UnknownName) as unknown:
        CliRunner().invoke(cli, ["simulate", "plain", "--dialect", "?"], catch_exceptions=False)
    assert set(unknown.value.choices) == set(DIALECTS)
    with pytest.raises(UnknownName, match=r"'table'\n.*console, console8"):
        write(scenario("plain", steps=30), "prime_rl", "table")
    plain = scenario("plain", steps=20)
    assert all(write(plain, dialect) == write(plain, dialect, forms(dialect)[0]) for dialect in ("trl", "art", "slime"))


# ---------------------------------------------------------------- trackers


def rows_of(run: Run, prefix: str) -> Rows:
    """The columns of a run as rows by step, an evaluation in the row of its step."""
    rows: dict[int, dict[str, float]] = {}
    for column in [
        *run.columns.values(),
        *(c for p in run.components.values() for c in (p.mean, p.std) if c is not None),
    ]:
        key = (
            column.key if not prefix else f"eval/{column.key[5:]}" if column.key[:5] == "eval_" else prefix + column.key
        )
        for step, value in zip(column.steps.astype(int).tolist(), column.values.tolist(), strict=True):
            rows.setdefault(step, {})[key] = value
    return sorted(rows.items())


SINGLE = Layout(lambda sheet: "", rtol=1e-7, atol=1e-37)
EXACT = Layout(lambda sheet: "")
Store = Callable[[Path, Rows], Path]


def _bytes(name: str, made: Callable[[Rows], bytes | str]) -> Store:
    def store(folder: Path, rows: Rows) -> Path:
        held = made(rows)
        (folder / name).write_bytes(held.encode() if isinstance(held, str) else held)
        return folder / name

    return store


STORES: dict[str, tuple[Store, Layout]] = {
    "tensorboard": (_bytes("events.out.tfevents.1.host", containers.event_file), SINGLE),
    "tensorboard, tensors": (
        _bytes("events.out.tfevents.1.host", lambda rows: containers.event_file(rows, tensors=True)),
        SINGLE,
    ),
    "tensorboard, tag by tag": (
        _bytes("events.out.tfevents.1.host", lambda rows: containers.event_file(rows, by_tag=True)),
        SINGLE,
    ),
    "wandb": (_bytes("run-a.wandb", containers.wandb_file), EXACT),
    "wandb, older": (_bytes("run-a.wandb", lambda rows: containers.wandb_file(rows, nested=False)), EXACT),
    "swanlab": (_bytes("run-a.swanlab", containers.swanlab_file), EXACT),
    "mlflow": (lambda folder, rows: containers.mlflow_database(folder / "mlruns.db", rows), EXACT),
    "mlflow tree": (lambda folder, rows: containers.mlflow_tree(folder, rows), EXACT),
    "trackio": (lambda folder, rows: containers.trackio_database(folder / "grpo.db", rows), EXACT),
    "comet": (_bytes("offline.zip", containers.comet_archive), EXACT),
    "csv": (_bytes("run.csv", containers.wide_csv), EXACT),
    "csv, semicolons": (_bytes("run.csv", lambda rows: containers.wide_csv(rows, delimiter=";")), EXACT),
    "long csv": (_bytes("run.csv", containers.long_csv), EXACT),
}


@pytest.mark.parametrize("store", list(STORES))
@pytest.mark.parametrize(("dialect", "prefix"), [("verl", ""), ("trl", "train/")])
@given(draft=drafts)
@settings(few, max_examples=4)
def test_what_a_tracker_keeps_is_read_as_the_same_run(
    store: str, dialect: str, prefix: str, draft: Draft, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wanted = as_run(drawn(draft), dialect)
    put, layout = STORES[store]
    path = put(tmp_path_factory.mktemp("store"), rows_of(wanted, prefix))
    same(wanted, read([path], framework=given_as(dialect)), layout, keys=False)


def test_a_parquet_table_is_read_as_the_same_run(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    wanted = as_run(scenario("plain", steps=30), "verl")
    path = containers.parquet_file(tmp_path / "run.parquet", rows_of(wanted, ""))
    same(wanted, read([path], framework=given_as("verl")), EXACT)


def test_the_chart_of_a_tracker_holds_one_metric(tmp_path: Path) -> None:
    wanted = as_run(scenario("plain", steps=30), "trl")
    file = tmp_path / "chart.csv"
    file.write_text(containers.wandb_chart(rows_of(wanted, "train/"), "train/reward", run="grpo - second try"))
    found = read([file])
    np.testing.assert_array_equal(found["reward.mean"].values, wanted["reward.mean"].values)
    np.testing.assert_array_equal(found["reward.mean"].steps, wanted["reward.mean"].steps)
