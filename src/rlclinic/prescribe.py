"""The changes of a diagnosis alone, in a form that can be pasted: arguments, YAML, or a diff of the configuration."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rlclinic import names
from rlclinic.model import Change, Diagnosis, Finding, Prescription, Severity
from rlclinic.readers.roles import is_config
from rlclinic.report.blocks import plain

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Form: TypeAlias = Literal["args", "yaml", "patch"]
LARGEST = 1 << 20
"""Largest configuration file in bytes that is searched for the settings (ours: a resolved one has 40 KiB)."""


@dataclass(frozen=True)
class Advice:
    """What one finding asks for: the changes of settings, and in words what is no setting."""

    finding: Finding
    changes: tuple[Change, ...]
    words: tuple[str, ...]


def patch(diagnosis: Diagnosis, form: Form, *, everything: bool = False, configs: Sequence[Path] = ()) -> str:
    """The changes of ``diagnosis`` as text, with comments that say why and name what is no setting.

    Of each root finding at warning or worse the first remedy that can be carried out and, when that is no setting, also
    the first that is one; with ``everything`` all remedies of all findings. ``configs`` are searched for the lines to
    change in form "patch"; where none holds them, the diff is against the values that the log shows.
    """
    steps = advise(diagnosis, everything=everything)
    changes = [change for step in steps for change in step.changes]
    ready = [change for change in changes if change.after is not None]
    comments = _comments(diagnosis, steps)
    if not ready:
        return "\n".join((*comments, "# no setting to change")) + "\n"
    style = names.table_of(diagnosis.run.framework).style
    if form == "args":
        body, left = _args(ready, style)
    elif form == "yaml":
        body, left = _yaml(ready, nested=style in ("hydra", "toml"))
    else:
        body, left = _diff(ready, style, configs)
    return "\n".join((*comments, *left, body)).rstrip("\n") + "\n"


def advise(diagnosis: Diagnosis, *, everything: bool = False) -> tuple[Advice, ...]:
    """What to do, root findings first; a setting that an earlier finding changes is not changed again."""
    settled: dict[str, Finding] = {}
    steps: list[Advice] = []
    for finding in diagnosis.findings:
        grave = finding.severity is not None and finding.severity >= Severity.WARNING
        if not everything and (not grave or finding.because_of):
            continue
        changes: list[Change] = []
        words: list[str] = []
        for remedy in _chosen(finding.prescriptions, everything):
            words.append(": ".join(text for text in (remedy.says, remedy.note) if text))
            for change in remedy.changes:
                if change.knob in settled:
                    words.append(f"{change.writes} is left out: {settled[change.knob].check} already sets {change.key}")
                    continue
                settled[change.knob] = finding
                changes.append(change)
                if change.after is None:
                    words.append(f"{change.writes} (the present value is not known)")
        if changes or words:
            steps.append(Advice(finding, tuple(changes), tuple(words)))
    return tuple(steps)


def _chosen(remedies: Sequence[Prescription], everything: bool) -> list[Prescription]:
    able = [remedy for remedy in remedies if remedy.applies]
    first = next((place for place, remedy in enumerate(able) if remedy.changes), 0)
    return able if everything else [*able[: min(first, 1)], *able[first : first + 1]]


def _comments(diagnosis: Diagnosis, steps: Sequence[Advice]) -> list[str]:
    run = diagnosis.run
    who = run.framework.title if run.framework else "unknown trainer"
    version = f" {run.framework.version}" if run.framework and run.framework.version else ""
    lines = [f"# {_line(run.name)} ({who}{version})" + ("" if steps else ": nothing to change")]
    for step in steps:
        grade = step.finding.severity.label if step.finding.severity is not None else "healthy"
        lines += [f"# {step.finding.check} ({grade}): {_line(step.finding.says)}"]
        lines += [f"#   {_line(words)}" for words in step.words]
    return lines


def _line(text: str) -> str:
    """One line without control characters: what is printed is pasted into shells and files."""
    return plain(" ".join(text.split()), 500)


# ---------------------------------------------------------------- arguments and YAML


def _settings(changes: Sequence[Change]) -> dict[str, object]:
    """Framework key to value as written, one flag with several values as a list; False for a switch to take away."""
    found: dict[str, object] = {}
    for change in changes:
        found.update(names.flags(change.writes))
    return found


def _args(changes: Sequence[Change], style: str) -> tuple[str, list[str]]:
    kept: dict[str, str] = {}  # a later text for the same flag holds the earlier one's value too
    for change in changes:
        kept[next(iter(names.flags(change.writes)), change.key)] = change.writes
    gone = [f"# {text}" for text in kept.values() if text.startswith("remove ")]
    texts = [text for text in kept.values() if not text.startswith("remove ")]
    return {"python": ", ", "toml": "\n"}.get(style, " ").join(texts), gone


def _yaml(changes: Sequence[Change], *, nested: bool) -> tuple[str, list[str]]:
    import yaml  # 25 ms that only this form is worth

    tree: dict[str, object] = {}
    for key, value in _settings(changes).items():
        parts = key.split(".") if nested else [key]
        place = tree
        for part in parts[:-1]:
            inner = place.setdefault(part, {})
            assert isinstance(inner, dict)
            place = inner
        place[parts[-1]] = _plain(value)
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)), []


def _plain(value: object) -> object:
    """A written value as the number, truth or text that it stands for."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in ("true", "false", "none", "null"):
        return {"true": True, "false": False}.get(text.lower())
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text.strip("'\"")


