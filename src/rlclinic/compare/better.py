"""Which of two runs is better: by the held-out score where both have it, else by the reward where it means the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlclinic.compare.rows import Better, MetricRow, SettingRow
from rlclinic.compare.settings import differs
from rlclinic.compare.sides import Side
from rlclinic.model import Severity
from rlclinic.stats.trend import LEAST_RELATIVE

HELD_OUT = "held_out."
_GIVES_REWARD = {
    "reward_weights", "reward_clip", "reward_normalise", "reward_shaping", "overlong_penalty", "overlong_on",
    "overlong_factor", "truncation_penalty", "length_penalty", "format_penalty", "tool_failure_penalty", "zero_unfinished",
    "judge",
}  # fmt: skip
"""Settings by which one answer earns another reward."""


def lead_rows(rows: Sequence[MetricRow], first: Side, second: Side) -> tuple[MetricRow | None, MetricRow | None]:
    """(the held-out score of both runs, their reward), None where one lacks it. Of several held-out series the one that
    either run was given as its score, rather one that is no reward."""
    by_name = {row.name: row for row in rows}
    scores = [one.run.get("eval.score") for one in (first, second)]
    names = dict.fromkeys(f"{HELD_OUT}{column.key}" for column in scores if column is not None)
    held = sorted((by_name[name] for name in names if name in by_name), key=_is_reward)
    return (held[0] if held else None), by_name.get("reward.mean")


def better(
    rows: Sequence[MetricRow], first: Side, second: Side, settings: Sequence[SettingRow], place: int, scale: bool
) -> Better:
    """The run that is better at the end of the common stretch; ``scale``: the reward is of another size in each.

    A held-out score decides alone. Only where it is open and yet points clearly to one side, a reward that says the same may
    decide. A higher reward is no better run when that run alone is critical: a reward can be hacked.
    """
    held, reward = lead_rows(rows, first, second)
    another = _another_reward(reward, first, second, settings, place, scale)
    if held is not None and _is_reward(held) and another:
        held = None
    by_score = None if held is None else _judged(held)
    if held is not None and by_score is not None and held.word != "open":
        return by_score
    if reward is None or another:
        return by_score or Better("unknown", reward, another or "no held-out score and no reward in both")
    by_reward = _judged(reward)
    sign = {"first": -1.0, "second": 1.0}.get(by_reward.run, 0.0)
    if by_score is not None and held is not None and (sign == 0.0 or not sign * _late(held) >= LEAST_RELATIVE):
        return by_score
    winner, loser = (second, first) if sign > 0.0 else (first, second)
    if sign and _critical(winner) and not _critical(loser):
        return Better("unknown", reward, f"{winner.name} earns the higher reward, but only {winner.name} is critical")
    return by_reward


def _is_reward(row: MetricRow) -> bool:
    return "reward" in row.name.lower()


def _late(row: MetricRow) -> float:
    """The late difference as a share of the higher level; NaN without one."""
    if row.apart is None:
        return math.nan
    return (row.apart.late[1] - row.apart.late[0]) / max(*map(abs, row.apart.late), 1e-300)


def _critical(one: Side) -> bool:
    return any(f.severity is not None and f.severity >= Severity.CRITICAL for f in one.diagnosis.findings)


def _judged(row: MetricRow) -> Better:
    if row.word == "same":
        return Better("neither", row)
    if row.word != "different":
        why = {"within_seeds": "no more than seeds of one recipe differ by", "incomparable": row.says}
        return Better("unknown", row, why.get(row.word, row.says or "noise hides what may differ"))
    gap = row.shown
    if gap is None:  # a fact of the log: two constants, or values that are no numbers
        ends = [column.finite.values for column in row.columns]
        if any(column.nonfinite for column in row.columns) or not all(map(len, ends)):
            return Better("unknown", row, row.says)
        gap = float(ends[1][-1] - ends[0][-1])
    elif row.apart is not None and row.apart.lead is not None and row.half is None:
        return Better("unknown", row, "the same course at another pace")
    elif row.place not in ("late", "throughout"):
        return Better("unknown", row, "they differ on the way, not surely at the end")
    if not math.isfinite(gap) or gap == 0.0:
        return Better("unknown", row, row.says)
    return Better("second" if gap > 0.0 else "first", row)


def _another_reward(
    row: MetricRow | None, first: Side, second: Side, settings: Sequence[SettingRow], place: int, scale: bool
) -> str:
    """Why the reward is not the same quantity in both runs; empty when nothing says so."""
    if row is None:
        return ""
    if row.word == "incomparable":
        return row.says
    parts = [one.name for one in (first, second) if one.run.components]
    if len(parts) == 1:
        return f"only {parts[0]} tells the parts of its reward"
    given = [
        setting.title
        for setting in settings
        if setting.name in _GIVES_REWARD and differs(setting, first.run, second.run, place)
    ]
    if given:
        return f"the reward is given in another way ({', '.join(given[:4])})"
    return "the reward is of another size in each" if scale else ""
