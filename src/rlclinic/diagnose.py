"""From a run to its diagnosis: run the checks, order causes before consequences, attach what to change."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlclinic import names, vitals
from rlclinic.answers import agreement
from rlclinic.checks import BY_NAME, CHECKS, RENAMED, Check, examine
from rlclinic.differential import MEASUREMENT, ancestors, dated, order, rivalled, told_once
from rlclinic.errors import BadTable, UnknownName, nearest
from rlclinic.model import ROLLOUTS, Diagnosis, Evidence, Examination, Finding, Note, Run, Severity, Strength, Verdict
from rlclinic.prognosis import cost, resume, rollback
from rlclinic.reassurances import reassurances, uncontradicted
from rlclinic.remedies import prescribe
from rlclinic.stats.evidence import benjamini_hochberg, strength

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUGGEST = "rlclinic names suggest LOG drafts names for them (diagnose --names)"
"""What to do about keys that are not known."""
MOST_LIMITS = 1_000_000
"""Bytes of a limits file beyond which it is something else."""


def diagnose(
    run: Run,
    *,
    only: Iterable[str] | None = None,
    limits: Mapping[str, Mapping[str, Any]] | None = None,
    gpu_hour_price: float | None = None,
) -> Diagnosis:
    """Examine ``run`` with every check (or ``only`` the named ones) and put what they say in order.

    ``limits`` maps check to limit to number or grades and wins over the built-in ones; ``gpu_hour_price`` (any currency)
    turns wasted GPU-hours into money. Raises UnknownName for a check or limit that does not exist.
    """
    with np.errstate(all="ignore"):  # values of 1e308 overflow in sums; what comes of it is judged, not printed
        return _diagnosed(run, only, limits or {}, gpu_hour_price)


def _diagnosed(
    run: Run,
    only: Iterable[str] | None,
    limits: Mapping[str, Mapping[str, Any]],
    gpu_hour_price: float | None,
) -> Diagnosis:
    run = vitals.complete(run)
    judged = agreement.own(run)
    chosen = CHECKS if only is None else tuple(resolve(only))
    for name in limits:
        resolve([name])
    outcomes = [examine(one, judged, given=limits.get(one.name)) for one in chosen]
    normal = reassurances(judged)
    examinations = weigh(outcome for outcome, _ in outcomes)
    notes = {note.id: note for note in normal} | {note.id: note for _, left in outcomes for note in left}
    seen = [e.finding for e in examinations if e.finding is not None and e.finding.severity is not None]
    found = told_once(seen)
    covered = {f.check for f in seen} - {f.check for f in found}
    row = float(np.median(np.diff(run.steps))) if len(run.steps) > 1 else 0.0
    by_check = {finding.check: finding for finding in rivalled(dated(order(found), row))}
    for name, finding in by_check.items():
        by_check[name] = _complete(finding, by_check, run)
    ordered = _one_way_back(list(by_check.values()))
    ordered = [replace(f, cost=cost(f, run, gpu_hour_price=gpu_hour_price)) for f in ordered]
    by_check = {finding.check: finding for finding in ordered}
    checks = tuple(
        replace(e, finding=replace(e.finding, severity=None))
        if e.check in covered and e.finding is not None
        else replace(e, finding=by_check.get(e.check, e.finding))
        for e in examinations
    )
    return Diagnosis(
        run=run,
        verdict=_verdict(run, ordered, checks),
        findings=tuple(ordered),
        checks=checks,
        notes=tuple(sorted(uncontradicted(notes.values(), ordered), key=lambda note: note.id)),
        to_log=_to_log(run, checks, notes),
    )


def resolve(wanted: Iterable[str]) -> list[Check]:
    """The checks of these names; broad old names stand for the checks that replaced them. Raises UnknownName."""
    chosen: list[Check] = []
    for name in wanted:
        for one in RENAMED.get(name, (name,)):
            if one not in BY_NAME:
                raise UnknownName(
                    "the name of a check", repr(name), nearest(one, BY_NAME) or tuple(BY_NAME), "rlclinic checks"
                )
            if BY_NAME[one] not in chosen:
                chosen.append(BY_NAME[one])
    return chosen


def weigh(examinations: Iterable[Examination]) -> list[Examination]:
    """The examinations with their evidence corrected for how many tests were made of the run.

    Benjamini and Hochberg over every check that tests (it has a limit on p); one without a p-value is a test that showed
    nothing. Only strong evidence may be critical. Facts, levels and proofs of sameness need no correction: chance does
    not make them.
    """
    looked = list(examinations)
    found = [e.finding for e in looked if e.finding is not None]
    tests = {f.check: f.evidence for f in found if f.evidence is not None and f.evidence.of_chance}
    silent = sum(f.check not in tests and any(name.startswith("p_") for name in BY_NAME[f.check].limits) for f in found)
    p_values = [1.0 if test.p_value is None else test.p_value for test in tests.values()]
    q_values = benjamini_hochberg(p_values + [1.0] * silent)[: len(tests)]
    corrected = {
        check: replace(test, q_value=float(q), strength=_strength(test, float(q)))
        for (check, test), q in zip(tests.items(), q_values, strict=True)
    }
    return [
        replace(e, finding=_claim(e.finding, corrected[e.check])) if e.finding and e.check in corrected else e
        for e in looked
    ]


def _strength(test: Evidence, q_value: float) -> Strength | None:
    """What the test may claim. Few points weigh against a test only where it estimates their independence: that estimate
    is what they spoil. A step scan of 30 to 80 points stays at 1 % false alarms in noise of any memory."""
    n = math.inf if test.n is None or test.n_eff is None else test.n
    n_eff = math.inf if test.n_eff is None else test.n_eff
    return strength(test.p_value, q_value, effect=True, n=n, n_eff=n_eff, agreeing=test.agreeing)


def _claim(finding: Finding, evidence: Evidence) -> Finding:
    """The finding at the severity that its evidence allows."""
    most = {"strong": Severity.CRITICAL, "moderate": Severity.WARNING, "weak": Severity.WARNING}
    severity = finding.severity
    if severity is not None:
        severity = min(severity, most[evidence.strength]) if evidence.strength is not None else Severity.INFO
    return replace(finding, evidence=evidence, severity=severity)


def _one_way_back(ordered: list[Finding]) -> list[Finding]:
    """The findings with the earliest of their rollbacks in all of them, and in the first: a run goes on from one place."""
    gravest = max((f.severity or 0 for f in ordered if f.rollback is not None), default=0)
    ways = [(f.rollback, f.check) for f in ordered if f.rollback is not None and f.severity == gravest]
    if not ways:
        return ordered
    first, whose = min(ways, key=lambda way: (way[0].low, way[0].step))
    other = replace(first, says=f"{first.says}; that is before {whose} began")
    leading = next((f for f in ordered if BY_NAME[f.check].family != MEASUREMENT), ordered[0])
    return [
        replace(f, rollback=first if f.check == whose else other, resume="before")
        if f.rollback is not None or f is leading
        else replace(f, resume="")
        for f in ordered
    ]


def _complete(finding: Finding, findings: Mapping[str, Finding], run: Run) -> Finding:
    """The finding with its rollback, prescriptions and references."""
    one = BY_NAME[finding.check]
    finding = replace(finding, status=one.status, resume=resume(finding), rollback=rollback(finding, findings, run))
    if finding.severity == Severity.INFO and finding.title == one.title and one.info_title:
        finding = replace(finding, title=one.info_title)
    references = tuple(names.reference(id) for id in one.references)
    no_help = tuple(f"{advice}: {why}" for advice, why in one.no_help.items())
    prescriptions = prescribe(finding.remedies, run, finding.settings, finding.check)
    return replace(finding, prescriptions=prescriptions, no_help=no_help, references=references)


def _verdict(run: Run, findings: list[Finding], checks: tuple[Examination, ...]) -> Verdict:
    broken = [e.check for e in checks if e.outcome == "failed"]
    trouble = f" {len(broken)} checks broke: {', '.join(broken)}." if broken else ""
    if run.kind == "supervised":
        lost = [c.key for c in run.columns.values() if c.nonfinite]
        are = "are" if len(lost) > 1 else "is"
        broken_too = f" {', '.join(lost[:3])} {are} NaN or infinite, which is broken in any training." if lost else ""
        says = (
            "This is a log of supervised or preference training: no sampled answers are rewarded, so nothing is judged."
        )
        return Verdict("undecided", None, f"{says}{broken_too}{trouble}")
    of_run = [f for f in findings if BY_NAME[f.check].family != MEASUREMENT]
    worst = max((f.severity for f in of_run if f.severity is not None), default=None)
    if worst is not None and worst >= Severity.WARNING:
        primary = of_run[0]
        more = [f for f in findings if f is not primary]
        by_it = [f for f in more if primary.check in ancestors(f.check, {g.check: g for g in findings})]
        rest = f" It explains {len(by_it)} of {len(more)} further findings." if by_it else ""
        behind = ""
        if primary.severity is not None and primary.severity < worst:
            gravest = next(f for f in (*by_it, *more) if f.severity == worst)
            behind = f"{'which led to' if gravest in by_it else 'beside'} {gravest.check} ({worst.label})"
        return Verdict(worst.label, primary.check, f"{_answer(primary, behind)}{rest}{trouble}")  # type: ignore[arg-type]
    if not len(run.steps) and run.unrecognised:
        return Verdict(
            "undecided",
            None,
            f"None of the {len(run.unrecognised)} keys of this log is known, so nothing can be judged; {SUGGEST}.{trouble}",
        )
    if not len(run.steps):
        broke = f"the log ends in an error before any training step ({run.ending})"
        why = broke if run.ending else "no training step is in the log"
        return Verdict("undecided", None, f"Nothing can be judged: {why}.{trouble}")
    if run.excerpt or run.short:
        rows = len(run.steps)
        told = f"{rows} {'row' if rows == 1 else 'rows'}"
        if not run.logged and run.rollouts:
            told = f"{len(run.rollouts[0])} saved answers at {rows} {'step' if rows == 1 else 'steps'}"
        seen = "shows nothing wrong" if worst is None else "shows nothing that needs action"
        of_policy = [m for m in run.columns if not m.startswith(("progress.", "time."))]
        if run.logged and of_policy == ["reward.mean"]:
            part = "the reward of one of several sections" if _several(run) else "the reward"
            blind = sum(e.outcome == "unexamined" for e in checks)
            seen = f"{seen}, but only {part} is read and {blind} of {len(checks)} checks could not look"
        return Verdict(
            "undecided",
            of_run[0].check if of_run else None,
            f"What is shown ({told}) {seen}; trends need about {100} {'rows' if run.logged else 'steps'}.{trouble}",
        )
    if "reward.mean" not in run:
        alike = _like_reward(run)
        other = (
            f" If it is among {'them' if alike else 'the keys not recognised'}: {SUGGEST}."
            if run.unrecognised or alike
            else ""
        )
        lack = f"No mean reward is known among {alike}" if alike else "No reward is in the log"
        return Verdict("undecided", None, f"{lack}, so the run cannot be judged.{other}{trouble}")
    if run.algorithm == "grpo" and run.number("group_size") == 1:
        says = "Groups of one answer have no baseline: the raw reward becomes the advantage, whatever the curves look like."
        return Verdict("undecided", None, f"{says}{trouble}")
    worst = max((f.severity for f in findings if f.severity is not None), default=None)
    looked = sum(e.outcome == "examined" for e in checks)
    if not looked:
        return Verdict("undecided", None, f"None of the {len(checks)} checks could look.{trouble}")
    if broken:
        return Verdict(
            "undecided", None, f"Nothing wrong was found in {looked} checks, but not all could run.{trouble}"
        )
    if worst is None:
        return Verdict("healthy", None, f"Nothing wrong was found in {looked} checks.")
    first = next(f for f in findings if f.severity == worst)
    says = f"Nothing needs action; worth knowing: {first.says}." if worst == Severity.INFO else _answer(first)
    return Verdict(worst.label, first.check, says)  # type: ignore[arg-type]


def _several(run: Run) -> bool:
    """Whether the log holds the metrics of several sections, of which one was read."""
    return any(warning.code == "several_sections" for warning in run.warnings)


def _like_reward(run: Run) -> str:
    """Keys of the log that are of a reward, but not known as its mean, in words; empty without any."""
    keys = [c.key for name, c in run.columns.items() if name.startswith("reward.")]
    keys += [unknown.key for unknown in run.unrecognised]
    return ", ".join([key[:40] for key in keys if "reward" in key.lower()][:4])


def _answer(finding: Finding, behind: str = "") -> str:
    """What the run has, and the numbers that show it, in one sentence; ``behind`` names a graver finding beside it."""
    title = (finding.title or BY_NAME[finding.check].title).rstrip(".")
    head, end = title.split(":")[0], "" if finding.says.endswith("?") else "."
    if finding.says.lower().startswith(head.lower()):
        return f"{finding.says[0].upper()}{finding.says[1:]}{f', {behind}' if behind else ''}{end}"
    return f"{head}{f', {behind}' if behind else ''}: {finding.says}{end}"


MOST_TO_LOG = 8
"""Lines of what to log (ours: more than eight are not read)."""
_VITAL = ("entropy.mean", "eval.score", "group.zero_var_frac", "reward.group_std", "kl.ref", "length.truncated_frac")


def _to_log(run: Run, checks: tuple[Examination, ...], notes: Mapping[str, Note]) -> tuple[str, ...]:
    """The settings that would let the unexamined checks look, in the framework's spelling: vital series first, then those
    that most checks ask for."""
    if run.kind == "crash":
        return ()
    wanted: dict[str, int] = {}
    for examination in checks:
        for need in examination.missing:
            metric = need.split("|")[0]
            # What is absent by design needs no line: measuring the KL would switch its term on.
            if metric in names.metrics() and metric not in run:
                wanted[metric] = wanted.get(metric, 0) + 1
    if "kl_absent_expected" in notes:
        wanted.pop("kl.ref", None)
    for known in run.undecided:  # it is logged; what it means is asked elsewhere
        for metric in known.meanings:
            wanted.pop(metric, None)
    for metric in ("eval.score", "entropy.mean"):
        if metric not in run and not (run.partial and metric == "eval.score"):
            wanted.setdefault(metric, 1)
    order = sorted((m for m in wanted if _has(run, m)), key=lambda m: (m not in _VITAL, -wanted[m], m))
    lines, gaps = [], [metric for metric in order if metric.startswith("mismatch.")]
    gap = next((m for m in gaps if names.enable(m, run.framework)), gaps[0] if gaps else "")
    for metric in order:
        if metric in gaps and metric != gap:  # one series shows the gap between sampler and trainer
            continue
        how = names.enable(metric, run.framework)
        title = names.metric(metric).title
        if how is not None:
            lines.append(f"{title}: {how[0]}" + (f" ({how[1]})" if how[1] else ""))
        elif not names.enabled(metric, run.framework):
            key = names.key_for(metric, run.framework) if run.framework is not None else None
            if key is not None:
                lines.append(f"{title}: log {key}")
    lines = lines[:MOST_TO_LOG]
    unsaved = not run.rollouts and run.knob("log_completions") is not True and not run.excerpt
    if unsaved and any(ROLLOUTS in e.missing for e in checks):
        told = names.remedy("log_completions", run.framework)
        there = [turn for turn in told.set if names.spell(turn.knob, run.framework) is not None]
        writes = told.writes or " ".join(names.write(turn.knob, turn.to, run.framework) for turn in there)
        lines += [f"sampled answers: {writes}"] if writes and not told.unavailable else []
    return tuple(lines)


def _has(run: Run, metric: str) -> bool:
    """Whether a run of this kind has what ``metric`` measures, as far as the log tells."""
    family, seen = metric.split(".")[0], {name.split(".")[0] for name in run.columns}
    if family == "value" or metric == "grad.norm_critic":
        return "value" in seen or run.algorithm in ("ppo", "gae", "vapo")
    if family == "mismatch":  # where the trainer may sample by itself, a sampler of its own must be known
        return family in seen or run.knob("sampler") is True or names.spell("sampler", run.framework) is None
    if metric == "reward.component.std":
        return all(part.std is None for part in run.components.values())
    if family == "offpolicy":
        return family in seen or "staleness_limit" in run.knobs
    if family == "agent":
        return family in seen or (run.number("max_turns") or 1) > 1
    return metric not in ("clip.high_frac", "clip.low_frac") or "clip.frac" in run


def read_limits(path: Path) -> dict[str, dict[str, Any]]:
    """The limits of a TOML file: ``[entropy_collapse]`` with ``p_value = 0.001``, or ``[entropy_collapse.ratio]`` with
    grades. Raises BadTable when it is no TOML, UnknownName for a check that does not exist."""
    try:
        if not path.is_file():
            raise BadTable("a TOML file of limits", f"{path} is no plain file")
        if path.stat().st_size > MOST_LIMITS:
            raise BadTable("a TOML file of limits", f"{path} of {path.stat().st_size} bytes")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise BadTable(
            "a TOML file of limits", f"{path}: {problem}", hint="rlclinic explain CHECK lists its limits"
        ) from problem
    for name, rows in table.items():
        resolve([name])
        if not isinstance(rows, dict):
            raise BadTable(f"a table [{name}]", f"{name} = {rows!r}")
    return table
