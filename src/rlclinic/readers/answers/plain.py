"""Saved answers in forms of people's own: an answer a line, or a prompt a line with its answers, under common names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlclinic.readers.answers.place import HELD_OUT, Place, Record
from rlclinic.readers.answers.values import (
    conversation,
    ending,
    figures,
    is_part,
    judges,
    mean,
    name_of,
    number,
    total,
    truth,
    words,
)
from rlclinic.rollouts import Answer, Ending

Answers: TypeAlias = Callable[[Record, Place], Iterable[Answer]]

_NAMES: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "problem", "input", "query", "instruction", "prompt_text", "input_text", "user_prompt"),
    "completion": (
        "completion", "response", "output", "generation", "generated_text", "model_output", "model_response", "rollout",
        "raw_output", "output_text", "response_text", "completion_text", "generated", "model_answer", "answer_text",
        "trajectory", "text", "answer"),
    "reward": ("total_reward", "reward", "score", "reward_total", "final_reward", "rewards", "scores"),
    "step": ("step", "global_step", "training_step", "train_step", "iteration", "model_revision", "revision", "checkpoint"),
    "group": ("group_id", "group_idx", "group_index", "group"),
    "advantage": ("advantage", "advantages"),
    "tokens": (
        "n_tokens", "num_tokens", "completion_tokens", "response_tokens", "output_tokens", "num_completion_tokens",
        "num_response_tokens", "length_tokens", "token_count", "completion_ids", "response_ids", "output_ids",
        "completion_token_ids", "response_token_ids", "output_token_ids"),
    "finish": (
        "finish_reason", "finish", "stop_reason", "finish_reasons", "stop_condition", "termination_reason", "status",
        "truncated", "is_truncated"),
    "truth": (
        "ground_truth", "gold", "gold_answer", "reference", "reference_answer", "target", "label", "gts", "expected",
        "expected_answer", "correct_answer", "solution", "gold_value", "answer"),
    "split": ("split", "phase", "mode", "is_eval", "eval", "held_out"),
    "turns": ("turns", "num_turns", "n_turns"),
    "tool_calls": ("tool_calls", "num_tool_calls", "n_tool_calls"),
    "lag": ("lag", "policy_lag", "staleness"),
    "logp": ("mean_logprob", "mean_logp", "completion_logprobs", "response_logprobs", "logprobs"),
    "messages": ("messages", "conversation", "chat_completions", "dialogue"),
    "parts": ("rewards", "reward_components", "reward_parts", "reward_breakdown", "components", "scores"),
    "answers": (
        "rollouts", "completions", "responses", "samples", "generations", "outputs", "answers", "candidates", "attempts",
        "trajectories"),
}  # fmt: skip
_KNOWN = frozenset(itertools.chain.from_iterable(_NAMES.values())) - {"answers", "completions", "responses"}
ASKED = ("prompt", "completion", "reward", "step", "group", "advantage", "tokens", "finish", "truth", "split", "turns",
         "tool_calls", "lag", "messages", "answers")  # fmt: skip
"""What ``--columns`` can name in a form of one's own."""
_ALONE = (
    "prompt_id", "prompt_idx", "prompt_index", "question_id", "question_idx", "problem_id", "problem_idx", "qid",
    "example_id", "example_idx", "uid", "task_id", "id", "index", "idx")  # fmt: skip
"""What names a prompt where its words are missing; beside them it would hide that a prompt was drawn twice."""
_ROLES = {
    name: tuple(asked for asked, names in _NAMES.items() if name in names)
    for name in itertools.chain(_ALONE, *_NAMES.values())
}
"""What each common name may stand for; nothing of the list for a name that stands for a prompt."""
_SPLITS = HELD_OUT | {"test", "held_out", "dev"}
_FLAGS = frozenset({"is_eval", "eval", "held_out"})
"""Names that a yes or no stands under, in whatever way it is written."""
_SHARED = ("prompt", "step", "group", "truth", "split")
_IN_NAME = re.compile(r"(?i)(?:step|iter|iteration|ckpt|checkpoint|global_step)[-_ =]{0,2}(\d{1,12})(?!\d)")
_PLANS = 200
"""Most sets of keys whose meaning is remembered (ours; a file has a handful)."""
_OTHERS = 64
"""Most numbers of a record that are looked at for parts of the reward (ours)."""


@dataclass(slots=True)
class _Plan:
    """Under which keys a record holds what is asked for; ``others`` are keys of numbers that may judge the answer."""

    at: dict[str, str]
    others: tuple[str, ...] = ()
    prompt: str | None = None
    completion: str | None = None
    reward: str | None = None
    step: str | None = None
    group: str | None = None
    finish: str | None = None
    truth: str | None = None
    tokens: str | None = None
    parts: str | None = None
    rare: bool = False


