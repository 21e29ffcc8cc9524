"""Every setting of the TRL and verl tables exists in the package's own configuration, with the default that is stated.

The wheels are read as archives: dataclass fields from the syntax tree, defaults from the YAML; nothing is imported.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from rlclinic import names
from rlclinic.model import Framework
from rlclinic.names import KnobRow
from rlclinic.names.rows import within

pytestmark = pytest.mark.slow

UNSET = object()


@pytest.fixture(scope="session")
def wheels(pytestconfig: pytest.Config) -> Path:
    """A folder that holds the wheels once they have been fetched."""
    return Path(pytestconfig.cache.mkdir("wheels")) if pytestconfig.cache else Path.cwd()


def wheel(folder: Path, package: str, version: str) -> zipfile.ZipFile:
    pattern = f"{package}-{version}-*.whl"
    if not list(folder.glob(pattern)):
        fetch = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--quiet",
            "-d",
            str(folder),
            f"{package}=={version}",
        ]
        try:
            subprocess.run(fetch, check=True, capture_output=True, timeout=300)
        except (subprocess.SubprocessError, OSError):
            pytest.skip(f"{package} {version} cannot be had here")
    found = next(folder.glob(pattern), None)
    if found is None:
        pytest.skip(f"{package} {version} has no wheel here")
    return zipfile.ZipFile(found)


def fields(archive: zipfile.ZipFile, path: str, name: str) -> dict[str, object]:
    """Annotated fields of one class with their literal defaults; UNSET where the default is no literal."""
    tree = ast.parse(archive.read(path))
    (body,) = [node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
    found: dict[str, object] = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = default(node.value)
    return found


def default(value: ast.expr | None) -> object:
    if isinstance(value, ast.Call):
        given = {word.arg: word.value for word in value.keywords}
        return default(given.get("default"))
    try:
        return UNSET if value is None else ast.literal_eval(value)
    except ValueError:
        return UNSET


def rows(name: str, version: str) -> list[KnobRow]:
    framework = Framework(name, name, version=version)
    every = [row for group in names.load(name).knobs.values() for row in group]
    return [row for row in every if within(framework, row.since, row.until)]


def stated(row: KnobRow, framework: Framework) -> object:
    """The table's default as the framework writes it; UNSET where the table states none."""
    usual = names.default_knobs(framework).get(row.name)
    if usual is None or row.default_from or usual.key != row.key:
        return UNSET
    return row.map.get(usual.value, usual.value) if row.map else usual.value


def faults(name: str, version: str, known: Mapping[str, object], beside: frozenset[str] = frozenset()) -> list[str]:
    framework = Framework(name, name, version=version)
    wrong = []
    for row in rows(name, version):
        key = row.key.partition("[")[0]
        if row.writes.startswith("+"):
            continue  # read by the package but outside its schema
        if key not in known:
            wrong.append(f"{row.name}: {name} {version} has no {key}")
            continue
        told, real = stated(row, framework), known[key]
        if UNSET not in (told, real) and real is not None and not str(real).startswith("${") and told != real:
            wrong.append(f"{row.name}: {key} is {real!r} by default, not {told!r}")
    for id in names.load(name).remedies:
        remedy = names.remedy(id, framework)
        wrong += [
            f"{id}: {name} {version} has no {key}"
            for key in names.flags(remedy.writes.replace(", ", " "))
            if "=" in remedy.writes and key not in known and key not in beside
        ]
    return wrong


def test_trl(wheels: Path) -> None:
    trl, base = wheel(wheels, "trl", "1.16.0"), wheel(wheels, "transformers", "5.24.0")
    known = fields(base, "transformers/training_args.py", "TrainingArguments")
    known |= fields(trl, "trl/trainer/base_config.py", "_BaseConfig")
    known |= fields(trl, "trl/trainer/model_config.py", "ModelConfig")
    known |= fields(trl, "trl/trainer/grpo_config.py", "GRPOConfig")
    known = fields(trl, "trl/experimental/async_grpo/async_grpo_config.py", "AsyncGRPOConfig") | known
    assert (
        faults(
            "trl",
            "1.16.0",
            known,
            frozenset({"reward_funcs", "ngram_size", "max_len", "max_penalty", "soft_punish_cache"}),
        )
        == []
    )


def test_verl(wheels: Path) -> None:
    archive = wheel(wheels, "verl", "0.9.1")
    tree = yaml.safe_load(archive.read("verl/trainer/config/_generated_ppo_trainer.yaml"))
    known: dict[str, object] = {}

    def walk(node: object, path: str) -> None:
        known[path] = node
        for key, inner in node.items() if isinstance(node, dict) else ():
            walk(inner, f"{path}.{key}" if path else str(key))

    walk(tree, "")
    assert faults("verl", "0.9.1", known) == []
