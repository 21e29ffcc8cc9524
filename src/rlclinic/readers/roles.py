"""What a file in the directory of a run is, by its name and place, and which saved states lie there."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from rlclinic.history import FILE
from rlclinic.model import Checkpoint
from rlclinic.readers.config import config_from_text

Role: TypeAlias = Literal[
    "state", "log", "unknown", "events", "runfile", "database", "config", "script", "rollouts", "evaluation", "left", ""
]

FOLDERS = 20_000
"""Most directory entries looked at for checkpoints (ours)."""
PLACES = 50
"""Most directories in which checkpoints are looked for (ours)."""

_CONFIG_NAMES = (
    r"(?i)(?:(?:train|training|trainer|experiment|run|resolved|grpo|ppo|wandb)[_-]?)?"
    r"(?:config|args|arguments|hparams|params|recipe|settings|overrides)\.(?:ya?ml|json|txt|toml)"
)
_METRIC_NAMES = (
    r"(?i)(?:.*[_.-])?(?:metrics?|logging|trainer_log|history|log|logs|progress|results|reward_log|step_logs|grpo|ppo"
    r"|train|training|stdout|output|console|nohup)\b.*\.(?:jsonl|csv|tsv|json|log|txt|out)|nohup\.out|.*\.(?:log|out)"
)
_ROLLOUT_NAMES = (
    r"(?i)(?:rollouts?|completions?(?:_\d+)?|generations?|samples|traces|trajectories|.*_data_step\d+|.*rollout.*"
    r"|validation_data|val_generations?|episode_hash.*)"
)
_TABLE_NAMES = (
    r"(?:completions?|generations?|rollouts?|samples?|\w*generated_samples|sample_completions|\w*generations)_.*"
)
"""Tables of a tracker in which trainers keep answers; others hold metrics."""
_ROLLOUT_ENDS = (".jsonl", ".parquet", ".json", ".csv")
_CHECKPOINT = r"(?i)(?:checkpoint|global_step|step|iter|ckpt)[-_]?(\d{1,12})"
_TOTALS = r"(?i)(?:all|train|eval|test|predict)_results\.json"
_HARNESS = r"(?i)results(?:_[\dT.:-]+)?\.json|.*lm[_-]?eval.*\.json"
_SCRIPT = frozenset({".sh", ".slurm", ".sbatch", ".bash", ".args"})
_ASIDE = frozenset(
    {"requirements.txt", "label.json", "package.json", "tokenizer.json", "readme.md", "dataset_info.json", "vocab.json",
     "latest_checkpointed_iteration.txt", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
     "preprocessor_config.json", "adapter_config.json", "model.safetensors.index.json", "license.txt", "merges.txt",
     "chat_template.json", "trainer_config.json", "conda-environment.yaml", "diff.patch", FILE}
)  # fmt: skip
_TEXT = frozenset({"", ".txt", ".json", ".ndjson", ".log", ".out", ".err", ".text", ".dat"})
_PACKED = (".gz", ".zst", ".bz2", ".xz")
_PASSED = {
    ".safetensors": "model weights",
    ".bin": "weights or a pickle, never opened",
    ".pt": "weights, never opened",
    ".pth": "weights, never opened",
    ".pkl": "a pickle, never opened",
}
STATES = frozenset({"trainer_state.json", "metrics.jsonl", "logging.jsonl", "trainer_log.jsonl", "history.jsonl"})
"""Names under which trainers themselves keep the whole run; other logs beside them may be those of an earlier attempt."""


def role(parts: Sequence[str], name: str) -> tuple[Role, str]:
    """(role, why it is left) of the file ``name`` in the directories ``parts`` below the top; no file is opened."""
    lowered = name.lower()
    suffix = lowered[lowered.rfind(".") :] if "." in lowered[1:] else ""
    if lowered == "trainer_state.json":
        return "state", ""
    if "tfevents" in lowered:
        return "events", ""
    if suffix in (".wandb", ".swanlab"):
        return "runfile", ""
    stem = lowered[: len(lowered) - len(suffix)]
    saved = re.fullmatch(_ROLLOUT_NAMES, stem) is not None or any(map(saves_answers, parts))
    if suffix == ".pt" and saved:
        return "rollouts", ""
    if suffix in _PASSED:
        return "left", _PASSED[suffix]
    if ".hydra" in parts:
        return ("config" if lowered in ("config.yaml", "overrides.yaml") else ""), ""
    if lowered in _ASIDE or any(name.endswith(end) for end in ("-wal", "-shm", "-journal", ".lock")):
        return "", ""
    if stem.startswith("timing_spans"):
        return "", ""
    if lowered.endswith(".table.json"):
        return ("rollouts" if re.fullmatch(_TABLE_NAMES, lowered) else "unknown"), ""
    if saved:
        inner = stem if suffix in _PACKED else lowered
        return ("rollouts" if inner.endswith(_ROLLOUT_ENDS) else ""), ""
    if any(checkpoint(part) is not None for part in parts):
        return ("evaluation" if re.fullmatch(_HARNESS, lowered) else ""), ""
    if lowered == "wandb-metadata.json" or re.fullmatch(_CONFIG_NAMES, lowered):
        return "config", ""
    if suffix in _SCRIPT:
        return "script", ""
    if re.fullmatch(_TOTALS, lowered) or re.fullmatch(_HARNESS, lowered):
        return "evaluation", ""
    if suffix in (".db", ".sqlite", ".sqlite3"):
        return "database", ""
    if suffix in _PACKED:
        inner = stem[stem.rfind(".") :] if "." in stem[1:] else ""
        return ("log" if inner in (".jsonl", ".csv", ".tsv", ".log", ".out", ".txt", ".json") else ""), ""
    if suffix == ".zip":
        return ("log" if ".cometml-runs" in parts else ""), ""
    if re.fullmatch(_METRIC_NAMES, lowered) or suffix in (".jsonl", ".csv", ".tsv", ".parquet"):
        return "log", ""
    return ("unknown" if suffix in _TEXT else ""), ""


def saves_answers(folder: str) -> bool:
    """True for the name of a folder in which trainers save answers."""
    return re.fullmatch(_ROLLOUT_NAMES, folder) is not None


def evaluates(folder: str) -> bool:
    """True for the name of a folder into which the evaluations of a run are logged."""
    return folder.lower() in ("eval", "evaluation", "validation", "valid", "val", "test")


def is_environment(parts: Sequence[str], name: str) -> bool:
    """True for a list of the installed packages: what pip and conda wrote, and what W&B keeps in ``files`` of a run."""
    lowered = name.lower()
    listed = re.fullmatch(r"(?:pip[-_]?freeze|freeze|pip[-_]?list)(?:[-_.]\w{1,20})?\.txt", lowered) is not None
    return listed or (lowered in ("requirements.txt", "conda-environment.yaml") and "files" in parts[-1:])


def checkpoint(folder: str) -> int | None:
    """The step of a folder of a saved state; None when its name is not that of one."""
    found = re.fullmatch(_CHECKPOINT, folder)
    return int(found[1]) if found else None


def is_config(path: Path) -> bool:
    """True when a file is a configuration by its name and content, not a log."""
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in (".yaml", ".yml", ".txt", ".json", ".args", ".toml", *_SCRIPT):
        return False
    if suffix in (".yaml", ".yml"):
        return True
    try:
        with path.open("rb") as stream:
            text = stream.read(1 << 16).decode("utf-8-sig", errors="replace")
    except OSError:
        return False
    if suffix == ".json":
        named = path.name == "wandb-metadata.json" or re.fullmatch(_CONFIG_NAMES, path.name) is not None
        return named and '"log_history"' not in text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or len(lines) > 500:
        return False
    stating = sum(
        line.startswith(("--", "#", "+")) or re.match(r"[\w.]{2,100}\s*[:=]\s*\S", line) is not None for line in lines
    )
    plain = re.fullmatch(_CONFIG_NAMES, path.name) is not None or any(line.startswith("--") for line in lines)
    return plain and stating * 2 >= len(lines) and bool(config_from_text(text))


def checkpoints(sources: Iterable[Path]) -> tuple[Checkpoint, ...]:
    """The saved states beside logs or in the directories of runs, by rising step; none of them is opened.

    Looked for in each directory, in the directory of each file, around a trainer state that itself lies in a checkpoint,
    and in subdirectories called checkpoints. Of several for one step the first found counts.
    """
    places: dict[Path, None] = {}
    for source in sources:
        place = source if source.is_dir() else source.parent
        if checkpoint(place.name) is not None:
            place = place.parent
        places[place] = None
        places.update({place / name: None for name in ("checkpoints", "ckpts", "ckpt")})
    found: dict[float, Checkpoint] = {}
    for one in (folder for place in list(places)[:PLACES] for folder in _folders(place)):
        if (saved := checkpoint(one.name)) is not None:
            found.setdefault(float(saved), Checkpoint(float(saved), str(one)))
    return tuple(found[step] for step in sorted(found))


def size(path: Path) -> int:
    """The bytes of a file; 0 for one that cannot be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _folders(place: Path) -> list[Path]:
    """The directories directly in ``place``, in the order of their names; none where it cannot be read."""
    try:
        with os.scandir(place) as entries:
            looked = itertools.islice(entries, FOLDERS)
            return sorted(Path(one.path) for one in looked if one.is_dir(follow_symlinks=False))
    except OSError:
        return []
