"""A callback that watches a training of TRL, or of any trainer built on that of transformers, while it runs."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rlclinic.hooks.asked import off

if TYPE_CHECKING:
    from rlclinic.live import Event, Monitor
    from rlclinic.model import Diagnosis

_FOLDERS = 1_000
"""Most numbered folders or pages beside each other (ours)."""
_SECRET = (
    r"(?i)(?:^|_)(?:token|key|auth|credentials?|bearer|cookies?|pwd|dsn)$"
    r"|secret|passw|(?:api|access|private)_?key|webhook"
)
_TEXT = 300
"""Longest text of a setting that is kept (ours)."""
_LINE = 600
"""Longest line on the console (ours)."""
_CLOSING = 5.0
"""Most seconds that the end of a training waits for alerts on their way (ours)."""
_LIBRARIES = ("trl", "transformers", "torch", "accelerate", "vllm", "unsloth")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_trainings = 0
"""Trainings with actions that began in this process; the same in every process of a training."""


def _safe(method: _Method) -> _Method:
    """The event ``method`` so that nothing that goes wrong in it reaches the training: it is told once, then all is off."""

    def called(self: RLClinicCallback, args: Any, state: Any, control: Any, **more: Any) -> Any:
        if self._broken:
            return None
        try:
            return method(self, args, state, control, **more)
        except Exception as broken:
            self._broken, self.monitor = True, None
            _say(f"monitoring stopped, training goes on: {type(broken).__name__}: {broken}")
            return None

    called.__name__, called.__doc__ = method.__name__, method.__doc__
    return called  # type: ignore[return-value]


class RLClinicCallback:
    """Diagnoses the run from within: ``GRPOTrainer(..., callbacks=[RLClinicCallback()])``.

    What was found is printed once on the console of the main process, with the change to make. ``stop_at`` and ``save_at``
    are severities (``"warning"``, ``"critical"``) from which the training is stopped, or a checkpoint saved; both are off
    by default, and in a training of several processes the callback must then be given in each of them. ``tell`` is called
    with the events of a look and its diagnosis (``rlclinic.live.alerts``); without it the addresses of ``RLCLINIC_ALERT``
    are told, where that is set. ``report`` writes a page at the end: True into the output directory, or a path; a page
    that is there is kept and the new one numbered.

    The rows, settings and course of the run are kept in ``output_dir/rlclinic``, so that a resumed training says nothing
    twice and ``rlclinic diagnose OUTPUT_DIR`` knows the settings; ``state`` is another folder, or False for none.
    ``options`` are further ones of ``Monitor``, such as ``eval_key``, ``baseline``, ``limits`` and ``share``; what the
    trainer knows (framework and version, settings, planned steps, saved answers) need not be given.

    After the training ``diagnosis`` is what ``rlclinic diagnose`` says of the whole of it. With ``RLCLINIC=0`` in the
    environment the callback does nothing. It never raises into the training. Raises ValueError and TypeError here for
    options that there are not.
    """

    def __new__(cls, *_: Any, **__: Any) -> RLClinicCallback:
        """An instance that is one of ``transformers.TrainerCallback``, too: what is built on trainers asks for that."""
        return object.__new__(_grown(cls))

    def __init__(
        self,
        *,
        stop_at: str | None = None,
        save_at: str | None = None,
        tell: Callable[[Sequence[Event], Diagnosis], None] | None = None,
        report: bool | str | os.PathLike[str] = False,
        state: bool | str | os.PathLike[str] = True,
        **options: Any,
    ) -> None:
        for level in (stop_at, save_at):
            if level not in (None, "warning", "critical"):
                raise ValueError(f'stop_at and save_at are "warning", "critical" or None, not {level!r}')
        known = inspect.signature(import_module("rlclinic.live").Monitor).parameters
        for name in options:
            if name not in known or name in ("rank", "fresh"):
                raise TypeError(f"RLClinicCallback has no option {name!r}")
        self._actions: dict[str, Any] = {"stop_at": stop_at, "save_at": save_at}
        self._hearer, self._wanted, self._state, self._options = tell, report, state, options
        self.monitor: Monitor | None = None
        self.diagnosis: Diagnosis | None = None
        """That of the whole training, once it has ended."""
        self.report: Path | None = None
        """The page that was written at the end."""
        self.events: list[Event] = []
        """What was told, in order."""
        self._broken = self._began = False
        self._crew: _Alone | _Crew = _Alone()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy (of a search over settings, say) has the same options and begins anew."""
        given = {"tell": self._hearer, "report": self._wanted, "state": self._state}
        return _again, ({**self._actions, **given, **self._options},)

    def __getattr__(self, name: str) -> Any:
        """Events that are of no interest, those of later versions of transformers among them."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @_safe
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A training begins, or goes on from a checkpoint, whose rows are in the trainer's history."""
        self._begin(args, state, list(getattr(state, "log_history", None) or ()))

    @_safe
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> Any:
        """A row of metrics, of the training or of an evaluation; it stands in the trainer's history already."""
        history = getattr(state, "log_history", None) or ()
        if not self._began:
            self._begin(args, state, list(history[:-1]))
        if self.monitor is None or not (history or logs):
            return None
        row = {"step": state.global_step, **(logs or {})}
        if history and history[-1].get("step") == state.global_step:
            row = history[-1]  # without what other callbacks have made of the row since: it is what is saved
        self.monitor.log(row)
        stop, save = self.monitor.should_stop, self.monitor.should_save
        if not (stop or save):
            return None
        self.monitor.should_stop = self.monitor.should_save = False
        return self._crew.order(control, state.global_step, stop, save)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """In every process, also where monitoring has broken: do what the main process decided at the step before."""
        try:
            return self._crew.follow(control, state.global_step)
        except Exception as broken:
            self._crew = _Alone()
            _say(f"the training goes on: {type(broken).__name__}: {broken}")
            return None

    @_safe
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A checkpoint was saved."""
        if self.monitor is not None:
            self.monitor.checkpoint(state.global_step, str(_home(args) / f"checkpoint-{state.global_step}"))

    @_safe
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The last look."""
        self._began = False
        if self.monitor is None:
            return
        self.monitor.finish()
        if callable(close := getattr(self._hearer, "close", None)):
            close(_CLOSING)
        self.diagnosis = self.monitor.diagnosis
        if self.diagnosis is None:
            return
        _say(f"at the end: {self.diagnosis.verdict.says}")
        if self._wanted and (page := _page(self.diagnosis, self._wanted, _home(args))) is not None:
            self.report = page
            _say(f"the page is {page}")

    def _begin(self, args: Any, state: Any, history: list[Mapping[str, Any]]) -> None:
        if self.monitor is not None:
            self.monitor.finish()  # the training before was broken off
        self._began, self.monitor, self.diagnosis = True, None, None
        main = bool(state.is_world_process_zero)
        # Whether a process takes part hangs on nothing that may differ between them.
        self._crew = _crew(args, main) if any(self._actions.values()) else _Alone()
        if not main or off():
            return
        from rlclinic.live import Monitor

        if self._hearer is None:
            from rlclinic.live.post import asked

            self._hearer = asked()
        config, folder = settings(args, state), self._folder(args, state)
        found: dict[str, Any] = {
            "framework": _framework(args),
            "config": config,
            "planned_steps": config.get("max_steps"),
            "name": _home(args).name or "run",
            "nonfinite": "unknown",  # as the file in which the trainer saves its rows is read
            "rollouts": _rollouts(args),
        }
        self.monitor = Monitor(
            **{**found, **self._options}, **self._actions, tell=self._tell, rank=0, state=folder, fresh=not history
        )
        if folder is not None:
            _keep_settings(folder, config)
        if history:
            self.monitor.resume(history)
            stands = ", ".join(f"{check} ({severity})" for check, severity in self.monitor.open.items())
            if stands:
                _say(f"goes on from step {state.global_step}; found before: {stands}")
        if self._actions["save_at"] and getattr(args, "save_total_limit", None):
            _say(f"save_total_limit={args.save_total_limit}: a checkpoint saved by save_at pushes out the oldest one")

    def _tell(self, events: Sequence[Event], diagnosis: Diagnosis) -> None:
        from rlclinic.live.events import lines

        self.events += events
        for line in lines(events):
            _say(line)
        if self._hearer is not None:
            self._hearer(events, diagnosis)

    def _folder(self, args: Any, state: Any) -> Path | None:
        """Where the run is kept; None where it is not, and for each trial of a search over settings."""
        if self._state is False or getattr(state, "is_hyper_param_search", False):
            return None
        from rlclinic.readers.rundir import MONITORED

        return _home(args) / MONITORED if self._state is True else Path(self._state)