def fits(record: Record, place: Place, columns: Mapping[str, str] | None) -> str:
    """Which of the two forms a record has: ``plain``, ``plain-groups``, or empty where it is neither.

    An answer needs words or tokens, and something that a data set does not have: a reward, an advantage, or a prompt at a
    step. A row with a loss is one of a log, even where it shows a sample.
    """
    record = _reached(record, columns)
    plan = _plan(record, columns)
    if _several(record, plan) is not None:
        return "plain-groups"
    if plan.completion is None and "messages" not in plan.at and "tokens" not in plan.at:
        return ""
    if any(_of_log(key) for key in record if isinstance(key, str) and not (columns and key in columns.values())):
        return ""
    judged = plan.reward is not None or plan.parts is not None or any(_judged(record, key) for key in plan.others)
    dated = plan.step is not None or place.step is not None
    told = judged or "advantage" in plan.at or (dated and (plan.prompt is not None or "messages" in plan.at))
    return "plain" if told else ""


def plain(columns: Mapping[str, str] | None = None) -> Answers:
    """Both forms of one's own; ``columns`` names what is called otherwise, ``a.b`` for ``b`` inside ``a``."""
    plans: dict[tuple[str, ...], _Plan] = {}
    void: dict[tuple[str, ...], tuple[str, ...]] = {}
    paid = {"reward", "total_reward"}
    count = itertools.count()

    def planned(record: Record) -> _Plan:
        """The plan of the record's keys, and of which of those hold nothing that were once met so: what is missing in one
        record must not be missed in those after it."""
        keys = tuple(record)
        loose = void.get(keys)
        plan = plans.get(keys if loose is None else _marked(record, loose))
        if plan is None:
            if len(plans) >= _PLANS:
                plans.clear()
                void.clear()
            empty = [key for key in keys if _is_void(key, record[key], columns)]
            if empty or loose:
                loose = void[keys] = tuple(dict.fromkeys((*(void.get(keys) or ()), *empty)))
                keys = _marked(record, loose)
            plan = _plan(record, columns)
            if plan.reward is None:
                # Where other records have a reward, this one has none; no part of it takes its place.
                plan.reward = next((key for key in record if key in paid), None)
            elif plan.reward not in paid:
                paid.add(plan.reward)
                plans.clear()
            plans[keys] = plan
        return plan

    def _marked(record: Record, loose: tuple[str, ...]) -> tuple[str, ...]:
        return (*record, "", *(key for key in loose if _is_void(key, record[key], columns)))

    def answers(record: Record, place: Place) -> Iterable[Answer]:
        if columns:
            record = _reached(record, columns)
        plan = planned(record)
        several = _several(record, plan)
        if several is None:
            return (_answer(record, plan, place),)
        key: str | None = f"{place.path.parent.name}/{place.path.name}:{next(count)}"
        if plan.prompt is None and isinstance(several[0], Mapping) and _asks(several[0]):
            key = None  # a step with its answers, each to a prompt of its own
        return _each(record, plan, several, key, planned, place, columns or {})

    return answers


def _plan(record: Record, columns: Mapping[str, str] | None) -> _Plan:
    named = {str(key).lower(): key for key in record}
    at: dict[str, str] = {}
    for asked, names in _NAMES.items():
        given = columns.get(asked) if columns else None
        if given is not None and given in record:
            at[asked] = given
        elif given is None:
            taken = set(at.values()) if asked == "truth" else ()
            fitting = (named[name] for name in names if name in named and named[name] not in taken)
            found = next((key for key in fitting if _suits(asked, record[key])), None)
            if found is not None:
                at[asked] = found
    if at.get("completion") == at.get("answers"):
        at.pop("answers", None)
    if "group" not in at and "prompt" not in at and "messages" not in at:
        found = next((named[name] for name in _ALONE if name in named), None)
        if found is not None:
            at["group"] = found
    if at.get("reward") == at.get("parts"):
        at.pop("reward" if isinstance(record[at["reward"]], Mapping) else "parts", None) if "reward" in at else None
    used = set(at.values())
    others = tuple(
        key for key, value in record.items()
        if key not in used and isinstance(key, str) and (value is None or isinstance(value, (bool, int, float)))
        and is_part(key)
    )  # fmt: skip
    plan = _Plan(at, others[:_OTHERS])
    for name in ("prompt", "completion", "reward", "step", "group", "finish", "truth", "tokens", "parts"):
        setattr(plan, name, at.get(name))
    plan.rare = not at.keys().isdisjoint(("split", "turns", "tool_calls", "lag", "logp", "messages", "advantage"))
    return plan


