"""Records of saved answers as trainers write them in rows and columns: TRL, verl, ms-swift, ROLL, NeMo-RL and others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from rlclinic.readers.answers.place import Place, Record
from rlclinic.readers.answers.values import (
    ending,
    figures,
    floats,
    is_part,
    mean,
    name_of,
    number,
    only,
    total,
    truth,
    words,
)
from rlclinic.rollouts import Answer, Ending

Answers: TypeAlias = Callable[[Record, Place], Iterable[Answer]]

MOST_COLUMNS = 64
"""Most columns of a record that are looked at for parts of the reward (ours)."""
MOST_SETS = 200
"""Most sets of columns whose meaning is remembered (ours; a file has one)."""
_TRL = frozenset({"step", "prompt", "completion", "advantage", "images", "image"})
_SWIFT = frozenset(
    {"step", "gen_step", "prompt", "completion", "advantages", "entropy", "solution", "num_turns", "messages", "images",
     "request_id", "trajectory_infos", "rollout_infos", "audios", "videos"}
)  # fmt: skip
_VERL = frozenset(
    {"input", "output", "gts", "score", "step", "reward", "uid", "request_id", "data_source", "num_turns"}
)


def weighed(parts: Mapping[str, float | None], place: Place) -> float | None:
    """The reward as a trainer adds its parts up: each times its weight, 1 where none is set; parts without a value do not
    count, and without any there is no reward."""
    weights = place.settings.weights
    if len(parts) > 1 and not weights:
        place.say("no weights of the parts of the reward are known: each counts 1 in the reward of a saved answer")
    summed, known = 0.0, False
    for name, value in parts.items():
        if value is not None and value == value:
            summed += weights.get(name, 1.0) * value
            known = True
    return summed if known else None


def _reward_columns(keys: Iterable[str], reserved: frozenset[str], place: Place) -> tuple[str, ...]:
    """The columns that may be parts of the reward: those the log names as such, all others where it names none of them."""
    free = [key for key in keys if key not in reserved]
    logged = [key for key in free if key in place.settings.parts]
    return tuple(logged or free)[:MOST_COLUMNS]


def _remembered(
    choose: Callable[[tuple[str, ...], Place], tuple[str, ...]],
) -> Callable[[Record, Place], tuple[str, ...]]:
    """What is chosen of the keys of a record, worked out once for each set of them."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def chosen(record: Record, place: Place) -> tuple[str, ...]:
        keys = tuple(record)
        names = known.get(keys)
        if names is None:
            if len(known) >= MOST_SETS:
                known.clear()
            names = known[keys] = choose(keys, place)
        return names

    return chosen


# ------------------------------------------------------------------------------------------------ one answer a row


def trl() -> Answers:
    """GRPO and RLOO of TRL: parquet and W&B tables of the last batch before an event of logging."""
    columns = _remembered(lambda keys, place: _reward_columns(keys, _TRL, place))

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        parts = figures(record, columns(record, place))
        if "reward" in parts and "reward" not in place.settings.parts:
            reward = parts.pop("reward")  # up to 0.15, and in trainers derived from it, the sum itself
        else:
            reward = weighed(parts, place)
        return (
            Answer(
                step=number(record["step"]),
                prompt=words(record["prompt"]),
                text=words(record["completion"]),
                reward=reward,
                parts=parts,
                advantage=number(record.get("advantage")),
            ),
        )

    return answers


def verl() -> Answers:
    """verl's ``rollout_data_dir`` and ``validation_data_dir``: a line for each answer, without ids of groups."""
    columns = _remembered(
        lambda keys, _: tuple(key for key in keys if key not in _VERL and is_part(key))[:MOST_COLUMNS]
    )

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        step = number(record.get("step"))
        return (
            Answer(
                step=place.step if step is None else step,
                prompt=words(record["input"]),
                text=words(record["output"]),
                reward=total(record["score"]),
                parts=figures(record, columns(record, place)),
                truth=truth(record.get("gts")),
                turns=number(record.get("num_turns")),
                held_out=place.held_out or ("uid" in record and "reward" in record),
            ),
        )

    return answers


def verl_table() -> Answers:
    """verl's ``val/generations``: one wide row for each validation, ``input_1, output_1, score_1, input_2, ...``."""

    def answers(record: Record, place: Place) -> Iterable[Answer]:
        step = number(record.get("step"))
        for place_in_row in range(1, len(record)):
            if f"output_{place_in_row}" not in record:
                return
            yield Answer(
                step=step,
                prompt=words(record.get(f"input_{place_in_row}")),
                text=words(record[f"output_{place_in_row}"]),
                reward=total(record.get(f"score_{place_in_row}")),
                held_out=True,
            )

    return answers


