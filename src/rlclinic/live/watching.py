"""The loop that watches one run: asks whether something was written, tells what changed, draws the page of a terminal."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TextIO, TypeAlias

from rlclinic.checks.premature_stop import over
from rlclinic.live.events import Event
from rlclinic.live.following import GRACE, Follower, Look
from rlclinic.model import Diagnosis
from rlclinic.report.blocks import plain
from rlclinic.report.live_page import Watched, stretch
from rlclinic.report.live_page import live_page as page

Tell: TypeAlias = Callable[[Sequence[Event], Diagnosis], None]

TROUBLE = 3
"""Looks in a row that must fail before it is told that the log cannot be read (ours: one torn write heals itself)."""
COARSE = 5.0
"""Seconds to which the age of the last row is shown (ours)."""
_KEPT = 20


class Watch:
    """Carries on one ``Follower``; ``turn()`` is one round. ``tell`` gets the events of a look, ``say`` what happened to the
    log, in words of one line, and ``warn`` (``say`` if none is given) what keeps it from being followed. ``alert``, which
    knows what it was told before, also gets what a process that died may not have told."""

    def __init__(
        self,
        follower: Follower,
        tell: Tell = lambda *_: None,
        say: Callable[[str], None] = lambda _: None,
        alert: Tell = lambda *_: None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.follower = follower
        self._tell, self._say, self._alert = tell, say, alert
        self._warn = say if warn is None else warn
        self._closed: deque[str] = deque(maxlen=_KEPT)
        self._said: deque[str] = deque(maxlen=_KEPT)
        self._waits = self._troubled = self._unkept = False
        self._since = time.monotonic()
        self._shape: tuple[object, ...] = ()
        self._page = ""

    def turn(self) -> Look | None:
        """Look if a look is due, and tell what it shows. Raises what only the user can settle (``Follower.asks``)."""
        look = self.follower.poll()
        if self.follower.asks is not None:
            raise self.follower.asks
        if look is not None:
            self._take(look)
        self._about_reading()
        return look

    def once(self) -> Look:
        """One look now, and what it shows told. Raises what ``Follower.look`` raises."""
        look = self.follower.look()
        self._take(look)
        if (silent := self.follower.stalled()) is not None:
            self._take(replace(look, events=(silent,), said=(), left=()))
        self._about_reading()
        return look

    def done(self, until_done: bool, stop_after: float | None) -> bool:
        """Whether there is reason to leave: the log says that the run has ended, or is silent for ``stop_after`` seconds.

        The last look has then been taken.
        """
        last = self.follower.last
        if until_done and last is not None and last.ended:
            certain = over(last.run) and not last.run.ending  # an error may be caught, a plan be exceeded
            if not certain and (self.follower.age() or 0.0) < GRACE:
                return False
            self.finish()
            return True
        if stop_after is None:
            return False
        age, since = self.follower.quiet(), time.monotonic() - self._since
        silent = since if age is None else min(age, since)
        if silent < stop_after:
            return False
        self.finish()
        return True

    def rest(self, parts: int = 1) -> None:
        """Sleep until the next round, or a part of that time."""
        time.sleep(self.follower.wait() / parts)

    def finish(self) -> Look | None:
        """The last look, after which nothing waits; None where there was never anything to read."""
        try:
            look = self.follower.look(final=True)
        except Exception:  # the last words are those of the look before
            return self.follower.last
        self._take(look)
        return look

    def _take(self, look: Look) -> None:
        for one in look.said:
            self._remark(one)
        events = look.events
        self._closed += [f"{event.title.rstrip('.')} (step {event.step:g}: {event.says})" for event in events
                         if event.kind == "closed"]  # fmt: skip
        if events:
            self._tell(events, look.diagnosis)
        else:
            self._say(f"looked at {look.rows} rows in {self.follower.cost:.1f} s: nothing to tell")
        if events or look.left:
            self._alert([*look.left, *events], look.diagnosis)
            self.follower.told()

    def _remark(self, words: str) -> None:
        self._said.append(words)
        self._say(words)

    def _about_reading(self) -> None:
        if self.follower.unsaved and not self._unkept:
            self._unkept = True
            self._said.append(
                words := f"what was told cannot be kept, so a restart may tell it again: {self.follower.unsaved}"
            )
            self._warn(words)
        missing = self.follower.missing()
        if self.follower.rows == 0 and self.follower.failures and not self._waits:
            self._waits = True
            self._warn(
                f"waiting: {', '.join(missing)} is not there yet" if missing else f"waiting: {self.follower.problem}"
            )
        if self.follower.rows and self.follower.failures >= TROUBLE and not self._troubled:
            self._troubled = True
            self._warn(f"cannot be read now: {self.follower.problem}; what was known stays")
        if self._troubled and not self.follower.failures:
            self._troubled = False
            self._warn("can be read again")

    def page(self, width: int, height: int, color: bool = False, ascii: bool = False) -> str:
        """What a terminal of this size shows now; drawn only when something on it has changed."""
        follower, last = self.follower, self.follower.last
        age = follower.age()
        age = age if age is None or age < COARSE else age // COARSE * COARSE  # drawn anew every few seconds only
        shape = (width, height, color, ascii, id(last), stretch(age), follower.state, follower.problem, len(self._said))
        if shape == self._shape:
            return self._page
        self._shape = shape
        missing = follower.missing()
        planned = None if last is None else last.run.planned_steps
        shown = Watched(
            diagnosis=None if last is None else last.diagnosis,
            told=follower.open,
            closed=tuple(self._closed),
            said=tuple(self._said),
            problem=follower.problem,
            state=follower.state,
            waiting_for=", ".join(missing) or follower.problem,
            reading="" if last is not None or follower.failures else ", ".join(follower.paths),
            rows=follower.rows,
            speed=follower.pace.speed(),
            remaining=follower.pace.remaining(planned),
            age=age,
            ended="" if last is None else last.ended,
        )
        self._page = page(shown, width, height, color, ascii)
        return self._page


def line(event: Event, at: float) -> str:
    """One event as a line of a log, ``at`` that second of the epoch."""
    return f"{_when(at)} {event}"


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(at))


class JsonLines:
    """Tells events as JSON, one a line."""

    def __init__(self, stream: TextIO | None) -> None:
        self._lines = Lines(stream)

    @property
    def broken(self) -> bool:
        """Whether the place takes no more."""
        return self._lines.broken

    @property
    def why(self) -> str:
        """Why it does not, where it is not that its reader has gone."""
        return self._lines.why

    def tell(self, events: Sequence[Event], diagnosis: Diagnosis) -> None:
        """Write the events."""
        self._lines.write(json.dumps(event.as_json()) for event in events)

    def say(self, words: str) -> None:
        """Nothing: what is no event has no place here."""


class Lines:
    """Tells events one line each on ``stream``; a place that takes no more (a closed pipe) is told nothing further."""

    def __init__(self, stream: TextIO | None, clock: Callable[[], float] = time.time) -> None:
        self._stream, self._clock = stream, clock
        self.broken = stream is None
        """Whether the place takes no more."""
        self.why = ""
        """Why it does not, where it is not that its reader has gone."""

    def tell(self, events: Sequence[Event], diagnosis: Diagnosis) -> None:
        """Write the events, what is to be done only beside the root that is among them."""
        loud = {event.check for event in events if event.kind != "closed"}
        told = [replace(event, change="", go_on="") if event.root in loud else event for event in events]
        self.write(line(event, self._clock()) for event in told)

    def say(self, words: str) -> None:
        """Write what is no event."""
        self.write([f"{_when(self._clock())} {plain(words, 400)}"])

    def write(self, lines: Iterable[str]) -> None:
        """Write lines that hold no line breaks of their own."""
        if self.broken or self._stream is None:
            return
        try:
            encoding = self._stream.encoding or "ascii"
            for one in lines:
                self._stream.write(one.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError) as problem:
            self.broken = True
            if not isinstance(problem, BrokenPipeError):
                self.why = getattr(problem, "strerror", None) or str(problem)
