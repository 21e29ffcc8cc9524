"""What the words of saved answers show: loops, languages, lost form, copies, endings; and what is none of these."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlclinic.answers import lengths, loops, markup, scripts, texts, variety
from rlclinic.checks import CHECKS, examine
from rlclinic.model import Finding, Knob, Run, Severity
from rlclinic.readers.answers import read_answers
from rlclinic.readers.answers.gather import Gatherer, Shape
from rlclinic.rollouts import Answer, Rollouts

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
ENGLISH = "How many apples are there in the two baskets, and what is the sum of all of them?"
WORDS = ("step", "value", "number", "carry", "result", "check", "again", "simple", "total", "left", "right", "over", "under",
         "first", "then", "next", "so")  # fmt: skip


def prose(rng: random.Random, n: int = 60) -> str:
    return "We find that " + " ".join(rng.choice(WORDS) + str(rng.randrange(90)) for _ in range(n)) + "."


def table(answers: Sequence[Answer], *, partial: bool = False) -> Rollouts:
    gatherer = Gatherer(Shape("made", partial=partial), "made.jsonl")
    for one in answers:
        gatherer.add(replace(one))
    return gatherer.table()


def finding(check: str, run: Run) -> Finding | None:
    one = next(one for one in CHECKS if one.name == check)
    outcome, _ = examine(one, run)
    assert outcome.outcome != "failed", outcome.says
    return outcome.finding


def severity(check: str, answers: Sequence[Answer], **knobs: str) -> Severity | None:
    run = Run(rollouts=(table(answers),), knobs={k: Knob(k, v, k, "config") for k, v in knobs.items()})
    found = finding(check, run)
    return None if found is None else found.severity


# ---------------------------------------------------------------- loops

POEM = "\n".join(
    f"The {a} goes over the {b},\nand I go home, and I go home." for a, b in zip(WORDS, WORDS[3:], strict=False)
)
CODE = "\n".join(f"def part_{k}(x):\n    if x > {k * 7}:\n        return x - {k}\n    return None\n" for k in range(60))
TABLE = "| a | b | sum |\n|---|---|---|\n" + "\n".join(f"| {k} | {k * k % 97} | {k + k * k % 97} |" for k in range(150))
LAYERS = "\n".join(f"self.layer{k} = nn.Linear({k}, {k + 1})" for k in range(80))
NUMBERS = ", ".join(str(k * k) for k in range(600))
GRID = "\n".join(" ".join("0" for _ in range(20)) for _ in range(14))


@pytest.mark.parametrize(
    "text", [POEM, CODE, LAYERS, TABLE, NUMBERS, GRID, "A0003389", "....A0003389", "42", "", "ha ha ha ha"]
)
def test_regular_texts_are_no_loops(text: str) -> None:
    assert not loops.looped(text)


@pytest.mark.parametrize("text", [POEM, CODE, TABLE, NUMBERS, "A1125599............", "A0003389", "so so so", "=" * 40])
def test_a_cut_text_is_no_loop_because_it_was_cut(text: str) -> None:
    assert not loops.looped(text[: len(text) - 3], cut=True) or set(text) == {"="}


def test_loops() -> None:
    head = prose(random.Random(1), 200)
    assert loops.looped(head + " Wait, let me check." * 40, cut=True)
    assert loops.looped(head + " Wait, let me check." * 40 + " Wait, let")
    assert loops.looped("." * 20, cut=True)
    assert loops.looped("..............A........................", cut=True)
    assert loops.looped("!" * 3_000)
    paragraph = prose(random.Random(2), 100)
    assert loops.looped(head + paragraph * 5, cut=True)
    assert loops.looped(
        "".join(f"Wait, the sum must be checked once more, so we go on with try {k}. " for k in range(90))
    )


def test_what_the_prompt_repeats_may_be_repeated() -> None:
    piece = "all work and no play makes a dull day. "
    assert loops.looped(piece * 30)
    assert not loops.looped(piece * 30, known=piece * 10)


def test_a_loop_that_ended_must_be_most_of_the_answer() -> None:
    assert not loops.looped(prose(random.Random(3), 600) + "\nfine. fine. fine. fine. fine. fine. fine.")


@settings(max_examples=40, deadline=None)
@given(st.text("abcdefgh .", min_size=5, max_size=60), st.integers(3, 12), st.integers(0, 50))
def test_the_period_found_is_one(piece: str, times: int, more: int) -> None:
    text = piece * times + piece[: more % len(piece)]
    step, length = loops.period("xyz" + text)
    if step:
        end = ("xyz" + text)[-length:]
        assert end[step:] == end[:-step]
        assert length >= 3 * step


def test_a_million_characters_take_no_time() -> None:
    hostile = ["a" * 10**6, "ab" * 5 * 10**5, "<a" * 5 * 10**5, "```" * 3 * 10**5, "\\boxed{" * 10**5, "\ufffd" * 10**6,
               "\u4e2d" * 10**6, " \n" * 5 * 10**5, "\ud800" * 10**6]  # fmt: skip
    begun = time.process_time()
    answers = [
        Answer(step=float(k % 3), prompt=ENGLISH, text=one, reward=0.0, key=k % 3) for k, one in enumerate(hostile)
    ]
    assert texts.read(table(answers)).sampled >= 3
    assert time.process_time() - begun < 4.0


# ---------------------------------------------------------------- scripts and languages


@pytest.mark.parametrize(
    "answer",
    [
        "Let \u03b1 + \u03b2 = \u03c0 and \u2211x\u1d62 \u2264 \u221a2, so \u03b8 \u2192 0 \u2705 \U0001f600 \ud835\udc65",
        "Caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u2019quoted\u2019 \u2014 \u20ac5, 30\u00b0",
        "def f(x):\n    return {k: v for k, v in x.items()}  # \u00b5s",
        "plus also on par with a la carte, via de facto",
    ],
)
def test_formulas_signs_and_code_are_no_language(answer: str) -> None:
    assert scripts.writing(answer, scripts.scripts_of(ENGLISH), scripts.language_of(ENGLISH)).foreign < 0.03


def test_foreign_words() -> None:
    english = scripts.scripts_of(ENGLISH)
    mixed = scripts.writing("We have six apples. \u6240\u4ee5\u7b54\u6848\u662f\u516d. So the answer is six.", english)
    assert 0.05 < mixed.foreign < 0.5
    assert mixed.scripts == 1
    chinese = scripts.scripts_of("\u8ba1\u7b97\u82f9\u679c\u7684\u603b\u6570\u3002")
    assert scripts.writing("\u6240\u4ee5\u7b54\u6848\u662f\u516d\u3002x = 6", chinese).foreign == 0
    assert scripts.writing("So the answer to this question must surely be six apples in total.", chinese).foreign > 0.5
    german = "Wir rechnen nun den Wert aus. Das ist also nicht schwer, und dann haben wir ihn."
    assert scripts.writing(german, english, "English").foreign == 1.0
    assert scripts.language_of(ENGLISH) == "English"
    assert scripts.language_of(german) == "German"
    assert scripts.language_of("x = 3") == ""


def test_scraps_of_many_scripts_are_gibberish() -> None:
    text = (
        "We find \u0431\u0443\u043a\u0432\u0430 \ud55c\uad6d \u0e01\u0e02\u0e04 \u05d0\u05d1\u05d2 then \u6f22\u5b57 so"
    )
    assert scripts.writing(text, scripts.scripts_of(ENGLISH)).scripts >= 3


def spoken(share: float, late: str, *, first: str = "We find six of them.", prompt: str = ENGLISH) -> list[Answer]:
    """Twelve steps of 8 groups of 4; from the sixth step on a share of the answers is ``late``."""
    rng = random.Random(5)
    made = []
    for step in range(12):
        for group in range(5):
            for _ in range(4):
                other = step >= 6 and rng.random() < share
                text = f"{prose(rng, 20)} {late if other else first}"
                made.append(
                    Answer(step=float(step), prompt=f"{prompt} {step}.{group}", text=text, reward=float(not other))
                )
    return made


def test_language_mixing_and_what_is_none() -> None:
    other = "\u6240\u4ee5\u7b54\u6848\u662f\u516d\u4e2a\u82f9\u679c\u3002"
    assert severity("language_mixing", spoken(0.4, other)) == Severity.WARNING
    assert severity("language_mixing", spoken(0.4, "It is six.")) is None
    assert severity("language_mixing", spoken(0.4, other, prompt="Translate into Chinese: six apples")) is None
    assert severity("language_mixing", spoken(1.0, other, first=other)) == Severity.INFO


def test_garbled_from_the_first_step_is_the_sampler() -> None:
    scraps = "\u0431\u0443\u043a \ud55c\uad6d \u0e01\u0e02\u0e04 \u05d0\u05d1\u05d2 \u6f22\u5b57 \ufffd\ufffd"
    assert severity("sampler_corruption", spoken(1.0, scraps, first=scraps)) == Severity.WARNING
    assert severity("sampler_corruption", spoken(0.5, scraps)) == Severity.INFO
    assert severity("sampler_corruption", spoken(0.5, "six.")) is None
    assert severity("language_mixing", spoken(0.5, scraps)) == Severity.INFO


# ---------------------------------------------------------------- form


def test_what_is_left_open() -> None:
    named = markup.marks(["<think>a</think><answer>1</answer>"] * 5 + ["<p>x</p>"] * 5)
    assert set(named) == {"</think>", "</answer>"}
    assert markup.left_open("<think>a", named)
    assert markup.left_open("so \\boxed{3 + {2}", named)
    assert markup.left_open("```python\nx", named)
    for closed in ("<think>a</think>", "a</think>", "\\boxed{\\frac{1}{2}}", "```python\nx\n```", "x <answer", "1 < 2"):
        assert not markup.left_open(closed, named), closed


def formed(share: float, broken: str, ending: str = "stopped", *, pays: bool = False) -> list[Answer]:
    rng = random.Random(7)
    made = []
    for step in range(12):
        for group in range(5):
            for _ in range(4):
                off, right = step >= 6 and rng.random() < share, rng.random() < 0.6
                text = prose(rng, 20) + (broken if off else "</think> <answer>6</answer>")
                reward = float(right and (pays or not off))
                how = ending if off else "stopped"
                made.append(
                    Answer(step=float(step), prompt=f"{ENGLISH} {step}.{group}", text=text, reward=reward, ending=how)
                )  # type: ignore[arg-type]
    return made


def test_lost_form() -> None:
    assert severity("format_break", formed(0.7, " it is 6")) == Severity.WARNING
    assert severity("format_break", formed(0.95, "<think> so 6")) == Severity.CRITICAL
    assert severity("format_break", formed(0.7, "<think> so", "cut")) is None
    assert severity("format_break", formed(0.0, "")) is None
    assert severity("format_break", formed(0.9, " it is 6", pays=True)) is None, (
        "what is paid without it was not needed"
    )


# ---------------------------------------------------------------- copies


def grouped(late: str, *, right: float = 0.4, length: int = 40) -> list[Answer]:
    rng = random.Random(9)
    made = []
    for step in range(12):
        for group in range(5):
            base = prose(rng, length)
            for _ in range(4):
                text = {"own": prose(rng, length), "near": base.replace(rng.choice(WORDS), "just", 1), "short": "42"}[
                    late if step >= 6 else "own"
                ]
                reward = float(rng.random() < right)
                made.append(Answer(step=float(step), prompt=f"{ENGLISH} {step}.{group}", text=text, reward=reward))
    return made


def test_near_copies_where_there_was_variety() -> None:
    assert severity("mode_collapse", grouped("near")) == Severity.WARNING
    assert severity("mode_collapse", grouped("own")) is None
    assert severity("mode_collapse", grouped("near", right=1.1)) is None, "solved groups may agree"
    assert severity("mode_collapse", grouped("short")) is None, "short answers may agree"


def test_likeness_of_sketches() -> None:
    rng = random.Random(3)
    one, other = prose(rng, 400), prose(rng, 400)
    assert variety._shared(variety.sketch(one), variety.sketch(one)) == 1.0
    changed = one.replace(one[1_000:1_150], "something else altogether stood here before it was changed")
    assert variety._shared(variety.sketch(one), variety.sketch(changed)) > 0.8
    assert variety._shared(variety.sketch(one), variety.sketch(other)) < 0.5
    assert len(variety.sketch("abc")) == 0


# ---------------------------------------------------------------- endings and lengths


def test_empty_answers() -> None:
    rng = random.Random(1)
    made = [
        Answer(
            step=float(s), prompt=f"{s}.{g}", reward=0.0, ending="aborted" if g == 3 else "stopped",
            text="" if s > 5 and g < 4 else prose(rng),
        )
        for s in range(12) for g in range(8) for _ in range(4)
    ]  # fmt: skip
    seen = texts.read(table(made))
    assert seen.empty is not None
    assert seen.empty.late.value == pytest.approx(3 / 8), "what was aborted is no answer of the policy"
    assert seen.aborted is not None
    assert severity("empty_answers", made) == Severity.CRITICAL
    labels = [replace(one, text=rng.choice("ABCD"), ending="stopped") for one in made]
    assert severity("empty_answers", labels) is None


def lengthened(growth: float, ending: str = "stopped") -> list[Answer]:
    """Right answers of 100 tokens; wrong ones grow from 120 to ``growth`` times that."""
    rng = np.random.default_rng(4)
    made = []
    for step in range(30):
        for group in range(6):
            for k in range(4):
                right = k < 2
                mean = 100.0 if right else 120.0 * (1 + (growth - 1) * step / 29)
                how = "stopped" if right or rng.random() < 0.3 else ending
                made.append(
                    Answer(
                        step=float(step), prompt=f"{step}.{group}", text=f"t{step}.{group}.{k}", reward=float(right),
                        tokens=float(round(mean * rng.uniform(0.8, 1.2))), ending=how,
                    )  # type: ignore[arg-type]
                )  # fmt: skip
    return made


def test_wrong_answers_that_grow() -> None:
    assert severity("loss_length_bias", lengthened(2.0), loss_type="grpo") == Severity.WARNING
    assert severity("loss_length_bias", lengthened(2.0), loss_type="dapo") == Severity.INFO
    assert severity("loss_length_bias", lengthened(1.0), loss_type="grpo") is None


def test_cut_answers_are_no_long_wrong_ones() -> None:
    apart = lengths.apart(table(lengthened(1.0, "cut")))
    assert apart is not None
    assert apart.ended
    assert apart.unit == "tokens"
    steps, share = lengths.COLUMNS["length.truncated_frac"](table(lengthened(1.0, "cut"))) or (None, np.zeros(1))
    assert steps is not None
    assert 0.2 < share.mean() < 0.5


def test_unknown_endings_judge_short_answers_only() -> None:
    made = [Answer(step=1.0, prompt="p", text="x" * (100 if k % 2 else 1_000), reward=0.0) for k in range(40)]
    whole = lengths.whole(table(made))
    assert whole.sum() == 20


# ---------------------------------------------------------------- the whole


def test_nothing_is_raised_for_next_to_nothing() -> None:
    odd = [
        [Answer()],
        [Answer(text="")],
        [Answer(step=1.0, tokens=5.0, same=3)] * 3,
        [Answer(step=None, prompt="p", text="t", reward=float("nan"))] * 5,
        [Answer(step=1.0, prompt="p", text="\ud800\udfff\ud800", reward=1.0, truth="\ud800")] * 40,
        [Answer(step=float(k), prompt="p", text="t" * k, reward=float("inf")) for k in range(40)],
    ]
    for answers in odd:
        one = table(answers)
        seen = texts.read(one)
        assert texts.read(one) is seen
        for measure in (one for one in vars(seen).values() if isinstance(one, texts.Measure)):
            spans, means, counts = measure.windows()
            assert len(spans) == len(means) == len(counts)
            assert measure.early.count <= len(measure)
            measure.column("text.repetition_frac")
            measure.shown()
        run = Run(rollouts=(one,))
        for name in ("repetition_loop", "language_mixing", "mode_collapse", "format_break", "empty_answers",
                     "sampler_corruption", "loss_length_bias"):  # fmt: skip
            finding(name, run)


def test_one_prompt_alone_is_no_habit() -> None:
    made = [
        replace(one, text="so it goes. " * 200, prompt="p") if k % 4 == 0 else one
        for k, one in enumerate(spoken(0, ""))
    ]
    assert severity("repetition_loop", made) is None
    assert severity("repetition_loop", [replace(one, prompt=f"p{k}") for k, one in enumerate(made)]) is not None


def test_words_never_reach_a_sentence() -> None:
    made = [replace(one, text="zyxwv secret. " * 200) for one in spoken(0, "")]
    found = finding("repetition_loop", Run(rollouts=(table(made),)))
    assert found is not None
    assert "zyxwv" not in found.says
    assert found.samples
    assert len(set(found.samples)) == len(found.samples)


@pytest.mark.parametrize(
    ("folder", "loops_late"), [("trl/length_hacking", True), ("trl/healthy", False), ("trl/truncation", False)]
)
def test_saved_answers_of_real_runs(folder: str, loops_late: bool) -> None:
    path = CORPUS / folder / "rollouts.jsonl"
    if not path.is_file():
        pytest.skip("the corpus is not at hand")
    (one,), _ = read_answers([path])
    seen = texts.read(one.train)
    assert seen.repetition is not None
    assert (seen.repetition.late.value > 0.9) == loops_late
    assert seen.repetition.late.value > 0.9 or seen.repetition.whole.value == 0.0
    assert seen.needed == ()
