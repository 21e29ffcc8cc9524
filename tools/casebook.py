"""Read the casebook: what each case is about, the run it describes, and what must be said of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlclinic.simulate import load_spec

FOLDER = Path(__file__).parents[1] / "tests" / "casebook"
BLOCK = re.compile(
    r"^## (?P<title>[^\n]+)$(?P<prose>(?:(?!^## ).)*?)```toml run\n(?P<run>.*?)```\s*```expect\n(?P<expect>.*?)```",
    re.M | re.S,
)


@dataclass(frozen=True)
class Case:
    """One heading of a casebook file."""

    check: str
    title: str
    prose: str
    spec: dict[str, Any]
    expect: tuple[str, ...]

    @property
    def silent(self) -> bool:
        """Whether nothing may ring: an information may be told, a warning may not."""
        return not any(re.search(r": (?:warning|critical)", line) for line in self.expect)

    def __str__(self) -> str:
        return f"{self.check}: {self.title}"


def cases() -> list[Case]:
    """Every case, file by file and in the order in which they stand there."""
    found = []
    for path in sorted(FOLDER.glob("*.md")):
        for block in BLOCK.finditer(path.read_text(encoding="utf-8")):
            expect = tuple(line.strip() for line in block["expect"].strip().splitlines() if line.strip())
            found.append(
                Case(path.stem, block["title"].strip(), block["prose"].strip(), load_spec(block["run"]), expect)
            )
    return found
