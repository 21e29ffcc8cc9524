"""A user's own table of names: the keys and settings of a loop that no framework table knows, read from a TOML file."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from rlclinic.errors import BadRequest, BadTable, CannotRead, UnknownName, nearest
from rlclinic.model import Framework
from rlclinic.names.rows import (
    LONGEST,
    KnobRow,
    MetricRow,
    frameworks,
    knob,
    knobs,
    load,
    metric,
    metrics,
    pattern,
    table_of,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SIZE_LIMIT = 1 << 20
"""Most bytes of a names file (ours: a draft with a thousand keys has about 100 KiB)."""
ROW_LIMIT = 2_000
"""Most keys named (ours: the widest real log has about 300)."""
NEST = 6
"""Deepest nesting that a key with unquoted dots may spell (ours)."""
TOP = ("extends", "title", "step", "metrics", "settings")
IN_METRIC = ("metric", "scale", "estimator", "note", "component")
IN_SETTING = ("setting", "scale", "note")
PARTS = ("reward.component.mean", "reward.component.std")
_MANY = (*PARTS, "eval.score", "eval.other", "run.summary")
"""Metrics that several keys of one log may hold."""


@dataclass(frozen=True)
class OwnNames:
    """What one names file says: the trainer underneath ("" for none), the step's key, and rows for metrics and settings."""

    path: str
    title: str
    extends: str
    step: str
    metrics: tuple[MetricRow, ...]
    settings: tuple[KnobRow, ...]

    def fits(self, key: str) -> bool:
        """Whether the file names this key, as the log has it or behind a tracker's prefix."""
        exact, families = self._told
        forms = {key, key.rpartition(" - ")[2].strip()}
        forms |= {form.removeprefix(prefix) for form in forms for prefix in ("train/", "eval/", "global/", "test/")}
        return not forms.isdisjoint(exact) or any(one.fullmatch(form) for one in families for form in forms)

    @cached_property
    def _told(self) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
        exact = frozenset(row.key for row in self.metrics if row.key)
        return exact, tuple(pattern(row.pattern) for row in self.metrics if row.pattern)

    def base(self, given: str | None) -> str:
        """The trainer to translate the other keys with, as ``detect`` takes it; ``given`` may add its version.

        Raises BadRequest when ``given`` is another trainer than the one that the file extends.
        """
        name = (given or "").partition("@")[0].strip().lower().replace("-", "_")
        if given and self.extends and name != self.extends:
            raise BadRequest(
                f"one trainer: {self.path} extends {self.extends}",
                f"--framework {given[:LONGEST]}",
                hint=f"--framework {self.extends}, or change extends in {self.path}",
            )
        return given or self.extends or "generic"

    def over(self, framework: Framework) -> Framework:
        """``framework`` with these names in front of its own."""
        below = table_of(framework)
        mine = {row.key: row for row in self.settings}
        spelled: dict[str, tuple[KnobRow, ...]] = {}
        for name, rows in below.knobs.items():
            # A spelling that the user gives to another setting no longer means what it means to the trainer.
            kept = [row for row in rows if row.key not in mine or mine[row.key].name == name]
            others = {key for key, row in mine.items() if row.name != name}
            spelled[name] = tuple(
                replace(row, aliases=tuple(a for a in row.aliases if a not in others))
                if others & {*row.aliases}
                else row
                for row in kept
            )
        for row in reversed(self.settings):
            spelled[row.name] = (row, *spelled.get(row.name, ()))
        title = self.title or (
            "own training loop" if framework.name == "generic" else f"{framework.title} with own names"
        )
        table = replace(
            below,
            title=title,
            knobs={name: rows for name, rows in spelled.items() if rows},
            own={row.key: row for row in self.metrics if row.key},
            own_families=tuple((pattern(row.pattern), row) for row in self.metrics if row.pattern),
            step=self.step,
        )
        why = f"names of {self.path}" + (f" over {load(framework.name).title}" if self.extends else "")
        return replace(framework, title=title, how="given", why=why, own=table)


