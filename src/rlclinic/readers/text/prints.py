"""Rows that a loop of one's own prints as names and numbers, for a text that holds nothing better."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable

from rlclinic.readers.tokens import Printed, metric_like

REMEMBERED = 500_000
"""Most values that are kept in case nothing better is found (ours: 50,000 rows of ten)."""
LONGEST = 140
"""Most characters of one pair (``_EQUALS``, ``_COLON``)."""
PAIRS = 2_000
"""Most metrics of one row (ours)."""
APART = 3
"""Most lines between two pieces of one row (ours: DeepSpeed-Chat prints the reward in the line after the losses)."""
COVERED = 5
"""A line is a row when what is no pair makes up less than one in so many of its characters (ours)."""

_VALUE = r"([-+]?(?:\d[\d.]{0,40}(?:e[-+]?\d{1,3})?|\.\d{1,30}|nan|inf))"
_EQUALS = rf"(?i)(?<![\w.])([A-Za-z_][\w./-]{{0,80}})\s?=\s?{_VALUE}(?![\w.%])"
_COLON = (
    rf"(?i)(?<![\w.])([A-Za-z_](?:[\w./()@-]|(?<=\w) (?=\w)){{0,80}})\s?:\s?{_VALUE}(%|[a-z/]{{1,8}})?(?=$|[\s,|;)])"
)
_PROSE = (
    r"\s*([A-Za-z][\w ./-]{1,100}?)\s{0,8}:\s{1,20}([A-Z][A-Za-z_]{0,30})\s?=\s?"
    r"([-+]?\d[\d.]{0,30}(?:e[-+]?\d{1,3})?)(?=\s|$)"
)
_COUNT = (
    r"(?i)^[\s\[(]{0,4}(iter|iteration|step|epoch|update|episode)\s{1,3}(\d{1,9})(?:\s?/\s?\d{1,9})?"
    r"[\])]?\s{0,3}[:|,-]?"
)
_STAMP = (
    r"^[\[(]?\d{4}-\d\d-\d\d[T ][\d:,.]{5,15}Z?[\])]?[\s|:-]{0,4}(?:\[?[A-Z]{4,8}\]?)?[\s|:-]{0,4}|"
    r"^[A-Z]{4,8}:[\w.]{0,40}:\s?"
)
"""What Python's loggers print before a message."""
_COUNTS = r"(?i)(?:train/|training/)?(?:global_)?(?:step|iter|iteration|update|episode)"
"""Names that place a row: rows of held-out scores between those of training have other names and the same count."""
_UNFINITE = r"WARN: (?:rank \d{1,6} )?grad_norm is not finite: \[?(?:tensor\()?[-+]?(nan|inf)"
"""What verl prints where it skips an update (verl/workers/actor/dp_actor.py; its critic and engines name no rank)."""
_MEASURED = (
    r"(?:.*[./])?(?:(?:policy_|pg_)?loss|rewards?|mean_reward|avg_reward|reward_(?:mean|std)|grad_norm|entropy|kl|"
    r"clip(?:ped)?_ratio|mean_length|completion_length)"
)
"""Ends of names that only something measured has: one row of names and numbers may be a configuration as well."""
_CODE = (
    r"def \w{1,80}\(|class \w{1,80}[(:]|for \w[\w, ]{0,80} in .{1,200}:$|from [\w.]{1,80} import |"
    r"import [a-z][\w.]{0,80}(?: as \w{1,40})?$|(?:self\.)?\w{1,80} = \w[\w.]{0,80}\("
)
"""How lines of a program begin: what it assigns was not measured."""
_SETTING = (
    r"temperature|top_[pk]|weight_decay|gamma|lam|lambda|beta\d?|seed|momentum|warmup\w*|dropout|penalty|"
    r"(?!kl_)\w+_(?:coeff?|coefficient|penalty|batch_size|eps|epsilon)"
)
"""Names that a configuration has; where they stand beside round values only, nothing was measured."""


