"""Write the JSON Schemas of report/ from the TypedDicts beside them, or with --check say which is stale."""

from __future__ import annotations

import json
import sys
import typing
from importlib import import_module
from pathlib import Path

import typing_extensions
from pydantic import TypeAdapter

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "src" / "rlclinic" / "report"
FORMS = {
    "schema.json": ("rlclinic.report.contract", "DiagnosisForm"),
    "comparison.schema.json": ("rlclinic.report.comparison_form", "ComparisonForm"),
    "verification.schema.json": ("rlclinic.report.verification", "VerificationForm"),
}
"""File by file the module that holds the form (its ``SCHEMA`` is the name and version) and the form's TypedDict."""


def built(module: str, form: str) -> str:
    """The schema as it follows from the present TypedDicts."""
    # Below Python 3.12 pydantic refuses typing.TypedDict; the package itself must not depend on typing_extensions.
    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc, assignment]
    if str(ROOT / "src") not in sys.path:
        sys.path.insert(0, str(ROOT / "src"))
    home = import_module(module)
    schema = TypeAdapter(getattr(home, form)).json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": home.SCHEMA}
    return json.dumps({**head, **schema}, indent=2, sort_keys=True) + "\n"


def main(arguments: list[str]) -> int:
    """Exit code 1 when ``--check`` finds a committed file stale or missing."""
    stale = 0
    for name, (module, form) in FORMS.items():
        text, target = built(module, form), FOLDER / name
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        if "--check" not in arguments:
            target.write_text(text, encoding="utf-8")
            continue
        print(f"{target.relative_to(ROOT)} is stale: run python tools/build_schema.py", file=sys.stderr)
        stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
