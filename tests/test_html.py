"""The page: one file in order, closed to the network, every finding with its place, nothing of a log as markup."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rlclinic.cli import cli
from rlclinic.cli.options import ENDINGS
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest
from rlclinic.model import Column, Component, Cost, Diagnosis, Run, Verdict
from rlclinic.readers import read
from rlclinic.report import render
from rlclinic.report.blocks import Bullets, Change, Curve, Folded, Heading, KeyNumbers, Paragraph, Passage, Sources
from rlclinic.report.html import highlighted, render_html
from rlclinic.report.pages import page, shares_of_variance
from test_report import CASES, hostile, sick

DEMO = Path(__file__).parents[1] / "src" / "rlclinic" / "demo"
VOID = {"meta", "link", "br", "hr", "img", "input", "path", "rect", "circle", "line", "use", "stop"}


class Tree(HTMLParser):
    """What a page holds: its elements in order, its ids, its texts, and whether its tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.inlined: dict[str, list[str]] = {"script": [], "style": []}
        self.broken: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag in self.inlined:
            self.inlined[tag].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.broken.append(tag)

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside in self.inlined:
            self.inlined[inside][-1] += data
        else:
            self.texts.append(data)

    def attributes(self, tag: str, name: str) -> list[str]:
        return [attrs[name] for found, attrs in self.elements if found == tag and name in attrs]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def collapsed() -> Diagnosis:
    return diagnose(read([DEMO / "metrics.jsonl", DEMO / "config.yaml"]))


@pytest.fixture(scope="module")
def drawn(collapsed: Diagnosis) -> str:
    return render(collapsed, "html")


@pytest.fixture(scope="module")
def tree(drawn: str) -> Tree:
    return Tree(drawn)


@pytest.mark.parametrize("case", CASES)
def test_every_page_is_whole(case: str) -> None:
    text = render(CASES[case](), "html")
    found = Tree(text)
    assert text.startswith("<!DOCTYPE html>\n")
    assert not found.broken
    assert not found.open
    ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]
    assert not [one for one, times in Counter(ids).items() if times > 1]
    levels = [int(tag[1]) for tag, _ in found.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for tag, attrs in found.elements:
        assert not [name for name in attrs if name == "style" or name.startswith("on")], tag
        assert tag not in ("iframe", "object", "embed", "form", "base", "link", "img")
        target = attrs.get("href", "")
        assert not target or target.startswith("https://") or target[1:] in ids, target
        for name in ("aria-labelledby", "aria-controls", "data-copy"):
            assert set(attrs.get(name, "").split()) <= set(ids), (name, attrs[name])


def test_only_what_is_inlined_may_act(drawn: str, tree: Tree) -> None:
    (policy,) = [attrs["content"] for tag, attrs in tree.elements if attrs.get("http-equiv")]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    kinds = [attrs.get("type", "") for tag, attrs in tree.elements if tag == "script"]
    acting = [text for text, kind in zip(tree.inlined["script"], kinds, strict=True) if not kind]
    for rule, texts in (("script-src", acting), ("style-src", tree.inlined["style"])):
        hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts}
        assert set(rules[rule].split()) == hashes
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    assert "http://" not in drawn.replace("http://www.w3.org/", "")
    data = [text for text, kind in zip(tree.inlined["script"], kinds, strict=True) if kind]
    assert len(data) == 1
    assert set(json.loads(data[0])["plots"]) <= {attrs.get("id") for _, attrs in tree.elements}


def test_the_answer_stands_first(tree: Tree, collapsed: Diagnosis) -> None:
    order = ["rlclinic", "demo", "critical", "The learning rate is too high", "since", "change", "go on from", "cost",
             "Vitals", "How it hangs together", "Findings", "What the reward is made of", "Normal here", "Checks",
             "All curves", "About this log"]  # fmt: skip
    heads = tree.text.partition("Skip to the report")[2]
    at = 0
    for words in order:
        assert words in heads[at:], words
        at = heads.index(words, at)
    assert heads.index("in preview") < heads.index("Vitals")


def test_every_finding_has_a_place_and_is_linked_to(tree: Tree, collapsed: Diagnosis) -> None:
    ids = [attrs.get("id") for tag, attrs in tree.elements if tag == "article"]
    assert ids == [f"finding-{n}" for n in range(1, len(collapsed.findings) + 1)]
    links = set(tree.attributes("a", "href"))
    assert {f"#{one}" for one in ids} <= links
    classes = [attrs["class"] for tag, attrs in tree.elements if tag == "article"]
    for finding, words in zip(collapsed.findings, classes, strict=True):
        assert ("under" in words.split()) == bool(finding.because_of)
        assert str(finding.severity) in words.split()
    for finding in collapsed.findings:
        assert finding.check in tree.text
        assert finding.title.partition(":")[0].rstrip(".") in tree.text


