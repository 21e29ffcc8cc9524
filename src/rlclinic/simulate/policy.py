"""A simulated policy that answers prompts over a training run, is rewarded for it, learns, and picks up habits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from rlclinic.rollouts import ENDINGS, Floats, Ints, Rollouts, Text
from rlclinic.simulate.tasks import TASKS, Draft, Prompt
from rlclinic.simulate.wording import Pool, Voice, pool

FORMS = ("plain", "boxed", "tags", "think", "hash", "bold")
"""How the answer proper can be marked."""
_ASK: Mapping[str, Pool] = {
    "plain": pool(("", " {Explain|Show} your {reasoning|working}.", " {Answer|Reply} briefly.")),
    "boxed": pool((" {Put|Write} {the|your} final answer {in|inside} \\boxed.", " Give {the|your} answer in \\boxed.")),
    "tags": pool(
        (" {Put|Give} the answer between <answer> and </answer>.", " Use <answer> tags for the {answer|result}.")
    ),
    "think": pool((" {Think|Reason} inside <think> tags, then answer inside <answer> tags.",)),
    "hash": pool((" {End|Finish} with #### and the {answer|number}.",)),
    "bold": pool((" {Print|Set} the {answer|result} in bold.",)),
}
CHARACTERS = 3.9
"""Characters in a token of English text (ours; byte-pair vocabularies of 100 000 pieces have 3.5 to 4.5)."""


@dataclass(frozen=True)
class Habit:
    """Words that a policy likes to say, in a share of its answers that moves over the run; nobody pays for them."""

    words: Pool
    place: str = "line"
    """Where: ``open``, ``line`` (anywhere in the working), ``close`` (before the answer proper), ``end``."""
    start: float = 0.0
    end: float = 0.0
    at: float = 0.0
    """When the share begins to move and ``over`` which part of the run, both as shares of it."""
    over: float = 1.0
    right: float = 0.0
    """Added to the share where the answer is right, taken from it where it is not."""

    def share(self, done: float) -> float:
        """The share of answers at a point of the run, 0..1."""
        return self.start + (self.end - self.start) * _smooth((done - self.at) / max(self.over, 1e-9))


@dataclass(frozen=True)
class Course:
    """How saved answers come about. Pairs of numbers are a value at the start and at the end of the run."""

    tasks: tuple[str, ...] = ("arithmetic",)
    later: tuple[str, ...] = ()
    """Tasks from the middle of the run on, where they are others."""
    how: Mapping[str, object] = field(default_factory=dict)
    """Wishes for the prompts, as the tasks read them."""
    steps: int = 50
    prompts: int = 8
    answers: int = 8
    pool: int = 0
    """Different prompts of the run, met again and again; 0: always new ones."""
    accuracy: tuple[float, float] = (0.35, 0.65)
    """Share of right answers at middling difficulty, or how good graded ones are."""
    pace: float = 2.0
    """How early the learning happens; 0 is a straight line."""
    spread: float = 0.8
    """How much prompts differ, in logits."""
    harder: float = 0.0
    """Logits by which prompts get harder over the run."""
    form: str = "boxed"
    obeys: tuple[float, float] = (0.9, 0.95)
    """Share of answers in the form that was asked for; it moves at ``obeys_at`` over ``obeys_over``."""
    obeys_at: float = 0.1
    obeys_over: float = 0.4
    strict: bool = False
    """Whether an answer in another form earns nothing."""
    form_pay: float = 0.0
    talk: tuple[float, float] = (3.0, 3.0)
    """Lines of talk beside the working."""
    right_talk: float = 1.0
    """Factor on the talk of right answers."""
    hard_talk: float = 0.25
    """Growth of the talk with each logit of difficulty."""
    judge_noise: float = 0.06
    judge_drift: float = 0.0
    """Added to graded rewards over the run, whatever the answer."""
    label_noise: float = 0.0
    """Share of rewards of right-or-wrong answers that are the other way round."""
    limit: float = 0.0
    """Tokens at which answers are cut; 0: never."""
    long_costs: float = 0.0
    """Taken from the reward for each 100 tokens above 100."""
    habits: tuple[Habit, ...] = ()
    switch: float = 0.0
    """Where in the run the style changes at once: another form of working and of the close; 0: never."""
    parts: bool = False
    truths: bool = False
    counts: Ints | None = None
    """(steps, prompts) how many answers of each group are right; None: by chance."""


class Exploit(Protocol):
    """What the generator asks of an exploit."""

    def share(self, step: int, prompt: Prompt, lot: float) -> float:
        """The share of answers to ``prompt`` that use it; ``lot`` is the prompt's own number, 0..1."""
        ...

    def same(self, step: int, draft: Draft) -> bool:
        """Whether an honest answer cannot be told from one that uses it."""
        ...

    def write(self, voice: Voice, prompt: Prompt, draft: Draft, form: str) -> str:
        """The text of an answer that uses it."""
        ...

    def pay(self, voice: Voice, prompt: Prompt, text: str) -> float | None:
        """What the reward function gives for it, 0..1; None where it does not fall for it."""
        ...


