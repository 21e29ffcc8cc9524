"""Diagnoses many logs with one tool, in that tool's own environment: its command line, called once per log in one process.

    PYTHON driver.py TOOL JOBS OUT

JOBS and OUT hold a JSON object a line. A job is an ``id`` and ``inputs``, each a list of arguments in the place of
``{path}``; of several inputs the one from which the tool reads most series counts. Nothing of rlclinic is imported here
but where TOOL is rlclinic.
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 120
"""Seconds after which one diagnosis is ended and counts as unreadable."""
Said = dict[str, Any]
"""``findings`` (rule, level as the tool spells it, text, step or None), ``notes`` and ``series``, how many were read."""


class Refused(Exception):
    """The tool gave no diagnosis; the text is what it said."""


def printed(main: Callable[[list[str]], Any], arguments: list[str], fine: tuple[int, ...] = (0, 1)) -> Any:
    """What a command line prints as JSON. Raises Refused for an exit code other than these, or other output."""
    out, errors = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
    if code is not None and code not in fine:
        raise Refused(str(code) if isinstance(code, str) else errors.getvalue().strip())
    try:
        return json.loads(out.getvalue())
    except ValueError:
        raise Refused((errors.getvalue() or out.getvalue()).strip() or "no output") from None


def rlclinic() -> Callable[[list[str]], Said]:
    from rlclinic.cli import cli
    from rlclinic.errors import RlclinicError

    def ask(paths: list[str]) -> Said:
        try:
            told = printed(cli, ["diagnose", *paths, "--format", "json"])
        except RlclinicError as problem:
            raise Refused(problem.message()) from None
        return {
            "findings": [
                [f["check"], f["severity"], f["says"], (f.get("onset") or {}).get("step")] for f in told["findings"]
            ],
            "notes": [note["id"] for note in told.get("notes", ())],
            "series": 1,
        }

    return ask


def rldoctor() -> Callable[[list[str]], Said]:
    from rl_doctor.cli import main

    def ask(paths: list[str]) -> Said:
        told = printed(main, ["diagnose", *paths, "--format", "json"])
        rows = told["findings"]
        return {
            "findings": [[f["detector"], f["severity"], " ".join([f["summary"], *f["evidence"]]), None] for f in rows],
            "series": len(told["run"]["fields"]),
        }

    return ask


def trainspotter() -> Callable[[list[str]], Said]:
    from trainspotter.cli import main

    def ask(paths: list[str]) -> Said:
        told = printed(main, ["analyze", *paths, "--output", "json"])
        rows = told["findings"]
        return {
            "findings": [
                [f["detector"], f["severity"], f"{f['title']}: {f['message']}", f["step_start"]] for f in rows
            ],
            "series": len(told["run"]["metrics"]),
        }

    return ask


def runmedic() -> Callable[[list[str]], Said]:
    from runmedic.cli import main

    def ask(paths: list[str]) -> Said:
        told = printed(main, ["diagnose", *paths, "--json"])
        rows = [f for run in told for f in run["findings"]]
        return {
            "findings": [[f["check"], f["severity"], " ".join([f["title"], *f["evidence"]]), f["step"]] for f in rows],
            "series": sum(len(run["series"]) for run in told),
        }

    return ask


def record(rows: Path, into: Path) -> None:
    """A recording by rlprobe's recorder from a JSON list of rows, each with its ``step``."""
    from rlprobe.recorder import Recorder

    made = json.loads(rows.read_text(encoding="utf-8"))
    recorder = Recorder(
        into,
        algorithm="grpo",
        capture_env=False,
        install_handlers=False,
        queue_size=len(made) + 100,
        flush_interval_s=60,
    )
    for row in made:
        recorder.log_step(row.pop("step"), **row)
    recorder.close()


def rlprobe() -> Callable[[list[str]], Said]:
    import typer
    from rlprobe.cli import doctor
    from rlprobe.storage import RunReader

    def ask(paths: list[str]) -> Said:
        def main(arguments: list[str]) -> int:
            try:
                doctor(Path(arguments[0]), None, True)
            except typer.Exit as ended:
                return ended.exit_code
            return 0

        told = printed(main, paths)
        rows = [[f["signature_id"], f["severity"], f["explanation"], f["first_step"]] for f in told]
        return {"findings": rows, "series": len(RunReader(paths[0]).steps())}

    return ask


TOOLS: dict[str, Callable[[], Callable[[list[str]], Said]]] = {
    "rlclinic": rlclinic,
    "rldoctor": rldoctor,
    "trainspotter": trainspotter,
    "runmedic": runmedic,
    "rlprobe": rlprobe,
}


def overdue(*_: object) -> None:
    raise Refused(f"ended after {LIMIT} s")


def best_of(ask: Callable[[list[str]], Said], inputs: list[list[str]]) -> Said:
    """The diagnosis of the input that the tool reads most of, with its seconds; or only ``error``, the first one said."""
    best: Said = {}
    error = ""
    for paths in inputs:
        signal.alarm(LIMIT)
        began = time.perf_counter()
        try:
            said = ask(paths)
        except Exception as problem:  # whatever breaks in a tool is its result, not ours
            error = error or (str(problem) if isinstance(problem, Refused) else f"{type(problem).__name__}: {problem}")
            continue
        finally:
            signal.alarm(0)
        said["seconds"] = round(time.perf_counter() - began, 4)
        if said["series"] > best.get("series", 0):
            best = said
    return best or {"error": " ".join(error.split())[:200] or "nothing read"}


def main() -> None:
    tool, jobs, out = sys.argv[1:]
    ask = TOOLS[tool]()
    signal.signal(signal.SIGALRM, overdue)
    with (
        open(jobs, encoding="utf-8") as lines,
        open(out, "w", encoding="utf-8") as told,
        tempfile.TemporaryDirectory() as place,
    ):
        for number, line in enumerate(lines):
            job = json.loads(line)
            inputs = job["inputs"]
            if tool == "rlprobe":
                made = Path(job.get("into") or Path(place) / str(number))
                for paths in inputs:
                    record(Path(paths[0]), made)
                inputs = [[str(made)]] if inputs else []
            told.write(json.dumps({"id": job["id"], **best_of(ask, inputs)}) + "\n")
            told.flush()


if __name__ == "__main__":
    main()
