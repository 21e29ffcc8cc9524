"""Files that grow under our eyes: whether they changed, and which rotated pieces of a log belong before it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

ENTRIES = 5_000
"""Most directory entries looked at for changes (ours: a look at them takes some 10 ms on a local disk)."""
LEVELS = 6
"""Deepest directory level looked at."""
PIECES = 64
"""Most rotated pieces of a log that are joined (ours)."""
JOINED = 256 << 20
"""Most bytes, unpacked, of a log joined from pieces; older ones are left beyond that (ours)."""
_PACKED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_NUMBERED = r"\.(\d{1,4})"
_DATED = r"[.\-_](\d{4}-?\d\d-?\d\d(?:[-_.T]?\d[\d\-_]{0,16})?)"
"""What a rotated piece has after the name of its log: logrotate gives it ``.1``, with dateext ``-20261130`` or, hourly,
``-2026113014`` (logrotate(8)); Python's RotatingFileHandler ``.1``, TimedRotatingFileHandler ``.2026-11-30_14-05-33`` or a
leading part of it down to the day (logging/handlers.py). A date may stand before the ending of the log, as logrotate's
``extension`` puts it; a number there is passed over, since attempts and ranks are numbered so, too."""
_BESIDE = ("-wal", "-journal")
_SKIPPED = frozenset({".git", "__pycache__", "node_modules", ".venv", "venv", "site-packages", ".cache", "completions"})

Mark: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Name, place on disk (inode), size and time of change of every file that was looked at."""


def mark(paths: Sequence[str | Path]) -> Mark:
    """What ``paths`` look like now: equal marks mean that nothing was written. Nothing is opened; never raises OSError.

    A path that is not there has no entry; of a directory at most ``ENTRIES`` entries are looked at. Links are followed
    where they were given, so that a link moved to another run is a change.
    """
    seen: list[tuple[str, int, int, int]] = []
    for path in paths:
        for one in (str(path), *(f"{path}{end}" for end in _BESIDE)):
            try:
                found = os.stat(one)
            except (OSError, ValueError):
                continue
            seen.append((one, found.st_ino, 0 if stat.S_ISDIR(found.st_mode) else found.st_size, found.st_mtime_ns))
            if stat.S_ISDIR(found.st_mode):
                seen += _inside(one)
            else:
                seen += [(str(other), *_signed(other)) for other in siblings(Path(one))]
    return tuple(seen)


def written(seen: Mark) -> float | None:
    """When the newest of the files was last written, in seconds of the epoch; None for a mark of nothing."""
    return max(one[3] for one in seen) / 1e9 if seen else None


def place(path: Path) -> int:
    """The place of a file on its disk (inode), by which a new file of the same name is told from the old; 0 for none."""
    return _signed(path)[0]


def _inside(top: str) -> Iterator[tuple[str, int, int, int]]:
    """The entries below ``top``: those of a directory before what lies deeper, so that a bound cuts the deepest."""
    level, left = [top], ENTRIES
    for _ in range(LEVELS):
        deeper: list[str] = []
        for folder in level:
            try:
                with os.scandir(folder) as entries:
                    found = sorted(
                        (one for _, one in zip(range(left), entries, strict=False)), key=lambda one: one.name
                    )
            except OSError:
                continue
            left -= len(found)
            for one in found:
                try:
                    if one.is_dir(follow_symlinks=False):
                        deeper += [one.path] if one.name not in _SKIPPED else []
                        yield one.path, one.inode(), 0, one.stat(follow_symlinks=False).st_mtime_ns
                        continue
                    now = one.stat()
                except OSError:
                    continue
                yield one.path, now.st_ino, now.st_size, now.st_mtime_ns
            if left <= 0:
                return
        level = deeper


def _signed(path: Path) -> tuple[int, int, int]:
    try:
        now = path.stat()
    except OSError:
        return 0, 0, 0
    return now.st_ino, now.st_size, now.st_mtime_ns


def siblings(path: Path) -> list[Path]:
    """The rotated pieces beside the log ``path``, by their names, oldest first; the newest ``PIECES`` of them.

    Where some are numbered and some dated, those of the way that was in use last come last.
    """
    stem, suffix = re.escape(path.stem), re.escape(path.suffix)
    packed = rf"(?:{'|'.join(map(re.escape, _PACKED))})?"
    whole = re.compile(rf"{stem}{suffix}(?:{_NUMBERED}|{_DATED}){packed}|{stem}{_DATED}{suffix}{packed}")
    found: list[tuple[bool, int, str, Path]] = []
    try:
        with os.scandir(path.parent) as entries:
            for _, one in zip(range(ENTRIES), entries, strict=False):
                if (told := whole.fullmatch(one.name)) is not None and one.is_file():
                    number, date = told[1], told[2] or told[3] or ""
                    found.append((number is not None, -int(number or 0), date, Path(one.path)))
    except (OSError, ValueError):
        return []
    changed = {kind: max((_signed(one[-1])[2] for one in found if one[0] is kind), default=0) for kind in (True, False)}
    numbered_last = changed[True] >= changed[False]
    kept: dict[str, Path] = {}
    for *_, part in sorted(found, key=lambda one: (one[0] is numbered_last, *one[1:])):
        # log.1 and log.1.gz are one piece, seen while it is being packed.
        bare = part.name.removesuffix(part.suffix) if part.suffix in _PACKED else part.name
        if bare == part.name or bare not in kept:
            kept[bare] = part
    return list(kept.values())[-PIECES:]


def joined(pieces: Sequence[Path]) -> bytes:
    """The text of ``pieces`` one after the other, the last ones where all would be more than ``JOINED``.

    A piece that cannot be read, or whose packing is damaged, gives what it holds up to there.
    """
    texts: list[bytes] = []
    left = JOINED
    for path in reversed(pieces):
        text = _text(path, left + 1)
        if len(text) > left:
            break
        left -= len(text)
        texts.append(text)
    return b"".join(reversed(texts))


def _text(path: Path, most: int) -> bytes:
    parts: list[bytes] = []
    try:
        with _PACKED.get(path.suffix, open)(path, "rb") as stream:  # type: ignore[operator]
            while most > 0 and (part := stream.read(min(most, 1 << 20))):
                parts.append(part)
                most -= len(part)
    except (OSError, EOFError, lzma.LZMAError, ValueError):
        pass
    return b"".join(parts)