# ---------------------------------------------------------------- a diff


def _diff(changes: Sequence[Change], style: str, configs: Sequence[Path]) -> tuple[str, list[str]]:
    wanted = _settings(changes)
    texts = {path: text for path in configs if (text := _read(path)) is not None}
    for path, text in texts.items():
        lines = text.split("\n")[:-1]
        edited, left = lines, list[str]()
        for key, value in wanted.items():
            tried = list(edited)
            done = replaced(tried, path, key, value) or added(tried, path, key, value)
            if done and _as_meant(edited, tried, path, key, value):
                edited = tried
            else:
                left.append(f"# set by hand in {_line(path.name)}: {key}={_text(value)}")
        if edited != lines:
            name = _line(path.as_posix().lstrip("/"))
            return "\n".join(difflib.unified_diff(lines, edited, f"a/{name}", f"b/{name}", lineterm="")), left
    old, new = [], []
    for change in changes:
        if change.before is not None:
            old.append(_line(f"{change.key}={_text(change.before)}"))
        new.append(_line(change.writes))
    none = "no configuration file was read" if not configs else "no configuration file could be edited safely"
    return "\n".join(
        difflib.unified_diff(old, new, f"the values that the log shows; {none}", "changed", lineterm="")
    ), []


def _as_meant(before: Sequence[str], after: Sequence[str], path: Path, key: str, value: object) -> bool:
    """Whether the edited text reads as the text before with that one setting changed, and nothing else.

    A file of settings is read again; in a script the one line must not be a comment.
    """
    if path.suffix.lower() not in _TREES:
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        return len(changed) == 1 and not changed[0][0].lstrip().startswith(("#", "//"))
    old, new = _leaves(path, before), _leaves(path, after)
    if old is None or new is None:
        return False
    moved = [name for name in {*old, *new} if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
    last = key.replace("-", "_").split(".")[-1]
    same = [name for name in old if name.replace("-", "_").split(".")[-1] == last]
    if len(moved) != 1 or moved[0].replace("-", "_").split(".")[-1] != last or (moved[0] not in old and same):
        return False
    return bool(new.get(moved[0], _ABSENT) == _plain(value)) and len(same) <= 1


_ABSENT = object()


def _leaves(path: Path, lines: Sequence[str]) -> dict[str, object] | None:
    """Every setting of a file by its dotted path; None where it cannot be read, or refers to itself."""
    text = "\n".join((*lines, ""))
    try:
        if path.suffix.lower() == ".json":
            tree = json.loads(text)
        elif path.suffix.lower() == ".toml":
            tree = tomllib.loads(text)
        else:
            import yaml  # 25 ms that only this form is worth

            if any(isinstance(token, (yaml.AliasToken, yaml.AnchorToken)) for token in yaml.scan(text)):
                return None
            tree = yaml.safe_load(text)
    except Exception:
        return None
    found: dict[str, object] = {}

    def walk(place: object, above: tuple[str, ...]) -> None:
        if isinstance(place, dict) and place and len(above) < 12:
            for name, inner in place.items():
                walk(inner, (*above, str(name)))
        else:
            found[".".join(above)] = place

    walk(tree, ())
    return found if isinstance(tree, dict) else None


def configurations(sources: Sequence[Path], given: Sequence[Path] = ()) -> list[Path]:
    """The configuration files among ``sources`` and in the directories among them, after those ``given`` as such."""
    found = [path for path in given if path.is_file() and path.suffix.lower() in _WRITTEN]
    for path in sources:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        found += [one for one in inside if one.is_file() and one.suffix.lower() in _TREES and is_config(one)]
    return list(dict.fromkeys(found))


_TREES = (".yaml", ".yml", ".toml", ".json")
_WRITTEN = (*_TREES, ".sh", ".py", ".txt")


def _read(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return None
        text = path.read_bytes().decode("utf-8")
        # A diff of other line ends, or of a last line without one, is not what patch tools take.
        return text if "\r" not in text and text.endswith("\n") and not text.startswith("\ufeff") else None
    except (OSError, UnicodeDecodeError):
        return None


def _text(value: object, like: str = "") -> str:
    """A value as a configuration file states it, quoted where the text that stood there was."""
    if isinstance(value, list):
        return "[" + ", ".join(_text(one) for one in value) + "]"
    plain = _plain(value)
    if plain is None or isinstance(plain, bool):
        cased = like[:1].isupper() and like in ("True", "False", "None")
        return str(plain) if cased else json.dumps(plain)
    if isinstance(plain, float):
        text = repr(plain)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    if isinstance(plain, str):
        return json.dumps(plain) if like[:1] in ("'", '"') else plain
    return str(value).strip()


_NAMED = re.compile(
    r"""^(?P<indent>\s*)["']?(?P<key>[\w.\-]+)["']?(?P<mid>\s*[:=]\s*)(?P<value>.*?)(?P<end>,?(?:\s{1,40}#.*)?)$"""
)
_SECTION = re.compile(r"^\s*\[(?P<name>[\w.\-]+)\]\s*$")


def _paths(lines: Sequence[str]) -> dict[int, str]:
    """Dotted path of each line that names a setting, from indentation (YAML, JSON) or section heads (TOML)."""
    found: dict[int, str] = {}
    stack: list[tuple[int, str]] = []
    section = ""
    for at, line in enumerate(lines):
        head = _SECTION.match(line)
        if head:
            section, stack = head["name"], []
            continue
        named = _NAMED.match(line)
        if named is None or line.lstrip().startswith("#"):
            continue
        depth = len(named["indent"])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        stack.append((depth, named["key"]))
        found[at] = ".".join(([section] if section else []) + [key for _, key in stack])
    return found


def replaced(lines: list[str], file: Path, key: str, value: object) -> bool:
    """Whether ``lines`` hold the setting; its value is then the new one."""
    forms = (key, key.replace("-", "_"))
    for at, path in _paths(lines).items() if file.suffix.lower() in _TREES else ():
        named = _NAMED.match(lines[at])
        if (
            named
            and (path in forms or path.endswith(tuple(f".{form}" for form in forms)))
            and named["value"] not in ("", "{")
        ):
            new = _text(value, named["value"])
            lines[at] = lines[at][: named.start("value")] + new + lines[at][named.end("value") :]
            return True
    one = r"""("[^"]*"|'[^']*'|[^\s,)\\]+)"""
    for at, line in enumerate(lines):
        for pattern in (rf"(?<![\w.\-]){re.escape(key)}=()" + one, rf"--{re.escape(key)}(\s+|=)(?!--)" + one):
            hit = re.search(pattern, line)
            if hit and not isinstance(value, (bool, list)):
                lines[at] = line[: hit.start(2)] + _text(value, hit[2]) + line[hit.end(2) :]
                return True
        if isinstance(value, bool) and (switch := re.search(rf"--{re.escape(key)}(?=\s|$)\s?", line)):
            if not value:
                lines[at] = line[: switch.start()] + line[switch.end() :]
            return True
    return False


def added(lines: list[str], path: Path, key: str, value: object) -> bool:
    """Whether the setting could be added to ``lines``, under the deepest of its parents that is there."""
    kind = path.suffix.lower()
    if kind == ".toml":
        *above, last = key.split(".")
        head = f"[{'.'.join(above)}]"
        line = f"{last} = {json.dumps(_plain(value))}"
        at = next((at for at, one in enumerate(lines) if one.strip() == head), None)
        lines[:] = [*lines, head, line] if at is None else [*lines[: at + 1], line, *lines[at + 1 :]]
        return True
    if kind not in (".yaml", ".yml"):
        return False
    known = {found: at for at, found in _paths(lines).items()}
    parts = key.split(".")
    depth = next((n for n in range(len(parts) - 1, 0, -1) if ".".join(parts[:n]) in known), 0)
    at = known[".".join(parts[:depth])] if depth else len(lines) - 1
    indent = len(lines[at]) - len(lines[at].lstrip()) + 2 if depth else 0
    block = [f"{' ' * (indent + 2 * n)}{part}:" for n, part in enumerate(parts[depth:])]
    block[-1] += f" {_text(value)}"
    lines[at + 1 : at + 1] = block
    return True
