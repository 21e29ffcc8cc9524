"""Settings and library versions, from configuration files, command lines and the text around a log."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from rlclinic.errors import CannotRead
from rlclinic.readers.tokens import number

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_LIMIT = 8 << 20
"""Largest configuration file in bytes (ours: the largest one seen, a resolved verl configuration, has 40 KiB)."""
SETTINGS = 5_000
"""Most settings kept of one source (ours)."""
VALUE_LENGTH = 2_000
"""Longest text value kept (ours)."""

FIELDS = 500
"""Most lines of a printed configuration object (ours: TRL's has about 200)."""
OUTLINE = 10
"""Least lines of a configuration printed as YAML (ours: shorter nested lists are mostly something else)."""

# Patterns are kept as text: re compiles each at its first use, so a log in JSON pays for none of them.
_FLAG = r"(?s)--([A-Za-z][\w.-]{1,120})(?:=(.*))?"
_OVERRIDE = r"(?s)\+{0,2}([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)=(.*)"
_LABEL = r"([A-Za-z_][\w.]{1,120})\s*[:=]\s*(\S.{0,500})"
_TOKEN = (
    r"[^\s'\"\[\],=]+=(?:\[[^\]\n]*\]|'[^'\n]*'|\"[^\"\n]*\")"
    r"|'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"\[\],]+(?:=(?:\[[^\]\n]*\]|'[^'\n]*'|\"[^\"\n]*\"))?|,"
)
_PLAIN = r"(?s)([A-Za-z_]\w{1,80})=(.*)"
_CALL = (
    r"\b(?:\w*(?:GRPO|PPO|RLOO|DPO|ORPO|KTO|SFT|Online\w*|Training|Script)(?:Config|Arguments|Argument)|(?:argparse\.)?Namespace"
    r"|\w{0,60}Args)\("
)
_FIELD = r"\s*([A-Za-z_]\w{0,80})\s*=\s*(\S.{0,500}?),?\s*"
_COMMAND = r"(?:\.py|\s-m\s+[\w.]+|\b(?:swift|llamafactory-cli|trl|openrlhf)\b\s+\w+)(?=\s)"
_SERVES = r"\b(?:vllm-serve|vllm\s+serve|sglang\.launch_server|lm_eval|evaluate\w*\.py|eval\w*\.py|pip\s+install)\b"
_ASSIGNED = r"(?:export\s+|declare\s+|local\s+)?([A-Za-z_]\w{0,80})=(\S.{0,500}|)"
_VARIABLE = r"\$(?:\{([A-Za-z_]\w{0,80})(?::?-([^}]{0,200}))?\}|([A-Za-z_]\w{0,80}))"
_INDENTED = r"( {0,40})([A-Za-z_][\w.]{0,120}):(?: +(\S.{0,500}))?"
_ARGUMENT = r"([A-Za-z_]\w{1,80})\s*=\s*('[^'\n]*'|\"[^\"\n]*\"|\[[^\[\]\n]*\]|[^\s,()\[\]]+)"

