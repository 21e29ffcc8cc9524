"""TensorBoard event files: scalars in both encodings and the settings beside them, read without TensorFlow."""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from rlclinic.errors import CannotRead
from rlclinic.model import Floats, Warn
from rlclinic.readers.axis import IntArray
from rlclinic.readers.binary.summaries import read_event, shape
from rlclinic.readers.binary.wire import Torn
from rlclinic.readers.config import SETTINGS
from rlclinic.readers.rows import KEY_COUNT, Inferred, Log, Rows
from rlclinic.readers.tabular.records import refuse, trains
from rlclinic.readers.tokens import KEY_LENGTH
from rlclinic.readers.written import Points, gather

MARK = b"brain.Event:"
"""What the first record of every event file holds."""
CHUNK = 4 << 20
"""Bytes taken apart at a time (ours)."""
RECORD = 256 << 20
"""Longest record in bytes that is believed (ours: TensorFlow's graphs stay below 2 GiB, RL trainers write none)."""
LOOKED = 1 << 20
"""Longest record in bytes that is looked into (ours: scalars and settings are far smaller, pictures are not wanted)."""
SHORT = 512
"""Longest record in bytes that may have been a scalar before it was damaged (ours: a scalar takes 30 to 300)."""
TEMPLATES = 50_000
"""Most shapes of messages remembered (ours: one for each series, and one more where a length needs another byte)."""
TAILS = 4
"""Most different ends of messages tried for each record (ours: a writer has one or two)."""
ALIKE = 8
"""Records of one length from which their checksums are worked out together (ours)."""

NAMED = 3
"""Most changed settings named in one sentence (ours)."""
_MODEL = "model_config"
_HELD_OUT = r"(?i)train|training|val|valid|validation|eval|evaluation|test"
_HEAD = struct.Struct("<QI")
_NOTHING, _NONZERO = bytes(12), re.compile(b"[^\0]")


@dataclass
class _File:
    """What one event file holds."""

    points: Points
    settings: dict[str, object] = field(default_factory=dict)
    model: dict[str, object] = field(default_factory=dict)
    purges: list[int] = field(default_factory=list)
    """Steps from which on a later writer declared everything before it void."""
    began: float = math.inf
    """Wall time of its first record, which states the version of the format."""
    damaged: int = 0
    cut: bool = False


def read_events(stream: IO[bytes], path: str) -> Log:
    """The log in one event file, a row for each step; of values repeated at a step the last counts.

    Record: length (8 bytes, little-endian), its checksum (4), the message, its checksum (4). What fails its checksum is
    left out and counted. Raises CannotRead when no training metric is inside.
    """
    return _log([_decoded(stream, path)], path)


def read_event_files(paths: Sequence[Path], evaluates: bool = False) -> Log:
    """One log from all event files of one run, whichever writer they come from.

    Files that follow each other in time are parts of the run (the later one wins, the seam is remembered); files in
    folders that ``add_scalars`` made give series of their own. What ``evaluates`` a run gives ``eval/TAG``, unless a tag
    shows that it was trained. Raises CannotRead when none holds a training metric.
    """
    root = Path(os.path.commonpath([path.parent for path in paths])) if paths else Path()
    trouble: list[Warn] = []
    files = [file for path in paths if (file := _opened(path, root, trouble)) is not None]
    if not files:
        seen = "; ".join(one.says for one in trouble) or "none given"
        raise CannotRead("TensorBoard event files", seen, hint="give the directory that holds them")
    log = _log(files, str(paths[0] if len(paths) == 1 else root), evaluates)
    if evaluates and not optimises(log.series):
        log = replace(log, series={_held_out(key): one for key, one in log.series.items()})
    return replace(log, warnings=(*log.warnings, *trouble))


def optimises(keys: Iterable[str]) -> bool:
    """True when a key is that of an optimizer, which evaluations have none of."""
    return any(re.search(r"(?i)grad(?:ient)?[ _/]?norm|learning[ _]?rate|(?:^|[/_])lr$", key) for key in keys)


def _held_out(key: str) -> str:
    """The tag of an evaluation by a name that says so."""
    return key if key.lower().startswith(("eval", "val-", "test")) else f"eval/{key.removeprefix('train/')}"


def _opened(path: Path, root: Path, trouble: list[Warn]) -> _File | None:
    try:
        with path.open("rb") as stream:
            return _placed(_decoded(stream, str(path)), path.parent.relative_to(root).parts)
    except OSError as error:
        trouble.append(Warn("source_left_out", f"{path.name}: {error.strerror or error}"))
        return None


