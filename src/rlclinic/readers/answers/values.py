"""What stands in a field of a record of saved answers: numbers, texts, conversations, and why an answer ended."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rlclinic.rollouts import Ending

WRITTEN = 40
"""Most characters of a number that is written as a text (ours)."""
LONGEST_NAME = 200
"""Characters of the name of a group from which a fingerprint stands for it (ours)."""

_ENDINGS: dict[str, Ending] = {
    **dict.fromkeys(
        ("stop", "eos", "stopped", "completed", "complete", "finished", "done", "end_turn", "stop_token", "stop_sequence",
         "stop_str", "env_done", "matched", "natural", "tool_calls", "terminated"), "stopped"),
    **dict.fromkeys(
        ("length", "truncated", "cut", "max_tokens", "max_length", "max_new_tokens", "max_turns", "max_output_tokens",
         "max_input_tokens", "max_total_tokens", "max_turns_exceeded", "max_prompt_length_exceeded", "overlong",
         "max_response_length_exceeded", "max_turns_reached", "prompt_too_long", "compaction_failed",
         "model_length"), "cut"),
    **dict.fromkeys(
        ("abort", "aborted", "failed", "error", "cancelled", "canceled", "timeout", "has_error"), "aborted"),
}  # fmt: skip

_NO_PART = frozenset(
    {"id", "ids", "uid", "qid", "idx", "index", "indices", "rank", "seed", "step", "steps", "epoch", "epochs", "iteration",
     "iter", "time", "timestamp", "times", "ts", "date", "latency", "duration", "seconds", "secs", "sec", "ms", "elapsed",
     "token", "tokens", "length", "lengths", "len", "size", "chars", "characters", "words", "n", "num", "count", "counts",
     "k", "total_count", "temperature", "top", "turn", "turns", "version", "versions", "worker", "shard", "rollout",
     "rollouts", "sample", "samples", "attempt", "attempts", "generation", "completion", "pred", "prediction", "predicted",
     "parsed", "extracted", "value", "gold", "truth", "target", "label", "difficulty", "level", "year", "logp", "logprob",
     "logprobs", "entropy", "kl", "advantage", "advantages", "weight", "lr", "cost", "price", "split", "fold", "batch",
     "line", "row", "offset", "start", "end", "mask", "max", "lag", "staleness"}
)  # fmt: skip
_JUDGES = frozenset(
    {"reward", "rewards", "score", "scores", "correct", "correctness", "acc", "accuracy", "accurate", "pass", "passed",
     "success", "successful", "solved", "resolved", "match", "matches", "em", "f1", "verified", "verifier", "judge",
     "judged", "rating", "grade", "win", "right", "return"}
)  # fmt: skip
_SPLITTING = re.compile(r"[^a-z0-9]{1,9}")
_COUNTED = re.compile(
    r"(?:n|num|nr|gen|resp|total)?(?:toks?|tokens?|chars?|characters|len|lengths?|words?|lines|counts?|cnt|secs|time|ids?)"
)
"""Counts, lengths, times and names that are written as one word."""


_WORTH = frozenset({"reward", "rewards", "penalty", "bonus", "score", "scores"})
_OF_GROUP = frozenset(
    {
        "mean",
        "avg",
        "average",
        "std",
        "var",
        "median",
        "min",
        "max",
        "baseline",
        "group",
        "normalized",
        "normalised",
        "norm",
    }
)


@lru_cache(maxsize=2048)
def is_part(name: str) -> bool:
    """False for the name of a number that counts, names or measures something else than how good an answer is, or that is
    a figure of its group."""
    pieces = frozenset(_SPLITTING.split(name.lower()[:200]))
    counts = bool(pieces & _NO_PART) or any(map(_COUNTED.fullmatch, pieces))
    return not pieces & _OF_GROUP and (bool(pieces & _WORTH) or not counts)


@lru_cache(maxsize=2048)
def judges(name: str) -> bool:
    """True for a name that says that the number is a judgement of the answer."""
    return not _JUDGES.isdisjoint(_SPLITTING.split(name.lower()[:200]))


def number(value: object) -> float | None:
    """A number, True and False as 1 and 0, also written as a text; None for anything else."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[return-value]
    if kind is int:
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            return None
    if kind is bool:
        return 1.0 if value else 0.0
    if value is None or isinstance(value, (list, dict, tuple)):
        return None
    if isinstance(value, str):
        said = value.strip().lower() if len(value) <= WRITTEN else ""
        if said in ("true", "false"):
            return 1.0 if said == "true" else 0.0
        if not said or not (said[0].isdigit() or said[0] in "+-.ni"):
            return None
        value = said
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


def figures(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, float | None]:
    """The numbers that a record has under ``names``; texts are none, even where they are written as one."""
    found: dict[str, float | None] = {}
    for name in names:
        value = record[name]
        kind = type(value)
        if kind is float:
            found[name] = value
        elif kind is bool:
            found[name] = 1.0 if value else 0.0
        elif value is not None and kind is not str and (one := number(value)) is not None:
            found[name] = one
    return found


