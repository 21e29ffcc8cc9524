"""What the words of saved answers show over the run: loops, foreign scripts, lost structure, copies, each with its count."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from rlclinic.answers import agreement, lengths, loops, markup, scripts, variety
from rlclinic.model import Column, Run
from rlclinic.rollouts import Flags, Floats, Ints, Rollouts

WINDOWS = 10
"""Windows of equally many steps into which the run is cut for an overview (ours)."""
EARLY, LATE = 0.15, 0.25
"""Shares of the steps called early and late, as for logged series."""
_PAID = 30
"""Least number of answers that earned much, to tell which structure is paid (ours)."""
_MUST, _STILL = 0.95, 0.9
"""Share of the paid answers, and of the late ones among them, that have a piece of structure which is needed (ours)."""
_USUAL = 0.9
"""Share of the early answers that have a piece of structure which was learnt, where no reward tells what is paid (ours)."""
_REFUSAL = re.compile(
    r"\s{0,8}(?:i'm sorry|i am sorry|sorry,|i can(?:'t|not| not)|as an ai|i'm unable|i am unable|i won't)", re.I
)


@dataclass(frozen=True, eq=False)
class Level:
    """A mean over some answers."""

    value: float
    count: int
    """Answers (or groups) behind it."""
    prompts: int = 0
    """Different prompts among those that are counted in it (a share's flagged ones)."""


@dataclass(frozen=True, eq=False)
class Measure:
    """One quantity of single answers or groups, in the order of their steps."""

    name: str
    says: str
    """What it is, for a line of an overview."""
    unit: str
    rows: Ints
    """(m,) rows of the table, or numbers of groups."""
    step: Floats
    prompt: Ints
    values: Floats
    """(m,) 0 or 1 for a share."""
    of: str = "sampled answers"
    """Among what it is a share or mean: all answers, sampled answers, groups."""

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def steps(self) -> Floats:
        """The steps with a value, increasing; empty where the answers state none."""
        return np.unique(self.step[np.isfinite(self.step)])

    @cached_property
    def is_early(self) -> Flags:
        """(m,) those of the first ``EARLY`` of the steps; all where there is one step only."""
        n = len(self.steps)
        if n < 2:
            return np.ones(len(self), dtype=np.bool_)
        return np.asarray(self.step <= self.steps[max(0, int(np.ceil(EARLY * n)) - 1)])

    @cached_property
    def is_late(self) -> Flags:
        """(m,) those of the last ``LATE`` of the steps; all where there is one step only."""
        n = len(self.steps)
        if n < 2:
            return np.ones(len(self), dtype=np.bool_)
        return np.asarray(self.step >= self.steps[n - max(1, int(np.ceil(LATE * n)))])

    @property
    def early(self) -> Level:
        """Over the early ones."""
        return self._over(self.is_early)

    @property
    def late(self) -> Level:
        """Over the late ones."""
        return self._over(self.is_late)

    @property
    def whole(self) -> Level:
        """Over all."""
        return self._over(np.ones(len(self), dtype=np.bool_))

    def _over(self, keep: Flags) -> Level:
        values = self.values[keep]
        flagged = self.prompt[keep][values >= 0.5]
        level = float(values.mean()) if len(values) else float("nan")
        return Level(level, len(values), len(np.unique(flagged[flagged >= 0])) + int((flagged < 0).sum()))

    def by_step(self) -> tuple[Floats, Floats, Ints]:
        """(steps, mean at each, how many answers each)."""
        use = np.isfinite(self.step)
        steps, place = np.unique(self.step[use], return_inverse=True)
        count = np.bincount(place)
        return steps, np.bincount(place, self.values[use]) / count, count.astype(np.int64)

    def windows(self, most: int = WINDOWS) -> tuple[tuple[tuple[float, float], ...], Floats, Ints]:
        """(first and last step of each of at most ``most`` windows, mean in each, how many answers each)."""
        steps, values, count = self.by_step()
        n = min(most, len(steps))
        if not n:
            return (), np.empty(0), np.empty(0, dtype=np.int64)
        edges = np.linspace(0, len(steps), n + 1).astype(np.int64)
        total = np.add.reduceat(count, edges[:-1])
        means = np.add.reduceat(values * count, edges[:-1]) / total
        spans = tuple((float(steps[a]), float(steps[b - 1])) for a, b in pairwise(edges.tolist()))
        return spans, means, total

    def column(self, metric: str) -> Column:
        """The mean at each step as a log would have it."""
        steps, values, _ = self.by_step()
        return Column(metric, agreement.KEY, steps, values, note=f"{len(self)} {self.of}")

    def shown(self, most: int = 6) -> tuple[int, ...]:
        """Rows that are counted in the share, the latest first, one of each prompt."""
        at = np.flatnonzero(self.values >= 0.5)
        order = at[np.argsort(-np.nan_to_num(self.step[at]), kind="stable")]
        seen: dict[int, int] = {}
        for place in order.tolist():
            seen.setdefault(int(self.prompt[place]), int(self.rows[place]))
            if len(seen) >= most:
                break
        return tuple(seen.values())


@dataclass(frozen=True, eq=False)
class Texts:
    """What the words and endings of saved answers show. A measure is None where the answers do not tell it."""

    answers: int
    """Answers in the table."""
    sampled: int
    """Answers whose words are kept."""
    groups: int
    """Groups in the table."""
    empty: Measure | None = None
    cut: Measure | None = None
    stopped: Measure | None = None
    aborted: Measure | None = None
    length: Measure | None = None
    repetition: Measure | None = None
    foreign: Measure | None = None
    """Answers with some percent of foreign letters, in one or two scripts, or with a half in another Latin language."""
    whole_foreign: Measure | None = None
    """Those of them that are foreign nearly throughout."""
    gibberish: Measure | None = None
    """Answers with scraps of three and more scripts, or with bytes that are no text."""
    garbled_tail: Measure | None = None
    """Those of them that begin as words in the script of the prompt."""
    malformed: Measure | None = None
    """Uncut answers without a piece of structure that is needed, or with one left open."""
    unclosed: Measure | None = None
    """Those with one left open."""
    refusal: Measure | None = None
    copies: Measure | None = None
    """Answers of a group beyond the first of each text, in groups that are not solved and whose answers are long."""
    likeness: Measure | None = None
    between: Measure | None = None
    apart: lengths.Apart | None = None
    needed: tuple[str, ...] = ()
    """Pieces of structure that are needed, as ``markup`` names them."""
    needed_by: str = ""
    """``paid`` where nearly all answers that earn much have them, ``early`` where nearly all early answers had them."""


_READ: weakref.WeakKeyDictionary[Rollouts, dict[str, Texts]] = weakref.WeakKeyDictionary()


def read(table: Rollouts) -> Texts:
    """What the words and endings of ``table`` show; read once for each table.

    Counts of endings, empty answers and copies are of all rows; the rest is of the sampled words (see ``Measure.of``).
    Nothing is raised, whatever the words are.
    """
    kept = _READ.setdefault(table, {})
    if "texts" not in kept:
        kept["texts"] = _read(table)
    return kept["texts"]


def _read(table: Rollouts) -> Texts:
    rows = np.fromiter(table.texts, dtype=np.int64, count=len(table.texts))
    rows = rows[(rows >= 0) & (rows < len(table))]
    of = _Sample(table, rows)
    return Texts(
        answers=len(table),
        sampled=len(rows),
        groups=table.groups,
        apart=lengths.apart(table),
        **_of_all(table),
        **_looped(of),
        **_written(of),
        **_formed(of),
        **_varied(table),
    )


def subject(run: Run) -> Rollouts | None:
    """The saved answers whose words say something about ``run``: its training answers, held-out ones where there are no
    others. Filtered and partial tables serve too, as samples. None without any, and where answers contradict the log."""
    found = agreement.trusted(run)
    if found is not None or any(warn.code == agreement.CONTRADICTED for warn in run.warnings):
        return found
    for table in run.rollouts:
        if len(one := table.train) or len(one := table.evaluation):
            return one
    return None


def of(run: Run) -> Texts | None:
    """What the words and endings of the saved answers of ``run`` show; None without any."""
    table = subject(run)
    return None if table is None else read(table)


def shown(run: Run, measure: Measure) -> tuple[int, ...]:
    """The rows that show a share best, for ``Finding.samples``; empty where they are not rows of the first table."""
    mine = bool(run.rollouts) and subject(run) is run.rollouts[0].train
    return measure.shown() if mine and measure.of != "groups not solved" else ()


class _Sample:
    """The rows with words, with what every measure of them asks for."""

    def __init__(self, table: Rollouts, rows: Ints) -> None:
        self.table, self.rows = table, rows
        self.step, self.prompt = table.step[rows], table.prompt[rows]
        self.words = [table.texts[row] for row in rows.tolist()]

    def share(self, name: str, says: str, values: Flags | Floats, keep: Flags | None = None, unit: str = "") -> Measure:
        """A measure of the rows, or of those that are kept."""
        flags = np.asarray(values, dtype=np.float64)
        keep = np.isfinite(flags) if keep is None else keep & np.isfinite(flags)
        return Measure(name, says, unit or "share", self.rows[keep], self.step[keep], self.prompt[keep], flags[keep])


def _of_all(table: Rollouts) -> dict[str, Any]:
    """Measures of every row, which need no words."""
    every = np.arange(len(table), dtype=np.int64)
    made: dict[str, Any] = {}

    def measure(name: str, says: str, values: Flags | Floats, unit: str = "share") -> None:
        at = np.asarray(values, dtype=np.float64)
        use = np.isfinite(at)
        if use.any():
            made[name] = Measure(
                name, says, unit, every[use], table.step[use], table.prompt[use], at[use], of="all answers"
            )

    length, unit = lengths.size(table)
    measure("length", f"mean length in {unit}", length, unit)
    if lengths.ending_known(table):
        for name, code in (("cut", lengths.CUT), ("stopped", lengths.STOPPED), ("aborted", lengths.ABORTED)):
            says = {"cut": "cut by the limit", "stopped": "ended by themselves", "aborted": "aborted"}[name]
            measure(name, says, np.where(table.ending > 0, table.ending == code, np.nan))
    nothing = lengths.empty(table)
    if nothing is not None:
        measure("empty", "empty, or a few characters where others have many", nothing)
    return made


def _looped(of: _Sample) -> dict[str, Any]:
    if not len(of.rows):
        return {}
    cut = (of.table.ending[of.rows] == lengths.CUT).tolist()
    found = np.zeros(len(of.rows), dtype=np.bool_)
    known: tuple[str, str, str] = ("", "", "")
    for place, words in enumerate(of.words):
        if known[0] is not words.prompt or known[1] is not words.truth:
            known = words.prompt, words.truth, f"{words.prompt[-20_000:]}\n{words.truth[:20_000]}"
        found[place] = loops.looped(words.answer, cut=cut[place], known=known[2])
    refused = np.fromiter((_REFUSAL.match(words.answer) is not None for words in of.words), np.bool_, len(of.words))
    return {
        "repetition": of.share("repetition", "end in a loop", found),
        "refusal": of.share("refusal", "begin as a refusal", refused),
    }


def _written(of: _Sample) -> dict[str, Any]:
    """Scripts of answers beside those of their prompts, where the prompt is known and asks for no language."""
    n = len(of.rows)
    values = {name: np.full(n, np.nan) for name in ("foreign", "whole_foreign", "gibberish", "garbled_tail")}
    native: dict[tuple[int, str], tuple[frozenset[str], str] | None] = {}
    usual = _usual_language(of)
    for place, words in enumerate(of.words):
        if not words.prompt or not words.answer:
            continue
        key = (int(of.prompt[place]), words.truth[:200])
        if key not in native:
            asks = scripts.asked(words.prompt)
            script = scripts.scripts_of(words.prompt, words.truth)
            end = words.prompt[-20_000:]
            own = scripts.language_of(end) or (usual if "Latin" in script and scripts.may_be(end, usual) else "")
            native[key] = None if asks or scripts.language_of(words.truth[:4_000]) not in ("", own) else (script, own)
        by = native[key]
        if by is None:
            continue
        seen = scripts.writing(words.answer, *by)
        many = seen.scripts >= 3 or seen.broken >= 0.01
        mixed = not many and seen.letters >= 3 and seen.foreign >= 0.03
        values["foreign"][place] = mixed
        values["whole_foreign"][place] = mixed and seen.foreign >= 0.9
        values["gibberish"][place] = many
        values["garbled_tail"][place] = many and seen.late
    says = {
        "foreign": "with words in another language than their prompt",
        "whole_foreign": "in another language nearly throughout",
        "gibberish": "scraps of three and more foreign scripts, or broken characters",
        "garbled_tail": "of those, begun as words in the script of the prompt",
    }
    return {
        name: of.share(name, says[name], flags) if np.isfinite(flags).any() else None for name, flags in values.items()
    }


def _usual_language(of: _Sample) -> str:
    """The language in Latin letters of most prompts, for those too short to tell theirs."""
    prompts = {int(number): words.prompt for number, words in zip(of.prompt[:2_000], of.words, strict=False)}
    found = [scripts.language_of(prompt[-4_000:]) for prompt in prompts.values()]
    known = [language for language in found if language]
    best = max(set(known), key=known.count, default="")
    return best if known and known.count(best) >= max(0.9 * len(known), 0.3 * len(found)) else ""


def _formed(of: _Sample) -> dict[str, Any]:
    """Structure left open, and structure that is missing although paid answers, or the early ones, have it."""
    table, n = of.table, len(of.rows)
    sample = [words.answer for words in (of.words if n <= 600 else of.words[:: n // 300])]
    named = markup.marks(sample)
    judged = lengths.whole(table)[of.rows] & np.fromiter((bool(w.answer.strip()) for w in of.words), np.bool_, n)
    if not named or not judged.any():
        return {}
    has = {mark: np.fromiter((markup.has(w.answer, mark) for w in of.words), np.bool_, n) for mark in named}
    opened = np.fromiter((markup.left_open(words.answer, named) for words in of.words), np.bool_, n)
    needed, by = _needed(of, has, judged)
    missing = np.zeros(n, dtype=np.bool_)
    for mark in needed:
        missing |= ~has[mark]
    last = _late_paid(of)
    harmful = opened if not len(last) or opened[last].mean() <= 0.5 else np.zeros(n, dtype=np.bool_)
    says = (
        "without a piece of structure that is needed, or with one left open" if needed else "with structure left open"
    )
    return {
        "malformed": of.share("malformed", says, missing | harmful, judged),
        "unclosed": of.share("unclosed", "with structure left open", opened, judged),
        "needed": needed,
        "needed_by": by,
    }


def _paid(of: _Sample) -> Flags | None:
    """(n,) True for the answers that earned more than the middle of what is earned; None where too few did to say what
    they have in common."""
    reward = of.table.reward[of.rows]
    known = np.isfinite(reward)
    if not known.any():
        return None
    least, most = np.quantile(reward[known], (0.01, 0.99))
    with np.errstate(invalid="ignore"):
        paid = known & (reward > 0.5 * (least + most))
    return np.asarray(paid) if most > least and paid.sum() >= _PAID else None


def _late_paid(of: _Sample) -> Ints:
    """The last quarter of the paid answers, ten at least; empty where nothing tells what is paid."""
    paid = _paid(of)
    if paid is None:
        return np.empty(0, dtype=np.int64)
    order = np.flatnonzero(paid)[np.argsort(of.step[paid], kind="stable")]
    return order[-max(10, len(order) // 4) :].astype(np.int64)


def _needed(of: _Sample, has: Mapping[str, Flags], judged: Flags) -> tuple[tuple[str, ...], str]:
    """The pieces of structure that an answer must have, and what says so.

    What nearly every answer that earns much has, late ones too: where a form is dropped and paid all the same it was not
    needed. Without rewards, what nearly all early answers had.
    """
    steps, paid = of.table.steps, _paid(of)
    if paid is not None:
        last = _late_paid(of)
        return tuple(
            m for m, flags in has.items() if flags[paid].mean() >= _MUST and flags[last].mean() >= _STILL
        ), "paid"
    if np.isfinite(of.table.reward[of.rows]).any():
        return (), ""
    if len(steps) < 2:
        return (), ""
    first = judged & (of.step <= steps[max(0, int(np.ceil(EARLY * len(steps))) - 1)])
    if first.sum() < _PAID:
        return (), ""
    return tuple(mark for mark, flags in has.items() if flags[first].mean() >= _USUAL), "early"


def _varied(table: Rollouts) -> dict[str, Any]:
    """Copies and likeness in the groups that are not solved and whose answers are long."""
    if not table.groups or table.partial:
        return {}
    share = variety.copies(table)
    keep = np.isfinite(share) & variety.open_groups(table) & variety.lengthy(table)
    made: dict[str, Any] = {}

    def measure(name: str, says: str, groups: Ints, values: Floats) -> None:
        use = np.isfinite(values)
        if use.any():
            at = groups[use]
            step, prompt = table.group_step[at], table.group_prompt[at]
            made[name] = Measure(name, says, "share", at, step, prompt, values[use], of="groups not solved")

    at = np.flatnonzero(keep).astype(np.int64)
    measure("copies", "answers of a group that copy another, word for word", at, share[at])
    alike = variety.likeness(table)
    measure(
        "likeness", "pieces that an answer shares with the one most like it, same prompt", alike.groups, alike.within
    )
    measure("between", "pieces that answers to different prompts share", alike.groups, alike.between)
    return made


# ---------------------------------------------------------------- columns


def _column(name: str) -> Callable[[Rollouts], tuple[Floats, Floats] | None]:
    def values(table: Rollouts) -> tuple[Floats, Floats] | None:
        found: Measure | None = getattr(read(table), name)
        if found is None or not len(found.steps):
            return None
        steps, level, _ = found.by_step()
        return steps, level

    return values


COLUMNS: Mapping[str, Callable[[Rollouts], tuple[Floats, Floats] | None]] = {
    "text.repetition_frac": _column("repetition"),
    "text.format_error_frac": _column("malformed"),
}
"""Metrics of the words of the sampled answers as a log would have them: (steps, values), None where they do not tell."""
