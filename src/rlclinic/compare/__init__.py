"""Runs side by side: which settings, metrics and findings differ, by how much more than noise and seeds, and since when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rlclinic.compare.metrics import decide, metric_row, repeated_groups, spread_of, with_onset
from rlclinic.compare.rows import (
    AXES,
    Against,
    By,
    Change,
    Comparison,
    FindingRow,
    MetricRow,
    Outcome,
    SettingRow,
    Word,
)
from rlclinic.compare.settings import equal, of_one_setting, settings_of
from rlclinic.compare.sides import Side, common, identical
from rlclinic.diagnose import diagnose
from rlclinic.errors import BadRequest, UnknownName, nearest
from rlclinic.model import Diagnosis, Finding, Run, Severity

__all__ = [
    "AXES",
    "Against",
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
_NO_MOVER = ("time.", "perf.", "optim.", "kl.ref_coef", "entropy.coef", "entropy.threshold")
"""What follows from the machine or is set: it does not tell since when the training itself went another way."""


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
    findings = finding_rows(first.diagnosis, second.diagnosis)
    mine, theirs = set(first.columns), set(second.columns)
    only = (tuple(m for m in first.columns if m not in theirs), tuple(m for m in second.columns if m not in mine))
    if span is None:
        return Against(second.name, second.diagnosis, None, warnings, (), only, findings, None)
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
    alike = identical(first, second) if by == "step" else None
    return Against(
        second.name,
        second.diagnosis,
        span,
        warnings,
        tuple(sorted(told, key=_rank)),
        only,
        findings,
        parted,
        alike,
        len(repeated),
    )


def _order(row: MetricRow) -> tuple[tuple[float, float], float]:
    """Earliest first, of those at the same place the surest."""
    at = (math.inf, math.inf) if row.onset is None else (row.onset.step, row.onset.low)
    return at, row.q_value or 0.0


def _rank(row: MetricRow) -> tuple[int, bool, tuple[float, float], float]:
    """Different ones first, the earliest mover before the others, what is set or timed last; of each other word in the order
    of the log."""
    place = ("different", "within_seeds", "open", "same", "incomparable").index(row.word)
    return (place, row.name.startswith(_NO_MOVER), *_order(row)) if place == 0 else (place, False, (0.0, 0.0), 0.0)


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
    frameworks = [run.framework for run in (a, b)]
    titles = [None if one is None else f"{one.title} {one.version or ''}".strip() for one in frameworks]
    if titles[0] != titles[1]:
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
    for one in (first, second):
        if one.diagnosis.run.began is not None:
            said.append(f"of {one.name} only the last attempt is compared, from step {one.diagnosis.run.began:.10g} on")
        if one.run.thinned:
            said.append(f"{one.name}: {one.run.thinned}")
    return tuple(said)


def finding_rows(first: Diagnosis, second: Diagnosis) -> tuple[FindingRow, ...]:
    """Checks with a finding in either run: those new or worse first, then what is gone, then what stayed."""
    looks = [{e.check: e for e in one.checks} for one in (first, second)]
    found: list[Mapping[str, Finding]] = [
        {f.check: f for f in one.findings if f.severity is not None} for one in (first, second)
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
        rows.append(FindingRow(check, _change(before, after, bool(blind)), before, after, blind))
    rank = {"new": 0, "worse": 1, "unseen": 2, "gone": 3, "better": 4, "same": 5}
    return tuple(sorted(rows, key=lambda row: (rank[row.change], -severity_of(row.after or row.before))))


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
