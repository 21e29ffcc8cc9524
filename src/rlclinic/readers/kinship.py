"""Which logs belong to one run, and which of them are forms of the same rows or parts that follow each other."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from rlclinic import names
from rlclinic.errors import CannotRead
from rlclinic.model import Column, Floats, Warn
from rlclinic.readers.choice import chosen, command
from rlclinic.readers.log import Log
from rlclinic.readers.translate import Translated

Kinship: TypeAlias = Literal["same", "follows", "other", "unknown"]

TRUST = {
    **dict.fromkeys(("wandb", "swanlab", "jsonl", "mlflow", "trackio", "comet", "parquet"), 0),
    **dict.fromkeys(("json_history", "csv", "tensorboard"), 1),
    "trainer_state": 2,
    "console": 3,
    **dict.fromkeys(("summary", "table"), 4),
}
"""Which form of a run is believed where several overlap: complete and of full precision first."""

TELLING = ("reward.mean", "grad.norm", "length.response.mean")
"""Metrics of which one that differs tells two runs apart: their meaning does not hang on the form of a log."""
COMPARED = (*TELLING, "entropy.mean", "kl.ref", "loss.total")
"""Metrics by which two logs are taken for one run or two: they differ between runs and do not hang on the machine."""
ENOUGH = 5
"""Values that two logs must have in common to tell whether they are of one run (ours: fewer may agree by chance)."""
ANEW = 0.4
"""Share of a run's rows that a resumed part may write anew (ours: checkpoints are mostly more frequent than that)."""
LAGGING = 20
"""Rows by which a form of a run may end before the run without being that of an earlier attempt (ours: what a buffer
lost)."""
LONGEST = 2_000
"""Most rows compared one with all others (ours: 4 million comparisons a metric)."""


@dataclass(frozen=True, eq=False)
class Held:
    """One log and what it is to the run: ``unit`` is how a user names it alone, empty where he did so himself;
    ``standing`` is 2 for the trainer's own state, 1 for its other logs, 0 for what a tracker holds; ``path`` is its file."""

    log: Log
    unit: str = ""
    standing: int = 1
    path: Path | None = None
    evaluates: bool = False
    """True for the evaluations of the run whose training is logged beside them."""

    @property
    def trust(self) -> int:
        return TRUST.get(self.log.format.split(" ")[0], 2)

    @property
    def name(self) -> str:
        return Path(self.log.path).name if "://" not in self.log.path else self.log.path


def of_one_trainer(logs: list[Held], given: str | None, warnings: list[Warn]) -> list[Held]:
    """The logs that the trainer of the first recognised one could have written; others are another run, and said so."""
    if len(logs) < 2 or given is not None:
        return logs
    found = [names.detect(list(h.log.series), text_versions=h.log.versions, complete=h.log.complete) for h in logs]
    # TRL, Unsloth and ms-swift write largely the same keys: one run may be taken for either, file by file.
    kin = [None if f is None else _KIN.get(f.name, f.name) for f in found]
    first = next((name for name in kin if name is not None), None)
    for held, one, name in zip(logs, found, kin, strict=True):
        if one is not None and name != first:
            says = f"{held.name} was written by {one.title}, unlike {logs[0].name}: left out"
            warnings.append(Warn("sources_disagree", says))
    return [held for held, name in zip(logs, kin, strict=True) if name in (None, first)]


_KIN = {**dict.fromkeys(("unsloth", "ms_swift", "trl_ppo", "hf_trainer", "llama_factory"), "trl"), "rllm": "verl"}


