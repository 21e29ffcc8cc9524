"""Groups of saved answers counted one by one: how many are dead and why, and how often each prompt is solved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlclinic.answers import parts
from rlclinic.model import Floats
from rlclinic.rollouts import EQUAL, Flags, Rollouts

END = 0.01
"""Share of the range of rewards within which a reward is its end (ours: rounding of saved rewards)."""
_NEAR_END = 0.1
"""Share of the range within which a dead group counts as right or wrong where only graded rewards tell (ours)."""
SOLVED = 0.9
"""Pass rate from which a prompt counts as solved (Polaris and others retire prompts there)."""


@dataclass(frozen=True, eq=False)
class Census:
    """Groups of at least two answers whose rewards are all known, counted; arrays (groups,) over the groups judged."""

    step: Floats
    size: NDArray[np.int64]
    dead: Flags
    """All answers earned the same."""
    right: Flags
    """Dead, and every answer is right, or earned nearly the most that was seen."""
    wrong: Flags
    """Dead, and every answer is wrong, or earned nearly the least that was seen."""
    copies: Flags
    """All answers of the group are one and the same text."""
    reward: Floats
    """Mean reward of the group."""
    by: str
    """What right and wrong rest on; empty where one reward alone was seen and nothing tells."""

    def __len__(self) -> int:
        return len(self.dead)

    def since(self, step: float) -> Census:
        """The groups from ``step`` on."""
        keep = self.step >= step
        return Census(
            self.step[keep], self.size[keep], self.dead[keep], self.right[keep], self.wrong[keep], self.copies[keep],
            self.reward[keep], self.by,
        )  # fmt: skip

    @property
    def middle(self) -> Flags:
        """Dead between the ends."""
        return self.dead & ~self.right & ~self.wrong

    @property
    def group_size(self) -> int | None:
        """The size of nine in ten groups; None where they differ."""
        if not len(self):
            return None
        sizes = np.bincount(self.size)
        return int(sizes.argmax()) if sizes.max() >= 0.9 * len(self) else None


def census(table: Rollouts) -> Census:
    """Every group of ``table`` counted; empty where there are no whole groups with rewards.

    Right and wrong come from a part that is 0 or 1 and named after correctness, else from the ends of the rewards seen.
    """
    judged = table.judged
    low, high = table.lowest(table.reward), table.highest(table.reward)
    right = wrong = np.zeros(len(judged), dtype=np.bool_)
    by = ""
    solved = parts.success(table)
    if solved is not None:
        least, most = table.lowest(solved), table.highest(solved)
        right, wrong, by = least == 1, most == 0, "right and wrong as scored for each answer"
    elif judged.any():
        bottom, top = float(low[judged].min()), float(high[judged].max())
        near = _NEAR_END * (top - bottom)
        if top - bottom > EQUAL * max(abs(top), abs(bottom), 1.0):
            right, wrong, by = low >= top - near, high <= bottom + near, "the extremes among the saved rewards"
    answers = table.answer.astype(np.float64)
    same = (table.lowest(answers) == table.highest(answers)) & (table.lowest(answers) >= 0)
    dead = table.dead & judged
    return Census(
        step=table.group_step[judged],
        size=table.size[judged],
        dead=dead[judged],
        right=(dead & right)[judged],
        wrong=(dead & wrong)[judged],
        copies=np.asarray(same[judged]),
        reward=table.means(table.reward)[judged],
        by=by,
    )


# ---------------------------------------------------------------- by prompt


@dataclass(frozen=True, eq=False)
class PassRates:
    """How often prompts are solved, from answers that are each right or wrong.

    ``at`` maps k to pass@k: the chance that at least one of k answers to a prompt is right, over the prompts that have k.
    """

    prompts: int
    answers: int
    mean: float
    """Mean over prompts of their share of right answers, which is pass@1."""
    at: dict[int, float]
    solved: float
    """Share of the prompts of which at least ``SOLVED`` of the answers are right."""
    hopeless: float
    """Share of the prompts without a right answer."""
    least: int
    """Answers that a prompt has at least, in the middle prompt: with few, solved and hopeless are partly luck."""
    again: int
    """Prompts that were asked at several steps."""
    change: float | None
    """Mean change of the pass rate of those from the first time to the last; None without any."""
    rose: int
    fell: int


def overview(table: Rollouts) -> PassRates | None:
    """The pass rates of the prompts of ``table``; None where answers are not right or wrong or prompts are unknown.

    A prompt asked at several steps counts with all its answers. pass@k is the unbiased 1 - C(n-c, k) / C(n, k), Chen et
    al. 2021, arXiv 2107.03374, section 2.1, averaged over the prompts with n >= k, for k in powers of two that at least
    half of the prompts have answers for.
    """
    right = parts.success(table)
    if right is None:
        return None
    known = np.isfinite(right) & (table.prompt >= 0)
    if not known.any():
        return None
    _, prompt = np.unique(table.prompt[known], return_inverse=True)
    passed, n = np.bincount(prompt, right[known]), np.bincount(prompt)
    rate = passed / n
    at: dict[int, float] = {}
    k = 1
    while k <= 1024 and (n >= k).mean() >= 0.5:
        use = n >= k
        at[k] = float(np.mean(pass_at_k(n[use], passed[use].astype(np.float64), k)))
        k *= 2
    again, change, rose, fell = _drift(prompt, table.step[known], right[known])
    return PassRates(
        prompts=len(n),
        answers=int(n.sum()),
        mean=float(rate.mean()),
        at=at,
        solved=float((rate >= SOLVED).mean()),
        hopeless=float((passed == 0).mean()),
        least=int(np.median(n)),
        again=again,
        change=change,
        rose=rose,
        fell=fell,
    )


def pass_at_k(n: NDArray[np.int64], c: Floats, k: int) -> Floats:
    """(m,) the chance that one of ``k`` answers, drawn without replacement from ``n`` (m,) of which ``c`` (m,) are right,
    is right: 1 - C(n-c, k) / C(n, k) as a product of ``k`` ratios, which no size overflows. ``k`` <= every n."""
    n, missing = np.asarray(n, dtype=np.float64), np.ones(len(n))
    for taken in range(k):
        missing *= np.clip((n - c - taken) / (n - taken), 0.0, 1.0)
    return 1.0 - missing


def _drift(prompt: NDArray[np.int64], step: Floats, right: Floats) -> tuple[int, float | None, int, int]:
    """(prompts asked at several steps, mean change of their pass rate first to last, how many rose, fell)."""
    if not np.isfinite(step).all():
        return 0, None, 0, 0
    _, when = np.unique(step, return_inverse=True)
    visit, place = np.unique(prompt * (int(when.max()) + 1) + when, return_inverse=True)
    rate = np.bincount(place, right) / np.bincount(place)
    owner = visit // (int(when.max()) + 1)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    last = np.append(first[1:], len(owner)) - 1
    change = (rate[last] - rate[first])[last > first]
    if not len(change):
        return 0, None, 0, 0
    return len(change), float(change.mean()), int((change > 0).sum()), int((change < 0).sum())