def settings(args: Any, state: Any) -> dict[str, Any]:
    """The trainer's configuration as plain values: no secrets, no addresses, nothing nested; ``max_steps`` as planned."""
    if callable(whole := getattr(args, "to_dict", None)):
        stated = whole()
    else:
        stated = vars(args)
    kept = {
        str(name): value if not isinstance(value, (list, tuple)) else list(value)
        for name, value in dict(stated).items()
        if not re.search(_SECRET, str(name)) and _plain(value)
    }
    if isinstance(planned := getattr(state, "max_steps", None), int) and planned > 0:
        kept["max_steps"] = planned
    else:
        kept.pop("max_steps", None)
    return kept


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= 100 and all(_plain(one) and not isinstance(one, (list, tuple)) for one in value)
    if isinstance(value, str):
        from rlclinic.answers.mask import masked

        return len(value) <= _TEXT and "://" not in value and "<secret>" not in masked(value)
    return isinstance(value, (bool, int, float))


def _framework(args: Any) -> str | None:
    """TRL and its version where a configuration of TRL's own is trained with; else the rows have to tell."""
    trl, mine = sys.modules.get("trl"), type(args)
    homes = {one.__module__.partition(".")[0] for one in mine.__mro__}
    version = str(getattr(trl, "__version__", ""))
    if "trl" not in homes or homes & {"swift", "llamafactory"} or "Unsloth" in mine.__name__ or not version:
        return None
    if any(one.__name__ == "PPOConfig" for one in mine.__mro__):
        return None
    return f"trl@{version}" if re.fullmatch(r"\d+\.\d+[\w.+]*", version) else "trl"


