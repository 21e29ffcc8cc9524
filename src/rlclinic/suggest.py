"""Draft a table of a user's own names from a log: what each unknown key resembles, as comments where that is not certain."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from rlclinic import names
from rlclinic.checks.metric_not_logged import VITAL
from rlclinic.model import Column, Run
from rlclinic.names.rows import LONGEST
from rlclinic.readers import Survey, survey

ALIKE = 0.45
"""Share of common words, rare ones counting more, from which on a known key is offered (ours: below it most are noise)."""
MOST_KEYS = 400
"""Most unknown keys drafted (ours: the widest real log has about 300)."""
MOST_SETTINGS = 40
"""Most settings offered (ours: a whole configuration has hundreds, and few are of use)."""
TOGETHER = 0.9
"""Correlation of step-to-step changes from which on two series are said to move alike (ours)."""
PERCENT = 10.0
"""Highest value from which a share is taken to be in percent (ours: below it a count or a length is as likely)."""
COMMON = 20
"""Common steps that such a comparison needs (ours)."""
_SOUGHT = {**VITAL, "kl.ref": "KL to reference", "optim.lr": "learning rate", "clip.frac": "clip fraction"}
"""What is told to be missing: the vital series, and three that many checks use."""

_WORDS = {
    **dict.fromkeys(("avg", "average", "meaned"), "mean"),
    **dict.fromkeys(("len", "lens", "lengths"), "length"),
    **dict.fromkeys(("rew", "rewards", "score", "scores", "rwd"), "reward"),
    **dict.fromkeys(("completion", "completions", "responses", "answer", "answers", "output", "gen"), "response"),
    **dict.fromkeys(("ent",), "entropy"),
    **dict.fromkeys(("gradient", "gradients", "grads"), "grad"),
    **dict.fromkeys(("trunc", "truncation"), "truncated"),
    **dict.fromkeys(("clipped", "clipping"), "clip"),
    **dict.fromkeys(("fraction", "rate", "share", "pct", "percent", "percentage", "ratio"), "frac"),
    **dict.fromkeys(("stdev", "stddev", "sigma"), "std"),
    **dict.fromkeys(("reference",), "ref"),
    **dict.fromkeys(("maximum", "highest", "longest"), "max"),
    **dict.fromkeys(("minimum", "lowest", "shortest"), "min"),
    **dict.fromkeys(("adv", "advantages"), "advantage"),
    **dict.fromkeys(("prompts",), "prompt"),
    **dict.fromkeys(("groups",), "group"),
}
"""Words that say the same in names of metrics."""
_USUAL: tuple[tuple[str, str, float], ...] = (
    ("return mean", "reward.mean", 20.0),
    ("ret mean", "reward.mean", 20.0),
    ("r mean", "reward.mean", 20.0),
    ("return std", "reward.std", 20.0),
    ("ret std", "reward.std", 20.0),
    ("r std", "reward.std", 20.0),
    ("h", "entropy.mean", 15.0),
    ("eta", "optim.lr", 0.1),
    ("alpha", "optim.lr", 0.01),
    ("stepsize", "optim.lr", 0.1),
    ("grad norm", "grad.norm", math.inf),
    ("gn", "grad.norm", math.inf),
    ("kld", "kl.ref", math.inf),
    ("cf", "clip.frac", 1.0),
    ("response tokens", "length.response.mean", math.inf),
    ("response toks", "length.response.mean", math.inf),
    ("response tok", "length.response.mean", math.inf),
    ("mean toks", "length.response.mean", math.inf),
    ("cut frac", "length.truncated_frac", 100.0),
    ("cut response", "length.truncated_frac", 100.0),
    ("overlong", "length.truncated_frac", 100.0),
    ("capped frac", "length.truncated_frac", 100.0),
    ("limit frac", "length.truncated_frac", 100.0),
    ("dead group", "group.zero_var_frac", 100.0),
    ("degenerate group", "group.zero_var_frac", 100.0),
    ("flat group", "group.zero_var_frac", 100.0),
    ("uniform group", "group.zero_var_frac", 100.0),
    ("dead frac", "group.zero_var_frac", 100.0),
    ("solved frac", "reward.success_rate", 100.0),
    ("solve frac", "reward.success_rate", 100.0),
    ("win frac", "reward.success_rate", 100.0),
    ("correct frac", "reward.success_rate", 100.0),
    ("vloss", "value.loss", math.inf),
    ("vf loss", "value.loss", math.inf),
    ("pg loss", "loss.policy", math.inf),
    ("pi loss", "loss.policy", math.inf),
    ("tps", "perf.throughput", math.inf),
)
"""Abbreviations usual in loops of people's own: words that a key holds, what they mean, the highest value that fits."""
USUAL = 0.75
"""Likeness that such an abbreviation counts as (ours: never certain, but more than half of the words of another key)."""
_HELD_OUT = frozenset(
    {"eval", "val", "valid", "validation", "test", "bench", "benchmark", "heldout", "holdout", "aime", "gsm8k", "mmlu"}
)
_STATISTICS = frozenset({"mean", "std", "min", "max", "frac", "sum", "num", "n", "count", "total", "steps", "step"})
"""Words that say which number of a quantity is meant, not which quantity; alone they make nothing alike."""
_IDLE = frozenset({"train", "training", "trainer", "metrics", "metric", "stats", "log", "the", "of", "per", "in"})
_COUNTERS = frozenset({"step", "steps", "iter", "iteration", "it", "update", "updates"})
"""Words of a key that may count the training steps."""
_NEVER = frozenset({"run.summary", "progress.step", "reward.std_unresolved", "reward.component.mean", "eval.other"})
"""Metrics that no key is taken for: what is no series of its own, and the step, which ``step`` names."""
_JOINED = (
    ("learning rate", "lr"),
    ("gradnorm", "grad norm"),
    ("gnorm", "grad norm"),
    ("clipfrac", "clip frac"),
    ("seqlen", "seq length"),
)


