"""What a file holds, answers or not, told by the first record of one file of each kind of name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from rlclinic.errors import CannotRead
from rlclinic.readers.answers.forms import form_of, is_answer
from rlclinic.readers.answers.own import Own
from rlclinic.readers.answers.place import Place, Settings
from rlclinic.readers.answers.records import records
from rlclinic.readers.tabular.records import is_rollout

Content: TypeAlias = Literal["answers", "texts", ""]
"""What a file holds: saved answers, texts in no form that is known, something else."""

ALIKE = 60
"""Most kinds of names of which one file is opened (ours)."""
FIRST = 5
"""Records that are looked at for an answer; that of the first may be null (ours)."""
HEAD = 16 << 20
"""Longest first line in bytes of a file whose name does not say what it holds (ours)."""
_OF_LOGS = ("loss", "grad_norm", "learning_rate", "train_loss", "actor/loss")
_DIGITS = re.compile(r"\d{1,20}")
_MARKS = re.compile(r"(?=[0-9a-f-]{0,40}\d)[0-9a-f]{6}[0-9a-f-]{2,58}")


def content(path: Path) -> Content:
    """What the first record of a file says that the file holds; a row of a log also has a loss or a rate."""
    try:
        if path.suffix.lower() == ".jsonl":
            with path.open("rb") as stream:
                if len(stream.readline(HEAD)) == HEAD:
                    return ""
        place, first = Place.of(path, Settings()), None
        for record in itertools.islice(records(path), FIRST):
            if any(key in record for key in _OF_LOGS):
                return ""
            if is_answer(record, place):
                return "answers"
            first = first or record
    except (CannotRead, OSError):
        return ""
    return "texts" if first and is_rollout(first) else ""


def holds_answers(path: Path) -> bool:
    """True for a file in rows that holds saved answers whatever it is called."""
    return path.suffix.lower() in (".jsonl", ".parquet", ".csv") and content(path) == "answers"


def holds_metrics(path: Path) -> bool:
    """True for a file whose first records are rows of a log, whatever the file or its folder is called."""
    try:
        return any(key in record for record in itertools.islice(records(path), FIRST) for key in _OF_LOGS)
    except (CannotRead, OSError):
        return False


def has_columns(path: Path, columns: Mapping[str, str]) -> bool:
    """True for a file whose records have the ``columns`` that the user named, so that they are saved answers."""
    own = Own(columns)
    try:
        for record in itertools.islice(records(path), FIRST):
            if any(key in record for key in _OF_LOGS):
                return False
            if own.fits(record):
                return bool(form_of(own.renamed(record), Place.of(path, Settings()), own.columns or None))
    except (CannotRead, OSError):
        pass
    return False


class Sniffer:
    """Tells what files hold by one of each kind of name: those that differ in numbers only hold the same.

    Where there are too many kinds of names, a file holds what the last one of its ending in its folder does.
    """

    def __init__(self, look: Callable[[Path], Content] | None = None) -> None:
        self._look = look or content
        self._known: dict[str, Content] = {}
        self._beside: dict[tuple[str, str], Content] = {}

    def __call__(self, path: Path, parts: Iterable[str] = ()) -> Content:
        folder = "/".join(parts)
        alike, beside = _alike(f"{folder}/{path.name}"), (_alike(folder), path.suffix)
        found = self._known.get(alike)
        if found is None:
            if len(self._known) >= ALIKE:
                return self._beside.get(beside, "")
            found = self._known[alike] = self._beside[beside] = self._look(path)
        return found


def _alike(name: str) -> str:
    """A name without its numbers and fingerprints."""
    return _DIGITS.sub("0", _MARKS.sub("#", name))
