"""The settings that make runs comparable: which of them a baseline was learned under, and what differs in another run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlclinic.model import Run, Scalar

HARD: Mapping[str, str] = {
    "framework": "the trainer",
    "algorithm": "the algorithm",
    "group_size": "the group size",
    "reward_low": "the lowest reward",
    "reward_high": "the highest reward",
}
"""What two runs must have in common for the limits of one to say anything of the other: log keys mean other things in
another trainer, and levels of groups, rewards and gradients depend on the rest."""
SOFT = (
    "model",
    "learning_rate",
    "lora",
    "kl_coef",
    "clip_low",
    "clip_high",
    "temperature",
    "max_response_length",
    "train_batch_size",
    "inner_epochs",
    "steps_per_generation",
    "loss_type",
    "loss_aggregation",
    "scale_rewards",
    "grad_clip",
    "entropy_coef",
    "reward_weights",
    "dynamic_sampling",
)
"""Settings on which levels depend as well; a difference is told, and the limits are used."""


WORDS = 400
"""Characters of a setting that are kept."""


@dataclass(frozen=True)
class Recipe:
    """What defines runs: hard and soft settings by name, those that were not known left out."""

    settings: Mapping[str, Scalar] = field(default_factory=dict)
    versions: tuple[str, ...] = ()
    varied: tuple[str, ...] = ()
    """Soft settings in which the runs behind a baseline differ."""


def recipe_of(run: Run) -> Recipe:
    """The recipe of one completed run (``vitals.complete``)."""
    found: dict[str, Scalar] = {}
    if run.framework is not None:
        found["framework"] = run.framework.name
    if run.algorithm:
        found["algorithm"] = run.algorithm
    for name in ("group_size", *SOFT):
        if (value := run.knob(name)) is not None:
            found[name] = value[:WORDS] if isinstance(value, str) else value
    model = found.get("model") or run.facts.get("model")
    if isinstance(model, str):
        found["model"] = _named(model[:WORDS])
    attainable = run.reward_range
    if attainable is not None and not attainable.how.startswith("extremes seen"):
        found |= {"reward_low": attainable.low, "reward_high": attainable.high}
    version = run.framework.version if run.framework is not None else None
    return Recipe(found, () if version is None else (version,))


def _named(model: str) -> str:
    """A model as a hub names it; of a place on a disk only the last folder, since paths name people."""
    place = model.replace("\\", "/").rstrip("/")
    return place.rpartition("/")[2] if place.count("/") > 1 or place[:1] in "/~." else place


def shared(recipes: Sequence[Recipe]) -> Recipe:
    """What all of ``recipes`` have in common, and in which soft settings they differ."""
    first, *others = recipes
    every = list(dict.fromkeys(name for one in recipes for name in one.settings))
    varied = tuple(name for name in every if any(differ(one, other, (name,)) for one in recipes for other in recipes))
    settings = {
        name: next(one.settings[name] for one in (first, *others) if name in one.settings)
        for name in every
        if name not in varied
    }
    versions = tuple(sorted({version for one in recipes for version in one.versions}))
    return Recipe(settings, versions, varied)


def differ(one: Recipe, other: Recipe, names: Sequence[str]) -> list[tuple[str, Scalar, Scalar]]:
    """(name, value of ``one``, value of ``other``) for every setting among ``names`` that both know and that differs."""
    return [
        (name, one.settings[name], other.settings[name])
        for name in names
        if name in one.settings and name in other.settings and not _same(one.settings[name], other.settings[name])
    ]


def _same(one: Scalar, other: Scalar) -> bool:
    numbers = [float(v) for v in (one, other) if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(numbers) == 2:
        return abs(numbers[0] - numbers[1]) <= 1e-9 * max(map(abs, numbers))
    return one == other
