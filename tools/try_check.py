"""What one check says, in half a minute: of simulated runs, healthy and sick, and of the labelled logs where they are.

    python tools/try_check.py NAME [CORPUS]

The check alone is asked, so nothing here is a figure for docs/accuracy.md; that is measured by tools/measure.py. The exit
code is 1 when it warns of a healthy run or breaks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import labelled
from rlclinic import vitals
from rlclinic.checks import BY_NAME, examine
from rlclinic.errors import CannotRead, nearest
from rlclinic.model import Examination, Run, Severity
from rlclinic.readers import read
from rlclinic.simulate import as_run, healthy, scenario, scenarios

SHAPES = ((150, 1), (1500, 10))
"""Steps and logging interval of the simulated runs."""


def simulated(seeds: int = 1) -> Iterator[tuple[str, Run]]:
    """(group and name, run) for every healthy family and every illness."""
    fine = set(healthy())
    for name in sorted(scenarios(), key=lambda one: (one not in fine, one)):
        for steps, every in SHAPES:
            for seed in range(seeds):
                made = scenario(name, steps=steps, seed=500 + seed, log_every=every)
                kind = "healthy" if name in fine else "sick"
                yield f"{kind} {name}", as_run(made)
                yield f"{kind} {name}, everything logged", made.run


def logs(corpus: Path) -> Iterator[tuple[str, Run]]:
    """(case, run) for every labelled log that can be read."""
    for case in labelled.cases(corpus):
        with suppress(CannotRead):
            yield str(case), read(case.files)


def told(outcome: Examination) -> str:
    """Severity and words where there is a finding, else why there is none."""
    finding = outcome.finding
    if finding is None or finding.severity is None:
        return ""
    return f"{finding.severity.label}: {finding.says}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("corpus", nargs="?", type=Path, default=labelled.CORPUS)
    given = parser.parse_args(arguments)
    if given.name not in BY_NAME:
        near = nearest(given.name, BY_NAME)
        parser.error(f"no check {given.name!r}; {f'did you mean {near[0]}?' if near else 'rlclinic checks lists them'}")
    one, bad = BY_NAME[given.name], 0
    for title, runs in (("simulated runs", simulated()), ("labelled logs", logs(given.corpus))):
        counts: dict[str, int] = {}
        for name, run in runs:
            outcome = examine(one, vitals.complete(run))[0]
            words = told(outcome)
            kind = words.partition(":")[0] or outcome.outcome
            counts[kind] = counts.get(kind, 0) + 1
            loud = outcome.finding is not None and (outcome.finding.severity or 0) >= Severity.WARNING
            bad += outcome.outcome == "failed" or (loud and name.startswith("healthy "))
            if words or outcome.outcome == "failed":
                print(f"  {name}  {words or outcome.says}", flush=True)
        print(f"{title}: " + ", ".join(f"{kind} {n}" for kind, n in sorted(counts.items())), flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
