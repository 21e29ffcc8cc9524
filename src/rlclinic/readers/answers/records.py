"""The records in a file of saved answers, one after another, whatever the file's form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlclinic.errors import CannotRead


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Every record of a file. Raises CannotRead when there is none or the file cannot be read."""
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.strip():
                    try:
                        record = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(record, dict):
                        yield record
    except OSError as problem:
        raise CannotRead("saved answers", f"{path}: {problem.strerror}") from problem
