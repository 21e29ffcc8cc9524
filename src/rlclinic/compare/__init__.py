"""Runs side by side: which settings, metrics and findings differ, by how much more than noise and seeds, and since when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rlclinic.compare.better import HELD_OUT, better, lead_rows
from rlclinic.compare.metrics import decide, metric_row, repeated_groups, spread_of, with_onset
from rlclinic.compare.rows import (
    AXES,
    Against,
    Better,
    By,
    Change,
    Comparison,
    FindingRow,
    MetricRow,
    Outcome,
    SettingRow,
    Word,
)
from rlclinic.compare.settings import differs, equal, of_one_setting, settings_of
from rlclinic.compare.sides import Side, common, identical
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest, UnknownName, nearest
from rlclinic.model import Diagnosis, Finding, Run, Severity
from rlclinic.stats import paired

__all__ = [
    "AXES",
    "Against",
    "Better",
    "By",
    "Change",
    "Comparison",
    "FindingRow",
    "MetricRow",
    "Outcome",
    "SettingRow",
    "Word",
    "compare",
    "failing",
]

_OF_BATCH = ("train_batch_size", "mini_batch_size", "per_device_batch_size", "grad_accumulation", "group_size",
             "answers_per_step", "steps_per_generation")  # fmt: skip
_RANGE = 3.0
"""Factor between the largest rewards of two runs from which they may not be given in one way (ours)."""
_VAGUE = "reward.std_unresolved"
_NO_MOVER = ("time.", "perf.", "loss.", "optim.", "kl.ref_coef", "entropy.coef", "entropy.threshold")
"""What follows from the machine, is set, or has no level of its own (a policy loss): it does not tell since when the
training itself went another way."""


def compare(runs: Sequence[Diagnosis | Run], *, by: By = "step", names: Sequence[str] | None = None) -> Comparison:
    """Compare every further run with the first.

    ``by`` is the common axis: trainer steps, tokens so far, or seconds of training so far. ``names`` are those that the
    runs are told by (default: A, B, C, ..). A Run is diagnosed first. Only the stretch that two runs both cover is
    compared, in bins that average what each logged there.

    "different" means: by more than the noise of both runs explains, and than two seeds of one recipe are allowed to differ
    by (``stats.paired``), at a false discovery rate of 5 % over the metrics of the pair, and large enough to matter. It
    speaks of these runs; that a setting did it needs repeats of both. Raises BadRequest for fewer than two runs, a run
    that lacks the axis, or names that do not fit; UnknownName for another axis.
    """
    if by not in AXES:
        raise UnknownName("an axis to compare by", repr(by), dict.fromkeys((*nearest(by, AXES), *AXES)), "--by step")
    if len(runs) < 2:
        raise BadRequest("at least two runs", str(len(runs)), hint="rlclinic compare A B")
    told = tuple(names) if names is not None else tuple(_letter(i) for i in range(len(runs)))
    if len(told) != len(runs) or len(set(told)) != len(told):
        raise BadRequest(f"{len(runs)} different names", ", ".join(told))
    looked = [one if isinstance(one, Diagnosis) else diagnose(one) for one in runs]
    with np.errstate(over="ignore", invalid="ignore"):  # as in a diagnosis: values of 1e308 overflow in sums
        return _compared(told, looked, by)


def _compared(told: tuple[str, ...], looked: Sequence[Diagnosis], by: By) -> Comparison:
    sides = [Side(name, one, by) for name, one in zip(told, looked, strict=True)]
    settings = settings_of([one.run for one in looked])
    groups = of_one_setting([one.run for one in looked])
    others = tuple(_against(sides[0], one, by, settings, i, sides, groups) for i, one in enumerate(sides[1:], 1))
    return Comparison(told, looked[0], by, settings, others)


def _letter(i: int) -> str:
    return chr(ord("A") + i) if i < 26 else f"run {i + 1}"


def _against(
    first: Side,
    second: Side,
    by: By,
    settings: Sequence[SettingRow],
    place: int,
    sides: Sequence[Side],
    groups: Sequence[int],
) -> Against:
    repeated = [one for one, group in zip(sides, groups, strict=True) if group in repeated_groups(groups)]
    span = common(first, second)
    warnings = _warnings(first, second, by, span, settings, place)
    findings = finding_rows(first, second)
    mine, theirs = set(first.columns), set(second.columns)
    vague = [] if span is None else _unresolved(first, second)
    apart = {column.metric for row in vague for column in row.columns}
    only = (
        tuple(m for m in first.columns if m not in theirs and m not in apart),
        tuple(m for m in second.columns if m not in mine and m not in apart),
    )
    if span is None:
        none = Better("unknown", None, "they share no stretch of the axis")
        return Against(second.name, second.diagnosis, None, warnings, (), only, findings, None, better=none)
    rows = [
        metric_row(metric, first, second, span, spread_of(metric, repeated, groups, sides, span, (first, second)))
        for metric in first.columns
        if metric in theirs
    ]
    decided = decide(rows)
    told = [with_onset(row, first, second, span) for row in decided]
    moved = [
        row for row in told if row.word == "different" and row.onset is not None and not row.name.startswith(_NO_MOVER)
    ]
    parted = min(moved, key=_order, default=None)
    looked = tuple(row for row in lead_rows(told, first, second) if row is not None)
    scale = _of_reward(first, second)
    which = replace(better(told, first, second, settings, place, bool(scale)), looked=looked)
    if any(row.word == "incomparable" for row in looked if row.name == "reward.mean"):  # which is told there
        warnings = tuple(said for said in warnings if said not in scale)
    leading = tuple(row.name for row in looked)
    alike = identical(first, second) if by == "step" else None
    return Against(
        second.name,
        second.diagnosis,
        span,
        warnings,
        tuple(sorted([*told, *vague], key=lambda row: _rank(row, leading))),
        only,
        findings,
        parted,
        alike,
        len(repeated),
        which,
    )


def _unresolved(first: Side, second: Side) -> list[MetricRow]:
    """A key that both logs hold, but whose meaning hangs on a version that one of them does not tell."""
    rows = []
    for one, other, turn in ((first, second, 1), (second, first, -1)):
        column = one.columns.get(_VAGUE)
        twin = None if column is None else next((c for c in other.columns.values() if c.key == column.key), None)
        if column is not None and twin is not None and twin.metric != _VAGUE:
            says = f"what {column.key} is depends on the version of the trainer, which {one.name} does not tell"
            rows.append(MetricRow(_VAGUE, (column, twin) if turn > 0 else (twin, column), "incomparable", says))
    return rows


def _order(row: MetricRow) -> tuple[tuple[float, float], float]:
    """That has surely parted first, of those at the same place the surest."""
    at = (math.inf, math.inf) if row.onset is None else (row.onset.high, row.onset.step)
    return at, row.q_value or 0.0


def _rank(row: MetricRow, leading: Sequence[str]) -> tuple[int, int, bool, float]:
    """Different ones first; of each word the held-out score and the reward first, then parts of it and the surest, what is
    set or timed last."""
    place = ("different", "within_seeds", "open", "same", "incomparable").index(row.word)
    held = 1 if row.name.startswith((HELD_OUT, "part.")) else 2
    first = leading.index(row.name) - 2 if row.name in leading else held
    sure = (row.q_value or 0.0) if place == 0 else 0.0
    return (place, first, row.name.startswith(_NO_MOVER), sure)


def _warnings(
    first: Side,
    second: Side,
    by: By,
    span: tuple[float, float] | None,
    settings: Sequence[SettingRow],
    place: int,
) -> tuple[str, ...]:
    a, b = first.run, second.run
    said: list[str] = []
    unit = {"step": "steps", "token": "tokens", "time": "seconds"}[by]
    if span is None:
        said.append(f"the runs share no stretch of {unit}, so no metric is compared")
    said += [
        f"{row.title} differ: the zero-variance share and the spread within groups depend on how many answers are compared"
        for row in settings
        if row.name == "group_size" and differs(row, first.run, second.run, place)
    ]
    said += _of_reward(first, second)
    frameworks = [run.framework for run in (a, b)]
    titles = [None if one is None else f"{one.title} {one.version or ''}".strip() for one in frameworks]
    one, other = frameworks
    # A version that a log does not tell is no other version.
    untold = one is not None and other is not None and one.name == other.name and not (one.version and other.version)
    if titles[0] != titles[1] and not untold:
        said.append(
            f"{first.name} was written by {titles[0] or 'an unknown trainer'}, {second.name} by"
            f" {titles[1] or 'an unknown trainer'}: a key of one name may be measured in another way"
        )
    if a.algorithm and b.algorithm and a.algorithm != b.algorithm:
        said.append(f"{first.name} is {a.algorithm}, {second.name} is {b.algorithm}")
    differ = [
        row
        for row in settings
        if row.name in _OF_BATCH and (x := row.knobs[0]) is not None and (y := row.knobs[place]) is not None
        and (row.outcome == "other_meaning" or not equal(x, y))
    ]  # fmt: skip
    if differ and by == "step":
        said.append(
            f"{', '.join(row.title for row in differ)} differ: a step is not the same amount of data; see --by token"
        )
    for side in (first, second):
        if side.diagnosis.run.began is not None:
            said.append(
                f"of {side.name} only the last attempt is compared, from step {side.diagnosis.run.began:.10g} on"
            )
        if side.run.thinned:
            said.append(f"{side.name}: {side.run.thinned}")
    return tuple(said)


def _of_reward(first: Side, second: Side) -> list[str]:
    """That the reward may be another one, where its values do not overlap or are of another size."""
    columns = [side.columns.get("reward.mean") for side in (first, second)]
    known = [column.finite.values for column in columns if column is not None and len(column.finite) >= paired.FEWEST]
    if len(known) < 2:
        return []
    (low, high), (floor, top) = ((float(v.min()), float(v.max())) for v in known)
    small, large = sorted((max(abs(low), abs(high)), max(abs(floor), abs(top))))
    if high >= floor and top >= low and large <= _RANGE * small:
        return []
    return [
        f"the reward lies between {low:.3g} and {high:.3g} in {first.name}, between {floor:.3g} and {top:.3g} in"
        f" {second.name}: where it is given in another way (range, parts, data), metrics of the reward do not compare"
    ]


def finding_rows(first: Side, second: Side) -> tuple[FindingRow, ...]:
    """Checks with a finding in either run: those new or worse first, then what is gone, then what stayed. What began after
    the end of the shorter run was not seen there, and is neither gone nor new."""
    sides = (first, second)
    looks = [{e.check: e for e in one.diagnosis.checks} for one in sides]
    found: list[Mapping[str, Finding]] = [
        {f.check: f for f in one.diagnosis.findings if f.severity is not None} for one in sides
    ]
    rows = []
    for check in dict.fromkeys((*found[0], *found[1])):
        before, after = found[0].get(check), found[1].get(check)
        blind = ""
        for side, other in ((0, after), (1, before)):
            look = looks[side].get(check)
            if other is not None and check not in found[side] and (look is None or look.outcome != "examined"):
                blind = (
                    "the check does not apply"
                    if look is not None and look.outcome == "not_applicable"
                    else "could not look"
                )
                blind += f": {look.says}" if look is not None and look.says else ""
            elif other is not None and check not in found[side] and _later(other, sides[1 - side], sides[side]):
                blind = f"{sides[side].name} ends before it began in {sides[1 - side].name}"
        rows.append(FindingRow(check, _change(before, after, bool(blind)), before, after, blind))
    rank = {"new": 0, "worse": 1, "unseen": 2, "gone": 3, "better": 4, "same": 5}
    return tuple(sorted(rows, key=lambda row: (rank[row.change], -severity_of(row.after or row.before))))


def _later(finding: Finding, own: Side, other: Side) -> bool:
    """Whether a finding of one run may have begun only after the other one had ended."""
    if finding.onset is None or own.span is None or other.span is None or own.span[1] <= other.span[1]:
        return False
    return own.at(finding.onset.high) > other.span[1]


def severity_of(finding: Finding | None) -> int:
    return 0 if finding is None or finding.severity is None else int(finding.severity)


def _change(before: Finding | None, after: Finding | None, blind: bool) -> Change:
    if blind:
        return "unseen"
    a, b = severity_of(before), severity_of(after)
    if a and b:
        return "same" if a == b else "worse" if b > a else "better"
    return "new" if b else "gone"


def failing(comparison: Comparison, level: Severity) -> tuple[bool, bool]:
    """(a finding of this severity or worse is new or worse in a later run, that could not be judged).

    Checks in preview do not count. A check that could look in the later run only is new: it is there now. It could not be
    judged when the later run has no verdict, or when a finding of the reference could not be looked for in it.
    """
    worse = blind = False
    for one in comparison.others:
        for row in one.findings:
            after = row.after
            there = after is not None and after.status != "preview" and severity_of(after) >= level
            worse |= there and (row.change in ("new", "worse") or (row.change == "unseen" and row.before is None))
            lost = (
                row.change == "unseen" and after is None and row.before is not None and row.before.status != "preview"
            )
            blind |= lost and severity_of(row.before) >= level
        blind |= one.diagnosis.verdict.severity == "undecided" or any(
            c.outcome == "failed" for c in one.diagnosis.checks
        )
    return worse, blind
