"""The report in a real browser: six runs opened, zoomed, walked by keyboard, read on a phone, in the dark, on paper."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from browser import RUNS, SHARED, examined, opened, printed, started, written
from rlclinic import diagnose
from rlclinic.readers import read

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDE, PHONE = 1200, 400


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as chrome:
        yield chrome


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def report(folder: Path, name: str) -> Path:
    """The page of one of the six runs, made once; that of the demonstration with words of its answers."""
    file = folder / f"{name}.html"
    return file if file.exists() else written(folder, examined(name), name, samples=2 if name == "demo" else 0)


every_run = pytest.mark.parametrize("name", RUNS)


# ------------------------------------------------------------------------------------------------------- curves

_CURVES = """() => [...document.querySelectorAll('figure.plot')].map(figure => {
  const svg = figure.querySelector('svg'), box = svg && svg.getBoundingClientRect();
  const inked = svg ? [...svg.querySelectorAll('path, rect')].filter(mark => {
    const style = getComputedStyle(mark), size = mark.getBoundingClientRect();
    return style.stroke !== 'none' && parseFloat(style.strokeWidth) > 0 && style.visibility === 'visible' && size.width > 2;
  }).length : 0;
  const canvas = figure.querySelector('canvas');
  return {id: figure.id, svg: !!svg && svg.checkVisibility() && box.width > 40 && box.height > 10, inked,
          named: !!svg && (svg.getAttribute('role') !== 'img' || !!(svg.getAttribute('aria-label') ||
                 svg.getAttribute('aria-labelledby'))),
          canvas: !!canvas && canvas.checkVisibility() && canvas.getBoundingClientRect().width > 40};
})"""


def curves(page: Page) -> list[dict[str, Any]]:
    """What is to be seen of every figure, whatever is folded."""
    found: list[dict[str, Any]] = page.evaluate(_CURVES)
    return found


@every_run
def test_it_opens_in_silence_and_shows_every_curve(browser: Browser, folder: Path, name: str) -> None:
    with opened(browser, report(folder, name)) as sheet:
        sheet.unfold()
        seen = curves(sheet.page)
        assert len(seen) >= (0 if name == "short" else 5)
        assert [one["id"] for one in seen if not (one["svg"] and one["inked"] and one["named"])] == []
        assert not any(one["canvas"] for one in seen)
        assert sheet.page.evaluate("document.querySelectorAll('[id]').length === new Set([...document.querySelectorAll"
                                   "('[id]')].map(e => e.id)).size"), "an id is used twice"  # fmt: skip
        assert sheet.page.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].every(a => document.getElementById"
                                   "(a.getAttribute('href').slice(1)))"), "a link leads nowhere"  # fmt: skip


@every_run
def test_without_script_all_words_and_curves_are_there(browser: Browser, folder: Path, name: str) -> None:
    said = []
    for script in (True, False):
        with opened(browser, report(folder, name), script=script) as sheet:
            sheet.unfold()
            assert all(one["svg"] and one["inked"] for one in curves(sheet.page))
            hidden = "document.querySelectorAll('button, .told').forEach(e => e.remove())"
            dead = "[...document.querySelectorAll('button')].filter(b => b.checkVisibility()).length"
            assert script or sheet.page.evaluate(dead) == 0, "buttons that do nothing"
            sheet.page.evaluate(hidden)
            said.append(sheet.page.evaluate("document.body.innerText").split())
    assert said[0] == said[1]


# ---------------------------------------------------------------------------------------------- dark, light, phone


def _violations(page: Page) -> list[str]:
    """Serious and critical ones of axe-core, each with the first place where it was seen."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    found = axe.Axe().run(page, options={"resultTypes": ["violations"], "elementRef": False})
    return [
        f"{one['id']} ({len(one['nodes'])}): {one['nodes'][0]['html'][:160]} {one['nodes'][0]['failureSummary'][:300]}"
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]


_VIEWS = {
    "demo": (WIDE, False),
    "dead_groups": (PHONE, False),
    "healthy": (WIDE, True),
    "reward_parts": (WIDE, True),
    "not_finite": (PHONE, True),
    "short": (PHONE, False),
}
"""Width and darkness in which axe-core looks at each of the six: it takes seconds of a large page."""


