"""A logged series as a curve: tidied, binned, smoothed, reduced for drawing, with bases and shapes to fit it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from rlclinic.model import Floats

MOST = 2000
"""Points up to which tests work on the raw series; longer ones are averaged into this many bins (statistics study: the
binned tests cost 7 + 78 ms at 20,000 points against 280 + 840 ms raw)."""

_FEWEST_HELD, _HELD = 8, 0.8
"""Repeats count as held values when there are at least 8 runs of equal values and 80 % of them are equally long (ours:
runs of a saturated or two-valued metric differ in length)."""

_SORTED = 800
"""Longest series that is sorted whole for its median; a longer one is only parted (ours, for speed)."""
_LONG = 32_768
"""Points from which on one basis is kept, not sixteen: with nine columns it has two megabytes, at a million points 72."""
_PHIS_KEPT = 12
"""AR(1) coefficients for which what a basis has worked out is kept (ours: the series of a run have about as many)."""
_WIDEST_COMPARED = 11
"""Widest running median found by comparing whole rows, at a fifth of the cost of sorting every window (ours)."""
_WIDEST_DIRECT = 31
"""Widest running median computed point by point; wider ones run over medians of 15 blocks (ours, for speed)."""


def tidy(steps: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    """(m,) steps strictly increasing and (m,) finite values: non-finite pairs dropped, the last row kept per step.

    A value that a logger repeats on every row until the next one is measured counts once, at its first step: otherwise
    990 rows with 99 measurements would pass for ten times the evidence, and every new value for a step.
    """
    x, y = paired(steps, values)
    keep = np.isfinite(x) & np.isfinite(y)
    if not keep.all():
        x, y = x[keep], y[keep]
    if len(x) > 1 and not (x[1:] > x[:-1]).all():
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
        last = np.append(x[1:] != x[:-1], True)
        x, y = x[last], y[last]
    begins = np.flatnonzero(np.append(True, y[1:] != y[:-1])) if len(y) else np.empty(0, dtype=np.intp)
    if _FEWEST_HELD <= len(begins) <= len(y) // 2 + 1:
        lengths = np.diff(begins)
        usual = median_of(lengths)
        if usual >= 2.0 and np.mean(lengths == usual) >= _HELD:
            x, y = x[begins], y[begins]
    return x, y


def unmasked(values: ArrayLike) -> Floats:
    """(n,) the values as floats; what a masked array hides is NaN, not whatever lies beneath."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), np.nan, np.ma.getdata(values))
    return np.asarray(values, dtype=np.float64).ravel()


def paired(steps: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    """Both as (n,) floats. Raises ValueError when their lengths differ."""
    x, y = unmasked(steps), unmasked(values)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} steps but {len(y)} values")
    return x, y


def standardise(values: Floats) -> tuple[Floats, float, float]:
    """(z, centre, scale) with ``values = centre + scale z``: median and median deviation, so that neither a spike of
    1e300 nor a unit of 1e-300 disturbs later arithmetic. ``scale`` is 0 for a constant series; |z| is cut at 1e9."""
    if not len(values):
        return values, 0.0, 0.0
    centre = median_of(values * 0.5) * 2.0
    with np.errstate(over="ignore"):
        z = values - centre
        np.clip(z, -1e308, 1e308, out=z)
        size = np.abs(z)
        scale = median_of(size * 0.5) * 2.0
        if scale == 0.0:
            moved = size[size > 0]
            scale = median_of(moved * 0.5) * 2.0 if len(moved) else 0.0
        if scale == 0.0:
            return np.zeros(len(values)), centre, 0.0
        return np.clip(z / scale, -1e9, 1e9), centre, scale


def bin_edges(n: int, bins: int) -> NDArray[np.intp]:
    """(bins + 1,) indices that cut ``n`` points into ``bins`` runs whose lengths differ by at most one."""
    return (np.arange(bins + 1) * n) // bins


def bin_means(values: Floats, edges: NDArray[np.intp]) -> Floats:
    """(bins,) mean of the values between neighbouring edges."""
    return np.asarray(np.add.reduceat(values, edges[:-1]) / np.diff(edges))


