"""The house rules that a machine can hold: who may import whom, how large modules are, what `--help` loads."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlclinic.checks import CHECKS

SOURCE = Path(__file__).parents[1] / "src" / "rlclinic"
ROW = {
    "rollouts": 0, "errors": 0, "grader": 0, "healthy": 0, "history": 0,
    "model": 1,
    "names": 2, "stats": 2,
    "readers": 3, "answers": 3, "simulate": 3,
    "vitals": 4,
    "checks": 5,
    "differential": 6, "remedies": 6, "reassurances": 6, "regrade": 6,
    "prognosis": 7,
    "diagnose": 8, "gallery": 8,
    "compare": 9, "verify": 9, "baseline": 9, "record": 9,
    "report": 10, "assess": 10,
    "explain": 11, "prescribe": 11, "suggest": 11, "live": 11, "templates": 11,
    "hooks": 12, "cli": 12, "__main__": 12, "__init__": 12,
}  # fmt: skip
"""Row of each module in the house (docs/architecture.md); a module may import from rows below and from its own package."""
FORBIDDEN = {("checks", "names"), ("checks", "readers"), ("checks", "report"), ("report", "checks"), ("simulate", "checks"),
             ("report", "diagnose"), ("simulate", "stats")}  # fmt: skip
LONGEST = 560
SHARED = ("form", "baselines", "readings", "groups", "rewards", "rescored", "sampled", "wording")
"""Modules among the checks that are no check: the form of one, and what several of them read in the same way."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def home(path: Path) -> str:
    part = path.relative_to(SOURCE).parts[0]
    return part.removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """(package of ours, imported inside a function) for every import of our own."""
    found = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(n) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in ast.walk(f)
    }
    for node in ast.walk(tree):
        targets: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rlclinic":
            parts = node.module.split(".")
            targets = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            targets = [a.name.split(".")[1] for a in node.names if a.name.startswith("rlclinic.")]
        found += [(target, id(node) in inside) for target in targets if not target.startswith("_")]
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_layers(path: Path) -> None:
    mine = home(path)
    for target, inside in imports(path):
        assert target in ROW, f"{target} has no row in the house"
        if mine in ("cli", "hooks", "__main__", "__init__") or (path.name == "__init__.py" and inside):
            continue
        assert not inside, f"{path.name} imports {target} inside a function"
        assert target == mine or ROW[target] < ROW[mine], f"{mine} may not import {target}"
        assert (mine, target) not in FORBIDDEN, f"{mine} may never import {target}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_size_and_first_sentence(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert text.startswith('"""'), "a module starts with one sentence that says what it is for"
    assert lines <= LONGEST, f"{lines} lines"
    if path.parent.name == "checks" and path.stem not in ("__init__", *SHARED):
        assert lines <= 125, f"a check of {lines} lines"
    assert path.stem not in ("utils", "helpers", "common", "base", "core", "manager", "engine")


def test_the_list_of_checks_is_the_folder() -> None:
    folder = {p.stem for p in (SOURCE / "checks").glob("*.py")} - {"__init__", *SHARED}
    listed = {one.name for one in CHECKS}
    assert folder == listed, f"add to CHECKS in checks/__init__.py: {sorted(folder - listed)}"
    assert {p.stem for p in (SOURCE / "checks").glob("*.toml")} == listed


def loaded(*arguments: str) -> set[str]:
    run = "import rlclinic.__main__ as m\ntry:\n m.main()\nexcept SystemExit: pass\n"
    code = f"import sys; sys.argv = ['rlclinic', *{list(arguments)!r}]\n{run}"
    code += "print('LOADED', ' '.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED ")[2].split())


def test_help_is_light() -> None:
    heavy = {"numpy", "scipy", "rich", "yaml", "jinja2", "rlclinic.checks", "rlclinic.names"}
    assert not loaded("--help") & heavy
    assert not loaded("diagnose", "--help") & heavy
    assert not loaded("--version") & heavy


def test_importing_the_package_is_light() -> None:
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", "import rlclinic, sys; print('numpy' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
    assert time.perf_counter() - begin < 5