def read_names(path: str | Path) -> OwnNames:
    """The names in a TOML file; see docs/own_names.md.

    Raises CannotRead for a file that cannot be opened, BadTable for one that breaks the form, UnknownName for a metric,
    setting or trainer that does not exist, each with the nearest names.
    """
    shown = str(path)
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(SIZE_LIMIT + 1)
    except OSError as problem:
        raise CannotRead(
            "a TOML file of names", f"{shown}: {problem.strerror}", hint="rlclinic names suggest LOG -o my.toml"
        ) from problem
    if len(data) > SIZE_LIMIT:
        raise CannotRead("a TOML file of names", f"{shown}: more than {SIZE_LIMIT >> 10} KiB")
    try:
        raw = tomllib.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as problem:
        hint = 'a key with / or spaces stands in quotes: "my/reward" = "reward.mean"'
        raise BadTable("a TOML file of names", f"{shown}: {problem}", hint=hint) from problem
    return names_from(raw, shown)


def names_from(raw: Mapping[str, Any], path: str) -> OwnNames:
    """The names in a parsed table; ``path`` is what the messages call it. Raises like ``read_names``."""
    for key, value in raw.items():
        if key not in TOP:
            hint = f"below [metrics]: {_quoted(key)} = {_quoted(value)}" if isinstance(value, str) else ""
            raise BadTable("what a names file may hold", f"{path}: {key!r}", nearest(key, TOP) or TOP, hint)
    words = {name: _text(raw.get(name, ""), f"{path}: {name}") for name in ("extends", "title", "step")}
    extends = words["extends"].lower().replace("-", "_")
    if extends and extends not in frameworks():
        raise UnknownName(
            "a trainer after extends", f"{path}: {words['extends']!r}", nearest(extends, frameworks()) or frameworks()
        )
    told = [_metric_row(key, value, path) for key, value in _rows(raw, "metrics", "metric", IN_METRIC, path)]
    spelled = [_knob_row(key, value, path) for key, value in _rows(raw, "settings", "setting", IN_SETTING, path)]
    _once([(row.name, row.key or row.pattern) for row in told if row.name not in _MANY and row.key], "metric", path)
    _once([(row.name, row.key) for row in spelled], "setting", path)
    if not raw.keys() & {"extends", "step", "metrics", "settings"}:
        hint = "rlclinic names suggest LOG -o my.toml drafts one"
        raise BadTable("a names file with [metrics], [settings] or step", f"{path}: nothing is named", hint=hint)
    if not (told or spelled or words["extends"] or words["step"]):
        hint = "take the # away from the lines that are right; rlclinic metrics lists the names"
        raise BadTable(
            "a name below [metrics] or [settings], step or extends", f"{path}: holds no live line", hint=hint
        )
    return OwnNames(
        path, words["title"], "" if extends == "generic" else extends, words["step"], tuple(told), tuple(spelled)
    )


