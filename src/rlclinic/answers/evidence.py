"""What tells a gap in the verifier from honest learning: evidence for and against one feature of rewarded answers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rlclinic.answers.bonus import Bonus, asks_for, bonus, may_be, of_a_form
from rlclinic.answers.features import Feature, different
from rlclinic.answers.finals import LAST
from rlclinic.answers.sample import Sample
from rlclinic.answers.scene import Evidence, Scene
from rlclinic.model import Severity
from rlclinic.rollouts import Flags, Floats, Ints
from rlclinic.stats.contrast import Course, course, tally


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
    _agreement(scene, own, others, speaks, why, cleared)
    wanted = float(asked[own].mean()) if own.any() else 0.0
    _pattern(scene, feature, own, pay, moved, size, tested and spreads, wanted, speaks, why, cleared)
    added = _bonus(scene, feature, own, others, moved, wanted)
    if added is not None:
        speaks.append("bonus")
        why.append(
            f"it adds {added.size:.3g} to the reward, in right answers ({added.right:+.3g}) as in wrong ones "
            f"({added.wrong:+.3g}), in {added.groups} comparisons of answers to one prompt that are equally right"
        )
        size, q = added.size / scene.span, math.nan
    common = moved.rising or moved.last >= Evidence.COMMON
    stays = moved.last >= 0.5 * moved.highest and moved.last >= 0.03
    if (
        not speaks and scene.outside in ("falling", "flat") and tested and spreads and not cleared and not feature.form
        and moved.last - moved.first >= Evidence.COMMON and not through_form and effect.total >= Evidence.EFFECT
    ):  # fmt: skip
        speaks.append("heldout")
        why.append("it is paid more and spreads")
    strong = bool(speaks) and common and stays and not (through_form and not {"wrong", "bonus"} & set(speaks))
    # What is tied to one length leaves nothing at equal length; the plain comparison within groups then stands.
    plainly = pay.better < 1e-4 and pay.share - pay.without >= Evidence.EFFECT
    shown = (
        tested
        or (bool({"conflict", "wrong", "constant"} & set(speaks)) and plainly)
        or "grave" in speaks
        or added is not None
    )
    severity = Severity.INFO
    if strong and shown:
        severity = Severity.WARNING
        proven = bool({"wrong", "conflict"} & set(speaks)) and moved.last >= Evidence.COMMON
        if scene.outside == "follows" and not proven:
            severity = Severity.INFO
            why.append("the held-out score rises along")
        elif speaks == ["bonus"] and scene.right_rise:
            severity = Severity.INFO
            why.append("right answers grow more frequent along")
        elif scene.outside in ("falling", "flat"):
            how = "falls meanwhile" if scene.outside == "falling" else "does not follow"
            why.append(f"the held-out score {how}")
            severity = Severity.CRITICAL if scene.outside == "falling" else severity
    if not (shown or (tested and effect.total > 0)) and severity == Severity.INFO and not _spreads(moved, pay):
        speaks = []
    score = _score(severity, speaks, cleared, feature, size, q, moved, pay, through_form)
    if not speaks and not _telling(looked, feature, own):
        score = 0.0
    if not why:
        why.append(cleared[0] if cleared else "it goes along with reward, and nothing more is known")
    if through_form:
        why.append("it is paid through the parts of the reward for form")
    told = tuple(name for name in speaks if name != "grave")
    return Judged(severity, score, "; ".join(dict.fromkeys(why)), told, size, q, moved)


def _bonus(scene: Scene, feature: Feature, own: Flags, others: Flags, moved: Course, wanted: float) -> Bonus | None:
    """What a phrase adds that no prompt asks for, that was rare and took over; None for all else."""
    worded = feature.kind in ("phrase", "opening", "ending") and may_be(feature.quoted)
    if scene.worth is None or wanted >= 0.5 or not (worded or feature.kind == "directed"):
        return None
    if not moved.rising or scene.shares(own)[0] > Evidence.RARE or moved.last - moved.first < Evidence.TAKES_OVER:
        return None
    looked, at = scene.looked, own | others
    if asks_for(looked.texts, own, feature.quoted) or (worded and of_a_form(looked.texts, own, feature.quoted)):
        return None
    return bonus(looked.group[at], scene.worth[at], scene.good[at], looked.reward[at], scene.span, own[at])


def _among_paid(scene: Scene, rows: Flags) -> Course:
    """The course of a feature among paid answers. What only shows that an answer is right keeps its share of them."""
    looked = scene.looked
    counts = np.bincount(looked.window[rows & scene.upper], minlength=looked.windows)
    totals = np.bincount(looked.window[scene.upper], minlength=looked.windows)
    return course(counts.astype(np.float64), totals.astype(np.float64))


def _telling(looked: Sample, feature: Feature, rows: Flags) -> bool:
    """Whether what nothing speaks against is worth a look: no piece of single right answers, as numbers and codes are."""
    asked = int(looked.prompt.max()) + 1
    if different(looked.prompt[rows]) < min(max(8, min(20, 0.2 * asked)), max(3, 0.5 * asked)):
        return False
    return feature.kind not in ("phrase", "ending", "opening") or sum(map(str.isalpha, feature.quoted)) >= 2


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


def _agreement(scene: Scene, own: Flags, others: Flags, speaks: list[str], why: list[str], cleared: list[str]) -> None:
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
