"""The rows that a trainer hands over, held in bounded memory, as a Run whenever it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlclinic.model import Run
from rlclinic.readers import read_rows
from rlclinic.readers.axis import STEP_KEYS
from rlclinic.readers.rows import Rows


class Growing:
    """A log in memory. ``knobs`` are some settings, ``config`` the whole configuration, beside which the framework's own
    defaults hold; both in canonical or in the framework's spelling."""

    def __init__(
        self,
        *,
        framework: str | None = None,
        knobs: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        planned_steps: int | None = None,
        name: str = "run",
    ) -> None:
        self._framework, self._knobs, self._config = framework, dict(knobs or {}), dict(config or {})
        self._planned, self._name = planned_steps, name
        self._rows = Rows()

    @property
    def rows(self) -> int:
        """Rows held."""
        return self._rows.rows

    def add(self, metrics: Mapping[str, Any], step: float | None = None) -> bool:
        """Append one row; False when it holds no number. Without ``step`` the row states it or is counted."""
        row = metrics if step is None else {key: value for key, value in metrics.items() if key not in STEP_KEYS}
        return self._rows.add(row, step)

    def run(self) -> Run:
        """The run as far as it was logged."""
        log = self._rows.finish(path=self._name, format="mapping", nonfinite="kept")
        run = read_rows(log, framework=self._framework, knobs=self._knobs, config=self._config)
        return run if self._planned is None else replace(run, planned_steps=self._planned)
