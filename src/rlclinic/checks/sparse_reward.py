"""Success is so rare that a few lucky groups carry the whole gradient.

## What you see
A success rate of a few percent, most groups without any right answer, a gradient norm with a heavy tail, and a reward
that moves in jumps rather than along a slope.

## Why it matters
Each update follows the one or two prompts that happened to be solved. Dividing by the spread inside the group gives a
single lucky answer the weight of the square root of the group size, so that chance steers the run.

## When it is not a problem
The success rate is rising: that is how hard tasks begin. When no answer at all is right, nothing is sparse, nothing is
learned: most groups are all wrong then. Answers that are cut before their result make any reward look sparse.
"""

from dataclasses import replace

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import bought, now
from rlclinic.model import SAVED, Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.evidence import mean_interval
from rlclinic.stats.groups import expected_zero_variance
from rlclinic.stats.level import held, middle


@check(
    page=__doc__,
    needs=["reward.success_rate|reward.mean"],
    uses=["group.zero_var_frac", "grad.norm", "length.truncated_frac"],
    since="0.2",
)
def sparse_reward(run: Run, limits: Limits) -> Answer:
    rate = _success(run)
    if rate is None:
        return Unexamined(
            ("reward.success_rate",), "the share of right answers is not logged and the reward has another scale"
        )
    if "kl.teacher" in run and not rate.values.any():
        return NotApplicable("the reward is never paid in this run; the objective is distillation")
    level = now(run, rate.values)
    severity = limits.grade("rate", level) if level > 0 else None
    live, cut = _late(run, "group.zero_var_frac"), _late(run, "length.truncated_frac")
    size = run.number("group_size")
    live = 1.0 - live if live is not None else 1.0 - expected_zero_variance(level, int(size)) if size else None
    tail = _tail(run)
    counted = rate.metric in ("reward.success_rate", "group.pass_rate_mean")
    what = "of answers are right" if counted else "of the attainable reward is earned"
    told = [f"{level:.2%} {what}"]
    if live is not None:
        told.append(f"{live:.0%} of groups carry all of the gradient")
    if tail is not None and tail >= limits["tail"] and severity is not None:
        told.append(f"the largest gradient norms are {tail:.1f} times the usual")
    if severity is not None:
        gain = bought(run, since=float(rate.steps[0]))
        recent = rate.values[len(rate) // 2 :]
        few = len(recent) < limits["rows"] or mean_interval(recent, sides="upper").high > limits.at(
            "rate", Severity.INFO
        )
        if few:
            severity = Severity.INFO
        elif gain is not None and gain.rising:
            severity = Severity.INFO
            told.append(gain.says)
        elif cut is not None and cut > limits["cut"]:
            severity = Severity.INFO
            told.append(f"{cut:.0%} are cut before their result")
        elif not _from_the_start(rate, limits):
            severity = Severity.INFO  # it was not rare before: that it fell is the finding
        elif live is not None and live < limits["live"]:
            severity = Severity.INFO  # next to none alive: that most groups are all wrong is the finding
    first = float(rate.steps[0])
    scaled = run.knob("scale_rewards") in (None, "group")
    cures = ("larger_groups", "easier_data", "larger_batch")
    return Finding(
        severity=severity,
        says="; ".join(told),
        numbers={
            "rate": level,
            **({} if live is None else {"live": live}),
            **({} if tail is None else {"tail": tail}),
        },
        metrics=tuple(m for m in (rate.metric, "group.zero_var_frac", "grad.norm") if m in run),
        onset=Onset(first, first, first) if severity is not None and severity > Severity.INFO else None,
        evidence=Evidence(level, None, f"mean of the last quarter of {len(rate)} rows; {rate.key}"),
        remedies=(*cures, "advantage_scaling") if scaled else cures,
        would_decide=("success rates by prompt: is it rare everywhere, or are a few prompts easy?",)
        if severity
        else (),
    )


def _success(run: Run) -> Column | None:
    """The share of right answers: as logged, or where a reward that is right or wrong lies in its range."""
    rate, reward, known = run.get("reward.success_rate"), run.get("reward.mean"), run.reward_range
    if rate is not None and len(rate.finite):
        return rate.finite
    counted = run.get("group.pass_rate_mean")
    if counted is not None and counted.key == SAVED and len(run.components) > 1:
        return counted.finite
    if reward is None or known is None or not len(reward.finite) or len(run.components) > 1:
        return None
    if "right-or-wrong" not in known.how and not (known.low.is_integer() and known.high.is_integer()):
        return None
    values = (reward.finite.values - known.low) / (known.high - known.low)
    return replace(reward.finite, values=values)


def _late(run: Run, metric: str) -> float | None:
    column = run.get(metric)
    return None if column is None or not len(column.finite) else now(run, column.finite.values)


def _tail(run: Run) -> float | None:
    """The held highest gradient norms over the usual one; None where neither means anything."""
    norm = run.get("grad.norm")
    if norm is None or len(norm.finite) < 20:
        return None
    usual = middle(norm.finite.values)
    return float(sorted(norm.finite.values)[-max(2, len(norm.finite) // 20)]) / usual if usual > 0 else None


def _from_the_start(rate: Column, limits: Limits) -> bool:
    return float(held(rate.values)[0].max()) <= 2 * limits.at("rate", Severity.INFO)
