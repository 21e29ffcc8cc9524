"""The policy in training judges itself, and the judgement moves with it.

## What you see
A part of the reward that the policy gives itself (its own vote, its own verdict) rises, while a measure that does not
change with the weights, such as an exact match or the held-out score, stays or falls. Saved answers show it exactly: a
text that comes again later earns another score.

## Why it matters
The meaning of the reward moves with the weights. Agreeing with oneself is the easiest thing to learn, and nothing in
the curve shows that the answers became no better.

## When it is not a problem
A frozen judge may be gamed, but it does not drift: fixed answers keep their score. A vote of the policy that rises
together with an outside measure is doing its work.
"""

import re

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import left_behind, sank
from rlclinic.checks.rescored import moved
from rlclinic.checks.rewards import task_parts
from rlclinic.model import Column, Component, Evidence, Finding, Run, Severity
from rlclinic.stats.coupling import FEWEST_EVALUATIONS, Coupling

_ITSELF = re.compile(r"self[-_ ]?(judg|reward|eval|grad|consist|score)|majority|consensus|ttrl|(^|_)votes?(_|$)", re.I)
_IN_WORDS = re.compile(r"\b(policy|self|itself|same model|actor)\b", re.I)
_JUDGE = re.compile(r"judge|grader|llm[-_ ]?as|critique|rubric", re.I)
"""A judge by name; that it is the policy itself the name does not say."""


@check(page=__doc__, uses=["reward.component.mean", "eval.score"], since="0.2")
def self_judge_drift(run: Run, limits: Limits) -> Answer:
    judge_is = run.knobs.get("judge")
    if judge_is is not None and _is_policy(str(judge_is.value), run):
        return _by_design(run, f"{judge_is.key} = {judge_is.value}", limits)
    exact = moved(run, limits)
    if exact is not None and (exact.severity is not None or not exact.evidence):
        return exact  # the same texts kept their score, or did not
    if not run.components:
        return Unexamined(("reward.component.mean",), "the parts of the reward are not logged, so no judge can be seen")
    own = [part for part in run.components.values() if _ITSELF.search(part.name)]
    judges = own or [part for part in run.components.values() if _JUDGE.search(part.name)]
    if not judges:
        return NotApplicable("no reward part is named after a judge or a vote of the policy")
    judge = max(judges, key=lambda part: len(part.mean.finite))
    outside = _outside(run, judge)
    if outside is None or run.excerpt or len(judge.mean.finite) < limits["rows"]:
        needed = f"needs a measure beside {judge.name} that does not move with the weights"
        return Unexamined(("eval.score",), f"{needed}: a held-out score with {FEWEST_EVALUATIONS} evaluations")
    column, name = outside
    signal = judge.mean.finite
    seen = left_behind(signal, column, limits["p_value"], held_out=column.metric == "eval.score")
    metrics = ("reward.component.mean", column.metric)
    if seen is None:
        return Finding(None, f"{judge.name} and {name} do not part", {}, metrics)
    return Finding(
        severity=_severity(seen, bool(own), judge, limits),
        says=f"{judge.name} rose by {seen.rise:.3g} while {name} {_course(seen, outside[0])}"
        + (": the policy scores itself" if own else "; whether the judge is the policy itself the log does not say"),
        numbers={"rise": seen.rise, "outside": seen.late},
        metrics=metrics,
        onset=seen.rollback,
        evidence=Evidence(seen.effect, seen.p_value, "an outside measure against the judge's", n=seen.m),
        remedies=("audit_verifier", "read_top_answers", "roll_back"),
        would_decide=("the judge's score of a fixed set of answers, every few steps: it must not move",),
    )


def _is_policy(judge: str, run: Run) -> bool:
    """Whether the configured judge is the model in training, by its name or in words."""
    model = str(run.knob("model") or "")
    return (bool(model) and judge == model) or _IN_WORDS.search(judge) is not None


def _by_design(run: Run, setting: str, limits: Limits) -> Finding:
    part = next((p for p in run.components.values() if _JUDGE.search(p.name) or _ITSELF.search(p.name)), None)
    weight = None if part is None or part.weight is None else abs(part.weight)
    heavy = weight is not None and weight > limits["weight"]
    return Finding(
        severity=Severity.CRITICAL if heavy else Severity.WARNING,
        says=f"the judge is the policy in training ({setting}): what its scores mean moves with the weights",
        numbers={} if weight is None else {"weight": weight},
        metrics=("reward.component.mean",) if run.components else (),
        evidence=Evidence(1.0, None, "configuration"),
        remedies=("freeze_judge", "anchor_answers"),
        would_decide=("the judge's score of a fixed set of answers, every few steps: it must not move",),
    )


def _outside(run: Run, judge: Component) -> tuple[Column, str] | None:
    score = run.get("eval.score")
    if score is not None and len(score.finite) >= FEWEST_EVALUATIONS:
        return score.finite, "the held-out score"
    for part in task_parts(run):
        if part is not judge and not _ITSELF.search(part.name) and not _JUDGE.search(part.name):
            return part.mean.finite, f"the part {part.name}"
    return None


def _severity(seen: Coupling, own: bool, judge: Component, limits: Limits) -> Severity:
    if not own:
        return Severity.INFO
    heavy = judge.weight is None or abs(judge.weight) > limits["weight"]
    return Severity.CRITICAL if seen.verdict == "falling" and heavy else Severity.WARNING


def _course(seen: Coupling, outside: Column) -> str:
    fell = seen.verdict == "falling"
    return sank(outside, seen.peak, seen.late) if fell else f"did not follow and ends near {seen.late:.3g}"
