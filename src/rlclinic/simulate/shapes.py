"""One metric over time from a small description: a level that moves, autocorrelated noise, and the flaws logs have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from rlclinic.errors import BadTable, nearest
from rlclinic.model import Floats, Status

Seed: TypeAlias = int | Sequence[int]
Form: TypeAlias = Literal["smooth", "linear", "exponential"]
BLOCK = 128
"""Length of the pieces in which autoregressive noise is computed (ours; measured fastest between 64 and 256)."""


@dataclass(frozen=True)
class Move:
    """A change of level to ``to`` that begins at step ``at`` and takes ``over`` steps; ``over`` 0 is a jump."""

    to: float
    at: float = 0.0
    over: float = 0.0
    form: Form = "smooth"

    def progress(self, steps: Floats) -> Floats:
        """(n,) share of the move that is done at each step, 0..1."""
        if self.over <= 0:
            return np.asarray(steps >= self.at, dtype=np.float64)
        share = np.clip((steps - self.at) / self.over, 0.0, 1.0)
        if self.form == "linear":
            return np.asarray(share)
        if self.form == "exponential":
            return np.asarray(np.expm1(-5.0 * share) / math.expm1(-5.0))
        return np.asarray(share * share * (3.0 - 2.0 * share))


@dataclass(frozen=True)
class Spikes:
    """Single values that stand out: at each of ``times`` (moved to the next logged step), ``size`` is added."""

    times: tuple[float, ...]
    size: float


@dataclass(frozen=True)
class Shape:
    """How one metric behaves. Every length of time is in trainer steps, every height in the unit of the metric."""

    level: float = 0.0
    noise: float = 0.0
    """Standard deviation of the noise."""
    noise_share: float = 0.0
    """Standard deviation as a share of the level at that step; adds to ``noise``."""
    phi: float | None = None
    """Lag-one autocorrelation of the noise between consecutive trainer steps; None: that of the run."""
    moves: tuple[Move, ...] = ()
    """``falls``, ``rises`` and ``jumps`` of the description, in the order of their start."""
    trend: float = 0.0
    """Added per step."""
    spikes: Spikes | None = None
    values: tuple[float, ...] | None = None
    """The logged values themselves, one per logged step from the first; replaces every other height."""
    every: int | None = None
    """Logged every so many steps; None: as the run."""
    missing_every: int = 0
    """Every so-many-th row lacks the metric; 0: none."""
    nan_from: float | None = None
    """NaN from this step on."""
    nan_at: tuple[float, ...] = ()
    """NaN at single steps."""
    zero_share: float = 0.0
    """Share of rows, drawn at random, whose value is exactly 0."""
    low: float = -math.inf
    high: float = math.inf
    quantum: float = 0.0
    """Values are multiples of this, as means over a finite batch are; 0: not rounded."""
    key: str = ""
    status: Status = "measured"
    because: str = ""
    resolution: float = 0.0
    estimator: str = ""
    weight: float | None = None
    """Weight of a reward part; only for those."""


_MOVES = ("falls", "rises", "jumps")
_KEYS = tuple(f.name for f in fields(Shape) if f.name != "moves") + _MOVES
_WHOLE = ("every", "missing_every")


def read_shape(table: Mapping[str, Any], where: str) -> Shape:
    """The shape described by one table of a specification.

    ``where`` names the table in messages. Raises BadTable for an unknown key, a wrong type, an impossible number or a
    ``falls`` that rises.
    """
    _known(table, _KEYS, where)
    made: dict[str, Any] = {}
    for key, value in table.items():
        if key in _MOVES:
            continue
        if key in ("key", "because", "estimator", "status"):
            made[key] = _text(value, f"{where}.{key}", get_args(Status) if key == "status" else ())
        elif key in ("values", "nan_at"):
            made[key] = _numbers(value, f"{where}.{key}")
        elif key == "spikes":
            _known(value, ("times", "size"), f"{where}.spikes", needs=("times", "size"))
            made[key] = Spikes(
                _numbers(value["times"], f"{where}.spikes.times"), _number(value["size"], f"{where}.spikes.size")
            )
        else:
            made[key] = _number(value, f"{where}.{key}", whole=key in _WHOLE)
    for key, allowed in _RANGES.items():
        if made.get(key) is not None and not allowed[0] <= made[key] <= allowed[1]:
            raise BadTable(f"{where}.{key} between {allowed[0]:g} and {allowed[1]:g}", f"{made[key]:g}")
    return Shape(moves=_read_moves(table, made.get("level", 0.0), where), **made)


_RANGES = {
    "noise": (0.0, math.inf),
    "noise_share": (0.0, math.inf),
    "phi": (-0.99, 0.999),
    "zero_share": (0.0, 1.0),
    "quantum": (0.0, math.inf),
    "every": (1, math.inf),
    "missing_every": (0, math.inf),
    "resolution": (0.0, math.inf),
}


def _read_moves(table: Mapping[str, Any], level: float, where: str) -> tuple[Move, ...]:
    found: list[tuple[str, Move]] = []
    for kind in _MOVES:
        entries = table.get(kind, ())
        for entry in entries if isinstance(entries, (list, tuple)) else (entries,):
            name = f"{where}.{kind}"
            jump = kind == "jumps"
            _known(entry, ("to", "at") if jump else ("to", "at", "over", "form"), name, needs=("to",))
            made = {k: _number(v, f"{name}.{k}") for k, v in entry.items() if k != "form"}
            form = _text(entry.get("form", "smooth"), f"{name}.form", get_args(Form))
            if not jump and made.get("over", 0.0) <= 0:
                raise BadTable(f"{name}.over above 0 steps", "no length", hint="use jumps for a change within one step")
            found.append((kind, Move(form=cast(Form, form), **made)))
    found.sort(key=lambda pair: pair[1].at)
    for kind, move in found:
        if (kind == "falls" and move.to > level) or (kind == "rises" and move.to < level):
            raise BadTable(f"{where}.{kind} to move in its direction", f"{level:g} before and {move.to:g} after")
        level = move.to
    return tuple(move for _, move in found)


def _known(table: object, keys: Sequence[str], where: str, needs: Sequence[str] = ()) -> None:
    if not isinstance(table, Mapping):
        raise BadTable(f"a table at {where}", type(table).__name__, keys)
    for key in table:
        if key not in keys:
            raise BadTable(f"a known key in {where}", repr(key), (*nearest(str(key), keys), *keys))
    for key in needs:
        if key not in table:
            raise BadTable(f"{where}.{key}", "nothing", keys)


def _number(value: object, where: str, whole: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise BadTable(f"a number at {where}", repr(value)[:60])
    if not whole:
        return float(value)
    if value != int(value):
        raise BadTable(f"a whole number at {where}", repr(value)[:60])
    return int(value)


def _numbers(value: object, where: str) -> tuple[float, ...]:
    entries = value if isinstance(value, (list, tuple)) else (value,)
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in entries):
        return tuple(float(v) for v in entries)
    raise BadTable(f"numbers at {where}", repr(value)[:60])


def _text(value: object, where: str, choices: Sequence[str] = ()) -> str:
    if not isinstance(value, str) or (choices and value not in choices):
        raise BadTable(f"a text at {where}", repr(value)[:60], choices)
    return value


def logged_steps(steps: int, every: int = 1) -> Floats:
    """(n,) the steps of a run of ``steps`` at which a row is written: every, 2 every, ..."""
    return np.arange(every, steps + 1, every, dtype=np.float64)


def series(shape: Shape, steps: int, seed: Seed, *, log_every: int = 1, phi: float = 0.5) -> tuple[Floats, Floats]:
    """(steps, values) of one metric over a run of ``steps`` trainer steps; the same arguments give the same numbers.

    Values are those of the logged steps themselves, not means over the interval between them.
    """
    rng = np.random.default_rng(seed)
    at = logged_steps(steps, shape.every or log_every)
    if shape.values is not None:
        at = at[: len(shape.values)]
        values = np.array(shape.values[: len(at)], dtype=np.float64)
    else:
        values = _heights(shape, steps, at, rng, phi)
    if shape.zero_share:
        values[rng.random(len(at)) < shape.zero_share] = 0.0
    if shape.nan_from is not None:
        values[at >= shape.nan_from] = np.nan
    if shape.nan_at:
        values[np.isin(at, shape.nan_at)] = np.nan
    if shape.missing_every:
        keep = np.arange(1, len(at) + 1) % shape.missing_every != 0
        at, values = at[keep], values[keep]
    return at, values


def _heights(shape: Shape, steps: int, at: Floats, rng: np.random.Generator, phi: float) -> Floats:
    level = np.full(len(at), float(shape.level))
    before = float(shape.level)
    for move in shape.moves:
        moved = at >= move.at
        # A move starts from wherever the one before it had got to.
        if moved.any():
            before = float(level[int(np.argmax(moved))])
            if move.over <= 0:
                level[moved] = move.to
            else:
                level[moved] = before + (move.to - before) * move.progress(at[moved])
    values = level + shape.trend * at
    if shape.noise or shape.noise_share:
        rho = phi if shape.phi is None else shape.phi
        unit = autoregressive(rng, 1, steps, rho)[0][at.astype(np.int64) - 1]
        with np.errstate(invalid="ignore"):
            values = values + unit * (shape.noise + shape.noise_share * np.abs(np.where(np.isfinite(level), level, 0)))
    if shape.spikes is not None:
        hit = np.searchsorted(at, np.array(shape.spikes.times))
        values[hit[hit < len(at)]] += shape.spikes.size
    if shape.quantum:
        values = np.round(values / shape.quantum) * shape.quantum
    return np.asarray(np.clip(values, shape.low, shape.high), dtype=np.float64)


def autoregressive(rng: np.random.Generator, rows: int, n: int, phi: float) -> Floats:
    """(rows, n) independent AR(1) series x_t = phi x_(t-1) + e_t with unit variance from the first value on."""
    blocks = -(-n // BLOCK)
    shocks = rng.standard_normal((rows, blocks * BLOCK))
    shocks[:, 1:] *= math.sqrt(1.0 - phi * phi)
    lag = np.subtract.outer(np.arange(BLOCK), np.arange(BLOCK))
    weights: NDArray[np.float64] = np.where(lag >= 0, float(phi) ** np.maximum(lag, 0), 0.0)
    out = shocks.reshape(rows, blocks, BLOCK) @ weights.T
    carry = float(phi) ** np.arange(1, BLOCK + 1)
    for block in range(1, blocks):
        out[:, block] += out[:, block - 1, -1:] * carry
    return np.asarray(out.reshape(rows, -1)[:, :n])
