"""Columns of one log share their steps: what that spares, and that nothing else changes by it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlclinic.readers import read
from rlclinic.stats import curve
from rlclinic.steps import common, united


def test_united_is_every_step_once() -> None:
    a, b = np.array([1.0, 3.0, 5.0]), np.array([2.0, 3.0])
    assert united([]).size == 0
    assert united([a, a]) is a, "one axis, nothing to join"
    assert united([a, b, a]).tolist() == [1.0, 2.0, 3.0, 5.0]
    assert united([np.array([2.0, 1.0, 2.0])]).tolist() == [1.0, 2.0], "also where the only one is out of order"


def test_common_picks_the_shared_steps_out_of_both() -> None:
    a, b = np.array([1.0, 3.0, 5.0]), np.array([0.0, 3.0, 5.0, 6.0])
    for first, second, steps in ((a, b, [3.0, 5.0]), (a, a, [1.0, 3.0, 5.0]), (a, a.copy(), [1.0, 3.0, 5.0])):
        shared, i, j = common(first, second)
        assert shared.tolist() == first[i].tolist() == second[j].tolist() == steps


def test_columns_logged_together_hold_one_array_of_steps(tmp_path: Path) -> None:
    rows = [
        {"step": n, "reward": 0.01 * n, "loss": -0.1 * n} | ({"grad_norm": 0.1 * n} if n % 2 else {})
        for n in range(1, 41)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read([log])
    reward, grad = run["reward.mean"], run["grad.norm"]
    assert reward.steps is run["loss.total"].steps
    assert grad.steps.tolist() == reward.steps[::2].tolist(), "a metric of every other row keeps its own"


def test_a_long_basis_is_the_same_in_pieces_and_only_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = curve._basis(500, 7).q
    monkeypatch.setattr(curve, "_LONG", 96)
    for n in (500, 501, 500):
        pieced = curve.basis(n, 7).q
    assert pieced.tobytes() == whole.tobytes()
    assert curve._last.cache_info().currsize == 1
