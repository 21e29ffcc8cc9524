"""From a remedy's name to the change to make in this run: its own keys, its own values, its own caveats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rlclinic import names, vitals
from rlclinic.history import Past, Took
from rlclinic.model import Change, Framework, Knob, Prescription, Run, Scalar
from rlclinic.names import Remedy, Turn

DIGITS = 4
"""Significant digits of a value that a remedy takes from the log (ours: settings are written with fewer)."""
SAME = 1e-6
"""Relative difference up to which a value of the log is the setting itself (single precision keeps 6e-8)."""
_RANK = {"cured": -1, "improving": 0, "no-effect": 1, "worse": 1}
"""Where a remedy goes among the others by what came of it before; what is undecided moves none."""


def prescribe(
    ids: Iterable[str], run: Run, right: Mapping[str, Scalar] | None = None, check: str = ""
) -> tuple[Prescription, ...]:
    """The remedies worked out for ``run``, in the order given.

    A remedy whose settings the run already has is left out. One that this framework and version cannot carry out goes
    behind the others, one that would do nothing in this run last, each with the reason and without changes. ``right`` holds
    values of settings that the finding itself knows; numbers among them are rounded to ``DIGITS``. What cured ``check``
    before comes first and what did not help comes behind the others, each with a remark (``run.history``). Raises
    UnknownName for an id that is not in the table.
    """
    right = {knob: _written(knob, value, run) for knob, value in (right or {}).items()}
    ready: list[Prescription] = []
    unavailable: list[Prescription] = []
    inert: list[Prescription] = []
    for id in ids:
        remedy = names.remedy(id, run.framework)
        idle = _LACKS[remedy.needs](run) if remedy.needs else ""
        missing = _missing(remedy, run.framework) or _other_trainer(remedy, run)
        changes = _changes(remedy, run, right)
        if idle:
            inert.append(_told(remedy, run, note=f"would do nothing here: {idle}"))
        elif missing:
            unavailable.append(_told(remedy, run, note=missing))
        elif changes or not remedy.set:
            ready.append(
                replace(_told(remedy, run, note=_caveats(remedy, changes, run, right)), changes=changes, applies=True)
            )
    return (*_by_experience(ready, run, check), *unavailable, *inert)


def _by_experience(ready: list[Prescription], run: Run, check: str) -> list[Prescription]:
    """The remedies as their order stands after what came of them before, the last known outcome of each counting."""
    ranks: dict[str, int] = {}
    told: list[Prescription] = []
    for one in ready:
        known = [past for past in run.history if any(_answers(past, took, one.id, check) for took in past.took)]
        if known:
            past = known[-1]
            outcome = past.outcome_for(check)
            ranks[one.id] = _RANK[outcome]
            others = [other.remedy for other in past.took if other.remedy not in ("", one.id)][:2]
            beside = f" with {' and '.join(others)}" if others else ""
            where = f" in {past.run}" if past.run != run.name else ""
            said = f"taken before{beside} ({past.day}{where}): {outcome.replace('-', ' ')}"
            one = replace(one, note="; ".join(filter(None, (said, one.note))))
        told.append(one)
    return sorted(told, key=lambda one: ranks.get(one.id, 0))


def _answers(past: Past, took: Took, remedy: str, check: str) -> bool:
    """Whether an entry says what came of ``remedy`` against ``check``."""
    against = took.checks or tuple(seen.check for seen in past.found)
    return took.remedy == remedy and past.outcome_for(check) in _RANK and check in against


def _written(knob: str, value: Scalar, run: Run) -> Scalar:
    """A number of the log as a configuration states it: the run's own setting where it is that, else rounded.

    What a log holds in single precision, or as a median, has more digits than anyone set.
    """
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    stated = run.number(knob)
    if stated is not None and math.isclose(stated, value, rel_tol=SAME):
        return run.knob(knob)
    return float(f"{value:.{DIGITS}g}")


def _told(remedy: Remedy, run: Run, note: str) -> Prescription:
    expect = {metric: how for metric, how in remedy.expect.items() if not _unseen(metric, remedy, run)}
    return Prescription(
        id=remedy.id,
        says=remedy.says,
        expect=expect,
        within=remedy.within if expect or not remedy.expect else None,
        risk=remedy.risk,
        confirm=remedy.confirm,
        note=note,
        applies=False,
    )


def _unseen(metric: str, remedy: Remedy, run: Run) -> bool:
    """Whether a metric is known to be absent here and stays so, so that nothing can be expected of it: the KL of a run
    without a reference, unless the remedy switches it on, and what this trainer never writes."""
    if metric in run or run.partial or remedy.moves.get(metric) == "logged" or metric.startswith("reward.component."):
        return False
    if metric.startswith("kl.ref"):
        return not any(turn.knob.startswith("kl_") for turn in remedy.set) and bool(_no_reference(run))
    return run.framework is not None and names.key_for(metric, run.framework) is None


# ---------------------------------------------------------------- what the framework and its version have


def _missing(remedy: Remedy, framework: Framework | None) -> str:
    """Why the remedy cannot be carried out, in words; empty when it can, or when the version leaves that open."""
    if remedy.unavailable:
        return remedy.unavailable
    if remedy.since and names.reached(framework, remedy.since) is False:
        return f"does not exist in {names.versions_of(framework)} before {remedy.since}"
    return names.absent(remedy.set[0].knob, framework) if remedy.set else ""


def _other_trainer(remedy: Remedy, run: Run) -> str:
    """Words for a remedy whose settings are those of TRL's GRPO trainer, in a run of its PPO trainer."""
    if run.framework is None or run.framework.name not in ("trl", "unsloth") or run.algorithm != "ppo":
        return ""
    rows = [row for turn in remedy.set if (row := names.spell(turn.knob, run.framework))]
    own = [row.key for row in rows if "grpo" in row.source]
    if not own and not remedy.writes:
        return ""
    return f"{', '.join(own) or 'it'} belongs to GRPOConfig; the PPO trainer has another name for it, or none"


