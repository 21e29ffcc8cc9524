"""Whether saved answers are those of the log, and how: which row a step of theirs is, what in them is no training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rlclinic.answers import advantages
from rlclinic.model import SAVED, Column, Floats, Run, Warn
from rlclinic.rollouts import Flags, Ints, Regraded, Rollouts

KEY = SAVED
"""The key of a column that was worked out from saved answers."""
CONTRADICTED = "answers_contradict_log"
"""The warning that the saved answers are not those of the log; no check then judges them."""
OTHERWISE = "answers_paid_otherwise"
"""The warning that answers which may well be those of the log have another total; no column is then taken from them."""
_CODES = (
    CONTRADICTED,
    OTHERWISE,
    "answers_shifted",
    "answers_averaged",
    "answers_held_out",
    "answers_repeated",
    "answers_weighed",
)
"""Warnings that say that the answers were settled already."""
_NEAR = 1e-3
"""Share of the spread of rewards within which two means are one number (ours: four saved decimals, float32 sums)."""
_MOST = 0.8
"""Share of the compared rows that must agree (ours: a few rows may hold a second attempt or a lost batch)."""
_LEAST = 3
"""Rows that must be comparable before disagreement says anything (ours)."""
_ROWS = 12
"""Rows from which a correlation between saved and logged means is told from chance (ours)."""
_RETURNS = 8
"""Times that the steps of the files may go back for it to be a restart (ours: more is the disorder of async training)."""


@dataclass(frozen=True)
class Fit:
    """How the mean rewards of saved answers compare with a logged series when their steps are moved by ``shift``."""

    shift: int
    rows: Floats
    """Steps of the log at which the two are one number."""
    compared: int
    """Rows that must agree if the answers are theirs: those of one batch, and means of batches that are all saved."""
    differ: float = 0.0
    """Median difference at those rows."""
    averaged: int = 0
    """Rows that may hold several batches of which only some are saved."""

    @property
    def agrees(self) -> bool:
        return len(self.rows) > 0 and len(self.rows) >= _MOST * self.compared


def settle(run: Run) -> tuple[Run, dict[int, Floats]]:
    """``run`` with the steps of its saved answers counted as the log counts them and with what is no training set apart.

    Also the steps of the log at which each table (by its place) shows the very batch of the row. Warnings say what was
    done. Idempotent.
    """
    logged = run.get("reward.mean")
    if logged is None or logged.key == KEY or not len(logged.finite):
        logged = None
    if any(warn.code in _CODES for warn in run.warnings):
        fits = {} if logged is None else {k: fit(one, logged.finite, 0) for k, one in enumerate(run.rollouts)}
        return run, {place: one.rows if one.agrees else np.empty(0) for place, one in fits.items()}
    tables: list[Rollouts] = []
    same: dict[int, Floats] = {}
    warnings = list(run.warnings)
    regraded = run.regraded
    for place, found in enumerate(run.rollouts):
        keep, told = _last_attempt(found)
        table = _regrouped(found if keep.all() else found.only(keep))
        if logged is not None:
            parts = {name: one.mean.finite for name, one in run.components.items()}
            table, same[place], more = _settled(table, logged.finite, parts)
            told += more
        if place == 0 and regraded is not None and len(table.train) < len(found.train):
            regraded = _kept(regraded, np.flatnonzero(~found.held_out), np.flatnonzero(keep)[~table.held_out])
        tables.append(table)
        warnings += [warn for warn in told if warn not in warnings]
    settled = replace(run, rollouts=tuple(tables), warnings=tuple(warnings), regraded=regraded)
    order = sorted(range(len(tables)), key=lambda place: _told(settled, tables[place], CONTRADICTED))
    if order == list(range(len(tables))):
        return settled, same
    # Rows of findings are rows of the first table: one of this run, where there is one.
    settled = replace(
        settled, rollouts=tuple(tables[place] for place in order), regraded=regraded if order[0] == 0 else None
    )
    return settled, {new: same[old] for new, old in enumerate(order) if old in same}


def _kept(again: Regraded, before: Ints, now: Ints) -> Regraded:
    """What a second verifier said of the rows that are left: ``before`` and ``now`` number the training rows in the file."""
    rows = before[again.rows]
    keep = np.isin(rows, now)
    names = ("window", "reward", "score", "weight", "paid", "accepted")
    columns = {name: getattr(again, name)[keep] for name in names}
    return replace(again, rows=np.searchsorted(now, rows[keep]).astype(np.int64), **columns)


def trusted(run: Run) -> Rollouts | None:
    """The training answers that count: whole groups as they were sampled, of this very run; None without any.

    Never those of a trainer that saves only what it trains on, nor a part of a batch, nor answers that contradict the log.
    """
    for table in run.rollouts:
        train = table.train
        if not (table.filtered or table.partial) and len(train) and not _told(run, table, CONTRADICTED, OTHERWISE):
            return train
    return None


def own(run: Run) -> Run:
    """``run`` without saved answers that are not those of its log, as checks may judge it; settled before."""
    keep = tuple(table for table in run.rollouts if not _told(run, table, CONTRADICTED))
    if len(keep) == len(run.rollouts):
        return run
    return replace(run, rollouts=keep, regraded=run.regraded if keep and keep[0] is run.rollouts[0] else None)


def foreign(run: Run) -> str:
    """What was said of saved answers that are not those of the log; empty where there are none."""
    return "; ".join(warn.says for warn in run.warnings if warn.code == CONTRADICTED)


def _told(run: Run, table: Rollouts, *codes: str) -> bool:
    """Whether a warning of one of ``codes`` speaks of this table."""
    return any(f"({_name(table)})" in warn.says for warn in run.warnings if warn.code in codes)


def _name(table: Rollouts) -> str:
    """Words for a table that no other table of the run shares."""
    return f"{table.form} form, {table.rows} rows"


def _settled(table: Rollouts, logged: Column, parts: Mapping[str, Column]) -> tuple[Rollouts, Floats, list[Warn]]:
    """(the table in the log's steps, the rows it shares with the log, what to tell); ``parts``: the logged parts."""
    if not np.isfinite(table.step).any() or not np.isfinite(table.reward).any():
        return table, np.empty(0), []
    told: list[Warn] = []
    best = chosen(table, logged)
    if not best.agrees:
        ways = [
            (apart, chosen(apart, logged)) for first in (True, False) if (apart := _without_evaluation(table, first))
        ]
        apart, again = max(ways, key=lambda way: len(way[1].rows), default=(table, best))
        if again.agrees and len(again.rows) >= _LEAST:
            says = (
                f"{apart.held_out.sum()} of {len(table)} saved answers stand alone beside groups; the log's mean reward is "
                "that of the groups, so these are taken as held-out"
            )
            told.append(Warn("answers_held_out", says))
            table, best = apart, again
    if not best.agrees and (kept := _of_live_groups(table, logged)) is not None:
        says = (
            f"{logged.key} is the mean over the groups whose rewards differ, in {len(kept.rows)} rows; equal groups are in "
            "the saved answers and were left out of the log"
        )
        told.append(Warn("answers_unfiltered", says))
        return replace(table, step=table.step + kept.shift, shift=kept.shift), np.empty(0), told
    if not best.agrees and (weighed := _weighed(table, logged)) is not None:
        table, best, says = weighed
        told.append(Warn("answers_weighed", says))
    if best.agrees and best.shift:
        says = (
            f"the saved answers number steps {abs(best.shift)} {'lower' if best.shift > 0 else 'higher'} than the log: "
            f"mean rewards agree in {len(best.rows)} of {max(best.compared, len(best.rows))} rows once moved"
        )
        told.append(Warn("answers_shifted", says))
        table = replace(table, step=table.step + best.shift, shift=best.shift)
    shard = None if best.agrees or table.filtered or table.partial else _shard(table, logged)
    if shard is not None:
        shift, rows = shard
        says = (
            f"the saved answers are a part of each batch, it seems: their mean reward moves with {logged.key} over {rows} "
            "rows and is off by no more than a sample is" + (f"; their steps are moved by {shift}" if shift else "")
        )
        told.append(Warn("answers_of_a_part", says))
        table = replace(table, step=table.step + shift, shift=shift)
    elif not best.agrees and best.compared >= _LEAST and not (table.filtered or table.partial):
        off = f"{best.compared - len(best.rows)} of {best.compared} rows, by {best.differ:.3g} in the middle one"
        if kin := _akin(table, logged, parts):
            says = f"the saved answers ({_name(table)}) have another total than {logged.key}, in {off}, and {kin}"
            told.append(Warn(OTHERWISE, f"{says}; what the log states stands"))
        else:
            says = (
                f"the saved answers ({_name(table)}) are not those of {logged.key}: their mean reward differs in {off}, "
                "however steps are moved; what the log states stands, and no check judges these answers: give those "
                "that this run saved, or its weights of the reward's parts"
            )
            told.append(Warn(CONTRADICTED, says))
    elif best.averaged >= _LEAST and best.compared < _LEAST:
        says = (
            f"rows of {logged.key} hold several batches of which only some answers are saved: the two cannot be "
            "compared row by row"
        )
        told.append(Warn("answers_averaged", says))
    return table, best.rows if best.agrees else np.empty(0), told


def chosen(table: Rollouts, logged: Column) -> Fit:
    """The fit of the likeliest shift: 0 where nothing tells, save that a batch before the first logged row is row 1's."""
    fits = [fit(table, logged, shift) for shift in (0, 1, -1)]
    stay, on = fits[0], fits[1]
    first = float(table.train.steps[0]) if len(table.train.steps) else 0.0
    early = first == 0.0 and float(logged.steps[0]) >= 1.0  # no row can hold step 0
    good = [one for one in fits if one.agrees and (len(one.rows) >= _LEAST or (one is on and early))]
    if not good:
        return on if early and on.agrees else max(fits, key=lambda one: (one.compared >= _LEAST, len(one.rows)))
    if early and on in good:
        return on
    sure = [one for one in good if len(one.rows) >= len(max(good, key=lambda two: len(two.rows)).rows) - 1]
    return stay if stay in sure else sure[0]


def fit(table: Rollouts, logged: Column, shift: int) -> Fit:
    """How the mean reward of each saved step compares with the logged rows when steps are moved by ``shift``."""
    train = table.train
    known = np.isfinite(train.step) & np.isfinite(train.reward)
    steps, place = np.unique(train.step[known] + shift, return_inverse=True)
    if not len(steps):
        return Fit(shift, np.empty(0), 0)
    means = np.bincount(place, train.reward[known]) / np.bincount(place)
    rows, values = logged.steps, logged.values
    before = np.concatenate([[min(0.0, rows[0] - 1.0)], rows[:-1]])
    at = np.searchsorted(steps, rows)
    own = (at < len(steps)) & (steps[np.minimum(at, len(steps) - 1)] == rows)
    spread = float(np.std(train.reward[known]))
    near = _NEAR * spread + 0.5 * logged.resolution + 2e-6 * (1.0 + np.abs(values))
    off = np.where(own, np.abs(values - means[np.minimum(at, len(steps) - 1)]), np.inf)
    total = np.concatenate([[0.0], np.cumsum(means)])
    begin, end = np.searchsorted(steps, before, side="right"), np.searchsorted(steps, rows, side="right")
    whole = (end - begin == rows - before) & (rows - before > 1)
    inside = np.where(whole, (total[end] - total[begin]) / np.maximum(end - begin, 1), np.inf)
    off = np.minimum(off, np.abs(values - inside))
    must = (own & (rows - before <= 1)) | whole
    hit = off <= near
    loose = own & ~must
    if (hit & loose).sum() < 0.5 * loose.sum():
        hit &= ~loose  # rows of several batches meet one of them by chance
    by_batch = hit & own & (np.abs(values - means[np.minimum(at, len(steps) - 1)]) <= near)
    averaged = int(((end > begin) & ~must).sum())
    counted = must | hit  # a row of a longer interval that is one number with its batch holds that batch alone
    differ = float(np.median(off[must])) if must.any() else 0.0
    return Fit(shift, rows[by_batch] if by_batch.any() else rows[hit], int(counted.sum()), differ, averaged)


# ---------------------------------------------------------------- what is no training of the last attempt


def _last_attempt(table: Rollouts) -> tuple[Flags, list[Warn]]:
    """The rows without those of steps that a restart made again, where the order of the file shows one."""
    step = table.step
    keep = np.ones(len(step), dtype=np.bool_)
    if table.files > 1 or not np.isfinite(step).all() or len(step) < 2:
        return keep, []
    back = np.flatnonzero(np.diff(step) < 0) + 1
    if not 0 < len(back) <= _RETURNS:
        return keep, []
    for row in back.tolist():
        keep[:row] &= step[:row] < step[row]
    gone = int((~keep).sum())
    if not gone or gone > 0.5 * len(step):
        return np.ones(len(step), dtype=np.bool_), []
    again = ", ".join(f"{step[row]:g}" for row in back.tolist()[:4])
    says = f"the saved answers go back to step {again}: a restart; {gone} answers of what came before are left out"
    return keep, [Warn("answers_repeated", says)]


def _regrouped(table: Rollouts) -> Rollouts:
    """The table grouped by prompt where the trainer's names are one for each answer and its advantages prove that it did
    not group by them."""
    apart = advantages.split(table)
    if apart is None or apart.broken < _MOST * max(apart.prompts, 1):
        return table
    found = advantages.by_prompt(table)
    compared = advantages.compare(found)
    return found if compared is not None and compared.kind in ("group", "masked", "rescaled") else table


def _of_live_groups(table: Rollouts, logged: Column) -> Fit | None:
    """How the groups whose rewards differ fit the log, as a trainer that drops the others before it logs makes them."""
    if not table.dead.any() or table.dead.all():
        return None
    inside = table.group >= 0
    live = inside.copy()
    live[inside] = ~table.dead[table.group[inside]]
    found = chosen(table.only(live), logged)
    return found if found.agrees and len(found.rows) >= _LEAST else None


def _without_evaluation(table: Rollouts, first: bool) -> Rollouts | None:
    """The table with single answers beside groups taken as held-out; None where there are no such.

    A trainer's reward function is called for evaluation too and saves both alike. An evaluation draws one answer for each
    prompt; where the prompt is also one of the batch, its answer stands before those of the group (``first``) or after.
    """
    sizes = table.size
    if not len(sizes) or table.held_out.any():
        return None
    usual = int(np.bincount(sizes, weights=sizes.astype(float)).argmax()) if sizes.max() > 1 else 1
    extra = np.bincount(sizes, weights=sizes.astype(float), minlength=usual + 2)
    if usual < 2 and extra[2:].any():
        usual = int(extra[2:].argmax()) + 2
    if usual < 2 or not (sizes == 1).any():
        return None
    inside = np.flatnonzero(table.group >= 0)
    size, place = sizes[table.group[inside]], _places(table)[inside]
    held = np.zeros(len(table), dtype=np.bool_)
    held[inside] = (size == 1) | ((size > usual) & ((place < size - usual) if first else (place >= usual)))
    if not held.any() or held.all():
        return None
    _, group = np.unique(2 * table.group + held, return_inverse=True)
    group = np.where(table.group < 0, -1, group - bool((table.group < 0).any()))
    return replace(table, held_out=held, group=_in_order(group.astype(np.int64)))


def _places(table: Rollouts) -> Ints:
    """(n,) which answer of its group each row is, from 0, in file order."""
    order = np.argsort(table.group, kind="stable")
    starts = np.flatnonzero(np.diff(table.group[order], prepend=-2))
    place = np.empty(len(table), dtype=np.int64)
    place[order] = np.arange(len(table)) - np.repeat(starts, np.diff(np.append(starts, len(table))))
    return place


def _in_order(group: Ints) -> Ints:
    """Numbers of groups without gaps, -1 left as it is."""
    inside = group >= 0
    out = np.full(len(group), -1, dtype=np.int64)
    out[inside] = np.unique(group[inside], return_inverse=True)[1]
    return out


def _akin(table: Rollouts, logged: Column, parts: Mapping[str, Column]) -> str:
    """Why answers with another total may be those of the log all the same; empty where nothing speaks for it.

    Weights, a penalty or a rescaling that the files do not hold change the total and leave a part, or the moves from row
    to row. Weights of several parts are unknown as long as the rows are too few to tell them.
    """
    for name in table.parts.keys() & parts.keys():
        of_part = replace(table, reward=table.parts[name])
        found = chosen(of_part, parts[name])
        varied = float(np.ptp(parts[name].values)) > 0
        if varied and found.agrees and len(found.rows) >= _LEAST:
            return f"their part {name} is the logged one"
    for shift, at, place in _shared(table, logged):
        count = np.bincount(place)
        if len(count) <= len(table.parts) + _LEAST and len(table.parts) > 1 and not table.parts.keys() & parts.keys():
            return "the weights of their parts are not known"
        mean = np.bincount(place, table.reward[at]) / count
        two = np.diff(logged.values[np.searchsorted(logged.steps, np.unique(table.step[at] + shift))])
        one = np.diff(mean)
        if len(count) < _ROWS or not np.isfinite(one).all() or one.std() == 0 or two.std() == 0:
            continue
        r = float(np.corrcoef(one, two)[0, 1])
        if np.arctanh(min(r, 0.999999)) * np.sqrt(len(one) - 3.0) / np.sqrt(1.5) > 3.0:
            return "both move together from row to row"
    return ""


def _shard(table: Rollouts, logged: Column) -> tuple[int, int] | None:
    """(shift, rows compared) where the saved answers look like a sample of each batch, as one process of several saves.

    Differences from row to row, which know no common trend, must correlate (z of Fisher's transform above 3, the best of
    three shifts), and the means must be as near as a sample's are. None where they are not.
    """
    best: tuple[float, int, int] | None = None
    for shift, at, place in _shared(table, logged):
        reward, count = table.reward[at], np.bincount(place)
        if len(count) < _ROWS or not np.isfinite(reward).all():
            continue
        mean = np.bincount(place, reward) / count
        error = np.sqrt(np.maximum(np.bincount(place, (reward - mean[place]) ** 2), 1e-12) / count**2)
        values = logged.values[np.searchsorted(logged.steps, np.unique(table.step[at] + shift))]
        near = float(np.median(np.abs(values - mean) / error)) < 1.5
        one, two = np.diff(mean), np.diff(values)
        if not near or one.std() == 0 or two.std() == 0:
            continue
        r = float(np.corrcoef(one, two)[0, 1])
        z = float(np.arctanh(min(r, 0.999999))) * np.sqrt(len(one) - 3.0) / np.sqrt(1.5)  # differences share a row
        if z > 3.0 and (best is None or z > best[0]):
            best = z, shift, len(count)
    return None if best is None else best[1:]


# ---------------------------------------------------------------- weights that nobody stated


def _weighed(table: Rollouts, logged: Column) -> tuple[Rollouts, Fit, str] | None:
    """The table with the reward that weights of its parts make out of them, where they make the logged one exactly.

    A trainer that saves parts unweighted leaves the total to the settings; the log's rows give the weights by least
    squares when there are more rows than parts. None where no weights do.
    """
    names = [name for name, values in table.parts.items() if np.isfinite(values).any()]
    if not names:
        return None
    parts = np.column_stack([np.nan_to_num(table.parts[name]) for name in names])
    for shift, at, place in _shared(table, logged):
        count = np.bincount(place)
        means = np.column_stack([np.bincount(place, parts[at, k]) for k in range(len(names))]) / count[:, None]
        steps = np.unique(table.step[at] + shift)
        values = logged.values[np.searchsorted(logged.steps, steps)]
        varies = np.ptp(means, axis=0) > 1e-9
        if len(steps) < len(names) + _LEAST or not varies.any() or not np.isfinite(means).all():
            continue  # LAPACK does not return from an infinity
        weights = np.zeros(len(names))
        weights[varies] = np.linalg.lstsq(means[:, varies], values, rcond=None)[0]
        weighed = replace(table, reward=parts @ np.round(weights, 4))
        found = fit(weighed, logged, shift)
        if found.agrees and len(found.rows) >= len(names) + _LEAST:
            told = ", ".join(f"{name} {weight:.4g}" for name, weight in zip(names, weights, strict=True))
            return weighed, found, f"weights of the saved parts of the reward follow from the log: {told}"
    return None


def _shared(table: Rollouts, logged: Column) -> Iterator[tuple[int, Flags, Ints]]:
    """For each shift the training rows whose step is a logged row, and the number of that step among them."""
    for shift in (0, 1, -1):
        at = ~table.held_out & np.isin(table.step + shift, logged.steps)
        if at.any():
            yield shift, at, np.unique(table.step[at], return_inverse=True)[1].astype(np.int64)
