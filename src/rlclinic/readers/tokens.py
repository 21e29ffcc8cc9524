"""Numbers and metric names as logs print them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

KEY_LENGTH = 200
"""Longest key taken as a metric (ours: the longest real key in the corpus has 97 characters)."""
FULL_PRECISION = 9
"""Decimals from which a printed number counts as a full float (ours: no fixed format seen prints more than 8)."""

_WRAPPED = r"(?:np|numpy|torch|jnp)?\.?(?:float|int|uint|bfloat|tensor|array)\d{0,2}\(([^()]{1,60})\)"


_WORD = re.compile(r"[a-z]+")
_METRIC_WORDS = frozenset(
    [
        "loss",
        "reward",
        "rewards",
        "kl",
        "entropy",
        "grad",
        "lr",
        "learning",
        "epoch",
        "score",
        "scores",
        "advantage",
        "advantages",
        "response",
        "completion",
        "completions",
        "clip",
        "clipfrac",
        "clipped",
        "accuracy",
        "acc",
        "objective",
        "policy",
        "hacking",
        "pg",
        "ppo",
        "logps",
        "tme",
        "fbeta",
    ]
)
_RL_WORDS = frozenset(
    [
        "reward",
        "rewards",
        "kl",
        "advantage",
        "advantages",
        "completion",
        "completions",
        "response",
        "ppo",
        "grpo",
        "rollout",
        "policy",
        "score",
        "scores",
        "objective",
        "clipfrac",
        "episode",
        "returns",
    ]
)
_PREFERENCE = r"(?:eval_|train/|eval/)?(?:rewards|logps|logits)/(?:chosen|rejected|margins|accuracies)"
_PREFERENCE_KL = frozenset(["kl", "eval_kl", "train/kl", "eval/kl"])
"""KTO's estimate for its loss (trl/trainer/kto_trainer.py), which says nothing of a sampled policy."""
_REWARD_MODEL = frozenset(["accuracy", "min_reward", "mean_reward", "max_reward", "margin"])
"""What TRL's trainer of reward models logs (trl/trainer/reward_trainer.py)."""
_SUPERVISED = (
    "mean_token_accuracy",
    "rewards/chosen",
    "rewards/margins",
    "logps/chosen",
    "learning_rate",
    "grad_norm",
    "eval_loss",
    "val_loss",
    "valid_loss",
    "perplexity",
    "margin",
    "mfu",
)


def words(key: str) -> frozenset[str]:
    """The lower-case words of a key (``rewards/format/mean`` -> rewards, format, mean)."""
    return frozenset(_WORD.findall(key.lower()))


_admitted: ContextVar[Callable[[str], bool] | None] = ContextVar("_admitted", default=None)


@contextmanager
def admitting(known: Callable[[str], bool]) -> Iterator[None]:
    """Within the block (and this thread) keys for which ``known`` holds count as metrics, whatever their words."""
    token = _admitted.set(known)
    try:
        yield
    finally:
        _admitted.reset(token)


def metric_like(keys: Iterable[str]) -> bool:
    """True when at least one key speaks of training (loss, reward, kl, entropy, ...) or is admitted as a metric."""
    known = _admitted.get()
    return any(words(key) & _METRIC_WORDS or (known is not None and known(key)) for key in keys)


def supervised(keys: Iterable[str]) -> bool:
    """True when the keys are those of fine-tuning or preference training and none is of reinforcement learning."""
    names = [key for key in keys if len(key) <= KEY_LENGTH]
    known = set(_REWARD_MODEL) if set(names) >= _REWARD_MODEL else set()
    if any(key.endswith("rewards/chosen") for key in names):
        known |= _PREFERENCE_KL
    if any(words(key) & _RL_WORDS and key not in known and not re.match(_PREFERENCE, key) for key in names):
        return False
    if {"current_steps", "loss"} <= set(names):
        return True  # LLaMA-Factory's trainer_log.jsonl, which has a reward where there is one
    return any("loss" in key for key in names) and any(key.endswith(_SUPERVISED) for key in names)


