"""The tables as typed rows, each file read once: metrics, settings, remedies, references and one file per framework."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rlclinic.errors import BadTable, UnknownName, nearest
from rlclinic.model import Framework, Reference, Scalar

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parents[1] / "tables"
LONGEST = 200
"""Characters of a key or a text value that are looked at (ours: the longest key in the real logs read has about 90)."""
WATCHING = frozenset({
    "planned_steps", "epochs", "save_every", "logging_every", "log_entropy", "log_completions", "rollout_dir", "eval_every",
    "eval_strategy", "eval_answers", "eval_data", "eval_split", "answers_shown", "log_post_kl", "planned_samples", "resume",
    "gpus", "nodes", "hide_nonfinite", "calculate_log_probs", "algorithm",
})  # fmt: skip
"""Settings that say how a run is watched or how long it goes on; they change nothing that is learnt."""


@dataclass(frozen=True)
class Metric:
    """What one canonical metric means; ``low``/``high`` are None where it is unbounded."""

    name: str
    title: str
    says: str
    unit: str
    low: float | None = None
    high: float | None = None
    direction: str = ""


@dataclass(frozen=True)
class Setting:
    """What one canonical knob means; ``kind`` is int, float, switch, word or text."""

    name: str
    title: str
    says: str
    kind: str


NEEDS = ("", "off_policy", "reference", "critic", "tools", "sampler", "asynchronous", "parts", "groups")
"""What a remedy may need: several updates per batch, a KL to a reference, a critic, tools, a separate sampler, sampling
beside training, more than one reward part. Without it the remedy would change nothing."""


@dataclass(frozen=True)
class Turn:
    """How a remedy changes one knob: to ``to``, or by ``times`` then within ``at_least``/``at_most``.

    With ``like`` the value that is multiplied is that of another knob.
    """

    knob: str
    to: Scalar = None
    times: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    like: str = ""


MOVES = (
    "rises",
    "falls",
    "back",
    "rising",
    "not_rising",
    "not_falling",
    "slower",
    "calmer",
    "finite",
    "logged",
    "open",
)
"""How a metric should move after a remedy: its level above or below the one before (``rises``, ``falls``) or back where it
began (``back``); its course upwards (``rising``), no longer upwards or downwards, or ``slower``; fewer outliers
(``calmer``); all values ``finite``; ``logged`` at all; ``open`` where its values settle nothing."""
BOUNDS = ("above", "below")
"""Keys of a movement that ends within bounds, in place of a word of ``MOVES``."""


@dataclass(frozen=True)
class Remedy:
    """One remedy; ``set``, ``writes``, ``note`` and ``unavailable`` are one framework's own where it differs.

    ``needs`` says what the run must have for the remedy to do anything; see ``NEEDS``.
    """

    id: str
    says: str
    set: tuple[Turn, ...] = ()
    needs: str = ""
    restores: tuple[str, ...] = ()
    """Settings to put back to a value that the finding itself knows."""
    expect: Mapping[str, str] = field(default_factory=dict)
    moves: Mapping[str, str | Mapping[str, float]] = field(default_factory=dict)
    """``expect`` for a program: metric by metric a word of ``MOVES``, or bounds (``BOUNDS``)."""
    within: int | None = None
    risk: str = ""
    confirm: str = ""
    references: tuple[str, ...] = ()
    writes: str = ""
    note: str = ""
    since: str = ""
    unavailable: str = ""


@cache
def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _found(table: str, name: str, what: str) -> dict[str, Any]:
    rows = _toml(table)
    if name not in rows:
        raise UnknownName(f"a {what}", repr(name), nearest(name, rows) or sorted(rows))
    return dict(rows[name])


def metrics() -> tuple[str, ...]:
    """Every canonical metric."""
    return tuple(_toml("metrics"))


def knobs() -> tuple[str, ...]:
    """Every canonical knob."""
    return tuple(_toml("knobs"))


def remedies() -> tuple[str, ...]:
    """Every remedy id."""
    return tuple(_toml("remedies"))


def references() -> tuple[str, ...]:
    """Every reference id."""
    return tuple(_toml("references"))


@cache
def metric(name: str) -> Metric:
    """The canonical metric; raises ``UnknownName`` with the nearest names."""
    return Metric(name=name, **_found("metrics", name, "metric"))


@cache
def knob(name: str) -> Setting:
    """The canonical knob; raises ``UnknownName`` with the nearest names."""
    return Setting(name=name, **_found("knobs", name, "setting"))


@cache
def reference(id: str) -> Reference:
    """The reference, with authors and year folded into its title; raises ``UnknownName``."""
    row = _found("references", id, "reference")
    extra = ", ".join(str(row[part]) for part in ("authors", "year") if part in row)
    title = f"{row['title']} ({extra})" if extra else row["title"]
    return Reference(id=id, title=title, claim=row["claim"], link=row["link"])


def remedy(id: str, framework: Framework | None = None) -> Remedy:
    """The remedy, in the words of ``framework`` where its table has its own; raises ``UnknownName``.

    The first setting decides whether the framework knows the remedy at all; further ones that it lacks are left out.
    """
    row = _found("remedies", id, "remedy")
    table = table_of(framework)
    own = dict(table.remedies.get(id, {}))
    changes = {**row, **own}.get("set", {})
    turns = tuple(Turn(name, **(how if isinstance(how, dict) else {"to": how})) for name, how in changes.items())
    lacks = bool(turns) and table.name != "generic" and turns[0].knob not in table.knobs
    if lacks and not own.get("writes") and not own.get("unavailable"):
        own["unavailable"] = f"{table.title} has no such setting (looked up to {table.newest})"
    if table.name != "generic":
        turns = tuple(turn for turn in turns if turn.knob in table.knobs)
    fixed = {name: tuple(row.get(name, ())) for name in ("references", "restores")}
    return Remedy(**{**row, **own, **fixed, "id": id, "set": turns})


@dataclass(frozen=True)
class MetricRow:
    """One key (or family of keys, as ``pattern``) of one framework, and what it means from ``since`` to ``until``.

    ``until`` names the last release that means this; "0.26" holds for every 0.26.x. ``depends`` names what decides
    when neither version nor settings can.
    """

    name: str
    source: str
    key: str = ""
    pattern: str = ""
    since: str = ""
    until: str = ""
    when: Mapping[str, Any] = field(default_factory=dict)
    unless: Mapping[str, Any] = field(default_factory=dict)
    depends: str = ""
    component: bool = False
    evaluation: bool = False
    rank: int = 0
    scale: float = 1.0
    estimator: str = ""
    zero: str = ""
    note: str = ""
    part: str = ""
    """Name of the reward part or held-out set, where the key itself does not hold it."""


@dataclass(frozen=True)
class KnobRow:
    """One setting of one framework: where it is read, how it is written, and its default.

    Before ``renamed`` the first of ``aliases`` is its name. ``before`` says what holds before ``since`` where the setting
    is not simply absent.
    """

    name: str
    key: str
    source: str
    aliases: tuple[str, ...] = ()
    default: Scalar = None
    defaults: tuple[Mapping[str, Any], ...] = ()
    default_from: str = ""
    writes: str = ""
    map: Mapping[Scalar, Scalar] = field(default_factory=dict)
    reads: Mapping[str, Scalar] = field(default_factory=dict)
    since: str = ""
    until: str = ""
    renamed: str = ""
    before: str = ""
    note: str = ""
    anywhere: bool = False
    """Set by the training script, not by the trainer: looked for under every framework."""
    scale: float = 1.0
    """What the run's number is multiplied by to be in our unit."""


