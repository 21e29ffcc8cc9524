"""Write src/rlclinic/report/schema.json from the TypedDicts in contract.py, or with --check say whether it is stale."""

from __future__ import annotations

import json
import sys
import typing
from pathlib import Path

import typing_extensions
from pydantic import TypeAdapter

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "rlclinic" / "report" / "schema.json"


def built() -> str:
    """The schema as it follows from the present TypedDicts."""
    # Below Python 3.12 pydantic refuses typing.TypedDict; the package itself must not depend on typing_extensions.
    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc, assignment]
    sys.path.insert(0, str(ROOT / "src"))
    from rlclinic.report.contract import SCHEMA, DiagnosisForm

    form = TypeAdapter(DiagnosisForm).json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA}
    return json.dumps({**head, **form}, indent=2, sort_keys=True) + "\n"


def main(arguments: list[str]) -> int:
    """Exit code 1 when ``--check`` finds the committed file stale or missing."""
    text = built()
    if "--check" not in arguments:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.relative_to(ROOT)} is stale: run python tools/build_schema.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
