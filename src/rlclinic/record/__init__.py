"""What was found in a run, what was changed and what came of it, as one entry of the record that is kept with the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlclinic import __version__, names
from rlclinic.errors import BadRequest
from rlclinic.history import ITEMS, NAME, OUTCOMES, SCHEMA, TEXT, Moved, Past, Seen, Took
from rlclinic.model import Diagnosis, Finding, Knob, Run, Scalar
from rlclinic.readers.config import setting
from rlclinic.record.keeping import keep, last_open, place

__all__ = ["SCHEMA", "Record", "keep", "last_open", "place", "record"]

REPEATED = "of what was taken on"
"""How an outcome begins whose changes are those of an earlier entry."""
SAME = 1e-6
"""Relative difference up to which two values of a setting are the same (single precision keeps 6e-8)."""
ROUNDED = 1e-3
"""Relative difference up to which a setting is the one that was prescribed (ours: people round)."""


@dataclass(frozen=True)
class Record:
    """One look at a run. ``found`` are its findings in the order of the report, ``took`` what was changed after it,
    ``outcome`` one of ``OUTCOMES`` or empty while open; ``because`` says what an outcome was read off."""

    run: str
    log: tuple[str, ...]
    """Names, without their folders, of the files or the address that was read."""
    steps: tuple[float, float, int] | None
    framework: tuple[str, str] | None
    algorithm: str
    settings: Mapping[str, Knob]
    verdict: tuple[str, str, str]
    """Severity, check and sentence."""
    found: tuple[Seen, ...] = ()
    took: tuple[Took, ...] = ()
    after: str = ""
    outcome: str = ""
    because: str = ""
    note: str = ""
    outcomes: Mapping[str, str] = field(default_factory=dict)
    """What came of single findings, by check, where the next run tells them apart."""
    version: str = field(default=__version__)

    def continuing(self, past: Past | None) -> Record:
        """This look with what was taken in ``past``, where it states an outcome and no change of its own."""
        if past is None or self.took or not self.outcome:
            return self
        return replace(self, took=past.took, because=self.because or f"{REPEATED} {past.day}")

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain JSON data, without a date; no word of a prompt or an answer is in it."""
        severity, primary, says = self.verdict
        return {
            "rlclinic": self.version,
            "run": {
                "name": self.run,
                "log": list(self.log),
                "steps": None
                if self.steps is None
                else dict(zip(("first", "last", "count"), map(_plain, self.steps), strict=True)),
            },
            "framework": None
            if self.framework is None
            else {"name": self.framework[0], "version": self.framework[1] or None},
            "algorithm": self.algorithm or None,
            "settings": {
                name: {"key": _short(knob.key), "value": _plain(knob.value)} for name, knob in self.settings.items()
            },
            "verdict": {"severity": severity, "primary": primary or None, "says": says},
            "findings": [
                {
                    "check": one.check,
                    "severity": one.severity,
                    "onset": None
                    if one.step is None
                    else {"step": _plain(one.step), "low": _plain(one.low), "high": _plain(one.high)},
                    "says": one.says,
                }
                for one in self.found
            ],
            "took": [
                {
                    "remedy": one.remedy or None,
                    "for": list(one.checks),
                    **({"also": True} if one.also else {}),
                    "changes": [
                        {"knob": m.knob or None, "key": m.key, "from": _plain(m.before), "to": _plain(m.after)}
                        for m in one.changes
                    ],
                }
                for one in self.took
            ],
            "after": {"name": self.after} if self.after else None,
            "outcome": self.outcome or None,
            "outcomes": dict(self.outcomes),
            "because": self.because,
            "note": self.note,
        }


def record(
    diagnosis: Diagnosis,
    *,
    took: Sequence[str] = (),
    given: Mapping[str, str] | None = None,
    after: Run | None = None,
    outcome: str = "",
    because: str = "",
    note: str = "",
    outcomes: Mapping[str, str] | None = None,
) -> Record:
    """The record of ``diagnosis`` with what was changed since.

    ``took`` are ids of remedies, ``given`` settings as the user's configuration writes them; with ``after``, the next run,
    the settings in which it differs are what was changed, and the remedies that they amount to are recognised;
    ``outcomes`` says by check what came of single findings. Raises
    UnknownName for a remedy that does not exist, BadRequest for another outcome and for a note of over ``TEXT`` characters.
    """
    if outcome and outcome not in OUTCOMES:
        raise BadRequest("an outcome", repr(outcome), OUTCOMES)
    if len(note) > TEXT:
        raise BadRequest(f"a note of at most {TEXT} characters", f"{len(note)} characters")
    run, verdict = diagnosis.run, diagnosis.verdict
    own = _settings(given or {}, run)
    moved = {**_differences(run, after), **own}
    framework = run.framework
    steps = run.steps
    return Record(
        run=_short(run.name),
        log=tuple(_file(source.path) for source in run.sources if source.role in ("metrics", "rollouts"))[:ITEMS],
        steps=(float(steps[0]), float(steps[-1]), len(steps)) if len(steps) else None,
        framework=None if framework is None else (_short(framework.name), _short(framework.version or "")),
        algorithm=_short(run.algorithm or ""),
        settings=_kept(run),
        verdict=(verdict.severity, verdict.primary or "", _line(verdict.says)),
        found=tuple(_seen(finding) for finding in diagnosis.findings if finding.severity is not None)[:ITEMS],
        took=_taken(diagnosis, took, moved, own),
        after="" if after is None else _short(after.name),
        outcome=outcome,
        because=_line(because),
        note=_line(note),
        outcomes=dict(list((outcomes or {}).items())[:ITEMS]),
    )


