"""Text is decoded and encoded again between turns, so that other tokens are trained than were sampled.

## What you see
In runs of several turns the largest log-probability difference between sampler and trainer is enormous beside the mean:
nearly all tokens agree, a few are all but impossible for the trainer.

## Why it matters
The few carry most of the gradient. More turns bring more of them, and the update pushes tokens that nobody sampled.

## When it is not a problem
Single tokens of several nats are common where engines round differently; when all answers disagree a little, it is a
mismatch of the engines.
"""

import numpy as np

from rlclinic.checks.form import Answer, Limits, NotApplicable, Unexamined, check
from rlclinic.checks.readings import since
from rlclinic.checks.sampled import drifted, one_turn, several_turns
from rlclinic.model import Column, Evidence, Finding, Run, Severity
from rlclinic.stats.level import late, late_mean

_PAIRS = (("mismatch.logp_diff.mean", "mismatch.logp_diff.max"), ("mismatch.kl_k3", "mismatch.kl_k3_max"))


@check(page=__doc__, uses=["agent.turns.mean", *(name for pair in _PAIRS for name in pair)], since="0.2")
def token_drift_retokenisation(run: Run, limits: Limits) -> Answer:
    if not _several_turns(run):
        if run.partial and not one_turn(run):
            return Unexamined(
                ("agent.turns.mean",), "a piece of a log does not show whether the run takes several turns"
            )
        return NotApplicable("no sign of several turns in this run; an answer in one piece is not encoded again")
    pair = next((p for p in _PAIRS if len(run.paired(*p)[0])), None)
    if pair is None:
        return Unexamined(
            ("mismatch.logp_diff.max",), "mean and largest difference of sampler and trainer are not logged"
        )
    steps, mean, most = run.paired(*pair)
    mean, most = np.abs(mean), np.abs(most)
    wild = ((most > limits["nats"]) & (most > limits["ratio"] * mean)).astype(np.float64)
    share = late_mean(wild, least=1)
    severity = limits.grade("share", share)
    typical, largest = late(mean, least=1), late(most, least=1)
    words, samples = drifted(run)
    rows = Column(pair[1], run[pair[1]].key, steps, wild)
    return Finding(
        severity=severity,
        says=f"the largest gap of sampler and trainer is {largest:.3g} nats, the mean {typical:.2g} per token"
        + (
            f"; so in {share:.0%} of the late rows: a few tokens were never sampled{words}"
            if severity is not None
            else ""
        ),
        numbers={"share": share, "largest": largest, "mean": typical},
        metrics=(*pair, *(m for m in ("agent.turns.mean",) if m in run)),
        onset=since(rows, limits.at("share", Severity.WARNING), share, told=limits.at("share", severity))
        if severity is not None
        else None,
        evidence=Evidence(largest / max(typical, 1e-12), None, "rows whose largest gap dwarfs the mean"),
        remedies=("token_in_token_out", "tokenization_check", "roll_back"),
        would_decide=("token ids as sampled beside those trained, for ten conversations",) if severity else (),
        samples=samples,
    )


def _several_turns(run: Run) -> bool:
    if several_turns(run):
        return True
    turns, calls = run.get("agent.turns.mean"), run.get("agent.tool_calls.mean")
    if turns is not None and len(turns.finite):
        # Some logs count messages: one exchange then shows as two.
        return late(turns.finite.values, least=1) > 2.0
    if calls is not None and len(calls.finite):
        return late(calls.finite.values, least=1) > 0.0
    return (run.number("max_turns") or 1.0) > 1.0
