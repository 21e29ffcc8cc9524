"""The page of everything that has a name: checks, metrics, knobs, remedies, frameworks; one text for terminal and docs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rlclinic import names
from rlclinic.checks import BY_NAME, CHECKS, RENAMED, Check, Limit
from rlclinic.errors import UnknownName, nearest
from rlclinic.model import Framework


def page(name: str, framework: str | None = None) -> str:
    """Markdown for a check, metric, knob, remedy or framework; settings are spelled for ``framework`` when given.

    Raises UnknownName with the nearest names.
    """
    if framework is not None:
        names.load(framework)
    every = (BY_NAME, RENAMED, names.metrics(), names.knobs(), names.remedies(), names.frameworks())
    known = tuple(dict.fromkeys(one for kind in every for one in kind))  # a setting and its remedy may share a name
    name = _meant(name, known)
    spelled = names.frameworks() if framework is None else (framework,)
    if name in RENAMED:
        return "\n\n".join(
            [f"`{name}` has become: {', '.join(RENAMED[name])}.", *(page(n, framework) for n in RENAMED[name])]
        )
    if name in BY_NAME:
        return check_page(BY_NAME[name], spelled)
    if name in names.metrics():
        return metric_page(name, spelled)
    if name in names.knobs():
        return knob_page(name, spelled) + ("\n" + _in_short(name) if name in names.remedies() else "")
    if name in names.remedies():
        return remedy_page(name, spelled)
    if name in names.frameworks():
        return "\n".join(_framework_lines(name, "#")) + "\n"
    if (found := _as_key(name, spelled)) is not None:
        return found
    raise UnknownName(
        "a check, metric, knob, remedy or framework",
        repr(name),
        nearest(name, known) or tuple(BY_NAME),
        "rlclinic checks",
    )


def _meant(name: str, known: Iterable[str]) -> str:
    """The known name that is meant: in any case, with spaces or hyphens, or a metric by its title."""
    plain = name.strip().lower().replace(" ", "_").replace("-", "_")
    titles = {names.metric(metric).title.lower(): metric for metric in names.metrics()}
    return name if name in known else plain if plain in known else titles.get(name.strip().lower(), name)


def _as_key(name: str, frameworks: Iterable[str]) -> str | None:
    """What a log key or a setting's own spelling means in each framework; None when no table has it."""
    lines = []
    for framework in frameworks:
        table = names.load(framework)
        rows = table.exact.get(name, ())
        lines += [f"- {table.title}: `{row.name}`{f' ({row.note})' if row.note else ''}" for row in rows]
        for knob, spelled in table.knobs.items():
            if any(name in (row.key, *row.aliases) for row in spelled):
                lines.append(f"- {table.title}: the setting `{knob}`")
    if not lines:
        return None
    return (
        "\n".join([f"# {name}", "", "A name of the trainers; `rlclinic explain` shows the page of each:", "", *lines])
        + "\n"
    )


def check_page(one: Check, frameworks: Iterable[str]) -> str:
    """The page of a check: its text, what it reads and under which keys, its limits with sources, its remedies."""
    frameworks = tuple(frameworks)
    lines = [f"# {one.name}", "", one.page.strip(), "", "## What it reads"]
    for need in (*one.needs, *one.uses):
        required = "needed" if need in one.needs else "used when present"
        lines.append(f"- {' or '.join(f'`{m}`' for m in need.split('|'))} ({required})")
        for metric in need.split("|"):
            spelled = [f"{names.load(f).title} `{key}`" for f in frameworks if (key := _key(metric, f))]
            if spelled:
                lines.append(f"  - {', '.join(spelled)}")
    lines += ["", "## Limits", "", "| limit | meaning | numbers | source |", "| --- | --- | --- | --- |"]
    for limit in one.limits.values():
        moves = " (a baseline may move it)" if limit.moves else ""
        lines.append(f"| {limit.name} | {limit.says}{moves} | {_numbers(limit)} | {limit.source} |")
    if not one.limits:
        lines.append("| none | it states a fact of the log | | |")
    lines += ["", "## What to change", ""]
    for id in one.remedies:
        lines += _remedy_lines(id, frameworks)
    if one.no_help:
        lines += ["", "## What does not help", ""]
        lines += [f"- {advice}: {why}" for advice, why in one.no_help.items()]
    explains = [f"- leads to `{effect}`: {why}" for effect, why in one.leads_to.items()]
    comes_of = [
        f"- may come of `{other.name}`: {other.leads_to[one.name]}" for other in CHECKS if one.name in other.leads_to
    ]
    if explains or comes_of:
        lines += ["", "## Causes and consequences", "", *comes_of, *explains]
    apart = {**{o.name: o.rivals[one.name] for o in CHECKS if one.name in o.rivals}, **one.rivals}
    if apart:
        lines += ["", "## What tells it apart", ""]
        lines += [f"- from `{other}`: {measurement}" for other, measurement in sorted(apart.items())]
    if one.resume:
        where = {"before": "a checkpoint from before it began", "here": "the present checkpoint"}[one.resume]
        lines += ["", "## Where to go on from", "", f"Once it is mended: {where}."]
    if one.references:
        lines += ["", "## References", ""]
        lines += [f"- {r.title} ({r.id}): {r.claim} {r.link}".rstrip() for r in map(names.reference, one.references)]
    lines += ["", f"Family {one.family}, tier {one.tier}, {one.status} since {one.since}."]
    return "\n".join(lines) + "\n"