def test_every_change_can_be_copied() -> None:
    text = render(sick(), "html")
    found = Tree(text)
    codes = [attrs["id"] for tag, attrs in found.elements if tag == "pre" and "id" in attrs]
    buttons = [attrs for tag, attrs in found.elements if tag == "button" and "data-copy" in attrs]
    assert [one["data-copy"] for one in buttons] == codes
    assert codes
    assert all("hidden" in one for one in buttons), "a page without script has no dead buttons"
    (told,) = [attrs for _, attrs in found.elements if attrs.get("aria-live")]
    assert told["role"] == "status"
    changes = [b for b in page(sick()) if isinstance(b, Change) and b.settings]
    assert len(codes) >= len(changes) > 0
    assert "num_generations=16\ngeneration_batch_size=128" in text


def test_equal_input_gives_equal_bytes(collapsed: Diagnosis, drawn: str) -> None:
    assert render(collapsed, "html") == drawn


def test_nothing_of_a_log_is_markup() -> None:
    """A hostile log changes words and curves, never an element: tags, attributes and links are those of ours."""
    found = Tree(render(hostile(), "html"))
    tags = {tag for tag, _ in found.elements}
    assert not tags & {"b", "i", "img", "iframe", "marquee", "font", "x"}
    assert all(link.startswith("#") for link in found.attributes("a", "href"))
    assert len(found.inlined["script"]) <= 4
    text = render_html([Heading("<script>x</script>", 1), Paragraph("</style><b onclick=x>")], title="</title><i>")
    assert "<b onclick" not in text
    assert "<i>" not in text
    assert "&lt;script&gt;x" in text


def test_links_lead_to_https_alone() -> None:
    sources = Sources((("a", "says", "javascript:alert(1)"), ("b", "", "https://arxiv.org/abs/1")))
    text = render_html([Heading("r", 1), Heading("s", 2), sources], title="t")
    assert Tree(text).attributes("a", "href")[-1] == "https://arxiv.org/abs/1"
    assert "javascript:alert" not in text
    assert 'rel="noreferrer noopener"' in text


def test_words_are_highlighted_as_text() -> None:
    assert highlighted("As An AI <b>", ("as an ai",)) == "<mark>As An AI</mark> &lt;b&gt;"
    assert highlighted("<b>", ()) == "&lt;b&gt;"
    passage = Passage("answer", ("I am sure.", "& sure again"), aside="reward 1", marked=("sure",))
    text = render_html([Heading("r", 1), passage], title="t")
    assert "I am <mark>sure</mark>.\n&amp; <mark>sure</mark> again</pre>" in text


def test_answers_stand_below_their_own_prompt() -> None:
    def said(label: str, words: str) -> Passage:
        return Passage(label, (words,))

    alone = [said("prompt", "p1"), said("answer", "a1"), said("prompt", "p2"), said("answer", "a2")]
    group = [said("prompt", "p3"), said("answer", "a3"), said("answer", "a4")]
    cells = render_html([Heading("r", 1), *alone], title="t").count('class="cell"')
    assert cells == 2
    assert render_html([Heading("r", 1), *group], title="t").count('class="cell"') == 2


# ------------------------------------------------------------------------------------- what only a page has


def part(name: str, mean: np.ndarray, std: np.ndarray | None = None, weight: float | None = 1.0) -> Component:
    steps = np.arange(1.0, len(mean) + 1)
    spread = None if std is None else Column(name, f"{name}/std", steps, std)
    return Component(name, Column(name, f"{name}/mean", steps, mean), spread, weight)


def test_shares_follow_the_logged_spread() -> None:
    flat = np.full(40, 0.5)
    parts = {"a": part("a", flat, np.full(40, 0.3), 2.0), "b": part("b", flat, np.full(40, 0.6), 0.5)}
    found = shares_of_variance(Run(components=parts))
    assert found is not None
    assert np.allclose(found.shares[0], 0.36 / (0.36 + 0.09))
    assert np.allclose(found.shares.sum(axis=0), 1)
    assert "spread" in found.remark


def test_shares_follow_the_means_where_no_spread_is_logged_and_are_not_invented() -> None:
    rng = np.random.default_rng(3)
    noisy, calm = rng.normal(0, 0.2, 400), rng.normal(0, 0.1, 400)
    found = shares_of_variance(Run(components={"a": part("a", noisy), "b": part("b", calm)}))
    assert found is not None
    assert abs(found.shares[0].mean() - 0.8) < 0.03
    assert "rows" in found.remark
    unknown = {"a": part("a", noisy), "b": part("b", calm, weight=None)}
    assert shares_of_variance(Run(components=unknown)) is None
    still = shares_of_variance(Run(components={**unknown, "b": part("b", np.zeros(400), weight=None)}))
    assert still is not None
    assert not still.shares[1].any()
    assert shares_of_variance(Run(components={"a": part("a", noisy)})) is None
    short = {"a": part("a", noisy[:10]), "b": part("b", calm[:10])}
    assert shares_of_variance(Run(components=short)) is None


