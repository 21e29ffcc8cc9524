"""What a check is: a function, its page, and a table of limits; plus the one way to run it on a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from typing import Any, TypeAlias, cast

from rlclinic.errors import BadTable, UnknownName, nearest
from rlclinic.model import ROLLOUTS, Examination, Finding, Maturity, Note, Run, Severity, Tier

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Unexamined:
    """Answer of a check that cannot look: the canonical metrics or facts that would have let it."""

    missing: tuple[str, ...]
    says: str = ""
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class NotApplicable:
    """Answer of a check whose question makes no sense for this run, with the reason."""

    says: str
    notes: tuple[Note, ...] = ()


Answer: TypeAlias = Finding | Unexamined | NotApplicable


SCALES = ("level", "share", "change")
"""What a limit that a baseline may move is: a level in a unit (moved by a factor), a share of a whole (moved in its odds, so
that it stays one), or a multiple of an earlier level (moved in its logarithm, so that 1 stays 1)."""


@dataclass(frozen=True)
class Limit:
    """One number that a check compares with: a single ``value``, or grades by severity in the direction ``worse``."""

    name: str
    says: str
    source: str
    value: float | None = None
    grades: Mapping[Severity, float] = field(default_factory=dict)
    worse: str = "above"
    decided_by: str = "built in"
    moves: str = ""
    """How a baseline may move it (``SCALES``); empty for what no recipe excuses: p-values, counts, facts, harm done."""
    moves_to: float | None = None
    """The farthest value to which a baseline may move it, where the scale's own bound does not fit."""


class Limits:
    """The limits of one check after user settings have been applied; looked up when the check first asks for one."""

    def __init__(self, check: str, limits: Callable[[], Mapping[str, Limit]]) -> None:
        self._check = check
        self._look_up = limits

    @cached_property
    def _limits(self) -> Mapping[str, Limit]:
        return self._look_up()

    def __getitem__(self, name: str) -> float:
        limit = self._of(name)
        if limit.value is None:
            raise BadTable(f"a single value for {self._check}.{name}", "a graded limit")
        return limit.value

    def at(self, name: str, severity: Severity) -> float:
        """The number at which ``severity`` begins."""
        return self._of(name).grades[severity]

    def grade(self, name: str, value: float) -> Severity | None:
        """The highest severity whose number ``value`` passes in the bad direction; None when it passes none."""
        limit = self._of(name)
        sign = 1.0 if limit.worse == "above" else -1.0
        reached = [severity for severity, bound in limit.grades.items() if sign * value > sign * bound]
        return max(reached, default=None)

    def _of(self, name: str) -> Limit:
        if name not in self._limits:
            raise BadTable(f"a limit of {self._check}", repr(name), sorted(self._limits))
        return self._limits[name]


Judge: TypeAlias = Callable[[Run, Limits], Answer]


@dataclass(frozen=True, eq=False)
class Check:
    """One check: its function, what it needs, and its table (read from the TOML file of the same name on first use).

    ``needs`` and ``uses`` hold canonical metrics; ``a|b`` means that either will do. ``points`` is how many finite values
    each needed metric must have.
    """

    name: str
    judge: Judge
    page: str
    needs: tuple[str, ...]
    uses: tuple[str, ...]
    points: int
    since: str

    @cached_property
    def table(self) -> Mapping[str, Any]:
        text = resources.files("rlclinic.checks").joinpath(f"{self.name}.toml").read_text(encoding="utf-8")
        return tomllib.loads(text)

    @property
    def family(self) -> str:
        return str(self.table["family"])

    @property
    def title(self) -> str:
        """The first line of the page: what this run has, in one sentence."""
        return self.page.strip().splitlines()[0]

    @property
    def info_title(self) -> str:
        """What takes its place where the check only informs and its title would say too much; empty where it never does."""
        return str(self.table.get("info_title", ""))

    @property
    def tier(self) -> Tier:
        return cast(Tier, self.table["tier"])

    @property
    def status(self) -> Maturity:
        return cast(Maturity, self.table["status"])

    @property
    def live(self) -> float | None:
        """Share of the planned steps for which a warning of it must stand before it is told while the run goes on; 0 for
        what no later row takes back, None where the usual share will do."""
        told = self.table.get("live")
        return None if told is None else float(told)

    @property
    def leads_to(self) -> Mapping[str, str]:
        return cast(Mapping[str, str], self.table.get("leads_to", {}))

    @property
    def explains_from(self) -> Mapping[str, float]:
        """Numbers that a finding must reach before it can be the cause of anything but of what names it, with a number
        ``of_NAME``, as its cause; one with a number ``not_NAME`` has another cause."""
        return cast(Mapping[str, float], self.table.get("explains_from", {}))

    @property
    def stands_for(self) -> tuple[str, ...]:
        """Failures that say less of the same: where this one warns, they are not told beside it."""
        return tuple(self.table.get("stands_for", ()))

    @property
    def companion_of(self) -> tuple[str, ...]:
        """Events that this failure leads to only when it began clearly before; begun with the event, it is part of it."""
        return tuple(self.table.get("companion_of", ()))

    @property
    def rivals(self) -> Mapping[str, str]:
        """Failures that look alike from their consequences, with the measurement that tells them apart."""
        return cast(Mapping[str, str], self.table.get("rivals", {}))

    @property
    def no_help(self) -> Mapping[str, str]:
        """What is often advised against this failure, with the reason why it does not help."""
        return cast(Mapping[str, str], self.table.get("no_help", {}))

    @property
    def symptom(self) -> bool:
        """True for what always has a cause elsewhere: of two findings equally grave it is told last."""
        return bool(self.table.get("symptom", False))

    @property
    def resume(self) -> str:
        """From where a cured run goes on: ``before`` the failure began, or from ``here``; empty where neither follows."""
        return str(self.table.get("resume", ""))

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(self.table.get("references", ()))

    @property
    def remedies(self) -> tuple[str, ...]:
        """Every remedy the check may name; its page lists them."""
        return tuple(self.table.get("remedies", ()))

    @cached_property
    def limits(self) -> Mapping[str, Limit]:
        return {name: _limit(self.name, name, row) for name, row in self.table.get("limits", {}).items()}