class Prints:
    """Takes lines that hold no other form (``take``); ``rows`` gives those that are alike, or the one row they make up."""

    def __init__(self) -> None:
        self.prose: dict[str, object] = {}
        """Values of sentences such as ``vLLM vs Megatron: TME = 1.03``, by what stands before them."""
        self._loop: list[dict[str, object]] = []
        self._last = 0
        self._lines = 0
        self._open = False
        self._held = 0
        self._program = False
        self._assigned: set[int] = set()
        self._unfinite: dict[str, object] = {}

    def take(self, text: str, ended: bool) -> None:
        """One line; ``ended`` is False when the text stops inside it."""
        self._lines += 1
        self._program = self._program or re.match(_CODE, text) is not None
        if self.full or not ("=" in text or ":" in text):
            return
        text = text[:4000]
        if "not finite" in text and (found := re.match(_UNFINITE, re.sub(_STAMP, "", text).lstrip(" \t-*`|>"))):
            self._unfinite.setdefault("grad_norm", found[1])
            return
        sentence = re.match(_PROSE, text) if ended and "=" in text else None
        if sentence and len(self.prose) < PAIRS:
            self.prose.setdefault(f"{' '.join(sentence[1].split())}/{sentence[2]}", Printed(sentence[3]))
            return
        text = re.sub(_STAMP, "", text).lstrip(" \t-*•|").rstrip(" \t|,;")
        count = re.match(_COUNT, text)
        rest = text[count.end() :] if count else text
        counted: dict[str, object] = {count[1].lower(): Printed(count[2])} if count else {}
        marks = rest.count("=") + rest.count(":")
        if (len("".join(rest.split())) - LONGEST * marks) * COVERED > len(rest):
            return
        pairs = re.findall(_EQUALS, rest) if "=" in rest else []
        if len(pairs) >= 2 and _covers(_EQUALS, rest):
            self._assigned.add(len(self._loop))
            self._begin({key: Printed(token) for key, token in (pairs if ended else pairs[:-1])} | counted)
        elif ":" in rest and (named := re.findall(_COLON, rest)) and _covers(_COLON, rest):
            kept = named if ended else named[:-1]
            row = {key.strip(): Printed(token) for key, token, unit in kept[:PAIRS] if unit != "%"} | counted
            if len(row) >= 2 and not (len(named) == 1 and self._goes_on(row)):
                self._begin(row)
            elif row:
                self._piece(row)

    @property
    def full(self) -> bool:
        """True when lines were left out because as many values as may be kept had been taken."""
        return self._held >= REMEMBERED

    def _goes_on(self, row: dict[str, object]) -> bool:
        return self._open and self._lines - self._last <= APART and self._loop[-1].keys().isdisjoint(row)

    def _begin(self, row: dict[str, object]) -> None:
        if row:
            row = {sys.intern(key): value for key, value in row.items()}
            self._loop.append(row)
            self._held += len(row)
            self._last, self._open = self._lines, True

    def _piece(self, row: dict[str, object]) -> None:
        """A line with one value: the row before it goes on, or another begins."""
        if self._goes_on(row) and len(self._loop[-1]) < PAIRS:
            self._loop[-1].update(row)
            self._held += len(row)
            self._last = self._lines
        else:
            self._begin(row)

    def rows(self) -> list[dict[str, object]]:
        """The rows with the most frequent names, when there are at least two, and those of the same count of steps."""
        alike = Counter(frozenset(row) for row in self._loop if len(row) >= 2 and metric_like(row))
        best = alike.most_common(1)
        if not best or best[0][1] < 2:
            return []
        counted = {key for key in best[0][0] if re.fullmatch(_COUNTS, key)}
        kept = {best[0][0], *(names for names in alike if counted & names)}
        return [row for row in self._loop if frozenset(row) in kept]

    def single(self) -> dict[str, object]:
        """All lines as one row, where no name is said twice and some can only be measured; else what a warning states."""
        joined: dict[str, object] = {}
        for place, row in enumerate(self._loop[:PAIRS]):
            if self._program and place in self._assigned:
                continue
            if not joined.keys().isdisjoint(row):
                return self._unfinite
            joined.update(row)
        configured = any(re.fullmatch(_SETTING, key.lower()) for key in joined) and all(map(_round, joined.values()))
        return joined if len(joined) >= 2 and _measured(joined) and not configured else self._unfinite


def _covers(pattern: str, text: str) -> bool:
    return len(re.sub(r"[\s,;|]+", "", re.sub(pattern, "", text))) * COVERED <= len(text)


def _round(value: object) -> bool:
    """Whether a printed number has at most two digits that count, as people write settings."""
    return len(re.sub(r"(?i)^[-+]|e[-+]?\d+$|\.", "", str(value)).strip("0")) <= 2


def _measured(keys: Iterable[str]) -> bool:
    return any(re.fullmatch(_MEASURED, key.lower().replace(" ", "_")) for key in keys)
