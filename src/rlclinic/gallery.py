"""Saved answers to be looked at: what they show at both ends of a run, and chosen ones with their words, masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlclinic import vitals
from rlclinic.answers import agreement, exploits
from rlclinic.answers.exploits import Candidate
from rlclinic.answers.figures import Figure, facts, figures
from rlclinic.answers.shown import Hung, hang, hidden
from rlclinic.errors import BadRequest
from rlclinic.model import Run, Severity
from rlclinic.rollouts import Answer, Ints, Rollouts

__all__ = [
    "Asked",
    "Choice",
    "Figure",
    "Gallery",
    "Hung",
    "Shelf",
    "Shown",
    "choose",
    "completed",
    "gallery",
    "unread",
]

GROUPS = 6
"""Groups that one page shows (ours: two screens of answers)."""
_RARE = 4
"""Digits from which on a number stands in so few prompts that all of them can be kept (ours)."""


@dataclass(frozen=True)
class Asked:
    """What somebody wants to see; nothing set means the overview alone."""

    prompt: str | None = None
    """The number of a prompt, or a piece of its words."""
    step: float | None = None
    worst: int | None = None
    best: int | None = None
    exploits: bool = False
    samples: int = 3
    """Answers shown of each group or candidate."""
    groups: int | None = GROUPS
    """Most groups shown of a prompt or a step; None for all."""

    def wanted(self) -> Callable[[Answer], bool] | None:
        """Whose words must be kept while reading; None where the numbers decide first (see ``unread``)."""
        if self.prompt is None or (_is_number(self.prompt) and len(self.prompt) < _RARE):
            return None
        piece = self.prompt.casefold()
        return lambda one: one.prompt is not None and piece in one.prompt.casefold()


@dataclass(frozen=True)
class Shelf:
    """Answers that belong together, with why they are shown; ``left`` more are not."""

    title: str
    says: str
    prompt: str | None
    truth: str | None
    answers: tuple[Hung, ...]
    group: bool = False
    left: int = 0
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Shown:
    """One table of saved answers as it was read, and what its form cannot show."""

    form: str
    source: str
    files: int
    rows: int
    answers: int
    held_out: int
    groups: int
    prompts: int
    first: float
    last: float
    steps: int
    filtered: bool
    partial: bool
    lacks: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Gallery:
    """Everything that ``rlclinic rollouts`` shows of one run."""

    name: str
    tables: tuple[Shown, ...]
    windows: tuple[tuple[float, float], ...]
    """First and last step of the windows that the figures compare; one where there is one step."""
    figures: tuple[Figure, ...]
    unseen: tuple[tuple[str, str], ...]
    """What could not be looked at, and why."""
    facts: tuple[tuple[str, str], ...]
    """What holds for the whole table, by label."""
    candidates: tuple[str, ...]
    """What pays besides being right, one line each; the words in them stand in three prompts or more."""
    shelves: tuple[Shelf, ...]
    says: str = ""
    """What the shelves hold and by which rule they were chosen."""
    foreign: str = ""
    """What was said of answers that are not those of the log; empty where there are none."""


@dataclass(frozen=True)
class Row:
    """Rows of the table to hang side by side, with why; ``left`` more are not."""

    title: str
    says: str
    rows: tuple[int, ...]
    left: int = 0
    facts: tuple[tuple[str, str], ...] = ()
    group: bool = False
    """They are one group: one step and one prompt, as the title says."""


@dataclass(frozen=True)
class Choice:
    """What to hang, and by which rule it was chosen; nothing means the overview alone."""

    shelves: tuple[Row, ...] = ()
    says: str = ""

    @property
    def rows(self) -> set[int]:
        return {row for one in self.shelves for row in one.rows}


def completed(run: Run) -> Run:
    """``run`` with the steps of its saved answers as the log counts them. Raises BadRequest without saved answers."""
    if not run.rollouts:
        raise BadRequest(
            "saved answers",
            f"none beside {run.name}; the page below says how each trainer saves them",
            hint="rlclinic explain log_completions",
        )
    return vitals.complete(run)


def looked_at(run: Run) -> Rollouts:
    """The table that is shown: the training answers of the largest one, held-out ones where there are no others."""
    table = run.rollouts[0]
    return table.train if len(table.train) else table


def choose(run: Run, asked: Asked) -> Choice:
    """The rows of ``looked_at(run)`` that answer what is asked. Raises BadRequest for a prompt or step that is not there."""
    table = looked_at(run)
    if asked.prompt is not None:
        return _by_prompt(table, asked.prompt, asked.samples, asked.groups)
    if asked.step is not None:
        return _by_step(table, asked.step, asked.samples, asked.groups)
    if asked.worst is not None:
        return _extreme(table, asked.worst, asked.samples, worst=True)
    if asked.best is not None:
        return _extreme(table, asked.best, asked.samples, worst=False)
    if asked.exploits:
        return _exploits(run, table, asked.samples)
    return Choice()


def unread(run: Run, choice: Choice) -> Callable[[Answer], bool] | None:
    """Which answers must be read again for their words; None when those of all chosen rows are at hand.

    Told by step (as the log counts or one off), length and reward, which few answers share.
    """
    table = looked_at(run)
    rows = [row for row in choice.rows if row not in table.texts and np.isfinite(table.characters[row])]
    if not rows:
        return None
    signs = {
        (_same(table.step[row] + moved), int(table.characters[row]), _same(table.reward[row]))
        for row in rows
        for moved in (0.0, 1.0, -1.0)
    }
    lengths = {length for _, length, _ in signs}

    def wanted(one: Answer) -> bool:
        length = len(one.text or "")
        return length in lengths and (_same(one.step), length, _same(one.reward)) in signs

    return wanted


def _same(value: float | None) -> float | None:
    """``value`` as it can be compared: NaN equals nothing, so it becomes None."""
    return None if value is None or not np.isfinite(value) else float(value)


def gallery(run: Run, choice: Choice) -> Gallery:
    """Everything about the saved answers of ``run`` with the rows of ``choice`` hung."""
    table = looked_at(run)
    windows, seen, unseen = figures(run, table) if not choice.says else ((), (), ())
    return Gallery(
        name=run.name,
        foreign=agreement.foreign(run),
        tables=tuple(_shown(one) for one in run.rollouts),
        windows=windows,
        figures=seen,
        unseen=unseen,
        facts=() if choice.says else (*_against_the_log(run), *facts(run, table)),
        candidates=() if choice.says else tuple(_in_lines(run, table)),
        shelves=tuple(_shelf(table, row) for row in choice.shelves),
        says=choice.says,
    )


def _against_the_log(run: Run) -> Iterator[tuple[str, str]]:
    """What was found when the answers were held against the log."""
    yield from (("mind", warn.says) for warn in run.warnings if warn.code.startswith("answers_"))
    yield from (("log", f"{key} {why}") for key, why in run.distrusted.items() if "saved answers" in why)


# -------------------------------------------------------------------------------------------------- choosing


def _by_prompt(table: Rollouts, wanted: str, samples: int, most: int | None) -> Choice:
    if not (table.prompt >= 0).any():
        raise BadRequest("saved answers with prompts", "these hold none", hint="--step STEP")
    if not wanted.strip():
        raise BadRequest("words or the number of a prompt", "an empty --prompt")
    numbers = [int(wanted)] if _is_number(wanted) and (table.prompt == int(wanted)).any() else []
    if not numbers:
        piece = wanted.casefold()
        found = [int(table.prompt[row]) for row, words in table.texts.items() if piece in words.prompt.casefold()]
        numbers = sorted(set(found))
        if not numbers:
            what = "the number of a prompt, or words of one" if _is_number(wanted) else "words of a prompt"
            found_in = f"--prompt {wanted[:60]!r}, which no prompt holds"
            raise BadRequest(what, found_in, hint=f"--prompt NUMBER, 0 to {int(table.prompt.max())}")
    number = numbers[0]
    rows = np.flatnonzero(table.prompt == number)
    groups = _groups(table, rows)
    shelves = [_group(table, group, samples) for group in _spread(groups, most or len(groups))]
    if not groups:
        shelves = [Row("answers", "", tuple(_telling(table, rows, samples)), len(rows) - min(samples, len(rows)))]
    more = f"; {len(numbers) - 1} more prompts hold these words ({_numbers(numbers[1:])})" if len(numbers) > 1 else ""
    rewards = _course(table, rows)
    says = f"prompt {number}: {_many(len(rows), 'answer')} in {_many(len(groups), 'group')}, {rewards}{more}"
    return Choice(tuple(shelves), says + _of(len(groups), most))


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 12


def _by_step(table: Rollouts, step: float, samples: int, most: int | None) -> Choice:
    rows = np.flatnonzero(table.step == step)
    if not len(rows) and table.shift:  # the number that the file gives it
        step += table.shift
        rows = np.flatnonzero(table.step == step)
    if not len(rows):
        step -= table.shift
        near = table.steps[np.argsort(np.abs(table.steps - step))[:3]]
        close = ", ".join(f"{at:g}" for at in sorted(near.tolist()))
        raise BadRequest("a step with saved answers", f"--step {step:g}", hint=f"nearest: {close}" if close else "")
    groups = _groups(table, rows)
    shelves = [_group(table, group, samples) for group in _spread(groups, most or len(groups))]
    if not groups:
        shelves = [Row("answers", "", tuple(_telling(table, rows, samples)), len(rows) - min(samples, len(rows)))]
    in_file = f" of the log, {step - table.shift:g} in the file" if table.shift else ""
    size = f"{_many(len(rows), 'answer')} in {_many(len(groups), 'group')}"
    return Choice(tuple(shelves), f"step {step:g}{in_file}: {size}{_of(len(groups), most)}")


def _extreme(table: Rollouts, many: int, samples: int, *, worst: bool) -> Choice:
    """The single answers at one end of the reward, one for each prompt, and what else can be worst."""
    shelves: list[Row] = []
    known = np.flatnonzero(np.isfinite(table.reward))
    if len(known):
        order = known[np.argsort(table.reward[known] if worst else -table.reward[known], kind="stable")]
        level = float(table.reward[order[0]])
        tied = int((table.reward[known] == level).sum())
        rows = tuple(_one_each(table, _latest_first(table, order, tied), many))
        have = f"{tied} answers have" if tied > 1 else "one answer has"
        left = max(tied - len(rows), 0)
        shelves.append(
            Row(f"{'lowest' if worst else 'highest'} reward", f"{have} {level:.4g}; the latest first", rows, left)
        )
    if worst and table.dead.any():
        dead = np.flatnonzero(table.dead)
        recent = dead[np.argsort(-np.nan_to_num(table.group_step[dead]), kind="stable")]
        for group in recent[: min(many, GROUPS // 2)].tolist():
            row = _group(table, group, samples)
            shelves.append(replace(row, title=f"no signal: {row.title}"))
    off = np.where(np.isfinite(table.worst_mismatch), table.worst_mismatch, table.mismatch)
    if worst and np.isfinite(off).any():
        order = np.argsort(-np.nan_to_num(off, nan=-np.inf), kind="stable")[:many]
        says = "the largest difference of log-probability between trainer and sampler at one token"
        shelves.append(Row("most mismatched", says, tuple(int(row) for row in order if np.isfinite(off[row]))))
    by = "by reward, then groups without a signal, then by mismatch" if worst else "by reward"
    return Choice(tuple(shelves), f"the {'worst' if worst else 'best'} answers, {by}")


def _exploits(run: Run, table: Rollouts, samples: int) -> Choice:
    """A shelf for each candidate with its counts, its effect, its course and examples."""
    found, mine = _candidates(run, table)
    shelves = []
    for one in found:
        with_it, without = one.high_with + one.low_with, one.high_without + one.low_without
        length = one.what.partition(" ")[0] if one.kind == "length" else ""
        which = f"{length} than their group earn above its mean" if length else "with it"
        others = "others" if length else "without"
        earn = "" if length else f"; paid is {one.pays}"
        pays = f"{one.high_with} of {with_it} {which}, {one.high_without} of {without} {others}"
        pairs = [("paid", f"{pays} ({one.paid:.0%} against {one.paid_without:.0%}){earn}")]
        if length:
            twice = "twice" if length == "longer" else "half"
            pairs.append(("effect", f"{one.effect * np.log(2.0) * one.span:+.3g} of reward for {twice} the length"))
        elif not np.isnan(one.effect):
            tested = "" if np.isnan(one.q) else f", q = {one.q:.2g} after correction for all that was looked at"
            total = one.pays.startswith("reward ") or "bonus" in one.evidence
            units = f"{one.effect * one.span:+.3g} of reward" if total else f"{one.effect:+.0%} of the task's part"
            alike = "equally right" if "bonus" in one.evidence else "of equal length, some with it and some without"
            pairs.append(("effect", f"{units} between answers to one prompt that are {alike}{tested}"))
        spans = (
            f"in {len(one.course)} windows of steps {one.windows[0][0]:g} to {one.windows[-1][1]:g}"
            if one.windows
            else ""
        )
        pairs.append(("course", f"{', '.join(f'{share:.0%}' for share in one.course)} of answers {spans}"))
        if one.onset is not None:
            pairs.append(("since", f"step {one.onset.step:g} ({one.onset.low:g} to {one.onset.high:g})"))
        pairs.append(("because", one.why))
        rows = tuple(mine(row) for row in one.rows[:samples])
        shelves.append(
            Row(one.what, f"{one.severity.label}; in answers to {one.prompts} prompts", rows, 0, tuple(pairs))
        )
    says = (
        f"what pays besides being right, {len(shelves)} found in the words of {found[0].answers} answers"
        if found
        else ""
    )
    return Choice(tuple(shelves), says or "nothing was found that pays besides being right")


def _candidates(run: Run, table: Rollouts) -> tuple[tuple[Candidate, ...], Callable[[int], int]]:
    """The candidates for exploits, and what turns their rows into rows of ``table``."""
    whole = exploits.table_of(run)
    if whole is None or (whole is not table and whole.train is not table):
        return (), int
    found = exploits.candidates(run)
    place = np.arange(len(whole)) if whole is table else np.cumsum(~whole.held_out) - 1
    return found, lambda row: int(place[row])


def _in_lines(run: Run, table: Rollouts) -> Iterator[str]:
    """One line for each candidate that says something; the others are counted."""
    found, _ = _candidates(run, table)
    if not found and table.texts and np.isfinite(table.reward).any():
        yield f"nothing was found in the words of {_many(len(table.texts), 'answer')}"
    grave = [one for one in found if one.severity > Severity.INFO]
    for one in grave:
        with_it = f"paid {one.paid:.0%} with it, {one.paid_without:.0%} without"
        share = f"{one.first:.0%} of answers in the first third of steps, {one.last:.0%} in the last"
        says = f"{one.what} in {share}, {with_it} ({one.pays})"
        own = one.kind == "length" or "bonus" in one.evidence
        yield f"{one.severity.label}: {one.in_words if own else says}: {one.why}"
    added = [one for one in found if one.severity <= Severity.INFO and "bonus" in one.evidence]
    yield from (f"{one.severity.label}: {one.in_words}: {one.why}" for one in added)
    if len(grave) + len(added) < len(found):
        weaker = len(found) - len(grave) - len(added)
        yield f"{weaker} weaker: they go along with reward, and nothing more is known (--exploits)"


def _latest_first(table: Rollouts, order: Ints, tied: int) -> Ints:
    late = np.argsort(-np.nan_to_num(table.step[order[:tied]]), kind="stable")
    return np.concatenate([order[:tied][late], order[tied:]])


def _one_each(table: Rollouts, order: Ints, many: int) -> list[int]:
    """The first ``many`` rows of ``order`` with no prompt twice, as long as there are other prompts."""
    rows: list[int] = []
    met: set[int] = set()
    for row in order[:20_000].tolist():
        prompt = int(table.prompt[row])
        if prompt < 0 or prompt not in met:
            rows.append(row)
            met.add(prompt)
        if len(rows) >= many:
            break
    return rows


def _groups(table: Rollouts, rows: Ints) -> list[int]:
    """The groups of ``rows`` by step, then as they are met."""
    met = [group for group in dict.fromkeys(table.group[rows].tolist()) if group >= 0]
    return sorted(met, key=lambda group: float(np.nan_to_num(table.group_step[group], nan=np.inf)))


def _group(table: Rollouts, group: int, samples: int) -> Row:
    rows = table.members(group)
    shown = _telling(table, rows, samples)
    step, prompt = table.step[rows[0]], int(table.prompt[rows[0]])
    title = (f"step {step:g}" if np.isfinite(step) else "no step") + (f", prompt {prompt}" if prompt >= 0 else "")
    return Row(
        title, f"{_many(len(rows), 'answer')}, {_course(table, rows)}", tuple(shown), len(rows) - len(shown), group=True
    )


def _telling(table: Rollouts, rows: Ints, samples: int) -> list[int]:
    """``samples`` of ``rows`` that differ most: the highest and the lowest reward first, then the middle, no text twice."""
    order = rows[np.argsort(-np.nan_to_num(table.reward[rows], nan=-np.inf), kind="stable")]
    chosen: list[int] = []
    for place in _spread(range(len(order)), len(order)):
        row = int(order[place])
        if table.answer[row] < 0 or not any(table.answer[row] == table.answer[one] for one in chosen):
            chosen.append(row)
        if len(chosen) >= samples:
            break
    return sorted(chosen, key=lambda row: (-np.nan_to_num(table.reward[row], nan=-np.inf), row))


def _spread(items: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of ``items``: both ends first, then what halves the widest gaps."""
    n = len(items)
    if n <= most and not isinstance(items, range):
        return list(items)
    places = list(dict.fromkeys(_halving(n)))[:most]
    return [items[place] for place in (places if isinstance(items, range) else sorted(places))]