@dataclass(frozen=True)
class Guess:
    """One unknown key: what it may be (best first), whether that is certain, and what its values look like."""

    key: str
    metrics: tuple[str, ...]
    sure: bool
    scale: float
    seen: str


def suggest(
    sources: Sequence[str | Path],
    *,
    framework: str | None = None,
    config: Sequence[str | Path] = (),
    stdin: bytes | None = None,
    run: str | None = None,
) -> str:
    """A names file (TOML) for ``sources``, as ``--names`` takes it; the arguments and errors are those of ``read``.

    A line stands for itself only when its key says the same words as a known one, its values are possible, and no other
    key has as good a claim; every other line is a comment.
    """
    seen = survey(sources, framework=framework, config=config, stdin=stdin, run=run)
    counters = _named_counters(seen)
    guesses = [guess for guess in guessed(seen) if guess.key not in counters]  # each is offered as the step
    return "\n".join((*_head(seen, guesses), "", *_metrics(guesses), "", *_settings(seen))) + "\n"


def guessed(seen: Survey) -> list[Guess]:
    """A guess for every unknown key that holds numbers, in the order of the log."""
    taken = {*seen.run.columns, *(["eval.score"] if seen.run.evaluations else [])}
    ranked: dict[str, list[tuple[float, str, float]]] = {}
    drafted = [(key, column) for key, column in seen.unknown.items() if not key.startswith("_")]
    for key, column in drafted[:MOST_KEYS]:
        if key in seen.unsure:
            ranked[key] = [(0.0, metric, 1.0) for metric in seen.unsure[key]]
            continue
        high = float(column.finite.values.max()) if len(column.finite) else 0.0
        fits = ((score, metric, _scale(column, metric)) for metric, score in _alike(key, high))
        ranked[key] = [(score, metric, scale) for score, metric, scale in fits if scale is not None][:3]
    known = [len(column) for metric, column in seen.run.columns.items() if not metric.startswith("eval.")]
    rows = max(known or [len(column) for column in seen.unknown.values()], default=0)
    parts = Counter(_place(key) for key in ranked if _part_like(key))
    claims = Counter(metric for found in ranked.values() for score, metric, _ in found[:1] if score >= 1)
    guesses = []
    for key, found in ranked.items():
        column = seen.unknown[key]
        score, metric, scale = found[0] if found else (0.0, "", 1.0)
        sure = score >= 1 and scale == 1.0 and claims[metric] == 1 and metric not in taken and len(column.finite) > 0
        told = [metric for _, metric, _ in found] or _by_values(column, taken, rows)
        several = _part_like(key) and parts[_place(key)] > 1
        if several or ("reward" in words(key) and words(key) - _STATISTICS - _weight().keys()):
            # A reward with a word of its own is more likely a part, the more so where the whole is known or it has sisters.
            told = [metric for metric in told if metric != "reward.component.mean"]
            told.insert(0 if several or {"reward.mean"} & taken else len(told), "reward.component.mean")
            sure = False
        guesses.append(Guess(key, tuple(told), sure, scale, _seen(column, seen.run)))
    return guesses


