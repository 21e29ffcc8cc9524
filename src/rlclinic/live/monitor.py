"""A diagnosis inside the training loop: rows in, changes out; it never raises into the training and never waits."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from rlclinic import names
from rlclinic.baseline import judged, read_baseline
from rlclinic.diagnose import diagnose
from rlclinic.errors import nearest
from rlclinic.live import options
from rlclinic.live.answered import Answered
from rlclinic.live.course import FIRST, Broken, Course, gap
from rlclinic.live.events import Event, lines
from rlclinic.live.growing import Growing
from rlclinic.live.handed import plain_row, plain_step
from rlclinic.live.keeping import Keeper, Worker, complain, reason, taken_apart
from rlclinic.live.post import asked
from rlclinic.model import Diagnosis, Run, Severity
from rlclinic.readers.axis import STEP_KEYS
from rlclinic.readers.rows import Nonfinite
from rlclinic.report.blocks import KEY, plain

SHARE, FREE = 0.02, 10.0
"""Most of a run's time that looks may cost, and the seconds that they may cost in any case, so that a training of minutes
is looked at as closely as one of days (ours)."""
FAILURES = 5
"""Looks in a row that may fail before the monitor gives up (ours)."""
HUNG = 5.0
"""Seconds without progress after which the start no longer waits for the state on disk (ours)."""
FLUSH = 5.0
"""Most seconds that the end waits for the disk, and for alerts on their way (ours)."""
INBOX = 1_000
"""Most rows that wait while a look is made; more wait for it, at most ``HUNG`` seconds (ours)."""
SAID = 400
"""Longest complaint."""
T = TypeVar("T")


class Monitor:
    """Watches one run from inside the training loop.

    ``framework`` is a name or ``name@version``; ``knobs`` are some settings, ``config`` is the whole configuration;
    ``planned_steps`` is the length of the run where it is known. ``eval_key`` names the held-out score, ``names`` is a file
    of the user's own names, ``nonfinite`` what the trainer does with NaN (as in ``Source``). ``limits`` and ``only`` are
    those of ``diagnose``, ``baseline`` is a file of ``rlclinic baseline learn``.

    ``rollouts`` are files or folders of saved answers; they are read in a thread beside the training when they changed.
    ``state`` is a directory in which rows and what was said of them are kept, also in that thread, so that a run that is
    taken up again goes on and is told nothing twice; with ``fresh`` what lies there is of another run and gets other names.

    ``tell`` is called with the events of a look and its diagnosis, in the thread of the training; without it each event is
    a line on standard error, and goes to the addresses of ``RLCLINIC_ALERT`` where it is set. ``stop_at`` and ``save_at``
    are severities (``"warning"``, ``"critical"``) from which ``should_stop`` and ``should_save`` become true, off by
    default; checks in preview count for neither. Whoever acts on them sets them back.

    Only the process of rank 0 does anything (``rank``, or what the launcher says in the environment; -1 is 0), and none
    does with ``RLCLINIC=0``. Looks are made in the thread that logs, and may take ten seconds and ``share`` of the time so
    far; None is without bound. A program that ends without ``finish`` gets the last look as it ends.

    Raises BadRequest, UnknownName, CannotRead and BadTable for what is asked wrongly here; nothing later ever raises.
    """

    def __init__(
        self,
        *,
        framework: str | None = None,
        knobs: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        planned_steps: int | None = None,
        name: str = "run",
        eval_key: str | None = None,
        names: str | Path | None = None,
        nonfinite: Nonfinite = "kept",
        limits: Mapping[str, Mapping[str, Any]] | None = None,
        only: Iterable[str] | str | None = None,
        baseline: str | Path | None = None,
        rollouts: Sequence[str | Path] | str | Path | None = None,
        state: str | Path | None = None,
        fresh: bool = False,
        stop_at: str | None = None,
        save_at: str | None = None,
        tell: Callable[[Sequence[Event], Diagnosis], None] | None = None,
        rank: int | None = None,
        share: float | None = SHARE,
    ) -> None:
        self.should_stop = self.should_save = False
        self.diagnosis: Diagnosis | None = None
        """That of the last look."""
        self._levels = {"stop": options.level("stop_at", stop_at), "save": options.level("save_at", save_at)}
        self._name = plain(name, KEY)
        self.enabled = not options.off() and (options.told_rank() if rank is None else options.rank(rank)) <= 0
        """False for good in other processes than the first, with ``RLCLINIC=0``, and after looks kept failing."""
        if not self.enabled:
            return
        self._only = None if only is None else (only,) if isinstance(only, str) else tuple(only)
        options.check(framework, limits, self._only, share, tell)
        options.check_kinds(knobs, config, eval_key, nonfinite, planned_steps)
        self._limits = {check: dict(rows) for check, rows in (limits or {}).items()}
        self._learning = None if baseline is None else read_baseline(Path(baseline))
        self._growing = Growing(
            framework=framework,
            knobs=knobs,
            config=config,
            planned_steps=planned_steps,
            name=self._name,
            eval_key=eval_key,
            names=names,
            nonfinite=nonfinite,
        )
        self._tell, self._share, self._spent, self._started = tell, share, 0.0, time.monotonic()
        self._post = asked(state=state) if tell is None else None
        self._process, self._lock, self._voice = os.getpid(), threading.RLock(), _Voice()
        self._busy, self._inbox = False, deque[tuple[Any, Any]]()
        self._course, self._next, self._failed = Course(), FIRST, 0
        self._finished, self._unconfirmed, self._restored, self._broken = -1, False, False, Broken()
        self._keeper: Keeper | None = None
        paths = [rollouts] if isinstance(rollouts, (str, Path)) else list(rollouts or ())
        try:
            worker = Worker(self._voice.say)
            self._worker: Worker | None = worker
        except RuntimeError as broken:  # no more threads
            self._worker = None
            self._voice.say("thread", f"no thread beside the training, so no state and no saved answers: {broken}")
            self._answers = Answered([], {}, lambda work: False, share)
            return
        self._answers = Answered(paths, self._growing.config, worker.put, share)
        if state is not None:
            self._open(Path(state), fresh)
        weakref.finalize(self, _let_go, worker, self._keeper).atexit = False
        atexit.register(_at_exit, weakref.ref(self))
        probe, only = self._growing.fresh(), self._only
        worker.put(lambda: _warm(probe, only))

    def log(self, metrics: Mapping[Any, Any], step: float | None = None) -> list[Event]:
        """Take one row of metrics, under the trainer's own keys or canonical names; what changed, mostly nothing.

        Without ``step`` the row states its own, or rows are counted. Rows of one step may come in several calls.
        """
        if not self._on():
            return []
        try:
            events: list[Event] = []
            full = len(self._inbox) >= INBOX
            if not self._lock.acquire(full, HUNG if full else -1):  # another thread looks, or tells what it saw
                self._put_aside(metrics, step)
            else:
                try:
                    if self._busy:  # called by ``tell`` or by a signal
                        self._put_aside(metrics, step)
                    else:
                        events = self._alone(lambda: self._logged(metrics, step))
                finally:
                    self._lock.release()
            self._sweep()
            return events
        except Exception as broken:
            self._voice.say("log", f"a row could not be taken: {reason(broken)}")
            return []

    def finish(self) -> list[Event]:
        """The last look, after which nothing waits: what is open then is what a diagnosis of the whole log says.

        Of fewer rows than the first look waits for nothing is said. Called again without new rows it does nothing.
        """
        if not self._on():
            return []
        try:
            with self._lock, np.errstate(all="ignore"):
                events = self._end()
            self._sweep()
            return events
        except Exception as broken:
            self._voice.say("finish", f"the last look failed: {reason(broken)}")
            return []

    def checkpoint(self, step: float, path: str | Path = "") -> None:
        """Say that the policy was saved after ``step``, at ``path``: events then say from where to go on."""
        if not self._on():
            return
        try:
            with self._lock:
                self._growing.saved(step, path)
                self._keep()
        except Exception as broken:
            self._voice.say("checkpoint", f"a saved state could not be noted: {reason(broken)}")

    def resume(self, rows: Iterable[Mapping[Any, Any]]) -> None:
        """Take ``rows``, the history of a trainer that goes on from a saved state, instead of all that was logged.

        Nothing is told: what stands in them counts as told where no state says what was.
        """
        if not self._on():
            return
        try:
            with self._lock, np.errstate(all="ignore"):
                growing = self._growing.fresh()
                for step, path in self._growing.checkpoints.items():
                    growing.saved(step, path)
                taken = [one for row in rows if (one := growing.add(row)) is not None]
                was, self._growing, self._unconfirmed = self._growing, growing, False
                same = (was.rows, was.first, was.last) == (growing.rows, growing.first, growing.last)
                if self._keeper is not None and not same:
                    self._keeper.replace(taken)
                if not self._restored and growing.rows >= FIRST:
                    self.diagnosis = self._judge(growing.run())
                    self._course.take(self.diagnosis, final=True)
                self._next = max(FIRST, growing.rows + gap(max(growing.rows, 1), self._course.waiting))
                self._keep()
        except Exception as broken:
            self._voice.say("resume", f"the history before was not taken over: {reason(broken)}")

    def report(self) -> Diagnosis | None:
        """The diagnosis of what is logged so far, made now; None before the first row, and where it fails."""
        if not self._on():
            return None
        try:
            self._sweep()
            with self._lock, np.errstate(all="ignore"):
                found = self._judge(self._growing.run(self._answers.saved)) if self._growing.rows else None
            self._sweep()
            return found
        except Exception as broken:
            self._voice.say("report", f"no report: {reason(broken)}")
            return None

    @property
    def open(self) -> dict[str, Severity]:
        """The findings that were told and not closed, with their severity."""
        return self._course.open if self._on() else {}

    @property
    def rows(self) -> int:
        """Rows logged, with those of the state."""
        return self._growing.rows if self._on() else 0

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def __repr__(self) -> str:
        if not self._on():
            return f"Monitor({self._name!r}, off)"
        found = ", ".join(f"{check} ({severity})" for check, severity in self.open.items())
        return f"Monitor({self._name!r}, {self.rows} rows, open: {found or 'nothing'})"

    def __reduce__(self) -> tuple[Any, ...]:
        """What is copied or sent to another process does not monitor: the run would be told twice."""
        return _silent, (self._name,)

    def _on(self) -> bool:
        """Whether this is the process to monitor in: not a child that it has forked."""
        return self.enabled and os.getpid() == self._process

    def _put_aside(self, metrics: Mapping[Any, Any], step: object) -> None:
        """Keep a row, as it is now, for whoever is at it."""
        if len(self._inbox) >= INBOX:
            self._voice.say("inbox", f"more than {INBOX} rows came during a look; those after them are left out")
            return
        told = None if step is None else plain_step(step)
        self._inbox.append((plain_row(metrics, () if told is None else STEP_KEYS), told))

    def _alone(self, do: Callable[[], T]) -> T:
        self._busy = True
        try:
            return do()
        finally:
            self._busy = False

    def _sweep(self) -> None:
        """Take what was put aside just after whoever was at it had looked for such rows."""
        while self._inbox and self._lock.acquire(blocking=False):
            try:
                if self._busy:
                    return
                if self._alone(self._empty_inbox):
                    self._next = 0
            finally:
                self._lock.release()

    def _logged(self, metrics: Mapping[Any, Any], step: object) -> list[Event]:
        at_once = self._empty_inbox()
        try:
            at_once |= self._take(metrics, step)
        except Exception as broken:
            self._voice.say("row", f"a row could not be read and is left out: {reason(broken)}")
        events: list[Event] = []
        if at_once or (self._growing.rows >= self._next and self._affordable()):
            try:
                with np.errstate(all="ignore"):  # a training may have made numpy raise
                    events = self._look()
                self._failed = 0
            except Exception as broken:
                self._fail(broken)
        if self._empty_inbox():
            self._next = 0
        return events

    def _affordable(self) -> bool:
        return self._share is None or self._spent <= FREE + self._share * (time.monotonic() - self._started)

    def _empty_inbox(self) -> bool:
        """Take what was put aside; whether a look at it should not wait."""
        at_once = False
        while self._inbox:
            with suppress(Exception):
                at_once |= self._take(*self._inbox.popleft())
        return at_once

    def _take(self, metrics: Mapping[Any, Any], step: object) -> bool:
        """Add a row; whether a value in it is not finite for the first time, so that a look should not wait."""
        if self._unconfirmed:  # the first row tells whether the run of the state goes on
            first = self._growing.fresh()
            taken = first.add(metrics, step)
            if taken is None:
                return False
            self._unconfirmed = False
            if first.last is not None and self._growing.first is not None and first.last <= self._growing.first:
                self._begin_anew()
            step, metrics = taken
        taken = self._growing.add(metrics, step)
        if taken is None:
            return False
        if self._keeper is not None:
            self._keeper.row(taken[1], taken[0])
        return self._broken.new(taken[1])

    def _begin_anew(self) -> None:
        """The state on disk is of a run before this one, which starts from scratch."""
        self._growing, self._course, self._next, self._restored = self._growing.fresh(), Course(), FIRST, False
        if self._keeper is not None:
            self._keeper.anew()

    def _look(self, final: bool = False) -> list[Event]:
        began = time.monotonic()
        rows = self._growing.rows
        self._next = rows + gap(rows, True)  # also where this look fails
        self.diagnosis = None  # two of them at a time would take twice the memory
        run = self._growing.run(self._answers.saved)
        self.diagnosis = self._judge(run)
        events = self._course.take(self.diagnosis, final=final) if run.kind == "rl" else []
        self._voice_unknown(run)
        self._next = rows + gap(rows, self._course.waiting)
        self._answers.refresh(run)
        self._keep()
        self._spent += time.monotonic() - began
        worst = max((event.severity for event in events if event.counts), default=0)
        self.should_stop |= 0 < self._levels["stop"] <= worst
        self.should_save |= 0 < self._levels["save"] <= worst
        if events:
            self._say(events, self.diagnosis)
        return events

    def _voice_unknown(self, run: Run) -> None:
        """Tell settings that nobody knows, which are mostly misspelt."""
        unknown = [
            key
            for key, value in self._growing.knobs.items()
            if key not in names.knobs() and not names.read_knobs({key: value}, run.framework, "given")
        ]
        if unknown:
            close = nearest(unknown[0], names.knobs())
            meant = f"; {unknown[0]} may be {' or '.join(close)}" if close else ""
            self._voice.say("knobs", f"knobs that are not known are left out: {', '.join(unknown[:5])}{meant}")
        if (
            run.undecided and run.framework is None and run.kind == "rl"
        ):  # the keys of a loop of one's own can be changed
            may = "; ".join(f"{one.key} ({' or '.join(one.meanings)})" for one in run.undecided[:5])
            self._voice.say("keys", f"not read, since it may mean two things, until it has the name of one: {may}")

    def _say(self, events: list[Event], diagnosis: Diagnosis) -> None:
        try:
            if self._tell is not None:
                self._tell(events, diagnosis)
            else:
                for line in lines(events):
                    complain(line)
                if self._post is not None:
                    self._post.tell(events, diagnosis)
        except Exception as broken:
            self._voice.say("tell", f"what was found could not be told: {reason(broken)}")

    def _judge(self, run: Run) -> Diagnosis:
        if self._learning is not None:
            return judged(run, self._learning, only=self._only, limits=self._limits)
        return diagnose(run, only=self._only, limits=self._limits)

    def _fail(self, broken: Exception) -> None:
        self._failed += 1
        self._next = max(self._next, 2 * self._growing.rows)
        if self._failed < FAILURES:
            self._voice.say("look", f"a look at the run failed and will be tried again: {reason(broken)}")
            return
        self.enabled = False
        self._voice.say("end", f"monitoring stopped after {FAILURES} failed looks, training goes on: {reason(broken)}")
        if self._keeper is not None:
            self._keeper.close()
        self._growing = self._growing.fresh()

    def _end(self) -> list[Event]:
        events: list[Event] = []
        if not self._busy:
            self._empty_inbox()
        if self._growing.rows >= FIRST and self._growing.rows != self._finished and not self._busy:
            self._busy = True
            try:
                with suppress(Exception):  # that they cannot be read is told by the run without them
                    self._answers.read(self._growing.run())
                events = self._look(final=True)
                if self._growing.eval_missed:
                    self._voice.say("eval", "the held-out score that was named never came")
            finally:
                self._busy = False
            self._finished = self._growing.rows
        if self._keeper is not None and self._worker is not None:
            self._keeper.close()
            if self._keeper.on and not self._worker.drain(FLUSH):
                self._keeper.give_up("the disk does not answer, so the end of the run is not in the state")
        close = getattr(self._tell if self._post is None else self._post, "close", None)
        if callable(close):
            close(FLUSH)
        return events

    def _keep(self) -> None:
        if self._keeper is not None:
            saved = [[step, path] for step, path in self._growing.checkpoints.items()]
            said = {"rows": self._growing.rows, "next": self._next, "course": self._course.state(), "saved": saved}
            self._keeper.course(said)

    def _open(self, folder: Path, fresh: bool) -> None:
        """Go on with what is kept in ``folder``, as long as the disk answers."""
        assert self._worker is not None
        keeper, found = Keeper(folder, self._worker, self._voice.say, fresh=fresh), _Found(self._growing)
        self._worker.put(lambda: keeper.open(found.row, found.course, found.forget))
        seen, until = -1, 0.0
        while not keeper.opened.wait(0.05):
            now = time.monotonic()
            if keeper.progress != seen:
                seen, until = keeper.progress, now + HUNG
            elif now > until:
                keeper.give_up(f"{folder} does not answer: no state is kept")
                return
        if not keeper.on:
            return
        self._keeper = keeper
        if found.growing.rows:
            self._growing, self._unconfirmed = found.growing, True
            self._restored = found.said is not None
            self._course, self._next = found.said or (self._course, self._next)


class _Found:
    """What a state on disk holds, as it is read."""

    def __init__(self, like: Growing) -> None:
        self.growing = like.fresh()
        self.said: tuple[Course, int] | None = None

    def row(self, row: Mapping[str, Any]) -> None:
        self.growing.add(*taken_apart(row))

    def course(self, state: Mapping[str, Any]) -> None:
        course, coming = Course.from_state(state.get("course") or {}), state.get("next")
        if type(coming) is not int or not FIRST <= coming < 2**53:
            raise ValueError("no time for the next look")
        self.said = course, min(coming, 2 * self.growing.rows + FIRST)
        for one in state.get("saved") or []:
            if isinstance(one, list) and len(one) == 2:
                self.growing.saved(*one)

    def forget(self) -> None:
        self.growing, self.said = self.growing.fresh(), None


class _Voice:
    """Complaints on standard error, each kind of them once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, kind: str, text: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            complain(plain(text, SAID))


def _silent(name: str) -> Monitor:
    return Monitor(name=name, rank=1)


def _at_exit(monitor: weakref.ref[Monitor]) -> None:
    """The last look of a program that ends without ``finish``."""
    found = monitor()
    if found is not None and found._on() and found._lock.acquire(timeout=HUNG):  # a thread may hang in ``tell``
        try:
            found.finish()
        finally:
            found._lock.release()


def _let_go(worker: Worker, keeper: Keeper | None) -> None:
    """The monitor is no more: write what waits, free the directory, end the thread."""
    if keeper is not None:
        keeper.close()
    worker.stop()


def _warm(probe: Growing, only: tuple[str, ...] | None) -> None:
    """Load the tables that a first look needs, while the training still loads its model."""
    with suppress(Exception):
        for step in range(FIRST):
            probe.add({"loss": 0.1 * step, "reward": 0.1 * step, "grad_norm": 1.0 + step}, step)
        diagnose(probe.run(), only=only)