def _log(files: Sequence[_File], path: str, evaluates: bool = False) -> Log:
    files = sorted(files, key=lambda one: one.began)
    for k, one in enumerate(files):
        for step in one.purges:
            for earlier in files[:k]:
                earlier.points.forget(step)
    rows = Rows()
    seams, said = gather([one.points for one in files], rows)
    if not rows.rows or not (evaluates or trains(rows)):
        held = "settings only" if any(one.settings for one in files) and not rows.rows else "without a training metric"
        raise refuse(
            path,
            f"a TensorBoard event file {held}" if len(files) == 1 else f"{len(files)} TensorBoard event files {held}",
            "give the directory: scalars may lie in another of its files",
        )
    if any(one.cut for one in files):
        said.append(Warn("torn_record", "the event file ends inside a record; everything before it is read"))
    if damaged := sum(one.damaged for one in files):
        said.append(Warn("damaged_records", f"{damaged} damaged places of the event file were skipped"))
    settings, changed = _settings(files)
    if changed:
        said.append(Warn("settings_changed", f"the settings of a later event file differ: {changed}"))
        if len(seams) == 1:
            seams = {row: f"{why}; {changed}" for row, why in seams.items()}
    log = rows.finish(path=path, format="tensorboard", nonfinite="kept", inferred=Inferred(seams=seams), warnings=said)
    return replace(log, config=settings)


def _settings(files: Sequence[_File]) -> tuple[dict[str, object], str]:
    """The settings in the files, those of later ones and of the training first; and which of the training changed."""
    model: dict[str, object] = {}
    trained: dict[str, object] = {}
    changed: dict[str, str] = {}
    for one in files:
        for key, value in one.settings.items():
            known = trained.get(key, value)
            if known != value and isinstance(value, (bool, int, float)) and isinstance(known, (bool, int, float)):
                changed[key] = f"{key} {known} -> {value}"
        model |= one.model
        trained |= one.settings
    more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
    return {**model, **trained}, ", ".join(list(changed.values())[:NAMED])[:300] + more


def _placed(file: _File, folder: tuple[str, ...]) -> _File:
    """The file with its series named after the folder it lies in, where that is how the writer tells them apart.

    ``add_scalars(tag, {name: value})`` writes ``tag`` into a folder ``tag_name`` (PyTorch) or ``tag/name`` (tensorboardX).
    """
    names = file.points.names
    if not folder:
        return file
    if len(names) == 1:
        tag, place = names[0], "/".join(folder)
        flat = tag.replace("/", "_") + "_"
        if folder[-1].startswith(flat) and len(folder[-1]) > len(flat):
            names[0] = f"{tag}/{folder[-1][len(flat) :]}"
            return file
        if f"/{place}".rpartition("/")[0].endswith(f"/{tag}"):
            names[0] = f"{tag}/{folder[-1]}"
            return file
    if re.fullmatch(_HELD_OUT, folder[-1]):
        names[:] = [name if name.startswith(f"{folder[-1]}/") else f"{folder[-1]}/{name}" for name in names]
    return file


# Framing: where the records lie


def _decoded(stream: IO[bytes], name: str) -> _File:
    file = _File(Points(Path(name).name))
    reader = _Reader(file)
    heads: dict[bytes, int] = {}
    known = heads.get
    data = b""
    while True:
        more = stream.read(CHUNK)
        data += more
        at, sizes, starts = 0, list[int](), list[int]()
        valid: IntArray | None = None
        wanted, total = 0, len(data)
        while at + 12 <= total:
            head = data[at : at + 12]
            size = known(head)
            if head == _NOTHING:  # a hole, as a file system leaves it behind when the machine goes down
                more_of_it = _NONZERO.search(data, at)
                at = more_of_it.start() if more_of_it else total
                file.damaged += more_of_it is not None
                continue
            if size is None:
                size = _length(head)
                if size >= 0 and len(heads) < TEMPLATES:
                    heads[head] = size
            if size < 0:
                file.damaged += 1
                if valid is None:
                    valid = _headers(data)
                place = int(np.searchsorted(valid, at + 1))
                at = int(valid[place]) if place < len(valid) else max(at + 1, total - 11)
                continue
            after = at + size + 16
            if after > total:
                wanted = size + 16
                break
            starts.append(at + 12)
            sizes.append(size)
            at = after
        if starts:
            reader.take(data, np.array(starts, dtype=np.int64), np.array(sizes, dtype=np.int64))
        data = data[at:]
        if wanted > LOOKED:
            if not _skip(stream, wanted - len(data)):
                file.cut = True
                break
            data = b""
        elif not more:
            file.cut = bool(data.strip(b"\0"))
            break
    return file


