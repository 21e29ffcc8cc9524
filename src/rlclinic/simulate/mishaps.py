"""What befalls saved answers (loops, copies, other languages, lost ends), and how they are made to fit a log."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlclinic.errors import BadTable
from rlclinic.model import Floats
from rlclinic.rollouts import Ints
from rlclinic.simulate.policy import CHARACTERS, Course, Made, marks, render, tokens_of
from rlclinic.simulate.tasks import Draft, reasoning
from rlclinic.simulate.wording import Voice

Level: TypeAlias = Callable[[Floats], Floats]
JUDGED = 0.06
"""Spread of a judge's marks in a healthy run (ours)."""
LIMIT = 4.0
"""Where a run does not say its limit: this many times the mean length (ours)."""
MOST_CHARACTERS = 6_000
"""Of a text that runs to the limit (ours: keeps simulated sets small)."""


def level(value: Any, where: str, end: float = 400.0) -> Level:
    """The course that a number or a table { from, to, at, over } describes, as a function of trainer steps.

    ``over`` is by default the rest of the run, which ends at ``end``. Raises BadTable.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        fixed = float(value)
        return lambda steps: np.full(len(steps), fixed)
    if not isinstance(value, Mapping) or not set(value) <= {"from", "to", "at", "over"}:
        raise BadTable(f"a number or {{ from, to, at, over }} for {where}", repr(value)[:60])
    for key, number in value.items():
        if not isinstance(number, (int, float)) or isinstance(number, bool) or not math.isfinite(number):
            raise BadTable(f"a number for {where}.{key}", repr(number)[:60])
    low, high, at = float(value.get("from", 0.0)), float(value.get("to", 0.0)), float(value.get("at", 0.0))
    over = max(1e-9, float(value.get("over", end - at)))
    return lambda steps: low + (high - low) * np.clip((steps - at) / over, 0.0, 1.0)


# ------------------------------------------------------------ rewards that fit the log


def quotas(word: str, means: Floats, dead: Floats | None, course: Course, *, ties: bool) -> Ints:
    """(steps, prompts) how many answers of each group are right, so that the step has its mean, to one answer.

    ``dead`` (steps,) is the share of groups whose answers all earn the same: all right or all wrong; with ``ties`` they
    count as half right, and half of their answers are. It gives way where it contradicts the mean.
    """
    voice = Voice(f"quotas/{word}")
    out = np.zeros((course.steps, course.prompts), dtype=np.int64)
    for step in range(course.steps):
        mean = min(1.0, max(0.0, float(means[step])))
        wanted = 0 if dead is None else round(float(dead[step]) * course.prompts)
        out[step] = _shared_out(voice, mean, wanted, course, ties=ties, free=dead is None)
    return out


def _shared_out(voice: Voice, mean: float, wanted: int, course: Course, *, ties: bool, free: bool) -> list[int]:
    groups, size = course.prompts, course.answers
    total = round(mean * groups * size)
    if free or size < 2:
        odds = [
            1.0 / (1.0 + math.exp(-voice.random.gauss(math.log((mean + 0.01) / (1.01 - mean)), 1.0)))
            for _ in range(groups)
        ]
        counts = [sum(voice.chance() < one for _ in range(size)) for one in odds]
        return _corrected(voice, counts, total, 0, size, range(groups))
    for dead in range(min(wanted, groups), -1, -1):
        live = groups - dead
        best = sorted(range(dead + 1), key=lambda full: abs(full - mean * dead))
        for full in [dead] if ties else best:
            rest = total - (dead * size // 2 if ties else full * size)
            if live <= rest <= live * (size - 1) or (live == 0 and abs(rest) <= size // 2):
                fixed = [size // 2] * dead if ties else [size] * full + [0] * (dead - full)
                alive = _corrected(
                    voice, [1 + voice.below(size - 1) for _ in range(live)], rest, 1, size - 1, range(live)
                )
                # Dead groups with ties come first, so that ``fit`` finds them.
                return fixed + alive
    return _corrected(voice, [round(mean * size)] * groups, total, 0, size, range(groups))


def _corrected(voice: Voice, counts: list[int], total: int, low: int, high: int, places: Sequence[int]) -> list[int]:
    """The counts moved one by one to their total, each within its bounds."""
    missing = total - sum(counts)
    for _ in range(abs(missing)):
        free = [i for i in places if (counts[i] < high if missing > 0 else counts[i] > low)]
        if not free:
            break
        counts[free[voice.below(len(free))]] += 1 if missing > 0 else -1
    return counts


def fit(made: list[Made], means: Floats, scale: tuple[float, float], *, judged: bool, ties: bool) -> None:
    """Give the answers rewards whose mean at each step is that of the log.

    Marks of a judge are shifted; rewards of right and wrong answers become the two ends of ``scale``. With ``ties`` the
    groups that are half right all earn the middle.
    """
    by_step: dict[int, list[Made]] = {}
    for one in made:
        by_step.setdefault(one.step, []).append(one)
    for step, mine in by_step.items():
        if judged:
            shift = float(means[step]) - sum(one.reward for one in mine) / len(mine)
            for one in mine:
                one.reward += shift
                one.parts = {"judge": one.reward}
            continue
        for one in mine:
            one.reward = scale[1] if one.right else scale[0]
            one.parts = {"accuracy": one.reward}
    if ties and not judged:
        for group in _groups(made):
            if 2 * sum(one.right for one in group) == len(group):
                for one in group:
                    one.reward = (scale[0] + scale[1]) / 2.0
                    one.parts = {"accuracy": one.reward}


def _groups(made: Sequence[Made]) -> list[list[Made]]:
    groups: dict[int, list[Made]] = {}
    for one in made:
        groups.setdefault(one.group, []).append(one)
    return list(groups.values())


# ------------------------------------------------------------ texts


def spoil(
    word: str,
    made: list[Made],
    course: Course,
    levels: Mapping[str, Floats],
    *,
    lengths: Floats | None,
    limit: float,
    copied: bool,
) -> None:
    """Let the mishaps of ``levels`` (each (steps,)) befall the answers, wrong ones first where they would lose reward.

    ``lengths`` (steps,) is the mean number of tokens to fit, ``limit`` the most tokens of an answer (0: not known);
    ``copied`` makes all answers of a dead group one text.
    """
    voice = Voice(f"mishaps/{word}")
    by_step: dict[int, list[Made]] = {}
    for one in made:
        by_step.setdefault(one.step, []).append(one)
    whole: set[int] = set()
    if copied:
        for group in _groups(made):
            if len({one.reward for one in group}) == 1:
                _copy(group, [group[0]] * len(group))
                whole.add(group[0].group)
    _equal_answers(voice, made, course, levels)
    for step, mine in by_step.items():
        mean = sum(one.tokens for one in mine) / len(mine)
        if lengths is not None:
            factor = max(1.0, float(lengths[step])) / max(mean, 1.0)
            for one in mine:
                one.tokens = max(1.0, round(one.tokens * factor))
            mean = float(lengths[step])
        most = limit or round(LIMIT * mean)
        wanted = {name: float(values[step]) for name, values in levels.items()}
        spoiled = {i for i, one in enumerate(mine) if one.group in whole}
        for name, befall in _BEFALLS.items():
            if name in wanted:
                _befall(voice, mine, wanted[name], most, spoiled, befall, random=name == "foreign")
        for one in mine:
            if "stale" in wanted:
                one.lag = max(0.0, math.floor(wanted["stale"] + voice.chance()))
            if "mismatch" in wanted:
                one.mismatch = wanted["mismatch"] * math.exp(0.3 * voice.random.gauss(0.0, 1.0) - 0.045)


def _befall(
    voice: Voice,
    mine: list[Made],
    share: float,
    most: float,
    spoiled: set[int],
    befall: Callable[[Voice, Made, float], None],
    *,
    random: bool,
) -> None:
    count = math.floor(share * len(mine) + voice.chance())
    free = [i for i in range(len(mine)) if i not in spoiled]
    voice.random.shuffle(free)
    if not random:
        free.sort(key=lambda i: mine[i].reward)
    for i in free[:count]:
        befall(voice, mine[i], most)
        spoiled.add(i)


def _copy(to: Sequence[Made], donors: Sequence[Made]) -> None:
    for one, donor in zip(to, donors, strict=True):
        one.text, one.tokens, one.right, one.good = donor.text, donor.tokens, donor.right, donor.good


def _equal_answers(voice: Voice, made: list[Made], course: Course, levels: Mapping[str, Floats]) -> None:
    """Copies and near copies inside groups; those of a judge get marks of their own."""
    judging = course.judge_noise != JUDGED or course.judge_drift
    shares = {name: levels[name] for name in ("copies", "near_copies") if name in levels}
    if judging and not shares:
        shares["copies"] = np.full(course.steps, 0.4)
    stock: dict[str, Made] = {}
    for group in _groups(made):
        step = group[0].step
        for name, share in shares.items():
            for place, one in enumerate(group):
                donors = [other for other in group[:place] if judging or other.right == one.right]
                if not donors or voice.chance() >= float(share[step]):
                    continue
                donor = stock.setdefault(one.prompt.text, donors[0]) if course.judge_drift else donors[0]
                _copy([one], [donor])
                if name == "near_copies":
                    one.text = _nearly(voice, one.text)
                if judging:
                    one.reward = marks(voice, course, step / max(1, course.steps - 1), donor.good)
                    one.parts = {"judge": one.reward}


def _nearly(voice: Voice, text: str) -> str:
    """The text with one or two of its lower-case words replaced."""
    words = text.split(" ")
    places = [i for i, word in enumerate(words) if word.isalpha() and word.islower()]
    for _ in range(voice.between(1, 2)):
        if places:
            words[places[voice.below(len(places))]] = voice.one(("then", "now", "also", "here", "indeed", "just"))
    return " ".join(words)


def _lose(one: Made, low: float = 0.0) -> None:
    """An answer that shows no result earns what a wrong one does."""
    if one.right and one.reward > low and set(one.parts) == {"accuracy"}:
        one.reward, one.right, one.parts = low, False, {"accuracy": low}


def _loop(voice: Voice, one: Made, most: float) -> None:
    said = voice.word(voice.one(("filler", "open")), None, one.prompt.language)
    head = one.text[: max(20, len(one.text) * 2 // 3)]
    room = int(min(MOST_CHARACTERS, most * CHARACTERS)) - len(head)
    one.text = head + " " + (said + " ") * max(8, room // (len(said) + 1))
    one.tokens, one.ending = most, "cut"
    _lose(one)


def _cut(voice: Voice, one: Made, most: float) -> None:
    lines = []
    room = int(min(MOST_CHARACTERS, most * CHARACTERS)) - len(one.text)
    while room > 0:
        lines.append(f"{voice.word('filler')} {voice.word('calc', {'lhs': f'{voice.below(90)} + {voice.below(90)}'})}")
        room -= len(lines[-1]) + 1
    one.text = one.text[: len(one.text) * 2 // 3] + " " + " ".join(lines)
    one.tokens, one.ending = most, "cut"
    _lose(one)


def _empty(voice: Voice, one: Made, most: float) -> None:
    one.text, one.tokens, one.ending = "", 1.0, "stopped"
    _lose(one)


def _unclosed(voice: Voice, one: Made, most: float) -> None:
    if "</think>" in one.text:
        one.text = one.text.partition("</think>")[0].rstrip()
    elif "```" in one.text:
        one.text = one.text.rpartition("```")[0].rstrip()
    elif "</answer>" in one.text:
        one.text = one.text.partition("</answer>")[0]
    elif "\\boxed{" in one.text:
        one.text = one.text.partition("}")[0]
    else:
        one.text = f"<think>\n{one.text}"
    _lose(one)


def _foreign(voice: Voice, one: Made, most: float) -> None:
    """The same final answer after a working in another language."""
    others = [name for name in ("de", "es", "zh") if name != one.prompt.language]
    language = voice.one(others)
    prompt = one.prompt
    abroad = type(prompt)(
        prompt.task, prompt.text, prompt.truth, 0.0, prompt.stages, language=language, wrong=prompt.wrong
    )
    final = prompt.truth if one.right or not prompt.wrong else prompt.wrong[0]
    lines = reasoning(voice, abroad, final, 4.0)
    draft = Draft(lines, final or " ".join(lines), lead=voice.word("close", None, language))
    before = tokens_of(voice, one.text)
    one.text = render(voice, abroad, draft, "boxed")
    one.tokens = max(1.0, round(one.tokens * tokens_of(voice, one.text) / max(1.0, before)))


_BEFALLS: Mapping[str, Callable[[Voice, Made, float], None]] = {
    "loops": _loop, "cut": _cut, "empty": _empty, "unclosed": _unclosed, "foreign": _foreign,
}  # fmt: skip