_LIBRARIES = (
    "trl|transformers|verl|vllm|sglang|torch|pytorch|unsloth|unsloth_zoo|ms-swift|ms_swift|swift|openrlhf|deepspeed"
    "|peft|accelerate|ray|flash-attn|flash_attn|numpy|slime|areal|nemo-rl|nemo_rl|skyrl|prime-rl|python|datasets"
)
_RELEASE = r"v?(\d{1,4}\.\d{1,4}(?:\.[\w+]{1,20}){0,4})"
_PINNED = rf"(?i)(?<![\w/.-])({_LIBRARIES})\s{{0,3}}(?:==|@ ?v|version\s?[:=]?\s?|[:=]\s?)\s?{_RELEASE}"
_LISTED = rf"(?im)(?:^|[,;(=|\[]\s{{0,3}})({_LIBRARIES})[ -]{_RELEASE}(?=$|[\s,;:)|.\]])"
_PROGRAM = (
    r"\b(openrlhf|verl|llamafactory|slime|areal|nemo_rl|skyrl|rllm)\.(?:cli|trainer|launcher|train)\b"
    r"(?=[.\w ]{0,80}(?:\s--|\s[\w.]{1,80}=))"
)
"""A trainer's module in the command that starts it, with the settings behind it."""
_PLANNED = r"(?:Total steps|total_training_steps|Total optimization steps|max_steps)\s{0,3}[=:]\s{0,3}([\d,]{1,12})\b"
_RAISED = r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,80}(?:Error|Exception|Interrupt|Exit|Failure)\b.{0,400}"
_FATAL = (
    r"CUDA out of memory|CUDA error|NCCL error|Watchdog caught collective operation timeout|Segmentation fault"
    r"|exits with return code|ChildFailedError|oom-kill|SIGKILL|Out of memory|DUE TO TIME LIMIT|ActorDiedError"
)
_GPU = r"\b((?:NVIDIA|AMD|Tesla)\s[\w ()-]{2,40}?)(?=\.|,|\s\||\s{2}|$)"
_GPUS = r"Num GPUs(?: used)?\s?=\s?(\d{1,5})"
_MODEL = r"(?i)(?:^|\s)(?:model|base|base model|policy model)\s?[:=]\s?((?:[\w.-]{2,60}/)[\w.-]{2,80})\s*$"
_BATCH = r"Batch size per device = ([\d,]{1,8}) \| Gradient accumulation steps = ([\d,]{1,8})"
_TROUBLE = r"[Ee]rror|[Ee]xception|imeout|emory|Segm|SIG|exits|Traceback|Interrupt|Exit"
_DOTTED = r"[A-Za-z].{0,12}\d\.\d"
_FACT = r"GPU|NVIDIA|[Mm]odel|base"
_GIVEN = r"(?:^|[\s'\"])--[a-z]|(?:^|[\s'\"+])[a-z_]+\.[a-z_.]+=|\.py\s"
_SAME = {
    "pytorch": "torch",
    "swift": "ms-swift",
    "ms_swift": "ms-swift",
    "flash_attn": "flash-attn",
    "nemo_rl": "nemo-rl",
}

_OF_MODEL = frozenset({"architectures", "transformers_version", "hidden_size", "vocab_size"})
"""Keys of the configuration of a model."""


