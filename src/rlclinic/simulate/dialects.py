"""A simulated run in the words of a framework: its log, its configuration, and the Run a reader should make of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import yaml

from rlclinic import names
from rlclinic.errors import UnknownName, nearest
from rlclinic.model import Column, Framework, Knob, Run, Scalar
from rlclinic.simulate.scenarios import Scenario

Row: TypeAlias = dict[str, Any]
_Writer: TypeAlias = Callable[[Scenario, list[tuple[int, Row]]], str]


@dataclass(frozen=True)
class Key:
    """One log key with the canonical metric it carries and the versions that write it (``since`` <= v < ``below``)."""

    key: str
    metric: str
    since: str = ""
    below: str = ""
    estimator: str = ""


@dataclass(frozen=True)
class Dialect:
    """What one framework writes: keys in the order of its log, the held-out key, settings by canonical knob."""

    name: str
    title: str
    version: str
    """Written when none is asked for."""
    keys: tuple[Key, ...]
    score: str
    knobs: Mapping[str, str]
    parts: str = ""
    """Pattern of the keys of reward parts; empty when parts are not logged."""


TRL = Dialect(
    name="trl",
    title="TRL",
    version="1.16.0",
    keys=(
        Key("loss", "loss.total"),
        Key("grad_norm", "grad.norm"),
        Key("learning_rate", "optim.lr"),
        Key("num_tokens", "tokens.total"),
        Key("completions/mean_length", "length.response.mean"),
        Key("completions/min_length", "length.response.min"),
        Key("completions/max_length", "length.response.max"),
        Key("completions/clipped_ratio", "length.truncated_frac"),
        Key("completions/mean_terminated_length", "length.terminated.mean"),
        Key("completions/min_terminated_length", "length.terminated.min"),
        Key("completions/max_terminated_length", "length.terminated.max"),
        Key("reward", "reward.mean"),
        Key("reward_std", "reward.group_std", below="0.27"),
        Key("reward_std", "reward.std", since="0.27"),
        Key("frac_reward_zero_std", "group.zero_var_frac", since="0.18"),
        Key("kl", "kl.ref", estimator="k3"),
        Key("entropy", "entropy.mean", since="0.20"),
        Key("clip_ratio/low_mean", "clip.low_frac"),
        Key("clip_ratio/high_mean", "clip.high_frac"),
        Key("clip_ratio/region_mean", "clip.frac"),
        Key("step_time", "time.step", since="0.26"),
    ),
    score="eval_reward",
    parts="rewards/{}/{}",
    knobs={
        "group_size": "num_generations",
        "per_device_batch_size": "per_device_train_batch_size",
        "grad_accumulation": "gradient_accumulation_steps",
        "inner_epochs": "num_iterations",
        "clip_low": "epsilon",
        "clip_high": "epsilon_high",
        "kl_coef": "beta",
        "learning_rate": "learning_rate",
        "lr_schedule": "lr_scheduler_type",
        "warmup_steps": "warmup_steps",
        "grad_clip": "max_grad_norm",
        "temperature": "temperature",
        "max_response_length": "max_completion_length",
        "eval_strategy": "eval_strategy",
        "eval_every": "eval_steps",
        "logging_every": "logging_steps",
        "planned_steps": "max_steps",
    },
)
VERL = Dialect(
    name="verl",
    title="verl",
    version="0.9.1",
    keys=(
        Key("actor/entropy", "entropy.mean"),
        Key("actor/kl_loss", "kl.ref", estimator="k3"),
        Key("actor/pg_loss", "loss.policy"),
        Key("actor/pg_clipfrac", "clip.frac"),
        Key("actor/ppo_kl", "kl.old_new", estimator="k1"),
        Key("actor/pg_clipfrac_lower", "clip.dual_frac"),
        Key("actor/grad_norm", "grad.norm"),
        Key("actor/lr", "optim.lr"),
        Key("critic/score/mean", "reward.mean"),
        Key("critic/score/max", "reward.max"),
        Key("critic/score/min", "reward.min"),
        Key("critic/rewards/mean", "reward.shaped.mean"),
        Key("critic/rewards/max", "reward.shaped.max"),
        Key("critic/rewards/min", "reward.shaped.min"),
        Key("critic/advantages/mean", "advantage.mean"),
        Key("critic/advantages/max", "advantage.max"),
        Key("critic/advantages/min", "advantage.min"),
        Key("response_length/mean", "length.response.mean"),
        Key("response_length/max", "length.response.max"),
        Key("response_length/min", "length.response.min"),
        Key("response_length/clip_ratio", "length.truncated_frac"),
        Key("perf/total_num_tokens", "tokens.step"),
        Key("timing_s/step", "time.step"),
    ),
    score="val-core/heldout/acc/mean@1",
    knobs={
        "algorithm": "algorithm.adv_estimator",
        "group_size": "actor_rollout_ref.rollout.n",
        "temperature": "actor_rollout_ref.rollout.temperature",
        "train_batch_size": "data.train_batch_size",
        "max_response_length": "data.max_response_length",
        "max_prompt_length": "data.max_prompt_length",
        "mini_batch_size": "actor_rollout_ref.actor.ppo_mini_batch_size",
        "inner_epochs": "actor_rollout_ref.actor.ppo_epochs",
        "clip_low": "actor_rollout_ref.actor.clip_ratio_low",
        "clip_high": "actor_rollout_ref.actor.clip_ratio_high",
        "kl_in_loss": "actor_rollout_ref.actor.use_kl_loss",
        "kl_coef": "actor_rollout_ref.actor.kl_loss_coef",
        "learning_rate": "actor_rollout_ref.actor.optim.lr",
        "warmup_steps": "actor_rollout_ref.actor.optim.lr_warmup_steps",
        "grad_clip": "actor_rollout_ref.actor.optim.clip_grad",
        "eval_every": "trainer.test_freq",
        "planned_steps": "trainer.total_training_steps",
    },
)
DIALECTS: Mapping[str, Dialect] = {"trl": TRL, "verl": VERL}


def forms(dialect: str) -> tuple[str, ...]:
    """The forms of log that ``write`` knows for a dialect, the default first."""
    _find(dialect)
    return tuple(form for name, form in _WRITERS if name == dialect)


def as_run(scenario: Scenario, dialect: str = "trl", version: str | None = None) -> Run:
    """The scenario as a perfect reader of that framework's log and configuration would see it."""
    found = _find(dialect)
    logged = _columns(scenario, dialect, version)
    columns = {c.metric: replace(c, key=key) for key, c in logged.items() if "component" not in c.metric}
    components = {
        name: replace(part, mean=logged[found.parts.format(name, "mean")])
        if part.std is None
        else replace(part, mean=logged[found.parts.format(name, "mean")], std=logged[found.parts.format(name, "std")])
        for name, part in scenario.run.components.items()
        if found.parts
    }
    score = columns.get("eval.score")
    others = {key: column for key, column in scenario.run.evaluations.items() if column.metric != "eval.score"}
    return replace(
        scenario.run,
        framework=Framework(dialect, found.title, _version(scenario, found, version), how="given", why="simulated"),
        columns=columns,
        components=components,
        evaluations=others if score is None else {score.key: score, **others},
        knobs={k: Knob(k, value, key, "config") for k, key, value in _settings(scenario, found)},
    )