# ------------------------------------------------------------------------------------------------- what was found


def _seen(finding: Finding) -> Seen:
    severity = "" if finding.severity is None else finding.severity.label
    onset = finding.onset
    if onset is None:
        return Seen(finding.check, severity, says=_line(finding.says))
    return Seen(finding.check, severity, onset.step, onset.low, onset.high, _line(finding.says))


def _kept(run: Run) -> dict[str, Knob]:
    """The settings that somebody chose: those of the configuration, of the log, or given; no default."""
    return {name: run.knobs[name] for name in sorted(run.knobs) if run.knobs[name].origin != "default"}


# ----------------------------------------------------------------------------------------------- what was changed


def _differences(run: Run, after: Run | None) -> dict[str, Moved]:
    """The settings, by key, in which the next run differs, where both are known."""
    if after is None:
        return {}
    found: dict[str, Moved] = {}
    for name in sorted(run.knobs.keys() & after.knobs.keys()):
        before, later = run.knobs[name], after.knobs[name]
        if not _same(before.value, later.value):
            found[later.key] = Moved(name, _short(later.key), _plain(before.value), _plain(later.value))
    return found


def _settings(given: Mapping[str, str], run: Run) -> dict[str, Moved]:
    """What the user set, in canonical terms where his key is one of the trainer's."""
    found: dict[str, Moved] = {}
    for key, text in given.items():
        value = setting(text)
        known = names.read_knobs({key: value}, run.framework, "given")
        if key in names.knobs():
            known.setdefault(key, Knob(key, _scalar(value), key, "given"))
        for name, knob in known.items():
            stands = run.knobs.get(name)
            row = names.spell(name, run.framework)
            shown = stands.key if stands is not None else row.key if row is not None else key
            before = None if stands is None else _plain(stands.value)
            found[shown] = Moved(name, _short(shown), before, _plain(knob.value))
        if not known:
            found[key] = Moved("", _short(key), None, _plain(_scalar(value)))
    return found


def _taken(
    diagnosis: Diagnosis, ids: Iterable[str], moved: Mapping[str, Moved], own: Mapping[str, Moved]
) -> tuple[Took, ...]:
    """The remedies named, those that the changed settings amount to, the user's ``own`` settings besides, and what else
    differs in the next run (``Took.also``)."""
    known = {one.knob: one for one in moved.values() if one.knob}
    found: dict[str, Took] = {}
    for id in dict.fromkeys(ids):
        names.remedy(id)
        found[id] = Took(id, *_prescribed(diagnosis, id, known))
    for finding in diagnosis.findings:
        for one in finding.prescriptions:
            done = [known.get(change.knob) for change in one.changes]
            if not one.applies or one.id in found or not done:
                continue
            if all(m is not None and _meets(m, c.before, c.after) for m, c in zip(done, one.changes, strict=True)):
                found[one.id] = Took(one.id, *_prescribed(diagnosis, one.id, known))
    told = {change.knob for took in found.values() for change in took.changes if change.knob}
    rest = [(key, one) for key, one in moved.items() if one.knob not in told or not one.knob]
    mine = tuple(one for key, one in rest if key in own)[:ITEMS]
    differs = tuple(one for key, one in rest if key not in own and one.knob not in names.WATCHING)[:ITEMS]
    return (
        *found.values(),
        *((Took("", (), mine),) if mine else ()),
        *((Took("", (), differs, also=True),) if differs else ()),
    )


def _prescribed(diagnosis: Diagnosis, id: str, known: Mapping[str, Moved]) -> tuple[tuple[str, ...], tuple[Moved, ...]]:
    """The checks whose findings prescribe a remedy, and its changes as they were made or else as prescribed."""
    places = [(f.check, one) for f in diagnosis.findings for one in f.prescriptions if one.id == id]
    changes = places[0][1].changes if places else ()
    made = tuple(
        known.get(one.knob) or Moved(one.knob, _short(one.key), _plain(one.before), _plain(one.after))
        for one in changes
    )
    return tuple(dict.fromkeys(check for check, _ in places))[:ITEMS], made


def _meets(moved: Moved, before: Scalar, wanted: Scalar) -> bool:
    """Whether a setting was brought to where the remedy wants it, or beyond; with an open aim, in any way."""
    if wanted is None:
        return True
    if _same(moved.after, wanted, ROUNDED):
        return True
    values = (before, wanted, moved.after)
    if not all(_is_number(value) for value in values):
        return False
    start, aim, now = (float(value) for value in values if _is_number(value))  # type: ignore[arg-type]
    return now > aim > start or now < aim < start


def _same(one: Scalar, other: Scalar, closeness: float = SAME) -> bool:
    if _is_number(one) and _is_number(other):
        return math.isclose(float(one), float(other), rel_tol=closeness)  # type: ignore[arg-type]
    return type(one) is type(other) and one == other


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _scalar(value: object) -> Scalar:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


# ------------------------------------------------------------------------------------------------- words, numbers


def _plain(value: Any) -> Any:
    """A setting or a step as JSON can hold it: bounded, whole numbers as such, none that is not finite."""
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else str(value)[:NAME]
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def _short(text: str) -> str:
    return _line(text, NAME)


def _line(text: str, most: int = TEXT) -> str:
    """One bounded line without anything that is not seen."""
    held = "".join(c if c.isprintable() else " " for c in text[: 4 * most])
    return " ".join(held.split())[:most]


def _file(path: str) -> str:
    return _short(path if "://" in path else Path(path).name or path)