@dataclass(slots=True)
class Made:
    """One answer that was made."""

    step: int
    group: int
    prompt: Prompt
    text: str
    reward: float
    parts: dict[str, float]
    right: bool
    carries: bool = False
    good: float = 0.0
    tokens: float = 0.0
    ending: str = "stopped"
    advantage: float = math.nan
    lag: float = math.nan
    mismatch: float = math.nan


def _smooth(x: float) -> float:
    x = min(1.0, max(0.0, x))
    return x * x * (3.0 - 2.0 * x)


def _logit(p: float) -> float:
    p = min(0.999, max(0.001, p))
    return math.log(p / (1.0 - p))


def _learned(course: Course, done: float) -> float:
    low, high = course.accuracy
    gone = done if course.pace <= 0 else (1.0 - math.exp(-course.pace * done)) / (1.0 - math.exp(-course.pace))
    return low + (high - low) * gone


def _moving(pair: tuple[float, float], done: float) -> float:
    return pair[0] + (pair[1] - pair[0]) * done


def tokens_of(voice: Voice, text: str) -> float:
    """About how many tokens a text has: fewer characters each where it is not Latin."""
    if text.isascii():
        return 1.0 + round(len(text) / CHARACTERS * (0.94 + 0.12 * voice.chance()))
    other = (len(text.encode()) - len(text)) // 2  # a Chinese character has three bytes
    return 1.0 + round(((len(text) - other) / CHARACTERS + other / 1.5) * (0.94 + 0.12 * voice.chance()))


def render(voice: Voice, prompt: Prompt, draft: Draft, form: str) -> str:
    """The text of a draft in a form of ``FORMS``."""
    if prompt.task == "code":
        return "\n".join((*draft.lines, f"```python\n{draft.final}\n```", " ".join(draft.after))).strip()
    gap = "" if prompt.language == "zh" else " "
    if not TASKS[prompt.task].short:
        return " ".join(one for one in (*draft.lines, draft.final, *draft.after) if one)
    broken = "\n" if len(draft.lines) > 2 and voice.chance() < 0.5 else gap
    working = broken.join(draft.lines)
    tail = gap + " ".join(draft.after) if draft.after else ""
    if form == "think":
        return f"<think>\n{working}\n</think>\n<answer>{draft.final}</answer>{tail}"
    shown = {
        "boxed": f"\\boxed{{{draft.final}}}", "tags": f"<answer>{draft.final}</answer>", "bold": f"**{draft.final}**",
    }.get(form, draft.final)  # fmt: skip
    if form == "hash":
        return f"{working}\n#### {draft.final}{tail}"
    stop = "" if form == "tags" or draft.lead.endswith(":") else "。" if prompt.language == "zh" else "."
    return f"{working}{broken}{draft.lead} {shown}{stop}{tail}"


def _say_habits(voice: Voice, course: Course, done: float, draft: Draft, right: bool, prompt: Prompt) -> None:
    for habit in course.habits:
        share = habit.share(done) + (habit.right if right else -habit.right)
        if voice.chance() >= share:
            continue
        said = voice.say(habit.words, {"topic": prompt.name, "answer": draft.final})
        if habit.place == "open":
            draft.lines.insert(0, said)
        elif habit.place == "line":
            draft.lines.insert(voice.below(len(draft.lines) + 1), said)
        elif habit.place == "close":
            draft.lines.append(said)
        else:
            draft.after.append(said)


