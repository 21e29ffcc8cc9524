"""What only a page has room for: the parts of the reward by their share, groups of answers, every curve, the settings."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence, Set
from dataclasses import replace

import numpy as np

from rlclinic.answers import parts as saved_parts
from rlclinic.answers.shown import hang
from rlclinic.model import Column, Component, Diagnosis, Finding, Floats, Run
from rlclinic.report import baselined
from rlclinic.report.blocks import (
    KEY,
    Block,
    Bullets,
    Change,
    Curve,
    Folded,
    Heading,
    KeyNumbers,
    Note,
    Paragraph,
    Passage,
    Shares,
    Table,
    bounded,
    count,
    excerpt,
    number,
    plain,
    step,
)
from rlclinic.report.document import (
    ABOUT,
    about_the_log,
    broken,
    grouped,
    head_lines,
    lacking,
    outcomes,
    sources,
    verdict,
    vitals,
)
from rlclinic.report.findings import costs, findings, plainly
from rlclinic.report.history import history
from rlclinic.report.samples import QUOTED, answer
from rlclinic.report.series import curve, ends, seen, span, title_of

# Ours: a page that is still light to load and to print.
_MOST_CURVES = 80
_MOST_PARTS = 8
_MOST_KNOBS = 120
_MOST_GROUPS = 6
_KEY = 3
_MOST_ANSWERS = 8
_MOST_PHRASES = 12
_PROMPT = 320
_HEADLINE = 120
_CALM = "Nothing needs action"
"""How a verdict begins that only informs."""
_WINDOWS = 12
"""A rolling window is this part of the steps, and at least ``_LEAST`` of them."""
_LEAST = 8


def page(diagnosis: Diagnosis, samples: int = 0) -> list[Block]:
    """The report as blocks for a page: what ``document`` says in its order, and all that a page has room for besides."""
    run = diagnosis.run
    blocks: list[Block] = [*_headline(diagnosis), *_head(run), *vitals(diagnosis, page=True)]
    blocks += findings(diagnosis, samples, page=True)
    blocks += baselined.baseline(diagnosis)
    blocks += history(run)
    blocks += reward_parts(run)
    blocks += answers(run, samples, diagnosis.findings)
    blocks = _marked(diagnosis.findings, blocks) if samples else blocks
    if diagnosis.notes:
        blocks += [Heading("Normal here", 2), *(Note(plain(note.says)) for note in diagnosis.notes)]
    if diagnosis.to_log:
        blocks.append(Heading("What to log", 2, aside="so that more can be judged next time"))
        blocks.append(Bullets(bounded(diagnosis.to_log)))
    blocks += _checks(diagnosis)
    blocks += every_curve(run, {block.name for block in blocks if isinstance(block, Curve)})
    told = about_the_log(diagnosis, False, ABOUT) or [Heading("About this log", 2)]
    blocks += [told[0], Bullets(tuple(sources(run))), *told[1:], *settings(run)]
    return _polished(run, blocks + broken(diagnosis))


def title(diagnosis: Diagnosis) -> str:
    """What the browser calls the page."""
    return f"{plain(diagnosis.run.name, KEY)}: {diagnosis.verdict.severity} - rlclinic"


def _headline(diagnosis: Diagnosis) -> list[Block]:
    """The verdict as a short line and what stands behind it, then what matters most."""
    blocks = verdict(diagnosis)
    primary = next((f for f in diagnosis.findings if f.check == diagnosis.verdict.primary), None)
    first, *rest = blocks
    if isinstance(first, Paragraph) and first.text.startswith(_CALM):
        rest = [Paragraph(_sentence(first.text.removeprefix(_CALM).lstrip(" ;"))), *rest]
        first = replace(first, text=f"{_CALM}.")
    elif isinstance(first, Paragraph) and primary is not None and (short := plainly(primary)):
        head, colon, says = first.text.partition(": ")
        if colon and short in head and len(head) <= _HEADLINE:
            head, behind = _led_to(head, diagnosis)
            rest = [*_apart(says), *behind, *rest]
            first = replace(first, text=head)
    if primary is not None and primary.cost is not None:
        pairs = rest[-1].pairs if isinstance(rest[-1], KeyNumbers) else ()
        rest = [*(b for b in rest if not isinstance(b, KeyNumbers))]
        ended = [pair for pair in pairs if pair[0] == "ended by"]
        pairs = tuple(pair for pair in pairs if pair[0] != "ended by")
        rest.append(KeyNumbers((*pairs, ("cost", costs(primary)[0]), *ended)))
    return [first, *rest]


def _led_to(head: str, diagnosis: Diagnosis) -> tuple[str, list[Block]]:
    """A headline without the gravest finding behind it, and that in a line of its own, by its title and number."""
    found = re.fullmatch(r"(.*?)(, which led to|, beside) ([a-z_]+) \((\w+)\)", head)
    place = {f.check: i for i, f in enumerate(diagnosis.findings, 1)}
    if found is None or found[3] not in place:
        return head, []
    how = "It led to" if "led" in found[2] else "Beside it stands"
    return found[1], [Paragraph(f"{how}: {found[3]} ({place[found[3]]}), {found[4]}.", tone="dim")]


def _apart(says: str) -> list[Block]:
    """What a verdict says after its title: what was seen, what that explains, and that a check is in preview."""
    more, trial = r"(?: (?P<more>It explains [^.]*\.))?", r"(?: \((?P<trial>A check in preview[^)]*)\))?"
    said = re.fullmatch(rf"(?P<seen>.*?){more}{trial}", says)
    if said is None:
        return [Paragraph(_sentence(says))]
    quiet = " ".join(part for part in (said["more"], said["trial"]) if part)
    return [Paragraph(_sentence(said["seen"])), *([Paragraph(quiet, tone="dim")] if quiet else [])]


_LABELS = {"not here": "not possible here", "no help": "does not help", "to settle": "would settle what is open"}
"""Labels that are short for a terminal's margin, in the words of a page."""


