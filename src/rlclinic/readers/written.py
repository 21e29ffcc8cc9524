"""Single values in the order of their writing, gathered into the rows of a log, with restarts told from disorder."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlclinic.errors import CannotRead
from rlclinic.model import Floats, Warn
from rlclinic.readers.axis import STANDING, IntArray
from rlclinic.readers.rows import Inferred, Log, Nonfinite, Rows
from rlclinic.readers.tokens import metric_like

Keys: TypeAlias = NDArray[np.int32]

MOST = 3_000_000
"""Most values of one run (ours: about 150 bytes each while they are ordered; 15,000 steps of 200 series)."""
TRIED = 100
"""Most places of one log that are looked at as a restart (ours: each costs a pass over the values)."""
OVERLAP = 0.1
"""Share of the shorter of two files' time spans from which on both count as written at the same time (ours: a process
that is being stopped may write a little after its successor has begun)."""
TWINS = 0.1
"""Share of common (series, step) pairs from which on two files of the same time are two writers of one run (ours)."""
PIECE = 10_000
"""Rows made at a time (ours)."""
MOSTLY = 0.5
"""Share of the values so far whose series must go back before a run has started again (ours)."""
SHAPES = 10_000
"""Most sets of keys remembered while rows are made (ours: a log has a few)."""
_NEVER = np.iinfo(np.int64).min


class Points:
    """The values of one source: 28 bytes each. ``name`` is what the source is called, ``full`` that some were left out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: list[str] = []
        self.full = False
        self._known: dict[str, int] = {}
        self._key, self._step = array("i"), array("q")
        self._wall, self._value = array("d"), array("d")

    def __len__(self) -> int:
        return len(self._key)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def key(self, name: str) -> int:
        """The number of a series, given at its first mention."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = len(self.names)
            self.names.append(name)
        return found

    def add(self, key: int, step: int, wall: float, value: float) -> None:
        """One value of the series ``key`` at ``step``, written at ``wall`` (seconds since 1970, 0 when unknown)."""
        if len(self._key) >= MOST:
            self.full = True
            return
        self._key.append(key)
        self._step.append(max(-(2**62), min(2**62, step)))
        self._wall.append(wall)
        self._value.append(value)

    def extend(self, keys: IntArray, steps: IntArray, walls: Floats, values: Floats) -> None:
        """Many values at once, (n,) each."""
        room = max(0, MOST - len(self._key))
        self.full |= len(keys) > room
        self._key.frombytes(keys[:room].astype(np.int32).tobytes())
        self._step.frombytes(np.clip(steps[:room], -(2**62), 2**62).tobytes())
        self._wall.frombytes(walls[:room].tobytes())
        self._value.frombytes(values[:room].tobytes())

    def forget(self, step: int, before: int | None = None) -> int:
        """Drop the values at or after ``step`` among the first ``before`` (all without); how many there were."""
        gone = np.asarray(self.steps[:before] >= step)
        if gone.any():
            self._keep(np.concatenate([np.flatnonzero(~gone), np.arange(len(gone), len(self))]))
        return int(gone.sum())

    def sort_by_time(self) -> None:
        """Put the values in the order of their times; those of one time stay as they came."""
        self._keep(np.argsort(self.walls, kind="stable"))

    def _keep(self, which: IntArray) -> None:
        """Keep the values at the places ``which``, in that order."""
        for held in (self._key, self._step, self._wall, self._value):
            kept = np.array(held)[which].tobytes()
            del held[:]
            held.frombytes(kept)

    @property
    def keys(self) -> Keys:
        return np.array(self._key, dtype=np.int32)

    @property
    def steps(self) -> IntArray:
        return np.array(self._step, dtype=np.int64)

    @property
    def walls(self) -> Floats:
        return np.array(self._wall, dtype=np.float64)

    @property
    def values(self) -> Floats:
        return np.array(self._value, dtype=np.float64)


@dataclass(eq=False)
class _Writing:
    """Values (n,) each in the order of writing; ``attempt`` counts the restarts before each."""

    key: Keys
    step: IntArray
    wall: Floats
    value: Floats
    attempt: Keys
    name: str

    def begins(self) -> float:
        known = self.wall[np.isfinite(self.wall) & (self.wall > 0)]
        return float(known.min()) if len(known) else np.inf

    def ends(self) -> float:
        known = self.wall[np.isfinite(self.wall) & (self.wall > 0)]
        return float(known.max()) if len(known) else -np.inf


def gather(sources: Sequence[Points], rows: Rows) -> tuple[dict[int, str], list[Warn]]:
    """Fill ``rows`` with the values of ``sources``, one row for each step of each attempt, and tell where restarts show.

    Which source is later is told by wall time, then by their order. What one source repeats at a step makes further rows
    of that step, so that the last one wins where rows are compared; a series whose step goes back and covers its old
    steps again begins an attempt. Of two sources written at the same time that hold the same series at the same steps
    only the longer is read. Where no series states a step (all are at one), the rows are in the order of writing; a
    single series without one beside others is left out. Returns (row: what was seen there) and what has to be said.
    """
    said: list[Warn] = []
    names: dict[str, int] = {}
    parts = [_writing(one, names) for one in sources if len(one)]
    if any(one.full for one in sources):
        said.append(Warn("too_many_values", f"only the first {MOST} values of a file were read"))
    if not parts:
        return {}, said
    if len(parts) > 1:
        parts = _in_order(parts, said)
    moving = _moving(parts, len(names))
    counts = np.sum([np.bincount(one.key, minlength=len(names)) for one in parts], axis=0)
    if not moving.any() and (counts > 1).any():
        _fill_in_order(_joined(parts), list(names), rows)
        return {}, said
    still = ~moving & (counts > STANDING)
    if still.any():
        shown = ", ".join(list(names)[key] for key in np.flatnonzero(still)[:3])
        says = f"{int(counts[still].sum())} values logged without a step beside others with one are left out ({shown})"
        said.append(Warn("values_without_step", says))
        for one in parts:
            _sort(one, np.flatnonzero(~still[one.key]))
        parts = [one for one in parts if len(one.key)]
    seams: dict[tuple[int, int], str] = {}
    late, reached, ended = 0, _Reached(len(names)), -np.inf
    for place, part in enumerate(parts):
        part.attempt, disordered = _attempts(part)
        late += disordered
        back = reached.goes_back(part) if place else None
        offset = reached.attempt + (back is not None)
        if place and reached.knows(part):
            gap = part.begins() - ended
            after = f" {_duration(gap)} after the last value" if np.isfinite(gap) and gap >= 1 else ""
            steps = f", and the step goes back from {back[0]:g} to {back[1]:g}" if back else ""
            seams[offset, int(part.step[part.attempt == 0].min())] = f"another file begins{after}{steps}"
        part.attempt += np.int32(offset)
        reached.take(part)
        ended = max(ended, part.ends())
    if late:
        said.append(
            Warn("late_values", f"{late} values were written after a later step of their series; they are sorted")
        )
    whole = _joined(parts)
    parts.clear()
    whole.wall = np.empty(0)  # has told the order
    return _fill(whole, list(names), seams, rows), said


def log_of(
    points: Points,
    path: str,
    form: str,
    nonfinite: Nonfinite,
    said: Iterable[Warn],
    *,
    found: str,
    hint: str = "give the log of the trainer",
) -> Log:
    """The log of the values of one run, which become sorted by their time.

    MLflow stores step 0 where none was logged: a run without any step has its rows in the order of writing. Raises
    CannotRead, which says what was ``found``, without a training metric.
    """
    if _key_by_key(points) or not points.steps.any():
        points.sort_by_time()
    rows = Rows()
    seams, more = gather([points], rows)
    if not rows.rows or not metric_like(rows.keys):
        raise CannotRead("a run with training metrics", f"{path}: {found}", hint=hint)
    return rows.finish(
        path=path, format=form, nonfinite=nonfinite, inferred=Inferred(seams=seams), warnings=[*said, *more]
    )


def _key_by_key(points: Points) -> bool:
    """True when the values of one series stand before those of the next, as in a tree of files, and all have a time."""
    turns, walls = int(np.count_nonzero(np.diff(points.keys))), points.walls
    return turns < 2 * len(points.names) < len(walls) and bool((walls > 0).all())


def _writing(points: Points, names: dict[str, int]) -> _Writing:
    number = np.array([names.setdefault(name, len(names)) for name in points.names], dtype=np.int32)
    part = _Writing(
        number[points.keys],
        points.steps,
        points.walls,
        points.values,
        np.zeros(len(points), dtype=np.int32),
        points.name,
    )
    if _series_by_series(part.key) and _interleaves(part):
        _sort(part, np.argsort(part.wall, kind="stable"))
    return part


def _joined(parts: Sequence[_Writing]) -> _Writing:
    if len(parts) == 1:
        return parts[0]
    return _Writing(
        np.concatenate([one.key for one in parts]),
        np.concatenate([one.step for one in parts]),
        np.concatenate([one.wall for one in parts]),
        np.concatenate([one.value for one in parts]),
        np.concatenate([one.attempt for one in parts]),
        parts[0].name,
    )


def _sort(part: _Writing, order: IntArray) -> None:
    part.key, part.step, part.value = part.key[order], part.step[order], part.value[order]
    part.attempt = part.attempt[order]
    part.wall = part.wall[order] if len(part.wall) else part.wall


def _series_by_series(key: Keys) -> bool:
    """True when all values of one series stand before those of the next, as in a converted file."""
    many = len(np.unique(key))
    return many > 1 and len(key) >= 4 * many and int(np.count_nonzero(np.diff(key))) < 2 * many


def _interleaves(part: _Writing) -> bool:
    """True when the wall times say that series which stand one after the other were written side by side."""
    if not np.isfinite(part.wall).all():
        return False
    turn = np.flatnonzero(np.diff(part.key)) + 1
    rising = np.diff(part.wall) >= 0
    rising[turn - 1] = True
    return bool(rising.all()) and bool((part.wall[turn] < part.wall[turn - 1]).all())


def _in_order(parts: list[_Writing], said: list[Warn]) -> list[_Writing]:
    """The sources by the time they begin; those written side by side become one."""
    parts = sorted(parts, key=lambda one: one.begins())
    groups: list[list[_Writing]] = [[parts[0]]]
    for one in parts[1:]:
        if any(_together(other, one) for other in groups[-1]):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [group[0] if len(group) == 1 else _side_by_side(group, said) for group in groups]


def _together(first: _Writing, second: _Writing) -> bool:
    common = min(first.ends(), second.ends()) - max(first.begins(), second.begins())
    shorter = min(first.ends() - first.begins(), second.ends() - second.begins())
    return bool(np.isfinite(common)) and common >= 0 and common >= OVERLAP * shorter


def _side_by_side(group: list[_Writing], said: list[Warn]) -> _Writing:
    kept: list[_Writing] = []
    for one in sorted(group, key=lambda one: -len(one.key)):
        twin = next((other for other in kept if _same_series(other, one)), None)
        if twin is None:
            kept.append(one)
        else:
            says = f"{one.name} was written at the same time as {twin.name} with the same series: left out"
            said.append(Warn("two_writers", says))
    # The order within a source is that of its writing even where the clock was set back.
    clock = [np.maximum.accumulate(np.nan_to_num(one.wall, nan=-np.inf)) for one in kept]
    whole = _joined(kept)
    _sort(whole, np.argsort(np.concatenate(clock), kind="stable"))
    return whole


def _same_series(first: _Writing, second: _Writing) -> bool:
    if not np.isin(second.key, first.key).any():
        return False
    steps = np.unique(np.concatenate([first.step, second.step]))
    a, b = (
        np.unique(one.key.astype(np.int64) * len(steps) + np.searchsorted(steps, one.step)) for one in (first, second)
    )
    return len(np.intersect1d(a, b, assume_unique=True)) > TWINS * len(b)


class _Reached:
    """How far each of ``many`` series has come in the parts so far, as the last attempt at it tells."""

    def __init__(self, many: int) -> None:
        self.attempt = 0
        self._step = np.full(many, _NEVER)
        self._count = np.zeros(many, dtype=np.int64)

    def take(self, part: _Writing) -> None:
        """A part with its attempts counted on."""
        self.attempt = int(part.attempt.max())
        last = part.attempt == self.attempt
        self._step[np.unique(part.key[last])] = _NEVER
        np.maximum.at(self._step, part.key[last], part.step[last])
        self._count += np.bincount(part.key, minlength=len(self._count))

    def knows(self, part: _Writing) -> bool:
        """True when a series of ``part`` was there before."""
        return bool((self._count[part.key] > 0).any())

    def goes_back(self, part: _Writing) -> tuple[float, float] | None:
        """(last step before, first step now) where a part goes back with most of what there was; None where it goes on.

        What only repeats a few series, as an evaluation of old checkpoints does, takes nothing back.
        """
        fresh = part.attempt == 0
        first = np.full(len(self._step), np.iinfo(np.int64).max)
        np.minimum.at(first, part.key[fresh], part.step[fresh])
        back = first <= self._step
        if not (first < self._step).any() or self._count[back].sum() < MOSTLY * self._count.sum():
            return None
        return float(self._step[back].max()), float(first[back].min())


def _attempts(part: _Writing) -> tuple[Keys, int]:
    """The attempt of every value, and how many values came late without a restart."""
    steps = np.unique(part.step, return_inverse=True)[1].reshape(-1).astype(np.int64)
    if not _series_by_series(part.key):
        return _restarts(part.key, steps)
    found = np.zeros(len(steps), dtype=np.int32)
    late = 0
    for one in np.unique(part.key):
        mine = np.flatnonzero(part.key == one)
        found[mine], more = _restarts(part.key[mine], steps[mine])
        late += more
    return found, late


def _restarts(key: Keys, step: IntArray) -> tuple[Keys, int]:
    """(n,) how many restarts lie before each value, in the order of writing; and how many values are merely late.

    A restart goes back and covers what was there before, up to its last step or to the end of the log; a late value is
    followed by new steps. ``step`` (n,) are ranks.
    """
    attempt = np.zeros(len(key), dtype=np.int32)
    start = tried = late = 0
    while True:
        k, s = key[start:], step[start:]
        high = _reached(k, s)
        back = np.flatnonzero(s < high)
        found = None
        passed: set[int] = set()
        for b in back.tolist():
            if b in passed:
                continue
            if tried >= TRIED:
                break
            tried += 1
            mine = np.flatnonzero(k == k[b])
            before, after = s[mine[mine < b]], s[mine[mine >= b]]
            beyond = np.flatnonzero(after > high[b])
            window = np.unique(after[: beyond[0]] if len(beyond) else after)
            old = np.unique(before[before >= s[b]])
            covered = np.isin(old, window)
            again = covered.any() and (not len(beyond) or covered[-1]) and (len(old) > 1 or not len(beyond))
            if again and _mostly_back(k, s, high, b):
                found = b
                break
            passed.update(mine[mine >= b][: beyond[0] if len(beyond) else None].tolist())
        if found is None:
            return attempt, late + len(back)
        late += int(np.count_nonzero(back < found))
        start += max(found, 1)
        attempt[start:] += 1


def _mostly_back(key: Keys, step: IntArray, high: IntArray, at: int) -> bool:
    """True when the series that hold most of the values before ``at`` go back behind it."""
    count = np.bincount(key[:at])
    later, place = np.unique(key[at:], return_index=True)
    back = later[(step[at + place] < high[at + place]) & (later < len(count))]
    return bool(count[back].sum() >= MOSTLY * at)


def _reached(key: Keys, step: IntArray) -> IntArray:
    """(n,) the highest step of the same series before each value, -1 for its first."""
    order = np.argsort(key, kind="stable")
    k, s = key[order], step[order]
    span = int(step.max(initial=0)) + 1
    base = np.concatenate([[0], np.cumsum(np.diff(k) != 0)]) * span
    top = np.maximum.accumulate(s + base) - base
    high = np.concatenate([[-1], top[:-1]])
    high[np.flatnonzero(np.diff(k)) + 1] = -1
    out = np.empty_like(high)
    out[order] = high
    return out


def _fill(whole: _Writing, names: list[str], seams: dict[tuple[int, int], str], rows: Rows) -> dict[int, str]:
    """Rows by attempt, step and repetition; returns the seams by row."""
    order = np.lexsort((whole.key, whole.step, whole.attempt))  # stable: repetitions stay in the order of writing
    _sort(whole, order)
    again = _again(whole)
    # The same value once more says nothing, unless the step stands still: then each writing is a row.
    same = np.concatenate([[False], again & (np.diff(whole.value.view(np.int64)) == 0)])
    if same.any():
        _sort(whole, np.flatnonzero(~(same & _moving([whole], len(names))[whole.key])))
        again = _again(whole)
    turn = _runs(np.concatenate([[False], again]))
    if turn.any():
        order = np.lexsort((whole.key, turn, whole.step, whole.attempt))
        _sort(whole, order)
        turn = turn[order]
    new = (np.diff(whole.attempt) != 0) | (np.diff(whole.step) != 0) | (np.diff(turn) != 0)
    edges = np.concatenate([[0], np.flatnonzero(new) + 1, [len(whole.key)]])
    del again, turn, new
    found: dict[int, str] = {}
    shapes: dict[bytes, list[str]] = {}
    for a, b in (
        (a, b) for k in range(0, len(edges), PIECE) for a, b in itertools.pairwise(edges[k : k + PIECE + 1].tolist())
    ):
        attempt, step = int(whole.attempt[a]), int(whole.step[a])
        if seams and (why := seams.pop((attempt, step), None)):
            found[rows.rows] = why
        keys = whole.key[a:b]
        shape = keys.tobytes()
        if (shown := shapes.get(shape)) is None:
            shown = [names[key] for key in keys.tolist()]
            if len(shapes) < SHAPES:
                shapes[shape] = shown
        rows.add(dict(zip(shown, whole.value[a:b].tolist(), strict=True)), float(step))
    return found


def _fill_in_order(whole: _Writing, names: list[str], rows: Rows) -> None:
    """Rows of a log without steps: a row ends where a series comes again."""
    row: dict[str, object] = {}
    for key, value in zip(whole.key.tolist(), whole.value.tolist(), strict=True):
        name = names[key]
        if name in row:
            rows.add(row)
            row = {}
        row[name] = value
    if row:
        rows.add(row)


def _again(whole: _Writing) -> NDArray[np.bool_]:
    """(n-1,) whether a value repeats attempt, step and series of the one before it."""
    alike = (np.diff(whole.attempt) == 0) & (np.diff(whole.step) == 0) & (np.diff(whole.key) == 0)
    return np.asarray(alike)


def _moving(parts: Sequence[_Writing], many: int) -> NDArray[np.bool_]:
    """(many,) for each series whether it has values at different steps."""
    low, high = np.full(many, np.iinfo(np.int64).max), np.full(many, np.iinfo(np.int64).min)
    for one in parts:
        np.minimum.at(low, one.key, one.step)
        np.maximum.at(high, one.key, one.step)
    return np.asarray(low < high)


def _runs(repeats: NDArray[np.bool_]) -> IntArray:
    """(n,) how many values directly before each one are repeated by it: 0 1 2 for three alike."""
    place = np.arange(len(repeats))
    return place - np.maximum.accumulate(np.where(repeats, 0, place))


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.2g} {unit}" if seconds < 10 * length else f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
