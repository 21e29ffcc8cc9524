"""A small model of group training: a hidden course of learning, and what a trainer would log of it.

One latent learning curve drives everything. Prompts have pass rates with a Beta distribution around it, answers come
in groups, and from these follow the reward, its spread over the batch and within groups, the share of groups without
spread (p^G + (1-p)^G averaged over the Beta distribution), and the live share that scales the gradient. Lengths follow
from the share of cut answers and the limit. The levels are those of public GRPO logs (entropy 0.1 to 1.5 nat per token,
KL 1e-4 to 0.1 nat per token, gradient norm 0.05 to 2); everything else about the course of a run is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as but

import numpy as np

from rlclinic.model import Column, Floats, Scalar
from rlclinic.simulate.shapes import autoregressive, logged_steps

EVAL_ITEMS = 500
PROMPT_TOKENS = 120.0
MIDDLE = 0.5
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
    """Share of groups whose answers all earn the middle of a coarse score; the others are right or wrong."""
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


def healthy_course(r: Recipe, n: int) -> Latent:
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


def zero_variance_share(mean: Floats, spread: Floats, group_size: int) -> Floats:
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


def observe(x: Latent, r: Recipe, rng: np.random.Generator, phi: float, every: int) -> dict[str, Column]:
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

    tied = np.round(np.clip(x.ties + 0.03 * (x.ties > 0) * noise[2], 0.0, 1.0) * r.groups)
    free = r.groups - tied
    alike = 1.0 / (1.0 + x.spread)
    reward_sd = np.sqrt(mean * (1.0 - mean) * (alike + (1.0 - alike) / r.group_size) / np.maximum(free, 1.0))
    right = np.clip(np.round((mean + reward_sd * noise[0]) * free * r.group_size), 0, free * r.group_size)
    wrong = free * r.group_size - right
    middling = tied * r.group_size
    reward = (right + MIDDLE * middling) / answers
    variance = np.maximum((right + MIDDLE**2 * middling) / answers - reward**2, 0.0)

    dead = zero_variance_share(bounded, x.spread, r.group_size)
    dead_sd = np.sqrt(np.clip(dead * (1.0 - dead), 0.0, None) / np.maximum(free, 1.0))
    live = np.round((1.0 - dead - dead_sd * noise[1]) * free)
    # Each live group holds a right and a wrong answer; a count that fills no whole groups leaves one alive.
    live = np.clip(live, right % r.group_size != 0, np.minimum(np.minimum(right, wrong), free))
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
        "reward.std": np.sqrt(variance * answers / (answers - 1.0)),
        "reward.group_std": group_std,
        "reward.min": np.where(wrong > 0, 0.0, np.where(tied > 0, MIDDLE, 1.0)),
        "reward.max": np.where(right > 0, 1.0, np.where(tied > 0, MIDDLE, 0.0)),
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


def evaluate(x: Latent, r: Recipe, steps: int, rng: np.random.Generator) -> Column:
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


def settings_of(r: Recipe, steps: int, every: int) -> dict[str, Scalar]:
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
