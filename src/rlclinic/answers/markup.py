"""Which structure answers have (tags, fences, a boxed result), where it is left open, and which structure is paid."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

_CLOSING = re.compile(r"</([A-Za-z_][A-Za-z0-9_]{0,30})>")
_OPENING = re.compile(
    r"<(think|thinking|thought|reasoning|scratchpad|answer|solution|result|final|tool_call|function_call)>"
)
"""Tags that answers open whether or not any answer closes them; other names between brackets may stand for anything."""
_PAGE = re.compile(
    r"(?:[abiups]|em|li|ul|ol|t[dhr]|h[1-6]|br|hr|div|pre|su[bp]|svg|code|span|html|head|body|main|table|tbody|thead|script"
    r"|style|title|strong|button|form|input|label|section|center|small|nav)$",
    re.I,
)
"""Names of the tags of web pages, which an answer may hold as its matter."""
_PLAIN = ("\\boxed{", "####", "Answer:", "answer is", "</answer>", "**Final Answer")
MOST = 12
"""Most pieces of structure that are looked at (ours: trained forms have two to four)."""
_BRACES = 4_000


def marks(sample: Iterable[str], least: float = 0.1) -> tuple[str, ...]:
    """The pieces of structure that ``least`` of the answers in ``sample`` have, the most frequent first, ``MOST`` at most:
    closing tags (``</think>``), fences, ``\\boxed{`` and the like."""
    counts: Counter[str] = Counter()
    total = 0
    for text in sample:
        total += 1
        part = text[:40_000]
        tags = {name for name in _CLOSING.findall(part) if _PAGE.match(name) is None} | set(_OPENING.findall(part))
        counts.update({f"</{name}>" for name in tags})
        counts.update(mark for mark in _PLAIN if mark in text)
        if "```" in text:
            counts["```"] += 1
        if _is_object(text):
            counts["{}"] += 1
    usual = [mark for mark, count in counts.most_common(4 * MOST) if count >= max(3.0, least * total)]
    return tuple(usual[:MOST])


def has(text: str, mark: str) -> bool:
    """Whether an answer has a piece of structure; ``{}`` stands for an answer that is one JSON object."""
    return _is_object(text) if mark == "{}" else mark in text


def left_open(text: str, named: Sequence[str]) -> bool:
    """Whether a tag of ``named`` (as ``marks`` gives them), a fence or a box is opened in ``text`` and not closed."""
    for mark in named:
        if mark.startswith("</") and text.count(f"<{mark[2:]}") > text.count(mark):
            return True
    if (
        "```" in text
        and sum(line.lstrip().startswith("```") for line in text.splitlines()) % 2
        and text.count("```") % 2
    ):
        return True
    at = text.rfind("\\boxed{")
    return at >= 0 and not _closed(text[at + 6 : at + _BRACES])


def _closed(piece: str) -> bool:
    """Whether the brace that ``piece`` begins with is closed in it; taken as closed where the piece is cut."""
    depth = 0
    for one in piece:
        if one == "{":
            depth += 1
        elif one == "}":
            depth -= 1
            if depth <= 0:
                return True
    return len(piece) >= _BRACES - 6


def _is_object(text: str) -> bool:
    return text[:200].lstrip()[:1] == "{" and text[-200:].rstrip()[-1:] == "}"