def _halving(n: int) -> Iterator[int]:
    if n:
        yield 0
        yield n - 1
    parts = 2
    while parts < 2 * n:
        for k in range(1, parts, 2):
            yield k * (n - 1) // parts
        parts *= 2
    yield from range(n)


def _course(table: Rollouts, rows: Ints) -> str:
    rewards = table.reward[rows]
    known = rewards[np.isfinite(rewards)]
    if not len(known):
        return "no reward"
    low, high = float(known.min()), float(known.max())
    distinct = len(np.unique(table.answer[rows]))
    texts = f", {distinct} different texts" if distinct > 1 else ", one and the same text"
    texts = texts if (table.answer[rows] >= 0).all() and distinct < len(rows) else ""
    return (
        f"all rewards {low:.4g}" if low == high else f"rewards {low:.4g} to {high:.4g}, mean {known.mean():.3g}"
    ) + texts


def _of(groups: int, most: int | None) -> str:
    return "" if most is None or groups <= most else f"; {most} of them, spread over the list (--all shows every group)"


def _many(many: int, one: str) -> str:
    return f"{many} {one}" + "s" * (many != 1)


def _numbers(numbers: Sequence[int], most: int = 8) -> str:
    return ", ".join(map(str, numbers[:most])) + (", ..." if len(numbers) > most else "")


