"""Read what belongs to one run and make it a Run: decide the form, then the framework, then translate and merge."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rlclinic import names
from rlclinic.errors import CannotRead
from rlclinic.model import ROLLOUTS, SHORT, Column, Framework, Knob, Run, Source, Warn
from rlclinic.names.own import OwnNames, read_names
from rlclinic.readers.answers import Settings as AnswerSettings
from rlclinic.readers.answers import parse_columns, read_answers
from rlclinic.readers.answers.own import UNDATED
from rlclinic.readers.answers.tables import LACKING
from rlclinic.readers.assemble import assemble
from rlclinic.readers.config import read_config
from rlclinic.readers.kinship import Held
from rlclinic.readers.log import Log
from rlclinic.readers.opening import Opening, opened, standard_input
from rlclinic.readers.past import histories, is_record
from rlclinic.readers.timeline import on_key, timeline
from rlclinic.readers.tokens import admitting
from rlclinic.readers.translate import Translated, translate
from rlclinic.rollouts import Answer, Rollouts

UNREAD = "answers_unread"
"""The warning for a file of saved answers that is not read."""
_UNKNOWN = "keys are those of no known form"
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
    names: str | Path | None = None,
    rollouts: Sequence[str | Path] = (),
    answer_columns: Mapping[str, str] | None = None,
    wanted: Callable[[Answer], bool] | None = None,
    show: bool = False,
    history: Sequence[str | Path] = (),
) -> Run:
    """The run held by ``sources``: files, one directory, or ``-`` for ``stdin`` (or the process's standard input).

    ``framework`` is a name or ``name@version``; ``config`` files add settings; ``eval_key`` names the held-out score;
    ``run`` names one of several runs in a source; ``names`` is a file of the user's own names (docs/own_names.md);
    ``rollouts`` are files or folders of saved answers, read in place of those found beside the log, ``answer_columns`` what
    the columns of the user's own form mean (``{"completion": "my_text"}``); ``wanted`` says whose words are kept beside the
    usual sample of them. With ``show`` the answers are what is wanted, and it is an error that none can be read. ``history``
    are records of earlier looks (``rlclinic record``) to be read beside the one that lies with the log.
    Raises CannotRead when no source holds a run, UnknownName for an unknown framework, BadRequest for an ``eval_key`` that
    is not in the log, and for ``names`` what ``read_names`` raises.
    """
    own = None if names is None else read_names(names)
    sources, history = _apart_from_records(sources, history)
    with np.errstate(all="ignore"), nullcontext() if own is None else admitting(own.fits):
        try:
            told = _understanding(
                sources, framework, config, eval_key, stdin, run, own, rollouts, answer_columns, wanted, history
            )
        except CannotRead as problem:
            plain = all(os.path.isfile(one) for one in sources)
            if (show or answer_columns) and plain and not problem.choices:
                _refuse(sources, answer_columns)
            raise
        if not told[0].rollouts and (answer_columns or (show and not told[0].columns)):
            _refuse(sources, answer_columns)
        return told[0]


def _apart_from_records(
    sources: Sequence[str | Path], history: Sequence[str | Path]
) -> tuple[Sequence[str | Path], Sequence[str | Path]]:
    """The sources without records of earlier looks, and these beside the others that were given.

    Raises CannotRead where no other source is left.
    """
    records = [one for one in sources if is_record(one)]
    logs = [one for one in sources if one not in records]
    if records and not logs:
        found = f"{records[0]}: a record of earlier looks, no log"
        raise CannotRead("a log", found, hint=f"rlclinic diagnose LOGFILE --history {shlex.quote(str(records[0]))}")
    return logs, [*history, *records]


def _refuse(sources: Sequence[str | Path], columns: Mapping[str, str] | None) -> None:
    """Say why the files among ``sources`` are no saved answers. Raises CannotRead where they tell."""
    files = [path for path in map(Path, sources) if path.is_file()]
    _, left = read_answers(files, columns=columns)
    told = [f"{path.name}: {why.removeprefix(f'{path}: ')}" for path, why in left]
    if columns and not told:
        told = [f"none beside {', '.join(map(str, sources[:3]))} with the columns that --columns names"]
    if columns or any(mark in one for one in told for mark in (_UNKNOWN, LACKING)):
        raise CannotRead("saved answers", "; ".join(told[:3]), hint=_hint(left))


def _hint(left: Sequence[tuple[Path, str]]) -> str:
    lacking = any(LACKING in why for _, why in left)
    return "pip install pyarrow" if lacking else "rlclinic diagnose LOGFILE"


def _understanding(
    sources: Sequence[str | Path],
    framework: str | None,
    config: Sequence[str | Path],
    eval_key: str | None,
    stdin: bytes | None,
    run: str | None,
    own: OwnNames | None,
    rollouts: Sequence[str | Path] = (),
    answer_columns: Mapping[str, str] | None = None,
    wanted: Callable[[Answer], bool] | None = None,
    history: Sequence[str | Path] = (),
) -> tuple[Run, list[Held], list[Translated], Mapping[str, object]]:
    """The run, the logs it was made from, these translated, and the settings found beside them."""
    step = "" if own is None else own.step
    given = list(map(Path, rollouts))
    for path in given:
        if not path.exists():
            raise CannotRead("a file or folder of saved answers", f"{path} does not exist")
    alone = set(map(str, sources)) <= set(map(str, given))
    # What is given as saved answers, even in a form of the user's own, is no log.
    with (
        nullcontext(_only_settings(config))
        if alone
        else opened(
            [one for one in sources if str(one) not in set(map(str, given))],
            config,
            stdin,
            run,
            framework if own is None else own.base(framework),
            (lambda logs: on_key(logs, step)) if step else list,
            answer_columns,
        ) as found
    ):
        held, settings, warnings = found.held, found.settings, found.warnings
        logs = [one.log for one in held]
        detected, knobs, translated = _understood(logs, settings, framework, own, found.versions)
        if own is not None:
            warnings += _named_in_vain(own, logs, detected)
        warnings += _unheard(settings, logs, detected)
        if held:
            whole = assemble(
                sources, held, translated, detected, knobs, warnings, eval_key, found.beside, found.checkpoints
            )
        else:
            first = [*sources, *rollouts][0]
            name = Path(first).name or str(first)
            whole = Run(name, detected, knobs=knobs, sources=tuple(found.beside), warnings=tuple(warnings))
        paths, passed = _named_ones(sources, found.answers, given)
        every = {*map(str, sources), *map(str, given)}
        top = next((Path(one) for one in every if not held and len(every) == 1 and Path(one).is_dir()), None)
        told = _answer_settings(settings, logs)
        whole = _with_answers(whole, paths, answer_columns, found.shown, wanted, told, bool(given), top, run)
        at = [one.log.path for one in held]
        past, unread = histories(at, [*sources, *(table.source for table in whole.rollouts)], history)
        whole = replace(whole, history=past, warnings=(*whole.warnings, *passed, *unread))
    return whole, held, translated, settings


def _only_settings(config: Sequence[str | Path]) -> Opening:
    """What there is beside saved answers without a log: the settings that the user gave."""
    return Opening(settings={key: value for path in config for key, value in read_config(Path(path)).items()})


def _setting(name: str, settings: Mapping[str, object], logs: Sequence[Log]) -> str | None:
    """A setting of the trainer's own name that is a text; None where neither the configuration nor the log states it."""
    for stated in (settings, *(log.config for log in logs)):
        flat = names.flatten(stated)
        for one in (name, name.replace("_", "-")):
            if isinstance(found := flat.get(one), str):
                return found
    return None


def _with_answers(
    run: Run,
    paths: Sequence[Path],
    columns: Mapping[str, str] | None,
    shown: Callable[[str], str],
    wanted: Callable[[Answer], bool] | None,
    stated: AnswerSettings,
    must: bool = False,
    top: Path | None = None,
    chosen: str | None = None,
) -> Run:
    """``run`` with the saved answers in ``paths`` and a source for each table of them, called as it is ``shown``.

    Raises CannotRead when there is neither a log nor a readable answer; with ``must`` also beside a log.
    """
    if not paths:
        return run
    known = _known_of(run, stated)
    tables, left = read_answers(paths, settings=known, columns=columns, wanted=wanted, top=top, run=chosen)
    if not tables and (must or not run.columns):
        found = "; ".join(f"{shown(str(path))}: {why}" for path, why in left[:3])
        raise CannotRead("saved answers" if must else "a log or saved answers", found, hint=_hint(left))
    return _attached(run, tuple(replace(one, source=shown(one.source)) for one in tables), left)


def _known_of(run: Run, stated: AnswerSettings) -> AnswerSettings:
    """What is ``stated`` of saved answers, with what their log knows."""
    size = run.number("group_size")
    weights = {name: part.weight for name, part in run.components.items() if part.weight is not None}
    group = None if size is None else int(size)
    return replace(stated, weights=weights, group_size=group, parts=frozenset(run.components))


def _answer_settings(settings: Mapping[str, object], logs: Sequence[Log]) -> AnswerSettings:
    return AnswerSettings(
        reward_key=_setting("reward_key", settings, logs),
        evaluations=Path(_setting("trainer.validation_data_dir", settings, logs) or "").name,
    )


def _attached(run: Run, tables: tuple[Rollouts, ...], left: Sequence[tuple[Path, str]]) -> Run:
    return replace(
        run,
        rollouts=tables,
        sources=(*run.sources, *(Source(one.source, one.form, one.rows, role=ROLLOUTS) for one in tables)),
        warnings=(
            *run.warnings,
            *_used(tables),
            *(Warn("undated_answers", one) for table in tables for one in table.warnings if UNDATED in one),
            *(Warn(UNREAD, f"{path.name}: {why.removeprefix(f'{path}: ')}") for path, why in left),
        ),
    )


def _named_ones(
    sources: Sequence[str | Path], found: Sequence[Path], given: Sequence[Path]
) -> tuple[list[Path], list[Warn]]:
    """The saved answers to read: those that the user named, else those beside the log; with a word on those passed over."""
    if not given:
        return list(found), []
    named = {Path(one).resolve() for one in (*sources, *given)}
    mine = [one for one in found if one.resolve() in named]
    folders = {one.resolve() for one in given}
    passed = [one for one in found if one not in mine and folders.isdisjoint(one.resolve().parents)]
    if not passed:
        return [*mine, *given], []
    more = f" and {len(passed) - 1} more" if len(passed) > 1 else ""
    says = f"the saved answers beside the log ({passed[0].name}{more}) are left, since --rollouts names others"
    return [*mine, *given], [Warn("answers_left", says)]


def _folder(table: Rollouts) -> Path:
    return Path(table.source).parent if table.files == 1 else Path(table.source)


def _used(tables: Sequence[Rollouts]) -> list[Warn]:
    """Which of several tables of saved answers is looked at first, why, and how to see another."""
    if len(tables) < 2:
        return []
    first, others = tables[0], tables[1:]
    look = f"rlclinic rollouts {shlex.quote(others[0].source)}"
    rivals = [
        one.source for one in others
        if one.form == first.form and _folder(one) != _folder(first)
        and 2 * len(np.intersect1d(one.steps, first.steps)) >= min(len(one.steps), len(first.steps))
        and one.held_out.all() == first.held_out.all()
    ]  # fmt: skip
    if rivals:
        more = f" and {len(rivals) - 1} more" if len(rivals) > 1 else ""
        says = f"{first.source} and {rivals[0]}{more} hold answers of the same steps, as several runs do"
        return [Warn("answers_of_runs", f"{says}; they are kept apart, and {first.source} is used; the other: {look}")]
    says = f"saved answers in {len(tables)} forms; {first.source} is used first: most answers of training, each"
    return [Warn("answers_in_forms", f"{says} counted by how much is known of it; another: {look}")]


@dataclass(frozen=True, eq=False)
class Survey:
    """A run with what its log holds beside it: numbers under keys that mean nothing yet, by step, and all settings.

    ``unsure`` holds what a key may mean where the version of the trainer decides; ``stepped`` says whether the steps are
    stated in the log, and under which key.
    """

    run: Run
    unknown: Mapping[str, Column]
    unsure: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, object]
    stepped: str


