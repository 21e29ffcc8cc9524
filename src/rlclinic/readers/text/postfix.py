"""Metrics behind progress bars (``| 3/16 [00:10<00:40, reward=0.5]``), for a text that holds nothing better."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rlclinic.readers.tokens import metric_like, number

UPDATES = 20_000
"""Most updates of one bar that are kept (ours: a training bar of so many steps is longer than any run seen)."""
PASSES = 100_000
"""Most passes of one bar (ours)."""
KINDS = 50
"""Most bars that are told apart by what stands before them (ours)."""

_BAR = (
    r"([^|]{0,200}?)\d{1,3}%\|[^|\n]{0,400}\|\s{0,4}(\d{1,9})/(\d{1,9})\s?"
    r"\[[^\]=\n]{0,80}?,\s{0,2}([A-Za-z_][^\]\n]{2,2000})\]"
)
_PAIR = r"([A-Za-z_][\w./-]{0,80})=([-+]?(?:\d[\d.]{0,40}(?:e[-+]?\d{1,3})?|\.\d{1,30}|nan|inf))(?=,|\s|$)"
_EPOCH = r"(\d{1,6})/(\d{1,6})\]"
_SHORT = {
    "pg": "policy_loss",
    "act_loss": "policy_loss",
    "rm": "reward",
    "ret": "return",
    "glen": "response_length",
    "gen_len": "response_length",
    "tlen": "total_length",
    "tot_len": "total_length",
    "act_lr": "actor_lr",
    "ent": "entropy",
    "cri": "critic_loss",
    "vals": "values",
    "cri_lr": "critic_lr",
    "ptx": "ptx_loss",
}
"""OpenRLHF's short names (openrlhf/trainer/ppo_trainer.py), which SkyRL took over, as the keys they stand for."""


@dataclass
class _Bar:
    """The updates of one kind of bar: single ones of its first pass, and the mean of each pass."""

    count: int = -1
    total: int = 0
    postfix: str = ""
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    updates: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    means: list[dict[str, float]] = field(default_factory=list)
    more: bool = False
    """True while the pass is one of several over the same data (``Train epoch [1/2]``)."""

    def end_pass(self) -> None:
        if self.sums and len(self.means) < PASSES:
            self.means.append({key: total / count for key, (total, count) in self.sums.items()})
        self.sums = {}


class Postfixes:
    """Takes texts with progress bars; ``rows`` gives the metrics behind those that count training."""

    def __init__(self) -> None:
        self._bars: dict[str, _Bar] = {}

    def take(self, text: str) -> None:
        """Note the bar of a piece of text, if metrics stand behind it."""
        found = re.search(_BAR, text[:4_000]) if "=" in text and "%|" in text else None
        if found is None:
            return
        pairs = {key: number(token) for key, token in re.findall(_PAIR, found[4])}
        values = {_SHORT.get(key, key): value for key, value in pairs.items() if value is not None}
        if len(values) < 2 or not metric_like(values):
            return
        kind = re.sub(r"[\d/\[\] ]+", "", found[1])[-60:]
        bar = self._bars.get(kind)
        if bar is None:
            if len(self._bars) >= KINDS:
                return
            bar = self._bars[kind] = _Bar()
        count, total = int(found[2]), int(found[3])
        if (count < bar.count or total != bar.total) and bar.count >= 0 and not bar.more:
            bar.end_pass()
        # A bar is drawn again with what it showed before when its count moves on.
        if found[4] != bar.postfix or count < bar.count:
            for key, value in values.items():
                before, times = bar.sums.get(key, (0.0, 0))
                bar.sums[key] = before + value, times + 1
            if len(bar.updates) < UPDATES and not bar.means:
                bar.updates.append((count, values))
        epoch = re.search(_EPOCH, found[1])
        bar.more = epoch is not None and int(epoch[1]) < int(epoch[2])
        bar.count, bar.total, bar.postfix = count, total, found[4]

    def rows(self) -> tuple[list[tuple[float | None, dict[str, float]]], int | None]:
        """(step, metrics) of each row, and the planned steps: the updates of a single pass, else the means of the passes."""
        best = max(self._bars.values(), key=lambda bar: len(bar.updates) + len(bar.means), default=None)
        if best is None:
            return [], None
        best.end_pass()
        if len(best.means) > 1:
            return [(None, row) for row in best.means], None
        return [(float(count), values) for count, values in best.updates], best.total