def _caveats(remedy: Remedy, changes: tuple[Change, ...], run: Run, right: Mapping[str, Scalar]) -> str:
    """What else must hold, and from which version on when the run's own is not known."""
    already = [
        f"the setting is already {run.knobs[knob].key}={right[knob]}: find what overrides it"
        for knob in remedy.restores
        if right.get(knob) is not None and run.knob(knob) == right[knob]
    ]
    rows = [row for change in changes if (row := names.spell(change.knob, run.framework))]
    sinces = {row.key: row.since for row in rows if row.since} | ({"": remedy.since} if remedy.since else {})
    open_ends = [
        f"{key or 'it'} exists since {names.versions_of(run.framework)} {since}"
        for key, since in sinces.items()
        if names.reached(run.framework, since) is None
    ]
    former = [
        f"up to {names.versions_of(run.framework)} {row.renamed} its name was {row.aliases[0].partition('[')[0]}"
        for row in rows
        if row.renamed and names.reached(run.framework, row.renamed) is None
    ]
    own = remedy.note or "; ".join(dict.fromkeys(row.note for row in rows if row.note))
    ours = [change.key for change in changes if names.spell(change.knob, run.framework) is None]
    if ours:
        already.append(f"{', '.join(ours)}: our name, to be spelled as your trainer does")
    return "; ".join(text for text in (*already, remedy.writes, own, *open_ends, *former[:1]) if text)


# ---------------------------------------------------------------- changes


def _changes(remedy: Remedy, run: Run, right: Mapping[str, Scalar]) -> tuple[Change, ...]:
    changes: list[Change] = []
    present = dict(run.knobs)
    turns = [*remedy.set, *(Turn(knob, to=right[knob]) for knob in remedy.restores if right.get(knob) is not None)]
    for turn in turns:
        if names.absent(turn.knob, run.framework):
            continue
        change = _change(turn, run, present, right.get(turn.knob))
        if change is not None:
            changes.append(change)
            present[turn.knob] = Knob(turn.knob, change.after, change.key, "given")
    return tuple(changes)


def _change(turn: Turn, run: Run, present: Mapping[str, Knob], right: Scalar = None) -> Change | None:
    """The change still to be made; None when the run's known setting already satisfies the remedy."""
    before = run.knob(turn.knob)
    after = _target(turn, run) if right is None else right
    if before is not None and _meets(turn, before, after):
        return None
    row = names.spell(turn.knob, run.framework)
    key = turn.knob if row is None else row.key
    if row is None or after is None:
        return Change(turn.knob, key, before, after, _in_words(turn, key, after, run))
    return Change(turn.knob, key, before, after, names.write(turn.knob, after, run.framework, present=present))


def _present(knob: str, run: Run) -> float | None:
    if knob == "answers_per_step":
        prompts, each = run.number("train_batch_size"), run.number("group_size")
        return None if prompts is None or each is None else prompts * each
    return run.number(knob)