def survey(
    sources: Sequence[str | Path],
    *,
    framework: str | None = None,
    config: Sequence[str | Path] = (),
    stdin: bytes | None = None,
    run: str | None = None,
) -> Survey:
    """What is in ``sources``, known or not; the arguments and errors are those of ``read``."""
    if "-" in map(str, sources) and stdin is None:
        stdin = standard_input()
    with np.errstate(all="ignore"):
        try:
            found = _understanding(sources, framework, config, None, stdin, run, None)
        except CannotRead:
            with admitting(bool):  # a loop whose keys all have words of their own
                found = _understanding(sources, framework, config, None, stdin, run, None)
        told, held, translated, settings = found
        unknown: dict[str, Column] = {}
        unsure: dict[str, tuple[str, ...]] = {}
        for log, one in zip((one.log for one in held), translated, strict=True):
            steps = timeline(log).steps
            unsure |= {key: undecided.meanings for key, undecided in one.undecided.items()}
            for key in (*one.unrecognised, *one.undecided):
                series = log.series[key]
                known = np.isfinite(steps[series.rows])
                unknown.setdefault(key, Column("run.summary", key, steps[series.rows][known], series.values[known]))
        printed = {key: value for one in reversed(held) for key, value in one.log.config.items()}
        return Survey(told, unknown, unsure, names.flatten({**printed, **settings}), held[0].log.step_source)


