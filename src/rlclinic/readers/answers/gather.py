"""Saved answers as they stream past become one table: numbers of all rows, groups, and the words of a fair sample."""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlclinic.rollouts import ENDINGS, Answer, Floats, Ints, Rollouts, Text

WORDS = 24 << 20
"""Bytes of texts that are kept (ours: the whole of ordinary dumps, about a second of looking at words)."""
MOST_ANSWERS = 1_500_000
"""Answers whose numbers are kept (ours: 200 bytes each)."""
MOST_PARTS = 32
"""Parts of the reward that are followed (ours)."""
NAME = 80
"""Characters of the name of a part (ours)."""
_NUMBERS = (
    "step", "reward", "advantage", "tokens", "lag", "turns", "tool_calls", "mismatch", "worst_mismatch", "logp", "trained"
)  # fmt: skip
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


class Gatherer:
    """Collects answers one by one; bounded in memory, and the same rows give the same table.

    Whole groups are kept or left: by a fingerprint of step and group that is compared with a share that halves when there
    is too much, so that every step keeps the same share. ``wanted`` keeps the words of answers that somebody asked for.
    """

    def __init__(
        self, shape: Shape, source: str, *, words: int = WORDS, wanted: Callable[[Answer], bool] | None = None
    ) -> None:
        self._shape, self._source, self._words, self._wanted = shape, source, words, wanted
        self._numbers = {name: array("d") for name in _NUMBERS}
        self._characters, self._lot = array("d"), array("d")
        self._ending, self._held_out = array("b"), array("b")
        self._prompt, self._answer, self._key = array("q"), array("q"), array("q")
        self._parts: dict[str, array[float]] = {}
        self._prompts: dict[int | str, int] = {}
        self._keys: dict[str | int, int] = {}
        self._texts: dict[int, tuple[float, Text, int]] = {}
        self._held = 0
        self._share = self._row_share = 1.0
        self._rows = self._files = 0
        self._last: tuple[object, object, object] = (None, None, None)
        self._last_lot = 0.0
        self._last_prompt: tuple[str | None, int] = (None, -1)
        self.warnings: list[str] = []

    def __len__(self) -> int:
        return len(self._lot)

    def file(self) -> None:
        """Count a file."""
        self._files += 1

    def add(self, one: Answer) -> None:
        """Take one answer."""
        self._rows += 1
        prompt = self._number_prompt(one.prompt)
        lot = self._draw(one, prompt)
        if lot >= self._row_share:
            return
        row = len(self._lot)
        self._lot.append(lot)
        numbers = self._numbers
        for name in _NUMBERS:
            value = getattr(one, name)
            numbers[name].append(_NAN if value is None else value)
        text = one.text
        self._characters.append(_NAN if text is None else len(text))
        self._ending.append(_ENDING[one.ending])
        self._held_out.append(one.held_out)
        self._prompt.append(prompt)
        self._answer.append((hash(text) if text is not None else one.same if one.same is not None else -1) or 1)
        self._key.append(-1 if one.key is None else self._keys.setdefault(one.key, len(self._keys)))
        if one.parts:
            self._take_parts(one, row)
        if text is not None and (lot < self._share or (self._wanted is not None and self._wanted(one))):
            self._keep(row, lot, one, text)
        if row + 1 >= MOST_ANSWERS:
            self._thin_rows()

    def _number_prompt(self, prompt: str | None) -> int:
        if prompt is None:
            return -1
        last, number = self._last_prompt
        if prompt is last or prompt == last:
            return number
        # The text itself is not kept: a 64-bit fingerprint of a million prompts collides with probability 3e-8.
        number = self._prompts.setdefault(hash(prompt), len(self._prompts))
        self._last_prompt = prompt, number
        return number

    def _draw(self, one: Answer, prompt: int) -> float:
        """The lot of the answer's group, 0..1: the same for all its answers, in every run of the program."""
        name = (one.step, one.held_out, one.key if one.key is not None else prompt)
        if name != self._last:
            said = one.key if one.key is not None else (one.prompt or "")[:2_000]
            seed = f"{one.step}|{one.held_out}|{said}".encode("utf-8", "surrogatepass")
            self._last, self._last_lot = name, zlib.crc32(seed) / 2**32
        return self._last_lot

    def _take_parts(self, one: Answer, row: int) -> None:
        for name, value in (one.parts or {}).items():
            if value is None:
                continue
            values = self._parts.get(name)
            if values is None:
                if len(self._parts) >= MOST_PARTS:
                    continue
                values = self._parts[name] = array("d")
            if len(values) < row:
                values.extend([_NAN] * (row - len(values)))
            if len(values) == row:
                values.append(value)

    def _keep(self, row: int, lot: float, one: Answer, text: str) -> None:
        words = Text(one.prompt or "", text, one.truth or "")
        size = sys.getsizeof(text) + (0 if one.prompt is self._last_prompt[0] else sys.getsizeof(words.prompt)) + 100
        self._texts[row] = (lot, words, size)
        self._held += size
        while self._held > self._words and self._share > 1e-9:
            self._share /= 2
            self._texts = {k: kept for k, kept in self._texts.items() if kept[0] < self._share}
            self._held = sum(size for _, _, size in self._texts.values())

    def _thin_rows(self) -> None:
        """Leave half of the groups."""
        self._row_share /= 2
        keep = np.asarray(self._lot) < self._row_share
        at = np.flatnonzero(keep)
        moved = {int(old): new for new, old in enumerate(at.tolist())}
        for store in (self._numbers, self._parts):
            for name, values in store.items():
                padded = np.full(len(keep), np.nan)
                padded[: len(values)] = values
                store[name] = array("d", padded[at].tobytes())
        for name, code in (("_characters", "d"), ("_lot", "d"), ("_ending", "b"), ("_held_out", "b"),
                           ("_prompt", "q"), ("_answer", "q"), ("_key", "q")):  # fmt: skip
            setattr(self, name, array(code, np.asarray(getattr(self, name))[at].tobytes()))
        self._texts = {moved[row]: kept for row, kept in self._texts.items() if row in moved}

    def table(self) -> Rollouts:
        """What was gathered."""
        n = len(self._lot)
        numbers = {name: np.array(values, dtype=np.float64) for name, values in self._numbers.items()}
        parts = {}
        for name, values in self._parts.items():
            parts[name[:NAME]] = padded = np.full(n, np.nan)
            padded[: len(values)] = values
        held_out = np.array(self._held_out, dtype=np.bool_)
        prompt, key = np.array(self._prompt, dtype=np.int64), np.array(self._key, dtype=np.int64)
        answer = np.array(self._answer, dtype=np.int64)
        unknown = answer == -1
        _, answer = np.unique(answer, return_inverse=True)
        answer = np.where(unknown, -1, answer).astype(np.int64)
        warnings = list(self.warnings)
        if self._row_share < 1:
            warnings.append(f"{n} of {self._rows} answers are kept, whole groups drawn evenly over the steps")
        return Rollouts(
            source=self._source,
            form=self._shape.name,
            group=grouped(numbers["step"], held_out, key, prompt, ordered=self._shape.ordered and self._row_share == 1),
            prompt=prompt,
            answer=answer,
            parts=parts,
            characters=np.array(self._characters, dtype=np.float64),
            ending=np.array(self._ending, dtype=np.int8),
            held_out=held_out,
            key=key,
            texts={row: kept[1] for row, kept in sorted(self._texts.items())},
            files=self._files,
            rows=self._rows,
            filtered=self._shape.filtered,
            partial=self._shape.partial,
            warnings=tuple(warnings),
            **numbers,
        )


