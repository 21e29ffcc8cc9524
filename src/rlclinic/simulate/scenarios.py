"""Whole runs with a known truth: healthy families and one illness each, drawn from a small model of group training.

One latent learning curve drives everything. Prompts have pass rates with a Beta distribution around it, answers come
in groups, and from these follow the reward, its spread over the batch and within groups, the share of groups without
spread (p^G + (1-p)^G averaged over the Beta distribution), and the live share that scales the gradient. Lengths follow
from the share of cut answers and the limit. The levels are those of public GRPO logs (entropy 0.1 to 1.5 nat per token,
KL 1e-4 to 0.1 nat per token, gradient norm 0.05 to 2); everything else about the course of a run is ours.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as but

import numpy as np

from rlclinic.errors import BadRequest, UnknownName, nearest
from rlclinic.model import Column, Component, Floats, Knob, Run, Scalar
from rlclinic.simulate.shapes import autoregressive, logged_steps

EVAL_ITEMS = 500
PROMPT_TOKENS = 120.0
ON_POLICY = "each batch gets a single on-policy update, so the ratio is 1"
_LAST_OF_INTERVAL = ("grad.norm", "optim.lr", "tokens.total")


@dataclass
class Latent:
    """The hidden course of a run before sampling noise; arrays are (n,), one entry per trainer step."""

    steps: Floats
    done: Floats
    """Share of the run that is done, 0..1."""
    pass_rate: Floats
    held_out: Floats
    spread: Floats
    """Concentration a + b of the Beta distribution of pass rates over prompts: small means all-or-nothing prompts."""
    ties: Floats
    """Share of groups whose answers are all equal whatever their pass rate."""
    entropy: Floats
    kl: Floats
    gradient: Floats
    length: Floats
    """Mean tokens of the answers that end by themselves."""
    truncated: Floats
    clip_low: Floats
    clip_high: Floats
    dead_updates: float = 0.0
    """Share of steps in which the gradient is exactly 0 although groups are alive."""
    spikes: float = 0.0
    """Share of logged rows (at least three) with a gradient far above the rest."""
    broken_from: float | None = None
    """Step from which the weights are not finite."""


@dataclass(frozen=True)
class Recipe:
    """The settings of one scenario; ``alter`` puts the illness into the healthy course."""

    says: str
    alter: Callable[[Latent], dict[str, float | None]] | None = None
    """Changes the latent course and returns the expected checks with the step of onset (None: no step applies)."""
    may: tuple[str, ...] = ()
    """Checks that may speak too: plain consequences of the illness."""
    start: float = 0.32
    goal: float = 0.62
    pace: float = 2.2
    """How front-loaded the learning is; near 0 is a straight line."""
    spread: float = 8.0
    groups: int = 32
    group_size: int = 8
    updates: int = 2
    """Optimizer epochs over each batch; 1 is on-policy and clips nothing."""
    clip: tuple[float, float] = (0.2, 0.2)
    clipped: tuple[float, float] = (0.006, 0.006)
    entropy: tuple[float, float] = (0.60, 0.46)
    kl: float = 0.02
    gradient: float = 0.30
    length: tuple[float, float] = (320.0, 370.0)
    limit: int = 1024
    truncated: float = 0.003
    noise: float = 1.0
    """Factor on the noise of everything but the rewards, whose noise follows from the batch."""
    evaluations: int = 10
    warmup: float = 0.0
    """Share of the run over which the learning rate warms up, with large first gradients."""
    planned: float = 1.0
    """Planned steps as a multiple of those done."""
    log_every: int | None = None
    absent: tuple[str, ...] = ()
    kl_coef: float = 0.001


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
    return {"zero_variance_all_right": _onset(x, _zero_variance(x.pass_rate, x.spread, 8), 0.5)}


def _all_wrong(x: Latent) -> dict[str, float | None]:
    x.pass_rate[:] = 0.004
    x.held_out[:] = 0.01
    x.spread[:] = 1.5
    x.entropy[:] = x.entropy[0]
    x.kl *= 0.05
    return {"zero_variance_all_wrong": 1.0}


def _discrete_middle(x: Latent) -> dict[str, float | None]:
    x.ties[:] = 0.85
    x.spread[:] = 12.0
    return {"zero_variance_discrete_middle": 1.0}


def _saturated(x: Latent) -> dict[str, float | None]:
    x.pass_rate = 0.60 + 0.396 * (1.0 - _decay(x, 0.0, 0.06))
    x.spread[:] = 6.0
    return {"reward_saturated": _onset(x, x.pass_rate, 0.98)}


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
    x.length = x.length * (1.0 + 0.5 * up)
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
        PLAIN, says="entropy rises while the reward does too", clip=(0.2, 0.28), entropy=(0.50, 0.74)
    ),
    "lr_warmup": but(PLAIN, says="warm-up with large first gradients", warmup=0.06),
    "few_evaluations": but(PLAIN, says="only three held-out evaluations", evaluations=3),
    "logged_every_10": but(PLAIN, says="one row for ten steps", log_every=10),
    "low_entropy_start": but(PLAIN, says="a distilled model that starts at low entropy", entropy=(0.13, 0.11)),
    "small_groups": but(
        PLAIN, says="groups of two: half of them agree by arithmetic", groups=64, group_size=2, start=0.40, goal=0.60
    ),
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
    "zero_variance_all_wrong": but(PLAIN, says="the prompts are too hard", alter=_all_wrong, may=_DEAD[1:]),
    "zero_variance_discrete_middle": but(
        PLAIN, says="answers of a group are copies at a middling reward", start=0.42, goal=0.56, alter=_discrete_middle
    ),
    "reward_saturated": but(
        PLAIN,
        says="reward at its maximum and nobody evaluates",
        alter=_saturated,
        evaluations=0,
        may=("zero_variance_all_right", "zero_gradient_steps", "plateau", "eval_missing"),
    ),
    "entropy_collapse": but(
        PLAIN,
        says="entropy falls early, then nothing new is tried",
        alter=_collapse_of_entropy,
        may=("zero_variance_discrete_middle", *_STILL),
    ),
    "entropy_rise": but(
        PLAIN, says="entropy grows and the reward pays for it", alter=_rise_of_entropy, may=("reward_decline",)
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
        may=("sudden_collapse", "reward_decline", "truncation", "never_eos", *_DEAD),
    ),
    "grad_spikes": but(PLAIN, says="single gradients far above the rest", alter=_spiky),
    "zero_gradient_steps": but(
        PLAIN, says="no gradient in most steps although groups are alive", goal=0.40, alter=_no_gradient, may=_STILL
    ),
    "plateau": but(PLAIN, says="learns early, then flat with most of the budget left", alter=_flat, planned=4.0),
    "no_learning": but(PLAIN, says="nothing moves from the start", alter=_unmoved, may=("plateau",)),
    "reward_decline": but(PLAIN, says="reward and held-out score sink after a good start", alter=_decline),
    "sudden_collapse": but(
        PLAIN,
        says="a healthy run falls off a cliff",
        alter=_cliff,
        may=("reward_decline", "kl_drift", "entropy_rise", "grad_spikes", *_DEAD),
    ),
    "metric_not_logged": but(
        PLAIN,
        says="entropy, group spread, KL and truncation are not logged",
        alter=_unlogged,
        absent=("entropy.mean", "reward.group_std", "group.zero_var_frac", "kl.ref", "length.truncated_frac"),
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
    latent = _healthy_course(recipe, steps)
    truth = recipe.alter(latent) if recipe.alter else {}
    columns = _observe(latent, recipe, rng, phi, every)
    for metric in recipe.absent:
        del columns[metric]
    if recipe.evaluations:
        columns["eval.score"] = _evaluate(latent, recipe, steps, rng)
    settings = _settings(recipe, steps, every)
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


def _healthy_course(r: Recipe, n: int) -> Latent:
    steps = logged_steps(n)
    done = steps / n
    learned = np.expm1(-r.pace * done) / math.expm1(-r.pace)
    pass_rate = r.start + (r.goal - r.start) * learned
    ones = np.ones(n)
    gradient = r.gradient * ones
    if r.warmup:
        gradient = gradient * (1.0 + 4.0 * np.exp(-done / (r.warmup / 2.0)))
    off_policy = 1.0 if r.updates > 1 else 0.0
    return Latent(
        steps=steps,
        done=done,
        pass_rate=pass_rate,
        held_out=0.95 * pass_rate - 0.02,
        spread=r.spread * ones,
        ties=0.0 * ones,
        entropy=r.entropy[0] + (r.entropy[1] - r.entropy[0]) * learned,
        kl=2e-4 + r.kl * learned,
        gradient=gradient,
        length=r.length[0] + (r.length[1] - r.length[0]) * learned,
        truncated=r.truncated * ones,
        clip_low=off_policy * r.clipped[0] * ones,
        clip_high=off_policy * r.clipped[1] * ones,
    )


def _zero_variance(mean: Floats, spread: Floats, group_size: int) -> Floats:
    """(n,) expected share of groups that are all right or all wrong when pass rates are Beta(mean, spread)."""
    right, wrong = np.ones_like(mean), np.ones_like(mean)
    for i in range(group_size):
        right *= (mean * spread + i) / (spread + i)
        wrong *= ((1.0 - mean) * spread + i) / (spread + i)
    return right + wrong


def _live_std(mean: Floats, spread: Floats, group_size: int) -> Floats:
    """(n,) expected sample standard deviation of the rewards within a group, given that it is not 0."""
    right, wrong = mean * spread, (1.0 - mean) * spread
    rising_right, rising_wrong = [np.ones_like(mean)], [np.ones_like(mean)]
    for i in range(group_size):
        rising_right.append(rising_right[-1] * (right + i) / (1.0 + i))
        rising_wrong.append(rising_wrong[-1] * (wrong + i) / (1.0 + i))
    total, weighted = np.zeros_like(mean), np.zeros_like(mean)
    for k in range(1, group_size):
        weight = rising_right[k] * rising_wrong[group_size - k]
        total += weight
        weighted += weight * math.sqrt(k * (group_size - k) / (group_size * (group_size - 1.0)))
    return np.asarray(weighted / total)


def _observe(x: Latent, r: Recipe, rng: np.random.Generator, phi: float, every: int) -> dict[str, Column]:
    """What the trainer logs: sampling noise, finite batches, then means over the logging interval."""
    n = len(x.steps)
    answers = r.groups * r.group_size
    noise = autoregressive(rng, 12, n, phi)
    # A hard batch is hard for everything: lower reward, longer answers, more entropy.
    noise[1:] = 0.954 * noise[1:] - 0.3 * noise[0]
    soft = r.noise * noise
    broken = np.zeros(n, dtype=bool) if x.broken_from is None else x.steps >= x.broken_from
    mean = np.where(broken, 0.0, np.clip(x.pass_rate, 0.0, 1.0))
    bounded = np.clip(mean, 1e-9, 1.0 - 1e-9)

    alike = 1.0 / (1.0 + x.spread)
    alike = alike + (1.0 - alike) * x.ties
    reward_sd = np.sqrt(mean * (1.0 - mean) * (alike + (1.0 - alike) / r.group_size) / r.groups)
    right = np.clip(np.round((mean + reward_sd * noise[0]) * answers), 0, answers)
    reward = right / answers

    dead = x.ties + (1.0 - x.ties) * _zero_variance(bounded, x.spread, r.group_size)
    dead_sd = np.sqrt(np.clip(dead * (1.0 - dead), 0.0, None) / r.groups)
    live = np.round((1.0 - dead - dead_sd * noise[1]) * r.groups)
    # Each live group holds a right and a wrong answer; a count that fills no whole groups leaves one alive.
    live = np.clip(live, right % r.group_size != 0, np.minimum(np.minimum(right, answers - right), r.groups))
    live_share = live / r.groups
    group_std = live_share * np.clip(_live_std(bounded, x.spread, r.group_size) * (1.0 + 0.04 * noise[2]), 0.0, 0.75)

    cut_share = np.where(broken, 1.0, np.clip(x.truncated, 0.0, 1.0))
    cut_sd = 1.5 * np.sqrt(cut_share * (1.0 - cut_share) / answers)
    cut = np.clip(np.round((cut_share + cut_sd * noise[3]) * answers), 0, answers) / answers
    ended = np.clip(x.length * (1.0 + 0.03 * soft[4]), 8.0, 0.9 * r.limit)
    ended_max = np.round(np.clip(ended * (2.2 + 0.2 * soft[5]), ended + 1.0, r.limit - 1.0))
    ended_min = np.round(ended * np.clip(0.3 + 0.05 * soft[6], 0.1, 0.9))
    none_ended = cut >= 1.0

    scale = np.sqrt(live_share) + 1e-4
    gradient = np.maximum(x.gradient * scale * np.exp(0.2 * soft[7]), 0.0)
    clip_low = np.clip(x.clip_low * (1.0 + 0.2 * soft[8]), 0.0, 0.6)
    clip_high = np.clip(x.clip_high * (1.0 + 0.2 * soft[9]), 0.0, 0.4)
    kl = np.maximum(x.kl * np.exp(0.10 * soft[10]), 0.0)
    entropy = x.entropy * np.exp(0.035 * soft[11])
    length = cut * r.limit + (1.0 - cut) * ended
    moved = 0.004 * (clip_low + clip_high) / 0.012
    surprise = rng.standard_normal(n)
    advantage_mean = 0.02 * surprise * scale
    extreme = np.where(live > 0, math.sqrt(r.group_size - 1.0), 0.0)

    if x.dead_updates:
        gradient[rng.random(n) < x.dead_updates] = 0.0
    if x.spikes:
        rows = np.arange(every - 1, n, every)
        chosen = rng.choice(rows, size=max(3, round(x.spikes * len(rows))), replace=False)
        gradient[chosen] *= rng.uniform(15.0, 40.0, len(chosen))

    # With one on-policy update the ratio is 1 and centred advantages cancel: only the KL term is left of the loss.
    policy_loss = 0.004 * surprise * scale if r.updates > 1 else np.zeros(n)

    paths = {
        "loss.total": r.kl_coef * kl + policy_loss,
        "loss.policy": policy_loss,
        "grad.norm": gradient,
        "optim.lr": 1e-6 * np.minimum(1.0, (x.steps - 1.0) / _warmup_steps(r, n)),
        "tokens.total": np.cumsum(np.round((length + PROMPT_TOKENS) * answers)),
        "tokens.step": np.round((length + PROMPT_TOKENS) * answers),
        "reward.mean": reward,
        "reward.std": np.sqrt(reward * (1.0 - reward) * answers / (answers - 1.0)),
        "reward.group_std": group_std,
        "reward.min": (right >= answers) * 1.0,
        "reward.max": (right > 0) * 1.0,
        "group.zero_var_frac": 1.0 - live_share,
        "advantage.mean": advantage_mean,
        "advantage.min": -extreme,
        "advantage.max": extreme,
        "entropy.mean": entropy,
        "kl.ref": kl,
        "kl.old_new": moved * (1.0 + 0.3 * surprise),
        "clip.frac": clip_low + clip_high,
        "clip.low_frac": clip_low,
        "clip.high_frac": clip_high,
        "clip.dual_frac": np.zeros(n),
        "length.response.mean": length,
        "length.response.min": np.where(none_ended, float(r.limit), ended_min),
        "length.response.max": np.where(cut > 0, float(r.limit), ended_max),
        "length.truncated_frac": cut,
        "length.terminated.mean": np.where(none_ended, 0.0, ended),
        "length.terminated.min": np.where(none_ended, 0.0, ended_min),
        "length.terminated.max": np.where(none_ended, 0.0, ended_max),
        "time.step": 12.0 + 0.05 * length * (1.0 + 0.05 * soft[2]),
    }
    for metric in ("loss.total", "loss.policy", "grad.norm", "kl.ref", "kl.old_new", "entropy.mean"):
        paths[metric][broken] = np.nan
    at = x.steps[every - 1 :: every]
    columns = {m: Column(m, m, at, _by_interval(m, path, every)) for m, path in paths.items()}
    if r.updates == 1:
        for metric in ("clip.frac", "clip.low_frac", "clip.high_frac", "kl.old_new"):
            columns[metric] = but(columns[metric], status="structural_zero", because=ON_POLICY)
    return columns


def _by_interval(metric: str, path: Floats, every: int) -> Floats:
    rows = len(path) // every
    pieces = path[: rows * every].reshape(rows, every)
    return np.asarray(pieces[:, -1] if metric in _LAST_OF_INTERVAL else pieces.mean(axis=1))


def _evaluate(x: Latent, r: Recipe, steps: int, rng: np.random.Generator) -> Column:
    every = _eval_every(r, steps)
    at = logged_steps(steps, every)
    rate = np.clip(x.held_out[at.astype(int) - 1], 0.0, 1.0)
    if x.broken_from is not None:
        rate = np.where(at >= x.broken_from, 0.0, rate)
    return Column("eval.score", "eval.score", at, rng.binomial(EVAL_ITEMS, rate) / EVAL_ITEMS)


def _eval_every(r: Recipe, steps: int) -> int:
    return max(1, steps // r.evaluations) if r.evaluations else 0


def _warmup_steps(r: Recipe, steps: int) -> int:
    return max(5, round(r.warmup * steps))


def _settings(r: Recipe, steps: int, every: int) -> dict[str, Scalar]:
    return {
        "algorithm": "grpo",
        "group_size": r.group_size,
        "train_batch_size": r.groups,
        "mini_batch_size": r.groups,
        "per_device_batch_size": r.groups * r.group_size // 8,
        "grad_accumulation": 8,
        "inner_epochs": r.updates,
        "clip_low": r.clip[0],
        "clip_high": r.clip[1],
        "kl_coef": r.kl_coef,
        "learning_rate": 1e-6,
        "lr_schedule": "constant_with_warmup",
        "warmup_steps": _warmup_steps(r, steps),
        "grad_clip": 1.0,
        "temperature": 1.0,
        "max_response_length": r.limit,
        "max_prompt_length": 512,
        "kl_in_loss": True,
        "eval_strategy": "steps" if r.evaluations else "no",
        "eval_every": _eval_every(r, steps) or -1,
        "logging_every": every,
        "planned_steps": round(r.planned * steps),
    }