def _polished(run: Run, blocks: list[Block]) -> list[Block]:
    """Sentences with a capital, labels in full: on a page they stand alone."""
    keys = {one.key for one in run.columns.values()} | set(run.components) | set(run.evaluations)
    made: list[Block] = []
    for block in blocks:
        if isinstance(block, Change):
            block = replace(block, says=_sentence(block.says, keys))
        elif (isinstance(block, Note) and not block.label) or (isinstance(block, Paragraph) and block.tone == "plain"):
            block = replace(block, text=_sentence(block.text, keys))
        elif isinstance(block, Bullets):
            block = replace(block, label=_LABELS.get(block.label, block.label))
        made.append(block)
    return made


def _sentence(says: str, keys: Container[str] = ()) -> str:
    """``says`` with a capital, unless it begins with what is a key of the log and no word (kl, learning_rate)."""
    first = says.partition(" ")[0].rstrip(",:;")
    return (
        says
        if (first in keys and len(first) <= _KEY) or re.search(r"[_/.=0-9]", first)
        else says[:1].upper() + says[1:]
    )


def _head(run: Run) -> list[Block]:
    title, trainer, size, setup = head_lines(run)
    return [title, Bullets((*trainer, *size, *setup))]


def _checks(diagnosis: Diagnosis) -> list[Block]:
    """What was looked at, folded; what could not be, and which series it lacks."""
    nothing, blind, unfit = outcomes(diagnosis)
    blocks: list[Block] = [Heading("Checks", 2)] if diagnosis.checks else []
    if blind:
        needs = grouped([(plain(c.check, KEY), lacking(diagnosis.run, c)) for c in blind])
        table = Table(("could not look", "because"), tuple((checks, why) for why, checks in needs))
        blocks.append(Folded(f"{count(len(blind), 'check')} could not look", (table,)))
    if nothing:
        blocks.append(Folded(f"{count(len(nothing), 'check')} found nothing", (Paragraph(", ".join(nothing)),)))
    if unfit:
        rows = tuple((plain(c.check, KEY), plain(c.says) or "not said") for c in unfit)
        blocks.append(Folded(f"{len(unfit)} do not apply to this run", (Table(("check", "why"), rows),)))
    return blocks


# ------------------------------------------------------------------------------------------- parts of the reward


