"""What is asked of a monitor, made sure of before the training begins; and whether this is the process to monitor in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import get_args

from rlclinic import names
from rlclinic.checks.form import override
from rlclinic.diagnose import resolve
from rlclinic.errors import BadRequest
from rlclinic.live.handed import plain_step
from rlclinic.model import Severity
from rlclinic.readers.rows import Nonfinite
from rlclinic.report.blocks import KEY, plain

SWITCH = "RLCLINIC"
"""The environment variable that turns every monitor off with ``0``."""
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
"""Where launchers tell a process its place among all of them; the first that is set counts."""
PLACES = ("LOCAL_RANK", "NODE_RANK")
"""Its place on its machine, and that of its machine: all that Lightning tells the processes that it starts."""


def check(framework: object, limits: object, only: tuple[str, ...] | None, share: object, tell: object) -> None:
    """Raises BadRequest, UnknownName and BadTable for what no monitor can work with."""
    if framework is not None and not isinstance(framework, str):
        raise BadRequest("a framework as text, such as trl@1.16.0", _shown(framework))
    if framework is not None:
        names.detect([], given=framework)
    if limits is not None and not (
        isinstance(limits, Mapping) and all(isinstance(rows, Mapping) for rows in limits.values())
    ):
        raise BadRequest("limits as check: {limit: number}", _shown(limits), hint="rlclinic explain CHECK")
    resolve(map(str, [*(limits if isinstance(limits, Mapping) else ()), *(only or ())]))
    for check, rows in limits.items() if isinstance(limits, Mapping) else ():
        for one in resolve([check]):
            override(one.limits, rows, check_name=one.name, by="limits")
    if share is not None and not (isinstance(share, (int, float)) and 0 < share <= 1):
        raise BadRequest("a share of the time, such as 0.02, or None", f"share = {_shown(share)}")
    if tell is not None and not callable(tell):
        raise BadRequest("tell as something to call with events and a diagnosis", _shown(tell))


def check_kinds(knobs: object, config: object, eval_key: object, nonfinite: object, planned: object) -> None:
    """Raises BadRequest for options of another type."""
    if planned is not None and plain_step(planned) is None:
        raise BadRequest("planned_steps as a number, or None", _shown(planned))
    for option, table in (("knobs", knobs), ("config", config)):
        if table is not None and not isinstance(table, Mapping):
            raise BadRequest(f"{option} as a table of settings", _shown(table))
    if eval_key is not None and not isinstance(eval_key, str):
        raise BadRequest("eval_key as the key of a metric", _shown(eval_key))
    if nonfinite not in get_args(Nonfinite):
        raise BadRequest("nonfinite as what the trainer does with NaN", _shown(nonfinite), get_args(Nonfinite))


def off() -> bool:
    """Whether the environment turns every monitor off."""
    return os.environ.get(SWITCH, "") == "0"


def rank(told: object) -> int:
    """The rank that the user states, also as text. Raises BadRequest."""
    found = plain_step(told)
    if found is None or not found.is_integer():
        raise BadRequest("rank as a whole number, or None", _shown(told))
    return int(found)


def told_rank() -> int:
    """The place of this process by its environment: above 0 also where only its place on its machine, or that of its
    machine, is."""
    for name in RANKS:
        if (found := _whole(name)) is not None:
            return found if found or name == "RANK" else max(_whole(name) or 0 for name in PLACES)
    return max(_whole(name) or 0 for name in PLACES)


def _whole(variable: str) -> int | None:
    told = os.environ.get(variable, "").strip()
    return int(told) if told.isdecimal() and len(told) < 10 else None


def level(option: str, name: object) -> int:
    """The severity that ``name`` is, 0 for None. Raises BadRequest."""
    known = {"warning": Severity.WARNING, "critical": Severity.CRITICAL}
    if name is None:
        return 0
    told = str(name).lower()
    if told not in known:
        raise BadRequest(f"{option} as a severity", _shown(name), tuple(known))
    return int(known[told])


def _shown(value: object) -> str:
    """``value`` as one short clean line; its type where it cannot be shown."""
    try:
        return plain(value, KEY)
    except Exception:
        return f"something of type {plain(type(value).__name__, KEY)}"