@dataclass(frozen=True)
class Table:
    """One framework table, with the rows of the table it extends where it has none of its own."""

    name: str
    title: str
    library: str
    checked: str
    newest: str
    style: str
    exact: Mapping[str, tuple[MetricRow, ...]]
    families: tuple[tuple[re.Pattern[str], MetricRow], ...]
    knobs: Mapping[str, tuple[KnobRow, ...]]
    versions: tuple[Mapping[str, str], ...]
    enables: Mapping[str, tuple[str, str, str]]
    """By metric: what to write, a note, and the version from which the trainer writes it by itself (or nothing)."""
    remedies: Mapping[str, Mapping[str, Any]]
    own: Mapping[str, MetricRow] = field(default_factory=dict)
    """Keys that a user named himself: they are looked up as written and win over every other row."""
    own_families: tuple[tuple[re.Pattern[str], MetricRow], ...] = ()
    step: str = ""
    """The key that a user named as the training step."""


@cache
def frameworks() -> tuple[str, ...]:
    """Names of the frameworks that have a table, the plain-words table last."""
    return tuple(sorted((p.stem for p in (FOLDER / "frameworks").glob("*.toml")), key=lambda n: (n == "generic", n)))


def table_name(framework: Framework | None) -> str:
    """The table that speaks for a framework; the plain-words table without one."""
    return "generic" if framework is None else framework.name


