"""Measure false alarms of the statistics on the noise of real logs: python tools/real_noise.py CORPUS > table.md

CORPUS holds ``runs/<case>/`` and ``trl/<case>/``, each with the files of one run and a ``label.json`` whose ``must``
lists what an expert found wrong. Three nulls, none chosen by a test that is examined:

- *quiet*: raw windows whose flanks (half a window on each side) have the same median within half a noise deviation. The
  values inside never count. Real movement that comes back inside the window remains, so the rate is an upper bound.
- *shuffled*: blocks of two autocorrelation times drawn with replacement from the residuals around a running median of
  25 points (it follows steps, so that these leave no residuals; the first 15 % of a run are left out), put back on the
  metric's median, lattice and range. Marginals and short-range dependence are real; noise slower than that is gone, so
  the rate is a lower bound.
- *rescaled*: the same blocks in units of the local noise, put where the noise is as large as at that place of the log:
  noise that grows or shrinks over the run.

Beside each stands AR(1) noise of the same length and lag-one correlation. Intervals are Wilson's at 95 % for the
effective number of series: the count over the design effect of the runs they come from.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlclinic.errors import CannotRead
from rlclinic.readers import read
from rlclinic.stats.curve import basis, running_median, tidy
from rlclinic.stats.evidence import autocorrelation_time, hampel, lag_one, spread
from rlclinic.stats.shift import lasting_change, step_scan
from rlclinic.stats.trend import acceleration, trend

Array = NDArray[np.float64]

NOT_NOISE = ("progress.", "optim.", "run.", "tokens.total", "perf.memory", "eval.")
"""Clocks, schedules, single figures and short series."""
TESTS = ("trend p", "trend verdict", "acceleration", "step", "lasting p")
SIZES = (60, 100, 200, 400)
FEWEST, WARMUP = 60, 0.15
NULLS = ("quiet", "shuffled", "rescaled")
WIDTH = 25
"""Points of the running median that residuals are taken from."""


class Series(NamedTuple):
    """One metric of one run, tidied: (n,) steps and values."""

    run: str
    healthy: bool
    metric: str
    steps: Array
    values: Array
    share: bool

    @property
    def family(self) -> str:
        return self.metric.split(".")[0]


class Sample(NamedTuple):
    """What the tests said of one null series: a bool per entry of ``TESTS``, on real noise and on its AR(1) twin."""

    null: str
    n: int
    series: Series
    phi: float
    real: tuple[bool, ...]
    simulated: tuple[bool, ...]


def corpus(folder: Path) -> Iterator[Series]:
    """Every metric with at least ``FEWEST`` points and two values; near copies within a run are left out."""
    for label in sorted(folder.glob("runs/*/label.json")) + sorted(folder.glob("trl/*/label.json")):
        files = [p for p in sorted(label.parent.rglob("*")) if p.is_file()]
        try:
            run = read([p for p in files if p.name not in ("label.json", "args.txt", "config.yaml")])
        except CannotRead:
            continue
        healthy = not json.loads(label.read_text(encoding="utf-8"))["must"]
        columns = {m: c for m, c in run.columns.items() if not m.startswith(NOT_NOISE) and not m.endswith("_coef")}
        taken: list[Series] = []
        for metric, column in columns.items():
            x, y = tidy(column.steps, column.values)
            if len(y) < FEWEST or not spread(y) > 0.0:
                continue
            share = metric.endswith("frac") and bool(y.min() >= 0.0 and y.max() <= 1.0)
            found = Series(label.parent.name, healthy, metric, x, y, share)
            if not any(len(t.values) == len(y) and abs(_correlation(t.values, y)) > 0.98 for t in taken):
                taken.append(found)
        yield from taken


def nulls(
    series: Series, rng: np.random.Generator, draws: int, sizes: tuple[int, ...] = SIZES
) -> Iterator[tuple[str, Array, Array]]:
    """(name, steps, values) of every null series that one metric gives."""
    yield from (("quiet", x, y) for x, y in quiet(series))
    for n in sizes:
        for _ in range(draws):
            yield "shuffled", _axis(series, n), shuffled(series, rng, n)
    for _ in range(draws):
        yield "rescaled", series.steps, rescaled(series, rng)


def quiet(series: Series) -> Iterator[tuple[Array, Array]]:
    """Windows of the raw series, a flank of half a window apart, whose flanks agree."""
    y = series.values
    noise = spread(_residuals(y)[0])
    for n in SIZES:
        flank = n // 2
        for a in range(flank, len(y) - n - flank + 1, n):
            before, after = y[a - flank : a], y[a + n : a + n + flank]
            inside = y[a : a + n]
            if abs(float(np.median(after) - np.median(before))) <= 0.5 * noise and np.ptp(inside) > 0.0:
                yield series.steps[a : a + n], inside


def shuffled(series: Series, rng: np.random.Generator, n: int) -> Array:
    """(n,) blocks of residuals on the metric's median, lattice and range."""
    residuals, block = _residuals(series.values)
    return _on_lattice(series.values, float(np.median(series.values)) + _blocks(residuals, block, rng, n))


