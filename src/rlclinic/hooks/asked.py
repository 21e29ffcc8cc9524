"""What the environment asks of the hooks that nobody calls by hand: whether to watch, and with which options."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import rlclinic

SWITCH = "RLCLINIC"
"""``1`` turns on what trainers load by themselves, ``0`` turns everything off."""
SEVERITIES = ("warning", "critical")


def on() -> bool:
    """Whether a hook that a trainer loads by itself may do anything: only where ``RLCLINIC=1``."""
    return os.environ.get(SWITCH, "") == "1"


def off() -> bool:
    """Whether every hook, also one that was set by hand, does nothing: ``RLCLINIC=0``."""
    return os.environ.get(SWITCH, "") == "0"


def options() -> dict[str, Any]:
    """What ``RLCLINIC_STATE``, ``RLCLINIC_NAME``, ``RLCLINIC_STOP_AT`` and ``RLCLINIC_ALERT`` ask of a Monitor.

    What is asked wrongly is told in one line and left out, since a hook must not end a training.
    """
    found: dict[str, Any] = {}
    if state := os.environ.get("RLCLINIC_STATE", ""):
        found["state"] = state
    if name := os.environ.get("RLCLINIC_NAME", ""):
        found["name"] = name[:200]
    if level := os.environ.get("RLCLINIC_STOP_AT", "").strip().lower():
        if level in SEVERITIES:
            found["stop_at"] = level
        else:
            say(f"RLCLINIC_STOP_AT is {level[:40]!r}, not one of {', '.join(SEVERITIES)}: it is left out")
    return found


def monitor(known: Mapping[str, Any], chosen: Mapping[str, Any] | None = None) -> rlclinic.Monitor | None:
    """A Monitor with what the trainer makes ``known`` (None: nothing), over which the environment wins, over which wins what
    the user has ``chosen`` in code. None where all is off, or, with one line, where it cannot be made."""
    if off():
        return None
    try:
        given = {**{name: value for name, value in known.items() if value is not None}, **options(), **(chosen or {})}
        return rlclinic.Monitor(**given)
    except Exception as broken:
        say(f"no monitoring, training goes on: {type(broken).__name__}: {broken}")
        return None


def say(words: str) -> None:
    """One bounded line on stderr, whatever is in ``words``; never raises."""
    try:
        line = re.sub(r"\s+", " ", "".join(one if one.isprintable() or one.isspace() else "?" for one in words[:2_000]))
        print(f"rlclinic: {line[:600]}", file=sys.stderr, flush=True)
    except Exception:  # a closed or broken stream is no reason to disturb a training
        return


def whole(value: object) -> int | None:
    """A count of steps above 0; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if 0 < value < 1e12 else None


def number(value: object) -> float | None:
    """A number, also one of numpy or of a tensor with one element; None for anything else, texts of digits among it."""
    if value is None or isinstance(value, (str, bytes)):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return None


def inner(config: object, *path: str) -> Any:
    """The value below ``path`` in nested mappings; None where it is absent."""
    for name in path:
        config = config.get(name) if isinstance(config, Mapping) else None
    return config
