"""Lightning: ``RLClinicCallback()`` by hand, or by itself where ``RLCLINIC=1`` (the entry points ``callbacks_factory`` of
``lightning.pytorch`` and of ``pytorch_lightning``)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import rlclinic
from rlclinic.hooks import asked

_HOMES = {"RLClinicCallback": "lightning.pytorch", "RLClinicCallbackPL": "pytorch_lightning"}
"""The package whose Callback each class is made from; Lightning is published under two names that do not mix."""


def callbacks() -> list[Any]:
    """What ``lightning`` adds to every Trainer: nothing unless ``RLCLINIC=1``. Never raises."""
    return _made("RLClinicCallback")


def callbacks_of_pytorch_lightning() -> list[Any]:
    """The same for the package ``pytorch_lightning``."""
    return _made("RLClinicCallbackPL")


def _made(name: str) -> list[Any]:
    if not asked.on():
        return []
    try:
        return [_callback(name)()]
    except Exception as broken:
        asked.say(f"Lightning is not watched: {type(broken).__name__}: {broken}")
        return []


class Watching:
    """What the callback does; ``RLClinicCallback`` is this and Lightning's ``Callback``.

    ``options`` are those of ``rlclinic.Monitor``; the environment fills in what they leave open. Metrics are those of
    ``self.log`` at the steps at which the Trainer logs (``log_every_n_steps``), of evaluations and of epochs. With
    ``stop_at`` every process stops at the same step; the callback must then be in each of them. Raises ValueError for a
    ``stop_at`` that is no severity.
    """

    def __init__(self, **options: Any) -> None:
        if options.get("stop_at") not in (None, *asked.SEVERITIES):
            raise ValueError(f"stop_at is one of {', '.join(asked.SEVERITIES)} or None, not {options['stop_at']!r}")
        self._options = {**asked.options(), **options}
        self._monitor: rlclinic.Monitor | None = None
        self._seen: dict[str, object] = {}
        self._crew: _Alone | _Crew | None = None
        self._failed = self._done = False

    @property
    def monitor(self) -> rlclinic.Monitor | None:
        """The monitor of process 0 while it trains; None elsewhere."""
        return self._monitor

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """A Monitor for process 0, with the module's ``hparams`` as settings."""
        self._quietly(self._begin, trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, *rest: Any
    ) -> None:
        """The row of a step at which the Trainer logs."""
        self._quietly(self._batch, trainer)
        if self._crew is not None:
            try:  # whatever failed before, since the others stop
                self._crew.follow(trainer)
            except Exception as broken:
                self._fail(broken)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """What is there now is not of the evaluation."""
        self._quietly(self._mark, trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """What is there now is of the last batch; what the epoch leaves is not worked out yet."""
        self._quietly(self._mark, trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """The row of an evaluation, but not of the one before training that only tries the code."""
        if not getattr(trainer, "sanity_checking", False):
            self._quietly(self._row, trainer, *_kept(trainer))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """What the epoch before has left."""
        self._quietly(self._row, trainer, *_kept(trainer), 1)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """What the last epoch left, and the last look."""
        self._quietly(self._row, trainer, *_kept(trainer), 1)
        self._quietly(self._finish)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The last look of a training that broke or was interrupted."""
        self._quietly(self._finish)

    def _begin(self, trainer: Any, module: Any) -> None:
        self._seen, self._done, self._crew = {}, False, None
        if self._options.get("stop_at") is not None and not asked.off():
            self._crew = _crew(trainer)
        if asked.off() or not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
            return
        hparams = getattr(module, "hparams", None)
        settings = dict(hparams) if isinstance(hparams, Mapping) else None
        self._monitor = asked.monitor(
            {"config": settings, "planned_steps": _planned(trainer), "rank": 0}, self._options
        )

    def _batch(self, trainer: Any) -> None:
        if self._monitor is None:
            return
        if _logs(trainer):
            self._row(trainer, dict(trainer.logged_metrics), trainer.callback_metrics)
        if self._crew is not None and self._monitor.should_stop:
            self._monitor.should_stop = False
            self._crew.order(trainer)

    def _mark(self, trainer: Any) -> None:
        if self._monitor is not None:
            self._seen = dict(_kept(trainer)[0])

    def _row(self, trainer: Any, now: Mapping[str, Any], known: Mapping[str, Any], back: int = 0) -> None:
        """Log what is new since the last row: Lightning keeps the values of old evaluations and epochs among the metrics.

        Its count has moved on by one (``back``) when an epoch has ended; its own loggers get the step of the last batch.
        """
        if self._monitor is None:
            return
        new = {key: value for key, value in now.items() if self._seen.get(key, self) is not value}
        self._seen = dict(now)
        found = {key: asked.number(value) for key, value in _unforked(new, now, known).items()}
        row = {key: value for key, value in found.items() if value is not None}
        if row:
            self._monitor.log(row, max(0, _step(trainer) - back))

    def _finish(self) -> None:
        if self._monitor is not None and not self._done:
            self._done = True
            self._monitor.finish()

    def _quietly(self, do: Callable[..., None], *args: Any) -> None:
        if self._failed:
            return
        try:
            do(*args)
        except Exception as broken:
            self._fail(broken)

    def _fail(self, broken: Exception) -> None:
        if not self._failed:
            self._failed, self._monitor = True, None
            asked.say(f"not watched, training goes on: {type(broken).__name__}: {broken}")


def _kept(trainer: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The metrics for loggers and for callbacks as they were worked out last.

    Outside of a batch ``trainer.logged_metrics`` would work out metrics of the epoch, for which all processes wait for each
    other, while only one of them asks here.
    """
    connector = getattr(trainer, "_logger_connector", None)
    logged, known = (getattr(connector, name, None) for name in ("_logged_metrics", "_callback_metrics"))
    return dict(logged or {}), dict(known or {})


def _logs(trainer: Any) -> bool:
    """Whether the Trainer logs the metrics of this step, by its own rule; not while gradients are accumulated."""
    every = int(getattr(trainer, "log_every_n_steps", 0) or 0)
    if every <= 0 or getattr(trainer, "fast_dev_run", False):
        return False
    return (_step(trainer) + 1) % every == 0 and not trainer.fit_loop._should_accumulate()


class _Alone:
    """One process: it stops at once."""

    def order(self, trainer: Any) -> None:
        trainer.should_stop = True

    def follow(self, trainer: Any) -> None:
        return None


class _Crew:
    """Several processes: what the first decides at step k, all do at step k + 1.

    No process gets past step k + 1 before the first has begun it, since an update needs gradients of all. Nothing is waited
    for: the order is a value in the store by which the processes found each other. A process that stopped alone would leave
    the others waiting for ever, so that nothing is ordered unless all have the callback.
    """

    def __init__(self, store: Any, size: int) -> None:
        global _trainings
        _trainings += 1
        self._store, self._size, self._name = store, size, f"rlclinic/lightning/{_trainings}"
        store.add(f"{self._name}/there", 1)

    def order(self, trainer: Any) -> None:
        there = int(self._store.add(f"{self._name}/there", 0))
        if there < self._size:
            asked.say(f"not stopped: only {there} of {self._size} processes have the callback with stop_at")
            return
        self._store.set(f"{self._name}/stop", str(_step(trainer) + 1))

    def follow(self, trainer: Any) -> None:
        if trainer.fit_loop._should_accumulate() or not self._store.check([f"{self._name}/stop"]):
            return
        if _step(trainer) >= int(self._store.get(f"{self._name}/stop")):
            trainer.should_stop = True


_trainings = 0
"""Trainings of several processes that began in this one; the same in each of them."""


def _crew(trainer: Any) -> _Alone | _Crew | None:
    """How the processes of this training stop together; None, with one line, where they cannot."""
    if trainer.world_size < 2:
        return _Alone()
    try:
        store = importlib.import_module("torch.distributed.distributed_c10d")._get_default_store()
        return _Crew(store, trainer.world_size)
    except Exception as broken:
        asked.say(f"the {trainer.world_size} processes cannot be stopped together: {type(broken).__name__}")
        return None


def _step(trainer: Any) -> int:
    """The step under which Lightning's own loggers put the metrics of this batch: batches with an update, from 0."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def _planned(trainer: Any) -> int | None:
    if (stated := asked.whole(trainer.max_steps)) is not None:
        return stated
    try:
        return asked.whole(trainer.estimated_stepping_batches)
    except Exception:  # it may need the data, or not exist
        return None


def _unforked(new: Mapping[str, Any], logged: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics by the name that the module gave them.

    One that is logged of steps and of epochs is ``NAME_step`` and ``NAME_epoch`` among the ``logged`` ones, and NAME only
    among those that are ``known`` to callbacks; the value of steps counts.
    """
    forked = {key[: -len("_step")] for key in logged if key.endswith("_step")} & (known.keys() - logged.keys())
    found: dict[str, Any] = {}
    for key, value in new.items():
        name, _, what = key.rpartition("_")
        if not (what == "epoch" and name in forked):
            found[name if what == "step" and name in forked else key] = value
    return found


def _callback(name: str) -> type:
    """The class of that name, made once, so that the processes of a spawned training find it again by its name."""
    if name not in globals():
        package = importlib.import_module(_HOMES[name])
        made = type(name, (Watching, package.Callback), {"__module__": __name__, "__doc__": Watching.__doc__})
        globals()[name] = made
    found = globals()[name]
    assert isinstance(found, type)
    return found


def __getattr__(name: str) -> Any:
    """The classes are made on first use, so that this module loads neither Lightning nor torch.

    ``RLClinicCallback`` is that of ``pytorch_lightning`` where only this one of the two packages is loaded or installed.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "RLClinicCallback" and "lightning" not in sys.modules:
        old = "pytorch_lightning" in sys.modules or find_spec("lightning") is None
        name = "RLClinicCallbackPL" if old else name
    return _callback(name)
