"""Hostile text in every field that a page can show: it stays text, it stays bounded, it moves nothing on the page."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from click.testing import CliRunner

import browser
from rlclinic.cli import cli
from rlclinic.report import render

MARKUP = (
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=2</script>",
    "<!-- <script> --> ]]>{{7*7}}{% raw %}{#",
    "</style><img src=x onerror=pwned=3>",
    "</svg></title></textarea></details></main></body></html>",
    "\"onload=window.pwned=4 x='onmouseover='window.pwned=5",
    "javascript:window.pwned=6",
    "&lt;b&gt;&#0;&amp\\u003cscript\\u003e\\",
    "}*{display:none}@import url(//e.invalid/x);",
)
SIGNS = (
    "\x1b[31mred\x1b[0m\x9b31m\x85 \x1b]8;;http://e.invalid\x07link\x1b]8;;\x07",
    "\u202edesrever\u202c\u2066alone\u200f\u061c\u2028\u2029zero\u200bwidth\ufeff",
    "\x00nul\ud800lone\udfff\ufffe tab\tnew\nline\rback\x0b\x0c \U000e0041tag\ue000own" + "\u0301" * 20,
)
_LONG = "<b>" + "x" * 500_000 + " " + "\u202e" * 1000 + "y" * 500_000

OURS = {
    "Column.metric", "Run.columns", "Run.knobs", "Knob.name", "Finding.check", "Finding.metrics", "Finding.because_of",
    "Finding.leads_to", "Finding.rivals", "Examination.check", "Examination.missing", "Verdict.primary", "Framework.name",
    "Prescription.expect", "Undecided.meanings",
}  # fmt: skip
"""Fields (and keys of mappings) that hold names of this project, looked up in its own tables and never taken from a file."""

FORMED = {"Past.date": "2026-11-12T08:00:00Z"}
"""Fields that a reader lets through in one form only."""


# ----------------------------------------------------------------------------------------- a text in every field


_hints = cache(get_type_hints)


class Poisoned:
    """A copy of a dataclass in which every text of every field, at every depth, is ``text``; what is empty gets one."""

    def __init__(self, text: str, many: int = 1) -> None:
        self.text = text
        self.many = many
        self.fields: set[str] = set()

    def copy(self, value: Any) -> Any:
        """``value``, a dataclass, with its fields replaced."""
        return self._fields(type(value), {f.name: getattr(value, f.name) for f in dataclasses.fields(value)})

    def _fields(self, kind: type, now: Mapping[str, Any]) -> Any:
        hints = _hints(kind)
        places = {f.name: f"{kind.__name__}.{f.name}" for f in dataclasses.fields(kind) if f.init}
        made = {name: self._value(now.get(name), hints[name], place) for name, place in places.items()}
        return kind(**made)

    def _value(self, value: Any, hint: Any, place: str) -> Any:
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self._one_of(value, inner, place)
        if origin is Literal:
            return inner[0] if value is None else value
        if hint is str:
            return self._text(value, place)
        if origin is tuple and inner[-1] is Ellipsis:
            held = [self._value(item, inner[0], place) for item in value or ()]
            one = held or [self._value(None, inner[0], place)]
            return tuple(one + one[:1] * (self._many(place) - len(one)))
        if origin is tuple:
            held = value or (None,) * len(inner)
            return tuple(self._value(item, kind, place) for item, kind in zip(held, inner, strict=True))
        if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(value or {}, inner, place)
        if dataclasses.is_dataclass(hint):
            held = {} if value is None else {f.name: getattr(value, f.name) for f in dataclasses.fields(hint)}
            return self._fields(typing.cast(type, hint), held)
        if value is None and origin is np.ndarray:
            return np.arange(4).astype(get_args(inner[1])[0])
        if value is None and hint in (float, int, bool):
            return hint(1)
        return value

    def _one_of(self, value: Any, kinds: tuple[Any, ...], place: str) -> Any:
        if str in kinds:
            return self._text(value, place)
        rich = next((k for k in kinds if dataclasses.is_dataclass(k)), None)
        return value if rich is None else self._value(value, rich, place)

    def _text(self, value: Any, place: str) -> Any:
        if place in OURS:
            return value or "lr_too_high"
        self.fields.add(place)
        if place.startswith(
            "Text."
        ):  # the sampled words of answers are searched for phrases, and bounded when they are read
            return self.text[:400]
        return FORMED.get(place, self.text)

    def _mapping(self, value: Mapping[Any, Any], inner: tuple[Any, ...], place: str) -> dict[Any, Any]:
        held = {key: self._value(item, inner[1], place) for key, item in value.items()}
        if inner[0] is not str or place in OURS:
            return held
        items = list(held.values()) or [self._value(None, inner[1], place)]
        many = max(len(items), self._many(place))
        return {self.text + "'" * i if many < 9 else f"{self.text} {i}": items[i % len(items)] for i in range(many)}

    def _many(self, place: str) -> int:
        """How many there are of what a file can hold many of; findings and tables of answers are few."""
        few = place in OURS or place in ("Diagnosis.findings", "Diagnosis.checks", "Run.rollouts")
        return 1 if few or not place.startswith(("Run.", "Diagnosis.")) else self.many


@cache
def page(text: str, name: str = "short", many: int = 1) -> str:
    """The page of one of our runs with ``text`` in every field: in a short run too, for what is empty gets one."""
    return render(Poisoned(text, many).copy(browser.examined(name)), "html", samples=2)


# ------------------------------------------------------------------------------------------------ what a page is


class Skeleton(HTMLParser):
    """Tags with the names of their attributes, links, comments, what stands in scripts and styles, and the words."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[tuple[str, str]] = set()
        self.links: list[str] = []
        self.values: list[str] = []
        self.comments: list[str] = []
        self.code: list[str] = []
        self.data: list[str] = []
        self.words: list[str] = []
        self.depth: list[str] = []
        self.kind = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags |= {(tag, name) for name, _ in attrs} | {(tag, "")}
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "xlink:href")]
        self.values += [value or "" for _, value in attrs]
        self.kind = tag if tag in ("script", "style") else ""
        if tag == "script" and "json" in (dict(attrs).get("type") or ""):
            self.kind = "data"

    def handle_endtag(self, tag: str) -> None:
        self.kind = ""

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        where = {"script": self.code, "style": self.code, "data": self.data}.get(self.kind, self.words)
        where.append(data)


