"""A baseline as a file: TOML that people can read and edit, written to the same bytes from the same runs, read with care."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rlclinic.baseline.bands import BINS, METRICS, Course
from rlclinic.baseline.learning import MOST_RUNS, NAME, Learned, Learning, Source
from rlclinic.baseline.moving import movable
from rlclinic.baseline.recipe import HARD, SOFT, Recipe
from rlclinic.baseline.recipe import WORDS as _WORDS
from rlclinic.checks import BY_NAME
from rlclinic.checks.form import override
from rlclinic.diagnose import resolve
from rlclinic.errors import BadTable, UnknownName, nearest
from rlclinic.model import Floats, Scalar

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FORM = "rlclinic.baseline/1"
MOST = 1_000_000
"""Bytes of a baseline beyond which it is something else."""
_LARGEST = 1e100
"""The largest number that a file may hold."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = (
    "# What runs that were called healthy allow: from `rlclinic baseline learn`, for `rlclinic diagnose --baseline`.\n"
    "# The numbers under [limits] may be changed by hand; [bands] are drawn behind the curves and judge nothing.\n"
)
Table: TypeAlias = Mapping[str, Any]
_TABLES: Mapping[str, type] = {
    "form": str,
    "accepted": list,
    "run": list,
    "recipe": dict,
    "limits": dict,
    "bands": dict,
}


# ---------------------------------------------------------------------------------------------------- writing


def to_toml(learning: Learning) -> str:
    """The text of the file, ending with a newline; equal baselines give equal bytes."""
    recipe = learning.recipe
    lines = [_HEAD, f"form = {_value(FORM)}"]
    lines += [f"accepted = {_value(list(learning.accepted))}"] if learning.accepted else []
    lines += ["", "[recipe]"]
    if recipe.versions:
        lines.append(f"versions = {_value(list(recipe.versions))}")
    lines += [f"{name} = {_value(recipe.settings[name])}" for name in (*HARD, *SOFT) if name in recipe.settings]
    lines += [f"varied = {_value(list(recipe.varied))}"] if recipe.varied else []
    for run in learning.runs:
        lines += ["", "[[run]]", f"name = {_value(run.name)}", f"rows = {run.rows}", f"steps = {_value(run.steps)}"]
    for one in sorted(learning.limits, key=lambda one: (one.check, one.limit)):
        lines += ["", f"[limits.{one.check}.{one.limit}]"]
        lines += [f"{grade} = {_value(number)}" for grade, number in one.numbers.items()]
        lines += [f"because = {_value(one.because)}"]
        seen = ", ".join(f"{_key(metric)} = {_value(how)}" for metric, how in sorted(one.seen_in.items()))
        lines += [f"seen_in = {{ {seen} }}"] if seen else []
    for name, course in learning.bands.items():
        lines += ["", f"[bands.{_key(name)}]", f"key = {_value(course.key)}"]
        lines += [f"estimator = {_value(course.estimator)}"] if course.estimator else []
        lines += [f"runs = {course.runs}", f"rows = {course.rows}"]
        for word, numbers in (
            ("share", course.share),
            ("low", course.low),
            ("middle", course.middle),
            ("high", course.high),
        ):
            lines.append(f"{word} = [{', '.join(f'{number:.4g}' for number in numbers)}]")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Scalar | Sequence[str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(one) for one in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:.10g}"
    return '"' + "".join(map(_spelled, str(value)[:_WORDS])) + '"'