# --------------------------------------------------------------------------------------------------- hanging


def _shelf(table: Rollouts, row: Row) -> Shelf:
    texts = [table.texts[one] for one in row.rows if one in table.texts]
    one = row.group and bool(texts)
    answers = tuple(replace(hang(table, place, asked=not one), times=_times(table, place, row)) for place in row.rows)
    copies = sum(answer.times - 1 for answer in answers)
    return Shelf(
        title=row.title,
        says=row.says,
        prompt=hidden(texts[0].prompt) if one and texts[0].prompt else None,
        truth=hidden(texts[0].truth) if one and texts[0].truth else None,
        answers=answers,
        group=row.group,
        left=max(row.left - copies, 0),
        facts=row.facts,
    )


def _times(table: Rollouts, place: int, row: Row) -> int:
    """How many answers of the group are the text in ``place``."""
    if not row.group or table.answer[place] < 0:
        return 1
    return int((table.answer[table.members(int(table.group[place]))] == table.answer[place]).sum())


def _shown(table: Rollouts) -> Shown:
    steps = table.steps
    return Shown(
        form=table.form,
        source=table.source,
        files=table.files,
        rows=table.rows,
        answers=len(table),
        held_out=int(table.held_out.sum()),
        groups=table.groups,
        prompts=len(np.unique(table.prompt[table.prompt >= 0])),
        first=float(steps[0]) if len(steps) else float("nan"),
        last=float(steps[-1]) if len(steps) else float("nan"),
        steps=len(steps),
        filtered=table.filtered,
        partial=table.partial,
        lacks=tuple(_lacks(table)),
        notes=table.warnings,
    )


def _lacks(table: Rollouts) -> Iterator[str]:
    """What the rows of ``table`` do not say at all, in words."""
    told = {
        "words of answers": np.isfinite(table.characters),
        "rewards": np.isfinite(table.reward),
        "parts of the reward": np.full(1, bool(table.parts)),
        "groups": table.group >= 0,
        "numbers of tokens": np.isfinite(table.tokens),
        "how an answer ended": table.ending > 0,
        "advantages": np.isfinite(table.advantage),
        "log-probabilities of both sides": np.isfinite(table.mismatch),
        "policy versions": np.isfinite(table.lag),
    }
    yield from (what for what, known in told.items() if not known.any())