def openrlhf() -> Answers:
    """OpenRLHF's ``train/generated_samples``: one answer a step, written together with its prompt."""

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        place.say("prompt and answer stand in one text; there is one for each step")
        return (
            Answer(step=number(record["global_step"]), text=words(record["text"]), reward=number(record["reward"])),
        )

    return answers


def skyrl() -> Answers:
    """SkyRL's dumped evaluations; it saves no answers of the training in a form that can be opened safely."""

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        extras = record.get("env_extras")
        told = [extras.get(name) for name in ("reward_spec", "reward_model")] if isinstance(extras, Mapping) else []
        found = [truth(one) for one in told if isinstance(one, Mapping)]
        return (
            Answer(
                step=place.step,
                prompt=words(record["input_prompt"]),
                text=words(record["output_response"]),
                reward=total(record.get("score")),
                ending=ending(record.get("stop_reason")),
                truth=found[0] if found else None,
                held_out=True,
            ),
        )

    return answers


def slime() -> Answers:
    """slime's debug data of a rollout: a sample with its tokens, status and versions of the weights."""

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        reward, parts = record.get("reward"), None
        if isinstance(reward, Mapping):
            parts = {str(name): number(value) for name, value in reward.items()}
            parts = {name: value for name, value in parts.items() if value is not None}
            reward = _keyed(parts, place)
        mask, logps = record.get("loss_mask"), record.get("rollout_log_probs")
        step = number(record.get("rollout_id"))
        versions = record.get("weight_versions")
        return (
            Answer(
                step=place.step if step is None else step,
                prompt=words(record.get("prompt")),
                text=words(record.get("response")),
                reward=number(reward),
                parts=parts,
                key=name_of(record.get("group_index")),
                tokens=number(record.get("response_length")),
                ending=ending(record.get("status")),
                truth=truth(record.get("label")),
                held_out=place.held_out,
                lag=_spread(versions),
                logp=_mean_where(logps, mask),
                trained=0.0 if record.get("remove_sample") is True else mean(mask),
            ),
        )

    return answers


def _keyed(parts: Mapping[str, float | None], place: Place) -> float | None:
    key = place.settings.reward_key
    if key is None and len(parts) == 1:
        return next(iter(parts.values()))
    if key is None:
        place.say(f"the reward has {len(parts)} entries and no --reward-key says which is trained on: it is not known")
        return None
    return parts.get(key)


def _spread(versions: object) -> float | None:
    """Versions of the weights between the first and the last token; None where they are not stated."""
    if not isinstance(versions, (list, tuple)) or not versions:
        return None
    found = [one for one in map(number, versions) if one is not None]
    return max(found) - min(found) if found else None


def _mean_where(values: object, mask: object) -> float | None:
    if isinstance(values, list) and isinstance(mask, list) and len(values) == len(mask) and 0 in mask:
        values = list(itertools.compress(values, mask))
    return mean(values)


def areal() -> Answers:
    """AReaL's dumped rollouts: one file for each task, that is a group, in a folder for the version of the policy."""

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        head, tail = number(record["head_version"]), number(record["tail_version"])
        whole, asked = number(record.get("seqlen")), number(record.get("prompt_len"))
        return (
            Answer(
                step=tail,
                prompt=words(record.get("prompt")),
                text=words(record.get("completion")),
                reward=number(record.get("reward")),
                key=name_of(record["task_id"]),
                tokens=None if whole is None or asked is None else whole - asked,
                held_out=place.held_out,
                lag=None if head is None or tail is None else tail - head,
            ),
        )

    return answers


def open_instruct() -> Answers:
    """open-instruct's traces: numbers of tokens without texts, of the batch that was trained on."""

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        tokens, info = record["response_tokens"], record.get("request_info")
        ids = tokens if isinstance(tokens, list) else None
        return (
            Answer(
                step=number(record["step"]),
                reward=total(record.get("reward")),
                key=name_of(record["prompt_idx"]),
                advantage=number(record.get("advantage")),
                tokens=None if ids is None else len(ids),
                ending=ending(record.get("finish_reason")),
                tool_calls=number(info.get("num_calls")) if isinstance(info, Mapping) else None,
                logp=mean(record.get("logprobs")),
                same=None if ids is None else _fingerprint(ids),
            ),
        )

    return answers


def _fingerprint(ids: list[Any]) -> int:
    try:
        return hash(tuple(ids))
    except TypeError:
        return hash(str(ids))


# ------------------------------------------------------------------------------------------------ columns in a line