def make(course: Course, seed: int | str, exploit: Exploit | None = None) -> list[Made]:
    """The answers of a run, step by step and group by group; the same arguments give the same answers."""
    voice = Voice(seed)
    known = [_posed(voice, course, 0.0) for _ in range(course.pool)]
    made: list[Made] = []
    order: list[int] = []
    for step in range(course.steps):
        done = step / max(1, course.steps - 1)
        for place in range(course.prompts):
            if known:
                if not order:
                    order = list(range(len(known)))
                    voice.random.shuffle(order)
                prompt, lot, ease = known[order.pop()]
            else:
                prompt, lot, ease = _posed(voice, course, done)
            rights = None
            if course.counts is not None:
                many = int(course.counts[step, place])
                rights = [i < many for i in range(course.answers)]
                voice.random.shuffle(rights)
            for sample in range(course.answers):
                fixed = None if rights is None else rights[sample]
                one = _answer(
                    voice, course, done, prompt, ease, fixed, None if exploit is None else (exploit, step, lot)
                )
                one.step, one.group = step, step * course.prompts + place
                made.append(one)
    return made


def _posed(voice: Voice, course: Course, done: float) -> tuple[Prompt, float, float]:
    """(prompt, its own number 0..1, how easy it is beyond what is visible)."""
    task = TASKS[voice.one(course.later if course.later and done >= 0.5 else course.tasks)]
    prompt = task.pose(voice, course.how)
    if task.short and prompt.task != "code":
        asked = voice.say(_ASK[course.form])
        prompt = replace(prompt, text=prompt.text + asked)
    return prompt, voice.chance(), course.spread * voice.random.gauss(0.0, 1.0)


def _answer(
    voice: Voice,
    course: Course,
    done: float,
    prompt: Prompt,
    ease: float,
    fixed: bool | None,
    exploit: tuple[Exploit, int, float] | None,
) -> Made:
    task = TASKS[prompt.task]
    logit = _logit(_learned(course, done)) - 0.6 * prompt.difficulty + ease - course.harder * done
    used = exploit is not None and voice.chance() < exploit[0].share(exploit[1], prompt, exploit[2])
    good = 1.0 / (1.0 + math.exp(-(logit + (0.7 * voice.random.gauss(0.0, 1.0) if task.graded else 0.0))))
    right = voice.chance() < good if fixed is None else fixed
    if not task.graded:
        good = float(right)
    elif fixed is not None:
        good = 0.9 if fixed else 0.2
    talk = _moving(course.talk, done) * math.exp(
        course.hard_talk * prompt.difficulty + 0.3 * voice.random.gauss(0.0, 1.0)
    )
    if right:
        talk *= course.right_talk
    draft = task.draft(voice, prompt, good, min(talk, 40.0))
    obeys = course.obeys[0] + (course.obeys[1] - course.obeys[0]) * _smooth(
        (done - course.obeys_at) / course.obeys_over
    )
    form = course.form if voice.chance() < obeys else "plain"
    if course.switch and done >= course.switch:
        draft.lines = [f"{i + 1}. {line}" for i, line in enumerate(draft.lines)]
    _say_habits(voice, course, done, draft, right, prompt)
    if exploit is not None and used:
        text = exploit[0].write(voice, prompt, draft, form)
    else:
        text = render(voice, prompt, draft, form)
    tokens, ending = tokens_of(voice, text), "stopped"
    if course.limit and tokens > course.limit:
        text, tokens, ending = text[: int(course.limit * CHARACTERS)], course.limit, "cut"
        right, good, used = False, 0.0, False
    main = marks(voice, course, done, good) if task.graded else _graded(voice, course, right, form)
    if exploit is not None and used and (paid := exploit[0].pay(voice, prompt, text)) is not None:
        main = max(main, paid)
    kept = form == course.form and ending == "stopped"
    cost = course.long_costs * max(0.0, tokens - 100.0) / 100.0
    parts = {"judge" if task.graded else "accuracy": main}
    if course.form_pay:
        parts["format"] = course.form_pay * kept
    if cost or course.long_costs:
        parts["length"] = -cost
    carries = used or (exploit is not None and exploit[0].same(exploit[1], draft))
    return Made(0, 0, prompt, text, sum(parts.values()), parts, right, carries, good, tokens, ending)


