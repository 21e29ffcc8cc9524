"""Settings both ways: from a run's configuration to canonical knobs, and from a knob to the framework's own text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from rlclinic.errors import UnknownName, nearest
from rlclinic.model import Framework, Knob, Scalar
from rlclinic.names.rows import LONGEST, KnobRow, frameworks, knobs, load, reached, release, table_of, within

MOST_VALUE = 1e15
"""Numbers of a configuration from which on they are no setting (ours: the largest real ones count tokens of a corpus)."""

Origin: TypeAlias = Literal["config", "log", "given", "default"]


def spell(knob: str, framework: Framework | None) -> KnobRow | None:
    """The row of a setting in this framework and version; None when it has no such setting. Raises ``UnknownName``."""
    row = next((row for row in _rows(knob, framework) if within(framework, row.since, row.until) is not False), None)
    if row is not None and row.renamed and reached(framework, release(row.renamed)) is False:
        return _as_before(row)
    return row


def absent(knob: str, framework: Framework | None) -> str:
    """Why the framework's version lacks a setting, in words; empty when it has it or may have it."""
    rows = _rows(knob, framework)
    if not rows or spell(knob, framework) is not None or framework is None:
        return ""
    row, library = rows[0], load(framework.name).library
    title = load(library if library in frameworks() else framework.name).title
    if row.since and reached(framework, release(row.since)) is False:
        return row.before or f"{row.key} does not exist in {title} before {row.since}"
    return f"{row.key} does not exist in {title} after {row.until}"


def _rows(knob: str, framework: Framework | None) -> tuple[KnobRow, ...]:
    if knob not in knobs():
        raise UnknownName("a setting", repr(knob[:LONGEST]), nearest(knob, knobs()) or knobs())
    return table_of(framework).knobs.get(knob, ())


def _as_before(row: KnobRow) -> KnobRow:
    """The row under the name that it had before it was renamed."""
    old, base, was = row.aliases[0], row.key.partition("[")[0], row.aliases[0].partition("[")[0]
    return replace(row, key=old, writes=row.writes.replace(base, was))


def write(knob: str, value: Scalar, framework: Framework | None, present: Mapping[str, Knob] | None = None) -> str:
    """The text that sets a knob in the framework's own spelling (a keyword, a flag or a ``key=value`` override).

    ``present`` are the run's settings, needed where one flag carries several. Raises ``UnknownName`` when the framework
    has no such setting.
    """
    row = spell(knob, framework)
    if row is None:
        raise UnknownName(f"a setting that {table_of(framework).title} has", repr(knob))
    style = table_of(framework).style
    if row.renamed and any(known.key in row.aliases[:1] for known in (present or {}).values() if known.name == knob):
        row = _as_before(row)
    own = _to_own(row, value)
    if row.writes:
        text = row.writes
        for name in re.findall(r"\{(\w+)\}", text):
            text = text.replace(
                f"{{{name}}}", _shown(own if name == "value" else _standing(name, framework, present), style)
            )
        return text
    if style == "switches" and isinstance(own, bool):
        return f"--{row.key}" if own else f"remove --{row.key}"
    return f"--{row.key} {_shown(own, style)}" if style in ("flags", "switches") else f"{row.key}={_shown(own, style)}"


def _standing(name: str, framework: Framework | None, present: Mapping[str, Knob] | None) -> Scalar:
    row = spell(name, framework)
    return present[name].value if present and name in present else row.default if row else None


def _to_own(row: KnobRow, value: Scalar) -> Scalar:
    if row.scale != 1.0 and isinstance(value, (int, float)) and not isinstance(value, bool):
        own = float(f"{value / row.scale:.6g}")
        return int(own) if own.is_integer() and isinstance(value, int) else own
    return next((own for canonical, own in row.map.items() if canonical == value), value)


def _to_canonical(row: KnobRow, value: Scalar) -> Scalar:
    if row.scale == 1.0 or isinstance(value, (bool, str)) or value is None:
        return value
    scaled = float(f"{value * row.scale:.12g}")
    return int(scaled) if scaled.is_integer() and isinstance(value, int) else scaled


def _shown(value: Scalar, style: str) -> str:
    if value is None:
        return {"python": "None", "hydra": "null"}.get(style, "none")
    if isinstance(value, bool):
        return str(value).lower() if style in ("flags", "switches", "toml") else str(value)
    if isinstance(value, (int, float)):
        return repr(value)
    return (
        json.dumps(value, ensure_ascii=False)
        if style in ("python", "toml") or not re.fullmatch(r"[\w.\-/]+", value)
        else value
    )


