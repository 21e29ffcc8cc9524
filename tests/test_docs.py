"""Pages for people: every link leads somewhere, and what they name is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"")
_PATH = re.compile(r"`((?:src/rlclinic|tools|tests|benchmarks|docs)/[\w./-]+\.\w+)`")
_MODULE = re.compile(r"`(?:(\w+)/)?(\w+)\.(?:py|toml|css|js)`")


@cache
def words(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```$|^    .*?$", "", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub gives to the headings of a page."""
    titles = re.findall(r"(?m)^#{1,6} +(.+?)\s*$", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one).lower()) for one in titles)
    return frozenset(one.strip().replace(" ", "-") for one in plain)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for found in _LINK.finditer(words(page)):
        link = found[1] or found[2]
        if "://" in link or link.startswith("mailto:"):
            assert re.fullmatch(r"https?://[\w.-]+(/\S*)?|mailto:\S+", link), link
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("page", [one for one in PAGES if one.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    for name in _PATH.findall(words(page)):
        assert (ROOT / name).exists() or "NAME" in name, name


def test_every_module_that_the_architecture_names_is_there() -> None:
    ours = {
        str(path.relative_to(ROOT))
        for part in ("src/rlclinic", "tools", "tests", "benchmarks")
        for path in (ROOT / part).rglob("*.*")
    }
    for folder, name in set(_MODULE.findall(words(ROOT / "docs" / "architecture.md"))) - {("", "NAME")}:
        tail = f"/{folder}/{name}." if folder else f"/{name}."
        assert name.isupper() or any(tail in f"/{path}" for path in ours), f"{folder}/{name}"


def test_every_page_is_linked_from_the_readme() -> None:
    readme = words(ROOT / "README.md")
    for page in (ROOT / "docs").glob("*.md"):
        assert f"](docs/{page.name})" in readme, page.name
