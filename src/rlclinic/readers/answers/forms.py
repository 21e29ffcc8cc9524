"""Whose form a record of saved answers has, by its keys, and the answers in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rlclinic.errors import CannotRead
from rlclinic.readers.answers.gather import Shape
from rlclinic.rollouts import Answer

Record: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Settings:
    """What the settings of the run say about its saved answers."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of the parts of the reward, by their names."""
    group_size: int | None = None
    reward_key: str | None = None


@dataclass(frozen=True)
class Place:
    """Where a record stands: its file, and the step and the split that names of files and folders tell."""

    path: Path
    settings: Settings
    step: float | None = None
    held_out: bool = False

    @staticmethod
    def of(path: Path, settings: Settings) -> Place:
        found = re.search(r"(\d{1,12})(?!.*\d)", path.stem)
        return Place(path, settings, float(found[1]) if found else None)


@dataclass(frozen=True)
class Form:
    """One form of saved answers: what holds for all its rows, and the answers in a record."""

    shape: Shape
    answers: Callable[[Record, Place], Iterator[Answer]]


def form_of(record: Record, place: Place, columns: Mapping[str, str] | None) -> Form:
    """The form of a file by its first record. Raises CannotRead for a record that no known trainer writes."""
    if "prompt" in record and "completion" in record:
        return Form(Shape("plain"), _plain)
    raise CannotRead("saved answers", f"{place.path}: keys of no known form: {', '.join(map(str, list(record)[:8]))}")


def _plain(record: Record, place: Place) -> Iterator[Answer]:
    ending = {"stop": "stopped", "length": "cut", "abort": "aborted"}.get(str(record.get("finish")), "")
    yield Answer(
        step=record.get("step", place.step),
        prompt=record.get("prompt"),
        text=record.get("completion"),
        reward=record.get("reward"),
        parts=record.get("rewards"),
        key=record.get("prompt_id"),
        tokens=record.get("n_tokens"),
        ending=ending,  # type: ignore[arg-type]
    )