@cache
def clean(name: str) -> Skeleton:
    """The page with a harmless word in every field."""
    return Skeleton(page("word", name))


def _seen(page: str) -> Iterator[str]:
    """Characters that no page may hold: what is not seen, turns the direction of what follows, or is no character."""
    return (c for c in page if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


@pytest.mark.parametrize(
    ("text", "name"), [*((text, "short") for text in MARKUP), (MARKUP[1], "demo"), (MARKUP[5], "demo")]
)
def test_markup_in_any_field_stays_text(text: str, name: str) -> None:
    made, usual = Skeleton(page(text, name)), clean(name)
    assert made.tags <= usual.tags
    assert made.code == usual.code
    assert made.comments == usual.comments
    assert not [link for link in made.links if not link.startswith(("#", "https://"))]
    assert not [name for _, name in made.tags if name.startswith("on")]
    assert any(text in words for words in made.words), "the text is not shown at all"
    for island in made.data:
        json.loads(island)
        assert "<" not in island


@pytest.mark.parametrize("text", SIGNS, ids=ascii)
def test_signs_in_any_field_are_not_on_the_page(text: str) -> None:
    made = page(text)
    made.encode("utf-8")
    assert not set(_seen(made))
    assert Skeleton(made).tags <= clean("short").tags


def test_a_text_of_a_megabyte_in_every_field_leaves_the_page_small() -> None:
    assert len(page(_LONG)) < 2 * len(page("word")) + 300_000


def test_two_thousand_of_everything_leave_the_page_small() -> None:
    assert len(page("<word>", many=2000)) < 2 * len(page("word")) + 300_000


def test_every_field_of_text_is_reached() -> None:
    poisoned = Poisoned("word")
    poisoned.copy(browser.examined("demo"))
    assert {
        "Run.name", "Run.ending", "Run.facts", "Warn.says", "Unrecognised.key", "Undecided.key", "Source.path",
        "Framework.version", "Knob.value", "Knob.key", "Component.name", "Column.key", "Column.note", "Text.prompt",
        "Text.answer", "Checkpoint.path", "Note.says", "Change.before", "Change.writes", "Diagnosis.to_log",
        "Finding.says", "Reference.link", "Forecast.says", "Rollback.checkpoint", "Cost.says", "Regraded.verifier",
    } <= poisoned.fields  # fmt: skip


# ------------------------------------------------------------------------------------------- from files to a page


def _files(folder: Path) -> list[Path]:
    """A log, settings and saved answers whose every text is hostile."""
    nasty = " ".join(MARKUP[:9]) + "".join(SIGNS[:3])
    odd = {f"rewards/{text}/mean": 0.5 for text in (*MARKUP, SIGNS[2])} | dict.fromkeys(MARKUP, 1.0)
    rows = [
        {"step": s, "reward": s / 90, "reward_std": 0.2, "entropy": 1.5 / s, "kl": 0.01 * s, "grad_norm": 1.0,
         "completions/mean_length": 90.0 + s, f"eval_{MARKUP[0]}/reward": 0.1, **{k: v * s / 60 for k, v in odd.items()}}
        for s in range(1, 61)
    ]  # fmt: skip
    log = folder / "<img src=x onerror=pwned=7>.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = folder / "config.json"
    settings.write_text(
        json.dumps({"model_name_or_path": nasty, "num_generations": 4, "learning_rate": 1e-6, "beta": nasty,
                    "run_name": nasty, "loss_type": nasty, nasty: nasty}), encoding="utf-8",
    )  # fmt: skip
    answers = folder / "completions.jsonl"
    with answers.open("w", encoding="utf-8") as file:
        for step in range(1, 61):
            for _ in range(4):
                row = {"step": step, "prompt": f"{nasty} {step}", "completion": f"{nasty} {step % 3}",
                       "reward": 1.0, "rewards": {MARKUP[1]: 1.0}, "ground_truth": nasty, "stop": nasty}  # fmt: skip
                file.write(json.dumps(row) + "\n")
    return [log, settings, answers]


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run whose every file is hostile, with words of its answers."""
    folder = tmp_path_factory.mktemp("nasty")
    log, settings, answers = _files(folder)
    out = folder / "report.html"
    asked = ["diagnose", str(log), "--config", str(settings), "--rollouts", str(answers), "--samples", "3"]
    result = CliRunner().invoke(cli, [*asked, "--format", "html", "-o", str(out)])
    assert result.exit_code == 0, result.output
    return out


def test_the_page_of_hostile_files_is_whole_and_plain(nasty: Path) -> None:
    text = nasty.read_text(encoding="utf-8")
    made = Skeleton(text)
    assert not set(_seen(text))
    assert not [name for _, name in made.tags if name.startswith("on")]
    assert not [link for link in made.links if not link.startswith(("#", "https://"))]
    assert "img" not in {tag for tag, _ in made.tags}
    assert any("onerror=pwned=7" in words for words in made.words)


def test_nothing_of_hostile_text_runs_in_a_browser(nasty: Path, tmp_path: Path) -> None:
    pages = [nasty]
    for i in (1, 5):
        worst = tmp_path / f"{i}.html"
        worst.write_text(page(MARKUP[i]), encoding="utf-8")
        pages.append(worst)
    with browser.started() as chrome:
        for file in pages:
            with browser.opened(chrome, file, width=400, height=400) as sheet:
                sheet.unfold()
                assert (
                    sheet.page.evaluate(
                        "[...document.querySelectorAll('button')].slice(0, 16).map(b => b.click()).length"
                    )
                    > 0
                )
                assert sheet.page.evaluate("typeof window.pwned") == "undefined"
                assert sheet.page.locator("img, iframe, object, embed, form, base, link, audio, video").count() == 0
                assert sheet.page.locator("body script:not([type='application/json'])").count() <= 3
                assert sheet.page.evaluate("document.body.scrollHeight") < 60_000
