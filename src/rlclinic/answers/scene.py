"""What the features of rewarded answers are judged against: how answers are paid, what they end in, how they fit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from rlclinic.answers.features import Seen, attachment, seen
from rlclinic.answers.finals import agrees, right_one
from rlclinic.answers.phrases import is_spaced
from rlclinic.answers.sample import Sample
from rlclinic.rollouts import Flags, Floats
from rlclinic.stats.contrast import Outcome, Results, course, prepare, tally


class Evidence:
    """Numbers that evidence is held against. All are ours; each says why."""

    CONFLICT = 0.25
    """Pairs of paid answers to one prompt with different results: verifiers of one right result leave next to none."""
    TIMES = 3.0
    """How many times as often as among paid answers without the feature."""
    AGREE = 0.06
    """Conflict up to which pay is taken to follow the result (results are written in many ways)."""
    WRONG = 0.25
    """Paid answers whose result is not the known right one; the reading of results errs less often where it works."""
    RELIABLE = 0.8
    """Share of answers with the right result that must be paid before results and truths are trusted at all."""
    QUESTIONS = 8
    """Prompts behind a conflict."""
    ROWS = 20
    """Answers behind a share."""
    SURE = 0.95
    """Pay that honest answers of a good policy reach; an exploit must be shown to exceed it."""
    DOMINATES = 0.9
    """Pairs of one group in which the answer with the feature is paid more: what goes along with quality reaches 0.8."""
    RARE = 0.15
    """Share of answers up to which something counts as rare."""
    TAKES_OVER = 0.3
    """Rise of the share of answers of what dominates."""
    MUCH = 0.2
    """Share of the reward's range that what dominates brings."""
    COMMON = 0.2
    """Share of answers from which something is common."""
    EFFECT = 0.1
    """Share of the reward's range that matters."""
    Q = 0.01
    """As for every effect of the contrast."""
    LOST = 0.1
    """Fall of the share of comparisons in which answers fit their own prompt best."""


_BESIDE = re.compile(
    r"format|style|length|\blen|(^|_)tags?|xml|json|struct|penal|bonus|lang|repet|overlong|count|brev|concis|think|cit(e|ation)"
    r"|tool_?(use|call)|(^|_)int_",
    re.I,
)
"""Parts of a reward that are about form, by their names."""


