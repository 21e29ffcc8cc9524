"""Diagnose the RL post-training run of a language model from its logs."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rlclinic.assess import assess
    from rlclinic.compare import Comparison, compare
    from rlclinic.diagnose import diagnose
    from rlclinic.errors import BadRequest, BadTable, CannotRead, RlclinicError, UnknownName
    from rlclinic.live import Event, Monitor
    from rlclinic.live.post import alerts
    from rlclinic.model import Column, Diagnosis, Finding, Run, Severity
    from rlclinic.readers import read
    from rlclinic.report import render
    from rlclinic.stats.advantages import recompute_advantages
    from rlclinic.verify import verify

_HOME = {
    "BadRequest": "errors",
    "BadTable": "errors",
    "CannotRead": "errors",
    "Column": "model",
    "Comparison": "compare",
    "Diagnosis": "model",
    "Event": "live",
    "Finding": "model",
    "Monitor": "live",
    "RlclinicError": "errors",
    "Run": "model",
    "Severity": "model",
    "UnknownName": "errors",
    "alerts": "live.post",
    "assess": "assess",
    "compare": "compare",
    "diagnose": "diagnose",
    "read": "readers",
    "recompute_advantages": "stats.advantages",
    "render": "report",
    "verify": "verify",
}

__all__ = [
    "BadRequest",
    "BadTable",
    "CannotRead",
    "Column",
    "Comparison",
    "Diagnosis",
    "Event",
    "Finding",
    "Monitor",
    "RlclinicError",
    "Run",
    "Severity",
    "UnknownName",
    "__version__",
    "alerts",
    "assess",
    "compare",
    "diagnose",
    "read",
    "recompute_advantages",
    "render",
    "verify",
]


class _Package(ModuleType):
    """Keeps the functions ``diagnose`` and ``assess`` in front of the modules of the same name: Python sets a submodule
    as an attribute of its package whenever anything imports it."""

    def __setattr__(self, name: str, value: object) -> None:
        public = name in _HOME and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if public else value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    """Public names are loaded on first use, so that ``import rlclinic`` and ``--help`` stay free of numpy."""
    if name not in _HOME:
        raise AttributeError(f"module 'rlclinic' has no attribute {name!r}")
    found = getattr(import_module(f"rlclinic.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
