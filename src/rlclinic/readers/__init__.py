"""Read what belongs to one run and make it a Run: decide the form, then the framework, then translate and merge."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rlclinic import names
from rlclinic.errors import BadRequest, CannotRead, nearest
from rlclinic.model import (
    SHORT,
    Column,
    Component,
    Framework,
    Knob,
    Run,
    Source,
    Unrecognised,
    Warn,
)
from rlclinic.readers import rundir
from rlclinic.readers.config import read_config
from rlclinic.readers.log import Log, drained, read_log
from rlclinic.readers.translate import Translated, translate

PASTE = 12
"""Rows up to which text without a run around it counts as an excerpt (ours)."""
TRUST = {
    **dict.fromkeys(("wandb", "swanlab", "jsonl"), 0),
    **dict.fromkeys(("json_history", "csv", "tensorboard"), 1),
    "trainer_state": 2,
    "console": 3,
    **dict.fromkeys(("summary", "table"), 4),
}
"""Which form of a run is believed where several overlap: complete and of full precision first."""

_TOLD = ("group_size", "max_response_length", "learning_rate", "kl_coef", "clip_low", "clip_high", "inner_epochs")
"""Settings whose printed value is that of the training; others also stand in generation or model configurations."""


def read(
    sources: Sequence[str | Path],
    *,
    framework: str | None = None,
    config: Sequence[str | Path] = (),
    eval_key: str | None = None,
    stdin: bytes | None = None,
    run: str | None = None,
) -> Run:
    """The run held by ``sources``: files, one directory, or ``-`` for ``stdin`` (or the process's standard input).

    ``framework`` is a name or ``name@version``; ``config`` files add settings; ``eval_key`` names the held-out score;
    ``run`` names one of several runs in a source. Raises CannotRead when no source holds a run, UnknownName for an unknown framework, BadRequest for an ``eval_key``
    that is not in the log.
    """
    with np.errstate(all="ignore"):  # infinities in a log are data, not accidents
        return _read(sources, framework, config, eval_key, stdin, run)


def _read(
    sources: Sequence[str | Path],
    framework: str | None,
    config: Sequence[str | Path],
    eval_key: str | None,
    stdin: bytes | None,
    run: str | None,
) -> Run:
    logs, settings, warnings = _open(sources, config, stdin, run)
    logs = _of_one_trainer(logs, framework, warnings)
    detected, knobs, translated = _understood(logs, settings, framework)
    warnings += _unheard(settings, logs, detected)
    kept = _of_one_run(logs, translated, warnings)
    logs, translated = [logs[k] for k in kept], [translated[k] for k in kept]
    return _assemble(sources, logs, translated, detected, knobs, warnings, eval_key)


def read_rows(log: Log, *, framework: str | None = None, knobs: Mapping[str, object] | None = None) -> Run:
    """The run of one log that is in memory already.

    ``knobs`` are settings by canonical name or in the framework's spelling. They need not be the whole configuration, so
    no default is assumed beside them.
    """
    given = dict(knobs or {})
    with np.errstate(all="ignore"):
        keys = list(log.series)
        detected = names.detect(keys, given=framework, config_keys=map(str, given), complete=log.complete)
        scalar = {name: value for name, value in given.items() if isinstance(value, (bool, int, float, str))}
        plain = {name: Knob(name, value, name, "given") for name, value in scalar.items() if name in names.knobs()}
        known = {**plain, **names.read_knobs(given, detected, "given")}
        translated = translate(log, detected, known)
        run = _assemble(["-"], [log], [translated], detected, known, list(log.warnings), None)
        return replace(run, name=log.path)


def _understood(
    logs: list[Log], settings: Mapping[str, object], given: str | None
) -> tuple[Framework | None, dict[str, Knob], list[Translated]]:
    """The framework that the logs together speak of, the settings in its terms, and each log translated."""
    keys = list(dict.fromkeys(key for log in logs for key in log.series))
    versions = {name: found for log in reversed(logs) for name, found in log.versions.items()}
    from_log = {key: value for log in reversed(logs) for key, value in log.config.items()}
    detected = names.detect(
        keys,
        given=given,
        config_keys=[*settings, *from_log],
        text_versions=versions,
        complete=any(log.complete for log in logs),
    )
    knobs = _knobs(settings, from_log, detected)
    return detected, knobs, [translate(log, detected, knobs) for log in logs]


def _open(
    sources: Sequence[str | Path], config: Sequence[str | Path], stdin: bytes | None, run: str | None
) -> tuple[list[Log], dict[str, object], list[Warn]]:
    """Every log that can be read, the settings found beside them, and what was left with the reason."""
    logs: list[Log] = []
    settings: dict[str, object] = {}
    warnings: list[Warn] = []
    failures: list[CannotRead] = []

    def take(path: Path, as_config: bool) -> None:
        try:
            if as_config:
                settings.update(read_config(path))
            else:
                logs.append(read_log(path, run=run))
        except CannotRead as problem:
            if not as_config:
                failures.append(problem)
            warnings.append(Warn("source_left_out", f"{path.name}: {problem.found.removeprefix(f'{path}: ')}"))

    for source in sources:
        if not str(source):
            raise BadRequest("a log file, a directory of a run, or - for standard input", "an empty name")
        if str(source) == "-":
            logs.append(read_log(None, _standard_input() if stdin is None else stdin, name="-", run=run))
            continue
        path = Path(source)
        if not path.exists():
            raise CannotRead("a log file, a directory of a run, or - for standard input", f"{path} does not exist")
        if path.is_dir():
            found = rundir.find(path)
            warnings += [Warn("source_left_out", f"{left.name}: {why}") for left, why in found.left]
            for one in found.logs:
                take(one, False)
            for one in found.configs:
                take(one, True)
        else:
            take(path, rundir.is_config(path))
    for extra in config:
        settings.update(read_config(Path(extra)))
    useful = [log for log in logs if log.kind in ("metrics", "supervised", "crash")]
    for log in logs:
        if log not in useful:
            warnings.append(Warn("source_left_out", f"{Path(log.path).name}: holds {log.kind}, not metrics"))
        else:
            warnings += log.warnings
            if log.kind == "config":
                settings.update(log.config)
    useful = [log for log in useful if log.kind == "metrics" and log.series] or useful
    if not useful:
        if failures:
            raise failures[0]
        seen = "; ".join(warn.says for warn in warnings) or "nothing that could be read"
        raise CannotRead(
            "the log of a training run (JSONL, trainer_state.json, CSV, event file, .wandb or console text)",
            f"no metrics: {seen}",
            hint="rlclinic diagnose LOGFILE, or - to paste from standard input",
        )
    for log in logs:
        if log.kind in ("metrics", "supervised") and log not in useful:
            warnings.append(
                Warn("source_left_out", f"{Path(log.path).name}: a log of {log.kind} training beside one of RL")
            )
    useful.sort(key=lambda log: TRUST.get(log.format.split(" ")[0], 2))  # stable: of equals the first named is believed
    return useful, settings, warnings


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise CannotRead("lines on standard input", "it is closed", hint="rlclinic diagnose LOGFILE")
    return drained(sys.stdin.buffer, "standard input")


def _knobs(
    settings: Mapping[str, object], from_log: Mapping[str, object], framework: Framework | None
) -> dict[str, Knob]:
    """The settings of the run: its configuration wins over what the log prints; defaults only beside a configuration."""
    knobs = names.read_knobs(from_log, framework, "log")
    knobs.update(names.read_knobs(settings, framework, "config"))
    return {**names.default_knobs(framework, knobs), **knobs} if settings else knobs


def _unheard(settings: Mapping[str, object], logs: list[Log], framework: Framework | None) -> list[Warn]:
    """A warning for each setting that the log itself prints with another value than the configuration beside it."""
    printed = {key: value for log in reversed(logs) for key, value in log.config.items()}
    said, wanted = names.read_knobs(printed, framework, "log"), names.read_knobs(settings, framework, "config")
    return [
        Warn(
            "settings_disagree",
            f"{wanted[name].key} is {wanted[name].value} in the configuration and {heard} in the log",
        )
        for name in _TOLD
        if name in wanted and name in said and (heard := said[name].value) != wanted[name].value
    ]


def _assemble(
    sources: Sequence[str | Path],
    logs: list[Log],
    translated: list[Translated],
    framework: Framework | None,
    knobs: dict[str, Knob],
    warnings: list[Warn],
    eval_key: str | None,
) -> Run:
    columns: dict[str, Column] = {}
    components: dict[str, Component] = {}
    evaluations: dict[str, Column] = {}
    seams: dict[float, str] = {}
    for log, one in zip(logs, translated, strict=True):
        sure = log.step_source != "row order"
        for metric, column in one.columns.items():
            columns[metric] = _merge(columns.get(metric), column, sure)
        for part, component in one.components.items():
            if part not in components:
                components[part] = component
            else:
                mean = _merge(components[part].mean, component.mean, sure)
                components[part] = replace(components[part], mean=mean)
        for key, column in one.evaluations.items():
            bare = next((k for k in evaluations if names.strip(k)[0] == names.strip(key)[0]), key)
            evaluations[bare] = _merge(evaluations.get(bare), column, sure)
        seams |= one.seams if not seams else {}
        warnings += one.warnings
    known = {u for t in translated for u in t.undecided}
    chosen, rule = _held_out(evaluations, eval_key)
    if chosen is not None:
        columns["eval.score"] = replace(evaluations[chosen], metric="eval.score")
    unrecognised = {k: n for t in translated for k, n in t.unrecognised.items()}
    rows = max((log.rows for log in logs), default=0)
    excerpt = all(log.excerpt for log in logs) or (
        rows <= PASTE and all(log.format.startswith(("console", "table", "jsonl")) for log in logs)
    )
    planned = next((log.planned_steps for log in logs if log.planned_steps), None)
    if planned is None and isinstance(value := getattr(knobs.get("planned_steps"), "value", None), int) and value > 0:
        planned = value
    knobs = {**_implied(columns), **_uncontradicted(knobs, columns)}
    kinds = {log.kind for log in logs}
    facts = {key: text for log in reversed(logs) for key, text in log.facts.items()}
    model = knobs.get("model")
    if model is not None and "model" not in facts:
        facts["model"] = str(model.value)
    return Run(
        name=_name(sources),
        framework=framework,
        algorithm=_algorithm(columns, knobs, framework, facts),
        columns=columns,
        components=components,
        evaluations=evaluations,
        eval_rule=rule,
        knobs=knobs,
        sources=tuple(Source(log.path, log.format, log.rows, log.nonfinite) for log in logs),
        unrecognised=tuple(
            Unrecognised(key, names.nearest_keys(key, framework), count) for key, count in sorted(unrecognised.items())
        ),
        undecided=tuple(u for t in translated[:1] for k, u in sorted(t.undecided.items()) if k in known),
        warnings=tuple(dict.fromkeys(warnings)),
        seams=dict(sorted(seams.items())),
        began=next((t.began for t in translated if t.began is not None), None),
        planned_steps=planned,
        checkpoints=rundir.checkpoints(Path(source) for source in sources if str(source) != "-"),
        excerpt=excerpt,
        kind="supervised" if kinds == {"supervised"} else "crash" if kinds == {"crash"} else "rl",
        ending=next((log.ending for log in logs if log.ending), ""),
        facts=facts,
    )


def _of_one_trainer(logs: list[Log], given: str | None, warnings: list[Warn]) -> list[Log]:
    """The logs that the trainer of the first recognised one could have written; others are another run, and said so."""
    if len(logs) < 2 or given is not None:
        return logs
    found = [names.detect(list(log.series), text_versions=log.versions, complete=log.complete) for log in logs]
    # TRL, Unsloth and ms-swift write largely the same keys: one run may be taken for either, file by file.
    kin = [None if f is None else "trl" if f.name in ("unsloth", "ms_swift") else f.name for f in found]
    first = next((name for name in kin if name is not None), None)
    for log, one, name in zip(logs, found, kin, strict=True):
        if one is not None and name != first:
            says = f"{Path(log.path).name} was written by {one.title}, unlike {Path(logs[0].path).name}: left out"
            warnings.append(Warn("sources_disagree", says))
    return [log for log, name in zip(logs, kin, strict=True) if name in (None, first)]


def _of_one_run(logs: list[Log], translated: list[Translated], warnings: list[Warn]) -> list[int]:
    """Which logs agree with the first one wherever both speak of the same steps; others are named and left out."""
    kept = [0]
    for k in range(1, len(logs)):
        clash = next((key for i in kept if (key := _disagreement(translated[i], translated[k])) is not None), None)
        if clash is None:
            kept.append(k)
        else:
            name = Path(logs[k].path).name
            says = (
                f"{name} disagrees with {Path(logs[0].path).name} on {clash}: it is taken for another run and left out"
            )
            warnings.append(Warn("sources_disagree", says))
    return kept


def _disagreement(first: Translated, second: Translated) -> str | None:
    """The key on which two logs report different values for most of five or more common steps."""
    for metric in ("reward.mean", "grad.norm", "length.response.mean"):
        if metric not in first.columns or metric not in second.columns:
            continue
        a, b = first.columns[metric], second.columns[metric]
        _, i, j = np.intersect1d(a.steps, b.steps, assume_unique=True, return_indices=True)
        if len(i) >= 5 and np.isclose(a.values[i], b.values[j], rtol=0.02, atol=2e-3, equal_nan=True).mean() < 0.5:
            return b.key
    return None


def _merge(old: Column | None, new: Column, sure: bool) -> Column:
    """``old`` with what ``new`` adds outside the range of ``old`` and in its gaps; nothing is counted twice.

    A gap is more than twice the usual distance of rows, since parts of a run may be given in any order. ``sure`` is False
    when the steps of ``new`` are mere row numbers; it then adds nothing to a known column.
    """
    if old is None or not len(old):
        return new
    outside = (new.steps > old.steps[-1]) | (new.steps < old.steps[0])
    if len(old) > 2:
        at = np.searchsorted(old.steps, new.steps).clip(1, len(old) - 1)
        usual = float(np.median(np.diff(old.steps)))
        within = (new.steps - old.steps[at - 1] >= usual) & (old.steps[at] - new.steps >= usual)
        outside |= within & (old.steps[at] - old.steps[at - 1] > 2 * usual)
    if not sure or not outside.any():
        return old
    steps = np.concatenate([old.steps, new.steps[outside]])
    values = np.concatenate([old.values, new.values[outside]])
    rank = np.argsort(steps, kind="stable")
    return replace(old, steps=steps[rank], values=values[rank], resolution=max(old.resolution, new.resolution))


def _uncontradicted(knobs: dict[str, Knob], columns: Mapping[str, Column]) -> dict[str, Knob]:
    """The settings without the default that no KL term is in use where the log holds a KL to the reference."""
    weight, kl = knobs.get("kl_coef"), columns.get("kl.ref")
    shown = kl is not None and kl.status == "measured" and bool(kl.finite.values.any())
    if weight is not None and weight.origin == "default" and weight.value in (0, 0.0) and shown:
        return {name: knob for name, knob in knobs.items() if name != "kl_coef"}
    return knobs


def _implied(columns: Mapping[str, Column]) -> dict[str, Knob]:
    """Settings that the metrics themselves betray: the peak learning rate, and the limit at which answers are cut."""
    found: dict[str, Knob] = {}
    rate = columns.get("optim.lr")
    if rate is not None and len(rate.finite) and not rate.rounded_zero:
        used = rate.finite.values[rate.finite.values > 0]
        constant = len(used) > 0 and used.max() <= 1.05 * used.min()
        from_start = len(used) >= 20 and float(rate.finite.steps[0]) <= 0.05 * float(rate.finite.steps[-1])
        # A rate that jumps or decays over decades has no one value to start from, nor has the end of a schedule.
        if constant or (from_start and used.max() <= 3 * np.median(used)):
            found["learning_rate"] = Knob("learning_rate", float(f"{used.max():.4g}"), rate.key, "log")
    cut, longest = columns.get("length.truncated_frac"), columns.get("length.response.max")
    if cut is not None and longest is not None and len(longest.finite) and bool((cut.finite.values > 0).any()):
        top = longest.finite.values
        limit = float(top.max())
        # Only a limit makes the longest answer the same whole number row after row.
        if limit == int(limit) and float((top == limit).mean()) >= 0.8:
            found["max_response_length"] = Knob("max_response_length", int(limit), longest.key, "log")
    return found


def _held_out(evaluations: Mapping[str, Column], wanted: str | None) -> tuple[str | None, str]:
    """Which held-out series is the score, and the rule that says so."""
    if wanted is not None:
        match = [k for k in evaluations if k == wanted or names.strip(k)[0] == names.strip(wanted)[0]]
        if not match:
            raise BadRequest(
                "a held-out series of this log", f"--eval {wanted}", nearest(wanted, evaluations) or tuple(evaluations)
            )
        return match[0], f"{match[0]}, as asked"
    ranked = [(rank, i, key) for i, key in enumerate(evaluations) if (rank := names.evaluation_rank(key)) is not None]
    if not ranked:
        return None, ""
    rank, _, key = min(ranked)
    others = len(ranked) - 1
    rest = f"; {others} other held-out series, choose with --eval KEY" if others else ""
    return key, f"{key}: {names.EVAL_RULES[rank[0]]}{rest}"


def _algorithm(
    columns: Mapping[str, Column], knobs: Mapping[str, Knob], framework: Framework | None, facts: Mapping[str, str]
) -> str | None:
    stated = knobs.get("algorithm")
    if stated is not None and stated.origin != "default":
        return str(stated.value).lower()
    if "value.loss" in columns or "value.explained_var" in columns:
        return "ppo"
    if "algorithm" in facts:
        return facts["algorithm"].lower()
    grouped = "group.zero_var_frac" in columns or "reward.group_std" in columns
    return "grpo" if grouped or (framework is not None and framework.name in ("unsloth", "ms_swift")) else None


def _name(sources: Sequence[str | Path]) -> str:
    first = str(sources[0])
    if first == "-":
        return "standard input"
    path = Path(first).resolve()
    generic = {"trainer_state", "metrics", "train", "log", "output", "console", "training", "logging", "step_logs"}
    return path.parent.name if path.is_file() and path.stem in generic else path.stem if path.is_file() else path.name


__all__ = ["SHORT", "read", "read_rows"]
