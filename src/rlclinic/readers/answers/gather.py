"""Saved answers as they stream past become one table: numbers of all rows, groups, and the words of a fair sample."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

from rlclinic.rollouts import ENDINGS, Answer, Floats, Ints, Rollouts, Text

WORDS = 12 << 20
"""Bytes of texts that are kept (ours: the whole of ordinary dumps, about a second of looking at words)."""
MOST_ANSWERS = 1_000_000
"""Answers whose numbers are kept (ours: 100 bytes each, and as much again while the table is made)."""
MOST_PARTS = 32
"""Parts of the reward that are followed (ours)."""
NAME = 80
"""Characters of the name of a part (ours)."""
GREATEST = float(np.finfo(np.float32).max)
TOGETHER = 2_048
"""Rows that become arrays together (ours)."""
LARGEST = 8
"""One text may take this part of what is kept (ours: else one endless answer would push out all others)."""
LOTS = 1 << 16
"""Groups whose lots are remembered (ours: more than a step has)."""
_NUMBERS = (
    "step", "reward", "advantage", "tokens", "lag", "turns", "tool_calls", "mismatch", "worst_mismatch", "logp", "trained"
)  # fmt: skip
_READS = {name: attrgetter(name) for name in _NUMBERS}
_MARKS = ("prompt", "answer", "key")
_NO_PARTS: Mapping[str, float | None] = {}
_ENDING = {ending: code for code, ending in enumerate(ENDINGS)}
_NAN = float("nan")


@dataclass(frozen=True)
class Shape:
    """What a form of saved answers says about its rows as a whole.

    ``ordered``: answers to one prompt stand side by side as they were sampled, so that a prompt drawn twice in a step can
    be told apart. ``filtered`` and ``partial`` are those of ``Rollouts``.
    """

    name: str
    ordered: bool = False
    filtered: bool = False
    partial: bool = False


@dataclass
class _Block:
    """Some rows as arrays; a column without any value is None."""

    columns: dict[str, Floats | None]
    marks: dict[str, Ints]
    parts: dict[str, Floats]

    def only(self, keep: np.ndarray) -> _Block:
        return _Block(
            {name: None if one is None else one[keep] for name, one in self.columns.items()},
            {name: one[keep] for name, one in self.marks.items()},
            {name: one[keep] for name, one in self.parts.items()},
        )


class Gatherer:
    """Collects answers one by one; bounded in memory, and the same rows give the same table.

    Whole groups are kept or left: by a fingerprint of step and group that is compared with a share that halves when there
    is too much, so that every step keeps the same share. ``wanted`` keeps the words of answers that somebody asked for.
    """

    def __init__(
        self, shape: Shape, source: str, *, words: int = WORDS, wanted: Callable[[Answer], bool] | None = None
    ) -> None:
        self._shape, self._source, self._words, self._wanted = shape, source, words, wanted
        self._blocks: list[_Block] = []
        self._waiting: list[Answer] = []
        self._lots_waiting: list[float] = []
        self._lengths: list[int | None] = []
        self._marks: list[int] = []
        self._sames: list[int] = []
        self._followed: dict[str, None] = {}
        self._texts: dict[int, tuple[float, Text, int]] = {}
        self._prompts: dict[int, str] = {}
        self._held = self._asked = self._oversized = 0
        self._share = self._row_share = 1.0
        self._rows = self._files = self._stored = 0
        self._lots: dict[tuple[object, ...], float] = {}
        self._prompt, self._mark = "", hash("")
        self.warnings: list[str] = []

    def __len__(self) -> int:
        return self._stored + len(self._waiting)

    def file(self) -> None:
        """Count a file."""
        self._files += 1

    def add(self, one: Answer) -> None:
        """Take one answer."""
        self._rows += 1
        prompt, text, key = one.prompt, one.text, one.key
        if prompt is None:
            mark = -1
        elif prompt == self._prompt:
            mark = self._mark
        else:
            # The text itself is not kept: 64-bit fingerprints of a million prompts collide with probability 3e-8. No
            # number of a prompt, an answer or a key depends on them, only which are equal.
            mark = self._mark = hash(prompt)
            self._prompt = prompt
        name = one.step, one.held_out, mark if key is None else key
        lot = self._lots.get(name)
        if lot is None:
            lot = self._drawn(name, one)
        if lot >= self._row_share:
            return
        if text is None:
            same, length = -1 if one.same is None else hash(one.same), None
        else:
            same, length = hash(text), len(text)
            asked = self._wanted is not None and self._asked < WORDS and self._wanted(one)
            if asked or lot < self._share:
                self._keep(len(self), -1.0 if asked else lot, mark, one, text)
        # Nothing below raises: a row is taken whole or not at all.
        self._sames.append(same)
        self._lengths.append(length)
        self._marks.append(mark)
        self._lots_waiting.append(lot)
        one.text = one.prompt = one.truth = None  # what waits holds no words
        self._waiting.append(one)
        if len(self._waiting) >= TOGETHER:
            self._store()
            if self._stored >= MOST_ANSWERS:
                self._thin_rows()

    def _drawn(self, name: tuple[object, ...], one: Answer) -> float:
        """The lot of the answer's group, 0..1: the same for all its answers, in every run of the program."""
        said = one.key if one.key is not None else one.prompt or ""
        step = None if one.step is None else float(one.step)
        seed = f"{step}|{one.held_out}|{said}".encode("utf-8", "surrogatepass")
        if len(self._lots) >= LOTS:
            self._lots.clear()
        lot = self._lots[name] = zlib.crc32(seed) / 2**32
        return lot

    def _keep(self, row: int, lot: float, mark: int, one: Answer, text: str) -> None:
        prompt = one.prompt or ""
        size = sys.getsizeof(text) + 100
        known = self._prompts.get(mark)
        if known is None:
            size += sys.getsizeof(prompt)
        if size > self._words // LARGEST and lot >= 0:
            self._oversized += self._words > 0
            return
        prompt = known or self._prompts.setdefault(mark, prompt)
        self._texts[row] = lot, Text(prompt, text, one.truth or ""), size
        if lot < 0:
            self._asked += size
            return
        self._held += size
        while self._held > self._words and self._share > 1e-9:
            self._share /= 2
            self._texts = {k: kept for k, kept in self._texts.items() if kept[0] < self._share}
            self._held = sum(size for lot, _, size in self._texts.values() if lot >= 0)
            # A prompt whose groups are gone is forgotten; the next answer to it counts it anew.
            self._prompts.clear()

    # ------------------------------------------------------------ arrays

    def _store(self) -> None:
        """Turn the waiting rows into arrays."""
        rows = self._waiting
        many = len(rows)
        if not many:
            return
        columns: dict[str, Floats | None] = {"lot": np.array(self._lots_waiting), "characters": _column(self._lengths)}
        for name in _NUMBERS:
            columns[name] = _column(list(map(_READS[name], rows)))
        ending = [one.ending for one in rows]
        columns["ending"] = _array([_ENDING.get(one, 0) for one in ending]) if any(ending) else None
        held_out = [bool(one.held_out) for one in rows]
        columns["held_out"] = _array(held_out) if any(held_out) else None
        keys = [-1 if one.key is None else hash(one.key) for one in rows]
        given: list[Mapping[str, float | None]] = [one.parts or _NO_PARTS for one in rows]
        parts: dict[str, Floats] = {}
        for name in dict.fromkeys(chain.from_iterable(dict.fromkeys(map(tuple, given)))):
            if name in self._followed or len(self._followed) < MOST_PARTS:
                values = _column([one.get(name) for one in given])
                if values is not None:
                    self._followed[name] = None
                    parts[name] = values
        marks = (np.array(one, dtype=np.int64) for one in (self._marks, self._sames, keys))
        self._blocks.append(_Block(columns, dict(zip(_MARKS, marks, strict=True)), parts))
        self._stored += many
        for waiting in (rows, self._lots_waiting, self._lengths, self._marks, self._sames):
            waiting.clear()

    def _thin_rows(self) -> None:
        """Leave half of the groups."""
        self._row_share /= 2
        kept = [np.asarray(block.columns["lot"]) < self._row_share for block in self._blocks]
        self._blocks = [block.only(keep) for block, keep in zip(self._blocks, kept, strict=True) if keep.any()]
        keep = np.concatenate(kept)
        self._stored = int(keep.sum())
        place = np.cumsum(keep) - 1
        self._texts = {int(place[row]): text for row, text in self._texts.items() if keep[row]}

    def _whole(self, name: str, missing: float = np.nan) -> Floats:
        found = [block.columns[name] for block in self._blocks]
        if all(one is None for one in found):
            return np.broadcast_to(np.float64(missing), self._stored)
        return np.concatenate(
            [
                np.full(len(block.marks["key"]), missing) if one is None else one
                for one, block in zip(found, self._blocks, strict=True)
            ]
        )

    def _part(self, name: str) -> Floats:
        return np.concatenate(
            [block.parts.get(name, np.full(len(block.marks["key"]), np.nan)) for block in self._blocks]
        )

    def table(self) -> Rollouts:
        """What was gathered; at least one answer."""
        self._store()
        numbers = {name: _computable(self._whole(name)) for name in _NUMBERS}
        held_out = self._whole("held_out", 0.0) > 0
        marks = {name: _numbered(np.concatenate([block.marks[name] for block in self._blocks])) for name in _MARKS}
        parts: dict[str, Floats] = {}
        for name in self._followed:
            parts.setdefault(name[:NAME], _computable(self._part(name)))
        n = self._stored
        warnings = list(self.warnings)
        if self._row_share < 1:
            warnings.append(f"{n} of {self._rows} answers are kept, whole groups drawn evenly over the steps")
        if self._oversized:
            warnings.append(f"the words of {self._oversized} very long answers are not looked at")
        ordered = self._shape.ordered and self._row_share == 1
        return Rollouts(
            source=self._source,
            form=self._shape.name,
            group=grouped(numbers["step"], held_out, marks["key"], marks["prompt"], ordered=ordered),
            prompt=marks["prompt"],
            answer=marks["answer"],
            parts=parts,
            characters=self._whole("characters"),
            ending=self._whole("ending", 0.0).astype(np.int8),
            held_out=held_out,
            key=marks["key"],
            texts={row: kept[1] for row, kept in sorted(self._texts.items())},
            files=self._files,
            rows=self._rows,
            filtered=self._shape.filtered,
            partial=self._shape.partial,
            warnings=tuple(warnings),
            shift=0.0,
            **numbers,
        )