def _keep_settings(folder: Path, config: Mapping[str, Any]) -> None:
    """Keep the settings and the versions of libraries beside the rows, for a diagnosis after the training; those of an
    earlier one get another name."""
    from rlclinic.live.keeping import set_aside

    texts = {"config.json": json.dumps(config, indent=1) + "\n", "pip-freeze.txt": "".join(_versions())}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
                continue
            set_aside(path)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as problem:
        _say(f"the settings of the run are not kept: {problem}")


def _versions() -> Iterator[str]:
    for name in _LIBRARIES:
        version = str(getattr(sys.modules.get(name), "__version__", ""))
        if re.fullmatch(r"[\w.+]{1,40}", version):
            yield f"{name}=={version}\n"


def _home(args: Any) -> Path:
    """The folder of the run."""
    return Path(args.output_dir or ".")


def _rollouts(args: Any) -> list[str]:
    """The folder into which the trainer saves answers; empty where it saves none."""
    return [str(_home(args) / "completions")] if getattr(args, "log_completions", False) is True else []


def _page(diagnosis: Diagnosis, wanted: bool | str | os.PathLike[str], folder: Path) -> Path | None:
    from rlclinic.report import render

    first = folder / "rlclinic.html" if wanted is True else Path(str(wanted))
    text = render(diagnosis, "html")
    try:
        first.parent.mkdir(parents=True, exist_ok=True)
        for one in _numbered(first):
            with suppress(FileExistsError), one.open("x", encoding="utf-8") as page:
                page.write(text)
                return one
    except OSError as problem:
        _say(f"no page was written: {problem}")
    return None