def of_one_run(
    logs: Sequence[Held],
    translated: Sequence[Translated],
    run: str | None,
    warnings: list[Warn],
    top_of: Path | None = None,
) -> list[int]:
    """Which logs are of one run, best first; the others are named in ``warnings`` and left out.

    Logs of a directory that are of several runs are left out only where the trainer's own log tells which of them is
    meant; else CannotRead lists the runs. ``run`` names one of them, ``top_of`` the directory that holds them.
    """
    # Of equals the longer one tells most; of those that the user named himself the first is believed.
    rank = sorted(
        range(len(logs)),
        key=lambda k: (-logs[k].standing, logs[k].trust, -_extent(translated[k]) if logs[k].unit else 0),
    )
    held_out = [k for k in rank if logs[k].evaluates]
    rank = [k for k in rank if k not in held_out] or rank
    copies = sum(1 for held in logs if held.standing == 0 and held.unit)
    families: list[list[int]] = []
    for k in rank:
        kin = [[kinship(logs[i], translated[i], logs[k], translated[k]) for i in family] for family in families]
        home = next((f for f, each in zip(families, kin, strict=True) if "same" in each), None)
        fits = [f for f, each in zip(families, kin, strict=True) if "other" not in each]
        if copies > 1 and logs[k].standing == 0 and logs[k].unit:
            # Of several runs of a tracker only what shows that it belongs here does.
            fits = [f for f in fits if "follows" in kin[families.index(f)]]
        home = home or next(iter(fits), None)
        if home is None:
            families.append([k])
        else:
            home.append(k)
    main = families[0] if run is None else _named(families, logs, run)
    top = logs[main[0]].standing
    rivals = [f for f in families if f is not main and logs[f[0]].unit and logs[f[0]].standing >= max(top, 1)]
    if top == 0:
        rivals = [f for f in families if f is not main and logs[f[0]].unit]
    if rivals and run is None:
        _several([main, *rivals], logs, translated, top_of)
    for family in families:
        if family is main:
            continue
        for k in family:
            clash = next((key for i in main if (key := _clash(translated[i], translated[k]))), "")
            shared = [i for i in main if logs[i].log.path == logs[k].log.path and logs[i].unit]
            label = f"run {logs[k].unit} of {logs[k].name}" if shared else logs[k].name
            says = f"{label} disagrees with {logs[main[0]].name}" + (f" on {clash}" if clash else "")
            if _named_apart(logs[main[0]].log, logs[k].log):
                says = f"{logs[k].name} is of run {logs[k].log.run}, {logs[main[0]].name} of {logs[main[0]].log.run}"
            joined = f"; run {logs[shared[0]].unit} of it is joined" if shared else ""
            warnings.append(Warn("sources_disagree", f"{says}: it is taken for another run and left out{joined}"))
    main = [*main, *(k for k in held_out if k not in main)]
    return sorted(main, key=lambda k: (logs[k].evaluates, logs[k].trust, -_extent(translated[k])))


def _named(families: list[list[int]], logs: Sequence[Held], run: str) -> list[int]:
    units = {logs[k].unit: family for family in families for k in family if logs[k].unit}
    if len(families) < 2 or not units:
        return families[0]
    called = [family for family in families if any(run in (_called(logs[k]), _offered(logs[k])) for k in family)]
    if len(called) == 1:
        return called[0]
    if run not in units and not any(unit.startswith(run) for unit in units):
        return families[0]  # it named a run inside a source, which its reader has chosen
    return units[chosen("the directory", units, run)]


def _called(held: Held) -> str:
    """The name that a tracker's run has beside its id."""
    return held.log.run or str(held.log.facts.get("run", ""))


def _offered(held: Held) -> str:
    """What an error calls a run: its id, with its name where it has one."""
    name = _called(held)
    return f"{held.unit} ({name})" if name and name != held.unit else held.unit


def _several(
    families: list[list[int]], logs: Sequence[Held], translated: Sequence[Translated], top: Path | None
) -> None:
    units = [logs[family[0]].unit for family in families]
    offered = sorted(_offered(logs[family[0]]) for family in families)
    extents = (
        f"{unit}: steps {_first(translated[f[0]]):g} to {_last(translated[f[0]]):g}"
        for unit, f in zip(units[:6], families, strict=False)
    )
    raise CannotRead(
        "the directory of one run",
        f"{len(families)} runs that disagree ({'; '.join(extents)})",
        choices=offered,
        hint=command(top, sorted(units)[0]) if top is not None else f"--run {shlex.quote(sorted(units)[0])}",
    )


