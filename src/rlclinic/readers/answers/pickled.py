"""The samples in a PyTorch file of slime, read off the opcodes of its pickle; nothing in it is ever imported or called."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from rlclinic.errors import CannotRead
from rlclinic.readers.stores.archive import listed

PICKLE = 384 << 20
"""Longest pickle in bytes (ours: 3,000 samples of 8,000 tokens with their log-probabilities)."""
SWELLING = 250
"""Times its packed size to which a pickle may unpack (ours; PyTorch packs nothing)."""
LINE = 4_096
"""Longest argument in bytes that ends with its line (ours: names of modules, decimal numbers)."""
STACK = 500_000
"""Most values that wait on the stack (ours: numbers wait 1,000 at a time, and samples leave as they are complete)."""
MEMO = 1_000_000
"""Most values that may be referred to again (ours)."""
STEPS = 6_000_000
"""Most opcodes other than runs of numbers (ours: 4,000 samples of 40 fields have a million)."""
NODES, DEPTH = 2_000_000, 12
"""Most values in one sample, counted as often as they are referred to, and how deep they may lie (ours)."""
NUMBERS = 1 << 18
"""Most numbers taken from one tensor (ours: no answer has more tokens)."""
STORED = 64 << 20
"""Largest storage in bytes of which a tensor is read (ours)."""
_LISTED = "samples"
_RUN = re.compile(rb"(?s:K.|M..|J.{4}|G.{8}){8,1000}")
"""Numbers one after another, as many as a list is given at once."""
_ONE = re.compile(rb"(?s:K.|M..|J.{4}|G.{8})")
_STORAGES = {
    "FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "BFloat16Storage": "bf16", "LongStorage": "<i8",
    "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1", "BoolStorage": "<u1",
}  # fmt: skip
_SCALARS = frozenset({"f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "b1"})
_PLAIN = (str, int, float, bool, bytes, type(None))


class _Unknown:
    """Stands for whatever a pickle would make by calling something."""

    def __repr__(self) -> str:
        return "<not read>"


UNKNOWN = _Unknown()


class _Named:
    """The name of something that a pickle refers to; never looked up."""

    __slots__ = ("name",)

    def __init__(self, module: object, name: object) -> None:
        self.name = f"{module}.{name}"[:200]


class _Made:
    """What is known of a tensor, its storage or a NumPy type by the arguments it would be made from."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: str, parts: tuple[Any, ...]) -> None:
        self.kind, self.parts = kind, parts


class _Damaged(Exception):
    """The pickle ends early or does what no pickle does."""


def pickled_records(stream: IO[bytes], label: str) -> Iterator[dict[str, Any]]:
    """Each dictionary in the list ``samples`` of a file that ``torch.save`` wrote, with the scalars beside that list.

    Tensors become lists of numbers; what a call would make becomes an inert stand-in. Raises CannotRead for files without
    such a list (weights), and for damaged or oversized ones, also after some samples.
    """
    stream.seek(0)
    try:
        names = {one.filename: one for one in listed(stream, label)}
        inner = next((name for name in names if name.rpartition("/")[2] == "data.pkl"), None)
        if inner is None:
            raise _refused(label, "a ZIP archive without saved answers, not unpacked")
        with zipfile.ZipFile(stream) as archive:
            held = names[inner]
            if held.file_size > PICKLE or held.file_size > SWELLING * max(held.compress_size, 1):
                raise _refused(label, f"a pickle of {held.file_size >> 20} MiB")
            with archive.open(held) as member:
                data = member.read(PICKLE + 1)
            tensors = _Tensors(archive, names, inner[: -len("data.pkl")])
            found = False
            for sample, beside in samples(data):
                found = True
                copied = _copied(sample, tensors)
                if isinstance(copied, dict):
                    yield {**beside, **copied}
            if not found:
                raise _refused(label, "weights or other tensors, no samples")
    except (_Damaged, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error) as error:
        raise _refused(label, f"a damaged PyTorch file ({str(error)[:100]})") from error
    except (RuntimeError, ValueError, OSError, UnicodeError) as error:
        raise _refused(label, f"a PyTorch file that cannot be read ({str(error)[:100]})") from error


def _refused(label: str, what: str) -> CannotRead:
    return CannotRead("saved answers", f"{label}: {what}", hint="save the answers as JSON lines or Parquet")


