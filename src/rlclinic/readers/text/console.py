"""Metrics out of captured or pasted training output, whatever else it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rlclinic.model import SHORT, Warn
from rlclinic.readers.config import Surroundings, flat_settings, setting
from rlclinic.readers.rows import Log, Rows
from rlclinic.readers.text.bars import PLAIN_BAR, Bars
from rlclinic.readers.text.gather import Counters, Gathered
from rlclinic.readers.text.layouts import Layouts
from rlclinic.readers.text.literal import PAIRS, Scan, scan
from rlclinic.readers.text.postfix import Postfixes
from rlclinic.readers.text.prints import Prints
from rlclinic.readers.text.strays import Strays
from rlclinic.readers.text.verl import StepLines
from rlclinic.readers.tokens import Printed, metric_like, number

OPEN_LINES = 3_000
"""Most physical lines of one printed dictionary (ours: a resolved verl configuration prints about 500)."""
SPEAKERS = 16
"""Most processes whose unfinished dictionaries are kept apart (ours)."""
FAILURES = 50
"""Most braces of one physical line that may turn out to open no dictionary before the rest is left (ours)."""

# Most patterns are kept as text: re compiles each at its first use, so a log in JSON pays for none of them.
_ANSI = re.compile(
    r"\x1b\[[0-9;?]{0,40}[ -/]?[@-~]|\x1b\][^\x07\x1b]{0,300}\x07|\[\d{1,2}(?:;\d{1,3}){0,4}m(?![\w\]:])|\x1b"
)
_PREFIX = r"\s{0,8}(?:\([^()]{0,80}pid=\d{1,9}[^()]{0,60}\)|\[rank\d{1,5}\]:?|\[default\d{1,5}\]:) ?"
_SOURCE = _PREFIX + r"|\((?:raylet|autoscaler|gcs_server)\b[^()]{0,60}\)"
_OPENING = re.compile(r"\{\s{0,40}['\"][A-Za-z_]|\{\s*$")
_BARE_PAIRS = r"""(?:'[^'"{}\n:]{1,200}'|"[^'"{}\n:]{1,200}")\s?:\s?['"]?[-+.\dniN]"""
_LABEL = r"(?i)(perf|step|rollout|eval|passrate|iter|iteration)\s{0,2}[:#]?\s{0,2}(\d{1,9})\s{0,2}[:=-]?\s{0,4}$"
_LABEL_ALONE = r"(?:^|[\s\]-])Step (\d{1,9}): ?$"
_QUOTED = r"(?:> ?){1,20}"
"""How mail and forums quote a line."""
_FINAL = " validation metrics:"
_EVALUATED = r"global_step (\d{1,9}), eval_metrics: ?$"
_OWNED = ("eval", "rollout/", "train/", "perf/", "passrate/")
"""How keys begin that a label such as ``perf 3:`` may stand before."""
_QUOTED_LINE = r"""\s{0,4}\(?(["'])(.{1,4000})\1\)?\s{0,2}"""
_COUNTED = r"(?i)(?:^|[\s\]])(?:Iter|Iteration|Step|Epoch|Update)\s{1,3}(\d{1,9})(?:\s?/\s?\d{1,9})?\s{0,3}[:|]"
_NAMED = (
    r"(?i)\s*([A-Za-z][\w./@ -]{0,120}?)[\s:=]{1,3}"
    r"([-+]?(?:\d[\d.]{0,30}(?:e[-+]?\d{1,3})?|\.\d{1,30}|nan|inf))(%?)\s?[A-Za-z/%]{0,12}\s*"
)
_SUMMARY = r"wandb:\s+([A-Za-z_][\w./@-]{0,190}) +([-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf|NaN|Infinity))\s*$"
_KEPT = frozenset(
    ["verl", "labelled dict", "areal", "open-instruct", "nemo-rl", "torchforge", "prime-rl", "tinker", "progress bar"]
)
"""Styles whose writers print NaN and infinities as they are (Python's formats do; read in their sources)."""
_SUBSETS = {
    "nemo-rl": "its TensorBoard or W&B log",
    "prime-rl": "metrics.jsonl or its W&B log",
}
"""Styles that show a part of the metrics, and where the others are."""
_CONFIG_KEYS = frozenset(
    [
        "per_device_train_batch_size",
        "num_generations",
        "max_completion_length",
        "output_dir",
        "actor_rollout_ref",
        "num_train_epochs",
        "gradient_accumulation_steps",
        "model_name_or_path",
        "train_batch_size",
        "n_samples_per_prompt",
        "adv_estimator",
        "grpo",
        "loss_fn",
        "checkpointing",
        "algorithm",
    ]
)


def plain(text: str) -> str:
    """A line without colour codes, process prefixes and Ray's repetition notes."""
    if "\x1b" in text or ("m" in text and "[" in text):
        text = _ANSI.sub("", text)
    if text[:2] == "> " and (quoted := re.match(_QUOTED, text)):
        text = text[quoted.end() :]
    for _ in range(3):
        prefix = re.match(_PREFIX, text) if text[:10].lstrip()[:1] in ("(", "[") else None
        if prefix is None:
            break
        text = text[prefix.end() :]
    return text[: text.index("[repeated")].rstrip() if "[repeated" in text and "across cluster]" in text else text


def _source(text: str) -> str:
    """The process that wrote a raw line, as its prefix names it; empty without a prefix."""
    if "(" not in text[:40] and "[" not in text[:40]:
        return ""
    found = re.match(_SOURCE, _ANSI.sub("", text[:400]))
    return found[0].strip() if found else ""


class Console:
    """Takes the lines of a text in order (``feed``) and gives the log they hold (``close``)."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.told = Surroundings()
        self.warned: dict[str, Warn] = {}
        self.text_lines = 0
        self.cut = False
        self.pieced = False
        """True when the only row was put together from lines of names and numbers, which a table in the text outdoes."""
        self._style = self._stated_style = ""
        self._open: list[str] = []
        self._open_label: tuple[str, float] | None = None
        self._open_source = ""
        self._aside: dict[str, tuple[list[str], tuple[str, float] | None, int, int]] = {}
        self._alone: tuple[float, str] | None = None
        self._quoted = False
        self._tail = ""
        self._raw = ""
        self._found = False
        self._gathered = Gathered(self.rows)
        self._counters = Counters(self._gathered)
        self._layouts = Layouts(self._emit)
        self._depth = 0
        self._next_scan = 0
        self._verl = StepLines()
        self._strays = Strays()
        self._stated = 0
        self.bars = Bars()
        self._postfixes = Postfixes()
        self._summary: dict[str, object] = {}
        self._prints = Prints()
        self._counted: list[tuple[float, dict[str, object]]] = []
        self._shapes: set[tuple[str, ...]] = set()
        self._heading = ""
        self._section: str | None = None
        self._taken: str | None = None
        self._others: list[str] = []

    def feed(self, line: str, ended: bool = True) -> None:
        """One physical line without its newline; ``ended`` is False when the text stops inside it."""
        pieces = line.rstrip("\r").split("\r")
        for place, piece in enumerate(pieces):
            self._raw = piece
            if (self._open or self._aside) and (source := _source(piece)) and source != self._open_source:
                self._turn_to(source)
            self._piece(plain(piece), ended or place + 1 < len(pieces))

    def _turn_to(self, source: str) -> None:
        """A line of another process: what the last one has not yet closed waits until it speaks again."""
        if self._open and len(self._aside) < SPEAKERS:
            self._aside[self._open_source] = self._open, self._open_label, self._depth, self._next_scan
            self._open = []
        if not self._open and source in self._aside:
            self._open, self._open_label, self._depth, self._next_scan = self._aside.pop(source)
        self._open_source = source

    def _piece(self, text: str, ended: bool) -> None:
        if self._quoted or _FINAL in text:
            text = self._unquoted(text)
        if self._verl.go_on(text):
            if not ended:
                self._close_verl(cut=True)
            return
        self._close_verl(cut=False)
        if self._open:
            fresh = text[:1] == "{" or text.startswith("Traceback") or self._verl.begins(text)
            if not fresh:
                self._extend(text)
                return
            self._abandon()
        if not text:
            return
        source = _source(self._raw) if self._alone is not None else ""
        alone = self._alone[0] if self._alone is not None and source in ("", self._alone[1]) else None
        self._alone = self._alone if self._alone is not None and alone is None else None
        if "%|" in text and "{" not in text and PLAIN_BAR.fullmatch(text):
            self.bars.take(text, self.rows.rows)
            self.text_lines += 1
            return
        if self._verl.begin(text):
            if not ended:
                self._close_verl(cut=True)
            return
        if self._layouts.take(text, ended):
            if self._layouts.traceback:
                self._layouts.traceback = False
                self.told.take("Traceback (most recent call last)")
            return
        tail, self._tail = self._tail, text
        if text.endswith((":", ": ")) and (begun := re.search(_LABEL_ALONE, text if "Step " in text else tail + text)):
            self._alone = float(begun[1]), _source(self._raw)
            self._around(text)
            return
        place = failures = 0
        while failures < FAILURES and (opening := _OPENING.search(text, place)) is not None:
            before = text[place : opening.start()]
            self._around(before)
            label = self._labelled(before) if alone is None or before.strip() else ("alone", alone)
            found = scan(text, opening.start() + 1)
            if found.state == "open":
                self._open, self._open_label = [text[opening.start() + 1 :]], label
                self._open_source = _source(self._raw)
                self._depth = 1 + self._open[0].count("{") - self._open[0].count("}")
                self._next_scan = 2
                return
            self._take(found.pairs, label, whole=found.state == "closed")
            failures += not found.pairs
            place = max(found.end, opening.end())
        rest = text[place:]
        bare = re.search(_BARE_PAIRS, rest) if place == 0 and "{" not in rest else None
        if bare and len(re.findall(_BARE_PAIRS, rest[:5000])) >= 3:
            found = scan(rest, bare.start())
            if found.state == "open":
                self._open, self._open_label, self._depth, self._next_scan = [rest[bare.start() :]], None, 1, 2
                return
            self._take(found.pairs, None, whole=False)
            return
        self._around(rest)
        self._line(rest, ended)

    # A dictionary over several lines

    def _extend(self, text: str) -> None:
        self._open.append(text)
        self._depth += text.count("{") - text.count("}")
        if self._depth > 0 and len(self._open) < self._next_scan and len(self._open) < OPEN_LINES:
            return
        self._next_scan = 2 * len(self._open)
        joined = "".join(self._open)
        found = scan(joined, 0)
        if found.state == "open" and len(self._open) < OPEN_LINES:
            return
        self._settle(found)

    def _abandon(self) -> None:
        found = scan("".join(self._open), 0)
        found.state = "closed" if found.state == "closed" else "broken"
        self._settle(found)

    def _settle(self, found: Scan) -> None:
        """Take what was read and give the lines after it back."""
        lines, self._open = self._open, []
        closed = found.state == "closed"
        self._take(found.pairs, self._open_label, whole=closed)
        at, row = found.end, 0
        while row < len(lines) and at >= len(lines[row]):
            at -= len(lines[row])
            row += 1
        if closed:
            rest = [lines[row][at:], *lines[row + 1 :]] if row < len(lines) else []
        else:
            rest = lines[max(row, 1) :]
        for line in rest:
            if line.strip():
                self._piece(line, True)

    def _labelled(self, before: str) -> tuple[str, float] | None:
        """The word and the number directly before a dictionary (``Global step 12: {``), if any."""
        if before.rstrip().endswith(_FINAL):
            # verl prints those before the first update and those after the last one.
            return "final", self._verl.step
        if held_out := re.search(_EVALUATED, before[-60:]):
            return "held out", float(held_out[1])
        label = re.search(_LABEL, before[-60:])
        return None if label is None else (label[1].lower(), float(label[2]))

    def _unquoted(self, text: str) -> str:
        """A line of a text that was printed as a quoted string, over several lines when it is long."""
        found = re.fullmatch(_QUOTED_LINE, text)
        self._quoted = found is not None and not text.rstrip().endswith(")") and (self._quoted or "(" in text[:6])
        return found[2] if found else text

    def _take(self, pairs: Mapping[str, object], label: tuple[str, float] | None, whole: bool) -> None:
        for wrapper in ("data", "metrics"):
            inner = pairs.get(wrapper)
            if isinstance(inner, Mapping) and len(pairs) <= 3:
                pairs = {**{k: v for k, v in pairs.items() if k != wrapper}, **inner}
        if _CONFIG_KEYS & pairs.keys() and not any(str(k).endswith("loss") for k in pairs):
            self.told.settings(_settings(pairs))
            return
        if "train_runtime" in pairs:
            self.told.facts["train_runtime"] = str(pairs["train_runtime"])[:40]
            return
        shape = tuple(pairs)
        if shape not in self._shapes:
            numeric = [k for k, v in pairs.items() if isinstance(v, str) and number(v) is not None]
            # Behind a label one number is enough, and the names of held-out sets say nothing of training.
            owned = label is not None and all(key.startswith(_OWNED) for key in numeric)
            if "top_p" in pairs or (not (owned and numeric) and (len(numeric) < 2 or not metric_like(numeric))):
                return
            if len(self._shapes) < 1000:
                self._shapes.add(shape)
        if self._section is not None:
            self._taken = self._taken or self._section
            if self._taken != self._section:
                return
        self.cut |= not whole
        if label is None:
            if self.rows.add(pairs, None, whole):
                if whole:
                    self._strays.note(pairs, self.rows.rows - 1)
                self._went_on("dict")
        elif label[0] == "final":
            if not self._verl.keys.issuperset(pairs) and self.rows.add(pairs, label[1], whole):
                self._went_on("verl")
        elif label[0] == "alone":
            # SkyRL formats every number before it prints the dictionary, so that its quotes hide four decimals.
            row = {k: Printed(v) if isinstance(v, str) and number(v) is not None else v for k, v in pairs.items()}
            self._gathered.add(row, label[1], whole)
            self._went_on("labelled dict")
        else:
            self._counters.add(*label, pairs, whole)
            self._went_on("labelled dict")

    def _emit(self, row: Mapping[str, object], step: float | None, style: str) -> None:
        """One piece of a row that a layout for people held."""
        whole = style not in _SUBSETS
        if step is None:
            self.rows.add(row, None, whole)
        else:
            self._gathered.add(row, step, whole)
            self._stated += 1
        self._went_on(style)

    def _went_on(self, style: str) -> None:
        self._style = self._style or style
        self._stated_style = self._stated_style or (style if self._stated else "")
        self._found = True
        self.told.went_on()

    def _close_verl(self, cut: bool) -> None:
        line = self._verl.close(cut)
        if line is None:
            return
        self.cut |= line.cut
        if line.doubled:
            self._warn("duplicate_key", "a key is printed twice in one line; the first value counts")
        if self.rows.add_printed(line.row, line.step, whole=not cut):
            self._stated += 1
            self._went_on("verl")

    # Everything that is not a dictionary

    def _line(self, text: str, ended: bool) -> None:
        stripped = text.strip()
        if not stripped:
            return
        self.text_lines += 1
        if stripped == "[":
            name = self._heading or f"section {len(self._others) + 1}"
            if self._taken is not None and name not in self._others and len(self._others) < 50:
                self._others.append(name)
            self._section = name
            return
        if stripped == "]":
            self._section = None
            return
        if stripped.strip("=-*# "):
            self._heading = stripped[:100]
        if text.startswith("wandb:"):
            found = re.match(_SUMMARY, text)
            if found and ended and len(self._summary) < PAIRS:
                self._summary[found[1]] = Printed(found[2])
            return
        counted = re.search(_COUNTED, text)
        if (
            counted
            and (row := _named(re.split(r"[,|]", text[counted.end() :]), ended))
            and len(row) >= 2
            and metric_like(row)
        ):
            if self.rows.add(row, float(counted[1]), whole=ended):
                self._went_on("labelled")
            return
        if not self._found:
            self._prints.take(stripped, ended)

    def _around(self, text: str) -> None:
        """Progress bars, settings, versions and errors in text that holds no metric."""
        if "%|" in text:
            self.bars.take(text, self.rows.rows)
            if not self._found:
                self._postfixes.take(text)
        if text and not text.isspace():
            self.told.take(text)

    def _warn(self, code: str, says: str) -> None:
        self.warned.setdefault(code, Warn(code, says))

    # The end

    def close(self, path: str, warnings: Iterable[Warn] = ()) -> Log | None:
        """The log, or None when the text holds neither a metric nor the error of a run."""
        self._close_verl(cut=False)
        while self._open or self._aside:
            if not self._open:
                self._turn_to(next(iter(self._aside)))
            self._abandon()
        self._layouts.close()
        self._counters.flush()
        self._gathered.flush()
        self._strays.leave_out(self.rows, self._stated)
        if self._strays.all_out and self._style == "dict":
            self._style = self._stated_style or self._style
        if not self.rows.rows:
            self._fall_back()
            self.text_lines *= not self.rows.rows
        if not self.rows.rows and not self.told.ending:
            return None
        if self._others:
            others = ", ".join(map(repr, self._others))[:300]
            says = f"several sections hold metrics; only {self._taken!r} is read, not {others}"
            self._warn("several_sections", says)
        if self.cut:
            self._warn("cut_text", "the text is cut in places; a value that may be incomplete is left out")
        self._say()
        keys = self.rows.keys
        hugging = self._style == "dict" and "loss" in keys and ("learning_rate" in keys or "epoch" in keys)
        log = self.rows.finish(
            path=path,
            format=f"console ({self._style})" if self._style else "summary" if self._summary else "console",
            nonfinite="filtered" if hugging else "kept" if self._style in _KEPT else "unknown",
            inferred=None if self._style == "progress bar" else self.bars.steps(self.rows, self.told.spacing),
            spacing=self.told.spacing,
            warnings=[*warnings, *self.warned.values()],
        )
        pasted = log.rows <= SHORT and self.text_lines < 4 and self.bars.total is None
        return replace(
            log,
            config={**self._layouts.settings, **self.told.config},
            versions=self.told.versions,
            planned_steps=log.planned_steps or self._layouts.planned or self.bars.total or self.told.planned,
            ending=self.told.ending,
            excerpt=log.excerpt or pasted or (self.cut and log.rows <= SHORT) or log.format == "summary",
            facts=self.told.facts,
            kind=log.kind if log.rows else "crash",
        )

    def _say(self) -> None:
        if self._style in _SUBSETS:
            self._warn("printed_subset", f"this text shows only some of the metrics; {_SUBSETS[self._style]} holds all")
        if self._strays.left_out:
            says = (
                f"{self._strays.left_out} printed dictionaries lack the trainer's epoch or step and are no rows of its log; "
                f"they are left out, as {self._strays.example}"
            )
            self._warn("stray_dictionaries", says)
        if self._gathered.repeated:
            says = f"{self._gathered.repeated} values are printed again for the same step; the last one of each counts"
            self._warn("duplicated_steps", says)
        if self._layouts.dropped:
            says = f"several processes print the same metrics; those of {self._layouts.dropped} are left out"
            self._warn("several_processes", says)

    def _fall_back(self) -> None:
        """Loop prints and run summaries, which mean something only where no metric line was found."""
        alike, (behind, planned) = self._prints.rows(), self._postfixes.rows()
        if alike:
            for row in alike:
                self.rows.add(row)
            self._style = "labelled"
            if self._prints.full:
                self._warn("cut_text", f"only the first {len(alike)} rows of names and numbers are read")
        elif len(behind) >= 2:
            for step, values in behind:
                self.rows.add(values, step)
            self.rows.planned, self._style = planned, "progress bar"
            self._warn("rounded_values", "only the progress bars show metrics here, and those to three digits")
        elif len(self._prints.prose) >= 2 and metric_like(self._prints.prose):
            self.rows.add(self._prints.prose)
            self._style = "labelled"
        elif len(self._summary) >= 2 and metric_like(self._summary):
            self.rows.add(self._summary)
            self._warn("summary_only", "only the last value of each metric is known")
        elif single := self._prints.single():
            self.pieced = self.rows.add(single)
            self._style = "labelled"


def _settings(pairs: Mapping[str, object]) -> dict[str, object]:
    """A printed configuration as flat settings with values instead of tokens."""

    def plainly(value: object) -> object:
        if isinstance(value, Mapping):
            return {k: plainly(v) for k, v in value.items()}
        return setting(value) if isinstance(value, Printed) or (isinstance(value, str) and value[:1] == "[") else value

    return flat_settings({key: plainly(value) for key, value in pairs.items()})


def _named(parts: list[str], ended: bool) -> dict[str, object]:
    """``name value [unit]`` parts as a row; percentages and the last part of a cut line are left out."""
    row: dict[str, object] = {}
    for part in (parts if ended else parts[:-1])[:PAIRS]:
        found = re.fullmatch(_NAMED, part) if len(part) < 200 else None
        if found and not found[3] and number(found[2]) is not None:
            row.setdefault(found[1].strip(), Printed(found[2]))
    return row