def _target(turn: Turn, run: Run) -> Scalar:
    """The value to set; None when it is relative and the present value is not known."""
    if turn.times is None:
        if turn.to is not None:
            return turn.to
        bound = turn.at_least if turn.at_least is not None else turn.at_most
        whole = bound is not None and names.knob(turn.knob).kind == "int"
        return int(bound) if whole and bound is not None else bound
    present = _present(turn.like or turn.knob, run)
    if present is None:
        return None
    value = present * turn.times
    if turn.at_least is not None:
        value = max(value, turn.at_least)
    if turn.at_most is not None:
        value = min(value, turn.at_most)
    return round(value) if names.knob(turn.knob).kind == "int" else float(f"{value:.3g}")


def _meets(turn: Turn, before: Scalar, after: Scalar) -> bool:
    """Whether the setting is there already, or further along than the remedy would take it."""
    number = before if isinstance(before, (int, float)) and not isinstance(before, bool) else None
    if number is None or isinstance(after, (bool, str)) or after is None:
        return before == after
    if turn.times is None and (turn.at_least is not None or turn.at_most is not None):
        low = -float("inf") if turn.at_least is None else turn.at_least
        high = float("inf") if turn.at_most is None else turn.at_most
        return low <= number <= high
    if turn.times is not None and not turn.like:
        return after <= number if turn.times > 1 else after >= number
    return number == after


def _in_words(turn: Turn, key: str, after: Scalar, run: Run) -> str:
    """The change in words where the framework's spelling or the present value is not known."""
    if after is not None:
        return f"{key} = {after}"
    factor = turn.times or 1.0
    if turn.like:
        row = names.spell(turn.like, run.framework) if turn.like != "answers_per_step" else None
        other = names.knob(turn.like).title if row is None else row.key
        return f"{key}: as {other}" if factor == 1 else f"{key}: {factor:g} times {other}"
    bounds = [f"at least {turn.at_least:g}"] if turn.at_least is not None else []
    bounds += [f"at most {turn.at_most:g}"] if turn.at_most is not None else []
    limits = f" ({', '.join(bounds)})" if bounds else ""
    return f"{key}: divide by {1 / factor:.3g}{limits}" if factor < 1 else f"{key}: multiply by {factor:g}{limits}"


# ---------------------------------------------------------------- what the run must have for a remedy to act


def _one_update(run: Run) -> str:
    told, why = vitals.updates(run)
    return f"each batch is used for one on-policy update, so every ratio is 1 ({why})" if told else ""


def _no_reference(run: Run) -> str:
    measured = [column for name in ("kl.ref", "kl.ref_seq_sum") if (column := run.get(name)) is not None]
    if any(column.status == "structural_zero" for column in measured):
        return "no reference model is in use"
    if measured:
        return ""
    inside = [run.knob(name) for name in ("kl_in_loss", "kl_in_reward")]
    if inside == [False, False] or (run.number("kl_coef") == 0 and True not in inside):
        return "the run has no KL term, so no reference is loaded"
    return ""


def _no_critic(run: Run) -> str:
    if any(name.startswith("value.") for name in run.columns) or run.algorithm in (None, "ppo", "gae", "vapo"):
        return ""
    return f"{run.algorithm} has no critic"


def _no_tools(run: Run) -> str:
    turns, limit = run.get("agent.turns.max") or run.get("agent.turns.mean"), run.number("max_turns")
    conversing = turns is not None and bool((turns.finite.values > 2).any())
    seen = conversing or "agent.tool_calls.mean" in run or (limit is not None and limit > 1)
    if seen or run.partial or "reward.mean" not in run:
        return ""
    return "the log shows no tools and no further turns"


def _no_sampler(run: Run) -> str:
    apart = any(name.startswith("mismatch.") for name in run.columns)
    return "the trainer samples by itself" if run.knob("sampler") is False and not apart else ""


def _synchronous(run: Run) -> str:
    asynchronous = any(name.startswith("offpolicy.") for name in run.columns) or "staleness_limit" in run.knobs
    told = names.key_for("offpolicy.staleness.mean", run.framework)
    if run.partial or asynchronous or told is None or "reward.mean" not in run:
        return ""
    return f"answers are sampled by the newest policy: {told} is not in the log"


def _one_part(run: Run) -> str:
    return "the reward has one part only" if len(run.components) == 1 and not run.partial else ""


def _no_groups(run: Run) -> str:
    critic = run.algorithm in ("ppo", "gae", "vapo")
    return "the baseline comes from a critic; answers are not compared within groups" if critic else ""


_LACKS: Mapping[str, Callable[[Run], str]] = {
    "off_policy": _one_update,
    "reference": _no_reference,
    "critic": _no_critic,
    "tools": _no_tools,
    "sampler": _no_sampler,
    "asynchronous": _synchronous,
    "parts": _one_part,
    "groups": _no_groups,
}
"""For each word of ``names.NEEDS``: why the run lacks it, in words; empty when it has it or may have it."""
