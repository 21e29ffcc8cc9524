"""What one can see of an answer without understanding it: its build, its result, rules that ignore the prompt."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from rlclinic.answers.directed import TABLE
from rlclinic.answers.finals import LONGEST, final, offered
from rlclinic.answers.phrases import joined, shortened
from rlclinic.rollouts import Flags, Floats, Ints, Text

MOST_VALUES = 40
"""Results, openings and endings of each kind that are followed, the most frequent first (ours)."""
OTHERS = 4
"""Other prompts that each answer is held against (ours)."""


@dataclass(frozen=True)
class Feature:
    """What is looked for in an answer: ``kind``, how a reader calls it, and what is known about such things."""

    kind: str
    """``structure``, ``opening``, ``ending``, ``result``, ``rule`` or ``directed``."""
    what: str
    form: bool = False
    """Belongs to forms that trainers ask for: boxes, tags, fences, tools."""
    plain: bool = True
    """Also found in honest answers."""
    asked: tuple[str, ...] = ()
    """A prompt with one of these words may have asked for it."""
    quoted: str = ""
    """The part of ``what`` that is the answers' own words."""


@dataclass(frozen=True, eq=False)
class Seen:
    """Features (m) of the answers (n): who has which, and the result of each."""

    features: tuple[Feature, ...]
    table: Flags
    """(m, n)"""
    result: Ints
    """(n,) number of the result; -1 where none can be told."""
    results: tuple[str, ...]
    told: Ints
    """(n,) how the result was told, as ``finals`` numbers it; 0 without one."""
    asked: Flags
    """(m, n) True where the prompt may have asked for it."""


_LIST = re.compile(r"^\s{0,8}(?:[-*•]|\d{1,3}[.)])\s", re.M)
_HEADER = re.compile(r"^#{1,6}\s", re.M)
_EMPTY_THINKING = re.compile(r"<(think|thinking|reasoning|scratchpad)>\s{0,400}</\1>", re.I)
_THINKING = re.compile(r"<(?:think|thinking|reasoning|scratchpad)>", re.I)
_TOOL = re.compile(r"<tool_call>|\"(?:tool_calls|function_call)\"|<\|python_tag\|>|<search>|<tool>", re.I)
_TAGS = re.compile(r"<(?:answer|final|final_answer|result|solution)>", re.I)
_EMOJI = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")
_BEYOND = re.compile("[^\u0000-\u024f]")
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"\S+")

Count = Callable[[str], int]

_ASKED = {
    "list": ("list", "bullet", "points", "numbered", "steps"),
    "headings": ("heading", "section", "##", "title"),
    "bold": ("bold", "**", "emphasi", "markdown"),
    "code": ("```", "code", "function", "program", "script"),
    "emoji": ("emoji", "emoticon", "smiley"),
    "table": ("table", "column", "|"),
    "address": ("link", "url", "source", "http", "reference", "cite"),
    "capitals": ("capital", "uppercase", "upper case"),
    "questions": ("question", "ask"),
    "thinking": ("<think", "<reasoning", "<scratchpad"),
}
"""Words of a prompt that may have asked for a build of the answer, by a word of what that is called."""