def _is_void(key: object, value: object, columns: Mapping[str, str] | None) -> bool:
    """True where a key that may be asked for holds nothing: null, an empty text or list, what its name cannot be."""
    roles = _ROLES.get(key.lower()) if isinstance(key, str) else None
    if columns and (named := tuple(asked for asked, name in columns.items() if name == key)):
        roles = named
    if roles is None:
        return False
    empty = not value if isinstance(value, (str, list, dict)) else value is None or value != value
    return empty or (bool(roles) and not any(_suits(asked, value) for asked in roles))


def _suits(asked: str, value: object) -> bool:
    """False for a value that cannot be what its name says."""
    if asked in ("prompt", "completion", "messages"):
        return isinstance(value, (str, list, dict)) and (asked != "messages" or _is_talk(value))
    if asked == "reward":
        return value is None or isinstance(value, (list, dict)) or number(value) is not None
    if asked == "step":
        return _stated(value) is not None
    if asked == "parts":
        return isinstance(value, dict) and any(number(one) is not None for one in value.values())
    if asked == "answers":
        return isinstance(value, list) and bool(value) and not _is_talk(value)
    if asked == "group":
        return isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if asked in ("turns", "lag"):
        return number(value) is not None
    return value is not None


def _asks(item: Mapping[str, Any]) -> bool:
    """True for an answer that has its own prompt beside it."""
    return any(name in item for name in (*_NAMES["prompt"], *_NAMES["messages"]))


