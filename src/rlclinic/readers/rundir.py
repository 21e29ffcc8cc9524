"""What in a directory belongs to one run: logs, trackers, configuration, and what is left with the reason."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from rlclinic.errors import CannotRead
from rlclinic.readers.answers.files import Content, Sniffer
from rlclinic.readers.answers.place import stem_of
from rlclinic.readers.choice import command
from rlclinic.readers.log import read_log
from rlclinic.readers.roles import (
    STATES,
    checkpoint,
    checkpoints,
    evaluates,
    is_config,
    is_environment,
    role,
    saves_answers,
    size,
)
from rlclinic.readers.stores.offline import is_dvclive

__all__ = ["Found", "Tracked", "checkpoints", "find", "is_config", "relative", "unit_of"]

Form: TypeAlias = Literal["events", "runfiles", "mlflow", "file"]

ENTRIES = 20_000
"""Most directory entries looked at (ours)."""
LEVELS = 7
"""Deepest directory level looked at (ours: W&B's console output below a dated folder of Hydra lies six levels down)."""
LEFT = 50
"""Most entries named as left out (ours)."""
SNIFFED = 40
"""Most files of unknown name that are opened to see whether they hold metrics (ours)."""
HEAD = 4 << 20
"""Bytes read of each of them (ours)."""
SEVERAL = 3
"""Folders with runs of their own from which a directory is a collection, and loose logs beside them (ours)."""
PARTS = 4
"""Most folders that are offered or tried as parts of one run (ours)."""
MOST = 24
"""Most logs of one run that are read (ours: a run of 8 attempts in three forms)."""
STATE_BYTES = 64 << 20
"""Most bytes of earlier checkpoints' states that are read to see that they are of the same run (ours)."""
_SKIPPED_DIRECTORIES = frozenset(
    {".git", "__pycache__", "node_modules", ".venv", "venv", "site-packages", ".cache", ".trash", ".ipynb_checkpoints"}
)
_HIDDEN = frozenset({".hydra", ".art", ".cometml-runs"})
_TRACKERS = frozenset({"wandb", "swanlog", "trackio", "mlruns", ".cometml-runs"})
_AROUND = frozenset(
    {"files", "logs", "log", "tensorboard", "tensorboard_log", "tensorboard_logs", "tb", "tb_logs", "runs", "events",
     "trainer", "orchestrator", "metrics", "lightning_logs", ".hydra", *_TRACKERS}
)  # fmt: skip
"""Folders that belong to the run around them."""
MONITORED = "rlclinic"
"""The folder in the directory of a run in which a monitor inside the training keeps rows and settings."""
_OUTPUT = (
    r"(?i)outputs?|saves?|saved|results?|ckpts?|checkpoints|models?|v\d+-\d[\d-]*|\d{4}-\d\d-\d\d.*|\d\d-\d\d-\d\d"
    r"|exp_\d+"
)
"""Folders in which trainers put runs, whose name tells nothing of a run: whether those in them are one is read off them."""
_CLOUD = r"(?:offline-)?run-\d{8}_\d{6}-(\w{1,64})"
"""The folder of one attempt of a W&B or SwanLab run, with the id of the run."""


@dataclass(frozen=True)
class Tracked:
    """The files of one run of a tracker, which give one log; ``unit`` is what a user calls it.

    With ``evaluates`` they hold the evaluations of the run whose training is logged beside them.
    """

    files: tuple[Path, ...]
    form: Form
    unit: str
    evaluates: bool = False


@dataclass
class Found:
    """The files of one run; ``left`` pairs what was recognised but not used with the reason.

    ``logs`` are the trainer's own, the newest state first; the other forms of ``tracked`` may be of other runs, which only
    their content tells. ``earlier`` are states of older checkpoints.
    """

    logs: list[Path] = field(default_factory=list)
    tracked: list[Tracked] = field(default_factory=list)
    earlier: list[Path] = field(default_factory=list)
    configs: list[Path] = field(default_factory=list)
    scripts: list[Path] = field(default_factory=list)
    rollouts: list[Path] = field(default_factory=list)
    evaluations: list[Path] = field(default_factory=list)
    environments: list[Path] = field(default_factory=list)
    left: list[tuple[Path, str]] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    """Folders with runs of their own."""
    cut: bool = False
    """True when there were more entries than are looked at."""

    def leave(self, path: Path, why: str) -> None:
        if len(self.left) < LEFT:
            self.left.append((path, why))


@dataclass
class _Home:
    """What lies in one directory of a run and in the folders that belong to it."""

    logs: list[Path] = field(default_factory=list)
    states: list[Path] = field(default_factory=list)
    tracked: dict[str, list[Path]] = field(default_factory=dict)
    unknown: list[Path] = field(default_factory=list)


def find(path: Path, run: str | None = None) -> Found:
    """What in the directory ``path`` belongs to its run; ``run`` may name a directory of one below.

    The newest checkpoint's trainer state stands in for a missing one at the top. Raises CannotRead when the directory
    holds no run, or several.
    """
    found = Found()
    homes: dict[Path, _Home] = {}
    holds = Sniffer()
    texts: list[Path] = []
    for one, parts in _walk(path, found):
        kind, why = ("runfolder", "") if one.name == _RUN else role(parts, one.name)
        home, unit = _home(path, _logging(parts) if kind == "events" else parts), ""
        if is_environment(parts, one.name):
            found.environments.append(one)
        elif kind == "runfolder":
            _at(homes, home).tracked.setdefault(f"mlflow:{one.parent}", []).append(one.parent)
        elif kind == "state":
            _at(homes, home).states.append(one)
        elif (held := _answers(one, parts, kind, holds)) != "":
            (found.rollouts if held == "answers" else texts).append(one)
        elif kind == "log":
            _at(homes, home).logs.append(one)
        elif kind == "unknown":
            _at(homes, home).unknown.append(one)
        elif kind in ("events", "runfile", "database"):
            unit = _tracker_run(one, kind)
            _at(homes, home).tracked.setdefault(unit, []).append(one)
        elif kind == "left":
            found.leave(one, why)
        elif kind:
            {"config": found.configs, "script": found.scripts, "rollouts": [],
             "evaluation": found.evaluations}[kind].append(one)  # fmt: skip
    homes = _fertile(homes, found)
    kept = _chosen(path, homes, run, found)
    found.rollouts = [one for one in found.rollouts if _nearest(one, homes) in (None, *kept)]
    for home in kept:
        _take(path, homes[home], found)
    _settle_configs(path, kept or [path], found)  # beside saved answers alone lies their configuration, too
    if not found.logs and not found.tracked and not found.rollouts:
        found.rollouts = texts  # so that it is said why they are not read
        if not texts:
            raise _nothing(path, found)
    return found


_RUN = "\0mlflow"


def _at(homes: dict[Path, _Home], place: Path) -> _Home:
    return homes.setdefault(place, _Home())


def _nothing(path: Path, found: Found) -> CannotRead:
    seen = "; ".join(f"{one.name}: {why}" for one, why in found.left[:3])
    if found.evaluations:
        seen = f"{found.evaluations[0].name}: results of an evaluation, no course of training" + (
            f"; {seen}" if seen else ""
        )
    elif found.configs or found.scripts:
        seen = seen or f"{(*found.configs, *found.scripts)[0].name}: a configuration, not metrics"
    if not seen:
        try:
            inside = sorted(one.name + "/" * one.is_dir() for one in path.iterdir())
        except OSError:
            inside = []
        more = f" and {len(inside) - 6} more" if len(inside) > 6 else ""
        seen = f"no file of a known form; in it: {', '.join(inside[:6])}{more}" if inside else "nothing is in it"
    return CannotRead(
        "the directory of a run",
        f"{path}: {seen}",
        hint="give what the trainer or tracker wrote: trainer_state.json, JSON lines, CSV or Parquet, console output,"
        " an event file, .wandb, .db, a zip or tar of a run",
    )


# ---------------------------------------------------------------------------------------------- which directory


def _home(top: Path, parts: tuple[str, ...]) -> Path:
    """The directory of the run a file belongs to: checkpoints and tracker folders belong to the run around them."""
    kept: list[str] = []
    for part in parts:
        if checkpoint(part) is not None or part.lower() in _AROUND or re.fullmatch(_CLOUD, part):
            break
        if part == MONITORED and top.joinpath(*kept, part, "rows.jsonl").is_file():
            break
        kept.append(part)
    return top.joinpath(*kept)


def _logging(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The folders of an event file without the last one where it only says whether training or evaluation is in it."""
    split = parts and (evaluates(parts[-1]) or parts[-1].lower() in ("train", "training"))
    return parts[:-1] if split else parts


def _fertile(homes: dict[Path, _Home], found: Found) -> dict[Path, _Home]:
    """The homes that hold metrics, those in files of unknown name included where no known name leads to any.

    Where nothing holds metrics all are returned, for what they do hold (the error of a crash).
    """
    known = {place: home for place, home in homes.items() if home.logs or home.states or home.tracked}
    sure = {place for place, home in known.items() if home.states or home.tracked}
    for tried, (place, home) in enumerate(known.items()):
        if tried >= SNIFFED:
            return known
        if place not in sure and any(_holds_metrics(one) for one in home.logs[:SNIFFED]):
            sure.add(place)
    if sure:
        for place in [place for place in known if place not in sure]:
            for one in known.pop(place).logs:
                found.leave(one, "no metrics in it")
        return known
    spoken: dict[Path, list[Path]] = {}
    every = [(place, one) for place, home in homes.items() for one in home.unknown]
    for place, one in every[:SNIFFED]:
        if _holds_metrics(one):
            spoken.setdefault(place, []).append(one)
    if not spoken:
        return known
    for place, home in known.items():
        if place not in spoken:
            for one in home.logs:
                found.leave(one, "no metrics in it")
    # A console without metrics may still hold the error that ended the run.
    return {place: _Home(logs=[*homes[place].logs, *files]) for place, files in spoken.items()}


def _chosen(top: Path, homes: dict[Path, _Home], run: str | None, found: Found) -> list[Path]:
    """The homes that may hold the run of ``top``; several only where their names say nothing of different runs."""
    if run is not None:
        named = [place for place in homes if place != top and place.relative_to(top).as_posix() == run.strip("/")]
        if named:
            return named
    if len(homes) < 2:
        return list(homes)
    below = [place for place in homes if place != top]
    plain = [place for place in below if all(re.fullmatch(_OUTPUT, p) for p in place.relative_to(top).parts)]
    if top in homes:
        aside = sorted({place.relative_to(top).as_posix() for place in below if place not in plain})
        if len(aside) >= SEVERAL and _loose(homes[top]):
            many = len(homes[top].logs) + len(homes[top].tracked)
            loose = (
                f"{len(aside)} folders with runs of their own, and {many} logs beside them that no name ties together"
            )
            raise CannotRead(
                "the directory of one run",
                f"{top}: {loose}",
                choices=aside,
                hint=f"{command(top, aside[0])}, or rlclinic diagnose with the logs of one run",
            )
        found.aside = aside
        return [top, *plain]
    only = [place for place in below if not homes[place].logs and not homes[place].states]
    if len({*plain, *only}) == len(below) and len(below) <= MOST:
        return below  # trackers of one run write into folders of many names, too
    outer = sorted(below)[0]
    if all(outer in (place, *place.parents) for place in below):
        return _chosen(outer, homes, None, found)
    names = sorted(place.relative_to(top).as_posix() for place in below)
    together = " ".join(shlex.quote(str(top / name)) for name in names[:PARTS])
    parts = f"; parts of one run: rlclinic diagnose {together}" if len(names) <= PARTS else ""
    raise CannotRead(
        "the directory of one run",
        f"{top}: {len(names)} runs",
        choices=names,
        hint=command(top, names[0]) + parts,
    )


def _nearest(file: Path, homes: Collection[Path]) -> Path | None:
    """The innermost of ``homes`` around a file; None when there is none."""
    return next((place for place in file.parents if place in homes), None)


def _loose(home: _Home) -> bool:
    """True for logs that lie beside each other without being plainly of one run: no trainer's state among them, and
    several of one form."""
    if home.states or any(one.name in STATES for one in home.logs):
        return False
    single = [*home.logs, *(files[0] for unit, files in home.tracked.items() if unit.startswith("file:"))]
    forms = [one.suffix.lower() for one in single]
    return len(single) >= SEVERAL and len(set(forms)) < len(forms)


# ------------------------------------------------------------------------------------------------ what of a home


def _take(top: Path, home: _Home, found: Found) -> None:
    states = sorted(home.states, key=_age)
    if states:
        found.logs.append(states[-1])
        held = 0
        for one in reversed(states[:-1]):
            held += size(one)
            if held <= STATE_BYTES and len(found.earlier) < 2 and (one == states[0] or not found.earlier):
                found.earlier.append(one)
            else:
                found.leave(one, "an earlier checkpoint of the same run")
    logs = sorted(home.logs, key=lambda one: (one.name not in STATES, _counted(one)))
    for one in logs:
        if len(found.logs) < MOST:
            found.logs.append(one)
        else:
            found.leave(one, f"more than {MOST} logs")
    seen: set[str] = set()
    evaluations: list[Tracked] = []
    for unit in sorted(home.tracked, key=lambda unit: max(_age_of(one) for one in home.tracked[unit]), reverse=True):
        files = sorted(home.tracked[unit])
        form, _, name = unit.partition(":")
        if form == "events":
            outer = Path(name)
            if evaluates(outer.name) and outer != top and _trained(home, outer):
                evaluations.append(Tracked(tuple(files), "events", relative(top, outer), True))
                continue
            around = [f"events:{place}" for place in outer.parents if f"events:{place}" in home.tracked]
            if around:
                continue  # add_scalars and add_hparams write below the run's own folder
            below = [u for u in home.tracked if u.startswith("events:") and outer in Path(u[7:]).parents]
            inner = [u for u in below if not evaluates(Path(u[7:]).name)]
            files += [one for u in inner for one in sorted(home.tracked[u])]
            tracked = Tracked(tuple(files), "events", relative(top, outer))
        elif form == "mlflow":
            tracked = Tracked((Path(name),), "mlflow", relative(top, Path(name)))
        elif form == "run":
            # A copy made without links holds latest-run once more.
            kept = {(one.name, one.parent.name if "latest" not in one.parent.name else ""): one for one in files}
            fresh = [one for one in files if "latest" not in one.parent.name] or list(kept.values())
            tracked = Tracked(tuple(fresh), "runfiles", name)
        else:
            tracked = Tracked((Path(files[0]),), "file", relative(top, files[0]))
        if len(found.tracked) >= MOST:
            found.leave(files[0], f"more than {MOST} runs of trackers; name it to read it")
        elif tracked.unit not in seen:
            seen.add(tracked.unit)
            found.tracked.append(tracked)
    found.tracked += evaluations


def _trained(home: _Home, evaluation: Path) -> bool:
    """True when the training of the run is logged in the folder beside or around that of its evaluations."""
    units = [Path(unit[7:]) for unit in home.tracked if unit.startswith("events:")]
    beside = [one for one in units if not evaluates(one.name) and evaluation.parent in (one, one.parent)]
    return bool(beside or home.logs or home.states)


def _tracker_run(one: Path, kind: str) -> str:
    """Which run of a tracker a file belongs to: by its id, else by its folder."""
    if kind == "events":
        return f"events:{one.parent}"
    if kind == "runfile":
        named = re.fullmatch(_CLOUD, one.parent.name)
        return f"run:{one.stem.removeprefix('run-') if '-' in one.stem else named[1] if named else one.parent.name}"
    return f"file:{one}"


def unit_of(top: Path, one: Path) -> str:
    """What a user calls a log to read it alone: its path below ``top``, the folder of a checkpoint's state."""
    return relative(top, one.parent if one.name == "trainer_state.json" and one.parent != top else one)


def relative(top: Path, one: Path) -> str:
    """The path of a file below ``top``; the whole one where it lies elsewhere."""
    try:
        return one.relative_to(top).as_posix()
    except ValueError:
        return str(one)


def _settle_configs(top: Path, kept: list[Path], found: Found) -> None:
    """Keep the configurations in and around the homes of the run, and those of trackers for the run that is kept."""
    places = {place for home in kept for place in (home, *home.parents) if top in (place, *place.parents)}
    near = [one for one in found.configs if _config_home(top, one) in places]
    found.configs = sorted(near, key=lambda one: (_precedence(one), str(one)))
    scripts = [one for one in found.scripts if one.parent in places]
    if len(scripts) > 1:
        for one in scripts:
            found.leave(
                one, "one of several scripts: which of them started the run is not known; give it with --config"
            )
        scripts = []
    found.scripts = scripts


def _config_home(top: Path, one: Path) -> Path:
    return _home(top, one.relative_to(top).parts[:-1])


def _precedence(one: Path) -> int:
    """Configurations in the order in which they are believed, least first: what was resolved at the start comes last."""
    if one.name == "overrides.yaml":
        return 3
    if one.name == "wandb-metadata.json":
        return 0
    if ".hydra" in one.parts:
        return 2
    return 1 if "files" in one.parts else 2


def _answers(one: Path, parts: tuple[str, ...], kind: str, holds: Sniffer) -> Content:
    """What is saved in a file that may hold answers; one named so that is unreadable is told of when it is read.

    Files that are called otherwise are looked at, and so is what lies in the folder of a checkpoint or of answers.
    """
    name = one.name.lower()
    if kind == "rollouts":
        looked = name.endswith((".json", ".csv")) or not saves_answers(stem_of(name))
        return holds(one, parts) if looked and not name.startswith("episode_hash") else "answers"
    below = kind == "" and any(checkpoint(part) is not None for part in parts)
    if one.name in STATES or not (below or kind == "log"):
        return ""
    return holds(one, parts) if name.endswith((".jsonl",) if below else (".jsonl", ".parquet", ".csv")) else ""


def _counted(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Names in the order in which people count: part 9 before part 10."""
    pieces = re.findall(r"\d{1,18}|\D{1,200}", str(path))
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces], str(path)


def _age(state: Path) -> tuple[int, int]:
    """Newer trainer states sort later; one outside any checkpoint is the newest."""
    step = checkpoint(state.parent.name)
    return (1, 0) if step is None else (0, step)


def _age_of(one: Path) -> str:
    """The time in the name of a tracker's folder or file, which copying keeps; the name itself without one."""
    found = re.search(r"\d{8}_\d{6}|tfevents\.\d{6,12}", str(one))
    return (found[0] if found else "") + str(one)


def _walk(top: Path, found: Found) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """(file, folders between it and ``top``) of every regular file, in the order of their names, at most ``ENTRIES``.

    A run of MLflow's file store or of DVCLive stands as one entry called ``_RUN``. Links to folders outside are followed
    once.
    """
    seen = 0
    visited = {_identity(top)}
    within = os.path.realpath(top) + os.sep
    pending: list[tuple[Path, tuple[str, ...]]] = [(top, ())]
    while pending:
        place, parts = pending.pop()
        folders: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    seen += 1
                    if seen > ENTRIES:
                        found.cut = True
                        break
                    try:
                        if entry.is_symlink() and entry.is_dir():
                            if f"{os.path.realpath(entry.path)}{os.sep}".startswith(within):
                                continue
                            folders.append(entry.name)
                        elif entry.is_dir(follow_symlinks=False):
                            folders.append(entry.name)
                        elif entry.is_file():
                            files.append(entry.name)
                    except OSError:
                        continue
        except OSError as error:
            if not parts:
                raise CannotRead("the directory of a run", f"{top}: {error.strerror or error}") from error
            found.leave(place, error.strerror or "cannot be opened")
            continue
        mlflow = "meta.yaml" in files and {"metrics", "params"} <= set(folders)
        if mlflow or ("plots" in folders and is_dvclive(place)):
            yield place / _RUN, parts
            continue
        for name in sorted(files):
            yield place / name, parts
        if len(parts) >= LEVELS or found.cut:
            continue
        for name in sorted(folders, reverse=True):
            if name in _SKIPPED_DIRECTORIES or (name.startswith(".") and name not in _HIDDEN):
                continue
            if parts and checkpoint(parts[-1]) is not None and not any(map(saves_answers, (top.name, *parts))):
                continue  # weights and optimizer states in their own folders
            below = place / name
            if (same := _identity(below)) not in visited:
                visited.add(same)
                pending.append((below, (*parts, name)))


def _identity(place: Path) -> tuple[int, int]:
    try:
        stat = place.stat()
    except OSError:
        return (-1, hash(place))
    return (stat.st_dev, stat.st_ino)


def _holds_metrics(one: Path) -> bool:
    """True when the beginning of a file of unknown name reads as a log with metrics."""
    if one.suffix.lower() in (".gz", ".zst", ".bz2", ".xz", ".zip", ".parquet"):
        return True
    try:
        with one.open("rb") as stream:
            head = stream.read(HEAD // 16)
            return _speaks(head, one.name) or (len(head) == HEAD // 16 and _speaks(head + stream.read(HEAD), one.name))
    except OSError:
        return False


def _speaks(head: bytes, name: str) -> bool:
    try:
        return read_log(None, head, name=name).kind in ("metrics", "supervised")
    except CannotRead as problem:
        return "runs" in problem.found  # several in one file
