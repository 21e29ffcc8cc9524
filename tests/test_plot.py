"""Pictures of a page: nothing of a curve is lost or made up, hostile words stay words, the numbers for zooming are exact."""

from __future__ import annotations

import base64
import html
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vendor_uplot
from rlclinic.model import Column, Floats, Forecast, Onset
from rlclinic.report.blocks import Chain, Curve, Marks, Overlay, Shares, step
from rlclinic.report.plot import Drawn, draw, island
from rlclinic.report.plot.islands import Points, few
from rlclinic.report.plot.points import course, thinned, unreadable
from rlclinic.report.plot.scales import labels, roomy, step_labels, ticks
from rlclinic.report.series import curve

SOURCE = Path(__file__).parents[1] / "src" / "rlclinic"
HOSTILE = "</script></svg><img src=x onerror=alert(1)>\"'&\u2028\u202e"


def column(values: object, steps: object = None, **rest: object) -> Column:
    found = np.asarray(values, dtype=np.float64)
    at = np.arange(1.0, len(found) + 1) if steps is None else np.asarray(steps, dtype=np.float64)
    return Column("entropy.mean", "entropy", at, found, **rest)  # type: ignore[arg-type]


def block(one: Column, title: str = "Entropy", **rest: object) -> Curve:
    span = (float(one.steps[0]), float(one.steps[-1])) if len(one) else (0.0, 0.0)
    return curve(title, one, span, **{"large": True, **rest})  # type: ignore[arg-type]