@dataclass(frozen=True, eq=False)
class Scene:
    """What all features are judged against: how answers are paid, what they end in, how they fit their prompts."""

    looked: Sample
    outside: str
    """What the held-out score does: ``falling``, ``flat``, ``follows`` or ``unknown``."""
    total: Floats
    """(n,) the reward, 0..1 over its range."""
    task: Floats | None
    """(n,) the parts of the reward for the task, 0..1; None where these are not told apart."""
    pay: Floats
    """(n,) what evidence is read from: the task where it varies, else the total."""
    paid: Flags
    two_valued: bool
    upper: Flags
    """(n,) paid, or where pay is no yes or no, paid more than half of the answers of the window."""
    seen: Seen
    results: Results
    outcome: Outcome
    marks: Floats
    right: Flags
    """(n,) the result is the known right one."""
    known: Flags
    """(n,) result and right one are known, and knowing it tells who is paid."""
    attached: Floats
    """(n,) see ``features.attachment``; of paid answers."""
    fit: tuple[float, float]
    """Mean of it in the first and the last third."""
    detached: bool
    conflict_of_paid: float
    task_falls: bool
    per_window: Floats
    worth: Floats | None
    """(n,) how right each answer is, apart from any bonus; None where that cannot be told."""
    good: Flags
    """(n,) right, by ``worth``."""
    right_rise: bool
    span: float
    """The range of the reward, in its own units."""
    pays: str
    """What of the reward the ``paid`` have, in words."""

    @staticmethod
    def of(looked: Sample, outside: str) -> Scene:
        total = _scaled(looked.reward)
        task = _task(looked)
        pay = total if task is None else task
        paid, two = _paid(pay)
        if two:
            pay = paid.astype(np.float64)
        least = max(8, looked.n // 100)
        visible = seen(looked.texts, looked.prompt, least)
        spaced = is_spaced([text.answer for text in looked.texts])
        attached = attachment(looked.texts, looked.prompt, looked.window, _some(paid), spaced=spaced)
        fit, detached = _fit(looked, attached)
        told, right = _right(looked, visible)
        results = Results.of_answers(looked.prompt, visible.result)
        trusted = int(right.sum()) >= Evidence.ROWS and paid[right].mean() >= Evidence.RELIABLE
        per_window = np.bincount(looked.window, minlength=looked.windows).astype(np.float64)
        worth = task if task is not None else right.astype(np.float64) if trusted and told.all() else None
        worth = pay if worth is None and two and len(np.unique(total)) > 2 else worth
        good = paid if worth is pay or worth is task else right
        falls = False
        if task is not None and looked.windows >= 3:
            level = np.bincount(looked.window, task, minlength=looked.windows) / per_window
            k = looked.windows // 3
            falls = bool(level[:k].mean() - level[-k:].mean() > 0.1)
        return Scene(
            looked=looked, outside=outside, total=total, task=task, pay=pay, paid=paid, two_valued=two,
            upper=paid if two else _upper(pay, looked), seen=visible,
            outcome=prepare(looked.group, total, looked.length),
            marks=_marks(looked.n), right=right, known=told & trusted,
            attached=attached, fit=fit, detached=detached,
            results=results, conflict_of_paid=results.conflict(paid).share,
            task_falls=falls, per_window=per_window, worth=worth, good=good,
            right_rise=course(tally(looked.window[good], n=looked.windows), per_window).rising,
            span=_span(looked.reward), pays=_in_units(looked, paid, task is not None),
        )  # fmt: skip

    def shares(self, rows: Flags) -> Floats:
        """(windows,) the share of answers in ``rows``."""
        return np.bincount(self.looked.window, rows.astype(float), minlength=self.looked.windows) / self.per_window

    @property
    def loose(self) -> Flags:
        """(n,) answers that fit another prompt as well as their own."""
        return np.asarray(np.nan_to_num(self.attached, nan=1.0) <= 0.5)


def _right(looked: Sample, visible: Seen) -> tuple[Flags, Flags]:
    """(n,) whether result and right result are known, and whether they agree."""
    told, right = np.zeros(looked.n, dtype=bool), np.zeros(looked.n, dtype=bool)
    known: dict[str, str] = {}
    for i, text in enumerate(looked.texts):
        if not text.truth or visible.result[i] < 0:
            continue
        if text.truth not in known:
            known[text.truth] = right_one(text.truth)
        truth = known[text.truth]
        if truth:
            told[i], right[i] = True, agrees(visible.results[int(visible.result[i])], truth, text.answer)
    return told, right


def _marks(n: int) -> Floats:
    """(n,) numbers in 0..1 whose sums tell sets of rows apart (the mixer of Steele and others 2014)."""
    x = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((x >> np.uint64(11)).astype(np.float64) / 2.0**53)


def _ends(reward: Floats) -> tuple[float, float]:
    """The ends of the reward; the outermost half percent do not stretch it."""
    values = np.unique(reward)
    low, high = (values[0], values[-1]) if len(values) <= 12 else np.quantile(reward, [0.005, 0.995])
    return float(low), float(high)


def _span(reward: Floats) -> float:
    low, high = _ends(reward)
    return max(high - low, 1e-12)


def _scaled(reward: Floats) -> Floats:
    """The reward over its range."""
    return np.asarray(np.clip((reward - _ends(reward)[0]) / _span(reward), 0.0, 1.0), dtype=np.float64)


def _paid(pay: Floats) -> tuple[Flags, bool]:
    """(n,) who is paid, and whether pay is all or nothing (beside small change, such as for the form)."""
    values = np.unique(np.round(pay, 6))
    if len(values) <= 12:
        gaps = np.diff(values)
        wide = int(len(gaps) - 1 - np.argmax(gaps[::-1])) if len(gaps) else 0
        if len(gaps) and gaps[wide] >= 0.45:
            return pay > (values[wide] + values[wide + 1]) / 2.0, True
        paid = pay >= 0.95
    else:
        paid = pay >= 0.75
    return (paid if paid.mean() >= 0.02 else pay >= np.quantile(pay, 0.9)), False


def _upper(pay: Floats, looked: Sample) -> Flags:
    middle, low = np.empty(looked.windows), np.empty(looked.windows)
    for w in range(looked.windows):
        inside = pay[looked.window == w]
        middle[w], low[w] = np.median(inside), inside.min()
    middle, low = middle[looked.window], low[looked.window]
    # Where the better half is all at the top, the middle itself belongs to it.
    return np.asarray(np.where(middle > low + 1e-9, pay >= middle, pay > middle))


def _of_task(looked: Sample) -> dict[str, Floats]:
    """The parts of the reward that are not about form; empty without parts of both kinds."""
    alive = {name: values for name, values in looked.parts.items() if np.isfinite(values).all() and np.ptp(values) > 0}
    task = {name: values for name, values in alive.items() if not _BESIDE.search(name)}
    return {} if len(task) == len(looked.parts) else task


def _task(looked: Sample) -> Floats | None:
    """The parts of the reward that are not about form, added up; None without parts of both kinds."""
    task = list(_of_task(looked).values())
    return _scaled(np.sum(task, axis=0)) if task else None


def _in_units(looked: Sample, paid: Flags, of_task: bool) -> str:
    """How much of what the ``paid`` have at least."""
    task = _of_task(looked) if of_task else {}
    least = np.sum(list(task.values()), axis=0)[paid] if task else looked.reward[paid]
    return f"{' + '.join(task) or 'reward'} {float(least.min(initial=math.inf)):.3g} or more"


def _some(paid: Flags, most: int = 1200) -> Flags:
    at = np.flatnonzero(paid)
    out = np.zeros(len(paid), dtype=bool)
    out[at[:: max(len(at) // most, 1)]] = True
    return out


def _fit(looked: Sample, attached: Floats) -> tuple[tuple[float, float], bool]:
    """Mean fit in the first and last third of the windows, and whether it fell beyond chance."""
    known = np.isfinite(attached)
    k = max(looked.windows // 3, 1)
    early, late = known & (looked.window < k), known & (looked.window >= looked.windows - k)
    if looked.windows < 3 or min(early.sum(), late.sum()) < Evidence.ROWS:
        return (math.nan, math.nan), False
    first, last = float(attached[early].mean()), float(attached[late].mean())
    error = 0.0
    for part in (early, late):
        _, group = np.unique(looked.group[part], return_inverse=True)
        means = np.bincount(group, attached[part]) / np.bincount(group)
        error += float(means.var()) / max(len(means) - 1, 1)
    return (first, last), first - last >= Evidence.LOST and first - last > 4.0 * math.sqrt(error)
