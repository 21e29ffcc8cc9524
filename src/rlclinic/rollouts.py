"""Saved answers of a run: one row for each sampled response, numbers for all of them and texts for a sample of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Ending: TypeAlias = Literal["", "stopped", "cut", "aborted"]

ENDINGS: tuple[Ending, ...] = ("", "stopped", "cut", "aborted")
"""How an answer ended; the place in this tuple is its code. Empty: not known."""
EQUAL = 1e-6
"""Relative spread below which the rewards of a group count as equal (float32 leaves 1e-7; trainers add 1e-6 to 1e-4)."""


@dataclass(slots=True)
class Answer:
    """One sampled response as its file has it; None and empty mean that the file does not say."""

    step: float | None = None
    prompt: str | None = None
    text: str | None = None
    reward: float | None = None
    """What the advantage is worked out from; the parts are unweighted."""
    parts: Mapping[str, float | None] | None = None
    key: str | int | None = None
    """What the trainer itself names the group by, unique within a step."""
    advantage: float | None = None
    tokens: float | None = None
    ending: Ending = ""
    truth: str | None = None
    held_out: bool = False
    lag: float | None = None
    """Policy versions between the one that began the answer and the one that trains on it."""
    turns: float | None = None
    tool_calls: float | None = None
    mismatch: float | None = None
    """Mean over the answer's trained tokens of |log p of the trainer - log p of the sampler|, in nats."""
    worst_mismatch: float | None = None
    """The largest such difference of one token."""
    logp: float | None = None
    """Mean log-probability of the answer's tokens under the sampler, in nats."""
    trained: float | None = None
    """Share of the tokens after the prompt that are in the loss, 0..1."""
    same: int | None = None
    """A fingerprint of the tokens where the file holds no text."""