def read_config(path: Path) -> dict[str, object]:
    """The settings of a YAML, JSON or plain argument file, nested ones under dotted names.

    Raises CannotRead when the file is missing, too large, not text, broken YAML or JSON, or holds no setting.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(FILE_LIMIT + 1)
    except OSError as error:
        raise CannotRead("a configuration file", f"{path}: {error.strerror or error}") from error
    if len(data) > FILE_LIMIT:
        raise CannotRead("a configuration file", f"{path}: larger than {FILE_LIMIT >> 20} MiB")
    if b"\0" in data[:4096]:
        raise CannotRead("a configuration file", f"{path}: not text")
    text = data.decode("utf-8-sig", errors="replace")
    if path.suffix.lower() in (".sh", ".slurm", ".sbatch", ".bash"):
        if settings := from_script(text):
            return settings
        raise CannotRead("a configuration file", f"{path}: a script that starts no training with settings")
    nested, trouble = _structured(text)
    if isinstance(nested, dict):
        started = nested.get("args")
        if isinstance(started, list) and "program" in nested:  # wandb-metadata.json
            words = [_quoted(str(one)) for one in started[:SETTINGS]]
            nested, text = None, f"run.py {' '.join(words)}"
        elif (
            "model_type" in nested and "learning_rate" not in nested and (len(nested) == 1 or _OF_MODEL & nested.keys())
        ):
            raise CannotRead("a configuration file", f"{path}: that of the model, not of the training")
    elif isinstance(nested, list):  # overrides of Hydra
        overrides = [one for one in nested[:SETTINGS] if isinstance(one, str)]
        nested, text = None, "\n".join(overrides)
    structured = path.suffix.lower() in (".yaml", ".yml", ".json")
    settings = flat_settings(nested)
    if not settings and not (trouble and structured):
        settings = arguments(text, labels=True)
    if not settings:
        raise CannotRead(
            "a configuration file",
            f"{path}: {trouble or 'no setting in it'}",
            hint="give YAML, JSON, or one --flag value for each line",
        )
    return settings


def config_from_text(text: str) -> dict[str, object]:
    """The settings that a configuration file or a list of arguments states; empty when it states none."""
    text = text[:FILE_LIMIT]
    nested, _ = _structured(text)
    return flat_settings(nested) if isinstance(nested, dict) else arguments(text, labels=True)


def _structured(text: str) -> tuple[object, str]:
    """The JSON or YAML mapping that a text is, and what is wrong with it as one; neither for a list of arguments."""
    trouble = ""
    if text.lstrip()[:1] == "{":
        try:
            return json.loads(text), ""
        except json.JSONDecodeError as error:
            trouble = f"broken JSON at line {error.lineno}: {error.msg}"
        except (ValueError, RecursionError):
            trouble = "JSON that is nested too deeply or holds a number that is too long"
    if re.search(r"^[ \t]*\[[\w.\"-]{1,200}\][ \t]*(?:#.*)?$", text, re.MULTILINE):
        try:
            return tomllib.loads(text), ""
        except (tomllib.TOMLDecodeError, RecursionError):
            trouble = trouble or "broken TOML"
    if re.search(r"^[ \t]*(?:--|[\w.]{1,200}=)", text, re.MULTILINE):
        return None, trouble
    import yaml  # 25 ms that only a configuration is worth

    try:
        if "*" in text and "&" in text and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            return None, trouble or "YAML with aliases (&name and *name), which are not followed"
        loaded = yaml.load(text, Loader=_tagless(yaml))
    except yaml.MarkedYAMLError as error:
        where = "" if error.problem_mark is None else f" at line {error.problem_mark.line + 1}"
        return None, trouble or f"broken YAML{where}: {error.problem or 'it cannot be parsed'}"
    except (yaml.YAMLError, ValueError, RecursionError):
        return None, trouble or "broken YAML: characters, numbers or nesting that cannot be read"
    listed = isinstance(loaded, list) and all(isinstance(one, str) and "=" in one for one in loaded)
    return (loaded, "") if isinstance(loaded, dict) or listed else (None, trouble)


def _tagless(yaml: ModuleType) -> Any:
    """A safe loader that reads what a tag of a program stands before (``!dataclass:Args``, ``!!python/tuple``) as if it
    stood alone; nothing is ever constructed from a tag."""

    class Tagless(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        pass

    def plain(loader: Any, _: str, node: Any) -> object:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)

    for prefix in ("!", "tag:yaml.org,2002:python/"):
        Tagless.add_multi_constructor(prefix, plain)
    return Tagless


def _quoted(text: str) -> str:
    return f"'{text}'" if re.search(r"\s", text) and "'" not in text else text


def flat_settings(nested: object) -> dict[str, object]:
    """Nested settings under dotted names, without W&B's ``{"value": ...}`` wrappers, numeric text as numbers."""
    settings: dict[str, object] = {}
    for key, value in _walk(nested, "", 0):
        settings[key] = value
        if len(settings) >= SETTINGS:
            break
    return settings


def _walk(nested: object, prefix: str, depth: int) -> Iterator[tuple[str, object]]:
    if not isinstance(nested, Mapping) or depth > 12:
        return
    for name, value in nested.items():
        if prefix == "" and str(name).startswith("_wandb"):
            continue  # what the client of W&B writes about itself
        key = f"{prefix}{name}"[:VALUE_LENGTH]
        if isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "desc", "sort"}:
            value = value["value"]
        if isinstance(value, Mapping):
            yield from _walk(value, f"{key}.", depth + 1)
        elif isinstance(value, (list, tuple)):
            yield key, [setting(v) if isinstance(v, str) else v for v in value[:100]]
        else:
            yield key, setting(value) if isinstance(value, str) else value


def setting(text: str) -> object:
    """The value of one setting as written: number, bool, None, list of such, or the text itself (bounded)."""
    token = text.strip()[:VALUE_LENGTH]
    if len(token) > 1 and token[0] == token[-1] and token[0] in "'\"":
        token = token[1:-1]
        if token[:1].isalpha() and token.lower() not in ("true", "false"):
            return token
    lowered = token.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if token != "none" and lowered in ("none", "null", "~"):  # "none" is a choice of many settings (scale_rewards)
        return None
    if token.isascii() and token.lstrip("+-").isdigit() and len(token) < 19:
        return int(token)
    if token[:1] == "[" and token[-1:] == "]":
        inner = token[1:-1].strip()
        return [setting(part) for part in inner.split(",")[:100]] if inner else []
    found = number(token) if "(" not in token else None
    return token if found is None else found


