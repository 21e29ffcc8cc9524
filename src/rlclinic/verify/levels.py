"""The level of one metric while a run was healthy, while it was sick and after the change; what of it is settled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rlclinic import names
from rlclinic.errors import UnknownName
from rlclinic.model import Column, Finding, Floats, Run
from rlclinic.stats.recovery import Course, Way, Window, course, memory, way, window
from rlclinic.verify.alignment import FEWEST, Pair, unlike_rewards
from rlclinic.verify.form import Word

MARGIN = 0.25
"""Shares of the way from the sick level to the healthy one: within a quarter of the sick level nothing has happened, from
three quarters on the level is back (ours: the half-way point is then a quarter from either)."""
LEAST = 5
"""Points of a window (ours: of fewer, held-out scores above all, neither level nor noise can be told)."""
_TAIL = 0.25
"""Share of the sick rows that is its present level."""
_ORDERS = 2.0
"""Ratio of the two levels from which a positive metric is looked at in logarithms too (ours: a KL that fell from 100
times to 20 times its healthy level has lost four fifths of the excess, and is not back)."""
_FAR = 5.0
"""Shares of the way back beyond which its number says nothing more (ours)."""
_WORTH = 1.0
"""Noise deviations between the sick and the healthy level below which a metric does not show the illness (ours)."""


@dataclass(frozen=True, eq=False)
class Levels:
    """One metric in its three windows. ``healthy`` is empty where BEFORE was sick from its first row."""

    metric: str
    before: Column
    after: Column
    healthy: Floats
    sick: Column
    now: Column
    time: float
    ideal: float | None = None
    """The healthy level where there is no healthy window and the metric has a natural end."""
    better: int = 0
    """Direction of recovery, 1 up and -1 down; 0 where it is not known."""
    early: int = 0
    """Values of BEFORE that lie before the onset, -1 without one; with fewer than ``LEAST`` ``healthy`` is empty."""
    settled: bool = True
    """False while fewer than ``FEWEST`` rows lie behind the steps that the remedy takes."""

    def windows(self, values: tuple[Floats, Floats, Floats]) -> tuple[Window, Window, Window]:
        """Healthy, sick and present mean of ``values``, in one scale."""
        first, then, now = values
        sick = window(then, self.time, drifting=True)
        if self.ideal is not None:
            healthy = Window(self.ideal, 0.0, sick.sd, len(then), 1.0)
        else:
            healthy = window(first, self.time, drifting=True)
        least = min(sick.sd, healthy.sd)
        return healthy, sick, window(now, self.time, least, drifting=True)

    @property
    def way(self) -> Way | None:
        """Where the level is now; None where this metric does not tell the sick run from the healthy one."""
        healthy, sick, now = self.windows((self.healthy, self.sick.values, self.now.values))
        if abs(healthy.mean - sick.mean) < _WORTH * max(min(healthy.sd, sick.sd), 1e-12):
            return None
        return way(healthy, sick, now, self.time)

    @property
    def in_logs(self) -> Way | None:
        """The same in logarithms, where the levels lie a factor apart and all values are positive."""
        values = self.healthy, self.sick.values, self.now.values
        if self.ideal is not None or any((part <= 0.0).any() for part in values):
            return None
        means = float(values[0].mean()), float(values[1].mean())
        if max(means) < _ORDERS * min(means):
            return None
        healthy, sick, now = self.windows((np.log(values[0]), np.log(values[1]), np.log(values[2])))
        return way(healthy, sick, now, self.time)


def series(run: Run, metric: str) -> Column | None:
    """A metric, a reward part or a held-out series by its name."""
    part = run.components.get(metric)
    return run.get(metric) or run.evaluations.get(metric) or (None if part is None else part.mean)


def direction(finding: Finding, metric: str, run: Run) -> int:
    """Where a healthy level of ``metric`` lies: as the remedies of the finding expect, else as the table of metrics says."""
    signs = {"falls": -1, "not_rising": -1, "rises": 1, "not_falling": 1, "rising": 1}
    for prescription in finding.prescriptions:
        move = names.remedy(prescription.id, run.framework).moves.get(metric)
        if isinstance(move, str) and move in signs:
            return signs[move]
        if isinstance(move, dict) and len(move) == 1:
            return -1 if "below" in move else 1
    try:
        return {"up": 1, "down": -1, "low": -1}.get(names.metric(metric).direction, 0)
    except UnknownName:
        return 0


def levels(finding: Finding, metric: str, pair: Pair, within: int) -> Levels | str:
    """The three windows of ``metric``, or why there are none. ``within``: steps that the remedy takes to act."""
    one, other = series(pair.before, metric), series(pair.after, metric)
    if one is None or other is None:
        return f"{titled(metric)} is not logged {'before' if one is None else 'after'} the change"
    if why := incomparable(pair, metric, one, other):
        return why
    before, after = one.finite, other.finite
    low, high = (finding.onset.low, finding.onset.high) if finding.onset is not None else (-np.inf, -np.inf)
    early = before.values[before.steps < low]
    healthy = early[-max(LEAST, len(early) // 2) :] if len(early) >= LEAST else np.empty(0)
    sick = before.since(high)
    if len(sick) < LEAST:
        return f"{metric} has {len(sick)} values from its onset on before the change"
    eligible = after
    if len(early) and pair.relation != "continued":
        # The same age: rows at which the run before was still well say nothing about the cure.
        eligible = after.since(high)
        if len(eligible) < LEAST:
            return (
                f"at step {after.steps[-1]:g} the run before was still well" if len(after) else f"{metric} has no value"
            )
    if len(eligible) < LEAST:
        return f"{metric} has {len(eligible)} values after the change"
    begin = float(pair.after.steps[0])
    late = eligible.since(begin + within)
    settled = len(late) >= min(FEWEST, max(LEAST, len(eligible) // 2))
    if settled and pair.relation != "continued" and len(late) >= 4 * FEWEST:
        late = late.since(float(late.steps[len(late) // 2]))  # behind the way into the illness
    now = late if settled else eligible.since(float(eligible.steps[min(len(eligible) // 2, len(eligible) - LEAST)]))
    same = sick.since(float(now.steps[0])).upto(float(now.steps[-1]))
    if pair.relation == "continued" or len(same) < LEAST:
        same = sick.since(float(sick.steps[-max(LEAST, round(_TAIL * len(sick)))]))
    time = memory(healthy, same.values, now.values)
    better, ideal = 0, None
    if not len(healthy):
        better = direction(finding, metric, pair.before)
        ideal = _end(metric, better)
    else:
        better = 1 if float(healthy.mean()) > float(same.values.mean()) else -1
    return Levels(
        metric,
        before,
        after,
        healthy,
        same,
        now,
        time,
        ideal,
        better,
        -1 if finding.onset is None else len(early),
        settled,
    )


def incomparable(pair: Pair, metric: str, one: Column, other: Column) -> str:
    """Why levels of ``metric`` before and after the change are not of one quantity; empty where nothing says so."""
    title = titled(metric)
    if one.estimator and other.estimator and one.estimator != other.estimator:
        return f"{title} is estimated otherwise now ({one.estimator} before, {other.estimator} after)"
    try:
        meant = names.metric(metric)
    except UnknownName:
        return ""
    if meant.unit == "reward":
        if unlike_rewards(pair.before, pair.after):
            return f"{title} is made of other parts now"
        scales = _scale(pair.before), _scale(pair.after)
        if None not in scales and not np.allclose(scales[0], scales[1], rtol=1e-3, atol=1e-9):  # type: ignore[arg-type]
            told = [f"{low:.4g} to {high:.4g}" for low, high in scales]  # type: ignore[misc]
            return f"{title} is on another scale now (attainable {told[0]} before, {told[1]} after)"
        if why := _made_of(pair):
            return f"{title} is {why}"
    if meant.high == 1.0:
        beyond = [len(c) > 0 and float(c.values.max()) > 1.01 for c in (one.finite, other.finite)]
        if beyond[0] != beyond[1]:
            return (
                f"{title} is in other units {'before' if beyond[0] else 'after'} the change: a share is never above 1"
            )
    return ""


def _made_of(pair: Pair) -> str:
    """How the reward is put together otherwise than before, by its parts and their weights; empty where nothing says so."""
    parts = [set(run.components) for run in (pair.before, pair.after)]
    if all(parts) and parts[0] != parts[1]:
        told = [", ".join(sorted(names))[:80] for names in parts]
        return f"made of other parts now ({told[0]} before, {told[1]} after)"
    weights = [run.knobs.get("reward_weights") for run in (pair.before, pair.after)]
    was, now = (None if one is None else one.value for one in weights)
    return "" if was is None or now is None or was == now else f"weighted otherwise now ({was} before, {now} after)"


def _scale(run: Run) -> tuple[float, float] | None:
    """The lowest and the highest reward that an answer of the run can earn; None where the log does not say it."""
    span = run.reward_range
    return None if span is None or span.how.startswith("extremes seen") else (span.low, span.high)


def way_in_words(found: Levels, way: Way) -> str:
    """The three levels, and how far back the present one is, with its interval and rows."""
    first = f"{way.healthy:.3g} before it began" if found.ideal is None else f"best at {way.healthy:.3g}"
    ends = [f"{100 * end:.0f}" if abs(end) < _FAR else "" for end in (way.low, way.high)]
    bounds = (
        f"{ends[0]} to {ends[1]} %" if all(ends) else f"at least {ends[0]} %" if ends[0] else f"at most {ends[1]} %"
    )
    bounds = f"{bounds}, " if any(ends) else ""
    if abs(way.share) >= _FAR:
        told = "far beyond the level before it began" if way.share > 0 else "far beyond the sick level"
    else:
        told = f"{100 * way.share:.0f} % of the way back"
    return (
        f"{titled(found.metric)} {first}, {way.sick:.3g} when sick, {way.now:.3g} now: {told} ({bounds}"
        f"{len(found.now)} rows)"
    )


def no_level(found: Levels) -> str:
    """Why there is no healthy level of the run's own."""
    if found.early < 0:
        return f"since when {titled(found.metric)} fell ill is not known"
    values = {0: "no value", 1: "1 value"}.get(found.early, f"only {found.early} values")
    return f"{values} of {titled(found.metric)} {'lie' if found.early > 1 else 'lies'} before it fell ill"


