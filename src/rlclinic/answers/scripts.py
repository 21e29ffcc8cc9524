"""In which scripts and languages an answer is written beside its prompt: another language, or scraps of many."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

SPAN = 3_000
"""Characters read at each end of a text (ours: a few percent of foreign letters show in them)."""
_RANGES = (
    ("Greek", "\u0370-\u03ff\u1f00-\u1fff", 4),  # single letters are symbols of a formula
    ("Cyrillic", "\u0400-\u052f", 3),
    ("Armenian", "\u0531-\u058f", 2),
    ("Hebrew", "\u05d0-\u05ea", 2),
    ("Arabic", "\u0620-\u064a\u066e-\u06d3\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc", 2),
    ("Devanagari", "\u0900-\u097f", 2),
    ("Bengali", "\u0980-\u09ff", 2),
    ("Gurmukhi", "\u0a00-\u0a7f", 2),
    ("Gujarati", "\u0a80-\u0aff", 2),
    ("Tamil", "\u0b80-\u0bff", 2),
    ("Telugu", "\u0c00-\u0c7f", 2),
    ("Kannada", "\u0c80-\u0cff", 2),
    ("Malayalam", "\u0d00-\u0d7f", 2),
    ("Thai", "\u0e01-\u0e5b", 2),
    ("Georgian", "\u10a0-\u10ff", 2),
    ("Ethiopic", "\u1200-\u137f", 2),
    ("Khmer", "\u1780-\u17ff", 2),
    ("Kana", "\u3041-\u30ff\uff66-\uff9d", 2),
    ("Han", "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ffff", 1),
    ("Hangul", "\u1100-\u11ff\uac00-\ud7a3", 1),
)
"""Scripts that no formula and no code is written in, their letters, and the fewest of them in a row that are a word."""
_LATIN = {
    language: frozenset(words.split())
    for language, words in {
        "English": "the of and to is that we it with for this are be as from have which so can not you by our then also"
        " plus how many what if one two each give your answer in on at was has find must all",
        "German": "der das und ist wir nicht mit ein eine von zu den sich auf auch dann dies diese wird sind haben daher aus"
        " nun jetzt noch nur wenn alle wert macht insgesamt ergibt uns",
        "French": "le les des est une nous dans que qui sur avec donc pas cette par sont alors aux du ce pour et au la un"
        " de",
        "Spanish": "el los las que es una un la de con por del entonces este esta son cada sus tenemos para como hay ahora"
        " esto eso se lo en al valor todas",
        "Portuguese": "uma um para com que mais ent\u00e3o n\u00e3o s\u00e3o temos dos das pelo isso cada \u00e9 os da de"
        " em agora ou",
        "Italian": "il che di per una con non sono della questo quindi abbiamo dei gli \u00e8 la le si poi ora anche nel un",
        "Dutch": "het een van dat wij zijn met voor niet dus deze ook naar worden hebben nu er wordt bij de",
        "Polish": "jest nie si\u0119 na \u017ce dla jak ale kt\u00f3ry wi\u0119c oraz mamy od czy tego przez",
        "Turkish": "bir ve bu i\u00e7in ile olarak olan kadar daha \u015fimdi sonra ise",
        "Indonesian": "yang dan dari untuk adalah dengan ini kita tidak jadi pada maka karena itu akan",
        "Vietnamese": "l\u00e0 c\u1ee7a v\u00e0 m\u1ed9t c\u00e1c \u0111\u01b0\u1ee3c cho"
        " kh\u00f4ng n\u00e0y v\u1edbi c\u00f3 trong ch\u00fang v\u1eady",
    }.items()
}
"""Small words by which languages in Latin letters are told apart."""
_OTHERS = {
    own: (frozenset().union(*(_LATIN[name] - _LATIN[own] for name in _LATIN)), [_LATIN[n] for n in _LATIN if n != own])
    for own in _LATIN
}
"""By language: all small words of the others that are not its own, and those of each."""
_PIECE, _WORDS = 800, 4
"""Characters of a piece whose language is told, and the different small words that it must have of it (ours)."""
_BROKEN = "\ufffd"
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,40}")
_FENCE = re.compile(r"```[^`]{0,4000}```")
_ASKED = (
    r"translat|(?:in|into|from|to) (?:english|chinese|mandarin|japanese|korean|russian|arabic|hindi|hebrew|greek|thai"
    r"|bengali|persian|urdu|ukrainian|tamil|vietnamese|german|french|spanish)|pinyin|kanji|hanzi|multilingual|\u7ffb\u8bd1|\u7ffb\u8b6f|\u82f1\u6587"
    r"|\u82f1\u8bed|\u4e2d\u6587|\u7ffb\u8a33|\u82f1\u8a9e|\u65e5\u672c\u8a9e|\u4e2d\u56fd\u8a9e|\u65e5\u8bed"
    r"|\u6cd5\u8bed|\u5fb7\u8bed|\u4fc4\u8bed|\u97e9\u8bed|\uc601\uc5b4|\ud55c\uad6d\uc5b4|\uc77c\ubcf8\uc5b4"
    r"|\u0430\u043d\u0433\u043b\u0438\u0439\u0441\u043a"
    r"|\u00fcbersetz|tradu[czi]|(?:auf|in|ins) (?:deutsch|englisch|franz\u00f6sisch)"
    r"|en (?:fran\u00e7ais|anglais|ingl\u00e9s|espa\u00f1ol)|\ubc88\uc5ed|\u043f\u0435\u0440\u0435\u0432\u0435\u0434"
)


@dataclass(frozen=True)
class Writing:
    """How one answer is written, beside its prompt."""

    foreign: float = 0.0
    """Share of its letters in scripts that neither prompt nor truth has, or of its pieces in another Latin language."""
    letters: int = 0
    """How many letters those are."""
    scripts: int = 0
    """How many such scripts have two letters and more."""
    broken: float = 0.0
    """Share of characters that could not be decoded."""
    late: bool = False
    """Whether the foreign letters begin only after the first third."""


def writing(answer: str, native: frozenset[str], language: str = "") -> Writing:
    """How ``answer`` is written where ``native`` scripts are those of its prompt and truth (see ``scripts_of``), and
    ``language`` is the one in Latin letters of its prompt (see ``language_of``; empty where that is not known).

    Linear time; at most ``SPAN`` characters at either end are read.
    """
    other = _in_another(answer, language) if language else 0.0
    if answer.isascii() and "Latin" in native:
        return Writing(other, round(other * len(answer)))
    text = answer if len(answer) <= 2 * SPAN else answer[:SPAN] + " " + answer[-SPAN:]
    foreign = {name: count for name, count in _counted(text).items() if name not in native}
    if "Latin" not in native:
        words = sum(map(len, _WORD.findall(_FENCE.sub(" ", text))))
        if words > 0.4 * len(text):
            foreign["Latin"] = words
    broken = text.count(_BROKEN) / len(text) if text else 0.0
    if not foreign:
        return Writing(other, round(other * len(answer)), broken=broken)
    letters = sum(foreign.values())
    every = max(1, sum(map(str.isalpha, text)), letters)
    head = _counted(text[: len(text) // 3])
    return Writing(
        foreign=max(other, letters / every),
        letters=letters,
        scripts=sum(count >= 2 for count in foreign.values()),
        broken=broken,
        late=not any(name in head for name in foreign),
    )


def asked(prompt: str) -> bool:
    """Whether a prompt asks for a language, or for a translation: what its answer should be written in is then not told."""
    return re.search(_ASKED, prompt[-4_000:], re.I) is not None


def language_of(text: str) -> str:
    """The language of ``text`` where it is one in Latin letters and can be told by its small words; empty otherwise."""
    words = set(text.lower().split())
    found = sorted(((len(words & small), name) for name, small in _LATIN.items()), reverse=True)
    (most, name), (second, _) = found[0], found[1]
    return name if most >= _WORDS and most >= 2 * second else ""


def may_be(text: str, language: str) -> bool:
    """Whether nothing in ``text`` says that it is in another language in Latin letters than ``language``."""
    words = set(text.lower().split())
    own = len(words & _LATIN.get(language, frozenset()))
    return all(len(words & small) <= max(own, 1) for small in _LATIN.values())


def _in_another(answer: str, language: str) -> float:
    """The share of the first and the last piece of ``answer`` that are in another Latin language: 0, 0.5 or 1."""
    size = _PIECE if len(answer) > 2 * _PIECE else len(answer) // 2 if len(answer) > 400 else 0
    pieces = [answer[:size], answer[-size:]] if size else [answer]
    (union, each), found = _OTHERS[language], 0
    for piece in pieces:
        words = set(piece.lower().split())
        other = words & union
        if len(other) >= _WORDS:
            own = len(words & _LATIN[language])
            most = max(len(other & small) for small in each)
            found += most >= _WORDS and most >= 2 * own
    return found / len(pieces)


def scripts_of(*texts: str) -> frozenset[str]:
    """The scripts in ``texts``; Latin among them where one holds four Latin words or nothing else."""
    found: set[str] = set()
    latin = 0
    for text in texts:
        part = text if len(text) <= 2 * SPAN else text[:SPAN] + " " + text[-SPAN:]
        found |= set(_counted(part))
        latin += len(_WORD.findall(part))
    if latin >= 4 or not found:
        found.add("Latin")
    if "Kana" in found:
        found.add("Han")
    return frozenset(found)


@cache
def _patterns() -> tuple[re.Pattern[str], tuple[tuple[str, re.Pattern[str], int], ...]]:
    """Words in any of the scripts, and those in each; compiled on first use."""
    every = re.compile("[" + "".join(letters for _, letters, _ in _RANGES) + "]+")
    return every, tuple((name, re.compile(f"[{letters}]+"), least) for name, letters, least in _RANGES)


def _beyond(text: str) -> bool:
    """Whether a character is neither Latin nor punctuation nor a symbol; far quicker than a search for words."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return bool(((codes > 0x36F) & ((codes < 0x2000) | (codes > 0x2E7F))).any())


def _counted(text: str) -> dict[str, int]:
    """Letters in words of each script but Latin."""
    if text.isascii() or not _beyond(text):
        return {}
    every, each = _patterns()
    pieces = every.findall(text)
    if not pieces:
        return {}
    joined = " ".join(pieces)
    counts = {}
    for name, letters, least in each:
        count = sum(size for size in map(len, letters.findall(joined)) if size >= least)
        if count:
            counts[name] = count
    return counts