_POINT_DECIMAL = r"[+-]?\d{0,15}\.\d+(?:[eE][+-]?\d+)?"
_COMMA_DECIMAL = r"[+-]?(?:(?:(?:0\d*|\d{4,})?,\d+|\d{1,3},(?!\d{3}(?!\d))\d+)(?:[eE][+-]?\d+)?|\d+,\d+[eE][+-]?\d+)"
_COMMA_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:(?:,\d{3})+\.\d+|(?:,\d{3}){2,})"
_POINT_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+,\d+"
_POINT_EITHER = r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+"
_EITHER = r"[+-]?[1-9]\d{0,2},\d{3}"


class Commas:
    """Reads numbers with a comma in them: decimal, or between thousands, whichever the other cells of the table allow."""

    def __init__(self, decimal: bool | None = None) -> None:
        self._usual = decimal
        self._decimal = self._thousands = self._either = False

    @property
    def pointed(self) -> bool:
        """True when a point stands between thousands, since commas are decimal and no point can only be."""
        return self._usual is True and self._decimal and self._either and not self._thousands

    def seen(self, text: str) -> None:
        """Take one cell into account."""
        if "," in text:
            self._decimal |= re.fullmatch(_COMMA_DECIMAL, text) is not None
            self._decimal |= re.fullmatch(_POINT_THOUSANDS, text) is not None
            self._thousands |= re.fullmatch(_COMMA_THOUSANDS, text) is not None
        elif "." in text and not self._thousands:
            if self._usual and re.fullmatch(_POINT_EITHER, text):
                self._either = True
                return
            self._thousands = re.fullmatch(_POINT_DECIMAL, text) is not None

    def plain(self, text: str) -> str:
        """The cell with a point for its decimal comma and no thousands marks; as it is where it can be read either way."""
        if "," not in text:
            return text.replace(".", "") if self.pointed and re.fullmatch(_POINT_EITHER, text) else text
        if re.fullmatch(_COMMA_DECIMAL, text):
            return text.replace(",", ".")
        if re.fullmatch(_POINT_THOUSANDS, text):
            return text.replace(".", "").replace(",", ".")
        if re.fullmatch(_COMMA_THOUSANDS, text):
            return text.replace(",", "")
        thousands = self._thousands or (self._either and not self._decimal)
        decimal = self._decimal if self._decimal != thousands else None if self._decimal else self._usual
        if decimal is not None and re.fullmatch(_EITHER, text):
            return text.replace(",", "." if decimal else "")
        return text


class Printed(str):
    """A number as printed without quotes: its decimals tell how finely it was rounded."""

    __slots__ = ()


_OF_C = {
    sign + name: value
    for name, value in (
        *((name, float("nan")) for name in ("nan(ind)", "nan(snan)", "1.#qnan", "1.#snan", "1.#ind", "1.#nan")),
        ("1.#inf", float("inf")),
    )
    for sign in ("", "+", "-")
} | {"-1.#inf": float("-inf")}
"""How the C library of Windows prints what is no finite number."""


def number(text: str) -> float | None:
    """The number a printed token holds (``0.5``, ``1e-5``, ``nan``, ``-Infinity``, ``np.float64(0.5)``), else None."""
    try:
        value = float(text)
    except ValueError:
        if (spelled := _OF_C.get(text.lower())) is not None:
            return spelled
        inner = re.fullmatch(_WRAPPED, text.strip()) if text[-1:] == ")" and len(text) <= 100 else None
        return number(inner[1].split(",")[0]) if inner else None
    return value if text.isascii() and "_" not in text else None


def decimals(token: str) -> int | None:
    """How many decimals a printed number shows, its exponent included (``1.2e-05`` shows 6); None without a point."""
    point = token.find(".")
    if point >= 0 and token[point + 1 :].isdigit():
        return len(token) - point - 1
    if token[-1:] == ")" and (inner := re.fullmatch(_WRAPPED, token)):
        token = inner[1]
    mantissa, _, exponent = token.lower().partition("e")
    _, dot, tail = mantissa.partition(".")
    if not dot and not exponent:
        return None
    try:
        return max(0, len(tail) - int(exponent or 0))
    except ValueError:
        return None
