"""The vocabularies: log key to metric, configuration to settings, setting to the framework's own spelling.

Everything is decided by the tables, by framework and version; what an unknown version leaves open stays open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from rlclinic.errors import UnknownName, nearest
from rlclinic.model import Framework, Knob, Undecided
from rlclinic.names.rows import (
    LONGEST,
    NEEDS,
    WATCHING,
    KnobRow,
    Metric,
    MetricRow,
    Remedy,
    Setting,
    Table,
    Turn,
    frameworks,
    head,
    knob,
    knobs,
    load,
    metric,
    metrics,
    reference,
    references,
    release,
    remedies,
    remedy,
    table_name,
    table_of,
    within,
)
from rlclinic.names.rows import reached as _reached
from rlclinic.names.spelling import absent, default_knobs, flags, flatten, read_knobs, spell, write

__all__ = [
    "EVAL_RULES",
    "NEEDS",
    "WATCHING",
    "KnobRow",
    "Meaning",
    "Metric",
    "MetricRow",
    "Remedy",
    "Setting",
    "Table",
    "Turn",
    "absent",
    "default_knobs",
    "detect",
    "enable",
    "enabled",
    "evaluation_rank",
    "flags",
    "flatten",
    "frameworks",
    "head",
    "is_own",
    "key_for",
    "knob",
    "knobs",
    "load",
    "metric",
    "metrics",
    "nearest_keys",
    "reached",
    "read_knobs",
    "reference",
    "references",
    "remedies",
    "remedy",
    "spell",
    "strip",
    "table_name",
    "table_of",
    "translate",
    "unused",
    "versions_of",
    "write",
]

ENOUGH = 2
"""Weight from which on keys name a framework (ours: one key that two others share has 1, one of its own 3)."""
Role: TypeAlias = Literal["metric", "component_mean", "component_std", "evaluation"]


@dataclass(frozen=True)
class Meaning:
    """What a log key means. Times ``scale`` it is in the metric's unit; of several keys the lowest ``rank`` wins.

    ``part`` is the reward part or held-out set that the key names; ``zero`` says under which cause a constant 0 is no
    measurement (on_policy, no_reference, not_measured).
    """

    metric: str
    part: str | None
    role: Role
    scale: float
    estimator: str
    zero: str
    note: str
    rank: int
    key: str


# ---------------------------------------------------------------- framework and version


def _given(given: str) -> Framework:
    name, _, version = given.partition("@")
    name = name.strip().lower().replace("-", "_")
    if name not in frameworks():
        near = nearest(name, frameworks()) or frameworks()
        raise UnknownName("a framework", repr(given[:LONGEST]), near, "rlclinic frameworks")
    top = head(name)
    number = release(version)
    if version and (not number or not top["library"]):
        raise UnknownName("a version such as 0.26.0", repr(given[:LONGEST]), hint=f"{name} or {name}@0.26.0")
    # Unsloth counts in years; its own number says nothing about the TRL release underneath
    own = bool(number) and (name != "unsloth" or number[0] < 2000)
    bounds = _bounds(version) if own else {}
    return Framework(name, top["title"], how="given", why=f"given as {given[:LONGEST]}", **bounds)


def _bounds(version: str) -> dict[str, Any]:
    """The exact version, or for a development version only the release before it as a lower bound."""
    number = release(version)
    if not number:
        return {}
    if "dev" not in version and "git" not in version:
        return {"version": version.strip().lstrip("v")[:40]}
    major, minor = (*number, 0)[:2]
    return {"at_least": f"{major}.{max(minor - 1, 0)}.0"}


def _score(name: str, keys: set[str], config: set[str], seen: Mapping[str, str]) -> tuple[int, int, int, list[str]]:
    top = head(name)
    hits = [(row["weight"], row["keys"]) for row in top["signature"] if keys.issuperset(row["keys"])]
    by_keys = sum(weight for weight, _ in hits)
    named = [key for _, group in sorted(hits, key=lambda hit: -hit[0]) for key in group]
    by_config = 3 * len(config.intersection(top["config"]))
    own = name.replace("_", "-")
    by_text = (20 if "extends" in top or own == "ms-swift" else 4) if own in seen else 0
    if "extends" in top and by_keys + by_config + by_text:
        above = _score(top["extends"], keys, config, seen)
        by_keys, by_config, by_text = by_keys + above[0], by_config + above[1], by_text + above[2]
    return by_keys, by_config, by_text, list(dict.fromkeys(named))


def _leader(scores: Mapping[str, tuple[int, int, int, list[str]]]) -> str | None:
    """The framework that most speaks for; None when that is too little, or as much for another one."""
    ranked = sorted(((sum(score[:3]), name) for name, score in scores.items()), reverse=True)
    most, name = ranked[0] if ranked else (0, None)
    return name if most >= ENOUGH and [total for total, _ in ranked].count(most) == 1 else None


def detect(
    keys: Iterable[str],
    *,
    given: str | None = None,
    config_keys: Iterable[str] = (),
    text_versions: Mapping[str, str] | None = None,
    complete: bool = True,
) -> Framework | None:
    """Which framework wrote these log keys, and its version or the bounds on it; None when nothing speaks for one.

    ``given`` ("trl" or "trl@0.26.0") wins; ``text_versions`` holds library versions seen in the log. Only with
    ``complete`` (whole rows are known) does the absence of a key bound the version. Raises ``UnknownName`` for a
    ``given`` framework without table.
    """
    seen = {k.lower().replace("_", "-"): v for k, v in (text_versions or {}).items()}
    bare = {form for key in keys for form in (key, _plain(key), strip(key)[0])}
    if given:
        chosen = _given(given)
    else:
        settings = {key.lstrip("-+") for key in config_keys}
        scores = {name: _score(name, bare, settings, seen) for name in frameworks() if name != "generic"}
        # a loop that others build on also writes their rows, so it is named only where none of them is recognised
        built_on = {name for name in scores if head(name).get("base")}
        best = _leader({name: score for name, score in scores.items() if name not in built_on})
        if best is None and all(sum(scores[name][:3]) < ENOUGH for name in scores.keys() - built_on):
            best = _leader({name: scores[name] for name in built_on})
        if best is None:
            return None
        by_keys, by_config, by_text, named = scores[best]
        how: Literal["keys", "config", "log"] = "keys" if by_keys else "config" if by_config else "log"
        top = head(best)
        why = {
            "keys": f"keys {', '.join(named[:3])}" if named else f"keys of {top.get('extends', best)}",
            "config": "the names of its settings",
            "log": f"the log names {top['title']}",
        }[how]
        if by_text and how != "log":
            why += ", and the log names it"
        chosen = Framework(best, top["title"], how=how, why=why)
    library = head(chosen.name)["library"]
    if chosen.version or chosen.at_least:
        return chosen
    if release(seen.get(library, "")):
        return replace(chosen, **_bounds(seen[library]))
    return _bounded(chosen, bare, complete)


def settled(framework: Framework, installed: Mapping[str, str]) -> Framework:
    """The framework with the version that is ``installed``, unless its version is known or its log keys contradict it."""
    found = installed.get(head(framework.name)["library"], "")
    number = release(found)
    low, high = release(framework.at_least or ""), release(framework.below or "")
    if framework.version or not number or number < low or (high and number >= high):
        return framework
    bounds = _bounds(found)
    return replace(framework, **{"at_least": None, "below": None, **bounds}) if "version" in bounds else framework


def _bounded(framework: Framework, keys: set[str], complete: bool) -> Framework:
    low, high = "", ""
    for mark in load(framework.name).versions:
        if "absent" in mark:
            hit = complete and mark["absent"] not in keys and mark["beside"] in keys
        else:
            hit = mark["key"] in keys
        if hit and "since" in mark and release(mark["since"]) > release(low):
            low = mark["since"]
        if hit and "below" in mark and (not high or release(mark["below"]) < release(high)):
            high = mark["below"]
    if low and high and release(low) >= release(high):
        high = ""  # a key that is there proves more than one that is not
    return replace(framework, at_least=low or None, below=high or None)


# ---------------------------------------------------------------- log keys

_KEYS = 1_000
"""Keys of which is kept what their spelling says, as every look at a growing log asks again."""


def _bare(key: str) -> str:
    # W&B's charts prefix the run's name, notebook tables put spaces around slashes, ROLL says at the end how it reduced
    key = key[-LONGEST:].rsplit(" - ", 1)[-1].strip().replace(" / ", "/")
    return re.sub(r"(?<=.)@(?:sum|mean|max|min)$", "", key)


@lru_cache(maxsize=_KEYS)
def _plain(key: str) -> str:
    return re.sub(r"_at_(?=\d{1,6}(?:/|$))", "@", _bare(key))  # MLflow spells @ as _at_


@lru_cache(maxsize=_KEYS)
def strip(key: str) -> tuple[str, Literal["train", "eval"]]:
    """(bare key, scope): without tracker prefixes (train/, global/, eval/, eval_, test/), ``run - metric``, ``_at_``.

    Keys that merely contain such words keep them: verl's ``val-core/...`` is an evaluation by its own pattern, and
    ``val/`` means the value function in TRL's PPO trainer and in open-instruct.
    """
    key = _plain(key)
    scope: Literal["train", "eval"] = "train"
    for prefix in ("global/", "train/", "eval/", "test/", "eval_"):
        if key.startswith(prefix) and len(key) > len(prefix):
            key = key[len(prefix) :]
            scope = "eval" if prefix in ("eval/", "test/", "eval_") else scope
    return key, scope


_RIGHT = re.compile(r"acc|accuracy|accuracies|exact|em|pass1?|success|solved?|correct|win|f1")
_REWARD = re.compile(r"rewards?|scores?|return")
_NO_SCORE = re.compile(
    r"len|lengths?|loss|losses|runtime|time|seconds?|samples|steps?|epoch|entropy|clip|clipped|ratio|std|var|variance"
    r"|kl|zero|frac|grad|norm|lr|tokens?|tools?|min|max|terminated|memory|truncated|count|freq|size|sampling|ppl"
    r"|perplexity|num|format|turns|worst|maj|best|version|hist"
    r"|err|errors?|wer|cer|mse|mae|rmse|fails?|failed|failures?|wrong|incorrect|invalid|timeouts?"
)
_HELD = ("heldout", "held_out", "held-out", "holdout", "hold_out", "test/", "test_")

EVAL_RULES = (
    "the key that was named",
    "an accuracy, exact match or pass rate on a set called held-out or test",
    "verl validation accuracy (val-core first) with the most answers per prompt",
    "verl validation reward (val-core first) with the most answers per prompt",
    "OpenRLHF pass rate of one answer per prompt",
    "an accuracy, exact match or pass rate of an evaluation",
    "the reward of an evaluation",
    "another score of an evaluation",
)
"""Which of several held-out series is the score: the first rule that fits. Within one rule the first in the order of
the file is taken; series of different data sets are never merged."""


@lru_cache(maxsize=_KEYS)
def evaluation_rank(key: str, named: str | None = None) -> tuple[int, int, int] | None:
    """Where a held-out key stands in ``EVAL_RULES`` (lowest tuple wins); None for what is no held-out score.

    The order, and what is left out: (0) the key the user named; (1) held-out/test accuracy, exact match, pass rate;
    (2) verl val-core accuracy ``mean@N``, largest N first; (3) verl val-core reward; (4) OpenRLHF ``eval_*_pass1``;
    (5) other evaluation accuracies; (6) evaluation reward; (7) other evaluation scores. Lengths, losses, times,
    entropy, KL, clip ratios, spreads, shares of dead groups and rates of errors (lower is better) are no scores.
    """
    if key == "eval.score" or (named is not None and key == named):
        return 0, 0, 0  # our own name of the score names it
    plain = _plain(key)
    for prefix in ("global/", "train/"):
        plain = plain.removeprefix(prefix)
    low = plain.lower()
    core = re.fullmatch(r"val-(core|aux)/.{1,150}/([^/]{1,60})/mean@(\d{1,6})", low)
    if core:
        accurate = any(map(_RIGHT.fullmatch, re.split(r"[^a-z0-9]+", core[2])))
        return (2 if accurate else 3), int(core[1] == "aux"), -int(core[3])
    if low.startswith(("val-core/", "val-aux/", "rewards/")):
        return None
    words = set(re.split(r"[^a-z0-9]+", low))
    right, plainly = any(map(_RIGHT.fullmatch, words)), any(map(_REWARD.fullmatch, words))
    held = low.startswith(_HELD) or any(word in low for word in _HELD[:5])
    val = low.startswith(("val/", "val_", "valid/", "validation/", "validation_")) and (right or plainly)
    if not (held or val or low.startswith(("eval/", "eval_", "eval-rollout/"))) or any(map(_NO_SCORE.fullmatch, words)):
        return None
    if held and right:
        return 1, 0, 0
    if re.fullmatch(r"(?:eval/)?eval_.{1,150}_pass1", low):
        return 4, 0, 0
    if right:
        return 5, 0, 0
    if plainly:
        return 6, int("rewards" in words), 0
    return None if low.startswith("test_") else (7, 0, 0)


def _rows(table: Table, key: str) -> tuple[tuple[MetricRow, ...], str | None]:
    if key in table.exact:
        return table.exact[key], None
    for regex, row in table.families:
        hit = regex.fullmatch(key)
        if hit:
            return (row,), hit.groupdict().get("name")
    return (), None


def _holds(conditions: Mapping[str, Any], knobs: Mapping[str, Knob]) -> list[bool]:
    """For each condition whether the setting is known to have (one of) the given values; unknown counts as no."""
    answers = []
    for name, wanted in conditions.items():
        known = str(knobs[name].value).lower() if name in knobs else None
        answers.append(known in {str(v).lower() for v in (wanted if isinstance(wanted, list) else [wanted])})
    return answers


def _applies(row: MetricRow, framework: Framework | None, knobs: Mapping[str, Knob]) -> bool | None:
    if not all(_holds(row.when, knobs)) or any(_holds(row.unless, knobs)):
        return False
    return None if row.depends else within(framework, row.since, row.until)


def translate(key: str, framework: Framework | None, knobs: Mapping[str, Knob]) -> Meaning | Undecided | None:
    """What a log key means in this framework; ``Undecided`` if that hangs on something unknown, None if unknown.

    A condition on a setting that is not in ``knobs`` counts as not met: the usual meaning holds. Without framework, and
    for keys its table lacks, the plain-words table answers with a rank that loses against any own key.
    """
    whole, logged = _plain(key), _bare(key)  # pass_at_8 is pass@8 from MLflow, or a trainer's own spelling
    bare, scope = strip(key)
    tables = [table_of(framework)]
    if framework is not None and framework.name != "generic":
        tables.append(load("generic"))
    if (mine := _mine(key, whole, bare, tables[0])) is not None:
        row, part, form = mine
        if row.evaluation or not (form == bare != whole and scope == "eval"):
            return _decide(key, (row,), part or row.part or None, tables[0], framework, knobs, 0)
    score = evaluation_rank(key)
    for behind, table in enumerate(tables):
        words = re.sub(r"[\s\-]+", "_", bare.lower())
        for form in dict.fromkeys((whole, logged, bare) if table.name != "generic" else (bare, words)):
            rows, part = _rows(table, form)
            if rows and not (form not in (logged, whole) and scope == "eval"):
                return _decide(key, rows, part, table, framework, knobs, 100 * behind)
        if scope == "train" and "/" not in bare and (rows := _by_last_word(table, bare)):
            return _decide(key, rows, None, table, framework, knobs, 100 * behind + 50)
    if whole == "eval.score":
        return Meaning("eval.score", None, "evaluation", 1.0, "", "", "", 0, key)
    if score is not None:
        return Meaning("eval.score", None, "evaluation", 1.0, "", "", "", score[0], key)
    if scope == "eval":
        held = {"length.response.mean": "eval.length.mean", "length.truncated_frac": "eval.truncated_frac"}
        rows, _ = _rows(tables[0], bare)
        return Meaning(
            held.get(rows[0].name if rows else "", "eval.other"), None, "evaluation", 1.0, "", "", "", 50, key
        )
    if whole in metrics():
        return Meaning(whole, None, "metric", 1.0, "", "", "our own name of this metric", 300, key)
    return None


def _mine(key: str, whole: str, bare: str, table: Table) -> tuple[MetricRow, str | None, str] | None:
    """The row that the user wrote for a key, the part that it names, and the form of the key that it fits."""
    for form in dict.fromkeys((key, whole, bare)) if table.own or table.own_families else ():
        if form in table.own:
            return table.own[form], None, form
        for regex, row in table.own_families:
            if hit := regex.fullmatch(form):
                return row, hit.groupdict().get("name"), form
    return None


def is_own(key: str, framework: Framework | None) -> bool:
    """Whether the user's own table names this key."""
    return _mine(key, _plain(key), strip(key)[0], table_of(framework)) is not None