def titled(metric: str) -> str:
    """The plain name of a metric; a reward part or a held-out series is its own name."""
    return names.metric(metric).title if metric in names.metrics() else metric


def _end(metric: str, better: int) -> float | None:
    """The bound of a metric towards which it recovers; None without one."""
    try:
        meant = names.metric(metric)
    except UnknownName:
        return None
    bound = meant.low if better < 0 else meant.high if better > 0 else None
    return None if bound is None else float(bound)


def decided(ways: Iterable[Way]) -> tuple[Word, tuple[Word, ...]]:
    """The verdict of the level alone, and what its interval still allows. With several scales each verdict must hold in
    all of them; half-way in one is half-way."""
    w = list(ways)
    if all(one.low >= 1.0 - MARGIN for one in w):
        return "cured", ("cured",)
    if all(one.low >= -MARGIN and one.high <= MARGIN for one in w):
        return "no_effect", ("no_effect",)
    if all(one.high < 0.0 for one in w) and any(one.share <= -MARGIN for one in w):
        return "worse", ("worse",)
    if (
        all(one.low > 0.0 for one in w)
        and any(one.high < 1.0 and one.share < 1.0 - MARGIN for one in w)
        and any(one.share > MARGIN for one in w)
    ):
        return "improving", ("improving",)
    allowed: list[Word] = []
    if all(one.high >= 1.0 - MARGIN for one in w):
        allowed.append("cured")
    if any(one.low < 1.0 - MARGIN and one.high > MARGIN for one in w):
        allowed.append("improving")
    if all(one.low <= MARGIN and one.high >= -MARGIN for one in w):
        allowed.append("no_effect")
    if all(one.low < -MARGIN for one in w):
        allowed.append("worse")
    return "undecided", tuple(allowed)


def drift(levels: Levels) -> tuple[Course, Course]:
    """How the level moved at the end of the run before, and how it moves now."""
    return (
        course(levels.sick.steps, levels.sick.values, levels.time),
        course(levels.now.steps, levels.now.values, levels.time),
    )


def carried_on(levels: Levels, was: Course) -> Window:
    """The sick level as it would be now had it gone on moving as at its end."""
    sick = window(levels.sick.values, levels.time, drifting=True)
    ahead = float(levels.now.steps.mean()) - float(levels.sick.steps.mean())
    return sick._replace(mean=sick.mean + was.slope * ahead, error=sick.error + (was.error * ahead) ** 2)
