"""A run described in a few lines of TOML: the form used by the casebook, the documentation and the command line.

steps = 600
seeds = 5
preset = "plain"              # optional: start from a scenario and replace or drop single metrics
[knobs]
group_size = 8
["entropy.mean"]
level = 1.1
noise = 0.03
falls = { to = 0.75, at = 0, over = 600 }
["part.accuracy"]             # a reward part; "part.accuracy.std" is its spread over the batch
level = 0.5
["eval.score"]
level = 0.4
every = 50
["held_out.gsm8k"]            # another held-out series, by its log key
level = 0.7
["answers"]                   # the run has saved answers; keys: see the module ``answers``
loops = { from = 0.0, to = 0.3, at = 200, over = 100 }
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_args

import numpy as np

from rlclinic.errors import BadTable, UnknownName, nearest
from rlclinic.model import Column, Component, Framework, Knob, Run, Scalar, Source, Warn
from rlclinic.names import knob, load, metric
from rlclinic.rollouts import Regraded
from rlclinic.simulate.answers import answers_of, check_answers, matched
from rlclinic.simulate.scenarios import scenario, scenarios
from rlclinic.simulate.shapes import Shape, read_shape, series

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULTS: Mapping[str, Any] = {
    "name": "case",
    "steps": 400,
    "seeds": 1,
    "log_every": 1,
    "phi": 0.5,
    "preset": "",
    "drop": [],
    "dialect": "",
    "version": "",
    "algorithm": "grpo",
    "planned_steps": 0,
    "excerpt": False,
    "kind": "rl",
    "ending": "",
    "nonfinite": "unknown",
    "knobs": {},
    "facts": {},
    "seams": {},
    "warnings": {},
    "regraded": {},
}
"""Top-level keys and their values when absent. ``dialect`` names the framework, ``version`` its version;
``planned_steps`` 0 means unknown; ``drop`` lists metrics that the preset would give; ``seams`` tells by step what a reader
saw there, ``warnings`` by code what it said; ``nonfinite`` is what the writer of the log does with NaN (see ``Source``).
``regraded`` gives the counts of a second verifier by quarter of the run: how many answers were ``paid`` and how many not
(``unpaid``), and of these how many it ``refused`` and ``accepted``."""
_WAYS = ("kept", "null", "dropped", "filtered", "unknown")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "kind": ("rl", "supervised", "crash"),
    "nonfinite": _WAYS,
    "preset": ("", *scenarios()),
}
ANSWERS = "answers"
"""The table that gives the run saved answers."""
_LEAST = {"steps": 1, "seeds": 1, "log_every": 1, "planned_steps": 0}
_Found = TypeVar("_Found")
HELD_OUT = "held_out."
"""Before the log key of a held-out series beside *the* score."""


def load_spec(text: str) -> dict[str, Any]:
    """The specification in a TOML text, checked; metric tables keep their names as keys.

    Raises BadTable for TOML that cannot be parsed, an unknown key or metric, or a value of the wrong kind.
    """
    try:
        spec = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadTable("a run described in TOML", str(error)) from error
    _check(spec)
    return spec


def run_from_spec(spec: Mapping[str, Any], seed: int = 0) -> Run:
    """The run that a specification describes; the same specification and seed give the same numbers.

    Each metric has its own random stream, so adding one leaves the others as they were. Raises BadTable as
    ``load_spec`` does.
    """
    shapes = _check(spec)
    value = {**DEFAULTS, **{k: v for k, v in spec.items() if k in DEFAULTS}}
    run = Run()
    if value["preset"]:
        keys = ("steps", "phi", "log_every")
        run = scenario(value["preset"], seed=seed, **{k: value[k] for k in keys}).run
    columns, components = dict(run.columns), dict(run.components)
    for dropped in value["drop"]:
        columns.pop(dropped, None)
        components.pop(dropped.removeprefix("part."), None)
    parts: dict[str, dict[str, tuple[Shape, Column]]] = {}
    others: dict[str, Column] = {}
    for name, shape in shapes.items():
        column = _column(name, shape, value, seed)
        if name.startswith("part."):
            part = name.removeprefix("part.").removesuffix(".std")
            parts.setdefault(part, {})["std" if name.endswith(".std") else "mean"] = (shape, column)
        elif name.startswith(HELD_OUT):
            others[column.key] = column
        else:
            columns[name] = column
    for part, found in parts.items():
        shape, mean = found["mean"]
        components[part] = Component(part, mean, found["std"][1] if "std" in found else None, shape.weight)
    score = columns.get("eval.score")
    never: dict[str, Scalar] = {"eval_strategy": "no", "eval_every": -1} if score is None else {}
    knobs = {**run.knobs, **{k: Knob(k, v, k, "config") for k, v in never.items() if k in run.knobs}}
    knobs = {**knobs, **{k: Knob(k, v, k, "config") for k, v in value["knobs"].items()}}
    made = replace(
        run,
        name=value["name"],
        framework=_framework(value),
        algorithm=value["algorithm"],
        columns=columns,
        components=components,
        evaluations=others if score is None else {score.key: score, **others},
        eval_rule="" if score is None else "the only held-out series",
        knobs=knobs,
        planned_steps=value["planned_steps"] or run.planned_steps,
        excerpt=value["excerpt"],
        kind=value["kind"],
        ending=value["ending"],
        sources=run.sources
        if value["nonfinite"] == "unknown"
        else (Source(value["name"], "case", value["steps"] // value["log_every"], value["nonfinite"]),),
        facts={k: str(v) for k, v in value["facts"].items()},
        seams={float(at): str(seen) for at, seen in value["seams"].items()},
        warnings=tuple(Warn(code, str(says)) for code, says in value["warnings"].items()),
        regraded=_regraded(value["regraded"]) if value["regraded"] else None,
    )
    return _with_answers(made, spec, seed) if ANSWERS in spec else made


def _with_answers(run: Run, spec: Mapping[str, Any], seed: int) -> Run:
    table = answers_of(spec[ANSWERS], run, seed, int(spec.get("steps", DEFAULTS["steps"]))).table
    return replace(matched(run, table, spec), rollouts=(table,))


def _regraded(counts: Mapping[str, Any]) -> Regraded:
    quarter, paid, agreed = [], [], []
    for side, other in (("paid", "refused"), ("unpaid", "accepted")):
        for k, (of, n) in enumerate(zip(counts[side], counts[other], strict=True)):
            quarter += [k] * of
            paid += [side == "paid"] * of
            agreed += [False] * n + [True] * (of - n)
    earned, right = np.array(paid), np.array(paid) == np.array(agreed)
    score, ones = right.astype(float), np.ones(len(paid))
    rows = np.arange(len(paid))
    return Regraded(
        "verifier:grade", rows, np.array(quarter), earned.astype(float), score, ones, earned, right, len(paid)
    )


def _column(name: str, shape: Shape, value: Mapping[str, Any], seed: int) -> Column:
    steps = int(value["steps"])
    every = int(value["log_every"])
    if (name == "eval.score" or name.startswith(HELD_OUT)) and shape.every is None:
        shape = replace(shape, every=max(1, steps // 10))
    at, values = series(shape, steps, (seed, zlib.crc32(name.encode())), log_every=every, phi=value["phi"])
    if value["nonfinite"] == "dropped":
        at, values = at[np.isfinite(values)], values[np.isfinite(values)]
    part = name.startswith("part.")
    kind = "std" if name.endswith(".std") else "mean"
    return Column(
        metric=f"reward.component.{kind}" if part else name,
        key=shape.key or name.removeprefix(HELD_OUT),
        steps=at,
        values=values,
        status=shape.status,
        because=shape.because,
        resolution=shape.resolution,
        estimator=shape.estimator,
    )


def _framework(value: Mapping[str, Any]) -> Framework | None:
    if not value["dialect"]:
        return None
    title = load(value["dialect"]).title
    return Framework(value["dialect"], title, value["version"] or None, how="given")


def _check(spec: Mapping[str, Any]) -> dict[str, Shape]:
    """The shapes by metric, after every key of the specification was checked."""
    shapes: dict[str, Shape] = {}
    for key, value in spec.items():
        if key in DEFAULTS:
            _check_setting(key, value)
        elif key == ANSWERS:
            if not isinstance(value, Mapping):
                raise BadTable("a table of answers", repr(value)[:60])
            check_answers(value)
        elif isinstance(value, Mapping):
            shapes[key] = _metric_shape(key, value)
        else:
            raise BadTable(
                "a key of a run", repr(key), (*nearest(key, DEFAULTS), *DEFAULTS), 'metrics: ["reward.mean"]'
            )
    for key in shapes:
        if key.startswith("part.") and key.endswith(".std") and key.removesuffix(".std") not in shapes:
            raise BadTable(f"the mean beside the spread of {key}", "only the spread", hint=f"add {key[:-4]!r}")
    return shapes


def _check_setting(key: str, value: Any) -> None:
    default = DEFAULTS[key]
    wanted: Any = (int, float) if isinstance(default, float) else type(default)
    if not isinstance(value, wanted) or (isinstance(value, bool) and not isinstance(default, bool)):
        raise BadTable(f"{key} of the kind of {default!r}", repr(value)[:60])
    choices = _CHOICES.get(key, ())
    if choices and value not in choices:
        raise BadTable(f"a known {key}", repr(value)[:60], (*nearest(str(value), choices), *choices))
    if key in _LEAST and value < _LEAST[key]:
        raise BadTable(f"{key} of at least {_LEAST[key]}", repr(value))
    if key == "phi" and not 0.0 <= value < 1.0:
        raise BadTable("phi from 0 to below 1", repr(value))
    if key == "dialect" and value:
        _named(load, value, "a dialect")
    if key == "seams":
        for at in value:
            if not re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", at):
                raise BadTable("a step for each seam", repr(at)[:60])
    if key == "regraded" and value:
        counts = {side: value.get(side) for side in ("paid", "refused", "unpaid", "accepted")}
        if not all(isinstance(each, list) and len(each) == 4 for each in counts.values()):
            raise BadTable("four counts for each of paid, refused, unpaid and accepted", repr(value)[:80])
    if key == "knobs":
        for name, setting in value.items():
            _named(knob, name, "a knob")
            if not isinstance(setting, get_args(Scalar)):
                raise BadTable(f"a plain value for knob {name}", type(setting).__name__)
    if key == "drop":
        for dropped in value:
            if not str(dropped).startswith("part."):
                _named(metric, str(dropped), "a metric to drop")


def _metric_shape(key: str, table: Mapping[str, Any]) -> Shape:
    shape = read_shape(table, key)
    part = key.startswith("part.")
    if shape.weight is not None and not part:
        raise BadTable("weight only for a reward part", repr(key), hint='["part.accuracy"]')
    if key.startswith(HELD_OUT):
        return shape
    if part:
        return replace(shape, low=0.0) if key.endswith(".std") and "low" not in table else shape
    meant = _named(metric, key, "a metric")
    # Noise must not push a share below 0 or an entropy below 0, unless the description asks for it.
    if meant.low is not None and "low" not in table and shape.values is None:
        shape = replace(shape, low=float(meant.low))
    if meant.high is not None and "high" not in table and shape.values is None:
        shape = replace(shape, high=float(meant.high))
    return shape


def _named(look: Callable[[str], _Found], name: str, what: str) -> _Found:
    try:
        return look(name)
    except UnknownName as error:
        raise BadTable(what, error.found, error.choices, error.hint) from error
