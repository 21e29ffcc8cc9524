"""Open what the user named: every log that can be read, the settings beside them, and what was left with the reason."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rlclinic import names
from rlclinic.errors import BadRequest, CannotRead
from rlclinic.model import Checkpoint, Framework, Source, Warn
from rlclinic.readers import rundir
from rlclinic.readers.answers import saved_files
from rlclinic.readers.answers.files import Content, Sniffer, has_columns, holds_answers, holds_metrics
from rlclinic.readers.binary import eventfile, runlog
from rlclinic.readers.config import FILE_LIMIT, read_config, versions_in
from rlclinic.readers.kinship import Held, of_one_run, of_one_trainer, sure
from rlclinic.readers.log import Log, drained, read_log
from rlclinic.readers.roles import STATES, checkpoints, is_environment, role, size
from rlclinic.readers.roles import evaluates as role_evaluates
from rlclinic.readers.rundir import Found, Tracked
from rlclinic.readers.stores import bundle, offline
from rlclinic.readers.stores.trackers import is_mlflow_run, read_mlflow_tree
from rlclinic.readers.translate import translate

COPIES = 256 << 20
"""Most bytes of trackers' files that are read beside the trainer's own log, which mostly says the same (ours)."""
TRIED = 8
"""Most runs of one database that are held against the trainer's own log (ours)."""
MOVED = 3
"""Most settings in which two folders differ that are taken for parts of one run (ours)."""
NAMED = 10
"""Most folders with runs of their own that are named (ours)."""
_HALVES = frozenset({"trainer", "orchestrator"})
_ADDRESS = r"[A-Za-z][A-Za-z0-9+.\-]{0,30}://"
_WANTED = "a log file, a directory of a run, or - for standard input"


@dataclass
class Opening:
    """What was opened: the logs of one run, best first, the settings, and the files beside them that are no logs.

    ``versions`` are those of libraries that the files of the environment state.
    """

    held: list[Held] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    warnings: list[Warn] = field(default_factory=list)
    beside: list[Source] = field(default_factory=list)
    answers: list[Path] = field(default_factory=list)
    """Files of saved answers, in the order in which they were found."""
    versions: dict[str, str] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    shown: Callable[[str], str] = str
    """A path as the user would write it: of what was unpacked, that of the archive."""


@contextmanager
def opened(
    sources: Sequence[str | Path],
    config: Sequence[str | Path],
    stdin: bytes | None,
    run: str | None,
    framework: str | None = None,
    restep: Callable[[list[Log]], list[Log]] = list,
    columns: Mapping[str, str] | None = None,
) -> Iterator[Opening]:
    """The logs of the one run that ``sources`` hold, the settings and the files of saved answers found beside them; the
    last can be read until the context ends, which deletes what was unpacked.

    ``framework`` is that given by the user; ``restep`` puts the user's own steps in place;
    ``columns`` are the names in his own form of saved answers: files that have them are no logs. Raises CannotRead when no
    source holds metrics or several runs are there and ``run`` names none, BadRequest for an empty name.
    """
    with ExitStack() as unpacked:
        opening = _Opening(run, unpacked, columns)
        laid: list[tuple[Path, Path]] = []
        places: list[Path] = []
        opening.evaluations = _evaluations(sources)
        for source in sources:
            path = Path(source)
            if os.path.isfile(path) and bundle.is_bundle(path, run):
                top, inner = unpacked.enter_context(bundle.laid_out(path))
                laid.append((top, path))
                source = inner
                if run is not None and inner != top and len(sources) == 1:
                    opening.named(run.removeprefix(f"{inner.name}/"))
            if str(source) != "-" and not re.match(_ADDRESS, str(source)):
                places.append(Path(source))
            opening.source(source, stdin, alone=len(sources) == 1)
        opening.group()
        for extra in config:
            opening.configure(Path(extra), must=True)
        found = opening.result(framework, restep)
        found.checkpoints = checkpoints(places)
        for top, path in [*laid, *opening.spooled]:
            before = found.shown
            found = Opening(
                [bundle.renamed_log(held, top, path) for held in found.held],
                found.settings,
                [Warn(one.code, bundle.renamed(one.says, top, path)) for one in found.warnings],
                [bundle.renamed_source(one, top, path) for one in found.beside],
                found.answers,
                found.versions,
                tuple(replace(one, path=bundle.renamed(one.path, top, path)) for one in found.checkpoints),
                lambda says, before=before, top=top, path=path: bundle.renamed(before(says), top, path),  # type: ignore[misc]
            )
        yield found


