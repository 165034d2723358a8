"""The header of a GGUF file: settings and tensors, checked against the size of the file. Plain Python, so that a server can read it.

Source: the specification of GGUF in the repository of ggml (docs/gguf.md).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ...errors import CorruptModel, Unsupported

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Number of the type of a value -> its struct format.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# Upper limits that no model reaches.
LARGEST_HEADER = 100 * 1024 * 1024
MOST_VALUES, MOST_TENSORS, MOST_AXES = 10_000, 100_000, 4
# Longest list that is kept for every file.
SHORT = 1_000
DAMAGED = "The GGUF file is damaged or truncated. Download it again."


@dataclass(frozen=True, slots=True)
class TensorType:
    """How numbers are stored: `size` bytes per block of `block` numbers. Types with blocks of one are exact."""

    name: str
    block: int
    size: int


# Number of the type -> type.
TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    20: TensorType("IQ4_NL", 32, 18),
    23: TensorType("IQ4_XS", 256, 136),
    30: TensorType("BF16", 1, 2),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a GGUF file: its shape (the slowest axis first, as in torch), its type, and the place of its bytes in the file."""

    shape: tuple[int, ...]
    type: TensorType
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """The settings and the tensors of a GGUF file, by name."""

    values: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @property
    def architecture(self) -> str:
        """The name of the architecture, empty if the file gives none."""
        found = self.values.get("general.architecture")
        return found if isinstance(found, str) else ""

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())

    @property
    def quantisation(self) -> str | None:
        """The types of the quantised tensors, such as "Q4_1, Q8_0", that with most weights first; None if no tensor is quantised."""
        counts: dict[str, int] = {}
        for tensor in self.tensors.values():
            if tensor.type.block > 1:
                counts[tensor.type.name] = counts.get(tensor.type.name, 0) + math.prod(tensor.shape)
        return ", ".join(sorted(counts, key=lambda name: -counts[name])) or None


def read(path: Path) -> Header:
    """Read the header of a GGUF file without its long lists, such as the vocabulary: these take megabytes, and a server keeps the headers.

    Raises CorruptModel, or Unsupported for a version or type of tensors that Headscope does not read.
    """
    return _read(path, _read_short)


def read_whole(path: Path) -> Header:
    """Read the header of a GGUF file with everything in it, with the same errors."""
    return _read(path, lambda path, fingerprint: _read_file(path, fingerprint[0]))


def _read(path: Path, reader: Callable[[Path, tuple[int, int, int]], Header]) -> Header:
    try:
        status = path.stat()
        return reader(path, (status.st_size, status.st_mtime_ns, status.st_ino))
    except OSError:
        raise CorruptModel("The GGUF file cannot be read. Check its permissions.") from None


# A vocabulary takes a tenth of a second to read.
@lru_cache(maxsize=256)
def _read_short(path: Path, fingerprint: tuple[int, int, int]) -> Header:
    whole = _read_file(path, fingerprint[0])
    short = {name: value for name, value in whole.values.items() if not isinstance(value, list) or len(value) <= SHORT}
    return Header(short, whole.tensors)


def _read_file(path: Path, size: int) -> Header:
    with path.open("rb") as file:
        return _Reader(file, size).header()


class _Reader:
    """Reads a file from its start, never beyond its end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size, self._at = file, size, 0

    def header(self) -> Header:
        """Read the whole header."""
        if self._bytes(4) != MAGIC:
            raise CorruptModel("The file is not a GGUF file: it does not begin with GGUF.")
        version = self._number("I")
        if version not in VERSIONS:
            raise Unsupported(
                "The GGUF file has another version than 2 or 3, or is for big-endian machines. Convert it."
            )
        tensors, count = self._number("Q"), self._number("Q")
        if tensors > MOST_TENSORS or count > MOST_VALUES:
            _damaged()
        values: dict[str, Any] = {}
        for _ in range(count):
            name = self._string()
            if name in values:
                _damaged()
            values[name] = self._value(self._number("I"))
        described = [self._tensor() for _ in range(tensors)]
        return Header(values, self._placed(described, values.get("general.alignment", 32)))

    def _placed(self, described: list[tuple[str, StoredTensor]], alignment: object) -> dict[str, StoredTensor]:
        """Return the tensors with their place counted from the start of the file. They must fill the rest of the file, but for padding."""
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 20:
            _damaged()
        first = self._at + -self._at % alignment
        end, found = 0, dict[str, StoredTensor]()
        for name, tensor in sorted(described, key=lambda pair: pair[1].start):
            if tensor.start != end + -end % alignment or name in found:
                _damaged()
            end = tensor.start + tensor.size
            found[name] = StoredTensor(tensor.shape, tensor.type, first + tensor.start, tensor.size)
        if not found or not 0 <= self._size - first - end < alignment:
            _damaged()
        return found

    def _tensor(self) -> tuple[str, StoredTensor]:
        name, axes = self._string(), self._number("I")
        if not 1 <= axes <= MOST_AXES:
            _damaged()
        shape = tuple(self._number("Q") for _ in range(axes))  # the fastest axis first
        type_ = TYPES.get(self._number("I"))
        start = self._number("Q")
        if type_ is None:
            known = ", ".join(known.name for known in TYPES.values())
            raise Unsupported(f"The GGUF file has tensors of a type that Headscope does not read. It reads {known}.")
        if 0 in shape or shape[0] % type_.block:
            _damaged()
        return name, StoredTensor(shape[::-1], type_, start, math.prod(shape) // type_.block * type_.size)

    def _value(self, type_: int) -> Any:
        if type_ == STRING:
            return self._string()
        if type_ in SCALARS:
            return self._number(SCALARS[type_])
        if type_ != ARRAY:
            _damaged()
        inner, count = self._number("I"), self._number("Q")
        if inner == STRING:
            read: Callable[[], str] = self._string
            self._check(8 * count)
            return [read() for _ in range(count)]
        if inner not in SCALARS:  # arrays of arrays exist in the specification only
            _damaged()
        form = SCALARS[inner]
        return list(struct.unpack(f"<{count}{form}", self._bytes(count * struct.calcsize(f"<{form}"))))

    def _number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}")))[0]

    def _string(self) -> str:
        try:
            return self._bytes(self._number("Q")).decode()
        except UnicodeDecodeError:
            _damaged()

    def _bytes(self, count: int) -> bytes:
        self._check(count)
        data = self._file.read(count)
        if len(data) != count:
            _damaged()
        self._at += count
        return data

    def _check(self, count: int) -> None:
        """Raise CorruptModel unless as many bytes follow."""
        if count > min(self._size, LARGEST_HEADER) - self._at:
            _damaged()


def _damaged() -> NoReturn:
    raise CorruptModel(DAMAGED)