def rescaled(series: Series, rng: np.random.Generator) -> Array:
    """Blocks of residuals in units of the local noise, multiplied by the noise of the place where they land."""
    residuals, block = _residuals(series.values)
    n, usual = len(series.values), float(np.mean(np.abs(residuals)))
    if usual == 0.0:
        return np.full(n, np.median(series.values))
    width = max(WIDTH, len(residuals) // 4)
    local = np.maximum(running_median(np.abs(residuals), width), 0.25 * usual)
    there = np.interp(np.linspace(0.0, 1.0, n), np.linspace(0.0, 1.0, len(local)), local)
    return float(np.median(series.values)) + there * _blocks(residuals / local, block, rng, n)


def sample(
    folder: Path,
    draws: int = 4,
    *,
    sizes: tuple[int, ...] = SIZES,
    twins: bool = True,
    keep: Callable[[Series], bool] = lambda _: True,
    seed: int = 1,
) -> list[Sample]:
    """All null series of the corpus, each examined beside its AR(1) twin (or, without ``twins``, beside nothing)."""
    rng = np.random.default_rng(seed)
    out = []
    for series in filter(keep, corpus(folder)):
        for name, x, y in nulls(series, rng, draws, sizes):
            if np.ptp(y) > 0.0:
                phi = lag_one(basis(len(y), 2).residual(hampel(y)), 2, lowest=0.0, highest=0.98)
                twin = _ar1(rng, len(y), phi) + 10.0 * (not series.share)
                beside = alarms(x, twin, series.share) if twins else ()
                out.append(Sample(name, len(y), series, phi, alarms(x, y, series.share), beside))
    return out


def alarms(x: Array, y: Array, share: bool) -> tuple[bool, ...]:
    """One bool per entry of ``TESTS``."""
    drift = trend(x, y, share=share)
    return (
        drift.p_value < 0.01,
        drift.verdict in ("rising", "falling"),
        acceleration(x, y).p_value < 0.01,
        step_scan(x, y) is not None,
        lasting_change(x, y).p_value < 0.01,
    )


def interval(samples: Iterable[Sample], test: int) -> tuple[float, float, float, float]:
    """(rate, low, high, effective number) of one test on real noise, clustered by run."""
    runs: dict[str, list[bool]] = {}
    for s in samples:
        runs.setdefault(s.series.run, []).append(s.real[test])
    count = sum(map(len, runs.values()))
    rate = sum(map(sum, runs.values())) / count
    effective = float(count)
    if 0.0 < rate < 1.0 and len(runs) > 1:
        off = sum((sum(hits) - rate * len(hits)) ** 2 for hits in runs.values()) * len(runs) / (len(runs) - 1)
        effective = count / max(1.0, off / (count * rate * (1.0 - rate)))
    z2 = 1.96**2
    centre = (rate + z2 / (2 * effective)) / (1 + z2 / effective)
    half = math.sqrt(rate * (1 - rate) * z2 / effective + z2 * z2 / (4 * effective**2)) / (1 + z2 / effective)
    return rate, max(0.0, centre - half), min(1.0, centre + half), effective


def table(samples: list[Sample], by: Callable[[Sample], str], title: str) -> str:
    """Markdown: a row per null and group; real rate (interval) / rate of the AR(1) twins, in percent."""
    head = f"| null | {title} | series | runs | phi | " + " | ".join(TESTS) + " |"
    lines = [head, "|---" * (5 + len(TESTS)) + "|"]
    for null in NULLS:
        groups: dict[str, list[Sample]] = {}
        for s in samples:
            if s.null == null:
                groups.setdefault(by(s), []).append(s)
        for name in sorted(groups, key=lambda g: (len(g), g)):
            group = groups[name]
            cells = [null, name, str(len(group)), str(len({s.series.run for s in group}))]
            cells.append(f"{np.median([s.phi for s in group]):.2f}")
            for i in range(len(TESTS)):
                rate, low, high, effective = interval(group, i)
                twin = float(np.mean([s.simulated[i] for s in group]))
                cells.append(f"{rate:.1%} ({low:.1%} to {high:.1%}, {effective:.0f}) / {twin:.1%}".replace("%", ""))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _axis(series: Series, n: int) -> Array:
    x = series.steps
    if n <= len(x):
        return x[:n]
    return np.asarray(x[0] + np.arange(n) * np.median(np.diff(x)))


def _residuals(y: Array) -> tuple[Array, int]:
    """(m,) residuals around the running median after the warm-up, spikes included, and the length of a block."""
    residuals = (y - running_median(y, WIDTH))[int(WARMUP * len(y)) :]
    block = math.ceil(2.0 * autocorrelation_time(residuals))
    return residuals, int(np.clip(block, 3, max(3, len(residuals) // 8)))


def _blocks(values: Array, block: int, rng: np.random.Generator, n: int) -> Array:
    """(n,) circular blocks drawn with replacement."""
    starts = rng.integers(0, len(values), -(-n // block))
    return np.take(values, (starts[:, None] + np.arange(block)).ravel()[:n], mode="wrap")


def _on_lattice(values: Array, moved: Array) -> Array:
    """The moved values within the range of the logged ones and, where those lie on a lattice, on it."""
    distinct = np.unique(values)
    moved = np.clip(moved, distinct[0], distinct[-1])
    if len(distinct) <= max(2, len(values) // 2):
        after = np.clip(np.searchsorted(distinct, moved), 1, len(distinct) - 1)
        lower, upper = distinct[after - 1], distinct[after]
        moved = np.where(moved - lower < upper - moved, lower, upper)
    return np.asarray(moved)


def _ar1(rng: np.random.Generator, n: int, phi: float) -> Array:
    y = rng.standard_normal(n)
    for i in range(1, n):
        y[i] = phi * y[i - 1] + math.sqrt(1.0 - phi * phi) * y[i]
    return y


def _correlation(a: Array, b: Array) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size > 0.0 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--draws", type=int, default=4, help="shuffled and rescaled series per metric and length")
    parser.add_argument("--all", action="store_true", help="noise of the runs with findings too (no quiet windows)")
    given = parser.parse_args()
    samples = sample(given.corpus, given.draws, keep=lambda s: s.healthy or given.all)
    samples = [s for s in samples if s.series.healthy or s.null != "quiet"]
    print("Percent of series with an alarm: real noise (95 % interval, effective number) / AR(1) twins.\n")
    print(table(samples, lambda s: "all", "all"), "\n")
    print(table(samples, lambda s: str(s.n) if s.null != "rescaled" else "own", "points"), "\n")
    print(table(samples, lambda s: s.series.family, "family"))


if __name__ == "__main__":
    main()
