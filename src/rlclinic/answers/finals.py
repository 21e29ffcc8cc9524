"""The result that an answer ends in, as verifiers read it, and whether it agrees with a known right one."""

from __future__ import annotations

import re

_BOXED = re.compile(r"\\(?:boxed|fbox)\s?\{((?:[^{}]|\{(?:[^{}]|\{[^{}]{0,60}\}){0,60}\}){0,120})\}")
_TAG = re.compile(r"<(answer|final|final_answer|result|solution)>([^<]{0,300})</\1>", re.I)
_HASHES = re.compile(r"####[ \t]{0,4}([^\n]{1,120})")
_SAID = re.compile(
    r"\b(?:final\s{1,2}answer|answer|result|solution)\b(?:\s{1,2}(?:is|=|would be|must be))?[\s*:=$]{1,8}(?:is\s)?"
    r"([^\n]{1,80})",
    re.I,
)
_NUMBER = re.compile(r"-?\d[\d,]{0,40}(?:\.\d{1,30})?(?:/\d{1,20})?")
_CODE = re.compile(r"```|^\s{0,8}(?:def|class|import|from|#include|public|function|const|let|var)\s", re.M)
_CHOICE = re.compile(r"(?:^|[\s(*\"'])(?:([A-J])|(yes|no|true|false))[\s.!)*\"']{0,6}$", re.I)
_TAIL = 3000
LONGEST = 80
"""Characters of the longest result that is compared (ours: longer ones are texts, of which many are right)."""


def offered(text: str) -> list[str]:
    """Every result that the answer marks as one (boxed, in answer tags, after ``####``), in order, made comparable."""
    found = [(m.start(), m[1]) for m in _BOXED.finditer(text)] if "\\boxed" in text or "\\fbox" in text else []
    if "</" in text:
        found += [(m.start(), m[2]) for m in _TAG.finditer(text)]
    if "####" in text:
        found += [(m.start(), m[1]) for m in _HASHES.finditer(text)]
    return [plain(one) for _, one in sorted(found)]


MARKED, SAID, SHORT, LAST = 1, 2, 3, 4
"""How a result was told: marked as one, said to be one, the whole of a short answer, the last number of a long one."""


def final(text: str) -> tuple[str, int] | None:
    """The result the answer ends in, made comparable, and how it was told; None where none can be (a text, a program)."""
    end = text[-_TAIL:]
    marked = offered(end)
    if marked:
        return (marked[-1], MARKED) if 0 < len(marked[-1]) <= LONGEST else None
    if "```" in text or _CODE.search(text[:2000]):
        return None
    stated = _SAID.findall(end[-600:])
    if stated:
        value = stated[-1].strip().rstrip(".*$ ")
        number = _NUMBER.search(value)
        if number is not None:
            return plain(number[0]), SAID
        chosen = _CHOICE.search(value)
        if chosen is not None and (chosen[2] or chosen[1].isupper()):
            return (chosen[1] or chosen[2]).lower(), SAID
        if len(value.split()) <= 4 and value:
            return plain(value), SAID
    core = text.strip()
    chosen = _CHOICE.search(core[-40:])
    if chosen is not None and (chosen[2] or chosen[1].isupper()):
        # An option or a yes at the very end is what a verifier of choices reads.
        return (chosen[1] or chosen[2]).lower(), SAID
    if core and len(core) <= 48 and "\n" not in core:
        numbers = _NUMBER.findall(core)
        if numbers or len(core.split()) <= 3:
            return plain(numbers[-1] if numbers else core), SHORT
    numbers = _NUMBER.findall(end[-240:])
    return (plain(numbers[-1]), LAST) if numbers else None


def plain(value: str) -> str:
    """A result without what does not change it: dollars, commas in numbers, spaces, capitals, a trailing dot."""
    value = value.strip().strip("$*`\"' ").rstrip(".")
    if "\\" in value:
        value = re.sub(r"\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]{0,80})\}", r"\1", value)
        value = re.sub(r"\\[dt]?frac\s?\{([^{}]{1,40})\}\s?\{([^{}]{1,40})\}", r"\1/\2", value)
        value = value.replace("\\!", "").replace("\\,", "").replace("\\$", "").replace("\\%", "%")
    value = "".join(value.split()).lower()
    bare = value.replace(",", "").strip("$()")
    if bare and len(bare) < 25 and bare.replace(".", "", 1).replace("-", "", 1).isdecimal():
        # Leading zeros stay: a string of digits may be the result itself.
        return bare.rstrip("0").rstrip(".") if "." in bare else bare
    if not value or value.isalpha():
        return value
    numbers = _NUMBER.findall(bare)
    if len(numbers) == 1 and len(bare) <= 24:
        # A number with its unit or its name, such as "18 dollars" or "x=5".
        return plain(numbers[0]) if numbers[0] != value else value
    return value.strip("()") if len(value) <= 4 else value


def right_one(truth: str) -> str:
    """The known right result made comparable, however the data set writes it; empty where none can be told."""
    if len(truth) > 40 or "####" in truth or "\\boxed" in truth:
        told = final(truth)
        return told[0] if told else ""
    return plain(truth)


def agrees(result: str, right: str, answer: str) -> bool:
    """Whether a result is the ``right`` one (both made comparable) or might be: that one stands near the end of the
    ``answer`` as a word of its own."""
    if result == right:
        return True
    try:
        if abs(float(result) - float(right)) <= 1e-6 * max(1.0, abs(float(right))):
            return True
    except ValueError:
        pass
    end = answer[-240:].lower().replace(",", "")
    at = end.find(right)
    while at >= 0:
        before, after = end[at - 1 : at], end[at + len(right) : at + len(right) + 1]
        inside = (before.isdigit() or before == ".") and right[0].isdigit()
        if not inside and not (after.isdigit() and right[-1].isdigit()):
            return len(right) >= 2 or not (before.isalpha() or after.isalpha())
        at = end.find(right, at + 1)
    return False
