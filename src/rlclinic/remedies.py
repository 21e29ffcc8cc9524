"""From a remedy's name to the change to make in this run: its own keys, its own values, its own caveats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlclinic import names
from rlclinic.model import Change, Prescription, Run, Scalar


def prescribe(ids: tuple[str, ...], run: Run) -> tuple[Prescription, ...]:
    """The remedies worked out for ``run``, in the order given.

    A remedy whose settings the run already has is left out; one that the framework cannot carry out goes last, with
    the reason. Raises UnknownName for an id that is not in the table.
    """
    framework = run.framework
    ready: list[Prescription] = []
    unavailable: list[Prescription] = []
    for id in ids:
        remedy = names.remedy(id)
        own = names.remedy_override(id, framework)
        if own is not None and own.unavailable:
            unavailable.append(Prescription(id, remedy.says, note=own.unavailable, confirm=remedy.confirm))
            continue
        changes, satisfied = _changes(remedy.set, run)
        if remedy.set and satisfied:
            continue
        notes = [own.note] if own is not None and own.note else []
        ready.append(
            Prescription(
                id=id,
                says=own.says if own is not None and own.says else remedy.says,
                changes=changes,
                expect=remedy.expect,
                within=remedy.within,
                risk=remedy.risk,
                confirm=remedy.confirm,
                note=" ".join(notes),
            )
        )
    return (*ready, *unavailable)


def _changes(wanted: Mapping[str, Any], run: Run) -> tuple[tuple[Change, ...], bool]:
    """The changes still to be made, and whether the run's known settings already satisfy every one of them."""
    changes = []
    satisfied = True
    for knob, rule in wanted.items():
        before = run.knob(knob)
        after = _resolve(rule, before)
        if before is not None and _meets(rule, before):
            continue
        satisfied = False
        row = names.spell(knob, run.framework) if run.framework is not None else None
        if row is None:
            changes.append(Change(knob, knob, before, after, _plain(knob, rule, after)))
        else:
            text = names.write(knob, after, run.framework) if after is not None else _plain(row.key, rule, after)
            changes.append(Change(knob, row.key, before, after, text))
    return tuple(changes), satisfied


def _resolve(rule: Any, before: Scalar) -> Scalar:
    """The value to set: absolute as it stands, relative ones only when the present value is known."""
    if not isinstance(rule, Mapping):
        return rule  # type: ignore[no-any-return]
    known = float(before) if isinstance(before, (int, float)) and not isinstance(before, bool) else None
    if "times" in rule:
        if known is None:
            return None
        scaled = known * float(rule["times"])
        return int(scaled) if isinstance(before, int) and scaled == int(scaled) else float(f"{scaled:.3g}")
    bound = rule.get("at_least", rule.get("at_most"))
    return bound if isinstance(bound, (int, float, str)) else None


def _meets(rule: Any, before: Scalar) -> bool:
    if not isinstance(rule, Mapping):
        return bool(before == rule)
    if isinstance(before, (int, float)) and not isinstance(before, bool):
        if "at_least" in rule:
            return float(before) >= float(rule["at_least"])
        if "at_most" in rule:
            return float(before) <= float(rule["at_most"])
    return False


def _plain(key: str, rule: Any, after: Scalar) -> str:
    """The change in words where the framework's spelling or the present value is not known."""
    if after is not None:
        return f"{key} = {after}"
    if isinstance(rule, Mapping) and "times" in rule:
        factor = float(rule["times"])
        return f"{key}: divide by {1 / factor:g}" if factor < 1 else f"{key}: multiply by {factor:g}"
    return key
