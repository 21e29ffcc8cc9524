"""The sampler and the trainer give other probabilities to the same tokens: the policy learns from text it did not write.

## What you see
The gap between the two (in probability, log-probability, KL, or in the weights that correct for it) is above what
rounding explains, or it climbs. Gradient norm and entropy follow, the reward falls last.

## Why it matters
The update is off-policy without knowing it, most of all on rare tokens; runs that look sound collapse within a few steps.

## When it is not a problem
Rounding of bf16 leaves a small gap that stays where it is. A larger constant one from the first row on mostly means that
temperature, top-p or the log-probability mode differ. Old samples differ by their age, and any gap grows with entropy.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import LEAST, bought, lasting
from rlclinic.checks.sampled import carried, told_by
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import held, late
from rlclinic.stats.shift import crossing

_MEASURES = {
    "mismatch.prob_diff.mean": ("prob_diff", "token probabilities of sampler and trainer differ by {:.3g}"),
    "mismatch.logp_diff.mean": ("logp_diff", "log-probabilities of sampler and trainer differ by {:.3g} nats a token"),
    "mismatch.kl_k3": ("kl", "the KL between sampler and trainer is {:.3g} nats per token (k3)"),
    "mismatch.kl": ("kl", "the KL between sampler and trainer is {:.3g} nats per token (k1)"),
    "mismatch.mult_prob_error": ("factor", "token probabilities of sampler and trainer differ by a factor {:.3g}"),
    "mismatch.chi2": ("chi2", "the chi-square distance between sampler and trainer is {:.3g}"),
    "mismatch.is.ess": ("samples", "one in {:.3g} samples counts after weighting for the sampler"),
    "mismatch.is.mean": ("weight", "the weights that correct for the sampler are a factor of {:.3g} away from 1"),
}
"""Metric, its own limit (estimators and units are never merged), words; the first among equal grades decides."""
_AGE = "offpolicy.staleness.mean"
_CURES = ("rollout_is_correction", "precision", "nucleus_truncation", "fp32_head", "sync_full_weights", "router_replay")


@check(page=__doc__, uses=[*_MEASURES, "grad.norm", "reward.mean", _AGE], since="0.2")
def train_inference_mismatch(run: Run, limits: Limits) -> Answer:
    if run.knob("sampler") is False:
        return NotApplicable("the trainer samples with its own weights and kernels; there is no second engine")
    courses = {name: course for name in _MEASURES if (course := _course(run, name)) is not None}
    if not courses:
        kind = "prob" if run.framework is not None and run.framework.name == "verl" else "logp"
        return Unexamined((f"mismatch.{kind}_diff.mean",), "nothing in this log compares the sampler with the trainer")
    levels = {name: _level(course) for name, course in courses.items()}
    name = max(levels, key=lambda n: limits.grade(_MEASURES[n][0], levels[n][0]) or 0)
    (limit, words), course, (worst, now) = _MEASURES[name], courses[name], levels[name]
    severity, seen = limits.grade(limit, worst), len(course) >= limits["rows"]
    rise = lasting(course, falling=False, level=limits["p_value"]) if seen and severity is not None else None
    least, more = limits.at(limit, Severity.INFO), limits.at(limit, Severity.WARNING)
    growth = rise.late / max(rise.early, 0.1 * least) if rise is not None else 1.0
    crossed = crossing(course.steps, course.values, least, above=True, last=False) or Onset(*course.steps[[0, 0, 0]])
    grown = rise is not None and growth >= limits["growth"]
    began = rise.onset if rise is not None and grown else crossed if severity is not None else None
    by_rise = grown and severity == Severity.INFO and worst > np.sqrt(least * more)
    grave_enough = seen and (by_rise or (severity or 0) >= Severity.WARNING)
    told = _harm(run, began, limits) if began is not None and grave_enough else ""
    severity = Severity.CRITICAL if told else Severity.WARNING if by_rise else severity
    if severity is not None and seen and not told:
        gain = bought(run, since=float(course.steps[0]))
        borne = limits.grade(limit, now) is None, gain is not None and gain.rising
        severity = min(severity, Severity.INFO if borne[0] else Severity.WARNING if borne[1] else severity)
    constant = began is not None and began.step <= course.steps[0] and growth < 1.5 and not told
    passed, (by_answer, samples, few) = severity is not None and worst > 1.5 * now, carried(run, limits)
    severity = max(severity or few, few) if few else severity
    now_is = words.format(now) + (f", up from {rise.early:.3g}" if rise is not None else "")
    says = told_by(run, name) + (words.format(worst) + f" at worst, {now:.3g} now" if passed else now_is)
    says += (_whence(run, constant) + by_answer if severity is not None else "") + told
    return Finding(
        severity,
        says,
        numbers={"late": now, "worst": worst, "growth": growth, **{_MEASURES[n][0]: v[1] for n, v in levels.items()}},
        metrics=(name, *(m for m in ("grad.norm", "reward.mean") if m in run)),
        onset=began,
        evidence=rise.sized(growth) if by_rise and rise is not None else Evidence(worst, None, "level against a limit"),
        remedies=("nucleus_truncation", "rollout_temperature", *_CURES[:2]) if constant else (*_CURES, "roll_back"),
        would_decide=("20 steps at learning rate 0: does the gap grow?",) if severity else (),
        samples=samples,
    )


def _course(run: Run, name: str) -> Column | None:
    """The measure row by row, in a form of which more is worse; None where it is absent or measures something else."""
    column = run.get(name)
    if column is None or column.status != "measured" or not len(column.finite) or "signed" in column.note:
        return None
    values = column.finite.values
    if name == "mismatch.is.ess":
        values = 1.0 / np.clip(values, 1e-6, 1.0)
    if name == "mismatch.is.mean":
        if "mismatch.is.min" in run and float(np.mean(run["mismatch.is.min"].zero)) >= 0.5:
            return None  # masked items count as 0: the mean then tells the share that is kept
        values = np.exp(np.abs(np.log(np.clip(values, 1e-6, 1e6))))
    if name == "mismatch.kl" and float(np.median(values)) < 0:
        values = -values  # the plain estimator has the sign of its order; its noise must not be folded up
    return Column(name, column.key, column.finite.steps, values)


def _level(course: Column) -> tuple[float, float]:
    """The highest level that held for a tenth of the run, and the present one; few rows have a present one only."""
    now, few = late(course.values, least=1 if len(course) < LEAST else 3), len(course) < LEAST
    beside = np.median(np.stack([np.roll(course.values, k) for k in (-1, 0, 1)]), axis=0)
    return max(now, 0.0 if few else float(held(np.minimum(course.values, beside))[0].max())), now


def _harm(run: Run, began: Onset, limits: Limits) -> str:
    """What followed the gap, in words: the reward fell, or the gradient grew; empty when neither did."""
    for metric, falling, words in (("reward.mean", True, "reward fell"), ("grad.norm", False, "gradient norm grew")):
        change = lasting(run[metric], falling=falling, level=limits["p_value"]) if metric in run else None
        if change is not None and change.onset.high >= began.low:
            lost = falling and -change.change > limits["lost"] * abs(change.early)
            if lost or (not falling and change.late > limits["gradient"] * max(change.early, 1e-12)):
                return f"; the {words} from {change.early:.3g} to {change.late:.3g}"
    return ""


def _whence(run: Run, constant: bool) -> str:
    """What else than the engines may stand behind the gap: settings that differ, or the age of the samples."""
    versions = late(run[_AGE].finite.values, least=1) if _AGE in run else 0.0
    aged = f"; samples {versions:.2g} policy versions old are part of it" if versions >= 1 else ""
    odd = [f", {k} is {v:g}" for k in ("top_p", "temperature") if (v := run.number(k)) is not None and v != 1]
    ask = f" from the first row on: do temperature, top-p or log-prob mode differ between the two{''.join(odd)}?"
    return (ask if constant else "") + aged
