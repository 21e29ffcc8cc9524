"""verl: rows are taken where its driver logs them. Loaded by ``import verl`` (entry point ``verl.plugins``, verl 0.9 and
later) or through ``VERL_USE_EXTERNAL_MODULES=rlclinic.hooks.verl``; it does nothing unless ``RLCLINIC=1``."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlclinic.hooks import asked

_HELD = "_rlclinic"
"""Where the monitor of a Tracking is kept, and how a class that is wrapped is told."""


@dataclass(frozen=True)
class _Watch:
    """The monitor of one Tracking, and where and how often verl saves."""

    monitor: Any
    saves: str | None
    every: int | None

    def log(self, data: Mapping[str, Any], step: Any) -> None:
        if self.saves and self.every and isinstance(step, int) and step > 0 and step % self.every == 0:
            folder = os.path.join(self.saves, f"global_step_{step}")
            if os.path.isdir(folder):  # verl saves before it logs the row of the step
                self.monitor.checkpoint(step, folder)
        self.monitor.log(data, step)


def install() -> bool:
    """Wrap verl's ``Tracking``; True where it is wrapped. Never raises.

    verl loads its plug-ins in the middle of its own import, in every process; ``verl.utils.tracking`` imports nothing of
    verl at its top, so that importing it then closes no circle.
    """
    try:
        return wrap(importlib.import_module("verl.utils.tracking").Tracking)
    except Exception as broken:
        asked.say(f"verl is not watched: {type(broken).__name__}: {broken}")
        return False


def wrap(tracking: type) -> bool:
    """Let a monitor see each row that an object of ``tracking`` logs, after verl's own loggers; once for each class.

    verl's method runs first and its result and errors are untouched; what a monitor does cannot raise.
    """
    if _HELD in vars(tracking):
        return True
    made, logged, finished = tracking.__init__, tracking.log, getattr(tracking, "finish", None)  # type: ignore[misc, attr-defined]
    held, quietly = _HELD, _quietly  # when Python ends, this module may be empty before verl's last call comes

    @functools.wraps(made)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        quietly(_begin, self, made, args, kwargs)

    @functools.wraps(logged)
    def log(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = logged(self, *args, **kwargs)
        if (one := getattr(self, held, None)) is not None:
            quietly(_log, one, self, logged, args, kwargs)
        return told

    tracking.__init__, tracking.log = begin, log  # type: ignore[misc, attr-defined]
    if callable(finished):

        @functools.wraps(finished)
        def finish(self: Any, *args: Any, **kwargs: Any) -> Any:
            if (one := getattr(self, held, None)) is not None:
                quietly(one.monitor.finish)
            return finished(self, *args, **kwargs)

        tracking.finish = finish  # type: ignore[attr-defined]
    setattr(tracking, _HELD, None)
    return True


def planned(config: Mapping[str, Any]) -> int | None:
    """The last step of the run, where verl's configuration tells it.

    ``trainer.total_training_steps``, else what the trainer wrote as the length of the actor's schedule, which counts
    updates: trainers of ``use_v1`` make ``parameter_sync_step`` of them in a step. Fully asynchronous training counts
    versions of the parameters, for which no length is written.
    """
    if "async_training" in config:
        return None
    if (stated := asked.whole(asked.inner(config, "trainer", "total_training_steps"))) is not None:
        return stated
    updates = asked.whole(asked.inner(config, "actor_rollout_ref", "actor", "optim", "total_training_steps"))
    times = 1
    if asked.inner(config, "trainer", "use_v1"):
        mode = asked.inner(config, "trainer", "v1", "trainer_mode")
        times = asked.whole(asked.inner(config, "trainer", "v1", str(mode), "parameter_sync_step")) or 1
    return None if updates is None else updates // times


def _begin(tracking: Any, made: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    given = inspect.signature(made).bind(tracking, *args, **kwargs).arguments
    config = given.get("config")
    if asked.off() or not isinstance(config, Mapping) or "actor_rollout_ref" not in config:
        return  # verl's supervised trainer logs through the same class
    name = given.get("experiment_name")
    # Only the driver has a Tracking; it may inherit a rank above 0 from the node that its Ray worker runs on.
    one = asked.monitor(
        {
            "framework": _framework(),
            "config": config,
            "planned_steps": planned(config),
            "rank": 0,
            "name": name if isinstance(name, str) else None,
            "rollouts": _text(config, "rollout_data_dir"),
        }
    )
    if one is None:
        return
    setattr(tracking, _HELD, _Watch(one, _text(config, "default_local_dir"), _every(config)))
    # For versions without Tracking.finish, and where a trainer never calls it. The monitor knows nothing of the Tracking.
    weakref.finalize(tracking, _quietly, one.finish)


def _log(
    watch: Any, tracking: Any, logged: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    given = inspect.signature(logged).bind(tracking, *args, **kwargs).arguments
    if isinstance(given.get("data"), Mapping):
        watch.log(given["data"], given.get("step"))


def _text(config: Mapping[str, Any], name: str) -> str | None:
    found = asked.inner(config, "trainer", name)
    return found if isinstance(found, str) and found else None


def _every(config: Mapping[str, Any]) -> int | None:
    return asked.whole(asked.inner(config, "trainer", "save_freq"))


def _framework() -> str:
    version = str(getattr(sys.modules.get("verl"), "__version__", ""))
    return f"verl@{version}" if re.fullmatch(r"\d+(\.\w{1,12}){1,5}", version) else "verl"


def _quietly(do: Callable[..., Any], *args: Any) -> None:
    try:
        do(*args)
    except Exception as broken:
        try:
            asked.say(f"not watched, training goes on: {type(broken).__name__}: {broken}")
        except Exception:  # Python is ending
            return


if asked.on() and "verl" in sys.modules:
    install()