def _limit(check: str, name: str, row: Mapping[str, Any]) -> Limit:
    grades = {severity: float(row[severity.label]) for severity in Severity if severity.label in row}
    if ("value" in row) == bool(grades) or "source" not in row or "says" not in row:
        raise BadTable(f"says, source and either value or grades for limit {check}.{name}", f"keys {sorted(row)}")
    if row.get("moves", "") not in ("", *SCALES):
        raise BadTable(f"a way in which limit {check}.{name} moves", repr(row["moves"]), SCALES)
    return Limit(
        name=name,
        says=row["says"],
        source=row["source"],
        value=float(row["value"]) if "value" in row else None,
        grades=grades,
        worse=row.get("worse", "above"),
        moves=row.get("moves", ""),
        moves_to=row.get("moves_to"),
    )


def check(
    *, page: str | None, needs: Sequence[str] = (), uses: Sequence[str] = (), points: int = 1, since: str
) -> Callable[[Judge], Check]:
    """Turn a function into a :class:`Check` named like it; ``page`` is the module docstring and becomes its page."""

    def wrap(judge: Judge) -> Check:
        return Check(judge.__name__, judge, page or "", tuple(needs), tuple(uses), points, since)

    return wrap


def override(limits: Mapping[str, Limit], given: Mapping[str, Any], *, check_name: str, by: str) -> dict[str, Limit]:
    """``limits`` with the numbers of ``given`` (``{"ratio": {"warning": 0.4}}`` or ``{"p_value": 0.001}``) put in.

    Raises UnknownName for a limit or grade that does not exist, BadTable for a value that is no number.
    """
    merged = dict(limits)
    for name, value in given.items():
        numbers = value.values() if isinstance(value, Mapping) else [value]
        if not all(type(number) in (int, float) and 0 <= number < float("inf") for number in numbers):
            raise BadTable(
                f"numbers from 0 on for {check_name}.{name}", repr(value)[:80], hint=f"rlclinic explain {check_name}"
            )
        if name not in merged:
            choices = nearest(name, merged) or tuple(merged)
            raise UnknownName(f"a limit of {check_name}", repr(name), choices, f"rlclinic explain {check_name}")
        old = merged[name]
        if isinstance(value, Mapping):
            known = {severity.label: severity for severity in old.grades}
            for label in value:
                if label not in known:
                    raise UnknownName(f"a grade of {check_name}.{name}", repr(label), tuple(known))
            grades = {**old.grades, **{known[label]: float(number) for label, number in value.items()}}
            merged[name] = replace(old, grades=grades, decided_by=by)
        elif old.value is None:
            raise UnknownName(f"grades for {check_name}.{name}", repr(value), tuple(s.label for s in old.grades))
        else:
            merged[name] = replace(old, value=float(value), decided_by=by)
    return merged


def examine(
    one: Check, run: Run, *, given: Mapping[str, Any] | None = None, by: str = "limits file"
) -> tuple[Examination, tuple[Note, ...]]:
    """Run one check; whatever happens is an outcome. Returns the outcome and the notes it leaves.

    Checks of tier ``certain`` state facts and see the whole log; the others judge the last attempt only, so that a
    restart from scratch is no decline. An exception inside a check becomes the outcome ``failed``, never a crash.
    """
    if run.kind == "supervised":
        return Examination(one.name, "not_applicable", says="the log is of supervised training, not of RL"), ()
    missing = tuple(need for need in one.needs if not _present(run, need, one.points))
    if missing == (ROLLOUTS,):
        return Examination(
            one.name, "unexamined", missing=missing, says=f"needs saved answers: {one.title.rstrip('.')}"
        ), ()
    if missing:
        return Examination(one.name, "unexamined", missing=missing, says=_why_missing(run, missing, one.points)), ()
    changed = override(one.limits, given, check_name=one.name, by=by) if given else None
    limits = Limits(one.name, lambda: one.limits if changed is None else changed)
    last = run.last_attempt
    try:
        answer = one.judge(run if last is run or one.tier == "certain" else last, limits)
    except Exception as broken:
        return Examination(one.name, "failed", says=f"{type(broken).__name__}: {broken}"[:300]), ()
    if isinstance(answer, Unexamined):
        return Examination(one.name, "unexamined", missing=answer.missing, says=answer.says), answer.notes
    if isinstance(answer, NotApplicable):
        return Examination(one.name, "not_applicable", says=answer.says), answer.notes
    found = replace(answer, check=one.name, title=answer.title or one.title, tier=one.tier, notes=())
    return Examination(one.name, "examined", found, says=answer.says), answer.notes


def _present(run: Run, need: str, points: int) -> bool:
    return any((column := run.get(metric)) is not None and len(column.finite) >= points for metric in need.split("|"))


def _why_missing(run: Run, missing: Sequence[str], points: int) -> str:
    thin = [m for need in missing for m in need.split("|") if m in run]
    if thin:
        return f"{thin[0]} has {len(run[thin[0]].finite)} finite values; at least {points} are needed"
    return f"not in this log: {', '.join(missing)}"
