"""Phrases with choices and slots, from which simulated answers are put together."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

from rlclinic.errors import BadTable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent
_SLOT = re.compile(r"\$([a-z]+)")
_PART = re.compile(r"\{([^{}]*)\}|\$([a-z]+)")


class Slot(str):
    """The name of a value that is filled in."""

    __slots__ = ()


Phrase: TypeAlias = tuple["str | tuple[str, ...] | Slot", ...]
Pool: TypeAlias = Sequence[Phrase]


def phrase(text: str) -> Phrase:
    """A phrase read once: ``{a|b}`` is a choice, ``$name`` a slot; the rest stands as it is."""
    pieces: list[str | tuple[str, ...] | Slot] = []
    end = 0
    for found in _PART.finditer(text):
        if found.start() > end:
            pieces.append(text[end : found.start()])
        pieces.append(Slot(found[2]) if found[1] is None else tuple(found[1].split("|")))
        end = found.end()
    if end < len(text):
        pieces.append(text[end:])
    return tuple(pieces)


def pool(texts: Iterable[str]) -> Pool:
    """Several phrases, one of which is said at a time."""
    return tuple(phrase(text) for text in texts)


@cache
def words() -> Mapping[str, Mapping[str, Pool]]:
    """The pools of ``words.toml`` by language and name."""
    table = tomllib.loads((FOLDER / "words.toml").read_text(encoding="utf-8"))
    return {language: {name: pool(texts) for name, texts in pools.items()} for language, pools in table.items()}


class Voice:
    """Says phrases with one random stream; the same seed says the same."""

    __slots__ = ("_liked", "chance", "random")

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)
        self._liked: dict[int, tuple[Pool, list[Phrase]]] = {}
        self.chance = self.random.random
        """A number from 0 to below 1."""

    def below(self, most: int) -> int:
        """A whole number from 0 to ``most`` - 1."""
        return int(self.chance() * most)

    def between(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``."""
        return low + int(self.chance() * (high - low + 1))

    def one(self, things: Sequence[str]) -> str:
        """One of several texts."""
        return things[int(self.chance() * len(things))]

    def say(self, phrases: Pool, values: Mapping[str, str] | None = None) -> str:
        """One phrase of a pool with its choices made. ``values`` fills the slots; one without a value stays empty.

        A voice likes some phrases of a pool better than others, as a model does: the first of its own order most.
        """
        chance = self.chance
        if len(phrases) == 1:
            said_phrase = phrases[0]
        else:
            # The pool is kept beside its order, so that its id stays its own.
            known = self._liked.get(id(phrases))
            if known is None:
                known = self._liked[id(phrases)] = phrases, list(phrases)
                self.random.shuffle(known[1])
            said_phrase = known[1][int(chance() ** 1.6 * len(phrases))]
        out = []
        for piece in said_phrase:
            if piece.__class__ is tuple:
                said = piece[int(chance() * len(piece))]
                out.append(_SLOT.sub(lambda m: (values or {}).get(m[1], ""), said) if "$" in said else said)
            elif piece.__class__ is Slot:
                out.append("" if values is None else values.get(str(piece), ""))
            else:
                out.append(str(piece))
        return "".join(out)

    def word(self, name: str, values: Mapping[str, str] | None = None, language: str = "en") -> str:
        """A phrase of a pool of ``words.toml``; the English one where the language has none."""
        spoken = words()
        own = spoken.get(language, {})
        return self.say(own[name] if name in own else spoken["en"][name], values)

    def few(self, name: str, count: int) -> list[str]:
        """``count`` different phrases of a pool (fewer where it has not so many)."""
        said = [self.word(name) for _ in range(3 * count)]
        return list(dict.fromkeys(said))[:count]


@cache
def table(name: str) -> Mapping[str, Mapping[str, object]]:
    """A TOML file of this folder that holds tables by name. Raises BadTable for anything else."""
    found = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    for key, value in found.items():
        if not isinstance(value, dict):
            raise BadTable(f"tables in {name}.toml", key)
    return found