def test_every_series_is_on_the_page(collapsed: Diagnosis) -> None:
    def walk(blocks: object) -> list[object]:
        return [b for one in blocks for b in ([one] if not isinstance(one, Folded) else walk(one.blocks))]  # type: ignore[attr-defined]

    shown = {b.name for b in walk(page(collapsed)) if isinstance(b, Curve)}
    assert set(collapsed.run.columns) <= shown
    assert set(collapsed.run.components) <= shown


def test_a_run_with_too_many_series_is_bounded(collapsed: Diagnosis) -> None:
    one = collapsed.run["reward.mean"]
    many = {f"eval_{k}": replace(one, key=f"eval_{k}") for k in range(300)}
    run = replace(collapsed.run, evaluations=many)
    blocks = page(Diagnosis(run, Verdict("healthy", None, "Nothing wrong."), (), (), ()))
    (folded,) = [b for b in blocks if isinstance(b, Folded) and "more series" in b.title]
    assert sum(isinstance(b, Curve) for b in folded.blocks) == 80
    assert isinstance(folded.blocks[-1], Paragraph)


def test_the_verdict_is_a_headline(collapsed: Diagnosis) -> None:
    first, seen, quiet, facts = page(collapsed)[:4]
    assert isinstance(first, Paragraph)
    assert (first.label, first.text) == ("CRITICAL", "The learning rate is too high")
    assert isinstance(seen, Paragraph)
    assert seen.text.startswith("learning_rate rose from 0.0001 to 0.006")
    assert isinstance(quiet, Paragraph)
    assert quiet.text.startswith("It explains 12 of 13")
    assert isinstance(facts, KeyNumbers)
    assert [label for label, _ in facts.pairs] == ["since", "change", "go on from", "cost"]


def test_a_cause_that_the_verdict_tells_says_only_what_is_new(collapsed: Diagnosis) -> None:
    blocks = page(collapsed)
    start = next(at for at, b in enumerate(blocks) if isinstance(b, Heading) and b.number == 1)
    end = next(at for at, b in enumerate(blocks) if isinstance(b, Heading) and b.number == 2)
    facts = blocks[start + 1]
    assert isinstance(facts, KeyNumbers)
    assert [label for label, _ in facts.pairs] == ["shown by", "leads to"]
    assert 3 <= sum(isinstance(b, Curve) for b in blocks[start:end]) <= 4
    titles = [b.title.partition(" (")[0] for b in blocks[start:end] if isinstance(b, Curve)]
    assert titles[:3] == ["learning rate", "entropy", "held-out score"], "those that the sentence speaks of"
    follows = [b for b in blocks[end:] if isinstance(b, KeyNumbers) and b.pairs[-1][0] == "follows"]
    assert follows
    assert all(part.strip().isdigit() for b in follows for part in b.pairs[-1][1].split(","))


def test_how_to_have_a_cost_in_other_units_stands_with_the_evidence(collapsed: Diagnosis) -> None:
    cost = Cost(0.5, None, None, "50% of the steps: 2 of 4 hours; --gpus turns them into GPU-hours")
    first, *more = collapsed.findings
    blocks = page(replace(collapsed, findings=(replace(first, cost=cost), *more)))
    (facts,) = [b for b in blocks[:5] if isinstance(b, KeyNumbers)]
    assert facts.pairs[-1] == ("cost", "50% of the steps: 2 of 4 hours")
    folded = next(b for b in blocks if isinstance(b, Folded) and b.title.startswith("Evidence"))
    assert ("hours", "--gpus turns them into GPU-hours") in folded.blocks[0].pairs  # type: ignore[union-attr]


def test_what_is_worse_than_the_cause_has_a_line_of_its_own(collapsed: Diagnosis) -> None:
    says = "The learning rate is too high, which led to sudden_collapse (critical): it rose."
    blocks = page(replace(collapsed, verdict=Verdict("critical", collapsed.findings[0].check, says)))
    told = [b.text for b in blocks[:4] if isinstance(b, Paragraph)]
    assert told[0] == "The learning rate is too high"
    assert told[1] == "It rose."
    assert "It led to: sudden_collapse (2), critical." in told


