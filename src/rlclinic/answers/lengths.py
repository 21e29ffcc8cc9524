"""How long answers are and how they end: exact over all saved rows, and right against wrong within the same groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rlclinic.answers import parts
from rlclinic.rollouts import ENDINGS, Flags, Floats, Rollouts

CUT, STOPPED, ABORTED = (ENDINGS.index(name) for name in ("cut", "stopped", "aborted"))
_KNOWN = 0.9
"""Share of the answers that must say a thing before the rest is left out (ours: fewer may be the odd ones)."""
_PILE = 8
"""Answers of the largest length of all from which it is a limit (ours: no two long answers have one length by chance)."""
_SHORT, _BRIEF = 0.05, 12
"""An answer of at most ``_BRIEF`` characters and ``_SHORT`` of the usual length says nothing where the others say much
(ours)."""

_ANSWERS = 0.1
"""Share of such answers that earn more than the least from which they are answers all the same (ours)."""


def size(table: Rollouts) -> tuple[Floats, str]:
    """(n,) the lengths of answers, and their unit: tokens where nearly all have them, else characters."""
    if len(table) and np.isfinite(table.tokens).mean() >= _KNOWN:
        return table.tokens, "tokens"
    return table.characters, "characters"


def ending_known(table: Rollouts) -> bool:
    """Whether nearly all answers say how they ended."""
    return bool(len(table)) and bool((table.ending > 0).mean() >= _KNOWN)


def limit(table: Rollouts) -> float | None:
    """The number of tokens at which answers are cut, as a pile of answers of the largest length shows; None without one."""
    known = table.tokens[np.isfinite(table.tokens)]
    if len(known) < _KNOWN * len(table) or not len(known):
        return None
    most = float(known.max())
    return most if most > 1 and (known == most).sum() >= max(_PILE, 0.005 * len(known)) else None


def whole(table: Rollouts) -> Flags:
    """(n,) True where an answer is known, or all but known, not to have been cut.

    Without a stated ending, an answer below the ``limit``; where no pile shows that, one of less than half the longest
    length: a limit in tokens is met by texts of about one length in characters, twice as long at most.
    """
    length, _ = size(table)
    if ending_known(table):
        return np.asarray(table.ending == STOPPED)
    known, most = length[np.isfinite(length)], limit(table)
    bound = most if most is not None else 0.5 * float(np.quantile(known, 0.995)) if len(known) else 0.0
    with np.errstate(invalid="ignore"):
        short = length < bound
    return np.asarray((table.ending == STOPPED) | ((table.ending == 0) & short))


def empty(table: Rollouts) -> Flags | None:
    """(n,) True for answers that say nothing: no character, or next to none where the others have many and it earned the
    least, unless many as short earn more (a letter answers a question with choices). None where no length is known. Those
    that were aborted, and calls of a tool alone, are not among them."""
    length, unit = size(table)
    known = np.isfinite(length)
    if not len(length) or known.mean() < _KNOWN:
        return None
    with np.errstate(invalid="ignore"):
        # One token is the end token itself.
        nothing = (length <= 1) if unit == "tokens" else (length == 0)
        nothing &= ~(table.characters > 1)
        many = table.characters[np.isfinite(table.characters)]
        usual = float(np.quantile(many, 0.75)) if len(many) else 0.0
        if _SHORT * usual >= 1:
            brief = table.characters <= min(_BRIEF, _SHORT * usual)
            least = np.nanmin(table.reward) if np.isfinite(table.reward).any() else np.nan
            paid = table.reward > least + 1e-6
            if (brief & paid).sum() <= _ANSWERS * brief.sum():
                nothing |= brief & ~paid
        nothing &= ~(table.tool_calls > 0)
    return np.asarray(nothing & (table.ending != ABORTED))


# ---------------------------------------------------------------- right and wrong answers of the same prompts


@dataclass(frozen=True, eq=False)
class Apart:
    """Lengths of right and wrong answers in the groups that have both, in the order of their steps."""

    steps: Floats
    right: Floats
    wrong: Floats
    """(g,) means over the right and the wrong answers of a group."""
    unit: str
    ended: bool
    """True when answers that were cut are left out: endings are stated, or a pile of equal lengths shows the limit."""


def apart(table: Rollouts) -> Apart | None:
    """The lengths of right and wrong answers of the same prompts; None where nothing tells right from wrong, or no length
    is known. Answers that were cut are left out where that can be told: they are wrong and long alike."""
    right, (length, unit) = parts.success(table), size(table)
    if right is None or not table.groups:
        return None
    ended = ending_known(table) or limit(table) is not None
    use = (table.group >= 0) & np.isfinite(right) & np.isfinite(length)
    if ended:
        use &= whole(table)
    means = []
    for kind in (right >= 0.5, right < 0.5):
        chosen = use & kind
        count = np.bincount(table.group[chosen], minlength=table.groups)
        total = np.bincount(table.group[chosen], length[chosen], minlength=table.groups)
        means.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
    both = np.isfinite(means[0]) & np.isfinite(means[1]) & np.isfinite(table.group_step) & (means[0] > 0)
    order = np.flatnonzero(both)[np.argsort(table.group_step[both], kind="stable")]
    return Apart(table.group_step[order], means[0][order], means[1][order], unit, ended)


# ---------------------------------------------------------------- columns

Values = tuple[Floats, Floats]


def _by_step(steps: Floats, values: Floats, keep: Flags) -> Values | None:
    use = np.isfinite(steps) & np.isfinite(values) & keep
    if not use.any():
        return None
    found, place = np.unique(steps[use], return_inverse=True)
    return found, np.bincount(place, values[use]) / np.bincount(place)


def _cut(table: Rollouts) -> Values | None:
    known = table.ending > 0
    return _by_step(table.step, (table.ending == CUT).astype(float), known) if ending_known(table) else None


def _terminated(table: Rollouts) -> Values | None:
    """Mean length of the answers that ended; 0 at steps where none did, as the metric has it."""
    if not ending_known(table) or size(table)[1] != "tokens":
        return None
    found = _by_step(table.step, table.tokens, table.ending == STOPPED)
    steps = table.steps
    if found is None:
        return (steps, np.zeros(len(steps))) if len(steps) else None
    values = np.zeros(len(steps))
    values[np.searchsorted(steps, found[0])] = found[1]
    return steps, values


def _aborted(table: Rollouts) -> Values | None:
    nothing = empty(table)
    if nothing is None:
        return None
    return _by_step(
        table.step, (nothing | (table.ending == ABORTED)).astype(float), np.ones(len(table), dtype=np.bool_)
    )


def _of(kind: bool) -> Callable[[Rollouts], Values | None]:
    def values(table: Rollouts) -> Values | None:
        right = parts.success(table)
        if right is None or size(table)[1] != "tokens":
            return None
        return _by_step(table.step, table.tokens, (right >= 0.5) == kind)

    return values


def _mean(table: Rollouts) -> Values | None:
    return (
        _by_step(table.step, table.tokens, np.ones(len(table), dtype=np.bool_)) if size(table)[1] == "tokens" else None
    )


COLUMNS: Mapping[str, Callable[[Rollouts], Values | None]] = {
    "length.response.mean": _mean,
    "length.truncated_frac": _cut,
    "length.terminated.mean": _terminated,
    "length.aborted_frac": _aborted,
    "length.correct.mean": _of(True),
    "length.incorrect.mean": _of(False),
}
"""Metrics of length as the log would have them: (steps, values), None where the answers do not tell."""