def configuration(scenario: Scenario, dialect: str = "trl") -> str:
    """The settings of the run as YAML: flat training arguments for TRL, the nested tree of verl."""
    tree: Row = {}
    for _, key, value in _settings(scenario, _find(dialect)):
        *branches, leaf = key.split(".")
        place = tree
        for branch in branches:
            place = place.setdefault(branch, {})
        place[leaf] = value
    return yaml.safe_dump(tree, sort_keys=False)


def write(scenario: Scenario, dialect: str = "trl", form: str = "jsonl", *, version: str | None = None) -> str:
    """The log of the scenario as that framework writes it.

    TRL: ``jsonl`` (rows of a callback), ``trainer_state`` (one JSON object), ``console`` (Transformers below 5:
    floats) and ``console5`` (from 5 on: texts of four digits); verl: ``jsonl`` (its file logger) and ``console``.
    ``version`` is the framework's: it decides which keys exist and, for TRL, whether ``reward_std`` is within groups
    (below 0.27) or over the batch. A row is one rollout batch, also where TRL with several updates per batch would
    write further rows without the generation keys. Raises UnknownName.
    """
    _find(dialect)
    writer = _WRITERS.get((dialect, form))
    if writer is None:
        raise UnknownName(f"a form of {dialect} log", repr(form), forms(dialect))
    return writer(scenario, _rows(_columns(scenario, dialect, version)))


