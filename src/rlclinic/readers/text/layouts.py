"""Metrics that a trainer prints for people: headed blocks, drawn tables, and lines parted by bars."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from rlclinic.readers.config import SETTINGS, setting
from rlclinic.readers.text.boxes import Box, Boxes
from rlclinic.readers.tokens import Printed, metric_like, number

Emit: TypeAlias = Callable[[Mapping[str, object], float | None, str], None]

PAIRS = 2_000
"""Most metrics of one block (ours)."""
LONGEST = 4_000
"""Longest line of one of these layouts in characters (ours: the longest, of prime-rl, has about 300)."""
WRAPPED = 300
"""Longest beginning of a heading that a terminal may have broken in two, in characters (ours)."""

_NUMBER = r"[-+]?(?:\d[\d,]{0,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?|\.\d{1,20}|nan|inf)"

# AReaL (areal/utils/stats_logger.py; realhf/system/master_worker.py before it)
_TRAIN_STEP = r"Train step (\d{1,9})/(\d{1,9}) done"
_GLOBAL_STEP = r"[Ee]poch (\d{1,6})/(\d{1,6}) step (\d{1,9})/(\d{1,9}) \(global step (\d{1,9})\)"

# NeMo-RL (nemo_rl/algorithms/grpo.py)
_HEADING = r"={5,60}\s{1,3}(Step|Epoch) (\d{1,9})/(\d{1,9})\s{1,3}={5,60}"
_BULLET = (
    rf"\s{{1,8}}[•-]\s{{0,2}}([^:]{{1,120}}): ({_NUMBER})\s?(s|tokens|steps)?(?:\s{{1,2}}\([^()]{{0,40}}\))?\s{{0,4}}"
)
_VALIDATING = r"Starting validation at step (\d{1,9})"
_NEMO: dict[str, dict[str, str]] = {
    "Training Results:": {
        "Loss": "loss",
        "Draft Loss": "draft_loss",
        "Generation KL Error": "gen_kl_error",
        "Avg Reward": "reward",
        "Avg Total Reward": "reward",
        "Avg Filtered Reward": "filtered_reward",
        "Mean Generation Length": "mean_gen_tokens_per_sample",
        "Buffer Size": "buffer_size",
        "Avg Trajectory Age": "avg_trajectory_age",
    },
    "Validation Results:": {
        "Accuracy": "validation/accuracy",
        "Average response length": "validation/avg_length",
        "Samples processed": "validation/num_samples",
    },
    "Timing:": {"Total step time": "timing/train/total_step_time"},
}
"""Labels of a block as the keys under which the same values are logged; other labels of ``Timing:`` are phases."""

# torchforge (src/forge/observability/metrics.py): "=== [process] - METRICS STEP 3 ===", once without the process
_FORGE = r"=== \[(?:([^\]\n]{0,120})\] - )?METRICS STEP (\d{1,9}) ==="
_FORGE_PIECE = r"[\w./+-]{1,120}"
_FORGE_PAIR = r"\s{1,8}(\S{1,200}): (\S{1,60})\s{0,4}"

# prime-rl (src/prime_rl/trainer/rl/train.py, src/prime_rl/orchestrator/orchestrator.py), with and without colons
_PRIME = r"(?:^|[\s\]])(Micro |Train )?[Ss]tep (\d{1,9})(?:/\d{1,9})? \| (.{3,2000})"
_PRIME_EVAL = r"Evaluated (\S{1,100}) \| Policy v(\d{1,9}) \| (.{3,1000})"
_PRIME_PART = rf"([A-Z][A-Za-z. -]{{0,40}}?):?\s{{1,2}}({_NUMBER})(?:/\d{{1,9}}(?:\.\d{{1,3}})?)?(%)?([^|]{{0,40}})"
_TOOK = r"(?:Time: )?\d{1,9}(?:\.\d{1,3})?(?:ms|s|m|h|d)(?: \d{1,2}[smh])?"
"""The duration that comes first in every such line, and by which they are told from other lines parted by bars."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TRAINER = {
    "Loss": "loss/mean",
    "Entropy": "entropy/all/mean",
    "Mismatch KL": "mismatch_kl/all/mean",
    "Importance Ratio": "importance_ratio/mean",
    "Grad. Norm": "optim/grad_norm",
    "LR": "optim/lr",
    "MFU": "perf/mfu",
    "Peak Mem.": "perf/peak_memory",
    "Max Vio": "max_vio/mean",
    "Routing Conf.": "routing_confidence/mean",
}
_ORCHESTRATOR = {
    "Val. Reward": "val_reward/mean",
    "Seq. Length": "seq_len/mean",
    "Async Level": "async_level",
    "Max. Off-Policy Level": "off_policy/max",
    "Max Off-Policy": "off_policy/max",
}
_BY_SUBSET = {
    "Reward": "reward/mean",
    "Turns": "num_turns/mean",
    "Branches": "num_branches/mean",
    "Error": "has_error/mean",
    "Cancelled": "cancelled/mean",
    "Truncation": "is_truncated/mean",
    "Timeout": "is_timeout/mean",
}
_WHOLE_COHORT = frozenset({"Error", "Cancelled", "Timeout"})
_FOUR = frozenset({"Loss", "Entropy", "Mismatch KL", "Importance Ratio", "Grad. Norm", "Reward", "Val. Reward"})
"""Labels of values with four decimals: one that shows fewer at the end of a line was cut."""
_STAMPED = r"\s{0,4}(?:\[?\d{1,4}[-:/]\d{1,2}[-:/]|[A-Z]{4,8}\s)"
_PRIME_REST = r"[\w. :/%()+|-]{1,400}"
BROKEN = (40, 300)
"""Lengths between which a line may have been broken by a terminal (ours: the narrowest in use, and three lines of 100)."""
_IN_PERCENT = frozenset({"perf/mfu"})
"""Keys that the trainer logs in percent as well; any other percentage is logged as a share."""

