"""Every scenario by name: those of ``scenarios``, and the illnesses described in ``illnesses/NAME.toml``.

An illness is a run of 400 steps in the form of ``spec``, with what is true about it. Asked for another length, every
time in it is stretched, so that it keeps its place in the run.

says = "what the run has"
may = ["plateau"]              # checks whose firing is a plain consequence
[truth]
length_explosion = 160         # check = step of onset; 0 where no step applies
[run]
preset = "plain"
...
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rlclinic.errors import BadRequest, BadTable, UnknownName, nearest
from rlclinic.model import Knob, Scalar
from rlclinic.simulate.scenarios import Scenario, healthy
from rlclinic.simulate.scenarios import scenario as built
from rlclinic.simulate.scenarios import scenarios as all_built
from rlclinic.simulate.spec import run_from_spec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "illnesses"
WRITTEN_FOR = 400
"""Steps of the run that the times of a description refer to."""
COLUMNS = 100
"""Width of the list of scenarios."""
_TIMES = ("at", "over", "times", "every", "nan_from", "nan_at", "planned_steps")
_WHOLE = ("every", "planned_steps")


@cache
def _described() -> Mapping[str, Mapping[str, Any]]:
    found = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))}
    for name, table in found.items():
        if set(table) - {"may"} != {"says", "truth", "run"}:
            raise BadTable("says, truth, run and perhaps may", f"{name}.toml: {sorted(table)}")
    return found


def scenarios() -> dict[str, str]:
    """Every scenario with one line on it, healthy families first."""
    return {**all_built(), **{name: str(table["says"]) for name, table in _described().items()}}


def listing() -> str:
    """The scenarios as text, one a line."""
    told = scenarios()
    width = max(map(len, told))
    fine = healthy()
    groups = (("healthy", fine), ("sick", [name for name in told if name not in fine]))
    indent = " " * (width + 4)

    def line(name: str) -> str:
        return textwrap.fill(f"  {name:{width}}  {told[name]}", COLUMNS, subsequent_indent=indent)

    return "\n\n".join("\n".join((f"{title}:", *map(line, group))) for title, group in groups)


def scenario(name: str, *, steps: int = WRITTEN_FOR, seed: int = 0, phi: float = 0.5, log_every: int = 1) -> Scenario:
    """One simulated run of ``steps`` trainer steps; the same arguments give the same numbers.

    ``phi`` is the lag-one autocorrelation of the noise from step to step; with ``log_every`` above 1 a row is logged
    every so many steps. Raises UnknownName, and BadRequest for fewer than 20 steps or two rows.
    """
    if name in all_built():
        return built(name, steps=steps, seed=seed, phi=phi, log_every=log_every)
    table = _described().get(name)
    if table is None:
        every = scenarios()
        close = nearest(name, every)
        rest = sorted(set(every) - set(close))
        raise UnknownName("a scenario", repr(name), (*close, *rest), "rlclinic demo --list")
    if steps < 20 or not 1 <= log_every <= steps // 2 or not 0.0 <= phi < 1.0:
        found = f"{steps} steps, a row every {log_every}, phi {phi:g}"
        raise BadRequest("at least 20 steps and two rows, phi in [0, 1)", found)
    factor = steps / WRITTEN_FOR
    spec = {**_stretched(table["run"], factor), "name": name, "steps": steps, "log_every": log_every, "phi": phi}
    run = run_from_spec(spec, seed)
    truth = {check: max(1.0, float(at) * factor) if at else None for check, at in table["truth"].items()}
    known: dict[str, Scalar] = {"logging_every": log_every, "planned_steps": run.planned_steps}
    if "eval.score" not in run:
        known |= {"eval_strategy": "no", "eval_every": -1}
    told = {name: Knob(name, value, name, "config") for name, value in known.items() if value is not None}
    run = replace(run, knobs={**run.knobs, **told})
    settings = {knob: setting.value for knob, setting in run.knobs.items()}
    own = tuple(key for key, value in table["run"].items() if isinstance(value, dict) and "." in key)
    return Scenario(name, str(table["says"]), run, truth, tuple(table.get("may", ())), settings, own)


def _stretched(spec: Any, factor: float, key: str = "") -> Any:
    """A description with every time in it multiplied, and what is per step divided."""
    if isinstance(spec, dict):
        return {name: _stretched(value, factor, name) for name, value in spec.items()}
    if isinstance(spec, list):
        return [_stretched(value, factor, key) for value in spec]
    if not isinstance(spec, (int, float)) or isinstance(spec, bool):
        return spec
    if key in _WHOLE:
        return max(1, round(spec * factor))
    if key in _TIMES:
        return spec * factor
    return spec / factor if key == "trend" else spec