def _version(scenario: Scenario, dialect: Dialect, asked: str | None) -> str:
    """The version asked for, else that of the scenario where it is of this dialect, else the dialect's own."""
    own = scenario.run.framework
    return asked or (own.version if own is not None and own.name == dialect.name and own.version else dialect.version)


def _find(dialect: str) -> Dialect:
    if dialect not in DIALECTS:
        raise UnknownName("a dialect to write", repr(dialect), (*nearest(dialect, DIALECTS), *DIALECTS))
    return DIALECTS[dialect]


def _settings(scenario: Scenario, dialect: Dialect) -> Iterable[tuple[str, str, Scalar]]:
    for knob, key in dialect.knobs.items():
        if knob in scenario.settings:
            yield knob, key, scenario.settings[knob]
    for knob in scenario.settings:
        row = names.spell(knob, Framework(dialect.name, dialect.title, _version(scenario, dialect, None)))
        row = row or next((one for one in names.load("generic").knobs.get(knob, ()) if one.anywhere), None)
        if knob not in dialect.knobs and row is not None and "[" not in row.key:
            yield knob, row.key, scenario.settings[knob]


def _columns(scenario: Scenario, dialect: str, version: str | None) -> dict[str, Column]:
    """The logged columns by log key, with what each framework does to the numbers before they are written."""
    found = _find(dialect)
    of_run = dict(scenario.run.columns)
    keys = [*found.keys, Key(found.score, "eval.score")]
    for part, component in scenario.run.components.items() if found.parts else ():
        for kind, column in (("mean", component.mean), ("std", component.std)):
            if column is not None:
                of_run[f"part.{part}.{kind}"] = replace(column, metric=f"reward.component.{kind}")
                keys.append(Key(found.parts.format(part, kind), f"part.{part}.{kind}"))
    version = _version(scenario, found, version)
    framework = Framework(dialect, found.title, version)
    covered = {key.metric for key in keys}
    keys += [
        Key(names.key_for(metric, framework) or metric, metric)
        for metric in scenario.own
        if metric not in covered and metric in of_run
    ]
    if dialect == "trl":
        # The Transformers logger replaces a loss that is not finite.
        if (loss := of_run.get("loss.total")) is not None:
            of_run["loss.total"] = replace(loss, values=np.nan_to_num(loss.values, nan=0.0))
    else:
        # The KL penalty is in the loss, so the shaped reward is the reward.
        for kind in ("mean", "min", "max"):
            if (plain := of_run.get(f"reward.{kind}")) is not None:
                of_run.setdefault(f"reward.shaped.{kind}", replace(plain, metric=f"reward.shaped.{kind}"))
    at = _release(version)
    return {
        k.key: replace(of_run[k.metric], key=k.key, estimator=k.estimator or of_run[k.metric].estimator)
        for k in keys
        if k.metric in of_run and _release(k.since) <= at and (not k.below or at < _release(k.below))
    }


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(piece) for piece in version.split(".") if piece.isdigit())


def _rows(columns: Mapping[str, Column]) -> list[tuple[int, Row]]:
    """(step, row) in the order of a log; a held-out score makes a row of its own after the training row of its step."""
    training: dict[int, Row] = {}
    held_out: list[tuple[int, Row]] = []
    for key, column in columns.items():
        pairs = zip(column.steps.astype(int).tolist(), column.values.tolist(), strict=True)
        if column.metric == "eval.score":
            held_out = [(step, {key: value}) for step, value in pairs]
        else:
            for step, value in pairs:
                training.setdefault(step, {})[key] = value
    return sorted([*training.items(), *held_out], key=lambda pair: pair[0])


