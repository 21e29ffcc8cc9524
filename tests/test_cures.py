"""The tool that trains sick runs again: what it plans, what it reads, and the section of docs/accuracy.md that it fills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cures
import measure

REPORT: dict[str, Any] = {
    "findings": [
        {
            "check": "lr_too_high",
            "remedies": [
                {"id": "roll_back", "applies": True, "says": "go back", "changes": []},
                {
                    "id": "learning_rate",
                    "applies": True,
                    "says": "cut it",
                    "changes": [{"key": "learning_rate", "to": 5e-5}],
                },
                {"id": "kl_coefficient", "applies": False, "says": "hold it", "changes": []},
            ],
        }
    ]
}
TRIAL: dict[str, Any] = {"scenario": "fast", "remedy": "learning_rate", "title": "too fast", "seeds": [2, 3]}
ROW: dict[str, Any] = {
    "scenario": "fast", "title": "too fast", "illness": "lr_too_high", "remedy": "learning_rate", "change": "cut it",
    "sets": {"learning_rate": 5e-5}, "how": "", "seen": "", "was": False, "by_hand": False, "seed": 2,
    "verdict": "cured", "before": 0.1, "after": 0.9,
}  # fmt: skip


def test_a_change_is_taken_from_the_report_and_the_recipe_may_stand_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cures, "told", lambda *_: REPORT)
    sick = tmp_path / "sick"
    first, second = cures.planned(TRIAL, sick, tmp_path)
    assert (first.sets, second.sets) == ({"learning_rate": 5e-5, "seed": 2}, {"learning_rate": 5e-5, "seed": 3})
    assert first.after == tmp_path / "fast-learning_rate-2"
    (one,) = cures.planned(
        {**TRIAL, "remedy": "roll_back", "seeds": [2], "set": {"lr_jump_at": "none"}}, sick, tmp_path
    )
    assert one.sets == {"lr_jump_at": None, "seed": 2}
    assert one.row["by_hand"]
    (control,) = cures.planned({**TRIAL, "remedy": "none", "seeds": [2]}, sick, tmp_path)
    assert control.sets == {"seed": 2}
    with pytest.raises(ValueError, match="not prescribed to lr_too_high"):
        list(cures.planned({**TRIAL, "remedy": "kl_coefficient"}, sick, tmp_path))


def test_the_true_figure_is_the_last_third_and_a_repeated_step_counts_once(tmp_path: Path) -> None:
    rows = [(20, 0.1), (40, 0.2), (60, 0.9), (40, 0.3), (60, 0.5), (80, 0.6), (100, 0.7), (120, 0.8)]
    lines = [json.dumps({"step": step, cures.SCORE: value}) for step, value in rows]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, json.dumps({"step": 121, "loss": 0.0})]) + "\n")
    assert cures.score(tmp_path) == [0.7, 0.8]


def test_the_section_holds_what_was_measured() -> None:
    control = {**ROW, "remedy": "none", "verdict": "no_effect", "after": 0.2}
    text = cures.section([ROW, control, {**ROW, "was": True, "change": "hold it", "verdict": "worse"}])
    assert "| too fast | lr_too_high | cut it; `learning_rate=5e-05` | cured | 0.10 -> 0.90 | 0.20 | - |" in text
    assert "| too fast | lr_too_high | no effect | 0.10 -> 0.20 |" in text
    assert text.index("for what this showed") < text.index("| hold it;")
    assert cures.section([]) == ""


def test_the_page_holds_the_kept_figures() -> None:
    text = measure.PAGE.read_text(encoding="utf-8")
    assert cures.section(cures.kept()) in text


def test_without_a_laboratory_the_kept_figures_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = cures.KEPT.read_bytes()
    assert cures.main([str(tmp_path / "no.py"), str(tmp_path)]) == 0
    assert "the kept figures stay" in capsys.readouterr().err
    assert cures.KEPT.read_bytes() == before
