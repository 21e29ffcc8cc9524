"""What in a directory belongs to one run: logs, configuration, and what is left with the reason."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rlclinic.errors import CannotRead
from rlclinic.model import Checkpoint
from rlclinic.readers.config import config_from_text
from rlclinic.readers.log import read_log

ENTRIES = 20_000
"""Most directory entries looked at (ours)."""
LEVELS = 4
"""Deepest directory level looked at (ours: W&B's console output lies three levels down)."""
LEFT = 50
"""Most entries named as left out (ours)."""

_CONFIG_NAMES = (
    r"(?i)(?:(?:train|training|experiment|run|resolved|grpo|ppo|wandb)[_-]?)?"
    r"(?:config|args|arguments|hparams|params|recipe|settings|overrides)\.(?:ya?ml|json|txt)"
)
_METRIC_NAMES = (
    r"(?i)(?:.*[_.-])?(?:metrics?|logging|trainer_log|history|log|logs|progress|results|reward_log|step_logs|grpo|ppo"
    r"|train|training|stdout|output|console|nohup)\b.*\.(?:jsonl|csv|tsv|json|log|txt|out)|nohup\.out|.*\.(?:log|out)"
)
_ROLLOUT_NAMES = r"(?i)(?:rollouts?|completions?|generations?|samples|.*_data_step\d+|.*rollout.*|timing_spans)"
_CHECKPOINT = r"(?i)(?:checkpoint|global_step|step|iter|ckpt)[-_]?(\d{1,12})"
_BESIDE = frozenset({"wandb-metadata.json", "requirements.txt", "label.json", "package.json", "tokenizer.json"})
_TEXT = frozenset({"", ".txt", ".json", ".ndjson", ".log", ".out", ".err", ".text", ".dat"})
SNIFFED = 40
"""Most files of unknown name that are opened to see whether they hold metrics (ours)."""
HEAD = 4 << 20
"""Bytes read of each of them (ours)."""
_PASSED = {
    ".db": "a database (Trackio, MLflow); export the metrics as CSV or JSON lines",
    ".sqlite": "a database; export the metrics as CSV or JSON lines",
    ".parquet": "Parquet; completions or an export, not read",
    ".safetensors": "model weights",
    ".bin": "weights or a pickle, never opened",
    ".pt": "weights, never opened",
    ".pth": "weights, never opened",
    ".pkl": "a pickle, never opened",
}
_SKIPPED_DIRECTORIES = frozenset({".git", "__pycache__", "node_modules", ".venv", "venv", "site-packages", ".cache"})


@dataclass
class Found:
    """The files of one run; ``left`` pairs what was recognised but not used with the reason."""

    logs: list[Path] = field(default_factory=list)
    configs: list[Path] = field(default_factory=list)
    left: list[tuple[Path, str]] = field(default_factory=list)


def is_config(path: Path) -> bool:
    """True when a file is a configuration by its name and content, not a log."""
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in (".yaml", ".yml", ".txt", ".json", ".args", ".sh"):
        return False
    if suffix in (".yaml", ".yml"):
        return True
    try:
        with path.open("rb") as stream:
            text = stream.read(1 << 16).decode("utf-8-sig", errors="replace")
    except OSError:
        return False
    if suffix == ".json":
        named = re.fullmatch(_CONFIG_NAMES, path.name) is not None
        return named and '"log_history"' not in text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or len(lines) > 500:
        return False
    stating = sum(
        line.startswith(("--", "#", "+")) or re.match(r"[\w.]{2,100}\s*[:=]\s*\S", line) is not None for line in lines
    )
    plain = re.fullmatch(_CONFIG_NAMES, path.name) is not None or any(line.startswith("--") for line in lines)
    return plain and stating * 2 >= len(lines) and bool(config_from_text(text))


def find(path: Path) -> Found:
    """What in the directory ``path`` belongs to its run.

    The newest checkpoint's trainer state stands in for a missing one at the top. Raises CannotRead when the directory
    holds no run, or several.
    """
    files = _walk(path)
    found = Found()
    states: list[Path] = []
    unknown: list[tuple[Path, Path]] = []
    runs: dict[Path, list[Path]] = {}
    tracked: dict[Path, list[Path]] = {}
    for one in files:
        owner, role, why = _role(path, one)
        if role not in ("", "left") and not one.is_file():  # a pipe would be waited for
            continue
        if role == "log":
            runs.setdefault(owner, []).append(one)
        elif role == "state":
            states.append(one)
            runs.setdefault(owner, [])
        elif role == "config":
            found.configs.append(one)
        elif role == "tracked":
            tracked.setdefault(owner, []).append(one)
        elif role == "unknown":
            unknown.append((owner, one))
        elif role == "left" and len(found.left) < LEFT:
            found.left.append((one, why))
    if not runs or unknown or len(runs) > 1:
        runs = _fertile(runs, unknown, {_owner(path, one) for one in states}, found)
    for owner, kept in tracked.items():
        _take_tracked(owner, kept, runs, found)
    if len(runs) > 1 and path in runs:
        nested = [owner for owner in runs if owner != path]
        for owner in nested:
            found.left += [(one, "of another directory below; name it to read it") for one in runs.pop(owner)]
        states = [one for one in states if _owner(path, one) == path]
    if len(runs) > 1:
        names = sorted(str(owner.relative_to(path)) for owner in runs)
        raise CannotRead(
            "the directory of one run", f"{path}: {len(runs)} runs", choices=names, hint=f"name one: {path / names[0]}"
        )
    for owner, logs in runs.items():
        found.logs = sorted(logs, key=_counted)
        newest = max((one for one in states if _owner(path, one) == owner), key=_age, default=None)
        if newest is not None:
            found.logs.insert(0, newest)
            found.left += [(one, "an earlier checkpoint of the same run") for one in states if one != newest][:LEFT]
        found.configs = [one for one in found.configs if owner in (one.parent, *one.parents)]
    if not found.logs:
        seen = (
            "; ".join(f"{one.name}: {why}" for one, why in found.left[:3])
            or f"{len(files)} files, none of a known form"
        )
        raise CannotRead(
            "the directory of a run",
            f"{path}: {seen}",
            hint="give trainer_state.json, a metrics .jsonl or .csv, or the console output",
        )
    return found


def _fertile(
    runs: dict[Path, list[Path]], unknown: list[tuple[Path, Path]], stated: set[Path], found: Found
) -> dict[Path, list[Path]]:
    """The runs that hold metrics, those in files of unknown name included where no known name leads to any.

    Where nothing holds metrics all are returned, for what they do hold (the error of a crash).
    """
    sure: set[Path] = set(stated)
    for tried, (owner, logs) in enumerate(runs.items()):
        if len(sure) > 1 or tried >= SNIFFED:  # several runs for certain, or too many to open
            return runs
        if owner not in sure and any(_holds_metrics(one) for one in logs[:SNIFFED]):
            sure.add(owner)
    if sure:
        for owner in [owner for owner in runs if owner not in sure]:
            found.left += [(one, "no metrics in it") for one in runs.pop(owner)]
        return runs
    spoken: dict[Path, list[Path]] = {}
    for owner, one in unknown[:SNIFFED]:
        if _holds_metrics(one):
            spoken.setdefault(owner, []).append(one)
    if not spoken:
        return runs
    for owner, logs in runs.items():
        if owner in spoken:
            spoken[owner] += logs  # a console without metrics may still hold the error that ended the run
        else:
            found.left += [(one, "no metrics in it") for one in logs]
    return spoken


def _take_tracked(owner: Path, files: list[Path], runs: dict[Path, list[Path]], found: Found) -> None:
    """A tracker's own files count where no other log of the run does: they hold the same once more. Those of one folder
    are parts of one run; of several folders the last is taken, by the time in its name."""
    if owner in runs:
        found.left += [(one, "the same run in its tracker's form; the other log is read") for one in files][:LEFT]
        return
    last = max(one.parent for one in files)
    runs[owner] = [one for one in files if one.parent == last]
    found.left += [(one, "another run of the tracker; name it to read it") for one in files if one.parent != last][
        :LEFT
    ]


def _counted(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Names in the order in which people count: part 9 before part 10."""
    pieces = re.findall(r"\d{1,18}|\D{1,200}", str(path))
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces], str(path)


def checkpoints(sources: Iterable[Path]) -> tuple[Checkpoint, ...]:
    """The saved states beside logs or in the directories of runs, by rising step; none of them is opened.

    Looked for in each directory, in the directory of each file, around a trainer state that itself lies in a checkpoint,
    and in subdirectories called checkpoints. Of several for one step the first found counts.
    """
    places: dict[Path, None] = {}
    for source in sources:
        place = source if source.is_dir() else source.parent
        if re.fullmatch(_CHECKPOINT, place.name):
            place = place.parent
        places[place] = None
        places.update({place / name: None for name in ("checkpoints", "ckpts", "ckpt")})
    found: dict[float, Checkpoint] = {}
    for one in (folder for place in list(places)[:LEFT] for folder in _folders(place)):
        if saved := re.fullmatch(_CHECKPOINT, one.name):
            found.setdefault(float(saved[1]), Checkpoint(float(saved[1]), str(one)))
    return tuple(found[step] for step in sorted(found))


def _folders(place: Path) -> list[Path]:
    """The directories directly in ``place``, in the order of their names; none where it cannot be read."""
    try:
        with os.scandir(place) as entries:
            looked = itertools.islice(entries, ENTRIES)
            return sorted(Path(one.path) for one in looked if one.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _walk(top: Path) -> list[Path]:
    files: list[Path] = []
    seen = 0
    for place, directories, names in os.walk(top, followlinks=False):
        directories.sort()
        depth = len(Path(place).relative_to(top).parts)
        directories[:] = [d for d in directories if d not in _SKIPPED_DIRECTORIES] if depth < LEVELS else []
        for name in sorted(names):
            files.append(Path(place) / name)
            seen += 1
            if seen >= ENTRIES:
                return files
    return files


def _owner(top: Path, one: Path) -> Path:
    """The directory of the run a file belongs to: checkpoints and tracker folders belong to the run around them."""
    parts = one.relative_to(top).parts[:-1]
    kept: list[str] = []
    for part in parts:
        if re.fullmatch(_CHECKPOINT, part) or part in (
            "wandb",
            "files",
            "logs",
            "log",
            ".hydra",
            "tensorboard",
            "runs",
            "swanlog",
            "outputs",
            "trackio",
            "mlruns",
        ):
            break
        kept.append(part)
    return top.joinpath(*kept)


def _role(top: Path, one: Path) -> tuple[Path, str, str]:
    owner, name, suffix = _owner(top, one), one.name, one.suffix.lower()
    if name == "trainer_state.json":
        return owner, "state", ""
    if "tfevents" in name or suffix in (".wandb", ".swanlab"):
        return owner, "tracked", ""
    if suffix in _PASSED:
        return owner, "left", _PASSED[suffix]
    if ".hydra" in one.parts:
        return owner, "config" if name in ("config.yaml", "overrides.yaml") else "", ""
    if name in _BESIDE:
        return owner, "", ""
    if re.fullmatch(_ROLLOUT_NAMES, one.stem) or any(
        re.fullmatch(_ROLLOUT_NAMES, part) for part in one.relative_to(top).parts[:-1]
    ):
        return owner, "left", "saved answers (rollouts), not metrics"
    if any(re.fullmatch(_CHECKPOINT, part) for part in one.relative_to(top).parts[:-1]):
        return owner, "", ""
    if re.fullmatch(_CONFIG_NAMES, name):
        return owner, "config", ""
    if re.fullmatch(_METRIC_NAMES, name) or suffix in (".jsonl", ".csv", ".tsv"):
        return owner, "log", ""
    return owner, "unknown" if suffix in _TEXT else "", ""


def _holds_metrics(one: Path) -> bool:
    """True when the beginning of a file of unknown name reads as a log with metrics."""
    try:
        with one.open("rb") as stream:
            head = stream.read(HEAD // 16)
            return _speaks(head, one.name) or (len(head) == HEAD // 16 and _speaks(head + stream.read(HEAD), one.name))
    except OSError:
        return False


def _speaks(head: bytes, name: str) -> bool:
    try:
        return read_log(None, head, name=name).kind in ("metrics", "supervised")
    except CannotRead:
        return False


def _age(state: Path) -> tuple[int, int]:
    """Newer trainer states sort later; one outside any checkpoint is the newest."""
    found = re.fullmatch(_CHECKPOINT, state.parent.name)
    return (0, int(found[1])) if found else (1, 0)