def total(value: object) -> float | None:
    """A number, or the sum of a list of numbers (a reward for each token or turn); None for anything else."""
    if isinstance(value, (list, tuple)):
        found = [number(one) for one in value]
        return sum(one for one in found if one is not None) if found and None not in found else None
    return number(value)


def only(value: object) -> Any:
    """The entry of a list of one; anything else as it is."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def name_of(value: object) -> str | int | None:
    """What a group is called by: a text or a whole number, long texts by their fingerprint."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else str(value) if abs(value) < float("inf") else None
    told = value if isinstance(value, str) else str(value)
    if not told:
        return None
    return told if len(told) <= LONGEST_NAME else zlib.crc32(told.encode("utf-8", "surrogatepass")) * 2**20 + len(told)


def ending(value: object) -> Ending:
    """Why an answer ended, out of the words of samplers and trainers; empty for a word that says neither."""
    if isinstance(value, Mapping):
        value = value.get("type")  # as SGLang says it: {"type": "stop", "matched": 2}
    if not isinstance(value, str):
        return ""
    return _ENDINGS.get(value) or _ENDINGS.get(value.lower()[:60].rpartition(".")[2], "")


def truth(value: object) -> str | None:
    """What the right answer is, as text."""
    if type(value) is str:
        return value
    if isinstance(value, Mapping):
        value = value.get("ground_truth")
    if isinstance(value, (list, tuple)):
        return " | ".join(value)[:20_000] if value and all(isinstance(one, str) for one in value) else None
    if value is None or isinstance(value, Mapping):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value if isinstance(value, str) else str(value)


def text_of(content: object) -> str:
    """The words of a message: a text, or the texts of its parts; what is no text (an image) is named by its kind."""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        return "\n".join(_part(one) for one in content)
    if isinstance(content, Mapping):
        return _part(content)
    return "" if content is None else str(content)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        inner = part.get("text", part.get("content"))
        return inner if isinstance(inner, str) else f"[{part.get('type', 'part')!s:.20}]"
    return "[part]"


def words(value: object) -> str | None:
    """A prompt or an answer as text: as it is, or its messages in lines ``role: content``; None where there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return spoken(value) if "role" in value or "content" in value else None
    if isinstance(value, (list, tuple)):
        messages = [one for one in value if isinstance(one, Mapping)]
        if len(messages) != len(value) or not messages:
            return "\n".join(value) if value and all(isinstance(one, str) for one in value) else None
        if len(messages) == 1:
            return spoken(messages[0])
        return "\n".join(f"{str(one.get('role', ''))[:40]}: {spoken(one)}" for one in messages)
    return None


def spoken(message: Mapping[str, Any]) -> str:
    """Everything that one message says: its reasoning, its content and the calls of tools in it."""
    content = text_of(message.get("content"))
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    calls = calls_of(message)
    if not reasoning and not calls:
        return content
    pieces = [reasoning if isinstance(reasoning, str) else "", content, *calls]
    return "\n".join(piece for piece in pieces if piece)


def calls_of(message: Mapping[str, Any]) -> list[str]:
    """The calls of tools in a message, each as ``name(arguments)``."""
    calls = message.get("tool_calls")
    made = []
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping):
            inner = call.get("function")
            inner = inner if isinstance(inner, Mapping) else call
            made.append(f"{text_of(inner.get('name'))}({text_of(inner.get('arguments'))})")
    return made


@dataclass(frozen=True)
class Talk:
    """A conversation: what was asked, what the policy said, and how often."""

    prompt: str | None
    text: str
    turns: int
    calls: int


def conversation(messages: object, first: int | None = None) -> Talk | None:
    """A list of messages: up to the policy's first (``first``, else the first of the assistant) they are the prompt.

    What the policy said are the messages of the assistant from there on. None where there is no such message.
    """
    if not isinstance(messages, (list, tuple)):
        return None
    found = [one for one in messages if isinstance(one, Mapping)]
    own = [
        place for place, one in enumerate(found) if one.get("role") == "assistant" and (first is None or place >= first)
    ]
    if not own:
        return None
    said = [spoken(found[place]) for place in own]
    calls = sum(len(calls_of(found[place])) for place in own)
    return Talk(words(found[: own[0]]), "\n".join(said), len(own), calls)


def floats(values: object) -> np.ndarray | None:
    """A list of numbers as an array; None where it is none, is empty or holds something else."""
    if not isinstance(values, (list, tuple)) or not values:
        return None
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.ndim == 1 else None


def mean(values: object) -> float | None:
    """The mean of a list of numbers; None where it is none or holds something else."""
    if not isinstance(values, (list, tuple)) or not values:
        return None
    try:
        return float(sum(values)) / len(values)
    except (TypeError, ValueError, OverflowError):
        return None