def arguments(text: str, labels: bool = False) -> dict[str, object]:
    """Flags (``--flag value``), dotted overrides (``a.b=c``) and, with ``labels``, lines ``name: value``.

    A flag with several values gives a list, one without a value gives True. A later mention wins.
    """
    settings: dict[str, object] = {}
    for line in text.splitlines():
        if len(settings) >= SETTINGS:
            break
        line = line[: FILE_LIMIT >> 6].strip().lstrip("> ").rstrip("\\ ")
        if not line or line[0] == "#":
            continue
        if labels and "--" not in line and (label := re.fullmatch(_LABEL, line)) and not re.fullmatch(_OVERRIDE, line):
            settings[label[1]] = setting(label[2])
            continue
        _from_tokens(line, settings, files=labels)
    return settings


def _from_tokens(line: str, settings: dict[str, object], files: bool = False) -> None:
    name: str | None = None
    command = re.search(_COMMAND, line)
    values: list[object] = []

    def close() -> None:
        if name is not None:
            changed = "->" in values
            several = " ".join(map(str, values)) if changed else list(values)
            settings[name] = True if not values else values[0] if len(values) == 1 else several

    for found in re.finditer(_TOKEN, line):
        token = found[0]
        if token == ",":
            continue
        bare = token[1:-1] if token[0] in "'\"" else token
        flag = re.fullmatch(_FLAG, bare)
        if flag:
            close()
            name, values = flag[1], []
            if flag[2] is not None:
                values = [setting(flag[2])]
                close()
                name = None
            continue
        override = re.fullmatch(_OVERRIDE, bare)
        if override is None and (files or (command is not None and found.start() >= command.end())):
            override = re.fullmatch(_PLAIN, bare)
        if override:
            close()
            name = None
            settings[override[1]] = setting(override[2])
        elif name is not None and len(values) < 50:
            values.append(setting(bare))
    close()


def from_script(text: str) -> dict[str, object]:
    """The settings that a shell script gives to the training it starts; empty when it starts none, or several.

    Variables are put in where the script itself sets them; a value that still hangs on one is left out.
    """
    known: dict[str, str] = {}
    started: list[dict[str, object]] = []

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        return known.get(name, found[2] if found[2] is not None else found[0])

    for line in re.sub(r"\\[ \t]*\r?\n", " ", text[:FILE_LIMIT]).splitlines()[:10_000]:
        line = line.strip()[:20_000]
        if not line or line[0] == "#":
            continue
        line = re.sub(_VARIABLE, value, line)
        if assigned := re.fullmatch(_ASSIGNED, line):
            held = assigned[2].strip()
            known[assigned[1]] = held[1:-1] if len(held) > 1 and held[0] == held[-1] and held[0] in "'\"" else held
            continue
        command = re.search(_COMMAND, line)
        if command is None or re.search(_SERVES, line):
            continue
        settings: dict[str, object] = {}
        _from_tokens(f"run.py {line[command.end() :]}", settings)
        settings = {key: held for key, held in settings.items() if not (isinstance(held, str) and "$" in held)}
        if settings:
            started.append(settings)
    return started[0] if len(started) == 1 else {}


def from_call(text: str) -> dict[str, object]:
    """The arguments of a printed configuration object (``GRPOConfig(output_dir='x', beta=0.04, ...)``)."""
    start = re.search(_CALL, text)
    if start is None:
        return {}
    body = text[start.end() : start.end() + 100_000]
    return {found[1]: setting(found[2]) for found in re.finditer(_ARGUMENT, body)}


def versions_in(text: str) -> dict[str, str]:
    """Library versions that a text states outright (``trl==1.2.0``, ``Transformers: 4.55.2``), the first of each.

    A version mentioned in a sentence ("removed in Transformers 5.0") is not taken.
    """
    found: dict[str, str] = {}
    for pattern in (_PINNED, _LISTED):
        for match in re.finditer(pattern, text):
            name = match[1].lower()
            found.setdefault(_SAME.get(name, name), match[2].rstrip("."))
    return found


