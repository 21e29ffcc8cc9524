"""What sets well-paid answers apart from badly paid ones to the same question: many features at once, at equal length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlclinic.stats.curve import median_of
from rlclinic.stats.evidence import benjamini_hochberg

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

FEWEST_GROUPS = 5
"""Groups in which a feature must vary before its effect is tested (ours: fewer clusters give no standard error)."""


class Outcome(NamedTuple):
    """Rewards made ready to be compared within groups: ``prepare`` builds it."""

    group: Ints
    """(n,) number of the group of each row, not falling: rows of one group stand side by side."""
    size: Floats
    """(groups,) rows of each group."""
    reward: Floats
    """(n,) reward less its group's mean, with what goes along with length taken out."""
    length: Floats
    """(n,) logarithm of the length less its group's mean."""
    by_length: float
    """Reward per unit of log length within groups."""
    share_of_length: float
    """Share of the variance of the reward within groups that goes along with length, 0..1."""
    cross: Floats
    """(groups,) sum over a group of length times reward."""
    square: Floats
    """(groups,) sum over a group of the squared length."""


class Effects(NamedTuple):
    """Of m features, arrays (m,): what having one changes in the reward within groups at equal length."""

    effect: Floats
    error: Floats
    """Standard error, clustered by group."""
    p_value: Floats
    """Two-sided; NaN where the feature varies in fewer than ``FEWEST_GROUPS`` groups."""
    rows: Floats
    """Rows that have the feature."""
    groups: Floats
    """Groups in which some rows have it and some do not."""


def prepare(group: Ints, reward: Floats, length: Floats) -> Outcome:
    """Centre ``reward`` and log ``length`` (n,) by ``group`` (n,), which must not fall, and take length out of the reward.

    Frisch and Waugh (1933), Lovell (1963): the coefficient of a feature in a regression on group, length and feature is
    that of the residuals of feature and reward on group and length.
    """
    size = np.bincount(group).astype(np.float64)
    y, long = _centred(group, size, reward), _centred(group, size, np.log1p(np.maximum(length, 0.0)))
    total, both = float(long @ long), float(long @ y)
    slope = both / total if total > 1e-9 * len(y) else 0.0
    spread = float(y @ y)
    rest = y - slope * long
    cross, square = tally(group, long * rest, n=len(size)), tally(group, long * long, n=len(size))
    share = min(max(1.0 - float(rest @ rest) / spread, 0.0), 1.0) if spread > 0.0 else 0.0
    return Outcome(group, size, rest, long, slope, share, cross, square)


def tally(labels: Ints, weights: NDArray[Any] | None = None, *, n: int) -> Floats:
    """(n,) the sum of ``weights`` (1 each) under each of the ``labels`` 0..n-1."""
    return np.bincount(labels, weights, minlength=n).astype(np.float64)