@every_run
def test_axe_finds_nothing_serious(browser: Browser, folder: Path, name: str) -> None:
    width, dark = _VIEWS[name]
    with opened(browser, report(folder, name), width=width, dark=dark) as sheet:
        if name == "not_finite":  # one with everything unfolded: it takes seconds of each
            sheet.unfold()
        assert _violations(sheet.page) == []


def _brightness(page: Page) -> float:
    shot = "getComputedStyle(document.body).backgroundColor"
    colour = page.evaluate(f"{shot} === 'rgba(0, 0, 0, 0)' ? {shot.replace('body', 'documentElement')} : {shot}")
    return float(np.mean([float(part) for part in colour.strip("rgba()").split(",")[:3]]))


def test_dark_and_light_follow_the_reader_and_print_is_light(browser: Browser, folder: Path) -> None:
    with opened(browser, report(folder, "demo")) as sheet:
        assert _brightness(sheet.page) > 200
        sheet.page.emulate_media(color_scheme="dark")
        assert _brightness(sheet.page) < 60
        sheet.page.emulate_media(color_scheme="dark", media="print")
        assert _brightness(sheet.page) > 200


_STICKS_OUT = """() => {
  const room = document.documentElement.clientWidth, scrolls = e => {
    for (let up = e.parentElement; up; up = up.parentElement)
      if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(up).overflowX)
          && up.getBoundingClientRect().right <= room + 1) return true;
    return false;
  };
  const wide = [...document.body.querySelectorAll('*')].filter(e => !e.closest('svg svg, svg *') && e.checkVisibility()
    && e.getBoundingClientRect().width > 1 && e.getBoundingClientRect().right > room + 1 && !scrolls(e));
  return [document.documentElement.scrollWidth - room, wide.slice(0, 3).map(e => e.outerHTML.slice(0, 120))];
}"""


@every_run
def test_nothing_is_wider_than_a_phone(browser: Browser, folder: Path, name: str) -> None:
    with opened(browser, report(folder, name), width=PHONE, phone=True) as sheet:
        sheet.unfold()
        assert sheet.page.evaluate("innerWidth") == PHONE
        over, wide = sheet.page.evaluate(_STICKS_OUT)
        assert (max(over, 0), wide) == (0, [])


# ------------------------------------------------------------------------------------------------------- on paper


@every_run
def test_on_paper_every_curve_and_every_fold_is_shown(browser: Browser, folder: Path, name: str) -> None:
    with opened(browser, report(folder, name)) as sheet:
        _zoomed(sheet.page)
        sheet.page.emulate_media(media="print")
        seen = curves(sheet.page)
        assert all(one["svg"] and one["inked"] for one in seen)
        assert not any(one["canvas"] for one in seen)
        lost = "[...document.querySelectorAll('details > *')].filter(e => !e.checkVisibility({contentVisibilityAuto: true}))"
        assert sheet.page.evaluate(f"{lost}.map(e => e.outerHTML.slice(0, 80))") == []
        assert (
            sheet.page.evaluate("[...document.querySelectorAll('button')].filter(b => b.checkVisibility()).length") == 0
        )


_COLOURS = """() => {
  const figures = [...document.querySelectorAll('figure.plot')];
  figures.forEach((figure, i) => figure.querySelectorAll('svg path').forEach(path => {
    if (getComputedStyle(path).stroke !== 'none')
      path.style.setProperty('stroke', `rgb(255, ${i % 16 * 12}, ${250 - 12 * Math.floor(i / 16)})`, 'important');
    path.style.setProperty('stroke-opacity', '1', 'important');
    path.style.setProperty('opacity', '1', 'important');
  }));
  return figures.length;
}"""


_SHEETS = {"demo": 10, "healthy": 4}
"""Sheets of paper at most; those of the demonstration with two saved answers a finding."""