class Surroundings:
    """What the text around the metrics tells: settings, versions, plain facts, and the error that ended the run."""

    def __init__(self) -> None:
        self.config: dict[str, object] = {}
        self.versions: dict[str, str] = {}
        self.facts: dict[str, str] = {}
        self.planned: int | None = None
        self.ending = ""
        self._traceback = False
        self._fields = 0
        self._outline: list[tuple[int, str, str]] = []

    @property
    def spacing(self) -> float | None:
        """The logging interval in steps, where the settings state it."""
        for key in ("logging_steps", "logging-steps", "args.logging_steps"):
            value = self.config.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1:
                return float(value)
        return None

    def went_on(self) -> None:
        """A metric row followed, so no error seen so far ended the run, and a printed configuration is over."""
        self.ending, self._traceback = "", False
        if self._outline:
            self._indented("")

    def take(self, text: str) -> None:
        """Look through one line that holds no metric."""
        if self._traceback or re.search(_TROUBLE, text):
            self._error(text)
        if self._fields:
            self._field(text)
        if "=" in text or ":" in text or "--" in text or text.rstrip()[-1:] == "(":
            self._settings_in(text[:20_000])
        if self._outline or text.rstrip()[-1:] == ":":
            self._indented(text)
        if re.search(_FACT, text[:1_000]):
            for name, pattern in (("hardware", _GPU), ("gpus", _GPUS), ("model", _MODEL)):
                found = re.search(pattern, text[:1_000])
                if found:
                    self.facts.setdefault(name, found[1].strip()[:100])

    def settings(self, found: Mapping[str, object]) -> None:
        """Add settings; a later mention wins."""
        for key, value in found.items():
            if len(self.config) < SETTINGS or key in self.config:
                self.config[key] = value

    def _error(self, text: str) -> None:
        if "Traceback (most recent call last)" in text[-4_000:]:  # a progress bar may stand before it
            self._traceback = True
            return
        if self._traceback and not text[:1].isspace():
            raised = re.match(_RAISED, text)
            if raised:
                self.ending = raised[0][:200].strip()
                return
        fatal = None if self.ending else re.search(_FATAL, text)
        if fatal:
            start = max(0, fatal.start() - 60)
            self.ending = text[start : start + 200].strip()

    def _field(self, text: str) -> None:
        """One line of a configuration object printed over several lines (``TrainingArguments(``, then ``beta=0.04,``)."""
        found = re.fullmatch(_FIELD, text) if len(text) < 1_000 else None
        self._fields = 0 if text.strip().startswith(")") else self._fields - 1
        if found:
            self.settings({found[1]: setting(found[2])})

    def _indented(self, text: str) -> None:
        """Gather a configuration printed as YAML; it counts once it is long and nested, as no table of metrics is."""
        found = re.fullmatch(_INDENTED, text.rstrip()) if len(text) < 700 and ":" in text else None
        if found and len(self._outline) < SETTINGS:
            self._outline.append((len(found[1]), found[2], found[3] or ""))
            return
        outline, self._outline = self._outline, []
        if len(outline) < OUTLINE:
            return
        path: list[tuple[int, str]] = []
        settings: dict[str, object] = {}
        for (depth, name, value), after in zip(outline, [*outline[1:], (0, "", "")], strict=True):
            while path and path[-1][0] >= depth:
                path.pop()
            if value:
                if path:
                    settings[".".join([*(one for _, one in path), name])] = setting(value)
            elif after[0] > depth:
                path.append((depth, name))
        if len(settings) * 2 >= OUTLINE:
            self.settings(settings)

    def _settings_in(self, text: str) -> None:
        if re.search(_GIVEN, text):
            self.settings(arguments(text))
        if "Config(" in text or "Arguments(" in text or "Namespace(" in text or "Args(" in text:
            self.settings(from_call(text))
            if re.search(rf"{_CALL}\s*$", text):
                self._fields = FIELDS
        batch = re.search(_BATCH, text)
        if batch:
            sizes = (int(part.replace(",", "") or 0) for part in batch.groups())
            self.settings(dict(zip(("per_device_train_batch_size", "gradient_accumulation_steps"), sizes, strict=True)))
        for name, value in versions_in(text[:2_000]).items() if re.search(_DOTTED, text[:2_000]) else ():
            self.versions.setdefault(name, value)
        for library in re.findall(_PROGRAM, text[:20_000]) if "." in text[:20_000] else ():
            self.versions.setdefault(library, "")
        planned = re.search(_PLANNED, text)
        if planned and int(planned[1].replace(",", "") or 0) > 0:
            self.planned = int(planned[1].replace(",", ""))