def samples(data: bytes) -> Iterator[tuple[dict[Any, Any], dict[str, Any]]]:
    """(sample, scalars beside the list of samples) for each dictionary of that list in the pickle ``data``.

    A sample is given as soon as it is complete and then forgotten, so that the numbers of one sample are held at a time.
    Raises CannotRead never, _Damaged for what is no whole pickle.
    """
    machine = _Machine(data)
    try:
        yield from machine.run()
    except (IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise _Damaged(type(error).__name__) from error


class _Machine:
    """The stack, the marks and the memo of a pickle (Lib/pickletools.py describes each opcode)."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.recent: list[int] = []
        self.home = -1
        """The height of the stack at which samples begin; -1 outside of their list."""
        self.beside: dict[str, Any] = {}

    def run(self) -> Iterator[tuple[dict[Any, Any], dict[str, Any]]]:
        data, stack, marks = self.data, self.stack, self.marks
        at, end, steps = 0, len(self.data), 0
        while at < end:
            op = data[at]
            if op in b"KMJG":
                run = _RUN.match(data, at) or _ONE.match(data, at)
                if run is None:
                    raise _Damaged("it ends within a number")
                stack.extend(_numbers(run[0]))
                at = run.end()
            elif op == 0x28:  # a mark
                if len(stack) > 1 and type(stack[-1]) is list and stack[-2] == _LISTED and self.home < 0:
                    self.home = len(stack)
                    self.beside = self._beside()
                marks.append(len(stack))
                at += 1
            elif op == 0x2E:  # the end
                yield from self._left()
                return
            else:
                self.at = at + 1
                self._rare(op)
                at = self.at
                if op in b"us" and marks and marks[-1] == self.home and stack and type(stack[-1]) is dict:
                    if len(stack) > self.home:
                        yield stack[-1], self.beside
                        stack[-1].clear()
                        stack[-1] = None
                        self._forget()
                elif op == 0x65 and self.home >= 0 and len(stack) == self.home and self.home not in marks[-1:]:
                    self.home = -1
            steps += 1
            if steps > STEPS or len(stack) > STACK or len(marks) > STACK or len(self.memo) > MEMO:
                raise _Damaged("it holds too much")
        raise _Damaged("it has no end")

    def _beside(self) -> dict[str, Any]:
        """The scalars that stand before the list in its dictionary."""
        begin = self.marks[-1] if self.marks else 0
        pairs = self.stack[begin:-2]
        named = zip(pairs[::2], pairs[1::2], strict=False)
        return {k: v for k, v in named if isinstance(k, str) and isinstance(v, (str, int, float))}

    def _left(self) -> Iterator[tuple[dict[Any, Any], dict[str, Any]]]:
        """Samples that were put into their list without a mark: the only one, or the last."""
        root = self.stack[-1]
        held = root.get(_LISTED) if type(root) is dict else None
        if type(held) is not list:
            return
        beside = {k: v for k, v in root.items() if isinstance(k, str) and isinstance(v, (str, int, float))}
        for one in held:
            if type(one) is dict and one:
                yield one, beside

    def _forget(self) -> None:
        for place in self.recent:
            held = self.memo.get(place)
            if type(held) is list and len(held) > 64:
                self.memo[place] = UNKNOWN
        self.recent.clear()

    # ------------------------------------------------------------ arguments

    def _take(self, many: int) -> bytes:
        begin = self.at
        self.at = begin + many
        if many < 0 or self.at > len(self.data):
            raise _Damaged("it ends within a value")
        return self.data[begin : self.at]

    def _size(self, many: int) -> int:
        return int.from_bytes(self._take(many), "little")

    def _line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + LINE)
        if end < 0:
            raise _Damaged("a line without an end")
        line = self.data[self.at : end]
        self.at = end + 1
        return line.decode("utf-8", "replace")

    def _number(self, text: str) -> int | float | bool:
        text = text.strip().rstrip("L")[:40]
        if text in ("00", "01"):
            return text == "01"
        try:
            return int(text)
        except ValueError:
            try:
                return float(text)
            except ValueError:
                raise _Damaged("a number that is none") from None

    def _long(self, many: int) -> object:
        held = self._take(many)
        return int.from_bytes(held, "little", signed=True) if many <= 8 else UNKNOWN

    def _since(self) -> list[Any]:
        """Pop what lies above the last mark."""
        mark = self.marks.pop()
        if mark > len(self.stack):
            raise _Damaged("a mark above the stack")
        held = self.stack[mark:]
        del self.stack[mark:]
        return held

    def _pop(self) -> Any:
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise _Damaged("a value below the mark")
        return self.stack.pop()

    # ------------------------------------------------------------ opcodes

    def _rare(self, op: int) -> None:
        stack = self.stack
        if op in _TEXTS:
            width, words = _TEXTS[op]
            held = self._take(self._size(width))
            stack.append(held.decode("utf-8", "replace") if words else held)
        elif op in _CONSTANTS:
            stack.append(_CONSTANTS[op])
        elif op in b"qrp\x94":
            place = (
                self._size(1) if op == 0x71 else self._size(4) if op == 0x72 else len(self.memo) if op == 0x94 else -1
            )
            place = int(self._number(self._line())) if place < 0 else place
            self.memo[place] = stack[-1]
            self.recent.append(place)
        elif op in b"hjg":
            place = self._size(1) if op == 0x68 else self._size(4) if op == 0x6A else int(self._number(self._line()))
            stack.append(self.memo[place])
        elif op in b"]})\x8f":
            stack.append([] if op in b"]\x8f" else {} if op == 0x7D else ())
        elif op in b"aesu\x90":
            self._fill(op)
        elif op in b"t\x85\x86\x87ld\x91":
            self._gather(op)
        elif op in b"FIL":
            stack.append(self._number(self._line()))
        elif op in b"\x8a\x8b":
            stack.append(self._long(self._size(1 if op == 0x8A else 4)))
        elif op in b"SV":
            stack.append(self._line().strip("'\""))
        elif op in b"012":
            self._drop(op)
        elif op == 0x80:
            self._take(1)
        elif op == 0x95:
            self._take(8)
        else:
            self._call(op)

    def _fill(self, op: int) -> None:
        """Put values into the list, set or dictionary below them."""
        if op == 0x61:
            held = [self._pop()]
        elif op == 0x73:
            held = [self._pop(), self._pop()][::-1]
        else:
            held = self._since()
        target = self.stack[-1]
        if type(target) is list and op in b"ae\x90":
            target.extend(held)
        elif type(target) is dict and op in b"su":
            for key, value in zip(held[::2], held[1::2], strict=False):
                if isinstance(key, _PLAIN):
                    target[key] = value

    def _gather(self, op: int) -> None:
        """Make a tuple, list or dictionary of values."""
        many = {0x85: 1, 0x86: 2, 0x87: 3}.get(op)
        held = self._since() if many is None else [self._pop() for _ in range(many)][::-1]
        if op in b"l\x91":
            self.stack.append(held)
        elif op == 0x64:
            pairs = zip(held[::2], held[1::2], strict=False)
            self.stack.append({key: value for key, value in pairs if isinstance(key, _PLAIN)})
        else:
            self.stack.append(tuple(held))

    def _drop(self, op: int) -> None:
        if op == 0x30:
            self._pop()
        elif op == 0x31:
            self._since()
        else:
            self.stack.append(self.stack[-1])

    def _call(self, op: int) -> None:
        """What would import or call: only its name and arguments are looked at."""
        stack = self.stack
        if op == 0x63:
            stack.append(_Named(self._line(), self._line()))
        elif op == 0x93:
            name, module = self._pop(), self._pop()
            stack.append(_Named(module, name) if isinstance(name, str) and isinstance(module, str) else UNKNOWN)
        elif op == 0x52:
            arguments, called = self._pop(), self._pop()
            stack.append(_known(called, arguments))
        elif op == 0x62:
            self._pop()
        elif op == 0x51:
            held = self._pop()
            stack.append(_Made("storage", held) if isinstance(held, tuple) and len(held) >= 5 else UNKNOWN)
        elif op == 0x50:
            self._line()
            stack.append(UNKNOWN)
        elif op == 0x69:
            self._line(), self._line(), self._since()
            stack.append(UNKNOWN)
        elif op == 0x6F:
            self._since()
            stack.append(UNKNOWN)
        elif op in b"\x81\x92":
            for _ in range(2 if op == 0x81 else 3):
                self._pop()
            stack.append(UNKNOWN)
        elif op in b"\x82\x83\x84":
            self._take({0x82: 1, 0x83: 2, 0x84: 4}[op])
            stack.append(UNKNOWN)
        elif op == 0x97:
            stack.append(UNKNOWN)
        elif op != 0x98:
            raise _Damaged(f"an opcode {op} that does not exist")


def _numbers(run: bytes) -> list[int] | list[float]:
    """The numbers in a run of the opcodes for a byte, two bytes, four bytes with a sign, and a double."""
    if run[0] == 0x47 and len(run) % 9 == 0 and run[::9] == b"G" * (len(run) // 9):
        doubles: list[float] = np.frombuffer(run, [("op", "u1"), ("value", ">f8")])["value"].tolist()
        return doubles
    if run[0] == 0x4B and len(run) % 2 == 0 and run[::2] == b"K" * (len(run) // 2):
        return list(run[1::2])
    return [
        one[1]
        if len(one) == 2
        else one[1] | one[2] << 8
        if len(one) == 3
        else int.from_bytes(one[1:], "little", signed=True)
        if len(one) == 5
        else struct.unpack(">d", one[1:])[0]
        for one in _ONE.findall(run)
    ]


_TEXTS = {
    0x58: (4, True), 0x8C: (1, True), 0x8D: (8, True), 0x54: (4, True), 0x55: (1, True),
    0x42: (4, False), 0x43: (1, False), 0x8E: (8, False), 0x96: (8, False),
}  # fmt: skip
"""Opcodes of texts and bytes: how many bytes their length has, and whether they are text."""
_CONSTANTS = {0x4E: None, 0x88: True, 0x89: False}


def _known(called: object, arguments: object) -> object:
    """What a call to one of a few harmless names would give, made from its arguments alone."""
    if not isinstance(called, _Named) or not isinstance(arguments, tuple):
        return UNKNOWN
    name = called.name
    if name == "collections.OrderedDict" and not arguments:
        return {}
    if name == "torch._utils._rebuild_tensor_v2" and len(arguments) >= 4:
        return _Made("tensor", arguments[:4])
    if name == "numpy.dtype" and arguments and arguments[0] in _SCALARS:
        return _Made("type", arguments[:1])
    if name == "_codecs.encode" and len(arguments) == 2 and isinstance(arguments[0], str) and len(arguments[0]) <= 64:
        return arguments[0].encode("latin-1", "replace")
    if name in ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar") and len(arguments) == 2:
        kind, held = arguments
        if isinstance(kind, _Made) and kind.kind == "type" and isinstance(held, bytes):
            form = np.dtype("<" + kind.parts[0])
            return np.frombuffer(held, form)[0].item() if len(held) == form.itemsize else UNKNOWN
    return UNKNOWN


class _Tensors:
    """The numbers of tensors, read from the members beside the pickle."""

    def __init__(self, archive: zipfile.ZipFile, names: dict[str, zipfile.ZipInfo], prefix: str) -> None:
        self._archive, self._names, self._prefix = archive, names, prefix
        self._last: tuple[str, bytes] = ("", b"")

    def numbers(self, made: _Made) -> object:
        """A list of numbers, or one number for a tensor without dimensions; None for any other tensor."""
        storage, offset, size, stride = made.parts
        if not (isinstance(storage, _Made) and storage.kind == "storage" and isinstance(storage.parts[1], _Named)):
            return None
        form = _STORAGES.get(storage.parts[1].name.rpartition(".")[2])
        whole = all(isinstance(one, tuple) and all(type(n) is int for n in one) for one in (size, stride))
        if form is None or type(offset) is not int or offset < 0 or not whole or len(size) > 2:
            return None
        many = 1
        for extent in size:
            many *= extent
        expected = (size[1], 1) if len(size) == 2 else (1,) * len(size)
        if not 0 <= many <= NUMBERS or (many > 1 and tuple(stride) != expected):
            return None
        width = 2 if form == "bf16" else np.dtype(form).itemsize
        held = self._storage(str(storage.parts[2]))[offset * width : (offset + many) * width]
        if len(held) != many * width:
            return None
        if form == "bf16":
            values = (np.frombuffer(held, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(held, form)
        return values.reshape(size).tolist()

    def _storage(self, key: str) -> bytes:
        if key != self._last[0]:
            member = self._names.get(f"{self._prefix}data/{key}")
            if member is None or member.file_size > min(STORED, SWELLING * max(member.compress_size, 1)):
                return b""
            with self._archive.open(member) as inner:
                self._last = key, inner.read(STORED)
        return self._last[1]


def _copied(sample: object, tensors: _Tensors) -> object:
    """A sample as plain values without references to itself, of bounded size."""
    left = NODES

    def copy(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > DEPTH:
            return None
        if type(value) is list or type(value) is tuple:
            if len(value) > 64 and {int, float}.issuperset(map(type, value)):
                left -= len(value)
                return list(value) if left >= 0 else None
            return [copy(one, depth + 1) for one in value[: max(left, 0)]]
        if type(value) is dict:
            return {key: copy(one, depth + 1) for key, one in value.items() if isinstance(key, str)}
        if isinstance(value, _Made):
            return tensors.numbers(value) if value.kind == "tensor" and depth < 3 else None
        return value if isinstance(value, _PLAIN) else None

    return copy(sample, 0)
