"""Alerts on their way: each channel has a queue and a thread of its own, so that telling takes no time and never fails."""

from __future__ import annotations

import _thread
import atexit
import json
import os
import queue
import random
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from rlclinic.errors import BadRequest, RlclinicError
from rlclinic.live.alerts import SECONDS, VARIABLE, Channel, NotSent, addresses, channel, deliver
from rlclinic.live.events import Event
from rlclinic.live.keeping import complain
from rlclinic.live.message import Item, item_of, kept, message, replaced, taken
from rlclinic.model import Diagnosis
from rlclinic.report.blocks import plain

SCHEMA = "rlclinic.alerts/1"
FILE = "alerts.json"
LEVEL = "RLCLINIC_ALERT_AT"
MOST = 100
"""Most findings that wait for one channel (ours: there are fewer checks)."""
BURST, EVERY = 6, 300.0
"""Messages that may go out at once, and seconds until there is room for one more: at most 18 in any hour (ours). What
happens meanwhile goes out together."""
FIRST_WAIT, LONGEST_WAIT = 2.0, 300.0
"""Seconds before a second try, doubled each time up to the longest, and made uneven by a half (ours)."""
LONGEST_WISH = 3_600.0
"""Most seconds waited because a server asks for them (ours)."""
GIVE_UP = 12 * 3_600.0
"""Seconds after which an alert that nobody takes is given up (ours: a night)."""
KNOWN = 1_000
"""Ids of sent events that are remembered for each channel (ours)."""
IDLE = 60.0
"""Seconds after which a thread with nothing to do ends (ours)."""
AT_EXIT = 2.0
"""Seconds that the end of a program waits for what is not sent (ours)."""
STATE_BYTES = 4 << 20


class Post:
    """Tells every change to every channel once; ``tell`` returns at once and never raises.

    Each channel hears of a look in one message. What cannot be sent is tried again with growing pauses, and newer changes
    of a finding take the place of older ones that wait. ``state`` is a directory in which what was not sent is kept, and
    sent after a restart; what was sent is known there by its id and not sent again. An answer that got lost makes an
    alert arrive twice: receivers of JSON can tell by its ``id``. Raises BadRequest for an address that is none.
    """

    def __init__(self, channels: Iterable[Channel | str] | str, state: str | Path | None = None) -> None:
        channels = [channels] if isinstance(channels, str) else channels
        found = [one if isinstance(one, Channel) else channel(one) for one in channels]
        self._kept = _Kept(None if state is None or not found else Path(state) / FILE)
        self._lanes: list[_Lane] = []
        for one in found:
            count = sum(lane.channel.shown == one.shown and lane.channel.way == one.way for lane in self._lanes)
            self._lanes.append(_Lane(one, f"{one.way} {one.shown} {count}", self._kept))
        self._broken = False
        for lane in self._lanes:
            lane.resume()

    def __repr__(self) -> str:
        return f"Post({', '.join(lane.channel.shown for lane in self._lanes)})"

    def __reduce__(self) -> tuple[type[Post], tuple[list[Channel]]]:
        """A copy, as trainers make them of their callbacks, has the same channels, no state and nothing to send."""
        return Post, ([lane.channel for lane in self._lanes],)

    def __bool__(self) -> bool:
        """Whether there is anybody to tell."""
        return bool(self._lanes)

    def tell(self, events: Sequence[Event], diagnosis: Diagnosis | None) -> None:
        """Queue what changed at one look."""
        try:
            if events and self._lanes:
                now = time.time()
                items = [item_of(event, diagnosis, now) for event in events]
                for lane in self._lanes:
                    lane.put(items)
        except Exception as broken:
            if not self._broken:
                self._broken = True
                _say(f"an alert was lost, please report it: {type(broken).__name__}: {broken}")

    __call__ = tell

    def close(self, seconds: float = 5.0) -> bool:
        """Send what waits, for at most ``seconds``; whether nothing waits any more. It may be told again afterwards."""
        try:
            return _flushed(self._lanes, time.monotonic() + max(seconds, 0.0))
        except Exception:
            return False


