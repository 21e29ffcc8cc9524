"""What saved log-probabilities, policy versions and loss masks say of answers: their gap, their age, what is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rlclinic.answers import agreement
from rlclinic.model import SAVED, Column, Run
from rlclinic.rollouts import Flags, Floats, Rollouts

ENORMOUS = 20.0
"""Gap of one token in nats that no rounding explains (the limit of the check on token drift: its TOML has the source)."""
LOST = 1.0
"""Mean gap of an answer in nats from which the trainer takes its text for another one's (ours: engines differ by 0.02)."""
UNLIKELY = -6.0
"""Mean log-probability of an answer under its own sampler, in nats, that sampling from a language model does not give
(ours: an entropy of 6 nats is a choice among 400 words at every token)."""
MOST = 1e9
"""Largest number that is averaged, so that what a broken file holds stays finite."""


@dataclass(frozen=True)
class Gaps:
    """How the gaps between sampler and trainer are spread over the answers."""

    known: int
    """Answers with a gap."""
    mean: float
    """Mean gap over their tokens, nats."""
    top: float
    """Share of the whole gap that the worst hundredth of the answers carries, 0..1."""
    enormous: Flags
    """(n,) answers with a token whose gap is above ``ENORMOUS``."""
    lost: Flags
    """(n,) answers whose mean gap is above ``LOST``."""
    unlikely: Flags
    """(n,) answers whose own sampler gives them less than ``UNLIKELY`` a token."""
    worst: tuple[int, ...]
    """Rows with the largest gap first; empty where none is enormous or lost."""


def gaps(table: Rollouts) -> Gaps | None:
    """The gaps of the training answers in ``table``; None where no answer has one, nor a log-probability."""
    gap, worst = np.clip(table.mismatch, 0.0, MOST), table.worst_mismatch
    known = np.isfinite(gap)
    if not known.any() and not np.isfinite(table.logp).any():
        return None
    with np.errstate(invalid="ignore"):
        enormous, lost, unlikely = worst > ENORMOUS, gap > LOST, table.logp < UNLIKELY
    weight = _weights(table, known)
    whole = gap[known] * weight
    count = max(1, round(0.01 * int(known.sum())))
    largest = np.sort(whole)[-count:].sum() if known.any() else 0.0
    size = np.where(np.isfinite(worst), worst, gap)
    rows = np.flatnonzero(enormous | lost)
    order = rows[np.argsort(-size[rows], kind="stable")][:8]
    return Gaps(
        known=int(known.sum()),
        mean=float(whole.sum() / weight.sum()) if known.any() else float("nan"),
        top=float(largest / whole.sum()) if known.any() and whole.sum() > 0 else 0.0,
        enormous=enormous,
        lost=lost,
        unlikely=unlikely,
        worst=tuple(order.tolist()),
    )


@dataclass(frozen=True)
class Trained:
    """What of the answers of several turns is in the loss."""

    answers: int
    """Answers of several turns that the loss looks at."""
    whole: Flags
    """(n,) of these those of which every token after the prompt is in the loss, with what tools and environment wrote."""
    share: float
    """Mean share of the tokens after the prompt that is in the loss, over all of them."""


def trained(table: Rollouts) -> Trained | None:
    """None without an answer of several turns whose loss mask is saved.

    An answer of two turns counts when it called a tool: where messages are counted, two are one exchange.
    """
    several = (table.turns > 2) | ((table.turns == 2) & (table.tool_calls > 0))
    looked = several & (table.trained > 0)
    if not looked.any():
        return None
    return Trained(
        int(looked.sum()),
        looked & (table.trained >= 1.0 - 1e-9),
        float(np.clip(table.trained[looked], 0.0, 1.0).mean()),
    )


# ---------------------------------------------------------------- by step


def complete(run: Run) -> Run:
    """``run`` with the columns of ``COLUMNS`` that its log lacks, each from the first table that has it.

    Answers that are not those of the log give none. Groups that a trainer left out for want of a spread do not bias a
    gap or an age, so that filtered tables count too.
    """
    found: dict[str, Column] = {}
    for metric, values in COLUMNS.items():
        ways = (values(table.train) for table in agreement.own(run).rollouts if metric not in run)
        series = next((one for one in ways if one is not None), None)
        if series is not None:
            found[metric] = Column(metric, SAVED, *series, note="worked out from the saved answers")
    return replace(run, columns={**run.columns, **found}) if found else run


def _weights(table: Rollouts, rows: Flags) -> Floats:
    """Tokens that each row counts for, 1 where not all lengths are known."""
    tokens = table.tokens[rows]
    return np.minimum(tokens, MOST) if bool((tokens > 0).all()) else np.ones(int(rows.sum()))


def _by_step(table: Rollouts, values: Floats, *, weighted: bool = False) -> tuple[Floats, Floats] | None:
    keep = np.isfinite(values) & np.isfinite(table.step)
    if not keep.any():
        return None
    weight = _weights(table, keep) if weighted else np.ones(int(keep.sum()))
    steps, place = np.unique(table.step[keep], return_inverse=True)
    return steps, np.bincount(place, np.clip(values[keep], -MOST, MOST) * weight) / np.bincount(place, weight)


def _most(table: Rollouts, values: Floats) -> tuple[Floats, Floats] | None:
    keep = np.isfinite(values) & np.isfinite(table.step)
    if not keep.any():
        return None
    order = np.argsort(table.step[keep], kind="stable")
    steps, first = np.unique(table.step[keep][order], return_index=True)
    return steps, np.maximum.reduceat(values[keep][order], first)


COLUMNS: dict[str, Callable[[Rollouts], tuple[Floats, Floats] | None]] = {
    "mismatch.logp_diff.mean": lambda table: _by_step(table, table.mismatch, weighted=True),
    "mismatch.logp_diff.max": lambda table: _most(table, table.worst_mismatch),
    "offpolicy.staleness.mean": lambda table: _by_step(table, table.lag),
    "offpolicy.staleness.max": lambda table: _most(table, table.lag),
}
"""(steps, values) of training answers where their files say it, else None; a gap counts by the tokens of its answer."""