def unused(keys: Iterable[str], framework: Framework | None) -> tuple[str, ...]:
    """The keys of the user's own table that fit none of ``keys``, as after a slip of the pen."""
    table = table_of(framework)
    hits = [_mine(key, _plain(key), strip(key)[0], table) for key in keys]
    used = {id(hit[0]) for hit in hits if hit is not None}
    rows = [*table.own.values(), *(row for _, row in table.own_families)]
    return tuple(row.key or row.pattern for row in rows if id(row) not in used)


def _by_last_word(table: Table, bare: str) -> tuple[MetricRow, ...]:
    """The rows of the one key of the table that ends in ``/bare``: tables typed by hand and notebooks drop the rest."""
    ends = [rows for known, rows in table.exact.items() if known.endswith(f"/{bare}")]
    return ends[0] if len(ends) == 1 else ()


def _decide(
    key: str,
    rows: tuple[MetricRow, ...],
    part: str | None,
    table: Table,
    framework: Framework | None,
    knobs: Mapping[str, Knob],
    behind: int,
) -> Meaning | Undecided:
    # a key that no row allows in this version is in the log all the same: the stated version must be wrong
    possible = [row for row in rows if _applies(row, framework, knobs) is not False] or list(rows)
    names = tuple(dict.fromkeys(row.name for row in possible))
    if len(names) > 1:
        changed = max((row.since for row in possible), key=release)
        return Undecided(
            key,
            names,
            possible[0].depends
            or f"the {_versions_of(table)} version (changed at {changed}; give it with --framework NAME@VERSION)",
        )
    row = possible[0]
    role: Role = "evaluation" if row.evaluation else "metric"
    if row.component:
        role = "component_std" if row.name.endswith(".std") else "component_mean"
    return Meaning(row.name, part, role, row.scale, row.estimator, row.zero, row.note, row.rank + behind, key)


