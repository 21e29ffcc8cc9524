"""What is known of the other tools (``rivals.toml``), and how every tool's words are held against the truth."""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_suffix(".toml")
US = "rlclinic"
LEVELS = {"info": 1, "warning": 2, "critical": 3}
Z95 = 1.96


@dataclass(frozen=True)
class Rule:
    """What counts as what: a tool's rule, where its words fit, names these checks."""

    rule: str
    names: tuple[str, ...]
    says: str = ""
    onset: str = ""
    also_ok: bool = False

    def fits(self, rule: str, text: str) -> bool:
        return re.fullmatch(self.rule, rule) is not None and re.search(self.says, text, re.I) is not None


@dataclass(frozen=True)
class Said:
    """One finding of any tool in words that can be compared."""

    rule: str
    level: int
    names: frozenset[str]
    step: float | None


@dataclass(frozen=True)
class Tool:
    """One rival: what is installed, and how its findings are read."""

    name: str
    version: str
    package: str
    handed: str
    unread: str
    onset: str
    levels: Mapping[str, str]
    rules: tuple[Rule, ...] = ()
    command: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def can_name(self) -> frozenset[str]:
        """Every check that some finding of it would be accepted for."""
        return frozenset(name for rule in self.rules for name in rule.names)

    def read(self, findings: Iterable[Sequence[Any]]) -> list[Said]:
        """Its findings (rule, level, text, step); what it does not call a problem is left out, but for ``also_ok``."""
        said = []
        for rule, spelled, text, step in findings:
            found = next((one for one in self.rules if one.fits(rule, text)), Rule(rule, ()))
            level = LEVELS.get(self.levels.get(spelled, ""), 1 if found.also_ok else 0)
            if step is None and found.onset and (told := re.search(found.onset, text)):
                step = float(told[1])
            if level:
                said.append(Said(rule, level, frozenset(found.names), step))
        return said


def ours(findings: Iterable[Sequence[Any]]) -> list[Said]:
    """The findings of rlclinic, whose rules are the checks themselves."""
    return [Said(rule, LEVELS[level], frozenset((rule,)), step) for rule, level, _, step in findings]


def load(path: Path = TABLE) -> dict[str, Tool]:
    """The rivals by name."""
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    tools = {}
    for name, row in told.items():
        rules = tuple(Rule(**{**one, "names": tuple(one["names"])}) for one in row.pop("rules"))
        tools[name] = Tool(name=name, **{**row, "rules": rules, "command": tuple(row.pop("command", ()))})
    return tools


def fingerprint(path: Path = TABLE) -> str:
    """Changes with every byte of the table, so that figures taken with another one are seen."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def wilson(part: int, whole: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927); (0, 1) where nothing was counted."""
    if not whole:
        return 0.0, 1.0
    share, z2 = part / whole, Z95 * Z95 / whole
    half = Z95 * math.sqrt(share * (1 - share) / whole + z2 / (4 * whole))
    centre = share + z2 / 2
    return max(0.0, (centre - half) / (1 + z2)), min(1.0, (centre + half) / (1 + z2))


def near(said: Iterable[Said], begins: float, steps: float, interval: float) -> bool:
    """Whether any finding puts the onset within 20 % of the run or two logging intervals of the true one."""
    slack = max(0.2 * steps, 2 * interval)
    return any(one.step is not None and abs(one.step - begins) <= slack for one in said)