def grouped(step: Floats, held_out: np.ndarray, key: Ints, prompt: Ints, *, ordered: bool) -> Ints:
    """(n,) the number of each row's group, -1 where neither a name nor a prompt tells it.

    Answers with one name, or without names one prompt, within one step are a group. Where the rows are ``ordered`` and
    almost all groups have one size, a group of a multiple of that size is a prompt that was drawn several times.
    """
    n = len(step)
    known = (key >= 0) | (prompt >= 0)
    if not known.any():
        return np.full(n, -1, dtype=np.int64)
    named = np.where(key >= 0, key, prompt + (key.max(initial=-1) + 1))
    rows = np.column_stack([np.nan_to_num(step, nan=-1.0), held_out.astype(float), named.astype(float)])
    _, group = np.unique(rows, axis=0, return_inverse=True)
    group = group.reshape(-1).astype(np.int64)
    if ordered and not (key >= 0).any():
        sizes = np.bincount(group)
        usual = int(np.bincount(sizes[np.unique(group[known])]).argmax())
        many = (sizes > usual) & (sizes % max(usual, 1) == 0)
        if usual > 1 and many.any():
            order = np.argsort(group, kind="stable")
            starts = np.flatnonzero(np.diff(group[order], prepend=-1))
            place = np.empty(n, dtype=np.int64)
            place[order] = np.arange(n) - np.repeat(starts, np.diff(np.append(starts, n)))
            _, group = np.unique(group * (n + 1) + np.where(many[group], place // usual, 0), return_inverse=True)
            group = group.astype(np.int64)
    group = np.where(known, group, -1)
    # Numbers in the order in which the groups are met, so that a reader of the files finds them again.
    _, first, number = np.unique(group[known], return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    out = np.full(n, -1, dtype=np.int64)
    out[known] = rank[number]
    return out
