"""Records of saved answers that hold whole episodes: prime-rl and verifiers, tinker-cookbook, ART, rLLM."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlclinic.readers.answers.place import HELD_OUT, Place, Record
from rlclinic.readers.answers.values import (
    calls_of,
    conversation,
    ending,
    floats,
    is_part,
    name_of,
    number,
    spoken,
    truth,
    words,
)
from rlclinic.rollouts import Answer, Ending

Answers: TypeAlias = Callable[[Record, Place], Iterable[Answer]]

LONGEST_JSON = 4 << 20
"""Longest JSON text inside a field that is decoded (ours)."""


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, (list, tuple)) else []


# ------------------------------------------------------------------------------------------------ prime-rl


def prime_rl() -> Answers:
    """prime-rl's traces (verifiers records): an episode with the traces of its agents, or one trace, a line."""

    def answers(record: Record, place: Place) -> Iterable[Answer]:
        run = _dict(_dict(record.get("run")).get("work"))
        step = number(run.get("step"))
        step = place.step if step is None else step
        held_out = run.get("type") == "eval" if "type" in run else place.held_out
        started = number(_dict(run.get("policy")).get("start"))
        task = _dict(record.get("task"))
        group = _dict(record.get("group")).get("id") or task.get("key") or task.get("hash")
        for trace in _dicts(record["traces"]) if "traces" in record else (record,):
            agent = _dict(trace.get("agent"))
            if agent.get("trainable") is False:
                continue
            own = _dict(trace.get("task"))
            key, name = group or own.get("key") or own.get("hash"), agent.get("name")
            if key is not None and isinstance(name, str) and name != "agent":
                key = f"{key}/{name}"
            one = Answer(step=step, key=name_of(key), held_out=held_out, truth=_gold(own or task))
            if started is not None and step is not None and not held_out:
                one.lag = step - started
            _trace(one, trace, failed=record.get("ok") is False)
            yield one

    return answers


def _trace(one: Answer, trace: Mapping[str, Any], *, failed: bool) -> None:
    parts: dict[str, float | None] = {}
    summed = None
    for name, reward in _dict(trace.get("rewards")).items():
        weight = number(reward.get("weight", 1.0)) if isinstance(reward, Mapping) else 1.0
        score = number(reward.get("score") if isinstance(reward, Mapping) else reward)
        if score is not None and weight is not None:
            parts[str(name)] = score
            summed = (summed or 0.0) + score * weight
    one.parts = parts
    one.reward = number(trace.get("reward")) if "reward" in trace else summed
    nodes = _dicts(trace.get("nodes"))
    own = [place for place, node in enumerate(nodes) if node.get("sampled") is True]
    one.turns = float(len(own)) if nodes else None
    if own:
        said = [_dict(nodes[place].get("message")) for place in own]
        one.prompt = words([_dict(node.get("message")) for node in nodes[: own[0]]])
        one.text = "\n".join(spoken(message) for message in said)
        one.tool_calls = float(sum(len(calls_of(message)) for message in said))
        _tokens(one, nodes, own)
    calls = _dicts(trace.get("calls"))
    if one.tokens is None and calls:
        used = [number(_dict(call.get("usage")).get("completion_tokens")) for call in calls]
        one.tokens = sum(count for count in used if count is not None) if None not in used else None
    one.ending = _end(trace, calls, [nodes[place] for place in own], failed=failed)


def _tokens(one: Answer, nodes: Sequence[Mapping[str, Any]], own: Sequence[int]) -> None:
    """Fill in what the tokens of the nodes tell: how many are the policy's, and their log-probabilities."""
    masks = [mask if isinstance(mask := node.get("mask"), list) else [] for node in nodes]
    sampled = [mask.count(True) for mask in masks]
    count = sum(sampled)
    if not count:
        return
    one.tokens = float(count)
    one.trained = count / (sum(map(len, masks[own[0] + 1 :])) + sampled[own[0]])
    drawn, again = _joined(nodes, own, "logprobs"), _joined(nodes, own, "trainer_logprobs")
    gained = _joined(nodes, own, "advantages")
    one.advantage = float(gained.mean()) if gained is not None else None
    if drawn is not None:
        one.logp = float(drawn.mean())
        if again is not None and len(again) == len(drawn):
            apart = np.abs(again - drawn)
            one.mismatch, one.worst_mismatch = float(apart.mean()), float(apart.max())


