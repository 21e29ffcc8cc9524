"""What SwanLab's run files (.swanlab) say: scalars, how the run ended, and its console text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO

from rlclinic.readers.binary.blocks import Captured, Damage, each, with_console
from rlclinic.readers.binary.wire import Torn, double, fields, moment, signed, text
from rlclinic.readers.rows import Inferred, Log, Rows
from rlclinic.readers.tabular.records import refuse, trains
from rlclinic.readers.tokens import KEY_LENGTH, number
from rlclinic.readers.written import Points, gather


class Swanlab:
    """The records of SwanLab run files (swanlab/proto/record), and the JSON ones of versions before 0.8."""

    def __init__(self) -> None:
        self.sources: list[Points] = []
        self.facts: dict[str, str] = {}
        self.ending: str | None = None
        self.damage = Damage()
        self.text = Captured()
        self._system: set[str] = set()

    def take(self, stream: IO[bytes], name: str) -> None:
        """All records of one file, which begin after its header."""
        points = Points(name)
        self.sources.append(points)
        self.ending = None
        each(stream, self.damage, lambda record: self._take(record, points))

    def _take(self, record: bytes, points: Points) -> None:
        if record[:1] == b"{":
            self._old(record, points)
        else:
            self._record(record, points)

    def _record(self, record: bytes, points: Points) -> None:
        for kind, _, value in fields(record):
            if not isinstance(value, bytes):
                continue
            if kind == 13:
                self._scalar(value, points)
            elif kind == 12:
                about = {inner: one for inner, _, one in fields(value) if inner in (1, 3)}
                if about.get(1) == 2 and 3 in about:  # of the machine, not of the training
                    self._system.add(text(about[3]))
            elif kind == 10:
                self.facts["run"] = next((text(one)[:KEY_LENGTH] for inner, _, one in fields(value) if inner == 4), "")
            elif kind == 16:
                self.text.add(next((text(one) for inner, _, one in fields(value) if inner == 1), "") + "\n")
            elif kind == 11:
                self.ending = _ending(value)

    def _scalar(self, message: bytes, points: Points) -> None:
        """Key, step, time and a double in a message of its own; zeros are left out everywhere."""
        key, step, wall, scalar = "", 0, 0.0, 0.0
        for inner, wire, one in fields(message):
            if inner == 1:
                key = text(one)
            elif inner == 2:
                step = signed(one)
            elif inner == 4:
                wall = moment(one)
            elif inner == 5 and wire == 2 and isinstance(one, bytes):
                scalar = next((double(held) for place, _, held in fields(one) if place == 1), 0.0)
            elif inner == 5:
                scalar = double(one)
        if key and len(key) <= KEY_LENGTH and key not in self._system:
            points.add(points.key(key), step, wall, scalar)

    def _old(self, record: bytes, points: Points) -> None:
        try:
            read = json.loads(record)
        except (ValueError, RecursionError) as error:
            raise Torn("broken JSON") from error
        data = read.get("data") if isinstance(read, dict) else None
        if not isinstance(read, dict) or not isinstance(data, dict) or read.get("model_type") != "Scalar":
            return
        key, step, metric = data.get("key"), data.get("step"), data.get("metric")
        held = metric.get("data") if isinstance(metric, Mapping) else None
        value = number(held) if isinstance(held, str) else held
        if (
            isinstance(key, str)
            and len(key) <= KEY_LENGTH
            and isinstance(step, (int, float))
            and isinstance(value, (int, float))
        ):
            points.add(points.key(key), int(step), 0.0, float(value))

    def log(self, path: str) -> Log:
        """Everything taken so far as a log."""
        rows = Rows()
        seams, said = gather(self.sources, rows)
        said += self.damage.said("SwanLab run file")
        log = None
        if rows.rows and trains(rows):
            log = rows.finish(
                path=path, format="swanlab", nonfinite="kept", inferred=Inferred(seams=seams), warnings=said
            )
        found = with_console(
            log,
            self.text.log(path, brief=log is not None),
            ending=self.ending,
            config={},
            versions={},
            facts=self.facts,
        )
        if found is None:
            raise refuse(path, "a SwanLab run file without a training metric", "give the console output of the run")
        return found


def _ending(message: bytes) -> str:
    """How a run ended, by its last record: the last line of the error, else what the state says; empty when it finished."""
    state, error = 0, ""
    for inner, _, one in fields(message):
        if inner == 1:
            state = signed(one)
        elif inner == 2:
            error = text(one)
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1][:200] if lines else {2: "the run crashed", 3: "the run was aborted"}.get(state, "")
