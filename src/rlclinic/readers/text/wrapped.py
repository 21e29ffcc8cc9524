"""Console lines that something else wrapped in JSON on their way: a container's log driver, a log service, a tool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

LINE_KEYS = ("log", "message", "textPayload", "line", "msg")
"""Keys under which a record holds a line: Docker's json-file driver (log), CloudWatch (message), Google Cloud
(textPayload), Loki (line) and loggers (msg). Beside the number of a line, ``text`` holds it too."""
ANSWERS = frozenset(
    [
        "prompt",
        "prompts",
        "completion",
        "completions",
        "response",
        "answer",
        "messages",
        "input",
        "output",
        "role",
        "from",
        "chosen",
        "rejected",
        "question",
        "instruction",
        "query",
        "conversation",
        "conversations",
    ]
)
"""Keys of saved answers, of chats and of data: what they say of training is no log."""
LISTS = 4
"""Deepest lists and tables searched for records (ours)."""


def unwrapped(lines: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """(line, whether it ended) for every line that the JSON records of ``lines`` hold; what is no record is left out.

    Docker cuts a line at 16 KiB into several records, of which only the last holds its newline; they are put together.
    """
    begun, pieced = "", False
    for line, _ in lines:
        if not line.lstrip().startswith(("{", "[")):
            continue
        try:
            held = list(_texts(json.loads(line), LISTS))
        except (ValueError, RecursionError):
            continue
        for key, text in held:
            pieced = pieced or (key == "log" and text.endswith("\n"))
            begun += text
            if pieced and key == "log" and not text.endswith("\n") and len(begun) < 1 << 22:
                continue
            yield from ((one, True) for one in begun.splitlines())
            begun = ""
    yield from ((one, True) for one in begun.splitlines())


def _texts(value: object, deep: int) -> Iterator[tuple[str, str]]:
    """(key, text) of a record, or of the records in it, in their order."""
    if deep < 0:
        return
    if isinstance(value, list):
        for one in value:
            yield from _texts(one, deep - 1)
    elif isinstance(value, dict):
        if not ANSWERS.isdisjoint(value):
            return
        keys = (*LINE_KEYS, *(("text",) if isinstance(value.get("line"), int) else ()))
        key = next((key for key in keys if isinstance(value.get(key), str)), None)
        if key is not None:
            yield key, value[key]
        else:
            for one in value.values():
                if isinstance(one, (list, dict)):
                    yield from _texts(one, deep - 1)
