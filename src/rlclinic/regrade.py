"""A second verifier over saved answers: the user's own function grades a sample of them, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlclinic.errors import BadRequest
from rlclinic.model import Run, Warn
from rlclinic.rollouts import Flags, Floats, Ints, Regraded, Rollouts, Text

SAMPLE = 200
"""Answers that are graded again (ours: a share is then known to 7 points, and slow verifiers end in minutes)."""
WINDOWS = 4
"""Quarters of the run in which as many answers are drawn (ours: 25 paid and 25 others in each)."""
SECONDS = 10.0
"""Longest time for one answer (ours: tests of code take seconds)."""
IN_ALL = 300.0
"""Longest time for all (ours)."""
LOADING = 120.0
"""Longest time to import the module (ours: large frameworks take half a minute)."""
STARTS = 12
"""Times that the process is started anew after it hung or died, before it is given up (ours)."""
HOPELESS = 3
"""Answers from the first on, all without a verdict in time, after which the function is given up (ours)."""
FRUITLESS = 20
"""Answers in a row from the first on, all with errors, after which the function is given up (ours)."""
_LONGEST_LINE = 4_096
_USE = "--verifier MODULE:FUNCTION or FILE.py:FUNCTION, called with (prompt, answer, truth); returns a number, bool or None"


def regrade(
    run: Run,
    verifier: str,
    *,
    sample: int = SAMPLE,
    seconds: float = SECONDS,
    in_all: float = IN_ALL,
) -> Run:
    """``run`` with ``regraded``: what ``verifier`` (MODULE:FUNCTION or FILE.py:FUNCTION) says of a sample of its answers.

    The sample is the same each time: as many answers from each quarter of the steps, half of them paid. ``seconds`` bound
    one answer and ``in_all`` the whole; what was graded until then counts. The function is never loaded in this process.
    Raises BadRequest for a run without words of answers, and for a function that cannot be found, called or waited for.
    """
    module, _, function = verifier.rpartition(":")
    if not module or not function:
        raise BadRequest("the name of a function as MODULE:FUNCTION", f"--verifier {verifier}", hint=_USE)
    table = run.rollouts[0].train if run.rollouts else None
    if table is None:
        raise BadRequest("saved answers that a second verifier can grade", "a run without any")
    rows, window, weight, level = draw(table, sample)
    if not len(rows):
        raise BadRequest("saved answers with their words and their reward", f"{len(table)} answers without")
    # In any order, so that what is graded when the time is up is as fair a sample.
    order = np.random.default_rng(1).permutation(len(rows))
    with Grader(verifier) as grader:
        said = grader.grade([table.texts[int(row)] for row in rows[order]], seconds, in_all)
    done = order[: len(said)]
    rows, window, weight = rows[done], window[done], weight[done]
    scores = np.array([one.get("score") for one in said], dtype=np.float64)
    known = np.isfinite(scores)
    errors = [one["error"] for one in said if "error" in one]
    slow = sum("slow" in one for one in said)
    if not known.any():
        raise BadRequest(
            f"a verdict of {verifier} on one answer at least",
            f"{len(said)} answers asked: {len(errors)} errors, {slow} stopped after {seconds:g} s, "
            f"{len(said) - len(errors) - slow} without a verdict"
            + (f"; the first error is {errors[0]}" if errors else ""),
            hint=_USE,
        )
    by_row = np.flatnonzero(known)[np.argsort(rows[known])]
    rewards, scores = table.reward[rows[by_row]], scores[by_row]
    found = Regraded(
        verifier=verifier,
        rows=rows[by_row],
        window=window[by_row],
        reward=rewards,
        score=scores,
        weight=weight[by_row],
        paid=rewards > level,
        accepted=_upper(scores),
        asked=len(said),
        silent=int((~known).sum()) - len(errors) - slow,
        failed=len(errors),
        slow=slow,
    )
    agree = float(np.average(found.paid == found.accepted, weights=found.weight))
    says = f"{verifier} graded {len(found.rows)} saved answers again and agrees with the reward on {agree:.0%} of them"
    return replace(run, regraded=found, warnings=(*run.warnings, Warn("graded_again", says)))


def draw(table: Rollouts, sample: int) -> tuple[Ints, Ints, Floats, float]:
    """(rows, quarter of the run, answers each stands for, reward above which one counts as paid) of the sample.

    Of each quarter of the steps and each side of the reward as many, no text twice for one prompt; in file order.
    """
    kept = np.array(sorted(table.texts), dtype=np.int64)
    kept = kept[np.isfinite(table.reward[kept]) & np.isfinite(table.step[kept])] if len(kept) else kept
    if not len(kept):
        return kept, kept, np.empty(0), float("nan")
    low, high = np.quantile(table.reward[np.isfinite(table.reward)], [0.005, 0.995])
    if high <= low:
        finite = table.reward[np.isfinite(table.reward)]
        low, high = float(finite.min()), float(finite.max())
    level = (low + high) / 2 if high > low else min(low, 0.0)
    steps = np.unique(table.step[kept])
    quarter = np.searchsorted(steps, table.step[kept]) * WINDOWS // len(steps)
    stratum = quarter * 2 + (table.reward[kept] > level)
    same = np.column_stack([stratum, table.prompt[kept], table.answer[kept]])
    _, first = np.unique(same, axis=0, return_index=True)
    unlike = np.zeros(len(kept), dtype=np.bool_)
    unlike[first] = True
    present = np.unique(stratum)
    rng = np.random.default_rng(0)
    picked: list[Ints] = []
    weights: list[Floats] = []
    left = sample
    for k, each in enumerate(sorted(present.tolist(), key=lambda s: int((stratum[unlike] == s).sum()))):
        pool = np.flatnonzero((stratum == each) & unlike)
        take = min(len(pool), max(1, left // (len(present) - k)))
        left -= take
        chosen = rng.choice(pool, size=take, replace=False)
        picked.append(chosen)
        weights.append(np.full(take, (stratum == each).sum() / take))
    at = np.concatenate(picked)
    order = np.argsort(at)
    return kept[at[order]], quarter[at[order]].astype(np.int64), np.concatenate(weights)[order], float(level)


def _upper(scores: Floats) -> Flags:
    low, high = float(scores.min()), float(scores.max())
    level = 0.5 if low >= 0 and high <= 1 else (low + high) / 2 if high > low else 0.0
    return np.asarray(scores >= level if level == 0.5 else scores > level)


class Grader:
    """The process that holds the user's function: started, asked one answer at a time, stopped when it hangs."""

    def __init__(self, verifier: str) -> None:
        self._verifier = verifier
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def grade(self, texts: Sequence[Text], seconds: float, in_all: float) -> list[dict[str, Any]]:
        """What the function says of each text: ``score``, ``error`` or ``slow``; shorter than ``texts`` when time is up.

        Raises BadRequest where the function cannot be had, only raises, or only hangs.
        """
        began, starts, said = time.monotonic(), 0, list[dict[str, Any]]()
        for text in texts:
            if time.monotonic() - began > in_all:
                break
            if self._process is None:
                starts += 1
                if starts > STARTS:
                    break
                self._start(min(LOADING, in_all))
                began = time.monotonic() if starts == 1 else began  # loading has a time limit of its own
            said.append(self._ask(text, seconds))
            if len(said) == FRUITLESS and all("error" in one for one in said):
                raise self._refused(f"its first {FRUITLESS} answers all raised: {said[0]['error']}")
            if len(said) == HOPELESS and all("slow" in one for one in said):
                raise self._refused(f"no answer within {seconds:g} s, {HOPELESS} times")
            if len(said) == HOPELESS and all("died" in one for one in said):
                raise self._refused(f"its process ended at each of {HOPELESS} answers: {said[0]['error']}")
        return said

    def _start(self, limit: float) -> None:
        # A session of its own, so that whatever the function starts ends with it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rlclinic.grader", self._verifier],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_paths()), "PYTHONIOENCODING": "utf-8"},
            start_new_session=os.name == "posix",
        )
        self._lines = queue.Queue()
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        answer = self._next(limit)
        if answer is None:
            code = self._stop()
            what = f"ended with exit code {code}" if code is not None else f"was not ready after {limit:g} s"
            raise self._refused(f"its process {what} while loading {self._verifier}")
        if "problem" in answer:
            self._stop()
            raise self._refused(str(answer["problem"]))

    def _ask(self, text: Text, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        asked = json.dumps({"prompt": text.prompt, "answer": text.answer, "truth": text.truth})
        with contextlib.suppress(OSError, ValueError):  # a dead process is told by what it does not answer
            self._process.stdin.write(asked + "\n")
            self._process.stdin.flush()
        answer = self._next(seconds)
        if answer is not None:
            return answer
        code = self._stop()
        return {"slow": True} if code is None else {"error": f"the process ended with exit code {code}", "died": True}

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """The next line of the process; None when it hangs or has ended."""
        try:
            line = self._lines.get(timeout=seconds)
            found = None if line is None else json.loads(line)
        except (queue.Empty, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _stop(self) -> int | None:
        """End the process; its exit code where it had ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2 if self._lines.empty() else 0.0)
        code = process.poll()
        with contextlib.suppress(OSError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()
        return code

    def _refused(self, found: str) -> BadRequest:
        return BadRequest(f"a verifier that can be called: {self._verifier}", found, hint=_USE)


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while line := stream.readline(_LONGEST_LINE):
            lines.put(line)
    lines.put(None)


def _paths() -> list[str]:
    """Where the other process looks for modules: the user's own paths, and ours behind them."""
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return [*given, str(Path(__file__).resolve().parents[1])]