def alerts(*to: str, at: str = "warning", closed: bool = True, state: str | Path | None = None) -> Post:
    """Where a monitor tells what it finds: ``Monitor(tell=rlclinic.alerts("https://...", "cmd:..."))``.

    Addresses as for ``channel``; without any, those of ``RLCLINIC_ALERT``. ``at`` is the least severity that is told.
    Raises BadRequest for an address that is none, and where there is none at all.
    """
    given = addresses(to)
    if not given:
        raise BadRequest(
            "an address for alerts", f"none, and {VARIABLE} is not set", hint="rlclinic alerts test ADDRESS"
        )
    return Post([channel(one, at=at, closed=closed) for one in given], state)


def asked(environ: Mapping[str, str] | None = None, state: str | Path | None = None) -> Post | None:
    """Alerts for where no code can name them: to the addresses of ``RLCLINIC_ALERT``, from the severity of
    ``RLCLINIC_ALERT_AT`` on (``warning``). None where nothing is asked; never raises, an address that is none is told on
    standard error."""
    environ = os.environ if environ is None else environ
    try:
        at = environ.get(LEVEL) or "warning"
        channels = [one for text in addresses((), environ) if (one := _channel(text, at)) is not None]
        return Post(channels, state) if channels else None
    except Exception as problem:
        _say(f"no alerts: {problem.message() if isinstance(problem, RlclinicError) else type(problem).__name__}")
        return None


def _channel(text: str, at: str) -> Channel | None:
    try:
        return channel(text, at=at)
    except RlclinicError as problem:
        _say(f"no alerts to one address of {VARIABLE}: {problem.message()}")
        return None