def swift() -> Answers:
    """ms-swift's ``completions.jsonl``: each line holds the columns of one event of logging."""

    def answers(record: Record, place: Place) -> Iterable[Answer]:
        columns = _columns(record, "completion")
        names = _reward_columns(columns, _SWIFT, place)
        numbers = {name: columns[name] for name in names if all(_plain_number(one) for one in columns[name])}
        for row, text in enumerate(columns["completion"]):
            parts = {name: number(values[row]) for name, values in numbers.items()}
            yield Answer(
                step=number(_at(columns, "step", row)),
                prompt=words(_at(columns, "prompt", row)),
                text=words(text),
                reward=weighed(parts, place),
                parts=parts,
                advantage=number(_at(columns, "advantages", row)),
                truth=truth(_at(columns, "solution", row)),
                turns=number(_at(columns, "num_turns", row)),
            )

    return answers


def roll() -> Answers:
    """ROLL's dumped rollouts: one line with the columns of a step."""

    def answers(record: Record, place: Place) -> Iterable[Answer]:
        columns = _columns(record, "responses")
        for row, text in enumerate(columns["responses"]):
            step = number(_at(columns, "global_step", row))
            yield Answer(
                step=place.step if step is None else step,
                prompt=words(_at(columns, "prompt", row)),
                text=words(text),
                reward=total(_at(columns, "scores", row)),
                key=name_of(_at(columns, "id", row)),
                truth=truth(_at(columns, "ground_truth", row)),
                held_out=place.held_out,
            )

    return answers


def _columns(record: Record, lead: str) -> dict[str, list[Any]]:
    """The columns that are as long as the one called ``lead``."""
    n = len(record[lead])
    return {name: values for name, values in record.items() if isinstance(values, list) and len(values) == n}


def _at(columns: Mapping[str, list[Any]], name: str, row: int) -> Any:
    return columns[name][row] if name in columns else None


def _plain_number(value: object) -> bool:
    return value is None or isinstance(value, (int, float))


# ------------------------------------------------------------------------------------------------ values for each token


def nemo_rl() -> Answers:
    """NeMo-RL's data of a step: lists of one, with the log-probabilities of sampler and trainer for each token."""

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        prompt, text, turns = _spoken(only(record.get("content")))
        # Under dynamic sampling ``rewards`` are those before the filter, which are not of this row.
        reward = number(only(record["filtered_rewards" if "filtered_rewards" in record else "rewards"]))
        row = number(record.get("idx"))
        size = place.settings.group_size
        key = int(row) // size if prompt is None and row is not None and math.isfinite(row) and size else None
        one = Answer(
            step=place.step, prompt=prompt, text=text, reward=reward, key=key, turns=turns, held_out=place.held_out
        )
        _by_token(one, record)
        return (one,)

    return answers


def _spoken(content: object) -> tuple[str | None, str | None, float | None]:
    """(prompt, answer, turns) of the texts of a conversation, whose roles are not stated: they take turns, after one
    message of the system where their number is odd."""
    if isinstance(content, str):
        return None, content, None
    if not isinstance(content, list) or not content or not all(isinstance(one, str) for one in content):
        return None, None, None
    if len(content) == 1:
        return None, content[0], None
    asked = 1 + len(content) % 2
    own = content[asked::2]
    return "\n".join(content[:asked]), "\n".join(own), float(len(own))


def _by_token(one: Answer, record: Record) -> None:
    """Fill in what only the columns with a value for each token tell; they are padded to the longest of the batch."""
    mask = _floats(record.get("token_loss_mask"))
    length = number(only(record.get("input_lengths")))
    if mask is None:
        return
    end = len(mask) if length is None or not math.isfinite(length) else min(len(mask), max(0, int(length)))
    own = np.flatnonzero(mask[:end] > 0)
    one.tokens = float(len(own))
    if not len(own):
        return
    kept = number(only(record.get("sample_loss_mask")))
    live = kept is None or kept > 0
    one.trained = len(own) / (end - int(own[0])) if live else 0.0
    sampled, trained = _floats(record.get("generation_logprobs")), _floats(record.get("prev_logprobs"))
    advantage = _floats(record.get("advantages"))
    if advantage is not None and len(advantage) >= end:
        one.advantage = float(advantage[own].mean())
    elif advantage is not None and len(advantage) == 1:
        one.advantage = float(advantage[0])
    if sampled is not None and len(sampled) >= end:
        one.logp = float(sampled[own].mean())
        if trained is not None and len(trained) >= end and live:
            apart = np.abs(trained[own] - sampled[own])
            one.mismatch, one.worst_mismatch = float(apart.mean()), float(apart.max())


def _floats(value: object) -> np.ndarray | None:
    inner = only(value)
    return floats([inner] if isinstance(inner, (int, float)) else inner)


__all__ = [
    "Answers", "Ending", "areal", "nemo_rl", "open_instruct", "openrlhf", "roll", "skyrl", "slime", "swift", "trl", "verl",
    "verl_table", "weighed",
]  # fmt: skip
