"""Which limits of the checks one series can be held against, with their numbers, and what that series is called."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from rlclinic import names
from rlclinic.checks import BY_NAME, Check, Limit
from rlclinic.errors import BadRequest, UnknownName, nearest
from rlclinic.model import Framework, Severity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLAIN = "{x}"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,200}")
_PREFIX = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]{0,60})?")


@dataclass(frozen=True)
class Level:
    """One limit and the series that it can be held against. ``value`` is what is compared: an expression of ``{x}``."""

    name: str
    checks: tuple[Check, ...]
    limit: Limit
    metric: str
    value: str = PLAIN
    mind: str = ""
    alarms: tuple[Severity, ...] = (Severity.WARNING, Severity.CRITICAL)
    """Severities that have a rule; of the others a panel only draws the line."""
    middle: bool = False
    """Whether the median of a window is compared and not its mean, since single rows of a healthy run are far out."""
    stands: str = ""
    """For how long it must hold, in the form of Prometheus, where a healthy run begins on the bad side."""

    @property
    def grades(self) -> Mapping[Severity, float]:
        """The numbers of what is worth an alert."""
        return {grade: number for grade, number in self.limit.grades.items() if grade >= Severity.WARNING}

    @property
    def told(self) -> Mapping[Severity, float]:
        """Of them, those that have a rule."""
        return {grade: number for grade, number in self.grades.items() if grade in self.alarms}

    @property
    def sign(self) -> str:
        """The comparison that is true on the bad side."""
        return ">" if self.limit.worse == "above" else "<"


@dataclass(frozen=True)
class Naming:
    """What the user's series are called: as his trainer's keys where ``framework`` is given, else as canonical metrics, with
    ``prefix`` before both; ``own`` (metric to series) wins."""

    framework: Framework | None = None
    prefix: str = ""
    own: Mapping[str, str] = field(default_factory=dict)

    def key(self, metric: str) -> str | None:
        """The trainer's own key of a metric; None when it writes none, or one that depends on names of the run."""
        if self.framework is None:
            return metric
        key = names.key_for(metric, self.framework)
        return None if key is None or "{" in key else key

    def series(self, metric: str) -> str | None:
        """The name of its series as Prometheus allows it; None when the trainer does not report it."""
        if metric in self.own:
            return self.own[metric]
        key = self.key(metric)
        if key is None:
            return None
        name = self.prefix + re.sub(r"[^a-zA-Z0-9_:]", "_", key)
        return name if _NAME.fullmatch(name) else f"_{name}"

    def scale(self, metric: str) -> float:
        """What a value of the series is multiplied by to be in the unit of the metric."""
        key = self.key(metric) if metric not in self.own else None
        rows = names.table_of(self.framework).exact.get(key or "", ()) if self.framework is not None else ()
        return next((row.scale for row in rows if row.name == metric), 1.0)


def naming(framework: str | None = None, prefix: str = "", own: Sequence[str] = ()) -> Naming:
    """The naming that the options of the command ask for; ``own`` are ``METRIC=SERIES``. Raises UnknownName, BadRequest."""
    if not _PREFIX.fullmatch(prefix):
        raise BadRequest("a prefix of letters, figures, '_' and ':'", repr(prefix)[:80], hint="--prefix grpo_")
    given: dict[str, str] = {}
    for one in own:
        metric, equals, series = (part.strip() for part in one.partition("="))
        if not equals or not _NAME.fullmatch(series):
            raise BadRequest("METRIC=SERIES", repr(one)[:80], hint="--series kl.ref=grpo_kl_to_reference")
        if metric not in names.metrics():
            raise UnknownName("a metric", repr(metric)[:80], nearest(metric, names.metrics()), "rlclinic metrics")
        given[metric] = series
    chosen = None if framework is None else names.detect((), given=framework)
    return Naming(chosen, prefix, given)


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("rlclinic.templates").joinpath("levels.toml").read_text(encoding="utf-8"))


@cache
def levels() -> tuple[Level, ...]:
    """Every level, in the order of the table."""
    made = []
    for row in _table()["level"]:
        checks = tuple(BY_NAME[name] for name in row["checks"])
        limit = checks[0].limits[row["limit"]]
        name = row.get("name", checks[0].name)
        alarms = tuple(Severity[one.upper()] for one in row.get("alarms", ("warning", "critical")))
        value, mind = row.get("value", PLAIN), row.get("mind", "")
        middle, stands = row.get("middle", False), row.get("stands", "")
        made.append(Level(name, checks, limit, row["metric"], value, mind, alarms, middle, stands))
    return tuple(made)


def left_out() -> tuple[tuple[tuple[str, ...], str], ...]:
    """Limits (``check.limit``) that no one series can be held against, with the reason."""
    return tuple((tuple(row["limits"]), row["why"]) for row in _table()["left_out"])


def not_finite() -> tuple[Check, tuple[str, ...], str]:
    """The check for values that are not finite, the metrics in which they are looked for, and what to mind."""
    row = _table()["not_finite"]
    return BY_NAME[row["check"]], tuple(row["metrics"]), row["mind"]


def wandb_key(metric: str, naming: Naming) -> str | None:
    """The key of a metric in W&B's history; None when the trainer does not report it."""
    key = naming.own.get(metric, naming.key(metric))
    framework = naming.framework
    through = framework is not None and framework.name in _table()["wandb"]["prefixed"] and metric not in naming.own
    if key is None or not through:
        return key
    if key.startswith(("eval/", "train/", "test/")):
        return key
    return f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}"


@cache
def shown() -> Mapping[str, tuple[str, ...]]:
    """Metrics worth a panel, by family of the checks: those with a level and those that a check cannot do without."""
    families: dict[str, list[str]] = {}
    placed: set[str] = set()
    wanted = [(one.checks[0].family, one.metric) for one in levels()]
    wanted += [
        (check.family, metric) for check in BY_NAME.values() for need in check.needs for metric in need.split("|")
    ]
    for family, metric in wanted:
        if metric in names.metrics() and metric not in placed:
            placed.add(metric)
            families.setdefault(family, []).append(metric)
    return {family: tuple(found) for family, found in sorted(families.items())}


def number(value: float) -> str:
    """A limit as it is written in an expression."""
    return f"{value:.10g}"