class _Opening:
    def __init__(self, run: str | None, unpacked: ExitStack, columns: Mapping[str, str] | None = None) -> None:
        self._run = run
        self._columns = columns or {}
        self._unpacked = unpacked
        self.spooled: list[tuple[Path, Path]] = []
        self._held: list[Held] = []
        self._settings: list[tuple[Path, dict[str, object], bool]] = []
        self._warnings: list[Warn] = []
        self._beside: list[Source] = []
        self._answers: list[Path] = []
        self._failures: list[CannotRead] = []
        self._loose: dict[str, list[Path]] = {}
        self._top: Path | None = None
        self._environments: list[Path] = []
        self.evaluations: frozenset[Path] = frozenset()

    def named(self, run: str) -> None:
        """Take ``run`` for the name of the run."""
        self._run = run

    # Sources

    def source(self, source: str | Path, stdin: bytes | None, alone: bool) -> None:
        if not str(source):
            raise BadRequest(_WANTED, "an empty name")
        if str(source) == "-":
            given = standard_input() if stdin is None else stdin
            if self._columns and self._is_own(place := self._spool(given)):
                self._answers.append(place)
                return
            try:
                self._hold(lambda run: read_log(None, given, name="-", run=run), Path("-"), must=True)
            except CannotRead as problem:
                if "saved answers" not in problem.found:
                    raise
                self._answers.append(self._spool(given))
            return
        if re.match(_ADDRESS, str(source)):
            address = str(source)
            # The network's modules cost 40 ms that a file need not pay.
            remote = import_module("rlclinic.readers.stores.remote")
            self._hold(lambda run: remote.fetch(address, run), Path(address), must=True)
            return
        path = Path(source)
        if not os.path.exists(path):
            raise CannotRead(_WANTED, f"{path} does not exist")
        if path.is_dir() and offline.is_dvclive(path):
            self._hold(lambda run: offline.read_dvclive(path), path)
        elif path.is_dir() and not _is_mlflow(path):
            self._directory(path, evaluates=not alone and path in self.evaluations)
        elif path.is_dir():
            self._hold(lambda run: read_mlflow_tree(path, run), path)
        elif is_environment(path.parts[:-1], path.name):
            self._environments.append(path)
        elif rundir.is_config(path):
            self.configure(path)
        elif role((), path.name)[0] == "left":
            self._hold(lambda run: _never_opened(path, run), path)
        elif not alone and (kind := role((), path.name)[0]) in ("events", "runfile"):
            # Files of one run are read together, so that their writers' order in time is known.
            unit = str(path.parent) if kind == "events" else path.name
            self._loose.setdefault(f"{kind}:{unit}", []).append(path)
        elif self._is_own(path) or holds_answers(path) or (_called_answers(path) and not holds_metrics(path)):
            self._answers.append(path)
        else:
            self._hold(lambda run: read_log(path, run=run), path, standing=_standing(path))

    def _is_own(self, path: Path) -> bool:
        return bool(self._columns) and path.is_file() and has_columns(path, self._columns)

    def _spool(self, given: bytes) -> Path:
        """A file with what came from standard input, for as long as the sources are open."""
        place = Path(self._unpacked.enter_context(TemporaryDirectory(prefix="rlclinic-"))) / "input"
        place.write_bytes(given)
        self.spooled.append((place, Path("-")))
        return place

    def group(self) -> None:
        """Read what was given as several files of one run of a tracker."""
        for unit, files in self._loose.items():
            form: rundir.Form = "events" if unit.startswith("events:") else "runfiles"
            beside = [other[0].parent for name, other in self._loose.items() if name != unit]
            around = (files[0].parent.parent, files[0].parent)
            held_out = form == "events" and role_evaluates(files[0].parent.name)
            held_out = held_out and any(one in around or one.parent in around for one in beside)
            self._tracked(Tracked(tuple(files), form, "", held_out), None)

    def configure(self, path: Path, must: bool = False) -> None:
        """Take the settings of a file; with ``must`` an unreadable one is an error, and its settings win over all."""
        try:
            self._settings.append((path, read_config(path), must))
        except CannotRead as problem:
            if must:
                raise
            self._leave(path, problem)

    def _directory(self, top: Path, evaluates: bool = False) -> None:
        named = self._named(top) if self._columns else []
        try:
            found = rundir.find(top, self._run)
        except CannotRead as problem:
            if named and not problem.choices:
                self._top = top
                self._answers += named
                return
            if len(problem.choices) > 1 and self._run is None and self._parts(top, problem.choices):
                return
            raise offline.recognised(top) or problem from None
        if named:
            found.logs = [one for one in found.logs if one not in named]
            found.left = [(one, why) for one, why in found.left if one not in named]
            found.rollouts += [one for one in named if one not in found.rollouts]
        self._top = top
        if evaluates and not found.logs:
            found.tracked = [replace(one, evaluates=one.form == "events") for one in found.tracked]
        if found.cut:
            says = f"{top} holds more than {rundir.ENTRIES} entries; only that many were looked at"
            self._warnings.append(Warn("many_files", says))
        self._warnings += [Warn("source_left_out", says) for says in _told(top, found)]
        self._environments += found.environments
        for one in (*found.logs, *found.earlier):
            self._own(one, rundir.unit_of(top, one))
        own = any(held.log.kind == "metrics" for held in self._held)
        read = 0
        for tracked in found.tracked:
            read += sum(map(size, tracked.files))
            if own and read > COPIES:
                says = f"{tracked.unit}: a large copy of the run in a tracker's form; the other log is read"
                self._warnings.append(Warn("source_left_out", says))
            else:
                self._tracked(tracked, top)
        for one in (*found.scripts, *found.configs):
            self.configure(one)
        self._answers += found.rollouts
        for one in found.evaluations:
            self._note(one, "evaluation")

    def _named(self, top: Path) -> list[Path]:
        """The files below ``top`` that have the columns which the user named."""
        look: Callable[[Path], Content] = lambda path: "answers" if self._is_own(path) else ""  # noqa: E731
        holds = Sniffer(look)
        return [one for one in saved_files([top])[0] if holds(one, one.parent.parts) == "answers"]

    def _parts(self, top: Path, folders: Sequence[str]) -> bool:
        """Take the ``folders`` of ``top`` where they are plainly parts of one run that follow each other.

        The steps go on where the part before ended, the trainer and its keys are the same, and the settings differ in a
        few numbers at most.
        """
        if len(folders) > rundir.PARTS:
            return False
        ranked: list[tuple[float, float, float, Path, Log]] = []
        settings: list[dict[str, object]] = []
        for folder in folders:
            try:
                found = rundir.find(top / folder)
                log = read_log(found.logs[0]) if found.logs else None
                stated: dict[str, object] = {}
                for one in found.configs:
                    stated |= read_config(one)
            except CannotRead:
                return False
            steps = np.unique(log.steps[np.isfinite(log.steps)]) if log is not None else np.empty(0)
            if log is None or len(steps) < 2 or log.kind != "metrics" or not sure(log):
                return False
            ranked.append((float(steps[0]), float(steps[-1]), float(np.median(np.diff(steps))), top / folder, log))
            settings.append({name: knob.value for name, knob in names.read_knobs(stated, None, "config").items()})
        ranked.sort(key=lambda one: one[:2])
        for before, after in itertools.pairwise(ranked):
            keys, others = set(before[4].series), set(after[4].series)
            if not 0 < after[0] - before[1] <= before[2] or len(keys & others) < 0.8 * len(keys | others):
                return False
        for first, second in itertools.combinations(settings, 2):
            moved = [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]
            values = [each.get(name) for name in moved for each in (first, second)]
            if len(moved) > MOVED or not all(isinstance(value, float) for value in values):
                return False
        for part in ranked:
            self._directory(part[3])
        self._top = top
        return True

    def _own(self, path: Path, unit: str) -> None:
        self._hold(lambda run: read_log(path, run=run), path, unit=unit, standing=_standing(path))

    def _tracked(self, tracked: Tracked, top: Path | None) -> None:
        first = tracked.files[0]
        before = len(self._held)
        reads = lambda run: _read_tracked(tracked, run)  # noqa: E731
        self._hold(reads, first, unit=tracked.unit, standing=0, evaluates=tracked.evaluates)
        if len(self._held) > before or not self._failures or len(self._failures[-1].choices) < 2 or top is None:
            return
        if not any(held.log.kind == "metrics" for held in self._held):
            return
        # Several runs in one database: which of them is that of the trainer's own log is read off them.
        choices = self._failures.pop().choices
        self._warnings.pop()
        for name in choices[:TRIED]:
            self._hold(lambda _, name=name: _read_tracked(tracked, name), first, unit=name, standing=0)  # type: ignore[misc]

    def _hold(
        self,
        reads: Callable[[str | None], Log],
        path: Path,
        *,
        unit: str = "",
        standing: int = 1,
        must: bool = False,
        evaluates: bool = False,
    ) -> None:
        """Take one log; what cannot be read is left with the reason, or raised with ``must``."""
        try:
            log = reads(self._run if unit != self._run else None)
        except CannotRead as problem:
            if must:
                raise
            if "saved answers" in problem.found and path != Path("-"):
                self._answers.append(path)
                return
            self._failures.append(problem)
            self._leave(path, problem)
            return
        self._held.append(Held(log, unit, standing, path, evaluates and not eventfile.optimises(log.series)))

    def _leave(self, path: Path, problem: CannotRead) -> None:
        says = f"{self._shown(path)}: {problem.found.removeprefix(f'{path}: ')}"
        self._warnings.append(Warn("source_left_out", says))

    def _shown(self, path: Path) -> str:
        """A file by its path below the directory that the user gave; by its name where he gave the file."""
        return rundir.relative(self._top, path) if self._top is not None and self._top in path.parents else path.name

    def _note(self, path: Path, what: str) -> None:
        self._beside.append(Source(str(path), path.suffix.lstrip("."), 0, role=what))

    # What they are together

    def result(self, given: str | None, restep: Callable[[list[Log]], list[Log]]) -> Opening:
        useful = [] if self._answers and not self._held else self._useful()
        useful.sort(
            key=lambda held: (held.evaluates, -held.standing, held.trust)
        )  # stable: of equals the first named is believed
        stepped = restep([held.log for held in useful])
        useful = [replace(held, log=log) for held, log in zip(useful, stepped, strict=True)]
        kin = of_one_trainer(useful, given, self._warnings)
        if len(kin) > 1:
            kin = self._kin(kin, given)
        settings, used = self._configured(kin, [held for held in useful if held not in kin])
        beside = [Source(str(path), path.suffix.lstrip("."), 0, role="configuration") for path in used]
        return Opening(kin, settings, self._warnings, [*beside, *self._beside], self._answers, self._versions(kin))

    def _kin(self, held: list[Held], given: str | None) -> list[Held]:
        """Those of one run, by what they say of the same steps. A first translation is enough to compare them."""
        keys = list(dict.fromkeys(key for one in held for key in one.log.series))
        versions = {name: found for one in reversed(held) for name, found in one.log.versions.items()}
        detected = names.detect(keys, given=given, text_versions=versions) if given != "" else None
        translated = [translate(one.log, detected, {}) for one in held]
        return [held[k] for k in of_one_run(held, translated, self._run, self._warnings, self._top)]

    def _useful(self) -> list[Held]:
        useful = [held for held in self._held if held.log.kind in ("metrics", "supervised", "crash")]
        for held in self._held:
            if held not in useful:
                says = f"{held.name}: holds {held.log.kind}, not metrics"
                self._warnings.append(Warn("source_left_out", says))
            else:
                self._warnings += held.log.warnings
        spoken = [held for held in useful if held.log.kind == "metrics" and held.log.series]
        halves = {held.path.parent.name for held in spoken if held.path is not None} & _HALVES
        # One process of prime-rl logs the loss and the other the reward: the loss alone looks like supervised training.
        if spoken:
            useful = [h for h in useful if h in spoken or (halves and h.path and h.path.parent.name in _HALVES)]
        if not useful:
            if self._failures:
                raise self._failures[0]
            seen = "; ".join(warn.says for warn in self._warnings) or "nothing that could be read"
            raise CannotRead(
                "the log of a training run (JSONL, trainer_state.json, CSV, event file, .wandb or console text)",
                f"no metrics: {seen}",
                hint="rlclinic diagnose LOGFILE, or - to paste from standard input",
            )
        for held in self._held:
            if held.log.kind in ("metrics", "supervised") and held not in useful:
                says = f"{held.name}: a log of {held.log.kind} training beside one of RL"
                self._warnings.append(Warn("source_left_out", says))
        return useful

    def _configured(self, kept: list[Held], dropped: list[Held]) -> tuple[dict[str, object], list[Path]]:
        """The settings of the files that are of the run: later ones win; those beside another run's log are left."""
        mine = {place for held in kept for place in _places(held.path)}
        others = {held.path.parent for held in dropped if held.path is not None} - mine
        settings: dict[str, object] = {}
        used: list[Path] = []
        known: dict[str, tuple[object, Path]] = {}
        for path, found, must in sorted(self._settings, key=lambda one: one[2]):
            if not must and any(other in (path.parent, *path.parent.parents) for other in others):
                self._warnings.append(Warn("source_left_out", f"{self._shown(path)}: the configuration of another run"))
                continue
            self._compared(path, found, known)
            settings.update(found)
            used.append(path)
        return settings, used

    def _versions(self, kept: list[Held]) -> dict[str, str]:
        """The versions of libraries in the files of the run's environment; none where two of them differ."""
        mine = {place for held in kept for place in _places(held.path)}
        stated: dict[str, set[str]] = {}
        for path in self._environments:
            if path.parent in mine or path.parent.parent in mine:
                try:
                    with path.open("rb") as stream:
                        text = stream.read(FILE_LIMIT).decode("utf-8", errors="replace")
                except OSError:
                    continue
                for name, version in versions_in(text).items():
                    stated.setdefault(name, set()).add(version)
        return {name: versions.pop() for name, versions in stated.items() if len(versions) == 1}

    def _compared(self, path: Path, found: Mapping[str, object], known: dict[str, tuple[object, Path]]) -> None:
        """Say which settings two configuration files state differently; ``known`` holds them by canonical name."""
        stated = names.read_knobs(found, _framework_of(found), "config")
        differ = []
        for name, knob in stated.items():
            if name in known and known[name][0] != knob.value:
                before, here = _apart(known[name][1], path)
                differ.append(f"{knob.key} {known[name][0]} in {before}, {knob.value} in {here}")
            known[name] = (knob.value, path)
        if differ:
            more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
            says = f"two configurations disagree, the latter is believed: {'; '.join(differ[:3])}{more}"
            self._warnings.append(Warn("settings_disagree", says))