def metric_page(name: str, frameworks: Iterable[str]) -> str:
    """The page of a metric: meaning, unit, range, and the key of every framework with its trap."""
    metric = names.metric(name)
    bounds = [f"{v:g}" if v is not None else "unbounded" for v in (metric.low, metric.high)]
    lines = [f"# {name}", "", metric.says, "", f"Unit: {metric.unit}; from {bounds[0]} to {bounds[1]}.", ""]
    for framework in frameworks:
        table = names.load(framework)
        rows = [row for group in table.exact.values() for row in group] + [row for _, row in table.families]
        for row in rows:
            if row.name == name:
                since = "".join(f", {word} {v}" for word, v in (("since", row.since), ("until", row.until)) if v)
                trap = f": {row.note}" if row.note else ""
                lines.append(f"- {table.title} `{row.key or row.pattern}`{since}{trap}")
    readers = [one.name for one in CHECKS if any(name in need.split("|") for need in (*one.needs, *one.uses))]
    if readers:
        lines += ["", "Read by: " + ", ".join(f"`{r}`" for r in readers) + "."]
    return "\n".join(lines).rstrip() + "\n"


def knob_page(name: str, frameworks: Iterable[str]) -> str:
    """The page of a setting: meaning and the key of every framework, or what its remedy of the same name says there."""
    lines = [f"# {name}", "", names.knob(name).says, ""]
    for framework in frameworks:
        this = Framework(framework, names.load(framework).title)
        row = names.spell(name, this)
        shown = "" if row is None else f"`{(row.writes or row.key).replace('{value}', '...')}`"
        own = _spelled(name, this).removeprefix(f"{this.title} has ") if name in names.remedies() else ""
        told = [own] if row is not None and f"`{row.key}`" in own else [shown, own]
        lines.append(f"- {this.title}: {'; '.join(text for text in told if text) or 'no such setting'}")
    return "\n".join(lines) + "\n"


def remedy_page(name: str, frameworks: Iterable[str]) -> str:
    """The page of a remedy, spelled for every framework."""
    lines = [f"# {name}", "", *_remedy_lines(name, tuple(frameworks)), *_users(name)]
    return "\n".join(lines) + "\n"


def _in_short(name: str) -> str:
    """The remedy of a setting's name beside the page of the setting, which spells it for every framework."""
    return "\n".join(["As a remedy:", "", *_remedy_lines(name, ()), *_users(name)]) + "\n"


def _users(remedy: str) -> list[str]:
    users = [one.name for one in CHECKS if remedy in one.remedies]
    return ["", "Named by: " + ", ".join(f"`{u}`" for u in users) + "."] if users else []


def list_checks() -> str:
    """One line per check: name, tier, family, what the run has."""
    width = max(len(one.name) for one in CHECKS)
    return "\n".join(f"{one.name:<{width}}  {one.tier:<7}  {one.title}" for one in CHECKS)


def list_metrics() -> str:
    """One line per canonical metric: name, unit, meaning."""
    rows = [(name, names.metric(name)) for name in names.metrics()]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {metric.unit:<12}  {metric.says}" for name, metric in rows)


TRACKERS = "W&B, TensorBoard, MLflow, Trackio, SwanLab, Comet, ClearML, CSV, Parquet, JSON lines"
"""Where the metrics of every framework are read as well (what ``readers`` knows of, in words)."""