def flags(text: str) -> dict[str, object]:
    """Settings in a command line or in code: ``--a 1``, ``--a=1``, ``--switch``, ``a.b=c``, ``+a=c``, ``a=1, b=2``.

    Several values after one flag come as a list of texts; a flag without value as True, and ``remove --flag`` as False.
    """
    found: dict[str, object] = {}
    name, values, gone = "", list[str](), False

    def close() -> None:
        if name:
            found[name] = False if gone else True if not values else values[0] if len(values) == 1 else list(values)

    for token in re.findall(r'(?:[^\s"]|"(?:[^"\\]|\\.){0,4000}"|"){1,4000}', text):
        pair = re.fullmatch(r"(-{0,2}\+{0,2}[A-Za-z_][\w.\-\[\]]{0,199})=(.{0,4000}?),?", token, re.DOTALL)
        if pair:
            close()
            name, values = "", []
            found[pair[1].lstrip("-+")] = pair[2]
        elif re.match(r"--[A-Za-z]", token):
            close()
            name, values, gone = token[2 : LONGEST + 2], [], gone and not name
        elif token == "remove":
            close()
            name, values, gone = "", [], True
        elif name:
            values.append(token)
    close()
    return found


def _coerce(value: object) -> Scalar:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value[:50])[:LONGEST]
    text = str(value).strip()[:LONGEST]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    word = text.lower()
    if word in ("true", "false"):
        return word == "true"
    if word in ("none", "null", ""):
        return None
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    number = re.fullmatch(r"[+-]?(?:\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", text)
    return float(text) if number else text


def flatten(config: Mapping[str, object]) -> dict[str, object]:
    """A nested configuration as dotted settings, without W&B's ``{"value": ...}`` wrappers."""
    flat: dict[str, object] = {}
    pile: list[tuple[str, object]] = [("", config)]
    while pile and len(flat) < 20_000:
        name, value = pile.pop()
        if isinstance(value, Mapping) and not ("value" in value and value.keys() <= {"value", "desc", "sort"}):
            if name.count(".") < 12:
                pile += [(f"{name}.{k}" if name else str(k)[:LONGEST].lstrip("-+"), v) for k, v in value.items()]
        elif name:
            flat[name] = value["value"] if isinstance(value, Mapping) else value
    return flat


_ASIDE = ("eval", "val", "validation", "test", "generation_config", "critic")


def _settings(config: Mapping[str, object]) -> dict[str, object]:
    """Dotted settings, also without the one wrapper (``args``, ``training``) that people put around them."""
    flat = flatten(config)
    inner = {
        rest: value
        for name, value in flat.items()
        for first, _, rest in [name.partition(".")]
        if rest and first not in _ASIDE
    }
    return {**inner, **flat, **{name.replace("-", "_"): value for name, value in flat.items()}}


def _read(row: KnobRow, settings: Mapping[str, object]) -> tuple[str, Scalar] | None:
    spelled = (row.key, *row.aliases)
    for key in dict.fromkeys((*spelled, *(key.replace("-", "_") for key in spelled))):
        base, _, index = key.rstrip("]").partition("[")
        value = settings.get(key, settings.get(base))
        if index and value is not None and key not in settings:
            items = value if isinstance(value, (list, tuple)) else str(value).strip("[]()").replace(",", " ").split()
            value = items[int(index)] if len(items) > int(index) else None
        known = {str(text).lower(): canonical for text, canonical in row.reads.items()}
        known.update({str(own).lower(): canonical for canonical, own in row.map.items()})
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not abs(value) < MOST_VALUE:
            continue  # not a number, infinite, or far beyond any setting
        word = str(value).strip().strip("'\"").lower()
        if word in known and value is not None:
            return key, known[word]
        plain = _coerce(value)
        if plain is None:
            continue
        if str(plain).lower() in known:
            return key, known[str(plain).lower()]
        if not (row.map and isinstance(plain, bool)):
            return key, _to_canonical(row, plain)
    return None


def read_knobs(config: Mapping[str, object], framework: Framework | None, origin: Origin) -> dict[str, Knob]:
    """The settings of a run in canonical form, from a nested or dotted configuration or from ``flags``.

    Values are bool, int, float or text; a setting that is None or absent is left out. W&B's ``{"value": ...}`` wrappers
    and leading dashes are understood.
    """
    settings = _settings(config)
    read: dict[str, Knob] = {}
    table = table_of(framework).knobs
    scripts = {name: rows for name, rows in load("generic").knobs.items() if rows[0].anywhere}
    for name, rows in {**scripts, **table}.items():
        for row in rows:
            hit = _read(row, settings)
            if hit:
                read[name] = Knob(name, hit[1], hit[0], origin)
                break
    return read


def default_knobs(framework: Framework | None, known: Mapping[str, Knob] | None = None) -> dict[str, Knob]:
    """The framework's defaults for settings not in ``known``, where the version is known well enough to be sure.

    Of use only with the whole configuration at hand: a run whose configuration was not seen may have set anything.
    """
    stands = dict(known or {})
    rows = {name: row for name in table_of(framework).knobs if (row := spell(name, framework)) and name not in stands}
    for name, row in rows.items():
        if within(framework, row.since, row.until) and row.default is not None:
            stands[name] = Knob(name, row.default, row.key, "default")
        for one in row.defaults:
            if within(framework, one.get("since", ""), one.get("until", "")):
                stands[name] = Knob(name, one["value"], row.key, "default")
    # a setting that follows another one is sure only when it is known what the run itself has set
    for name, row in rows.items() if known is not None else ():
        if row.default_from in stands and name not in stands:
            stands[name] = Knob(name, stands[row.default_from].value, row.key, "default")
    return {name: value for name, value in stands.items() if value.origin == "default" and name in rows}