def kinship(a: Held, one: Translated, b: Held, two: Translated) -> Kinship:
    """How log ``b`` stands to log ``a``: the same rows in another form, a part before or after it, or another run."""
    if _named_apart(a.log, b.log):
        return "other"
    if not _extent(one) or not _extent(two):
        return "unknown"
    count = _agreement(one, two)[0]
    if _clash(one, two):
        if _resumes(one, two, bool(a.unit and b.unit)) or _resumes(two, one, bool(a.unit and b.unit)):
            return "follows"
        loose = [h for h in (a, b) if not sure(h.log)]
        return "same" if loose and _in_order(one, two) else "other"
    apart = _first(two) > _last(one) or _first(one) > _last(two)
    return "same" if count >= ENOUGH else "follows" if apart else "unknown"


def _named_apart(one: Log, two: Log) -> bool:
    """True when two files of one form name different runs (charts of one tracker)."""
    return bool(one.run and two.run) and one.run != two.run and one.format == two.format


def parts(logs: Sequence[Held], translated: Sequence[Translated]) -> tuple[list[int], list[int]]:
    """(parts of the run by rising first step, other forms of them), for logs of one run with the best first.

    A log that begins later and ends later than one before it goes on where that was left, unless it is a coarser form
    of it that was merely kept for longer.
    """
    spine: list[int] = [0] if logs else []
    forms: list[int] = []
    for k in range(1, len(logs)):
        begins = [i for i in spine if _begins_later(translated[i], translated[k])]
        before = [i for i in spine if _begins_later(translated[k], translated[i])]
        alike = any(logs[i].log.format != logs[k].log.format and agrees(translated[i], translated[k]) for i in spine)
        reaches = max(_last(translated[i]) for i in spine)
        starts = min(_first(translated[i]) for i in spine)
        goes_on = bool(begins) and _last(translated[k]) > reaches
        goes_before = len(before) == len(spine) and _first(translated[k]) < starts
        if (
            sure(logs[k].log)
            and (goes_on or goes_before)
            and not alike
            and _shares(translated[spine[0]], translated[k])
        ):
            spine.append(k)
        else:
            forms.append(k)
    return sorted(spine, key=lambda i: _first(translated[i])), forms


def agrees(one: Translated, two: Translated) -> bool:
    """True when two logs report the same values at the same steps, so that the steps of one vouch for the other's."""
    count, share = _agreement(one, two)
    return count >= ENOUGH and share >= 0.9


def outlived(translated: Sequence[Translated]) -> list[bool]:
    """For each log of one run whether the run went on after it: a later part ends later, or the run got far beyond it."""
    spoken = [one for one in translated if _extent(one)]
    reached = max((_last(one) for one in spoken), default=0.0)

    def left(one: Translated) -> bool:
        if not _extent(one) or _last(one) >= reached:
            return False
        widest = max(_series(one), key=len)
        usual = float(np.median(np.diff(widest.steps))) if len(widest) > 1 else 1.0
        later = any(_begins_later(one, two) and _last(two) > _last(one) + usual for two in spoken)
        return later or reached - _last(one) > LAGGING * usual

    return [left(one) for one in translated]


def sure(log: Log) -> bool:
    """True when the steps of a log are stated in it and not counted from the order of its rows."""
    return not log.step_source.startswith("row order")


def _shares(one: Translated, two: Translated) -> bool:
    """True when two logs report the same things; a log of evaluations only is no part of the training log."""
    return len(one.columns.keys() & two.columns.keys()) * 2 >= min(len(one.columns), len(two.columns))


def _series(one: Translated) -> Iterator[Column]:
    yield from one.columns.values()
    yield from (part.mean for part in one.components.values())


def _extent(one: Translated) -> int:
    return max((len(column) for column in _series(one)), default=0)


def _first(one: Translated) -> float:
    return min((float(column.steps[0]) for column in _series(one) if len(column)), default=0.0)


