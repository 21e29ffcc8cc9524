"""One run followed through its files: read again when they change, diagnosed whole, and what changed told once."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rlclinic.baseline import Learning, judged
from rlclinic.checks import BY_NAME
from rlclinic.checks.premature_stop import over
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest, CannotRead, RlclinicError, UnknownName
from rlclinic.live import keeping, rotated
from rlclinic.live.course import FIRST, Course, gap
from rlclinic.live.events import Event, of_finding
from rlclinic.live.joining import Beginning, beginning, continued, kinship, recounted
from rlclinic.live.pace import Pace
from rlclinic.live.parts import Source, exists, is_address, plain
from rlclinic.model import SHORT, Diagnosis, Run, Severity

EVERY = 10.0
"""Seconds between looks at least (ours: a step of RL takes longer)."""
SHARE = 0.1
"""Most of the time that may be spent on looks (ours)."""
AFAR = 60.0
"""Seconds between looks at an address at least (ours)."""
GRACE = 60.0
"""Seconds after which an error at the end of a log is taken for the end of the run (ours: some are caught)."""
POLL = 1.0
"""Seconds between two questions whether something was written (ours)."""
LOOKED = (0.5, 0.7, 0.85, 0.93, 0.97)
"""Shares of the rows at which a run that is under way is looked at for what stands, and since when (ours)."""
STALLED = "no_new_rows"
"""The name under which a silent log is told; it is no check."""
SCHEMA = "rlclinic.watch/1"
State: TypeAlias = Literal["waiting", "live", "stalled", "ended"]


@dataclass(frozen=True, eq=False)
class Look:
    """One look at the run: all of it as read, its diagnosis, what changed since the look before, and what happened to the
    log itself, in words."""

    run: Run
    diagnosis: Diagnosis
    events: tuple[Event, ...]
    said: tuple[str, ...] = ()
    ended: str = ""
    """How the log says that the run has ended; empty while it goes on."""
    rows: int = 0
    left: tuple[Event, ...] = ()
    """What an earlier process may not have told before it died: for those only who know what they were told."""


class Follower:
    """Follows the run in ``paths``, which are what ``readers.read`` takes (with ``options`` as there).

    ``poll()`` may be called often: it looks only when something was written, ``every`` seconds apart or more and never more
    than ``SHARE`` of the time, and never raises. ``look()`` reads and diagnoses everything at once. With ``state``, a file,
    what was told survives the process. ``clock`` gives seconds of the epoch, ``steady`` those of a clock that
    nobody sets and that stands while the machine sleeps. Prints nothing; for one thread at a time.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        options: Mapping[str, Any] | None = None,
        limits: Mapping[str, Mapping[str, Any]] | None = None,
        baseline: Learning | None = None,
        checkpoints: Sequence[float] = (),
        every: float = EVERY,
        state: Path | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
    ) -> None:
        if not paths:
            raise CannotRead("a log or a directory to watch", "none", hint="rlclinic watch LOGFILE")
        self.paths = tuple(map(str, paths))
        self._source = Source(self.paths, options or {})
        self._limits, self._baseline, self._checkpoints = limits, baseline, tuple(checkpoints)
        self._clock, self._every = clock, every
        self._steady = steady if steady is not None else time.monotonic if clock is time.time else clock
        self._at: tuple[float, float] | None = None
        """Both clocks when it was last asked for a look."""
        self._awake = -inf
        """When the machine last woke up, or its clock was set: silence before that says nothing."""
        self._looked = -inf
        """When the last look was over."""
        self._pause = self._asking = 0.0
        """Seconds for which none is taken after it, and that a question whether something was written takes."""
        self.problem = ""
        """Why the last look could not be taken; what was known before stays. Empty when it could."""
        self.asks: RlclinicError | None = None
        """What only the user can settle, where that is why nothing could ever be read: several runs, an unknown name."""
        self.failures = 0
        """Looks in a row that could not be taken."""
        self._mark: rotated.Mark | None = None
        self._size = self._rows = 0
        """Bytes of the log at the last look, and the steps in it at that of an earlier process."""
        self._raw: Run | None = None
        """What was read last, without what is only known from before."""
        self._base: Run | None = None
        """What was known when the log lost its beginning."""
        self._known: Run | None = None
        self.last: Look | None = None
        self.cost = 0.0
        """Seconds that the last look took."""
        self.course = Course()
        self.pace = Pace()
        self._next = FIRST
        self._first = True
        """Whether no row of this run was ever looked at, not by an earlier process either."""
        self._begin: Beginning | None = None
        self._mute: set[str] = set()
        """Findings that were open at an earlier step of a run first looked at later, and are gone from the diagnosis."""
        self._stalled = False
        self._left: list[Event] = []
        """What an earlier process did not live to tell."""
        self._untold: list[Event] = []
        self._ended = self._outlived = ""
        """How the log says that the run has ended, and such an end after which rows came."""
        self._state = state
        self.unsaved = ""
        """Why the state could not be kept; empty when it could."""
        if state is not None:
            self._restore(read_state(state))

    # What is there

    def changed(self) -> bool:
        """Whether anything was written since the last look; always for an address, which cannot be asked cheaply."""
        if self._mark is None or any(map(is_address, self.paths)):
            return True
        began = time.perf_counter()
        changed = rotated.mark(self.paths) != self._mark
        self._asking = time.perf_counter() - began
        return changed

    def missing(self) -> list[str]:
        """The paths that are not there."""
        return [path for path in self.paths if not is_address(path) and path != "-" and not exists(path)]

    def age(self) -> float | None:
        """Seconds since the newest row was written; None where that is not known."""
        return None if self.pace.last is None else max(0.0, self._clock() - self.pace.last)

    def quiet(self) -> float | None:
        """Seconds of ``age`` in which rows could have come: not those that the machine slept, or that a clock was set on."""
        age = self.age()
        return None if age is None else min(age, max(0.0, self._clock() - self._awake))

    @property
    def open(self) -> Mapping[str, Severity]:
        """The findings that were told and not closed, with the severity that was told."""
        return {name: one for name, one in self.course.open.items() if name not in self._mute}

    @property
    def state(self) -> State:
        """Whether the log is still waited for, grows, has not grown for too long, or has ended."""
        if self.last is None or not self.last.rows:
            return "waiting"
        return "ended" if self.last.ended else "stalled" if self._stalled else "live"

    @property
    def step(self) -> float | None:
        """The last step logged; None before the first."""
        return None if self.last is None or not self.last.rows else _last(self.last.run)

    @property
    def rows(self) -> int:
        """Steps logged."""
        return 0 if self.last is None else self.last.rows

    @property
    def last_row(self) -> float | None:
        """When the newest row was written, in seconds of the epoch; None before the first look."""
        return self.pace.last

    def wait(self) -> float:
        """Seconds after which ``poll`` should be called again."""
        return max(POLL, 20.0 * self._asking)  # a large folder on a slow server is asked less often

    # Looks

    def poll(self) -> Look | None:
        """A look if one is due, a silent log to be told, or None. Never raises: ``problem`` says why a look failed."""
        now, steady = self._clock(), self._steady()
        if self._at is not None and abs(now - self._at[0] - (steady - self._at[1])) > GRACE:
            self._awake = now
        self._at = now, steady
        if 0.0 <= now - self._looked < self._pause or not self.changed():  # a clock set back must not stop us
            if (silent := self.stalled()) is not None and self.last is not None:
                return replace(self.last, events=(silent,), said=(), left=())
            return None
        try:
            found = self.look()
            self.problem, self.failures = "", 0
        except Exception as broken:
            found, self.failures = None, self.failures + 1
            settled = isinstance(broken, UnknownName) or (isinstance(broken, CannotRead) and broken.choices)
            self.asks = broken if settled and self.last is None and isinstance(broken, RlclinicError) else None
            words = f"{broken.found}" if isinstance(broken, RlclinicError) else f"{type(broken).__name__}: {broken}"
            self.problem = words[:600]
            self._mark = None  # a permission that comes back changes no file
        least = max(self._every, AFAR) if any(map(is_address, self.paths)) else self._every
        self._looked, self._pause = self._clock(), max(least, self.cost * (1.0 / SHARE - 1.0))
        return found

    def look(self, *, final: bool = False) -> Look:
        """Read everything, diagnose it, and say what changed.

        The course of findings is only carried on when enough rows are new (``course.gap``), so that looking often is not
        crying often; ``final`` carries it on in any case and lets nothing wait. Raises CannotRead (and what else ``read``
        raises) where there is nothing to read yet; everything is then as before and may be tried again.
        """
        began = time.perf_counter()
        seen = rotated.mark(self.paths)
        try:
            found = self._source.read()
        except RlclinicError:
            raise
        except Exception as broken:  # a file that is cut while it is read breaks readers in ways that no list holds
            raise CannotRead(
                "a log that can be read", f"{self.paths[0]}: {type(broken).__name__}: {broken}"[:300]
            ) from broken
        finally:
            self._mark, self.cost = seen, time.perf_counter() - began
        size = _bytes(self.paths, seen)
        run, said, events = self._joined(found, size < self._size)
        self._size = size
        left, self._left = self._left, []
        run = run.told(checkpoints=self._checkpoints) if self._checkpoints else run
        rows = len(run.steps)
        diagnosis = self._diagnosed(run)
        ended = _ended(run)
        if ended and ended == self._ended and self.last is not None and rows > self.last.rows:
            self._outlived = ended
        ended = "" if ended == self._outlived else ended
        final = final or (bool(ended) and not run.ending and ended != self._ended)
        if self.pace.seen(rotated.written(seen) or self._clock(), rows, _last(run), self._clock()) and self._stalled:
            self._stalled = False
            events.append(self._about_rows("closed", diagnosis, "new rows are being written again"))
        self._next = min(self._next, rows + gap(max(rows, 1), False))
        if self._first and rows > SHORT and not final:
            events += self._caught_up(diagnosis)
            self._next = rows + gap(rows, self.course.waiting)
        elif final or rows >= self._next:
            events += self._audible(self.course.take(diagnosis, final=final))
            self._next = rows + gap(rows, self.course.waiting)
        self._ended, self._first = ended, self._first and not rows
        self._untold = [*left, *events]
        self.last = Look(run, diagnosis, tuple(events), tuple(said), ended, rows, tuple(left))
        self.save()
        self.cost = time.perf_counter() - began
        return self.last

    def told(self) -> None:
        """The events of the last look have been handed on; those that may not have been when a process died are ``left``
        to the next."""
        if self._untold:
            self._untold = []
            self.save()

    def stalled(self) -> Event | None:
        """That no new row comes: for many times the usual while, or after an error at the end of the log. Said once; a look
        that finds new rows says that they come again."""
        age = self.age()
        if self._stalled or self.last is None or age is None:
            return None
        error = self.last.run.ending
        if (self._ended and not error) or (self.quiet() or 0.0) < (GRACE if error else self.pace.patience()):
            return None
        formats = {one.format for one in self.last.run.sources if one.role == "metrics"}
        if formats == {"trainer_state"} and self.pace.interval() is None:
            return None  # written at each save, which may be hours apart
        self._stalled = True
        usual = self.pace.interval()
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.pace.last))
        often = f"; before, one came every {_while(usual)}" if usual is not None else ""
        says = f"no new row since {when} ({_while(age)} ago{often}): "
        says += self._ended if error else "the run has stopped without a word, or hangs"
        event = self._about_rows("opened", self.last.diagnosis, says, Severity.CRITICAL if error else Severity.WARNING)
        self._untold = [event]
        self.save()
        return event

    # Parts of a look

    def _caught_up(self, diagnosis: Diagnosis) -> list[Event]:
        """What earlier looks would have told of a run that is first looked at when it is under way, and is still open."""
        run = diagnosis.run
        for share in LOOKED:
            self.course.take(self._diagnosed(run.upto(float(run.steps[int(share * len(run.steps)) - 1]))))
        self.course.take(diagnosis)
        now = [f for f in diagnosis.findings if f.check in self.course.open and (f.severity or 0) >= Severity.WARNING]
        self._mute = set(self.course.open) - {f.check for f in now}
        return [of_finding("opened", f, diagnosis, _last(run)) for f in now]

    def _audible(self, events: Sequence[Event]) -> list[Event]:
        """``events`` without the end of what nobody was told of; when it comes back, it is told."""
        heard: list[Event] = []
        for event in events:
            if event.check in self._mute:
                self._mute.discard(event.check)
                if event.kind == "closed":
                    continue
                event = replace(event, kind="opened")
            heard.append(event)
        return heard

    def _joined(self, now: Run, shorter: bool) -> tuple[Run, list[str], list[Event]]:
        """``now`` with what the log has lost of it, what happened to the log, and events that follow from that.

        A log that became ``shorter``, and begins as before, was written from scratch: a second run of the same seed.
        """
        said: list[str] = []
        events: list[Event] = []
        kin = "same" if self._begin is None else kinship(self._begin, now)
        rows = self.rows if self.last is not None else self._rows
        if kin == "same" and shorter and 0 < len(now.steps) < rows:
            kin = "another"
        if self._known is not None and kin == "another" and (moved := recounted(self._known, now)) is not None:
            now, kin = moved, "goes on"
        if kin == "another":
            if self.course.open or rows >= FIRST:
                said.append(f"the log starts over at step {_last(now, 0):g}: followed as a new run")
            events = [self._closed(name, severity, now) for name, severity in self.open.items()]
            self._mute = set()
            self.course, self.pace, self._next, self._base = Course(), Pace(), FIRST, None
            self._begin = beginning(now)
        elif kin == "goes on":
            if self._known is not None and (self._raw is None or now.steps[0] > self._raw.steps[0]):
                self._base = self._known
                said.append(f"the log was cut and goes on at step {now.steps[0]:g}; what was read before is kept")
            elif self._known is None:
                said.append(f"the log has lost its rows before step {now.steps[0]:g} while nobody watched")
        elif not len(now.steps) and self._known is not None and len(self._known.steps):
            return continued(self._known, now), said, events  # cut a moment ago, and only words since
        else:
            # What was lost is there again (a rotated part was found), or never was lost.
            self._base = None
            if self._begin is None or not self._begin.whole or (len(now.steps) and now.steps[0] != self._begin.first):
                self._begin = beginning(now)
        self._raw = now
        whole = now if self._base is None else continued(self._base, now)
        self._known = whole
        return whole, said, events

    def _closed(self, name: str, severity: Severity, now: Run) -> Event:
        says = "the log starts over with a new run"
        title = BY_NAME[name].title if name in BY_NAME else name
        return Event("closed", name, severity, _last(now), title, says, run=now.name)

    def _about_rows(self, kind: Any, diagnosis: Diagnosis, says: str, severity: Severity = Severity.WARNING) -> Event:
        step, run = _last(diagnosis.run), diagnosis.run.name
        return Event(kind, STALLED, severity, step, "No new rows in the log", says, run=run)

    def _diagnosed(self, run: Run) -> Diagnosis:
        if self._baseline is None:
            return diagnose(run, limits=self._limits)
        return judged(run, self._baseline, limits=self._limits)

    # State

    def save(self) -> None:
        """Keep what the next process must know; a state that cannot be written (``unsaved``) stops nothing."""
        if self._state is None:
            return
        state = {
            "paths": [os.path.abspath(path) if not is_address(path) else path for path in self.paths],
            "course": self.course.state(),
            "next": self._next,
            "size": self._size,
            "rows": self.rows if self.last is not None else self._rows,
            "begin": None if self._begin is None else self._begin.as_json(),
            "pace": self.pace.as_json(),
            "mute": sorted(self._mute),
            "stalled": self._stalled,
            "ended": self._ended,
            "untold": [event.as_json() for event in (*self._left, *self._untold)],
        }
        try:
            self._state.parent.mkdir(parents=True, exist_ok=True)
            keeping.save(self._state, state, SCHEMA)
            self.unsaved = ""
        except OSError as problem:
            self.unsaved = f"{self._state}: {problem.strerror or problem}"

    def _restore(self, kept: Mapping[str, Any] | None) -> None:
        """Go on from a state; a damaged one is as good as none."""
        if kept is None:
            return
        try:
            course = Course.from_state(kept["course"])
            begin = None if kept["begin"] is None else Beginning.from_json(kept["begin"])
            pace, untold = Pace.from_json(kept["pace"]), [Event.from_json(one) for one in kept["untold"]]
            mute = set(map(str, kept["mute"]))
            size, seen = int(kept["size"]), int(kept["rows"])
            after, stalled, ended = int(kept["next"]), bool(kept["stalled"]), str(kept["ended"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return
        self.course, self._begin, self.pace, self._left = course, begin, pace, untold
        self._next, self._stalled, self._ended, self._mute = after, stalled, ended, mute
        self._first, self._size, self._rows = begin is None, size, seen


# ---------------------------------------------------------------------------------------------------- state on disk


def default_state(paths: Sequence[str | Path]) -> Path:
    """Where the state of watching ``paths`` is kept where nothing else is asked for: in the user's own directory. Raises
    BadRequest for a user who has none."""
    around = os.environ.get("XDG_STATE_HOME", "")
    try:
        home = Path(around) if os.path.isabs(around) else Path("~/.local/state").expanduser()
    except RuntimeError:  # neither HOME nor an entry for this user, as in some containers
        found = "no home directory, where it would be kept"
        raise BadRequest("a file for what was told", found, hint="--state FILE") from None
    names = [str(path) if is_address(str(path)) else os.path.abspath(path) for path in paths]
    digest = hashlib.sha256("\0".join(sorted(names)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return home / "rlclinic" / f"watch-{digest}.json"


def read_state(path: Path) -> Mapping[str, Any] | None:
    """The state kept in ``path``; None where there is none, or nothing that is one."""
    try:
        return keeping.load(path, SCHEMA)
    except (OSError, ValueError):
        return None


# ---------------------------------------------------------------------------------------------------- words


def _ended(run: Run) -> str:
    if run.ending:
        return f"the log ends in an error: {run.ending}"
    if over(run):
        total = run.get("run.summary")
        went_on = total is not None and len(total) and float(total.steps[-1]) < _last(run)
        return "" if went_on else "the trainer has written its summary: the run is done"
    if run.planned_steps and _last(run) >= run.planned_steps:
        return f"the last of the {run.planned_steps} planned steps is logged"
    return ""


def _last(run: Run, at: int = -1) -> float:
    return float(run.steps[at]) if len(run.steps) else 0.0


def _bytes(paths: Sequence[str], seen: rotated.Mark) -> int:
    """The size of a log that is only ever appended to; 0 for what is written anew at each save, and for folders."""
    appended = len(paths) == 1 and plain(Path(paths[0])) and not paths[0].endswith(".json")
    return next((size for name, _, size, _ in seen if name == paths[0]), 0) if appended else 0


def _while(seconds: float) -> str:
    """A stretch of time as people say it."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