def nearest_keys(key: str, framework: Framework | None) -> tuple[str, ...]:
    """The known keys closest in spelling to an unknown one, best first."""
    table = table_of(framework)
    known = [*table.own, *table.exact, *(row.pattern for _, row in table.families)]
    return nearest(strip(key)[0], known)


def key_for(metric: str, framework: Framework | None) -> str | None:
    """The log key under which this framework writes a metric in this version; None when it does not write it."""
    table = table_of(framework)
    mine = [row for row in (*table.own.values(), *(row for _, row in table.own_families)) if row.name == metric]
    if mine:
        return mine[0].key or mine[0].pattern
    rows = [row for group in table.exact.values() for row in group] + [row for _, row in table.families]
    fitting = [
        row
        for row in rows
        if row.name == metric and not row.when and within(framework, row.since, row.until) is not False
    ]
    best = min(fitting, key=lambda row: row.rank, default=None)
    return None if best is None else best.key or best.pattern


def reached(framework: Framework | None, version: str) -> bool | None:
    """Whether the run's version is at least ``version``; None when the log leaves that open."""
    return _reached(framework, release(version))


def versions_of(framework: Framework | None) -> str:
    """The name of the package whose versions count: TRL for what is built on it."""
    return _versions_of(table_of(framework))


def _versions_of(table: Table) -> str:
    return load(table.library).title if table.library in frameworks() else table.title


def enable(metric: str, framework: Framework | None) -> tuple[str, str] | None:
    """(what to write, note) to make a metric appear in the log; None when no setting is known for it, or when it is to
    take a version that the run has already."""
    row = table_of(framework).enables.get(metric)
    return None if row is None or (row[2] and reached(framework, row[2])) else row[:2]


def enabled(metric: str, framework: Framework | None) -> bool:
    """Whether the run has the version that makes a metric appear; when it is absent all the same, the trainer lacks it."""
    row = table_of(framework).enables.get(metric)
    return row is not None and bool(row[2]) and reached(framework, row[2]) is True
