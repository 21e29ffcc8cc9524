"""Labelled runs: what an expert found in each, what would be wrong to say of it, and what a diagnosis says.

A corpus is a folder of folders (``trl``, ``runs``, ``casebook``), each with one folder per case: the files of one run, as
they were found, and a ``label.json`` with ``must``, ``may`` and ``must_not``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlclinic.diagnose import diagnose
from rlclinic.errors import CannotRead
from rlclinic.model import Diagnosis, Severity
from rlclinic.readers import read

ROOT = Path(__file__).parents[1]
CORPUS = ROOT.parent / "shared" / "corpus"
FOLDERS = ("trl", "runs", "casebook")

SATISFIES: Mapping[str, tuple[str, ...]] = {
    "zero_variance_groups": (
        "zero_variance_all_right", "zero_variance_all_wrong", "zero_variance_discrete_middle"
    ),
    "reward_saturated": ("reward_saturated", "zero_variance_all_right"),
    "reward_hacking": ("reward_eval_divergence", "reward_hacking"),
    "truncation": ("truncation", "never_eos"),
    "never_terminates": ("never_eos", "truncation"),
    "kl_zero": ("kl_pinned_zero",),
    "gradient_nonfinite": ("nan_inf",),
    "gradient_vanishing": ("grad_vanishing",),
    "gradient_spikes": ("grad_spikes",),
    "gradient_zero_steps": ("zero_gradient_steps",),
    "reward_composition": ("dominating_reward_component", "dead_reward_component"),
    "length_growth": ("length_explosion",),
    "length_collapse": ("length_shrink", "empty_answers"),
    "constant_reward": (
        "verifier_broken", "zero_variance_all_right", "zero_variance_all_wrong", "zero_variance_discrete_middle"
    ),
    "no_learning": ("no_learning", "plateau"),
    "plateau": ("plateau", "no_learning"),
    "reward_regression": ("regression_forgetting", "sudden_collapse", "reward_decline"),
    "collapse_event": ("sudden_collapse",),
    "advantage_bias": ("advantage_not_centred",),
    "value_function_failure": ("critic_failure", "value_loss_explosion"),
    "lr_schedule_end": ("lr_schedule_exhausted",),
    "config_mismatch": ("config_change_without_effect", "kl_not_applied", "clip_bound_misconfigured"),
    "resumed_run": ("resume_discontinuity", "duplicated_or_missing_steps"),
    "missing_metrics": ("metric_not_logged", "eval_missing"),
    "entropy_rising": ("entropy_rise",),
}  # fmt: skip
"""The checks that answer a label where its name is broader than a check; every other label is the name of its check."""


@dataclass(frozen=True)
class Must:
    """One finding that a perfect tool reports."""

    label: str
    severity: Severity
    visible: bool


@dataclass(frozen=True)
class Labelled:
    """One case of a corpus."""

    folder: str
    name: str
    files: tuple[Path, ...]
    must: tuple[Must, ...]
    may: tuple[str, ...]
    must_not: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def wrong(self) -> frozenset[str]:
        """Checks whose warning contradicts the label."""
        allowed = {check for label in (*(m.label for m in self.must), *self.may) for check in satisfying(label)}
        return frozenset(check for label in self.must_not for check in satisfying(label)) - allowed


def satisfying(label: str) -> tuple[str, ...]:
    """The checks that answer a label."""
    return SATISFIES.get(label, (label,))


def cases(corpus: Path = CORPUS) -> Iterator[Labelled]:
    """Every case that holds a log, folder by folder."""
    for folder in FOLDERS:
        for path in sorted((corpus / folder).glob("*/label.json")):
            files = tuple(p for p in sorted(path.parent.rglob("*")) if p.is_file() and p.name != "label.json")
            if any(p.name not in ("args.txt", "config.yaml") for p in files):
                yield labelled(folder, path.parent.name, files, json.loads(path.read_text(encoding="utf-8")))


def labelled(folder: str, name: str, files: tuple[Path, ...], label: Mapping[str, Any]) -> Labelled:
    """A case from its label, whose lists may hold bare names."""

    def rows(key: str) -> list[Mapping[str, Any]]:
        return [row if isinstance(row, Mapping) else {"finding": row} for row in label.get(key) or ()]

    must = tuple(
        Must(r["finding"], Severity[str(r.get("severity", "warning")).upper()], r.get("visible_in_log") is not False)
        for r in rows("must")
    )
    may, must_not = (tuple(r["finding"] for r in rows(key)) for key in ("may", "must_not"))
    return Labelled(folder, name, files, must, may, must_not)


def told(case: Labelled) -> Diagnosis | str:
    """The diagnosis of a case, or the reason why there is none."""
    try:
        return diagnose(read(case.files))
    except CannotRead as problem:
        return f"cannot read: {problem.found}"


def met(must: Must, said: Mapping[str, Severity], notes: frozenset[str]) -> bool:
    """Whether a diagnosis answers one ``must``: at most one level below the label, or as the reassurance it asks for."""
    if must.label == "normal_behaviour":
        return max(said.values(), default=Severity.INFO) < Severity.WARNING
    if must.label.endswith("_expected") and must.label in notes:
        return True
    return any(said.get(check, 0) >= must.severity - 1 and check in said for check in satisfying(must.label))