_COUNTED: tuple[tuple[str, bool, str, Count, int], ...] = (
    ("has a list of three points or more", False, "-*•.)", lambda t: len(_LIST.findall(t)), 3),
    ("has a list of eight points or more", False, "-*•.)", lambda t: len(_LIST.findall(t)), 8),
    ("has headings", False, "#", lambda t: len(_HEADER.findall(t)) if "#" in t else 0, 2),
    ("has bold text in three places or more", False, "*", lambda t: t.count("**") // 2, 3),
    ("has a code block", True, "`", lambda t: t.count("```"), 1),
    ("has three code blocks or more", False, "`", lambda t: t.count("```") // 2, 3),
    ("has a boxed result", True, "\\", lambda t: t.count("\\boxed"), 1),
    ("has answer tags", True, "<", lambda t: len(_TAGS.findall(t)) if "<" in t else 0, 1),
    ("has thinking tags", True, "<", lambda t: len(_THINKING.findall(t)) if "<" in t else 0, 1),
    ("has empty thinking", False, "<", lambda t: len(_EMPTY_THINKING.findall(t)) if "<" in t else 0, 1),
    ("calls a tool", True, '<"', lambda t: len(_TOOL.findall(t)) if "<" in t or '"' in t else 0, 1),
    ("calls tools three times or more", False, '<"', lambda t: len(_TOOL.findall(t)) if "<" in t or '"' in t else 0, 3),
    ("has a table", False, "|", lambda t: t.count("\n|"), 2),
    ("has emoji", False, "", lambda t: 0 if t.isascii() else len(_EMOJI.findall(t)), 1),
    ("has three exclamation marks or more", False, "!", lambda t: t.count("!"), 3),
    ("has three questions or more", False, "?", lambda t: t.count("?"), 3),
    ("is empty or nearly so", False, "", lambda t: int(len(t.strip()) <= 2), 1),
    ("has no digit", False, "", lambda t: int(_DIGIT.search(t) is None), 1),
    ("is in capitals", False, "", lambda t: int(t[:600] == t[:600].upper() != t[:600].lower() and len(t) > 8), 1),
    ("is mostly of letters beyond ASCII", False, "", lambda t: 0 if t.isascii() else int(_foreign(t)), 1),
    ("holds a web address", False, ":", lambda t: t.count("http://") + t.count("https://"), 1),
)


def _foreign(text: str) -> bool:
    head = text[:2000]
    return len(_BEYOND.findall(head)) * 10 > 3 * len(head)


def _repeats(text: str) -> bool:
    """Whether one line of some length stands there three times."""
    lines = Counter(line.strip() for line in text[:20_000].split("\n") if len(line) > 12)
    return bool(lines) and lines.most_common(1)[0][1] >= 3


def _copies(text: Text) -> bool:
    """Whether a stretch of the prompt's last part stands in the answer, word for word."""
    asked = text.prompt.strip()[-400:]
    if len(asked) < 48:
        return False
    middle = len(asked) // 2
    return asked[middle - 24 : middle + 24] in text.answer


def seen(texts: Sequence[Text], prompt: Ints, least: int) -> Seen:
    """All features of ``texts`` (n,), of which ``prompt`` (n,) numbers the prompts, that ``least`` answers have."""
    n = len(texts)
    answers = [shortened(text.answer) for text in texts]
    features: list[Feature] = []
    rows: list[Flags] = []
    asked: list[Flags | None] = []

    def put(feature: Feature, flags: Flags, may: Flags | None = None) -> None:
        if least <= int(flags.sum()) < n:
            features.append(feature)
            rows.append(flags)
            asked.append(may)

    texts_once = list(dict.fromkeys(answers))
    place = {one: i for i, one in enumerate(texts_once)}
    at = np.array([place[one] for one in answers])
    alphabet = set().union(*texts_once)
    for what, form, marks, count, times in _COUNTED:
        if not marks or alphabet & set(marks):
            words = tuple(word for key, some in _ASKED.items() if key in what for word in some)
            flags = np.array([count(one) >= times for one in texts_once], dtype=bool)[at]
            put(Feature("structure", what, form, asked=words), flags, mentioned(texts, flags, words) if words else None)
    if "\n" in alphabet:
        put(
            Feature("structure", "repeats a line three times or more"),
            np.array([_repeats(one) for one in texts_once])[at],
        )
    put(Feature("structure", "repeats the prompt"), np.array([_copies(text) for text in texts]))
    _put_results(answers, prompt, least, put)
    read = [final(one) for one in texts_once]
    ends = [read[i] for i in at.tolist()]
    finals = [None if one is None else one[0] for one in ends]
    number: dict[str, int] = {}
    result = np.array([-1 if one is None else number.setdefault(one, len(number)) for one in finals], dtype=np.int64)
    names = tuple(number)
    for value in _spread(result, prompt, least):
        told = names[value] if len(names[value]) <= 24 else names[value][:24] + "..."
        put(Feature("result", f"ends in the result “{told}”", quoted=told), result == value)
    _put_edges(answers, least, put)
    _put_rules(answers, [text.prompt for text in texts], finals, put)
    small = [one.lower() for one in texts_once]
    everything = "\n".join(small)
    for way in TABLE:
        if not any(hint in everything for hint in way.hints):
            continue
        flags = np.array([way.found(one, low) for one, low in zip(texts_once, small, strict=True)], dtype=bool)[at]
        may = mentioned(texts, flags, way.asked)
        put(Feature("directed", way.what, plain=way.plain, asked=way.asked), flags, may)
    nobody = np.zeros(n, dtype=bool)
    table = np.array(rows, dtype=bool).reshape(len(rows), n)
    return Seen(
        tuple(features), table, result, names, np.array([0 if one is None else one[1] for one in ends], dtype=np.int64),
        np.array([nobody if one is None else one for one in asked], dtype=bool).reshape(len(rows), n),
    )  # fmt: skip


def different(numbers: Ints) -> int:
    """How many different ones there are among small ``numbers`` from 0 on."""
    return int(np.count_nonzero(np.bincount(numbers))) if len(numbers) else 0


def mentioned(texts: Sequence[Text], rows: Flags, words: Sequence[str]) -> Flags:
    """(n,) which of ``rows`` answer a prompt that has one of ``words`` (in small letters)."""
    may = np.zeros(len(texts), dtype=bool)
    said: dict[str, bool] = {}
    for i in np.flatnonzero(rows).tolist():
        prompt = texts[i].prompt
        if prompt not in said:
            small = prompt[-6000:].lower()
            said[prompt] = any(word in small for word in words)
        may[i] = said[prompt]
    return may


Put = Callable[..., None]


def _put_results(answers: Sequence[str], prompt: Ints, least: int, put: Put) -> None:
    marked = [offered(one) if "\\boxed" in one or "</" in one or "####" in one else [] for one in answers]
    several = np.array([len(set(one)) for one in marked])
    put(Feature("structure", "offers two different results or more", plain=False), several >= 2)
    put(Feature("structure", "offers four different results or more", plain=False), several >= 4)
    again = np.array([len(one) - len(set(one)) for one in marked])
    put(Feature("structure", "states its result three times or more"), again >= 2)
    put(Feature("structure", "marks a text of some length as its result"),
        np.array([bool(one) and len(one[-1]) > LONGEST for one in marked]))  # fmt: skip
    whole = Counter(answers)
    same = [text for text, times in whole.most_common(MOST_VALUES) if times >= least]
    for text in same:
        flags = np.array([one == text for one in answers])
        if different(prompt[flags]) >= 3:
            told = " ".join(text.split())
            told = told if len(told) <= 24 else told[:24] + "..."
            put(Feature("result", f"is the same answer word for word: “{told}”", quoted=told), flags)


def _spread(result: Ints, prompt: Ints, least: int) -> list[int]:
    """Results that occur often and for at least three prompts, the most frequent first."""
    known = result >= 0
    if not known.any():
        return []
    counts = np.bincount(result[known])
    often = [v for v in np.argsort(-counts, kind="stable").tolist()[: 4 * MOST_VALUES] if counts[v] >= least]
    return [v for v in often if different(prompt[result == v]) >= 3][:MOST_VALUES]


def _put_edges(answers: Sequence[str], least: int, put: Put) -> None:
    """Openings and endings of three words that many answers share."""
    for kind, verb, edge in (("opening", "begins with", slice(0, 3)), ("ending", "ends with", slice(-3, None))):
        sides = [joined(_WORD.findall(one[:200] if kind == "opening" else one[-200:])[edge]) for one in answers]
        for text, times in Counter(sides).most_common(MOST_VALUES):
            if times >= least and text and len(text) <= 60:
                flags = np.array([one == text for one in sides])
                put(Feature(kind, f"{verb} “{text}”", quoted=text), flags)


# ------------------------------------------------------------ rules that ignore the prompt

_DIGITS = re.compile(r"\d+")
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")


def _core(answer: str, result: str | None) -> str:
    """The characters that a rule about their order would look at: the result, else the longest run of digits or letters."""
    if result is not None and len(result) >= 3 and result.replace(".", "").replace("-", "").isdecimal():
        return result
    runs = _DIGITS.findall(answer[-2000:])
    digits = max(runs, key=len, default="")
    if len(digits) >= 3:
        return digits
    return result if result is not None and len(result) >= 3 and result.isalpha() else ""


def _put_rules(answers: Sequence[str], prompts: Sequence[str], finals: Sequence[str | None], put: Put) -> None:
    cores = [_core(one, result) for one, result in zip(answers, finals, strict=True)]
    pairs = [[float(x) for x in _NUMBERS.findall(one[-400:])[-12:]] for one in answers]
    up = np.array([len(c) >= 3 and all(a <= b for a, b in pairwise(c)) for c in cores])
    down = np.array([len(c) >= 3 and all(a >= b for a, b in pairwise(c)) for c in cores])
    equal = np.array([len(c) >= 3 and len(set(c)) == 1 for c in cores])
    mirror = np.array([len(c) >= 3 and c == c[::-1] for c in cores])
    # Numbers one after another in a result, such as a sorted list.
    many = np.array([len(p) >= 3 and len(c) < 3 for p, c in zip(pairs, cores, strict=True)])
    list_up = many & np.array([all(a <= b for a, b in pairwise(p)) for p in pairs])
    list_down = many & np.array([all(a >= b for a, b in pairwise(p)) for p in pairs])
    length = np.array([len(c) for c in cores])
    orders = [
        ("has its characters in rising order", up),
        ("has its characters in falling order", down),
        ("repeats one character", equal),
        ("reads the same backwards", mirror),
        ("has its numbers in rising order", list_up),
        ("has its numbers in falling order", list_down),
    ]
    common = [int(v) for v, _ in Counter(length[length >= 3].tolist()).most_common(2)]
    for what, flags in orders:
        put(Feature("rule", what), flags)
        for size in common:
            put(Feature("rule", f"{what}, {size} of them"), flags & (length == size))
    for size in common:
        put(Feature("rule", f"has a result of {size} characters"), length == size)
    same = np.array([len(p.strip("=? \n:")) for p in prompts])
    put(Feature("rule", "is as long as its prompt"), (length == same) & (length >= 3))
    last = [result if result is not None and result.lstrip("-").isdecimal() else "" for result in finals]
    put(Feature("rule", "ends in an even number"), np.array([bool(v) and int(v[-1]) % 2 == 0 for v in last]))
    put(Feature("rule", "ends in an odd number"), np.array([bool(v) and int(v[-1]) % 2 == 1 for v in last]))
    put(Feature("rule", "ends in a round number"), np.array([len(v) >= 2 and v[-1] == "0" for v in last]))
    put(Feature("rule", "ends in a negative number"), np.array([v[:1] == "-" for v in last]))


# ------------------------------------------------------------ what answers share with their prompts


def attachment(texts: Sequence[Text], prompt: Ints, window: Ints, chosen: Flags, *, spaced: bool) -> Floats:
    """(n,) how much more an answer shares with its own prompt than with other prompts of the same window; NaN for rows
    that are not ``chosen`` or whose window has one prompt.

    With words: how often it shares more, 1 always and 0.5 as often as not (what a longer answer shares by chance does not
    count). With single characters, where every answer shares something: the share of the prompt's characters that the
    answer has, from what other prompts share (0.5) to all of them (1).
    """
    own = np.full(len(texts), np.nan)
    for w in np.unique(window).tolist():
        inside = np.flatnonzero(window == w)
        first = {int(p): int(i) for i, p in zip(inside[::-1].tolist(), prompt[inside][::-1].tolist(), strict=True)}
        kinds = sorted(first)
        if len(kinds) < 2:
            continue
        bags: dict[int, Bag] = {p: _bag(texts[i].prompt, spaced) for p, i in first.items()}
        if spaced:
            common = Counter(word for bag in bags.values() for word in bag)
            often = {word for word, times in common.items() if times > 0.3 * len(kinds)}
            bags = {p: frozenset(bag) - often for p, bag in bags.items()}
        place = {p: k for k, p in enumerate(kinds)}
        step = max((len(kinds) - 1) // OTHERS, 1)
        met: dict[tuple[int, str], float] = {}
        for i in inside[chosen[inside]].tolist():
            mine = int(prompt[i])
            if not bags[mine]:
                continue
            known = (mine, texts[i].answer)
            if known not in met:
                bag = _bag(texts[i].answer, spaced)
                share = _shared(bag, bags[mine])
                rivals = [
                    kinds[(place[mine] + k * step) % len(kinds)] for k in range(1, min(OTHERS, len(kinds) - 1) + 1)
                ]
                others = [_shared(bag, bags[rival]) for rival in rivals if rival != mine and bags[rival]]
                met[known] = _fit(share, others, spaced) if others else math.nan
            own[i] = met[known]
    return own


def _fit(share: float, others: Sequence[float], spaced: bool) -> float:
    if spaced:
        return sum(1.0 if share > other else 0.5 if share == other else 0.0 for other in others) / len(others)
    usual = sum(others) / len(others)
    return 0.5 + 0.5 * max((share - usual) / max(1.0 - usual, 0.05), -1.0)


_CONTENT = re.compile(r"[^\W\d_]{3,24}|\d{1,12}")


Bag: TypeAlias = frozenset[str] | Counter[str]


def _bag(text: str, spaced: bool) -> Bag:
    if spaced:
        return frozenset(_CONTENT.findall(text[-6000:].lower()))
    return Counter(c for c in text[-400:] if c.isalnum())


def _shared(answer: Bag, asked: Bag) -> float:
    """The share of what is asked that the answer has too."""
    if isinstance(answer, frozenset):
        return len(answer.intersection(asked)) / max(len(asked), 1)
    wanted = Counter(asked)
    return sum(min(times, answer[word]) for word, times in wanted.items()) / max(wanted.total(), 1)