def reward_parts(run: Run) -> list[Block]:
    """What the reward is made of, where it has two parts or more: their levels, and by how much each tells answers apart."""
    if len(run.components) < 2:
        return []
    blocks: list[Block] = [Heading("What the reward is made of", 2)]
    drawn = shares_of_variance(run)
    blocks += [drawn] if drawn is not None else []
    table = run.rollouts[0].train if run.rollouts else None
    given = {name: part.weight for name, part in run.components.items()}
    exact = {} if table is None else {one.name: one for one in saved_parts.shares(table, given)}
    told = any(np.isfinite(one.share) for one in exact.values())
    head = ("part", "weight", "at first", "at last", *(("share, first third", "last third") if told else ()))
    rows = []
    for name, part in list(run.components.items())[:_MOST_PARTS]:
        first, last = ends(part.mean)
        cells = [
            plain(name, 48),
            "not known" if part.weight is None else number(part.weight),
            first or "-",
            last or "-",
        ]
        if told:
            one = exact.get(name)
            cells += ["-", "-"] if one is None else [_share(one.first), _share(one.last)]
        rows.append(tuple(cells))
    blocks.append(Table(head, tuple(rows)))
    left = len(run.components) - _MOST_PARTS
    blocks += [Paragraph(f"and {left} more", tone="dim")] if left > 0 else []
    if told:
        says = (
            "Share: of all that the saved answers of a group differ by in that third, which is what teaches. Steps at which "
            "they differ more count for more, so it is not the mean of single steps; parts divide what they have in common."
        )
        blocks.append(Paragraph(says, tone="dim"))
    return blocks


def _share(value: float) -> str:
    return f"{100 * value:.3g}%" if np.isfinite(value) else "-"


