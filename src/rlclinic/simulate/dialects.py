"""A simulated run in the words of a framework: its log, its configuration, and the Run a reader should make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import yaml

from rlclinic import names
from rlclinic.errors import UnknownName, nearest
from rlclinic.model import Column, Framework, Knob, Run, Scalar
from rlclinic.simulate.layouts import Layout, Logged, Sheet
from rlclinic.simulate.scenarios import Scenario
from rlclinic.simulate.trainers import DIALECTS, Dialect, Key

Row: TypeAlias = dict[str, Any]


def forms(dialect: str) -> tuple[str, ...]:
    """The forms of log that ``write`` knows for a dialect, the default first."""
    return tuple(_find(dialect).forms)


def as_run(scenario: Scenario, dialect: str = "trl", version: str | None = None, form: str | None = None) -> Run:
    """The scenario as a perfect reader of that framework's log and configuration would see it.

    With ``form``, only what that form of log shows; its rounding, and what it does to NaN, are not applied.
    """
    found = _find(dialect)
    layout = _layout(found, form) if form is not None else None
    logged = _shown(_columns(scenario, dialect, version), layout)
    columns: dict[str, Column] = {}
    parts: dict[str, dict[str, Column]] = {}
    for key, column in logged.items():
        of_part = next((p for p in scenario.run.components for k in found.parts.values() if k.format(p) == key), None)
        if of_part is None:
            columns.setdefault(column.metric, column)
        else:
            parts.setdefault(of_part, {})[column.metric.rpartition(".")[2]] = column
    components = {
        name: replace(scenario.run.components[name], mean=part["mean"], std=part.get("std"))
        for name, part in parts.items()
    }
    score = columns.get("eval.score")
    others = {key: column for key, column in scenario.run.evaluations.items() if column.metric != "eval.score"}
    return replace(
        scenario.run,
        framework=_framework(scenario, found, version),
        columns=columns,
        components=components,
        evaluations=others if score is None else {score.key: score, **others},
        knobs={k: Knob(k, value, key, "config") for k, key, value in _settings(scenario, found)},
    )


def configuration(scenario: Scenario, dialect: str = "trl") -> str:
    """The settings of the run as YAML: flat training arguments, or the nested tree where names are dotted."""
    tree: Row = {}
    for _, key, value in _settings(scenario, _find(dialect)):
        *branches, leaf = key.split(".")
        place = tree
        for branch in branches:
            place = place.setdefault(branch, {})
        place[leaf] = value
    return yaml.safe_dump(tree, sort_keys=False)


def write(scenario: Scenario, dialect: str = "trl", form: str | None = None, *, version: str | None = None) -> str:
    """The log of the scenario as that framework writes it, in the form asked for or its first (``forms`` lists them).

    ``version`` is the framework's: it decides which keys exist and, for TRL, whether ``reward_std`` is within groups
    (below 0.27) or over the batch. A row is one rollout batch, also where TRL with several updates per batch would
    write further rows without the generation keys. Steps are those of the scenario, which counts from 1, also for
    trainers that count from 0. Raises UnknownName.
    """
    found = _find(dialect)
    layout = _layout(found, form or next(iter(found.forms)))
    columns = _columns(scenario, dialect, version)
    scales = {key.key: key.scale for key in _keys(scenario, found, version)}
    return layout.write(
        Sheet(
            rows=_rows(_shown(columns, layout), scales),
            planned=scenario.run.planned_steps or int(scenario.run.steps[-1]),
            every=_whole(scenario.settings.get("logging_every", -1)),
            eval_every=_whole(scenario.settings.get("eval_every", -1)),
            batch=_whole(scenario.settings.get("per_device_batch_size", -1)),
        )
    )


def _whole(value: Scalar) -> int:
    return value if isinstance(value, int) else -1


def _version(scenario: Scenario, dialect: Dialect, asked: str | None) -> str:
    """The version asked for, else that of the scenario where it is of this dialect, else the dialect's own."""
    own = scenario.run.framework
    return asked or (own.version if own is not None and own.name == dialect.name and own.version else dialect.version)


def _framework(scenario: Scenario, dialect: Dialect, asked: str | None) -> Framework:
    version = _version(scenario, dialect, asked) or None
    return Framework(dialect.name, dialect.title, version, how="given", why="simulated")


def _find(dialect: str) -> Dialect:
    if dialect not in DIALECTS:
        raise UnknownName(
            "a dialect to write", repr(dialect), tuple(dict.fromkeys((*nearest(dialect, DIALECTS), *sorted(DIALECTS))))
        )
    return DIALECTS[dialect]


def _layout(dialect: Dialect, form: str) -> Layout:
    if form not in dialect.forms:
        raise UnknownName(f"a form of {dialect.name} log", repr(form), tuple(dialect.forms))
    return dialect.forms[form]


def _settings(scenario: Scenario, dialect: Dialect) -> Iterable[tuple[str, str, Scalar]]:
    for knob, key in dialect.knobs.items():
        if knob in scenario.settings:
            yield knob, key, scenario.settings[knob]
    framework = _framework(scenario, dialect, None)
    for knob in scenario.settings:
        row = names.spell(knob, framework)
        row = row or next((one for one in names.load("generic").knobs.get(knob, ()) if one.anywhere), None)
        if knob not in dialect.knobs and row is not None and "[" not in row.key:
            yield knob, row.key, scenario.settings[knob]


