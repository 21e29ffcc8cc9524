"""The texts that trainers write: what one logger does with rows of numbers, without knowing what the numbers mean."""

from __future__ import annotations

import io
import json
import math
import pprint
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

Row: TypeAlias = dict[str, Any]
CLOCK = "2026-01-01 10:00:00"
"""When every simulated line was logged."""
WIDE = 80
"""Columns of the terminal that tables are drawn for: what rich assumes where there is none."""
MISMATCH = 7e-4
"""KL between sampler and trainer where a trainer always logs it and the simulated run has none."""
PROMPT_TOKENS = 200
"""Tokens of the prompts where a line prints the length of prompt and answer together."""


@dataclass(frozen=True)
class Logged:
    """One call of a trainer's logger: the step, the values by key, and whether it is an evaluation alone."""

    step: int
    row: Mapping[str, float]
    held_out: bool = False


@dataclass(frozen=True)
class Sheet:
    """What a layout writes: rows by step, an evaluation after the training row of its step; ``every`` is in steps."""

    rows: Sequence[Logged]
    planned: int
    every: int = 1
    eval_every: int = -1
    batch: int = 1

    def joined(self) -> dict[int, Row]:
        """One row for each step, for trainers that log an evaluation in the row of its step."""
        found: dict[int, Row] = {}
        for one in self.rows:
            found.setdefault(one.step, {}).update(one.row)
        return found


Write: TypeAlias = Callable[[Sheet], str]


@dataclass(frozen=True)
class Layout:
    """One form of log: how it is written and what of the numbers survives it.

    ``rtol`` and ``atol`` bound the error of a printed number. ``keeps`` says what becomes of NaN and infinities: kept,
    null, dropped, "nan dropped" (infinities stay), or filtered (out of the loss alone). ``only`` lists the metrics that a
    form shows where it shows few.
    """

    write: Write
    rtol: float = 0.0
    atol: float = 0.0
    coarse: tuple[tuple[str, float, float], ...] = ()
    """Metrics that are printed in another way, with an ``rtol`` and an ``atol`` of their own."""
    keeps: str = "kept"
    planned: bool = False
    """True where the text holds the number of steps planned."""
    only: frozenset[str] = frozenset()
    held_out: bool = True
    renamed: tuple[tuple[str, str], ...] = ()
    """Keys that this form writes under another name."""


# ---------------------------------------------------------------- Transformers and what is built on it


def _hf_rows(sheet: Sheet) -> list[Row]:
    return [{**one.row, "epoch": round(one.step / sheet.planned, 4), "step": one.step} for one in sheet.rows]


def hf_jsonl(sheet: Sheet) -> str:
    """The rows of a callback that writes each as JSON."""
    return "".join(json.dumps(row) + "\n" for row in _hf_rows(sheet))


def trainer_state(sheet: Sheet) -> str:
    history = _hf_rows(sheet)
    state = {
        "best_metric": None,
        "epoch": history[-1]["epoch"],
        "eval_steps": sheet.eval_every,
        "global_step": sheet.rows[-1].step,
        "is_world_process_zero": True,
        "log_history": history,
        "logging_steps": sheet.every,
        "max_steps": sheet.planned,
        "num_train_epochs": 1,
        "save_steps": 500,
        "train_batch_size": sheet.batch,
    }
    return json.dumps(state, indent=2) + "\n"


def hf_console(sheet: Sheet) -> str:
    """Dictionary lines behind progress bars, as Transformers below 5 prints them; they name no step."""
    return _behind_bars(
        sheet, lambda row: "{" + ", ".join(f"{k!r}: {_rounded_loss(k, v)}" for k, v in row.items()) + "}"
    )


def hf_console5(sheet: Sheet) -> str:
    """The same from Transformers 5 on: every float is a text of four digits."""
    return _behind_bars(sheet, lambda row: "{" + ", ".join(f"{k!r}: '{v:.4g}'" for k, v in row.items()) + "}")


def _behind_bars(sheet: Sheet, printed: Callable[[Row], str], desc: str = "") -> str:
    bar = _bar(0, sheet.planned, desc)
    lines = []
    for one in sheet.rows:
        # A bar is drawn, wiped by a carriage return and blanks, and the dictionary follows on the same line.
        row = {**one.row, "epoch": round(one.step / sheet.planned, 4)}
        bar, before = _bar(one.step, sheet.planned, desc), bar
        lines.append(f"\r{before}\r{bar}\r{' ' * len(bar)}\r{printed(row)}\n")
    return "".join(lines)