def _framework_of(found: Mapping[str, object]) -> Framework | None:
    return names.detect((), config_keys=list(found))


def _called_answers(path: Path) -> bool:
    """Whether the name of a file, or of the folder it is in, says that it holds saved answers."""
    return role(path.parts[-2:-1], path.name)[0] == "rollouts"


def _standing(path: Path) -> int:
    return 2 if path.name in STATES else 0 if role((), path.name)[0] in ("events", "runfile", "database") else 1


def _evaluations(sources: Sequence[str | Path]) -> frozenset[Path]:
    """The folders among ``sources`` that hold the evaluations of the run in another one beside or around them."""
    folders = {Path(one) for one in sources if os.path.isdir(one)}
    named = {one for one in folders if role_evaluates(one.name)}
    trained = [one.resolve() for one in folders - named]
    return frozenset(one for one in named if any(one.resolve().parent in (two, two.parent) for two in trained))


def _never_opened(path: Path, run: str | None) -> Log:
    """The log in a file that is named like weights. Raises CannotRead with what such a file is where it holds none."""
    try:
        return read_log(path, run=run)
    except CannotRead as problem:
        found = f"{path}: {role((), path.name)[1]}"
        hint = "give trainer_state.json, a metrics .jsonl or .csv, or the console output of the trainer"
        raise CannotRead("a log with metrics", found, hint=hint) from problem


