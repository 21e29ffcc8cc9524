"""From a remedy's name to the change to make in this run: its own keys, its own values, its own caveats."""

from __future__ import annotations

from collections.abc import Iterable

from rlclinic import names
from rlclinic.model import Change, Prescription, Run, Scalar
from rlclinic.names import Turn


def prescribe(ids: Iterable[str], run: Run) -> tuple[Prescription, ...]:
    """The remedies worked out for ``run``, in the order given.

    A remedy whose settings the run already has is left out; one that the framework cannot carry out goes last, with
    the reason. Raises UnknownName for an id that is not in the table.
    """
    ready: list[Prescription] = []
    unavailable: list[Prescription] = []
    for id in ids:
        remedy = names.remedy(id, run.framework)
        changes = tuple(change for turn in remedy.set if (change := _change(turn, run)) is not None)
        if remedy.set and not changes:
            continue
        prescription = Prescription(
            id=id,
            says=remedy.says,
            changes=() if remedy.unavailable else changes,
            expect=remedy.expect,
            within=remedy.within,
            risk=remedy.risk,
            confirm=remedy.confirm,
            note=remedy.unavailable or " ".join(text for text in (remedy.writes, remedy.note) if text),
        )
        (unavailable if remedy.unavailable else ready).append(prescription)
    return (*ready, *unavailable)


def _change(turn: Turn, run: Run) -> Change | None:
    """The change still to be made; None when the run's known setting already satisfies the remedy."""
    before = run.knob(turn.knob)
    after = _target(turn, run)
    if before is not None and _meets(turn, before, after):
        return None
    row = names.spell(turn.knob, run.framework)
    key = turn.knob if row is None else row.key
    if row is None or after is None:
        return Change(turn.knob, key, before, after, _in_words(turn, key, after))
    return Change(turn.knob, key, before, after, names.write(turn.knob, after, run.framework, present=run.knobs))


def _target(turn: Turn, run: Run) -> Scalar:
    """The value to set; None when it is relative and the present value is not known."""
    if turn.times is None:
        if turn.to is not None:
            return turn.to
        bound = turn.at_least if turn.at_least is not None else turn.at_most
        return int(bound) if bound is not None and bound == int(bound) and abs(bound) >= 1 else bound
    present = run.number(turn.like or turn.knob)
    if present is None:
        return None
    value = present * turn.times
    if turn.at_least is not None:
        value = max(value, turn.at_least)
    if turn.at_most is not None:
        value = min(value, turn.at_most)
    whole = isinstance(run.knob(turn.like or turn.knob), int)
    return round(value) if whole and value >= 1 else float(f"{value:.3g}")


def _meets(turn: Turn, before: Scalar, after: Scalar) -> bool:
    number = before if isinstance(before, (int, float)) and not isinstance(before, bool) else None
    if turn.times is None and number is not None and turn.at_least is not None:
        return number >= turn.at_least
    if turn.times is None and number is not None and turn.at_most is not None:
        return number <= turn.at_most
    return before == after


def _in_words(turn: Turn, key: str, after: Scalar) -> str:
    """The change in words where the framework's spelling or the present value is not known."""
    if after is not None:
        return f"{key} = {after}"
    factor = turn.times or 1.0
    return f"{key}: divide by {1 / factor:g}" if factor < 1 else f"{key}: multiply by {factor:g}"