def _centred(group: Ints, size: Floats, values: Floats) -> Floats:
    return np.asarray(values - (np.bincount(group, values, minlength=len(size)) / size)[group], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Presence:
    """Which rows have which features: pairs in order of feature, then row, each once."""

    feature: Ints
    row: Ints
    features: int

    @staticmethod
    def of(columns: Flags) -> Presence:
        """From a table (m, n) of flags."""
        feature, row = np.nonzero(columns)
        return Presence(feature.astype(np.int64), row.astype(np.int64), len(columns))

    def sums(self, values: Floats) -> Floats:
        """(m,) the sum of ``values`` (n,) over the rows that have each feature."""
        return tally(self.feature, values[self.row], n=self.features)

    def counts(self, label: Ints, labels: int) -> Floats:
        """(m, labels) rows with each feature under each ``label`` (n,)."""
        flat = np.bincount(self.feature * labels + label[self.row], minlength=self.features * labels)
        return flat.reshape(self.features, labels).astype(np.float64)

    def only(self, keep: Flags) -> Presence:
        """The features where ``keep`` (m,) is True, numbered anew."""
        number = np.cumsum(keep) - 1
        chosen = keep[self.feature]
        return Presence(number[self.feature[chosen]].astype(np.int64), self.row[chosen], int(keep.sum()))


def effects(has: Presence, on: Outcome) -> Effects:
    """The effect of every feature on the reward within groups at equal length; O(pairs + features).

    Standard error: the cluster-robust sandwich (Liang and Zeger 1986) with groups as clusters and the factor
    c / (c - 1) for the c groups in which the feature varies; Student's t with c - 1 degrees of freedom.
    """
    m = has.features
    long = float(on.square.sum())
    rows = tally(has.feature, n=m)
    along = has.sums(on.length) / long if long > 0.0 else np.zeros(m)
    # One block for each feature and group that meet.
    at = on.group[has.row]
    new = np.ones(len(at), dtype=bool)
    new[1:] = (np.diff(at) != 0) | (np.diff(has.feature) != 0)
    starts = np.flatnonzero(new)
    if not len(starts):
        nothing = np.full(m, np.nan)
        return Effects(nothing, nothing, nothing, rows, np.zeros(m))
    which, where = has.feature[starts], at[starts]
    count = np.diff(np.append(starts, len(at))).astype(np.float64)
    paid = np.add.reduceat(on.reward[has.row], starts)
    stretch = np.add.reduceat(on.length[has.row], starts)
    varied = count < on.size[where]
    groups = tally(which, varied, n=m)
    square = np.bincount(which, count - count * count / on.size[where], minlength=m) - along * along * long
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.where(square > 1e-9, has.sums(on.reward) / square, np.nan)
        c, b = along[which], effect[which]
        cross, wide = on.cross[where], on.square[where]
        inside = paid - c * cross - b * (count - count * count / on.size[where] - 2.0 * c * stretch + c * c * wide)
        outside = -c * cross - b * c * c * wide
        # Groups without the feature still weigh in through length.
        rest = np.square(along) * (
            float(on.cross @ on.cross)
            + 2.0 * effect * along * float(on.cross @ on.square)
            + np.square(effect * along) * float(on.square @ on.square)
        )
        meat = rest + np.bincount(which, inside * inside - outside * outside, minlength=m)
        error = np.sqrt(np.maximum(meat, 0.0) * groups / np.maximum(groups - 1.0, 1.0)) / square
        # A perfect rule leaves no residual: one answer's worth of doubt remains.
        error = np.maximum(error, np.abs(effect) / np.maximum(groups, 1.0) / 3.0)
        t = np.asarray(effect / error, dtype=np.float64)
    p = tails(t, groups - 1.0)
    p[(groups < FEWEST_GROUPS) | ~np.isfinite(t)] = np.nan
    return Effects(np.asarray(effect, dtype=np.float64), error, p, rows, groups)


def tails(t: Floats, df: Floats) -> Floats:
    """(m,) two-sided p-values of Student's t; by Wallace's normal transform (1959), within 3 % from 4 degrees of freedom."""
    d = np.maximum(df, 1.0)
    z = (8.0 * d + 1.0) / (8.0 * d + 3.0) * np.sqrt(d * np.log1p(np.square(np.nan_to_num(t)) / d))
    return np.array([math.erfc(one) for one in (z / math.sqrt(2.0)).tolist()])


def corrected(*tests: Floats) -> tuple[Floats, ...]:
    """q-values (Benjamini and Hochberg) over all tests of all families together; a NaN is no test."""
    q = benjamini_hochberg(np.concatenate(tests)) if tests else np.empty(0)
    return tuple(np.split(q, np.cumsum([len(one) for one in tests])[:-1]))


class Course(NamedTuple):
    """How the prevalence of a feature moved over windows."""

    first: float
    last: float
    highest: float
    rising: bool
    p_value: float
    """Of the rise from the first to the last third of the windows, with windows as they vary; 1 with fewer than 3."""


def course(counts: Floats, totals: Floats, least: float = 0.05) -> Course:
    """The course of ``counts`` of ``totals`` (windows,), rising when it rose by ``least`` beyond what chance and the
    scatter of neighbouring windows explain.

    The variance of a window is that of its count or half the mean squared step between neighbours (von Neumann 1941),
    whichever is larger, less what a steady rise itself contributes.
    """
    seen = totals > 0
    counts, totals = counts[seen], totals[seen]
    w = len(totals)
    if not w:
        return Course(math.nan, math.nan, math.nan, False, 1.0)
    share = counts / totals
    if w < 3:
        rose = w == 2 and share[1] - share[0] >= least
        p = _two_shares(counts, totals) if w == 2 else 1.0
        return Course(float(share[0]), float(share[-1]), float(share.max()), bool(rose and p < 0.001), p)
    k = max(w // 3, 1)
    first, last = counts[:k].sum() / totals[:k].sum(), counts[-k:].sum() / totals[-k:].sum()
    pooled = (counts.sum() + 1.0) / (totals.sum() + 2.0)
    chance = pooled * (1.0 - pooled) * (1.0 / totals[:k].sum() + 1.0 / totals[-k:].sum())
    steps = np.diff(share)
    scatter = float(np.square(steps - steps.mean()).mean()) / 2.0 * 2.0 / k
    # A take-over in one window is one large step, no scatter: the median keeps it out.
    scatter = min(scatter, median_of(np.square(steps - median_of(steps))) / 0.455 / k)
    z = (last - first) / math.sqrt(max(chance, scatter, 1e-12))
    p = 0.5 * math.erfc(z / math.sqrt(2.0))
    rising = last - first >= least and p < 0.001 and share[-k:].mean() >= share.max() / 2.0
    return Course(float(first), float(last), float(share.max()), bool(rising), p)


def _two_shares(counts: Floats, totals: Floats) -> float:
    pooled = (counts.sum() + 1.0) / (totals.sum() + 2.0)
    z = (counts[1] / totals[1] - counts[0] / totals[0]) / math.sqrt(pooled * (1 - pooled) * float((1.0 / totals).sum()))
    return 0.5 * math.erfc(z / math.sqrt(2.0))


class Conflict(NamedTuple):
    """Paid answers to one question that end in different results."""

    share: float
    """Share of pairs of paid answers to one question that disagree, averaged over questions; NaN without pairs."""
    questions: int
    """Questions with at least one pair."""


@dataclass(frozen=True, eq=False)
class Results:
    """Which result each of n answers has to which question, made ready to count pairs."""

    question: Ints
    """(n,) numbers from 0."""
    cell: Ints
    """(n,) numbers of pairs of question and result; -1 where the result is unknown."""
    of: Ints
    """(cells,) the question of each."""

    @staticmethod
    def of_answers(question: Ints, result: Ints) -> Results:
        """From numbers (n,) of questions and results; a negative result is unknown."""
        _, asked = np.unique(question, return_inverse=True)
        known = np.flatnonzero(result >= 0)
        cell = np.full(len(result), -1, dtype=np.int64)
        pairs, inside = np.unique(asked[known] * (int(result.max(initial=0)) + 1) + result[known], return_inverse=True)
        cell[known] = inside
        of = np.zeros(len(pairs), dtype=np.int64)
        of[inside] = asked[known]
        return Results(asked.astype(np.int64), cell, of)

    def conflict(self, chosen: Flags, others: Flags | None = None) -> Conflict:
        """Pairs of answers to one question with one in ``chosen`` and the other in ``chosen`` or ``others`` (n,), and how
        many of them have different results."""
        cells, m = len(self.of), int(self.of.max(initial=-1)) + 1
        if not cells:
            return Conflict(math.nan, 0)
        a = self.cell[chosen]
        same_a = tally(a[a >= 0], n=cells)
        n_a = tally(self.of, same_a, n=m)
        same_b, n_b = np.zeros(cells), np.zeros(m)
        if others is not None:
            b = self.cell[others & ~chosen]
            same_b = tally(b[b >= 0], n=cells)
            n_b = tally(self.of, same_b, n=m)
        pairs = n_a * (n_a - 1.0) / 2.0 + n_a * n_b
        equal = tally(self.of, same_a * (same_a - 1.0) / 2.0 + same_a * same_b, n=m)
        seen = pairs > 0
        if not seen.any():
            return Conflict(math.nan, 0)
        return Conflict(float((1.0 - equal[seen] / pairs[seen]).mean()), int(seen.sum()))