def _numbered(path: Path) -> Iterator[Path]:
    yield path
    for number in range(2, _FOLDERS):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def _say(text: str) -> None:
    """One clean line on the console, beside a progress bar where one is drawn."""
    from rlclinic.report.blocks import plain

    line = f"rlclinic: {plain(text, _LINE)}"
    bars = sys.modules.get("tqdm")
    try:
        if bars is not None:
            bars.tqdm.write(line, file=sys.stderr)
        else:
            print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass  # a console that is closed


def _nothing(*_: Any, **__: Any) -> None:
    """An event of no interest."""


def _again(options: dict[str, Any]) -> RLClinicCallback:
    return RLClinicCallback(**options)


_CLASSES: dict[type, type] = {}


def _grown(cls: type[RLClinicCallback]) -> type:
    """``cls`` that is a ``transformers.TrainerCallback``, too, where transformers can be had."""
    if cls not in _CLASSES:
        try:
            theirs = import_module("transformers.trainer_callback").TrainerCallback
        except Exception:
            return cls
        if issubclass(cls, theirs):
            return cls
        _CLASSES[cls] = type(cls.__name__, (cls, theirs), {"__module__": cls.__module__, "__doc__": cls.__doc__})
    return _CLASSES[cls]


# ------------------------------------------------------------------------------------- actions in several processes


class _Alone:
    """One process: what was decided is done at once."""

    def order(self, control: Any, step: int, stop: bool, save: bool) -> Any:
        return _do(control, step, stop, save, True)

    def follow(self, control: Any, step: int) -> Any:
        return None


class _Refused(_Alone):
    """Several processes that cannot be told: one that stopped alone would leave the others waiting for ever."""

    def __init__(self, why: str) -> None:
        self._why = why

    def order(self, control: Any, step: int, stop: bool, save: bool) -> Any:
        _say(f"the training is not {'stopped' if stop else 'saved'} at step {step}: {self._why}")
        return None


class _Crew:
    """Several processes: what the main one decides at step k, all do at the end of step k + 1.

    No process reaches the end of step k + 1 before the main process has begun it, since an optimizer step needs gradients
    of all. Nothing is waited for: an order is a value in the store by which the processes found each other.
    """

    def __init__(self, store: Any, size: int, training: int, main: bool) -> None:
        self._store, self._size, self._main = store, size, main
        self._prefix, self._orders = f"rlclinic/{training}", 0
        store.add(f"{self._prefix}/there", 1)

    def order(self, control: Any, step: int, stop: bool, save: bool) -> Any:
        there = int(self._store.add(f"{self._prefix}/there", 0))
        if there < self._size:
            missing = f"only {there} of {self._size} processes have the callback; give it in each of them"
            return _Refused(missing).order(control, step, stop, save)
        key = f"{self._prefix}/{self._orders}"
        self._store.set(key, f"{step + 1} {stop:d} {save:d}")
        self._store.get(key)  # answered only after the value was taken in
        return None

    def follow(self, control: Any, step: int) -> Any:
        key = f"{self._prefix}/{self._orders}"
        if not self._store.check([key]):
            return None
        at, stop, save = map(int, self._store.get(key).split())
        if step < at:
            return None
        self._orders += 1
        return _do(control, step, bool(stop), bool(save), self._main)


def _do(control: Any, step: int, stop: bool, save: bool, main: bool) -> Any:
    if stop:
        control.should_training_stop = True
    if save:
        control.should_save = True
    if main:
        done = " and ".join(word for word, wanted in (("stopped", stop), ("saved", save)) if wanted)
        _say(f"the training is {done} at step {step}, as asked")
    return control


def _crew(args: Any, main: bool) -> _Alone | _Crew:
    """How the processes of this training act together."""
    global _trainings
    size = int(getattr(args, "world_size", 1) or 1)
    if size < 2:
        return _Alone()
    _trainings += 1
    try:
        store = import_module("torch.distributed.distributed_c10d")._get_default_store()
        return _Crew(store, size, _trainings, main)
    except Exception as broken:
        return _Refused(f"the {size} processes cannot be told together ({type(broken).__name__})")