@pytest.mark.parametrize("name", list(_SHEETS))
def test_a_real_print_holds_the_ink_of_every_curve_and_the_words_of_every_fold(
    browser: Browser, folder: Path, tmp_path: Path, name: str
) -> None:
    """Each figure's lines are given a colour of their own before the print, then looked for on the rendered pages."""
    file = tmp_path / "report.pdf"
    with opened(browser, report(folder, name)) as sheet:
        folded = sheet.page.evaluate("[...document.querySelectorAll('details:not([open]) p')].map(p => p.textContent)")
        many = sheet.page.evaluate(_COLOURS)
        sheet.page.pdf(path=file, format="A4", print_background=True)
    pages = printed(file, tmp_path)
    assert 1 <= len(pages) <= _SHEETS[name]
    assert all(float((page < 200).mean()) > 0.001 for page in pages), "an empty sheet"
    ink = np.concatenate([page.reshape(-1, 3) for page in pages])
    colours = [(255, i % 16 * 12, 250 - 12 * (i // 16)) for i in range(many)]
    ink = ink[np.abs(ink.astype(np.int16) - ink[:, :1]).sum(axis=1) > 60].astype(np.int16)  # no grey
    found = [int((np.abs(ink - np.array(colour)).max(axis=1) < 3).sum()) for colour in colours]
    assert [i for i, dots in enumerate(found) if dots < 10] == [], found
    text = subprocess.run(["pdftotext", str(file), "-"], capture_output=True, text=True, check=True).stdout
    words = "".join(text.casefold().split())  # labels are printed as capitals, columns in any order, long words broken
    assert [word for said in folded for word in said.casefold().split()[:2] if word not in words] == []


# ---------------------------------------------------------------------------------------- zoom, keys, copying


def _zoomed(page: Page) -> Any:
    """Opens the first figure that can be zoomed; its button, or None."""
    button = page.locator("figure.plot button.zoom:visible").first
    if not button.count():
        return None
    button.focus()
    page.keyboard.press("Enter")
    page.locator("figure.plot canvas").first.wait_for()
    return button


def _ends(page: Page) -> tuple[float, float]:
    """The first and the last step that the open plot shows."""
    page.wait_for_timeout(80)  # it is drawn with the next frame
    first, last = page.evaluate("(({from, to}) => [from, to])(document.querySelector('figure.open').dataset)")
    return float(first), float(last)


def _dragged(page: Page, place: str, first: float, last: float) -> None:
    page.locator(place).first.scroll_into_view_if_needed()
    box = page.locator(place).first.bounding_box()
    assert box is not None
    height = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + first * box["width"], height)
    page.mouse.down()
    page.mouse.move(box["x"] + (first + last) / 2 * box["width"], height, steps=3)
    page.mouse.move(box["x"] + last * box["width"], height, steps=3)
    page.mouse.up()


@pytest.mark.parametrize("name", ["demo", "reward_parts"])
def test_a_plot_is_zoomed_by_dragging_and_given_back(browser: Browser, folder: Path, name: str) -> None:
    with opened(browser, report(folder, name)) as sheet:
        page = sheet.page
        before = page.evaluate("document.body.innerText")
        drawn = [one["svg"] for one in curves(page)]
        button = _zoomed(page)
        shown = curves(page)
        assert [one["canvas"] for one in shown].count(True) == 1
        whole = _ends(page)
        assert whole[1] - whole[0] > 100
        _dragged(page, ".u-over", 0.25, 0.5)
        part = _ends(page)
        assert whole[0] < part[0] < part[1] < whole[1]
        assert 0.15 < (part[1] - part[0]) / (whole[1] - whole[0]) < 0.35
        page.get_by_role("button", name="reset").click()
        assert _ends(page) == whole
        page.locator(".live [tabindex]").first.focus()
        page.keyboard.press("+")
        near = _ends(page)
        assert near[1] - near[0] < whole[1] - whole[0]
        page.keyboard.press("Escape")
        assert page.locator("canvas").count() == 0
        assert button.evaluate("e => e === document.activeElement")
        assert [one["svg"] for one in curves(page)] == drawn
        assert page.evaluate("document.body.innerText") == before


def test_dragging_over_the_drawing_opens_that_part_of_it(browser: Browser, folder: Path) -> None:
    with opened(browser, report(folder, "demo")) as sheet:
        page = sheet.page
        page.locator("figure[data-plot] svg").first.scroll_into_view_if_needed()
        _dragged(page, "figure[data-plot] svg", 0.4, 0.6)
        first, last = _ends(page)
        assert 60 < first < 100 < last < 140
        assert page.evaluate("String(getSelection())") == ""


_TO_REACH = """[...document.querySelectorAll("a[href], button, summary, input, select, [tabindex='0']")]
  .filter(e => e.checkVisibility({visibilityProperty: true}) && !e.disabled)"""


_LISTEN = """() => {
  window.reached = []; window.unseen = [];
  document.addEventListener('focusin', event => {
    const place = event.target, style = getComputedStyle(place);
    if (!('n' in place.dataset) || window.reached.includes(+place.dataset.n)) return;
    window.reached.push(+place.dataset.n);
    const box = place.querySelector('.box'); // in a drawing the box itself is outlined
    const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0
      || !!box && parseFloat(getComputedStyle(box).strokeWidth) >= 2;
    if (!ring) window.unseen.push(place.outerHTML.slice(0, 80));
  });
}"""


def test_the_keyboard_alone_reaches_and_opens_everything(browser: Browser, folder: Path) -> None:
    with opened(browser, report(folder, "not_finite")) as sheet:
        page = sheet.page
        for _ in range(4):  # what is folded in a fold comes to sight with it
            folds = page.locator("summary:visible").all()
            for fold in folds:
                if fold.evaluate("e => !e.parentElement.open"):
                    fold.focus()
                    page.keyboard.press("Enter")
        assert page.evaluate("[...document.querySelectorAll('details')].every(fold => fold.open)")
        wanted = page.evaluate(f"({_TO_REACH}).map((e, i) => e.dataset.n = i).length")
        page.evaluate("document.activeElement.blur()")
        page.evaluate(_LISTEN)
        for _ in range(wanted + 4):
            page.keyboard.press("Tab")
        reached, unseen = page.evaluate("[window.reached, window.unseen]")
        first = reached.index(0)
        assert (reached[first:] + reached[:first])[:wanted] == list(range(wanted))
        assert unseen == []


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "refused"])
def test_copying_a_change_gives_exactly_what_to_write(browser: Browser, folder: Path, allowed: bool) -> None:
    with opened(browser, report(folder, "not_finite")) as sheet:
        page = sheet.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"] if allowed else [])
        button = page.locator("button.copy:visible").first
        wanted = page.evaluate("b => document.getElementById(b.dataset.copy).textContent", button.element_handle())
        assert "=" in wanted or ":" in wanted
        assert wanted == wanted.strip()
        button.focus()
        page.keyboard.press("Enter")
        page.locator("[role=status]:not(:empty)").wait_for(state="attached")
        assert button.inner_text() in ("Copied", "Selected")
        if allowed:
            assert page.evaluate("navigator.clipboard.readText()") == wanted
        else:
            taken = button.inner_text() == "Copied"
            assert taken or page.evaluate("String(getSelection())") == wanted