def read_rows(
    log: Log,
    *,
    framework: str | None = None,
    knobs: Mapping[str, object] | None = None,
    config: Mapping[str, object] | None = None,
    names_of: OwnNames | None = None,
    eval_key: str | None = None,
) -> Run:
    """The run of one log that is in memory already.

    ``knobs`` are settings by canonical name or in the framework's spelling. They need not be the whole configuration, so
    no default is assumed beside them; beside ``config``, which is the whole of it, the framework's defaults hold.
    ``names_of`` are the user's own names, ``eval_key`` names the held-out score. Raises BadRequest for an ``eval_key``, or
    a step in the user's names, that is not in the log.
    """
    given, whole = dict(knobs or {}), dict(config or {})
    own = names_of
    if own is not None:
        framework = own.base(framework)
        log = on_key([log], own.step)[0] if own.step else log
    with np.errstate(all="ignore"), nullcontext() if own is None else admitting(own.fits):
        keys = list(log.series)
        detected = names.detect(keys, given=framework, config_keys=map(str, [*given, *whole]), complete=log.complete)
        if own is not None and detected is not None:
            detected = own.over(detected)
        scalar = {name: value for name, value in given.items() if isinstance(value, (bool, int, float, str))}
        plain = {name: Knob(name, value, name, "given") for name, value in scalar.items() if name in names.knobs()}
        known = {**_knobs(whole, {}, detected), **plain, **names.read_knobs(given, detected, "given")}
        translated = translate(log, detected, known)
        run = assemble(["-"], [Held(log)], [translated], detected, known, log.warnings, eval_key)
        return replace(run, name=log.path)