def _rows(
    raw: Mapping[str, Any], section: str, target: str, fields: tuple[str, ...], path: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(key, {target: name, ...}) for every key of a section; a key written with bare dots is put together again."""
    rows = raw.get(section, {})
    if not isinstance(rows, dict):
        raise BadTable(f"[{section}] as a table of keys", f"{path}: {section} = {str(rows)[:60]!r}")
    pile: list[tuple[str, Any, int]] = [(key, value, 0) for key, value in reversed(rows.items())]
    count = 0
    seen: set[str] = set()
    while pile:
        key, value, depth = pile.pop()
        where = f"{path}: [{section}] {_quoted(key)}"
        if isinstance(value, dict) and target not in value and not (value.keys() & {*fields}) and depth < NEST:
            pile += [(f"{key}.{inner}", one, depth + 1) for inner, one in reversed(value.items())]
            continue
        count += 1
        if count > ROW_LIMIT:
            raise BadTable(f"at most {ROW_LIMIT} keys in [{section}]", path)
        if not key or len(key) > LONGEST:
            raise BadTable(f"a key of 1 to {LONGEST} characters", where[: LONGEST + 60])
        if key in seen:
            raise BadTable("each key once", where)
        seen.add(key)
        row = {target: value} if isinstance(value, str) else value
        if not isinstance(row, dict) or not isinstance(row.get(target), str):
            found = f"{where} = {str(value)[:60]}"
            raise BadTable(f"the name of a {target} in quotes, or {{ {target} = ..., ... }}", found)
        for name in row:
            if name not in fields:
                raise BadTable(f"what a {target} may say", f"{where}: {name!r}", nearest(name, fields) or fields)
        yield key, row


def _metric_row(key: str, row: dict[str, Any], path: str) -> MetricRow:
    where = f"{path}: [metrics] {_quoted(key)}"
    name = row["metric"].strip()
    if name not in metrics():
        raise UnknownName("a metric", f"{where} = {name!r}", _alike(name, metrics()), "rlclinic metrics")
    family = re.search(r"\{(name|path|n)\}", key) is not None
    places = re.findall(r"\{(?:name|path|n|any)\}", key)
    if len(set(places)) < len(places):
        raise BadTable("each of {name}, {path}, {n} and {any} once in a key", where)
    part = _text(row.get("component", ""), f"{where}: component")
    if part and name not in PARTS:
        raise BadTable(f"component only beside {PARTS[0]} or {PARTS[1]}", f"{where} = {name!r}")
    if name in PARTS and not part:
        part = re.sub(r"[_/.](?:mean|avg|std)$", "", key)
        part = re.split(r"[/.]", part)[-1] or key
    return MetricRow(
        name=name,
        source="own names",
        key="" if family else key,
        pattern=key if family else "",
        component=name in PARTS,
        evaluation=name.startswith("eval."),
        rank=-1,
        scale=_scale(row, where),
        estimator=_text(row.get("estimator", ""), f"{where}: estimator"),
        note=_text(row.get("note", ""), f"{where}: note"),
        part="" if family else part,
    )


def _knob_row(key: str, row: dict[str, Any], path: str) -> KnobRow:
    where = f"{path}: [settings] {_quoted(key)}"
    name = row["setting"].strip()
    if name not in knobs():
        raise UnknownName(
            "a setting",
            f"{where} = {name!r}",
            _alike(name, knobs()),
            "rlclinic explain learning_rate, or docs/knobs.md for all",
        )
    scale = _scale(row, where)
    if scale != 1.0 and knob(name).kind not in ("int", "float"):
        raise BadTable("scale only beside a number", f"{where}: {name} is a {knob(name).kind}")
    note = _text(row.get("note", ""), f"{where}: note")
    return KnobRow(name=name, key=key, source="own names", scale=scale, note=note)


def _once(pairs: Sequence[tuple[str, str]], what: str, path: str) -> None:
    first: dict[str, str] = {}
    for name, key in pairs:
        other = first.setdefault(name, key)
        if other != key:
            raise BadTable(f"one key for each {what}", f"{path}: {_quoted(other)} and {_quoted(key)} both name {name}")


def _scale(row: Mapping[str, Any], where: str) -> float:
    scale = row.get("scale", 1.0)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not math.isfinite(scale) or scale == 0:
        raise BadTable("scale as a number other than 0", f"{where}: {str(scale)[:40]}")
    return float(scale)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        raise BadTable(f"text in quotes of at most {LONGEST} characters", f"{where} = {str(value)[:60]!r}")
    return value.strip()


def _quoted(text: object) -> str:
    return '"' + str(text)[:LONGEST].replace("\\", "\\\\").replace('"', '\\"') + '"'


def _alike(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """The valid names nearest to ``name``: by spelling, by title, by a word that they share; else all.

    Those of the family that ``name`` itself begins with come first.
    """
    low = name.lower()
    words = set(re.split(r"[^a-z0-9]+", low)) - {"", "mean"}
    titles = {metric(one).title if one in metrics() else knob(one).title: one for one in known}
    found = [
        *nearest(low, known, 5),
        *(titles[title] for title in get_close_matches(low, titles, n=3, cutoff=0.7)),
        *sorted((one for one in known if words & set(re.split(r"[._]", one))), key=len)[:5],
    ]
    family = re.split(r"[._/]", low)[0]
    return tuple(sorted(dict.fromkeys(found or known), key=lambda one: one.split(".")[0] != family))
