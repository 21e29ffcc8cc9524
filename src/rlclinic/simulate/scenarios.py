"""Whole runs with a known truth: healthy families, and one illness each put into a healthy course."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as but

import numpy as np

from rlclinic.errors import BadRequest, UnknownName, nearest
from rlclinic.model import Component, Floats, Knob, Run, Scalar
from rlclinic.simulate.course import Latent, Recipe, evaluate, healthy_course, observe, settings_of, zero_variance_share


@dataclass(frozen=True, eq=False)
class Scenario:
    """A simulated run and what is true about it.

    ``run`` holds every canonical metric, even those no single framework logs together; ``dialects.as_run`` gives what
    one framework shows. ``truth`` maps each check that must find something to its step of onset (None where no step
    applies); ``may`` lists the checks whose firing is a plain consequence.
    """

    name: str
    says: str
    run: Run
    truth: Mapping[str, float | None]
    may: tuple[str, ...] = ()
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    """The knobs by canonical name."""
    own: tuple[str, ...] = ()
    """Metrics (and ``part.NAME``) that this run logs beyond what every simulated run holds, or that it alone has moved."""

    @property
    def healthy(self) -> bool:
        """True when no check should warn."""
        return not self.truth


def _onset(latent: Latent, path: Floats, above: float) -> float:
    """The first step at which a latent path is above a level."""
    return float(latent.steps[int(np.argmax(path > above))])


def _ramp(latent: Latent, start: float, end: float) -> Floats:
    """(n,) 0 before the share ``start`` of the run, 1 after ``end``, smooth in between."""
    x = np.clip((latent.done - start) / (end - start), 0.0, 1.0)
    return np.asarray(x * x * (3.0 - 2.0 * x))


def _decay(latent: Latent, start: float, scale: float) -> Floats:
    """(n,) 1 up to the share ``start`` of the run, then an exponential decay with that scale."""
    return np.exp(-np.maximum(latent.done - start, 0.0) / scale)


def _all_right(x: Latent) -> dict[str, float | None]:
    x.pass_rate = 0.72 + 0.255 * (1.0 - _decay(x, 0.0, 0.12))
    x.held_out = 0.55 + 0.15 * (1.0 - _decay(x, 0.0, 0.3))
    x.spread[:] = 3.0
    return {"zero_variance_all_right": _onset(x, zero_variance_share(x.pass_rate, x.spread, 8), 0.5)}


def _all_wrong(x: Latent) -> dict[str, float | None]:
    x.pass_rate[:] = 0.004
    x.held_out[:] = 0.01
    x.spread[:] = 1.5
    x.entropy[:] = x.entropy[0]
    x.kl *= 0.05
    return {"zero_variance_all_wrong": 1.0}


def _discrete_middle(x: Latent) -> dict[str, float | None]:
    x.ties[:] = 0.80
    x.held_out = 0.42 + 0.05 * x.done
    return {"zero_variance_discrete_middle": 1.0}


def _saturated(x: Latent) -> dict[str, float | None]:
    x.pass_rate = 0.60 + 0.396 * (1.0 - _decay(x, 0.0, 0.06))
    x.spread[:] = 6.0
    # At this pass rate nearly every group of eight is dead too: one illness, whichever of its two names comes first.
    at = _onset(x, x.pass_rate, 0.98)
    return {"reward_saturated": at, "zero_variance_all_right": at}


def _collapse_of_entropy(x: Latent) -> dict[str, float | None]:
    start = 0.08
    left = _decay(x, start, 0.07)
    x.entropy = 0.035 + 0.80 * left
    x.pass_rate = 0.30 + 0.16 * (1.0 - _decay(x, 0.0, 0.08))
    x.held_out = 0.28 + 0.13 * (1.0 - _decay(x, 0.0, 0.08))
    x.spread = 1.6 + 6.4 * left
    x.gradient *= 0.5 + 0.5 * left
    return {"entropy_collapse": start * float(x.steps[-1])}


def _rise_of_entropy(x: Latent) -> dict[str, float | None]:
    start = 0.35
    up = _ramp(x, start, 0.9)
    x.entropy = 0.5 + 2.3 * up
    x.pass_rate -= 0.22 * up
    x.held_out -= 0.20 * up
    x.length = x.length * (1.0 + 0.3 * up)
    return {"entropy_rise": start * float(x.steps[-1])}


def _truncated(x: Latent) -> dict[str, float | None]:
    x.truncated = 0.28 + 0.15 * _ramp(x, 0.0, 1.0)
    x.length[:] = 330.0
    return {"truncation": 1.0}


def _endless(x: Latent) -> dict[str, float | None]:
    x.truncated[:] = 1.0
    x.pass_rate[:] = 0.03
    x.held_out[:] = 0.03
    x.spread[:] = 4.0
    x.kl *= 0.05
    return {"never_eos": 1.0, "truncation": 1.0}


def _drift(x: Latent) -> dict[str, float | None]:
    start = 0.3
    late = np.maximum(x.done - start, 0.0) / (1.0 - start)
    x.kl = x.kl + 1.6 * late**2.5
    stalled = x.pass_rate[int(start * (len(x.steps) - 1))]
    x.pass_rate = np.minimum(x.pass_rate, stalled)
    x.held_out = np.minimum(x.held_out, stalled - 0.04) - 0.10 * late
    return {"kl_drift": start * float(x.steps[-1])}


def _clipped(x: Latent) -> dict[str, float | None]:
    start = 0.2
    up = _ramp(x, start, 0.6)
    x.clip_low = 0.03 + 0.22 * up
    x.clip_high = 0.02 + 0.18 * up
    return {"clip_saturation": start * float(x.steps[-1])}


def _not_finite(x: Latent) -> dict[str, float | None]:
    x.broken_from = float(math.ceil(0.6 * float(x.steps[-1])))
    return {"nan_inf": x.broken_from}


def _spiky(x: Latent) -> dict[str, float | None]:
    x.spikes = 0.05
    return {"grad_spikes": None}


def _no_gradient(x: Latent) -> dict[str, float | None]:
    x.dead_updates = 0.8
    x.kl *= 0.1
    x.entropy = x.entropy[0] - 0.3 * (x.entropy[0] - x.entropy)
    return {"zero_gradient_steps": 1.0}


def _flat(x: Latent) -> dict[str, float | None]:
    learned = 1.0 - _decay(x, 0.0, 0.05)
    x.pass_rate = 0.30 + 0.25 * learned
    x.held_out = 0.28 + 0.24 * learned
    x.entropy = 0.60 - 0.10 * learned
    x.kl = 2e-4 + 0.02 * learned
    x.length = 320.0 + 20.0 * learned
    return {"plateau": 0.2 * float(x.steps[-1])}


def _unmoved(x: Latent) -> dict[str, float | None]:
    x.pass_rate[:] = 0.35
    x.held_out[:] = 0.33
    x.entropy[:] = x.entropy[0]
    x.kl = 2e-5 + 1e-4 * x.done
    x.length[:] = x.length[0]
    return {"no_learning": 1.0}


def _decline(x: Latent) -> dict[str, float | None]:
    start = 0.4
    rise, fall = _ramp(x, 0.0, 0.35), _ramp(x, start, 1.0)
    x.pass_rate = 0.32 + 0.33 * rise - 0.30 * fall
    x.held_out = x.pass_rate - 0.03
    return {"reward_decline": start * float(x.steps[-1])}


def _cliff(x: Latent) -> dict[str, float | None]:
    start = 0.65
    width = max(0.015, 4.0 / float(x.steps[-1]))
    fall = _ramp(x, start, start + width)
    x.pass_rate = x.pass_rate * (1.0 - fall) + 0.015 * fall
    x.held_out = x.held_out * (1.0 - fall) + 0.015 * fall
    x.entropy = x.entropy * (1.0 + fall)
    x.kl = x.kl + 0.4 * fall
    x.length = x.length * (1.0 - 0.4 * fall)
    x.gradient = x.gradient * (1.0 + 3.0 * _ramp(x, start - width, start) * (1.0 - fall))
    return {"sudden_collapse": start * float(x.steps[-1])}


def _unlogged(x: Latent) -> dict[str, float | None]:
    return {"metric_not_logged": None}


def _blind(x: Latent) -> dict[str, float | None]:
    return {"eval_missing": None}


PLAIN = Recipe("learns steadily, held-out score follows")
HEALTHY: Mapping[str, Recipe] = {
    "plain": PLAIN,
    "noisy": but(PLAIN, says="small batches: every curve is noisy", groups=8, noise=2.0, spread=5.0, evaluations=8),
    "slow_learner": but(PLAIN, says="gains little but surely", groups=64, start=0.25, goal=0.46, pace=0.4),
    "on_policy_zero_clip": but(PLAIN, says="one update per batch: clip fractions are 0 by construction", updates=1),
    "growing_length": but(
        PLAIN, says="answers double in length and the held-out score earns it", length=(300.0, 640.0), limit=4096
    ),
    "asymmetric_clip": but(
        PLAIN, says="upper clip bound raised", clip=(0.2, 0.28), clipped=(0.004, 0.012), entropy=(0.55, 0.50)
    ),
    "entropy_rising_clip_higher": but(
        PLAIN,
        says="entropy rises while the reward does too",
        groups=64,
        pace=1.5,
        clip=(0.2, 0.28),
        entropy=(0.50, 0.64),
    ),
    "lr_warmup": but(PLAIN, says="warm-up with large first gradients", warmup=0.06),
    "few_evaluations": but(PLAIN, says="only three held-out evaluations", evaluations=3),
    "logged_every_10": but(PLAIN, says="one row for ten steps", log_every=10),
    "low_entropy_start": but(PLAIN, says="a distilled model that starts at low entropy", entropy=(0.13, 0.11)),
    "saturating_well": but(
        PLAIN, says="solves the task and the held-out set too", start=0.55, goal=0.86, group_size=16, spread=15.0
    ),
}
_STILL = ("plateau", "no_learning")
_DEAD = ("zero_variance_all_wrong", "zero_gradient_steps", *_STILL)
SICK: Mapping[str, Recipe] = {
    "zero_variance_all_right": but(
        PLAIN,
        says="the prompts are too easy: whole groups are right",
        alter=_all_right,
        may=("reward_saturated", "plateau"),
    ),
    "zero_variance_all_wrong": but(
        PLAIN, says="the prompts are too hard", alter=_all_wrong, may=(*_DEAD[1:], "grad_spikes")
    ),
    "zero_variance_discrete_middle": but(
        PLAIN, says="whole groups earn the same middling score", start=0.42, alter=_discrete_middle, may=_STILL
    ),
    "reward_saturated": but(
        PLAIN,
        says="reward at its maximum and nobody evaluates",
        alter=_saturated,
        evaluations=0,
        may=("zero_gradient_steps", "grad_spikes", "plateau", "eval_missing"),
    ),
    "entropy_collapse": but(
        PLAIN,
        says="entropy falls early, then nothing new is tried",
        alter=_collapse_of_entropy,
        may=("zero_variance_discrete_middle", *_STILL),
    ),
    "entropy_rise": but(
        PLAIN,
        says="entropy grows and the reward pays for it",
        alter=_rise_of_entropy,
        may=("reward_decline", "length_explosion"),
    ),
    "truncation": but(PLAIN, says="many answers are cut by the length limit", limit=512, goal=0.5, alter=_truncated),
    "never_eos": but(PLAIN, says="no answer ever ends by itself", limit=512, alter=_endless, may=_DEAD),
    "kl_drift": but(
        PLAIN, says="runs away from the reference and buys nothing", alter=_drift, may=("plateau", "reward_decline")
    ),
    "clip_saturation": but(PLAIN, says="too many updates per batch", updates=4, alter=_clipped),
    "nan_inf": but(
        PLAIN,
        says="the weights stop being finite",
        alter=_not_finite,
        may=("sudden_collapse", "reward_decline", "truncation", "never_eos", "length_explosion", *_DEAD),
    ),
    "grad_spikes": but(PLAIN, says="single gradients far above the rest", alter=_spiky),
    "zero_gradient_steps": but(
        PLAIN, says="no gradient in most steps although groups are alive", goal=0.40, alter=_no_gradient, may=_STILL
    ),
    # Large batches: that nothing moves can be shown in a short run only when the rewards are not too noisy.
    "plateau": but(
        PLAIN, says="learns early, then flat with most of the budget left", groups=128, alter=_flat, planned=4.0
    ),
    "no_learning": but(PLAIN, says="nothing moves from the start", groups=128, alter=_unmoved, may=("plateau",)),
    "reward_decline": but(PLAIN, says="reward and held-out score sink after a good start", groups=64, alter=_decline),
    "sudden_collapse": but(
        PLAIN,
        says="a healthy run falls off a cliff",
        alter=_cliff,
        may=("reward_decline", "kl_drift", "entropy_rise", "grad_spikes", *_DEAD),
    ),
    "metric_not_logged": but(
        PLAIN,
        says="entropy, group spread and truncation are not logged",
        alter=_unlogged,
        absent=("entropy.mean", "reward.group_std", "group.zero_var_frac", "length.truncated_frac"),
    ),
    "eval_missing": but(PLAIN, says="no held-out evaluation", alter=_blind, evaluations=0),
}
_ALL: Mapping[str, Recipe] = {**HEALTHY, **SICK}


def scenarios() -> dict[str, str]:
    """Every scenario with one line on it, healthy families first."""
    return {name: recipe.says for name, recipe in _ALL.items()}


def healthy() -> tuple[str, ...]:
    """The names of the families in which no check should warn."""
    return tuple(HEALTHY)


def scenario(name: str, *, steps: int = 400, seed: int = 0, phi: float = 0.5, log_every: int = 1) -> Scenario:
    """One simulated run of ``steps`` trainer steps; the same arguments give the same numbers.

    ``phi`` is the lag-one autocorrelation of the noise from step to step. With ``log_every`` above 1 each row is the
    mean over its interval, except the gradient norm and the learning rate, which are those of the last step (as the
    Transformers logger does). Raises UnknownName, and BadRequest for fewer than 20 steps or two rows.
    """
    if name not in _ALL:
        raise UnknownName("a scenario", repr(name), (*nearest(name, _ALL), *_ALL))
    recipe = _ALL[name]
    every = recipe.log_every or log_every
    if steps < 20 or not 1 <= every <= steps // 2 or not 0.0 <= phi < 1.0:
        raise BadRequest(
            "at least 20 steps and two rows, phi in [0, 1)", f"{steps} steps, a row every {every}, phi {phi:g}"
        )
    rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
    latent = healthy_course(recipe, steps)
    truth = recipe.alter(latent) if recipe.alter else {}
    columns = observe(latent, recipe, rng, phi, every)
    for metric in recipe.absent:
        del columns[metric]
    if recipe.evaluations:
        columns["eval.score"] = evaluate(latent, recipe, steps, rng)
    settings = settings_of(recipe, steps, every)
    part = Component("accuracy", but(columns["reward.mean"], metric="reward.component.mean"), columns["reward.std"])
    run = Run(
        name=name,
        algorithm="grpo",
        columns=columns,
        components={"accuracy": part},
        evaluations={"eval.score": columns["eval.score"]} if recipe.evaluations else {},
        eval_rule="the only held-out series" if recipe.evaluations else "",
        knobs={knob: Knob(knob, value, knob, "config") for knob, value in settings.items()},
        planned_steps=round(recipe.planned * steps),
    )
    return Scenario(name, recipe.says, run, truth, recipe.may, settings)
