"""Which phrases each answer has: runs of one to four words, or of characters where words have no spaces between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlclinic.rollouts import Ints
from rlclinic.stats.contrast import Presence

LONGEST = 4
"""Words of the longest phrase (the phrase that stands for a longer sentence is its rarest run of four)."""
LONGEST_RUN = 5
"""Characters of the longest run in text without spaces (ours)."""
MOST_CHARACTERS = 24_000
"""Characters of an answer that are looked at, two thirds of them from its beginning (ours)."""
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_+")
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class Phrases:
    """Phrases that enough answers have, and which answers those are."""

    has: Presence
    start: NDArray[np.int64]
    """(m,) place of the first occurrence among all tokens."""
    length: NDArray[np.int64]
    """(m,) tokens of the phrase."""
    spaced: bool
    _tokens: NDArray[np.int64]
    _vocabulary: tuple[str, ...]

    def text(self, feature: int) -> str:
        """The phrase, in small letters as it is counted."""
        at = int(self.start[feature])
        words = [self._vocabulary[token] for token in self._tokens[at : at + int(self.length[feature])].tolist()]
        if not self.spaced:
            return "".join(words)
        return joined(words)


def joined(words: Sequence[str]) -> str:
    """Words and marks as one reads them."""
    out = ""
    for word in words:
        glue = not out or not (word[0].isalnum() or word[0] == "_") or out[-1] in "([{\\_'\"#$<>/=-*`"
        out += word if glue else f" {word}"
    return out


def shortened(text: str) -> str:
    """What of a long answer is looked at."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return text[: 2 * MOST_CHARACTERS // 3] + "\n" + text[-MOST_CHARACTERS // 3 :]


def is_spaced(texts: Sequence[str]) -> bool:
    """Whether words are told apart by spaces: False for one-word answers and for scripts that are written without."""
    sample = [text[:4000] for text in texts[:: max(len(texts) // 200, 1)]]
    spaces = sum(text.count(" ") + text.count("\n") for text in sample)
    letters = sum(len(text) for text in sample)
    return spaces * 14 >= letters


def phrases(texts: Sequence[str], least: int, *, spaced: bool | None = None) -> Phrases:
    """Phrases that at least ``least`` of ``texts`` (n,) have.

    Phrases are told apart by 64-bit fingerprints, of which two in a million collide with probability 3e-8.
    """
    spaced = is_spaced(texts) if spaced is None else spaced
    number: dict[str, int] = {}
    flat: list[int] = []
    lengths: list[int] = []
    find = _TOKEN.findall
    put = number.setdefault
    for text in texts:
        words = find(shortened(text).lower()) if spaced else [c for c in shortened(text) if not c.isspace()]
        flat += [put(word, len(number)) for word in words]
        lengths.append(len(words))
    tokens = np.array(flat, dtype=np.int64)
    row = np.repeat(np.arange(len(texts), dtype=np.int64), lengths)
    vocabulary = tuple(number)
    features, rows, starts, spans = [], [], [], []
    made = 0
    shade = tokens.astype(np.uint64)
    alive = np.ones(len(tokens), dtype=bool)
    for span in range(1, (LONGEST if spaced else LONGEST_RUN) + 1):
        if span > 1:
            # A phrase is frequent only where the phrases one shorter at both its ends are.
            inside = np.zeros(len(tokens), dtype=bool)
            if len(tokens) >= span:
                inside[: len(tokens) - span + 1] = row[: len(tokens) - span + 1] == row[span - 1 :]
                inside[:-1] &= alive[1:]
            alive = alive & inside
            following = np.zeros(len(tokens), dtype=np.uint64)
            following[: len(tokens) - span + 1] = tokens[span - 1 :].astype(np.uint64)
            shade = (shade ^ (shade >> np.uint64(29))) * _MIX + following + np.uint64(1)
        at = np.flatnonzero(alive)
        if not len(at):
            break
        # Buckets first: most runs of words occur once, and sorting them all would cost the time.
        bits = min(max(len(at).bit_length() + 2, 8), 22)
        bucket = ((shade[at] * _MIX) >> np.uint64(64 - bits)).astype(np.int64)
        full = np.bincount(bucket, minlength=1 << bits) >= least
        at = at[full[bucket]]
        order = np.argsort(shade[at], kind="stable")
        at = at[order]
        name = shade[at]
        new_name = np.ones(len(at), dtype=bool)
        new_name[1:] = name[1:] != name[:-1]
        new_pair = new_name.copy()
        new_pair[1:] |= row[at[1:]] != row[at[:-1]]
        group = np.cumsum(new_name) - 1
        rows_with = np.bincount(group, new_pair, minlength=int(new_name.sum()))
        good = rows_with >= least
        keep = good[group]
        alive = np.zeros(len(tokens), dtype=bool)
        alive[at[keep]] = True
        chosen = keep & new_pair
        # A phrase that every answer has can say nothing, but longer ones that contain it can.
        everywhere = rows_with >= len(texts)
        told = chosen & ~everywhere[group]
        renumber = np.cumsum(good & ~everywhere) - 1
        features.append(renumber[group[told]] + made)
        rows.append(row[at[told]])
        starts.append(at[new_name][good & ~everywhere])
        spans.append(np.full(int((good & ~everywhere).sum()), span, dtype=np.int64))
        made += int((good & ~everywhere).sum())
    empty = np.empty(0, dtype=np.int64)
    has = Presence(_joined(features, empty), _joined(rows, empty), made)
    return Phrases(has, _joined(starts, empty), _joined(spans, empty), spaced, tokens, vocabulary)


def _joined(parts: list[NDArray[np.int64]], empty: Ints) -> Ints:
    return np.concatenate(parts).astype(np.int64) if parts else empty
