"""Whose form a record of saved answers has, by its keys, and the answers in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlclinic.errors import CannotRead
from rlclinic.readers.answers import episodes, trainers
from rlclinic.readers.answers.gather import Shape
from rlclinic.readers.answers.place import Place, Record, Settings
from rlclinic.readers.answers.plain import ASKED, fits, plain
from rlclinic.rollouts import Answer

__all__ = ["ASKED", "Form", "Place", "Record", "Settings", "form_of", "is_answer"]

SHOWN = 12
"""Most keys of an unknown record that are named (ours)."""


@dataclass(frozen=True)
class Form:
    """One form of saved answers: what holds for all its rows, and the answers in a record."""

    shape: Shape
    answers: Callable[[Record, Place], Iterable[Answer]]


@dataclass(frozen=True)
class _Known:
    """A trainer's form: how it is told, what holds for its rows, and what reads them."""

    shape: Shape
    fits: Callable[[Record, Place], bool]
    answers: Callable[[], Callable[[Record, Place], Iterable[Answer]]]


def _has(*keys: str) -> Callable[[Record, Place], bool]:
    wanted = frozenset(keys)
    return lambda record, _: wanted <= record.keys()


def _first(value: object, key: str) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and key in value[0]


def _is_trace(record: Record, place: Place) -> bool:
    bare = _first(record.get("nodes"), "message") and "rewards" in record
    return bare or ("traces" in record and isinstance(record["traces"], list) and ("task" in record or "env" in record))


def _is_effective(record: Record, place: Place) -> bool:
    return place.path.parent.name == "effective" and _is_trace(record, place)


def _is_table(place: Place) -> bool:
    return place.path.name.endswith((".table.json", ".table.json.gz"))


def _is_trl(record: Record, place: Place) -> bool:
    name = place.path.name
    saved = name.endswith(".parquet") or name.startswith("completions")
    return saved and not _is_table(place) and _trl_row(record)


def _trl_row(record: Record) -> bool:
    flat = not any(isinstance(record.get(key), Mapping) for key in ("reward", "rewards"))
    return record.keys() >= {"step", "prompt", "completion"} and not isinstance(record["step"], list) and flat


def _is_swift(record: Record, place: Place) -> bool:
    return all(isinstance(record.get(key), list) for key in ("step", "prompt", "completion"))


def _is_roll(record: Record, place: Place) -> bool:
    lists = all(isinstance(record.get(key), list) for key in ("responses", "scores"))
    return lists and any(isinstance(record.get(key), list) for key in ("prompt", "id", "global_step"))


def _is_slime(record: Record, place: Place) -> bool:
    own = ("loss_mask", "response_length", "weight_versions", "rollout_log_probs")
    return record.keys() >= {"response", "reward"} and "group_index" in record and any(key in record for key in own)


def _is_nemo(record: Record, place: Place) -> bool:
    rewarded = "rewards" in record and isinstance(record["rewards"], (list, int, float))
    return rewarded and "idx" in record and ("content" in record or "token_loss_mask" in record)


_FORMS = (
    _Known(Shape("prime-rl-effective", filtered=True), _is_effective, episodes.prime_rl),
    _Known(Shape("prime-rl"), _is_trace, episodes.prime_rl),
    _Known(Shape("rllm"), _has("training_step", "episode_id", "trajectories"), episodes.rllm),
    _Known(Shape("art"), lambda record, _: _first(record.get("trajectories"), "messages_and_choices"), episodes.art),
    _Known(
        Shape("art"),
        lambda record, _: "group_index" in record and "reward" in record and _first(record.get("messages"), "trainable"),
        episodes.art_rows,
    ),
    _Known(Shape("tinker"), _has("iteration", "group_idx", "traj_idx", "total_reward"), episodes.tinker),
    _Known(
        Shape("open-instruct", filtered=True), _has("step", "prompt_idx", "response_tokens", "reward"),
        trainers.open_instruct,
    ),
    _Known(Shape("areal"), _has("task_id", "head_version", "tail_version"), trainers.areal),
    _Known(Shape("slime"), _is_slime, trainers.slime),
    _Known(Shape("skyrl"), _has("input_prompt", "output_response"), trainers.skyrl),
    _Known(
        Shape("nemo-rl-filtered", ordered=True, filtered=True),
        lambda record, place: _is_nemo(record, place) and "filtered_rewards" in record,
        trainers.nemo_rl,
    ),
    _Known(Shape("nemo-rl", ordered=True), _is_nemo, trainers.nemo_rl),
    _Known(Shape("swift", ordered=True), _is_swift, trainers.swift),
    _Known(Shape("roll"), _is_roll, trainers.roll),
    _Known(Shape("verl"), _has("input", "output", "score"), trainers.verl),
    _Known(Shape("verl-table", partial=True), _has("input_1", "output_1"), trainers.verl_table),
    _Known(Shape("verifiers"), _has("example_id", "prompt", "completion", "reward"), episodes.verifiers),
    _Known(Shape("trl", ordered=True), _is_trl, trainers.trl),
    _Known(Shape("trl-table", ordered=True), lambda record, place: _is_table(place) and _trl_row(record), trainers.trl),
    _Known(
        Shape("openrlhf", partial=True), lambda record, _: record.keys() == {"global_step", "text", "reward"},
        trainers.openrlhf,
    ),
)  # fmt: skip


def form_of(record: Record, place: Place, columns: Mapping[str, str] | None = None) -> Form:
    """The form of a file by its first record.

    ``columns`` names what a record of the user's own calls otherwise. Raises CannotRead for a record that no known trainer
    writes and whose own names say nothing.
    """
    if columns and any(name in record or name.split(".")[0] in record for name in columns.values()):
        own = fits(record, place, columns)
        if own:
            return Form(_own(own), plain(columns))
    for known in _FORMS:
        if known.fits(record, place):
            return Form(known.shape, known.answers())
    own = fits(record, place, columns)
    if not own:
        raise _unknown(record, place, columns)
    return Form(_own(own), plain(columns))


def _own(name: str) -> Shape:
    return Shape(name, ordered=name == "plain")


def _unknown(record: Record, place: Place, columns: Mapping[str, str] | None) -> CannotRead:
    keys = ", ".join(str(key)[:40] for key in list(record)[:SHOWN])
    more = f" and {len(record) - SHOWN} more" if len(record) > SHOWN else ""
    missing = [name for name in (columns or {}).values() if name not in record]
    lost = f"; --columns names {', '.join(missing[:3])}, which is not among them" if missing else ""
    hint = "say which is which: --columns prompt=NAME,completion=NAME,reward=NAME"
    return CannotRead("saved answers", f"{place.path}: its keys are those of no known form: {keys}{more}{lost}; {hint}")


def is_answer(record: Any, place: Place) -> bool:
    """True for a record of saved answers in a known form."""
    try:
        return isinstance(record, Mapping) and form_of(record, place) is not None
    except CannotRead:
        return False
