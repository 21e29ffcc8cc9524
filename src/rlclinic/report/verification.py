"""A verification drawn for a reader and for programs: whether the cure worked, finding by finding, and how we know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias, TypedDict

from rlclinic import __version__
from rlclinic.model import Onset, Scalar
from rlclinic.report.blocks import (
    KEY,
    Block,
    Bullets,
    Heading,
    KeyNumbers,
    Note,
    Overlay,
    Paragraph,
    Table,
    Tone,
    bounded,
    count,
    plain,
    step,
    tone,
)
from rlclinic.report.contract import number_of, value_of, written
from rlclinic.report.findings import plainly
from rlclinic.report.series import title_of
from rlclinic.verify import WORDS, Cure, Movement, Trial, Verification

SCHEMA: Final = "rlclinic.verification/1"
VerdictWord: TypeAlias = Literal["cured", "improving", "no_effect", "worse", "overshot", "undecided"]
Number: TypeAlias = float | Literal["NaN", "Infinity", "-Infinity"]
Value: TypeAlias = float | int | str | bool | None

_TONES: dict[str, Tone] = {
    "cured": "healthy",
    "improving": "info",
    "no_effect": "warning",
    "worse": "critical",
    "overshot": "critical",
    "undecided": "undecided",
    "nothing": "healthy",
}
_RELATIONS = {
    "fresh": "a fresh run, compared step by step",
    "resumed": "resumed from step {0} of the run before",
    "continued": "goes on from the end of the run before (step {0})",
}
_TAKEN = {
    "taken": "taken",
    "partly": "partly taken",
    "not_taken": "not taken",
    "unknown": "cannot be told",
    "no_setting": "no setting tells",
}
_ANSWERS = {"yes": "yes", "no": "no", "open": "cannot be told"}

# ------------------------------------------------------------------------------------------------------- page


def page(verification: Verification) -> list[Block]:
    """The whole verification as blocks: the answer first, then each finding with what decides, then what is new."""
    before, after = verification.before.run, verification.after.run
    nothing = "new findings" if verification.new else "nothing to verify"
    word = nothing if verification.verdict == "nothing" else WORDS[verification.verdict]
    blocks: list[Block] = [
        Heading(f"{plain(before.name, KEY)}, after the change: {plain(after.name, KEY)}", 1),
        Paragraph(plain(verification.says), label=word, tone=_tone(verification)),
    ]
    start = "" if verification.start is None else step(verification.start)
    facts = [
        ("before", f"{count(len(before.steps), 'row')}, {plain(verification.before.verdict.says)}"),
        ("after", f"{count(verification.rows, 'row')}; {_RELATIONS[verification.relation].format(start)}"),
    ]
    blocks.append(KeyNumbers(tuple(facts)))
    blocks += [Note(plain(remark), label="mind") for remark in verification.remarks]
    for role, title in (("root", "What was wrong"), ("consequence", "What followed from it")):
        cures = [cure for cure in verification.cures if cure.role == role]
        if cures:
            blocks.append(Heading(title, 2))
            for cure in cures:
                blocks += _cure(cure, verification)
    if verification.new:
        blocks.append(Heading("New since the change", 2))
        rows = tuple((plain(f.check, KEY), str(f.severity), plain(f.says)) for f in verification.new)
        blocks.append(Table(("finding", "severity", "what was seen"), rows))
    if verification.confounders:
        blocks.append(Heading("Also changed", 2))
        blocks.append(Paragraph("Nobody prescribed these; what moved may be their doing.", tone="dim"))
        changed = tuple(
            (plain(one.key, KEY), _setting(one.before), _setting(one.after)) for one in verification.confounders
        )
        blocks.append(Table(("setting", "before", "after"), changed))
    return blocks


def _tone(verification: Verification) -> Tone:
    """That of the verdict; a cure beside which something new has come is never drawn as health."""
    grave = max((f.severity for f in verification.new if f.severity is not None), default=None)
    if verification.verdict in ("cured", "improving", "nothing") and grave is not None:
        return tone(grave.label)
    if verification.verdict == "nothing" and verification.before.verdict.severity == "undecided":
        return "undecided"
    return _TONES[verification.verdict]


def title(verification: Verification) -> str:
    """The name of the page."""
    return plain(f"{verification.before.run.name}: did the cure work", 120)


def _cure(cure: Cure, verification: Verification) -> Iterator[Block]:
    severity = "" if cure.finding.severity is None else cure.finding.severity.label
    yield Heading(
        plain(cure.finding.check, KEY),
        3,
        label="did not occur" if cure.absent else WORDS[cure.verdict],
        aside=severity,
        tone="info" if cure.absent else _TONES[cure.verdict],
        plainly=plainly(cure.finding),
    )
    pairs = [("was", plain(cure.finding.says)), ("now", plain(cure.says))]
    if cure.check_says and cure.check != "unseen":
        fires = "still fires" if cure.check == "fires" else "is silent"
        pairs.append(("check", f"{fires}: {plain(cure.check_says)}"))
    if cure.verdict == "undecided":
        if cure.possible:
            pairs.append(("may be", ", ".join(WORDS[word] for word in cure.possible)))
        if cure.more:
            pairs.append(("to decide", f"about {count(cure.more, 'more logged row')} at the present noise"))
    yield KeyNumbers(tuple(pairs))
    if cure.role == "consequence" and cure.verdict == "cured":
        return  # its own remedies were not needed, and a list of them not taken reads as one to be worked off
    if cure.trials:
        yield Bullets(bounded((_trial(trial) for trial in cure.trials), 6), label="remedies")
    if cure.moves:
        yield Bullets(bounded((_move(move) for move in cure.moves), 8), label="expected")
    if cure.lines is not None and all(len(line.finite) > 1 for line in cure.lines):
        yield _overlay(cure, verification)


def _overlay(cure: Cure, verification: Verification) -> Overlay:
    assert cure.lines is not None
    before, after = cure.lines
    steps = [line.steps for line in cure.lines]
    span = min(float(s[0]) for s in steps), max(float(s[-1]) for s in steps)
    at = verification.start
    mark = Onset(at, at, at) if at is not None else cure.finding.onset
    remarks = []
    if cure.way is not None:
        healthy, sick, now = (f"{v:.3g}" for v in (cure.way.healthy, cure.way.sick, cure.way.now))
        remarks.append(f"healthy {healthy}, sick {sick}, now {now}")
    if cure.finding.onset is not None:
        remarks.append(f"ill since step {step(round(cure.finding.onset.step))}")
    return Overlay(
        title_of(cure.metric),
        (("before", before), ("after", after)),
        span,
        mark=mark,
        remarks=tuple(remarks),
        tone=tone(cure.finding.severity.label) if cure.finding.severity is not None else "plain",
        name=cure.metric,
        marked="resumed at" if at is not None else "ill since",
    )


def _trial(trial: Trial) -> str:
    told = [
        f"{one.key}: {_setting(one.before) or 'not known'} to {_setting(one.after) or 'not known'}"
        + (f", wanted {_setting(one.wanted)}" if one.wanted is not None else "")
        for one in trial.settings
    ]
    detail = "; ".join([*told, *([trial.says] if trial.says else [])])
    return f"{_TAKEN[trial.taken]}: {trial.remedy.says}{f' ({detail})' if detail else ''}"


def _move(move: Movement) -> str:
    return f"{title_of(move.metric)} {move.words}: {_ANSWERS[move.answer]} ({move.says})"


def _setting(value: Scalar) -> str:
    return "" if value is None else plain(value, KEY)


# ------------------------------------------------------------------------------------------------------- form
# Adding a key is compatible; renaming or removing one raises the number in SCHEMA. After a change here, run
# tools/build_schema.py.


class RunForm(TypedDict):
    """Name and own rows of one of the runs, and its verdict."""

    name: str
    rows: int
    verdict: str


class SettingForm(TypedDict):
    """A setting as it was, as it should be and as it is; null where that is not known."""

    knob: str
    key: str
    before: Value
    wanted: Value
    after: Value
    taken: Literal["taken", "partly", "not_taken", "unknown", "no_setting"]


class TrialForm(TypedDict):
    remedy: str
    says: str
    taken: Literal["taken", "partly", "not_taken", "unknown", "no_setting"]
    settings: list[SettingForm]


class MoveForm(TypedDict):
    metric: str
    expected: str
    answer: Literal["yes", "no", "open"]
    says: str


class WayForm(TypedDict):
    """Levels of the deciding metric; ``share`` is 0 at the sick one and 1 at the healthy one, with its 95 % interval."""

    healthy: Number
    sick: Number
    now: Number
    share: Number
    low: Number
    high: Number


class RatesForm(TypedDict):
    """The rate of events after the change over that before, with its 95 % interval."""

    ratio: Number
    low: Number
    high: Number


class CureForm(TypedDict):
    check: str
    severity: Literal["info", "warning", "critical"] | None
    role: Literal["root", "consequence"]
    verdict: VerdictWord
    says: str
    possible: list[VerdictWord]
    metric: str | None
    way: WayForm | None
    rates: RatesForm | None
    still_fires: bool | None
    more_rows: int | None
    remedies: list[TrialForm]
    expected: list[MoveForm]


class NewForm(TypedDict):
    check: str
    severity: Literal["info", "warning", "critical"] | None
    says: str


class ChangedForm(TypedDict):
    knob: str
    key: str
    before: Value
    after: Value


class VerificationForm(TypedDict):
    schema: Literal["rlclinic.verification/1"]
    rlclinic: str
    verdict: Literal["cured", "improving", "no_effect", "worse", "overshot", "undecided", "nothing"]
    says: str
    before: RunForm
    after: RunForm
    relation: Literal["fresh", "resumed", "continued"]
    start: float | None
    findings: list[CureForm]
    new: list[NewForm]
    also_changed: list[ChangedForm]
    remarks: list[str]


def to_dict(verification: Verification) -> VerificationForm:
    """The verification as plain values."""
    before, after = verification.before, verification.after
    return {
        "schema": SCHEMA,
        "rlclinic": __version__,
        "verdict": verification.verdict,
        "says": verification.says,
        "before": {"name": before.run.name, "rows": len(before.run.steps), "verdict": before.verdict.severity},
        "after": {"name": after.run.name, "rows": verification.rows, "verdict": after.verdict.severity},
        "relation": verification.relation,
        "start": verification.start,
        "findings": [_cure_form(cure) for cure in verification.cures],
        "new": [
            {"check": f.check, "severity": None if f.severity is None else f.severity.label, "says": f.says}  # type: ignore[typeddict-item]
            for f in verification.new
        ],
        "also_changed": [
            {"knob": c.knob, "key": c.key, "before": value_of(c.before), "after": value_of(c.after)}
            for c in verification.confounders
        ],
        "remarks": list(verification.remarks),
    }


def to_json(verification: Verification) -> str:
    """``to_dict`` as text, see ``contract.written``."""
    return written(to_dict(verification))


def _cure_form(cure: Cure) -> CureForm:
    way, rates = cure.way, cure.rates
    return {
        "check": cure.finding.check,
        "severity": None if cure.finding.severity is None else cure.finding.severity.label,  # type: ignore[typeddict-item]
        "role": cure.role,
        "verdict": cure.verdict,
        "says": cure.says,
        "possible": list(cure.possible),
        "metric": cure.metric or None,
        "way": None
        if way is None
        else {
            "healthy": number_of(way.healthy),
            "sick": number_of(way.sick),
            "now": number_of(way.now),
            "share": number_of(way.share),
            "low": number_of(way.low),
            "high": number_of(way.high),
        },
        "rates": None
        if rates is None
        else {"ratio": number_of(rates.ratio), "low": number_of(rates.low), "high": number_of(rates.high)},
        "still_fires": None if cure.check == "unseen" else cure.check == "fires",
        "more_rows": cure.more,
        "remedies": [
            {
                "remedy": trial.remedy.id,
                "says": trial.says,
                "taken": trial.taken,
                "settings": [
                    {
                        "knob": one.knob,
                        "key": one.key,
                        "before": value_of(one.before),
                        "wanted": value_of(one.wanted),
                        "after": value_of(one.after),
                        "taken": one.taken,
                    }
                    for one in trial.settings
                ],
            }
            for trial in cure.trials
        ],
        "expected": [
            {"metric": move.metric, "expected": move.words, "answer": move.answer, "says": move.says}
            for move in cure.moves
        ],
    }