@dataclass(frozen=True)
class Text:
    """The words of one row."""

    prompt: str
    answer: str
    truth: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Rollouts:
    """Saved answers in the order of their files: arrays (n,) with NaN where a file does not say.

    ``group`` numbers the groups whose rewards are compared, 0.. without gaps; -1 where that cannot be told. ``prompt`` and
    ``answer`` number equal texts (-1 without a text). ``texts`` holds the words of some rows: those of whole groups, drawn
    evenly over the steps where not all fit.
    """

    source: str
    """The file or folder they were read from."""
    form: str
    """Which trainer's form they have, as ``readers.answers`` names it."""
    step: Floats
    group: Ints
    prompt: Ints
    answer: Ints
    reward: Floats
    parts: Mapping[str, Floats]
    advantage: Floats
    tokens: Floats
    characters: Floats
    ending: NDArray[np.int8]
    held_out: Flags
    lag: Floats
    turns: Floats
    tool_calls: Floats
    mismatch: Floats
    worst_mismatch: Floats
    logp: Floats
    trained: Floats
    key: Ints
    """Numbers of the trainer's own group names; -1 without one."""
    texts: Mapping[int, Text] = field(default_factory=dict)
    files: int = 1
    rows: int = 0
    """Rows in the files; more than n where whole groups were left out because there are too many."""
    filtered: bool = False
    """True where the trainer saves only groups that it trains on: the share of dead groups is then biased to 0."""
    partial: bool = False
    """True where only some rows of a batch are saved: groups are not whole."""
    warnings: tuple[str, ...] = ()
    shift: float = 0.0
    """What was added to the steps of the files so that they fit the log."""

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        return f"Rollouts({self.form}, {len(self)} answers, {self.groups} groups, {len(self.steps)} steps)"

    @cached_property
    def steps(self) -> Floats:
        """Every step with a saved answer, increasing."""
        return np.unique(self.step[np.isfinite(self.step)])

    @cached_property
    def groups(self) -> int:
        """How many groups there are."""
        return int(self.group.max(initial=-1)) + 1

    @cached_property
    def train(self) -> Rollouts:
        """The rows that were sampled for training; the table itself when all were."""
        return self if not self.held_out.any() else self.only(~self.held_out)

    @cached_property
    def evaluation(self) -> Rollouts:
        """The rows of held-out prompts."""
        return self.only(self.held_out)

    def only(self, keep: Flags) -> Rollouts:
        """The rows where ``keep`` (n,) is True, groups numbered anew."""
        at = np.flatnonzero(keep)
        _, group = np.unique(self.group[at], return_inverse=True)
        group = group.astype(np.int64) - bool((self.group[at] < 0).any())
        moved = {int(old): new for new, old in enumerate(at.tolist())}
        columns = {name: getattr(self, name)[at] for name in _COLUMNS if name != "group"}
        return replace(
            self,
            **columns,
            group=group,
            parts={name: values[at] for name, values in self.parts.items()},
            texts={moved[row]: text for row, text in self.texts.items() if row in moved},
        )

    # ------------------------------------------------------------ by group

    @cached_property
    def _blocks(self) -> tuple[Ints, Ints]:
        """(rows sorted by group, where each group begins among them); rows without a group are left out."""
        rows = np.flatnonzero(self.group >= 0)
        order = rows[np.argsort(self.group[rows], kind="stable")]
        starts = np.flatnonzero(np.diff(self.group[order], prepend=-1))
        return order.astype(np.int64), starts.astype(np.int64)

    @cached_property
    def size(self) -> Ints:
        """(groups,) answers in each group."""
        return np.bincount(self.group[self.group >= 0], minlength=self.groups).astype(np.int64)

    @cached_property
    def group_step(self) -> Floats:
        """(groups,) the step of each group."""
        order, starts = self._blocks
        return self.step[order[starts]] if len(starts) else np.empty(0)

    @cached_property
    def group_prompt(self) -> Ints:
        """(groups,) the prompt of each group (its first row's)."""
        order, starts = self._blocks
        return self.prompt[order[starts]] if len(starts) else np.empty(0, np.int64)

    def members(self, group: int) -> Ints:
        """The rows of one group, in file order."""
        order, starts = self._blocks
        end = starts[group + 1] if group + 1 < len(starts) else len(order)
        return order[starts[group] : end]

    def sums(self, values: Floats) -> Floats:
        """(groups,) the sum of ``values`` (n,) in each group; NaN where one of them is."""
        order, starts = self._blocks
        return np.add.reduceat(values[order], starts) if len(starts) else np.empty(0)

    def means(self, values: Floats) -> Floats:
        """(groups,) the mean of ``values`` (n,) in each group; NaN where one of them is."""
        return self.sums(values) / self.size if self.groups else np.empty(0)

    def lowest(self, values: Floats) -> Floats:
        """(groups,) the least of ``values`` (n,) in each group; NaN where one of them is."""
        order, starts = self._blocks
        return np.minimum.reduceat(values[order], starts) if len(starts) else np.empty(0)

    def highest(self, values: Floats) -> Floats:
        """(groups,) the greatest of ``values`` (n,) in each group; NaN where one of them is."""
        order, starts = self._blocks
        return np.maximum.reduceat(values[order], starts) if len(starts) else np.empty(0)

    def centred(self, values: Floats) -> Floats:
        """(n,) ``values`` less the mean of their group; NaN for rows without a group."""
        out = np.full(len(self), np.nan)
        inside = self.group >= 0
        out[inside] = values[inside] - self.means(values)[self.group[inside]]
        return out

    @cached_property
    def dead(self) -> Flags:
        """(groups,) True where all rewards are equal to ``EQUAL``; False for groups of one answer or without rewards."""
        low, high = self.lowest(self.reward), self.highest(self.reward)
        scale = np.maximum(np.maximum(np.abs(low), np.abs(high)), 1.0)
        return np.asarray((high - low <= EQUAL * scale) & (self.size > 1))

    @cached_property
    def judged(self) -> Flags:
        """(groups,) True where all rewards are known and there are at least two; nowhere where that holds for less than half
        of the groups that have a reward at all, since the few that are whole are then no sample of them."""
        several = self.size > 1
        whole = np.asarray(np.isfinite(self.sums(self.reward)) & several)
        begun = (self.sums(np.isfinite(self.reward).astype(np.float64)) > 0) & several
        return whole if 2 * whole.sum() >= begun.sum() else np.zeros_like(whole)


@dataclass(frozen=True, eq=False)
class Regraded:
    """A sample of saved answers as a second verifier grades them: arrays (k,), one row an answer that got a verdict."""

    verifier: str
    """The function that graded, as the user named it."""
    rows: Ints
    """Rows of the training answers of the best table."""
    window: Ints
    """Quarter of the steps that the answer is from, 0..3."""
    reward: Floats
    score: Floats
    weight: Floats
    """How many saved answers each stands for."""
    paid: Flags
    """The reward lies in the upper half of what saved answers earn."""
    accepted: Flags
    """The same of the second verifier's score; of scores from 0 to 1 those from one half on."""
    asked: int = 0
    silent: int = 0
    """Answers on which the verifier gave no verdict, of all ``asked``."""
    failed: int = 0
    """Answers at which it raised an error."""
    slow: int = 0
    """Answers at which it was stopped at its time limit."""

    @property
    def refused(self) -> float:
        """Share of the paid answers that the verifier refuses, each with its weight; 0 without a paid one."""
        return self._share(self.paid & ~self.accepted, self.paid)

    @property
    def missed(self) -> float:
        """Share of the answers that are not paid which the verifier accepts; 0 without one."""
        return self._share(~self.paid & self.accepted, ~self.paid)

    def _share(self, which: Flags, of: Flags) -> float:
        whole = float(self.weight[of].sum())
        return float(self.weight[which].sum()) / whole if whole > 0 else 0.0


_COLUMNS = (
    "step", "group", "prompt", "answer", "reward", "advantage", "tokens", "characters", "ending", "held_out", "lag",
    "turns", "tool_calls", "mismatch", "worst_mismatch", "logp", "trained", "key",
)  # fmt: skip
