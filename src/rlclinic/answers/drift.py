"""What answers that were scored more than once say of the reward: whether it is reproducible, and whether it moved."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rlclinic.rollouts import EQUAL, Flags, Floats, Ints, Rollouts
from rlclinic.stats import repeated
from rlclinic.stats.repeated import Moved, Noise

REWARD = "reward"
"""The name under which the whole reward stands beside its parts."""
MOST = 400_000
"""Rows of repeated answers that are looked at; where there are more, those of some texts (ours: two seconds)."""
EXAMPLES = 6
"""Rows that show what was found (ours)."""
_SEEN = re.compile(r"<\|?(image|video|audio|vision)[a-z_]{0,20}\|?>", re.I)
"""Marks of what a prompt holds beside its words: two prompts with the same words may then differ."""


@dataclass(frozen=True)
class Inside:
    """Texts that stand several times in one group, where nothing but the scorer can tell the copies apart."""

    texts: int = 0
    """How many, counted once a group."""
    unlike: int = 0
    """Those whose scores differ."""
    noise: Noise | None = None
    """Of the scores of such texts; None where none differ."""
    flips: bool = False
    """All scores of such texts are one of two values: right or wrong, and not reproducible."""
    newness: bool = False
    """The first of the copies earns most throughout: a bonus for being new, no noise."""
    spread: float = math.nan
    """Standard deviation of the scores within all groups; NaN without groups."""
    examples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Across:
    """Texts that stand in several steps, where a schedule, the group or another reference answer may change the score."""

    texts: int = 0
    changed: int = 0
    """Those whose mean score is not the same in all steps."""
    reach: float = 0.0
    """The longest time between two scores of one text, as a share of all steps, 0..1."""
    trend: Moved | None = None
    jump: Moved | None = None
    at_once: tuple[float, float, int] | None = None
    """The last step before and the first step after which nearly all texts that were scored on both sides changed, and how
    many did; None where the changes have no one step in common."""
    before: float = math.nan
    after: float = math.nan
    """Mean score of the changed texts in their first and their last step; NaN without any."""
    apart: float = math.nan
    """Mean size of the change of the changed texts, from their first step to their last; NaN without any."""
    examples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Repeats:
    """Answers of one text to one prompt, scored more than once by the reward or one of its parts (``name``).

    Rows count as the same when prompt, text, ending and number of tokens agree and no tool was called.
    """

    name: str
    inside: Inside
    across: Across

    @property
    def reproducible(self) -> bool:
        """Every answer that was scored again earned the same."""
        return self.inside.texts + self.across.texts > 0 and self.inside.unlike + self.across.changed == 0

    @property
    def examples(self) -> tuple[int, ...]:
        """Rows of the table, in pairs of one text with two scores, those furthest apart first."""
        return (*self.inside.examples, *self.across.examples)[: 2 * EXAMPLES]


@lru_cache(maxsize=2)
def repeats(table: Rollouts) -> Mapping[str, Repeats]:
    """What repeated answers say of the reward and of each part, by name; empty where no answer stands twice.

    Held-out answers are looked at too, as texts of their own: fixed questions that are answered alike are an anchor.
    """
    rows, text = _same(table)
    if not len(rows):
        return {}
    scores = {REWARD: table.reward, **{name: part for name, part in table.parts.items() if name != REWARD}}
    found = {name: _of(name, table, rows, text, _sane(values)) for name, values in scores.items()}
    return {name: one for name, one in found.items() if one is not None}


def sides(table: Rollouts, step: float) -> tuple[int, int, float, float]:
    """(texts scored before ``step`` and from it on, those scored otherwise then, the mean reward of these on either side).

    The means are NaN where none changed.
    """
    rows, text = _same(table)
    reward = _sane(table.reward)
    keep = np.isfinite(reward[rows])
    rows, text = rows[keep], text[keep]
    late = table.step[rows] >= step
    size = int(text.max(initial=-1)) + 1
    counts = [np.bincount(text[side], minlength=size) for side in (~late, late)]
    both = (counts[0] > 0) & (counts[1] > 0)
    sums = [np.bincount(text[side], reward[rows[side]], minlength=size)[both] for side in (~late, late)]
    before, after = (each / count[both] for each, count in zip(sums, counts, strict=True))
    moved = np.abs(after - before) > EQUAL * np.maximum(1.0, np.abs(before))
    if not moved.any():
        return int(both.sum()), 0, math.nan, math.nan
    return int(both.sum()), int(moved.sum()), float(before[moved].mean()), float(after[moved].mean())


@lru_cache(maxsize=2)
def _same(table: Rollouts) -> tuple[Ints, Ints]:
    """The rows whose text stands more than once, and the number of its text."""
    plain = (table.prompt >= 0) & (table.answer >= 0) & (table.characters != 0) & np.isfinite(table.step)
    plain &= ~(table.tool_calls > 0) & ~(table.turns > 2)
    unclear = _unclear(table)
    if unclear is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if len(unclear):
        plain &= ~np.isin(table.prompt, unclear)
    rows = np.flatnonzero(plain)
    text = _numbered(table.prompt[rows] * (int(table.answer.max(initial=0)) + 1) + table.answer[rows])
    _, tokens = np.unique(np.nan_to_num(table.tokens[rows], nan=-1.0), return_inverse=True)
    for more in (table.ending[rows].astype(np.int64), table.held_out[rows].astype(np.int64), tokens):
        text = _numbered(text * (int(more.max(initial=0)) + 1) + more)
    again = np.bincount(text)[text] > 1 if len(text) else np.empty(0, np.bool_)
    again &= text % (1 + int(again.sum()) // MOST) == 0
    return rows[again].astype(np.int64), text[again]


def _sane(values: Floats) -> Floats:
    """``values`` with NaN for what cannot be a score, so that squares stay finite."""
    return np.where(np.abs(values) < 1e100, values, np.nan)


def _numbered(labels: Ints) -> Ints:
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _unclear(table: Rollouts) -> Ints | None:
    """Prompts that mean several things: with several reference answers, or with a picture; None where most have one."""
    truths: dict[int, str] = {}
    several: set[int] = set()
    pictures: set[int] = set()
    for row, words in table.texts.items():
        prompt = int(table.prompt[row])
        if prompt not in truths:
            truths[prompt] = words.truth
            if _SEEN.search(words.prompt[:20_000]):
                pictures.add(prompt)
        elif truths[prompt] != words.truth:
            several.add(prompt)
    if len(pictures) > len(truths) / 2:
        return None
    return np.array(sorted(several | pictures), dtype=np.int64)


def _of(name: str, table: Rollouts, rows: Ints, text: Ints, values: Floats) -> Repeats | None:
    known = np.isfinite(values[rows])
    rows, text = rows[known], text[known]
    if not len(rows):
        return None
    scores = values[rows]
    slack = EQUAL * max(1.0, float(np.abs(scores).max()))
    inside = _inside(table, rows, text, values, slack)
    across = _across(table, rows, text, scores, slack)
    return Repeats(name, inside, across) if inside.texts or across.texts else None


def _inside(table: Rollouts, rows: Ints, text: Ints, values: Floats, slack: float) -> Inside:
    """What texts say that stand several times in one group."""
    group = table.group[rows]
    size = table.size[group] if table.groups else np.zeros(len(rows))
    several = np.bincount(table.group[~table.held_out & (table.group >= 0)])
    usual = int(np.bincount(several[several > 1]).argmax()) if (several > 1).any() else 0
    # Without names of groups, twice the usual size may be two questions with the same words.
    keep = (group >= 0) & ((table.key[rows] >= 0) | (size <= usual)) & ~table.held_out[rows]
    rows, group = rows[keep], group[keep]
    cell = _numbered(text[keep] * (table.groups + 1) + group)
    twice = np.bincount(cell)[cell] > 1 if len(cell) else np.empty(0, np.bool_)
    rows, group, cell = rows[twice], group[twice], _numbered(cell[twice])
    judged = (table.group >= 0) & np.isfinite(values) & ~table.held_out
    spread = _spread(table.group[judged], values[judged])
    if not len(rows):
        return Inside(spread=spread)
    order, starts = _blocks(cell)
    scores = values[rows][order]
    low, high = np.minimum.reduceat(scores, starts), np.maximum.reduceat(scores, starts)
    unlike = high - low > slack
    noise = None
    if unlike.any():
        things = np.full(len(table), -1, dtype=np.int64)
        things[rows] = cell
        single = np.flatnonzero(judged & (things < 0))
        things[single] = len(starts) + np.arange(len(single))
        noise = repeated.noise(things[judged], table.group[judged], values[judged])
    first = scores[starts][unlike]
    return Inside(
        texts=len(starts),
        unlike=int(unlike.sum()),
        noise=noise,
        flips=bool(unlike.any()) and len(np.unique(np.round(scores, 9))) <= 2,
        newness=bool(unlike.sum() >= max(6, len(starts) / 2) and (first >= high[unlike] - slack).mean() >= 0.9),
        spread=spread,
        examples=_furthest(rows[order], scores, starts, unlike),
    )


def _spread(group: Ints, values: Floats) -> float:
    """Standard deviation within groups, pooled; NaN without two values in one."""
    if not len(group):
        return math.nan
    _, place, count = np.unique(group, return_inverse=True, return_counts=True)
    about = values - (np.bincount(place, values) / count)[place]
    df = len(values) - len(count)
    return math.sqrt(float(about @ about) / df) if df else math.nan


def _across(table: Rollouts, rows: Ints, text: Ints, scores: Floats, slack: float) -> Across:
    """What texts say that stand in several steps."""
    when = table.step[rows]
    _, turn = np.unique(when, return_inverse=True)
    cell = _numbered(text * (int(turn.max(initial=0)) + 1) + turn)
    count = np.bincount(cell)
    mean = np.bincount(cell, scores) / count
    _, first = np.unique(cell, return_index=True)
    thing, at, row = text[first], when[first], rows[first]
    again = np.bincount(thing)[thing] > 1
    thing, at, row, mean = _numbered(thing[again]), at[again], row[again], mean[again]
    if not len(thing):
        return Across()
    order = np.lexsort((at, thing))
    thing, at, row, mean = thing[order], at[order], row[order], mean[order]
    starts = np.flatnonzero(np.diff(thing, prepend=-1))
    ends = np.append(starts[1:], len(thing)) - 1
    changed = np.maximum.reduceat(mean, starts) - np.minimum.reduceat(mean, starts) > slack
    reach = float((at[ends] - at[starts]).max()) / (float(np.ptp(table.steps)) or 1.0)
    if not changed.any():
        return Across(len(starts), 0, reach)
    cluster = table.prompt[row]
    return Across(
        len(starts),
        int(changed.sum()),
        reach,
        trend=repeated.drift(thing, cluster, at, mean),
        jump=repeated.jump(thing, cluster, at, mean),
        at_once=_at_once(thing, at, mean, slack),
        before=float(mean[starts][changed].mean()),
        after=float(mean[ends][changed].mean()),
        apart=float(np.abs(mean[ends] - mean[starts])[changed].mean()),
        examples=_furthest(row, mean, starts, changed),
    )


def _at_once(thing: Ints, at: Floats, mean: Floats, slack: float) -> tuple[float, float, int] | None:
    """(last step before, first step after, texts) of a change that most have in common; None where there is none.

    It lies in four fifths of all changes, and a third of the texts seen around it changed there (what never earned anything
    cannot lose it). Five such texts, or as many that were only seen on one side, must show that it is no accident.
    """
    pair = np.flatnonzero(np.diff(thing) == 0)
    low, high, moved = at[pair], at[pair + 1], np.abs(np.diff(mean)[pair]) > slack
    cuts = np.unique(high)

    def around(which: Flags) -> Ints:
        """How many of these stretches hold each cut: begun before it, not over before it."""
        begun = np.searchsorted(np.sort(low[which]), cuts, side="left")
        return np.asarray(begun - np.searchsorted(np.sort(high[which]), cuts, side="left"))

    hits = around(moved)
    best = int(hits.argmax())
    n, seen = int(hits[best]), int(around(np.ones(len(pair), dtype=np.bool_))[best])
    few = max(n, len(pair) - seen) < 5 or len(pair) - seen < 0.2 * len(pair)
    if n < 2 or n < 0.8 * moved.sum() or n < seen / 3 or few:
        return None
    held = moved & (low < cuts[best]) & (high >= cuts[best])
    return float(low[held].max()), float(high[held].min()), n


def _blocks(label: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(label, kind="stable")
    return order, np.flatnonzero(np.diff(label[order], prepend=-1))


def _furthest(rows: Ints, scores: Floats, starts: Ints, keep: Flags) -> tuple[int, ...]:
    """The rows of the lowest and the highest score of the texts whose scores lie furthest apart."""
    high, low = np.maximum.reduceat(scores, starts), np.minimum.reduceat(scores, starts)
    ends = np.append(starts[1:], len(scores))
    found: list[int] = []
    for k in np.argsort(-(high - low) * keep, kind="stable")[:EXAMPLES].tolist():
        if keep[k]:
            piece = slice(int(starts[k]), int(ends[k]))
            found += [int(rows[piece][scores[piece].argmin()]), int(rows[piece][scores[piece].argmax()])]
    return tuple(found)
