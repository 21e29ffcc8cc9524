"""Reports: every part in its place, readable at 80 columns, deaf to a hostile log; a stable JSON form."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from rlclinic.errors import UnknownName
from rlclinic.model import (
    Change,
    Column,
    Component,
    Diagnosis,
    Evidence,
    Examination,
    Finding,
    Framework,
    Knob,
    Note,
    Onset,
    Prescription,
    Reference,
    Run,
    Severity,
    Source,
    Undecided,
    Unrecognised,
    Verdict,
    Warn,
)
from rlclinic.report import FORMATS, contract, curves, render
from rlclinic.report.blocks import number, plain
from rlclinic.report.document import document
from rlclinic.report.markdown import render_markdown

ROOT = Path(__file__).resolve().parent.parent


# ------------------------------------------------------------------------------------------------- diagnoses


def column(metric: str, key: str, start: float, end: float, *, n: int = 400, every: int = 1, **more: object) -> Column:
    steps = np.arange(every, n + 1, every, dtype=float)
    rise = 1 / (1 + np.exp(-(steps / n - 0.5) * 12))
    wave = 0.04 * abs(end - start) * np.sin(steps * 2.399)
    return Column(metric, key, steps, start + (end - start) * rise + wave, **more)  # type: ignore[arg-type]


TRL = Framework("trl", "TRL", version="1.16.0", how="config")


def healthy() -> Diagnosis:
    columns = [
        column("reward.mean", "reward", 0.21, 0.62),
        column("eval.score", "eval_reward", 0.20, 0.58, every=25),
        column("entropy.mean", "entropy", 0.67, 0.48),
        column("group.zero_var_frac", "frac_reward_zero_std", 0.22, 0.18),
        column("length.response.mean", "completions/mean_length", 412, 506),
        column("length.truncated_frac", "completions/clipped_ratio", 0.04, 0.01),
        Column(
            "clip.frac",
            "clip_ratio/region_mean",
            np.arange(1.0, 401),
            np.zeros(400),
            status="structural_zero",
            because="each batch gets one on-policy update, so the ratio is 1",
        ),
        column("grad.norm", "grad_norm", 0.31, 0.26),
        column("optim.lr", "learning_rate", 1e-6, 0.5e-6),
    ]
    run = Run(
        name="grpo-qwen7b",
        framework=TRL,
        algorithm="GRPO",
        columns={c.metric: c for c in columns},
        components={
            "accuracy": Component("accuracy", column("reward.component.mean", "rewards/accuracy/mean", 0.2, 0.6))
        },
        eval_rule="the only held-out reward in the log",
        knobs={
            "group_size": Knob("group_size", 8, "num_generations", "config"),
            "clip_high": Knob("clip_high", float("inf"), "epsilon_high", "default"),
        },
        sources=(Source("trainer_state.json", "trainer_state", 400), Source("config.yaml", "yaml", 61)),
        planned_steps=400,
        facts={"model": "Qwen2.5-7B-Instruct", "hardware": "8 x H100"},
    )
    checks = (
        *(Examination(c, "examined", Finding(None, "")) for c in ("truncation", "never_eos", "plateau", "nan_inf")),
        Examination("kl_drift", "unexamined", missing=("kl.ref|kl.ref_seq_sum",)),
        Examination("critic_failure", "not_applicable", says="GRPO trains no critic"),
    )
    notes = (
        Note("clip_zero_expected", "a clip fraction of 0 is right here: one update per batch leaves the ratio at 1"),
        Note("kl_absent_expected", "no KL to the reference is logged because beta is 0"),
    )
    verdict = Verdict("healthy", None, "nothing found in 4 checks over 400 steps")
    return Diagnosis(run, verdict, (), checks, notes, ("--log_completions true",))


def sick() -> Diagnosis:
    base = healthy()
    columns = dict(base.run.columns)
    columns["reward.mean"] = column("reward.mean", "reward", 0.41, 0.97)
    columns["eval.score"] = column("eval.score", "eval_reward", 0.40, 0.92, every=25)
    columns["group.zero_var_frac"] = column(
        "group.zero_var_frac",
        "frac_reward_zero_std",
        0.12,
        0.76,
        note="compares the spread over the batch when scale_rewards is batch",
    )
    columns["grad.norm"] = column("grad.norm", "grad_norm", 0.62, 0.08)
    columns["kl.ref"] = column("kl.ref", "kl", 0.0004, 0.0365, estimator="k3")
    run = replace(
        base.run,
        columns=columns,
        seams={120.0: "learning rate and epoch started again"},
        warnings=(Warn("duplicated_rows", "20 rows were written twice and are counted once"),),
        undecided=(Undecided("reward_std", ("reward.group_std", "reward.std"), "the TRL version (changed at 0.27.0)"),),
        unrecognised=(Unrecognised("my/custom", points=400), Unrecognised("rewrd", ("reward",), 400)),
    )
    dapo = Reference(
        "arXiv:2503.14476",
        "DAPO: An Open-Source LLM Reinforcement Learning System at Scale",
        "groups of equal reward give no gradient; resampling until a group is mixed keeps the batch useful",
        "https://arxiv.org/abs/2503.14476",
    )
    root = Finding(
        Severity.CRITICAL,
        "zero-variance share went from 0.12 to 0.76; 95 % of the answers are right",
        {"early": 0.121, "late": 0.757, "pass_rate": 0.95, "rollouts_per_useful": 4.1},
        ("group.zero_var_frac", "reward.mean"),
        Onset(214, 196, 231),
        Evidence(0.636, 0.00041, "early against late window, corrected for autocorrelation"),
        would_decide=("the share of answers that are right per prompt, from --log_completions true", "entropy.mean"),
        check="zero_variance_all_right",
        tier="certain",
        leads_to=("gradient_vanishing", "plateau"),
        prescriptions=(
            Prescription(
                "larger_group",
                "sample more answers per prompt",
                (
                    Change("group_size", "num_generations", 8, 16, "num_generations=16"),
                    Change("train_batch_size", "generation_batch_size", None, 128, "generation_batch_size=128"),
                ),
                {"group.zero_var_frac": "falls to about 0.6", "grad.norm": "returns to its early band"},
                20,
                "generation costs twice as much per prompt",
                "the held-out slope is not worse than before",
                "generation_batch_size must be divisible by num_generations",
            ),
            Prescription(
                "harder_data",
                "leave out prompts that the policy now solves in more than nine of ten tries",
                (Change("batch", "train_batch", None, None, "train_batch: multiply by 2"),),
                within=50,
                expect={"group.zero_var_frac": "falls"},
                note="TRL has no dynamic sampling; filter the dataset by pass rate",
            ),
        ),
        references=(dapo,),
    )
    effect = Finding(
        Severity.WARNING,
        "gradient norm went from 0.62 to 0.08",
        {"early": 0.62, "late": 0.08},
        ("grad.norm",),
        Onset(221, 200, 240),
        Evidence(0.129, 3e-9, "ratio of late to early median"),
        check="gradient_vanishing",
        because_of=("zero_variance_all_right",),
    )
    last = Finding(
        Severity.INFO,
        "reward has been flat within 0.01 since step 330",
        {"slope": -1.2e-6},
        ("reward.mean",),
        Onset(330, 330, 330),
        check="plateau",
        tier="hint",
        because_of=("zero_variance_all_right",),
    )
    findings = (root, effect, last)
    checks = (
        *(Examination(f.check, "examined", f) for f in findings),
        *(c for c in base.checks if c.check != "plateau"),
        Examination("mismatch", "failed", says="ZeroDivisionError: division by zero"),
    )
    verdict = Verdict(
        "critical",
        "zero_variance_all_right",
        "three of four groups carry no gradient: the prompts have become too easy",
    )
    return Diagnosis(run, verdict, findings, checks, base.notes, ("--log_completions true", "--eval_strategy steps"))


def short() -> Diagnosis:
    steps = np.array([1.0, 2.0, 3.0])
    run = Run(
        name="-",
        framework=Framework("trl", "TRL", at_least="0.20.0", below="0.27.0", how="keys", why="entropy"),
        columns={
            "reward.mean": Column("reward.mean", "reward", steps, np.array([0.0, 0.125, 0.0]), resolution=0.001),
            "loss.total": Column("loss.total", "loss", steps, np.zeros(3), resolution=0.0001),
        },
        sources=(Source("-", "console", 3),),
        excerpt=True,
        ending="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    )
    checks = tuple(
        Examination(c, "unexamined", missing=("entropy.mean",)) for c in ("entropy_collapse", "entropy_rise")
    )
    says = "three rows of a log cannot carry a verdict; paste at least 30 steps or give the whole file"
    return Diagnosis(run, Verdict("undecided", None, says), (), checks, (), ("--log_entropy true",))


def with_nan() -> Diagnosis:
    base = healthy()
    values = base.run["grad.norm"].values.copy()
    values[303:] = np.nan
    values[300] = np.inf
    columns = {**base.run.columns, "grad.norm": Column("grad.norm", "grad_norm", np.arange(1.0, 401), values)}
    columns["loss.total"] = Column("loss.total", "loss", np.arange(1.0, 401), np.full(400, np.nan))
    columns["entropy.mean"] = Column("entropy.mean", "entropy", np.arange(1.0, 401), np.full(400, np.nan))
    finding = Finding(
        Severity.CRITICAL,
        "gradient norm is NaN from step 304 to the end",
        {"first": 304.0, "value": float("nan"), "largest": float("inf")},
        ("grad.norm",),
        Onset(304, 304, 304),
        Evidence(float("inf"), None, "the value itself"),
        check="nan_inf",
        tier="certain",
    )
    verdict = Verdict("critical", "nan_inf", "training is numerically dead since step 304")
    return replace(base, run=replace(base.run, columns=columns), verdict=verdict, findings=(finding,))


ATTACK = (
    "[bold red]x[/] \x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link <script>alert(1)</script> a|b `c` ``d``\n"
    "# head\r\n@someone #12 https://evil.example www.evil.example "
    "[t](http://e) ![i](j) \u202egnp\u200b\x00\x07\x9b2J \\ $x$"
)
LONG = "k" * 5_000 + ATTACK + "z" * 5_000


def hostile() -> Diagnosis:
    steps = np.arange(1.0, 61)
    values = np.linspace(0.1, 0.4, 60)
    col = Column("reward.mean", LONG, steps, values, "filtered", ATTACK, 0.0, ATTACK, ATTACK)
    held = Column("eval.score", ATTACK, steps, values, "structural_zero", LONG)
    run = Run(
        name=ATTACK,
        framework=Framework(ATTACK, ATTACK, version=ATTACK, how="log", why=ATTACK),
        algorithm=ATTACK,
        columns={"reward.mean": col, "eval.score": held},
        components={ATTACK: Component(ATTACK, col), LONG: Component(LONG, col)},
        evaluations={ATTACK: held},
        eval_rule=ATTACK,
        knobs={"model": Knob("model", LONG, ATTACK, "log")},
        sources=(Source(ATTACK, ATTACK, 60), Source(LONG, "x", 1)),
        unrecognised=(Unrecognised(ATTACK, (LONG, ATTACK)), Unrecognised(LONG)),
        undecided=(Undecided(LONG, ("reward.mean",), ATTACK),),
        warnings=(Warn("x", ATTACK), Warn("y", LONG)),
        seams={3.0: ATTACK},
        ending=LONG,
        facts={"hardware": ATTACK, ATTACK: LONG},
    )
    change = Change(ATTACK, LONG, ATTACK, LONG, ATTACK)
    finding = Finding(
        Severity.WARNING,
        ATTACK,
        {ATTACK: 1.0},
        ("reward.mean", ATTACK, LONG),
        Onset(3, 2, 4),
        Evidence(1.0, 0.5, ATTACK),
        would_decide=(LONG, ATTACK),
        check=ATTACK,
        because_of=(LONG,),
        leads_to=(ATTACK,),
        prescriptions=(Prescription(ATTACK, ATTACK, (change,), {ATTACK: LONG}, 3, ATTACK, LONG, ATTACK),),
        references=(Reference(ATTACK, LONG, ATTACK, "javascript:alert(1)"),),
    )
    checks = (
        Examination(ATTACK, "unexamined", missing=(ATTACK,), says=LONG),
        Examination(LONG, "not_applicable", says=ATTACK),
        Examination(ATTACK + "2", "failed", says=ATTACK),
        Examination(LONG + "2", "examined", Finding(None, ATTACK)),
    )
    return Diagnosis(run, Verdict("warning", ATTACK, ATTACK), (finding,), checks, (Note("x", ATTACK),), (LONG, ATTACK))


CASES = {"healthy": healthy, "sick": sick, "short": short, "nan": with_nan, "hostile": hostile}


# ------------------------------------------------------------------------------------------------- snapshots


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [80, 120])
def test_terminal_snapshot(case, width, snapshot):
    assert render(CASES[case](), "terminal", width=width) == snapshot


@pytest.mark.parametrize("case", CASES)
def test_markdown_snapshot(case, snapshot):
    assert render(CASES[case](), "markdown") == snapshot


@pytest.mark.parametrize("case", ["healthy", "sick", "nan"])
def test_json_snapshot(case, snapshot):
    assert render(CASES[case](), "json") == snapshot


# ---------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("width", [40, 57, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(case, width, ascii):
    text = render(CASES[case](), "terminal", width=width, ascii=ascii)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert text.endswith("\n")
    assert not any(line != line.rstrip() for line in text.splitlines())
    assert not ascii or text.isascii()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("format", FORMATS)
def test_no_control_or_invisible_character_reaches_the_reader(case, format):
    text = render(CASES[case](), format, width=80).replace("\n", "")
    assert {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn"}} == set()


def test_colour_only_when_asked_for_and_never_from_the_log(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    colored = render(hostile(), "terminal", color=True)
    bare = render(hostile(), "terminal")
    assert "\x1b[" in colored
    assert "\x1b" not in bare
    assert "[bold red]x[/]" in bare
    stripped = "\n".join(line.rstrip() for line in plain_lines(colored))
    assert stripped == bare.rstrip("\n")
    assert "\x1b]8" not in colored


def plain_lines(colored: str) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in colored.rstrip("\n").split("\n")]


def test_the_answer_comes_first():
    text = render(sick(), "terminal")
    order = ["CRITICAL", "since", "num_generations: 8 -> 16", "rlclinic  grpo-qwen7b", "Vitals", "Findings", "Sources"]
    order += ["Normal here", "What to log", "Checks", "About this log", "Broken checks"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_every_part_of_a_cause_is_told():
    flat = " ".join(render(sick(), "terminal").split())
    for part in (
        "(sure)",
        "since step 214 (between 196 and 231)",
        "the early part against the late part, corrected for autocorrelation, p = 4.1e-4",
        "zero-variance share (frac_reward_zero_std)",
        "leads to 2, 3: consistent in time and mechanism",
        "write num_generations=16 (now 8)",
        "write generation_batch_size=128",
        "set train_batch: multiply by 2",
        "within 20 steps",
        "generation costs twice as much per prompt",
        "the held-out slope is not worse than before",
        "must be divisible by num_generations",
        "the share of answers that are right per prompt",
        "- arXiv:2503.14476: DAPO: An Open-Source LLM",
        "ZeroDivisionError",
        "GRPO trains no critic",
        "the TRL version (changed at 0.27.0) decides",
        "rewrd (close to reward)",
        "learning rate and epoch started again",
    ):
        assert part in flat, part


def test_the_first_lines_are_enough_to_act_on():
    lines = render(sick(), "terminal", width=100).splitlines()
    assert lines[0].startswith("CRITICAL   three of four groups carry no gradient")
    assert lines[1] == "since      step 214 (between 196 and 231)"
    assert lines[2].startswith("change     num_generations: 8 -> 16, generation_batch_size=128 (present value not")


def test_a_consequence_is_told_in_a_few_lines():
    text = render(sick(), "terminal")
    told = text[text.index("2. WARNING") : text.index("3. INFO")].strip().splitlines()
    assert [line.strip() for line in told] == [
        "2. WARNING  gradient_vanishing  (likely)",
        "gradient norm went from 0.62 to 0.08",
        "since      step 221 (between 200 and 240); follows from",
        "zero_variance_all_right (1)",
    ]


def changed(*prescriptions: Prescription, severity=Severity.WARNING, because_of=()) -> tuple[Diagnosis, Finding]:
    base = sick()
    more = Finding(
        severity, "it moved", {}, ("entropy.mean",), check="other", because_of=because_of, prescriptions=prescriptions
    )
    return replace(base, findings=(*base.findings, more)), more


def test_a_change_is_told_once():
    known = sick().findings[0].prescriptions[1]
    text = " ".join(render(changed(known)[0], "terminal").split())
    assert text.count("train_batch: multiply by 2") == 1
    assert "nine of ten tries (as in 1)" in text


def test_a_trap_is_told_once():
    base = sick()
    twin = replace(base.findings[0], check="twin", leads_to=())
    text = " ".join(render(replace(base, findings=(*base.findings, twin)), "terminal").split())
    assert text.count("compares the spread over the batch") == 1


def test_a_consequence_of_something_harmless_has_its_own_change():
    fix = Prescription("fix", "mend it")
    assert "mend it" not in render(changed(fix, because_of=("zero_variance_all_right",))[0], "terminal")
    assert "mend it" in render(changed(fix, because_of=("plateau",))[0], "terminal")


@pytest.mark.parametrize(
    ("tier", "evidence", "says", "not_said"),
    [
        ("certain", Evidence(1, None, "counted in the log"), "the log itself proves it: counted", "effect"),
        ("likely", Evidence(1, None, "counted in the log"), "counted in the log", "proves"),
        ("certain", Evidence(1, None, "a reward in 0..1 is assumed"), "a reward in 0..1 is assumed", "proves"),
        ("likely", Evidence(1, None, "step against a smooth curve, BIC, AR(1)-whitened"), "no smooth curve", "BIC"),
        ("likely", Evidence(1, 1e-9, "trend test"), "p < 1e-6", "1e-9"),
        ("likely", Evidence(1, 0.32, "trend after the best stretch, or a step that holds"), "that holds", "p = 0"),
        ("likely", Evidence(1, 0.05, "equivalence: the interval", equivalence=True), "at the 5 % level", "p ="),
    ],
)
def test_evidence_is_said_in_plain_words(tier, evidence, says, not_said):
    finding = replace(sick().findings[0], tier=tier, evidence=evidence)
    diagnosis = replace(sick(), findings=(finding,))
    line = " ".join(render(diagnosis, "terminal", width=200).split("evidence ")[1].splitlines()[0].split())
    assert says in line
    assert not_said not in line


def test_steps_are_whole_where_the_trainer_counts_in_whole_steps():
    finding = replace(sick().findings[0], onset=Onset(133.6666667, 113.7666667, 153.5666667))
    assert "step 134 (between 113 and 154)" in render(replace(sick(), findings=(finding,)), "terminal")


def test_the_rule_of_the_score_is_told_only_where_there_was_a_choice():
    base = healthy()
    rule = "eval_reward: the only rule; 1 other held-out series, choose with --eval KEY"
    one = replace(base.run, evaluations={"eval_reward": base.run["eval.score"]}, eval_rule=rule)
    two = replace(one, evaluations={**one.evaluations, "eval_x": base.run["eval.score"]})
    asked = replace(one, eval_rule="eval_reward, as asked")
    assert "the only rule" not in render(replace(base, run=one), "terminal")
    assert render(replace(base, run=two), "terminal").count("eval_reward") == 1
    assert "eval_reward, as asked" in render(replace(base, run=asked), "terminal")


def test_a_healthy_run_prints_little():
    text = render(healthy(), "terminal")
    assert len(text.splitlines()) < 35
    assert "Findings" not in text
    assert "What to log" not in text
    assert "1 could not look (kl_drift)" in text
    warnings = tuple(Warn("x", f"warning {i} " + "word " * 8) for i in range(30))
    notes = tuple(
        Note(str(i), "a first sentence of some length that says it. " + "More words. " * 20) for i in range(9)
    )
    unknown = tuple(Unrecognised("some/long/key/of/a/log" * 3, ("a/near/key" * 4,)) for _ in range(30))
    talkative = replace(healthy().run, warnings=warnings, unrecognised=unknown)
    assert len(render(replace(healthy(), run=talkative, notes=notes), "terminal").splitlines()) < 35


def test_a_short_paste_has_no_empty_section_and_no_table_of_checks():
    text = render(short(), "terminal")
    assert "Checks" not in text
    assert "2 could not look (entropy_collapse, entropy_rise)" in " ".join(text.split())
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if i and not lines[i - 1] and not line.startswith(" ")]
    assert all(lines[i + 1].strip() for i in heads)


def test_absent_zero_by_construction_and_rounded_values_are_said():
    assert "not logged: KL to reference" in render(healthy(), "terminal")
    assert "zero by construction: each batch" in " ".join(render(healthy(), "terminal").split())
    assert "<5e-4 -> <5e-4" in render(short(), "terminal")
    assert "not in this excerpt: held-out score" in render(short(), "terminal")
    dead = render(with_nan(), "terminal")
    assert "98 of 400 values NaN or infinite, first at step 301" in dead
    assert "400 of 400 values NaN or infinite" in dead
    assert "×××" in dead


def test_markdown_leaves_nothing_of_the_log_alive():
    text = render(hostile(), "markdown")
    for line in text.splitlines():
        outside = "".join(line.split("`")[::2]) if line.count("`") % 2 == 0 else line
        for alive in ("<script", "@someone", " #12", "https://evil", "www.evil", "[t](", "![i]"):
            assert alive not in outside.replace("\\[", "\0[").replace("\\]", "\0]"), line
    cells = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in cells} == {7, 3}


@given(st.text(alphabet="`ab |\\", min_size=1, max_size=12))
def test_code_spans_close(words):
    from markdown_it import MarkdownIt

    from rlclinic.report.markdown import code

    tokens = MarkdownIt("commonmark").parseInline(code(plain(words) or "a"))[0].children
    assert [t.type for t in tokens] == ["code_inline"]
    assert tokens[0].content.strip() == (plain(words) or "a").strip()


@given(st.text(alphabet="ab `*_[]()<>&!#|~$-+=1. @\\/:hw", max_size=30))
def test_escaped_text_reads_as_itself(words):
    from markdown_it import MarkdownIt

    from rlclinic.report.markdown import text

    clean = plain(words)
    tokens = MarkdownIt("commonmark", {"html": True}).parse(text(clean))
    children = [t for token in tokens for t in (token.children or [])]
    assert {t.type for t in children} <= {"text", "html_inline", "text_special"}
    assert {t.content for t in children if t.type == "html_inline"} <= {"<!-- -->"}
    assert "".join(t.content for t in children if t.type != "html_inline") == clean
    assert {t.type for t in tokens} <= {"paragraph_open", "inline", "paragraph_close"}


@given(st.text(max_size=300), st.integers(10, 80))
@settings(max_examples=200)
def test_plain_is_one_clean_bounded_line(text, most):
    line = plain(text, most)
    assert len(line) <= most
    assert plain(line, most) == line
    assert not {c for c in line if unicodedata.category(c).startswith("C") or c in "\n\u2028\u2029"}


def test_plain_keeps_both_ends_of_a_long_key():
    assert plain("actor/" + "x" * 10_000 + "/mean", 20) == "actor/xxxxx...x/mean"


def test_a_sentence_is_cut_between_words() -> None:
    words = "the results of paid answers differ in most pairs " * 20
    line = plain(words, 200)
    assert len(line) <= 200
    assert set(line.split()) <= {*words.split(), "..."}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (0.92063, "0.921"),
        (1536.4, "1536"),
        (0.00041, "4.1e-4"),
        (1e-6, "1e-6"),
        (2.5e7, "2.5e7"),
        (float("nan"), "NaN"),
        (float("-inf"), "-infinity"),
    ],
)
def test_numbers_read_well(value, text):
    assert number(value) == text


# ----------------------------------------------------------------------------------------------------- curves


def test_a_spike_does_not_flatten_the_rest():
    values = np.sin(np.arange(200.0) / 9)
    values[120] = 500.0
    col = Column("grad.norm", "g", np.arange(200.0), values)
    for ascii in (False, True):
        line = curves.draw(col, 40, ascii=ascii)[0]
        assert [i for i, c in enumerate(line) if c == "^"] == [24]
        assert len(set(line)) > 3
    assert curves.draw(replace(col, values=-values), 40)[0][24] == "v"
    assert "^" not in "".join(curves.draw(col, 40, height=3))
    assert "^ v beyond the scale" in render(
        replace(healthy(), run=replace(healthy().run, columns={"grad.norm": col})), "terminal"
    )


def test_a_single_spike_survives_any_reduction():
    values = np.zeros(20_000)
    values[12_345] = 50.0
    line = curves.draw(Column("grad.norm", "g", np.arange(20_000.0), values), 20)[0]
    assert [i for i, c in enumerate(line) if ord(c) & 0x09] == [12]
    assert "|" in curves.draw(Column("grad.norm", "g", np.arange(20_000.0), values), 20, ascii=True)[0]


def test_a_hole_in_the_log_stays_blank_and_nan_is_marked():
    steps = np.concatenate([np.arange(1.0, 41), np.arange(161.0, 201)])
    values = np.ones(80)
    values[:20] = np.nan
    line = curves.draw(Column("reward.mean", "r", steps, values), 20)[0]
    assert line[:2] == "××"
    assert line[4:16] == " " * 12
    assert " " not in line[16:]


@given(
    st.lists(st.floats(), max_size=40),
    st.integers(1, 30),
    st.integers(1, 3),
    st.booleans(),
)
@settings(max_examples=200)
def test_curves_have_their_size_and_never_raise(values, width, height, ascii):
    col = Column("reward.mean", "r", np.arange(float(len(values))), np.array(values, dtype=float))
    with np.errstate(all="raise", under="ignore"):
        lines = curves.draw(col, width, height=height, ascii=ascii)
    assert len(lines) == height
    assert {len(line) for line in lines} == {width}
    assert not ascii or "".join(lines).isascii()


@given(st.floats(0, 1000), st.integers(1, 60))
def test_axis_has_its_width(mark, width):
    assert len(curves.axis((0.0, 1000.0), width, mark)) == width


# ------------------------------------------------------------------------------------------------------- JSON


@pytest.mark.parametrize("case", CASES)
def test_json_follows_its_schema(case):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(contract.schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(render(CASES[case](), "json")), schema)


def test_schema_is_not_idle():
    jsonschema = pytest.importorskip("jsonschema")
    form = json.loads(render(sick(), "json"))
    del form["findings"][0]["onset"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(form, json.loads(contract.schema()))


def test_schema_is_fresh():
    pytest.importorskip("pydantic")
    done = subprocess.run([sys.executable, ROOT / "tools" / "build_schema.py", "--check"], check=False)
    assert done.returncode == 0, "run python tools/build_schema.py"


def test_json_says_what_the_contract_promises():
    form = json.loads(render(with_nan(), "json"))
    assert form["schema"] == "rlclinic.diagnosis/1"
    assert form["run"]["steps"] == {"first": 1, "last": 400, "count": 400}
    grad = form["run"]["metrics"]["grad.norm"]
    assert (grad["last"], grad["nonfinite"], grad["points"]) == ("NaN", 98, 400)
    assert grad["max"] < 1
    assert form["run"]["metrics"]["loss.total"]["min"] is None
    assert form["run"]["knobs"]["clip_high"]["value"] == "Infinity"
    assert form["run"]["knobs"]["group_size"] == {"value": 8, "key": "num_generations", "from": "config"}
    assert form["findings"][0]["numbers"] == {"first": 304.0, "value": "NaN", "largest": "Infinity"}
    evidence = form["findings"][0]["evidence"]
    assert (evidence["effect"], evidence["p_value"], evidence["method"]) == ("Infinity", None, "the value itself")
    assert (evidence["q_value"], evidence["strength"]) == (None, None)
    assert form["findings"][0]["forecast"] is form["findings"][0]["rollback"] is form["findings"][0]["cost"] is None
    outcomes = {c["check"]: (c["outcome"], c["severity"]) for c in form["checks"]}
    assert outcomes["truncation"] == ("examined", "none")
    assert outcomes["kl_drift"] == ("unexamined", None)
    sick_form = json.loads(render(sick(), "json"))
    assert [w["code"] for w in sick_form["run"]["warnings"]] == ["duplicated_rows", "undecided_key"]
    assert sick_form["findings"][0]["remedies"][0]["changes"][1] == {
        "knob": "train_batch_size",
        "key": "generation_batch_size",
        "from": None,
        "to": 128,
        "writes": "generation_batch_size=128",
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("format", FORMATS)
def test_equal_diagnoses_give_equal_bytes(case, format):
    assert render(CASES[case](), format) == render(CASES[case](), format)


def test_json_needs_no_rich_and_no_tables():
    program = (
        "import sys\n"
        "from rlclinic.model import Diagnosis, Run, Verdict\n"
        "from rlclinic.report import render\n"
        "render(Diagnosis(Run(), Verdict('undecided', None, 'empty'), (), (), ()), 'json')\n"
        "print(sorted({'rich', 'rlclinic.names', 'rlclinic.report.document', 'yaml', 'click'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_run_is_drawn(format):
    assert render(Diagnosis(Run(), Verdict("undecided", None, "nothing was read"), (), (), ()), format)


def test_unknown_format_names_the_valid_ones():
    with pytest.raises(UnknownName, match="terminal"):
        render(healthy(), "pdf")


def test_blocks_know_no_format():
    assert "|" in render_markdown(document(healthy()))