# Megatron's list of arguments, which slime prints at its start
_ARGUMENT = r"\s{1,4}([a-z][a-z0-9_]{1,80}) \.{3,80} (\S.{0,300})"

# Dataclasses as rich prints them, with which open-instruct starts
_FIELD = r"(?:│ {3}){1,8}([a-z]\w{1,80})=(.{1,300}?),?\s{0,4}"

# open-instruct (open_instruct/model_utils.py): a frame titled Metrics; tinker-cookbook (utils/ml_log.py): Metric | Value
_TITLE = r"\s*Step (\d{1,9})\s*"


class Layouts:
    """Takes lines in order; calls ``emit(row, step, style)`` for each piece of a row that they hold."""

    def __init__(self, emit: Emit) -> None:
        self.planned: int | None = None
        self.settings: dict[str, object] = {}
        """Settings that a list of arguments stated."""
        self.traceback = False
        """True after a drawn traceback, whose error stands in the next line."""
        self.dropped: str = ""
        """A process whose metrics repeat those of another and are left out."""
        self._emit = emit
        self._boxes = Boxes()
        self._title: float | None = None
        self._titled: float | None = None
        self._areal: float | None = None
        self._shown: float | None = None
        self._labels: Mapping[str, str] | None = None
        self._section = ""
        self._block: dict[str, object] = {}
        self._step: float | None = None
        self._before = 0
        self._top = 0
        self._epochs = 1
        self._forge: tuple[str, float] | None = None
        self._process: str | None = None
        self._held: dict[str, object] = {}
        self._known: set[str] = set()
        self._before_it = ""
        self._line = ""
        self._piece = ""

    @property
    def inside(self) -> bool:
        """True where a line that looks like nothing may belong to a block that was begun."""
        return self._labels is not None or self._forge is not None or self._boxes.drawing

    def take(self, text: str, ended: bool) -> bool:
        """True when the line belongs to one of these layouts. A line that did not end gives no value."""
        if "│   " in text[:12] and not self._boxes.drawing and ended and (stated := re.fullmatch(_FIELD, text[:400])):
            self._state(stated[1], stated[2])
            return True
        if self._boxes.drawing or not text.isascii():
            begun = self._boxes.drawing
            taken, boxes = self._boxes.take(text) if ended else (False, [])
            for box in boxes:
                self._boxed(box)
            if self._boxes.drawing and (boxes or not begun):
                self._titled, self._title = self._title, None
            if taken:
                return True
        self._title = None
        if self._line and self._rest_of_line(text, ended):
            return True
        if len(text) > LONGEST:
            return False
        if self._forge is not None and self._forged(text, ended):
            return True
        if self._labels is not None and self._bullet(text, ended):
            return True
        if ("Results:" in text or "Timing:" in text or "Metrics:" in text) and self._heads(text):
            return True
        if " ..." in text and ended and (stated := re.fullmatch(_ARGUMENT, text)):
            self._state(stated[1], stated[2])
            return True
        before, self._before_it = self._before_it, ""
        if "tep " in text or "Epoch " in text or "Evaluated " in text or "METRICS STEP" in text or before:
            if self._steps(text, ended) or (before and self._steps(before + text, ended)):
                return True
            if "Epoch " in text and ended and len(text) <= WRAPPED:
                self._before_it = text
        return False

    def close(self) -> None:
        """Emit what is still held."""
        for box in self._boxes.close():
            self._boxed(box)
        self._end_line()
        if self._forge is not None:
            self._end_forge()
        self._end_block()

    def _state(self, name: str, value: str) -> None:
        if len(self.settings) < SETTINGS:
            self.settings[name] = setting(value.strip())

    # Headings

    def _steps(self, text: str, ended: bool) -> bool:
        if ended and len(text) < 200 and (title := re.fullmatch(_TITLE, text)):
            self._title = float(title[1])
            return True
        if found := re.search(_FORGE, text):
            self._forge = (found[1] or "", float(found[2]))
            return True
        if "===" in text and (found := re.search(_HEADING, text)):
            self._end_block()
            self._headed(found[1], int(found[2]), int(found[3]))
            return True
        if "(global step" in text and (found := re.search(_GLOBAL_STEP, text)):
            self._areal = float(found[5])
            self.planned = int(found[2]) * int(found[4])
            return True
        if "Train step" in text and (found := re.search(_TRAIN_STEP, text)):
            self._areal, self.planned = float(found[1]), int(found[2])
            return True
        if found := re.search(_VALIDATING, text):
            # The validation of a step is printed before the results of that step.
            self._step = float(found[1])
            return True
        if "Evaluated " in text:
            return ended and self._evaluated(text)
        if " | " in text and (found := re.search(_PRIME, text)):
            if found[1] == "Micro ":
                return True
            row = self._lined(found[3], ended)
            if row and ended:
                # The line may go on in the next one, where a terminal broke it.
                self._line = text
            elif row:
                self._emit(row, float(found[2]), "prime-rl")
            return row is not None
        return False

    def _headed(self, unit: str, now: int, total: int) -> None:
        if unit == "Epoch":
            self._before += self._top if now > 1 else 0
            self._top, self._epochs = 0, total
            return
        if now <= self._top and now == 1 and self._epochs > 1:
            self._before += self._top
        self._top = now
        self._step = float(self._before + now)
        self.planned = total if self._epochs == 1 else None

    def _heads(self, text: str) -> bool:
        for head, labels in _NEMO.items():
            if text.rstrip().endswith(head) and len(text) < 200:
                if head == "Timing:" and self._section == "Validation Results:":
                    self._labels = None
                    return True
                if head != "Timing:" and self._step is None:
                    self._end_block()
                self._labels, self._section = labels, head
                return True
        if text.rstrip().endswith(("Metrics:", "Timing:")):
            self._labels = None
        return False

    # Blocks of NeMo-RL and torchforge

    def _bullet(self, text: str, ended: bool) -> bool:
        found = re.fullmatch(_BULLET, text) if "•" in text[:12] or "- " in text[:12] else None
        if found is None or self._labels is None:
            return False
        if not ended:
            return True
        key = self._labels.get(found[1])
        if key is None and self._section == "Timing:" and found[3] == "s":
            key = f"timing/train/{found[1]}"
        if key is not None and (value := _printed(found[2])) is not None:
            if self._step is not None:
                self._emit({key: value}, self._step, "nemo-rl")
            elif len(self._block) < PAIRS:
                self._block.setdefault(key, value)
        return True

    def _end_block(self) -> None:
        if self._block:
            self._emit(self._block, None, "nemo-rl")
        self._block, self._labels = {}, None

    def _forged(self, text: str, ended: bool) -> bool:
        assert self._forge is not None
        bare = text.strip()
        if not bare:
            return True
        pair = re.fullmatch(_FORGE_PAIR, self._piece + text)
        if pair is None and not self._piece and ended and re.fullmatch(_FORGE_PIECE, bare):
            # A terminal broke the line: inside a name, or inside the number of the last pair.
            if text[:1].isspace():
                self._piece = text
            elif self._held:
                last = next(reversed(self._held))
                self._held[last] = Printed(f"{self._held[last]}{bare}")
            return True
        if pair is None:
            self._end_forge()
            return bare.startswith("=====") and not bare.strip("=")
        self._piece = ""
        if ended and len(self._held) < PAIRS:
            self._held[pair[1]] = Printed(pair[2])
        return True

    def _end_forge(self) -> None:
        assert self._forge is not None
        (process, step), self._forge = self._forge, None
        held, self._held, self._piece = self._held, {}, ""
        row = {key: token for key, token in held.items() if number(str(token)) is not None}
        if not row:
            return
        self._process = process if self._process is None else self._process
        if process == self._process:
            self._known |= row.keys()
        else:
            self.dropped = process if not self._known.isdisjoint(row) else self.dropped
            row = {key: value for key, value in row.items() if key not in self._known}
        if row:
            self._emit(row, step, "torchforge")

    # Lines of prime-rl

    def _rest_of_line(self, text: str, ended: bool) -> bool:
        """True when the text is the rest of the line before it; else that line is done with."""
        last = self._line.rpartition("|")[2]
        if (
            BROKEN[0] <= len(self._line) <= BROKEN[1]
            and not re.match(_STAMPED, text)
            and not re.search(_PRIME, text)
            and ("|" in text or re.fullmatch(_PRIME_PART, (last + text).strip()))
            and re.fullmatch(_PRIME_REST, text)
        ):
            self._line += text if ended else text.rpartition("|")[0]
            return True
        self._end_line()
        return False

    def _end_line(self) -> None:
        line, self._line = self._line, ""
        found = re.search(_PRIME, line)
        row = self._lined(found[3], True) if found else None
        if found and row:
            self._emit(row, float(found[2]), "prime-rl")

    def _lined(self, rest: str, ended: bool) -> dict[str, object] | None:
        """The metrics of a line of prime-rl; None for a line that is none."""
        first, *parts = rest.split("|")[:40]
        parts = parts if ended else parts[:-1]
        if not re.fullmatch(_TOOK, first.strip()):
            return None
        row: dict[str, object] = {}
        trainer, old = any(part.lstrip().startswith("Loss") for part in parts), first.strip().startswith("Time")
        names = _TRAINER if trainer else _ORCHESTRATOR
        if trainer:
            row["time/step"] = _seconds(first.strip().removeprefix("Time: "))
        for place, part in enumerate(parts):
            found = re.fullmatch(_PRIME_PART, part.strip()) if len(part) < 200 else None
            if found is None:
                continue
            label = found[1].strip()
            if (
                place + 1 == len(parts)
                and label in _FOUR
                and len(found[2].partition(".")[2]) < 4
                and "n" not in found[2]
            ):
                continue
            key = names.get(label)
            if key is None and label == "Throughput":
                key = "perf/throughput" if trainer else None
            if key is None and not trainer and label in _BY_SUBSET:
                cohort = "" if old else f"train/all/{'all' if label in _WHOLE_COHORT else 'effective'}/"
                key = f"{cohort}{_BY_SUBSET[label]}"
            if key is None and not found[3] and label != "Trainable":
                key = label
            if key is None or (value := _printed(found[2])) is None:
                continue
            if found[3] and key not in _IN_PERCENT:
                value = _share(value)
            row.setdefault(key.replace("/all/mean", "/mean") if old else key, value)
        return row if metric_like(row.keys() - {"time/step"}) or not ended else None

    def _evaluated(self, text: str) -> bool:
        found = re.search(_PRIME_EVAL, text)
        if found is None:
            return False
        row: dict[str, object] = {}
        for part in found[3].split("|")[:20]:
            one = re.fullmatch(_PRIME_PART, part.strip()) if len(part) < 200 else None
            if one is not None and one[1].strip() in _BY_SUBSET and (value := _printed(one[2])) is not None:
                subset = "all" if one[1].strip() == "Error" else "effective"
                row[f"eval/{found[1]}/{subset}/{_BY_SUBSET[one[1].strip()]}"] = _share(value) if one[3] else value
        if row:
            self._emit(row, float(found[2]), "prime-rl")
        return bool(row)

    # Drawn tables

    def _boxed(self, box: Box) -> None:
        if "Traceback (most recent call last)" in box.title:
            self.traceback = True
        if box.columns == 1:
            if box.title == "Metrics":
                self._framed([row[0] for row in box.rows])
            return
        if box.corner == "╒" and not box.head and box.columns % 2 == 0:
            row = {
                key: value
                for cells in box.rows
                for key, value in ((cells[at].strip(), _cell(cells[at + 1])) for at in range(0, len(cells), 2))
                if key and "…" not in key and value is not None
            }
            if row and (self._areal is not None or metric_like(row)):
                self._emit(dict(list(row.items())[:PAIRS]), self._areal, "areal")
            return
        heads = [cell.strip() for cell in box.head[0]] if box.head else []
        if heads == ["Metric", "Value"] and (row := _joined(box.rows)):
            self._emit(row, self._titled, "tinker")

    def _framed(self, lines: list[str]) -> None:
        """The rows of open-instruct's frame: a group of metrics, and its ``name: value`` pairs over several lines."""
        groups: list[list[str]] = []
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        for line in lines:
            if not line.strip():
                continue
            if len(line) - len(line.lstrip()) <= indent:
                groups.append(line.split(None, 1))
            elif groups:
                groups[-1].append(line.strip())
        row: dict[str, object] = {}
        for group, *rest in groups:
            text = " ".join(part.strip() for part in rest)
            if (alone := _rounded(text)) is not None:
                row.setdefault(group, alone)
                continue
            for pair in text.split(" | ")[:PAIRS]:
                name, colon, token = pair.rpartition(":")
                value = _rounded(token.replace(" ", "")) if colon else None
                if value is not None and name and "…" not in name:
                    name = name.replace(" ", "")
                    row.setdefault(name if group == "other" else f"{group}/{name}", value)
        if not row:
            return
        step = row.get("training_step")
        if isinstance(step, str):
            self._shown = number(step)
        self._emit(row, self._shown, "open-instruct")