def _part_like(key: str) -> bool:
    """Whether a key names a reward and, below it, something of its own (``score/fmt``)."""
    above, _, last = key.rpartition("/")
    own = words(last) - _STATISTICS - {"reward"}
    return bool(above and own and "reward" in words(above))


def _place(key: str) -> str:
    return key.rpartition("/")[0]


# ---------------------------------------------------------------- by name


def words(name: str) -> frozenset[str]:
    """The words of a key or a name in one spelling, without those that say nothing."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name[-LONGEST:]).lower()
    text = " ".join(re.split(r"[^a-z0-9]+", text))
    for before, after in _JOINED:
        text = text.replace(before, after)
    found = {_WORDS.get(word, word) for word in text.split()}
    return frozenset(found - _IDLE) or frozenset(found)


@cache
def _known() -> tuple[tuple[frozenset[str], str], ...]:
    """(words, metric) of every key of every framework and of every canonical name."""
    pairs: dict[tuple[frozenset[str], str], None] = {}
    for framework in names.frameworks():
        for key, rows in names.load(framework).exact.items():
            pairs.update({(words(key), row.name): None for row in rows if not row.component and row.name not in _NEVER})
    for metric in names.metrics():
        if metric in _NEVER:
            continue
        pairs[words(metric), metric] = None
        pairs[words(names.metric(metric).title), metric] = None
    return tuple(pair for pair in pairs if pair[0])


@cache
def _weight() -> Mapping[str, float]:
    return _rarity(_known())


def _rarity(pairs: Sequence[tuple[frozenset[str], str]]) -> dict[str, float]:
    """How much each word tells: the rarer, the more."""
    count = Counter(word for known, _ in pairs for word in known)
    return {word: math.log(1 + len(pairs) / n) for word, n in count.items()}


def _likeness(mine: frozenset[str], theirs: frozenset[str], weight: Mapping[str, float]) -> float:
    """Share of common words. A further word of mine counts half: it may be that of a place or a project."""
    shared = mine & theirs
    if not shared - _STATISTICS:
        return 0.0
    common = sum(weight[word] for word in shared)
    beyond = sum(0.5 * weight[word] if word in weight else 0.5 for word in mine - theirs)
    return common / (sum(weight[word] for word in theirs) + beyond)


def _alike(key: str, high: float) -> list[tuple[str, float]]:
    """(metric, share of common words) for the metrics whose keys resemble ``key``, best first; 1 means the same words.

    A share of 1 is only given where no other metric has it too. ``high`` is the highest value, which an abbreviation
    must allow.
    """
    mine = words(key)
    weight = _weight()
    best: dict[str, float] = {}
    for theirs, metric in _known():
        score = _likeness(mine, theirs, weight)
        if score >= ALIKE and score > best.get(metric, 0.0):
            best[metric] = 1.0 if mine == theirs else min(score, 0.99)
    for usual, metric, most in _USUAL:
        if mine >= words(usual) and high <= most and best.get(metric, 0.0) < USUAL:
            best[metric] = USUAL
    if mine & _HELD_OUT:
        best["eval.score"] = max(best.get("eval.score", 0.0), 0.6)
    ranked = sorted(best.items(), key=lambda pair: (-pair[1], len(pair[0])))
    if [score for _, score in ranked].count(1.0) > 1:
        ranked = [(metric, min(score, 0.99)) for metric, score in ranked]
    return ranked[:6]


# ---------------------------------------------------------------- by value


def _scale(column: Column, metric: str) -> float | None:
    """What to multiply the values by so that they are possible for ``metric``; None when no usual factor does it."""
    told, values = names.metric(metric), column.finite.values
    if not len(values):
        return 1.0
    low, high = float(values.min()), float(values.max())
    near = 1e-6 + 0.01 * max(abs(low), abs(high))
    if told.low is not None and low < told.low - (near if metric.startswith("kl.") else 1e-6):
        return None
    if told.high is not None and high > told.high + 1e-6:
        return 0.01 if told.unit == "fraction" and PERCENT < high <= 100 else None
    if told.unit in ("tokens", "steps", "samples") and 0 < high < 1:
        return None
    return 1.0


def _by_values(column: Column, taken: Iterable[str], rows: int) -> list[str]:
    """What a key of unknown name may be by its values alone, where they leave little choice.

    A share that is logged in few of the ``rows`` is likely an evaluation; small numbers on a smooth course a learning rate,
    with a jump in it too.
    """
    values = column.finite.values
    if 3 <= len(values) <= rows / 3 and 0 <= float(values.min()) < float(values.max()) <= 1:
        return ["eval.score"]
    if len(values) < COMMON or "optim.lr" in taken:
        return []
    small = float(values.min()) >= 0 and 1e-9 < float(values.max()) < 2e-3
    turns = int(np.count_nonzero(np.diff(np.sign(np.diff(values)[np.diff(values) != 0]))))
    smooth = turns <= 2 and len(np.unique(values)) > 2
    return ["optim.lr"] if small and smooth else []


def _seen(column: Column, run: Run) -> str:
    """The values in a few words: range, number, kind, and what they move with."""
    values = column.finite.values
    bad = f", {column.nonfinite} not finite" if column.nonfinite else ""
    if not len(values):
        return f"no finite value{bad}"
    low, high, many = float(values.min()), float(values.max()), len(values)
    if low == high:
        return f"always {low:.6g}, {many} values{bad}"
    whole = bool((values == np.floor(values)).all())
    rises = many > 2 and bool((np.diff(values) >= 0).all())
    kind = (
        "whole numbers that only rise, a counter"
        if whole and rises
        else "only rises, a clock or a sum"
        if rises and high > 1 and float((np.diff(values) > 0).mean()) > 0.9
        else "never falls"
        if rises
        else "0 or 1"
        if whole and low == 0 and high == 1
        else "whole numbers"
        if whole
        else "within 0 and 1"
        if low >= 0 and high <= 1
        else "of both signs"
        if low < 0 < high
        else ""
    )
    parts = [f"{low:.4g} .. {high:.4g}", f"{many} value{'s' * (many != 1)}{bad}", kind, _moves_like(column, run)]
    return ", ".join(part for part in parts if part)


def _moves_like(column: Column, run: Run) -> str:
    """The known metric with which a series moves from step to step; empty without one."""
    best, found = TOGETHER, ""
    mine = column.finite
    for metric, other in run.columns.items():
        theirs = other.finite
        _, i, j = np.intersect1d(mine.steps, theirs.steps, assume_unique=False, return_indices=True)
        if len(i) < COMMON:
            continue
        with np.errstate(all="ignore"):
            a, b = np.diff(mine.values[i]), np.diff(theirs.values[j])
            if not a.std() or not b.std():
                continue
            like = abs(float(np.corrcoef(a, b)[0, 1]))
        if like > best:
            best, found = like, metric
    return f"moves like {found}" if found else ""


# ---------------------------------------------------------------- the text


def _head(seen: Survey, guesses: Sequence[Guess]) -> list[str]:
    run = seen.run
    have = {*run.columns, *(guess.metrics[0] for guess in guesses if guess.sure)}
    missing = [name for need, name in _SOUGHT.items() if not have & {*need.split("|")}]
    if not run.evaluations and "eval.score" not in have:
        missing.append("held-out score")
    lines = [
        f"# Names for {_comment(run.name)}, drafted from its keys and values.",
        "# A line behind # is a guess: take the # away where it is right, correct the name or delete the line where not.",
        "# Valid names: rlclinic metrics, and docs/knobs.md for [settings]. Then: rlclinic diagnose LOG --names THIS_FILE",
        "",
        'title = "own training loop"' if run.framework is None else f'title = "own loop on {run.framework.title}"',
    ]
    if run.framework is not None and run.framework.name != "generic":
        lines.append(f'extends = "{run.framework.name}"  # {_comment(run.framework.why)}')
    else:
        lines.append('# extends = "trl"  # the trainer underneath, if there is one: rlclinic frameworks')
    lines += _steps(seen)
    known = ", ".join(sorted(metric for metric in run.columns if not metric.startswith(("time.", "perf."))))
    lines += [f"# already known: {known}" if known else "# already known: nothing"]
    lines += [f"# still missing: {', '.join(missing)}"] if missing else []
    return lines


def _named_counters(seen: Survey) -> list[str]:
    """The first keys that are called a step and may count the steps."""
    counters = (key for key, column in seen.unknown.items() if _valid(key) and _counts(column))
    return [key for key in counters if words(key) & _COUNTERS][:3]


def _steps(seen: Survey) -> list[str]:
    counters = [key for key, column in seen.unknown.items() if _valid(key) and _counts(column)]
    named = _named_counters(seen)
    stated = seen.stepped and not seen.stepped.startswith(("row order", "_step"))
    counters = named if stated else [*named, *(key for key in counters if key not in named)]
    told = f"  # now: {_comment(seen.stepped)}"
    return [f"# step = {_toml(key)}{told}" for key in counters[:3]] or [f'# step = ""{told}']


def _counts(column: Column) -> bool:
    """Whether a series may count the steps: whole numbers that only rise."""
    values = column.finite.values
    rising = len(values) > 2 and bool((np.diff(values) >= 0).all()) and float(np.ptp(values)) > 0
    return rising and bool((values == np.floor(values)).all())


def _metrics(guesses: Sequence[Guess]) -> list[str]:
    lines = ["[metrics]"]
    for guess in guesses:
        if not _valid(guess.key):
            lines.append(f"# a key that cannot be written here: {_comment(repr(guess.key))}")
            continue
        first, others = (guess.metrics[0], guess.metrics[1:]) if guess.metrics else ("", ())
        value = f'"{first}"' if guess.scale == 1.0 else f'{{ metric = "{first}", scale = {guess.scale:g} }}'
        either = f"or {', '.join(others)}; " if others else "" if first else "unlike every known name; "
        lines.append(f"{'' if guess.sure else '# '}{_toml(guess.key)} = {value}  # {either}{_comment(guess.seen)}")
    return lines if guesses else [*lines, "# every key of the log is known"]


def _settings(seen: Survey) -> list[str]:
    """Settings of the configuration that nothing reads and that resemble a known one; never asserted."""
    lines = ["[settings]"]
    if seen.run.framework is not None and seen.run.framework.name != "generic":
        return [*lines, f"# read under their {seen.run.framework.title} names; name here only what is called otherwise"]
    read = {knob.key.replace("-", "_") for knob in seen.run.knobs.values()}
    spelled = _spellings()
    weight = _rarity(spelled)
    for key, value in sorted(seen.settings.items()):
        plain = key.replace("-", "_")
        if len(lines) > MOST_SETTINGS or plain in read or plain.rpartition(".")[2] in read or not _valid(key):
            continue
        mine = words(key)
        scored = [
            (_likeness(mine, theirs, weight), knob)
            for theirs, knob in spelled
            if knob not in seen.run.knobs and _kind_fits(names.knob(knob).kind, value)
        ]
        scored.sort(key=lambda pair: (-pair[0], -len(mine & words(pair[1]))))
        found = list(dict.fromkeys(knob for score, knob in scored if score >= ALIKE))
        if found:
            either = f"or {', '.join(found[1:3])}; " if found[1:] else ""
            lines.append(f'# {_toml(key)} = "{found[0]}"  # {either}{_comment(str(value))}')
    return lines if seen.settings else [*lines, "# no configuration was given beside the log: --config FILE"]


@cache
def _spellings() -> tuple[tuple[frozenset[str], str], ...]:
    pairs = {(words(knob), knob) for knob in names.knobs()} | {(words(names.knob(k).title), k) for k in names.knobs()}
    for framework in names.frameworks():
        for knob, rows in names.load(framework).knobs.items():
            pairs |= {(words(key.rpartition(".")[2]), knob) for row in rows for key in (row.key, *row.aliases)}
    return tuple(sorted((pair for pair in pairs if pair[0]), key=lambda pair: (pair[1], sorted(pair[0]))))


def _kind_fits(kind: str, value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {"int": number, "float": number, "switch": isinstance(value, bool)}.get(kind, isinstance(value, str))


def _valid(key: str) -> bool:
    return 0 < len(key) <= LONGEST and key.isprintable() and not re.search(r"\{(name|path|n)\}", key)


def _toml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _comment(text: str) -> str:
    plain = "".join(c if c.isprintable() else " " for c in text[:LONGEST])
    return plain if len(text) <= LONGEST else plain + " ..."
