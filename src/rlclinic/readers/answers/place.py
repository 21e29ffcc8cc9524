"""Where a record of saved answers stands: its file, and the step and the split that names of files and folders tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Record: TypeAlias = Mapping[str, Any]

HELD_OUT = frozenset({"eval", "evals", "evaluation", "val", "valid", "validation", "heldout"})
"""Words in the name of a file, a folder or a split that say that its answers are to held-out prompts."""

_STEP = re.compile(r"(?i)(?:step|iteration|iter|update|ckpt|checkpoint|rollout_id)s?[-_ =]{0,2}(\d{1,12})(?!\d)")
_COUNTED = re.compile(
    r"(?i)(?:[a-z]{1,40}[-_]){0,4}(?:rollouts?|completions?|samples?|generations?|answers?|outputs?|trajector(?:y|ies)"
    r"|eval|val|validation|train|training|test|data)[-_](\d{1,12})"
)
_DATE = re.compile(r"(?:19|20)\d{6}(?:\d{4,6})?")
_SPLITTING = re.compile(r"[^a-z0-9]{1,9}")
_SAVED = frozenset(
    {"rollouts", "completions", "samples", "generations", "answers", "outputs", "data", "set", "step", "table"}
)
_NEUTRAL = frozenset({"all", "effective", "data", "rollouts", "files", "media", "table"})
_NEAR = 3


@dataclass(frozen=True)
class Settings:
    """What the settings and the log of the run say about its saved answers."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of the parts of the reward, by their names."""
    group_size: int | None = None
    reward_key: str | None = None
    """Which entry of a reward of several is trained on."""
    parts: frozenset[str] = frozenset()
    """The parts of the reward that the log names; empty where there is no log."""
    evaluations: str = ""
    """The name of the folder into which answers of evaluations are saved (verl); empty where no setting says it."""


@dataclass(frozen=True)
class Place:
    """Where a record stands, and what names tell where the record itself does not.

    ``step`` is that of the file's name, else of the folders around it; ``number`` the whole name of the file where that is
    a number. ``said`` takes what must be told of the file's answers; it is not part of the value.
    """

    path: Path
    settings: Settings
    step: float | None = None
    held_out: bool = False
    number: float | None = None
    said: dict[str, None] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(path: Path, settings: Settings) -> Place:
        """The place of a file; nothing is opened."""
        stem = stem_of(path.name)
        number = float(stem) if stem.isascii() and stem.isdigit() and len(stem) <= 12 else None
        aside = bool(settings.evaluations) and path.parent.name == settings.evaluations
        return Place(path, settings, _step(path, stem), aside or _held_out(path, stem), number)

    def say(self, text: str) -> None:
        """Tell something of the answers in this file, once."""
        self.said[text] = None


def stem_of(name: str) -> str:
    """The name of a file without what says how it is written and packed."""
    stem = name
    for _ in range(3):
        dot = stem.rfind(".")
        if dot <= 0 or stem[dot + 1 :].isdigit():
            break
        stem = stem[:dot]
    return stem


def _step(path: Path, stem: str) -> float | None:
    if path.name.endswith(".table.json"):
        return None  # the number in the name of a table is the tracker's own count
    found = numbered(stem)
    if found is None and stem.isascii() and stem.isdigit() and len(stem) <= 9 and not _DATE.fullmatch(stem):
        found = float(stem)
    if found is None and (counted := _COUNTED.fullmatch(stem)) and not _DATE.fullmatch(counted[1]):
        found = float(counted[1])
    for folder in path.parts[-2 : -2 - _NEAR : -1] if found is None else ():
        if (found := numbered(folder)) is not None:
            break
    return found


def numbered(name: str) -> float | None:
    """The number after the last word for a step in a name."""
    found = _STEP.findall(name[:400])
    return float(found[-1]) if found else None


def _held_out(path: Path, stem: str) -> bool:
    words = _words(stem)
    if any(_says(word, words, place) for place, word in enumerate(words)):
        return True
    for folder in path.parts[-2 : -2 - _NEAR : -1]:
        words = _words(folder)
        if any(_says(word, words, place) for place, word in enumerate(words)):
            return True
        if "train" in words or not (folder.lower() in _NEUTRAL or numbered(folder) is not None or folder.isdigit()):
            return False
    return False


def _words(name: str) -> list[str]:
    return _SPLITTING.split(name.lower()[:400])


def _says(word: str, words: list[str], place: int) -> bool:
    """True for a word that says held out; "test" says it only beside a number or a word for answers."""
    if word != "test":
        return word in HELD_OUT or (word == "held" and words[place + 1 : place + 2] == ["out"])
    after = words[place + 1 : place + 2]
    return not after or after[0].isdigit() or after[0] in _SAVED