def _planned(scenario: Scenario) -> int:
    return scenario.run.planned_steps or int(scenario.run.steps[-1])


def _trl_rows(scenario: Scenario, rows: list[tuple[int, Row]]) -> list[Row]:
    planned = _planned(scenario)
    return [{**row, "epoch": round(step / planned, 4), "step": step} for step, row in rows]


def _trl_jsonl(scenario: Scenario, rows: list[tuple[int, Row]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in _trl_rows(scenario, rows))


def _trl_state(scenario: Scenario, rows: list[tuple[int, Row]]) -> str:
    history = _trl_rows(scenario, rows)
    state = {
        "best_metric": None,
        "epoch": history[-1]["epoch"],
        "eval_steps": scenario.settings["eval_every"],
        "global_step": rows[-1][0],
        "is_world_process_zero": True,
        "log_history": history,
        "logging_steps": scenario.settings["logging_every"],
        "max_steps": _planned(scenario),
        "num_train_epochs": 1,
        "save_steps": 500,
        "train_batch_size": scenario.settings["per_device_batch_size"],
    }
    return json.dumps(state, indent=2) + "\n"


def _trl_console(number: Callable[[str, float], str]) -> _Writer:
    """A writer of dictionary lines behind progress bars; the lines name no step, as the real ones do not."""

    def text(scenario: Scenario, rows: list[tuple[int, Row]]) -> str:
        planned = _planned(scenario)
        bar = _bar(0, planned)
        lines = []
        for step, row in rows:
            # A bar is drawn, wiped by a carriage return and blanks, and the dictionary follows on the same line.
            items = ", ".join(f"{k!r}: {number(k, v)}" for k, v in {**row, "epoch": round(step / planned, 4)}.items())
            bar, before = _bar(step, planned), bar
            lines.append(f"\r{before}\r{bar}\r{' ' * len(bar)}\r{{{items}}}\n")
        return "".join(lines)

    return text


def _bar(step: int, planned: int) -> str:
    drawn = "█" * (10 * step // planned)
    minutes, seconds = divmod(step * 30, 60)
    return f"{100 * step // planned:3d}%|{drawn:10}| {step}/{planned} [{minutes}:{seconds:02d}, 30.00s/it]"


def _number_below_5(key: str, value: float) -> str:
    return repr(round(value, 4) if key == "loss" else value)


def _number_from_5(key: str, value: float) -> str:
    return f"'{value:.4g}'"


def _verl_rows(rows: list[tuple[int, Row]]) -> dict[int, Row]:
    """One row per step; the held-out score stands in the row of its step."""
    merged: dict[int, Row] = {}
    for step, row in rows:
        merged.setdefault(step, {"training/global_step": step, "training/epoch": 0}).update(row)
    return merged


def _verl_jsonl(scenario: Scenario, rows: list[tuple[int, Row]]) -> str:
    # The file logger of verl writes what is not finite as null.
    return "".join(
        json.dumps({"step": step, "data": {k: v if math.isfinite(v) else None for k, v in row.items()}}) + "\n"
        for step, row in _verl_rows(rows).items()
    )


def _verl_console(scenario: Scenario, rows: list[tuple[int, Row]]) -> str:
    lines = []
    for step, row in _verl_rows(rows).items():
        # Means over mini-batches are NumPy scalars, which NumPy 2 prints with their type.
        items = (f"{k}:np.float64({v!r})" if k.startswith("actor/p") else f"{k}:{v!r}" for k, v in row.items())
        lines.append(f"(TaskRunner pid=1) step:{step} - {' - '.join(items)}\n")
    return "".join(lines)


_WRITERS: Mapping[tuple[str, str], _Writer] = {
    ("trl", "jsonl"): _trl_jsonl,
    ("trl", "trainer_state"): _trl_state,
    ("trl", "console"): _trl_console(_number_below_5),
    ("trl", "console5"): _trl_console(_number_from_5),
    ("verl", "jsonl"): _verl_jsonl,
    ("verl", "console"): _verl_console,
}