def median_of(values: Floats) -> float:
    """Median of (n,) values exactly as ``np.median`` has it, at a tenth of its cost for short series; NaN when there are
    none and when one is NaN."""
    n = len(values)
    half = n >> 1
    if not n:
        return math.nan
    if n <= _SORTED:
        ordered = np.sort(values)
        top, high, low = float(ordered[-1]), float(ordered[half]), float(ordered[half - 1])
    else:
        ordered = np.partition(values, half)
        top, high, low = float(ordered[half:].max()), float(ordered[half]), float(ordered[:half].max())
    return math.nan if top != top else high if n & 1 else (low + high) / 2


def ends_of(values: Floats) -> tuple[float, float]:
    """Median of the first and of the last tenth of (n,) values, at least three of them; n > 0."""
    tenth = max(3, len(values) // 10)
    return median_of(values[:tenth] * 0.5) * 2.0, median_of(values[-tenth:] * 0.5) * 2.0


def running_median(values: Floats, width: int) -> Floats:
    """(n,) median over ``width`` points around each (made odd, edge values repeated); O(n) even for wide windows, which
    are taken over block medians and interpolated. Values must be finite."""
    n = len(values)
    half = min(width, n) // 2
    if half < 1:
        return values.astype(np.float64, copy=True)
    width = 2 * half + 1
    if width > _WIDEST_DIRECT:
        size = width // 15
        blocks = -(-n // size)
        table = np.pad(values, (0, blocks * size - n), mode="edge").reshape(blocks, size)
        middle = running_median(np.median(table, axis=1), 15)
        return np.asarray(np.interp(np.arange(n), (np.arange(blocks) + 0.5) * size - 0.5, middle))
    padded = np.concatenate((np.full(half, values[0]), values, np.full(half, values[-1])))
    if width <= _WIDEST_COMPARED:
        return _middle_of([padded[i : i + n] for i in range(width)])
    windows = sliding_window_view(padded, width)
    out = np.empty(n)
    for start in range(0, n, 16384):
        part = np.array(windows[start : start + 16384])
        part.partition(half, axis=1)
        out[start : start + 16384] = part[:, half]
    return out


def _middle_of(rows: list[Floats]) -> Floats:
    """(n,) the median of an odd number of rows (n,), place by place: of as many as may still hold it the least and the
    greatest are dropped, and another row comes in."""
    held, rest = rows[: len(rows) // 2 + 2], rows[len(rows) // 2 + 2 :]
    while len(held) > 2:
        for i in range(1, len(held)):  # the least of all to the front, the greatest to the end
            held[0], held[i] = np.minimum(held[0], held[i]), np.maximum(held[0], held[i])
        for i in range(1, len(held) - 1):
            held[i], held[-1] = np.minimum(held[i], held[-1]), np.maximum(held[i], held[-1])
        held = held[1:-1] + rest[:1]
        rest = rest[1:]
    return held[0]


def smooth(values: ArrayLike, width: int) -> Floats:
    """(n,) curve for the eye: running median, then a moving mean of half the width. Non-finite values stay gaps (NaN)
    and do not disturb their neighbours. No test may run on the result.

    A ``width`` of 2.5 % of the points leaves an error of 0.37 sd on the curve of the statistics study, section 8 (a decay
    with a jump of 4 sd, AR(.5), spikes), its robust Whittaker smoother 0.45, so nothing heavier is needed.
    """
    y = np.asarray(values, dtype=np.float64).ravel()
    seen = np.isfinite(y)
    if not seen.any():
        return np.full(len(y), np.nan)
    z, centre, scale = standardise(y[seen])
    # Mirrored ends: a spike on the last point, repeated outwards, would be its own majority.
    half = min(width, len(z)) // 2
    z = running_median(np.pad(z, half, mode="reflect"), width)[half : half + len(z)]
    half = min(width, len(z)) // 4
    if half:
        total = np.concatenate(([0.0], np.cumsum(np.pad(z, half, mode="edge"))))
        z = (total[2 * half + 1 :] - total[: -2 * half - 1]) / (2 * half + 1)
    out = np.full(len(y), np.nan)
    with np.errstate(over="ignore"):
        out[seen] = centre + scale * z
    return out


def reduce(steps: ArrayLike, values: ArrayLike, most: int) -> tuple[Floats, Floats]:
    """At most ``most`` (but at least 8) of the (n,) points for drawing, so that the line looks as if all were drawn.

    Lowest and highest of small buckets, then largest triangles among those (MinMaxLTTB, Van der Donckt et al. 2023,
    arXiv 2305.00332; triangles: Steinarsson 2013). First and last point stay, and one NaN for each gap as wide as the
    mean distance between drawn points; shorter gaps close. ``steps`` must be finite and in order. A series of up to
    ``most`` points comes back as it is.
    """
    x, y = paired(steps, values)
    n, most = len(y), max(most, 8)
    if n <= most:
        return x.copy(), y.copy()
    seen = np.isfinite(y)
    gaps = _gaps(seen, -(-n // most))[: most // 2 - 2]
    found = np.flatnonzero(seen)
    found = found[_extremes(y[found], 2 * most)]
    z, _, _ = standardise(y[found])
    found = found[_largest_triangles(x[found], z, most - 2 - len(gaps))]
    keep = np.unique(np.concatenate([[0, n - 1], gaps, found]))
    return x[keep], np.where(seen[keep], y[keep], np.nan)


def _gaps(seen: NDArray[np.bool_], least: int) -> NDArray[np.intp]:
    """Middle of each run of at least ``least`` points without a value, widest first."""
    edges = np.flatnonzero(np.diff(seen, prepend=True, append=True))
    starts, ends = edges[::2], edges[1::2]
    order = np.argsort(starts - ends, kind="stable")
    wide = order[ends[order] - starts[order] >= least]
    return np.asarray((starts[wide] + ends[wide]) // 2)


def _extremes(values: Floats, buckets: int) -> NDArray[np.intp]:
    """Indices of both ends and of the lowest and the highest value of each of at most ``buckets`` buckets."""
    n = len(values)
    size = -(-n // buckets)
    if size <= 2:
        return np.arange(n)
    start = np.arange(0, n, size)
    # The repeated last value behind the end is never the first extreme of its bucket.
    table = np.pad(values, (0, len(start) * size - n), mode="edge").reshape(-1, size)
    return np.unique(np.concatenate([[0, n - 1], start + table.argmin(axis=1), start + table.argmax(axis=1)]))


def _largest_triangles(x: Floats, y: Floats, most: int) -> NDArray[np.intp]:
    """Indices of both ends and of one point of each of ``most`` - 2 buckets: the one that spans the largest triangle
    with the point kept before it and the mean of the next bucket."""
    n = len(y)
    if n <= most:
        return np.arange(n)
    edges = bin_edges(n - 2, most - 2)
    after = [np.append(bin_means(v[1:-1], edges)[1:], v[-1]).tolist() for v in (x, y)]
    edges, xs, ys = (edges + 1).tolist(), x.tolist(), y.tolist()
    kept = [0]
    for first, end, far, high in zip(edges[:-1], edges[1:], *after, strict=True):
        left, low = xs[kept[-1]], ys[kept[-1]]
        areas = [abs((left - far) * (ys[i] - low) - (left - xs[i]) * (high - low)) for i in range(first, end)]
        kept.append(first + areas.index(max(areas)))
    return np.array([*kept, n - 1])


@dataclass(frozen=True, eq=False)
class Basis:
    """An orthonormal spline basis on ``n`` equally spaced points with what AR(1) whitening needs of it, computed once.

    With ``P(phi)`` the (tridiagonal) precision of AR(1) noise with unit innovations, ``q.T @ P @ q`` is quadratic in
    phi; so no whitened copy of the basis is ever formed.
    """

    q: Floats
    """(n, k) orthonormal columns."""

    @cached_property
    def _products(self) -> tuple[Floats, Floats, Floats]:
        a, b = self.q[1:], self.q[:-1]
        cross = a.T @ b
        ends = np.outer(self.q[0], self.q[0]) + np.outer(self.q[-1], self.q[-1])
        one = np.eye(self.q.shape[1])
        return one, np.asarray(cross + cross.T), np.asarray(one - ends)

    @cached_property
    def _steps(self) -> Floats:
        """(n + 1, 2 k) what a whitened unit step at each row meets in the columns: the sum of the rows from it to the end,
        and it minus the row before (the first minus itself); zeros for the step behind the last row."""
        tail = np.cumsum(self.q[::-1], axis=0)[::-1]
        rise = np.diff(self.q, axis=0, prepend=self.q[:1])
        return np.vstack((np.hstack((tail, rise)), np.zeros(2 * self.q.shape[1])))

    def gram(self, phi: float) -> Floats:
        """(k, k) ``q.T @ P(phi) @ q``."""
        one, lagged, inner = self._products
        return np.asarray(one - phi * lagged + phi * phi * inner)

    @cached_property
    def _roots(self) -> dict[float, Floats]:
        return {}

    def root(self, phi: float) -> Floats:
        """(k, k) inverse of the lower Cholesky factor of ``gram(phi)``: it makes the whitened columns orthonormal."""
        if phi not in self._roots:
            self._roots[phi] = np.linalg.inv(np.linalg.cholesky(self.gram(phi)))
        return self._roots[phi]

    @cached_property
    def _stacks(self) -> dict[tuple[float, ...], Floats]:
        return {}

    def roots(self, phis: Floats) -> Floats:
        """(len(phis), k, k) ``root`` of each, kept for a set of ``phis`` that is asked for again."""
        if len(phis) == 1:
            return self.root(float(phis[0]))[None]
        key = tuple(phis.tolist())
        if key not in self._stacks:
            self._stacks[key] = np.linalg.inv(np.linalg.cholesky(np.array([self.gram(phi) for phi in key])))
        return self._stacks[key]

    def of_steps(self, phi: float) -> Floats:
        """(n + 1, k) whitened unit step at each position times the orthonormal whitened columns."""
        k = self.q.shape[1]
        if phi == 0.0:
            return self._steps[:, :k]
        rest, root = 1.0 - phi, self.root(phi).T
        taken = self._steps @ np.vstack((rest * rest * root, phi * root))
        taken[:-1] += rest * phi * (self.q[-1] @ root)
        return np.asarray(taken)

    @cached_property
    def _left(self) -> dict[float, Floats]:
        return {}

    def left_of_steps(self, phi: float) -> Floats:
        """(n,) what the columns leave of the square of the whitened unit step at each position, 0 where that is next to
        nothing; kept for a ``phi`` that another series asks for again. Read-only."""
        if phi not in self._left:
            if len(self._left) >= _PHIS_KEPT:
                self._left.clear()
            n = len(self.q)
            full = 1.0 + np.arange(n - 1, -1, -1) * (1.0 - phi) ** 2
            taken = self.of_steps(phi)[:n]
            left = full - np.einsum("ij,ij->i", taken, taken)
            self._left[phi] = np.where(left > 1e-6 * full, left, 0.0)
        return self._left[phi]

    def residual(self, values: Floats) -> Floats:
        """(n,) what ordinary least squares leaves of the values."""
        return np.asarray(values - self.q @ (self.q.T @ values))

    def lagged(self, residual: Floats, phi: float) -> Floats:
        """(k,) ``q.T @ P(phi) @ residual`` for a residual orthogonal to the basis."""
        q, r = self.q, residual
        mixed = r[:-1] @ q[1:] + r[1:] @ q[:-1]
        return np.asarray(-phi * mixed - phi * phi * (q[0] * r[0] + q[-1] * r[-1]))

    def whitened_rss(self, residual: Floats, phis: Floats) -> Floats:
        """(len(phis),) residual sum of squares of the AR(1)-whitened fit; ``residual`` orthogonal to the basis."""
        q, r = self.q, residual
        square, lag, ends = float(r @ r), float(r[1:] @ r[:-1]), float(r[0] ** 2 + r[-1] ** 2)
        mixed = q[1:].T @ r[:-1] + q[:-1].T @ r[1:]
        borders = q[0] * r[0] + q[-1] * r[-1]
        phi = phis[:, None]
        side = -phi * mixed - phi * phi * borders
        fitted = np.square(np.matmul(self.roots(phis), side[:, :, None])[:, :, 0]).sum(axis=1)
        return np.asarray(square - 2 * phis * lag + phis**2 * (square - ends) - fitted)


def basis(n: int, k: int) -> Basis:
    """The basis with ``k`` columns on ``n`` points: polynomials for k < 4, else cubic splines with even knots."""
    return _kept(n, k) if n <= _LONG else _last(n, k)


def _basis(n: int, k: int) -> Basis:
    t = np.linspace(0.0, 1.0, n)
    if k < 4:
        columns = (2.0 * t[:, None] - 1.0) ** np.arange(k)
    else:
        columns = np.empty((n, k))
        for start in range(0, n, _LONG):  # bounded memory for what each column needs on the way
            # Cardinal B-splines that overhang the ends span the same space as clamped ones and need no recursion.
            v = np.abs(t[start : start + _LONG, None] * (k - 3) - (np.arange(k) - 1))
            inner = (4.0 - 6.0 * v**2 + 3.0 * v**3) / 6.0
            outer = np.maximum(2.0 - v, 0.0) ** 3 / 6.0
            columns[start : start + _LONG] = np.where(v < 1.0, inner, outer)
    return Basis(np.ascontiguousarray(np.linalg.qr(columns)[0]))


_kept = lru_cache(maxsize=16)(_basis)  # one run asks for no more at a time
_last = lru_cache(maxsize=1)(_basis)


def whiten(values: Floats, phi: float) -> Floats:
    """(n,) AR(1) innovations of the values, the first one scaled to the same variance."""
    out = values.copy()
    out[1:] -= phi * values[:-1]
    out[0] *= max(1.0 - phi * phi, 1e-9) ** 0.5
    return out


@dataclass(frozen=True, eq=False)
class Shapes:
    """Ways to leave a level, each a kernel (F, n) started at every position, with the sums that whitening needs."""

    kernels: Floats
    spectra: NDArray[np.complex128]
    squares: Floats
    products: Floats
    """(F, n) sums of squares and of lag-one products of each kernel, cut to the points left after each position."""

    def against(self, v: Floats) -> Floats:
        """(F, n) inner product of ``v`` with each kernel started at each position."""
        size = 2 * (self.spectra.shape[1] - 1)
        return np.asarray(np.fft.irfft(np.conj(self.spectra) * np.fft.rfft(v, size), size, axis=1)[:, : len(v)])


@lru_cache(maxsize=4)
def shapes(n: int) -> Shapes:
    """A step, exponential approaches (time constants of 2, 6 and 20 % of n) and ramps (over 10, 30 and 100 %)."""
    u = np.arange(n) / n
    rows = [np.ones(n)]
    rows += [1.0 - np.exp(-u / constant) for constant in (0.02, 0.06, 0.2)]
    rows += [np.minimum(u / length, 1.0) for length in (0.1, 0.3, 1.0)]
    kernels = np.array(rows)
    products = np.zeros_like(kernels)
    products[:, 1:] = np.cumsum(kernels[:, 1:] * kernels[:, :-1], axis=1)
    return Shapes(
        kernels,
        np.fft.rfft(kernels, 1 << (2 * n - 1).bit_length(), axis=1),
        np.cumsum(kernels**2, axis=1)[:, ::-1],
        products[:, ::-1],
    )


def shape_gains(family: Shapes, z: Floats, phi: float) -> tuple[Floats, Floats, float]:
    """(gain (F, n), size (F, n), noise): fall of the whitened sum of squares by each upward shape at each position
    beside a constant level, its height, and that sum without any shape."""
    n = len(z)
    one = precision(np.ones(n), phi)
    level = float(one.sum())
    centred = z - float(one @ z) / level
    weighted = precision(centred, phi)
    last = family.kernels[:, ::-1]
    full = (1.0 + phi * phi) * family.squares - 2.0 * phi * family.products - phi * phi * last**2
    full[:, 0] -= phi * phi * family.kernels[:, 0] ** 2
    common = family.against(one)
    weight = full - common**2 / level
    usable = weight > 1e-6 * np.maximum(full, 1e-300)
    usable[:, max(1, n - 3) :] = False
    usable[0, :3] = False
    number = family.against(weighted)
    usable &= number > 0.0
    size = np.where(usable, number / np.where(usable, weight, 1.0), 0.0)
    return size * np.where(usable, number, 0.0), size, float(weighted @ centred)


def precision(v: Floats, phi: float) -> Floats:
    """(n,) the AR(1) precision matrix (unit innovations) applied to a vector."""
    out = (1.0 + phi * phi) * v
    out[0] -= phi * phi * v[0]
    out[-1] -= phi * phi * v[-1]
    out[1:] -= phi * v[:-1]
    out[:-1] -= phi * v[1:]
    return np.asarray(out)
