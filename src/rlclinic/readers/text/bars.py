"""Steps of rows that state none, from the progress bars printed between them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from rlclinic.model import Floats
from rlclinic.readers.axis import beside, evaluated
from rlclinic.readers.rows import Inferred, Rows

_BAR = r"(\d{1,3})%\|[^|\n]{0,400}\|\s{0,4}(\d{1,9})/(\d{1,9})\s?\["
PLAIN_BAR = re.compile(
    r"\s{0,8}(?:[A-Za-z][\w ]{0,60}:)?\s{0,4}\d{1,3}%\|[^|={}\n]{0,400}\|\s{0,4}\d{1,9}/\d{1,9}\s?\[[^\]=\n]{0,80}\]?\s*"
)
"""A piece of text that is one progress bar and holds no setting, no metric and no error."""
_TRAINING_BAR = (
    r"(?i)(?:train\w*|progress|training progress|training batches processed|episode|epoch|steps?|iter\w*)?"
    r"[\s:\d/\[\]]*"
)


class Bars:
    """Progress bars that count training steps, kept as their counts between rows (memory: one entry a row)."""

    def __init__(self) -> None:
        self._bars: dict[int, dict[int, list[int]]] = {}
        self._held: dict[int, list[int]] = {}
        self._bar = (0, 0)

    def take(self, text: str, row: int) -> None:
        """Note the bars of a piece of text that follows ``row`` rows."""
        at = 0
        for bar in re.finditer(_BAR, text):
            described = text[at : bar.start()].rpartition("]")[2].strip() if at else text[: bar.start()].strip()
            at = bar.end()
            if re.fullmatch(_TRAINING_BAR, described[-60:]):
                done, total = int(bar[2]), int(bar[3])
                gaps = self._bars.setdefault(total, {}) if len(self._bars) < 1000 else {}
                seen = gaps.setdefault(row, [done, done])
                seen[1] = done
                held = self._held.setdefault(total, [])
                if (done, total) == self._bar and done and (not held or held[-1] != done):
                    held.append(done)
                self._bar = (done, total)

    @property
    def total(self) -> int | None:
        """The planned steps: the total of the training bar, of the last run where several follow each other."""
        return self._chosen()[2]

    def steps(self, rows: Rows, spacing: float | None) -> Inferred:
        """The steps of rows that state none, and the restarts; only restarts where the bars settle no step."""
        gaps, held, _ = self._chosen()
        return _inferred(rows, gaps, held, spacing)

    def _chosen(self) -> tuple[dict[int, list[int]], list[int], int | None]:
        """Bar counts between rows, counts at which a bar was drawn twice (where a line was written), and the total.

        Bars of evaluation run inside the training bar, so of bars that overlap only the one beside most rows counts.
        """
        chosen: list[tuple[int, int, int]] = []
        for total in sorted(self._bars, key=lambda total: (-len(self._bars[total]), -total)):
            span = (min(self._bars[total]), max(self._bars[total]), total)
            if all(span[0] >= one[1] or span[1] <= one[0] for one in chosen) and (total > 1 or not chosen):
                chosen.append(span)
        gaps: dict[int, list[int]] = {}
        held: list[int] = []
        for _, _, total in sorted(chosen):
            for row, seen in self._bars[total].items():
                gaps[row] = [gaps[row][0], seen[1]] if row in gaps else list(seen)
            held += self._held[total]
        return gaps, held, max(chosen)[2] if chosen else None


def _inferred(rows: Rows, gaps: Mapping[int, list[int]], held: list[int], spacing: float | None) -> Inferred:
    """Steps and restarts of rows that state no step, from the progress bars printed between them and from the epoch.

    ``gaps`` maps a number of rows already read to the first and last bar count seen there. A bar before a row bounds
    its step from below and a bar after it from above; a step is taken only where one regular interval fits all bounds
    and the epoch. ``held`` are the counts at which the bar was drawn twice, for rows that were written apart from it.
    """
    count = rows.rows
    series = rows.merged()
    epoch = np.full(count, np.nan)
    if (logged := series.get("epoch")) is not None:
        epoch[logged.rows] = logged.values
    aside = rows.others
    aside[evaluated(series, count)] = True
    trained = np.flatnonzero(~aside)
    low, high = _bounds(gaps, count)
    seams: dict[int, str] = {}
    starts = [0]
    for at in range(1, len(trained)):
        now, before = trained[at], trained[at - 1]
        if epoch[now] < epoch[before]:
            seams[int(now)] = f"the epoch went back from {epoch[before]:g} to {epoch[now]:g}"
        elif low[now] < low[before]:
            seams[int(now)] = f"the progress bar went back to {low[now]:g}"
        else:
            continue
        starts.append(at)
    if not gaps or not len(trained):
        return Inferred(seams=seams)
    steps = np.full(count, np.nan)
    source = "progress bar"
    if len(held) == len(trained) > 1 and len(starts) == 1 and bool((np.asarray(held) <= high[trained]).all()):
        steps[trained] = held
    else:
        shift = 0.0
        for start, stop in zip(starts, [*starts[1:], len(trained)], strict=True):
            part = trained[start:stop]
            fitted = _regular(low[part], high[part], spacing)
            if fitted is None:
                fitted = _drawn(low[part], high[part])
            if fitted is None or not _agrees(fitted, epoch[part]):
                return Inferred(seams=seams)
            if start and fitted[0] <= steps[trained[0]]:
                shift, source = float(np.nanmax(steps)), "progress bar, counted on after each new start"
            steps[part] = fitted + shift
    for row in np.flatnonzero(aside):
        steps[row] = beside(int(row), trained, epoch, steps)
    return Inferred(steps, source, seams)


def _drawn(low: Floats, high: Floats) -> Floats | None:
    """Steps at irregular intervals, from the bar that is drawn again after each line; None where that is not certain.

    Certain means: most rows stand between two bars of one count, and the counts after the rows increase.
    """
    steps = np.where(np.isfinite(high), high, low)
    certain = 2 * np.count_nonzero(low == high) > len(low) and bool((np.diff(steps) > 0).all())
    return steps if certain else None


def _agrees(steps: Floats, epoch: Floats) -> bool:
    """True unless the epochs contradict the steps: they must grow in proportion, within rounding to two decimals."""
    known = np.isfinite(epoch) & (epoch > 0)
    if known.sum() < 3 or not epoch[known][-1] > epoch[known][0]:
        return True
    steps, epoch = steps[known], epoch[known]
    per_epoch = float(np.median(steps / epoch))
    return bool((np.abs(steps - epoch * per_epoch) <= 1 + 0.01 * per_epoch + 0.01 * steps).all())


def _bounds(gaps: Mapping[int, list[int]], count: int) -> tuple[Floats, Floats]:
    """For each row the last bar count before it and the first one after it (infinite without one)."""
    low, high = np.zeros(count), np.full(count, np.inf)
    seen = 0.0
    for row in range(count):
        seen = gaps[row][1] if row in gaps else seen
        low[row] = seen
    after = np.inf
    for row in range(count - 1, -1, -1):
        after = gaps[row + 1][0] if row + 1 in gaps else after
        high[row] = after if after >= low[row] else np.inf
    return low, high


def _regular(low: Floats, high: Floats, spacing: float | None) -> Floats | None:
    """The earliest steps at one regular interval that lie within the bounds; None when no interval fits."""
    order = np.arange(len(low), dtype=np.float64)
    jumps = np.diff(low)
    jumps = jumps[jumps > 0]
    usual = float(np.median(jumps)) if len(jumps) else 1.0
    for interval in dict.fromkeys([spacing or 1.0, 1.0, usual, 2.0, 5.0, 10.0, 20.0, 25.0, 50.0, 100.0]):
        first = max(1.0, float(np.ceil(low / interval - order).max(initial=1.0)))
        if first <= float(np.floor(high / interval - order).min(initial=np.inf)):
            return (order + first) * interval
    return None
