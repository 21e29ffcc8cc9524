"""What tells a gap in the verifier from honest learning: evidence for and against one feature of rewarded answers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlclinic.answers.features import Feature, Seen, attachment, different, seen
from rlclinic.answers.finals import LAST, agrees, right_one
from rlclinic.answers.phrases import is_spaced
from rlclinic.answers.sample import Sample
from rlclinic.model import Severity
from rlclinic.rollouts import Flags, Floats, Ints
from rlclinic.stats.contrast import Course, Outcome, Results, course, prepare, tally


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
            task_falls=falls, per_window=per_window,
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


def _scaled(reward: Floats) -> Floats:
    """The reward over its range; the outermost half percent do not stretch it."""
    values = np.unique(reward)
    low, high = (values[0], values[-1]) if len(values) <= 12 else np.quantile(reward, [0.005, 0.995])
    return np.asarray(np.clip((reward - low) / max(float(high - low), 1e-12), 0.0, 1.0), dtype=np.float64)


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


def _task(looked: Sample) -> Floats | None:
    """The parts of the reward that are not about form, added up; None without parts of both kinds."""
    alive = {name: values for name, values in looked.parts.items() if np.isfinite(values).all() and np.ptp(values) > 0}
    task = [values for name, values in alive.items() if not _BESIDE.search(name)]
    if not task or len(task) == len(looked.parts):
        return None
    return _scaled(np.sum(task, axis=0))


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


class Judged(NamedTuple):
    """What was made of one feature. ``score`` puts features in order; 0 and less is nothing to tell."""

    severity: Severity
    score: float
    why: str
    evidence: tuple[str, ...]
    effect: float
    q: float
    course: Course

    def but(self, score: float, severity: Severity) -> Judged:
        return self._replace(score=score, severity=severity)


class Effect(NamedTuple):
    """Effect on the reward and on its part for the task, as shares of their range, with q-values."""

    total: float
    q: float
    task: float
    task_q: float


class _Pay(NamedTuple):
    """How answers with a feature are paid, beside those without it in the same groups."""

    share: float
    without: float
    hard: float
    """Pay of answers with it in groups where those without nearly all fail; NaN without such groups."""
    hard_rows: int
    hard_prompts: int
    dominates: float
    """Share of the pairs of one group, one answer with it and one without, in which the first is paid more (ties half)."""
    mixed: int
    """Groups in which answers with it and without are paid differently on average."""
    better: float
    """P-value of a sign test over those groups: with it is paid no better."""
    beyond: float
    """P-value of pay that is no higher than ``Evidence.SURE``."""


def weigh(
    scene: Scene, feature: Feature, rows: Flags, asked: Flags, effect: Effect, among: Flags | None = None
) -> Judged:
    """Judge the feature of ``rows`` (n,); ``among`` leaves answers out that something else explains."""
    looked = scene.looked
    own = rows if among is None else rows & among
    others = ~rows if among is None else ~rows & among
    moved = course(tally(looked.window, rows, n=looked.windows), scene.per_window)
    known = effect.q < Evidence.Q and effect.total >= Evidence.EFFECT / 2
    known = known or (effect.task_q < Evidence.Q and effect.task >= Evidence.EFFECT / 2)
    if not known and not moved.rising and feature.kind not in ("directed", "result", "rule"):
        return Judged(Severity.INFO, 0.0, "", (), effect.total, effect.q, moved)
    spreads = moved.rising and _among_paid(scene, rows).rising
    pay = _pay(scene, own, others)
    of_task = scene.task is not None
    size, q = (effect.task, effect.task_q) if of_task else (effect.total, effect.q)
    through_form = of_task and not (size > Evidence.EFFECT / 2 and q < Evidence.Q)
    tested = q < Evidence.Q and size >= Evidence.EFFECT
    speaks: list[str] = []
    why: list[str] = []
    cleared: list[str] = []
    _truth(scene, own, others, speaks, why, cleared)
    _agreement(scene, feature, own, others, speaks, why, cleared)
    wanted = float(asked[own].mean()) if own.any() else 0.0
    _pattern(scene, feature, own, pay, moved, size, tested and spreads, wanted, speaks, why, cleared)
    common = moved.rising or moved.last >= Evidence.COMMON
    stays = moved.last >= 0.5 * moved.highest and moved.last >= 0.03
    if (
        not speaks and scene.outside in ("falling", "flat") and tested and spreads and not cleared and not feature.form
        and moved.last - moved.first >= Evidence.COMMON and not through_form and effect.total >= Evidence.EFFECT
    ):  # fmt: skip
        speaks.append("heldout")
        why.append("it is paid more and spreads")
    strong = bool(speaks) and common and stays and not (through_form and "wrong" not in speaks)
    # What is tied to one length leaves nothing at equal length; the plain comparison within groups then stands.
    plainly = pay.better < 1e-4 and pay.share - pay.without >= Evidence.EFFECT
    shown = tested or (bool({"conflict", "wrong", "constant"} & set(speaks)) and plainly) or "grave" in speaks
    severity = Severity.INFO
    if strong and shown:
        severity = Severity.WARNING
        proven = bool({"wrong", "conflict"} & set(speaks)) and moved.last >= Evidence.COMMON
        if scene.outside == "follows" and not proven:
            severity = Severity.INFO
            why.append("the held-out score rises along")
        elif scene.outside in ("falling", "flat"):
            how = "falls meanwhile" if scene.outside == "falling" else "does not follow"
            why.append(f"the held-out score {how}")
            severity = Severity.CRITICAL if scene.outside == "falling" else severity
    if not (shown or (tested and effect.total > 0)) and severity == Severity.INFO and not _spreads(moved, pay):
        speaks = []
    score = _score(severity, speaks, cleared, feature, size, q, moved, pay, through_form)
    if not why:
        why.append(cleared[0] if cleared else "it goes along with reward, and nothing more is known")
    if through_form:
        why.append("it is paid through the parts of the reward for form")
    told = tuple(name for name in speaks if name != "grave")
    return Judged(severity, score, "; ".join(dict.fromkeys(why)), told, size, q, moved)


def _among_paid(scene: Scene, rows: Flags) -> Course:
    """The course of a feature among paid answers. What only shows that an answer is right keeps its share of them."""
    looked = scene.looked
    counts = np.bincount(looked.window[rows & scene.upper], minlength=looked.windows)
    totals = np.bincount(looked.window[scene.upper], minlength=looked.windows)
    return course(counts.astype(np.float64), totals.astype(np.float64))


def _spreads(moved: Course, pay: _Pay) -> bool:
    return moved.rising and pay.share > pay.without + 0.02


def _score(
    severity: Severity, speaks: list[str], cleared: list[str], feature: Feature, size: float, q: float,
    moved: Course, pay: _Pay, through_form: bool,
) -> float:  # fmt: skip
    """What is told first. Effect and rise of what has no evidence leave it behind everything that has."""
    known = math.isfinite(size) and math.isfinite(q)
    if cleared and not speaks:
        return 0.0
    if not speaks and not (known and q < Evidence.Q and size >= Evidence.EFFECT / 2):
        return 0.0
    rise = min(max(moved.last - moved.first, 0.0), 1.0)
    score = 1.0 + (min(size, 1.0) if known else 0.3) + 1.5 * rise + 0.5 * (pay.share - pay.without) + 0.5 * moved.last
    score += 3.0 * severity + 1.0 * len(speaks)
    if feature.form or through_form:
        score *= 0.5
    return max(score, 0.01)


def _pay(scene: Scene, rows: Flags, others: Flags) -> _Pay:
    looked, pay = scene.looked, scene.pay
    n = int(looked.group[-1]) + 1
    of = looked.group
    with_, without = np.bincount(of[rows], minlength=n), np.bincount(of[others], minlength=n)
    level = np.bincount(of[others], pay[others], minlength=n) / np.maximum(without, 1)
    hard = (with_ > 0) & (without > 0) & (level <= 0.25)
    at = rows & hard[of]
    paid = scene.paid if scene.two_valued or (scene.pay[scene.paid] >= 0.95).all() else scene.pay >= 0.7
    mean = np.bincount(of[rows], pay[rows], minlength=n) / np.maximum(with_, 1)
    counted = (with_ > 0) & (without > 0) & (np.abs(mean - level) > 1e-9)
    up = int((counted & (mean > level)).sum())
    k, m = int(paid[rows].sum()), int(rows.sum())
    return _Pay(
        share=float(paid[rows].mean()) if m else math.nan,
        without=float(paid[others].mean()) if others.any() else 0.0,
        hard=float(paid[at].mean()) if at.any() else math.nan,
        hard_rows=int(at.sum()),
        hard_prompts=different(looked.prompt[at]),
        dominates=math.nan if scene.two_valued else _auc(of, pay, rows, others),
        mixed=int(counted.sum()),
        better=_at_least(up, int(counted.sum()), 0.5),
        beyond=_at_least(k, m, Evidence.SURE),
    )


def _auc(group: Ints, pay: Floats, rows: Flags, others: Flags) -> float:
    """Over pairs within groups: how often ``rows`` are paid more than ``others``, ties half; NaN without pairs."""
    at = np.flatnonzero(rows | others)
    order = at[np.lexsort((pay[at], group[at]))]
    g, r, x = group[order], np.round(pay[order], 9), rows[order]
    # Numbers of others of the same group below and not above each row.
    beside = np.cumsum(~x)
    start = np.searchsorted(g, g, "left")
    base = np.concatenate([[0], beside])[start]
    key = g * 2.0 + r / 2.0
    below = np.concatenate([[0], beside])[np.searchsorted(key, key, "left")] - base
    upto = np.concatenate([[0], beside])[np.searchsorted(key, key, "right")] - base
    total = np.concatenate([[0], beside])[np.searchsorted(g, g, "right")] - base
    pairs = float(total[x].sum())
    return float((below[x] + upto[x]).sum() / 2.0 / pairs) if pairs else math.nan


def _at_least(k: int, n: int, share: float) -> float:
    """P(X >= k) of a binomial of n at ``share``; 1 where k is below what is expected."""
    if n == 0:
        return 1.0
    if k < share * n:
        return 1.0
    term = math.exp(
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(share)
        + (n - k) * math.log1p(-share)
    )
    total = term
    for i in range(k, n):
        term *= (n - i) / (i + 1) * share / (1.0 - share)
        total += term
        if term < 1e-12 * total:
            break
    return min(total, 1.0)


def _truth(scene: Scene, own: Flags, others: Flags, speaks: list[str], why: list[str], cleared: list[str]) -> None:
    at = own & scene.paid & scene.known
    n = int(at.sum())
    if n < Evidence.ROWS // 2:
        return
    wrong = float((~scene.right[at]).mean())
    beside = others & scene.paid & scene.known
    usual = float((~scene.right[beside]).mean()) if int(beside.sum()) >= Evidence.ROWS else 0.0
    if wrong >= Evidence.WRONG and wrong >= Evidence.TIMES * usual:
        speaks.append("wrong")
        why.append(
            f"{wrong:.0%} of its paid answers have another result than the known right one ({usual:.0%} of others)"
        )
    elif wrong <= 0.1 and n >= Evidence.ROWS:
        cleared.append("its paid answers have the known right result")


def _agreement(
    scene: Scene, feature: Feature, own: Flags, others: Flags, speaks: list[str], why: list[str], cleared: list[str]
) -> None:
    result, told = scene.seen.result, scene.seen.told
    mine, beside = own & scene.paid, others & scene.paid
    if not mine.any() or (result[mine] >= 0).mean() < 0.6:
        return
    # Results that were told in another way may differ in how they are written only.
    last = int((told[mine] == LAST).sum()) * 2 > int((result[mine] >= 0).sum())
    mine, beside = mine & ((told == LAST) == last), beside & ((told == LAST) == last)
    inside, found = scene.results.conflict(mine), scene.results.conflict(mine, beside)
    usual = scene.results.conflict(beside)
    worst = inside if inside.questions >= Evidence.QUESTIONS and inside.share > found.share else found
    if worst.questions < Evidence.QUESTIONS:
        return
    if worst.share >= Evidence.CONFLICT:
        if usual.questions >= Evidence.QUESTIONS and worst.share >= Evidence.TIMES * usual.share:
            speaks.append("conflict")
            why.append(
                f"answers to one prompt are paid with it whatever their result: {worst.share:.0%} of the pairs differ, "
                f"{usual.share:.0%} without it"
            )
    elif found.share <= Evidence.AGREE and _tells(scene, own):
        cleared.append("answers to one prompt that are paid with it agree in their result")


def _tells(scene: Scene, own: Flags) -> bool:
    """Whether results of unpaid answers differ from those of paid ones: pay then follows the result. Read from answers
    with the feature where enough of them are unpaid, else from all."""
    result = scene.seen.result
    key = scene.looked.prompt * (len(scene.seen.results) + 1) + result
    known = result >= 0
    for rows in (own, np.ones_like(own)):
        unpaid = rows & ~scene.paid & known
        if int(unpaid.sum()) >= Evidence.QUESTIONS:
            both = unpaid & np.isin(scene.looked.prompt, scene.looked.prompt[own & scene.paid])
            if int(both.sum()) >= Evidence.QUESTIONS:
                return bool(np.isin(key[both], key[rows & scene.paid]).mean() < 0.3)
    return False


def _pattern(
    scene: Scene, feature: Feature, own: Flags, pay: _Pay, moved: Course, size: float, takes_hold: bool, wanted: float,
    speaks: list[str], why: list[str], cleared: list[str],
) -> None:  # fmt: skip
    """Evidence from what it is and how regularly it pays."""
    looked = scene.looked
    n, prompts = int(own.sum()), different(looked.prompt[own])
    if wanted >= 0.5:
        cleared.append("its prompts speak of it")
    elif feature.kind == "directed" or (feature.kind == "structure" and not feature.plain):
        well = pay.share >= pay.without - 0.02
        if feature.kind == "directed" and not feature.plain and well and moved.last >= 0.05:
            speaks += ["directed", "grave"]
            why.append("it speaks to the verifier and is paid at least as well as other answers")
        elif takes_hold and not cleared:
            speaks.append("directed")
            why.append("it speaks to the verifier, is paid more and spreads")
    if cleared or feature.form:
        return
    several = prompts >= max(8, min(20, 0.2 * (int(looked.prompt.max()) + 1)))
    recall = float(own[scene.paid].mean()) if scene.paid.any() else 0.0
    foretells = n >= Evidence.ROWS and several and pay.share >= 0.97 and recall >= 0.97
    adrift = (scene.detached or scene.outside in ("falling", "flat")) and scene.conflict_of_paid >= Evidence.CONFLICT
    if feature.kind == "rule" and foretells and adrift:
        speaks.append("exact")
        why.append(f"this alone foretells the reward, and the results of paid answers to one prompt differ "
                   f"in {scene.conflict_of_paid:.0%} of the pairs")  # fmt: skip
    if feature.kind == "result" and several and pay.share >= 0.97 and moved.rising and moved.last >= 0.5:
        speaks.append("constant")
        why.append(f"one result is paid for {prompts} different prompts")
    if scene.two_valued:
        regular = pay.beyond < 0.01 and pay.hard >= 0.97
    else:
        regular = pay.dominates >= Evidence.DOMINATES and size >= Evidence.MUCH
        regular = regular and moved.first <= Evidence.RARE and moved.last - moved.first >= Evidence.TAKES_OVER
    enough = (
        pay.hard_rows >= Evidence.ROWS and pay.hard_prompts >= 8 if scene.two_valued else pay.mixed >= Evidence.ROWS
    )
    if regular and enough and several and takes_hold:
        speaks.append("sufficient")
        why.append(
            f"with it {pay.share:.1%} are paid, also where nearly all other answers to the prompt fail"
            if scene.two_valued
            else f"in {pay.dominates:.0%} of the pairs of one group the answer with it is paid more"
        )
    own_fit, other_fit = scene.attached[own], scene.attached[~own]
    own_fit, other_fit = own_fit[np.isfinite(own_fit)], other_fit[np.isfinite(other_fit)]
    loose = len(own_fit) >= Evidence.ROWS and float(own_fit.mean()) <= 0.65
    if (
        loose and len(other_fit) >= Evidence.ROWS and float(other_fit.mean()) >= float(own_fit.mean()) + 0.2
        and takes_hold and several
    ):  # fmt: skip
        speaks.append("detached")
        why.append(
            f"paid answers with it fit their own prompt best in {own_fit.mean():.0%} of comparisons, "
            f"others in {other_fit.mean():.0%}"
        )
    elif scene.detached and "exact" in speaks:
        speaks.append("detached")
        why.append(
            f"paid answers fit their prompts less and less (a fit of {scene.fit[0]:.0%}, then {scene.fit[1]:.0%})"
        )