@dataclass(frozen=True, eq=False)
class Saved:
    """Saved answers that were read apart from their log, to be laid beside it: tables, and files that are not read."""

    tables: tuple[Rollouts, ...]
    left: tuple[tuple[Path, str], ...] = ()

    def beside(self, run: Run) -> Run:
        """``run`` with these answers and a source for each table of them."""
        return _attached(run, self.tables, self.left)


def saved_answers(run: Run, paths: Sequence[Path], settings: Mapping[str, object] | None = None) -> Saved:
    """The answers in ``paths``, files or folders, read as those of ``run``; ``settings`` are its configuration."""
    known = _known_of(run, _answer_settings(settings or {}, []))
    tables, left = read_answers(paths, settings=known)
    return Saved(tuple(tables), tuple(left))


def _understood(
    logs: list[Log],
    settings: Mapping[str, object],
    given: str | None,
    own: OwnNames | None = None,
    installed: Mapping[str, str] | None = None,
) -> tuple[Framework | None, dict[str, Knob], list[Translated]]:
    """The framework that the logs together speak of, the settings in its terms, and each log translated.

    The versions that are ``installed`` settle that of the framework where the log leaves it open.
    """
    keys = list(dict.fromkeys(key for log in logs for key in log.series))
    versions = {name: found for log in reversed(logs) for name, found in log.versions.items()}
    from_log = {key: value for log in reversed(logs) for key, value in log.config.items()}
    detected = names.detect(
        keys,
        given=given if own is None else own.base(given),
        config_keys=[*settings, *from_log],
        text_versions=versions,
        complete=any(log.complete for log in logs),
    )
    if detected is not None and installed:
        detected = names.settled(detected, installed)
    if own is not None and detected is not None:
        detected = own.over(detected)
    knobs = _knobs(settings, from_log, detected)
    return detected, knobs, [translate(log, detected, knobs) for log in logs]


def _named_in_vain(own: OwnNames, logs: list[Log], framework: Framework | None) -> list[Warn]:
    """Warnings for names that meet nothing in the log, and for a trainer underneath that the file does not mention."""
    said: list[Warn] = []
    keys = list(dict.fromkeys(key for log in logs for key in log.series))
    idle = names.unused(keys, framework)
    if idle:
        shown = ", ".join(idle[:5]) + (f" and {len(idle) - 5} more" if len(idle) > 5 else "")
        said.append(Warn("names_unused", f"{own.path} names what is not in the log: {shown}"))
    if framework is not None and framework.name == "generic":
        known = names.detect(keys)
        if known is not None:
            says = f"{own.path} extends no trainer, but the other keys look like {known.title}'s"
            said.append(Warn("names_base", f'{says}; with extends = "{known.name}" they are read too'))
    return said


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


__all__ = ["SHORT", "Saved", "Survey", "parse_columns", "read", "read_rows", "saved_answers", "survey"]