def list_frameworks() -> str:
    """One line per framework: name, title, newest source checked, a key that tells it, its own log forms; <= 100 columns."""
    rows = [("name", "title", "checked", "told by", "read from")]
    for name in names.frameworks():
        first = names.head(name)
        newest = re.match(r"\d[\d.]*", first["newest"])
        checked = newest[0] if newest else first["newest"].split(" ")[-1]
        forms = ", ".join("state" if form == "trainer_state.json" else form.split(" of ")[0] for form in first["forms"])
        rows.append((name, first["title"], checked, _told_by(name, 20), forms))
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    lines = [
        "  ".join((*(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=False)), row[4])).rstrip() for row in rows
    ]
    return "\n".join(
        [
            *lines,
            "",
            f"Each also from {TRACKERS}.",
            "Files may be compressed or in a zip or tar of the run; - is standard input.",
            "state is trainer_state.json. More: docs/frameworks.md",
        ]
    )


def _told_by(name: str, width: int) -> str:
    """The key that most speaks for a framework and fits in ``width`` characters; of equals the shortest."""
    marks = names.head(name)["signature"]
    single = [mark for mark in marks if len(mark["keys"]) == 1 and len(mark["keys"][0]) <= width]
    best = max(single or marks, key=lambda mark: (mark["weight"], -len(mark["keys"][0]) * bool(single)), default=None)
    return "" if best is None else str(best["keys"][0])


def frameworks_page() -> str:
    """The page of all frameworks: what was checked, how each is told, where it is read, what its versions are told by."""
    lines = ["# Frameworks", "", f"The metrics of every framework are also read from {TRACKERS}.", ""]
    for name in names.frameworks():
        lines += [*_framework_lines(name, "##"), ""]
    return "\n".join(lines).rstrip() + "\n"


def _framework_lines(name: str, level: str) -> list[str]:
    table, first = names.load(name), names.head(name)
    lines = [f"{level} {table.title}", "", f"- name: `{name}`", f"- checked: {table.checked}"]
    lines += [f"- read from: {', '.join(first['forms'])}"]
    if "extends" in first and first["extends"] != "generic":
        lines.append(f"- built on {names.load(first['extends']).title}: what this table lacks is taken from there")
    told = [" and ".join(f"`{key}`" for key in mark["keys"]) for mark in first["signature"]]
    lines += [f"- told by: {'; '.join(told)}"] if told else []
    lines += [f"- or by settings: {', '.join(f'`{key}`' for key in first['config'])}"] if first["config"] else []
    lines += [f"- version: {_mark(mark)}" for mark in table.versions]
    own = sum(len(group) for group in table.exact.values()) + len(table.families)
    return [*lines, f"- knows {own} keys or families of keys and {len(table.knobs)} settings"]


def _mark(mark: Mapping[str, str]) -> str:
    """What one version fingerprint says."""
    seen = f"`{mark['key']}`" if "key" in mark else f"no `{mark['absent']}` beside `{mark['beside']}`"
    bounds = [f"{word} {mark[edge]}" for edge, word in (("since", "at least"), ("below", "before")) if edge in mark]
    return f"{seen} means {' and '.join(bounds)}"


def _key(metric: str, framework: str) -> str | None:
    return names.key_for(metric, Framework(framework, names.load(framework).title))


def _numbers(limit: Limit) -> str:
    if limit.value is not None:
        return f"{limit.value:g}"
    word = "above" if limit.worse == "above" else "below"
    return ", ".join(f"{severity.label} {word} {bound:g}" for severity, bound in sorted(limit.grades.items()))


def _remedy_lines(id: str, frameworks: tuple[str, ...]) -> list[str]:
    remedy = names.remedy(id)
    lines = [f"- **{id}**: {remedy.says}"]
    if remedy.expect:
        moves = ", ".join(f"`{metric}` {how}" for metric, how in remedy.expect.items())
        lines.append(f"  - should move: {moves}" + (f" within {remedy.within} steps" if remedy.within else ""))
    if remedy.risk:
        lines.append(f"  - risk: {remedy.risk}")
    for name in frameworks:
        framework = Framework(name, names.load(name).title)
        text = _spelled(id, framework)
        if text:
            lines.append(f"  - {framework.title}: {text}")
    return lines


def _spelled(remedy: str, framework: Framework) -> str:
    """How a framework carries out a remedy, or why it cannot; empty where its table says neither."""
    own = names.remedy(remedy, framework)
    rows = [row for turn in own.set if (row := names.spell(turn.knob, framework)) is not None]
    told = [own.unavailable] if own.unavailable else [*(f"`{row.key}`" for row in rows), own.writes, own.note]
    return "; ".join(part for part in told if part)
