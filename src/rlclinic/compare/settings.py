"""Settings of several runs side by side, and which runs are repeats of one setting."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlclinic import names as vocabulary
from rlclinic.compare.rows import SettingRow
from rlclinic.model import Knob, Run

_NOT_TRAINING = {
    "logging_every", "log_completions", "rollout_dir", "save_every", "eval_every", "eval_strategy", "eval_answers",
    "answers_shown", "log_entropy", "log_post_kl", "calculate_log_probs", "resume", "gpus", "nodes",
}  # fmt: skip
"""Settings that change what is written down or where it runs, not what is learned."""


def settings_of(runs: Sequence[Run]) -> tuple[SettingRow, ...]:
    """Every known setting, those that differ first, each group in the order of the vocabulary."""
    order = {name: i for i, name in enumerate(vocabulary.knobs())}
    found = {name for run in runs for name in run.knobs}
    rows = [_setting(name, runs) for name in sorted(found, key=lambda name: (order.get(name, len(order)), name))]
    rank = {"different": 0, "other_meaning": 1, "one_sided": 2, "same": 3}
    return tuple(sorted(rows, key=lambda row: rank[row.outcome]))


def _setting(name: str, runs: Sequence[Run]) -> SettingRow:
    knobs = tuple(run.knobs.get(name) for run in runs)
    known = [knob for knob in knobs if knob is not None]
    title = vocabulary.knob(name).title if name in vocabulary.knobs() else name
    meanings = [_meaning(name, run) for run, knob in zip(runs, knobs, strict=True) if knob is not None]
    if len(set(meanings)) > 1 and len({run.framework.name for run in runs if run.framework is not None}) > 1:
        says = "; ".join(
            f"{knob.key} {meaning or 'does not say what it counts'}"
            for knob, meaning in zip(known, meanings, strict=True)
        )
        return SettingRow(name, title, knobs, "other_meaning", says)
    if not all(equal(known[0], knob) for knob in known[1:]):
        by_default = any(knob.origin == "default" for knob in known)
        return SettingRow(name, title, knobs, "different", "one is a default" if by_default else "")
    return SettingRow(name, title, knobs, "one_sided" if len(known) < len(knobs) else "same")


def differs(row: SettingRow, first: Run, second: Run, place: int) -> bool:
    """Whether both runs (the ``second`` is that at ``place``) tell a setting, mean the same by it and set it otherwise."""
    a, b = row.knobs[0], row.knobs[place]
    if a is None or b is None or equal(a, b):
        return False
    one, other = first.framework, second.framework
    alike = one is None or other is None or one.name == other.name
    return alike or _meaning(row.name, first) == _meaning(row.name, second)


def _meaning(name: str, run: Run) -> str:
    """What a framework's setting counts, where that is not the same in all of them."""
    if name not in vocabulary.knobs():
        return ""
    row = vocabulary.spell(name, run.framework)
    note = "" if row is None else row.note.partition(";")[0].partition(",")[0]
    return note if note.startswith("counts ") else ""


def equal(a: Knob, b: Knob) -> bool:
    x, y = a.value, b.value
    if isinstance(x, bool) or isinstance(y, bool) or not isinstance(x, (int, float)) or not isinstance(y, (int, float)):
        return x == y
    return math.isclose(float(x), float(y), rel_tol=1e-9)


def of_one_setting(runs: Sequence[Run]) -> tuple[int, ...]:
    """(runs,) number of the group of runs whose known settings are all the same; every run that tells none is alone."""
    groups: list[int] = []
    for i, run in enumerate(runs):
        alike = (j for j in range(i) if _same_recipe(runs[j], run))
        groups.append(next((groups[j] for j in alike), i))
    return tuple(groups)


def _same_recipe(a: Run, b: Run) -> bool:
    def framework(run: Run) -> tuple[str | None, str | None]:
        return (None, None) if run.framework is None else (run.framework.name, run.framework.version)

    def told(run: Run) -> set[str]:
        return {name for name, knob in run.knobs.items() if knob.origin != "default"} - _NOT_TRAINING

    same = told(a) == told(b) and all(equal(a.knobs[name], b.knobs[name]) for name in told(a))
    return bool(told(a)) and same and framework(a) == framework(b)
