"""Play finished logs as if they were growing: what would have been said, when, and what of it was right.

    python tools/replay.py [LOG or DIRECTORY ...]      what is said of each while it grows
    python tools/replay.py --healthy RUNS [--seed N]    how many simulated healthy runs of 2,000 steps raise a warning
    python tools/replay.py --sick RUNS [--seed N]       delays and wrong openings on simulated sick runs

Without arguments every labelled log is played. A log is read once and cut at every look (``Run.upto``), so that a resume
is seen as the finished log shows it; tests play such logs row by row.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import labelled
from rlclinic.checks import BY_NAME
from rlclinic.diagnose import diagnose
from rlclinic.errors import CannotRead
from rlclinic.live.course import FIRST, Course, gap
from rlclinic.live.events import Event
from rlclinic.model import Diagnosis, Run, Severity
from rlclinic.readers import read
from rlclinic.simulate import Scenario, as_run, healthy, scenario, scenarios

HEALTHY, SICK = 200, 1
"""Simulated healthy runs, and seeds of every illness."""
STEPS, SICK_STEPS = 2000, 600
"""Steps of a simulated healthy and of a simulated sick run."""
MEMORY = (0.5, 0.9)
"""Memory of the noise of simulated runs, in turn."""


@dataclass
class Played:
    """One log, played to its end. ``events`` are those of the looks before the last one, ``last`` those of the last."""

    name: str
    rows: int
    end: float
    looks: int
    events: list[Event]
    last: list[Event]
    batch: dict[str, Severity]
    """Findings at warning or worse of the whole log."""
    open: dict[str, Severity]
    """What stands after the last look."""

    @property
    def opened(self) -> list[Event]:
        """Findings opened before the last look."""
        return [event for event in self.events if event.kind == "opened"]

    @property
    def unfounded(self) -> list[Event]:
        """Of them, those that the diagnosis of the whole log does not hold at warning or worse."""
        return [event for event in self.opened if event.check not in self.batch]


def play(run: Run, name: str = "") -> Played:
    """The run row by row, looked at whenever the course asks for it."""
    steps = run.steps
    return follow(
        lambda rows: diagnose(run if rows >= len(steps) else run.upto(float(steps[rows - 1]))),
        len(steps),
        name or run.name,
    )


def follow(look: Callable[[int], Diagnosis], rows: int, name: str) -> Played:
    """``look`` gives the diagnosis of the first so many of ``rows`` rows."""
    course, events, looks, at = Course(), list[Event](), 1, FIRST
    while at < rows:
        events += course.take(look(at))
        looks += 1
        at += gap(at, course.waiting)
    whole = look(rows)
    last = course.take(whole, final=True)
    steps = whole.run.steps
    return Played(name, rows, float(steps[-1]) if len(steps) else 0.0, looks, events, last, loud(whole), course.open)


def loud(diagnosis: Diagnosis) -> dict[str, Severity]:
    return {
        f.check: f.severity for f in diagnosis.findings if f.severity is not None and f.severity >= Severity.WARNING
    }


def spent(played: Played, onset: float, answers: Iterable[str]) -> float:
    """Share of what was left of the run at ``onset`` that passed before one of ``answers`` was opened; 1 when none was."""
    wanted = set(answers)
    at = min((event.step for event in played.opened if event.check in wanted), default=played.end)
    left = played.end - onset
    return min(max((at - onset) / left, 0.0), 1.0) if left > 0 else 1.0


def share_spent(spans: Sequence[float]) -> dict[str, float]:
    """Number, median and share below a third, of what ``spent`` gave for several runs; and how many reached the end."""
    return {
        "runs": len(spans),
        "median": round(median(spans), 3) if spans else 1.0,
        "early": sum(one < 1 / 3 for one in spans),
        "never": sum(one >= 1.0 for one in spans),
    }


# ---------------------------------------------------------------- simulated runs


def healthy_runs(runs: int, seed: int) -> Iterator[Played]:
    """``runs`` healthy runs, the families and noise levels in turn."""
    families = healthy()
    for i in range(runs):
        row, at = divmod(i, len(families))
        made = scenario(families[at], steps=STEPS, seed=seed + row, phi=MEMORY[(row + at) % 2])
        yield play(as_run(made), families[at])


def of_healthy(played: Iterable[Played]) -> dict[str, Any]:
    """How many healthy runs ever raised a warning, the last look included, and which."""
    runs = list(played)
    told = [{event.check for event in (*one.events, *one.last) if event.kind == "opened"} for one in runs]
    return {
        "runs": len(runs),
        "alarmed": sum(map(bool, told)),
        "unequal": sum(one.open != one.batch for one in runs),
        "checks": dict(Counter(check for one in told for check in one)),
    }


def sick_runs(seeds: int, seed: int) -> Iterator[tuple[Scenario, Played]]:
    """Every illness with ``seeds`` seeds each, the noise levels in turn."""
    for at, name in enumerate(one for one in scenarios() if one not in healthy()):
        for i in range(seeds):
            made = scenario(name, steps=SICK_STEPS, seed=seed + i, phi=MEMORY[(i + at) % 2])
            yield made, play(as_run(made), name)


def of_sick(played: Iterable[tuple[Scenario, Played]]) -> dict[str, Any]:
    """How much passes from the true onset until something true is told; and what is told that is neither true of the run
    nor a consequence of it."""
    runs = list(played)
    spans, wrong = [], list[str]()
    for made, one in runs:
        onsets = [step for step in made.truth.values() if step is not None]
        if onsets:
            spans.append(spent(one, min(onsets), made.truth))
        right = set(made.truth) | consequences(made.truth) | set(made.may)
        wrong += [event.check for event in one.opened if event.check not in right]
    return {
        "runs": len(runs),
        "unequal": sum(one.open != one.batch for _, one in runs),
        "spent": share_spent(spans),
        **_openings([one for _, one in runs]),
        "wrong": len(wrong),
        "checks": dict(Counter(wrong)),
    }


def consequences(roots: Iterable[str]) -> set[str]:
    """Every check that the graph derives from these, directly or through others."""
    seen: set[str] = set()
    stack = list(roots)
    while stack:
        more = set(BY_NAME[stack.pop()].leads_to) - seen
        seen |= more
        stack += more
    return seen


def _openings(runs: Sequence[Played]) -> dict[str, int]:
    again = sum(len(one.opened) - len({event.check for event in one.opened}) for one in runs)
    unfounded = sum(len({event.check for event in one.unfounded}) for one in runs)
    return {"opened": sum(len(one.opened) for one in runs), "unfounded": unfounded, "again": again}


# ---------------------------------------------------------------- labelled logs


@dataclass
class Onset:
    """One finding that a label asks for, since when, and which checks answer it."""

    label: str
    step: float
    answers: tuple[str, ...]


@dataclass
class Asked:
    """What the label of a case says: labelled onsets, and the checks whose warning would be wrong."""

    folder: str
    onsets: list[Onset]
    wrong: frozenset[str]


def labelled_logs(corpus: Path = labelled.CORPUS) -> Iterator[tuple[Asked, Played]]:
    """Every labelled log with rows, played. Of our own runs the rows of metrics alone, with the plan of their trainer."""
    for case in labelled.cases(corpus):
        own = [path for path in case.files if path.name == "metrics.jsonl"] if case.folder == "trl" else []
        label = json.loads((corpus / case.folder / case.name / "label.json").read_text(encoding="utf-8"))
        try:
            run = read(own or case.files)
        except CannotRead:
            continue
        planned = (label.get("config") or {}).get("steps") if own else None
        run = replace(run, planned_steps=planned) if isinstance(planned, int) and not run.planned_steps else run
        if len(run.steps):
            yield asked(case, label), play(run, str(case))


def asked(case: labelled.Labelled, label: Mapping[str, Any]) -> Asked:
    """What a label says of when; findings that its log does not show are left out."""
    rows = [
        row for row in label.get("must") or () if isinstance(row, Mapping) and row.get("visible_in_log") is not False
    ]
    dated = [row for row in rows if isinstance(row.get("from_step"), (int, float))]
    found = [Onset(row["finding"], float(row["from_step"]), labelled.satisfying(row["finding"])) for row in dated]
    return Asked(case.folder, found, case.wrong)


def of_logs(played: Iterable[tuple[Asked, Played]]) -> dict[str, Any]:
    """Delays from the labelled onsets, and openings that a label contradicts or that the whole log does not hold."""
    runs = list(played)
    dated = [(label, one) for label, one in runs if label.onsets]
    whole = []
    for label, one in dated:
        answers = {check for onset in label.onsets for check in onset.answers}
        whole.append(spent(one, min(onset.step for onset in label.onsets), answers))
    wrong = [event.check for label, one in runs for event in one.opened if event.check in label.wrong]
    return {
        "runs": len(runs),
        "unequal": sum(one.open != one.batch for _, one in runs),
        "spent": share_spent(whole),
        "findings": share_spent(
            [spent(one, onset.step, onset.answers) for label, one in dated for onset in label.onsets]
        ),
        **_openings([one for _, one in runs]),
        "wrong": len(wrong),
        "checks": dict(Counter(wrong)),
    }


def everything(corpus: Path, kept: Mapping[str, Any], tell: Callable[[str], None] = print) -> dict[str, Any]:
    """All figures of docs/accuracy.md on runs that go on (about an hour of one core); those of labelled logs are ``kept``
    where there are none."""
    figures = {"healthy": of_healthy(healthy_runs(HEALTHY, 80_000))}
    tell(f"healthy runs, row by row: {figures['healthy']}")
    figures["sick"] = of_sick(sick_runs(SICK, 90_000))
    tell(f"sick runs, row by row: {figures['sick']}")
    logs = of_logs(labelled_logs(corpus))
    figures["logs"] = logs if logs["runs"] else kept.get("logs", logs)
    tell(f"labelled logs, row by row: {figures['logs']}")
    return figures


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--healthy", type=int, metavar="RUNS")
    parser.add_argument("--sick", type=int, metavar="SEEDS")
    parser.add_argument("--seed", type=int, default=70_000)
    given = parser.parse_args(arguments)
    for path in given.paths:
        print(table(play(read([path]), str(path))))
    if given.healthy:
        print(json.dumps(of_healthy(healthy_runs(given.healthy, given.seed)), indent=1))
    if given.sick:
        print(json.dumps(of_sick(sick_runs(given.sick, given.seed)), indent=1))
    if given.paths or given.healthy or given.sick:
        return 0
    for label, played in labelled_logs():
        print(table(played))
        for one in label.onsets:
            print(
                f"  label {one.label} from step {one.step:g}: {spent(played, one.step, one.answers):.0%} of the rest spent"
            )
        print(*(f"  WRONG {event.check}\n" for event in played.opened if event.check in label.wrong), sep="", end="")
    return 0


def table(played: Played) -> str:
    """What was said of one log, one event a line."""
    unfounded = {event.check for event in played.unfounded}
    lines = [f"{played.name}: {played.rows} rows up to step {played.end:g}, {played.looks} looks"]
    for event in (*played.events, *played.last):
        mark = "  not in the end" if event.kind == "opened" and event.check in unfounded else ""
        onset = "" if event.onset is None else f" since {event.onset.step:g}"
        lines.append(f"  {event.step:>8g}  {event.kind:<8} {event.severity.label:<8} {event.check}{onset}{mark}")
    if played.open != played.batch:
        lines.append(f"  UNEQUAL: {played.open} stand, the whole log has {played.batch}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