def _joined(nodes: Sequence[Mapping[str, Any]], own: Sequence[int], name: str) -> np.ndarray | None:
    """The numbers that the policy's nodes have under ``name``, one after another; None where one of them has none."""
    found = [values for place in own if (values := floats(nodes[place].get(name))) is not None]
    return np.concatenate(found) if len(found) == len(own) else None


def _end(
    trace: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]], *, failed: bool
) -> Ending:
    """How a trace ended: by what stopped it where that is a limit or an error, else by its last call's reason."""
    stopped = trace.get("stop_condition")
    found = ending(stopped)
    if found == "aborted" or (failed and stopped == "error"):
        return "aborted"
    if found == "cut":
        return "cut"
    last = next((call for call in reversed(calls) if call.get("error") is None), own[-1] if own else {})
    return ending(last.get("finish_reason"))


def _gold(task: Mapping[str, Any]) -> str | None:
    data = _dict(task.get("data")) or task
    return truth(next((data[name] for name in ("answer", "ground_truth") if data.get(name) is not None), None))


def verifiers() -> Answers:
    """The older record of verifiers, a line for each rollout (prime-rl to 0.6): prompt and completion are messages."""

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        said = record["completion"]
        messages = _dicts(said)
        talk = conversation(messages)
        scores = {
            str(name): number(value) for name, value in _dict(record.get("metrics")).items() if is_part(str(name))
        }
        cut = record.get("is_truncated") is True
        step = number(record.get("step"))
        return (
            Answer(
                step=place.step if step is None else step,
                prompt=words(record.get("prompt")),
                text=talk.text if talk else words(said),
                reward=number(record.get("reward")),
                parts=scores,
                key=name_of(record.get("example_id")),
                advantage=number(record.get("advantage")),
                ending="cut" if cut else "aborted" if record.get("error") else _plainly(record.get("stop_condition")),
                truth=truth(record.get("answer")),
                held_out=place.held_out,
                turns=float(talk.turns) if talk else None,
                tool_calls=float(talk.calls) if talk else None,
            ),
        )

    return answers


def _plainly(stopped: object) -> Ending:
    found = ending(stopped)
    return found if found == "cut" else ""


# ------------------------------------------------------------------------------------------------ tinker


def tinker() -> Answers:
    """tinker-cookbook's rollout summaries: lengths, rewards and metrics; texts where the steps have a trace."""

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        steps = _dicts(record.get("steps"))
        step, sampler = number(record["iteration"]), number(record.get("sampling_client_step"))
        split = record.get("split")
        held_out = split != "train" if isinstance(split, str) else place.held_out
        lengths = [number(one.get("ac_len")) for one in steps]
        scores: dict[str, list[float]] = {}
        for metrics in [_dict(record.get("trajectory_metrics")), *(_dict(one.get("metrics")) for one in steps)]:
            for name, value in metrics.items():
                if is_part(str(name)) and (found := number(value)) is not None:
                    scores.setdefault(str(name), []).append(found)
        traces = [_dict(one.get("trace")) for one in steps]
        said = [words(_dict(trace.get("policy_response")).get("messages")) for trace in traces]
        asked = _dict(traces[0].get("prompt")).get("messages") if traces else None
        gold = _dict(traces[-1].get("reward")).get("reference_answer") if traces else None
        return (
            Answer(
                step=step,
                prompt=words(asked),
                text="\n".join(one or "" for one in said) if said and None not in said else None,
                reward=number(record["total_reward"]),
                parts={name: sum(values) / len(values) for name, values in scores.items()},
                key=name_of(record["group_idx"]),
                tokens=sum(one for one in lengths if one is not None) if lengths and None not in lengths else None,
                ending=ending(steps[-1].get("stop_reason")) if steps else "",
                truth=truth(gold),
                held_out=held_out,
                lag=None if held_out or step is None or sampler is None else step - sampler,
                turns=float(len(steps)) if steps else None,
            ),
        )

    return answers


