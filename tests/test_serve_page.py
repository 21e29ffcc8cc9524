"""The live page in a real browser: it opens in silence, follows the log, and leaves the reader where he was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browser import started
from live_pages import Served, rows, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Page

TOKEN = "0123456789abcdefTOKEN"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as chrome:
        yield chrome


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page with findings and events that nothing is added to."""
    path = tmp_path_factory.mktemp("sick") / "log.jsonl"
    path.write_text("".join(rows("zero_variance_all_right", 120)))
    with served(path) as live:
        live.until_look(1)
        yield live


@contextmanager
def looking(browser: Browser, url: str, **given: Any) -> Iterator[Page]:
    """The page at ``url``; fails at the end for any word on the console and any request to another place."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, reduced_motion="reduce", **given)
    context.set_default_timeout(10_000)
    wrong: list[str] = []
    page = context.new_page()
    page.on(
        "console", lambda said: wrong.append(f"{said.type}: {said.text}") if said.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda asked: None if asked.url.startswith("http://127.0.0.1:") else wrong.append(asked.url))
    try:
        page.goto(url, wait_until="load")
        yield page
        assert not wrong, wrong
    finally:
        context.close()


def frame(page: Page) -> FrameLocator:
    return page.frame_locator("iframe.shown")


def until(page: Page, words: str, seconds: float = 20.0) -> None:
    """Wait until the script ``words`` is true."""
    end = time.monotonic() + seconds
    while not page.evaluate(words):
        assert time.monotonic() < end, words
        page.wait_for_timeout(50)


def grow(page: Served, path: Path, lines: list[str]) -> None:
    look = page.board.page.look
    with path.open("a") as file:
        file.write("".join(lines))
    page.until_look(look + 1)


def test_it_follows_the_log_and_leaves_the_reader_where_he_was(browser: Browser, tmp_path: Path) -> None:
    path, lines = tmp_path / "log.jsonl", rows("zero_variance_all_right", 160)
    path.write_text("".join(lines[:100]))
    with served(path) as live:
        live.until_look(1)
        with looking(browser, live.url) as page:
            frame(page).locator("h1").wait_for()
            assert page.locator(".state").inner_text() == "live"
            folds = frame(page).locator("details:not([open]) > summary")
            words = folds.first.inner_text()
            folds.first.click()
            opener = frame(page).locator("figure[data-plot] .zoom:visible").first
            opener.click()
            figure = frame(page).locator("figure.open").get_attribute("id")
            canvas = frame(page).locator("figure.open .canvas")
            canvas.press("+")
            canvas.press("+")
            zoomed = [
                float(frame(page).locator("figure.open").get_attribute(f"data-{end}") or 0) for end in ("from", "to")
            ]
            assert zoomed[1] - zoomed[0] < 60
            page.evaluate("document.querySelector('iframe.shown').contentWindow.scrollTo(0, 700)")
            before = page.locator(".step").inner_text()
            grow(live, path, lines[100:])
            until(page, f"document.body.dataset.look === '{live.board.look}'")
            assert page.locator("iframe").count() == 1
            assert page.locator(".step").inner_text() != before
            until(page, "document.querySelector('iframe.shown').contentWindow.scrollY > 200")
            assert frame(page).locator("figure.open").get_attribute("id") == figure
            frame(page).locator("figure.open[data-whole]").wait_for()
            now = [
                float(frame(page).locator("figure.open").get_attribute(f"data-{end}") or 0) for end in ("from", "to")
            ]
            assert now == pytest.approx(zoomed, abs=1.0)
            same = frame(page).locator("details[open] > summary", has_text=words)
            assert same.count() >= 1


def test_it_can_be_held(browser: Browser, tmp_path: Path) -> None:
    path, lines = tmp_path / "<img src=x onerror=alert(1)>&quot;.jsonl", rows("plain", 60)
    path.write_text("".join(lines[:40]))
    with served(path) as live:
        live.until_look(1)
        with looking(browser, live.url) as page:
            frame(page).locator("h1").wait_for()
            assert page.locator("header h1").inner_text().startswith("<img src=x onerror=alert(1)>&quot;")
            page.get_by_role("button", name="Pause updates").click()
            before = page.locator(".step").inner_text()
            grow(live, path, lines[40:])
            until(page, f"document.querySelector('.step').textContent !== {before!r}")
            assert page.evaluate("document.body.dataset.look") not in ("", live.board.look)
            page.get_by_role("button", name="Pause updates").click()
            until(page, f"document.body.dataset.look === '{live.board.look}'")


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(browser: Browser, sick: Served, dark: bool) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    with looking(browser, sick.url, color_scheme="dark" if dark else "light") as page:
        frame(page).locator("h1").wait_for()
        page.locator(".events summary").click()
        # The report in the frame is looked at by tests/test_browser.py.
        found = axe.Axe().run(page, context={"include": ["html"], "exclude": ["iframe"]}, options={"iframes": False})
        serious = [one["id"] for one in found.response["violations"] if one["impact"] in ("serious", "critical")]
        assert serious == []


def test_without_script_it_is_the_report(browser: Browser, sick: Served) -> None:
    with looking(browser, sick.url, java_script_enabled=False) as page:
        assert frame(page).locator("h1").inner_text()
        assert page.locator(".step").inner_text().startswith("step 120")
        assert page.locator("button.hold").is_hidden()


def test_a_token_opens_it_once_and_is_not_left_in_the_address(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(rows("plain", 40)))
    with served(path, token=TOKEN) as live:
        live.until_look(1)
        with looking(browser, f"{live.url}?token={TOKEN}") as page:
            assert page.url == live.url
            frame(page).locator("h1").wait_for()
            until(page, "document.querySelector('.age').textContent.startsWith('last row')")
            page.reload()
            frame(page).locator("h1").wait_for()