def _keys(scenario: Scenario, found: Dialect, version: str | None) -> list[Key]:
    """Every key of the dialect in this version, those of reward parts and of the scenario's own metrics included."""
    framework = _framework(scenario, found, version)
    keys = [one if isinstance(one, Key) else _from_table(one, found, framework) for one in found.keys]
    if found.score:
        keys.append(Key(found.score, "eval.score"))
    for part, component in scenario.run.components.items():
        for kind, column in (("mean", component.mean), ("std", component.std)):
            if column is not None and kind in found.parts:
                keys.append(Key(found.parts[kind].format(part), f"part.{part}.{kind}"))
    covered = {key.metric for key in keys if key is not None}
    for metric in (one for one in scenario.own if one not in covered):
        key = _from_table(metric, found, framework)
        if key is None and (other := _from_table(_LIKE.get(metric, ""), found, framework)) is not None:
            key = replace(other, metric=metric)
        keys.append(key or Key(metric, metric))
    at = _release(framework.version or "")
    known = [key for key in keys if key is not None]
    return [k for k in known if _release(k.since) <= at and (not k.below or at < _release(k.below))] if at else known


_LIKE: Mapping[str, str] = {"mismatch.kl": "mismatch.kl_k3"}
"""What a trainer logs of the same quantity by another estimator, where it does not log this one."""


def _from_table(metric: str, dialect: Dialect, framework: Framework) -> Key | None:
    """The key that the framework's table has for a metric; None where it has none, or only a family of keys."""
    key = names.key_for(metric, framework)
    if key is None or "{" in key:
        return None
    meaning = names.translate(key, framework, {})
    estimator, scale = (meaning.estimator, meaning.scale) if isinstance(meaning, names.Meaning) else ("", 1.0)
    spelled = dialect.prefix + key if key.partition("/")[0] not in _SECTIONS else key
    return Key(spelled, metric, estimator=estimator, scale=scale)


_SECTIONS = ("rollout", "perf", "timing", "validation", "eval", "performance")
"""What stands first in keys that take no prefix."""


def _columns(scenario: Scenario, dialect: str, version: str | None) -> dict[str, Column]:
    """The logged columns by log key, in canonical units, with what each framework does to the numbers before."""
    found = _find(dialect)
    of_run = dict(scenario.run.columns)
    for part, component in scenario.run.components.items() if found.parts else ():
        for kind, column in (("mean", component.mean), ("std", component.std)):
            if column is not None:
                of_run[f"part.{part}.{kind}"] = replace(column, metric=f"reward.component.{kind}")
    for metric, of in (("group.mixed_frac", "group.zero_var_frac"), ("length.stop_frac", "length.truncated_frac")):
        if (share := of_run.get(of)) is not None:
            of_run.setdefault(metric, replace(share, metric=metric, values=1.0 - share.values))
    if found.filters and (loss := of_run.get("loss.total")) is not None:
        of_run["loss.total"] = replace(loss, values=np.nan_to_num(loss.values, nan=0.0))
    for kind in ("mean", "min", "max") if found.shaped else ():
        if (plain := of_run.get(f"reward.{kind}")) is not None:
            of_run.setdefault(f"reward.shaped.{kind}", replace(plain, metric=f"reward.shaped.{kind}"))
    return {
        k.key: replace(of_run[k.metric], key=k.key, estimator=k.estimator or of_run[k.metric].estimator)
        for k in _keys(scenario, found, version)
        if k.metric in of_run
    }


def _shown(columns: Mapping[str, Column], layout: Layout | None) -> dict[str, Column]:
    """The columns that a form of log shows, under the keys that it uses."""
    if layout is None:
        return dict(columns)
    renamed = dict(layout.renamed)
    return {
        renamed.get(key, key): replace(column, key=renamed.get(key, key))
        for key, column in columns.items()
        if (not layout.only or column.metric in layout.only or column.metric.startswith("reward.component."))
        and (layout.held_out or column.metric != "eval.score")
    }


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(piece) for piece in version.split(".") if piece.isdigit())


def _rows(columns: Mapping[str, Column], scales: Mapping[str, float]) -> list[Logged]:
    """Rows in the order of a log; a held-out score makes a row of its own after the training row of its step."""
    training: dict[int, dict[str, float]] = {}
    held_out: list[Logged] = []
    for key, column in columns.items():
        scale = scales.get(key, 1.0)
        values = column.values if scale == 1.0 else column.values / scale
        pairs = zip(column.steps.astype(int).tolist(), values.tolist(), strict=True)
        if column.metric == "eval.score":
            held_out = [Logged(step, {key: value}, held_out=True) for step, value in pairs]
        else:
            for step, value in pairs:
                training.setdefault(step, {})[key] = value
    rows = [*(Logged(step, row) for step, row in training.items()), *held_out]
    return sorted(rows, key=lambda one: one.step)