# ------------------------------------------------------------------------------------------------ ART


def art() -> Answers:
    """ART's trajectories: a group a line, in files for each step below a folder for each split."""
    count = itertools.count()

    def answers(record: Record, place: Place) -> Iterable[Answer]:
        key = f"{place.path.name}:{next(count)}"
        for one in _dicts(record["trajectories"]):
            messages = [_chosen(said) for said in _dicts(one.get("messages_and_choices"))]
            yield _trajectory(one, messages, key, place)

    return answers


def art_rows() -> Answers:
    """ART's trajectories in parquet: one a row, each message with whether it is trained on."""

    def answers(record: Record, place: Place) -> tuple[Answer, ...]:
        messages = []
        for said in _dicts(record["messages"]):
            calls = said.get("tool_calls")
            messages.append(({**said, "tool_calls": _decoded(calls)}, said.get("trainable") is True, None))
        key = f"{place.path.name}:{record['group_index']}"
        return (_trajectory(record, messages, key, place),)

    return answers


def _chosen(said: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool, object]:
    """(message, whether the policy said it, why it ended): what it said stands as a choice with a reason to finish."""
    inner = said.get("message")
    if isinstance(inner, Mapping):
        return inner, True, said.get("finish_reason")
    return said, False, None


def _trajectory(
    record: Mapping[str, Any], messages: Sequence[tuple[Mapping[str, Any], bool, object]], key: str, place: Place
) -> Answer:
    own = [place_ for place_, (_, sampled, _) in enumerate(messages) if sampled]
    if not own:  # where no message is marked, those of the assistant are the policy's
        own = [place_ for place_, (message, _, _) in enumerate(messages) if message.get("role") == "assistant"]
    said = [messages[place_][0] for place_ in own]
    return Answer(
        step=place.number if place.number is not None else place.step,
        prompt=words([message for message, _, _ in messages[: own[0]]]) if own else None,
        text="\n".join(map(spoken, said)) if own else None,
        reward=number(record.get("reward")),
        key=key,
        ending=ending(messages[own[-1]][2]) if own else "",
        held_out=place.held_out or bool(HELD_OUT & {part.lower() for part in place.path.parts[-2:-1]}),
        turns=float(len(own)) if own else None,
        tool_calls=float(sum(len(calls_of(message)) for message in said)) if own else None,
    )


def _decoded(value: object) -> object:
    if not isinstance(value, str) or len(value) > LONGEST_JSON:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


# ------------------------------------------------------------------------------------------------ rLLM


def rllm() -> Answers:
    """rLLM's episodes: one a file, with the steps of each trajectory; groups are the fingerprint of the task."""

    def answers(record: Record, place: Place) -> Iterable[Answer]:
        task = _dict(record.get("task"))
        found = _dicts(record["trajectories"])
        for one in found:
            steps, name = _dicts(one.get("steps")), one.get("name")
            key = record.get("task_hash")
            if key is not None and len(found) > 1:
                key = f"{key}/{name}"
            said = [words(step.get("model_response")) for step in steps]
            talk = conversation(steps[-1].get("chat_completions")) if steps else None
            asked = conversation(steps[0].get("chat_completions")) if steps else None
            correct = number(record.get("is_correct"))
            yield Answer(
                step=number(record["training_step"]),
                prompt=asked.prompt if asked else words(task.get("question")),
                text="\n".join(text or "" for text in said) if any(said) else talk.text if talk else None,
                reward=number(one.get("reward")),
                parts=None if correct is None else {"is_correct": correct},
                key=name_of(key),
                ending=ending(record.get("termination_reason")),
                truth=truth(task.get("ground_truth") or task.get("answer")),
                held_out=place.held_out,
                turns=number(one.get("num_steps")),
            )

    return answers
