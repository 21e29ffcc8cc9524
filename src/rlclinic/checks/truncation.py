"""Answers are cut by the length limit before they end.

## What you see
The share of answers at the limit is high; the longest answer equals the limit; answers that do end are much shorter.

## Why it matters
A cut answer seldom holds its result, so right reasoning earns nothing and the policy is taught to hurry, or nothing at
all when every answer of a group is cut.

## When it is not a problem
Answers that end with a stop string, or with another token than the tokenizer's end token, count as cut in TRL although
they are whole. Reward that rises all the same says so.
"""

import numpy as np

from rlclinic.checks.form import Limits, check
from rlclinic.checks.readings import bought, now, since
from rlclinic.model import Column, Evidence, Finding, Onset, Run, Severity
from rlclinic.stats.level import late_mean, lower_bound, trials_per_row
from rlclinic.stats.shift import longest_run

_LONGER = ("response_budget", "soft_overlong_penalty")
_NONE_ENDS = ("stop_tokens", "response_budget")


@check(page=__doc__, needs=["length.truncated_frac"], uses=["length.terminated.mean", "reward.mean"], since="0.1")
def truncation(run: Run, limits: Limits) -> Finding:
    cut = run["length.truncated_frac"].finite
    share = now(run, cut.values)
    rows = max(1, len(cut) // 3 if run.short else len(cut) // 4)
    answers = trials_per_row(cut.values)
    sure = lower_bound(share, rows * answers)
    severity = limits.grade("share", sure)
    gain = bought(run, since=float(cut.steps[0])) if severity is not None and not run.short else None
    begun = float(np.mean(cut.values[: max(1, len(cut) // 10)]))
    harmless = gain is not None and gain.rising and begun >= 0.8 * share
    episode = _episode(cut, limits) if severity is None and not run.short else None
    if episode is not None:
        return episode
    longest = run.get("length.response.max")
    short = _ends_before(run, longest) if severity is not None and longest is not None else None
    short = short or (_too_short(run) if severity is not None else None)
    if short is not None:
        return Finding(
            severity=Severity.INFO,
            says=f"{share:.0%} of answers count as cut, but {short}: they end, with another token than the end token",
            numbers={"share": share},
            metrics=("length.truncated_frac", "length.response.max"),
            evidence=Evidence(share, None, "longest answer against the configured limit"),
            remedies=("stop_tokens",),
        )
    began = (
        None
        if severity is None
        else since(cut, limits.at("share", Severity.WARNING), share, told=limits.at("share", severity))
    )
    ended = run.get("length.terminated.mean")
    limit = run.number("max_response_length")
    detail = ""
    whole = ended.finite.since(float(cut.steps[-rows])).values if ended is not None and len(cut) else ()
    if len(whole) and float(np.mean(whole)) > 0:
        detail = f"; answers that end take {np.mean(whole):.0f} tokens"
    if began is not None and began.step <= cut.steps[0] and share > 1.3 * begun:
        detail += f"; {begun:.0%} did from the first rows on, and the share rises"
    if limit:
        detail += f", limit {limit:.0f}" if detail else f"; limit {limit:.0f} tokens"
    return Finding(
        severity=severity,
        says=f"{share:.0%} of answers reach the length limit{detail}"
        + ("; the reward rises all the same" if harmless else ""),
        numbers={"share": share, "at_least": sure, "first": begun},
        metrics=tuple(
            m for m in ("length.truncated_frac", "length.response.mean", "length.terminated.mean") if m in run
        ),
        onset=began,
        evidence=Evidence(share, None, f"{rows} row{'s' * (rows > 1)} of about {answers} answers, Wilson lower bound"),
        # Where hardly any answer ever ended, a longer limit is a guess, and a penalty that all pay tells none apart.
        remedies=_NONE_ENDS if min(begun, share) >= limits["none_ends"] else _LONGER,
        would_decide=("20 prompts with four times the limit: do the answers end then?",) if severity else (),
    )


def _ends_before(run: Run, longest: Column) -> str | None:
    """The longest answer beside a configured limit that it does not come near, in words; else None."""
    limit = run.knobs.get("max_response_length")
    size = run.number("max_response_length")
    if limit is None or limit.key == longest.key or not size or not len(longest.finite):
        return None
    top = longest.finite.values
    most = float(top.max())
    if most == int(most) and float((top == most).mean()) >= 0.8:
        return None  # cut at another limit than the configured one
    return f"the longest takes {most:.0f} of {size:.0f} tokens" if most < 0.9 * size else None


def _too_short(run: Run) -> str | None:
    """Words for a mean length that is below what the cut answers alone would bring, were they as long as the longest."""
    _, mean, most = run.paired("length.response.mean", "length.response.max")
    _, cut, _ = run.paired("length.truncated_frac", "length.response.max")
    if not len(mean) or len(cut) != len(mean) or float(np.median(mean - 0.9 * cut * most)) >= 0:
        return None
    return f"their mean length of {np.median(mean):.0f} is too short for that beside a longest of {np.median(most):.0f}"


def _episode(cut: Column, limits: Limits) -> Finding | None:
    """A lasting stretch of cut answers that is over: worth knowing, since its steps taught the policy from fragments."""
    bound = limits["episode"]
    first, last, length = longest_run(cut.steps, cut.values >= bound)
    if length < max(5, 0.1 * len(cut)):
        return None
    inside = (cut.steps >= first) & (cut.steps <= last)
    return Finding(
        severity=Severity.WARNING,
        says=f"{cut.values[inside].mean():.0%} of answers reached the limit from step {first:g} to {last:g}; "
        f"{late_mean(cut.values):.0%} do now",
        numbers={"share": late_mean(cut.values), "episode": float(cut.values[inside].mean()), "rows": float(length)},
        metrics=("length.truncated_frac",),
        onset=Onset(first, first, first),
        evidence=Evidence(float(cut.values[inside].mean()), None, "longest stretch of rows above half"),
        remedies=_LONGER,
    )
