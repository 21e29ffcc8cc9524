"""Which limits healthy runs justify moving, and how far: each check is played back at moved limits until it is silent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlclinic.checks import BY_NAME, Check, examine
from rlclinic.checks.form import Limit
from rlclinic.diagnose import weigh
from rlclinic.model import Examination, Run, Severity
from rlclinic.stats.evidence import student_quantile

FARTHEST: Mapping[str, float] = {"level": 4.0, "share": 4.0, "change": 2.0}
"""By scale the largest widening: four times a level, four times the odds of a share, the square of a multiple (ours: beyond
that a limit would no longer see the failure that it is there for)."""
NEAR = 0.8
"""A limit is looked at when a healthy run comes this near to it (ours)."""
_NEAREST = 0.4
"""How near is looked for; a run that stays farther away counts as this near (ours)."""
_OFF: Mapping[str, float] = {"level": 1e9, "share": 1e9, "change": 300.0}
"""Widenings at which a limit decides nothing any more."""
_LEFT = 0.1
"""Share of the distance between two grades that is always left (ours)."""
_HUGE = 200.0
"""Logarithm beyond which nothing is widened."""
SPREAD, BEHIND = 0.15, 8.0
"""How much runs of one recipe differ in how near they come to a limit (standard deviation of the logarithm), and the degrees
of freedom that this is worth: ours, measured on simulated runs of one recipe, see docs/baselines.md."""
BEYOND = 0.005
"""Chance that a next run of the recipe is beyond a moved limit (ours)."""
_HALVINGS = 7


def widened(limit: Limit, factor: float) -> float | dict[str, float]:
    """The numbers of ``limit`` when it is widened by ``factor`` (1: as it is), as a user's limits give them.

    The warning grade moves; a lower grade stays, so that what no longer warns is still told. A graver one moves only as far
    as keeps half of its distance, on the logarithm of the scale, and at most half as far as the warning may (so long as that
    leaves ``_LEFT`` of the distance): whatever is allowed, a disaster stays one.
    """
    if limit.value is not None:
        return _moved(limit, limit.value, factor)
    grades = dict(limit.grades)
    at = grades[Severity.WARNING]
    made = {Severity.WARNING.label: _moved(limit, at, factor)}
    if (grave := grades.get(Severity.CRITICAL)) is not None:
        apart = abs(_log(limit, grave) - _log(limit, at))
        left = apart - abs(_log(limit, made[Severity.WARNING.label]) - _log(limit, at))
        along = max(min(max(0.0, 0.5 * apart - left), 0.5 * math.log(most(limit))), _LEFT * apart - left)
        made[Severity.CRITICAL.label] = grave if along == 0.0 else _moved(limit, grave, math.exp(along))
    return made


def _moved(limit: Limit, value: float, factor: float) -> float:
    wider = factor if limit.worse == "above" else 1.0 / factor
    if limit.moves == "change":
        return math.exp(max(-_HUGE, min(_HUGE, math.log(value) * factor)))
    if limit.moves == "level" or not 0.0 < value < 1.0:
        return value * wider
    odds = value / (1.0 - value) * wider
    return odds / (1.0 + odds)


def _log(limit: Limit, value: float) -> float:
    """``value`` on the scale on which a widening adds."""
    if limit.moves == "change":
        return math.log(abs(math.log(value)))
    if limit.moves == "level" or not 0.0 < value < 1.0:
        return math.log(max(value, 1e-12))
    return math.log(value / (1.0 - value))


def most(limit: Limit) -> float:
    """The largest widening of ``limit``."""
    if limit.moves_to is None:
        return FARTHEST[limit.moves]
    return math.exp(abs(_log(limit, limit.moves_to) - _log(limit, start(limit))))


def start(limit: Limit) -> float:
    """The number at which ``limit`` begins to warn."""
    return limit.value if limit.value is not None else limit.grades[Severity.WARNING]


def movable(one: Check) -> dict[str, Limit]:
    """The limits of a check that a baseline may move."""
    return {name: limit for name, limit in one.limits.items() if limit.moves}


@dataclass(frozen=True)
class Played:
    """A healthy run as the checks see it, with what they said at their own limits."""

    run: Run
    said: tuple[Examination, ...]

    def severity(self, one: Check, given: Mapping[str, Any]) -> Severity | None:
        """What ``one`` would say at the limits ``given``, weighed among all checks. What breaks it counts as critical."""
        with np.errstate(all="ignore"):
            outcome, _ = examine(one, self.run, given=given, by="baseline")
        if outcome.outcome == "failed":
            return Severity.CRITICAL
        judged = weigh(outcome if e.check == one.name else e for e in self.said)
        finding = next((e.finding for e in judged if e.check == one.name), None)
        return None if finding is None else finding.severity

    def examined(self, name: str) -> bool:
        """Whether the check could look at all, which no limit changes."""
        return any(e.check == name and e.outcome in ("examined", "failed") for e in self.said)

    def warns(self, one: Check, given: Mapping[str, Any]) -> bool:
        return (self.severity(one, given) or 0) >= Severity.WARNING


@dataclass(frozen=True)
class Reach:
    """How near healthy runs come to one limit: by run the widening at which it stops warning (infinite: none does)."""

    check: str
    limit: Limit
    factors: tuple[float, ...]

    @property
    def farthest(self) -> float:
        return max(self.factors)

    @property
    def beyond(self) -> int:
        """How many of the runs warn at the limit as it is built in."""
        return sum(factor > 1.0 for factor in self.factors)

    @property
    def factor(self) -> float:
        """The widening that a next run of the recipe needs at most, but for the chance ``BEYOND``; never above ``most``.

        The logarithms of ``factors`` are taken as normal, their spread as known to be about ``SPREAD`` (worth ``BEHIND``
        degrees of freedom) before the runs are seen: the predictive distribution of a normal sample with a scaled inverse
        chi-square prior on its variance is Student's t (Murphy, Conjugate Bayesian analysis of the Gaussian distribution,
        2007, with a flat prior on the mean). It narrows as runs are added.
        """
        logs = np.log(np.array(self.factors))
        n = len(logs)
        squares = float(((logs - logs.mean()) ** 2).sum())
        degrees = BEHIND + n - 1
        scale = math.sqrt((BEHIND * SPREAD**2 + squares) / degrees * (1.0 + 1.0 / n))
        bound = math.exp(float(logs.mean()) + student_quantile(BEYOND, degrees) * scale)
        return min(max(bound, self.farthest), most(self.limit))


def reaches(names: Sequence[str], runs: Sequence[Played]) -> tuple[list[Reach], list[str]]:
    """How near ``runs`` come to the movable limits of these checks, where any comes near (a run that a check could not look
    at is left out); and the checks that at least one run sets off whatever their limits are moved to."""
    found, stuck = [], []
    for name in names:
        one = BY_NAME[name]
        limits = movable(one)
        there = [played for played in runs if played.examined(name)]
        tight = {key: widened(limit, NEAR) for key, limit in limits.items()}
        if not any(played.warns(one, tight) for played in there):
            continue
        off = {key: widened(limit, _OFF[limit.moves]) for key, limit in limits.items()}
        if any(played.warns(one, off) for played in there):
            stuck.append(name)
            continue
        for key, limit in limits.items():
            near = {**off, key: widened(limit, NEAR)}
            if not any(played.warns(one, near) for played in there):
                continue
            factors = tuple(_factor(one, limit, off, played) for played in there)
            if math.isinf(max(factors)):
                stuck.append(name)
            found.append(Reach(name, limit, factors))
    return [reach for reach in found if reach.check not in stuck], list(dict.fromkeys(stuck))


def _factor(one: Check, limit: Limit, off: Mapping[str, Any], played: Played) -> float:
    """The smallest widening of ``limit`` alone at which the check does not warn, to about 2 %."""
    low, high = _NEAREST, most(limit)
    if not played.warns(one, {**off, limit.name: widened(limit, low)}):
        return low
    if played.warns(one, {**off, limit.name: widened(limit, high)}):
        return math.inf
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if played.warns(one, {**off, limit.name: widened(limit, middle)}):
            low = middle
        else:
            high = middle
    return high
