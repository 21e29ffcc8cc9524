"""Hides secrets and personal strings in a text before anybody sees it; mathematics, code and plain numbers stay readable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

# Every pattern starts at a fixed word or at the edge of a run, and repeats a bounded number of times or one class of
# characters to the end of its run: the time is linear in the length of the text.


_KEYS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|xai|gsk|pplx|tvly|nvapi|glpat)[-_](?=[A-Za-z_\-]{0,120}[0-9])[A-Za-z0-9_\-]{20,400}"
    r"|gh[pousr]_[A-Za-z0-9]{16,255}|github_pat_[A-Za-z0-9_]{16,255}"
    r"|(?:hf|npm|r8|dop_v1|wandb_v1|shpat|lin_api)_[A-Za-z0-9_]{16,255}|pypi-[A-Za-z0-9_\-]{16,400}"
    r"|(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA)[A-Z0-9]{16}"
    r"|xox[abeoprs]-[A-Za-z0-9\-]{10,255}|xapp-[A-Za-z0-9\-]{10,255}"
    r"|AIza[A-Za-z0-9_\-]{30,100}|ya29\.[A-Za-z0-9_\-]{16,400}|SG\.[A-Za-z0-9_\-]{16,64}\.[A-Za-z0-9_\-]{16,64}"
    r"|[spr]k_(?:live|test)_[A-Za-z0-9]{10,255}"
    r"|eyJ[A-Za-z0-9_\-]{8,4000}\.[A-Za-z0-9_\-]{8,8000}(?:\.[A-Za-z0-9_\-]{0,4000})?"
    r")"
)
"""Keys whose issuers gave them a shape of their own, and JSON web tokens."""

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")

_HEADER = re.compile(
    r"(?i)((?<![a-z])authorization[\"']?\]?\s{0,4}(?::\s{0,4}[\"']?|=\s{0,4}[\"'])(?:(?:basic|bearer|token|digest)\s{1,4})?"
    r"|(?<![a-z])bearer\s{1,4}(?=[a-z._~+/=\-]{0,200}[0-9]))([a-z0-9._~+/=\-]{8,4000})"
)
_ASSIGNED = re.compile(
    r"(?i)((?:pass(?:word|wd|phrase)|pwd|secret|api[_\- ]?key|access[_\-]?key|(?:auth|access|refresh|session|api)[_\-]?token"
    r"|client[_\-]?secret|private[_\-]?key|credentials?)[a-z0-9_]{0,20}[\"']?\s{0,4}(?:=>|:=|[:=](?!=))\s{0,4})"
    r"(?:\"([^\"\n]{1,200})\"|'([^'\n]{1,200})'|([^\s\"'(),;&<>{}\[\]]{4,200}))"
)
_IN_URL = re.compile(
    r"(://[^\s:/@\"']{0,100}):[^\s@/\"']{1,200}@|([?&](?:key|sig|signature|token|code)=)[^\s&#\"'<>]{8,400}"
)

_MAIL = re.compile(r"@(?=[A-Za-z0-9])(?:[A-Za-z0-9\-]{1,63}\.){1,6}[A-Za-z]{2,24}(?![A-Za-z0-9(])")
_LOCAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-")

_PHONE = re.compile(
    r"(?<![\w.+\-])\+[1-9]\d{0,2}(?:[ .\-]?(?:\(\d{1,4}\)|\d{1,4})){2,6}(?![\d.]*\d)"
    r"|(?<![\w.\-])(?:\(\d{3}\) ?|\d{3}([.\-]))\d{3}[.\-]\d{4}(?![.\-]?\w)"
    r"|(?<![\w.\-])\d{3}-\d{2}-\d{4}(?![.\-]?\w)"
)
_CARD = re.compile(r"(?<![\w.\-])(?:\d{4}[ \-]){3}\d{4}(?![.\-]?\w)")
_IPV4 = re.compile(r"(?<![\w.\-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\w)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_MAC = re.compile(r"(?<![\w:\-])[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}(?![\w:\-])")
_UUID = re.compile(r"(?<![\w\-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![\w\-])")
_HOME = re.compile(r"((?:/|\\)(?:home|Users)(?:/|\\{1,2}))(?!<)[^\s/\\\"'<>:]{1,64}")
_WIDE = re.compile(r"[A-Za-z0-9+/_\-]{20,}")
_PIECE = re.compile(r"[A-Za-z0-9]+")
_RUN = re.compile(r"[A-Za-z0-9]{20,}")
_AROUND = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-=")

_HARMLESS = ("127.0.0.1", "0.0.0.0", "255.255.255.255")


def masked(text: str) -> str:
    """``text`` with what may be a secret or a person replaced by a word in angle brackets; in linear time.

    Hidden: keys of known shape, JSON web tokens, private keys, authorization headers, values assigned to a password, key
    or token, credentials and signatures in addresses (``<secret>``); e-mail addresses (``<mail>``); telephone, social
    security and card numbers in their usual grouping (``<number>``); IPv4, IPv6 and MAC addresses (``<address>``); UUIDs
    (``<id>``); names of home folders (``<name>``); and long strings that look drawn at random: 20 characters and more that
    keep changing between capitals, small letters and digits, 32 and more of hexadecimal or of small letters and digits.
    Left as they are: numbers of any length, words, identifiers, formulas, LaTeX, times, dates, hashes below 32
    characters, strings of capitals and digits. What is hidden is a guess by form: it can miss a secret without one.
    """
    if "-----BEGIN " in text:
        text = _without_private_keys(text)
    text = _KEYS.sub("<secret>", text)
    text = _HEADER.sub(r"\1<secret>", text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(_assigned, text)
        text = _IN_URL.sub(
            lambda found: f"{found[1]}:<secret>@" if found[1] is not None else f"{found[2]}<secret>", text
        )
    if "@" in text:
        text = _without_mail(text)
    if ":" in text:
        text = _MAC.sub("<address>", text)
        text = _IPV6.sub(lambda found: "<address>" if _is_ipv6(found[0]) else found[0], text)
    if "-" in text:
        text = _UUID.sub("<id>", text)
    text = _CARD.sub(lambda found: "<number>" if _luhn(found[0]) else found[0], text)
    text = _PHONE.sub(_phone, text)
    text = _IPV4.sub(_ipv4, text)
    text = _HOME.sub(r"\1<name>", text)
    return _without_random(text)


def _without_private_keys(text: str) -> str:
    parts, at = [], 0
    for begin in _PEM.finditer(text):
        if begin.start() < at:
            continue
        end = _PEM_END.search(text, begin.end())
        parts += [text[at : begin.start()], "<secret>"]
        at = len(text) if end is None else end.end()
    return "".join([*parts, text[at:]])


def _assigned(found: re.Match[str]) -> str:
    """The name kept, the value hidden; a call or a look-up on the right of the sign is code and stays."""
    plain, end = found[4], found.end()
    if plain is None:
        quote = '"' if found[2] is not None else "'"
        return f"{found[1]}{quote}<secret>{quote}"
    code = found.string[end : end + 1] in ("(", "[") or plain.startswith(("self.", "os.", "args.", "config."))
    if code or plain.lower().rstrip(".") in _NO_VALUES:
        return found[0]
    return f"{found[1]}<secret>"


_NO_VALUES = frozenset(
    {"none", "null", "true", "false", "input", "self", "string", "optional", "bytes", "required", "<secret>"}
)


def _without_mail(text: str) -> str:
    parts, at = [], 0
    for found in _MAIL.finditer(text):
        begin = found.start()
        while begin > at and found.start() - begin < 64 and text[begin - 1] in _LOCAL:
            begin -= 1
        if begin < found.start():
            parts += [text[at:begin], "<mail>"]
            at = found.end()
    return "".join([*parts, text[at:]])


def _is_ipv6(text: str) -> bool:
    """Whether colons stand as in an IPv6 address; a time, a slice of a list and a C++ name have fewer groups or no digit."""
    groups = [group for group in text.split(":") if group]
    if not any(c.isdigit() for c in text):
        return False
    if "::" not in text:
        return len(groups) == 8
    return text.count("::") == 1 and len(groups) < 8 and (len(groups) >= 3 or text[:4].lower() in ("fe80", "2001"))


def _phone(found: re.Match[str]) -> str:
    digits = sum(c.isdigit() for c in found[0])
    if found[0][0] == "+":
        before = found.string[max(found.start() - 3, 0) : found.start()].rstrip(" ")[-1:]
        summand = before.isdigit() or before in (")", "]", "}", "$")
        return found[0] if summand or not 9 <= digits <= 15 else "<number>"
    return "<number>"


def _ipv4(found: re.Match[str]) -> str:
    parts = found[0].split(".")
    return "<address>" if found[0] not in _HARMLESS and all(int(part) < 256 for part in parts) else found[0]


def _luhn(text: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    digits = [int(c) for c in text if c.isdigit()]
    doubled = [sum(divmod(2 * d, 10)) for d in digits[-2::-2]]
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def _without_random(text: str) -> str:
    parts, at = [], 0
    for begin, end in _random_runs(text):
        if begin < at:
            continue
        while begin > at and text[begin - 1] in _AROUND and text[begin - 1] != "=":
            begin -= 1
        while end < len(text) and text[end] in _AROUND:
            end += 1
        parts += [text[at:begin], "<secret>"]
        at = end
    return "".join([*parts, text[at:]])


def _random_runs(text: str) -> Iterator[tuple[int, int]]:
    """Where runs of letters and digits, or of these with the few signs of base64 between, look drawn at random."""
    for found in _WIDE.finditer(text):
        begin, end = found.span()
        runs = _PIECE.findall(found[0][:2_000])
        signs = min(end - begin, 2_000) - sum(map(len, runs))
        if end - begin >= 32 and 0 < signs <= 0.12 * min(end - begin, 2_000) and max(map(len, runs), default=0) >= 10:
            letters = "".join(runs)[:400]
            if any(c.isupper() for c in letters) and any(c.islower() for c in letters) and _drawn(letters):
                yield begin, end
                continue
        for run in _RUN.finditer(text, begin, end):
            if _drawn(run[0][:400]):
                yield run.span()


_KIND = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "U" * 26 + "l" * 26 + "0" * 10)


def _drawn(run: str) -> bool:
    """Whether letters and digits look drawn at random: many different ones, whose kinds change often.

    Of independent draws of 62 characters 62 % of neighbours differ in kind, of 36 (small letters and digits) 40 %, of
    hexadecimal 47 %; words in camel case have about a third, a formula or a pattern nearly all or few different characters.
    """
    kinds = run.translate(_KIND)
    present = set(kinds)
    if "0" not in present or len(present) == 1:
        return False
    changes = sum(a != b for a, b in pairwise(kinds)) / (len(run) - 1)
    different = len(set(run))
    if len(present) == 3:
        # Words in camel case with one number among them come near 0.45.
        numbers = sum(b == "0" != a for a, b in pairwise("l" + kinds))
        return different >= 12 and changes >= (0.4 if numbers > 1 else 0.5)
    hexadecimal = different <= 16 and not set(run.lower()) - set("0123456789abcdef")
    if len(run) < 32 or kinds.count("0") < 4 or not 0.2 <= changes <= 0.8:
        return False
    return different >= 10 if hexadecimal else different >= 14 and "l" in present