class _Lane:
    """One channel with what waits for it. ``put``, ``hurry`` and ``left`` are for the user's thread; all else happens in a
    thread of its own, which ends when nothing has come for a while."""

    def __init__(self, to: Channel, key: str, held: _Kept) -> None:
        self.channel, self.key, self._kept = to, key, held
        self._sent: dict[str, None] = dict.fromkeys(held.sent(key))
        self._told: set[tuple[str, str]] = set()
        self._said: set[str] = set()
        self._gone = False
        self._empty()
        _LANES.add(self)

    def _empty(self) -> None:
        self._inbox: queue.SimpleQueue[list[Item] | _Hurry] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """Held while it is decided whether the thread runs, never while anything is done."""
        self._running = False
        self._waiting: dict[tuple[str, str], Item] = {}
        self._hurry: _Hurry | None = None
        self._room = self._next = self._wished = 0.0
        self._failed = 0

    def resume(self) -> None:
        """Queue what an earlier process could not send."""
        now = time.time()
        if self.channel.way == "command":  # what it would act upon is not this process
            return
        if old := [item for item in self._kept.waiting(self.key) if now - item.born < GIVE_UP]:
            self.put(old[-MOST:])

    def put(self, items: list[Item]) -> None:
        if self._inbox.qsize() < MOST:
            self._inbox.put(items)
            self._run()
        else:
            self._once("stuck", "nothing is taken out of its queue, so alerts are dropped")

    def hurry(self, until: float) -> _Hurry | None:
        """Ask that what waits be tried now; None where nothing does."""
        wish = _Hurry(until)
        with self._lock:
            if not (self._running or self._waiting) and self._inbox.empty():
                return None
            self._inbox.put(wish)
        if not self._run():
            self._work(inline=True)
        return wish

    def left(self, answered: bool) -> int:
        """How many findings wait, which is said where nobody will see to them."""
        left = max(len(self._waiting), 0 if answered else 1)
        if left and self.channel.way == "command":
            self._once("left", "has not ended yet")
        elif left and not self._gone:
            where = ", and are kept for the next start" if self._kept.path is not None else ""
            self._once("left", f"alerts not sent yet: {left}{where}")
        return left

    def reset(self) -> None:
        """In a child of a fork: nothing that the parent has to send is ours, and no thread of it is here."""
        self._kept = _Kept(None)
        self._empty()

    def _run(self) -> bool:
        """Have the thread run; False at the end of the program, when none can be started."""
        with self._lock:
            if not self._running:
                try:
                    # threading.Thread.start waits until the thread runs: milliseconds in a busy process.
                    _thread.start_new_thread(self._work, ())
                except RuntimeError:
                    return False
                self._running = True
        return True

    # --------------------------------------------------------------------------------------- in its own thread

    def _work(self, inline: bool = False) -> None:
        """Send what comes until nothing has come for a while, or (``inline``) until a wish to hurry is fulfilled."""
        try:
            while True:
                now, due = time.monotonic(), self._due()
                if due <= now:
                    if not self._receive(0.0):
                        self._attempt(max(self._hurry.until - now, 0.1) if inline and self._hurry else SECONDS)
                elif self._hurry is not None and due > self._hurry.until:
                    self._relieve()
                    if inline:
                        return
                elif not self._receive(min(due - now, IDLE)) and due == inf:
                    with self._lock:
                        if self._inbox.empty():
                            self._running = False
                            return
        except Exception as broken:
            self._once("broken", f"alerts stopped, please report it: {type(broken).__name__}: {broken}")
            self._gone = True
            self._relieve()
            self._running = False

    def _due(self) -> float:
        """When the next message may go out, in monotonic seconds; infinite when there is none."""
        if not self._waiting or self._gone:
            return inf
        return self._next if self._hurry is not None else max(self._next, self._room - (BURST - 1) * EVERY)

    def _relieve(self) -> None:
        if self._hurry is not None:
            self._hurry.done.set()
            self._hurry = None

    def _receive(self, seconds: float) -> bool:
        """Take everything out of the inbox, after at most ``seconds``; whether there was anything."""
        came = False
        with suppress(queue.Empty):
            got = self._inbox.get(timeout=seconds)
            while True:
                came = True
                if isinstance(got, _Hurry):
                    self._relieve()
                    self._hurry, self._next = got, self._wished
                else:
                    for item in got:
                        self._add(item)
                got = self._inbox.get_nowait()
        while len(self._waiting) > MOST:
            del self._waiting[min(self._waiting, key=lambda of: _rank(self._waiting[of]))]  # the oldest of equals
            self._once("full", f"more than {MOST} alerts wait; the least of them are dropped")
        if came and self._waiting:
            self._write()
        return came

    def _add(self, item: Item) -> None:
        if item.id in self._sent:
            return
        event, old = item.event, self._waiting.get(item.of)
        if old is None:
            heard = event.severity >= self.channel.at or (event.kind == "closed" and item.of in self._told)
            if self.channel.way == "command" and event.status == "preview":
                heard = False  # what a program does about it may be grave
            if heard and event.kind in self.channel.kinds:
                self._waiting[item.of] = item
        elif old.id != item.id:
            del self._waiting[item.of]
            merged = replaced(old, item)
            if merged is not None and (merged.unsaid or merged.event.kind in self.channel.kinds):
                self._waiting[item.of] = merged

    def _attempt(self, seconds: float) -> None:
        run = next(iter(self._waiting))[0]
        batch = [item for of, item in self._waiting.items() if of[0] == run]
        now = time.time()
        late = [item for item in batch if now - item.born >= GIVE_UP]
        once = self.channel.way == "command"
        if once:  # it may end this very process, and must not do so again after every restart
            self._taken(batch)
            self._write()
        problem: NotSent | None = None
        try:
            deliver(self.channel, message(batch), seconds)
        except NotSent as no:
            problem = no
            problem.again &= not once
        if problem is None:
            if not once:
                self._taken(batch)
        elif problem.gone:
            self._gone = True  # what waits stays in the state, for the next start
            self._once("gone", f"{problem.says}; no more alerts are sent there")
        elif late or not problem.again:
            lost = late if problem.again else batch
            self._once("lost", f"{problem.says}; alerts given up: {len(lost)}")
            for item in lost:
                self._waiting.pop(item.of, None)
        if problem is not None and problem.again:
            self._once("failing", f"{problem.says}; tried again for {GIVE_UP / 3600:g} hours")
            self._failed += 1
            pause = min(FIRST_WAIT * 2.0 ** min(self._failed - 1, 30), LONGEST_WAIT) * random.uniform(0.5, 1.5)
            self._wished = time.monotonic() + min(problem.wait, LONGEST_WISH) if problem.wait else 0.0
            self._next = max(time.monotonic() + pause, self._wished)
        self._write()

    def _taken(self, batch: Sequence[Item]) -> None:
        """Everything in ``batch`` has arrived."""
        self._failed, self._next, self._wished = 0, 0.0, 0.0
        self._room = max(self._room, time.monotonic()) + EVERY
        self._said -= {"failing", "lost"}
        for item in batch:
            del self._waiting[item.of]
            self._sent.update(dict.fromkeys((*item.covers, item.id)))
            (self._told.discard if item.event.kind == "closed" else self._told.add)(item.of)
        for one in list(self._sent)[:-KNOWN]:
            del self._sent[one]

    def _write(self) -> None:
        if self._kept.path is not None and (
            problem := self._kept.write(self.key, list(self._waiting.values()), list(self._sent))
        ):
            self._once("state", f"what waits is not kept on disk: {problem}")

    def _once(self, about: str, text: str) -> None:
        if about not in self._said:
            self._said.add(about)
            _say(text if text.startswith(self.channel.shown) else f"{self.channel.shown}: {text}")