def _is_talk(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and "role" in value[0]


def _of_log(key: str) -> bool:
    return key[-60:].lower().endswith(("loss", "grad_norm", "learning_rate"))


def _judged(record: Record, key: str) -> bool:
    return judges(key) and number(record[key]) is not None


def _stated(value: object) -> float | None:
    """A step as a number, or at the end of a word such as ``step-100``."""
    found = number(value)
    if found is None and isinstance(value, str) and len(value) <= 200:
        named = _IN_NAME.search(value)
        found = float(named[1]) if named else None
    return found


def _several(record: Record, plan: _Plan) -> list[Any] | None:
    """The answers of a record that holds several to one prompt."""
    value = record[plan.completion] if plan.completion is not None else None
    if type(value) is str:
        return None
    if isinstance(value, list) and value and not _is_talk(value):
        return value
    found = record[plan.at["answers"]] if plan.completion is None and "answers" in plan.at else None
    return found if isinstance(found, list) and found else None


def _each(
    record: Record,
    plan: _Plan,
    several: list[Any],
    key: str | None,
    planned: Callable[[Record], _Plan],
    place: Place,
    columns: Mapping[str, str],
) -> Iterable[Answer]:
    """The answers of a record: what it says of all of them, and what it lists for each, such as prompts of their own.

    What ``columns`` names keeps its name, by which it is looked up in each of them.
    """
    own = frozenset(columns.values())
    listed = {
        name if name in own else _singular(name): values for name, values in record.items()
        if values is not several and isinstance(values, list) and len(values) == len(several) and not _is_talk(values)
    }  # fmt: skip
    if any(name in listed for name in (*_NAMES["prompt"], columns.get("prompt"))):
        key = None
    shared = {name: record[plan.at[name]] for name in _SHARED if name in plan.at and plan.at[name] not in listed}
    if plan.truth in ("answer", plan.completion):
        shared.pop("truth", None)
    gold = record.get(plan.truth) if plan.truth is not None else None
    said = columns.get("completion") or "completion"
    for row, item in enumerate(several):
        one = {name: values[row] for name, values in listed.items()}
        one |= item if isinstance(item, Mapping) and "role" not in item else {said: item}
        for name, value in shared.items():
            one.setdefault(columns.get(name) or ("ground_truth" if name == "truth" else name), value)
        found = _answer(one, planned(one), place)
        found.key = found.key if key is None else key
        if found.truth is None and not isinstance(gold, list):
            found.truth = truth(gold)
        yield found


def _singular(name: str) -> str:
    """The name of one of what is listed under a name: ``prompt`` for ``prompts``."""
    one = name.lower().removesuffix("s") if isinstance(name, str) else ""
    return one if one in _KNOWN and name.lower() not in _KNOWN else name


def _answer(record: Record, plan: _Plan, place: Place) -> Answer:
    step = record[plan.step] if plan.step is not None else None
    if type(step) is int:
        step = float(step)
    elif type(step) is not float:
        step = _stated(step) if step is not None else None
        step = place.step if step is None else step
    prompt = record[plan.prompt] if plan.prompt is not None else None
    text = record[plan.completion] if plan.completion is not None else None
    parts, reward = _reward(record, plan, place)
    one = Answer(
        step,
        prompt if prompt is None or type(prompt) is str else words(prompt),
        text if type(text) is str else None,
        reward,
        parts,
        name_of(record[plan.group]) if plan.group is not None else None,
    )
    if plan.tokens is not None:
        value = record[plan.tokens]
        one.tokens = float(len(value)) if isinstance(value, list) else number(value)
        if text is None and isinstance(value, list):
            one.same = hash(str(value)) if any(isinstance(i, (list, dict)) for i in value) else hash(tuple(value))
    if plan.finish is not None:
        one.ending = _finish(plan.finish, record[plan.finish])
    if plan.truth is not None:
        one.truth = truth(record[plan.truth])
    one.held_out = place.held_out
    if plan.rare or (text is not None and one.text is None):
        _rarely(one, record, plan, text, place)
    return one


def _reward(record: Record, plan: _Plan, place: Place) -> tuple[dict[str, float | None] | None, float | None]:
    """(parts of the reward, the reward): the one called so, else the only one that judges the answer."""
    parts: dict[str, float | None] = {}
    if plan.parts is not None and isinstance(listed := record[plan.parts], Mapping):
        parts = {str(name): found for name, value in listed.items() if (found := number(value)) is not None}
    elif plan.others:
        parts = figures(record, plan.others)
    if plan.reward is not None:
        value = record[plan.reward]
        if type(value) is float:
            return parts, value
        if not isinstance(value, Mapping):
            return parts, total(value)
        parts = {str(name): found for name, one in value.items() if (found := number(one)) is not None}
    for name in ("total", "total_reward", "reward", "score"):
        if name in parts and len(parts) > 1:
            return parts, parts.pop(name)
    judging = (
        list(parts) if plan.parts is not None or plan.reward is not None else [name for name in parts if judges(name)]
    )
    if len(judging) == 1:
        return parts, parts[judging[0]]
    if judging:
        weights = place.settings.weights
        if weights and all(name in weights for name in judging):
            return parts, sum(weights[name] * (parts[name] or 0.0) for name in judging)
        shown = ", ".join(name[:40] for name in judging[:4])
        place.say(f"no reward is named and several could be it ({shown}): name it with --columns reward=NAME")
    return parts, None


def _finish(name: str, value: object) -> Ending:
    flag = number(value) if "trunc" in name.lower() else None
    if flag is not None and flag == flag:
        return "cut" if flag else "stopped"
    return ending(value)


def _is_held_out(name: str, split: object, otherwise: bool) -> bool:
    """Whether an answer is to a held-out prompt, by its field ``name``; ``otherwise`` where the field does not tell."""
    flag = number(split) if isinstance(split, bool) or name.lower() in _FLAGS else None
    if flag in (0.0, 1.0):
        return flag == 1.0
    word = str(split).lower()[:40]
    return word in _SPLITS or (otherwise and not word.startswith("train"))


def _rarely(one: Answer, record: Record, plan: _Plan, text: object, place: Place) -> None:
    """Fill in what few files hold, and answers that are conversations."""
    at = plan.at
    messages = text if _is_talk(text) else record[at["messages"]] if text is None and "messages" in at else None
    talk = conversation(messages)
    if talk is not None:
        one.text, one.turns, one.tool_calls = talk.text, float(talk.turns), float(talk.calls)
        one.prompt = one.prompt if one.prompt is not None else talk.prompt
    elif text is not None and one.text is None:
        one.text = words(text)
    if "advantage" in at:
        value = record[at["advantage"]]
        one.advantage = mean(value) if isinstance(value, list) else number(value)
    if "split" in at:
        one.held_out = _is_held_out(at["split"], record[at["split"]], place.held_out)
    if "turns" in at:
        one.turns = number(record[at["turns"]])
    if "tool_calls" in at:
        calls = record[at["tool_calls"]]
        one.tool_calls = float(len(calls)) if isinstance(calls, list) else number(calls)
    if "lag" in at:
        one.lag = number(record[at["lag"]])
    if "logp" in at:
        value = record[at["logp"]]
        one.logp = mean(value) if isinstance(value, list) else number(value)


def _reached(record: Record, columns: Mapping[str, str] | None) -> Record:
    """The record with what ``columns`` asks for inside of its fields at the top, under its whole name."""
    if not columns:
        return record
    inner = {}
    for name in columns.values():
        if name not in record and "." in name:
            found: object = record
            for step in name.split("."):
                found = found.get(step) if isinstance(found, Mapping) else None
            if found is not None:
                inner[name] = found
    return {**record, **inner} if inner else record