def _bar(step: int, planned: int, desc: str = "") -> str:
    drawn = "█" * (10 * step // planned)
    minutes, seconds = divmod(step * 30, 60)
    return f"{desc}{100 * step // planned:3d}%|{drawn:10}| {step}/{planned} [{minutes}:{seconds:02d}, 30.00s/it]"


def _rounded_loss(key: str, value: float) -> str:
    return repr(round(value, 4) if key == "loss" else value)


def notebook(sheet: Sheet) -> str:
    """The table that Unsloth shows in a notebook, copied out of the browser: tabs, six decimals, spaced slashes."""
    rows = [one for one in sheet.rows if not one.held_out]
    keys = [key for key in rows[0].row if key != "loss"]
    keys.sort(key=lambda key: (key.startswith("rewards/"), "reward" not in key))
    last = rows[-1].step
    left = sheet.planned - last
    rest = f" < {_clock(30 * left)}, 0.03 it/s" if left else ""
    done = f"{last:{len(str(sheet.planned))}}/{sheet.planned}"
    head = f"[{done} {_clock(30 * last)}{rest}, Epoch {last / sheet.planned:.2f}/1]"
    lines = [head, "\t".join(["Step", "Training Loss", *(key.replace("/", " / ") for key in keys)])]
    for one in rows:
        cells = [one.row["loss"], *(one.row[key] for key in keys)] if "loss" in one.row else [one.row[k] for k in keys]
        lines.append("\t".join([str(one.step), *(f"{value:.6f}" for value in cells)]))
    return "\n".join(lines) + "\n"


def _clock(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    return (f"{hours}:" if hours else "") + f"{rest // 60:02d}:{rest % 60:02d}"


def _swift_rows(sheet: Sheet) -> list[Row]:
    rows = []
    for one in sheet.rows:
        row = {**one.row, "epoch": one.step / sheet.planned, "global_step/max_steps": f"{one.step}/{sheet.planned}"}
        row |= {"elapsed_time": _elapsed(30 * one.step), "remaining_time": _elapsed(30 * (sheet.planned - one.step))}
        row = {key: round(value, 8) if isinstance(value, float) else value for key, value in row.items()}
        rows.append({**row, "memory(GiB)": 61.35, "train_speed(s/it)": 30.0})
    return rows


def _elapsed(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    return (f"{hours}h " if hours else "") + f"{rest // 60}m {rest % 60}s"


def swift_jsonl(sheet: Sheet) -> str:
    """ms-swift's logging.jsonl: steps as "n/N", eight decimals, at the end the whole history in one line."""
    rows = _swift_rows(sheet)
    last = sheet.rows[-1].step
    whole = {"train_runtime": 30.0 * last, "train_loss": 0.0, "global_step/max_steps": f"{last}/{sheet.planned}"}
    closing = {"last_model_checkpoint": None, "best_metric": None, "global_step": last, "log_history": _hf_rows(sheet)}
    return "".join(json.dumps(row) + "\n" for row in [*rows, whole, closing])


def swift_megatron(sheet: Sheet) -> str:
    """ms-swift's logging.jsonl when it trains with Megatron: steps as "n/N" under another key, no epoch."""
    rows = []
    for row in _swift_rows(sheet):
        told = {"iteration": row.pop("global_step/max_steps")}
        rows.append({key: value for key, value in {**row, **told}.items() if key != "epoch"})
    return "".join(json.dumps(row) + "\n" for row in rows)


def swift_console(sheet: Sheet) -> str:
    lines = []
    for one, row in zip(sheet.rows, _swift_rows(sheet), strict=True):
        bar = _bar(one.step, sheet.planned, "Train: ")
        lines.append(f"\r{bar}\r{' ' * len(bar)}\r{row}\n")
    return "".join(lines)


def trainer_log(sheet: Sheet) -> str:
    """LLaMA-Factory's trainer_log.jsonl: the few keys that its callback picks."""
    lines = []
    for one in sheet.rows:
        row = {
            "current_steps": one.step,
            "total_steps": sheet.planned,
            **one.row,
            "epoch": round(one.step / sheet.planned, 4),
            "percentage": round(100 * one.step / sheet.planned, 2),
            "elapsed_time": f"0:{one.step // 60 % 60:02d}:{one.step % 60:02d}",
            "remaining_time": "0:10:00",
        }
        lines.append(json.dumps(row) + "\n")
    return "".join(lines)


# ---------------------------------------------------------------- verl and its kin


def verl_jsonl(sheet: Sheet) -> str:
    """verl's file logger: orjson writes no blanks, and null for what is not finite."""
    lines = []
    for step, row in _verl_rows(sheet).items():
        data = {key: value if math.isfinite(value) else None for key, value in row.items()}
        lines.append(json.dumps({"step": step, "data": data}, separators=(",", ":")) + "\n")
    return "".join(lines)


def _verl_rows(sheet: Sheet) -> dict[int, Row]:
    return {step: {"training/global_step": step, "training/epoch": 0, **row} for step, row in sheet.joined().items()}


def verl_console(sheet: Sheet) -> str:
    lines = []
    for step, row in _verl_rows(sheet).items():
        # Means over mini-batches are NumPy scalars, which NumPy 2 prints with their type.
        items = (f"{k}:np.float64({v!r})" if k.startswith("actor/p") else f"{k}:{v!r}" for k, v in row.items())
        lines.append(f"(TaskRunner pid=1) step:{step} - {' - '.join(items)}\n")
    return "".join(lines)


def rllm_console(sheet: Sheet) -> str:
    rows = sheet.joined().items()
    return "".join(f"step:{step} - {' - '.join(f'{k}:{v!r}' for k, v in row.items())}\n" for step, row in rows)


def rllm_jsonl(sheet: Sheet) -> str:
    return "".join(json.dumps({"step": step, "data": row}) + "\n" for step, row in sheet.joined().items())


def roll_console(sheet: Sheet) -> str:
    return "".join(
        f"[{CLOCK}] [tracking.py (147)] [INFO] metrics_tag: {json.dumps({'step': step, 'metrics': row})}\n"
        for step, row in sheet.joined().items()
    )


# ---------------------------------------------------------------- dictionaries on console lines


def openrlhf_console(sheet: Sheet) -> str:
    lines = []
    for one in sheet.rows:
        said = f"Evaluation completed in 0:01:02, global_step {one.step}, eval_metrics" if one.held_out else None
        head = f"(PPOTrainer pid=1) INFO 01-01 10:00:00 ppo_trainer.py:268] ✨ {said or f'Global step {one.step}'}: "
        lines.append(f"{head}{dict(one.row)}\n")
    return "".join(lines)


def skyrl_console(sheet: Sheet) -> str:
    """A dictionary over several lines, every float a text of four decimals, keys sorted by the printer."""
    lines = []
    for one in sheet.rows:
        shown = {key: f"{value:.4f}" for key, value in one.row.items()}
        lines.append(f"{CLOCK}.000 | INFO     | skyrl.train.utils.tracking:log:196 - Step {one.step}: ")
        lines += pprint.pformat(shown).splitlines()
    return "".join(f"(skyrl_entrypoint pid=1) {line}\n" for line in lines)


def slime_console(sheet: Sheet) -> str:
    """Three lines for a rollout (its samples, its training data, its update) and one for an evaluation."""
    lines = []
    for one in sheet.rows:
        if one.held_out:
            lines.append(("rollout.py:905", f"eval {one.step}", dict(one.row)))
            continue
        train = {key: value for key, value in one.row.items() if key.startswith("train/")}
        samples = ("rollout/response_len/", "rollout/truncated_ratio", "perf/", "rollout/zero_std/")
        drawn = {key: value for key, value in one.row.items() if key.startswith(samples)}
        rest = {key: value for key, value in one.row.items() if key not in train and key not in drawn}
        lines += [
            ("rollout.py:938", f"perf {one.step}", drawn),
            ("data.py:180", f"rollout {one.step}", rest),
            ("model.py:512", f"step {one.step}", {**train, "train/step": one.step}),
        ]
    return "".join(f"[{CLOCK}] {where} - {what}: {row}\n" for where, what, row in lines if row)


# ---------------------------------------------------------------- blocks, boxes and tables


def nemo_console(sheet: Sheet) -> str:
    """NeMo-RL: a heading for each step, a block of validation, then the results of the training step."""
    held = {one.step: one.row for one in sheet.rows if one.held_out}
    lines = [f"\n{'=' * 25} Epoch 1/1 {'=' * 25}"]
    for one in sheet.rows:
        if one.held_out:
            continue
        lines.append(f"\n{'=' * 25} Step {one.step}/{sheet.planned} {'=' * 25}")
        lines += ["▶ Preparing batch...", "▶ Generating responses...", "▶ Training policy..."]
        if one.step in held:
            lines += [
                f"▶ Starting validation at step {one.step}...",
                "\n📊 Validation Results:",
                f"    • Accuracy: {held[one.step]['validation/accuracy']:.4f}",
                "    • Samples processed: 256",
                "\n  ⏱️  Validation Timing:",
                "    • Total validation time: 31.40s",
            ]
        lines.append("\n📊 Training Results:")
        lines += _bullets(
            one.row,
            ("Loss", "train/loss"),
            ("Generation KL Error", "train/gen_kl_error"),
            ("Avg Reward", "train/reward"),
            ("Mean Generation Length", "train/mean_gen_tokens_per_sample"),
        )
        total = one.row.get("timing/train/total_step_time")
        if total is not None:
            lines += ["\n⏱️  Timing:", f"  • Total step time: {total:.2f}s"]
            lines += [f"  • {name}: {share * total:.2f}s ({100 * share:.1f}%)" for name, share in _PHASES]
    return "\n".join(lines) + "\n"


_PHASES = (("generation", 0.6), ("policy_training", 0.25), ("policy_and_reference_logprobs", 0.1))


def _bullets(row: Mapping[str, float], *shown: tuple[str, str]) -> list[str]:
    return [f"  • {label}: {row[key]:.4f}" for label, key in shown if key in row]


def areal_console(sheet: Sheet) -> str:
    """AReaL: a line for the step and a drawn table with four pairs a row, filled column by column."""
    head = "[AReaL] 20260101-10:00:00.000 StatsLogger INFO: "
    lines = []
    for step, row in sheet.joined().items():
        place = f"Epoch 1/1 Step {step}/{sheet.planned} Train step {step}/{sheet.planned} done."
        lines += [head + place, f"{head}Stats (1/1):", head, _fancy_grid(list(row.items()), 4)]
    return "\n".join(lines) + "\n"


def _fancy_grid(pairs: Sequence[tuple[str, float]], across: int) -> str:
    height = -(-len(pairs) // across)
    cells: list[list[str]] = []
    for i in range(height):
        line = []
        for j in range(across):
            at = i + j * height
            line += [pairs[at][0], f"{pairs[at][1]:.4e}"] if at < len(pairs) else []
        cells.append(line)
    wide = max(map(len, cells))
    cells = [line + [""] * (wide - len(line)) for line in cells]
    widths = [max(len(line[column]) for line in cells) for column in range(wide)]

    def rule(left: str, between: str, right: str, dash: str) -> str:
        return left + between.join(dash * (width + 2) for width in widths) + right

    drawn = [rule("╒", "╤", "╕", "═")]
    for i, line in enumerate(cells):
        padded = [
            text.rjust(w) if c % 2 else text.ljust(w) for c, (text, w) in enumerate(zip(line, widths, strict=True))
        ]
        drawn += [rule("├", "┼", "┤", "─")] if i else []
        drawn.append("│ " + " │ ".join(padded) + " │")
    return "\n".join([*drawn, rule("╘", "╧", "╛", "═")])


def open_instruct_console(sheet: Sheet) -> str:
    """open-instruct: a panel with one line for each prefix, wrapped where the terminal ends; two decimals."""
    return "".join(_panel(one.row, None if one.held_out else one.step) for one in sheet.rows)


def _panel(row: Mapping[str, float], step: int | None) -> str:
    groups: dict[str, list[str]] = {} if step is None else {"other": [f"training_step: {step}"]}
    for key, value in row.items():
        group, slash, name = key.partition("/")
        count = name.startswith("num_") and float(value).is_integer()
        shown = f"{value:.0f}" if count else f"{value:.2e}" if abs(value) < 1e-5 else f"{value:.2f}"
        groups.setdefault(group if slash else "other", []).append(f"{name if slash else key}: {shown}")
    table = Table(show_header=False, box=None)
    table.add_column("Category")
    table.add_column("Values")
    for group in sorted(groups):
        table.add_row(group, " | ".join(groups[group]))
    return _rendered(Panel(table, title="Metrics", expand=False))


def _rendered(what: object) -> str:
    out = io.StringIO()
    Console(file=out, width=WIDE, color_system=None, legacy_windows=False, highlight=False).print(what)
    return out.getvalue()


def tinker_console(sheet: Sheet) -> str:
    """tinker-cookbook: a table of two columns for each step, six decimals, keys sorted."""
    drawn = []
    for step, row in sheet.joined().items():
        shown = {"progress/batch": step, "progress/done_frac": step / sheet.planned, **row}
        table = Table(show_header=True, title=f"Step {step}")
        table.add_column("Metric", width=min(max(20, *map(len, shown)), 60))
        table.add_column("Value")
        for key in sorted(shown):
            table.add_row(key, f"{shown[key]:.6f}" if isinstance(shown[key], float) else str(shown[key]))
        drawn.append(f"tinker_cookbook.utils.ml_log:198 [INFO] \n{_rendered(table).rstrip()}\n")
    return "".join(drawn)


def torchforge_console(sheet: Sheet) -> str:
    blocks = []
    for step, row in sheet.joined().items():
        inside = "".join(f"  {key}: {row[key]}\n" for key in sorted(row))
        blocks.append(f"=== [global_reduce] - METRICS STEP {step} ===\n{inside}{'=' * 30}\n\n")
    return "".join(blocks)


def prime_console(sheet: Sheet) -> str:
    """prime-rl up to 0.7: the orchestrator's line and the trainer's line of a step, names with colons."""
    lines = []
    for one in sheet.rows:
        if one.held_out:
            continue
        row, length = one.row, one.row.get("train/all/all/num_output_tokens/mean")
        orchestrator = [("Reward", _f4(row, "train/all/all/agent/reward/mean"))]
        orchestrator += [("Seq. Length", f"{length + PROMPT_TOKENS:.1f} tokens/sample")] if length is not None else []
        lines += [
            _prime(one.step, [("Time", _seconds(row)), *orchestrator, ("Async Level", "1")], ": "),
            _prime(one.step, [("Time", _seconds(row)), *_prime_trainer(row)], ": "),
        ]
    return "".join(lines)


def prime_console8(sheet: Sheet) -> str:
    """prime-rl from 0.8 on: the trainer's line, names without colons, the time without a name."""
    trained = (one for one in sheet.rows if not one.held_out)
    return "".join(
        _prime(one.step, [("", f"{_seconds(one.row):>7}"), *_prime_trainer(one.row)], " ") for one in trained
    )


def _prime_trainer(row: Mapping[str, float]) -> list[tuple[str, str]]:
    shown = [("Loss", _f4(row, "loss/mean")), ("Entropy", _f4(row, "entropy/all/mean"))]
    shown += [("Mismatch KL", f"{row.get('mismatch_kl/all/mean', MISMATCH):.4f}")]
    shown += [("Grad. Norm", _f4(row, "optim/grad_norm"))]
    rate = row.get("optim/lr")
    shown += [("LR", "" if rate is None else f"{rate:.2e}"), ("Throughput", "5120 tokens/s"), ("MFU", "31.2%")]
    return [*shown, ("Peak Mem.", "60.1 GiB")]


def _f4(row: Mapping[str, float], key: str) -> str:
    return f"{row[key]:.4f}" if key in row else ""


def _seconds(row: Mapping[str, float]) -> str:
    return f"{row['time/step']:.2f}s" if "time/step" in row else ""


def _prime(step: int, shown: Iterable[tuple[str, str]], colon: str) -> str:
    parts = " | ".join(f"{name}{colon}{text}" if name else text for name, text in shown if text.strip())
    return f"\x1b[2m10:00:00\x1b[0m\x1b[32m\x1b[1m SUCCESS\x1b[0m \x1b[22mStep {step} | {parts}\x1b[0m\n"


# ---------------------------------------------------------------- JSON lines of their own


def prime_jsonl(sheet: Sheet) -> str:
    """prime-rl's file monitor: a row for each group of metrics, without what is not finite."""
    lines = []
    for one in sheet.rows:
        groups: dict[str, Row] = {} if one.held_out else {"tensors": {"mismatch_kl/all/mean": MISMATCH}}
        for key, value in one.row.items():
            family = key.partition("/")[0]
            group = family if family in ("perf", "optim", "time", "train", "eval", "progress") else "tensors"
            groups.setdefault("train" if group == "progress" else group, {})[key] = value
        for values in groups.values():
            finite = {key: value for key, value in values.items() if math.isfinite(value)}
            lines.append(json.dumps({"step": one.step, "time": 1767261600.0 + 30 * one.step, **finite}) + "\n")
    return "".join(lines)


def tinker_jsonl(sheet: Sheet) -> str:
    return "".join(
        json.dumps({"step": step, "progress/batch": step, "progress/done_frac": step / sheet.planned, **row}) + "\n"
        for step, row in sheet.joined().items()
    )


def art_jsonl(sheet: Sheet) -> str:
    """ART's history.jsonl: what the rollouts gave and what the update gave are two rows; NaN is left out."""
    lines = []
    for one in sheet.rows:
        gathered = ("train/reward", "train/exception_rate", "val/")
        first = {key: value for key, value in one.row.items() if key.startswith(gathered)}
        second = {key: value for key, value in one.row.items() if key not in first}
        for row in (first, second):
            kept = {key: value for key, value in row.items() if not math.isnan(value)}
            if row:
                lines.append(json.dumps({**kept, "step": one.step, "recorded_at": "2026-01-01T10:00:00"}) + "\n")
    return "".join(lines)