def quiet(one: Curve | Overlay | Shares | Chain, **rest: bool) -> Drawn:
    """The picture, drawn without any warning and well formed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw(one, "p1", **rest)
        json.loads(island({"p1": drawn}))
    whole(drawn)
    return drawn


def whole(drawn: Drawn) -> ElementTree.Element:
    return ElementTree.fromstring(f"<figure>{drawn.svg}</figure>")


def paths(drawn: Drawn, kind: str) -> list[str]:
    return [e.get("d", "") for e in whole(drawn).iter("path") if kind in (e.get("class") or "").split()]


def decoded(packed: dict[str, object]) -> tuple[Floats, Floats]:
    """As plot.js reads a column."""
    at, kept = packed["steps"], packed["values"]
    assert isinstance(at, dict)
    assert isinstance(kept, dict)
    kind = next((k for k in ("f8", "u2", "u4") if k in at), "every")
    if kind == "every":
        steps = at["first"] + np.arange(at["n"]) * float(at["every"])
    else:
        raw = np.frombuffer(base64.b64decode(at[kind]), f"<{kind}").astype(np.float64)
        steps = raw if kind == "f8" else at["first"] + np.concatenate(([0.0], np.cumsum(raw)))
    kind = next(iter(kept))
    return steps, np.frombuffer(base64.b64decode(kept[kind]), f"<{kind}").astype(np.float64)


# ------------------------------------------------------------------------------------------------------ points


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 4000), st.integers(8, 300), st.integers(0, 2**32 - 1))
def test_no_spike_is_lost(n: int, bins: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = column(rng.standard_cauchy(n), np.cumsum(rng.integers(1, 3, n)))
    line = thinned(one, bins)
    known = ~np.isnan(line.values)
    steps, values = line.steps[known], line.values[known]
    assert np.all(np.diff(line.steps) >= 0)
    assert len(line.steps) <= 4 * bins + 2
    assert set(zip(steps, values, strict=True)) <= set(zip(one.steps, one.values, strict=True))
    pieces = np.minimum((one.steps - one.steps[0]) / (one.steps[-1] - one.steps[0]) * bins, bins - 1e-9).astype(int)
    for piece in np.unique(pieces):
        here = one.values[pieces == piece]
        assert here.max() in values
        assert here.min() in values


def test_holes_and_nan_break_the_line_and_stay_where_they_are() -> None:
    steps = np.concatenate((np.arange(0, 300.0), np.arange(500, 800.0)))
    values = np.sin(steps / 50)
    values[100:120] = np.nan
    values[400] = np.inf
    one = column(values, steps)
    for line in (thinned(one, 100), few(one, 200), course(one)):
        assert line is not None
        broken = line.steps[np.isnan(line.values)]
        assert ((broken > 99) & (broken < 120)).sum() == 1
        assert ((broken > 299) & (broken < 500)).sum() == 1
    assert unreadable(one) == [(100.0, 119.0), (600.0, 600.0)]
    drawn = quiet(block(one))
    assert paths(drawn, "raw")[0].count("M") >= 3
    assert "21 NaN or infinite" in drawn.svg
    assert len(re.findall("M", paths(drawn, "nan")[0])) == 2
    assert "21 values NaN or infinite" in drawn.summary


def test_every_second_value_nan_is_still_drawn() -> None:
    values = np.arange(5000.0)
    values[::2] = np.nan
    drawn = quiet(block(column(values)))
    assert paths(drawn, "line")
    assert len(drawn.svg) < 40_000


def test_a_lone_point_between_holes_is_a_dot() -> None:
    drawn = quiet(block(column([1, np.nan, 2, np.nan, 3, 4, 5])))
    assert "h0" in paths(drawn, "line")[0]


# ------------------------------------------------------------------------------------------- all kinds of columns


STRANGE = {
    "empty": [],
    "one": [0.5],
    "two": [1, 2],
    "constant": np.full(100, 3.0),
    "zero": np.zeros(100),
    "all NaN": np.full(50, np.nan),
    "huge": np.tile([1.7e308, -1.7e308, 0, 1e300], 30),
    "tiny": np.tile([1e-300, 2e-300, 5e-324], 30),
    "far from zero": 1e15 + np.arange(90.0),
    "one spike": np.where(np.arange(400) == 200, 1e30, 0.5),
    "infinite": np.tile([np.inf, -np.inf, 1.0], 20),
}


@pytest.mark.parametrize("values", STRANGE.values(), ids=STRANGE.keys())
def test_strange_columns_are_drawn_without_a_warning(values: object) -> None:
    one = column(values)
    marks = Marks(Forecast("x", 150.0, 120.0, None), (10.0, 20.0), (5.0,), 10.0)
    for mark in (None, Onset(3, 2, 4), Onset(float("nan"), float("-inf"), float("inf"))):
        found = block(one, mark=mark, marks=marks)
        for small in (False, True):
            drawn = quiet(found, small=small)
            assert not re.search(r"[0-9 ](nan|inf)[ 0-9\"]", re.sub('class="[^"]*"', "", drawn.svg))
            assert drawn.summary.endswith(".")
    quiet(Overlay("Reward", (("a", one), ("b", column([1, 2, 3]))), (1.0, 100.0), mark=Onset(3, 2, 4)))


def test_spikes_beyond_the_scale_are_marked_and_counted() -> None:
    values = 1 + 0.1 * np.sin(np.arange(400.0))
    values[[100, 300]] = 1e6
    drawn = quiet(block(column(values)))
    assert len(re.findall("<svg x=", drawn.svg)) == 2
    assert "2 values beyond the scale" in drawn.summary


def test_rounded_and_structural_zeros_are_told() -> None:
    assert "printed 0: below 5e-4" in quiet(block(column(np.tile([0, 0.001], 50), resolution=0.001))).svg
    zero = column(np.zeros(50), status="structural_zero", because="beta is 0")
    drawn = quiet(block(zero))
    assert "zero by construction: beta is 0" in drawn.svg
    assert drawn.data is None
    assert not paths(drawn, "line")


def test_onset_forecast_checkpoints_and_seams_are_drawn() -> None:
    rng = np.random.default_rng(1)
    values = 1.0 - 0.0015 * np.arange(400) + rng.normal(0, 0.02, 400)
    marks = Marks(Forecast("the floor", 520.0, 480.0, 600.0), (100.0, 200.0), (150.0,), 100.0)
    drawn = quiet(block(column(values), mark=Onset(200, 190, 220), marks=marks, name="entropy.mean"))
    for kind in ("band", "onset", "seam", "saved", "fan", "ahead", "back", "met", "met-at"):
        assert f'class="{kind}"' in drawn.svg, kind
    for words in ("since step 200 (190\u2013220)", "checkpoint 100", "forecast: step 520 (480\u2013600)"):
        assert words in drawn.svg
    assert "since step 200" in drawn.summary
    assert "forecast: step 520" in drawn.summary
    far = Marks(Forecast("x", 9000.0, 5000.0, None))
    assert ">640<" in quiet(block(column(values), marks=far)).svg  # 60 % of the span, no further


def test_long_words_fit_a_narrow_page() -> None:
    for first, place, words in (
        (1e6, 'x="50%" y="-8" text-anchor="middle"', "since step 1000051 (1000040\u20131000060)"),
        (1e9, 'x="51.52%" y="-8" text-anchor="end"', "since step 1000000051"),
    ):
        mark = Onset(first + 51, first + 40, first + 60)
        drawn = quiet(block(column(np.arange(100.0), first + np.arange(100.0)), mark=mark))
        assert f'<text class="since" {place}>{words}<' in drawn.svg


def test_held_out_scores_have_intervals_of_their_answers() -> None:
    rng = np.random.default_rng(2)
    one = column(rng.binomial(200, 0.6, 20) / 200, np.arange(20) * 25.0)
    drawn = quiet(block(one, name="eval.score"))
    assert paths(drawn, "error")[0].count("M") == 20
    assert "95 % intervals of 200 answers" in drawn.summary
    assert not paths(quiet(block(column(rng.normal(3, 1, 20)), name="eval.score")), "error")


# ------------------------------------------------------------------------------------------------------ axes


@settings(max_examples=30, deadline=None)
@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.integers(2, 8))
def test_ticks_are_few_within_and_tell_each_other_apart(a: float, b: float, most: int) -> None:
    low, high = roomy(min(a, b), max(a, b))
    found = ticks(low, high, most)
    assert 1 <= len(found) <= most + 2
    slack = (high / 2 - low / 2) * 1e-6
    assert all(low - slack <= t <= high + slack for t in found)
    assert len(labels(found)) == len(found)


def test_labels_are_round_and_steps_keep_their_ends() -> None:
    assert labels(ticks(0.0, 1.0, 4)) == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert labels(ticks(-0.3, 0.31, 4)) == ["-0.2", "0.0", "0.2"]
    assert [words for _, words in step_labels(1.0, 399.0, 7)] == ["1", "100", "200", "300", "399"]
    assert [words for _, words in step_labels(5.0, 5.0, 7)] == ["5"]


# ----------------------------------------------------------------------------------------------------- the island


def test_large_steps_and_all_values_come_back_exactly() -> None:
    steps = 2.0**24 + np.array([0, 1, 2, 3, 5, 7, 8, 9, 70_000, 70_001, 5_000_000_000])
    values = np.array([0.1, np.nan, -3.5, 1e30, 0, 1, 2, 3, 4, 5, 6])
    packed = json.loads(island({"p1": draw(block(column(values, steps), mark=Onset(2, 1, 3)), "p1")}))
    at, kept = decoded(packed["columns"][packed["plots"]["p1"]["lines"][0]["points"]])
    known = np.isfinite(kept)
    assert at[known].tolist() == steps[np.isfinite(values)].tolist()
    np.testing.assert_allclose(kept[known], values[np.isfinite(values)], rtol=1e-6)
    fractions = column(np.arange(5.0), [0.5, 0.75, 1.0, 3.25, 4.0])
    packed = json.loads(island({"p1": draw(block(fractions), "p1")}))
    at, kept = decoded(packed["columns"][0])
    assert at[np.isfinite(kept)].tolist() == fractions.steps.tolist()


def test_values_that_32_bits_cannot_tell_apart_keep_64() -> None:
    for values in (1e9 + np.arange(50.0), np.linspace(1e300, 2e300, 50), np.linspace(1e-300, 2e-300, 50)):
        packed = json.loads(island({"p1": draw(block(column(values)), "p1")}))
        assert "f8" in packed["columns"][0]["values"]
        assert decoded(packed["columns"][0])[1].tolist() == values.tolist()


def data(one: Column, *, found: bool) -> dict[str, object]:
    """What is zoomed of a column of which a finding speaks, or none."""
    return {"lines": [{"name": "", "points": Points(one, whole=found), "course": None}]}


def test_a_page_of_long_runs_stays_small_and_keeps_what_findings_speak_of() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(size=20_000)
    drawn = {}
    one = draw(block(column(noise), mark=Onset(9_000, 8_000, 10_000)), "p0")
    for i in range(60):  # the same picture with other numbers: drawing sixty takes longer than a test should
        drawn[f"p{i}"] = replace(one, data=data(column(np.roll(noise, i)), found=i < 12))
    text = island(drawn)
    lengths = [packed["steps"]["n"] for packed in json.loads(text)["columns"]]
    assert max(lengths) == 20_000
    assert sorted(lengths)[30] <= 2_000
    assert len(text) + 60 * len(one.svg) < 2_900_000


def test_a_column_drawn_twice_is_packed_once() -> None:
    one = column(np.arange(100.0))
    text = island({"a": draw(block(one), "a"), "b": draw(block(one), "b", small=True)})
    assert len(json.loads(text)["columns"]) == 1


def test_hostile_words_stay_words() -> None:
    one = column(np.arange(100.0))
    drawings = [
        draw(block(one, title=HOSTILE), "p1"),
        draw(block(one, title=HOSTILE), "p1", small=True),
        draw(Overlay(HOSTILE, ((HOSTILE, one), (HOSTILE, one)), (1.0, 100.0), axis=HOSTILE), "p1"),
        draw(Shares(HOSTILE, (HOSTILE, HOSTILE), one.steps, np.full((2, 100), 0.5)), "p1"),
        draw(Chain(((1, HOSTILE, "critical"), (2, HOSTILE, "info")), ((1, 2),)), "p1"),
    ]
    for drawn in drawings:
        tags = {e.tag for e in whole(drawn).iter()}
        assert tags <= {"figure", "svg", "g", "title", "desc", "text", "tspan", "path", "rect", "line", "a", "circle"}
        attributes = {name for e in whole(drawn).iter() for name in e.attrib}
        assert not {name for name in attributes if name.startswith("on") or name == "style"}
        text = island({"p1": drawn})
        assert not re.search("[<>&\u2028\u2029]", text)
        json.loads(text)
    assert "alert(1)" in html.unescape(str(drawings[0].svg))


# ----------------------------------------------------------------------------------- overlays, shares and chains


def test_runs_are_told_apart_by_more_than_colour() -> None:
    rng = np.random.default_rng(4)
    lines = tuple((f"run {i}", column(i + rng.normal(0, 0.1, 100))) for i in range(6))
    drawn = quiet(Overlay("Reward", lines, (1.0, 100.0), mark=Onset(50, 40, 60)))
    assert all(f"run {i}" in drawn.svg for i in range(6))
    assert "part at step 50" in drawn.svg
    dashes = re.findall(r"\.line\.run\d \{[^}]*dasharray: ([\d ]+)", (SOURCE / "report/page/plot.css").read_text())
    assert len(set(dashes)) == 5
    ends = sorted(float(y) for y in re.findall(r'class="last run\d" x="[^"]+" y="([^"]+)"', drawn.svg))
    assert min(np.diff(ends)) >= 13


def test_shares_fill_the_whole_and_name_every_part() -> None:
    steps = np.arange(1.0, 501.0)
    weights = np.vstack([np.linspace(1, 0.1, 500), np.linspace(0.1, 1, 500), np.full(500, 0.01)])
    drawn = quiet(Shares("Variance", ("right", "format", "a small one"), steps, weights / weights.sum(0)))
    assert len(paths(drawn, "part")) >= 3
    assert all(name in drawn.svg for name in ("right", "format", "a small one"))
    assert "at first" in drawn.summary
    quiet(Shares("Variance", (), np.empty(0), np.empty((0, 0))))
    quiet(Shares("Variance", tuple("abcdefghijkl"), np.array([1.0]), np.full((12, 1), 1 / 12)))


def test_where_there_is_nothing_to_divide_no_share_is_drawn() -> None:
    steps = np.arange(1.0, 101.0)
    shares = np.vstack([np.full(100, 0.25), np.full(100, 0.75)])
    whole = paths(quiet(Shares("Variance", ("a", "b"), steps, shares)), "part")
    shares[:, 40:] = np.nan
    shares[:, 70] = 0.5
    drawn = quiet(Shares("Variance", ("a", "b"), steps, shares))
    assert len(paths(drawn, "part")) == 2 * len(whole) == 4
    assert "nan" not in drawn.svg.lower()
    assert "a 25 % at first, 50 % at last" in drawn.summary


def test_a_chain_links_its_findings_and_says_what_leads_where() -> None:
    nodes = ((1, "learning_rate_too_high", "critical"), (2, "kl_drift", "warning"), (3, "sudden_collapse", "critical"))
    drawn = quiet(Chain(nodes, ((1, 2), (2, 3), (1, 3))))  # type: ignore[arg-type]
    assert drawn.data is None
    for number, name, tone in nodes:
        assert drawn.svg.count(f'href="#finding-{number}"') == 2  # one form for wide pages, one for narrow ones
        assert name in drawn.svg
        assert f"{number}. {tone}" in drawn.svg
    assert "1 learning_rate_too_high leads to 2 kl_drift" in drawn.summary
    names = [f"a finding of {'many ' * k}words, or of more" for k in range(9)]
    deep = Chain(
        tuple((k, name, "warning") for k, name in enumerate(names, 1)),
        ((1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (2, 7), (7, 6)),
    )  # type: ignore[arg-type]
    tree = quiet(deep).svg
    assert 'class="chain wide tree"' in tree
    assert "6 a finding of" in tree
    assert "also from 7" in tree, "the second cause of a line in a tree"
    assert "finding-8" not in tree, "what stands alone is left out"
    quiet(Chain((), ()))
    quiet(Chain(((1, "a", "info"), (2, "b", "info")), ((1, 2), (2, 1), (1, 1), (1, 9))))


# ------------------------------------------------------------------------------------------------- outside code


def test_uplot_is_what_was_fetched() -> None:
    assert not vendor_uplot.wrong()
    home = SOURCE / "_vendor" / "uplot"
    assert {p.name for p in home.iterdir()} == {*(f.rpartition("/")[2] for f in vendor_uplot.FILES), "fetched.json"}
    assert vendor_uplot.VERSION in (home / "uPlot.iife.min.js").read_text(encoding="utf-8")[:200]


def test_what_the_page_adds_needs_no_network_and_no_markup() -> None:
    script = (SOURCE / "report/page/plot.js").read_text(encoding="utf-8")
    for word in ("innerHTML", "eval(", "fetch(", "http", "import(", 'setAttribute("style"', "outerHTML"):
        assert word not in script
    assert "url(" not in (SOURCE / "report/page/plot.css").read_text(encoding="utf-8")


def test_neighbouring_steps_are_told_apart_however_large() -> None:
    steps = [1e15, 1e15 + 1, 2.0**53 - 1, 12345678901.0, 0.5, -0.0, -7.0]
    assert [step(at) for at in steps] == ["1000000000000000", "1000000000000001", "9007199254740991", "12345678901", "0.5",
                                          "0", "-7"]  # fmt: skip
    assert step(1e300) == "1e+300"