def _told(top: Path, found: Found) -> list[str]:
    """What was left of a directory, one sentence for each reason."""
    groups: dict[str, list[str]] = {}
    for left, why in found.left:
        groups.setdefault(why, []).append(rundir.relative(top, left))
    says = []
    if found.aside:
        shown = ", ".join(found.aside[:NAMED]) + (
            f" and {len(found.aside) - NAMED} more" if len(found.aside) > NAMED else ""
        )
        many = (
            "a folder with a run of its own"
            if len(found.aside) == 1
            else f"{len(found.aside)} folders with runs of their own"
        )
        says.append(f"{many}, name one to read it: {shown}")
    for why, files in groups.items():
        more = f" and {len(files) - 2} more" if len(files) > 3 else ""
        says.append(f"{', '.join(files[:2] if more else files)}{more}: {why}")
    return says


def _apart(one: Path, two: Path) -> tuple[str, str]:
    """Two files by the parts of their paths that tell them apart."""
    around = Path(os.path.commonpath([one.resolve(), two.resolve()]))
    return rundir.relative(around, one.resolve()), rundir.relative(around, two.resolve())


def _is_mlflow(path: Path) -> bool:
    """True for a directory of MLflow's file store itself, not for one that merely holds it beside other logs."""
    inside = path.name == "mlruns" or (path / "meta.yaml").is_file()
    return inside and is_mlflow_run(path)


def _read_tracked(tracked: Tracked, run: str | None) -> Log:
    if tracked.form == "events":
        return eventfile.read_event_files(tracked.files, tracked.evaluates)
    if tracked.form == "runfiles" and len(tracked.files) > 1:
        return runlog.read_run_files(tracked.files)
    return read_log(tracked.files[0], run=run)


def _places(path: Path | None) -> list[Path]:
    return [] if path is None else [path.parent, *path.parent.parents]


def standard_input() -> bytes:
    """All bytes of the process's standard input. Raises CannotRead when it is closed or without end."""
    if sys.stdin is None:
        raise CannotRead("lines on standard input", "it is closed", hint="rlclinic diagnose LOGFILE")
    return drained(sys.stdin.buffer, "standard input")


__all__ = ["Found", "Opening", "opened"]