def _length(head: bytes) -> int:
    """The length that the first 12 bytes of a record state; -1 where they are none. Writers without checksums put 0."""
    size, check = _HEAD.unpack(head)
    return int(size) if size <= RECORD and check in (0, _masked(head[:8])) else -1


def _headers(data: bytes) -> IntArray:
    """Every place in ``data`` where a record begins for certain, by the checksum of its length."""
    raw = np.frombuffer(data, dtype=np.uint8)
    many = len(raw) - 11
    if many <= 0:
        return np.empty(0, dtype=np.int64)
    high = raw[4 : 4 + many] | raw[5 : 5 + many] | raw[6 : 6 + many] | raw[7 : 7 + many]
    low = raw[:many] | raw[1 : 1 + many] | raw[2 : 2 + many]
    place = np.flatnonzero((high == 0) & (low != 0))
    told = raw[place[:, None] + np.arange(8, 12)].copy().view("<u4")[:, 0]
    good: IntArray = place[_checksums(raw, place, 8) == told]
    return good


def _skip(stream: IO[bytes], size: int) -> bool:
    """Pass over ``size`` bytes; False when the file ends before."""
    while size > 0:
        passed = len(stream.read(min(size, CHUNK)))
        if not passed:
            return False
        size -= passed
    return True


# Checksums: CRC-32C, masked (tensorflow/core/lib/hash/crc32c.h)


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


_BYTE = _table()
_PLAIN: list[int] = _BYTE.tolist()
_PAIR = np.arange(1 << 16, dtype=np.uint32)
for _ in range(2):
    _PAIR = _BYTE[_PAIR & 0xFF] ^ (_PAIR >> 8)


