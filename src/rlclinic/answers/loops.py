"""Whether an answer runs into a loop: a tail that repeats one piece, a filler, or sentences that hardly change."""

from __future__ import annotations

import zlib

TAIL = 16_384
"""Characters at the end of an answer that are looked at (ours: a paragraph repeated for good fits many times)."""
_KEY = 32
_WINDOW = 2_048
"""Characters whose compression is measured (ours: 6,000 answers then take a third of a second)."""
_FILLER, _FEW = 0.9, 16
"""Share of one character from which an answer is filler, and the fewest characters of such an answer (ours)."""
_DENSE = 0.2
"""Compressed over raw size below which sentences are looked for that come again and again. Measured on 960 answers of
a public run: 0.29 to 0.52; of 15,000 pieces of manuals, programs and tables next to none lie below."""
_AGAIN, _GRAM = 0.8, 24
"""Share of the pieces of ``_GRAM`` characters that stand in the window before, from which it is a loop (ours)."""

_DIGITS = str.maketrans("123456789", "0" * 9)


def looped(text: str, *, cut: bool = False, known: str = "") -> bool:
    """Whether ``text`` ends in a loop. ``cut``: it was ended by a limit. ``known``: prompt and truth; what stands there
    may be repeated.

    A text that ended by itself has to be mostly loop, as tables and lists end regularly too; a cut one must end in it.
    Linear in the length of ``text``, of which at most ``TAIL`` characters are read.
    """
    tail = text[-2 * TAIL :].rstrip()[-TAIL:]
    n = len(tail)
    if n < _FEW:
        return False
    if _filler(tail) and (cut or n >= 200):
        return not _stands(tail[-min(n, 200) :], known)
    piece, length = period(tail)
    if piece and _is_loop(tail, piece, length, cut):
        return not _stands(tail[-min(length, 200) :], known)
    return n >= 1_200 and _restated(tail[-_WINDOW:])


def period(text: str) -> tuple[int, int]:
    """(period, length) of the longest periodic end of ``text`` that holds its period three times; (0, 0) without one."""
    n = len(text)
    size = min(_KEY, n // 3)
    if size < 4:
        return 0, 0
    at = text.rfind(text[n - size :], 0, n - 1)
    if at < 0:
        return 0, 0
    step = n - size - at
    low, high = size, n - step  # the last `low` characters equal those one period before
    while low < high:
        middle = (low + high + 1) // 2
        if text[n - middle :] == text[n - middle - step : n - step]:
            low = middle
        else:
            high = middle - 1
    length = low + step
    return (step, length) if length >= 3 * step else (0, 0)


def _is_loop(tail: str, piece: int, length: int, cut: bool) -> bool:
    words = any(map(str.isalpha, tail[-piece:]))
    times = length / piece
    if cut:
        return length >= (120 if words and piece > 1 else 200) and times >= (4 if piece < 60 else 3)
    if not words and piece > 1:  # grids of numbers, rules of tables
        return length >= 1_000 and length >= 0.5 * len(tail)
    enough = length >= 0.3 * len(tail) or length >= 1_500
    return length >= 300 and enough and times >= (6 if piece < 60 else 4)


def _filler(text: str) -> bool:
    n = len(text)
    one = max((text[n // 4], text[n // 2], text[3 * n // 4]), key=text.count)
    return text.count(one) >= _FILLER * n


def _restated(window: str) -> bool:
    """Whether most of ``window`` (n >= 1,200) says what it said before, whatever numbers it puts in."""
    raw = window.encode("utf-8", "replace")
    if len(zlib.compress(raw, 1)) >= _DENSE * len(raw):
        return False
    letters = sum(map(str.isalpha, window))
    code = sum(map(window.count, "(;{<|"))
    if letters < 0.5 * len(window) or code > 0.03 * len(window) or "```" in window:
        return False
    same = window.translate(_DIGITS)
    total = len(same) - _GRAM + 1
    distinct = len({same[k : k + _GRAM] for k in range(total)})
    return 1.0 - distinct / total >= _AGAIN


def _stands(piece: str, known: str) -> bool:
    return bool(known) and piece in known
