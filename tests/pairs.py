"""Pairs of simulated runs with a known outcome: one that falls ill, and one after a cure that worked to a known part."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from rlclinic.model import Column, Knob, Run
from rlclinic.simulate import run_from_spec
from rlclinic.simulate.illnesses import FOLDER
from rlclinic.verify.alignment import mapped

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Outcome: TypeAlias = Literal["cured", "improving", "no_effect", "worse"]
Way: TypeAlias = Literal["continued", "resumed", "fresh"]
WAYS: tuple[Way, ...] = ("continued", "resumed", "fresh")
BACK: Mapping[Outcome, float] = {"cured": 1.0, "improving": 0.5, "no_effect": 0.0, "worse": -0.6}
"""How far towards its healthy level each moved metric comes: not at all, half of the way, further off."""
STEPS = 400
ACTS = 15
"""Steps that the change takes to act where the run goes on."""
SHARES = frozenset(
    {"length.truncated_frac", "clip.frac", "text.repetition_frac", "agent.tool_fail_frac", "group.zero_var_frac"}
)

SPECS: Mapping[str, tuple[float, dict[str, Any]]] = {
    "entropy_collapse": (120, {"entropy.mean": {"level": 0.9, "noise": 0.03, "falls": {"to": 0.30, "at": 120, "over": 120}},
                               "reward.mean": {"level": 0.4, "noise": 0.03},
                               "eval.score": {"level": 0.38, "noise": 0.01, "every": 20}}),
    "entropy_rise": (150, {"entropy.mean": {"level": 0.5, "noise": 0.03, "rises": {"to": 2.4, "at": 150, "over": 120}},
                           "reward.mean": {"level": 0.5, "noise": 0.02, "falls": {"to": 0.3, "at": 180, "over": 120}},
                           "eval.score": {"level": 0.45, "noise": 0.01, "every": 20,
                                          "falls": {"to": 0.3, "at": 160, "over": 150}}}),
    "kl_drift": (150, {"kl.ref": {"level": 0.02, "noise_share": 0.12, "rises": {"to": 0.9, "at": 150, "over": 150}},
                       "reward.mean": {"level": 0.45, "noise": 0.02, "falls": {"to": 0.38, "at": 200, "over": 150}},
                       "eval.score": {"level": 0.42, "noise": 0.01, "every": 20,
                                      "falls": {"to": 0.33, "at": 150, "over": 150}}}),
    "truncation": (150, {"length.truncated_frac": {"level": 0.01, "noise": 0.012,
                                                   "rises": {"to": 0.40, "at": 150, "over": 80}},
                         "length.response.mean": {"level": 330, "noise": 9, "rises": {"to": 390, "at": 150, "over": 80}}}),
    "clip_saturation": (140, {"clip.frac": {"level": 0.05, "noise": 0.015, "rises": {"to": 0.45, "at": 140, "over": 80}}}),
    "reward_decline": (180, {"reward.mean": {"level": 0.62, "noise": 0.02, "falls": {"to": 0.30, "at": 180, "over": 120}},
                             "eval.score": {"level": 0.58, "noise": 0.012, "every": 10,
                                            "falls": {"to": 0.28, "at": 180, "over": 120}}}),
    "repetition_loop": (160, {"text.repetition_frac": {"level": 0.01, "noise": 0.006,
                                                       "rises": {"to": 0.3, "at": 160, "over": 100}}}),
    "grad_spikes": (0, {}),
}  # fmt: skip
"""Step at which each illness begins, and what moves."""
DESCRIBED = ("length_explosion", "train_inference_mismatch", "critic_failure", "tool_call_failure", "turn_explosion",
             "length_shrink", "lr_too_high", "stale_rollouts")  # fmt: skip
"""Illnesses of ``simulate`` whose description is used as it is."""


@dataclass(frozen=True, eq=False)
class Made:
    """A pair, its illness and what is true of it."""

    name: str
    before: Run
    after: Run
    truth: Outcome


def illness(name: str) -> tuple[float, dict[str, Any]]:
    if name in SPECS:
        at, moved = SPECS[name]
        return at, {"preset": "plain", **moved}
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return min(at for at in table["truth"].values() if at), dict(table["run"])


def _course(shape: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """Healthy level, sick level, begin and length of the way of one metric; None where it does not fall ill."""
    moves = []
    for kind in ("falls", "rises", "jumps"):
        found = shape.get(kind, ())
        moves += list(found) if isinstance(found, list) else [found] if found else []
    moves.sort(key=lambda move: move.get("at", 0))
    sick = [move for move in moves if move.get("at", 0) > 1]  # what moves from the first step on is learning
    if not sick:
        return None
    healthy = [move for move in moves if move not in sick]
    level = healthy[-1]["to"] if healthy else shape["level"]
    return float(level), float(sick[-1]["to"]), float(sick[0].get("at", 0)), float(sick[-1].get("over", 0))


def pair(name: str, truth: Outcome, *, way: Way, rows: int, phi: float, seed: int) -> Made:
    """A run of 400 steps that falls ill, and ``rows`` rows after a change that had the outcome ``truth``."""
    if name == "grad_spikes":
        return _spiky(truth, rows, phi, seed)
    onset, spec = illness(name)
    before = run_from_spec({**spec, "name": name, "steps": STEPS, "phi": phi}, seed)
    back = BACK[truth]
    first = {"continued": STEPS, "resumed": int(onset) - 20, "fresh": 0}[way]
    after_spec: dict[str, Any] = {k: v for k, v in spec.items() if not isinstance(v, dict) or "." not in k}
    for metric, shape in spec.items():
        if metric in after_spec:
            continue
        course = _course(shape)
        plain = {k: v for k, v in shape.items() if k not in ("falls", "rises", "jumps", "trend")}
        if course is None:
            moves = [m for kind in ("falls", "rises", "jumps") if kind in shape for m in [shape[kind]]]
            end = moves[-1]["to"] if moves and isinstance(moves[-1], dict) else shape.get("level", 0.0)
            after_spec[metric] = {**plain, "level": end} if way != "fresh" else shape
            continue
        healthy, sick, at, over = course
        goal = sick + back * (healthy - sick)
        if metric in SHARES:
            goal = min(goal, 0.95)
        if healthy > 0 and sick > 0:
            goal = max(goal, 0.3 * min(healthy, sick))
        begin, start, length = (1.0, sick, ACTS) if way == "continued" else (at - first, healthy, over)
        shape_now = {**plain, "level": start}
        if goal != start:
            kind = "rises" if goal > start else "falls"
            shape_now[kind if length else "jumps"] = {"to": goal, "at": begin, **({"over": length} if length else {})}
        after_spec[metric] = shape_now
    after = run_from_spec({**after_spec, "name": f"{name}-after", "steps": max(rows, 2), "phi": phi}, seed + 50_000)
    return Made(name, before, _moved(after, first), truth)


def _moved(run: Run, by: int) -> Run:
    return mapped(run, lambda column: replace(column, steps=column.steps + by)) if by else run


def _spiky(truth: Outcome, rows: int, phi: float, seed: int) -> Made:
    rng = np.random.default_rng(seed)
    rate = 0.08

    def run(n: int, share: float, offset: int) -> Run:
        made = run_from_spec({"preset": "plain", "steps": n, "phi": phi, "name": "spiky"}, seed + offset)
        norm = made.columns["grad.norm"]
        values = norm.values.copy()
        hit = rng.random(n) < share
        values[hit] *= rng.uniform(15.0, 40.0, int(hit.sum()))
        return replace(made, columns={**made.columns, "grad.norm": replace(norm, values=values)})

    share = {"cured": 0.0, "improving": 0.5 * rate, "no_effect": rate, "worse": 2.2 * rate}[truth]
    return Made("grad_spikes", run(STEPS, rate, 0), _moved(run(rows, share, 50_000), STEPS), truth)


def with_knobs(run: Run, **knobs: Any) -> Run:
    return replace(run, knobs={**run.knobs, **{k: Knob(k, v, k, "config") for k, v in knobs.items()}})


def column(run: Run, metric: str) -> Column:
    return run.columns[metric]
