"""Prompts of saved answers: which held-out ones are also trained on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rlclinic.rollouts import Ints, Rollouts

WORDS = 8
"""Words of a stretch that two prompts share (ours: the 8-grams of published decontaminations, which take 8 to 13)."""
ALIKE = 0.8
"""Share of a held-out prompt's stretches that stand in one trained prompt for the two to be near copies (ours)."""
FEWEST = 12
"""Stretches below which a prompt is too short to be called a near copy (ours: twenty words)."""
SHARED = 0.02
"""Share of the prompts from which a stretch is their template (ours)."""
LONGEST = 20_000
"""Characters of a prompt that are compared (ours)."""


@dataclass(frozen=True)
class Overlap:
    """Which held-out prompts are also trained on."""

    held_out: int
    """Distinct held-out prompts."""
    shared: int
    """Those that stand among the trained ones, word for word."""
    like: int
    """Further ones that do so after case, white space and punctuation at the ends are made equal."""
    near: int
    """Further ones most of whose 8-word stretches stand in one trained prompt, those of a template left out."""
    compared: int
    """Those that are shared or whose words are kept, so that ``like`` and ``near`` are of so many."""
    examples: tuple[int, ...] = ()
    """Rows of the best table: held-out answers whose prompt is trained on."""

    @property
    def common(self) -> int:
        """Held-out prompts that are trained on in any of the three ways."""
        return self.shared + self.like + self.near


@lru_cache(maxsize=2)
def overlap(tables: tuple[Rollouts, ...]) -> Overlap | None:
    """How the held-out and the trained prompts of one run meet; None unless both are saved with their prompts."""
    trained: dict[str, int] = {}
    asked: list[tuple[str, int, int]] = []
    known = [table.prompt >= 0 for table in tables]
    held = [np.unique(t.prompt[t.held_out & has]) for t, has in zip(tables, known, strict=True)]
    if not any(map(len, held)) or not any((~t.held_out & has).any() for t, has in zip(tables, known, strict=True)):
        return None
    same = [np.intersect1d(ids, t.prompt[~t.held_out]) for ids, t in zip(held, tables, strict=True)]
    exact = sum(map(len, same))
    rows: list[int] = []
    for number, (table, ids) in enumerate(zip(tables, same, strict=True)):
        common, told = set(ids.tolist()), set[int]()
        for row, words in table.texts.items():
            prompt = int(table.prompt[row])
            if not table.held_out[row]:
                trained.setdefault(words.prompt[:LONGEST], 0)
            elif prompt in common:
                if prompt not in told and number == 0:
                    rows.append(row)
                told.add(prompt)
            elif prompt not in told:
                asked.append((words.prompt[:LONGEST], number, row))
                told.add(prompt)
    across = [one for one in asked if one[0] in trained]
    left = [one for one in asked if one[0] not in trained]
    plain = {normal(prompt) for prompt in trained}
    alike = [one for one in left if normal(one[0]) in plain]
    rest = [one for one in left if normal(one[0]) not in plain]
    near = near_copies([one[0] for one in rest], trained)
    rows += [row for _, number, row in (*across, *alike, *(rest[k] for k in near)) if number == 0]
    count, compared = sum(map(len, held)), exact + len(asked)
    return Overlap(count, exact + len(across), len(alike), len(near), compared, tuple(rows[:8]))


def normal(prompt: str) -> str:
    """A prompt without what two copies of one question may differ in: case, white space, punctuation at the ends."""
    return " ".join(prompt.casefold().split()).strip(" .,;:!?\"'`*#")


def near_copies(asked: list[str], trained: Iterable[str]) -> list[int]:
    """Places of the prompts in ``asked`` most of whose 8-word stretches stand in one of ``trained``.

    Stretches that stand in many prompts of either side are a template and do not count. Hashes of 64 bits stand for
    stretches; two unlike ones share one with probability 1e-7 over a million.
    """
    known = [stretches(one) for one in trained] if asked else []
    questions = [stretches(one) for one in asked]
    if not known or not any(len(one) for one in questions):
        return []
    every = np.concatenate([*known, *questions])
    found, times = np.unique(every, return_counts=True)
    usual = found[times > max(3.0, SHARED * (len(known) + len(questions)))]
    source = np.concatenate(known)
    owner = np.repeat(np.arange(len(known)), [len(one) for one in known])
    keep = ~np.isin(source, usual)
    order = np.argsort(source[keep], kind="stable")
    source, owner = source[keep][order], owner[keep][order]
    out = []
    for k, one in enumerate(questions):
        own = one[~np.isin(one, usual)] if len(one) else one
        if len(own) < FEWEST:
            continue
        low, high = np.searchsorted(source, own, side="left"), np.searchsorted(source, own, side="right")
        hits = high > low
        if hits.mean() < ALIKE:
            continue
        owners = np.concatenate([owner[a:b] for a, b in zip(low[hits].tolist(), high[hits].tolist(), strict=True)])
        if np.bincount(owners).max() >= ALIKE * len(own):
            out.append(k)
    return out


def stretches(prompt: str) -> Ints:
    """(m,) fingerprints of the distinct stretches of ``WORDS`` words, in case-folded form."""
    words = np.array([hash(word) for word in prompt.casefold().split()], dtype=np.int64)
    if len(words) < WORDS:
        return np.empty(0, np.int64)
    mixed = np.zeros(len(words) - WORDS + 1, dtype=np.int64)
    for k in range(WORDS):  # wraps around on purpose
        mixed = mixed * np.int64(6364136223846793005) + words[k : len(words) - WORDS + 1 + k]
    return np.unique(mixed)