def _spelled(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    if c.isprintable():
        return c
    code = ord(c)
    return "?" if 0xD800 <= code < 0xE000 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# ---------------------------------------------------------------------------------------------------- reading


def read_baseline(path: Path) -> Learning:
    """The baseline in a file. Raises BadTable for what is no baseline or has a wrong value, with the line where it is known;
    UnknownName for a check, a limit or a grade that does not exist."""
    try:
        if not path.is_file():
            raise BadTable("a baseline", f"{path} is no plain file", hint="rlclinic baseline learn RUN... -o my.toml")
        if path.stat().st_size > MOST:
            raise BadTable("a baseline", f"{path} of {path.stat().st_size} bytes")
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as problem:
        raise BadTable(
            "a baseline", f"{path}: {problem}", hint="rlclinic baseline learn RUN... -o my.toml"
        ) from problem
    return _Reading(path.name, text).learning(table)


class _Reading:
    """One file on its way to a Learning; remembers the text, so that a fault can be told with its line."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines = text.splitlines()

    def fault(self, wanted: str, found: str, *path: str, choices: Iterable[str] = ()) -> BadTable:
        at = self.line(*path)
        where = f"{self.name}{f', line {at}' if at else ''}"
        return BadTable(
            wanted, f"{where}: {found[:200]}", choices, "rlclinic baseline show FILE says what a baseline holds"
        )

    def line(self, *path: str) -> int | None:
        """The line of a table's head or, where its last part is a key in it, of that key; None where it is not plain."""
        for depth in range(len(path), 0, -1):
            head = ".".join(_key(part) for part in path[:depth])
            heads = [(i, line.strip().strip("[] ")) for i, line in enumerate(self.lines, 1) if line.startswith("[")]
            found = [i for i, name in heads if name == head or name.startswith(f"{head}.")]
            if not found:
                continue
            for i in range(found[0], len(self.lines)):
                line = self.lines[i].strip()
                if line.startswith("[") or depth == len(path):
                    break
                if line.partition("=")[0].strip() == _key(path[depth]):
                    return i + 1
            return found[0]
        return next((i for i, line in enumerate(self.lines, 1) if path and line.strip().startswith(path[-1])), None)

    def learning(self, table: Table) -> Learning:
        if table.get("form") != FORM:
            raise self.fault(f"a baseline (form = {FORM!r})", f"form = {str(table.get('form'))[:60]!r}", "form")
        for key, value in table.items():
            if key not in _TABLES:
                raise self.fault("a part of a baseline", repr(key), key, choices=(*nearest(key, _TABLES), *_TABLES))
            if not isinstance(value, _TABLES[key]):
                raise self.fault(f"{key} as a table", repr(value)[:60], key)
        limits = tuple(
            self.limit(check, name, row)
            for check, rows in table.get("limits", {}).items()
            for name, row in self.limits_of(check, rows).items()
        )
        return Learning(
            recipe=self.recipe(table.get("recipe", {})),
            runs=self.runs(table.get("run", [])),
            limits=limits,
            bands=self.bands(table.get("bands", {})),
            accepted=tuple(self.accepted(name) for name in table.get("accepted", ())),
        )

    def accepted(self, name: Any) -> str:
        if not isinstance(name, str) or name not in BY_NAME:
            raise UnknownName(
                "the name of a check", self._at(str(name)), nearest(str(name), BY_NAME), "rlclinic checks"
            )
        return str(name)

    def recipe(self, table: Table) -> Recipe:
        known = (*HARD, *SOFT)
        settings: dict[str, Scalar] = {}
        for key, value in table.items():
            if key in ("versions", "varied"):
                if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                    raise self.fault(f"a list of names under recipe.{key}", repr(value), "recipe", key)
            elif key not in known:
                raise self.fault(
                    "a setting of a recipe", repr(key), "recipe", key, choices=nearest(key, known) or known
                )
            elif (
                not isinstance(value, (bool, int, float, str))
                or value != value
                or (not isinstance(value, str) and abs(value) > _LARGEST)
            ):
                raise self.fault(f"a plain value of recipe.{key}", repr(value), "recipe", key)
            else:
                settings[key] = value[:_WORDS] if isinstance(value, str) else value
        lists = {key: tuple(one[:_WORDS] for one in table.get(key, ())[:MOST_RUNS]) for key in ("versions", "varied")}
        return Recipe(settings, lists["versions"], lists["varied"])

    def runs(self, rows: Sequence[Any]) -> tuple[Source, ...]:
        if not rows or len(rows) > MOST_RUNS:
            raise self.fault(f"1 to {MOST_RUNS} tables [[run]]", f"{len(rows)}", "run")
        made = []
        for row in rows:
            name = row.get("name") if isinstance(row, dict) else None
            if not isinstance(name, str):
                raise self.fault("a name in every [[run]]", repr(row)[:60], "run")
            rows_, steps = (self.number(row, key, "run") for key in ("rows", "steps"))
            made.append(Source(name[:NAME], int(rows_), steps))
        return tuple(made)

    def number(self, row: Table, key: str, *path: str) -> float:
        value: Any = row.get(key)
        if type(value) not in (int, float) or not 0 <= value < 1e15:
            raise self.fault(f"a number from 0 on for {key}", repr(value)[:60], *path, key)
        return float(value)

    def limits_of(self, check: str, rows: Any) -> dict[str, Any]:
        (one,) = self._resolved(check)
        if not isinstance(rows, dict):
            raise self.fault(f"a table [limits.{check}]", repr(rows)[:60], "limits", check)
        for name in rows:
            if name not in one.limits:
                choices = nearest(name, one.limits) or tuple(movable(one)) or tuple(one.limits)
                raise UnknownName(f"a limit of {check}", self._at(name, check), choices, f"rlclinic explain {check}")
            if not one.limits[name].moves:
                what = f"{check}.{name}: what it stands for no recipe excuses (diagnose --limits FILE moves any)"
                raise self.fault("a limit that a baseline may move", what, "limits", check, name, choices=movable(one))
        return rows

    def _resolved(self, check: str) -> list[Any]:
        try:
            found = resolve([check])
        except UnknownName as problem:
            raise UnknownName(problem.wanted, self._at(check), problem.choices, problem.hint) from problem
        if len(found) != 1:
            raise self.fault("the name of one check", repr(check), "limits", check, choices=[one.name for one in found])
        return found

    def _at(self, name: str, *before: str) -> str:
        at = self.line("limits", *before, name)
        return f"{name[:80]!r} in {self.name}{f', line {at}' if at else ''}"

    def limit(self, check: str, name: str, row: Any) -> Learned:
        one = self._resolved(check)[0]
        built_in = one.limits[name]
        path = ("limits", check, name)
        if not isinstance(row, dict):
            raise self.fault(f"a table [{'.'.join(path)}]", repr(row)[:60], *path)
        because, seen = row.get("because", ""), row.get("seen_in", {})
        if not isinstance(because, str) or not isinstance(seen, dict) or not all(type(v) is str for v in seen.values()):
            raise self.fault("because as a text and seen_in as a table of texts", repr(row)[:80], *path)
        numbers = {grade: number for grade, number in row.items() if grade not in ("because", "seen_in")}
        old = (
            {"value": built_in.value}
            if built_in.value is not None
            else {s.label: v for s, v in built_in.grades.items()}
        )
        for grade, number in numbers.items():
            if grade not in old:
                raise UnknownName(f"a grade of {check}.{name}", self._at(grade, check, name), tuple(old))
            if type(number) not in (int, float) or not 0 <= number < _LARGEST:
                raise self.fault(f"a number from 0 on for {check}.{name}", repr(number)[:60], *path, grade)
        override(one.limits, {name: numbers.get("value", numbers)}, check_name=check, by="baseline")
        self._in_order({**old, **numbers}, built_in.worse, path)
        return Learned(
            one.name,
            name,
            {grade: float(number) for grade, number in numbers.items()},
            {grade: float(old[grade] or 0.0) for grade in numbers},
            {metric[:_WORDS]: how[:_WORDS] for metric, how in list(seen.items())[:BINS]},
            because[:_WORDS],
        )

    def _in_order(self, grades: Table, worse: str, path: tuple[str, ...]) -> None:
        """A warning begins before it is critical."""
        rising = [float(grades[label]) for label in ("info", "warning", "critical") if label in grades]
        if rising != sorted(rising, reverse=worse == "below"):
            raise self.fault("info, warning and critical in this order", f"{dict(grades)}", *path)

    def bands(self, table: Table) -> dict[str, Course]:
        if len(table) > METRICS:
            raise self.fault(f"at most {METRICS} bands", str(len(table)), "bands")
        return {name[:_WORDS]: self.band(name, row) for name, row in table.items()}

    def band(self, name: str, row: Any) -> Course:
        path = ("bands", name)
        if not isinstance(row, dict):
            raise self.fault(f"a table of the band of {name[:60]}", repr(row)[:60], *path)
        found = {word: self.numbers(row.get(word), word, *path) for word in ("share", "low", "middle", "high")}
        share = found["share"]
        if len({len(numbers) for numbers in found.values()}) != 1 or not (np.diff(share) > 0).all():
            raise self.fault("share, low, middle and high of one length, share increasing", f"{name[:60]}", *path)
        if not ((share > 0).all() and (share < 1).all() and (found["low"] <= found["high"]).all()):
            raise self.fault("shares between 0 and 1, low up to high", f"{name[:60]}", *path)
        key, estimator = row.get("key", ""), row.get("estimator", "")
        if not isinstance(key, str) or not isinstance(estimator, str):
            raise self.fault("key and estimator as texts", repr(row)[:60], *path)
        counts = [int(self.number(row, word, *path)) for word in ("runs", "rows")]
        return Course(key[:_WORDS], estimator[:_WORDS], counts[0], counts[1], **found)

    def numbers(self, value: Any, word: str, *path: str) -> Floats:
        good = isinstance(value, list) and 0 < len(value) <= BINS and all(type(v) in (int, float) for v in value)
        made = np.array([float(v) if abs(v) < _LARGEST else np.nan for v in value]) if good else np.empty(0)
        if not len(made) or not np.isfinite(made).all():
            raise self.fault(f"1 to {BINS} finite numbers for {word}", repr(value)[:60], *path, word)
        return made