def test_the_reader_can_choose_light_or_dark(browser: Browser, folder: Path) -> None:
    with opened(browser, report(folder, "demo")) as sheet:
        page = sheet.page
        light = _brightness(page)
        page.locator("button.theme").click()
        assert light - _brightness(page) > 100
        page.emulate_media(media="print")
        assert _brightness(page) > 200


def test_a_link_to_a_finding_goes_there(browser: Browser, folder: Path) -> None:
    with opened(browser, report(folder, "demo")) as sheet:
        page = sheet.page
        link = page.locator("a[href^='#finding-']:visible").last
        target = link.get_attribute("href") or ""
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_timeout(100)
        top, bottom, room = page.evaluate(
            "h => (({top, bottom}) => [top, bottom, innerHeight])(document.querySelector(h).getBoundingClientRect())",
            target,
        )
        assert top < bottom
        assert top < room
        assert bottom > 0


# ------------------------------------------------------------------------------------------------------ real runs

_REAL = ("healthy", "reward_hacking", "grad_nan_crash")


@pytest.mark.parametrize("name", _REAL)
def test_real_runs_open_in_silence_on_any_screen(browser: Browser, folder: Path, name: str) -> None:
    if not (SHARED / name).is_dir():
        pytest.skip("needs the shared corpus beside this repository")
    file = written(folder, diagnose(read([SHARED / name])), f"real_{name}")
    with opened(browser, file) as sheet:
        sheet.unfold()
        assert all(one["svg"] and one["inked"] for one in curves(sheet.page))
        sheet.page.set_viewport_size({"width": PHONE, "height": 800})
        over, wide = sheet.page.evaluate(_STICKS_OUT)
        assert (max(over, 0), wide) == (0, [])
