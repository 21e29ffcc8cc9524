"""slime: what its answers show, rollout by rollout. ``--custom-rollout-log-function-path rlclinic.hooks.slime.log_rollout``
and ``--custom-eval-rollout-log-function-path rlclinic.hooks.slime.log_eval``."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from rlclinic.hooks import asked

LONG, PACKED = 10_000, 10.0
"""slime calls an answer repeating when its last 10,000 characters pack to less than a tenth (its ``has_repetition``)."""


class _Watch:
    """The monitor of this process: slime has one process that makes rollouts, and calls from it."""

    monitor: Any = None
    failed = False


def log_rollout(rollout_id: int, args: Any, samples: Sequence[Any], *rest: Any, **more: Any) -> bool:
    """Called by slime after each rollout; False, so that its own logging goes on. Never raises."""
    return _watched(lambda: of_training(args, list(samples)), rollout_id, args, last=True)


def log_eval(rollout_id: int, args: Any, data: Mapping[str, Any], *rest: Any, **more: Any) -> bool:
    """Called by slime after each evaluation; False, so that its own logging goes on. Never raises."""
    return _watched(lambda: of_evaluation(data), rollout_id, args)


def of_training(args: Any, samples: Sequence[Any]) -> dict[str, float]:
    """What slime logs of a rollout, under its keys, as far as the answers themselves show it.

    Lengths count the tokens in the loss mask, as slime's do. The reward is the mean over answers before normalising; it
    is left out where some answer has no number for it. Where a function of the user's own makes another of it later, it is
    told under its canonical name, since slime's own key then holds that other one.
    """
    found = {f"rollout/{key}": value for key, value in _of_answers(samples).items()}
    rewards = [_reward(args, one) for one in samples]
    known = [one for one in rewards if one is not None]
    if not known or len(known) < len(samples):
        return found
    later = getattr(args, "custom_reward_post_process_path", None)
    found["reward.mean" if later else "rollout/raw_reward"] = sum(known) / len(known)
    if getattr(args, "advantage_estimator", None) != "ppo":
        found |= {f"rollout/zero_std/count_{value}": float(many) for value, many in _flat(samples, known).items()}
    return found


def of_evaluation(data: Mapping[str, Any]) -> dict[str, float]:
    """The mean reward of each held-out set, its share of cut answers and their lengths, under slime's keys."""
    found: dict[str, float] = {}
    for name, one in data.items():
        rewards = [value for value in map(asked.number, one.get("rewards") or ()) if value is not None]
        if rewards and len(rewards) == len(one["rewards"]):
            found[f"eval/{name}"] = sum(rewards) / len(rewards)
        if cut := list(one.get("truncated") or ()):
            found[f"eval/{name}-truncated_ratio"] = sum(map(bool, cut)) / len(cut)
        if samples := list(one.get("samples") or ()):
            found |= {f"eval/{name}/{key}": value for key, value in _of_answers(samples).items()}
    return found


def _of_answers(samples: Sequence[Any]) -> dict[str, float]:
    lengths = [_length(one) for one in samples]
    if not lengths:
        return {}
    return {
        "response_len/mean": sum(lengths) / len(lengths),
        "response_len/median": median(lengths),
        "response_len/max": max(lengths),
        "response_len/min": min(lengths),
        "truncated_ratio": sum(one.status.value == "truncated" for one in samples) / len(samples),
        "repetition_frac": sum(_repeats(one.response) for one in samples) / len(samples),
    }


def _length(sample: Any) -> float:
    mask = sample.loss_mask
    if mask is None:
        return float(sample.response_length)
    return float(
        mask.sum() if hasattr(mask, "sum") else sum(mask)
    )  # one by one, a tensor takes a hundred times as long


def _flat(samples: Iterable[Any], rewards: Iterable[float]) -> Counter[str]:
    """How many groups have answers of one reward only, by that reward rounded as slime does."""
    groups: dict[Any, list[float]] = {}
    for one, reward in zip(samples, rewards, strict=True):
        groups.setdefault(one.group_index, []).append(reward)
    return Counter(str(round(group[0], 1)) for group in groups.values() if all(one == group[0] for one in group))


def _repeats(text: str) -> bool:
    tail = text[-LONG:].encode("utf-8", "replace")
    return len(text) > LONG and len(tail) / len(zlib.compress(tail, 9)) > PACKED


def _reward(args: Any, sample: Any) -> float | None:
    key = getattr(args, "reward_key", None)
    reward = sample.reward.get(key) if key and isinstance(sample.reward, Mapping) else sample.reward
    return asked.number(reward)


def _watched(metrics: Callable[[], Mapping[str, float]], rollout: int, args: Any, last: bool = False) -> bool:
    if asked.off() or _Watch.failed:
        return False
    try:
        if _Watch.monitor is None:
            _Watch.monitor = _begin(args)
            if _Watch.monitor is None:
                _Watch.failed = True
                return False
        _Watch.monitor.log(metrics(), rollout)
        # Ray ends the process without a word, so the last planned rollout is the only end that can be seen.
        if last and rollout + 1 == asked.whole(getattr(args, "num_rollout", None)):
            _Watch.monitor.finish()
    except Exception as broken:
        _Watch.failed = True
        asked.say(f"not watched, training goes on: {type(broken).__name__}: {broken}")
    return False


def _begin(args: Any) -> Any:
    """slime numbers rollouts from 0, and the process that makes them may inherit any rank from its node."""
    from rlclinic.checks import CHECKS

    config = {name: value for name, value in vars(args).items() if isinstance(value, (bool, int, float, str))}
    name = config.get("wandb_group")
    return asked.monitor(
        {
            "framework": "slime",
            "config": config,
            "planned_steps": asked.whole(config.get("num_rollout")),
            "rank": 0,
            # What the trainer's processes log is not seen here, and so not missing.
            "only": [check.name for check in CHECKS if check.name != "metric_not_logged"],
            "name": name if isinstance(name, str) and name else None,
        }
    )
