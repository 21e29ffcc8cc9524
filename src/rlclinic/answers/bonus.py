"""A bonus on top of being right: a phrase that earns the same more in right answers and in wrong ones."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlclinic.answers.phrases import shortened
from rlclinic.rollouts import Flags, Floats, Ints, Text

_LEAST = 20
"""Groups with answers of one worth, some with the phrase and some without, that make a bonus (ours)."""
_EACH = 5
"""The same among right answers, and among wrong ones (ours)."""
_SIZE = 0.05
"""Share of the reward's range from which a bonus matters (ours: half of what any other effect must have)."""
_CONSTANT = 0.25
"""Part of the bonus by which right and wrong answers may differ, and single groups from all (ours)."""
_STEADY = 0.9
"""Share of the groups that must show it so (ours)."""
_TEMPLATE = re.compile(
    r"[<>\[\]{}\\#*`|$=/_]|answer|final|result|solution|reason|think|thought|step|therefore|boxed|output|conclu", re.I
)
"""Marks and words of the forms that trainers ask for, often in a prompt that is not saved."""


class Bonus(NamedTuple):
    """What a phrase adds to the reward among answers to one prompt that are equally right, in units of the reward."""

    size: float
    right: float
    wrong: float
    groups: int


def may_be(phrase: str) -> bool:
    """Whether words can be a style that is paid: not a mark of a form, not the words around a result, no bare number."""
    return (
        sum(c.isalpha() for c in phrase) >= 4 and not any(c.isdigit() for c in phrase) and not _TEMPLATE.search(phrase)
    )


def asks_for(texts: Sequence[Text], rows: Flags, phrase: str) -> bool:
    """Whether half of the prompts behind ``rows`` (n,) have a word of the phrase, as far as its stem."""
    stems = tuple(word[:6].lower() for word in re.findall(r"[^\W\d_]{5,}", phrase))
    asked = {texts[row].prompt for row in np.flatnonzero(rows).tolist()} if stems else set()
    return 2 * sum(any(stem in prompt.lower() for stem in stems) for prompt in asked) > len(asked)


def of_a_form(texts: Sequence[Text], rows: Flags, phrase: str) -> bool:
    """Whether the sentences around a phrase have a mark or a word of a form in half of the (first) ``rows`` (n,)."""
    words = re.findall(r"[^\W_]+|[^\w\s]|_", phrase)
    around = re.compile(r"[^.!?\n]*" + r"\s*".join(map(re.escape, words)) + r"[^.!?\n]*", re.I)
    met = [around.search(shortened(texts[row].answer)) for row in np.flatnonzero(rows)[:_LEAST].tolist()]
    told = [bool(_TEMPLATE.search(one.group())) for one in met if one is not None]
    return 2 * sum(told) > len(told)


def bonus(group: Ints, worth: Floats, right: Flags, reward: Floats, span: float, rows: Flags) -> Bonus | None:
    """The bonus of ``rows`` (n,); None unless it is one number, above ``_SIZE`` of ``span``, in right answers and in wrong.

    ``worth`` (n,) says which answers of a ``group`` are equally right, ``right`` (n,) which are right at all. A correlate
    of quality, length or form pays more in some groups than in others; only what the reward itself adds is constant.
    """
    key = np.unique(np.column_stack([group, np.round(worth * 1e6)]), axis=0, return_inverse=True)[1].ravel()
    n = int(key.max(initial=-1)) + 1
    with_, without = np.bincount(key[rows], minlength=n), np.bincount(key[~rows], minlength=n)
    mixed = (with_ > 0) & (without > 0)
    if int(mixed.sum()) < _LEAST:
        return None
    high = np.bincount(key[rows], reward[rows], minlength=n)[mixed] / with_[mixed]
    gain = high - np.bincount(key[~rows], reward[~rows], minlength=n)[mixed] / without[mixed]
    weight = (with_ * without / np.maximum(with_ + without, 1))[mixed]
    good = np.bincount(key, right, minlength=n)[mixed] > 0
    if min(int(good.sum()), int((~good).sum())) < _EACH:
        return None
    size = float(np.average(gain, weights=weight))
    sides = [float(np.average(gain[side], weights=weight[side])) for side in (good, ~good)]
    steady = float(weight[np.abs(gain - size) <= _CONSTANT * abs(size)].sum() / weight.sum())
    same = abs(sides[0] - sides[1]) <= _CONSTANT * abs(size)
    if not math.isfinite(size) or size < _SIZE * span or steady < _STEADY or not same:
        return None
    return Bonus(size, sides[0], sides[1], int(mixed.sum()))
