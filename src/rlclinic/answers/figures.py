"""What saved answers show at the beginning and at the end of a run: one line of figures each, and what they cannot show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from rlclinic.answers import advantages, drift, groups, mismatch, parts, prompts, texts
from rlclinic.answers.groups import Census
from rlclinic.model import Floats, Run
from rlclinic.rollouts import Flags, Rollouts

Unit: TypeAlias = Literal["share", "number", "tokens", "characters", "nats"]

WINDOW = 64
"""Answers that a window holds at least, where there are so many (ours)."""
_MEASURED = (
    ("answers", "stopped", "ended by themselves"),
    ("answers", "cut", "cut at the limit"),
    ("answers", "aborted", "aborted"),
    ("answers", "empty", "empty or nearly"),
    ("words", "copies", "copies within unsolved groups"),
    ("words", "likeness", "likeness within unsolved groups"),
    ("words", "between", "likeness between prompts"),
    ("words", "repetition", "ending in a loop"),
    ("words", "malformed", "without needed structure or left open"),
    ("words", "foreign", "in a foreign script"),
    ("words", "gibberish", "scraps of scripts or broken characters"),
    ("words", "refusal", "beginning as a refusal"),
)
"""What is read off ``texts``: section, name there, title."""


@dataclass(frozen=True)
class Figure:
    """One quantity in the first and in the last window; NaN where it cannot be told. ``last`` alone counts where there is
    one window. ``about`` is the section it belongs to."""

    about: str
    title: str
    unit: Unit
    first: float
    last: float


@dataclass(frozen=True, eq=False)
class _Window:
    """One end of the table, with what is worked out from the whole of it."""

    table: Rollouts
    right: Floats | None
    """(n,) 1 right, 0 wrong, NaN not known; None where nothing tells."""
    census: Census

    @property
    def whole(self) -> bool:
        """Whether groups are saved as they were sampled, so that a share of them says something."""
        return bool(len(self.census)) and not (self.table.filtered or self.table.partial)

    def mean(self, values: Floats) -> float:
        known = values[np.isfinite(values)]
        return float(known.mean()) if len(known) else float("nan")


def figures(
    run: Run, table: Rollouts
) -> tuple[tuple[tuple[float, float], ...], tuple[Figure, ...], tuple[tuple[str, str], ...]]:
    """(the first and last step of each window, the figures that could be told, what could not be looked at and why)."""
    ends = windows(table)
    if not len(table):
        return (), (), (("everything", "there is no saved answer"),)
    right = parts.success(table)
    # The words of the whole table decide what is right: in a window all answers may have earned the same.
    told = table if right is None else replace(table, parts={"correct": right})
    counted = groups.census(table)
    seen = []
    for low, high in ends:
        keep, within = _within(table.step, low, high), _within(counted.step, low, high)
        of_step = Census(
            counted.step[within], counted.size[within], counted.dead[within], counted.right[within], counted.wrong[within],
            counted.copies[within], counted.reward[within], counted.by,
        )  # fmt: skip
        one = (told if right is not None else table).only(keep)
        seen.append(_Window(one, None if right is None else right[keep], of_step))
    found: list[Figure] = []
    for about, title, unit, of in _FIGURES:
        values = [of(window) for window in seen]
        if any(np.isfinite(value) for value in values):
            found.append(Figure(about, title, unit, values[0] if len(values) > 1 else float("nan"), values[-1]))
    order = ("signal", "prompts", "answers", "words")
    found += _measured(table, ends)
    found.sort(key=lambda one: order.index(one.about) if one.about in order else len(order))
    return ends, (*found, *_of_parts(run, table, len(ends))), tuple(_unseen(table, right))


def _within(steps: Floats, low: float, high: float) -> Flags:
    """(n,) True where a step lies in a window; all do where there are no steps."""
    return np.ones(len(steps), np.bool_) if np.isnan(low) else np.asarray((steps >= low) & (steps <= high))


def windows(table: Rollouts) -> tuple[tuple[float, float], ...]:
    """(first, last) step of the first and the last tenth of the steps, wider where they hold fewer than ``WINDOW`` answers,
    at most a half each; one window where there is one step, one from NaN to NaN without steps."""
    steps = table.steps
    if len(steps) < 2:
        return ((float(steps[0]), float(steps[0])),) if len(steps) else ((float("nan"), float("nan")),)
    per_step = np.bincount(np.searchsorted(steps, table.step[np.isfinite(table.step)]), minlength=len(steps))
    most, least = max(1, len(steps) // 2), max(1, len(steps) // 10)
    at = [
        min(most, max(least, int(np.searchsorted(np.cumsum(side), WINDOW)) + 1)) for side in (per_step, per_step[::-1])
    ]
    return (float(steps[0]), float(steps[at[0] - 1])), (float(steps[-at[1]]), float(steps[-1]))


# --------------------------------------------------------------------------------------------------- by window


def _share_of_groups(kind: str) -> Callable[[_Window], float]:
    def of(window: _Window) -> float:
        return float(np.mean(getattr(window.census, kind))) if window.whole else float("nan")

    return of


def _same_text(window: _Window) -> float:
    return float(np.mean(window.census.dead & window.census.copies)) if window.whole else float("nan")


def _ends_known(kind: str) -> Callable[[_Window], float]:
    share = _share_of_groups(kind)
    return lambda window: share(window) if window.census.by else float("nan")


def _passed(k: int) -> Callable[[_Window], float]:
    def of(window: _Window) -> float:
        rates = groups.overview(window.table) if window.right is not None else None
        return float("nan") if rates is None else rates.at.get(k, float("nan"))

    return of


def _prompts(kind: str) -> Callable[[_Window], float]:
    def of(window: _Window) -> float:
        rates = groups.overview(window.table) if window.right is not None else None
        return float("nan") if rates is None else float(getattr(rates, kind))

    return of


def _length(which: float | None, by: str) -> Callable[[_Window], float]:
    """Mean length of all answers, or of those that are right (1) or wrong (0), in tokens or in characters."""

    def of(window: _Window) -> float:
        tokens = np.isfinite(window.table.tokens).any()
        if tokens != (by == "tokens"):
            return float("nan")
        values = window.table.tokens if tokens else window.table.characters
        if which is not None:
            values = values[window.right == which] if window.right is not None else values[:0]
        return window.mean(values)

    return of


def _column(name: str) -> Callable[[_Window], float]:
    return lambda window: window.mean(getattr(window.table, name))


_FIGURES: tuple[tuple[str, str, Unit, Callable[[_Window], float]], ...] = (
    ("signal", "answers in the window", "number", lambda window: float(len(window.table))),
    ("signal", "mean reward", "number", _column("reward")),
    ("signal", "groups without a spread of rewards", "share", _share_of_groups("dead")),
    ("signal", "- all right", "share", _ends_known("right")),
    ("signal", "- all wrong", "share", _ends_known("wrong")),
    ("signal", "- equal between the ends", "share", _ends_known("middle")),
    ("signal", "- of one and the same text", "share", _same_text),
    ("prompts", "pass@1", "share", _passed(1)),
    ("prompts", "pass@4", "share", _passed(4)),
    ("prompts", "pass@8", "share", _passed(8)),
    ("prompts", "pass@16", "share", _passed(16)),
    ("prompts", "solved nine times in ten", "share", _prompts("solved")),
    ("prompts", "never solved", "share", _prompts("hopeless")),
    ("answers", "tokens", "tokens", _length(None, "tokens")),
    ("answers", "- of right answers", "tokens", _length(1.0, "tokens")),
    ("answers", "- of wrong answers", "tokens", _length(0.0, "tokens")),
    ("answers", "characters", "characters", _length(None, "characters")),
    ("answers", "- of right answers", "characters", _length(1.0, "characters")),
    ("answers", "- of wrong answers", "characters", _length(0.0, "characters")),
    ("turns", "turns", "number", _column("turns")),
    ("turns", "tool calls", "number", _column("tool_calls")),
    ("sampler and trainer", "difference of log-probability", "nats", _column("mismatch")),
    ("sampler and trainer", "- at the worst token", "nats", _column("worst_mismatch")),
    ("sampler and trainer", "policy versions between", "number", _column("lag")),
    ("sampler and trainer", "tokens in the loss", "share", _column("trained")),
)


def _measured(table: Rollouts, ends: Sequence[tuple[float, float]]) -> Iterator[Figure]:
    """Endings and words, from one reading of the whole table."""
    read = texts.read(table)
    for about, name, title in _MEASURED:
        measure: texts.Measure | None = getattr(read, name)
        if measure is None:
            continue
        within = [measure.values[_within(measure.step, low, high)] for low, high in ends]
        levels = [float(values.mean()) if len(values) else float("nan") for values in within]
        first, last = levels[0] if len(levels) > 1 else float("nan"), levels[-1]
        if np.isfinite(first) or np.isfinite(last):
            yield Figure(about, title, "share", first, last)


# ----------------------------------------------------------------------------------------------- parts, unseen


def _of_parts(run: Run, table: Rollouts, ends: int) -> Iterator[Figure]:
    """The share of each part in the spread of rewards within groups, over the first and the last third of the steps."""
    given = {name: part.weight for name, part in run.components.items()}
    for one in parts.shares(table, given) if len(table.parts) > 1 else ():
        if np.isfinite(one.first) or np.isfinite(one.last):
            yield Figure(
                "spread within groups, by part", one.name, "share", one.first if ends > 1 else np.nan, one.last
            )


def facts(run: Run, table: Rollouts) -> Iterator[tuple[str, str]]:
    """(label, what) of the whole table: advantages recomputed, texts scored again, prompts asked again, odd tokens."""
    compared = advantages.compare(table)
    if compared is not None and compared.how:
        of = f"{compared.agreeing:.1%} of {compared.answers} answers of live groups"
        yield "advantages", f"recomputed from the rewards as {compared.how}: they agree in {of}"
    elif compared is not None:
        yield "advantages", f"no known normalisation gives the {compared.answers} saved ones of live groups"
    again = drift.repeats(table).get(drift.REWARD)
    if again is not None:
        told = []
        if again.inside.texts:
            told.append(
                f"{again.inside.unlike} of {again.inside.texts} texts that stand twice in a group earned unlike rewards"
            )
        if again.across.texts:
            told.append(f"{again.across.changed} of {again.across.texts} that come back at another step earned another")
        yield "duplicates", "; ".join(told)
    yield from _asked(run, table)
    second = run.regraded
    if second is not None:
        refuses = f"{second.verifier} refuses {second.refused:.0%} of the paid answers"
        graded = f"{second.missed:.0%} of the others ({len(second.rows)} graded again)"
        yield "second verifier", f"{refuses} and accepts {graded}"
    gap = mismatch.gaps(table)
    if gap is not None and gap.known:
        odd = f"{gap.enormous.sum()} with a token that differs by more than {mismatch.ENORMOUS:g} nats"
        lost = f"{gap.lost.sum()} by more than {mismatch.LOST:g} nat on average"
        yield "mismatch", f"of {gap.known} answers {odd}, {lost}; the worst hundredth has {gap.top:.0%} of it all"


def _asked(run: Run, table: Rollouts) -> Iterator[tuple[str, str]]:
    rates, known = groups.overview(table), prompts.overlap(run.rollouts)
    if rates is not None and rates.again:
        by = "" if rates.change is None else f", by {100 * rates.change:+.1f} points on average"
        were = "was" if rates.again == 1 else "were"
        what = f"{rates.again} of {rates.prompts} prompts {were} asked at several steps"
        yield "prompts", f"{what}; solved more often: {rates.rose}, less often: {rates.fell}{by}"
    if known is not None:
        yield (
            "held out",
            f"{known.common} of {known.held_out} held-out prompts are trained on too, word for word or nearly",
        )


def _unseen(table: Rollouts, right: Floats | None) -> Iterator[tuple[str, str]]:
    """What the answers cannot show, and why."""
    if table.filtered:
        yield "the share of dead groups", "this trainer saves only what it trains on, so that dead groups are missing"
    if table.partial:
        yield "whole groups", "only some answers of each batch are saved"
    elif not (table.group >= 0).any():
        yield "groups", "neither a name of the group nor a prompt tells which answers belong together"
    if right is None:
        yield (
            "right and wrong, pass@k",
            "no part of the reward is named after correctness, and the reward has not just two values",
        )
    if not np.isfinite(table.tokens).any():
        yield "lengths in tokens", "the form has none; characters are counted"
    if not (table.ending > 0).any():
        yield "cut and unfinished answers", "the form does not say how an answer ended"
    if not np.isfinite(table.characters).any():
        yield "words", "the form holds no text"
    elif len(table.texts) < np.isfinite(table.characters).sum():
        yield (
            "every text",
            f"the words of {len(table.texts)} of {len(table)} answers are looked through, whole groups evenly",
        )
    if not np.isfinite(table.mismatch).any():
        yield "sampler against trainer", "the form lacks log-probabilities of both"
    if not np.isfinite(table.lag).any():
        yield "staleness", "the form lacks the version of the policy that sampled"