def shares_of_variance(run: Run) -> Shares | None:
    """How the parts divide the variance of the reward over the steps; None where that is not known.

    Where every part logs its spread: weight^2 * std^2 of each step. Else the variance of its weighted mean within a rolling
    window. Both leave out what parts have in common. A part of unknown weight makes shares impossible unless it never moves.
    """
    parts = run.components
    if not 2 <= len(parts) <= _MOST_PARTS:
        return None
    spread = all(part.std is not None and len(part.std.finite) for part in parts.values())
    columns = [part.std if spread and part.std is not None else part.mean for part in parts.values()]
    steps = columns[0].finite.steps
    for column in columns[1:]:
        steps = np.intersect1d(steps, column.finite.steps, assume_unique=True)
    if len(steps) < 2 * _LEAST:
        return None
    rows = []
    for part, column in zip(parts.values(), columns, strict=True):
        values = column.finite.values[np.searchsorted(column.finite.steps, steps)]
        one = _variance(part, values, spread)
        if one is None:
            return None
        rows.append(one)
    with np.errstate(over="ignore", invalid="ignore"):
        parts_of = np.vstack(rows)
        whole = parts_of.sum(axis=0)
    known = np.isfinite(whole) & (whole > 0)
    if known.sum() < _LEAST:
        return None
    each = "weight² · spread² of each step, as logged" if spread else (
        f"the variance of the weighted means over {_window(len(steps))} rows"
    )  # fmt: skip
    how = f"by {each}; what parts have in common is not counted"
    how += "" if known.all() else "; blank where no part has a spread"
    names = tuple(plain(name, 48) for name in parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(known, parts_of / whole, np.nan)
    title = "share of the variance over the batch" if spread else "share of the variance over the steps"
    return Shares(title, names, steps, shares, remark=how)


def _window(rows: int) -> int:
    return max(_LEAST, rows // _WINDOWS)


def _variance(part: Component, values: Floats, spread: bool) -> Floats | None:
    """The variance that a part brings in at each step, in units of the reward; None where its weight is not known."""
    moves = bool(np.any(values != 0)) if spread else bool(np.ptp(values) > 0)
    if not moves:
        return np.zeros(len(values))
    if part.weight is None:
        return None
    scaled = part.weight * values
    if spread:
        return np.asarray(scaled**2)
    wide = _window(len(values))
    padded = np.pad(scaled, (wide // 2, wide - 1 - wide // 2), mode="edge")
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, wide).var(axis=1))


# --------------------------------------------------------------------------------------------------- all curves


def every_curve(run: Run, shown: Set[str]) -> list[Block]:
    """Every series that the page has not ``shown`` yet, folded, as small curves."""
    drawn: list[Curve] = []
    over = span(run)
    for title, column, name in _series(run):
        if name in shown or not len(column):
            continue
        drawn.append(curve(title, column, over, name=name))
    if not drawn:
        return []
    left = len(drawn) - _MOST_CURVES
    inside: list[Block] = [*drawn[:_MOST_CURVES]]
    inside += [Paragraph(f"and {left} more", tone="dim")] if left > 0 else []
    return [Heading("All curves", 2), Folded(_many(len(drawn)), tuple(inside))]


def _many(series: int) -> str:
    return "one more series" if series == 1 else f"{series} more series"


def _series(run: Run) -> Iterator[tuple[str, Column, str]]:
    for name, part in run.components.items():
        yield f"{plain(name, 48)} (reward part)", part.mean, name
        if part.std is not None:
            yield f"{plain(name, 48)} (spread of a reward part)", part.std, f"{name} spread"
    score = run.get("eval.score")
    for key, column in run.evaluations.items():
        if score is None or key != score.key:
            yield plain(key, KEY), column, key
    for metric, column in run.columns.items():
        yield seen(column, title_of(metric)), column, metric


# ----------------------------------------------------------------------------------------------------- settings


def settings(run: Run) -> list[Block]:
    """The settings that are known, folded, with where each is known from."""
    if not run.knobs:
        return []
    words = {"config": "its settings", "log": "the log", "given": "as given", "default": "default of the trainer"}
    known = sorted(run.knobs.values(), key=lambda knob: (knob.origin == "default", knob.key or knob.name))
    rows = [(plain(knob.key or knob.name, KEY), plain(knob.value, 120), words[knob.origin]) for knob in known]
    left = len(rows) - _MOST_KNOBS
    more = [Paragraph(f"and {left} more", tone="dim")] if left > 0 else []
    table = Table(("setting", "value", "from"), tuple(rows[:_MOST_KNOBS]))
    return [Folded(f"{count(len(rows), 'setting')} known", (table, *more))]


def answers(run: Run, samples: int, findings: Sequence[Finding] = ()) -> list[Block]:
    """Whole groups of saved answers with their rewards side by side, where ``samples`` of them are asked: those of the
    examples of ``findings`` first, then the latest with a signal."""
    table = run.rollouts[0].train if run.rollouts else None
    if samples < 1 or table is None or not table.texts:
        return []
    wanted = [int(table.group[row]) for f in findings for row in f.samples if 0 <= row < len(table)]
    known = [group for row in sorted(table.texts, reverse=True) if (group := int(table.group[row])) >= 0]
    live = [group for group in dict.fromkeys(known) if not table.dead[group]]
    groups = [group for group in dict.fromkeys([*wanted, *live, *known]) if group >= 0][: min(samples, _MOST_GROUPS)]
    rule = "whole groups, the best paid first; secrets and personal strings masked"
    blocks: list[Block] = [Heading("Saved answers", 2, aside=rule)]
    for group in groups:
        rows = table.members(group)
        order = rows[np.argsort(-np.nan_to_num(table.reward[rows], nan=-np.inf), kind="stable")].tolist()
        shown = [row for row in order if row in table.texts] or order
        first = shown[0]
        at = f"step {step(float(table.step[first]))}" if np.isfinite(table.step[first]) else "no step"
        at += f", prompt {int(table.prompt[first])}" if table.prompt[first] >= 0 else ""
        rewards = ", ".join(number(float(r)) for r in table.reward[order][:_MOST_ANSWERS])
        more = ", ..." if len(order) > _MOST_ANSWERS else ""
        blocks.append(Heading(at, 3, aside=f"{count(len(order), 'answer')}, rewards {rewards}{more}"))
        asked = hang(table, first).asked
        blocks += [Passage("prompt", excerpt(asked, _PROMPT, 5))] if asked else []
        for row in shown[:_MOST_ANSWERS]:
            blocks += answer(hang(table, row, asked=False), alone=False)
        left = len(order) - min(len(shown), _MOST_ANSWERS)
        blocks += [Paragraph(f"{count(left, 'more answer')} not shown", tone="dim")] if left > 0 else []
    return blocks if groups else []


def _marked(findings: Sequence[Finding], blocks: list[Block]) -> list[Block]:
    """``blocks`` with the phrases highlighted that a finding says are paid, each as far as it is told."""
    found = [phrase.removesuffix("...").strip() for one in findings for phrase in QUOTED.findall(plain(one.says))]
    words = tuple(dict.fromkeys(phrase for phrase in found if len(phrase) > 1))[:_MOST_PHRASES]
    return [replace(b, marked=words) if isinstance(b, Passage) and b.label == "answer" else b for b in blocks]
