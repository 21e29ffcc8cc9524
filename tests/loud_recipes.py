"""Healthy runs of recipes that are louder than the built-in limits allow, sick runs of the same recipes, and what a baseline
does for both: the rates of docs/baselines.md.

    python tests/loud_recipes.py HEALTHY SEEDS
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlclinic.answers import agreement
from rlclinic.baseline import Learning, learn
from rlclinic.baseline.moving import Played
from rlclinic.checks import BY_NAME
from rlclinic.diagnose import diagnose
from rlclinic.model import Column, Floats, Run, Severity
from rlclinic.simulate import healthy, scenario, scenarios

VARIES = 0.15
"""Standard deviation of the logarithm by which a loud level differs between runs of one recipe."""


@dataclass(frozen=True, eq=False)
class Hand:
    """What turns a quiet run into one of a loud recipe: its own strength, its own noise."""

    rng: np.random.Generator
    strength: float

    def noise(self, n: int, size: float) -> Floats:
        return np.exp(self.rng.normal(0.0, size, n))


Turn = Callable[[Floats, Floats, Hand], Floats]
"""(values, share of the run done, hand) -> values"""


def _dead(v: Floats, done: Floats, hand: Hand) -> Floats:
    return np.asarray(np.round(32 * np.clip(v + 0.48 * hand.strength * (1 - v), 0, 0.95)) / 32)


def _spiky(v: Floats, done: Floats, hand: Hand) -> Floats:
    return np.where(hand.rng.random(len(v)) < 0.035 * hand.strength, v * 14.0 * hand.noise(len(v), 0.2), v)


def _cut(v: Floats, done: Floats, hand: Hand) -> Floats:
    odds = 0.12 * hand.strength
    return np.asarray(np.round(256 * np.clip(v + odds / (1 + odds), 0, 1)) / 256)


RECIPES: Mapping[str, Mapping[str, Turn]] = {
    "large gradients, cut answers": {
        "grad.norm": lambda v, done, hand: v * 5000.0 * hand.strength,
        "length.truncated_frac": _cut,
    },
    "low entropy, dead groups": {
        "entropy.mean": lambda v, done, hand: v * np.exp(-(1.15 * hand.strength) * (1 - np.exp(-3 * done))),
        "group.zero_var_frac": _dead,
    },
    "growing answers, spiky gradients": {
        "length.response.mean": lambda v, done, hand: v * (1 + 0.9 * hand.strength * done),
        "length.terminated.mean": lambda v, done, hand: v * (1 + 0.9 * hand.strength * done),
        "grad.norm": _spiky,
    },
    "prompts cut, sampling cut short": {
        "length.prompt_clip_frac": lambda v, done, hand: np.minimum(
            v + 0.03 * hand.strength * hand.noise(len(v), 0.2), 1.0
        ),
        "length.truncated_frac": _cut,
    },
}


def loud(run: Run, recipe: str, seed: int, name: str = "") -> Run:
    """``run`` as one of a loud recipe; ``seed`` decides how loud this one is."""
    columns = dict(run.columns)
    for metric, turn in RECIPES[recipe].items():
        hand = Hand(np.random.default_rng((seed, zlib.crc32(metric.encode()))), 1.0)
        hand = replace(hand, strength=float(np.exp(hand.rng.normal(0.0, VARIES))))
        like = columns.get(metric) or columns["reward.mean"]
        if metric not in columns:
            like = Column(metric, metric, like.steps, np.zeros(len(like)))
        done = like.steps / run.steps[-1]
        columns[metric] = replace(like, values=np.asarray(turn(like.values, done, hand)))
    return replace(run, columns=columns, name=name or f"{run.name}-{seed}")


def of(recipe: str, seeds: Sequence[int], family: str = "plain", steps: int = 200) -> list[Run]:
    """Healthy runs of a loud recipe."""
    return [loud(scenario(family, steps=steps, seed=seed).run, recipe, seed) for seed in seeds]


def warned(run: Run, *learned_from: Learning | None) -> list[set[str]]:
    """The checks that warn of ``run`` by each of several baselines (None: by none).

    A baseline moves limits of a few checks, so that only those look again: much cheaper than ``judged``, and the same but
    for the correction of p-values of other checks (tests/test_baseline.py).
    """
    diagnosis = diagnose(run)
    played = Played(agreement.own(diagnosis.run), diagnosis.checks)
    plain = {f.check for f in diagnosis.findings if (f.severity or 0) >= Severity.WARNING}
    made = []
    for learning in learned_from:
        given = {} if learning is None else learning.given()
        again = {check for check, numbers in given.items() if played.warns(BY_NAME[check], numbers)}
        made.append((plain - set(given)) | again)
    return made


def learned(recipe: str, many: int, first: int = 1000) -> Learning:
    return learn(of(recipe, range(first, first + many)), anyway=True)


SICK = tuple(name for name in scenarios() if name not in healthy())


def rates(
    recipe: str, baselines: Sequence[Learning | None], held_out: int, sick: Sequence[tuple[str, int]]
) -> list[Rate]:
    """For each baseline the share of further healthy runs of the recipe with a warning, and that of sick ones (scenario,
    seed) of which a right check warns."""
    false = [list(map(bool, warned(run, *baselines))) for run in of(recipe, range(held_out))]
    hits = []
    for name, seed in sick:
        made = scenario(name, steps=200, seed=seed)
        right = set(made.truth)
        hits.append([bool(right & said) for said in warned(loud(made.run, recipe, 5000 + seed), *baselines)])
    alarms, found = np.array(false).mean(axis=0), np.array(hits).mean(axis=0)
    return [Rate(float(a), float(f)) for a, f in zip(alarms, found, strict=True)]


@dataclass(frozen=True)
class Rate:
    """Share of healthy runs with a warning, share of sick ones that are found."""

    alarms: float
    found: float


def main(held_out: int, seeds: int) -> None:
    """Print the table of docs/baselines.md."""
    sick = [(name, seed) for name in SICK for seed in range(seeds)]
    print(
        f"{held_out} healthy and {len(sick)} sick runs of each recipe, 200 steps; last: of illnesses whose limits moved"
    )
    for recipe in RECIPES:
        baselines = [learned(recipe, n) for n in (1, 3, 5, 10)]
        moved_checks = {one.check for learning in baselines for one in learning.limits}
        names = [name for name in SICK if moved_checks & set(scenario(name, steps=40).truth)]
        aimed = rates(recipe, (None, *baselines), 1, [(name, seed) for name in names for seed in range(10, 15)])
        print(recipe, names)
        for word, learning, rate, at in zip(
            ("none", "1", "3", "5", "10"),
            (None, *baselines),
            rates(recipe, (None, *baselines), held_out, sick),
            aimed,
            strict=True,
        ):
            moved = (
                "" if learning is None else ", ".join(f"{x.check}.{x.limit} {dict(x.numbers)}" for x in learning.limits)
            )
            print(f"| {recipe} | {word} | {rate.alarms:.1%} | {rate.found:.1%} | {at.found:.1%} | {moved}", flush=True)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]))