def _column(values: list[Any]) -> Floats | None:
    """Numbers as an array, None where there is none of them."""
    return None if values.count(None) == len(values) else _array(values)


def _computable(values: Floats) -> Floats:
    """``values`` with NaN for those that no trainer can compute with: beyond float32, or infinite."""
    beyond = np.abs(values) > GREATEST
    return np.where(beyond, np.nan, values) if beyond.any() else values


def _array(values: Sequence[object]) -> Floats:
    """Numbers as an array, None and what is no number as NaN."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(_float, values), dtype=np.float64, count=len(values))


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return _NAN


def _numbered(marks: Ints) -> Ints:
    """(n,) numbers of equal marks in the order in which they are met, from 0 without gaps; -1 stays."""
    known = marks != -1
    if not known.any():
        return np.full(len(marks), -1, dtype=np.int64)
    _, first, same = np.unique(marks[known], return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    out = np.full(len(marks), -1, dtype=np.int64)
    out[known] = rank[same.reshape(-1)]
    return out


def grouped(step: Floats, held_out: np.ndarray, key: Ints, prompt: Ints, *, ordered: bool) -> Ints:
    """(n,) the number of each row's group, in the order in which the groups are met; -1 where neither a name (``key``) nor a
    ``prompt`` tells it.

    Answers with one name, or without names one prompt, within one step are a group. Where the rows are ``ordered`` and
    almost all groups have one size, a group of a multiple of that size is a prompt that was drawn several times.
    """
    known = (key >= 0) | (prompt >= 0)
    if not known.any():
        return np.full(len(step), -1, dtype=np.int64)
    named = np.where(key >= 0, key, prompt + (key.max(initial=-1) + 1))
    _, when = np.unique(np.nan_to_num(step, nan=-1.0), return_inverse=True)
    place = 2 * when.reshape(-1).astype(np.int64) + held_out
    group = _numbered(np.where(known, place * (named.max() + 1) + named, -1))
    if not ordered or (key >= 0).any():
        return group
    sizes = np.bincount(group[known])
    usual = int(np.bincount(sizes).argmax())
    many = (sizes > usual) & (sizes % max(usual, 1) == 0)
    alike = sizes == usual
    if usual < 2 or not many.any() or alike.mean() < 0.5 or (alike | many).mean() < 0.9:
        return group
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=group[order[0]] - 1))
    turn = np.empty(len(group), dtype=np.int64)
    turn[order] = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
    draw = np.where(known & many[group], turn // usual, 0)
    return _numbered(np.where(known, group * (draw.max() + 1) + draw, -1))
