"""What has been said of a run so far, so that each change is said once and chance is not taken for a change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from rlclinic.checks import BY_NAME
from rlclinic.live.events import Event, of_finding
from rlclinic.model import Diagnosis, Finding, Severity

LOOKS = 3
"""Looks in a row at which a finding must be there before it is told, and absent before it is closed."""
AGAIN = 2
"""Looks in a row at which what shows at once must be graver before that is told."""
STAND = {Severity.WARNING: (0.05, 1.10), Severity.CRITICAL: (0.02, 1.05)}
"""For how long a finding must stand before it is told, by its severity: for this share of the planned steps, and until the
run has grown by this factor since it was seen first (ours, measured: docs/accuracy.md)."""
LATE = 1.7
"""Growth beyond 1 for each share of the plan that a table asks for by itself (``live``; ours)."""
CLOSE = (0.08, 1.10)
"""For how long a finding must be absent before it is closed (ours: longer than it had to stand, against to and fro)."""
UNKNOWN, FARTHEST, TRUSTED = 300.0, 3.0, 5000.0
"""Steps that count as planned where nothing is known; a plan of more than ``TRUSTED`` steps counts up to ``FARTHEST`` times
the steps so far (ours): some plan a million steps and stop when they have seen enough."""
MOST = 500
"""Most findings that are followed, and ``LONGEST`` the longest title: what a foreign state may hold."""
LONGEST = 2000
FIRST = 5
"""Rows before the first look (ours: with a row every ten steps they are a good part of a short run)."""
FINE, FINE_LEAST, COARSE = 0.03, 3, 3
"""Growth of the rows from one point of the grid of looks to the next, the fewest rows between them, and how many points
make one step while nothing waits (ours)."""


@dataclass
class Standing:
    """How one finding stands between looks."""

    check: str
    since: float
    """Step of the look that saw it first, of the present spell."""
    seen: int = 0
    now: int = 0
    """Severity at the last look that saw it."""
    told: int = 0
    """Gravest severity that was told; 0 while it waits."""
    graver: int = 0
    """Looks in a row that saw it graver than told (critical, while it waits); ``graver_since``: the step of the first."""
    graver_since: float = 0.0
    missed: int = 0
    """Looks in a row that did not see it; ``missed_since``: the step of the first of them."""
    missed_since: float = 0.0
    title: str = ""


class Course:
    """Takes one diagnosis after the other of the same run and says what changed.

    A finding is told once it has stood for several looks and for a share of the run, the longer the milder it is, and
    closed after it was absent for longer than that. What no later row can take back is told at once; that something did
    not come, late (``live`` in the table of a check). Findings that only inform are not told, and a severity that falls is
    no event. At the last look nothing waits: what stands then is what the diagnosis says.
    """

    def __init__(self) -> None:
        self._standing: dict[str, Standing] = {}
        self._began: float | None = None
        self._last = -math.inf

    @property
    def open(self) -> dict[str, Severity]:
        """The findings that were told and not closed, with the severity of the last look that saw them."""
        standing = list(self._standing.items())  # another thread may be at a look
        return {name: Severity(one.now) for name, one in standing if one.told}

    @property
    def waiting(self) -> bool:
        """Whether a finding is seen that may be told soon, so that the next look should come soon."""
        return any(
            one.now > one.told and not one.missed and not _late(one.check, Severity(one.now))
            for one in self._standing.values()
        )

    def take(self, diagnosis: Diagnosis, *, final: bool = False) -> list[Event]:
        """What changed since the look before: opened and worsened, roots before what follows from them; then closed."""
        look = _Look.of(diagnosis, final, self._last)
        events = self._anew(look)
        for finding in diagnosis.findings:
            if (finding.severity or 0) >= Severity.WARNING:
                events += self._seen(finding, look)
        for name in [name for name in self._standing if name not in look.loud]:
            events += self._missed(self._standing[name], look)
        self._last = look.step
        return events

    def _anew(self, look: _Look) -> list[Event]:
        """A run that began from scratch again: what its log no longer shows is closed, and what waited waits anew."""
        before, self._began = self._began, look.began
        if look.began == before or look.began is None:
            return []
        ended = [one for one in self._standing.values() if one.told and one.check not in look.loud]
        kept = [one for one in self._standing.values() if one.told and one.check in look.loud]
        self._standing = {one.check: one for one in kept}
        return [_closed(one, look, f"the run began anew at step {look.began:g}") for one in ended]

    def _seen(self, finding: Finding, look: _Look) -> list[Event]:
        assert finding.severity is not None
        if finding.check not in self._standing and len(self._standing) >= MOST:
            return []
        one = self._standing.setdefault(finding.check, Standing(finding.check, look.step))
        one.seen, one.missed, one.title = one.seen + 1, 0, finding.title[:LONGEST]
        one.now, one.since = int(finding.severity), min(one.since, look.step)
        graver = one.now > max(one.told, Severity.WARNING)
        one.graver, one.graver_since = _count(graver, one.graver, one.graver_since, look.step)
        if not one.told:
            told = look.first_told(finding, one)
            if told is None:
                return []
            one.told = int(told.severity or 0)
            if one.told == one.now or BY_NAME[one.check].live == 0:
                one.graver = 0
            return [of_finding("opened", told, look.diagnosis, look.step)]
        if one.graver and look.worse(finding, one):
            one.told, one.graver = one.now, 0
            return [of_finding("worsened", finding, look.diagnosis, look.step)]
        return []

    def _missed(self, one: Standing, look: _Look) -> list[Event]:
        one.missed, one.missed_since = _count(True, one.missed, one.missed_since, look.step)
        one.seen = one.graver = 0
        if not one.told:
            del self._standing[one.check]
            return []
        if not look.lasted(CLOSE, one.missed_since, one.missed):
            return []
        del self._standing[one.check]
        return [_closed(one, look, look.why_closed(one))]

    def state(self) -> dict[str, Any]:
        """All that the future depends on, as plain JSON."""
        last = self._last if math.isfinite(self._last) else None
        return {
            "form": 2,
            "last": last,
            "began": self._began,
            "standing": [asdict(one) for one in self._standing.values()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Course:
        """The course whose ``state`` this is; fields and checks of another version are passed over. Raises ValueError for
        anything that is no state of a course."""
        if not isinstance(state, Mapping) or state.get("form") != 2:
            raise ValueError("no state of a course in version 2")
        rows, began, last = state.get("standing"), state.get("began"), state.get("last")
        if not isinstance(rows, list) or len(rows) > MOST or not all(x is None or _number(x) for x in (began, last)):
            raise ValueError("a damaged state of a course")
        course = cls()
        course._began = None if began is None else float(began)
        course._last = -math.inf if last is None else float(last)
        for one in map(_standing, rows):
            if one.check in BY_NAME:
                course._standing[one.check] = one
        return course


def _standing(row: object) -> Standing:
    """One row of a saved state. Raises ValueError when it could not have been written."""
    if not isinstance(row, Mapping):
        raise ValueError("a damaged state of a course: a finding is no table")
    held = {f.name: row[f.name] for f in fields(Standing) if f.name in row}
    check = held.get("check")
    if not isinstance(check, str) or len(check) > LONGEST or not _number(held.get("since")):
        raise ValueError("a damaged state of a course: a finding without its check and step")
    title = held.pop("title", "")
    if not isinstance(title, str) or len(title) > LONGEST:
        raise ValueError("a damaged state of a course: a title")
    for name, value in held.items():
        if name == "check":
            continue
        whole = not name.endswith("since")
        if not _number(value) or (whole and (value != int(value) or value < 0)):
            raise ValueError(f"a damaged state of a course: {name}")
        held[name] = int(value) if whole else float(value)
    one = Standing(**held, title=title)
    severities = (0, *map(int, Severity))
    if one.now not in severities or one.told not in severities or (one.told and not one.now):
        raise ValueError("a damaged state of a course: a severity")
    return one


@dataclass(frozen=True)
class _Look:
    """One diagnosis, and how long something must stand in it."""

    diagnosis: Diagnosis
    final: bool
    step: float
    began: float | None
    first: float
    """Step at which the last attempt began."""
    planned: float
    loud: frozenset[str]
    before: float
    """Step of the look before."""

    @classmethod
    def of(cls, diagnosis: Diagnosis, final: bool, before: float) -> _Look:
        run = diagnosis.run
        steps = run.steps
        step, first = (float(steps[-1]), float(steps[0])) if len(steps) else (0.0, 0.0)
        loud = frozenset(f.check for f in diagnosis.findings if (f.severity or 0) >= Severity.WARNING)
        began = run.began
        planned = min(float(run.planned_steps or 0) or UNKNOWN, max(TRUSTED, FARTHEST * (step - first)))
        return cls(diagnosis, final, step, began, first if began is None else began, planned, loud, before)

    def lasted(self, wait: tuple[float, float], since: float, looks: int) -> bool:
        """Whether what was so at the last ``looks`` looks, from step ``since`` on, was so for as long as ``wait``. Where
        rows are many steps apart, one look less will do when they lie twice as far apart as is asked for."""
        share, growth = wait
        wanted = max(share * self.planned, (growth - 1.0) * (since - self.first))
        stood = self.step - since
        return self.final or (looks >= LOOKS and stood >= wanted) or (looks == LOOKS - 1 and stood >= 2 * wanted)

    def stood(self, finding: Finding, since: float, looks: int) -> bool:
        """Whether a finding that was as grave at the last ``looks`` looks, from step ``since`` on, was so for long."""
        assert finding.severity is not None
        late = _late(finding.check, finding.severity)
        return self.lasted((late, 1.0 + LATE * late) if late else STAND[finding.severity], since, looks)

    def first_told(self, finding: Finding, one: Standing) -> Finding | None:
        """The finding as it may be told now for the first time; None while it has to wait.

        What was critical for too short a time is told as a warning once it has stood as one. Of what shows at once and has
        only just begun the full weight may be gone at the next look, so that this too is a warning first.
        """
        milder = replace(finding, severity=Severity.WARNING)
        if one.graver and self.stood(finding, one.graver_since, one.graver):
            return finding
        if self.stood(milder, one.since, one.seen):
            return milder
        if BY_NAME[finding.check].live != 0:
            return None
        fresh = finding.onset is not None and finding.onset.high > self.before
        return milder if fresh else finding

    def worse(self, finding: Finding, one: Standing) -> bool:
        """Whether a finding that was told may be told as worse now."""
        at_once = BY_NAME[finding.check].live == 0 and one.graver >= AGAIN
        return at_once or self.stood(finding, one.graver_since, one.graver)

    def why_closed(self, one: Standing) -> str:
        """Why a finding is closed, in words."""
        for finding in self.diagnosis.findings:
            if finding.check == one.check:
                return f"it is no warning any more: {finding.says}"
        if one.missed < 2:
            return "no longer seen at the last look"
        return f"no longer seen at {one.missed} looks, from step {one.missed_since:g} on"


def _late(check: str, severity: Severity) -> float:
    """The share of the plan for which a warning must stand by the table of its check; 0 where that says nothing."""
    return BY_NAME[check].live or 0.0 if severity < Severity.CRITICAL else 0.0


def _count(holds: bool, looks: int, since: float, step: float) -> tuple[int, float]:
    """Looks in a row at which something holds, and the step of the first of them."""
    return (looks + 1, since if looks else step) if holds else (0, step)


def _closed(one: Standing, look: _Look, says: str) -> Event:
    return Event("closed", one.check, Severity(one.told), look.step, one.title, says, run=look.diagnosis.run.name)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2.0**53


class Broken:
    """Says of each row whether a key holds NaN or infinity for the first time, so that a look should not wait.

    At most ``MOST_KEYS`` keys are told, so that a log full of undefined statistics costs a bounded number of looks.
    """

    MOST_KEYS = 8

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def new(self, metrics: Mapping[str, Any]) -> bool:
        """Whether this row is the first with such a value under one of its keys. Never raises."""
        if len(self._keys) >= self.MOST_KEYS:
            return False
        found = {key for key, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)}
        found = {key for key in found if isinstance(key, str) and key not in self._keys}
        self._keys |= set(sorted(found)[: self.MOST_KEYS])
        return bool(found)


def _grid() -> Iterator[tuple[int, bool]]:
    """Rows at which a look may lie, and whether it lies there also while nothing waits."""
    yield FIRST, True
    rows, index = 2 * FIRST, 0
    while True:
        yield rows, index % COARSE == 0
        rows, index = rows + max(FINE_LEAST, round(rows * FINE)), index + 1


def gap(rows: int, waiting: bool) -> int:
    """Rows until the next look, when ``rows`` are logged: the next point of a fixed grid, on which a third of the points
    do while nothing waits.

    The points lie 3 % of the rows so far apart, so that their number grows with the logarithm of the run's length.
    """
    return next(at - rows for at, usual in _grid() if at > rows and (usual or waiting))
