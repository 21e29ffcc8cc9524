"""The other process of a second verifier: loads the user's function and grades one answer for each line it is sent.

Run as ``python -m rlclinic.grader MODULE:FUNCTION``. Lines of JSON go in (``prompt``, ``answer``, ``truth``) and out
(``score``, or ``error``); the first line out says ``ready``, or why not. The function keeps neither of the two streams:
what it prints goes to the error stream, and its input is empty.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

MOST_WORDS = 200
"""Characters of an error that are told (ours)."""
_SCORES = ("score", "reward", "accuracy", "acc")
"""Keys under which verifiers that answer with a mapping keep the score (verl: score)."""


def main() -> None:
    """Serve until the input ends."""
    sys.path.insert(0, os.getcwd())
    questions, answers = _own_streams()
    grade, problem = load(sys.argv[1])
    if grade is None:
        _say(answers, {"problem": problem[:MOST_WORDS]})
        return
    _say(answers, {"ready": True})
    for line in questions:
        asked = json.loads(line)
        _say(answers, judged(grade, asked["prompt"], asked["answer"], asked["truth"]))


def _own_streams() -> tuple[TextIO, TextIO]:
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdin, sys.stdout = io.StringIO(), sys.stderr
    return questions, answers


def _say(answers: TextIO, what: Mapping[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def load(name: str) -> tuple[Callable[..., Any] | None, str]:
    """The function that ``name`` (MODULE:FUNCTION or FILE.py:FUNCTION) stands for, or None and why there is none."""
    place, _, function = name.rpartition(":")
    try:
        module = _file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except BaseException as failed:
        return None, f"importing {place} failed: {_told(failed)}"
    grade: Any = module
    for part in function.split("."):
        grade = getattr(grade, part, None)
    if grade is None:
        known = [one for one, what in vars(module).items() if inspect.isfunction(what) and not one.startswith("_")]
        return None, f"{place} has no {function}; its functions: {', '.join(known[:8]) or 'none'}"
    if not callable(grade):
        return None, f"{function} of {place} is no function but {type(grade).__name__}"
    try:
        signature = inspect.signature(grade)
    except (TypeError, ValueError):
        return grade, ""  # written in C: only the call tells
    try:
        signature.bind("", "", "")
    except TypeError:
        return None, f"{function}{signature} cannot be called with (prompt, answer, truth)"
    return grade, ""


def _file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def judged(grade: Callable[..., Any], prompt: str, answer: str, truth: str) -> dict[str, Any]:
    """What the function says: ``score`` (None: no verdict), or ``error``."""
    try:
        said = grade(prompt, answer, truth)
        if inspect.iscoroutine(said):
            said = asyncio.run(said)
        if isinstance(said, Mapping):
            said = next((said[key] for key in _SCORES if key in said), said)
        if callable(getattr(said, "tolist", None)):
            said = said.tolist()  # arrays and tensors of one number
        if isinstance(said, (tuple, list)) and len(said) == 1:
            said = said[0]
        if said is not None and isinstance(said, (str, bytes, Mapping, tuple, list)):
            return {"error": f"the function answered with {type(said).__name__}, not with a number"}
        score = None if said is None else float(said)
    except SystemExit as left:
        return {"error": f"SystemExit: {left}"[:MOST_WORDS]}
    except Exception as failed:
        return {"error": _told(failed)}
    return {"score": score if score is not None and abs(score) < float("inf") else None}


def _told(failed: BaseException) -> str:
    try:
        words = str(failed)
    except Exception:
        words = ""
    return f"{type(failed).__name__}: {' '.join(words.split())}"[:MOST_WORDS]


if __name__ == "__main__":
    main()