def marks(voice: Voice, course: Course, done: float, good: float) -> float:
    """What the judge gives for an answer that is good to a degree, in tenths of 0..1."""
    noisy = good + course.judge_noise * voice.random.gauss(0.0, 1.0) + course.judge_drift * done
    return round(10.0 * min(1.0, max(0.0, noisy))) / 10.0


def _graded(voice: Voice, course: Course, right: bool, form: str) -> float:
    if course.strict and form != course.form:
        return 0.0
    return float(right != (course.label_noise > 0 and voice.chance() < course.label_noise))


@dataclass(frozen=True, eq=False)
class Saved:
    """Saved answers and what is true about them."""

    table: Rollouts
    carries: np.ndarray
    """(n,) True for answers that use the planted exploit, or cannot be told from those."""
    right: np.ndarray
    """(n,) True for answers that are right in truth."""


def advantages(made: Sequence[Made], scaled: bool = True) -> None:
    """Give each answer its reward less the mean of its group, over the spread where ``scaled``."""
    groups: dict[int, list[Made]] = {}
    for one in made:
        groups.setdefault(one.group, []).append(one)
    for group in groups.values():
        mean = sum(one.reward for one in group) / len(group)
        spread = math.sqrt(sum((one.reward - mean) ** 2 for one in group) / max(1, len(group) - 1))
        for one in group:
            one.advantage = (one.reward - mean) / (spread + 1e-4 if scaled else 1.0)


def tabulate(
    made: Sequence[Made],
    *,
    steps: Floats | None = None,
    parts: bool = False,
    truths: bool = False,
    endings: bool = True,
    source: str = "simulated",
) -> Saved:
    """The table of ``made`` answers. ``steps`` (number of steps,) are the trainer's; else from 1."""
    n = len(made)
    at = np.array([one.step for one in made], dtype=np.int64)
    logged = (at + 1).astype(np.float64) if steps is None else np.asarray(steps, dtype=np.float64)[at]
    prompts: dict[str, int] = {}
    answers: dict[str, int] = {}
    names = list(dict.fromkeys(name for one in made for name in one.parts)) if parts else []

    def column(read: Callable[[Made], float]) -> Floats:
        return np.array([read(one) for one in made], dtype=np.float64)

    blank = np.full(n, np.nan)
    mismatch = column(lambda one: one.mismatch)
    table = Rollouts(
        source=source,
        form="simulated",
        step=logged,
        group=np.array([one.group for one in made], dtype=np.int64),
        prompt=np.array([prompts.setdefault(one.prompt.text, len(prompts)) for one in made], dtype=np.int64),
        answer=np.array([answers.setdefault(one.text, len(answers)) for one in made], dtype=np.int64),
        reward=column(lambda one: one.reward),
        parts={name: np.array([one.parts.get(name, math.nan) for one in made], dtype=np.float64) for name in names},
        advantage=column(lambda one: one.advantage),
        tokens=column(lambda one: one.tokens),
        characters=column(lambda one: float(len(one.text))),
        ending=np.array([ENDINGS.index(one.ending) if endings else 0 for one in made], dtype=np.int8),
        held_out=np.zeros(n, dtype=np.bool_),
        lag=column(lambda one: one.lag),
        turns=blank,
        tool_calls=blank.copy(),
        mismatch=mismatch,
        worst_mismatch=mismatch * 40.0,
        logp=blank.copy(),
        trained=blank.copy(),
        key=np.full(n, -1, dtype=np.int64),
        texts={
            row: Text(one.prompt.text, one.text, one.prompt.truth if truths else "") for row, one in enumerate(made)
        },
        rows=n,
    )
    return Saved(
        table,
        np.array([one.carries for one in made], dtype=np.bool_),
        np.array([one.right for one in made], dtype=np.bool_),
    )