def _rank(item: Item) -> tuple[bool, int]:
    """How much it would matter if it were dropped."""
    return item.event.kind != "closed", int(item.event.severity)


@dataclass
class _Hurry:
    """A wish that what waits be tried at once, and no pause begun that ends after ``until``."""

    until: float
    done: threading.Event = field(default_factory=threading.Event)


@dataclass
class _Kept:
    """The file that holds what waits and what was sent, by channel; it names no address."""

    path: Path | None
    _held: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Read what is there; a file that is not ours stays as it is, and then nothing is kept."""
        if self.path is None:
            return
        try:
            with self.path.open("rb") as file:
                held = file.read(STATE_BYTES + 1)
            form: Any = json.loads(held) if held else {"schema": SCHEMA, "channels": {}}
            if len(held) > STATE_BYTES or form["schema"] != SCHEMA:
                raise ValueError
            self._held = dict(form["channels"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            _say(f"{self.path} cannot be read as our own, so alerts that wait are not kept on disk")
            self.path = None

    def _of(self, key: str, what: str) -> list[Any]:
        held = self._held.get(key)
        found = held.get(what) if isinstance(held, Mapping) else None
        return found if isinstance(found, list) else []

    def sent(self, key: str) -> list[str]:
        return [one for one in self._of(key, "sent") if isinstance(one, str)][-KNOWN:]

    def waiting(self, key: str) -> list[Item]:
        items: list[Item] = []
        for one in self._of(key, "waiting"):
            with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
                items.append(taken(one))
        return items

    def write(self, key: str, items: Sequence[Item], sent: Sequence[str]) -> str:
        """Replace the file as a whole; what kept that from being done, empty when it was."""
        assert self.path is not None
        with self._lock:
            self._held[key] = {"waiting": [kept(item) for item in items], "sent": list(sent)}
            draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                draft.write_text(json.dumps({"schema": SCHEMA, "channels": self._held}), encoding="ascii")
                os.replace(draft, self.path)
            except (OSError, ValueError) as problem:
                return getattr(problem, "strerror", None) or type(problem).__name__
        return ""


def _say(text: str) -> None:
    complain(plain(text))


_LANES: weakref.WeakSet[_Lane] = weakref.WeakSet()
"""Every channel that is in use, or that has something to send: its thread keeps it."""


def _flushed(lanes: Iterable[_Lane], until: float) -> bool:
    wishes = [(lane, lane.hurry(until)) for lane in lanes]
    left = [lane.left(wish is None or wish.done.wait(max(until - time.monotonic(), 0.0))) for lane, wish in wishes]
    return not any(left)


def _at_exit() -> None:
    with suppress(Exception):
        _flushed(list(_LANES), time.monotonic() + AT_EXIT)


def _in_child() -> None:
    for lane in list(_LANES):
        lane.reset()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