def _printed(token: str) -> str | float | None:
    """A printed value; as a plain number where its digits are relative (``1.00e-06``) and tell no resolution."""
    plain = token.replace(",", "")
    value = number(plain)
    return value if value is None or "e" in plain.lower() else Printed(plain)


def _seconds(took: str) -> str | float:
    """A printed duration (``34.50s``, ``1m 3s``, ``950ms``) in seconds."""
    parts = re.findall(r"([\d.]{1,13})(ms|s|m|h|d)", took)
    if len(parts) == 1 and parts[0][1] == "s":
        return Printed(parts[0][0])
    return sum(float(size) * _UNITS[unit] for size, unit in parts)


def _share(percent: str | float) -> str | float:
    """A printed percentage as a share, with two decimals more."""
    value = number(str(percent))
    if value is None or not math.isfinite(value):
        return percent
    return Printed(f"{value / 100:.{len(str(percent).partition('.')[2]) + 2}f}")


def _cell(cell: str) -> object:
    """A cell of AReaL's table. Its five digits are relative, so the decimals shown say nothing of the resolution."""
    return number(cell.strip()) if len(cell) < 100 else None


def _rounded(token: str) -> object:
    """A value of open-instruct: two decimals, or a tiny one in full, whose digits say nothing of the others' rounding."""
    token = token.strip()
    value = number(token) if token else None
    return value if value is None or "e" in token.lower() else Printed(token)


def _joined(rows: list[list[str]]) -> dict[str, object]:
    """The pairs of a table of two columns, whose long names go on in the next line beside an empty cell."""
    pairs: list[list[str]] = []
    for key, value in rows:
        key, value = key.strip(), value.strip()
        if pairs and (not key or not value):
            pairs[-1][0] += key
            pairs[-1][1] += value
        else:
            pairs.append([key, value])
    return {key: Printed(value) for key, value in pairs[:PAIRS] if key and "…" not in key and number(value) is not None}
