"""How different the answers of one group are: copies over all rows, and likeness of the words of sampled groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlclinic.rollouts import Flags, Floats, Ints, Rollouts

GRAM = 5
"""Characters of a shingle (ours: a reworded sentence keeps most of them; shorter ones any two texts in a language share)."""
SPAN = 3_000
"""Characters of an answer whose shingles are compared: the first half and the last (ours)."""
SKETCH = 256
"""Least hashes that are kept of an answer: the error of a likeness is then below 0.03 (Broder 1997, bottom-k)."""
MOST_GROUPS = 64
"""Most groups whose words are compared, drawn evenly over the run."""
LONG = 60
"""Characters from which an answer is long enough for equal texts to say something (ours: a sentence; a bare number or
letter repeats itself because it is right, or because there are few)."""


def copies(table: Rollouts) -> Floats:
    """(groups,) the share of answers beyond the first of each text: 0 where all differ, 1 where all are the same; NaN for
    groups below three answers, and where texts are not known."""
    out = np.full(table.groups, np.nan)
    inside = (table.group >= 0) & (table.answer >= 0)
    if not inside.any():
        return out
    group, answer = table.group[inside], table.answer[inside]
    size = np.bincount(group, minlength=table.groups)
    pairs = np.unique(group * (int(answer.max()) + 1) + answer)
    distinct = np.bincount(pairs // (int(answer.max()) + 1), minlength=table.groups)
    whole = (size >= 3) & (size == table.size)
    out[whole] = (size[whole] - distinct[whole]) / (size[whole] - 1)
    return out


def open_groups(table: Rollouts) -> Flags:
    """(groups,) True where likeness says something about the policy: not every answer earned the most there is, and the
    answers are long or differ in what they earn nothing for.

    Answers to a solved prompt may well be alike: there is one thing to say.
    """
    keep = table.size >= 3
    if not np.isfinite(table.reward).any():
        return np.asarray(keep)
    best = float(np.nanmax(table.reward))
    low = table.lowest(table.reward)
    solved = np.isfinite(low) & (low >= best - 1e-6 * max(1.0, abs(best)))
    return np.asarray(keep & ~solved)


def lengthy(table: Rollouts) -> Flags:
    """(groups,) True where the mean answer has ``LONG`` characters and more."""
    with np.errstate(invalid="ignore"):
        return np.asarray(table.means(table.characters) >= LONG)


@dataclass(frozen=True, eq=False)
class Likeness:
    """How alike the words of answers are: shares of shingles, 0..1."""

    groups: Ints
    """(m,) the groups whose words were compared."""
    within: Floats
    """(m,) mean over the answers of a group (eight at most) of their likeness to the one most like them: shared over all
    shingles (Jaccard)."""
    between: Floats
    """(m,) the likeness of an answer of each group and one of the group after it; NaN without one."""


def likeness(table: Rollouts, *, most: int = MOST_GROUPS) -> Likeness:
    """The likeness of answers within and between groups with kept words, of at most ``most`` groups of open prompts."""
    wanted = np.flatnonzero(open_groups(table) & lengthy(table))
    held = np.zeros(table.groups, dtype=np.int64)
    rows = np.fromiter(table.texts, dtype=np.int64, count=len(table.texts))
    if len(rows):
        numbers = table.group[rows]
        held += np.bincount(numbers[numbers >= 0], minlength=table.groups)
    wanted = wanted[held[wanted] == table.size[wanted]]
    wanted = wanted[np.argsort(table.group_step[wanted], kind="stable")] if len(wanted) else wanted
    if len(wanted) > most:
        wanted = wanted[np.linspace(0, len(wanted) - 1, most).astype(np.int64)]
    within, firsts = np.full(len(wanted), np.nan), []
    for place, group in enumerate(wanted.tolist()):
        members = table.members(group)[:8].tolist()
        sketches = [sketch(table.texts[row].answer) for row in members]
        within[place] = _nearest(sketches)
        firsts.append((int(table.group_prompt[group]), sketches[0]))
    between = np.full(len(wanted), np.nan)
    for place in range(len(firsts) - 1):
        if firsts[place][0] != firsts[place + 1][0]:
            between[place] = _shared(firsts[place][1], firsts[place + 1][1])
    return Likeness(wanted.astype(np.int64), within, between)


def sketch(text: str) -> Ints:
    """The ``SKETCH`` least hashes of the shingles of ``text``, increasing; empty for a text shorter than a shingle."""
    part = text if len(text) <= SPAN else text[: SPAN // 2] + text[-SPAN // 2 :]
    letters = np.frombuffer(part.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    n = len(letters) - GRAM + 1
    if n < 1:
        return np.empty(0, dtype=np.int64)
    mixed = np.zeros(n, dtype=np.uint64)
    for k in range(GRAM):
        mixed = mixed * np.uint64(0x100000001B3) ^ letters[k : k + n]
    mixed *= np.uint64(0x9E3779B97F4A7C15)  # spreads the hashes over their range, so that the least are a fair sample
    hashes = (mixed >> np.uint64(1)).astype(np.int64)
    if n > 8 * SKETCH:
        least = np.unique(np.partition(hashes, 4 * SKETCH)[: 4 * SKETCH])
        if len(least) >= SKETCH:
            return least[:SKETCH]
    return np.unique(hashes)[:SKETCH]


def _shared(a: Ints, b: Ints) -> float:
    """The share of shingles that two answers have in common, from the least hashes of both."""
    if not len(a) or not len(b):
        return 1.0 if len(a) == len(b) else 0.0
    both = np.sort(np.concatenate((a, b)))
    again = both[1:] == both[:-1]
    distinct = len(both) - int(again.sum())
    if distinct > SKETCH:  # beyond the first SKETCH of the union, either sketch may have left out what the other holds
        again = again[: int(np.flatnonzero(np.cumsum(~again) >= SKETCH)[0]) + 1]
        distinct = SKETCH
    return int(again.sum()) / distinct


def _nearest(sketches: list[Ints]) -> float:
    """The mean over answers of their likeness to the one most like them; NaN for one answer alone."""
    n = len(sketches)
    best = np.zeros(n)
    for i in range(n):
        for j in range(i):
            shared = _shared(sketches[i], sketches[j])
            best[i], best[j] = max(best[i], shared), max(best[j], shared)
    return float(best.mean()) if n > 1 else float("nan")
