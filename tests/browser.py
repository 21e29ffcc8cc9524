"""Reports opened in a real browser: the six that every browser test sees, and a page that tells what went wrong on it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rlclinic
from rlclinic import diagnose
from rlclinic.model import Diagnosis, Run
from rlclinic.readers import read
from rlclinic.report import render
from rlclinic.simulate import as_run, scenario

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SHARED = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "trl"


def chromium() -> str | None:
    """The path of the browser: ``$CHROMIUM``, else Debian's or another one on the path; None without any."""
    return os.environ.get("CHROMIUM") or next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def started() -> Iterator[Browser]:
    """One headless browser for many pages; skips the test, and says what to install, where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'rlclinic[test-browser]'")
    path = chromium()
    if path is None:
        pytest.skip("needs a browser: apt-get install chromium, or $CHROMIUM")
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=[*root, *_QUIET])
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """One file in a page of its own. ``page`` is Playwright's; ``wrong`` is all that should not have happened on it."""

    def __init__(self, context: BrowserContext, file: Path) -> None:
        self.url = file.resolve().as_uri()
        self.wrong: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._asked)
        self.page.on("dialog", self._asked_the_user)
        self.page.on("popup", lambda other: self.wrong.append(f"popup: {other.url}"))
        self.page.goto(self.url)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self.wrong.append(f"console {message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if request.url.partition("#")[0] != self.url:
            self.wrong.append(f"request: {request.url[:200]}")

    def _asked_the_user(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message[:200]}")
        dialog.dismiss()

    def unfold(self) -> None:
        """Opens everything that is folded."""
        self.page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")


@contextmanager
def opened(
    browser: Browser,
    file: Path,
    *,
    width: int = 1200,
    height: int = 900,
    dark: bool = False,
    script: bool = True,
    phone: bool = False,
) -> Iterator[Opened]:
    """``file`` in a fresh context of ``width`` pixels; fails at the end when anything went wrong on the page."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        java_script_enabled=script,
        is_mobile=phone,
        has_touch=phone,
        reduced_motion="reduce",
    )
    context.set_default_timeout(30_000)
    try:
        sheet = Opened(context, file)
        yield sheet
        assert not sheet.wrong, sheet.wrong
    finally:
        context.close()


# ------------------------------------------------------------------------------------------------------ six runs


def _demonstrated() -> Run:
    return read([Path(rlclinic.__file__).parent / "demo"])


def _simulated(name: str, dialect: str, steps: int = 400) -> Callable[[], Run]:
    return lambda: as_run(scenario(name, seed=3, steps=steps), dialect)


RUNS: dict[str, Callable[[], Run]] = {
    "demo": _demonstrated,
    "dead_groups": _simulated("zero_variance_all_right", "trl"),
    "healthy": _simulated("plain", "verl"),
    "reward_parts": _simulated("dominating_reward_component", "trl"),
    "not_finite": _simulated("nan_inf", "trl"),
    "short": _simulated("plain", "trl", steps=20),
}
"""Six runs that every browser test opens: an illness with saved answers, without them, health, parts, NaN, too short."""


@cache
def examined(name: str) -> Diagnosis:
    """What is said of one of ``RUNS``."""
    return diagnose(RUNS[name]())


def written(folder: Path, diagnosis: Diagnosis, name: str, samples: int = 0) -> Path:
    """The page of ``diagnosis`` as a file in ``folder``."""
    file = folder / f"{name}.html"
    file.write_text(render(diagnosis, "html", samples=samples), encoding="utf-8")
    return file


# ------------------------------------------------------------------------------------------------------ on paper


def printed(file: Path, folder: Path, dots: int = 50) -> list[NDArray[np.uint8]]:
    """The pages of a PDF as pictures (rows, columns, 3) at ``dots`` an inch, edges not softened; skips without poppler."""
    if shutil.which("pdftoppm") is None:
        pytest.skip("needs pdftoppm: apt-get install poppler-utils")
    hard = ("-aa", "no", "-aaVector", "no")
    subprocess.run(["pdftoppm", *hard, "-r", str(dots), str(file), str(folder / "sheet")], check=True, timeout=60)
    return [_picture(path) for path in sorted(folder.glob("sheet-*.ppm"))]


def _picture(path: Path) -> NDArray[np.uint8]:
    raw = path.read_bytes()
    kind, width, height = raw.split(maxsplit=3)[:3]
    assert kind == b"P6"
    return np.frombuffer(raw[-int(width) * int(height) * 3 :], dtype=np.uint8).reshape(int(height), int(width), 3)
