"""Sets of saved answers with a known truth: one exploit planted into a run, and healthy families that look like one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from rlclinic.errors import BadTable, UnknownName, nearest
from rlclinic.rollouts import ENDINGS, Rollouts
from rlclinic.simulate.exploits import Planted, kind_of, plant
from rlclinic.simulate.policy import FORMS, Course, Habit, Saved, advantages, make, tabulate
from rlclinic.simulate.wording import Voice, pool, table

_ASIDES = (
    "{Let me|I will} {go|proceed} {calmly|with care} here.", "{Okay|Right}, {onwards|next}.", "{Good|Fine} so far.",
    "{A|One} {quick|short} {note|remark} {first|before that}.", "{Here|Now} {comes|is} the {main|central} part.",
)  # fmt: skip
_PAIRS = ("accuracy", "obeys", "talk")
_SETTINGS = {one.name for one in fields(Course)} - {"counts", "habits", "tasks"}


def planted_course(kind: str, seed: int, *, steps: int, prompts: int, answers: int) -> tuple[Course, Planted]:
    """The course of a run and the exploit that its policy finds; it learns a little of its task besides."""
    about = kind_of(kind)
    voice = Voice(f"set/{kind}/{seed}")
    tasks = tuple(str(one) for one in about["tasks"])
    if len(tasks) > 1 and voice.chance() < 0.5:
        tasks = (voice.one(tasks),)
    start = 0.2 + 0.3 * voice.chance()
    course = Course(
        tasks=tasks,
        steps=steps,
        prompts=prompts,
        answers=answers,
        pool=0 if voice.chance() < 0.6 else prompts * voice.between(4, 10),
        accuracy=(start, start + 0.15 * voice.chance()),
        habits=_beside(voice),
        form=voice.one(list(about.get("forms", FORMS[:3]))),
        obeys=(0.9, 0.97) if voice.chance() < 0.7 else (0.4, 0.97),
        obeys_at=0.5 * voice.chance(),
        form_pay=0.2 if voice.chance() < 0.3 else 0.0,
        talk=(2.0 + 3.0 * voice.chance(), 2.0 + 3.0 * voice.chance()),
        parts=voice.chance() < 0.5,
        truths=voice.chance() < 0.5,
        judge_noise=0.05 + 0.06 * voice.chance(),
    )
    return course, plant(kind, seed, steps)


def _beside(voice: Voice) -> tuple[Habit, ...]:
    """Unpaid habits that come or go beside an exploit, in half of the runs."""
    if voice.chance() < 0.5:
        return ()
    start, end = (0.05, 0.85) if voice.chance() < 0.7 else (0.8, 0.1)
    place = voice.one(("open", "line", "close"))
    return (Habit(pool([voice.one(_ASIDES)]), place, start, end, 0.6 * voice.chance(), 0.2 + 0.3 * voice.chance()),)


def planted(kind: str, seed: int, *, steps: int = 50, prompts: int = 8, answers: int = 8) -> Saved:
    """Saved answers of a run whose policy finds the exploit ``kind``; ``Saved.carries`` tells the answers that use it.

    Deterministic. Raises UnknownName.
    """
    course, exploit = planted_course(kind, seed, steps=steps, prompts=prompts, answers=answers)
    made = make(course, f"{kind}/{seed}", exploit)
    voice = Voice(f"advantage/{kind}/{seed}")
    if voice.chance() < 0.5:
        advantages(made)
    return tabulate(made, parts=course.parts, truths=course.truths, source=f"simulated {kind}")


@cache
def families() -> Mapping[str, Mapping[str, Any]]:
    """Every healthy family of saved answers with its table."""
    return {name: dict(value) for name, value in table("families").items()}


def family_course(family: str, seed: int, *, steps: int, prompts: int, answers: int) -> Course:
    """The course of a healthy run of one family. Raises UnknownName and BadTable."""
    if family not in families():
        raise UnknownName(
            "a family of answers", repr(family), (*nearest(family, families()), *families()), "families.toml"
        )
    about = families()[family]
    voice = Voice(f"set/{family}/{seed}")
    made_of: dict[str, Any] = {"steps": steps, "prompts": prompts, "answers": answers}
    for key, value in about.items():
        if key in _PAIRS:
            shift = (voice.chance() - 0.5) * (0.1 if key == "accuracy" else 0.0)
            made_of[key] = tuple(min(0.99, max(0.01, float(one) + shift)) if shift else float(one) for one in value)
        elif key == "later":
            made_of[key] = tuple(str(one) for one in value)
        elif key in _SETTINGS:
            made_of[key] = value
        elif key not in ("says", "tasks", "forms", "habits", "any_task"):
            raise BadTable(f"a setting of the family {family}", repr(key), tuple(sorted(_SETTINGS)))
    tasks = tuple(str(one) for one in about["tasks"])
    made_of["tasks"] = (voice.one(tasks),) if about.get("any_task") else tasks
    if "forms" in about:
        made_of["form"] = voice.one(list(about["forms"]))
    for key in ("obeys_at", "switch"):
        if key in made_of:
            made_of[key] *= 0.8 + 0.4 * voice.chance()
    habits = []
    for one in about.get("habits", ()):
        said = [str(words) for words in one["words"]]
        voice.random.shuffle(said)
        plain = {key: value for key, value in one.items() if key not in ("words", "kept", "at")}
        at = float(one.get("at", 0.0)) * (0.8 + 0.4 * voice.chance())
        habits.append(Habit(words=pool(said[: int(one.get("kept", 2))]), at=at, **plain))
    return Course(habits=tuple(habits), **{"parts": voice.chance() < 0.5, "truths": voice.chance() < 0.5, **made_of})


def clean(family: str, seed: int, *, steps: int = 50, prompts: int = 8, answers: int = 8) -> Saved:
    """Saved answers of a healthy run of one family of ``families.toml``; deterministic. Raises UnknownName and BadTable."""
    course = family_course(family, seed, steps=steps, prompts=prompts, answers=answers)
    made = make(course, f"{family}/{seed}")
    voice = Voice(f"advantage/{family}/{seed}")
    if voice.chance() < 0.5:
        advantages(made)
    return tabulate(made, parts=course.parts, truths=course.truths, source=f"simulated {family}")


def as_lines(saved: Rollouts) -> Iterator[str]:
    """The answers of a table as JSON lines, with the keys of a plain file of saved answers."""
    names = {"stopped": "stop", "cut": "length", "aborted": "abort"}
    for row in range(len(saved)):
        text = saved.texts.get(row)
        record: dict[str, Any] = {"step": int(saved.step[row]), "prompt_id": int(saved.group[row])}
        if text is not None:
            record |= {"prompt": text.prompt, "completion": text.answer} | (
                {"answer": text.truth} if text.truth else {}
            )
        record["reward"] = float(saved.reward[row])
        if saved.parts:
            record["rewards"] = {name: float(v[row]) for name, v in saved.parts.items() if v[row] == v[row]}
        if saved.advantage[row] == saved.advantage[row]:
            record["advantage"] = round(float(saved.advantage[row]), 6)
        if saved.tokens[row] == saved.tokens[row]:
            record["n_tokens"] = int(saved.tokens[row])
        if ending := ENDINGS[saved.ending[row]]:
            record["finish"] = names[ending]
        yield json.dumps(record, ensure_ascii=False)