def _masked(message: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in message:
        crc = _PLAIN[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _checksums(raw: NDArray[np.uint8], place: IntArray, size: int) -> NDArray[np.uint32]:
    """(n,) masked checksums of the ``size`` bytes at each place, two bytes at a time for all places together."""
    crc = np.full(len(place), 0xFFFFFFFF, dtype=np.uint32)
    for at in range(0, size - 1, 2):
        pair = raw[place + at].astype(np.uint32) | raw[place + (at + 1)].astype(np.uint32) << np.uint32(8)
        crc = _PAIR[(crc ^ pair) & 0xFFFF] ^ (crc >> np.uint32(16))
    if size % 2:
        crc = _BYTE[(crc ^ raw[place + (size - 1)]) & 0xFF] ^ (crc >> np.uint32(8))
    crc = ~crc
    return (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)


class _Reader:
    """Takes records in batches: those shaped like one seen before all at once, the others one by one."""

    def __init__(self, file: _File) -> None:
        self.file = file
        self._tails: list[tuple[int, int]] = [(0, 4)]
        """(bytes after the number, bytes of the number) of the messages seen."""
        self._shapes: list[dict[bytes, int]] = [{}]
        """For each of these, the series of every message seen by its bytes without the number."""

    def take(self, data: bytes, start: IntArray, size: IntArray) -> None:
        """All records of one batch, their messages at ``start`` (n,) with ``size`` (n,) bytes each."""
        raw = np.frombuffer(data, dtype=np.uint8)
        end = start + size
        step, body, plain = _steps(raw, start, size)
        kept, tails = self._alike(data, body.tolist(), end.tolist(), plain)
        slow = self._slow(data, start, end, np.flatnonzero(kept < 0))
        fast = np.flatnonzero(kept >= 0)
        if len(fast):
            fast = fast[_sound(raw, data, start[fast], size[fast])]
            self.file.damaged += int(np.count_nonzero(kept >= 0)) - len(fast)
        wall = _gathered(raw, start[fast] + 1, 8)
        value = np.zeros(len(fast))
        for number, (tail, width) in enumerate(self._tails):
            mine = tails[fast] == number
            if mine.any():
                value[mine] = _gathered(raw, end[fast[mine]] - tail - width, width)
        keys, steps = kept[fast], step[fast]
        if slow:
            at, *columns = zip(*slow, strict=True)
            order = np.argsort(np.concatenate([fast, np.array(at)]), kind="stable")
            keys = np.concatenate([keys, np.array(columns[0])])[order]
            steps = np.concatenate([steps, np.array(columns[1])])[order]
            wall = np.concatenate([wall, np.array(columns[2])])[order]
            value = np.concatenate([value, np.array(columns[3])])[order]
        self.file.points.extend(keys, steps, wall, value)

    def _alike(
        self, data: bytes, body: list[int], end: list[int], plain: NDArray[np.bool_]
    ) -> tuple[IntArray, IntArray]:
        """(n,) the series of each record shaped like a known one, -1 for the others; and which known end it has."""
        shapes, tails = self._shapes, self._tails
        known = shapes[0].get
        found = np.array([known(data[a : z - 4], -1) for a, z in zip(body, end, strict=True)], dtype=np.int64)
        found[~plain] = -1
        ends = np.zeros(len(body), dtype=np.int64)
        missing = np.flatnonzero(plain & (found < 0)).tolist()
        for k in missing:
            a, z = body[k], end[k]
            for number, (tail, width) in enumerate(tails):
                key = shapes[number].get(data[a : z - tail - width] + data[z - tail : z])
                if key is not None:
                    found[k], ends[k] = key, number
                    break
            else:
                found_shape = shape(data, a, z)
                if found_shape is None or (series := self._series(found_shape[0])) is None:
                    continue
                _, tail, width = found_shape
                if (tail, width) not in tails:
                    if len(tails) >= TAILS:
                        continue
                    tails.append((tail, width))
                    shapes.append({})
                number = tails.index((tail, width))
                if len(shapes[number]) < TEMPLATES:
                    shapes[number][data[a : z - tail - width] + data[z - tail : z]] = series
                    found[k], ends[k] = series, number
        return found, ends

    def _series(self, tag: str) -> int | None:
        points = self.file.points
        if not tag or len(tag) > KEY_LENGTH or (len(points.names) >= KEY_COUNT and tag not in points):
            return None
        return points.key(tag)

    def _slow(
        self, data: bytes, start: IntArray, end: IntArray, which: IntArray
    ) -> list[tuple[int, int, int, float, float]]:
        """(record, series, step, wall time, value) of the scalars in records of other shapes."""
        found: list[tuple[int, int, int, float, float]] = []
        for k in which.tolist():
            a, z = int(start[k]), int(end[k])
            message = data[a:z]
            try:
                event = read_event(message)
            except Torn:
                self.file.damaged += 1
                continue
            if self.file.began == math.inf and event.wall > 0:
                self.file.began = event.wall
            if not event.scalars and not event.texts and not event.starts and z - a > SHORT:
                continue
            if data[z : z + 4] not in (b"\0\0\0\0", _masked(message).to_bytes(4, "little")):
                self.file.damaged += 1
                continue
            if event.starts:
                self.file.points.forget(event.step)
                found = [one for one in found if one[2] < event.step]
                self.file.purges.append(event.step)
            for tag, value in event.scalars:
                if (number := self._series(tag)) is not None:
                    found.append((k, number, event.step, event.wall, value))
            for tag, words in event.texts:
                self._settings(tag, words)
        return found

    def _settings(self, tag: str, words: Mapping[str, object]) -> None:
        into = self.file.model if tag.startswith(_MODEL) else self.file.settings
        for key, value in words.items():
            if len(into) < SETTINGS or key in into:
                into[key] = value


def _steps(raw: NDArray[np.uint8], start: IntArray, size: IntArray) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """(n,) the step, where the summary begins, and whether the record starts with a wall time as events do."""
    last = len(raw) - 1
    plain = (size >= 20) & (raw[np.minimum(start, last)] == 0x09)
    at = np.minimum(start + 9, last)
    active = plain & (raw[at] == 0x10)
    at = at + active
    step = np.zeros(len(start), dtype=np.uint64)
    for shift in range(0, 70, 7):
        if not active.any():
            break
        byte = raw[np.minimum(at, last)]
        step |= np.where(active, byte & 0x7F, 0).astype(np.uint64) << np.uint64(shift)
        at = at + active
        active = active & (byte >= 0x80)
    plain &= ~active & (at + 8 <= start + size)
    return step.view(np.int64), at, plain


def _sound(raw: NDArray[np.uint8], data: bytes, start: IntArray, size: IntArray) -> NDArray[np.bool_]:
    """(n,) whether each record agrees with its checksum, or has none."""
    end = start + size
    told = raw[end[:, None] + np.arange(4)].copy().view("<u4")[:, 0]
    good: NDArray[np.bool_] = np.asarray(told == 0)
    for one in np.unique(size[~good]).tolist():
        mine = np.flatnonzero(~good & (size == one))
        if len(mine) >= ALIKE:
            good[mine] = _checksums(raw, start[mine], one) == told[mine]
        else:
            for k in mine.tolist():
                good[k] = _masked(data[int(start[k]) : int(end[k])]) == told[k]
    return good


def _gathered(raw: NDArray[np.uint8], place: IntArray, width: int) -> Floats:
    """(n,) the floats of ``width`` bytes at each place."""
    cells = raw[place[:, None] + np.arange(width)].copy()
    return np.asarray(cells.view("<f4" if width == 4 else "<f8")[:, 0], dtype=np.float64)
