"""From runs that the user calls healthy to a baseline: are they healthy and alike, which limits move, where they stayed."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

from rlclinic import vitals
from rlclinic.answers import agreement
from rlclinic.baseline.bands import Course, bands, extent
from rlclinic.baseline.moving import Played, Reach, movable, reaches, start, widened
from rlclinic.baseline.recipe import HARD, Recipe, differ, recipe_of, shared
from rlclinic.checks import BY_NAME, CHECKS
from rlclinic.checks.form import Limit
from rlclinic.diagnose import diagnose, resolve
from rlclinic.differential import MEASUREMENT
from rlclinic.errors import BadRequest
from rlclinic.model import Diagnosis, Run, Severity

MOST_RUNS = 100
"""Runs that one baseline is learned from (ours)."""
_HINT = 400
"""Characters up to which a hint is shown whole."""
NAME = 72
"""Characters of the name of a run that are kept."""


@dataclass(frozen=True)
class Learned:
    """A limit that the healthy runs justify moving: its new numbers as a limits file gives them, those it has been moved
    from, the series it was seen in with their estimators, and why."""

    check: str
    limit: str
    numbers: Mapping[str, float]
    """By grade; under ``value`` where the limit is a single one."""
    before: Mapping[str, float]
    seen_in: Mapping[str, str]
    because: str


@dataclass(frozen=True)
class Source:
    """One run behind a baseline: its name alone, never where it lies, its rows and the steps of the whole of it."""

    name: str
    rows: int
    steps: float


@dataclass(frozen=True, eq=False)
class Learning:
    """What ``learn`` makes and a file holds: the recipe, the runs, limits that move, bands by series."""

    recipe: Recipe
    runs: tuple[Source, ...]
    limits: tuple[Learned, ...] = ()
    bands: Mapping[str, Course] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    """Checks that warn of these runs and were told to be wrong about them."""
    told: tuple[str, ...] = ()
    """What whoever learned it must know; not kept in the file."""

    @property
    def usual(self) -> float:
        """The steps of a whole run of these, the median; 0 without runs."""
        steps = sorted(run.steps for run in self.runs)
        return steps[len(steps) // 2] if steps else 0.0

    def given(self) -> dict[str, dict[str, Any]]:
        """The moved limits as ``diagnose`` takes them."""
        made: dict[str, dict[str, Any]] = {}
        for one in self.limits:
            single = "value" in one.numbers
            made.setdefault(one.check, {})[one.limit] = one.numbers["value"] if single else dict(one.numbers)
        return made


def learn(runs: Sequence[Run], *, accept: Collection[str] = (), anyway: bool = False) -> Learning:
    """The baseline of ``runs``, which the user calls healthy.

    A run that a check warns of, or that cannot be judged, is refused: unless ``accept`` names the check, whose limits are
    then moved so far that it is silent (an error where no bounded widening does that), or ``anyway`` takes every run as it
    is and moves what can be moved. Raises BadRequest for unhealthy runs, runs of different recipes, and a run given twice;
    UnknownName for a check to accept that does not exist.
    """
    if not runs:
        raise BadRequest("a healthy run", "none", hint="rlclinic baseline learn RUN... -o my.toml")
    if len(runs) > MOST_RUNS:
        raise BadRequest(f"at most {MOST_RUNS} runs", f"{len(runs)}")
    accepted = {one.name for one in resolve(accept)}
    diagnoses = [diagnose(run) for run in runs]
    complete = [diagnosis.run for diagnosis in diagnoses]
    names = _names(complete)
    _different(complete, names)
    recipe = _alike(complete, names)
    loud = [_loud(diagnosis) for diagnosis in diagnoses]
    if not anyway:
        _healthy(diagnoses, loud, names, accepted)
    dead = [name for name, run in zip(names, complete, strict=True) if run.kind != "rl" or not len(run.steps)]
    if dead:
        raise BadRequest("runs with training steps", f"{_listed(dead)} without any")
    fired = {check for one in loud for check in one}
    wanted = [one.name for one in CHECKS if movable(one) and (one.name in fired or not _of_measure(one.name))]
    played = [Played(agreement.own(d.run), d.checks) for d in diagnoses]
    found, stuck = reaches(wanted, played)
    fixed = sorted((fired & set(stuck)) | {check for check in fired if not movable(BY_NAME[check])})
    hopeless = [check for check in fixed if check in accepted]
    if hopeless and not anyway:
        raise BadRequest(
            "limits that make these runs healthy",
            _hopeless(hopeless, loud, names),
            hint="leave those runs out, or --anyway",
        )
    limits = tuple(_learned(reach, played) for reach in found if reach.factor > 1.0)
    told = [f"{check} goes on warning of such runs: no limit of it may move as far" for check in fixed]
    told += [f"the runs differ in {name}" for name in recipe.varied]
    if len(runs) < 3:
        told.append(
            f"learned from {_runs(len(runs))}: the margin is wide, and the bands show little; five or more are better"
        )
    sources = tuple(
        Source(name, len(run.steps), extent(run)) for name, run in sorted(zip(names, complete, strict=True))
    )
    return Learning(recipe, sources, limits, bands(complete), tuple(sorted(fired)), tuple(told))


def _names(runs: Sequence[Run]) -> list[str]:
    """The names of the runs without folders, told apart where they are the same."""
    made: list[str] = []
    for run in runs:
        name = "".join(
            c if c.isprintable() else " " for c in run.name.replace("\\", "/").rstrip("/").rpartition("/")[2]
        )
        name = name[:NAME].strip() or "run"
        known = sum(other == name or other.startswith(f"{name} (") for other in made)
        made.append(f"{name} ({known + 1})" if known else name)
    return made


def _different(runs: Sequence[Run], names: Sequence[str]) -> None:
    """One run given twice would pass for agreement."""
    seen: dict[int, str] = {}
    for run, name in zip(runs, names, strict=True):
        mark = 0
        for metric in sorted(run.columns):
            mark = zlib.crc32(run[metric].values.tobytes(), zlib.crc32(metric.encode(), mark))
        if mark in seen and run.columns:
            raise BadRequest(
                "different runs", f"{seen[mark]} and {name} hold the same numbers", hint="give each run once"
            )
        seen[mark] = name


def _alike(runs: Sequence[Run], names: Sequence[str]) -> Recipe:
    """The recipe of all runs; raises BadRequest where they differ in what makes runs comparable."""
    recipes = [recipe_of(run) for run in runs]
    for recipe, name in zip(recipes[1:], names[1:], strict=True):
        for first, its in zip(recipes, names, strict=False):
            apart = differ(first, recipe, tuple(HARD))
            if apart:
                what = "; ".join(f"{HARD[key]}: {a} in {its}, {b} in {name}" for key, a, b in apart)
                raise BadRequest("runs of one recipe", what, hint="one baseline for each recipe")
    return shared(recipes)


def _loud(diagnosis: Diagnosis) -> dict[str, str]:
    """What a diagnosis warns of, by check in words; what it says of the log alone left out."""
    return {
        f.check: f"{f.check} ({f.severity}): {f.says}"
        for f in diagnosis.findings
        if (f.severity or 0) >= Severity.WARNING and not _of_measure(f.check)
    }


def _of_measure(check: str) -> bool:
    return BY_NAME[check].family == MEASUREMENT


def _healthy(
    diagnoses: Sequence[Diagnosis], loud: Sequence[Mapping[str, str]], names: Sequence[str], accepted: Collection[str]
) -> None:
    """Raises BadRequest where a run is not healthy and nobody said that it is all the same."""
    said, checks = [], []
    for diagnosis, warned, name in zip(diagnoses, loud, names, strict=True):
        open_ = [check for check in warned if check not in accepted]
        if open_:
            said.append(f"{name}: {_cut(warned[open_[0]])}" + (f" and {len(open_) - 1} more" if len(open_) > 1 else ""))
            checks += [check for check in open_ if check not in checks]
        elif diagnosis.verdict.severity == "undecided":
            said.append(f"{name} cannot be judged: {_cut(diagnosis.verdict.says)}")
    if said:
        fixed = [check for check in checks if not movable(BY_NAME[check])]
        accept = f"--accept {','.join([*checks, *sorted(accepted)])}"
        if fixed or len(accept) > _HINT:
            hint = "leave those runs out, or --anyway"
        else:
            hint = f"{accept} if these runs are well all the same, or --anyway" if checks else "--anyway"
        raise BadRequest("runs that are healthy", _listed(said), hint=hint)


def _cut(text: str) -> str:
    """A bounded sentence that ends with a whole word."""
    return shorten(text, 160, placeholder=" ...")


def _hopeless(checks: Sequence[str], loud: Sequence[Mapping[str, str]], names: Sequence[str]) -> str:
    said = []
    for check in checks:
        name = next(name for warned, name in zip(loud, names, strict=True) if check in warned)
        why = "within a bounded widening of its limits" if movable(BY_NAME[check]) else "since no limit of it may move"
        said.append(f"{name} is not healthy by {check}, {why}")
    return _listed(said)


def _learned(reach: Reach, played: Sequence[Played]) -> Learned:
    """The limit at its new numbers, rounded away from the built-in ones to three digits."""
    limit = reach.limit
    moved = widened(limit, reach.factor)
    numbers = moved if isinstance(moved, Mapping) else {"value": moved}
    old = {"value": limit.value} if limit.value is not None else {s.label: v for s, v in limit.grades.items()}
    before = {grade: float(old[grade] or 0.0) for grade in numbers}
    kept = {g: _rounded(limit, v) for g, v in numbers.items() if v != before[g]}
    seen = _seen_in(reach, played)
    return Learned(
        reach.check, limit.name, kept, {g: before[g] for g in kept}, seen, _because(reach, limit, len(reach.factors))
    )


def _rounded(limit: Limit, value: float) -> float:
    near = float(f"{value:.3g}")
    up = limit.worse == "above"
    if (near < value) == up and near != value:
        near = float(f"{near * (1.005 if up else 0.995):.3g}")
    return near


def _seen_in(reach: Reach, played: Sequence[Played]) -> dict[str, str]:
    """The series that the check read in the runs, with how each was estimated."""
    seen: dict[str, str] = {}
    for one in played:
        finding = next((e.finding for e in one.said if e.check == reach.check), None)
        for metric in () if finding is None else finding.metrics:
            column = one.run.get(metric)
            if column is not None:
                seen.setdefault(metric, column.estimator)
    return seen


def _because(reach: Reach, limit: Limit, runs: int) -> str:
    at = start(limit)
    farthest = widened(limit, reach.farthest)
    reached = farthest if isinstance(farthest, float) else farthest[Severity.WARNING.label]
    word = "above" if limit.worse == "above" else "below"
    who = f"{reach.beyond} of {_runs(runs)}" if runs > 1 else "the healthy run"
    if reach.beyond:
        says = f"{who} {'is' if reach.beyond == 1 else 'are'} {word} {at:g}, up to {reached:.3g}"
        says = says.replace("up to", "down to") if word == "below" else says
    else:
        says = (
            f"the nearest of {_runs(runs)} reaches {reached:.3g} of {at:g}"
            if runs > 1
            else f"{who} reaches {reached:.3g}"
        )
    return f"{limit.says}: {says}; the rest is margin for a next run"


def _runs(count: int) -> str:
    return "1 healthy run" if count == 1 else f"{count} healthy runs"


def _listed(items: Sequence[str], most: int = 3) -> str:
    return "; ".join(items[:most]) + (f"; and {len(items) - most} more" if len(items) > most else "")


def completed(run: Run) -> Run:
    """``run`` with what follows from it, as its recipe and bands are read."""
    return vitals.complete(run)