def table_of(framework: Framework | None) -> Table:
    """The table in use: the user's own where the framework carries one, else that of its name."""
    own = None if framework is None else framework.own
    return own if isinstance(own, Table) else load(table_name(framework))


def pattern(text: str) -> re.Pattern[str]:
    # {path} may hold slashes (a data source such as openai/gsm8k), {name} may not
    parts = {"{name}": "(?P<name>[^/]{1,150})", "{path}": "(?P<name>.{1,150}?)", "{n}": "(?P<n>[0-9]{1,6})"}
    parts["{any}"] = "[^/]{1,150}"
    return re.compile("".join(parts.get(piece, re.escape(piece)) for piece in re.split(r"(\{\w+\})", text)))


def _knob_row(row: dict[str, Any]) -> KnobRow:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    if "map" in row:
        fields["map"] = {{"true": True, "false": False}.get(name, name): own for name, own in row["map"].items()}
    return KnobRow(**fields)


@cache
def load(name: str) -> Table:
    """The table of a framework; raises ``UnknownName`` for others and ``BadTable`` for a row that breaks the form."""
    if name not in frameworks():
        near = nearest(name, frameworks()) or frameworks()
        raise UnknownName("a framework", repr(name), near, "rlclinic frameworks")
    raw = _toml(f"frameworks/{name}")
    parent = load(raw["extends"]) if "extends" in raw else None
    try:
        rows = [MetricRow(**row) for row in raw["metric"]]
        spelled = [_knob_row(row) for row in raw["knob"]]
        enables = {row["name"]: (row["writes"], row["note"], row.get("since", "")) for row in raw.get("enable", ())}
        said = {word: raw[word] for word in ("title", "library", "checked", "newest", "style")}
    except (TypeError, KeyError) as broken:
        wanted = "title, library, checked, newest and style; rows with known fields, a name and a source"
        raise BadTable(wanted, f"{name}.toml: {broken}") from broken
    exact: dict[str, tuple[MetricRow, ...]] = {}
    settings: dict[str, tuple[KnobRow, ...]] = {}
    for row in rows:
        if row.key:
            exact[row.key] = (*exact.get(row.key, ()), row)
    for setting in spelled:
        settings[setting.name] = (*settings.get(setting.name, ()), setting)
    families = tuple((pattern(row.pattern), row) for row in rows if row.pattern)
    return Table(
        name=name,
        **said,
        exact={**(parent.exact if parent else {}), **exact},
        families=families + (parent.families if parent else ()),
        knobs={**(parent.knobs if parent else {}), **settings},
        versions=tuple(raw.get("version", ())),
        enables={**(parent.enables if parent else {}), **enables},
        remedies={**(parent.remedies if parent else {}), **raw.get("remedy", {})},
    )


@cache
def head(name: str) -> dict[str, Any]:
    """What stands before the rows of a framework table; telling the dialects apart must not cost reading every row."""
    text = (FOLDER / "frameworks" / f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text[: text.index("\nmetric = [")])


def release(text: str) -> tuple[int, ...]:
    """The numbers of a version; empty when the text starts with none."""
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})", text.strip())
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


def reached(framework: Framework | None, bound: tuple[int, ...]) -> bool | None:
    """Whether the framework's version is at least ``bound``; None when the log does not tell."""
    if framework is None:
        return None
    pad = (0,) * 6
    version, low, high = (release(v or "") for v in (framework.version, framework.at_least, framework.below))
    wanted = (bound + pad)[:6]
    if version:
        return (version + pad)[:6] >= wanted
    if low and (low + pad)[:6] >= wanted:
        return True
    return False if high and (high + pad)[:6] <= wanted else None


def within(framework: Framework | None, since: str, until: str) -> bool | None:
    """Whether the version lies from ``since`` to the last release of ``until``; None when that is unknown."""
    begun = reached(framework, release(since)) if since else True
    last = release(until)
    over = reached(framework, (*last[:-1], last[-1] + 1)) if last else False
    if begun is False or over is True:
        return False
    return True if begun and over is False else None
