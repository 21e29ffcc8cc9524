"""Damage logs of every form and read them: nothing but a log or CannotRead may come out, soon and in little memory.

``python tests/fuzz.py [FORM...] [--files N] [--seed S]`` reads N damaged files of each form in a process of its own and
prints what became of them; the first file that breaks a form is kept, and its path told.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

SECONDS = 20
"""Longest time for one damaged file; the whole one takes milliseconds."""
WHOLLY = 10
"""Of so many files one is read up to the run that is made of it; the others by their reader alone, ten times as fast."""
MEGABYTES = 500
"""Most resident memory of the process that reads them all."""
_NUMBERS = (b"1e400", b"-1", b"9" * 400, b"NaN", b"null", b"{}", b"[]", b'""', b"0", b"-0.0", b"1e-400", b"\x00")


def damaged(whole: bytes, other: bytes, chance: random.Random) -> bytes:
    """One to three injuries: cut, bits turned over, pieces doubled, lost, moved, filled, or taken from another log."""
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if len(data) < 4:
            break
        chance.choice(_INJURIES)(data, other, chance)
    return bytes(data)


def _span(data: bytearray, chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(data))
    return begin, min(len(data), begin + 1 + int(2 ** chance.uniform(0, 13)))


def _cut(data: bytearray, other: bytes, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def _flip(data: bytearray, other: bytes, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 3, 30))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _double(data: bytearray, other: bytes, chance: random.Random) -> None:
    begin, end = _span(data, chance)
    at = chance.randrange(len(data))
    data[at:at] = bytes(data[begin:end]) * chance.choice((1, 1, 2, 50))


def _lose(data: bytearray, other: bytes, chance: random.Random) -> None:
    begin, end = _span(data, chance)
    del data[begin:end]


def _move(data: bytearray, other: bytes, chance: random.Random) -> None:
    begin, end = _span(data, chance)
    piece = bytes(data[begin:end])
    del data[begin:end]
    at = chance.randrange(len(data) + 1)
    data[at:at] = piece


def _fill(data: bytearray, other: bytes, chance: random.Random) -> None:
    begin, end = _span(data, chance)
    data[begin:end] = chance.choice((b"\0", b"\xff", b" ", b"9", b"{", b"[", b"-")) * (end - begin)


def _noise(data: bytearray, other: bytes, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(chance.randrange(1, 200))


def _number(data: bytearray, other: bytes, chance: random.Random) -> None:
    digits = [at for at in range(len(data)) if 48 <= data[at] <= 57]
    if digits:
        begin = end = chance.choice(digits)
        while end < len(data) and data[end] in b"0123456789.eE+-":
            end += 1
        data[begin:end] = chance.choice(_NUMBERS)


def _graft(data: bytearray, other: bytes, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    begin = chance.randrange(len(other))
    data[at:at] = other[begin : begin + 4096]


_INJURIES: tuple[Callable[[bytearray, bytes, random.Random], None], ...] = (
    _cut, _flip, _flip, _double, _lose, _move, _fill, _noise, _number, _graft,
)  # fmt: skip


class TooSlow(Exception):
    """One file took longer than ``SECONDS``."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def trial(form: str, files: int, seed: int, place: Path) -> dict[str, object]:
    """Read ``files`` damaged logs of one form, each from a file in ``place``: what became of them.

    Raises whatever a reader lets out, and TooSlow; the file that did it is then left in ``place``.
    """
    from rlclinic.errors import CannotRead
    from rlclinic.readers import read
    from rlclinic.readers.log import read_log
    from samples import samples

    made = samples()
    whole, name = made[form]
    others = [one for one, _ in made.values()]
    chance = random.Random(f"{form} {seed}")
    signal.signal(signal.SIGALRM, _alarm)
    begun, understood, slowest, path = time.monotonic(), 0, 0.0, place / name
    read_once(path, whole)
    for count in range(files):
        path.write_bytes(damaged(whole, chance.choice(others), chance))
        started = time.monotonic()
        signal.alarm(SECONDS)
        try:
            read([path]) if count % WHOLLY == 0 else read_log(path)
            understood += 1
        except CannotRead:
            pass
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.monotonic() - started)
    return {
        "form": form,
        "files": files,
        "read": understood,
        "slowest": slowest,
        "seconds": time.monotonic() - begun,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def read_once(path: Path, whole: bytes) -> None:
    """Raises CannotRead when the undamaged log is not read either: such a form would test nothing."""
    from rlclinic.readers import read

    path.write_bytes(whole)
    read([path])


def trials(forms: list[str], files: int, seed: int) -> Iterator[dict[str, object]]:
    """The outcome of each form, each in a process of its own; ``error`` holds the end of a traceback."""
    for form in forms:
        place = Path(tempfile.mkdtemp(prefix=f"fuzz-{form.replace('/', '-')}-"))
        command = [sys.executable, __file__, "--child", form, "--files", str(files), "--seed", str(seed), str(place)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            yield json.loads(done.stdout)
            for left in place.iterdir():
                left.unlink()
            place.rmdir()
        else:
            yield {
                "form": form,
                "error": done.stderr.strip()[-1500:] or f"killed ({done.returncode})",
                "kept": str(place),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("forms", nargs="*")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child")
    given = parser.parse_args()
    if given.child:
        print(json.dumps(trial(given.child, given.files, given.seed, Path(given.forms[0]))))
        return
    from samples import samples

    failed = False
    print(f"{'form':28}{'files':>8}{'read':>8}{'slowest':>11}{'peak':>9}")
    for told in trials(given.forms or list(samples()), given.files, given.seed):
        if "error" in told:
            failed = True
            print(f"{told['form']:28} {told['error']}\n    {told['kept']}", flush=True)
            continue
        over = float(str(told["megabytes"])) > MEGABYTES
        failed |= over
        print(
            f"{told['form']:28}{told['files']:>8}{told['read']:>8}{told['slowest']:>9.2f} s{told['megabytes']:>6.0f} MB"
            f"{' too much' if over else ''}",
            flush=True,
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
