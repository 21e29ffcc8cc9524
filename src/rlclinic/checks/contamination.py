"""The held-out questions may not be held out.

## What you see
The configuration evaluates on the data that is trained on; or the held-out score is near its maximum at the first
evaluation, before anything was learnt, and stays there. Saved answers of both show exactly which prompts they share.

## Why it matters
A score on questions that were seen, in this run or before it, measures memory. It cannot show what the run learns, and
no claim should rest on it.

## When it is not a problem
An easy set gives the same picture as a known one: both leave no room to improve, and only a look at the questions tells
them apart. A score that starts low and rises beside the reward says nothing either way.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, Unexamined, check
from rlclinic.checks.sampled import overlap
from rlclinic.model import Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import late_mean


@check(page=__doc__, uses=["eval.score", "reward.mean"], since="0.2")
def contamination(run: Run, limits: Limits) -> Answer:
    exact = overlap(run, limits)
    if exact is not None and exact.severity is not None:
        return exact
    shared = _shared(run)
    first = float(run.steps[0]) if len(run.steps) else 0.0
    remedies = ("clean_held_out_set",)
    if shared is not None:
        same, says = shared
        return Finding(
            severity=Severity.CRITICAL if same else Severity.WARNING,
            says=says,
            numbers={},
            metrics=("eval.score",) if "eval.score" in run else (),
            onset=Onset(first, first, first),
            evidence=Evidence(1.0, None, "settings of the run"),
            remedies=remedies,
            would_decide=("the share of held-out questions that stand in the training data, word for word",),
        )
    held_out = run.get("eval.score")
    if held_out is None or len(held_out.finite) < limits["evaluations"]:
        if exact is not None:
            return exact
        return Unexamined(("eval.score",), "needs held-out scores from the start on, or the names of both data sets")
    score = held_out.finite
    begin, now = float(score.values[0]), late_mean(score.values)
    numbers, metrics = {"first": begin, "late": now}, ("eval.score",)
    early = len(run.steps) > 0 and score.steps[0] <= first + limits["early"] * float(np.ptp(run.steps))
    share = score.values.min() >= 0.0 and score.values.max() <= 1.0
    if not share or not early or begin < limits["high"] or now - begin > limits["room"] or now < limits["high"]:
        return Finding(None, f"the held-out score starts at {begin:.3g} and is {now:.3g} now", numbers, metrics)
    return Finding(
        severity=Severity.INFO,
        says=f"the held-out score is {begin:.3g} at its first evaluation (step {score.steps[0]:g}) and {now:.3g} on average "
        "late: it cannot show what the run learns; an easy set looks like one that was seen before",
        numbers=numbers,
        metrics=metrics,
        onset=Onset(*(float(score.steps[0]),) * 3),
        evidence=Evidence(begin, None, "first evaluation against a level"),
        remedies=remedies,
        would_decide=("the share of held-out questions that stand in the training data, word for word",),
    )


def _shared(run: Run) -> tuple[bool, str] | None:
    """Whether the settings name one data set for both (True) or evaluate on a training split (False), in words."""
    known = {name: str(run.knob(name) or "").strip() for name in ("train_data", "eval_data", "eval_split")}
    keys = {name: run.knobs[name].key for name in known if name in run.knobs}
    if known["train_data"] and known["train_data"] == known["eval_data"] and known["eval_split"] in ("", "train"):
        return True, f"training and evaluation read the same data ({keys['eval_data']} = {known['eval_data'][:80]})"
    if known["eval_split"] == "train":
        other = known["eval_data"] and known["eval_data"] != known["train_data"]
        what = "the training split of another set" if other else "the training split"
        return not other, f"the evaluation reads {what} ({keys['eval_split']} = train)"
    return None
