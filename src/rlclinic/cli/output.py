"""Where a text goes, and how the place can show it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from rlclinic.cli.options import ENDINGS
from rlclinic.errors import BadRequest


def busy(sources: Sequence[str], large: int = 20_000_000) -> AbstractContextManager[object]:
    """A spinner on a terminal's standard error while an address or more than ``large`` bytes are read; else nothing."""
    afar = [source for source in sources if "://" in source]
    size = sum(map(_size, sources))
    if (size < large and not afar) or sys.stderr is None or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.markup import escape

    return Console(stderr=True).status(
        f"fetching {escape(afar[0])} ..." if afar else f"reading {size / 1e6:,.0f} MB ..."
    )


def _size(source: str) -> int:
    """Bytes of a file; 0 for anything else, and for a name that no file system takes, which reading tells of."""
    try:
        return os.path.getsize(source) if os.path.isfile(source) else 0
    except (OSError, ValueError):
        return 0


def settled(form: str, output: Path | None) -> str:
    """The format to write: as asked with ``--format``, else by the ending of the file, else ``form``.

    Raises BadRequest for a page that would go to a terminal: nobody can read it there.
    """
    from click.core import ParameterSource

    context = click.get_current_context(silent=True)
    asked = context is not None and context.get_parameter_source("form") is not ParameterSource.DEFAULT
    if output is not None and not asked:
        form = ENDINGS.get(output.suffix.lower(), form)
    to_terminal = (output is None or str(output) == "-") and sys.stdout is not None and sys.stdout.isatty()
    if form == "html" and to_terminal:
        raise BadRequest("a file for the page", "--format html on a terminal", hint="-o report.html")
    return form


def drawing(form: str, output: Path | None) -> dict[str, Any]:
    """How wide, in colour or not, and in ASCII or not the place of the output can show a page."""
    import shutil

    terminal = sys.stdout is not None and sys.stdout.isatty() and output is None
    width = min(shutil.get_terminal_size((80, 24)).columns, 120) if output is None else 100
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower() if output is None else "utf-8"
    return {"width": max(width, 60), "color": terminal, "ascii": form == "terminal" and "utf" not in encoding}


def write_out(text: str, output: Path | None, force: bool, inputs: Sequence[Path] = ()) -> None:
    """Print, or write to a file that is new (or given up with ``--force``) and none of the ``inputs``."""
    if output is None or str(output) == "-":
        if sys.stdout is None:
            raise BadRequest("a place to print to", "standard output is closed", hint="-o FILE")
        encoding = sys.stdout.encoding or "ascii"
        click.echo(text.encode(encoding, "replace").decode(encoding), nl=not text.endswith("\n"))
        return
    if str(output) == ".":
        raise BadRequest("a file to write", "an empty name after -o")
    inside = [path for path in inputs if path.is_dir() and path.resolve() in output.resolve().parents]
    if output.exists() and (inside or any(path.exists() and output.samefile(path) for path in inputs)):
        raise BadRequest("a file of its own for the report", f"{output} is one of the inputs", hint="-o another name")
    if output.exists() and not force:
        raise BadRequest("a new file to write", f"{output} exists", hint="another name, or --force to replace it")
    try:
        output.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as problem:
        raise BadRequest("a file that can be written", f"{output}: {problem.strerror}") from problem
