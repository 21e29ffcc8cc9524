"""What one alert says of the changes of a look: the root and its cure first, in the words of the report, bounded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlclinic.live.events import Event
from rlclinic.model import Diagnosis, Finding, Severity
from rlclinic.report.blocks import KEY, plain, step
from rlclinic.report.ci.words import SAYS, lines
from rlclinic.report.findings import TIERS, causes_of, costs, root_of, since

SCHEMA = "rlclinic.alert/1"
TITLE = 240
"""Characters of the first line (ours)."""
ALSO = 4
"""Further findings that are told in a line of their own; more are counted (ours)."""
LINES = 12
"""Most lines below the first (ours)."""


@dataclass(frozen=True)
class Item:
    """One event on its way to a channel, with the words that its message needs; the diagnosis itself is let go."""

    event: Event
    told: tuple[str, ...] = ()
    """What is said below the first line when it leads: what was seen, the change to make, where to go on from."""
    since: str = ""
    verdict: tuple[str, str] = ("", "")
    """Severity and sentence of the verdict of that look."""
    covers: tuple[str, ...] = ()
    """Ids of the events that this one has replaced before they were sent."""
    unsaid: bool = False
    """A closed finding of which this channel had not heard that it was open."""
    born: float = 0.0
    """Seconds since 1970 when it was said."""
    causes: tuple[str, ...] = ()
    """All checks behind it, also those by way of others."""
    sure: str = ""
    """How sure the finding is, in the words of the report."""

    @property
    def id(self) -> str:
        return event_id(self.event)

    @property
    def of(self) -> tuple[str, str]:
        """What it is about: a run and a check."""
        return self.event.run, self.event.check


@dataclass(frozen=True)
class Message:
    """One alert in words: one line, then more lines; all clean, none with markup that is ours."""

    title: str
    lines: tuple[str, ...]
    severity: Severity | None
    """The gravest of what is open; None when everything in it is closed."""
    items: tuple[Item, ...]

    def text(self, most: int) -> str:
        """The whole of it within ``most`` characters; what does not fit is left out from the end."""
        kept = [plain(self.title, min(TITLE, most))]
        room = most - len(kept[0])
        for line in self.lines:
            if room < 24:
                break
            kept.append(plain(line, room - 1))
            room -= len(kept[-1]) + 1
        return "\n".join(kept)


def event_id(event: Event) -> str:
    """By which one change of one run is known wherever it arrives: the same change has the same id."""
    told = repr((event.run, event.check, event.kind, float(event.step)))
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:16]


def item_of(event: Event, diagnosis: Diagnosis | None, now: float) -> Item:
    """``event`` with what the report says of its finding; nothing of it is longer than a sentence of the report."""
    event = _bounded(event)
    verdict = ("", "") if diagnosis is None else (diagnosis.verdict.severity, plain(diagnosis.verdict.says, SAYS))
    if event.kind == "closed":
        return Item(event, (event.says,), verdict=verdict, born=now)
    found = None
    if diagnosis is not None:
        found = next((one for one in diagnosis.findings if one.check == event.check), None)
    if diagnosis is None or found is None:
        told = (
            event.says,
            *([f"Change: {event.change}"] if event.change else []),
            *([event.go_on] * bool(event.go_on)),
        )
        return Item(event, told, verdict=verdict, born=now)
    told = tuple(lines(diagnosis, replace(found, onset=None)))
    causes = tuple(plain(one.check, KEY) for one in causes_of(found, diagnosis))
    root = root_of(found, diagnosis)
    if root is not None:
        told = (told[0], *_of_root(root, diagnosis))
    elif found.cost is not None:
        told = (*told, f"Cost so far: {costs(found)[0]}")
    return Item(event, told, _began(found, diagnosis), verdict, born=now, causes=causes[:LINES], sure=TIERS[found.tier])


def _of_root(root: Finding, diagnosis: Diagnosis) -> list[str]:
    """What is behind something that follows from ``root``, and what mends both. The root may wait to be told, and whoever
    reads this must not set about the consequence meanwhile."""
    began = _began(root, diagnosis)
    name = f"{root.check}, preview" if root.status == "preview" else root.check
    title = plain(root.title or root.check).rstrip(". ")
    done = lines(diagnosis, replace(root, onset=None, because_of=()))[1:]
    return [f"Behind it, as it looks now: {title}{f', {began}' if began else ''} ({name})", *done]


def _began(finding: Finding, diagnosis: Diagnosis) -> str:
    """Since when, in words."""
    said = "" if finding.onset is None else f"since {since(diagnosis.run, finding.onset)}"
    return said.removeprefix("since ") if said.startswith("since seen") else said  # "seen from" of an excerpt


def _bounded(event: Event) -> Event:
    """``event`` with few causes, which are the only texts of an event that nobody bounds."""
    return replace(event, because_of=tuple(plain(one, KEY) for one in event.because_of[:LINES]))


def replaced(old: Item, new: Item) -> Item | None:
    """What is still to be said where ``new`` comes before ``old`` was sent; None when nothing is, as of a finding that was
    closed and opened again."""
    covers = (*old.covers, old.id)[-LINES:]
    before, after = old.event, new.event
    if after.kind == "closed":
        unsaid = old.unsaid or before.kind == "opened"
        return replace(new, covers=covers, unsaid=unsaid)
    if before.kind == "closed" and not old.unsaid:
        if after.severity <= before.severity:
            return None
        return replace(new, event=replace(after, kind="worsened"), covers=(*covers, new.id))
    if before.kind == "opened" and after.kind == "worsened":
        return replace(new, event=replace(after, kind="opened"), covers=(*covers, new.id))
    return replace(new, covers=covers)


def message(items: Sequence[Item]) -> Message:
    """One alert about all of ``items`` (at least one), whichever look they are of."""
    loud = [item for item in items if item.event.kind != "closed"]
    gone = [item for item in items if item.event.kind == "closed"]
    open_now = {item.event.check for item in loud}
    loud.sort(key=lambda item: (bool(open_now & _causes(item)), -item.event.severity))
    told: list[str] = []
    if not loud:
        first, rest = gone[0], gone[1:]
        title = f"{_gone(first)} in {_run(first)} (was {first.event.severity.label}): {_title(first)}"
        told += [plain(first.event.says, SAYS)]
        return Message(plain(title, TITLE), tuple([*told, *_closed(rest)][:LINES]), None, tuple(items))
    lead, others = loud[0], loud[1:]
    behind = _behind(lead, others)
    of_it = [lead, *behind]
    worst = _worst(of_it)
    before = " (was warning)" if lead.event.kind == "worsened" else ""  # of what may only have become sure
    trial = " (preview)" if all(item.event.status == "preview" for item in of_it) else ""
    # A first line is often all that is seen of a message: one more consequence of what was told must be known by it.
    after = f" (follows from {lead.event.root})" if lead.event.root else ""
    began = f", {lead.since}" if lead.since else ""
    title = f"{worst.label.upper()}{trial}{before} in {_run(lead)}{after}: {_title(lead)}{began}"
    told += [plain(line, SAYS) for line in lead.told[:ALSO]]
    if behind:
        named = [f"{item.event.check} ({item.event.severity.label})" for item in behind]
        told.append(f"It leads to {_listed(named)}.")
    besides = [item for item in others if item not in behind]
    for item in besides[:ALSO]:
        began = f", {item.since}" if item.since else ""
        told.append(f"Also {item.event.severity.label}: {_title(item)}{began} ({item.event.check})")
    if len(besides) > ALSO:
        told.append(f"And {len(besides) - ALSO} more.")
    told += _closed(gone)
    marks = ", ".join([*([lead.sure] if lead.sure else []), *(["preview"] if lead.event.status == "preview" else [])])
    told.append(f"{lead.event.check}{f' ({marks})' if marks else ''}, told at step {step(lead.event.step)}")
    return Message(plain(title, TITLE), tuple(told[:LINES]), _worst(loud), tuple(items))


def _worst(loud: Sequence[Item]) -> Severity:
    """The gravest of what is open; a check in preview makes nothing graver."""
    sure = [item for item in loud if item.event.status != "preview"]
    return max(item.event.severity for item in sure or loud)


def _behind(lead: Item, others: Sequence[Item]) -> list[Item]:
    """Those of ``others`` that follow from ``lead``, also by way of one another."""
    causes, before = {lead.event.check}, 0
    while len(causes) > before:
        before = len(causes)
        causes |= {item.event.check for item in others if causes & _causes(item)}
    return [item for item in others if item.event.check in causes]


def _causes(item: Item) -> set[str]:
    return {*item.event.because_of, *item.causes}


def _run(item: Item) -> str:
    return item.event.run or "run"


def _title(item: Item) -> str:
    return (item.event.title or item.event.check).rstrip(". ")


def _gone(item: Item) -> str:
    return "Came and went" if item.unsaid else "Closed"


def _closed(gone: Sequence[Item]) -> list[str]:
    """What is closed, in one line; what came and went before it could be told, in another."""
    told = []
    for word, unsaid in (("Closed", False), ("Came and went before it could be told", True)):
        named = [item.event.check for item in gone if item.unsaid == unsaid]
        told += [f"{word}: {_listed(named)}."] if named else []
    return told


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[: 2 * ALSO])
    return f"{shown} and {len(names) - 2 * ALSO} more" if len(names) > 2 * ALSO else shown


# ------------------------------------------------------------------------------------------------------- as JSON


def as_json(told: Message) -> dict[str, Any]:
    """The envelope of a generic webhook and of a command: what happened for a program, and the same in words."""
    last = told.items[-1]
    severity, says = last.verdict
    return {
        "schema": SCHEMA,
        "run": last.event.run,
        "severity": None if told.severity is None else told.severity.label,
        "verdict": {"severity": severity, "says": says} if severity else None,
        "title": told.title,
        "text": told.text(4_000),
        "events": [{"id": item.id, **item.event.as_json()} for item in told.items],
    }


def kept(item: Item) -> dict[str, Any]:
    """``item`` as it lies in a file until it is sent."""
    return {
        "event": item.event.as_json(),
        "told": list(item.told),
        "since": item.since,
        "verdict": list(item.verdict),
        "covers": list(item.covers),
        "unsaid": item.unsaid,
        "born": item.born,
        "causes": list(item.causes),
        "sure": item.sure,
    }


def taken(held: Mapping[str, Any]) -> Item:
    """The item that ``kept`` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    severity, says = (plain(one, SAYS) for one in held["verdict"])
    return Item(
        _bounded(Event.from_json(held["event"])),
        tuple(plain(one, SAYS) for one in held["told"][:LINES]),
        plain(held["since"]),
        (severity, says),
        tuple(plain(one, KEY) for one in held["covers"][:LINES]),
        bool(held["unsaid"]),
        float(held["born"]),
        tuple(plain(one, KEY) for one in held.get("causes", ())[:LINES]),
        plain(held.get("sure", ""), KEY),
    )
