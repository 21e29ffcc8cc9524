"""Prompts with a known right answer, and drafts of answers to them: worked problems, choices, code, texts and requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from rlclinic.simulate.wording import Phrase, Pool, Voice, phrase, pool, table

LETTERS = "ABCD"


@dataclass(frozen=True)
class Prompt:
    """One prompt: its words, the right answer, and what an answer to it is made from."""

    task: str
    text: str
    truth: str
    difficulty: float
    """In logits, around 0."""
    stages: tuple[tuple[str, int], ...] = ()
    """The computations that lead to the answer, each with its right value."""
    facts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    language: str = "en"
    wrong: tuple[str, ...] = ()
    """Answers that are wrong, near ones first."""
    tests: tuple[tuple[str, str], ...] = ()
    """Arguments and what the function must return for them, as they are written."""
    name: str = ""
    example: str = ""
    """The answer of an example that the prompt shows."""


@dataclass
class Draft:
    """An answer before it gets its form."""

    lines: list[str] = field(default_factory=list)
    """Reasoning, or what comes before the answer proper."""
    final: str = ""
    """The answer proper: a number, a letter, a program, a text."""
    after: list[str] = field(default_factory=list)
    lead: str = ""
    """The words right before a short answer."""


@dataclass(frozen=True)
class Task:
    """How prompts of one kind are posed and answered. ``graded`` answers are good to a degree, the others right or wrong."""

    name: str
    pose: Callable[[Voice, Mapping[str, object]], Prompt]
    draft: Callable[[Voice, Prompt, float, float], Draft]
    """(voice, prompt, goodness 0..1, lines of talk) -> draft."""
    graded: bool = False
    short: bool = True
    """Whether the answer proper is a word or a number, which a form may put into a box or tags."""


# ------------------------------------------------------------ worked problems


@cache
def _problems(kind: str) -> tuple[tuple[Phrase, str], ...]:
    """(words, shape) of every problem of one kind."""
    return tuple((phrase(text), shape) for shape, texts in table("prompts")[kind].items() for text in _list(texts))


@cache
def _asked(name: str, of: str = "asked") -> Pool:
    """The words with which a task is posed."""
    return pool(_list(table("prompts")[of][name]))


def _list(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _stages(shape: str, a: int, b: int, c: int) -> tuple[tuple[str, int], ...]:
    """The computations of a shape; the last value is the answer."""
    product = (f"{a} × {b}", a * b)
    if shape == "ab-c":
        return product, (f"{a * b} - {c}", a * b - c)
    if shape in ("ab+c", "poly"):
        first = product if shape == "ab+c" else (f"{a} × {b * b}", a * b * b)
        return first, (f"{first[1]} + {c}", first[1] + c)
    if shape == "a+a+b-c":
        return (f"{a} + {b}", a + b), (f"{a} + {a + b}", 2 * a + b), (f"{2 * a + b} - {c}", 2 * a + b - c)
    if shape == "d-ab":
        return product, (f"{a * b + c} - {a * b}", c)
    if shape == "e/a+c":
        return (f"{a * b} / {a}", b), (f"{b} + {c}", b + c)
    if shape == "lin":
        return (f"{a * b + c} - {c}", a * b), (f"{a * b} / {a}", b)
    if shape == "seq":
        return (f"{a} × {b - 1}", a * (b - 1)), (f"{c} + {a * (b - 1)}", c + a * (b - 1))
    if shape == "sys":
        return (f"{2 * b + c} + {c}", 2 * b + 2 * c), (f"{2 * b + 2 * c} / 2", b + c)
    if shape == "dist":
        return (f"{b} + {c}", b + c), (f"{a} × {b + c}", a * (b + c)), (f"{a * (b + c)} - {b}", a * (b + c) - b)
    return (f"{a} × {b} - {c}", a * b - c), (f"{a} - {c}", a - c), (f"{a * b - c} + {a - c}", a * b + a - 2 * c)


def _worked(voice: Voice, kind: str, language: str = "en") -> tuple[str, tuple[tuple[str, int], ...], float]:
    """(text, computations, difficulty) of a problem."""
    scale = 1 + voice.below(3)
    a, b, c = voice.between(2, 7 * scale), voice.between(3, 9 * scale), voice.between(1, 4 + 3 * scale)
    c = min(c, a * b - 1)
    if language != "en":
        words, shape = _asked(language, "foreign")[0], "ab-c"
    else:
        choices = _problems(kind)
        words, shape = choices[voice.below(len(choices))]
    stages = _stages(shape, a, b, c)
    values = {
        "a": str(a), "b": str(b), "c": str(c), "d": str(a * b + c), "e": str(a * b), "f": str(a * b + c),
        "ax": f"{a}x", "an": f"{a}n", "bth": f"{b}th", "g": str(2 * b + c), "h": str(c),
        "name": voice.word("name"), "other": voice.word("name"), "thing": voice.word("thing"),
    }  # fmt: skip
    return voice.say((words,), values), stages, 0.7 * (scale - 2) + 0.5 * (len(stages) - 2)


def _near(voice: Voice, value: int) -> tuple[str, ...]:
    """Values that a slip would give."""
    slips = (1, -1, 2, 10, -10, max(1, abs(value) // 3), -3, 7)
    first = voice.below(len(slips))
    return tuple(str(value + slips[(first + i) % len(slips)]) for i in range(4))


def _pose_worked(kind: str) -> Callable[[Voice, Mapping[str, object]], Prompt]:
    def pose(voice: Voice, how: Mapping[str, object]) -> Prompt:
        languages = how.get("languages")
        language = voice.one([str(one) for one in languages]) if isinstance(languages, list) else "en"
        text, stages, difficulty = _worked(voice, kind, language)
        value = stages[-1][1]
        return Prompt(kind, text, str(value), difficulty, stages, language=language, wrong=_near(voice, value))

    return pose


def reasoning(voice: Voice, prompt: Prompt, final: str, talk: float) -> list[str]:
    """Lines of working that lead to ``final``; where that is not the truth, some line has the slip."""
    language = prompt.language
    lines = [voice.word("open", None, language)] if voice.chance() < min(0.95, 0.35 + 0.12 * talk) else []
    count = len(prompt.stages)
    slip = voice.below(count) if final != prompt.truth else count
    for place, (left, value) in enumerate(prompt.stages):
        stated = str(value)
        if place == count - 1 and prompt.task in ("arithmetic", "algebra"):
            stated = final
        elif place >= slip:
            stated = str(value + voice.between(1, 3))
        lines.append(voice.word("calc", {"lhs": left, "value": stated}, language))
        extra = talk * voice.chance() * 1.2 / count
        while extra > voice.chance():
            lines.append(voice.word("filler", None, language))
            extra -= 1
    return lines


def _draft_worked(voice: Voice, prompt: Prompt, good: float, talk: float) -> Draft:
    final = prompt.truth if good >= 0.5 else voice.one(prompt.wrong)
    return Draft(reasoning(voice, prompt, final, talk), final, lead=voice.word("close", None, prompt.language))


# ------------------------------------------------------------ choices


@cache
def _known() -> tuple[tuple[Phrase, tuple[str, ...]], ...]:
    """(question, right option and three wrong ones)."""
    return tuple((phrase(text), tuple(_list(options))) for text, options in table("prompts")["known"].items())


def _pose_choice(voice: Voice, how: Mapping[str, object]) -> Prompt:
    stages: tuple[tuple[str, int], ...] = ()
    if voice.chance() < 0.3:
        words, (right, *wrong) = _known()[voice.below(len(_known()))]
        text, difficulty = voice.say((words,)), -0.5
    else:
        text, stages, difficulty = _worked(voice, "arithmetic" if voice.chance() < 0.5 else "algebra")
        right, wrong = str(stages[-1][1]), list(dict.fromkeys(_near(voice, stages[-1][1])))[:3]
    letter = str(how.get("truth", ""))
    place = LETTERS.index(letter) if letter and voice.chance() < 0.95 else voice.below(4)
    options = (*wrong[:place], right, *wrong[place:])[:4]
    listed = "\n".join(f"{LETTERS[i]}) {option}" for i, option in enumerate(options))
    others_of = tuple(one for one in LETTERS[: len(options)] if one != LETTERS[place])
    return Prompt("choice", f"{text}\n{listed}", LETTERS[place], difficulty, stages, options=options, wrong=others_of)


def _draft_choice(voice: Voice, prompt: Prompt, good: float, talk: float) -> Draft:
    final = prompt.truth if good >= 0.5 else voice.one(prompt.wrong)
    lines = reasoning(voice, prompt, final, talk)
    for place, option in enumerate(prompt.options):
        if LETTERS[place] != final and voice.chance() < 0.15 * min(talk, 4):
            lines.append(voice.word("eliminate", {"letter": LETTERS[place], "value": option}))
    return Draft(lines, final, lead=voice.word("close"))


def _pose_yes_no(voice: Voice, how: Mapping[str, object]) -> Prompt:
    share = how.get("yes", 0.5)
    yes = voice.chance() < (share if isinstance(share, float) else 0.5)
    a, times = voice.between(3, 17), voice.between(4, 40)
    rest = 0 if yes else voice.between(1, a - 1)
    value = a * times + rest
    text = voice.say(_asked("yes_no"), {"value": str(value), "a": str(a)})
    stages = ((f"{a} × {times}", a * times), (f"{value} - {a * times}", rest))
    truth = "yes" if yes else "no"
    return Prompt("yes_no", text, truth, 0.04 * (a - 10), stages, wrong=("no" if yes else "yes",))


# ------------------------------------------------------------ programs


@dataclass(frozen=True)
class Function:
    """A function that can be asked for: bodies that are right, and such with a slip."""

    name: str
    does: Pool
    right: Pool
    wrong: Pool
    tests: tuple[tuple[str, str], ...]


@cache
def _functions() -> tuple[Function, ...]:
    found = []
    for name, about in table("prompts")["code"].items():
        assert isinstance(about, dict)
        tests = tuple((str(given), str(wanted)) for given, wanted in about["tests"])
        found.append(Function(name, pool([about["does"]]), pool(about["right"]), pool(about["wrong"]), tests))
    return tuple(found)


_NAMES = (("out", "c"), ("result", "v"), ("res", "item"), ("found", "each"), ("answer", "e"), ("r", "value"))
"""What programs call what they collect and what they look at."""


def _pose_code(voice: Voice, how: Mapping[str, object]) -> Prompt:
    place = voice.below(len(_functions()))
    asked = _functions()[place]
    name, tests = asked.name, asked.tests
    called = f"{name}_{voice.below(90) + 10}" if voice.chance() < 0.4 else name
    text = voice.say(_asked("code"), {"name": called, "does": voice.say(asked.does)})
    if how.get("asserts"):
        text += " Add asserts for your own examples below the function."
    if how.get("shown", True):
        text += "\n" + "\n".join(f"assert {called}({given}) == {wanted}" for given, wanted in tests)
    return Prompt("code", text, "", 0.3 * (place % 4) - 0.4, tests=tests, name=called, options=(str(place),))


def program(name: str, body: str, parameter: str = "x") -> str:
    """A function of one argument."""
    return f"def {name}({parameter}):\n    {body}"


def _draft_code(voice: Voice, prompt: Prompt, good: float, talk: float) -> Draft:
    asked = _functions()[int(prompt.options[0])]
    tests = asked.tests
    collected, element = _NAMES[voice.below(len(_NAMES))]
    body = voice.say(asked.right if good >= 0.5 else asked.wrong, {"acc": collected, "el": element})
    code = program(prompt.name, body)
    if voice.chance() < 0.3:
        code = code.replace(":\n", f':\n    """{prompt.name.replace("_", " ").capitalize()}."""\n', 1)
    if "Add asserts" in prompt.text and voice.chance() < 0.9:
        code += "\n\n" + "\n".join(f"assert {prompt.name}({g}) == {w}" for g, w in tests[: voice.between(1, 3)])
    lines = voice.few("code_open", voice.between(1, 2))
    return Draft(lines, code, voice.few("code_after", min(6, int(talk * voice.chance() * 1.4))))


# ------------------------------------------------------------ texts


def _facts(voice: Voice, count: int) -> tuple[list[str], str, dict[str, str]]:
    """(facts about one invented place, its topic, the names in it)."""
    shared = {name: voice.word(name) for name in ("place", "craft", "name", "job")}
    facts = []
    sorts = list(table("prompts")["facts"])
    first = voice.below(len(sorts))
    for i in range(count):
        own = {**shared, "year": str(voice.between(1890, 2019)), "count": str(voice.between(12, 940))}
        if i > 2:
            own["place"] = voice.word("place")
        facts.append(voice.say(_asked(sorts[(first + i) % len(sorts)], "facts"), own))
    return facts, f"the {shared['craft']} in {shared['place']}", shared


def _passage(facts: list[str]) -> str:
    return " ".join(f"{fact[0].upper()}{fact[1:]}." for fact in facts)


def _pose_find(voice: Voice, how: Mapping[str, object]) -> Prompt:
    facts, _, names = _facts(voice, 5)
    fact = f"{names['name']}, once {voice.one(('a baker', 'a clerk', 'a pilot'))}, runs the {names['craft']}"
    facts.insert(voice.below(len(facts)), fact)
    wrong = tuple(dict.fromkeys((voice.word("name"), names["place"], voice.word("name"))))
    shown = voice.word("name")
    example = f"Example question: who paints the fence? Example answer: {shown}\n\n"
    text = f"{example}Passage: {_passage(facts)}\n\nQuestion: {voice.say(_asked('find'), names)} Answer with one name."
    wrong = tuple(one for one in wrong if one != names["name"]) or ("nobody",)
    return Prompt("find", text, names["name"], 0.6 * voice.chance(), facts=(fact, *facts), wrong=wrong, example=shown)


def _draft_find(voice: Voice, prompt: Prompt, good: float, talk: float) -> Draft:
    final = prompt.truth if good >= 0.5 else voice.one(prompt.wrong)
    lines = []
    for i in range(1 + int(talk * voice.chance())):
        fact = prompt.facts[0 if i == 0 and good >= 0.5 else voice.below(len(prompt.facts))]
        lines.append(voice.word("find", {"fact": fact}))
        if voice.chance() < 0.15 * talk:
            lines.append(voice.word("filler"))
    return Draft(lines, final, lead=voice.word("close"))


def _pose_summary(voice: Voice, how: Mapping[str, object]) -> Prompt:
    facts, topic, _ = _facts(voice, voice.between(5, 7))
    text = f"{voice.say(_asked('summary'))}\n\n{_passage(facts)}"
    if how.get("headings"):
        text += "\n\nUse the headings ## Facts and ## Outlook."
    return Prompt("summary", text, "", 0.8 * (voice.chance() - 0.5), facts=tuple(facts), name=topic)


def _draft_summary(voice: Voice, prompt: Prompt, good: float, talk: float) -> Draft:
    count = max(1, round(good * len(prompt.facts) * 0.8 + voice.chance()))
    start = voice.below(len(prompt.facts))
    told = [prompt.facts[(start + 2 * i) % len(prompt.facts)] for i in range(count)]
    said = [voice.word("gist", {"fact": fact}) for fact in dict.fromkeys(told)]
    lines = [voice.word("gist_open", {"topic": prompt.name})] if voice.chance() < 0.6 else []
    ends = voice.few("gist_close", 1) if voice.chance() < 0.2 * talk else []
    return Draft(lines, " ".join(f"{one[0].upper()}{one[1:]}" for one in (*said, *ends)))


def _pose_rewrite(voice: Voice, how: Mapping[str, object]) -> Prompt:
    slots = {"count": str(voice.between(2, 30)), "thing": voice.word("thing"), "place": voice.word("place")}
    blunt, asked = voice.say(_asked("blunt"), slots), voice.say(_asked("rewrite"))
    return Prompt("rewrite", f"{asked}: {blunt}", "", voice.chance() - 0.5, facts=(blunt,), name=asked)


def _draft_rewrite(voice: Voice, prompt: Prompt, good: float, talk: float) -> Draft:
    slots = {"thing": voice.word("thing"), "place": voice.word("place")}
    polite = _asked("polite")
    said = list(
        dict.fromkeys(voice.say(polite, slots) for _ in range(1 + round(3 * good + 0.4 * talk * voice.chance())))
    )
    if good < 0.4:
        said[0] = prompt.facts[0]
    return Draft([], " ".join(said))


def _pose_request(voice: Voice, how: Mapping[str, object]) -> Prompt:
    share = how.get("harmful", 0.0)
    harmful = voice.chance() < (share if isinstance(share, float) else 0.0)
    slots = {"thing": voice.word("thing"), "place": voice.word("place"), "count": str(voice.between(3, 60)),
             "craft": voice.word("craft"), "job": voice.word("job")}  # fmt: skip
    text = voice.say(_asked("harm" if harmful else "wish"), slots)
    return Prompt("request", text, "", 0.5 * (voice.chance() - 0.5), options=("refuse",) if harmful else ())


def _draft_request(voice: Voice, prompt: Prompt, good: float, talk: float) -> Draft:
    if prompt.options and good >= 0.5:
        return Draft([], voice.word("refuse"), [])
    return Draft([], " ".join(voice.few("advice", 2 + round(2 * good + 0.5 * talk * voice.chance()))))


TASKS: Mapping[str, Task] = {
    one.name: one
    for one in (
        Task("arithmetic", _pose_worked("arithmetic"), _draft_worked),
        Task("algebra", _pose_worked("algebra"), _draft_worked),
        Task("choice", _pose_choice, _draft_choice),
        Task("yes_no", _pose_yes_no, _draft_worked),
        Task("code", _pose_code, _draft_code, short=False),
        Task("find", _pose_find, _draft_find),
        Task("summary", _pose_summary, _draft_summary, graded=True, short=False),
        Task("rewrite", _pose_rewrite, _draft_rewrite, graded=True, short=False),
        Task("request", _pose_request, _draft_request, graded=True, short=False),
    )
}
"""Every task by name."""
