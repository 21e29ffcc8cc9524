"""Series of known making for the tests of the statistics: noise, curves, jumps, spikes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import signal

Array = NDArray[np.float64]


def axis(n: int) -> Array:
    """(n,) steps 0, 1, .., n - 1."""
    return np.arange(n, dtype=np.float64)


def noise(rng: np.random.Generator, n: int, phi: float) -> Array:
    """(n,) AR(1) noise with marginal standard deviation 1."""
    burn = int(10 / (1 - phi)) if phi else 0
    e = rng.standard_normal(n + burn) * math.sqrt(1 - phi * phi)
    return np.asarray(signal.lfilter([1.0], [1.0, -phi], e)[burn:])


def slow_noise(rng: np.random.Generator, n: int, phi: float = 0.95) -> Array:
    """(n,) half the variance AR(1) with ``phi``, half of it white."""
    return (noise(rng, n, phi) + rng.standard_normal(n)) / math.sqrt(2.0)


def decay(n: int, height: float = 30.0, rate: float = 2.6) -> Array:
    """(n,) exponential decay from ``height`` at ``rate`` per window."""
    return np.asarray(height * np.exp(-rate * axis(n) / (n - 1)))


def ramp(n: int, height: float = 30.0) -> Array:
    """(n,) straight line from 0 to ``height``."""
    return np.asarray(height * axis(n) / (n - 1))


def sigmoid(n: int, height: float = 30.0, steepness: float = 12.0, middle: float = 0.3) -> Array:
    """(n,) logistic rise to ``height`` around ``middle`` of the window."""
    return np.asarray(height / (1.0 + np.exp(-steepness * (axis(n) / (n - 1) - middle))))