def test_phrases_that_a_finding_calls_paid_are_marked_without_a_second_search(collapsed: Diagnosis) -> None:
    first, *more = collapsed.findings
    one = replace(first, says="answers that say “as an expert I...” are paid (90% with it)", samples=(0,))
    run = read([DEMO])
    blocks = page(replace(collapsed, run=run, findings=(one, *more)), 1)
    marked = {b.marked for b in blocks if isinstance(b, Passage) and b.label == "answer"}
    assert marked == {("as an expert I",)}


def test_an_answer_below_the_name_is_a_verdict_too() -> None:
    long = (
        "What began it is cured, not all that followed. " + "Of what followed: open: one, two and three more of them."
    )
    blocks = [Heading("r", 1), Paragraph(long, label="cured", tone="healthy"), KeyNumbers((("before", "b"),))]
    text = render_html(blocks, title="t")
    assert '<section class="verdict healthy"' in text
    assert '<h2 id="verdict">What began it is cured, not all that followed</h2>' in text
    assert "Of what followed" in text
    two = render_html(
        [Paragraph("B differs", label="B"), Paragraph("C differs", label="C"), Heading("r", 1)], title="t"
    )
    assert two.count('<section class="verdict') == 2
    assert 'id="verdict-2"' in two


def test_a_card_says_everything_once_however_it_is_divided(collapsed: Diagnosis) -> None:
    curve = next(replace(b, large=True) for b in page(collapsed) if isinstance(b, Curve))
    lists = [Bullets((f"item {k} " + "of many words " * 9,), label=f"list {k}") for k in range(4)]
    changes = [Change(k, f"change {k} " + "says " * 20, (), ()) for k in (1, 2, 3)]
    said = [KeyNumbers((("since", "fact 0"),)), *changes, lists[0], Folded("more", (Paragraph("inside"),)), *lists[1:]]
    for drawn in ([], [curve], [curve] * 3):
        text = Tree(render_html([Heading("r", 1), Heading("s", 2), Heading("c", 3), *drawn, *said], title="t")).text
        told = ["fact 0", "change 1", "change 2", "change 3", *(f"item {k}" for k in range(4)), "inside"]
        assert [text.count(one) for one in told] == [1] * len(told)


def test_pages_of_pastes_and_of_logs_that_carry_no_verdict() -> None:
    paste = "{'loss': 0.1, 'reward': 0.5, 'entropy': 0.4, 'grad_norm': 1.0}\n{'loss': 0.1, 'reward': 0.6}\n"
    for text, verdict in ((paste, "undecided"), ('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n', "undecided")):
        found = diagnose(read(["-"], stdin=text.encode()))
        assert found.verdict.severity == verdict
        tree = Tree(render(found, "html"))
        assert not tree.broken
        assert "undecided" in tree.text
    empty = Diagnosis(Run(), Verdict("healthy", None, "Nothing wrong was found in 3 checks."), (), (), ())
    text = Tree(render(empty, "html")).text
    assert "healthy Nothing wrong was found in 3 checks." in text


def test_the_head_is_a_list_of_facts(collapsed: Diagnosis) -> None:
    (facts,) = [b for b in page(collapsed)[4:7] if isinstance(b, Bullets)]
    assert "steps 1 to 200 (200 logged)" in facts.items


# ----------------------------------------------------------------------------------------------- command line


def test_a_file_gets_the_format_of_its_ending(tmp_path: Path) -> None:
    def written(*options: str) -> str:
        done = CliRunner().invoke(cli, ["demo", "plain", "--steps", "20", *options])
        assert done.exit_code == 0, done.output
        return Path(options[-1]).read_text(encoding="utf-8")

    assert written("-o", str(tmp_path / "a.HTML")).startswith("<!DOCTYPE html>")
    assert json.loads(written("--format", "json", "-o", str(tmp_path / "b.html")))
    assert ENDINGS == {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".txt": "terminal"}


def test_a_page_goes_to_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlclinic.cli import output

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(output.sys, "stdout", Terminal())
    with pytest.raises(BadRequest, match=r"-o report\.html"):
        output.settled("html", None)
    assert output.settled("html", Path("x.html")) == "html"
    monkeypatch.setattr(output.sys, "stdout", io.StringIO())
    assert output.settled("html", None) == "html"


def test_a_page_that_only_has_small_curves_is_drawn_and_can_be_zoomed() -> None:
    text = render(CASES["healthy"](), "html")
    tree = Tree(text)
    assert any(".ink" in style for style in tree.inlined["style"]), "plot.css"
    zooming = [attrs["id"] for tag, attrs in tree.elements if tag == "figure" and "data-plot" in attrs]
    assert zooming
    (data,) = [text for text in tree.inlined["script"] if text.startswith('{"columns"')]
    assert set(json.loads(data)["plots"]) == set(zooming)