def _last(one: Translated) -> float:
    return max((float(column.steps[-1]) for column in _series(one) if len(column)), default=0.0)


def _begins_later(one: Translated, two: Translated) -> bool:
    """True when ``two`` starts in the course of ``one`` or behind it, not merely a row or two after its start."""
    if not _extent(one) or not _extent(two):
        return False
    widest = max(_series(one), key=len)
    usual = float(np.median(np.diff(widest.steps))) if len(widest) > 1 else 1.0
    return _first(two) > _first(one) + 2 * usual


def _resumes(one: Translated, two: Translated, found: bool) -> bool:
    """True when ``two`` starts in the course of ``one``; of logs that were merely ``found`` beside each other only when
    it writes little of it anew, since a run that branches off another's checkpoint starts in its course too."""
    widest = max(_series(one), key=len)
    anew = int((widest.steps >= _first(two)).sum())
    return _begins_later(one, two) and (not found or anew <= ANEW * len(widest))


def _common(one: Translated, two: Translated) -> Iterator[tuple[str, str, Floats, Floats]]:
    """(metric, key, values, values) of every metric that moves, at the steps that both logs have."""
    for metric in COMPARED:
        if metric not in one.columns or metric not in two.columns:
            continue
        a, b = one.columns[metric], two.columns[metric]
        if max(a.resolution, b.resolution) > 1e-3 and metric == "loss.total":
            continue
        _, i, j = np.intersect1d(a.steps, b.steps, assume_unique=True, return_indices=True)
        if len(i) and (np.ptp(a.values) > 0 or np.ptp(b.values) > 0 or a.values[0] != b.values[0]):
            yield metric, b.key, a.values[i], b.values[j]


def _agreement(one: Translated, two: Translated) -> tuple[int, float]:
    """How many values of common steps were compared, and the share of them that are equal to the digits of both."""
    near = [_near(a, b) for _, _, a, b in _common(one, two)]
    every = np.concatenate(near) if near else np.empty(0)
    return len(every), float(every.mean()) if len(every) else 0.0


def _clash(one: Translated, two: Translated) -> str:
    """The key on which two logs report different values for most of their common steps; empty without such.

    One telling metric of enough steps is proof; of fewer steps all metrics together are.
    """
    differ = [(metric, key, len(a)) for metric, key, a, b in _common(one, two) if _near(a, b).mean() < 0.5]
    sure = next((key for metric, key, count in differ if metric in TELLING and count >= ENOUGH), "")
    count, share = _agreement(one, two)
    return sure or (differ[0][1] if differ and count >= ENOUGH and share < 0.5 else "")


def _near(a: Floats, b: Floats) -> Floats:
    return np.isclose(a, b, rtol=0.02, atol=2e-3, equal_nan=True).astype(np.float64)


def _in_order(one: Translated, two: Translated) -> bool:
    """True when most rows of one log are found in the other under other steps: one of them only counts its rows."""
    shared = [m for m in COMPARED if m in one.columns and m in two.columns]
    shared = [m for m in shared if len(np.unique(one.columns[m].values[:LONGEST])) > ENOUGH]
    if len(shared) < 2:
        return False
    steps = [_intersection([t.columns[m].steps for m in shared])[:LONGEST] for t in (one, two)]
    if min(map(len, steps)) < ENOUGH:
        return False
    equal = np.ones((len(steps[0]), len(steps[1])), dtype=bool)
    for metric in shared:
        a, b = (
            t.columns[metric].values[np.searchsorted(t.columns[metric].steps, s)]
            for t, s in zip((one, two), steps, strict=True)
        )
        equal &= np.isclose(a[:, None], b[None, :], rtol=2e-3, atol=1e-4, equal_nan=True)
    return bool(max(equal.any(axis=0).mean(), equal.any(axis=1).mean()) >= 0.8)


def _intersection(several: Sequence[Floats]) -> Floats:
    steps = several[0]
    for other in several[1:]:
        steps = np.intersect1d(steps, other, assume_unique=True)
    return steps
