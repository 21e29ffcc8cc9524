"""The house rules that a machine can hold: who may import whom and when, what nothing uses, sizes, what `--help` loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from rlclinic.checks import CHECKS

SOURCE = Path(__file__).parents[1] / "src" / "rlclinic"
ROW = {
    "rollouts": 0, "steps": 0, "errors": 0, "grader": 0, "healthy": 0, "history": 0,
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
HEAVY = {"numpy", "rich", "yaml", "jinja2", "starlette", "uvicorn", "pyarrow"}
"""Packages that take so long to load that a command, or a hook inside a training, loads them only when it needs them."""
UNUSED = {
    "rlclinic.names.rows MOVES": "the words that a remedy's table may use, held by tests/test_verify.py",
    "rlclinic.names.rows BOUNDS": "the same",
    "rlclinic.explain frameworks_page": "a page of the documentation, written by tools/build_docs.py",
    "rlclinic.readers.stores.remote fetch": "loaded by its name, and only for an address that the user gave",
    "rlclinic.hooks.lightning callbacks": "called by Lightning, as pyproject.toml says",
    "rlclinic.hooks.lightning callbacks_of_pytorch_lightning": "the same",
    "rlclinic.hooks.slime log_rollout": "called by slime, as its option names it",
    "rlclinic.hooks.slime log_eval": "the same",
}
"""What no module of ours uses, and who does."""
SHARED = ("form", "baselines", "readings", "finite", "groups", "rewards", "rescored", "sampled", "wording")
"""Modules among the checks that are no check: the form of one, and what several of them read in the same way."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def named(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def sources() -> dict[str, str]:
    return {named(path): path.read_text(encoding="utf-8") for path in modules()}


@cache
def trees() -> dict[str, ast.Module]:
    return {module: ast.parse(text) for module, text in sources().items()}


def home(path: Path) -> str:
    part = path.relative_to(SOURCE).parts[0]
    return part.removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """(package of ours, imported inside a function) for every import of our own."""
    found = []
    tree = trees()[named(path)]
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


@cache
def imported(module: str) -> tuple[list[ast.Import | ast.ImportFrom], list[ast.Import | ast.ImportFrom]]:
    """(imports that importing ``module`` runs, those inside its functions); what only a type checker sees is in neither."""
    first: list[ast.Import | ast.ImportFrom] = []
    later: list[ast.Import | ast.ImportFrom] = []
    ahead: list[tuple[ast.AST, bool]] = [(trees().get(module, ast.Module([], [])), False)]
    while ahead:
        node, inside = ahead.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            (later if inside else first).append(node)
        elif not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            ahead += [
                (one, inside) for one in ast.iter_child_nodes(node) if isinstance(one, (ast.stmt, ast.ExceptHandler))
            ]
    return first, later


def wanted(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules that an import loads."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        inner = [f"{node.module}.{alias.name}" for alias in node.names if f"{node.module}.{alias.name}" in trees()]
        yield from inner
        if len(inner) < len(node.names):
            yield node.module or ""


@cache
def at_once(module: str) -> frozenset[str]:
    """What importing ``module`` loads first: what it imports, and the package around it."""
    around = module.rpartition(".")[0]
    return frozenset({name for node in imported(module)[0] for name in wanted(node)} | ({around} if around else set()))


@cache
def loads(module: str) -> frozenset[str]:
    """All that importing ``module`` loads."""
    seen, ahead = {module}, {module}
    while ahead:
        ahead = set().union(*map(at_once, ahead)) - seen
        seen |= ahead
    return frozenset(seen)


def test_an_import_inside_a_function_spares_the_start() -> None:
    """Ours stand at the top of a file unless what they load is heavy, or the file is that which tells of errors."""
    for module in trees():
        for node in imported(module)[1]:
            ours = [one for one in wanted(node) if one.startswith("rlclinic")]
            light = [one for one in ours if not {name.partition(".")[0] for name in loads(one)} & HEAVY]
            assert not light or module == "rlclinic.__main__", f"{module}:{node.lineno} can import {light} at the top"


def test_nothing_is_there_that_nothing_uses() -> None:
    """Every function, class and constant at the top of a module is used by another or by its own; tests do not count.

    ``stats`` is a library, too: what only its users call is named in docs/statistics.md.
    """
    used: set[str] = set()
    parts: dict[str, list[tuple[ast.stmt, frozenset[str]]]] = {}
    for module, tree in trees().items():
        text = re.sub(r'(?s)""".*?"""|#[^"\n]*$', lambda gone: "\n" * gone[0].count("\n"), sources()[module])
        lines = text.split("\n")
        known: dict[str, set[str]] = {}
        typed = [one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)] if module == "rlclinic" else []
        for node in chain(*imported(module), typed):
            if isinstance(node, ast.ImportFrom):
                used |= {f"{node.module} {alias.name}" for alias in node.names}
                for alias in node.names:
                    known.setdefault(alias.asname or alias.name, set()).add(f"{node.module}.{alias.name}")
        for owner, name in re.findall(r"\b(\w+)\.(\w+)", text):
            used |= {f"{one} {name}" for one in known.get(owner, ())}
        parts[module] = []
        for part in tree.body:
            begins = min([part.lineno, *(one.lineno for one in getattr(part, "decorator_list", ()))])
            said = frozenset(re.findall(r"\w+", " ".join(lines[begins - 1 : part.end_lineno])))
            parts[module].append((part, said))
    library = (SOURCE.parents[1] / "docs" / "statistics.md").read_text(encoding="utf-8")
    unused = set()
    for module, nodes in parts.items():
        for part, _ in nodes:
            if any(".command" in ast.unparse(one) for one in getattr(part, "decorator_list", ())):
                continue
            for name in _defined(part):
                own = any(name in said for other, said in nodes if other is not part)
                public = module.startswith("rlclinic.stats.") and f"`{name}`" in library
                if not (own or public or f"{module} {name}" in used or name.startswith("__")):
                    unused.add(f"{module} {name}")
    assert unused == set(UNUSED)


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module gives to something."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    several = (one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target]))
    return [one.id for one in several if isinstance(one, ast.Name)]


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


MOST_LOADED = {"--help": (24, 175), "diagnose": (165, 250)}
"""Most modules that a command loads: ours without the checks themselves, and all that are neither ours nor numpy's. Ten
pasted lines took 153 and 209 when this was written, ``--help`` 20 and 122; of a second's work most was their loading."""


def test_a_few_pasted_lines_load_only_what_they_need(tmp_path: Path) -> None:
    pasted = tmp_path / "pasted.log"
    pasted.write_text("".join(f"{{'loss': 0.0{n}, 'reward': 0.{n}5, 'kl': 0.00{n}}}\n" for n in range(10)))
    for command, *given in (["--help"], ["diagnose", str(pasted)]):
        every = loaded(command, *given)
        ours = {m for m in every if m.partition(".")[0] == "rlclinic" and not m.startswith("rlclinic.checks.")}
        others = {m for m in every if m.partition(".")[0] not in ("rlclinic", "numpy")}
        assert len(ours) <= MOST_LOADED[command][0], f"{command} loads {len(ours)} modules of ours: {sorted(ours)}"
        assert len(others) <= MOST_LOADED[command][1], f"{command} loads {len(others)} others: {sorted(others)}"
    assert "rlclinic.diagnose" in every
    unasked = ("live", "simulate", "compare", "verify", "baseline", "record", "templates")
    idle = {"scipy", "yaml", "jinja2", "sqlite3", "ssl", "http.client", "asyncio", "multiprocessing"}
    assert not every & (idle | {f"rlclinic.{name}" for name in unasked})


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
